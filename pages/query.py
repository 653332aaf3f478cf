"""SQL over the steps: read-only, one SELECT, in a process of its own; a condition can become a coverage edit."""

import tempfile
from pathlib import Path

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.figures.query import make_bars
from offrl_core.framing import FRAMED_COLUMNS
from offrl_core.predicates import condition_of
from offrl_core.query import EXAMPLE_QUERIES, QueryResult, run_query
from offrl_core.schema import COLUMNS, short_hash
from offrl_core.temporary import temporary_directory
from pages._ui import layout, navigation, state, work


@st.cache_resource(show_spinner=False)
def query_directory() -> tempfile.TemporaryDirectory:
    """Where the read-only copies of the logs lie, until the server stops."""
    return temporary_directory("query")


@st.cache_resource(show_spinner="Copying the log for queries…", max_entries=16, ttl="2h")
def query_database(key: str, _dataset) -> Path:
    """A file with the tables ``steps`` and ``framed`` of the dataset, after its edits."""
    return _dataset.write_query_tables(Path(query_directory().name) / f"{short_hash(repr(key))}.duckdb")


@st.cache_data(show_spinner="Asking the log…", max_entries=64, ttl="10m")
def answer(database: Path, sql: str) -> QueryResult:
    """:func:`offrl_core.query.run_query`, once per log and text."""
    return run_query(database, sql)


def take_example() -> None:
    """Copy an example into the editor."""
    chosen = st.session_state["w:example"]
    if chosen is not None:
        state.put("sql", EXAMPLE_QUERIES[chosen].sql)


def render_editor() -> str:
    """Examples and the editor."""
    st.selectbox(
        "Start from an example",
        range(len(EXAMPLE_QUERIES)),
        index=None,
        format_func=lambda i: EXAMPLE_QUERIES[i].title,
        key="w:example",
        on_change=take_example,
        placeholder="choose one, or write your own below",
    )
    sql: str = state.get("sql") or EXAMPLE_QUERIES[0].sql
    st.text_area("SQL (one SELECT)", **state.bound("sql", sql), height=180)
    st.button(
        "Run", type="primary", icon=":material/play_arrow:", help="Leaving the editor with Ctrl+Enter runs it too."
    )
    return sql


def render_result(sql: str, result: QueryResult) -> None:
    """The rows, as a table and as a chart where they make one."""
    st.caption(f"{result.n_rows_shown:,} rows in {result.seconds * 1000:,.0f} ms. {result.truncated or ''}")
    if result.frame.empty:
        st.info("The query ran and found no row.")
        return
    chart = next((e.chart for e in EXAMPLE_QUERIES if e.sql.strip() == sql.strip()), None) or guessed_chart(
        result.frame
    )
    table, picture = st.tabs(["Table", "Chart"])
    with table:
        st.dataframe(result.frame, hide_index=True)
        st.download_button(
            "Download these rows", layout.safe_csv(result.frame), "query.csv", "text/csv", icon=":material/download:"
        )
    with picture:
        if chart is None:
            st.caption("A chart needs one column of names and one of numbers.")
        else:
            layout.render_figure(
                make_bars(result.frame, chart[1], chart[2]), key="query", alt=f"{chart[2]} by {chart[1]}"
            )


def guessed_chart(frame: pd.DataFrame) -> tuple[str, str, str] | None:
    """Bars of the first numeric column over the first other one."""
    numbers = [name for name in frame.columns if pd.api.types.is_numeric_dtype(frame[name])]
    names = [name for name in frame.columns if name not in numbers]
    if numbers and (names or len(numbers) > 1):
        along = names[0] if names else numbers[0]
        return ("bar", along, next(n for n in numbers if n != along))
    return None


def render_predicate(now: work.Current, sql: str) -> None:
    """Use the WHERE of the query, or a condition of one's own, as a coverage edit."""
    with st.expander("Use a condition as a coverage edit", icon=":material/content_cut:"):
        st.session_state.setdefault("w:condition", "")
        found = condition_of(sql)
        if found and st.session_state.get("w:condition_from") != sql:
            st.session_state["w:condition_from"] = sql
            st.session_state["w:condition"] = found
        condition = st.text_input(
            "Drop where", key="w:condition", help="Taken from the WHERE of your query, where it has one."
        )
        how = st.radio(
            "How",
            ("episodes", "transitions"),
            format_func={"episodes": "whole episodes", "transitions": "only these steps"}.get,
            key="w:condition_how",
            horizontal=True,
        )
        if condition.strip():
            try:
                edit = orl.DropWhere(condition.strip(), how)
                after = work.framed(now.log, now.framing_name, (*now.edits, edit)).stages[-1]
            except orl.OffRLError as error:
                layout.error(error)
                return
            st.caption(
                f"{layout.plain(edit.sentence, 300)} Would leave {after.n_steps:,} steps in {after.n_episodes:,} episodes."
            )
            st.button("Take it away", icon=":material/content_cut:", on_click=work.add_edit, args=(edit,))


navigation.require_app()
st.title("Query")
st.markdown("Ask the log itself. Tables: `steps`, and `framed` with state, action and reward as the learners see them.")
now = work.current()
if now.dataset is not None:
    sql = render_editor()
    try:
        database = query_database(work.dataset_key(now.dataset), now.dataset)
        render_result(sql, answer(database, sql))
    except orl.OffRLError as error:
        layout.error(error)
    render_predicate(now, sql)
    with st.expander("Columns", icon=":material/schema:"):
        st.dataframe(
            pd.DataFrame([(c.name, c.sql_type, c.meaning) for c in COLUMNS], columns=["column", "type", "meaning"]),
            hide_index=True,
        )
        st.caption("framed has these and: " + ", ".join(f"`{name}`" for name in FRAMED_COLUMNS))
