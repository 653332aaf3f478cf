"""Pages with a world or problems of their own, and worlds drawn as grids."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from pages._ui import cart
from tests.pages.conftest import APP, open_page, shown, texts


def elements(block):
    for child in getattr(block, "children", {}).values():
        yield child
        yield from elements(child)


def steps_done(app) -> int:
    """Gradient steps so far, as the progress bar says."""
    said = next(element.proto.text for element in elements(app.main) if element.type == "progress")
    return int(re.search(r"([\d,]+) of 6,000", said)[1].replace(",", ""))


def charts(app) -> int:
    return sum(element.type == "plotly_chart" for element in elements(app.main))


def test_the_cart_learns_in_slices_stops_and_goes_on(app):
    open_page(app, "continuous", cart_learning="1")
    assert charts(app) == 4
    first = steps_done(app)
    assert 0 < first < 6000
    app.run()
    second = steps_done(app)
    assert second > first
    app.button(key="w:cart_stop").click().run()
    stopped = steps_done(app)
    app.run()
    assert steps_done(app) == stopped
    app.button(key="w:cart_go_on").click().run()
    assert steps_done(app) > stopped
    assert not app.exception


def test_opening_the_page_trains_nothing_until_somebody_asks(app, monkeypatch):
    begun = []
    start = cart.start_point_training
    monkeypatch.setattr(cart, "start_point_training", lambda *a, **k: begun.append(a) or start(*a, **k))
    open_page(app, "continuous")
    app.session_state["covered_high"] = 0.75
    app.run()
    assert not begun
    assert charts(app) == 2  # the log, and what is so
    assert not [element for element in elements(app.main) if element.type == "progress"]
    learn = app.button(key="w:cart_learn")
    assert learn.proto.type == "primary"
    learn.click().run()
    assert len(begun) == 3
    assert charts(app) == 4
    assert steps_done(app) > 0
    assert not app.exception


def test_what_was_stopped_stays_stopped_in_its_link(app):
    """A reload is a new session with the same address."""
    open_page(app, "continuous", cart_learning="1", cart_episodes="60")
    app.button(key="w:cart_stop").click().run()
    stopped = steps_done(app)
    assert app.query_params["cart_learning"] == "stopped"
    again = open_page(AppTest.from_file(APP, default_timeout=120), "continuous", **dict(app.query_params))
    for _ in range(2):
        again.run()
        assert steps_done(again) == stopped
        assert "stopped:" in next(e.proto.text for e in elements(again.main) if e.type == "progress")
    # Another log, of which nothing was learned: the page is as it was at first.
    again.session_state["cart_episodes"] = 70
    again.run()
    assert charts(again) == 2
    assert again.button(key="w:cart_learn")


def test_when_all_have_learned_the_page_says_what_came_out(app, monkeypatch):
    monkeypatch.setattr("pages._ui.cart.SLICE_SECONDS", 60.0)
    open_page(app, "continuous", cart_learning="1")
    assert steps_done(app) == 6000
    assert not [button for button in app.button if button.key in ("w:cart_stop", "w:cart_go_on")]
    assert "no learner can tell from it" in texts(app)
    table = app.dataframe[0].value.set_index("learner")
    grips, spins = table["worth, wheels keep their grip"], table["worth, wheels spin"]
    naive = "Chase the best value (naive DDPG)"
    assert float(grips[naive]) > float(spins[naive]) + 0.5
    assert f"**{grips[naive]}**" in texts(app)
    assert f"**{spins[naive]}**" in texts(app)
    # The other truth: the same log, so nothing is learned anew.
    app.session_state["cart"] = "grips"
    app.run()
    assert app.dataframe[0].value.set_index("learner")["promises"][naive] == table["promises"][naive]
    app.session_state["covered_high"] = 0.9
    monkeypatch.setattr("pages._ui.cart.SLICE_SECONDS", 0.01)
    app.run()
    assert steps_done(app) < 6000
    assert not app.exception


@pytest.mark.parametrize(
    "params",
    [
        {"covered_low": "0.5", "covered_high": "-0.5"},
        {"covered_low": "nan", "covered_high": "7"},
        {"cart": "flies", "cart_state": "2", "cart_episodes": "-1"},
        {"triad": "square", "triad_discount": "2", "triad_caution": "-1"},
    ],
)
def test_strange_links_are_said_and_mended(app, params):
    for name, value in params.items():
        app.query_params[name] = value
    app.run()
    said = [shown(warning.value) for warning in app.warning]
    for page in ("continuous", "deadly_triad"):
        app.switch_page(f"pages/{page}.py").run()
        assert not app.exception, app.exception
        said += [shown(warning.value) for warning in app.warning]
    assert any("default is used" in sentence for sentence in said)


@pytest.mark.parametrize("problem", ["unlogged_action", "tsitsiklis_van_roy", "bairds_star"])
def test_the_triad_explodes_without_a_guard_and_not_with_a_smaller_discount(app, problem):
    open_page(app, "deadly_triad", triad=problem)
    table = app.dataframe[0].value
    assert list(table["so the error"])[::3] == ["explodes", "dies away"]
    largest = table[next(name for name in table if name.startswith("largest"))]
    assert float(largest[0]) > 1e25
    app.session_state["triad_discount"] = 0.3
    app.run()
    assert app.dataframe[0].value["so the error"][0] == "dies away"
    assert not app.exception


def test_a_grid_world_is_drawn_as_a_grid_or_as_a_table(app):
    open_page(app, "q_values", data="generated", gen_world="gridworld", gen_behavior="careful", gen_episodes="100")
    as_grid = charts(app)
    app.segmented_control(key="w:picture").set_value("table").run()
    assert charts(app) == as_grid - 2  # learned, exact and visits against one figure of maps
    assert "States 1 to" in shown(texts(app))
    assert not app.exception


def test_a_world_without_a_grid_asks_for_no_picture(app):
    open_page(app, "q_values")
    assert not [control for control in app.segmented_control if control.key == "w:picture"]
