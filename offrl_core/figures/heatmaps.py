"""States x actions: the support map and the Q maps, with unsupported pairs hatched and invalid ones blank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from ..arrays import BoolArray, FloatArray, IntArray
from ..wording import counted
from .short_labels import short_labels
from .theme import (
    COUNT_SCALE,
    DIFFERENCE_SCALE,
    KEPT_INK,
    VALUE_SCALE,
    Scale,
    click_targets,
    colour_at,
    colour_limit,
    hatched_cells,
    house_layout,
    ink_on,
    keep_width,
    label,
    largest,
    narrow,
)

ROW_HEIGHT = 24
BAND_HEIGHT = 7  # a click target must not be higher than its row, or it covers the neighbours
# Pixels that keep names and numbers of a narrow map apart.
DIGIT_WIDTH, LETTER_WIDTH = 6, 5.8
CELL_PADDING, CHOSEN_WIDTH, BARE_CELL_WIDTH, MAP_MARGIN = 6, 12, 16, 24
STATE_LENGTH = 44  # characters of a key that are shown
ACTION_LENGTH = 24  # characters of a name that are shown
MOST_TILTED = 8  # actions; the names of more stand upright
MAX_TEXT_CELLS = 500  # beyond that, numbers in cells are unreadable and slow


def figure_height(n_rows: int, actions: Sequence[str] = ()) -> int:
    """Height in pixels that gives each row room for a number, and upright names of actions theirs."""
    upright = min(max(map(len, actions)), ACTION_LENGTH) * _action_font(len(actions)) // 2 if _upright(actions) else 0
    return 120 + upright + max(n_rows, 3) * ROW_HEIGHT


def make_support_map(
    states: Sequence[str],
    actions: Sequence[str],
    counts: IntArray,
    valid: BoolArray,
    supported: BoolArray,
    *,
    title: str = "",
    max_count: int | None = None,
) -> go.Figure:
    """Counts n(s, a) on a logarithmic scale; unsupported hatched, invalid blank; every cell can be clicked.

    Args:
        states: (S,) keys, top to bottom.
        actions: (A,) names.
        counts: (S, A) rows of the log.
        valid: (S, A) pairs that may be chosen.
        supported: (S, A) pairs in the support.
        title: plain text.
        max_count: top of the colour scale, so that two maps can share it.
    """
    height = figure_height(len(states), actions)
    top = max(int(max_count or counts.max(initial=1)), 1)
    shades = np.where(valid & (counts > 0), np.log10(np.maximum(counts, 1)), np.nan)
    ticks = [value for value in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000) if value <= top]
    limits = (0.0, max(float(np.log10(top)), 0.3))
    numbers = _numbers(counts.astype(float), valid, "{:,.0f}".format, shades, COUNT_SCALE, limits)
    heatmap = {
        **_heatmap(shades, COUNT_SCALE, limits),
        "showscale": not numbers,  # else the cells say it, and the scale only takes their room
        "colorbar": {
            "title": {"text": "rows", "side": "top"},
            "tickvals": np.log10(ticks).tolist(),
            "ticktext": [f"{tick:,}" for tick in ticks],
            "thickness": 12,
            "len": min(1.0, 260 / height),
            "y": 1,
            "yanchor": "top",
        },
    }
    texts = [
        [_count_text(state, action, int(counts[s, a]), bool(valid[s, a])) for a, action in enumerate(actions)]
        for s, state in enumerate(states)
    ]
    layout = house_layout(height=height, title=title)
    layout["xaxis"] |= {**_action_axis(actions), "side": "top"}
    layout["yaxis"] |= _state_axis(states)
    keep_width(layout, _map_width(states, len(actions), numbers))
    return go.Figure([heatmap, *_marks(states, actions, valid, supported, texts, numbers)], layout)


def make_q_maps(
    states: Sequence[str],
    actions: Sequence[str],
    learned: FloatArray | None,
    true: FloatArray | None,
    counts: IntArray,
    valid: BoolArray,
    supported: BoolArray,
    chosen: Sequence[int],
) -> go.Figure:
    """Learned Q with the support mask drawn on it; beside it exact Q of that policy and the difference, if both are known.

    Args:
        states: (S,) keys, top to bottom.
        actions: (A,) names.
        learned: (S, A) learned Q, NaN where the learner may not choose, or None where it learns none.
        true: (S, A) exact Q of the policy, or None where no truth is known; one of the two is given.
        counts: (S, A) rows of the log.
        valid: (S, A) pairs that may be chosen.
        supported: (S, A) pairs in the support.
        chosen: (S,) column of the action the policy takes; marked by a triangle.
    """
    panels: list[tuple[str, FloatArray, Scale]] = []
    if learned is not None:
        panels.append(("Learned Q", learned, VALUE_SCALE))
    if true is not None:
        panels.append(("Exact Q of this policy", true, VALUE_SCALE))
    if learned is not None and true is not None:
        panels.append(("Learned minus exact", learned - true, DIFFERENCE_SCALE))
    layout = house_layout(height=figure_height(len(states), actions))
    layout["yaxis"] |= _state_axis(states)
    bound = colour_limit([table for table in (learned, true) if table is not None], supported)
    traces: list[dict[str, Any]] = []
    written: list[dict[str, Any]] = []
    gap = 0.02
    width = (1 - gap * (len(panels) - 1)) / len(panels)
    for i, (title, values, scale) in enumerate(panels):
        x_axis = "x" if i == 0 else f"x{i + 1}"
        start = i * (width + gap)
        layout["xaxis" + x_axis[1:]] = {
            **layout["xaxis"],
            **_action_axis(actions),
            # On top, where a tall map is read first; as the title of its axis the panel's stands above the names, however tilted.
            "side": "top",
            "title": {"text": f"<b>{label(title)}</b>", "standoff": 8},
            "domain": [start, start + width],
            "anchor": "y",
        }
        limit = bound if scale is VALUE_SCALE else largest([values])
        shown = np.where(valid, values, np.nan)
        texts = [
            [
                _q_text(title, state, action, float(shown[s, a]), int(counts[s, a]), bool(supported[s, a]))
                for a, action in enumerate(actions)
            ]
            for s, state in enumerate(states)
        ]
        heatmap = _heatmap(shown, scale, (-limit, limit))
        numbers = _numbers(shown, valid, "{:+z.2f}".format, shown, scale, (-limit, limit))
        written += numbers
        marks = _marks(states, actions, valid, supported, texts, numbers, hatch=i == 0)
        traces += [{**trace, "xaxis": x_axis} for trace in (heatmap, _chosen_marks(chosen, valid), *marks)]
    keep_width(layout, _map_width(states, len(actions), written, n_panels=len(panels), chosen=True))
    return go.Figure(traces, layout)


def make_table_map(
    states: Sequence[str],
    actions: Sequence[str],
    values: FloatArray,
    valid: BoolArray,
    supported: BoolArray,
    texts: list[list[str]],
    *,
    scale: Scale,
    limits: tuple[float, float],
    form: Callable[[float], str],
    title: str = "",
) -> go.Figure:
    """Any table over states and actions as a map: unsupported hatched, invalid blank; every cell can be clicked.

    Args:
        states: (S,) keys, top to bottom.
        actions: (A,) names.
        values: (S, A), NaN for blank cells.
        valid: (S, A) pairs that may be chosen.
        supported: (S, A) pairs in the support.
        texts: (S, A) what hovering says, safe as markup.
        scale: Plotly colour scale.
        limits: lowest and highest value of the scale.
        form: how a number is written in its cell, "{:.0%}".format say.
        title: plain text.
    """
    layout = house_layout(height=figure_height(len(states), actions), title=title)
    layout["xaxis"] |= {**_action_axis(actions), "side": "top"}
    layout["yaxis"] |= _state_axis(states)
    numbers = _numbers(values, valid, form, values, scale, limits)
    keep_width(layout, _map_width(states, len(actions), numbers))
    marks = _marks(states, actions, valid, supported, texts, numbers)
    return go.Figure([_heatmap(values, scale, limits), *marks], layout)


def make_band_map(
    band_titles: Sequence[str], actions: Sequence[str], mean_q: FloatArray, unsupported_share: FloatArray
) -> go.Figure:
    """Many states in few bands: mean learned Q per band and action, hatched where most pairs of the band are unsupported.

    Args:
        band_titles: (R,) what each band holds.
        actions: (A,) names.
        mean_q: (R, A) mean learned Q over the band's states, NaN where none may choose the action.
        unsupported_share: (R, A) share of the band's valid pairs outside the support.
    """
    valid = ~np.isnan(mean_q)
    limit = largest([mean_q])
    texts = [
        [
            f"{label(title, 90)}<br>{label(action)}: mean Q {mean_q[r, a]:+z.3f}, {unsupported_share[r, a]:.0%} unsupported"
            for a, action in enumerate(actions)
        ]
        for r, title in enumerate(band_titles)
    ]
    layout = house_layout(height=20 + figure_height(0, actions) - 3 * ROW_HEIGHT + BAND_HEIGHT * len(band_titles))
    layout["xaxis"] |= {**_action_axis(actions), "side": "top"}
    layout["yaxis"] |= {
        **_state_axis(band_titles),
        "showticklabels": False,
        "title": "bands of states, in the chosen order",
    }
    keep_width(layout, _map_width([], len(actions), []))
    marks = _marks(band_titles, actions, valid, unsupported_share <= 0.5, texts, [], size=BAND_HEIGHT)
    return go.Figure([_heatmap(mean_q, VALUE_SCALE, (-limit, limit)), *marks], layout)


def _heatmap(values: FloatArray, scale: Scale, limits: tuple[float, float]) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "z": narrow(values),
        "colorscale": scale,
        "zmin": limits[0],
        "zmax": limits[1],
        "xgap": 2,
        "ygap": 2,
        "hoverinfo": "skip",
        "showscale": False,
    }


def _action_axis(actions: Sequence[str]) -> dict[str, Any]:
    """Every action is named: many ones stand upright, as tilted names of narrow columns lie on each other."""
    n = len(actions)
    tilt = {"tickangle": -90} if _upright(actions) else {"tickangle": -40} if sum(map(len, actions)) > 60 else {}
    return {
        "tickvals": list(range(n)),
        "ticktext": short_labels(actions, ACTION_LENGTH),
        "autotickangles": [0, -40, -90],  # a few short names turn by themselves where they must
        **tilt,
        "tickfont": {"size": _action_font(n)},
        "range": [-0.5, n - 0.5],
        "showgrid": False,
    }


def _upright(actions: Sequence[str]) -> bool:
    return len(actions) > MOST_TILTED


def _action_font(n_actions: int) -> int:
    """Size in pixels."""
    return 14 if n_actions <= 16 else 11 if n_actions <= 24 else 9


def _state_axis(states: Sequence[str]) -> dict[str, Any]:
    return {
        "tickvals": list(range(len(states))),
        "ticktext": short_labels(states, STATE_LENGTH),
        "range": [len(states) - 0.5, -0.5],
        "showgrid": False,
    }


def _map_width(
    states: Sequence[str], n_actions: int, numbers: list[dict[str, Any]], *, n_panels: int = 1, chosen: bool = False
) -> float:
    """Pixels in which no name of a state and no number of a cell touches its neighbour."""
    longest = max((len(text) for trace in numbers for text in trace["text"]), default=0)
    cell = max(longest * DIGIT_WIDTH + CELL_PADDING + CHOSEN_WIDTH * chosen, BARE_CELL_WIDTH)
    names = min(max(map(len, states), default=0), STATE_LENGTH) * LETTER_WIDTH
    return MAP_MARGIN + names + n_panels * n_actions * cell


def _numbers(
    values: FloatArray,
    valid: BoolArray,
    form: Callable[[float], str],
    shades: FloatArray,
    scale: Scale,
    limits: tuple[float, float],
) -> list[dict[str, Any]]:
    """Numbers in their cells: in the ink that is read best on the cell's colour, in the page's own where there is none.

    Plotly's own choice for the text of a heatmap knows dark grey and white only, and neither is read on a middle colour.

    Args:
        values: (S, A), NaN where nothing is written.
        valid: (S, A) pairs that may be chosen.
        form: how a number is written.
        shades: (S, A) what colours the cell, NaN where it has no colour.
        scale: of the colours.
        limits: lowest and highest shade of the scale.
    """
    if values.size > MAX_TEXT_CELLS:
        return []
    told = valid & np.isfinite(values)
    coloured = told & np.isfinite(shades)
    low, high = limits
    inks = [ink_on(colour_at(scale, (shade - low) / (high - low))) for shade in shades[coloured]]
    return [
        {
            "type": "scatter",
            "x": columns.astype(np.int16),
            "y": rows.astype(np.int16),
            "mode": "text",
            "text": [form(value) for value in values[cells]],
            "textfont": {"size": 12, **ink},
            "selected": KEPT_INK,
            "hoverinfo": "skip",
            "name": "numbers",
        }
        for cells, ink in ((coloured, {"color": inks}), (told & ~coloured, {}))
        if cells.any()
        for rows, columns in [np.nonzero(cells)]
    ]


def _count_text(state: str, action: str, count: int, valid: bool) -> str:
    said = "not valid here" if not valid else ("never seen" if count == 0 else f"seen {counted(count, 'time')}")
    return f"{label(state, 90)}<br>{label(action)}: {said}"


def _q_text(title: str, state: str, action: str, value: float, count: int, supported: bool) -> str:
    number = "no value" if np.isnan(value) else f"{value:+z.4f}"
    seen = "never seen" if count == 0 else f"seen {counted(count, 'time')}"
    mark = "" if supported else " (unsupported)"
    return f"{label(state, 90)}<br>{label(action)}: {seen}{mark}<br>{title} {number}<br>click for the evidence"


def _chosen_marks(chosen: Sequence[int], valid: BoolArray) -> dict[str, Any]:
    rows = [s for s, a in enumerate(chosen) if valid[s, a]]
    return {
        "type": "scatter",
        "x": [chosen[s] - 0.40 for s in rows],
        "y": rows,
        "mode": "markers",
        "marker": {"symbol": "triangle-right", "size": 9, "color": "#111111", "line": {"width": 1, "color": "#ffffff"}},
        "hoverinfo": "skip",
        "name": "chosen",
        "unselected": {"marker": {"opacity": 1}},  # else a click on a cell fades all of them
    }


def _marks(
    states: Sequence[str],
    actions: Sequence[str],
    valid: BoolArray,
    supported: BoolArray,
    texts: list[list[str]],
    numbers: list[dict[str, Any]],
    *,
    hatch: bool = True,
    size: int = ROW_HEIGHT,
) -> list[dict[str, Any]]:
    """Hatching, the numbers on it, and click targets, the same for every map."""
    rows, columns = np.nonzero(valid & ~supported)
    hatching = hatched_cells(list(zip(columns.tolist(), rows.tolist(), strict=True)), hatch=hatch)
    rows, columns = np.nonzero(valid)
    pairs = list(zip(rows.tolist(), columns.tolist(), strict=True))
    targets = click_targets(
        columns.astype(np.int16),
        rows.astype(np.int16),
        [[states[r], actions[c]] for r, c in pairs],
        [texts[r][c] for r, c in pairs],
        size=size,
    )
    return [hatching, *numbers, targets]
