"""Plain files to records, never all or nothing.

What a file holds is decided by its content, not by its name: real ``.json`` files hold JSON lines or two documents
one after another. A record that can't be read becomes a problem of the report; reading goes on. Text is decoded in
parts: a single emoji would make Python hold a whole file at four bytes per character.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from offrl_core.errors import TraceFormatError
from offrl_core.importers.raw_text import FilePart
from offrl_core.importers.report import ImportReport, Place, excerpt
from offrl_core.importers.tf_records import is_tf_records
from offrl_core.importers.windows import LENIENT_DECODER, Window, parse_json, value_at
from offrl_core.wording import counted

__all__ = ["ARROW_FILE", "ARROW_STREAM", "PARQUET", "Progress", "Record", "not_json", "parse_json", "read_records"]

_LINES_LOOKED_AT = 200  # enough to tell JSON lines from a document that spans lines
_MOST_BROKEN_VALUES = 1000  # each may cost a pass over the rest of the file
_PROGRESS_EVERY = 256  # records
_PART = 2**20  # bytes decoded at a time
_DEEPEST_INDENT = 200

ARROW_FILE, ARROW_STREAM = b"ARROW1", b"\xff\xff\xff\xff"
_HDF5, PARQUET = b"\x89HDF\r\n\x1a\n", b"PAR1"
_MARK = b"\xef\xbb\xbf"  # byte order mark in UTF-8; also inside, where files were put one behind the other
_NOTHING = re.compile(rb"[\s\x00\xef\xbb\xbf]*")
# A bracket may also begin the line of a log: "[Result] (PASS)".
_FIRST_SIGN = re.compile(rb"[\s\x00\xef\xbb\xbf]*(\{|\[(?=\s*(?:[\[{\"\d\]-]|true|false|null|NaN|Infinity|\Z))|)")
_QUOTED_JSON = re.compile(rb"[\s\xef\xbb\xbf]*\"(?:\\[nrt]| )*[{\[]")
_FIRST_KEY = re.compile(rb"\{\s*(\"(?:[^\"\\]|\\.){1,200}\")\s*:")
_OPENING = re.compile(rb"(?:\n|^)[ \t]*[{\[]")
_SEVERAL_ARRAYS = re.compile(rb"\n\]\s*\[")  # no string holds a raw line break: this is structure

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Record:
    """One record: number (line in JSON lines, else position; from 1), value, text, its file and byte offset there.

    The value is what JSON says, the text itself (one record) where a file holds no JSON, or an ``ArrayEpisode``.
    """

    number: int
    value: Any
    text: str | FilePart
    source: str  # name of the file, or of the archive and the member of it
    offset: int | None = None  # of a text file, in bytes as it stands in UTF-8

    @property
    def raw(self) -> str:
        """The text of the record."""
        return str(self.text)

    def without_value(self) -> Record:
        """The record to be kept with what was made of it: the parsed value takes several times the memory of the text."""
        return replace(self, value=None)


def read_records(
    name: str,
    data: bytes,
    report: ImportReport,
    progress: Progress | None = None,
) -> Iterator[Record]:
    """Read the records of a file one by one; what can't be read goes to the report.

    Args:
        name: what to call the file in sentences; nothing is concluded from it.
        data: the bytes, unpacked: JSON in any of its layouts, CSV, other text, Parquet, Arrow, HDF5 or TFRecord.
        report: gets the problems and the number of records.
        progress: called with the fraction read so far, 0 to 1.

    Raises:
        TraceFormatError: nothing in the file can be read; the text says what it is and what to do.
    """
    tick = progress or (lambda fraction: None)
    if data.startswith(_HDF5):
        from offrl_core.importers.array_stores import hdf5_episodes  # h5py is slow to load and seldom needed

        return hdf5_episodes(name, data, report, tick)
    if data.startswith(PARQUET):
        from offrl_core.importers.tables import parquet_rows  # here and below, as they need Record from here

        return parquet_rows(name, data, report, tick)
    if data.startswith((ARROW_FILE, ARROW_STREAM)):
        from offrl_core.importers.tables import arrow_rows

        return arrow_rows(name, data, report, tick)
    if is_tf_records(data):
        from offrl_core.importers.rlds import rlds_episodes

        return rlds_episodes(name, data, report, tick)
    if not _is_blank(data) and _is_binary(data):
        raise TraceFormatError(
            f"{name} is neither text in UTF-8 or UTF-16 nor a data file of a known kind. "
            "Save it as UTF-8, or export it as JSON lines."
        )
    data = as_utf8(name, data, report)
    if _is_blank(data):
        raise TraceFormatError(f"{name} is empty: it holds no record. Check that the export has finished.")
    data = _unquoted(name, data, report)
    if _looks_like_lines(data):
        return _lines(name, data, report, tick)
    start = 0 if _begins_like_json(data) else _end_of_preamble(data)
    if start is not None:
        return _values(name, data, start, report, tick)
    return _other_text(name, data, report, tick)


def is_json_lines(data: bytes) -> bool:
    """Whether a file is JSON lines in UTF-8 as it stands: then its lines can also be read without ``read_records``."""
    encoding = json.detect_encoding(data).removesuffix("-sig")
    if data.startswith((_HDF5, PARQUET, ARROW_FILE, ARROW_STREAM)) or encoding != "utf-8":
        return False
    return not _is_blank(data[:_PART]) and not _is_binary(data) and _is_valid(data) and _looks_like_lines(data)


def not_json(name: str, text: str) -> str:
    """The sentence for a text that no importer wants."""
    return (
        f"{name} holds no JSON: it begins with {excerpt(text.lstrip()[:60])!r}. "
        "Give JSON, JSON lines (one object per line), Parquet, or CSV with a line of column names."
    )


# -- bytes to text -------------------------------------------------------------------------------------------


def as_utf8(name: str, data: bytes, report: ImportReport) -> bytes:
    """The text in UTF-8, valid throughout; UTF-16 and -32 are rewritten, invalid bytes become U+FFFD, counted.

    Valid UTF-8 is given as it is, without a copy.
    """
    encoding = json.detect_encoding(data).removesuffix("-sig")
    return data if encoding == "utf-8" and _is_valid(data) else _rewritten(name, data, encoding, report)


def _is_valid(data: bytes) -> bool:
    """Whether bytes are UTF-8 throughout."""
    offsets = pa.py_buffer(struct.pack("=qq", 0, len(data)))
    try:
        pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _rewritten(name: str, data: bytes, encoding: str, report: ImportReport) -> bytes:
    """The text in UTF-8 with U+FFFD for what isn't valid; the report says how often and where first."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    written = io.BytesIO()
    for start in range(0, len(data), _PART):
        part = decoder.decode(data[start : start + _PART], final=start + _PART >= len(data))
        written.write(part.encode("utf-8", "replace"))
    text = written.getvalue()
    mark = "\ufffd".encode()
    real = "\ufffd".encode(encoding if encoding[-2:] in ("le", "be", "-8") else f"{encoding}-le")
    n = text.count(mark) - data.count(real)  # the file may hold real ones, too
    if n > 0:
        first = text.find(mark)
        message = (
            f"the text isn't all valid {encoding.upper()}: U+FFFD stands for what isn't, {counted(n, 'time')}; a part "
        )
        message += "of it may be in another encoding, such as Latin-1"
        evidence = text[max(0, first - 60) : first + 60].decode("utf-8", "ignore")
        report.at(name, offset=first).mend(None, "invalid bytes", message, evidence)
    return text


def _unquoted(name: str, data: bytes, report: ImportReport) -> bytes:
    """What a file says that is a single JSON string of JSON, as where a program encodes its results twice; else the file."""
    if not _QUOTED_JSON.match(data):
        return data
    text = parse_json(data.decode().removeprefix("\ufeff"))[0]
    inner = text.encode("utf-8", "replace") if isinstance(text, str) else b""
    if not _begins_like_json(inner):
        return data
    message = "the file is one JSON string; the JSON inside it was read, and byte offsets count from its beginning"
    report.at(name).mend(None, "encoded twice", message)
    return inner


def _is_blank(data: bytes) -> bool:
    blank = _NOTHING.match(data)
    return blank is not None and blank.end() == len(data)


def _is_binary(data: bytes) -> bool:
    """Whether much of the beginning is neither text nor JSON in some old encoding."""
    head = data[:4096]
    text = head.decode(json.detect_encoding(head), "replace")
    return not _begins_like_json(head) and 10 * sum(text.count(sign) for sign in "\x00\ufffd") > len(text)


def _begins_like_json(data: bytes) -> bool:
    first = _FIRST_SIGN.match(data)
    return first is not None and bool(first[1])


# -- JSON lines ----------------------------------------------------------------------------------------------


def split_lines(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Lines that aren't blank: (number, offset, bytes); only LF ends one, as U+2028 may be in a string."""
    start = number = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        # A program that was killed may leave NUL bytes around a line.
        line = data[start:end].lstrip(b" \t\r\f\v\x00").removeprefix(_MARK)
        offset = end - len(line)
        if line := line.rstrip(b" \t\r\f\v\x00"):
            yield number, offset, line
        start = end + 1


def _looks_like_lines(data: bytes) -> bool:
    """Whether each line is a value: the first one is, or most of the first ones are."""
    if sum(1 for _ in islice(split_lines(data), 2)) < 2:
        return False  # one long line is a document, and parsing it only to find that out would take long
    good = []
    for _, _, line in islice(split_lines(data), _LINES_LOOKED_AT):
        good.append(line[:1] in (b"{", b"[") and _parses(line.decode()))
        if good[0]:
            return True
    return 2 * sum(good) > len(good)


def _parses(text: str) -> bool:
    return not parse_json(text)[1] or value_at(text, 0, LENIENT_DECODER)[1] == len(text)


def _lines(name: str, data: bytes, report: ImportReport, tick: Progress) -> Iterator[Record]:
    """JSON lines: a line that is not JSON costs that line only."""
    for number, offset, line in split_lines(data):
        report.accounts.found[name] += 1
        if not report.accounts.found[name] % _PROGRESS_EVERY:
            tick(offset / len(data))
        if record := line_record(name, number, offset, FilePart(data, offset, offset + len(line)), report):
            yield record


def line_record(name: str, number: int, offset: int, line: FilePart, report: ImportReport) -> Record | None:
    """One line as a record; None, and a problem, where it isn't JSON."""
    text = str(line)
    value, reason = parse_json(text)
    if reason:
        value, end, _ = value_at(text, 0, LENIENT_DECODER)
        place = report.at(name, number, offset)
        if end != len(text):
            reason = reason.replace(" at line 1, column ", " at column ")
            message = f"this line can't be read as JSON ({reason}), so it was set aside"
            if text.startswith(("{", "[")) and not text.endswith(("}", "]")):
                message += "; it breaks off, as where a program is stopped while it writes"
            place.lose(None, "not JSON", message, text)
            return None
        _mend_control_characters(place)
    return Record(number, value, line, name, offset)


def _mend_control_characters(place: Place) -> None:
    message = "a string holds raw control characters (a tab, say), which JSON wants escaped; it was read as meant"
    place.mend(None, "control characters", message)


# -- documents -----------------------------------------------------------------------------------------------


def _values(name: str, data: bytes, start: int, report: ImportReport, tick: Progress) -> Iterator[Record]:
    """Values that may span lines: one or several documents, or an array whose items are the records.

    Whatever stands before the byte ``start`` is set aside. Items of an array are decoded one by one, so one that is cut
    in the middle keeps the items before the cut.

    Raises:
        TraceFormatError: not one value could be read.
    """
    if start:
        message = f"the first {start:,} bytes are no JSON and were set aside"
        report.at(name, offset=0).lose(None, "text before JSON", message, data[:400].decode("utf-8", "ignore"))
    window = Window(data, start)
    # Arrays one after another are one record each (a conversation, say); a single one holds the records.
    step_in = window.sign() == "[" and not _SEVERAL_ARRAYS.search(data)
    number = n_broken = 0
    in_array = cut = False
    first_reason = ""
    opening: re.Pattern[bytes] | None = None  # how values of this file begin
    while sign := window.sign():
        if step_in and sign == ("]" if in_array else "["):
            in_array = not in_array
            window.skip()
            continue
        number += 1
        report.accounts.found[name] += 1
        tick(window.offset / len(data)) if not number % _PROGRESS_EVERY else None
        start = window.offset
        place = report.at(name, number, start)
        value, reason, mended = window.value(any_value=in_array)
        cut = bool(reason)
        if not reason:
            opening = opening or _opening_of(data, start)
            if mended:
                _mend_control_characters(place)
            yield Record(number, value, FilePart(data, start, window.offset), name, start)
            continue
        n_broken += 1
        first_reason = first_reason or reason
        window.jump(_next_value(data, start, opening) if n_broken < _MOST_BROKEN_VALUES else len(data))
        message = f"no JSON value can be read here ({reason}); {window.offset - start:,} bytes were set aside"
        place.lose(None, "not JSON", message, data[start : start + 400].decode("utf-8", "ignore"))
    if number == n_broken:
        raise TraceFormatError(_no_value(name, first_reason))
    if in_array and not cut:
        message = "the array has no closing bracket; the file may be cut"
        report.at(name).mend(None, "array not closed", message)


def _opening_of(data: bytes, start: int) -> re.Pattern[bytes] | None:
    """How an object begins behind a comma: with the first key of the one that begins here; None where it has none."""
    key = _FIRST_KEY.match(data, start)
    return re.compile(rb",\s*(?=\{\s*%s\s*:)" % re.escape(key[1])) if key else None


def _next_value(data: bytes, offset: int, like: re.Pattern[bytes] | None) -> int:
    """Where to go on after a value that can't be read.

    That is the next line that opens one, indented no deeper; where no line does, as in an array on a single line, the next
    object behind a comma that begins like the first one of the file.
    """
    line_start = data.rfind(b"\n", max(0, offset - _DEEPEST_INDENT), offset) + 1
    before = data[line_start:offset] if line_start else b""
    indent = len(before) if before.isspace() else 0
    if opening := re.compile(rb"\n[ \t]{0,%d}[{\[]" % indent).search(data, offset):
        return opening.end() - 1
    found = like.search(data, offset) if like else None
    return found.end() if found else len(data)


def _no_value(name: str, reason: str) -> str:
    """The sentence for a file that begins like JSON but has no value."""
    if not reason:
        return f"{name} is an empty list: it holds no record. Check that the export has finished."
    return f"{name} begins like JSON, but no record can be read: {reason}. It may be cut off or damaged."


# -- other text ----------------------------------------------------------------------------------------------


def _end_of_preamble(data: bytes) -> int | None:
    """Where JSON begins behind a few lines of something else, such as warnings of the program; None: nowhere."""
    opening = _OPENING.search(data, 0, _PART)
    if not opening:
        return None
    window = Window(data, opening.end() - 1)
    value, reason, _ = window.value(any_value=False)
    first = value[0] if isinstance(value, list) and value else value
    # A page or a log may number its lines: "[2] [BUTTON]" is no record.
    is_record = isinstance(first, dict) and bool(first)
    return opening.end() - 1 if not reason and is_record and window.sign() in ("", "{", "[") else None


def _other_text(name: str, data: bytes, report: ImportReport, tick: Progress) -> Iterator[Record]:
    """Text that isn't JSON: the rows of a table, else one record that is the whole text."""
    from offrl_core.importers.csv_rows import csv_rows, looks_like_csv  # here, as it needs Record from above

    text = data.decode().removeprefix("\ufeff")
    if looks_like_csv(text):
        return csv_rows(name, text, report, tick)
    report.accounts.found[name] += 1
    return iter([Record(1, text, text, name, 0)])
