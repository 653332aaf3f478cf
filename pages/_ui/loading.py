"""From dropped files to a log of this session: files wait on disk, not in memory, so that they can be read another way."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import streamlit as st

import offrl_core as orl
from offrl_core.errors import UnknownFormat
from offrl_core.importers import first_values
from offrl_core.importers.step_mapping import StepMapping
from offrl_core.temporary import no_room, temporary_directory

from . import browser, layout, mappings, state, work

UPLOAD = "w:upload"  # session key of the upload that was taken last
BY_CONTENT = ""


@dataclass(slots=True)
class Upload:
    """Files that were dropped together, and what became of them."""

    ids: tuple[str, ...]
    names: tuple[str, ...]
    folder: tempfile.TemporaryDirectory = field(repr=False)
    format: str = BY_CONTENT
    mapping: StepMapping | None = None
    gone: tuple[str, ...] = ()  # fields that a saved mapping had in the state, where they don't belong
    error: str = ""
    is_unknown: bool = False  # no format fits, but its records have fields that can be mapped
    is_read: bool = False

    def contents(self) -> list[tuple[str, bytes]]:
        """Name and content of each file."""
        return [(name, (Path(self.folder.name) / str(i)).read_bytes()) for i, name in enumerate(self.names)]


def current_upload() -> Upload | None:
    """The upload that was taken last; when the page was loaded anew since, that of the log on screen."""
    if UPLOAD not in st.session_state and (kept := work.kept_files()):
        st.session_state[UPLOAD] = replace(kept)
    return st.session_state.get(UPLOAD)


def render_upload() -> None:
    """Drop files; those dropped together become one log, which is then shown."""
    st.caption(
        "Files dropped together become one log, kept on this server for this browser, also if you reload the page: until about "
        "half an hour after your last look, or less where many bring files. The link at the top of the page lasts: it holds your "
        "choices and names the files, which you then drop again."
    )
    files = st.file_uploader(
        "Trace files of your agent",
        accept_multiple_files=True,
        key="w:files",
        help="Recognised by content, never by name: JSON, JSON lines, CSV, Parquet, HDF5, text; .gz, .zst, .zip and .tar of "
        f"them; up to 200 MB. Texts in them are shown as text only. Formats: {_formats()}.",
    )
    ids = tuple(file.file_id for file in files)
    upload = current_upload()
    if files and (upload is None or upload.ids != ids):
        try:
            upload = st.session_state[UPLOAD] = _spilled(files, ids)
        except orl.OffRLError as error:
            layout.error(error)
            return
    if upload is not None:
        read_if_asked(upload)
        _render_result(upload)
    elif work.is_loaded():
        st.caption(
            ":material/info: The files of the log on screen are no longer here, only what was read from them. Drop them again to "
            "read them as another format."
        )


def _formats() -> str:
    return "; ".join(spec.title for spec in orl.IMPORTERS.values())


def _spilled(files: Sequence[Any], ids: tuple[str, ...]) -> Upload:
    folder = temporary_directory("upload")
    try:
        for i, file in enumerate(files):
            (Path(folder.name) / str(i)).write_bytes(file.getbuffer())
    except OSError as error:
        raise no_room(error) from error
    return Upload(ids, tuple(file.name for file in files), folder)


def read_if_asked(upload: Upload) -> None:
    """Read an upload that waits for it, and start over: the bar above already drew the log before."""
    if not upload.is_read:
        _read(upload)
        st.rerun()


def _read(upload: Upload) -> None:
    """Read an upload as it says; a log of one's own is read by the mapping that was saved for logs that look like it."""
    contents = upload.contents()
    if upload.mapping is None and upload.format in (BY_CONTENT, "step_table") and mappings.any_saved():
        upload.mapping, upload.gone = mappings.load(first_values(contents))
    upload.is_read, upload.error, upload.is_unknown = True, "", False
    bar = st.progress(0.0, text=f"Reading {layout.plain(', '.join(upload.names), 80)}")
    try:
        log = orl.read_traces(
            contents=contents,
            format=upload.format or None,
            mapping=upload.mapping,
            progress=lambda done: bar.progress(min(done, 1.0)),
        )
    except orl.OffRLError as error:
        upload.error, upload.is_unknown = str(error), isinstance(error, UnknownFormat)
        return
    finally:
        bar.empty()
    work.show_log(log)
    browser.keep(log, replace(upload))  # a copy: other tabs of this browser may read the same files another way


def read_by_mapping(mapping: StepMapping, values: Sequence[Any]) -> None:
    """Callback: read the last upload by a mapping, and save the mapping for logs that look alike."""
    mappings.save(values, mapping)
    _read_again("step_table", mapping)


def _render_result(upload: Upload) -> None:
    """What it was taken for, the choice to take it for something else, and why it can't be read."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        state.set_widget("w:read_as", upload.format)
        st.selectbox(
            "Read as",
            [BY_CONTENT, *orl.IMPORTERS],
            format_func=lambda name: orl.IMPORTERS[name].title if name else "what its content looks like",
            key="w:read_as",
            on_change=_read_as,
            width=420,
            help="Overrides the recognition. The report below says what the content looked like, and why.",
        )
        if not upload.is_unknown:
            st.page_link("pages/mapping.py", label="Say yourself which field means what", icon=":material/schema:")
    if upload.mapping is not None:
        st.caption(
            ":material/schema: Read by the mapping that was saved for logs with these fields; see Mapping."
            + mappings.without(upload.gone)
        )
    if upload.error:
        _render_failure(upload)


def _render_failure(upload: Upload) -> None:
    """Why nothing was loaded, the way out, and which log is still the one shown."""
    layout.error(upload.error)
    if upload.is_unknown:
        if st.button("Say which field means what", type="primary", icon=":material/schema:"):
            st.switch_page("pages/mapping.py")
        with st.expander(f"The {len(orl.IMPORTERS)} formats that are read without that"):
            st.caption(_formats())
    st.info(
        f"Nothing was loaded. What follows is still the log from before: {layout.plain(work.chosen_log().name)}.",
        icon=":material/history:",
    )


def _read_as() -> None:
    _read_again(st.session_state["w:read_as"], None)


def _read_again(format: str, mapping: StepMapping | None) -> None:
    """The run after the callback reads the files another way, where progress can be shown."""
    upload = st.session_state[UPLOAD]
    upload.format, upload.mapping, upload.gone, upload.is_read = format, mapping, (), False
