"""A second file that holds rewards: its rows, whatever shape it has, and how a cell of it is read as a number.

Most logs of agents have no rewards in them: the tests ran elsewhere, or people judged the runs in a table. The file may
be a table (CSV, Parquet, JSON lines), a list inside an object, an object from id to verdict, the report of SWE-bench or
the ``result.json`` of each trial of a Harbor run, also packed.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from .errors import TraceFormatError
from .importers.containers import Limits, plain_files
from .importers.records import Record, not_json, read_records
from .importers.report import ImportReport
from .importers.swe_bench import Verdicts
from .schema import short_hash

MAX_ROWS = 1_000_000
MAX_FIELDS = 200
_MOST_LEVELS = 5  # of nested objects: verifier_result.rewards.reward is the third
_LONGEST_VALUE = 1_000  # characters; keys and verdicts are short

Cell = str | int | float | bool | None
FileRow = dict[str, Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardFile:
    """Rows of a second file.

    Attributes:
        name: what people call it.
        fingerprint: 16 hexadecimal digits that identify its content.
        fields: names of its fields, in the order of their appearance; nested ones with dots.
        rows: one mapping per row, fields it lacks left out; ``file`` and ``folder`` say where a row of an archive stood.
        shape: what the file was taken for, in words.
        problems: what could not be read, as sentences.
    """

    name: str
    fingerprint: str
    fields: tuple[str, ...]
    rows: tuple[FileRow, ...]
    shape: str
    problems: tuple[str, ...] = ()

    def column(self, field: str) -> list[Cell]:
        """The cells of a field, None where a row lacks it."""
        return [row.get(field) for row in self.rows]


def read_reward_file(name: str, data: bytes) -> RewardFile:
    """Read the rows of a second file.

    Args:
        name: what to call it; nothing is concluded from it.
        data: its bytes: CSV, JSON, JSON lines or Parquet, also as gzip, zstd or a zip of several.

    Raises:
        TraceFormatError: no row can be read; the sentence says why.
    """
    report = ImportReport(files=[name])
    records: list[Record] = []
    files = plain_files(name, data, report, Limits())
    for label, content in files:
        try:
            records += read_records(label, content, report)
        except TraceFormatError as error:
            if len(files) == 1:
                raise
            report.at(label).lose(None, "unreadable file", str(error))
    shape, rows = _rows(name, records, several=len(files) > 1)
    rows = [row for row in rows if row]
    if not rows:
        raise TraceFormatError(_no_rows(name, report))
    if len(rows) > MAX_ROWS:
        raise TraceFormatError(f"{name} has {len(rows):,} rows; at most {MAX_ROWS:,} are read. Keep one per episode.")
    fields = list(dict.fromkeys(field for row in rows for field in row))
    problems = [problem.sentence() for problem in report.problems]
    if len(fields) > MAX_FIELDS:
        problems.append(f"{name} has {len(fields):,} fields; the first {MAX_FIELDS:,} of them are offered.")
    return RewardFile(
        name=name,
        fingerprint=short_hash(hashlib.sha256(data).hexdigest()),
        fields=tuple(fields[:MAX_FIELDS]),
        rows=tuple(rows),
        shape=shape,
        problems=tuple(problems),
    )


def _no_rows(name: str, report: ImportReport) -> str:
    reason = f" The first problem: {report.problems[0].sentence()}." if report.problems else ""
    return (
        f"{name} holds no row with a reward.{reason} Give a table with one row per episode (CSV, JSON lines), "
        "an object from id to reward, or a SWE-bench report."
    ).replace("..", ".")


# -- shapes --------------------------------------------------------------------------------------------------


def _rows(name: str, records: list[Record], *, several: bool) -> tuple[str, list[FileRow]]:
    """What the records are taken for, and their rows.

    Raises:
        TraceFormatError: the file is no table and no JSON.
    """
    verdicts = Verdicts()
    rest = list(verdicts.apart(records))
    reported: list[FileRow] = [{"instance_id": key, "resolved": done} for key, done in verdicts.by_instance.items()]
    if reported and not rest:
        return "a report of resolved instances (SWE-bench)", reported
    for record in rest:
        if isinstance(record.value, str):
            raise TraceFormatError(not_json(name, record.value))
    if len(rest) == 1 and isinstance(rest[0].value, dict):
        shape, rows = _one_object(rest[0].value)
        return shape, reported + [_placed(row, rest[0], several) for row in rows]
    found = [_placed(_flat(item), record, several) for record in rest for item in _objects(record.value)]
    return "a table, one row per record", reported + found


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a record: itself, or those of a list."""
    if isinstance(value, dict):
        yield value
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _one_object(value: dict[str, Any]) -> tuple[str, list[FileRow]]:
    """The rows of a file that is one object: a list in it, its entries by id, or the object itself."""
    lists = {key: items for key, items in value.items() if isinstance(items, list) and any(_objects(items))}
    if lists:
        longest = max(lists, key=lambda key: len(lists[key]))
        return f"the list {longest!r} of an object", [_flat(item) for item in _objects(lists[longest])]
    if len(value) > 1 and all(isinstance(item, dict) for item in value.values()):
        return "an object from id to result", [{"key": key, **_flat(item)} for key, item in value.items()]
    if _are_verdicts_by_id(value):
        return "an object from id to reward", [{"key": key, "reward": item} for key, item in value.items()]
    return "one result", [_flat(value)]


def _are_verdicts_by_id(value: dict[str, Any]) -> bool:
    """Whether an object maps ids to rewards, and isn't itself a result with fields."""
    if not value or any(name_rank(key) is not None for key in value):
        return False
    readable = RewardReader(value.values())
    known = [item for item in value.values() if item is not None]
    return bool(known) and 2 * sum(readable(item) is not None for item in known) >= len(known)


def _flat(value: dict[str, Any], prefix: str = "", level: int = 1) -> FileRow:
    """Cells by dotted name; lists are left out, they are neither key nor reward."""
    row: FileRow = {}
    for key, item in value.items():
        if isinstance(item, dict):
            row |= _flat(item, f"{prefix}{key}.", level + 1) if level < _MOST_LEVELS else {}
        elif item is None or (isinstance(item, str | int | float) and len(str_of(item)) <= _LONGEST_VALUE):
            row[f"{prefix}{key}"] = item
    return row


def str_of(value: str | int | float) -> str:
    """A cell as text; a whole number beyond what Python writes out counts as endless."""
    try:
        return str(value)
    except ValueError:
        return "9" * (_LONGEST_VALUE + 1)


def _placed(row: FileRow, record: Record, several: bool) -> FileRow:
    """A row with the file and folder that it stood in, where the upload is an archive: trials are told apart by them."""
    if not several or not row:
        return row
    path = PurePosixPath(record.source.replace("\\", "/"))
    return {"file": record.source, "folder": path.parent.name, **row}


# -- cells as rewards ----------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WORDS: dict[str, float] = {
    **dict.fromkeys("true yes pass passed success succeeded successful resolved solved correct won win".split(), 1.0),
    **dict.fromkeys("false no fail failed failure unresolved unsolved incorrect wrong lost loss".split(), 0.0),
}
# Single letters mean what the letters beside them say: P is "partial" beside C and I, and "pass" beside F.
_LETTERS: tuple[dict[str, float], ...] = (
    {"c": 1.0, "i": 0.0, "p": 0.5, "n": 0.0},
    {"p": 1.0, "f": 0.0},
    {"t": 1.0, "f": 0.0},
    {"y": 1.0, "n": 0.0},
)


class RewardReader:
    """Reads the cells of one column as rewards: numbers, truth values, and words such as pass, fail, C, I.

    >>> read = RewardReader(["C", "I", "P"])
    >>> read("C"), read("P"), read(True), read("0.25"), read("n/a"), read(float("nan"))
    (1.0, 0.5, 1.0, 0.25, None, None)
    """

    def __init__(self, cells: Iterable[Any]) -> None:
        """Look at all cells of the column: what a letter means depends on the others."""
        letters = {cell.strip().casefold() for cell in cells if isinstance(cell, str)} & set("cipnfty")
        self._words = _WORDS | _meanings(letters)

    def __call__(self, cell: Any) -> float | None:
        """The reward, or None where the cell is empty, no number, NaN or infinite: unknown, never 0."""
        if isinstance(cell, str):
            text = cell.strip()
            if not _NUMBER.fullmatch(text):
                return self._words.get(text.casefold())
            number = float(text)
        elif isinstance(cell, int | float):
            number = _as_float(cell)
        else:
            return None
        return number if math.isfinite(number) else None


def _as_float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _meanings(letters: Set[str]) -> dict[str, float]:
    """What letters mean by every alphabet that holds them all; those on which these disagree mean nothing."""
    fitting = [alphabet for alphabet in _LETTERS if letters <= alphabet.keys()]
    readings = {letter: {alphabet[letter] for alphabet in fitting} for letter in letters if fitting}
    return {letter: values.pop() for letter, values in readings.items() if len(values) == 1}


_NAMES = (
    "reward total_reward final_reward resolved success is_success successful passed pass solved is_solved "
    "correct is_correct score result verdict outcome grade label win value"
).split()


def name_rank(field: str) -> int | None:
    """How much the name of a field sounds like a reward, 0 most; None where it doesn't."""
    last = field.rpartition(".")[2].strip().casefold().replace(" ", "_")
    return _NAMES.index(last) if last in _NAMES else None
