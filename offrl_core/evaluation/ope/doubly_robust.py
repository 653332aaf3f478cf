"""A fitted model, corrected by importance weights wherever the log shows that it is off.

Source: Jiang & Li (2016), "Doubly robust off-policy value evaluation for reinforcement learning", ICML, equation 10; Thomas &
Brunskill (2016), "Data-efficient off-policy policy evaluation for reinforcement learning", ICML, for weights that
add up to 1.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from .importance import RATIOS
from .nouns import EstimatorSpec
from .preconditions import PLAIN_EPISODES, WEIGHED_EPISODES
from .resamples import Resamples, divided

_TERMS = (
    r"\hat V = \sum_t \gamma^t \sum_i \left[ w_{i,t}\, (r_{i,t} - \hat Q(s_{i,t}, a_{i,t})) + "
    r"w_{i,t-1}\, \hat V(s_{i,t}) \right]"
)
_DIFFERS = (
    "the model is fitted Q evaluation on the same episodes, not on others",
    "at the cut of an episode the model's value stands for what would have followed",
    "in a resampled log the model is fitted again, so the interval knows of its error",
)


def doubly_robust(logs: Resamples) -> FloatArray:
    """(1, B)."""
    corrections = logs.corrected_rewards - logs.taken_values + logs.reached_values
    return divided((logs.powers * corrections).sum(axis=0), logs.n_episodes)[None]


def weighted_doubly_robust(logs: Resamples) -> FloatArray:
    """(1, B)."""
    return weighted_corrections(logs).sum(axis=0)[None]


def weighted_corrections(logs: Resamples) -> FloatArray:
    """(T, B) terms of the weighted form, step by step."""
    seen, expected = weighted_parts(logs)
    return expected + seen


def weighted_parts(logs: Resamples) -> tuple[FloatArray, FloatArray]:
    """(T, B) discounted reward minus the model's value of the step, and the model's value of the states reached."""
    before = np.vstack([logs.n_episodes, logs.step_weights[:-1]])
    seen = divided(logs.corrected_rewards - logs.taken_values, logs.step_weights)
    return logs.powers * seen, logs.powers * divided(logs.reached_values, before)


DR = EstimatorSpec(
    title="Doubly robust",
    short="Doubly robust",
    summary="Fitted Q evaluation, its errors corrected by importance weights: right if either of the two is.",
    equation=rf"{_TERMS},\quad w_{{i,t}} = \frac1E \rho_{{i,0:t}},\quad {RATIOS}",
    source="Jiang & Li 2016, equation 10",
    differs=_DIFFERS,
    needs=PLAIN_EPISODES,
    terms=doubly_robust,
)

WDR = EstimatorSpec(
    title="Weighted doubly robust",
    short="Weighted doubly robust",
    summary="Doubly robust, with weights that add up to 1 at each step: a little bias, less spread.",
    equation=rf"{_TERMS},\quad w_{{i,t}} = \frac{{\rho_{{i,0:t}}}}{{\sum_j \rho_{{j,0:t}}}},\quad {RATIOS}",
    source="Thomas & Brunskill 2016 (WDR)",
    differs=_DIFFERS,
    needs=WEIGHED_EPISODES,
    terms=weighted_doubly_robust,
)
