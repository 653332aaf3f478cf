"""What a policy gets against what it is asked for, with the range of the log's own returns shaded."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from ..evaluation.asked_return import AskedReturns
from .theme import MUTED, SUPPORTED, UNSUPPORTED, house_layout, narrow

BAND = "rgba(58,141,196,0.20)"
SHADE = "rgba(58,141,196,0.10)"


def make_asked_returns(curve: AskedReturns, asked_now: float) -> go.Figure:
    """Points with their intervals over the dial; inside the log's range filled, beyond it hollow.

    Args:
        curve: what was achieved.
        asked_now: where the dial stands, reward units.
    """
    low, high = curve.return_range
    slack = 1e-9 * (1 + abs(high - low))
    inside = (curve.asked >= low - slack) & (curve.asked <= high + slack)
    ends = narrow(curve.asked[[0, -1]])
    figure = go.Figure(
        [
            {
                "type": "scatter",
                "mode": "lines",
                "x": narrow(np.concatenate([curve.asked, curve.asked[::-1]])),
                "y": narrow(np.concatenate([curve.high, curve.low[::-1]])),
                "fill": "toself",
                "fillcolor": BAND,
                "line": {"width": 0},
                "hoverinfo": "skip",
                "name": "95 % interval",
            },
            {
                "type": "scatter",
                "mode": "lines",
                "x": ends,
                "y": ends,
                "line": {"color": MUTED, "width": 2, "dash": "dash"},
                "hoverinfo": "skip",
                "name": "what was asked",
            },
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": narrow(curve.asked),
                "y": narrow(curve.achieved),
                "line": {"color": SUPPORTED, "width": 3},
                "marker": {
                    "size": 10,
                    "symbol": ["circle" if yes else "circle-open" for yes in inside],
                    "color": [SUPPORTED if yes else UNSUPPORTED for yes in inside],
                    "line": {"width": 2},
                },
                "customdata": narrow(np.column_stack([curve.low, curve.high, curve.success])),
                "hovertemplate": "asked for %{x:.3f}<br>got %{y:.3f} [%{customdata[0]:.3f}, %{customdata[1]:.3f}]<br>"
                "solved %{customdata[2]:.1%}<extra></extra>",
                "name": "achieved",
            },
        ],
        house_layout(height=380),
    )
    figure.update_layout(
        shapes=[
            {
                "type": "rect",
                "yref": "paper",
                "x0": low,
                "x1": high,
                "y0": 0,
                "y1": 1,
                "fillcolor": SHADE,
                "line": {"color": SUPPORTED, "width": 1, "dash": "dot"},
                "layer": "below",
            },
            {
                "type": "line",
                "yref": "paper",
                "x0": asked_now,
                "x1": asked_now,
                "y0": 0,
                "y1": 1,
                "line": {
                    "color": UNSUPPORTED if not low - slack <= asked_now <= high + slack else SUPPORTED,
                    "width": 3,
                },
            },
        ],
        annotations=[
            {
                "yref": "paper",
                "x": (low + high) / 2,
                "y": 1,
                "yanchor": "bottom",
                "text": "returns that the log shows",
                "showarrow": False,
                "font": {"size": 13},
            }
        ],
        showlegend=True,
        margin={"t": 36},
        legend={"y": -0.25},
    )
    figure.update_xaxes(title="discounted return asked for")
    figure.update_yaxes(title="discounted return achieved")
    return figure
