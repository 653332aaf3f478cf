"""A readiness report to read: the same sections as text of 80 columns, Markdown or one printable HTML page.

Names in a log come from its file, so they are shown as text and nothing else: control characters are made visible, and
the signs of Markdown and HTML are escaped.
"""

from __future__ import annotations

import html
import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..wording import counted, singular
from . import Readiness, Reason
from .facts import CallCounts, Coverage, Facts
from .families import BLOCKED, FAMILIES, READY, WITH_CAVEATS, VerdictWord
from .fields import FieldStatus

WIDTH = 80
MAX_ROWS = 20
MAX_NAME = 60
ARGUMENTS_IN_WORDS = {
    "object": "as an object",
    "json_string": "as a text of JSON",
    "double_encoded": "as JSON inside a text of JSON",
    "python_literal": "written as in Python",
    "non_object": "as something else than an object",
}
SIGNS: dict[VerdictWord, str] = {READY: "✔", WITH_CAVEATS: "!", BLOCKED: "✘"}


class Table(NamedTuple):
    """Rows of text under headings; ``n_left_out`` rows more aren't shown, and narrow pages take only the first columns."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_left_out: int = 0
    n_narrow: int | None = None


class Section(NamedTuple):
    """A part of the report: sentences, then a table. Narrow ones fit beside each other on a wide page."""

    title: str
    sentences: tuple[str, ...] = ()
    table: Table | None = None
    narrow: bool = False


def sections(report: Readiness) -> list[Section]:
    """All parts below the verdicts, in order; those with nothing to say are left out."""
    facts = report.facts
    found = [
        Section("What stands in the way, and what to do about it: most valuable first", (), _fix_table(report)),
        Section("Good to know", report.notes),
        Section("Coverage at a glance", (), _coverage_table(facts), narrow=True),
        Section("Tasks and outcomes", _outcome_sentences(facts), _task_table(facts), narrow=True),
        Section("How episodes end", (), _ends_table(facts), narrow=True),
        Section("Tool calls", _call_sentences(facts.calls), _tool_table(facts.calls)),
        Section("Drift across versions", *_drift(facts)),
        Section("The trace schema, field by field", (), _field_table(report.fields)),
        Section(
            "The import", () if facts.world else (report.imported.sentence, *_problems(report), *report.imported.notes)
        ),
    ]
    return [section for section in found if section.sentences or section.table]


def headline(report: Readiness) -> tuple[str, ...]:
    """What the report is about, in a few sentences."""
    facts = report.facts
    lines = [f"{printable(facts.name)}: {counted(facts.n_steps, 'step')} in {counted(facts.n_episodes, 'episode')}."]
    if facts.framing_sentence:
        lines.append(f"Framing: {facts.framing_sentence}.")
    elif facts.coverage:
        lines.append(f"Framing: {printable(facts.framing)}.")
    if facts.edits:
        lines.append("After these coverage edits: " + " ".join(printable(edit, 300) for edit in facts.edits))
    return tuple(lines)


# -- tables --------------------------------------------------------------------------------------------------


def families_in_short(families: Sequence[str]) -> str:
    """Short names of families, or "all"."""
    return "all" if len(families) == len(FAMILIES) else ", ".join(FAMILIES[family].short for family in families)


def _fix_table(report: Readiness) -> Table | None:
    rows = []
    for fix in report.fixes:
        effects = {"unlocks": fix.unlocks, "needed for": fix.needed_for, "improves": fix.improves}
        effect = "; ".join(f"{word} {families_in_short(families)}" for word, families in effects.items() if families)
        rows.append(
            (
                str(fix.number),
                fix.why,
                fix.order,
                effect,
                f"{fix.n:,} of {counted(fix.n_all, singular(fix.unit))}",
            )
        )
    table = _table(("", "what is the matter", "what to do", "what it brings", "concerns"), rows, max_rows=len(rows))
    return table._replace(n_narrow=4) if table else None


def caveats_in_short(reasons: Sequence[Reason]) -> str:
    """Caveats by name and number: the numbers lead to the list of fixes."""
    return ", ".join(f"{reason.key} ({reason.number})" for reason in reasons)


def _coverage_table(facts: Facts) -> Table | None:
    cover, sequences = facts.coverage, facts.sequences
    rows = [
        ("episodes", f"{facts.n_episodes:,}"),
        ("steps", f"{facts.n_steps:,}"),
        (
            "steps per episode",
            _range(sequences.length_low, sequences.length_median, sequences.length_high),
        ),
    ]
    if cover:
        rows += _pair_rows(cover)
    rows.append(("episodes that repeat another one", f"{sequences.n_duplicates:,}"))
    return _table(("", ""), rows)


def _pair_rows(cover: Coverage) -> list[tuple[str, str]]:
    valid = (
        "valid state-action pairs in these states"
        if cover.validity_known
        else "state-action pairs in these states (which are valid isn't said)"
    )
    return [
        ("states", f"{cover.n_states:,}"),
        ("states where different actions were seen", f"{cover.n_states_with_choice:,}"),
        ("actions", f"{cover.n_actions:,}"),
        (valid, f"{cover.n_pairs_valid:,}"),
        ("of these seen", f"{cover.n_pairs_seen:,} ({percent(cover.share_seen)})"),
        ("seen pairs that rest on one step", f"{cover.n_pairs_once:,} ({percent(cover.share_once)})"),
        ("steps that can teach a value", f"{cover.n_teaching:,}"),
    ]


def _outcome_sentences(facts: Facts) -> tuple[str, ...]:
    outcomes = facts.outcomes
    if not outcomes.n_known:
        return ("No return is known, so success is unknown.",)
    return (
        f"{percent(outcomes.success_rate)} of {counted(outcomes.n_known, 'episode')} with a known return "
        + (f"succeeded ({facts.success_rule}). " if facts.success_named else "have one above 0. ")
        + f"Returns run from {_number(outcomes.return_low)} to {_number(outcomes.return_high)}, mean "
        f"{_number(outcomes.return_mean)}.",
    )


def _task_table(facts: Facts) -> Table | None:
    tasks = facts.tasks
    if not tasks.n_tasks:
        return None
    rows = [
        ("tasks", f"{tasks.n_tasks:,}"),
        (
            "episodes per task",
            _range(tasks.episodes_low, tasks.episodes_median, tasks.episodes_high),
        ),
        ("tasks with several known outcomes", f"{tasks.n_repeated:,}"),
        (
            "of these with successes and failures"
            if facts.success_named
            else "of these with returns above 0 and others",
            f"{tasks.n_mixed:,}",
        ),
        ("of these always with the same return", f"{tasks.n_flat:,}"),
    ]
    rows += [
        (
            f"pass^{passed.k}: "
            + ("a trial of a task succeeds" if passed.k == 1 else f"{passed.k} trials of a task all succeed"),
            f"{passed.value:.3f} over {counted(passed.n_tasks, 'task')}",
        )
        for passed in tasks.pass_all
    ]
    return _table(("", ""), rows)


def _ends_table(facts: Facts) -> Table | None:
    meaning = {
        "terminated": "the task ended",
        "truncated": "a limit stopped it",
        "cut": "the record breaks off",
        "unknown": "the log doesn't say",
    }
    rows = [(reason, meaning[reason], f"{n:,}", percent(n / facts.n_episodes)) for reason, n in facts.ends.items() if n]
    return _table(("end", "meaning", "episodes", "share"), rows)


def _call_sentences(calls: CallCounts) -> tuple[str, ...]:
    if not calls.n_calls:
        return ("The log has no tool calls.",)
    statuses = ", ".join(
        f"{n:,} {ARGUMENTS_IN_WORDS.get(name, printable(name))}" for name, n in calls.arguments_status.items()
    )
    said = [
        f"{counted(calls.n_calls, 'call')} of {counted(len(calls.tools), 'tool')}; {calls.n_failures:,} failed "
        f"({percent(calls.n_failures / calls.n_calls)})."
    ]
    if calls.n_unpaired:
        said.append(
            f"{calls.n_unpaired:,} have neither a result nor an error, {calls.n_unpaired_last:,} of them at the end of "
            "their episode."
        )
    return (*said, f"Arguments: {statuses}.") if statuses else tuple(said)


def _tool_table(calls: CallCounts) -> Table | None:
    rows = [
        (
            printable(tool.tool),
            f"{tool.n_calls:,}",
            f"{tool.n_failures:,}",
            percent(tool.failure_rate),
            f"{tool.n_unpaired:,}",
        )
        for tool in calls.tools
    ]
    return _table(("tool", "calls", "failed", "rate", "no result"), rows)


def _drift(facts: Facts) -> tuple[tuple[str, ...], Table | None]:
    if not facts.drift:
        named = [name for name, n in facts.version_counts.items() if n]
        if not named:
            return ("The log names no versions, so changes during the log can't be seen.",), None
        return (f"There is one value each of {', '.join(named)}: as far as the log tells, nothing changed.",), None
    rows = [
        (
            drift.column,
            printable(version.value),
            f"{version.n_episodes:,}",
            percent(version.success_rate),
            "–" if version.distance is None else f"{version.distance:.2f} ({version.distance_by_chance:.2f})",
        )
        for drift in facts.drift
        for version in drift.versions
    ]
    sentences = tuple(printable(sentence, 400) for drift in facts.drift for sentence in drift.sentences)
    success = "success" if facts.success_named else "return above 0"
    return sentences, _table(("column", "version", "episodes", success, "mix apart (by chance)"), rows)


def _field_table(fields: Sequence[FieldStatus]) -> Table | None:
    rows = [
        (
            field.column,
            field.verdict,
            f"{field.n_filled:,}" if field.share is None else f"{percent(field.share)} of {field.unit}",
            families_in_short(field.families) or "–",
            field.purpose,
        )
        for field in fields
    ]
    table = _table(("column", "verdict", "filled", "needed by", "what for"), rows, max_rows=len(rows))
    return table._replace(n_narrow=4) if table else None


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], max_rows: int = MAX_ROWS) -> Table | None:
    return Table(headings, tuple(rows[:max_rows]), max(len(rows) - max_rows, 0)) if rows else None


def percent(share: float | None) -> str:
    """A share in percent; a small or large one is never rounded to nothing or all; unknown stays a word."""
    if share is None:
        return "unknown"
    if share in (0, 1):
        return f"{share:.0%}"
    return "< 0.1%" if share < 0.001 else "> 99.9%" if share > 0.999 else f"{share:.1%}"


def _range(low: int | None, median: float | None, high: int | None) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}, median {median:,g}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def printable(text: str, limit: int = MAX_NAME) -> str:
    """A text from a file on one line, shortened; control and formatting characters are shown by their number."""
    text = "".join(
        f"\\u{ord(sign):04x}" if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co") else sign
        for sign in " ".join(text.split())[: limit + 1]
    )
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# -- text ----------------------------------------------------------------------------------------------------


def as_text(report: Readiness) -> str:
    """The report for a terminal, at most 80 columns wide."""
    return "\n".join(_text_lines(report)) + "\n"


def _text_lines(report: Readiness) -> Iterator[str]:
    yield "READINESS REPORT"
    for sentence in headline(report):
        yield from _wrapped(sentence)
    for verdict in report.verdicts:
        yield ""
        yield f"{SIGNS[verdict.verdict]} {verdict.title}: {verdict.verdict.upper()}"
        for reason in verdict.blocked_by:
            yield from _wrapped(f"{reason.sentence} ({reason.number})", "  ")
        if verdict.caveats:
            yield from _wrapped(f"Caveats: {caveats_in_short(verdict.caveats)}.", "  ")
    for section in sections(report):
        yield from ("", section.title.upper())
        for sentence in section.sentences:
            yield from _wrapped(sentence)
        if section.table:
            yield from _table_lines(section.table)


def _wrapped(sentence: str, first: str = "") -> list[str]:
    return textwrap.wrap(sentence, WIDTH, initial_indent=first, subsequent_indent=" " * len(first)) or [""]


def _table_lines(table: Table) -> Iterator[str]:
    """Columns as wide as they need; the widest ones give way until the table fits."""
    rows = [table.headings, *table.rows] if any(table.headings) else list(table.rows)
    rows = [row[: table.n_narrow] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH:
        widest = widths.index(max(widths))
        widths[widest] -= 1
    for row in rows:
        cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
        for i in range(max(map(len, cells))):
            line = (cell[i] if i < len(cell) else "" for cell in cells)
            yield "  ".join(f"{part:<{width}}" for part, width in zip(line, widths, strict=True)).rstrip()
    if table.n_left_out:
        yield f"({len(table.rows):,} of {len(table.rows) + table.n_left_out:,} shown)"


# -- Markdown and HTML ---------------------------------------------------------------------------------------

_MARKDOWN_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~])")


def as_markdown(report: Readiness) -> str:
    """The report as Markdown."""
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: Readiness) -> Iterator[str]:
    yield "# Readiness report"
    for sentence in headline(report):
        yield from ("", _escaped(sentence))
    for verdict in report.verdicts:
        yield from ("", f"## {verdict.title}: {verdict.verdict}", "")
        yield from (f"- {_escaped(reason.sentence)} ({reason.number})" for reason in verdict.blocked_by)
        if verdict.caveats:
            yield f"- Caveats: {_escaped(caveats_in_short(verdict.caveats))}."
    for section in sections(report):
        yield from ("", f"## {section.title}", "")
        yield from (f"- {_escaped(sentence)}" for sentence in section.sentences)
        if section.table:
            yield from ("", _markdown_row(section.table.headings), "|---" * len(section.table.headings) + "|")
            yield from map(_markdown_row, section.table.rows)
            yield from _left_out(section.table)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _left_out(table: Table) -> Iterator[str]:
    if table.n_left_out:
        yield from ("", f"{len(table.rows):,} of {len(table.rows) + table.n_left_out:,} shown.")


def _escaped(text: str) -> str:
    return _MARKDOWN_SIGNS.sub(r"\\\1", text)


_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
body { color: #111; background: #fff }
table { border-collapse: collapse; margin: .6rem 0 }
th, td { text-align: left; vertical-align: top; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid #ccc }
section { break-inside: avoid }
section.long { break-inside: auto }
tr { break-inside: avoid }
h2 { break-after: avoid; margin: 1.4rem 0 .3rem; font-size: 1.1rem }
.ready h2 { color: #1a6e2e } .caveats h2 { color: #8a5a00 } .blocked h2 { color: #a01818 }
"""
_CLASSES: dict[VerdictWord, str] = {READY: "ready", WITH_CAVEATS: "caveats", BLOCKED: "blocked"}
_LONG = 12  # rows of a table that may go over two pages


def as_html(report: Readiness) -> str:
    """The report as one HTML page that needs nothing else and prints well."""
    title = html.escape(f"Readiness report, {printable(report.facts.name)}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>\n'
        f"<body>\n" + "\n".join(_html_parts(report)) + "\n</body></html>\n"
    )


def _html_parts(report: Readiness) -> Iterator[str]:
    yield "<h1>Readiness report</h1>"
    yield from (f"<p>{html.escape(sentence)}</p>" for sentence in headline(report))
    for verdict in report.verdicts:
        yield f'<section class="{_CLASSES[verdict.verdict]}">'
        yield f"<h2>{SIGNS[verdict.verdict]} {html.escape(verdict.title)}: {verdict.verdict}</h2>"
        yield _html_list([f"{reason.sentence} ({reason.number})" for reason in verdict.blocked_by])
        if verdict.caveats:
            yield f"<p>Caveats: {html.escape(caveats_in_short(verdict.caveats))}.</p>"
        yield "</section>"
    for section in sections(report):
        is_long = section.table is not None and len(section.table.rows) > _LONG
        yield f"<section{' class=long' if is_long else ''}><h2>{html.escape(section.title)}</h2>"
        yield _html_list(section.sentences)
        if section.table:
            yield _html_table(section.table)
            yield from (f"<p>{line}</p>" for line in _left_out(section.table) if line)
        yield "</section>"


def _html_list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(sentence)}</li>' for sentence in sentences)}</ul>" if sentences else ""


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in table.headings)
    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if any(table.headings) else ''}<tbody>{rows}</tbody></table>"


def _problems(report: Readiness) -> tuple[str, ...]:
    """The first problems of the import in words, and how many more there are."""
    told, n = report.imported.problems, report.imported.n_problems
    more = (f"{n - len(told):,} more problems; the page Data lists them.",) if n > len(told) else ()
    return (*told, *more)
