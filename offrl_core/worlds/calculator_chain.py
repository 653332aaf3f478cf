"""A calculator agent with two operations in a row: tools in any order, calls that are redundant or fail, a cost per tool.

The agent is asked for (x op y) op z, worked from the left. Every tool may be called at any time, so what it costs to be
clumsy shows: an agent that solves every task may still waste half of what a solution is worth.

Rules: x, y and z are uniform on 1..3 and hidden, tasks uniform. ``lookup_x``, ``lookup_y`` and ``lookup_z`` find a number,
unless the service doesn't answer (probability ``down``, 0.1): then nothing changes. Looking up what is known changes
nothing either. ``add``, ``sub`` and ``mul`` first combine x and y, then their result and z; without the numbers, or with
nothing left to combine, the call fails and changes nothing. ``final`` hands in the result and ends the episode: +1 if it is
right for the task after two operations, else -1. Costs: lookup_x and lookup_y 0.02, lookup_z (a slow service) 0.08, an
operation 0.02, final nothing; a call that fails or is redundant costs the same.

The key shows task, known numbers, how many operations were made and the result, but not which ones: as in the first
calculator, 2 may be 1 + 1, 1 * 2 or 3 - 1.

- ``works``:  as above;
- ``flaky``:  lookups don't answer with probability 0.5, so patience costs more (and policies that give up lose less);
- ``broken``: mul returns 100 more than the product, which is wrong for every task.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..behavior_policies import TableBehavior
from . import BehaviorSpec, DeploymentSpec, Transition, WorldSpec, reachable_states

GOALS = {
    "add_add": "Compute x + y + z.",
    "add_mul": "Compute (x + y) * z.",
    "mul_add": "Compute x * y + z.",
    "mul_mul": "Compute x * y * z.",
}
LOOKUPS = ("lookup_x", "lookup_y", "lookup_z")
OPERATIONS = ("add", "sub", "mul")
ACTIONS = (*LOOKUPS, *OPERATIONS, "final")
COSTS = {"lookup_x": 0.02, "lookup_y": 0.02, "lookup_z": 0.08, "add": 0.02, "sub": 0.02, "mul": 0.02, "final": 0.0}
NUMBERS = range(1, 4)
DOWN = {"works": 0.1, "flaky": 0.5, "broken": 0.1}
DISCOUNT = 0.99


class ChainState(NamedTuple):
    """The full state; the numbers stay hidden from policies, which see only :meth:`CalculatorChain.state_key`."""

    task: str
    numbers: tuple[int, int, int]
    known: tuple[bool, bool, bool] = (False, False, False)
    n_operations: int = 0
    result: int | None = None
    outcome: str = ""  # "", "success" or "failure": set when the episode ends


class CalculatorChain:
    """The world under one deployment; see the module's docstring for the rules."""

    name = "calculator_chain"
    action_names: tuple[str, ...] = ACTIONS
    discount = DISCOUNT

    def __init__(self, deployment: str = "works") -> None:
        """Take one of the deployments ``works``, ``flaky`` and ``broken``."""
        self.deployment = deployment

    def initial_states(self) -> list[tuple[float, ChainState]]:
        """All 108 combinations of task, x, y and z, equally likely."""
        states = [ChainState(task, (x, y, z)) for task in GOALS for x, y, z in product(NUMBERS, repeat=3)]
        return [(1 / len(states), state) for state in states]

    def actions(self, state: ChainState) -> tuple[str, ...]:
        """All tools, at any time."""
        return self.action_names

    def transitions(self, state: ChainState, action: str) -> list[Transition]:
        """What the call may lead to."""
        cost = COSTS[action]
        stays = Transition(1.0, state, -cost, terminal=False)
        if action == "final":
            right = state.n_operations == 2 and state.result == self._wanted(state)
            ended = state._replace(outcome="success" if right else "failure")
            return [Transition(1.0, ended, (1.0 if right else -1.0) - cost, terminal=True)]
        if action in LOOKUPS:
            x, y, z = (known or name == action for known, name in zip(state.known, LOOKUPS, strict=True))
            found = (x, y, z)
            if found == state.known:
                return [stays]
            down = DOWN[self.deployment]
            return [
                Transition(1 - down, state._replace(known=found), -cost, terminal=False),
                stays._replace(probability=down),
            ]
        operands = self._operands(state)
        if operands is None:
            return [stays]
        result = _operate(action, *operands) + 100 * (action == "mul" and self.deployment == "broken")
        return [stays._replace(next_state=state._replace(n_operations=state.n_operations + 1, result=result))]

    @staticmethod
    def _operands(state: ChainState) -> tuple[int, int] | None:
        """What the next operation would combine; None where it can't."""
        x, y, z = state.numbers
        if state.n_operations == 0:
            return (x, y) if state.known[0] and state.known[1] else None
        return (state.result, z) if state.n_operations == 1 and state.known[2] and state.result is not None else None

    @staticmethod
    def _wanted(state: ChainState) -> int:
        first, second = state.task.split("_")
        x, y, z = state.numbers
        return _operate(second, _operate(first, x, y), z)

    def state_key(self, state: ChainState) -> str:
        """Task, known numbers, operations made and result."""
        known = "".join(name for name, is_known in zip("xyz", state.known, strict=True) if is_known) or "nothing"
        done = f"; result {state.result} after {state.n_operations}" if state.n_operations else ""
        return f"{state.task}: {known} known{done}"

    def task(self, state: ChainState) -> str:
        """The task of the episode."""
        return state.task

    def succeeded(self, state: ChainState) -> bool:
        """Whether an ended episode solved its task."""
        return state.outcome == "success"

    def features(self, state: ChainState) -> FloatArray:
        """(9,) one-hot task, known numbers, operations made / 2, result / 27."""
        one_hot = [float(state.task == task) for task in GOALS]
        return np.array([*one_hot, *map(float, state.known), state.n_operations / 2, (state.result or 0) / 27])

    def user_goal(self, state: ChainState) -> str:
        """The request as the agent reads it."""
        return GOALS[state.task]

    def observation(self, action: str, next_state: ChainState) -> str | None:
        """What the tool answers, as text for the log."""
        if next_state.outcome:
            return next_state.outcome
        if action in LOOKUPS:
            place = LOOKUPS.index(action)
            return str(next_state.numbers[place]) if next_state.known[place] else "no answer"
        return None if next_state.result is None else str(next_state.result)


def _operate(operation: str, left: int, right: int) -> int:
    return {"add": left + right, "sub": left - right, "mul": left * right}[operation]


# -- who writes the log ---------------------------------------------------------------------------------------


def tidy(right_probability: float = 1.0) -> TableBehavior:
    """Never makes a call that must be redundant or fail; picks the right operation on purpose, else any of the three."""
    return _agent(right_probability, clumsy=0.0)


def _agent(right_probability: float, clumsy: float) -> TableBehavior:
    """``clumsy`` is the probability of any tool but final, needed or not."""
    world, table = CalculatorChain(), {}
    for state in reachable_states(world):
        row = dict.fromkeys(ACTIONS, 0.0)
        useful = _useful(state)
        for action in useful:
            if useful == OPERATIONS:
                right = state.task.split("_")[state.n_operations]
                chosen = right_probability * (action == right) + (1 - right_probability) / len(useful)
            else:
                chosen = 1 / len(useful)
            row[action] = (1 - clumsy) * chosen
        for action in ACTIONS[:-1]:
            row[action] += clumsy / (len(ACTIONS) - 1)
        table[world.state_key(state)] = {action: p for action, p in row.items() if p > 0}
    return TableBehavior(probabilities=table)


def _useful(state: ChainState) -> tuple[str, ...]:
    """Calls that bring the agent on: lookups first, in any order, then the operations, then final."""
    if not all(state.known):
        return tuple(name for name, known in zip(LOOKUPS, state.known, strict=True) if not known)
    return OPERATIONS if state.n_operations < 2 else ("final",)


SPEC: WorldSpec = WorldSpec(
    name="calculator_chain",
    title="Calculator agent, two operations",
    summary="Every tool at any time: redundant calls, failing calls, and a price for each. Solving the task is not enough.",
    make=CalculatorChain,
    deployments={
        "works": DeploymentSpec("works", "lookups answer nine times of ten, mul multiplies"),
        "flaky": DeploymentSpec("answers every other time", "lookups answer with probability 0.5"),
        "broken": DeploymentSpec("returns wrong products", "mul returns 100 more than the product"),
    },
    behaviors={
        "logger": BehaviorSpec("often right, every fifth call is any tool", lambda: _agent(0.7, clumsy=0.2)),
        "logger_without_mul": BehaviorSpec(
            "the same agent, never calling mul", lambda: _agent(0.7, clumsy=0.2).without("mul")
        ),
        "tidy": BehaviorSpec("often right, no needless call", lambda: tidy(0.7)),
        "uniform": BehaviorSpec("acts at random", lambda: TableBehavior(random_probability=1.0)),
    },
    tasks=tuple(GOALS),
)
