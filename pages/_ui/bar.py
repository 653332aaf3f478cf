"""The bar above every page: which log, what was taken away from it, what is left, and the link to all that."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from offrl_core.wording import counted

from . import layout, parameters, state, work


def render_bar() -> DeltaGenerator:
    """Draw the bar and every warning that concerns all pages; returns the place for the link."""
    parameters.check_parameters()
    now = work.current()  # before the warnings, because both may add some
    for warning in state.take_warnings():
        layout.warning(warning, icon=":material/link_off:")
    with st.container(border=True, key="bar"), st.container(horizontal=True, vertical_alignment="center"):
        options = work.log_titles()
        st.selectbox(
            "Log",
            list(options),
            # Where the browser makes this widget anew, as a slow one does on the way to another page, it begins with this.
            index=list(options).index(state.get("data")),
            format_func=lambda name: options.get(name, name),
            key=state.widget_key("data"),
            on_change=_take_log,
            width=340,
            help="What the agent did. Two bundled logs of the same calculator agent: in one it uses all its tools, in the other "
            "it never calls mul. Or one you generate, or trace files you load on the Data page.",
        )
        _render_chips(now)
        place_of_link = st.container(width="content")
    if now.problem:
        layout.error(now.problem)
    return place_of_link


def _take_log() -> None:
    state.take("data")
    state.forget_place()


def _render_chips(now: work.Current) -> None:
    dataset = now.dataset
    with st.container(horizontal=True, vertical_alignment="center", key="chips", width="stretch"):
        for i, edit in enumerate(now.edits):
            change = ""
            if dataset is not None:
                before, after = dataset.stages[i], dataset.stages[i + 1]
                lost = before.n_steps - after.n_steps
                change = f" (−{counted(lost, 'step')})" if lost else ""
            st.button(
                f"{layout.plain(edit.sentence.rstrip('.'), 60)}{change}",
                key=f"w:chip:{i}:{edit.token}",
                icon=":material/close:",
                help=f"{layout.plain(edit.sentence, 500)} Click to undo this edit.",
                on_click=work.remove_edit,
                args=(i, edit),
            )
        if dataset is not None:
            first, last = dataset.stages[0], dataset.stages[-1]
            left = (
                f"**{last.n_steps:,}** of {first.n_steps:,} steps"
                if now.edits
                else f"**{last.n_steps:,}** step{'' if last.n_steps == 1 else 's'}"
            )
            pairs = f"{int((dataset.support_mask() & dataset.valid_mask).sum()):,} of {int(dataset.valid_mask.sum()):,}"
            known = "valid " if dataset.validity_known else ""
            st.caption(
                f"{left} · {counted(last.n_episodes, 'episode')} · {pairs} {known}state-action pairs seen in its states"
            )


def render_link(place: DeltaGenerator) -> None:
    """Draw the link, after the page: what was clicked there belongs into it."""
    with place, st.popover("Link", icon=":material/link:", help="A link that reproduces what you see."):
        st.caption("Every choice is in this link, so it shows the same page to others and next year.")
        st.code(state.full_link(), language=None, wrap_lines=True)
        if work.is_loaded():
            st.caption(
                "Trace files don't travel in a link, only their names: whoever opens it loads the same files on the Data page, "
                "and then all of it counts. The same goes for files of rewards."
            )
