"""Rewards for a log that came without them, or with others: joined from a second file, or given by a rule.

Both are recipes. ``preview`` says what a recipe would do, ``with_rewards`` makes a new log of it: the same steps and raw
records, with the reward of each judged episode on its last step, costs on every step, and the rewards that the log had
kept in ``reward_components`` under ``logged``. What nobody judged stays unknown and never becomes 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import reward_rules
from .arrays import FloatArray
from .errors import InvalidConfig, NotPossible
from .importers.report import ImportReport
from .log import Log
from .reward_columns import JOINED, RULE, StepCosts, episodes_of, rewarded, unknown_costs
from .reward_files import RewardFile, RewardReader
from .reward_keys import TRIAL, Pairs, episode_keys, joined_key
from .reward_rules import RULES, STEPS, TEXTS
from .schema import COLUMN_NAMES, STEPS_ARROW_SCHEMA, canonical_json, short_hash
from .wording import counted

_SHOWN_NAME = 40  # characters of a name or text in the name of a log
_MOST_REWARD = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRewards:
    """Rewards from a second file, one row per episode.

    Attributes:
        file: rows of :func:`offrl_core.reward_files.read_reward_file`.
        on: pairs (field of the file, way to name episodes); all of them must agree for a row to belong to an episode.
        reward: field of the file that is the reward.
        keep_logged: leave episodes that the file doesn't judge as they are; else their rewards become unknown.
        costs: taken off each step.
    """

    file: RewardFile
    on: Pairs
    reward: str
    keep_logged: bool = False
    costs: StepCosts = field(default_factory=StepCosts)

    def __post_init__(self) -> None:
        """Check that the file has the fields.

        Raises:
            InvalidConfig: it hasn't, or there is no key.
        """
        if not self.on:
            raise InvalidConfig("Choose which field of the file names the episode.")
        for name in [*(name for name, _ in self.on), self.reward]:
            if name not in self.file.fields:
                raise InvalidConfig(f"{self.file.name} has no field {name!r}. It has: {', '.join(self.file.fields)}.")

    @property
    def component(self) -> str:
        """What the outcome is called in ``reward_components``."""
        return JOINED

    @property
    def source(self) -> str:
        """What ``reward_source`` says: "joined from results.csv by task"."""
        return f"joined from {self.file.name} by {' and '.join(way for _, way in self.on)}"

    def to_json(self) -> Any:
        """All that decides what it does."""
        on = [list(pair) for pair in self.on]
        return [
            "join",
            self.file.fingerprint,
            self.file.name,
            on,
            self.reward,
            self.keep_logged,
            _costs_json(self.costs),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRewards:
    """Rewards from a rule over the steps of an episode.

    Attributes:
        rule: key of ``RULES``: contains, matches, no_error, last_call, called or sql.
        text: what to look for: plain text, a regular expression (RE2), the name of a tool, or a SQL condition.
        on: where: a key of ``TEXTS`` for texts and patterns, a key of ``STEPS`` for SQL.
        ignore_case: for texts and patterns.
        if_true, if_false, if_unknown: reward of an episode by what the rule says; None is unknown (NULL).
        costs: taken off each step.
    """

    rule: str
    text: str = ""
    on: str = ""
    ignore_case: bool = True
    if_true: float | None = 1.0
    if_false: float | None = 0.0
    if_unknown: float | None = None
    costs: StepCosts = field(default_factory=StepCosts)

    def __post_init__(self) -> None:
        """Fill in where to look, and check the rest.

        Raises:
            InvalidConfig: there is no such rule or place, the text is missing, or a reward is no finite number.
        """
        if self.rule not in RULES:
            raise InvalidConfig(f"There is no rule called {self.rule!r}. Known: {', '.join(RULES)}.")
        places = STEPS if self.rule == "sql" else TEXTS
        if not self.on:
            object.__setattr__(self, "on", next(iter(places)))
        if self.rule in ("contains", "matches", "sql") and self.on not in places:
            raise InvalidConfig(f"The rule {self.rule} can't look at {self.on!r}. Known: {', '.join(places)}.")
        if self.rule in ("contains", "matches", "called") and not self.text:
            raise InvalidConfig("Give the text, the pattern or the tool to look for.")
        if any("\ud800" <= character <= "\udfff" for character in self.text):
            raise InvalidConfig("The text to look for contains a character that is no text (half a pair). Remove it.")
        for value in (self.if_true, self.if_false, self.if_unknown):
            if value is not None and not (math.isfinite(value) and abs(value) <= _MOST_REWARD):
                raise InvalidConfig(
                    f"The reward {value} must be a number between -{_MOST_REWARD:g} and {_MOST_REWARD:g}."
                )

    @property
    def component(self) -> str:
        """What the outcome is called in ``reward_components``."""
        return RULE

    @property
    def keep_logged(self) -> bool:
        """A rule judges all episodes; where it can't tell, the reward is what was chosen for that."""
        return False

    @property
    def source(self) -> str:
        """What ``reward_source`` says: "rule: no tool error in the whole episode"."""
        if self.rule in ("no_error", "last_call"):
            return f"rule: {RULES[self.rule]}"
        on = (STEPS if self.rule == "sql" else TEXTS | {"": ("", "")}).get(self.on, "")
        return "rule: " + RULES[self.rule].format(text=repr(self.text), on=on[1] if isinstance(on, tuple) else on)

    def to_json(self) -> Any:
        """All that decides what it does."""
        values = [self.if_true, self.if_false, self.if_unknown]
        return ["rule", self.rule, self.text, self.on, self.ignore_case, values, _costs_json(self.costs)]


Recipe = JoinRewards | RuleRewards


def recipe_from_json(value: Any, files: Mapping[str, RewardFile]) -> Recipe:
    """The recipe that said this of itself with ``to_json``.

    Args:
        value: what it said.
        files: the files with rewards that are at hand, by fingerprint.

    Raises:
        InvalidConfig: it says no recipe.
        NotPossible: the file that it needs isn't there.
    """
    try:
        return _rule_from_json(*value[1:]) if value[0] == "rule" else _join_from_json(files, *value)
    except (TypeError, ValueError, LookupError) as error:
        raise InvalidConfig("The recipe for rewards can't be read.") from error


def _rule_from_json(rule: str, text: str, on: str, ignore_case: bool, values: Any, costs: Any) -> RuleRewards:
    if_true, if_false, if_unknown = values
    return RuleRewards(
        rule=rule,
        text=str(text),
        on=str(on),
        ignore_case=bool(ignore_case),
        if_true=if_true,
        if_false=if_false,
        if_unknown=if_unknown,
        costs=_costs_from_json(costs),
    )


def _join_from_json(
    files: Mapping[str, RewardFile],
    kind: str,
    fingerprint: str,
    name: str,
    on: Any,
    reward: str,
    keep_logged: bool,
    costs: Any,
) -> JoinRewards:
    if kind != "join":
        raise ValueError(kind)
    if fingerprint not in files:
        raise NotPossible(f"The rewards come from {name}, which isn't loaded here. Choose it on the page Rewards.")
    pairs = tuple((str(field), str(way)) for field, way in on)
    return JoinRewards(
        file=files[fingerprint],
        on=pairs,
        reward=str(reward),
        keep_logged=bool(keep_logged),
        costs=_costs_from_json(costs),
    )


def _costs_from_json(values: Any) -> StepCosts:
    per_step, per_error, per_second, per_dollar = map(float, values)
    return StepCosts(per_step=per_step, per_error=per_error, per_second=per_second, per_dollar=per_dollar)


def _costs_json(costs: StepCosts) -> list[float]:
    return [costs.per_step, costs.per_error, costs.per_second, costs.per_dollar]


# -- previews ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """One row or episode that a join left over: the kind of it, its key, and a sentence."""

    kind: str
    key: str
    detail: str


@dataclass(frozen=True, slots=True)
class ValueCount:
    """One reward (None: unknown), how many episodes get it, and the first of them."""

    value: float | None
    n_episodes: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPreview:
    """What a recipe would do.

    Attributes:
        episodes: (E) ids, in the order of the log.
        outcomes: (E,) judgement of each, reward units, before costs; NaN unknown.
        sentence: the result in one line.
        notes: what else to know, as sentences.
        findings: what a join left over, one by one; the counts are in the sentence.
    """

    episodes: tuple[str, ...]
    outcomes: FloatArray
    sentence: str
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    def values(self, n_examples: int = 3) -> list[ValueCount]:
        """Rewards by how many episodes get them, most first; the unknown ones last."""
        by_value: dict[float | None, list[str]] = {}
        for id, outcome in zip(self.episodes, self.outcomes.tolist(), strict=True):
            by_value.setdefault(None if math.isnan(outcome) else outcome, []).append(id)
        counts = [ValueCount(value, len(ids), tuple(ids[:n_examples])) for value, ids in by_value.items()]
        return sorted(counts, key=lambda c: (c.value is None, -c.n_episodes, -(c.value or 0)))


def preview(log: Log, recipe: Recipe) -> RewardPreview:
    """What a recipe would do with a log, without doing it.

    Raises:
        NotPossible: a world made the log.
        InvalidConfig, InvalidPredicate: the recipe doesn't fit the log.
    """
    if log.source is not None:
        raise NotPossible(
            f"The rewards of {log.name} are the world's own: they are what its exact values are computed from, so they stay."
        )
    found = _join_preview(log, recipe) if isinstance(recipe, JoinRewards) else _rule_preview(log, recipe)
    return replace(found, notes=(*found.notes, *_cost_notes(log, recipe, found)))


def _rule_preview(log: Log, recipe: RuleRewards) -> RewardPreview:
    verdicts = reward_rules.judge(log, recipe.rule, recipe.text, recipe.on, recipe.ignore_case)
    rewards = {True: recipe.if_true, False: recipe.if_false, None: recipe.if_unknown}
    values = [rewards[verdict] for verdict in verdicts]
    counts = Counter(verdicts)
    notes = []
    if recipe.rule == "matches" and (n := reward_rules.count_cut(log, recipe.on)):
        longest = reward_rules.LONGEST_TEXT
        notes.append(
            f"The texts of {_episodes(n)} are longer than {longest:,} characters; only their end is looked at."
        )
    return RewardPreview(
        episodes=episode_keys(log).episodes,
        outcomes=np.array([math.nan if value is None else value for value in values]),
        sentence=f"True for {counts[True]:,} of {_episodes(len(verdicts))}, false for {counts[False]:,}, "
        f"unknown for {counts[None]:,}.",
        notes=tuple(notes),
    )


def _cost_notes(log: Log, recipe: Recipe, found: RewardPreview) -> list[str]:
    if not recipe.costs:
        return []
    steps = log.columns("episode_id", "error", "latency_ms", "cost_usd", "decision_id")
    unknown = unknown_costs(steps, episodes_of(steps, found.episodes), len(found.episodes), recipe.costs)
    n = int((unknown & ~np.isnan(found.outcomes)).sum())
    if not n:
        return []
    return [
        f"{_episodes(n)} with an outcome have a step whose time or price isn't known, so their reward stays unknown."
    ]


# -- joining -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Rows:
    """Rows of a file by what becomes of them; each is in one of these."""

    reward_of: dict[tuple[str, ...], float] = field(default_factory=dict)
    unreadable: dict[tuple[str, ...], str] = field(default_factory=dict)  # key -> the cell
    repeated: dict[tuple[str, ...], list[int]] = field(default_factory=dict)  # key -> its rows, from 1
    without_key: list[int] = field(default_factory=list)


def _rows_by_key(recipe: JoinRewards) -> _Rows:
    file, rows = recipe.file, _Rows()
    read = RewardReader(file.column(recipe.reward))
    numbers: dict[tuple[str, ...], list[int]] = {}
    for number, row in enumerate(file.rows, start=1):
        key = joined_key([row.get(name) for name, _ in recipe.on])
        if key is None:
            rows.without_key.append(number)
        else:
            numbers.setdefault(key, []).append(number)
    for key, places in numbers.items():
        cell = file.rows[places[0] - 1].get(recipe.reward)
        reward = read(cell)
        if len(places) > 1:
            rows.repeated[key] = places
        elif reward is None or abs(reward) > _MOST_REWARD:
            rows.unreadable[key] = "(empty)" if cell is None else repr(cell)
        else:
            rows.reward_of[key] = reward
    return rows


def _join_preview(log: Log, recipe: JoinRewards) -> RewardPreview:
    keys = episode_keys(log)
    missing = [way for _, way in recipe.on if way not in keys.ways]
    if missing:
        raise InvalidConfig(f"The episodes of this log have no {missing[0]!r}. They have: {', '.join(keys.ways)}.")
    rows = _rows_by_key(recipe)
    of_episodes = [joined_key(key) for key in zip(*(keys.ways[way] for _, way in recipe.on), strict=True)]
    outcomes = np.array([math.nan if key is None else rows.reward_of.get(key, math.nan) for key in of_episodes])
    used = {key for key in of_episodes if key is not None}
    unused = [key for key in [*rows.reward_of, *rows.unreadable] if key not in used]
    unreadable = {key: cell for key, cell in rows.unreadable.items() if key in used}
    unjudged = [id for id, outcome in zip(keys.episodes, outcomes, strict=True) if math.isnan(outcome)]
    findings = [
        *(Finding("reward without an episode", _shown(key), "no episode of the log has this key") for key in unused),
        *(
            Finding("key used twice", _shown(key), f"rows {_places(at)}; none of them is used")
            for key, at in rows.repeated.items()
        ),
        *(Finding("no reward", _shown(key), f"{cell[:100]} is no reward") for key, cell in unreadable.items()),
        *(Finding("row without a key", "", f"row {number}") for number in rows.without_key),
        *(Finding("episode without a reward", id, "its reward is unknown") for id in unjudged),
    ]
    n = len(keys.episodes)
    told = [
        f"Matched {n - len(unjudged):,} of {_episodes(n)}",
        f"{counted(len(unused), 'reward')} without an episode" if unused else "",
        f"{_episodes(len(unjudged))} without a reward" if unjudged else "",
        f"{counted(len(rows.repeated), 'key')} used twice (kept: none, all listed)" if rows.repeated else "",
        f"{counted(len(unreadable), 'reward')} that can't be read (unknown, not 0)" if unreadable else "",
        f"{counted(len(rows.without_key), 'row')} without a key" if rows.without_key else "",
    ]
    return RewardPreview(
        episodes=keys.episodes,
        outcomes=outcomes,
        sentence="; ".join(part for part in told if part) + ".",
        notes=tuple(_shared_keys(recipe, of_episodes, rows)),
        findings=tuple(findings),
    )


def _shared_keys(recipe: JoinRewards, of_episodes: Sequence[tuple[str, ...] | None], rows: _Rows) -> list[str]:
    """That one row judges several episodes, which may be meant (trials of a task) or not."""
    shared = [n for key, n in Counter(of_episodes).items() if n > 1 and key in rows.reward_of]
    if not shared:
        return []
    hint = (
        ""
        if any(way == TRIAL for _, way in recipe.on)
        else " If the file tells trials apart, add that field to the key."
    )
    return [f"{counted(len(shared), 'row')} give their reward to several episodes, to {max(shared):,} at most.{hint}"]


def _shown(key: tuple[str, ...]) -> str:
    return ", ".join(key)


def _places(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else "")


# -- the new log ---------------------------------------------------------------------------------------------


def with_rewards(log: Log, recipe: Recipe) -> Log:
    """A new log with the rewards of a recipe; the old one stays as it is.

    Args:
        log: an imported log.
        recipe: where the rewards come from.

    Raises:
        NotPossible: a world made the log.
        InvalidConfig, InvalidPredicate: the recipe doesn't fit the log.
    """
    found = preview(log, recipe)
    steps = log.columns(*COLUMN_NAMES).cast(STEPS_ARROW_SCHEMA)
    steps = rewarded(
        steps,
        episodes_of(steps, found.episodes),
        found.outcomes,
        component=recipe.component,
        source=recipe.source,
        costs=recipe.costs,
        keep_logged=recipe.keep_logged,
    )
    return Log(
        steps,
        name=f"{log.name} with rewards {_short_source(recipe)}",
        fingerprint=short_hash(canonical_json([log.fingerprint, recipe.to_json()])),
        source=None,
        report=_noted(log.report, recipe, found),
        records=log,
    )


def _noted(report: ImportReport, recipe: Recipe, found: RewardPreview) -> ImportReport:
    """The report of the import, with what was done since; the old one isn't touched."""
    costs = recipe.costs.sentence()
    note = f"Rewards given here: {recipe.source}{', ' + costs if costs else ''}. {found.sentence}"
    return replace(
        report, problems=list(report.problems), tally=Counter(report.tally), notes=[*report.notes, note, *found.notes]
    )


def _short_source(recipe: Recipe) -> str:
    source = recipe.source if isinstance(recipe, JoinRewards) else f"by {recipe.source}"
    source += f" {recipe.costs.sentence()}" if recipe.costs else ""
    return source if len(source) <= 2 * _SHOWN_NAME else source[: 2 * _SHOWN_NAME - 1] + "…"


def _episodes(n: int) -> str:
    return counted(n, "episode")
