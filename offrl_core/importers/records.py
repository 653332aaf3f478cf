"""Bytes to JSON records, never all or nothing.

What a file holds is decided by its content, not by its name: real ``.json`` files hold JSON lines, gzip or
two documents one after another. A record that can't be read becomes a problem of the report; reading goes on.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from offrl_core.errors import TraceFormatError
from offrl_core.importers.report import ImportReport, excerpt
from offrl_core.schema import canonical_json

MAX_EXPANDED_BYTES = 200 * 2**20  # a gzip of a few kilobytes can expand without end
_LINES_LOOKED_AT = 200  # enough to tell JSON lines from a document that spans lines
_MOST_BROKEN_VALUES = 1000  # each may cost a pass over the rest of the file
_PROGRESS_EVERY = 256  # records

# First bytes of formats that are not read, with what to do instead.
_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"\x80", "a Python pickle. Those can run code, so they are never opened; export the data as JSON lines"),
    (b"PK\x03\x04", "a zip archive (Inspect's .eval is one too). Unpack it and give the JSON files inside"),
    (b"\x89HDF", "an HDF5 file (as of Minari, D4RL or d3rlpy). Export the episodes as JSON lines or Parquet"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd. Unpack it first"),
    (b"\x1f\x8b", "gzip inside gzip. Unpack it once"),
    (b"ARROW1", "an Arrow IPC file. Save it as Parquet"),
    (b"\x93NUMPY", "a NumPy array. Export the episodes as JSON lines or Parquet"),
    (
        b"version https://git-lfs",
        "only a Git LFS pointer, not the data. Run `git lfs pull` and take the real file",
    ),
)

_GAP = re.compile(r"[\s,]*")  # what may stand between two values; tolerates trailing and doubled commas
_SEVERAL_ARRAYS = re.compile(r"^\]\s*\[", re.MULTILINE)  # no string holds a raw line break: this is structure
_DECODER = json.JSONDecoder()  # Python's, because it takes the NaN and Infinity that Python itself writes

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file: number (line number in JSON lines, else position; from 1), value, raw text, and its file."""

    number: int
    value: Any
    raw: str
    source: str  # name of the file, or of the member of an archive


def read_records(
    name: str,
    data: bytes,
    report: ImportReport,
    progress: Progress | None = None,
) -> Iterator[Record]:
    """Read the records of a file one by one; what can't be read goes to the report.

    Args:
        name: what to call the file in sentences; nothing is concluded from it.
        data: the bytes as uploaded: JSON in any of its layouts, or Parquet, either of them gzipped or not.
        report: gets the problems and ``n_records``.
        progress: called with the fraction read so far, 0 to 1.

    Raises:
        TraceFormatError: nothing in the file can be read; the text says what it is and what to do.
    """
    tick = progress or (lambda fraction: None)
    data = _gunzip(name, data, report)
    for magic, what in _FOREIGN:
        if data.startswith(magic):
            raise TraceFormatError(f"{name} is {what}.")
    if data.startswith(b"PAR1"):
        return _parquet_rows(name, data, report, tick)
    text = _decode(name, data, report)
    if not text or text.isspace():
        raise TraceFormatError(f"{name} is empty: it holds no record. Check that the export has finished.")
    read = _lines if _looks_like_lines(text) else _values
    return read(name, text, report, tick)


def parse_json(text: str) -> tuple[Any, str]:
    """Parse JSON text into (value, ""), or (None, why not) where it can't be parsed."""
    try:
        return json.loads(text), ""
    except (ValueError, RecursionError) as error:
        return None, _reason(error)


def _reason(error: Exception) -> str:
    """Why a text isn't JSON, in words."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return "it holds a number of several thousand digits"  # the only other ValueError of the decoder


# -- bytes to text -------------------------------------------------------------------------------------------


def _gunzip(name: str, data: bytes, report: ImportReport) -> bytes:
    """Expand gzip up to the cap; a stream that is cut or damaged gives what came before the damage."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    expanded = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while chunk := stream.read1(2**16):  # not read: it gives nothing of a chunk that isn't whole
                expanded += chunk
                if len(expanded) > MAX_EXPANDED_BYTES:
                    raise TraceFormatError(_too_large(name))
    except (EOFError, OSError, zlib.error) as error:
        if not expanded:
            raise TraceFormatError(f"{name} is gzip, but damaged ({error}). Copy it again.") from error
        message = f"the gzip stream is damaged ({error}); only its first {len(expanded):,} bytes were read"
        report.at(name).lose(None, "damaged gzip", message)
    return bytes(expanded)


def _too_large(name: str) -> str:
    """The sentence for a compressed file that expands beyond the cap."""
    return f"{name} expands to more than {MAX_EXPANDED_BYTES // 2**20} MiB. Split it, or take a sample."


def _decode(name: str, data: bytes, report: ImportReport) -> str:
    """Decode UTF-8, -16 or -32, with or without a byte order mark; invalid bytes become U+FFFD, counted."""
    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
        n = max(1, text.count("\ufffd") - data.count(b"\xef\xbf\xbd"))  # the file may hold real ones, too
        first = text.find("\ufffd")
        around = text[max(0, first - 60) : first + 60]
        message = f"the text isn't all valid {encoding.upper()}: U+FFFD stands for what isn't, {n:,} times"
        report.at(name).mend(None, "invalid bytes", message, around)
        return text


# -- text to records -----------------------------------------------------------------------------------------


def _split_lines(text: str) -> Iterator[tuple[int, str, int]]:
    """Lines that aren't blank: (line number, text, end); only LF ends one, as U+2028 may be in a string."""
    start = number = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        number += 1
        if line := text[start:end].strip():
            yield number, line, end
        start = end + 1


def _looks_like_lines(text: str) -> bool:
    """Whether each line is a value: the first one is, or most of the first ones are."""
    head = [line for _, line, _ in islice(_split_lines(text), _LINES_LOOKED_AT)]
    good = [line[0] in "{[" and not parse_json(line)[1] for line in head]
    return len(head) > 1 and (good[0] or 2 * sum(good) > len(good))


def _lines(name: str, text: str, report: ImportReport, tick: Progress) -> Iterator[Record]:
    """JSON lines: a line that is not JSON costs that line only."""
    for number, line, end in _split_lines(text):
        report.n_records += 1
        if not report.n_records % _PROGRESS_EVERY:
            tick(end / len(text))
        value, reason = parse_json(line)
        if reason:
            message = f"this line can't be read as JSON ({reason}), so it was set aside"
            report.at(name, number).lose(None, "not JSON", message, line)
        else:
            yield Record(number, value, line, name)


def _values(name: str, text: str, report: ImportReport, tick: Progress) -> Iterator[Record]:
    """Values that may span lines: one or several documents, or an array whose items are the records.

    Items of an array are decoded one by one, so one that is cut in the middle keeps the items before the cut.

    Raises:
        TraceFormatError: not one value could be read.
    """
    # Arrays one after another are one record each (a conversation, say); a single one holds the records.
    step_in = text.lstrip().startswith("[") and not _SEVERAL_ARRAYS.search(text)
    position = number = n_broken = 0
    in_array = cut = False
    first_reason = ""
    while (position := _skip_gap(text, position)) < len(text):
        if step_in and text[position] == ("]" if in_array else "["):
            in_array = not in_array
            position += 1
            continue
        number += 1
        report.n_records += 1
        tick(position / len(text)) if not number % _PROGRESS_EVERY else None
        value, end, reason = _value_at(text, position, any_value=in_array)
        cut = bool(reason)
        if not reason:
            yield Record(number, value, text[position:end], name)
            position = end
            continue
        n_broken += 1
        first_reason = first_reason or reason
        end = _next_value(text, position) if n_broken < _MOST_BROKEN_VALUES else len(text)
        message = f"no JSON value can be read here ({reason}); {end - position:,} characters were set aside"
        report.at(name, number).lose(None, "not JSON", message, text[position : position + 200])
        position = end
    if number == n_broken:
        raise TraceFormatError(_not_json(name, text, first_reason))
    if in_array and not cut:
        message = "the array has no closing bracket; the file may be cut"
        report.at(name).mend(None, "array not closed", message)


def _skip_gap(text: str, position: int) -> int:
    """Position of the next character that is neither white space nor a comma."""
    gap = _GAP.match(text, position)
    return gap.end() if gap else position


def _value_at(text: str, position: int, *, any_value: bool) -> tuple[Any, int, str]:
    """Decode the value that starts here: (value, end, ""), or (None, position, why not).

    Outside an array only objects and arrays count: in plain text every number would pass for a record.
    """
    if not any_value and text[position] not in "{[":
        return None, position, "an object or array was expected"
    try:
        value, end = _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError) as error:
        return None, position, _reason(error)
    return value, end, ""


def _next_value(text: str, position: int) -> int:
    """Where to go on after a value that can't be read: the next line that opens one, indented no deeper."""
    line_start = text.rfind("\n", 0, position) + 1
    before = text[line_start:position]
    indent = len(before) if before.isspace() else 0
    opening = re.compile(rf"\n[ \t]{{0,{min(indent, 99)}}}[{{\[]").search(text, position)
    return opening.end() - 1 if opening else len(text)


def _not_json(name: str, text: str, reason: str) -> str:
    """The sentence for a file without a single JSON value."""
    if not reason:
        return f"{name} is an empty list: it holds no record. Check that the export has finished."
    start = excerpt(text.lstrip()[:60])
    if text.lstrip()[:1] in ("{", "["):
        return f"{name} begins like JSON, but no record can be read: {reason}. It may be cut off or damaged."
    return (
        f"{name} holds no JSON: it begins with {start!r}. "
        "Give JSON, JSON lines (one object per line) or Parquet; a CSV or text log must be converted first."
    )


def _parquet_rows(name: str, data: bytes, report: ImportReport, tick: Progress) -> Iterator[Record]:
    """Rows of a Parquet file as objects; the raw text of a row is its JSON.

    Raises:
        TraceFormatError: the file is damaged or too large when expanded.
    """
    from pyarrow import parquet  # here, because most imports never see Parquet and it is slow to load

    try:
        file = parquet.ParquetFile(pa.BufferReader(data))
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        if sum(group.total_byte_size for group in groups) > MAX_EXPANDED_BYTES:
            raise TraceFormatError(_too_large(name))
        for batch in file.iter_batches(batch_size=1024):
            for value in batch.to_pylist():
                report.n_records += 1
                yield Record(report.n_records, value, canonical_json(value), name)
            tick(report.n_records / file.metadata.num_rows)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise TraceFormatError(f"{name} is Parquet, but damaged ({error}). Write it again.") from error
