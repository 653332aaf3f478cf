"""Items of OpenAI's Responses API: calls, their outputs, messages and reasoning stand one after another in a list.

One reply of the model is several items: whatever it wrote up to the next item that isn't its own. Codex keeps its
sessions in the same items.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from offrl_core.importers.chat_messages import chat_message
from offrl_core.importers.episode import name_of
from offrl_core.importers.fields import label, mapping, read_arguments, sequence, text_of
from offrl_core.importers.messages import Call, Message, Result, failure
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import Place

# Items of the API that are no message; a list with one of them isn't a list of chat messages.
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "computer_call", "mcp_call"})
_OUTPUTS = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "computer_call_output"}
)
_HOSTED = frozenset({"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"})
ITEM_TYPES = _CALLS | _OUTPUTS | _HOSTED | {"reasoning"}
_EXIT_CODE = re.compile(r"(?:Exit code|Process exited with code):? (-?\d+)")


def is_item(value: Any) -> bool:
    """Whether a value is an item of the Responses API that is no plain message."""
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind in ITEM_TYPES


def item_messages(items: Sequence[Any], record: Record, place: Place) -> list[Message]:
    """Messages of a list of items; what is no item is reported and left out."""
    messages: list[Message] = []
    for index, item in enumerate(items):
        found = item_message(item, record, index)
        if found is None:
            text = "this is neither a message nor an item that is known, so it was set aside"
            place.lose(f"items[{index}]", "not a message", text, item)
        else:
            messages.append(found)
    return merged_replies(messages)


def item_message(item: Any, record: Record, index: int) -> Message | None:
    """One item as a message of its own; None where it is nothing known."""
    kind = name_of(mapping(item).get("type"))
    if kind in _CALLS:
        return Message(record, index, "assistant", calls=[_call(item)])
    if kind is not None and kind in _HOSTED:  # the tool ran on the side of the API: its call is all that is recorded
        call = Call(label(item.get("id")), kind.removesuffix("_call"), read_arguments(item.get("action", {})))
        return Message(record, index, "assistant", calls=[call])
    if kind in _OUTPUTS:
        return Message(record, index, "tool", results=[_result(item)])
    if kind == "reasoning":
        parts = sequence(item.get("summary")) + sequence(item.get("content"))
        return Message(record, index, "assistant", thought=text_of(parts) or None)
    return chat_message(item, record, index)


def _call(item: dict[str, Any]) -> Call:
    """The call of an item; tools that take free text have it under ``input``."""
    identity = label(item.get("call_id")) or label(item.get("id"))
    if item["type"] == "function_call" or item["type"] == "mcp_call":
        return Call(identity, name_of(item.get("name")), read_arguments(item.get("arguments")))
    if item["type"] == "custom_tool_call":
        return Call(identity, name_of(item.get("name")), read_arguments({"input": item.get("input")}))
    return Call(identity, item["type"].removesuffix("_call"), read_arguments(item.get("action")))


def _result(item: dict[str, Any]) -> Result:
    """What came back; a shell says by its exit code whether it failed."""
    output = item.get("output")
    inner = mapping(parse_json(output)[0]) if isinstance(output, str) and output.startswith("{") else mapping(output)
    code = mapping(inner.get("metadata")).get("exit_code")
    text = text_of(inner["output"] if "output" in inner and "metadata" in inner else output) or ""
    if not isinstance(code, int) and (found := _EXIT_CODE.match(text)):
        code = int(found[1])
    failed = code != 0 if isinstance(code, int) else True if inner.get("success") is False else None
    error, guessed = failure(text, failed)
    return Result(label(item.get("call_id")), text, error, guessed)


def merged_replies(messages: Iterable[Message]) -> list[Message]:
    """One message for the items of one reply: those of the model that stand one after another.

    A message of the model ends its reply unless calls follow: then it is what the model thought of them.
    """
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        joins = last is not None and last.role == message.role == "assistant" and (message.calls or not _is_said(last))
        if last is None or not joins:
            merged.append(message)
        else:
            merged[-1] = _join(last, message)
    return merged


def _is_said(message: Message) -> bool:
    """Whether a reply already holds more than a thought."""
    return message.text is not None or bool(message.calls)


def _join(first: Message, second: Message) -> Message:
    """Two pieces of one reply as one message, which acts where the first call or the text stands."""
    acting = first if first.calls else second
    texts = [message.text for message in (first, second) if message.text is not None]
    return Message(
        first.record,
        acting.index,
        "assistant",
        text="\n".join(texts) if texts else None,
        calls=[*first.calls, *second.calls],
        thought="\n\n".join(filter(None, (first.thought, second.thought))) or None,
        columns=(first.columns or {}) | (second.columns or {}),
        metadata=(first.metadata or {}) | (second.metadata or {}),
        start=first.index if first.start is None else first.start,
    )
