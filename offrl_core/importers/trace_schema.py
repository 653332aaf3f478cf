"""The trace schema as a file, one step per record: JSON lines, JSON array or Parquet, nested or flat.

Nested, a step looks like this; only ``episode_id``, ``t`` and the name of the action are needed::

    {"episode_id": "e1", "t": 0, "task": "...", "state": {"user_goal": "...", "available_tools": ["search"]},
     "action": {"type": "tool_call", "tool": "search", "arguments": {"q": "x"}},
     "observation": {"tool_result": "...", "error": null}, "reward": 1.0, "done": true,
     "metadata": {"behavior_policy": "...", "temperature": 0.0, "latency_ms": 12.0, "cost_usd": 0.01}}

Flat, it has the columns of ``schema.COLUMNS``, free-form parts as JSON text; both may be mixed. Other fields
survive in ``metadata``. ``write_jsonl`` writes the nested form, and reading that gives the same table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from offrl_core.importers.endings import columns_of, repeated, report_disorder, settle_endings, write_endings
from offrl_core.importers.fields import Gathered, Row, finite_number, read_arguments, tool_names, whole_number
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import UNREADABLE, ImportReport, Place, why_unread
from offrl_core.schema import COLUMNS, canonical_json, short_hash, storable_text

EXAMPLE = b"""\
{"episode_id": "e1", "t": 0, "task": "add", \
"state": {"user_goal": "2 + 3", "available_tools": ["calculator", "answer"]}, \
"action": {"type": "tool_call", "tool": "calculator", "arguments": {"expression": "2 + 3"}}, \
"observation": {"tool_result": "5", "error": null}, "reward": 0.0, "done": false, \
"metadata": {"behavior_policy": "demo"}}
{"episode_id": "e1", "t": 1, "task": "add", \
"state": {"user_goal": "2 + 3", "available_tools": ["calculator", "answer"]}, \
"action": {"type": "tool_call", "tool": "answer", "arguments": {"value": 5}}, \
"observation": {"tool_result": "", "error": null}, "reward": 1.0, "terminal": true, "timeout": false, \
"metadata": {"behavior_policy": "demo"}}
"""

_SIGNS = ("episode_id", "t", "action")
PROVENANCE = ("source_file", "record", "upload_order")  # set anew by each import
IN_METADATA = ("behavior_policy", "temperature", "latency_ms", "cost_usd", "safety_flags")
IN_ACTION = {
    "name": "action",
    "type": "action_type",
    "tool": "tool",
    "arguments": "arguments",
    "arguments_raw": "arguments_raw",
    "arguments_status": "arguments_status",
    "decision_id": "decision_id",
    "call_index": "call_index",
}
IN_OBSERVATION = {"tool_result": "tool_result", "error": "error"}
STATUSES = (
    "object",
    "json_string",
    "double_encoded",
    "python_literal",
    "non_object",
    "empty",
    "malformed",
    "absent",
)
_SQL_TYPES = {column.name: column.sql_type for column in COLUMNS}
# Read by rules of their own; everything else is read by its SQL type.
_OWN_RULES = {"episode_id", "t", "action", "arguments", "arguments_hash", "error", "metadata", *PROVENANCE}
BY_TYPE = frozenset(_SQL_TYPES) - _OWN_RULES
AT_TOP = frozenset(_SQL_TYPES) | {"observation", "done"}
# SQL type -> how to read it (None: it isn't one) and what to call it.
_CONVERSIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "BOOLEAN": (lambda value: value if isinstance(value, bool) else None, "true or false"),
    "DOUBLE": (finite_number, "a number"),
    "INTEGER": (whole_number, "an integer"),
    "VARCHAR[]": (tool_names, "a list of names"),
}


class Unusable(Exception):
    """A record can't be a step, or not be read as a column: the field, a short kind and a sentence."""

    def __init__(self, field: str | None, kind: str, message: str) -> None:
        """Keep the three parts for the report."""
        super().__init__(message)
        self.field, self.kind, self.message = field, kind, message


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are steps of the trace schema, 0 to 1, and why."""
    objects = [value for value in values if isinstance(value, dict)]
    found = [sum(sign in value for sign in _SIGNS) for value in objects]
    complete = sum(n == len(_SIGNS) for n in found)
    partly = sum(n == len(_SIGNS) - 1 for n in found)  # a log that forgot one: its report says which
    if not complete and not partly:
        return 0.0, "no record has the fields episode_id, t and action"
    confidence = (complete + 0.6 * partly) / len(values)
    why = f"found episode_id, t and action in {complete} of the first {len(values)} records"
    return confidence, why + (f", two of the three in {partly} more" if partly else "")


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read steps; a record that can't be one is set aside with its field and reason.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on what was concluded about endings.
    """
    gathered = Gathered()
    for record in records:
        if row := read_row(record, report):
            gathered.add(record, [row])
    _settle(gathered, report)
    return gathered


def read_row(record: Record, report: ImportReport) -> Row | None:
    """One step, with its bare ``done``; None, and a problem, where the record can't be one."""
    place = report.at(record.source, record.number)
    try:
        return _row(record, place)
    except (Unusable, *UNREADABLE) as error:
        if not isinstance(error, Unusable):
            error = Unusable(None, *why_unread(error))
        report.n_steps_quarantined += 1
        place.lose(error.field, error.kind, error.message, record.raw)
        return None


def _settle(gathered: Gathered, report: ImportReport) -> None:
    """Set steps aside that were already there, and settle how episodes end."""
    rows = gathered.rows
    columns = columns_of(rows)
    again = repeated(columns)
    for i in again.tolist():
        key = rows[i]["source_file"], rows[i]["record"]
        lose_repeated(report.at(*key), report, rows[i]["episode_id"], rows[i]["t"], str(gathered.raw.pop(key)))
    kept = np.delete(np.arange(len(rows)), again)
    columns = columns.at(kept)
    gathered.rows = rows = [rows[i] for i in kept.tolist()]
    settle_endings(columns, report, lambda i: report.at(rows[i]["source_file"], rows[i]["record"]))
    write_endings(rows, columns)
    report_disorder(columns, report)


def lose_repeated(place: Place, report: ImportReport, episode_id: str, t: int, raw: str) -> None:
    """Report a step whose episode already has one of that number."""
    report.n_steps_quarantined += 1
    message = f"step {t} of episode {episode_id} was already there; the first one is kept"
    place.lose("t", "duplicate step", message, raw)


def _row(record: Record, place: Place) -> Row:
    """One record as a row.

    Raises:
        Unusable: the record is no object, or lacks an episode, a step number or an action.
    """
    if not isinstance(record.value, dict):
        raise Unusable(None, "not an object", "a step must be an object with episode_id, t and action")
    cells, metadata = _flatten(record.value)
    row: Row = {
        "episode_id": episode_id(cells.get("episode_id")),
        "t": step_number(cells.get("t")),
        "action": _action_name(cells),
    }
    for name, value in cells.items():
        if value is not None and name in BY_TYPE:
            row[name] = cell(name, value, place)
    row |= _arguments(cells, place) | _defaults(cells, row)
    row["error"] = error_text(cells.get("error"))
    row["metadata"] = canonical_json(metadata) if metadata else None
    row["done"] = _done(cells, place)
    return row


# -- nested to flat ------------------------------------------------------------------------------------------


def _flatten(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a record, nested or flat, into cells by column name and what belongs into ``metadata``."""
    cells = {name: value for name, value in record.items() if name in AT_TOP}
    extra = {name: value for name, value in record.items() if name not in AT_TOP}
    if not all(name in record for name in PROVENANCE):  # a foreign log may call anything "record"
        extra |= {name: cells.pop(name) for name in PROVENANCE if name in record}
    metadata = _metadata(cells, extra)
    if isinstance(cells.get("action"), dict):
        _unpack(cells, "action", IN_ACTION, metadata)
    if isinstance(cells.get("observation"), dict):
        _unpack(cells, "observation", IN_OBSERVATION, metadata)
    elif "observation" in cells:
        cells.setdefault("tool_result", cells["observation"])
    _from_state(cells)
    if extra:
        before = metadata.get("extra", {})
        metadata["extra"] = (before if isinstance(before, dict) else {"extra": before}) | extra
    return cells, metadata


def _metadata(cells: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Take ``metadata`` out of the cells, and what has a column out of it; no object goes to ``extra``."""
    metadata = cells.pop("metadata", None)
    if isinstance(metadata, str):
        parsed, reason = parse_json(metadata)
        metadata = metadata if reason else parsed
    if not isinstance(metadata, dict):
        extra |= {} if metadata is None else {"metadata": metadata}
        return {}
    rest = {}
    for name, value in metadata.items():
        if name not in IN_METADATA:
            rest[name] = value
        elif cells.get(name) is None:
            cells[name] = value
        else:  # said twice: the column stands, the other is kept beside it
            rest[f"metadata.{name}"] = value
    return rest


def _unpack(cells: dict[str, Any], part: str, names: dict[str, str], metadata: dict[str, Any]) -> None:
    """Move the fields of a nested part into their columns, and those without a column into ``metadata``."""
    for name, value in cells.pop(part).items():
        if name in names:
            cells[names[name]] = value
        else:
            metadata[name if name not in metadata else f"{part}.{name}"] = value


def _from_state(cells: dict[str, Any]) -> None:
    """Take text and available tools from the state, where the record doesn't give them itself."""
    state = cells.get("state")
    if not isinstance(state, dict):
        return
    text = state.get("state_text", state.get("key"))
    if text is not None:
        cells.setdefault("state_text", text if isinstance(text, str) else canonical_json(text))
    if state.get("available_tools") is not None:
        cells.setdefault("available_tools", state["available_tools"])


# -- cells ---------------------------------------------------------------------------------------------------


def episode_id(value: Any) -> str:
    """The episode's name; a whole number will do."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value
    raise Unusable("episode_id", "no episode_id", "every step needs an episode_id, a text that isn't empty")


def step_number(value: Any) -> int:
    """The step number; 3.0 is 3, but true and "3" are no numbers."""
    number = whole_number(value)
    if number is None:
        what = "it is missing" if value is None else "what stands here is none"
        message = f"every step needs an integer t of at most 32 bits; {what}"
        raise Unusable("t", "t is not an integer", message)
    return number


def _action_name(cells: dict[str, Any]) -> str:
    """Name of the action: what the record calls it, else the tool, else the type."""
    for name in ("action", "tool", "action_type"):
        if found := name_of_action(cells.get(name)):
            return found
    message = "every step needs an action: a name, or an object with a tool or a type"
    raise Unusable("action", "no action", message)


def name_of_action(value: Any) -> str | None:
    """A value that may name an action, as text; classical environments number theirs."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def _defaults(cells: dict[str, Any], row: Row) -> Row:
    """Conclude what the record implies but doesn't say; an explicit null stays NULL."""
    implied: Row = {}
    if row.get("tool") and "action_type" not in cells:
        implied["action_type"] = "tool_call"
    if row.get("action_type") == "tool_call" and "tool" not in cells:
        implied["tool"] = row["action"]
    if "action_logprob" not in cells and (logprob := finite_number(cells.get("action_logprobs"))) is not None:
        implied["action_logprob"] = logprob
    return implied


def cell(name: str, value: Any, place: Place) -> Any:
    """A value that isn't null as its column wants it; NULL and a problem where it can't be."""
    sql_type = _SQL_TYPES[name]
    if sql_type == "VARCHAR":
        return _text_cell(name, value, place)
    if sql_type == "JSON":
        return _json_cell(name, value, place)
    convert, wanted = _CONVERSIONS[sql_type]
    read = convert(value)
    if read is None:
        message = f"this is not {wanted}, so the step keeps no {name} (NULL)"
        place.mend(name, f"{name} is not {wanted}", message, value)
    return read


def _text_cell(name: str, value: Any, place: Place) -> str:
    """Text as it is, a number as its text; lists and objects as JSON text, a problem where text was due."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict) and name != "tool_result":  # results may have any shape
        message = "text was expected; it is kept as JSON text"
        place.mend(name, f"{name} is not text", message, value)
    return canonical_json(value)


def _json_cell(name: str, value: Any, place: Place) -> str:
    """Canonical JSON text of a value; text that is JSON stands for what it says, other text for a string."""
    if isinstance(value, str):
        parsed, reason = parse_json(value)
        if not reason:
            return canonical_json(parsed)
        if value.lstrip()[:1] in ("{", "["):
            message = f"the JSON text is broken ({reason}); it is kept as a plain string"
            place.mend(name, f"{name} is broken JSON", message, value)
    return canonical_json(value)


def _arguments(cells: dict[str, Any], place: Place) -> Row:
    """The columns of the arguments: as the record's own status says, else by looking at them."""
    value, status = cells.get("arguments"), cells.get("arguments_status")
    known = status is None or (isinstance(status, str) and status in STATUSES)
    if "arguments_status" in cells and known:
        text = None if value is None else _json_cell("arguments", value, place)
        return {"arguments": text, "arguments_hash": None if text is None else short_hash(storable_text(text))}
    if not known:
        message = "this status isn't known; it was found anew from the arguments"
        place.mend("arguments_status", "unknown arguments_status", message, status)
    raw = cells.get("arguments_raw")
    columns = read_arguments(raw if value is None else value).columns()
    return columns | ({"arguments_raw": raw} if isinstance(raw, str) else {})


def error_text(value: Any) -> str | None:
    """Why the action failed; false and an empty text say that it didn't."""
    if value is None or value is False or value == "":
        return None
    return value if isinstance(value, str) else canonical_json(value)


# -- endings -------------------------------------------------------------------------------------------------


def _done(cells: dict[str, Any], place: Place) -> bool:
    """The bare ``done`` of a record; false where the record says it more exactly, or not at all."""
    done = cells.get("done")
    if done is None or cells.get("terminal") is not None or cells.get("timeout") is not None:
        return False
    if not isinstance(done, bool):
        message = "this is not true or false, so the step counts as one that says nothing about an ending"
        place.mend("done", "done is not true or false", message, done)
    return done is True


# -- writing -------------------------------------------------------------------------------------------------


def write_jsonl(steps: pa.Table, path: str | Path) -> None:
    """Write steps as JSON lines in the nested form, in their upload order; reading them gives the same table.

    Only the provenance (``source_file``, ``record``, ``upload_order``) is set anew when the file is read.

    Args:
        steps: a table with the columns of ``schema.STEPS_ARROW_SCHEMA``.
        path: file to write; an existing one is replaced.
    """
    if steps.num_rows:
        steps = steps.sort_by("upload_order")
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for batch in steps.to_batches(max_chunksize=1024):
            for row in batch.to_pylist():
                file.write(storable_text(json.dumps(_nested(row), ensure_ascii=False)) + "\n")


def _nested(row: dict[str, Any]) -> dict[str, Any]:
    """One row of the table in the nested form; nulls are written, as a missing field may be concluded."""
    row = {name: _written(name, value) for name, value in row.items() if name not in PROVENANCE}
    del row["arguments_hash"]
    metadata = row.pop("metadata")
    if not isinstance(metadata, dict):
        metadata = {} if metadata is None else {"extra": {"metadata": metadata}}
    metadata |= {name: value for name in IN_METADATA if (value := row.pop(name)) is not None}
    action = {name: row.pop(column) for name, column in IN_ACTION.items()}
    observation = {name: row.pop(column) for name, column in IN_OBSERVATION.items()}
    known = row["terminal"] is not None or row["timeout"] is not None
    done = bool(row["terminal"] or row["timeout"]) if known else None
    return row | {"action": action, "observation": observation, "done": done, "metadata": metadata}


def _written(name: str, value: Any) -> Any:
    """A cell as JSON value; JSON text becomes what it says, except strings and null: they'd be misread."""
    if value is None or _SQL_TYPES[name] != "JSON":
        return value
    parsed, reason = parse_json(value)
    return value if reason or parsed is None or isinstance(parsed, str) else parsed
