"""Changes of a log as text for a link: the same log again, and a sentence for what can't be read or done."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offrl_core.errors import InvalidConfig, InvalidPredicate, NotPossible
from offrl_core.log import Log
from offrl_core.log_changes import JOINT, MOST_CHANGES, changed, changes_from_link, changes_to_link
from offrl_core.reward_columns import StepCosts
from offrl_core.reward_files import read_reward_file
from offrl_core.rewards import JoinRewards, Recipe, RuleRewards, with_rewards

from .helpers import few_examples, make_log

FILE = read_reward_file("results.csv", b"run,passed\na,true\nb,false\n")
COSTS = StepCosts(per_step=0.25, per_error=0.5, per_second=1.0, per_dollar=2.0)
RECIPES: dict[str, Recipe] = {
    "contains": RuleRewards(rule="contains", text='say "ж"', if_true=2.0, if_false=None, if_unknown=-1.0),
    "matches": RuleRewards(rule="matches", text="^ok$", ignore_case=False, costs=COSTS),
    "no_error": RuleRewards(rule="no_error"),
    "last_call": RuleRewards(rule="last_call", costs=StepCosts(per_error=1.0)),
    "called": RuleRewards(rule="called", text="go"),
    "sql": RuleRewards(rule="sql", text="action = 'go' AND t > 0"),
    "join": JoinRewards(file=FILE, on=(("run", "episode_id"),), reward="passed", keep_logged=True, costs=COSTS),
}


@pytest.fixture(scope="module")
def log() -> Log:
    return make_log(
        {"episode_id": e, "t": t, "action": "go", "decision_id": f"{e}{t // 2}", "call_index": t % 2, "latency_ms": 5.0}
        for e in "abc"
        for t in range(4)
    )


def repeated(log: Log, text: str) -> Log:
    for change in changes_from_link(text):
        log = changed(log, change, {FILE.fingerprint: FILE})
    return log


@pytest.mark.parametrize("name", RECIPES)
def test_a_link_makes_the_same_log_again(name: str, log: Log) -> None:
    made = with_rewards(repeated(log, changes_to_link([JOINT])), RECIPES[name])
    again = repeated(log, changes_to_link([JOINT, RECIPES[name].to_json()]))
    assert again.fingerprint == made.fingerprint
    assert again.columns("reward", "reward_components", "action") == made.columns(
        "reward", "reward_components", "action"
    )
    assert again.n_steps == log.n_steps // 2


def test_a_file_that_is_not_there_is_named(log: Log) -> None:
    with pytest.raises(NotPossible, match=r"results\.csv, which isn't loaded"):
        changed(log, RECIPES["join"].to_json(), {})


@pytest.mark.parametrize("text", ["", "no", "{}", "[]", json.dumps([JOINT] * (MOST_CHANGES + 1)), "[" * 10_000])
def test_a_text_that_is_no_list_of_changes_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        changes_from_link(text)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
anything = plain | st.lists(plain, max_size=7) | st.dictionaries(st.text(max_size=2), plain, max_size=2)
broken = st.builds(
    lambda recipe, place, value: [value if i == place else part for i, part in enumerate(recipe)],
    st.sampled_from([recipe.to_json() for recipe in RECIPES.values()]),
    st.integers(0, 6),
    anything,
)


@given(anything | broken | broken.map(lambda recipe: recipe[:-1]))
@few_examples
def test_a_strange_change_is_done_or_refused_with_a_sentence(log: Log, change: Any) -> None:
    refused = ""
    try:
        assert changed(log, change, {FILE.fingerprint: FILE}).n_steps
    except (InvalidConfig, InvalidPredicate, NotPossible) as error:
        refused = str(error)
    assert not refused or refused.endswith(".")
