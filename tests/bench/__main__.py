"""``python -m tests.bench``: measure and print; ``--write``: also into the README, between its bench marks."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
MARKS = ("<!-- bench -->", "<!-- /bench -->")


def main() -> None:
    """Measure all, or the groups that are named."""
    # One thread for everybody: ours and the peers.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from . import (
        browser,
        estimators,
        importing,
        jobs,
        learners,
        learning,
        load,
        measure,
        networks,
        payload,
        queries,
        reruns,
        transformer,
    )

    groups = {
        "learning": learning.learning_lines,
        "million": learning.million_lines,
        "tabular": learners.tabular_lines,
        "networks": networks.network_lines,
        "transformer": transformer.transformer_lines,
        "estimators": estimators.estimator_lines,
        "importing": importing.importing_lines,
        "queries": queries.query_lines,
        "browser": browser.browser_lines,
        "reruns": reruns.rerun_lines,
        "jobs": jobs.job_lines,
        "payload": payload.payload_lines,
        "load": load.load_lines,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"some of {', '.join(groups)}; all by default")
    parser.add_argument("--write", action="store_true", help="replace the table in the README")
    arguments = parser.parse_args()
    lines = []
    for name in arguments.groups or groups:
        print(f"measuring {name}…", file=sys.stderr, flush=True)
        lines += groups[name]()
    table = f"{measure.as_markdown(lines)}\n\n{about_machine()}"
    print(table)
    if arguments.write:
        print(write(table), file=sys.stderr)


def about_machine() -> str:
    """Where it was measured."""
    return (
        f"Medians of interleaved runs. {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}."
    )


def write(table: str) -> str:
    """Put the table between the marks of the README; says what happened."""
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    first, last = MARKS
    if first not in text or last not in text:
        return f"{README.name} has no {first} … {last} to fill; nothing was written."
    pattern = re.compile(f"{re.escape(first)}.*?{re.escape(last)}", re.DOTALL)
    README.write_text(pattern.sub(lambda _: f"{first}\n{table}\n{last}", text, count=1), encoding="utf-8")
    return f"The table of {README.name} was replaced."


if __name__ == "__main__":
    main()
