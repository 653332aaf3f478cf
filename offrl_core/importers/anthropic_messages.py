"""Conversations in the form of Anthropic's API: messages with content blocks, and recorded streams of managed agents.

The messages are read as OpenAI's are, since files mix the two; this importer answers for files in which blocks of
this API occur. A managed agent's recording has one ``[method, payload]`` per line; the whole file is one session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from offrl_core.importers import openai_chat
from offrl_core.importers.episode import name_of
from offrl_core.importers.fields import Gathered, Row, label, mapping, read_arguments, sequence, text_of, tools_columns
from offrl_core.importers.messages import Call, Conversation, Message, Result, each_record, failure, gather, joined
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.responses_items import merged_replies
from offrl_core.schema import short_hash

EXAMPLE = b"""\
{"id": "weather", "model": "claude-sonnet-4-5", "reward": 1, "system": "Be brief.", "messages": [\
{"role": "user", "content": "Is it warm in Prague?"}, \
{"role": "assistant", "content": [{"type": "thinking", "thinking": "I need the weather."}, \
{"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Prague"}}]}, \
{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "23 C"}]}, \
{"role": "assistant", "content": [{"type": "text", "text": "Yes, 23 C."}]}]}
"""

_CALLS = frozenset({"agent.tool_use", "agent.custom_tool_use", "agent.mcp_tool_use"})
_RESULTS = frozenset({"agent.tool_result", "user.custom_tool_result", "agent.mcp_tool_result"})


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are Anthropic's messages or a recorded session, 0 to 1, and why."""
    if n := sum(_is_recorded(value) for value in values):
        return n / len(values), f"found recorded calls of a managed agent in {n} of the first {len(values)} records"
    confidence, why, blocks = openai_chat.sniff_roles(values)
    if not blocks:
        return 0.0, "no record holds content blocks of Anthropic's API"
    return confidence, f"{why}, with content blocks of Anthropic's API in {blocks}"


def _is_recorded(value: Any) -> bool:
    """Whether a value is a recorded call of the client: its method and what it got or sent."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and value[0].startswith("client.")


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read conversations into rows; one row per tool call or reply without a call."""
    recordings: dict[str, list[Record]] = {}
    gathered = openai_chat.read(_without_recordings(records, recordings), report)
    if recordings:
        report.accounts.units |= dict.fromkeys(recordings, "event")
        skipped: Counter[str] = Counter()
        sessions: list[Conversation] = []

        def parse(record: Record, _: Place) -> None:
            sessions.append(_session(record, skipped))

        each_record((joined(found, report) for found in recordings.values()), report, parse)
        runs = gather(sessions, report)
        runs.skipped = skipped
        recorded = runs.done("sessions", "events")
        gathered.rows += recorded.rows
        gathered.raw |= recorded.raw
    return gathered


def _without_recordings(records: Iterable[Record], recordings: dict[str, list[Record]]) -> Iterator[Record]:
    """Take out the records of managed agents, by file."""
    for record in records:
        if _is_recorded(record.value):
            recordings.setdefault(record.source, []).append(record)
        else:
            yield record


# -- managed agents ------------------------------------------------------------------------------------------


def _session(record: Record, skipped: Counter[str]) -> Conversation:
    """The session of a recording, from what the agent's stream says; what the client sent comes back there."""
    created: Row = {}
    messages = []
    for index, (method, payload) in enumerate(record.value):
        if method.endswith("sessions.create"):
            created = mapping(payload)
        message = _event(mapping(payload), record, index) if method.endswith("events.stream") else None
        if message:
            messages.append(message)
        else:
            skipped[label(mapping(payload).get("type")) or method.removeprefix("client.")] += 1
    agent = mapping(created.get("agent"))
    system = agent.get("system")
    tools = [tool for tool in sequence(agent.get("tools")) if "name" in mapping(tool)]
    names = filter(None, (label(agent.get("name")), label(mapping(agent.get("model")).get("id"))))
    return Conversation(
        record,
        merged_replies(messages),
        name=label(created.get("id")),
        shared={
            "task": label(created.get("title")),
            "behavior_policy": " ".join(names) or None,
            "prompt_version": short_hash(system) if isinstance(system, str) else None,
            # The toolset of the service isn't spelled out, so the custom tools alone are not all that was valid.
            **(tools_columns(tools) if len(tools) == len(sequence(agent.get("tools"))) else {}),
        },
    )


def _event(event: Row, record: Record, index: int) -> Message | None:
    """One event of the stream as a message; None where it is about the machinery."""
    kind = name_of(event.get("type"))
    if kind == "user.message":
        return Message(record, index, "user", text_of(event.get("content")))
    if kind == "agent.message":
        return Message(record, index, "assistant", text_of(event.get("content")))
    if kind == "agent.thinking":
        return Message(record, index, "assistant", thought=text_of(event.get("content") or event.get("thinking")))
    if kind in _CALLS:
        call = Call(label(event.get("id")), name_of(event.get("name")), read_arguments(event.get("input")))
        return Message(record, index, "assistant", calls=[call])
    if kind in _RESULTS:
        text = text_of(event.get("content")) or ""
        flag = event.get("is_error")
        error, guessed = failure(text, flag if isinstance(flag, bool) else None)
        keys = ("custom_tool_use_id", "tool_use_id", "mcp_tool_use_id")
        identity = next((found for key in keys if (found := label(event.get(key)))), None)
        return Message(record, index, "tool", results=[Result(identity, text, error, guessed)])
    return None
