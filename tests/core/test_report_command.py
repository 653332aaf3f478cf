"""``python -m offrl_core report``: exit codes, sentences instead of tracebacks, JSON for machines."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import offrl_core as orl
from offrl_core.__main__ import main
from offrl_core.log import Log
from offrl_core.readiness import REPORT_VERSION, Readiness, assess, command
from tests.core.test_readiness import good_rows, without
from tests.core.test_readiness import make_log as log_of

ROOT = Path(__file__).resolve().parents[2]


def written(path: Path, rows: list[dict]) -> str:
    """A trace file of rows, in the flat form of the schema."""
    log_of(rows).write_parquet(path)
    return str(path)


@pytest.fixture
def good(tmp_path: Path) -> str:
    return written(tmp_path / "good.parquet", good_rows())


@pytest.fixture
def unrewarded(tmp_path: Path) -> str:
    rows = [row | {"episode_id": f"u{row['episode_id']}"} for row in without("reward")]
    return written(tmp_path / "unrewarded.parquet", rows)


def test_the_report_is_readable_in_80_columns(good, capsys):
    assert main(["report", good]) == 0
    printed = capsys.readouterr()
    assert "Value learning (FQI, CQL): READY" in printed.out
    assert max(map(len, printed.out.splitlines())) <= 80
    assert printed.err == ""


def test_the_json_is_the_report(good, capsys):
    assert main(["report", good, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(json.dumps(assess(orl.read_traces(good)).to_json()))
    assert told["report_version"] == REPORT_VERSION


@pytest.mark.parametrize(("shape", "start"), [("--markdown", "# Readiness report"), ("--html", "<!doctype html>")])
def test_other_shapes(good, capsys, shape, start):
    assert main(["report", good, shape]) == 0
    assert capsys.readouterr().out.startswith(start)


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [
        ("blocked:fqi", 1),
        ("blocked:bc", 0),
        ("blocked:bc,cql", 1),
        ("blocked:dt", 1),
        ("blocked", 1),
        ("problems", 0),
        ("lost", 0),
    ],
)
def test_a_method_that_must_not_be_blocked_decides_the_exit_code(unrewarded, capsys, fail_on, code):
    assert main(["report", unrewarded, "--fail-on", fail_on]) == code
    printed = capsys.readouterr()
    assert printed.out.startswith("READINESS REPORT")
    assert ("is blocked. No episode has a reward" in printed.err) == bool(code)


def test_problems_of_the_import_decide_it_too(tmp_path, capsys):
    path = tmp_path / "half.jsonl"
    path.write_text('{"episode_id": "a", "t": 0, "action": "go"}\n{"episode_id": "b", "t": \n', encoding="utf-8")
    assert main(["report", str(path)]) == 0
    assert main(["report", str(path), "--fail-on", "problems"]) == 1
    assert main(["report", str(path), "--fail-on", "lost", "--fail-on", "blocked:bc"]) == 1
    assert "set data aside" in capsys.readouterr().err


def test_several_files_are_one_log(good, unrewarded, capsys):
    assert main(["report", good, unrewarded, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["facts"]
    assert (facts["n_steps"], facts["outcomes"]["n_known"]) == (128, 32)


@pytest.mark.parametrize("fail_on", ["blocked:nobody", "everything", "problems:fqi", ""])
def test_a_condition_that_makes_no_sense_is_said(good, capsys, fail_on):
    with pytest.raises(SystemExit) as stopped:
        main(["report", good, "--fail-on", fail_on])
    assert stopped.value.code == 2
    assert "--fail-on" in capsys.readouterr().err


def test_files_that_cannot_be_read_get_a_sentence(tmp_path, capsys):
    (tmp_path / "prose.txt").write_text("Это не трасса 🙂", encoding="utf-8")
    for path in (tmp_path / "nothing.json", tmp_path / "prose.txt"):
        assert main(["report", str(path)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert path.name in printed.err
        assert "Traceback" not in printed.err


def test_a_fault_of_our_own_is_a_sentence_too(good, capsys, monkeypatch):
    def fail(log: Log) -> Readiness:
        raise ZeroDivisionError("never")

    monkeypatch.setattr(command, "assess", fail)
    assert main(["report", good]) == 2
    assert "fault of this program" in capsys.readouterr().err


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "offrl_core", "report", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def test_it_runs_as_a_command_also_where_the_terminal_knows_ascii_only(unrewarded):
    done = run(unrewarded, "--fail-on", "blocked:fqi", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert "\\u2718 Value learning (FQI, CQL): BLOCKED" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(good):
    command_line = [sys.executable, "-m", "offrl_core", "report", good, "--json"]
    process = subprocess.Popen(command_line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0
