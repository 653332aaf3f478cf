"""A log written as JSON lines or Parquet and read again is the same log, but for where its steps were read from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.exports import MAX_FILES, exported, kept_log, redacted_log
from offrl_core.log import Log
from offrl_core.rewards import RuleRewards, with_rewards
from offrl_core.schema import COLUMN_NAMES, LARGEST_REWARD, canonical_json
from tests.core.helpers import few_examples, make_log
from tests.traces import TRACES

FORMATS = ("jsonl", "parquet")
PROVENANCE = ("source_file", "record")
COMPARED = [name for name in COLUMN_NAMES if name not in PROVENANCE]
MAX_BYTES = 1_000_000  # of a real file; larger ones say nothing new here
REAL = (
    sorted(path for path in TRACES.rglob("*") if path.is_file() and path.stat().st_size < MAX_BYTES)
    if TRACES.exists()
    else []
)


def rows_of(log: Log) -> list[dict[str, Any]]:
    return log.columns(*COMPARED).to_pylist()


def read_back(log: Log, format: str, directory: Path) -> Log:
    return orl.read_traces(exported(log, format, directory))


def assert_same(log: Log, other: Log) -> None:
    for mine, theirs in zip(rows_of(log), rows_of(other), strict=True):
        assert mine == theirs


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_files_survive(path, format, tmp_path):
    try:
        log = orl.read_traces(path)
    except orl.OffRLError:
        pytest.skip("holds no step")
    back = read_back(log, format, tmp_path)
    assert_same(log, back)
    assert back.report.format == "trace_schema"
    assert not back.report.n_lost


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("spec", orl.IMPORTERS.values(), ids=lambda spec: spec.name)
def test_examples_of_all_formats_survive(spec, format, tmp_path):
    log = orl.read_traces(contents=[(spec.example_name, spec.example)])
    assert_same(log, read_back(log, format, tmp_path))


@pytest.mark.parametrize("format", FORMATS)
def test_a_log_with_rewards_survives_redacted_or_not(format, tmp_path):
    spec = orl.IMPORTERS["openai_chat"]
    log = with_rewards(orl.read_traces(contents=[("x.jsonl", spec.example)]), RuleRewards(rule="no_error"))
    assert_same(log, read_back(log, format, tmp_path))
    clean, _ = redacted_log(log)
    assert_same(clean, read_back(clean, format, tmp_path))


@pytest.mark.parametrize("format", FORMATS)
def test_a_world_s_log_survives_as_an_imported_one(format, tmp_path):
    log = orl.collect("calculator", n_episodes=20)
    back = read_back(log, format, tmp_path)
    assert_same(log, back)
    assert back.source is None


def test_what_edits_leave_is_what_is_taken_away(tmp_path):
    log = orl.collect("calculator", n_episodes=50)
    dataset = orl.frame(log, edits=[orl.DropAction("mul", how="episodes")])
    back = read_back(kept_log(dataset), "parquet", tmp_path)
    assert back.n_steps == dataset.n_transitions < log.n_steps
    assert back.rows("SELECT count(*) FROM steps WHERE action = 'mul'") == [(0,)]
    assert set(back.distinct_values("episode_id")) < set(log.distinct_values("episode_id"))


texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**20), 10**20)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
json_texts = st.none() | values.map(canonical_json)
objects = st.none() | st.dictionaries(texts, values, min_size=1, max_size=3).map(canonical_json)
maybe = st.none() | texts
reals = st.none() | st.floats(allow_nan=False, allow_infinity=False)
rewards = st.none() | st.floats(-LARGEST_REWARD, LARGEST_REWARD)


@st.composite
def logs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Steps in any order; inner ones say that they don't end their episode."""
    rows: list[dict[str, Any]] = []
    ids = draw(st.lists(texts.filter(str.strip), min_size=1, max_size=3, unique=True))
    for episode_id in ids:
        n = draw(st.integers(1, 3))
        terminal, timeout = draw(st.sampled_from([(True, False), (False, True), (None, None), (False, None)]))
        for t in range(n):
            arguments = draw(json_texts)
            rows.append(
                {
                    "episode_id": episode_id,
                    "t": 2 * t,
                    "action": draw(texts.filter(bool)),
                    "task": draw(maybe),
                    "state": draw(json_texts),
                    "state_text": draw(maybe),
                    "available_tools": draw(st.none() | st.lists(texts.filter(bool), max_size=3)),
                    "action_type": draw(maybe.filter(lambda x: x != "")),
                    "tool": draw(maybe.filter(lambda x: x != "")),
                    "arguments": arguments,
                    "arguments_raw": draw(maybe),
                    "arguments_status": draw(st.none() | st.sampled_from(["object", "malformed", "absent"])),
                    "decision_id": draw(maybe),
                    "call_index": draw(st.none() | st.integers(0, 2**31 - 1)),
                    "tool_result": draw(maybe),
                    "error": draw(maybe.filter(lambda x: x != "")),
                    "reward": draw(rewards),
                    "terminal": terminal if t == n - 1 else False,
                    "timeout": timeout if t == n - 1 else False,
                    "reward_components": draw(json_texts),
                    "reward_source": draw(maybe),
                    "behavior_policy": draw(maybe),
                    "temperature": draw(reals),
                    "latency_ms": draw(reals),
                    "safety_flags": draw(json_texts),
                    "metadata": draw(objects),
                }
            )
    return list(draw(st.permutations(rows)))  # files mix their episodes; the upload order survives


@pytest.mark.parametrize("format", FORMATS)
@given(rows=logs())
@few_examples
def test_odd_logs_survive(format, tmp_path_factory, rows):
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    log = orl.read_traces(contents=[("odd.jsonl", data)])  # as every log of the app comes from an importer
    assert_same(log, read_back(log, format, tmp_path_factory.mktemp("export")))


# -- files ------------------------------------------------------------------------------------------------------


def test_a_file_is_written_once_and_old_ones_go(tmp_path, monkeypatch):
    log = make_log([{"episode_id": "a", "t": 0, "action": "go"}])
    path = exported(log, "jsonl", tmp_path)
    monkeypatch.setattr(Log, "write_jsonl", None)
    assert exported(log, "jsonl", tmp_path) == path
    for i in range(MAX_FILES + 3):
        exported(make_log([{"episode_id": f"a{i}", "t": 0, "action": "go"}]), "parquet", tmp_path)
    assert len(list(tmp_path.iterdir())) == MAX_FILES
    assert not path.exists()


def test_no_half_file_is_left_behind(tmp_path, monkeypatch):
    from offrl_core import exports

    def fail(log: Log, path: Path) -> None:
        path.write_text("half", encoding="utf-8")
        raise OSError("disk full")

    monkeypatch.setitem(exports.WRITERS, "jsonl", fail)
    with pytest.raises(OSError, match="disk full"):
        exported(make_log([{"episode_id": "a", "t": 0, "action": "go"}]), "jsonl", tmp_path)
    assert not list(tmp_path.iterdir())
