"""Importers: real files with known counts, bad input of every kind, round trips, nothing lost in silence."""

from __future__ import annotations

import contextlib
import copy
import gc
import gzip
import io
import json
import math
import struct
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import offrl_core as orl
from offrl_core.errors import TraceFormatError, UnknownName
from offrl_core.importers import IMPORTERS, Imported, read_source
from offrl_core.importers.collector import collector_at_rest
from offrl_core.importers.engine import read_files
from offrl_core.importers.episode import Runs, goal_text, seen, seen_text
from offrl_core.importers.fields import Gathered, read_arguments
from offrl_core.importers.messages import Conversation, Message, each_record, gather
from offrl_core.importers.records import Record, read_records
from offrl_core.importers.report import KEPT_PER_KIND, ImportReport, Place
from offrl_core.importers.trace_schema import write_jsonl
from offrl_core.schema import COLUMN_NAMES, RECORDS_ARROW_SCHEMA, STEPS_ARROW_SCHEMA, canonical_json, steps_table
from tests.core.damage import assert_accounts

SHARED_TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
PROVENANCE = ["source_file", "record", "upload_order"]
FORMATS_WITHOUT_REWARDS = {"claude_code", "codex", "gemini_cli", "langchain_events", "webarena"}


def shared_trace(path: str) -> Path:
    """A file of the shared real traces; the test is skipped where they are absent."""
    if not (SHARED_TRACES / path).exists():
        pytest.skip(f"no shared trace {path}")
    return SHARED_TRACES / path


def lines(*records: Any) -> bytes:
    return "\n".join(json.dumps(record, ensure_ascii=False) for record in records).encode("utf-8", "surrogatepass")


def step(**fields: Any) -> dict[str, Any]:
    return {"episode_id": "e", "t": 0, "action": {"type": "tool_call", "tool": "f", "arguments": {}}} | fields


def rows(imported: Imported) -> list[dict[str, Any]]:
    return list(imported.steps.to_pylist())


def problems(imported: Imported) -> list[tuple[int | None, str | None, str, bool]]:
    return [(p.record, p.field, p.kind, p.lost) for p in imported.report.problems]


# -- the registry --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", IMPORTERS.values(), ids=IMPORTERS)
def test_an_importer_recognises_and_reads_its_own_example(spec: Any) -> None:
    imported = read_source("renamed.bin", spec.example)
    assert imported.report.format == spec.name
    assert imported.report.problems == []
    assert imported.report.n_records_read == imported.report.n_records
    assert "found" in imported.report.why
    assert imported.steps.schema == STEPS_ARROW_SCHEMA
    assert imported.records.schema == RECORDS_ARROW_SCHEMA
    without = any(note.startswith("This log has no rewards") for note in imported.report.notes)
    assert without is (spec.name in FORMATS_WITHOUT_REWARDS)
    assert without is (imported.steps["reward"].null_count == imported.steps.num_rows)
    values = [record.value for record in read_records("example", spec.example, ImportReport())]
    for other in IMPORTERS.values():
        assert other is spec or other.sniff(values)[0] < spec.sniff(values)[0]


def test_the_registry_does_not_load_what_imports_do_not_need() -> None:
    heavy = {"torch", "streamlit", "duckdb", "pandas"}
    code = f"import sys, offrl_core.importers; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_format_can_be_overridden_and_an_unknown_one_is_named() -> None:
    data = lines({"messages": [{"role": "assistant", "content": "hi"}], "t": 0, "episode_id": "e", "action": "x"})
    assert read_source("f", data, format="openai_chat").report.why == "chosen by hand"
    assert read_source("f", data, format="trace_schema").steps["action"].to_pylist() == ["x"]
    with pytest.raises(UnknownName, match="Known: trace_schema, "):
        read_source("f", data, format="csv")


def test_the_majority_decides_and_not_one_late_record() -> None:
    late = {"messages": [{"role": "assistant", "content": "hi"}]}
    imported = read_source("f", lines(*[step(t=t) for t in range(9)], late))
    assert imported.report.format == "trace_schema"
    assert imported.report.why == "found episode_id, t and action in 9 of the first 10 records"
    assert problems(imported) == [(10, "episode_id", "no episode_id", True)]


def test_an_unknown_format_names_the_fields_and_where_the_known_formats_are() -> None:
    with pytest.raises(TraceFormatError) as caught:
        read_source("spans.json", lines({"trace_id": 1, "span_id": 2}, {"trace_id": 3}))
    for part in ("spans.json", "trace_id, span_id", f"{len(IMPORTERS)} known formats (orl.IMPORTERS)"):
        assert part in str(caught.value)
    with pytest.raises(TraceFormatError, match="no objects"):
        read_source("f", b"[1, 2]")


def test_progress_rises_to_one() -> None:
    fractions: list[float] = []
    read_source("f", lines(*[step(t=t) for t in range(2000)]), progress=fractions.append)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert len(fractions) > 3


# -- real files ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def airline() -> Imported:
    path = shared_trace("openai_chat/tau_bench_gpt-4o-airline.json")
    return read_source(path.name, path.read_bytes())


def test_airline_counts(airline: Imported) -> None:
    steps = rows(airline)
    assert airline.report.sentence() == ("Read 200 of 200 conversations: 2,454 steps in 200 episodes; no problems.")
    assert sum(len(json.loads(raw)["traj"]) for raw in airline.records["raw"].to_pylist()) == 5308
    assert len({row["decision_id"] for row in steps}) == 2454
    calls = [row for row in steps if row["action_type"] == "tool_call"]
    assert sum(row["tool_result"] is not None for row in calls) == 1164
    assert round(sum(row["error"] is not None for row in calls) / 1164, 3) == 0.063
    assert len({row["action"] for row in steps}) == 15
    assert {row["arguments_status"] for row in calls} == {"json_string"}
    assert {row["behavior_policy"] for row in steps} == {"tau_bench_gpt-4o-airline"}
    assert {row["environment_version"] for row in steps} == {"tau-bench"}
    assert len({row["prompt_version"] for row in steps}) == 1


def test_airline_success_and_pass_to_the_k(airline: Imported) -> None:
    successes: dict[str, int] = defaultdict(int)
    rewards = [(row["task"], row["reward"]) for row in rows(airline) if row["reward"] is not None]
    for task, reward in rewards:
        successes[task] += reward == 1
    assert len(rewards) == 200  # one per episode, on its last step; NULL everywhere else
    assert len(successes) == 50
    passed = [sum(math.comb(c, k) / math.comb(4, k) for c in successes.values()) / 50 for k in (1, 2, 3, 4)]
    assert [round(value, 3) for value in passed] == [0.42, 0.273, 0.22, 0.2]


def test_airline_endings(airline: Imported) -> None:
    last = {row["episode_id"]: row for row in rows(airline)}
    assert Counter((row["terminal"], row["timeout"]) for row in last.values()) == {
        (True, False): 195,
        (None, None): 5,
    }
    assert all(row["reward"] is not None for row in last.values())
    inner = [row for row in rows(airline) if row is not last[row["episode_id"]] and row["reward"] is None]
    assert {(row["terminal"], row["timeout"]) for row in inner} == {(False, False)}
    assert airline.report.notes[0].startswith("5 of 200 conversations were neither stopped")


def test_an_episode_says_on_its_last_step_alone_how_it_ended(airline: Imported) -> None:
    last = {row["episode_id"]: row for row in rows(airline)}
    assert Counter(row["end_reason"] for row in last.values()) == {"terminated": 195, "unknown": 5}
    assert airline.steps["end_reason"].null_count == airline.steps.num_rows - len(last)


def test_airline_state_never_holds_what_the_agent_did_not_see(airline: Imported) -> None:
    hidden = {}
    for number, raw in zip(airline.records["record"].to_pylist(), airline.records["raw"].to_pylist(), strict=True):
        hidden[number] = json.loads(raw)["info"]["task"]["instruction"][:60]
    for row in rows(airline):
        visible = [value for name, value in row.items() if isinstance(value, str) and name != "tool_result"]
        assert not any(hidden[row["record"]] in value for value in visible)
        state = json.loads(row["state"])
        assert state["conversation_history"] == {
            "record": row["record"],
            "messages": [0, row["message_index"]],
        }


def test_airline_agrees_with_the_reference_mapping(airline: Imported) -> None:
    path = shared_trace("trace_schema/tau_airline_tasks0-2_mapped.jsonl")
    reference = {}
    for row in rows(read_source(path.name, path.read_bytes())):
        run = row["episode_id"].removeprefix("tau_airline_t").replace("_", "-")
        reference[f"task{run}", row["t"]] = row
    ours = {
        (row["episode_id"], row["t"]): row for row in rows(airline) if row["task"] in {"task 0", "task 1", "task 2"}
    }
    assert len(reference) == 167
    assert sorted(reference) == sorted(ours)
    ids = Counter((key[0], json.loads(row["metadata"] or "{}").get("call_id")) for key, row in ours.items())
    n_compared = 0
    for key, row in ours.items():
        for name in ("action", "tool", "arguments", "arguments_hash"):
            assert row[name] == reference[key][name], (key, name)
        call_id = json.loads(row["metadata"] or "{}").get("call_id")
        if call_id is None or ids[key[0], call_id] == 1:  # the reference takes the last result of an id in a run
            assert (row["tool_result"], row["error"]) == (
                reference[key]["tool_result"],
                reference[key]["error"],
            )
            n_compared += 1
        assert row["reward"] in (None, reference[key]["reward"])  # 0 there, unknown here before the end
    assert n_compared > 130


def test_airline_results_are_those_of_their_turn_though_ids_repeat(airline: Imported) -> None:
    raw = dict(zip(airline.records["record"].to_pylist(), airline.records["raw"].to_pylist(), strict=True))
    messages = {number: json.loads(text)["traj"] for number, text in raw.items()}
    for row in rows(airline):
        if row["action_type"] == "tool_call":
            assert row["tool_result"] == messages[row["record"]][row["message_index"] + 1]["content"]


@pytest.mark.parametrize("folder", ["openai_chat", "tau_bench", "trace_schema", "damaged", "hf_parquet", "claude_code"])
def test_every_shared_file_is_read_or_refused_with_a_sentence(folder: str) -> None:
    sentences: list[str] = []
    for path in sorted(shared_trace(folder).iterdir()):
        try:
            imported = read_source(path.name, path.read_bytes())
        except TraceFormatError as error:
            sentences.append(str(error))
            continue
        assert imported.steps.num_rows
        assert_nothing_lost(imported)
    assert all(sentence.endswith(".") for sentence in sentences)


@pytest.mark.parametrize(
    ("path", "sentence", "counts"),
    [
        (
            "damaged/json_array_cut.json",
            "Read 8 of 9 conversations (1 lost): 107 steps in 8 episodes; 1 problem.",
            {"not JSON": 1},
        ),
        (
            "damaged/jsonl_last_line_cut.jsonl",
            "Read 2 of 3 conversations (1 lost): 6 steps in 2 episodes; 1 problem.",
            {"not JSON": 1},
        ),
        (
            "damaged/json_array_trailing_comma_and_NaN.json",
            "Read 4 of 4 conversations: 8 steps in 4 episodes; 1 problem.",
            {"reward is not a number": 1},
        ),
        (
            "damaged/messages_edge_cases.jsonl",
            "Read 6 of 8 conversations (2 lost): 9 steps in 6 episodes, 2 of them torn; 4 problems.",
            {"result without a call": 2, "no decision": 2},
        ),
        (
            "damaged/lone_surrogate_and_nul.jsonl",
            "Read 1 of 1 conversation: 1 step in 1 episode; 1 problem.",
            {"invalid bytes": 1},
        ),
    ],
)
def test_damaged_files_keep_what_is_good(path: str, sentence: str, counts: dict[str, int]) -> None:
    imported = read_source("file", shared_trace(path).read_bytes())
    assert imported.report.sentence() == sentence
    assert imported.report.counts() == counts


def assert_nothing_lost(imported: Imported) -> None:
    """Every record was read or lost, and each step has its record."""
    assert_accounts(imported.report)
    assert set(imported.steps["record"].to_pylist()) == set(imported.records["record"].to_pylist())
    assert imported.report.n_lost == sum(p.lost for p in imported.report.problems)


# -- conversations -------------------------------------------------------------------------------------------


def chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "q"}, *messages], **fields}


def call(name: Any = "f", arguments: Any = "{}", id: Any = "c1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def says(content: Any, *calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content} | ({"tool_calls": list(calls)} if calls else {})


def result(content: Any, id: Any = "c1", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content} | ({"tool_call_id": id} if id else {}) | fields


def test_calls_of_one_reply_share_the_decision_and_text_becomes_the_thought() -> None:
    record = chat(
        says("thinking", call("f", '{"b": 1, "a": 2}', "x"), call("g", "", "y")),
        result("two", "y"),
        result("", "x"),
    )
    first, second = rows(read_source("f", lines(record)))
    assert (first["tool"], first["arguments"], first["tool_result"]) == ("f", '{"a":2,"b":1}', "")
    assert (second["tool"], second["arguments"], second["tool_result"]) == ("g", None, "two")
    assert first["decision_id"] == second["decision_id"] == "conversation-1#1"
    assert [first["call_index"], second["call_index"]] == [0, 1]
    assert json.loads(first["metadata"])["thought"] == "thinking"


def test_a_message_is_answered_by_the_user_and_an_empty_one_is_kept() -> None:
    record = chat(
        says("hello"),
        {"role": "user", "content": "Error: no"},
        says(None),
        says([{"type": "text", "text": "x"}]),
    )
    first, second, third = rows(read_source("f", lines(record)))
    assert (first["action"], first["arguments"], first["tool"]) == ("message", '{"text":"hello"}', None)
    assert (first["tool_result"], first["error"]) == ("Error: no", None)  # a user is no tool that can fail
    assert (second["arguments_status"], second["arguments"], second["tool_result"]) == ("empty", None, None)
    assert third["arguments"] == '{"text":"x"}'


def test_results_are_paired_within_their_turn_only() -> None:
    record = chat(
        says(None, call(id="call_0")), result("one", "call_0"),
        says(None, call(id="call_0")),
        says(None, call(id="z")),
        result("late", "call_0"), result("two", "z"), result("again", "z"),
    )  # fmt: skip
    imported = read_source("f", lines(record))
    assert [row["tool_result"] for row in rows(imported)] == ["one", None, "two"]
    assert problems(imported) == [(1, "tool_call_id", "result without a call", True)] * 2


def test_results_without_ids_are_paired_by_order_and_said_so() -> None:
    record = chat(says(None, call(id=None), call("g", id=None)), result("one", None), result("two", None))
    imported = read_source("f", lines(record))
    assert [row["tool_result"] for row in rows(imported)] == ["one", "two"]
    assert problems(imported) == [(1, "tool_call_id", "result paired by order", False)] * 2


def test_the_legacy_form_needs_no_ids() -> None:
    record = chat(
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{'a': 1}"}},
        {"role": "function", "name": "f", "content": "ok"},
    )
    imported = read_source("f", lines(record))
    (row,) = rows(imported)
    assert (row["tool"], row["arguments_status"], row["tool_result"]) == ("f", "python_literal", "ok")
    assert problems(imported) == []


@pytest.mark.parametrize(
    ("fields", "content", "error", "guessed"),
    [
        ({}, "Error: no such user", "Error: no such user", True),
        ({}, "Traceback (most recent call last)", "Traceback (most recent call last)", True),
        ({}, "No Error", None, False),
        ({"is_error": True}, "no", "no", False),
        ({"error": "boom"}, "x", "boom", False),
        ({"error": False}, "Error, not really", None, False),
        ({"status": "error"}, "", "error", False),
        ({}, "Error" + "x" * 900, "Error" + "x" * 295, True),
    ],
)
def test_errors_are_flagged_or_guessed(fields: dict[str, Any], content: str, error: str | None, guessed: bool) -> None:
    (row,) = rows(read_source("f", lines(chat(says(None, call()), result(content, **fields)))))
    assert row["error"] == error
    assert row["tool_result"] == content
    assert json.loads(row["metadata"]).get("error_guessed", False) is guessed


@pytest.mark.parametrize(
    ("value", "status", "text", "raw"),
    [
        ({"b": 1, "a": "ы"}, "object", '{"a":"ы","b":1}', None),
        ('{"a": 1}', "json_string", '{"a":1}', '{"a": 1}'),
        ('"{\\"a\\": 1}"', "double_encoded", '{"a":1}', '"{\\"a\\": 1}"'),
        ("{'a': True}", "python_literal", '{"a":true}', "{'a': True}"),
        ("[1,2]", "non_object", "[1,2]", "[1,2]"),
        ("null", "non_object", "null", "null"),
        ('"text"', "non_object", '"text"', '"text"'),
        ([1], "non_object", "[1]", None),
        ("", "empty", None, ""),
        ('["a"], ["b"]', "malformed", None, '["a"], ["b"]'),
        ('{"a": ', "malformed", None, '{"a": '),
        ('{"p": "C:\\Users"}', "malformed", None, '{"p": "C:\\Users"}'),
        ("{(1, 2): 3}", "malformed", None, "{(1, 2): 3}"),
        ("(" * 5000, "malformed", None, "(" * 5000),
        (None, "absent", None, None),
    ],
)
def test_arguments_status(value: Any, status: str, text: str | None, raw: str | None) -> None:
    arguments = read_arguments(value)
    assert (arguments.status, arguments.text, arguments.raw) == (status, text, raw)
    assert (arguments.columns()["arguments_hash"] is None) == (text is None)


@pytest.mark.parametrize("broken", ['{"a": ', "[1, 2", "no JSON", '{"p": "C:\\Users"}'])
@pytest.mark.parametrize("by_columns", [False, True])
def test_arguments_that_cannot_be_read_are_a_problem_with_their_place(broken: str, by_columns: bool) -> None:
    if by_columns:  # large enough to be read by DuckDB
        records = [{"episode_id": "e", "t": t, "action": {"tool": "f", "arguments": {"a": t}}} for t in range(3000)]
        records[1]["action"]["arguments"] = broken
        records[0]["state"] = "x" * 2**18
    else:
        records = [chat(says(None, call(arguments=text))) for text in ('{"a": 1}', broken)]
    found = read_source("f", lines(*records))
    (problem,) = [p for p in found.report.problems if p.kind == "broken arguments"]
    assert (problem.record, problem.field, problem.lost, problem.excerpt) == (2, "arguments", False, broken)
    assert problem.offset > 0
    assert [row["arguments_status"] for row in rows(found)].count("malformed") == 1


def test_a_call_without_a_name_is_kept_as_invalid() -> None:
    imported = read_source("f", lines(chat(says(None, call(name=None, arguments="{"), "what"))))
    assert [(row["action"], row["action_type"], row["arguments_status"]) for row in rows(imported)] == [
        ("invalid", "invalid", "malformed")
    ] * 2
    assert problems(imported) == [(1, "messages[1]", "call without a name", False)] * 2


def test_rewards_and_labels_of_a_record() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    record = chat(says("a"), says("b"), id="run", task="t", score=True, tools=tools, model="m")
    imported = read_source("f", lines(record, chat(says("c"))))
    first, second, other = rows(imported)
    assert (first["reward"], second["reward"], other["reward"]) == (None, 1.0, None)
    assert (first["reward_source"], second["reward_source"]) == (None, "field score of the record")
    assert (first["episode_id"], other["episode_id"]) == ("run", "conversation-2")
    assert (first["task"], first["behavior_policy"], first["available_tools"]) == ("t", "m", ["f", "message"])
    assert first["tool_schema_version"]
    assert other["available_tools"] is None
    assert (first["terminal"], second["terminal"], second["timeout"]) == (False, None, None)
    assert imported.report.notes[0] == "1 of 2 conversations have no reward: unknown there, not 0."


@pytest.mark.parametrize("reward", ["1", math.nan, math.inf, [1], 10**400])
def test_a_reward_that_is_no_number_is_unknown(reward: Any) -> None:
    imported = read_source("f", lines(chat(says("a"), reward=reward)))
    assert rows(imported)[0]["reward"] is None
    assert problems(imported) == [(1, "reward", "reward is not a number", False)]


def test_an_episode_id_used_twice_is_renamed() -> None:
    imported = read_source("f", lines(chat(says("a"), id="x"), chat(says("b"), id="x"), chat(says("c"), id="x#2")))
    assert [row["episode_id"] for row in rows(imported)] == ["x", "x#2", "x#2#2"]
    assert [p[2:] for p in problems(imported)] == [("episode id used twice", False)] * 2


def test_the_goal_is_unknown_before_the_user_speaks() -> None:
    record = [says("welcome"), {"role": "user", "content": "buy"}, says("ok")]
    states = [json.loads(row["state"]) for row in rows(read_source("f", lines(record, record)))]
    assert [state["user_goal"] for state in states] == [None, "buy"] * 2


def test_a_document_of_messages_is_one_conversation() -> None:
    messages = [{"role": "user", "content": "q"}, says(None, call()), result("r"), says("done")]
    imported = read_source("f", json.dumps(messages, indent=1).encode())
    assert imported.report.sentence() == "Read 4 of 4 messages: 2 steps in 1 episode; no problems."
    assert json.loads(imported.records["raw"][0].as_py()) == messages


# -- trace schema: bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "field", "kind"),
    [
        ("text", None, "not an object"),
        (7, None, "not an object"),
        (step(episode_id=""), "episode_id", "no episode_id"),
        (step(episode_id=None), "episode_id", "no episode_id"),
        (step(episode_id=["e"]), "episode_id", "no episode_id"),
        ({"t": 5, "action": "a"}, "episode_id", "no episode_id"),
        (step(t=None), "t", "t is not an integer"),
        (step(t=True), "t", "t is not an integer"),
        (step(t="5"), "t", "t is not an integer"),
        (step(t=1.5), "t", "t is not an integer"),
        (step(t=math.nan), "t", "t is not an integer"),
        (step(t=2**31), "t", "t is not an integer"),
        (step(t=5, action={}), "action", "no action"),
        (step(t=5, action={"arguments": {}}), "action", "no action"),
        (step(t=5, action=""), "action", "no action"),
        (step(t=5, action=[1]), "action", "no action"),
        (step(t=0), "t", "duplicate step"),
    ],
)
def test_a_record_that_is_no_step_is_set_aside_with_its_place(bad: Any, field: str | None, kind: str) -> None:
    imported = read_source("log.jsonl", lines(step(t=0), bad, step(t=1)))
    assert [row["t"] for row in rows(imported)] == [0, 1]
    assert problems(imported) == [(2, field, kind, True)]
    place = "log.jsonl, row 2" + (f", field {field}" if field else "")
    assert imported.report.problems[0].sentence().startswith(place + ": ")
    assert imported.report.n_steps_quarantined == 1
    assert_nothing_lost(imported)


@pytest.mark.parametrize(
    ("fields", "column", "kind"),
    [
        ({"reward": "1"}, "reward", "reward is not a number"),
        ({"reward": math.nan}, "reward", "reward is not a number"),
        ({"reward": -math.inf}, "reward", "reward is not a number"),
        ({"terminal": "yes"}, "terminal", "terminal is not true or false"),
        ({"metadata": {"temperature": "hot"}}, "temperature", "temperature is not a number"),
        ({"call_index": 1.5}, "call_index", "call_index is not an integer"),
        ({"available_tools": [1]}, "available_tools", "available_tools is not a list of names"),
    ],
)
def test_a_wrong_type_costs_the_cell_and_not_the_step(fields: dict[str, Any], column: str, kind: str) -> None:
    imported = read_source("f", lines(step(**fields)))
    assert rows(imported)[0][column] is None
    assert problems(imported) == [(1, column, kind, False)]


def test_steps_are_sorted_and_gaps_reported() -> None:
    data = lines(*[step(episode_id=e, t=t) for e, t in [("b", 3.0), ("a", -1), ("b", 1), ("a", 0), ("b", 0)]])
    imported = read_source("f", data)
    assert [(row["episode_id"], row["t"], row["upload_order"], row["record"]) for row in rows(imported)] == [
        ("b", 0, 4, 5), ("b", 1, 2, 3), ("b", 3, 0, 1), ("a", -1, 1, 2), ("a", 0, 3, 4),
    ]  # fmt: skip
    assert problems(imported) == [
        (None, "t", "gaps between steps", False),
        (None, "t", "steps out of order", False),
    ]
    assert "2 steps" in imported.report.problems[1].message


@pytest.mark.parametrize(
    ("inner", "last", "endings", "kinds", "note"),
    [
        ({}, {"done": True}, [(False, False), (True, False)], [], 'bare "done"'),
        ({"done": False}, {"done": False}, [(False, False), (None, None)], [], "doesn't say"),
        ({}, {}, [(False, False), (None, None)], [], "doesn't say"),
        ({}, {"terminal": False, "timeout": True, "done": True}, [(False, False), (False, True)], [], None),
        ({}, {"terminal": True}, [(False, False), (True, False)], [], None),
        (
            {"done": True},
            {"done": True},
            [(False, False), (True, False)],
            ["end inside an episode"],
            'bare "done"',
        ),
        ({}, {"done": "yes"}, [(False, False), (None, None)], ["done is not true or false"], "doesn't say"),
    ],
)
def test_done_is_split(
    inner: dict[str, Any], last: dict[str, Any], endings: list[Any], kinds: list[str], note: str | None
) -> None:
    imported = read_source("f", lines(step(t=0, **inner), step(t=1, **last)))
    assert [(row["terminal"], row["timeout"]) for row in rows(imported)] == endings
    assert [p[2] for p in problems(imported)] == kinds
    notes = imported.report.notes
    assert (note in notes[0]) if note else (notes == [])


def test_names_of_actions() -> None:
    actions: list[Any] = ["go", 3, {"type": "message"}, {"type": "tool_call", "name": "f"}, {"tool": "g"}]
    found = rows(read_source("f", lines(*[step(t=t, action=action) for t, action in enumerate(actions)])))
    assert [(row["action"], row["action_type"], row["tool"]) for row in found] == [
        ("go", None, None), ("3", None, None), ("message", "message", None),
        ("f", "tool_call", "f"), ("g", "tool_call", "g"),
    ]  # fmt: skip


def test_unknown_fields_survive() -> None:
    record = step(surprise=[1], record="mine", metadata={"seed": 3, "temperature": 0.5}, observation={"code": 7})
    record["action"]["thought"] = "hm"
    (row,) = rows(read_source("f", lines(record)))
    assert row["temperature"] == 0.5
    assert json.loads(row["metadata"]) == {
        "seed": 3, "thought": "hm", "code": 7, "extra": {"surprise": [1], "record": "mine"},
    }  # fmt: skip


def test_the_state_gives_its_text_and_tools() -> None:
    state = {"key": 7, "available_tools": [{"function": {"name": "f"}}, {"name": "g"}, "h"]}
    (row,) = rows(read_source("f", lines(step(state=state))))
    assert (row["state_text"], row["available_tools"]) == ("7", ["f", "g", "h"])
    assert json.loads(row["state"]) == state


def test_zero_steps_say_the_first_problem_and_the_count() -> None:
    with pytest.raises(TraceFormatError, match=r"2 problems, the first: f, row 1, field t: ") as caught:
        read_source("f", lines(step(t=None), step(t="x")))
    assert caught.value.report.n_lost == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("n", [1, 200])
@pytest.mark.parametrize("encode", [bytes, gzip.compress, lambda data: data.decode().encode("utf-16")])
def test_any_size_alphabet_and_encoding(n: int, encode: Any) -> None:
    records = [
        step(episode_id="эпизод 🚗", t=t, action=f"действие-{t}", state={"цель": "🎯"}, task="задача") for t in range(n)
    ]
    imported = read_source("файл.jsonl", encode(lines(*records)))
    assert imported.steps["action"].to_pylist() == [f"действие-{t}" for t in range(n)]
    assert set(imported.steps["episode_id"].to_pylist()) == {"эпизод 🚗"}
    assert imported.report.problems == []


def test_lone_surrogates_are_stored_as_escapes() -> None:
    text = r'"\ud83d"'
    data = json.dumps(step(task="T", available_tools=["T"], state={"s": "T"}, observation="T")).replace('"T"', text)
    (row,) = rows(read_source("f", data.encode()))
    assert (row["task"], row["tool_result"], row["available_tools"]) == ("\\ud83d", "\\ud83d", ["\\ud83d"])
    assert json.loads(row["state"]) == {"s": "\ud83d"}


def test_a_text_that_cannot_be_stored_changes_no_other_row() -> None:
    many = [{"episode_id": "e", "t": t, "action": "f", "task": f"task {t}"} for t in range(3000)]
    clean = steps_table(many).to_pylist()
    many[1500]["task"] = "\ud83d"
    clean[1500]["task"] = "\\ud83d"
    assert steps_table(many).to_pylist() == clean


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud83d") | st.dates(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_canonical_json_is_what_the_standard_library_writes(value: Any) -> None:
    expected = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    assert canonical_json(value) == expected


@given(st.none() | st.text(), st.integers(1), st.integers(0))
@example("long " * 1000, 1, 7)
def test_a_state_written_from_its_parts_is_canonical(goal: str | None, record: int, n: int) -> None:
    assert seen_text(goal_text(goal), record, "messages", 0, n) == canonical_json(seen(goal, record, "messages", n))


def test_the_collector_rests_until_the_last_reader_is_done() -> None:
    assert gc.isenabled()
    with collector_at_rest():
        with pytest.raises(KeyError), collector_at_rest():
            raise KeyError
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_at_rest():
            pass
        assert not gc.isenabled()  # somebody else switched it off
    finally:
        gc.enable()


def test_deep_nesting_is_a_problem_and_not_a_crash() -> None:
    deep: Any = 0
    for _ in range(sys.getrecursionlimit() - 150):
        deep = [deep]
    text = '{"episode_id": "e", "t": 1, "action": "x", "state": ' + str(deep).replace(" ", "") + "}"
    for extra in range(0, 150, 10):
        data = lines(step(t=0)) + b"\n" + text.replace("[0]", "[" * extra + "0" + "]" * extra).encode()
        imported = read_source("f", data)
        assert imported.steps.num_rows + imported.report.n_lost == 2


class _Hostile:
    """A record of which every use raises: what a dialect meets that nobody thought of."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def use(self) -> None:
        raise self.error


def _rows_of(record: Record, place: Place) -> list[dict[str, Any]]:
    if isinstance(record.value, _Hostile):
        record.value.use()
    return [{"episode_id": str(record.number), "t": 0, "action": "x", "terminal": True}]


def _read_each(records: list[Record], report: ImportReport) -> Gathered:
    runs = Runs(report)
    runs.each(records, _rows_of)
    return runs.done("runs")


def _read_conversations(records: list[Record], report: ImportReport) -> Gathered:
    sessions: list[Conversation] = []

    def parse(record: Record, place: Place) -> None:
        _rows_of(record, place)
        sessions.append(Conversation(record, [Message(record, 0, "assistant", text="x")], name=str(record.number)))

    each_record(records, report, parse)
    return gather(sessions, report).done("runs")


def _read_late(records: list[Record], report: ImportReport) -> Gathered:
    """Conversations of which one fails only when its rows are made, after its first row."""

    class Late(Message):
        @property
        def metadata(self) -> Any:  # type: ignore[override]
            return self.record.value.use()

        @metadata.setter
        def metadata(self, value: Any) -> None: ...

    sessions = []
    for record in records:
        last = Late if isinstance(record.value, _Hostile) else Message
        replies = [Message(record, 0, "assistant", text="x"), last(record, 1, "assistant", text="y")]
        sessions.append(Conversation(record, replies, name=str(record.number)))
    return gather(sessions, report).done("runs")


@pytest.mark.parametrize("read", [_read_each, _read_conversations, _read_late])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("v"),
        TypeError("t"),
        KeyError("k"),
        IndexError("i"),
        AttributeError("a"),
        OverflowError("o"),
        ZeroDivisionError("z"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "u"),
        struct.error("s"),
        RecursionError("r"),
    ],
)
def test_a_dialect_that_raises_on_one_record_loses_that_record_only(read: Any, error: Exception) -> None:
    report = ImportReport(files=["f"])
    records = [Record(n, _Hostile(error) if n == 2 else n, f"text {n}", "f") for n in (1, 2, 3)]
    gathered = read(records, report)
    assert {row["episode_id"] for row in gathered.rows} == {"1", "3"}
    (problem,) = [p for p in report.problems if p.lost]
    kind = "nested too deep" if isinstance(error, RecursionError) else "unexpected content"
    assert (problem.file, problem.record, problem.kind, problem.excerpt) == ("f", 2, kind, "text 2")
    assert kind == "nested too deep" or f"({type(error).__name__}: {error})" in problem.message


def test_a_dialect_that_raises_between_records_loses_its_own_files_only() -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("between records")

    good, bad = IMPORTERS["trace_schema"], IMPORTERS["webshop"]
    files = [("good", good.example), ("bad", bad.example)]
    specs = {"webshop": replace(bad, read=fail), "trace_schema": good}
    imported = read_files(files, specs)
    assert imported.report.n_steps == read_source("good", good.example).report.n_steps
    (problem,) = [p for p in imported.report.problems if p.kind == "unreadable file"]
    assert problem.file == "bad"
    assert "KeyError: 'between records'" in problem.message
    with pytest.raises(TraceFormatError, match="KeyError"):
        read_files(files[1:], specs)
    # One that raises when it is asked whether a file is its own doesn't know the file.
    assert (
        read_files(files[:1], {"webshop": replace(bad, sniff=fail), "trace_schema": good}).report.format
        == "trace_schema"
    )


def test_many_equal_problems_are_counted_but_not_kept() -> None:
    n = KEPT_PER_KIND + 500
    imported = read_source("f", lines(*[step(t=t, reward="x") for t in range(n)]))
    assert imported.report.counts() == {"reward is not a number": n}
    assert len(imported.report.problems) == KEPT_PER_KIND
    assert imported.report.sentence().endswith(f"; {n:,} problems.")


# -- round trips ---------------------------------------------------------------------------------------------


def assert_same_steps(found: pa.Table, expected: pa.Table) -> None:
    for name in COLUMN_NAMES:
        if name not in PROVENANCE:
            assert found[name].to_pylist() == expected[name].to_pylist(), name


def as_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


def assert_round_trip(imported: Imported, folder: Path) -> None:
    write_jsonl(imported.steps, folder / "steps.jsonl")
    again = read_source("steps.jsonl", (folder / "steps.jsonl").read_bytes())
    assert_same_steps(again.steps, imported.steps)
    assert again.steps["upload_order"].to_pylist() == imported.steps["upload_order"].to_pylist()
    flat = read_source("steps.parquet", as_parquet(imported.steps))
    assert_same_steps(flat.steps, imported.steps)


def test_real_conversations_survive_a_round_trip(airline: Imported, tmp_path: Path) -> None:
    write_jsonl(airline.steps, tmp_path / "steps.jsonl")
    assert_same_steps(read_source("f", (tmp_path / "steps.jsonl").read_bytes()).steps, airline.steps)
    assert_same_steps(read_source("f", as_parquet(airline.steps)).steps, airline.steps)


def test_a_parquet_file_needs_only_some_columns() -> None:
    table = pa.table({"episode_id": ["e", "e"], "t": [1.0, 0.0], "action": ["b", "a"], "reward": [math.nan, None]})
    imported = read_source("f.parquet", as_parquet(table))
    assert imported.steps["action"].to_pylist() == ["a", "b"]
    assert imported.steps["reward"].to_pylist() == [None, None]
    assert problems(imported)[0][:3] == (1, "reward", "reward is not a number")
    with pytest.raises(TraceFormatError, match="holds no record"):
        read_source("f.parquet", as_parquet(table.slice(0, 0)))


TEXT = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["5", "null", '"s"', "{", "Ж🚗", "\x00"])

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5)
WELL_FORMED = st.fixed_dictionaries(
    {
        "episode_id": st.sampled_from(["a", "ж", "🚗"]),
        "t": st.integers(-3, 30),
        "action": TEXT.filter(bool)
        | st.fixed_dictionaries(
            {"type": st.sampled_from(["tool_call", "message", "handoff"])},
            optional={
                "tool": TEXT,
                "name": TEXT,
                "arguments": JSON,
                "thought": JSON,
                "call_index": st.integers(0, 3),
            },
        ),
    },
    optional={
        "task": TEXT,
        "state": JSON,
        "state_text": TEXT,
        "observation": st.fixed_dictionaries({}, optional={"tool_result": JSON, "error": TEXT, "code": JSON}),
        "reward": NUMBER,
        "done": st.booleans(),
        "terminal": st.none() | st.booleans(),
        "timeout": st.none() | st.booleans(),
        "reward_components": JSON,
        "action_logprobs": JSON,
        "split": TEXT,
        "surprise": JSON,
        "metadata": JSON
        | st.fixed_dictionaries(
            {},
            optional={
                "temperature": NUMBER,
                "safety_flags": JSON,
                "behavior_policy": TEXT,
                "extra": JSON,
                "x": JSON,
            },
        ),
    },
)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(st.lists(WELL_FORMED, min_size=1, max_size=6))
def test_any_well_formed_steps_survive_a_round_trip(tmp_path_factory: Any, records: list[dict[str, Any]]) -> None:
    imported = read_source("f", lines(*copy.deepcopy(records)), format="trace_schema")
    assert_nothing_lost(imported)
    assert_round_trip(imported, tmp_path_factory.mktemp("round"))


LOOSE = st.dictionaries(
    st.sampled_from([*COLUMN_NAMES, "messages", "role", "content", "tool_calls", "traj", "info", "id", "done", "x"]),
    JSON,
)
MESSAGE = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "function_call", "tool_call_id", "error"]),
    st.sampled_from(["assistant", "tool", "user", [{"function": {"name": "f", "arguments": "{"}}], {"name": 1}]) | JSON,
)
CHAT = st.fixed_dictionaries({"messages": st.lists(MESSAGE, max_size=5)}, optional={"tools": JSON, "reward": JSON})


@QUICK
@given(
    st.lists(JSON | LOOSE | CHAT | WELL_FORMED | st.lists(MESSAGE), max_size=6),
    st.sampled_from([None, *IMPORTERS]),
)
def test_any_json_is_read_or_refused_and_nothing_is_lost(records: list[Any], format: str | None) -> None:
    for data in (lines(*records), json.dumps(records).encode()):
        try:
            imported = read_source("f", data, format=format)
        except TraceFormatError:
            continue
        if not any("single messages" in note for note in imported.report.notes):
            assert_nothing_lost(imported)


@QUICK
@given(st.binary(max_size=60) | st.text('[]{}",:1 \nnul', max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for prefix in (b"", b"PAR1", b"\x1f\x8b\x08", b"\xff\xfe", b'{"episode_id":"e","t":0,"action":"x"}\n'):
        with contextlib.suppress(TraceFormatError):
            read_source("f", prefix + data)


def test_logs_of_other_steps_have_other_fingerprints():
    files = {name: orl.IMPORTERS["react_text"].example for name in ("a.txt", "b.txt")}
    a, b = (orl.read_traces(contents=[file]) for file in files.items())
    assert (a.fingerprint == b.fingerprint) == a.columns("episode_id").equals(b.columns("episode_id"))
    assert a.fingerprint == orl.read_traces(contents=[("a.txt", files["a.txt"])]).fingerprint


@pytest.mark.parametrize("n_cut", [1, 2])
def test_cut_last_lines_of_a_large_file_are_counted_once(n_cut):
    step = {"episode_id": "e", "action": "a", "tool_result": "x" * 4000}
    lines = [json.dumps({**step, "t": t}) for t in range(100)]
    lines[-n_cut:] = [line[:-20] for line in lines[-n_cut:]]
    report = read_source("f", "\n".join(lines).encode()).report
    assert (report.n_records, report.n_steps, report.counts()) == (100, 100 - n_cut, {"not JSON": n_cut})


@pytest.mark.parametrize("arguments", ['"\\ud83d"', '{"a": "\\ud83d"}', '{"a": 1'])
def test_arguments_have_one_hash_in_small_files_and_large_ones(arguments):
    step = {"episode_id": "e", "action": "a", "arguments": arguments, "tool_result": "x" * 4000}
    small, large = (
        read_source("f", "\n".join(json.dumps({**step, "t": t}) for t in range(n)).encode()).steps for n in (1, 300)
    )
    assert large["arguments_hash"][299] == small["arguments_hash"][0]


def test_a_cut_call_of_toolbench_with_a_line_break_is_kept():
    call = "{'name': 'search', 'arguments': '{\n \"q\": 1}', 'response': 'cut"
    chain = {"role": "user", "message": "do it", "next": [{"role": "tool", "message": call, "next": []}]}
    answer = {"method": "CoT", "total_steps": 1, "final_answer": "x", "answer_details": [chain]}
    record = {"q1": {"query": "do it", "available_tools": [], "answer": answer}}
    assert read_source("f", json.dumps(record).encode()).report.n_steps == 1
