"""How episodes of step tables end: what the flags of single steps say about it, and what they leave open."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from offrl_core.importers.fields import Row
from offrl_core.importers.report import ImportReport, Place


def close_episodes(rows: list[Row], report: ImportReport) -> None:
    """Split ``done`` into ``terminal`` and ``timeout`` in place, and report gaps between steps.

    Args:
        rows: steps with ``episode_id``, ``t`` and the flag ``done``, which is taken out of them.
        report: gets the problems, and notes on endings the log doesn't tell.
    """
    episodes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        episodes[row["episode_id"]].append(row)
    n_gaps = n_bare = n_open = 0
    for steps in episodes.values():
        steps.sort(key=lambda row: row["t"])
        n_gaps += sum(after["t"] - before["t"] > 1 for before, after in pairwise(steps))
        for row in steps[:-1]:
            _close_inner(row, report.at(row["source_file"], row["record"]))
        n_bare += _close_last(steps[-1])
        n_open += steps[-1]["terminal"] is None
    if n_gaps:
        message = f"the step numbers of episodes have {n_gaps:,} gaps; steps may be missing from the log"
        report.at(report.source).mend("t", "gaps between steps", message)
    if n_bare:
        report.notes.append(
            f'{n_bare:,} of {len(episodes):,} episodes end with a bare "done", read as "the task ended": '
            "the log doesn't separate that from an episode that was cut."
        )
    if n_open:
        n = len(episodes)
        report.notes.append(f"The log doesn't say whether the task ended in {n_open:,} of {n:,} episodes.")


def _close_inner(row: Row, place: Place) -> None:
    """Later steps follow, so the episode went on; only an explicit ``terminal`` or ``timeout`` insists."""
    if row.pop("done") or row.get("terminal") or row.get("timeout"):
        message = "the step says that its episode ended, but later steps follow; check the episode_id"
        place.mend("done", "end inside an episode", message)
    row["terminal"] = row.get("terminal") or False
    row["timeout"] = row.get("timeout") or False


def _close_last(row: Row) -> bool:
    """End an episode at its last step; True where only a bare ``done`` says that it ended."""
    if row.pop("done"):
        row["terminal"], row["timeout"] = True, False
        return True
    terminal, timeout = row.get("terminal"), row.get("timeout")
    # One of the two being true excludes the other; being false says nothing about it.
    row["terminal"] = False if terminal is None and timeout else terminal
    row["timeout"] = False if timeout is None and terminal else timeout
    return False
