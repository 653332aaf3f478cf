"""The page Report: a verdict for every family, every table, for any log; names of a file stay text."""

import json

import pytest

from offrl_core.readiness.families import FAMILIES
from tests.core.test_readiness import good_rows, make_log, without
from tests.pages.conftest import open_page, shown, texts
from tests.traces import AIRLINE, shared_trace

TITLES = ["Good to know", "Coverage at a glance", "Tasks and outcomes", "How episodes end", "Tool calls"]


def upload(app, name: str, data: bytes):
    """Load a file on the Data page, then look at its report."""
    open_page(app, "data")
    app.file_uploader[0].set_value([(name, data, "application/octet-stream")]).run()
    app.switch_page("pages/report.py").run()
    assert not app.exception, app.exception
    return app


def verdicts(app) -> list[str]:
    """The verdicts as they stand on the cards."""
    words = [shown(element.value) for element in app.markdown]
    return [word.split("**")[1] for word in words if word.startswith((":green[", ":orange[", ":red["))]


@pytest.mark.parametrize("data", ["calculator", "calculator_without_mul", "generated"])
def test_logs_of_the_world_have_a_report(app, data):
    open_page(app, "report", data=data)
    assert len(verdicts(app)) == len(FAMILIES)
    assert all(f"#### {title}" in texts(app) for title in TITLES)
    assert "the truth is known" in texts(app)
    assert not app.error


def test_the_airline_file_reads_as_published(app):
    upload(app, "airline.json", shared_trace(AIRLINE).read_bytes())
    said = texts(app)
    assert verdicts(app) == ["ready"] + ["ready with caveats"] * 5
    assert "42.0% of 200 episodes" in said
    assert "| pass^4: 4 trials of a task all succeed | 0.200 over 50 tasks |" in said
    assert "| update_reservation_flights | 104 | 42 | 40.4% | 0 |" in said
    assert "Log action_logprob" in said


def test_a_log_without_rewards_is_blocked_in_words(app, tmp_path):
    make_log(without("reward")).write_parquet(tmp_path / "log.parquet")
    upload(app, "log.parquet", (tmp_path / "log.parquet").read_bytes())
    assert verdicts(app) == ["ready with caveats"] + ["blocked"] * 5
    assert texts(app).count("No episode has a reward, so good ones can't be told from bad ones. (1)") == 5


def test_an_edit_changes_the_report(app):
    open_page(app, "report", edits="where:transitions:t = 0")
    assert verdicts(app).count("blocked") == 3
    assert "After these coverage edits" in texts(app)


def test_an_edit_that_leaves_nothing_leaves_the_page_standing(app):
    open_page(app, "report", edits="minreturn:99")
    assert len(app.error) == 1
    assert verdicts(app) == []


def test_names_of_a_file_stay_text(app, tmp_path):
    name = "![x](http://example.org/x.png) | <b> `y`"
    rows = [
        row | {"tool": name, "action": name, "prompt_version": f"{name} {i % 2}"} for i, row in enumerate(good_rows())
    ]
    text = "\n".join(
        json.dumps({key: row[key] for key in ("episode_id", "t", "tool", "action", "prompt_version")}) for row in rows
    )
    upload(app, "odd.jsonl", text.encode())
    raw = "\n".join(element.value for element in app.markdown)
    assert "![x](http" in shown(raw).replace("\u200b", "")
    assert "![x](http" not in raw
    assert "<b>" not in raw
