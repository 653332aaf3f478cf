r"""Advantage-weighted actor-critic with small networks: copy the log, and those rows more often that beat the current policy.

    Q:   (Q(s,a) - y)^2 / 2,      y = r + gamma sum_a' pi(a'|s') Q_target(s',a')
    pi:  - min( exp((Q(s,a) - sum_a' pi(a'|s) Q(s,a')) / temperature), max_weight ) log pi(a|s)

The critic judges the policy as it is, so it asks for values of actions that the log doesn't show, as far as the policy would
take them; copying the log keeps that rare.

Source: Nair, Gupta, Dalal & Levine (2020), "AWAC: accelerating online reinforcement learning with offline datasets",
equations (12) and (13) and algorithm 1, offline phase.

Differs: 1. Learns from a log and never goes on to act. 2. One critic, where the authors take the smaller of two. 3. Actions
are discrete, so the expectation over the policy is a sum over the valid ones and not sampled. 4. Weights are clipped at
``max_weight`` and not normalised over the batch. 5. Both networks take their step at once. 6. A log of few distinct
transitions is one weighted batch: the gradient of all data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, SeedsTraining, Training, require_rewards
from .fields import max_weight_param, temperature_param
from .neural_config import VALUE_METRICS, NeuralConfig, alone, require_torch, target_update_param

if TYPE_CHECKING:
    from torch import Tensor

    from .networks import Tables, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class AwacNeuralConfig(NeuralConfig):
    """Parameters of the advantage-weighted actor-critic."""

    temperature: float = temperature_param(0.1, "λ", "Nair et al. 2020, equation (13)")
    max_weight: float = max_weight_param(
        "No row counts more than this many times as much as one that is as good as the policy."
    )
    target_update_rate: float = target_update_param()


def train(
    dataset: Dataset, config: AwacNeuralConfig, *, seed: int, resume_from: Mapping[str, Any] | None = None
) -> Training:
    """Train one seed."""
    return alone(train_seeds, dataset, config, seed, resume_from)


def train_seeds(
    dataset: Dataset,
    config: AwacNeuralConfig,
    *,
    seeds: Sequence[int],
    resume_from: Sequence[Mapping[str, Any]] | None = None,
) -> SeedsTraining:
    """Gradient steps on critic and policy, for all seeds at once."""
    require_rewards(dataset)
    require_torch()
    from . import networks
    from .networks import cross_entropy, rows_of, squared_error

    experience = networks.Experience(dataset, config, len(seeds))
    network = networks.Network(experience.n_features, dataset.n_actions, config)  # the shape of both
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
        {"q": network, "policy": network},
        look,
        targets=["q"],
        resume_from=resume_from,
    )
    online, target, policy = learner.weights["q"], learner.targets["q"], learner.weights["policy"]
    while learner.learning:
        for batch in experience.batches(learner.generators, learner.n_until_report):
            next_logits = network(policy, batch.next_inputs) + rows_of(excluded, batch.next_states)  # (K, R', A)
            v_values = (next_logits.softmax(dim=2) * network(target, batch.next_inputs)).sum(dim=2)  # (K, R')
            targets = batch.rewards + batch.discounts * v_values.gather(1, batch.there)  # (K, B)
            fit = network.evaluate(online, batch.inputs)
            bellman = squared_error(fit.outputs, batch.pairs, targets, batch.value_weights)

            copy = network.evaluate(policy, batch.inputs)
            logits = copy.outputs + rows_of(excluded, batch.states)  # (K, R, A)
            expected = (logits.softmax(dim=2) * fit.outputs).sum(dim=2)  # (K, R)
            advantages = fit.outputs.flatten(1).gather(1, batch.pairs) - expected.gather(1, batch.here)  # (K, B)
            merit = (advantages / config.temperature).clamp(max=math.log(config.max_weight)).exp()
            imitation = cross_entropy(logits, batch.here, batch.pairs, batch.weights * merit)

            learner.descend(
                {
                    "q": network.gradient(online, fit, bellman.outward),
                    "policy": network.gradient(policy, copy, imitation.outward),
                },
                bellman_loss=bellman.value,
                policy_loss=imitation.value,
            )
            learner.follow(config.target_update_rate)
        report = learner.report()
        if any(report):
            yield report
    return learner.models()


SPEC = AlgorithmSpec(
    name="awac_neural",
    title="Copy what beats the policy, with networks (neural AWAC)",
    short="Neural AWAC",
    summary="One network judges the policy; the policy copies the log, more often where an action beats it.",
    config_class=AwacNeuralConfig,
    train=train,
    train_seeds=train_seeds,
    metrics={
        "bellman_loss": "half the mean squared difference between Q and its target, reward units squared",
        "policy_loss": "weighted mean of minus the log probability of the logged action",
        **VALUE_METRICS,
    },
    unit="gradient step",
    equation=r"\max_\theta \mathbb{E}_D\big[e^{(Q(s,a) - V^{\pi}(s))/\lambda} \log \pi_\theta(a \mid s)\big],\quad "
    r"V^{\pi}(s) = \textstyle\sum_a \pi_\theta(a \mid s)\, Q(s,a)",
    source="Nair et al. 2020, equations (12) and (13)",
    differs=(
        "learns from a log and never goes on to act",
        "one critic; the authors take the smaller of two",
        "the expectation over the policy is a sum over valid actions, not sampled",
        "weights are clipped, and not normalised over the batch",
        "both networks take their step at once",
        "a log of few distinct transitions is one weighted batch, the gradient of all data",
    ),
    kind="network",
    instant=False,
    resumable=True,
)
