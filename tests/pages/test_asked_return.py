"""A learner that is asked for a return: trained beside the page, then asked by a dial, without training anew."""

import pytest

from tests.pages.conftest import open_page, texts
from tests.pages.test_beside import until

LINK = {"learners": "decision_transformer", "seed": "7", "data": "calculator"}
PARAMS = "decision_transformer.n_steps=60,decision_transformer.n_heads=2,decision_transformer.batch_size=32"


@pytest.fixture(autouse=True)
def own_runs(tmp_path, monkeypatch):
    """Stored runs of nobody else are found here."""
    monkeypatch.setenv("OFFRL_RUNS", str(tmp_path))


def test_it_is_trained_once_and_asked_for_more_and_less(app):
    open_page(app, "train", params=PARAMS, **LINK)
    app.button(key="w:train").click().run()
    until(app, lambda: app.dataframe)
    row = app.dataframe[0].value.iloc[0]
    assert row["success, mul works"] == "≈ 100% [99%, 100%]"
    assert row["estimate from the log (WIS)"] == "refused"
    said = texts(app)
    assert "Asked for **+0.891**, it gets **+0.891**" in said
    assert "this one looks back" in said
    app.slider(key="w:asked").set_value(0.0).run()
    assert not app.exception
    assert "Asked for **-1.049**" in texts(app)
    assert "it gets **+0.891**" not in texts(app)
    app.slider(key="w:asked").set_value(1.25).run()
    assert "No episode of the log returned more than +0.891, so this is a guess" in texts(app)


def test_torn_episodes_are_refused_in_a_sentence(app):
    open_page(app, "train", params=PARAMS, edits="drop:mul:transitions", **LINK)
    app.button(key="w:train").click().run()
    until(app, lambda: "took single steps out of them" in texts(app))


@pytest.mark.parametrize("page", ["evaluate", "q_values", "overview"])
def test_other_pages_go_on_without_it(app, page):
    open_page(app, page, params=PARAMS, shown="decision_transformer", **LINK)
    assert not app.exception
