"""Curves as the browser gets them: every number in its place, holes where no number is, names that are only text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from offrl_core.evaluation.curves import Band, Track, bands_of
from offrl_core.figures.curves import (
    HEIGHT,
    WIDTH,
    Axis,
    Curve,
    _range,
    _ticks,
    make_action_curves,
    make_choice_curves,
    make_comparison,
    make_curves,
    make_loss_curves,
    make_value_curves,
)
from offrl_core.history import Event
from offrl_core.interfaces import Progress


def band(*seeds: list[float], name: str = "q") -> dict[str, Band]:
    """A measure at steps 0, 10, 20… of some seeds."""
    tracks = []
    for values in seeds:
        tracks.append(Track(None))
        signs = (Progress(step=10 * i, total=100, metrics={name: value}) for i, value in enumerate(values))
        tracks[-1].follow(Event(i, progress) for i, progress in enumerate(signs, start=1))
    return bands_of(tracks)


def lines(picture: str) -> list[list[tuple[float, float]]]:
    """Points of every line, as shares of the drawing from the left and from below."""
    found = re.findall(r'<polyline points="([^"]+)"', picture)
    return [
        [(int(x) / WIDTH, 1 - int(y) / HEIGHT) for x, y in (point.split(",") for point in points.split())]
        for points in found
    ]


def drawn(bands: dict[str, Band], axis: Axis, total: int = 20) -> str:
    curves = [Curve(name="Q", band=bands["q"], colour="#000")]
    return make_curves(curves, "Values", "of Q", axis=axis, total=total, unit="sweep")


def test_numbers_stand_where_they_belong() -> None:
    picture = drawn(band([0.0, 0.25, 1.0]), Axis(low=0.0, high=1.0), total=40)
    assert lines(picture) == [[(0.0, 0.0), (0.25, 0.25), (0.5, 1.0)]]
    assert "<b>1</b>" in picture
    assert "sweep 10\nQ: 0.25" in picture


def test_a_number_that_is_not_finite_breaks_the_line_and_is_never_zero() -> None:
    picture = drawn(band([1.0, float("nan"), float("inf"), 0.5]), Axis(low=0.0, high=1.0), total=30)
    assert lines(picture) == [[(0.0, 1.0)] * 2, [(1.0, 0.5)] * 2]
    assert "nan" not in picture.lower()
    assert drawn(band([float("nan")]), Axis()) == ""


def test_several_seeds_are_thin_lines_around_a_median_with_their_range() -> None:
    picture = drawn(band([0.0, 0.5], [0.5, 0.5], [1.0, 0.75]), Axis(low=0.0, high=1.0), total=10)
    assert [line[0][1] for line in lines(picture)] == [0.0, 0.5, 1.0, 0.5]
    assert picture.count("<polygon") == 1
    assert "<b>0.5 (0.5 to 0.75)</b>" in picture


@pytest.mark.parametrize("values", [[-1e6, 0.0, 1e6], [0.5, 3.0, -2e12]])
def test_a_logarithmic_axis_keeps_order_and_sign(values: list[float]) -> None:
    (line,) = lines(drawn(band(values), Axis(logarithmic=True)))
    assert np.array_equal(np.argsort([y for _, y in line]), np.argsort(values))
    assert all(0 <= y <= 1 for _, y in line)


def test_each_figure_shows_what_it_is_told_and_nothing_else() -> None:
    known = {
        name: band([0.25, 0.5], name=name)[name] for name in ("q_logged", "success_rate", "n_actions_used", "loss")
    }
    common = {"total": 10, "unit": "step"}
    assert "learned Q, logged pairs" in make_value_curves(known, logarithmic=False, **common)
    assert "exact" not in make_value_curves(known, logarithmic=False, **common)
    assert "logarithmic axis" in make_value_curves(known, logarithmic=True, **common)
    assert "<b>50.0%</b>" in make_choice_curves(known, **common)
    assert "of 6 actions" in make_action_curves(known, n_actions=6, **common)
    assert "the loss" in make_loss_curves(known, {"loss": "the loss"}, **common)
    assert make_loss_curves(known, {}, **common) == ""
    assert make_choice_curves({}, **common) == ""


def test_parts_of_a_loss_that_differ_much_share_a_logarithmic_axis() -> None:
    bands = band([5e4, 1.0, 1.0])
    assert "logarithmic axis" in make_loss_curves(bands, {"q": "loss"}, total=20, unit="step")
    assert "logarithmic axis" not in make_loss_curves(band([5.0, 1.0]), {"q": "loss"}, total=20, unit="step")


def test_names_are_only_text() -> None:
    hostile = '<img src=x onerror="alert(1)">'
    bands = {hostile: band([1.0, 2.0])["q"]}
    picture = make_comparison(bands, hostile, hostile, axis=Axis(), total=10, unit=hostile)
    found: list[str] = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attributes: found.extend([tag, *(name for name, _ in attributes)])  # type: ignore[method-assign]
    reader.feed(picture)
    assert "svg" in found
    assert not {"img", "script", "onerror"} & set(found)


def test_a_figure_for_the_wire_is_small() -> None:
    seeds = [list(np.random.default_rng(seed).normal(size=3000)) for seed in range(32)]
    assert len(drawn(band(*seeds), Axis(), total=30_000)) < 60_000


@pytest.mark.parametrize("value", [0.0, 1e-12, 1.0, 1e16, -1e12, 1e300])
def test_an_axis_has_room_and_numbers_around_values_of_any_size(value):
    low, high = _range(np.full(3, value), Axis())
    assert low < value < high
    assert len(_ticks(low, high, 4)) >= 3
