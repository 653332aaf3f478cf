"""Continuous actions: a surface of Q from above, a slice through it, and the rows of the log under the slice."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from ..arrays import BoolArray, FloatArray, IntArray
from .theme import ACCENT, COUNT_SCALE, SUPPORTED, TRUTH, UNSUPPORTED, VALUE_SCALE, house_layout, label, narrow

HEIGHT = 560
MAP, SLICE, ROWS = (0.47, 0.97), (0.14, 0.40), (0.0, 0.10)  # where the three parts stand, in shares of the height


class Surface(NamedTuple):
    """Q over a grid of states and actions, and where the policy goes."""

    states: FloatArray  # (S,)
    actions: FloatArray  # (A,)
    q_values: FloatArray  # (S, A) reward units
    policy: FloatArray  # (S,) action of the policy


class Slice(NamedTuple):
    """Q over the actions in one state."""

    state: float
    actions: FloatArray  # (M,)
    learned: FloatArray | None  # (M,) None for a picture of the truth alone
    exact: FloatArray  # (M,)
    chosen: float  # action of the policy
    rows: IntArray  # (B,) rows of the log near the state, by bin of actions


def make_action_picture(
    title: str,
    surface: Surface,
    cut: Slice,
    counts: IntArray,
    *,
    exact_name: str,
    slice_range: tuple[float, float],
) -> go.Figure:
    """Three parts over one axis of actions: Q from above with the policy on it, the slice, and the rows under it.

    Where the log shows nothing, map and slice are hatched. Colours are those of this map alone.

    Args:
        title: plain text.
        surface: the map.
        cut: the slice.
        counts: (B, B) rows of the log by bin of states and of actions, both from -1 to 1.
        exact_name: what the exact curve is, for its tooltip.
        slice_range: ends of the slice's axis, reward units.
    """
    layout = house_layout(height=HEIGHT, title=title)
    layout["margin"] |= {"l": 4, "r": 4}
    axis = {"range": [-1, 1], "tickvals": [-1, -0.5, 0, 0.5, 1], "showgrid": False, "zeroline": False}
    layout["xaxis"] |= {**axis, "title": {"text": "action"}, "anchor": "y3"}
    layout["yaxis"] |= {**axis, "domain": MAP, "title": {"text": "state"}}
    layout["yaxis2"] = {"domain": SLICE, "range": list(slice_range), "title": {"text": "Q"}, "nticks": 5}
    top = max(int(cut.rows.max(initial=0)), 1)
    layout["yaxis3"] = {"domain": ROWS, "range": [0, top * 1.05], "tickvals": [top], "title": {"text": "rows"}}
    for name in ("yaxis2", "yaxis3"):
        layout[name] |= {"automargin": True, "zeroline": False, "showgrid": name == "yaxis2"}
    layout["annotations"] = [
        _heading(f"Q from above: {surface.q_values.min():.1f} to {surface.q_values.max():.1f}", MAP[1]),
        _heading(f"slice at state {cut.state:+z.2f}", SLICE[1]),
    ]
    traces = [*_map(surface, cut, counts), *_slice(cut, exact_name, slice_range), _rows(cut.rows)]
    return go.Figure(traces, layout)


def make_log_picture(title: str, counts: IntArray, state: float, rows: IntArray) -> go.Figure:
    """The log alone, as high as a picture of Q: its rows by state and action, and those near one state under them.

    Args:
        title: plain text.
        counts: (B, B) rows of the log by bin of states and of actions, both from -1 to 1.
        state: of the slice.
        rows: (B,) rows of the log near it, by bin of actions.
    """
    layout = house_layout(height=HEIGHT, title=title)
    layout["margin"] |= {"l": 4, "r": 4}
    axis = {"range": [-1, 1], "tickvals": [-1, -0.5, 0, 0.5, 1], "showgrid": False, "zeroline": False}
    layout["xaxis"] |= {**axis, "title": {"text": "action"}, "anchor": "y3"}
    layout["yaxis"] |= {**axis, "domain": MAP, "title": {"text": "state"}}
    layout["yaxis3"] = {"domain": (ROWS[0], SLICE[1]), "title": {"text": "rows"}, "nticks": 4, "automargin": True}
    layout["annotations"] = [
        _heading(f"rows of the log: 0 to {int(counts.max()):,}", MAP[1]),
        _heading(f"near state {state:+z.2f}", SLICE[1]),
    ]
    centres = np.linspace(-1, 1, 2 * len(counts) + 1)[1::2]
    heatmap = {
        "type": "heatmap",
        "x": narrow(centres),
        "y": narrow(centres),
        "z": np.where(counts > 0, counts, np.nan).astype(np.float32),  # no shade where there is no row
        "colorscale": COUNT_SCALE,
        "showscale": False,
        "hovertemplate": "%{z} rows around state %{y:+.2f}, action %{x:+.2f}<extra></extra>",
    }
    return go.Figure([heatmap, _hatched(_holes(counts), "y"), _at(state), _rows(rows)], layout)


def hatched_spans(unsupported: BoolArray) -> list[tuple[float, float]]:
    """Runs of unsupported bins as intervals of actions.

    >>> hatched_spans(np.array([True, True, False, True]))
    [(-1.0, 0.0), (0.5, 1.0)]
    """
    edges = np.linspace(-1, 1, len(unsupported) + 1)
    steps = np.flatnonzero(np.diff(np.concatenate([[0], unsupported.astype(np.int8), [0]])))
    return [(float(edges[a]), float(edges[b])) for a, b in steps.reshape(-1, 2).tolist()]


def _map(surface: Surface, cut: Slice, counts: IntArray) -> list[dict[str, Any]]:
    low, high = _shades(surface, counts)
    heatmap = {
        "type": "heatmap",
        "x": narrow(surface.actions),
        "y": narrow(surface.states),
        "z": narrow(surface.q_values),
        "colorscale": VALUE_SCALE,
        "zmin": low,
        "zmax": high,
        "showscale": False,
        "zsmooth": "best",
        "hovertemplate": "state %{y:+.2f}, action %{x:+.2f}<br>Q %{z:+.2f}<extra></extra>",
    }
    way = {
        "type": "scatter",
        "x": narrow(surface.policy),
        "y": narrow(surface.states),
        "mode": "lines",
        "hoverinfo": "skip",
    }
    return [
        heatmap,
        _hatched(_holes(counts), "y"),
        {**way, "line": {"width": 6, "color": "#ffffff"}, "name": "policy, outline"},
        {**way, "line": {"width": 3, "color": "#111111"}, "name": "policy"},
        _at(cut.state),
    ]


def _holes(counts: IntArray) -> list[tuple[float, float, float, float]]:
    """Boxes (left, right, bottom, top) of the map without a row."""
    edges = np.linspace(-1, 1, len(counts) + 1)
    return [
        (low, high, float(edges[i]), float(edges[i + 1]))
        for i, row in enumerate(counts)
        for low, high in hatched_spans(row == 0)
    ]


def _at(state: float) -> dict[str, Any]:
    """The line where the slice is."""
    return {
        "type": "scatter",
        "x": [-1, 1],
        "y": [state, state],
        "mode": "lines",
        "line": {"width": 2, "color": ACCENT, "dash": "dash"},
        "hoverinfo": "skip",
        "name": "slice",
    }


def _shades(surface: Surface, counts: IntArray) -> tuple[float, float]:
    """Ends of the colour scale. What a learner punishes far below all that was logged must not bleach the rest."""
    states, actions = (np.minimum(((axis + 1) / 2 * len(counts)).astype(int), len(counts) - 1) for axis in surface[:2])
    logged = counts[np.ix_(states, actions)] > 0
    high = float(surface.q_values.max())
    if not logged.any():
        return float(surface.q_values.min()), high
    spread = high - float(surface.q_values[logged].min())
    return max(float(surface.q_values.min()), high - 1.5 * spread), high


def _slice(cut: Slice, exact_name: str, slice_range: tuple[float, float]) -> list[dict[str, Any]]:
    low, high = slice_range
    holes = [(a, b, low, high) for a, b in hatched_spans(cut.rows == 0)]
    exact = _curve(cut.actions, cut.exact, exact_name, {"width": 3, "color": TRUTH, "dash": "dash"})
    chosen_on = cut.exact if cut.learned is None else cut.learned
    marker = {
        "type": "scatter",
        "x": [cut.chosen],
        "y": [float(np.interp(cut.chosen, cut.actions, chosen_on))],
        "yaxis": "y2",
        "mode": "markers",
        "marker": {"symbol": "diamond", "size": 13, "color": "#111111", "line": {"width": 2, "color": "#ffffff"}},
        "hovertemplate": "the policy picks %{x:+.2f}<extra></extra>",
        "name": "chosen",
    }
    learned = (
        [] if cut.learned is None else [_curve(cut.actions, cut.learned, "learned Q", {"width": 3, "color": SUPPORTED})]
    )
    return [_hatched(holes, "y2"), exact, *learned, marker]


def _curve(actions: FloatArray, values: FloatArray, name: str, line: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": narrow(actions),
        "y": narrow(values),
        "yaxis": "y2",
        "mode": "lines",
        "line": line,
        "hovertemplate": f"{label(name)} %{{y:+.2f}}<br>action %{{x:+.2f}}<extra></extra>",
        "name": name,
    }


def _rows(rows: IntArray) -> dict[str, Any]:
    centres = np.linspace(-1, 1, 2 * len(rows) + 1)[1::2]
    return {
        "type": "bar",
        "x": narrow(centres),
        "y": rows.astype(np.int32),
        "yaxis": "y3",
        "width": 2 / len(rows) * 0.9,
        "marker": {"color": SUPPORTED},
        "hovertemplate": "%{y} rows near this state, around action %{x:+.2f}<extra></extra>",
        "name": "rows",
    }


def _hatched(boxes: list[tuple[float, float, float, float]], axis: str) -> dict[str, Any]:
    """One trace for boxes (left, right, bottom, top)."""
    x: list[float | None] = []
    y: list[float | None] = []
    for left, right, bottom, top in boxes:
        x += [left, right, right, left, left, None]
        y += [bottom, bottom, top, top, bottom, None]
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "yaxis": axis,
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": "rgba(224,138,30,0.10)",
        "fillpattern": {"shape": "/", "fgcolor": UNSUPPORTED, "size": 10, "solidity": 0.2, "fillmode": "overlay"},
        "hoverinfo": "skip",
        "name": "unsupported",
    }


def _heading(text: str, y: float) -> dict[str, Any]:
    return {
        "text": label(text),
        "x": 0,
        "y": y,
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
    }
