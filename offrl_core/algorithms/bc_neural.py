r"""Behavior cloning with a small network: a classifier that says which action the log takes.

Each gradient step raises the mean log probability of the logged actions, over a batch,

    max  E_D[ log pi(a|s) ]

Rewards play no part. In states that share features, what is learned in one spreads to the other; that is the difference to a
table.

Source: Pomerleau (1991), "Efficient training of artificial neural networks for autonomous navigation", Neural Computation 3,
section 2 (supervised learning of logged actions), with the cross-entropy of a softmax.

Differs: 1. actions are discrete: a softmax over the valid ones. 2. A log of few distinct transitions is one weighted batch: the
gradient of all data. 3. Picks the most probable action unless asked for the probabilities themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, SeedsTraining, Training
from ..params import param
from .neural_config import POLICY_METRICS, NeuralConfig, alone, require_torch

if TYPE_CHECKING:
    from torch import Tensor

    from .networks import Tables, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class BcNeuralConfig(NeuralConfig):
    """Parameters of behavior cloning with a network."""

    imitate: str = param(
        "majority",
        label="Imitates",
        help="Pick the most probable action of a state, or act with the probabilities that were learned.",
        choices=(("majority", "the most frequent action"), ("frequencies", "the log's frequencies")),
    )


def train(
    dataset: Dataset, config: BcNeuralConfig, *, seed: int, resume_from: Mapping[str, Any] | None = None
) -> Training:
    """Train one seed."""
    return alone(train_seeds, dataset, config, seed, resume_from)


def train_seeds(
    dataset: Dataset,
    config: BcNeuralConfig,
    *,
    seeds: Sequence[int],
    resume_from: Sequence[Mapping[str, Any]] | None = None,
) -> SeedsTraining:
    """Gradient steps on the cross-entropy, for all seeds at once."""
    require_torch()
    from . import networks
    from .networks import cross_entropy, rows_of

    experience = networks.Experience(dataset, config, len(seeds))
    policy_network = networks.Network(experience.n_features, dataset.n_actions, config)
    excluded = networks.log_mask(dataset.valid_mask)  # (S, A)

    def look(weights: Mapping[str, Weights], states: Tensor) -> Tables:
        logits = policy_network(weights["policy"], experience.features_of(states)) + excluded[states]
        if config.imitate == "majority":
            return networks.Tables(networks.one_hot(logits.argmax(dim=2), dataset.n_actions))
        return networks.Tables(networks.softmax(logits))

    learner = networks.Seeds(
        dataset, experience, config, seeds, {"policy": policy_network}, look, resume_from=resume_from
    )
    policy = learner.weights["policy"]
    while learner.learning:
        for batch in experience.batches(learner.generators, learner.n_until_report):
            fit = policy_network.evaluate(policy, batch.inputs)
            logits = fit.outputs + rows_of(excluded, batch.states)  # (K, R, A)
            imitation = cross_entropy(logits, batch.here, batch.pairs, batch.weights)
            gradient = policy_network.gradient(policy, fit, imitation.outward)
            learner.descend({"policy": gradient}, imitation_loss=imitation.value)
        report = learner.report()
        if any(report):
            yield report
    return learner.models()


SPEC = AlgorithmSpec(
    name="bc_neural",
    title="Imitate the log, with a network (neural BC)",
    short="Neural BC",
    summary="A small network learns which action the log takes; rewards play no part.",
    config_class=BcNeuralConfig,
    train=train,
    train_seeds=train_seeds,
    metrics={
        "imitation_loss": "mean over the batch of minus the log probability of the logged action",
        **POLICY_METRICS,
    },
    unit="gradient step",
    equation=r"\max_\theta \mathbb{E}_D[\log \pi_\theta(a \mid s)]",
    source="Pomerleau 1991, section 2, with a softmax over actions",
    differs=(
        "discrete actions: a softmax over the valid ones",
        "a log of few distinct transitions is one weighted batch, the gradient of all data",
        "picks the most probable action unless asked for the probabilities",
    ),
    kind="network",
    instant=False,
    resumable=True,
)
