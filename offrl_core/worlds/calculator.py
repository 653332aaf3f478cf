"""The calculator agent: three tasks, six tools, two hidden numbers.

The agent is asked for x+y, x-y or x*y. It doesn't know x and y: it looks them up, applies one operation and hands in the
result. Whether the operation was the right one shows only at the end, so everything hinges on one choice, at the
state where both numbers are known.

Rules: x and y are uniform on 1..9, tasks uniform. Valid are lookup_x while x is unknown, lookup_y once x is known,
add, sub and mul once both are known, final once there is a result. A valid step costs 0.02; final adds +1 if the result
is right for the task, else -1, and ends the episode. An invalid action gives -1 and ends it.

Three deployments share those rules wherever ``mul`` is not called, so no log without ``mul`` can tell them apart:

- ``works``:  mul multiplies;
- ``broken``: mul returns x*y + 100, which is wrong for every task, so that no policy profits by accident;
- ``crash``:  calling mul gives -1 and ends the episode.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..behavior_policies import Behavior
from . import BehaviorSpec, DeploymentSpec, Transition, WorldSpec

TASKS = ("add", "sub", "mul")
OPERATIONS = ("add", "sub", "mul")
ACTIONS = ("lookup_x", "lookup_y", "add", "sub", "mul", "final")
NUMBERS = range(1, 10)
STEP_COST = 0.02
DISCOUNT = 0.99

_OPERATE = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}


class CalculatorState(NamedTuple):
    """The full state; x and y stay hidden from policies, which see only :meth:`Calculator.state_key`."""

    task: str
    x: int
    y: int
    x_known: bool = False
    y_known: bool = False
    result: int | None = None
    outcome: str = ""  # "", "success" or "failure": set when the episode ends


class Calculator:
    """The calculator world under one deployment; see the module's docstring for the rules."""

    name = "calculator"
    action_names = ACTIONS
    discount = DISCOUNT

    def __init__(self, deployment: str = "works") -> None:
        """Take one of the deployments ``works``, ``broken`` and ``crash``."""
        self.deployment = deployment

    def initial_states(self) -> list[tuple[float, CalculatorState]]:
        """All 243 combinations of task, x and y, equally likely."""
        states = [CalculatorState(task, x, y) for task in TASKS for x in NUMBERS for y in NUMBERS]
        return [(1 / len(states), state) for state in states]

    def actions(self, state: CalculatorState) -> tuple[str, ...]:
        """Names of the valid actions."""
        if not state.x_known:
            return ("lookup_x",)
        if not state.y_known:
            return ("lookup_y",)
        return OPERATIONS if state.result is None else ("final",)

    def transitions(self, state: CalculatorState, action: str) -> list[Transition]:
        """Everything that can happen: here always one outcome with probability 1."""
        if action not in self.actions(state):
            return [_ending(state, -1.0, success=False)]
        if action == "lookup_x":
            return [_going_on(state._replace(x_known=True))]
        if action == "lookup_y":
            return [_going_on(state._replace(y_known=True))]
        if action == "final":
            right = state.result == _OPERATE[state.task](state.x, state.y)
            return [_ending(state, (1.0 if right else -1.0) - STEP_COST, success=right)]
        if action == "mul" and self.deployment == "crash":
            return [_ending(state, -1.0, success=False)]
        result = _OPERATE[action](state.x, state.y)
        if action == "mul" and self.deployment == "broken":
            result += 100
        return [_going_on(state._replace(result=result))]

    def state_key(self, state: CalculatorState) -> str:
        """What a policy sees: (task, x known, y known, result), as a short text."""
        if state.result is not None:
            return f"{state.task}: result {state.result}"
        if state.y_known:
            return f"{state.task}: x, y known"
        return f"{state.task}: x known" if state.x_known else f"{state.task}: start"

    def task(self, state: CalculatorState) -> str:
        """The task the episode is about."""
        return state.task

    def succeeded(self, state: CalculatorState) -> bool:
        """Whether an ended episode solved its task."""
        return state.outcome == "success"

    def features(self, state: CalculatorState) -> FloatArray:
        """(7,) one-hot task, x known, y known, has a result, result / 81."""
        result = state.result
        one_hot = [float(state.task == task) for task in TASKS]
        known = [float(state.x_known), float(state.y_known), float(result is not None)]
        return np.array([*one_hot, *known, (result or 0) / 81.0])

    def user_goal(self, state: CalculatorState) -> str:
        """The request as the agent reads it."""
        return {"add": "Compute x + y.", "sub": "Compute x - y.", "mul": "Compute x * y."}[state.task]

    def observation(self, action: str, next_state: CalculatorState) -> str | None:
        """What the tool answers, as text for the log."""
        if next_state.outcome:
            return next_state.outcome
        shown = {"lookup_x": next_state.x, "lookup_y": next_state.y}.get(action, next_state.result)
        return None if shown is None else str(shown)


def _going_on(state: CalculatorState) -> Transition:
    return Transition(1.0, state, -STEP_COST, terminal=False)


def _ending(state: CalculatorState, reward: float, *, success: bool) -> Transition:
    return Transition(1.0, state._replace(outcome="success" if success else "failure"), reward, terminal=True)


SPEC: WorldSpec = WorldSpec(
    name="calculator",
    title="Calculator agent",
    summary="Look up x and y, pick an operation, hand in the result. What if `mul` is missing from the log?",
    make=Calculator,
    subject="mul",
    return_tells_success=True,
    deployments={
        "works": DeploymentSpec("works", "mul multiplies, as everybody hopes"),
        "broken": DeploymentSpec("returns a wrong result", "mul returns x*y + 100"),
        "crash": DeploymentSpec("crashes", "calling mul gives -1 and ends the episode"),
    },
    behaviors={
        "logger": BehaviorSpec("calls every tool", Behavior),
        "logger_without_mul": BehaviorSpec("never calls mul", lambda: Behavior().without("mul")),
        "uniform": BehaviorSpec("acts at random", lambda: Behavior(random_probability=1.0)),
    },
    tasks=TASKS,
)
