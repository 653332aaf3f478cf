r"""Conservative Q-learning with a small network: fit the Bellman target, and push down what the log doesn't show.

Each gradient step lowers, over a batch of logged transitions,

    (Q(s,a) - y)^2 / 2  +  alpha ( log sum_a' exp Q(s,a') - Q(s,a) ),      y = r + gamma Q_target(s', argmax_a' Q(s',a'))

Source: Kumar, Zhou, Tucker & Levine (2020), "Conservative Q-learning for offline reinforcement learning", NeurIPS, equation
(4), variant CQL(H); the target is that of van Hasselt, Guez & Silver (2016), "Deep reinforcement learning with double
Q-learning", AAAI.

Differs: 1. A fixed weight of the penalty, where the paper may tune it to a budget. 2. The sum and the maximum run over valid
actions unless asked otherwise. 3. A log of few distinct transitions is one weighted batch: the gradient of all data. 4. Rows
whose reward or successor is unknown count in the penalty only.
"""

from __future__ import annotations

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
class CqlNeuralConfig(NeuralConfig):
    """Parameters of conservative Q-learning with a network."""

    conservative_weight: float = param(
        1.0,
        label="Caution",
        help="Weight of the penalty on actions the log rarely shows; 0 is plain fitted Q iteration with a network.",
        symbol="α",
        low=0.0,
        high=100.0,
        step=0.05,
        source="Kumar et al. 2020, equation (4)",
    )
    target_update_rate: float = target_update_param()
    maximum: str = maximum_param("valid", "all")


def train(
    dataset: Dataset, config: CqlNeuralConfig, *, seed: int, resume_from: Mapping[str, Any] | None = None
) -> Training:
    """Train one seed."""
    return alone(train_seeds, dataset, config, seed, resume_from)


def train_seeds(
    dataset: Dataset,
    config: CqlNeuralConfig,
    *,
    seeds: Sequence[int],
    resume_from: Sequence[Mapping[str, Any]] | None = None,
) -> SeedsTraining:
    """Gradient steps on the penalised fit, for all seeds at once."""
    require_rewards(dataset)
    require_torch()
    from . import networks
    from .networks import cross_entropy, rows_of, squared_error

    experience = networks.Experience(dataset, config, len(seeds))
    q_network = networks.Network(experience.n_features, dataset.n_actions, config)
    choosable = networks.choosable_pairs(dataset, config.maximum)
    excluded = networks.log_mask(choosable)  # (S, A)

    def look(weights: Mapping[str, Weights], states: Tensor) -> Tables:
        q_values = q_network(weights["q"], experience.features_of(states))
        return networks.greedy_tables(q_values, choosable[states.numpy()])

    learner = networks.Seeds(
        dataset,
        experience,
        config,
        seeds,
        {"q": q_network},
        look,
        choosable=choosable,
        targets=["q"],
        resume_from=resume_from,
    )
    online, target = learner.weights["q"], learner.targets["q"]
    while learner.learning:
        for batch in experience.batches(learner.generators, learner.n_until_report):
            following = q_network(online, batch.next_inputs) + rows_of(excluded, batch.next_states)  # (K, R', A)
            best = following.argmax(dim=2, keepdim=True)
            v_values = q_network(target, batch.next_inputs).gather(2, best).squeeze(2)  # (K, R')
            targets = batch.rewards + batch.discounts * v_values.gather(1, batch.there)  # (K, B)
            fit = q_network.evaluate(online, batch.inputs)
            bellman = squared_error(fit.outputs, batch.pairs, targets, batch.value_weights)
            # log sum exp Q - Q(s,a) is minus the log probability of a under a softmax of Q.
            preferences = fit.outputs + rows_of(excluded, batch.states)  # (K, R, A)
            penalty = cross_entropy(preferences, batch.here, batch.pairs, batch.weights)
            outward = bellman.outward + config.conservative_weight * penalty.outward
            gradient = q_network.gradient(online, fit, outward)
            learner.descend({"q": gradient}, bellman_loss=bellman.value, penalty=penalty.value)
            learner.follow(config.target_update_rate)
        report = learner.report()
        if any(report):
            yield report
    return learner.models()


SPEC = AlgorithmSpec(
    name="cql_neural",
    title="Be careful beyond the log, with a network (neural CQL)",
    short="Neural CQL",
    summary="A small network fits the values, with a penalty that lowers what the log rarely shows.",
    config_class=CqlNeuralConfig,
    train=train,
    train_seeds=train_seeds,
    metrics={
        "bellman_loss": "half the mean squared difference between Q and its target, reward units squared",
        "penalty": "mean over the batch of logsumexp Q minus the logged action's Q, reward units",
        **VALUE_METRICS,
    },
    unit="gradient step",
    equation=r"\min_\theta \tfrac12 \mathbb{E}_D[(Q_\theta - y)^2] + \alpha\, "
    r"\mathbb{E}_D[\log\textstyle\sum_a e^{Q_\theta(s,a)} - Q_\theta(s,a_D)]",
    source="Kumar et al. 2020, equation (4), CQL(H), with the target of van Hasselt et al. 2016",
    differs=(
        "a fixed weight of the penalty",
        "sum and maximum run over valid actions unless asked otherwise",
        "a log of few distinct transitions is one weighted batch, the gradient of all data",
        "rows whose reward or successor is unknown count in the penalty only",
    ),
    kind="network",
    instant=False,
    resumable=True,
)
