"""What a learner reported, in bounded memory: key frames, and evenly spaced signs of life in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from .interfaces import Progress

MAX_POINTS = 4000  # signs of life that are kept, beside key frames
MAX_FRAMES = 100  # key frames that are kept; learners give at most 60


def is_key_frame(progress: Progress) -> bool:
    """Whether a sign of life carries a table of values or of the policy."""
    return progress.q_values is not None or progress.probabilities is not None


class Event(NamedTuple):
    """A sign of life with its number, counted from 1 over everything that the learner reported."""

    number: int
    progress: Progress


class History:
    """Signs of life of one training.

    Above ``MAX_POINTS`` only every second one is kept, then every fourth, and so on. What is kept depends on the numbers
    alone, so a training that ran in slices has the same history as one that ran through.
    """

    def __init__(self, n_seen: int = 0, n_frames: int = 0) -> None:
        """Begin, or go on behind ``n_seen`` signs of life of which ``n_frames`` were key frames."""
        self.n_seen, self.n_frames = n_seen, n_frames
        self._kept: list[Event] = []

    def append(self, progress: Progress) -> None:
        """Take one in. The learner's state stays with the learner: it is overwritten as soon as it goes on."""
        self.n_seen += 1
        if progress.state is not None:
            progress = replace(progress, state=None)
        if is_key_frame(progress):
            self.n_frames += 1
            if self.n_frames > MAX_FRAMES:
                progress = replace(progress, q_values=None, probabilities=None)
        self._kept.append(Event(self.n_seen, progress))
        if len(self._kept) > 2 * MAX_POINTS:
            self._thin()

    def extend(self, events: Iterable[Event], n_seen: int, n_frames: int) -> None:
        """Take in what another history, begun where this one ends, has kept."""
        self._kept.extend(events)
        self.n_seen, self.n_frames = n_seen, n_frames
        self._thin()

    def events(self, since: int = 0) -> tuple[Event, ...]:
        """What is kept of everything after number ``since``, the last one always."""
        self._thin()
        return tuple(event for event in self._kept if event.number > since)

    def _thin(self) -> None:
        if self.n_seen <= MAX_POINTS:
            return
        stride = 1
        while self.n_seen // stride > MAX_POINTS:
            stride *= 2
        self._kept = [
            event
            for event in self._kept
            if event.number % stride == 0 or is_key_frame(event.progress) or event.number == self.n_seen
        ]
