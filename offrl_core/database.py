"""One DuckDB in memory for the whole process, and a database of its own in it for every log.

Opening a DuckDB costs some twenty milliseconds, attaching another database to one a third of a millisecond. Each
connection runs in the thread that asks (``threads`` is 1): sums are then added in one order, so that a run repeats bit
for bit, and thirty visitors share two cores fairly.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from functools import cache

import duckdb

_numbers = itertools.count(1)
_dropped: deque[str] = deque()  # names of databases whose owner is gone
_opening = threading.Lock()


@cache
def _instance() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": "1", "autoinstall_known_extensions": "false"})


class Database:
    """An empty database in memory, gone with its last reference."""

    def __init__(self) -> None:
        """Attach it, and detach those that nobody holds any more."""
        self._name = f"log_{next(_numbers)}"
        with _opening:
            root = _instance().cursor()
        # Not detached by the finalizer itself: that may run at any point, also while this thread is inside DuckDB.
        while _dropped:
            root.execute(f"DETACH DATABASE IF EXISTS {_dropped.popleft()}")
        root.execute(f"ATTACH ':memory:' AS {self._name}")
        weakref.finalize(self, _dropped.append, self._name)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of one's own to this database; safe to use beside others."""
        cursor = _instance().cursor()
        cursor.execute(f"USE {self._name}")
        return cursor
