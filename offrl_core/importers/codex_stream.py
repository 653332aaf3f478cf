"""What ``codex exec --json`` prints while it runs, as the lines that a session file of Codex has.

Each item of a turn is told when it starts and when it is completed; the user's words are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from offrl_core.importers.fields import Row, label, mapping

_EVENTS = ("thread.", "turn.", "item.")
_TOOLS = {
    "command_execution": "shell",
    "file_change": "apply_patch",
    "web_search": "web_search",
    "todo_list": "update_plan",
}
_GIVEN = ("command", "changes", "query", "items")  # what of an item was the model's own


def is_streamed(value: Any) -> bool:
    """Whether a record is a line of the stream."""
    found = mapping(value)
    kind = found.get("type")
    if not isinstance(kind, str) or not kind.startswith(_EVENTS):
        return False
    item = found.get("item")
    if isinstance(item, dict) and not isinstance(item.get("type"), str | None):
        return False
    return isinstance(item, dict) or any(key in found for key in ("thread_id", "usage", "error")) or len(found) == 1


def as_session_lines(lines: Sequence[Any]) -> Iterator[tuple[int, Row]]:
    """Lines of a session file for those of a stream, each with the place of the one that it comes from.

    An item counts where it is completed, and where the stream ends before that, where it was told last.
    """
    ends: dict[tuple[int, str], int] = {}
    turn = 0
    turns = []
    for index, line in enumerate(lines):
        turn += line["type"] == "turn.started"
        turns.append(turn)
        if isinstance(line.get("item"), dict):
            ends[turn, str(line["item"].get("id"))] = index
    for index, line in enumerate(lines):
        if line["type"] == "thread.started":
            yield index, {"type": "session_meta", "payload": {"id": line.get("thread_id")}}
        elif not isinstance(line.get("item"), dict):
            yield index, {"type": line["type"], "payload": {}}
        elif ends[turns[index], str(line["item"].get("id"))] == index:
            for payload in _payloads(line["item"]):
                yield index, {"type": "response_item", "payload": payload}


def _payloads(item: Row) -> Iterator[Row]:
    """An item as items of a session: a text, a thought, or a call with its result."""
    kind, identity = item.get("type"), label(item.get("id"))
    if kind == "agent_message":
        yield {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": item.get("text")}]}
    elif kind == "reasoning":
        yield {"type": "reasoning", "summary": [{"type": "summary_text", "text": item.get("text")}]}
    elif kind in _TOOLS or kind == "mcp_tool_call":
        name = _TOOLS.get(kind) or label(item.get("tool"))
        given = item.get("arguments") if kind == "mcp_tool_call" else {key: item[key] for key in _GIVEN if key in item}
        yield {"type": "function_call", "name": name, "call_id": identity, "arguments": given}
        if item.get("status") != "in_progress":
            yield {"type": "function_call_output", "call_id": identity, "output": _output(item)}
    else:
        yield {"type": str(kind)}


def _output(item: Row) -> Any:
    """What came back from a call, with the exit code where there is one."""
    error = mapping(item.get("error")).get("message")
    failed = item.get("status") == "failed"
    code = item.get("exit_code", int(failed) if failed or error else None)
    text = next(
        (item[key] for key in ("aggregated_output", "result") if item.get(key) is not None), error or item.get("status")
    )
    return {"output": text, "metadata": {"exit_code": code}}
