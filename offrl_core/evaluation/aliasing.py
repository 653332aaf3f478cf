"""What a framing hides: pairs whose same action leads to mixed outcomes, the part of the state that would tell them
apart, and what another framing does to the values.

The *outcome* of a step is the undiscounted sum of the framed rewards from there to the end of its episode; a step with an
unknown reward from there on has none. A pair is *mixed* when its lowest and highest outcome differ by more than
``TOLERANCE`` of the spread over the log, so that small per-step costs don't make every pair mixed. Where the episode ends
with the action, nothing else can explain the difference; elsewhere later actions have their share in it.

How much a key explains is judged on episodes that it wasn't fitted to, so that cutting the log into small pieces wins nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from ..arrays import BoolArray, FloatArray, IntArray
from ..dataset import Dataset
from ..framing import FramedLog, framed_log, steps_with_tools_used
from ..framing_choices import FramingChoices
from ..framing_offers import framing_offers
from ..framing_parts import (
    MAX_TOOLS_BACK,
    Choice,
    LastFailed,
    LastTools,
    StateField,
    StepNumber,
    Task,
    ToolsUsed,
    WorldState,
)
from ..interfaces import TrainedModel
from ..policies import table_of
from .diagnostics import promised_return

TOLERANCE = 0.05
FOLDS = 5
PRIOR = 1.0  # visits' worth of trust in the coarser key's mean, for keys that other episodes hardly show
_LEAST = 1e-150  # between two outcomes that can be told apart; squares of smaller distances are 0
MAX_LISTED = 200
MAX_SPLIT_ROWS = 200_000  # more steps are judged on a sample of whole episodes
MAX_FIELD_VALUES = 50
MAX_FIELDS = 8
WORTHWHILE = 0.01  # share of the error that a split has to remove to be offered
MAX_ALONE = 0.5  # a key that other episodes show more rarely than this is close to an id of the episode


class FramingNumbers(NamedTuple):
    """What a framing makes of a log."""

    n_states: int
    n_actions: int
    n_valid: int  # pairs
    n_seen: int  # valid pairs with a row
    n_supported: int  # valid pairs with at least min_count rows
    n_once: int  # valid pairs with one row

    @property
    def density(self) -> float:
        """Share of the valid pairs that the log shows."""
        return self.n_seen / self.n_valid

    @property
    def once(self) -> float:
        """Share of the pairs seen that were seen once."""
        return self.n_once / max(self.n_seen, 1)


def framing_numbers(dataset: Dataset, min_count: int = 1) -> FramingNumbers:
    """Count states, actions and pairs."""
    counts = dataset.visitation_counts[dataset.valid_mask]
    return FramingNumbers(
        dataset.n_states,
        dataset.n_actions,
        len(counts),
        int((counts > 0).sum()),
        int((counts >= min_count).sum()),
        int((counts == 1).sum()),
    )


# -- mixed outcomes ----------------------------------------------------------------------------------------------


class MixedOutcomes(NamedTuple):
    """Pairs whose same action leads to different outcomes.

    Attributes:
        pairs: the worst of the mixed pairs, at most ``MAX_LISTED``: state, action, visits (with a known outcome), lowest,
            mean, highest (outcome, reward units), ends (the episode ends with the action at each visit), share (of all
            variance inside pairs, the column it is ordered by).
        ending_pairs: the worst of those that end the episode at each visit, as ``pairs``.
        n_pairs: pairs with a known outcome.
        n_mixed: of these, mixed.
        n_visits: with a known outcome.
        mixed_visits: of these, on mixed pairs.
        n_ending: pairs that end the episode at each visit, outcome known.
        n_mixed_ending: of these, mixed.
        ending_visits: visits of all of them.
        mixed_ending_visits: of these, on mixed ones.
        left_open: mean squared error of predicting the outcome of a visit from its pair's mean in other episodes, as a
            share of the error without any key; None where outcomes don't vary or too few episodes have one.
    """

    pairs: pd.DataFrame
    ending_pairs: pd.DataFrame
    n_pairs: int
    n_mixed: int
    n_visits: int
    mixed_visits: int
    n_ending: int
    n_mixed_ending: int
    ending_visits: int
    mixed_ending_visits: int
    left_open: float | None


class _Visits(NamedTuple):
    """Kept rows with a known outcome."""

    places: IntArray  # (V,) in the log
    states: IntArray  # (V,) of the dataset
    actions: IntArray
    outcomes: FloatArray
    ends: BoolArray  # nothing follows
    folds: IntArray  # (V,) by episode

    def at(self, chosen: BoolArray | IntArray) -> _Visits:
        return _Visits._make(column[chosen] for column in self)


def mixed_outcomes(dataset: Dataset) -> MixedOutcomes:
    """Find the pairs whose same action leads to different outcomes."""
    visits = _known_visits(dataset)
    pairs, codes = _pairs(dataset, visits)
    groups = _summary(pairs, len(codes), visits)
    mixed = groups.highest - groups.lowest > _tolerated(visits)
    ending = groups.ends == groups.visits
    return MixedOutcomes(
        _worst(dataset, codes, groups, mixed),
        _worst(dataset, codes, groups, mixed & ending),
        len(codes),
        int(mixed.sum()),
        len(pairs),
        int(groups.visits[mixed].sum()),
        int(ending.sum()),
        int((mixed & ending).sum()),
        int(groups.visits[ending].sum()),
        int(groups.visits[mixed & ending].sum()),
        _left_open(pairs, visits),
    )


def _worst(dataset: Dataset, codes: IntArray, groups: _Summary, chosen: BoolArray) -> pd.DataFrame:
    worst = np.flatnonzero(chosen)[np.argsort(-groups.spread[chosen], kind="stable")][:MAX_LISTED]
    return pd.DataFrame(
        {
            "state": [dataset.states[s] for s in codes[worst] // dataset.n_actions],
            "action": [dataset.actions[a] for a in codes[worst] % dataset.n_actions],
            "visits": groups.visits[worst],
            "lowest": groups.lowest[worst],
            "mean": groups.mean[worst],
            "highest": groups.highest[worst],
            "ends": (groups.ends == groups.visits)[worst],
            "share": groups.spread[worst] / max(groups.spread.sum(), 1e-300),
        }
    )


def _known_visits(dataset: Dataset) -> _Visits:
    framed = framed_log(dataset.log, dataset.framing)
    rows, outcomes = dataset.transitions(), _outcomes(framed)[dataset.places]
    of_episode = np.random.default_rng(0).integers(FOLDS, size=int(framed.episodes.max()) + 1)
    visits = _Visits(
        dataset.places,
        rows.observations,
        rows.actions,
        outcomes,
        rows.next_observations < 0,
        of_episode[dataset.episodes],
    )
    return visits.at(~np.isnan(outcomes))


def _outcomes(framed: FramedLog) -> FloatArray:
    """(N,) sum of the framed rewards from each step to the end of its episode; NaN where one of them is unknown."""
    order = np.empty_like(framed.ranks)
    order[framed.ranks] = np.arange(len(order))
    rewards, episodes = framed.rows.rewards[order], framed.episodes[order]
    unknown = np.isnan(rewards)
    outcomes = _sums_to_the_end(np.where(unknown, 0.0, rewards), episodes)
    outcomes[_sums_to_the_end(unknown.astype(np.float64), episodes) > 0] = np.nan
    placed = np.empty_like(outcomes)
    placed[order] = outcomes
    return placed


def _sums_to_the_end(amounts: FloatArray, episodes: IntArray) -> FloatArray:
    """(N,) suffix sums within episodes. Each by itself: a difference of sums over the whole log would lose small ones."""
    return pd.Series(amounts[::-1]).groupby(episodes[::-1], sort=False).cumsum().to_numpy()[::-1].copy()


def _pairs(dataset: Dataset, visits: _Visits) -> tuple[IntArray, IntArray]:
    """(V,) number of each visit's pair among those met, and the code state * A + action of each number."""
    numbers, codes = pd.factorize(visits.states * dataset.n_actions + visits.actions)
    return numbers, codes


class _Summary(NamedTuple):
    """By pair."""

    visits: IntArray
    lowest: FloatArray
    mean: FloatArray
    highest: FloatArray
    spread: FloatArray  # sum of squared distances from the mean
    ends: IntArray  # visits that end the episode


def _summary(pairs: IntArray, n_pairs: int, visits: _Visits) -> _Summary:
    n = np.bincount(pairs, minlength=n_pairs)
    mean = np.bincount(pairs, visits.outcomes, n_pairs) / np.maximum(n, 1)
    lowest, highest = np.full(n_pairs, np.inf), np.full(n_pairs, -np.inf)
    np.minimum.at(lowest, pairs, visits.outcomes)
    np.maximum.at(highest, pairs, visits.outcomes)
    spread = np.asarray(np.bincount(pairs, (visits.outcomes - mean[pairs]) ** 2, n_pairs), dtype=np.float64)
    return _Summary(n, lowest, mean, highest, spread, np.bincount(pairs[visits.ends], minlength=n_pairs))


def _tolerated(visits: _Visits) -> float:
    return TOLERANCE * float(np.ptp(visits.outcomes)) if len(visits.outcomes) else 0.0


# -- judged on other episodes ------------------------------------------------------------------------------------


def _predicted(keys: IntArray, visits: _Visits, coarser: FloatArray) -> FloatArray:
    """(V,) mean outcome of each visit's key over the other folds of episodes, drawn towards the coarser prediction."""
    n_keys = int(keys.max()) + 1
    cells = keys * FOLDS + visits.folds
    counts = np.bincount(cells, minlength=n_keys * FOLDS).reshape(n_keys, FOLDS)
    sums = np.bincount(cells, visits.outcomes, n_keys * FOLDS).reshape(n_keys, FOLDS)
    elsewhere = (counts.sum(axis=1, keepdims=True) - counts).ravel()[cells]
    total = (sums.sum(axis=1, keepdims=True) - sums).ravel()[cells]
    predicted: FloatArray = (total + PRIOR * coarser) / (elsewhere + PRIOR)
    return predicted


def _error(predicted: FloatArray, visits: _Visits) -> float:
    return float(((visits.outcomes - predicted) ** 2).sum())


def _without_key(visits: _Visits) -> FloatArray:
    mean = np.full(len(visits.outcomes), visits.outcomes.mean())
    return _predicted(np.zeros(len(visits.outcomes), dtype=np.int64), visits, mean)


def _can_judge(visits: _Visits) -> bool:
    return len(np.unique(visits.folds)) > 1 and float(np.ptp(visits.outcomes)) > _LEAST


def _left_open(pairs: IntArray, visits: _Visits) -> float | None:
    if not _can_judge(visits):
        return None
    start = _without_key(visits)
    return _error(_predicted(pairs, visits, start), visits) / _error(start, visits)


def left_open_in_words(share: float) -> str:
    """A share of the outcome's error; at 1 and above nothing is explained, and how far above says nothing to a reader."""
    return "all of it" if share >= 1 else f"{share:.1%}"


def _change_of_error(removed: float) -> str:
    if removed >= 0:
        return f"removes only {removed:.1%} of the error"
    return f"{1 - removed:.1f} times the error" if removed <= -1 else f"makes the error {-removed:.1%} larger"


class Split(NamedTuple):
    """One more part of the state, and what it would tell apart.

    Attributes:
        part: what would be added.
        choices: the framing with it.
        left_before: ``MixedOutcomes.left_open`` without it.
        left_after: the same with it, judged on episodes it wasn't fitted to.
        alone: share of the visits whose pair, with it, no episode outside their fold shows.
        mixed_before: share of the visits on mixed pairs, without it.
        mixed_after: the same with it; falls in any case as pieces get smaller.
        n_states: states met, with it.
        n_episodes: episodes this was judged on.
    """

    part: Choice
    choices: FramingChoices
    left_before: float
    left_after: float
    alone: float
    mixed_before: float
    mixed_after: float
    n_states: int
    n_episodes: int

    @property
    def removed(self) -> float:
        """Share of the squared error of the outcome that it removes; at or below 0 it only cuts the log into pieces."""
        return 1 - self.left_after / self.left_before if self.left_before else 0.0

    @property
    def refused(self) -> str:
        """Why it isn't worth its states, in words; empty where it is."""
        if self.alone > MAX_ALONE:
            return f"close to an id of the episode: {self.alone:.0%} of the visits stand alone"
        if self.removed < WORTHWHILE:
            return _change_of_error(self.removed)
        return "no better than no key at all" if self.left_after >= 1 else ""


def suggest_splits(dataset: Dataset, choices: FramingChoices) -> list[Split]:
    """Try one more part of the state after the other; best first, then those that are refused.

    Those that tell nothing more apart are left out.

    Args:
        dataset: framed by ``choices``.
        choices: the framing so far.
    """
    parts = candidate_parts(dataset, choices)
    visits = _known_visits(dataset)
    values = _values_of_parts(dataset, parts) if parts and len(visits.outcomes) else None
    if values is None:
        return []
    place_of_row = np.full(dataset.log.n_steps, -1)
    place_of_row[values["row"].to_numpy()] = np.arange(len(values))
    visits = visits.at(place_of_row[visits.places] >= 0)
    if not len(visits.outcomes) or not _can_judge(visits):
        return []
    n_episodes = _n_episodes(dataset, visits)
    pairs, _ = _pairs(dataset, visits)
    start = _without_key(visits)
    without_key = _error(start, visits)
    left_before, mixed_before = (
        _error(_predicted(pairs, visits, start), visits) / without_key,
        _mixed_share(pairs, visits),
    )
    splits, partitions = [], {pairs.tobytes()}
    for i, part in enumerate(parts):
        encoded = values[f"part_{i}"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        found = encoded[place_of_row[visits.places]].astype(np.int64)
        n_found = int(encoded.max()) + 1
        finer, _ = pd.factorize(pairs * n_found + found)
        if finer.tobytes() in partitions:  # it tells nothing apart, or the same as a part before it
            continue
        partitions.add(finer.tobytes())
        splits.append(
            Split(
                part,
                choices.with_part(part),
                left_before,
                _error(_predicted(finer, visits, start), visits) / without_key,
                _alone(finer, visits),
                mixed_before,
                _mixed_share(finer, visits),
                len(pd.unique(visits.states * n_found + found)),
                n_episodes,
            )
        )
    return sorted(splits, key=lambda split: (bool(split.refused), -split.removed))


def candidate_parts(dataset: Dataset, choices: FramingChoices) -> list[Choice]:
    """Parts that the state doesn't have yet and the log can give."""
    offers, chosen = framing_offers(dataset.log), set(choices.state)
    k = next((part.k for part in choices.state if isinstance(part, LastTools)), 0)
    few = [f for f in offers.state_fields if f.n_values <= MAX_FIELD_VALUES][:MAX_FIELDS]
    possible: list[tuple[bool, Choice]] = [
        (k < MAX_TOOLS_BACK, LastTools(min(k + 1, MAX_TOOLS_BACK))),
        (offers.n_errors > 0, LastFailed()),
        (offers.n_tasks > 1, Task()),
        (True, ToolsUsed()),
        (True, StepNumber()),
        (offers.states_known, WorldState()),
        *((True, StateField(field.pointer)) for field in few),
    ]
    return [part for can_be, part in possible if can_be and part not in chosen]


def _values_of_parts(dataset: Dataset, parts: Sequence[Choice]) -> pa.Table:
    """row, part_0, part_1, ... of the steps, or of a sample of whole episodes where there are many."""
    log, relation = dataset.log, steps_with_tools_used(dataset.log)
    stride = -(-log.n_steps // MAX_SPLIT_ROWS)
    chosen = f"WHERE md5_number_lower(episode_id) % {stride} = 0" if stride > 1 else ""
    columns = ", ".join(f"{part.sql} AS part_{i}" for i, part in enumerate(parts))
    return (
        log.cursor()
        .sql(
            f"SELECT row, {columns} FROM (SELECT * FROM {relation} {chosen}) "
            "WINDOW episode AS (PARTITION BY episode_id ORDER BY t)"
        )
        .to_arrow_table()
    )


def _n_episodes(dataset: Dataset, visits: _Visits) -> int:
    return len(np.unique(framed_log(dataset.log, dataset.framing).episodes[visits.places]))


def _alone(keys: IntArray, visits: _Visits) -> float:
    """Share of the visits whose key no episode of another fold shows."""
    cells = np.unique(keys * FOLDS + visits.folds)
    folds_of_key = np.bincount(cells // FOLDS, minlength=int(keys.max()) + 1)
    return float((folds_of_key[keys] == 1).mean())


def _mixed_share(keys: IntArray, visits: _Visits) -> float:
    groups = _summary(keys, int(keys.max()) + 1, visits)
    mixed = groups.highest - groups.lowest > _tolerated(visits)
    return float(groups.visits[mixed].sum() / len(keys))


# -- what it does to values --------------------------------------------------------------------------------------


class ValueChange(NamedTuple):
    """How values differ between two framings of the same episodes.

    Attributes:
        promised_before: learned value of the policy where episodes begin (discounted), see ``promised_return``.
        promised_after: the same under the other framing.
        mean_change: mean over the episodes of |V_after(start) - V_before(start)|, reward units.
        n_episodes: episodes that both framings keep.
    """

    promised_before: float
    promised_after: float
    mean_change: float
    n_episodes: int


def value_change(before: tuple[Dataset, TrainedModel], after: tuple[Dataset, TrainedModel]) -> ValueChange | None:
    """Compare the values at the starts of episodes; None where a learner has no values or no episode is in both."""
    promised = promised_return(*before), promised_return(*after)
    if promised[0] is None or promised[1] is None:
        return None
    starts = pd.concat([_start_values(*before), _start_values(*after)], axis=1, join="inner")
    if starts.empty:
        return None
    change = float(np.abs(starts.iloc[:, 1] - starts.iloc[:, 0]).mean())
    return ValueChange(promised[0], promised[1], change, len(starts))


def _start_values(dataset: Dataset, model: TrainedModel) -> pd.Series[float]:
    """Learned value of the policy at the first kept step of each episode, by the number of the episode."""
    assert model.q_values is not None
    first = dataset.first_rows
    greedy = table_of(model.policy, "Values by state").probabilities.argmax(axis=1)
    values = model.q_values[np.arange(dataset.n_states), greedy]
    return pd.Series(values[dataset.transitions().observations[first]], index=dataset.episodes[first])
