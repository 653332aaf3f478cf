r"""Be careful beyond the log: conservative Q-learning with continuous actions (CQL).

As naive DDPG, with a penalty that pushes Q down over all actions and up at the logged ones, so that nothing beyond the log
looks better than what the log shows:

    (Q(s,a) - y)^2 / 2  +  alpha ( log integral exp Q(s,a') da' - Q(s,a) )

Source: Kumar, Zhou, Tucker & Levine (2020), "Conservative Q-learning for offline reinforcement learning", NeurIPS, equation
(4), variant CQL(H).

Differs: 1. With one dimension the integral is a sum over 10 actions, evenly spaced behind a random first one, where the
paper samples. 2. A deterministic policy and the targets of DDPG, where the paper has a soft actor-critic. 3. A fixed weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..params import param
from .learning import Bench, Part, PointConfig, PointLearnerSpec, PointTraining, Rows, act, climb, regress
from .log import PointLog
from .networks import Network, Numbers, pairs
from .world import HIGH, LOW

N_SUMMED = 10  # actions that stand for the integral


@dataclass(frozen=True, slots=True, kw_only=True)
class CqlContinuousConfig(PointConfig):
    """Parameters of conservative Q-learning."""

    conservative_weight: float = param(
        1.0,
        label="Caution",
        help="Weight of the penalty on actions the log rarely shows; 0 is naive DDPG.",
        symbol="α",
        low=0.0,
        high=100.0,
        step=0.5,
        source="Kumar et al. 2020, equation (4)",
    )


def train(
    log: PointLog, config: CqlContinuousConfig, *, seed: int, resume_from: Mapping[str, Any] | None = None
) -> PointTraining:
    """Alternate between the penalised fit and climbing Q."""
    shapes = {"critic": Network(2, config.hidden_size), "actor": Network(1, config.hidden_size)}
    bench, rows = Bench(shapes, config, seed), Rows(log)
    bench.restore(resume_from)
    critic, actor = bench.parts["critic"], bench.parts["actor"]
    while bench.step < config.n_steps:
        batch = rows.draw(bench.rng, config.batch_size)
        next_actions = act(actor, actor.target, batch.next_observations)
        following = critic.network(critic.target, pairs(batch.next_observations, next_actions))
        loss, gradient = regress(critic, batch.observations, batch.actions, batch.rewards + log.discount * following)
        first = bench.rng.uniform(size=config.batch_size)
        gap, push = penalty(critic, batch.observations, batch.actions, first)
        critic.descend(gradient + config.conservative_weight * push)
        actor.descend(climb(actor, critic, batch.observations, 1.0))
        critic.follow()
        actor.follow()
        bench.step += 1
        if bench.due:
            yield bench.progress(bench.model("critic", "actor"), {"bellman_loss": loss, "penalty": gap})
    return bench.model("critic", "actor")


def penalty(critic: Part, observations: Numbers, actions: Numbers, first: Numbers) -> tuple[float, Numbers]:
    """Mean of log integral exp Q minus Q at the logged action, and its derivative by the critic's parameters.

    Args:
        critic: whose Q.
        observations: (B,) logged states.
        actions: (B,) what was done there.
        first: (B,) in 0..1, where in its cell each of the ``N_SUMMED`` actions lies.
    """
    width = (HIGH - LOW) / N_SUMMED
    grid = LOW + width * (np.arange(N_SUMMED)[:, None] + first)  # (N_SUMMED, B)
    does = np.concatenate([grid.astype(actions.dtype), actions[None]])
    here = np.broadcast_to(observations, does.shape)
    said = critic.network.evaluate(critic.parameters, pairs(here, does))
    over, logged = said.outputs[:-1], said.outputs[-1]
    largest = over.max(axis=0)
    shares = np.exp(over - largest)
    sums = shares.sum(axis=0)
    gap = largest + np.log(sums * width) - logged
    outward = np.concatenate([shares / sums, np.full((1, len(actions)), -1, dtype=actions.dtype)]) / len(actions)
    return float(gap.mean()), critic.network.gradient(critic.parameters, said, outward).parameters


SPEC = PointLearnerSpec(
    name="cql_continuous",
    title="Be careful beyond the log (CQL)",
    short="Careful (CQL)",
    summary="Pushes Q down over all actions and up at the logged ones, so that nothing beyond the log looks better.",
    config_class=CqlContinuousConfig,
    train=train,
    metrics={
        "bellman_loss": "half the mean squared difference between Q and its target, reward units squared",
        "penalty": "mean over the batch of log integral exp Q minus the logged action's Q, reward units",
    },
    equation=r"\min_Q \tfrac12 \mathbb{E}_D[(Q - y)^2] + \alpha\, \mathbb{E}_D[\log\textstyle\int e^{Q(s,a')} da' - Q(s,a)]",
    source="Kumar et al. 2020, equation (4), CQL(H)",
    differs=(
        "the integral is a sum over 10 evenly spaced actions behind a random first one, where the paper samples",
        "a deterministic policy and the targets of DDPG, where the paper has a soft actor-critic",
        "a fixed weight",
    ),
)
