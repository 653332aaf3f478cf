r"""Improve, but stay near the log: TD3 with behavior cloning (TD3+BC).

As naive DDPG, with the cautious targets of TD3 (the smaller of two critics, actions of the target policy shaken a little, a
policy that learns every second step) and one more term for the policy: it is pulled towards the logged action,

    max_pi  lambda E_D[Q(s, pi(s))] - E_D[(pi(s) - a)^2],      lambda = alpha / mean |Q(s, a)|

Source: Fujimoto & Gu (2021), "A minimalist approach to offline reinforcement learning", NeurIPS, section 5; targets: Fujimoto,
van Hoof & Meger (2018), "Addressing function approximation error in actor-critic methods", ICML, algorithm 1.

Differs: 1. States aren't normalised; they lie in -1..1 already. 2. lambda takes mean |Q| at the actions of the policy, as the
authors' code does, and not at those of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..params import param
from .learning import Bench, PointConfig, PointLearnerSpec, PointTraining, Rows, act, climb, regress
from .log import PointLog
from .networks import Network, pairs
from .world import HIGH, LOW

POLICY_DELAY = 2  # critic steps per policy step; this and the two below are the published ones
SMOOTHING, SMOOTHING_BOUND = 0.2, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Td3BcConfig(PointConfig):
    """Parameters of TD3 with behavior cloning."""

    value_weight: float = param(
        2.5,
        label="Weight of the value",
        help="How much the value counts against staying near the logged action; 0 copies the log.",
        symbol="α",
        low=0.0,
        high=1000.0,
        step=0.5,
        source="Fujimoto & Gu 2021, section 5",
    )


def train(
    log: PointLog, config: Td3BcConfig, *, seed: int, resume_from: Mapping[str, Any] | None = None
) -> PointTraining:
    """Fit two critics each step; every second step climb the first one, on a leash."""
    critic_shape = Network(2, config.hidden_size)
    shapes = {"critic": critic_shape, "twin": critic_shape, "actor": Network(1, config.hidden_size)}
    bench, rows = Bench(shapes, config, seed), Rows(log)
    bench.restore(resume_from)
    critic, twin, actor = (bench.parts[name] for name in shapes)
    while bench.step < config.n_steps:
        batch = rows.draw(bench.rng, config.batch_size)
        noise = bench.rng.normal(0, SMOOTHING, config.batch_size).clip(-SMOOTHING_BOUND, SMOOTHING_BOUND)
        next_actions = (act(actor, actor.target, batch.next_observations) + noise.astype(np.float32)).clip(LOW, HIGH)
        next_pairs = pairs(batch.next_observations, next_actions)
        following = np.minimum(critic.network(critic.target, next_pairs), twin.network(twin.target, next_pairs))
        targets = batch.rewards + log.discount * following
        loss, gradient = regress(critic, batch.observations, batch.actions, targets)
        critic.descend(gradient)
        twin.descend(regress(twin, batch.observations, batch.actions, targets)[1])
        bench.step += 1
        if bench.step % POLICY_DELAY == 0:
            own = act(actor, actor.parameters, batch.observations)
            size = float(np.abs(critic.network(critic.parameters, pairs(batch.observations, own))).mean())
            weight = config.value_weight / max(size, 1e-8)
            actor.descend(climb(actor, critic, batch.observations, weight, batch.actions))
            for part in bench.parts.values():
                part.follow()
        if bench.due:
            yield bench.progress(bench.model("critic", "actor"), {"bellman_loss": loss})
    return bench.model("critic", "actor")


SPEC = PointLearnerSpec(
    name="td3_bc",
    title="Improve, but stay near the log (TD3+BC)",
    short="Near the log (TD3+BC)",
    summary="Climbs Q on a leash: the policy is pulled towards the logged actions.",
    config_class=Td3BcConfig,
    train=train,
    metrics={"bellman_loss": "half the mean squared difference between Q and its target, reward units squared"},
    equation=r"\max_\pi\; \mathbb{E}_D[\lambda Q(s, \pi(s)) - (\pi(s) - a)^2],\quad \lambda = \alpha / \overline{|Q|}",
    source="Fujimoto & Gu 2021, section 5",
    differs=(
        "states aren't normalised",
        "λ takes the mean |Q| at the policy's actions, as the authors' code does",
    ),
)
