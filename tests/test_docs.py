"""The README can't drift: its tables are those of the registries, and its notebook example runs and says what it says."""

import contextlib
import io
import re
import subprocess
from pathlib import Path

import numpy as np

import offrl_core as orl
from tests.docs import README, TABLES, with_tables

ROOT = README.parent


def test_the_tables_are_made_from_the_registries():
    text = README.read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in text for name in TABLES)
    assert text == with_tables(text), "run `make docs`"


def test_the_notebook_example_runs():
    example, _ = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, {})  # our own README
    before, works, broken, crash, estimate, ledger, shift = printed.getvalue().splitlines()
    assert before.startswith("0.202 Start with learners that copy the log")
    assert works == "works 1.0 1.0"
    assert broken.startswith("broken 0.667 0.0")
    assert crash.startswith("crash 0.667 0.0")
    assert estimate
    assert ledger == "27% of this value rests on pairs nobody ever saw."
    assert "furthest apart at t = 2" in shift


def test_commands_and_files_named_in_the_docs_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"`make (\w+)", text):
            assert f"\n{target}:" in makefile, f"{page} names make {target}"
        for path in re.findall(r"\]\(([\w./-]+)\)", text) + re.findall(
            r"`((?:offrl_core|pages|tests|data)/[\w./]*)`", text
        ):
            assert (ROOT / path).exists(), f"{page} names {path}"


def test_every_page_is_in_the_readme():
    navigation = Path(ROOT / "pages/_ui/navigation.py").read_text(encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    for title in re.findall(r'st\.Page\("[^"]+", title="([^"]+)"', navigation):
        assert f"| {title} |" in text


def test_the_readme_says_where_rows_and_logged_probabilities_are():
    python = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in python if "action_logprob" in block]
    names = {"dataset": orl.frame(orl.bundled_log("calculator"), edits=[orl.DropAction("mul", how="episodes")])}
    exec(code, names)
    dataset, rows = names["dataset"], names["rows"]
    assert len(names["chosen"]) == len(rows.actions) == len(dataset.episodes) == dataset.n_transitions
    frequencies = dataset.behavior_probabilities[rows.observations, rows.actions]
    assert abs(np.exp(names["chosen"]).mean() - frequencies.mean()) < 0.05
    assert not np.allclose(np.exp(names["chosen"]), frequencies, atol=1e-6)


def test_only_a_host_that_is_asked_for_lets_others_in(monkeypatch):
    monkeypatch.delenv("MAKEFLAGS", raising=False)  # of a make that runs these tests
    monkeypatch.setenv("HOST", "elsewhere")

    def command(*settings):
        make = ["make", "--no-print-directory", "-n", "run", *settings]
        return subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "--server.address localhost" in command()
    for line in re.findall(r"^make run (HOST=.*?)(?: *#.*)?$", README.read_text(encoding="utf-8"), re.MULTILINE):
        assert "--server.address 0.0.0.0" in command(*line.split())
    assert "--server.port 8080" in command("HOST=0.0.0.0", "PORT=8080")
