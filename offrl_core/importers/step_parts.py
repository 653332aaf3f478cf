"""Steps as they are read, part by part, and the table they end in: by first appearance of the episode, then t.

What is needed to order steps and to close episodes stays at hand in arrays. The rest of a large log waits in a temporary
Parquet file between reading and writing, and ends in one: a million steps then take no more memory than a few thousand.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from offrl_core.importers.endings import IntArray, StepColumns, column_of, flags_of, in_time
from offrl_core.importers.records import parse_json
from offrl_core.importers.report import ImportReport
from offrl_core.schema import LARGEST_REWARD, STEPS_ARROW_SCHEMA, storable_text

KEPT_BYTES = 2**27  # of tables in memory; what goes beyond is put on the disk

_ROWS = 2**16
_PUT_AWAY_BYTES = 2**23  # at a time, once that has begun

BoolArray = NDArray[np.bool_]
Steps: TypeAlias = Any  # a pyarrow.Table, or a pyarrow.parquet.ParquetFile, which most imports never load


class _Drawer:
    """A temporary file for tables that would take too much memory, gone with its last reference."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # gone with this object

    def put(self, table: pa.Table) -> int:
        """Write a table; the place to ``take`` it from."""
        start = self._file.seek(0, os.SEEK_END)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(pa.PythonFile(_Open(self._file), mode="w"), table.schema, options=options) as writer:
            writer.write_table(table)
        return start

    def take(self, start: int) -> pa.Table:
        """Read a table."""
        self._file.seek(start)
        with pa.ipc.open_stream(pa.PythonFile(_Open(self._file), mode="r")) as reader:
            return reader.read_all()


def give_back_memory() -> None:
    """Return freed memory to the system; the C library keeps what DuckDB frees, some 150 MB of it, for later."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None  # where that is glibc
    if trim:
        trim(0)


def report_broken_arguments(steps: pa.Table, report: ImportReport) -> None:
    """Report calls whose arguments can't be read; their steps are kept, without arguments.

    What is marked as an invalid action is left to whoever marked it.
    """
    malformed = pc.equal(steps["arguments_status"], "malformed")
    if not pc.any(malformed).as_py():
        return
    broken = pc.and_(malformed, pc.not_equal(steps["action_type"], "invalid"))
    for row in steps.filter(broken).select(("source_file", "record", "action", "arguments_raw")).to_pylist():
        text = row["arguments_raw"] or ""
        reason = parse_json(text)[1] or "no object"
        message = f"the arguments of this call of {row['action'][:60]} can't be read ({reason}); the step is kept without them"
        report.at(row["source_file"] or "", row["record"]).mend("arguments", "broken arguments", message, text)


@dataclass(slots=True)
class StepParts:
    """Steps in the order of reading.

    Attributes:
        room: bytes of tables that may stay in memory.
        n: N, steps so far.
        ids: names of the episodes, by number.
    """

    room: int = field(default_factory=lambda: KEPT_BYTES)
    n: int = 0
    ids: dict[str, int] = field(default_factory=dict)
    _parts: list[pa.Table | int] = field(default_factory=list)
    _drawer: _Drawer | None = None
    _columns: list[StepColumns] = field(default_factory=list)
    _loose_bytes: int = 0
    _files: dict[str, int] = field(default_factory=dict)
    _file_numbers: list[NDArray[np.int32]] = field(default_factory=list)
    _records: list[NDArray[Any]] = field(default_factory=list)
    _renamed: dict[str, str] = field(default_factory=dict)
    _closed: StepColumns | None = None
    _kept: IntArray | None = None

    def add(self, table: pa.Table, done: BoolArray | None = None) -> None:
        """Add steps: columns of the schema, and whether each bears a bare ``done``."""
        n = table.num_rows
        if not n:
            return
        self._columns.append(
            StepColumns(
                _numbers(table["episode_id"], self.ids).astype(np.int32),
                np.asarray(table["t"].to_numpy()),
                np.zeros(n, dtype=bool) if done is None else done,
                flags_of(table["terminal"]),
                flags_of(table["timeout"]),
            )
        )
        records = table["record"].fill_null(0).to_numpy()
        self._records.append(records if records.max() >= 2**31 else records.astype(np.int32))
        self._file_numbers.append(_numbers(table["source_file"].fill_null(""), self._files).astype(np.int32))
        self.n += n
        self._parts.append(table)
        self._loose_bytes += table.nbytes
        if self._loose_bytes > (_PUT_AWAY_BYTES if self._drawer else self.room):
            self._put_away()

    def _put_away(self) -> None:
        self._drawer = self._drawer or _Drawer()
        loose = [part for part in self._parts if isinstance(part, pa.Table)]  # always the last ones
        del self._parts[-len(loose) :]
        self._parts.append(self._drawer.put(pa.concat_tables(loose)))
        self._loose_bytes = 0
        give_back_memory()

    def columns(self) -> StepColumns:
        """What is to be known of the steps to order and close them."""
        if self._closed is None:
            if self._drawer:
                give_back_memory()
            empty = np.zeros(0)
            columns = self._columns or [
                StepColumns(*(empty.astype(kind) for kind in (int, int, bool, np.int8, np.int8)))
            ]
            self._closed = StepColumns(
                *(np.concatenate([getattr(one, name) for one in columns]) for name in StepColumns.__slots__)
            )
            self._columns.clear()
        return self._closed

    @property
    def is_large(self) -> bool:
        """Whether some of it waits on the disk."""
        return self._drawer is not None

    def keep(self, kept: IntArray) -> None:
        """Drop the steps whose places are not among these."""
        self._closed = self.columns().at(kept)
        if len(kept) < self.n:
            self._kept, self.n = kept, len(kept)

    def provenance(self, places: IntArray) -> list[tuple[str, int]]:
        """File and record of some steps."""
        names = list(self._files)
        wanted = places if self._kept is None else self._kept[places]
        files, records = self._places()
        return [(names[file], int(record)) for file, record in zip(files[wanted], records[wanted], strict=True)]

    def places(self) -> tuple[list[str], NDArray[np.int32], NDArray[Any]]:
        """Names of the files, and the number of the file and the record of each of the N steps."""
        files, records = self._places()
        kept = slice(None) if self._kept is None else self._kept
        return list(self._files), files[kept], records[kept]

    def _places(self) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """Files and records of all steps, also of those that were dropped."""
        files, records = np.concatenate(self._file_numbers), np.concatenate(self._records)
        self._file_numbers, self._records = [files], [records]
        return files, records

    def rename(self, renamed: dict[str, str]) -> None:
        """Give episodes other names."""
        self._renamed = renamed
        self.ids = {renamed.get(name, name): number for name, number in self.ids.items()}

    def tables(self) -> Iterator[pa.Table]:
        """The steps, part by part, in the order of reading; once."""
        columns, before, place = self.columns(), 0, 0
        self._parts.reverse()
        while self._parts:
            part = self._parts.pop()
            table = part if isinstance(part, pa.Table) else self._drawer.take(part)  # type: ignore[union-attr]
            n = table.num_rows
            if self._kept is not None:
                low, high = np.searchsorted(self._kept, [before, before + n])
                table = table.take(pa.array(self._kept[low:high] - before))
            before += n
            n = table.num_rows
            table = _with(table, "terminal", column_of(columns.terminal[place : place + n]))
            table = _with(table, "timeout", column_of(columns.timeout[place : place + n]))
            for name in ("episode_id", "parent_episode") if self._renamed else ():
                table = _with(table, name, _mapped(table[name].combine_chunks(), self._renamed))
            place += n
            yield table


def _numbers(column: pa.ChunkedArray, known: dict[str, int]) -> IntArray:
    """Names as numbers; new names get the next ones."""
    encoded = column.combine_chunks().dictionary_encode()
    numbers = [known.setdefault(name, len(known)) for name in encoded.dictionary.to_pylist()]
    return np.array(numbers, dtype=np.int64)[encoded.indices.to_numpy()]


def in_order(all_parts: Sequence[StepParts], report: ImportReport) -> tuple[Steps, int]:
    """All steps in their final order with ``upload_order`` and ``end_reason``, and the number of episodes.

    A table, or a Parquet file on the disk where a table would be large. The report gets rewards that nobody can add up.
    """
    episodes, t, n_episodes = _together(all_parts)
    order = in_time(episodes, t)
    is_sorted = bool(np.all(order[1:] > order[:-1]))
    episodes = episodes if is_sorted else episodes[order]
    last = np.append(episodes[1:] != episodes[:-1], True) if len(order) else np.zeros(0, dtype=bool)
    tables = _numbered(_with_sums(table, report) for parts in all_parts for table in parts.tables())
    if not is_sorted:
        whole = pa.concat_tables(tables)  # with one that is out of order, all have to be at hand
        tables = (whole.take(pa.array(order[i : i + _ROWS])) for i in range(0, len(order), _ROWS))
    tables = _ended(tables, last)
    is_large = any(parts.is_large for parts in all_parts)
    return (_as_parquet(tables) if is_large else pa.concat_tables(tables)), n_episodes


def _together(all_parts: Sequence[StepParts]) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Numbers of the episodes and step numbers of all steps; parts share no episode."""
    episodes: list[NDArray[Any]] = []
    t: list[NDArray[Any]] = []
    n_before = 0
    for parts in all_parts:
        columns = parts.columns()
        episodes.append(columns.episodes + n_before)
        t.append(columns.t)
        n_before += len(parts.ids)
    return np.concatenate(episodes), np.concatenate(t), n_before


def _with_sums(table: pa.Table, report: ImportReport) -> pa.Table:
    """Steps whose rewards can be added up: what is too large for that is as good as unknown, whatever the format."""
    rewards = table["reward"].combine_chunks()
    too_large = pc.fill_null(pc.greater(pc.abs(rewards), LARGEST_REWARD), False)
    places = np.flatnonzero(too_large.to_numpy(zero_copy_only=False))
    if not len(places):
        return table
    for file, record, reward in zip(
        *(table[name].take(pa.array(places)).to_pylist() for name in ("source_file", "record", "reward")), strict=True
    ):
        message = f"the reward is beyond {LARGEST_REWARD:g}, and sums of such numbers overflow; it stays unknown (NULL)"
        report.at(file or report.source, record).mend("reward", "reward is too large", message, reward)
    return _with(table, "reward", pc.if_else(too_large, pa.scalar(None, pa.float64()), rewards))


def _numbered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    n = 0
    for table in tables:
        yield _with(table, "upload_order", pa.array(np.arange(n, n + table.num_rows)))
        n += table.num_rows


def _ended(tables: Iterator[pa.Table], last: BoolArray) -> Iterator[pa.Table]:
    """Fill ``end_reason`` of each episode's last step, where its importer didn't, from what it said of the ending."""
    n = 0
    for table in tables:
        is_last = last[n : n + table.num_rows]
        n += table.num_rows
        terminal, timeout = flags_of(table["terminal"]) == 1, flags_of(table["timeout"]) == 1
        implied = np.where(terminal, "terminated", np.where(timeout, "truncated", "unknown")).astype(object)
        said = table["end_reason"].combine_chunks()
        silent = np.asarray(pc.fill_null(pc.equal(said, ""), True))
        fill = pa.array(is_last & silent)
        yield _with(table, "end_reason", pc.if_else(fill, pa.array(implied, pa.string()), said))


def _as_parquet(tables: Iterator[pa.Table]) -> Steps:
    from pyarrow import parquet

    file = tempfile.TemporaryFile()  # noqa: SIM115  # gone with the Parquet file that reads it
    _write(tables, file)
    return parquet.ParquetFile(pa.PythonFile(file, mode="r"))


def _write(tables: Iterable[pa.Table], file: Any) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(pa.PythonFile(_Open(file), mode="w"), STEPS_ARROW_SCHEMA, compression="lz4") as writer:
        for table in tables:
            writer.write_table(table)


class _Open:
    """A file that stays open when Arrow closes it; its first byte is where it stands."""

    def __init__(self, file: Any) -> None:
        self._file, self._start = file, file.tell()
        self.closed = False

    def write(self, data: Any) -> int:
        return int(self._file.write(data))

    def read(self, n: int) -> bytes:
        return bytes(self._file.read(n))

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell()) - self._start

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    at = STEPS_ARROW_SCHEMA.get_field_index(name)
    return table.set_column(at, STEPS_ARROW_SCHEMA.field(at), column)


def _mapped(column: pa.Array, names: dict[str, str]) -> pa.Array:
    encoded = column.dictionary_encode()
    new = [storable_text(names.get(name, name)) for name in encoded.dictionary.to_pylist()]
    return pa.array(new, pa.string()).take(encoded.indices)
