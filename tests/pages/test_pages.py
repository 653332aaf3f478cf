"""Every page with every log: it draws, says what is known and what isn't, and lives on after bad input."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import offrl_core as orl
from offrl_core.worlds import WORLDS
from pages._ui import work
from tests.pages.conftest import open_page, shown, texts
from tests.traces import AIRLINE, shared_trace

PAGES = ["overview", "data", "framing", "coverage", "ceiling", "train", "q_values", "shift", "query"]
WIDGETS = "w:"


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("data", ["calculator", "calculator_without_mul", "generated"])
def test_every_page_draws_with_every_log_of_our_own(app, page, data):
    open_page(app, page, data=data)
    assert app.title
    assert not app.error


@pytest.mark.parametrize("page", PAGES)
def test_every_page_draws_the_airline_file_and_admits_that_truth_is_unknown(app, page):
    upload(app, "airline.json", shared_trace(AIRLINE).read_bytes())
    app.switch_page(f"pages/{page}.py").run()
    assert not app.exception, app.exception
    assert not app.error
    if page in ("train", "q_values"):
        assert "no exact value" in texts(app)
    if page == "train":
        table = app.dataframe[0].value
        assert set(table["exact success"]) == {"unknown"}
        assert "Nobody knows the world behind this log" in texts(app)
        assert "deployment" not in texts(app).split("None?v=")[0]


def upload(app, name: str, data: bytes):
    """Load a file on the Data page."""
    open_page(app, "data")
    app.file_uploader[0].set_value([(name, data, "application/json")]).run()
    assert not app.exception, app.exception
    return app


def test_the_airline_file_reports_what_was_read(app):
    upload(app, "airline.json", shared_trace(AIRLINE).read_bytes())
    said = texts(app)
    assert "2,454 steps in 200 episodes" in said
    assert "42.0% with a return above 0" in said  # the file says what was earned, not what counts as solved
    assert "solved" not in said


def test_a_link_to_a_log_too_large_to_be_made_is_told_and_the_page_lives_on(app, monkeypatch):
    monkeypatch.setattr(work, "MOST_GENERATED", 100)
    open_page(app, "overview", data="generated", gen_world="gridworld")
    assert "have more than 100 steps" in texts(app)
    assert app.session_state["data"] == "calculator"


BAD_FILES = {
    "empty.json": b"",
    "prose.txt": "Это не JSON 🙂".encode(),
    "half.json": b'[{"episode_id": "a", "t": 0,',
    "other_shape.json": b'{"weather": [1, 2, 3]}',
    "pickle.pkl": b"\x80\x04\x95",
    "no_steps.json": b"[]",
    "unknown_format.csv": b"a;b\n1;2\n",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_cannot_be_read_gets_a_sentence_and_the_page_lives_on(app, name):
    upload(app, name, BAD_FILES[name])
    assert len(app.error) == 1
    assert name in shown(app.error[0].value)
    assert app.selectbox(key="w:data").value == "calculator"
    app.switch_page("pages/q_values.py").run()
    assert not app.exception


def steps(*rows: dict) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()


def step(episode: str, t: object, action: object = "go", reward: object = 0.0, **more: object) -> dict:
    return {"episode_id": episode, "t": t, "action": {"type": "tool_call", "tool": action}, "reward": reward, **more}


ODD_LOGS = {
    "one episode": steps(step("a", 0), step("a", 1, reward=1.0, done=True)),
    "one step": steps(step("a", 0, reward=1.0, done=True)),
    "duplicates, disorder, gaps": steps(step("a", 3), step("a", 0), step("a", 0), step("a", 9, reward=1, done=True)),
    "NaN and infinite rewards": b'{"episode_id":"a","t":0,"action":"x","reward":NaN}\n'
    b'{"episode_id":"a","t":1,"action":"y","reward":Infinity}\n{"episode_id":"b","t":0,"action":"x","reward":1,"done":true}',
    "no rewards at all": steps(step("a", 0, reward=None), step("a", 1, reward=None, done=True)),
    "200 actions": steps(*(step(f"e{i}", 0, f"tool_{i}", reward=i % 2, done=True) for i in range(200))),
    "missing fields": steps(step("a", 0), {"t": 1}, {"episode_id": "a"}, step("a", "zwei"), step("a", 1, done=True)),
    "Cyrillic and emoji": steps(
        step("эпизод 🙂", 0, "умножить `*` <b>", task="Сколько будет $2\\times2$? **🙂** '; DROP TABLE steps; --"),
        step("эпизод 🙂", 1, "ответ ![x](http://example.org/x.png)", reward=1.0, done=True),
    ),
}


@pytest.mark.parametrize("name", ODD_LOGS)
def test_odd_logs_go_through_every_page(app, name):
    upload(app, "odd.jsonl", ODD_LOGS[name])
    assert app.selectbox(key="w:data").value.startswith("upload:")
    for page in PAGES:
        app.switch_page(f"pages/{page}.py").run()
        assert not app.exception, (page, app.exception)


def test_unknown_rewards_are_refused_by_value_learners_and_never_become_zero(app):
    upload(app, "odd.jsonl", ODD_LOGS["no rewards at all"])
    app.switch_page("pages/train.py").run()
    refusals = [shown(error.value) for error in app.error]
    assert len(refusals) == 1, "the reason once, with the learners it holds for; bc needs no reward"
    assert refusals[0].startswith("Naive FQI, FQI inside the log and Careful (CQL): ")
    assert refusals[0].count("no step of this log has a known reward") == 1
    app.switch_page("pages/evaluate.py").run()
    assert [shown(error.value) for error in app.error] == refusals


def test_a_reason_is_said_once_for_all_it_holds_for():
    def page():
        from pages._ui import refusals

        refusals.render_blocked([("A", "no."), ("B", "why."), ("C", "no."), ("A", "no."), ("D", "no.")])

    boxes = [shown(error.value) for error in AppTest.from_function(page).run().error]
    assert boxes == ["A, C and D: no.", "B: why."]


def test_counts_of_pairs_say_what_they_are_counted_out_of(app):
    open_page(app, "coverage", edits="drop:mul:recollect")
    dataset = orl.frame(orl.bundled_log("calculator"), edits=[orl.DropAction("mul", how="recollect")])
    seen, valid = int((dataset.support_mask() & dataset.valid_mask).sum()), int(dataset.valid_mask.sum())
    assert f"{seen} of {valid} valid state-action pairs seen in its states" in texts(app)
    told = {metric.label: metric.value for metric in app.metric}
    assert (told["Valid pairs in its states"], told["of these supported"]) == (str(valid), str(seen))
    app.switch_page("pages/ceiling.py").run()
    told = {metric.label: metric.value for metric in app.metric}
    share = float(told["Valid pairs seen, of all that can be reached"].rstrip("%")) / 100
    assert share < seen / valid - 0.1  # the world has more states than this log comes to


def test_counts_of_states_say_which_states(app):
    """Four pages count states of one log, and none of the four numbers is the same."""
    edit = orl.DropAction("mul", how="recollect")
    full, left = (orl.frame(orl.bundled_log("calculator"), edits=edits) for edits in ([], [edit]))
    open_page(app, "coverage", edits="drop:mul:recollect")
    new = len(set(left.states) - set(full.states))
    said = f"States before the edits: {full.n_states}; after: {left.n_states} (new: {new})."
    assert said in texts(app)
    assert f"of {full.n_states + new}" in texts(app)
    app.switch_page("pages/shift.py").run()
    shift = orl.distribution_shift(left, orl.train(left, "fqi").policy)
    more = len(shift.states) - left.n_states
    assert more > 0
    assert f"{left.n_states} states of the log and {more} that only the policy comes to." in texts(app)
    app.switch_page("pages/framing.py").run()
    (metric,) = [metric for metric in app.metric if metric.label == "States"]
    assert metric.value == str(left.n_states)
    assert "steps that the edits leave" in metric.help


def test_a_link_to_a_deployment_that_no_world_has_lists_each_once(app):
    open_page(app, "overview", deployment="sideways")
    (listed,) = [re.search(r"must be one of (.+)\)", shown(w.value)) for w in app.warning if "sideways" in w.value]
    names = listed[1].split(", ")
    assert len(names) == len(set(names))
    assert set(names) == {name for spec in WORLDS.values() for name in spec.deployments}


def test_a_link_sets_every_page_up(app):
    open_page(
        app, "q_values", edits="drop:mul:recollect", guess="-0.5", cell_state="mul: x, y known", cell_action="mul"
    )
    assert "0 rows" in texts(app)
    assert [metric.value for metric in app.metric if metric.label == "Learned Q"] == ["-0.5000"]


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"guess": "nan"}, "can't be read"),
        ({"guess": "1e99"}, "can't be read"),
        ({"min_count": "-3"}, "can't be read"),
        ({"guess": "hello"}, "(it isn't a number)"),
        ({"min_count": "hello"}, "(it isn't a number)"),
        ({"min_count": "1.5"}, "(it isn't a whole number)"),
        ({"deployment": "sideways"}, "can't be read"),
        ({"edits": "explode:mul"}, "explode"),
        ({"edits": "where:episodes:1=1) UNION SELECT 1"}, "left out"),
        ({"data": "upload:123"}, "isn't loaded"),
        ({"v": "0"}, "version 0"),
        ({"params": "cql.conservative_weight=nan"}, "finite number"),
        ({"params": "fqi.max_sweeps=1.5"}, "whole number"),
        ({"params": "fqi.wings=2"}, "no parameter called 'wings'"),
    ],
)
def test_a_broken_link_is_said_and_replaced(app, params, sentence):
    open_page(app, "overview", **params)
    assert any(sentence in shown(warning.value) for warning in app.warning), [w.value for w in app.warning]


@pytest.mark.parametrize(
    "params",
    [
        {"guess": "1000"},
        {"guess": "-1000"},
        {"guess": "0.123456789"},
        {"learners": "fqi,fqi,nobody,"},
        {"learners": ""},
        {"shown": "nobody", "sort": "state", "only": "1", "first": "999999", "task": "nothing"},
        {"cell_state": "🙂" * 2000, "cell_action": "'; DROP TABLE steps"},
        {
            "data": "generated",
            "gen_right": "0",
            "gen_random": "1",
            "gen_episodes": "1",
            "gen_skip": "mul=1,add=1,sub=1,x",
        },
        {"framing": "nonsense"},
        {"framing": "step", "edits": "cap:1:0"},
        {"sql": "SELECT '" + "x" * 50_000 + "'"},
    ],
)
def test_strange_but_readable_links_draw_every_page(app, params):
    for page in PAGES:
        open_page(app, page, **params)


def test_an_edit_that_leaves_nothing_says_which(app):
    for page in PAGES:
        open_page(app, page, edits="minreturn:99")
        assert any("No step is left" in shown(error.value) for error in app.error)


def test_recollection_of_an_imported_log_is_refused_in_words(app):
    upload(app, "log.jsonl", ODD_LOGS["one episode"])
    app.session_state["edits"] = "drop:go:recollect"
    app.run()
    assert any("imported log" in shown(error.value) for error in app.error)


def test_a_chip_undoes_its_edit(app):
    open_page(app, "coverage", edits="drop:mul:episodes,keep:0.5:0")
    app.button(key="w:chip:0:drop:mul:episodes").click().run()
    assert app.session_state["edits"] == "keep:0.5:0"
    assert not app.exception


def test_the_form_of_a_learner_follows_its_metadata_and_changes_the_result(app):
    open_page(app, "train", edits="drop:mul:recollect")
    row = app.dataframe[0].value.set_index("learner").loc["Naive FQI"]
    assert row["success, mul works"] == "100.0%"
    app.session_state["w:details:fqi"] = True  # the part of the page is open; closed ones are not drawn
    app.run()
    app.number_input(key="w:fqi.default_value").set_value(-1.5).run()
    row = app.dataframe[0].value.set_index("learner").loc["Naive FQI"]
    assert row["success, mul works"] in ("66.7%", "67.1%")
    assert app.session_state["guess"] == -1.5


def test_the_overview_tells_the_story_that_the_numbers_tell(app):
    open_page(app, "overview")
    assert "Both end up equal" in texts(app)
    app.toggle(key="w:mul_out").set_value(True).run()
    assert app.session_state["edits"] == "drop:mul:recollect"
    assert "Naive FQI wins" in texts(app)
    app.session_state["deployment"] = "broken"
    app.run()
    assert "luck is gone" in texts(app)
    app.session_state["guess"] = -1.5
    app.run()
    assert "stays inside the log" in texts(app)


def test_a_bar_that_misses_its_mark_has_its_true_reason(app):
    """The world changed where the tool is in the log and broken; elsewhere it is the state that hides something."""
    open_page(app, "overview", deployment="broken")
    assert "`mul` misses its green mark because the world changed" in texts(app)
    for deployment, edits in (("works", ""), ("broken", "drop:mul:recollect")):
        app.session_state["deployment"], app.session_state["edits"] = deployment, edits
        app.run()
        assert "because the world changed" not in texts(app)
        assert "(aliasing)" in texts(app)
        assert ("2 + 2 = 2 × 2" in texts(app)) == bool(edits)


def test_a_query_runs_and_a_bad_one_is_refused_in_words(app):
    open_page(app, "query")
    assert len(app.dataframe[0].value)
    for sql in ("DROP TABLE steps", "SELECT * FROM read_csv('/etc/passwd')", "SELEC 1", "SELECT 1; SELECT 2"):
        app.session_state["sql"] = sql
        app.run()
        assert not app.exception
        assert len(app.error) == 1, sql


def test_the_condition_of_a_query_becomes_a_coverage_edit(app):
    open_page(app, "query", sql="SELECT * FROM steps WHERE action = 'mul' AND task = 'add'")
    assert app.text_input(key="w:condition").value
    next(button for button in app.button if button.label == "Take it away").click().run()
    assert app.session_state["edits"].startswith("where:episodes:")
    assert not app.exception


def test_the_session_holds_nothing_but_fields_and_widgets(app):
    from pages._ui import state

    known = {*state.FIELDS, state.UPLOADS, state.WARNINGS, state.LOADED, state.LAST_PATH, state.BARE, state.DRAWN_ON}
    for page in PAGES:
        open_page(app, page)
    strange = [key for key in list(app.session_state) if key not in known and not key.startswith(WIDGETS)]
    assert not strange


OWN_WORLDS = [name for name, spec in WORLDS.items() if not spec.missing and name != "calculator"]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("world", OWN_WORLDS)
def test_every_page_draws_a_log_of_every_world(app, page, world):
    open_page(app, page, data="generated", gen_world=world, gen_episodes="300")
    assert not app.error
    if page == "train":
        spec = WORLDS[world]
        columns = app.dataframe[0].value.columns
        assert {f"success, {spec.subject} {d.title}" for d in spec.deployments.values()} <= set(columns)


def test_a_deployment_of_another_world_falls_back_to_the_one_that_works(app):
    open_page(app, "q_values", data="generated", gen_world="gridworld", gen_episodes="300", deployment="crash")
    assert app.segmented_control(key="w:deployment").value == "works"
    app.selectbox(key="w:data").set_value("calculator").run()
    assert app.segmented_control(key="w:deployment").value == "crash"


def test_an_agent_of_a_world_can_be_chosen(app):
    open_page(app, "data", data="generated", gen_world="gridworld", gen_episodes="50")
    app.selectbox(key="w:gen_behavior").set_value("hasty").run()
    assert not app.exception, app.exception
    assert "hasty" in texts(app)
    app.selectbox(key="w:gen_world").set_value("chain").run()
    assert not app.exception, app.exception
    assert app.session_state["gen_behavior"] == "logger"  # the chain has no hasty agent


def make_buttons(app):
    return [button for button in app.button if button.label == "Make this log"]


def test_a_log_is_made_by_a_button_only_where_it_is_not_on_screen_yet(app):
    open_page(app, "data")
    (button,) = make_buttons(app)
    button.click().run()
    assert app.session_state["data"] == "generated"
    assert not make_buttons(app)
    app.selectbox(key="w:gen_world").set_value("chain").run()  # a dial makes it at once
    assert "Chain of links, 3,000 episodes" in texts(app)
    assert not make_buttons(app)
    app.selectbox(key="w:data").set_value("calculator").run()
    assert len(make_buttons(app)) == 1


@pytest.mark.parametrize("data", ["calculator_without_mul", "generated"])
def test_the_bar_names_the_log_that_is_shown_where_a_world_needs_a_package(app, data, monkeypatch):
    monkeypatch.setitem(WORLDS, "chain", replace(WORLDS["chain"], package="nowhere_to_be_found", install="pip"))
    open_page(app, "data", data=data)
    app.selectbox(key="w:gen_world").set_value("chain").run()
    assert not app.exception, app.exception
    shown_log = "calculator" if data == "generated" else data
    assert app.selectbox(key="w:data").value == shown_log
    assert "needs the package" in texts(app)
    assert not make_buttons(app)
    assert orl.bundled_log(shown_log).name in texts(app)


def test_a_world_that_needs_a_package_says_which(app):
    missing = [name for name, spec in WORLDS.items() if spec.missing]
    if not missing:
        pytest.skip("all packages are installed")
    open_page(app, "data", data="generated", gen_world=missing[0])
    assert "needs the package" in texts(app)
    assert "12,000" in texts(app)
    assert app.selectbox(key="w:data").value == "calculator"  # the bar names the log that is shown


# Pages that ask the same, and what each widget shows there when a link has set it.
SHARED = {
    "coverage": {"min_count": 5},
    "ceiling": {"min_count": 5, "deployment": "broken"},
    "q_values": {"min_count": 5, "deployment": "broken", "guess": -0.5, "shown": "cql"},
    "shift": {"min_count": 5, "deployment": "broken", "shown": "cql"},
    "evaluate": {"deployment": "broken"},
    "overview": {"deployment": "broken", "guess": -0.5},
}


def test_a_choice_that_several_pages_ask_for_shows_the_same_on_each_and_has_one_name(app):
    open_page(app, "train", min_count="5", deployment="broken", guess="-0.5", shown="cql", learners="bc,cql")
    for page in (*SHARED, *reversed(SHARED)):
        app.switch_page(f"pages/{page}.py").run()
        assert not app.exception, (page, app.exception)
        widgets = [*app.number_input, *app.segmented_control, *app.selectbox, *app.slider]
        shows = {widget.key: widget for widget in widgets}
        for name, value in SHARED[page].items():
            assert shows[f"w:{name}"].value == value, (page, name)
        if "deployment" in SHARED[page]:
            assert shows["w:deployment"].label == "Once deployed, mul…"


EVERY_PAGE = sorted(path.stem for path in (Path(__file__).parents[2] / "pages").glob("*.py"))
UNTOUCHED_LINKS = [
    {},
    {"learners": "cql,bc"},
    {"data": "generated", "gen_world": "gridworld", "deployment": "slippery", "gen_episodes": "300"},
]


@pytest.mark.parametrize("link", UNTOUCHED_LINKS, ids=["none", "learners", "another world"])
def test_what_a_page_chooses_itself_is_not_written_to_the_address(app, link):
    """Else who goes back in the browser's history comes to the same page, and needs another step."""
    open_page(app, "overview", **link)
    for page in EVERY_PAGE:
        app.switch_page(f"pages/{page}.py").run()
        assert not app.exception, (page, app.exception)
        address = {name: value if isinstance(value, str) else value[0] for name, value in app.query_params.items()}
        assert address == link, page


def test_pages_show_the_first_of_the_learners_where_the_visitor_chose_none_of_them_to_look_at(app):
    open_page(app, "q_values", learners="cql,bc")
    assert app.selectbox(key="w:shown").value == "cql"
    app.selectbox(key="w:shown").set_value("bc").run()
    assert app.session_state["shown"] == "bc"
    app.switch_page("pages/train.py").run()
    app.multiselect(key="w:learners").set_value(["cql", "iql"]).run()
    app.switch_page("pages/shift.py").run()
    assert app.selectbox(key="w:shown").value == "cql"


@pytest.mark.parametrize(("name", "before", "most"), [("budget", 2000, 100_000), ("seeds", 8, 32)])
def test_a_number_beyond_its_limit_is_refused_in_words_and_the_one_before_stays(app, name, before, most):
    open_page(app, "train", learners="cql_neural")
    app.number_input(key=f"w:{name}").set_value(most + 1).run()
    assert not app.exception, app.exception
    assert f"{most + 1:,} is more than the {most:,}" in texts(app)
    assert f"{before:,} still counts" in texts(app)
    assert app.number_input(key=f"w:{name}").value == before
    assert name not in app.query_params
    app.number_input(key=f"w:{name}").set_value(most).run()
    assert app.session_state[name] == most
    assert "still counts" not in texts(app)


@pytest.mark.parametrize("learner", ["fqi", "bc"])
@pytest.mark.parametrize("world", ["calculator", *OWN_WORLDS])
def test_q_values_say_that_the_world_has_changed_exactly_where_a_value_has(app, world, learner):
    spec = WORLDS[world]
    if world == "calculator":  # the generated one has dials of its own
        link, log = {"data": world}, orl.bundled_log(world)
    else:
        link = {"data": "generated", "gen_world": world, "gen_episodes": "200", "gen_seed": "1"}
        log = orl.collect(world, n_episodes=200, seed=1)
    open_page(app, "q_values", shown=learner, **link)
    dataset = orl.frame(log)
    model = orl.train(dataset, learner)
    then = orl.exact_q_of(model, dataset, "works")
    for deployment in spec.deployments:
        app.session_state["deployment"] = deployment
        app.run()
        assert not app.exception, app.exception
        apart = np.abs(orl.exact_q_of(model, dataset, deployment) - then)[dataset.valid_mask]
        said = re.findall(r"changes the exact value of ([\d,]+) of the ([\d,]+) pairs that can still", texts(app))
        expected = [(f"{(apart > 5e-4).sum():,}", f"{(~np.isnan(apart)).sum():,}")]
        assert said == (expected if (apart > 5e-4).any() else [])
        assert not said or f"here {spec.situation(deployment)}" in texts(app)
        assert ("stands as if" in texts(app)) == (bool(said) and learner == "fqi")
