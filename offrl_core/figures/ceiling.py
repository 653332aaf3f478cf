"""Before training: values on one axis, the best path with its rows, and the ceiling while an action is thinned out."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from ..arrays import FloatArray
from ..evaluation.ceiling import BestPath, CeilingCurve
from ..wording import counted
from .theme import ACCENT, MUTED, SUPPORTED, TRUTH, house_layout, label

ROW_HEIGHT = 40
STEP_HEIGHT = 36

# Kind of a value -> colour, symbol. What is known of the world is green and outlined, as everywhere.
_MARKS = {
    "logged": (MUTED, "circle"),
    "counted": (SUPPORTED, "circle"),
    "ceiling": (SUPPORTED, "diamond"),
    "exact": (TRUTH, "diamond-open"),
}


def make_value_scale(rows: Sequence[tuple[str, str, float]]) -> go.Figure:
    """Returns on one axis, a row each.

    Args:
        rows: title, kind (``logged``, ``counted``, ``ceiling``, ``exact``) and discounted return.
    """
    values = np.array([value for _, _, value in rows])
    places = list(range(len(rows)))
    looks = [_MARKS[kind] for _, kind, _ in rows]
    points = {
        "type": "scatter",
        "mode": "markers+text",
        "x": values,
        "y": places,
        "text": [f"\u2002{value:+z.3f}" for value in values],
        "textposition": "middle right",
        "marker": {
            "size": 15,
            "color": [colour for colour, _ in looks],
            "symbol": [symbol for _, symbol in looks],
            "line": {"width": 2, "color": [colour for colour, _ in looks]},
        },
        "hoverinfo": "skip",
    }
    layout = house_layout(height=70 + ROW_HEIGHT * len(rows))
    room = float(np.ptp(values)) or 1.0
    layout["xaxis"] |= {
        "title": "discounted return",
        "range": [float(values.min()) - 0.08 * room, float(values.max()) + 0.45 * room],
    }
    layout["yaxis"] |= {
        "tickvals": places,
        "ticktext": [_folded(title) for title, _, _ in rows],
        "range": [len(rows) - 0.5, -0.5],
        "showgrid": False,  # a line through its number would strike it out
    }
    return go.Figure([points], layout)


def make_path(path: BestPath) -> go.Figure:
    """The steps of the best path from top to bottom, each with its rows on a logarithmic axis; the thinnest stands out."""
    rows = np.array([step.n_rows for step in path.steps], dtype=float)
    thinnest = int(rows.argmin())
    places = list(range(len(rows)))
    names = [f"{i}. {label(step.action, 24)} in {label(step.state, 40)}" for i, step in enumerate(path.steps, start=1)]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": rows,
        "y": places,
        "marker": {"color": [ACCENT if i == thinnest else SUPPORTED for i in places]},
        "text": [f"{int(n):,}" + (" (thinnest)" if i == thinnest else "") for i, n in enumerate(rows)],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [
            f"{name}<br>{counted(step.n_rows, 'row')}<br>"
            f"then {label(step.next_state) or 'the episode ends'} ({step.probability:.0%})"
            for name, step in zip(names, path.steps, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    layout = house_layout(height=70 + STEP_HEIGHT * len(rows))
    layout["xaxis"] |= {
        "title": "rows of the log (log scale)",
        "type": "log",
        "range": [-0.3, float(np.log10(rows.max())) * 1.25 + 0.5],
    }
    layout["xaxis"] |= {"dtick": 1, "showgrid": False}
    layout["yaxis"] |= {
        "tickvals": places,
        "ticktext": ["<br>".join(textwrap.wrap(name, 30)) for name in names],
        "range": [len(rows) - 0.5, -0.5],
        "showgrid": False,
    }
    return go.Figure([bars], layout)


def make_ceiling_curve(curve: CeilingCurve) -> go.Figure:
    """The ceiling over the fraction of an action that is kept; its policy's exact value as a dashed green line, if known."""
    lines = [("ceiling on the log's counts", curve.values, SUPPORTED, "solid", "circle")]
    if curve.true_values is not None:
        lines.append(("what its policy is really worth", curve.true_values, TRUTH, "dash", "diamond-open"))
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": 100 * curve.kept,
            "y": values,
            "name": name,
            "line": {"color": colour, "dash": dash, "width": 2.5},
            "marker": {"symbol": symbol, "size": 9},
            "customdata": curve.n_rows,
            "hovertemplate": "%{x:.0f} % kept (%{customdata:,.0f} rows): %{y:+.3f}<extra></extra>",
        }
        for name, values, colour, dash, symbol in lines
    ]
    layout = house_layout(height=340)
    layout |= {"showlegend": True}
    layout["legend"] = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
    what = "episodes with it" if curve.how == "episodes" else "its steps"
    layout["xaxis"] |= {"title": f"share of {what} kept (%)", "range": [-3, 103]}
    layout["yaxis"] |= {
        "title": "discounted return",
        "gridcolor": "rgba(128,128,128,0.25)",
        "range": _wide_enough(np.concatenate([values for _, values, *_ in lines])),
    }
    return go.Figure(traces, layout)


def _wide_enough(values: FloatArray) -> list[float]:
    """An axis that shows the values, and nothing of the rounding of values that are the same."""
    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    room = max(0.1 * (high - low), 0.05 * max(abs(low), abs(high)), 0.01)
    return [low - room, high + room]


def _folded(title: str) -> str:
    """A title on two lines where it is long, so that it fits on a phone."""
    return "<br>".join(label(line) for line in textwrap.wrap(title, 24))
