"""What happens in a worker process: a slice of a training, and the walls around the process.

A slice goes from a state to a state in about so many seconds. Where the learner of the last slice is still in the middle of
its work here, it simply goes on; else it starts from the state. Nothing escapes as an exception: the server may lack the
package that an exception comes from, so it gets a sentence.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..dataset import Dataset
from ..dataset_files import load_dataset
from ..errors import OffRLError
from ..history import Event, History
from ..interfaces import AlgorithmSpec, TrainedModel, Training
from .states import decode_state, encode_state

MAX_DATASETS = 2  # that a worker keeps at hand
PARENT_SECONDS = 1.0  # how often a worker looks whether its server is still there


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to be trained, the same for all slices. ``key`` is new for each job, also for the same run."""

    key: str
    algorithm: AlgorithmSpec
    config: Any
    seed: int
    dataset: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceStart:
    """Where a slice goes on: the last state (None: at the beginning, or in the worker's own memory), and for how long."""

    number: int = 0
    state: bytes | None = None
    n_seen: int = 0
    n_frames: int = 0
    seconds: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceEnd:
    """Where a slice ended: in a new state, with a model, or with a sentence.

    Attributes:
        state: to go on from; None where only this process can go on, or nothing is left to do.
        events: what was reported, see :class:`offrl_core.history.History`.
        n_seen: signs of life so far, kept or not.
        n_frames: key frames so far.
        model: once it is trained.
        refusal: why the learner can't do this, on purpose.
        failure: what went wrong; the process isn't to be trusted any more.
        lost: the learner that was to go on isn't in this process.
        seconds: that the slice took.
    """

    state: bytes | None = None
    events: tuple[Event, ...] = ()
    n_seen: int = 0
    n_frames: int = 0
    model: TrainedModel | None = None
    refusal: str = ""
    failure: str = ""
    lost: bool = False
    seconds: float = 0.0


@dataclass(slots=True)
class _Bench:
    """The learner in the middle of its work, and the datasets at hand."""

    training: Training | None = None
    key: str = ""
    number: int = 0  # of the slice that would go on here
    datasets: dict[Path, Dataset] = field(default_factory=dict)

    def clear(self) -> None:
        """Let go of the learner."""
        training, self.training, self.key = self.training, None, ""
        if training is not None:
            training.close()

    def goes_on(self, work: Work, start: SliceStart) -> bool:
        """Whether the learner here stands exactly where the slice begins."""
        return self.training is not None and (self.key, self.number) == (work.key, start.number)

    def dataset(self, path: Path) -> Dataset:
        """Read a dataset, or take it from those at hand."""
        if path not in self.datasets:
            while len(self.datasets) >= MAX_DATASETS:
                del self.datasets[next(iter(self.datasets))]
            self.datasets[path] = load_dataset(path)
        return self.datasets[path]


_bench = _Bench()


def run_slice(work: Work, start: SliceStart) -> SliceEnd:
    """Train for about ``start.seconds``, to the first sign of life from which another slice can go on."""
    began = time.perf_counter()
    try:
        if not _bench.goes_on(work, start):
            _bench.clear()
            if start.number and start.state is None:
                return SliceEnd(lost=True)
            _bench.training, _bench.key = _begin(work, start), work.key
        return _advance(work, start, began)
    except OffRLError as error:
        return SliceEnd(refusal=str(error), **_leave(began))
    except MemoryError:
        return SliceEnd(failure="It needs more memory than a worker may use.", **_leave(began))
    except BaseException as error:
        return SliceEnd(failure=f"{type(error).__name__}: {str(error)[:500]}", **_leave(began))


def _begin(work: Work, start: SliceStart) -> Training:
    dataset = _bench.dataset(work.dataset)
    if start.state is None:
        return work.algorithm.train(dataset, work.config, seed=work.seed)
    return work.algorithm.train(dataset, work.config, seed=work.seed, resume_from=decode_state(start.state))


def _advance(work: Work, start: SliceStart, began: float) -> SliceEnd:
    assert _bench.training is not None
    history = History(start.n_seen, start.n_frames)
    state, model = None, None
    ends = time.perf_counter() + start.seconds
    while True:
        try:
            progress = next(_bench.training)
        except StopIteration as finished:
            model = finished.value
            if not isinstance(model, TrainedModel):
                raise TypeError(f"{work.algorithm.name} returned no trained model") from None
            break
        history.append(progress)
        if time.perf_counter() >= ends and (progress.state is not None or not work.algorithm.resumable):
            state = None if progress.state is None else encode_state(progress.state)
            break
    if model is not None:
        _bench.clear()
    _bench.number = start.number + 1
    return SliceEnd(
        state=state,
        events=history.events(start.n_seen),
        n_seen=history.n_seen,
        n_frames=history.n_frames,
        model=model,
        seconds=time.perf_counter() - began,
    )


def _leave(began: float) -> dict[str, Any]:
    """Drop everything: what is left in memory belongs to nobody."""
    with contextlib.suppress(BaseException):
        _bench.clear()
    _bench.datasets.clear()
    return {"seconds": time.perf_counter() - began}


def be_ready() -> int:
    """Import what every learner needs, and say which process this is."""
    from .. import algorithms

    del algorithms
    gc.collect()
    gc.freeze()  # what is imported stays; looking through it at each collection would take longer than many slices
    return os.getpid()


# -- walls -------------------------------------------------------------------------------------------------------


def prepare_worker(memory_bytes: int, niceness: int) -> None:
    """Make a process harmless: it steps back behind the pages, is bounded in memory, and goes when its server goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to act on
    with contextlib.suppress(AttributeError, OSError):
        os.nice(niceness)
    _limit(memory_bytes)
    threading.Thread(target=_leave_with, args=[os.getppid()], name="parent watch", daemon=True).start()


def _limit(memory_bytes: int) -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    # RLIMIT_DATA counts what a process may write to; address space alone would count every library that is mapped.
    for limit, value in ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(limit)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (value, value))


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)
