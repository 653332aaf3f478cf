"""Step tables: CSV text, guesses of what fields mean, layouts, odd numbers and cells, bandits, LeRobot; nothing lost."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from pyarrow import parquet

from offrl_core.errors import InvalidConfig, TraceFormatError
from offrl_core.importers import IMPORTERS, Imported, bandit, first_values, read_source, read_sources
from offrl_core.importers.csv_rows import looks_like_csv
from offrl_core.importers.discretize import main_directions, quantile_bins
from offrl_core.importers.records import read_records
from offrl_core.importers.report import ImportReport
from offrl_core.importers.step_guess import guess_mapping
from offrl_core.importers.step_leaks import NEVER_IN_A_STATE, leaks_in, without_leaks
from offrl_core.importers.step_mapping import StepMapping, fingerprint
from offrl_core.importers.step_table import preview
from tests.traces import shared_trace


def lines(*records: Any) -> bytes:
    return "\n".join(json.dumps(record) for record in records).encode()


def rows(imported: Imported) -> list[dict[str, Any]]:
    return list(imported.steps.to_pylist())


def real(name: str, **options: Any) -> Imported:
    return read_source(name, shared_trace(name).read_bytes(), **options)


def of(imported: Imported, *columns: str) -> list[Any]:
    found = [tuple(row[column] for column in columns) for row in rows(imported)]
    return [values[0] for values in found] if len(columns) == 1 else found


def assert_nothing_lost(imported: Imported) -> None:
    """Every record gave a step or a problem that says that it was set aside."""
    read = set(zip(imported.records["source_file"].to_pylist(), imported.records["record"].to_pylist(), strict=True))
    lost = {(p.file, p.record) for p in imported.report.problems if p.lost and p.record is not None}
    assert len(read | lost) == imported.report.n_records


def step(episode: Any = "e", t: Any = 0, action: Any = "go", **fields: Any) -> dict[str, Any]:
    return {"episode": episode, "step": t, "action": action, "state": "s", "reward": 0} | fields


# -- CSV -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Well, that is that.\nSo, they went home.",
        "Thought: I look, then I go\nAction: look, now\nObservation: a door, shut",
        "2024-01-01 10:00:00,123 INFO start, a\n2024-01-01 10:00:01,200 INFO stop, b",
        "INFO | main | start\nINFO | main | stop",
        "Yes, sir\nOf course, madam",
        "Yes,sir\nand then nothing came after it",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        '{"a": 1, "b": 2}\n{"a": 3, "b": 4}',
        "episode,step,action",
        "1,2,3\n4,5,6",
        "",
    ],
)
def test_prose_logs_and_json_are_no_tables(text: str) -> None:
    assert not looks_like_csv(text)


@pytest.mark.parametrize("values", [("pass", "fail"), ("1", "nan"), ("n/a", ""), ("C", "I"), ("0.5", "error")])
def test_two_columns_are_a_table_whatever_the_second_one_holds(values: tuple[str, ...]) -> None:
    assert looks_like_csv("task,verdict\n" + "".join(f"task {i},{value}\n" for i, value in enumerate(values)))


@pytest.mark.parametrize(
    "name", ["<b>score</b>", "![x](http://example.org/a.png)", "'; DROP TABLE steps;--", "$cost", "🚀", "what?", "=1+1"]
)
def test_odd_names_of_columns_are_names(name: str) -> None:
    assert looks_like_csv(f"id,{name},reward\na,x,0.5\nb,y,1\n")
    assert not looks_like_csv(f"id,{name},reward\na,x\nb,y,1\n")  # not without doubt
    assert not looks_like_csv(f"Well, {name}\nSo, they went home.\nThen, nothing.")


@pytest.mark.parametrize("between", ["a remark", None, 3, []])
def test_steps_in_a_list_are_found_though_other_things_stand_between_them(between: Any) -> None:
    steps = [{"act": {"name": "look"}}, between, {"act": {"name": "go", "to": "hall"}}]
    for record in ({"history": steps}, {"episodes": [between, {"steps": steps}, {"steps": steps}]}):
        imported = read_source("f", json.dumps(record).encode())
        n = 1 if "history" in record else 2
        assert imported.report.format == "step_table"
        assert imported.steps["action"].to_pylist() == ["look", "go"] * n
        assert (imported.report.n_steps_quarantined, imported.report.counts()["no action"]) == (n, n)


def test_no_real_text_but_csv_is_taken_for_a_table() -> None:
    root = shared_trace("damaged").parent
    taken = {path.name for path in root.rglob("*") if path.is_file() and _is_csv(path)}
    assert taken == {path.name for path in root.rglob("*.csv")}


def _is_csv(path: Path) -> bool:
    try:
        return looks_like_csv(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_separators_encodings_quotes_and_line_ends(separator: str, encoding: str) -> None:
    table = [["", "episode", "step", "action", "output"], ["0", "e", "0", 'say "hi"', f"two\r\nlines{separator} one"]]
    table.append(["1", "e", "1", "идти", ""])
    written = io.StringIO()
    csv.writer(written, delimiter=separator).writerows(table)
    imported = read_source("f", written.getvalue().encode(encoding))
    assert of(imported, "t", "action", "tool_result") == [
        (0, 'say "hi"', f"two\r\nlines{separator} one"),
        (1, "идти", None),
    ]
    assert of(imported, "record") == [2, 4]  # line numbers: the first row has two lines
    assert imported.report.problems == []
    assert imported.records["raw"].to_pylist()[0].startswith(f"0{separator}e{separator}0")
    assert json.loads(rows(imported)[0]["metadata"]) == {"extra": {"Unnamed: 0": "0"}}


def test_a_row_that_does_not_fit_costs_that_row_only() -> None:
    text = 'episode,step,action\ne,0,a\ne,1\ne,2,"open\ne,3,d\ne,4,e,,\ne,5,f,g\nepisode,step,action\ne,6,g\n'
    text += "".join(f"e,{t},go\n" for t in range(10, 30))
    imported = read_source("f.csv", text.encode())
    assert of(imported, "t", "action")[:5] == [(0, "a"), (2, "open"), (3, "d"), (4, "e"), (6, "g")]
    assert [(p.record, p.kind) for p in imported.report.problems if p.lost] == [
        (3, "wrong number of cells"),
        (7, "wrong number of cells"),
    ]
    assert_nothing_lost(imported)


def test_thousands_and_points_are_no_decimal_commas() -> None:
    text = "episode;step;action;price;x\ne;0;a;{};{}\ne;1;b;2,345;2,5\n"
    assert guess_texts(text.format("1,234", "1,5")) == ["1.234", "1.5"]
    assert guess_texts(text.format("1,234", "1.5")) == ["1,234", "1.5"]


def guess_texts(text: str) -> list[str]:
    first = next(read_records("f", text.encode(), ImportReport()))
    return [first.value["price"], first.value["x"]]


# -- real files ----------------------------------------------------------------------------------------------


def test_acrobot_csv() -> None:
    imported = real("tabular_rollouts/acrobot_rollouts.csv")
    with shared_trace("tabular_rollouts/acrobot_rollouts.csv").open() as file:
        expected = list(csv.DictReader(file))
    assert imported.report.sentence() == "Read 3,000 of 3,000 rows: 3,000 steps in 6 episodes; no problems."
    found = rows(imported)
    assert [(row["episode_id"], row["t"], row["action"], row["reward"]) for row in found] == [
        (row["episode"], int(row["step"]), row["action"], float(row["reward"])) for row in expected
    ]
    assert [row["timeout"] for row in found] == [row["truncated"] == "True" for row in expected]
    assert [json.loads(row["state"])["obs_5"] for row in found] == [float(row["obs_5"]) for row in expected]
    assert Counter(row["end_reason"] for row in found) == {None: 2994, "truncated": 6}
    assert 50 < len({row["state_text"] for row in found}) < 729
    assert any("3 bins each" in note for note in imported.report.notes)


def test_mountaincar_parquet_has_its_continuous_actions_binned() -> None:
    imported = real("tabular_rollouts/mountaincar_rollouts.parquet")
    expected = parquet.read_table(shared_trace("tabular_rollouts/mountaincar_rollouts.parquet")).to_pylist()
    assert imported.report.sentence() == "Read 641 of 641 rows: 641 steps in 4 episodes; no problems."
    exact = [json.loads(row["arguments"])["value"] for row in rows(imported)]
    assert exact == [row["action"] for row in expected]
    sizes = Counter(of(imported, "action"))
    assert len(sizes) == 8
    assert max(sizes.values()) - min(sizes.values()) <= 1
    for value, name in zip(exact, of(imported, "action"), strict=True):
        low, high = map(float, name.split(" to "))
        assert low - 0.006 <= value <= high + 0.006  # names are rounded
    assert Counter(of(imported, "end_reason")) == {None: 637, "terminated": 4}


def test_a_european_csv() -> None:
    imported = real("damaged/semicolon_decimal_comma.csv")
    assert of(imported, "episode_id", "t", "action", "reward", "state_text", "end_reason") == [
        ("0", 0, "1", 1.5, "0.12", None),
        ("0", 1, "0", -2.25, "0.13", "terminated"),
        ("1", 0, "1", 0.0, "0.4", "unknown"),
    ]
    assert any("decimal comma" in note for note in imported.report.notes)
    assert any('bare "done"' in note for note in imported.report.notes)


def test_open_bandit_csv_with_its_side_table() -> None:
    names = ["obp_bandit/random_men_2500rows.csv", "obp_bandit/random_men_item_context.csv"]
    imported = read_sources([(name, shared_trace(name).read_bytes()) for name in names])
    with shared_trace(names[0]).open() as file:
        expected = list(csv.DictReader(file))
    assert (imported.report.format, imported.report.n_steps, imported.report.n_episodes) == ("bandit", 2500, 2500)
    assert imported.report.problems == []
    assert of(imported, "action") == [row["item_id"] for row in expected]
    assert of(imported, "reward") == [float(row["click"]) for row in expected]
    assert sum(of(imported, "reward")) == 13
    assert {round(math.exp(logprob) * 34, 9) for logprob in of(imported, "action_logprob")} == {1.0}
    states = [json.loads(state) for state in of(imported, "state")]
    assert [state["position"] for state in states] == [int(row["position"]) for row in expected]
    features = {tuple(row[f"user_feature_{i}"] for i in range(4)) for row in expected}
    assert len(set(of(imported, "state_text"))) == len(features)
    assert any(note.startswith("No step comes from 34 records about items") for note in imported.report.notes)


def test_the_position_can_be_part_of_a_bandit_action() -> None:
    report = ImportReport()
    records = read_records("f", shared_trace("obp_bandit/random_men_2500rows.csv").read_bytes(), report)
    gathered = bandit.read(records, report, with_position=True)
    assert gathered.rows[0]["action"] == "14@3"
    assert len({row["action"] for row in gathered.rows}) == 34 * 3


def test_lerobot_with_the_files_beside_it() -> None:
    root = shared_trace("lerobot_v2/g1")
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    imported = read_sources([(str(path.relative_to(root)), path.read_bytes()) for path in paths])
    frames = [row for path in paths if path.suffix == ".parquet" for row in parquet.read_table(path).to_pylist()]
    assert (imported.report.format, imported.report.n_steps, imported.report.n_episodes) == ("lerobot", len(frames), 2)
    assert imported.report.problems == []
    assert of(imported, "episode_id", "t") == [(str(row["episode_index"]), row["frame_index"]) for row in frames]
    assert set(of(imported, "task")) == {"Pick up the yellow bottle on the table."}
    assert [json.loads(text)["value"] for text in of(imported, "arguments")] == [row["action"] for row in frames]
    assert imported.steps["reward"].null_count == len(frames)
    assert set(of(imported, "end_reason")) == {None, "unknown"}
    assert 10 < len(set(of(imported, "state_text"))) <= 125
    notes = " ".join(imported.report.notes)
    assert "100 episodes; here: 2" in notes
    assert "no rewards" in notes


def test_lerobot_v3_with_statistics_that_have_the_columns_of_a_frame() -> None:
    def packed(*rows: dict[str, Any]) -> bytes:
        buffer = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(list(rows)), buffer)
        return buffer.getvalue()

    frames = [
        {"action": [0.5], "observation.state": [0.1 * t], "frame_index": t, "episode_index": e, "task_index": 0}
        for e in range(2) for t in range(3)
    ]  # fmt: skip
    episodes = [{"episode_index": e, "tasks": ["pick"], "length": 3} for e in range(2)]
    statistics = {column: {"min": [0], "max": [2], "mean": [1.0], "count": [6]} for column in frames[0]}
    imported = read_sources([
        ("data/chunk-000/file-000.parquet", packed(*frames)),
        ("meta/episodes/chunk-000/file-000.parquet", packed(*episodes)),
        ("meta/tasks.parquet", packed({"task_index": 0, "__index_level_0__": "pick"})),
        ("meta/info.json", json.dumps({"codebase_version": "v3.0", "total_episodes": 2}).encode()),
        ("meta/stats.json", json.dumps(statistics).encode()),
    ])  # fmt: skip
    assert imported.report.sentence() == "Read 6 of 6 frames: 6 steps in 2 episodes; no problems."
    assert set(of(imported, "task")) == {"pick"}


@pytest.mark.parametrize("name", ["Algorithm-Generated_1", "Algorithm-Generated_12", "Hand-Crafted_1"])
def test_who_and_when(name: str) -> None:
    path = f"generic_jsonl/whoandwhen_{name}.json"
    raw = json.loads(shared_trace(path).read_text())
    imported = real(path)
    speakers = [item.get("name", item["role"]) for item in raw["history"]]
    acting = [s for s in speakers if s not in ("Computer_terminal", "human") and "(thought)" not in s]
    assert (imported.report.format, imported.report.problems) == ("who_and_when", [])
    found = rows(imported)
    assert [row["behavior_policy"] for row in found] == [s.partition(" (->")[0] for s in acting]
    assert [row["reward"] for row in found] == [None] * (len(found) - 1) + [0.0]
    blamed = [row for row in found if "mistake" in json.loads(row["metadata"] or "{}")]
    assert [row["message_index"] for row in blamed] == [int(raw["mistake_step"])]
    assert sum(row["action"] == "computer_terminal" for row in found) == speakers.count("Computer_terminal")
    assert all(raw["ground_truth"] != row["tool_result"] for row in found)


@pytest.mark.parametrize(
    ("words", "end"),
    [("No agent selected.\nRUN.SH COMPLETE", "terminated"), ("Max rounds (30) reached.\nFINAL ANSWER: 3", "truncated")],
)
def test_why_the_program_stopped_is_no_step_and_a_thought_may_be_blamed(words: str, end: str) -> None:
    history = [
        {"role": "human", "content": "how many?"},
        {"role": "Lead (thought)", "content": "ask"},
        {"role": "Lead (thought)", "content": "the helper"},
        {"role": "Lead (-> Helper)", "content": "count"},
        {"role": "Helper", "content": "4"},
        {"role": "Lead (termination condition)", "content": words},
    ]
    imported = read_source(
        "f",
        json.dumps({"history": history, "mistake_agent": "Lead", "mistake_step": "1", "is_correct": False}).encode(),
    )
    found = rows(imported)
    assert [row["action"] for row in found] == ["hand over to Helper", "message"]
    assert (found[-1]["end_reason"], found[-1]["reward"]) == (end, 0.0)
    assert ["mistake" in json.loads(row["metadata"] or "{}") for row in found] == [True, False]
    assert json.loads(found[0]["state"])["conversation_history"]["messages"] == [0, 1]
    assert imported.report.problems == []


def test_openclaw_telemetry() -> None:
    path = "generic_jsonl/openclaw_crux1-sample-telemetry.jsonl"
    imported = real(path)
    events = [json.loads(line) for line in shared_trace(path).read_text().splitlines()]
    ends = {event["sessionKey"]: event["messages"] for event in events if event["type"] == "agent.end"}
    expected = Counter()
    for session, messages in ends.items():
        for message in (m for m in messages if m["role"] == "assistant"):
            calls = [part for part in message["content"] if part["type"] == "toolCall"]
            expected[session] += max(1, len(calls))
    assert Counter(of(imported, "episode_id")) == expected == {"agent:main:main": 8, max(expected): 2}
    calls = [row for row in rows(imported) if row["action_type"] == "tool_call"]
    assert all(row["tool_result"] is not None for row in calls)
    assert {row["parent_episode"] for row in rows(imported) if row["episode_id"] != "agent:main:main"} == {
        "agent:main:main"
    }
    assert any("5 events" in note for note in imported.report.notes)


def test_a_session_file_of_openclaw_is_the_way_to_its_last_message() -> None:
    def said(name: str, parent: str | None, role: str, *content: Any, **fields: Any) -> dict[str, Any]:
        return {
            "type": "message",
            "id": name,
            "parentId": parent,
            "message": {"role": role, "content": list(content)} | fields,
        }

    def text(words: str) -> dict[str, Any]:
        return {"type": "text", "text": words}

    wanted = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}
    records = [
        {"type": "session", "version": 3, "id": "s1", "cwd": "/w"},
        {"type": "model_change", "id": "0", "parentId": None, "modelId": "m"},
        said("1", "0", "user", text("q")),
        said("2", "1", "assistant", text("taken back"), model="m"),
        said("3", "1", "assistant", {"type": "thinking", "thinking": "hm"}, wanted, model="m"),
        said("4", "3", "toolResult", text("no such file"), toolCallId="c1", toolName="read", isError=True),
        said("5", "4", "assistant", text("done"), model="m"),
    ]
    imported = read_source("f", "\n".join(map(json.dumps, records)).encode())
    assert (imported.report.format, imported.report.problems) == ("openclaw", [])
    assert of(imported, "episode_id", "action", "tool_result", "error", "behavior_policy") == [
        ("s1", "read", "no such file", "no such file", "m"), ("s1", "message", None, None, "m"),
    ]  # fmt: skip
    assert (imported.report.n_records_read, imported.report.n_records) == (7, 7)
    assert any("message left behind by going back 1" in note for note in imported.report.notes)
    oldest = [
        {key: item for key, item in record.items() if key not in ("id", "parentId")}
        for record in records[2:3] + records[4:]
    ]
    imported = read_source("f", "\n".join(map(json.dumps, [records[0], *oldest])).encode())
    assert of(imported, "episode_id", "action", "tool_result") == [
        ("s1", "read", "no such file"),
        ("s1", "message", None),
    ]


def test_records_without_actions_are_messages_where_a_mapping_says_so() -> None:
    path = "generic_jsonl/reflexion_leetcode_py_gpt4.jsonl"
    raw = [json.loads(line) for line in shared_trace(path).read_text().splitlines()]
    with pytest.raises(TraceFormatError, match="is_solved, reflections"):
        real(path)
    imported = real(path, mapping=StepMapping(episode="task_id", arguments="solution", reward="is_solved"))
    assert of(imported, "episode_id", "action") == [(record["task_id"], "message") for record in raw]
    assert sum(of(imported, "reward")) == 2 == sum(record["is_solved"] for record in raw)
    assert [json.loads(text)["text"] for text in of(imported, "arguments")] == [record["solution"] for record in raw]


def test_the_trace_schema_read_as_a_table_gives_the_same_steps() -> None:
    path = "trace_schema/tau_airline_tasks0-2_mapped.jsonl"
    columns = (
        "episode_id",
        "t",
        "action",
        "tool",
        "arguments_hash",
        "tool_result",
        "error",
        "reward",
        "terminal",
        "split",
    )
    assert of(real(path, format="step_table"), *columns) == of(real(path), *columns)


# -- guesses and mappings ------------------------------------------------------------------------------------


def test_a_guess_says_why() -> None:
    values = [{"ep": f"e{i // 3}", "k": 0, "act": "go", "propensity": 0.5, "reward": "high"} for i in range(36)]
    mapping = guess_mapping(values)
    assert mapping == StepMapping(episode="ep", action="act", probability="propensity")
    (why,) = (why for why in mapping.why if why.role == "episode")
    assert why.reason == "`ep` looks like the episode: 12 distinct values, in runs"
    assert why.confidence > 0.9


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"p": 1.5}, {"probability": None}),
        ({"p": 0.5}, {"probability": "p"}),
        ({"logp": -0.7}, {"logprob": "logp"}),
        ({"done": "maybe"}, {"done": None}),
        ({"done": "yes"}, {"done": "done"}),
        ({"status": "running"}, {"done": "status"}),
        ({"status": "404"}, {"done": None}),
        ({"observation": "a door"}, {"result": "observation", "state": ()}),
        ({"observation": [0.1, 0.2]}, {"result": None, "state": ("observation",)}),
        ({"obs_10": 0.5, "obs_2": 0.1, "next_obs_2": 0.3}, {"state": ("obs_2", "obs_10")}),
        ({"info": {"reward": 1}, "args": {"reward": 2}}, {"reward": "info.reward", "arguments": "args"}),
        ({"toolName": "x", "error": "bad"}, {"error": "error"}),
    ],
)
def test_names_and_types_decide(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    mapping = guess_mapping([{"episode": i // 2, "step": i % 2, "action": "go"} | fields for i in range(6)])
    assert {role: getattr(mapping, role) for role in expected} == expected
    assert (mapping.episode, mapping.step, mapping.action) == ("episode", "step", "action")


def test_numbers_without_a_role_are_an_unsure_state() -> None:
    values = [{"patient_id": i // 4, "hour": i % 4, "lactate": i * 0.7, "action": i % 3, "seed": i} for i in range(20)]
    mapping = guess_mapping(values)
    assert mapping.state == ("hour", "lactate")
    assert {why.confidence for why in mapping.why if why.role == "state"} == {0.4}


def own_log(n_episodes: int = 8, length: int = 3, *, nested: bool = False, **names: str) -> list[dict[str, Any]]:
    """Steps under names of their own; the reward is known and the flag true on the last step of an episode only."""
    name = {"reward": "good", "done": "fin", "action": "did", "context": "ctx"} | names
    steps = [
        {
            "run": f"r{e}",
            "turn": t,
            name["action"]: ("ask", "open", "stop")[(2 * e + t) % 3],
            name["context"]: {"intent": ("buy", "look")[(e + t) % 2], "depth": t},
            name["reward"]: e % 2 if t == length - 1 else None,
            name["done"]: t == length - 1,
        }
        for e in range(n_episodes)
        for t in range(length)
    ]
    if not nested:
        return steps
    return [{"id": steps[i]["run"], "steps": steps[i : i + length]} for i in range(0, len(steps), length)]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("names", [{}, {"reward": "zzz", "done": "yyy", "action": "verb", "context": "situation"}])
def test_what_fields_hold_tells_them_apart_where_names_do_not(names: dict[str, str], nested: bool) -> None:
    mapping = guess_mapping(own_log(nested=nested, **names))
    context = names.get("context", "ctx")
    assert (mapping.reward, mapping.done) == (names.get("reward", "good"), names.get("done", "fin"))
    assert mapping.action == names.get("action", "did")
    assert set(mapping.state) == {f"{context}.intent", f"{context}.depth"}
    assert {why.confidence for why in mapping.why if why.role in ("reward", "done", "action")} == {0.35}
    with pytest.raises(TraceFormatError, match="isn't known"):  # such a guess is for a person to confirm
        read_source("f", lines(*own_log(**names)))


_AFTERWARDS = ("reward", "success", "is_done", "terminated", "truncated", "logprob", "propensity", "error", "output")


@pytest.mark.parametrize(
    "late", [*_AFTERWARDS, "episode", "turn", "ctx.reward", "ctx.success", "obs_done", "state.done"]
)
def test_what_is_known_afterwards_is_never_guessed_for_the_state(late: str) -> None:
    values = [
        {
            "run": f"r{i // 4}",
            "step": i % 4,
            "tool": "ab"[i % 2],
            "reward": 0.5,
            "done": i % 4 == 3,
            "x": i % 5,
            "obs_1": i % 2,
        }
        for i in range(40)
    ]
    for i, value in enumerate(values):
        outer, _, inner = late.partition(".")
        value[outer] = {inner: i % 2, "z": i % 3} if inner else i % 2
    mapping = guess_mapping(values)
    assert mapping.state
    assert not set(mapping.state) & {late, late.partition(".")[0]}
    assert leaks_in(values, mapping) == []


@pytest.mark.parametrize("role", sorted(NEVER_IN_A_STATE))
def test_a_state_that_knows_what_comes_after_is_named(role: str) -> None:
    values = own_log()
    field = {"reward": "good", "done": "fin", "episode": "run", "step": "turn", "action": "did"}.get(role, "ctx.depth")
    mapping = replace(StepMapping(episode="run", step="turn", action="did"), **{role: field})
    for state in (("ctx.intent", field), (field,)):
        given = replace(mapping, state=state)
        assert [leak.path for leak in leaks_in(values, given)] == [field]
        assert without_leaks(values, given).state == tuple(path for path in state if path != field)
        found = read_source("f", lines(*values), mapping=given).report
        assert [(p.kind, p.field, p.lost) for p in found.problems if p.kind == "known only afterwards"] == [
            ("known only afterwards", field, False)
        ]
    assert leaks_in(values, replace(mapping, state=("ctx.intent",))) == []
    whole = replace(mapping, **{role: "ctx.depth"}, state=("ctx",))
    assert [leak.path for leak in leaks_in(values, whole)] == ["ctx"]  # the object that the field lies in


@pytest.mark.parametrize("field", ["good", "fin"])
def test_an_outcome_without_a_role_is_known_by_what_it_holds(field: str) -> None:
    mapping = StepMapping(episode="run", step="turn", action="did", state=("ctx.intent", field))
    for values in (own_log(), list(reversed(own_log()))):  # in the order of the step numbers
        (leak,) = leaks_in(values, mapping)
        assert leak.path == field
        assert "the state would know the outcome" in leak.sentence
    assert leaks_in(own_log(2), mapping) == []  # two episodes may look like anything


def test_no_guess_for_a_real_file_leaks() -> None:
    root = shared_trace("damaged").parent
    for path in sorted(root.rglob("*")):
        if path.suffix in (".csv", ".jsonl", ".parquet") and path.stat().st_size < 2_000_000:
            with contextlib.suppress(TraceFormatError):
                values = first_values([(path.name, path.read_bytes())])
                assert leaks_in(values, guess_mapping(values)) == [], path


def test_a_mapping_survives_json() -> None:
    mapping = guess_mapping([step(t=t, obs_0=0.5, obs_1=t, done=False) for t in range(3)])
    again = StepMapping.from_json(mapping.to_json())
    assert again == mapping
    assert again.why == ()
    for bad in (
        "[",
        "[]",
        '{"verb": "x"}',
        '{"action": 3}',
        '{"state": "x"}',
        '{"state": [1]}',
        '{"reward_at_end": 1}',
    ):
        with pytest.raises(InvalidConfig):
            StepMapping.from_json(bad)


def test_the_fingerprint_is_that_of_the_layout() -> None:
    values = [step(t=t, args={"q": t}) for t in range(10)]
    same = [dict(reversed(value.items())) | {"reward": 0.5} for value in values]
    assert fingerprint(values) == fingerprint(same) == fingerprint([*values, {"comment": "odd"}])
    assert fingerprint(values) == fingerprint([value | {"reward": None if i else 1} for i, value in enumerate(values)])
    assert fingerprint(values) != fingerprint([value | {"reward": "much"} for value in values])
    assert fingerprint(values) != fingerprint([value | {"more": 1} for value in values])


def test_a_preview_shows_the_first_episodes_as_they_will_be_read() -> None:
    values = [step("b", 1), step("b", 0), step("a", 0, reward="1.5")]
    mapping = guess_mapping(values)
    imported = read_source("f", lines(*values), mapping=mapping)
    columns = ("episode_id", "t", "action", "reward", "state_text")
    for n in (1, 2):
        found = [tuple(row.get(column) for column in columns) for row in preview(values, mapping, n)]
        assert found == of(imported, *columns)[: len(found)]
        assert len({row[0] for row in found}) == n


# -- layouts -------------------------------------------------------------------------------------------------

_STEPS = [{"action": "look", "reward": 0, "obs": 3}, {"action": "open", "reward": 1, "obs": 4}]
_LISTS = {"actions": ["look", "open"], "rewards": [0, 1], "observations": [3, 4, 5]}


@pytest.mark.parametrize(
    "records",
    [
        [{"id": key, "steps": _STEPS} for key in "xy"],
        [{"id": key, "trajectory": json.dumps(_STEPS)} for key in "xy"],
        [{"model": "m", "episodes": [{"id": key, "steps": _STEPS} for key in "xy"]}],
        [{"model": "m", "data": [{"episode": key} | one for key in "xy" for one in _STEPS]}],
        [{"id": key} | _LISTS for key in "xy"],
        [{"id": key} | {name: str(cell) for name, cell in _LISTS.items()} for key in "xy"],
        [{"episode": key, "data": one} for key in "xy" for one in _STEPS],
    ],
)
def test_steps_are_found_wherever_they_lie(records: list[Any]) -> None:
    imported = read_source("f", lines(*records))
    assert of(imported, "episode_id", "t", "action", "reward") == [
        (key, t, ("look", "open")[t], float(t)) for key in "xy" for t in range(2)
    ]
    assert_nothing_lost(imported)


def test_what_a_record_says_around_its_steps_holds_for_the_episode() -> None:
    record = {"run_id": "x", "question": "how?", "model": "m", "success": True, "done": True, "steps": _STEPS[:1] * 2}
    for one in record["steps"]:
        one.pop("reward", None)
    imported = read_source("f", lines(record, {"run_id": "x", "steps": []}, record))
    assert of(imported, "episode_id", "reward", "terminal", "task", "behavior_policy") == [
        (name, reward, end, "how?", "m") for name in ("x", "x#2") for reward, end in ((None, False), (1.0, True))
    ]
    assert imported.report.counts() == {"no steps": 1, "episode id used twice": 1}


# -- step numbers and episodes -------------------------------------------------------------------------------


def numbers(*steps: tuple[int | str | None, str], **fields: Any) -> Imported:
    return read_source(
        "f", lines(*[step(t=t, action=action, args={}, **fields) for t, action in steps]), format="step_table"
    )


@pytest.mark.parametrize(
    ("given", "expected", "problems"),
    [
        ([(1, "b"), (0, "a"), (2, "c")], [(0, "a"), (1, "b"), (2, "c")], ["steps out of order"]),
        ([(0, "a"), (3, "b")], [(0, "a"), (3, "b")], ["gaps between steps"]),
        ([(0, "a"), (1, "b"), (1, "b")], [(0, "a"), (1, "b")], ["duplicate step"]),
        ([(0, "a"), (1, "b"), (0, "c"), (1, "d")], [(0, "a"), (1, "b"), (2, "c"), (3, "d")], ["step numbers restart"]),
        ([(0, "a"), (1, "b"), (1, "c"), (2, "d")], [(0, "a"), (1, "b"), (2, "c"), (3, "d")], ["step number shared"]),
        ([(0, "a"), (1, "b"), (2, "c"), (1, "x")], [(0, "a"), (1, "b"), (2, "c")], ["duplicate step"]),
        ([(0, "a"), (None, "b"), (1, "c")], [(0, "a"), (1, "b"), (2, "c")], ["no step number"]),
        ([("2024-01-02T00:00", "b"), ("2024-01-01T00:00", "a")], [(0, "a"), (1, "b")], ["steps out of order"]),
        ([(501, "a"), (503, "b")], [(0, "a"), (1, "b")], []),
    ],
)
def test_odd_step_numbers(given: list[Any], expected: list[Any], problems: list[str]) -> None:
    imported = numbers(*given)
    assert of(imported, "t", "action") == expected
    assert list(imported.report.counts()) == problems
    assert_nothing_lost(imported)


def test_rows_that_share_a_number_are_calls_of_one_decision_only_where_actions_are_calls() -> None:
    imported = numbers((0, "a"), (1, "b"), (1, "c"))
    assert of(imported, "decision_id", "call_index") == [("e#0", 0), ("e#1", 0), ("e#1", 1)]
    table = read_source("f", b"episode,step,action,reward\ne,0,1,0\ne,0,2,0\ne,1,1,0")
    assert of(table, "t", "action") == [(0, "1"), (1, "1")]
    assert table.report.counts() == {"duplicate step": 1}


def test_several_calls_in_one_cell() -> None:
    calls = [{"function": {"name": "f", "arguments": '{"x": 1}'}}, {"name": "g", "args": {}}]
    imported = read_source("f", lines({"run": "a", "tool_calls": calls, "output": ["one", "two"], "reward": 1, "cost": 2},
                                      {"run": "a", "tool_calls": [], "output": "?", "reward": 0, "cost": 1}))  # fmt: skip
    assert of(imported, "action", "arguments", "tool_result", "reward", "cost_usd", "call_index") == [
        ("f", '{"x":1}', "one", None, 2.0, 0), ("g", "{}", "two", 1.0, None, 1), ("message", None, "?", 0.0, 1.0, 0),
    ]  # fmt: skip


def test_without_an_episode_ends_and_restarts_are_its_bounds() -> None:
    text = "step,action,reward,done\n0,a,0,0\n1,b,0,1\n0,a,0,0\n1,b,0,0\n0,c,1,0\n"
    imported = read_source("f.csv", text.encode())
    assert Counter(of(imported, "episode_id")) == {"episode-1": 2, "episode-2": 2, "episode-3": 1}
    ends = read_source("f.csv", b"action,reward,done\na,0,0\nb,0,1\nc,1,0\n")
    assert of(ends, "episode_id", "t") == [("episode-1", 0), ("episode-1", 1), ("episode-2", 0)]
    assert any("no step numbers" in note for note in ends.report.notes)


def test_files_are_one_upload_but_their_ids_are_their_own() -> None:
    first = b"episode,step,action,reward\n0,0,a,0\n1,0,b,0\n1,1,c,0"
    other = b"episode,step,action,reward\n1,2,d,0\n1,3,e,0\n0,0,f,0"
    imported = read_sources([("a.csv", first), ("b.csv", other)])
    episodes = defaultdict(list)
    for episode, action in of(imported, "episode_id", "action"):
        episodes[episode].append(action)
    assert episodes == {"0": ["a"], "1": ["b", "c", "d", "e"], "0#2": ["f"]}  # a shard goes on where the first stops
    assert imported.report.counts() == {"episode id used twice": 1}


def test_rows_without_episode_or_action_are_set_aside() -> None:
    imported = read_source(
        "f", lines(step(), step(""), step(t=1, action=None), 7, step(t=2, action="stop")), format="step_table"
    )
    assert of(imported, "t") == [0, 2]
    assert sorted(imported.report.counts()) == ["gaps between steps", "no action", "no episode", "no steps"]
    assert imported.report.n_steps_quarantined == 3
    assert_nothing_lost(imported)


# -- cells ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("true", "false"), [(True, False), ("True", "False"), ("1", "0"), (1.0, 0.0), ("yes", "no")])
def test_truth_has_many_spellings(true: Any, false: Any) -> None:
    records = [step(t=t, terminated=true if t == 1 else false, truncated=false) for t in range(2)]
    assert of(read_source("f", lines(*records)), "terminal", "end_reason") == [(False, None), (True, "terminated")]


def test_an_ending_is_never_guessed() -> None:
    def last(**fields: Any) -> tuple[Any, ...]:
        return of(read_source("f", lines(step(), step(t=1, **fields))), "terminal", "timeout", "end_reason")[-1]

    assert last() == (None, None, "unknown")
    assert last(done=True) == (True, False, "terminated")
    assert last(done=False) == (None, None, "unknown")
    assert last(terminated=False, truncated=False) == (False, False, "cut")
    assert last(terminated=False, truncated=True) == (False, True, "truncated")
    assert last(status="timeout") == (False, True, "truncated")
    assert last(status="finished") == (True, False, "terminated")


def test_an_end_inside_an_episode_is_reported() -> None:
    imported = read_source("f", lines(step(done=True), step(t=1, done=True)))
    assert imported.report.counts() == {"end inside an episode": 1}


@pytest.mark.parametrize(
    ("actions", "names"),
    [
        ([2.0, 0.0], ["2", "0"]),
        (["2.0", "1"], ["2", "1"]),
        ([[2], [1.0]], ["2", "1"]),
        (["[2.]", "[1.]"], ["2", "1"]),
        ([[0, 1], [1, 1]], ["0,1", "1,1"]),
        ([0.5, 1.0], ["0.5", "1"]),
        ([True, False], ["true", "false"]),
        (["left", "right"], ["left", "right"]),
    ],
)
def test_actions_have_many_spellings(actions: list[Any], names: list[str]) -> None:
    imported = read_source("f", lines(*[step(t=t, action=action) for t, action in enumerate(actions)]))
    assert of(imported, "action") == names
    assert {row["action_type"] for row in rows(imported)} == {"env_action"}


@pytest.mark.parametrize(
    ("action", "args", "expected"),
    [
        ("f", "{'a': 1}", ("f", '{"a":1}', "python_literal")),
        ("f", '{"a": 1}', ("f", '{"a":1}', "json_string")),
        ("f", "open('x')", ("f", None, "malformed")),
        ({"tool": "f", "args": {"a": 1}}, None, ("f", '{"a":1}', "object")),
        ({"type": "click", "x": 3}, None, ("click", '{"x":3}', "object")),
        ("{'name': 'f', 'arguments': {}}", None, ("f", "{}", "object")),
        ("search[rain in [Spain]]", None, ("search", '{"text":"rain in [Spain]"}', "object")),
        ("finish()", None, ("finish", "{}", "object")),
    ],
)
def test_calls_have_many_spellings(action: Any, args: Any, expected: tuple[Any, ...]) -> None:
    mapping = StepMapping(episode="episode", action="action", arguments="args", result="out")
    imported = read_source("f", lines(step(action=action, args=args, out="ok")), mapping=mapping)
    assert of(imported, "action", "arguments", "arguments_status") == [expected]
    assert of(imported, "action_type") == ["tool_call"]


def test_a_missing_reward_is_unknown_and_a_broken_one_is_reported() -> None:
    text = "episode,step,action,reward\n" + "\n".join(
        f"e,{t},a,{r}" for t, r in enumerate(["1.5", "", "NaN", "lots", *"0" * 40])
    )
    imported = read_source("f", text.encode())
    assert of(imported, "reward")[:5] == [1.5, None, None, None, 0.0]
    assert [(p.record, p.kind) for p in imported.report.problems] == [(5, "reward is not a number")]


def test_an_outcome_that_is_repeated_counts_once() -> None:
    records = [step(key, t, success=key == "a") for key in "ab" for t in range(3)]
    for record in records:
        del record["reward"]
    imported = read_source("f", lines(*records))
    assert of(imported, "reward") == [None, None, 1.0, None, None, 0.0]
    steady = [record | {"reward": -1} for record in records]
    assert of(read_source("f", lines(*steady)), "reward") == [-1.0] * 6  # a cost per step is no outcome


def test_probabilities_become_logarithms_and_impossible_ones_are_reported() -> None:
    mapping = StepMapping(episode="episode", step="step", action="action", probability="p")
    imported = read_source("f", lines(*[step(t=t, p=p) for t, p in enumerate([0.5, 0, 1.5, None, 1])]), mapping=mapping)
    assert of(imported, "action_logprob") == [math.log(0.5), None, None, None, 0.0]
    assert imported.report.counts() == {"impossible probability": 2}


def test_a_failed_action_has_an_error() -> None:
    records = [step(t=t, output="boom", error=error) for t, error in enumerate(["no such file", None, "", "too slow"])]
    assert of(read_source("f", lines(*records)), "error") == ["no such file", None, None, "too slow"]
    flags = [step(t=t, output="boom", error=error) for t, error in enumerate([True, False])]
    assert of(read_source("f", lines(*flags)), "error") == ["boom", None]


def test_categories_stay_and_continuous_fields_are_binned() -> None:
    random_numbers = random.Random(1)
    records = [step(t=t, room=("hall", "yard")[t % 2], keys=t % 3, x=random_numbers.gauss(0, 1)) for t in range(90)]
    mapping = StepMapping(episode="episode", step="step", action="action", state=("room", "keys", "x"))
    found = rows(read_source("f", lines(*records), mapping=mapping))
    assert json.loads(found[1]["state"]) == {key: records[1][key] for key in ("room", "keys", "x")}
    by_rank = sorted(range(90), key=lambda i: records[i]["x"])
    assert found[by_rank[0]]["state_text"].endswith("x=0")
    assert found[by_rank[-1]]["state_text"].endswith("x=7")
    assert found[1]["state_text"].startswith("room=yard keys=1 x=")
    ids = read_source("f", lines(*[step(t=t, state=t * 7) for t in range(90)]))
    assert of(ids, "state_text") == [
        str(t * 7) for t in range(90)
    ]  # one field of whole numbers is an id, not a measure


def test_long_and_image_like_states_have_no_short_text() -> None:
    for state in ("x" * 500, {"a": {"b": {"c": 1}}}, [[0.5] * 40] * 40):
        imported = read_source("f", lines(step(state="short"), step(t=1, state=state)))
        assert of(imported, "state_text") == [None, None]
        assert any("state_text" in note for note in imported.report.notes)


def test_a_mapping_may_name_fields_that_are_not_there() -> None:
    mapping = StepMapping(episode="nope", action="action")
    with pytest.raises(TraceFormatError, match="names no episode"):
        read_source("f", lines(step()), mapping=mapping)
    with pytest.raises(TraceFormatError, match="no list nope"):
        read_source("f", lines(step()), mapping=StepMapping(steps="nope", action="action"))


# -- bins ----------------------------------------------------------------------------------------------------

_TABLES = st_numpy.arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(1, 4)), elements=st.floats(-1e6, 1e6))


@given(_TABLES, st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_bins_keep_the_order_and_are_filled(values: np.ndarray, n_bins: int) -> None:
    labels = quantile_bins(values, n_bins)
    for column, bins in zip(values.T, labels.T, strict=True):
        order = np.argsort(column, kind="stable")
        assert (np.diff(bins[order]) >= 0).all()
        assert (bins[order][1:][np.diff(column[order]) == 0] == bins[order][:-1][np.diff(column[order]) == 0]).all()
        assert sorted(set(bins.tolist())) == list(range(bins.max() + 1))
        assert bins.max() < max(n_bins, 1)


def test_missing_numbers_have_no_bin_and_directions_have_fixed_signs() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(50, 12)) @ rng.normal(size=(12, 12))
    values[3, 5] = np.nan
    found = main_directions(values, 3)
    assert np.isnan(found).all(axis=1).tolist() == [i == 3 for i in range(50)]
    assert quantile_bins(found, 4)[3].tolist() == [-1, -1, -1]
    spread = np.nanvar(found, axis=0)
    assert (np.diff(spread) <= 0).all()
    shuffled = rng.permutation(50)
    assert np.allclose(main_directions(values[shuffled], 3), found[shuffled], equal_nan=True)


# -- anything at all -----------------------------------------------------------------------------------------

_SCALARS = [None, "", "x", "NaN", -1, 2**40, 0.5, math.nan, math.inf, True, "[1, 2", "{'a': 1}", "\ud83d"]
_JUNK = st.sampled_from([*_SCALARS, [], [1, [2]], [[[[1]]]], {}, {"name": "f"}])
_FORMATS = ["step_table", "bandit", "lerobot", "who_and_when", "openclaw"]


@pytest.mark.parametrize("format", _FORMATS)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_mutated_example_is_read_or_refused_and_nothing_is_lost(format: str, data: Any) -> None:
    records = [json.loads(line) for line in IMPORTERS[format].example.splitlines()] * 2
    for _ in range(data.draw(st.integers(1, 4))):
        record = records[data.draw(st.integers(0, len(records) - 1))]
        target = data.draw(st.sampled_from([record, *_objects(record)]))
        key = data.draw(st.sampled_from([*target, "more"]))
        change = data.draw(st.sampled_from(["drop", "replace", "copy"]))
        if change == "drop":
            target.pop(key, None)
        elif change == "replace":
            target[key] = data.draw(_JUNK)
        else:
            records.append(json.loads(json.dumps(record)))
    text = "\n".join(map(json.dumps, records)).encode()
    cut = text[: data.draw(st.integers(len(text) // 2, len(text)))]
    for content in (text, cut):
        for chosen in (format, None):
            try:
                imported = read_source("f", content, format=chosen)
            except TraceFormatError:
                continue
            ids = of(imported, "episode_id", "t")
            assert len(ids) == len(set(ids))
            if imported.report.format in ("step_table", "bandit", "lerobot", "who_and_when"):
                assert_nothing_lost(imported)


def _objects(value: Any) -> list[dict[str, Any]]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [found for item in inner for found in ([item] if isinstance(item, dict) and item else []) + _objects(item)]


_CSV_CELL = st.text('a1,.;"\n\t| -', max_size=6) | st.sampled_from(
    ["0", "1.5", "True", "nan", "[1]", "{'a': 1}", "2024-01-01 00:00"]
)


@given(st.lists(st.lists(_CSV_CELL, min_size=4, max_size=4), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_any_table_that_is_written_as_csv_comes_back(table: list[list[str]]) -> None:
    written = io.StringIO()
    header = ["episode", "step", "action", "note"]
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows([header, *table])
    if not looks_like_csv(written.getvalue()):
        return
    records = list(read_records("f", written.getvalue().encode(), ImportReport()))
    assert [list(record.value.values()) for record in records] == [
        [cell.strip() or None for cell in row] for row in table
    ]
    mapping = StepMapping(episode="episode", step="step", action="action", state=("note",))
    with contextlib.suppress(TraceFormatError):
        assert_nothing_lost(read_source("f", written.getvalue().encode(), mapping=mapping))


def test_deep_nesting_is_a_problem_and_not_a_crash() -> None:
    for depth in (100, 500, 900, 960, 980, 990, 1000, 2000):
        deep = '{"episode": "e", "step": 1, "action": "x", "state": ' + "[" * depth + "]" * depth + "}"
        data = lines(step()) + b"\n" + deep.encode()
        imported = read_source("f", data, format="step_table")
        assert imported.steps.num_rows + imported.report.n_lost == 2


def test_parquet_and_csv_of_one_table_give_the_same_steps() -> None:
    table = {
        "episode": [0, 0, 1],
        "step": [0, 1, 0],
        "obs_0": [0.5, 1.5, 2.5],
        "action": [1.0, 0.0, 1.0],
        "reward": [None, 1.0, 0.0],
    }
    sink, written = io.BytesIO(), io.StringIO()
    parquet.write_table(pa.table(table), sink)
    writer = csv.writer(written)
    writer.writerows([list(table), *zip(*table.values(), strict=True)])
    columns = ("episode_id", "t", "action", "reward", "state", "state_text")
    assert of(read_source("f", sink.getvalue()), *columns) == of(
        read_source("f", written.getvalue().encode()), *columns
    )
