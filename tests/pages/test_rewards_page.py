"""The page Rewards: joined from a file or given by a rule, seen before it is done, and undone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from pages._ui import state, work
from tests.pages.conftest import APP, open_page, shown, texts
from tests.traces import AIRLINE, shared_trace


def steps(*episodes: tuple[str, int], **fields: Any) -> bytes:
    """A trace file without rewards: episode and number of its steps."""
    rows = [
        {
            "episode_id": e,
            "t": t,
            "action": {"tool": "look" if t < n - 1 else "submit"},
            "observation": {"tool_result": "ok"},
            **fields,
        }
        for e, n in episodes
        for t in range(n)
    ]
    return "\n".join(json.dumps(row) for row in rows).encode()


LOG = steps(("7", 2), ("8", 1), ("9", 3))


def load(app, data: bytes = LOG, name: str = "runs.jsonl"):
    open_page(app, "data")
    app.file_uploader[0].set_value([(name, data, "application/json")]).run()
    assert not app.exception, app.exception
    return to_rewards(app)


def to_rewards(app):
    app.switch_page("pages/rewards.py").run()
    assert not app.exception, app.exception
    return app


def give(app, data: bytes, name: str = "results.csv"):
    app.file_uploader(key="w:reward_file").set_value([(name, data, "text/csv")]).run()
    assert not app.exception, app.exception
    return app


def press(app, label: str):
    next(button for button in app.button if button.label == label).click().run()
    assert not app.exception, app.exception
    return app


def by_rule(app, rule: str):
    app.segmented_control(key="w:reward_way").set_value("rule").run()
    app.selectbox(key="w:rule").set_value(rule).run()
    assert not app.exception, app.exception
    return app


def current_rewards(app) -> list[float | None]:
    uploads = app.session_state[state.UPLOADS]
    log = uploads[app.session_state["data"].removeprefix(work.UPLOAD_PREFIX)]
    return [reward for (reward,) in log.rows("SELECT reward FROM steps ORDER BY row")]


@pytest.mark.parametrize("data", ["calculator", "generated"])
def test_a_world_keeps_its_rewards_and_the_page_says_so(app, data):
    open_page(app, "rewards", data=data)
    assert "its rewards are the world's" in texts(app)
    assert not app.file_uploader
    assert not [button for button in app.button if button.label == "Apply"]


def test_rewards_are_joined_by_guess_applied_and_undone(app):
    load(app)
    assert "0 of 3 episodes have a reward now" in texts(app)
    give(app, b"run,passed\n7,true\n9,false\n4,true\n")
    assert "Matched 2 of 3 episodes; 1 reward without an episode; 1 episode without a reward." in texts(app)
    assert current_rewards(app) == [None] * 6  # nothing is done before it is asked for
    press(app, "Apply")
    assert current_rewards(app) == [None, 1.0, None, None, None, 0.0]
    assert "2 of 3 episodes have a reward now" in texts(app)
    assert "joined from results.csv by episode_id" in texts(app)
    assert "runs.jsonl with rewards joined from results.csv by episode_id" in app.selectbox(key="w:data").options
    press(app, "Undo")
    assert current_rewards(app) == [None] * 6
    assert len(app.session_state[state.UPLOADS]) == 1


def test_a_link_gives_the_same_rewards_once_its_file_is_loaded(app):
    load(app)
    press(by_rule(app, "last_call"), "Apply")
    link, rewards = app.session_state["data"], current_rewards(app)
    assert any(reward is not None for reward in rewards)
    app = open_page(AppTest.from_file(APP, default_timeout=120), "overview", data=link)
    assert "isn't loaded in this session" in texts(app)
    load(app)
    assert app.session_state["data"] == link
    assert current_rewards(app) == rewards
    press(app, "Undo")
    assert current_rewards(app) == [None] * 6


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ('[["rule"]]', "can't be read"),
        ("[", "can't be read"),
        ('["joint",["rule","no","","",true,[1,0,null],[0,0,0,0]]]', "no rule called 'no'"),
        ('[["join","0123456789abcdef","results.csv",[["run","episode_id"]],"passed",false,[0,0,0,0]]]', "results.csv"),
    ],
)
def test_what_a_link_asks_for_and_cannot_be_done_is_said_and_left_out(app, changes, sentence):
    load(app)
    name = app.session_state["data"]
    app.session_state["data"] = f"{name}:{changes}"
    app.run()
    assert not app.exception
    assert sentence in texts(app)
    assert app.session_state["data"] == name


def test_the_guess_can_be_changed(app):
    load(app)
    give(app, b"run,passed,share\n7,true,0.25\n8,false,0.5\n9,true,1\n")
    press(app, "Apply")
    assert current_rewards(app) == [None, 1.0, 0.0, None, None, 1.0]
    reward = next(box for box in app.selectbox if box.label == "Reward")
    reward.set_value("share").run()
    press(app, "Apply")
    assert current_rewards(app) == [None, 0.25, 0.5, None, None, 1.0]
    press(app, "Undo")  # both started from the file, so this leads back to it
    assert current_rewards(app) == [None] * 6


def test_what_is_left_over_is_listed(app):
    load(app)
    give(app, b"run,passed\n7,true\n7,false\n8,maybe\n,true\n")
    said = texts(app)
    for part in (
        "Matched 0 of 3 episodes",
        "1 key used twice (kept: none, all listed)",
        "1 reward that can't be read (unknown, not 0)",
        "1 row without a key",
    ):
        assert part in said
    listed = app.dataframe[-1].value
    assert set(zip(listed["what"], listed["key"], strict=True)) == {
        ("key used twice", "7"),
        ("no reward", "8"),
        ("row without a key", ""),
        *(("episode without a reward", e) for e in "789"),
    }


BROKEN = {
    "empty.csv": b"",
    "prose.txt": b"Everything went well.",
    "half.json": b'{"a": ',
    "pickle.pkl": b"\x80\x04\x95",
    "list.json": b"[1,2]",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_gets_a_sentence_and_a_good_one_is_taken_after_it(app, name):
    load(app)
    give(app, BROKEN[name], name)
    assert len(app.error) == 1
    assert name in shown(app.error[0].value)
    give(app, b'{"7": 1, "8": 0}', "good.json")
    assert not app.error
    assert "Matched 2 of 3 episodes" in texts(app)


def test_files_and_names_that_try_to_be_something_else_are_text(app):
    load(app, steps(("![x](http://example.org/x.png)", 1), ("<b>'; DROP TABLE steps; --", 1)))
    table = {"**bold** ![x](http://example.org/y.png)": "<script>", "score": 1}
    give(app, json.dumps([table, table | {"score": 0}]).encode(), "![x](http://example.org/z.png).json")
    assert not [m for kind in (app.markdown, app.caption) for m in kind if "](http" in m.value]


def test_a_rule_is_previewed_and_applied(app):
    by_rule(load(app), "no_error")
    assert "True for 3 of 3 episodes, false for 0, unknown for 0." in texts(app)
    assert "All judged episodes get the same reward" in texts(app)
    press(app, "Apply")
    assert current_rewards(app) == [None, 1.0, 1.0, None, None, 1.0]
    assert "rule: no tool error in the whole episode" in texts(app)


def test_a_rule_with_sql_values_and_costs(app):
    by_rule(load(app), "sql")
    assert not [button for button in app.button if button.label == "Apply"]  # no condition yet
    app.text_input(key="w:rule_sql").set_value("t >= 1").run()
    app.number_input(key="w:rule_if false").set_value(-2.0).run()
    app.number_input(key="w:rule_Per step").set_value(0.5).run()
    assert list(app.dataframe[0].value["reward of the episode"]) == ["1", "-2"]
    press(app, "Apply")
    assert current_rewards(app) == [-0.5, 0.5, -2.5, -0.5, -0.5, 0.5]


@pytest.mark.parametrize(
    ("rule", "key", "text", "sentence"),
    [
        ("matches", "w:rule_matches", "(", "can't be read"),
        ("matches", "w:rule_matches", "(a{99}){99}", "counted repeats"),
        ("sql", "w:rule_sql", "SELECT 1", "doesn't parse"),
        ("sql", "w:rule_sql", "nothing = 1", "no column 'nothing'"),
        ("sql", "w:rule_sql", "t = 1) OR (SELECT true", "doesn't parse"),
    ],
)
def test_a_bad_rule_is_refused_in_words(app, rule, key, text, sentence):
    by_rule(load(app), rule)
    app.text_input(key=key).set_value(text).run()
    assert not app.exception, app.exception
    assert len(app.error) == 1
    assert sentence in shown(app.error[0].value)


def test_the_way_is_in_the_link_and_survives_other_pages(app):
    by_rule(load(app), "contains")
    app.text_input(key="w:rule_contains").set_value("ok").run()
    app.selectbox(key="w:rule_text_of").set_value("result").run()
    assert app.query_params["reward_way"] == "rule"
    app.switch_page("pages/coverage.py").run()
    to_rewards(app)
    assert "True for 3 of 3 episodes" in texts(app)


def test_the_same_session_learns_from_the_rewards(app):
    load(app, steps(("a", 2), ("b", 2), ("c", 2)))
    app.switch_page("pages/train.py").run()
    assert [error for error in app.error if "no step of this log has a known reward" in shown(error.value)]
    give(to_rewards(app), b'{"a": 1, "b": 0, "c": 1}', "r.json")
    press(app, "Apply")
    app.switch_page("pages/train.py").run()
    assert not app.exception
    assert not app.error


def test_the_airline_file_is_joined_by_task_and_trial(app):
    load(app, shared_trace(AIRLINE).read_bytes(), "airline.json")
    rows = [{"task_id": i // 4, "trial": i % 4, "score": i % 2} for i in range(190)]
    give(app, json.dumps(rows).encode(), "r.json")
    assert "Matched 190 of 200 episodes; 10 episodes without a reward." in texts(app)


# -- taking the log away, on the page Data ------------------------------------------------------------------------


def test_the_data_page_offers_both_files_and_counts_what_it_redacts(app):
    load(app, steps(("7", 2), task="write to ann@example.org"))
    app.switch_page("pages/data.py").run()
    labels = [button.label for button in app.get("download_button")]
    assert {"JSON lines", "Parquet"} <= set(labels)
    app.checkbox(key="w:redact").check().run()
    assert not app.exception, app.exception
    assert "Replaced: 2 e-mail addresses." in texts(app)


def test_the_data_page_says_when_it_finds_nothing_and_takes_edits_into_account(app):
    open_page(app, "data", edits="keep:0.5:0")
    app.checkbox(key="w:redact").check().run()
    assert "Nothing was found" in texts(app)
    kept = app.checkbox(key="w:export_kept")
    assert kept.value
    n_kept = kept.label.split()[2]
    assert f"{n_kept} steps of" in texts(app)
    kept.uncheck().run()
    assert "12,000 steps of 3,000 episodes" in texts(app)


def test_a_file_stays_when_the_page_changes_and_goes_when_it_is_removed(app):
    give(load(app), b"run,passed\n7,true\n9,false\n")
    app.switch_page("pages/coverage.py").run()
    assert "Matched 2 of 3 episodes" in texts(to_rewards(app))
    give(app, b"run,passed\n8,true\n9,false\n7,true\n")
    assert "Matched 3 of 3 episodes" in texts(app)
    app.file_uploader(key="w:reward_file").set_value([]).run()
    assert "Matched" not in texts(app)
