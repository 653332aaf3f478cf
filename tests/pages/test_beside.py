"""Slow learners run beside the pages: asked for once, shown while they run, stopped on a click, found again by the link."""

import re
import time
from dataclasses import replace

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import offrl_core as orl
from offrl_core.runs import write_run
from offrl_core.training import run_content
from tests.pages.conftest import APP, open_page, texts

QUICK = {"edits": "keep:0.02:0", "params": "fqi_sampled.n_sweeps=20"}
LONG = {"edits": "", "params": "fqi_sampled.n_sweeps=2000"}


@pytest.fixture(autouse=True)
def own_runs(tmp_path, monkeypatch):
    """Stored runs of nobody else are found here."""
    monkeypatch.setenv("OFFRL_RUNS", str(tmp_path))


def until(app: AppTest, met, seconds: float = 90) -> None:
    """Look again and again, as the page does by itself in a browser."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, texts(app)
        time.sleep(0.2)
        app.run()
        assert not app.exception, app.exception


def test_a_slow_learner_waits_for_a_click_finishes_and_is_found_again_by_its_link(app):
    open_page(app, "train", learners="fqi_sampled", seed="7", **QUICK)
    assert not app.dataframe
    app.button(key="w:train").click().run()
    until(app, lambda: app.dataframe)
    assert app.dataframe[0].value.iloc[0]["done after"] == "20 sweeps"
    st.cache_resource.clear()
    another = AppTest.from_file(APP, default_timeout=120)
    open_page(another, "train", learners="fqi_sampled", seed="7", **QUICK)
    assert another.dataframe[0].value.iloc[0]["run"] == app.dataframe[0].value.iloc[0]["run"]


def test_a_slow_learner_can_be_stopped(app):
    open_page(app, "train", learners="fqi_sampled", seed="8", **LONG)
    app.button(key="w:train").click().run()
    until(app, lambda: [button for button in app.button if button.label == "Stop"])
    (stop,) = [button for button in app.button if button.label == "Stop"]
    stop.click().run()
    until(app, lambda: re.search(r"It was stopped (at sweep [\d,]+ of 2,000|before the first sweep)", texts(app)))
    assert not app.dataframe


def test_a_run_that_was_stopped_here_and_finished_elsewhere_is_there(app):
    open_page(app, "train", learners="fqi_sampled", seed="9", params="fqi_sampled.n_sweeps=2000")
    dataset = orl.frame(orl.bundled_log("calculator"))
    job = orl.submit(dataset, "fqi_sampled", seed=9, n_sweeps=2000, owner=app.session_state["w:identity"])
    job.stop()
    assert job.wait(90)
    app.run()
    assert not app.dataframe
    model = orl.train(dataset, "fqi_sampled", seed=9, n_sweeps=20)
    write_run(model, run_content(dataset, "fqi_sampled", replace(model.config, n_sweeps=2000), 9))
    app.run()
    assert app.dataframe[0].value.iloc[0]["run"] == job.run_id


def test_a_training_under_other_choices_is_told_shown_and_stopped(app):
    open_page(app, "train", learners="cql_neural", seeds="1", seed="12", budget="100000")
    app.button(key="w:train").click().run()
    until(app, lambda: buttons(app, "Stop"))
    assert "Also training" not in texts(app)
    app.session_state["seed"] = 13
    app.run()
    assert "Also training: **Neural CQL, 1 seed" in texts(app)
    assert app.button(key="w:train"), "another run is offered"
    open_page(app, "q_values", shown="cql_neural")
    assert "train it on the page Train" in texts(app), "not this one"
    app.switch_page("pages/train.py").run()
    buttons(app, "Show")[0].click().run()
    assert (app.session_state["seed"], app.session_state["learners"]) == (12, "cql_neural")
    assert "Also training" not in texts(app)
    app.switch_page("pages/q_values.py").run()
    assert "is being trained" in texts(app)
    app.switch_page("pages/train.py").run()
    app.session_state["seed"] = 13
    app.run()
    buttons(app, "Stop")[0].click().run()
    until(app, lambda: "Also training" not in texts(app))
    app.session_state["seed"] = 12
    app.run()
    until(app, lambda: "It was stopped" in texts(app))


def buttons(app: AppTest, label: str) -> list:
    return [button for button in app.button if button.label == label]
