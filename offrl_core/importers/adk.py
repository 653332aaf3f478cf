"""Sessions of Google's ADK and conversations of Gemini: events or contents made of parts, mostly without call ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from offrl_core.importers.episode import name_of, others
from offrl_core.importers.fields import Gathered, Row, label, mapping, read_arguments, sequence, text_of
from offrl_core.importers.messages import Call, Conversation, Message, Result, each_record, failure, gather
from offrl_core.importers.openai_chat import reward_of
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.schema import canonical_json, short_hash

EXAMPLE = b"""\
{"id": "s1", "app_name": "shop", "user_id": "u1", "reward": 1, "events": [\
{"author": "user", "content": {"role": "user", "parts": [{"text": "Is A1 in stock?"}]}}, \
{"author": "clerk", "content": {"role": "model", "parts": [{"function_call": \
{"name": "stock_level", "args": {"sku": "A1"}}}]}}, \
{"author": "clerk", "content": {"role": "user", "parts": [{"function_response": \
{"name": "stock_level", "response": {"result": "3"}}}]}}, \
{"author": "clerk", "content": {"role": "model", "parts": [{"text": "Yes, 3 pieces."}]}}]}
"""

_HANDOFFS = frozenset({"transfer_to_agent", "transfer_to_other_agent"})
_READ_FIELDS = frozenset({"events", "contents", "id", "reward", "score", "success", "metadata"})


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are sessions of parts, 0 to 1, and why."""
    n = sum(_items(value) is not None for value in values)
    if not n:
        return 0.0, "no record holds events or contents with parts"
    return n / len(values), f"found content with parts (Google ADK or Gemini) in {n} of the first {len(values)} records"


def _items(value: Any) -> list[Any] | None:
    """The events or contents of a record; None where most of them have no parts."""
    found = mapping(value)
    items = found.get("events", found.get("contents"))
    if not isinstance(items, list) or not items:
        return None
    return items if 2 * sum("parts" in _content(item) for item in items) >= len(items) else None


def _content(item: Any) -> Row:
    """What an event says, or a content itself."""
    found = mapping(item)
    return mapping(found["content"]) if "content" in found else found


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read sessions into rows; one row per function call or reply without one."""
    conversations: list[Conversation] = []
    skipped: Counter[str] = Counter()

    def parse(record: Record, place: Place) -> None:
        found = mapping(record.value)
        items = found.get("events", found.get("contents"))
        if isinstance(items, list):
            conversations.append(_conversation(items, record, place, skipped))
        else:
            place.lose(None, "not a session", "the record holds no events or contents, so it was set aside", record.raw)

    each_record(records, report, parse)
    runs = gather(conversations, report)
    runs.skipped = skipped
    return runs.done("sessions", "events")


def _conversation(items: list[Any], record: Record, place: Place, skipped: Counter[str]) -> Conversation:
    """One session."""
    given = record.value
    messages = []
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            text = "this is no event, so it was set aside"
            place.lose(f"events[{index}]", "not a message", text, item)
        elif item.get("partial") is True:
            skipped["piece of a streamed reply"] += 1  # the whole reply follows
        elif sequence(_content(item).get("parts")):
            messages.append(_message(item, record, index))
        else:
            skipped["without content"] += 1
    system = text_of(_parts(given.get("systemInstruction", given.get("system_instruction"))))
    return Conversation(
        record,
        messages,
        name=label(given.get("id")),
        shared={
            "task": label(given.get("app_name")) or label(given.get("appName")),
            "prompt_version": short_hash(system) if system else None,
        },
        reward=reward_of(given, place),
        metadata=others(given, _READ_FIELDS),
    )


def _parts(content: Any) -> list[Any] | None:
    """The parts of a content."""
    parts = mapping(content).get("parts")
    return parts if isinstance(parts, list) else None


def _message(event: Row, record: Record, index: int) -> Message:
    """One event: what a user, an agent or a function said."""
    calls, results, thoughts, rest = [], [], [], []
    for part in sequence(_content(event).get("parts")):
        found = mapping(part)
        if call := mapping(found.get("function_call", found.get("functionCall"))):
            calls.append(_call(call))
        elif "function_response" in found or "functionResponse" in found:
            results.append(_result(mapping(found.get("function_response", found.get("functionResponse")))))
        elif found.get("thought") is True:
            thoughts.append(str(found.get("text")))
        elif found.get("text") is not None or not found:
            rest.append(part)
        else:
            rest.append(f"[{next(iter(found))}]")
    author, role = label(event.get("author")), _content(event).get("role")
    message = Message(record, index, "assistant", text_of(rest) if rest else None, calls, results)
    message.thought = "\n\n".join(thoughts) or None
    if author == "user" or (role != "model" and (results or author is None)):
        message.role = "tool" if results else "user"
    elif author and author != "model":
        message.columns = {"behavior_policy": author}
    return message


def _call(call: Row) -> Call:
    """A function call; one that gives the word to another agent is a handoff."""
    name = name_of(call.get("name"))
    return Call(
        label(call.get("id")), name, read_arguments(call.get("args", {})), "handoff" if name in _HANDOFFS else None
    )


def _result(response: Row) -> Result:
    """What a function gave back: an object, or one value under ``result``."""
    value = response.get("response")
    inner = mapping(value)
    single = inner["result"] if list(inner) == ["result"] else value
    text = single if isinstance(single, str) else canonical_json(single)
    explanation = inner.get("error") if isinstance(inner.get("error"), str) else None
    failed = True if inner.get("status") == "error" or inner.get("isError") is True else None
    error, guessed = failure(text, failed, explanation)
    return Result(label(response.get("id")), text, error, guessed, name_of(response.get("name")), ordered=True)
