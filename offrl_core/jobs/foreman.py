"""The foreman: one thread that gives slices of trainings to worker processes, and never computes anything itself.

Jobs take turns. A slice is a pure function from a state to a state, so a job can go on in any slot, be stopped between
two slices, and go on from its last state when a worker is killed. A learner that isn't resumable keeps its slot until it is
done, and starts again from the beginning.

Jobs that differ in nothing but the seed share their slices, where the learner can train many seeds at once: it costs little
more than one of them. Each keeps its own state, so it can leave such a batch after any slice.

What can go wrong with a job stays with that job: a slot is reset after every failure, a slice that overstays is killed, and
a worker that dies is no reason for more than one retry. What goes wrong in a batch is pinned on nobody: its jobs go on from
their last states, each alone, so that only the one at fault goes wrong again.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ..errors import TooManyJobs
from ..interfaces import TrainedModel
from .book import Book
from .job import JobState, Task
from .limits import Limits
from .slots import Slot
from .worker import SliceEnd, SliceStart, be_ready, run_slice

MAX_STRIKES = 2
MAX_FAILED_STARTS = 5
LONGEST_PAUSE = 60.0  # seconds between two starts
FOREVER = float("inf")


@dataclass(slots=True, eq=False)
class _Seat:
    """A slot and what happens in it. Only the foreman's thread touches it."""

    slot: Slot
    warm: bool = False
    future: Future[Any] | None = None
    tasks: tuple[Task, ...] = ()  # whose slice it is; none while the worker starts
    holder: Task | None = None  # a learner that lives in this process and nowhere else
    deadline: float = FOREVER
    failed_starts: int = 0
    pause: float = 0.0  # the last one between two starts
    pauses_until: float = 0.0
    idle_since: float = 0.0

    @property
    def is_free(self) -> bool:
        return self.future is None

    def vacate(self) -> tuple[Task, ...]:
        """The call is over; returns whose slice it was."""
        tasks, self.tasks, self.future, self.deadline = self.tasks, (), None, FOREVER
        self.idle_since = time.monotonic()
        return tasks


class Foreman:
    """Runs the tasks of a book. The thread starts with the first of them."""

    def __init__(
        self,
        book: Book,
        limits: Limits,
        *,
        make_slots: Callable[[], Sequence[Slot]],
        keep: Callable[[Task, TrainedModel], None],
        on_end: Callable[[], None],
        on_close: Callable[[], None],
    ) -> None:
        """Say what to run, and what to do with results.

        Args:
            book: whose tasks are run.
            limits: what is allowed.
            make_slots: makes the slots, when the first task comes.
            keep: takes a model that is done.
            on_end: called whenever a task has ended.
            on_close: called once nothing runs any more.
        """
        self._book, self._limits = book, limits
        self._make_slots, self._keep, self._on_end, self._on_close = make_slots, keep, on_end, on_close
        self._seats: list[_Seat] = []
        self._inbox: queue.SimpleQueue[tuple[_Seat, Future[Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._ends_with_program = False

    # -- for the engine ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, if it doesn't run yet.

        Raises:
            TooManyJobs: it is closed.
        """
        with self._book.lock:
            if self._closing:
                raise TooManyJobs("The engine is shutting down and takes no more jobs.")
            if self._thread is None:
                self._seats = [_Seat(slot) for slot in self._make_slots()]
                self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Something changed in the book: look at it now."""
        self._inbox.put(None)

    def close(self) -> None:
        """Kill all workers and cancel what isn't finished; returns once nothing is left."""
        with self._book.lock:
            self._closing = True
            thread = self._thread
        self.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._on_close()

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                self._turn()
            except Exception:  # a bug: it mustn't take the jobs of everybody with it
                logging.getLogger(__name__).exception("the job engine goes on after an error")
        for seat in self._seats:
            self._reset(seat)
        for task in self._book.line.jobs():
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
        times += [seat.pauses_until for seat in self._seats if seat.is_free and seat.pauses_until > now]
        times += [seat.idle_since + self._limits.idle_seconds for seat in self._seats if seat.is_free and seat.warm]
        earliest = min(times, default=FOREVER)
        return None if earliest == FOREVER else min(max(0.0, earliest - now), 3600.0)

    # -- answers of workers --------------------------------------------------------------------------------------

    def _take(self, seat: _Seat, future: Future[Any]) -> None:
        """Take the answer of a call; one from before a reset is nobody's any more."""
        if seat.future is not future:
            return
        tasks, error = seat.vacate(), future.exception()
        if error is not None:
            self._lose_worker(seat, tasks)
        elif not tasks:
            seat.warm, seat.failed_starts, seat.pause = True, 0, 0.0
        else:
            self._take_slices(seat, tasks, future.result())

    def _lose_worker(self, seat: _Seat, tasks: tuple[Task, ...]) -> None:
        """A worker died: at its start, or during a slice."""
        self._reset(seat)
        if tasks:
            self._strike(tasks)
            return
        seat.failed_starts += 1
        seat.pause = min(2 * seat.pause or self._limits.pause_seconds, LONGEST_PAUSE)
        seat.pauses_until = time.monotonic() + seat.pause
        others_live = any(other.warm or other.future for other in self._seats)
        if seat.failed_starts >= MAX_FAILED_STARTS and not others_live:
            seat.failed_starts, seat.pause, seat.pauses_until = 0, 0.0, 0.0
            for waiting in self._book.line.jobs():
                self._end(waiting, "failed", "No worker process can be started here, so nothing can be trained.")

    def _strike(self, tasks: tuple[Task, ...]) -> None:
        self._part(tasks)
        for task in tasks:
            task.strikes += 1
            if task.strikes >= MAX_STRIKES:
                sentence = f"Its worker process was killed {task.strikes} times, so it isn't tried again."
                self._end(task, "failed", sentence)
            elif task.checkpoint is None:
                with self._book.lock:
                    task.start_again()

    def _part(self, tasks: tuple[Task, ...]) -> None:
        """Let the jobs of a batch go on one by one, each from its last state."""
        if len(tasks) > 1:
            with self._book.lock:
                for task in tasks:
                    task.alone = True

    def _take_slices(self, seat: _Seat, tasks: tuple[Task, ...], ends: tuple[SliceEnd, ...]) -> None:
        failed = any(end.failure for end in ends)
        if failed:
            self._reset(seat)  # whatever is left of it would harm the next one
        if failed and len(tasks) > 1:
            self._part(tasks)
            return
        for task, end in zip(tasks, ends, strict=True):
            self._take_slice(seat, task, end)

    def _take_slice(self, seat: _Seat, task: Task, end: SliceEnd) -> None:
        if end.failure:
            self._end(task, "failed", f"The learner failed. {end.failure}")
        elif end.lost:
            seat.holder = None
            self._strike((task,))
        elif end.refusal:
            self._end(task, "failed", end.refusal)
        elif end.ahead:
            with self._book.lock:
                task.alone = True
                self._book.line.hasten(task)
        else:
            with self._book.lock:
                task.history.extend(end.events, end.n_seen, end.n_frames)
                task.checkpoint = end.state
            seat.holder = task if end.state is None and end.model is None else None
            if end.model is not None:
                self._keep(task, end.model)
                self._end(task, "succeeded")

    def _end(self, task: Task, state: JobState, error: str = "") -> None:
        if self._book.end(task, state, error):
            for seat in self._seats:
                if seat.holder is task:
                    seat.holder = None
            self._on_end()

    # -- what takes too long, and what is stopped ------------------------------------------------------------------

    def _end_overdue(self) -> None:
        """Kill what overstays."""
        now = time.monotonic()
        for seat in self._seats:
            if seat.is_free:
                if seat.warm and seat.holder is None and now >= seat.idle_since + self._limits.idle_seconds:
                    self._reset(seat)
            elif now >= seat.deadline:
                tasks = seat.tasks
                if tasks:
                    self._reset(seat)
                    self._end_hung(tasks)
                else:
                    self._lose_worker(seat, ())

    def _end_hung(self, tasks: tuple[Task, ...]) -> None:
        """Their slice was killed: after a stop (those that weren't meant go on from their last states), or it hung."""
        if any(task.stop_wanted for task in tasks):
            return
        if len(tasks) > 1:
            self._strike(tasks)
            return
        quiet = self._limits.quiet_seconds
        self._end(tasks[0], "failed", f"It gave no sign of life for {quiet:g} s, so it was ended.")

    def _end_stopped(self) -> None:
        """Cancel stopped tasks that run nowhere; those in a slice get a little time to come to its end."""
        seats = {id(task): seat for seat in self._seats for task in seat.tasks}
        for task in self._book.line.jobs():
            if not task.stop_wanted:
                continue
            if id(task) in seats:
                seat = seats[id(task)]
                seat.deadline = min(seat.deadline, time.monotonic() + self._limits.stop_seconds)
            else:
                self._end(task, "cancelled")

    # -- turns ---------------------------------------------------------------------------------------------------

    def _start_slices(self) -> None:
        now = time.monotonic()
        for seat in self._seats:
            if seat.is_free and now >= seat.pauses_until and self._waiting_for(seat):
                if seat.warm:
                    self._start_slice(seat)
                else:
                    self._call(seat, self._limits.start_seconds, be_ready)

    def _waiting_for(self, seat: _Seat) -> bool:
        with self._book.lock:
            return any(self._may_run(seat, task) for task in self._book.line.jobs())

    def _may_run(self, seat: _Seat, task: Task) -> bool:
        """Whether a task could have its next slice in a seat."""
        if task.stop_wanted or any(task in other.tasks for other in self._seats):
            return False
        holder = next((other for other in self._seats if other.holder is task), None)
        return seat.holder is task if holder is not None else seat.holder is None

    def _start_slice(self, seat: _Seat) -> None:
        with self._book.lock:
            task = self._book.line.next(lambda candidate: self._may_run(seat, candidate))
            if task is None:
                return
            tasks, n_owners = self._batch(seat, task)
            seconds = self._slice_seconds(task, n_owners)
            for member in tasks:
                member.state, member.began = "running", member.began or time.monotonic()
            starts = tuple(
                SliceStart(state=member.checkpoint, n_seen=member.history.n_seen, n_frames=member.history.n_frames)
                for member in tasks
            )
        works = tuple(member.work for member in tasks)
        self._call(seat, seconds + self._limits.quiet_seconds, run_slice, works, starts, seconds)
        if not seat.is_free:
            seat.tasks = tasks

    def _batch(self, seat: _Seat, task: Task) -> tuple[tuple[Task, ...], int]:
        """A task with those that share its slice, and how many owners' turn that is.

        The owner's own come first. Then those of other owners, where these bring as many: a class that trains the same thing
        with a seed each takes one turn for all, and nobody's seeds slow down someone who brought fewer.
        """
        queues = self._book.line.queues()
        queues.sort(key=lambda queue: task not in queue)  # the owner's own first, the others in the order of turns
        kin = [[t for t in queue if t is task or (self._may_run(seat, t) and task.goes_with(t))] for queue in queues]
        batch, n_owners = kin[0][: self._limits.batch], 1
        for others in kin[1:]:
            if len(others) == len(kin[0]) and len(batch) + len(others) <= self._limits.batch:
                batch += others
                n_owners += 1
                self._book.line.pass_turn(others[0])
        return tuple(sorted(batch, key=_steady)), n_owners

    def _slice_seconds(self, task: Task, n_owners: int) -> float:
        """Shorter turns where many wait, so that all come round in a few seconds."""
        limits = self._limits
        if task.history.n_seen == 0:
            return limits.first_slice_seconds
        share = 4.0 * len(self._seats) * n_owners / max(1, self._book.line.n_owners)
        return max(min(limits.first_slice_seconds, limits.slice_seconds), min(limits.slice_seconds, share))

    # -- calls ---------------------------------------------------------------------------------------------------

    def _call(self, seat: _Seat, seconds: float, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            future = seat.slot.submit(function, *arguments)
        except Exception:  # the worker died since its last call, and the slot can't take another
            self._lose_worker(seat, ())
            self.wake()  # try again
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

    def _reset(self, seat: _Seat) -> None:
        """Kill what is in a seat. A learner that lived only there starts again, through no fault of its own."""
        holder, seat.holder = seat.holder, None
        seat.vacate()
        seat.warm = False
        seat.slot.reset()
        if holder is not None and not holder.is_final:
            with self._book.lock:
                holder.start_again()


def _steady(task: Task) -> tuple[int, str]:
    """An order that is the same in each slice: only then a batch that is still in a worker's memory goes on there."""
    return (task.work.seed, task.work.key) if task.work else (0, "")


def _close(foreman: weakref.ref[Foreman]) -> None:
    here = foreman()
    if here is not None:
        here.close()
