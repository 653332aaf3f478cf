r"""Pessimistic value iteration: believe of every pair only what its number of rows can back up.

The model is that of the counts; from each pair's reward an amount is taken off that shrinks with the root of its rows:

    Q(s,a) = mean reward - penalty_weight * span / sqrt(max(n(s,a), 1)) + discount * mean over what followed of max Q

``span`` is the distance between the smallest and the largest reward of the log, 0 included, so that the weight means the
same on every reward scale. At weight 0 this is fitted Q iteration. A never-seen pair is worth ``default_value`` less the
whole penalty: it still tempts where the default is high enough, as everything that competes by value does.

Source: Rashidinejad, Zhu, Ma, Jiao & Russell (2021), "Bridging offline reinforcement learning and imitation learning",
NeurIPS, algorithm 3 (VI-LCB); Jin, Yang & Wang (2021), "Is pessimism provably efficient for offline RL?", ICML, algorithm
1.

Differs: 1. ``penalty_weight`` * span replaces the largest value times the root of a logarithm, which would drown
everything at the sizes of real logs; so the bound is a dial, not a guarantee. 2. All rows are used in every sweep (the
paper splits them). 3. Values are not cut off at the lowest possible; ``beyond_reach`` says how far they leave it. 4.
Solved to convergence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import settled_change, value_iteration
from ..params import param
from ..policies import TabularPolicy, greedy_probabilities
from .fields import NEVER_SEEN, default_value_param, max_sweeps_param, maximum_param
from .ops import beyond_reach, competing_pairs, key_frame, reward_span


@dataclass(frozen=True, slots=True, kw_only=True)
class PessimisticViConfig:
    """Parameters of pessimistic value iteration."""

    penalty_weight: float = param(
        1.0,
        label="Pessimism",
        help="Taken off a pair seen once, in spans of the reward; a pair seen n times loses the n-th root of it less.",
        symbol="c",
        low=0.0,
        high=1000.0,
        step=0.1,
        unit="reward spans",
        source="Rashidinejad et al. 2021, algorithm 3",
    )
    default_value: float = default_value_param(
        NEVER_SEEN, "Before the penalty is taken off. No data speaks for any choice."
    )
    maximum: str = maximum_param("valid", "supported", "all")
    max_sweeps: int = max_sweeps_param()


def train(dataset: Dataset, config: PessimisticViConfig, *, seed: int) -> Training:
    """Take the penalty off the mean rewards, then sweep."""
    del seed  # sweeps draw nothing
    require_rewards(dataset)
    competing = competing_pairs(config.maximum, dataset.valid_mask, dataset.support_mask())
    model = dataset.empirical_mdp(competing, config.default_value)
    scale = config.penalty_weight * reward_span(dataset.reward_range)
    penalty = scale / np.sqrt(np.maximum(dataset.value_counts, 1))
    mdp = replace(model, rewards=model.rewards - penalty.T)
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


SPEC = AlgorithmSpec(
    name="pessimistic_vi",
    title="Believe what the counts back up (pessimistic VI)",
    short="Pessimistic VI",
    summary="Value iteration on the log's model, with less taken off a pair's reward the more rows it has.",
    config_class=PessimisticViConfig,
    train=train,
    metrics={
        "largest_change": "largest change of a state value in the sweep, reward units",
        "beyond_reach": "how far state values lie outside what discounted rewards can add up to, reward units",
    },
    unit="sweep",
    equation=r"Q(s,a) \leftarrow \bar r(s,a) - \frac{c\,\Delta_r}{\sqrt{\max(n(s,a), 1)}} "
    r"+ \gamma \sum_{s'} \hat P(s' \mid s,a) \max_{a'} Q(s',a')",
    source="Rashidinejad et al. 2021, algorithm 3; Jin et al. 2021",
    differs=(
        "a dial times the span of the rewards replaces the constant of the proof, so the bound is no guarantee",
        "all rows in every sweep",
        "values are not cut off at the lowest possible",
        "solved to convergence",
    ),
)
