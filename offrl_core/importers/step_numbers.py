"""Which episode a step of a table belongs to, and its number there, though tables number steps in many ways."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum, auto
from itertools import pairwise
from typing import Any

from offrl_core.importers.fields import Row, unused_id, whole_number
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport
from offrl_core.importers.step_actions import plain_name
from offrl_core.importers.step_cells import is_missing, number_in, short_number, truth_in
from offrl_core.importers.step_mapping import Item, StepMapping
from offrl_core.schema import canonical_json
from offrl_core.wording import counted

_LARGEST_FIRST_NUMBER = 1  # episodes are numbered from 0 or 1; what begins higher is a time or counts all rows


@dataclass(slots=True)
class Step:
    """One step of a table with the rows it gives: one, or one per call."""

    record: Record
    item: Item
    rows: list[Row] = field(default_factory=list)
    number: float | None = None  # what the table calls it, or when it was

    def content(self) -> str:
        """What makes two rows with the same number one and the same step."""
        return canonical_json([self.item.inner, self.item.outer])


# -- episodes ------------------------------------------------------------------------------------------------


def by_episode(
    steps: Iterable[Step], mapping: StepMapping, used: Counter[str], report: ImportReport
) -> dict[str, list[Step]]:
    """Steps by episode, in the order of the table; ids are unique in the whole upload.

    A row without an episode is set aside.
    """
    episodes: dict[str, list[Step]] = {}
    names: dict[Any, str] = {}  # by the file and what it calls the episode
    last: dict[str, str] = {}  # of each id of the table: the file and episode it was last used for
    boundaries = _Boundaries(mapping)
    for step in steps:
        place = report.at(step.record.source, step.record.number)
        key, name = _key_and_name(step, mapping, boundaries)
        if name is None:
            place.lose(mapping.episode, "no episode", "this row names no episode, so it was set aside", step.record.raw)
            report.n_steps_quarantined += 1
            continue
        if key not in names:
            before = last.get(name)
            if before and _continues(episodes[before], step, mapping):
                names[key] = before
            else:
                names[key] = last[name] = unused_id(name, used, place)
                episodes[names[key]] = []
        episodes[names[key]].append(step)
    return episodes


def _key_and_name(step: Step, mapping: StepMapping, boundaries: _Boundaries) -> tuple[Any, str | None]:
    """What tells the episode of a step from others of the upload, and how it is called."""
    source, outer = step.record.source, step.item.outer
    if mapping.episode is None and mapping.steps is None:
        n = boundaries.episode_of(step)
        return n, f"episode-{n}"
    given = step.item.get(mapping.episode)
    name = None if is_missing(given) or isinstance(given, list | dict) else plain_name(given)
    if mapping.steps is None or (mapping.episode and not mapping.episode.startswith("/")):
        return (source, name), name
    return (source, step.record.number, id(outer)), name or f"record-{step.record.number}"


@dataclass(slots=True)
class _Boundaries:
    """Where episodes of a table without a field for them begin: after an end, or where step numbers start again."""

    mapping: StepMapping
    n: int = 0
    source: str = ""
    ended: bool = True
    number: float | None = None

    def episode_of(self, step: Step) -> int:
        """Number of the episode of the next step."""
        number = time_or_number(step.item.get(self.mapping.step))
        restarts = number is not None and self.number is not None and number <= self.number
        self.n += self.ended or restarts or step.record.source != self.source
        ends = (self.mapping.terminal, self.mapping.timeout, self.mapping.done)
        self.ended = any(truth_in(step.item.get(path)) for path in ends if path)
        self.number, self.source = number, step.record.source
        return self.n


def _continues(before: Sequence[Step], step: Step, mapping: StepMapping) -> bool:
    """Whether the first step of an episode in one file follows the last one of that id in the file before (shards)."""
    here, there = time_or_number(step.item.get(mapping.step)), time_or_number(before[-1].item.get(mapping.step))
    return mapping.steps is None and here is not None and there is not None and here == there + 1


# -- numbers -------------------------------------------------------------------------------------------------


def time_or_number(value: Any) -> float | None:
    """A number, or a time as seconds; None where it is neither."""
    if is_missing(value):
        return None
    if isinstance(value, str) and number_in(value) is None:
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return float(value.toordinal())
    return number_in(value)


def number_steps(episodes: dict[str, list[Step]], mapping: StepMapping, report: ImportReport) -> None:
    """Sort the steps of each episode and give each row its ``t``, ``decision_id`` and ``call_index``, in place.

    The same step twice is kept once. Steps that differ but share a number are calls of one decision where that makes
    sense, else the first one is kept.
    """
    for steps in episodes.values():
        for step in steps:
            step.number = time_or_number(step.item.get(mapping.step))
    counted = mapping.step is not None and _are_counted(episodes.values())
    if mapping.step is None:
        report.notes.append("The log has no step numbers: steps were taken in the order of its rows.")
    elif not counted:
        note = f"{mapping.step} orders the steps but doesn't count them in each episode, so they were numbered anew."
        report.notes.append(note)
    tally: Counter[str] = Counter()
    for episode, steps in episodes.items():
        if mapping.step:
            steps[:] = _without(_copies(steps), steps, "it is the same as an earlier one", report)
        numbering = _settle_numbers(steps, tally, report) if counted else _Numbering.ANEW
        if numbering != _Numbering.BY_ROW:
            tally["out of order"] += _n_late(steps)
            steps.sort(key=lambda step: -math.inf if step.number is None else step.number)
        _write_numbers(episode, steps, numbering)
    _tell(tally, mapping, report)


def _are_counted(episodes: Iterable[Sequence[Step]]) -> bool:
    """Whether numbers count the steps of each episode from 0 or 1; else they are times, or count all rows."""
    firsts = []
    for steps in episodes:
        known = [step.number for step in steps if step.number is not None]
        if any(whole_number(number) is None for number in known):
            return False
        firsts.append(min(known, default=0.0))
    return 2 * sum(first <= _LARGEST_FIRST_NUMBER for first in firsts) > len(firsts)


class _Numbering(Enum):
    """What becomes of the step numbers of one episode."""

    AS_GIVEN = auto()
    ANEW = auto()  # they order the steps
    SHARED = auto()  # they order the steps; rows with the same one are calls of one decision
    BY_ROW = auto()  # they begin again inside the episode, so the order of the rows counts


def _settle_numbers(steps: list[Step], tally: Counter[str], report: ImportReport) -> _Numbering:
    """What to make of the numbers of one episode; steps that can't stand beside others are taken out, in place."""
    numbers = [step.number for step in steps if step.number is not None]
    if len(numbers) < len(steps):
        tally["unnumbered"] += len(steps) - len(numbers)
        _fill(steps)
        return _Numbering.ANEW
    if len(set(numbers)) == len(numbers):
        return _given_or_anew(steps)
    drops = [after for before, after in pairwise(numbers) if after < before]
    by_name = all(row["action_type"] != "env_action" for step in steps for row in step.rows)
    if not drops and by_name:
        tally["shared"] += len(numbers) - len(set(numbers))
        return _Numbering.SHARED
    if drops and all(number == min(numbers) for number in drops) and _rise_between_drops(numbers):
        tally["restarts"] += 1
        return _Numbering.BY_ROW
    steps[:] = _without(_repeats(steps), steps, "the first one is kept", report)
    return _given_or_anew(steps)


def _given_or_anew(steps: Sequence[Step]) -> _Numbering:
    """Different numbers stand as they are, unless a step gives several rows, which need one each."""
    return _Numbering.AS_GIVEN if all(len(step.rows) == 1 for step in steps) else _Numbering.ANEW


def _fill(steps: Sequence[Step]) -> None:
    """Give a step without a number that of the step before, so that sorting leaves it there."""
    number = -math.inf
    for step in steps:
        step.number = number = number if step.number is None else step.number


def _rise_between_drops(numbers: Sequence[float]) -> bool:
    return all(before != after for before, after in pairwise(numbers))


def _copies(steps: Sequence[Step]) -> set[int]:
    """Positions of steps that are the same as an earlier one, number and all."""
    seen: set[tuple[float, str]] = set()
    found = set()
    numbers = Counter(step.number for step in steps)
    for i, step in enumerate(steps):
        if step.number is None or numbers[step.number] == 1:
            continue
        key = (step.number, step.content())
        found |= {i} if key in seen else set()
        seen.add(key)
    return found


def _repeats(steps: Sequence[Step]) -> set[int]:
    """Positions of steps whose number an earlier one has."""
    seen: set[float | None] = set()
    found = set()
    for i, step in enumerate(steps):
        found |= {i} if step.number in seen else set()
        seen.add(step.number)
    return found


def _without(positions: set[int], steps: Sequence[Step], why: str, report: ImportReport) -> list[Step]:
    """The steps without those at some positions, which are reported."""
    for i in sorted(positions):
        step = steps[i]
        message = f"step {_shown(step.number)} of this episode was already there; {why}"
        report.at(step.record.source, step.record.number).lose(None, "duplicate step", message, step.record.raw)
        report.n_steps_quarantined += 1
    return [step for i, step in enumerate(steps) if i not in positions]


def _n_late(steps: Sequence[Step]) -> int:
    """Number of steps that stand behind one with a larger number."""
    numbers = [step.number for step in steps if step.number is not None]
    return sum(after < before for before, after in pairwise(numbers))


def _shown(number: float | None) -> str:
    return "?" if number is None or not math.isfinite(number) else short_number(number)


def _write_numbers(episode: str, steps: Sequence[Step], numbering: _Numbering) -> None:
    """Number the rows of one episode; rows of one step, or of steps that share a number, are calls of one decision."""
    t = index = decision = 0
    before: float | None = None
    for step in steps:
        if numbering == _Numbering.AS_GIVEN and step.number is not None:
            t = int(step.number)
        if numbering != _Numbering.SHARED or step.number != before:
            decision, index, before = t, 0, step.number
        for row in step.rows:
            row |= {"episode_id": episode, "t": t, "decision_id": f"{episode}#{decision}", "call_index": index}
            t, index = t + 1, index + 1


def _tell(tally: Counter[str], mapping: StepMapping, report: ImportReport) -> None:
    """Report what was odd about the step numbers."""
    place = report.at(report.source)
    if n := tally["out of order"]:
        message = f"{counted(n, 'step')} stood behind a later one of their episode; sorted by {mapping.step}"
        place.mend(mapping.step, "steps out of order", message)
    if n := tally["restarts"]:
        message = f"step numbers begin again inside {counted(n, 'episode')}; their steps were numbered in the order of the rows"
        place.mend(mapping.step, "step numbers restart", message)
    if n := tally["shared"]:
        message = f"{counted(n, 'row')} with the step number of the row before: parallel calls of one decision"
        place.mend(mapping.step, "step number shared", message)
    if n := tally["unnumbered"]:
        message = f"{counted(n, 'row')} without a step number, placed after the row before"
        place.mend(mapping.step, "no step number", message)
