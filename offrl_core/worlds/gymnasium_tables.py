"""Gymnasium's own tabular worlds, by its own transition tables: FrozenLake, CliffWalking and Taxi.

They need the package ``gymnasium``, which is imported only when one of them is made. Its time limits are left out, because
they aren't part of the tables; logs are cut after 1,000 steps. What counts as solved: FrozenLake and CliffWalking reach the
goal, Taxi delivers.

Source: Towers et al. (2024), "Gymnasium: a standard interface for reinforcement learning environments".
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..behavior_policies import TableBehavior
from ..errors import NotPossible
from . import BehaviorSpec, DeploymentSpec, Grid, WorldSpec
from .table_world import TableWorld, one_per_successor, optimal_behavior

INSTALL = "pip install 'gymnasium>=1.1'"
_ARROWS = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}


def _environment(class_name: str, **options: Any) -> Any:
    """An environment of Gymnasium, without its wrappers."""
    toy_text = importlib.import_module("gymnasium.envs.toy_text")
    try:
        return getattr(toy_text, class_name)(**options)
    except TypeError as error:
        raise NotPossible(f"This version of gymnasium is too old for this world; get a newer one: {INSTALL}") from error


def _table_world(
    name: str,
    deployment: str,
    environment: Any,
    *,
    action_names: tuple[str, ...],
    key_of: Callable[[int], str],
    goal: str,
) -> TableWorld:
    """A world from the table of an environment; it is solved where an ending pays, or by any ending if none does."""
    endings: list[tuple[int, float]] = []
    outcomes = {}
    for state, by_action in environment.P.items():
        for action, listed in by_action.items():
            found = one_per_successor(listed)
            outcomes[int(state), action_names[action]] = found
            endings += [(o.next_state, o.reward) for o in found if o.terminal]
    paid = frozenset(state for state, reward in endings if reward > 0)
    starts = {s: float(p) for s, p in enumerate(environment.initial_state_distrib) if p > 0}
    return TableWorld(
        name,
        deployment,
        action_names=action_names,
        outcomes=outcomes,
        starts=starts,
        goals=paid or frozenset(state for state, _ in endings),
        key_of=key_of,
        goal=goal,
    )


def _cell(n_columns: int) -> Callable[[int], str]:
    return lambda state: f"row {state // n_columns}, column {state % n_columns}"


@lru_cache
def frozen_lake(deployment: str = "works") -> TableWorld:
    """FrozenLake-v1, 4 x 4."""
    return _table_world(
        "frozen_lake",
        deployment,
        _environment("FrozenLakeEnv", is_slippery=deployment == "works"),
        action_names=("left", "down", "right", "up"),
        key_of=_cell(4),
        goal="Cross the lake to the present and don't fall into a hole.",
    )


@lru_cache
def cliff_walking(deployment: str = "works") -> TableWorld:
    """CliffWalking-v1, 4 x 12: falling costs 100 and leads back to the start."""
    return _table_world(
        "cliff_walking",
        deployment,
        _environment("CliffWalkingEnv", is_slippery=deployment == "slippery"),
        action_names=("up", "right", "down", "left"),
        key_of=_cell(12),
        goal="Walk along the cliff to the other end.",
    )


@lru_cache
def taxi(deployment: str = "works") -> TableWorld:
    """Taxi: 500 states, six actions."""
    environment = _environment("TaxiEnv", is_rainy=deployment == "rainy")
    stops = ("red", "green", "yellow", "blue", "taxi")

    def key_of(state: int) -> str:
        row, column, passenger, destination = environment.decode(state)
        return f"taxi {row},{column}; passenger at {stops[passenger]}; to {stops[destination]}"

    return _table_world(
        "taxi",
        deployment,
        environment,
        action_names=("south", "north", "east", "west", "pick_up", "drop_off"),
        key_of=key_of,
        goal="Fetch the passenger and drive to the destination.",
    )


def frozen_lake_grid() -> Grid:
    """How to draw the lake."""
    rows = ("SFFF", "FHFH", "FFFH", "HFFG")
    legend = {"S": "start", "F": "ice", "H": "hole", "G": "goal"}
    return Grid(rows, legend, _places(rows, walkable="SF"), _ARROWS)


def cliff_walking_grid() -> Grid:
    """How to draw the cliff."""
    rows = ("............", "............", "............", "SCCCCCCCCCCG")
    return Grid(rows, {"S": "start", ".": "ground", "C": "cliff", "G": "goal"}, _places(rows, walkable="S."), _ARROWS)


def _places(rows: tuple[str, ...], walkable: str) -> dict[str, tuple[int, int]]:
    cells = [(r, c) for r, line in enumerate(rows) for c, letter in enumerate(line) if letter in walkable]
    return {f"row {r}, column {c}": (r, c) for r, c in cells}


def _behaviors(world: Callable[[], TableWorld]) -> dict[str, BehaviorSpec]:
    return {
        "logger": BehaviorSpec("plays well, every third step is random", lambda: optimal_behavior(world(), 1 / 3)),
        "expert": BehaviorSpec("plays best, every twentieth step is random", lambda: optimal_behavior(world(), 0.05)),
        "uniform": BehaviorSpec("acts at random", lambda: TableBehavior(random_probability=1.0)),
    }


FROZEN_LAKE: WorldSpec = WorldSpec(
    name="frozen_lake",
    title="FrozenLake (Gymnasium)",
    summary="Sixteen cells of ice, four holes. Every step may go astray, so even the best policy falls sometimes.",
    make=frozen_lake,
    deployments={
        "works": DeploymentSpec("is slippery", "a step goes to either side with probability 1/3 each, as published"),
        "dry": DeploymentSpec("is dry", "every step goes where it is meant to"),
    },
    behaviors=_behaviors(frozen_lake),
    grid=frozen_lake_grid,
    package="gymnasium",
    install=INSTALL,
)
CLIFF_WALKING: WorldSpec = WorldSpec(
    name="cliff_walking",
    title="CliffWalking (Gymnasium)",
    summary="The shortest way runs along a cliff; a step over it costs 100 and leads back to the start.",
    make=cliff_walking,
    deployments={
        "works": DeploymentSpec("works", "every step goes where it is meant to, as published"),
        "slippery": DeploymentSpec("is slippery", "a step goes to either side with probability 1/3 each"),
    },
    behaviors=_behaviors(cliff_walking),
    grid=cliff_walking_grid,
    package="gymnasium",
    install=INSTALL,
)
TAXI: WorldSpec = WorldSpec(
    name="taxi",
    title="Taxi (Gymnasium)",
    summary="Fetch a passenger and bring them where they want to go: 500 states, six actions.",
    make=taxi,
    deployments={
        "works": DeploymentSpec("works", "every move goes where it is meant to, as published"),
        "rainy": DeploymentSpec("is rainy", "a move goes to either side with probability 0.1 each"),
    },
    behaviors=_behaviors(taxi),
    package="gymnasium",
    install=INSTALL,
)
