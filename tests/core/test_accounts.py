"""Records of an import: read and lost add up in one unit, whatever the format and whatever is broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offrl_core.errors import TraceFormatError
from offrl_core.importers import IMPORTERS, read_source, read_sources
from offrl_core.importers.accounts import FileCounts
from offrl_core.importers.report import ImportReport
from tests.core.damage import assert_accounts, damaged

IN_LINES = [name for name, spec in IMPORTERS.items() if spec.example.startswith((b"{", b"["))]
BROKEN = b'{"type": "assistant", "mess'


def lines(*records: Any) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records)


def turn(uuid: str, parent: str | None, role: str, content: Any, session: str = "s", **fields: Any) -> dict[str, Any]:
    return {
        "type": role, "uuid": uuid, "parentUuid": parent, "sessionId": session, "version": "2", "isSidechain": False,
        "timestamp": "2026-01-01T00:00:00Z", "message": {"role": role, "content": content, "id": f"m{uuid}"},
    } | fields  # fmt: skip


def session(name: str, n: int) -> list[dict[str, Any]]:
    """A session of n exchanges: 2 n lines."""
    return [
        turn(f"{name}{i}", f"{name}{i - 1}" if i else None, ("user", "assistant")[i % 2], f"text {i}", name)
        for i in range(2 * n)
    ]


def step(episode: str, t: int, **fields: Any) -> dict[str, Any]:
    return {"episode_id": episode, "t": t, "action": {"type": "tool_call", "tool": "f", "arguments": {}}} | fields


# -- the registry --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IN_LINES)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_lines_that_break_are_the_lost_ones(name: str, data: st.DataObject) -> None:
    good = IMPORTERS[name].example.splitlines()
    whole = read_source("f", IMPORTERS[name].example, format=name).report
    content = list(good)
    for _ in range(data.draw(st.integers(1, 4))):
        content.insert(data.draw(st.integers(1, len(content))), BROKEN)
    numbers = [i for i, line in enumerate(content, start=1) if line is BROKEN]
    report = read_source("f", b"\n".join(content), format=name).report
    assert_accounts(report)
    assert (report.n_records_read, report.n_records_lost) == (whole.n_records_read, len(numbers))
    assert (report.n_steps, report.n_episodes) == (whole.n_steps, whole.n_episodes)
    lost = {problem.record for problem in report.problems if problem.kind == "not JSON"}
    assert lost == set(numbers)
    assert f"({len(numbers):,} lost)" in report.sentence()


@pytest.mark.parametrize("name", IMPORTERS)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_read_and_lost_add_up_in_any_two_broken_files(name: str, data: st.DataObject) -> None:
    example = IMPORTERS[name].example
    if name != "arrays":
        example = damaged(data, example)
    other = damaged(data, IMPORTERS[data.draw(st.sampled_from(IN_LINES))].example)
    try:
        report = read_sources([("a", example), ("b", other)]).report
    except TraceFormatError:
        return
    assert_accounts(report)
    assert set(report.unread_files) | {counts.file for counts in report.by_file} <= {"a", "b"}


def test_each_format_calls_its_records_by_name() -> None:
    assert all(spec.unit != "record" for spec in IMPORTERS.values())


# -- sessions of many lines ----------------------------------------------------------------------------------


def test_a_session_counts_its_lines_and_a_lost_one_within_tears_it() -> None:
    good = lines(*session("a", 3), *session("b", 3)).splitlines()
    report = read_source("s.jsonl", b"\n".join([*good[:2], BROKEN, *good[2:]])).report
    assert report.sentence() == "Read 12 of 13 lines (1 lost): 6 steps in 2 episodes, 1 of them torn; 1 problem."
    assert report.torn == ["a"]
    assert report.losses() == ["s.jsonl: 1 of 13 lines lost (3)"]
    assert report.problems[0].sentence().startswith("s.jsonl, line 3: this line can't be read as JSON")
    # What is lost between two sessions, or behind the last one, is in neither.
    for place in (6, 12):
        report = read_source("s.jsonl", b"\n".join([*good[:place], BROKEN, *good[place:]])).report
        assert (report.n_records_lost, report.torn) == (1, [])


def test_a_session_without_a_reply_loses_all_its_lines() -> None:
    asked = [turn(f"q{i}", None, "user", "hm", "q") for i in range(4)]
    report = read_source("s.jsonl", lines(*session("a", 2), *asked)).report
    assert report.sentence() == "Read 4 of 8 lines (4 lost): 2 steps in 1 episode; 1 problem."
    assert report.by_file[0].first_lost == (5, 6, 7, 8)


def test_a_result_without_a_call_is_told_with_its_line() -> None:
    stray = turn("x", "a3", "user", [{"type": "tool_result", "tool_use_id": "toolu_9", "content": "?"}], "a")
    talk = [*session("a", 2), stray, *[turn("a9", "x", "assistant", "ok", "a")]]
    report = read_source("s.jsonl", lines(*talk)).report
    (problem,) = report.problems
    assert (problem.kind, problem.record, problem.offset) == ("result without a call", 5, len(lines(*talk[:4])) + 1)
    assert report.sentence() == "Read 6 of 6 lines: 3 steps in 1 episode, 1 of them torn; 1 problem."


def test_lines_of_no_kind_that_acts_are_read_and_not_lost() -> None:
    report = read_source(
        "s.jsonl", lines(*session("a", 1), {"type": "summary", "summary": "x", "leafUuid": "a1"})
    ).report
    assert report.sentence() == "Read 3 of 3 lines: 1 step in 1 episode; no problems."


def test_a_message_of_an_unknown_kind_of_line_is_lost_and_told() -> None:
    odd = turn("a2", "a1", "user", "and then?", "a") | {"type": "asistant"}
    report = read_source("s.jsonl", lines(*session("a", 2), odd, *session("b", 1))).report
    assert report.sentence() == "Read 6 of 7 lines (1 lost): 3 steps in 2 episodes; 1 problem."
    assert (
        report.problems[0]
        .sentence()
        .startswith("s.jsonl, line 5, field type: the kind of this line, asistant, isn't known")
    )


def test_a_line_whose_kind_is_damaged_is_lost_and_told() -> None:
    good = lines(*session("a", 2)).splitlines()
    content = b"\n".join(
        [*good[:3], good[3].replace(b'"assistant"', b'"\xe1ssistant"'), *lines(*session("b", 1)).splitlines()]
    )
    report = read_source("s.jsonl", content).report
    assert (report.n_records_lost, report.counts()) == (1, {"invalid bytes": 1, "unknown kind of line": 1})


def test_a_line_that_breaks_off_is_told_from_one_that_never_was_json() -> None:
    content = b"\n".join([*lines(*session("a", 1)).splitlines(), BROKEN, b"Traceback (most recent call last):"])
    cut, garbage = read_source("s.jsonl", content).report.problems
    assert " at column " in cut.message
    assert "it breaks off" in cut.message
    assert "breaks off" not in garbage.message


# -- rows ----------------------------------------------------------------------------------------------------


def test_a_lost_row_tears_the_episode_whose_numbers_jump_and_no_other() -> None:
    rows = [step(episode, t) for t in range(4) for episode in ("e", "f", "g")]
    content = lines(*rows).splitlines()
    content[4] = BROKEN  # f, 1
    report = read_source("rows.jsonl", b"\n".join(content)).report
    assert report.torn == ["f"]
    assert report.sentence() == "Read 11 of 12 rows (1 lost): 11 steps in 3 episodes, 1 of them torn; 2 problems."
    assert set(report.counts()) >= {"not JSON"}


def test_steps_within_a_record_are_counted_apart_from_records() -> None:
    runs = [
        {"episode": i, "task": "x", "steps": [{"action": "a", "observation": "o", "reward": 0.0} for _ in range(3)]}
        for i in range(4)
    ]
    runs[1]["steps"][1]["action"] = None
    report = read_source("runs.jsonl", lines(*runs)).report
    assert report.n_records_lost == 0
    assert "11 of 12 steps in 4 episodes, 1 of them torn" in report.sentence()


# -- several files -------------------------------------------------------------------------------------------


def test_files_are_told_one_by_one_with_what_each_lost() -> None:
    good = lines(*session("a", 3)).splitlines()
    rows = lines(*[step("e", t) for t in range(3)])
    files = [
        ("s.jsonl", b"\n".join([BROKEN, *good, BROKEN])),
        ("rows.jsonl", rows),
        ("notes.txt", b"Nothing but words, and no log at all."),
    ]
    report = read_sources(files).report
    assert report.sentence() == (
        "Read 6 of 8 lines (2 lost), 3 of 3 rows: 6 steps in 2 episodes; 1 file unreadable; 3 problems."
    )
    assert report.losses() == ["notes.txt: nothing of it could be read", "s.jsonl: 2 of 8 lines lost (1, 8)"]


def test_many_lost_records_are_told_by_the_first_ones() -> None:
    counts = FileCounts(file="f", unit="line", n=2000, n_read=1000, n_lost=1000, first_lost=(1, 2, 3, 4, 1001))
    assert counts.sentence == "f: 1,000 of 2,000 lines lost (1, 2, 3, 4, 1,001, …)"


def test_more_lost_records_than_problems_that_are_kept_are_all_counted() -> None:
    n = 2500
    content = b"\n".join([lines(*[step("e", t) for t in range(200)]), *[BROKEN] * n])
    report = read_source("f", content).report
    assert (report.n_records_lost, len(report.problems)) == (n, 1000)
    assert report.n_records_read + report.n_records_lost == report.n_records == n + 200


def test_a_world_and_an_empty_report_say_no_loss() -> None:
    assert (ImportReport().losses(), ImportReport().torn_sentence()) == ([], "")
