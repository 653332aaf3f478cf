r"""Safe policy improvement with baseline bootstrapping: change what the log shows often, copy it where it is rare.

Pairs seen fewer than ``n_wedge`` times keep exactly the probability that the log gives them; the rest of a state's
probability goes to the best of the other actions:

    V(s) = sum over rare a of pi_b(a|s) Q(s,a)  +  (1 - sum over rare a of pi_b(a|s)) * max over other a of Q(s,a)

At ``n_wedge`` 1 this is support-constrained FQI (a never-seen pair has probability 0 in the log); at 0 nothing is rare
and it is naive FQI; above the largest count it is the log's own policy.

Source: Laroche, Trichelair & Tachet des Combes (2019), "Safe policy improvement with baseline bootstrapping", ICML,
algorithm 1 (Pi_b-SPIBB).

Differs: 1. the baseline is estimated from the log, where the paper knows it; its guarantee then needs the states to be
seen often, too. 2. Value iteration over the constrained policies replaces policy iteration; both end at the same policy.
3. A state without any row is uniform over its valid actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import BoolArray, FloatArray
from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import settled_change
from ..params import param
from ..policies import TabularPolicy
from .fields import NEVER_SEEN, default_value_param, max_sweeps_param
from .ops import behavior_or_uniform, beyond_reach, expectation, key_frame, without_holes


@dataclass(frozen=True, slots=True, kw_only=True)
class SpibbConfig:
    """Parameters of baseline bootstrapping."""

    n_wedge: int = param(
        10,
        label="Rare below",
        help="Pairs seen fewer times keep the log's probability; 1 frees every seen pair, 0 never-seen ones too.",
        symbol="N∧",
        low=0,
        high=1_000_000_000,
        step=1,
        unit="rows",
        source="Laroche et al. 2019, section 2",
    )
    default_value: float = default_value_param(
        NEVER_SEEN,
        "Used for pairs that teach no value; never-seen ones compete at N∧ = 0 only, else where nothing was seen.",
    )
    max_sweeps: int = max_sweeps_param()


def train(dataset: Dataset, config: SpibbConfig, *, seed: int) -> Training:
    """Sweep over the aggregated counts with the rare pairs held."""
    del seed  # sweeps draw nothing
    require_rewards(dataset)
    behavior = behavior_or_uniform(dataset.behavior_probabilities, dataset.valid_mask)
    free = dataset.valid_mask & (dataset.visitation_counts >= config.n_wedge)
    choosable = free | (behavior > 0)
    held, movable = held_and_movable(behavior, free)
    mdp = without_holes(dataset.empirical_mdp(choosable, config.default_value))
    only_free = np.where(free.T, 0.0, -np.inf)
    v_values, change, converged = np.zeros(mdp.n_states), np.inf, False
    for sweep in range(1, config.max_sweeps + 1):
        q_values = mdp.backup(v_values, dataset.discount)
        best = np.where(movable > 0, (q_values + only_free).max(axis=0), 0.0)
        improved = expectation(held, q_values) + movable * best
        change = float(np.abs(improved - v_values).max())
        v_values = improved
        frame = np.where(choosable, q_values.T, np.nan) if key_frame(sweep) else None
        beyond = beyond_reach(v_values, dataset.reward_range, dataset.discount)
        metrics = {"largest_change": change, "beyond_reach": beyond}
        yield Progress(step=sweep, total=config.max_sweeps, metrics=metrics, q_values=frame)
        converged = change <= settled_change(v_values)
        if converged:
            break
    probabilities = np.ascontiguousarray(held.T)
    probabilities[np.arange(mdp.n_states), (q_values + only_free).argmax(axis=0)] += movable
    policy = TabularPolicy(states=dataset.states, actions=dataset.actions, probabilities=probabilities)
    return TrainedModel(policy=policy, q_values=np.where(choosable, q_values.T, np.nan), converged=converged)


def held_and_movable(behavior: FloatArray, free: BoolArray) -> tuple[FloatArray, FloatArray]:
    """(A, S) probabilities that stay as they are, and (S,) what is left for the best free action; both arguments (S, A)."""
    has_free = free.any(axis=1)
    held = np.where(free, 0.0, behavior)
    movable = np.where(has_free, np.where(free, behavior, 0.0).sum(axis=1), 0.0)
    nothing_held = held.sum(axis=1) == 0  # then all of it moves, and no rounding of a sum is left over
    return np.ascontiguousarray(held.T), np.where(has_free & nothing_held, 1.0, movable)


SPEC = AlgorithmSpec(
    name="spibb",
    title="Copy the rare, improve the frequent: safe steps (SPIBB)",
    short="Safe steps (SPIBB)",
    summary="Keeps the log's probability where it shows a pair rarely, and gives the rest to the best frequent action.",
    config_class=SpibbConfig,
    train=train,
    metrics={
        "largest_change": "largest change of a state value in the sweep, reward units",
        "beyond_reach": "how far state values lie outside what discounted rewards can add up to, reward units",
    },
    unit="sweep",
    equation=r"\pi(a \mid s) = \pi_b(a \mid s) \text{ where } n(s,a) < N_\wedge,\quad "
    r"\text{the rest to } \arg\max_{a:\,n(s,a) \ge N_\wedge} Q(s,a)",
    source="Laroche et al. 2019, algorithm 1",
    differs=(
        "the baseline is estimated from the log, where the paper knows it",
        "value iteration over the constrained policies instead of policy iteration",
        "states without any row are uniform over their valid actions",
    ),
)
