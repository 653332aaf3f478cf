r"""Improve on the log at a price: reward minus temperature times the KL divergence from the behavior, in every state.

The best policy of that problem has a closed form, the log's mix tilted by value, and soft values:

    V(s)    = temperature * log sum_a pi_b(a|s) exp( Q(s,a) / temperature )
    pi(a|s) = pi_b(a|s) exp( (Q(s,a) - V(s)) / temperature )

This is the idea of TD3+BC (a value term plus a cloning term) and of RLHF (reward minus KL to the model one started from),
in a table with discrete actions. Towards temperature 0 it is support-constrained FQI; towards infinity the log itself.

Source: Fox, Pakman & Tishby (2016), "Taming the noise in reinforcement learning via soft updates", UAI (G-learning); for
logs, Jaques et al. (2019), "Way off-policy batch deep reinforcement learning of implicit human preferences in dialog" (KL
control).

Differs: 1. the prior is the log's action frequencies, not a network or a uniform policy. 2. The temperature is fixed (Fox
et al. let it fall). 3. Solved to convergence on counts. 4. A state without any row takes ``default_value``, and its
policy is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import settled_change
from ..params import param
from ..policies import TabularPolicy
from .fields import NOTHING_SEEN, UNTAUGHT, default_value_param, max_sweeps_param
from .ops import behavior_or_uniform, beyond_reach, key_frame, tempered_probabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class KlConfig:
    """Parameters of KL-regularized improvement."""

    temperature: float = param(
        0.1,
        label="Price of deviating",
        help="Reward units per unit of divergence from the log's mix; low trusts the values, high copies the log.",
        symbol="τ",
        low=0.001,
        high=1000.0,
        step=0.05,
        unit="reward units",
        source="Jaques et al. 2019",
    )
    default_value: float = default_value_param(NOTHING_SEEN, UNTAUGHT)
    max_sweeps: int = max_sweeps_param()


def train(dataset: Dataset, config: KlConfig, *, seed: int) -> Training:
    """Sweep with soft values until they stand still."""
    del seed  # sweeps draw nothing
    require_rewards(dataset)
    behavior = behavior_or_uniform(dataset.behavior_probabilities, dataset.valid_mask)
    seen, prior = behavior > 0, np.ascontiguousarray(behavior.T)
    mdp = dataset.empirical_mdp(seen, config.default_value)
    v_values, change, converged = np.zeros(mdp.n_states), np.inf, False
    for sweep in range(1, config.max_sweeps + 1):
        q_values = mdp.backup(v_values, dataset.discount)
        improved = soft_values(q_values, prior, config.temperature)
        change = float(np.abs(improved - v_values).max())
        v_values = improved
        frame = np.where(seen, q_values.T, np.nan) if key_frame(sweep) else None
        beyond = beyond_reach(v_values, dataset.reward_range, dataset.discount)
        metrics = {"largest_change": change, "beyond_reach": beyond}
        yield Progress(step=sweep, total=config.max_sweeps, metrics=metrics, q_values=frame)
        converged = change <= settled_change(v_values)
        if converged:
            break
    policy = TabularPolicy(
        states=dataset.states,
        actions=dataset.actions,
        probabilities=tempered_probabilities(behavior, np.where(seen, q_values.T, 0.0) / config.temperature),
    )
    return TrainedModel(policy=policy, q_values=np.where(seen, q_values.T, np.nan), converged=converged)


def soft_values(q_values: FloatArray, prior: FloatArray, temperature: float) -> FloatArray:
    """(S,) temperature * log of the prior's mean of exp(Q / temperature).

    Args:
        q_values: (A, S), -inf where the prior is 0.
        prior: (A, S) columns sum to 1.
        temperature: above 0.
    """
    largest = q_values.max(axis=0)
    # Cut off where nothing is left of it: numbers below the smallest normal one take twenty times as long.
    exponents = np.maximum((q_values - largest) / temperature, -700.0)
    mean = np.einsum("as,as->s", prior, np.exp(exponents))
    logarithms: FloatArray = np.log(mean)
    # A high temperature multiplies the logarithm of nearly 1, so what is missing to 1 must be exact.
    near = np.flatnonzero(mean > 0.5)
    if len(near):
        logarithms[near] = np.log1p(np.einsum("as,as->s", prior[:, near], np.expm1(exponents[:, near])))
    return largest + temperature * logarithms


SPEC = AlgorithmSpec(
    name="kl_regularized",
    title="Improve, tied to the log (KL-regularized)",
    short="KL to the log",
    summary="Soft fitted Q iteration that pays for every deviation from the log's mix of actions.",
    config_class=KlConfig,
    train=train,
    metrics={
        "largest_change": "largest change of a state value in the sweep, reward units",
        "beyond_reach": "how far state values lie outside what discounted rewards can add up to, reward units",
    },
    unit="sweep",
    equation=r"V(s) = \tau \log \sum_a \pi_b(a \mid s)\, e^{Q(s,a)/\tau},\quad "
    r"\pi(a \mid s) = \pi_b(a \mid s)\, e^{(Q(s,a) - V(s))/\tau}",
    source="Fox, Pakman & Tishby 2016; Jaques et al. 2019",
    differs=(
        "the prior is the log's action frequencies",
        "the temperature is fixed",
        "solved to convergence on counts",
        "states without any row take the default value",
    ),
)
