"""What an import read, what it did not, and why."""

from __future__ import annotations

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.importers.report import ImportReport, Problem
from offrl_core.joint_actions import n_parallel
from offrl_core.log import Log
from offrl_core.log_changes import JOINT
from offrl_core.wording import counted

from . import layout, work

MAX_PROBLEMS = 1000
MAX_LOSSES = 5


def render_report(now: work.Current) -> None:
    """What was read, what was not, and why."""
    report = now.log.report
    if now.world:
        source = now.log.source
        st.caption(
            f"Made by the policy `{source.behavior_name}` in the world `{source.world}`, seed {source.seed}: "
            f"{now.log.n_episodes:,} episodes, {now.log.n_steps:,} steps. Truth is known."
        )
        return
    st.markdown(f"**{report.sentence()}**")
    for sentence in report.losses()[:MAX_LOSSES]:
        st.caption(f":material/content_cut: {layout.plain(sentence, 300)}")
    if report.torn:
        st.caption(f":material/content_cut: {layout.plain(report.torn_sentence(), 400)}", help=layout.tip("torn"))
    st.caption(f"Read as {format_title(report.format)}: {layout.plain(report.why, 300)}")
    for note in report.notes:
        st.caption(f":material/info: {layout.plain(note, 400)}")
    if report.problems:
        render_problems(report)
    n = parallel_replies(now.log.fingerprint, now.log)
    if n:
        st.button(
            f"Join the parallel calls of {counted(n, 'reply')}",
            icon=":material/call_merge:",
            on_click=lambda: work.show_changed([*work.changes(), JOINT]),
            help="The model decided once and called several tools. As separate rows the second call has no result of the first "
            "in its state; joined they are one action such as “search + weather”. Makes a new log; this one stays.",
        )


def format_title(format_names: str) -> str:
    """Formats of an import in words; a name that isn't registered as it is."""
    return " and ".join(
        orl.IMPORTERS[name].title if name in orl.IMPORTERS else name for name in format_names.split(", ")
    )


@st.cache_data(show_spinner=False, max_entries=64)
def parallel_replies(fingerprint: str, _log: Log) -> int:
    """:func:`offrl_core.joint_actions.n_parallel`, once."""
    return n_parallel(_log)


def kinds_of_problems(report: ImportReport) -> pd.DataFrame:
    """How often each kind of problem came, whether it cost data, and the first one in words."""
    first: dict[str, Problem] = {}
    for problem in report.problems:
        first.setdefault(problem.kind, problem)
    return pd.DataFrame(
        [
            {"kind": kind, "problems": n, "what happened": _outcome(first[kind]), "the first": first[kind].sentence()}
            for kind, n in report.counts().items()
        ]
    )


def _outcome(problem: Problem) -> str:
    return "set aside" if problem.lost else "kept"


def render_problems(report: ImportReport) -> None:
    """Problems by kind, then one by one, and as a file."""
    n, lost = report.tally.total(), report.n_lost
    title = f"{counted(n, 'problem')}: {lost:,} set aside, {n - lost:,} kept but flagged"
    with st.expander(title, icon=":material/report:", expanded=lost > 0):
        st.dataframe(kinds_of_problems(report), hide_index=True)
        table = pd.DataFrame(
            [
                {
                    "file": p.file,
                    "record": p.record,
                    "byte": p.offset,
                    "field": p.field,
                    "what happened": _outcome(p),
                    "kind": p.kind,
                    "message": p.message,
                    "excerpt": p.excerpt,
                }
                for p in report.problems
            ]
        ).astype({"record": "Int64", "byte": "Int64"})
        st.dataframe(table.head(MAX_PROBLEMS), hide_index=True)
        if n > min(len(table), MAX_PROBLEMS):
            st.caption(
                f"{min(len(table), MAX_PROBLEMS):,} of {n:,} shown; the file has {len(table):,}, at most 1,000 of each kind. "
                "The counts above are complete."
            )
        data = layout.safe_csv(table)
        st.download_button("Download the problems", data, "import_problems.csv", "text/csv", icon=":material/download:")
