"""The engine: runs slices of trainings in slots, one thread that decides and never computes.

Jobs take turns. A slice is a pure function from a state to a state, so a job can go on in any slot, be stopped between
two slices, and go on from its last state when a worker is killed. A learner that isn't resumable keeps its slot until it is
done, and starts again from the beginning.

What can go wrong with a job stays with that job: a slot is reset after every failure, a slice that overstays is killed, and
a worker that dies is no reason for more than one retry.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..algorithms import algorithm_spec
from ..dataset import Dataset
from ..dataset_files import files_of, save_dataset
from ..errors import TooManyJobs
from ..history import Event
from ..interfaces import TrainedModel
from ..params import make_config
from ..runs import current_run, write_run
from ..training import id_of_content, named_model, run_content
from .job import Job, Task
from .line import Line
from .slots import Slot, make_slots
from .worker import SliceEnd, SliceStart, Work, be_ready, run_slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the engine allows.

    Attributes:
        per_owner: most unfinished jobs of one owner.
        in_all: most unfinished jobs of all owners.
        slice_seconds: length of a turn; shorter where many wait.
        first_slice_seconds: length of a job's first turn, so that everybody sees a first sign of life soon.
        quiet_seconds: how much longer than its turn a slice may take before it counts as hung.
        stop_seconds: how long a slice may go on after its job was stopped, before it is killed.
        start_seconds: how long a worker may take to start.
        idle_seconds: after which an idle worker gives its memory back.
        finished_jobs: finished jobs that are kept at hand; older ones are found in the store.
        dataset_bytes: size of the datasets that are kept for workers.
    """

    per_owner: int = 40
    in_all: int = 1000
    slice_seconds: float = 0.5
    first_slice_seconds: float = 0.1
    quiet_seconds: float = 60.0
    stop_seconds: float = 0.7
    start_seconds: float = 60.0
    idle_seconds: float = 300.0
    finished_jobs: int = 64
    dataset_bytes: int = 1_000_000_000


MAX_STRIKES = 2
MAX_FAILED_STARTS = 3
LEFT_BEHIND_SECONDS = 86_400.0
_PREFIX = "offrl-jobs-"
FRESH_SECONDS = 60.0  # a dataset written or asked for so lately may belong to a job that is just being submitted


@dataclass(slots=True, eq=False)
class _Seat:
    """A slot and what happens in it. Only the engine's thread touches it."""

    slot: Slot
    warm: bool = False
    future: Future[Any] | None = None
    task: Task | None = None
    holder: Task | None = None  # a learner that lives in this process and nowhere else
    deadline: float = float("inf")
    failed_starts: int = 0
    idle_since: float = 0.0

    @property
    def is_free(self) -> bool:
        return self.future is None


class Engine:
    """Trainings beside the caller. Nothing starts before the first job; :meth:`close` leaves nothing behind."""

    def __init__(
        self,
        *,
        n_slots: int | None = None,
        slots: Callable[[int | None], Sequence[Slot]] = make_slots,
        runs: str | Path | None = None,
        shared: str | Path | None = None,
        limits: Limits = Limits(),
    ) -> None:
        """Say where slices run and where results go.

        Args:
            n_slots: how many trainings at once; by default all cores but one.
            slots: makes the slots.
            runs: where finished runs are stored, see :func:`offrl_core.runs.runs_directory`.
            shared: where datasets are written for workers; by default a temporary directory of this machine.
            limits: what is allowed.
        """
        self._limits, self._runs = limits, runs
        self._n_slots, self._make_slots = n_slots, slots
        self._shared = Path(shared) if shared else None
        self._lock = threading.RLock()
        self._line: Line[Task] = Line()
        self._tasks: dict[str, Task] = {}  # by run id, the latest of each
        self._seats: list[_Seat] = []
        self._inbox: queue.SimpleQueue[tuple[_Seat, Future[Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._directory: Path | None = None
        self._closing = False
        self._ends_with_program = False

    # -- for callers ---------------------------------------------------------------------------------------------

    def submit(self, dataset: Dataset, algorithm: str, *, seed: int = 0, owner: str = "", **parameters: Any) -> Job:
        """Train beside the caller. The same run is never computed twice: a stored one is done, a running one is joined.

        Args:
            dataset: see :func:`offrl_core.dataset.frame`.
            algorithm: name in :data:`offrl_core.algorithms.ALGORITHMS`.
            seed: of the run.
            owner: on whose behalf; owners take turns.
            **parameters: fields of the learner's config.

        Raises:
            UnknownName, InvalidConfig: as :func:`offrl_core.training.start_training`.
            TooManyJobs: the owner, or all together, have too many unfinished jobs.
        """
        spec = algorithm_spec(algorithm)
        config = make_config(spec.config_class, parameters, algorithm)
        content = run_content(dataset, algorithm, config, seed)
        run_id = id_of_content(content)
        task = self._joined(run_id, owner)
        if task is None and (model := current_run(run_id, self._runs)) is not None:
            task = self._add(_finished(run_id, content, model), owner)
        if task is None:
            self._check_number(owner)
            path = save_dataset(dataset, self._dataset_directory())
            work = Work(key=Task.new_key(), algorithm=spec, config=config, seed=seed, dataset=path)
            task = self._add(Task(run_id=run_id, content=content, work=work), owner)
        return Job(self, task, owner)

    def find(self, run_id: str, owner: str = "") -> Job | None:
        """The job of a run, whoever asked for it, if it runs or ran lately. To look on is not to own: see :meth:`submit`."""
        with self._lock:
            task = self._tasks.get(run_id)
        return None if task is None else Job(self, task, owner)

    def jobs(self) -> list[Job]:
        """Every unfinished job, in the order of turns."""
        with self._lock:
            return [Job(self, task, task.owners[0] if task.owners else "") for task in self._line.jobs()]

    def place(self, task: Task) -> int:
        """See :attr:`Job.place`."""
        with self._lock:
            return self._line.place(task, [other for other in self._line.jobs() if other.state == "queued"])

    def events(self, task: Task, since: int) -> tuple[Event, ...]:
        """See :meth:`Job.events`."""
        with self._lock:
            return task.history.events(since)

    def stop(self, task: Task, owner: str) -> bool:
        """See :meth:`Job.stop`."""
        with self._lock:
            if owner in task.owners:
                task.owners.remove(owner)
                self._line.remove(task)
                if not task.is_final:
                    self._line.add(task.owners[0] if task.owners else owner, task)
            task.stop_wanted = not task.owners and not task.is_final
            wanted = task.stop_wanted
        self._inbox.put(None)
        return wanted

    def close(self) -> None:
        """Kill all workers and cancel what isn't finished; the engine can't be used again."""
        with self._lock:
            self._closing = True
            thread = self._thread
        self._inbox.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            directory, self._directory = self._directory, None
        if directory is not None and self._shared is None:
            shutil.rmtree(directory, ignore_errors=True)

    def _joined(self, run_id: str, owner: str) -> Task | None:
        """The task of a run that is under way or done, with one more owner."""
        with self._lock:
            task = self._tasks.get(run_id)
            if task is None or task.stop_wanted or task.state in ("cancelled", "failed"):
                return None
            if not task.is_final and owner not in task.owners:
                self._check_number(owner)
                task.owners.append(owner)
            return task

    def _add(self, task: Task, owner: str) -> Task:
        """Enter a new task, unless somebody was quicker."""
        with self._lock:
            joined = self._joined(task.run_id, owner)
            if joined is not None:
                return joined
            if task.is_final:
                self._remember(task)
                return task
            self._check_number(owner)
            self._start()
            task.owners.append(owner)
            self._remember(task)
            self._line.add(owner, task)
        self._inbox.put(None)
        return task

    def _check_number(self, owner: str) -> None:
        with self._lock:
            unfinished = self._line.jobs()
            n_own = sum(owner in task.owners for task in unfinished)
        if n_own >= self._limits.per_owner:
            raise TooManyJobs(f"{n_own:,} of your jobs are not finished yet; stop some, or wait for them.")
        if len(unfinished) >= self._limits.in_all:
            raise TooManyJobs(f"{len(unfinished):,} jobs wait on this server already. Try again in a little while.")

    def _remember(self, task: Task) -> None:
        """Finished tasks are forgotten, the oldest first; those who hold a job of theirs keep it."""
        self._tasks.pop(task.run_id, None)
        self._tasks[task.run_id] = task
        finished = [run_id for run_id, other in self._tasks.items() if other.is_final]
        for run_id in finished[: max(0, len(finished) - self._limits.finished_jobs)]:
            del self._tasks[run_id]

    def _start(self) -> None:
        if self._closing:
            raise TooManyJobs("The engine is shutting down and takes no more jobs.")
        if self._thread is None:
            self._seats = [_Seat(slot) for slot in self._make_slots(self._n_slots)]
            self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)
            self._thread.start()

    def _dataset_directory(self) -> Path:
        with self._lock:
            if self._directory is None:
                remove_left_behind(Path(tempfile.gettempdir()))
                self._directory = self._shared or Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
                self._directory.mkdir(parents=True, exist_ok=True)
            return self._directory

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                self._turn()
            except Exception:  # a bug: it mustn't take the jobs of everybody with it
                logging.getLogger(__name__).exception("the job engine goes on after an error")
        for seat in self._seats:
            self._reset(seat)
        for task in self._line.jobs():
            self._end(task, "cancelled")

    def _turn(self) -> None:
        with contextlib.suppress(queue.Empty):
            message = self._inbox.get(timeout=self._seconds_to_wait())
            if message is not None:
                self._take(*message)
        self._end_overdue()
        self._end_stopped()
        self._start_slices()

    def _seconds_to_wait(self) -> float | None:
        now = time.monotonic()
        times = [seat.deadline for seat in self._seats if not seat.is_free]
        times += [seat.idle_since + self._limits.idle_seconds for seat in self._seats if seat.is_free and seat.warm]
        earliest = min(times, default=float("inf"))
        return None if earliest == float("inf") else min(max(0.0, earliest - now), 3600.0)

    def _take(self, seat: _Seat, future: Future[Any]) -> None:
        """Take the answer of a call; one from before a reset is nobody's any more."""
        if seat.future is not future:
            return
        task, seat.task, seat.future, seat.deadline = seat.task, None, None, float("inf")
        seat.idle_since = time.monotonic()
        error = future.exception()
        if error is not None:
            self._lose_worker(seat, task)
        elif task is None:
            seat.warm, seat.failed_starts = True, 0
        else:
            self._take_slice(seat, task, future.result())

    def _lose_worker(self, seat: _Seat, task: Task | None) -> None:
        """A worker died: at its start, or during a slice."""
        self._reset(seat)
        if task is not None:
            self._strike(task)
            return
        seat.failed_starts += 1
        if seat.failed_starts >= MAX_FAILED_STARTS:
            seat.failed_starts = 0
            for waiting in self._line.jobs():
                self._end(waiting, "failed", "No worker process can be started here, so nothing can be trained.")

    def _strike(self, task: Task) -> None:
        task.strikes += 1
        if task.strikes >= MAX_STRIKES:
            self._end(task, "failed", f"Its worker process was killed {task.strikes} times, so it isn't tried again.")
        elif task.checkpoint is None:
            with self._lock:
                task.start_again()

    def _take_slice(self, seat: _Seat, task: Task, end: SliceEnd) -> None:
        if end.failure:
            self._reset(seat)  # whatever is left of it would harm the next one
            self._end(task, "failed", f"The learner failed. {end.failure}")
        elif end.lost:
            self._release(seat)
            self._strike(task)
        elif end.refusal:
            self._end(task, "failed", end.refusal)
        else:
            with self._lock:
                task.history.extend(end.events, end.n_seen, end.n_frames)
                task.checkpoint, task.number = end.state, task.number + 1
            if end.model is not None:
                self._release(seat)
                self._succeed(task, end.model)
            else:
                seat.holder = task if end.state is None else None

    def _succeed(self, task: Task, model: TrainedModel) -> None:
        assert task.work is not None
        work = task.work
        task.model = named_model(model, work.algorithm.name, work.config, work.seed, task.history)
        try:
            write_run(task.model, task.content, self._runs)
        except (OSError, ValueError, TypeError) as error:
            task.note = f"The run couldn't be stored and will be gone when the server stops: {error}"
        self._end(task, "succeeded")

    def _end(self, task: Task, state: Any, error: str = "") -> None:
        with self._lock:
            if task.is_final:
                return
            task.finished, task.error, task.checkpoint = time.monotonic(), error, None
            task.state = state
            self._line.remove(task)
            if self._tasks.get(task.run_id) is task:
                self._remember(task)
        for seat in self._seats:
            if seat.holder is task:
                self._release(seat)
        task.ended.set()
        self._remove_datasets()

    def _end_overdue(self) -> None:
        """Kill what overstays."""
        now = time.monotonic()
        for seat in self._seats:
            if seat.is_free:
                if seat.warm and seat.holder is None and now >= seat.idle_since + self._limits.idle_seconds:
                    self._reset(seat)
            elif now >= seat.deadline:
                task = seat.task
                self._reset(seat)
                if task is None:
                    self._lose_worker(seat, None)
                elif not task.stop_wanted:
                    quiet = self._limits.quiet_seconds
                    self._end(task, "failed", f"It gave no sign of life for {quiet:g} s, so it was ended.")

    def _end_stopped(self) -> None:
        """Cancel stopped tasks that run nowhere; those in a slice get a little time to come to its end."""
        busy = {id(seat.task): seat for seat in self._seats if seat.task is not None}
        for task in self._line.jobs():
            if not task.stop_wanted:
                continue
            if id(task) in busy:
                seat = busy[id(task)]
                seat.deadline = min(seat.deadline, time.monotonic() + self._limits.stop_seconds)
            else:
                self._end(task, "cancelled")

    def _start_slices(self) -> None:
        for seat in self._seats:
            if seat.is_free and self._waiting_for(seat):
                if seat.warm:
                    self._start_slice(seat)
                else:
                    self._call(seat, self._limits.start_seconds, be_ready)

    def _waiting_for(self, seat: _Seat) -> bool:
        with self._lock:
            return any(self._may_run(seat, task) for task in self._line.jobs())

    def _may_run(self, seat: _Seat, task: Task) -> bool:
        """Whether a task could have its next slice in a seat."""
        if task.stop_wanted or any(other.task is task for other in self._seats):
            return False
        holder = next((other for other in self._seats if other.holder is task), None)
        return seat.holder is task if holder is not None else seat.holder is None

    def _start_slice(self, seat: _Seat) -> None:
        with self._lock:
            task = self._line.next(lambda candidate: self._may_run(seat, candidate))
            if task is None or task.work is None:
                return
            task.state, task.began = "running", task.began or time.monotonic()
            start = SliceStart(
                number=task.number,
                state=task.checkpoint,
                n_seen=task.history.n_seen,
                n_frames=task.history.n_frames,
                seconds=self._slice_seconds(task),
            )
        self._call(seat, start.seconds + self._limits.quiet_seconds, run_slice, task.work, start)
        if not seat.is_free:
            seat.task = task

    def _slice_seconds(self, task: Task) -> float:
        """Shorter turns where many wait, so that all come round in a few seconds."""
        limits = self._limits
        if task.number == 0:
            return limits.first_slice_seconds
        share = 4.0 * len(self._seats) / max(1, len(self._line.jobs()))
        return max(min(limits.first_slice_seconds, limits.slice_seconds), min(limits.slice_seconds, share))

    def _call(self, seat: _Seat, seconds: float, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            future = seat.slot.submit(function, *arguments)
        except Exception:  # the worker died since its last call, and the slot can't take another
            self._lose_worker(seat, None)
            self._inbox.put(None)  # try again
            return
        seat.future, seat.deadline = future, time.monotonic() + seconds
        self._end_with_program()
        future.add_done_callback(lambda done: self._inbox.put((seat, done)))

    def _end_with_program(self) -> None:
        """Close before the program ends. loky then waits for calls under way, hung ones too, and that before anything of
        atexit; only what was registered in the same place after loky's first call comes earlier.
        """
        if not self._ends_with_program:
            self._ends_with_program = True
            with contextlib.suppress(RuntimeError):  # it ends already
                threading._register_atexit(_close, weakref.ref(self))  # type: ignore[attr-defined]

    def _release(self, seat: _Seat) -> None:
        seat.holder = None

    def _reset(self, seat: _Seat) -> None:
        """Kill what is in a seat. A learner that lived only there starts again, through no fault of its own."""
        holder, seat.holder = seat.holder, None
        seat.task, seat.future, seat.warm, seat.deadline = None, None, False, float("inf")
        seat.slot.reset()
        if holder is not None and not holder.is_final:
            with self._lock:
                holder.start_again()

    def _remove_datasets(self) -> None:
        """Remove files that no unfinished job needs, once they take much room."""
        with self._lock:
            directory, works = self._directory, [task.work for task in self._line.jobs() if task.work]
            if directory is None or self._shared is not None:
                return
            files = {path: path.stat() for path in directory.glob("*.npz")}
            if sum(status.st_size for status in files.values()) > self._limits.dataset_bytes:
                needed = {path for work in works for path in files_of(work.dataset)}
                for path in files.keys() - needed:
                    if files[path].st_mtime < time.time() - FRESH_SECONDS:
                        path.unlink(missing_ok=True)


def remove_left_behind(folder: Path) -> None:
    """Remove the datasets of programs that were killed: a day old, and no such process any more."""
    if os.name != "posix":  # elsewhere there is no harmless signal to ask with
        return
    for path in folder.glob(f"{_PREFIX}*-*"):
        with contextlib.suppress(OSError, ValueError):
            if path.stat().st_mtime < time.time() - LEFT_BEHIND_SECONDS:
                try:
                    os.kill(int(path.name.removeprefix(_PREFIX).split("-")[0]), 0)
                except ProcessLookupError:
                    shutil.rmtree(path, ignore_errors=True)


def _close(engine: weakref.ref[Engine]) -> None:
    here = engine()
    if here is not None:
        here.close()


def _finished(run_id: str, content: Any, model: TrainedModel) -> Task:
    task = Task(run_id=run_id, content=content, state="succeeded", model=model)
    for progress in model.history:
        task.history.append(progress)
    task.ended.set()
    return task
