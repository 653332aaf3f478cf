"""Importers of spans: real exports against their raw text, the rules of pairing and rewards, damage of every kind."""

from __future__ import annotations

import base64
import copy
import io
import json
import math
import random
import re
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from offrl_core.errors import TraceFormatError
from offrl_core.importers import IMPORTERS, Imported, read_source, read_sources
from offrl_core.importers.span_messages import messages_in
from offrl_core.importers.spans import time_ns
from tests.core.damage import assert_accounts
from tests.traces import shared_trace

DIALECTS = ("langfuse", "otlp", "openai_agents", "langsmith", "langchain_events", "mlflow")


def lines(*records: Any) -> bytes:
    return "\n".join(json.dumps(record, ensure_ascii=False) for record in records).encode()


def rows(imported: Imported) -> list[dict[str, Any]]:
    return list(imported.steps.to_pylist())


def real(name: str) -> Imported:
    path = shared_trace(name)
    return read_source(path.name, path.read_bytes())


def brief(imported: Imported) -> list[tuple[Any, ...]]:
    """Action, arguments and result of each step."""
    return [(row["action"], row["arguments"], row["tool_result"]) for row in rows(imported)]


def kinds(imported: Imported) -> dict[str, int]:
    return imported.report.counts()


# -- LangChain events ----------------------------------------------------------------------------------------


def happening(event: str, run: str, above: list[str] | None = None, name: str = "n", **data: Any) -> dict[str, Any]:
    """One event of ``astream_events``; version 1 has no list of the runs above."""
    found = {"event": event, "run_id": run, "name": name, "tags": [], "metadata": {}, "data": data}
    return found | ({} if above is None else {"parent_ids": above})


def constructed(kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", f"{kind}Message"],
        "kwargs": fields,
    }


def agent_run(version: int, root: str = "r", question: str = "where?") -> list[dict[str, Any]]:
    """A run that calls a tool twice at once, one of them in vain, and answers; as LangGraph logs it."""
    calls = [{"name": "find", "args": {"order": n}, "id": f"c{n}", "type": "tool_call"} for n in (7, 8)]
    asked = {"messages": [constructed("Human", content=question)]}

    def wrapped(reply: dict[str, Any]) -> Any:
        return reply if version == 2 else {"generations": [[{"text": "", "type": "ChatGeneration", "message": reply}]]}

    def event(kind: str, run: str, node: str, **data: Any) -> dict[str, Any]:
        name = "find" if "tool" in kind else node
        return happening(kind, f"{root}{run}", [root, f"{root}{node}"] if version == 2 else None, name, **data)

    first = constructed("AI", content="I look.", tool_calls=calls)
    results = [constructed("Tool", content="on its way", tool_call_id="c7"), "ignored"]
    return [
        happening("on_chain_start", root, [] if version == 2 else None, input=asked),
        event("on_chat_model_start", "m1", "agent", input={"messages": [asked["messages"]]}),
        event("on_chat_model_stream", "m1", "agent", chunk=constructed("AIChunk", content="I lo")),
        event("on_chat_model_end", "m1", "agent", output=wrapped(first)),
        event("on_tool_start", "t8", "tools", input=calls[1]),
        event("on_tool_start", "t7", "tools", input={"order": 7}),
        event("on_tool_end", "t7", "tools", input={"order": 7}, output=results[0]),
        event("on_tool_error", "t8", "tools", error="KeyError(8)"),
        event("on_chat_model_end", "m2", "agent", output=wrapped(constructed("AI", content="On its way."))),
        happening("on_chain_end", root, [] if version == 2 else None, output={"messages": []}),
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_events_of_a_run_become_its_steps(version: int) -> None:
    imported = read_source("f", lines(*agent_run(version), *agent_run(version, "s", "and mine?")))
    assert imported.report.sentence() == "Read 20 of 20 events: 6 steps in 2 episodes; no problems."
    steps = rows(imported)
    assert [(row["episode_id"], row["action"], row["arguments"]) for row in steps[:3]] == [
        ("r", "find", '{"order":7}'), ("r", "find", '{"order":8}'), ("r", "message", '{"text":"On its way."}'),
    ]  # fmt: skip
    assert [(row["tool_result"], row["error"]) for row in steps[:2]] == [("on its way", None), (None, "KeyError(8)")]
    assert steps[0]["decision_id"] == steps[1]["decision_id"] != steps[2]["decision_id"]
    assert [row["task"] for row in steps] == ["where?"] * 3 + ["and mine?"] * 3
    assert all(row["latency_ms"] is None and row["reward"] is None for row in steps)


def test_runs_of_version_2_may_be_interleaved() -> None:
    both = [event for pair in zip(agent_run(2), agent_run(2, "s", "and mine?"), strict=True) for event in pair]
    apart = read_source("f", lines(*agent_run(2), *agent_run(2, "s", "and mine?")))
    assert brief(read_source("f", lines(*both))) == brief(apart)


def test_events_of_which_only_some_were_logged_are_one_run() -> None:
    for version in (1, 2):
        events = [event for event in agent_run(version) if "chain" not in event["event"]]
        imported = read_source("f", lines(*events))
        assert imported.report.n_episodes == 1
        assert [row["action"] for row in rows(imported)] == ["find", "find", "message"]
    cut = read_source("f", lines(*agent_run(2)[:7]) + b'\n{"event": "on_tool')
    assert [row["tool_result"] for row in rows(cut)] == ["on its way", None]
    assert kinds(cut) == {"not JSON": 1}


def test_a_record_among_events_that_is_none_is_set_aside_once() -> None:
    imported = read_source(
        "f", lines(*agent_run(2), {"event": "on_tool_end", "data": {}}, ["x"], {"event": 1, "run_id": "q"})
    )
    assert imported.report.n_lost == 3
    assert kinds(imported) == {"not a span": 3}
    assert (
        read_source(
            "f",
            lines(
                {"id": {}, "run_type": "llm", "trace_id": 1},
                *[json.loads(line) for line in IMPORTERS["langsmith"].example.splitlines()],
            ),
        ).report.n_lost
        == 1
    )


# -- real files: Langfuse ------------------------------------------------------------------------------------

# file -> (actions in order, model, temperature, reward, number of replies)
LANGFUSE = {
    "agno-2025-06-11": (["duckduckgo_search", "message"], "gpt-4o-mini", 1, None, 2),
    "claude-agent-2025-12-22": (
        ["mcp__weather__get_weather"] * 2 + ["message"], "claude-sonnet-4-5-20250929", None, 0, 2,
    ),
    "csharp-agent-with-gemini-2026-03-09": (
        ["get_custom_report", "message", "final_result"], "gemini-2.5-flash", 0, None, 3,
    ),
    "koog-2025-08-26": (["HelloTool", "ByeTool", "message"], "gpt-4o", 1, None, 2),
    "langgraph-python-2025-08-22": (["Web-Search", "message"], "gpt-4o-2024-08-06", 0, None, 2),
    "openai-agents-2025-09-30": (["get_weather", "message"], "gpt-4.1-2025-04-14", 1, None, 2),
    "pydantic-ai-tools-2025-12-04": (
        ["get_pun_suggestion", "get_dad_joke_suggestion", "get_one_liner_suggestion", "message", "message", "final_result"],
        "gpt-4o-mini-2024-07-18", 0.7, None, 4,
    ),
    "vercel-aisdk-2025-11-17": (["getWeather"], "gpt-5", None, None, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", LANGFUSE)
def test_langfuse_traces_give_the_steps_a_reader_sees(name: str) -> None:
    actions, model, temperature, reward, n_replies = LANGFUSE[name]
    imported = real(f"langfuse/{name}.trace.json")
    raw = json.loads(shared_trace(f"langfuse/{name}.trace.json").read_text(encoding="utf-8"))
    steps = rows(imported)
    assert imported.report.format == "langfuse"
    assert kinds(imported) == {}
    assert [row["action"] for row in steps] == actions
    assert len({row["decision_id"] for row in steps}) == n_replies
    assert {row["episode_id"] for row in steps} == {raw["trace"]["id"]}
    assert {row["behavior_policy"] for row in steps} == {model}
    assert (steps[0]["temperature"], steps[-1]["reward"]) == (temperature, reward)
    scores = {score["name"]: score["value"] for score in raw["trace"]["scores"]}
    assert json.loads(steps[-1]["reward_components"] or "{}") == scores
    assert {row["reward"] for row in steps[:-1]} <= {None}
    generations = [o for o in raw["observations"] if o["type"] == "GENERATION"]
    parents = {o["parentObservationId"] for o in generations}
    leaves = [o for o in generations if o["id"] not in parents]
    assert sum(row["cost_usd"] or 0 for row in steps) == pytest.approx(sum(o["totalCost"] for o in leaves))


def test_langfuse_results_are_those_of_the_tools() -> None:
    """Each result stands, in a tool observation of the raw file, beside the arguments of the call it is paired with."""
    n = 0
    for name in LANGFUSE:
        raw = json.loads(shared_trace(f"langfuse/{name}.trace.json").read_text(encoding="utf-8"))
        by_id = {o["id"]: o for o in raw["observations"]}
        for row in rows(real(f"langfuse/{name}.trace.json")):
            span = json.loads(row["metadata"]).get("tool_span")
            if span is None:
                assert row["action"] in ("message", "final_result")
                continue
            tool = by_id[span]
            given_raw = str(tool["input"])
            assert all(
                str(value)[:30] in given_raw
                for value in json.loads(row["arguments"]).values()
                if isinstance(value, str)
            )
            letters = re.sub(r"\W", "", row["tool_result"] or "null")
            assert letters[:25] in re.sub(r"\W", "", str(tool["output"]))
            n += 1
    assert n == 13


def test_a_reply_that_was_split_over_spans_is_one_decision() -> None:
    imported = real("langfuse/claude-agent-2025-12-22.trace.json")
    first, second, last = rows(imported)
    assert [json.loads(row["arguments"])["city"] for row in (first, second)] == ["Berlin", "New York"]
    assert [row["tool_result"] for row in (first, second)] == [
        "Weather in Berlin: Cloudy, 59°F", "Weather in New York: Sunny, 75°F",
    ]  # fmt: skip
    assert json.loads(first["metadata"])["thought"].startswith("I'll check the weather")
    assert last["reward_source"] == "score correctness (EVAL)"
    assert any("correctness" in note and "hallucination" in note for note in imported.report.notes)
    assert any("put together" in note for note in imported.report.notes)


def test_several_scores_of_no_telling_name_choose_no_reward() -> None:
    notes = real("langfuse/openai-agents-2025-09-30.trace.json").report.notes
    assert any("hallucination, toxicity" in note and "No reward was chosen" in note for note in notes)


def test_an_agent_is_asked_what_its_own_messages_say() -> None:
    steps = rows(real("langfuse/pydantic-ai-tools-2025-12-04.trace.json"))
    states = [json.loads(row["state"]) for row in steps]
    assert [state["agent"] for state in states] == ["joke_agent"] * 5 + ["evaluator_agent"]
    assert states[-1]["user_goal"].startswith("Rate this joke")
    assert steps[3]["tool_result"].startswith("Now write a funny joke")  # what the user said to the message
    assert steps[0]["available_tools"][-1] == "message"
    assert len(steps[0]["available_tools"]) == 6


# -- real files: the others ----------------------------------------------------------------------------------


def test_pydantic_ai_over_otlp() -> None:
    imported = real("otel_genai/pydantic_ai_otlp.jsonl")
    assert imported.report.sentence() == "Read 16 of 16 spans: 9 steps in 3 episodes; 1 problem."
    steps = rows(imported)
    assert brief(imported)[:4] == [
        ("fare", '{"dest":"LIS","origin":"OSL"}', '{"fare":120.5,"currency":"EUR"}'),
        ("weather", '{"city":"Lisbon"}', "☀ 24°C"),
        ("weather", '{"city":"Oslo"}', "−3°C ❄"),
        ("message", '{"text":"120.50 EUR; Lisbon sunny, Oslo −3°C."}', None),
    ]
    assert [row["call_index"] for row in steps[:3]] == [0, 1, 2]
    assert [row["arguments_status"] for row in steps[:3]] == ["object", "object", "json_string"]
    failed, broken = steps[4], steps[6]
    assert (failed["tool_result"], failed["error"]) == ("unknown airport code", "unknown airport code")
    assert (broken["arguments_status"], broken["arguments_raw"]) == ("malformed", '{"origin": "OSL", ')
    assert "Invalid JSON" in broken["error"]
    assert {row["state"] is not None and json.loads(row["state"])["agent"] for row in steps} == {"travel_desk"}


def test_openinference_finds_calls_among_five_wrappers_each() -> None:
    imported = real("openinference/langgraph_otlp.jsonl")
    assert imported.report.sentence() == "Read 70 of 70 spans: 10 steps in 4 episodes; no problems."
    assert any("55 spans" in note and "CHAIN 46, AGENT 9" in note for note in imported.report.notes)
    steps = rows(imported)
    assert brief(imported)[:4] == [
        ("stock_level", '{"sku":"A1"}', "3"),
        ("stock_level", '{"sku":"B7"}', "0"),
        ("reorder", '{"qty":50,"sku":"B7"}', '{"sku": "B7", "ordered": 50, "eta_days": 4}'),
        ("message", '{"text":"Reordered 50 of B7."}', None),
    ]
    over = next(row for row in steps if row["arguments"] == '{"qty":900,"sku":"A1"}')
    assert over["error"] == "ValueError('qty above limit')"
    assert over["tool_result"].startswith("Error: ValueError")
    assert [(row["action"], row["arguments_raw"]) for row in steps if row["action_type"] == "invalid"] == [
        ("invalid", '{"sku": "C9"')
    ]


def test_langsmith_counts_each_call_once() -> None:
    imported = real("langsmith/runs_flat.jsonl")
    assert imported.report.sentence() == "Read 55 of 55 runs: 8 steps in 3 episodes; no problems."
    path = shared_trace("langsmith/runs_flat.jsonl")
    runs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    called: Counter[str] = Counter()
    for run in runs:
        if run["run_type"] == "llm":
            message = run["outputs"]["generations"][0][0]["message"]["kwargs"]
            calls = message["tool_calls"] + message["invalid_tool_calls"]
            called.update(call["id"] for call in calls)
    assert Counter(filter(None, (json.loads(row["metadata"]).get("call_id") for row in rows(imported)))) == called
    assert [(row["action_type"], row["error"]) for row in rows(imported) if row["error"]] == [
        ("tool_call", "ValueError('qty above limit')"),
        ("tool_call", "KeyError('C9')"),
        ("invalid", "JSON parse"),
    ]
    assert {row["split"] for row in rows(imported)} == {"train"}


def test_openai_agents_with_children_before_parents_and_a_handoff() -> None:
    imported = real("openai_agents_sdk/spans.jsonl")
    assert imported.report.sentence() == "Read 55 of 55 spans: 16 steps in 5 episodes; 1 problem."
    steps = rows(imported)
    assert Counter(row["action_type"] for row in steps) == {"tool_call": 10, "message": 5, "handoff": 1}
    handoff = next(row for row in steps if row["action_type"] == "handoff")
    assert (handoff["action"], handoff["tool_result"]) == ("transfer_to_billing", '{"assistant": "Billing"}')
    last = [row for row in steps if row["episode_id"] == handoff["episode_id"]]
    assert [json.loads(row["state"])["agent"] for row in last] == ["Triage", "Billing", "Billing"]
    assert [row["arguments_raw"] for row in steps if row["arguments_status"] == "malformed"] == ['{"order_id": "O-17"']
    assert sum(row["error"] is not None for row in steps) == 3
    assert {row["split"] for row in steps} == {"train", "test"}


def test_mlflow_takes_its_assessments_as_rewards() -> None:
    imported = real("mlflow/traces_v3.json")
    assert imported.report.sentence() == "Read 3 of 3 traces: 7 steps in 3 episodes; no problems."
    assert [row["reward"] for row in rows(imported)] == [None, 1, None, None, 1, None, 0]
    assert {row["reward_source"] for row in rows(imported)} == {None, "score correct (HUMAN)"}
    failed = [row for row in rows(imported) if row["error"]]
    assert [(row["error"], row["tool_result"]) for row in failed] == [
        ("KeyError: 'mars shipping'", "Error: no article 'mars shipping'"),
        ("KeyError: 'warranty'", "Error: no article 'warranty'"),
    ]


def test_spans_without_any_agent_are_refused_with_a_sentence() -> None:
    with pytest.raises(TraceFormatError, match=r"no model or tool .* no decision in it\.$"):
        real("otel_genai/agento_collector_file_export.json")


# -- hand-made spans -----------------------------------------------------------------------------------------


def span(id: str, kind: str, start: float, parent: str | None = "root", **fields: Any) -> dict[str, Any]:
    """One observation of Langfuse, the plainest dialect; times are seconds of one minute."""
    at = [f"2026-01-05T10:00:{second:06.3f}Z" for second in (start, start + 0.5)]
    base = {"id": id, "traceId": "t", "type": kind, "name": id, "startTime": at[0], "endTime": at[1]}
    return base | {"parentObservationId": parent} | fields


def asks(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text} | fields


def calls(*named: tuple[str | None, str, Any]) -> dict[str, Any]:
    made = [{"id": id, "function": {"name": name, "arguments": json.dumps(value)}} for id, name, value in named]
    return {"role": "assistant", "content": None, "tool_calls": made}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_any_order_missing_parents_circles_and_clocks_give_the_same_episode() -> None:
    spans = [
        span("root", "AGENT", 0.001, None),
        span("m1", "GENERATION", 0, input=[asks("q")], output=calls(("c", "f", {"a": 1}))),  # before its parent
        span("f", "TOOL", 1, input={"a": 1}, output="r"),
        span("m2", "GENERATION", 2, input=[asks("q")], output=says("done")),
    ]
    expected = [("f", '{"a":1}', "r"), ("message", '{"text":"done"}', None)]
    shuffled = random.Random(0)
    for _ in range(5):
        shuffled.shuffle(spans)
        assert brief(read_source("f", lines(*spans))) == expected
    assert brief(read_source("f", lines(*[s for s in spans if s["id"] != "root"]))) == expected
    spans = [
        s | {"parentObservationId": "f"} if s["id"] == "root" else s | {"parentObservationId": "root"} for s in spans
    ]
    assert read_source("f", lines(*spans)).steps.num_rows >= 1


def test_a_trace_may_be_spread_over_files_and_come_twice() -> None:
    first = span("m1", "GENERATION", 0, None, input=[asks("q")], output=calls(("c", "f", {})))
    second = span("f", "TOOL", 1, None, input={}, output="r")
    imported = read_sources(
        [("a.jsonl", lines(second)), ("b.jsonl", lines(first, second | {"input": None, "output": None}))]
    )
    (row,) = rows(imported)
    assert (row["tool_result"], row["source_file"], row["record"]) == ("r", "b.jsonl", 1)
    assert kinds(imported) == {"span twice": 1}
    assert len(imported.records) == 3


def test_wrappers_of_models_and_tools_are_not_emitted_twice() -> None:
    reply = calls(("c", "f", {"a": 1}))
    imported = read_source("f", lines(
        span("loop", "GENERATION", 0, None, output=says("done")),
        span("wrapper", "GENERATION", 1, "loop", output=reply, totalCost=5),
        span("inner", "GENERATION", 1, "wrapper", input=[asks("q")], output="None", totalCost=1),
        span("node", "TOOL", 2, "loop", input={"state": 1}, output="state"),
        span("tool.f", "SPAN", 2, "node", input={"a": 1}, output="r"),
        span("last", "GENERATION", 3, "loop", output=says("done")),
    ))  # fmt: skip
    assert brief(imported) == [("f", '{"a":1}', "r"), ("message", '{"text":"done"}', None)]
    assert rows(imported)[0]["cost_usd"] == 1
    imported = read_source("f", lines(
        span("m", "GENERATION", 1, None, output=reply),
        span("node", "TOOL", 2, None, input={"state": 1}, output="state"),
        span("running tool: f", "TOOL", 2, "node", input={"a": 1}, output="r"),
    ))  # fmt: skip
    assert brief(imported) == [("f", '{"a":1}', "r")]


def test_results_are_paired_by_id_then_arguments_then_order() -> None:
    imported = read_source("f", lines(
        span("m", "GENERATION", 0, output=calls((None, "f", {"a": 1}), (None, "f", {"a": 2}), (None, "g", {}), ("x", "h", {}))),
        span("1", "TOOL", 1, name="f", input={"a": 2}, output="two"),
        span("2", "TOOL", 1, name="f", input={"a": 1}, output="one"),
        span("3", "TOOL", 1, name="g", input={"other": 1}, output="three"),
        span("n", "GENERATION", 2, input=[asks("q"), {"role": "tool", "tool_call_id": "x", "content": "four"}], output=says("d")),
        span("4", "TOOL", 3, name="g", input={}, output="later"),
    ))  # fmt: skip
    assert [row["tool_result"] for row in rows(imported)] == ["one", "two", "three", "four", None, "later"]
    assert kinds(imported) == {"result paired by order": 1}
    assert any("1 tools ran without a recorded call" in note for note in imported.report.notes)


def test_results_stand_in_the_next_input_where_no_tool_was_traced() -> None:
    history = [asks("q"), calls(("c0", "f", {})), {"role": "tool", "tool_call_id": "c0", "content": "one"}]
    imported = read_source("f", lines(
        span("m1", "GENERATION", 0, input=history[:1], output=calls(("c0", "f", {}))),
        span("m2", "GENERATION", 1, input=history, output=calls(("c0", "f", {}))),  # the id is used again
        span("m3", "GENERATION", 2, input=[*history, calls(("c0", "f", {})), history[2] | {"content": "two", "status": "error"}],
             output=says("d")),
    ))  # fmt: skip
    assert [(row["tool_result"], row["error"]) for row in rows(imported)] == [
        ("one", None),
        ("two", "two"),
        (None, None),
    ]


def test_what_runs_below_a_tool_is_an_episode_of_its_own_at_any_depth() -> None:
    imported = read_source("f", lines(
        span("m", "GENERATION", 0, None, input=[asks("big")], output=calls(("c", "research", {"q": "x"}))),
        span("research", "TOOL", 1, None, input={"q": "x"}, output="found"),
        span("agent", "AGENT", 1, "research"),
        span("m2", "GENERATION", 1.5, "agent", input=[asks("small")], output=calls(("d", "look", {}))),
        span("look", "TOOL", 2, "agent", input={}, output="seen"),
        span("m3", "GENERATION", 2.5, "look", input=[asks("tiny")], output=says("deep")),
        span("judge", "EVALUATOR", 3, None),
        span("m4", "GENERATION", 3, "judge", output=says("good")),
        {"id": "t", "timestamp": "2026-01-05T10:00:00Z", "name": "run", "sessionId": None,
         "scores": [{"name": "success", "value": 1, "source": "API"}]},
    ))  # fmt: skip
    assert [
        (row["episode_id"], row["parent_episode"], row["action"], row["task"], row["reward"]) for row in rows(imported)
    ] == [
        ("t", None, "research", "big", 1.0),
        ("t/research", "t", "look", "small", None),
        ("t/look", "t/research", "message", "tiny", None),
    ]
    assert any("GENERATION of a judge 1" in note for note in imported.report.notes)


def test_replies_that_were_not_exported_are_said_so_and_the_tools_stand_for_them() -> None:
    imported = read_source("f", lines(
        {"object": "trace", "id": "t", "workflow_name": "w"},
        {"object": "trace.span", "id": "1", "trace_id": "t", "started_at": "2026-01-05T10:00:00Z",
         "span_data": {"type": "response", "response_id": "r", "usage": {"input_tokens": 3}}},
        {"object": "trace.span", "id": "2", "trace_id": "t", "started_at": "2026-01-05T10:00:01Z",
         "span_data": {"type": "function", "name": "f", "input": "{'a': 1}", "output": "r"}},
        {"object": "trace.span", "id": "3", "trace_id": "t", "started_at": "2026-01-05T10:00:01Z",
         "span_data": {"type": "handoff", "from_agent": "A", "to_agent": "Big Boss"}},
        {"object": "trace.span", "id": "4", "trace_id": "t", "started_at": "2026-01-05T10:00:02Z",
         "span_data": {"type": "response", "response_id": "s"}},
        {"object": "trace.span", "id": "5", "trace_id": "t", "started_at": "2026-01-05T10:00:02Z",
         "span_data": {"type": "surprise"}},
    ))  # fmt: skip
    found = [(row["action"], row["action_type"], row["arguments_status"], row["decision_id"]) for row in rows(imported)]
    assert found == [
        ("f", "tool_call", "python_literal", "t#1"),
        ("transfer_to_big_boss", "handoff", "absent", "t#1"),
        ("message", "message", "absent", "t#4"),
    ]
    assert any("2 of 2 replies of a model were exported without" in note for note in imported.report.notes)
    assert any("surprise 1" in note for note in imported.report.notes)


def test_traces_without_spans_keep_what_went_in_and_came_out() -> None:
    trace = {"id": "t", "timestamp": "2026-01-05T10:00:00Z", "name": "n", "sessionId": "s", "bookmarked": False}
    imported = read_source("f", lines(trace | {"input": "why?", "output": '{"answer": "so"}'}, trace | {"id": "u"}))
    (row,) = rows(imported)
    assert (row["task"], row["action"], row["arguments"]) == ("why?", "message", '{"text":"so"}')
    assert kinds(imported) == {"no decision": 1}


def test_pages_and_stubs_of_langfuse() -> None:
    m = span("m", "GENERATION", 0, None, input=[asks("q")], output=says("full"))
    stub = m | {"input": None, "output": None}
    whole = {"trace": {"id": "t", "observations": [stub]}, "observations": [m]}
    page = {"data": [{"id": "t", "projectId": "p", "observations": [m]}], "meta": {"page": 1}}
    for value in (
        whole,
        page,
        {"data": [m], "meta": {}},
        [m],
        m | {"output": '"{\\"role\\": \\"assistant\\", \\"content\\": \\"full\\"}"'},
    ):
        imported = read_source("f", json.dumps(value).encode())
        assert brief(imported) == [("message", '{"text":"full"}', None)]
        assert kinds(imported) == {}


def test_prompt_name_and_version_and_scores_of_one_span() -> None:
    value = {
        "trace": {"id": "t", "scores": [
            {"name": "helpful", "value": 0.5, "source": "EVAL", "observationId": "m1"},
            {"name": "tone", "stringValue": "rude", "dataType": "CATEGORICAL", "source": "ANNOTATION"},
            {"name": "pass", "value": 1, "source": "API"}, {"name": "pass", "value": 0, "source": "API"},
        ]},
        "observations": [
            span("m1", "GENERATION", 0, promptName="desk", promptVersion=3, output=says("a")),
            span("m2", "GENERATION", 1, level="ERROR", statusMessage="rate limit"),
            span("m3", "GENERATION", 2, output=says("b")),
        ],
    }  # fmt: skip
    imported = read_source("f", json.dumps(value).encode())
    first, last = rows(imported)
    assert (first["prompt_version"], first["reward_components"], first["reward"]) == ("desk:3", '{"helpful":0.5}', None)
    assert (last["reward"], last["reward_source"]) == (0.5, "score pass (API)")
    assert json.loads(last["metadata"])["scores"] == {"tone": "rude"}
    assert kinds(imported) == {"model call failed": 1}


def otlp(*spans: dict[str, Any]) -> bytes:
    """OTLP/JSON, one span per document; ``attributes`` and those of events are given as objects."""

    def typed(value: Any) -> Any:
        if isinstance(value, list):
            return {"arrayValue": {"values": [typed(item) for item in value]}}
        if isinstance(value, dict):
            return {"kvlistValue": {"values": listed(value)}}
        if isinstance(value, int):
            return {"intValue": str(value)}
        return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}

    def listed(attributes: dict[str, Any]) -> list[Any]:
        return [{"key": key, "value": typed(value)} for key, value in attributes.items()]

    documents = []
    for i, span in enumerate(spans):
        base = {"traceId": "AB", "spanId": f"a{i}", "startTimeUnixNano": str(1767607200 * 10**9 + i * 10**8)}
        made = base | span | {"attributes": listed(span.get("attributes", {}))}
        made["events"] = [event | {"attributes": listed(event["attributes"])} for event in span.get("events", [])]
        documents.append({"resourceSpans": [{"scopeSpans": [{"spans": [made]}]}]})
    return lines(*documents)


GENAI = {
    "events": [
        {"attributes": {"gen_ai.operation.name": "chat", "gen_ai.system": "openai"}, "events": [
            {"name": "gen_ai.system.message", "attributes": {"content": "be brief"}},
            {"name": "gen_ai.user.message", "attributes": {"content": "q"}},
            {"name": "gen_ai.choice", "attributes": {"index": 0, "message": json.dumps(calls(("c", "f", {"a": 1})))}},
        ]},
        {"attributes": {"gen_ai.operation.name": "chat"}, "events": [
            {"name": "gen_ai.tool.message", "attributes": {"id": "c", "content": "r"}},
            {"name": "gen_ai.choice", "attributes": {"index": 0, "message": '{"content": "done"}'}},
        ]},
    ],
    "traceloop": [
        {"attributes": {
            "llm.request.type": "chat", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "q",
            "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.tool_calls.0.id": "c",
            "gen_ai.completion.0.tool_calls.0.name": "f", "gen_ai.completion.0.tool_calls.0.arguments": '{"a": 1}',
        }},
        {"attributes": {"traceloop.span.kind": "tool", "traceloop.entity.output": "r", "gen_ai.tool.name": "f"}},
        {"attributes": {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "done"}},
    ],
    "vercel": [
        {"attributes": {"ai.operationId": "ai.generateText", "ai.prompt": '{"prompt": "q"}', "ai.response.text": "done"}},
        {"parentSpanId": "a0", "attributes": {
            "ai.operationId": "ai.generateText.doGenerate", "ai.prompt.messages": json.dumps([asks("q")]),
            "ai.response.toolCalls": '[{"toolCallId": "c", "toolName": "f", "args": "{\\"a\\": 1}"}]',
        }},
        {"parentSpanId": "a0", "attributes": {
            "ai.operationId": "ai.toolCall", "ai.toolCall.name": "f", "ai.toolCall.id": "c", "ai.toolCall.result": "r",
        }},
        {"parentSpanId": "a0", "attributes": {
            "ai.operationId": "ai.generateText.doGenerate", "ai.response.text": "done",
        }},
    ],
    "openinference": [
        {"attributes": {"openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.contents.0.message_content.type": "text",
            "llm.input_messages.0.message.contents.0.message_content.text": "q",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "f",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"a": 1}',
            "llm.tools.0.tool.json_schema": '{"type": "function", "function": {"name": "f"}}'}},
        {"attributes": {"openinference.span.kind": "TOOL", "tool.name": "f", "input.value": "1", "output.value": "r"}},
        {"attributes": {"openinference.span.kind": "LLM", "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "done"}},
    ],
    "content off": [
        {"attributes": {"gen_ai.operation.name": "chat"}},
        {"attributes": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f",
            "gen_ai.tool.call.arguments": {"a": 1}, "gen_ai.tool.call.result": "r"}},
        {"attributes": {"gen_ai.operation.name": "invoke_agent", "final_result": "done",
            "gen_ai.input.messages": json.dumps([asks("q")])}},
        {"parentSpanId": "a2", "attributes": {"gen_ai.operation.name": "chat"}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("dialect", GENAI)
def test_every_dialect_of_opentelemetry_gives_the_same_steps(dialect: str) -> None:
    imported = read_source("f", otlp(*GENAI[dialect]))
    expected = [("f", '{"a":1}', "r"), ("message", '{"text":"done"}', None)]
    found = brief(imported)
    assert found[0] == expected[0]
    if dialect != "content off":  # there, the second root is no output of the whole trace
        assert found == expected
        assert {row["task"] for row in rows(imported)} == {"q"}
    assert set(kinds(imported)) <= {"result paired by order"}


def test_numbered_messages_are_sorted_as_numbers() -> None:
    attributes = {"openinference.span.kind": "LLM", "llm.output_messages.0.message.content": "ok"}
    attributes["llm.output_messages.0.message.role"] = "assistant"
    for i in range(11):
        attributes[f"llm.input_messages.{i}.message.role"] = "user"
        attributes[f"llm.input_messages.{i}.message.content"] = f"message {i}"
    (row,) = rows(read_source("f", otlp({"attributes": attributes})))
    assert (row["task"], json.loads(row["state"])["history_length"]) == ("message 0", 11)


def test_phoenix_tables_and_spans_with_a_context() -> None:
    answer = [{"message.role": "assistant", "message.content": "done", "message.tool_calls": None}]
    asked = [{"message.role": "user", "message.content": "q"}]
    wanted = [{"tool_call.function.name": "f", "tool_call.function.arguments": '{"a": 1}', "tool_call.id": "c"}]
    table = pa.table({
        "context.trace_id": ["t"] * 3, "context.span_id": ["1", "2", "3"], "parent_id": [None] * 3,
        "name": ["llm", "f", "llm"], "span_kind": ["LLM", "TOOL", "LLM"], "status_code": ["OK", "ERROR", "OK"],
        "status_message": ["", "boom", ""], "start_time": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "attributes.llm.input_messages": [asked, None, asked],
        "attributes.llm.output_messages": [[{"message.role": "assistant", "message.tool_calls": wanted}], None, answer],
        "attributes.input.value": [None, '{"a": 1}', None], "attributes.output.value": [None, "r", None],
    })  # fmt: skip
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    imported = read_source("f.parquet", sink.getvalue())
    assert brief(imported) == [("f", '{"a":1}', "r"), ("message", '{"text":"done"}', None)]
    assert [row["error"] for row in rows(imported)] == ["boom", None]
    nested = {"name": "m", "context": {"trace_id": "t", "span_id": "1"}, "parent_id": None, "status": {"status_code": "OK"},
              "attributes": {"openinference": {"span": {"kind": "LLM"}}, "llm": {"output_messages": answer}}}  # fmt: skip
    assert brief(read_source("f", lines(nested))) == [("message", '{"text":"done"}', None)]


def test_spans_as_the_javascript_sdk_prints_them() -> None:
    def printed(identity: str, second: int, attributes: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {
            "name": "s", "spanContext": {"traceId": "ab", "spanId": identity}, "attributes": attributes,
            "status": {"code": 0}, "startTime": [second, 5], "endTime": [second + 1, 5], "events": [],
        } | fields  # fmt: skip

    wanted = '[{"toolCallId": "c", "toolName": "f", "input": "{\\"a\\": 1}"}]'
    under = {"parentSpanContext": {"traceId": "ab", "spanId": "1"}}
    spans = [
        printed("4", 30, {"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": "done"}, **under),
        printed("3", 20, {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "f", "ai.toolCall.id": "c",
                          "ai.toolCall.result": "r"}, parentSpanId="1"),
        printed("2", 10, {"ai.operationId": "ai.generateText.doGenerate", "ai.response.toolCalls": wanted,
                          "ai.prompt.messages": json.dumps([asks("q")])}, **under),
        printed("1", 9, {"ai.operationId": "ai.generateText", "ai.response.text": "done"}),
    ]  # fmt: skip
    imported = read_source("f", json.dumps(spans).encode())
    assert (imported.report.format, imported.report.problems) == ("otlp", [])
    assert brief(imported) == [("f", '{"a":1}', "r"), ("message", '{"text":"done"}', None)]
    assert [row["latency_ms"] for row in rows(imported)] == [2000.0, 1000.0]


def test_single_spans_need_no_wrapper_and_a_model_with_its_reply_no_operation() -> None:
    def single(identity: str, start: int, **messages: Any) -> dict[str, Any]:
        attributes = {f"gen_ai.{key}.messages": json.dumps([message]) for key, message in messages.items()}
        return {
            "trace_id": "ab", "span_id": identity, "name": "chat", "startTimeUnixNano": str(start),
            "attributes": attributes | {"gen_ai.request.model": "m"},
        }  # fmt: skip

    wanted = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": 1}}]}
    came = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "r"}]}
    spans = [single("1", 10, input=asks("q"), output=wanted), single("2", 20, input=came, output=says("done"))]
    imported = read_source("f", lines(*spans))
    assert (imported.report.format, imported.report.problems) == ("otlp", [])
    assert brief(imported) == [("f", '{"a":1}', "r"), ("message", '{"text":"done"}', None)]


@pytest.mark.parametrize("paged", [False, True])
def test_traces_as_jaeger_exports_them(paged: bool) -> None:
    def exported(identity: int, start: int, tags: dict[str, Any], parent: int = 1) -> dict[str, Any]:
        references = [{"refType": "CHILD_OF", "traceID": "ab", "spanID": str(parent)}] if parent else []
        return {
            "traceID": "ab", "spanID": str(identity), "operationName": f"span {identity}", "references": references,
            "startTime": 1_770_000_000_000_000 + start, "duration": 2_000_000, "logs": [], "processID": "p1",
            "tags": [{"key": key, "type": "string", "value": value} for key, value in tags.items()],
        }  # fmt: skip

    def chat(**messages: Any) -> dict[str, Any]:
        named = {f"gen_ai.{key}.messages": json.dumps([message]) for key, message in messages.items()}
        return {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"} | named

    wanted = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": 1}}]}
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f", "gen_ai.tool.call.id": "c",
           "gen_ai.tool.call.result": "r", "error": True, "otel.status_description": "boom"}  # fmt: skip
    spans = [
        exported(4, 3000, chat(output=says("done"))),
        exported(3, 2000, ran),
        exported(2, 1000, chat(input=asks("q"), output=wanted)),
        exported(1, 0, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop"}, parent=0),
    ]
    trace = {"traceID": "ab", "spans": spans, "processes": {"p1": {"serviceName": "s"}}}
    imported = read_source("f", lines({"data": [trace], "total": 1} if paged else trace))
    assert (imported.report.format, imported.report.problems) == ("otlp", [])
    assert brief(imported) == [("f", '{"a":1}', "r"), ("message", '{"text":"done"}', None)]
    assert [(row["error"], row["task"]) for row in rows(imported)] == [("boom", "q"), (None, "q")]


def test_langsmith_runs_inside_runs_and_rows_with_json_text() -> None:
    example = [json.loads(line) for line in IMPORTERS["langsmith"].example.splitlines()]
    flat = brief(read_source("f", lines(*example)))
    bare = [{k: v for k, v in run.items() if k not in ("dotted_order", "trace_id", "parent_run_id")} for run in example]
    assert brief(read_source("f", lines(bare[0] | {"child_runs": bare[1:]}))) == flat
    as_text = [
        {key: json.dumps(value) if isinstance(value, dict) else value for key, value in run.items()} for run in example
    ]
    imported = read_source("f", lines(*reversed(as_text)))
    assert brief(imported) == flat
    assert rows(imported)[-1]["reward"] == 1


def sent(run: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run as it is posted when it begins, and the patch that ends it."""
    late = ("end_time", "outputs", "error", "total_cost", "feedback_stats")
    ends = {key: run[key] for key in ("id", "trace_id", "dotted_order", *late) if key in run}
    extra = {"metadata": {"thread_id": "th"}}
    return {key: value for key, value in run.items() if key not in late}, ends | {"inputs": {}, "extra": extra}


def sent_example() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [sent(json.loads(line)) for line in IMPORTERS["langsmith"].example.splitlines()]


def batch(*post: Any, patch: Any = ()) -> dict[str, Any]:
    return {"post": list(post), "patch": list(patch)}


def test_batches_of_langsmith_give_what_the_export_gives() -> None:
    exported = read_source("f", IMPORTERS["langsmith"].example)
    posts, patches = zip(*sent_example(), strict=True)
    whole = batch(*posts, patch=patches)
    several = [batch(*posts[:2]), batch(), batch(posts[2], patch=patches[:2]), batch(posts[3], patch=patches[2:])]
    patches_first = [{"patch": patches}, {"post": posts}]
    as_document = json.dumps(whole, indent=1).encode()
    concatenated = "\n".join(json.dumps(value, indent=1) for value in several).encode()
    for data, n in (
        (lines(whole), 1), (as_document, 1), (lines(*several), 4), (concatenated, 4), (lines(*patches_first), 2),
    ):  # fmt: skip
        imported = read_source("f", data)
        assert (imported.report.format, imported.report.problems) == ("langsmith", [])
        assert brief(imported) == brief(exported)
        assert imported.report.sentence().startswith(f"Read {n} of {n} batch{'' if n == 1 else 'es'}: 2 steps in 1")
        for column in ("reward", "latency_ms", "cost_usd", "temperature", "behavior_policy"):
            assert imported.steps[column].to_pylist() == exported.steps[column].to_pylist()
        assert json.loads(rows(imported)[-1]["metadata"])["trace"] == {"session": "th"}


def test_batches_of_langsmith_in_two_files_and_runs_that_failed() -> None:
    posts, patches = (list(part) for part in zip(*sent_example(), strict=True))
    patches[2] = patches[2] | {"outputs": None, "error": "KeyError(7)"}
    files = [("a.json", lines(batch(*posts))), ("b.json", lines(batch(patch=patches)))]
    for both in (files, files[::-1]):
        imported = read_sources(both)
        assert [row["error"] for row in rows(imported)] == ["KeyError(7)", None]
        assert (imported.report.n_records_read, imported.report.problems) == (2, [])


def test_real_runs_that_are_sent_in_batches_give_the_same_steps() -> None:
    path = shared_trace("langsmith/runs_flat.jsonl")
    runs = [sent(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    batches = [
        batch(*(post for post, _ in runs[n : n + 7]), patch=[patch for _, patch in runs[max(n - 5, 0) : n + 2]])
        for n in range(0, len(runs) + 5, 7)
    ]
    imported = read_source("f", lines(*batches))
    assert imported.report.problems == []
    assert brief(imported) == brief(real("langsmith/runs_flat.jsonl"))


def test_a_patch_without_its_run_is_told() -> None:
    posts, patches = zip(*sent_example(), strict=True)
    imported = read_source("f", lines(batch(*posts[:2], posts[3], patch=patches)))
    assert [(p.kind, p.lost, '"r3"' in p.excerpt) for p in imported.report.problems] == [
        ("patch without its run", True, True)
    ]
    assert [row["tool_result"] for row in rows(imported)] == [None, None]
    named = {"run_type": "tool", "name": "find_order", "parent_run_id": "r1"}
    imported = read_source(
        "f", lines(batch(*posts[:2], posts[3], patch=[p | named if p["id"] == "r3" else p for p in patches]))
    )
    assert kinds(imported)["patch without its run"] == 1
    assert imported.report.n_lost == 0
    assert [row["tool_result"] for row in rows(imported)] == ["on its way", None]
    without_patch = read_source("f", lines(batch(*posts, patch=patches[1:])))
    assert [row["reward"] for row in rows(without_patch)] == [None, None]


def test_what_is_no_run_in_a_batch_is_told_and_costs_no_other() -> None:
    posts, patches = zip(*sent_example(), strict=True)
    odd = batch(*posts, 3, {"id": "x"}, patch=[*patches, None, {"outputs": {}}])
    imported = read_source("f", lines(odd, {"post": [], "patch": {"id": "r1"}}))
    assert kinds(imported) == {"not a span": 5}
    assert len(rows(imported)) == 2


def test_mlflow_skips_invalid_assessments_and_reads_rows_of_tables() -> None:
    trace = json.loads(IMPORTERS["mlflow"].example)
    wrong = {"assessment_name": "correct", "valid": False, "feedback": {"value": False}}
    failed = {"assessment_name": "correct", "feedback": {"error": {"error_code": "E"}, "value": None}}
    expected = {"assessment_name": "truth", "expectation": {"value": 7}}
    trace["info"]["assessments"] += [wrong, failed, expected]
    row = {
        "trace_id": "tr-1", "assessments": trace["info"]["assessments"], "spans": trace["data"]["spans"], "tags": {},
    }  # fmt: skip
    for value in (trace, row, {"trace_id": "tr-1", "trace": json.dumps(trace)}):
        imported = read_source("f", lines(value))
        assert [row["reward"] for row in rows(imported)] == [None, 1]
        assert kinds(imported) == {"assessment not valid": 2}
        assert not any("7" in (row["state"] or "") and "truth" in row["state"] for row in rows(imported))


def test_the_reward_is_chosen_once_for_all_traces() -> None:
    def judged(name: str, **scores: Any) -> dict[str, Any]:
        found = [{"name": key, "value": value, "source": "EVAL"} for key, value in scores.items()]
        reply = span(name, "GENERATION", 0, None, traceId=name, output=says("x"))
        return {"trace": {"id": name, "scores": found}, "observations": [reply]}

    both = read_source("f", lines(judged("a", toxicity=0.9, Correctness=True), judged("b", toxicity=0.1)))
    assert [row["reward"] for row in rows(both)] == [1.0, None]  # never the toxicity, only because b has no other
    only = read_source("f", lines(judged("a", toxicity=0.9), judged("b")))
    assert [row["reward"] for row in rows(only)] == [0.9, None]
    two = read_source("f", lines(judged("a", success=1, reward=0)))
    assert [(row["reward"], row["reward_components"]) for row in rows(two)] == [(None, '{"reward":0.0,"success":1.0}')]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-05T10:00:00Z", 1767607200_000000000),
        ("2026-01-05T10:00:00", 1767607200_000000000),
        ("2026-01-05T12:00:00.123456789+02:00", 1767607200_123456000),
        ("20260105T100000123456", 1767607200_123456000),
        (1767607200, 1767607200_000000000),
        (1767607200.5, 1767607200_500000000),
        (1767607200123, 1767607200_123000000),
        (1767607200123456, 1767607200_123456000),
        (1767607200123456789, 1767607200_123456789),
        ("1767607200123456789", 1767607200_123456789),
        ([1767607200, 5], 1767607200_000000005),
        ("yesterday", None),
        (True, None),
        (float("nan"), None),
        (10**30, None),
        (None, None),
    ],
)
def test_times_are_read_by_form_and_size(value: Any, expected: int | None) -> None:
    assert time_ns(value) == expected


@pytest.mark.parametrize(
    ("value", "role", "name", "identity"),
    [
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "f", "input": {}}]}, "assistant", "f", "i"),
        ({"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}, "id": "i"}}]}, "assistant", "f", "i"),
        ({"content": {"parts": [{"function_call": {"name": "f", "args": {}, "id": "i"}}]}}, "assistant", "f", "i"),
        ({"type": "ai", "data": {"content": "", "tool_calls": [{"name": "f", "args": {}, "id": "i"}]}}, "assistant", "f", "i"),
        ([{"type": "function_call", "call_id": "i", "id": "fc", "name": "f", "arguments": "{}"}], "assistant", "f", "i"),
        ([{"toolCallId": "i", "toolName": "f", "input": "{}"}], "assistant", "f", "i"),
        ({"choices": [{"message": calls(("i", "f", {}))}]}, "assistant", "f", "i"),
        (json.dumps(json.dumps(calls(("i", "f", {})))), "assistant", "f", "i"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": "x"}]}, "tool", None, "i"),
        ({"role": "user", "parts": [{"type": "tool_call_response", "id": "i", "result": "x"}]}, "tool", None, "i"),
        ({"type": "function_call_output", "call_id": "i", "output": "x"}, "tool", None, "i"),
    ],
)  # fmt: skip
def test_messages_of_any_library(value: Any, role: str, name: str | None, identity: str) -> None:
    (message,) = messages_in(value)
    assert message.role == role
    assert [(call.name, call.id) for call in message.calls] == ([(name, identity)] if name else [])
    assert message.call_id == (None if name else identity)
    assert message.text in (("x",) if role == "tool" else (None, ""))


def test_reading_changes_no_record() -> None:
    value = {"role": "assistant", "tool_calls": [{"id": "i", "function": {"name": "f"}, "function.arguments": "{}"}]}
    before = copy.deepcopy(value)
    messages_in(value)
    assert value == before


def test_base64_ids_stay_apart() -> None:
    ids = [base64.b64encode(bytes([i])).decode() for i in (1, 2)]
    reply = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps([says("x")])}
    imported = read_source("f", otlp(*[{"traceId": i, "spanId": i, "attributes": reply} for i in ids]))
    assert [row["episode_id"] for row in rows(imported)] == ids


# -- damage --------------------------------------------------------------------------------------------------

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    2**70,
    1e308,
    float("nan"),
    "",
    "x",
    "{",
    "[]",
    '{"role": "user"}',
    [],
    [None],
    {},
    {"a": []},
]
QUICK = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


def places(value: Any) -> list[tuple[Any, Any]]:
    """All (container, key) inside a value."""
    found = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        found += [(value, key), *places(item)]
    return found


def damaged(value: Any, chance: random.Random) -> Any:
    """A copy in which a few values are dropped, doubled, exchanged or of another type."""
    root = [copy.deepcopy(value)]
    for _ in range(chance.randint(1, 4)):
        inside = places(root)
        container, key = chance.choice(inside)
        action = chance.randrange(4)
        if action == 0 and container is not root:
            del container[key]
        elif action == 1 and isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        elif action == 2:
            other, at = chance.choice(inside)
            container[key] = copy.deepcopy(other[at])
        else:
            container[key] = copy.deepcopy(chance.choice(ODD))
        if not root:
            return {}
    return root[0]


def undamaged(dialect: str) -> list[Any]:
    """The records of a dialect's example; those of LangSmith also as they are sent."""
    if dialect == "langsmith, sent":
        posts, patches = zip(*sent_example(), strict=True)
        return [batch(*posts[:3]), batch(posts[3], patch=patches)]
    return [json.loads(line) for line in IMPORTERS[dialect].example.splitlines()]


@pytest.mark.parametrize("dialect", [*DIALECTS, "langsmith, sent"])
@QUICK
@given(seed=st.integers(0, 2**32))
def test_damage_costs_at_most_the_damaged_and_is_reported(dialect: str, seed: int) -> None:
    chance = random.Random(seed)
    values = undamaged(dialect)
    values = [damaged(value, chance) if chance.random() < 0.7 else value for value in values]
    data = lines(*values)
    if chance.random() < 0.2:
        data = data[: chance.randrange(1, len(data) + 1)]
    try:
        imported = read_source("f", data, format=dialect.partition(",")[0])
    except TraceFormatError:
        return
    assert_accounts(imported.report)
    read = set(imported.records["record"].to_pylist())
    steps = rows(imported)
    assert {row["record"] for row in steps} <= read
    assert len({(row["episode_id"], row["t"]) for row in steps}) == len(steps)
    assert all(row["terminal"] is not True and math.isfinite(row["reward"] or 0) for row in steps)
