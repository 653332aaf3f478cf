"""Every tabular learner to its end: together on the bundled log, one by one on a log of a million steps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.importers.report import ImportReport
from offrl_core.log import Log
from offrl_core.schema import STEPS_ARROW_SCHEMA

from .measure import Line, duration, interleaved, seconds_of

ERROR = 1e-6
N_STEPS, LENGTH, N_STATES, N_ACTIONS, N_SUCCESSORS = 1_000_000, 20, 10_000, 10, 5


def tabular_lines() -> list[Line]:
    """The instant ones; others are no tables, or walk row by row on purpose."""
    names = [name for name, spec in orl.ALGORITHMS.items() if spec.instant]
    small = orl.frame(orl.bundled_log("calculator"))
    (together,) = interleaved([lambda: [orl.train(small, name) for name in names]], 9)
    large = orl.frame(million_steps(), orl.Framing(state="state_text"))
    taken = {name: seconds_of(lambda name=name: train_to(large, name)) for name in names}  # type: ignore[misc]
    slowest = max(taken, key=lambda name: taken[name])
    size = f"1,000,000 rows, {large.n_states:,} states x {N_ACTIONS} actions"
    return [
        Line(
            f"all {len(names)} tabular learners on the bundled log, to convergence",
            duration(together),
            bar="≤ 50 ms",
            met=together <= 0.05,
        ),
        Line(
            f"the slowest of them on {size}, to within {ERROR:g}: `{slowest}`",
            duration(taken[slowest]),
            bar="≤ 3 s",
            met=taken[slowest] <= 3,
        ),
    ]


def train_to(dataset: Dataset, name: str) -> None:
    """Train until what is left to change is below the error: a sweep that changes values by x leaves x / (1 - γ)."""
    for progress in orl.start_training(dataset, name):
        if progress.metrics.get("largest_change", np.inf) <= ERROR * (1 - dataset.discount):
            return


def million_steps() -> Log:
    """Episodes of twenty steps; few states get most visits, and each pair has five successors."""
    rng = np.random.default_rng(0)
    t = np.tile(np.arange(LENGTH), N_STEPS // LENGTH)
    episodes = np.repeat(np.arange(N_STEPS // LENGTH), LENGTH)
    states = (rng.random(N_STEPS) ** 2 * N_STATES).astype(np.int64)
    actions = np.minimum(rng.geometric(0.4, N_STEPS) - 1, N_ACTIONS - 1)
    for step in range(1, LENGTH):
        here = np.flatnonzero(t == step)
        drawn = rng.integers(N_SUCCESSORS, size=len(here))
        states[here] = (states[here - 1] * 7919 + actions[here - 1] * 104729 + drawn * 1299709) % N_STATES
    columns = {
        "episode_id": pa.array(episodes.astype(str)),
        "t": pa.array(t.astype(np.int32)),
        "state_text": pa.array([f"s{i}" for i in range(N_STATES)]).take(pa.array(states)),
        "action": pa.array([f"a{i}" for i in range(N_ACTIONS)]).take(pa.array(actions)),
        "reward": pa.array(rng.random(N_STEPS)),
        "terminal": pa.array(t == LENGTH - 1),
        "timeout": pa.array(np.zeros(N_STEPS, dtype=bool)),
        "upload_order": pa.array(np.arange(N_STEPS)),
    }
    arrays = [columns.get(field.name, pa.nulls(N_STEPS, field.type)) for field in STEPS_ARROW_SCHEMA]
    steps = pa.Table.from_arrays(arrays, schema=STEPS_ARROW_SCHEMA)
    return Log(steps, name="a million steps", fingerprint="1" * 16, source=None, report=ImportReport())
