"""Fitted Q iteration that stays inside the log: maximum and choice run only over pairs seen often enough.

Source: Fujimoto, Meger & Precup (2019), "Off-policy deep reinforcement learning without exploration", ICML, equation (10)
(batch-constrained Q-learning), which in a table converges to the best policy inside the batch.

Differs: 1. the constraint is n(s, a) >= ``min_count`` instead of membership in the batch (min_count = 1 is the paper's).
2. Sweeps over expected backups replace sampled updates. 3. A state without any supported pair, which the paper excludes
(coherent batch), falls back to its valid actions with ``default_value``, and its policy is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import settled_change, value_iteration
from ..params import param
from ..policies import TabularPolicy, greedy_probabilities
from .fields import default_value_param, max_sweeps_param
from .ops import key_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class FqiSupportConfig:
    """Parameters of support-constrained fitted Q iteration."""

    min_count: int = param(
        1,
        label="Seen at least",
        help="A pair counts as supported from so many rows on; others can neither raise a value nor be picked.",
        symbol="n(s, a) ≥",
        low=1,
        high=1_000_000,
        step=1,
        unit="rows",
        source="Fujimoto, Meger & Precup 2019, equation (10)",
    )
    default_value: float = default_value_param(
        "Value where nothing is supported", "Used only in states without any supported pair."
    )
    max_sweeps: int = max_sweeps_param()


def train(dataset: Dataset, config: FqiSupportConfig, *, seed: int) -> Training:
    """Sweep over the aggregated counts, inside the support only."""
    del seed  # sweeps draw nothing
    require_rewards(dataset)
    supported = dataset.support_mask(config.min_count)
    mdp = dataset.empirical_mdp(supported, config.default_value)
    choosable = np.isfinite(mdp.rewards.T)  # supported, or valid where nothing is supported
    q_values, change = mdp.rewards, np.inf
    sweeps = value_iteration(mdp, dataset.discount, start=np.zeros(mdp.n_states), max_sweeps=config.max_sweeps)
    for sweep, (q_values, change) in enumerate(sweeps, start=1):
        frame = np.where(choosable, q_values.T, np.nan) if key_frame(sweep) else None
        yield Progress(step=sweep, total=config.max_sweeps, metrics={"largest_change": change}, q_values=frame)
    converged = change <= settled_change(q_values[np.isfinite(q_values)])
    policy = TabularPolicy(
        states=dataset.states,
        actions=dataset.actions,
        probabilities=greedy_probabilities(q_values.T, supported, dataset.valid_mask),
    )
    return TrainedModel(policy=policy, q_values=np.where(choosable, q_values.T, np.nan), converged=converged)


SPEC = AlgorithmSpec(
    name="fqi_support",
    title="Best value inside the log (support-constrained FQI)",
    short="FQI inside the log",
    summary="Fitted Q iteration whose maximum and choice run only over pairs the log shows often enough.",
    config_class=FqiSupportConfig,
    train=train,
    metrics={"largest_change": "largest change of a state value in the sweep, reward units"},
    unit="sweep",
    equation=r"Q(s,a) \leftarrow \bar r(s,a) + \gamma \sum_{s'} \hat P(s' \mid s,a) \max_{a':\,n(s',a') \ge n_{min}} Q(s',a')",
    source="Fujimoto, Meger & Precup 2019, equation (10)",
    differs=(
        "supported means seen at least min_count times (the paper: seen at all)",
        "expected backups over counts instead of sampled updates",
        "states without any supported pair fall back to their valid actions",
    ),
)
