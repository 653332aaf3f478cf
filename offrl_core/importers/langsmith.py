"""Runs of LangSmith (LangChain, LangGraph): one per line, nested under ``child_runs``, or rows of a table with JSON text.

What a program sends comes in batches ``{"post": [...], "patch": [...]}``: a run is posted as it begins, and a patch of
the same id, often in a later batch, completes it. Feedback comes as the average of each key over its raters; raw
feedback is another export.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
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
_BATCH = ("post", "patch")
_ADVICE = "In LangSmith, export runs with their inputs and outputs (all runs of a trace, not only its root)."
_NO_RUN = "an item is no run (an object with id and run_type)"
_NO_POST = (
    "no run has the id of this patch, and the patch doesn't say what kind of run it completes, so it was set aside"
)
_ONLY_PATCH = "no run has the id of this patch; the patch was read as all there is of its run"


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are runs of LangSmith, 0 to 1, and why."""
    return rate_by_form(values, _form, "no record has run_type and dotted_order")


def _form(value: Any) -> str | None:
    """What a record is, in words; None where it is no run."""
    is_batch = _is_batch(value)
    first_run = mapping(next(chain(_runs(value), _patches(value)), None))
    signs = [key for key in ("dotted_order", "parent_run_id", "trace_id", "child_runs") if key in first_run]
    if not signs or not (is_batch or isinstance(first_run.get("run_type"), str)):
        return None
    return f"post or patch and {signs[0]}" if is_batch else f"run_type and {signs[0]}"


def _is_batch(value: Any) -> bool:
    """Whether a record is what a program sends at once."""
    found = mapping(value)
    return any(isinstance(found.get(key), list) for key in _BATCH) and "run_type" not in found


def _runs(value: Any) -> Iterator[Any]:
    """The runs in a record: under ``data``, ``runs`` or ``post``, or the record itself."""
    if _is_batch(value):
        return iter(sequence(value.get("post")))
    runs = mapping(value).get("runs")
    return iter(runs) if isinstance(runs, list) else listed(value)


def _patches(value: Any) -> list[Any]:
    """The patches in a record."""
    return sequence(value.get("patch")) if _is_batch(value) else []


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read runs into rows.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on rewards and on what the export leaves out.
    """
    records = list(_without_empty_batches(records, report))
    return read_spans(records, report, partial(_parse, sent=_sent(records, report)), _ADVICE)


def _without_empty_batches(records: Iterable[Record], report: ImportReport) -> Iterator[Record]:
    """Leave out batches of nothing: they give no step, and nothing of them is lost."""
    for record in records:
        if _is_batch(record.value):
            report.accounts.units[record.source] = "batch"
            if not any(record.value.get(key) for key in _BATCH):
                report.accounts.idle[record.source] += 1
                continue
        yield record


@dataclass(slots=True)
class _Sent:
    """What must be known of all batches before the first is read: a patch may come long after its run, or before it."""

    traces: dict[str, str] = field(default_factory=dict)  # of each run, by its id
    patches: dict[str, list[Row]] = field(default_factory=dict)  # by id of the run, in order

    def completed(self, run: Row) -> Row:
        """A run with what its patches add; their empty values replace nothing."""
        for patch in self.patches.get(label(run.get("id")) or "", ()):
            known = {key: value for key, value in patch.items() if value not in (None, "", {}, [])}
            run = run | known | {"extra": _merged(loaded(run.get("extra")), loaded(patch.get("extra")))}
        return run


def _merged(old: Any, new: Any) -> Any:
    """Two objects as one, also inside; of two values that are none, the new one, if there is one."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: _merged(old.get(key), value) for key, value in new.items()}
    return old if new is None else new


def _sent(records: Iterable[Record], report: ImportReport) -> _Sent:
    """Collect the patches, and the traces of the runs that they may complete."""
    sent = _Sent()
    for record in records:
        for patch in _patches(record.value):
            if identity := label(mapping(patch).get("id")):
                sent.patches.setdefault(identity, []).append(patch)
    if sent.patches:
        for record in records:
            runs = (node for run in _runs(record.value) if _is_run(run) for node in _nodes(run))
            sent.traces |= {node.id: node.trace for node in runs if node.id is not None}
    return sent


def _parse(record: Record, place: Place, sent: _Sent) -> Iterator[Span | Trace]:
    """The runs of one record, with the runs inside them, and what its patches are about."""
    for key in _BATCH if _is_batch(record.value) else ():
        if not isinstance(found := record.value.get(key), list | None):
            place.lose(key, "not a span", f"{key} is no list of runs, so it was set aside", found)
    for value in _runs(record.value):
        if _is_run(value):
            yield from _run(value, record, place, sent)
        elif value is not record.value:
            place.lose(None, "not a span", _NO_RUN, value)
    for patch in _patches(record.value):
        yield from _patched(patch, record, place, sent)


def _patched(patch: Any, record: Record, place: Place, sent: _Sent) -> Iterator[Span | Trace]:
    """What a patch is about: a run that was read with it, or one that it tells alone."""
    identity = label(mapping(patch).get("id"))
    if identity is None:
        place.lose(None, "not a span", _NO_RUN, patch)
    elif identity in sent.traces:
        yield Trace(sent.traces[identity], record)  # the trace rests on this record, too
    elif _is_run(patch):
        place.mend(None, "patch without its run", _ONLY_PATCH, patch)
        sent.traces |= {node.id: node.trace for node in _nodes(patch) if node.id is not None}
        yield from _run(patch, record, place, sent)
    else:
        place.lose(None, "patch without its run", _NO_POST, patch)


def _is_run(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("run_type"), str)


@dataclass(frozen=True, slots=True)
class _Node:
    """A run, and where it stands; ``id`` is None where it has none, and what is inside is then not looked at."""

    value: Row
    id: str | None
    trace: str
    parent: str | None
    path: list[str]  # of times and ids, from the root on


def _nodes(value: Row, trace_id: str | None = None, parent: str | None = None) -> Iterator[_Node]:
    """One run and those inside it; without a ``trace_id`` the outermost run names the trace."""
    identity = label(value.get("id"))
    path = str(value.get("dotted_order") or "").split(".")
    above = path[-2].rpartition("Z")[2] if len(path) > 1 else None
    parent = first(label(value.get("parent_run_id")), above, parent)
    trace_id = first(label(value.get("trace_id")), path[0].rpartition("Z")[2] or None, trace_id, identity)
    yield _Node(value, identity, trace_id, parent, path)
    for child in sequence(loaded(value.get("child_runs"))) if identity is not None else ():
        if isinstance(child, dict):
            yield from _nodes(child, trace_id, identity)


def _run(value: Row, record: Record, place: Place, sent: _Sent) -> Iterator[Span | Trace]:
    """The spans of one run and of those inside it."""
    for node in _nodes(value):
        if node.id is None:
            place.lose("id", "not a span", "a run needs an id, so it was set aside", node.value)
            continue
        run = sent.completed(node.value)
        span = _span(run, node, node.id, record)
        yield span
        if node.parent is None:
            yield _trace(run, node.trace, span, record)


def _span(value: Row, node: _Node, identity: str, record: Record) -> Span:
    """One run as a span."""
    extra = mapping(loaded(value.get("extra")))
    metadata = mapping(extra.get("metadata"))
    parameters = mapping(extra.get("invocation_params"))
    kind = str(value["run_type"])
    inputs, outputs = loaded(value.get("inputs")), loaded(value.get("outputs"))
    is_tool = kind == "tool"
    prompt = label(metadata.get("lc_hub_commit_hash")) or label(metadata.get("prompt_version"))
    return Span(
        trace=node.trace,
        id=identity,
        record=record,
        parent=node.parent,
        kind=_KINDS.get(kind, OTHER),
        label=kind,
        name=words(value.get("name")) or "",
        start=time_ns(first(value.get("start_time"), node.path[-1].partition("Z")[0])),
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
        scores=_scores(value) if node.parent is not None else [],
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
