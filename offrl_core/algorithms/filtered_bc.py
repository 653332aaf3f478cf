"""Copy the best episodes only: behavior cloning after the log was sorted by outcome.

It is what supervised fine-tuning on successful traces does. It has no values: a good step of a failed episode is thrown
away, a lucky one of a solved episode is kept, and where no kept episode went it has learned nothing.

Source: Chen et al. (2021), "Decision transformer: reinforcement learning via sequence modeling", NeurIPS, section 5.1
(percentile behavior cloning).

Differs: 1. episodes with the same return as the last one kept are kept too, so that the order of the log decides nothing.
2. "Solved" keeps every episode that the framing calls solved. 3. Episodes of unknown return are left out. 4. The policy
is the table of counts, by default its most frequent action (first of equals); a state that no kept episode visits is
uniform over its valid actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import BoolArray, FloatArray
from ..dataset import Dataset
from ..errors import NotPossible
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training
from ..params import param
from ..policies import TabularPolicy, greedy_probabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredBcConfig:
    """Parameters of filtered behavior cloning."""

    keep: str = param(
        "return",
        label="Keeps",
        help="The episodes of the highest return, or those that were solved.",
        choices=(("return", "the best share by return"), ("solved", "solved episodes")),
    )
    keep_percent: float = param(
        10.0,
        label="Best share",
        help="Share of the episodes of known return that is kept, the best first (by return only); ties with the last are kept.",
        low=0.1,
        high=100.0,
        step=5.0,
        unit="%",
        source="Chen et al. 2021, section 5.1",
    )
    imitate: str = param(
        "majority",
        label="Imitates",
        help="The most frequent action of each state, or the frequencies themselves.",
        choices=(("majority", "the most frequent action"), ("frequencies", "the frequencies")),
    )


def train(dataset: Dataset, config: FilteredBcConfig, *, seed: int) -> Training:
    """Choose episodes, then count and normalise."""
    del seed  # counting draws nothing
    returns = dataset.episode_returns
    if np.isnan(returns).all():
        raise NotPossible(
            "Filtered behavior cloning ranks episodes by outcome, and no step of this log has a known reward that completes "
            "the return of its episode. Behavior cloning (bc) needs none; to filter, load a log with rewards."
        )
    kept = _kept(dataset, config)
    counts = _count(dataset, kept)
    if config.imitate == "majority":
        probabilities = greedy_probabilities(counts, counts > 0, dataset.valid_mask)
    else:
        weights = np.where(counts.any(axis=1, keepdims=True), counts, dataset.valid_mask)
        probabilities = weights / weights.sum(axis=1, keepdims=True)
    visited = dataset.visitation_counts.any(axis=1)
    kept_episodes = dataset.first_rows[kept[dataset.first_rows]]
    metrics = {
        "kept_share": len(kept_episodes) / dataset.n_episodes,
        "kept_return": float(returns[kept_episodes].mean()),
        "states_left": float((counts.sum(axis=1) > 0)[visited].mean()),
    }
    yield Progress(step=1, total=1, metrics=metrics)
    policy = TabularPolicy(states=dataset.states, actions=dataset.actions, probabilities=probabilities)
    return TrainedModel(policy=policy, q_values=None)


def _kept(dataset: Dataset, config: FilteredBcConfig) -> BoolArray:
    """(N,) rows of the episodes to copy."""
    if config.keep == "return":
        return np.greater_equal(dataset.episode_returns, _bar(dataset, config.keep_percent))
    solved: BoolArray = np.equal(dataset.episode_solved, 1)
    if not solved.any():
        raise NotPossible(
            "No episode of this log is known to be solved, so there is nothing to copy. "
            "Keep the best share by return instead, or change what the framing calls solved."
        )
    return solved


def _bar(dataset: Dataset, keep_percent: float) -> float:
    """Return of the last episode kept."""
    returns = dataset.episode_returns[dataset.first_rows]
    known = np.sort(returns[~np.isnan(returns)])[::-1]
    n_kept = max(1, int(np.ceil(len(known) * keep_percent / 100 - 1e-9)))
    return float(known[n_kept - 1])


def _count(dataset: Dataset, kept: BoolArray) -> FloatArray:
    """(S, A) rows of the kept episodes."""
    rows, shape = dataset.transitions(), dataset.valid_mask.shape
    pairs = rows.observations[kept] * shape[1] + rows.actions[kept]
    return np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)


SPEC = AlgorithmSpec(
    name="filtered_bc",
    title="Copy the best episodes (filtered or %BC)",
    short="Copy the best (%BC)",
    summary="Behavior cloning on the best episodes only, by return or solved: supervised fine-tuning on successes.",
    config_class=FilteredBcConfig,
    train=train,
    metrics={
        "kept_share": "share of the episodes that were kept",
        "kept_return": "mean return of the kept episodes, undiscounted, reward units",
        "states_left": "share of the visited states that a kept episode visits",
    },
    unit="pass",
    equation=r"\pi(a \mid s) = \frac{n_{kept}(s, a)}{\sum_b n_{kept}(s, b)},\quad kept: G_e \ge q_{1-x}",
    source="Chen et al. 2021, section 5.1",
    differs=(
        "episodes as good as the last one kept are kept too",
        "solved episodes can be kept instead of a share",
        "episodes of unknown return are left out",
        "a table; states that no kept episode visits are uniform over their valid actions",
    ),
)
