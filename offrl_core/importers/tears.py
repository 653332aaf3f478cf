"""Which episodes miss something in their inside, because the import lost it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offrl_core.importers.accounts import NONE, Accounts, IntArray
from offrl_core.importers.step_parts import StepParts

BoolArray = NDArray[np.bool_]


def torn_episodes(parts: StepParts, accounts: Accounts, behind: Mapping[str, IntArray], *, numbered: bool) -> list[str]:
    """Names of the episodes that miss something in their inside.

    That is so where a part of a record that they rest on was set aside, and where a lost record stands between two that they
    rest on. Where records say which step they are, the second needs a gap between these numbers, too: episodes may be
    interleaved.

    Args:
        parts: the steps.
        accounts: of their records.
        behind: as ``behind_steps`` gives it.
        numbered: whether the numbers of steps are those of the file.
    """
    if not parts.n:
        return []
    lost = accounts.lost(behind)
    columns = parts.columns()
    names, files, records = parts.places()
    episodes, n_episodes = columns.episodes.astype(np.int64), len(parts.ids)
    torn = np.zeros(n_episodes, dtype=bool)
    for number, file in enumerate(names):
        gone = lost.get(file, NONE)
        flawed = np.intersect1d(sorted(accounts.set_aside.get(file, ())), behind.get(file, NONE))
        if not len(gone) and not len(flawed):
            continue
        here = files == number
        ends = _ends(records[here], accounts, file)
        first, last = np.full(n_episodes, np.iinfo(np.int64).max), np.full(n_episodes, -1)
        np.minimum.at(first, episodes[here], records[here])
        np.maximum.at(last, episodes[here], ends)
        between = _n_within(gone, first, last) > 0
        torn |= between & _has_gaps(episodes, columns.t, n_episodes) if numbered else between
        torn[episodes[here][_n_within(flawed, records[here], ends) > 0]] = True
    return [name for name, is_torn in zip(parts.ids, torn, strict=True) if is_torn]


def _ends(records: IntArray, accounts: Accounts, file: str) -> IntArray:
    """(N,) number of the last record that each of N steps rests on; ``records`` are those they name."""
    last = {number: max(group[file]) for (source, number), group in accounts.groups.items() if source == file}
    return np.array([last.get(number, number) for number in records.tolist()], dtype=np.int64) if last else records


def _n_within(numbers: IntArray, first: IntArray, last: IntArray) -> IntArray:
    """How many of some rising numbers lie from first to last."""
    return np.maximum(np.searchsorted(numbers, last, side="right") - np.searchsorted(numbers, first), 0)


def _has_gaps(episodes: IntArray, t: NDArray[Any], n_episodes: int) -> BoolArray:
    """(E,) whether the step numbers of an episode jump, or don't begin at 0."""
    last = np.full(n_episodes, -1)
    np.maximum.at(last, episodes, t)
    return last + 1 > np.bincount(episodes, minlength=n_episodes)
