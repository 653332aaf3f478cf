"""Who writes the log: logging policies of a world with dials, and the collection of episodes.

A logging policy is plain data, so a log can be made again bit for bit from its description: world, behavior, number of
episodes, seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from .errors import InvalidConfig, UnknownName
from .params import param
from .policies import TabularPolicy
from .schema import canonical_json, short_hash, steps_table
from .worlds import Transition, World, make_world, reachable_states

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """A logging policy of the calculator agent.

    It takes the one sensible lookup or final. At the operation it picks the right one with ``right_probability``, else
    one of all operations at random. ``random_probability`` mixes in a uniform choice among the valid actions.

    ``avoid`` says what the agent leaves out: action -> task (or "*" for every task) -> probability with which the agent,
    standing before the choice, acts as if the tool weren't there. With probability 1 the log never shows the pair, and
    the right operation is then replaced by an even choice among the others. Episodes stay whole and the task mix stays.
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
        dials = {"right_probability": self.right_probability, "random_probability": self.random_probability}
        dials |= {f"avoid[{a!r}][{task!r}]": p for a, by_task in self.avoid.items() for task, p in by_task.items()}
        for name, value in dials.items():
            if not 0 <= value <= 1:
                raise InvalidConfig(f"{name} is {value!r}; it must be a probability between 0 and 1.")

    def without(self, action: str, tasks: tuple[str, ...] = ("*",), probability: float = 1.0) -> Behavior:
        """The same behavior, leaving out ``action`` on the given tasks."""
        avoid = {name: dict(by_task) for name, by_task in self.avoid.items()}
        avoid.setdefault(action, {}).update(dict.fromkeys(tasks, probability))
        return replace(self, avoid=avoid)

    def avoid_probability(self, action: str, task: str) -> float:
        """Probability that the agent acts as if ``action`` weren't there, on a task."""
        by_task = self.avoid.get(action, {})
        return by_task.get(task, by_task.get("*", 0.0))

    def action_probabilities(self, task: str, valid_actions: tuple[str, ...]) -> dict[str, float]:
        """Action name -> probability of the logging policy where these actions are valid."""
        shares = [(1.0, valid_actions)]
        for action in valid_actions:
            p = self.avoid_probability(action, task)
            if p > 0:
                shares = [part for weight, left in shares for part in _split(weight, left, action, p)]
        probabilities = dict.fromkeys(valid_actions, 0.0)
        for weight, left in shares:
            for action in left:
                probabilities[action] += weight * self._choose(task, action, left)
        return {action: p for action, p in probabilities.items() if p > 0}

    def _choose(self, task: str, action: str, choices: tuple[str, ...]) -> float:
        """Probability of one action when exactly ``choices`` are open; the right operation bears the task's name."""
        uniform = 1 / len(choices)
        right = self.right_probability if task in choices else 0.0
        on_purpose = (right if action == task else 0.0) + (1 - right) * uniform
        return self.random_probability * uniform + (1 - self.random_probability) * on_purpose

    def to_json(self) -> dict[str, Any]:
        """Plain data for sidecars and hashes."""
        return {
            "right_probability": self.right_probability,
            "random_probability": self.random_probability,
            "avoid": {action: dict(by_task) for action, by_task in self.avoid.items()},
        }


def _split(weight: float, left: tuple[str, ...], action: str, p: float) -> list[tuple[float, tuple[str, ...]]]:
    """Share a choice into "the tool is there" and "the agent acts as if it weren't"; the last tool can't be left out."""
    others = tuple(a for a in left if a != action)
    return [(weight * (1 - p), left), (weight * p, others)] if others else [(weight, left)]


BEHAVIORS: dict[str, Behavior] = {
    "logger": Behavior(),
    "logger_without_mul": Behavior().without("mul"),
    "uniform": Behavior(random_probability=1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSource:
    """How a log was made; enough to make it again."""

    world: str
    behavior: Behavior
    behavior_name: str
    n_episodes: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Plain data for sidecars and hashes."""
        return {
            "world": self.world,
            "behavior": self.behavior.to_json(),
            "behavior_name": self.behavior_name,
            "n_episodes": self.n_episodes,
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorldSource:
        """Inverse of :meth:`to_json`."""
        return cls(**{**data, "behavior": Behavior(**data["behavior"])})


def named_behavior(behavior: str | Behavior) -> tuple[str, Behavior]:
    """Name and dials of a behavior given by either.

    Raises:
        UnknownName: no such named behavior.
    """
    if isinstance(behavior, str):
        if behavior not in BEHAVIORS:
            raise UnknownName("behavior policy", behavior, BEHAVIORS)
        return behavior, BEHAVIORS[behavior]
    known = [name for name, dials in BEHAVIORS.items() if dials == behavior]
    return (known[0] if known else f"logger-{short_hash(canonical_json(behavior.to_json()))[:6]}"), behavior


def behavior_policy(world: World, behavior: Behavior) -> TabularPolicy:
    """The logging policy as a table over every reachable state key, for exact evaluation."""
    probabilities: dict[str, dict[str, float]] = {}
    for state in reachable_states(world):
        key = world.state_key(state)
        if key not in probabilities:
            probabilities[key] = behavior.action_probabilities(world.task(state), world.actions(state))
    table = np.array([[row.get(a, 0.0) for a in world.action_names] for row in probabilities.values()])
    return TabularPolicy(states=tuple(probabilities), actions=world.action_names, probabilities=table)


def collect_steps(source: WorldSource, *, max_steps: int = 1000) -> pa.Table:
    """Roll out a logging policy and write the steps in the trace schema.

    The log is always written in the deployment ``works``; other deployments differ only where the log is silent or where
    the question is what happens later. One generator per call: the same source gives the same table, bit for bit.

    Raises:
        InvalidConfig: fewer than 1 or more than 1,000,000 episodes.
    """
    if not 1 <= source.n_episodes <= 1_000_000:
        raise InvalidConfig(f"n_episodes is {source.n_episodes}; it must lie between 1 and 1,000,000.")
    collector = _Collector(source, max_steps)
    rng = np.random.default_rng(source.seed)
    start_probabilities, starts = zip(*collector.world.initial_states(), strict=True)
    for start in rng.choice(len(starts), size=source.n_episodes, p=start_probabilities):
        collector.run_episode(starts[start], rng)
    return collector.table()


class _Collector:
    """Writes each distinct step once and each taken step as a number, because a million steps have few distinct ones."""

    def __init__(self, source: WorldSource, max_steps: int) -> None:
        self.source, self.max_steps = source, max_steps
        self.world = make_world(source.world)
        self.choices: dict[Any, tuple[list[str], list[float]]] = {}
        self.outcomes: dict[tuple[Any, str], tuple[list[Transition], list[float]]] = {}
        self.distinct: dict[tuple[Any, str, Any, bool], int] = {}
        self.rows: list[dict[str, Any]] = []
        self.taken: list[int] = []
        self.lengths: list[int] = []

    def run_episode(self, state: Any, rng: np.random.Generator) -> None:
        """Play one episode from a start state."""
        length, terminal = 0, False
        while not terminal and length < self.max_steps:
            if state not in self.choices:
                probabilities = self.source.behavior.action_probabilities(
                    self.world.task(state), self.world.actions(state)
                )
                self.choices[state] = list(probabilities), list(probabilities.values())
            action = sample(rng, *self.choices[state])
            if (state, action) not in self.outcomes:
                outcomes = self.world.transitions(state, action)
                self.outcomes[state, action] = outcomes, [o.probability for o in outcomes]
            outcome = sample(rng, *self.outcomes[state, action])
            terminal, length = outcome.terminal, length + 1
            self._take(state, action, outcome, timeout=not terminal and length == self.max_steps)
            state = outcome.next_state
        self.lengths.append(length)

    def _take(self, state: Any, action: str, outcome: Transition, *, timeout: bool) -> None:
        key = (state, action, outcome, timeout)
        if key not in self.distinct:
            self.distinct[key] = len(self.rows)
            self.rows.append(self._row(state, action, outcome, timeout))
        self.taken.append(self.distinct[key])

    def _row(self, state: Any, action: str, outcome: Transition, timeout: bool) -> dict[str, Any]:
        world, (names, probabilities) = self.world, self.choices[state]
        key = world.state_key(state)
        return {
            "task": world.task(state),
            "state": canonical_json({"user_goal": world.user_goal(state), "memory": key}),
            "state_text": key,
            "available_tools": list(world.actions(state)),
            "action": action,
            "action_type": "env_action",
            "tool": action,
            "arguments": "{}",
            "arguments_status": "object",
            "arguments_hash": short_hash("{}"),
            "call_index": 0,
            "tool_result": world.observation(action, outcome.next_state),
            "reward": outcome.reward,
            "terminal": outcome.terminal,
            "timeout": timeout,
            "end_reason": "terminated" if outcome.terminal else "truncated" if timeout else None,
            "environment_version": f"{world.name}/{world.deployment}",
            "action_logprob": math.log(probabilities[names.index(action)]),
            "reward_source": "environment",
            "behavior_policy": self.source.behavior_name,
        }

    def table(self) -> pa.Table:
        """Everything that was taken, as one table of the trace schema."""
        lengths = np.array(self.lengths)
        t = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        episode_ids = [f"ep-{episode:06d}" for episode, length in enumerate(self.lengths) for _ in range(length)]
        own = {
            "episode_id": episode_ids,
            "t": t,
            "decision_id": [f"{episode_id}#{step}" for episode_id, step in zip(episode_ids, t.tolist(), strict=True)],
            "upload_order": np.arange(len(t)),
        }
        table = steps_table(self.rows).take(self.taken)
        for name, values in own.items():
            column = table.schema.get_field_index(name)
            table = table.set_column(
                column, table.schema.field(column), pa.array(values, table.schema.field(column).type)
            )
        return table


def sample(rng: np.random.Generator, items: list[_T], probabilities: list[float]) -> _T:
    """Draw one item. A single one needs no draw, which keeps the stream short and logs quick to make."""
    if len(items) == 1:
        return items[0]
    draw, total = rng.random(), 0.0
    for item, probability in zip(items, probabilities, strict=True):
        total += probability
        if draw < total:
            return item
    return items[-1]
