"""The page Shift: exact in every world, weighted or refused elsewhere."""

from tests.pages.conftest import open_page, texts
from tests.pages.test_pages import upload
from tests.traces import AIRLINE, shared_trace


def test_the_naive_learner_leaves_the_log(app):
    open_page(app, "shift", edits="drop:mul:recollect", shown="fqi")
    said = texts(app)
    assert "furthest apart at t = 2" in said
    assert "With a slip in 5% of its steps" in said
    assert "mul in mul: x, y known, which the log never shows" in said
    assert "12.6% of the policy's steps fall outside the support" in said


def test_the_slider_of_slips_moves_the_loss(app):
    open_page(app, "shift", shown="bc")
    app.slider(key="w:slip").set_value(0.2).run()
    assert not app.exception, app.exception
    assert app.session_state["slip"] == 0.2
    assert "With a slip in 20% of its steps" in texts(app)


def test_an_imported_log_is_weighted_or_refused(app):
    upload(app, "airline.json", shared_trace(AIRLINE).read_bytes())
    app.switch_page("pages/shift.py").run()
    assert not app.exception, app.exception
    assert "no exact value" in texts(app)
    assert "can't speak for it" in texts(app)  # a sentence, and the log's own flow
    assert "The flow of actions" in texts(app)


def test_torn_episodes_are_refused(app):
    open_page(app, "shift", edits="drop:mul:transitions")
    assert "need whole episodes" in app.warning[0].value
