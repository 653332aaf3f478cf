"""How a training went, as curves: what the learner reported, and what its policy and values were worth at every key frame.

A learner sees the log only; everything exact here is added from outside, by judging its key frames in the world behind the
log. Several seeds make a band: their median and their range, up to the last step that all of them have reached: where a seed
is missing from then on, the median would jump without anything having been learned.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..arrays import FloatArray, IntArray
from ..behavior import behavior_policy
from ..dataset import Dataset
from ..history import Event, is_key_frame
from ..interfaces import Progress
from ..mdp import policy_values
from ..policies import TabularPolicy, greedy_probabilities
from ..worlds import make_world
from .exact import KeyView, world_model

# What is known of every learner's key frames. Networks report the first four at every sign of life.
FRAME_MEASURES = {
    "q_logged": "mean learned Q over the pairs that the log shows, reward units",
    "q_unsupported": "mean learned Q over the valid pairs that the log doesn't support, reward units",
    "unsupported_share": "share of the states in which the most probable action is unsupported",
    "n_actions_used": "number of different actions that are most probable in some state",
    "true_q_logged": "mean exact Q of the policy of that moment over the pairs that the log shows, reward units",
    "true_q_unsupported": "the same over the valid pairs that the log doesn't support, reward units",
    "success_rate": "exact probability that an episode of that policy solves its task",
}
MAX_POINTS = 2000  # of all curves of a figure together, about
MIN_POINTS = 40  # of a single curve


class Series(NamedTuple):
    """Values over steps: (T,) each, steps rising."""

    steps: IntArray
    values: FloatArray


class FrameJudge:
    """Judges key frames of trainings on one dataset; what they have in common is worked out once.

    A policy that didn't change between two frames is judged once: after a while most don't. Learned and exact values are
    means over the same pairs, so that they can be compared: where a deployment never comes, nothing is exact.

    Attributes:
        min_count: from how many rows on a pair counts as supported.
        n_pairs: valid pairs of the dataset.
        n_compared: those of them that the means run over.
        recounts: measures that a learner may report itself, but over other pairs than these.
    """

    def __init__(self, dataset: Dataset, deployment: str = "works", min_count: int = 1) -> None:
        """Say on what and where.

        Args:
            dataset: what is trained on.
            deployment: hidden truth of the world behind the log; without a world nothing is exact.
            min_count: from how many rows on a pair counts as supported.
        """
        self._dataset = dataset
        support = dataset.support_mask(min_count)
        compared = dataset.valid_mask
        source = dataset.log.source
        self._model = world_model(source.world, deployment) if source else None
        if source and self._model:
            behavior = behavior_policy(make_world(source.world), source.behavior)
            self._view = KeyView(self._model, dataset.states, dataset.actions, behavior)
            compared = compared & ~np.isnan(self._view.table(np.zeros_like(self._model.mdp.rewards)))
        self._logged = compared & dataset.support_mask(1)
        self._unsupported = compared & ~support
        self._support = support
        self._known: dict[bytes, dict[str, float]] = {}
        self.min_count = min_count
        self.n_pairs, self.n_compared = int(dataset.valid_mask.sum()), int(compared.sum())
        self.recounts: frozenset[str] = frozenset()
        if self.n_compared < self.n_pairs:
            self.recounts = frozenset({"q_logged", "q_unsupported"})
        if min_count > 1:  # networks count every logged pair as supported
            self.recounts = frozenset(FRAME_MEASURES)

    def judge(self, frame: Progress) -> dict[str, float]:
        """Measures of a key frame (see ``FRAME_MEASURES``); those that can't be known are left out."""
        found: dict[str, float] = {}
        if frame.q_values is not None:
            found |= self._means("q", frame.q_values)
        probabilities = self._policy(frame)
        if probabilities is None:
            return found
        greedy = probabilities.argmax(axis=1)
        found["unsupported_share"] = float((~self._support[np.arange(len(greedy)), greedy]).mean())
        found["n_actions_used"] = float(len(np.unique(greedy)))
        return found | self._truth(probabilities)

    def _means(self, name: str, table: FloatArray) -> dict[str, float]:
        """Means over logged and over unsupported pairs; what no number stands behind is left out."""
        found = {}
        for group, pairs in (("logged", self._logged), ("unsupported", self._unsupported)):
            values = table[pairs & ~np.isnan(table)]
            if len(values):
                with np.errstate(over="ignore", invalid="ignore"):  # values that explode are told as they are
                    found[f"{name}_{group}"] = float(values.mean())
        return found

    def _policy(self, frame: Progress) -> FloatArray | None:
        if frame.probabilities is not None:
            return frame.probabilities
        if frame.q_values is None:
            return None
        return greedy_probabilities(frame.q_values, ~np.isnan(frame.q_values), self._dataset.valid_mask)

    def _truth(self, probabilities: FloatArray) -> dict[str, float]:
        if self._model is None:
            return {}
        key = probabilities.tobytes()
        if key not in self._known:
            while len(self._known) >= 256:
                del self._known[next(iter(self._known))]
            self._known[key] = self._judged(probabilities)
        return self._known[key]

    def _judged(self, probabilities: FloatArray) -> dict[str, float]:
        assert self._model is not None
        model, dataset = self._model, self._dataset
        policy = TabularPolicy(states=dataset.states, actions=dataset.actions, probabilities=probabilities)
        chosen = model.probabilities(policy)
        values = policy_values(model.mdp, chosen, dataset.discount)
        solved = policy_values(model.mdp, chosen, 1.0, rewards=model.successes)
        exact = np.where(dataset.valid_mask, self._view.table(model.mdp.backup(values, dataset.discount)), np.nan)
        return {"success_rate": float(model.starts @ solved), **self._means("true_q", exact)}


class Track:
    """The curves of one run, growing with what it reports. May be fed and read by several threads."""

    def __init__(self, judge: FrameJudge | None, frames_between: int = 1) -> None:
        """Nothing is known yet.

        Args:
            judge: of its key frames; None where only what the learner told itself is to be known.
            frames_between: every how many key frames one is judged; more than 1 where many seeds run.
        """
        self._judge, self._stride = judge, frames_between
        self._lock = threading.Lock()
        self._n_frames = 0
        self._points: dict[str, dict[int, float]] = {}
        self.n_seen = 0

    def follow(self, events: Iterable[Event]) -> None:
        """Take in what was reported since; what was taken in already is passed over."""
        with self._lock:
            for event in events:
                if event.number > self.n_seen:
                    self._take(event.progress)
                    self.n_seen = event.number

    def _take(self, progress: Progress) -> None:
        recounts = self._judge.recounts if self._judge is not None else frozenset()
        measures = {name: value for name, value in progress.metrics.items() if name not in recounts}
        if self._judge is not None and is_key_frame(progress):
            self._n_frames += 1
            if self._n_frames % self._stride == 0 or progress.step == progress.total:
                measures |= self._judge.judge(progress)
        for name, value in measures.items():
            self._points.setdefault(name, {})[progress.step] = float(value)

    def series(self) -> dict[str, Series]:
        """Every measure that was ever told."""
        with self._lock:
            return {
                name: Series(np.fromiter(points.keys(), np.int64), np.fromiter(points.values(), float))
                for name, points in self._points.items()
            }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Band:
    """One measure over the seeds of a training.

    Attributes:
        steps: (T,) rising.
        singles: (K, T) one row per seed; NaN where a seed tells nothing, or no finite number.
        median, low, high: (T,) over the seeds that tell something; NaN where none does, and behind the last step that all of
            them have reached.
    """

    steps: IntArray
    singles: FloatArray
    median: FloatArray
    low: FloatArray
    high: FloatArray


def bands_of(tracks: Sequence[Track]) -> dict[str, Band]:
    """Measure -> its band over several runs that differ in the seed."""
    every = [series for track in tracks if (series := track.series())]
    names = dict.fromkeys(name for series in every for name in series)
    reached = min((max(int(one.steps[-1]) for one in series.values()) for series in every), default=0)
    return {name: _band([series[name] for series in every if name in series], len(tracks), reached) for name in names}


def _band(series: Sequence[Series], n_seeds: int, reached: int) -> Band:
    steps = np.unique(np.concatenate([one.steps for one in series]))
    most = max(MIN_POINTS, MAX_POINTS // (n_seeds + 3))
    if len(steps) > most:  # evenly over the number of points, and always the last one
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, most).round().astype(int))]
    singles = np.full((len(series), len(steps)), np.nan)
    for row, one in zip(singles, series, strict=True):
        places = np.searchsorted(steps, one.steps)
        there = (places < len(steps)) & (steps[np.minimum(places, len(steps) - 1)] == one.steps)
        there &= np.isfinite(one.values)
        row[places[there]] = one.values[there]
    common = {name: np.where(steps <= reached, values, np.nan) for name, values in _spread(singles).items()}
    return Band(steps=steps, singles=singles, **common)


def _spread(singles: FloatArray) -> dict[str, FloatArray]:
    """Median and range of each column, NaN left out; without NaN, which is usual, much quicker."""
    if len(singles) == 1:
        return dict.fromkeys(("median", "low", "high"), singles[0])
    if not np.isnan(singles).any():
        return {"median": np.median(singles, axis=0), "low": singles.min(axis=0), "high": singles.max(axis=0)}
    told = ~np.isnan(singles).all(axis=0)
    spread = {name: np.full(singles.shape[1], np.nan) for name in ("median", "low", "high")}
    if told.any():
        for name, of in (("median", np.nanmedian), ("low", np.nanmin), ("high", np.nanmax)):
            spread[name][told] = of(singles[:, told], axis=0)
    return spread


def curves_table(tracks: Mapping[int, Track]) -> pd.DataFrame:
    """Everything as it was told: one row per seed and step, one column per measure; NaN where nothing was."""
    parts = []
    for seed, track in tracks.items():
        columns = {name: pd.Series(s.values, index=s.steps) for name, s in track.series().items()}
        if columns:
            parts.append(pd.DataFrame(columns).sort_index().rename_axis("step").reset_index().assign(seed=seed))
    if not parts:
        return pd.DataFrame({"seed": [], "step": []})
    table = pd.concat(parts, ignore_index=True)
    return table[["seed", "step", *(name for name in table if name not in ("seed", "step"))]]


def explodes(values: FloatArray, dataset: Dataset) -> bool:
    """Whether learned values leave what an episode of the log could add up to by so much that a plain axis hides the rest:
    ten times the largest reward in every step of its longest episode (at most 1 / (1 - γ) steps count).
    """
    finite = np.abs(values[np.isfinite(values)])
    if not len(finite) or not dataset.has_rewards:
        return False
    largest = float(np.abs(dataset.reward_range).max())
    steps = float(np.bincount(dataset.episodes).max(initial=1))
    if dataset.discount < 1:
        steps = min(steps, 1 / (1 - dataset.discount))
    return float(finite.max()) > 10 * max(largest, 1e-9) * steps
