"""Behavior cloning: do in each state what the log does there. It has no values and asks for no rewards.

Source: Pomerleau (1991), "Efficient training of artificial neural networks for autonomous navigation"; in a table, the
maximum-likelihood policy is the action frequency, see Sutton & Barto (2018) for the notation.

Differs: 1. ``majority`` turns the frequencies into the single most frequent action (first of equals).
2. ``smoothing`` adds a pseudo-count to every valid action.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training
from ..params import param
from ..policies import TabularPolicy, greedy_probabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviorCloningConfig:
    """Parameters of behavior cloning."""

    imitate: str = param(
        "majority",
        label="Imitates",
        help="The most frequent action of each state, or the frequencies themselves.",
        choices=(("majority", "the most frequent action"), ("frequencies", "the frequencies")),
    )
    smoothing: float = param(
        0.0,
        label="Smoothing",
        help="Pseudo-count added to every valid action before the frequencies are taken (frequencies only).",
        low=0.0,
        high=100.0,
        step=0.5,
        unit="visits",
    )


def train(dataset: Dataset, config: BehaviorCloningConfig, *, seed: int) -> Training:
    """Count and normalise; a state without any row gets the uniform policy over its valid actions."""
    del seed  # counting draws nothing
    counts, valid = dataset.visitation_counts, dataset.valid_mask
    if config.imitate == "majority":
        probabilities = greedy_probabilities(counts.astype(float), counts > 0, valid)
    else:
        weights = counts + config.smoothing * valid
        weights = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, valid)
        probabilities = weights / weights.sum(axis=1, keepdims=True)
    seen = counts.sum(axis=1) > 0
    agreement = (probabilities * dataset.behavior_probabilities).sum(axis=1)[seen].mean()
    yield Progress(step=1, total=1, metrics={"agreement": float(agreement)})
    policy = TabularPolicy(states=dataset.states, actions=dataset.actions, probabilities=probabilities)
    return TrainedModel(policy=policy, q_values=None)


SPEC = AlgorithmSpec(
    name="bc",
    title="Copy the log (BC, behavior cloning)",
    short="Copy the log (BC)",
    summary="Does in each state what the log does there most often. No values, no rewards needed.",
    config_class=BehaviorCloningConfig,
    train=train,
    metrics={"agreement": "mean probability that it picks what the log picked, over states with data"},
    unit="pass",
    equation=r"\pi(a \mid s) = \frac{n(s, a)}{\sum_b n(s, b)}",
    source="Pomerleau 1991",
    differs=(
        "the majority action replaces the frequencies by default",
        "a pseudo-count can be added to every valid action",
    ),
)
