"""Rewards joined from a second file or given by a rule: hand-counted cases, and what must hold for every log and file."""

from __future__ import annotations

import csv
import io
import json
import math
import time
import zipfile
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.errors import InvalidConfig, InvalidPredicate, NotPossible, TraceFormatError
from offrl_core.log import Log
from offrl_core.reward_columns import StepCosts
from offrl_core.reward_files import RewardReader, read_reward_file
from offrl_core.reward_keys import episode_keys, guess_join, key_text
from offrl_core.reward_rules import LONGEST_TEXT, check_pattern
from offrl_core.rewards import JoinRewards, RewardPreview, RuleRewards, preview, with_rewards
from offrl_core.schema import COLUMN_NAMES
from tests.core.helpers import Row, few_examples, make_log, random_rows
from tests.traces import AIRLINE, shared_trace

CHANGED = ("reward", "reward_source", "reward_components")


def run(episode_id: str, *steps: Row, **fields: Any) -> list[Row]:
    """Steps of one episode; the last one ends it."""
    last = len(steps) - 1
    return [
        {"episode_id": episode_id, "t": t, "action": "go", "terminal": t == last, "timeout": False, **fields, **step}
        for t, step in enumerate(steps)
    ]


def log_of(*episodes: list[Row]) -> Log:
    return make_log([row for rows in episodes for row in rows])


def file_of(value: Any, name: str = "results.json"):
    return read_reward_file(name, json.dumps(value).encode())


def join(file, field: str, way: str = "episode_id", reward: str = "reward", **more: Any) -> JoinRewards:
    return JoinRewards(file=file, on=((field, way),), reward=reward, **more)


def rewards_of(log: Log) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for episode_id, reward in log.rows("SELECT episode_id, reward FROM steps ORDER BY row"):
        found.setdefault(episode_id, []).append(reward)
    return found


def kinds(found: RewardPreview) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {}
    for finding in found.findings:
        keys.setdefault(finding.kind, []).append(finding.key)
    return keys


THREE = log_of(run("7", {}, {}), run("8", {}), run("эпизод é", {}, {}, {}))


# -- joining: counted by hand ---------------------------------------------------------------------------------


def test_a_reward_lands_on_the_last_step_and_the_rest_stays_unknown():
    recipe = join(file_of({"7": 0.25, "nobody": 1}), "key")
    made = with_rewards(THREE, recipe)
    assert rewards_of(made) == {"7": [None, 0.25], "8": [None], "эпизод é": [None, None, None]}
    assert made.rows("SELECT reward_source, reward_components FROM steps WHERE reward IS NOT NULL") == [
        ("joined from results.json by episode_id", '{"joined":0.25}')
    ]
    assert made.rows("SELECT count(*) FROM steps WHERE reward IS NULL AND reward_source IS NOT NULL") == [(0,)]
    assert preview(THREE, recipe).sentence == (
        "Matched 1 of 3 episodes; 1 reward without an episode; 2 episodes without a reward."
    )


def test_the_counts_of_the_issue():
    """Matched 118 of 120 episodes, 2 rewards without an episode, 2 episodes without a reward, 1 key used twice."""
    log = log_of(*(run(f"e{i}", {}) for i in range(120)))
    rows = [{"id": f"e{i}", "reward": 1} for i in range(118)]
    rows += [
        {"id": "x", "reward": 1},
        {"id": "y", "reward": 0},
        {"id": "e118", "reward": 1},
        {"id": "e118", "reward": 1},
    ]
    found = preview(log, join(file_of(rows), "id"))
    assert found.sentence == (
        "Matched 118 of 120 episodes; 2 rewards without an episode; 2 episodes without a reward; "
        "1 key used twice (kept: none, all listed)."
    )
    assert kinds(found) == {
        "reward without an episode": ["x", "y"],
        "key used twice": ["e118"],
        "episode without a reward": ["e118", "e119"],
    }
    assert "rows 121, 122" in next(f.detail for f in found.findings if f.kind == "key used twice")


@pytest.mark.parametrize("key", [7, 7.0, "7", " 7 ", "7.0", "7.00"])
def test_numbers_and_texts_are_the_same_key(key):
    found = preview(THREE, join(file_of([{"id": key, "reward": 1}, {"id": None, "reward": 1}]), "id"))
    assert found.outcomes.tolist()[0] == 1.0
    assert found.sentence == "Matched 1 of 3 episodes; 2 episodes without a reward; 1 row without a key."


@pytest.mark.parametrize("key", ["07", "7a", "", "  ", None, True, [7], {"a": 7}, math.nan, 7.5])
def test_other_keys_are_other_keys(key):
    assert math.isnan(
        preview(THREE, join(file_of([{"id": key, "reward": 1}, {"id": "z", "reward": 1}]), "id")).outcomes[0]
    )


def test_a_composed_and_a_decomposed_letter_are_the_same_key():
    decomposed = "эпизод e\N{COMBINING ACUTE ACCENT}"
    assert decomposed != "эпизод é"
    assert preview(THREE, join(file_of({decomposed: 1, "x": 0}), "key")).outcomes.tolist()[2] == 1.0


def test_rewards_that_cannot_be_read_stay_unknown():
    rows = [
        {"id": "7", "reward": math.nan},
        {"id": 8, "reward": "n/a"},
        {"id": "эпизод é", "reward": None},
        {"id": 9, "reward": 1},
    ]
    found = preview(THREE, join(file_of(rows), "id"))
    assert found.sentence == (
        "Matched 0 of 3 episodes; 1 reward without an episode; 3 episodes without a reward; "
        "3 rewards that can't be read (unknown, not 0)."
    )
    made = with_rewards(THREE, join(file_of(rows), "id"))
    assert made.rows("SELECT count(reward), count(reward_source), count(reward_components) FROM steps") == [(0, 0, 0)]


def test_the_log_s_own_reward_is_kept_among_the_components():
    log = log_of(
        run("a", {"reward": 0.5}, {"reward": 2.0, "reward_source": "environment", "reward_components": '{"db":1}'}),
        run("b", {"reward": None}, {"reward": 3.0, "reward_components": '{"joined":7}'}),
    )
    made = with_rewards(log, join(file_of({"a": 1, "b": 0, "c": 1}), "key"))
    assert made.rows("SELECT reward, reward_source, reward_components FROM steps ORDER BY row") == [
        (None, None, '{"logged":0.5}'),
        (
            1.0,
            "joined from results.json by episode_id",
            '{"db":1,"joined":1.0,"logged":2.0,"logged_source":"environment"}',
        ),
        (None, None, None),
        (0.0, "joined from results.json by episode_id", '{"joined":0.0,"logged":3.0,"logged_components":{"joined":7}}'),
    ]
    assert rewards_of(log) == {"a": [0.5, 2.0], "b": [None, 3.0]}  # the old log stays as it was


def test_rewards_over_rewards_keep_what_the_file_said():
    log = log_of(run("a", {"reward": 0.5, "reward_source": "environment"}))
    once = with_rewards(log, join(file_of({"a": 1, "b": 0}), "key", costs=StepCosts(per_step=0.25)))
    twice = with_rewards(once, RuleRewards(rule="sql", text="true", if_true=5))
    assert twice.rows("SELECT reward, reward_components FROM steps") == [
        (5.0, '{"logged":0.5,"logged_source":"environment","rule":5.0}')
    ]


def test_episodes_that_the_file_does_not_judge_may_keep_theirs():
    log = log_of(run("a", {"reward": 0.5}), run("b", {"reward": 0.25, "reward_source": "human"}))
    file = file_of({"a": 1, "c": 0})
    assert rewards_of(with_rewards(log, join(file, "key"))) == {"a": [1.0], "b": [None]}
    kept = with_rewards(log, join(file, "key", keep_logged=True))
    assert rewards_of(kept) == {"a": [1.0], "b": [0.25]}
    assert kept.rows("SELECT reward_source, reward_components FROM steps WHERE episode_id = 'b'") == [("human", None)]


def test_one_row_may_judge_all_trials_of_a_task_and_it_is_said():
    log = log_of(*(run(f"t{i}-trial{k}", {}, task=f"t{i}") for i in range(2) for k in range(3)))
    found = preview(log, join(file_of({"t0": 1, "t1": 0}), "key", way="task"))
    assert found.outcomes.tolist() == [1, 1, 1, 0, 0, 0]
    assert found.notes == (
        "2 rows give their reward to several episodes, to 3 at most. If the file tells trials apart, add that field to the key.",
    )


def test_task_and_trial_together_are_a_key():
    log = log_of(*(run(f"task{i}-trial{k}", {}, task=f"task {i}") for i in range(3) for k in range(2)))
    rows = [{"task_id": i, "trial": k, "passed": 2 * i + k in (0, 3)} for i in range(3) for k in range(2)]
    guess = guess_join(file_of(rows), log)
    assert guess.on == (("task_id", "number at the end of task"), ("trial", "trial in episode_id"))
    assert guess.reward == "passed"
    found = preview(log, JoinRewards(file=file_of(rows), on=guess.on, reward=guess.reward))
    assert found.outcomes.tolist() == [1, 0, 0, 1, 0, 0]


def test_a_key_that_log_or_file_lacks_is_refused_in_words():
    with pytest.raises(InvalidConfig, match="has no field 'ids'"):
        join(file_of({"a": 1, "b": 1}), "ids")
    with pytest.raises(InvalidConfig, match="no 'trial in episode_id'"):
        preview(THREE, join(file_of({"7": 1, "b": 1}), "key", way="trial in episode_id"))


def test_rewards_of_a_world_stay():
    world = orl.collect("calculator", n_episodes=3)
    with pytest.raises(NotPossible, match="the world's own"):
        with_rewards(world, RuleRewards(rule="no_error"))


@given(
    rows=random_rows(),
    table=st.lists(
        st.tuples(
            st.sampled_from(["e0", "e1", "e2", "x", "", None]),
            st.sampled_from([1, 0.5, True, "fail", "?", None, math.nan]),
        ),
        min_size=1,
        max_size=8,
    ),
)
@few_examples
def test_every_row_and_every_episode_is_accounted_for(rows, table):
    log = make_log(rows)
    file = file_of([{"id": key, "reward": reward} for key, reward in table])
    found = preview(log, join(file, "id"))
    by_kind = kinds(found)
    uses = {key: sum(k == key for k, _ in table) for key, _ in table if key}
    used = {id for id, outcome in zip(found.episodes, found.outcomes, strict=True) if not math.isnan(outcome)}
    assert sorted([*by_kind.get("episode without a reward", []), *used]) == sorted(found.episodes)
    n_repeated = sum(uses[key] for key in by_kind.get("key used twice", []))
    parts = ("reward without an episode", "no reward", "row without a key")
    assert len(used) + n_repeated + sum(len(by_kind.get(kind, [])) for kind in parts) == len(table)
    assert sorted(by_kind.get("key used twice", [])) == sorted(key for key, n in uses.items() if n > 1)


@given(rows=random_rows(), rewards=st.dictionaries(st.sampled_from(["e0", "e1", "e2"]), st.sampled_from([0, 1, -0.5])))
@few_examples
def test_nothing_but_the_rewards_changes(rows, rewards):
    log = make_log(rows)
    made = with_rewards(log, join(file_of({**rewards, "x": 1, "y": 1}), "key"))
    untouched = [name for name in COLUMN_NAMES if name not in CHANGED]
    assert made.columns(*untouched).equals(log.columns(*untouched))
    assert (made.n_steps, made.source, made.report.n_steps) == (log.n_steps, None, log.report.n_steps)
    for episode_id, found in rewards_of(made).items():
        assert [reward for reward in found if reward is not None] == [rewards[e] for e in rewards if e == episode_id]
    last = made.rows(
        "SELECT episode_id, arg_max([reward], t)[1] FROM steps GROUP BY episode_id HAVING count(reward) > 0 ORDER BY 1"
    )
    assert last == sorted((e, float(r)) for e, r in rewards.items() if e in {row["episode_id"] for row in rows})
    logged = sum(row["reward"] is not None for row in rows)
    assert made.rows("""SELECT count(*) FROM steps WHERE reward_components LIKE '%"logged":%'""") == [(logged,)]


def test_names_and_fingerprints_tell_recipes_apart():
    one, other = join(file_of({"7": 1, "8": 0}), "key"), join(file_of({"7": 0, "8": 0}), "key")
    first, same, second = (with_rewards(THREE, recipe) for recipe in (one, one, other))
    assert first.name == "made by hand with rewards joined from results.json by episode_id"
    assert first.fingerprint == same.fingerprint
    assert len({first.fingerprint, second.fingerprint, THREE.fingerprint}) == 3
    assert "Matched 2 of 3 episodes" in first.report.notes[-1]
    assert not THREE.report.notes


def test_raw_records_are_shared_and_outlive_the_old_log():
    records = pa.table({"source_file": ["f"], "record": pa.array([1], pa.int64()), "raw": ["the raw text"]})
    steps = make_log(run("a", {}, source_file="f", record=1)).columns(*COLUMN_NAMES)
    old = Log(steps, name="n", fingerprint="0" * 16, source=None, report=THREE.report, records=records)
    made = with_rewards(with_rewards(old, RuleRewards(rule="sql", text="true")), RuleRewards(rule="no_error"))
    del old
    assert made.raw_record("f", 1) == "the raw text"


# -- second files ----------------------------------------------------------------------------------------------


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


ROWS = [{"id": "7", "score": 1}, {"id": "8", "score": 0}, {"id": "эпизод é", "score": 0.5}]
SHAPES = {
    "CSV": as_csv(ROWS),
    "JSON": json.dumps(ROWS).encode(),
    "JSON lines in UTF-16": "\n".join(json.dumps(row) for row in ROWS).encode("utf-16"),
    "a list in an object": json.dumps({"version": 2, "results": ROWS, "tags": ["a"]}).encode(),
    "id to number": json.dumps({row["id"]: row["score"] for row in ROWS}).encode(),
    "id to result": json.dumps({row["id"]: {"eval": {"score": row["score"]}} for row in ROWS}).encode(),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_file_gives_the_same_rewards_by_guess(shape):
    file = read_reward_file("results", SHAPES[shape])
    guess = guess_join(file, THREE)
    found = preview(THREE, JoinRewards(file=file, on=guess.on, reward=guess.reward))
    assert found.outcomes.tolist() == [1.0, 0.0, 0.5], (file.shape, guess)


def test_a_swe_bench_report_is_joined_by_instance():
    log = log_of(*(run(f"run{i}", {}, task=task) for i, task in enumerate(["a__b-1", "a__b-2", "a__b-3", "a__b-4"])))
    report = {"total_instances": 4, "resolved_ids": ["a__b-1"], "unresolved_ids": ["a__b-2"], "error_ids": ["a__b-3"]}
    file = file_of(report)
    guess = guess_join(file, log)
    assert (guess.on, guess.reward) == ((("instance_id", "task"),), "resolved")
    found = preview(log, JoinRewards(file=file, on=guess.on, reward=guess.reward))
    assert found.outcomes.tolist()[:3] == [1.0, 0.0, 0.0]
    assert math.isnan(found.outcomes[3])


def test_results_of_harbor_trials_are_joined_by_folder():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        for trial, reward in {"cite__a": 1.0, "cite__b": 0.0}.items():
            result = {"task_name": "cite", "trial_name": trial, "verifier_result": {"rewards": {"reward": reward}}}
            packed.writestr(f"jobs/{trial}/result.json", json.dumps(result))
    log = log_of(*(run(f"session-{x}", {}, source_file=f"jobs.zip/jobs/cite__{x}/agent.json") for x in "ba"))
    file = read_reward_file("jobs.zip", archive.getvalue())
    guess = guess_join(file, log)
    assert guess.reward == "verifier_result.rewards.reward"
    assert guess.on[0][1] == "folder"
    assert preview(log, JoinRewards(file=file, on=guess.on, reward=guess.reward)).outcomes.tolist() == [0.0, 1.0]


def test_the_real_harbor_result_gives_its_reward():
    file = read_reward_file("result.json", shared_trace("atif/harbor_trial_result.json").read_bytes())
    assert file.column("verifier_result.rewards.reward") == [1.0]
    assert file.column("trial_name") == ["citation-check__bGmgnv8"]


BROKEN = {
    "nothing": (b"", "is empty"),
    "blank": (b" \n\n", "is empty"),
    "prose": (b"All tests passed, more or less.", "holds no JSON"),
    "half a document": (b'{"a": ', "begins like JSON"),
    "numbers alone": (b"[1, 2, 3]", "holds no row with a reward"),
    "an empty object": (b"{}", "holds no row with a reward"),
    "a pickle": (b"\x80\x04\x95", "pickle"),
    "noise": (b"\xff\xfb\x90\x44" * 500 + b"\x00" * 500, "neither text"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_gets_a_sentence(name):
    data, sentence = BROKEN[name]
    with pytest.raises(TraceFormatError, match=sentence) as caught:
        read_reward_file("results.csv", data)
    assert str(caught.value).endswith(".")
    assert "results.csv" in str(caught.value)


def test_broken_lines_are_counted_and_the_others_read():
    file = read_reward_file("r.jsonl", b'{"id": "7", "reward": 1}\n{"id": "8", "rew\n{"id": "9", "reward": 0}\n')
    assert [row["id"] for row in file.rows] == ["7", "9"]
    assert len(file.problems) == 1
    assert "record 2" in file.problems[0]


@given(
    data=st.binary(max_size=60) | st.sampled_from(list(SHAPES.values())),
    cut=st.integers(0, 200),
    noise=st.binary(max_size=3),
)
def test_no_file_raises_anything_but_our_error(data, cut, noise):
    try:
        file = read_reward_file("r", data[:cut] + noise + data[cut:])
        guess = guess_join(file, THREE)
        preview(THREE, JoinRewards(file=file, on=guess.on, reward=guess.reward))
    except TraceFormatError:
        pass


@pytest.mark.parametrize(
    ("cells", "rewards"),
    [
        ([1, 0.5, True, False, "2", " 1e-1 ", "+.5"], [1, 0.5, 1, 0, 2, 0.1, 0.5]),
        (["pass", "FAIL", "Resolved", "unresolved", "true", "No"], [1, 0, 1, 0, 1, 0]),
        (["C", "I", "P", "N"], [1, 0, 0.5, 0]),
        (["P", "F", "p"], [1, 0, 1]),
        (["P", "P"], [None, None]),  # partial or pass: the column doesn't say
        (["N", "Y"], [0, 1]),
        ([None, "", "nan", "inf", math.nan, math.inf, 10**400, "1_000", "1e999", "n/a", [1]], [None] * 11),
    ],
)
def test_cells_as_rewards(cells, rewards):
    read = RewardReader(cells)
    assert [read(cell) for cell in cells] == rewards


def test_columns_that_name_all_episodes_alike_are_no_key():
    log = log_of(run("a", {}, task="same", metadata='{"run":1}'), run("b", {}, task="same", metadata='{"run":2}'))
    assert list(episode_keys(log).ways) == ["episode_id", "metadata.run"]
    assert key_text(2.0) == "2"


def test_a_field_of_the_metadata_is_a_key():
    log = log_of(*(run(f"e{i}", {"metadata": json.dumps({"trace": {"id": f"x{i}"}, "n": i})}, {}) for i in range(3)))
    guess = guess_join(file_of([{"trace_id": f"x{i}", "ok": i == 2, "score": i / 2} for i in range(3)]), log)
    assert (guess.on, guess.reward) == ((("trace_id", "metadata.trace.id"),), "score")


def test_the_airline_file_gets_its_own_rewards_back_through_a_table():
    log = orl.read_traces(shared_trace(AIRLINE))
    truth = {e: r for e, r in log.rows("SELECT episode_id, max(reward) FROM steps GROUP BY episode_id")}
    rows = [{"task": e[4:].split("-")[0], "trial": e[-1], "score": "pass" if r else "fail"} for e, r in truth.items()]
    file = read_reward_file("scores.csv", as_csv(rows))
    guess = guess_join(file, log)
    made = with_rewards(log, JoinRewards(file=file, on=guess.on, reward=guess.reward))
    assert {e: max(r for r in found if r is not None) for e, found in rewards_of(made).items()} == truth
    assert orl.frame(made).success_rate() == orl.frame(log).success_rate() == (0.42, 200)


# -- rules ----------------------------------------------------------------------------------------------------


def call(tool: str, result: str | None = None, error: str | None = None, **more: Any) -> Row:
    return {"action": tool, "tool": tool, "action_type": "tool_call", "tool_result": result, "error": error, **more}


def say(text: str, reply: str | None = None) -> Row:
    arguments = json.dumps({"text": text}, ensure_ascii=False)
    return {"action": "message", "action_type": "message", "arguments": arguments, "tool_result": reply}


RUNS = log_of(
    run("good", call("test", "2 passed"), say("Alle Tests grün. DONE", "thanks")),
    run("late", call("test", "", "Traceback"), call("test", "ok, passed")),
    run("bad", say("I will try"), call("test", None, "Traceback: 1 failed")),
    run("mute", call("test")),
    run("talk", say("done?")),
)

RULE_CASES = {
    "message": (RuleRewards(rule="contains", text="done"), [True, None, False, None, True]),
    "case": (RuleRewards(rule="contains", text="done", ignore_case=False), [False, None, False, None, True]),
    "result": (RuleRewards(rule="contains", text="passed", on="result"), [True, True, None, None, None]),
    "either": (RuleRewards(rule="matches", text=r"\bpassed\b|DONE$", on="either"), [True, True, False, None, False]),
    "pattern": (RuleRewards(rule="matches", text="gr.n", ignore_case=False), [True, None, False, None, False]),
    "no error": (RuleRewards(rule="no_error"), [True, False, False, None, None]),
    "last call": (RuleRewards(rule="last_call"), [True, True, False, None, None]),
    "called": (RuleRewards(rule="called", text="test"), [True, True, True, True, False]),
    "SQL, last": (RuleRewards(rule="sql", text="tool_result LIKE '%passed%'"), [False, True, None, None, None]),
    "SQL, any": (RuleRewards(rule="sql", text="tool = 'test'", on="any"), [True, True, True, True, None]),
    "SQL, every": (RuleRewards(rule="sql", text="error IS NULL", on="every"), [True, False, False, True, True]),
    "SQL, every, unknown": (RuleRewards(rule="sql", text="tool = 'test'", on="every"), [None, True, None, True, None]),
}


@pytest.mark.parametrize("case", RULE_CASES)
def test_rules_judge_as_by_hand(case):
    recipe, verdicts = RULE_CASES[case]
    found = preview(RUNS, recipe)
    values = {True: 1.0, False: 0.0, None: None}
    assert [None if math.isnan(x) else x for x in found.outcomes] == [values[v] for v in verdicts]
    assert found.sentence == (
        f"True for {verdicts.count(True)} of 5 episodes, false for {verdicts.count(False)}, unknown for {verdicts.count(None)}."
    )
    made = with_rewards(RUNS, recipe)
    assert [rows[-1] for rows in rewards_of(made).values()] == [values[v] for v in verdicts]


def test_values_by_verdict_and_examples():
    recipe = RuleRewards(rule="no_error", if_true=2.0, if_false=-1.0, if_unknown=0.5)
    counts = preview(RUNS, recipe).values(n_examples=1)
    assert [(c.value, c.n_episodes, c.examples) for c in counts] == [
        (0.5, 2, ("mute",)),
        (-1.0, 2, ("late",)),
        (2.0, 1, ("good",)),
    ]
    unknown = preview(RUNS, RuleRewards(rule="no_error", if_false=None)).values()[-1]
    assert (unknown.value, unknown.n_episodes) == (None, 4)


def test_the_source_says_the_rule():
    [(source,)] = with_rewards(RUNS, RULE_CASES["either"][0]).rows(
        "SELECT DISTINCT reward_source FROM steps WHERE reward IS NOT NULL"
    )
    assert source == r"rule: the last message or tool result matches the regular expression '\\bpassed\\b|DONE$'"
    assert RuleRewards(rule="no_error").source == "rule: no tool error in the whole episode"
    assert RuleRewards(rule="sql", text="t > 3", on="any").source == "rule: 't > 3' holds on at least one step"


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: RuleRewards(rule="magic"), InvalidConfig, "no rule called 'magic'"),
        (lambda: RuleRewards(rule="contains"), InvalidConfig, "Give the text"),
        *(
            (lambda rule=rule: preview(RUNS, RuleRewards(rule=rule, text="x\ud800")), InvalidConfig, "half a pair")
            for rule in ("contains", "matches", "called", "sql")
        ),
        (lambda: RuleRewards(rule="contains", text="x", on="nowhere"), InvalidConfig, "can't look at"),
        (lambda: RuleRewards(rule="no_error", if_true=math.nan), InvalidConfig, "must be a number"),
        (lambda: RuleRewards(rule="no_error", costs=StepCosts(per_step=-1)), InvalidConfig, "must lie between"),
        (lambda: StepCosts(per_dollar=math.nan), InvalidConfig, "per dollar is nan"),
        (lambda: preview(RUNS, RuleRewards(rule="matches", text="(")), InvalidConfig, "can't be read"),
        (lambda: preview(RUNS, RuleRewards(rule="matches", text=r"(a)\1")), InvalidConfig, "can't be read"),
        (lambda: preview(RUNS, RuleRewards(rule="sql", text="1; DROP TABLE steps")), InvalidPredicate, "doesn't parse"),
        (lambda: preview(RUNS, RuleRewards(rule="sql", text="(SELECT true)")), InvalidPredicate, "subquery"),
        (lambda: preview(RUNS, RuleRewards(rule="sql", text="")), InvalidPredicate, "empty"),
        (lambda: preview(RUNS, RuleRewards(rule="sql", text="tool > 1")), InvalidPredicate, "can't be computed"),
    ],
)
def test_bad_rules_are_refused_in_words(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


@pytest.mark.parametrize("pattern", ["(a?b?){900}c", "(.{0,100}x){100}", "((a{30}){30}){30}", "x" * 501, "{1000}" * 3])
def test_patterns_that_could_take_minutes_are_refused(pattern):
    with pytest.raises(InvalidConfig):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+$", "(.*a){20}", "(a?){16}a{16}", "(x+x+)+y", ".*" * 30 + "y"])
def test_patterns_that_take_others_forever_are_linear_here(pattern):
    log = log_of(*(run(f"e{i}", say("a" * 50_000)) for i in range(20)))
    started = time.perf_counter()
    preview(log, RuleRewards(rule="matches", text=pattern))
    assert time.perf_counter() - started < 8


def test_long_texts_are_judged_by_their_end_and_it_is_said():
    log = log_of(run("a", say("start" + "x" * LONGEST_TEXT)), run("b", say("x" * LONGEST_TEXT + "end")))
    found = preview(log, RuleRewards(rule="matches", text="start|end"))
    assert found.outcomes.tolist() == [0.0, 1.0]
    assert found.notes == ("The texts of 2 episodes are longer than 20,000 characters; only their end is looked at.",)


def test_a_message_whose_arguments_are_no_json_is_unknown():
    log = log_of(run("a", {"action": "message", "action_type": "message", "arguments": '{"text": '}))
    assert math.isnan(preview(log, RuleRewards(rule="contains", text="x")).outcomes[0])


# -- costs ----------------------------------------------------------------------------------------------------


def test_costs_are_components_of_each_step():
    log = log_of(
        run(
            "a",
            call("x", "ok", latency_ms=2000.0, cost_usd=0.5),
            call("x", "", "boom", latency_ms=0.0, cost_usd=0.0),
            call("y", "ok", latency_ms=500.0, cost_usd=0.25),
        )
    )
    costs = StepCosts(per_step=0.125, per_error=1, per_second=0.5, per_dollar=2)
    made = with_rewards(log, RuleRewards(rule="last_call", costs=costs))
    found = made.rows("SELECT reward, reward_components FROM steps ORDER BY row")
    assert [reward for reward, _ in found] == [-0.125 - 1 - 1, -0.125 - 1, 1 - 0.125 - 0.25 - 0.5]
    parts = [json.loads(text) for _, text in found]
    assert parts == [
        {"step_cost": -0.125, "time_cost": -1.0, "money_cost": -1.0},
        {"step_cost": -0.125, "error_cost": -1.0},
        {"step_cost": -0.125, "time_cost": -0.25, "money_cost": -0.5, "rule": 1.0},
    ]
    assert [sum(part.values()) for part in parts] == [reward for reward, _ in found]
    assert "less 0.125 per step, 1 per error, 0.5 per second, 2 per dollar" in made.report.notes[-1]


def test_an_unknown_cost_makes_the_whole_episode_unknown_and_never_free():
    log = log_of(
        run("known", {"latency_ms": 1000.0}, {"latency_ms": 1000.0}),
        run("unknown", {"latency_ms": 1000.0}, {"latency_ms": None}),
    )
    recipe = RuleRewards(rule="sql", text="true", costs=StepCosts(per_second=0.25))
    made = with_rewards(log, recipe)
    assert rewards_of(made) == {"known": [-0.25, 0.75], "unknown": [None, None]}
    assert preview(log, recipe).notes == (
        "1 episode with an outcome have a step whose time or price isn't known, so their reward stays unknown.",
    )


def test_a_time_measured_once_for_parallel_calls_counts_once():
    log = log_of(
        run(
            "a",
            {"decision_id": "d", "latency_ms": 1000.0},
            {"decision_id": "d"},
            {"decision_id": "e", "latency_ms": 0.0},
        )
    )
    made = with_rewards(log, RuleRewards(rule="sql", text="true", costs=StepCosts(per_second=0.5)))
    assert rewards_of(made) == {"a": [-0.5, 0.0, 1.0]}


def test_an_episode_without_an_outcome_gets_no_costs_as_its_reward():
    log = log_of(run("a", call("x"), call("x")), run("b", call("x", "ok")))
    made = with_rewards(log, RuleRewards(rule="last_call", costs=StepCosts(per_step=0.5)))
    assert rewards_of(made) == {"a": [None, None], "b": [0.5]}


@given(rows=random_rows(), cost=st.sampled_from([0.0, 0.5, 1.0]))
@few_examples
def test_returns_are_outcome_less_costs(rows, cost):
    log = make_log(rows)
    made = with_rewards(
        log, RuleRewards(rule="called", text="left", if_true=3, if_false=-2, costs=StepCosts(per_step=cost))
    )
    for episode_id in {row["episode_id"] for row in rows}:
        steps = [row for row in rows if row["episode_id"] == episode_id]
        outcome = 3 if any(row["action"] == "left" for row in steps) else -2
        assert sum(r or 0 for r in rewards_of(made)[episode_id]) == outcome - cost * len(steps)
