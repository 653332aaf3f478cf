"""What the log can support, on one page that prints: verdicts, what stands in the way, coverage, drift, every field."""

import json
from itertools import groupby

import streamlit as st

from offrl_core.readiness import Readiness, Verdict
from offrl_core.readiness.families import BLOCKED, FAMILIES, READY, WITH_CAVEATS
from offrl_core.readiness.text import Section, Table, as_html, as_markdown, caveats_in_short, headline, sections
from pages._ui import layout, navigation, work

LOOKS = {
    READY: ("green", ":material/check_circle:"),
    WITH_CAVEATS: ("orange", ":material/warning:"),
    BLOCKED: ("red", ":material/block:"),
}
LIMIT = 600
CARDS_PER_ROW = 3


def render_card(verdict: Verdict) -> None:
    """One family of methods: verdict by colour, icon and word, and why it isn't better."""
    colour, icon = LOOKS[verdict.verdict]
    with st.container(border=True, key=f"w:verdict:{verdict.family}", height="stretch"):
        st.markdown(f"**{verdict.title}**", help=f"This family of methods {FAMILIES[verdict.family].does}.")
        st.markdown(f":{colour}[{icon} **{verdict.verdict}**]")
        for reason in verdict.blocked_by:
            st.markdown(f"{layout.plain(reason.sentence, LIMIT)} ({reason.number})")
        if verdict.caveats:
            st.caption(f"Caveats: {layout.plain(caveats_in_short(verdict.caveats), LIMIT)}")


def render_verdicts(report: Readiness) -> None:
    """All cards, three in a row."""
    for first in range(0, len(report.verdicts), CARDS_PER_ROW):
        row = st.columns(CARDS_PER_ROW)
        for place, verdict in zip(row, report.verdicts[first : first + CARDS_PER_ROW], strict=False):
            with place:
                render_card(verdict)
    numbers = " Numbers lead to the list below." if report.fixes else ""
    st.caption(
        f"Ready means that the log has what a method reads; whether it can judge a given policy, Evaluate says.{numbers}"
    )


def render_table(table: Table, key: str) -> None:
    """A table as text on the page: it prints whole, and wraps instead of hiding."""
    head = [table.headings, ("---",) * len(table.headings)]
    rows = [tuple(layout.plain(cell, LIMIT) for cell in row) for row in table.rows]
    with st.container(key=f"w:table:{key}"):
        st.markdown("\n".join(f"| {' | '.join(cells)} |" for cells in [*head, *rows]))
    if table.n_left_out:
        st.caption(f"{len(table.rows):,} of {len(table.rows) + table.n_left_out:,} shown; the JSON file has all.")


def render_section(section: Section) -> None:
    """One part: its title, what it says, its table."""
    st.markdown(f"#### {section.title}")
    for sentence in section.sentences:
        st.markdown(layout.plain(sentence, LIMIT))
    if section.table:
        render_table(section.table, section.title)


def render_sections(report: Readiness) -> None:
    """Everything below the verdicts; narrow parts beside each other."""
    for narrow, group in groupby(sections(report), key=lambda section: section.narrow):
        parts = list(group)
        for place, section in zip(
            st.columns(len(parts) if narrow else 1, gap="large") * len(parts), parts, strict=False
        ):
            with place:
                render_section(section)


def render_downloads(report: Readiness) -> None:
    """The report as a file, made when it is asked for."""
    files = {
        "JSON": ("readiness.json", "application/json", lambda: json.dumps(report.to_json(), indent=2)),
        "Markdown": ("readiness.md", "text/markdown", lambda: as_markdown(report)),
        "HTML": ("readiness.html", "text/html", lambda: as_html(report)),
    }
    with st.container(horizontal=True, vertical_alignment="center", key="w:report_files"):
        for name, (file, kind, make) in files.items():
            st.download_button(name, make, file, kind, icon=":material/download:", on_click="ignore")
        st.caption("The page prints as it is. In CI: `python -m offrl_core report FILE --json`.", width="content")


navigation.require_app()
st.title("Report")
st.markdown("What this log can support, what stands in the way, and what to log next.")
now = work.current()
if now.dataset is not None:
    report = work.assessed(now.dataset)
    for sentence in headline(report):
        st.caption(layout.plain(sentence, LIMIT))
    render_downloads(report)
    render_verdicts(report)
    if any(fix.key == "no rewards" for fix in report.fixes):
        st.page_link(
            "pages/rewards.py", label="Add rewards: from a file of outcomes, or by a rule", icon=":material/add_task:"
        )
    render_sections(report)
