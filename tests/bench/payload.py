"""What a heatmap costs on its way to the browser, as a typed array and as a list. These lines only inform."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from offrl_core.figures.heatmaps import make_q_maps, make_support_map

from .measure import Line, duration, interleaved


def payload_lines() -> list[Line]:
    """Narrow typed arrays against lists of the same numbers."""
    rng = np.random.default_rng(0)
    lines = []
    for n_states, n_actions in ((40, 6), (1000, 10)):
        values = rng.normal(size=(n_states, n_actions))
        ours, peer = heatmap(values.astype(np.float32)), heatmap(values.tolist())
        ours_time, peer_time = interleaved([ours, peer], 21)
        lines.append(
            Line(
                f"heatmap of {n_states:,} x {n_actions} to JSON, float32 array",
                f"{duration(ours_time)}, {len(ours()) / 1024:,.1f} KiB",
                f"{duration(peer_time)}, {len(peer()) / 1024:,.1f} KiB, list of lists",
                f"{len(peer()) / len(ours()):.1f}x smaller, {peer_time / ours_time:.1f}x faster",
            )
        )
    return [*lines, whole_maps()]


def heatmap(values):
    """A function that builds the figure and serialises it."""
    return lambda: go.Figure(
        [{"type": "heatmap", "z": values}], {"template": {"layout": {"hovermode": "closest"}}}
    ).to_json()


def whole_maps() -> Line:
    """The maps of a page as they are sent: hatching, click targets and texts included."""
    rng = np.random.default_rng(0)
    states, actions = [f"state {i}" for i in range(40)], [f"tool {i}" for i in range(6)]
    counts, yes = rng.integers(0, 9, size=(40, 6)), np.ones((40, 6), dtype=bool)
    q_values = rng.normal(size=(40, 6))

    def q_maps() -> str:
        return make_q_maps(states, actions, q_values, q_values, counts, yes, counts > 0, [0] * 40).to_json()

    def support_map() -> str:
        return make_support_map(states, actions, counts, yes, counts > 0).to_json()

    (q_time, support_time) = interleaved([q_maps, support_map], 21)
    return Line(
        "whole figure, 40 states x 6 actions: three Q maps; one support map",
        f"{duration(q_time)}, {len(q_maps()) / 1024:,.0f} KiB; {duration(support_time)}, {len(support_map()) / 1024:,.0f} KiB",
    )
