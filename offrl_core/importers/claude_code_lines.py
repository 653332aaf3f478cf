"""The lines of Claude Code's session files, and the way through the tree that they form.

Each line names the one before it (``parentUuid``). After a rewind a session goes on at an earlier line, and what came
after that line is left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from offrl_core.importers.fields import Row, label, mapping, sequence
from offrl_core.importers.records import Record

_WITHOUT_SESSION = frozenset({"summary", "file-history-snapshot", "queue-operation", "custom-title", "agent-name"})
_IN_STREAM = frozenset({"system", "assistant", "user", "result", "stream_event"})


@dataclass(slots=True)
class Line:
    """One line with a message, or with a place in the tree.

    Attributes:
        record: the line in its file.
        value: what it holds.
        message: None where the line is only a link of the tree, or a notice.
        uuid: what other lines call this one.
        is_reply: whether the model wrote it.
        reply_id: the reply that this line is a piece of.
    """

    record: Record
    value: Row
    message: Row | None
    uuid: str | None = field(init=False)
    is_reply: bool = field(init=False)
    reply_id: str | None = field(init=False)

    def __post_init__(self) -> None:
        """Look up what is asked for again and again."""
        self.uuid = label(self.value.get("uuid"))
        self.is_reply = self.message is not None and self.value["type"] == "assistant"
        self.reply_id = label((self.message or {}).get("id")) if self.is_reply else None

    def ids(self, block_type: str, key: str) -> set[str]:
        """The ids under a key of the line's content blocks of a type."""
        blocks = map(mapping, sequence((self.message or {}).get("content")))
        return {found for block in blocks if block.get("type") == block_type and (found := label(block.get(key)))}


def is_line(value: Any) -> bool:
    """Whether a value is a line of a session file, or of ``stream-json``."""
    found = mapping(value)
    kind = found.get("type")
    if not isinstance(kind, str):
        return False
    in_file = "sessionId" in found and ("uuid" in found or "parentUuid" in found)
    in_stream = "session_id" in found and kind in _IN_STREAM
    return in_file or in_stream or is_bare_line(found) or _is_notice(found)


def is_bare_line(value: Any) -> bool:
    """Whether a value is a line that names no place in a session, as tools that copy or shorten sessions write it."""
    found = mapping(value)
    return found.get("type") in ("user", "assistant") and mapping(found.get("message")).get("role") == found["type"]


def _is_notice(found: Row) -> bool:
    """Whether a line tells something of the session (a title, a mode), and is no link of the tree."""
    if "message" in found or "uuid" in found:
        return False
    return found["type"] in _WITHOUT_SESSION or ("sessionId" in found and "-" in found["type"])


class Way(NamedTuple):
    """A way through the tree: the line where it leaves an earlier one (None at the root), and its own lines."""

    fork: Line | None
    lines: list[Line]


def split_by_rewinds(lines: Sequence[Line]) -> list[Way]:
    """The way to the last line, then the ways to what was left behind; lines with a message only, in their order.

    Parallel calls fork the tree, though nothing was left behind: each result hangs on the line of its call. So the
    pieces of a reply belong to its way, and the results of its calls.
    """
    parents = _parents(lines)
    order = {id(line): position for position, line in enumerate(lines)}
    by_reply: dict[str, list[Line]] = {}
    by_call: dict[str, list[Line]] = {}
    for line in lines:
        if line.reply_id:
            by_reply.setdefault(line.reply_id, []).append(line)
        for call in line.ids("tool_result", "tool_use_id"):
            by_call.setdefault(call, []).append(line)
    taken: set[int] = set()
    ways = []
    for last in reversed(lines):
        if last.message and id(last) not in taken:
            fork, own = _climb(last, parents, taken)
            replies = {reply for line in own if (reply := line.reply_id)}
            own += [line for reply in replies for line in by_reply[reply]]
            calls = {call for line in own for call in line.ids("tool_use", "id")}
            own += [line for call in calls for line in by_call.get(call, ())]
            found = {id(line): line for line in own if id(line) not in taken}
            taken |= found.keys()
            ways.append(Way(fork, sorted(found.values(), key=lambda line: order[id(line)])))
    return ways


def _climb(last: Line, parents: dict[int, Line], taken: set[int]) -> tuple[Line | None, list[Line]]:
    """The lines with a message from the given one up to the root, or to a line that is taken."""
    seen: set[int] = set()
    own: list[Line] = []
    line: Line | None = last
    while line is not None and id(line) not in seen:
        if id(line) in taken:
            return line, own
        seen.add(id(line))
        if line.message:
            own.append(line)
        line = parents.get(id(line))
    return None, own


def _parents(lines: Sequence[Line]) -> dict[int, Line]:
    """The line before each line: the one it names, else the one before it in the file."""
    by_uuid: dict[str | None, Line] = {}
    for line in lines:
        by_uuid.setdefault(line.uuid, line)
    parents: dict[int, Line] = {}
    previous: Line | None = None
    for line in lines:
        named = label(line.value.get("parentUuid"))
        parent = by_uuid.get(named) if named else None
        if parent is None or parent is line:
            parent = previous
        if parent is not None:
            parents[id(line)] = parent
        previous = line
    return parents
