"""The ledger on the page Q-values: a sentence, a bar for the chosen cell, a map, and refusals in words."""

import re

import pytest

import offrl_core as orl
from tests.pages.conftest import open_page, shown, texts


def test_the_page_says_what_the_value_rests_on_and_when_the_policy_leaves(app):
    open_page(app, "q_values", edits="drop:mul:recollect", cell_state="mul: x known", cell_action="lookup_y")
    labels = [expander.label for expander in app.expander]
    assert any("of this value rests on pairs nobody ever saw" in label for label in labels)
    assert any("33.3% of its episodes leave the support, all at t = 2." in label for label in labels)
    said = texts(app)
    assert "50% guessed" in said
    assert "Shares are taken start by start" in said
    assert "t = 2: **33.3%**" in said


def test_a_value_that_hangs_on_few_rows_is_not_said_to_rest_on_data_alone(app):
    open_page(app, "q_values", shown="fqi_support", data="generated", gen_world="calculator_chain", gen_episodes="300")
    (said,) = [shown(expander.label) for expander in app.expander if "of this value" in expander.label]
    assert "0% of this value rests on pairs nobody ever saw. On the counts," in said
    assert re.search(r"the thinnest is \w+ in .+: [1-9] rows?\.", said)
    app.number_input(key="w:min_count").set_value(10).run()
    assert not any("the thinnest is" in expander.label for expander in app.expander)


def test_the_map_of_what_values_rest_on_can_be_chosen(app):
    open_page(app, "q_values", q_view="ledger")
    assert "Blue: evidence" in texts(app)
    assert not app.select_slider  # the account is that of the final values


@pytest.mark.parametrize("learner", ["fqi", "fqi_support", "cql", "iql", "morel"])
def test_every_learner_with_values_has_an_account(app, learner):
    open_page(app, "q_values", shown=learner, edits="drop:mul:episodes", q_view="ledger")
    assert any("of this value rests" in expander.label for expander in app.expander)


@pytest.mark.parametrize("learner", [name for name, spec in orl.ALGORITHMS.items() if spec.instant])
def test_the_guess_is_asked_for_where_it_does_something(app, learner):
    open_page(app, "q_values", shown=learner)
    asked = any(field.label == "Guess Q₀" for field in app.number_input)
    assert asked == hasattr(orl.ALGORITHMS[learner].config_class(), "default_value")
    values = orl.train(orl.frame(orl.bundled_log("calculator")), learner).q_values is not None
    assert ("no guess Q₀ to set" in texts(app)) == (values and not asked)


@pytest.mark.parametrize("edits", ["", "drop:mul:recollect"])
def test_who_copies_the_log_is_shown_by_its_exact_values(app, edits):
    open_page(
        app, "q_values", shown="bc", edits=edits, cell_state="add: x, y known", cell_action="add", q_view="ledger"
    )
    assert "What stands here is **exact**" in texts(app)
    exact = {metric.label: metric.value for metric in app.metric}
    assert float(exact["Exact Q"]) > 0.85
    assert "Learned Q" not in exact
    app.session_state["deployment"] = "broken"
    app.session_state["cell_state"], app.session_state["cell_action"] = "mul: x, y known", "mul"
    app.run()
    assert not app.exception
    assert float(next(metric.value for metric in app.metric if metric.label == "Exact Q")) < 0


def test_a_grid_shows_the_exact_values_of_who_learned_none(app):
    open_page(app, "q_values", shown="bc", data="generated", world="gridworld", gen_episodes="50")
    assert "What stands here is **exact**" in texts(app)


def test_without_values_and_without_a_world_nothing_is_made_up(app):
    from tests.pages.test_pages import ODD_LOGS, upload

    upload(app, "odd.jsonl", ODD_LOGS["no rewards at all"])
    app.session_state["shown"] = "bc"
    app.switch_page("pages/q_values.py").run()
    assert not app.exception
    assert "nobody knows the truth behind this log" in texts(app)
