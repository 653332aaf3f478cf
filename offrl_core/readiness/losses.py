"""What the import lost, against what chance does to a log of this size anyway.

At worst all lost records were of one kind. Then a share that is counted from the log (how often an action was taken, how
many episodes succeeded) is off by at most the share of records that were lost: with p of the lost and q of the kept ones,
the truth is ``(1 - s) q + s p``, which differs from q by ``s |p - q| <= s``. Chance alone moves a share over E episodes by a
standard error of up to ``0.5 / sqrt(E)``.

A bias of a fifth of a standard error leaves an interval that should hold in 95 % of all cases with 94.5 %, one of a whole
standard error with 83 %. So a loss counts from a fifth on.

Source: Cochran (1977), "Sampling techniques", section 1.8, on biases that are small beside the standard error. Differs: there a
tenth is called safe; the bound above is for the worst kind of loss, so twice that is allowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import duckdb

from ..importers.report import ImportReport
from ..wording import counted

HARMLESS = 0.2  # of the standard error


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """What the import lost.

    Attributes:
        unit: what records are called.
        n_records, n_lost: records that were found, and of these set aside as a whole.
        n_files, n_unread, n_damaged: files; those of which nothing could be read; those of which an unknown part is missing.
        n_torn: kept episodes with something missing inside.
        n_torn_with_gaps: of these, with step numbers that jump.
        n_torn_unrewarded: of these, without a known return.
        first: the first loss in words; "" without any.
    """

    unit: str
    n_records: int
    n_lost: int
    n_files: int
    n_unread: int
    n_damaged: int
    n_torn: int
    n_torn_with_gaps: int
    n_torn_unrewarded: int
    first: str

    @property
    def share(self) -> float:
        """Of the log that is lost, at most: of the records, and of the files where nobody knows how much they hold."""
        of_files = (self.n_unread + self.n_damaged) / self.n_files if self.n_files else 0.0
        return min(1.0, self.n_lost / max(self.n_records, 1) + of_files)

    @property
    def sentence(self) -> str:
        """For example "7 of 40 lines (17.5%) and 1 of 3 files were lost on import"; "" where nothing was."""
        files = self.n_unread + self.n_damaged
        parts = []
        if self.n_lost:
            share = percentage(self.n_lost / self.n_records)
            parts.append(f"{self.n_lost:,} of {counted(self.n_records, self.unit)} ({share})")
        if files:
            part = "a part, nobody knows how large, of " if not self.n_unread else ""
            parts.append(f"{part}{files:,} of {counted(self.n_files, 'file')}")
        one = self.n_lost + files == 1
        return f"{' and '.join(parts)} {'was' if one else 'were'} lost on import" if parts else ""


def count_losses(cursor: duckdb.DuckDBPyConnection, report: ImportReport) -> Losses:
    """The losses of an import, over the episodes in the table ``runs``."""
    n_torn, n_with_gaps, n_unrewarded = cursor.execute(
        """SELECT count(*), count(*) FILTER (has_gaps), count(*) FILTER (episode_return IS NULL)
        FROM runs WHERE episode_id IN (SELECT unnest(?::VARCHAR[]))""",
        [report.torn],
    ).fetchall()[0]
    files = {counts.file for counts in report.by_file} | {*report.unread_files, *report.damaged_files}
    return Losses(
        unit=report.unit,
        n_records=report.n_records,
        n_lost=report.n_records_lost,
        n_files=len(files),
        n_unread=len(report.unread_files),
        n_damaged=len(report.damaged_files),
        n_torn=n_torn,
        n_torn_with_gaps=n_with_gaps,
        n_torn_unrewarded=n_unrewarded,
        first=next((problem.sentence() for problem in report.problems if problem.lost), ""),
    )


def chance(n_episodes: int) -> float:
    """Standard error of a share over so many episodes, at most."""
    return 0.5 / math.sqrt(max(n_episodes, 1))


def counts(share: float, n_episodes: int) -> bool:
    """Whether losing this share of a log can do more than a fifth of what chance does."""
    return share > HARMLESS * chance(n_episodes)


def in_proportion(share: float, n_episodes: int) -> str:
    """What losing this share can do, beside what chance does."""
    most = f"Shares counted from this log may be off by up to {percentage(share)}"
    by_chance = f"±{percentage(chance(n_episodes))} with {counted(n_episodes, 'episode')}"
    if counts(share, n_episodes):
        return f"{most}. Chance makes {by_chance}, and a loss counts from a fifth of that on."
    return f"{most}: less than a fifth of what chance makes ({by_chance}), so no verdict is weaker for it."


def percentage(share: float) -> str:
    """A share in percent, to three digits."""
    return f"{100 * share:.3g}%"
