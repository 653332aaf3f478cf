"""Messages of LangChain and states of LangGraph, in the three spellings in which they are saved.

``{"type": "ai", "data": {...}}``, ``{"lc": 1, "type": "constructor", "id": [..., "AIMessage"], "kwargs": {...}}``, and
flat ``{"type": "ai", "content": ...}``. The same call may stand in ``tool_calls`` and again, in the provider's form,
in ``additional_kwargs`` or in a content block: it is taken once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from offrl_core.importers.chat_messages import calls_of
from offrl_core.importers.episode import name_of, others
from offrl_core.importers.fields import Gathered, Row, label, mapping, rate_by_form, read_arguments, sequence, text_of
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
from offrl_core.importers.openai_chat import prompt_version, reward_of
from offrl_core.importers.prefixes import Logged, put_together
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import ImportReport, Place

EXAMPLE = b"""\
{"thread_id": "t1", "score": 1, "messages": [{"type": "human", "data": {"content": "Is A1 in stock?"}}, \
{"type": "ai", "data": {"content": "", "response_metadata": {"model_name": "gpt-4o"}, \
"tool_calls": [{"name": "stock_level", "args": {"sku": "A1"}, "id": "call_1", "type": "tool_call"}]}}, \
{"type": "tool", "data": {"content": "3", "tool_call_id": "call_1", "status": "success"}}, \
{"type": "ai", "data": {"content": "Yes, 3 pieces.", "tool_calls": []}}]}
"""

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
_READ_FIELDS = frozenset(
    {"messages", "values", "channel_values", "reward", "score", "success", "metadata", "task", "thread_id", "id"}
)
_CALL_BLOCKS = frozenset({"tool_use", "function_call", "tool_call"})


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values hold messages of LangChain, 0 to 1, and why."""
    return rate_by_form(values, _form, "no record holds messages of LangChain")


def _form(value: Any) -> str | None:
    """In which spelling most items of a value are messages, in words; None where most are none."""
    items = [value] if _spelling(value) else _items(value) or []
    found = [spelling for item in items if (spelling := _spelling(item))]
    return found[0] if found and 2 * len(found) >= len(items) else None


def _spelling(value: Any) -> str | None:
    """In which spelling a value is a message, in words; None where it is none."""
    if not isinstance(value, dict) or "role" in value:
        return None
    if value.get("lc") == 1 and value.get("type") == "constructor":
        return "messages with lc and constructor (LangChain)" if _kind(value) in _ROLES else None
    if _kind(value) not in _ROLES:
        return None
    if isinstance(value.get("data"), dict):
        return "messages with type and data (LangChain)"
    return "messages with type and content (LangChain)" if "content" in value else None


def _kind(value: Row) -> str:
    """The kind of a message in small letters: human, ai, ..."""
    kind, identity = value.get("type"), value.get("id")
    if kind == "constructor" and isinstance(identity, list) and identity:
        kind = identity[-1]
    return kind.removesuffix("Chunk").removesuffix("Message").lower() if isinstance(kind, str) else ""


def _items(value: Any) -> list[Any] | None:
    """The messages of a record: a list, or what stands under ``messages`` of an object or of its state."""
    if isinstance(value, list):
        return value
    found = mapping(value)
    for holder in (found, mapping(found.get("values")), mapping(found.get("channel_values"))):
        messages = holder.get("messages")
        messages = parse_json(messages)[0] if isinstance(messages, str) else messages
        if isinstance(messages, list):
            return messages
    return None


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read conversations into rows; states of a graph that only grow are one conversation."""
    logged: list[Logged] = []

    def parse(record: Record, place: Place) -> None:
        items = _items(record.value)
        if items is None:
            place.lose(
                None, "not a conversation", "the record holds no list of messages, so it was set aside", record.raw
            )
            return
        logged.append(Logged(_conversation(items, record, place)))

    each_record(join_singles(records, report, lambda value: _spelling(value) is not None), report, parse)
    return gather(put_together(logged, report), report).done("conversations")


def _conversation(items: list[Any], record: Record, place: Place) -> Conversation:
    """The messages of a record with what it says about all of them."""
    given = mapping(record.value)
    messages = []
    for index, item in enumerate(items):
        if message := _message(item, record, index):
            messages.append(message)
        else:
            text = "this is no message of LangChain, so it was set aside"
            place.lose(f"messages[{index}]", "not a message", text, item)
    return Conversation(
        record,
        messages,
        name=label(given.get("thread_id")) or label(given.get("id")),
        shared={"task": label(given.get("task")), "prompt_version": prompt_version(messages)},
        reward=reward_of(given, place),
        metadata=others(given | mapping(given.get("metadata")), _READ_FIELDS),
    )


def _message(item: Any, record: Record, index: int) -> Message | None:
    """One message of any spelling; None where it is none."""
    if not isinstance(item, dict):
        return None
    kind = _kind(item)
    data = mapping(item.get("kwargs") if kind and item.get("type") == "constructor" else item.get("data", item))
    if kind == "chat":
        kind = {"user": "human", "assistant": "ai"}.get(str(data.get("role")), str(data.get("role")))
    role = _ROLES.get(kind)
    if role is None:
        return Message(record, index, "context") if kind == "remove" else None
    if role == "tool":
        return Message(record, index, role, results=[_result(data)])
    content = data.get("content")
    message = Message(record, index, role)
    if role == "assistant":
        message.calls = _calls(data)
        message.thought = _thought(data, content)
        model = mapping(data.get("response_metadata"))
        policy = label(model.get("model_name")) or label(model.get("model"))
        message.columns = {"behavior_policy": policy} if policy else None
    rest = [block for block in content if not _is_apart(block)] if isinstance(content, list) else content
    message.text = text_of(rest)
    return message


def _is_apart(block: Any) -> bool:
    """Whether a content block says what is read elsewhere: a call, or reasoning."""
    kind = name_of(mapping(block).get("type"))
    return kind in _CALL_BLOCKS or kind in ("thinking", "reasoning", "redacted_thinking")


def _thought(data: Row, content: Any) -> str | None:
    """The reasoning of a reply, beside its text."""
    thoughts = [mapping(block).get("thinking", mapping(block).get("reasoning")) for block in sequence(content)]
    thoughts.append(mapping(data.get("additional_kwargs")).get("reasoning_content"))
    return "\n\n".join(text for text in thoughts if isinstance(text, str) and text) or None


def _calls(data: Row) -> list[Call]:
    """The calls of a reply, each once, and those that LangChain could not parse."""
    calls = calls_of({"tool_calls": data.get("tool_calls")})
    invalid = [
        Call(
            label(call.get("id")),
            name_of(call.get("name")),
            read_arguments(call.get("args")),
            "invalid",
            {"parser_error": call["error"]} if call.get("error") else None,
        )
        for call in map(mapping, sequence(data.get("invalid_tool_calls")))
    ]
    if calls or invalid:
        return calls + invalid
    if calls := calls_of(mapping(data.get("additional_kwargs"))):
        return calls
    blocks = [block for block in sequence(data.get("content")) if name_of(mapping(block).get("type")) in _CALL_BLOCKS]
    return calls_of({"tool_calls": blocks})


def _result(data: Row) -> Result:
    """What a tool gave back; with LangGraph's error handling a failed call is a normal message with a status."""
    text = text_of(data.get("content")) or ""
    status = data.get("status")
    error, guessed = failure(text, True if status == "error" else None)
    return Result(label(data.get("tool_call_id")), text, error, guessed, name_of(data.get("name")))
