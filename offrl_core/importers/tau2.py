"""Results of tau2-bench: simulations of an agent, a simulated user and an environment that both can act on.

A record is the whole result (``simulations`` beside ``info`` and ``tasks``) or one simulation, as the directory form
has them. The tool calls of the simulated user (``requestor: user``) act on the environment: they are no decisions of
the policy. The script of that user and the expected actions stay in the raw record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from offrl_core.importers.chat_messages import chat_messages
from offrl_core.importers.fields import Gathered, Row, finite_number, label, mapping, sequence
from offrl_core.importers.messages import Conversation, Message, each_record, gather, parts_of
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.tau_bench import run_name
from offrl_core.schema import canonical_json, short_hash

EXAMPLE = b"""\
{"info": {"agent_info": {"implementation": "llm_agent", "llm": "gpt-4.1", "llm_args": {"temperature": 0.0}}, \
"environment_info": {"domain_name": "telecom", "policy": "Help customers."}}, "tasks": [{"id": "no_data"}], \
"simulations": [{"id": "s1", "task_id": "no_data", "trial": 0, "termination_reason": "user_stop", \
"reward_info": {"reward": 1.0, "reward_breakdown": {"DB": 1.0, "COMMUNICATE": 1.0}}, "messages": [\
{"role": "user", "content": "My data is slow."}, \
{"role": "assistant", "content": null, "cost": 0.002, "generation_time_seconds": 1.5, "tool_calls": \
[{"id": "c1", "name": "get_line", "arguments": {"line": "L1"}, "requestor": "assistant"}]}, \
{"role": "tool", "id": "c1", "content": "active", "requestor": "assistant", "error": false}, \
{"role": "assistant", "content": "Please restart your phone."}, \
{"role": "user", "content": null, "tool_calls": \
[{"id": "u1", "name": "restart", "arguments": {}, "requestor": "user"}]}, \
{"role": "tool", "id": "u1", "content": "restarted", "requestor": "user", "error": false}, \
{"role": "user", "content": "It works. ###STOP###"}]}]}
"""

_TERMINATED = frozenset({"user_stop", "agent_stop"})
_TRUNCATED = frozenset({"max_steps", "too_many_errors", "timeout"})
_NOT_THE_AGENT = frozenset({"infrastructure_error", "agent_error", "user_error", "unexpected_error"})


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are results of tau2-bench, 0 to 1, and why."""
    n = sum(_is_result(value) or _is_simulation(value) for value in values)
    if not n:
        return 0.0, "no record holds simulations of tau2-bench"
    return n / len(values), f"found simulations with a termination_reason in {n} of the first {len(values)} records"


def _is_result(value: Any) -> bool:
    """Whether a value is a result with all of its simulations, or with where they are kept."""
    return "simulations" in (found := mapping(value)) and ("info" in found or "tasks" in found)


def _is_simulation(value: Any) -> bool:
    """Whether a value is one simulation."""
    return "termination_reason" in (found := mapping(value)) and ("messages" in found or "ticks" in found)


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read simulations into rows; one row per tool call of the agent, or reply without a call."""
    conversations: list[Conversation] = []
    info: Row = {}
    n_of_user = 0

    def parse(record: Record, place: Place) -> None:
        nonlocal n_of_user
        if not _is_simulation(record.value):
            text = "the record holds no simulation of tau2-bench, so it was set aside"
            place.lose(None, "not a simulation", text, record.raw)
            return
        if not isinstance(record.value.get("messages"), list):
            text = "a voice run (ticks instead of messages) can't be read; the record was set aside"
            place.lose("messages", "no messages", text, record.raw)
            return
        items = record.value["messages"]
        n_of_user += sum(len(sequence(mapping(item).get("tool_calls"))) for item in items if _is_of_user(item))
        conversations.append(_conversation(record, info, place))

    each_record(_simulations(records, info, report), report, parse)
    if n_of_user:
        report.notes.append(
            f"Tool calls of the simulated user: {n_of_user:,}. They act on the environment and are no decisions of the "
            "policy, so they give no step."
        )
    return gather(conversations, report).done("simulations")


def _simulations(records: Iterable[Record], info: Row, report: ImportReport) -> Iterator[Record]:
    """Each simulation as a record of its own: a result is one document, but its runs are the evidence."""
    for record in records:
        if not _is_result(record.value):
            yield record
            continue
        info.update(mapping(record.value.get("info")))
        simulations = sequence(record.value["simulations"])
        if not simulations:
            message = "the result holds no simulations: give the files of its folder 'simulations', too"
            report.at(record.source, record.number).lose("simulations", "no simulations", message, record.raw)
            continue
        report.accounts.found[record.source] -= 1  # its simulations are counted instead
        yield from parts_of(record, "simulations", simulations, report)


def _is_of_user(item: Any) -> bool:
    """Whether a message is a call of the simulated user, or what came back from it."""
    found = mapping(item)
    calls = sequence(found.get("tool_calls"))
    return found.get("requestor") == "user" or any(mapping(call).get("requestor") == "user" for call in calls)


def _conversation(record: Record, info: Row, place: Place) -> Conversation:
    """One simulation."""
    given = record.value
    messages = _messages(given["messages"], record, place)
    agent, environment = mapping(info.get("agent_info")), mapping(info.get("environment_info"))
    policy = environment.get("policy")
    task = label(given.get("task_id"))
    reason = label(given.get("termination_reason"))
    temperature = finite_number(mapping(agent.get("llm_args")).get("temperature"))
    names = filter(None, (label(agent.get("implementation")), label(agent.get("llm"))))
    return Conversation(
        record,
        messages,
        name=run_name(given),
        shared={
            "task": f"task {task}" if task and task.isdigit() else task,
            "behavior_policy": " ".join(names) or None,
            "temperature": temperature,
            "prompt_version": short_hash(policy) if isinstance(policy, str) else None,
            "environment_version": " ".join(filter(None, ("tau2-bench", label(environment.get("domain_name"))))),
        },
        reward={} if reason in _NOT_THE_AGENT else _reward(mapping(given.get("reward_info")), place),
        end_reason=_end_reason(reason),
        metadata={key: given[key] for key in ("termination_reason", "seed", "trial") if label(given.get(key))},
    )


def _messages(items: list[Any], record: Record, place: Place) -> list[Message]:
    """The messages of a simulation, with the cost and time of each reply; what the user called is context."""
    flat = []
    for item in items:  # several results may share a message
        flat += sequence(item["tool_messages"]) if "tool_messages" in mapping(item) else [item]
    as_chat = [
        item | {"tool_call_id": item.get("id")} if mapping(item).get("role") == "tool" else item for item in flat
    ]
    messages = chat_messages(as_chat, record, place)
    for message in messages:
        item = flat[message.index]
        if _is_of_user(item):
            message.role, message.results = "context", ()
        seconds, cost = finite_number(item.get("generation_time_seconds")), finite_number(item.get("cost"))
        columns = {"cost_usd": cost, "latency_ms": None if seconds is None else 1000 * seconds}
        message.columns = {name: value for name, value in columns.items() if value is not None}
    return messages


def _reward(info: Row, place: Place) -> Row:
    """The reward of a simulation with its parts."""
    if info.get("reward") is None:
        return {}
    reward = finite_number(info["reward"])
    if reward is None:
        message = "the reward is no finite number; it is kept as unknown (NULL), not as 0"
        place.mend("reward", "reward is not a number", message, info["reward"])
        return {}
    parts = {
        key: n
        for key, value in mapping(info.get("reward_breakdown")).items()
        if (n := finite_number(value)) is not None
    }
    return {
        "reward": reward,
        "reward_source": "verifier (tau2-bench)",
        "reward_components": canonical_json(parts) if parts else None,
    }


def _end_reason(reason: str | None) -> str | None:
    """How the simulation ended; an error of the infrastructure says nothing about the agent."""
    if reason in _TERMINATED:
        return "terminated"
    if reason in _TRUNCATED:
        return "truncated"
    return "cut" if reason in _NOT_THE_AGENT else None
