"""The README can't drift: its tables are those of the registries, and its notebook example runs and says what it says."""

import contextlib
import io
import re
from pathlib import Path

from tests.docs import README, TABLES, with_tables

ROOT = README.parent


def test_the_tables_are_made_from_the_registries():
    text = README.read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in text for name in TABLES)
    assert text == with_tables(text), "run `make docs`"


def test_the_notebook_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
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
