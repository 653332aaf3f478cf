"""Files in the trace schema, chunk by chunk as columns: what is regular by ``trace_cells``, the rest record by record.

Chunks are worked on side by side, since DuckDB and Arrow leave Python's lock; what they give is put together in the
order of the file, and everything that is reported is reported in that order, too.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from offrl_core.importers import trace_schema
from offrl_core.importers.endings import repeated, report_disorder, settle_endings
from offrl_core.importers.fields import Row
from offrl_core.importers.json_leaves import Shapes, connection, read_leaves
from offrl_core.importers.raw_text import FilePart, FileText, RawRecords
from offrl_core.importers.recognition import Source
from offrl_core.importers.records import Progress, Record, line_record, split_lines
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.step_parts import StepParts, report_broken_arguments
from offrl_core.importers.trace_cells import OPENED, columns_of_leaves
from offrl_core.importers.trace_parquet import flat_steps
from offrl_core.schema import STEPS_ARROW_SCHEMA, steps_table, storable_text

_CHUNK = 2**23  # bytes read at a time; DuckDB needs some ten times as much while it works on them
# In a large upload memory counts for more than time:
_SMALL_CHUNK, _SMALL_ROOM = 3 * 2**19, 2**23
_LARGE_FILE = 2**28
_WORKERS = min(2, os.cpu_count() or 1)  # each needs memory of its own

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(slots=True)
class Steps:
    """Steps in the order of reading, not yet put in order and closed.

    Attributes:
        table: columns of the schema; ``upload_order`` is NULL.
        done: (N,) whether a step bears a bare ``done``.
    """

    table: pa.Table
    done: BoolArray


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of a file from some place on.

    Attributes:
        name: what the file is called.
        text: its content, in UTF-8.
        start: byte where the first of these lines begins.
        number: number of that line, from 1.
        tick: called with the fraction of the file that was read.
        note: called with each record that is read by itself.
    """

    name: str
    text: FileText
    start: int
    number: int
    tick: Progress
    note: Callable[[Record], None]


def read(sources: Sequence[Source], report: ImportReport) -> tuple[StepParts, RawRecords]:
    """Read files in the trace schema, whatever their layout, like ``trace_schema.read``."""
    is_large = sum(source.size for source in sources) >= _LARGE_FILE
    parts, raw = StepParts(_SMALL_ROOM) if is_large else StepParts(), RawRecords()
    for source in sources:
        for steps in _steps_of(source, report, raw):
            report_broken_arguments(steps.table, report)
            parts.add(steps.table, steps.done)
    _settle(parts, report, raw)
    return parts, raw


def _steps_of(source: Source, report: ImportReport, raw: RawRecords) -> Iterator[Steps]:
    if parquet := source.as_parquet():
        for steps in flat_steps(source.name, *parquet, report, raw, source.tick):
            yield Steps(*steps)
        return
    found = source.as_lines(report)
    if found is None:
        yield _read_records(source.records(report), report, raw)
        return
    head, text, start, number = found
    yield _read_records(head, report, raw)
    lines = _Lines(source.name, text, start, number, source.tick, source.note)
    yield from _read_lines(lines, report, raw)


def _settle(parts: StepParts, report: ImportReport, raw: RawRecords) -> None:
    """Set steps aside that were already there, and settle how episodes end."""
    columns = parts.columns()
    again = repeated(columns)
    if len(again):
        ids = list(parts.ids)
        keys = parts.provenance(again)
        for i, key in zip(again.tolist(), keys, strict=True):
            text = raw.find(*key) or ""
            place = report.at(*key, raw.offset_of(*key))
            trace_schema.lose_repeated(place, report, ids[columns.episodes[i]], int(columns.t[i]), text)
        raw.drop(keys)
        parts.keep(np.delete(np.arange(len(columns.t)), again))
        columns = parts.columns()

    def place_of(i: int) -> Place:
        (key,) = parts.provenance(np.array([i]))
        return report.at(*key, raw.offset_of(*key))

    settle_endings(columns, report, place_of)
    report_disorder(columns, report)


def _read_records(records: Iterable[Record], report: ImportReport, raw: RawRecords) -> Steps:
    """Read records one by one."""
    rows: list[Row] = []
    texts: dict[tuple[str, int], str | FilePart] = {}
    for record in records:
        if row := trace_schema.read_row(record, report):
            rows.append(row | {"source_file": record.source, "record": record.number})
            texts[record.source, record.number] = record.raw  # the file itself is not kept for a few records
    raw.add_texts(texts)
    if not rows:
        return _nothing()
    done = np.array([bool(row.pop("done")) for row in rows], dtype=bool)
    return Steps(steps_table(rows), done)


def _read_lines(lines: _Lines, report: ImportReport, raw: RawRecords) -> Iterator[Steps]:
    """Read JSON lines, chunk by chunk."""
    shapes: Shapes = {}
    database = connection()

    def work(chunk: _Chunk) -> tuple[_Chunk, Steps, IntArray]:
        return chunk, *_regular(chunk, database.cursor(), shapes)

    waiting: deque[Future[tuple[_Chunk, Steps, IntArray]]] = deque()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for chunk in _chunks(lines):
            waiting.append(pool.submit(work, chunk))
            if len(waiting) >= _WORKERS:
                yield _completed(lines, *waiting.popleft().result(), report, raw)
        while waiting:
            yield _completed(lines, *waiting.popleft().result(), report, raw)


# -- chunks --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Whole lines of a file."""

    data: bytes
    offset: int  # in the file
    numbers: IntArray  # of the lines that aren't blank
    starts: IntArray  # of those, in the data
    ends: IntArray  # behind the line, without its line break


def _chunks(lines: _Lines) -> Iterator[_Chunk]:
    position, number = lines.start, lines.number
    while position < lines.text.size:
        data = _whole_lines(lines.text, position, _CHUNK if lines.text.size < _LARGE_FILE else _SMALL_CHUNK)
        chunk, n_lines = _cut(data, position, number)
        yield chunk
        position, number = position + len(data), number + n_lines
        lines.tick(position / lines.text.size)


def _whole_lines(text: FileText, position: int, size: int) -> bytes:
    """Bytes from here to the end of a line: as many as a chunk shall have, or one line that is longer."""
    while True:
        data = text.read(position, position + size)
        if position + len(data) >= text.size:
            return data
        if end := data.rfind(b"\n") + 1:
            return data[:end]
        size *= 2


def _cut(data: bytes, offset: int, number: int) -> tuple[_Chunk, int]:
    breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    starts = np.append(0, breaks + 1)
    ends = np.append(breaks, len(data))
    if starts[-1] == len(data):
        starts, ends = starts[:-1], ends[:-1]
    numbers = number + np.arange(len(starts))
    full = ends > starts
    return _Chunk(data, offset, numbers[full], starts[full], ends[full]), len(starts)


def _regular(chunk: _Chunk, cursor: duckdb.DuckDBPyConnection, shapes: Shapes) -> tuple[Steps, IntArray]:
    """Steps of the lines that can be read as columns, and the places of these lines in the chunk."""
    places = np.flatnonzero(_may_be_objects(chunk))
    if not len(places) or len(chunk.data) >= 2**31:
        return _nothing(), places[:0]
    leaves, is_read = read_leaves(cursor, _texts(chunk, places), OPENED, shapes)
    places = places[is_read]
    if not len(places):
        return _nothing(), places
    columns, odd = columns_of_leaves(cursor, leaves)
    columns |= {"record": pa.array(chunk.numbers[places])}
    steps = Steps(_table(columns, len(places)), np.asarray(columns["done"]))
    return (steps, places) if not odd.any() else (_at(steps, np.flatnonzero(~odd)), places[~odd])


def _nothing() -> Steps:
    return Steps(STEPS_ARROW_SCHEMA.empty_table(), np.zeros(0, dtype=bool))


def _may_be_objects(chunk: _Chunk) -> BoolArray:
    data = np.frombuffer(chunk.data, np.uint8)
    if not len(chunk.starts):
        return np.zeros(0, dtype=bool)
    last = data[chunk.ends - 1]
    before = np.where(last == ord("\r"), data[np.maximum(chunk.ends - 2, chunk.starts)], last)
    return np.asarray((data[chunk.starts] == ord("{")) & (before == ord("}")))


def _texts(chunk: _Chunk, places: IntArray) -> pa.Array:
    """The lines as Arrow has them, without a copy where they follow each other."""
    starts, ends = chunk.starts[places], chunk.ends[places]
    follows = len(places) == 1 or bool(np.all(starts[1:] == ends[:-1] + 1))
    if follows:
        offsets = np.append(starts, min(int(ends[-1]) + 1, len(chunk.data))).astype(np.int32)
        return pa.StringArray.from_buffers(len(places), pa.py_buffer(offsets), pa.py_buffer(chunk.data))
    whole = np.append(chunk.starts, len(chunk.data)).astype(np.int32)
    everything = pa.StringArray.from_buffers(len(chunk.starts), pa.py_buffer(whole), pa.py_buffer(chunk.data))
    return everything.take(pa.array(places))


def _table(columns: dict[str, pa.Array], n: int) -> pa.Table:
    arrays = [columns.get(field.name, pa.nulls(n, field.type)) for field in STEPS_ARROW_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=STEPS_ARROW_SCHEMA)


def _at(steps: Steps, places: IntArray) -> Steps:
    return Steps(steps.table.take(pa.array(places)), steps.done[places])


# -- putting together ----------------------------------------------------------------------------------------


def _completed(
    lines: _Lines, chunk: _Chunk, steps: Steps, places: IntArray, report: ImportReport, raw: RawRecords
) -> Steps:
    """Read the other lines one by one, and put all of the chunk into the order of the file."""
    report.accounts.found[lines.name] += len(places)
    others = np.delete(np.arange(len(chunk.starts)), places)
    read, sizes = [places], [chunk.ends[places] - chunk.starts[places]]
    starts = [chunk.starts[places]]
    rows = []
    for place in others.tolist():
        start, end = int(chunk.starts[place]), int(chunk.ends[place])
        for _, at, line in split_lines(chunk.data[start:end]):
            report.accounts.found[lines.name] += 1
            offset = chunk.offset + start + at
            part = FilePart(chunk.data, start + at, start + at + len(line))
            record = line_record(lines.name, int(chunk.numbers[place]), offset, part, report)
            if record:
                lines.note(record)
            if record and (row := trace_schema.read_row(record, report)):
                rows.append(row | {"record": record.number})
                read.append(np.array([place]))
                starts.append(np.array([start + at]))
                sizes.append(np.array([len(line)]))
    if rows:
        steps = _merged(steps, rows, np.concatenate(read))
    order = np.argsort(np.concatenate(read), kind="stable")
    kept = np.concatenate(read)[order]
    raw.add_lines(
        lines.name,
        lines.text,
        chunk.numbers[kept],
        chunk.offset + np.concatenate(starts)[order],
        np.concatenate(sizes)[order].astype(np.int32),
    )
    name = pa.array([storable_text(lines.name)] * 1).take(pa.array(np.zeros(len(kept), dtype=np.int64)))
    at = STEPS_ARROW_SCHEMA.get_field_index("source_file")
    return Steps(steps.table.set_column(at, STEPS_ARROW_SCHEMA.field(at), name), steps.done)


def _merged(steps: Steps, rows: Sequence[Row], places: IntArray) -> Steps:
    """Regular steps and others, by their places."""
    done = np.array([bool(row.pop("done")) for row in rows], dtype=bool)
    table = pa.concat_tables([steps.table, steps_table(rows)]).combine_chunks()
    return _at(Steps(table, np.append(steps.done, done)), np.argsort(places, kind="stable"))
