"""What became of each record of an import: it was read or it was lost, counted file by file in the file's own unit.

A record is what a number beside a problem counts: a line of a session, a row, a conversation. Where many lines make one
run, the lines are the records, and the run is told as an episode. A record is lost where it was set aside as a whole; one
that gave steps and lost a part of itself is read, and its episode is torn.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offrl_core.wording import counted

RECORD = "record"  # where a format has no word of its own
_TOLD = 5

IntArray = NDArray[np.int64]
NONE = np.zeros(0, dtype=np.int64)
Key = tuple[str, int]  # file, or part of one that counts as a file, and number


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    """The records of one file: ``n_read + n_lost == n``.

    Attributes:
        file: its name.
        unit: what its records are called, in the singular.
        n, n_read, n_lost: records.
        first_lost: numbers of the first lost ones.
    """

    file: str
    unit: str
    n: int
    n_read: int
    n_lost: int
    first_lost: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        """For example "a.jsonl: 7 of 40 lines lost (12, 31, 32, 33, 34, …)"."""
        if not self.n_lost:
            return f"{self.file}: {counted(self.n, self.unit)} read"
        told = ", ".join(f"{number:,}" for number in self.first_lost)
        more = ", …" if self.n_lost > len(self.first_lost) else ""
        return f"{self.file}: {self.n_lost:,} of {counted(self.n, self.unit)} lost ({told}{more})"


@dataclass(slots=True)
class Accounts:
    """What is known of records while they are read.

    Attributes:
        found: records by file.
        idle: records that give no step by their nature (a title, a copy, a table beside), by file: they were read.
        units: what the records of a file are called, where that isn't the word of its format.
        parts: the file of each part that counts as a file of its own.
        set_aside: numbers of records in which something was set aside, by file.
        groups: the numbers of the records that make one run, by file, under the first of them.
        given_up: files whose records are lost altogether.
    """

    found: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    units: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    set_aside: dict[str, set[int]] = field(default_factory=dict)
    groups: dict[Key, dict[str, array[int]]] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)

    def group(self, keys: Sequence[Key]) -> None:
        """Remember that records are kept as one, under the first of them."""
        numbers = self.groups.setdefault(keys[0], {})
        for source, number in keys:
            numbers.setdefault(source, array("q")).append(number)

    def number_of(self, file: str, record: int, i: int) -> int:
        """The number of item i of a record: where several records were made one, that of the i-th of them."""
        group = self.groups.get((file, record), {})
        return group[file][i] if len(group) == 1 and i < len(group[file]) else record

    def beside(self, file: str, unit: str) -> None:
        """Say that a record tells something about runs that stand in other records, in the same file or not."""
        self.units[file] = unit if self.found[file] == 1 else RECORD

    def forget(self, file: str) -> None:
        """Count the records of a file no more: it is told as a file, or read again."""
        self.found.pop(file, None)
        self.idle.pop(file, None)
        self.set_aside.pop(file, None)

    def behind_steps(self, kept: Mapping[str, IntArray]) -> dict[str, IntArray]:
        """Numbers of the records that steps rest on, rising, by file.

        Args:
            kept: numbers of those that steps name, by file.
        """
        found: defaultdict[str, list[IntArray]] = defaultdict(list)
        for file, numbers in kept.items():
            found[file].append(numbers)
        for (file, number), group in self.groups.items():
            if number in kept.get(file, NONE):
                for name, members in group.items():
                    found[name].append(np.array(members, dtype=np.int64))
        return {
            file: numbers[0] if len(numbers) == 1 else np.unique(np.concatenate(numbers))
            for file, numbers in found.items()
        }

    def lost(self, behind: Mapping[str, IntArray]) -> dict[str, IntArray]:
        """Numbers of the lost records, rising, by file: something of them was set aside, and no step rests on them.

        Args:
            behind: as ``behind_steps`` gives it.
        """
        lost = {file: numbers.difference(behind.get(file, NONE).tolist()) for file, numbers in self.set_aside.items()}
        for (file, number), group in self.groups.items():
            if number in lost.get(file, ()):
                for name, members in group.items():
                    lost.setdefault(name, set()).update(members)
        return {file: np.array(sorted(numbers), dtype=np.int64) for file, numbers in lost.items() if numbers}

    def counts(self, behind: Mapping[str, IntArray], units: Mapping[str, str]) -> tuple[FileCounts, ...]:
        """The records of each file that has any.

        Args:
            behind: as ``behind_steps`` gives it.
            units: what the format of a file calls its records.
        """
        lost = self.lost(behind)
        files: dict[str, FileCounts] = {}
        for part, n in self.found.items():
            file = self.parts.get(part, part)
            gone = lost.get(part, NONE)
            given_up = file in self.given_up
            before = files.get(file) or FileCounts(file=file, unit="", n=0, n_read=0, n_lost=0)
            files[file] = FileCounts(
                file=file,
                unit=self.units.get(file) or units.get(file, RECORD),
                n=before.n + n,
                n_read=before.n_read + (0 if given_up else len(behind.get(part, NONE)) + self.idle[part]),
                n_lost=before.n_lost + (n if given_up else len(gone)),
                first_lost=(before.first_lost + tuple(gone[:_TOLD].tolist()))[:_TOLD],
            )
        return tuple(counts for counts in files.values() if counts.n)
