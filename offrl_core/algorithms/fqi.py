"""Fitted Q iteration on counts, without any guard: the learner that believes its own guesses.

Each sweep sets Q(s, a) to the mean reward of the pair plus the discounted best value of what followed, with the maximum
over *all* valid actions, seen or not. A pair the log never shows keeps ``default_value``: a guess, and the whole story
of this product hangs on it.

Source: Ernst, Geurts & Wehenkel (2005), "Tree-based batch mode reinforcement learning", JMLR 6, algorithm in figure 1;
in a table it is value iteration on the empirical process.

Differs: 1. the regressor is a table, so a sweep is exact. 2. Never-seen pairs have the constant ``default_value``, where a
function approximator would extrapolate. 3. Sweeps run until the values stand still.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import settled_change, value_iteration
from ..policies import TabularPolicy, greedy_probabilities
from .fields import NEVER_SEEN, default_value_param, max_sweeps_param, maximum_param
from .ops import key_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class FqiConfig:
    """Parameters of fitted Q iteration."""

    default_value: float = default_value_param(
        NEVER_SEEN,
        "What Q(s, a) is taken to be where the log never shows action a in state s. No data speaks for any choice.",
        source="Fujimoto, Meger & Precup 2019, on extrapolation error",
    )
    maximum: str = maximum_param("valid", "all")
    max_sweeps: int = max_sweeps_param()


def train(dataset: Dataset, config: FqiConfig, *, seed: int) -> Training:
    """Sweep over the aggregated counts until the values stand still."""
    del seed  # sweeps draw nothing
    require_rewards(dataset)
    allowed = dataset.valid_mask if config.maximum == "valid" else np.ones_like(dataset.valid_mask)
    mdp = dataset.empirical_mdp(allowed, config.default_value)
    q_values, change, choosable = mdp.rewards, np.inf, np.ascontiguousarray(allowed.T)
    sweeps = value_iteration(mdp, dataset.discount, start=np.zeros(mdp.n_states), max_sweeps=config.max_sweeps)
    for sweep, (q_values, change) in enumerate(sweeps, start=1):
        frame = np.where(choosable, q_values, np.nan).T if key_frame(sweep) else None
        yield Progress(step=sweep, total=config.max_sweeps, metrics={"largest_change": change}, q_values=frame)
    converged = change <= settled_change(q_values.max(axis=0))
    policy = TabularPolicy(
        states=dataset.states,
        actions=dataset.actions,
        probabilities=greedy_probabilities(q_values.T, allowed, dataset.valid_mask),
    )
    return TrainedModel(policy=policy, q_values=np.where(choosable, q_values, np.nan).T, converged=converged)


SPEC = AlgorithmSpec(
    name="fqi",
    title="Chase the best value (naive FQI)",
    short="Naive FQI",
    summary="Fitted Q iteration; the maximum runs over valid actions, seen or not, so guesses compete with data.",
    config_class=FqiConfig,
    train=train,
    metrics={"largest_change": "largest change of a state value in the sweep, reward units"},
    unit="sweep",
    equation=r"Q(s,a) \leftarrow \bar r(s,a) + \gamma \sum_{s'} \hat P(s' \mid s,a) \max_{a'\,valid} Q(s',a')",
    source="Ernst, Geurts & Wehenkel 2005, figure 1",
    differs=(
        "a table, so each sweep is exact",
        "never-seen pairs have a constant default value instead of an extrapolation",
        "sweeps run until the values stand still",
    ),
)
