"""Evaluate: estimates beside the truth, refusals in words, a card, and a rehearsal on fresh logs."""

import json

import pytest

import offrl_core as orl
from offrl_core.coverage_edits import split_edits
from offrl_core.evaluation.comparison import logged_return
from offrl_core.evaluation.course import course
from offrl_core.worlds import WORLDS
from tests.pages.conftest import open_page, shown, texts
from tests.pages.test_pages import upload
from tests.traces import AIRLINE, shared_trace

NO_MUL = orl.DropAction("mul", how="recollect")


def estimates_shown(app):
    """The table of estimates: a row for each estimator, a column for each policy."""
    (table,) = [frame.value for frame in app.dataframe if "estimator" in frame.value]
    assert set(spec.short for spec in orl.ESTIMATORS.values()) <= set(table["estimator"])
    return table.set_index("estimator")


def test_estimates_stand_beside_the_truth_and_a_card_says_whom_to_believe(app):
    open_page(app, "evaluate", learners="bc,fqi_support,return_conditioned")
    table = estimates_shown(app)
    assert list(table) == ["Copy the log (BC)", "FQI inside the log", *list(table)[2:]]
    dataset = orl.frame(orl.bundled_log("calculator"), edits=split_edits((), 0.5)[0])
    truth = orl.evaluate(orl.train(dataset, "bc").policy, "calculator", "works", dataset.discount).mean_return
    assert table.loc["exact return"].iloc[0] == f"{truth:+.3f}"
    said = texts(app)
    assert "is worth about" in said
    assert "log's own agent" in said


def test_a_policy_that_leaves_the_log_is_refused_in_words(app):
    open_page(app, "evaluate", edits="drop:mul:recollect", learners="fqi")
    table = estimates_shown(app)
    refused = table.index[table.iloc[:, 0] == "refused"]
    assert any("importance" in row.lower() for row in refused)
    assert "nan" not in table.to_csv().lower()


def test_an_imported_log_has_no_exact_column(app):
    upload(app, "airline.json", shared_trace(AIRLINE).read_bytes())
    app.switch_page("pages/evaluate.py").run()
    assert not app.exception, app.exception
    assert "exact return" not in estimates_shown(app).index
    assert "no exact value" in texts(app)
    assert not [button for button in app.button if button.label == "Rehearse"]


def test_a_rehearsal_counts_how_often_intervals_hold(app):
    open_page(app, "evaluate", learners="bc", data="generated", gen_episodes="200")
    app.select_slider(key="w:n_logs").set_value(20).run()
    (button,) = [button for button in app.button if button.label == "Rehearse"]
    button.click().run()
    assert not app.exception, app.exception
    tables = [frame.value for frame in app.dataframe if "pairs ranked right" in frame.value]
    assert len(tables) == 1
    shares = tables[0].iloc[:, 0]
    assert all(text == "refused" or text.endswith("of 20") for text in shares)


@pytest.mark.parametrize(
    ("learners", "said"),
    [
        ("", "Choose learners"),
        ("nonsense", "Choose learners"),
        ("fqi_sampled", "not trained on these 1,461 episodes yet"),
    ],
)
def test_nothing_to_judge_is_said(app, learners, said):
    open_page(app, "evaluate", learners=learners)
    assert said in texts(app)


def test_learning_and_judging_share_no_episode_unless_asked_to(app):
    open_page(app, "evaluate", learners="bc")
    learn, judge = (orl.frame(orl.bundled_log("calculator"), edits=edits) for edits in split_edits((), 0.5))
    said = texts(app)
    assert f"Learned from {learn.n_episodes:,} episodes, judged on the other {judge.n_episodes:,}" in said
    assert "what only the other part shows counts as never seen" in said
    assert "flatters" not in said
    app.button_group(key="w:split").set_value("0").run()
    assert not app.exception, app.exception
    assert "flatters" in texts(app)


def test_a_log_too_small_to_split_is_judged_whole_and_says_so(app):
    rows = (
        b'{"episode_id": "e", "t": 0, "state": {"key": "s"}, "action": {"tool": "a"}, "reward": 1.0, "terminal": true}'
    )
    upload(app, "one.jsonl", rows)
    app.switch_page("pages/evaluate.py").run()
    assert not app.exception, app.exception
    assert "too small to learn from one part" in texts(app)


def test_the_truth_has_every_deployment_length_and_cost(app):
    open_page(app, "evaluate", learners="bc,fqi", edits="drop:mul:recollect")
    truth = app.dataframe[0].value
    assert list(truth["policy"]) == ["Copy the log (BC)", "Naive FQI", "the log's own agent"]
    assert sum(column.startswith("success, mul ") for column in truth) == 3
    assert set(truth["steps"]) == {"4.00"}
    assert set(truth["cost on the way"]) == {"0.060"}
    app.toggle(key="w:by_task").set_value(True).run()
    by_task = app.dataframe[0].value.set_index(["policy", "task"])["success"]
    assert by_task["Naive FQI", "mul"] == "100.0%"
    assert float(by_task["Copy the log (BC)", "mul"].rstrip("%")) < 2


def test_the_first_column_of_a_wide_table_stays_and_headings_say_what_they_mean(app):
    open_page(app, "evaluate", learners="bc,fqi")
    truth, estimates = (json.loads(frame.proto.columns) for frame in app.dataframe[:2])
    assert truth["policy"]["pinned"]
    assert estimates["estimator"]["pinned"]
    heading = truth["success, mul returns a wrong result"]
    assert len(heading["label"]) < len("success, mul returns a wrong result")
    assert "mul returns a wrong result" in heading["help"]
    assert all(f"{spec.title}. {spec.summary}" in estimates["estimator"]["help"] for spec in orl.ESTIMATORS.values())


def test_a_trial_stands_beside_the_exact_value(app):
    open_page(app, "evaluate", learners="fqi", data="generated", gen_world="calculator_chain", gen_episodes="100")
    assert "go on for ever" in texts(app)
    app.button(key="w:trial").click().run()
    assert not app.exception, app.exception
    (trial,) = [frame.value for frame in app.dataframe if "sampled success" in frame.value]
    dataset = orl.frame(orl.collect("calculator_chain", n_episodes=100), edits=split_edits((), 0.5)[0])
    policy = orl.train(dataset, "fqi").policy
    assert trial["exact return"][0] == f"{orl.evaluate(policy, 'calculator_chain').mean_return:+.3f}"
    assert course(policy, "calculator_chain")[""].cut > 0


@pytest.mark.parametrize("world", [name for name, spec in WORLDS.items() if not spec.missing])
def test_every_world_with_several_truths_has_a_switch_here_and_a_changed_world_is_said(app, world):
    spec = WORLDS[world]
    open_page(app, "evaluate", learners="bc", data="generated", gen_world=world, gen_episodes="200")
    switches = [control for control in app.segmented_control if control.key == "w:deployment"]
    assert len(switches) == (len(spec.deployments) > 1)
    assert "the world has changed since" not in texts(app)
    for name in spec.deployments:
        switches[0].set_value(name).run()
        assert not app.exception, app.exception
        (truth,) = [frame.value for frame in app.dataframe if "policy" in frame.value]
        exact = estimates_shown(app).loc["exact return"].iloc[0]
        assert truth["return"][0] == exact
        if name == "works":
            written = exact
        assert ("the world has changed since" in texts(app)) == (exact != written)
        assert exact == written or f"here {spec.situation(name)}" in texts(app)


def test_numbers_of_the_same_name_say_why_they_differ(app):
    open_page(app, "evaluate", learners="bc,fqi_support", edits="drop:mul:recollect")
    learn, judge = (orl.frame(orl.bundled_log("calculator"), edits=e) for e in split_edits((NO_MUL,), 0.5))
    said = texts(app)
    assert f"Of the policies learned from the {learn.n_episodes:,} episodes above" in said
    assert (
        f"In the {judge.n_episodes:,} episodes that judge, the log's own agent got {logged_return(judge).value:+.3f}"
        in said
    )
    app.button_group(key="w:split").set_value("0").run()
    assert "Of the policies learned from" not in texts(app)


@pytest.mark.parametrize("page", ["train", "evaluate"])
def test_what_an_estimate_warns_of_stands_at_its_number(app, page):
    """Each mark in the table has its sentence below, and a number without spread doesn't look like an interval."""
    open_page(app, page, learners="bc", split="0")
    dataset = orl.frame(orl.bundled_log("calculator"))
    guess = orl.estimate(orl.train(dataset, "bc").policy, dataset, "wis", trained_on=dataset)
    tables = [frame.value for frame in app.dataframe]
    cells = [str(cell) for table in tables for cell in table.to_numpy().ravel()]
    (cell,) = {cell for cell in cells if cell.startswith(f"{guess.value:+.3f} (no spread)")}
    assert not any(f"[{guess.value:+.3f}, {guess.value:+.3f}]" in cell for cell in cells)
    captions = [shown(caption.value) for caption in app.caption]
    assert len(guess.warnings) == 2
    for sentence in guess.warnings:
        (line,) = [caption for caption in captions if caption.endswith(sentence)]
        assert line.split()[0] in cell.split()
