"""Trees of spans, as tracing libraries export them: one form for all, grouped to traces, put in order.

A dialect turns its records into ``Trace`` and ``Span``; what an agent decided in them is found by ``span_steps``. Spans
may come in any order and any file, children before their parents, parents may be missing, and clocks may disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from offrl_core.importers.fields import Row, finite_number, sequence
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import UNREADABLE, ImportReport, Place
from offrl_core.wording import counted

MODEL, TOOL, AGENT, HANDOFF, JUDGE, OTHER = "model", "tool", "agent", "handoff", "judge", "other"
_TOO_MANY_DIGITS = re.compile(r"(\.\d{6})\d+")  # of a second; Python's clock ends at microseconds


@dataclass(frozen=True, slots=True)
class Score:
    """One judgement of a trace or span; ``value`` is as logged, so it may be text."""

    name: str
    value: Any
    source: str  # who judged


@dataclass(slots=True)
class Span:
    """One span. ``kind`` is one of the six above; ``label`` is what the format calls it."""

    trace: str
    id: str
    record: Record
    parent: str | None = None
    kind: str = OTHER
    label: str = "span"
    name: str = ""
    start: int | None = None  # nanoseconds since 1970
    end: int | None = None
    input: Any = None
    output: Any = None
    error: str | None = None
    model: str | None = None
    temperature: float | None = None
    cost: float | None = None
    tokens: Row = field(default_factory=dict)  # input and output
    agent: str | None = None
    call_id: str | None = None  # of a tool: the call it answers
    tools: Any = None  # definitions or names
    prompt_version: str | None = None
    scores: list[Score] = field(default_factory=list)

    @property
    def has_content(self) -> bool:
        """Whether what went in or came out was recorded."""
        return self.input is not None or self.output is not None

    @property
    def milliseconds(self) -> float | None:
        """How long it took."""
        return (
            None if self.start is None or self.end is None or self.end < self.start else (self.end - self.start) / 1e6
        )


@dataclass(slots=True)
class Trace:
    """What a format says about a whole trace."""

    id: str
    record: Record
    name: str | None = None
    input: Any = None
    output: Any = None
    split: str | None = None
    scores: list[Score] = field(default_factory=list)
    metadata: Row = field(default_factory=dict)


@dataclass(slots=True)
class Tree:
    """The spans of one trace in order of time, who stands above whom, and all records that told of them."""

    trace: Trace
    spans: list[Span]
    records: list[Record]
    parents: dict[str, Span] = field(default_factory=dict)  # by id of the child

    def above(self, span: Span) -> Iterator[Span]:
        """The ancestors of a span, nearest first; a circle ends where it closes."""
        seen = {span.id}
        while (parent := self.parents.get(span.id)) is not None and parent.id not in seen:
            seen.add(parent.id)
            yield parent
            span = parent

    def nearest(self, span: Span, *kinds: str) -> Span | None:
        """The nearest ancestor of one of these kinds."""
        return next((other for other in self.above(span) if other.kind in kinds), None)

    @property
    def roots(self) -> list[Span]:
        """Spans without a (known) parent."""
        return [span for span in self.spans if span.id not in self.parents]


Parse = Callable[[Record, Place], Iterable[Span | Trace]]


def trees_of(records: Iterable[Record], report: ImportReport, parse: Parse, whole: str = "document") -> list[Tree]:
    """Group the spans of all records to traces, in the order in which these first appear.

    Args:
        records: records of the files, in order.
        report: gets the records that hold no span, and spans that came twice.
        parse: gives the spans and traces of one record.
        whole: what a record is called that holds several spans.
    """
    traces: dict[str, Trace] = {}
    spans: dict[str, dict[str, Span]] = {}
    sources: dict[str, dict[tuple[str, int], Record]] = {}
    n_twice = 0
    for record in records:
        place = report.at(record.source, record.number)
        n_lost = report.n_lost
        try:
            found = list(parse(record, place))
        except UNREADABLE as error:
            place.lose_unread(error, record.raw)
            continue
        if not found and report.n_lost == n_lost:  # the dialect may have said why
            message = "the record holds no span or trace that can be read, so it was set aside"
            place.lose(None, "not a span", message, record.raw)
        if sum(isinstance(item, Span) for item in found) > 1:
            report.accounts.units.setdefault(record.source, whole)  # unless the dialect has a word of its own
        for item in found:
            name = item.id if isinstance(item, Trace) else item.trace
            of_trace = spans.setdefault(name, {})
            sources.setdefault(name, {})[record.source, record.number] = record
            if isinstance(item, Trace):
                traces[name] = _joined(traces.get(name), item)
                continue
            n_twice += item.id in of_trace
            if item.id not in of_trace or item.has_content:  # an export may hold a stub and the full span
                of_trace[item.id] = item
    if n_twice:
        message = f"{counted(n_twice, 'span')} came more than once (with the same id); the fullest is kept"
        report.at(report.source).mend(None, "span twice", message)
    return [
        _tree(traces.get(name), list(found.values()), list(sources[name].values()), name)
        for name, found in spans.items()
    ]


def _joined(first: Trace | None, second: Trace) -> Trace:
    """One trace of two that name the same: what the later one doesn't say stays."""
    if first is not None:
        second.name, second.split = second.name or first.name, second.split or first.split
        second.input = first.input if second.input is None else second.input
        second.output = first.output if second.output is None else second.output
        second.scores = second.scores or first.scores
        second.metadata = first.metadata | second.metadata
    return second


def _tree(trace: Trace | None, spans: list[Span], records: list[Record], name: str) -> Tree:
    """Order spans by time, then a parent before its children, then as in the file."""
    by_id = {span.id: span for span in spans}
    tree = Tree(trace or Trace(name, records[0]), spans, records)
    tree.parents = {
        span.id: by_id[span.parent] for span in spans if span.parent in by_id and span.parent not in (None, span.id)
    }
    keys = {span.id: _time_and_depth(span, tree) for span in spans}
    tree.spans = sorted(spans, key=lambda span: keys[span.id])
    return tree


def _time_and_depth(span: Span, tree: Tree) -> tuple[int, int]:
    """When a span began, or its nearest ancestor that says so, and how deep it stands."""
    line = [span, *tree.above(span)]
    return next((item.start for item in line if item.start is not None), 0), len(line)


# -- values that dialects share ------------------------------------------------------------------------------


def time_ns(value: Any) -> int | None:
    """A moment in nanoseconds since 1970: ISO text, a number of s, ms, us or ns by its size, or ``[s, ns]``."""
    if isinstance(value, datetime):
        return _of_datetime(value)
    if isinstance(value, list) and len(value) == 2 and all(type(item) is int for item in value):
        return int(value[0] * 10**9 + value[1])
    if isinstance(value, str):
        text = value.strip()
        if not re.fullmatch(r"[+-]?\d{1,25}(\.\d{1,25})?", text):
            return _of_text(text)
        value = int(text) if text.lstrip("+-").isdigit() else float(text)
    if isinstance(value, bool) or finite_number(value) is None or abs(value) >= 2**63:
        return None
    for limit, factor in ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3)):
        if abs(value) < limit:
            return int(value * factor)
    return int(value)


def _of_text(text: str) -> int | None:
    """A moment of ISO text; without a zone it is UTC."""
    try:
        return _of_datetime(datetime.fromisoformat(_TOO_MANY_DIGITS.sub(r"\1", text)))
    except (ValueError, OverflowError):
        return None


def _of_datetime(moment: datetime) -> int | None:
    """A moment in whole microseconds, as nanoseconds."""
    try:
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (delta.days * 86_400 + delta.seconds) * 10**9 + delta.microseconds * 1000


def number(value: Any) -> float | None:
    """A finite number, also as text; None where it is none."""
    if isinstance(value, str):
        value = parse_json(value)[0] if len(value) < 50 else None
    return None if isinstance(value, bool) else finite_number(value)


def words(value: Any) -> str | None:
    """The value where it is text that isn't empty."""
    return value if isinstance(value, str) and value.strip() else None


def first(*values: Any) -> Any:
    """The first value that isn't None."""
    return next((value for value in values if value is not None), None)


def listed(value: Any) -> Iterator[Any]:
    """The records that a value holds: those under ``data`` (a page of an API), or it alone."""
    items = value.get("data") if isinstance(value, dict) else None
    return chain.from_iterable([sequence(items)] if isinstance(items, list) else [[value]])


def split_of(*values: Any) -> str | None:
    """A split that a trace names, in a field or among its tags."""
    names = [item for value in values for item in (value if isinstance(value, list) else [value])]
    known = ("train", "test", "validation", "val", "dev")
    return next((name for name in names if isinstance(name, str) and name.lower() in known), None)
