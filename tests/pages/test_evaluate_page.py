"""Evaluate: estimates beside the truth, refusals in words, a card, and a rehearsal on fresh logs."""

import pytest

import offrl_core as orl
from tests.pages.conftest import open_page, texts
from tests.pages.test_pages import upload
from tests.traces import AIRLINE, shared_trace


def test_estimates_stand_beside_the_truth_and_a_card_says_whom_to_believe(app):
    open_page(app, "evaluate", learners="bc,fqi_support,return_conditioned")
    table = app.dataframe[0].value
    assert list(table["policy"]) == ["Copy the log (BC)", "FQI inside the log", *table["policy"][2:]]
    dataset = orl.frame(orl.bundled_log("calculator"))
    truth = orl.evaluate(orl.train(dataset, "bc").policy, "calculator", "works", dataset.discount).mean_return
    assert table["exact return"][0] == f"{truth:+.3f}"
    said = texts(app)
    assert "is worth about" in said
    assert "log's own agent" in said


def test_a_policy_that_leaves_the_log_is_refused_in_words(app):
    open_page(app, "evaluate", edits="drop:mul:recollect", learners="fqi")
    table = app.dataframe[0].value
    refused = [column for column in table if table[column][0] == "refused"]
    assert any("importance" in column.lower() for column in refused)
    assert "nan" not in table.to_csv().lower()


def test_an_imported_log_has_no_exact_column(app):
    upload(app, "airline.json", shared_trace(AIRLINE).read_bytes())
    app.switch_page("pages/evaluate.py").run()
    assert not app.exception, app.exception
    assert "exact return" not in app.dataframe[0].value
    assert "no exact value" in texts(app)
    assert not [button for button in app.button if button.label == "Rehearse"]


def test_a_rehearsal_counts_how_often_intervals_hold(app):
    open_page(app, "evaluate", learners="bc", data="generated", gen_episodes="200")
    app.select_slider(key="w:n_logs").set_value(20).run()
    (button,) = [button for button in app.button if button.label == "Rehearse"]
    button.click().run()
    assert not app.exception, app.exception
    tables = [frame.value for frame in app.dataframe if "pairs ranked right" in frame.value]
    assert len(tables) == 1
    shares = tables[0].iloc[:, 0]
    assert all(text == "refused" or text.endswith("of 20") for text in shares)


@pytest.mark.parametrize("learners", ["", "nonsense", "fqi_sampled"])
def test_nothing_to_judge_is_said(app, learners):
    open_page(app, "evaluate", learners=learners)
    assert "Choose learners" in texts(app)
