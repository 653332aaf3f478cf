"""A log made here: a world, the agent that acts in it, and for the calculator agent its dials."""

from __future__ import annotations

from typing import Any

import streamlit as st

from offrl_core.worlds import WORLDS

from . import layout, state, work


def take_generated() -> None:
    """Callback: any turn of a dial shows the generated log."""
    for dial in ("world", "behavior", "right", "random", "action", "episodes", "seed"):
        if f"w:gen_{dial}" in st.session_state:
            state.take(f"gen_{dial}")
    skips = {task: st.session_state.get(f"w:skip_{task}", 0.0) for task in WORLDS["calculator"].tasks}
    if any(f"w:skip_{task}" in st.session_state for task in skips):
        state.put("gen_skip", ",".join(f"{task}={p:g}" for task, p in skips.items() if p > 0))
    if WORLDS[state.get("gen_world")].missing and state.get("data") != work.GENERATED:
        return  # there is no such log, so the one on screen stays
    state.put("data", work.GENERATED)
    state.forget_place()


def render_dials() -> None:
    """World, agent, size and seed."""
    spec = WORLDS[state.get("gen_world")]
    dials: dict[str, Any] = {"on_change": take_generated}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "World",
            list(WORLDS),
            format_func=lambda name: WORLDS[name].title + (" (needs a package)" if WORLDS[name].missing else ""),
            key=state.widget_key("gen_world"),
            width=300,
            help="Where the agent acts. Its truth is known exactly. " + spec.summary,
            **dials,
        )
        st.number_input("Episodes", 1, 100_000, key=state.widget_key("gen_episodes"), width=160, **dials)
        st.number_input("Seed", 0, 2**31, key=state.widget_key("gen_seed"), width=160, **dials)
        if state.get("data") != work.GENERATED and not spec.missing:  # else it is on screen, or can't be made
            st.button("Make this log", icon=":material/casino:", on_click=take_generated, type="primary")
    st.caption(spec.summary)
    if spec.missing:
        layout.warning(spec.missing, icon=":material/deployed_code:")
    elif state.get("gen_world") == "calculator":
        _render_calculator(dials)
    else:
        _render_agents(dials)


def _render_agents(dials: dict[str, Any]) -> None:
    """Which of the world's agents writes the log."""
    agents = WORLDS[state.get("gen_world")].behaviors
    if state.get("gen_behavior") not in agents:
        state.put("gen_behavior", "logger")
    st.selectbox(
        "The agent that writes the log (behavior policy)",
        list(agents),
        format_func=lambda name: agents[name].title,
        key=state.widget_key("gen_behavior"),
        width=480,
        **dials,
    )


def _render_calculator(dials: dict[str, Any]) -> None:
    """The dials of the calculator agent."""
    left, right = st.columns(2, gap="large")
    with left:
        st.slider(
            "Picks the right operation on purpose", 0.0, 1.0, step=0.01, key=state.widget_key("gen_right"), **dials
        )
        st.slider(
            "Acts at random ε",
            0.0,
            1.0,
            step=0.01,
            key=state.widget_key("gen_random"),
            help="1 is the uniform random policy.",
            **dials,
        )
    with right:
        st.selectbox("Leaves out the tool", ("add", "sub", "mul"), key=state.widget_key("gen_action"), **dials)
        skips = work.read_skips(state.get("gen_skip"))
        for task in WORLDS["calculator"].tasks:
            state.set_widget(f"w:skip_{task}", skips.get(task, 0.0))
            st.slider(
                f"…on {task} tasks, in this share of choices",
                0.0,
                1.0,
                step=0.05,
                key=f"w:skip_{task}",
                help="1: the log never shows the tool on this task. Episodes stay whole.",
                **dials,
            )
