r"""Fitted Q evaluation with a small network: what a given policy is worth, pair by pair. It judges; it learns no policy.

Each gradient step lowers, over a batch of logged transitions,

    (Q(s,a) - y)^2 / 2,      y = r + gamma sum_a' pi_e(a'|s') Q_target(s',a')

Source: Le, Voloshin & Yue (2019), "Batch policy learning under constraints", ICML, algorithm 3.

Differs: 1. Gradient steps towards a slowly moving target, where the paper fits to the end in every round. 2. A log of few
distinct transitions is one weighted batch: the gradient of all data. 3. Rows whose reward or successor is unknown teach nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import FloatArray, check_shape
from ..dataset import Dataset
from ..interfaces import SeedsTraining, require_rewards
from .neural_config import NeuralConfig, require_torch, target_update_param

if TYPE_CHECKING:
    from torch import Tensor

    from .networks import Tables, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class FqeNeuralConfig(NeuralConfig):
    """Parameters of fitted Q evaluation with a network."""

    target_update_rate: float = target_update_param()


def judge_seeds(
    dataset: Dataset, probabilities: FloatArray, config: FqeNeuralConfig, *, seeds: Sequence[int]
) -> SeedsTraining:
    """Gradient steps on the Bellman error of a policy, for all seeds at once.

    Args:
        dataset: the log that judges.
        probabilities: (S, A) of the evaluation policy on its states and actions.
        config: parameters.
        seeds: of the networks.

    Returns:
        Models with the policy as it was given and the ``q_values`` of each seed.
    """
    require_rewards(dataset)
    require_torch()
    check_shape("probabilities", probabilities, (dataset.n_states, dataset.n_actions))
    import torch

    from . import networks
    from .networks import rows_of, squared_error

    experience = networks.Experience(dataset, config, len(seeds))
    q_network = networks.Network(experience.n_features, dataset.n_actions, config)
    policy = torch.from_numpy(probabilities.astype(np.float32))  # (S, A)

    def look(weights: Mapping[str, Weights], states: Tensor) -> Tables:
        q_values = q_network(weights["q"], experience.features_of(states)).double().numpy()
        return networks.Tables(np.broadcast_to(probabilities[states.numpy()], q_values.shape), q_values)

    learner = networks.Seeds(dataset, experience, config, seeds, {"q": q_network}, look, targets=["q"])
    online, target = learner.weights["q"], learner.targets["q"]
    while learner.learning:
        for batch in experience.batches(learner.generators, learner.n_until_report):
            following = q_network(target, batch.next_inputs)  # (K, R', A)
            v_values = (rows_of(policy, batch.next_states) * following).sum(2)
            targets = batch.rewards + batch.discounts * v_values.gather(1, batch.there)  # (K, B)
            fit = q_network.evaluate(online, batch.inputs)
            bellman = squared_error(fit.outputs, batch.pairs, targets, batch.value_weights)
            learner.descend({"q": q_network.gradient(online, fit, bellman.outward)}, bellman_loss=bellman.value)
            learner.follow(config.target_update_rate)
        report = learner.report()
        if any(report):
            yield report
    return learner.models()
