"""A chart for the result of a query."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from .theme import SUPPORTED, house_layout, label, labels, narrow

MAX_BARS = 60


def make_bars(frame: pd.DataFrame, along: str, up: str) -> go.Figure:
    """Bars of one column over another, at most 60; says "n of N" in the axis title where it cuts."""
    shown = frame.head(MAX_BARS)
    bars = {
        "type": "bar",
        "x": labels([str(value) for value in shown[along]], 30),
        "y": narrow(shown[up].to_numpy(dtype=float)),
        "marker": {"color": SUPPORTED},
    }
    cut = f" (first {len(shown)} of {len(frame):,} rows)" if len(shown) < len(frame) else ""
    layout = house_layout(height=380)
    layout["xaxis"] |= {"title": label(along) + cut, "type": "category"}
    layout["yaxis"] |= {"title": label(up)}
    return go.Figure([bars], layout)
