"""Traces of the OpenAI Agents SDK: ``trace`` and ``trace.span`` objects, one per line, in a list or under ``data``.

Spans of the type ``response`` hold an id and the usage only: what the model said stays with OpenAI. There the tools that
ran stand for the calls of the reply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from offrl_core.importers.fields import Gathered, Row, label, mapping, rate_by_form, sequence
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.span_steps import read_spans
from offrl_core.importers.spans import (
    AGENT,
    HANDOFF,
    JUDGE,
    MODEL,
    OTHER,
    TOOL,
    Score,
    Span,
    Trace,
    first,
    listed,
    number,
    split_of,
    time_ns,
    words,
)

EXAMPLE = b"""\
{"object": "trace", "id": "trace_1", "workflow_name": "shop", "group_id": "thread_1", "metadata": {"reward": 1}}
{"object": "trace.span", "id": "span_2", "trace_id": "trace_1", "parent_id": "span_1", \
"started_at": "2026-01-05T10:00:00.100000+00:00", "ended_at": "2026-01-05T10:00:01.100000+00:00", \
"span_data": {"type": "generation", "input": [{"role": "user", "content": "Where is order 7?"}], \
"output": [{"type": "function_call", "call_id": "c1", "name": "find_order", "arguments": "{\\"order\\": 7}"}], \
"model": "gpt-4.1", "model_config": {"temperature": 0.2}, "usage": {"input_tokens": 9, "output_tokens": 5}}, \
"error": null}
{"object": "trace.span", "id": "span_3", "trace_id": "trace_1", "parent_id": "span_1", \
"started_at": "2026-01-05T10:00:01.200000+00:00", "ended_at": "2026-01-05T10:00:01.300000+00:00", \
"span_data": {"type": "function", "name": "find_order", "input": "{\\"order\\": 7}", "output": "on its way"}, \
"error": null}
{"object": "trace.span", "id": "span_4", "trace_id": "trace_1", "parent_id": "span_1", \
"started_at": "2026-01-05T10:00:01.400000+00:00", "ended_at": "2026-01-05T10:00:01.900000+00:00", \
"span_data": {"type": "generation", "input": [{"role": "user", "content": "Where is order 7?"}], \
"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is on its way."}]}], \
"model": "gpt-4.1", "model_config": {"temperature": 0.2}}, "error": null}
{"object": "trace.span", "id": "span_1", "trace_id": "trace_1", "parent_id": null, \
"started_at": "2026-01-05T10:00:00+00:00", "ended_at": "2026-01-05T10:00:02+00:00", \
"span_data": {"type": "agent", "name": "Shop", "handoffs": [], "tools": ["find_order"], "output_type": "str"}, \
"error": null}
"""

_KINDS = {
    "agent": AGENT,
    "function": TOOL,
    "generation": MODEL,
    "response": MODEL,
    "handoff": HANDOFF,
    "guardrail": JUDGE,
}
_REWARDS = ("reward", "score", "success")  # in the metadata that a program gives its trace
_ADVICE = (
    "The SDK exports no text or calls of the Responses API: use its session or the run's `to_input_list()` for these."
)


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are traces of the Agents SDK, 0 to 1, and why."""
    return rate_by_form(values, _form, "no record is an object of the type trace or trace.span")


def _form(value: Any) -> str | None:
    """What a record is, in words; None where it isn't of the SDK."""
    page = sequence(mapping(value).get("data"))
    value = mapping(page[0] if page else value)
    if value.get("object") == "trace.span" and "span_data" in value:
        return "objects of the type trace and trace.span"
    return "objects of the type trace and trace.span" if value.get("object") == "trace" else None


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read traces and spans into rows.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on rewards and on what the export leaves out.
    """
    return read_spans(records, report, _parse, _ADVICE)


def _parse(record: Record, place: Place) -> Iterator[Span | Trace]:
    """The traces and spans of one record."""
    for value in listed(record.value):
        item = mapping(value)
        is_trace = item.get("object") == "trace"
        identity = label(item.get("id"))
        trace_id = identity if is_trace else label(item.get("trace_id"))
        if identity is None or trace_id is None or item.get("object") not in ("trace", "trace.span"):
            if value is not record.value:
                place.lose(None, "not a span", "an item is neither a trace nor a span with ids", value)
        elif is_trace:
            yield _trace(item, trace_id, record)
        else:
            yield _span(item, identity, trace_id, record)


def _trace(value: Row, identity: str, record: Record) -> Trace:
    """A trace, with the reward that a program may have put into its metadata."""
    metadata = mapping(value.get("metadata"))
    rewards = [Score(name, metadata[name], "metadata of the trace") for name in _REWARDS if name in metadata]
    kept: Row = {"session": label(value.get("group_id"))} | metadata
    return Trace(
        id=identity,
        record=record,
        name=words(value.get("workflow_name")),
        split=split_of(metadata.get("split")),
        scores=rewards,
        metadata={key: item for key, item in kept.items() if item is not None},
    )


def _span(value: Row, identity: str, trace_id: str, record: Record) -> Span:
    """One span; those of other types than the SDK's own are kept and counted."""
    data = mapping(value.get("span_data"))
    kind = str(first(mapping(data.get("data")).get("sdk_span_type"), data.get("type"), "span"))
    usage = mapping(data.get("usage"))
    is_agent = _KINDS.get(kind) == AGENT
    return Span(
        trace=trace_id,
        id=identity,
        record=record,
        parent=label(value.get("parent_id")),
        kind=_KINDS.get(kind, OTHER),
        label=kind,
        name=words(data.get("to_agent" if kind == "handoff" else "name")) or "",
        start=time_ns(value.get("started_at")),
        end=time_ns(value.get("ended_at")),
        input=data.get("input"),
        output=first(data.get("output"), data.get("response")),
        error=_error(value.get("error")),
        model=words(data.get("model")),
        temperature=number(mapping(data.get("model_config")).get("temperature")),
        tokens={key: int(n) for key in ("input", "output") if (n := number(usage.get(f"{key}_tokens"))) is not None},
        tools=_tools(data) if is_agent else None,
    )


def _tools(data: Row) -> list[Any] | None:
    """What an agent may call: its tools, and the handoffs to other agents under the names the SDK gives them."""
    handoffs = [name for name in sequence(data.get("handoffs")) if isinstance(name, str)]
    names = [*sequence(data.get("tools")), *(f"transfer_to_{name.lower().replace(' ', '_')}" for name in handoffs)]
    return names or None


def _error(value: Any) -> str | None:
    """What went wrong, with the details that the SDK keeps beside its message."""
    error = mapping(value)
    details = words(mapping(error.get("data")).get("error"))
    found = [text for text in (words(error.get("message")), details) if text]
    return ": ".join(found) or ("error" if value else None)
