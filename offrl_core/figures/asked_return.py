"""What a policy gets against what it is asked for, with the range of the log's own returns shaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from ..arrays import BoolArray
from ..evaluation.asked_return import AskedReturns
from .theme import MUTED, SUPPORTED, UNSUPPORTED, house_layout, narrow

BAND = "rgba(58,141,196,0.25)"
SHADE = "rgba(58,141,196,0.10)"


def make_asked_returns(curve: AskedReturns, asked_now: float) -> go.Figure:
    """Points with their intervals over the dial; inside the log's range filled, beyond it hollow.

    Args:
        curve: what was achieved.
        asked_now: where the dial stands, reward units.
    """
    low, high = curve.return_range
    slack = 1e-9 * (1 + abs(high - low))  # the dial's points are rounded
    inside = (curve.asked >= low - slack) & (curve.asked <= high + slack)
    layout = house_layout(height=400)
    layout["showlegend"], layout["margin"]["t"], layout["legend"]["y"] = True, 36, -0.25
    layout["xaxis"] |= {"title": "discounted return asked for"}
    layout["yaxis"] |= {"title": "discounted return achieved"}
    layout["shapes"] = [
        _upright(low, high, fillcolor=SHADE, line={"color": SUPPORTED, "width": 1, "dash": "dot"}, layer="below"),
        _upright(asked_now, asked_now, type="line", line={"color": MUTED, "width": 3}),
    ]
    note = {"yref": "paper", "showarrow": False, "font": {"size": 13}}
    layout["annotations"] = [
        {**note, "x": (low + high) / 2, "y": 1, "yanchor": "bottom", "text": "returns that the log shows"},
        {**note, "x": asked_now, "y": 0, "yanchor": "bottom", "xanchor": "right", "text": "the dial "},
    ]
    return go.Figure([*_lines(curve), _points(curve, inside, SUPPORTED), _points(curve, ~inside, UNSUPPORTED)], layout)


def _upright(x0: float, x1: float, **style: Any) -> dict[str, Any]:
    """A shape from the foot of the figure to its top."""
    return {"type": "rect", "yref": "paper", "x0": x0, "x1": x1, "y0": 0, "y1": 1, **style}


def _lines(curve: AskedReturns) -> list[dict[str, Any]]:
    """Interval, what was asked, and the line through what was achieved."""
    line = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    there_and_back = np.concatenate([curve.asked, curve.asked[::-1]])
    ends = narrow(curve.asked[[0, -1]])
    return [
        {
            **line,
            "x": narrow(there_and_back),
            "y": narrow(np.concatenate([curve.high, curve.low[::-1]])),
            "fill": "toself",
            "fillcolor": BAND,
            "line": {"width": 0},
            "name": "95 % interval",
        },
        {**line, "x": ends, "y": ends, "line": {"color": MUTED, "width": 2, "dash": "dash"}, "name": "what was asked"},
        {
            **line,
            "x": narrow(curve.asked),
            "y": narrow(curve.achieved),
            "line": {"color": SUPPORTED, "width": 3},
            "showlegend": False,
        },
    ]


def _points(curve: AskedReturns, which: BoolArray, colour: str) -> dict[str, Any]:
    supported = colour == SUPPORTED
    numbers = np.column_stack([curve.low, curve.high, curve.success])
    return {
        "type": "scatter",
        "mode": "markers",
        "x": narrow(curve.asked[which]),
        "y": narrow(curve.achieved[which]),
        "marker": {
            "size": 10,
            "symbol": "circle" if supported else "circle-open",
            "color": colour,
            "line": {"width": 2, "color": colour},
        },
        "customdata": narrow(numbers[which]),
        "hovertemplate": "asked for %{x:.3f}<br>got %{y:.3f} [%{customdata[0]:.3f}, %{customdata[1]:.3f}]<br>"
        "solved %{customdata[2]:.1%}<extra></extra>",
        "name": "achieved" if supported else "achieved, beyond the log",
    }
