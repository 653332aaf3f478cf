"""A dataset as batches for K seeds: all distinct transitions with their weights, or rows that each seed draws itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...arrays import BoolArray, FloatArray
from ...dataset import Dataset
from ...edges import CUT
from ..neural_config import NeuralConfig
from ..ops import competing_pairs

FEW_TRANSITIONS = 1024  # up to here a log is one batch by default


class Batch(NamedTuple):
    """Transitions for K seeds, and the distinct states on which networks have to be evaluated for them.

    B transitions point into R states and R' following states.
    """

    states: Tensor  # (K, R)
    inputs: Tensor  # (K, R, D)
    here: Tensor  # (K, B) which of the R states
    pairs: Tensor  # (K, B) place in a flattened (R, A) table
    next_states: Tensor  # (K, R')
    next_inputs: Tensor  # (K, R', D)
    there: Tensor  # (K, B) which of the R' following states; any where the discount is 0
    rewards: Tensor  # (K, B) 0 where unknown
    discounts: Tensor  # (K, B) γ, and 0 behind an ending
    weights: Tensor  # (K, B) sums to 1
    value_weights: Tensor  # (K, B) the same, 0 where a transition teaches no value


class _Rows(NamedTuple):
    """Transitions as arrays of equal length: the rows of a log, or its distinct transitions."""

    states: Tensor
    actions: Tensor
    next_states: Tensor
    rewards: Tensor
    discounts: Tensor
    weights: Tensor
    value_weights: Tensor


class Experience:
    """A dataset for K seeds: batches of it, and features of its states.

    With few distinct transitions a batch is all of them with their weights: the exact gradient of all data. Else each
    seed draws rows with its own generator. Where the log has no more states than a batch has rows, networks are evaluated
    once on every state instead of once per row.

    Attributes:
        features: (S, D).
        weighted: whether batches are everything.
    """

    def __init__(self, dataset: Dataset, config: NeuralConfig, n_seeds: int) -> None:
        self.features = torch.from_numpy(dataset.features(config.features).astype(np.float32))
        n_distinct = len(dataset.edges.counts)
        self.weighted = config.batch == "weighted" or (config.batch == "auto" and n_distinct <= FEW_TRANSITIONS)
        self.n_seeds, self.n_actions, self.batch_size = n_seeds, dataset.n_actions, config.batch_size
        self._rows = _distinct_rows(dataset) if self.weighted else _single_rows(dataset, config.batch_size)
        self._n_rows = n_distinct if self.weighted else config.batch_size
        self._whole = self.weighted or dataset.n_states <= config.batch_size
        self._everywhere = torch.arange(dataset.n_states).repeat(n_seeds, 1)
        self._one_by_one = torch.arange(config.batch_size).repeat(n_seeds, 1)
        self._all_features = self.features.repeat(n_seeds, 1, 1) if self._whole else self.features

    @property
    def n_features(self) -> int:
        """D."""
        return self.features.shape[1]

    @property
    def n_evaluated(self) -> int:
        """R, states per batch."""
        return len(self.features) if self._whole else self.batch_size

    def features_of(self, states: Tensor) -> Tensor:
        """(K, R, D) features of states (R,), the same for all seeds."""
        return self.features[states].expand(self.n_seeds, -1, -1)

    def batches(self, generators: Sequence[np.random.Generator], n: int) -> Iterator[Batch]:
        """The next ``n`` batches; what each seed draws for them is drawn at once."""
        if self.weighted:
            return iter([self._batch(*(column.repeat(self.n_seeds, 1) for column in self._rows))] * n)
        n_rows = len(self._rows.states)
        drawn = np.stack([rng.integers(n_rows, size=(n, self.batch_size)) for rng in generators], axis=1)
        columns = (column[torch.from_numpy(drawn)].unbind() for column in self._rows)  # n times (K, B) each
        return map(self._batch, *columns)

    def _batch(
        self,
        states: Tensor,
        actions: Tensor,
        next_states: Tensor,
        rewards: Tensor,
        discounts: Tensor,
        weights: Tensor,
        value_weights: Tensor,
    ) -> Batch:
        evaluated, following, here, there = states, next_states, self._one_by_one, self._one_by_one
        if self._whole:
            evaluated, following, here, there = self._everywhere, self._everywhere, states, next_states
            inputs = next_inputs = self._all_features
        else:
            inputs, next_inputs = rows_of(self.features, states), rows_of(self.features, next_states)
        pairs = here * self.n_actions + actions
        return Batch(
            evaluated, inputs, here, pairs, following, next_inputs, there, rewards, discounts, weights, value_weights
        )


def rows_of(table: Tensor, places: Tensor) -> Tensor:
    """(K, R, n) rows of a table (S, n) at places (K, R)."""
    return torch.nn.functional.embedding(places, table)


def _distinct_rows(dataset: Dataset) -> _Rows:
    edges = dataset.edges
    teaches = (edges.endings != CUT) & (edges.n_known > 0)
    n_rows = edges.counts.sum()
    return _rows(
        dataset,
        edges.states,
        edges.actions,
        edges.next_states,
        np.where(teaches, edges.reward_sums / np.maximum(edges.n_known, 1), 0.0),
        edges.counts / n_rows,
        np.where(teaches, edges.n_known / n_rows, 0.0),
    )


def _single_rows(dataset: Dataset, batch_size: int) -> _Rows:
    rows = dataset.transitions()
    teaches = ~rows.timeouts & ~np.isnan(rows.rewards)
    weights = np.full(len(rows.actions), 1 / batch_size)
    return _rows(
        dataset,
        rows.observations,
        rows.actions,
        rows.next_observations,
        np.where(teaches, rows.rewards, 0.0),
        weights,
        weights * teaches,
    )


def _rows(
    dataset: Dataset,
    states: NDArray[Any],
    actions: NDArray[Any],
    next_states: NDArray[Any],
    rewards: FloatArray,
    weights: FloatArray,
    value_weights: FloatArray,
) -> _Rows:
    goes_on = next_states >= 0

    def index(column: NDArray[Any]) -> Tensor:
        return torch.from_numpy(column.astype(np.int64))

    def number(column: NDArray[Any]) -> Tensor:
        with np.errstate(
            over="ignore"
        ):  # what single precision can't hold becomes infinite, and the first step says so
            return torch.from_numpy(column.astype(np.float32))

    return _Rows(
        states=index(states),
        actions=index(actions),
        next_states=index(np.where(goes_on, next_states, 0)),
        rewards=number(rewards),
        discounts=number(goes_on * dataset.discount),
        weights=number(weights),
        value_weights=number(value_weights),
    )


def log_mask(mask: BoolArray) -> Tensor:
    """(S, A) 0 where the mask is true, minus infinity elsewhere: added to values, it takes actions out of a maximum."""
    return torch.from_numpy(np.where(mask, 0.0, -np.inf).astype(np.float32))


def choosable_pairs(dataset: Dataset, maximum: str) -> BoolArray:
    """(S, A) pairs that a maximum runs over, see ``ops.competing_pairs``; all valid ones of a state that has none."""
    competing = competing_pairs(maximum, dataset.valid_mask, dataset.support_mask())
    return np.where(competing.any(axis=1, keepdims=True), competing, dataset.valid_mask)
