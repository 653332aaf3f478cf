"""The framings that were looked at in this session, to go back and forth between; a link carries the current one only."""

from __future__ import annotations

from typing import Any

import streamlit as st

from offrl_core.framing_choices import FramingChoices

from . import state, work

HISTORY = "w:framing_history"


def _history() -> dict[str, Any]:
    return st.session_state.setdefault(HISTORY, {"log": "", "links": [], "at": -1})


def previous(now: work.Current) -> FramingChoices | None:
    """Note the framing on screen, and return the one before it on the same log."""
    history, link = _history(), now.framing.link
    if history["log"] != now.log.fingerprint:
        history.update(log=now.log.fingerprint, links=[link], at=0)
    elif history["links"][history["at"]] != link:
        history["links"] = [*history["links"][: history["at"] + 1], link]
        history["at"] += 1
    return FramingChoices.from_link(history["links"][history["at"] - 1]) if history["at"] > 0 else None


def choose(choices: FramingChoices) -> None:
    """Make a framing the current one; places that belong to the old one are forgotten."""
    state.forget_place()
    state.put("framing", choices.link)


def _go(at: int) -> None:
    history = _history()
    history["at"] = at
    choose(FramingChoices.from_link(history["links"][history["at"]]))


def render_buttons() -> None:
    """Undo and Redo."""
    history = _history()
    at, n = history["at"], len(history["links"])
    st.button("Undo", icon=":material/undo:", disabled=at < 1, on_click=_go, args=(at - 1,), key="w:framing_undo")
    st.button("Redo", icon=":material/redo:", disabled=at > n - 2, on_click=_go, args=(at + 1,), key="w:framing_redo")
    st.caption(f"Framing {at + 1} of {n} in this session", width="content")
