"""What the small networks share without importing torch: their parameters, their metrics, and the way from one seed to many."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ..dataset import Dataset
from ..errors import NotPossible
from ..interfaces import SeedsTraining, Training
from ..params import param

VALUE_METRICS = {
    "q_logged": "mean Q over the pairs that the log shows, reward units",
    "q_unsupported": "mean Q over valid pairs that the log never shows, reward units; left out where there are none",
    "unsupported_share": "share of the states whose most probable action the log never shows there",
    "n_actions_used": "number of different actions that are most probable in some state",
    "beyond_reach": "how far state values lie outside what discounted rewards can add up to, reward units",
}
POLICY_METRICS = {name: VALUE_METRICS[name] for name in ("unsupported_share", "n_actions_used")}


@dataclass(frozen=True, slots=True, kw_only=True)
class NeuralConfig:
    """Parameters that every small network has."""

    n_steps: int = param(
        2000, label="Steps", help="Gradient steps.", low=1, high=100_000, step=100, unit="gradient steps"
    )
    learning_rate: float = param(
        1e-3, label="Learning rate", help="Step size of Adam.", symbol="η", low=1e-6, high=1.0, step=1e-4
    )
    hidden_size: int = param(
        64,
        label="Units per hidden layer",
        help="Width of the network; rounded up to a multiple of 16.",
        low=16,
        high=512,
        step=16,
    )
    n_hidden_layers: int = param(
        2, label="Hidden layers", help="Layers between input and output; 0 is a linear model.", low=0, high=4, step=1
    )
    batch: str = param(
        "auto",
        label="Learns from",
        help="A log of few distinct transitions fits into one batch: the exact gradient of all data. Else rows are drawn.",
        choices=(
            ("auto", "all of it where it is small"),
            ("weighted", "every distinct transition, weighted"),
            ("minibatch", "rows drawn at random"),
        ),
    )
    batch_size: int = param(
        256,
        label="Rows per batch",
        help="Only where rows are drawn.",
        low=1,
        high=4096,
        step=32,
        unit="rows",
    )
    features: str = param(
        "auto",
        label="Sees of a state",
        help="One number per state turns the network into a table; numbers that states share let it generalise.",
        choices=(
            ("auto", "the world's numbers, where there are any"),
            ("world", "the world's numbers"),
            ("keys", "one number per state"),
            ("parts", "one number per part of the state's name"),
        ),
    )


def target_update_param() -> Any:
    """Field for how fast target networks follow."""
    return param(
        0.01,
        label="Target follows by",
        help="Share of the way that the target network moves towards the learned one at each step; 1 is no target network.",
        symbol="τ",
        low=0.0001,
        high=1.0,
        step=0.005,
        source="Lillicrap et al. 2016, algorithm 1",
    )


def require_torch() -> None:
    """Refuse to train a network where nothing can; in the same words for all learners, so that pages say it once.

    Raises:
        NotPossible: PyTorch isn't installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise NotPossible(
            "Training a network needs PyTorch, which is not installed here. "
            "Get it with: pip install torch==2.13.0. All tables work without it."
        )


def alone(
    train_seeds: Callable[..., SeedsTraining],
    dataset: Dataset,
    config: NeuralConfig,
    seed: int,
    resume_from: Mapping[str, Any] | None,
) -> Training:
    """The training of one seed, as a batch of one."""
    states = None if resume_from is None else [resume_from]
    with closing(train_seeds(dataset, config, seeds=[seed], resume_from=states)) as training:
        while True:
            try:
                (progress,) = next(training)
            except StopIteration as finished:
                (model,) = finished.value
                return model
            assert progress is not None  # where the only seed has ended, all have
            yield progress
