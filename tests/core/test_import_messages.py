"""Dialects of message lists: real files with known counts, and the rules on pairing, prefixes, trees and endings."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offrl_core.conversation import messages_of
from offrl_core.errors import TraceFormatError
from offrl_core.importers import IMPORTERS, Imported, read_source, read_sources
from tests.core.damage import assert_accounts
from tests.traces import shared_trace

DIALECTS = [
    "openai_chat", "tau2", "anthropic_messages", "claude_code", "codex", "langchain_messages", "adk", "gemini_cli",
    "sharegpt",
]  # fmt: skip


def lines(*records: Any) -> bytes:
    return "\n".join(json.dumps(record) for record in records).encode()


def read(*records: Any, **options: Any) -> Imported:
    return read_source("file.jsonl", lines(*records), **options)


def real(*names: str) -> Imported:
    return read_sources([(name.rpartition("/")[2], shared_trace(name).read_bytes()) for name in names])


def rows(imported: Imported) -> list[dict[str, Any]]:
    return list(imported.steps.to_pylist())


def column(imported: Imported, name: str) -> list[Any]:
    return list(imported.steps[name].to_pylist())


def metadata(row: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(row["metadata"] or "{}"))


def notes(imported: Imported) -> str:
    return "\n".join(imported.report.notes)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: Any, *calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text} | ({"tool_calls": list(calls)} if calls else {}) | fields


def call(name: str = "f", id: str | None = "call_1", **arguments: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def result(text: str, id: str | None = "call_1", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text} | fields


# -- real files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "format", "counts"),
    [
        # records read and in all, steps, episodes, problems
        ("openai_chat/invariant_sample_data.jsonl", "openai_chat", (3, 3, 9, 3, 1)),
        ("openai_chat/openhands_fncall_messages.json", "openai_chat", (14, 14, 6, 1, 0)),
        ("openai_chat/cookbook_drone_finetune_3rows.jsonl", "openai_chat", (3, 3, 3, 3, 0)),
        ("tau_bench/docent_tb_airline_single.json", "openai_chat", (1, 1, 20, 1, 0)),
        ("tau_bench/gpt-4o-airline_tasks0-5_4trials.json", "openai_chat", (24, 24, 350, 24, 0)),
        ("webarena/invariant_webarena_step_agent.jsonl", "openai_chat", (2, 2, 9, 2, 7)),
        ("anthropic_messages/anthropic_managed_custom_tools.jsonl", "anthropic_messages", (19, 19, 2, 1, 0)),
        ("claude_code/daaain_edge_cases.jsonl", "claude_code", (13, 19, 4, 2, 6)),
        ("claude_code/daaain_representative_messages.jsonl", "claude_code", (12, 12, 5, 1, 0)),
        ("damaged/utf8_bom_crlf.jsonl", "claude_code", (3, 3, 1, 1, 0)),
        ("langchain_langgraph/state_messages_to_dict.json", "langchain_messages", (3, 3, 8, 3, 0)),
        ("generic_jsonl/adk_flow_complex_spark.session.json", "adk", (1, 1, 6, 1, 0)),
    ],
)  # fmt: skip
def test_real_files_have_the_counts_that_one_finds_by_hand(name: str, format: str, counts: tuple[int, ...]) -> None:
    report = real(name).report
    assert report.format == format
    assert (report.n_records_read, report.n_records, report.n_steps, report.n_episodes, report.tally.total()) == counts


def test_the_parquet_of_tau_bench_gives_the_same_steps_as_its_json() -> None:
    flat = rows(real("hf_parquet/tau_airline_messages_nested.parquet"))
    nested = rows(real("tau_bench/gpt-4o-airline_tasks0-5_4trials.json"))
    for name in ("episode_id", "t", "action", "arguments_hash", "tool_result", "error", "reward", "message_index"):
        assert [row[name] for row in flat] == [row[name] for row in nested], name


def test_a_real_call_log_is_one_run_whose_decisions_stand_once() -> None:
    imported = real(*[f"openai_chat/litellm_call_log_{i}.json" for i in (2, 0, 1)])
    (whole,) = {tuple(column(imported, "action"))}
    # The same run was also saved as one list of messages.
    assert list(whole) == column(real("openai_chat/openhands_fncall_messages.json"), "action")
    assert set(column(imported, "episode_id")) == {"conversation-1"}
    assert "3 records are growing beginnings of 1 run" in notes(imported)
    logged = [row for row in rows(imported) if row["cost_usd"] is not None]
    assert [(row["t"], row["cost_usd"], row["temperature"]) for row in logged] == [
        (0, pytest.approx(0.016626), 0.0), (2, pytest.approx(0.020169), 0.0), (5, pytest.approx(0.023172), 0.0),
    ]  # fmt: skip
    assert [row["source_file"][-6] for row in rows(imported)] == ["0", "1", "1", "2", "2", "2"]
    assert [row["message_index"] for row in rows(imported)] == [2, 4, 6, 8, 10, 12]
    assert sum(row["tool_result"] is None for row in rows(imported)) == 1  # the last call; nothing follows it


def test_web_pages_before_any_call_are_what_the_agent_saw_first() -> None:
    imported = real("webarena/invariant_webarena_step_agent.jsonl")
    assert Counter(column(imported, "action")) == {"click": 3, "type": 2, "stop": 4}
    assert all(metadata(row)["thought"] for row in rows(imported))
    assert "2 results stand before any call" in notes(imported)
    assert "9 replies stood directly before a call without words" in notes(imported)
    assert imported.report.counts() == {"result paired by order": 7}


def test_a_real_managed_agent_pairs_its_custom_tool() -> None:
    first, second = rows(real("anthropic_messages/anthropic_managed_custom_tools.jsonl"))
    assert (first["tool"], first["arguments"]) == ("get_weather", '{"location":"Prague"}')
    assert first["tool_result"] == "It's 23°C and sunny in Prague."
    assert second["action"] == "message"
    assert json.loads(second["state"])["user_goal"] == "What's the weather in Prague?"


def test_real_langchain_states() -> None:
    found = rows(real("langchain_langgraph/state_messages_to_dict.json"))
    assert [(row["episode_id"], row["action"], row["call_index"]) for row in found] == [
        ("t0", "stock_level", 0), ("t0", "stock_level", 1), ("t0", "reorder", 0), ("t0", "message", 0),
        ("t1", "reorder", 0), ("t1", "message", 0), ("t2", "stock_level", 0), ("t2", "invalid", 0),
    ]  # fmt: skip
    assert [row["tool_result"] for row in found[:3]] == ["3", "0", '{"sku": "B7", "ordered": 50, "eta_days": 4}']
    assert [row["error"] is not None for row in found] == [False] * 4 + [True, False, True, False]
    assert (found[-1]["tool"], found[-1]["arguments_status"]) == ("stock_level", "malformed")


def test_a_real_adk_session_names_its_agents() -> None:
    found = rows(real("generic_jsonl/adk_flow_complex_spark.session.json"))
    assert [row["action_type"] for row in found] == ["handoff", *["message"] * 4, "handoff"]
    assert len({row["behavior_policy"] for row in found}) == 5
    assert json.loads(found[0]["tool_result"])["target_agent_name"] == "research_assistant"


def test_real_claude_code_sessions_are_told_apart_and_linked() -> None:
    names = ["agent_session", "agent-atest01", "clear_split_session", "compaction_session", "tool_call_conversation"]
    imported = real(*[f"claude_code/scout_{name}.jsonl" for name in names])
    assert Counter(column(imported, "episode_id")) == {
        "test-session-004": 2, "test-session-004/agent-atest01": 2, "test-session-003": 1,
        "test-session-003/after-clear-1": 1, "test-session-005": 2, "test-session-002": 2,
    }  # fmt: skip
    by_id = {(row["episode_id"], row["t"]): row for row in rows(imported)}
    assert {row["parent_episode"] for row in by_id.values()} == {None, "test-session-004"}
    assert by_id["test-session-004/agent-atest01", 0]["parent_episode"] == "test-session-004"
    assert metadata(by_id["test-session-004", 0])["agent_id"] == "atest01"
    goals = {id: json.loads(row["state"])["user_goal"] for id, row in by_id.items()}
    assert goals["test-session-003/after-clear-1", 0] == "Second conversation after clear"
    assert goals["test-session-005", 1] == "Start a long conversation"  # not the summary of the compaction
    after = json.loads(by_id["test-session-005", 1]["state"])
    assert after["conversation_history"] == {"messages": [2, 4], "record": 1}
    first = by_id["test-session-002", 0]
    assert metadata(first)["thought"].startswith("The user wants me to read the README file.")
    assert (first["behavior_policy"], first["latency_ms"]) == ("claude-code/2.0.76 claude-opus-4-5-20251101", 1000.0)


def test_the_broken_lines_of_a_real_fixture_are_named_by_their_number() -> None:
    imported = real("claude_code/daaain_edge_cases.jsonl")
    assert [(problem.record, problem.kind) for problem in imported.report.problems] == [
        (10, "no message"), (11, "no message"),
        *[(number, "not a line of a session") for number in (13, 14, 15, 16)],
    ]  # fmt: skip
    failing = next(row for row in rows(imported) if row["action"] == "FailingTool")
    assert (failing["error"], "error_guessed" in metadata(failing)) == (failing["tool_result"], False)


# -- chat messages: call logs, prefixes, branches ------------------------------------------------------------


def log(request: list[Any], reply: Any, id: str, **fields: Any) -> dict[str, Any]:
    return {"messages": request, "response": {"id": id, "model": "m", "choices": [{"message": reply}]}, **fields}


def test_a_log_that_leaves_a_run_in_its_middle_begins_at_the_fork() -> None:
    start = [user("q"), says("a"), user("b")]
    imported = read(
        log(start[:1], says("a"), "r1", cost=1),
        log(start, says(None, call(x=1)), "r2"),
        log(start, says("other"), "r3"),
        log([*start, says("other"), user("c")], says("end"), "r4"),
        log(start, says("other"), "r3"),
    )
    found = [(row["episode_id"], row["t"], row["action"], row["parent_episode"]) for row in rows(imported)]
    assert found == [
        ("conversation-1", 0, "message", None),
        ("conversation-1", 1, "f", None),
        ("conversation-3", 1, "message", "conversation-1"),
        ("conversation-3", 2, "message", "conversation-1"),
    ]
    assert imported.report.sentence() == "Read 5 of 5 conversations: 4 steps in 2 episodes; no problems."
    assert "1 conversation leave" in notes(imported)
    assert "1 record of a call that another record already logs" in notes(imported)


def test_what_a_call_cost_stands_once_though_its_tools_run_in_parallel() -> None:
    reply = says(None, call("f", "a"), call("g", "b"))
    imported = read(
        log([user("q")], reply, "r1", response_cost=0.5, latency_ms=20, kwargs={"temperature": 0.7}, reward=1)
    )
    assert [(row["cost_usd"], row["latency_ms"], row["temperature"], row["reward"]) for row in rows(imported)] == [
        (0.5, 20.0, 0.7, None), (None, None, 0.7, 1.0),
    ]  # fmt: skip


def test_runs_that_only_look_alike_stay_apart() -> None:
    greeting = [user("hi"), says("How can I help?")]
    same = [log(greeting[:1], greeting[1], id) for id in ("r1", "r2")]
    longer = [log([*greeting, user(text)], says("done"), id) for text, id in (("x", "r3"), ("y", "r4"))]
    assert Counter(column(read(*same, *longer), "episode_id")) == {"conversation-1": 2, "conversation-2": 2}
    trials = [{"messages": [*greeting, user(text), says("ok")]} for text in ("x", "y")]
    assert Counter(column(read(*trials), "episode_id")) == {"conversation-1": 2, "conversation-2": 2}


def test_a_copy_of_a_run_is_taken_once_and_a_question_without_an_answer_adds_nothing() -> None:
    id = "call_abcdefghijkl"
    talk = [user("find it"), says(None, call("f", id, a=1)), result("here", id), says("done")]
    asked_again = [*talk[:3], user("and?")]
    imported = read_source("f", lines(*({"messages": messages} for messages in (talk, talk, asked_again))))
    assert imported.report.sentence() == "Read 3 of 3 conversations: 2 steps in 1 episode; no problems."
    assert "1 conversation came again word for word" in notes(imported)


def test_records_per_turn_are_one_conversation_and_share_a_telling_call_id_at_forks() -> None:
    first = [user("q"), says(None, call(id="call_wrrKpr7XnsTaNcHp3nss")), result("1", "call_wrrKpr7XnsTaNcHp3nss")]
    records = [{"messages": m} for m in (first[:2], first, [*first, says("A")], [*first, says("B")])]
    imported = read(*records)
    assert [(row["episode_id"], row["t"], row["record"]) for row in rows(imported)] == [
        ("conversation-1", 0, 1), ("conversation-1", 1, 3), ("conversation-4", 1, 4),
    ]  # fmt: skip
    assert rows(imported)[0]["tool_result"] == "1"
    assert imported.report.sentence() == "Read 4 of 4 conversations: 3 steps in 2 episodes; no problems."


@pytest.mark.parametrize(
    ("rewards", "expected"), [((0.2, 0.8), [0.2, 0.8]), ((1, 1), [None, 1.0]), ((None, 1), [None, 1.0])]
)
def test_rewards_of_records_that_grow(rewards: Any, expected: list[Any]) -> None:
    messages = [user("q"), says("a"), user("b"), says("c")]
    records = [{"messages": messages[:n], "reward": reward} for n, reward in zip((2, 4), rewards, strict=True)]
    assert column(read(*records), "reward") == expected


def test_items_of_the_responses_api_are_read_reply_by_reply() -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x": 1}'},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "two"},
        {"type": "function_call_output", "call_id": "a", "output": "one"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    response = {"id": "resp_1", "object": "response", "input": items[:-1], "output": items[-1:]}
    for imported in (read({"id": "x", "messages": items}), read(response), read(*items)):
        f, g, done = rows(imported)
        assert [row["tool_result"] for row in (f, g)] == ["one", "two"]
        assert (f["decision_id"] == g["decision_id"], metadata(f)["thought"]) == (True, "hm")
        assert (done["arguments"], f["message_index"], done["message_index"]) == ('{"text":"done"}', 2, 6)
        assert imported.report.problems == []


def test_conversations_with_roles_are_messages_and_commands_of_terminus_are_calls() -> None:
    def reply(*keystrokes: str, **fields: Any) -> str:
        return json.dumps(
            {"analysis": "hm", "plan": "look", "commands": [{"keystrokes": text} for text in keystrokes]} | fields
        )

    said = [user("The task."), says("<think>first</think>\n" + reply("ls\n", "cat a\n")), user("a"), user("(a hint)")]
    done = [says(reply(task_complete=True)), user("Are you sure?"), says("not JSON")]
    told = {"agent": "terminus-2", "model": "m", "task": "t-1", "trial_name": "t-1__x"}
    imported = read(told | {"episode": "episode-0", "conversations": said}, told | {"conversations": [*said, *done]})
    assert [(row["action"], row["tool_result"]) for row in rows(imported)] == [
        ("bash_command", None), ("bash_command", "a"), ("mark_task_complete", "Are you sure?"), ("message", None),
    ]  # fmt: skip
    assert {(row["episode_id"], row["task"], row["behavior_policy"]) for row in rows(imported)} == {
        ("t-1__x", "t-1", "m")
    }
    assert metadata(rows(imported)[0])["thought"] == "first\nhm\nlook"
    assert imported.report.problems == []
    plain = read({"conversations": [user("q"), says(reply("ls\n"))]})
    assert (plain.report.format, column(plain, "action")) == ("openai_chat", ["message"])


def test_pictures_leave_a_mark_and_metadata_rows_are_counted() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 999}}
    imported = read(
        {"metadata": {"about": "x"}}, {"messages": [user([{"type": "text", "text": "q"}, picture]), says("a")]}
    )
    assert json.loads(rows(imported)[0]["state"])["user_goal"] == "q\n[image_url]"
    assert imported.report.sentence().startswith("Read 1 of 1 conversation")
    assert "only metadata of a file, and give no step: 1" in notes(imported)


def test_a_late_result_finds_its_call_by_an_id_that_is_used_once() -> None:
    calls = [says(None, call(id=id)) for id in ("slow", "quick")]
    imported = read([user("q"), *calls, result("1", "slow"), result("2", "quick")], [says("x")])
    assert column(imported, "tool_result")[:2] == ["1", "2"]
    assert imported.report.problems == []


def test_ids_that_two_files_use_are_told_apart_by_the_file() -> None:
    data = lines({"id": "run", "messages": [user("q"), says("a")]})
    imported = read_sources([("one.jsonl", data), ("two.jsonl", data.replace(b'"a"', b'"b"'))])
    assert column(imported, "episode_id") == ["run", "two/run"]
    assert imported.report.problems == []


# -- tau2 ----------------------------------------------------------------------------------------------------


def simulation(**fields: Any) -> dict[str, Any]:
    messages = [user("q"), says("a", cost=0.5), user("###STOP###")]
    return {"task_id": "7", "trial": 1, "messages": messages, "reward_info": {"reward": 0.0}} | fields


@pytest.mark.parametrize(
    ("reason", "end", "reward"),
    [
        ("user_stop", "terminated", 0.0),
        ("max_steps", "truncated", 0.0),
        ("infrastructure_error", "cut", None),
        ("new", "unknown", 0.0),
    ],
)
def test_a_failure_of_the_infrastructure_is_no_failure_of_the_agent(
    reason: str, end: str, reward: float | None
) -> None:
    (row,) = rows(read(simulation(termination_reason=reason)))
    assert (row["episode_id"], row["end_reason"], row["reward"], row["cost_usd"]) == ("task7-trial1", end, reward, 0.5)


def test_what_the_simulated_user_calls_is_no_decision() -> None:
    imported = read_source("results.json", IMPORTERS["tau2"].example)
    assert column(imported, "action") == ["get_line", "message"]
    assert column(imported, "tool_result") == ["active", "It works. ###STOP###"]
    assert "Tool calls of the simulated user: 1." in notes(imported)
    assert imported.report.problems == []


def test_results_without_simulations_and_voice_runs_say_what_is_missing() -> None:
    for record, words in (
        ({"info": {}, "tasks": [], "simulations": []}, "folder"),
        ({"ticks": [], "termination_reason": "x"}, "voice"),
    ):
        with pytest.raises(TraceFormatError, match=words):
            read(record)


# -- Anthropic -----------------------------------------------------------------------------------------------


def use(id: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def came(id: str, text: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": text}


def block_reply(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def test_blocks_are_calls_results_and_thoughts() -> None:
    text = {"type": "text", "text": "I look."}
    results = [came("b", [{"type": "text", "text": "no"}]) | {"is_error": True}, came("a", ""), text]
    messages = [
        user("q"),
        block_reply({"type": "thinking", "thinking": "hm"}, text, use("a"), use("b") | {"input": 3}),
        user(results),
        block_reply({"type": "text", "text": "done"}),
    ]
    imported = read({"model": "m", "messages": messages})
    first, second, last = rows(imported)
    assert imported.report.format == "anthropic_messages"
    assert (first["tool_result"], first["error"], metadata(first)["thought"]) == ("", None, "hm\n\nI look.")
    assert (second["tool_result"], second["error"], second["arguments_status"]) == ("no", "no", "non_object")
    assert last["action"] == "message"
    assert imported.report.problems == []


def test_blocks_that_call_everything_value_hold_calls_and_thoughts() -> None:
    def block(kind: str, value: str) -> dict[str, Any]:
        return {"type": kind, "value": value}

    wanted = [block("tool_call", json.dumps({"name": name, "arguments": {"x": 1}})) for name in ("f", "g")]
    conversation = {"messages": [
        user([block("text", "q")]),
        block_reply(block("reasoning", "hm"), *wanted),
        {"role": "tool", "content": [block("text", "one")]},
        {"role": "tool", "content": [block("text", "two")]},
        block_reply(block("text", "done")),
    ]}  # fmt: skip
    imported = read(conversation)
    found = [(row["action"], row["arguments"], row["tool_result"]) for row in rows(imported)]
    assert found == [("f", '{"x":1}', "one"), ("g", '{"x":1}', "two"), ("message", '{"text":"done"}', None)]
    assert metadata(rows(imported)[0])["thought"] == "hm"
    assert json.loads(rows(imported)[0]["state"])["user_goal"] == "q"
    assert imported.report.counts() == {"result paired by order": 2}


# -- Claude Code ---------------------------------------------------------------------------------------------


def line(
    uuid: str, parent: str | None, content: Any, *, reply: str = "", session: str = "s", **fields: Any
) -> dict[str, Any]:
    message = {"role": "assistant", "id": reply, "model": "m"} if reply else {"role": "user"}
    return {
        "type": "assistant" if reply else "user", "uuid": uuid, "parentUuid": parent, "sessionId": session,
        "isSidechain": False, "message": message | {"content": content},
    } | fields  # fmt: skip


@pytest.mark.parametrize("goes_on_after", ["4", "5"])
def test_parallel_calls_fork_the_tree_without_leaving_anything_behind(goes_on_after: str) -> None:
    imported = read(
        line("1", None, "q"),
        line("2", "1", [use("a")], reply="m1"),
        line("3", "2", [use("b")], reply="m1"),
        line("4", "2", [came("a", "one")]),
        line("5", "3", [came("b", "two")]),
        line("6", goes_on_after, [{"type": "text", "text": "done"}], reply="m2"),
    )
    assert [(row["t"], row["call_index"], row["tool_result"]) for row in rows(imported)] == [
        (0, 0, "one"), (1, 1, "two"), (2, 0, None),
    ]  # fmt: skip
    assert set(column(imported, "parent_episode")) == {None}


def test_what_a_rewind_left_behind_is_an_episode_that_begins_at_the_fork() -> None:
    imported = read(
        line("1", None, "q"),
        line("2", "1", "first answer", reply="m1"),
        line("3", "2", "try this"),
        line("4", "3", "left behind", reply="m2"),
        line("5", "2", "or rather that"),
        line("6", "5", "kept", reply="m3"),
        {"type": "summary", "summary": "x", "leafUuid": "6"},
    )
    assert [(row["episode_id"], row["t"], row["parent_episode"], row["arguments"]) for row in rows(imported)] == [
        ("s", 0, None, '{"text":"first answer"}'), ("s", 1, None, '{"text":"kept"}'),
        ("s/left-at-line-3", 1, "s", '{"text":"left behind"}'),
    ]  # fmt: skip
    assert "1 part of session s lies on ways that the user left by going back" in notes(imported)
    assert imported.report.sentence() == "Read 7 of 7 lines: 3 steps in 2 episodes; no problems."


def test_a_branch_of_a_branch_goes_on_where_it_leaves_it_and_says_each_problem_once() -> None:
    imported = read(
        line("1", None, "q"),
        line("2", "1", [use("a")], reply="m1"),
        line("3", "2", [came("a", "A"), came("unknown", "?")]),
        line("4", "3", "left", reply="m2"),
        line("5", "4", [use("b")], reply="m3"),
        line("6", "4", "left again", reply="m4"),
        line("7", "3", "kept", reply="m5"),
    )
    assert [(row["episode_id"], row["t"], row["parent_episode"], row["message_index"]) for row in rows(imported)] == [
        ("s", 0, None, 1), ("s", 1, None, 6),
        ("s/left-at-line-4", 1, "s", 3), ("s/left-at-line-4", 2, "s", 5),
        ("s/left-at-line-5", 2, "s/left-at-line-4", 4),
    ]  # fmt: skip
    assert imported.report.counts() == {"result without a call": 1}


def test_a_resumed_session_does_not_repeat_what_it_copies() -> None:
    old = [line("1", None, "q"), line("2", "1", "a", reply="m1")]
    copied = [record | {"sessionId": "t"} for record in old]
    new = [line("3", "2", "more", session="t"), line("4", "3", "b", reply="m2", session="t")]
    imported = read_sources([("s.jsonl", lines(*old)), ("t.jsonl", lines(*copied, *new))])
    assert [(row["episode_id"], row["parent_episode"], row["arguments"]) for row in rows(imported)] == [
        ("s", None, '{"text":"a"}'), ("t", "s", '{"text":"b"}'),
    ]  # fmt: skip
    assert "2 lines of an earlier session came again" in notes(imported)


def test_lines_without_a_session_are_one_that_is_called_like_the_file() -> None:
    def bare(*args: Any, **fields: Any) -> dict[str, Any]:
        return {key: value for key, value in line(*args, **fields).items() if key != "sessionId"}

    imported = read(
        {"type": "custom-title", "customTitle": "A title"},
        bare("1", None, "q"),
        bare("2", "1", [use("a")], reply="m1"),
        bare("3", "2", [came("a", "one")]),
        bare("4", "3", "done", reply="m2"),
    )
    assert (imported.report.format, imported.report.problems) == ("claude_code", [])
    assert [(row["episode_id"], row["action"], row["tool_result"]) for row in rows(imported)] == [
        ("file", "Bash", "one"), ("file", "message", None),
    ]  # fmt: skip


def test_lines_that_name_no_place_in_a_session_follow_each_other() -> None:
    imported = read(
        {"type": "user", "message": user("q")},
        {"type": "assistant", "message": block_reply(use("a"))},
        {"type": "user", "message": user([came("a", "one")])},
        {"type": "assistant", "message": block_reply({"type": "text", "text": "done"})},
    )
    assert (imported.report.format, imported.report.problems) == ("claude_code", [])
    assert [(row["action"], row["tool_result"]) for row in rows(imported)] == [("Bash", "one"), ("message", None)]


def test_what_the_program_notes_of_a_session_is_no_damage() -> None:
    imported = read(
        line("1", None, "q"),
        {"type": "permission-mode", "permissionMode": "plan", "sessionId": "s"},
        {"type": "last-prompt", "lastPrompt": "q", "sessionId": "s"},
        line("2", "1", "done", reply="m1"),
    )
    assert (column(imported, "action"), imported.report.problems) == (["message"], [])
    assert "permission-mode 1, last-prompt 1" in notes(imported)


def test_sidechains_of_one_file_belong_to_the_call_that_started_them() -> None:
    imported = read(
        line("1", None, "q"),
        line("2", "1", [use("a", "Task", prompt="look"), use("b", "Task", prompt="read")], reply="m1"),
        line("x1", None, "look", isSidechain=True),
        line("y1", None, "read", isSidechain=True),
        line("x2", "x1", [use("c", "Task", prompt="deeper")], reply="m2", isSidechain=True),
        line("y2", "y1", "read it", reply="m3", isSidechain=True),
        line("z1", None, "deeper", isSidechain=True),
        line("z2", "z1", "found", reply="m4", isSidechain=True),
        line("3", "2", [came("a", "A"), came("b", "B")]),
        line("4", "3", "done", reply="m5"),
    )
    parents = {row["episode_id"]: row["parent_episode"] for row in rows(imported)}
    assert parents == {"s": None, "s/agent-x1": "s", "s/agent-y1": "s", "s/agent-z1": "s/agent-x1"}


def test_words_of_the_program_are_neither_goal_nor_answer_nor_decision() -> None:
    imported = read(
        line("1", None, "Caveat: The messages below were generated by the user while running local commands"),
        line("2", "1", "<command-name>/model</command-name>"),
        line("3", "2", "hidden", isMeta=True),
        line("4", "3", "the goal"),
        line("5", "4", "answer", reply="m1"),
        line("6", "5", "API Error: 529", reply="m2", isApiErrorMessage=True),
        line("7", "6", "[Request interrupted by user]"),
    )
    (row,) = rows(imported)
    assert json.loads(row["state"])["user_goal"] == "the goal"
    assert row["tool_result"] is None


@pytest.mark.parametrize(
    ("subtype", "end"),
    [("success", "terminated"), ("error_max_turns", "truncated"), ("error_during_execution", "unknown")],
)
def test_the_output_of_stream_json_ends_with_its_cost(subtype: str, end: str) -> None:
    def said(kind: str, content: Any, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "session_id": "s", "message": {"role": kind, "id": "m1", "content": content}, **fields}

    imported = read(
        {"type": "system", "subtype": "init", "session_id": "s", "tools": ["Bash"], "model": "m"},
        said("assistant", [{"type": "text", "text": "I run it."}]),
        said("assistant", [use("a")]),
        said("user", [came("a", "ok")]),
        {"type": "result", "subtype": subtype, "is_error": False, "total_cost_usd": 0.25, "session_id": "s"},
    )
    (row,) = rows(imported)
    assert (row["cost_usd"], row["end_reason"], row["available_tools"]) == (0.25, end, ["Bash", "message"])
    assert (row["tool_result"], metadata(row)["cost_usd_of"]) == ("ok", "the whole run")


# -- Codex, LangChain, Gemini --------------------------------------------------------------------------------


def printed(kind: str, item_kind: str, number: int, **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{kind}", "item": {"id": f"item_{number}", "type": item_kind, **fields}}


def test_what_codex_prints_is_read_like_its_session_files() -> None:
    first = [
        {"type": "thread.started", "thread_id": "t1"},
        {"type": "turn.started"},
        printed("completed", "reasoning", 0, text="I look."),
        printed("started", "command_execution", 1, command="ls", aggregated_output="", status="in_progress"),
        printed(
            "completed", "command_execution", 1, command="ls", aggregated_output="no", exit_code=2, status="failed"
        ),
        printed(
            "completed", "mcp_tool_call", 2, tool="find", arguments={"q": 1}, error={"message": "down"}, status="failed"
        ),
        printed("updated", "todo_list", 3, items=[{"text": "a", "completed": False}]),
        printed("completed", "todo_list", 3, items=[{"text": "a", "completed": True}]),
        printed("completed", "agent_message", 4, text="Nothing there."),
        {"type": "turn.completed", "usage": {"input_tokens": 5}},
    ]
    second = [{"type": "turn.started"}, printed("started", "command_execution", 0, command="pwd", status="in_progress")]
    imported = read(*first, *second)
    assert (imported.report.format, imported.report.problems) == ("codex", [])
    found = rows(imported)
    assert [row["action"] for row in found] == ["shell", "find", "update_plan", "message", "shell"]
    assert [row["arguments"] for row in found[:2]] == ['{"command":"ls"}', '{"q":1}']
    assert [(row["tool_result"], bool(row["error"])) for row in found[:2]] == [("no", True), ("down", True)]
    assert (found[-1]["tool_result"], metadata(found[0])["thought"]) == (None, "I look.")
    assert {row["episode_id"] for row in found} == {"t1"}
    lines = [json.loads(line) for line in IMPORTERS["codex"].example.splitlines()]
    mixed = read(*lines, *first)  # nobody writes this, but it must not stop the session
    assert column(mixed, "action") == ["shell", "message"]
    assert "printed line in a session file 10" in notes(mixed)


@pytest.mark.parametrize("kind", [["x"], {"a": 1}, 3, True])
def test_a_printed_item_of_no_kind_costs_its_line_only(kind: Any) -> None:
    printed = [
        {"type": "thread.started", "thread_id": "t"},
        {"type": "item.completed", "item": {"id": "i", "type": kind}},
        {"type": "item.completed", "item": {"id": "j", "type": "agent_message", "text": "Done."}},
    ]
    imported = read_source("f", "\n".join(map(json.dumps, printed)).encode())
    assert [(p.record, p.kind) for p in imported.report.problems] == [(2, "not a line of a session")]
    assert column(imported, "action") == ["message"]


def test_codex_takes_its_steps_from_items_only() -> None:
    first, last = rows(read_source("rollout.jsonl", IMPORTERS["codex"].example))
    assert (first["tool"], first["tool_result"], first["error"]) == ("shell", "1 failed", "1 failed")
    assert (first["behavior_policy"], metadata(first)["thought"]) == ("codex/0.44.0 gpt-5-codex", "I start pytest.")
    assert last["action"] == "message"


def test_an_older_session_of_codex_is_one_document_with_items() -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "function_call", "call_id": "c", "name": "shell", "arguments": '{"command": ["ls"]}'},
        {"type": "function_call_output", "call_id": "c", "output": "a.py"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    imported = read({"session": {"id": "s", "timestamp": "2025-04-20T10:00:00Z"}, "items": items})
    assert [(row["action"], row["tool_result"]) for row in rows(imported)] == [("shell", "a.py"), ("message", None)]
    assert imported.report.problems == []


def test_new_kinds_of_lines_of_codex_are_counted_and_no_damage() -> None:
    def written(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-01-01T10:00:00Z", "type": kind, "payload": payload}

    imported = read(
        written("session_meta", id="s"),
        written("world_state", full=True),
        written("response_item", type="message", role="user", content=[{"type": "input_text", "text": "q"}]),
        written("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "done"}]),
    )
    assert (imported.report.format, imported.report.problems) == ("codex", [])
    assert column(imported, "arguments") == ['{"text":"done"}']
    assert "world_state 1" in notes(imported)


def test_three_spellings_of_langchain_give_the_same_steps() -> None:
    def spelled(spelling: str, kind: str, **data: Any) -> dict[str, Any]:
        if spelling == "flat":
            return {"type": kind, **data}
        if spelling == "data":
            return {"type": kind, "data": data}
        name = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}[kind]
        return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name], "kwargs": data}

    found = []
    for spelling in ("flat", "data", "constructor"):
        provider = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
        messages = [
            spelled(spelling, "human", content="q"),
            spelled(
                spelling,
                "ai",
                content="",
                tool_calls=[{"name": "f", "args": {}, "id": "c"}],
                additional_kwargs=provider,
            ),
            spelled(spelling, "tool", content="no", tool_call_id="c", status="error"),
            spelled(spelling, "ai", content=[{"type": "text", "text": "sorry"}]),
        ]
        for record in ({"messages": messages}, {"values": {"messages": messages}}, messages):
            imported = read(record, record)
            assert (imported.report.format, imported.report.problems) == ("langchain_messages", [])
            found.append(
                [(row["action"], row["tool_result"], row["error"], row["arguments"]) for row in rows(imported)]
            )
    assert found == [[("f", "no", "no", "{}"), ("message", None, None, '{"text":"sorry"}')] * 2] * 9


def test_gemini_contents_pair_by_name_and_streamed_pieces_give_no_step() -> None:
    def content(role: str, *parts: Any, **event: Any) -> dict[str, Any]:
        return (
            {"role": role, "parts": list(parts)}
            if not event
            else {"content": {"role": role, "parts": list(parts)}, **event}
        )

    calls = [{"functionCall": {"name": name, "args": {}}} for name in ("f", "g")]
    answers = [{"functionResponse": {"name": name, "response": {"result": name}}} for name in ("g", "f")]
    imported = read({"contents": [content("user", {"text": "q"}), content("model", *calls), content("user", *answers)]})
    assert [(row["tool"], row["tool_result"]) for row in rows(imported)] == [("f", "f"), ("g", "g")]
    events = [
        content("user", {"text": "q"}, author="user"),
        content("model", {"text": "pie"}, author="a", partial=True),
        content("model", {"text": "piece"}, author="a"),
    ]
    imported = read({"id": "x", "events": events})
    assert column(imported, "arguments") == ['{"text":"piece"}']
    assert "piece of a streamed reply 1" in notes(imported)


# -- evalsets of ADK -----------------------------------------------------------------------------------------


def spoken(role: str | None, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def invocation(asked: str, answer: str | None, **between: Any) -> dict[str, Any]:
    final = None if answer is None else spoken("model", answer)
    return {
        "invocation_id": "i",
        "user_content": spoken("user", asked),
        "final_response": final,
        "intermediate_data": between,
    }


USES = [{"id": "b", "name": "g", "args": {"x": 1}}, {"name": "f", "args": {"x": 2}}, {"name": "f", "args": {}}]
RESPONSES = [{"name": "f", "response": {"result": "first f"}}, {"id": "b", "name": "g", "response": {"error": "no g"}}]
CASE = {
    "eval_id": "refund",
    "conversation": [
        invocation(
            "q", "done", tool_uses=USES, tool_responses=RESPONSES, intermediate_responses=[["helper", [{"text": "hm"}]]]
        ),
        invocation("thanks", "bye"),
    ],
    "session_input": {"app_name": "shop", "user_id": "u", "state": {}},
}
EVENTS = [
    {"author": "helper", "content": spoken("model", {"function_call": {"id": "a", "name": "f", "args": {"x": 1}}})},
    {
        "author": "helper",
        "content": spoken("user", {"function_response": {"id": "a", "name": "f", "response": {"result": "r"}}}),
    },
    {"author": "helper", "content": spoken(None, "on it")},
]


def in_javascript(value: Any) -> Any:
    """The value with the names of its fields as JavaScript has them."""
    if isinstance(value, list):
        return [in_javascript(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {key: "".join([key.split("_")[0], *map(str.capitalize, key.split("_")[1:])]) for key in value}
    return {renamed[key]: in_javascript(item) for key, item in value.items()}


@pytest.mark.parametrize("form", [lambda value: value, in_javascript], ids=["python", "javascript"])
def test_each_case_of_an_evalset_is_a_run(form: Any) -> None:
    logged = {"eval_id": "logged", "conversation": [invocation("q", "on it", invocation_events=EVENTS)]}
    scenario = {"eval_id": "s", "conversation_scenario": {"starting_prompt": "hi", "conversation_plan": "be rude"}}
    imported = read(form({"eval_set_id": "set", "eval_cases": [CASE, logged, scenario, {"eval_id": "odd"}]}))
    assert imported.report.format == "adk"
    assert imported.report.sentence() == "Read 3 of 4 cases (1 lost): 8 steps in 2 episodes; 1 problem."
    assert [(row["episode_id"], row["action"], row["tool_result"], row["error"]) for row in rows(imported)] == [
        ("refund", "g", '{"error":"no g"}', "no g"), ("refund", "f", "first f", None), ("refund", "f", None, None),
        ("refund", "message", None, None), ("refund", "message", "thanks", None), ("refund", "message", None, None),
        ("logged", "f", "r", None), ("logged", "message", None, None),
    ]  # fmt: skip
    assert [row["arguments"] for row in rows(imported)][:4] == ['{"x":1}', '{"x":2}', "{}", '{"text":"hm"}']
    assert [row["behavior_policy"] for row in rows(imported)][3:5] == ["helper", None]
    assert {row["task"] for row in rows(imported)} == {"refund", "logged"}
    assert all(row["reward"] is None for row in rows(imported))
    assert "what an agent is expected to do" in notes(imported)
    assert "a scenario for a simulated user, and give no step: 1" in notes(imported)
    raw = {(record["source_file"], record["record"]): record["raw"] for record in imported.records.to_pylist()}
    for row in rows(imported):
        (acting,) = [m for m in messages_of(raw[row["source_file"], row["record"]], row["message_index"]) if m.acting]
        assert (row["tool"] or json.loads(row["arguments"])["text"]) in acting.text


def test_results_of_an_evaluation_hold_what_was_done_and_the_verdict() -> None:
    def judged(status: Any, **fields: Any) -> dict[str, Any]:
        metrics = [
            {"metric_name": "response_match_score", "score": 0.5, "eval_status": status},
            {"metric_name": "x", "score": None},
        ]
        return {
            "eval_id": "c",
            "eval_set_id": "set",
            "final_eval_status": status,
            "overall_eval_metric_results": metrics,
        } | fields

    told = [
        {
            "actual_invocation": invocation("q", "mine", tool_uses=USES[:1]),
            "expected_invocation": invocation("q", "yours"),
        }
    ]
    session = {"id": "s", "app_name": "shop", "events": [{"author": "user", "content": spoken("user", "q")}, *EVENTS]}
    cases = [
        judged(1, eval_metric_result_per_invocation=told),
        judged("FAILED", eval_metric_result_per_invocation=[], session_details=session),
        judged(3, eval_metric_result_per_invocation=told),
    ]
    results = {"eval_set_result_id": "r", "eval_set_id": "set", "eval_case_results": cases}
    twice = read_source("f", json.dumps(json.dumps(results)).encode())  # as some versions write it
    assert column(twice, "reward") == [None, 1.0, None, 0.0, None, None]
    imported = read(results)
    assert [(row["episode_id"], row["action"], row["reward"]) for row in rows(imported)] == [
        ("c", "g", None), ("c", "message", 1.0), ("c#2", "f", None), ("c#2", "message", 0.0),
        ("c#3", "g", None), ("c#3", "message", None),
    ]  # fmt: skip
    assert [row["arguments"] for row in rows(imported)][1] == '{"text":"mine"}'
    assert set(column(imported, "reward_components")) == {None, '{"response_match_score":0.5}'}
    assert not any("yours" in (row["state"] or "") for row in rows(imported))


# -- calls written as text -----------------------------------------------------------------------------------

OFFER = {"role": "system", "content": "Call tools as <tool_call>{json}</tool_call>. <tools>[]</tools>"}
QWEN = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
CODER = "<tool_call>\n<function=f>\n<parameter=x>\na\n  b\n</parameter>\n</function>\n</tool_call>"
HANDS = "<function=f>\n<parameter=x>1</parameter>\n<parameter=y>\n</parameter>\n</function>"


def answers(*texts: str) -> dict[str, Any]:
    return user("\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts))


@pytest.mark.parametrize(
    ("text", "arguments", "status", "raw"),
    [
        (QWEN, {"x": 1}, "object", None),
        (QWEN.replace("\n", ""), {"x": 1}, "object", None),
        (QWEN.replace("arguments", "parameters"), {"x": 1}, "object", None),
        (QWEN.replace("arguments", "kwargs"), {"x": 1}, "object", None),
        (QWEN.replace("{", "{ ").replace("\n", "\r\n"), {"x": 1}, "object", None),
        ("<think>\nhm\n</think>" + QWEN + "<|im_end|>", {"x": 1}, "object", None),
        ("<tool_call>{'arguments': {'x': True}, 'name': 'f'}</tool_call>", {"x": True}, "python_literal",
         "{'arguments': {'x': True}, 'name': 'f'}"),
        ('<tool_call>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_call>', {"x": 1}, "json_string", '{"x": 1}'),
        ('<tool_call>{"name": "f", "arguments": "{\\"x\\": "}</tool_call>', None, "malformed", '{"x": '),
        ('<tool_call>{"name": "f", "arguments": [1]}</tool_call>', [1], "non_object", None),
        ('<tool_call>{"name": "f", "arguments": ""}</tool_call>', None, "empty", ""),
        ('<tool_call>{"name": "f"}</tool_call>', None, "absent", None),
        (CODER, {"x": "a\n  b"}, "object", "<parameter=x>\na\n  b\n</parameter>"),
        (HANDS, {"x": "1", "y": ""}, "object", "<parameter=x>1</parameter>\n<parameter=y>\n</parameter>"),
        ("<function=f>\n</function>", {}, "object", None),
        ("```ls``` it is\n```\n<tool_call>\n```\n" + QWEN, {"x": 1}, "object", None),
        ("<function=f>\n<parameter=x>\n```\n</parameter> is no end\n</parameter>\n</function>",
         {"x": "```\n</parameter> is no end"}, "object", "<parameter=x>\n```\n</parameter> is no end\n</parameter>"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["openai_chat", "sharegpt"])
def test_a_call_that_stands_as_tags_in_a_reply_is_one(
    form: str, text: str, arguments: Any, status: str, raw: str | None
) -> None:
    said = [("system", OFFER["content"]), ("human", "q"), ("gpt", f"I look.\n{text}"), ("tool", "seen")]
    turns = [{"from": speaker, "value": value} for speaker, value in said]
    messages = [OFFER, user("q"), says(f"I look.\n{text}"), {"role": "tool", "content": "seen"}]
    imported = read({"messages": messages} if form == "openai_chat" else {"conversations": turns})
    (row,) = rows(imported)
    assert imported.report.format == form
    assert (row["action"], row["action_type"], row["tool_result"]) == ("f", "tool_call", "seen")
    assert (row["arguments"], row["arguments_status"], row["arguments_raw"]) == (
        None if arguments is None else json.dumps(arguments, separators=(",", ":")), status, raw,
    )  # fmt: skip
    assert metadata(row)["thought"].startswith("I look.")
    assert imported.report.counts() == ({"broken arguments": 1} if status == "malformed" else {})


NO_CALLS = [
    f"Write it so:\n```\n{QWEN}\n```",
    f"Write it so:\n~~~xml\n{CODER}",
    f"I would write {QWEN}",
    f"{QWEN}\nThat is how a call looks.",
    '<tool_call>\n{"name": "f", "arguments": {"x": 1}\n</tool_call>',
    '<tool_call>\n{"name": "", "arguments": {}}\n</tool_call>',
    "<tool_call>\n[1]\n</tool_call>",
    f"{QWEN}\n<tool_call>\n{{\n</tool_call>",
    "<function=f>\n<parameter=x>1\n</function>",
    "<function=f>\nls\n</function>",
    "<function=f><parameter=x>1</parameter><parameter=x>2</parameter></function>",
    "<tool_call>\n<function=f>\n<parameter=x>1</parameter>\n</function>",
]


@pytest.mark.parametrize("text", NO_CALLS)
def test_text_that_only_talks_of_tags_or_breaks_off_is_a_message_and_is_counted(text: str) -> None:
    imported = read({"messages": [OFFER, user("q"), says(text), user("r"), says("done")]})
    assert column(imported, "arguments") == [
        json.dumps({"text": said}, separators=(",", ":")) for said in (text, "done")
    ]
    assert column(imported, "tool_result") == ["r", None]
    assert ("1 replies hold what looks like a tool call" in notes(imported), imported.report.problems) == (True, [])
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": text}]
    assert column(read({"conversations": turns}), "action_type") == ["message"]


def test_a_call_in_text_is_believed_where_tools_were_offered_or_a_result_follows() -> None:
    def actions(*messages: Any, **fields: Any) -> list[str]:
        return column(read({"messages": [user("q"), *messages]} | fields), "action")

    assert actions(says(QWEN)) == actions(says(QWEN), user("why?"), says("x"))[:1] == ["message"]
    assert actions(says(QWEN), tools=[{"name": "f"}]) == ["f"]
    assert actions(says(QWEN), answers("1")) == actions(says(QWEN), result("1")) == ["f"]
    assert actions(says(f"{QWEN}\nI wait."), answers("1")) == ["f"]
    for came in ({"from": "tool", "value": "1"}, {"from": "human", "value": answers("1")["content"]}):
        turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": f"{QWEN}\nI wait."}, came]
        assert [(row["action"], row["tool_result"]) for row in rows(read({"conversations": turns}))] == [("f", "1")]
    asked = [user(f"What does this mean?\n{QWEN}"), says("It is a call.")]
    assert actions(*asked, tools=[{"name": "f"}]) == ["message"]
    # Where calls stand beside the text, those in it were not carried out, unless a result says so.
    beside = [says(None, call("g")), result("1")]
    assert actions(*beside, says(QWEN), user("what?"), tools=[{"name": "g"}]) == ["g", "message"]
    assert actions(*beside, says(QWEN), answers("2"), tools=[{"name": "g"}]) == ["g", "f"]


def test_results_of_calls_in_text_are_paired_by_order_or_by_their_names() -> None:
    both = QWEN + "\n" + QWEN.replace('"f"', '"g"')
    of_g, of_f = '{"name": "g", "content": 2}', '{"name": "f", "content": 1}'
    for came in ([answers(of_g, of_f)], [answers(of_g), answers(of_f)],
                 [answers(of_g, of_f) | {"role": "tool"}], [result(of_g, None, name="g"), result(of_f, None)]):  # fmt: skip
        imported = read({"messages": [OFFER, user("q"), says(both), *came, says("done")]})
        assert [(row["action"], row["tool_result"]) for row in rows(imported)] == [
            ("f", of_f), ("g", of_g), ("message", None),
        ]  # fmt: skip
        assert rows(imported)[0]["decision_id"] == rows(imported)[1]["decision_id"]
        assert imported.report.problems == []
        assert "2 calls stand in the text of a reply" in notes(imported)
    imported = read(
        {"messages": [OFFER, user("q"), says(HANDS), user("EXECUTION RESULT of [f]:\nError: no"), says("x")]}
    )
    assert (rows(imported)[0]["tool_result"], rows(imported)[0]["error"]) == ("Error: no", "Error: no")
    assert metadata(rows(imported)[0]) == {"call_found_in_text": True, "error_guessed": True}
    imported = read({"messages": [OFFER, user("q"), says(QWEN), user(answers("1")["content"] + "\nGo on."), says("x")]})
    assert column(imported, "tool_result") == ["1", None]
    assert imported.report.problems == []


def test_a_result_that_nothing_marks_is_taken_from_the_user_and_told() -> None:
    imported = read({"messages": [OFFER, user("q"), says(QWEN), user("seen"), says(QWEN), user("again"), says("done")]})
    assert column(imported, "tool_result") == ["seen", "again", None]
    assert imported.report.counts() == {"result not marked": 1}
    marked = [OFFER, user("q"), says(QWEN), user("hurry"), says(QWEN), answers("1")]
    assert column(read({"messages": marked}), "tool_result") == [None, "1"]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [QWEN, CODER, HANDS, "\n", "\n", "words ", "```", "<tool_call>", "</tool_call>", "<function=f>", "</function>",
             "<parameter=x>", "</parameter>", "{", "}", "<think>", "</think>", "<|im_end|>"]
        ),
        max_size=8,
    ),
    st.booleans(),
)  # fmt: skip
def test_no_text_of_tags_loses_words_or_fails(pieces: list[str], answered: bool) -> None:
    text = "".join(pieces)
    came = [answers("1")] if answered else []
    imported = read({"messages": [OFFER, user("q"), says(text or None), *came]})
    for row in rows(imported):
        if row["action"] == "message":
            assert (row["arguments_status"], text) == ("empty", "") or json.loads(row["arguments"]) == {"text": text}
        else:
            assert row["action"] == "f"
            assert ("words" in metadata(row).get("thought", "")) is ("words" in text)


# -- ShareGPT ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("Thought: t\nAction: search[red shoes]", "search", {"input": "red shoes"}),
        ("Thought:\nt\n\nAction:\nclick[Buy Now]", "click", {"input": "Buy Now"}),
        ('Thought: t\nAction: look_up\nAction Input: {"q": 1}\nObservation: made up', "look_up", {"q": 1}),
        ("Think: t\n\nAct: bash\n\n```bash\nls -l\n```", "bash", {"bash": "ls -l"}),
        ("THOUGHT: t\nACTION: go to desk 1", "go", {"input": "to desk 1"}),
        ("Thought: t\nAction: get_relations(Obama)\nThought: u\nAction: other(x)", "get_relations", {"input": "Obama"}),
        ('t\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>', "f", {"x": 1}),
        ("t\nAction: Operation\n```sql\nSELECT 1\n```", "Operation", {"sql": "SELECT 1"}),
        ("t\nAction: Answer\nFinal Answer: [3]", "Answer", {"input": "Final Answer: [3]"}),
        ("Here is a plan. \nAction: see below", None, None),
        ("Just words.", None, None),
    ],
)
def test_actions_in_text(text: str, name: str | None, arguments: Any) -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": text}, {"from": "human", "value": "seen"}]
    (row,) = rows(read({"id": "webshop_6", "conversations": turns}))
    assert (row["tool"], row["task"], row["tool_result"]) == (name, "webshop", "seen")
    if name:
        assert (json.loads(row["arguments"]), metadata(row)["thought"]) == (arguments, "t")
    else:
        assert json.loads(row["arguments"]) == {"text": text}


def test_only_turns_with_loss_are_decisions_and_instructions_are_no_goal() -> None:
    imported = read_source("f", IMPORTERS["sharegpt"].example.replace(b'"reward": 1, ', b""))
    assert column(imported, "action") == ["Operation", "Answer"]
    assert {json.loads(state)["user_goal"] for state in column(imported, "state")} == {"How many users are there?"}
    assert "keep the runs that succeeded" in notes(imported)


def test_calls_in_turns_of_their_own_and_sets_in_splits() -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "function_call", "value": '{"name": "f", "arguments": {"x": 1}}'},
             {"from": "observation", "value": "Error: no"}, {"from": "gpt", "value": "sorry"}]  # fmt: skip
    imported = read({"train": [{"id": "a_1", "conversations": turns}], "val": [{"id": "b_2", "conversations": turns}]})
    assert [(row["episode_id"], row["split"], row["action"], row["error"]) for row in rows(imported)] == [
        ("a_1", "train", "f", "Error: no"), ("a_1", "train", "message", None),
        ("b_2", "val", "f", "Error: no"), ("b_2", "val", "message", None),
    ]  # fmt: skip


# -- Gemini CLI ----------------------------------------------------------------------------------------------


def gemini(name: str, kind: str, text: Any, **fields: Any) -> dict[str, Any]:
    return {"id": name, "timestamp": "2026-01-31T11:00:00Z", "type": kind, "content": text} | fields


def gemini_call(name: str, status: str, **response: Any) -> dict[str, Any]:
    parts = [{"functionResponse": {"id": f"{name}-1", "name": name, "response": response}}]
    return {"id": f"{name}-1", "name": name, "args": {"x": 1}, "status": status, "result": parts if response else None}


GEMINI_MESSAGES = [
    gemini("1", "user", [{"text": "q"}]),
    gemini("2", "gemini", "I look.", model="m", thoughts=[{"subject": "Plan", "description": "look"}], toolCalls=[
        gemini_call("f", "success", output="yes"), gemini_call("g", "error", error="no such file"),
        gemini_call("h", "cancelled"),
    ]),
    gemini("3", "info", "Update available"),
    gemini("4", "gemini", "done", model="m"),
]  # fmt: skip
GEMINI_STEPS = [
    ("f", "yes", None), ("g", "no such file", "no such file"), ("h", None, None), ("message", None, None),
]  # fmt: skip


def test_calls_of_gemini_cli_hold_their_results() -> None:
    imported = read({"sessionId": "s", "projectHash": "p", "messages": GEMINI_MESSAGES})
    assert (imported.report.format, imported.report.problems) == ("gemini_cli", [])
    assert [(row["action"], row["tool_result"], row["error"]) for row in rows(imported)] == GEMINI_STEPS
    assert {(row["episode_id"], row["behavior_policy"]) for row in rows(imported)} == {("s", "m")}
    assert metadata(rows(imported)[0])["thought"] == "Plan: look\n\nI look."
    assert "info 1" in notes(imported)


def test_a_session_in_lines_gives_the_same_steps_though_messages_grow() -> None:
    begun = gemini("2", "gemini", "I l", model="m")
    short = [{key: item[key] for key in ("type", "content")} for item in (GEMINI_MESSAGES[0], GEMINI_MESSAGES[3])]
    assert column(read({"sessionId": "s", "messages": short}), "action") == ["message"]
    head = {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-31T11:00:00Z"}
    imported = read(head, GEMINI_MESSAGES[0], begun, *GEMINI_MESSAGES[1:], {"$set": {"summary": "a"}})
    assert [(row["action"], row["tool_result"], row["error"]) for row in rows(imported)] == GEMINI_STEPS
    assert (set(column(imported, "episode_id")), imported.report.n_records_read) == ({"s"}, 7)
    assert "message that grew 1" in notes(imported)


# -- evidence ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ["openai_chat/invariant_sample_data.jsonl"],
        [f"openai_chat/litellm_call_log_{i}.json" for i in range(3)],
        ["openai_chat/openhands_fncall_messages.json"],
        ["anthropic_messages/anthropic_managed_custom_tools.jsonl"],
        ["claude_code/daaain_edge_cases.jsonl"],
        ["claude_code/scout_agent_session.jsonl", "claude_code/scout_agent-atest01.jsonl"],
        ["langchain_langgraph/state_messages_to_dict.json"],
        ["generic_jsonl/adk_flow_complex_spark.session.json"],
        *[[dialect] for dialect in DIALECTS],
    ],
    ids=lambda names: names[0],
)
def test_each_decision_is_found_in_its_record(names: list[str]) -> None:
    example = IMPORTERS.get(names[0])
    imported = read_source("example", example.example) if example else real(*names)
    raw = {(row["source_file"], row["record"]): row["raw"] for row in imported.records.to_pylist()}
    for row in rows(imported):
        shown = messages_of(raw[row["source_file"], row["record"]], row["message_index"])
        (acting,) = [message for message in shown if message.acting]
        said = row["tool"] or json.loads(row["arguments"])["text"].split("\n")[0]
        assert said in acting.text


# -- anything ------------------------------------------------------------------------------------------------

SCALAR = st.sampled_from(
    [None, True, 0, -1, 1.5, float("nan"), "", "x", "{", '["a"]', "user", [], {}, [None], [[]], {"role": "user"}]
)


def mutate(data: st.DataObject, value: Any) -> Any:
    """The value with something in it dropped, replaced, doubled or wrapped."""
    if not isinstance(value, dict | list) or not value or data.draw(st.integers(0, 9)) == 0:
        return data.draw(SCALAR | st.just([value]) | st.just({"content": value}))
    key = data.draw(st.sampled_from(list(value) if isinstance(value, dict) else list(range(len(value)))))
    kind = data.draw(st.sampled_from(["into", "into", "into", "drop", "double"]))
    changed = dict(value) if isinstance(value, dict) else list(value)
    if kind == "drop":
        del changed[key]
    elif kind == "double" and isinstance(changed, list):
        changed.insert(key, changed[key])
    else:
        changed[key] = mutate(data, value[key])
    return changed


@pytest.mark.parametrize("dialect", [*DIALECTS, "adk, evalset"])
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_damage_is_read_or_reported(dialect: str, data: st.DataObject) -> None:
    dialect, _, evalset = dialect.partition(", ")
    records = [json.loads(line) for line in IMPORTERS[dialect].example.splitlines()]
    records = [{"eval_set_id": "set", "eval_cases": [CASE]}] if evalset else records
    for _ in range(data.draw(st.integers(1, 4))):
        records = mutate(data, records)
        records = records if isinstance(records, list) else [records]
    content = lines(*records)
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    for format in (None, dialect):
        try:
            imported = read_source("f", content, format=format)
        except TraceFormatError:
            continue
        read = set(zip(column(imported, "source_file"), column(imported, "record"), strict=True))
        assert {(record["source_file"], record["record"]) for record in imported.records.to_pylist()} == read
        assert_accounts(imported.report)
        assert all(row["reward"] is None or isinstance(row["reward"], float) for row in rows(imported))


def test_deep_nesting_costs_its_record_only() -> None:
    deep = "[" * 700 + "]" * 700
    for dialect in DIALECTS:
        good = IMPORTERS[dialect].example
        bad = good.replace(b'"arguments": "{', b'"arguments": {"x": %s}, "y": "{' % deep.encode(), 1)
        for text in (b'"input": {', b'"args": {', b'"arguments": {'):
            bad = bad.replace(text, text + b'"deep": %s, ' % deep.encode(), 1)
        with_both = good.rstrip(b"\n") + b"\n" + bad
        assert read_source("f", with_both, format=dialect).steps.num_rows
