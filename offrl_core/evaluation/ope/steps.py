"""A dataset as sequences: steps in the order of time, equal episodes once with their number.

Logs of small worlds repeat themselves: 3,000 episodes of the calculator are some 200 different ones. What is computed on
the different ones and multiplied costs a tenth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...arrays import BoolArray, FloatArray, IntArray
from ...dataset import Dataset
from ...edges import CUT, GOES_ON


@dataclass(frozen=True, kw_only=True, eq=False)
class LoggedSteps:
    """N steps of G different episodes, ordered by episode, then time.

    Attributes:
        states, actions: (N,).
        next_states: (N,) -1 where nothing follows.
        rewards: (N,) NaN where unknown.
        endings: (N,) GOES_ON, ENDED or CUT.
        probabilities: (N,) of the action under the behavior policy as logged; NaN where the log doesn't say, or says NaN.
        episode: (N,) number of the episode, 0 to G-1.
        position: (N,) steps since the episode began.
        first, last: (G,) places of each episode's first and last step.
        multiplicity: (G,) how many episodes of the log are equal to this one.
        branched: (G,) those that branch off another episode in its middle.
        n_logged_steps: steps of the whole log, equal episodes counted each.
        n_silent: steps of the whole log that say nothing about the probability of their action.
        n_not_a_number, n_above_one, n_zero: steps of the whole log whose logged probability is none.
    """

    states: IntArray
    actions: IntArray
    next_states: IntArray
    rewards: FloatArray
    endings: NDArray[np.int8]
    probabilities: FloatArray
    episode: IntArray
    position: IntArray
    first: IntArray
    last: IntArray
    multiplicity: IntArray
    branched: BoolArray
    n_logged_steps: int
    n_silent: int
    n_not_a_number: int
    n_above_one: int
    n_zero: int

    @property
    def n_groups(self) -> int:
        """G."""
        return len(self.first)

    @property
    def n_episodes(self) -> int:
        """E, equal ones counted each."""
        return int(self.multiplicity.sum())

    @cached_property
    def n_steps(self) -> int:
        """Steps of the longest episode."""
        return int(self.position.max()) + 1

    @cached_property
    def is_last(self) -> BoolArray:
        """(N,)."""
        last = np.zeros(len(self.states), dtype=bool)
        last[self.last] = True
        return last

    @cached_property
    def torn(self) -> BoolArray:
        """(G,) episodes with a gap, or that go on after an ending."""
        return self.any_step(~self.is_last & (self.endings != GOES_ON))

    @cached_property
    def cut(self) -> BoolArray:
        """(G,) episodes that were cut before they ended."""
        return np.asarray(self.endings[self.last] == CUT)

    @cached_property
    def unknown(self) -> BoolArray:
        """(G,) episodes with an unknown reward."""
        return self.any_step(np.isnan(self.rewards))

    @cached_property
    def only_rewarded_at_the_end(self) -> BoolArray:
        """(G,) episodes with a known reward on their last step and on no other."""
        known = ~np.isnan(self.rewards)
        return known[self.last] & ~self.any_step(known & ~self.is_last)

    @cached_property
    def included(self) -> BoolArray:
        """(G,) episodes that are whole and have a known return, so that they can be weighed."""
        return ~(self.torn | self.branched | self.unknown)

    @cached_property
    def can_teach(self) -> BoolArray:
        """(N,) steps whose reward and successor are known."""
        return (self.endings != CUT) & ~np.isnan(self.rewards)

    def any_step(self, event: BoolArray) -> BoolArray:
        """(G,) whether an event of steps happens in an episode."""
        return np.bincount(self.episode, event, minlength=self.n_groups) > 0

    def count(self, which: BoolArray) -> int:
        """How many episodes of the log are of these (G,) kinds."""
        return int(self.multiplicity[which].sum())


_KNOWN: WeakKeyDictionary[Dataset, LoggedSteps] = WeakKeyDictionary()


def logged_steps(dataset: Dataset) -> LoggedSteps:
    """The dataset as sequences, made once per dataset."""
    found = _KNOWN.get(dataset)
    if found is None:  # two visitors at once may both make it, to the same result
        found = _KNOWN[dataset] = _make(dataset)
    return found


def _make(dataset: Dataset) -> LoggedSteps:
    columns = dataset.log.columns("t", "action_logprob", "parent_episode").take(dataset.places)
    t = columns["t"].to_numpy().astype(np.int64)
    in_time = np.lexsort((t, dataset.episodes))
    episodes, rows, t = dataset.episodes[in_time], dataset.transitions().at(in_time), t[in_time]
    begins = np.append(True, episodes[1:] != episodes[:-1])
    first, episode = np.flatnonzero(begins), np.cumsum(begins) - 1
    position = np.arange(len(t)) - first[episode]
    logged = columns["action_logprob"]
    says = logged.is_valid().to_numpy()
    logprobs = logged.to_numpy().astype(np.float64)  # NULL becomes NaN
    with np.errstate(over="ignore"):
        probabilities = np.exp(logprobs)[in_time]
    branched = columns["parent_episode"].is_valid().to_numpy()[in_time[first]] & (t[first] > 0)
    parts = [rows.observations, rows.actions, rows.next_observations, rows.endings, rows.rewards, probabilities]
    kinds, groups = pd.factorize(_signatures(parts, position, first) + branched)
    chosen = _first_of_each(kinds, len(groups))
    kept = np.isin(episode, chosen)
    lengths = np.diff(np.append(first, len(t)))[chosen]
    ends = np.cumsum(lengths)
    return LoggedSteps(
        states=rows.observations[kept],
        actions=rows.actions[kept],
        next_states=rows.next_observations[kept],
        rewards=rows.rewards[kept],
        endings=rows.endings[kept],
        probabilities=probabilities[kept],
        episode=np.repeat(np.arange(len(chosen)), lengths),
        position=position[kept],
        first=ends - lengths,
        last=ends - 1,
        multiplicity=np.bincount(kinds),
        branched=branched[chosen],
        n_logged_steps=len(t),
        n_silent=int((~says).sum()),
        n_not_a_number=int((says & np.isnan(logprobs)).sum()),
        n_above_one=int((logprobs > ROUNDING).sum()),
        n_zero=int((probabilities == 0).sum()),
    )


ROUNDING = 1e-9  # a logarithm this far above 0 is still taken for that of 1


def _signatures(parts: Sequence[NDArray[Any]], position: IntArray, first: IntArray) -> NDArray[np.uint64]:
    """(E,) numbers that are equal for equal episodes, and for others with a chance of 2^-64 a pair."""
    mixed = position.astype(np.uint64)
    for part in parts:
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + pd.util.hash_array(part)  # wraps around, as it should
    return np.add.reduceat(pd.util.hash_array(mixed), first)


def _first_of_each(kinds: IntArray, n_kinds: int) -> IntArray:
    """(n_kinds,) place where each kind comes first; kinds are numbered in that order."""
    place = np.empty(n_kinds, dtype=np.int64)
    place[kinds[::-1]] = np.arange(len(kinds))[::-1]
    return place
