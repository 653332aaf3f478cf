"""What was read, what was not, and why: the report that travels with every imported log."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from offrl_core.importers.accounts import RECORD, Accounts, FileCounts, IntArray
from offrl_core.schema import canonical_json, storable_text
from offrl_core.wording import counted

# A file can be wrong in the same way a million times: all are counted, this many of a kind are kept in words.
KEPT_PER_KIND = 1000
_EXCERPT_LENGTH = 200
_TORN_TOLD = 5
# What reading one record may raise on content that nobody thought of: it costs that record, never the upload.
UNREADABLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that could not be read as it stands.

    ``lost`` says whether data was set aside (quarantined) or only mended or flagged while its row was kept.
    """

    file: str
    record: int | None  # counted from 1; None where the problem concerns the whole file
    field: str | None
    kind: str  # short, stable, groupable: "not JSON", "duplicate step", "reward is not a number", ...
    message: str  # one sentence: what is wrong and what to do
    lost: bool = True
    excerpt: str = ""  # at most 200 characters of the offending text
    offset: int | None = None  # where the record begins in a text file, in bytes; None where that isn't known
    unit: str = RECORD  # what the records of this file are called

    def sentence(self) -> str:
        """The problem as one line with its place."""
        place = self.file if self.record is None else f"{self.file}, {self.unit} {self.record}"
        if self.field:
            place += f", field {self.field}"
        return f"{place}: {self.message}"


@dataclass(slots=True)
class ImportReport:
    """Counts and problems of one import; nothing is dropped without appearing here."""

    format: str = ""
    why: str = ""  # why this format was chosen, in words
    files: list[str] = field(default_factory=list)
    accounts: Accounts = field(default_factory=Accounts)  # what becomes of each record, while they are read
    by_file: tuple[FileCounts, ...] = ()  # the end of that
    unread_files: list[str] = field(default_factory=list)  # nothing of them could be read
    damaged_files: list[str] = field(default_factory=list)  # a part of them couldn't, and nobody knows how many records
    n_episodes: int = 0
    torn: list[str] = field(default_factory=list)  # episodes that miss something in their inside
    n_steps: int = 0
    n_steps_quarantined: int = 0
    n_lost: int = 0  # problems that set data aside; the others only mended or flagged it
    problems: list[Problem] = field(default_factory=list)  # at most KEPT_PER_KIND of each kind
    tally: Counter[str] = field(default_factory=Counter)  # all of them, by kind
    notes: list[str] = field(default_factory=list)  # facts a reader must know ("no rewards", ...)

    def add(self, problem: Problem) -> None:
        """Write a problem down; beyond KEPT_PER_KIND of one kind it is only counted."""
        self.tally[problem.kind] += 1
        if problem.lost:
            self._lose(problem)
        if self.tally[problem.kind] <= KEPT_PER_KIND:
            self.problems.append(problem)

    def _lose(self, problem: Problem) -> None:
        self.n_lost += 1
        if problem.record is not None:
            self.accounts.set_aside.setdefault(problem.file, set()).add(problem.record)
        elif problem.file not in (*self.damaged_files, *self.unread_files):
            self.damaged_files.append(problem.file)

    def damage(self, file: str, kind: str, message: str) -> None:
        """Write down that part of a file can't be read: once, though the damage may show at each step of opening it."""
        earlier = self._take_back([p for p in self.problems if p.file == file and p.record is None and p.lost])
        self.at(file).lose(None, kind, "; ".join([*earlier, message]))

    def lose_file(self, file: str, message: str) -> None:
        """Write down that nothing of a file can be read; that says all, so what was wrong inside it isn't told as well."""
        earlier = self._take_back([p for p in self.problems if p.file == file and p.record is None and p.lost])
        self._take_back([p for p in self.problems if p.file == file])
        self.unread_files.append(file)
        self.accounts.given_up.add(file)
        self.at(file).lose(None, "unreadable file", "; ".join([*earlier, message]))

    def _take_back(self, problems: list[Problem]) -> list[str]:
        """Forget problems; their messages."""
        gone = {id(problem) for problem in problems}
        self.problems = [problem for problem in self.problems if id(problem) not in gone]
        files = {problem.file for problem in problems if problem.record is None and problem.lost}
        self.damaged_files = [file for file in self.damaged_files if file not in files]
        self.tally -= Counter(problem.kind for problem in problems)
        self.n_lost -= sum(problem.lost for problem in problems)
        return [problem.message for problem in problems]

    def at(self, file: str, record: int | None = None, offset: int | None = None) -> Place:
        """The place that the next problems concern: a file, or one record of it."""
        return Place(self, file, record, offset)

    @property
    def source(self) -> str:
        """What problems of the whole import name as their file."""
        first, *others = self.files or ["the file"]
        return f"{first} and {counted(len(others), 'more file')}" if others else first

    def counts(self) -> dict[str, int]:
        """Number of problems by kind, most frequent first."""
        return dict(self.tally.most_common())

    # -- counts ------------------------------------------------------------------------------------------

    def settle(self, behind: Mapping[str, IntArray], units: Mapping[str, str]) -> None:
        """Say of all records what became of them.

        Args:
            behind: as :meth:`Accounts.behind_steps` gives it.
            units: what the format of a file calls its records.
        """
        self.by_file = self.accounts.counts(behind, units)
        unit_of = {counts.file: counts.unit for counts in self.by_file}
        parts = self.accounts.parts
        self.problems = [
            replace(problem, unit=unit_of.get(parts.get(problem.file, problem.file), RECORD))
            for problem in self.problems
        ]

    @property
    def n_records(self) -> int:
        """Records that were found, in all files."""
        return self.accounts.found.total()

    @property
    def n_records_read(self) -> int:
        """Records that steps rest on, or that give none by their nature."""
        return sum(counts.n_read for counts in self.by_file)

    @property
    def n_records_lost(self) -> int:
        """Records that were set aside as a whole."""
        return sum(counts.n_lost for counts in self.by_file)

    @property
    def unit(self) -> str:
        """What the records are called, in the singular; "record" where files differ."""
        units = {counts.unit for counts in self.by_file}
        return units.pop() if len(units) == 1 else RECORD

    def losses(self) -> list[str]:
        """What was lost where: a sentence for each file that lost something, most of it first."""
        lossy = sorted((counts for counts in self.by_file if counts.n_lost), key=lambda counts: -counts.n_lost)
        unread = [f"{file}: nothing of it could be read" for file in self.unread_files]
        damaged = [f"{file}: a part of it, nobody knows how much" for file in self.damaged_files]
        return [*unread, *damaged, *(counts.sentence for counts in lossy if counts.file not in self.unread_files)]

    def torn_sentence(self) -> str:
        """Which episodes are torn; "" where none is."""
        if not self.torn:
            return ""
        more = ", …" if len(self.torn) > _TORN_TOLD else ""
        named = f"{', '.join(self.torn[:_TORN_TOLD])}{more}"
        return f"Something inside is missing from {counted(len(self.torn), 'episode')}: {named}"

    def sentence(self) -> str:
        """One line for the top: "Read 118 of 120 lines (2 lost): 1,402 steps in 9 episodes, 1 of them torn; 7 problems."."""
        text = f"Read {', '.join(self._records())}: {self._steps()} in {counted(self.n_episodes, 'episode')}"
        if self.torn:
            text += f", {len(self.torn):,} of them torn"
        if self.unread_files:
            text += f"; {counted(len(self.unread_files), 'file')} unreadable"
        if self.damaged_files:
            text += f"; {counted(len(self.damaged_files), 'file')} damaged"
        n = self.tally.total()
        return f"{text}; {counted(n, 'problem') if n else 'no problems'}."

    def _records(self) -> Iterator[str]:
        """For each unit, how many records were read of how many."""
        for unit in dict.fromkeys(counts.unit for counts in self.by_file):
            n, n_read, n_lost = (
                sum(getattr(counts, name) for counts in self.by_file if counts.unit == unit)
                for name in ("n", "n_read", "n_lost")
            )
            yield f"{n_read:,} of {counted(n, unit)}" + (f" ({n_lost:,} lost)" if n_lost else "")

    def _steps(self) -> str:
        """Steps, and of how many, where a record holds several: else the records tell that."""
        if not self.n_steps_quarantined or self.n_steps_quarantined <= self.n_records_lost:
            return counted(self.n_steps, "step")
        return f"{self.n_steps:,} of {counted(self.n_steps + self.n_steps_quarantined, 'step')}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where problems are found: passed along while a record is read, so that each of them names its place."""

    report: ImportReport
    file: str
    record: int | None
    offset: int | None = None

    def lose(self, field: str | None, kind: str, message: str, evidence: Any = "") -> None:
        """Write down that data was set aside, with an excerpt of it."""
        self._add(field, kind, message, evidence, lost=True)

    def mend(self, field: str | None, kind: str, message: str, evidence: Any = "") -> None:
        """Write down that something is odd or was mended, while its row was kept."""
        self._add(field, kind, message, evidence, lost=False)

    def lose_unread(self, error: Exception, evidence: Any = "") -> None:
        """Write down that data was set aside because reading it raised one of :data:`UNREADABLE`."""
        self.lose(None, *why_unread(error), evidence)

    def item(self, i: int | None) -> Place:
        """The place of an item of the record; that is another one where each item was a record, as a line of a session."""
        if self.record is None or i is None:
            return self
        number = self.report.accounts.number_of(self.file, self.record, i)
        return self if number == self.record else Place(self.report, self.file, number)

    def _add(self, field: str | None, kind: str, message: str, evidence: Any, *, lost: bool) -> None:
        """Write a problem of this place down."""
        self.report.add(
            Problem(
                file=self.file,
                record=self.record,
                field=field,
                kind=kind,
                message=message,
                lost=lost,
                excerpt=excerpt(evidence),
                offset=self.offset,
            )
        )


def why_unread(error: Exception) -> tuple[str, str]:
    """Kind and message for a record whose reading raised one of :data:`UNREADABLE`."""
    if isinstance(error, RecursionError):
        return "nested too deep", "the record is nested too deep to be read"
    reason = storable_text(f"{type(error).__name__}: {error}"[:_EXCERPT_LENGTH])
    return "unexpected content", f"the record holds something that can't be read ({reason}), so it was set aside"


def excerpt(value: Any) -> str:
    """The first 200 characters of a value as a person would look for it in the file."""
    try:
        text = value if isinstance(value, str) else canonical_json(value)
    except RecursionError:
        text = "(nested too deep to show)"
    return storable_text(text[:_EXCERPT_LENGTH])
