"""Python's collector of cycles, at rest while much is built that holds none.

Parsed JSON, messages and rows are trees. Nevertheless the collector would go through all of them, and through every
module that is loaded, again and again: up to half of the time of a read.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_n_asleep = 0  # how many ask for it at the moment; the collector serves all threads
_was_enabled = True


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Let the collector rest until the last one who asked for it is done. Memory without cycles is freed as ever."""
    global _n_asleep, _was_enabled  # noqa: PLW0603  # as the collector itself is one for the whole process
    with _lock:
        if not _n_asleep:
            _was_enabled = gc.isenabled()
            gc.disable()
        _n_asleep += 1
    try:
        yield
    finally:
        with _lock:
            _n_asleep -= 1
            if not _n_asleep and _was_enabled:
                gc.enable()
