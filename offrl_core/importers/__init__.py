"""Files of agents to steps: recognise a format by its content, read it, report what could not be read.

``IMPORTERS`` is the registry: a new format is a module with ``sniff``, ``read``, ``EXAMPLE``, and one entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from offrl_core.errors import TraceFormatError, UnknownName
from offrl_core.importers import openai_chat, trace_schema
from offrl_core.importers.fields import Gathered
from offrl_core.importers.records import Progress, Record, read_records
from offrl_core.importers.report import ImportReport, Problem
from offrl_core.schema import RECORDS_ARROW_SCHEMA, steps_table, storable_text

__all__ = ["IMPORTERS", "ImportReport", "Imported", "ImporterSpec", "Problem", "read_source"]

SNIFFED_RECORDS = 200
# One late record must not decide what a file is, so a format has to fit most of the first ones.
_LEAST_CONFIDENCE = 0.5


@dataclass(frozen=True, slots=True)
class ImporterSpec:
    """One format: how to recognise and read it, and a small file of it.

    ``sniff`` takes the values of the first records and gives a confidence from 0 to 1 and why in words.
    ``read`` takes all records, each of which names its file, and the report, which gets what can't be read.
    """

    name: str
    title: str
    sniff: Callable[[Sequence[Any]], tuple[float, str]]
    read: Callable[[Iterable[Record], ImportReport], Gathered]
    example: bytes
    example_name: str


@dataclass(slots=True)
class Imported:
    """A file that was read: steps, the raw records behind them, and the report."""

    steps: pa.Table  # columns of schema.STEPS_ARROW_SCHEMA; by first appearance of the episode, then t
    records: pa.Table  # columns of schema.RECORDS_ARROW_SCHEMA; records that gave at least one step
    report: ImportReport


IMPORTERS: dict[str, ImporterSpec] = {
    "trace_schema": ImporterSpec(
        name="trace_schema",
        title="Trace schema (one step per record)",
        sniff=trace_schema.sniff,
        read=trace_schema.read,
        example=trace_schema.EXAMPLE,
        example_name="trace_schema_example.jsonl",
    ),
    "openai_chat": ImporterSpec(
        name="openai_chat",
        title="OpenAI chat messages and tau-bench results",
        sniff=openai_chat.sniff,
        read=openai_chat.read,
        example=openai_chat.EXAMPLE,
        example_name="openai_chat_example.jsonl",
    ),
}


def read_source(
    name: str,
    data: bytes,
    *,
    format: str | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Read one file of an agent's log, whatever its format.

    Args:
        name: what to call the file; the format is never concluded from it.
        data: the bytes of the file.
        format: a key of ``IMPORTERS``, to override the recognition.
        progress: called with the fraction done, 0 to 1, from the calling thread.

    Raises:
        TraceFormatError: no step can be read; the text says why and what to do. Where records were looked at,
            the attribute ``report`` of the error holds their report.
        UnknownName: there is no such format.
    """
    if format is not None and format not in IMPORTERS:
        raise UnknownName("import format", format, IMPORTERS)
    report = ImportReport(files=[name])
    records = read_records(name, data, report, progress)
    head = list(islice(records, SNIFFED_RECORDS))
    if format is None:
        format, report.why = _recognise(name, [record.value for record in head])
    else:
        report.why = "chosen by hand"
    report.format = format
    gathered = IMPORTERS[format].read(chain(head, records), report)
    if not gathered.rows:
        raise _nothing_read(name, report)
    imported = _tables(gathered, report)
    if progress:
        progress(1.0)
    return imported


def _recognise(name: str, values: Sequence[Any]) -> tuple[str, str]:
    """Name of the format that fits best, and why.

    Raises:
        TraceFormatError: none fits most of the records.
    """
    if not values:
        raise TraceFormatError(f"{name} holds no record. Check that the export has finished.")
    guesses = {key: spec.sniff(values) for key, spec in IMPORTERS.items()}
    best = max(guesses, key=lambda key: guesses[key][0])
    confidence, why = guesses[best]
    if confidence >= _LEAST_CONFIDENCE:
        return best, why
    keys = Counter(key for value in values if isinstance(value, dict) for key in value)
    found = ", ".join(storable_text(key[:40]) for key, _ in keys.most_common(12))
    found = f"its records have the fields {found}" if found else "its records are no objects with fields"
    known = "; ".join(spec.title for spec in IMPORTERS.values())
    raise TraceFormatError(
        f"The format of {name} isn't known: {found}. Known formats: {known}. Convert it to one of them; nothing was loaded."
    )


def _nothing_read(name: str, report: ImportReport) -> TraceFormatError:
    """The error for a file whose format is known but which holds not one readable step."""
    n = report.tally.total()
    text = f"No step could be read from {name} (format {report.format}, {report.why})."
    if report.problems:
        text += f" {n:,} problem{'s' if n != 1 else ''}, the first: {report.problems[0].sentence()}."
    error = TraceFormatError(text)
    error.report = report  # type: ignore[attr-defined]  # the page shows the problems under the sentence
    return error


def _tables(gathered: Gathered, report: ImportReport) -> Imported:
    """Sort the rows, number them in the order of reading, build both tables and fill in the counts."""
    rank: dict[str, int] = {}
    for order, row in enumerate(gathered.rows):
        row["upload_order"] = order
        rank.setdefault(row["episode_id"], len(rank))
    rows: list[Mapping[str, Any]] = sorted(gathered.rows, key=lambda row: (rank[row["episode_id"]], row["t"]))
    _say_how_episodes_end(rows)
    report.n_steps, report.n_episodes, report.n_records_read = len(rows), len(rank), len(gathered.raw)
    keys = sorted(gathered.raw)
    records = pa.Table.from_arrays(
        [
            pa.array([storable_text(source) for source, _ in keys], type=pa.string()),
            pa.array([number for _, number in keys], type=pa.int64()),
            pa.array([storable_text(gathered.raw[key]) for key in keys], type=pa.string()),
        ],
        schema=RECORDS_ARROW_SCHEMA,
    )
    return Imported(steps_table(rows), records, report)


def _say_how_episodes_end(rows: Sequence[Any]) -> None:
    """Fill ``end_reason`` of each episode's last row, where its importer didn't, from what it said of the ending."""
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        if following is not None and following["episode_id"] == row["episode_id"]:
            continue
        implied = "terminated" if row.get("terminal") else "truncated" if row.get("timeout") else "unknown"
        row["end_reason"] = row.get("end_reason") or implied
