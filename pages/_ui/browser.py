"""Who is here: a browser, which is recognised after a reload of the page, and the logs that are kept for it meanwhile."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
import uuid
from typing import Any, NamedTuple

import streamlit as st

from offrl_core.log import Log

COOKIE = "_streamlit_xsrf"
KEPT_SECONDS = 1800.0  # after the last look
MOST_KEPT = 12  # logs of all browsers together


def identity() -> str:
    """Who asks: this browser, also after a reload; where it can't be recognised, this session."""
    if "w:identity" not in st.session_state:
        st.session_state["w:identity"] = _recognised() or uuid.uuid4().hex
    return st.session_state["w:identity"]


def _recognised() -> str:
    """What stays the same of the cookie by which Streamlit knows a browser: version|mask|masked number|time, with a new mask
    in each answer. Empty where there is none, or its form has changed.
    """
    try:
        _, mask, masked, _ = _cookie().strip('"').split("|")
        pairs = zip(bytes.fromhex(masked), itertools.cycle(bytes.fromhex(mask)), strict=False)
        return hashlib.sha256(bytes(number ^ mask for number, mask in pairs)).hexdigest() if masked else ""
    except ValueError:
        return ""


def _cookie() -> str:
    return st.context.cookies.get(COOKIE, "")


class Kept(NamedTuple):
    """A log, when it was looked at last, and the files it was read from, as whoever brought it holds them."""

    looked: float
    log: Log
    files: Any


class Cloakroom:
    """Logs by owner and fingerprint, for a while; the ones that nobody looked at for longest go first."""

    def __init__(self) -> None:
        """Empty."""
        self._lock = threading.Lock()
        self._logs: dict[tuple[str, str], Kept] = {}  # the latest look last

    def keep(self, owner: str, log: Log, files: Any = None) -> None:
        """Keep a log, or keep it for longer; files that are kept with it stay with it."""
        key = (owner, log.fingerprint)
        with self._lock:
            before = self._logs.pop(key, None)
            self._logs[key] = Kept(time.monotonic(), log, files or (before and before.files))
            self._tidy()

    def find(self, owner: str, fingerprint: str) -> Kept | None:
        """What is still kept for this owner."""
        with self._lock:
            self._tidy()
            return self._logs.get((owner, fingerprint))

    def _tidy(self) -> None:
        now = time.monotonic()
        for key, kept in list(self._logs.items()):
            if now - kept.looked > KEPT_SECONDS or len(self._logs) > MOST_KEPT:
                del self._logs[key]


@st.cache_resource(show_spinner=False)
def cloakroom() -> Cloakroom:
    """That of this server."""
    return Cloakroom()


def keep(log: Log, files: Any = None) -> None:
    """Keep a log of this visitor for a page that is loaded anew; without a cookie nobody could claim it."""
    if _recognised():
        cloakroom().keep(identity(), log, files)


def kept(fingerprint: str) -> Kept | None:
    """A log that this browser brought before its page was loaded anew, and its files."""
    return cloakroom().find(identity(), fingerprint)
