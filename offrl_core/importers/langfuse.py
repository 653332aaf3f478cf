"""Langfuse exports: a trace with its observations, pages of its API, or rows of observations or traces.

Inputs, outputs and metadata are often JSON inside text. In a downloaded trace, ``trace.observations`` are stubs and the
full ones stand beside the trace; tables downloaded from the list of traces have no observations at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from offrl_core.importers.fields import Gathered, Row, label, mapping, rate_by_form, sequence
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
    listed,
    number,
    split_of,
    time_ns,
    words,
)

EXAMPLE = b"""\
{"trace": {"id": "t1", "name": "shop", "scores": [{"name": "correctness", "value": 1, "dataType": "NUMERIC", \
"source": "EVAL"}]}, "observations": [\
{"id": "a", "traceId": "t1", "type": "AGENT", "name": "shop", "startTime": "2026-01-05T10:00:00.000Z", \
"endTime": "2026-01-05T10:00:03.000Z"}, \
{"id": "b", "traceId": "t1", "parentObservationId": "a", "type": "GENERATION", "name": "chat", "model": "gpt-4.1", \
"startTime": "2026-01-05T10:00:00.100Z", "endTime": "2026-01-05T10:00:01.100Z", \
"modelParameters": {"temperature": 0}, "totalCost": 0.001, \
"input": "[{\\"role\\": \\"user\\", \\"content\\": \\"Where is order 7?\\"}]", \
"output": "{\\"role\\": \\"assistant\\", \\"tool_calls\\": [{\\"id\\": \\"c1\\", \\"type\\": \\"function\\", \
\\"function\\": {\\"name\\": \\"find_order\\", \\"arguments\\": \\"{\\\\\\"order\\\\\\": 7}\\"}}]}"}, \
{"id": "c", "traceId": "t1", "parentObservationId": "a", "type": "TOOL", "name": "find_order", \
"startTime": "2026-01-05T10:00:01.200Z", "endTime": "2026-01-05T10:00:01.300Z", \
"input": {"order": 7}, "output": "on its way"}, \
{"id": "d", "traceId": "t1", "parentObservationId": "a", "type": "GENERATION", "name": "chat", "model": "gpt-4.1", \
"startTime": "2026-01-05T10:00:01.400Z", "endTime": "2026-01-05T10:00:02.400Z", "totalCost": 0.002, \
"input": [{"role": "user", "content": "Where is order 7?"}], \
"output": {"role": "assistant", "content": "It is on its way."}}]}
"""

_KINDS = {
    "GENERATION": MODEL,
    "TOOL": TOOL,
    "AGENT": AGENT,
    "EVALUATOR": JUDGE,
    "GUARDRAIL": JUDGE,
}
_TYPES = {*_KINDS, "SPAN", "EVENT", "CHAIN", "RETRIEVER", "EMBEDDING"}
_ADVICE = "In Langfuse, download the trace as JSON, or export observations with their input and output."


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values come from Langfuse, 0 to 1, and why."""
    return rate_by_form(values, _form, "no record has a trace with observations")


def _form(value: Any) -> str | None:
    """What a record is, in words; None where it isn't of Langfuse."""
    page = sequence(mapping(value).get("data"))
    value = mapping(page[0] if page else value)
    if isinstance(value.get("observations"), list):
        if isinstance(value.get("trace"), dict):
            return "trace and observations"
        return "traces with observations" if any(key in value for key in ("projectId", "timestamp", "scores")) else None
    if "traceId" in value and value.get("type") in _TYPES and any(key in value for key in ("startTime", "start_time")):
        return "observations (traceId, type and startTime)"
    is_trace = {"id", "timestamp", "name"} <= value.keys() and ("sessionId" in value or "bookmarked" in value)
    return "traces (id, timestamp, name and sessionId)" if is_trace else None


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read traces and observations into rows.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on rewards and on what the export leaves out.
    """
    return read_spans(records, report, _parse, _ADVICE, whole="trace")


def _parse(record: Record, place: Place) -> Iterator[Span | Trace]:
    """The traces and observations of one record."""
    for value in listed(record.value):
        if _form(value) is None:
            if value is not record.value:
                place.lose(None, "not a span", "an item is neither a trace nor an observation", value)
            continue
        if isinstance(value.get("trace"), dict):
            observations = value["observations"]
            known = [mapping(item).get("id") for item in observations]
            stubs = [
                item for item in sequence(value["trace"].get("observations")) if mapping(item).get("id") not in known
            ]
            yield from _trace(value["trace"], [*observations, *stubs], sequence(value.get("scores")), record, place)
        elif "traceId" in value:
            yield from _observation(value, None, [], record, place)
        else:
            yield from _trace(value, sequence(value.get("observations")), [], record, place)


def _trace(
    value: Row, observations: list[Any], more_scores: list[Any], record: Record, place: Place
) -> Iterator[Span | Trace]:
    """One trace and its observations."""
    trace_id = label(value.get("id")) or f"{record.source}#{record.number}"
    scores = [score for score in [*sequence(value.get("scores")), *more_scores] if isinstance(score, dict)]
    own = [score for score in scores if not score.get("observationId")]
    metadata = mapping(loaded(value.get("metadata")))
    kept = {"session": value.get("sessionId"), "user": value.get("userId"), "version": value.get("version")}
    kept |= {"tags": loaded(value.get("tags")) or None, "release": value.get("release")}
    yield Trace(
        id=trace_id,
        record=record,
        name=words(value.get("name")),
        input=loaded(value.get("input")),
        output=loaded(value.get("output")),
        split=split_of(metadata.get("split"), loaded(value.get("tags"))),
        scores=_scores(own),
        metadata={key: item for key, item in kept.items() if item is not None},
    )
    for observation in observations:
        yield from _observation(observation, trace_id, scores, record, place)


def _observation(value: Any, trace_id: str | None, scores: list[Row], record: Record, place: Place) -> Iterator[Span]:
    """One observation; a problem where it has no id or trace. The API and the tables spell the names differently."""
    value = mapping(value)
    identity = label(value.get("id"))
    trace_id = trace_id or label(value.get("traceId"))
    if identity is None or trace_id is None:
        place.lose("observations", "not a span", "an observation needs an id and a trace, so it was set aside", value)
        return
    kind = str(value.get("type"))
    parameters = mapping(loaded(value.get("modelParameters")))
    usage = mapping(loaded(value.get("usageDetails"))) or mapping(value.get("usage"))
    metadata = mapping(loaded(value.get("metadata")))
    prompt = words(value.get("promptName"))
    span = Span(
        trace=trace_id,
        id=identity,
        record=record,
        parent=label(value.get("parentObservationId")),
        kind=_KINDS.get(kind, OTHER),
        label=kind,
        name=words(value.get("name")) or "",
        start=time_ns(first(value.get("startTime"), value.get("start_time"))),
        end=time_ns(first(value.get("endTime"), value.get("end_time"))),
        input=_content(value.get("input")),
        output=_content(value.get("output")),
        error=words(value.get("statusMessage")) or "error" if value.get("level") == "ERROR" else None,
        model=words(first(value.get("model"), value.get("providedModelName"))),
        temperature=number(parameters.get("temperature")),
        cost=_cost(value),
        tokens={key: int(n) for key in ("input", "output") if (n := number(usage.get(key))) is not None},
        prompt_version=f"{prompt}:{label(value.get('promptVersion')) or '?'}" if prompt else None,
        scores=_scores([score for score in scores if score.get("observationId") == identity]),
        tools=[loaded(item) for item in mapping(loaded(value.get("toolDefinitions"))).values()] or None,
    )
    if span.kind == MODEL and value.get("toolCallNames") and span.output is None:
        span.output = _calls(value)
    latency = number(value.get("latency"))
    if span.end is None and span.start is not None and latency is not None and abs(latency) < 10**9:
        span.end = span.start + int(latency * 10**9)  # it is in seconds, but one export has milliseconds: last resort
    content = (span.input, span.output)
    fill(span, mapping(metadata.get("attributes")))
    if any(item is not None for item in content):  # what Langfuse shows goes before the copy in the attributes
        span.input, span.output = content
    yield span


def _content(value: Any) -> Any:
    """Input or output: as recorded, but nothing where it says ``null``."""
    return None if value is None or loaded(value) is None or value == "null" else value


def _cost(value: Row) -> float | None:
    """Cost in US dollars; Langfuse writes 0 where it has no price for a model."""
    details = mapping(loaded(value.get("costDetails")))
    return number(first(details.get("total"), value.get("totalCost"), value.get("calculatedTotalCost"))) or None


def _calls(value: Row) -> list[Row]:
    """The calls that Langfuse itself found in an output, where the export leaves the output out."""
    names = sequence(loaded(value.get("toolCallNames")))
    calls = [mapping(loaded(call)) for call in sequence(loaded(value.get("toolCalls")))]
    calls += [{}] * (len(names) - len(calls))
    return [
        {"role": "assistant", "tool_calls": [{"name": name, "arguments": call.get("arguments"), "id": call.get("id")}]}
        for name, call in zip(names, calls, strict=False)
    ]


def _scores(scores: Iterable[Row]) -> list[Score]:
    """Scores with a name and a value: a number, or words where it is a category."""
    found = []
    for score in scores:
        value = first(number(score.get("value")), score.get("stringValue"), score.get("value"))
        if (name := words(score.get("name"))) and value is not None:
            if score.get("dataType") == "CATEGORICAL":
                value = first(score.get("stringValue"), value)
            found.append(Score(name, value, label(score.get("source")) or "unknown"))
    return found
