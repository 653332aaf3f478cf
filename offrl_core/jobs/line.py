"""The line before the slots: visitors take turns, and each one's jobs keep their order."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Line(Generic[_T]):
    """Owners in a ring, each with jobs in the order in which they came."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._jobs: dict[str, list[_T]] = {}  # the ring, in the order of turns

    def add(self, owner: str, job: _T) -> None:
        """Let a job stand behind the owner's others; a new owner stands behind all others."""
        self._jobs.setdefault(owner, []).append(job)

    def hasten(self, job: _T) -> None:
        """Let a job stand before the owner's others."""
        for jobs in self._jobs.values():
            if job in jobs:
                jobs.remove(job)
                jobs.insert(0, job)

    def remove(self, job: _T) -> None:
        """Take a job out, wherever it stands."""
        for owner, jobs in list(self._jobs.items()):
            if job in jobs:
                jobs.remove(job)
            if not jobs:
                del self._jobs[owner]

    def next(self, may_run: Callable[[_T], bool]) -> _T | None:
        """The first job that may run, of the owner whose turn it is; that owner's next turn comes after all others'."""
        for jobs in self._jobs.values():
            for job in jobs:
                if may_run(job):
                    self.pass_turn(job)
                    return job
        return None

    def queues(self) -> list[list[_T]]:
        """The jobs of each owner, in the order of turns."""
        return [list(jobs) for jobs in self._jobs.values()]

    def pass_turn(self, job: _T) -> None:
        """The owner of this job has had a turn: the next one comes after all others'."""
        owner = next((owner for owner, jobs in self._jobs.items() if job in jobs), None)
        if owner is not None:
            self._jobs[owner] = self._jobs.pop(owner)

    @property
    def n_owners(self) -> int:
        """How many take turns."""
        return len(self._jobs)

    def place(self, job: _T, waiting: Collection[_T]) -> int:
        """How far in front a job stands among those that wait for their first turn: 1 is next; 0 where it doesn't wait.

        Owners take turns, so an owner's second job stands behind everybody's first.
        """
        queues = [[other for other in jobs if other in waiting] for jobs in self._jobs.values()]
        for turn, queue in enumerate(queues):
            if job in queue:
                before = queue.index(job)
                others = (min(len(q), before + (i < turn)) for i, q in enumerate(queues) if i != turn)
                return 1 + before + sum(others)
        return 0

    def jobs(self) -> list[_T]:
        """All that stand here."""
        return [job for jobs in self._jobs.values() for job in jobs]
