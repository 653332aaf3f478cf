"""Sessions of Gemini CLI: one document with all messages, or one line per message.

A reply holds its calls, and each call holds what came back. In the form with lines, the program writes a message again
when it grows, so the last line with an id counts; lines with ``$set`` change what is known of the session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from offrl_core.importers.episode import name_of
from offrl_core.importers.fields import Gathered, Row, label, mapping, read_arguments, sequence, stem, text_of
from offrl_core.importers.messages import (
    Call,
    Conversation,
    Message,
    Result,
    each_record,
    failure,
    gather,
    join_singles,
)
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.schema import canonical_json

EXAMPLE = b"""\
{"sessionId": "s1", "projectHash": "p1", "startTime": "2026-01-31T11:00:00Z", "messages": [\
{"id": "m1", "timestamp": "2026-01-31T11:00:00Z", "type": "user", "content": "What is in notes.txt?"}, \
{"id": "m2", "timestamp": "2026-01-31T11:00:02Z", "type": "gemini", "content": "", "model": "gemini-2.5-pro", \
"thoughts": [{"subject": "Reading", "description": "I open the file."}], "toolCalls": [{"id": "read_file-1", \
"name": "read_file", "args": {"path": "notes.txt"}, "status": "success", "result": [{"functionResponse": \
{"id": "read_file-1", "name": "read_file", "response": {"output": "buy milk"}}}]}]}, \
{"id": "m3", "timestamp": "2026-01-31T11:00:04Z", "type": "gemini", "content": "A list.", "model": "gemini-2.5-pro"}]}
"""

_ROLES = {"user": "user", "gemini": "assistant", "model": "assistant"}
_NOTICES = frozenset({"info", "warning", "error", "quit", "compression"})  # words of the program, not of the model
_FAILED = frozenset({"error", "cancelled"})


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are sessions of Gemini CLI, 0 to 1, and why."""
    if not any(_is_session(value) or mapping(value).get("type") == "gemini" for value in values):
        return 0.0, "no record is a session of Gemini CLI"
    n = sum(_is_session(value) or _is_line(value) for value in values)
    return n / len(values), f"found sessionId and messages of type gemini in {n} of the first {len(values)} records"


def _is_session(value: Any) -> bool:
    """Whether a value is a whole session."""
    found = mapping(value)
    messages = sequence(found.get("messages"))
    n = sum(_is_message(item) for item in messages)
    return "sessionId" in found and bool(messages) and n == len(messages)


def _is_message(value: Any) -> bool:
    kind = mapping(value).get("type")
    return isinstance(kind, str) and (kind in _ROLES or kind in _NOTICES)


def _is_line(value: Any) -> bool:
    """Whether a value is a line of a session: its head, a message, or a change."""
    found = mapping(value)
    written = _is_message(value) and {"id", "timestamp"} <= found.keys()
    return written or "$set" in found or ("sessionId" in found and "projectHash" in found)


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read sessions into rows; one row per tool call or reply without one.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on messages that give no step.
    """
    conversations: list[Conversation] = []
    skipped: Counter[str] = Counter()

    def parse(record: Record, place: Place) -> None:
        if isinstance(record.value, list):
            head: Row = next((item for item in record.value if "sessionId" in mapping(item)), {})
            conversations.append(_conversation(record, head, record.value, place, skipped))
        elif isinstance(messages := mapping(record.value).get("messages"), list):
            conversations.append(_conversation(record, record.value, messages, place, skipped))
        else:
            place.lose(None, "not a session", "the record holds no messages, so it was set aside", record.raw)

    singles = join_singles(records, report, lambda value: _is_line(value) and not _is_session(value))
    each_record(singles, report, parse)
    runs = gather(conversations, report)
    runs.skipped = skipped
    return runs.done("sessions", "messages")


def _conversation(record: Record, head: Row, items: list[Any], place: Place, skipped: Counter[str]) -> Conversation:
    """One session."""
    last = {name: index for index, item in enumerate(items) if (name := label(mapping(item).get("id")))}
    messages = []
    for index, item in enumerate(items):
        found = mapping(item)
        name = label(found.get("id"))
        if name and last[name] != index:
            skipped["message that grew"] += 1
        elif found.get("type") in _ROLES:
            messages.append(_message(found, record, index))
        elif _is_line(item) or _is_message(item):
            skipped[str(found.get("type", "session"))] += 1
        else:
            text = "this is no message of a session, so it was set aside"
            place.lose(f"messages[{index}]", "not a message", text, item)
    return Conversation(record, messages, name=label(head.get("sessionId")) or stem(record.source))


def _message(item: Row, record: Record, index: int) -> Message:
    """What the user or the model said, with its calls and what came back."""
    content = item.get("content")
    message = Message(record, index, _ROLES[item["type"]], text_of(content) or None)
    if message.role == "assistant":
        calls = [mapping(call) for call in sequence(item.get("toolCalls"))]
        message.calls = [_call(call) for call in calls]
        message.results = [result for call in calls if (result := _result(call))]
        message.thought = "\n\n".join(filter(None, map(_thought, sequence(item.get("thoughts"))))) or None
        message.columns = {"behavior_policy": label(item.get("model"))}
    return message


def _thought(item: Any) -> str:
    """One thought: its subject and what it says."""
    found = mapping(item)
    return ": ".join(text for key in ("subject", "description") if (text := text_of(found.get(key))))


def _call(call: Row) -> Call:
    """One call."""
    return Call(label(call.get("id")), name_of(call.get("name")), read_arguments(call.get("args", {})))


def _result(call: Row) -> Result | None:
    """What came back from a call; None where nothing did."""
    responses = [
        mapping(mapping(mapping(part).get("functionResponse")).get("response"))
        for part in sequence(call.get("result"))
        if "functionResponse" in mapping(part)
    ]
    if not responses:
        return None
    text = "\n".join(_answer(response) for response in responses)
    failed = call.get("status") in _FAILED
    explanation = next((response["error"] for response in responses if isinstance(response.get("error"), str)), None)
    error, guessed = failure(text, failed or None, explanation)
    return Result(label(call.get("id")), text, error, guessed, name_of(call.get("name")))


def _answer(response: Row) -> str:
    """The one text of a response, or all of it."""
    for key in ("output", "error"):
        if list(response) == [key] and isinstance(response[key], str):
            return str(response[key])
    return canonical_json(response)
