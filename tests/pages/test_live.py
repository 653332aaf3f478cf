"""Networks on the page Train: one click for several seeds, curves, one of them stopped, pins and the link, other pages."""

import json

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import offrl_core as orl
from offrl_core.coverage_edits import edits_from_link
from pages._ui import pins
from tests.pages.conftest import APP, open_page, texts
from tests.pages.test_beside import until
from tests.pages.test_pages import upload

QUICK = {"data": "calculator_without_mul", "learners": "cql_neural", "seeds": "3", "budget": "120"}


@pytest.fixture(autouse=True)
def own_runs(tmp_path, monkeypatch):
    """Stored runs of nobody else are found here."""
    monkeypatch.setenv("OFFRL_RUNS", str(tmp_path))


def buttons(app: AppTest, label: str) -> list:
    return [button for button in app.button if button.label == label]


def test_one_click_trains_all_seeds_and_every_page_takes_them(app):
    open_page(app, "train", seed="5", **QUICK)
    app.button(key="w:train").click().run()
    until(app, lambda: "3 of 3 seeds are done" in texts(app))
    row = app.dataframe[0].value.iloc[0]
    assert (row["learner"], row["done after"]) == ("Neural CQL, seed 5", "120 gradient steps")
    (pin,) = buttons(app, "Pin")
    pin.click().run()
    table = app.dataframe[0].value.iloc[0]
    assert (table["training"], table["seeds"], table["parameters"]) == ("1. Neural CQL", "3", "Steps: 120")
    assert table["episodes solved (exact)"].startswith("6")
    pins = app.session_state["pins"]
    st.cache_resource.clear()

    another = AppTest.from_file(APP, default_timeout=120)
    open_page(another, "train", seed="9", pins=pins, **QUICK)
    assert another.dataframe[0].value.iloc[0].to_dict() == table.to_dict(), "a pin is found again by its link"
    buttons(another, "Unpin 1")[0].click().run()
    assert another.session_state["pins"] == ""
    assert not another.dataframe

    app.switch_page("pages/q_values.py")
    app.session_state["shown"] = "cql_neural"
    app.run()
    assert not app.exception
    assert app.select_slider[0].label == "After gradient step"
    assert "a network makes up a value of its own" in texts(app)
    app.switch_page("pages/evaluate.py").run()
    assert app.button(key="w:train"), "what learned from all of the log isn't judged on a part of it"
    app.session_state["split"] = "0"
    app.run()
    assert not app.exception
    assert app.dataframe[0].value["policy"].str.startswith("Neural CQL, seed 5").any()


def test_one_seed_is_stopped_and_the_others_go_on(app):
    open_page(app, "train", seed="15", **{**QUICK, "budget": "100000"})
    app.button(key="w:train").click().run()
    until(app, lambda: buttons(app, "seed 16"))
    buttons(app, "seed 16")[0].click().run()
    until(app, lambda: "Seed 16 was stopped at gradient step" in texts(app))
    until(app, lambda: "Curves of 2 of 3 seeds" in texts(app))
    assert buttons(app, "seed 15")
    buttons(app, "Stop all")[0].click().run()
    until(app, lambda: "Seeds 15, 16, 17 were stopped" in texts(app))
    assert app.button(key="w:train")


def test_nonsense_in_the_link_is_left_out_with_a_sentence(app):
    open_page(app, "overview", pins="nothing~0", seeds="99", learners="cql_neural")
    said = texts(app)
    assert "sets pins to 'nothing~0'" in said
    assert "sets seeds to '99'" in said
    app.switch_page("pages/train.py").run()
    assert app.number_input(key="w:seeds").value == 8


def test_a_pin_that_is_stored_nowhere_says_so(app):
    open_page(app, "train", pins="cql_neural-0123456789abcdef~0~8")
    assert "no longer stored on this machine: cql_neural-0123456789abcdef" in texts(app)


def test_a_run_that_ends_at_its_first_step_leaves_the_page_alive(app):
    """Rewards beyond single precision: no sign of life was ever finite."""
    steps = [
        {"episode_id": f"{i}", "t": t, "state": {"key": "st"[t]}, "action": {"tool": "ab"[(i + t) % 2]}}
        | {"reward": 1e37 * (i - 4 if t else 1), "terminal": t == 1}
        for i in range(12)
        for t in range(2)
    ]
    upload(app, "huge.jsonl", "\n".join(map(json.dumps, steps)).encode())
    app.session_state["learners"] = "fqi_neural"
    app.session_state["seeds"] = 1
    app.switch_page("pages/train.py").run()
    app.button(key="w:train").click().run()
    until(app, lambda: "Stopped at step 1" in texts(app))
    assert app.dataframe[0].value["done after"][0] == "stopped at the first gradient step"


def test_a_damaged_run_behind_a_pin_counts_as_gone(app, tmp_path):
    dataset = orl.frame(orl.bundled_log("calculator_without_mul"))
    runs = [orl.save_run(orl.train(dataset, "cql_neural", seed=seed, n_steps=20), dataset) for seed in (0, 1)]
    for file in tmp_path.glob(f"{runs[1]}.json"):
        file.write_text("{}")
    open_page(app, "train", pins=f"{runs[0]}~0~2", learners="", data="calculator_without_mul")
    assert app.dataframe[0].value["seeds"][0] == "1"


def test_a_pin_grows_with_its_seeds(app):
    dataset = orl.frame(orl.bundled_log("calculator"))
    models = [orl.train(dataset, "cql_neural", seed=seed, n_steps=20) for seed in (0, 1)]
    first = orl.save_run(models[0], dataset)
    open_page(app, "train", learners="", pins=f"{first}~0~2")
    assert app.dataframe[0].value["seeds"][0] == "1"
    orl.save_run(models[1], dataset)
    app.run()
    assert app.dataframe[0].value["seeds"][0] == "2"


def test_who_only_looks_on_cannot_stop_a_run(app):
    open_page(app, "train", seed="700", **{**QUICK, "budget": "100000"})
    app.button(key="w:train").click().run()
    until(app, lambda: buttons(app, "Stop all"))
    other = AppTest.from_file(APP, default_timeout=120)
    open_page(other, "train", seed="700", **{**QUICK, "budget": "100000"})
    assert all(button.disabled for button in buttons(other, "Stop all"))
    buttons(app, "Stop all")[0].click().run()
    until(app, lambda: "were stopped" in texts(app))


def test_what_a_pinned_training_left_out_is_told_in_sentences():
    told = pins._edits_in_words("drop:mul:recollect")
    assert told == edits_from_link("drop:mul:recollect")[0].sentence
    assert pins._edits_in_words("") == "all of the log"
    assert pins._edits_in_words("melt:mul") == "melt:mul"
