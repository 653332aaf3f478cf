"""What was read, what was not, and why: the report that travels with every imported log."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from offrl_core.schema import canonical_json, storable_text
from offrl_core.wording import counted

# A file can be wrong in the same way a million times: all are counted, this many of a kind are kept in words.
KEPT_PER_KIND = 1000
_EXCERPT_LENGTH = 200
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

    def sentence(self) -> str:
        """The problem as one line with its place."""
        place = self.file if self.record is None else f"{self.file}, record {self.record}"
        if self.field:
            place += f", field {self.field}"
        return f"{place}: {self.message}"


@dataclass(slots=True)
class ImportReport:
    """Counts and problems of one import; nothing is dropped without appearing here."""

    format: str = ""
    why: str = ""  # why this format was chosen, in words
    files: list[str] = field(default_factory=list)
    n_records: int = 0
    n_records_read: int = 0
    n_episodes: int = 0
    n_steps: int = 0
    n_steps_quarantined: int = 0
    n_lost: int = 0  # problems that set data aside; the others only mended or flagged it
    problems: list[Problem] = field(default_factory=list)  # at most KEPT_PER_KIND of each kind
    tally: Counter[str] = field(default_factory=Counter)  # all of them, by kind
    notes: list[str] = field(default_factory=list)  # facts a reader must know ("no rewards", ...)

    def add(self, problem: Problem) -> None:
        """Write a problem down; beyond KEPT_PER_KIND of one kind it is only counted."""
        self.tally[problem.kind] += 1
        self.n_lost += problem.lost
        if self.tally[problem.kind] <= KEPT_PER_KIND:
            self.problems.append(problem)

    def damage(self, file: str, kind: str, message: str) -> None:
        """Write down that part of a file can't be read: once, though the damage may show at each step of opening it."""
        earlier = self._take_back([p for p in self.problems if p.file == file and p.record is None and p.lost])
        self.at(file).lose(None, kind, "; ".join([*earlier, message]))

    def lose_file(self, file: str, message: str) -> None:
        """Write down that nothing of a file can be read; that says all, so what was wrong inside it isn't told as well."""
        earlier = self._take_back([p for p in self.problems if p.file == file and p.record is None and p.lost])
        self._take_back([p for p in self.problems if p.file == file])
        self.at(file).lose(None, "unreadable file", "; ".join([*earlier, message]))

    def _take_back(self, problems: list[Problem]) -> list[str]:
        """Forget problems; their messages."""
        gone = {id(problem) for problem in problems}
        self.problems = [problem for problem in self.problems if id(problem) not in gone]
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

    def sentence(self) -> str:
        """One line for the top: "Read 118 of 120 records: 1,402 steps in 118 episodes; 7 problems."."""
        text = (
            f"Read {self.n_records_read:,} of {counted(self.n_records, 'record')}: "
            f"{counted(self.n_steps, 'step')} in {counted(self.n_episodes, 'episode')}"
        )
        if self.n_steps_quarantined:
            text += f", {counted(self.n_steps_quarantined, 'more step')} set aside"
        n = self.tally.total()
        if not n:
            return f"{text}; no problems."
        # Where all records were read and something is missing all the same, a file or a part of a record is.
        hidden = self.n_lost if self.n_records_read == self.n_records and not self.n_steps_quarantined else 0
        return f"{text}; {counted(n, 'problem')}{f', {hidden:,} with data set aside' if hidden else ''}."


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
