"""The page Ceiling: values, forecast and score, path, measures and curve, in every world and for files nobody knows."""

import pytest

from offrl_core.worlds import WORLDS
from tests.pages.conftest import open_page, texts
from tests.pages.test_pages import ODD_LOGS, upload
from tests.traces import AIRLINE, shared_trace


def test_the_story_is_foretold_and_scored(app):
    open_page(app, "ceiling", edits="drop:mul:recollect")
    said = texts(app)
    assert "would leave the log in 33% of its episodes" in said
    assert "logged episodes walk this path whole" in said
    assert "The forecast was" not in said  # predict first
    app.toggle(key="w:score_forecast").set_value(True).run()
    assert "The forecast was **wrong**" in texts(app)
    app.session_state["deployment"] = "broken"
    app.run()
    assert "The forecast was **right**" in texts(app)


def test_one_family_alone_is_not_scored(app):
    open_page(app, "ceiling", learners="fqi")
    app.toggle(key="w:score_forecast").set_value(True).run()
    assert "at least two families" in texts(app)


def test_the_curve_follows_the_chosen_action(app):
    open_page(app, "ceiling")
    assert app.selectbox(key="w:curve_action").value == "mul"
    app.selectbox(key="w:curve_action").set_value("add").run()
    assert not app.exception, app.exception
    assert app.session_state["curve_action"] == "add"


@pytest.mark.parametrize("world", [name for name, spec in WORLDS.items() if not spec.missing and name != "calculator"])
def test_it_draws_for_every_world(app, world):
    open_page(app, "ceiling", data="generated", gen_world=world, gen_episodes="200", min_count="2")
    assert not app.error
    assert "nan" not in texts(app).lower()


def test_an_imported_log_has_a_ceiling_and_no_truth(app):
    upload(app, "airline.json", shared_trace(AIRLINE).read_bytes())
    app.switch_page("pages/ceiling.py").run()
    assert not app.exception, app.exception
    said = texts(app)
    assert "no exact value" in said
    assert "nobody knows the world behind it" in said
    app.toggle(key="w:score_forecast").set_value(True).run()
    assert not app.exception, app.exception


@pytest.mark.parametrize("name", ODD_LOGS)
def test_odd_logs_get_a_ceiling_or_a_sentence(app, name):
    upload(app, "odd.jsonl", ODD_LOGS[name])
    app.switch_page("pages/ceiling.py").run()
    assert not app.exception, app.exception
    assert bool(app.error) == (name == "no rewards at all")
    if app.error:
        assert "no step of this log has a known reward" in app.error[0].value.replace("\\", "")


def test_a_bound_that_nothing_meets_is_said(app):
    open_page(app, "ceiling", min_count="999999")
    assert "nothing is supported" in app.error[0].value
