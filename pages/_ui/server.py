"""What many visitors at once need of the one server they share."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator

import streamlit as st

TURN_SECONDS = 0.1  # of a run, which most don't need; a longer one goes on beside the others
PATIENCE_SECONDS = 1.0  # of a run that waits

_INTERNET = (socket.AF_INET, socket.AF_INET6)
_MOST_SOCKETS = 1024  # the listening ones are among the first


class Turns:
    """Runs of pages one after the other, as long as they are short.

    Python computes in one thread at a time, and a run hands over hundreds of times, with each message it sends. Ten runs at
    once therefore take far longer than ten in a row: with fifty visitors, the slowest twentieth of the answers took
    0.3 to 0.7 s side by side, and 0.1 s in turns.
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        self._left = threading.Condition()
        self._ends = 0.0  # when the turn that is going on ends at the latest

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a turn, but not for ever, and have it."""
        until = time.monotonic() + PATIENCE_SECONDS
        with self._left:
            while (wait := min(self._ends, until) - time.monotonic()) > 0:
                self._left.wait(wait)
            self._ends = mine = time.monotonic() + TURN_SECONDS
        try:
            yield
        finally:
            with self._left:
                if self._ends == mine:
                    self._ends = 0.0
                self._left.notify()


@st.cache_resource(show_spinner=False)
def _turns() -> Turns:
    return Turns()


def turn() -> contextlib.AbstractContextManager[None]:
    """Around a run of a page."""
    return _turns().one()


@st.cache_resource(show_spinner=False)
def send_at_once() -> bool:
    """Once: switch off Nagle's algorithm (RFC 896) for the connections that are there and all that come.

    A run sends a small message and then the page. With that algorithm the page waits until the browser has acknowledged the
    message, 40 ms or more; asyncio would switch it off, but doesn't recognise the socket on which Streamlit listens.
    """
    for connection in _sockets():
        if connection.type == socket.SOCK_STREAM and connection.family in _INTERNET:
            with contextlib.suppress(OSError):  # closed meanwhile
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
    return True


def _sockets() -> Iterator[socket.socket]:
    """The sockets of this process, each lent for the moment."""
    for descriptor in range(_MOST_SOCKETS):
        with contextlib.suppress(OSError):  # not open, or closed meanwhile
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                lent = socket.socket(fileno=descriptor)
                try:
                    yield lent
                finally:
                    lent.detach()
