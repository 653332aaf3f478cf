"""The three columns on rewards, written anew: a judgement per episode on its last step, costs on every step.

An episode is judged as a whole or not at all. Where its outcome is unknown, or a cost of it, all its rewards are NULL: a
sum over the known part would pass for its return.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .arrays import BoolArray, FloatArray, IntArray
from .errors import InvalidConfig
from .importers.records import parse_json
from .schema import LARGEST_REWARD, STEPS_ARROW_SCHEMA, canonical_json

JOINED, RULE = "joined", "rule"  # names of the outcome among the components
LOGGED, LOGGED_SOURCE, LOGGED_COMPONENTS = "logged", "logged_source", "logged_components"
SOURCE_BEGINNINGS = ("joined from ", "rule: ")
_COSTS = {"per_step": "step_cost", "per_error": "error_cost", "per_second": "time_cost", "per_dollar": "money_cost"}
_OURS = frozenset({JOINED, RULE, *_COSTS.values()})
_MOST = 1_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """What steps cost, in units of reward, each taken off as a component of its own.

    Attributes:
        per_step: each step.
        per_error: each step with a recorded error.
        per_second: latency_ms / 1000.
        per_dollar: cost_usd.
    """

    per_step: float = 0.0
    per_error: float = 0.0
    per_second: float = 0.0
    per_dollar: float = 0.0

    def __post_init__(self) -> None:
        """Check that costs are costs."""
        for name in _COSTS:
            if not 0 <= getattr(self, name) <= _MOST:
                value = getattr(self, name)
                raise InvalidConfig(
                    f"The cost {name.replace('_', ' ')} is {value}; it must lie between 0 and {_MOST:,g}."
                )

    def __bool__(self) -> bool:
        """Whether anything costs something."""
        return any(getattr(self, name) for name in _COSTS)

    def sentence(self) -> str:
        """The costs in words, "" where nothing costs anything."""
        told = [f"{getattr(self, name):g} {name.replace('_', ' ')}" for name in _COSTS if getattr(self, name)]
        return f"less {', '.join(told)}" if told else ""


@dataclass(frozen=True, slots=True)
class _Costs:
    """Costs of the steps: components (N, NaN unknown, 0 none), their sum, and which episodes have an unknown one."""

    components: dict[str, FloatArray]
    total: FloatArray  # (N,)
    unknown: BoolArray  # (E,)


def episodes_of(steps: pa.Table, episodes: Sequence[str]) -> IntArray:
    """(N,) number of each step's episode in ``episodes``."""
    return np.asarray(pc.index_in(steps["episode_id"], value_set=pa.array(episodes, pa.string())).to_numpy())


def last_steps(codes: IntArray, t: IntArray) -> BoolArray:
    """(N,) whether a step is the last of its episode; the later row where two have the same t."""
    order = np.lexsort((t, codes))
    last = np.zeros(len(codes), dtype=bool)
    last[order[np.append(codes[order][1:] != codes[order][:-1], True)]] = True
    return last


def unknown_costs(steps: pa.Table, codes: IntArray, n_episodes: int, costs: StepCosts) -> BoolArray:
    """(E,) episodes with a step whose cost isn't known."""
    return _step_costs(steps, codes, n_episodes, costs).unknown


def rewarded(
    steps: pa.Table,
    codes: IntArray,
    outcomes: FloatArray,
    *,
    component: str,
    source: str,
    costs: StepCosts,
    keep_logged: bool,
) -> pa.Table:
    """The steps with new rewards; every other column is as it was.

    Args:
        steps: (N) with the columns of the schema.
        codes: (N,) number of each step's episode.
        outcomes: (E,) judgement of each episode, reward units; NaN unknown.
        component: what the outcome is called in ``reward_components``.
        source: what ``reward_source`` says where a reward is set.
        costs: taken off each step of a judged episode.
        keep_logged: leave episodes without an outcome as they are, instead of setting them to NULL.
    """
    charged = _step_costs(steps, codes, len(outcomes), costs)
    last = last_steps(codes, steps["t"].to_numpy())
    outcome = np.where(last, outcomes[codes], np.nan)
    judged = ~np.isnan(outcomes)[codes] & ~charged.unknown[codes]
    rewards = np.where(judged & last, outcome, np.nan)
    if costs:
        rewards = np.where(judged, charged.total + np.where(last, outcome, 0.0), np.nan)
    untouched = np.isnan(outcomes)[codes] if keep_logged else np.zeros(len(codes), dtype=bool)
    written = _Written(steps, untouched)
    columns = {
        "reward": written.reward(rewards),
        "reward_source": written.source(~np.isnan(rewards), source),
        "reward_components": written.components({component: outcome} | charged.components),
    }
    for name, column in columns.items():
        at = STEPS_ARROW_SCHEMA.get_field_index(name)
        steps = steps.set_column(at, STEPS_ARROW_SCHEMA.field(at), column)
    return steps


# -- costs ---------------------------------------------------------------------------------------------------


def _step_costs(steps: pa.Table, codes: IntArray, n_episodes: int, costs: StepCosts) -> _Costs:
    n = len(codes)
    components: dict[str, FloatArray] = {}
    if costs.per_step:
        components["step_cost"] = np.full(n, -costs.per_step)
    if costs.per_error:
        components["error_cost"] = np.where(steps["error"].is_valid().to_numpy(), -costs.per_error, 0.0)
    for rate, name, column in (
        (costs.per_second / 1000, "time_cost", "latency_ms"),
        (costs.per_dollar, "money_cost", "cost_usd"),
    ):
        if rate:
            components[name] = -rate * _per_decision(steps, codes, _numbers(steps[column]))
    total = sum(components.values(), start=np.zeros(n))
    return _Costs(components, total, np.bincount(codes, np.isnan(total), minlength=n_episodes) > 0)


def _per_decision(steps: pa.Table, codes: IntArray, figures: FloatArray) -> FloatArray:
    """Figures of steps, 0 where another call of the same reply carries the figure: it was measured once for all."""
    decisions = _encoded(steps["decision_id"])
    alone = decisions < 0
    groups = codes * (decisions.max(initial=0) + 1) + np.where(alone, 0, decisions)
    _, groups = np.unique(np.where(alone, -1 - np.arange(len(codes)), groups), return_inverse=True)
    told = np.bincount(groups, ~np.isnan(figures)) > 0
    return np.where(np.isnan(figures) & told[groups], 0.0, figures)


def _encoded(column: pa.ChunkedArray) -> IntArray:
    """Numbers of equal texts, -1 for NULL."""
    indices = pc.dictionary_encode(column.combine_chunks()).indices
    return np.asarray(indices.fill_null(-1).to_numpy(zero_copy_only=False)).astype(np.int64)


def _numbers(column: pa.ChunkedArray) -> FloatArray:
    """A column of numbers, NaN for what is NULL or can't be added up."""
    numbers = np.array(column.to_numpy(), dtype=np.float64)
    numbers[~(np.abs(numbers) <= LARGEST_REWARD)] = np.nan
    return numbers


# -- columns -------------------------------------------------------------------------------------------------


class _Written:
    """Writes the three columns, with what the log itself said kept among the components."""

    def __init__(self, steps: pa.Table, untouched: BoolArray) -> None:
        self._logged = _numbers(steps["reward"])
        self._sources: list[str | None] = steps["reward_source"].to_pylist()
        self._old: list[str | None] = steps["reward_components"].to_pylist()
        self._untouched = untouched
        self._ours = np.array([bool(s) and s.startswith(SOURCE_BEGINNINGS) for s in self._sources])

    def reward(self, rewards: FloatArray) -> pa.Array:
        """New rewards, or the logged ones where the step stays as it is."""
        rewards = np.where(self._untouched, self._logged, rewards)
        return pa.array(rewards, pa.float64(), mask=np.isnan(rewards))

    def source(self, known: BoolArray, source: str) -> pa.Array:
        """Who judged, where a reward is known."""
        old = zip(known, self._untouched, self._sources, strict=True)
        return pa.array([before if stays else source if new else None for new, stays, before in old], pa.string())

    def components(self, parts: dict[str, FloatArray]) -> pa.Array:
        """Parts of the reward by name: unknown ones and costs of 0 are left out."""
        texts = list(self._old)
        # One of our own passes over the log already: what it wrote isn't what was logged.
        again = bool(self._ours.any())
        shown = {name: np.isfinite(part) & ((part != 0) | (name in (JOINED, RULE))) for name, part in parts.items()}
        replaced = np.isfinite(self._logged) & ~self._ours
        changed = replaced | np.logical_or.reduce(list(shown.values()))
        if again:
            changed |= np.array([text is not None for text in texts])
        made: dict[tuple[Any, ...], str | None] = {}
        for i in np.flatnonzero(changed & ~self._untouched):
            logged = (float(self._logged[i]), self._sources[i]) if replaced[i] else None
            values = tuple(float(part[i]) if shown[name][i] else math.nan for name, part in parts.items())
            key = (texts[i], logged, tuple(map(str, values)))
            if key not in made:
                new = {name: value for name, value in zip(parts, values, strict=True) if not math.isnan(value)}
                made[key] = _merged(texts[i], logged, new, again)
            texts[i] = made[key]
        return pa.array(texts, pa.string())


def _merged(old: str | None, logged: tuple[float, str | None] | None, new: dict[str, float], again: bool) -> str | None:
    """Components as JSON text: those of the log, what it said of the reward, and the new ones."""
    before = parse_json(old)[0] if old else None
    kept: dict[str, Any] = {}
    taken = {*new, *((LOGGED, LOGGED_SOURCE) if logged else ())}
    if isinstance(before, dict):
        kept = {name: part for name, part in before.items() if not (again and name in _OURS)}
        if not again and taken & kept.keys():
            kept = {LOGGED_COMPONENTS: before}
    elif before is not None:
        kept = {LOGGED_COMPONENTS: before}
    if logged:
        kept[LOGGED] = logged[0]
        kept |= {LOGGED_SOURCE: logged[1]} if logged[1] else {}
    kept |= new
    return canonical_json(kept) if kept else None
