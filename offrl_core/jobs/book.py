"""The book of an engine: which runs are computed, for whom, and whose turn it is. Everything changes under one lock."""

from __future__ import annotations

import threading
import time

from ..errors import TooManyJobs
from .job import JobState, Task
from .limits import Limits
from .line import Line


class Book:
    """The tasks of an engine, by run id and in the order of turns.

    Attributes:
        lock: held by whoever reads or changes a task or the line.
        line: unfinished tasks.
    """

    def __init__(self, limits: Limits) -> None:
        """Nothing is asked for yet."""
        self.lock = threading.RLock()
        self.line: Line[Task] = Line(lambda task: task.work and task.work.training)
        self._limits = limits
        self._tasks: dict[str, Task] = {}  # by run id, the latest of each

    def find(self, run_id: str) -> Task | None:
        """The latest task of a run, if it runs or ran lately."""
        with self.lock:
            return self._tasks.get(run_id)

    def place(self, task: Task) -> int:
        """See :attr:`offrl_core.jobs.Job.place`."""
        with self.lock:
            return self.line.place(task, [other for other in self.line.jobs() if other.state == "queued"])

    def join(self, run_id: str, owner: str) -> Task | None:
        """The task of a run that is under way or done, with one more owner; None where there is none to join."""
        with self.lock:
            task = self._tasks.get(run_id)
            if task is None or task.stop_wanted or task.state in ("cancelled", "failed"):
                return None
            if not task.is_final and owner not in task.owners:
                self.check_number(owner, 1)
                task.owners.append(owner)
            return task

    def enter(self, task: Task, owner: str) -> Task:
        """Enter a new task, unless somebody was quicker: then theirs, joined. A run goes on where it was stopped."""
        with self.lock:
            joined = self.join(task.run_id, owner)
            if joined is not None:
                return joined
            if not task.is_final:
                self.check_number(owner, 1)
                on_the_way = [other for other in self._tasks.values() if task.may_go_on_from(other)]
                if on_the_way:
                    task.go_on_from(max(on_the_way, key=lambda other: other.step))
                task.owners.append(owner)
                self.line.add(owner, task)
            self._remember(task)
            return task

    def check_number(self, owner: str, n_new: int) -> None:
        """Refuse more jobs than are allowed.

        Raises:
            TooManyJobs: the owner, or all together, would have too many unfinished jobs.
        """
        with self.lock:
            unfinished = self.line.jobs()
            n_own = sum(owner in task.owners for task in unfinished)
        if n_own + n_new > self._limits.per_owner:
            raise TooManyJobs(
                f"{n_own:,} of your jobs are not finished yet, and at most {self._limits.per_owner:,} may be; stop some, or "
                "wait for them."
            )
        if len(unfinished) + n_new > self._limits.in_all:
            raise TooManyJobs(f"{len(unfinished):,} jobs wait on this server already. Try again in a little while.")

    def leave(self, task: Task, owner: str) -> bool:
        """Take an owner off a task; returns whether nobody wants it any more, so that it is to be stopped."""
        with self.lock:
            if owner in task.owners:
                task.owners.remove(owner)
                self.line.remove(task)
                if not task.is_final:
                    self.line.add(task.owners[0] if task.owners else owner, task)
            task.stop_wanted = not task.owners and not task.is_final
            return task.stop_wanted

    def end(self, task: Task, state: JobState, error: str = "") -> bool:
        """Give a task its final state; False where it has one already."""
        with self.lock:
            if task.is_final:
                return False
            task.finished, task.error, task.state = time.monotonic(), error, state
            if state != "cancelled":
                task.checkpoint = None
            self.line.remove(task)
            if self._tasks.get(task.run_id) is task:
                self._remember(task)
        task.ended.set()
        return True

    def _remember(self, task: Task) -> None:
        """Finished tasks are forgotten, the oldest first; those who hold a job of theirs keep it."""
        self._tasks.pop(task.run_id, None)
        self._tasks[task.run_id] = task
        finished = [run_id for run_id, other in self._tasks.items() if other.is_final]
        for run_id in finished[: max(0, len(finished) - self._limits.finished_jobs)]:
            del self._tasks[run_id]
        stopped = [other for other in self._tasks.values() if other.can_go_on]
        n_bytes = sum(len(other.checkpoint or b"") for other in stopped)
        for other in stopped:
            if n_bytes <= self._limits.stopped_bytes:
                break
            n_bytes -= len(other.checkpoint or b"")
            other.checkpoint = None
