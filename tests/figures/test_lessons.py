"""Figures of continuous actions, of the deadly triad, and of grids: they show what they are given and hatch what is missing."""

import json
import re

import numpy as np
import pytest

from offrl_core.deadly_triad import iterate, make_problem
from offrl_core.figures.continuous import Slice, Surface, hatched_spans, make_action_picture, make_log_picture
from offrl_core.figures.deadly_triad import Growth, make_growth
from offrl_core.figures.grid import GridLog, make_grid_values, make_grid_visits
from offrl_core.worlds import Grid


def trace(figure, name):
    return [t for t in figure.data if t.name == name]


# -- continuous actions ---------------------------------------------------------------------------------------

AXIS = np.linspace(-1, 1, 5)
COUNTS = np.array([[0, 3, 3, 0], [0, 0, 2, 0], [0, 1, 1, 1], [0, 5, 5, 0]])


def picture(learned=AXIS * 2):
    surface = Surface(AXIS, AXIS, np.add.outer(AXIS, AXIS), -AXIS)
    cut = Slice(-0.6, AXIS, learned, -AXIS, 0.5, np.array([0, 0, 2, 0]))
    return make_action_picture("x", surface, cut, COUNTS, exact_name="exact", slice_range=(-2, 2))


def boxes(hatching):
    """(left, right, bottom, top) of each box."""
    x, y = np.array(hatching.x, dtype=float).reshape(-1, 6), np.array(hatching.y, dtype=float).reshape(-1, 6)
    return {(a[0], a[1], b[0], b[2]) for a, b in zip(x, y, strict=True)}


def test_exactly_the_bins_without_rows_are_hatched_in_map_and_slice():
    on_map, on_slice = trace(picture(), "unsupported")
    hatched = np.zeros((4, 4), dtype=bool)
    for left, right, bottom, top in boxes(on_map):
        rows, columns = (slice(round((a + 1) * 2), round((b + 1) * 2)) for a, b in ((bottom, top), (left, right)))
        hatched[rows, columns] = True
    assert np.array_equal(hatched, COUNTS == 0)
    assert boxes(on_slice) == {(-1.0, 0.0, -2.0, 2.0), (0.5, 1.0, -2.0, 2.0)}
    assert hatched_spans(np.zeros(4, dtype=bool)) == []


def test_the_log_alone_shows_its_counts_hatched_where_there_are_none():
    figure = make_log_picture("x", COUNTS, -0.6, COUNTS[0])
    assert np.array_equal(np.nan_to_num(figure.data[0].z), COUNTS)
    assert np.array_equal(np.isnan(figure.data[0].z), COUNTS == 0)
    (hatching,) = trace(figure, "unsupported")
    (on_q, _) = trace(picture(), "unsupported")
    assert boxes(hatching) == boxes(on_q)
    (bars,) = trace(figure, "rows")
    assert bars.y.tolist() == COUNTS[0].tolist()
    assert any("0 to 5" in note.text for note in figure.layout.annotations)


def test_the_slice_marks_what_the_policy_picks_on_the_learned_curve():
    (mark,) = trace(picture(), "chosen")
    assert (mark.x[0], mark.y[0]) == (0.5, 1.0)
    (of_truth,) = trace(picture(learned=None), "chosen")
    assert of_truth.y[0] == -0.5
    assert not trace(picture(learned=None), "learned Q")


def test_the_map_is_the_surface_and_the_policy_lies_on_it():
    figure = picture()
    assert figure.data[0].z[0][1] == pytest.approx(-1.5)
    (way,) = trace(figure, "policy")
    assert list(way.x) == pytest.approx(list(-AXIS))
    assert list(way.y) == pytest.approx(list(AXIS))


def test_a_deep_hole_beyond_the_log_does_not_bleach_the_rest():
    values = np.add.outer(AXIS, AXIS)
    values[:, 0] = -500
    surface = Surface(AXIS, AXIS, values, -AXIS)
    cut = Slice(0.0, AXIS, AXIS, AXIS, 0.5, np.array([0, 0, 2, 0]))
    heatmap = make_action_picture("x", surface, cut, COUNTS, exact_name="exact", slice_range=(-2, 2)).data[0]
    assert heatmap.zmin > -10
    assert heatmap.zmax == 2


# -- the deadly triad -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("discount", [0.99, 0.5, 0.2, 0.0])
def test_the_drawn_rate_lies_on_the_iterates(discount):
    problem = make_problem("unlogged_action")
    run = iterate(problem, discount=discount, n_sweeps=200)
    figure = make_growth([Growth("no guard", run.largest)], problem.growth(discount), n_sweeps=200)
    predicted, curve = figure.data
    drawn = dict(zip(np.asarray(curve.x).tolist(), np.asarray(curve.y).tolist(), strict=True))
    assert all(y == pytest.approx(drawn[x], rel=1e-3) for x, y in zip(predicted.x, predicted.y, strict=True))
    if discount == 0.99:
        assert len(predicted.x) > 100
        assert max(drawn.values()) > 1e50
    assert np.isfinite(list(figure.layout.yaxis.range)).all()
    assert "nan" not in json.dumps(figure.to_plotly_json(), default=lambda array: np.asarray(array).tolist()).lower()


# -- grids ----------------------------------------------------------------------------------------------------

GRID = Grid(
    (".#", "SG"),
    {".": "ground", "#": "wall", "S": "start", "G": "<b>goal</b>"},
    {"a": (0, 0), "s": (1, 0)},
    {"up": (-1, 0), "right": (0, 1)},
)
SHOWN = GridLog(
    grid=GRID,
    states=("s",),
    actions=("up", "right", "wait"),
    counts=np.array([[3, 0, 7]]),
    supported=np.array([[True, False, True]]),
    probabilities=np.array([[0.05, 0.95, 0.0]]),
)


def values_figure():
    return make_grid_values(SHOWN, np.array([[-0.5, 0.25, 9.0]]), title="Q", limit=1.0)


def test_each_move_of_a_known_state_is_a_triangle_with_its_number():
    figure = values_figure()
    (numbers,) = trace(figure, "numbers")
    assert sorted(filter(None, numbers.text)) == ["+0.25", "-0.50"]
    assert len([shape for shape in figure.layout.shapes if shape.type == "path"]) == 2
    (counts,) = trace(make_grid_visits(SHOWN, title="visits"), "numbers")
    assert list(filter(None, counts.text)) == ["3"]  # never seen is no number: it is hatched


def test_unsupported_moves_and_states_that_the_log_never_shows_are_hatched():
    (hatching,) = trace(values_figure(), "unsupported")
    tips = (
        np.array(hatching.x, dtype=float).reshape(-1, 5)[:, 0],
        np.array(hatching.y, dtype=float).reshape(-1, 5)[:, 0],
    )
    assert sorted(zip(*tips, strict=True)) == [(0.0, 0.0), (0.0, 0.0), (0.0, 1.0)]  # both moves of a; right in s
    (names,) = trace(values_figure(), "names")
    assert list(names.text) == ["ground", "wall", "&lt;b&gt;goal&lt;/b&gt;"]


def test_arrows_point_where_the_policy_goes():
    (arrows,) = trace(values_figure(), "policy")
    assert list(arrows.marker.angle) == [90.0]
    assert arrows.x[0] > 0


def test_every_known_move_can_be_clicked_and_targets_do_not_overlap():
    figure = values_figure()
    (cells,) = trace(figure, "cells")
    assert [list(pair) for pair in cells.customdata] == [["s", "up"], ["s", "right"]]
    places = np.stack([np.asarray(cells.x), np.asarray(cells.y)], axis=1)
    pixels = np.abs(places[0] - places[1]) * figure.layout.height / 3  # cells are higher than that
    assert pixels.max() >= cells.marker.size * 0.7
    assert "never seen (unsupported)" in cells.text[1]


def test_colours_of_numbers_and_triangles_are_hexadecimal():
    figure = values_figure()
    colours = [shape.fillcolor for shape in figure.layout.shapes if shape.type == "path"]
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
    assert colours[0] != colours[1]
