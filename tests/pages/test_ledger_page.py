"""The ledger on the page Q-values: a sentence, a bar for the chosen cell, a map, and refusals in words."""

import pytest

from tests.pages.conftest import open_page, texts


def test_the_page_says_what_the_value_rests_on_and_when_the_policy_leaves(app):
    open_page(app, "q_values", edits="drop:mul:recollect", cell_state="mul: x known", cell_action="lookup_y")
    labels = [expander.label for expander in app.expander]
    assert any("of this value rests on pairs nobody ever saw" in label for label in labels)
    assert any("33.3% of its episodes leave the support, all at t = 2." in label for label in labels)
    said = texts(app)
    assert "50% guessed" in said
    assert "t = 2: **33.3%**" in said


def test_the_map_of_what_values_rest_on_can_be_chosen(app):
    open_page(app, "q_values", q_view="ledger")
    assert "Blue: evidence" in texts(app)
    assert not app.select_slider  # the account is that of the final values


@pytest.mark.parametrize("learner", ["fqi", "fqi_support", "cql", "iql", "morel"])
def test_every_learner_with_values_has_an_account(app, learner):
    open_page(app, "q_values", shown=learner, edits="drop:mul:episodes", q_view="ledger")
    assert any("of this value rests" in expander.label for expander in app.expander)
