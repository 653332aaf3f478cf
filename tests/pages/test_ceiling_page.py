"""The page Ceiling: values, forecast and score, path, measures and curve, in every world and for files nobody knows."""

from tests.pages.conftest import open_page, shown, texts
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


def test_a_world_that_changed_after_the_log_is_named_as_the_reason(app):
    open_page(app, "ceiling", deployment="broken")
    said = texts(app)
    assert "Deployed where mul returns a wrong result, it is worth +0.245" in said
    assert "few rows" not in said
    app.session_state["deployment"] = "works"
    app.run()
    assert "the world has changed" not in texts(app)


def test_one_family_alone_is_not_scored(app):
    open_page(app, "ceiling", learners="fqi")
    app.toggle(key="w:score_forecast").set_value(True).run()
    assert "at least two families" in texts(app)


def test_the_curve_follows_the_chosen_action(app):
    open_page(app, "ceiling")
    assert app.selectbox(key="w:curve_action").value == "mul"
    assert "curve_action" not in app.session_state  # the page's choice, not the visitor's
    app.selectbox(key="w:curve_action").set_value("add").run()
    assert not app.exception, app.exception
    assert app.session_state["curve_action"] == app.selectbox(key="w:curve_action").value == "add"


def test_an_imported_log_has_a_ceiling_and_no_truth(app):
    upload(app, "airline.json", shared_trace(AIRLINE).read_bytes())
    app.switch_page("pages/ceiling.py").run()
    assert not app.exception, app.exception
    said = texts(app)
    assert "no exact value" in said
    assert "nobody knows the world behind it" in said
    app.toggle(key="w:score_forecast").set_value(True).run()
    assert not app.exception, app.exception


def test_unknown_rewards_have_no_ceiling_and_say_so(app):
    upload(app, "odd.jsonl", ODD_LOGS["no rewards at all"])
    app.switch_page("pages/ceiling.py").run()
    assert not app.exception, app.exception
    assert "no step of this log has a known reward" in shown(app.error[0].value)


def test_a_bound_that_nothing_meets_is_said(app):
    open_page(app, "ceiling", min_count="999999")
    assert "nothing is supported" in app.error[0].value
