"""OpenClaw: its telemetry, and the session files that it and Pi keep.

Telemetry is events of sessions, of which the end of a run holds the messages of the whole session. The last end of each
session is read; the events before it tell the same in pieces. Sub-agents have sessions of their own, which the call that
started them names. A session file has a line for each message, which names the one before it (``parentId``), or follows
it in the oldest version; the way to the last line is the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from offrl_core.importers.episode import Runs
from offrl_core.importers.fields import (
    Gathered,
    Row,
    finite_number,
    label,
    mapping,
    read_arguments,
    sequence,
    stem,
    text_of,
)
from offrl_core.importers.messages import Call, Conversation, Message, Result, each_record, failure, gather, joined
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.wording import counted

EXAMPLE = b"""\
{"type": "agent.start", "sessionKey": "agent:main:main", "agentId": "main", "prompt": "Any mail?", "seq": 1, "ts": 1772831320907}
{"type": "tool.start", "toolName": "exec", "params": {"command": "mail"}, "sessionKey": "agent:main:main", \
"agentId": "main", "seq": 2, "ts": 1772831323758}
{"type": "agent.end", "sessionKey": "agent:main:main", "agentId": "main", "success": true, "reward": 1, "seq": 3, \
"ts": 1772831327829, "messages": [{"role": "user", "content": [{"type": "text", "text": "Any mail?"}]}, \
{"role": "assistant", "model": "m", "content": [{"type": "toolCall", "id": "c1", "name": "exec", \
"arguments": {"command": "mail"}}]}, {"role": "toolResult", "toolCallId": "c1", "toolName": "exec", "isError": false, \
"content": [{"type": "text", "text": "none"}]}, {"role": "assistant", "content": [{"type": "text", "text": "No."}]}]}
"""

_NOTES = frozenset({"model_change", "thinking_level_change", "compaction", "label", "branch_summary"})
_FAMILIES = ("agent.", "tool.", "message.", "llm.", "session.", "command.")


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are events of OpenClaw, 0 to 1, and why."""
    n = sum(_is_event(value) for value in values)
    if any(map(_is_message_line, values)):
        lines = sum(map(_is_line, values))
        return lines / len(
            values
        ), f"found lines of a session (OpenClaw, Pi) in {lines} of the first {len(values)} records"
    return n / max(1, len(values)), f"found type, seq and ts of OpenClaw in {n} of the first {len(values)} records"


def _is_message_line(value: Any) -> bool:
    """Whether a value is the line of a message in a session file."""
    found = mapping(value)
    return found.get("type") == "message" and "role" in mapping(found.get("message"))


def _is_line(value: Any) -> bool:
    """Whether a value is a line of a session file: its head, a message, or a note that the program made."""
    found = mapping(value)
    is_head = found.get("type") == "session" and "id" in found and "cwd" in found
    is_note = isinstance(found.get("type"), str) and ("parentId" in found or found["type"] in _NOTES)
    return _is_message_line(value) or is_head or is_note


def _is_event(value: Any) -> bool:
    kind = mapping(value).get("type")
    return isinstance(kind, str) and kind.startswith(_FAMILIES) and "seq" in value and "ts" in value


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read the sessions into rows; one row per tool call or reply without one.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on events that give no step.
    """
    ends: dict[str, Record] = {}
    skipped: Counter[str] = Counter()
    events: dict[str | None, list[Record]] = {}  # that are no end, by session
    files: dict[str, list[Record]] = {}  # lines of sessions, by file

    def sort_out(record: Record, place: Place) -> None:
        event = mapping(record.value)
        session = label(event.get("sessionKey"))
        if _is_line(event):
            files.setdefault(record.source, []).append(record)
        elif not _is_event(event):
            place.lose(None, "not an event", "this is no event with type, seq and ts, so it was set aside", record.raw)
        elif event["type"] == "agent.end" and session and isinstance(event.get("messages"), list):
            if earlier := ends.get(session):
                skipped["agent.end that a later one repeats"] += 1
                report.accounts.idle[earlier.source] += 1
            ends[session] = record
        else:
            skipped[event["type"]] += 1
            events.setdefault(session, []).append(record)

    each_record(records, report, sort_out)
    for session, found in events.items():
        if session is None or session in ends:  # the end holds all of its session
            report.accounts.idle.update(record.source for record in found)
            continue
        report.accounts.group([(record.source, record.number) for record in found])
        n = counted(len(found), "event")
        message = f"session {session} has no end with its messages in this log, so its {n} give no step"
        place = report.at(found[0].source, found[0].number)
        place.lose("sessionKey", "session without an end", message, found[0].raw)
    conversations: dict[str, Conversation] = {}

    def parse(record: Record, place: Place) -> None:
        conversations[record.value["sessionKey"]] = _conversation(record, place)

    each_record(ends.values(), report, parse)
    told: list[Conversation] = []
    for lines in files.values():
        with Runs(report).guarded(lines[0]):
            told.append(_from_lines(lines, report, skipped))
    runs = gather([*_linked(conversations), *told], report)
    runs.skipped = +skipped
    return runs.done("sessions", "events")


def _from_lines(lines: Sequence[Record], report: ImportReport, skipped: Counter[str]) -> Conversation:
    """A session file: the messages on the way to its last one."""
    by_id = {name: line for line in lines if (name := label(line.value.get("id")))}
    before = {id(line): earlier for earlier, line in pairwise(lines)}
    way: dict[int, Record] = {}
    line = next((line for line in reversed(lines) if _is_message_line(line.value)), None)
    while line is not None and id(line) not in way:
        way[id(line)] = line
        parent = label(line.value.get("parentId"))
        line = by_id.get(parent or "") if "id" in line.value else before.get(id(line))
    said = [line for line in reversed(way.values()) if _is_message_line(line.value)]
    for other in lines:
        is_message = _is_message_line(other.value)
        if not is_message or id(other) not in way:
            skipped["message left behind by going back" if is_message else other.value["type"]] += 1
            report.accounts.idle[other.source] += bool(said)
    report.accounts.units[lines[0].source] = "line"
    record = joined(said or lines, report)
    messages = [_message(line.value["message"], record, index) for index, line in enumerate(said)]
    head: Row = next((line.value for line in lines if line.value["type"] == "session"), {})
    return Conversation(record, messages, name=label(head.get("id")) or stem(record.source))


def _linked(conversations: dict[str, Conversation]) -> list[Conversation]:
    """Sessions with their parents, parents first: the result of the call that starts a sub-agent names its session."""
    for parent in conversations.values():
        for item in sequence(mapping(parent.record.value).get("messages")):
            child = conversations.get(label(mapping(mapping(item).get("details")).get("childSessionKey")) or "")
            if child is not None and child is not parent and child.parent is None:
                child.parent = parent
    return sorted(conversations.values(), key=_depth)


def _depth(conversation: Conversation) -> int:
    """How many sub-agents deep a session lies; a circle, which no program writes, ends somewhere."""
    depth = 0
    parent = conversation.parent
    while isinstance(parent, Conversation) and depth < 100:
        depth, parent = depth + 1, parent.parent
    return depth


def _conversation(record: Record, place: Place) -> Conversation:
    """One session."""
    event = record.value
    messages = []
    for index, item in enumerate(event["messages"]):
        if label(mapping(item).get("role")) is None:
            place.lose(f"messages[{index}]", "not a message", "this is no message, so it was set aside", item)
        else:
            messages.append(_message(item, record, index))
    return Conversation(
        record,
        messages,
        name=event["sessionKey"],
        shared={"behavior_policy": label(event.get("agentId"))},
        reward=_reward(event),
    )


def _reward(event: Row) -> Row:
    """A reward that somebody put beside the messages; ``success`` only says that the program didn't fail."""
    value = event.get("reward")
    reward = None if isinstance(value, bool) else finite_number(value)
    return {} if reward is None else {"reward": reward, "reward_source": "field reward"}


def _message(item: Row, record: Record, index: int) -> Message:
    """One message."""
    content = item.get("content")
    parts = [mapping(part) for part in sequence(content)]
    text = (
        text_of([part for part in parts if part.get("type") not in ("toolCall", "thinking")])
        if parts
        else text_of(content)
    )
    if item["role"] == "toolResult":
        flag = item.get("isError")
        error, guessed = failure(text or "", flag if isinstance(flag, bool) else None)
        result = Result(label(item.get("toolCallId")), text or "", error, guessed, label(item.get("toolName")))
        return Message(record, index, "tool", results=[result])
    calls = [_call(part) for part in parts if part.get("type") == "toolCall"]
    thought = "\n\n".join(str(part.get("thinking")) for part in parts if part.get("type") == "thinking") or None
    model = label(item.get("model"))
    columns = {"behavior_policy": model} if model else None
    return Message(record, index, str(item["role"]), text or None, calls, thought=thought, columns=columns)


def _call(part: Row) -> Call:
    """One tool call."""
    name = part.get("name")
    return Call(
        label(part.get("id")), name if isinstance(name, str) and name else None, read_arguments(part.get("arguments"))
    )
