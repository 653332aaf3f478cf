"""The framing workbench: choices go into the link and to every page, numbers move, splits help, and all can be undone."""

import json

import pytest

import offrl_core as orl
from offrl_core.evaluation.aliasing import framing_numbers, mixed_outcomes
from offrl_core.framing_choices import PRESETS, FramingChoices
from offrl_core.framing_parts import LastFailed, LastTools, Task
from tests.pages.conftest import open_page, shown, texts
from tests.traces import AIRLINE, shared_trace

OTHER_PAGES = ["overview", "data", "coverage", "train", "q_values", "query"]


def step(episode: str, t: int, tool: str = "go", **more: object) -> dict:
    return {"episode_id": episode, "t": t, "action": {"type": "tool_call", "tool": tool}, **more}


def hidden_cause() -> list[dict]:
    """Sixty episodes that a field of the state decides; tools called with an amount; a failure now and then."""
    rows = []
    for i in range(60):
        works = i % 2 == 0
        call = {"type": "tool_call", "tool": "искать", "arguments": {"amount": i, "unit": "kg"}}
        look = {"episode_id": f"e{i}", "t": 0, "action": call, "state": {"works": works}, "latency_ms": 100.0}
        look["observation"] = {"tool_result": "ok", "error": "boom" if i % 7 == 0 else None}
        rows += [
            look,
            step(f"e{i}", 1, "go", state={"works": works}, reward=float(works), done=True, latency_ms=100.0),
        ]
    return rows


def open_framing(app, rows: list[dict], **params: str):
    """Load a log and open the page."""
    open_page(app, "data")
    data = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()
    app.file_uploader[0].set_value([("log.jsonl", data, "application/json")]).run()
    for name, value in params.items():
        app.session_state[name] = value
    app.switch_page("pages/framing.py").run()
    assert not app.exception, app.exception
    return app


def metrics(app) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def deltas(app) -> dict[str, str]:
    return {metric.label: metric.delta for metric in app.metric}


def framing_of(app) -> FramingChoices:
    return FramingChoices.from_link(app.session_state["framing"])


def log_of(app) -> orl.log.Log:
    return app.session_state["uploads"][app.session_state["data"].removeprefix("upload:")]


def test_the_airline_file_in_three_clicks(app):
    path = shared_trace(AIRLINE)
    open_page(app, "data")
    app.file_uploader[0].set_value([("airline.json", path.read_bytes(), "application/json")]).run()
    app.switch_page("pages/framing.py").run()
    log = orl.read_traces(path)
    before = orl.frame(log, PRESETS["last_tool"].framing())
    assert metrics(app)["States"] == f"{before.n_states:,}"
    app.button(key="w:split:task").click().run()
    assert not app.exception, app.exception
    expected = FramingChoices(state=(Task(), LastTools(1), LastFailed()))
    assert framing_of(app) == expected
    after = orl.frame(log, expected.framing())
    outcomes = mixed_outcomes(after)
    told = metrics(app)
    assert told["States"] == f"{after.n_states:,}"
    assert told["Density"] == f"{framing_numbers(after).density:.1%}"
    assert told["Visits on mixed pairs"] == f"{outcomes.mixed_visits / outcomes.n_visits:.1%}"
    assert deltas(app)["States"] == f"{after.n_states - before.n_states:+,}"
    assert float(told["Change of V at starts"]) > 0.1
    assert list(app.dataframe[0].value["state"]) == list(outcomes.pairs["state"])
    for page in OTHER_PAGES:
        app.switch_page(f"pages/{page}.py").run()
        assert not app.exception, (page, app.exception)
        assert f"of {after.valid_mask.sum():,} state-action pairs" in texts(app), (
            page
        )  # the bar of every page shows the chosen framing


def test_the_hidden_cause_is_offered_as_a_split_and_ends_the_mixing(app):
    open_framing(app, hidden_cause())
    assert metrics(app)["Visits on mixed pairs"] == "100.0%"
    split = next(button for button in app.button if "works of the logged state" in shown(button.label))
    split.click().run()
    assert metrics(app)["Visits on mixed pairs"] == "0.0%"
    assert deltas(app)["Visits on mixed pairs"] == "-100.0 points"
    assert "No mixed pair here" in texts(app)


def test_undo_and_redo_walk_through_the_framings_of_the_session(app):
    open_framing(app, hidden_cause())
    assert app.button(key="w:framing_undo").disabled
    app.selectbox(key="w:fr_preset").set_value("step").run()
    app.number_input(key="w:fr_discount").set_value(0.5).run()
    assert framing_of(app).discount == 0.5
    app.button(key="w:framing_undo").click().run()
    assert framing_of(app) == PRESETS["step"]
    app.button(key="w:framing_undo").click().run()
    assert framing_of(app) == PRESETS["last_tool"]
    assert app.button(key="w:framing_undo").disabled
    assert app.selectbox(key="w:fr_preset").value == "last_tool"
    app.button(key="w:framing_redo").click().run()
    assert framing_of(app) == PRESETS["step"]
    app.selectbox(key="w:fr_preset").set_value("tools_used").run()  # a new way from here: nothing left to redo
    assert app.button(key="w:framing_redo").disabled
    app.button(key="w:framing_undo").click().run()
    assert framing_of(app) == PRESETS["step"]


def test_every_control_changes_the_framing(app):
    open_framing(app, hidden_cause())
    app.multiselect(key="w:fr_parts").set_value(["tools", "failed", "field:/works"]).run()
    app.slider(key="w:fr_k").set_value(2).run()
    app.text_input(key="w:fr_state_sql").set_value("row_number() OVER episode").run()
    app.selectbox(key="w:fr_action").set_value("argument").run()
    app.slider(key="w:fr_groups").set_value(3).run()
    app.number_input(key="w:fr_cost_latency_ms").set_value(0.5).run()
    app.number_input(key="w:fr_cost_error").set_value(0.25).run()
    assert not app.error, app.error
    assert app.session_state["framing"] == (
        "field:%2Fworks+sql:row_number() OVER episode+tools:2+failed,argument:%2Famount:numbers:19:39,"
        "outcome+costs:error=0.25:latency_ms=0.5,0.99"
    )
    app.selectbox(key="w:fr_reward").set_value("sql").run()
    app.text_area(key="w:fr_reward_sql").set_value("coalesce(reward, 0) * 2").run()
    app.selectbox(key="w:fr_action").set_value("shape").run()
    assert not app.error, app.error
    dataset = orl.frame(log_of(app), framing_of(app).framing())
    assert set(dataset.actions) == {"искать(amount, unit)", "go(?)"}
    assert metrics(app)["States"] == f"{dataset.n_states:,}"


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("(SELECT 1)", "a subquery"),
        ("lag(wing) OVER episode", "no column 'wing'"),
        ("tool + 1", "can't be computed"),
        ("<img src=x>", "doesn't parse"),
    ],
)
def test_refused_sql_says_why_and_changes_nothing(app, sql, sentence):
    open_framing(app, hidden_cause())
    app.text_input(key="w:fr_state_sql").set_value(sql).run()
    assert not app.exception
    assert [sentence in shown(error.value) for error in app.error] == [True]
    assert "The framing stays as it was" in shown(app.error[0].value)
    assert app.session_state["framing"] in ("", "last_tool")
    assert app.text_input(key="w:fr_state_sql").value == sql  # to be mended, not typed again
    app.text_input(key="w:fr_state_sql").set_value("lag(tool) OVER episode").run()
    assert not app.error
    assert framing_of(app).link.startswith("sql:")


def test_a_state_that_knows_the_future_is_warned_about(app):
    open_framing(app, hidden_cause())
    app.text_input(key="w:fr_state_sql").set_value("lead(reward) OVER episode").run()
    said = [shown(warning.value) for warning in app.warning]
    assert any("later steps" in sentence for sentence in said)
    assert any("known only after acting" in sentence for sentence in said)


def test_a_state_without_parts_is_refused(app):
    open_framing(app, hidden_cause())
    app.multiselect(key="w:fr_parts").set_value([]).run()
    assert "1 to 12 parts" in shown(app.error[0].value)
    assert app.multiselect(key="w:fr_parts").value == ["tools", "failed"]


def test_a_row_of_the_table_opens_its_steps(app):
    open_framing(app, hidden_cause(), cell_state="start", cell_action="искать")
    assert "`искать` in `start`" in texts(app)
    assert metrics(app)["Rows"] == "60"


def test_pairs_that_end_the_episode_can_be_shown_alone(app):
    open_framing(app, hidden_cause())
    assert set(app.dataframe[0].value["action"]) == {"искать", "go"}
    app.toggle(key="w:only_endings").set_value(True).run()
    assert set(app.dataframe[0].value["action"]) == {"go"}
    assert app.session_state["only_endings"] == "1"


def test_a_link_with_choices_sets_every_page_up_and_one_that_is_none_is_said(app):
    open_framing(app, hidden_cause(), framing="task+tools:3,shape,logged,0.5")
    assert framing_of(app).discount == 0.5
    for page in (*OTHER_PAGES, "framing"):
        app.session_state["framing"] = "task+wings,tool,outcome,1"
        app.switch_page(f"pages/{page}.py").run()
        assert not app.exception
        said = [shown(warning.value) for warning in app.warning]
        assert any("The framing of this link was left out" in sentence and "wings" in sentence for sentence in said)
        assert app.session_state["framing"] == ""


def test_a_framing_that_does_not_fit_the_log_leaves_the_controls(app):
    open_framing(app, hidden_cause(), framing="sql:tool %2B 1,tool,outcome,1")
    assert any("can't be computed" in shown(error.value) for error in app.error)
    app.text_input(key="w:fr_state_sql").set_value("tool").run()
    assert not app.error


@pytest.mark.parametrize("data", ["calculator", "calculator_without_mul", "generated"])
def test_the_log_of_a_world_keeps_its_framing_and_is_told_why(app, data):
    open_page(app, "framing", data=data, framing="step")
    said = texts(app)
    assert "belong to its own states" in said
    assert "state = the state as the log words it" in said
    assert not app.multiselect
    if data != "generated":
        assert metrics(app)["States"] == f"{orl.frame(orl.bundled_log(data)).n_states:,}"
    splits = [button for button in app.button if button.key and button.key.startswith("w:split")]
    assert splits
    assert all(button.disabled for button in splits)


ODD_LOGS = {
    "no task, no state, no error, no reward": [step("a", 0), step("a", 1, "stop"), step("b", 0)],
    "one step": [step("a", 0, reward=1.0, done=True)],
    "200 actions": [step(f"e{i}", 0, f"tool_{i}", reward=i % 2, done=True) for i in range(200)],
    "Cyrillic, Markdown and SQL": [
        step("эпизод 🙂", 0, "умножить `*` <b>", task="'; DROP TABLE steps; --", state={"ключ **x**": "<img src=x>"}),
        step("эпизод 🙂", 1, "ответ", task="'; DROP TABLE steps; --", state={"ключ **x**": 2}, reward=1.0, done=True),
    ],
    "messages and final answers": [
        {
            "episode_id": f"e{i}",
            "t": t,
            "action": {"type": kind, "arguments": {"text": "x"}},
            "reward": float(i),
            "done": t == 1,
        }
        for i in range(2)
        for t, kind in enumerate(("message", "final"))
    ],
}


@pytest.mark.parametrize("name", ODD_LOGS)
@pytest.mark.parametrize(
    "framing",
    [
        "",
        "task+used+tools:5+failed+step,shape,outcome+costs:cost_usd=1.0,1.0",
        "field:%2Fnone,tool+onemessage,components:%2Fx=1.0,0.0",
    ],
)
def test_odd_logs_can_be_framed_in_odd_ways(app, name, framing):
    open_framing(app, ODD_LOGS[name], framing=framing)
    assert not app.error, app.error
    assert metrics(app)["States"]
    if "no reward" in name or "components" in framing or "cost_usd" in framing:
        assert "No step has a known outcome" in texts(app) or metrics(app)["Promised return"] in ("unknown", "+0")
