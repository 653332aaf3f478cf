"""What happens in a worker process: a slice of a training, and the walls around the process.

A slice goes from a state to a state in about so many seconds. Where the learner of the last slice is still in the middle of
its work here, it simply goes on; else it starts from the state. Several seeds of one training may share a slice: each has a
start, a history and an end of its own. Nothing escapes as an exception: the server may lack the
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
from ..interfaces import AlgorithmSpec, SeedsTraining, TrainedModel, Training
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

    @property
    def training(self) -> tuple[str, Any, Path]:
        """What all seeds of a training have in common."""
        return self.algorithm.name, self.config, self.dataset

    def goes_with(self, other: Work) -> bool:
        """Whether both differ in nothing but the seed, and the learner can train many seeds at once."""
        spec = self.algorithm
        return spec.resumable and spec.train_seeds is not None and self.training == other.training


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceStart:
    """Where a slice goes on.

    Attributes:
        state: the last one; None at the beginning, or where the learner is in the worker's own memory.
        n_seen: signs of life so far, kept or not: where the learner stands.
        n_frames: key frames so far.
    """

    state: bytes | None = None
    n_seen: int = 0
    n_frames: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceEnd:
    """Where a slice ended: in a new state, with a model, or with a sentence.

    Attributes:
        state: to go on from; None where only this process can go on, or nothing is left to do.
        events: what was reported, see :class:`offrl_core.history.History`.
        n_seen: signs of life so far, kept or not.
        n_frames: key frames so far.
        model: once it is trained.
        ahead: this seed has ended and the others of its batch have not; what it did since the slice began is not told. It
            goes on alone from there, and ends the same way.
        refusal: why the learner can't do this, on purpose.
        failure: what went wrong; the process isn't to be trusted any more.
        lost: the learner that was to go on isn't in this process.
    """

    state: bytes | None = None
    events: tuple[Event, ...] = ()
    n_seen: int = 0
    n_frames: int = 0
    model: TrainedModel | None = None
    ahead: bool = False
    refusal: str = ""
    failure: str = ""
    lost: bool = False


@dataclass(slots=True)
class _Bench:
    """The learner in the middle of its work, and the datasets at hand."""

    training: SeedsTraining | None = None
    keys: tuple[str, ...] = ()
    n_seen: int = 0  # signs of life behind which it would go on
    datasets: dict[Path, Dataset] = field(default_factory=dict)

    def clear(self) -> None:
        """Let go of the learner."""
        training, self.training, self.keys = self.training, None, ()
        if training is not None:
            training.close()

    def goes_on(self, keys: tuple[str, ...], n_seen: int) -> bool:
        """Whether the learner here stands exactly where the slice begins."""
        return self.training is not None and (self.keys, self.n_seen) == (keys, n_seen)

    def dataset(self, path: Path) -> Dataset:
        """Read a dataset, or take it from those at hand."""
        if path not in self.datasets:
            while len(self.datasets) >= MAX_DATASETS:
                del self.datasets[next(iter(self.datasets))]
            self.datasets[path] = load_dataset(path)
        return self.datasets[path]


_bench = _Bench()


def run_slice(works: tuple[Work, ...], starts: tuple[SliceStart, ...], seconds: float) -> tuple[SliceEnd, ...]:
    """Train for about so many seconds, to the first sign of life from which another slice can go on.

    Args:
        works: one, or several that differ in nothing but the seed and are trained as one computation.
        starts: where each goes on; all stand at the same sign of life.
        seconds: length of the slice.

    Returns:
        One end for each.
    """
    keys, n_seen = tuple(work.key for work in works), starts[0].n_seen
    try:
        if not _bench.goes_on(keys, n_seen):
            _bench.clear()
            if n_seen and starts[0].state is None:
                return (SliceEnd(lost=True),) * len(works)
            _bench.training, _bench.keys = _begin(works, starts), keys
        return _advance(works[0].algorithm, starts, seconds)
    except OffRLError as error:
        return _left(works, SliceEnd(refusal=str(error)))
    except MemoryError:
        return _left(works, SliceEnd(failure="It needs more memory than a worker may use."))
    except BaseException as error:
        return _left(works, SliceEnd(failure=f"{type(error).__name__}: {str(error)[:500]}"))


def _begin(works: tuple[Work, ...], starts: tuple[SliceStart, ...]) -> SeedsTraining:
    first = works[0]
    dataset, spec = _bench.dataset(first.dataset), first.algorithm
    states = [decode_state(start.state) for start in starts if start.state is not None]
    if len(works) == 1:
        return _alone(
            spec.train(dataset, first.config, seed=first.seed, **({"resume_from": states[0]} if states else {}))
        )
    assert spec.train_seeds is not None
    return spec.train_seeds(dataset, first.config, seeds=[work.seed for work in works], resume_from=states or None)


def _alone(training: Training) -> SeedsTraining:
    """The training of one seed in the form of that of many."""
    try:
        while True:
            try:
                progress = next(training)
            except StopIteration as finished:
                return (finished.value,)
            yield (progress,)
    finally:
        training.close()


def _advance(spec: AlgorithmSpec, starts: tuple[SliceStart, ...], seconds: float) -> tuple[SliceEnd, ...]:
    assert _bench.training is not None
    histories = [History(start.n_seen, start.n_frames) for start in starts]
    ends = time.perf_counter() + seconds
    while True:
        try:
            signs = next(_bench.training)
        except StopIteration as finished:
            _bench.clear()
            return _all_trained(spec, finished.value, starts, histories)
        for history, progress in zip(histories, signs, strict=True):
            if progress is not None:
                history.append(progress)
        going = [progress for progress in signs if progress is not None]
        may_end = not spec.resumable or all(progress.state is not None for progress in going)
        if going and may_end and time.perf_counter() >= ends:
            break
    _bench.n_seen = max(history.n_seen for history in histories)
    return tuple(
        SliceEnd(ahead=True)
        if progress is None
        else _end(start, history, state=None if progress.state is None else encode_state(progress.state))
        for start, history, progress in zip(starts, histories, signs, strict=True)
    )


def _all_trained(
    spec: AlgorithmSpec, models: tuple[Any, ...], starts: tuple[SliceStart, ...], histories: list[History]
) -> tuple[SliceEnd, ...]:
    if not all(isinstance(model, TrainedModel) for model in models):
        raise TypeError(f"{spec.name} returned no trained model") from None
    triples = zip(starts, histories, models, strict=True)
    return tuple(_end(start, history, model=model) for start, history, model in triples)


def _end(
    start: SliceStart, history: History, *, state: bytes | None = None, model: TrainedModel | None = None
) -> SliceEnd:
    return SliceEnd(
        state=state,
        events=history.events(start.n_seen),
        n_seen=history.n_seen,
        n_frames=history.n_frames,
        model=model,
    )


def _left(works: tuple[Work, ...], why: SliceEnd) -> tuple[SliceEnd, ...]:
    """Drop everything, as what is left in memory belongs to nobody, and say why to each."""
    with contextlib.suppress(BaseException):
        _bench.clear()
    _bench.datasets.clear()
    return (why,) * len(works)


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
