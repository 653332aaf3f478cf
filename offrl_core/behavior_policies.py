"""Logging policies as data: what a world's agent does at each state key, so that a log can be made again from its description.

Three kinds: :class:`Behavior` has the dials of the calculator agent, :class:`TableBehavior` says the probability of each
action at each state key of any world, and :class:`MixedBehavior` draws one of several agents for each episode. All of them
can leave an action out on some tasks (``without``), which is what a re-collecting coverage edit asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from .errors import InvalidConfig
from .params import param
from .policies import TabularPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agent:
    """What every logging policy can do beside its own choice: act at random, and leave an action out.

    ``random_probability`` mixes in a uniform choice among the valid actions.

    ``avoid`` says what the agent leaves out: action -> task (or "*" for every task) -> probability with which the agent,
    standing before the choice, acts as if the tool weren't there. With probability 1 the log never shows the pair, and
    its share falls to the other actions. Episodes stay whole and the task mix stays.
    """

    random_probability: float = param(
        0.0,
        label="Acts at random",
        help="Probability of a uniform choice among the valid actions; 1 is the uniform random policy.",
        symbol="ε",
        low=0.0,
        high=1.0,
        step=0.01,
        unit="probability",
    )
    avoid: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that every dial is a probability."""
        dials = self._dials()
        dials |= {f"avoid[{a!r}][{task!r}]": p for a, by_task in self.avoid.items() for task, p in by_task.items()}
        for name, value in dials.items():
            if not 0 <= value <= 1:
                raise InvalidConfig(f"{name} is {value!r}; it must be a probability between 0 and 1.")

    def without(self, action: str, tasks: tuple[str, ...] = ("*",), probability: float = 1.0) -> Self:
        """The same behavior, leaving out ``action`` on the given tasks."""
        avoid = {name: dict(by_task) for name, by_task in self.avoid.items()}
        avoid.setdefault(action, {}).update(dict.fromkeys(tasks, probability))
        return replace(self, avoid=avoid)

    def avoid_probability(self, action: str, task: str | None) -> float:
        """Probability that the agent acts as if ``action`` weren't there, on a task (None in a world without tasks)."""
        by_task = self.avoid.get(action, {})
        everywhere = by_task.get("*", 0.0)
        return everywhere if task is None else by_task.get(task, everywhere)

    def action_probabilities(
        self, task: str | None, valid_actions: tuple[str, ...], state_key: str = ""
    ) -> dict[str, float]:
        """Action name -> probability of the logging policy where these actions are valid."""
        shares = [(1.0, valid_actions)]
        for action in valid_actions:
            p = self.avoid_probability(action, task)
            if p > 0:
                shares = [part for weight, left in shares for part in _split(weight, left, action, p)]
        probabilities = dict.fromkeys(valid_actions, 0.0)
        for weight, left in shares:
            for action in left:
                uniform, on_purpose = 1 / len(left), self._on_purpose(task, state_key, action, left)
                chosen = self.random_probability * uniform + (1 - self.random_probability) * on_purpose
                probabilities[action] += weight * chosen
        return {action: p for action, p in probabilities.items() if p > 0}

    def parts(self, name: str) -> tuple[MixedPart, ...]:
        """The agents, one of which writes each episode: here a single one, of the given name."""
        return (MixedPart(1.0, name, self),)

    def _dials(self) -> dict[str, float]:
        return {"random_probability": self.random_probability}

    def _on_purpose(self, task: str | None, state_key: str, action: str, choices: tuple[str, ...]) -> float:
        """Probability of one action when exactly ``choices`` are open and the agent doesn't act at random."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Plain data for sidecars and hashes."""
        avoid = {action: dict(by_task) for action, by_task in self.avoid.items()}
        return {**self._dials(), "avoid": avoid}


def _split(weight: float, left: tuple[str, ...], action: str, p: float) -> list[tuple[float, tuple[str, ...]]]:
    """Share a choice into "the tool is there" and "the agent acts as if it weren't"; the last tool can't be left out."""
    others = tuple(a for a in left if a != action)
    return [(weight * (1 - p), left), (weight * p, others)] if others else [(weight, left)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior(_Agent):
    """A logging policy of the calculator agent.

    It takes the one sensible lookup or final. At the operation it picks the right one, which bears the task's name, with
    ``right_probability``, else one of all operations at random; see :class:`_Agent` for the other dials. Where the right
    operation is left out, the agent chooses evenly among the others.
    """

    right_probability: float = param(
        0.62,
        label="Picks the right operation",
        help="Probability that the logging agent picks the right operation on purpose; else it picks one at random.",
        low=0.0,
        high=1.0,
        step=0.01,
        unit="probability",
    )

    def _dials(self) -> dict[str, float]:
        return {"right_probability": self.right_probability, "random_probability": self.random_probability}

    def _on_purpose(self, task: str | None, state_key: str, action: str, choices: tuple[str, ...]) -> float:
        right = self.right_probability if task in choices else 0.0
        return (right if action == task else 0.0) + (1 - right) * (1 / len(choices))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBehavior(_Agent):
    """A logging policy of any world: state key -> action -> probability.

    Uniform over the valid actions at keys the table doesn't have, and where all it would do is left out.
    """

    probabilities: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the dials, and that every row is a distribution."""
        _Agent.__post_init__(self)
        for key, row in self.probabilities.items():
            if not (all(p >= 0 for p in row.values()) and abs(sum(row.values()) - 1) <= 1e-9):
                raise InvalidConfig(
                    f"The action probabilities at {key!r} are {dict(row)}; they must be >= 0 and sum to 1."
                )

    @classmethod
    def of(cls, policy: TabularPolicy) -> TableBehavior:
        """A policy, learned ones too, as the writer of a log."""
        rows = zip(policy.states, policy.probabilities.tolist(), strict=True)
        table = {key: {a: p for a, p in zip(policy.actions, row, strict=True) if p > 0} for key, row in rows}
        return cls(probabilities=table)

    def _on_purpose(self, task: str | None, state_key: str, action: str, choices: tuple[str, ...]) -> float:
        row = self.probabilities.get(state_key, {})
        total = sum(row.get(choice, 0.0) for choice in choices)
        return row.get(action, 0.0) / total if total > 0 else 1 / len(choices)

    def to_json(self) -> dict[str, Any]:
        """Plain data for sidecars and hashes."""
        table = {key: dict(row) for key, row in self.probabilities.items()}
        return {**_Agent.to_json(self), "probabilities": table}


class MixedPart(NamedTuple):
    """One of the agents of a mixture: its share of the episodes, its name in the log, and what it does."""

    share: float
    name: str
    behavior: Any  # of a Behavior or TableBehavior


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedBehavior:
    """Several agents that write one log: each episode is drawn to one of them, which then acts to its end.

    That is not the same as mixing their choices step by step: an agent that alone is bad at the end stays so.
    """

    mixed: tuple[MixedPart, ...]

    def __post_init__(self) -> None:
        """Check that the shares are a distribution."""
        shares = [part.share for part in self.mixed]
        if not (shares and min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-9):
            raise InvalidConfig(f"The shares of the agents are {shares}; they must be >= 0 and sum to 1.")

    def without(self, action: str, tasks: tuple[str, ...] = ("*",), probability: float = 1.0) -> MixedBehavior:
        """The same agents, all leaving out ``action`` on the given tasks."""
        parts = (part._replace(behavior=part.behavior.without(action, tasks, probability)) for part in self.mixed)
        return MixedBehavior(mixed=tuple(parts))

    def parts(self, name: str) -> tuple[MixedPart, ...]:
        """The agents, one of which writes each episode."""
        del name  # each has its own
        return self.mixed

    def to_json(self) -> dict[str, Any]:
        """Plain data for sidecars and hashes."""
        return {"mixed": [{**part._asdict(), "behavior": part.behavior.to_json()} for part in self.mixed]}


AnyBehavior = Behavior | TableBehavior | MixedBehavior


def behavior_from_json(data: Mapping[str, Any]) -> AnyBehavior:
    """Inverse of ``to_json`` of any logging policy."""
    if "mixed" in data:
        parts = (MixedPart(**{**part, "behavior": behavior_from_json(part["behavior"])}) for part in data["mixed"])
        return MixedBehavior(mixed=tuple(parts))
    return TableBehavior(**data) if "probabilities" in data else Behavior(**data)
