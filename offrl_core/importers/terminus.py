"""Terminus, the agent of Terminal-Bench and Harbor: it writes its commands as JSON into its replies.

Harbor's data sets hold the bare conversations, in which the terminal answers as the user.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from offrl_core.importers.fields import mapping, read_arguments, text_of
from offrl_core.importers.messages import Call, Message, Result, failure
from offrl_core.importers.records import parse_json

_THINKING = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)


class Commands(NamedTuple):
    """What a reply tells the terminal to do: names and arguments, and why."""

    calls: list[tuple[str, Any]]
    thought: str | None


def commands_in(text: str | None) -> Commands | None:
    """The commands in the text of a reply; None where it holds none."""
    thinking = _THINKING.match(text or "")
    written = (text or "")[thinking.end() :] if thinking else text or ""
    reply = mapping(parse_json(written)[0]) if written.lstrip().startswith("{") else {}
    commands = reply.get("commands")
    if not isinstance(commands, list):
        return None
    calls: list[tuple[str, Any]] = [("bash_command", command) for command in commands]
    if reply.get("task_complete") is True:
        calls.append(("mark_task_complete", {}))
    reasons = [thinking[1].strip()] if thinking else []
    reasons += [reason for key in ("analysis", "plan") if (reason := text_of(reply.get(key)))]
    return Commands(calls, "\n".join(filter(None, reasons)) or None)


def take_commands(messages: Sequence[Message]) -> None:
    """Make calls of the commands in a conversation, and of the user's answer the result of the last of them."""
    for message, following in zip(messages, [*messages[1:], None], strict=True):
        found = commands_in(message.text) if message.role == "assistant" and not message.calls else None
        if found is None or not found.calls:
            continue
        last = str(message.index)
        message.calls = [Call(None, name, read_arguments(arguments)) for name, arguments in found.calls]
        message.calls[-1] = message.calls[-1]._replace(id=last)
        message.text, message.thought = None, found.thought
        message.metadata = (message.metadata or {}) | {"call_found_in_text": True}
        if following is not None and following.role == "user":
            text = following.text or ""
            following.role, following.results = "tool", [Result(last, text, *failure(text))]
