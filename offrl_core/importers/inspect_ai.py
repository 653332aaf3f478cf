"""Logs of Inspect: one JSON file, or the files in its ``.eval`` archive (header, journal, one file per sample).

Each sample and epoch is an episode, made of the sample's messages; the events beside them give the times, the tools and
the limits. The reward is a score of the sample: C counts 1, P 0.5, I and N 0. Where there are several scorers, one is
taken, and all are in ``reward_components``. Examples in the input (replies that the model didn't generate) are context.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from offrl_core.importers.chat_messages import chat_messages
from offrl_core.importers.episode import Runs
from offrl_core.importers.fields import (
    Arguments,
    Gathered,
    Row,
    finite_number,
    label,
    mapping,
    rate_by_form,
    sequence,
    text_of,
    tools_columns,
)
from offrl_core.importers.messages import Conversation, Message, gather, parts_of
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.schema import canonical_json, short_hash
from offrl_core.wording import counted

EXAMPLE = b"""\
{"version": 2, "status": "success", "eval": {"task": "shop", "model": "openai/gpt-4o", "packages": {"inspect_ai": "0.3"}}, \
"plan": {"name": "plan"}, "samples": [{"id": "order", "epoch": 1, "input": "Where is order 7?", "target": "on its way", \
"messages": [{"role": "user", "source": "input", "content": "Where is order 7?"}, \
{"role": "assistant", "source": "generate", "content": "", "tool_calls": [{"id": "call_1", "function": "find_order", \
"arguments": {"order": 7}, "type": "function"}]}, \
{"role": "tool", "tool_call_id": "call_1", "function": "find_order", "content": "", \
"error": {"type": "timeout", "message": "Command timed out."}}, \
{"role": "assistant", "source": "generate", "content": "It is lost."}], \
"scores": {"includes": {"value": "I", "answer": "It is lost."}}, "events": []}]}
"""

_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_MEMBER = re.compile(r"(.*?)/(?:samples/.*|_journal/.*|header\.json|summaries\.json|reductions\.json)")
_ATTACHMENT = "attachment://"
_ERROR_LENGTH = 300


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are logs of Inspect or parts of one, 0 to 1, and why."""
    return rate_by_form(values, _form, "no record is a log of Inspect or a part of one")


def _form(value: Any) -> str | None:
    """Which part of a log a value is, in words; None where it is something else."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("eval"), dict) and value.keys() & {"plan", "samples", "results"}:
        return "eval and plan (Inspect)"
    if "epoch" in value and "target" in value:
        return (
            "samples with an epoch (Inspect)"
            if isinstance(value.get("messages"), list)
            else "summaries of samples (Inspect)"
        )
    if "scorer" in value and isinstance(value.get("samples"), list):
        return "reductions of scores (Inspect)"
    return None


# -- reading -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Log:
    """What is known of one log: its ``eval``, and which samples are listed and which are there."""

    eval: dict[str, Any] = field(default_factory=dict)
    listed: set[tuple[str | None, str | None]] = field(default_factory=set)
    found: set[tuple[str | None, str | None]] = field(default_factory=set)


@dataclass(slots=True)
class _Reader:
    """Takes the records of an upload: samples become conversations, the rest is remembered."""

    report: ImportReport
    logs: dict[str, _Log] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    scorers: Counter[tuple[str, ...]] = field(default_factory=Counter)  # by all their names, the chosen one first
    n_beside: int = 0  # calls of the model outside the conversation
    n_parts: int = 0  # records that repeat or describe samples

    def conversations(self, records: Iterable[Record]) -> Iterator[Conversation]:
        """The conversations of all samples, in order."""
        guard = Runs(self.report)
        for record in records:
            form = _form(record.value)
            log = self.logs.setdefault(log_of(record.source), _Log())
            if form is None:
                text = "the record is no part of a log of Inspect, so it was set aside"
                self.report.at(record.source, record.number).lose(None, "not a log", text, record.raw)
                continue
            for sample in self._samples(record, log):
                with guard.guarded(sample) as place:
                    yield self._conversation(sample, log, place)

    def _samples(self, record: Record, log: _Log) -> Iterator[Record]:
        """The samples in a record, each as a record of its own; what a record says of the log is remembered."""
        value = record.value
        if isinstance(value.get("messages"), list) and "epoch" in value:
            yield record
            return
        if "eval" in value:
            log.eval = value["eval"]
        elif "epoch" in value:
            log.listed.add((label(value.get("id")), label(value.get("epoch"))))
        samples = sequence(value.get("samples")) if "eval" in value else []
        self.report.accounts.found[record.source] -= 1  # its samples are counted instead; without any it is no record
        self.n_parts += not samples
        for sample in parts_of(record, "samples", samples, self.report):
            if isinstance(sample.value, dict):
                yield sample
                continue
            text = "this is no sample (an object with messages), so it was set aside"
            self.report.at(sample.source, sample.number).lose("samples", "not a sample", text, sample.raw)

    def _conversation(self, record: Record, log: _Log, place: Place) -> Conversation:
        """The conversation of one sample, with its reward and its ending."""
        sample = record.value
        sample_id, epoch = label(sample.get("id")), label(sample.get("epoch"))
        log.found.add((sample_id, epoch))
        attachments = mapping(sample.get("attachments"))
        items = _resolved(sequence(sample.get("messages")), attachments)
        messages = chat_messages([_as_chat(item) for item in items], record, place)
        for message in messages:
            _correct(message, items[message.index])
        events = [event for event in sequence(sample.get("events")) if isinstance(event, dict)]
        shared = self._add_facts(messages, events, attachments)
        prompts = [message.text or "" for message in messages if message.role == "system"]
        error = mapping(sample.get("error")).get("message")
        limit = _limit(sample, events)
        reward = self._reward(sample, place)
        return Conversation(
            record,
            messages,
            name=f"{sample_id or f'sample-{record.number}'}-epoch{epoch or 1}",
            shared=shared | {"task": sample_id, "prompt_version": short_hash("\n".join(prompts)) if prompts else None},
            reward=reward,
            end_reason=_end_reason(limit, error, reward),
            metadata={
                key: item
                for key, item in (
                    ("epoch", epoch),
                    ("limit", limit),
                    ("run_error", error[:_ERROR_LENGTH] if isinstance(error, str) else None),
                    ("total_time", finite_number(sample.get("total_time"))),
                    ("retries", len(sequence(sample.get("error_retries"))) or None),
                )
                if item is not None
            },
        )

    def _add_facts(self, messages: Sequence[Message], events: Sequence[Row], attachments: Row) -> Row:
        """Put the times of the model's calls on their replies, and count the events; columns of the whole run."""
        facts: dict[Any, Row] = {}
        shared: Row = {}
        n_calls = 0
        for event in events:
            kind = event.get("event")
            if kind != "model":
                self.events[str(kind)[:40]] += kind != "tool"
                continue
            n_calls += 1
            choices = sequence(mapping(event.get("output")).get("choices"))
            said = _resolved(mapping(choices[0]).get("message"), attachments) if choices else None
            facts |= dict.fromkeys(_keys(said), _columns(event))
            shared = shared or tools_columns(event.get("tools"))
        n_replies = 0
        for message in messages:
            if message.role == "assistant":
                n_replies += 1
                key = next((key for key in _message_keys(message) if key in facts), None)
                message.columns = facts.get(key, {}) if key else {}
        self.n_beside += max(0, n_calls - n_replies)
        return shared

    def _reward(self, sample: dict[str, Any], place: Place) -> Row:
        """The reward of a sample: the first of its scores that is a number; all of them are components."""
        scores = sample.get("scores")
        scores = scores if isinstance(scores, dict) else {"score": sample["score"]} if sample.get("score") else {}
        parts: dict[str, float] = {}
        for name, score in scores.items():
            value = score.get("value") if isinstance(score, dict) else score
            found = _parts(name, value)
            if not found:
                text = "the score is no number and no grade; it is kept as unknown (NULL), not as 0"
                place.mend(f"scores.{name}", "score is not a number", text, value)
            parts |= found
        if not parts:
            return {}
        name = next(iter(parts))
        self.scorers[name, *sorted(parts.keys() - {name})] += 1
        return {
            "reward": parts[name],
            "reward_components": canonical_json(parts),
            "reward_source": f"scorer {name} (Inspect)",
        }


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read logs into rows, one per tool call or reply of each sample and epoch."""
    reader = _Reader(report)
    runs = gather(reader.conversations(records), report)
    whole = report.accounts.parts
    for row in runs.gathered.rows:
        source: str = row["source_file"]
        _add_eval(row, reader.logs[log_of(whole.get(source, source))].eval)
    if not runs.gathered.rows and not report.problems:
        text = "the log holds no sample, only what describes it; give the whole .eval file, or all files of its folder"
        report.at(report.source).lose("samples", "no samples", text)
    report.notes += _notes(reader)
    runs.skipped = +reader.events
    return runs.done("samples", "events")


def log_of(source: str) -> str:
    """The log that a file belongs to: the archive or folder of a header, a journal or a sample; else itself."""
    member = _MEMBER.fullmatch(source)
    return member[1] if member else source


def _add_eval(row: Row, settings: dict[str, Any]) -> None:
    """Put what holds for the whole log on a row; the header may come after the samples."""
    task, version = label(settings.get("task")), label(mapping(settings.get("packages")).get("inspect_ai"))
    config = mapping(settings.get("model_generate_config"))
    row["task"] = " ".join(part for part in (task, row.get("task")) if part) or None
    row["behavior_policy"] = row.get("behavior_policy") or label(settings.get("model"))
    if row.get("temperature") is None:
        row["temperature"] = finite_number(config.get("temperature"))
    row["environment_version"] = f"{task} {label(settings.get('task_version')) or ''}".strip() if task else None
    if row.get("reward") is not None and version:
        row["verifier_version"] = f"inspect_ai {version}"


def _notes(reader: _Reader) -> list[str]:
    """Sentences on what was chosen and what was left out."""
    notes = []
    for (name, *others), n in reader.scorers.items():
        beside = f"; beside it in reward_components: {', '.join(others)}" if others else ""
        notes.append(f"Reward chosen: score {name!r} (samples: {n:,}){beside}.")
    if reader.n_beside:
        calls = counted(reader.n_beside, "call")
        notes.append(f"No step comes from {calls} of the model beside the conversations (graders, sub-agents).")
    if reader.n_parts:
        parts = counted(reader.n_parts, "record")
        notes.append(f"No step comes from {parts} about samples (header, journal, summaries, reductions).")
    for name, log in reader.logs.items():
        if missing := len(log.listed - log.found):
            notes.append(f"{name} lists {counted(missing, 'sample')} not in it.")
        if log.found and not log.eval:
            notes.append(f"{name} has no header: it is part of a log, or the run was not finished.")
    return notes


# -- samples -------------------------------------------------------------------------------------------------


def _resolved(value: Any, attachments: dict[str, Any]) -> Any:
    """The value with the texts that the log keeps apart (``attachment://…``) put back."""
    if not attachments:
        return value
    if isinstance(value, str):
        return attachments.get(value.removeprefix(_ATTACHMENT), value) if value.startswith(_ATTACHMENT) else value
    if isinstance(value, list):
        return [_resolved(item, attachments) for item in value]
    if isinstance(value, dict):
        return {key: _resolved(item, attachments) for key, item in value.items()}
    return value


def _as_chat(item: Any) -> Any:
    """A message of Inspect as one of OpenAI's chat API: a call's ``function`` is its name, an error an object."""
    if not isinstance(item, dict):
        return item
    calls = [
        {"id": call.get("id"), "function": {"name": call.get("function"), "arguments": call.get("arguments")}}
        if isinstance(call, dict)
        else call
        for call in sequence(item.get("tool_calls"))
    ]
    error = item.get("error")
    if isinstance(error, dict):
        error = ": ".join(part for key in ("type", "message") if (part := label(error.get(key)))) or True
    return item | {"tool_calls": calls or None, "error": error}


def _correct(message: Message, item: dict[str, Any]) -> None:
    """What the engine must know beyond the chat API: which replies are examples, and which calls can't be parsed."""
    if item.get("source") == "input" and message.role in ("assistant", "tool"):
        message.role, message.calls, message.results = "context", [], []
        return
    given = sequence(item.get("tool_calls"))
    message.calls = [
        # Inspect leaves {} where a call can't be parsed: that isn't a call without arguments.
        call._replace(arguments=Arguments("malformed"), metadata={"parse_error": problem})
        if (problem := text_of(mapping(raw).get("parse_error")))
        else call
        for call, raw in zip(message.calls, given, strict=False)
    ]


def _columns(event: dict[str, Any]) -> Row:
    """Model, temperature and time of one call of the model."""
    seconds = finite_number(mapping(event.get("output")).get("time"))
    seconds = finite_number(event.get("working_time")) if seconds is None else seconds
    columns = {
        "behavior_policy": label(event.get("model")),
        "temperature": finite_number(mapping(event.get("config")).get("temperature")),
        "latency_ms": None if seconds is None else seconds * 1000,
    }
    return {name: value for name, value in columns.items() if value is not None}


def _keys(message: Any) -> list[Any]:
    """What the reply of a call of the model is known by: the id of a tool call, else its text."""
    given = mapping(message)
    ids = [("call", name) for call in sequence(given.get("tool_calls")) if (name := label(mapping(call).get("id")))]
    text = text_of(given.get("content"))
    return [*ids, ("text", text)] if text else list(ids)


def _message_keys(message: Message) -> list[Any]:
    """The same for a message of the conversation."""
    return [("call", call.id) for call in message.calls if call.id] or [("text", message.text)]


def _parts(name: str, value: Any) -> dict[str, float]:
    """A score as numbers by name; empty where it is none."""
    named = {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
    return {key: number for key, item in named.items() if (number := _grade(item)) is not None}


def _grade(value: Any) -> float | None:
    """A grade or a number, also as text; None for everything else."""
    if not isinstance(value, str):
        return finite_number(value)
    if value in _GRADES:
        return _GRADES[value]
    try:
        return finite_number(float(value))
    except ValueError:
        return None


def _limit(sample: dict[str, Any], events: Sequence[dict[str, Any]]) -> str | None:
    """The limit that stopped a sample: "message 50"."""
    limit = mapping(sample.get("limit"))
    if not limit:
        limit = next((event for event in events if event.get("event") == "sample_limit"), {})
    return " ".join(part for key in ("type", "limit") if (part := label(limit.get(key)))) or None


def _end_reason(limit: str | None, error: Any, reward: Row) -> str | None:
    """A limit cuts a run off, an error breaks it; a scored sample without either was ended by the agent."""
    if limit:
        return "truncated"
    if error:
        return "cut"
    return "terminated" if reward else None
