"""Runs of LangSmith (LangChain, LangGraph): one per line, nested under ``child_runs``, or rows of a table with JSON text.

Feedback comes as the average of each key over its raters; raw feedback is another export.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from offrl_core.importers.fields import Gathered, Row, label, mapping, rate_by_form, sequence
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.span_messages import loaded
from offrl_core.importers.span_steps import read_spans
from offrl_core.importers.spans import (
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
{"id": "r1", "trace_id": "r1", "parent_run_id": null, "name": "shop", "run_type": "chain", \
"dotted_order": "20260105T100000000000Zr1", "start_time": "2026-01-05T10:00:00.000000", \
"end_time": "2026-01-05T10:00:03.000000", "inputs": {"question": "Where is order 7?"}, \
"outputs": {"output": "It is on its way."}, "feedback_stats": {"correctness": {"n": 1, "avg": 1.0}}}
{"id": "r2", "trace_id": "r1", "parent_run_id": "r1", "name": "ChatOpenAI", "run_type": "llm", \
"dotted_order": "20260105T100000000000Zr1.20260105T100000100000Zr2", "start_time": "2026-01-05T10:00:00.100000", \
"end_time": "2026-01-05T10:00:01.100000", "extra": {"invocation_params": {"model": "gpt-4.1", "temperature": 0}}, \
"total_cost": "0.001", "inputs": {"messages": [[{"lc": 1, "type": "constructor", \
"id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": "Where is order 7?"}}]]}, \
"outputs": {"generations": [[{"text": "", "message": {"lc": 1, "type": "constructor", \
"id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": "", \
"tool_calls": [{"name": "find_order", "args": {"order": 7}, "id": "c1", "type": "tool_call"}]}}}]]}}
{"id": "r3", "trace_id": "r1", "parent_run_id": "r1", "name": "find_order", "run_type": "tool", \
"dotted_order": "20260105T100000000000Zr1.20260105T100001200000Zr3", "start_time": "2026-01-05T10:00:01.200000", \
"end_time": "2026-01-05T10:00:01.300000", "inputs": {"input": "{'order': 7}"}, "outputs": {"output": "on its way"}}
{"id": "r4", "trace_id": "r1", "parent_run_id": "r1", "name": "ChatOpenAI", "run_type": "llm", \
"dotted_order": "20260105T100000000000Zr1.20260105T100001400000Zr4", "start_time": "2026-01-05T10:00:01.400000", \
"end_time": "2026-01-05T10:00:02.400000", "extra": {"invocation_params": {"model": "gpt-4.1", "temperature": 0}}, \
"inputs": {"messages": [[{"type": "human", "data": {"content": "Where is order 7?"}}]]}, \
"outputs": {"generations": [[{"text": "It is on its way.", "message": {"type": "ai", \
"data": {"content": "It is on its way."}}}]]}}
"""

_KINDS = {"llm": MODEL, "tool": TOOL}
_ADVICE = "In LangSmith, export runs with their inputs and outputs (all runs of a trace, not only its root)."


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are runs of LangSmith, 0 to 1, and why."""
    return rate_by_form(values, _form, "no record has run_type and dotted_order")


def _form(value: Any) -> str | None:
    """What a record is, in words; None where it is no run."""
    value = mapping(next(_runs(value), None))
    signs = [key for key in ("dotted_order", "parent_run_id", "trace_id", "child_runs") if key in value]
    return f"run_type and {signs[0]}" if signs and isinstance(value.get("run_type"), str) else None


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read runs into rows.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on rewards and on what the export leaves out.
    """
    return read_spans(records, report, _parse, _ADVICE)


def _runs(value: Any) -> Iterator[Any]:
    """The runs in a record: under ``data`` or ``runs``, or the record itself."""
    runs = mapping(value).get("runs")
    return iter(runs) if isinstance(runs, list) else listed(value)


def _parse(record: Record, place: Place) -> Iterator[Span | Trace]:
    """The runs of one record, with the runs inside them."""
    for value in _runs(record.value):
        if isinstance(value, dict) and isinstance(value.get("run_type"), str):
            yield from _run(value, None, None, record, place)
        elif value is not record.value:
            place.lose(None, "not a span", "an item is no run (an object with id and run_type)", value)


def _run(value: Row, trace_id: str | None, parent: str | None, record: Record, place: Place) -> Iterator[Span | Trace]:
    """One run and its children; without a ``trace_id`` the outermost run names the trace."""
    identity = label(value.get("id"))
    if identity is None:
        place.lose("id", "not a span", "a run needs an id, so it was set aside", value)
        return
    path = str(value.get("dotted_order") or "").split(".")
    above = path[-2].rpartition("Z")[2] if len(path) > 1 else None
    parent = first(label(value.get("parent_run_id")), above, parent)
    trace_id = first(label(value.get("trace_id")), path[0].rpartition("Z")[2] or None, trace_id, identity)
    span = _span(value, identity, trace_id, parent, path, record)
    yield span
    if parent is None:
        yield _trace(value, trace_id, span, record)
    for child in sequence(loaded(value.get("child_runs"))):
        if isinstance(child, dict):
            yield from _run(child, trace_id, identity, record, place)


def _span(value: Row, identity: str, trace_id: str, parent: str | None, path: list[str], record: Record) -> Span:
    """One run as a span."""
    extra = mapping(loaded(value.get("extra")))
    metadata = mapping(extra.get("metadata"))
    parameters = mapping(extra.get("invocation_params"))
    kind = str(value["run_type"])
    inputs, outputs = loaded(value.get("inputs")), loaded(value.get("outputs"))
    is_tool = kind == "tool"
    prompt = label(metadata.get("lc_hub_commit_hash")) or label(metadata.get("prompt_version"))
    return Span(
        trace=trace_id,
        id=identity,
        record=record,
        parent=parent,
        kind=_KINDS.get(kind, OTHER),
        label=kind,
        name=words(value.get("name")) or "",
        start=time_ns(first(value.get("start_time"), path[-1].partition("Z")[0])),
        end=time_ns(value.get("end_time")),
        input=_only(inputs, "input") if is_tool else inputs,
        output=_only(outputs, "output") if is_tool else outputs,
        error=_error(value),
        model=words(first(parameters.get("model"), parameters.get("model_name"), metadata.get("ls_model_name"))),
        temperature=number(first(parameters.get("temperature"), metadata.get("ls_temperature"))),
        cost=number(value.get("total_cost")),
        tokens=_tokens(value),
        call_id=label(extra.get("tool_call_id")),
        tools=parameters.get("tools"),
        prompt_version=prompt,
        scores=_scores(value) if parent is not None else [],
    )


def _trace(value: Row, trace_id: str, root: Span, record: Record) -> Trace:
    """What the root says about its trace."""
    metadata = mapping(mapping(loaded(value.get("extra"))).get("metadata"))
    kept = {
        "session": first(*(label(metadata.get(key)) for key in ("session_id", "thread_id", "conversation_id"))),
        "project": label(value.get("session_name")),
        "task_id": label(metadata.get("task_id")),
        "tags": loaded(value.get("tags")) or None,
    }
    return Trace(
        id=trace_id,
        record=record,
        name=root.name or None,
        input=root.input,
        output=root.output,
        split=split_of(metadata.get("ls_example_dataset_split"), metadata.get("split"), loaded(value.get("tags"))),
        scores=_scores(value),
        metadata={key: item for key, item in kept.items() if item is not None},
    )


def _only(value: Any, name: str) -> Any:
    """What a tool was given or gave, where it is the only thing under this name; an empty object is nothing."""
    if isinstance(value, dict) and value.keys() <= {name}:
        return value.get(name)
    return value


def _error(value: Row) -> str | None:
    """The error of a run; a whole traceback may follow it."""
    return words(value.get("error")) or ("error" if value.get("status") == "error" else None)


def _tokens(value: Row) -> Row:
    """Tokens that went in and out."""
    names = {"input": "prompt_tokens", "output": "completion_tokens"}
    return {kind: int(n) for kind, name in names.items() if (n := number(value.get(name))) is not None}


def _scores(value: Row) -> list[Score]:
    """The average of each key of feedback, with the number of raters."""
    found = []
    for name, stats in mapping(loaded(value.get("feedback_stats"))).items():
        average = number(mapping(stats).get("avg"))
        if average is not None:
            n = number(mapping(stats).get("n"))
            found.append(Score(name, average, f"feedback, average of {n:.0f}" if n and n > 1 else "feedback"))
    return found
