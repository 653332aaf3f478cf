"""What a log can support: verdicts by hand, numbers recounted, and properties that hold for any log."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.errors import OffRLError
from offrl_core.framing import Framing
from offrl_core.readiness import REPORT_VERSION, Readiness, assess
from offrl_core.readiness.drift import _distance
from offrl_core.readiness.families import BLOCKED, EVERY, FAMILIES, LEARN_FROM_REWARD, READY, WITH_CAVEATS
from offrl_core.readiness.fields import USES
from offrl_core.readiness.text import as_html, as_markdown, as_text, percent, printable
from offrl_core.readiness.trials import pass_all_k
from offrl_core.schema import COLUMN_NAMES
from tests.core.helpers import Row, episode, few_examples, make_log, random_rows
from tests.traces import AIRLINE, shared_trace

BY_STATE = Framing(state="state_text", title="by state")
OUTCOME_AT_END = Framing(
    state="state_text",
    reward="CASE WHEN lead(t) OVER episode IS NULL THEN sum(reward) OVER (PARTITION BY episode_id) ELSE 0 END",
)
EVERYTHING_SAID: Row = {
    "available_tools": ["left", "right"],
    "reward_source": "verifier",
    "behavior_policy": "agent",
    "prompt_version": "p1",
    "tool_schema_version": "s1",
    "environment_version": "e1",
    "action_logprob": math.log(0.5),
}


def good_rows(n: int = 32, **changed: Any) -> list[Row]:
    """Two tasks, two states, two actions; left solves the task and right doesn't; everything is said."""
    rows: list[Row] = []
    for i in range(n):
        choice = "left" if i % 2 else "right"
        steps = (("start", choice, 0.0), (f"went {choice}", "left" if i % 4 < 2 else "right", float(choice == "left")))
        rows += episode(f"e{i}", *steps, task=f"task {i // 2 % 2}", **(EVERYTHING_SAID | changed))
    return rows


def report_of(rows: Sequence[Row], framing: Framing | None = BY_STATE) -> Readiness:
    return assess(make_log(rows), framing=framing)


def words(report: Readiness) -> dict[str, str]:
    return {verdict.family: verdict.verdict for verdict in report.verdicts}


def keys(report: Readiness, family: str) -> tuple[set[str], set[str]]:
    """What blocks a family and what weakens it, by name."""
    verdict = report.verdict(family)
    return {reason.key for reason in verdict.blocked_by}, {reason.key for reason in verdict.caveats}


# -- verdicts, one lack at a time ------------------------------------------------------------------------------


def test_a_log_that_says_everything_is_ready_for_everything() -> None:
    report = report_of(good_rows())
    assert words(report) == dict.fromkeys(FAMILIES, READY)
    assert report.fixes == ()


def test_a_log_of_a_world_is_ready_though_it_names_no_prompt(log_with_mul) -> None:
    report = assess(log_with_mul)
    assert words(report) == dict.fromkeys(FAMILIES, READY)
    assert "the truth is known" in report.notes[0]


def without(column: str) -> list[Row]:
    return [row | {column: None} for row in good_rows()]


ONE_LACK = {
    "reward": (LEARN_FROM_REWARD, ("bc",)),
    "action_logprob": ((), ("is", "dr")),
    "available_tools": ((), ("fqi", "dr", "fqe")),
    "reward_source": ((), LEARN_FROM_REWARD),
    "task": ((), ("fqi", "decision_transformer")),
    "behavior_policy": ((), ("bc", "is", "dr")),
    "prompt_version": ((), ("bc", "is", "dr")),
    "tool_schema_version": ((), ("fqi", "decision_transformer", "dr", "fqe")),
    "environment_version": ((), ("fqi", "decision_transformer", "dr", "fqe")),
}


@pytest.mark.parametrize("column", ONE_LACK)
def test_each_missing_column_weighs_on_the_methods_that_need_it(column: str) -> None:
    report = report_of(without(column), OUTCOME_AT_END)
    blocked, weakened = ONE_LACK[column]
    expected = {
        family: BLOCKED if family in blocked else WITH_CAVEATS if family in weakened else READY for family in FAMILIES
    }
    assert words(report) == expected
    assert all(column in report.verdict(family).missing_columns for family in (*blocked, *weakened))
    (status,) = (field for field in report.fields if field.column == column)
    assert (status.verdict, status.n_filled, status.share) == ("missing", 0, 0)
    assert set(status.families) >= {*blocked, *weakened} - {"bc"}


def test_unknown_endings_are_a_caveat_and_said_endings_none() -> None:
    rows = [row | {"terminal": None, "timeout": None} for row in good_rows()]
    report = report_of(rows)
    assert words(report) == {"bc": READY} | dict.fromkeys(LEARN_FROM_REWARD, WITH_CAVEATS)
    assert report.facts.ends == {"terminated": 0, "truncated": 0, "cut": 0, "unknown": 32}


def test_without_rewards_joining_them_is_worth_most() -> None:
    report = report_of(without("reward"), OUTCOME_AT_END)
    first = report.fixes[0]
    assert (first.key, first.unlocks, first.improves) == ("no rewards", LEARN_FROM_REWARD, ("bc",))
    assert (first.n, first.n_all, first.unit) == (32, 32, "episodes")
    assert report.facts.coverage is not None
    assert report.facts.coverage.n_teaching == 0  # the zeros that the framing fills in teach nothing


def test_fixes_stand_in_the_order_of_what_they_bring() -> None:
    rows = [row | {"reward": None, "available_tools": None, "behavior_policy": None} for row in good_rows()]
    rows[0] |= {"action_logprob": None}
    report = report_of(rows, OUTCOME_AT_END)
    order = ["no rewards", "unknown validity", "versions of agent and prompt", "no log-probabilities"]
    assert [fix.key for fix in report.fixes] == order
    assert [reason.number for reason in report.verdict("dr").caveats] == [2, 3, 4]


def test_zeros_beside_unknown_rewards_teach_nothing() -> None:
    rows = [row | {"reward": 0.0 if row["t"] == 0 else None} for row in good_rows()]
    assert keys(report_of(rows), "fqi")[0] == {"returns unknown"}


def test_equal_returns_block_learning_but_not_judging() -> None:
    report = report_of([row | {"reward": 1.0} for row in good_rows()])
    assert keys(report, "fqi") == ({"equal returns"}, {"task or choice"})
    assert words(report)["decision_transformer"] == BLOCKED
    assert words(report)["fqe"] == WITH_CAVEATS
    assert "All 32 known returns are 2" in report.verdict("fqi").blocked_by[0].sentence


def test_an_agent_that_always_does_the_same_teaches_no_values() -> None:
    rows = [row for i in range(32) for row in episode(f"e{i}", ("s", "go", i % 2), ("u", "go", 0.0))]
    assert keys(report_of(rows), "fqi")[0] == {"no choice"}
    assert keys(report_of(rows), "is")[0] == {"no choice"}
    logged = report_of([row | {"action_logprob": -0.1} for row in rows])
    assert keys(logged, "is")[0] == set()


def test_states_that_never_come_back_are_a_caveat_for_values_and_block_estimated_propensities() -> None:
    rows = [row for i in range(32) for row in episode(f"e{i}", (f"s{i}", "go", i % 2), (f"u{i}", "stop", 0.0))]
    report = report_of(rows)
    assert "no state twice" in keys(report, "fqi")[1]
    assert keys(report, "is")[0] == {"no state twice"}


@pytest.mark.parametrize(("n", "blocked"), [(8, {"few episodes"}), (12, set())])
def test_importance_sampling_needs_more_episodes_than_its_smallest_effective_sample(n: int, blocked: set[str]) -> None:
    report = report_of(good_rows(n))
    assert keys(report, "is")[0] == blocked
    assert keys(report, "bc") == (set(), {"few episodes"})


@pytest.mark.parametrize("logprob", [0.3, -math.inf])
def test_impossible_log_probabilities_block_reweighting(logprob: float) -> None:
    rows = good_rows()
    rows[5] |= {"action_logprob": logprob}
    report = report_of(rows)
    assert words(report) == dict.fromkeys(FAMILIES, READY) | {"is": BLOCKED, "dr": BLOCKED}
    assert report.facts.propensities.n_impossible == 1


def test_log_probabilities_that_are_all_zero_are_doubted() -> None:
    assert "certain behavior" in keys(report_of(good_rows(action_logprob=0.0)), "is")[1]


def test_torn_episodes_block_what_needs_whole_ones() -> None:
    log = make_log(good_rows())
    dataset = orl.frame(log, BY_STATE, [orl.DropWhere("state_text = 'went left'", "transitions")])
    report = assess(log, dataset)
    blocked = {family for family, word in words(report).items() if word == BLOCKED}
    assert blocked == {"decision_transformer", "is", "dr"}
    assert (report.facts.n_steps, report.facts.n_episodes) == (48, 32)


def test_only_what_an_edit_keeps_is_counted() -> None:
    log = make_log(good_rows())
    dataset = orl.frame(log, BY_STATE, [orl.DropWhere("task = 'task 1'", "episodes")])
    facts = assess(log, dataset).facts
    assert (facts.n_steps, facts.n_episodes, facts.tasks.n_tasks, facts.outcomes.n_known) == (32, 16, 1, 16)
    assert facts.filled["reward"] == 32


def test_rewards_at_the_end_only_are_lost_to_a_framing_that_adds_up_steps() -> None:
    rows = [row | ({"reward": None} if row["t"] == 0 else {}) for row in good_rows()]
    assert keys(report_of(rows), "is")[0] == {"returns unknown"}
    assert keys(report_of(rows), "fqi") == (set(), {"returns unknown"})
    assert words(report_of(rows, OUTCOME_AT_END)) == dict.fromkeys(FAMILIES, READY)


def test_rewards_that_all_stand_where_episodes_were_cut_teach_no_values() -> None:
    rows = [row | ({"terminal": False, "timeout": True} if row["t"] == 1 else {}) for row in good_rows()]
    report = report_of(rows, OUTCOME_AT_END)
    assert "rewards where cut" in keys(report, "fqi")[0]
    assert "rewards where cut" not in keys(report, "is")[0]


def test_several_versions_and_unnamed_ones_both_count() -> None:
    rows = good_rows()
    several = [row | {"tool_schema_version": "s2" if i >= 32 else "s1"} for i, row in enumerate(rows)]
    report = report_of(several)
    assert keys(report, "fqe") == (set(), {"versions of tools and environment"})
    assert "2 values of tool_schema_version" in report.verdict("fqe").caveats[0].sentence
    some = [row | ({"tool_schema_version": None} if row["episode_id"] == "e3" else {}) for row in rows]
    assert "1 of 32 episodes don't name tool_schema_version" in report_of(some).verdict("fqe").caveats[0].sentence


def test_what_acts_in_an_environment_needs_no_prompt_and_no_task() -> None:
    silent = {"prompt_version": None, "tool_schema_version": None, "action_type": "env_action"}
    rows = [row | {"task": None} for row in good_rows(**silent)]
    assert words(report_of(rows)) == dict.fromkeys(FAMILIES, READY)


def test_a_log_that_cannot_be_framed_is_a_finding_and_no_error() -> None:
    report = report_of(good_rows(), Framing(state="CASE WHEN t = 0 THEN 'a' END"))
    assert words(report) == dict.fromkeys(FAMILIES, BLOCKED)
    assert report.facts.coverage is None
    assert "32 of 64 steps" in report.verdict("bc").blocked_by[0].sentence
    assert as_text(report)


def test_there_is_no_verdict_on_a_stranger() -> None:
    with pytest.raises(KeyError):
        report_of(good_rows()).verdict("nobody")


# -- counts by hand --------------------------------------------------------------------------------------------


def call(episode_id: str, t: int, tool: str | None, **fields: Any) -> Row:
    return {"episode_id": episode_id, "t": t, "action": tool or "message", "tool": tool, "state_text": "s", **fields}


CALLS = [
    call(
        "a", 0, "search", tool_result="x", arguments="{}", arguments_status="object", arguments_hash="1", call_index=0
    ),
    call("a", 1, "search", error="no", arguments="{}", arguments_status="object", arguments_hash="2"),
    call("a", 2, "book", arguments_status="malformed", call_index=1),
    call("a", 3, None, terminal=True, timeout=False, end_reason="terminated"),
    call("b", 0, "search", tool_result="", arguments="{}", arguments_status="json_string", arguments_hash="1"),
    call("b", 2, "book", arguments="{}", arguments_status="object", terminal=False, timeout=True),
    call("c", 0, "search", tool_result="x", arguments="{}", arguments_status="object", parent_episode="a"),
    call(
        "d",
        0,
        "search",
        tool_result="x",
        arguments="{}",
        arguments_status="object",
        terminal=False,
        end_reason="unknown",
    ),
]


def test_calls_errors_and_results_are_counted_by_tool() -> None:
    calls = report_of(CALLS).facts.calls
    assert [(tool.tool, tool.n_calls, tool.n_failures, tool.n_unpaired) for tool in calls.tools] == [
        ("search", 5, 1, 0),
        ("book", 2, 0, 2),
    ]
    assert calls.tools[0].failure_rate == pytest.approx(0.2)
    assert (calls.n_calls, calls.n_failures, calls.n_unpaired, calls.n_unpaired_last) == (7, 1, 2, 1)
    assert calls.arguments_status == {"object": 5, "json_string": 1, "malformed": 1}
    assert (calls.n_unreadable_arguments, calls.n_parallel) == (1, 1)
    assert "Arguments: 5 as an object, 1 as a text of JSON, 1 malformed" in as_markdown(report_of(CALLS))


def test_endings_and_sequences_are_counted() -> None:
    facts = report_of(CALLS).facts
    assert facts.ends == {"terminated": 1, "truncated": 1, "cut": 1, "unknown": 1}
    sequences = facts.sequences
    assert (sequences.n_with_gaps, sequences.n_one_step, sequences.n_with_parent) == (1, 2, 1)
    assert (sequences.length_low, sequences.length_median, sequences.length_high) == (1, 1.5, 4)
    assert sequences.n_duplicates == 1  # c and d


def test_a_repeated_episode_needs_the_same_task_actions_arguments_and_order() -> None:
    def run(name: str, *hashes: str, task: str = "x") -> list[Row]:
        return [call(name, t, "search", arguments_hash=one, task=task) for t, one in enumerate(hashes)]

    rows = [*run("a", "1", "2"), *run("b", "1", "2"), *run("c", "2", "1"), *run("d", "1", "2", task="y")]
    rows += [*run("e", "1"), *run("f", "1", "3"), *run("g", "1", "2")]
    assert report_of(rows).facts.sequences.n_duplicates == 2  # b and g


def test_fields_are_taken_of_what_they_belong_to() -> None:
    fields = {field.column: field for field in report_of(CALLS).fields}
    assert (fields["tool_result"].n_filled, fields["tool_result"].n_all) == (4, 7)  # of tool calls
    assert (fields["terminal"].n_filled, fields["terminal"].n_all) == (3, 4)  # of last steps
    assert (fields["end_reason"].n_filled, fields["end_reason"].verdict) == (1, "partial")
    assert (fields["error"].verdict, fields["error"].share) == ("optional", None)  # no failure is no lack
    assert (fields["t"].n_filled, fields["t"].verdict) == (8, "complete")


def test_every_column_of_the_schema_has_a_place_in_the_table() -> None:
    assert tuple(USES) == COLUMN_NAMES
    assert {family for use in USES.values() for family in use.families} == set(EVERY)


def test_coverage_is_counted_by_hand() -> None:
    rows = [
        *episode("a", ("s", "left", 0.0), ("u", "left", 1.0), available_tools=["left", "right"]),
        *episode("b", ("s", "right", 0.0), ("u", "left", None), available_tools=["left", "right"]),
        *episode("c", ("s", "right", 0.0), timeout=True, terminal=False, available_tools=["left", "right"]),
    ]
    cover = report_of(rows).facts.coverage
    assert cover is not None
    assert (cover.n_states, cover.n_actions, cover.n_pairs_valid) == (2, 2, 4)
    assert (cover.n_pairs_seen, cover.n_pairs_once, cover.n_states_with_choice) == (3, 1, 1)
    assert (cover.share_seen, cover.share_once) == (0.75, pytest.approx(1 / 3))
    assert cover.n_teaching == 3  # not the unknown reward, not the cut step


def outcomes(*returns: tuple[str | None, float | None]) -> list[Row]:
    return [row for i, (task, r) in enumerate(returns) for row in episode(f"e{i}", ("s", "go", r), task=task)]


def test_tasks_are_counted_by_hand() -> None:
    rows = outcomes(("a", 1), ("a", 0), ("a", None), ("b", 1), ("b", 1), ("c", 0), ("c", 0), ("d", 1), (None, 1))
    tasks = report_of(rows).facts.tasks
    assert (tasks.n_tasks, tasks.n_episodes_without_task) == (4, 1)
    assert (tasks.episodes_low, tasks.episodes_median, tasks.episodes_high) == (1, 2.0, 3)
    assert (tasks.n_repeated, tasks.n_mixed, tasks.n_flat) == (3, 1, 2)
    assert [(p.k, p.value, p.n_tasks) for p in tasks.pass_all] == [(1, pytest.approx(2.5 / 4), 4), (2, 1 / 3, 3)]


@given(trials=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=6))
def test_pass_all_k_is_the_share_of_draws_that_all_succeed(trials: list[tuple[int, int]]) -> None:
    counts = [(max(pair), min(pair)) for pair in trials]
    n, c = np.array(counts, dtype=np.int64).T
    for passed in pass_all_k(n, c):
        shares = [
            np.mean([all(i < c_task for i in draw) for draw in itertools.combinations(range(n_task), passed.k)])
            for n_task, c_task in counts
            if n_task >= passed.k
        ]
        assert passed.value == pytest.approx(np.mean(shares))
        assert passed.n_tasks == len(shares)


def test_the_airline_file_gives_the_published_numbers() -> None:
    report = assess(orl.read_traces(shared_trace(AIRLINE)))
    assert [round(passed.value, 3) for passed in report.facts.tasks.pass_all] == [0.42, 0.273, 0.22, 0.2]
    assert report.facts.calls.n_calls == 1164
    assert report.facts.calls.n_failures / 1164 == pytest.approx(0.063, abs=0.0005)
    assert report.facts.outcomes.success_rate == pytest.approx(0.42)
    assert BLOCKED not in words(report).values()


# -- drift -----------------------------------------------------------------------------------------------------


def drifting_rows() -> list[Row]:
    """40 episodes of v1 (half left, all solved) and 30 of v2 (all right, none solved), one task in common."""
    rows: list[Row] = []
    for i in range(40):
        fields = {"prompt_version": "v1", "task": f"t{i % 3}"}
        rows += episode(f"a{i}", ("s", "left" if i % 2 else "right", 1.0), **fields)
    for i in range(30):
        rows += episode(f"b{i}", ("s", "right", 0.0), prompt_version="v2", task="t0")
    return [*rows, *episode("c", ("s", "right", 0.0))]


def test_drift_is_counted_by_hand() -> None:
    (drift,) = report_of(drifting_rows()).facts.drift
    first, second = drift.versions
    assert (drift.column, drift.n_versions, drift.n_episodes_without) == ("prompt_version", 2, 1)
    assert (first.value, first.n_episodes, first.success_rate, first.distance) == ("v1", 40, 1.0, None)
    assert (second.n_episodes, second.success_rate, second.n_common_tasks) == (30, 0.0, 1)
    assert second.distance == pytest.approx(0.5)  # half of |0.5 - 0| + |0.5 - 1|
    sentence = drift.sentences[0]
    assert "return above 0: 0% against 100%, more than chance explains" in sentence
    assert "0.50 apart" in sentence
    assert "few episodes" not in sentence


def test_few_episodes_are_said_and_versions_of_single_episodes_not_compared() -> None:
    few = [row for row in drifting_rows() if row["episode_id"] not in {f"b{i}" for i in range(20)}]
    assert "few episodes" in report_of(few).facts.drift[0].sentences[0]
    rows = [row for i in range(5) for row in episode(f"e{i}", ("s", "go", 1.0), prompt_version=f"v{i}")]
    (sentence,) = report_of(rows).facts.drift[0].sentences
    assert "5 values of prompt version in 5 episodes: too few" in sentence


def test_what_chance_does_to_two_samples_of_one_mix_is_what_the_report_says() -> None:
    rng, shares = np.random.default_rng(0), np.array([0.5, 0.3, 0.2])
    pairs = [(rng.multinomial(80, shares), rng.multinomial(120, shares)) for _ in range(400)]
    found = [_distance(dict(enumerate(a.tolist())), dict(enumerate(b.tolist()))) for a, b in pairs]
    distances, by_chance = np.array(found, dtype=float).T
    assert by_chance.mean() == pytest.approx(distances.mean(), rel=0.1)


# -- properties ------------------------------------------------------------------------------------------------

FILLINGS: dict[str, Any] = {
    "task": lambda row, rng: "even" if row["episode_id"] in ("e0", "e2", "e4") else "odd",
    "available_tools": lambda row, rng: ["left", "right", "up"],
    "action_logprob": lambda row, rng: float(rng.choice([-1.5, -0.1, 0.0])),
    "reward_source": lambda row, rng: "verifier",
    "behavior_policy": lambda row, rng: str(rng.choice(["old", "new"])),
    "prompt_version": lambda row, rng: str(rng.choice(["p1", "p2"])),
    "tool_schema_version": lambda row, rng: str(rng.choice(["s1", "s2"])),
    "environment_version": lambda row, rng: "e1",
    "tool_result": lambda row, rng: "ok",
    "arguments": lambda row, rng: "{}",
    "arguments_status": lambda row, rng: str(rng.choice(["object", "json_string"])),
    "reward": lambda row, rng: float(rng.integers(0, 2)),
    "temperature": lambda row, rng: 0.0,
    "terminal": lambda row, rng: row["last"],
}
SOMETIMES: dict[str, Any] = {
    "tool": lambda row, rng: row["action"],
    "error": lambda row, rng: "Error: <b>\x1b[31m",
    "end_reason": lambda row, rng: str(rng.choice(["terminated", "truncated", "cut", "unknown"])),
    "parent_episode": lambda row, rng: "e0",
    "call_index": lambda row, rng: int(rng.integers(0, 3)),
}


@st.composite
def rich_rows(draw: st.DrawFn) -> list[Row]:
    """Random episodes whose columns are filled, half filled or empty."""
    rows = draw(random_rows())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    last = {row["episode_id"]: row["t"] for row in sorted(rows, key=lambda row: row["t"])}
    for name, fill in (FILLINGS | SOMETIMES).items():
        share = draw(st.sampled_from([0.0, 0.5, 1.0]))
        if name in ("reward", "terminal"):
            continue
        for row in rows:
            is_last = row["t"] == last[row["episode_id"]]
            row[name] = fill(row | {"last": is_last}, rng) if rng.random() < share else None
    return rows


def numbers(value: Any, name: str = "") -> list[tuple[str, float]]:
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in numbers(inner, str(key))]
    if isinstance(value, list | tuple):
        return [found for inner in value for found in numbers(inner, name)]
    return [(name, value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


SHARES = ("share", "share_seen", "share_once", "success_rate", "failure_rate", "distance", "distance_by_chance")


@few_examples
@given(rows=rich_rows())
def test_any_log_gets_a_report_whose_shares_are_shares(rows: list[Row]) -> None:
    report = report_of(rows, None)
    told = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert told["report_version"] == REPORT_VERSION
    for name, value in numbers(asdict(report)):
        if name in SHARES:
            assert 0 <= value <= 1, name
        elif name.startswith("n_"):
            assert value >= 0, name
    assert all(fix.n <= fix.n_all for fix in report.fixes)
    assert [fix.number for fix in report.fixes] == list(range(1, len(report.fixes) + 1))
    assert max(map(len, as_text(report).splitlines())) <= 80
    assert as_markdown(report)
    assert as_html(report)


@few_examples
@given(rows=rich_rows())
def test_verdicts_agree_with_what_learners_and_estimators_refuse(rows: list[Row]) -> None:
    log = make_log(rows)
    for framing in (BY_STATE, OUTCOME_AT_END):
        dataset = orl.frame(log, framing)
        verdicts = words(assess(log, dataset))
        try:
            orl.train(dataset, "fqi")
        except OffRLError:
            assert verdicts["fqi"] == BLOCKED
        if not dataset.has_rewards:
            assert verdicts["is"] == BLOCKED


GRAVITY = {READY: 0, WITH_CAVEATS: 1, BLOCKED: 2}


@settings(few_examples, max_examples=40)
@given(column=st.sampled_from(list(FILLINGS)), rows=rich_rows(), seed=st.integers(0, 2**32 - 1))
def test_a_missing_column_that_is_filled_in_never_makes_a_verdict_worse(
    column: str, rows: list[Row], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    last = {row["episode_id"]: row["t"] for row in sorted(rows, key=lambda row: row["t"])}
    fill = FILLINGS[column]
    lacking = [
        row | {column: None} | ({"timeout": None, "end_reason": None} if column == "terminal" else {}) for row in rows
    ]
    filled = [row | {column: fill(row | {"last": row["t"] == last[row["episode_id"]]}, rng)} for row in lacking]
    before, after = (words(report_of(some, OUTCOME_AT_END)) for some in (lacking, filled))
    worse = {family for family in FAMILIES if GRAVITY[after[family]] > GRAVITY[before[family]]}
    assert not worse


# -- to read ---------------------------------------------------------------------------------------------------


def test_names_from_a_file_are_text_and_nothing_else() -> None:
    hostile = "<img src=x onerror=alert(1)> | `x` \x1b[31m\u202e"
    rows = [row | {"tool": hostile, "action": hostile, "tool_result": ""} for row in good_rows()]
    report = assess(make_log(rows, name=hostile), framing=BY_STATE)
    assert "<img" not in as_html(report)
    assert "\\<img src=x onerror=alert(1)\\> \\|" in as_markdown(report)
    for text in (as_text(report), as_html(report), as_markdown(report)):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_shares_are_never_rounded_to_none_or_all() -> None:
    assert [percent(share) for share in (None, 0.0, 1e-5, 0.25, 0.99999, 1.0)] == [
        "unknown",
        "0%",
        "< 0.1%",
        "25.0%",
        "> 99.9%",
        "100%",
    ]
    assert printable("a" * 100, 10) == "a" * 9 + "…"


def test_the_sentences_are_sentences() -> None:
    rows = [call(f"e{i}", 0, None) for i in range(3)]
    for report in (report_of(rows), report_of(CALLS), report_of(without("reward")), report_of(drifting_rows())):
        for fix in report.fixes:
            assert re.fullmatch(r"[A-Z0-9].*\.", fix.why), fix.why
            assert re.fullmatch(r"[A-Z].*\.", fix.order), fix.order
        assert all(re.fullmatch(r"[A-Z0-9].*\.", note) for note in report.notes)


@pytest.mark.parametrize(("n_lacking", "verdict"), [(4, "ready with caveats"), (6, "blocked")])
def test_a_log_that_estimates_would_refuse_is_not_called_ready_for_them(n_lacking: int, verdict: str) -> None:
    """One rule for both: above a fifth of episodes without a return, weighing the others is refused."""
    rows = []
    for i in range(25):
        reward = None if i < n_lacking else float(i % 2)
        rows += episode(f"e{i}", ("s", "a" if i % 2 else "b", reward))
    log = make_log(rows)
    dataset = orl.frame(log)
    assert orl.assess(log).verdict("is").verdict == verdict
    refused = (
        orl.estimate(orl.train(dataset, "bc", imitate="frequencies").policy, dataset, "is").unmet == "known_returns"
    )
    assert refused == (verdict == "blocked")


def test_success_is_named_only_where_somebody_said_what_it_is() -> None:
    """CartPole pays 1 for each step: that every return is above 0 says nothing about success."""
    rows = [step for i in range(4) for step in episode(f"e{i}", ("s", "go", 1.0), ("s", "go", float(i)))]
    log = make_log(rows)
    plain = orl.frame(log, orl.Framing(state="state_text"))
    named = orl.frame(log, orl.Framing(state="state_text", success="episode_return > 2"))
    world = orl.frame(orl.collect("calculator", n_episodes=20, seed=0))
    assert plain.success_in_words == "with a return above 0"
    assert named.success_in_words == world.success_in_words == "solved"
    for dataset in (plain, named, world):
        said = as_markdown(orl.assess(dataset.log, dataset))
        assert ("succe" in said.split("## Tasks and outcomes")[1].split("##")[0]) == (dataset is not plain)


def test_data_that_the_import_set_aside_stands_in_the_way() -> None:
    report = assess(orl.read_traces(shared_trace("damaged/json_array_cut.json")))
    (fix,) = [fix for fix in report.fixes if fix.key == "lost on import"]
    assert "7,299 bytes were set aside" in fix.why
    assert (fix.n, fix.n_all, fix.unit) == (1, 9, "conversations")
    assert "1 of 9 conversations (11.1%) was lost on import" in fix.why
    assert "Chance makes ±17.7% with 8 episodes" in fix.why
    assert fix.improves == EVERY
    whole = assess(orl.read_traces(shared_trace(AIRLINE)))
    assert not [fix for fix in whole.fixes if fix.key == "lost on import"]
