"""One message with a role, as OpenAI's chat API and Anthropic's messages have it, in the terms of the engine.

Both kinds are read by the same functions, because files mix them: proxies put Anthropic's blocks into OpenAI's
messages, and tools write their own variants of both. What a field means doesn't depend on the API it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offrl_core.importers.episode import name_of
from offrl_core.importers.fields import first_of, label, mapping, read_arguments, text_of
from offrl_core.importers.messages import Call, Message, Result, failure
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import Place

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
_THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking")
# Blocks of content that only Anthropic's messages have, and by which a file is known as such.
ANTHROPIC_BLOCKS = frozenset({"tool_use", "server_tool_use", "tool_result", "thinking", "redacted_thinking"})
_CALL_BLOCKS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use", "tool-call"})
_RESULT_BLOCKS = frozenset(
    {"tool_result", "mcp_tool_result", "web_search_tool_result", "code_execution_tool_result", "tool-result"}
)


def chat_messages(items: Sequence[Any], record: Record, place: Place) -> list[Message]:
    """The messages of a list; what is no message is reported and left out."""
    messages = []
    for index, item in enumerate(items):
        message = chat_message(item, record, index)
        if message:
            messages.append(message)
        else:
            text = "this is no message (an object with a role), so it was set aside"
            place.lose(f"messages[{index}]", "not a message", text, item)
    return messages


def chat_message(item: Any, record: Record, index: int) -> Message | None:
    """One message; None where the value has no role."""
    if not isinstance(item, dict):
        return None
    if isinstance(item.get("message"), dict) and "finish_reason" in item:  # a choice, as ART keeps the model's replies
        item = item["message"]
    role = item.get("role")
    if not isinstance(role, str):
        return None
    role = _ROLES.get(role, "context")
    content = _named_values(item.get("content"))
    message = Message(record, index, role)
    if role == "tool" and not _has_results(content):
        message.results = [_tool_result(item, content)]
        return message
    if isinstance(content, list):
        _take_blocks(message, content)
    else:
        message.text = text_of(content)
    if role == "assistant":
        _take_reply(message, item)
    return message


def _take_reply(message: Message, item: dict[str, Any]) -> None:
    """What only replies of the model have: calls beside the content, reasoning, a refusal."""
    if message.text is None and not message.calls:
        message.text = text_of(item.get("refusal"))
    if not message.thought:
        message.thought = _thought(item)
    if not message.calls:  # a proxy may give the same calls in both forms
        message.calls = calls_of(item)


def _thought(item: dict[str, Any]) -> str | None:
    """The reasoning beside a content, by whichever name it goes."""
    for name in _THOUGHT_FIELDS:
        text = item.get(name)
        if text and isinstance(text, str):
            return text
    return None


# -- calls and results beside the content (OpenAI) -----------------------------------------------------------


def calls_of(item: dict[str, Any]) -> list[Call]:
    """Tool calls of a reply, in the present form or the legacy ``function_call``."""
    legacy = item.get("function_call")
    if legacy is not None:
        return [_call(None, legacy)]
    calls = item.get("tool_calls") or []
    if isinstance(calls, str):
        parsed = parse_json(calls)[0]
        calls = parsed if isinstance(parsed, list) else calls
    calls = calls if isinstance(calls, list) else [calls]
    return [_call(call.get("id"), _function(call)) if isinstance(call, dict) else _call(None, call) for call in calls]


def _function(call: dict[str, Any]) -> Any:
    """The part of a call with its name and arguments: under ``function``, or the call itself."""
    custom = call.get("custom")
    if isinstance(custom, dict):  # a tool that takes free text
        return {"name": custom.get("name"), "arguments": {"input": custom.get("input")}}
    return call.get("function", call)


def _call(identity: Any, function: Any) -> Call:
    """One call from its id and ``{"name", "arguments"}``; anything else is kept as a call without a name."""
    if not isinstance(function, dict):
        return Call(label(identity), None, read_arguments(function))
    arguments = read_arguments(first_of(function, ("arguments", "args", "input", "parameters", "kwargs")))
    return Call(label(identity), name_of(function.get("name")), arguments)


def _tool_result(item: dict[str, Any], content: Any) -> Result:
    """The result in a message of a tool."""
    text = text_of(content) or ""
    explanation = item.get("error")
    flag = explanation if isinstance(explanation, bool) else None
    if item.get("is_error") is True or item.get("status") == "error":
        flag = True
    elif item.get("is_error") is False and flag is None:
        flag = False
    error, guessed = failure(text, flag, explanation)
    legacy = item.get("role") == "function"  # this form has no ids at all, and one call per reply
    return Result(label(item.get("tool_call_id")), text, error, guessed, name_of(item.get("name")), ordered=legacy)


# -- blocks of content (Anthropic) ---------------------------------------------------------------------------


def _take_blocks(message: Message, blocks: list[Any]) -> None:
    """Sort the blocks of a content list: calls, results and thoughts apart, the rest is the text."""
    calls, results, thoughts, rest = [], [], [], []
    for block in blocks:
        kind = name_of(block.get("type")) if isinstance(block, dict) else None
        if kind in _CALL_BLOCKS:
            calls.append(_block_call(block))
        elif kind in _RESULT_BLOCKS:
            results.append(_block_result(block))
        elif kind == "tool_call" and isinstance(block.get("value"), str):
            calls.append(_call(None, parse_json(block["value"])[0] or block["value"]))
        elif kind in ("thinking", "reasoning"):
            thoughts.append(text_of(first_of(block, ("thinking", "text"))) or "")
        elif kind != "redacted_thinking":  # encrypted: nothing to read
            rest.append(block)
    message.calls, message.results = calls, results
    message.thought = "\n\n".join(filter(None, thoughts)) or None
    only_other = not rest and len(blocks) > 0
    message.text = None if only_other else text_of(rest)


def _named_values(content: Any) -> Any:
    """A content in which blocks have a ``text``; LLaMA-Factory calls it ``value``, whatever it is."""
    if not isinstance(content, list):
        return content
    return [
        {"text": block["value"]} | block if isinstance(block, dict) and isinstance(block.get("value"), str) else block
        for block in content
    ]


def _has_results(content: Any) -> bool:
    """Whether the content of a tool's message is made of result blocks."""
    return isinstance(content, list) and any(name_of(mapping(block).get("type")) in _RESULT_BLOCKS for block in content)


def _block_call(block: dict[str, Any]) -> Call:
    """The call in a ``tool_use`` block, or in the ``tool-call`` of Vercel's AI SDK."""
    arguments = block.get("input", block.get("args"))
    name = name_of(block.get("name", block.get("toolName")))
    return Call(label(block.get("id", block.get("toolCallId"))), name, read_arguments(arguments))


def _block_result(block: dict[str, Any]) -> Result:
    """The result in a ``tool_result`` block, or in the ``tool-result`` of Vercel's AI SDK."""
    text = text_of(first_of(block, ("content", "output", "result"))) or ""
    flag = block.get("is_error", block.get("isError"))
    error, guessed = failure(text, flag if isinstance(flag, bool) else None)
    return Result(label(block.get("tool_use_id", block.get("toolCallId"))), text, error, guessed)


def has_anthropic_blocks(item: Any) -> bool:
    """Whether a message holds a block that only Anthropic's messages have."""
    content = mapping(item).get("content")
    if not isinstance(content, list):
        return False
    return any(name_of(mapping(block).get("type")) in ANTHROPIC_BLOCKS for block in content)
