"""A job as its owner sees it, and the task behind it, which several owners may share."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from ..errors import JobCancelled, JobFailed
from ..history import Event, History
from ..interfaces import Progress, TrainedModel
from .worker import Work

JobState = Literal["queued", "running", "succeeded", "cancelled", "failed"]
FINAL: frozenset[JobState] = frozenset({"succeeded", "cancelled", "failed"})


@dataclass(slots=True, eq=False)
class Task:
    """One run that is computed, shared by all who asked for it. Changed by the engine alone, under its lock.

    Attributes:
        run_id: what it computes.
        content: see :func:`offrl_core.training.run_content`.
        work: what the worker needs; None for a run that was stored already.
        owners: who wants it.
        state: see :class:`Job`.
        history: what was reported.
        checkpoint: the last state that a slice ended in; a stopped task keeps it for who asks for the run again.
        alone: whether it is kept out of batches: something went wrong in one, or it ended before the others.
        strikes: workers that died on it.
        stop_wanted: whether all owners have left.
        error: why it failed.
        note: what went wrong beside the result.
        model: the result.
        seconds_before: time that was spent on the run before it was stopped.
        began: when the first slice began, in the engine's clock.
        finished: when the state became final, in the same clock.
        ended: set once the state is final.
    """

    run_id: str
    content: Mapping[str, Any]
    work: Work | None = None
    owners: list[str] = field(default_factory=list)
    state: JobState = "queued"
    history: History = field(default_factory=History)
    checkpoint: bytes | None = None
    alone: bool = False
    strikes: int = 0
    stop_wanted: bool = False
    error: str = ""
    note: str = ""
    model: TrainedModel | None = None
    seconds_before: float = 0.0
    began: float | None = None
    finished: float | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def is_final(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in FINAL

    @property
    def seconds(self) -> float:
        """Time since the first turn, waiting between turns included."""
        if self.began is None:
            return self.seconds_before
        return self.seconds_before + (self.finished or time.monotonic()) - self.began

    @property
    def can_go_on(self) -> bool:
        """Whether it was stopped, and the run would go on from there if somebody asked for it again."""
        return self.state == "cancelled" and self.checkpoint is not None

    @property
    def step(self) -> int:
        """How far the latest sign of life was; 0 before the first."""
        latest = self.history.events(self.history.n_seen - 1)
        return latest[-1].progress.step if latest else 0

    def may_go_on_from(self, other: Task) -> bool:
        """Whether another task was stopped on the way to this one: the same run, or one that takes more or fewer steps."""
        return other.can_go_on and (
            other.run_id == self.run_id
            or (_but_for_steps(other.content) == _but_for_steps(self.content) and other.step < self.n_steps)
        )

    def go_on_from(self, stopped: Task) -> None:
        """Begin where another task was stopped, see :meth:`may_go_on_from`."""
        self.checkpoint, self.seconds_before = stopped.checkpoint, stopped.seconds
        before, events = stopped.history, stopped.history.events()
        if stopped.run_id != self.run_id:
            events = tuple(e._replace(progress=replace(e.progress, total=self.n_steps)) for e in events)
        self.history.extend(events, before.n_seen, before.n_frames)

    @property
    def n_steps(self) -> int:
        """Steps that the run takes at most; 0 where its learner doesn't count like that."""
        return int(self.content["config"].get("n_steps", 0))

    def goes_with(self, other: Task) -> bool:
        """Whether the next slice of both can be one computation: they differ in nothing but the seed, and stand side by side."""
        if self.alone or other.alone or self.work is None or other.work is None:
            return False
        return self.history.n_seen == other.history.n_seen and self.work.goes_with(other.work)

    def start_again(self) -> None:
        """Forget all progress: the learner can only begin anew, and nothing that a worker still holds of it counts."""
        self.checkpoint, self.history, self.seconds_before = None, History(), 0.0
        if self.work is not None:
            self.work = replace(self.work, key=self.new_key())

    @staticmethod
    def new_key() -> str:
        """A key that no other job has, see :class:`Work`."""
        return uuid.uuid4().hex


def _but_for_steps(content: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs have in common of which one is the beginning of the other."""
    return {**content, "config": {name: value for name, value in content["config"].items() if name != "n_steps"}}


class Desk(Protocol):
    """What a job asks of its engine."""

    def place(self, task: Task) -> int:
        """See :attr:`Job.place`."""

    def events(self, task: Task, since: int) -> tuple[Event, ...]:
        """See :meth:`Job.events`."""

    def stop(self, task: Task, owner: str) -> bool:
        """See :meth:`Job.stop`."""


class Job:
    """A training that runs beside the caller; made by :func:`offrl_core.submit`.

    Attributes:
        run_id: names the run, and finds it again: :func:`offrl_core.find_job` while it runs, :func:`offrl_core.load_run`
            ever after.
        owner: on whose behalf.
    """

    def __init__(self, engine: Desk, task: Task, owner: str) -> None:
        """Made by the engine."""
        self._engine, self._task = engine, task
        self.run_id, self.owner = task.run_id, owner

    @property
    def state(self) -> JobState:
        """``queued`` (before its first turn), ``running``, ``succeeded``, ``cancelled`` (has really stopped) or ``failed``."""
        return self._task.state

    @property
    def is_final(self) -> bool:
        """Whether the state won't change any more."""
        return self._task.is_final

    @property
    def place(self) -> int:
        """Place in the line: 1 is next; 0 once it had its first turn."""
        return self._engine.place(self._task)

    @property
    def error(self) -> str:
        """Why it failed, as a sentence; empty where it didn't."""
        return self._task.error

    @property
    def note(self) -> str:
        """What went wrong beside the result (it couldn't be stored, say); empty where nothing did."""
        return self._task.note

    def progress(self) -> Progress | None:
        """The latest sign of life, None before the first."""
        events = self.events(max(0, self._task.history.n_seen - 1))
        return events[-1].progress if events else None

    def events(self, since: int = 0) -> tuple[Event, ...]:
        """Signs of life after number ``since``; long histories are thinned, the latest is always there."""
        return self._engine.events(self._task, since)

    @property
    def seconds(self) -> float:
        """Time since its first turn, waiting between turns included; 0 before. Time before it was stopped counts, too."""
        return self._task.seconds

    @property
    def can_go_on(self) -> bool:
        """Whether it was stopped, and the run would go on from there if somebody asked for it again."""
        return self._task.can_go_on

    @property
    def seconds_left(self) -> float | None:
        """Time it will take at the pace so far, at most: many learners settle before their last step. None if unknown."""
        latest = self.progress()
        if self._task.is_final or latest is None or not latest.step:
            return None
        return self.seconds * (latest.total - latest.step) / latest.step

    @property
    def is_wanted_here(self) -> bool:
        """Whether its owner is among those who asked for the run; who only looks on can't stop it."""
        return self.owner in self._task.owners

    def stop(self) -> bool:
        """Ask to stop, and return at once. False where it goes on, as others asked for the same run (or it has ended).

        Who asks for the run again finds it where it was stopped, as long as the engine remembers: see :attr:`can_go_on`.
        """
        return self._engine.stop(self._task, self.owner)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the state is final; False where that takes longer than ``timeout`` seconds."""
        return self._task.ended.wait(timeout)

    def result(self, timeout: float | None = None) -> TrainedModel:
        """The trained model, equal to what :func:`offrl_core.train` gives.

        Raises:
            TimeoutError: it takes longer than ``timeout`` seconds.
            JobCancelled: it was stopped.
            JobFailed: it failed; the sentence says why.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"The job {self.run_id} is {self.state} and not done after {timeout:g} s.")
        if self.state == "cancelled":
            raise JobCancelled(f"The job {self.run_id} was stopped.")
        if self._task.model is None:
            raise JobFailed(self.error)
        return self._task.model

    def __repr__(self) -> str:
        """State and step."""
        latest = self.progress()
        at = f", step {latest.step:,} of {latest.total:,}" if latest else ""
        return f"Job({self.run_id}, {self.state}{at})"
