"""Discrete batch-constrained Q-learning: the best value among the actions the log takes often enough *there*.

An action competes where the log takes it at least ``threshold`` times as often as the state's most frequent action. At 0
every seen action competes (the support-constrained FQI of this app); at 1 only the most frequent one does (behavior
cloning, ties by value).

Source: Fujimoto, Conti, Ghavamzadeh & Pineau (2019), "Benchmarking batch deep reinforcement learning algorithms",
algorithm 1; the idea is that of Fujimoto, Meger & Precup (2019), ICML.

Differs: 1. the action frequencies of the log replace the network that imitates it, so an action the log never takes in a
state has probability 0 and never competes, at threshold 0 neither. 2. The comparison is "at least" (the paper: "more
than"), so that the most frequent action always competes. 3. Solved to convergence on counts. 4. A state without any row
falls back to its valid actions with ``default_value``, and its policy is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import BoolArray, IntArray
from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import settled_change, value_iteration
from ..params import param
from ..policies import TabularPolicy, greedy_probabilities
from .fields import NOTHING_SEEN, default_value_param, max_sweeps_param
from .ops import beyond_reach, key_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class BcqConfig:
    """Parameters of discrete batch-constrained Q-learning."""

    threshold: float = param(
        0.3,
        label="Taken at least this often",
        help="Relative to the most frequent action of the state; 0 lets every seen action compete, 1 only the most frequent.",
        symbol="τ",
        low=0.0,
        high=1.0,
        step=0.05,
        unit="share",
        source="Fujimoto et al. 2019b, algorithm 1",
    )
    default_value: float = default_value_param(
        NOTHING_SEEN, "Used for pairs that compete but teach no value, and in states without any row."
    )
    max_sweeps: int = max_sweeps_param()


def train(dataset: Dataset, config: BcqConfig, *, seed: int) -> Training:
    """Sweep over the aggregated counts, among the actions that are frequent enough."""
    del seed  # sweeps draw nothing
    require_rewards(dataset)
    competing = frequent_actions(dataset.visitation_counts, config.threshold)
    mdp = dataset.empirical_mdp(competing, config.default_value)
    choosable = np.isfinite(mdp.rewards.T)  # competing, or valid where nothing was seen
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


def frequent_actions(counts: IntArray, threshold: float) -> BoolArray:
    """(S, A) seen pairs whose count is at least ``threshold`` times the largest of their state; ``counts`` is (S, A)."""
    return (counts > 0) & (counts >= threshold * counts.max(axis=1, keepdims=True))


SPEC = AlgorithmSpec(
    name="bcq",
    title="Best value among frequent actions only (discrete BCQ)",
    short="Frequent only (BCQ)",
    summary="Fitted Q iteration among the actions that the log takes nearly as often as its favourite in the same state.",
    config_class=BcqConfig,
    train=train,
    metrics={
        "largest_change": "largest change of a state value in the sweep, reward units",
        "beyond_reach": "how far state values lie outside what discounted rewards can add up to, reward units",
    },
    unit="sweep",
    equation=r"Q(s,a) \leftarrow \bar r + \gamma \sum_{s'} \hat P(s' \mid s,a) "
    r"\max_{a':\,\pi_b(a' \mid s') \ge \tau \max_b \pi_b(b \mid s')} Q(s',a')",
    source="Fujimoto et al. 2019b, algorithm 1",
    differs=(
        "frequencies of the log instead of a network that imitates it; what was never seen never competes",
        "at least the threshold, not more than it, so that the most frequent action always competes",
        "solved to convergence on counts",
        "states without any row fall back to their valid actions",
    ),
)
