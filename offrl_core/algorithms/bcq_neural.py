r"""Discrete batch-constrained Q-learning with small networks: the best value among actions that an imitator finds likely.

One network imitates the log, G(a|s); another fits the values. An action may be picked, and may stand for the next state,
where G(a|s) is at least ``threshold`` times the largest G of the state:

    (Q(s,a) - y)^2 / 2  -  log G(a|s),      y = r + gamma Q_target(s', a*),
    a* = argmax Q(s',a') over the a' with G(a'|s') >= threshold max_b G(b|s')

Source: Fujimoto, Conti, Ghavamzadeh & Pineau (2019), "Benchmarking batch deep reinforcement learning algorithms", algorithm 1.

Differs: 1. Two separate networks, where the paper's share their first layers. 2. No penalty on the size of the imitator's
logits. 3. The comparison is "at least" (the paper: "more than"), so that the likeliest action always competes. 4. The target
network follows a little at each step. 5. Squared errors aren't clipped. 6. Actions that aren't valid never compete unless
asked for. 7. A log of few distinct transitions is one weighted batch: the gradient of all data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, SeedsTraining, Training, require_rewards
from ..params import param
from .fields import maximum_param
from .neural_config import VALUE_METRICS, NeuralConfig, alone, require_torch, target_update_param

if TYPE_CHECKING:
    from torch import Tensor

    from .networks import Tables, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class BcqNeuralConfig(NeuralConfig):
    """Parameters of discrete batch-constrained Q-learning with networks."""

    threshold: float = param(
        0.3,
        label="Likely at least this much",
        help="Relative to the likeliest action of the state, as the imitating network sees it; 0 lets every action compete.",
        symbol="τ",
        low=0.0,
        high=1.0,
        step=0.05,
        unit="share",
        source="Fujimoto et al. 2019b, algorithm 1",
    )
    target_update_rate: float = target_update_param()
    maximum: str = maximum_param("valid", "all")


def train(
    dataset: Dataset, config: BcqNeuralConfig, *, seed: int, resume_from: Mapping[str, Any] | None = None
) -> Training:
    """Train one seed."""
    return alone(train_seeds, dataset, config, seed, resume_from)


def train_seeds(
    dataset: Dataset,
    config: BcqNeuralConfig,
    *,
    seeds: Sequence[int],
    resume_from: Sequence[Mapping[str, Any]] | None = None,
) -> SeedsTraining:
    """Gradient steps on imitation and constrained values, for all seeds at once."""
    require_rewards(dataset)
    require_torch()
    from . import networks
    from .networks import cross_entropy, rows_of, squared_error

    experience = networks.Experience(dataset, config, len(seeds))
    network = networks.Network(experience.n_features, dataset.n_actions, config)  # the shape of both
    choosable = networks.choosable_pairs(dataset, config.maximum)
    excluded = networks.log_mask(choosable)  # (S, A)
    least = math.log(config.threshold) if config.threshold else -math.inf

    def among_likely(q_values: Tensor, logits: Tensor) -> Tensor:
        """(K, R, A) values, minus infinity where the imitator finds an action too unlikely."""
        unlikely = logits - logits.amax(dim=2, keepdim=True) < least
        return q_values.masked_fill(unlikely | logits.isneginf(), -math.inf)

    def look(weights: Mapping[str, Weights], states: Tensor) -> Tables:
        inputs = experience.features_of(states)
        q_values = network(weights["q"], inputs)
        logits = network(weights["imitator"], inputs) + excluded[states]
        best = among_likely(q_values, logits).argmax(dim=2)
        return networks.Tables(networks.one_hot(best, dataset.n_actions), q_values.double().numpy())

    learner = networks.Seeds(
        dataset,
        experience,
        config,
        seeds,
        {"q": network, "imitator": network},
        look,
        choosable=choosable,
        targets=["q"],
        resume_from=resume_from,
    )
    online, target, imitator = learner.weights["q"], learner.targets["q"], learner.weights["imitator"]
    while learner.learning:
        for batch in experience.batches(learner.generators, learner.n_until_report):
            next_logits = network(imitator, batch.next_inputs) + rows_of(excluded, batch.next_states)  # (K, R', A)
            best = among_likely(network(online, batch.next_inputs), next_logits).argmax(dim=2, keepdim=True)
            v_values = network(target, batch.next_inputs).gather(2, best).squeeze(2)  # (K, R')
            targets = batch.rewards + batch.discounts * v_values.gather(1, batch.there)  # (K, B)
            fit = network.evaluate(online, batch.inputs)
            bellman = squared_error(fit.outputs, batch.pairs, targets, batch.value_weights)
            copy = network.evaluate(imitator, batch.inputs)
            logits = copy.outputs + rows_of(excluded, batch.states)
            imitation = cross_entropy(logits, batch.here, batch.pairs, batch.weights)
            learner.descend(
                {
                    "q": network.gradient(online, fit, bellman.outward),
                    "imitator": network.gradient(imitator, copy, imitation.outward),
                },
                bellman_loss=bellman.value,
                imitation_loss=imitation.value,
            )
            learner.follow(config.target_update_rate)
        report = learner.report()
        if any(report):
            yield report
    return learner.models()


SPEC = AlgorithmSpec(
    name="bcq_neural",
    title="Best value among likely actions, with networks (neural BCQ)",
    short="Neural BCQ",
    summary="One network imitates the log; another finds the best value among the actions that the first finds likely.",
    config_class=BcqNeuralConfig,
    train=train,
    train_seeds=train_seeds,
    metrics={
        "bellman_loss": "half the mean squared difference between Q and its target, reward units squared",
        "imitation_loss": "mean over the batch of minus the log probability that the imitator gives the logged action",
        **VALUE_METRICS,
    },
    unit="gradient step",
    equation=r"\min_\theta \tfrac12 \mathbb{E}_D\big[(Q_\theta(s,a) - r - \gamma\, Q_{\bar\theta}(s', a^*))^2\big],\quad "
    r"a^* = \arg\max_{a':\,G(a' \mid s') \ge \tau \max_b G(b \mid s')} Q_\theta(s',a')",
    source="Fujimoto et al. 2019b, algorithm 1",
    differs=(
        "two separate networks; the paper's share their first layers",
        "no penalty on the size of the imitator's logits",
        "at least the threshold, not more than it, so that the likeliest action always competes",
        "the target network follows a little at each step",
        "squared errors aren't clipped",
        "actions that aren't valid never compete unless asked for",
        "a log of few distinct transitions is one weighted batch, the gradient of all data",
    ),
    kind="network",
    instant=False,
    resumable=True,
)
