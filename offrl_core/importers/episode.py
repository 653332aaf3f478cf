"""One run of an agent, put together action by action: numbers, decisions, the ending and the reward.

Importers of steps and of events share it, so that a run looks the same whichever program wrote it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from offrl_core.importers.fields import Arguments, Gathered, Row, label, mapping, metadata_text
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import UNREADABLE, ImportReport, Place
from offrl_core.schema import canonical_json
from offrl_core.wording import counted, singular

_ERROR_LENGTH = 300
_GOAL_LENGTH = 1000  # a goal stands on each row of its run; the record holds all of it
_VALUE_LENGTH = 200


@dataclass(slots=True)
class Episode:
    """The rows of one run. ``shared`` holds the columns that are the same on each of them."""

    id: str
    shared: Row = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def act(self, action: Row, decision: object, state: Row | None = None) -> Row:
        """Add an action and give its row; actions one after another of the same decision are its parallel calls.

        Args:
            action: columns of the action, as ``tool_call`` and ``message`` make them.
            decision: what the reply of the model is called in the file: an index or an id.
            state: what the agent saw before, small: a goal, and where in the record the rest stands.
        """
        decision_id = f"{self.id}#{decision}"
        last = self.rows[-1] if self.rows else {}
        row = {
            **self.shared,
            "episode_id": self.id,
            "t": len(self.rows),
            "decision_id": decision_id,
            "call_index": last["call_index"] + 1 if last.get("decision_id") == decision_id else 0,
            "state": canonical_json(state) if state else None,
            "terminal": False,
            "timeout": False,
            **action,
        }
        self.rows.append(row)
        return row

    def close(self, end_reason: str | None = None, **reward: Any) -> list[Row]:
        """Say on the last row how the run ended, as far as the log proves it, and what it earned; give all rows."""
        if self.rows:
            known = end_reason in ("terminated", "truncated")
            self.rows[-1] |= {
                "terminal": end_reason == "terminated" if known else None,
                "timeout": end_reason == "truncated" if known else None,
                "end_reason": end_reason,
            }
            self.rows[-1] |= {column: value for column, value in reward.items() if value is not None}
        return self.rows


def seen(goal: str | None, record: int, name: str, n: int) -> Row:
    """The state before item n of a list of the record: the goal, and where the history stands, not a copy of it."""
    return {
        "user_goal": _short_goal(goal),
        "history_length": n,
        "conversation_history": {"record": record, name: [0, n]},
    }


def _short_goal(goal: str | None) -> str | None:
    return goal[:_GOAL_LENGTH] + "…" if goal and len(goal) > _GOAL_LENGTH else goal


def goal_text(goal: str | None) -> str:
    """The goal as JSON text for ``seen_text``: it stands on each row of its run, so it is written once."""
    return canonical_json(_short_goal(goal))


def seen_text(goal: str, record: int, name: str, first: int, n: int) -> str:
    """``seen`` as canonical JSON, of a goal that is JSON text already; the history begins with item ``first``."""
    history = f'{{"{name}":[{first},{n}],"record":{record}}}'
    return f'{{"conversation_history":{history},"history_length":{n - first},"user_goal":{goal}}}'


def tool_call(
    name: str | None,
    arguments: Arguments,
    *,
    result: str | None = None,
    error: str | None = None,
    **metadata: Any,
) -> Row:
    """The columns of a tool call; one without a usable name is kept as the action ``invalid``."""
    return {
        "action": name or "invalid",
        "action_type": "tool_call" if name else "invalid",
        "tool": name or None,
        "tool_result": result,
        "error": error[:_ERROR_LENGTH] if error else None,
        "metadata": metadata_text(**metadata),
        **arguments.columns(),
    }


def message(text: str | None, *, result: str | None = None, **metadata: Any) -> Row:
    """The columns of a reply without a call; ``result`` is what the user or the environment answered."""
    arguments = Arguments("object", canonical_json({"text": text})) if text else Arguments("empty")
    return {
        "action": "message",
        "action_type": "message",
        "tool_result": result,
        "metadata": metadata_text(**metadata),
        **arguments.columns(),
    }


def looks_failed(text: str | None) -> str | None:
    """The text where it reads like that of an error. A guess: say so in the metadata of the step."""
    return text if text and text.startswith(("Error", "Traceback")) else None


def name_of(value: Any) -> str | None:
    """A name of a tool: text that isn't empty."""
    return label(value) if isinstance(value, str) else None


def add_metadata(row: Row, **fields: Any) -> None:
    """Put more fields into the metadata of a row."""
    old = mapping(parse_json(row.get("metadata") or "{}")[0])
    row["metadata"] = metadata_text(**old, **fields)


def others(value: dict[str, Any], known: Collection[str]) -> Row | None:
    """The small fields that an importer doesn't know: kept in the metadata; long ones stay in the raw record."""
    found = {
        key: item
        for key, item in value.items()
        if key not in known
        and item is not None
        and isinstance(item, str | int | float)
        and len(str(item)) <= _VALUE_LENGTH
    }
    return found or None


# -- whole uploads -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Runs:
    """What an upload gives: the rows, the names of episodes in use, and the report."""

    report: ImportReport
    gathered: Gathered = field(default_factory=Gathered)
    used_ids: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)  # by kind: things that are no action

    @contextmanager
    def guarded(self, record: Record) -> Iterator[Place]:
        """Where a record is read on its own: one that can't be read is reported and doesn't stop the others."""
        place = self.report.at(record.source, record.number)
        try:
            yield place
        except UNREADABLE as error:
            place.lose_unread(error, record.raw)

    def each(self, records: Iterable[Record], read: Callable[[Record, Place], Iterable[Row]]) -> None:
        """Read each record on its own, and keep its rows."""
        for record in records:
            with self.guarded(record) as place:
                self.gathered.add(record, list(read(record, place)))

    def last_rows(self) -> Iterator[Row]:
        """The last row of each episode."""
        return iter(_last_rows(self.gathered.rows))

    def done(self, runs: str, skipped: str = "", without_rewards: str = "", unknown_endings: str = "") -> Gathered:
        """Write down what the log leaves open, and give the rows.

        Args:
            runs: what the format calls its runs, in the plural: "trajectories".
            skipped: what the format calls the things in ``skipped``: "events".
            without_rewards: a sentence on where rewards can be had, for logs in which some are missing.
            unknown_endings: a sentence with {n} and {all}, where more can be said of endings that the log doesn't tell.
        """
        say_what_is_unknown(self.report, self.gathered.rows, runs, without_rewards, unknown_endings)
        if self.skipped:
            kinds = ", ".join(f"{kind} {n:,}" for kind, n in self.skipped.most_common(8))
            self.report.notes.append(
                f"No step comes from {counted(self.skipped.total(), singular(skipped))} without an action: {kinds}."
            )
        return self.gathered


def _last_rows(rows: Iterable[Row]) -> list[Row]:
    """The last row of each episode; the rows of an episode are in their order."""
    return list({row["episode_id"]: row for row in rows}.values())


def say_what_is_unknown(
    report: ImportReport, rows: Iterable[Row], runs: str, without_rewards: str = "", unknown_endings: str = ""
) -> None:
    """Write down how many runs have no reward and an ending that the log doesn't tell.

    Args:
        report: gets the notes.
        rows: all rows.
        runs: what the format calls its runs, in the plural: "trajectories".
        without_rewards: a sentence on where rewards can be had, for logs in which some are missing.
        unknown_endings: the sentence with {n} and {all} on endings that the log doesn't tell, in place of the usual one.
    """
    last = _last_rows(rows)
    unrewarded = sum(row.get("reward") is None for row in last)
    if last and unrewarded == len(last):
        report.notes.append("This log has no rewards: it can be cloned, but no value can be learned from it.")
    elif unrewarded:
        report.notes.append(f"{unrewarded:,} of {len(last):,} {runs} have no reward: unknown there, not 0.")
    if unrewarded and without_rewards:
        report.notes.append(without_rewards)
    if unknown := sum(row["terminal"] is None for row in last):
        of_all = counted(len(last), singular(runs))
        usual = f"The log doesn't say whether the task ended in {unknown:,} of {of_all}."
        report.notes.append(unknown_endings.format(n=f"{unknown:,}", all=f"{len(last):,}") or usual)
