"""Who&When: failed runs of several agents, each with the agent and the step that people blame for the failure.

A record has a ``history`` of what was said, by the names of agents. What an agent says is a message; if the terminal
runs it, it is a call of the terminal; a note of an orchestrator to itself is the thought of what follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from offrl_core.importers.fields import Arguments, Gathered, Row, finite_number, label, mapping, text_of
from offrl_core.importers.messages import Call, Conversation, Message, Result, each_record, gather
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.step_cells import truth_in
from offrl_core.schema import canonical_json

EXAMPLE = b"""\
{"question": "How many rows?", "question_ID": "q1", "is_correct": false, "mistake_agent": "Coder", "mistake_step": "0", \
"mistake_reason": "counts the header", "history": [{"role": "assistant", "name": "Coder", "content": "print(len(lines))"}, \
{"role": "user", "name": "Computer_terminal", "content": "exitcode: 0 (execution succeeded)\\nCode output: 8"}, \
{"role": "assistant", "name": "Checker", "content": "8. TERMINATE"}]}
"""

_SIGNS = ("history", "mistake_agent", "mistake_step")
_LABELS = ("is_correct", "is_corrected")
_TERMINAL = "computer_terminal"
_USERS = frozenset({"human", "user"})
_THOUGHT = re.compile(r"(.+?) \(thought\)")
_ENDING = re.compile(r"(.+?) \(termination condition\)")
_LIMIT = re.compile(r"max\w* (rounds|turns|messages|time)", re.IGNORECASE)
_HANDOFF = re.compile(r"(.+?) \(-> (.+?)\)")
_EXIT_CODE = re.compile(r"exitcode: (-?\d+)")
_CODE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
_THOUGHT_LENGTH = 500  # ledgers repeat themselves; the record has all of it


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are runs of Who&When, 0 to 1, and why."""
    n = sum(isinstance(value, dict) and all(sign in value for sign in _SIGNS) for value in values)
    return n / max(
        1, len(values)
    ), f"found history, mistake_agent and mistake_step in {n} of the first {len(values)} records"


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read runs into rows; the row that people blame has ``mistake`` in its metadata.

    Args:
        records: records of the files, in order.
        report: gets the problems and notes.
    """
    conversations: list[Conversation] = []

    def parse(record: Record, place: Place) -> None:
        history = mapping(record.value).get("history")
        if isinstance(history, list):
            conversations.append(_conversation(record, history, place))
        else:
            place.lose(None, "no history", "the record holds no history, so it was set aside", record.raw)

    each_record(records, report, parse)
    report.notes.append(
        "What was blamed for a failure is in the metadata of its step (mistake): people said it afterwards."
    )
    return gather(conversations, report).done("runs")


def _conversation(record: Record, history: list[Any], place: Place) -> Conversation:
    """One run."""
    given = record.value
    messages = _messages(record, history, place)
    _blame(messages, given, place)
    return Conversation(
        record,
        messages,
        name=label(given.get("question_ID")),
        shared={"task": text_of(given.get("question"))},
        reward=_reward(given, place),
        end_reason=_end_reason(messages),
    )


def _end_reason(messages: Sequence[Message]) -> str | None:
    """What the last message proves: an agent said that it was done, or the program why it stopped."""
    if not messages:
        return None
    last, text = messages[-1], messages[-1].text or ""
    if last.role == "context":
        return "truncated" if _LIMIT.match(text) else "terminated"
    return "terminated" if last.role == "assistant" and "TERMINATE" in text else None


def _messages(record: Record, history: list[Any], place: Place) -> list[Message]:
    """What was said, in the terms of the engine."""
    messages: list[Message] = []
    thoughts: list[str] = []
    start: int | None = None  # of the thoughts
    for index, item in enumerate(history):
        speaker = label(mapping(item).get("name")) or label(mapping(item).get("role"))
        text = text_of(mapping(item).get("content"))
        if speaker is None:
            place.lose(
                f"history[{index}]", "not a message", "nobody is named to have said this, so it was set aside", item
            )
        elif speaker.lower() == _TERMINAL:
            messages.append(_result(record, index, text or "", messages))
        elif speaker.lower() in _USERS:
            messages.append(Message(record, index, "user", text))
        elif _THOUGHT.fullmatch(speaker):
            thoughts.append(text or "")
            start = index if start is None else start
        elif _ENDING.fullmatch(speaker):
            messages.append(Message(record, index, "context", text))
        else:
            messages.append(_reply(record, index, speaker, text, "\n\n".join(thoughts)[:_THOUGHT_LENGTH]))
            messages[-1].start, thoughts, start = start, [], None
    return messages


def _reply(record: Record, index: int, speaker: str, text: str | None, thought: str) -> Message:
    """What an agent said, to all or to another agent, who goes on then."""
    handoff = _HANDOFF.fullmatch(speaker)
    columns = {"behavior_policy": handoff[1] if handoff else speaker}
    if not handoff:
        return Message(record, index, "assistant", text, thought=thought or None, columns=columns)
    arguments = Arguments("object", canonical_json({"to": handoff[2], "text": text}))
    call = Call(None, f"hand over to {handoff[2]}", arguments, "handoff")
    return Message(record, index, "assistant", None, [call], thought=thought or None, columns=columns)


def _result(record: Record, index: int, text: str, before: Sequence[Message]) -> Message:
    """What the terminal said: the result of running what the agent before it wrote, which becomes a call."""
    exit_code = _EXIT_CODE.match(text)
    error = text if exit_code and exit_code[1] != "0" else None
    reply = before[-1] if before and before[-1].role == "assistant" and not before[-1].calls else None
    if reply is not None:
        code = "\n\n".join(_CODE.findall(reply.text or ""))
        arguments = Arguments("object", canonical_json({"code": code} if code else {"text": reply.text}))
        reply.calls = [Call(None, _TERMINAL, arguments)]
        reply.text = (reply.text or "")[:_THOUGHT_LENGTH]
    return Message(record, index, "tool", None, results=[Result(None, text, error, ordered=True)])


def _blame(messages: Sequence[Message], given: Row, place: Place) -> None:
    """Note the mistake on the reply that people blame; the step is a number, written as text."""
    step = label(given.get("mistake_step"))
    if step is None:
        return
    at = int(step) if step.isdecimal() and len(step) < 9 else -1
    replies = (message for message in messages if message.role == "assistant")
    blamed = next(
        (reply for reply in replies if (reply.index if reply.start is None else reply.start) <= at <= reply.index), None
    )
    if blamed is None:
        message = "the step that is blamed is no reply of an agent; the record still names it"
        place.mend("mistake_step", "blamed step not found", message, step)
        return
    blamed.metadata = {
        "mistake": text_of(given.get("mistake_reason")) or True,
        "mistake_agent": label(given.get("mistake_agent")),
    }


def _reward(given: Row, place: Place) -> Row:
    """1 for a run that was judged correct, 0 for one that wasn't."""
    key = next((key for key in _LABELS if given.get(key) is not None), None)
    if key is None:
        return {}
    truth = truth_in(given[key])
    reward = finite_number(truth) if truth is not None else None
    if reward is None:
        message = "this is not true or false; the reward is kept as unknown (NULL), not as 0"
        place.mend(key, "reward is not a number", message, given[key])
        return {}
    return {"reward": reward, "reward_source": f"human ({key})"}
