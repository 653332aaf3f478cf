"""Figures keep their contracts: hatching, blanks, narrow arrays, harmless labels, and no NaN passed off as 0."""

import itertools
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.evaluation.asked_return import AskedReturns
from offrl_core.evaluation.ceiling import BestPath, CeilingCurve, PathStep
from offrl_core.evaluation.ledger import PARTS
from offrl_core.evaluation.shift import Compounding, FlowLink, compounding_error
from offrl_core.figures.asked_return import make_asked_returns
from offrl_core.figures.ceiling import make_ceiling_curve, make_path, make_value_scale
from offrl_core.figures.estimates import make_estimates
from offrl_core.figures.heatmaps import make_band_map, make_q_maps, make_support_map
from offrl_core.figures.ledger import SHARE_SCALE, make_ledger_bars, make_ledger_map
from offrl_core.figures.overview import make_choice, make_success_by_task
from offrl_core.figures.query import make_bars
from offrl_core.figures.shift import make_compounding, make_distance, make_flow, make_visit_map
from offrl_core.figures.short_labels import short_labels
from offrl_core.figures.theme import (
    COUNT_SCALE,
    DIFFERENCE_SCALE,
    VALUE_SCALE,
    colour_at,
    contrast,
    ink_on,
    label,
    narrow,
)
from offrl_core.figures.theme import SUPPORTED as BLUE
from offrl_core.figures.theme import UNSUPPORTED as ORANGE
from offrl_core.glossary import TERMS

STATES, ACTIONS = ("a", "b"), ("go", "stop", "wait")
COUNTS = np.array([[10, 0, 1], [0, 3, 0]])
VALID = np.array([[True, True, True], [False, True, True]])
SUPPORTED = COUNTS >= 1
Q = np.array([[0.5, 0.0, -0.2], [np.nan, 1.0, 0.3]])


def trace(figure, name):
    return [t for t in figure.data if t.name == name]


def support_map():
    return make_support_map(STATES, ACTIONS, COUNTS, VALID, SUPPORTED)


def q_maps(true=None):
    return make_q_maps(STATES, ACTIONS, Q, true, COUNTS, VALID, SUPPORTED, [0, 1])


def cells_of(hatching):
    """Centres of the framed squares."""
    x, y = np.array(hatching.x, dtype=float), np.array(hatching.y, dtype=float)
    return {(float(x[i] + 0.5), float(y[i] + 0.5)) for i in range(0, len(x), 6)}


def test_unsupported_valid_pairs_are_hatched_and_nothing_else():
    for figure in (support_map(), q_maps()):
        (hatching,) = trace(figure, "unsupported")
        assert cells_of(hatching) == {(1.0, 0.0), (2.0, 1.0)}
        assert hatching.fillpattern.shape == "/"


def test_without_learned_values_the_exact_ones_stand_alone_with_their_marks():
    figure = make_q_maps(STATES, ACTIONS, None, Q, COUNTS, VALID, SUPPORTED, [0, 1])
    assert figure.layout.xaxis.title.text == "<b>Exact Q of this policy</b>"
    assert "xaxis2" not in figure.layout.to_plotly_json()
    (hatching,) = trace(figure, "unsupported")
    assert cells_of(hatching) == {(1.0, 0.0), (2.0, 1.0)}
    assert np.array_equal(np.asarray(figure.data[0].z, dtype=float), Q.astype(np.float32), equal_nan=True)


def test_invalid_and_never_seen_cells_have_no_shade():
    shades = support_map().data[0].z
    assert np.isnan(shades[1, 0])  # invalid
    assert np.isnan(shades[0, 1])  # never seen: hatched, not the colour of one row
    assert shades[0, 0] == pytest.approx(1.0)  # log10 of 10


def test_every_valid_cell_can_be_clicked_and_says_which_it_is():
    for figure in (support_map(), q_maps()):
        (cells,) = trace(figure, "cells")
        assert [list(pair) for pair in cells.customdata] == [[STATES[s], ACTIONS[a]] for s, a in np.argwhere(VALID)]


def test_exact_values_add_two_panels_and_unknown_truth_adds_none():
    assert len([t for t in q_maps(np.zeros((2, 3))).data if t.type == "heatmap"]) == 3
    assert len([t for t in q_maps().data if t.type == "heatmap"]) == 1


def test_a_missing_value_is_blank_and_says_so():
    figure = make_q_maps(STATES, ACTIONS, np.where(Q == 0.3, np.nan, Q), None, COUNTS, VALID, SUPPORTED, [0, 1])
    assert np.isnan(figure.data[0].z[1, 2])
    (cells,) = trace(figure, "cells")
    assert "no value" in cells.text[-1]
    assert "nan" not in json.dumps(list(cells.text)).lower()


def test_the_middle_colour_is_zero():
    heatmap = q_maps().data[0]
    assert heatmap.zmin == -heatmap.zmax


READABLE = 4.5  # WCAG 2.2, success criterion 1.4.3


@pytest.mark.parametrize("scale", [COUNT_SCALE, VALUE_SCALE, DIFFERENCE_SCALE, SHARE_SCALE])
def test_numbers_are_readable_on_every_colour_of_every_scale(scale):
    colours = [colour_at(scale, share) for share in np.linspace(0, 1, 501)]
    assert [colours[0], colours[-1]] == [scale[0][1].lower(), scale[-1][1].lower()]
    assert min(contrast(ink_on(colour), colour) for colour in colours) >= READABLE


@given(st.integers(0, 0xFFFFFF))
def test_there_is_a_readable_ink_for_any_colour(number):
    colour = f"#{number:06x}"
    assert contrast(ink_on(colour), colour) >= READABLE


def test_contrast_is_that_of_the_standard():
    assert contrast("#777777", "#ffffff") == pytest.approx(
        4.48, abs=0.005
    )  # the grey that just fails, in WCAG's own examples
    assert contrast("#ffffff", "#767676") == pytest.approx(4.54, abs=0.005)  # and the one that just passes


def test_a_number_has_the_ink_of_its_own_cell():
    values = np.array([[-1.0, 0.0, 0.5], [np.nan, 1.0, np.nan]])
    figure = make_q_maps(STATES, ACTIONS, values, None, COUNTS, VALID, SUPPORTED, [0, 1])
    (numbers,) = trace(figure, "numbers")
    assert list(numbers.text) == ["-1.00", "+0.00", "+0.50", "+1.00"]
    assert list(numbers.textfont.color) == [ink_on(colour_at(VALUE_SCALE, share)) for share in (0, 0.5, 0.75, 1)]
    assert len(set(numbers.textfont.color)) == 2  # light on the ends, dark in the middle


def test_a_zero_without_a_colour_is_written_in_the_page_s_own_ink():
    coloured, bare = trace(support_map(), "numbers")
    assert list(coloured.text) == ["10", "1", "3"]
    assert list(bare.text) == ["0", "0"]  # valid and never seen
    assert bare.textfont.color is None


def test_a_huge_penalty_on_what_was_never_seen_does_not_bleach_the_rest():
    learned = np.where(SUPPORTED, Q, -200.0)
    figure = make_q_maps(STATES, ACTIONS, learned, None, COUNTS, VALID, SUPPORTED, [0, 1])
    assert figure.data[0].zmax <= 3 * 1.0


def test_arrays_travel_as_typed_arrays_in_the_narrowest_type():
    spec = support_map().to_plotly_json()
    assert spec["data"][0]["z"]["dtype"] == "f4"
    (cells,) = [t for t in spec["data"] if t.get("name") == "cells"]
    assert cells["x"]["dtype"] in ("i1", "i2")


def test_values_beyond_the_narrow_type_stay_finite():
    assert np.isfinite(narrow(np.array([1e100, -1.0]))).all()
    assert narrow(np.array([np.nan, 1.0, -np.inf])).dtype == np.float32


def test_names_from_files_are_shown_and_not_obeyed():
    evil = "<a href='http://example.org'>x</a><b>"
    figure = make_support_map((evil, "b"), (evil, "stop", "wait"), COUNTS, VALID, SUPPORTED)
    assert "<a" not in json.dumps(
        [*figure.layout.yaxis.ticktext, *figure.layout.xaxis.ticktext, *trace(figure, "cells")[0].text]
    )
    assert label(evil).startswith("&lt;a")


def test_choice_hatches_what_was_never_seen_and_names_the_chosen():
    picture = make_choice(["add", "mul"], [-1.0, 0.0], [-1.0, 0.95], [5, 0], chosen="mul")
    add, mul = re.findall(r'<div class="orl-name">(.*?)</div>', picture)
    assert "seen 5 times" in add
    assert "chosen" not in add
    assert "never seen" in mul
    assert "chosen" in mul
    (seen, width_add), (unseen, width_mul) = re.findall(r'class="orl-q (orl-\w+)" style="width:([\d.]+)%', picture)
    assert (seen, unseen) == ("orl-seen", "orl-unseen")
    assert "repeating-linear-gradient" in picture.split(".orl-unseen")[1].split("}")[0]
    # A guess of 0 is a visible bar: bars start at the low end of the axis, here -1.3 of -1.3 to 1.2.
    assert (float(width_add), float(width_mul)) == (12.0, 52.0)
    assert picture.count('class="orl-truth"') == 2


def test_a_choice_without_a_value_says_so_and_draws_nothing_for_it():
    picture = make_choice(["add"], [np.nan], [np.nan], [5], chosen="add")
    assert "no value" in picture
    assert "nan" not in picture
    assert not re.search('class="orl-(q|truth)', picture)


def test_success_bars_hold_the_numbers_and_a_unit():
    picture = make_success_by_task({"BC": {"add": 1.0, "mul": 0.25}}, {"BC": 0.625})
    assert re.findall(r'orl-bar" style="height:([\d.]+)%', picture) == ["100.0", "25.0"]
    assert ">62%<" in picture
    assert "probability" in picture
    assert 'aria-label="Success by task: BC: add 100%, mul 25%"' in picture


def test_a_bar_too_low_to_see_says_its_number():
    picture = make_success_by_task({"BC": {"add": 1.0, "sub": 0.012, "mul": 0.0, "div": 1e-3}}, {"BC": 0.25})
    assert re.findall(r"<span>(.*?)</span>", picture) == ["add", "sub<br>1%", "mul<br>0", "div<br>&lt;1%"]


def test_a_value_of_zero_is_written_as_zero_and_without_a_sign():
    picture = make_choice(ACTIONS, [0.0, -0.001, 0.5], [np.nan] * 3, [0, 5, 5], "wait")
    assert re.findall(r'orl-value"[^>]*>([^<]*)<', picture) == ["0.00", "0.00", "+0.50"]
    figure = make_q_maps(STATES, ACTIONS, np.where(VALID, -0.001, np.nan), None, COUNTS, VALID, SUPPORTED, [0, 1])
    assert "-0.00" not in trace(figure, "numbers")[0].text


def test_names_can_not_become_markup_in_a_picture():
    evil = "<img src=x onerror=alert(1)>\"'"
    for picture in (
        make_choice([evil], [0.0], [0.0], [0], chosen=evil),
        make_success_by_task({evil: {evil: 1.0}}, {evil: 1.0}),
    ):
        assert "<img" not in picture
        assert evil not in picture


def test_bands_say_how_much_they_hold():
    figure = make_band_map(["states 0 to 9"], ACTIONS, np.array([[0.1, np.nan, 0.3]]), np.array([[0.0, 0.0, 0.9]]))
    (hatching,) = trace(figure, "unsupported")
    assert cells_of(hatching) == {(2.0, 0.0)}


def test_bars_of_a_query_are_cut_and_say_so():
    import pandas as pd

    figure = make_bars(pd.DataFrame({"name": [f"n{i}" for i in range(100)], "n": range(100)}), "name", "n")
    assert len(figure.data[0].y) == 60
    assert "first 60 of 100" in figure.layout.xaxis.title.text


def test_a_click_target_is_never_higher_than_its_row():
    """Else it covers the neighbour, and a click opens the wrong one."""
    many = make_band_map([f"band {i}" for i in range(100)], ACTIONS, np.zeros((100, 3)), np.zeros((100, 3)))
    few = q_maps()
    for figure, rows in ((many, 100), (few, 2)):
        (cells,) = trace(figure, "cells")
        assert cells.marker.size * rows <= figure.layout.height


def test_estimates_show_refusals_and_all_that_is_known():
    estimates = {"Importance sampling": (0.5, 0.2, 0.9), "Weighted per-decision importance sampling": None}
    figure = make_estimates(estimates, believed="Importance sampling", truth=1.5, logged=None)
    assert list(figure.data[0].x) == [0.5]
    assert [list(figure.data[0].error_x.array), list(figure.data[0].error_x.arrayminus)] == [[0.4], [0.3]]
    texts = [annotation.text for annotation in figure.layout.annotations]
    assert texts == ["exact +1.500", "refused"]
    low, high = figure.layout.xaxis.range
    assert low < 0.2
    assert high > 1.5
    assert "<br>" in figure.layout.yaxis.ticktext[1]
    nothing = make_estimates({"Importance sampling": None}, believed="", truth=None, logged=None)
    assert nothing.layout.xaxis.range[0] < nothing.layout.xaxis.range[1]


def test_the_log_s_range_is_shaded_and_what_lies_beyond_it_is_hollow():
    asked = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    curve = AskedReturns(
        asked=asked,
        achieved=asked / 2,
        low=asked / 2 - 0.1,
        high=asked / 2 + 0.1,
        success=np.linspace(0, 1, 5),
        return_range=(-1.0, 1.0),
        n_episodes=10,
        n_unfinished=0,
    )
    figure = make_asked_returns(curve, 0.5)
    (inside,), (beyond,) = trace(figure, "achieved"), trace(figure, "achieved, beyond the log")
    assert list(inside.x) == [-1, 0, 1]
    assert list(beyond.x) == [-2, 2]
    assert (inside.marker.symbol, beyond.marker.symbol) == ("circle", "circle-open")
    shaded, dial = figure.layout.shapes
    assert (shaded.type, shaded.x0, shaded.x1) == ("rect", -1.0, 1.0)
    assert (dial.x0, dial.x1) == (0.5, 0.5)
    (asked_for,) = trace(figure, "what was asked")
    assert list(asked_for.x) == list(asked_for.y)


def test_a_ledger_stacks_its_parts_and_marks_their_sum():
    parts = {"seen": -1.0, "default": 0.0, "maxima": 0.75, "rest": 0.0}
    figure = make_ledger_bars({"<b>Q</b>": parts})
    bars = {trace.name: trace for trace in figure.data if trace.type == "bar"}
    assert set(bars) == {PARTS["seen"], PARTS["maxima"]}  # what is nowhere isn't drawn
    assert bars[PARTS["maxima"]].marker.pattern.shape == "x"
    assert bars[PARTS["seen"]].marker.pattern.shape == ""
    assert list(figure.data[-1].x) == [-0.25]
    assert "<b>" not in figure.layout.yaxis.ticktext[0]


def test_a_map_of_guesses_is_blank_where_there_is_no_value():
    shares = np.array([[0.0, 1.0, 0.5], [np.nan, 0.0, np.nan]])
    figure = make_ledger_map(STATES, ACTIONS, shares, COUNTS, VALID, SUPPORTED)
    assert np.isnan(figure.data[0].z[1, 2])
    (cells,) = trace(figure, "cells")
    assert "100% of the value" in cells.text[1]
    assert "no value" in cells.text[-1]


def test_returns_stand_on_one_axis_and_what_is_exact_is_outlined():
    figure = make_value_scale([("<b>log</b>", "logged", 0.2), ("ceiling", "ceiling", 0.5), ("really", "exact", 0.7)])
    assert [text.strip() for text in figure.data[0].text] == ["+0.200", "+0.500", "+0.700"]
    assert figure.data[0].marker.symbol[2] == "diamond-open"
    assert "<b>" not in figure.layout.yaxis.ticktext[0]
    alone = make_value_scale([("ceiling", "ceiling", 0.5)])
    low, high = alone.layout.xaxis.range
    assert low < 0.5 < high


def test_the_thinnest_step_of_a_path_stands_out_by_more_than_colour():
    steps = (PathStep("s<b>", "a", 100, 1.0, "t"), PathStep("t", "b", 3, 0.5, ""))
    path = BestPath(start="s", share=1.0, value=0.0, steps=steps, ending="ended", n_pieces=1, n_whole=3)
    (bars,) = make_path(path).data
    assert list(bars.text) == ["100", "3 (thinnest)"]
    assert bars.marker.color[0] != bars.marker.color[1]
    assert "the episode ends (50%)" in bars.hovertext[1]
    assert "<b>" not in json.dumps(list(bars.hovertext))


def test_a_curve_shows_gaps_where_nothing_is_left_and_no_rounding():
    kept, values = np.array([0.0, 0.5, 1.0]), np.array([np.nan, 0.5, 0.5 + 1e-15])
    parts = {"action": "a", "how": "episodes", "kept": kept, "n_rows": 10 * kept, "values": values}
    figure = make_ceiling_curve(CeilingCurve(**parts, true_values=None, deployment=""))
    assert len(figure.data) == 1
    assert np.isnan(figure.data[0].y[0])
    low, high = figure.layout.yaxis.range
    assert high - low > 0.01
    assert len(make_ceiling_curve(CeilingCurve(**parts, true_values=values, deployment="works")).data) == 2


FLOW = (
    FlowLink(0, "start", True, "a<b>", True, 0.75),
    FlowLink(0, "start", True, "mul", False, 0.25),
    FlowLink(1, "a<b>", True, "over", True, 0.75),
    FlowLink(1, "mul", False, "over", True, 0.25),
)


def names_of_nodes(figure, places=None):
    """Names as they are read: in the diagram, those of the last step in the margin beside it."""
    (diagram,) = figure.data
    beside = iter(note.text for note in figure.layout.annotations)
    names = [text or next(beside) for text in diagram.node.label]
    assert next(beside, None) is None
    return names if places is None else [names[i] for i in places]


def test_a_flow_marks_what_is_unsupported_by_colour_and_cross():
    (diagram,) = make_flow(FLOW).data
    nodes = dict(zip(diagram.node.label, diagram.node.color, strict=True))
    assert nodes["mul ✕"] == ORANGE
    assert nodes["a&lt;b&gt;"] == BLUE
    labels = names_of_nodes(make_flow(FLOW), diagram.link.target)
    orange = [name for name, colour in zip(labels, diagram.link.color, strict=True) if colour.startswith("rgba(224")]
    assert orange == ["mul ✕"]
    assert sum(diagram.link.value) == pytest.approx(2.0)
    assert all(0 < place < 1 for place in (*diagram.node.x, *diagram.node.y))
    assert (diagram.textfont.color, diagram.textfont.shadow) == (None, "none"), "the page's own ink, sharp"


def test_a_flow_of_many_actions_puts_the_rare_ones_together():
    many = [FlowLink(0, "start", True, f"tool {i}", True, 1 / (i + 1)) for i in range(50)]
    (diagram,) = make_flow(many).data
    names = names_of_nodes(make_flow(many))
    assert len(names) == 1 + 4 + 1
    assert "others" in names
    assert sum(diagram.link.value) == pytest.approx(sum(1 / (i + 1) for i in range(50)))


def test_names_of_a_flow_stay_apart():
    """Each action has a name of its own, in full where the mouse is; the last ones have room beside the diagram."""
    tools = ["get_reservation_details", "get_reservation_documents", "over"]
    flow = [
        *(FlowLink(0, "start", True, tool, True, 0.5) for tool in tools[:2]),
        *(FlowLink(1, tool, True, other, True, 0.25) for tool in tools[:2] for other in tools[1:]),
    ]
    figure = make_flow(flow)
    (diagram,) = figure.data
    names = names_of_nodes(figure)
    assert len(set(names[1:3])) == 2
    assert all(len(name) <= 18 for name in names)
    assert [note.text for note in figure.layout.annotations] == names[-2:]
    assert figure.layout.margin.r > 6 * max(map(len, names[-2:]))
    heights = [note.y for note in figure.layout.annotations]
    assert heights == sorted(heights, reverse=True)
    assert "get_reservation_details → get_reservation_documents: 25.0%" in diagram.link.customdata


def test_visits_have_no_shade_where_nobody_goes():
    visits = np.array([[0.5, 0.0, 0.2], [0.0, 1.0, 0.004]])
    figure = make_visit_map(STATES, ACTIONS, visits, VALID, SUPPORTED, title="The log", top=1.0)
    assert [text for numbers in trace(figure, "numbers") for text in numbers.text] == ["0.50", "0.20", "1.00", "≈0"]
    assert np.isnan(figure.data[0].z[0, 1])
    (cells,) = trace(figure, "cells")
    assert "0.500 visits per episode" in cells.text[0]
    assert "unsupported" in cells.text[1]


def test_long_distances_are_cut_and_say_so():
    assert "first 60 of 100" in make_distance(np.zeros(100)).layout.xaxis.title.text
    assert make_distance(np.array([0.5])).layout.xaxis.title.text == "t, the step"
    assert make_distance(np.array([0.5, 1.0])).data[0].x.tolist() == [0, 1]


def test_what_the_slips_are_held_against_is_named_as_it_is_computed(dataset_with_mul):
    """Legend, hover text, tooltip and sentence all name the range of a reward by which both lines are scaled."""
    found = compounding_error(dataset_with_mul, orl.train(dataset_with_mul, "fqi").policy, 0.1, horizon=4)
    worst, alone, _ = make_compounding(found).data
    assert alone.name.endswith("ε T × range")
    assert worst.name == "worst case: min(ε T², T) × range"
    assert alone.name in alone.hovertemplate
    assert "ε T × range" in TERMS["compounding"].equation
    assert "min(ε T², T) × range" in TERMS["compounding"].equation
    assert alone.y[-1] == pytest.approx(0.1 * 4 * found.span)
    assert f"ε T × range = {alone.y[-1]:.3f}" in found.sentence


def test_the_exact_loss_stays_readable_below_the_worst_case():
    steps = np.arange(1, 31)
    found = Compounding(slip=0.1, loss=0.01 * steps, bound=0.1 * steps**2.0, unconnected=0.1 * steps, span=1.0)
    figure = make_compounding(found)
    assert [line.name.split(":")[0] for line in figure.data] == [
        "worst case",
        "if a slip spoiled only its own step",
        "exact loss here",
    ]
    assert figure.layout.yaxis.range[1] < found.bound[-1] / 10


def test_names_that_a_cut_would_confuse_keep_what_tells_them_apart():
    values = itertools.product(
        ("cef3390e", "81ce123c"), ("03a5648a", "2d03db55"), ("c2e4f76c", "7bc94a2d"), ("1.25", "1.5")
    )
    states = [" ".join(f"user_feature_{i}={value}" for i, value in enumerate(row)) for row in values]
    shown = short_labels(states, 44)
    assert len(set(shown)) == len(states)
    assert shown[0] == "…cef3 …03a5 …c2e4 …1.25"
    tools = [f"get_reservation_details_for_user_{i}" for i in range(12)]
    assert short_labels(tools, 24)[11] == "get_rese…ils_for_user_11"
    assert short_labels(["look", "a" * 50], 44) == ["look", "a" * 43 + "…"]  # no need to touch the beginning
    assert "<b>" not in short_labels(["<b>" + "x" * 50 + "1", "<b>" + "x" * 50 + "2"], 20)[0]


@given(
    st.lists(st.tuples(*[st.sampled_from(["red", "green", "a longer value"])] * 3), min_size=1, unique=True),
    st.integers(30, 60),
)
def test_different_states_have_different_labels(rows, limit):
    states = [" · ".join(f"field {i} of the state={value}" for i, value in enumerate(row)) for row in rows]
    shown = short_labels(states, limit)
    assert len(set(shown)) == len(states)
    assert all(len(text) <= limit for text in shown)


@pytest.mark.parametrize("n", [3, 13, 34])
def test_every_action_is_named_and_many_stand_upright(n):
    actions = [f"get_reservation_details_{i}" for i in range(n)]
    every = np.ones((2, n), int)
    maps = (
        make_support_map(STATES, actions, every, every > 0, every > 0),
        make_q_maps(STATES, actions, every * 0.1, None, every, every > 0, every > 0, [0, 1]),
    )
    for figure in maps:
        axis = figure.layout.xaxis
        assert len(set(axis.ticktext)) == n == len(axis.tickvals)
        assert axis.tickangle == (-90 if n > 8 else -40)


def test_a_map_keeps_room_for_each_number_and_a_flow_for_each_name():
    """Where there is less, a page scrolls the figure; nothing shrinks until it overlaps."""

    def width(n_actions, count):
        counts = np.full((2, n_actions), count)
        return make_support_map(STATES, ["act"] * n_actions, counts, counts > 0, counts > 0).layout.meta["min_width"]

    assert width(30, 7) > width(15, 7)
    assert width(15, 1_234) - width(15, 77) == 15 * 3 * 6  # "1,234" has three characters more, of six pixels each
    assert width(300, 1_234) < 300 * 5 * 6  # numbers of so many cells aren't written
    panels = [q_maps(true).layout.meta["min_width"] for true in (None, Q)]
    assert panels[1] > 2 * panels[0]
    short, long = ([FlowLink(0, "start", True, name, True, 1.0)] for name in ("go", "get_reservation"))
    assert make_flow(long).layout.meta["min_width"] > make_flow(short).layout.meta["min_width"]


def test_the_scale_of_counts_is_drawn_only_where_cells_are_too_many_for_numbers():
    many = np.ones((2, 300), int)
    crowded = make_support_map(STATES, [f"act {i}" for i in range(300)], many, many > 0, many > 0)
    assert [figure.data[0].showscale for figure in (support_map(), crowded)] == [False, True]
