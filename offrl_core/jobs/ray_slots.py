"""Slots on a Ray cluster (``pip install ray``): the same slices, run by actors of one core each.

The machines of the cluster need this package, and see the files of datasets under the same path: set ``OFFRL_SHARED`` to a
directory that all of them have. Ray runs what anyone who reaches its port sends, so that port is for private networks only.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..errors import NotPossible
from .slots import Slot


def ray_slots(address: str, n_slots: int | None, memory_bytes: int) -> list[Slot]:
    """One slot for each core of the cluster but one, or as many as asked for.

    Raises:
        NotPossible: Ray isn't installed here.
    """
    try:
        import ray
    except ImportError as error:
        raise NotPossible("Jobs shall run on a Ray cluster, and Ray isn't installed: pip install ray.") from error
    ray.init(address=None if address == "local" else address, ignore_reinit_error=True, log_to_driver=False)
    n_slots = n_slots or max(1, int(ray.cluster_resources().get("CPU", 2)) - 1)
    return [RaySlot(memory_bytes) for _ in range(n_slots)]


class _Caller:
    """The actor: it runs calls, one after the other, and keeps its process between them."""

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return function(*arguments)


class RaySlot:
    """One actor of a cluster."""

    def __init__(self, memory_bytes: int) -> None:
        """Say how much memory the cluster sets aside for the actor."""
        self._memory_bytes = memory_bytes
        self._actor: Any = None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a call in the actor."""
        import ray

        if self._actor is None:
            remote = ray.remote(num_cpus=1, memory=self._memory_bytes, max_restarts=0)
            self._actor = remote(_Caller).remote()
        future: Future[Any] = self._actor.call.remote(function, arguments).future()
        return future

    def reset(self) -> None:
        """Kill the actor."""
        import ray

        actor, self._actor = self._actor, None
        if actor is not None:
            ray.kill(actor, no_restart=True)
