"""One look for all figures: colour means something, and never alone.

Colours are from the palette of Okabe & Ito (2008), told apart by readers with any common colour vision. Unsupported is
orange *and* hatched, supported is blue and plain, truth is green and outlined. Backgrounds stay transparent and text keeps
the page's colour, so that one figure serves light and dark.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import BoolArray, FloatArray

SUPPORTED = "#3A8DC4"
UNSUPPORTED = "#E08A1E"
TRUTH = "#0E9F78"
MUTED = "#8A93A0"
ACCENT = "#C0589A"
HATCH = "#7A4A00"

# Counts: light to dark blue. Values: grey below, blue above: orange stays with what was never seen.
Scale = list[list[Any]]  # of (share, "#rrggbb"), as Plotly takes it
COUNT_SCALE: Scale = [[0.0, "#DCEBF7"], [0.5, "#6AAED6"], [1.0, "#0B4F8A"]]
VALUE_SCALE: Scale = [[0.0, "#4A4F57"], [0.25, "#A2A7AF"], [0.5, "#ECECEA"], [0.75, "#72AEDB"], [1.0, "#0B4F8A"]]
DIFFERENCE_SCALE: Scale = [[0.0, "#0A6E57"], [0.25, "#6CC0A6"], [0.5, "#ECECEA"], [0.75, "#D58CB9"], [1.0, "#84286A"]]
# Only black and white leave no colour without a readable ink: one of them always has a contrast of 4.58 or more.
INKS = ("#000000", "#ffffff")
# For traces of numbers: a click on a figure pales what wasn't clicked, but not where a colour is given for what was.
KEPT_INK = {"textfont": {"color": INKS[0]}}


def colour_at(scale: Scale, share: float) -> str:
    """The colour at a share of the way through a scale, between its stops as Plotly draws it.

    >>> colour_at([[0.0, "#000000"], [1.0, "#ff8000"]], 0.5)
    '#804000'
    """
    stops = [stop for stop, _ in scale]
    parts = zip(*(_channels(colour) for _, colour in scale), strict=True)
    return "#" + "".join(f"{round(np.interp(share, stops, part)):02x}" for part in parts)


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21; text asks for 4.5 (WCAG 2.2, success criterion 1.4.3).

    >>> contrast("#ffffff", "#000000")
    21.0
    """
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def ink_on(colour: str) -> str:
    """Black or white, whichever is read better on a colour.

    >>> ink_on("#6AAED6"), ink_on("#0B4F8A")
    ('#000000', '#ffffff')
    """
    return max(INKS, key=lambda ink: contrast(ink, colour))


def _luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour, 0 to 1 (WCAG 2.2)."""
    shares = [channel / 255 for channel in _channels(colour)]
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def label(text: str, limit: int = 60) -> str:
    """A text as a safe label: Plotly reads labels as markup, and names come from other people's files."""
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return html.escape(text, quote=False)


def labels(texts: Sequence[str], limit: int = 60) -> list[str]:
    """:func:`label` for many."""
    return [label(text, limit) for text in texts]


def house_layout(*, height: int, title: str = "") -> dict[str, Any]:
    """Layout shared by all figures; ``title`` is plain text."""
    # Figures are read, not zoomed: without fixed ranges a drag would push what is drawn out of sight.
    axis = {"automargin": True, "zeroline": False, "fixedrange": True}
    return {
        # A template of next to nothing: the page's own theme colours text and grid. Plotly's default one is slow to copy
        # about, and Plotly puts it in the place of an empty one.
        "template": {"layout": {"hovermode": "closest"}},
        "height": height,
        "title": {"text": label(title, 200), "font": {"size": 16}, "x": 0, "xanchor": "left"} if title else None,
        "margin": {"l": 8, "r": 8, "t": 44 if title else 16, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 14},
        "hoverlabel": {"font": {"size": 13}},
        "legend": {"orientation": "h", "y": -0.18, "x": 0},
        "showlegend": False,
        "dragmode": False,
        "xaxis": dict(axis),
        "yaxis": dict(axis),
    }


def keep_width(layout: dict[str, Any], pixels: float) -> None:
    """Say how wide a figure must be to be read: in a narrower place it is to be scrolled sideways, not shrunk."""
    layout["meta"] = {"min_width": round(pixels)}


def narrow(values: FloatArray) -> np.ndarray:
    """float32 for the wire: half the bytes, and more digits than a colour can show. Values too large for it stay as they are."""
    fits = largest([values]) <= float(np.finfo(np.float32).max)
    return np.ascontiguousarray(values, dtype=np.float32 if fits else np.float64)


def colour_limit(tables: Sequence[FloatArray], supported: BoolArray) -> float:
    """Value of the darkest colour of several (S, A) tables of Q, the same on both sides of 0.

    A learner may punish what it never saw by far more than anything else is worth; that must not bleach the rest.
    """
    return min(largest(tables), 3 * largest([table[supported] for table in tables]))


def largest(tables: Sequence[FloatArray]) -> float:
    """Largest absolute finite value."""
    finite = [np.abs(table[np.isfinite(table)]) for table in tables]
    return max([float(values.max()) for values in finite if values.size] + [1e-9])


def hatched_cells(cells: Sequence[tuple[float, float]], *, hatch: bool = True) -> dict[str, Any]:
    """One trace that frames unit squares around (column, row) centres and hatches them; colour is never the only sign."""
    x: list[float | None] = []
    y: list[float | None] = []
    for column, row in cells:
        x += [column - 0.5, column + 0.5, column + 0.5, column - 0.5, column - 0.5, None]
        y += [row - 0.5, row - 0.5, row + 0.5, row + 0.5, row - 0.5, None]
    filling = {
        "fill": "toself",
        "fillcolor": "rgba(224,138,30,0.10)",
        "fillpattern": {"shape": "/", "fgcolor": UNSUPPORTED, "size": 9, "solidity": 0.2, "fillmode": "overlay"},
    }
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "lines",
        "line": {"width": 2, "color": UNSUPPORTED, "dash": "solid" if hatch else "dot"},
        "hoverinfo": "skip",
        "name": "unsupported",
        **(filling if hatch else {}),
    }


CLICK_TARGETS = "cells"  # name of the markers that can be clicked, and say where they are


def click_targets(
    columns: np.ndarray, rows: np.ndarray, customdata: list[list[str]], texts: list[str], size: int
) -> dict[str, Any]:
    """Transparent square markers above a heatmap: a heatmap itself reports no click to the page."""
    return {
        "type": "scatter",
        "x": columns,
        "y": rows,
        "mode": "markers",
        "marker": {"symbol": "square", "size": size, "color": "rgba(0,0,0,0)", "line": {"width": 0}},
        "customdata": customdata,
        "text": texts,
        "hovertemplate": "%{text}<extra></extra>",
        "name": CLICK_TARGETS,
        "selected": {"marker": {"color": "rgba(0,0,0,0)"}},
        "unselected": {"marker": {"color": "rgba(0,0,0,0)"}},
    }
