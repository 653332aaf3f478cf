"""The line before the slots: visitors take turns, and so do each one's trainings; seeds of a training keep their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Line(Generic[_T]):
    """Owners in a ring, each with a ring of kinds, each with jobs in the order in which they came."""

    def __init__(self, kind: Callable[[_T], Hashable]) -> None:
        """Nobody waits.

        Args:
            kind: jobs of an owner that are alike in it come one after the other, others in turns.
        """
        self._kind = kind
        self._rings: dict[str, dict[Hashable, list[_T]]] = {}  # both rings in the order of turns

    def add(self, owner: str, job: _T) -> None:
        """Let a job stand behind the owner's others of its kind; a new kind or owner stands behind all others."""
        self._rings.setdefault(owner, {}).setdefault(self._kind(job), []).append(job)

    def hasten(self, job: _T) -> None:
        """Let a job stand before the owner's others."""
        kind = self._kind(job)
        for owner, ring in self._rings.items():
            if job in ring.get(kind, []):
                jobs = ring.pop(kind)
                jobs.remove(job)
                self._rings[owner] = {kind: [job, *jobs], **ring}

    def remove(self, job: _T) -> None:
        """Take a job out, wherever it stands."""
        kind = self._kind(job)
        for owner, ring in list(self._rings.items()):
            if job in ring.get(kind, []):
                ring[kind].remove(job)
                if not ring[kind]:
                    del ring[kind]
            if not ring:
                del self._rings[owner]

    def next(self, may_run: Callable[[_T], bool]) -> _T | None:
        """The first job that may run, of the owner and kind whose turn it is; their next turn comes after all others'."""
        for queue in self.queues():
            for job in queue:
                if may_run(job):
                    self.pass_turn(job)
                    return job
        return None

    def queues(self) -> list[list[_T]]:
        """The jobs of each owner, in the order of turns."""
        return [[job for jobs in ring.values() for job in jobs] for ring in self._rings.values()]

    def pass_turn(self, job: _T) -> None:
        """The owner and the kind of this job have had a turn: the next one comes after all others'."""
        kind = self._kind(job)
        owner = next((owner for owner, ring in self._rings.items() if job in ring.get(kind, [])), None)
        if owner is not None:
            ring = self._rings[owner] = self._rings.pop(owner)
            ring[kind] = ring.pop(kind)

    @property
    def n_owners(self) -> int:
        """How many take turns."""
        return len(self._rings)

    def place(self, job: _T, waiting: Collection[_T]) -> int:
        """How far in front a job stands among those that wait for their first turn: 1 is next; 0 where it doesn't wait.

        Owners take turns, so an owner's second job stands behind everybody's first.
        """
        queues = [[other for other in _in_turns(ring) if other in waiting] for ring in self._rings.values()]
        for turn, queue in enumerate(queues):
            if job in queue:
                before = queue.index(job)
                others = (min(len(q), before + (i < turn)) for i, q in enumerate(queues) if i != turn)
                return 1 + before + sum(others)
        return 0

    def jobs(self) -> list[_T]:
        """All that stand here."""
        return [job for queue in self.queues() for job in queue]


def _in_turns(ring: dict[Hashable, list[_T]]) -> list[_T]:
    """The first of each kind, then the second of each, and so on."""
    rounds = max(map(len, ring.values()), default=0)
    return [jobs[i] for i in range(rounds) for jobs in ring.values() if i < len(jobs)]
