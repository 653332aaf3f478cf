"""A training that several onlookers move on in short slices: it runs while somebody looks, and waits otherwise."""

from __future__ import annotations

import threading
import time

from .learning import PointProgress, PointTraining


class Sliced:
    """One training, shared. Whoever calls :meth:`advance` moves it on for all; nobody waits for another."""

    def __init__(self, training: PointTraining) -> None:
        """Begin with the first sign of life, so that there is always one."""
        self._training, self._turn = training, threading.Lock()
        self.latest: PointProgress = next(training)
        self.seconds = 0.0  # that it has computed so far

    @property
    def done(self) -> bool:
        """Whether the last step is done."""
        return self.latest.step >= self.latest.total

    def advance(self, seconds: float) -> PointProgress:
        """Train for about so many seconds, to the next sign of life; where another thread is at it, return at once."""
        if self.done or not self._turn.acquire(blocking=False):
            return self.latest
        began = time.perf_counter()
        try:
            while not self.done and time.perf_counter() - began < seconds:
                self.latest = next(self._training)
        finally:
            self.seconds += time.perf_counter() - began
            self._turn.release()
        return self.latest
