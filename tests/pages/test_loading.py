"""Files become logs: several at once, read another way, and by a mapping that is remembered for logs that look alike."""

import json
import os

import pytest

import offrl_core as orl
from offrl_core.coverage_edits import EDITS
from offrl_core.importers.step_mapping import StepMapping
from pages._ui import browser, mappings
from tests.pages.conftest import open_page, shown, texts
from tests.traces import shared_trace


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Mappings are saved where no other test sees them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def lines(*records: dict) -> bytes:
    return "\n".join(map(json.dumps, records)).encode()


def drop(app, *files: tuple[str, bytes]):
    open_page(app, "data")
    app.file_uploader[0].set_value([(name, data, "text/plain") for name, data in files]).run()
    assert not app.exception, app.exception
    return app


HOME_MADE = [
    {"wer": run, "wann": i, "was": what, "womit": {"x": i}, "punkte": float(i), "sah": f"s{i}"}
    for run in ("a", "b")
    for i, what in enumerate(["suchen", "lesen", "antworten"])
]


def test_files_dropped_together_become_one_log(app):
    steps = [{"episode_id": e, "t": 0, "action": "go", "reward": 1.0, "done": True} for e in "ab"]
    drop(app, ("a.jsonl", lines(steps[0])), ("b.jsonl", lines(steps[1])))
    assert "2 steps in 2 episodes" in texts(app)
    assert "a.jsonl and 1 more file" in texts(app)


def test_one_bad_file_of_several_is_reported_and_the_others_are_read(app):
    drop(app, ("a.jsonl", lines({"episode_id": "a", "t": 0, "action": "go"})), ("b.pkl", b"\x80\x04\x95"))
    assert "1 step in 1 episode" in texts(app)
    kinds = [table.value for table in app.dataframe if "kind" in table.value]
    assert "unreadable file" in set(kinds[0]["kind"])


def test_what_was_lost_where_stands_under_the_counts(app):
    steps = [{"episode_id": "a", "t": t, "action": "go"} for t in range(4)]
    content = lines(*steps).splitlines()
    content[2] = content[2][:20]
    drop(app, ("a.jsonl", b"\n".join(content)))
    assert "Read 3 of 4 rows (1 lost): 3 steps in 1 episode, 1 of them torn" in texts(app)
    assert "a.jsonl: 1 of 4 rows lost (3)" in texts(app)
    (kinds,) = [table.value for table in app.dataframe if "the first" in table.value]
    told = dict(zip(kinds["kind"], kinds["the first"], strict=True))
    assert told["not JSON"].startswith("a.jsonl, row 3: ")


def test_a_file_can_be_read_as_another_format(app):
    drop(app, ("steps.jsonl", lines({"episode_id": "a", "t": 0, "action": "go", "reward": 1.0})))
    app.selectbox(key="w:read_as").set_value("step_table").run()
    assert not app.exception
    assert "chosen by hand" in texts(app)
    assert "1 step in 1 episode" in texts(app)


def test_a_log_with_names_of_its_own_is_mapped_read_and_remembered(app):
    drop(app, ("eigen.jsonl", lines(*HOME_MADE)))
    app.switch_page("pages/mapping.py").run()
    assert not app.exception, app.exception
    roles = {"episode": "wer", "step": "wann", "action": "was", "arguments": "womit", "reward": "punkte"}
    for role, field in roles.items():
        (box,) = [box for box in app.selectbox if box.key.endswith(f":{role}")]
        box.set_value(field)
        app.run()
    (state,) = app.multiselect
    state.set_value(["sah"]).run()
    assert not app.exception, app.exception
    preview = app.dataframe[0].value
    assert list(preview["action"]) == ["suchen", "lesen", "antworten"]
    assert list(preview["reward"]) == [0.0, 1.0, 2.0]
    (button,) = [button for button in app.button if "Read the files" in button.label]
    button.click().run()
    assert not app.exception, app.exception
    assert "6 steps in 2 episodes" in texts(app)
    log = next(iter(app.session_state["uploads"].values()))
    assert log.rows("SELECT count(*), count(DISTINCT episode_id), sum(reward) FROM steps") == [(6, 2, 6.0)]
    # The next file with these fields is read the same way, without asking.
    again = [{**record, "wer": "c"} for record in HOME_MADE[:3]]
    drop(app, ("mehr.jsonl", lines(*again)))
    assert "3 steps in 1 episode" in texts(app)
    assert "mapping that was saved" in texts(app)


# The outcome stands on the last step of an episode only, under names that say nothing.
OUTCOMES = [
    {"wer": f"r{e}", "wann": t, "was": ("a", "b", "c")[(2 * e + t) % 3], "lage": {"x": t}, "gut": gut, "aus": t == 2}
    for e in range(8)
    for t, gut in enumerate([None, None, e % 2])
]


def box_of(app, role: str):
    return next(box for box in app.selectbox if box.key.endswith(f":{role}"))


def test_a_field_leaves_the_state_when_it_gets_a_role_and_is_marked_when_it_comes_back(app):
    drop(app, ("eigen.jsonl", lines(*OUTCOMES)))
    app.switch_page("pages/mapping.py").run()
    box_of(app, "episode").set_value("wer").run()
    box_of(app, "step").set_value("wann").run()
    for role in ("reward", "done"):
        box_of(app, role).set_value("").run()
    app.multiselect[0].set_value(["lage.x", "gut", "aus"]).run()
    assert {error.value.partition(" ")[0] for error in app.error} == {"gut", "aus"}  # by what they hold
    for role, field in (("reward", "gut"), ("done", "aus")):
        box_of(app, role).set_value(field).run()
        assert field not in app.multiselect[0].value
    assert not app.error
    for field, what in (("gut", "the reward"), ("aus", "the flag of the last step"), ("wer", "the episode")):
        app.multiselect[0].set_value(["lage.x", field]).run()
        (error,) = app.error
        assert f"{field} in the state is {what}" in shown(error.value)


def test_a_saved_mapping_loses_what_its_state_should_not_know(app):
    leaking = StepMapping(episode="wer", step="wann", action="was", reward="gut", done="aus", state=("gut", "aus"))
    mappings.save(OUTCOMES, leaking)
    drop(app, ("eigen.jsonl", lines(*OUTCOMES)))
    assert "24 steps in 8 episodes" in texts(app)
    assert "Its state held gut, aus, known only after the action; that was taken out." in texts(app)
    app.switch_page("pages/mapping.py").run()
    assert app.multiselect[0].value == []
    assert "Its state held gut, aus" in texts(app)
    assert not app.error


def test_mapping_asks_for_a_file_first(app):
    open_page(app, "mapping")
    assert "Load a file" in texts(app)


def test_mapping_of_a_file_without_fields_says_so(app):
    drop(app, ("prose.txt", b"Once upon a time there was an agent. It had no log.\n"))
    app.switch_page("pages/mapping.py").run()
    assert not app.exception
    assert app.error


@pytest.mark.parametrize(
    "file",
    [
        "tabular_rollouts/acrobot_rollouts.csv",
        "generic_jsonl/reflexion_leetcode_py_gpt4.jsonl",
        "damaged/semicolon_decimal_comma.csv",
    ],
)
def test_the_mapping_page_draws_real_files(app, file):
    path = shared_trace(file)
    drop(app, (path.name, path.read_bytes()))
    app.switch_page("pages/mapping.py").run()
    assert not app.exception, app.exception
    assert app.dataframe or app.info or app.error


def test_a_broken_saved_mapping_is_as_good_as_none(tmp_path):
    mappings.save(HOME_MADE, StepMapping(episode="wer"))
    assert mappings.load(HOME_MADE) == (StepMapping(episode="wer"), ())
    (file,) = tmp_path.rglob("*.json")
    file.write_text("{")
    assert mappings.load(HOME_MADE) == (None, ())
    assert mappings.load([{"other": 1}]) == (None, ())


def test_an_unknown_format_says_the_nearest_and_the_way_out_before_anything_else(app):
    drop(app, ("eigen.jsonl", lines(*OUTCOMES)))
    (error,) = app.error
    said = shown(error.value)
    assert "The nearest is Step table of one's own" in said
    assert "no field is called like an action" in said
    assert not any(spec.title in said for name, spec in orl.IMPORTERS.items() if name != "step_table")
    assert "still the log from before: Calculator agent with all its tools" in texts(app)
    (folded,) = [one for one in app.expander if f"{len(orl.IMPORTERS)} formats" in one.label]
    assert all(spec.title in shown(folded.caption[0].value) for spec in orl.IMPORTERS.values())
    assert [button for button in app.button if button.label == "Say which field means what"]


def test_a_file_without_fields_is_not_sent_to_the_mapping(app):
    drop(app, ("numbers.json", b"[[1], [2]]"))
    assert "its records are no objects with fields" in texts(app)
    assert "still the log from before" in texts(app)
    assert not [button for button in app.button if button.label == "Say which field means what"]


def test_where_files_are_dropped_it_says_how_long_they_stay(app):
    open_page(app, "data")
    assert browser.KEPT_SECONDS == 1800
    assert "until about half an hour after your last look" in texts(app)


def test_traces_of_a_folder_are_read_together(tmp_path):
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "a.jsonl").write_bytes(lines({"episode_id": "a", "t": 0, "action": "go"}))
    (tmp_path / "b.jsonl").write_bytes(lines({"episode_id": "b", "t": 0, "action": "go"}))
    (tmp_path / ".hidden").write_bytes(b"\x80")
    log = orl.read_traces(tmp_path)
    assert log.n_episodes == 2
    assert {name for (name,) in log.rows("SELECT DISTINCT source_file FROM steps")} == {"deeper/a.jsonl", "b.jsonl"}
    assert not log.report.problems
    with pytest.raises(orl.OffRLError, match="can't be opened"):
        orl.read_traces(tmp_path / "missing.jsonl")


def test_a_folder_s_pipes_are_no_files_and_no_name_is_no_folder(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_bytes(lines({"episode_id": "a", "t": 0, "action": "go"}))
    os.mkfifo(tmp_path / "pipe")
    assert orl.read_traces(tmp_path).n_steps == 1
    monkeypatch.chdir(tmp_path)
    with pytest.raises(orl.OffRLError, match="has no name"):
        orl.read_traces("")


def test_parallel_calls_can_be_joined(app):
    steps = [
        {"episode_id": "a", "t": t, "action": {"tool": tool, "decision_id": "r", "call_index": t}}
        for t, tool in enumerate(["weather", "fare"])
    ]
    drop(app, ("a.jsonl", lines(*steps)))
    (button,) = [button for button in app.button if "parallel calls of 1 reply" in button.label]
    button.click().run()
    assert not app.exception, app.exception
    assert "1 step" in texts(app)
    assert "fare + weather" in texts(app)
    assert "of 2 steps 1 are left" in texts(app)


def test_joining_parallel_calls_keeps_framing_and_edits(app):
    steps = [
        {"episode_id": e, "t": t, "action": {"tool": tool, "decision_id": "r", "call_index": t}}
        for e in "abcdefgh"
        for t, tool in enumerate(["weather", "fare"])
    ]
    drop(app, ("a.jsonl", lines(*steps)))
    app.session_state["framing"], app.session_state["edits"] = "step", "keep:0.5:1"
    app.run()
    (button,) = [button for button in app.button if "parallel calls of 8 replies" in button.label]
    button.click().run()
    assert not app.exception, app.exception
    assert (app.session_state["framing"], app.session_state["edits"]) == ("step", "keep:0.5:1")
    assert "parallel calls joined" in texts(app)


OF_A_LINK = {
    "framing": "step",
    "edits": "keep:0.5:1",
    "episode": "b",
    "cell_state": "step 1",
    "cell_action": "go",
    "first": 3,
}


def test_the_choices_of_a_link_wait_for_their_file(app):
    data = lines(*({"episode_id": e, "t": 0, "action": "go", "reward": 1.0, "done": True} for e in "abcdefgh"))
    name = "upload:" + orl.read_traces(contents=[("a.jsonl", data)]).fingerprint
    open_page(app, "overview", data=name, **{key: str(value) for key, value in OF_A_LINK.items()})
    assert "wait for the file" in texts(app)
    assert "Keeps 50" not in texts(app)  # the bundled log is shown as it is
    assert app.session_state["edits"] == app.session_state["framing"] == ""
    drop(app, ("other.jsonl", lines({"episode_id": "x", "t": 0, "action": "go"})))
    assert app.session_state["edits"] == app.session_state["framing"] == ""
    drop(app, ("a.jsonl", data))
    assert app.session_state["data"] == name
    assert {key: app.session_state[key] for key in OF_A_LINK} == OF_A_LINK
    # Later on they are the visitor's own: another log ends them.
    drop(app, ("other.jsonl", lines({"episode_id": "x", "t": 0, "action": "go"})))
    drop(app, ("a.jsonl", data))
    assert app.session_state["edits"] == app.session_state["framing"] == ""


def test_the_same_file_once_more_changes_nothing(app):
    data = lines(*({"episode_id": e, "t": 0, "action": "go", "reward": 1.0} for e in "abcdefgh"))
    drop(app, ("a.jsonl", data))
    app.session_state["edits"] = "keep:0.5:1"
    app.session_state["framing"] = "step"
    drop(app, ("a.jsonl", data))
    assert app.session_state["edits"] == "keep:0.5:1"
    assert app.session_state["framing"] == "step"


# One edit of each kind, and the one that only a world can make: a visitor may have made it before choosing another log.
EDITS_OF_ANY_LOG = [
    "drop:go:episodes",
    "drop:go:transitions",
    "drop:go:recollect",
    "where:episodes:t > 0",
    "keep:0.5:1",
    "rest:0.5:1",
    "minreturn:1",
    "only:task:x",
    "cap:1:0",
]


def test_the_edits_above_are_of_every_kind():
    assert {token.partition(":")[0] for token in EDITS_OF_ANY_LOG} == set(EDITS)


@pytest.mark.parametrize("edit", EDITS_OF_ANY_LOG)
def test_every_page_of_an_imported_log_stands_every_edit(app, edit):
    steps = [
        {"episode_id": e, "t": t, "action": tool, "task": "x", "reward": float(t)}
        for e in "abcd"
        for t, tool in enumerate(["go", "stop"])
    ]
    drop(app, ("a.jsonl", lines(*steps)))
    app.session_state["edits"] = edit
    for page in ("data", "report", "framing", "rewards", "coverage", "train", "q_values", "evaluate"):
        app.switch_page(f"pages/{page}.py").run()
        assert not app.exception, (page, app.exception)


def test_where_no_step_can_be_read_the_files_cannot_be_read_by_the_mapping(app):
    drop(app, ("home.jsonl", lines(*HOME_MADE)))
    app.switch_page("pages/mapping.py").run()
    next(box for box in app.selectbox if box.key.endswith(":action")).set_value("").run()
    assert "No step can be read this way" in texts(app)
    assert reading_button(app).disabled
    next(box for box in app.selectbox if box.key.endswith(":action")).set_value("was").run()
    assert not reading_button(app).disabled


def reading_button(app):
    return next(button for button in app.button if button.label == "Read the files with this mapping")


def test_the_notebook_of_the_mapping_page_runs(app, tmp_path, monkeypatch):
    drop(app, ("home.jsonl", lines(*HOME_MADE)))
    app.switch_page("pages/mapping.py").run()
    (tmp_path / "log.jsonl").write_bytes(lines(*HOME_MADE))
    (tmp_path / "mapping.json").write_text(StepMapping(episode="wer", step="wann", action="was").to_json())
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(app.code[-1].value, names)
    assert (names["log"].n_steps, names["log"].n_episodes) == (6, 2)


def test_a_link_to_a_log_of_ones_own_names_its_files(app):
    drop(app, *((f"{name}.jsonl", lines({"episode_id": name, "t": 0, "action": "go"})) for name in "abcd"))
    assert app.session_state["files"] == "a.jsonl, b.jsonl, c.jsonl and 1 more"
    app.selectbox(key="w:data").set_value("calculator").run()
    assert app.session_state["files"] == ""


def test_a_link_says_which_files_it_needs(app):
    open_page(app, "overview", data="upload:123", files="*airline*.json")
    assert "The link needs *airline*.json, which isn't loaded" in texts(app)


def test_options_that_are_no_markdown_are_not_escaped(app):
    states = [("a", 0, "book"), ("a", 1, "pay"), ("b", 0, "ask"), ("b", 1, "go")]
    steps = [
        {"episode_id": e, "t": t, "action": "go", "reward": 1.0, "state": {"user_goal": goal}} for e, t, goal in states
    ]
    drop(app, ("a.jsonl", lines(*steps)))
    app.switch_page("pages/framing.py").run()
    options = next(box for box in app.multiselect if box.label == "It consists of").options
    assert "user_goal (4 values)" in options
