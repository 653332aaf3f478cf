"""Networks on the page Train: one click for several seeds, curves, one of them stopped, pins and the link, other pages."""

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tests.pages.conftest import APP, open_page, texts
from tests.pages.test_beside import until

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
    app.switch_page("pages/evaluate.py").run()
    assert app.button(key="w:train"), "what learned from all of the log isn't judged on a part of it"
    app.session_state["split"] = "0"
    app.run()
    assert not app.exception
    assert app.dataframe[0].value["policy"].str.startswith("Neural CQL, seed 5").any()


def test_one_seed_is_stopped_and_the_others_go_on(app):
    open_page(app, "train", seed="15", **{**QUICK, "budget": "3000"})
    app.button(key="w:train").click().run()
    until(app, lambda: buttons(app, "seed 16"))
    buttons(app, "seed 16")[0].click().run()
    until(app, lambda: "Seed 16 was stopped before the end" in texts(app))
    assert buttons(app, "seed 15")
    buttons(app, "Stop all")[0].click().run()
    until(app, lambda: "Seed 15, 16, 17 was stopped" in texts(app))
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
