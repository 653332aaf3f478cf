"""What stands behind one cell: counts, rows, returns, the SQL, what the value is made of, and the conversation."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from offrl_core.dataset import Dataset
from offrl_core.evaluation.diagnostics import Evidence, evidence, promised_return, value_parts
from offrl_core.interfaces import TrainedModel

from . import episode, layout, ledger, state, work


def take_click(points: list[dict[str, Any]]) -> None:
    """Remember the cell that was clicked; the map keeps reporting it, so only a new click counts."""
    if points and points[0].get("customdata"):
        clicked = tuple(points[0]["customdata"][:2])
        if st.session_state.get("w:clicked") != clicked:
            st.session_state["w:clicked"] = clicked
            state.put("cell_state", clicked[0])
            state.put("cell_action", clicked[1])


def render_evidence(dataset: Dataset, model: TrainedModel | None, true_q: Any, min_count: int) -> None:
    """The chosen cell, or how to choose one."""
    state_key, action = state.get("cell_state"), state.get("cell_action")
    row = dataset.state_index(state_key)
    if row is None or action not in dataset.actions:
        st.caption(":material/touch_app: Click a cell to see the rows behind it.")
        return
    column = dataset.actions.index(action)
    found = evidence(dataset, state_key, action)
    st.markdown(f"#### {layout.inline_code(action)} in {layout.inline_code(state_key)}")
    _render_numbers(found, dataset, model, true_q, row, column, min_count)
    left, right = st.columns(2, gap="large")
    with left:
        if model is not None and model.q_values is not None:
            _render_parts(dataset, model, row, column)
            ledger.render_cell(dataset, model, row, column, min_count)
    with right:
        st.markdown("**The query**, to run or change on the page Query")
        st.code(found.sql, language="sql", wrap_lines=True)
    _render_rows(dataset, found)


def _render_numbers(
    found: Evidence, dataset: Dataset, model: TrainedModel | None, true_q: Any, row: int, column: int, min_count: int
) -> None:
    supported = found.n_rows >= min_count
    with st.container(horizontal=True, key="evidence_numbers"):
        st.metric("Rows", f"{found.n_rows:,}", help=layout.tip("support"), width="content")
        st.metric("Episodes", f"{found.n_episodes:,}", width="content")
        st.metric("Supported", "yes" if supported else "no (unsupported)", width="content")
        mean = (
            "none seen"
            if not found.n_rows
            else ("unknown" if found.mean_return is None else f"{found.mean_return:+z.4f}")
        )
        help_text = (
            layout.tip("return") + f"\n\nFrom this step on, mean over {found.n_returns:,} of {found.n_rows:,} rows."
        )
        st.metric("Mean return in the log", mean, help=help_text, width="content")
        if model is not None and model.q_values is not None:
            value = model.q_values[row, column]
            st.metric("Learned Q", "not allowed" if pd.isna(value) else f"{value:+z.4f}", width="content")
        if true_q is not None:
            exact = true_q[row, column]
            text = "unreachable" if pd.isna(exact) else f"{exact:+z.4f}"
            st.metric("Exact Q", text, help=layout.tip("true_q"), width="content")


def _render_parts(dataset: Dataset, model: TrainedModel, row: int, column: int) -> None:
    parts = value_parts(dataset, model, row, column)
    st.markdown("**What the value is made of**")
    if parts.mean_reward is None:
        st.markdown(
            "Nothing but the learner's default for pairs without data. **No row of the log speaks for or against it.**"
        )
        return
    lines = pd.DataFrame(
        [
            {
                "then": part.next_state or "the episode ends",
                "probability": part.probability,
                "best action there": part.next_action or "",
                "seen": part.next_action_count,
                "its value": part.next_value,
                "adds": part.contribution,
            }
            for part in parts.parts
        ]
    )
    st.markdown(
        f"mean reward {parts.mean_reward:+z.4f} plus γ = {dataset.discount:g} times what follows = **{parts.total:+z.4f}**"
    )
    shown = lines.head(50)
    st.dataframe(shown, hide_index=True, height=min(300, 38 + 35 * len(shown)))
    if len(lines) > len(shown):
        st.caption(f"The {len(shown)} most likely of {len(lines):,} successors.")
    if not (lines["seen"] > 0).all() and (lines["best action there"] != "").any():
        st.caption(":material/warning: Part of it rests on an action the log never shows.")


def _render_rows(dataset: Dataset, found: Evidence) -> None:
    if not found.n_rows:
        st.info("**0 rows.** The log never shows this action in this state.", icon=":material/visibility_off:")
        return
    shown = len(found.rows)
    st.markdown(f"**The rows**: {shown:,} of {found.n_rows:,}. Choose one to read its episode.")
    columns = [
        "episode_id",
        "t",
        "task",
        "action",
        "arguments",
        "tool_result",
        "error",
        "framed_reward",
        "next_state_key",
    ]
    event = st.dataframe(
        found.rows[columns],
        hide_index=True,
        height=min(320, 38 + 35 * shown),
        on_select="rerun",
        selection_mode="single-row",
        key="w:evidence_rows",
    )
    chosen = event["selection"]["rows"]
    if chosen:
        row = found.rows.iloc[chosen[0]]
        episode.render_episode(dataset.log, str(row["episode_id"]), int(row["t"]))


def render_promise(dataset: Dataset, model: TrainedModel) -> None:
    """What the policy promises at the start, and what the log's own episodes got."""
    own = work.own_return(dataset)
    if own.value is None:
        return
    n = f"{own.n_episodes:,} of {dataset.n_episodes:,} " if own.n_episodes < dataset.n_episodes else ""
    st.caption(
        f":material/compare_arrows: At the start this policy promises **{promised_return(dataset, model):+z.3f}** (learned); "
        f"the {n}episodes of the log returned **{own.value:+z.3f}** on average, both discounted. A wide gap asks for evidence."
    )
