"""Curves of a training over its steps: a line for one seed; median, range and thin single seeds for several.

They are HTML with SVG, not Plotly: they move while a training runs, and a Plotly figure that changes is taken down and built
anew by the browser, which flickers. Colours and dashes are those of :mod:`offrl_core.figures.theme`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..evaluation.curves import Band
from .theme import ACCENT, MUTED, SUPPORTED, TRUTH, UNSUPPORTED, label

WIDTH, HEIGHT = 2000, 1000  # of the drawing, in its own units; the browser stretches it
HOVER_PLACES = 24
LINE_COLOURS = (SUPPORTED, ACCENT, TRUTH, UNSUPPORTED, "#5B5FC7", MUTED)
DASHES = ("", "9 5", "2 4", "12 4 2 4")

_STYLE = """<style>
.orl-grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 14px 36px; }
.orl-curves { font-size: 13px; line-height: 1.3; color: inherit; min-width: 0; }
.orl-curves .orl-heading { font-weight: 600; font-size: 15px; }
.orl-curves .orl-note { opacity: .75; }
.orl-curves .orl-area { position: relative; height: 210px; margin: 10px 16px 40px 58px; }
.orl-curves svg { width: 100%; height: 100%; display: block; overflow: visible; }
.orl-curves polyline, .orl-curves line { fill: none; vector-effect: non-scaling-stroke; }
.orl-curves polyline { stroke-linejoin: round; stroke-linecap: round; }
.orl-curves .orl-tick { position: absolute; right: calc(100% + 6px); transform: translateY(-50%); white-space: nowrap; }
.orl-curves .orl-step { position: absolute; top: calc(100% + 4px); transform: translateX(-50%); white-space: nowrap; }
.orl-curves .orl-unit { position: absolute; top: calc(100% + 20px); right: 0; opacity: .75; }
.orl-curves .orl-legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 0 0 0 58px; padding: 0; }
.orl-curves .orl-legend svg { display: inline-block; width: 26px; height: 10px; margin-right: 6px; }
.orl-curves .orl-legend b { font-weight: 600; font-variant-numeric: tabular-nums; }
</style>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a figure: plain name, band, colour, and the dash that tells it apart without colour."""

    name: str
    band: Band
    colour: str
    dash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """How values stand on the vertical axis.

    Attributes:
        low, high: what it must show at least; None: what the values need.
        percent: whether values are shares.
        whole: whether values are counts.
        logarithmic: sign(v) log(1 + |v|) instead of v: 0 and negative values keep their place.
    """

    low: float | None = None
    high: float | None = None
    percent: bool = False
    whole: bool = False
    logarithmic: bool = False

    def number(self, value: float) -> str:
        """A value as text, three digits."""
        if self.percent:
            return f"{value:.1%}"
        if self.whole:
            return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
        return f"{value:.3g}"

    def place(self, values: FloatArray) -> FloatArray:
        """Values as they stand on the axis, before it is stretched."""
        return np.sign(values) * np.log10(1 + np.abs(values)) if self.logarithmic else values


def make_value_curves(bands: Mapping[str, Band], *, total: int, unit: str, logarithmic: bool) -> str:
    """Learned against exact values, as HTML.

    Args:
        bands: measure -> band, see :data:`offrl_core.evaluation.curves.FRAME_MEASURES`.
        total: last step that may come.
        unit: what steps count.
        logarithmic: whether learned values explode, so that a plain axis would hide the rest.
    """
    lines = (
        ("q_logged", "learned Q, logged pairs", SUPPORTED, ""),
        ("q_unsupported", "learned Q, unsupported pairs", UNSUPPORTED, DASHES[1]),
        ("true_q_logged", "exact Q, logged pairs", TRUTH, ""),
        ("true_q_unsupported", "exact Q, unsupported pairs", TRUTH, DASHES[2]),
    )
    note = "mean over pairs, reward units" + ("; logarithmic axis, as values explode" if logarithmic else "")
    return make_curves(
        _curves(bands, lines), "Values", note, axis=Axis(logarithmic=logarithmic), total=total, unit=unit
    )


def make_choice_curves(bands: Mapping[str, Band], *, total: int, unit: str) -> str:
    """What the policy of each moment achieves, and how often it leaves the log, as HTML."""
    lines = (
        ("success_rate", "episodes solved (exact)", TRUTH, ""),
        ("unsupported_share", "states where it picks an unsupported action", UNSUPPORTED, DASHES[1]),
    )
    axis = Axis(low=0.0, high=1.0, percent=True)
    return make_curves(_curves(bands, lines), "Policy", "shares, the greedy action", axis=axis, total=total, unit=unit)


def make_action_curves(bands: Mapping[str, Band], *, n_actions: int, total: int, unit: str) -> str:
    """How many of the actions the policy uses at all, as HTML: a network that collapses picks the same one everywhere."""
    lines = (("n_actions_used", f"policy uses so many of {n_actions:,} actions", SUPPORTED, ""),)
    axis = Axis(low=0.0, high=float(n_actions), whole=True)
    note = "different greedy actions over all states"
    return make_curves(_curves(bands, lines), "Actions in use", note, axis=axis, total=total, unit=unit)


def make_loss_curves(bands: Mapping[str, Band], titles: Mapping[str, str], *, total: int, unit: str) -> str:
    """Whatever else the learner reports (parts of its loss, mostly), as HTML; logarithmic where parts differ much in size.

    Args:
        bands: measure -> band.
        titles: measure -> how it is called here.
        total: last step that may come.
        unit: what steps count.
    """
    lines = tuple(
        (name, title, LINE_COLOURS[i % len(LINE_COLOURS)], DASHES[i % len(DASHES)])
        for i, (name, title) in enumerate(titles.items())
    )
    curves = _curves(bands, lines)
    sizes = np.abs(_finite(curves))
    logarithmic = len(sizes) > 0 and float(sizes.max()) > 100 * max(float(np.median(sizes)), 0.1)
    note = "as the learner reports them" + ("; logarithmic axis" if logarithmic else "")
    return make_curves(curves, "Loss parts", note, axis=Axis(logarithmic=logarithmic), total=total, unit=unit)


def make_comparison(bands: Mapping[str, Band], title: str, note: str, *, axis: Axis, total: int, unit: str) -> str:
    """The same measure of several trainings, as HTML; ``bands`` is by name of the training."""
    curves = [
        Curve(name=name, band=band, colour=LINE_COLOURS[i % len(LINE_COLOURS)], dash=DASHES[i % len(DASHES)])
        for i, (name, band) in enumerate(bands.items())
    ]
    return make_curves(curves, title, note, axis=axis, total=total, unit=unit)


def _curves(bands: Mapping[str, Band], lines: Sequence[tuple[str, str, str, str]]) -> list[Curve]:
    return [
        Curve(name=title, band=bands[name], colour=colour, dash=dash)
        for name, title, colour, dash in lines
        if name in bands
    ]


def make_curves(curves: Sequence[Curve], title: str, note: str, *, axis: Axis, total: int, unit: str) -> str:
    """A figure as HTML; "" where there is nothing to draw yet.

    Args:
        curves: what to draw, the most important last.
        title: plain text.
        note: what the values are, beside the title.
        axis: of the values.
        total: last step that may come: the right end of the axis.
        unit: what steps count.
    """
    values = _finite(curves)
    if not len(values):
        return ""
    low, high = _range(values, axis)
    last = max(total, *(int(curve.band.steps[-1]) for curve in curves))
    scale = _Scale(axis, low, high, last)
    drawing = "".join(_drawn(curve, scale) for curve in curves)
    grid = "".join(
        f'<line x1="0" x2="{WIDTH}" y1="{scale.y(tick):.0f}" y2="{scale.y(tick):.0f}" stroke="#8884" stroke-width="1"/>'
        for tick in scale.ticks
    )
    ticks = "".join(
        f'<span class="orl-tick" style="top:{scale.y(tick) / HEIGHT:.2%}">{_tick(tick, axis)}</span>'
        for tick in scale.ticks
    )
    steps = "".join(
        f'<span class="orl-step" style="left:{step / last:.2%}">{step:,.0f}</span>'
        for step in _ticks(0, last, 4)
        if step == round(step)
    )
    words = f"{title}: " + "; ".join(f"{curve.name} {_latest(curve.band, axis)}" for curve in curves)
    legend = "".join(
        f"<span>{_swatch(curve)}{label(curve.name)} <b>{_latest(curve.band, axis)}</b></span>" for curve in curves
    )
    return (
        f'<div class="orl-curves" role="img" aria-label="{html.escape(words)}">'
        f'<div><span class="orl-heading">{label(title)}</span> <span class="orl-note">{label(note, 200)}</span></div>'
        f'<div class="orl-area"><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none">'
        f"{grid}{drawing}{_hover(curves, scale, unit)}</svg>"
        f'{ticks}{steps}<span class="orl-unit">{label(unit)}s</span></div>'
        f'<div class="orl-legend">{legend}</div></div>'
    )


def side_by_side(pictures: Sequence[str]) -> str:
    """Figures of this module as one piece of HTML, as many beside each other as fit; empty ones take no place."""
    return f'{_STYLE}<div class="orl-grid">{"".join(pictures)}</div>' if any(pictures) else ""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Steps and values to places in the drawing."""

    axis: Axis
    low: float  # as placed on the axis
    high: float
    last: int

    def y(self, value: float) -> float:
        """Of one value."""
        return float(self.ys(np.array([value]))[0])

    def ys(self, values: FloatArray) -> FloatArray:
        """Of many; NaN stays NaN."""
        return HEIGHT * (self.high - self.axis.place(values)) / (self.high - self.low)

    def xs(self, steps: np.ndarray) -> FloatArray:
        """Of steps."""
        return WIDTH * steps / self.last

    @property
    def ticks(self) -> list[float]:
        """Values with a line and a number."""
        if not self.axis.logarithmic:
            return _ticks(self.low, self.high, 4)
        powers = [10.0**k for k in range(math.ceil(max(abs(self.low), abs(self.high))) + 1)]
        powers = powers[:: max(1, len(powers) // 4)]
        inside = [
            v for v in (*(-p for p in powers), 0.0, *powers) if self.low <= self.axis.place(np.array(v)) <= self.high
        ]
        return sorted(inside)


def _finite(curves: Sequence[Curve]) -> FloatArray:
    """Every number of some curves."""
    if not curves:
        return np.empty(0)
    values = np.concatenate([curve.band.singles.ravel() for curve in curves])
    return values[np.isfinite(values)]


def _range(values: FloatArray, axis: Axis) -> tuple[float, float]:
    """Lowest and highest place on the axis, with some room where the values decide."""
    placed = axis.place(values)
    low, high = float(placed.min()), float(placed.max())
    size = max(abs(low), abs(high), 1.0)
    room = 0.06 * (high - low) if high - low > 1e-9 * size else 0.5 * size
    low = low - room if axis.low is None else min(low, axis.low)
    high = high + room if axis.high is None else max(high, axis.high)
    return low, high


def _ticks(low: float, high: float, n: int) -> list[float]:
    """About ``n`` round numbers between two, at least three of them.

    >>> _ticks(0, 2000, 4), _ticks(-0.13, 0.9, 4)
    ([0.0, 500.0, 1000.0, 1500.0, 2000.0], [0.0, 0.25, 0.5, 0.75])
    """
    rough = (high - low) / n
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [power * size for size in (0.5, 1, 2, 2.5, 5, 10)]
    wanted = next(i for i, step in enumerate(steps) if step >= rough * 0.999)
    for step in reversed(steps[: wanted + 1]):  # a finer one where too few numbers fall between the two
        first = math.ceil(low / step - 1e-9)
        ticks = [round(step * i, 12) + 0.0 for i in range(first, math.floor(high / step + 1e-9) + 1)]
        if len(ticks) >= 3:
            break
    return ticks


def _tick(value: float, axis: Axis) -> str:
    if axis.percent:
        return f"{value:.0%}"
    return f"{value:,.0f}" if axis.whole else f"{value:g}"


def _drawn(curve: Curve, scale: _Scale) -> str:
    """Range, single seeds and median of one curve; of a single seed just the line."""
    band, xs = curve.band, scale.xs(curve.band.steps)
    parts = []
    if len(band.singles) > 1:
        told = ~np.isnan(band.median)
        outline = _points(
            np.concatenate([xs[told], xs[told][::-1]]),
            np.concatenate([scale.ys(band.high[told]), scale.ys(band.low[told])[::-1]]),
        )
        parts.append(f'<polygon points="{outline}" fill="{curve.colour}" fill-opacity="0.16"/>')
        parts += [_line(xs, scale.ys(single), curve, width=1, opacity=0.35) for single in band.singles]
    parts.append(_line(xs, scale.ys(band.median), curve, width=2.5, opacity=1.0))
    return "".join(parts)


def _line(xs: FloatArray, ys: FloatArray, curve: Curve, *, width: float, opacity: float) -> str:
    """A line that is broken where no number is, and a dot where a number stands alone."""
    dash = f' stroke-dasharray="{curve.dash}"' if curve.dash and width > 1 else ""
    stroke = f'stroke="{curve.colour}" stroke-width="{width}" stroke-opacity="{opacity}"{dash}'
    holes = np.flatnonzero(np.isnan(ys))
    parts = []
    for piece_x, piece_y in zip(np.split(xs, holes), np.split(ys, holes), strict=True):
        told = ~np.isnan(piece_y)
        if told.any():
            x, y = piece_x[told], piece_y[told]
            points = _points(x, y) if len(x) > 1 else _points(np.repeat(x, 2), np.repeat(y, 2))
            parts.append(f'<polyline points="{points}" {stroke}/>')
    return "".join(parts)


def _points(xs: FloatArray, ys: FloatArray) -> str:
    return " ".join(f"{x:.0f},{y:.0f}" for x, y in zip(xs.tolist(), ys.tolist(), strict=True))


def _hover(curves: Sequence[Curve], scale: _Scale, unit: str) -> str:
    """Invisible columns that tell the numbers behind them."""
    steps = np.unique(np.concatenate([curve.band.steps for curve in curves]))
    steps = steps[np.unique(np.linspace(0, len(steps) - 1, HOVER_PLACES).round().astype(int))]
    xs = scale.xs(steps)
    edges = np.concatenate([[0.0], (xs[1:] + xs[:-1]) / 2, [float(xs[-1])]])
    columns = []
    for step, left, right in zip(steps.tolist(), edges[:-1], edges[1:], strict=True):
        told = [f"{c.name}: {text_at(c.band, step, scale.axis)}" for c in curves]
        text = html.escape("\n".join([f"{unit} {step:,}", *told]))
        columns.append(
            f'<rect x="{left:.0f}" y="0" width="{max(right - left, 4):.0f}" height="{HEIGHT}" fill="transparent">'
            f"<title>{text}</title></rect>"
        )
    return "".join(columns)


def _latest(band: Band, axis: Axis) -> str:
    return text_at(band, int(band.steps[-1]), axis)


def text_at(band: Band, step: int, axis: Axis) -> str:
    """The last number up to a step; its range over the seeds, where there are several."""
    told = np.flatnonzero(~np.isnan(band.median) & (band.steps <= step))
    if not len(told):
        return "no number"
    i = told[-1]
    middle, low, high = (axis.number(float(values[i])) for values in (band.median, band.low, band.high))
    return middle if low == high else f"{middle} ({low} to {high})"


def _swatch(curve: Curve) -> str:
    dash = f' stroke-dasharray="{curve.dash}"' if curve.dash else ""
    line = f'<line x1="0" x2="26" y1="5" y2="5" stroke="{curve.colour}" stroke-width="3"{dash}/>'
    return f'<svg viewBox="0 0 26 10">{line}</svg>'
