"""A world that is a grid, as a grid: learned Q, exact Q and visits per move; each is clicked like a cell of the table."""

from __future__ import annotations

from typing import Any

import streamlit as st

from offrl_core.arrays import BoolArray, FloatArray
from offrl_core.dataset import Dataset
from offrl_core.figures.grid import GridLog, make_grid_values, make_grid_visits
from offrl_core.figures.theme import colour_limit
from offrl_core.interfaces import TrainedModel
from offrl_core.worlds import WORLDS

from . import layout, state

PICTURES = {"grid": "Grid", "table": "Table of states"}
MANY_COLUMNS = 8  # a grid wider than this takes the whole page


def choose(world: str | None) -> bool:
    """Whether to draw the grid; asks where the world is one."""
    if world is None or WORLDS[world].grid is None:
        return False
    st.segmented_control("Picture", list(PICTURES), format_func=PICTURES.get, **state.bound("picture"))
    return bool(state.get("picture") == "grid")


def render_grid(
    world: str,
    dataset: Dataset,
    model: TrainedModel,
    q_values: FloatArray | None,
    true_q: FloatArray | None,
    supported: BoolArray,
) -> list[dict[str, Any]]:
    """Draw the grids and return the points of a new click: each of them keeps reporting its last one."""
    make_grid = WORLDS[world].grid
    assert make_grid is not None
    grid = make_grid()
    shown = GridLog(
        grid=grid,
        states=dataset.states,
        actions=dataset.actions,
        counts=dataset.visitation_counts,
        supported=supported,
        probabilities=model.policy.probabilities,
    )
    both = {"Learned Q": q_values, "Exact Q of this policy": true_q}
    tables = {title: table for title, table in both.items() if table is not None}
    limit = colour_limit(list(tables.values()), supported)
    figures = {title: make_grid_values(shown, table, title=title, limit=limit) for title, table in tables.items()}
    figures["Visits: rows of the log"] = make_grid_visits(shown, title="Visits: rows of the log")
    st.caption(
        "Each cell has a triangle per move: its value, or how often the log shows it. Arrows: what the policy does. Orange "
        "hatching: unsupported, the log shows the move too rarely or never. **Click a triangle to open its evidence.**"
    )
    per_row = 1 if len(grid.rows[0]) > MANY_COLUMNS else 2
    clicked: list[dict[str, Any]] = []
    for i, (title, figure) in enumerate(figures.items()):
        if i % per_row == 0:
            places = st.columns(per_row, gap="medium")
        with places[i % per_row]:
            points = layout.render_figure(figure, key=f"grid:{title}", alt=f"{title}, as a grid", select=True)
        if _is_new(title, points):
            clicked = points
    return clicked


def _is_new(title: str, points: list[dict[str, Any]]) -> bool:
    cell = tuple(points[0]["customdata"][:2]) if points and points[0].get("customdata") else None
    before = st.session_state.get(f"w:points:{title}")
    st.session_state[f"w:points:{title}"] = cell
    return cell not in (None, before)
