"""MLflow traces: ``info`` with ``data.spans``, older forms of it, and rows of the table that ``search_traces`` gives.

Every attribute is JSON inside text. Assessments are the rewards; invalid ones and expectations are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from offrl_core.importers.fields import Gathered, Row, finite_number, label, mapping, rate_by_form, sequence
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.span_attributes import fill
from offrl_core.importers.span_messages import loaded
from offrl_core.importers.span_steps import read_spans
from offrl_core.importers.spans import (
    AGENT,
    JUDGE,
    MODEL,
    OTHER,
    TOOL,
    Score,
    Span,
    Trace,
    first,
    number,
    split_of,
    time_ns,
    words,
)

EXAMPLE = b"""\
{"info": {"trace_id": "tr-1", "state": "OK", "assessments": [{"assessment_name": "correct", "valid": true, \
"source": {"source_type": "HUMAN"}, "feedback": {"value": true}}], "tags": {"mlflow.traceName": "shop"}}, \
"data": {"spans": [\
{"trace_id": "AQ==", "span_id": "AQ==", "parent_span_id": null, "name": "shop", \
"start_time_unix_nano": 1767607200000000000, "end_time_unix_nano": 1767607203000000000, \
"status": {"code": "STATUS_CODE_OK"}, "attributes": {"mlflow.spanType": "\\"AGENT\\"", \
"mlflow.spanInputs": "{\\"question\\": \\"Where is order 7?\\"}", "mlflow.spanOutputs": "\\"It is on its way.\\""}}, \
{"trace_id": "AQ==", "span_id": "Ag==", "parent_span_id": "AQ==", "name": "chat", \
"start_time_unix_nano": 1767607200100000000, "end_time_unix_nano": 1767607201100000000, \
"status": {"code": "STATUS_CODE_OK"}, "attributes": {"mlflow.spanType": "\\"CHAT_MODEL\\"", \
"mlflow.llm.model": "\\"gpt-4.1\\"", \
"mlflow.spanInputs": "{\\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": \\"Where is order 7?\\"}]}", \
"mlflow.spanOutputs": "{\\"choices\\": [{\\"message\\": {\\"role\\": \\"assistant\\", \\"tool_calls\\": [\
{\\"id\\": \\"c1\\", \\"type\\": \\"function\\", \\"function\\": {\\"name\\": \\"find_order\\", \
\\"arguments\\": \\"{\\\\\\"order\\\\\\": 7}\\"}}]}}]}"}}, \
{"trace_id": "AQ==", "span_id": "Aw==", "parent_span_id": "AQ==", "name": "find_order", \
"start_time_unix_nano": 1767607201200000000, "end_time_unix_nano": 1767607201300000000, \
"status": {"code": "STATUS_CODE_OK"}, "attributes": {"mlflow.spanType": "\\"TOOL\\"", \
"mlflow.spanInputs": "{\\"order\\": 7}", "mlflow.spanOutputs": "\\"on its way\\""}}, \
{"trace_id": "AQ==", "span_id": "BA==", "parent_span_id": "AQ==", "name": "chat", \
"start_time_unix_nano": 1767607201400000000, "end_time_unix_nano": 1767607202400000000, \
"status": {"code": "STATUS_CODE_OK"}, "attributes": {"mlflow.spanType": "\\"CHAT_MODEL\\"", \
"mlflow.llm.model": "\\"gpt-4.1\\"", \
"mlflow.spanOutputs": "{\\"choices\\": [{\\"message\\": {\\"role\\": \\"assistant\\", \
\\"content\\": \\"It is on its way.\\"}}]}"}}]}}
"""

_KINDS = {
    "CHAT_MODEL": MODEL,
    "LLM": MODEL,
    "TOOL": TOOL,
    "AGENT": AGENT,
    "EVALUATOR": JUDGE,
    "GUARDRAIL": JUDGE,
}
_ADVICE = "In MLflow, fetch traces with their spans (`search_traces(include_spans=True)`)."


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are MLflow traces, 0 to 1, and why."""
    return rate_by_form(values, _form, "no record has info and data.spans")


def _form(value: Any) -> str | None:
    """What a record is, in words; None where it is no trace of MLflow."""
    value = mapping(value)
    info = mapping(loaded(value.get("info")))
    if any(key in info for key in ("trace_id", "request_id")) and "spans" in mapping(loaded(value.get("data"))):
        return "info and data.spans"
    is_named = "trace_id" in value or "request_id" in value
    if is_named and ("spans" in value or isinstance(loaded(value.get("trace")), dict)):
        signs = (
            "trace_metadata",
            "request_metadata",
            "assessments",
            "trace",
            "execution_duration",
            "execution_time_ms",
        )
        return "rows of traces with spans" if any(key in value for key in signs) else None
    return None


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read traces into rows.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on rewards and on what the export leaves out.
    """
    return read_spans(records, report, _parse, _ADVICE, whole="trace")


def _parse(record: Record, place: Place) -> Iterator[Span | Trace]:
    """The trace of one record and its spans."""
    if _form(record.value) is None:
        return
    row = record.value
    inner = mapping(loaded(row.get("trace")))
    info = mapping(loaded(first(inner.get("info"), row.get("info")))) or row
    data = mapping(loaded(first(inner.get("data"), row.get("data")))) or row
    trace_id = label(first(info.get("trace_id"), info.get("request_id")))
    if trace_id is None:
        place.lose("info", "not a span", "a trace needs a trace_id, so it was set aside", info)
        return
    yield _trace(info, row, trace_id, record, place)
    for value in sequence(loaded(data.get("spans"))):
        span = _span(mapping(loaded(value)), trace_id, record)
        if span is None:
            place.lose("spans", "not a span", "a span needs a span id, so it was set aside", value)
        else:
            yield span


def _trace(info: Row, row: Row, trace_id: str, record: Record, place: Place) -> Trace:
    """A trace; the previews of its input and output are cut, so they are never read as content."""
    tags = _by_name(first(info.get("tags"), row.get("tags")))
    metadata = _by_name(first(info.get("trace_metadata"), info.get("request_metadata")))
    kept = {
        "session": label(metadata.get("mlflow.trace.session")),
        "state": label(first(info.get("state"), info.get("status"))),
    }
    return Trace(
        id=trace_id,
        record=record,
        name=words(tags.get("mlflow.traceName")),
        split=split_of(tags.get("split")),
        scores=_scores(sequence(loaded(first(info.get("assessments"), row.get("assessments")))), place),
        metadata={key: item for key, item in kept.items() if item is not None},
    )


def _by_name(value: Any) -> Row:
    """Tags or metadata as an object; older files have a list of keys and values."""
    value = loaded(value)
    pairs = [mapping(item) for item in sequence(value)]
    return mapping(value) or {str(pair["key"]): pair.get("value") for pair in pairs if "key" in pair}


def _span(value: Row, trace_id: str, record: Record) -> Span | None:
    """One span; None where it has no id."""
    context = mapping(value.get("context"))
    identity = label(first(value.get("span_id"), context.get("span_id")))
    if identity is None:
        return None
    attributes = {name: loaded(item) for name, item in mapping(loaded(value.get("attributes"))).items()}
    kind = str(first(attributes.get("mlflow.spanType"), value.get("span_type"), "span")).upper()
    status = value.get("status")
    code = str(first(mapping(status).get("code"), value.get("status_code"), status))
    usage = mapping(attributes.get("mlflow.chat.tokenUsage"))
    span = Span(
        trace=trace_id,
        id=identity,
        record=record,
        parent=label(first(value.get("parent_span_id"), value.get("parent_id"))),
        kind=_KINDS.get(kind, OTHER),
        label=kind,
        name=words(value.get("name")) or "",
        start=time_ns(first(value.get("start_time_unix_nano"), value.get("start_time_ns"), value.get("start_time"))),
        end=time_ns(first(value.get("end_time_unix_nano"), value.get("end_time_ns"), value.get("end_time"))),
        input=first(attributes.get("mlflow.spanInputs"), value.get("inputs")),
        output=first(attributes.get("mlflow.spanOutputs"), value.get("outputs")),
        error=_error(code, status, value),
        model=words(first(attributes.get("mlflow.llm.model"), attributes.get("model"))),
        temperature=number(
            first(attributes.get("temperature"), mapping(attributes.get("mlflow.spanInputs")).get("temperature"))
        ),
        cost=number(mapping(attributes.get("mlflow.llm.cost")).get("total_cost")),
        tokens={key: int(n) for key in ("input", "output") if (n := number(usage.get(f"{key}_tokens"))) is not None},
        tools=first(attributes.get("mlflow.chat.tools"), mapping(attributes.get("mlflow.spanInputs")).get("tools")),
    )
    fill(span, attributes)
    return span


def _error(code: str, status: Any, value: Row) -> str | None:
    """What went wrong in a span that failed."""
    if "ERROR" not in code.upper():
        return None
    return words(first(mapping(status).get("message"), value.get("status_message"))) or "error"


def _scores(assessments: list[Any], place: Place) -> list[Score]:
    """Feedback with a value; an invalid one, or one whose judge failed, is reported and gives none."""
    found = []
    for item in map(mapping, assessments):
        name = words(first(item.get("assessment_name"), item.get("name"))) or "assessment"
        feedback = mapping(item.get("feedback"))
        value = feedback.get("value")
        if item.get("valid") is False or feedback.get("error") or item.get("error"):
            message = f"the assessment {name} is invalid or its judge failed, so it is no reward"
            place.mend("assessments", "assessment not valid", message, item)
        elif isinstance(value, str) or finite_number(value) is not None:
            found.append(Score(name, value, label(mapping(item.get("source")).get("source_type")) or "unknown"))
    return found
