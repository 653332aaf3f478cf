"""Events of LangChain's ``astream_events``: each run starts, streams, and ends or fails, one event per record.

The events of a run become one span. They hold no times, so their order is that of the file. Version 2 names the runs
above in ``parent_ids``; version 1 does not: there, what happens between the start and the end of a chain belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from offrl_core.importers.fields import Gathered, Row, label, mapping, rate_by_form, sequence, stem
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.span_steps import read_spans
from offrl_core.importers.spans import MODEL, OTHER, TOOL, Span, Trace, first, number, words

EXAMPLE = b"""\
{"event": "on_chain_start", "name": "shop", "run_id": "r1", "parent_ids": [], "metadata": {"thread_id": "t1"}, \
"data": {"input": {"messages": [{"type": "human", "content": "Where is order 7?"}]}}}
{"event": "on_chat_model_start", "name": "ChatOpenAI", "run_id": "r2", "parent_ids": ["r1"], \
"metadata": {"ls_model_name": "gpt-4.1", "ls_temperature": 0}, \
"data": {"input": {"messages": [[{"type": "human", "content": "Where is order 7?"}]]}}}
{"event": "on_chat_model_stream", "name": "ChatOpenAI", "run_id": "r2", "parent_ids": ["r1"], \
"data": {"chunk": {"type": "AIMessageChunk", "content": ""}}}
{"event": "on_chat_model_end", "name": "ChatOpenAI", "run_id": "r2", "parent_ids": ["r1"], \
"data": {"output": {"type": "ai", "content": "", "tool_calls": [\
{"name": "find_order", "args": {"order": 7}, "id": "c1", "type": "tool_call"}]}}}
{"event": "on_tool_start", "name": "find_order", "run_id": "r3", "parent_ids": ["r1"], "data": {"input": {"order": 7}}}
{"event": "on_tool_end", "name": "find_order", "run_id": "r3", "parent_ids": ["r1"], \
"data": {"input": {"order": 7}, "output": {"type": "tool", "content": "on its way", "tool_call_id": "c1"}}}
{"event": "on_chat_model_end", "name": "ChatOpenAI", "run_id": "r4", "parent_ids": ["r1"], \
"data": {"output": {"type": "ai", "content": "It is on its way."}}}
{"event": "on_chain_end", "name": "shop", "run_id": "r1", "parent_ids": [], "data": {"output": "It is on its way."}}
"""

_KINDS = {"chat_model": MODEL, "llm": MODEL, "tool": TOOL}
_PHASES = ("start", "stream", "end", "error")
_ADVICE = "Log every event of `astream_events` as JSON (LangChain's `dumpd` turns its messages into that)."


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are events of LangChain, 0 to 1, and why."""
    return rate_by_form(values, _form, "no record has an event on_..., a run_id and data")


def _form(value: Any) -> str | None:
    """What a record is, in words; None where it is no event."""
    event = mapping(value).get("event")
    is_one = isinstance(event, str) and event.startswith("on_") and label(value.get("run_id")) and "data" in value
    return "events on_..., run_id and data" if is_one else None


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read events into rows.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on rewards and on what the log leaves out.
    """
    files: dict[str, _File] = {}

    def parse(record: Record, place: Place) -> Iterator[Span | Trace]:
        return files.setdefault(record.source, _File(stem(record.source) or "run")).take(record)

    return read_spans(records, report, parse, _ADVICE)


@dataclass(slots=True)
class _File:
    """The runs of one file so far; a span grows with each event of its run."""

    name: str
    spans: dict[str, Span] = field(default_factory=dict)  # by run_id
    open_chain: str | None = None  # of version 1: the outermost chain that has not ended

    def take(self, record: Record) -> Iterator[Span | Trace]:
        """Take one event: the first of a run gives its span, a later one adds to it."""
        if _form(record.value) is None:
            return
        event = record.value
        kind, _, phase = event["event"].removeprefix("on_").rpartition("_")
        kind, phase = (kind, phase) if phase in _PHASES else (event["event"].removeprefix("on_"), "")
        run = str(event["run_id"])
        if run not in self.spans:
            self.spans[run] = self._span(run, kind, event, record)
            yield self.spans[run]
        span = self.spans[run]
        _add(span, phase, event)
        if phase in ("end", "error") and run == self.open_chain:
            self.open_chain = None
        is_root = span.parent is None and span.trace == run
        yield Trace(
            id=span.trace,
            record=record,
            name=span.name if is_root else None,
            input=span.input if is_root else None,
            output=span.output if is_root else None,
            metadata={"session": thread} if (thread := label(mapping(event.get("metadata")).get("thread_id"))) else {},
        )

    def _span(self, run: str, kind: str, event: Row, record: Record) -> Span:
        """The span of a run, from its first event."""
        above = [text for item in sequence(event.get("parent_ids")) if (text := label(item))]
        if not above and self.open_chain:
            above = [self.open_chain]
        elif not above and kind == "chain":
            self.open_chain = run
        elif above:
            self.open_chain = None  # version 2 says itself what belongs together
        alone = run if kind == "chain" else self.name  # events of which only some were logged are one run
        metadata = mapping(event.get("metadata"))
        return Span(
            trace=above[0] if above else alone,
            id=run,
            record=record,
            parent=above[-1] if above else None,
            kind=_KINDS.get(kind, OTHER),
            label=kind,
            name=words(event.get("name")) or "",
            start=len(self.spans),  # no time, but an order
            model=words(metadata.get("ls_model_name")),
            temperature=number(metadata.get("ls_temperature")),
        )


def _add(span: Span, phase: str, event: Row) -> None:
    """Add what an event tells of its run; pieces of a reply are told again, whole, when it ends."""
    data = mapping(event.get("data"))
    if phase == "stream":
        return
    span.input = first(span.input, data.get("input"))
    span.output = first(data.get("output"), span.output)
    call = mapping(span.input)
    if span.kind == TOOL and call.get("type") == "tool_call":
        span.input, span.call_id = call.get("args"), label(call.get("id"))
    if phase == "error":
        span.error = words(data.get("error")) or "error"
