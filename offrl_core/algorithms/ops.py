"""Pure maths shared by the learners: no loop over training, no state. Shapes first, literature names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import BoolArray, FloatArray
from ..dataset import Dataset
from ..mdp import TabularMDP


def masked_softmax(q_values: FloatArray, mask: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Softmax of Q over the masked actions and the log of the sum it divides by; 0 and -inf where the mask is empty.

    Args:
        q_values: (A, S); actions first, as sums over them are then several times faster.
        mask: (A, S).

    Returns:
        (A, S) and (S,).

    >>> masked_softmax(np.array([[0.0], [0.0], [9.0]]), np.array([[True], [True], [False]]))[1].round(4)
    array([0.6931])
    """
    masked = np.where(mask, q_values, -np.inf)
    largest = masked.max(axis=0)
    largest[np.isneginf(largest)] = 0.0
    masked -= largest
    weights = np.exp(masked, out=masked)
    totals = weights.sum(axis=0)
    with np.errstate(divide="ignore"):
        logsumexp = np.log(totals) + largest
    weights /= np.maximum(totals, np.finfo(float).tiny)
    return weights, logsumexp


def key_frame(step: int) -> bool:
    """Whether a sweep is kept for the slider: each of the first 20, then ever sparser, at most 60 up to 100,000.

    >>> [step for step in range(30) if key_frame(step)][-4:]
    [18, 19, 20, 25]
    """
    if step <= 20:
        return True
    # Steps 20 * 1.25^k, rounded: a new one whenever the rounded exponent moves on.
    return int(np.log(step / 20) / np.log(1.25)) > int(np.log((step - 1) / 20) / np.log(1.25))


def behavior_or_uniform(behavior_probabilities: FloatArray, valid: BoolArray) -> FloatArray:
    """(S, A) how often the log takes each action; uniform over the valid ones in states without any row."""
    logged = behavior_probabilities.sum(axis=1, keepdims=True) > 0
    return np.where(logged, behavior_probabilities, valid / valid.sum(axis=1, keepdims=True))


def without_holes(mdp: TabularMDP) -> TabularMDP:
    """The same process with reward 0 where a pair may not be chosen, for policies that never choose it: 0 * -inf is NaN."""
    return replace(mdp, rewards=np.where(np.isfinite(mdp.rewards), mdp.rewards, 0.0))


def expectation(probabilities: FloatArray, q_values: FloatArray) -> FloatArray:
    """(S,) mean of finite Q under action probabilities, both (A, S).

    >>> expectation(np.array([[0.5], [0.5]]), np.array([[1.0], [3.0]]))
    array([2.])
    """
    mean: FloatArray = np.einsum("as,as->s", probabilities, q_values)
    return mean


def tempered_probabilities(behavior: FloatArray, log_weights: FloatArray) -> FloatArray:
    """(S, A) behavior times exp(log_weights), normalised; both (S, A), every row of ``behavior`` with a positive entry."""
    exponents = np.where(behavior > 0, log_weights, -np.inf)
    weights = behavior * np.exp(exponents - exponents.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def reward_span(reward_range: tuple[float, float]) -> float:
    """Distance between the smallest and the largest reward, 0 included: the scale on which penalties are set."""
    low, high = reward_range
    return max(high, 0.0) - min(low, 0.0)


def range_of_returns(dataset: Dataset) -> tuple[float, float]:
    """Smallest and largest discounted return of an episode whose rewards are known.

    Where no episode is known from its first step on, the returns from later steps stand in.

    Raises:
        ValueError: no step has a known return.
    """
    first = dataset.returns_to_go[dataset.first_rows]
    known = first[~np.isnan(first)]
    if not len(known):
        known = dataset.returns_to_go[~np.isnan(dataset.returns_to_go)]
    return float(known.min()), float(known.max())


def beyond_reach(v_values: FloatArray, reward_range: tuple[float, float], discount: float) -> float:
    """How far values lie outside what discounted rewards can add up to; 0 where all lie inside.

    With rewards between r_min and r_max, no value can be above r_max / (1 - discount), or above r_max itself where that is
    negative (an episode may end at once); below, alike. At discount 1 a positive sum has no bound.

    Args:
        v_values: (S,) state values, reward units.
        reward_range: r_min and r_max.
        discount: γ.

    >>> beyond_reach(np.array([0.0, 3.0]), (-1.0, 1.0), 0.5)
    1.0
    """
    horizon = 1 / (1 - discount) if discount < 1 else np.inf
    low, high = (
        reward * (horizon if reward * sign > 0 else 1.0) for reward, sign in zip(reward_range, (-1, 1), strict=True)
    )
    slack = 1e-9 * max(1.0, float(np.abs(v_values).max(initial=0.0)))  # rounding is no excess
    excess = max(float(v_values.max(initial=low)) - high, low - float(v_values.min(initial=high)))
    return excess if excess > slack else 0.0


def competing_pairs(maximum: str, valid: BoolArray, seen: BoolArray) -> BoolArray:
    """(S, A) pairs that a maximum runs over: ``valid``, ``supported`` (seen at all) or ``all``."""
    return {"valid": valid, "supported": seen, "all": np.ones_like(valid)}[maximum]
