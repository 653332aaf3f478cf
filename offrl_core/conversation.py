"""The conversation behind a step, read back from its raw record for people to read."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Message(NamedTuple):
    """One message: who, what, and whether it is the decision that was asked about."""

    role: str
    text: str
    acting: bool


def messages_of(raw: str, acting_index: int | None = None) -> list[Message]:
    """Messages of a raw record in any of the conversation forms; [] where it isn't a conversation.

    Args:
        raw: the record's JSON text.
        acting_index: index of the message that acted, to be marked.
    """
    messages = _loaded(raw)
    if isinstance(messages, dict):
        messages = next((messages[key] for key in ("traj", "messages") if key in messages), None)
    if isinstance(messages, str):
        messages = _loaded(messages)
    if not isinstance(messages, list):
        return []
    return [
        Message(str(message.get("role", "?")), _text(message), i == acting_index)
        for i, message in enumerate(messages)
        if isinstance(message, dict)
    ]


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(_part_text(part) for part in content)
    lines = [str(content)] if content else []
    calls = message.get("tool_calls") or (
        [{"function": message["function_call"]}] if message.get("function_call") else []
    )
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function", call) if isinstance(call, dict) else {}
        function = function if isinstance(function, dict) else {}
        lines.append(f"→ {function.get('name')}({_shown(function.get('arguments'))})")
    return "\n".join(lines) or "(empty)"


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return str(part)
    return str(part.get("text") or f"({part.get('type', 'part')})")


def _shown(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
