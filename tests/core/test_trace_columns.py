"""Reading the trace schema by columns gives what reading it record by record gives: steps, raw texts, problems, notes."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from offrl_core import log
from offrl_core.errors import TraceFormatError
from offrl_core.importers import engine, json_leaves, read_source, step_parts, trace_cells, trace_columns, trace_parquet
from offrl_core.importers.raw_text import FileText, RawRecords
from offrl_core.importers.trace_schema import write_jsonl
from offrl_core.log import read_traces
from offrl_core.schema import canonical_json, short_hash

from .test_importers import as_parquet, shared_trace

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a failure is told at once: making it smaller takes minutes


def outcome(data: bytes, monkeypatch: pytest.MonkeyPatch, few_bytes: int) -> dict[str, Any]:
    """Everything that an import says."""
    monkeypatch.setattr(engine, "_FEW_BYTES", few_bytes)
    try:
        imported = read_source("f.jsonl", data, format="trace_schema")
    except TraceFormatError as error:
        return {"error": str(error)}
    report = asdict(imported.report) | {"tally": dict(imported.report.tally)}
    report["problems"].sort(key=lambda p: (p["record"] or 0, p["kind"], p["field"] or ""))
    steps = imported.steps if isinstance(imported.steps, pa.Table) else imported.steps.read()
    return {"steps": steps.to_pylist(), "records": imported.records.to_pylist(), "report": report}


def assert_same(data: bytes, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    by_record = outcome(data, monkeypatch, 10**12)
    by_column = outcome(data, monkeypatch, 0)
    if "steps" in by_record and "steps" in by_column:
        for ours, theirs in zip(by_column["steps"], by_record["steps"], strict=True):
            assert ours == theirs
    assert by_column == by_record
    return by_record


@pytest.fixture(autouse=True)
def no_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let columns see all records: else the first 200, which recognition looks at, are read one by one."""
    look = engine.Source.look
    monkeypatch.setattr(engine.Source, "look", lambda self, report, keep: look(self, type(report)(), keep=False))


TEXTS = [
    "5",
    '"s"',
    "{",
    "[1,]",
    '{"b": 1, "a": [1.0, 1e-7]}',
    "Ж🚗",
    "\x00",
    "a\\b",
    'q"q',
    "",
    " ",
    "true",
    "NaN",
    "x:1e5",
]
TEXT = st.sampled_from(TEXTS) | st.text(st.characters(codec="utf-8"), max_size=6)
NUMBER = st.sampled_from(
    [0, 1, -1, 0.5, 1e16, 1e-7, 0.00001, -0.0, 10**19, 10**400, 123456789012345680.0, math.nan, math.inf]
) | (st.integers(-9, 9) | st.floats())
JSON = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
NAMES = st.lists(st.sampled_from(["f", "g", "h"]), max_size=3)
FLAG = st.none() | st.booleans()
ARGUMENTS = st.dictionaries(st.sampled_from(["b", "a", "é", "x y"]), JSON, max_size=3)
REGULAR = st.fixed_dictionaries(
    {
        "episode_id": st.sampled_from(["a", "b", "ж", 7]),
        "t": st.integers(0, 4),
        "action": st.sampled_from(["go", "stop"])
        | st.fixed_dictionaries(
            {"type": st.sampled_from(["tool_call", "message"]), "tool": st.sampled_from(["f", "g"]), "arguments": ARGUMENTS},
            optional={"name": TEXT, "thought": JSON, "decision_id": TEXT, "call_index": st.integers(0, 3)},
        ),
    },
    optional={
        "task": st.sampled_from(["one", "two"]),
        "state": st.fixed_dictionaries(
            {"user_goal": TEXT, "memory": JSON}, optional={"available_tools": NAMES, "state_text": JSON, "key": JSON}
        ),
        "observation": st.fixed_dictionaries({"tool_result": JSON, "error": st.none() | TEXT}, optional={"code": JSON}),
        "reward": st.none() | st.floats(-1, 1),
        "done": FLAG,
        "terminal": FLAG,
        "timeout": FLAG,
        "metadata": st.fixed_dictionaries(
            {"behavior_policy": TEXT, "temperature": st.floats(0, 1)}, optional={"safety_flags": JSON, "seed": JSON}
        ),
        "surprise": JSON,
    },
)  # fmt: skip
ODD_FIELDS = st.dictionaries(
    st.sampled_from(
        "episode_id t action task state state_text available_tools action_type tool arguments arguments_raw arguments_status "
        "arguments_hash decision_id call_index tool_result error reward terminal timeout end_reason action_logprob "
        "action_logprobs split behavior_policy temperature latency_ms safety_flags metadata source_file record upload_order "
        "observation done surprise Task".split()
    ),
    JSON
    | NAMES
    | st.sampled_from(["object", "absent", {}, [], {"extra": 1}, {"temperature": 1, "x": {"b": 1, "a": 2}}]),
    max_size=4,
)
ODD = st.builds(lambda regular, odd: regular | odd, REGULAR, ODD_FIELDS)
STEP = '{"episode_id": "a", "t": 3, "action": "x"'
ODD_LINES = [
    *("", " ", "\x00", "{", "{}", STEP + ",}", STEP + "} ", STEP + ', "t": 9}', STEP + ', "state": {"k": nan}}'),
    *(
        STEP + ', "reward": nan}',
        STEP.replace("x", "\t") + "}\r",
        STEP + ', "task": "\\u001f\\u00e9"}',
        "  " + STEP + "}",
    ),
    *(STEP + ', "task": "\\ud83d"}', STEP + ', "state": {"s": "\\u001f", "n": 1E400}}', "\ufeff" + STEP + "}"),
    STEP + ', "metadata": {"a": 1, "a": 2}}',
]
LINE = st.builds(
    lambda record, spaces, escaped: json.dumps(
        record, separators=(", ", ": ") if spaces else (",", ":"), ensure_ascii=escaped
    ),
    REGULAR | ODD | JSON,
    st.booleans(),
    st.booleans(),
) | st.sampled_from(ODD_LINES)
MANY = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)


@MANY
@given(st.lists(LINE, max_size=12), st.booleans(), st.sampled_from([64, 2**24]), st.sampled_from([0, 128]))
def test_columns_and_records_give_the_same(lines: list[str], closed: bool, chunk: int, few: int) -> None:
    data = ("\n".join(lines) + ("\n" if closed else "")).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(trace_columns, "_CHUNK", chunk)
        monkeypatch.setattr(trace_cells, "_FEW", few)
        assert_same(data, monkeypatch)


# -- what else holds -----------------------------------------------------------------------------------------


def record(episode: str, t: int, **fields: Any) -> dict[str, Any]:
    return {
        "episode_id": episode, "t": t, "task": "add", "state": {"goal": f"{episode} {t}", "available_tools": ["f", "g"]},
        "action": {"type": "tool_call", "tool": "f", "arguments": {"n": t, "a": {"y": 1, "x": episode}}},
        "observation": {"tool_result": f"r{t}", "error": None}, "reward": t / 7, "metadata": {"latency_ms": t + 0.5, "seed": t},
    } | fields  # fmt: skip


def as_lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in records).encode()


def interleaved_log(n: int = 3000) -> bytes:
    """Many episodes at once, out of order, with duplicates, gaps, early endings and a few bad lines."""
    rng = random.Random(5)
    records = [record(f"e{rng.randrange(200)}", rng.randrange(40), done=rng.random() < 0.05) for _ in range(n)]
    for i in range(0, n, 97):
        records[i] |= {"reward": "high", "surprise": [i]}
    lines = as_lines(records).splitlines(keepends=True)
    for i in range(50, n, 500):
        lines[i] = lines[i][:40] + b"\n"
    return b"".join(lines)


@pytest.mark.parametrize("chunk", [100_000, 2**24])
def test_interleaved_episodes_with_duplicates_and_bad_lines(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_columns, "_CHUNK", chunk)
    found = assert_same(interleaved_log(), monkeypatch)
    kinds = found["report"]["tally"]
    assert {"duplicate step", "not JSON", "end inside an episode", "steps out of order", "gaps between steps"} <= set(
        kinds
    )
    assert len(found["steps"]) + found["report"]["n_steps_quarantined"] + kinds["not JSON"] == 3000


def test_nearly_all_records_of_a_regular_log_are_read_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    by_record: list[int] = []
    read_row = trace_columns.trace_schema.read_row
    monkeypatch.setattr(
        trace_columns.trace_schema,
        "read_row",
        lambda record, report: by_record.append(record.number) or read_row(record, report),
    )
    data = as_lines([record(f"e{i // 8}", i % 8, **({"reward": "high"} if i == 700 else {})) for i in range(2000)])
    monkeypatch.setattr(engine, "_FEW_BYTES", 0)
    assert read_source("f", data).steps.num_rows == 2000
    assert by_record == [701]


def test_a_log_too_large_for_memory_waits_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = as_lines([record(f"e{i // 8}", i % 8, terminal=i % 8 == 7) for i in range(4000)])
    path = tmp_path / "large.jsonl"
    path.write_bytes(data)
    expected = read_traces(path)
    monkeypatch.setattr(step_parts, "KEPT_BYTES", 2**16)
    monkeypatch.setattr(trace_columns, "_CHUNK", 2**16)
    monkeypatch.setattr(log, "LARGE_FILE", 0)
    found = read_traces(path)
    assert isinstance(found._steps, parquet.ParquetFile)
    assert found.columns("action", "state").equals(expected.columns("action", "state"))
    assert found.rows("FROM steps ORDER BY row") == expected.rows("FROM steps ORDER BY row")
    assert found.fingerprint == expected.fingerprint
    assert found.raw_record("large.jsonl", 3000) == data.splitlines()[2999].decode()
    path.write_bytes(b"something else")
    assert found.raw_record("large.jsonl", 3000) is None


@pytest.mark.parametrize("content", [b"\xff not text", b'{"messages": []}\n' * 9, b"PK\x03\x04"])
def test_a_large_file_of_another_kind_is_read_as_a_small_one(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(content)
    sentences = []
    for size in (10**9, 0):
        monkeypatch.setattr(log, "LARGE_FILE", size)
        with pytest.raises(TraceFormatError) as caught:
            read_traces(tmp_path / "f")
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]


@pytest.mark.parametrize("rows_at_a_time", [100, 2**13])
def test_parquet_by_columns(rows_at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_parquet, "_ROWS", rows_at_a_time)
    steps = read_source("f", interleaved_log(500), format="trace_schema").steps
    assert_same(as_parquet(steps), monkeypatch)
    odd = {
        "episode_id": ["a", None, "a"],
        "t": [1.0, 2.0, 0.0],
        "action": ["x", "y", ""],
        "reward": [math.nan, 1.0, 2.0],
    }
    assert_same(as_parquet(pa.table(odd)), monkeypatch)
    assert_same(as_parquet(pa.table(odd | {"extra": [{"k": 1}, None, {"k": 2}], "Action": [1, 2, 3]})), monkeypatch)


def test_the_reference_file_reads_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same(shared_trace("trace_schema/tau_airline_tasks0-2_mapped.jsonl").read_bytes(), monkeypatch)


def test_what_is_exported_reads_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = read_source("f", interleaved_log(800), format="trace_schema").steps
    write_jsonl(steps, tmp_path / "f")
    found = assert_same((tmp_path / "f").read_bytes(), monkeypatch)
    assert [row["arguments_hash"] for row in found["steps"]] == steps["arguments_hash"].to_pylist()


@pytest.mark.parametrize("value", [{"b": [1, {"z": 1, "a": "é"}], "a": None}, {"ж": 0.1, "z": 1.5e3}, []])
def test_canonical_text_and_hash_are_those_of_python(value: Any) -> None:
    cursor = json_leaves.connection()
    column = pa.array([json.dumps(value, ensure_ascii=False)])
    text = json_leaves.canonical(cursor, column)
    assert text.to_pylist() == [canonical_json(value)]
    assert json_leaves.hashes_of(cursor, text).to_pylist() == [short_hash(canonical_json(value))]


def test_raw_texts_are_found_by_file_and_number() -> None:
    records = RawRecords()
    records.add_texts({("b", 2): "two", ("b", 7): "seven", ("a", 2): "other"})
    text = FileText("один\ndva\n".encode())
    records.add_lines("c", text, np.array([1, 2]), np.array([0, 9]), np.array([8, 3]))
    assert [records.find(*key) for key in (("b", 7), ("a", 2), ("c", 1), ("c", 2), ("c", 3), ("x", 2))] == [
        "seven", "other", "один", "dva", None, None,
    ]  # fmt: skip
    assert records.offset_of("c", 2) == 9
    records.drop([("b", 7)])
    assert (records.find("b", 7), len(records)) == (None, 4)
    assert records.table()["raw"].to_pylist() == ["other", "two", "один", "dva"]
