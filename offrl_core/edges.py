"""Transitions, row by row and counted: distinct (s, a, s', ending) with their weights.

Counting is done once per dataset; after that, learning costs what the number of *distinct* edges asks for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .arrays import BoolArray, FloatArray, IntArray

# How a step ends: what may be bootstrapped from.
GOES_ON, ENDED, CUT = 0, 1, 2


class Transitions(NamedTuple):
    """The rows one by one, in the order of the log; N-first arrays. Unknown rewards are NaN."""

    observations: IntArray  # state indices
    actions: IntArray
    rewards: FloatArray
    next_observations: IntArray  # -1 where nothing follows
    terminals: BoolArray
    timeouts: BoolArray

    @property
    def endings(self) -> NDArray[np.int8]:
        """(N,) GOES_ON, ENDED or CUT."""
        return self.terminals.view(np.int8) * np.int8(ENDED) + self.timeouts.view(np.int8) * np.int8(CUT)

    def __repr__(self) -> str:
        """How many, not arrays."""
        ends = f"{int(self.terminals.sum()):,} end their episode, {int(self.timeouts.sum()):,} are its last but no end"
        return f"Transitions({len(self.actions):,} rows; {ends}; fields: {', '.join(self._fields)})"

    def at(self, places: IntArray) -> Transitions:
        """Some of the rows."""
        return Transitions._make(column[places] for column in self)


class Edges(NamedTuple):
    """Distinct (s, a, s', ending) of a dataset with their counts, arrays of equal length.

    ``next_states`` is -1 where nothing follows; ``n_known`` counts rows whose reward is known, ``reward_sums`` adds them up.
    """

    states: IntArray
    actions: IntArray
    next_states: IntArray
    endings: IntArray
    counts: IntArray
    n_known: IntArray
    reward_sums: FloatArray

    def __repr__(self) -> str:
        """How many, not arrays."""
        n, n_known = int(self.counts.sum()), int(self.n_known.sum())
        return f"Edges({len(self.counts):,} distinct of {n:,} rows, {n_known:,} with a known reward)"


def aggregate(rows: Transitions) -> Edges:
    """Group rows into weighted edges, in the order in which the log first shows them."""
    n_actions, n_next = int(rows.actions.max(initial=0)) + 1, int(rows.next_observations.max(initial=-1)) + 2
    keys = rows.observations * n_actions  # ((s * n_actions + a) * n_next + s') * 3 + ending, in place
    keys += rows.actions
    keys *= n_next
    keys += rows.next_observations
    keys *= 3
    keys += rows.endings
    members, distinct = pd.factorize(keys)  # hashes, where numpy.unique would sort
    pairs, following = np.divmod(distinct // 3 + 1, n_next)  # next states count from -1
    counts = np.bincount(members, minlength=len(distinct))
    n_known, sums = counts, np.bincount(members, rows.rewards, minlength=len(distinct)).astype(np.float64, copy=False)
    if np.isnan(sums).any():
        known = ~np.isnan(rows.rewards)
        n_known = np.bincount(members[known], minlength=len(distinct))
        sums = np.bincount(members[known], rows.rewards[known], minlength=len(distinct)).astype(np.float64)
    return Edges(
        states=pairs // n_actions,
        actions=pairs % n_actions,
        next_states=following - 1,
        endings=distinct % 3,
        counts=counts,
        n_known=n_known,
        reward_sums=sums,
    )
