"""Messages inside the inputs and outputs of spans, in the many spellings of tracing libraries, read to one form.

Known: OpenAI chat and Responses items, Anthropic blocks, GenAI parts, Gemini parts, LangChain in its three spellings,
Vercel's lists of calls, OpenInference's dotted keys; each also as JSON text and inside the usual wrappers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from offrl_core.importers.fields import label, mapping, sequence, text_of
from offrl_core.importers.records import parse_json

_MOST_LEVELS = 8  # of wrappers around messages
_ROLES = {
    "human": "user",
    "HumanMessage": "user",
    "ai": "assistant",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "model": "assistant",
    "SystemMessage": "system",
    "developer": "system",
    "ToolMessage": "tool",
    "function": "tool",
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
}
_CALL_PARTS = frozenset({"tool_use", "tool_call", "tool-call", "function_call", "custom_tool_call"})
_RESULT_PARTS = frozenset(
    {"tool_result", "tool-result", "tool_call_response", "function_call_output", "custom_tool_call_output"}
)
# What messages are called inside the input or output of a span, most telling first.
_WRAPPERS = ("messages", "generations", "choices", "candidates", "output", "message", "kwargs", "data", "contents")
# Lines of a conversation that was written as one text: "System: ...\nHuman: ...".
_USER_LINE = re.compile(
    r"^(?:user|human): (.*?)(?=^(?:system|developer|user|human|assistant|ai|tool): |\Z)", re.I | re.M | re.S
)


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a reply; ``invalid`` says why a library could not parse it."""

    name: str | None
    arguments: Any  # as the log has them
    id: str | None = None
    invalid: str | None = None


@dataclass(slots=True)
class Message:
    """One message; a result of a tool has the role ``tool``, and each result is a message of its own."""

    role: str
    text: str | None = None
    thought: str | None = None
    calls: list[Call] = field(default_factory=list)
    call_id: str | None = None  # of a result
    failed: bool = False  # a result that is flagged as an error
    model: str | None = None
    definition: Any = None  # of a tool: some libraries log them as messages


def messages_in(value: Any) -> list[Message]:
    """All messages in the input or output of a span, in order; none where it holds something else."""
    return list(_messages(loaded(value), _MOST_LEVELS))


def loaded(value: Any) -> Any:
    """The value, or what it says where it is JSON text of an object or list, also encoded twice."""
    for _ in range(2):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
            return value
        parsed, reason = parse_json(value)
        if reason:
            return value
        value = parsed
    return value


def plain_text(value: Any) -> str | None:
    """The text that a value is, or holds under one of the usual names; None where there is none."""
    value = loaded(value)
    if isinstance(value, str):
        return value
    for key in ("text", "content", "response", "answer", "output", "input", "question", "query"):
        if isinstance(text := mapping(value).get(key), str) and text:
            return text
    return None


def transcribed_user(value: Any) -> str | None:
    """What the user said first, in a conversation written as one text."""
    value = loaded(value)
    prompts = mapping(value).get("prompts")
    texts = [value] if isinstance(value, str) else [text for text in sequence(prompts) if isinstance(text, str)]
    found = (match for text in texts if (match := _USER_LINE.search(text)))
    match = next(found, None)
    return match.group(1).strip() if match else None


# -- wrappers ------------------------------------------------------------------------------------------------


def _messages(value: Any, levels: int) -> Iterator[Message]:
    """Messages of a value, inside at most so many wrappers."""
    if levels == 0:
        return
    if isinstance(value, list):
        for item in value:
            yield from _messages(item, levels - 1)
    elif isinstance(value, dict):
        role = _role(value)
        if role is not None:
            yield from _read_message(role, value)
        elif _is_call(value):
            yield Message("assistant", calls=[_call(value)])
        elif _type(value) in _RESULT_PARTS:
            yield _result(value)
        elif _is_thought(value):
            yield Message("assistant", thought=_part_text(value, marked=False))
        else:
            yield from _unwrapped(value, levels)


def _unwrapped(value: dict[str, Any], levels: int) -> Iterator[Message]:
    """Messages that stand under one of the usual names, or under whatever a function called its list of them."""
    if _type(value).endswith("Generation") and isinstance(value.get("text"), str) and "message" not in value:
        yield Message("assistant", value["text"])
        return
    if isinstance(value.get("system"), str):
        yield Message("system", value["system"])
    if isinstance(value.get("instructions"), str):
        yield Message("system", value["instructions"])
    if isinstance(value.get("prompt"), str) and "messages" not in value:
        yield Message("user", value["prompt"])
        return
    if "parts" in mapping(value.get("content")):  # a reply of Gemini, as ADK logs it: its role stands inside
        yield from _messages({"role": "model"} | value["content"], levels - 1)
        return
    names = [name for name in _WRAPPERS if isinstance(loaded(value.get(name)), list | dict)]
    for name in names or [name for name, item in value.items() if _looks_like_messages(item)]:
        found = list(_messages(loaded(value[name]), levels - 1))
        if found:
            yield from found
            return


def _looks_like_messages(value: Any) -> bool:
    """Whether a value is a list that begins with a message."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and _role(value[0]) is not None


def _role(value: dict[str, Any]) -> str | None:
    """The role of a message in one form for all libraries; None where the value is no message."""
    role = value.get("role", value.get("message.role"))
    if isinstance(role, str):
        return _ROLES.get(role)
    kind = value.get("type")
    if kind == "constructor":
        last = sequence(value.get("id"))[-1:]
        return _ROLES.get(last[0]) if last and isinstance(last[0], str) else None
    if isinstance(kind, str) and kind in ("human", "ai", "system", "tool", *_ROLES) and _has_content(value):
        return _ROLES.get(kind)
    return None


def _has_content(value: dict[str, Any]) -> bool:
    """Whether a value whose ``type`` could be a role has what only messages have."""
    return any(key in value for key in ("content", "data", "kwargs", "tool_calls"))


# -- one message ---------------------------------------------------------------------------------------------


def _read_message(role: str, value: dict[str, Any]) -> Iterator[Message]:
    """A message, and the results of tools inside it as messages of their own."""
    inner = value.get("kwargs") if value.get("type") == "constructor" else value.get("data")
    value = inner if isinstance(inner, dict) else value
    value = {key.removeprefix("message."): item for key, item in value.items()}
    content = value.get("parts", value.get("contents", value.get("content")))
    if role == "tool" and (definition := _definition(content)):
        yield Message("definition", definition=definition)
        return
    message = Message(role, model=label(mapping(value.get("response_metadata")).get("model_name")))
    results: list[Message] = []
    _read_content(content, message, results)
    _read_calls(value, message)
    yield from results
    if role == "tool" and message.calls:
        message.role = "assistant"  # some libraries log what the model called under the role of the tool
    elif role == "tool":
        message.call_id = label(value.get("tool_call_id", value.get("id")))
        message.failed = value.get("status") == "error" or value.get("is_error") is True
    if message.text or message.calls or message.thought or not results:
        yield message


def _read_content(content: Any, message: Message, results: list[Message]) -> None:
    """Sort the parts of a message into text, thought, calls and results."""
    if isinstance(content, str):
        written = loaded(content) if '"function"' in content else None
        if isinstance(written, list) and written and all(_is_call(mapping(item)) for item in written):
            message.calls += [_call(item) for item in written]
        else:
            message.text = content
        return
    texts = []
    for part in content if isinstance(content, list) else [content]:
        part = mapping(part).get("message_content", part)
        fields = mapping(part)
        if _is_call(fields):
            message.calls.append(_call(fields))
        elif _type(fields) in _RESULT_PARTS or "functionResponse" in fields or "function_response" in fields:
            results.append(_result(fields))
        elif _is_thought(fields):
            message.thought = "\n".join(filter(None, (message.thought, _part_text(part, marked=False)))) or None
        elif (text := _part_text(part)) is not None:
            texts.append(text)
    message.text = "\n".join(texts) if texts else None


def _is_thought(value: dict[str, Any]) -> bool:
    """Whether a part of a reply is what the model thought: each library has its own type for it."""
    return any(word in _type(value).lower() for word in ("reasoning", "thinking"))


def _type(value: dict[str, Any]) -> str:
    """The type that a value names, or nothing."""
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""


def _part_text(part: Any, *, marked: bool = True) -> str | None:
    """Text of a part; one that is no text leaves a mark like ``[image]``."""
    for key in ("text", "content", "thinking", "message_content.text", "summary"):
        if isinstance(text := mapping(part).get(key), str):
            return text
    return text_of([part]) if part is not None and marked else None


def _read_calls(value: dict[str, Any], message: Message) -> None:
    """Add the calls that stand beside the content; the same call may stand in two places, so the first that has any."""
    extra = mapping(value.get("additional_kwargs"))
    legacy = value.get("function_call") or extra.get("function_call")
    for calls in (value.get("tool_calls"), extra.get("tool_calls"), [legacy] if legacy else None):
        if message.calls or not calls:
            continue
        message.calls += [_call(item) for item in (calls if isinstance(calls, list) else [calls])]
    for item in sequence(value.get("invalid_tool_calls")):
        call = _call(item)
        reason = label(mapping(item).get("error")) or "the call could not be parsed"
        message.calls.append(Call(call.name, call.arguments, call.id, reason))


def _is_call(value: dict[str, Any]) -> bool:
    """Whether a value is a tool call by its type or its keys."""
    if _type(value) in _CALL_PARTS or "functionCall" in value or "function_call" in value:
        return "role" not in value
    if value.get("type") == "function" and "arguments" in mapping(value.get("function")):
        return True
    return "toolName" in value and ("args" in value or "input" in value)


def _call(value: Any) -> Call:
    """One call, whatever it is called; one that is no object has no name."""
    if not isinstance(value, dict):
        return Call(None, value)
    value = mapping(value.get("tool_call")) or value
    value = {key.removeprefix("tool_call."): item for key, item in value.items()}
    function = mapping(value.get("functionCall") or value.get("function_call") or value.get("function"))
    dotted = {key.removeprefix("function."): item for key, item in value.items() if key.startswith("function.")}
    function = function | dotted or value
    name = function.get("name", value.get("toolName", value.get("tool_name")))
    arguments = [function.get(key) for key in ("arguments", "args", "input", "parameters")]
    ids = [value.get(key) for key in ("call_id", "toolCallId", "tool_call_id", "id")]
    return Call(
        name if isinstance(name, str) and name else None,
        next((item for item in arguments if item is not None), None),
        next((text for item in [*ids, function.get("id")] if (text := label(item))), None),
    )


def _result(value: dict[str, Any]) -> Message:
    """One result that stands among the parts of a message."""
    inner = value.get("functionResponse") or value.get("function_response")
    value = mapping(inner) or value
    contents = [value.get(key) for key in ("content", "response", "result", "output", "value")]
    content = next((item for item in contents if item is not None), None)
    ids = [value.get(key) for key in ("tool_use_id", "call_id", "toolCallId", "tool_call_id", "id")]
    return Message(
        "tool",
        text_of(content),
        call_id=next((text for item in ids if (text := label(item))), None),
        failed=value.get("is_error") is True or value.get("isError") is True,
    )


def _definition(content: Any) -> Any:
    """The definition of a tool that a library logged as if it were a result; None where it is one."""
    content = mapping(loaded(content)) if not isinstance(content, list) else {}
    function = mapping(content.get("function"))
    return content if content.get("type") == "function" and "name" in function and "arguments" not in function else None
