"""OpenTelemetry traces: OTLP/JSON with GenAI conventions, OpenInference or both, Phoenix's table of spans, and Jaeger.

One document per line and often one span per document; ids in hexadecimal or base64; children before their parents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from offrl_core.importers.fields import Gathered, Row, finite_number, label, mapping, rate_by_form, sequence
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.span_attributes import fill
from offrl_core.importers.span_messages import loaded
from offrl_core.importers.span_steps import read_spans
from offrl_core.importers.spans import OTHER, Span, Trace, first, split_of, time_ns, words

EXAMPLE = b"""\
{"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "demo"}, "spans": [\
{"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "00f067aa0ba902b7", "parentSpanId": "b7ad6b7169203331", \
"name": "chat", "startTimeUnixNano": "1767607200100000000", "endTimeUnixNano": "1767607201100000000", "attributes": [\
{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}, \
{"key": "gen_ai.request.model", "value": {"stringValue": "gpt-4.1"}}, \
{"key": "gen_ai.input.messages", "value": {"stringValue": "[{\\"role\\": \\"user\\", \\"parts\\": [\
{\\"type\\": \\"text\\", \\"content\\": \\"Where is order 7?\\"}]}]"}}, \
{"key": "gen_ai.output.messages", "value": {"stringValue": "[{\\"role\\": \\"assistant\\", \\"parts\\": [\
{\\"type\\": \\"tool_call\\", \\"id\\": \\"c1\\", \\"name\\": \\"find_order\\", \\"arguments\\": {\\"order\\": 7}}]}]"}}]}, \
{"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "00f067aa0ba902b8", "parentSpanId": "b7ad6b7169203331", \
"name": "execute_tool find_order", "startTimeUnixNano": "1767607201200000000", \
"endTimeUnixNano": "1767607201300000000", "attributes": [\
{"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}, \
{"key": "gen_ai.tool.name", "value": {"stringValue": "find_order"}}, \
{"key": "gen_ai.tool.call.id", "value": {"stringValue": "c1"}}, \
{"key": "gen_ai.tool.call.result", "value": {"stringValue": "on its way"}}]}, \
{"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "00f067aa0ba902b9", "parentSpanId": "b7ad6b7169203331", \
"name": "chat", "startTimeUnixNano": "1767607201400000000", "endTimeUnixNano": "1767607202400000000", "attributes": [\
{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}, \
{"key": "gen_ai.request.model", "value": {"stringValue": "gpt-4.1"}}, \
{"key": "gen_ai.output.messages", "value": {"stringValue": "[{\\"role\\": \\"assistant\\", \\"parts\\": [\
{\\"type\\": \\"text\\", \\"content\\": \\"It is on its way.\\"}]}]"}}]}]}]}]}
{"resourceSpans": [{"scopeSpans": [{"spans": [\
{"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "name": "invoke_agent shop", \
"startTimeUnixNano": "1767607200000000000", "endTimeUnixNano": "1767607203000000000", "attributes": [\
{"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}}, \
{"key": "gen_ai.agent.name", "value": {"stringValue": "shop"}}], \
"events": [{"name": "gen_ai.evaluation.result", "attributes": [\
{"key": "gen_ai.evaluation.name", "value": {"stringValue": "correctness"}}, \
{"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": 1.0}}]}]}]}]}]}
"""

_ADVICE = "Capture of content is off by default in OpenTelemetry: switch it on where the agent runs."
_SESSIONS = ("gen_ai.conversation.id", "session.id")
_PLAIN_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue", "bytesValue")


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are OpenTelemetry traces, 0 to 1, and why."""
    return rate_by_form(values, _form, "no record has resourceSpans")


def _form(value: Any) -> str | None:
    """What a record is, in words; None where it holds no spans of OpenTelemetry."""
    value = mapping(value)
    if isinstance(first(value.get("resourceSpans"), value.get("resource_spans")), list):
        return "resourceSpans (OTLP)"
    if {"context.span_id", "context.trace_id"} <= value.keys():
        return "context.span_id and context.trace_id (Phoenix)"
    if _jaeger_spans(value):
        return "traceID and spans with an operationName (Jaeger)"
    if {"spanId", "traceId"} <= mapping(value.get("spanContext")).keys():
        return "spans with a spanContext (OpenTelemetry in JavaScript)"
    if "attributes" in value and _id(value, "traceId", "trace_id") and _id(value, "spanId", "span_id"):
        return "single spans with a trace id (OpenTelemetry)"
    context = mapping(value.get("context"))
    return "spans with a context (OpenTelemetry or Phoenix)" if {"span_id", "trace_id"} <= context.keys() else None


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read spans into rows; a trace may be spread over all records and files.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on rewards and on what the export leaves out.
    """
    return read_spans(records, report, _parse, _ADVICE)


def _parse(record: Record, place: Place) -> Iterator[Span | Trace]:
    """The spans of one record."""
    value = mapping(record.value)
    if _form(value) is None:
        return
    resources = first(value.get("resourceSpans"), value.get("resource_spans"))
    if resources is None and (spans := _jaeger_spans(value)):
        for span in spans:
            yield from _span(_of_jaeger(mapping(span)), record, place)
        return
    if resources is None:
        yield from _span(_of_row(value), record, place)
        return
    for resource in sequence(resources):
        scopes = first(
            *(mapping(resource).get(key) for key in ("scopeSpans", "scope_spans", "instrumentationLibrarySpans"))
        )
        for scope in sequence(scopes):
            for span in sequence(mapping(scope).get("spans")):
                yield from _span(mapping(span), record, place)


def _span(value: Row, record: Record, place: Place) -> Iterator[Span | Trace]:
    """One span, and what it says about its whole trace; a problem where it has no ids."""
    trace_id, identity = _id(value, "traceId", "trace_id"), _id(value, "spanId", "span_id")
    if trace_id is None or identity is None:
        place.lose("spans", "not a span", "a span needs a trace id and a span id, so it was set aside", value)
        return
    attributes = plain_attributes(value.get("attributes"))
    status = mapping(value.get("status"))
    failed = str(status.get("code")) in ("2", "STATUS_CODE_ERROR", "ERROR")
    span = Span(
        trace=trace_id,
        id=identity,
        record=record,
        parent=_id(value, "parentSpanId", "parent_span_id", "parent_id"),
        name=words(value.get("name")) or "",
        start=time_ns(_either(value, "startTimeUnixNano", "start_time_unix_nano", "start_time")),
        end=time_ns(_either(value, "endTimeUnixNano", "end_time_unix_nano", "end_time")),
        error=words(status.get("message")) if failed else None,
    )
    events = [mapping(event) for event in sequence(loaded(value.get("events")))]
    fill(
        span,
        attributes,
        [
            {"name": event.get("name"), "attributes": plain_attributes(event.get("attributes"))}
            for event in events
            if isinstance(event.get("name"), str)
        ],
    )
    if failed and span.error is None:
        span.error = words(attributes.get("error.type")) or "error"
    elif not failed and span.kind == OTHER:
        span.error = None
    yield span
    if span.parent is None:
        sessions = (label(attributes.get(name)) for name in _SESSIONS)
        metadata = mapping(loaded(attributes.get("metadata")))
        known: Row = {
            "session": next((name for name in sessions if name), None),
            "task_id": label(metadata.get("task_id")),
        }
        yield Trace(
            id=trace_id,
            record=record,
            name=span.name or None,
            split=split_of(metadata.get("split"), attributes.get("tag.tags")),
            metadata={key: item for key, item in known.items() if item is not None},
        )


def _either(value: Row, *names: str) -> Any:
    """The value under the first of these names that has one."""
    return first(*(value.get(name) for name in names))


def _id(value: Row, *names: str) -> str | None:
    """An id as text; hexadecimal ones in small letters, as libraries differ in that. Zeros alone are none."""
    found = label(_either(value, *names))
    if found is None or not found.strip("0"):
        return None
    return found.lower() if all(letter in "0123456789abcdefABCDEF" for letter in found) else found


def plain_attributes(value: Any) -> dict[str, Any]:
    """Attributes as an object: OTLP has a list of keys with typed values, other exports an object, maybe as text."""
    value = loaded(value)
    if isinstance(value, dict):
        return value
    return {
        item["key"]: _plain(item.get("value"))
        for item in sequence(value)
        if isinstance(item, dict) and isinstance(item.get("key"), str)
    }


def _plain(value: Any) -> Any:
    """A typed value of OTLP as it is meant."""
    if not isinstance(value, dict):
        return value
    if "arrayValue" in value:
        return [_plain(item) for item in sequence(mapping(value["arrayValue"]).get("values"))]
    if "kvlistValue" in value:
        return plain_attributes(mapping(value["kvlistValue"]).get("values"))
    if isinstance(whole := value.get("intValue"), str):  # 64 bits are text in JSON
        return parse_json(whole)[0] if len(whole) < 30 else whole
    return first(*(value.get(name) for name in _PLAIN_VALUES))


def _of_row(row: Row) -> Row:
    """A row of Phoenix's table, or a span with a context, in the form of OTLP."""
    context = mapping(row.get("context"))
    script = mapping(row.get("spanContext"))
    attributes = dict(_flat(mapping(loaded(row.get("attributes"))), ""))
    for key, value in row.items():
        if key.startswith("attributes.") and value is not None:
            attributes |= dict(_flat({key.removeprefix("attributes."): value}, ""))
    if words(row.get("span_kind")):
        attributes.setdefault("openinference.span.kind", row["span_kind"])
    status = mapping(row.get("status"))
    code = first(row.get("status_code"), status.get("status_code"), status.get("code"))
    message = first(row.get("status_message"), status.get("description"), status.get("message"))
    return {
        **row,
        "trace_id": first(
            row.get("context.trace_id"), context.get("trace_id"), script.get("traceId"), row.get("trace_id")
        ),
        "span_id": first(row.get("context.span_id"), context.get("span_id"), script.get("spanId"), row.get("span_id")),
        "parent_id": first(row.get("parent_id"), mapping(row.get("parentSpanContext")).get("spanId")),
        "start_time": first(row.get("start_time"), row.get("startTime")),
        "end_time": first(row.get("end_time"), row.get("endTime")),
        "attributes": attributes,
        "status": {"code": code, "message": message},
    }


def _jaeger_spans(value: Row) -> list[Any]:
    """The spans of a trace as Jaeger exports it, or of all traces on a page of its API."""
    pages = sequence(value.get("data")) if "data" in value else [value]
    spans = [span for trace in pages for span in sequence(mapping(trace).get("spans"))]
    return spans if any({"traceID", "spanID", "operationName"} <= mapping(span).keys() for span in spans) else []


def _of_jaeger(span: Row) -> Row:
    """A span of Jaeger in the form of OTLP: times are microseconds, attributes are tags, parents are references."""
    tags = _of_tags(span.get("tags"))
    start, duration = finite_number(span.get("startTime")), finite_number(span.get("duration"))
    references = map(mapping, sequence(span.get("references")))
    failed = tags.get("error") is True or tags.get("otel.status_code") == "ERROR"
    logs = [_of_tags(mapping(log).get("fields")) for log in sequence(span.get("logs"))]
    return {
        "traceId": span.get("traceID"),
        "spanId": span.get("spanID"),
        "parentSpanId": next((item.get("spanID") for item in references if item.get("refType") == "CHILD_OF"), None),
        "name": span.get("operationName"),
        "startTimeUnixNano": None if start is None else int(start) * 1000,
        "endTimeUnixNano": None if start is None or duration is None else int(start + duration) * 1000,
        "attributes": tags,
        "status": {"code": 2, "message": tags.get("otel.status_description")} if failed else {},
        "events": [{"name": fields.get("event"), "attributes": fields} for fields in logs],
    }


def _of_tags(tags: Any) -> Row:
    """Tags of Jaeger by name."""
    found = map(mapping, sequence(tags))
    return {tag["key"]: tag.get("value") for tag in found if isinstance(tag.get("key"), str)}


def _flat(value: Row, before: str) -> Iterator[tuple[str, Any]]:
    """Attributes by their full names, where objects nest them; lists stay."""
    for key, item in value.items():
        if isinstance(item, dict) and item:
            yield from _flat(item, f"{before}{key}.")
        elif item is not None:
            yield before + key, item
