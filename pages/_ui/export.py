"""The log as a file to take away: JSON lines or Parquet, with personal data and secrets replaced on request."""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import partial
from io import BufferedReader
from pathlib import Path

import streamlit as st

from offrl_core.dataset import Dataset
from offrl_core.exports import exported, kept_log, redacted_log
from offrl_core.log import Log
from offrl_core.redaction import KINDS
from offrl_core.temporary import temporary_directory

from . import work

_FORMATS = {"jsonl": ("JSON lines", "application/jsonl"), "parquet": ("Parquet", "application/vnd.apache.parquet")}


@st.cache_resource(show_spinner=False)
def export_directory() -> tempfile.TemporaryDirectory:
    """Where exported files lie, until the server stops."""
    return temporary_directory("export")


@st.cache_resource(show_spinner="Looking for secrets and personal data…", max_entries=2, ttl="1h", scope="session")
def redacted_once(fingerprint: str, _log: Log) -> tuple[Log, Counter[str]]:
    """:func:`offrl_core.exports.redacted_log`, once per log."""
    return redacted_log(_log)


@st.cache_resource(show_spinner=False, max_entries=2, ttl="1h", scope="session")
def kept_once(key: str, _dataset: Dataset) -> Log:
    """:func:`offrl_core.exports.kept_log`, once per dataset."""
    return kept_log(_dataset)


def render_export(now: work.Current) -> None:
    """Buttons that download the log, and what goes with it."""
    with st.expander("Take the log away as a file", icon=":material/download:"):
        log = now.log
        if now.edits and now.dataset is not None and _wants_kept(now.dataset):
            log = kept_once(work.dataset_key(now.dataset), now.dataset)
        st.checkbox(
            "Replace secrets and personal data by marks",
            key="w:redact",
            persist_state="session",
            help=f"Looks for {', '.join(KINDS)}. Equal findings get equal marks, such as [e-mail 1], so equal arguments stay "
            "equal. It finds what looks like them; read the file before you share it.",
        )
        name = log.name
        if st.session_state["w:redact"]:
            log, counts = redacted_once(log.fingerprint, log)
            st.caption(_told(counts))
        st.caption(
            f"{log.n_steps:,} steps of {log.n_episodes:,} episodes in the trace schema, one step per record. "
            "Loading either file here gives the same steps."
        )
        with st.container(horizontal=True):
            for format, (title, mime) in _FORMATS.items():
                st.download_button(
                    title,
                    partial(_opened, log, format, Path(export_directory().name)),
                    f"{_file_name(name)}.{format}",
                    mime,
                    key=f"w:export:{format}",
                    icon=":material/download:",
                    on_click="ignore",
                )


def _wants_kept(dataset: Dataset) -> bool:
    first, last = dataset.stages[0], dataset.stages[-1]
    st.checkbox(
        f"Only the {last.n_steps:,} of {first.n_steps:,} steps that the coverage edits leave",
        key="w:export_kept",
        value=True,
        persist_state="session",
    )
    return bool(st.session_state["w:export_kept"])


def _opened(log: Log, format: str, directory: Path) -> BufferedReader:
    return exported(log, format, directory).open("rb")


def _told(counts: Counter[str]) -> str:
    if not counts:
        return "Nothing was found that looks like a secret or like personal data."
    return "Replaced: " + ", ".join(f"{n:,} {kind}" for kind, n in counts.most_common()) + "."


def _file_name(name: str) -> str:
    """A name for a file from that of a log: letters, digits and few signs."""
    kept = "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in name.removesuffix(".json"))
    return kept.strip("._")[:80] or "log"
