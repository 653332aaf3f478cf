"""Small pieces of page: figures, tables, tips, and texts from files shown as nothing but text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa
import streamlit as st

from offrl_core.coverage_edits import CoverageEdit, DropAction
from offrl_core.figures.theme import CLICK_TARGETS
from offrl_core.glossary import TERMS
from offrl_core.worlds import WORLDS, WorldSpec

from . import state

CHART_CONFIG = {"displaylogo": False, "displayModeBar": False, "scrollZoom": False}
# One button, which saves the picture; it shows where the mouse is over the figure.
EXPORT_CONFIG = CHART_CONFIG | {
    "displayModeBar": "hover",
    "modeBarButtons": [["toImage"]],
}

WIDEST_PHONE, PHONE_MARGINS = 640, 32  # pixels, as in style.css and as Streamlit leaves beside a page
# It stays in sight while the map below it is scrolled.
HOW_TO_READ = (
    'content: "Scroll it sideways. A tap on a cell names its state."; '
    "position: sticky; left: 0; font-size: 0.875rem; opacity: 0.75;"
)


def drawn(make: Callable[..., go.Figure], *contents: Any, **options: Any) -> go.Figure:
    """A figure of the core, made once for the same contents: building one takes longer than all else in a rerun."""
    return _drawn(make.__name__, contents, options, make)


@st.cache_resource(show_spinner=False, max_entries=128, ttl="2h")
def _drawn(name: str, contents: tuple[Any, ...], options: dict[str, Any], _make: Callable[..., go.Figure]) -> go.Figure:
    figure = _make(*contents, **options)
    for_browser = figure.to_dict()
    figure.to_dict = lambda: for_browser  # Streamlit asks for it in each rerun, and only reads it
    return figure


def render_figure(
    figure: go.Figure, *, key: str, alt: str, select: bool = False, export: bool = False
) -> list[dict[str, Any]]:
    """Draw a figure; with ``select`` return the points that were clicked, with ``export`` offer to save it as a picture.

    One that says how wide it must be (:func:`offrl_core.figures.theme.keep_width`) is scrolled sideways in a narrower place.
    """
    if figure.layout.meta:
        _keep_wide(figure, key)
    if not select:
        config = (
            EXPORT_CONFIG | {"toImageButtonOptions": {"format": "svg", "filename": key}} if export else CHART_CONFIG
        )
        st.plotly_chart(figure, key=f"w:fig:{key}", alt=alt, config=config)
        return []
    event = st.plotly_chart(
        figure, key=f"w:fig:{key}", alt=alt, config=CHART_CONFIG, on_select="rerun", selection_mode="points"
    )
    return list(event["selection"]["points"]) if event else []


def _keep_wide(figure: go.Figure, key: str) -> None:
    """Keep a figure as wide as it must be; a map says on a phone how to read it, because its names are scrolled away."""
    frame = f".st-key-w-fig-{re.sub('[^a-zA-Z0-9_-]', '-', key)}"
    min_width = figure.layout.meta["min_width"]
    style = f"{frame} > * {{ min-width: {min_width}px; }}"
    if any(trace.name == CLICK_TARGETS for trace in figure.data):
        too_narrow = min(min_width + PHONE_MARGINS - 1, WIDEST_PHONE)
        style += f" @media (max-width: {too_narrow}px) {{ {frame}::before {{ {HOW_TO_READ} }} }}"
    st.html(f"<style>{style}</style>")


def pager(field: str, n_items: int, per_page: int, what: str) -> slice:
    """Buttons to move a window over many items; says "n of N" and returns the slice to show."""
    first = min(int(state.get(field)), max(n_items - 1, 0)) // per_page * per_page
    last = min(first + per_page, n_items)
    with st.container(horizontal=True, vertical_alignment="center", key=f"w:pager:{field}"):
        if n_items > per_page:
            st.button(
                "Previous",
                icon=":material/chevron_left:",
                disabled=first == 0,
                on_click=state.put,
                args=(field, first - per_page),
            )
            st.button(
                "Next",
                icon=":material/chevron_right:",
                disabled=last == n_items,
                on_click=state.put,
                args=(field, first + per_page),
            )
        st.caption(f"{what} {first + 1:,} to {last:,} of {n_items:,}", width="content")
    return slice(first, last)


def min_count_input() -> None:
    """From how many rows on a pair counts as supported."""
    st.number_input(
        "Supported from n(s, a) ≥", 1, 1_000_000, **state.bound("min_count"), width=180, help=tip("support")
    )


def deployment_input(world: str, here: str) -> None:
    """Which hidden truth of the world to compare with; ``here`` is the one that the page shows.

    Nothing is asked of a world that has one truth only.
    """
    spec = WORLDS[world]
    if len(spec.deployments) < 2:
        return
    st.segmented_control(
        f"Once deployed, {spec.subject}…",
        list(spec.deployments),
        format_func=lambda name: spec.deployments[name].title,
        **state.bound("deployment", here),
        help="The hidden truth. " + "; ".join(f"{d.title}: {d.summary}" for d in spec.deployments.values()) + ".",
    )


def tip(term: str) -> str:
    """Tooltip of a glossary term: sentence, equation, source."""
    return TERMS[term].tooltip


_SIGNS = re.compile(r"([\\`*_{}\[\]<>()#+\-!|~$:.])")
# Bare addresses become links even where every sign is escaped; an invisible space inside ends that.
_ADDRESSES = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?=@)", re.IGNORECASE)


def plain(text: str, limit: int = 120) -> str:
    """A text from a file inside a Markdown sentence: shortened, on one line, its Markdown shown and not obeyed."""
    text = " ".join(text.split())
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return _SIGNS.sub(r"\\\1", _ADDRESSES.sub("\u200b", text))


def inline_code(text: str, limit: int = 120) -> str:
    """A name from a file as inline code: on one line, so that nothing after a line break is read as Markdown."""
    text = " ".join(text.replace("`", "'").split())
    return f"`{text if len(text) <= limit else text[: limit - 1] + '…'}`" if text else "(empty)"


def error(sentence: object) -> None:
    """What went wrong; the sentence may quote a file or a link, so it is shown as plain text."""
    st.error(plain(str(sentence), 2000), icon=":material/block:")


def warning(sentence: object, icon: str = ":material/block:") -> None:
    """What didn't work but lost nothing, as plain text."""
    st.warning(plain(str(sentence), 2000), icon=icon)


def render_percents(rows: Mapping[str, Mapping[str, float]]) -> None:
    """Probabilities as a table of percents, rows by name."""
    table = pd.DataFrame(rows).T
    shown = st.column_config.NumberColumn(format="percent")
    st.dataframe(table, width="stretch", column_config=dict.fromkeys(table.columns, shown))


def render_wide(table: pd.DataFrame | pa.Table, first: str, headings: Mapping[str, tuple[str, str]]) -> None:
    """A table of many columns: the first stays in sight on narrow screens, headings are short and explain themselves.

    Args:
        table: a row for each line.
        first: name of the column that says whom the row is about.
        headings: name of a column -> its heading and, as a tooltip, what it means in full.
    """
    columns = {name: st.column_config.Column(title, help=told or None) for name, (title, told) in headings.items()}
    title, told = headings.get(first, (None, ""))
    columns[first] = st.column_config.Column(title, help=told or None, pinned=True)
    st.dataframe(table, hide_index=True, column_config=columns)


def success_column(spec: WorldSpec, deployment: str) -> str:
    """Name of the column for the share of solved episodes in a deployment."""
    return f"success, {spec.subject} {spec.deployments[deployment].title}"


def success_headings(spec: WorldSpec) -> dict[str, tuple[str, str]]:
    """Headings of :func:`success_column` for each deployment of a world."""
    return {
        success_column(spec, name): (
            f"✓ {deployment.title}",
            f"Share of the episodes that are solved where {spec.subject} {deployment.title}.",
        )
        for name, deployment in spec.deployments.items()
    }


def safe_csv(table: pd.DataFrame) -> str:
    """CSV whose text cells can't be taken for formulas by a spreadsheet."""

    def harmless(cell: object) -> object:
        return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell

    return table.map(harmless).to_csv(index=False)


def truth_unknown(now: Any) -> None:
    """Say that there is no truth to compare with."""
    st.info(
        f"{plain(now.log.name)} is an imported log: nobody knows the world behind it, so there is **no exact value** here. "
        "What you see is what the log supports.",
        icon=":material/help:",
    )


def what_ran(now: Any, edit: CoverageEdit) -> str:
    """The SQL of an edit; for a re-collection what was collected, and the SQL of what the new log doesn't hold."""
    source = now.dataset.log.source if now.dataset else now.log.source
    if source is None or not (isinstance(edit, DropAction) and edit.how == "recollect"):
        return edit.keep_sql
    return (
        f"-- {source.n_episodes:,} episodes collected anew in the world {source.world}, seed {source.seed}.\n"
        f"-- The new log has no row with this condition:\n{edit.condition}"
    )
