"""The engine as callers see it: submit a run, find it, look on, stop it.

Behind it stand the book (:mod:`.book`: who wants what, and whose turn it is), the shelf (:mod:`.shelf`: datasets as files) and
the foreman (:mod:`.foreman`: one thread that gives slices to worker processes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..algorithms import algorithm_spec
from ..dataset import Dataset
from ..history import Event
from ..interfaces import AlgorithmSpec, TrainedModel
from ..params import check_seed, make_config
from ..runs import current_run, write_run
from ..training import id_of_content, named_model, run_content
from .book import Book
from .foreman import Foreman
from .job import Job, Task
from .limits import Limits
from .shelf import Shelf
from .slots import Slot, make_slots
from .worker import Work


class Engine:
    """Trainings beside the caller. Nothing starts before the first job; :meth:`close` leaves nothing behind."""

    def __init__(
        self,
        *,
        n_slots: int | None = None,
        slots: Callable[[int | None], Sequence[Slot]] = make_slots,
        runs: str | Path | None = None,
        shared: str | Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Say where slices run and where results go.

        Args:
            n_slots: how many trainings at once; by default all cores but one.
            slots: makes the slots.
            runs: where finished runs are stored, see :func:`offrl_core.runs.runs_directory`.
            shared: where datasets are written for workers; by default a temporary directory of this machine.
            limits: what is allowed; the defaults if not given.
        """
        limits = limits or Limits()
        self._runs = runs
        self._book = Book(limits)
        self._shelf = Shelf(shared, limits.dataset_bytes)
        self._foreman = Foreman(
            self._book,
            limits,
            make_slots=lambda: slots(n_slots),
            keep=self._keep,
            on_end=self._tidy,
            on_close=self._shelf.clear,
        )

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
        (job,) = self.submit_seeds(dataset, algorithm, seeds=[seed], owner=owner, **parameters)
        return job

    def submit_seeds(
        self, dataset: Dataset, algorithm: str, *, seeds: Sequence[int], owner: str = "", **parameters: Any
    ) -> list[Job]:
        """One job per seed, in their order. They enter the line together, so a learner that can trains them in one batch.

        Args, raises: as :meth:`submit`; none is started where there would be too many.
        """
        spec = algorithm_spec(algorithm)
        config = make_config(spec.config_class, parameters, algorithm)
        tasks = [self._task(dataset, spec, config, seed, owner) for seed in [check_seed(seed) for seed in seeds]]
        with self._book.lock:  # the foreman sees all of them or none
            self._book.check_number(owner, sum(not task.is_final and owner not in task.owners for task in tasks))
            if not all(task.is_final for task in tasks):
                self._foreman.start()
            tasks = [self._book.enter(task, owner) for task in tasks]
        self._foreman.wake()
        return [Job(self, task, owner) for task in tasks]

    def find(self, run_id: str, owner: str = "") -> Job | None:
        """The job of a run, whoever asked for it, if it runs or ran lately. To look on is not to own: see :meth:`submit`."""
        task = self._book.find(run_id)
        return None if task is None else Job(self, task, owner)

    def jobs(self) -> list[Job]:
        """Every unfinished job, in the order of turns."""
        with self._book.lock:
            return [Job(self, task, task.owners[0] if task.owners else "") for task in self._book.line.jobs()]

    def place(self, task: Task) -> int:
        """See :attr:`Job.place`."""
        return self._book.place(task)

    def events(self, task: Task, since: int) -> tuple[Event, ...]:
        """See :meth:`Job.events`."""
        with self._book.lock:
            return task.history.events(since)

    def stop(self, task: Task, owner: str) -> bool:
        """See :meth:`Job.stop`."""
        wanted = self._book.leave(task, owner)
        self._foreman.wake()
        return wanted

    def close(self) -> None:
        """Kill all workers and cancel what isn't finished; the engine can't be used again."""
        self._foreman.close()

    def _task(self, dataset: Dataset, spec: AlgorithmSpec, config: Any, seed: int, owner: str) -> Task:
        """The task of a run: one that is under way, one that is done because the run is stored, or a new one."""
        content = run_content(dataset, spec.name, config, seed)
        run_id = id_of_content(content)
        joined = self._book.join(run_id, owner)
        if joined is not None:
            return joined
        model = current_run(run_id, self._runs)
        if model is not None:
            return _finished(run_id, content, model)
        self._book.check_number(owner, 1)
        path = self._shelf.put(dataset)
        work = Work(key=Task.new_key(), algorithm=spec, config=config, seed=seed, dataset=path)
        return Task(run_id=run_id, content=content, work=work)

    def _keep(self, task: Task, model: TrainedModel) -> None:
        """Give a task its result, and store it."""
        assert task.work is not None
        work = task.work
        task.model = named_model(model, work.algorithm.name, work.config, work.seed, task.history)
        try:
            write_run(task.model, task.content, self._runs)
        except (OSError, ValueError, TypeError) as error:
            task.note = f"The run couldn't be stored and will be gone when the server stops: {error}"

    def _tidy(self) -> None:
        with self._book.lock:
            needed = [task.work.dataset for task in self._book.line.jobs() if task.work]
        self._shelf.tidy(needed)


def _finished(run_id: str, content: Any, model: TrainedModel) -> Task:
    task = Task(run_id=run_id, content=content, state="succeeded", model=model)
    for progress in model.history:
        task.history.append(progress)
    task.ended.set()
    return task
