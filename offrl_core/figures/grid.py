"""Worlds that are grids: a triangle per move shaded by its value, arrows for the policy, hatching where the log is silent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from ..arrays import BoolArray, FloatArray, IntArray
from ..wording import counted
from ..worlds import Grid
from .theme import (
    COUNT_SCALE,
    KEPT_INK,
    MUTED,
    TRUTH,
    UNSUPPORTED,
    VALUE_SCALE,
    Scale,
    click_targets,
    colour_at,
    house_layout,
    ink_on,
    keep_width,
    label,
)

CELL = 92  # pixels, where there is room
NARROWEST_CELL = 84
TARGET = 26  # side of a click target, so that neighbours don't cover each other
_HALF = 0.48  # half the side of a drawn cell


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridLog:
    """What the log shows of a grid, and what a policy does there; rows and columns as in a dataset.

    Attributes:
        grid: how the world is drawn.
        states: (S,) keys.
        actions: (A,) names.
        counts: (S, A) rows of the log.
        supported: (S, A) pairs in the support.
        probabilities: (S, A) of the policy.
    """

    grid: Grid
    states: Sequence[str]
    actions: Sequence[str]
    counts: IntArray
    supported: BoolArray
    probabilities: FloatArray


@dataclass(frozen=True, slots=True)
class _Triangle:
    """A pair of state and action in the picture."""

    state: str
    action: str
    row: float
    column: float
    down: int
    right: int
    place: tuple[int, int] | None  # in the tables; None where the log doesn't know the state or the action

    @property
    def corners(self) -> list[tuple[float, float]]:
        """Middle of the cell and the two ends of the side it points to, as (column, row)."""
        x, y = self.column, self.row
        side_x, side_y = x + _HALF * self.right, y + _HALF * self.down
        across_x, across_y = _HALF * self.down, _HALF * self.right
        return [(x, y), (side_x - across_x, side_y - across_y), (side_x + across_x, side_y + across_y)]


def make_grid_values(shown: GridLog, values: FloatArray, *, title: str, limit: float) -> go.Figure:
    """Q of every move as shaded triangles with numbers.

    Args:
        shown: log and policy.
        values: (S, A) Q, NaN where there is none.
        title: plain text.
        limit: value of the darkest blue; minus that is the darkest grey.
    """
    shares = np.clip((values / limit + 1) / 2, 0, 1)
    return _figure(shown, shares, values, VALUE_SCALE, _short, title)


def make_grid_visits(shown: GridLog, *, title: str) -> go.Figure:
    """Rows of the log for every move, on a logarithmic scale."""
    top = max(float(shown.counts.max(initial=1)), 2.0)
    shares = np.log(np.maximum(shown.counts, 1)) / np.log(top)
    counts = np.where(shown.counts > 0, shown.counts, np.nan).astype(float)
    return _figure(shown, shares, counts, COUNT_SCALE, "{:,.0f}".format, title)


def _figure(
    shown: GridLog,
    shares: FloatArray,
    values: FloatArray,
    scale: Scale,
    form: Callable[[float], str],
    title: str,
) -> go.Figure:
    grid = shown.grid
    n_rows, n_columns = len(grid.rows), len(grid.rows[0])
    layout = house_layout(height=n_rows * CELL + 60, title=title)
    bare = {"showgrid": False, "showticklabels": False, "constrain": "domain"}
    layout["xaxis"] |= {**bare, "range": [-0.52, n_columns - 0.48]}
    layout["yaxis"] |= {**bare, "range": [n_rows - 0.48, -0.52], "scaleanchor": "x"}
    keep_width(layout, n_columns * NARROWEST_CELL)
    triangles = _triangles(shown)
    layout["shapes"] = _grounds(grid)
    known = [(t, t.place) for t in triangles if t.place is not None and np.isfinite(values[t.place])]
    colours = [colour_at(scale, float(shares[place])) for _, place in known]
    layout["shapes"] += [_filled(t.corners, colour) for (t, _), colour in zip(known, colours, strict=True)]
    numbers = {
        "type": "scatter",
        "x": [t.column + 0.31 * t.right for t, _ in known],
        "y": [t.row + 0.34 * t.down for t, _ in known],
        "mode": "text",
        "text": [form(float(values[place])) for _, place in known],
        "textfont": {"size": 10, "color": [ink_on(colour) for colour in colours]},
        "selected": KEPT_INK,
        "hoverinfo": "skip",
        "name": "numbers",
    }
    return go.Figure(
        [
            _hatching(shown, triangles),
            _names(shown),
            numbers,
            _arrows(shown, triangles),
            _targets(shown, triangles, values),
        ],
        layout,
    )


def _triangles(shown: GridLog) -> list[_Triangle]:
    state_of = {state: i for i, state in enumerate(shown.states)}
    action_of = {action: i for i, action in enumerate(shown.actions)}
    return [
        _Triangle(
            key,
            action,
            row,
            column,
            down,
            right,
            (state_of[key], action_of[action]) if key in state_of and action in action_of else None,
        )
        for key, (row, column) in shown.grid.cells.items()
        for action, (down, right) in shown.grid.moves.items()
    ]


def _grounds(grid: Grid) -> list[dict[str, Any]]:
    """A frame for every cell; those nobody stands on are grey, and named by :func:`_names`."""
    standing = set(grid.cells.values())
    return [
        {
            "type": "rect",
            "x0": column - _HALF,
            "x1": column + _HALF,
            "y0": row - _HALF,
            "y1": row + _HALF,
            "line": {"width": 2 if letter == "G" else 1, "color": TRUTH if letter == "G" else MUTED},
            "fillcolor": "rgba(0,0,0,0)" if (row, column) in standing else "rgba(138,147,160,0.28)",
            "layer": "below",
        }
        for row, line in enumerate(grid.rows)
        for column, letter in enumerate(line)
    ]


def _names(shown: GridLog) -> dict[str, Any]:
    """What a cell is, where no triangle with a number hides it."""
    grid = shown.grid
    known = {place for key, place in grid.cells.items() if key in shown.states}
    named = [
        (column, row, grid.legend.get(letter, letter))
        for row, line in enumerate(grid.rows)
        for column, letter in enumerate(line)
        if (row, column) not in known
    ]
    return {
        "type": "scatter",
        "x": [column for column, _, _ in named],
        "y": [row for _, row, _ in named],
        "mode": "text",
        "text": [label(name) for _, _, name in named],
        "textfont": {"size": 12},
        "hoverinfo": "skip",
        "name": "names",
    }


def _filled(corners: list[tuple[float, float]], colour: str) -> dict[str, Any]:
    path = "M" + " L".join(f"{x:.3f},{y:.3f}" for x, y in corners) + " Z"
    return {
        "type": "path",
        "path": path,
        "fillcolor": colour,
        "line": {"width": 1, "color": "#ffffff"},
        "layer": "below",
    }


def _hatching(shown: GridLog, triangles: list[_Triangle]) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    for triangle in triangles:
        if triangle.place is None or not shown.supported[triangle.place]:
            for column, row in [*triangle.corners, triangle.corners[0]]:
                x.append(column)
                y.append(row)
            x.append(None)
            y.append(None)
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "lines",
        "line": {"width": 1.5, "color": UNSUPPORTED},
        "fill": "toself",
        "fillcolor": "rgba(224,138,30,0.10)",
        "fillpattern": {"shape": "/", "fgcolor": UNSUPPORTED, "size": 8, "solidity": 0.2, "fillmode": "overlay"},
        "hoverinfo": "skip",
        "name": "unsupported",
    }


def _arrows(shown: GridLog, triangles: list[_Triangle]) -> dict[str, Any]:
    """An arrow for each move that the policy takes in at least one of ten visits; the likelier, the larger."""
    taken = [t for t in triangles if t.place is not None and shown.probabilities[t.place] >= 0.1]
    return {
        "type": "scatter",
        "x": [t.column + 0.08 * t.right for t in taken],
        "y": [t.row + 0.08 * t.down for t in taken],
        "mode": "markers",
        "marker": {
            "symbol": "arrow",
            "angle": [float(np.degrees(np.arctan2(t.right, -t.down))) for t in taken],
            "size": [float(8 + 7 * shown.probabilities[t.place]) for t in taken if t.place is not None],
            "color": "#111111",
            "line": {"width": 1.5, "color": "#ffffff"},
        },
        "hoverinfo": "skip",
        "name": "policy",
        "unselected": {"marker": {"opacity": 1}},  # else a click fades all of them
    }


def _targets(shown: GridLog, triangles: list[_Triangle], values: FloatArray) -> dict[str, Any]:
    known = [(t, t.place) for t in triangles if t.place is not None]
    texts = [
        f"{label(t.state, 90)}<br>{label(t.action)}: "
        + (f"seen {counted(int(shown.counts[place]), 'time')}" if shown.counts[place] else "never seen")
        + ("" if shown.supported[place] else " (unsupported)")
        + (f"<br>{values[place]:+z,.4g}" if np.isfinite(values[place]) else "")
        + "<br>click for the evidence"
        for t, place in known
    ]
    columns = np.array([t.column + 0.30 * t.right for t, _ in known])
    rows = np.array([t.row + 0.30 * t.down for t, _ in known])
    return click_targets(columns, rows, [[t.state, t.action] for t, _ in known], texts, size=TARGET)


def _short(value: float) -> str:
    """A number in at most five signs or so.

    >>> _short(-0.125), _short(12.34), _short(-102.94), _short(-0.001)
    ('-0.12', '+12.3', '-103', '+0.00')
    """
    return f"{value:+z.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"
