"""Who writes the log: the logging policies of a world by name, and the collection of episodes.

A logging policy is plain data (see :mod:`offrl_core.behavior_policies`), so a log can be made again bit for bit from its
description: world, behavior, number of episodes, seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import scipy.sparse

from .arrays import FloatArray
from .behavior_policies import AnyBehavior, MixedPart, TableBehavior, behavior_from_json
from .behavior_policies import Behavior as Behavior  # at home here for everybody else
from .behavior_policies import MixedBehavior as MixedBehavior
from .errors import InvalidConfig, NotPossible, UnknownName
from .mdp import discounted_sums
from .policies import TabularPolicy
from .schema import canonical_json, short_hash, steps_table
from .worlds import WORLDS, BehaviorSpec, Transition, World, make_world, reachable_states

_T = TypeVar("_T")


BEHAVIORS: dict[str, AnyBehavior] = {name: spec.make() for name, spec in WORLDS["calculator"].behaviors.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSource:
    """How a log was made; enough to make it again."""

    world: str
    behavior: AnyBehavior
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
        return cls(**{**data, "behavior": behavior_from_json(data["behavior"])})


@lru_cache(maxsize=64)
def _made(agent: BehaviorSpec) -> AnyBehavior:
    """The behavior of an agent, made once: some solve their world first."""
    return agent.make()


def named_behavior(behavior: str | AnyBehavior, world: str = "calculator") -> tuple[str, AnyBehavior]:
    """Name and description of a behavior given by either.

    Raises:
        UnknownName: no such world, or it has no behavior of that name.
        NotPossible: the world needs a package that isn't installed.
    """
    if world not in WORLDS:
        raise UnknownName("world", world, WORLDS)
    if WORLDS[world].missing:
        raise NotPossible(WORLDS[world].missing)
    known = WORLDS[world].behaviors
    if isinstance(behavior, str):
        if behavior not in known:
            raise UnknownName(f"behavior policy of {world}", behavior, known)
        return behavior, _made(known[behavior])
    same = [name for name, agent in known.items() if _made(agent) == behavior]
    return (same[0] if same else f"logger-{short_hash(canonical_json(behavior.to_json()))[:6]}"), behavior


def behavior_policy(world: World, behavior: AnyBehavior) -> TabularPolicy:
    """The logging policy as a table over every reachable state key, for exact evaluation.

    Several agents become the one policy that stands at each key as often as they do and acts there as they do on average.
    Where keys hide nothing its undiscounted values are theirs; :func:`offrl_core.evaluation.exact.behavior_truth` is exact
    everywhere.
    """
    tables = [(part.share, _agent_table(world, part)) for part in behavior.parts("")]
    keys, table = list(tables[0][1]), np.array(list(tables[0][1].values()))
    if len(tables) > 1:
        visits = np.array([share * _visits(world, rows) for share, rows in tables])
        weights = np.where(visits.sum(axis=0) > 0, visits, np.array([[share] for share, _ in tables]))
        weights /= weights.sum(axis=0)
        table = np.einsum("pk,pka->ka", weights, np.array([list(rows.values()) for _, rows in tables]))
    return TabularPolicy(states=tuple(keys), actions=world.action_names, probabilities=table)


def _agent_table(world: World, part: MixedPart) -> dict[str, list[float]]:
    """State key -> probability of each action of one agent."""
    rows: dict[str, list[float]] = {}
    for state in reachable_states(world):
        key = world.state_key(state)
        if key not in rows:
            row = part.behavior.action_probabilities(world.task(state), world.actions(state), key)
            rows[key] = [row.get(a, 0.0) for a in world.action_names]
    return rows


def _visits(world: World, rows: Mapping[str, list[float]]) -> FloatArray:
    """(K,) expected number of times an episode of one agent stands at each key, in the order of the rows."""
    states = reachable_states(world)
    index = {state: i for i, state in enumerate(states)}
    onward = scipy.sparse.dok_array((len(states), len(states)))  # transposed: to, from
    for state, i in index.items():
        for action, chosen in zip(world.action_names, rows[world.state_key(state)], strict=True):
            for outcome in world.transitions(state, action) if chosen else ():
                if not outcome.terminal:
                    onward[index[outcome.next_state], i] += chosen * outcome.probability
    starts = np.zeros(len(states))
    for probability, state in world.initial_states():
        starts[index[state]] += probability
    visits = discounted_sums(onward.tocsr(), starts, 1.0)
    keys = {key: k for k, key in enumerate(rows)}
    by_key = np.bincount([keys[world.state_key(state)] for state in states], visits, minlength=len(rows))
    return np.asarray(by_key, dtype=np.float64)


MOST_STEPS = 10_000_000  # of a log made here, some 5 GB; an agent that wanders about would fill any memory


def collect_steps(source: WorldSource, *, max_steps: int = 1000, most_steps: int = MOST_STEPS) -> pa.Table:
    """Roll out a logging policy and write the steps in the trace schema.

    The log is always written in the deployment ``works``; other deployments differ only where the log is silent or where
    the question is what happens later. One generator per call: the same source gives the same table, bit for bit.

    Raises:
        InvalidConfig: fewer than 1 or more than 1,000,000 episodes, more than ``most_steps`` steps in all, or a behavior that
            names what the world doesn't have.
    """
    if not 1 <= source.n_episodes <= 1_000_000:
        raise InvalidConfig(f"n_episodes is {source.n_episodes}; it must lie between 1 and 1,000,000.")
    collector = _Collector(source, max_steps)
    rng = np.random.default_rng(source.seed)
    start_probabilities, starts = zip(*collector.world.initial_states(), strict=True)
    for start in rng.choice(len(starts), size=source.n_episodes, p=start_probabilities):
        collector.run_episode(starts[start], rng)
        if len(collector.taken) > most_steps:
            raise InvalidConfig(
                f"The first {len(collector.lengths):,} of {source.n_episodes:,} episodes have more than {most_steps:,} steps, "
                "which is the most for it. Choose fewer episodes, or an agent that comes to an end sooner."
            )
    return collector.table()


class _Collector:
    """Writes each distinct step once and each taken step as a number, because a million steps have few distinct ones."""

    def __init__(self, source: WorldSource, max_steps: int) -> None:
        self.source, self.max_steps = source, max_steps
        self.world = make_world(source.world)
        self.agents = source.behavior.parts(source.behavior_name)
        for agent in self.agents:
            _check_fits(agent.behavior, self.world)
        self.shares = [agent.share for agent in self.agents]
        self.choices: dict[Any, tuple[list[str], list[float]]] = {}
        self.outcomes: dict[tuple[Any, str], tuple[list[Transition], list[float]]] = {}
        self.distinct: dict[tuple[Any, str, Any, bool, str], int] = {}
        self.rows: list[dict[str, Any]] = []
        self.taken: list[int] = []
        self.lengths: list[int] = []

    def run_episode(self, state: Any, rng: np.random.Generator) -> None:
        """Play one episode from a start state."""
        length, terminal, agent = 0, False, sample(rng, self.agents, self.shares)
        while not terminal and length < self.max_steps:
            choice = (agent.name, state)
            if choice not in self.choices:
                probabilities = agent.behavior.action_probabilities(
                    self.world.task(state), self.world.actions(state), self.world.state_key(state)
                )
                self.choices[choice] = list(probabilities), list(probabilities.values())
            action = sample(rng, *self.choices[choice])
            if (state, action) not in self.outcomes:
                outcomes = self.world.transitions(state, action)
                self.outcomes[state, action] = outcomes, [o.probability for o in outcomes]
            outcome = sample(rng, *self.outcomes[state, action])
            terminal, length = outcome.terminal, length + 1
            self._take(state, action, outcome, agent.name, timeout=not terminal and length == self.max_steps)
            state = outcome.next_state
        self.lengths.append(length)

    def _take(self, state: Any, action: str, outcome: Transition, agent: str, *, timeout: bool) -> None:
        key = (state, action, outcome, timeout, agent)
        if key not in self.distinct:
            self.distinct[key] = len(self.rows)
            self.rows.append(self._row(state, action, outcome, timeout, agent))
        self.taken.append(self.distinct[key])

    def _row(self, state: Any, action: str, outcome: Transition, timeout: bool, agent: str) -> dict[str, Any]:
        world, (names, probabilities) = self.world, self.choices[agent, state]
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
            "behavior_policy": agent,
            "metadata": self._said_solved(outcome, timeout),
        }

    def _said_solved(self, outcome: Transition, timeout: bool) -> str | None:
        if WORLDS[self.source.world].return_tells_success or not (outcome.terminal or timeout):
            return None
        return canonical_json({"solved": outcome.terminal and self.world.succeeded(outcome.next_state)})

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


def _check_fits(behavior: Behavior | TableBehavior, world: World) -> None:
    """A mistyped name would do nothing, and nobody would notice."""
    if not isinstance(behavior, TableBehavior):
        return
    keys = {world.state_key(state) for state in reachable_states(world)}
    for key, row in behavior.probabilities.items():
        if key not in keys:
            raise InvalidConfig(f"{world.name} has no state key {key!r}; one that it has is {min(keys)!r}.")
        for action in row:
            if action not in world.action_names:
                raise InvalidConfig(
                    f"{world.name} has no action {action!r} (at {key!r}); it has {', '.join(world.action_names)}."
                )


def sample(rng: np.random.Generator, items: Sequence[_T], probabilities: Sequence[float]) -> _T:
    """Draw one item. A single one needs no draw, which keeps the stream short and logs quick to make."""
    if len(items) == 1:
        return items[0]
    draw, total = rng.random(), 0.0
    for item, probability in zip(items, probabilities, strict=True):
        total += probability
        if draw < total:
            return item
    return items[-1]
