r"""Plan in the log's model, and pay for every step where the model may be wrong (MOPO, in a table).

    Q(s,a) = mean reward - penalty_weight * span * u(s,a) + discount * mean over what followed of max Q

u(s,a) estimates how wrong the model is about what follows the pair, as a distance of distributions between 0 and 1: half
the sum of the standard deviations of the probabilities of all successors (ending is one) under a Dirichlet belief after n
rows, with one pseudo-row for "something the log never showed". Never-seen pairs have u = 1. So, other than in
``pessimistic_vi``, random dynamics cost more than predictable ones at the same number of rows: one over the root of n
against one over n.

Source: Yu, Thomas, Yu, Ermon, Zou, Levine, Finn & Ma (2020), "MOPO: model-based offline policy optimization", NeurIPS,
section 4 and algorithm 1.

Differs: 1. counts and their belief replace an ensemble of networks: where all members of an ensemble may agree on a
guess, a never-seen pair here always has the largest penalty. 2. A table extrapolates nothing, so a never-seen pair ends
the episode with ``default_value`` (less its penalty). 3. The error of the mean reward is not penalised, only that of what
follows. 4. The model is solved to convergence, where the paper trains a policy on short rollouts. 5. The weight is in
spans of the reward (0 included), so that it means the same on every scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..arrays import FloatArray, IntArray
from ..dataset import Dataset
from ..edges import CUT, Edges
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import settled_change, value_iteration
from ..params import param
from ..policies import TabularPolicy, greedy_probabilities
from .fields import NEVER_SEEN, default_value_param, max_sweeps_param, maximum_param
from .ops import beyond_reach, competing_pairs, key_frame, reward_span


@dataclass(frozen=True, slots=True, kw_only=True)
class MopoConfig:
    """Parameters of tabular MOPO."""

    penalty_weight: float = param(
        1.0,
        label="Price of uncertainty",
        help="Taken off the reward of a never-seen pair, in spans of the reward; others pay their share of it.",
        symbol="λ",
        low=0.0,
        high=1000.0,
        step=0.1,
        unit="reward spans",
        source="Yu et al. 2020, algorithm 1",
    )
    default_value: float = default_value_param(
        NEVER_SEEN,
        "What the model makes of a pair it has no row for, before the penalty. No data speaks for any choice.",
    )
    maximum: str = maximum_param("valid", "supported", "all")
    max_sweeps: int = max_sweeps_param()


def train(dataset: Dataset, config: MopoConfig, *, seed: int) -> Training:
    """Penalise the model's rewards, then sweep."""
    del seed  # sweeps draw nothing
    require_rewards(dataset)
    competing = competing_pairs(config.maximum, dataset.valid_mask, dataset.support_mask())
    model = dataset.empirical_mdp(competing, config.default_value)
    scale = config.penalty_weight * reward_span(dataset.reward_range)
    uncertainty = model_error(dataset.edges, dataset.value_counts)
    mdp = replace(model, rewards=model.rewards - scale * uncertainty.T)
    choosable = np.isfinite(mdp.rewards.T)
    q_values, change = mdp.rewards, np.inf
    sweeps = value_iteration(mdp, dataset.discount, start=np.zeros(mdp.n_states), max_sweeps=config.max_sweeps)
    for sweep, (q_values, change) in enumerate(sweeps, start=1):
        frame = np.where(choosable, q_values.T, np.nan) if key_frame(sweep) else None
        beyond = beyond_reach(q_values.max(axis=0), dataset.reward_range, dataset.discount)
        metrics = {"largest_change": change, "beyond_reach": beyond}
        yield Progress(step=sweep, total=config.max_sweeps, metrics=metrics, q_values=frame)
    converged = change <= settled_change(q_values[np.isfinite(q_values)])
    policy = TabularPolicy(
        states=dataset.states,
        actions=dataset.actions,
        probabilities=greedy_probabilities(q_values.T, competing, dataset.valid_mask),
    )
    return TrainedModel(policy=policy, q_values=np.where(choosable, q_values.T, np.nan), converged=converged)


def model_error(edges: Edges, value_counts: IntArray) -> FloatArray:
    """(S, A) expected error of what the counts say follows a pair: below 1/2 where some row teaches it, else 1.

    It bounds the expected total variation distance between the truth, as believed after n rows with one pseudo-row for an
    unknown successor, and the mean of that belief.

    Args:
        edges: distinct transitions with their counts.
        value_counts: (S, A) rows that teach a value, n.
    """
    usable = (edges.endings != CUT) & (edges.n_known > 0)
    pairs = edges.states[usable] * value_counts.shape[1] + edges.actions[usable]
    n = value_counts.ravel()

    def deviation(share: FloatArray, rows: IntArray) -> FloatArray:
        return np.sqrt(share * (1 - share) / (rows + 2))

    shown = deviation(edges.n_known[usable] / (n[pairs] + 1), n[pairs])
    deviations = np.bincount(pairs, shown, minlength=len(n)) + deviation(1 / (n + 1), n)
    return np.where(n > 0, deviations / 2, 1.0).reshape(value_counts.shape)


SPEC = AlgorithmSpec(
    name="mopo",
    title="Pay a penalty where the model may be wrong (MOPO, tabular)",
    short="Penalty (MOPO)",
    summary="Plans in the log's model; each step costs in proportion to how uncertain is what follows it.",
    config_class=MopoConfig,
    train=train,
    metrics={
        "largest_change": "largest change of a state value in the sweep, reward units",
        "beyond_reach": "how far state values lie outside what discounted rewards can add up to, reward units",
    },
    unit="sweep",
    equation=r"\tilde r(s,a) = \bar r(s,a) - \lambda\, \Delta_r\, u(s,a),\quad "
    r"u = \tfrac12 \sum_{s'} \sqrt{\tfrac{p(s')(1 - p(s'))}{n(s,a) + 2}}",
    source="Yu et al. 2020, section 4 and algorithm 1",
    differs=(
        "counts and their belief replace an ensemble of networks",
        "a never-seen pair ends the episode with the default value, less the largest penalty",
        "only the error of what follows is penalised, not that of the mean reward",
        "the model is solved to convergence",
        "the weight is in spans of the reward",
    ),
)
