"""The conversation behind a step, read back from its raw record for people to read.

It shows what stands there, in whatever form: what a message means is the importers' business.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

_LISTS = ("traj", "messages", "messages_and_choices", "conversations", "events", "contents", "input")


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
    unwrapped = enumerate(map(_unwrapped, _items(_loaded(raw))))
    return [Message(_role(item), _text(item), i == acting_index) for i, item in unwrapped if item is not None]


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _items(record: Any) -> list[Any]:
    """The list of messages of a record, with the reply of a logged call at its end."""
    if isinstance(record, list):
        return record
    if not isinstance(record, dict):
        return []
    if invocations := invocations_of(record):
        return events_of(invocations)
    inner = ("request", "body", "values", "session_details", "sessionDetails")
    holders = [record, *(record[key] for key in inner if isinstance(record.get(key), dict))]
    items = next((holder[key] for holder in holders for key in _LISTS if key in holder), None)
    if isinstance(items, str):
        items = _loaded(items)
    return [*items, *_reply(record.get("response", record.get("output")))] if isinstance(items, list) else []


# -- eval cases of Google's ADK ------------------------------------------------------------------------------


def either(value: Any, name: str) -> Any:
    """A field of an object under its name in Python or in JavaScript: ``user_content`` or ``userContent``."""
    first, *words = name.split("_")
    found = value if isinstance(value, dict) else {}
    return found.get(name, found.get(first + "".join(map(str.capitalize, words))))


def invocations_of(case: Any) -> list[Any]:
    """The invocations of an eval case: those that it expects, or in a result those that took place; [] for anything else."""
    expected, results = either(case, "conversation"), either(case, "eval_metric_result_per_invocation")
    if isinstance(expected, list):
        return expected
    return [either(result, "actual_invocation") for result in results] if isinstance(results, list) else []


def events_of(invocations: list[Any]) -> list[Any]:
    """Invocations as events, like those of a session: what the user said, the calls and their results, the answer."""
    return [event for invocation in invocations for event in _events(invocation)]


def _events(invocation: Any) -> list[Any]:
    """The events of one invocation; what is none stays as it is, so that its reader can tell."""
    if not isinstance(invocation, dict):
        return [invocation]
    asked, answer = either(invocation, "user_content"), either(invocation, "final_response")
    between = either(invocation, "intermediate_data")
    logged = either(between, "invocation_events")
    events = [] if asked is None else [{"author": "user", "content": asked}]
    events += logged if isinstance(logged, list) else _trajectory(between)
    if isinstance(answer, dict) and not _says_the_same(events, answer):
        events.append({"content": answer | {"role": answer.get("role") or "model"}})
    return events


def _says_the_same(events: list[Any], answer: dict[str, Any]) -> bool:
    """Whether the last event is the answer already, as some versions log it."""
    last = events[-1] if events and isinstance(events[-1], dict) else {}
    content = last.get("content")
    return isinstance(content, dict) and last.get("author") != "user" and content.get("parts") == answer.get("parts")


def _trajectory(between: Any) -> Iterator[Any]:
    """Calls one after another, each with its result: the one of its id, else the next of its name."""
    uses, responses, others = (
        found if isinstance(found := either(between, name), list) else []
        for name in ("tool_uses", "tool_responses", "intermediate_responses")
    )
    ids = {str(use["id"]) for use in uses if isinstance(use, dict) and use.get("id")}
    waiting: dict[str, deque[Any]] = {}
    for response in responses:
        found = response if isinstance(response, dict) else {}
        key = f"id {found['id']}" if str(found.get("id")) in ids else f"name {found.get('name')}"
        waiting.setdefault(key, deque()).append(response)
    for use in uses:
        yield {"content": {"role": "model", "parts": [{"function_call": use}]}}
        found = use if isinstance(use, dict) else {}
        came = waiting.get(f"id {found.get('id')}") or waiting.get(f"name {found.get('name')}")
        if came:
            yield {"content": {"role": "user", "parts": [{"function_response": came.popleft()}]}}
    for left in waiting.values():
        yield from ({"content": {"role": "user", "parts": [{"function_response": response}]}} for response in left)
    for said in others:  # a pair of who said it and its parts
        author, parts = said if isinstance(said, list) and len(said) == 2 else (None, [said])
        yield {"author": author, "content": {"role": "model", "parts": parts}}


# -- messages ------------------------------------------------------------------------------------------------


def _reply(response: Any) -> list[Any]:
    """What the model answered to a logged call."""
    response = _loaded(response) if isinstance(response, str) else response
    if isinstance(response, dict):
        choices = response.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        response = choice.get("message") if isinstance(choice, dict) else response.get("output", response)
    return response if isinstance(response, list) else [response] if isinstance(response, dict) else []


def _unwrapped(item: Any) -> dict[str, Any] | None:
    """One message as an object with ``role`` and ``content``, taken out of what its program put around it."""
    if isinstance(item, list):  # a method and what it got
        item = item[-1] if len(item) == 2 else None
    if not isinstance(item, dict):
        return None
    for key in ("message", "payload", "data", "kwargs"):
        if isinstance(item.get(key), dict):
            identity = item.get("id")
            kind = identity[-1] if isinstance(identity, list) and identity else item.get("type")
            return {"role": kind} | item[key]
    if "from" in item and "value" in item:
        return {"role": item["from"], "content": item["value"]}
    content = item.get("content") if isinstance(item.get("content"), dict) else item
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        return {"role": item.get("author", content.get("role")), "content": content["parts"]}
    return item


def _role(item: dict[str, Any]) -> str:
    return str(item.get("role", item.get("type", "?")))


def _text(item: dict[str, Any]) -> str:
    content = item.get("content", item.get("output", item.get("summary")))
    if isinstance(content, list):
        content = "\n".join(_part_text(part) for part in content)
    calls = item.get("tool_calls", item.get("toolCalls"))
    calls = [*calls] if isinstance(calls, list) else []
    calls += item["invalid_tool_calls"] if isinstance(item.get("invalid_tool_calls"), list) else []
    if item.get("function_call"):
        calls.append({"function": item["function_call"]})
    if "name" in item and any(key in item for key in ("arguments", "input")):  # the call is the whole item
        calls.append(item)
    return "\n".join([*([str(content)] if content else []), *map(_call_text, calls)]) or "(empty)"


def _call_text(call: Any) -> str:
    function = call.get("function", call) if isinstance(call, dict) else {}
    function = function if isinstance(function, dict) else {}
    arguments = next((function[key] for key in ("arguments", "args", "input") if key in function), None)
    came = call.get("result") if isinstance(call, dict) else None  # Gemini CLI keeps it with the call
    answers = [f"← {_part_text(part)}" for part in came] if isinstance(came, list) else []
    return "\n".join([f"→ {function.get('name')}({_shown(arguments)})", *answers])


def _part_text(part: Any) -> str:
    """One part of a content: text, a thought, a call or what came back from one."""
    if not isinstance(part, dict):
        return str(part)
    for key in ("function_call", "functionCall"):
        if isinstance(part.get(key), dict):
            return _call_text(part[key])
    if part.get("type") in ("tool_use", "server_tool_use"):
        return _call_text(part)
    said = next((part[key] for key in ("text", "thinking", "content", "output", "value") if part.get(key)), None)
    if said is None:
        said = part.get("function_response", part.get("functionResponse"))
    if isinstance(said, list):
        return "\n".join(map(_part_text, said))
    return f"({part.get('type', 'part')})" if said is None else _shown(said)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
