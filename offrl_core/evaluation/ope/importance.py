"""Importance sampling: logged episodes, weighed by how much likelier the evaluation policy is to do what they do.

Source: Precup, Sutton & Singh (2000), "Eligibility traces for off-policy policy evaluation", ICML; Thomas (2015), "Safe
reinforcement learning", PhD thesis, for weights normalised step by step (consistent weighted per-decision importance sampling).
"""

from __future__ import annotations

from ...arrays import FloatArray
from .nouns import EstimatorSpec
from .preconditions import PLAIN_EPISODES, WEIGHED_EPISODES
from .resamples import Resamples, divided

RATIOS = r"\rho_{i,0:t} = \prod_{k \le t} \frac{\pi_e(a_{i,k} \mid s_{i,k})}{\pi_b(a_{i,k} \mid s_{i,k})}"
WHOLE = r"w_i = \prod_t \frac{\pi_e(a_{i,t} \mid s_{i,t})}{\pi_b(a_{i,t} \mid s_{i,t})}"

_CUT = "a cut episode counts with the return up to the cut"
_KEPT = "an episode that is over keeps its weight, as if it stayed in a last state without reward"


def ordinary(logs: Resamples) -> FloatArray:
    """(1, B)."""
    return divided(logs.weighted_returns, logs.n_episodes)[None]


def weighted(logs: Resamples) -> FloatArray:
    """(1, B)."""
    return divided(logs.weighted_returns, logs.weight_sums)[None]


def per_decision(logs: Resamples) -> FloatArray:
    """(1, B)."""
    return divided((logs.powers * logs.step_rewards).sum(axis=0), logs.n_episodes)[None]


def weighted_per_decision(logs: Resamples) -> FloatArray:
    """(1, B)."""
    return (logs.powers * divided(logs.step_rewards, logs.step_weights)).sum(axis=0)[None]


IS = EstimatorSpec(
    title="Importance sampling",
    short="Importance sampling",
    summary="Weighs the return of each whole episode; no bias, and often a huge spread.",
    equation=rf"\hat V = \frac1E \sum_i w_i G_i,\quad {WHOLE}",
    source="Precup, Sutton & Singh 2000",
    differs=(_CUT,),
    needs=PLAIN_EPISODES,
    terms=ordinary,
    safe="is",
)

WIS = EstimatorSpec(
    title="Weighted importance sampling",
    short="Weighted importance",
    summary="Weighs whole episodes, the weights made to add up to 1: a little bias, far less spread.",
    equation=rf"\hat V = \frac{{\sum_i w_i G_i}}{{\sum_i w_i}},\quad {WHOLE}",
    source="Precup, Sutton & Singh 2000",
    differs=(_CUT,),
    needs=WEIGHED_EPISODES,
    terms=weighted,
)

PDIS = EstimatorSpec(
    title="Per-decision importance sampling",
    short="Per decision",
    summary="Weighs each reward by the decisions before it only: no bias, less spread than whole episodes.",
    equation=rf"\hat V = \frac1E \sum_i \sum_t \gamma^t \rho_{{i,0:t}}\, r_{{i,t}},\quad {RATIOS}",
    source="Precup, Sutton & Singh 2000",
    differs=(_CUT,),
    needs=PLAIN_EPISODES,
    terms=per_decision,
    safe="pdis",
)

WPDIS = EstimatorSpec(
    title="Weighted per-decision importance sampling",
    short="Weighted per decision",
    summary="Weighs each reward by the decisions before it, the weights of each step made to add up to 1.",
    equation=(
        r"\hat V = \sum_t \gamma^t \frac{\sum_i \rho_{i,0:t}\, r_{i,t}}{\sum_i \rho_{i,0:t}},\quad "
        rf"{RATIOS}"
    ),
    source="Thomas 2015 (consistent weighted per-decision importance sampling)",
    differs=(_CUT, _KEPT),
    needs=WEIGHED_EPISODES,
    terms=weighted_per_decision,
)
