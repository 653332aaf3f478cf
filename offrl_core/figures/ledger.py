"""What values are made of: evidence in plain blue, guesses in hatched orange, what the learner adds in dotted grey."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from ..arrays import BoolArray, FloatArray, IntArray
from ..evaluation.ledger import PARTS
from ..wording import counted
from .heatmaps import make_table_map
from .theme import HATCH, MUTED, SUPPORTED, UNSUPPORTED, Scale, house_layout, label, labels

ROW_HEIGHT = 44
# Part -> colour, hatching.
_LOOKS = {"seen": (SUPPORTED, ""), "default": (UNSUPPORTED, "/"), "maxima": (UNSUPPORTED, "x"), "rest": (MUTED, ".")}

# Evidence blue, guesses orange, as everywhere; pale, because numbers stand on it.
SHARE_SCALE: Scale = [[0.0, "#CFE3F3"], [0.5, "#F6E3C8"], [1.0, "#F2BE7C"]]


def make_ledger_bars(rows: Mapping[str, Mapping[str, float]]) -> go.Figure:
    """One bar per value: its parts end to end, those below 0 to the left; a diamond at their sum.

    Args:
        rows: what the value belongs to -> name of a part -> amount in reward units.
    """
    titles = list(rows)
    places = list(range(len(titles)))
    traces = []
    for name, (colour, shape) in _LOOKS.items():
        amounts = [rows[title][name] for title in titles]
        if not any(abs(amount) > 5e-7 for amount in amounts):
            continue  # a part that is nowhere would only fill the legend
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "x": amounts,
                "y": places,
                "name": PARTS[name],
                "marker": {
                    "color": colour,
                    "line": {"color": colour, "width": 1},
                    "pattern": {
                        "shape": shape,
                        "fgcolor": HATCH if colour == UNSUPPORTED else "#ffffff",
                        "size": 8,
                        "solidity": 0.2,
                        "fillmode": "overlay",  # else the page shines through, dark or light
                    },
                },
                "hovertemplate": f"{label(PARTS[name])} %{{x:+.4f}}<extra></extra>",
            }
        )
    sums = [sum(rows[title].values()) for title in titles]
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": sums,
            "y": places,
            "marker": {"symbol": "diamond", "size": 12, "color": "#ffffff", "line": {"width": 2, "color": "#17212B"}},
            "hovertemplate": "value %{x:+.4f}<extra></extra>",
            "name": "the value",
        }
    )
    layout = house_layout(height=110 + ROW_HEIGHT * len(titles))
    layout |= {"barmode": "relative", "bargap": 0.35, "showlegend": True}
    layout["legend"] = {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"}
    layout["xaxis"] |= {"zeroline": True, "zerolinecolor": "#888888"}
    layout["yaxis"] |= {
        "tickvals": places,
        "ticktext": labels(titles, 28),
        "range": [len(titles) - 0.5, -0.5],
        "showgrid": False,
    }
    return go.Figure(traces, layout)


def make_ledger_map(
    states: Sequence[str],
    actions: Sequence[str],
    shares: FloatArray,
    counts: IntArray,
    valid: BoolArray,
    supported: BoolArray,
) -> go.Figure:
    """How much of each value rests on unsupported pairs, 0 to 100 %.

    Args:
        states: (S,) keys, top to bottom.
        actions: (A,) names.
        shares: (S, A) between 0 and 1; NaN without a value.
        counts: (S, A) rows of the log.
        valid: (S, A) pairs that may be chosen.
        supported: (S, A) pairs in the support.
    """
    texts = [
        [_share_text(state, action, float(shares[s, a]), int(counts[s, a])) for a, action in enumerate(actions)]
        for s, state in enumerate(states)
    ]
    return make_table_map(
        states,
        actions,
        np.where(valid, shares, np.nan),
        valid,
        supported,
        texts,
        scale=SHARE_SCALE,
        limits=(0.0, 1.0),
        form="{:.0%}".format,
    )


def _share_text(state: str, action: str, share: float, count: int) -> str:
    said = "no value" if np.isnan(share) else f"{share:.0%} of the value rests on unsupported pairs"
    seen = "never seen" if count == 0 else f"seen {counted(count, 'time')}"
    return f"{label(state, 90)}<br>{label(action)}: {seen}<br>{said}<br>click for the evidence"
