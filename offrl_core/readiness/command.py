"""``python -m offrl_core report``: the readiness report of trace files in a terminal or in CI.

Exit codes: 0 the report was made and nothing that was asked for fails; 1 a method that was asked for is blocked, or the
import had problems where that was asked for; 2 the files can't be read, or the command makes no sense (the sentence
stands on stderr).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from ..errors import OffRLError, UnknownName
from ..importers import IMPORTERS
from ..log import read_traces
from ..wording import counted
from . import Readiness, assess
from .families import ALIASES, BLOCKED, FAMILIES
from .text import as_html, as_markdown, as_text

FINE, FAILED, UNREADABLE = 0, 1, 2
EXIT_CODES = (
    "Exit codes: 0 fine; 1 a method that --fail-on names is blocked, or the import had problems where it names those; "
    "2 the files can't be read."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="trace files of any known format, read as one log")
    parser.add_argument("--format", choices=sorted(IMPORTERS), metavar="NAME", help="read as this format")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="machine-readable, with a version of its own")
    shape.add_argument("--markdown", action="store_true", help="as Markdown")
    shape.add_argument("--html", action="store_true", help="as one printable page")
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        type=_condition,
        metavar="WHAT",
        help=f"exit with 1 on blocked:NAME,... (of {', '.join(FAMILIES)}), on blocked (any of them), on problems (of the "
        "import) or on lost (data that the import set aside); may be given several times",
    )


def _condition(text: str) -> tuple[str, tuple[str, ...]]:
    """What to fail on: its kind, and the families that must not be blocked."""
    kind, _, names = text.partition(":")
    if kind not in ("blocked", "problems", "lost") or (names and kind != "blocked"):
        raise argparse.ArgumentTypeError(f"{text!r} isn't blocked, blocked:NAME,..., problems or lost")
    wanted = [ALIASES.get(name.strip(), name.strip()) for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in FAMILIES]
    if unknown:
        raise argparse.ArgumentTypeError(str(UnknownName("method", unknown[0], [*FAMILIES, *ALIASES])))
    return kind, tuple(wanted or FAMILIES)


def run(arguments: argparse.Namespace) -> int:
    """Make the report, print it, and return the exit code; never raises."""
    try:
        return _run(arguments)
    except OffRLError as error:
        return _say(str(error), UNREADABLE)
    except BrokenPipeError:  # whoever read the report has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except Exception as error:  # in CI a sentence and an exit code beat a traceback
        return _say(f"The report can't be made, which is a fault of this program: {error!r}.", UNREADABLE)


def _run(arguments: argparse.Namespace) -> int:
    report = assess(read_traces(*arguments.files, format=arguments.format))
    _write(_shaped(report, arguments), sys.stdout)
    failures = [sentence for kind, families in arguments.fail_on for sentence in _failures(report, kind, families)]
    return _say("\n".join(dict.fromkeys(failures)), FAILED) if failures else FINE


def _say(sentence: str, code: int) -> int:
    _write(f"{sentence}\n", sys.stderr)
    return code


def _shaped(report: Readiness, arguments: argparse.Namespace) -> str:
    if arguments.json:
        return json.dumps(report.to_json(), indent=2, allow_nan=False) + "\n"
    if arguments.markdown:
        return as_markdown(report)
    return as_html(report) if arguments.html else as_text(report)


def _failures(report: Readiness, kind: str, families: Sequence[str]) -> list[str]:
    """Why the exit code is 1, as sentences."""
    imported = report.imported
    if kind == "problems":
        return [f"The import had {imported.n_problems:,} problems."] if imported.n_problems else []
    if kind == "lost":
        if not imported.n_lost:
            return []
        return [f"The import set data aside {counted(imported.n_lost, 'time')}. The first: {imported.problems[0]}"]
    return [
        f"{verdict.title} is blocked. {verdict.blocked_by[0].sentence}"
        for verdict in report.verdicts
        if verdict.family in families and verdict.verdict == BLOCKED
    ]


def _write(text: str, stream: TextIO) -> None:
    """Print, also where the terminal knows few characters."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
