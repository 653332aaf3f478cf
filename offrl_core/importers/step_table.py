"""Home-made step tables, one step per row or a list of steps per record, in JSON, CSV or Parquet.

Which field means what is said by a ``StepMapping``, or guessed from names and values. Cells are read by what they
say, since tables write truth values as 1 or "yes", missing rewards as NaN and discrete actions as 2.0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from offrl_core.importers.endings import close_episodes
from offrl_core.importers.fields import Gathered, Row
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport
from offrl_core.importers.step_actions import (
    have_call_form,
    named_actions,
    numbered_action,
    numbers_of,
)
from offrl_core.importers.step_cells import is_missing
from offrl_core.importers.step_columns import add_columns
from offrl_core.importers.step_guess import guess_mapping
from offrl_core.importers.step_leaks import leaks
from offrl_core.importers.step_mapping import StepMapping, items_of
from offrl_core.importers.step_numbers import Step, by_episode, number_steps
from offrl_core.importers.step_states import action_texts, state_texts, state_values
from offrl_core.schema import canonical_json

EXAMPLE = b"""\
{"run": "a", "step": 0, "state": "hall", "tool": "look", "args": {"at": "door"}, "output": "it is shut", "reward": 0}
{"run": "a", "step": 1, "state": "hall", "tool": "open", "args": {"what": "door"}, "output": "it opens", "reward": 1, \
"done": true}
{"run": "b", "step": 0, "state": "hall", "tool": "open", "args": {"what": "window"}, "output": "it is stuck", \
"reward": 0, "done": true}
"""

_RECORDS_LOOKED_AT = 1000
_BEST_CONFIDENCE = 0.75  # of a guess: a format that is known for certain goes first
_WITHOUT_EPISODES = 0.55
_LEAST_OF_A_ROLE = 0.4
# Fields of other formats, none of which is a step table though parts of it may look like one.
_FOREIGN = frozenset(
    "messages conversations traj resourceSpans span_id spanId parentUuid run_type trace_metadata answer_generation".split()
)


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are steps, 0 to 0.75 as names and types only suggest it, and why."""
    objects = [value for value in values if isinstance(value, dict)]
    if not objects or 2 * sum(bool(_FOREIGN & value.keys()) for value in objects) > len(objects):
        return 0.0, "the records are no rows of a table"
    mapping = guess_mapping(objects)
    found = {why.role: why for why in mapping.why}
    action, episode = found.get("action"), found.get("episode")
    if not action or action.confidence < _LEAST_OF_A_ROLE:
        return 0.0, "no field is called like an action" + (f", though {action.path} may hold it" if action else "")
    if action.path == "name" and any(
        "content" in item.inner for value in objects for item in items_of(value, mapping.steps)
    ):
        return 0.0, "the records are messages, whose name is that of the speaker"
    readable = sum(
        any(not is_missing(item.get(mapping.action)) for item in items_of(value, mapping.steps)) for value in objects
    )
    share = readable / len(values)
    if mapping.steps or (episode and episode.confidence >= _LEAST_OF_A_ROLE):
        reason = f"; {episode.reason}" if episode else ""
        return (
            _BEST_CONFIDENCE * share,
            f"found steps in {readable} of the first {len(values)} records: {action.reason}{reason}",
        )
    if mapping.reward and (mapping.terminal or mapping.timeout or mapping.done or mapping.step):
        return (
            _WITHOUT_EPISODES * share,
            f"found steps without an episode in {readable} of the first {len(values)} records: {action.reason}",
        )
    return 0.0, f"{action.reason}, but no field looks like the episode"


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport, mapping: StepMapping | None = None) -> Gathered:
    """Read step tables; a row that can't be a step is set aside with its field and reason.

    Args:
        records: records of the files, in order; files with other fields have a mapping of their own.
        report: gets the problems, and notes on the mapping and on what was concluded.
        mapping: which field means what; guessed where it isn't given.
    """
    gathered = Gathered()
    used: Counter[str] = Counter()
    for table in _tables(records):
        chosen = mapping or guess_mapping(_sample(table))
        if mapping is None:
            report.notes.append(_in_words(chosen))
        _read_table(table, chosen, gathered, used, report)
    _say_cut(gathered.rows, report)
    close_episodes(gathered.rows, report)
    _say_rewards(gathered.rows, report)
    return gathered


def preview(values: Sequence[Any], mapping: StepMapping, n: int = 1) -> list[Row]:
    """The first n episodes as a mapping would read them.

    Args:
        values: the first records of a log.
        mapping: which field means what.
        n: number of episodes.
    """
    records = [Record(i, value, canonical_json(value), "preview") for i, value in enumerate(values, start=1)]
    rows = read(records, ImportReport(files=["preview"]), mapping).rows
    first = list(dict.fromkeys(row["episode_id"] for row in rows))[:n]
    return sorted(
        (row for row in rows if row["episode_id"] in first), key=lambda row: (first.index(row["episode_id"]), row["t"])
    )


def _tables(records: Iterable[Record]) -> list[list[Record]]:
    """Records of files with the same fields together; other files are tables of their own."""
    files: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        files[record.source].append(record)
    tables: dict[frozenset[Any], list[Record]] = defaultdict(list)
    for found in files.values():
        first = next((record.value for record in found if isinstance(record.value, dict)), {})
        tables[frozenset(first)] += found
    return list(tables.values())


def _sample(table: Sequence[Record]) -> list[Any]:
    return [record.value for record in table[:_RECORDS_LOOKED_AT]]


def _in_words(mapping: StepMapping) -> str:
    """What a guess takes for what."""
    roles: dict[str, list[str]] = defaultdict(list)
    for role, path in mapping.paths():
        roles[role].append(path)
    parts = [
        f"{role.replace('_', ' ')} = {', '.join(paths[:6])}{', …' if len(paths) > 6 else ''}"
        for role, paths in roles.items()
    ]
    text = f"The fields were guessed from their names and values: {'; '.join(parts)}."
    if mapping.reward_at_end and mapping.reward:
        text += f" {mapping.reward} tells the outcome of an episode, so only its last step has the reward."
    return text


def _read_table(
    table: Sequence[Record], mapping: StepMapping, gathered: Gathered, used: Counter[str], report: ImportReport
) -> None:
    """Read the rows of files with the same fields."""
    steps = _with_actions(_steps(table, mapping, report), mapping, report)
    _add_states(steps, mapping, report)
    _say_leaks(steps, mapping, report)
    add_columns(steps, mapping, report)
    episodes = by_episode(steps, mapping, used, report)
    number_steps(episodes, mapping, report)
    for found in episodes.values():
        _settle_ends(found, mapping)
    kept = {id(step) for found in episodes.values() for step in found}
    for step in steps:
        if id(step) in kept:
            gathered.add(step.record, step.rows)


def _steps(table: Sequence[Record], mapping: StepMapping, report: ImportReport) -> list[Step]:
    """The steps in all records; a record without one is set aside."""
    steps: list[Step] = []
    for record in table:
        if _is_too_deep(record.value):
            _set_aside(record, None, "nested too deep", "the record is nested too deep to be read", report)
            continue
        items = items_of(record.value, mapping.steps)
        steps += [Step(record, item) for item in items]
        if not items:
            where = f"holds no list {mapping.steps} of steps" if mapping.steps else "is no object with fields"
            _set_aside(record, mapping.steps, "no steps", f"the record {where}, so it was set aside", report)
    return steps


def _is_too_deep(value: Any) -> bool:
    """Whether a record can't be written as JSON; a flat row can, so it isn't tried."""
    if not isinstance(value, dict) or not any(isinstance(item, list | dict) for item in value.values()):
        return False
    try:
        canonical_json(value)
    except RecursionError:
        return True
    return False


def _set_aside(record: Record, field: str | None, kind: str, message: str, report: ImportReport) -> None:
    """Report that a step, or a record instead of one, is lost."""
    report.n_steps_quarantined += 1
    report.at(record.source, record.number).lose(field, kind, message, record.raw)


# -- actions -------------------------------------------------------------------------------------------------


def _with_actions(steps: Sequence[Step], mapping: StepMapping, report: ImportReport) -> list[Step]:
    """The steps that have an action, with a row for each of their actions."""
    items = [step.item for step in steps]
    numbers = numbers_of(items, mapping.action)
    if numbers is not None and mapping.arguments is None:
        _add_numbered_actions(steps, numbers, report)
    else:
        call_form = mapping.action is not None and have_call_form(items, mapping.action)
        if call_form:
            report.notes.append(
                f"{mapping.action} holds calls like search[rain]: the name is the action, the rest its arguments."
            )
        for step in steps:
            step.rows = named_actions(step.item, mapping, call_form=call_form)
    for step in steps:
        if not step.rows:
            message = "this row has no action, so it was set aside"
            _set_aside(step.record, mapping.action, "no action", message, report)
    return [step for step in steps if step.rows]


def _add_numbered_actions(steps: Sequence[Step], numbers: Sequence[list[float] | None], report: ImportReport) -> None:
    """Give each step with numbers as its action one row."""
    known = [(step, vector) for step, vector in zip(steps, numbers, strict=True) if vector is not None]
    named = action_texts([vector for _, vector in known])
    report.notes += named.notes
    for (step, vector), name in zip(known, named.texts, strict=True):
        step.rows = [numbered_action(name or "?", vector, exact=not named.notes)]


# -- states --------------------------------------------------------------------------------------------------


def _add_states(steps: Sequence[Step], mapping: StepMapping, report: ImportReport) -> None:
    """Write the state of each step into its rows, in place."""
    states = state_values([step.item for step in steps], mapping.state)
    made = state_texts(states)
    report.notes += made.notes
    for step, state, text in zip(steps, states, made.texts, strict=True):
        for row in step.rows:
            row["state"] = None if state is None else canonical_json(state)
            row["state_text"] = text


def _say_leaks(steps: Sequence[Step], mapping: StepMapping, report: ImportReport) -> None:
    """Report what the state knows though it is known only after the action."""
    for leak in leaks([step.item for step in steps[:_RECORDS_LOOKED_AT]], mapping):
        report.at(steps[0].record.source).mend(leak.path, "known only afterwards", leak.sentence)


# -- endings and rewards -------------------------------------------------------------------------------------


def _settle_ends(steps: Sequence[Step], mapping: StepMapping) -> None:
    """Leave what holds for a whole episode (its outcome, flags of the record around the steps) on its last row only."""
    rows = [row for step in steps for row in step.rows]
    for row in rows[:-1]:
        if mapping.reward_at_end:
            row.pop("reward", None)
            row.pop("reward_source", None)
        for flag in ("terminal", "timeout", "done"):
            if (getattr(mapping, flag) or "").startswith("/"):
                row[flag] = False


def _say_cut(rows: Sequence[Row], report: ImportReport) -> None:
    """Say of episodes whose last step neither ended nor was cut by a limit, by its own flags, that the record breaks off."""
    last: dict[str, Row] = {}
    for row in rows:
        before = last.get(row["episode_id"])
        last[row["episode_id"]] = row if before is None or row["t"] > before["t"] else before
    cut = [row for row in last.values() if row["terminal"] is False and row["timeout"] is False and not row["done"]]
    for row in cut:
        row["end_reason"] = "cut"
    if cut:
        report.notes.append(
            f"{len(cut):,} of {len(last):,} episodes break off: their last step is marked as not the end."
        )


def _say_rewards(rows: Sequence[Row], report: ImportReport) -> None:
    """Say where rewards are missing."""
    missing = sum(row.get("reward") is None for row in rows)
    if rows and missing == len(rows):
        report.notes.append("This log has no rewards: it can be cloned, but no value can be learned from it.")
