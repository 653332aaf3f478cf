"""Sessions of Claude Code: the files it keeps, one line per message, and the output of its ``stream-json``.

A run is the way to the last line of a session; what the user left behind by going back becomes an episode of its
own. So do sub-agents, in the same file or in files of their own, and the pieces between two ``/clear``. A resumed
session repeats the lines of the session before; they are taken once, from the file that comes first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from offrl_core.importers.claude_code_lines import Line, Way, is_bare_line, is_line, split_by_rewinds
from offrl_core.importers.claude_code_messages import messages_of
from offrl_core.importers.episode import Runs
from offrl_core.importers.fields import Gathered, Row, finite_number, label, mapping, sequence, stem
from offrl_core.importers.messages import Conversation, each_record, gather, joined
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import ImportReport, Place
from offrl_core.wording import counted

EXAMPLE = b"""\
{"type": "user", "uuid": "u1", "parentUuid": null, "sessionId": "s1", "version": "2.0.76", "isSidechain": false, \
"timestamp": "2026-01-31T11:00:00Z", "message": {"role": "user", "content": "Read the README."}}
{"type": "assistant", "uuid": "u2", "parentUuid": "u1", "sessionId": "s1", "version": "2.0.76", "isSidechain": false, \
"timestamp": "2026-01-31T11:00:02Z", "message": {"id": "m1", "role": "assistant", "model": "claude-opus-4-5", \
"content": [{"type": "thinking", "thinking": "I use Read."}]}}
{"type": "assistant", "uuid": "u3", "parentUuid": "u2", "sessionId": "s1", "version": "2.0.76", "isSidechain": false, \
"timestamp": "2026-01-31T11:00:03Z", "message": {"id": "m1", "role": "assistant", "model": "claude-opus-4-5", \
"content": [{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "README.md"}}]}}
{"type": "user", "uuid": "u4", "parentUuid": "u3", "sessionId": "s1", "version": "2.0.76", "isSidechain": false, \
"timestamp": "2026-01-31T11:00:04Z", "message": {"role": "user", "content": [{"type": "tool_result", \
"tool_use_id": "toolu_1", "content": "# My project"}]}}
{"type": "assistant", "uuid": "u5", "parentUuid": "u4", "sessionId": "s1", "version": "2.0.76", "isSidechain": false, \
"timestamp": "2026-01-31T11:00:06Z", "message": {"id": "m2", "role": "assistant", "model": "claude-opus-4-5", \
"content": [{"type": "text", "text": "It is a project."}]}}
"""

_CLEAR = "<command-name>/clear</command-name>"


class _Key(NamedTuple):
    """Which lines belong together: those of a session in a file, or of one sub-agent in it."""

    source: str
    session: str
    agent: str | None


@dataclass(slots=True)
class _Session:
    """The lines of a session or sub-agent, and what the program said of it."""

    lines: list[Line] = field(default_factory=list)
    outcome: Row = field(default_factory=dict)  # the last line of stream-json
    tools: list[str] | None = None
    continues: str | None = None  # the session whose lines its start repeats


@dataclass(slots=True)
class _Upload:
    """What is read so far, over all files."""

    report: ImportReport
    sessions: dict[_Key, _Session] = field(default_factory=dict)
    seen: dict[str, tuple[str, Row]] = field(default_factory=dict)  # uuid -> session and message of its line
    roots: dict[str, str] = field(default_factory=dict)  # uuid of a line of a sub-agent -> uuid of its first one
    skipped: Counter[str] = field(default_factory=Counter)
    copies: int = 0


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are lines of a session, 0 to 1, and why."""
    lines = [value for value in values if is_line(value)]
    named = any("sessionId" in value or "session_id" in value for value in lines)
    if not named and not any(map(is_bare_line, lines)):
        return 0.0, "no record is a line of a Claude Code session"
    n, signs = len(lines), "type, uuid and sessionId" if named else "type and a message of that role"
    return n / len(values), f"found {signs} (Claude Code) in {n} of the first {len(values)} records"


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read sessions into rows; one row per tool call or reply without a call."""
    upload = _Upload(report)

    def take(record: Record, place: Place) -> None:
        if is_line(record.value):
            _take(record, upload, place)
        else:
            message = "this is no line of a Claude Code session, so it was set aside"
            place.lose(None, "not a line of a session", message, record.raw)

    each_record(records, report, take)
    found: list[tuple[_Key, Conversation]] = []
    left: Counter[str] = Counter()  # parts of a session that the user left behind by going back
    for key, session in upload.sessions.items():
        if session.lines:
            with Runs(report).guarded(session.lines[0].record):
                found += [(key, conversation) for conversation in _conversations(key, session, left, report)]
    _say_what_was_left(left, report)
    _link(found, upload)
    runs = gather(_parents_first([conversation for _, conversation in found]), report)
    runs.skipped = upload.skipped
    if upload.copies:
        report.notes.append(f"{counted(upload.copies, 'line')} of an earlier session came again; taken once.")
    return runs.done("sessions", "lines")


# -- lines to sessions ---------------------------------------------------------------------------------------


def _take(record: Record, upload: _Upload, place: Place) -> None:
    """Put one line to its session."""
    value = record.value
    session = label(value.get("sessionId")) or label(value.get("session_id")) or stem(record.source)
    found = upload.sessions.setdefault(_Key(record.source, session, _agent(record, upload)), _Session())
    line = Line(record, value, _message(record, upload, place))
    if _is_copy(line, session, found, upload):
        return
    if value["type"] == "result":
        found.outcome = value
    elif value["type"] == "system" and isinstance(value.get("tools"), list):
        found.tools = [tool for tool in value["tools"] if isinstance(tool, str)] or None
    if line.uuid or line.message:
        found.lines.append(line)


def _message(record: Record, upload: _Upload, place: Place) -> Row | None:
    """The message of a line; a line that should have one and doesn't is reported, one of another kind is counted."""
    value = record.value
    message = value.get("message")
    if value["type"] not in ("user", "assistant"):
        if (isinstance(message, dict) and "role" in message) or "\ufffd" in value["type"]:
            text = f"the kind of this line, {value['type']}, isn't known, and it may be a message; it was set aside"
            place.lose("type", "unknown kind of line", text, record.raw)
            return None
        upload.skipped[" ".join(filter(None, (value["type"], label(value.get("subtype")))))] += 1
        upload.report.accounts.idle[record.source] += 1
        return None
    if isinstance(message, dict) and "content" in message:
        return message
    text = "the line holds no message with content, so it was set aside"
    place.lose("message", "no message", text, record.raw)
    return None


def _agent(record: Record, upload: _Upload) -> str | None:
    """Which sub-agent a line is of: by its id, by the call that started it, by its file, or by the agent's first line."""
    value = record.value
    if named := label(value.get("agentId")) or label(value.get("parent_tool_use_id")):
        return named
    if value.get("isSidechain") is not True:
        return None
    _, found, name = stem(record.source).rpartition("agent-")
    if found and name:
        return name
    uuid = label(value.get("uuid")) or str(record.number)
    root = upload.roots.get(label(value.get("parentUuid")) or "", uuid)
    upload.roots[uuid] = root
    return root


def _is_copy(line: Line, session: str, found: _Session, upload: _Upload) -> bool:
    """Whether a line was there before: a resumed session starts with the lines of the session before."""
    if not line.uuid or line.message is None:
        return False
    before, message = upload.seen.setdefault(line.uuid, (session, line.message))
    if message is line.message or message != line.message:
        return False
    upload.copies += 1
    upload.report.accounts.idle[line.record.source] += 1
    if before != session:
        found.continues = before
    return True


# -- sessions to conversations -------------------------------------------------------------------------------


def _conversations(key: _Key, session: _Session, left: Counter[str], report: ImportReport) -> list[Conversation]:
    """The runs of a session: its main line, piece by piece between clears, and what was left behind by going back."""
    with_message = [line for line in session.lines if line.message]
    if not with_message:
        return []
    record = joined([line.record for line in with_message], report)
    index = {id(line): i for i, line in enumerate(with_message)}
    main, *left_behind = split_by_rewinds(session.lines)
    pieces = _pieces(main.lines)
    found = _main(key, pieces, record, index, session)
    owner = {id(line): run for piece, run in zip(pieces, found, strict=True) for line in piece}
    for way in left_behind:
        if any(line.is_reply for line in way.lines):
            run = _branch(way, owner.get(id(way.fork), found[0]), record, index)
            run.name = f"{found[0].name}/left-at-line-{way.lines[0].record.number}"
            owner |= {id(line): run for line in way.lines}
            found.append(run)
    if n := len(found) - len(pieces):
        left[key.session] += n
    return found


def _say_what_was_left(left: Counter[str], report: ImportReport) -> None:
    """Write down how many parts of which sessions lie on ways that the user left."""
    if not left:
        return
    first, *others = left
    sessions = f"session {first}" + (f" and {counted(len(others), 'more session')}" if others else "")
    n = left.total()
    report.notes.append(
        f"{counted(n, 'part')} of {sessions} {'lies' if n == 1 else 'lie'} on ways that the user left by going back, or behind "
        "lines that were lost: episodes of their own that begin at the fork, with the session as their parent_episode."
    )


def _pieces(lines: Sequence[Line]) -> list[list[Line]]:
    """The main line of a session, cut where the user cleared the context; pieces without a reply are left out."""
    pieces: list[list[Line]] = [[]]
    for line in lines:
        if not line.is_reply and _is_clear(line):
            pieces.append([])
        else:
            pieces[-1].append(line)
    return [piece for piece in pieces if any(line.is_reply for line in piece)] or [list(lines)]


def _branch(way: Way, parent: Conversation, record: Record, index: dict[int, int]) -> Conversation:
    """What the user left behind by going back: an episode that begins at the fork."""
    starts = [message.index if message.start is None else message.start for message in parent.messages]
    begin = bisect_right(starts, index[id(way.fork)]) if way.fork else 0
    messages = parent.messages[:begin] + messages_of(way.lines, record, index)
    return Conversation(record, messages, shared=parent.shared, parent=parent, begin=begin)


def _main(
    key: _Key, pieces: Sequence[Sequence[Line]], record: Record, index: dict[int, int], session: _Session
) -> list[Conversation]:
    """The conversations of the main line's pieces."""
    name = f"{key.session}/agent-{key.agent}" if key.agent else key.session
    found: list[Conversation] = []
    for piece in pieces:
        messages = messages_of(piece, record, index)
        messages[0].restarts = bool(found)
        conversation = Conversation(record, messages, name=f"{name}/after-clear-{len(found)}" if found else name)
        conversation.shared["available_tools"] = [*session.tools, "message"] if session.tools else None
        found.append(conversation)
    _say_outcome(found[-1], session.outcome)
    return found


def _is_clear(line: Line) -> bool:
    """Whether the user cleared the context here."""
    content = (line.message or {}).get("content")
    texts = [content] if isinstance(content, str) else [mapping(block).get("text") for block in sequence(content)]
    return any(isinstance(text, str) and _CLEAR in text for text in texts)


def _say_outcome(conversation: Conversation, outcome: Row) -> None:
    """What stream-json says at the end: how the run ended and what all of it cost."""
    if outcome.get("subtype") == "success" and outcome.get("is_error") is not True:
        conversation.end_reason = "terminated"
    elif outcome.get("subtype") == "error_max_turns":
        conversation.end_reason = "truncated"
    cost = finite_number(outcome.get("total_cost_usd"))
    replies = [message for message in conversation.messages if message.role == "assistant"]
    if cost is not None and replies:
        replies[-1].columns = (replies[-1].columns or {}) | {"cost_usd": cost}
        replies[-1].metadata = (replies[-1].metadata or {}) | {"cost_usd_of": "the whole run"}


# -- links between runs --------------------------------------------------------------------------------------


def _link(found: Sequence[tuple[_Key, Conversation]], upload: _Upload) -> None:
    """Name the run that started each sub-agent, and the one that a resumed session continues."""
    mains: dict[str, Conversation] = {}
    started: dict[str, Conversation] = {}  # by what the parent says of the agent: its id, its call, its prompt
    for key, conversation in found:
        if key.agent is None and conversation.begin == 0:
            mains.setdefault(key.session, conversation)
        for sign in _signs_of_agents(conversation):
            started.setdefault(sign, conversation)
    for key, conversation in found:
        if conversation.begin:
            continue
        if key.agent is None:
            before = upload.sessions[key].continues
            conversation.parent = mains.get(before, before) if before else None
            continue
        prompt = next((message.text for message in conversation.messages if message.role == "user"), None)
        signs = (started.get(sign) for sign in (key.agent, prompt) if sign)
        parent = next((run for run in signs if run and run is not conversation), None)
        # Where the parent's file wasn't given, its session still has a name.
        conversation.parent = parent or mains.get(key.session) or key.session or None


def _signs_of_agents(conversation: Conversation) -> Iterable[str]:
    """By what a sub-agent that a run started may be known."""
    for message in conversation.messages[conversation.begin :]:
        for call in message.calls:
            prompt = mapping(parse_json(call.arguments.text or "")[0]).get("prompt")
            if isinstance(prompt, str) and call.id:
                yield from (call.id, prompt)
        for result in message.results:
            if agent := mapping(result.metadata).get("agent_id"):
                yield agent


def _parents_first(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Runs in an order in which each comes after the one that started it."""
    ordered: dict[int, Conversation] = {}

    def add(conversation: Conversation, children: frozenset[int]) -> None:
        parent = conversation.parent
        if id(conversation) in children:  # two agents that name each other: no file of the program's own does that
            return
        if isinstance(parent, Conversation):
            add(parent, children | {id(conversation)})
        ordered.setdefault(id(conversation), conversation)

    for conversation in conversations:
        add(conversation, frozenset())
    return list(ordered.values())
