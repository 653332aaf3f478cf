"""A blend of model and weights: importance weights for the first steps, the fitted model from there on, mixed by their errors.

Source: Thomas & Brunskill (2016), "Data-efficient off-policy policy evaluation for reinforcement learning", ICML (MAGIC).
Close to it, not the same: see ``differs``.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from .case import Case
from .doubly_robust import weighted_parts
from .nouns import EstimatorSpec
from .preconditions import BLEND, MIN_EFFECTIVE_SAMPLE_SIZE
from .resamples import Resamples

MAX_LENGTHS = 12  # different numbers of weighed steps that are blended


def lengths(n_steps: int) -> list[int]:
    """How many steps are weighed before the model takes over: none, all, and some between.

    >>> lengths(3), lengths(100)[:4]
    ([0, 1, 2, 3], [0, 9, 18, 27])
    """
    return sorted({round(x) for x in np.linspace(0, n_steps, min(n_steps + 1, MAX_LENGTHS)).tolist()})


def partial_returns(logs: Resamples) -> FloatArray:
    """(J, B) estimates that weigh so many steps: the first is the model alone, the last goes as far as weights are trusted."""
    seen, expected = weighted_parts(logs)
    # After j steps: rewards minus values of the steps before j, values of the states reached up to and with step j.
    nothing = np.zeros((1, logs.n_columns))
    seen = np.vstack([nothing, np.cumsum(seen, axis=0)])
    expected = np.vstack([np.cumsum(expected, axis=0), expected.sum(axis=0)])
    chosen = lengths(trusted_steps(logs.sums.case))
    return seen[chosen] + expected[chosen]


def trusted_steps(case: Case) -> int:
    """How many steps may be weighed: as long as the weights are worth enough episodes."""
    enough = np.minimum(case.step_sample_sizes, case.expected_step_sizes) >= MIN_EFFECTIVE_SAMPLE_SIZE
    return int(np.argmin(np.append(enough, False)))


def blend(estimates: FloatArray) -> FloatArray:
    """(1 + B,) the estimates mixed with the weights that make squared bias plus variance smallest on the bootstrap."""
    return blend_weights(estimates) @ estimates


def blend_weights(estimates: FloatArray) -> FloatArray:
    """(J,) weights of at least 0 that add up to 1.

    They minimise x' (Ω + b b') x: Ω is the covariance of the estimates over the bootstrap, b how far each lies outside the
    middle half of the last one.
    """
    values, resampled = estimates[:, 0], estimates[:, 1:]
    alone = np.zeros(len(values))
    alone[-1] = 1.0
    if resampled.shape[1] < 2:
        return alone
    scale = float(np.abs(estimates - values[-1]).max())
    if not scale > 0:
        return alone
    from scipy.optimize import nnls  # takes a tenth of a second to import

    deviations = (resampled - resampled.mean(axis=1, keepdims=True)) / scale / (resampled.shape[1] - 1) ** 0.5
    low, high = np.quantile(resampled[-1], [0.25, 0.75])
    bias = (np.maximum(low - values, 0.0) + np.maximum(values - high, 0.0)) / scale
    # Without the constraint "adds up to 1" but with (1 - sum)^2 as a further loss, the solution has the same direction.
    matrix = np.vstack([deviations.T, bias, np.ones(len(values))])
    weights, _ = nnls(matrix, np.append(np.zeros(len(matrix) - 1), 1.0))
    return weights / weights.sum()


MAGIC = EstimatorSpec(
    title="Blend of model and weights (after MAGIC)",
    short="Model and weights",
    summary="Weighs the first steps, trusts the fitted model for the rest, and mixes by the errors of both (MAGIC: model and "
    "guided importance sampling combining).",
    equation=(
        r"\hat V = \sum_j x_j\, g^{(j)},\quad x = \arg\min_{x \ge 0,\, \sum x = 1} x^\top (\hat\Omega + \hat b \hat b^\top)\, x,"
        r"\quad g^{(j)} = \sum_{t<j} \gamma^t \sum_i \left[ w_{i,t} (r_{i,t} - \hat Q(s_{i,t},a_{i,t})) "
        r"+ w_{i,t-1} \hat V(s_{i,t}) \right] + \gamma^j \sum_i w_{i,j-1} \hat V(s_{i,j})"
    ),
    source="Thomas & Brunskill 2016 (MAGIC)",
    differs=(
        "the covariance Ω comes from the bootstrap, the model fitted again each time, not from a formula per episode",
        "the bias b is the distance to the middle half of the bootstrap of weighted doubly robust",
        f"steps are weighed only as long as the weights are worth {MIN_EFFECTIVE_SAMPLE_SIZE} episodes; the longest such "
        "estimate stands for weighted doubly robust in the bias",
        f"at most {MAX_LENGTHS} lengths j are blended, evenly spread from none to all trusted steps",
        "the interval takes the mixing weights of the whole log as given",
        "the model is fitted on the same episodes",
    ),
    needs=BLEND,
    terms=partial_returns,
    combine=blend,
    blends=True,
)
