"""Logs drawn again from the episodes of a log, B at a time: every sum that an estimator asks for, as a matrix product.

Column b of (G, B) counts says how often each different episode is in log b. A sum over episodes is then a sparse matrix
times the counts, and the values of a policy in B fitted models are solved side by side. The log itself is the column of
its own counts: estimates and intervals come out of the same lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse

from ...arrays import BoolArray, FloatArray, IntArray
from ...mdp import settled_change
from .case import Case
from .steps import LoggedSteps

COLUMNS_AT_ONCE = 256  # as many logs side by side stay in the cache
MAX_CELLS = 20_000_000  # numbers in the largest array of a batch


def draw_counts(steps: LoggedSteps, n_bootstrap: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """(G, B) counts of resampled logs in batches; the first batch is the log itself, alone."""
    yield steps.multiplicity[:, None].astype(np.float64)
    batch = max(1, min(COLUMNS_AT_ONCE, MAX_CELLS // len(steps.states)))
    for begin in range(0, n_bootstrap, batch):
        size = min(batch, n_bootstrap - begin)
        yield _drawn(steps, size, rng)


def _drawn(steps: LoggedSteps, size: int, rng: np.random.Generator) -> FloatArray:
    """(G, size) counts; whichever way is faster, by kinds of episodes or by episodes."""
    n, kinds = steps.n_episodes, steps.n_groups
    if kinds * 8 < n:
        counts = rng.multinomial(n, steps.multiplicity / n, size=size).T
    else:
        kind_of = np.repeat(np.arange(kinds), steps.multiplicity)
        picks = kind_of[rng.integers(n, size=(size, n))] * size + np.arange(size)[:, None]
        counts = np.bincount(picks.ravel(), minlength=kinds * size).reshape(kinds, size)
    return np.ascontiguousarray(counts, dtype=np.float64)


class Sums:
    """Matrices that turn counts of episodes into the sums of a case; made once and used for every batch."""

    def __init__(self, case: Case) -> None:
        """Take a case; matrices are made when they are asked for."""
        self.case = case

    def _matrix(
        self, rows: IntArray, which: IntArray | BoolArray, values: FloatArray, n: int
    ) -> scipy.sparse.csr_array:
        """(n, G) matrix that adds ``values`` of the steps ``which`` into ``rows``, episode by episode."""
        steps = self.case.steps
        entries = (values[which], (rows[which], steps.episode[which]))
        return scipy.sparse.coo_array(entries, shape=(n, steps.n_groups)).tocsr()

    # -- importance weights ----------------------------------------------------------------------------------

    @cached_property
    def episodes(self) -> FloatArray:
        """(3, G) for sums of 1, w and w * G over the episodes that count."""
        case = self.case
        return np.stack(
            [case.steps.included.astype(np.float64), case.episode_weights, case.episode_weights * case.returns]
        )

    @cached_property
    def _weighed(self) -> BoolArray:
        return self.case.weights > 0

    @cached_property
    def alive(self) -> scipy.sparse.csr_array:
        """(T, G) weight of each episode at each step."""
        return self._matrix(self.case.steps.position, self._weighed, self.case.weights, self.case.steps.n_steps)

    @cached_property
    def over(self) -> scipy.sparse.csr_array:
        """(T, G) weight of each episode at the first step after its end; it keeps that weight from then on."""
        steps = self.case.steps
        use = self._weighed & steps.is_last & (steps.position + 1 < steps.n_steps)
        return self._matrix(steps.position + 1, use, self.case.weights, steps.n_steps)

    @cached_property
    def rewards(self) -> scipy.sparse.csr_array:
        """(T, G) weight times reward."""
        steps = self.case.steps
        return self._matrix(steps.position, self._weighed, self.case.weights * steps.rewards, steps.n_steps)

    # -- corrections of a model ------------------------------------------------------------------------------

    @cached_property
    def corrected(self) -> BoolArray:
        """(N,) steps at which a model is held against what followed; at a cut nothing is known to follow."""
        return self._weighed & self.case.steps.can_teach

    @cached_property
    def corrected_rewards(self) -> scipy.sparse.csr_array:
        """(T, G) weight times reward where a model is corrected."""
        steps = self.case.steps
        return self._matrix(steps.position, self.corrected, self.case.weights * steps.rewards, steps.n_steps)

    @cached_property
    def taken(self) -> Keyed:
        """Weights of (step, pair taken), where a model is corrected."""
        return self._keyed(self.case.pairs.of_step, self.corrected, self.case.weights, len(self.case.pairs.states))

    @cached_property
    def reached(self) -> Keyed:
        """Weights before the step of (step, state reached); 1 at the start."""
        case, steps = self.case, self.case.steps
        before = np.where(steps.position > 0, np.roll(case.weights, 1), 1.0)
        before *= steps.included[steps.episode]
        return self._keyed(steps.states, before > 0, before, case.dataset.n_states)

    def _keyed(self, keys: IntArray, use: BoolArray, values: FloatArray, n_keys: int) -> Keyed:
        steps = self.case.steps
        both = steps.position * n_keys + keys
        found = np.unique(both[use])
        matrix = self._matrix(np.searchsorted(found, both), use, values, len(found))
        return Keyed(matrix, found // n_keys, found % n_keys)

    # -- the process that the counts describe ------------------------------------------------------------------

    @cached_property
    def start_states(self) -> scipy.sparse.csr_array:
        """(S, G) where episodes begin."""
        steps = self.case.steps
        begins = np.zeros(len(steps.states), dtype=bool)
        begins[steps.first[~steps.branched]] = True
        return self._matrix(steps.states, begins, np.ones(len(steps.states)), self.case.dataset.n_states)

    @cached_property
    def fitted(self) -> Process:
        """Counts of (pair, successor): fitted Q evaluation."""
        case = self.case
        use = case.steps.can_teach & (case.pairs.of_step >= 0)
        return self._process(case.pairs.of_step, use, np.ones(len(use)), len(case.pairs.states))

    @cached_property
    def marginal(self) -> Process:
        """Ratios of (state, successor): marginalized importance sampling."""
        case = self.case
        use = case.steps.can_teach & (case.ratios > 0)
        return self._process(case.steps.states, use, case.ratios, case.dataset.n_states)

    def _process(self, keys: IntArray, use: BoolArray, weights: FloatArray, n_keys: int) -> Process:
        steps, n_next = self.case.steps, self.case.dataset.n_states + 1
        both = keys * n_next + steps.next_states + 1
        found = np.unique(both[use])
        return Process(
            edges=self._matrix(np.searchsorted(found, both), use, weights, len(found)),
            rewards=self._matrix(keys, use, np.where(use, weights * steps.rewards, 0.0), n_keys),
            sources=found // n_next,
            targets=found % n_next - 1,
        )


class Keyed(NamedTuple):
    """Sums by time and key."""

    matrix: scipy.sparse.csr_array  # (K, G)
    times: IntArray  # (K,) rising
    keys: IntArray  # (K,)


class Process(NamedTuple):
    """Sums that describe a process: weights of (key, successor) and weighted rewards by key."""

    edges: scipy.sparse.csr_array  # (K, G)
    rewards: scipy.sparse.csr_array  # (number of keys, G)
    sources: IntArray  # (K,) rising
    targets: IntArray  # (K,) -1 where the episode ends


class Resamples:
    """B logs side by side; every attribute has them on its last axis."""

    def __init__(self, sums: Sums, counts: FloatArray, known: Resamples | None = None) -> None:
        """Take (G, B) counts, and the log itself where this is not it."""
        self.sums, self.counts, self._known = sums, counts, known
        self.discount = sums.case.dataset.discount

    @property
    def n_columns(self) -> int:
        """B."""
        return self.counts.shape[1]

    @cached_property
    def powers(self) -> FloatArray:
        """(T, 1) γ to the power of the step."""
        return np.asarray(self.discount ** np.arange(self.sums.case.steps.n_steps))[:, None]

    @cached_property
    def _by_episode(self) -> FloatArray:
        return self.sums.episodes @ self.counts

    @property
    def n_episodes(self) -> FloatArray:
        """(B,) episodes that are weighed."""
        return self._by_episode[0]

    @property
    def weight_sums(self) -> FloatArray:
        """(B,) Σ w."""
        return self._by_episode[1]

    @property
    def weighted_returns(self) -> FloatArray:
        """(B,) Σ w G."""
        return self._by_episode[2]

    @cached_property
    def step_weights(self) -> FloatArray:
        """(T, B) Σ over episodes of the weight up to each step, kept after the end."""
        return self.sums.alive @ self.counts + np.cumsum(self.sums.over @ self.counts, axis=0)

    @cached_property
    def step_rewards(self) -> FloatArray:
        """(T, B) Σ weight times reward."""
        return self.sums.rewards @ self.counts

    # -- models ----------------------------------------------------------------------------------------------

    @cached_property
    def starts(self) -> FloatArray:
        """(S, B) share of the episodes that begin in each state."""
        counts = self.sums.start_states @ self.counts
        return counts / np.maximum(counts.sum(axis=0), 1.0)

    @cached_property
    def fitted(self) -> tuple[FloatArray, FloatArray]:
        """Fitted Q evaluation: (P, B) values of the pairs the policy may take, and (S, B) values of the states."""
        case = self.sums.case
        if case.q_values is not None:
            return self._given(case.q_values)
        pairs, process = case.pairs, self.sums.fitted
        shares, rewards, taught = self._normalised(process)
        fallback = np.zeros((len(pairs.states), 1)) if self._known is None else self._known.fitted[0]
        here = np.where(taught, rewards, fallback)
        chosen = pairs.chosen[:, None]
        base = add_up(chosen * here, pairs.states, case.dataset.n_states)
        goes_on = process.targets >= 0
        sources, targets = process.sources[goes_on], process.targets[goes_on]
        onward = shares[goes_on] * self.discount
        start = None if self._known is None else self._known.fitted[1]
        v_values = solve(base, chosen[sources] * onward, pairs.states[sources], targets, start)
        return here + add_up(onward * v_values[targets], sources, len(here)), v_values

    def _given(self, q_values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values that somebody else learned, the same in all resampled logs."""
        case = self.sums.case
        v_values = np.where(case.table > 0, case.table * q_values, 0.0).sum(axis=1)
        steps, pairs = case.steps, case.pairs
        q_of_pair = np.zeros(len(pairs.states))
        use = pairs.of_step >= 0
        q_of_pair[pairs.of_step[use]] = q_values[steps.states[use], steps.actions[use]]
        shape = (1, self.n_columns)
        return np.tile(q_of_pair[:, None], shape), np.tile(v_values[:, None], shape)

    @cached_property
    def marginal_values(self) -> FloatArray:
        """(S, B) values in the process of the states alone, its steps weighed by their ratios."""
        process = self.sums.marginal
        shares, rewards, taught = self._normalised(process)
        known = None if self._known is None else self._known.marginal_values
        base = np.where(taught, rewards, 0.0 if known is None else known)
        goes_on = process.targets >= 0
        return solve(base, shares[goes_on] * self.discount, process.sources[goes_on], process.targets[goes_on], known)

    def _normalised(self, process: Process) -> tuple[FloatArray, FloatArray, BoolArray]:
        """(K, B) shares of the successors of each key, (keys, B) mean rewards, and whether a key has any weight."""
        weights = process.edges @ self.counts
        totals = add_up(weights, process.sources, process.rewards.shape[0])
        taught = totals > 0
        safe = np.where(taught, totals, 1.0)
        return weights / safe[process.sources], (process.rewards @ self.counts) / safe, taught

    @cached_property
    def taken_values(self) -> FloatArray:
        """(T, B) Σ weight times Q(s, a) of the pair taken."""
        return self._by_time(self.sums.taken, self.fitted[0])

    @cached_property
    def reached_values(self) -> FloatArray:
        """(T, B) Σ weight before the step times V(s) of the state reached."""
        return self._by_time(self.sums.reached, self.fitted[1])

    def _by_time(self, keyed: Keyed, values: FloatArray) -> FloatArray:
        weighted = (keyed.matrix @ self.counts) * values[keyed.keys]
        return add_up(weighted, keyed.times, self.sums.case.steps.n_steps)

    @cached_property
    def corrected_rewards(self) -> FloatArray:
        """(T, B) Σ weight times reward, where what followed is known."""
        return self.sums.corrected_rewards @ self.counts


def add_up(values: FloatArray, keys: IntArray, n_keys: int) -> FloatArray:
    """(n_keys, B) sums of (K, B) values over rising keys."""
    total = np.zeros((n_keys, values.shape[1]))
    if len(keys):
        begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        total[keys[begins]] = np.add.reduceat(values, begins, axis=0)
    return total


def divided(sums: FloatArray, by: FloatArray) -> FloatArray:
    """Quotients, 0 where nothing is there to divide by."""
    return np.divide(sums, by, out=np.zeros(np.broadcast(sums, by).shape), where=by > 0)


FEW_SWEEPS = 64  # most agents' episodes are over by then
MAX_SWEEPS = 5_000
FEW_STATES = 256  # of so many a matrix is solved faster than it is swept


def solve(
    base: FloatArray, onward: FloatArray, sources: IntArray, targets: IntArray, start: FloatArray | None
) -> FloatArray:
    """(S, B) solution of v[s] = base[s] + Σ over edges from s of onward * v[target], in each column.

    Args:
        base: (S, B).
        onward: (K, B) discounted probabilities of the edges.
        sources: (K,) rising.
        targets: (K,).
        start: (S, 1) values to begin with; values are then settled to 1e-9 of the largest, else to 1e-12.
    """
    tolerance = 1e-12 if start is None else 1e-9
    values = base if start is None else np.broadcast_to(start, base.shape)
    for sweep in range(MAX_SWEEPS):
        if sweep == FEW_SWEEPS and len(base) <= FEW_STATES:
            with suppress(np.linalg.LinAlgError):  # undiscounted, and some resampled log never ends: sweep on
                return _solved_directly(base, onward, sources, targets)
        swept = base + add_up(onward * values[targets], sources, len(base))
        change = float(np.abs(swept - values).max(initial=0.0))
        values = swept
        if change <= settled_change(values) / 1e-12 * tolerance:
            break
    return values


def _solved_directly(base: FloatArray, onward: FloatArray, sources: IntArray, targets: IntArray) -> FloatArray:
    n_states, n_columns = base.shape
    solved = np.empty_like(base)
    for b in range(n_columns):  # a stack of matrices would take S * S * B numbers
        matrix = np.eye(n_states)
        np.subtract.at(matrix, (sources, targets), onward[:, b])
        solved[:, b] = np.linalg.solve(matrix, base[:, b])
    return solved
