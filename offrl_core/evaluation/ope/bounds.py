"""An interval that holds for any number of episodes: the empirical Bernstein bound, where its conditions are met.

Source: Maurer & Pontil (2009), "Empirical Bernstein bounds and sample variance penalization", COLT, theorem 4. For E
independent terms in an interval of length R with sample variance v, each side is off with a chance of δ/2 at most by

    sqrt(2 v log(4/δ) / E) + 7 R log(4/δ) / (3 (E - 1)).

It takes independent, bounded terms: those of plain and of per-decision importance sampling, with behavior probabilities that
are known. R must not be read off the terms that happened: it is worked out over every path that the log's transitions
allow, with the largest ratio and the extreme rewards of each. What no step of the log shows is outside this.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray, IntArray
from .case import Case

DELTA = 0.05


def safe_interval(case: Case, kind: str, value: float) -> tuple[float | None, float | None, str]:
    """Low and high end and what they take for granted; or None, None and why there is none.

    Args:
        case: the policy and the log.
        kind: "is" or "pdis", whose terms are bounded and independent; "" for other estimators.
        value: the mean of the terms.
    """
    if not kind:
        return None, None, "Only plain and per-decision importance sampling are means of bounded independent terms."
    if case.estimated:
        return None, None, "It would need behavior probabilities that are known, not estimated."
    n = case.n_included
    if n < case.steps.n_episodes:
        return None, None, "It would need every episode, and some were left out."
    smallest, largest = _range_of_episodes(case) if kind == "is" else _range_of_steps(case)
    span = largest - smallest
    if not np.isfinite(span):
        return None, None, "The weights of a long episode have no bound worth naming."
    terms = case.episode_weights * case.returns if kind == "is" else _per_decision_terms(case)
    m = case.steps.multiplicity
    variance = float((m * (terms - value) ** 2).sum()) / (n - 1)
    log = np.log(4 / DELTA)
    off = float((2 * variance * log / n) ** 0.5 + 7 * span * log / (3 * (n - 1)))
    note = f"Takes for granted that weighed returns lie between {smallest:.3g} and {largest:.3g}, as all paths in the log do."
    return value - off, value + off, note


def _per_decision_terms(case: Case) -> FloatArray:
    steps = case.steps
    return np.bincount(steps.episode, case.discounts * case.weights * steps.rewards, minlength=steps.n_groups).astype(
        np.float64
    )


def _range_of_steps(case: Case) -> tuple[float, float]:
    """Smallest and largest of Σ γ^t ρ_{0:t} r_t over the paths in the log; a ratio may also be 0, and the sum with it."""
    steps = case.steps
    low = _extreme(case, -steps.rewards * case.ratios, case.ratios)
    high = _extreme(case, steps.rewards * case.ratios, case.ratios)
    return -low, high


def _range_of_episodes(case: Case) -> tuple[float, float]:
    """The largest product of ratios times the extreme returns, each over the paths in the log."""
    rewards, ones = case.steps.rewards, np.ones(len(case.ratios))
    heaviest = _extreme(case, np.zeros(len(ones)), case.ratios, at_end=1.0)
    return -heaviest * _extreme(case, -rewards, ones), heaviest * _extreme(case, rewards, ones)


def _extreme(case: Case, gains: FloatArray, factors: FloatArray, at_end: float = 0.0) -> float:
    """Largest gain + factor * (what follows) over paths of at most T steps, at least 0.

    Args:
        case: with its steps.
        gains: (N,) added by a step.
        factors: (N,) of at least 0, multiply what follows; discounted if ``at_end`` is 0.
        at_end: what an ended episode is worth.
    """
    steps, n_states = case.steps, case.dataset.n_states
    factors = factors * (case.dataset.discount if at_end == 0 else 1.0)
    goes_on = steps.next_states >= 0
    best = np.full(n_states, at_end)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps.n_steps):
            after = np.where(goes_on, best[steps.next_states], at_end)
            paths = np.maximum(np.nan_to_num(gains + factors * after, nan=np.inf), 0.0)
            best = np.maximum(best, _largest(steps.states, paths, n_states))
    return float(best[steps.states[steps.first]].max())


def _largest(keys: IntArray, values: FloatArray, n_keys: int) -> FloatArray:
    largest = np.zeros(n_keys)
    np.maximum.at(largest, keys, values)
    return largest
