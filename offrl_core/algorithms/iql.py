r"""Implicit Q-learning in a table: the value of a state is a high expectile of what was *logged* there, so no guess
enters.

    V(s)    = argmin_v  sum_a pi_b(a|s) | expectile - 1[Q(s,a) < v] | (Q(s,a) - v)^2
    Q(s, a) = mean reward + discount * mean V of what followed
    pi(a|s) is proportional to  pi_b(a|s) min( exp((Q(s,a) - V(s)) / temperature), max_weight )

At expectile 1/2, V is the mean: the value of the behavior (SARSA on the log). Towards 1 it approaches the largest logged
value: support-constrained FQI. The expectile of a state is a mean with two weights; the right weights are found by
Newton's method, which ends exactly after a few steps.

Source: Kostrikov, Nair & Levine (2022), "Offline reinforcement learning with implicit Q-learning", ICLR, equations (5),
(6) and (7).

Differs: 1. every expectile is exact, and the iteration runs to convergence, where the paper takes gradient steps. 2. Q(s,
a) is a mean over the pair's rows, so the expectile runs over actions only and never mistakes luck for skill. 3. The
policy is the closed form of equation (7) in a table; ``temperature`` is 1/beta of the paper, ``max_weight`` the clip of
the authors' code. 4. A state without any row takes ``default_value``, and its policy is uniform over its valid actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import settled_change
from ..policies import TabularPolicy
from .fields import (
    NOTHING_SEEN,
    UNTAUGHT,
    default_value_param,
    expectile_param,
    max_sweeps_param,
    max_weight_param,
    temperature_param,
)
from .ops import behavior_or_uniform, beyond_reach, key_frame, tempered_probabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class IqlConfig:
    """Parameters of tabular implicit Q-learning."""

    expectile: float = expectile_param()
    temperature: float = temperature_param(0.3, "1/β", "Kostrikov et al. 2022, equation (7)")
    max_weight: float = max_weight_param(
        "No action is copied more than this many times as often as the log takes it, before normalising."
    )
    default_value: float = default_value_param(NOTHING_SEEN, UNTAUGHT)
    max_sweeps: int = max_sweeps_param()


def train(dataset: Dataset, config: IqlConfig, *, seed: int) -> Training:
    """Sweep: expectile over logged actions, then backup; extract the policy at the end."""
    del seed  # nothing is drawn
    require_rewards(dataset)
    behavior = behavior_or_uniform(dataset.behavior_probabilities, dataset.valid_mask)
    seen, weights = behavior > 0, np.ascontiguousarray(behavior.T)
    mdp = dataset.empirical_mdp(seen, config.default_value)
    v_values, change, converged = np.zeros(mdp.n_states), np.inf, False
    for sweep in range(1, config.max_sweeps + 1):
        q_values = mdp.backup(v_values, dataset.discount)
        improved = expectiles(q_values, weights, config.expectile, start=v_values)
        change = float(np.abs(improved - v_values).max())
        v_values = improved
        frame = np.where(seen, q_values.T, np.nan) if key_frame(sweep) else None
        beyond = beyond_reach(v_values, dataset.reward_range, dataset.discount)
        metrics = {"largest_change": change, "beyond_reach": beyond}
        yield Progress(step=sweep, total=config.max_sweeps, metrics=metrics, q_values=frame)
        converged = change <= settled_change(v_values)
        if converged:
            break
    advantages = np.where(seen, (q_values - v_values).T, 0.0)
    log_weights = np.minimum(advantages / config.temperature, np.log(config.max_weight))
    policy = TabularPolicy(
        states=dataset.states,
        actions=dataset.actions,
        probabilities=tempered_probabilities(behavior, log_weights),
    )
    return TrainedModel(policy=policy, q_values=np.where(seen, q_values.T, np.nan), converged=converged)


def expectiles(q_values: FloatArray, weights: FloatArray, expectile: float, *, start: FloatArray) -> FloatArray:
    """(S,) exact expectile of each column.

    The condition sum_a w |expectile - 1[q < v]| (q - v) = 0 is piecewise linear and falling in v, so Newton's method ends
    after at most A steps, mostly after one.

    Args:
        q_values: (A, S) any value where the weight is 0.
        weights: (A, S) columns sum to 1.
        expectile: between 0 and 1, exclusive.
        start: (S,) first guess.
    """
    q_values = np.where(weights > 0, q_values, 0.0)
    v_values, above = start, q_values >= start
    for _ in range(len(q_values) + 2):
        tilted = np.where(above, expectile, 1 - expectile) * weights
        v_values = (tilted * q_values).sum(axis=0) / tilted.sum(axis=0)
        now_above = q_values >= v_values
        if (now_above == above).all():
            break
        above = now_above
    return v_values


SPEC = AlgorithmSpec(
    name="iql",
    title="Best of what was logged, softly (IQL, expectile)",
    short="Expectile (IQL)",
    summary="Values from a high expectile over logged actions; then copies the log, better actions more often.",
    config_class=IqlConfig,
    train=train,
    metrics={
        "largest_change": "largest change of a state value in the sweep, reward units",
        "beyond_reach": "how far state values lie outside what discounted rewards can add up to, reward units",
    },
    unit="sweep",
    equation=r"V(s) = \arg\min_v \mathbb{E}_{a \sim \pi_b} \big[\, |\tau - 1[Q(s,a) < v]|\, (Q(s,a) - v)^2 \big],\quad "
    r"\pi \propto \pi_b\, e^{\beta (Q - V)}",
    source="Kostrikov et al. 2022, equations (5) to (7)",
    differs=(
        "every expectile is exact and the iteration runs to convergence",
        "Q is a mean over the pair's rows, so the expectile runs over actions, not over luck",
        "the policy is the closed form of equation (7); temperature is 1/β, the largest weight that of the authors' code",
        "states without any row take the default value",
    ),
)
