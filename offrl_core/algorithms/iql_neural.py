r"""Implicit Q-learning with small networks: no value of an action that the log doesn't show is ever asked for.

    V:   | expectile - 1[Q_target(s,a) < V(s)] | (Q_target(s,a) - V(s))^2 / 2
    Q:   (Q(s,a) - r - gamma V(s'))^2 / 2
    pi:  - min( exp((Q_target(s,a) - V(s)) / temperature), max_weight ) log pi(a|s)

Source: Kostrikov, Nair & Levine (2022), "Offline reinforcement learning with implicit Q-learning", ICLR, equations (5), (6)
and (7).

Differs: 1. One Q network, where the authors take the smaller of two. 2. The policy is a softmax over the valid actions;
``temperature`` is 1/beta of the paper, ``max_weight`` the clip of the authors' code. 3. All three networks take their step
at once, from the values before it. 4. A log of few distinct transitions is one weighted batch: the gradient of all data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, SeedsTraining, Training, require_rewards
from .fields import expectile_param, max_weight_param, temperature_param
from .neural_config import VALUE_METRICS, NeuralConfig, alone, require_torch, target_update_param

if TYPE_CHECKING:
    from torch import Tensor

    from .networks import Tables, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class IqlNeuralConfig(NeuralConfig):
    """Parameters of implicit Q-learning with networks."""

    expectile: float = expectile_param()
    temperature: float = temperature_param(0.1, "1/β", "Kostrikov et al. 2022, equation (7)")
    max_weight: float = max_weight_param(
        "No row counts more than this many times as much as one that went as expected."
    )
    target_update_rate: float = target_update_param()


def train(
    dataset: Dataset, config: IqlNeuralConfig, *, seed: int, resume_from: Mapping[str, Any] | None = None
) -> Training:
    """Train one seed."""
    return alone(train_seeds, dataset, config, seed, resume_from)


def train_seeds(
    dataset: Dataset,
    config: IqlNeuralConfig,
    *,
    seeds: Sequence[int],
    resume_from: Sequence[Mapping[str, Any]] | None = None,
) -> SeedsTraining:
    """Gradient steps on the three losses, for all seeds at once."""
    require_rewards(dataset)
    require_torch()
    from . import networks
    from .networks import cross_entropy, rows_of, squared_error

    experience = networks.Experience(dataset, config, len(seeds))
    network = networks.Network(experience.n_features, dataset.n_actions, config)  # the shape of Q and policy
    v_network = networks.Network(experience.n_features, 1, config)
    excluded = networks.log_mask(dataset.valid_mask)  # (S, A)

    def look(weights: Mapping[str, Weights], states: Tensor) -> Tables:
        inputs = experience.features_of(states)
        logits = network(weights["policy"], inputs) + excluded[states]
        return networks.Tables(networks.softmax(logits), network(weights["q"], inputs).double().numpy())

    learner = networks.Seeds(
        dataset,
        experience,
        config,
        seeds,
        {"q": network, "v": v_network, "policy": network},
        look,
        targets=["q"],
        resume_from=resume_from,
    )
    online, target = learner.weights["q"], learner.targets["q"]
    v_weights, policy = learner.weights["v"], learner.weights["policy"]
    while learner.learning:
        for batch in experience.batches(learner.generators, learner.n_until_report):
            judged = network(target, batch.inputs).flatten(1).gather(1, batch.pairs)  # (K, B)
            level = v_network.evaluate(v_weights, batch.inputs)
            advantages = judged - level.outputs.flatten(1).gather(1, batch.here)  # (K, B)
            tilted = batch.weights * (config.expectile - (advantages < 0).float()).abs()
            expectile = squared_error(level.outputs, batch.here, judged, tilted)

            v_values = v_network(v_weights, batch.next_inputs).squeeze(2)  # (K, R')
            targets = batch.rewards + batch.discounts * v_values.gather(1, batch.there)
            fit = network.evaluate(online, batch.inputs)
            bellman = squared_error(fit.outputs, batch.pairs, targets, batch.value_weights)

            copy = network.evaluate(policy, batch.inputs)
            logits = copy.outputs + rows_of(excluded, batch.states)
            merit = (advantages / config.temperature).clamp(max=math.log(config.max_weight)).exp()
            imitation = cross_entropy(logits, batch.here, batch.pairs, batch.weights * merit)

            learner.descend(
                {
                    "q": network.gradient(online, fit, bellman.outward),
                    "v": v_network.gradient(v_weights, level, expectile.outward),
                    "policy": network.gradient(policy, copy, imitation.outward),
                },
                bellman_loss=bellman.value,
                expectile_loss=expectile.value,
                policy_loss=imitation.value,
            )
            learner.follow(config.target_update_rate)
        report = learner.report()
        if any(report):
            yield report
    return learner.models()


SPEC = AlgorithmSpec(
    name="iql_neural",
    title="Best of what was logged, softly, with networks (neural IQL)",
    short="Neural IQL",
    summary="Networks fit a high expectile over logged actions; then copy the log, better actions more often.",
    config_class=IqlNeuralConfig,
    train=train,
    train_seeds=train_seeds,
    metrics={
        "bellman_loss": "half the mean squared difference between Q and its target, reward units squared",
        "expectile_loss": "half the tilted mean squared difference between Q and V, reward units squared",
        "policy_loss": "weighted mean of minus the log probability of the logged action",
        **VALUE_METRICS,
    },
    unit="gradient step",
    equation=r"V = \arg\min_v \mathbb{E}_D\big[\,|\tau - 1[Q < v]|\,(Q - v)^2\big],\quad "
    r"\max_\theta \mathbb{E}_D\big[e^{\beta (Q - V)} \log \pi_\theta(a \mid s)\big]",
    source="Kostrikov et al. 2022, equations (5) to (7)",
    differs=(
        "one Q network; the authors take the smaller of two",
        "the policy is a softmax over valid actions; temperature is 1/β, the largest weight that of the authors' code",
        "all three networks take their step at once",
        "a log of few distinct transitions is one weighted batch, the gradient of all data",
    ),
    kind="network",
    instant=False,
    resumable=True,
)
