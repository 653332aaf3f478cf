r"""Fitted Q iteration with a small network: chase the best value, wherever the network believes it to be.

Each gradient step lowers, over a batch of logged transitions,

    (Q(s,a) - y)^2 / 2,      y = r + gamma Q_target(s', argmax_a' Q(s',a'))

No row ever corrects the value of an action that the log doesn't show; the network makes one up, differently for each seed,
and the maximum believes it. That is extrapolation error, and what the other learners are about.

Source: van Hasselt, Guez & Silver (2016), "Deep reinforcement learning with double Q-learning", AAAI, section "Double DQN",
on a fixed log; the idea of fitting networks to Bellman targets of a log is that of Riedmiller (2005), "Neural fitted Q
iteration", ECML.

Differs: 1. learns from a log and never acts. 2. The target network follows a little at each step, where the paper copies it
now and then. 3. The maximum runs over valid actions unless asked otherwise. 4. Squared errors aren't clipped. 5. A log of few
distinct transitions is one weighted batch: the gradient of all data.
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
class FqiNeuralConfig(NeuralConfig):
    """Parameters of fitted Q iteration with a network."""

    maximum: str = maximum_param("valid", "supported", "all")
    target_update_rate: float = target_update_param()
    chosen_by: str = param(
        "learned",
        label="Next action chosen by",
        help="Who picks the action that the target network then values; one network for both overestimates more.",
        choices=(("learned", "the learned network (double Q)"), ("target", "the target network")),
        source="van Hasselt et al. 2016",
    )


def train(
    dataset: Dataset, config: FqiNeuralConfig, *, seed: int, resume_from: Mapping[str, Any] | None = None
) -> Training:
    """Train one seed."""
    return alone(train_seeds, dataset, config, seed, resume_from)


def train_seeds(
    dataset: Dataset,
    config: FqiNeuralConfig,
    *,
    seeds: Sequence[int],
    resume_from: Sequence[Mapping[str, Any]] | None = None,
) -> SeedsTraining:
    """Gradient steps on the Bellman error, for all seeds at once."""
    require_rewards(dataset)
    require_torch()
    from . import networks
    from .networks import rows_of, squared_error

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
            valued = q_network(target, batch.next_inputs)  # (K, R', A)
            judged = q_network(online, batch.next_inputs) if config.chosen_by == "learned" else valued
            best = (judged + rows_of(excluded, batch.next_states)).argmax(dim=2, keepdim=True)
            v_values = valued.gather(2, best).squeeze(2)  # (K, R')
            targets = batch.rewards + batch.discounts * v_values.gather(1, batch.there)  # (K, B)
            fit = q_network.evaluate(online, batch.inputs)
            bellman = squared_error(fit.outputs, batch.pairs, targets, batch.value_weights)
            learner.descend({"q": q_network.gradient(online, fit, bellman.outward)}, bellman_loss=bellman.value)
            learner.follow(config.target_update_rate)
        report = learner.report()
        if any(report):
            yield report
    return learner.models()


SPEC = AlgorithmSpec(
    name="fqi_neural",
    title="Chase the best value, with a network (neural FQI)",
    short="Neural FQI",
    summary="A small network fits the values; what it makes up for actions the log never shows competes with data.",
    config_class=FqiNeuralConfig,
    train=train,
    train_seeds=train_seeds,
    metrics={
        "bellman_loss": "half the mean squared difference between Q and its target, reward units squared",
        **VALUE_METRICS,
    },
    unit="gradient step",
    equation=r"\min_\theta \tfrac12 \mathbb{E}_D\big[(Q_\theta(s,a) - r - \gamma\, "
    r"Q_{\bar\theta}(s', \arg\max_{a'} Q_\theta(s',a')))^2\big]",
    source="van Hasselt et al. 2016, double DQN, on a fixed log",
    differs=(
        "learns from a log and never acts",
        "the target network follows a little at each step",
        "the maximum runs over valid actions unless asked otherwise",
        "squared errors aren't clipped",
        "a log of few distinct transitions is one weighted batch, the gradient of all data",
    ),
    kind="network",
    instant=False,
    resumable=True,
)
