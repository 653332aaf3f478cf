r"""Chase the best value: deterministic policy gradients on a log, as if nothing were missing (naive DDPG).

Each step fits Q to y = r + gamma Q_target(s', pi_target(s')) on rows of the log and moves the policy uphill in Q. The policy
may go wherever Q rises, and beyond the log Q is whatever the network happens to continue with.

Source: Lillicrap et al. (2016), "Continuous control with deep reinforcement learning", ICLR, algorithm 1.

Differs: 1. Learns from a fixed log; no exploration. 2. The same learning rate for actor and critic, no weight decay, no
normalisation of inputs, which lie in -1..1 already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .learning import Bench, PointConfig, PointLearnerSpec, PointTraining, Rows, act, climb, regress
from .log import PointLog
from .networks import Network, pairs


def train(
    log: PointLog, config: PointConfig, *, seed: int, resume_from: Mapping[str, Any] | None = None
) -> PointTraining:
    """Alternate between fitting Q and climbing it."""
    shapes = {"critic": Network(2, config.hidden_size), "actor": Network(1, config.hidden_size)}
    bench, rows = Bench(shapes, config, seed), Rows(log)
    bench.restore(resume_from)
    critic, actor = bench.parts["critic"], bench.parts["actor"]
    while bench.step < config.n_steps:
        batch = rows.draw(bench.rng, config.batch_size)
        next_actions = act(actor, actor.target, batch.next_observations)
        following = critic.network(critic.target, pairs(batch.next_observations, next_actions))
        loss, gradient = regress(critic, batch.observations, batch.actions, batch.rewards + log.discount * following)
        critic.descend(gradient)
        actor.descend(climb(actor, critic, batch.observations, 1.0))
        critic.follow()
        actor.follow()
        bench.step += 1
        if bench.due:
            yield bench.progress(bench.model("critic", "actor"), {"bellman_loss": loss})
    return bench.model("critic", "actor")


SPEC = PointLearnerSpec(
    name="ddpg",
    title="Chase the best value (naive DDPG)",
    short="Naive DDPG",
    summary="Fits Q to the log and moves its policy uphill in Q, wherever that leads.",
    config_class=PointConfig,
    train=train,
    metrics={"bellman_loss": "half the mean squared difference between Q and its target, reward units squared"},
    equation=r"\min_Q \mathbb{E}_D[(Q(s,a) - r - \gamma \bar Q(s', \bar\pi(s')))^2],\quad \max_\pi \mathbb{E}_D[Q(s, \pi(s))]",
    source="Lillicrap et al. 2016, algorithm 1",
    differs=(
        "learns from a fixed log, without exploration",
        "one learning rate, no weight decay, no normalisation",
    ),
)
