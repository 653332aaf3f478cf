"""Where slices run. The engine asks three things of a slot: take a call, be reset, say who you are.

``LocalSlot`` is one process of this machine, through loky: no port, no server, nothing to start. A slot takes one call at a
time; an exception of its future means that the process is gone, as calls answer with values only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from .worker import prepare_worker

if TYPE_CHECKING:
    from loky.process_executor import ProcessPoolExecutor

ADDRESS_VARIABLE = "OFFRL_ENGINE"  # ray://host:port, or auto: a cluster that is already running; unset: this machine
MEMORY_BYTES = 1_500_000_000
NICENESS = 15  # pages come first: they answer at once, a training takes a little longer

# One thread each: two threads on two busy cores are several times slower than one, and bits depend on their number.
# The last one switches off that loky replaces a worker which grew: what a worker may use is limited already.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18",
}


class Slot(Protocol):
    """A place where one slice runs at a time."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a call; whatever is needed for that is started now."""

    def reset(self) -> None:
        """Kill what runs here and come back empty; returns once it is dead."""


class LocalSlot:
    """One worker process of this machine, started by the first call."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES, niceness: int = NICENESS) -> None:
        """Say how much the process may write to, and how far it steps back behind others."""
        self._memory_bytes, self._niceness = memory_bytes, niceness
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a call in the process."""
        if self._pool is None:
            from loky.process_executor import ProcessPoolExecutor

            self._pool = ProcessPoolExecutor(
                max_workers=1,
                initializer=prepare_worker,
                initargs=(self._memory_bytes, self._niceness),
                env=_ENVIRONMENT,
            )
        future: Future[Any] = self._pool.submit(function, *arguments)
        return future

    def reset(self) -> None:
        """Kill the process, and wait until it is dead."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, kill_workers=True)


def make_slots(n_slots: int | None = None, memory_bytes: int = MEMORY_BYTES) -> list[Slot]:
    """The slots that this machine, or the cluster of ``OFFRL_ENGINE``, has to offer.

    Args:
        n_slots: how many; by default all cores but one, at least one.
        memory_bytes: what each may use.

    Raises:
        NotPossible: a cluster is asked for, and Ray isn't installed.
    """
    address = os.environ.get(ADDRESS_VARIABLE)
    if address:
        from .ray_slots import ray_slots

        return ray_slots(address, n_slots, memory_bytes)
    if n_slots is None:
        from loky import cpu_count  # knows the limits of containers

        n_slots = max(1, cpu_count() - 1)
    return [LocalSlot(memory_bytes) for _ in range(n_slots)]
