"""What pages ask of a log of a million steps. Everything is loaded and framed beforehand, as it is after the first page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from offrl_core.coverage_edits import DropAction
from offrl_core.dataset import frame
from offrl_core.evaluation.diagnostics import aliasing, evidence
from offrl_core.framing import FRAMINGS
from offrl_core.importers.report import ImportReport
from offrl_core.log import Log
from offrl_core.schema import STEPS_ARROW_SCHEMA

from .measure import Line, duration, interleaved

N_STEPS, N_EPISODES = 1_000_000, 125_000
REPETITIONS = 5


def query_lines() -> list[Line]:
    """Each query, in the whole log and in one that lost an action."""
    dataset = frame(million_steps(), FRAMINGS["last_tool"])
    dataset.success_rate()  # loads the tables
    state, action = dataset.states[0], dataset.actions[0]
    queries: list[tuple[str, float, Callable[[], Any]]] = [
        ("episode table, first 1,000", 0.1, lambda: dataset.episode_table(1000)),
        ("success rate", 0.1, dataset.success_rate),
        ("states of one task", 0.1, lambda: dataset.states_of_task("task 7")),
        ("evidence of one pair", 0.1, lambda: evidence(dataset, state, action)),
        ("aliasing of a preset", 1, lambda: aliasing(dataset)),
        ("taking an action away, and the episode table of what is left", 0.2, lambda: _filtered(dataset.log)),
    ]
    seconds = interleaved([query for _, _, query in queries], REPETITIONS)
    return [
        Line(f"1,000,000 steps: {what}", duration(took), bar=f"≤ {duration(most)}", met=took <= most)
        for (what, most, _), took in zip(queries, seconds, strict=True)
    ]


def _filtered(log: Log) -> pd.DataFrame:
    edit = DropAction("tool_5", where="task = 'task 7'", how="episodes")
    return frame(log, FRAMINGS["last_tool"], edits=[edit]).episode_table(1000)


def million_steps() -> Log:
    """Episodes of eight steps with seven tools, of which two fail at times."""
    rng = np.random.default_rng(0)
    episodes = np.repeat(np.arange(N_EPISODES), N_STEPS // N_EPISODES)
    t = np.tile(np.arange(N_STEPS // N_EPISODES), N_EPISODES)
    last = t == t.max()
    tools = pa.array([f"tool_{i}" for i in range(7)])
    chosen = pa.array(rng.integers(0, 7, N_STEPS))
    failed = rng.random(N_STEPS) < 0.05
    columns = {
        "episode_id": pa.array([f"run-{i:06d}" for i in range(N_EPISODES)]).take(pa.array(episodes)),
        "t": pa.array(t.astype(np.int32)),
        "task": pa.array([f"task {i}" for i in range(50)]).take(pa.array(episodes % 50)),
        "action": tools.take(chosen),
        "tool": tools.take(chosen),
        "error": pa.array(np.where(failed, "Error", ""), pa.string(), mask=~failed),
        "reward": pa.array(np.where(last & (rng.random(N_STEPS) < 0.5), 1.0, 0.0)),
        "terminal": pa.array(last),
        "timeout": pa.array(np.zeros(N_STEPS, dtype=bool)),
        "behavior_policy": pa.array(["agent"]).take(pa.array(np.zeros(N_STEPS, dtype=np.int64))),
        "upload_order": pa.array(np.arange(N_STEPS)),
    }
    arrays = [columns.get(field.name, pa.nulls(N_STEPS, field.type)) for field in STEPS_ARROW_SCHEMA]
    steps = pa.Table.from_arrays(arrays, schema=STEPS_ARROW_SCHEMA)
    return Log(steps, name="a million steps", fingerprint="0" * 16, source=None, report=ImportReport())
