"""Which of the scores of a trace is its reward: chosen once for a whole import, so that no trace is judged by another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from offrl_core.importers.fields import Row, finite_number
from offrl_core.importers.spans import Score, Tree
from offrl_core.schema import canonical_json

# A score of one of these names says whether the task was done; any other name may measure anything.
_TELLING = ("reward", "success", "correct", "correctness", "pass", "passed")


@dataclass(slots=True)
class Rewards:
    """The name of the score that is the reward (None: no choice), and what to say about it."""

    name: str | None = None
    notes: list[str] = field(default_factory=list)

    def columns(self, scores: Iterable[Score]) -> dict[str, Any]:
        """The columns of rewards for the last step of a trace with these scores."""
        values = _numbers(scores)
        columns: dict[str, Any] = {}
        if values:
            columns["reward_components"] = components(scores)
        if self.name in values:
            columns["reward"] = _mean(values[self.name])
            columns["reward_source"] = _source(self.name, scores)
        return columns


def choose(trees: Iterable[Tree]) -> Rewards:
    """Choose the reward among the numeric scores of whole traces: the only one, or the only one of a telling name."""
    by_name: dict[str, set[str]] = defaultdict(set)
    worded: set[str] = set()
    n_repeated = 0
    for tree in trees:
        scores = trace_scores(tree)
        values = _numbers(scores)
        n_repeated += any(len(found) > 1 for found in values.values())
        for score in scores:
            by_name[score.name].add(score.source) if score.name in values else worded.add(score.name)
    rewards = _chosen(by_name)
    if rewards.name and n_repeated:
        rewards.notes.append(f"In {n_repeated:,} traces a score was given more than once: the reward is its mean.")
    if worded:
        names = ", ".join(sorted(worded))
        rewards.notes.append(f"Scores in words are no rewards; they are kept in the metadata: {names}.")
    return rewards


def _chosen(by_name: dict[str, set[str]]) -> Rewards:
    """The choice among names with those who judged by them."""
    telling = [name for name in by_name if name.lower() in _TELLING]
    if len(by_name) == 1 or len(telling) == 1:
        name = (telling or list(by_name))[0]
        note = f"The reward is the score {name!r} (source: {', '.join(sorted(by_name[name]))})."
        others = sorted(set(by_name) - {name})
        return Rewards(name, [note + (f" Other scores: {', '.join(others)}." if others else "")])
    if by_name:
        names = ", ".join(sorted(by_name))
        note = f"No reward was chosen: the traces have several scores ({names}), kept in reward_components."
        return Rewards(None, [note + " Call one of them reward to choose it."])
    return Rewards()


def trace_scores(tree: Tree) -> list[Score]:
    """Scores of a trace as a whole: its own, and those of its only root."""
    roots = tree.roots
    return tree.trace.scores + (roots[0].scores if len(roots) == 1 else [])


def components(scores: Iterable[Score]) -> str | None:
    """The numeric scores by name, as JSON text; the mean where a name has several."""
    values = _numbers(scores)
    return canonical_json({name: _mean(found) for name, found in values.items()}) if values else None


def worded(scores: Iterable[Score]) -> Row | None:
    """The scores that are words, by name."""
    return {score.name: score.value for score in scores if isinstance(score.value, str)} or None


def _numbers(scores: Iterable[Score]) -> dict[str, list[float]]:
    """Values by name of the scores that are numbers, or true or false."""
    values: dict[str, list[float]] = defaultdict(list)
    for score in scores:
        if (value := finite_number(score.value)) is not None:
            values[score.name].append(value)
    return values


def _mean(values: list[float]) -> float:
    """The mean, divided before it is summed: two of the largest numbers must not give infinity."""
    return sum(value / len(values) for value in values)


def _source(name: str, scores: Iterable[Score]) -> str:
    """Who gave a trace the score of this name."""
    return f"score {name} ({', '.join(sorted({score.source for score in scores if score.name == name}))})"
