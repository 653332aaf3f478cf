"""How steps of step tables stand in their episodes: order, duplicates, gaps, and how each episode ends.

All of it is settled on columns at once, so that a million steps take no longer than they must; rows given one by one
go the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from offrl_core.importers.fields import Row
from offrl_core.importers.report import ImportReport, Place
from offrl_core.wording import counted

UNSAID = -1  # a flag that the log doesn't give; else it is 0 or 1

IntArray = NDArray[np.int64] | NDArray[np.int32]
BoolArray = NDArray[np.bool_]


@dataclass(slots=True)
class StepColumns:
    """What is to be known of N steps to tell how they follow each other; arrays in the order of reading.

    Attributes:
        episodes: (N,) number of the episode, counted in the order of first appearance.
        t: (N,) step number.
        done: (N,) whether the step bears a bare ``done``.
        terminal: (N,) 1, 0 or UNSAID; settled in place by :func:`settle_endings`.
        timeout: (N,) 1, 0 or UNSAID; settled in place as well.
    """

    episodes: IntArray
    t: IntArray
    done: BoolArray
    terminal: NDArray[np.int8]
    timeout: NDArray[np.int8]

    def at(self, kept: IntArray | BoolArray) -> StepColumns:
        """Some of the steps."""
        return StepColumns(self.episodes[kept], self.t[kept], self.done[kept], self.terminal[kept], self.timeout[kept])


def close_episodes(rows: list[Row], report: ImportReport) -> None:
    """Split ``done`` into ``terminal`` and ``timeout`` in place, and report gaps between steps.

    Args:
        rows: steps with ``episode_id``, ``t`` and the flag ``done``, which is taken out of them.
        report: gets the problems, and notes on endings the log doesn't tell.
    """
    columns = columns_of(rows)
    settle_endings(columns, report, lambda i: report.at(rows[i]["source_file"], rows[i]["record"]))
    write_endings(rows, columns)


def columns_of(rows: Sequence[Row]) -> StepColumns:
    """The columns of rows; their ``done`` may be missing."""
    numbers: dict[str, int] = {}
    return StepColumns(
        np.array([numbers.setdefault(row["episode_id"], len(numbers)) for row in rows], dtype=np.int64),
        np.array([row["t"] for row in rows], dtype=np.int64),
        np.array([bool(row.get("done")) for row in rows], dtype=bool),
        np.array([_flag(row.get("terminal")) for row in rows], dtype=np.int8),
        np.array([_flag(row.get("timeout")) for row in rows], dtype=np.int8),
    )


def write_endings(rows: Sequence[Row], columns: StepColumns) -> None:
    """Write settled endings back into rows."""
    for row, terminal, timeout in zip(rows, columns.terminal.tolist(), columns.timeout.tolist(), strict=True):
        row.pop("done", None)
        row["terminal"] = None if terminal == UNSAID else terminal == 1
        row["timeout"] = None if timeout == UNSAID else timeout == 1


def _flag(value: bool | None) -> int:
    return UNSAID if value is None else int(value)


def flags_of(column: pa.ChunkedArray | pa.Array) -> NDArray[np.int8]:
    """A boolean column as 1, 0 and UNSAID."""
    return np.asarray(column.cast(pa.int8()).fill_null(UNSAID).to_numpy(), dtype=np.int8)


def column_of(flags: NDArray[np.int8]) -> pa.Array:
    """1, 0 and UNSAID as a boolean column."""
    return pa.array(flags == 1, mask=flags == UNSAID)


def in_time(episodes: IntArray, t: IntArray) -> IntArray:
    """(N,) places of steps by episode, then t; equal ones stay in the order of reading."""
    if not len(t):
        return np.arange(0)
    keys = episodes.astype(np.int64) * (int(t.max()) - int(t.min()) + 1) + (t.astype(np.int64) - int(t.min()))
    if np.all(keys[1:] >= keys[:-1]):
        return np.arange(len(t))
    return np.argsort(keys, kind="stable")


# -- order ---------------------------------------------------------------------------------------------------


def repeated(columns: StepColumns) -> IntArray:
    """Places of the steps whose episode already had a step of that number, in the order of reading."""
    order = in_time(columns.episodes, columns.t)
    episodes, t = columns.episodes[order], columns.t[order]
    again = (episodes[1:] == episodes[:-1]) & (t[1:] == t[:-1])
    return np.sort(order[1:][again])


def report_disorder(columns: StepColumns, report: ImportReport) -> None:
    """Say how many steps stand behind a later one of their episode."""
    order = np.argsort(columns.episodes, kind="stable")
    episodes, t = columns.episodes[order], columns.t[order]
    n = int(np.count_nonzero((episodes[1:] == episodes[:-1]) & (t[1:] < t[:-1])))
    if n:
        message = f"{counted(n, 'step')} stood behind a later one of their episode; sorted by t"
        report.at(report.source).mend("t", "steps out of order", message)


# -- endings -------------------------------------------------------------------------------------------------


def settle_endings(columns: StepColumns, report: ImportReport, place_of: Callable[[int], Place]) -> None:
    """Split ``done`` into ``terminal`` and ``timeout`` in place, and report gaps between steps.

    Args:
        columns: the steps, no two with the same episode and t.
        report: gets the problems, and notes on endings the log doesn't tell.
        place_of: where a step was read, by its place in the columns.
    """
    order = in_time(columns.episodes, columns.t)
    episodes, t = columns.episodes[order], columns.t[order]
    same = episodes[1:] == episodes[:-1]
    inner, last = order[:-1][same], order[np.append(~same, True)] if len(order) else order
    _close_inner(columns, inner, place_of)
    n_bare = _close_last(columns, last)
    n_open = int(np.count_nonzero(columns.terminal[last] == UNSAID))
    n_gaps = int(np.count_nonzero(same & (t[1:] - t[:-1].astype(np.int64) > 1)))
    if n_gaps:
        message = f"the step numbers of episodes have {n_gaps:,} gaps; steps may be missing from the log"
        report.at(report.source).mend("t", "gaps between steps", message)
    if n_bare:
        report.notes.append(
            f'{n_bare:,} of {counted(len(last), "episode")} ended with a bare "done", read as "the task ended": '
            "the log doesn't separate that from an episode that was cut."
        )
    if n_open:
        report.notes.append(
            f"The log doesn't say whether the task ended in {n_open:,} of {counted(len(last), 'episode')}."
        )


def _close_inner(columns: StepColumns, inner: IntArray, place_of: Callable[[int], Place]) -> None:
    """Later steps follow, so the episode went on; only an explicit ``terminal`` or ``timeout`` insists."""
    terminal, timeout = columns.terminal[inner] == 1, columns.timeout[inner] == 1
    for i in inner[columns.done[inner] | terminal | timeout].tolist():
        message = "the step says that its episode ended, but later steps follow; check the episode_id"
        place_of(i).mend("done", "end inside an episode", message)
    columns.terminal[inner], columns.timeout[inner] = terminal, timeout


def _close_last(columns: StepColumns, last: IntArray) -> int:
    """End episodes at their last steps; how many of them end with a bare ``done``."""
    bare = last[columns.done[last]]
    columns.terminal[bare], columns.timeout[bare] = 1, 0
    terminal, timeout = columns.terminal[last], columns.timeout[last]
    # One of the two being true excludes the other; being false says nothing about it.
    columns.terminal[last] = np.where((terminal == UNSAID) & (timeout == 1), 0, terminal)
    columns.timeout[last] = np.where((timeout == UNSAID) & (terminal == 1), 0, timeout)
    return len(bare)
