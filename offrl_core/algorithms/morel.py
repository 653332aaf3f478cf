r"""Plan in the log's model, and fall off its edge: outside the known pairs there is only an absorbing, costly halt
(MOReL).

A pair is known from ``min_count`` rows on. Any other valid pair leads to HALT, which costs ``halt_penalty`` spans of the
reward on every step for ever:

    Q(s,a) = mean reward + discount * mean over what followed of max Q   where known
    Q(s,a) = - halt_penalty * span / (1 - discount)                      elsewhere

From a penalty of 1 on no known step is worse than halting, so the policy stays inside as long as it can and even avoids
known ways that lead to where nothing is known. Below, giving up may look good; no guess for never-seen pairs enters.

Source: Kidambi, Rajeswaran, Netrapalli & Joachims (2020), "MOReL: model-based offline reinforcement learning", NeurIPS,
definitions 1 and 2.

Differs: 1. known means seen often enough, where the paper asks an ensemble of networks whether its members agree. 2. The
penalty is in spans of the reward (0 included), and a pair that leads outside is worth HALT at once, where the paper first
pays its reward. 3. Solved to convergence. 4. In a state without any known pair the policy is uniform over its valid
actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import BoolArray
from ..dataset import Dataset
from ..edges import CUT
from ..errors import NotPossible
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import Successors, TabularMDP, settled_change, value_iteration
from ..params import param
from ..policies import TabularPolicy, greedy_probabilities
from .fields import max_sweeps_param
from .ops import beyond_reach, key_frame, reward_span


@dataclass(frozen=True, slots=True, kw_only=True)
class MorelConfig:
    """Parameters of tabular MOReL."""

    min_count: int = param(
        1,
        label="Known from",
        help="Rows that a pair needs to be part of the model; all others lead to the halt.",
        symbol="n(s, a) ≥",
        low=1,
        high=1_000_000,
        step=1,
        unit="rows",
        source="Kidambi et al. 2020, definition 1",
    )
    halt_penalty: float = param(
        1.0,
        label="Cost of the halt",
        help="Per step after leaving the known pairs, for ever; from 1 on nothing known is worse.",
        symbol="κ",
        low=0.0,
        high=1000.0,
        step=0.1,
        unit="reward spans",
        source="Kidambi et al. 2020, definition 2",
    )
    max_sweeps: int = max_sweeps_param()


def train(dataset: Dataset, config: MorelConfig, *, seed: int) -> Training:
    """Cut the unknown pairs out of the model, then sweep."""
    del seed  # sweeps draw nothing
    require_rewards(dataset)
    if dataset.discount == 1:
        raise NotPossible(
            "MOReL's halt costs something on every step for ever, which is infinite at discount 1. "
            "Choose a framing with a discount below 1, or pessimistic value iteration (pessimistic_vi)."
        )
    valid, known = dataset.valid_mask, dataset.value_counts >= config.min_count
    halt_value = -config.halt_penalty * reward_span(dataset.reward_range) / (1 - dataset.discount)
    mdp = pessimistic_model(dataset, known, halt_value)
    q_values, change = mdp.rewards, np.inf
    sweeps = value_iteration(mdp, dataset.discount, start=np.zeros(mdp.n_states), max_sweeps=config.max_sweeps)
    for sweep, (q_values, change) in enumerate(sweeps, start=1):
        frame = np.where(valid, q_values.T, np.nan) if key_frame(sweep) else None
        beyond = beyond_reach(q_values.max(axis=0), dataset.reward_range, dataset.discount)
        metrics = {"largest_change": change, "beyond_reach": beyond}
        yield Progress(step=sweep, total=config.max_sweeps, metrics=metrics, q_values=frame)
    settled = settled_change(q_values[np.isfinite(q_values)])
    # In ties a known pair wins, whatever its place; where nothing is known, all valid actions are alike.
    stays = np.where(known, q_values.T, -np.inf).max(axis=1) >= halt_value - settled
    competing = np.where(stays[:, None], known, valid & known.any(axis=1, keepdims=True))
    policy = TabularPolicy(
        states=dataset.states,
        actions=dataset.actions,
        probabilities=greedy_probabilities(q_values.T, competing, valid),
    )
    return TrainedModel(policy=policy, q_values=np.where(valid, q_values.T, np.nan), converged=change <= settled)


def pessimistic_model(dataset: Dataset, known: BoolArray, halt_value: float) -> TabularMDP:
    """The process that the counts describe, its unknown pairs ending at once with the value of the halt.

    Args:
        dataset: what the log shows.
        known: (S, A) pairs that are part of the model; some row must teach each.
        halt_value: reward units.
    """
    rewards = dataset.empirical_mdp(dataset.valid_mask, halt_value).rewards
    edges = dataset.edges
    usable = (edges.endings != CUT) & (edges.n_known > 0) & known[edges.states, edges.actions]
    states, actions = edges.states[usable], edges.actions[usable]
    return TabularMDP(
        rewards=np.where(known.T | ~np.isfinite(rewards), rewards, halt_value),
        successors=Successors(
            dataset.n_states,
            dataset.n_actions,
            states=states,
            actions=actions,
            next_states=edges.next_states[usable],
            probabilities=edges.n_known[usable] / dataset.value_counts[states, actions],
        ),
    )


SPEC = AlgorithmSpec(
    name="morel",
    title="Stay where the model is known, up to a hard edge (MOReL, tabular)",
    short="Hard edge (MOReL)",
    summary="Plans in the log's model; every pair seen too rarely leads to a costly halt without a way back.",
    config_class=MorelConfig,
    train=train,
    metrics={
        "largest_change": "largest change of a state value in the sweep, reward units",
        "beyond_reach": "how far state values lie outside what discounted rewards can add up to (the halt does), reward units",
    },
    unit="sweep",
    equation=r"Q(s,a) = \begin{cases} \bar r + \gamma \sum_{s'} \hat P \max Q & n(s,a) \ge n_{min} \\ "
    r"-\kappa\, \Delta_r / (1 - \gamma) & \text{else} \end{cases}",
    source="Kidambi et al. 2020, definitions 1 and 2",
    differs=(
        "known means seen often enough, where the paper asks whether an ensemble agrees",
        "the penalty is in spans of the reward, and a pair that leads outside is worth the halt at once",
        "solved to convergence",
        "uniform over valid actions where nothing is known",
    ),
)
