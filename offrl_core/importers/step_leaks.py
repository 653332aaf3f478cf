"""Fields that say what was known only after the action: in a state they would let a learner see the outcome beforehand.

A field leaks by its role (the reward, the flag of the end, what came back, ...) or by what it holds: a value on the last step
of each episode and none before is an outcome, whatever it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from offrl_core.importers.step_cells import is_missing, number_in, truth_in
from offrl_core.importers.step_mapping import Item, StepMapping, expanded, items_of

_LEAST_EPISODES = 3  # with several steps; fewer may look like anything by chance
_STEPS_LOOKED_AT = 1000

KNOWN_AT_THE_END = "has a value only on the last step of an episode"
TURNS_AT_THE_END = "changes only on the last step of an episode"

_OUTCOME = "the state would know the outcome before the agent acts, and what is learned would look better than it is"
_CHOICE = "the state would know which action is chosen, so that nothing is left to learn"
_ANSWER = "the state would know what came of the action before the agent takes it"
_AFTERWARDS = {
    "reward": ("the reward", _OUTCOME),
    "terminal": ("the flag of the end", _OUTCOME),
    "timeout": ("the flag of the cut", _OUTCOME),
    "done": ("the flag of the last step", _OUTCOME),
    "action": ("the action", _CHOICE),
    "arguments": ("the action's arguments", _CHOICE),
    "probability": ("the probability of the action", _CHOICE),
    "logprob": ("the log probability of the action", _CHOICE),
    "result": ("what came back", _ANSWER),
    "error": ("the error", _ANSWER),
    "latency_ms": ("the time that the step took", _ANSWER),
    "cost_usd": ("the cost of the step", _ANSWER),
    "episode": ("the episode", "no two episodes would share a state, so that nothing learned in one helps in another"),
    "step": (
        "the step number",
        "steps at different times would never share a state; where time matters, choose it on the page Framing, "
        "from which it can be taken out again",
    ),
}
NEVER_IN_A_STATE: frozenset[str] = frozenset(_AFTERWARDS)  # roles


@dataclass(frozen=True, slots=True)
class Leak:
    """A field of the state that doesn't belong there."""

    path: str  # as the state names it
    what: str  # "the reward"
    why: str  # what the state would know

    @property
    def sentence(self) -> str:
        """What is wrong, why, and what to do."""
        return f"{self.path} in the state is {self.what}: {self.why}. Take it out of the state."


def leaks(items: Sequence[Item], mapping: StepMapping) -> list[Leak]:
    """Fields of a mapping's state that are known only after the action, each once.

    Args:
        items: the first steps of a log, some hundreds.
        mapping: which field means what.
    """
    roles = [(path, *_AFTERWARDS[role]) for role, path in mapping.paths() if role in _AFTERWARDS]
    steps = Episodes(items, mapping)
    found: list[Leak] = []
    for path in expanded(mapping.state, items):
        by_role = next(
            (
                (what if field == path else f"{what} ({field})", why)
                for field, what, why in roles
                if _overlap(path, field)
            ),
            None,
        )
        if by_role is None and (told := steps.tells_the_end(path)):
            by_role = f"an outcome, as it {told}", _OUTCOME
        if by_role:
            found.append(Leak(path, *by_role))
    return found


def leaks_in(values: Sequence[Any], mapping: StepMapping) -> list[Leak]:
    """:func:`leaks` of a mapping over the first records of a log."""
    return leaks(_items(values, mapping), mapping)


def without_leaks(values: Sequence[Any], mapping: StepMapping) -> StepMapping:
    """A mapping whose state has none of the fields that are known only after the action."""
    gone = {leak.path for leak in leaks_in(values, mapping)}
    if not gone:
        return mapping
    state = expanded(mapping.state, _items(values, mapping))
    return replace(mapping, state=tuple(path for path in state if path not in gone))


def _items(values: Sequence[Any], mapping: StepMapping) -> list[Item]:
    return [item for value in values for item in items_of(value, mapping.steps)][:_STEPS_LOOKED_AT]


def _overlap(path: str, other: str) -> bool:
    """Whether two paths name the same, or one a part of the other."""
    return path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")


class Episodes:
    """Which of some steps are the last of their episode, as far as a mapping or a guess tells."""

    def __init__(self, items: Sequence[Item], mapping: StepMapping) -> None:
        """Find the last steps of episodes with several steps; of the last episode more may follow beyond these steps."""
        self._items = items
        places: dict[Any, list[int]] = {}
        for i, item in enumerate(items):
            places.setdefault(_episode_of(item, mapping), []).append(i)
        if len(places) > _LEAST_EPISODES:
            del places[_episode_of(items[-1], mapping)]
        several = [sorted(found, key=lambda i: _number_of(items[i], mapping)) for found in places.values()]
        several = [found for found in several if len(found) > 1]
        self._several = several if len(several) >= _LEAST_EPISODES else []

    def tells_the_end(self, path: str) -> str:
        """KNOWN_AT_THE_END or TURNS_AT_THE_END, where a field tells which step is the last of its episode; else ""."""
        last = [self._items[found[-1]].get(path) for found in self._several]
        before = [self._items[i].get(path) for found in self._several for i in found[:-1]]
        if not last:
            return ""
        if all(map(is_missing, before)):
            known = sum(not is_missing(cell) for cell in last)
            return KNOWN_AT_THE_END if 2 * known >= len(last) else ""
        truths = set(map(truth_in, before))
        if len(truths) > 1 or None in truths:
            return ""
        turned = sum(truth is not None and truth not in truths for truth in map(truth_in, last))
        return TURNS_AT_THE_END if 2 * turned >= len(last) else ""

    def share_that_change(self, path: str) -> float:
        """Share of the episodes with several steps in which a field has more than one value."""
        n = sum(len({str(self._items[i].get(path)) for i in found}) > 1 for found in self._several)
        return n / len(self._several) if self._several else 0.0


def _episode_of(item: Item, mapping: StepMapping) -> Any:
    """What tells episodes apart: the field for it, else the record around the steps, if steps lie in one."""
    return str(item.get(mapping.episode)) if mapping.episode else id(item.outer) if mapping.steps else None


def _number_of(item: Item, mapping: StepMapping) -> float:
    """The step number; equal where the log has none, so that the order of the file stays."""
    return (number_in(item.get(mapping.step)) or 0.0) if mapping.step else 0.0
