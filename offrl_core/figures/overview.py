"""The two pictures of the first screen: success by task, and the one choice everything hangs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from .theme import ACCENT, MUTED, SUPPORTED, TRUTH, UNSUPPORTED, house_layout, label, labels

_TASK_COLOURS = {"add": "#9DB4C8", "sub": "#6E8CA6", "mul": ACCENT}


def make_success_by_task(success: Mapping[str, Mapping[str, float]], overall: Mapping[str, float]) -> go.Figure:
    """Bars of exact success by policy and task.

    Args:
        success: policy title -> task -> probability of success.
        overall: policy title -> probability of success over all tasks, written above its bars.
    """
    titles = list(success)
    tasks = list(next(iter(success.values())))
    width = 0.8 / len(tasks)
    bars = [
        {
            "type": "bar",
            "x": np.arange(len(titles)) + (i - (len(tasks) - 1) / 2) * width,
            "y": np.array([success[title][task] for title in titles]),
            "width": width * 0.94,
            "name": f"{label(task)} tasks",
            "marker": {"color": _TASK_COLOURS.get(task, SUPPORTED)},
            "text": [label(task)] * len(titles),
            "textposition": "outside",
            "textfont": {"size": 12},
            "cliponaxis": False,
            "customdata": labels(titles),
            "hovertemplate": "%{customdata}, " + label(task) + " tasks: %{y:.1%} solved (exact)<extra></extra>",
        }
        for i, task in enumerate(tasks)
    ]
    layout = house_layout(height=380)
    layout["annotations"] = [
        {"x": i, "y": 1.2, "text": f"<b>{overall[title]:.0%}</b>", "showarrow": False, "font": {"size": 20}}
        for i, title in enumerate(titles)
    ]
    layout["bargap"] = 0
    layout["xaxis"] |= {
        "tickvals": list(range(len(titles))),
        "ticktext": [_stacked(title) for title in titles],
        "tickangle": 0,
        "range": [-0.5, len(titles) - 0.5],
        "showgrid": False,
    }
    layout["yaxis"] |= {
        "title": "tasks solved (probability)",
        "range": [0, 1.3],
        "tickvals": [0, 0.25, 0.5, 0.75, 1],
        "tickformat": ".0%",
    }
    return go.Figure(bars, layout)


def make_choice(
    actions: Sequence[str],
    learned: Sequence[float],
    true: Sequence[float],
    counts: Sequence[int],
    chosen: str,
) -> go.Figure:
    """Q bars at one state: learned value, evidence behind it, and the exact value as a marker.

    Args:
        actions: the actions that compete.
        learned: learned Q, reward units; NaN where the learner has none.
        true: exact Q in the deployment, reward units.
        counts: rows of the log behind each.
        chosen: the action the policy takes.
    """
    supported = [count > 0 for count in counts]
    rows = np.arange(len(actions))
    finite = [value for value in [*learned, *true] if not np.isnan(value)]
    # Bars start at the worst value on screen, not at 0: the longest bar wins, and a guess of 0 is still a bar.
    low = min([-1.2, *finite]) - 0.1
    bars = {
        "type": "bar",
        "y": rows,
        "x": np.asarray(learned, dtype=float) - low,
        "base": low,
        "orientation": "h",
        "width": 0.5,
        "marker": {
            "color": [SUPPORTED if yes else UNSUPPORTED for yes in supported],
            "pattern": {
                "shape": ["" if yes else "/" for yes in supported],
                "size": 8,
                "solidity": 0.4,
                "fgcolor": "#5A3600",
            },
        },
        "name": "learned Q (hatched: never seen)",
        "customdata": np.asarray(learned, dtype=float),
        "hovertemplate": "learned Q %{customdata:.3f}<extra></extra>",
    }
    truth = {
        "type": "scatter",
        "y": rows,
        "x": np.asarray(true, dtype=float),
        "mode": "markers",
        "marker": {"symbol": "line-ns", "size": 34, "line": {"width": 4, "color": TRUTH}, "color": TRUTH},
        "name": "exact Q once deployed",
        "hovertemplate": "exact Q %{x:.3f}<extra></extra>",
    }
    layout = house_layout(height=380)
    layout["annotations"] = [_value_mark(row, value, low) for row, value in enumerate(learned)]
    layout["xaxis"] |= {
        "title": "value Q (discounted return, reward units)",
        "range": [low, max([1.1, *finite]) + 0.1],
        "zeroline": True,
        "zerolinecolor": MUTED,
    }
    layout["yaxis"] |= {
        "tickvals": rows.tolist(),
        "ticktext": [_action_mark(a, count, a == chosen) for a, count in zip(actions, counts, strict=True)],
        "range": [len(actions) - 0.4, -0.6],
        "showgrid": False,
    }
    layout["showlegend"] = True
    return go.Figure([bars, truth], layout)


def _action_mark(action: str, count: int, chosen: bool) -> str:
    name = f"<b>{label(action)} ◀ chosen</b>" if chosen else label(action)
    return name + ("<br>never seen" if not count else f"<br>seen {count:,} times")


def _stacked(title: str) -> str:
    """Words of a title below each other, so that five titles fit on a phone."""
    return "<br>".join(label(word) for word in title.split())


def _value_mark(row: int, value: float, low: float) -> dict[str, Any]:
    unknown = bool(np.isnan(value))
    return {
        "x": low if unknown else value,
        "y": row + 0.38,
        "xanchor": "left" if unknown else "center",
        "text": "no value" if unknown else f"{value:+.2f}",
        "showarrow": False,
        "font": {"size": 13},
    }
