"""A cart on a line: one number as state, one as action, and rewards without an edge anywhere.

The cart stands at s in [-1, 1] and drives with strength a in [-1, 1]. It moves by 0.8 times the strength that reaches the
ground, a little shaken (by -0.1, 0 or 0.1 with probabilities 1/4, 1/2, 1/4), and stops at the ends of the line. It is paid
for landing near 0, and pays for the drive:

    r = exp(-s'^2 / (2 * 0.3^2)) - 0.1 a^2

So each state has one right strength, and more flies past the mark. Episodes never end by themselves; starts are uniform on
the line; discount 0.9.

Two deployments differ beyond a strength of 0.5 alone, so no log that stays below it can tell them apart:

- ``grips``: all strength reaches the ground;
- ``spins``: beyond 0.5 the wheels begin to spin, and with full strength hardly any of it reaches the ground.

As everywhere, the world is a list of what can happen: logs sample it, :mod:`offrl_core.continuous.exact` adds it up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..errors import UnknownName

LOW, HIGH = -1.0, 1.0  # of states and of actions
DISCOUNT = 0.9
REACH = 0.8  # how far full strength moves, where it reaches the ground
SHAKES = ((0.25, -0.1), (0.5, 0.0), (0.25, 0.1))  # (probability, displacement)
MARK_WIDTH = 0.3
DRIVE_COST = 0.1
SPIN_FROM, SPIN_WIDTH = 0.5, 0.2

DEPLOYMENTS = {
    "grips": "keep their grip",
    "spins": "spin",
}


class Outcome(NamedTuple):
    """One thing that can happen to each of N pairs."""

    probability: float
    next_observations: FloatArray  # (N,)
    rewards: FloatArray  # (N,)


class PointWorld:
    """The rules under one deployment; see the module's docstring."""

    discount = DISCOUNT

    def __init__(self, deployment: str = "grips") -> None:
        """Take one of the deployments.

        Raises:
            UnknownName: there is no such deployment.
        """
        if deployment not in DEPLOYMENTS:
            raise UnknownName("deployment of the cart", deployment, DEPLOYMENTS)
        self.deployment = deployment

    def outcomes(self, observations: FloatArray, actions: FloatArray) -> list[Outcome]:
        """Everything that can follow pairs of states and actions, of shapes that broadcast; probabilities sum to 1."""
        aimed = observations + REACH * self.grounded(actions)
        found = []
        for probability, shake in SHAKES:
            landed = np.clip(aimed + shake, LOW, HIGH)
            found.append(Outcome(probability, landed, self.reward(landed, actions)))
        return found

    def grounded(self, actions: FloatArray) -> FloatArray:
        """Strength that reaches the ground: smooth also where the wheels begin to spin."""
        if self.deployment == "grips":
            return actions
        beyond = np.maximum(np.abs(actions) - SPIN_FROM, 0)
        return np.asarray(actions * np.exp(-((beyond / SPIN_WIDTH) ** 2)))

    def reward(self, next_observations: FloatArray, actions: FloatArray) -> FloatArray:
        """What one step pays, reward units."""
        near = np.exp(-(next_observations**2) / (2 * MARK_WIDTH**2))
        return np.asarray(near - DRIVE_COST * actions**2)
