"""How a learned value grows over sweeps, on an axis of powers of ten, with the rate that the closed form predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from ..arrays import FloatArray
from .theme import ACCENT, MUTED, SUPPORTED, TRUTH, UNSUPPORTED, house_layout, label, narrow

FLOOR = 1e-12  # smaller errors are drawn here: a log axis has no 0
MAX_POINTS = 400
_LOOKS = ((UNSUPPORTED, "solid"), (ACCENT, "dash"), (SUPPORTED, "dashdot"), (TRUTH, "longdash"))


class Growth(NamedTuple):
    """What one way of learning made of the start."""

    title: str
    largest: FloatArray  # (K+1,) largest absolute Q after each sweep


def make_growth(runs: Sequence[Growth], rate: float, *, n_sweeps: int) -> go.Figure:
    """Largest absolute Q over sweeps; every true value is 0, so that is the error.

    Args:
        runs: at most four; the first one is the one without a guard.
        rate: closed form of its factor per sweep; drawn through its last value on the axis, where slower modes have died away.
        n_sweeps: end of the axis.
    """
    layout = house_layout(height=460)
    layout |= {"showlegend": True, "legend": {"orientation": "h", "y": -0.22, "x": 0}}
    layout["xaxis"] |= {"title": {"text": "sweep"}, "range": [0, n_sweeps], "showgrid": False}
    top = max(float(run.largest.max()) for run in runs)
    powers = np.log10(max(top, 10.0))
    smallest = min(float(run.largest.min()) for run in runs)
    bottom = min(0.0, np.log10(max(smallest, FLOOR)))
    layout["yaxis"] |= {
        "type": "log",
        "title": {"text": "largest |Q|"},
        "range": [bottom - 0.04 * (powers - bottom), powers + 0.06 * (powers - bottom)],
        "exponentformat": "power",
        "nticks": 8,
    }
    curves = [_curve(run, look) for run, look in zip(runs, _LOOKS, strict=False)]
    return go.Figure([_predicted(runs[0].largest, rate), *curves], layout)


def _curve(run: Growth, look: tuple[str, str]) -> dict[str, Any]:
    kept = _kept(len(run.largest))
    colour, dash = look
    return {
        "type": "scatter",
        "x": kept.astype(np.int32),
        "y": np.maximum(run.largest[kept], FLOOR),  # as doubles: single precision ends at 1e38
        "mode": "lines",
        "line": {"width": 3, "color": colour, "dash": dash},
        "name": label(run.title),
        "hovertemplate": f"{label(run.title)}<br>sweep %{{x:,}}: largest |Q| %{{y:.3g}}<extra></extra>",
    }


def _predicted(largest: FloatArray, rate: float) -> dict[str, Any]:
    """The straight line of a constant factor per sweep, through the last value on the axis."""
    kept, last = _kept(len(largest)), int(np.flatnonzero(largest > FLOOR)[-1])
    slope = np.log10(max(rate, np.finfo(float).tiny))
    powers = np.log10(largest[last]) + (kept - last) * slope
    seen = (powers >= np.log10(FLOOR)) & (powers < 300)
    return {
        "type": "scatter",
        "x": narrow(kept[seen].astype(float)),
        "y": 10.0 ** powers[seen],
        "mode": "lines",
        "line": {"width": 8, "color": MUTED},
        "opacity": 0.35,
        "name": "closed form, no guard",
        "hoverinfo": "skip",
    }


def _kept(n: int) -> FloatArray:
    """Evenly spaced numbers of sweeps, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, MAX_POINTS)).round().astype(np.int64))
