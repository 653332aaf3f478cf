"""A log of one's own: say which field means what, see the first episode as it would look, read it."""

from typing import Any

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.importers import first_values
from offrl_core.importers.step_guess import guess_mapping
from offrl_core.importers.step_leaks import leaks_in
from offrl_core.importers.step_mapping import StepMapping, fingerprint
from offrl_core.importers.step_table import preview
from pages._ui import layout, loading, mapping_form, mappings, navigation, report, work

NOTEBOOK = """import offrl_core as orl

mapping = orl.StepMapping.from_json(open("mapping.json").read())
log = orl.read_traces("log.jsonl", mapping=mapping)"""
COLUMNS = ("episode_id", "t", "task", "state_text", "state", "action", "arguments", "tool_result", "error", "reward")
ENDS = ("terminal", "timeout")


@st.cache_data(show_spinner="Looking at the first records…", max_entries=8)
def looked_at(ids: tuple[str, ...], _upload: loading.Upload) -> list[Any]:
    """Values of the first records of an upload."""
    return first_values(_upload.contents())


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
    saved, gone = mappings.load(values)
    guess = guess_mapping(values)
    st.caption(
        f"{layout.plain(', '.join(upload.names), 200)}: the first {len(values):,} records were looked at. "
        + (
            f"A mapping was saved for logs with these fields.{mappings.without(gone)}"
            if saved
            else "This is a guess; hover a title for its reason."
        )
    )
    if not upload.error and upload.mapping is None and upload.format != "step_table":
        known = work.chosen_log().report.format
        if known not in ("", "step_table"):
            title = layout.plain(report.format_title(known))
            st.info(f"These files were read as {title}, a known format: you need no mapping, but can make one.")
    mapping = mapping_form.render(values, saved or guess, f"w:map:{fingerprint(values)}")
    for leak in leaks_in(values, mapping):
        layout.error(leak.sentence)
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
