"""Trainings that run beside the caller: ``orl.submit(dataset, "fqi_sampled", seed=1).result()``."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Sequence
from typing import Any

from ..dataset import Dataset
from .engine import Engine
from .job import Job
from .limits import Limits

__all__ = ["Engine", "Job", "Limits", "default_engine", "find_job", "submit", "submit_seeds"]

SHARED_VARIABLE = "OFFRL_SHARED"  # a directory that all machines of a cluster see

_engines: list[Engine] = []
_making = threading.Lock()


def default_engine() -> Engine:
    """The engine of this process, made when it is first asked for and closed when the program ends."""
    with _making:
        if not _engines:
            _engines.append(Engine(shared=os.environ.get(SHARED_VARIABLE)))
            atexit.register(_engines[0].close)
        return _engines[0]


def submit(dataset: Dataset, algorithm: str, *, seed: int = 0, owner: str = "", **parameters: Any) -> Job:
    """Train beside the caller, see :meth:`Engine.submit`."""
    return default_engine().submit(dataset, algorithm, seed=seed, owner=owner, **parameters)


def submit_seeds(
    dataset: Dataset, algorithm: str, *, seeds: Sequence[int], owner: str = "", **parameters: Any
) -> list[Job]:
    """Train many seeds beside the caller, see :meth:`Engine.submit_seeds`."""
    return default_engine().submit_seeds(dataset, algorithm, seeds=seeds, owner=owner, **parameters)


def find_job(run_id: str, owner: str = "") -> Job | None:
    """The job of a run that runs or ran lately, see :meth:`Engine.find`; a finished run is in the store for longer."""
    return default_engine().find(run_id, owner)
