"""Runs of OpenHands in its three shapes: results of an evaluation, a downloaded trajectory, events of the new SDK.

An evaluation writes one record a run, ``{"instance_id", "history": [event, ...], "metrics", "test_result"}``. A
trajectory is a list of events ``{"id", "source", "action" | "observation", "cause"}``, the new SDK writes events with
a ``kind``, one per line or per file. What the agent did becomes rows; an observation belongs to the action that it names.
Prompts, state updates, memory and what the user did in the workspace are context, and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from offrl_core.importers import swe_bench
from offrl_core.importers.episode import Episode, Runs, add_metadata, message, seen, tool_call
from offrl_core.importers.fields import (
    Arguments,
    Gathered,
    Row,
    finite_number,
    label,
    mapping,
    rate_by_form,
    read_arguments,
    sequence,
    stem,
    text_of,
    tools_columns,
    unused_id,
)
from offrl_core.importers.messages import joined
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.schema import short_hash

EXAMPLE = b"""\
{"instance_id": "shop__shop-7", "metadata": {"agent_class": "CodeActAgent", "llm_config": {"model": "gpt-4o", \
"temperature": 0.0, "api_key": "**********"}}, "test_result": {"git_patch": "", "report": {"resolved": true}}, \
"history": [{"id": 0, "source": "user", "action": "message", "args": {"content": "Say hello."}, "message": "Say hello."}, \
{"id": 1, "source": "agent", "action": "run", "args": {"command": "echo hello", "thought": "One command is enough."}, \
"message": "Running command: echo hello"}, \
{"id": 2, "source": "agent", "observation": "run", "cause": 1, "content": "hello", \
"extras": {"command": "echo hello", "metadata": {"exit_code": 0}}}, \
{"id": 3, "source": "agent", "action": "finish", "args": {"thought": "Done.", "outputs": {}}, "message": "Done."}]}
"""

_SOURCES = ("agent", "user", "environment")
_NO_ACTIONS = frozenset(
    {
        "system",
        "recall",
        "change_agent_state",
        "null",
        "pause",
        "resume",
        "stop",
        "condensation",
        "condensation_request",
    }
)
# Kinds of events of the new SDK; the names of all others end in "Event".
_OTHER_KINDS = frozenset({"Condensation", "CondensationRequest", "UserRejectObservation"})
_NOT_ARGUMENTS = frozenset(
    {
        "thought",
        "kind",
        "confirmation_state",
        "is_confirmed",
        "security_risk",
        "action_risk",
        "hidden",
        "translated_ipython_code",
    }
)
_VERDICTS = ("resolved", "success", "reward", "score", "result")
_LIMITS = ("maximum iteration", "max_iterations", "max iterations", "budget", "timeout", "timed out")
_NO_EVENT = "this is no event (a source with an action, an observation or a kind), so it was set aside"
_WITHOUT_REWARDS = (
    "OpenHands keeps the verdict on a patch elsewhere: upload the report of SWE-bench together with the runs."
)


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are runs or events of OpenHands, 0 to 1, and why."""
    values = [value for value in values if not swe_bench.is_report(value)]
    return rate_by_form(values, _form, "no record holds events with a source and an action, an observation or a kind")


def _form(value: Any) -> str | None:
    """Which form a value has, in words; None where it is something else."""
    if _is_event(value):
        return "events with source and action, observation or kind"
    if isinstance(value, list):
        return "lists of events" if value and _mostly_events(value) else None
    history = sequence(mapping(value).get("history"))
    if history and _mostly_events(_flat(history)):
        return "history of events (results of an evaluation)"
    return "history of events and git_patch (results of the resolver)" if history and _is_resolved(value) else None


def _is_event(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("kind")
    if isinstance(kind, str) and (kind.endswith("Event") or kind in _OTHER_KINDS):
        return "source" in value
    # The oldest evaluations left the source out, but never what an action did or an observation held.
    named = value.get("source") in _SOURCES or (("args" in value or "extras" in value) and "message" in value)
    return named and (isinstance(value.get("action"), str) or isinstance(value.get("observation"), str))


def _mostly_events(items: list[Any]) -> bool:
    return 2 * sum(map(_is_event, items)) >= len(items)


def _is_resolved(value: dict[str, Any]) -> bool:
    """Whether a record is a result of the resolver, whose events have no source, and their arguments beside the action."""
    history = sequence(value.get("history"))
    named = sum(isinstance(mapping(event).get(key), str) for event in history for key in ("action", "observation"))
    return "git_patch" in value and 2 * named >= len(history)


def _sorted_out(event: Any, index: int) -> Any:
    """An event of the resolver in the form that events have elsewhere; the first message is the task."""
    if not isinstance(event, dict) or "source" in event:
        return event
    kind, content = event.get("action"), event.get("content")
    if isinstance(kind, str):
        source = "user" if index == 0 and kind == "message" else "agent"
        return {"source": source, "action": kind, "args": {key: item for key, item in event.items() if key != "action"}}
    extras = {key: item for key, item in event.items() if key not in ("observation", "content")}
    return {"source": "environment", "observation": event.get("observation"), "content": content, "extras": extras}


def _flat(history: list[Any]) -> list[Any]:
    """Events one after another; the oldest evaluations wrote pairs of action and observation."""
    return [event for item in history for event in (item if isinstance(item, list) else [item])]


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read runs into rows, one per action of the agent; verdicts of a report among the records become rewards."""
    runs, verdicts = Runs(report), swe_bench.Verdicts()
    joined = _join_events(verdicts.apart(records), report)
    runs.each(joined, lambda record, place: _rows(record, place, runs))
    verdicts.reward(runs)
    return runs.done("runs", "events", _WITHOUT_REWARDS)


def _join_events(records: Iterable[Record], report: ImportReport) -> Iterator[Record]:
    """Make one run of the events of a file, or of a folder that holds a file for each of them."""
    events: list[Record] = []
    for record in records:
        is_run = isinstance(record.value, list) or "history" in mapping(record.value)
        if events and (is_run or _run_of(record) != _run_of(events[0])):
            yield _one_run(events, report)
            events = []
        if _is_event(record.value):
            events.append(record)
        elif events:  # what is no event among events cuts no run
            report.at(record.source, record.number).lose(None, "not an event", _NO_EVENT, record.raw)
        else:
            yield record
    if events:
        yield _one_run(events, report)


def _one_run(events: Sequence[Record], report: ImportReport) -> Record:
    """One record for the events of a run."""
    report.accounts.units |= dict.fromkeys((record.source for record in events), "event")
    if len(events) > 1:
        report.notes.append(f"{_run_of(events[0])}: {len(events):,} events were read as one run.")
    return joined(events, report)


def _run_of(record: Record) -> str:
    """The run that an event belongs to: its file, or the folder of files named like ``event-00001-….json``."""
    path = PurePath(record.source)
    return str(path.parent) if path.name.startswith("event-") else record.source


def _rows(record: Record, place: Place, runs: Runs) -> list[Row]:
    """All rows of one run, those of its sub-agents behind them."""
    value = mapping(record.value)
    events = _flat(record.value if isinstance(record.value, list) else sequence(value.get("history")))
    if not events:
        place.lose(None, "not a run", "the record holds no list of events, so it was set aside", record.raw)
        return []
    if not _mostly_events(events):
        events = [_sorted_out(event, index) for index, event in enumerate(events)]
    instance = label(value.get("instance_id")) or _issue(mapping(value.get("issue")))
    shared = _shared(value, events) | {"task": instance}
    name = unused_id(instance or stem(_run_of(record)) or f"run-{record.number}", runs.used_ids, place)
    reader = _Reader(place, runs, record.number, "history" if value else "events", _latencies(value), shared)
    reader.stack.append(Episode(name, shared))
    for index, event in enumerate(events):
        reader.take(index, event)
    episodes = [*reader.finished, *reversed(reader.stack)]
    main = next(episode for episode in episodes if episode.id == name)
    if not main.rows:
        place.lose(
            None, "no decision", "the agent did nothing in this run, so there is no decision to learn from", events
        )
        return []
    error = label(value.get("error"))
    if error:
        add_metadata(main.rows[-1], run_error=error[:300])
    ends = {episode.id: _end_reason(episode, error if episode is main else None) for episode in episodes}
    rewards = _reward(value, place)
    rows = main.close(ends[name], **rewards)
    return rows + [row for other in episodes if other is not main for row in other.close(ends[other.id])]


def _issue(issue: dict[str, Any]) -> str | None:
    """The name of the issue that the resolver worked on."""
    parts = [label(issue.get(key)) for key in ("owner", "repo", "number")]
    return "{}/{}#{}".format(*parts) if all(parts) else None


def _end_reason(episode: Episode, error: str | None) -> str | None:
    """What the last step proves: the agent said that it was done, or the program that a limit was reached."""
    if episode.rows and episode.rows[-1]["action"] == "finish":
        return "terminated"
    return "truncated" if any(limit in (error or "").lower() for limit in _LIMITS) else None


def _reward(value: dict[str, Any], place: Place) -> Row:
    """The verdict on a run where the evaluation wrote one; a patch alone is none."""
    test = value.get("test_result")
    for path, holder in (
        ("report", mapping(value.get("report"))),
        ("test_result.report", mapping(mapping(test).get("report"))),
        ("test_result", test if isinstance(test, dict) else {"score": test}),
        ("the record", {key: value.get(key) for key in ("resolved", "success")}),
    ):
        for key in _VERDICTS:
            given = holder.get(key)
            number = finite_number(given)
            if number is not None:
                return {"reward": number, "reward_source": f"verifier (OpenHands, {key} of {path})"}
            if isinstance(given, int | float):
                place.mend(key, "reward is not a number", "the reward is no finite number; it stays unknown", given)
    return {}


def _latencies(value: dict[str, Any]) -> dict[str, float]:
    """Milliseconds that each reply of the model took, by its id."""
    found = {}
    for entry in sequence(mapping(value.get("metrics")).get("response_latencies")):
        name, seconds = label(mapping(entry).get("response_id")), finite_number(mapping(entry).get("latency"))
        if name and seconds is not None:
            found[name] = seconds * 1000
    return found


def _shared(value: dict[str, Any], events: list[Any]) -> Row:
    """Columns that are the same on every row of a run."""
    settings = mapping(value.get("metadata"))
    model = mapping(settings.get("llm_config"))
    system = next((event for event in events if isinstance(event, dict) and _is_system(event)), {})
    args = mapping(system.get("args"))
    prompt = text_of(args.get("content")) or text_of(mapping(system.get("system_prompt")).get("text"))
    version = label(args.get("openhands_version"))
    return tools_columns(args.get("tools") or system.get("tools")) | {
        "prompt_version": short_hash(prompt) if prompt else None,
        "behavior_policy": label(model.get("model")) or label(settings.get("agent_class")),
        "temperature": finite_number(model.get("temperature")),
        "environment_version": f"OpenHands {version}" if version else None,
    }


def _is_system(event: dict[str, Any]) -> bool:
    return event.get("action") == "system" or event.get("kind") == "SystemPromptEvent"


# -- events to actions ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Done:
    """What an event says the agent did: the columns, the reply it came from, and the ids that results name."""

    action: Row
    decision: str | None
    ids: list[str]
    model: str | None = None


@dataclass(slots=True)
class _Came:
    """What an event says came back: text, why it failed, and the ids of the action it answers."""

    text: str | None
    error: str | None
    ids: list[str]


@dataclass(slots=True)
class _Reader:
    """Takes the events of one run in order; ``stack`` holds the episode of the agent and of its sub-agents at work."""

    place: Place
    runs: Runs
    record: int
    list_name: str
    latencies: dict[str, float]
    shared: Row
    stack: list[Episode] = field(default_factory=list)
    finished: list[Episode] = field(default_factory=list)
    goal: str | None = None
    waiting: dict[str, Row] = field(default_factory=dict)  # rows without a result, by the ids that a result may name
    cost: float = 0.0

    def take(self, index: int, event: Any) -> None:
        """Take one event: an action of the agent, a result, a word of the user, or something that is no step."""
        if not isinstance(event, dict) or not _is_event(event):
            self.place.lose(f"{self.list_name}[{index}]", "not an event", _NO_EVENT, event)
            return
        new = "kind" in event
        if came := _new_result(event) if new else _old_result(event):
            self._answer(came, event, index)
        elif done := _new_action(event) if new else _old_action(event):
            self._act(done, event, index)
        elif (said := _user_text(event)) is not None:
            self._hear(said)
        else:
            self.runs.skipped[str(event.get("kind") or f"{event.get('source')} {event.get('action')}")[:40]] += 1

    def _act(self, done: _Done, event: dict[str, Any], index: int) -> None:
        """Write down what the agent did."""
        row = self.stack[-1].act(
            done.action, done.decision or index, seen(self.goal, self.record, self.list_name, index)
        )
        row["behavior_policy"] = row["behavior_policy"] or done.model
        if row["call_index"] == 0 and done.decision:
            row["latency_ms"] = self.latencies.get(done.decision)
        total = finite_number(mapping(event.get("llm_metrics")).get("accumulated_cost"))
        if total is not None and total > self.cost:
            row["cost_usd"], self.cost = total - self.cost, total
        self.waiting |= dict.fromkeys(done.ids, row)
        if event.get("action") == "delegate":
            parent = self.stack[-1].id
            name = unused_id(
                f"{parent}/{label(mapping(event.get('args')).get('agent')) or 'agent'}", self.runs.used_ids, self.place
            )
            self.stack.append(Episode(name, self.shared | {"parent_episode": parent}))

    def _answer(self, came: _Came, event: dict[str, Any], index: int) -> None:
        """Give a result to the action that it names; else to the last one, if that has none and both lack ids."""
        if event.get("observation") == "delegate" and len(self.stack) > 1:
            self.finished.append(self.stack.pop())
        row = next((self.waiting[name] for name in came.ids if name in self.waiting), None)
        last = self.stack[-1].rows[-1] if self.stack[-1].rows else None
        if row is None and not came.ids and last is not None and last["tool_result"] is None:
            row = last
            text = "an observation doesn't say which action it answers; it was given to the one before it"
            self.place.mend(f"{self.list_name}[{index}]", "result paired by order", text, event)
        if row is not None and row["tool_result"] is None:
            row["tool_result"], row["error"] = came.text, came.error[:300] if came.error else None
        elif event.get("observation") == "error" and event.get("source") == "agent" and not came.ids:
            # A reply that OpenHands could not carry out leaves no action, only this: a decision, though not which.
            refused = tool_call(None, Arguments("absent"), result=came.text, error=came.error)
            self._act(_Done(refused, None, []), event, index)
        else:
            # What the environment tells by itself (a recall, a state) answers no action of the agent.
            self.runs.skipped[f"observation {event.get('kind') or event.get('observation')}"[:40]] += 1

    def _hear(self, text: str) -> None:
        """Take a message of the user: the goal, or the answer to what the agent just said."""
        rows = self.stack[-1].rows
        if self.goal is None:
            self.goal = text
        elif rows and rows[-1]["action"] == "message" and rows[-1]["tool_result"] is None:
            rows[-1]["tool_result"] = text
        else:
            self.runs.skipped["user message"] += 1


def _names(*candidates: Any) -> list[str]:
    return [name for candidate in candidates if (name := label(candidate))]


def _user_text(event: dict[str, Any]) -> str | None:
    """What the user said, where the event is that; None for all other events."""
    if event.get("source") != "user":
        return None
    if event.get("kind") == "MessageEvent":
        return text_of(mapping(event.get("llm_message")).get("content")) or ""
    if event.get("action") == "message":
        return text_of(mapping(event.get("args")).get("content")) or text_of(event.get("message")) or ""
    return None


def _old_action(event: dict[str, Any]) -> _Done | None:
    """The action of an event with ``action`` and ``args``; None where it is none of the agent's."""
    kind, args, call = event.get("action"), mapping(event.get("args")), mapping(event.get("tool_call_metadata"))
    if event.get("source", "agent") != "agent" or not isinstance(kind, str) or kind in _NO_ACTIONS:
        return None
    response = mapping(call.get("model_response"))
    # Ids of events are numbers, those of calls are text: a prefix keeps them apart.
    ids = _names(f"event {label(event.get('id'))}" if label(event.get("id")) else None, call.get("tool_call_id"))
    decision, model = label(response.get("id")), label(response.get("model"))
    thought = text_of(args.get("thought")) or None
    if kind == "message":
        text = text_of(args.get("content")) or text_of(event.get("message"))
        return _Done(message(text), decision, ids, model)
    name = label(call.get("function_name")) or kind
    action = tool_call(
        name,
        _old_arguments(args, call, response),
        call_id=label(call.get("tool_call_id")),
        thought=thought,
        openhands_action=kind if kind != name else None,
    )
    return _Done(action, decision, ids, model)


def _old_arguments(args: dict[str, Any], call: dict[str, Any], response: dict[str, Any]) -> Arguments:
    """Arguments as the model wrote them, from its reply; else what OpenHands made of them."""
    for choice in sequence(response.get("choices")):
        for found in sequence(mapping(mapping(choice).get("message")).get("tool_calls")):
            if call.get("tool_call_id") is not None and mapping(found).get("id") == call["tool_call_id"]:
                return read_arguments(mapping(mapping(found).get("function")).get("arguments"))
    return read_arguments({key: item for key, item in args.items() if key not in _NOT_ARGUMENTS})


def _old_result(event: dict[str, Any]) -> _Came | None:
    """The result in an event with ``observation``; None where it is none."""
    kind, extras = event.get("observation"), mapping(event.get("extras"))
    if not isinstance(kind, str):
        return None
    text = text_of(event.get("content"))
    text = (text_of(event.get("message")) or "") if text is None else text
    code = mapping(extras.get("metadata")).get("exit_code", extras.get("exit_code"))
    failed = kind == "error" or bool(extras.get("error")) or (finite_number(code) or 0) > 0
    cause = label(event.get("cause"))
    call_id = mapping(event.get("tool_call_metadata")).get("tool_call_id")
    error = (text or f"exit code {code}") if failed else None
    return _Came(text, error, _names(f"event {cause}" if cause else None, call_id))


def _new_action(event: dict[str, Any]) -> _Done | None:
    """The action of an event of the new SDK."""
    if event.get("source") != "agent":
        return None
    ids = _names(event.get("id"), event.get("tool_call_id"))
    decision = label(event.get("llm_response_id"))
    if event["kind"] == "MessageEvent":
        return _Done(message(text_of(mapping(event.get("llm_message")).get("content"))), decision, ids)
    if event["kind"] != "ActionEvent":
        return None
    call, action = mapping(event.get("tool_call")), mapping(event.get("action"))
    given = call.get("arguments", mapping(call.get("function")).get("arguments"))
    made = {key: item for key, item in action.items() if key not in _NOT_ARGUMENTS}
    row = tool_call(
        label(event.get("tool_name")) or label(call.get("name")),
        read_arguments(made if given is None and action else given),
        call_id=label(event.get("tool_call_id")),
        thought=text_of(event.get("thought")) or None,
        reasoning=text_of(event.get("reasoning_content")) or None,
        security_risk=label(event.get("security_risk")),
    )
    return _Done(row, decision, ids)


def _new_result(event: dict[str, Any]) -> _Came | None:
    """The result in an event of the new SDK; None where it is none."""
    kind, ids = event.get("kind"), _names(event.get("action_id"), event.get("tool_call_id"))
    if kind == "ObservationEvent":
        observation = mapping(event.get("observation"))
        text = text_of(observation.get("content"))
        text = (text_of(observation.get("output")) or "") if text is None else text
        failed = observation.get("is_error") is True or (finite_number(observation.get("exit_code")) or 0) > 0
        return _Came(text, (text_of(observation.get("error")) or text or "error") if failed else None, ids)
    if kind in ("AgentErrorEvent", "UserRejectObservation"):
        text = text_of(event.get("error")) or text_of(event.get("rejection_reason")) or "rejected"
        return _Came(text, text, ids)
    return None
