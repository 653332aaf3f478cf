"""Trainings beside the pages: what slices cost, what many seeds at once save, and how pages and trainings bear each other."""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import offrl_core as orl
from offrl_core import jobs
from offrl_core.dataset import Dataset
from offrl_core.jobs import Engine, Limits
from offrl_core.jobs.ray_slots import ray_slots
from offrl_core.jobs.slots import MEMORY_BYTES, LocalSlot, Slot

from .measure import Line, cost, faster
from .reruns import APP, page_times

LEARNER, STEPS, SEEDS = "cql_neural", 2000, 8
ROUNDS, RERUNS, SLICED_ROUNDS = 3, 15, 5
FOREVER = 100_000  # steps
WATCHED_SECONDS = 6.0
LOOK_EVERY = 0.7


def job_lines() -> list[Line]:
    """All lines about jobs."""
    dataset = orl.frame(orl.bundled_log("calculator_without_mul"))
    return [*slice_lines(dataset), cluster_line(dataset), *page_lines(dataset)]


def one_process(_: int | None = None) -> list[Slot]:
    """A worker process of this machine."""
    return [LocalSlot()]


def one_actor(_: int | None = None) -> list[Slot]:
    """An actor of a Ray cluster that this machine is by itself."""
    return ray_slots("local", 1, MEMORY_BYTES)


@contextmanager
def running_engine(
    slice_seconds: float = 0.5, slots: Callable[[int | None], list[Slot]] = one_process
) -> Iterator[Engine]:
    """An engine with one warm worker that has imported torch."""
    limits = Limits(slice_seconds=slice_seconds, first_slice_seconds=min(0.1, slice_seconds))
    with tempfile.TemporaryDirectory() as runs:
        engine = Engine(slots=slots, runs=runs, limits=limits)
        try:
            engine.submit(orl.frame(orl.bundled_log("calculator_without_mul")), LEARNER, n_steps=10).result()
            yield engine
        finally:
            engine.close()


def slice_lines(dataset: Dataset) -> list[Line]:
    """The same training in slices of half a second and in one piece; eight seeds at once and one after the other."""
    sliced, whole, together, alone = [], [], [], []
    with running_engine() as usual, running_engine(slice_seconds=3600.0) as patient:
        for i in range(SLICED_ROUNDS):
            first = 1000 * (i + 1)
            sliced.append(_seconds(usual, dataset, [first], 3 * STEPS))
            whole.append(_seconds(patient, dataset, [first], 3 * STEPS))
            together.append(_seconds(usual, dataset, range(first + 1, first + 1 + SEEDS), STEPS))
            alone.append(_seconds(usual, dataset, [first + 99], STEPS))
    medians = [statistics.median(times) for times in (sliced, whole, together, alone)]
    return [
        cost(f"{3 * STEPS:,} steps of a network in slices (loky)", medians[0], medians[1], "in one piece", 1.1),
        faster(
            f"{SEEDS} seeds of {STEPS:,} steps as jobs",
            medians[2],
            SEEDS * medians[3],
            f"{SEEDS} times one seed",
            1,
        ),
    ]


def cluster_line(dataset: Dataset) -> Line:
    """What slices cost on a Ray cluster of one machine."""
    what = f"{3 * STEPS:,} steps of a network in slices (Ray)"
    if importlib.util.find_spec("ray") is None:
        return Line(what, "not measured: pip install ray", bar="≤ 1.2x")
    with running_engine(slots=one_actor) as usual, running_engine(slice_seconds=3600.0, slots=one_actor) as patient:
        engines = (usual, patient)
        times = [
            [_seconds(engine, dataset, [1000 * (i + 1)], 3 * STEPS) for engine in engines] for i in range(SLICED_ROUNDS)
        ]
    sliced, whole = map(statistics.median, zip(*times, strict=True))
    return cost(what, sliced, whole, "in one piece", 1.2)


def _seconds(engine: Engine, dataset: Dataset, seeds: Sequence[int], steps: int) -> float:
    """Wall time until all seeds are done."""
    began = time.perf_counter()
    for job in engine.submit_seeds(dataset, LEARNER, seeds=seeds, n_steps=steps):
        job.result()
    return time.perf_counter() - began


def page_lines(dataset: Dataset) -> list[Line]:
    """A cached page and a training beside each other, in turns with each of them alone."""
    import streamlit as st
    from streamlit.testing.v1 import AppTest

    idle: list[float] = []
    busy: list[float] = []
    lone: list[float] = []
    watched: list[float] = []
    with running_engine() as engine, page_times() as times:
        jobs._engines[:] = [engine]
        st.cache_resource.clear()
        app = AppTest.from_file(APP, default_timeout=120).switch_page("pages/q_values.py")
        viewer = AppTest.from_file(APP, default_timeout=120)
        viewer.query_params["learners"] = LEARNER
        viewer.query_params["budget"] = str(FOREVER)
        viewer.query_params["seeds"] = "1"
        viewer.switch_page("pages/train.py")
        for page in (app, viewer):
            page.run()
        for _ in range(ROUNDS):
            idle += _reruns(app, times)
            job = engine.submit(dataset, LEARNER, n_steps=FOREVER)
            while job.progress() is None:
                time.sleep(0.01)
            busy += _reruns(app, times)
            lone.append(_pace(job))
            with _watching(viewer):
                watched.append(_pace(job))
            job.stop()
            job.wait()
        jobs._engines.clear()
        assert not app.exception
        assert not viewer.exception
    slowed, kept = statistics.median(busy), statistics.median(watched) / statistics.median(lone)
    return [
        cost("Q-values page, cached rerun while a network trains", slowed, statistics.median(idle), "idle", 3.0),
        Line(
            "pace of a training while one visitor watches its curves",
            f"{statistics.median(watched):,.0f} steps/s",
            f"{statistics.median(lone):,.0f} steps/s, nobody watches",
            f"{kept:.0%}",
            "≥ 85%",
            kept >= 0.85,
        ),
    ]


def _reruns(app, times: list[float]) -> list[float]:
    times.clear()
    for _ in range(RERUNS):
        app.run()
    return list(times)


def _pace(job: jobs.Job) -> float:
    """Steps a second over some seconds."""
    before, began = job.progress(), time.perf_counter()
    time.sleep(WATCHED_SECONDS)
    after = job.progress()
    assert before is not None
    assert after is not None
    return (after.step - before.step) / (time.perf_counter() - began)


@contextmanager
def _watching(viewer) -> Iterator[None]:
    """Someone has the page Train open, which looks at the training again and again."""
    leaves = threading.Event()

    def look() -> None:
        while not leaves.wait(LOOK_EVERY):
            with suppress(RuntimeError):
                viewer.run()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        leaves.set()
        looking.join()
