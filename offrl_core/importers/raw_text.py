"""The raw text of records, kept once: as text of its own, or as a place in the file that holds it anyway."""

from __future__ import annotations

import codecs
import hashlib
import os
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from offrl_core.schema import RECORDS_ARROW_SCHEMA, storable_text

_AT_A_TIME = 256
_PIECE = 2**20

IntArray = NDArray[np.int64]


class FileText:
    """Text of a file, in memory or read from the disk when it is wanted.

    Attributes:
        size: bytes.
    """

    def __init__(self, content: bytes | Path) -> None:
        """Take the content, or open the file that holds it."""
        self._data = content if isinstance(content, bytes) else b""
        self._descriptor = -1
        self.size = len(self._data)
        if isinstance(content, Path):
            self._descriptor = os.open(content, os.O_RDONLY)
            weakref.finalize(self, os.close, self._descriptor)
            self._state = self._stamp()
            self.size = self._state[0]

    def read(self, start: int, end: int) -> bytes:
        """Bytes from one place to another.

        Raises:
            OSError: the file was written to since it was opened.
        """
        if self._descriptor < 0:
            return self._data[start:end]
        if self._stamp() != self._state:
            raise OSError("the file has changed")
        return os.pread(self._descriptor, end - start, start)

    def pieces(self, start: int = 0) -> Iterator[bytes]:
        """The text from some place on, piece by piece."""
        for at in range(start, self.size, _PIECE):
            yield self.read(at, min(self.size, at + _PIECE))

    def next_line(self, position: int) -> int:
        """Where the line behind the one at a place begins."""
        for i, piece in enumerate(self.pieces(position)):
            if (found := piece.find(b"\n")) >= 0:
                return position + i * _PIECE + found + 1
        return self.size

    def is_valid(self) -> bool:
        """Whether it is UTF-8 throughout; it is read once for that."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for piece in self.pieces():
                if not piece.isascii() or decoder.getstate()[0]:
                    decoder.decode(piece)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
        return True

    def digest(self) -> bytes:
        """SHA-256 of it."""
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        return digest.digest()

    def _stamp(self) -> tuple[int, int]:
        state = os.fstat(self._descriptor)
        return state.st_size, state.st_mtime_ns


class FilePart(NamedTuple):
    """Text as a place in the bytes of a file, in UTF-8, so that it isn't there twice; ``str`` gives the text."""

    data: bytes
    start: int
    end: int

    def __str__(self) -> str:
        """The text itself."""
        return self.data[self.start : self.end].decode()


class _Part(NamedTuple):
    """Records of one file, their numbers rising."""

    source: str
    numbers: IntArray
    text_of: Callable[[int], str]
    offsets: IntArray | None


def _rising(numbers: IntArray) -> IntArray:
    """Each number once, rising; most are so already, and to sort millions of them takes memory."""
    return numbers if bool((numbers[1:] > numbers[:-1]).all()) else np.unique(numbers)


class RawRecords:
    """The raw texts of records by file and number; only records that gave a step."""

    def __init__(self) -> None:
        """Begin with none."""
        self._parts: list[_Part] = []
        self._dropped: set[tuple[str, int]] = set()

    @classmethod
    def of_table(cls, table: pa.Table) -> RawRecords:
        """Those of a table with the columns of ``schema.RECORDS_ARROW_SCHEMA``."""
        records = cls()
        records.add_texts({(row["source_file"], row["record"]): row["raw"] for row in table.to_pylist()})
        return records

    def add(
        self, source: str, numbers: IntArray, text_of: Callable[[int], str], offsets: IntArray | None = None
    ) -> None:
        """Add records of a file, in rising order, whose text is made or read when it is asked for, by its place."""
        if len(numbers):
            self._parts.append(_Part(source, numbers, text_of, offsets))

    def add_texts(self, raw: dict[tuple[str, int], str | FilePart]) -> None:
        """Add texts by file and number; they leave the mapping as they enter, so that not all are in memory twice."""
        for source, group in groupby(sorted(raw), key=itemgetter(0)):
            keys = list(group)
            numbers = np.array([number for _, number in keys], dtype=np.int64)
            if parts := _parts_of_one_file([raw[key] for key in keys]):
                starts, ends = (np.array([part[i] for part in parts], dtype=np.int64) for i in (1, 2))
                self.add_lines(source, FileText(parts[0].data), numbers, starts, ends - starts)
                continue
            chunks = []
            for some in _slices(len(keys)):
                texts = [storable_text(str(raw.pop(keys[i]))) for i in some]
                chunks.append(pa.array(texts, type=pa.string()))
            self.add(source, numbers, _text_in(pa.chunked_array(chunks)))

    def add_lines(self, source: str, text: FileText, numbers: IntArray, offsets: IntArray, sizes: NDArray[Any]) -> None:
        """Add lines of a file by where they stand in it."""

        def line(i: int) -> str:
            start = int(offsets[i])
            return text.read(start, start + int(sizes[i])).decode("utf-8", "replace")

        self.add(source, numbers, line, offsets)

    def numbers(self) -> dict[str, IntArray]:
        """Numbers of the records, rising, by file."""
        found: dict[str, list[IntArray]] = {}
        for part in self._parts:
            found.setdefault(part.source, []).append(part.numbers)
        numbers = {source: _rising(np.concatenate(arrays)) for source, arrays in found.items()}
        for source in {source for source, _ in self._dropped}:
            dropped = [number for name, number in self._dropped if name == source]
            numbers[source] = np.setdiff1d(numbers[source], dropped)
        return numbers

    def extend(self, other: RawRecords) -> None:
        """Add all records of another."""
        self._parts += other._parts
        self._dropped |= other._dropped

    def find(self, source: str, number: int) -> str | None:
        """The text of a record; None where it isn't kept, or can't be read any more."""
        part, i = self._place(source, number)
        try:
            return storable_text(part.text_of(i)) if part else None
        except OSError:
            return None

    def offset_of(self, source: str, number: int) -> int | None:
        """Where a record begins in its file, in bytes; None where that isn't known here."""
        part, i = self._place(source, number)
        return None if part is None or part.offsets is None else int(part.offsets[i])

    def drop(self, keys: Iterable[tuple[str, int]]) -> None:
        """Forget some records."""
        self._dropped.update(keys)

    def _place(self, source: str, number: int) -> tuple[_Part | None, int]:
        for part in self._parts:
            i = bisect_left(part.numbers, number)
            if storable_text(part.source) == source and i < len(part.numbers) and part.numbers[i] == number:
                return (None, 0) if (source, number) in self._dropped else (part, i)
        return None, 0

    def table(self) -> pa.Table:
        """All of it as a table, by file and number."""
        batches = []
        for part in sorted(self._parts, key=lambda part: (part.source, int(part.numbers[0]))):
            source = storable_text(part.source)
            for some in _slices(len(part.numbers)):
                places = [i for i in some if (source, int(part.numbers[i])) not in self._dropped]
                texts = [storable_text(part.text_of(i)) for i in places]
                columns = [[source] * len(texts), part.numbers[places], texts]
                arrays = [
                    pa.array(column, field.type) for column, field in zip(columns, RECORDS_ARROW_SCHEMA, strict=True)
                ]
                batches.append(pa.RecordBatch.from_arrays(arrays, schema=RECORDS_ARROW_SCHEMA))
        return pa.Table.from_batches(batches, schema=RECORDS_ARROW_SCHEMA)

    def __len__(self) -> int:
        """Number of records."""
        return sum(len(part.numbers) for part in self._parts) - len(self._dropped)


def _parts_of_one_file(texts: Sequence[str | FilePart]) -> list[FilePart]:
    """The texts where all of them are parts of the same bytes; else none."""
    parts = [text for text in texts if isinstance(text, FilePart)]
    is_one = len(parts) == len(texts) and all(part.data is parts[0].data for part in parts)
    return parts if is_one else []


def _text_in(column: pa.ChunkedArray) -> Callable[[int], str]:
    def text_of(i: int) -> str:
        text: str = column[i].as_py()
        return text

    return text_of


def _slices(n: int) -> Iterator[range]:
    return (range(start, min(n, start + _AT_A_TIME)) for start in range(0, n, _AT_A_TIME))
