"""Worlds small enough to be solved on paper. Every number the tests expect of them is worked out beside the world."""

from __future__ import annotations

from typing import Any

import numpy as np

from offrl_core.arrays import FloatArray
from offrl_core.behavior_policies import TableBehavior
from offrl_core.worlds import BehaviorSpec, DeploymentSpec, Transition, WorldSpec


class TinyWorld:
    """What the tiny worlds have in common: one task, a state that is its own key, success written into the last state."""

    name = "tiny"
    action_names: tuple[str, ...] = ()
    discount = 0.5

    def __init__(self, deployment: str = "works") -> None:
        self.deployment = deployment

    def task(self, state: Any) -> str:
        return "win"

    def succeeded(self, state: Any) -> bool:
        return bool(state == "won")

    def state_key(self, state: Any) -> str:
        return str(state)

    def features(self, state: Any) -> FloatArray:
        return np.zeros(1)

    def user_goal(self, state: Any) -> str:
        return "Win."

    def observation(self, action: str, next_state: Any) -> str | None:
        return str(next_state)


class Chain(TinyWorld):
    """Three states in a row, deterministic: go costs 0.1 twice and then wins 1; stop ends with 0. Discount 1/2.

    Values of a policy that goes with probability 1/2:

        V(2) = 1/2 * 1 = 1/2;   V(1) = 1/2 (-0.1 + 1/2 * 1/2) = 0.075;   V(0) = 1/2 (-0.1 + 1/2 * 0.075) = -0.03125

    The best policy always goes: Q*(2, go) = 1, Q*(1, go) = -0.1 + 1/2 = 0.4, Q*(0, go) = -0.1 + 0.2 = 0.1.
    """

    name = "chain"
    action_names = ("go", "stop")

    def initial_states(self) -> list[tuple[float, Any]]:
        return [(1.0, 0)]

    def actions(self, state: Any) -> tuple[str, ...]:
        return self.action_names

    def transitions(self, state: Any, action: str) -> list[Transition]:
        if action == "stop":
            return [Transition(1.0, "stopped", 0.0, True)]
        return [Transition(1.0, "won", 1.0, True) if state == 2 else Transition(1.0, state + 1, -0.1, False)]


class Table(TinyWorld):
    """A stochastic world with hidden luck: bet wins +1 or loses 1 and ends; wait stays with probability 1/2, else ends.

    Luck is good with probability 1/4 and then a bet wins with 3/4; else a bet wins with 1/4. Discount 1/2. Betting with
    probability 1/2, good luck is worth V = 1/2 * 1/2 + 1/2 * 1/2 * 1/2 * V, so V = 2/7; bad luck -2/7; a start -1/7.
    """

    name = "table"
    action_names = ("bet", "wait")

    def initial_states(self) -> list[tuple[float, Any]]:
        return [(0.25, "good"), (0.75, "bad")]

    def actions(self, state: Any) -> tuple[str, ...]:
        return self.action_names

    def transitions(self, state: Any, action: str) -> list[Transition]:
        if action == "wait":
            return [Transition(0.5, state, 0.0, False), Transition(0.5, "left", 0.0, True)]
        p = 0.75 if state == "good" else 0.25
        return [Transition(p, "won", 1.0, True), Transition(1 - p, "lost", -1.0, True)]

    def state_key(self, state: Any) -> str:
        return "at the table"


class Doors(TinyWorld):
    """Two doors lead to rooms that look the same: open wins behind the left door and loses behind the right one."""

    name = "doors"
    action_names = ("left", "right", "open")

    def initial_states(self) -> list[tuple[float, Any]]:
        return [(1.0, "hall")]

    def actions(self, state: Any) -> tuple[str, ...]:
        return ("left", "right") if state == "hall" else ("open",)

    def transitions(self, state: Any, action: str) -> list[Transition]:
        if action not in self.actions(state):
            return [Transition(1.0, "lost", -1.0, True)]
        if state == "hall":
            return [Transition(1.0, f"room {action}", 0.0, False)]
        won = state == "room left"
        return [Transition(1.0, "won" if won else "lost", 1.0 if won else -1.0, True)]

    def state_key(self, state: Any) -> str:
        return "room" if state.startswith("room") else state


class Coin(TinyWorld):
    """One step and it is over: heads wins with 3/4 (+1, else -1), tails with 1/4."""

    name = "coin"
    action_names = ("heads", "tails")

    def initial_states(self) -> list[tuple[float, Any]]:
        return [(1.0, "toss")]

    def actions(self, state: Any) -> tuple[str, ...]:
        return self.action_names

    def transitions(self, state: Any, action: str) -> list[Transition]:
        p = 0.75 if action == "heads" else 0.25
        return [Transition(p, "won", 1.0, True), Transition(1 - p, "lost", -1.0, True)]


def _spec(world: type[TinyWorld]) -> WorldSpec:
    return WorldSpec(
        name=world.name,
        title=world.name,
        summary=world.__doc__ or "",
        make=world,  # type: ignore[arg-type]
        deployments={"works": DeploymentSpec("works", "as written")},
        behaviors={"logger": BehaviorSpec("acts at random", TableBehavior)},
        tasks=("win",),
    )


TINY_WORLDS = {world.name: _spec(world) for world in (Chain, Table, Doors, Coin)}
