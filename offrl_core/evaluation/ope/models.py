"""Estimates by way of a process fitted to the log: fitted Q evaluation, and state visits reweighed step by step.

Source: Le, Voloshin & Yue (2019), "Batch policy learning under constraints", ICML, algorithm 3 (FQE); in a table it is
policy evaluation of the empirical process. Xie, Ma & Wang (2019), "Towards optimal off-policy evaluation for reinforcement
learning with marginalized importance sampling", NeurIPS.

With behavior probabilities estimated from the counts the two are the same number: reweighing an action by π_e over its own
frequency leaves exactly what the counts say about it. So are the state-action density ratios of Uehara, Huang & Jiang (2020),
solved exactly on counts: their minimax problem in a table has the visits of the empirical process as its solution.
"""

from __future__ import annotations

from ...arrays import FloatArray
from .nouns import EstimatorSpec
from .preconditions import FITTED_MODEL, WEIGHED_STEPS
from .resamples import Resamples


def fitted_q_evaluation(logs: Resamples) -> FloatArray:
    """(1, B) mean value of the states where episodes begin."""
    return (logs.starts * logs.fitted[1]).sum(axis=0)[None]


def marginalized(logs: Resamples) -> FloatArray:
    """(1, B) mean value of the states where episodes begin, in the process of the states alone."""
    return (logs.starts * logs.marginal_values).sum(axis=0)[None]


FQE = EstimatorSpec(
    title="Fitted Q evaluation (direct method)",
    short="Fitted Q evaluation",
    summary="Solves the process that the counts describe. Little spread; right only if the state says all that matters.",
    equation=(
        r"\hat V = \sum_s \hat\mu_0(s) \sum_a \pi_e(a \mid s)\, \hat Q(s,a),\quad "
        r"\hat Q(s,a) = \bar r(s,a) + \gamma \sum_{s'} \hat P(s' \mid s,a) \sum_{a'} \pi_e(a' \mid s')\, \hat Q(s',a')"
    ),
    source="Le, Voloshin & Yue 2019, algorithm 3",
    differs=(
        "a table, so the fit is exact and its fixed point is solved",
        "a pair that no row teaches has value 0 (refused where that concerns 5 % of the episodes)",
        "the step at which an episode was cut teaches nothing, so the value goes on past the cut",
        "in a resampled log, a pair that it doesn't show keeps the value of the whole log",
    ),
    needs=FITTED_MODEL,
    terms=fitted_q_evaluation,
    weighs_steps=False,
    weighs_episodes=False,
)

MIS = EstimatorSpec(
    title="Marginalized importance sampling",
    short="Marginalized",
    summary="Reweighs single steps, and lets the state visits follow: the horizon no longer multiplies the weights.",
    equation=(
        r"\hat V = \sum_s \hat d(s)\, \hat r(s),\quad "
        r"\hat d(s') = \hat\mu_0(s') + \gamma \sum_s \hat d(s)\, \hat P(s' \mid s),\quad "
        r"\hat P(s' \mid s) = \frac{\sum_{i,t} 1[s_{i,t}=s,\, s_{i,t+1}=s']\, \rho_{i,t}}"
        r"{\sum_{i,t} 1[s_{i,t}=s]\, \rho_{i,t}}"
    ),
    source="Xie, Ma & Wang 2019",
    differs=(
        "visits are pooled over time: one ratio per state, not one per state and step",
        "the ratios are normalised within each state, so that shares add up to 1 and the sum always settles",
        "the sum over visits is solved exactly, as values from the end to the start",
        "in a resampled log, a state that it doesn't show keeps the value of the whole log",
    ),
    needs=WEIGHED_STEPS,
    terms=marginalized,
    weighs_episodes=False,
)
