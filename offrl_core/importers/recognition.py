"""Which format each file of an upload has: decided by its content, by the majority of its first records."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import chain
from typing import Any

from offrl_core.errors import TraceFormatError, UnknownFormat
from offrl_core.importers.accounts import RECORD
from offrl_core.importers.containers import part_sentence
from offrl_core.importers.fields import Gathered
from offrl_core.importers.raw_text import FileText
from offrl_core.importers.records import PARQUET, Progress, Record, as_utf8, is_json_lines, not_json, read_records
from offrl_core.importers.report import UNREADABLE, ImportReport, why_unread
from offrl_core.schema import storable_text
from offrl_core.wording import counted

SNIFFED_RECORDS = 200
_SNIFFED_CHARACTERS = 2**22  # a few long records say as much as many short ones
# One late record must not decide what a file is, so a format has to fit most of the first ones.
_LEAST_CONFIDENCE = 0.5
_OF_ONES_OWN = "step_table"


@dataclass(frozen=True, slots=True)
class ImporterSpec:
    """One format: how to recognise and read it, and a small file of it.

    ``sniff`` takes the values of the first records and gives a confidence from 0 to 1 and why in words.
    ``read`` takes all records of all files, each of which names its file, and the report, which gets what can't be read.
    ``companions`` are patterns of file names: a file that no importer knows and that lies beside files of this format
    is given to ``read`` too (the reward of a run in a file of its own, say).
    ``by_columns``: large files of this format are read by ``trace_columns`` instead, to the same end.
    ``unit``: what the format calls what a record number counts, in the singular ("line", "conversation").
    """

    name: str
    title: str
    sniff: Callable[[Sequence[Any]], tuple[float, str]]
    read: Callable[[Iterable[Record], ImportReport], Gathered]
    example: bytes
    example_name: str
    companions: tuple[str, ...] = ()
    by_columns: bool = False
    unit: str = RECORD


class Source:
    """One plain file of an upload: its first records are looked at, then all are read.

    Attributes:
        name: what the file is called; unique in the upload.
        size: its bytes.
        format: name of its format, once that is known.
        why: why it has that format.
        tick: called with the fraction of the file that was read.
    """

    def __init__(self, name: str, data: bytes | FileText) -> None:
        """Take the content of a file, or one that stays on the disk as long as its lines can be read from there."""
        self.name, self.size = name, data.size if isinstance(data, FileText) else len(data)
        self.format = self.why = ""
        self.tick: Progress = lambda fraction: None
        self._data: bytes | FileText = data
        self._head: list[Record] | None = None
        self._rest: Iterator[Record] = iter(())
        self._is_all = False  # the records looked at are all there are, broken ones behind them included
        self._numbers, self._offsets = array("q"), array("q")

    def look(self, report: ImportReport, *, keep: bool) -> list[Any]:
        """Values of the first records.

        Args:
            report: gets the problems.
            keep: whether to keep these records; many long ones are rather read again than kept in memory.

        Raises:
            TraceFormatError: no record can be read.
        """
        head: list[Record] = []
        data = self._beginning()
        keep = keep and data is self._data
        scratch = report if keep else ImportReport()
        records = self._guarded(read_records(self.name, data, scratch, self.tick), scratch)
        n_characters = 0
        is_all = False
        for record in records:
            head.append(record)
            n_characters += len(record.raw)
            if len(head) == SNIFFED_RECORDS or n_characters > _SNIFFED_CHARACTERS:
                break
        else:
            is_all = True
        if keep:
            self._head, self._rest, self._is_all = head, records, is_all
        return [record.value for record in head]

    def records(self, report: ImportReport) -> Iterator[Record]:
        """All records, once."""
        records = self._again(self._content(), report) if self._head is None else chain(self._head, self._rest)
        self._head, self._rest, self._data = None, iter(()), b""  # read once, so nothing keeps it in memory
        try:
            for record in records:
                self.note(record)
                yield record
        except TraceFormatError as error:  # of an adopted file, which nobody could read before either
            report.accounts.forget(self.name)  # what isn't read at all is told as a file, not as records
            report.lose_file(self.name, part_sentence(self.name, error))

    def as_lines(self, report: ImportReport) -> tuple[list[Record], FileText, int, int] | None:
        """The file for who splits it into lines by itself, once and instead of ``records``; None where it is no JSON lines.

        Args:
            report: gets the bytes that aren't valid.

        Returns:
            The records looked at already, the content, and the byte and the number of the line to go on with.
        """
        text = self._data if isinstance(self._data, FileText) and self._data.is_valid() else None
        if text is None:  # what isn't valid UTF-8 is rewritten
            scratch = ImportReport()
            content = as_utf8(self.name, self._content(), scratch)
            if not is_json_lines(content):
                return None
            text = FileText(content)
            for problem in (
                scratch.problems if self._head is None else ()
            ):  # else it was reported with the first records
                report.add(problem)
        head = self._head or []
        self._head, self._rest, self._data = None, iter(()), b""
        start, number = 0, 1
        if self._is_all:
            start = text.size
        elif head and head[-1].offset is not None:
            start, number = text.next_line(head[-1].offset), head[-1].number + 1
        for record in head:
            self.note(record)
        return head, text, start, number

    def as_parquet(self) -> tuple[list[Record], bytes] | None:
        """The records looked at already and the content, once and instead of ``records``; None where it is no Parquet."""
        if isinstance(self._data, FileText) or not self._data.startswith(PARQUET):
            return None
        head, data = self._head or [], self._data
        self._head, self._rest, self._data = None, iter(()), b""
        return head, data

    def _beginning(self) -> bytes:
        """The whole content, or so much of a file on the disk as shows that it is JSON lines."""
        if isinstance(self._data, FileText):
            lines = self._data.read(0, _SNIFFED_CHARACTERS)
            lines = lines[: lines.rfind(b"\n") + 1]
            if is_json_lines(lines):
                return lines
        return self._content()

    def _content(self) -> bytes:
        if isinstance(self._data, FileText):
            self._data = self._data.read(0, self._data.size)
        return self._data

    def note(self, record: Record) -> None:
        """Remember where a record begins; they come in order."""
        if record.offset is not None:
            self._numbers.append(record.number)
            self._offsets.append(record.offset)

    def offset_of(self, number: int) -> int | None:
        """Where a record that was read begins, in bytes; None where that isn't known."""
        at = bisect_left(self._numbers, number)
        return self._offsets[at] if at < len(self._numbers) and self._numbers[at] == number else None

    def _again(self, data: bytes, report: ImportReport) -> Iterator[Record]:
        yield from self._guarded(read_records(self.name, data, report, self.tick), report)

    def _guarded(self, records: Iterator[Record], report: ImportReport) -> Iterator[Record]:
        """Records up to a damage that ends the file; one before the first record is an error."""
        n = 0
        try:
            for record in records:
                n += 1
                yield record
        except TraceFormatError as error:
            if not n:
                raise
            message = f"{part_sentence(self.name, error)} {n:,} records before that were read"
            report.damage(self.name, "damaged file", message)


def recognise(name: str, values: Sequence[Any], specs: Mapping[str, ImporterSpec]) -> tuple[str, str]:
    """Name of the format that fits the first records of a file best, and why.

    Raises:
        UnknownFormat: none fits most of the records; the text names the fields, and the nearest format.
        TraceFormatError: there is no record, or they are no objects.
    """
    if not values:
        raise TraceFormatError(f"{name} holds no record. Check that the export has finished.")
    guesses = {}
    for key, spec in specs.items():
        guesses[key] = _guess(spec, values)
        if guesses[key][0] >= 1:  # no other can be surer, and of two that are equally sure the first one counts
            break
    best = max(guesses, key=lambda key: guesses[key][0])
    confidence, why = guesses[best]
    if confidence >= _LEAST_CONFIDENCE:
        return best, why
    if all(isinstance(value, str) for value in values):
        raise TraceFormatError(not_json(name, values[0]))
    convert = f"convert it to one of the {len(specs)} known formats (orl.IMPORTERS); nothing was loaded from it."
    if not any(isinstance(value, dict) and value for value in values):
        raise TraceFormatError(
            f"The format of {name} isn't known: its records are no objects with fields. C{convert[1:]}"
        )
    if not confidence:  # any object may be a step of somebody's own
        best, why = _OF_ONES_OWN, guesses[_OF_ONES_OWN][1]
    raise UnknownFormat(
        f"The format of {name} isn't known: {_fields(values)}. The nearest is {specs[best].title}: {why}"
        f"{'; most records must be of one kind' if confidence else ''}. Say which field means what, on the page Mapping or by an "
        f"orl.StepMapping, or {convert}"
    )


def _guess(spec: ImporterSpec, values: Sequence[Any]) -> tuple[float, str]:
    """What a format says of values; one that can't make sense of them is not theirs."""
    try:
        return spec.sniff(values)
    except UNREADABLE as error:
        return 0.0, why_unread(error)[1]


def adopt(unknown: Sequence[Source], known: Sequence[Source], specs: Mapping[str, ImporterSpec]) -> None:
    """Give files of no known format to a format of the upload that knows their names."""
    formats = dict.fromkeys(source.format for source in known)
    for source in unknown:
        takers = (key for key in formats if any(fnmatch(source.name, pattern) for pattern in specs[key].companions))
        source.format = next(takers, "")


def reasons(sources: Sequence[Source]) -> str:
    """Why the files have the formats they have: of several files, the first of each format says it."""
    if len(sources) == 1:
        return sources[0].why
    counts = Counter(source.format for source in sources)
    first = {source.format: source.why for source in reversed(sources) if source.why}
    return "; ".join(f"{key} in {counted(n, 'file')} ({first[key]})" for key, n in counts.items())


def _fields(values: Sequence[Any]) -> str:
    """The fields of records, most frequent first, in words."""
    keys = Counter(key for value in values if isinstance(value, dict) for key in value)
    return f"its records have the fields {', '.join(storable_text(str(key)[:40]) for key, _ in keys.most_common(12))}"
