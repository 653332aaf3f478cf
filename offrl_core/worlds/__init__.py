"""Worlds are data: lists of what can happen, so the simulator and the exact solver can't disagree.

A world has no ``step()``. Rollouts sample its lists, :mod:`offrl_core.evaluation.exact` enumerates them. A state may
hold hidden parts; policies see ``state_key(state)`` only, and truth is computed on the full state.

A world brings what belongs to it: hidden truths it may be deployed under, agents that write logs of it (data, too; one of
them is called ``logger``), tasks where it has any. Some need a package that isn't installed everywhere: they stand in the
registry all the same and say how to get it.

To add one: write ``worlds/<name>.py`` with the methods of :class:`World` and a ``SPEC``, and add a line to ``WORLDS``.
``check_world`` (run by the tests over this registry) says what is missing.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..arrays import FloatArray
from ..behavior_policies import AnyBehavior
from ..errors import NotPossible, UnknownName

State = Hashable
LOGGED_IN = "works"  # the deployment in which every log of every world is written


class Transition(NamedTuple):
    """One possible outcome of an action."""

    probability: float
    next_state: Any
    reward: float
    terminal: bool


class World(Protocol):
    """What a world must offer; ``Any`` stands for its own hashable state type."""

    name: str
    deployment: str
    action_names: tuple[str, ...]
    discount: float

    def initial_states(self) -> list[tuple[float, Any]]:
        """(probability, state) of every start; probabilities sum to 1."""

    def actions(self, state: Any) -> tuple[str, ...]:
        """Names of the valid actions in a state that has not ended; at least one."""

    def transitions(self, state: Any, action: str) -> list[Transition]:
        """Every outcome of *any* action, valid or not; probabilities sum to 1."""

    def state_key(self, state: Any) -> str:
        """What a policy sees of the state, as a short text."""

    def task(self, state: Any) -> str | None:
        """The task of the episode, constant along it; None in a world without tasks."""

    def succeeded(self, state: Any) -> bool:
        """Whether an ended episode solved its task."""

    def features(self, state: Any) -> FloatArray:
        """(D,) numbers for function approximators, a function of the state key."""

    def user_goal(self, state: Any) -> str:
        """The request as text, for the log."""

    def observation(self, action: str, next_state: Any) -> str | None:
        """What came back after the action as text, for the log."""


class DeploymentSpec(NamedTuple):
    """One hidden truth a world may be deployed under: what it does in three words, and exactly."""

    title: str
    summary: str


class BehaviorSpec(NamedTuple):
    """An agent that writes logs of a world: what it does in few words, and how its description is made."""

    title: str
    make: Callable[[], AnyBehavior]


class Grid(NamedTuple):
    """How to draw a world that is a grid."""

    rows: tuple[str, ...]  # one letter per cell
    legend: Mapping[str, str]  # letter -> what it is
    cells: Mapping[str, tuple[int, int]]  # state key -> row, column
    moves: Mapping[str, tuple[int, int]]  # action -> rows down, columns right


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """Registry entry of a world.

    Attributes:
        name: key of the registry, links and notebooks.
        title: plain words.
        summary: one sentence for a menu.
        make: the world under a deployment; of a World, but each has a state type of its own.
        deployments: its hidden truths; logs are written in :data:`LOGGED_IN`.
        behaviors: agents that write logs of it, ``logger`` first.
        tasks: what its episodes may be about; empty in a world without tasks.
        subject: what the titles of the deployments are about: "mul" works, crashes, ...
        return_tells_success: whether an episode solved its task exactly where its return is above 0; else logs say it in
            the metadata of the last step.
        grid: how to draw it, where it is a grid.
        package: module that it needs beside the core's own; "" for none.
        install: command that gets the package.
    """

    name: str
    title: str
    summary: str
    make: Callable[[str], Any]
    deployments: Mapping[str, DeploymentSpec]
    behaviors: Mapping[str, BehaviorSpec]
    tasks: tuple[str, ...] = ()
    subject: str = "the world"
    return_tells_success: bool = False
    grid: Callable[[], Grid] | None = None
    package: str = ""
    install: str = ""

    def situation(self, deployment: str) -> str:
        """A deployment in words: "mul crashes", "the world is slippery"."""
        return f"{self.subject} {self.deployments[deployment].title}"

    @property
    def missing(self) -> str:
        """What must be installed before this world can be made, as a sentence; "" where it can."""
        if not self.package or importlib.util.find_spec(self.package):
            return ""
        return f"{self.title} needs the package {self.package}, which is not installed; get it with: {self.install}"


def make_world(name: str, deployment: str = "works") -> World:
    """The world of that name under a deployment.

    Raises:
        UnknownName: no such world, or the world has no such deployment.
        NotPossible: the world needs a package that isn't installed; the sentence says how to get it.
    """
    if name not in WORLDS:
        raise UnknownName("world", name, WORLDS)
    spec = WORLDS[name]
    if deployment not in spec.deployments:
        raise UnknownName(f"deployment of {name}", deployment, spec.deployments)
    if spec.missing:
        raise NotPossible(spec.missing)
    return spec.make(deployment)


def reachable_states(world: World) -> list[Any]:
    """Every state that valid actions can reach, in breadth-first order from the starts; ended states are left out."""
    frontier = [state for _, state in world.initial_states()]
    seen = dict.fromkeys(frontier)
    while frontier:
        found: list[Any] = []
        for state in frontier:
            for action in world.actions(state):
                for outcome in world.transitions(state, action):
                    if not outcome.terminal and outcome.next_state not in seen:
                        seen[outcome.next_state] = None
                        found.append(outcome.next_state)
        frontier = found
    return list(seen)


def check_world(world: World) -> None:
    """Hold a world against the contract; the tests run this over every registered world and deployment.

    Raises:
        ValueError: a probability list doesn't sum to 1, a state has no valid action, one key allows different actions, or
            valid actions never end an episode from some state.
    """
    starts = world.initial_states()
    _check_sums_to_one("initial_states", [p for p, _ in starts])
    actions_by_key: dict[str, tuple[str, ...]] = {}
    for state in reachable_states(world):
        valid = world.actions(state)
        if not valid or not set(valid) <= set(world.action_names):
            raise ValueError(f"{state}: valid actions are {valid}; give at least one, all from action_names")
        # A policy sees the key alone, so the key must settle which actions are valid.
        if actions_by_key.setdefault(world.state_key(state), valid) != valid:
            raise ValueError(f"states with the key {world.state_key(state)!r} allow different actions")
        for action in world.action_names:
            outcomes = world.transitions(state, action)
            _check_sums_to_one(f"transitions({state}, {action})", [o.probability for o in outcomes])
            if any(not o.terminal and world.task(o.next_state) != world.task(state) for o in outcomes):
                raise ValueError(f"{state}: action {action} changes the task of the episode")
    _check_episodes_end(world)


def _check_episodes_end(world: World) -> None:
    """Where some ending can be reached from each of finitely many states, random play ends almost surely."""
    before: dict[Any, list[Any]] = {}  # state -> states from which one valid action may lead there
    ended = object()
    for state in reachable_states(world):
        for action in world.actions(state):
            for outcome in world.transitions(state, action):
                if outcome.probability > 0:
                    before.setdefault(ended if outcome.terminal else outcome.next_state, []).append(state)
    frontier, ends = [ended], set()
    while frontier:
        for state in before.get(frontier.pop(), ()):
            if state not in ends:
                ends.add(state)
                frontier.append(state)
    stuck = [state for state in reachable_states(world) if state not in ends]
    if stuck:
        raise ValueError(f"{stuck[0]}: no valid actions ever end the episode from here")


def _check_sums_to_one(what: str, probabilities: list[float]) -> None:
    if min(probabilities, default=-1) < 0 or not math.isclose(sum(probabilities), 1.0, abs_tol=1e-12):
        raise ValueError(f"{what}: probabilities {probabilities[:5]} must be >= 0 and sum to 1")


# At the foot, because the world files import the nouns above.
from . import calculator, calculator_chain, chain, gridworld, gymnasium_tables, icu_sepsis  # noqa: E402

WORLDS: dict[str, WorldSpec] = {
    "calculator": calculator.SPEC,
    "calculator_chain": calculator_chain.SPEC,
    "gridworld": gridworld.SPEC,
    "chain": chain.SPEC,
    "frozen_lake": gymnasium_tables.FROZEN_LAKE,
    "cliff_walking": gymnasium_tables.CLIFF_WALKING,
    "taxi": gymnasium_tables.TAXI,
    "icu_sepsis": icu_sepsis.SPEC,
}
