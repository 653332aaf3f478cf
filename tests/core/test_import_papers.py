"""Importers of papers' data: ToolBench, ReAct texts, WebShop sessions, Agent Lightning."""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offrl_core.errors import TraceFormatError
from offrl_core.importers import Imported, read_source, read_sources, webarena
from tests.core.damage import assert_read_or_reported, damaged, example
from tests.traces import TRACES, shared_trace

FORMATS = ["toolbench", "react_text", "webarena", "webshop", "agent_lightning"]


def read(*records: Any) -> Imported:
    return read_source("run.jsonl", "\n".join(map(json.dumps, records)).encode())


def real(*names: str) -> Imported:
    paths = [shared_trace(name) for name in names]
    return read_sources([(path.name, path.read_bytes()) for path in paths])


def rows(imported: Imported) -> list[dict[str, Any]]:
    return list(imported.steps.to_pylist())


def column(imported: Imported, name: str) -> list[Any]:
    return list(imported.steps[name].to_pylist())


def metadata(row: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(row["metadata"] or "{}"))


def notes(imported: Imported) -> str:
    return "\n".join(imported.report.notes)


# -- ToolBench -----------------------------------------------------------------------------------------------


def nodes(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [value, *(node for child in value["children"] for node in nodes(child))]


@pytest.mark.parametrize(
    ("name", "episodes", "reward", "main"),
    [
        ("G1_57_ChatGPT_DFS", 4, 1.0, ["products_for_seo_api", "news_for_seo_api", "search_b_for_seo_api", "Finish"]),
        ("G2_127_ChatGPT_DFS", 3, 0.0, ["get_track_info_for_pridnestrovie_post", "Finish"]),
        (
            "G3_21_ChatGPT_DFS", 1, 1.0,
            ["raiderio_call_for_raider_io", "dota_2_steam_web", "getsponsorships_for_diablo4_smartable", "Finish"],
        ),
    ],
)  # fmt: skip
def test_each_call_of_a_real_tree_is_there_once(name: str, episodes: int, reward: float, main: list[str]) -> None:
    imported = real(f"toolbench/{name}.json")
    tree = json.loads(shared_trace(f"toolbench/{name}.json").read_bytes())["tree"]["tree"]
    inputs = [node for node in nodes(tree)[1:] if node["node_type"] == "Action Input"]
    assert Counter(column(imported, "arguments_raw")) == Counter(node["description"] for node in inputs)
    assert Counter(column(imported, "tool_result")) == Counter(node["observation"] for node in inputs)
    assert (imported.report.n_episodes, imported.report.problems) == (episodes, [])
    ours = [row for row in rows(imported) if row["episode_id"] == name]
    assert [row["action"] for row in ours] == main
    assert [row["reward"] for row in ours] == [None] * (len(main) - 1) + [reward]
    assert [row["reward"] for row in rows(imported) if row["episode_id"] != name] == [None] * (len(inputs) - len(main))
    assert sum("pruned" in metadata(row) for row in rows(imported)) == sum(node["pruned"] for node in inputs)
    failed = sum(node["observation_code"] not in (0, 3, 4) or '"error": ""' not in node["observation"] for node in inputs
                 if node["observation_code"] not in (3, 4))  # fmt: skip
    assert sum(row["error"] is not None for row in rows(imported)) == failed


def test_branches_go_on_where_they_leave_their_parent_and_know_of_earlier_attempts() -> None:
    imported = real("toolbench/G1_57_ChatGPT_DFS.json")
    starts: dict[str, Any] = {}
    for row in rows(imported):
        starts.setdefault(row["episode_id"].removeprefix("G1_57_ChatGPT_DFS"), row)
    assert [(name, row["t"], (row["parent_episode"] or "")[-9:]) for name, row in starts.items()] == [
        ("", 0, ""), ("/branch-1", 2, "hatGPT_DFS"[-9:]), ("/branch-2", 3, "/branch-1"), ("/branch-3", 4, "/branch-2"),
    ]  # fmt: skip
    earlier = {row["action"]: json.loads(row["state"]).get("earlier_attempts") for row in rows(imported)[:4]}
    assert earlier == {
        "products_for_seo_api": None,
        "news_for_seo_api": None,
        "search_b_for_seo_api": 1,
        "Finish": None,
    }


def test_real_chains_of_tool_eval_are_read_though_their_calls_are_cut() -> None:
    imported = real("toolbench/tooleval_gpt35_CoT_G1_category_first25.json")
    value = json.loads(shared_trace("toolbench/tooleval_gpt35_CoT_G1_category_first25.json").read_bytes())
    text = json.dumps(value)
    assert imported.report.n_episodes == len(value) == 25
    assert imported.report.sentence().startswith("Read 25 of 25 answers: 105 steps in 25 episodes")
    assert {row["record"] for row in rows(imported) if row["episode_id"] == "1187"} == {list(value).index("1187") + 1}
    assert imported.steps.num_rows == text.count('"role": "tool"') == 105
    first = [row for row in rows(imported) if row["episode_id"] == "1187"]
    assert [row["action"] for row in first][-2:] == ["get_detailed_response_for_advanced_movie_search", "Finish"]
    assert json.loads(first[-2]["arguments"]) == {"movie_id": 862}
    assert json.loads(first[-1]["arguments"]) == json.loads(value["1187"]["answer"]["final_answer"])
    assert first[-1]["end_reason"] == "terminated"
    malformed = [row for row in rows(imported) if row["arguments_status"] == "malformed"]
    assert imported.report.counts() == {"call cut": 103, "broken arguments": len(malformed)}
    assert malformed
    assert all(row["arguments"] is None and row["arguments_raw"] and row["tool"] for row in malformed)


def test_a_chain_that_ends_in_words_costs_no_other_query() -> None:
    def chain(role: str, text: str, *following: Any) -> dict[str, Any]:
        return {"role": role, "message": text, "next": list(following)}

    def answered(end: dict[str, Any]) -> dict[str, Any]:
        call = chain("tool", "{'name': 'f', 'arguments': '{}', 'response': 'r'}", end)
        return {
            "query": "q",
            "answer": {"method": "m", "final_answer": "", "answer_details": [chain("user", "q", call)]},
        }

    finish = chain("tool", "{'name': 'Finish', 'arguments': '{\"return_type\": \"give_answer\"}', 'response': ''}")
    imported = read({"1": answered(chain("assistant", "I stop here.")), "2": answered(finish)})
    assert [(row["episode_id"], row["action"]) for row in rows(imported)] == [
        ("1", "f"), ("1", "message"), ("2", "f"), ("2", "Finish"),
    ]  # fmt: skip
    assert imported.report.problems == []


def evaluated(name: str = "f", **fields: Any) -> dict[str, Any]:
    """An answer of ToolEval that calls one tool."""
    call = {"role": "tool", "message": f"{{'name': '{name}', 'arguments': '{{}}', 'response': 'r'}}", "next": []}
    chain = {"role": "user", "message": "q", "next": [call]}
    return {"query": "q", "answer": {"method": "m", "final_answer": "", "answer_details": [chain]}} | fields


def test_each_answer_of_a_file_is_counted_and_a_broken_one_costs_only_itself() -> None:
    trees = json.loads(example("toolbench"))
    broken = {"query": "q", "answer": "lost"}
    without = {"query": "q", "answer": {"answer_details": []}}
    imported = read(
        {"1": evaluated("f"), "2": broken, "3": evaluated("g"), "4": without}, {"5": evaluated("h"), "6": trees}
    )
    assert [(row["episode_id"], row["action"], row["source_file"], row["record"]) for row in rows(imported)] == [
        ("1", "f", "run.jsonl/answers", 1), ("3", "g", "run.jsonl/answers", 3), ("5", "h", "run.jsonl/2/answers", 1),
        ("6", "find_order", "run.jsonl/2/answers", 2), ("6", "Finish", "run.jsonl/2/answers", 2),
    ]  # fmt: skip
    assert [(p.file, p.record, p.kind) for p in imported.report.problems] == [
        ("run.jsonl/answers", 2, "not an answer"), ("run.jsonl/answers", 4, "no decision"),
    ]  # fmt: skip
    assert imported.report.sentence() == "Read 4 of 6 answers (2 lost): 5 steps in 4 episodes; 2 problems."
    assert column(imported, "reward")[-1] == 1.0
    kept = {
        (record["source_file"], record["record"]): json.loads(record["raw"]) for record in imported.records.to_pylist()
    }
    assert kept["run.jsonl/2/answers", 2] == {"6": trees}


def test_answers_of_tool_eval_may_be_records_of_their_own() -> None:
    imported = read(evaluated("f", query_id=7), evaluated("g"), {"query": "q", "answer": None})
    assert [(row["episode_id"], row["action"]) for row in rows(imported)] == [("7", "f"), ("answer-2", "g")]
    assert imported.report.sentence().startswith("Read 2 of 3 answers (1 lost)")


def test_a_verdict_that_contradicts_the_ending_is_taken_and_said() -> None:
    value = json.loads(example("toolbench"))
    imported = read(value | {"win": False})
    assert column(imported, "reward")[-1] == 0.0
    assert imported.report.counts() == {"verdict and ending disagree": 1}


def test_without_a_tree_the_messages_kept_for_training_are_read() -> None:
    call = {"name": "f", "arguments": '{"x": 1}'}
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "hm", "function_call": call},
                {"role": "function", "name": "f", "content": '{"error": "down", "response": ""}'}]  # fmt: skip
    answer = {"query": "q", "train_messages": [messages[:2], messages], "finish_type": "give_up"}
    (row,) = rows(read({"win": False, "answer_generation": answer}))
    assert (row["action"], row["arguments"], row["error"], row["reward"]) == ("f", '{"x":1}', "down", 0.0)


# -- ReAct texts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "trials"), [("hotpotqa_base_react_thought_log.txt", 102), ("50_sample_react_reflect_correct.txt", 17)]
)
def test_each_action_of_a_real_text_is_there(name: str, trials: int) -> None:
    imported = real(f"react_text/{name}")
    text = shared_trace(f"react_text/{name}").read_text()
    assert (imported.report.format, imported.report.problems) == ("react_text", [])
    assert imported.report.n_episodes == len(re.findall(r"^Question:", text, re.MULTILINE)) == trials
    written = re.findall(r"^Action \d+: (\w+)\[(.*)\]$", text, re.MULTILINE)
    inputs = [json.loads(arguments)["input"] for arguments in column(imported, "arguments")]
    assert list(zip(column(imported, "action"), inputs, strict=True)) == written
    thoughts = re.findall(r"^Thought \d+: (.*)$", text, re.MULTILINE)
    assert [metadata(row)["thought"] for row in rows(imported)] == [thought.strip() for thought in thoughts]
    last = list({row["episode_id"]: row for row in rows(imported)}.values())
    verdicts = Counter({1.0: text.count("Answer is CORRECT"), 0.0: text.count("Answer is INCORRECT")})
    assert Counter(row["reward"] for row in last if row["reward"] is not None) == +verdicts
    assert all((row["end_reason"] == "terminated") == (row["action"] == "Finish") for row in last)
    assert not any("Correct answer:" in (row["tool_result"] or "") + row["state"] for row in rows(imported))


def test_an_observation_that_spans_lines_is_whole() -> None:
    imported = real("react_text/50_sample_react_reflect_correct.txt")
    text = next(row["tool_result"] for row in rows(imported) if "Timothy Michael Kaine" in (row["tool_result"] or ""))
    assert text.count("\n") == 2
    assert text.split("\n")[1].startswith("Born in Saint Paul")


def text_of(*lines: str) -> Imported:
    return read_source("log.txt", "\n".join(lines).encode())


def test_a_numbered_trial_takes_numbered_markers_only() -> None:
    imported = text_of(
        "Question: q", "Thought 1: t", "Action 1: Search[a [b]]", "Observation 1: Steps follow.",
        "Action: none of the agent's", "Thought 2: u", "Action 2: Search[c", "Observation 2: Invalid Action.",
    )  # fmt: skip
    one, two = rows(imported)
    assert json.loads(one["arguments"]) == {"input": "a [b]"}
    assert one["tool_result"] == "Steps follow.\nAction: none of the agent's"
    assert (two["action"], two["arguments_status"], two["error"]) == ("invalid", "malformed", "Invalid Action.")


def test_the_form_without_numbers_has_inputs_of_its_own() -> None:
    imported = text_of("Question: q", "Thought: t", "Action: calc", 'Action Input: {"x": 1,', '"y": 2}', "Observation: 3",
                       "Thought: done", "Final Answer: 3")  # fmt: skip
    call, answer = rows(imported)
    assert (call["tool"], call["arguments"], call["tool_result"]) == ("calc", '{"x":1,"y":2}', "3")
    assert (answer["action"], answer["arguments"], answer["end_reason"]) == ("message", '{"text":"3"}', "terminated")


def test_a_context_belongs_to_the_question_after_it_and_to_that_asked_again() -> None:
    imported = text_of(
        "Context: Anna has a cat.", "It is black.", "Question: whose cat?", "Thought: hm", "Action: Finish[Bob]",
        "Observation: Answer is INCORRECT", "Correct answer: Anna", "Question: whose cat?", "Thought: aha",
        "Action: Finish[Anna]", "Observation: Answer is CORRECT", "", "Context: Bob has a dog.",
        "Question: whose dog?", "Action: Finish[Bob]", "Observation: Answer is CORRECT", "Context: Eve.",
        "Thought: who", "Action: Finish[Eve]", "Observation: Answer is CORRECT", "Question: never tried",
    )  # fmt: skip
    found = rows(imported)
    contexts = [json.loads(row["state"]).get("retrieved_context") for row in found]
    assert contexts == ["Anna has a cat.\nIt is black."] * 2 + ["Bob has a dog.", "Eve."]
    assert [(row["tool_result"], row["reward"]) for row in found] == [
        ("Answer is INCORRECT", 0.0), ("Answer is CORRECT", 1.0), ("Answer is CORRECT", 1.0), ("Answer is CORRECT", 1.0),
    ]  # fmt: skip
    assert metadata(found[0])["correct_answer"] == "Anna"
    assert "no step comes from 1 question with no action" in notes(imported)


def test_a_text_of_alfworld_leaves_its_examples_out() -> None:
    room = "You are in the middle of a room. You see a bed 1."
    imported = text_of(
        "Environment #0:", "Here are two examples.", room, "Your task is to: sleep.", "> go to bed 1", "Zzz.",
        "Here is the task:", room, "Your task is to: find a pen.", "> think: Where?", "OK.",
        "> take pen 1 from bed 1", "Nothing happens.", "", "STATUS: FAIL", "#####",
    )  # fmt: skip
    think, take = rows(imported)
    assert (think["action"], take["action"], take["arguments"]) == ("think", "take", '{"input":"pen 1 from bed 1"}')
    assert (take["reward"], take["error"], take["task"]) == (0.0, "Nothing happens.", "find a pen.")
    assert "no step comes from 1 trial" in notes(imported)


def test_files_without_steps_are_refused_kindly() -> None:
    with pytest.raises(TraceFormatError, match="holds no step; give the log of the trial"):
        real("react_text/alfworld_env_results_trial_0.json")


# -- WebArena ------------------------------------------------------------------------------------------------


def web_page(
    observation: str, action: str | None, thought: str = "I see.", before: str = "None", url: str = "http://s/a?b=c"
) -> str:
    """One page as WebArena renders it, its texts not escaped."""
    text = f"<h2>New Page</h2>\n<h3 class='url'><a href={url}>URL: {url}</a></h3>\n"
    text += f"<div class='state_obv'><pre>{observation}</pre><div>\n"
    text += f"<div class='prev_action' style='background-color:pink'>{before}</div>\n<div class='predict_action'>"
    if action is not None:
        text += f"<div class='raw_parsed_prediction' style='x'><pre>{thought}</pre></div>"
        text += (
            "<div class='action_object'><pre>{'action_type': <ActionTypes.CLICK: 6>, 'coords': array([0.])}</pre></div>"
        )
        text += f"<div class='parsed_action' style='x'><pre>{action}</pre></div>"
    return text + "</div>\n"


def rendered(*pages: str, task: int = 7, intent: str = "Buy a lamp") -> bytes:
    settings = f"sites: ['shop']\ntask_id: {task}\nintent: {intent}\neval: {{'reference_answers': 'SECRET'}}\n"
    return f"<!DOCTYPE html>\n<html><body>\n<pre>{settings}</pre>\n{''.join(pages)}</body></html>".encode()


def verdicts(**tasks: str) -> bytes:
    """Lines of a log for tasks like t7="PASS"; the program writes them with or without the time."""
    return "\n".join(f"[Result] ({word}) /tmp/x/{task[1:]}.json" for task, word in tasks.items()).encode()


def test_a_rendered_run_pairs_each_action_with_the_page_that_follows() -> None:
    data = rendered(
        web_page("[1] link 'Lamp'", "click [1] where [1] is [1] link 'Lamp'", "First. ```click [1]```"),
        web_page("[2] textbox", "type [2] [red [or] blue\n] where [2] is [2] textbox 'Colour'", url="http://s/lamp"),
        web_page("[3] button", "none", "I am lost", "Attempt to perfom \"type\" on element \"[2]\" but it was not found"),
        web_page("[4] button", "stop [9.50]", "Done.", "The previous prediction you issued was \"I am lost\"."),
    )  # fmt: skip
    imported = read_sources([("run/render_7.html", data), ("run/merge_log.txt", verdicts(t7="PASS", t8="FAIL"))])
    assert imported.report.sentence() == "Read 1 of 1 run: 4 steps in 1 episode; no problems."
    assert "1 results in the logs belong to no run" in notes(imported)
    click, type_, none, stop = rows(imported)
    assert [row["action"] for row in (click, type_, none, stop)] == ["click", "type", "invalid", "stop"]
    assert json.loads(click["arguments"]) == {"element": "1", "label": "link 'Lamp'"}
    assert json.loads(type_["arguments"]) == {"element": "2", "text": "red [or] blue\n", "label": "textbox 'Colour'"}
    assert (none["arguments_status"], none["arguments"], none["arguments_raw"]) == ("malformed", None, "none")
    assert [row["tool_result"] for row in (click, type_, none, stop)] == [
        "[2] textbox",
        "[3] button",
        "[4] button",
        None,
    ]
    assert [bool(row["error"]) for row in (click, type_, none, stop)] == [False, True, True, False]
    assert metadata(click)["thought"] == "First. ```click [1]```"
    assert (click["state_text"], json.loads(click["state"])["url"], click["task"]) == (
        "/a",
        "http://s/a?b=c",
        "Buy a lamp",
    )
    assert (stop["reward"], stop["reward_source"], stop["end_reason"]) == (
        1.0,
        "evaluator (merge_log.txt)",
        "terminated",
    )
    assert [row["reward"] for row in (click, type_, none)] == [None] * 3
    assert not any("SECRET" in str(value) for row in rows(imported) for value in row.values())


def test_texts_that_look_like_html_stay_texts() -> None:
    odd = (
        "<script>alert(1)</script> <!-- <style> <div class='state_obv'> 3 < 4 && x &lt;b&gt; <![CDATA[ <a href=x>y</a>"
    )
    imported = read_source(
        "f", rendered(web_page(odd, "click [1]"), web_page("next", "stop [ok]"), web_page(odd, None))
    )
    first, second = rows(imported)
    assert (first["tool_result"], second["tool_result"]) == ("next", odd.replace("&lt;b&gt;", "<b>"))
    assert imported.report.problems == []


def test_a_stop_by_the_program_is_no_action_of_the_agent() -> None:
    for words, end, timeout in (("Early stop: Reach max steps 30", "truncated", True), ("ERROR: no key", "cut", None)):
        data = rendered(web_page("a", "scroll [down]"), web_page("b", f"stop [{words}]"))
        imported = read_sources([("render_7.html", data), ("log.txt", verdicts(t7="FAIL"))])
        (row,) = rows(imported)
        assert (row["action"], row["tool_result"], row["end_reason"], row["timeout"]) == ("scroll", "b", end, timeout)
        assert (row["reward"], metadata(row)["stopped_by_program"]) == (0.0, words)
    with pytest.raises(TraceFormatError, match="no action of the agent"):
        read_source("f", rendered(web_page("a", "stop [Early stop: Failed to parse actions for 3 times]")))


def test_results_and_settings_belong_to_the_runs_of_their_folder() -> None:
    run = rendered(web_page("a", "stop [1]"))
    settings = json.dumps({"model": "gpt-x", "result_dir": "r", "temperature": 0.5, "action_set_tag": "id"}).encode()
    times = b"2026-01-05 10:00:00,123 - INFO - [Config file]: 7.json\n2026-01-05 10:00:00,124 - INFO - "
    log = times + verdicts(t7="PASS") + b"\n" + times + verdicts(t7="FAIL")  # run again: the last result counts
    files = [
        ("a/render_7.html", run), ("a/merge_log.txt", log), ("a/config.json", settings),
        ("b/render_7.html", run), ("b/merge_log.txt", verdicts(t7="PASS")), ("b/log_files.txt", b"log_files/1.log"),
        ("c/render_7.html", run), ("c/error.txt", b"[Config file]: 7.json\nTraceback"),
    ]  # fmt: skip
    imported = read_sources(files)
    assert imported.report.sentence() == "Read 3 of 3 runs: 3 steps in 3 episodes; no problems."
    found = {row["episode_id"]: (row["reward"], row["behavior_policy"], row["temperature"]) for row in rows(imported)}
    assert found == {"a/task-7": (0.0, "gpt-x", 0.5), "b/task-7": (1.0, "b", None), "c/task-7": (None, "c", None)}
    assert "log_files.txt 1, error.txt 1" in notes(imported)


def test_a_run_that_cannot_be_taken_apart_costs_itself_only() -> None:
    run = rendered(web_page("a", "click [1]"), web_page("b", "stop [x]"))
    endless = run.replace(b"URL", b"&#" + b"9" * 5000 + b";", 1)  # a number too long to be one
    imported = read_sources([("render_1.html", endless), ("render_2.html", run)])
    (problem,) = imported.report.problems
    assert (problem.file, problem.record, problem.kind) == ("render_1.html", 1, "unexpected content")
    assert set(column(imported, "source_file")) == {"render_2.html"}


@pytest.mark.parametrize(
    ("piece", "end"),
    [
        (" ", "x where"),
        (" where [", ""),
        (" where [1", ""),
        (" where [1] is [", ""),
        (" where [1] is ", "["),
        ("[", ""),
    ],
)
def test_long_actions_and_results_take_no_longer_than_their_length(piece: str, end: str) -> None:
    n = 2**17
    started = time.process_time()
    run = rendered(web_page("a", "click [2] " + piece * (n // len(piece)) + end), web_page("b", "stop [x]"))
    log = b"[Result] (PASS) config/7.json\n[Result] (PASS) " + (piece * (n // len(piece)) + "a" * n).encode()
    imported = read_sources([("render_7.html", run), ("merge_log.txt", log)])
    assert (imported.report.n_steps, column(imported, "reward")) == (2, [None, 1.0])
    assert time.process_time() - started < 5  # some 0.1 s; hours where each character is compared with each


@pytest.mark.parametrize(
    "piece", ["<a ", "<div ", "<div", "</div", "<div class='", "<div class='a' ", "<", "&#", "<pre"]
)
def test_tags_that_never_end_take_no_longer_than_their_length(piece: str) -> None:
    started = time.process_time()
    run = rendered(web_page("a", "click [2]"), web_page("b", "stop [x]"))
    for data in (run + (piece * 20_000).encode(), run.replace(b"click", (piece * 20_000).encode())):
        assert read_source("render_7.html", data).report.n_steps >= 1
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("path", "task"),
    [
        ("config/7.json", "7"), ("7.json", "7"), (r"C:\\config\\7.json", "7"), ("a.b/7.json.", "7"), ("7.json.json", "7.json"),
        ("config/.json", None), ("config/7.txt", None), ("config.json/7", None),
    ],
)  # fmt: skip
def test_the_task_of_a_result_is_the_name_of_its_settings(path: str, task: str | None) -> None:
    found = webarena._results(f"[Result] (FAIL) {path}\n", "log")
    assert found == ({} if task is None else {task: (0.0, "log")})


def test_broken_runs_give_what_is_whole() -> None:
    whole = rendered(web_page("first", "click [1]"), web_page("second", "hover [2]"), web_page("third", "stop [x]"))
    cut = read_source("f", whole[: whole.index(b"hover")])
    assert column(cut, "tool_result") == ["second"]
    assert (cut.report.counts(), column(cut, "end_reason")) == ({"run cut": 1}, ["cut"])
    twice = read_source(
        "f", rendered(web_page("a", "click [1]") + "<div class='parsed_action'><pre>click [2]</pre></div>")
    )
    assert (column(twice, "arguments"), twice.report.counts()) == (['{"element":"1"}'], {"text repeated": 1})
    unparsed = read_source("f", whole.replace(b"<pre>click [1]</pre>", b"<pre></pre>"))
    assert column(unparsed, "action") == ["invalid", "hover", "stop"]
    for data, sentence in (
        (rendered("<div class='state_obv'></div>"), "no action"),
        (verdicts(t7="PASS"), "No step could be read"),
    ):
        with pytest.raises(TraceFormatError, match=sentence):
            read_source("f", data)


def test_pictures_in_pages_are_left_out_and_playwright_is_told() -> None:
    picture = f"<img src='data:image/png;base64,{'iVBOR' * 999}=' style='width:50vw'/>"
    code = '<div class=\'predict_action\'>page.get_by_role("link", name="Lamp").click()</div>'
    imported = read_source("f", rendered(web_page("a", None).replace("<div class='predict_action'>", picture + code)))
    (row,) = rows(imported)
    assert (row["action"], json.loads(row["arguments"])["code"][:16]) == ("click", "page.get_by_role")
    assert "iVBOR" not in str(imported.records["raw"].to_pylist())
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name in ("trace.trace", "trace.network", *(f"resources/{i}.jpeg" for i in range(50))):
            archive.writestr(name, b'{"type": "before"}\n' * 2)
    folder = io.BytesIO()
    with zipfile.ZipFile(folder, "w") as archive:
        archive.writestr("render_7.html", rendered(web_page("a", "stop [x]")))
        archive.writestr("trace/7.zip", sink.getvalue())
    together = read_source("f", folder.getvalue())
    assert [problem.file for problem in together.report.problems] == ["f/trace/7.zip"]
    with pytest.raises(TraceFormatError, match="recording of Playwright"):
        read_source("f", sink.getvalue())


# -- WebShop -------------------------------------------------------------------------------------------------


def webshop_files() -> list[str]:
    shared_trace("agentgym_webshop_human/20220427_1_6.jsonl")
    return sorted(f"agentgym_webshop_human/{path.name}" for path in (TRACES / "agentgym_webshop_human").iterdir())


def test_real_sessions_of_webshop() -> None:
    imported = real(*webshop_files())
    assert (imported.report.n_episodes, imported.steps.num_rows, imported.report.problems) == (5, 32, [])
    for name in webshop_files():
        pages = [json.loads(line) for line in shared_trace(name).read_text().splitlines()]
        own = [row for row in rows(imported) if row["source_file"] in name]
        assert [row["record"] for row in own] == list(range(1, len(pages)))
        assert own[-1]["reward"] == pages[-1]["reward"]
        assert json.loads(own[-1]["reward_components"])["r_att"] == pages[-1]["reward_info"]["r_att"]
        goal = pages[0]["goal"]
        for row, page in zip(own, pages, strict=False):
            state = json.loads(row["state"])
            assert state["user_goal"] == goal["instruction_text"]
            assert (state["page"], state.get("retrieved_context")) == (page["page"], page.get("content"))
            assert not {"goal", "attributes", "name"} & state.keys()


def test_actions_are_read_off_the_next_page() -> None:
    imported = real("agentgym_webshop_human/20220427_1_12.jsonl", "agentgym_webshop_human/20220427_1_15.jsonl")
    assert column(imported, "action") == [
        "search", "back to search", "search", "open item", "buy now",
        "search", "open item", "choose option", "choose option", "buy now",
    ]  # fmt: skip
    assert json.loads(column(imported, "arguments")[7]) == {"size": "8"}
    assert json.loads(column(imported, "arguments")[8]) == {"color": "z2-pink"}


def page(kind: str, path: str, content: Any = None, **fields: Any) -> dict[str, Any]:
    goal = {"instruction_text": "buy", "asin": "SECRET"}
    return {"page": kind, "url": f"http://shop/{path}", "goal": goal, "content": content} | fields


def test_turned_pages_details_and_sessions_that_end_early() -> None:
    found = {"keywords": ["a"], "page": 1}
    item = {"asin": "B1", "options": {}}
    imported = read(
        page("search_results", "search_results/s1/k/1", found),
        page("search_results", "search_results/s1/k/2", found | {"page": 2}),
        page("item_page", "item_page/s1/B1/k/2/{}", item),
        page("item_sub_page", "item_sub_page/s1/B1/k/2/Description/{}", item),
        page("item_page", "item_page/s1/B1/k/2/{}", item),
        page("item_page", "item_page/s1/B1/k/2/{}", item),
        page("index", "s2"), page("done", "done/s2/B1/{}", item, reward=None),
        page("index", "s3"),
        {"x": 1},
    )  # fmt: skip
    assert column(imported, "action") == [
        "next page",
        "open item",
        "show details",
        "previous page",
        "invalid",
        "buy now",
    ]
    assert json.loads(column(imported, "arguments")[2]) == {"section": "Description"}
    assert [row["end_reason"] for row in rows(imported)][-2:] == ["unknown", "terminated"]
    assert set(column(imported, "reward")) == {None}
    assert not any("SECRET" in state for state in column(imported, "state"))
    assert imported.report.counts() == {"reward is not a number": 1, "no decision": 1, "not a page": 1}


# -- Agent Lightning -----------------------------------------------------------------------------------------


def test_growing_requests_of_a_real_rollout_are_one_episode() -> None:
    imported = real("agent_lightning/events_v1.jsonl")
    events = [json.loads(line) for line in shared_trace("agent_lightning/events_v1.jsonl").read_text().splitlines()]
    longest = events[2]["data"]["request"]["messages"]
    calls = [call["function"]["name"] for m in longest if m["role"] == "assistant" for call in m["tool_calls"]]
    assert column(imported, "action") == [*calls, "finish"]
    assert column(imported, "tool_result")[:-1] == [m["content"][0]["text"] for m in longest if m["role"] == "tool"]
    assert [value for value in column(imported, "latency_ms") if value] == [4658.7, 3447.3, 5606.5]
    assert column(imported, "reward") == [None] * 5 + [1.0]
    assert imported.report.counts() == {"no reply": 1, "no decision": 1}


def event(kind: str, rollout: str, attempt: str, **data: Any) -> dict[str, Any]:
    return {"event_type": kind, "rollout_id": rollout, "attempt_id": attempt, "timestamp": 0.0, "data": data}


def request(rollout: str, attempt: str, said: str, *before: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": "q"}, *({"role": "assistant", "content": text} for text in before)]
    reply = {"choices": [{"message": {"role": "assistant", "content": said}}]}
    return event("model_request", rollout, attempt, model="m", request={"messages": messages}, response=reply)


def test_the_last_attempt_counts_and_the_others_are_said() -> None:
    imported = read(
        request("r", "0", "bad"), event("reward", "r", "0", value=0.0), request("r", "1", "good"),
        event("reward", "r", "1", value=0.75, source="fallback"), event("heartbeat", "r", "1"),
    )  # fmt: skip
    (row,) = rows(imported)
    assert (row["arguments"], row["reward"]) == ('{"text":"good"}', 0.75)
    assert row["reward_source"] == "Agent Lightning, fallback"
    assert imported.report.counts() == {"earlier attempt": 2}
    assert "Rollout r was tried 2 times" in notes(imported)
    assert "heartbeat 1" in notes(imported)


def test_equal_rollouts_stay_apart_and_rewards_stand_at_their_replies() -> None:
    grown = event("model_request", "a", "0", request={"messages": [
        {"role": "user", "content": "q"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "go on"}]},
        response={"choices": [{"message": {"role": "assistant", "content": "y"}}]})  # fmt: skip
    imported = read(
        request("a", "0", "x"), event("reward", "a", "0", value=0.5), grown, event("reward", "a", "0", value=0.5),
        request("b", "0", "x"), event("reward", "b", "0", value="high"),
    )  # fmt: skip
    assert [(row["episode_id"], row["t"], row["reward"]) for row in rows(imported)] == [
        ("a", 0, 0.5), ("a", 1, 0.5), ("b", 0, None),
    ]  # fmt: skip
    assert imported.report.counts() == {"reward is not a number": 1}


def test_triplets_of_token_ids_and_of_text() -> None:
    triplet = {"prompt": {"token_ids": [1, 2]}, "response": {"token_ids": [3], "logprobs": [-0.5]}, "reward": None}
    imported = read(
        {"rollout_id": "a", "final_reward": 1, "triplets": [triplet, triplet, 7]},
        {"rollout_id": "b", "prompt": "hi", "response": "ho", "reward": 0.25},
        {"rollout_id": "b", "prompt": "hi ho", "response": "he", "reward": 0.5},
    )
    assert [(row["episode_id"], row["t"], row["reward"], row["arguments_status"]) for row in rows(imported)] == [
        ("a", 0, None, "absent"), ("a", 1, 1.0, "absent"), ("b", 0, 0.25, "object"), ("b", 1, 0.5, "object"),
    ]  # fmt: skip
    assert metadata(rows(imported)[0]) == {"prompt_tokens": 2, "response_tokens": 1}
    assert imported.report.counts() == {"not a triplet": 1}


# -- anything ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_data_is_read_or_reported(format: str, data: st.DataObject) -> None:
    assert_read_or_reported(damaged(data, example(format)), data.draw(st.sampled_from([None, format])))
