"""Values of the cart on a line, from a fine grid, with the error of the grid beside them.

Values are kept at evenly spaced states and are linear in between; what can follow is added up, not sampled. A policy's values
then solve a linear system, and the optimum is found by policy iteration over a grid of actions. The stated error is the
largest difference to the same computation on half as many cells. Linear interpolation errs with the square of the cell, so
the finer grid's own error is about a third of that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

from ..arrays import FloatArray, IntArray
from .world import HIGH, LOW, PointWorld

N_CELLS = 800  # of the state grid
N_ACTIONS = 801  # of the action grid that the optimum is sought on

Policy = Callable[[FloatArray], FloatArray]  # (N,) states to (N,) actions
Solution = tuple[FloatArray, FloatArray, FloatArray]  # (S,) states, actions there, values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactValues:
    """Values of one policy, exact up to the grid.

    Attributes:
        world: whose.
        states: (S,) grid.
        actions: (S,) what the policy does there.
        v_values: (S,) discounted return from there.
        error: largest difference in value to a grid of half as many cells, reward units; large where a small step decides
            between two very different futures.
        mean_error: difference in :attr:`mean_value` to that grid.
    """

    world: PointWorld
    states: FloatArray
    actions: FloatArray
    v_values: FloatArray
    error: float
    mean_error: float

    @property
    def mean_value(self) -> float:
        """Discounted return from a uniform start."""
        return _mean(self.states, self.v_values)

    def q_values(self, observations: FloatArray, actions: FloatArray) -> FloatArray:
        """Value of doing an action once and following the policy afterwards, for shapes that broadcast."""
        return backup(self.world, self.states, self.v_values, observations, actions)


def backup(
    world: PointWorld, states: FloatArray, v_values: FloatArray, observations: FloatArray, actions: FloatArray
) -> FloatArray:
    """Expected reward plus discounted value of what follows, with values linear between grid states."""
    total = np.zeros(np.broadcast_shapes(observations.shape, actions.shape))
    for probability, following, rewards in world.outcomes(observations, actions):
        total += probability * (rewards + world.discount * np.interp(following, states, v_values))
    return total


def evaluate(world: PointWorld, policy: Policy, *, n_cells: int = N_CELLS) -> ExactValues:
    """Exact values of a deterministic policy; its actions are cut to the valid range."""
    return _compared(world, _evaluated(world, policy, n_cells), _evaluated(world, policy, n_cells // 2))


def solve(world: PointWorld, *, n_cells: int = N_CELLS, n_actions: int = N_ACTIONS) -> ExactValues:
    """The best policy among a grid of actions, by policy iteration."""
    return _compared(world, _solved(world, n_cells, n_actions), _solved(world, n_cells // 2, (n_actions + 1) // 2))


def _compared(world: PointWorld, fine: Solution, coarse: Solution) -> ExactValues:
    states, actions, v_values = fine
    coarse_states, _, coarse_values = coarse
    return ExactValues(
        world=world,
        states=states,
        actions=actions,
        v_values=v_values,
        error=float(np.abs(np.interp(coarse_states, states, v_values) - coarse_values).max()),
        mean_error=abs(_mean(states, v_values) - _mean(coarse_states, coarse_values)),
    )


def _mean(states: FloatArray, v_values: FloatArray) -> float:
    return float(np.trapezoid(v_values, states) / (HIGH - LOW))


def _evaluated(world: PointWorld, policy: Policy, n_cells: int) -> Solution:
    states = np.linspace(LOW, HIGH, n_cells + 1)
    actions = np.clip(policy(states), LOW, HIGH)
    return states, actions, _values(world, states, actions)


def _values(world: PointWorld, states: FloatArray, actions: FloatArray) -> FloatArray:
    """(S,) solution of V = r + γ P V, where a next state between two grid states is a mix of both."""
    n_states = len(states)
    rows, columns, entries = [np.arange(n_states)], [np.arange(n_states)], [np.ones(n_states)]
    rewards = np.zeros(n_states)
    for probability, following, paid in world.outcomes(states, actions):
        rewards += probability * paid
        below, share = _between(states, following)
        weight = -world.discount * probability
        rows += [rows[0], rows[0]]
        columns += [below, below + 1]
        entries += [weight * (1 - share), weight * share]
    places = np.concatenate(rows), np.concatenate(columns)
    matrix = sparse.csc_array((np.concatenate(entries), places), shape=(n_states, n_states))
    v_values: FloatArray = spsolve(matrix, rewards)
    return v_values


def _between(states: FloatArray, positions: FloatArray) -> tuple[IntArray, FloatArray]:
    """(S,) number of the grid state below each position, and how far it is on the way to the one above."""
    cell = states[1] - states[0]
    below = np.clip(((positions - LOW) / cell).astype(np.int64), 0, len(states) - 2)
    return below, (positions - states[below]) / cell


def _solved(world: PointWorld, n_cells: int, n_actions: int) -> Solution:
    states, choices = np.linspace(LOW, HIGH, n_cells + 1), np.linspace(LOW, HIGH, n_actions)
    best = np.full(len(states), n_actions // 2)
    while True:
        v_values = _values(world, states, choices[best])
        q_values = backup(world, states, v_values, states[:, None], choices[None, :])
        # An action is left only for one that is better by more than rounding, so the iteration ends.
        rows = np.arange(len(states))
        better = q_values.max(axis=1) > q_values[rows, best] + 1e-10
        if not better.any():
            return states, choices[best], v_values
        best = np.where(better, q_values.argmax(axis=1), best)
