"""What an engine allows: how many jobs, how long a turn, how much patience."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the engine allows.

    Attributes:
        per_owner: most unfinished jobs of one owner.
        in_all: most unfinished jobs of all owners.
        batch: most seeds that are trained in one computation.
        slice_seconds: length of a turn; shorter where many wait.
        first_slice_seconds: length of a job's first turn, so that everybody sees a first sign of life soon.
        quiet_seconds: how much longer than its turn a slice may take before it counts as hung.
        stop_seconds: how long a slice may go on after its job was stopped, before it is killed.
        start_seconds: how long a worker may take to start.
        pause_seconds: after a worker that died while it started; twice as long after each further one.
        idle_seconds: after which an idle worker gives its memory back.
        finished_jobs: finished jobs that are kept at hand; older ones are found in the store.
        stopped_bytes: size of the states that stopped jobs keep, so that they can go on; the oldest go first.
        dataset_bytes: size of the datasets that are kept for workers.
    """

    per_owner: int = 128
    in_all: int = 1000
    batch: int = 32
    slice_seconds: float = 0.5
    first_slice_seconds: float = 0.1
    quiet_seconds: float = 60.0
    stop_seconds: float = 0.7
    start_seconds: float = 60.0
    pause_seconds: float = 0.5
    idle_seconds: float = 300.0
    finished_jobs: int = 64
    stopped_bytes: int = 64_000_000
    dataset_bytes: int = 1_000_000_000
