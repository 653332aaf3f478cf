r"""Advantage-weighted regression: copy the log, and those rows more often that went better than usual.

    pi(a|s) is proportional to  sum over the rows of (s, a) of  min( exp((R - V(s)) / temperature), max_weight )

With ``returns`` = logged, R is what the row's own episode returned from there on and V(s) the mean of that: luck in one
row counts as skill. With expected, R is the value of the behavior, the same for all rows of a pair, and luck averages out
first.

Source: Peng, Kumar, Zhang & Levine (2019), "Advantage-weighted regression: simple and scalable off-policy reinforcement
learning", algorithm 1.

Differs: 1. one exact regression on a fixed log, where the paper goes on collecting. 2. ``logged`` takes whole returns,
where the paper mixes them with bootstrapped ones (TD(lambda)); rows whose return is unknown, because a later reward is or
the episode was cut, are left out, and a state with such rows only copies the log. 3. ``expected`` solves the behavior's
values to convergence. 4. A state without any row is uniform over its valid actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..dataset import Dataset
from ..errors import NotPossible
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import settled_change
from ..params import param
from ..policies import TabularPolicy
from .fields import NOTHING_SEEN, UNTAUGHT, default_value_param, max_sweeps_param
from .ops import behavior_or_uniform, beyond_reach, expectation, key_frame, tempered_probabilities, without_holes


@dataclass(frozen=True, slots=True, kw_only=True)
class AwrConfig:
    """Parameters of advantage-weighted regression."""

    returns: str = param(
        "logged",
        label="Judges a row by",
        help="The return of its own episode from there on, or the value of its pair under the log's own policy.",
        choices=(("logged", "what its episode returned"), ("expected", "the value of the behavior")),
    )
    temperature: float = param(
        0.3,
        label="Temperature",
        help="How much better a row must be to be copied e times as often; high is the log's mix, low its best rows.",
        symbol="β",
        low=0.001,
        high=1000.0,
        step=0.1,
        unit="reward units",
        source="Peng et al. 2019, algorithm 1",
    )
    max_weight: float = param(
        20.0,
        label="Largest weight",
        help="No row is copied more than this many times as often as one of average outcome.",
        low=1.0,
        high=1_000_000.0,
        step=1.0,
        source="Peng et al. 2019, section 5",
    )
    default_value: float = default_value_param(NOTHING_SEEN, UNTAUGHT)
    max_sweeps: int = max_sweeps_param(
        "For the value of the behavior; sweeps stop earlier, when the values stand still (to 12 digits)."
    )


def train(dataset: Dataset, config: AwrConfig, *, seed: int) -> Training:
    """Judge every row, then copy the log with weights."""
    del seed  # nothing is drawn
    require_rewards(dataset)
    if config.returns == "logged":
        model = yield from _from_logged_returns(dataset, config)
    else:
        model = yield from _from_behavior_values(dataset, config)
    return model


def _from_logged_returns(dataset: Dataset, config: AwrConfig) -> Training:
    returns = _known_returns(dataset)
    known, shape = ~np.isnan(returns), dataset.valid_mask.shape
    rows = dataset.transitions()
    states, pairs = rows.observations[known], (rows.observations * shape[1] + rows.actions)[known]
    n_state, n_pair = np.bincount(states, minlength=shape[0]), np.bincount(pairs, minlength=shape[0] * shape[1])
    v_values = np.bincount(states, returns[known], minlength=shape[0]) / np.maximum(n_state, 1)
    q_values = (np.bincount(pairs, returns[known], minlength=len(n_pair)) / np.maximum(n_pair, 1)).reshape(shape)
    exponents = np.minimum((returns[known] - v_values[states]) / config.temperature, np.log(config.max_weight))
    largest = np.full(shape[0], -np.inf)
    np.maximum.at(largest, states, exponents)
    weights = np.bincount(pairs, np.exp(exponents - largest[states]), minlength=len(n_pair)).reshape(shape)
    behavior = behavior_or_uniform(dataset.behavior_probabilities, dataset.valid_mask)
    weights = np.where((n_state > 0)[:, None], weights, behavior)
    q_values = np.where(n_pair.reshape(shape) > 0, q_values, config.default_value)
    q_values = np.where(behavior > 0, q_values, np.nan)
    yield Progress(
        step=1,
        total=1,
        metrics={
            "largest_change": 0.0,
            "beyond_reach": beyond_reach(v_values[n_state > 0], dataset.reward_range, dataset.discount),
            "at_bound": float((exponents >= np.log(config.max_weight)).mean()),
        },
    )
    return _model(dataset, weights / weights.sum(axis=1, keepdims=True), q_values, converged=True)


def _known_returns(dataset: Dataset) -> FloatArray:
    if not dataset.whole_sequences:
        raise NotPossible(
            "Advantage-weighted regression on logged returns needs whole episodes, and a coverage edit took single steps out "
            "of them. Take whole episodes out instead, or judge rows by the value of the behavior (returns=expected)."
        )
    returns = dataset.returns_to_go
    if np.isnan(returns).all():
        raise NotPossible(
            "No row of this log has a known return: all episodes were cut or lack a reward. "
            "Judge rows by the value of the behavior instead (returns=expected)."
        )
    return returns


def _from_behavior_values(dataset: Dataset, config: AwrConfig) -> Training:
    behavior = behavior_or_uniform(dataset.behavior_probabilities, dataset.valid_mask)
    seen, weights = behavior > 0, np.ascontiguousarray(behavior.T)
    mdp = without_holes(dataset.empirical_mdp(seen, config.default_value))
    bound = np.log(config.max_weight)
    v_values, change, converged = np.zeros(mdp.n_states), np.inf, False
    for sweep in range(1, config.max_sweeps + 1):
        q_values = mdp.backup(v_values, dataset.discount)
        improved = expectation(weights, q_values)
        change = float(np.abs(improved - v_values).max())
        v_values = improved
        exponents = np.where(seen, (q_values - v_values).T / config.temperature, -np.inf)
        frame = np.where(seen, q_values.T, np.nan) if key_frame(sweep) else None
        metrics = {
            "largest_change": change,
            "beyond_reach": beyond_reach(v_values, dataset.reward_range, dataset.discount),
            "at_bound": float((dataset.behavior_probabilities * (exponents >= bound)).sum(axis=1).mean()),
        }
        yield Progress(step=sweep, total=config.max_sweeps, metrics=metrics, q_values=frame)
        converged = change <= settled_change(v_values)
        if converged:
            break
    probabilities = tempered_probabilities(behavior, np.minimum(exponents, bound))
    return _model(dataset, probabilities, np.where(seen, q_values.T, np.nan), converged=converged)


def _model(dataset: Dataset, probabilities: FloatArray, q_values: FloatArray, *, converged: bool) -> TrainedModel:
    policy = TabularPolicy(states=dataset.states, actions=dataset.actions, probabilities=probabilities)
    return TrainedModel(policy=policy, q_values=q_values, converged=converged)


SPEC = AlgorithmSpec(
    name="awr",
    title="Copy what went well (AWR, advantage-weighted regression)",
    short="Weighted copy (AWR)",
    summary="Copies the log with weights: rows that returned more than usual in their state count more.",
    config_class=AwrConfig,
    train=train,
    metrics={
        "largest_change": "largest change of a state value in the sweep, reward units; 0 where returns come from the log",
        "beyond_reach": "how far state values lie outside what discounted rewards can add up to, reward units",
        "at_bound": "share of the rows (of the states, for the value of the behavior) whose weight is the largest allowed",
    },
    unit="sweep",
    equation=r"\pi(a \mid s) \propto \sum_{i:\,(s,a)} \min\!\big(e^{(R_i - V(s))/\beta},\, \omega_{max}\big)",
    source="Peng et al. 2019, algorithm 1",
    differs=(
        "one exact regression on a fixed log",
        "logged returns are whole, not mixed with bootstrapped ones; rows of unknown return are left out",
        "the value of the behavior, if chosen, is solved to convergence",
        "states without any row are uniform over their valid actions",
    ),
)
