"""Sessions of the Codex CLI (``rollout-*.jsonl``): one file is one session, its steps are the ``response_item`` lines.

``event_msg`` lines repeat the same texts for the screen, so they give no step. What ``codex exec --json`` prints is read
as well (``codex_stream``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from offrl_core.importers.codex_stream import as_session_lines, is_streamed
from offrl_core.importers.episode import name_of
from offrl_core.importers.fields import Gathered, Row, label, mapping
from offrl_core.importers.messages import Conversation, Message, each_record, gather, joined
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.responses_items import item_message, merged_replies
from offrl_core.schema import short_hash

EXAMPLE = b"""\
{"timestamp": "2025-10-01T10:00:00Z", "type": "session_meta", "payload": {"id": "s1", "cli_version": "0.44.0", \
"cwd": "/home/me/shop", "instructions": "Be careful."}}
{"timestamp": "2025-10-01T10:00:01Z", "type": "turn_context", "payload": {"model": "gpt-5-codex", "cwd": "/home/me/shop"}}
{"timestamp": "2025-10-01T10:00:01Z", "type": "response_item", "payload": {"type": "message", "role": "user", \
"content": [{"type": "input_text", "text": "Run the tests."}]}}
{"timestamp": "2025-10-01T10:00:01Z", "type": "event_msg", "payload": {"type": "user_message", \
"message": "Run the tests."}}
{"timestamp": "2025-10-01T10:00:03Z", "type": "response_item", "payload": {"type": "reasoning", \
"summary": [{"type": "summary_text", "text": "I start pytest."}]}}
{"timestamp": "2025-10-01T10:00:03Z", "type": "response_item", "payload": {"type": "function_call", "name": "shell", \
"call_id": "call_1", "arguments": "{\\"command\\": [\\"pytest\\"]}"}}
{"timestamp": "2025-10-01T10:00:05Z", "type": "response_item", "payload": {"type": "function_call_output", \
"call_id": "call_1", "output": "{\\"output\\": \\"1 failed\\", \\"metadata\\": {\\"exit_code\\": 1}}"}}
{"timestamp": "2025-10-01T10:00:07Z", "type": "response_item", "payload": {"type": "message", "role": "assistant", \
"content": [{"type": "output_text", "text": "One test fails."}]}}
"""

_LINES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
# What the CLI puts before the user's words: it is written in the user's name, but not by the user.
_INJECTED = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>")


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are lines of a session of Codex, 0 to 1, and why."""
    n = sum(_is_line(value) for value in values)
    if not n:
        return 0.0, "no record is a line of a Codex session"
    return n / len(values), f"found type and payload (Codex session) in {n} of the first {len(values)} records"


def _is_line(value: Any) -> bool:
    """Whether a value is a line of a session."""
    found = mapping(value)
    return (isinstance(found.get("payload"), dict) and name_of(found.get("type")) in _LINES) or is_streamed(value)


def _is_notice(value: Any) -> bool:
    """Whether a value is a line of a kind that this reader doesn't know: new versions of Codex bring new ones."""
    found = mapping(value)
    return isinstance(found.get("payload"), dict) and name_of(found.get("type")) is not None


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read sessions into rows; one row per tool call or reply without a call."""
    files: dict[str, list[Record]] = {}
    for record in records:
        if _is_line(record.value) or _is_notice(record.value):
            files.setdefault(record.source, []).append(record)
        else:
            message = "this is no line of a Codex session, so it was set aside"
            report.at(record.source, record.number).lose(None, "not a line of a session", message, record.raw)
    skipped: Counter[str] = Counter()
    sessions: list[Conversation] = []

    def parse(record: Record, _: Place) -> None:
        sessions.append(_session(record, skipped))

    each_record((joined(lines, report) for lines in files.values()), report, parse)
    runs = gather(sessions, report)
    runs.skipped = +skipped
    return runs.done("sessions", "lines")


def _session(record: Record, skipped: Counter[str]) -> Conversation:
    """The session in a file."""
    meta: Row = {}
    model: str | None = None
    messages: list[Message] = []
    if all(map(is_streamed, record.value)):
        lines = list(as_session_lines(record.value))
    else:
        lines = [(index, line) for index, line in enumerate(record.value) if not is_streamed(line)]
        skipped["printed line in a session file"] += len(record.value) - len(lines)
    for index, line in lines:
        kind, payload = line["type"], line["payload"]
        if kind == "session_meta":
            meta = meta or payload  # a resumed session repeats it
        elif kind == "turn_context":
            model = label(payload.get("model")) or model
        message = _message(kind, payload, record, index)
        if message is None:
            skipped[f"{kind} {label(payload.get('type')) or ''}".strip()] += 1
            continue
        names = filter(None, (_version(meta), model))
        message.columns = {"behavior_policy": " ".join(names) or None}
        messages.append(message)
    instructions = meta.get("instructions", mapping(meta.get("base_instructions")).get("text"))
    return Conversation(
        record,
        merged_replies(messages),
        name=label(meta.get("id")),
        shared={"prompt_version": short_hash(instructions) if isinstance(instructions, str) else None},
    )


def _version(meta: Row) -> str:
    """The program and its version."""
    version = label(meta.get("cli_version"))
    return f"codex/{version}" if version else "codex"


def _message(kind: str, payload: Row, record: Record, index: int) -> Message | None:
    """One line as a message; None where it is about the machinery."""
    if kind == "compacted":  # from here on the model sees a summary
        return Message(record, index, "context", restarts=True)
    if kind == "turn.started":  # the user spoke, but a printed stream doesn't say what
        return Message(record, index, "context")
    if kind != "response_item":
        return None
    message = item_message(payload, record, index)
    if message and message.role == "user" and (message.text or "").lstrip().startswith(_INJECTED):
        message.role = "context"
    return message
