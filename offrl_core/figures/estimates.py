"""Off-policy estimates of one policy side by side, with the truth and what the log's own agent got as lines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from .theme import MUTED, SUPPORTED, TRUTH, UNSUPPORTED, house_layout, label

ROW_HEIGHT = 42  # pixels: a title has up to two lines
Interval = tuple[float, float, float]  # value, low, high


def make_estimates(
    estimates: Mapping[str, Interval | None], *, believed: str, truth: float | None, logged: float | None
) -> go.Figure:
    """A row per estimator with its interval; a refused one says so instead.

    Args:
        estimates: title of the estimator -> value, low, high in reward units; None where it refused.
        believed: title of the one to believe, drawn in full; "" for none.
        truth: exact discounted return, or None where nobody knows it.
        logged: mean discounted return of the log's own episodes, or None.
    """
    titles = list(estimates)
    told = [(row, title, interval) for row, (title, interval) in enumerate(estimates.items()) if interval is not None]
    values = np.array([interval for _, _, interval in told], dtype=float).reshape(-1, 3)
    chosen = [title == believed for _, title, _ in told]
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": values[:, 0],
        "y": np.array([row for row, _, _ in told], dtype=np.int16),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": values[:, 2] - values[:, 0],
            "arrayminus": values[:, 0] - values[:, 1],
            "color": MUTED,
            "thickness": 2,
        },
        "marker": {
            "size": [14 if yes else 9 for yes in chosen],
            "symbol": ["diamond" if yes else "circle" for yes in chosen],
            "color": SUPPORTED,
        },
        "customdata": values[:, 1:],
        "hovertemplate": "%{x:.3f} [%{customdata[0]:.3f}, %{customdata[1]:.3f}]<extra></extra>",
    }
    layout = house_layout(height=90 + ROW_HEIGHT * len(titles))
    lines = [("exact", truth, TRUTH, "solid"), ("log's own agent", logged, UNSUPPORTED, "dot")]
    layout["shapes"] = [
        {
            "type": "line",
            "x0": x,
            "x1": x,
            "y0": -0.5,
            "y1": len(titles) - 0.5,
            "line": {"color": colour, "width": 3, "dash": dash},
        }
        for _, x, colour, dash in lines
        if x is not None
    ]
    # One above the other, as the lines may stand close together.
    layout["annotations"] = [
        {"x": x, "y": y, "yanchor": "bottom", "text": f"{name} {x:+z.3f}", "showarrow": False, "font": {"size": 13}}
        for y, (name, x, _, _) in zip((-0.5, -1.0), lines, strict=True)
        if x is not None
    ] + [
        {"xref": "paper", "x": 0.01, "xanchor": "left", "y": row, "text": "refused", "showarrow": False, "opacity": 0.7}
        for row, interval in enumerate(estimates.values())
        if interval is None
    ]
    marks = [f"<b>{_folded(title)}</b>" if title == believed else _folded(title) for title in titles]
    layout["xaxis"] |= {"title": "discounted return", "range": _range([*values.ravel().tolist(), truth, logged])}
    layout["yaxis"] |= {
        "tickvals": list(range(len(titles))),
        "ticktext": marks,
        "range": [len(titles) - 0.5, -1.6],
        "showgrid": False,
    }
    return go.Figure([points], layout)


def _range(numbers: Sequence[float | None]) -> list[float]:
    """What the axis must show, with room for the names of the lines; without any number, just something."""
    known = [number for number in numbers if number is not None] or [0.0, 1.0]
    room = 0.25 * (max(known) - min(known)) or 0.1
    return [min(known) - room, max(known) + room]


def _folded(title: str) -> str:
    """A title on two lines where it is long, so that it fits on a phone."""
    return "<br>".join(label(line) for line in textwrap.wrap(title, 22))
