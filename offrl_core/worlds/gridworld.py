"""A grid with a risky short cut: three icy planks over the water, or the long way round.

    .......      . ground     # wall     ~ water
    .#####.      = plank      S start    G goal
    .#~~~#.
    S.===.G      The short cut has 6 steps, the long way 12.
    ##~~~##

Rules: up, right, down and left are valid everywhere; a wall or the border stops the step. With probability ``slip`` of the
cell it starts from, a step goes to one of its two sides instead, evenly. A step costs 0.04; reaching the goal adds +1 and
ends the episode, falling into the water gives -1 and ends it. Ground slips a little (0.1), which costs time and no lives.
The agent sees the cell it stands on, so nothing is hidden.

Three deployments differ on the planks alone, so no log that stays off them can tell them apart:

- ``works``:      a plank slips with probability 0.03, and the short cut is the best way;
- ``slippery``:   a plank slips with 0.25, and more than half of all crossings end in the water;
- ``bridge_out``: the middle plank is gone: whoever steps there falls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..behavior_policies import TableBehavior
from . import BehaviorSpec, DeploymentSpec, Grid, Transition, WorldSpec

ROWS = (
    ".......",
    ".#####.",
    ".#~~~#.",
    "S.===.G",
    "##~~~##",
)
MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
STEP_COST, DROWNING, DISCOUNT = 0.04, -1.0, 0.99
GROUND_SLIP = 0.1
PLANK_SLIP = {"works": 0.03, "slippery": 0.25, "bridge_out": 0.03}

# Ways as arrows, one per cell: what each logging agent does where it stands.
_ARROWS = {"^": "up", ">": "right", "v": "down", "<": "left"}
_LONG_WAY = (
    ">>>>>>v",
    "^#####v",
    "^#~~~#v",
    "^<>>>>G",
    "##~~~##",
)
_SHORT_CUT = (*_LONG_WAY[:3], ">>>>>>G", _LONG_WAY[4])


class Cell(NamedTuple):
    """The full state: where the agent stands."""

    row: int
    column: int


START, GOAL, MIDDLE_PLANK = Cell(3, 0), Cell(3, 6), Cell(3, 3)


def letter(cell: Cell) -> str:
    """What is there; beyond the border stands a wall."""
    inside = 0 <= cell.row < len(ROWS) and 0 <= cell.column < len(ROWS[0])
    return ROWS[cell.row][cell.column] if inside else "#"


class Gridworld:
    """The grid under one deployment; see the module's docstring for the rules."""

    name = "gridworld"
    action_names = tuple(MOVES)
    discount = DISCOUNT

    def __init__(self, deployment: str = "works") -> None:
        """Take one of the deployments ``works``, ``slippery`` and ``bridge_out``."""
        self.deployment = deployment

    def initial_states(self) -> list[tuple[float, Cell]]:
        """The one start."""
        return [(1.0, START)]

    def actions(self, state: Cell) -> tuple[str, ...]:
        """All four, everywhere."""
        return self.action_names

    def transitions(self, state: Cell, action: str) -> list[Transition]:
        """The step as meant, and the two it may become on slippery ground; equal outcomes are one."""
        slip = PLANK_SLIP[self.deployment] if letter(state) == "=" else GROUND_SLIP
        down, right = MOVES[action]
        sides = [(right, down), (-right, -down)]
        outcomes: dict[Cell, float] = {}
        for probability, (rows, columns) in ((1 - slip, (down, right)), *((slip / 2, side) for side in sides)):
            to = Cell(state.row + rows, state.column + columns)
            to = state if letter(to) == "#" else to
            outcomes[to] = outcomes.get(to, 0.0) + probability
        return [self._arrival(probability, to) for to, probability in outcomes.items()]

    def _arrival(self, probability: float, cell: Cell) -> Transition:
        falls = letter(cell) == "~" or (self.deployment == "bridge_out" and cell == MIDDLE_PLANK)
        if falls:
            return Transition(probability, cell, DROWNING, terminal=True)
        return Transition(probability, cell, (cell == GOAL) - STEP_COST, terminal=cell == GOAL)

    def state_key(self, state: Cell) -> str:
        """Row and column, counted from 0 at the top left."""
        return key_of(state)

    def task(self, state: Cell) -> None:
        """There is one thing to do, and no tasks."""

    def succeeded(self, state: Cell) -> bool:
        """Whether an ended episode reached the goal."""
        return state == GOAL

    def features(self, state: Cell) -> FloatArray:
        """(12,) one-hot row and one-hot column."""
        return np.concatenate([np.eye(len(ROWS))[state.row], np.eye(len(ROWS[0]))[state.column]])

    def user_goal(self, state: Cell) -> str:
        """The request as text."""
        return "Reach the goal and stay dry."

    def observation(self, action: str, next_state: Cell) -> str:
        """Where the step led."""
        names = {"G": "goal", "~": "water"}
        return names.get(letter(next_state), key_of(next_state))


def key_of(cell: Cell) -> str:
    """What a policy sees of a cell."""
    return f"row {cell.row}, column {cell.column}"


def grid() -> Grid:
    """How to draw it."""
    cells = {key_of(cell): cell for cell in _cells() if letter(cell) not in "#~G"}
    legend = {".": "ground", "#": "wall", "~": "water", "=": "plank", "S": "start", "G": "goal"}
    return Grid(ROWS, legend, cells, MOVES)


def _cells() -> list[Cell]:
    return [Cell(row, column) for row, line in enumerate(ROWS) for column in range(len(line))]


def along(arrows: tuple[str, ...], noise: float = 0.1) -> dict[str, dict[str, float]]:
    """State key -> action -> probability: the arrow of the cell, and with probability ``noise`` any of the four moves."""
    table = {}
    for cell in _cells():
        arrow = _ARROWS.get(arrows[cell.row][cell.column])
        if arrow is not None:
            table[key_of(cell)] = {move: (move == arrow) * (1 - noise) + noise / len(MOVES) for move in MOVES}
    return table


def _careful() -> TableBehavior:
    """Goes round; from the one cell before the planks, where it may slip to, it goes straight back."""
    table = along(_LONG_WAY)
    table[key_of(Cell(3, 1))] = {"left": 1.0}
    return TableBehavior(probabilities=table)


def _logger() -> TableBehavior:
    """Goes round in two of three episodes and takes the planks in the others."""
    table = along(_SHORT_CUT)
    table[key_of(START)] = {"right": 0.35, "up": 0.6, "down": 0.025, "left": 0.025}
    return TableBehavior(probabilities=table)


SPEC: WorldSpec = WorldSpec(
    name="gridworld",
    title="Grid with a short cut",
    summary="Three icy planks or the long way round. What if nobody in the log ever stepped on the ice?",
    make=Gridworld,
    deployments={
        "works": DeploymentSpec("works", "a plank slips with probability 0.03: the short cut is the best way"),
        "slippery": DeploymentSpec(
            "is slippery", "a plank slips with probability 0.25: most crossings end in the water"
        ),
        "bridge_out": DeploymentSpec("is broken", "the middle plank is gone: whoever steps there falls into the water"),
    },
    behaviors={
        "logger": BehaviorSpec("goes round, or over the planks in one of three episodes", _logger),
        "careful": BehaviorSpec("goes round and never steps on a plank", _careful),
        "hasty": BehaviorSpec("always takes the planks", lambda: TableBehavior(probabilities=along(_SHORT_CUT))),
        "uniform": BehaviorSpec("acts at random", lambda: TableBehavior(random_probability=1.0)),
    },
    grid=grid,
)
