"""A log of one's own: say which field means what, see the first episode as it would look, read it."""

from typing import Any

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.importers import first_values
from offrl_core.importers.step_guess import fields_of, guess_mapping, lists_of_steps
from offrl_core.importers.step_mapping import SIDE_BY_SIDE, StepMapping, fingerprint
from offrl_core.importers.step_table import preview
from pages._ui import layout, loading, mappings, navigation, work

NONE = ""
NOTEBOOK = """import offrl_core as orl

mapping = orl.StepMapping.from_json(open("mapping.json").read())
log = orl.read_traces("log.jsonl", mapping=mapping)"""
COLUMNS = ("episode_id", "t", "task", "state_text", "state", "action", "arguments", "tool_result", "error", "reward")
ENDS = ("terminal", "timeout")


@st.cache_data(show_spinner="Looking at the first records…", max_entries=8)
def looked_at(ids: tuple[str, ...], _upload: loading.Upload) -> list[Any]:
    """Values of the first records of an upload."""
    return first_values(_upload.contents())


def render_mapping(values: list[Any], given: StepMapping, key: str) -> StepMapping:
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
                    format_func=lambda path: field_title(path, found),
                    key=f"{key}:{where}:{role}",
                    help=f"{purpose}. {layout.plain(reasons.get(role, ''), 300)}",
                )
                or None
            )
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    with left:
        state = st.multiselect(
            "State: what the agent saw before it acted",
            list(dict.fromkeys([*given.state, *found])),
            default=list(given.state) if steps == given.steps else [],
            format_func=lambda path: field_title(path, found),
            key=f"{key}:{where}:state",
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


def field_title(path: str, found: dict[str, Any]) -> str:
    """A field with an example of what it holds."""
    if not path:
        return "—"
    example = next((str(value) for value in found[path].values), "") if path in found else ""
    return f"{path}  ({example[:24]})" if example else path


def render_preview(values: list[Any], mapping: StepMapping) -> bool:
    """The first episode as it would look; whether any step can be read."""
    st.markdown("##### The first episode, read this way")
    try:
        rows = preview(values, mapping)
    except orl.OffRLError as error:
        layout.error(error)
        return False
    if not rows:
        st.info("No step can be read this way. Choose another place for the steps, or another action.")
        return False
    table = pd.DataFrame(rows)
    table = table[[name for name in (*COLUMNS, *ENDS) if name in table and table[name].notna().any()]]
    st.dataframe(table.head(50), hide_index=True)
    if len(table) > 50:
        st.caption(f"The first 50 of {len(table):,} steps among the first records.")
    return True


def render_outcome(upload: loading.Upload) -> None:
    """What reading by a mapping gave."""
    if upload.mapping is None:
        return
    if upload.error:
        layout.error(upload.error)
        return
    st.success(layout.plain(work.chosen_log().report.sentence()), icon=":material/check:")
    st.page_link("pages/data.py", label="Open Data", icon=":material/database:")


def render_page(upload: loading.Upload) -> None:
    """Mapping, preview, and the button that reads all files."""
    loading.read_if_asked(upload)
    values = looked_at(upload.ids, upload)
    if not any(isinstance(value, dict) for value in values):
        layout.error(upload.error or "These files hold no records with fields, so there is nothing to map.")
        return
    saved = mappings.load(fingerprint(values))
    guess = guess_mapping(values)
    st.caption(
        f"{layout.plain(', '.join(upload.names), 200)}: the first {len(values):,} records were looked at. "
        + (
            "A mapping was saved for logs with these fields."
            if saved
            else "This is a guess; hover a title for its reason."
        )
    )
    if not upload.error and upload.mapping is None and upload.format != "step_table":
        known = work.chosen_log().report.format
        if known not in ("", "step_table"):
            st.info(
                f"These files were read as {layout.plain(known)}, a known format: you need no mapping, but can make one."
            )
    mapping = render_mapping(values, saved or guess, f"w:map:{fingerprint(values)}")
    readable = render_preview(values, mapping)
    with st.container(horizontal=True):
        st.button(
            "Read the files with this mapping",
            type="primary",
            icon=":material/check:",
            on_click=loading.read_by_mapping,
            args=(mapping, values),
            disabled=not readable,
        )
        st.download_button(
            "Download this mapping", mapping.to_json(), "mapping.json", "application/json", icon=":material/download:"
        )
    render_outcome(upload)
    st.caption("A mapping that was used is found again for the next file with the same fields. In a notebook: ")
    st.code(NOTEBOOK, language="python")


navigation.require_app()
st.title("Mapping")
st.markdown("Your log has its own field names? Say which one means what; the first episode shows how it would be read.")
upload = loading.current_upload()
if upload is None:
    st.info("Load a file on the Data page first; this page then shows its fields.", icon=":material/upload_file:")
    st.page_link("pages/data.py", label="Open Data", icon=":material/database:")
else:
    render_page(upload)
