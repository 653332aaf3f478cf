"""Pure maths shared by the learners: no loop over training, no state. Shapes first, literature names."""

from __future__ import annotations

import numpy as np

from ..arrays import BoolArray, FloatArray


def masked_logsumexp(q_values: FloatArray, mask: BoolArray) -> FloatArray:
    """(S,) log of the sum of exp(Q) over the masked actions; -inf where the mask is empty.

    >>> masked_logsumexp(np.array([[0.0, 0.0, 9.0]]), np.array([[True, True, False]])).round(4)
    array([0.6931])
    """
    masked = np.where(mask, q_values, -np.inf)
    largest = masked.max(axis=1)
    safe = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return safe + np.log(np.exp(masked - safe[:, None]).sum(axis=1))


def masked_softmax(q_values: FloatArray, mask: BoolArray) -> FloatArray:
    """(S, A) softmax over the masked actions, 0 elsewhere; a row without any masked action is all 0."""
    masked = np.where(mask, q_values, -np.inf)
    largest = masked.max(axis=1, keepdims=True)
    weights = np.exp(masked - np.where(np.isfinite(largest), largest, 0.0))
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)


def key_frame(step: int) -> bool:
    """Whether a sweep is kept for the slider: each of the first 20, then ever sparser, at most 60 up to 100,000.

    >>> [step for step in range(30) if key_frame(step)][-4:]
    [18, 19, 20, 25]
    """
    if step <= 20:
        return True
    # Steps 20 * 1.25^k, rounded: a new one whenever the rounded exponent moves on.
    return int(np.log(step / 20) / np.log(1.25)) > int(np.log((step - 1) / 20) / np.log(1.25))
