"""Commands: ``python -m offrl_core data`` makes the bundled logs anew, ``... report FILE`` says what a log can support."""

from __future__ import annotations

import argparse
import sys

from .log import BUNDLED, make_bundled
from .readiness import command as report


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m offrl_core", description="Offline RL Explorer, core commands.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("data", help="make the bundled logs in data/ anew, bit for bit")
    report.add_arguments(
        commands.add_parser("report", help="say what a log of trace files can support", epilog=report.EXIT_CODES)
    )
    chosen = parser.parse_args(arguments)
    if chosen.command == "report":
        return report.run(chosen)
    for name in BUNDLED:
        print(f"wrote {make_bundled(name).name}")  # noqa: T201 - a command talks
    return 0


if __name__ == "__main__":
    sys.exit(main())
