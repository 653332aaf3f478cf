"""Damaged files for importers: anything may be read or refused, but nothing may crash or get lost in silence."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from offrl_core.errors import TraceFormatError
from offrl_core.importers import IMPORTERS, read_source
from offrl_core.importers.report import ImportReport

_VALUES = [
    None,
    True,
    0,
    -3,
    1.5,
    float("nan"),
    10**400,
    "",
    "x",
    "{",
    '{"a": 1}',
    "\ud83d",
    [],
    {},
    [None],
    [[]],
    {"role": "user"},
]


def damaged(data: st.DataObject, example: bytes) -> bytes:
    """An example with values dropped, replaced, doubled or retyped, or with its bytes cut."""
    text = example.decode()
    if text.startswith(("{", "[")):
        records: Any = [json.loads(line) for line in text.splitlines()]
        for _ in range(data.draw(st.integers(1, 5))):
            _change(data, records)
        text = "\n".join(json.dumps(record) for record in records)
    else:
        lines = text.split("\n")
        for _ in range(data.draw(st.integers(1, 5))):
            position = data.draw(st.integers(0, len(lines) - 1))
            lines[position : position + data.draw(st.integers(0, 2))] = data.draw(
                st.lists(
                    st.sampled_from([*lines, "", "Action 1:", "Observation: x", "> look", "STATUS: OK"]), max_size=2
                )
            )
            lines = lines or [""]
        text = "\n".join(lines)
    content = text.encode("utf-8", "surrogatepass")
    return content[: data.draw(st.integers(0, len(content)))] if data.draw(st.integers(0, 3)) == 0 else content


def _change(data: st.DataObject, value: Any) -> None:
    """Change one thing somewhere inside a value, in place."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        inner = value[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.integers(0, 3)):
            value = inner
            continue
        break
    kind = data.draw(st.sampled_from(["drop", "replace", "wrap", "double"]))
    if kind == "drop":
        del value[key]
    elif kind == "replace":
        value[key] = copy.deepcopy(data.draw(st.sampled_from(_VALUES)))
    elif kind == "wrap":
        value[key] = [inner]
    elif isinstance(value, list):
        value.insert(key, copy.deepcopy(inner))
    else:
        value[key] = json.dumps(inner)


def assert_read_or_reported(content: bytes, format: str | None) -> None:
    """Reading gives whole rows or the named error, and each record gave steps or a problem."""
    imported, sentence = None, "."
    try:
        imported = read_source("f", content, format=format)
    except TraceFormatError as error:
        sentence = str(error)
    assert sentence.endswith(".")
    if imported is None:
        return
    report = imported.report
    assert_accounts(report)
    by_episode: dict[str, list[dict[str, Any]]] = {}
    for row in imported.steps.to_pylist():
        by_episode.setdefault(row["episode_id"], []).append(row)
        assert row["action"]
        assert json.loads(row["state"] or "{}") is not None
    for rows in by_episode.values():
        assert len({row["t"] for row in rows}) == len(rows)
        assert [row["end_reason"] is None for row in rows] == [True] * (len(rows) - 1) + [False]
        assert {(row["terminal"], row["timeout"]) for row in rows[:-1]} <= {(False, False)}
        calls = [(row["decision_id"], row["call_index"]) for row in rows]
        assert len(set(calls)) == len(calls)


def assert_accounts(report: ImportReport) -> None:
    """Each record was either read or lost, counted apart from each other, and each lost one is named by a problem."""
    for counts in report.by_file:
        assert counts.n_read + counts.n_lost == counts.n, counts
    assert sum(counts.n for counts in report.by_file) == report.n_records
    assert (report.n_records_read + report.n_records_lost) == report.n_records
    named = {(problem.file, problem.record) for problem in report.problems if problem.lost}
    for counts in report.by_file:
        if counts.file not in report.unread_files and counts.unit not in ("line", "event"):
            of_file = {(file, n) for file, n in named if file == counts.file or file.startswith(f"{counts.file}/")}
            assert len(of_file) >= counts.n_lost, counts
    assert len(set(report.torn)) == len(report.torn) <= report.n_episodes


def example(format: str) -> bytes:
    """The example of a format."""
    return IMPORTERS[format].example
