"""Coverage edits: three faces that agree. Tokens round-trip, the SQL keeps what a plain recount keeps, sentences say it."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.behavior import BEHAVIORS, behavior_policy
from offrl_core.coverage_edits import (
    EDITS,
    VERSION_COLUMNS,
    CapVisits,
    CoverageEdit,
    DropAction,
    DropWhere,
    KeepFraction,
    KeepRest,
    MinReturn,
    OnlyValue,
    edits_from_link,
    edits_to_link,
    parse_token,
)
from offrl_core.dataset import Dataset
from offrl_core.errors import EmptyDataset, InvalidEdit, InvalidPredicate
from offrl_core.log import Log, content_hash
from offrl_core.worlds import make_world

from .helpers import Row, episode, few_examples, framed_by_hand, make_log, random_rows

# Anything but lone surrogates, which can't stand in an address.
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["a:b", "a,b", "it's", '"', "%2C", "умножить", "🧮", "'); DROP TABLE steps; --", "a+b c"]
)
conditions = st.sampled_from(
    [
        "task = 'mul'",
        "reward > 0 AND t IN (1, 2)",
        "task = 'it''s, 5:30 🧮'",
        "tool IS NULL OR latency_ms >= 1e3",
        "state_key LIKE 'a%'",
    ]
)
hows = st.sampled_from(["transitions", "episodes", "recollect"])
seeds = st.integers(0, 2**31)

ANY_EDIT = {
    DropAction: st.builds(DropAction, any_text, st.just("") | conditions, hows),
    DropWhere: st.builds(DropWhere, conditions, st.sampled_from(["transitions", "episodes"])),
    KeepFraction: st.builds(KeepFraction, st.floats(0, 1), seeds),
    KeepRest: st.builds(KeepRest, st.floats(0, 1), seeds),
    MinReturn: st.builds(MinReturn, st.floats(allow_nan=False, allow_infinity=False)),
    OnlyValue: st.builds(OnlyValue, st.sampled_from(VERSION_COLUMNS), any_text),
    CapVisits: st.builds(CapVisits, st.integers(1, 10**9), seeds),
}
any_edit: st.SearchStrategy[CoverageEdit] = st.one_of(*ANY_EDIT.values())


# -- tokens ---------------------------------------------------------------------------------------------------


def test_every_edit_is_drawn_below() -> None:
    assert set(EDITS.values()) == set(ANY_EDIT)
    assert all(kind == edit.kind for kind, edit in EDITS.items())


@given(any_edit)
def test_a_token_is_read_back_as_the_same_edit(edit: CoverageEdit) -> None:
    assert parse_token(edit.token) == edit
    assert parse_token(edit.token).token == edit.token
    assert "," not in edit.token
    assert edit.sentence.endswith(".")
    assert edit.sentence[0].isupper()


@given(st.lists(any_edit, max_size=4))
def test_a_link_is_read_back_as_the_same_edits(edits: list[CoverageEdit]) -> None:
    assert edits_from_link(edits_to_link(edits)) == tuple(edits)


@pytest.mark.parametrize(
    ("token", "shape"),
    [
        ("drop", "drop:ACTION:HOW[:CONDITION]"),
        ("drop:mul:episodes:t = 1:t = 2", "drop:ACTION:HOW[:CONDITION]"),
        ("where:episodes", "where:HOW:CONDITION"),
        ("keep", "keep:FRACTION[:SEED]"),
        ("keep:half", "keep:FRACTION[:SEED]"),
        ("keep:0.5:x", "keep:FRACTION[:SEED]"),
        ("keep:0.5:1:2", "keep:FRACTION[:SEED]"),
        ("minreturn", "minreturn:BOUND"),
        ("minreturn:1:2", "minreturn:BOUND"),
        ("only:task", "only:COLUMN:VALUE"),
        ("cap:1.5", "cap:MAX[:SEED]"),
        ("cap:", "cap:MAX[:SEED]"),
        ("cap:1:2:3", "cap:MAX[:SEED]"),
    ],
)
def test_a_bad_token_is_told_the_shape(token: str, shape: str) -> None:
    with pytest.raises(InvalidEdit, match=re.escape(f"can't be read; expected {shape}.")):
        parse_token(token)


def test_what_a_token_may_leave_out_has_a_default() -> None:
    assert parse_token("drop:mul") == DropAction("mul")
    assert parse_token("keep:0.5") == KeepFraction(0.5)
    assert parse_token("cap:3") == CapVisits(3)


@pytest.mark.parametrize(
    ("token", "complaint"),
    [
        ("explode:mul", "known are drop, where, keep"),
        ("", "known are drop"),
        ("drop:mul:gently", "transitions"),
        ("where:recollect:t = 1", "transitions or episodes"),
        ("keep:1.5", "between 0 and 1"),
        ("keep:nan", "between 0 and 1"),
        ("minreturn:nan", "finite"),
        ("minreturn:-inf", "finite"),
        ("only:reward:1", "choose from behavior_policy"),
        ("cap:0", "at least 1"),
    ],
)
def test_a_value_out_of_range_is_refused_with_a_sentence(token: str, complaint: str) -> None:
    with pytest.raises(InvalidEdit, match=complaint):
        parse_token(token)


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "t = 1; DROP TABLE steps",
        "t IN (SELECT 1)",
        "t = 1) OR (1 = 1",
        "no_such_column = 1",
        "1 = 1 UNION SELECT 1",
    ],
)
def test_a_condition_that_is_no_plain_expression_is_refused(condition: str) -> None:
    with pytest.raises(InvalidPredicate):
        DropWhere(condition)
    if condition:
        with pytest.raises(InvalidPredicate):
            parse_token("drop:mul:episodes:" + condition.replace(":", "%3A"))


def test_sentences_name_their_subject() -> None:
    assert "mul" in DropAction("mul").sentence
    assert "whole episodes" in DropAction("mul").sentence
    assert "the other steps of their episodes stay" in DropAction("mul", how="transitions").sentence
    assert "collected again by an agent that never calls mul" in DropAction("mul", how="recollect").sentence
    assert "task = 'add'" in DropAction("mul", "task = 'add'").sentence.replace("(", "").replace(")", "")
    assert "reward" in DropWhere("reward > 0").sentence
    assert "25 %" in KeepFraction(0.25, seed=7).sentence
    assert "seed 7" in KeepFraction(0.25, seed=7).sentence
    assert "-0.5" in MinReturn(-0.5).sentence
    assert "behavior policy is gpt" in OnlyValue("behavior_policy", "gpt").sentence
    assert "1,000" in CapVisits(1000).sentence


# -- what is kept, against a plain recount --------------------------------------------------------------------

Identity = tuple[str, int]


def kept(steps: list[Row] | Log, *edits: CoverageEdit) -> set[Identity]:
    """(episode, t) of the rows that stay; empty where nothing does."""
    try:
        dataset = orl.frame(steps if isinstance(steps, Log) else make_log(steps), edits=edits)
    except EmptyDataset:
        return set()
    sql = f"SELECT episode_id, t FROM ({dataset.relation})"
    found = [tuple(row) for row in dataset.rows(sql)]
    assert len(found) == len(set(found)) == dataset.n_transitions
    return set(found)  # type: ignore[arg-type]


def identities(rows: list[Row]) -> set[Identity]:
    return {(row["episode_id"], row["t"]) for row in rows}


def without_episodes(rows: list[Row], goes: Any) -> list[Row]:
    """Rows of the episodes that hold no row for which ``goes`` is true."""
    gone = {row["episode_id"] for row in rows if goes(row)}
    return [row for row in rows if row["episode_id"] not in gone]


@settings(few_examples, max_examples=8)
@given(random_rows())
def test_each_edit_keeps_what_a_plain_recount_keeps(rows: list[Row]) -> None:
    log, rows = make_log(rows), framed_by_hand(rows)

    def left(row: Row) -> bool:
        return bool(row["action"] == "left")

    def left_at_a(row: Row) -> bool:
        return bool(left(row) and row["task"] == "a")

    def good(row: Row) -> bool:
        return bool(row["reward"] is not None and row["reward"] > 0)

    recounts: dict[CoverageEdit, list[Row]] = {
        DropAction("left", how="transitions"): [row for row in rows if not left(row)],
        DropAction("left", how="episodes"): without_episodes(rows, left),
        DropAction("left", "task = 'a'", "transitions"): [row for row in rows if not left_at_a(row)],
        DropAction("left", "task = 'a'", "episodes"): without_episodes(rows, left_at_a),
        DropWhere("reward > 0", "transitions"): [row for row in rows if not good(row)],
        DropWhere("reward > 0"): without_episodes(rows, good),
        DropWhere("state_key = 's1'"): without_episodes(rows, lambda row: row["state_text"] == "s1"),
        MinReturn(0.5): [row for row in rows if (row["episode_return"] or -1) >= 0.5],
        OnlyValue("behavior_policy", "new"): without_episodes(rows, lambda row: row["behavior_policy"] != "new"),
        OnlyValue("task", "a"): without_episodes(rows, lambda row: row["task"] != "a"),
        KeepFraction(1.0): rows,
        KeepFraction(0.0): [],
        KeepRest(0.0): rows,
        KeepRest(1.0): [],
        CapVisits(10**9): rows,
    }
    for edit, recount in recounts.items():
        assert kept(log, edit) == identities(recount), edit.sentence


@few_examples
@given(random_rows(), st.integers(1, 4))
def test_a_cap_leaves_so_many_rows_of_each_state(rows: list[Row], cap: int) -> None:
    stays = kept(rows, CapVisits(cap))
    visits = Counter(row["state_text"] for row in rows)
    left = Counter(row["state_text"] for row in rows if (row["episode_id"], row["t"]) in stays)
    assert left == {state: min(n, cap) for state, n in visits.items()}


def rows_kept(dataset: Dataset, edit: CoverageEdit) -> set[int]:
    """Row numbers that an edit keeps of a log."""
    edited = orl.frame(dataset.log, edits=[edit])
    return {row for (row,) in edited.rows(f"SELECT row FROM ({edited.relation})")}


def test_larger_fractions_and_caps_keep_all_that_smaller_ones_keep(dataset_with_mul: Dataset) -> None:
    for edits in (
        [KeepFraction(f, 3) for f in (0.01, 0.1, 0.5, 0.9)],
        [CapVisits(c, 3) for c in (1, 5, 50, 500)],
    ):
        kept_by_each = [rows_kept(dataset_with_mul, edit) for edit in edits]
        assert all(less < more for less, more in pairwise(kept_by_each))


def test_a_fraction_is_about_that_fraction_and_its_seed_matters(dataset_with_mul: Dataset) -> None:
    one, other = (orl.frame(dataset_with_mul.log, edits=[KeepFraction(0.3, seed)]) for seed in (0, 1))
    for dataset in (one, other):
        assert abs(dataset.n_episodes - 900) < 4 * (3000 * 0.3 * 0.7) ** 0.5
        assert dataset.n_transitions == 4 * dataset.n_episodes, "whole episodes"
    assert rows_kept(one, KeepFraction(0.3, 0)) != rows_kept(one, KeepFraction(0.3, 1))


# -- composition ----------------------------------------------------------------------------------------------


def test_edits_compose_in_order_and_say_what_each_left(dataset_with_mul: Dataset) -> None:
    first, then = DropWhere("task = 'mul'", "transitions"), CapVisits(10)
    dataset = orl.frame(dataset_with_mul.log, edits=[first, then])
    n_other = 4 * dataset_with_mul.log.rows("SELECT count(*) FROM steps WHERE t = 0 AND task <> 'mul'")[0][0]
    assert dataset.stages == (
        (3000, 12_000),
        (n_other / 4, n_other),
        (dataset.n_episodes, dataset.n_transitions),
    )
    assert dataset.visitation_counts.sum(axis=1).max() <= 10
    assert dataset.tasks == ["add", "sub"]


def test_the_order_matters() -> None:
    """Steps dropped first can't drag their episode along afterwards."""
    rows = episode("e", ("s", "a", 0.0), ("s", "b", 0.0)) + episode("f", ("s", "b", 1.0))
    steps, episodes = DropAction("b", how="transitions"), DropWhere("action = 'b'", "episodes")
    assert kept(rows, steps, episodes) == {("e", 0)}
    assert kept(rows, episodes, steps) == set()


def test_returns_are_those_of_the_whole_episode() -> None:
    rows = episode("e", ("s", "a", 1.0), ("s", "b", -3.0)) + episode("f", ("s", "a", 1.0))
    assert kept(rows, DropAction("b", how="transitions"), MinReturn(0.0)) == {("f", 0)}


def test_a_run_that_changed_its_policy_halfway_keeps_neither_half() -> None:
    rows = episode("e", ("s", "a", 0.0), ("s", "b", 0.0), behavior_policy="old") + episode(
        "f", ("s", "a", 0.0), behavior_policy="new"
    )
    rows[1]["behavior_policy"] = "new"
    assert kept(rows, OnlyValue("behavior_policy", "old")) == set()
    assert kept(rows, OnlyValue("behavior_policy", "new")) == {("f", 0)}


# -- transitions, episodes, re-collection ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit", [DropAction("add", how="transitions"), DropWhere("t = 1", "transitions"), CapVisits(50)]
)
def test_torn_sequences_are_known_and_importance_sampling_refuses_them(
    edit: CoverageEdit, dataset_with_mul: Dataset
) -> None:
    dataset = orl.frame(dataset_with_mul.log, edits=[edit])
    assert not dataset.whole_sequences
    policy = behavior_policy(make_world("calculator"), BEHAVIORS["logger"])
    for estimator in orl.ESTIMATORS:
        guess = orl.estimate(policy, dataset, estimator)
        assert guess.value is guess.low is guess.high is None
        assert edit.sentence in guess.refusal
        assert "whole episodes" in guess.refusal


@pytest.mark.parametrize(
    "edit",
    [
        DropAction("add"),
        DropAction("add", how="recollect"),
        KeepFraction(0.5),
        MinReturn(0.0),
        OnlyValue("task", "mul"),
    ],
)
def test_whole_episodes_stay_whole(edit: CoverageEdit, dataset_with_mul: Dataset) -> None:
    dataset = orl.frame(dataset_with_mul.log, edits=[edit])
    assert dataset.whole_sequences
    assert dataset.n_transitions == 4 * dataset.n_episodes


def test_the_three_removals_differ_where_they_say(dataset_with_mul: Dataset) -> None:
    def without_mul(how: Any) -> Dataset:
        return orl.frame(dataset_with_mul.log, edits=[DropAction("mul", "task = 'mul'", how)])

    by_how = {how: without_mul(how) for how in ("transitions", "episodes", "recollect")}
    for dataset in by_how.values():
        choice, mul = dataset.states.index("mul: x, y known"), dataset.actions.index("mul")
        assert dataset.visitation_counts[choice, mul] == 0
        assert dataset.visitation_counts[dataset.states.index("add: x, y known"), mul] > 0
    n_dropped = dataset_with_mul.n_transitions - by_how["transitions"].n_transitions
    assert by_how["transitions"].n_episodes == by_how["recollect"].n_episodes == 3000
    assert by_how["episodes"].n_episodes == 3000 - n_dropped
    assert by_how["recollect"].n_transitions == 12_000


def test_collecting_again_composes_and_comes_first(dataset_with_mul: Dataset) -> None:
    edits = [
        KeepFraction(0.5),
        DropAction("mul", how="recollect"),
        DropAction("sub", "task = 'add'", "recollect"),
    ]
    dataset = orl.frame(dataset_with_mul.log, edits=edits)
    assert dataset.stages[0] == (3000, 12_000)
    assert dataset.visitation_counts[:, dataset.actions.index("mul")].sum() == 0
    assert dataset.visitation_counts[dataset.states.index("add: x, y known"), dataset.actions.index("sub")] == 0
    again = orl.frame(dataset_with_mul.log, edits=edits)
    assert content_hash(again.log) == content_hash(dataset.log)
    assert again.log.fingerprint == dataset.log.fingerprint != dataset_with_mul.log.fingerprint


def test_collecting_again_is_refused_where_it_makes_no_sense(dataset_with_mul: Dataset) -> None:
    imported = make_log(episode("e", ("s", "a", 0.0)), name="airline.json")
    refusals = {
        "airline.json is an imported log": (imported, DropAction("a", how="recollect")),
        "may only name the task, not reward": (
            dataset_with_mul.log,
            DropAction("mul", "reward < 0", "recollect"),
        ),
        "may only name the task, not t:": (
            dataset_with_mul.log,
            DropAction("mul", "task = 'mul' AND t = 2", "recollect"),
        ),
        "no action called 'div'": (dataset_with_mul.log, DropAction("div", how="recollect")),
        "No task of the log meets": (dataset_with_mul.log, DropAction("mul", "task = 'chess'", "recollect")),
    }
    for complaint, (log, edit) in refusals.items():
        with pytest.raises(InvalidEdit, match=complaint) as refusal:
            orl.frame(log, edits=[edit])
        assert str(refusal.value).endswith(".")


@pytest.mark.parametrize("how", ["episodes", "transitions", "recollect"])
def test_a_mistyped_action_is_refused_and_the_right_one_named(dataset_with_mul: Dataset, how: Any) -> None:
    """It would remove nothing, and nobody would notice."""
    with pytest.raises(orl.OffRLError, match="mul"):
        orl.frame(dataset_with_mul.log, edits=[DropAction("mull", how=how)])


@pytest.mark.parametrize("where", ["task > 1", "CAST(task AS INTEGER) = 1", "json_extract_string(task, '$.a') = 'x'"])
@pytest.mark.parametrize("how", ["episodes", "transitions", "recollect"])
def test_a_condition_that_does_not_fit_the_values_is_refused_in_words(log_with_mul, where, how):
    """It parses, so only the data can refuse it; the page must get a sentence and no stack trace."""
    with pytest.raises(orl.OffRLError, match="can't be computed on this log"):
        orl.frame(log_with_mul, edits=[DropAction("mul", where, how)])


def test_the_same_recollection_is_collected_once(log_with_mul):
    first, second = (orl.frame(log_with_mul, edits=[DropAction("mul", how="recollect")]) for _ in range(2))
    assert first.log is second.log


def test_thousands_of_edits_in_a_link_are_refused_and_not_run():
    link = ",".join(f"where:episodes:t = {i}" for i in range(5000))
    with pytest.raises(orl.OffRLError, match="5,000 coverage edits"):
        edits_from_link(link)


@pytest.mark.parametrize("action", ["lookup_x", "lookup_y", "final"])
def test_an_action_no_agent_can_do_without_is_not_said_to_be_gone(log_with_mul, action):
    """Where it is the only valid action it is taken all the same; the sentence would lie and episodes would be torn."""
    with pytest.raises(orl.OffRLError, match="can do without"):
        orl.frame(log_with_mul, edits=[DropAction(action, how="recollect")])


def test_many_edits_are_applied_one_after_the_other_and_too_many_refused(log_with_mul):
    edits = [KeepFraction(0.95, seed) for seed in range(20)]
    stages = orl.frame(log_with_mul, edits=edits).stages
    assert [left.n_episodes for left in stages] == sorted((left.n_episodes for left in stages), reverse=True)
    assert stages[-1] == orl.frame(log_with_mul, edits=edits[::-1]).stages[-1]
    with pytest.raises(orl.OffRLError, match="at most 50"):
        orl.frame(log_with_mul, edits=[KeepFraction(1.0, seed) for seed in range(51)])
