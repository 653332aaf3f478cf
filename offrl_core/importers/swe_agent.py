"""Trajectories of SWE-agent (both versions) and mini-swe-agent: shell commands on a repository, one file a run.

A record is ``{"trajectory": [{"action", "observation", "thought", "state"}], "history", "info"}``; some have only
the ``history``. mini-swe-agent writes ``{"messages", "info", "trajectory_format"}`` or a bare list of messages with a
command in a fenced block. How a run left (``exit_status``) says nothing of success: rewards come from a report of
SWE-bench, uploaded together with the trajectories.

Demonstrations in the history (``is_demo``) are another run, shown to the model as an example: never steps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from offrl_core.importers import swe_bench
from offrl_core.importers.episode import Episode, Runs, add_metadata, looks_failed, message, others, seen, tool_call
from offrl_core.importers.fields import (
    Arguments,
    Gathered,
    Row,
    finite_number,
    label,
    mapping,
    read_arguments,
    sequence,
    stem,
    text_of,
    unused_id,
)
from offrl_core.importers.messages import joined
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import ImportReport, Place
from offrl_core.schema import canonical_json, short_hash

EXAMPLE = b"""\
{"environment": "main", "trajectory": [\
{"action": "open setup.py 3", "observation": "[File: setup.py (9 lines total)]", "thought": "Look first.", \
"response": "Look first.", "execution_time": 0.25, "state": {"open_file": "setup.py", "working_dir": "/repo"}}, \
{"action": "submit", "observation": "diff --git a/setup.py", "thought": "Done.", "response": "Done.", \
"execution_time": 0.5, "state": {"open_file": "setup.py", "working_dir": "/repo"}}], \
"history": [{"role": "system", "content": "You fix issues.", "agent": "main"}, \
{"role": "user", "content": "Fix the version.", "agent": "main"}], \
"info": {"exit_status": "submitted", "model_stats": {"instance_cost": 0.01, "api_calls": 2}}, \
"replay_config": {"problem_statement": {"id": "shop__shop-7"}, "agent": {"model": {"name": "gpt-4o", "temperature": 0}}}}
{"shop__shop-7": {"resolved": true}}
"""

_STEP = frozenset({"action", "observation", "response", "thought", "state", "execution_time", "query", "messages"})
_FENCED = re.compile(r"```(?:mswea_bash_command|bash|sh)\s*\n(.*?)\n?```", re.DOTALL)
_RETURN_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")
_FAILURES = ("Your proposed edit has introduced", "Your edit was not applied", "Your command contained a syntax error")
_TIMED_OUT = "EXECUTION TIMED OUT"
_LIMITS = ("cost", "context", "limit", "time")
_WITHOUT_REWARDS = (
    "How a run left (exit_status, in the metadata of its last step) is no success. "
    "Rewards are in the report of SWE-bench: upload it together with the trajectories."
)


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are trajectories of SWE-agent, 0 to 1, and why."""
    forms = Counter(form for value in values if (form := _form(value)))
    n_reports, n_single = forms.pop("report", 0), forms.pop("message", 0)
    if n_single and _is_mini(values):
        forms["messages with commands in fenced blocks (mini-swe-agent)"] += n_single
    n, n_others = forms.total(), len(values) - n_reports
    if n:
        return n / n_others, f"found {forms.most_common(1)[0][0]} in {n} of the first {n_others} records"
    if n_reports:
        return n_reports / len(
            values
        ) / 2, f"found verdicts of SWE-bench in {n_reports} of the first {len(values)} records"
    return 0.0, "no record holds a trajectory of actions and observations"


def _form(value: Any) -> str | None:
    """Which form a value has, in words; None where it is something else."""
    if isinstance(value, list):
        return "messages with commands in fenced blocks (mini-swe-agent)" if _is_mini(value) else None
    if not isinstance(value, dict):
        return None
    if swe_bench.is_report(value):
        return "report"
    if str(value.get("trajectory_format")).startswith("mini-swe-agent"):
        return "trajectory_format mini-swe-agent"
    steps = sequence(value.get("trajectory"))
    if steps and 2 * sum("action" in mapping(step) and "observation" in mapping(step) for step in steps) >= len(steps):
        return "trajectory of actions and observations"
    if _history(value):
        return "history of agents"
    return "message" if _is_message(value) else None


def _history(value: dict[str, Any]) -> list[Any]:
    """The history of a record that has one, and not that of another program; else nothing."""
    entries = sequence(value.get("history"))
    agents = sum(isinstance(mapping(entry).get("agent"), str) and "role" in entry for entry in entries)
    return entries if entries and 2 * agents >= len(entries) else []


def _is_mini(values: Sequence[Any]) -> bool:
    """Whether messages are a run of mini-swe-agent: one command in a fenced block per reply, then its return code."""
    texts = {"assistant": [0, 0], "user": [0, 0]}
    for value in map(mapping, values):
        text = value.get("content")
        if (counts := texts.get(str(value.get("role")))) and isinstance(text, str):
            counts[0] += 1
            counts[1] += bool(_FENCED.search(text) if value["role"] == "assistant" else _RETURN_CODE.search(text))
    (replies, commands), (_, codes) = texts["assistant"], texts["user"]
    return replies > 0 and 2 * commands > replies and 2 * codes >= commands


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read trajectories into rows, one per command; verdicts of a report among the records become rewards."""
    runs, verdicts = Runs(report), swe_bench.Verdicts()
    runs.each(_join_messages(verdicts.apart(records), report), lambda record, place: _rows(record, place, runs))
    verdicts.reward(runs)
    return runs.done("trajectories", "entries of the history", _WITHOUT_REWARDS)


def _join_messages(records: Iterable[Record], report: ImportReport) -> Iterator[Record]:
    """Make one run of the messages that are a whole file: mini-swe-agent writes a bare list."""
    for (source, single), group in groupby(records, key=lambda record: (record.source, _is_message(record.value))):
        if not single:
            yield from group
            continue
        messages = list(group)
        report.accounts.units[source] = "message"
        report.notes.append(f"{source}: {len(messages):,} messages were read as one run.")
        yield joined(messages, report)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and "content" in value


def _rows(record: Record, place: Place, runs: Runs) -> list[Row]:
    """All rows of one run."""
    value = mapping(record.value)
    steps = value.get("trajectory")
    messages = record.value if isinstance(record.value, list) else value.get("messages")
    turns = _turns(_history(value) or sequence(messages), runs)
    if not isinstance(steps, list) and not turns:
        place.lose(None, "not a trajectory", "the record holds no trajectory and no history of replies", record.raw)
        return []
    shared = _shared(value, turns, place)
    episode = Episode(unused_id(shared["task"], runs.used_ids, place), shared)
    goal = _goal(value, turns)
    if isinstance(steps, list):
        _follow_trajectory(episode, steps, turns, (goal, record.number), place)
    else:
        _follow_turns(episode, turns, (goal, record.number, "history" if "history" in value else "messages"))
    if not episode.rows:
        place.lose(None, "no decision", "the trajectory is empty, so there is no decision to learn from", record.raw)
        return []
    info = mapping(value.get("info"))
    status = label(info.get("exit_status"))
    stats = mapping(info.get("model_stats"))
    add_metadata(episode.rows[-1], exit_status=status, model_stats=stats or None)
    return episode.close(_end_reason(status))


def _end_reason(status: str | None) -> str | None:
    """What ``exit_status`` proves: a submission ends the task, a limit cuts the run off, the rest says neither."""
    status = (status or "").lower()
    if any(limit in status for limit in _LIMITS):
        return "truncated"
    return "terminated" if status == "submitted" else None


def _shared(value: dict[str, Any], turns: list[_Turn], place: Place) -> Row:
    """Columns that are the same on every row of a run."""
    replay = value.get("replay_config")
    replay = mapping(parse_json(replay)[0] if isinstance(replay, str) else replay)
    info = mapping(value.get("info"))
    agent = mapping(replay.get("agent")) or mapping(mapping(info.get("config")).get("agent"))
    model = mapping(agent.get("model")) or mapping(mapping(info.get("config")).get("model"))
    docs = mapping(agent.get("tools")).get("command_docs")
    prompt = "\n".join(
        text_of(entry.get("content")) or "" for turn in turns for entry in turn.before if _is_system(entry)
    )
    instance = mapping(replay.get("problem_statement")).get("id") or value.get("instance_id")
    return {
        "task": label(instance) or stem(place.file) or "trajectory",
        "behavior_policy": label(model.get("name") or model.get("model_name")),
        "temperature": finite_number(model.get("temperature")),
        "prompt_version": short_hash(prompt) if prompt else None,
        "tool_schema_version": short_hash(docs) if isinstance(docs, str) and docs else None,
        "environment_version": label(value.get("environment")),
    }


def _is_system(entry: dict[str, Any]) -> bool:
    return entry.get("role") in ("system", "developer")


def _goal(value: dict[str, Any], turns: list[_Turn]) -> str | None:
    """What the run was asked for: the first message of the user."""
    for turn in turns[:1]:
        for entry in turn.before:
            if not _is_system(entry):
                return text_of(entry.get("content"))
    return None


# -- trajectories --------------------------------------------------------------------------------------------


def _follow_trajectory(
    episode: Episode, steps: list[Any], turns: list[_Turn], origin: tuple[Any, int], place: Place
) -> None:
    """One row per step of a trajectory; calls of functions are looked up in the history."""
    calls = _calls_by_command(turns)
    before: Row | None = None
    for index, step in enumerate(steps):
        if not isinstance(step, dict):
            message_ = "this is no step (an object with an action), so it was set aside"
            place.lose(f"trajectory[{index}]", "not a step", message_, step)
            continue
        after = None
        if isinstance(step.get("state"), str):  # version 0 writes the state before the command, version 1 the one after
            before = _environment(step["state"])
        else:
            after = _environment(step.get("state"))
        state = seen(origin[0], origin[1], "trajectory", index) | ({"environment": before} if before else {})
        row = episode.act(_step_action(step, calls, place.report), index, state)
        row["latency_ms"] = _milliseconds(step.get("execution_time"))
        before = after or before


def _environment(state: Any) -> Row | None:
    """Open file and working directory, from an object or from JSON text."""
    return mapping(parse_json(state)[0] if isinstance(state, str) else state) or None


def _milliseconds(seconds: Any) -> float | None:
    number = finite_number(seconds)
    return None if number is None else number * 1000


def _step_action(step: dict[str, Any], calls: dict[str, list[Any]], report: ImportReport) -> Row:
    """The action columns of one step."""
    command, observation = step.get("action"), text_of(step.get("observation"))
    thought = text_of(step.get("thought")) or None
    unknown = others(step, _STEP)
    if not isinstance(command, str) or not command.strip():
        text = thought or text_of(step.get("response"))
        return message(text, result=observation, error_guessed=None, other=unknown)
    found = calls.get(command.strip())
    if found:
        name, arguments, call_id = _function(found.pop(0))
    else:
        (name, arguments), call_id = _command(command), None
    error = _failure(observation)
    guessed = True if error else None
    return tool_call(
        name,
        arguments,
        result=observation,
        error=error,
        call_id=call_id,
        thought=thought,
        error_guessed=guessed,
        other=unknown,
    )


def _command(command: str) -> tuple[str, Arguments]:
    """Name and arguments of a command: its first word, and the rest as text."""
    name, _, rest = command.strip().partition(" ")
    if "\n" in name:
        name, _, rest = command.strip().partition("\n")
    return name, Arguments("object", canonical_json({"args": rest.strip()} if rest.strip() else {}), command)


def _failure(observation: str | None) -> str | None:
    """The observation where it tells of a failure; SWE-agent has no flag for it."""
    if observation and (_TIMED_OUT in observation or observation.startswith(_FAILURES)):
        return observation.strip()
    return looks_failed(observation)


# -- histories and messages ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Turn:
    """One reply of the model: its index, what came before it (for the first one: the prompts) and its results."""

    index: int
    entry: dict[str, Any]
    before: list[dict[str, Any]]
    results: list[dict[str, Any]] = field(default_factory=list)


def _turns(entries: list[Any], runs: Runs) -> list[_Turn]:
    """Cut a history into replies and what came back; demonstrations are left out and counted."""
    turns: list[_Turn] = []
    waiting: list[dict[str, Any]] = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            continue
        if entry.get("is_demo"):
            runs.skipped["demonstrations"] += 1
        elif entry.get("role") == "assistant":
            turns.append(_Turn(index, entry, waiting))
            waiting = []
        elif turns:
            turns[-1].results.append(entry)
        else:
            waiting.append(entry)
    return turns


def _calls_by_command(turns: list[_Turn]) -> dict[str, list[Any]]:
    """The calls of functions behind the commands of a history, in order."""
    calls: dict[str, list[Any]] = {}
    for turn in turns:
        command, found = turn.entry.get("action"), sequence(turn.entry.get("tool_calls"))
        if isinstance(command, str) and len(found) == 1:
            calls.setdefault(command.strip(), []).append(found[0])
    return calls


def _function(call: Any) -> tuple[str | None, Arguments, str | None]:
    """Name, arguments and id of a call of a function."""
    function = mapping(mapping(call).get("function"))
    name = function.get("name")
    arguments = read_arguments(function.get("arguments"))
    return name if isinstance(name, str) else None, arguments, label(mapping(call).get("id"))


def _follow_turns(episode: Episode, turns: list[_Turn], origin: tuple[Any, int, str]) -> None:
    """One row per command of a history, or per reply without one."""
    goal, record, list_name = origin
    for turn in turns:
        actions = _turn_actions(turn)
        for action in actions:
            row = episode.act(action, turn.index, seen(goal, record, list_name, turn.index))
            row["message_index"] = turn.index
            row["cost_usd"] = finite_number(mapping(turn.entry.get("extra")).get("cost"))


def _turn_actions(turn: _Turn) -> list[Row]:
    """The actions of one reply with what came back: results by id, else in their order."""
    entry = turn.entry
    text = text_of(entry.get("content"))
    thought = text_of(entry.get("thought")) or text or None
    calls = _turn_calls(entry, text)
    if not calls:
        result = text_of(turn.results[0].get("content")) if turn.results else None
        return [message(text, result=result)]
    results = list(turn.results)
    rows = []
    for name, arguments, call_id in calls:
        position = next((i for i, result in enumerate(results) if call_id and call_id in _ids(result)), None)
        if position is None:
            position = next((i for i, result in enumerate(results) if not (call_id and _ids(result))), None)
        result = text_of(results.pop(position).get("content")) if position is not None else None
        error = _exit_failure(result)
        rows.append(
            tool_call(
                name,
                arguments,
                result=result,
                error=error or _failure(result),
                call_id=call_id,
                thought=thought,
                error_guessed=True if not error and _failure(result) else None,
            )
        )
    return rows


def _turn_calls(entry: dict[str, Any], text: str | None) -> list[tuple[str | None, Arguments, str | None]]:
    """The calls of a reply: of functions, as a command beside the text, or in a fenced block of it."""
    if found := sequence(entry.get("tool_calls")):
        return [_function(call) for call in found]
    command = entry.get("action")
    if isinstance(command, str) and command.strip():
        return [(*_command(command), None)]
    actions = sequence(mapping(entry.get("extra")).get("actions"))
    commands = [mapping(action).get("command", action) for action in actions] or _FENCED.findall(text or "")[:1]
    return [("bash", read_arguments({"command": command}), None) for command in commands]


def _ids(result: dict[str, Any]) -> list[str]:
    """Ids of the calls that a result answers."""
    given = result.get("tool_call_id") or result.get("tool_call_ids")
    return [found for item in (given if isinstance(given, list) else [given]) if (found := label(item))]


def _exit_failure(result: str | None) -> str | None:
    """The result where its return code says that the command failed."""
    code = _RETURN_CODE.match(result or "")
    return result if code and code[1] != "0" else None
