"""Where a policy goes against where the log has been: maps of visits, distance step by step, the flow of actions, slips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from ..arrays import BoolArray, FloatArray
from ..evaluation.shift import OVER, START, Compounding, FlowLink
from .heatmaps import make_table_map
from .short_labels import short_labels
from .theme import ACCENT, COUNT_SCALE, MUTED, SUPPORTED, TRUTH, UNSUPPORTED, house_layout, keep_width, label

GRID = "rgba(128,128,128,0.25)"
MAX_STEPS_SHOWN = 60
MAX_ACTIONS = 4  # of one step in a flow, supported and not; the rest are put together
OTHERS = "others"
LONGEST_NAME = 18  # characters
FLOW_HEIGHT, FLOW_MARGIN, NODE_GAP, NODE_WIDTH, FLOW_FONT = 380, 16, 14, 16, 13  # pixels
FLOW_TOP = 0.03  # of the height, above and below


def make_visit_map(
    states: Sequence[str],
    actions: Sequence[str],
    visits: FloatArray,
    valid: BoolArray,
    supported: BoolArray,
    *,
    title: str,
    top: float,
) -> go.Figure:
    """Expected visits per episode; unsupported pairs hatched, invalid ones blank.

    Args:
        states: (S,) keys, top to bottom.
        actions: (A,) names.
        visits: (S, A) per episode.
        valid: (S, A) pairs that may be chosen.
        supported: (S, A) pairs in the support.
        title: plain text.
        top: top of the colour scale, so that two maps can share it.
    """
    texts = [
        [
            f"{label(state, 90)}<br>{label(action)}: {visits[s, a]:.3f} visits per episode"
            + ("" if supported[s, a] else "<br>unsupported")
            for a, action in enumerate(actions)
        ]
        for s, state in enumerate(states)
    ]
    shown = np.where(valid, visits, np.nan)
    return make_table_map(
        states,
        actions,
        np.where(shown > 0, shown, np.nan),  # no shade for what is never done
        valid,
        supported,
        texts,
        scale=COUNT_SCALE,
        limits=(0.0, max(top, 1e-9)),
        form=_visits_in_short,
        title=title,
    )


def _visits_in_short(visits: float) -> str:
    """Two decimals; what is rarer than they can tell isn't shown as never."""
    return f"{visits:.2f}" if visits >= 0.005 else "≈0"


def make_distance(total_variation: FloatArray) -> go.Figure:
    """Total variation at each step, as bars.

    Args:
        total_variation: (T,) between 0 and 1; at most 60 steps are drawn, and the axis says so.
    """
    shown = total_variation[:MAX_STEPS_SHOWN]
    bars = {
        "type": "bar",
        "x": np.arange(len(shown), dtype=np.int16),
        "y": 100 * shown,
        "marker": {"color": SUPPORTED},
        "hovertemplate": "t = %{x}: %{y:.1f} % of the episodes<extra></extra>",
    }
    layout = house_layout(height=280)
    cut = f" (first {MAX_STEPS_SHOWN} of {len(total_variation):,})" if len(shown) < len(total_variation) else ""
    layout["xaxis"] |= {"title": f"t, the step{cut}", **({"dtick": 1} if len(shown) <= 12 else {})}
    layout["yaxis"] |= {"title": "apart (% of episodes)", "range": [0, 103], "gridcolor": GRID}
    return go.Figure([bars], layout)


class _Node(NamedTuple):
    """One action at one step, by supported pairs or by others."""

    step: int
    action: str
    supported: bool


def make_flow(flow: Sequence[FlowLink]) -> go.Figure:
    """Actions one after the other as a Sankey diagram, step by step from left to right.

    Unsupported ones are orange and marked with a cross, links into them as well.

    Args:
        flow: of :class:`offrl_core.evaluation.shift.Visits`.
    """
    merged = _merged(flow)
    nodes = sorted(
        {node for pair in merged for node in pair}, key=lambda n: (n.step, not n.supported, n.action == OVER, n.action)
    )
    places = {node: i for i, node in enumerate(nodes)}
    names = _names(nodes)
    last = max(node.step for node in nodes)
    through = _through(merged)
    x, y = _positions(nodes, through)
    diagram = {
        "type": "sankey",
        "arrangement": "snap",
        "domain": {"y": [FLOW_TOP, 1 - FLOW_TOP]},
        "node": {
            "label": ["" if node.step == last else names[node] for node in nodes],
            "color": [_node_colour(node) for node in nodes],
            "x": x,
            "y": y,
            "pad": NODE_GAP,
            "thickness": NODE_WIDTH,
            "line": {"width": 0},
            "customdata": [f"{_full_name(node)}: {through[node]:.1%}" for node in nodes],
            "hovertemplate": "%{customdata} of the episodes<extra></extra>",
        },
        "link": {
            "source": [places[source] for source, _ in merged],
            "target": [places[target] for _, target in merged],
            "value": list(merged.values()),
            "color": [
                "rgba(224,138,30,0.55)" if not target.supported else "rgba(58,141,196,0.35)" for _, target in merged
            ],
            "customdata": [
                f"{_full_name(source)} → {_full_name(target)}: {share:.1%}"
                for (source, target), share in merged.items()
            ],
            "hovertemplate": "%{customdata} of the episodes<extra></extra>",
        },
        # In the page's own ink, without the rim that Plotly gives it: links let the page through, so it is read on them.
        "textfont": {"size": FLOW_FONT, "shadow": "none"},
    }
    layout = house_layout(height=FLOW_HEIGHT)
    # Plotly writes the last names to the left of their nodes, over those of the step before; here they have a margin.
    layout["annotations"] = [_beside_node(names[node], y[i]) for node, i in places.items() if node.step == last]
    room = 8 + max(len(names[node]) for node in nodes if node.step == last) * FLOW_FONT * 0.6
    layout["margin"] = {"l": 8, "r": round(room), "t": FLOW_MARGIN, "b": FLOW_MARGIN}
    longest = max(len(names[node]) for node in nodes if node.step < last)
    keep_width(layout, room + last * (2 * NODE_WIDTH + longest * FLOW_FONT * 0.5))
    return go.Figure([diagram], layout)


def _names(nodes: Sequence[_Node]) -> dict[_Node, str]:
    """Short names; different actions have different ones where they can."""
    actions = list(dict.fromkeys(node.action for node in nodes))
    shown = dict(zip(actions, short_labels(actions, LONGEST_NAME), strict=True))
    return {node: shown[node.action] + ("" if node.supported else " ✕") for node in nodes}


def _full_name(node: _Node) -> str:
    return label(node.action, 90) + ("" if node.supported else " ✕")


def _beside_node(name: str, y: float) -> dict[str, Any]:
    return {
        "text": name,
        "x": 1,
        "xref": "paper",
        "xanchor": "left",
        "xshift": 7,
        "y": 1 - FLOW_TOP - (1 - 2 * FLOW_TOP) * y,
        "yref": "paper",
        "yanchor": "middle",
        "showarrow": False,
        "font": {"size": FLOW_FONT},
    }


def _merged(flow: Sequence[FlowLink]) -> dict[tuple[_Node, _Node], float]:
    """Links between nodes with their shares; of each step the most frequent by name, the rest together."""
    shares: dict[_Node, float] = {}
    for link in flow:
        target = _Node(link.step + 1, link.target, link.target_supported)
        shares[target] = shares.get(target, 0.0) + link.share
    named = {_Node(0, START, True)}
    for step, supported in {(node.step, node.supported) for node in shares}:
        here = [node for node in shares if (node.step, node.supported) == (step, supported)]
        named |= {node for node in here if node.action == OVER}
        named |= set(sorted((n for n in here if n.action != OVER), key=lambda n: -shares[n])[:MAX_ACTIONS])
    merged: dict[tuple[_Node, _Node], float] = {}
    for link in flow:
        source = _Node(link.step, link.source, link.source_supported)
        target = _Node(link.step + 1, link.target, link.target_supported)
        pair = tuple(node if node in named else node._replace(action=OTHERS) for node in (source, target))
        merged[pair[0], pair[1]] = merged.get((pair[0], pair[1]), 0.0) + link.share
    return merged


def _through(merged: dict[tuple[_Node, _Node], float]) -> dict[_Node, float]:
    """Share of the episodes that pass each node."""
    arrives: dict[_Node, float] = {}
    leaves: dict[_Node, float] = {}
    for (source, target), share in merged.items():
        leaves[source] = leaves.get(source, 0.0) + share
        arrives[target] = arrives.get(target, 0.0) + share
    return {node: max(arrives.get(node, 0.0), leaves.get(node, 0.0)) for node in {*arrives, *leaves}}


def _positions(nodes: Sequence[_Node], through: dict[_Node, float]) -> tuple[list[float], list[float]]:
    """Centres of the nodes: columns by step, and in each column one below the other, as high as Plotly draws them."""
    last = max(node.step for node in nodes)
    columns = [[node for node in nodes if node.step == step] for step in range(last + 1)]
    gap = NODE_GAP / ((1 - 2 * FLOW_TOP) * FLOW_HEIGHT - 2 * FLOW_MARGIN)
    scale = min((1 - gap * (len(column) - 1)) / max(sum(through[n] for n in column), 1e-9) for column in columns)
    places: dict[_Node, float] = {}
    for column in columns:
        top = 0.0
        for node in column:
            places[node] = top + scale * through[node] / 2
            top += scale * through[node] + gap
    # Plotly takes 0 for "not given".
    return [min(max(node.step / last, 0.001), 0.999) for node in nodes], [
        min(max(places[node], 0.001), 0.999) for node in nodes
    ]


def _node_colour(node: _Node) -> str:
    if node.action in (START, OVER):
        return MUTED
    return SUPPORTED if node.supported else UNSUPPORTED


def make_compounding(found: Compounding) -> go.Figure:
    """The exact loss by slips over the horizon, between no harm beyond the slip itself and the worst case.

    Args:
        found: of :func:`offrl_core.evaluation.shift.compounding_error`.
    """
    steps = np.arange(1, len(found.loss) + 1, dtype=np.int16)
    lines = [
        ("worst case: min(ε T², T) × range", found.bound, ACCENT, "dot"),
        ("if a slip spoiled only its own step: ε T × range", found.unconnected, MUTED, "dash"),
        ("exact loss here", found.loss, TRUTH, "solid"),
    ]
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": steps,
            "y": values,
            "name": name,
            "line": {"color": colour, "dash": dash, "width": 2.5},
            "hovertemplate": f"%{{x}} steps: %{{y:.3f}}<br>{label(name, 90)}<extra></extra>",
        }
        for name, values, colour, dash in lines
    ]
    layout = house_layout(height=320)
    layout |= {"showlegend": True}
    layout["legend"] = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
    layout["xaxis"] |= {"title": "steps", **({"dtick": 1} if len(steps) <= 12 else {})}
    # The worst case soon leaves everything else far below; what really happens must stay readable.
    top = 1.3 * max(float(found.loss.max()), float(found.unconnected[-1]), 1e-3)
    layout["yaxis"] |= {
        "title": "reward lost",
        "range": [min(1.2 * float(found.loss.min()), -0.04 * top), top],
        "gridcolor": GRID,
    }
    return go.Figure(traces, layout)
