"""One policy held against one log: weights of its episodes, and how well the two overlap. Nothing is resampled here."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse

from ...arrays import BoolArray, FloatArray, IntArray
from ...dataset import Dataset
from ...policies import TabularPolicy
from .steps import LoggedSteps, logged_steps

MAX_SWEEPS = 2_000  # of a chain that may never end


class Leaving(NamedTuple):
    """Where a policy leaves what the log shows."""

    share: float  # of the policy's episodes, on the counts of the log
    state: int  # where most of them do


class Pairs(NamedTuple):
    """Distinct state-action pairs of the log that the policy may take, ordered by state."""

    states: IntArray  # (P,)
    chosen: FloatArray  # (P,) probability of the action under the evaluation policy
    of_step: IntArray  # (N,) pair of each step, -1 where the policy never does it


class Case:
    """A policy, a dataset and the steps of it.

    Attributes:
        dataset, steps: the log.
        table: (S, A) probabilities of the evaluation policy on the dataset's own states and actions.
        estimated: whether behavior probabilities are frequencies of the log.
        ratios: (N,) evaluation over behavior probability of each step.
        q_values: (S, A) values to use instead of fitted ones, or None.
    """

    def __init__(self, policy: TabularPolicy, dataset: Dataset, q_values: FloatArray | None = None) -> None:
        """Take a policy over state keys."""
        self.dataset, self.q_values = dataset, q_values
        self.steps: LoggedSteps = logged_steps(dataset)
        self.table = aligned(policy, dataset)
        steps = self.steps
        self.estimated = steps.n_silent > 0
        behaved = dataset.behavior_probabilities[steps.states, steps.actions] if self.estimated else steps.probabilities
        self.chosen = self.table[steps.states, steps.actions]
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            # What the policy never does weighs nothing, however the log puts it.
            self.ratios = np.where(self.chosen > 0, self.chosen / behaved, 0.0)

    # -- weights ---------------------------------------------------------------------------------------------

    @cached_property
    def weights(self) -> FloatArray:
        """(N,) product of the ratios from the episode's start up to each step; 0 in episodes that are left out."""
        steps = self.steps
        weights = np.where(steps.included[steps.episode], self.ratios, 0.0)
        order = np.argsort(steps.position, kind="stable")
        ends = np.cumsum(np.bincount(steps.position))
        with np.errstate(over="ignore", invalid="ignore"):
            for begin, end in pairwise(ends):
                here = order[begin:end]
                weights[here] *= weights[here - 1]
        return weights

    @cached_property
    def episode_weights(self) -> FloatArray:
        """(G,) product of all ratios of an episode; 0 in episodes that are left out."""
        return self.weights[self.steps.last]

    @cached_property
    def discounts(self) -> FloatArray:
        """(N,) γ to the power of the position."""
        return np.asarray(self.dataset.discount**self.steps.position)

    @cached_property
    def returns(self) -> FloatArray:
        """(G,) discounted returns; 0 in episodes that are left out."""
        steps = self.steps
        rewards = np.where(steps.included[steps.episode], steps.rewards, 0.0)
        return np.bincount(steps.episode, self.discounts * rewards, minlength=steps.n_groups).astype(np.float64)

    @cached_property
    def n_included(self) -> int:
        """Episodes that are weighed."""
        return self.steps.count(self.steps.included)

    @cached_property
    def effective_sample_size(self) -> float:
        """(Σw)²/Σw², in episodes; 0 where every weight is 0 or some overflow."""
        n, w = self.steps.multiplicity, self.episode_weights
        largest = float(w.max(initial=0.0))
        if not 0 < largest < np.inf:
            return 0.0
        w = w / largest  # squares of large ones would overflow
        return float((n * w).sum() ** 2 / (n * w**2).sum())

    @cached_property
    def step_sample_sizes(self) -> FloatArray:
        """(T,) the same for the weights up to each step; an episode that is over keeps its weight."""
        w = self.weights / max(float(self.weights.max(initial=0.0)), 1e-300)
        sums, squares = self.totals(w), self.totals(w**2)
        return np.divide(sums**2, squares, out=np.zeros(self.steps.n_steps), where=squares > 0)

    def totals(self, amounts: FloatArray) -> FloatArray:
        """(T,) amounts (N,) of all episodes at each step; an episode that is over keeps that of its last step."""
        steps = self.steps
        counted = steps.multiplicity[steps.episode] * amounts
        over = steps.is_last & (steps.position + 1 < steps.n_steps)
        alive = np.bincount(steps.position, counted, minlength=steps.n_steps)
        kept = np.bincount(steps.position[over] + 1, counted[over], minlength=steps.n_steps)
        return np.asarray(alive + np.cumsum(kept), dtype=np.float64)

    @property
    def expected_sample_size(self) -> float:
        """What (Σw)²/Σw² tends to on logs of this length."""
        return float(self.expected_step_sizes[-1])

    @cached_property
    def expected_step_sizes(self) -> FloatArray:
        """(T,) what :attr:`step_sample_sizes` tend to: episodes over the mean square of a weight, on the log's counts.

        The mean square is worked out step by step on the counts, so it also knows weights too rare to have turned up.
        """
        steps, n_states = self.steps, self.dataset.n_states
        n = steps.multiplicity[steps.episode]
        squares = self.ratios**2 * n / np.bincount(steps.states, n, minlength=n_states)[steps.states]
        ends, goes_on = (squares > 0) & (steps.next_states < 0), (squares > 0) & (steps.next_states >= 0)
        base = np.bincount(steps.states[ends], squares[ends], minlength=n_states)
        chain = _square(steps.states[goes_on], steps.next_states[goes_on], squares[goes_on], n_states)
        second, used = np.ones(n_states), self.starts > 0
        means = np.empty(steps.n_steps)
        with np.errstate(over="ignore", invalid="ignore"):
            for t in range(steps.n_steps):
                second = base + chain @ second
                means[t] = self.starts[used] @ second[used]
        return np.divide(self.n_included, means, out=np.zeros(steps.n_steps), where=means > 0)

    @cached_property
    def mean_weight(self) -> tuple[float, float]:
        """Mean of the episodes' weights and its standard error; over many logs it is 1."""
        n, w = self.steps.multiplicity[self.steps.included], self.episode_weights[self.steps.included]
        mean = float((n * w).sum() / n.sum())
        spread = float((n * (w - mean) ** 2).sum() / n.sum())
        return mean, (spread / float(n.sum())) ** 0.5

    # -- overlap ---------------------------------------------------------------------------------------------

    @cached_property
    def starts(self) -> FloatArray:
        """(S,) share of the episodes that begin in each state; those that branch off another don't count."""
        steps = self.steps
        n = np.where(steps.branched, 0, steps.multiplicity)
        counts = np.bincount(steps.states[steps.first], n, minlength=self.dataset.n_states)
        return counts / max(counts.sum(), 1.0)

    @cached_property
    def pairs(self) -> Pairs:
        """What the log shows of what the policy does."""
        steps, n_actions = self.steps, self.dataset.n_actions
        keys = np.where(self.chosen > 0, steps.states * n_actions + steps.actions, -1)
        found = np.unique(keys[keys >= 0])
        of_step = np.where(keys >= 0, np.searchsorted(found, keys), -1)
        states, actions = np.divmod(found, n_actions)
        return Pairs(states, self.table[states, actions], of_step)

    @cached_property
    def leaves_shown(self) -> Leaving:
        """How often the policy, on the counts of the log, takes a pair that the log never shows."""
        return self._leaving(self.pairs.of_step >= 0)

    @cached_property
    def leaves_taught(self) -> Leaving:
        """How often the policy, on the counts of the log, takes a pair of which no row says what came of it."""
        return self._leaving(self.steps.can_teach & (self.pairs.of_step >= 0))

    def _leaving(self, shown: BoolArray) -> Leaving:
        pairs = self.pairs
        is_shown = np.zeros(len(pairs.states), dtype=bool)
        is_shown[pairs.of_step[shown]] = True
        stays = np.bincount(pairs.states[is_shown], pairs.chosen[is_shown], minlength=len(self.starts))
        lost = self.visits(1.0) * np.maximum(1.0 - stays, 0.0)
        return Leaving(float(min(lost.sum(), 1.0)), int(lost.argmax()))

    def visits(self, discount: float) -> FloatArray:
        """(S,) expected discounted visits of the policy to each state, on the counts of the log."""
        return self._visits[0] if discount == 1 else _swept(self.starts, self._chain, discount)[0]

    @cached_property
    def _visits(self) -> tuple[FloatArray, float]:
        return _swept(self.starts, self._chain, 1.0)

    @property
    def goes_on_forever(self) -> float:
        """Share of the policy's episodes that, on the counts of the log, have not ended after a very long time."""
        return self._visits[1]

    @cached_property
    def _chain(self) -> scipy.sparse.csr_array:
        steps, pairs = self.steps, self.pairs
        use = steps.can_teach & (pairs.of_step >= 0)
        n = steps.multiplicity[steps.episode]
        totals = np.bincount(pairs.of_step[use], n[use], minlength=len(pairs.states))
        use &= steps.next_states >= 0
        shares = self.chosen[use] * n[use] / totals[pairs.of_step[use]]
        return _square(steps.states[use], steps.next_states[use], shares, len(self.starts))

    @cached_property
    def visited_sample_size(self) -> float:
        """(Σw)²/Σw² in episodes, with w the policy's discounted visits of a pair over the log's."""
        steps, pairs = self.steps, self.pairs
        n = steps.multiplicity[steps.episode] * self.discounts
        use = pairs.of_step >= 0
        logged = np.bincount(pairs.of_step[use], n[use], minlength=len(pairs.states)) / n.sum()
        wanted = self.visits(self.dataset.discount)[pairs.states] * pairs.chosen
        if not wanted.sum() > 0:
            return 0.0
        wanted = wanted / wanted.sum()
        # Far behind the beginning a discount leaves nothing, neither of what the policy wants nor of what the log has.
        with np.errstate(divide="ignore"):
            shares = np.divide(wanted**2, logged, out=np.zeros(len(wanted)), where=wanted > 0)
        return float(steps.n_episodes / shares.sum())


def _swept(starts: FloatArray, chain: scipy.sparse.csr_array, discount: float) -> tuple[FloatArray, float]:
    """(S,) expected discounted visits, and the mass that is still on its way."""
    visits, mass, onward = np.zeros(len(starts)), starts, chain.T.tocsr() * discount
    for _ in range(MAX_SWEEPS):
        visits = visits + mass
        mass = onward @ mass
        if mass.sum() < 1e-12:
            break
    return visits, float(mass.sum())


def _square(rows: IntArray, columns: IntArray, values: FloatArray, size: int) -> scipy.sparse.csr_array:
    return scipy.sparse.coo_array((values, (rows, columns)), shape=(size, size)).tocsr()


def aligned(policy: TabularPolicy, dataset: Dataset) -> FloatArray:
    """(S, A) the policy's probabilities on the dataset's own states and actions; uniform over the valid at unknown keys."""
    table = dataset.valid_mask / np.maximum(dataset.valid_mask.sum(axis=1, keepdims=True), 1)
    ours, theirs = _common(dataset.states, policy.states)
    columns, of_policy = _common(dataset.actions, policy.actions)
    table[ours] = 0.0
    table[np.ix_(ours, columns)] = policy.probabilities[np.ix_(theirs, of_policy)]
    return table


def _common(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[IntArray, IntArray]:
    """Places of the names that both have."""
    places = pd.Index(theirs).get_indexer(pd.Index(ours))
    both: BoolArray = places >= 0
    return np.flatnonzero(both), places[both]
