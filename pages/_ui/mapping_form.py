"""The form of the page Mapping: a field for each role, and the fields of the state."""

from __future__ import annotations

from typing import Any

import streamlit as st

from offrl_core.importers.step_guess import fields_of, lists_of_steps
from offrl_core.importers.step_leaks import NEVER_IN_A_STATE
from offrl_core.importers.step_mapping import SIDE_BY_SIDE, StepMapping

from . import layout, mappings

NONE = ""


def render(values: list[Any], given: StepMapping, key: str) -> StepMapping:
    """A choice of field for each role, beginning with the given ones."""
    lists = lists_of_steps(values)
    where = st.selectbox(
        "Where the steps are",
        list(dict.fromkeys([given.steps or NONE, NONE, *lists, SIDE_BY_SIDE])),
        format_func=lambda name: {
            NONE: "each record is one step",
            SIDE_BY_SIDE: "one list per field, side by side",
        }.get(name, f"in the list {name} of each record"),
        key=f"{key}:steps",
        width=420,
    )
    steps = where or None
    found = {item.path: item for item in fields_of(values, steps)}
    reasons = {why.role: f"{why.reason} ({why.confidence:.0%} sure)" for why in given.why if steps == given.steps}
    of_state = f"{key}:{where}:state"
    st.session_state.setdefault(of_state, list(given.state) if steps == given.steps else [])
    chosen: dict[str, str | None] = {}
    cells = (cell for _ in range(0, len(mappings.ROLES), 4) for cell in st.columns(4))  # row by row, also on a phone
    for cell, (role, (title, purpose)) in zip(cells, mappings.ROLES.items(), strict=False):
        guess = getattr(given, role) if steps == given.steps else None
        with cell:
            chosen[role] = (
                st.selectbox(
                    title,
                    list(dict.fromkeys([NONE, *([guess] if guess else []), *found])),
                    index=1 if guess else 0,
                    format_func=lambda path: _field_title(path, found),
                    key=f"{key}:{where}:{role}",
                    on_change=_leave_the_state if role in NEVER_IN_A_STATE else None,
                    args=(f"{key}:{where}:{role}", of_state) if role in NEVER_IN_A_STATE else None,
                    help=f"{purpose}. {layout.plain(reasons.get(role, ''), 300)}",
                )
                or None
            )
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    with left:
        state = st.multiselect(
            "State: what the agent saw before it acted",
            list(dict.fromkeys([*given.state, *found])),
            format_func=lambda path: _field_title(path, found),
            key=of_state,
            help="Numbers are put into bins for the tables of learners. Only what was known before the action belongs here.",
        )
    with right:
        at_end = st.checkbox(
            "Reward repeats the outcome",
            value=given.reward_at_end,
            key=f"{key}:{where}:at_end",
            help="The field holds the outcome of the whole episode on each of its rows; it counts once, on the last one.",
        )
    return StepMapping(**chosen, steps=steps, state=tuple(state), reward_at_end=at_end)


def _field_title(path: str, found: dict[str, Any]) -> str:
    """A field with an example of what it holds."""
    if not path:
        return "—"
    example = next((str(value) for value in found[path].values), "") if path in found else ""
    return f"{path}  ({example[:24]})" if example else path


def _leave_the_state(of_role: str, of_state: str) -> None:
    """Callback: a field that got a role which is known only after the action leaves the state, and so do its parts."""
    taken = st.session_state[of_role]
    kept = [path for path in st.session_state[of_state] if path != taken and not path.startswith(f"{taken}.")]
    st.session_state[of_state] = kept
