"""Episodes per task: repeated trials, mixed outcomes, and the chance that k tries in a row all succeed."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np

from ..arrays import FloatArray, IntArray

MAX_K = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAllK:
    """pass^k: the probability that k trials of a task, drawn without replacement, all succeed; the mean over tasks.

    For a task with n trials of which c succeeded it is C(c, k) / C(n, k) (Yao et al. 2024, tau-bench).
    """

    k: int
    value: float
    n_tasks: int  # tasks with at least k trials of known outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounts:
    """Tasks and their episodes. Trials are episodes whose outcome is known."""

    n_tasks: int
    n_episodes_without_task: int
    episodes_low: int | None  # episodes of a task: least, median, most
    episodes_median: float | None
    episodes_high: int | None
    n_repeated: int  # tasks with at least two trials
    n_mixed: int  # of these, some trial succeeded and some failed
    n_flat: int  # of these, all trials have the same return
    pass_all: tuple[PassAllK, ...]


def count_tasks(cursor: duckdb.DuckDBPyConnection) -> TaskCounts:
    """Count the tasks of the temporary table ``runs``."""
    columns = cursor.execute(
        """SELECT count(*) AS episodes, count(success) AS trials, count(*) FILTER (success) AS successes,
               coalesce(max(episode_return) - min(episode_return), 0.0) AS spread
           FROM runs WHERE task IS NOT NULL GROUP BY task"""
    ).fetchnumpy()
    episodes, trials, successes, spread = (np.asarray(columns[name]) for name in columns)
    without = cursor.execute("SELECT count(*) FROM runs WHERE task IS NULL").fetchall()[0][0]
    repeated = trials >= 2
    return TaskCounts(
        n_tasks=len(episodes),
        n_episodes_without_task=without,
        episodes_low=int(episodes.min()) if len(episodes) else None,
        episodes_median=float(np.median(episodes)) if len(episodes) else None,
        episodes_high=int(episodes.max()) if len(episodes) else None,
        n_repeated=int(repeated.sum()),
        n_mixed=int((repeated & (successes > 0) & (successes < trials)).sum()),
        n_flat=int((repeated & (spread == 0)).sum()),
        pass_all=pass_all_k(trials, successes),
    )


def pass_all_k(trials: IntArray, successes: IntArray) -> tuple[PassAllK, ...]:
    """pass^1, pass^2, ... while at least half of the tasks have that many trials; nothing where most were tried once.

    Args:
        trials: (tasks,) trials with a known outcome.
        successes: (tasks,) those that succeeded.
    """
    n_tried = int((trials >= 1).sum())
    found = []
    for k in range(1, MAX_K + 1):
        enough = trials >= k
        n_tasks = int(enough.sum())
        if n_tasks < max(n_tried / 2, 1):
            break
        value = float(_all_succeed(trials[enough], successes[enough], k).mean())
        found.append(PassAllK(k=k, value=value, n_tasks=n_tasks))
    return tuple(found) if len(found) > 1 else ()


def _all_succeed(trials: IntArray, successes: IntArray, k: int) -> FloatArray:
    """C(c, k) / C(n, k) as a product, which doesn't overflow."""
    drawn = np.arange(k)
    factors = (successes[:, None] - drawn) / (trials[:, None] - drawn)
    return np.clip(factors, 0.0, 1.0).prod(axis=1)
