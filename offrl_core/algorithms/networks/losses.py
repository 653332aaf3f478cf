"""Two losses, enough for all learners: each gives its value, and its derivative by the table that it judges.

:meth:`.layers.Network.gradient` takes that derivative back through the layers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Loss(NamedTuple):
    """A loss of each seed, and its derivative by the table that it judges."""

    value: Tensor  # (K,)
    outward: Tensor  # (K, R, A)


def squared_error(table: Tensor, pairs: Tensor, targets: Tensor, weights: Tensor) -> Loss:
    """Half the weighted sum of squared differences between entries of a table (K, R, A) and their targets.

    ``pairs`` (K, B) are the places of the entries in the flattened table; ``targets`` and ``weights`` are (K, B).
    """
    errors = table.flatten(1).gather(1, pairs) - targets
    pull = weights * errors
    outward = torch.zeros(table.shape)
    outward.view(len(table), -1).scatter_add_(1, pairs, pull)
    return Loss((pull * errors).sum(1) / 2, outward)


def cross_entropy(logits: Tensor, here: Tensor, pairs: Tensor, weights: Tensor) -> Loss:
    """Weighted sum of minus the log probability of chosen actions, where ``logits`` (K, R, A) may hold minus infinity.

    ``here`` (K, B) are the rows, ``pairs`` (K, B) the places in the flattened table, of the choices; ``weights`` is (K, B).
    """
    log_probabilities = logits.log_softmax(2)
    shares = torch.zeros(logits.shape[:2]).scatter_add_(1, here, weights)
    outward = log_probabilities.exp() * shares.unsqueeze(2)
    outward.view(len(logits), -1).scatter_add_(1, pairs, -weights)
    return Loss(-(weights * log_probabilities.flatten(1).gather(1, pairs)).sum(1), outward)
