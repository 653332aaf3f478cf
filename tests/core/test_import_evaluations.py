"""Importers of evaluation logs: Inspect, ATIF with Harbor's results, SWE-agent, OpenHands."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offrl_core.errors import TraceFormatError
from offrl_core.importers import Imported, read_sources
from tests.core.damage import assert_read_or_reported, damaged, example
from tests.traces import shared_trace

FORMATS = ["inspect_ai", "atif", "swe_agent", "openhands"]
Rows = list[dict[str, Any]]


def read(*records: Any, **files: Any) -> Imported:
    """Read records of one file, or files by name ("a/b.json" as a__b)."""
    named = (
        {"run.jsonl": records}
        if records
        else {key.replace("__", "/") + ".json": [value] for key, value in files.items()}
    )
    return read_sources([(name, "\n".join(map(json.dumps, values)).encode()) for name, values in named.items()])


def real(*names: str) -> Imported:
    paths = [shared_trace(name) for name in names]
    return read_sources([(path.name, path.read_bytes()) for path in paths])


def rows(imported: Imported) -> Rows:
    return list(imported.steps.to_pylist())


def column(imported: Imported, name: str) -> list[Any]:
    return list(imported.steps[name].to_pylist())


def metadata(row: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(row["metadata"] or "{}"))


def last_rows(imported: Imported) -> Rows:
    return list({row["episode_id"]: row for row in rows(imported)}.values())


def notes(imported: Imported) -> str:
    return "\n".join(imported.report.notes)


# -- Inspect -------------------------------------------------------------------------------------------------


def samples_of(path: Path) -> list[dict[str, Any]]:
    """The samples of a log, read without the importer."""
    if path.suffix == ".json":
        return list(json.loads(path.read_bytes())["samples"])
    with zipfile.ZipFile(path) as archive:
        return [json.loads(archive.read(name)) for name in archive.namelist() if name.startswith("samples/")]


@pytest.mark.parametrize(
    "name", ["2025-05-12_browser.json", "intercode_ctf_15samples.eval", "security_guide.eval", "websearch.eval"]
)
def test_every_call_and_reply_of_a_real_log_of_inspect_is_there(name: str) -> None:
    imported = real(f"inspect_ai/{name}")
    samples = samples_of(shared_trace(f"inspect_ai/{name}"))
    expected: Counter[Any] = Counter()
    for sample in samples:
        for message in sample["messages"]:
            if message["role"] == "assistant":
                calls = message.get("tool_calls") or [{"function": "message"}]
                expected.update((f"{sample['id']}-epoch{sample['epoch']}", call["function"]) for call in calls)
    assert imported.report.format == "inspect_ai"
    assert imported.report.problems == []
    assert Counter(zip(column(imported, "episode_id"), column(imported, "action"), strict=True)) == expected
    grades = {"C": 1.0, "I": 0.0}
    found = {row["episode_id"]: row["reward"] for row in last_rows(imported)}
    assert found == {f"{s['id']}-epoch{s['epoch']}": grades[next(iter(s["scores"].values()))["value"]] for s in samples}
    limited = {f"{s['id']}-epoch{s['epoch']}" for s in samples if s.get("limit")}
    assert {row["episode_id"] for row in last_rows(imported) if row["end_reason"] == "truncated"} == limited


def test_a_real_log_of_inspect_pairs_results_and_keeps_tool_errors_apart() -> None:
    imported = real("inspect_ai/intercode_ctf_15samples.eval")
    samples = samples_of(shared_trace("inspect_ai/intercode_ctf_15samples.eval"))
    results = {
        message["tool_call_id"]: message for s in samples for message in s["messages"] if message["role"] == "tool"
    }
    calls = [row for row in rows(imported) if row["action_type"] == "tool_call"]
    assert len(calls) > 100
    for row in calls:
        answer = results.get(metadata(row)["call_id"])
        assert row["tool_result"] == (answer["content"] if answer else None)
        assert not (answer or {}).get("error") or row["error"].startswith(answer["error"]["type"])
    assert sum(row["error"].startswith("timeout: ") for row in calls if row["error"]) == 5
    assert sum(row["tool_result"] is None for row in calls) == 1  # the limit struck while the tool was running
    assert set(column(imported, "behavior_policy")) == {"openai/gpt-4o"}
    assert min(column(imported, "latency_ms")) > 100
    assert {tuple(tools) for tools in column(imported, "available_tools")} == {("bash", "python", "submit", "message")}
    assert column(imported, "source_file")[0] == "intercode_ctf_15samples.eval/samples/15_epoch_1.json"


def sample(**fields: Any) -> dict[str, Any]:
    call = {"id": "c", "function": "f", "arguments": {"x": 1}, "type": "function"}
    messages = [
        {"role": "user", "content": "q", "source": "input"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "seen"},
    ]
    return {"id": "s", "epoch": 1, "input": "q", "target": "hidden", "messages": messages, "events": []} | fields


def log(*samples: Any) -> dict[str, Any]:
    return {"version": 2, "eval": {"task": "t", "model": "m"}, "plan": {}, "samples": list(samples)}


@pytest.mark.parametrize(
    ("value", "reward"),
    [("C", 1), ("I", 0), ("P", 0.5), ("N", 0), (0.25, 0.25), (True, 1), ("0.75", 0.75), ("odd", None), (None, None)],
)
def test_scores_of_inspect_become_rewards(value: Any, reward: float | None) -> None:
    imported = read(log(sample(scores={"s": {"value": value}})))
    assert column(imported, "reward") == [reward]
    assert imported.report.counts() == ({} if reward is not None else {"score is not a number": 1})


def test_of_several_scores_one_is_named_the_reward_and_all_are_kept() -> None:
    scores = {"tests": {"value": "I"}, "style": {"value": {"short": 1, "clear": "P", "note": "x"}}}
    imported = read(log(sample(scores=scores), sample(epoch=2, scores=scores)))
    assert column(imported, "reward") == [0.0, 0.0]
    assert json.loads(column(imported, "reward_components")[0]) == {"tests": 0, "style.short": 1, "style.clear": 0.5}
    assert "score 'tests' (samples: 2); beside it in reward_components: style.clear, style.short" in notes(imported)
    assert column(imported, "episode_id") == ["s-epoch1", "s-epoch2"]
    assert set(column(imported, "task")) == {"t s"}


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"scores": {"s": {"value": "C"}}}, "terminated"),
        ({"scores": {"s": {"value": "I"}}, "limit": {"type": "time", "limit": 60}}, "truncated"),
        ({"events": [{"event": "sample_limit", "type": "token", "limit": 9}]}, "truncated"),
        ({"error": {"message": "container died", "traceback": "..."}}, "cut"),
        ({}, "unknown"),
    ],
)
def test_endings_of_inspect(fields: dict[str, Any], end: str) -> None:
    (row,) = rows(read(log(sample(**fields))))
    assert row["end_reason"] == end
    assert (row["terminal"], row["timeout"]) == {"terminated": (True, False), "truncated": (False, True)}.get(
        end, (None, None)
    )
    assert "hidden" not in row["state"]


def test_examples_in_the_input_and_calls_that_cannot_be_parsed() -> None:
    messages = [
        {"role": "user", "content": "shown", "source": "input"},
        {"role": "assistant", "content": "an example", "source": "input"},
        {"role": "user", "content": "real", "source": "input"},
        {"role": "assistant", "content": "attachment://1", "tool_calls": [
            {"id": "c", "function": "f", "arguments": {}, "parse_error": "not JSON: {x"}]},
        {"role": "tool", "tool_call_id": "c", "content": "", "error": {"type": "parsing", "message": "not JSON"}},
    ]  # fmt: skip
    events = [{"event": "store"}, {"event": "approval"}, {"event": "model"}, {"event": "model"}]
    imported = read(log(sample(messages=messages, attachments={"1": "long thought"}, events=events)))
    (row,) = rows(imported)
    assert (row["action"], row["arguments"], row["arguments_status"]) == ("f", None, "malformed")
    assert (row["error"], metadata(row)["thought"]) == ("parsing: not JSON", "long thought")
    assert "1 call of the model" in notes(imported)
    assert "store 1, approval 1" in notes(imported)


def test_an_archive_without_its_header_is_read_and_says_so() -> None:
    imported = read(log__samples__1=sample(), log__summaries={"id": "s2", "epoch": 1, "target": "", "input": ""})
    assert imported.report.format == "inspect_ai"
    assert "log has no header" in notes(imported)
    assert "log lists 1 sample not in it" in notes(imported)
    with pytest.raises(TraceFormatError, match="holds no sample"):
        read(log__header=log())


# -- ATIF ----------------------------------------------------------------------------------------------------

TERMINUS = "atif/terminus_2_hello-world-context-summarization-linear-history.trajectory"


@pytest.mark.parametrize(
    ("names", "steps", "episodes"),
    [
        (["atif/openhands_hello-world.trajectory.json"], 2, 1),
        (["atif/parallel_tools_mixed_results.json"], 4, 1),
        (["atif/v17_embedded_subagents.json"], 3, 2),
        (["atif/harbor_terminus2_timeout.json"], 3, 1),
        (["atif/multi_tool_trajectory.json"], 5, 1),
        ([f"{TERMINUS}.json", f"{TERMINUS}.cont-1.json"], 7, 1),
    ],
)
def test_real_trajectories_in_atif(names: list[str], steps: int, episodes: int) -> None:
    imported = real(*names)
    assert (imported.steps.num_rows, imported.report.n_episodes, imported.report.problems) == (steps, episodes, [])
    assert imported.report.format == "atif"
    given = [step for name in names for step in json.loads(shared_trace(name).read_bytes())["steps"]]
    own = [step for step in given if step["source"] == "agent" and not step.get("is_copied_context")]
    costs = [step.get("metrics", {}).get("cost_usd") for step in own]
    assert sum(filter(None, column(imported, "cost_usd"))) == pytest.approx(sum(filter(None, costs)))
    called = [call["tool_call_id"] for step in own for call in step.get("tool_calls") or []]
    assert [metadata(row)["call_id"] for row in rows(imported) if "call_id" in metadata(row)] == called


def test_parallel_calls_of_a_real_step() -> None:
    first, second, third, _ = rows(real("atif/parallel_tools_mixed_results.json"))
    assert [row["call_index"] for row in (first, second, third)] == [0, 1, 2]
    assert len({row["decision_id"] for row in (first, second, third)}) == 1
    assert (first["error"], second["error"], third["tool_result"]) == (None, "Error: API rate limit exceeded", "")
    assert [row["cost_usd"] for row in (first, second, third)] == [0.003, None, None]


def test_a_sub_agent_is_an_episode_with_its_parent_and_copied_context_is_no_goal() -> None:
    parent, _, child = rows(real("atif/v17_embedded_subagents.json"))
    assert (parent["episode_id"], parent["parent_episode"]) == ("parent-doc", None)
    assert (child["episode_id"], child["parent_episode"]) == ("child-doc", "parent-doc")


def test_log_probabilities_of_a_real_reply_are_summed() -> None:
    imported = real("atif/harbor_terminus2_timeout.json")
    given = json.loads(shared_trace("atif/harbor_terminus2_timeout.json").read_bytes())["steps"][1]["metrics"][
        "logprobs"
    ]
    assert json.loads(column(imported, "action_logprobs")[0]) == given
    assert column(imported, "action_logprob")[0] == pytest.approx(sum(given))


def test_commands_in_the_text_of_an_agent_without_tools() -> None:
    imported = real(f"{TERMINUS}.json", f"{TERMINUS}.cont-1.json")
    assert column(imported, "action") == ["bash_command"] * 5 + ["mark_task_complete"] * 2
    assert json.loads(column(imported, "arguments")[0])["keystrokes"] == "mkdir test_dir\n"
    assert "copied context 4" in notes(imported)
    assert [name.endswith("cont-1.json") for name in column(imported, "source_file")] == [False] * 3 + [True] * 4


def trajectory(name: str, *steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    own = steps or ({"source": "agent", "message": "done"},)
    return {"schema_version": "ATIF-v1.6", "session_id": name, "agent": {"name": "a"}, "steps": list(own)} | fields


def trial(name: str, rewards: Any = None, **fields: Any) -> dict[str, Any]:
    verdict = None if rewards is None else {"rewards": rewards}
    return {"trial_name": name, "task_name": "task", "verifier_result": verdict, "exception_info": None} | fields


def test_results_of_trials_are_joined_by_folder_and_name() -> None:
    timeout = {"exception_type": "AgentTimeoutError", "exception_message": "900 s"}
    imported = read(
        job__one__agent__trajectory=trajectory("x"),
        job__one__result=trial("one__x1", {"reward": 1.0}),
        job__two__agent__trajectory=trajectory("y"),
        job__two__result=trial("two__x2", {"style": 0.5, "tests": 0.0}, exception_info=timeout),
        elsewhere__trajectory=trajectory("three"),
        results__result=trial("three", {"reward": 0.25}),
        job__four__result=trial("four__x4", {"reward": 1.0}),
    )
    found = {row["episode_id"]: row for row in rows(imported)}
    assert {name: (row["reward"], row["end_reason"]) for name, row in found.items()} == {
        "x": (1.0, "terminated"), "y": (0.5, "truncated"), "three": (0.25, "terminated"),
    }  # fmt: skip
    assert json.loads(found["y"]["reward_components"]) == {"style": 0.5, "tests": 0.0}
    assert "'style' was taken" in notes(imported)
    assert [(p.file, p.kind) for p in imported.report.problems] == [("job/four/result.json", "result without a run")]


def test_a_sub_agent_in_a_file_of_its_own_is_linked_and_earns_nothing() -> None:
    reference = {"session_id": "c", "trajectory_path": "child.json"}
    result = {"source_call_id": "1", "content": "", "subagent_trajectory_ref": [reference]}
    call = {"tool_call_id": "1", "function_name": "delegate", "arguments": {}}
    step = {"source": "agent", "message": "", "tool_calls": [call], "observation": {"results": [result]}}
    imported = read(
        job__one__agent__child=trajectory("c"), job__one__agent__trajectory=trajectory("p", step),
        job__one__result=trial("one", {"reward": 1.0}),
    )  # fmt: skip
    assert [(row["episode_id"], row["parent_episode"], row["reward"]) for row in rows(imported)] == [
        ("c", "p", None), ("p", None, 1.0),
    ]  # fmt: skip


def test_a_lone_result_is_not_given_to_the_run_of_another_agent() -> None:
    imported = real("atif/harbor_trial_result.json", "atif/harbor_terminus2_timeout.json")
    assert set(column(imported, "reward")) == {None}
    assert imported.report.counts() == {"result without a run": 1}


def test_results_without_ids_go_by_order_and_others_stay_unpaired() -> None:
    calls = [{"tool_call_id": name, "function_name": "f", "arguments": {}} for name in "ab"]
    results = [
        {"content": "one"},
        {"source_call_id": "a", "content": "two"},
        {"source_call_id": "z", "content": "lost"},
    ]
    step = {"source": "agent", "message": "", "tool_calls": calls, "observation": {"results": results}}
    imported = read(trajectory("x", step))
    assert column(imported, "tool_result") == ["one", None]
    assert imported.report.counts() == {"result without a call": 2, "result paired by order": 1}


# -- SWE-agent -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "steps", "end"),
    [
        ("ctf_flash.traj", 4, "terminated"),
        ("ctf_katy.traj", 18, "terminated"),
        ("pydicom-1458_gpt4.traj", 12, "terminated"),
        ("marshmallow-1867_function_calling_replace.traj", 11, "terminated"),
        ("function_calling_simple.traj", 5, "unknown"),
        ("mini_swe_github_issue.traj.json", 10, "unknown"),
    ],
)
def test_real_trajectories_of_swe_agent(name: str, steps: int, end: str) -> None:
    imported = real(f"swe_agent/{name}")
    assert (imported.report.format, imported.report.problems) == ("swe_agent", [])
    assert (imported.steps.num_rows, last_rows(imported)[0]["end_reason"]) == (steps, end)
    assert set(column(imported, "reward")) == {None}
    value = json.loads(shared_trace(f"swe_agent/{name}").read_bytes())
    if "trajectory" in value:
        assert column(imported, "tool_result") == [step["observation"] for step in value["trajectory"]]
        assert [metadata(row)["thought"] for row in rows(imported)] == [step["thought"] for step in value["trajectory"]]


def test_a_demonstration_is_no_step_and_enters_no_state() -> None:
    imported = real("swe_agent/pydicom-1458_gpt4.traj")
    assert "demonstrations 1" in notes(imported)
    assert not any("demonstration of how" in state for state in column(imported, "state"))
    assert json.loads(column(imported, "state")[0])["user_goal"].startswith(
        "We're currently solving the following issue"
    )
    assert column(imported, "action")[5:8] == ["edit"] * 3
    assert [bool(error) for error in column(imported, "error")[5:9]] == [True, True, True, False]
    assert metadata(rows(imported)[-1])["exit_status"] == "submitted"


def test_the_state_is_the_one_before_the_command_in_both_versions() -> None:
    def seen(imported: Imported) -> list[str | None]:
        return [json.loads(state).get("environment", {}).get("open_file") for state in column(imported, "state")]

    version_0 = seen(real("swe_agent/pydicom-1458_gpt4.traj"))
    assert version_0[:2] == ["n/a", "/pydicom__pydicom/reproduce_bug.py"]  # the first command creates the file
    version_1 = real("swe_agent/marshmallow-1867_function_calling_replace.traj")
    assert seen(version_1)[:2] == [None, "/testbed/reproduce.py"]
    assert (column(version_1, "action")[5], seen(version_1)[5:7]) == (
        "open", ["/testbed/reproduce.py", "/testbed/src/marshmallow/fields.py"],
    )  # fmt: skip


def test_calls_of_functions_are_looked_up_in_the_history() -> None:
    imported = real("swe_agent/marshmallow-1867_function_calling_replace.traj")
    history = json.loads(shared_trace("swe_agent/marshmallow-1867_function_calling_replace.traj").read_bytes())[
        "history"
    ]
    functions = [entry["tool_calls"][0]["function"] for entry in history if entry.get("tool_calls")]
    assert column(imported, "action") == [function["name"] for function in functions]
    assert column(imported, "arguments_raw") == [function["arguments"] for function in functions]
    assert column(imported, "latency_ms")[0] == pytest.approx(238.733730999229)


def test_return_codes_of_mini_swe_agent_tell_failures() -> None:
    imported = real("swe_agent/mini_swe_github_issue.traj.json")
    assert [bool(error) for error in column(imported, "error")] == [True] + [False] * 6 + [True, False, False]
    assert json.loads(column(imported, "arguments")[1]) == {"command": "ls -la"}


def swe_run(instance: str, **info: Any) -> dict[str, Any]:
    step = {"action": "submit", "observation": "diff", "thought": "t"}
    return {"trajectory": [step], "info": info, "replay_config": json.dumps({"problem_statement": {"id": instance}})}


def test_verdicts_of_swe_bench_beside_the_trajectories_become_rewards() -> None:
    imported = read(
        a=swe_run("p-1", exit_status="submitted"),
        b=swe_run("p-2", exit_status="submitted (exit_cost)"),
        c=swe_run("p-3", exit_status="exit_format"),
        report={"resolved_ids": ["p-1"], "unresolved_ids": ["p-2", "p-9"], "total_instances": 3},
    )
    assert [(row["task"], row["reward"], row["end_reason"]) for row in rows(imported)] == [
        ("p-1", 1.0, "terminated"), ("p-2", 0.0, "truncated"), ("p-3", None, "unknown"),
    ]  # fmt: skip
    assert imported.report.problems == []
    assert "1 concern no run here" in notes(imported)


def test_the_present_form_of_mini_swe_agent() -> None:
    reply = {"role": "assistant", "content": "THOUGHT", "extra": {"actions": [{"command": "ls"}], "cost": 0.5}}
    messages = [{"role": "user", "content": "task"}, reply, {"role": "user", "content": "<returncode>0</returncode>ok"}]
    value = {"messages": messages, "info": {"exit_status": "LimitsExceeded"}, "trajectory_format": "mini-swe-agent-1.1"}
    (row,) = rows(read(value))
    assert (row["action"], row["cost_usd"], row["end_reason"]) == ("bash", 0.5, "truncated")
    assert (json.loads(row["arguments"]), row["error"]) == ({"command": "ls"}, None)


# -- OpenHands -----------------------------------------------------------------------------------------------


def test_each_reply_of_the_model_in_a_real_evaluation_of_openhands_is_a_decision() -> None:
    imported = real("openhands/multi_swe_bench_output.jsonl")
    lines = shared_trace("openhands/multi_swe_bench_output.jsonl").read_text().splitlines()
    assert imported.report.problems == []
    for run in map(json.loads, lines):
        own = [row for row in rows(imported) if row["episode_id"] == run["instance_id"]]
        assert len({row["decision_id"] for row in own}) == len(run["metrics"]["response_latencies"])
        answers = {event["cause"]: event for event in run["history"] if event.get("cause") is not None}
        actions = [e for e in run["history"] if e.get("action") and e.get("tool_call_metadata")]
        called = [row for row in own if row["action_type"] == "tool_call"]
        for row, event in zip(called, actions, strict=True):
            assert row["tool"] == event["tool_call_metadata"]["function_name"]
            answer = answers.get(event["id"])
            assert row["tool_result"] == (answer["content"] if answer else None)
            code = (answer or {}).get("extras", {}).get("metadata", {}).get("exit_code", 0)
            assert bool(row["error"]) == (code > 0)
    assert [row["end_reason"] for row in last_rows(imported)] == ["terminated", "terminated", "truncated"]
    assert column(imported, "action").count("invalid") == 2  # replies that OpenHands refused leave only their error


def test_a_downloaded_trajectory_of_openhands() -> None:
    first, last = rows(real("openhands/traj_basic.json"))
    assert (first["tool"], json.loads(first["arguments"])["command"]) == ("str_replace_editor", "create")
    assert first["behavior_policy"] == "claude-3-5-sonnet-20241022"
    assert (last["action"], last["end_reason"], last["tool_result"]) == ("finish", "terminated", None)


def test_events_of_the_new_sdk_in_a_file_each() -> None:
    call = {"id": "c1", "name": "terminal", "arguments": '{"command": "ls"}'}
    events = [
        {"kind": "SystemPromptEvent", "id": "0", "source": "agent", "system_prompt": {"text": "Be good."}, "tools": []},
        {"kind": "MessageEvent", "id": "1", "source": "user", "llm_message": {"content": [{"type": "text", "text": "go"}]}},
        {"kind": "ActionEvent", "id": "2", "source": "agent", "tool_name": "terminal", "tool_call_id": "c1",
         "tool_call": call, "thought": [{"type": "text", "text": "hm"}], "llm_response_id": "r1"},
        {"kind": "ActionEvent", "id": "3", "source": "agent", "tool_name": "terminal", "tool_call_id": "c2",
         "tool_call": call | {"id": "c2", "arguments": "{"}, "thought": [], "llm_response_id": "r1"},
        {"kind": "AgentErrorEvent", "id": "4", "source": "agent", "tool_call_id": "c2", "error": "not JSON"},
        {"kind": "ObservationEvent", "id": "5", "source": "environment", "action_id": "2", "tool_call_id": "c1",
         "observation": {"content": [{"type": "text", "text": "no such file"}], "exit_code": 2}},
        {"kind": "ConversationStateUpdateEvent", "id": "6", "source": "environment", "key": "x"},
        {"kind": "MessageEvent", "id": "7", "source": "agent", "llm_message": {"content": [{"type": "text", "text": "?"}]}},
    ]  # fmt: skip
    imported = read(**{f"run__event-{i:05}-x": event for i, event in enumerate(events)})
    one, two, three = rows(imported)
    assert one["episode_id"] == two["episode_id"] == three["episode_id"] == "run"
    assert (one["decision_id"], one["tool_result"], one["error"]) == (
        two["decision_id"],
        "no such file",
        "no such file",
    )
    assert (two["call_index"], two["arguments_status"], two["error"]) == (1, "malformed", "not JSON")
    assert (three["action"], three["end_reason"], json.loads(three["state"])["user_goal"]) == (
        "message",
        "unknown",
        "go",
    )
    assert "ConversationStateUpdateEvent 1" in notes(imported)


def test_an_event_of_no_known_kind_cuts_no_run() -> None:
    def step(name: str, kind: str, **fields: Any) -> dict[str, Any]:
        return {"kind": kind, "id": name, "source": "agent", "tool_name": "ls", "tool_call_id": f"call {name}"} | fields

    events = [
        step("1", "ActionEvent", tool_call={"arguments": "{}"}),
        step(
            "2",
            "UserRejectObservation",
            source="environment",
            action_id="1",
            tool_call_id="call 1",
            rejection_reason="no",
        ),
        step("3", "Condensation", source="environment"),
        {"odd": True},
        step("4", "ActionEvent", tool_call={"arguments": "{}"}),
    ]
    imported = read(*events)
    assert [(row["episode_id"], row["t"], row["error"]) for row in rows(imported)] == [
        ("run", 0, "no"),
        ("run", 1, None),
    ]
    assert imported.report.counts() == {"not an event": 1}
    assert (imported.report.n_records_read, imported.report.n_records) == (4, 5)
    assert "Condensation 1" in notes(imported)


def openhands_run(*events: dict[str, Any], **fields: Any) -> dict[str, Any]:
    task = {"id": 0, "source": "user", "action": "message", "args": {"content": "go"}, "message": "go"}
    return {"instance_id": "i-1", "history": [task, *events]} | fields


def test_a_delegate_is_an_episode_of_its_own() -> None:
    names = ["run", "delegate", "browse", "finish", "finish"]
    events = [{"id": i, "source": "agent", "action": name, "args": {"agent": "B"}} for i, name in enumerate(names, 1)]
    events.insert(
        4, {"id": 9, "source": "agent", "observation": "delegate", "cause": 2, "content": "found", "extras": {}}
    )
    found = rows(read(openhands_run(*events)))
    assert [(row["episode_id"], row["t"], row["action"], row["parent_episode"], row["tool_result"]) for row in found] == [
        ("i-1", 0, "run", None, None), ("i-1", 1, "delegate", None, "found"), ("i-1", 2, "finish", None, None),
        ("i-1/B", 0, "browse", "i-1", None), ("i-1/B", 1, "finish", "i-1", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "reward"),
    [
        ({"test_result": {"git_patch": "diff"}}, None),
        ({"report": {"resolved": False}}, 0.0),
        ({"test_result": {"report": {"resolved": True}}}, 1.0),
        ({"test_result": {"score": 0.25}}, 0.25),
        ({"success": True}, 1.0),
    ],
)
def test_verdicts_on_runs_of_openhands(fields: dict[str, Any], reward: float | None) -> None:
    action = {"id": 1, "source": "agent", "action": "run", "args": {"command": "ls", "thought": ""}}
    costs = {"llm_metrics": {"accumulated_cost": 0.5}}, {"llm_metrics": {"accumulated_cost": 0.75}}
    one, two = rows(read(openhands_run(action | costs[0], action | costs[1] | {"id": 2}, **fields)))
    assert (one["reward"], two["reward"]) == (None, reward)
    assert (one["cost_usd"], two["cost_usd"]) == (0.5, 0.25)


def test_pairs_of_the_oldest_evaluations_go_by_order() -> None:
    pair = [
        {"action": "run", "args": {"command": "ls"}, "message": ""},
        {"observation": "run", "content": "a", "extras": {}, "message": ""},
    ]
    imported = read({"instance_id": "i", "history": [pair, pair], "test_result": {}})
    assert column(imported, "tool_result") == ["a", "a"]
    assert imported.report.counts() == {"result paired by order": 2}


def test_results_of_the_resolver_have_their_arguments_beside_the_action() -> None:
    history = [
        {"action": "message", "content": "Fix it.", "wait_for_response": False},
        {"action": "run", "command": "ls", "thought": "I look.", "is_confirmed": "confirmed"},
        {"observation": "run", "content": "a.py", "command": "ls", "exit_code": 0},
        {"action": "run", "command": "cat b", "thought": ""},
        {"observation": "run", "content": "no such file", "command": "cat b", "exit_code": 1},
        {"action": "finish", "thought": "Done.", "outputs": {}},
    ]
    issue = {"owner": "o", "repo": "r", "number": 3, "title": "t"}
    imported = read({"issue": issue, "history": history, "git_patch": "diff", "success": True})
    found = rows(imported)
    assert imported.report.format == "openhands"
    assert [(row["action"], row["arguments"], row["tool_result"], row["error"]) for row in found] == [
        ("run", '{"command":"ls"}', "a.py", None), ("run", '{"command":"cat b"}', "no such file", "no such file"),
        ("finish", '{"outputs":{}}', None, None),
    ]  # fmt: skip
    assert json.loads(found[0]["state"])["user_goal"] == "Fix it."
    assert (found[-1]["episode_id"], found[-1]["reward"], found[-1]["end_reason"]) == ("o/r#3", 1.0, "terminated")
    assert imported.report.counts() == {"result paired by order": 2}


# -- anything ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_logs_are_read_or_reported(format: str, data: st.DataObject) -> None:
    assert_read_or_reported(damaged(data, example(format)), data.draw(st.sampled_from([None, format])))


@pytest.mark.parametrize("format", FORMATS)
def test_deep_nesting_costs_its_record_only(format: str) -> None:
    deep = b"[" * 900 + b"]" * 900
    good = example(format).splitlines()[0]
    for key in (b'"arguments": {', b'"args": {', b'"action": "'):
        bad = good.replace(key, b'"deep": %s, ' % deep + key).replace(b"{", b'{"deep": %s, ' % deep, 1)
        assert_read_or_reported(good + b"\n" + bad, format)
