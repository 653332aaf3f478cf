"""From trees of spans to steps: one episode per trace, and one per sub-agent, with rewards and what the log leaves open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from offrl_core.importers.episode import Episode, Runs, add_metadata, looks_failed, message, tool_call
from offrl_core.importers.fields import (
    Arguments,
    Gathered,
    Row,
    finite_number,
    mapping,
    read_arguments,
    sequence,
    tool_names,
    unused_id,
)
from offrl_core.importers.records import parse_json
from offrl_core.importers.report import UNREADABLE, ImportReport, Place, why_unread
from offrl_core.importers.span_decisions import (
    Answer,
    Decision,
    Part,
    answer_of_user,
    call_of,
    find_results,
    parts_of,
)
from offrl_core.importers.span_messages import loaded, messages_in, plain_text, transcribed_user
from offrl_core.importers.span_rewards import Rewards, choose, components, trace_scores, worded
from offrl_core.importers.spans import AGENT, HANDOFF, Parse, Score, Span, Tree, first, trees_of
from offrl_core.schema import canonical_json, short_hash

_GOAL_LENGTH = 1000  # a goal stands on each row of its run; the record holds all of it
_TRACEBACK = "Traceback (most recent call last)"  # what follows it is longer than what went wrong
_WITHOUT_DECISION = (
    "no decision",
    "its trace has no model or tool that did anything, so there is no decision in it",
)
_WITHOUT_REWARDS = (
    "Rewards of traces are scores, feedback or assessments: export them with the traces, or join a file of rewards."
)


@dataclass(slots=True)
class _Reading:
    """What an import has given so far, and counts for its notes."""

    runs: Runs
    rewards: Rewards
    replies: int = 0
    without_reply: int = 0  # replies of which neither a text nor a call was recorded
    split: int = 0
    loose: int = 0
    sub_agents: int = 0
    bare: int = 0  # traces of which only the input and output are known
    scored_spans: int = 0


def read_spans(
    records: Iterable[Any], report: ImportReport, parse: Parse, advice: str, whole: str = "document"
) -> Gathered:
    """Read the traces of an import into rows.

    Args:
        records: records of the files, in order.
        report: gets the problems and notes.
        parse: the dialect: gives the spans and traces of one record.
        advice: how to export what is missing, where the replies of the model weren't recorded.
        whole: what a record is called that holds several spans.
    """
    trees = trees_of(records, report, parse, whole)
    reading = _Reading(Runs(report), choose(trees))
    gathered = reading.runs.gathered
    for tree in trees:
        n_before, why_lost = len(gathered.rows), _WITHOUT_DECISION
        try:
            _read_tree(tree, reading)
        except UNREADABLE as error:
            del gathered.rows[n_before:]
            why_lost = why_unread(error)
        _keep_records(tree, gathered, report, None if len(gathered.rows) > n_before else why_lost)
    report.notes += reading.rewards.notes + _notes(reading, advice)
    return reading.runs.done("traces", "spans", "" if reading.rewards.notes else _WITHOUT_REWARDS)


def _keep_records(tree: Tree, gathered: Gathered, report: ImportReport, why_lost: tuple[str, str] | None) -> None:
    """Keep the raw text of all spans of a trace that gave steps; report each record of one that gave none."""
    for record in tree.records:
        key = (record.source, record.number)
        if why_lost is None:
            gathered.raw[key] = record.raw
        elif key not in gathered.raw:
            report.at(*key).lose(None, *why_lost, record.raw)


# -- episodes ------------------------------------------------------------------------------------------------


def _read_tree(tree: Tree, reading: _Reading) -> None:
    """All rows of one trace: the main run, then the runs of its sub-agents."""
    place = reading.runs.report.at(tree.trace.record.source, tree.trace.record.number)
    parts = parts_of(tree, reading.runs.skipped)
    reading.sub_agents += len(parts) - 1
    names = {part.owner.id if part.owner else "": "" for part in parts}
    for owner in names:
        names[owner] = unused_id(f"{tree.trace.id}/{owner}" if owner else tree.trace.id, reading.runs.used_ids, place)
    for part in parts:
        goal = _goal(part, tree)
        shared: Row = {"task": goal or tree.trace.name or _name_of_root(tree), "split": tree.trace.split}
        if part.owner is not None:
            above = (span.id for span in tree.above(part.owner) if span.id in names)
            shared["parent_episode"] = names[next(above, "")]
        episode = Episode(names[part.owner.id if part.owner else ""], shared)
        _read_part(part, tree, episode, goal, reading)
        for row in _closed(episode, [] if part.owner else trace_scores(tree), reading.rewards):
            reading.runs.gathered.add(row.pop("record"), [row])
        if episode.rows and part.owner is None:
            add_metadata(episode.rows[-1], trace=tree.trace.metadata or None)


def _closed(episode: Episode, scores: list[Score], rewards: Rewards) -> list[Row]:
    """The rows of an episode, with the scores of its trace on the last one."""
    columns = rewards.columns(scores)
    if columns and episode.rows and (own := episode.rows[-1].get("reward_components")):
        both = mapping(parse_json(own)[0]) | mapping(parse_json(columns["reward_components"])[0])
        columns["reward_components"] = canonical_json(both)
    rows = episode.close(**columns)
    if rows:
        add_metadata(rows[-1], scores=worded(scores))
    return rows


def _read_part(part: Part, tree: Tree, episode: Episode, goal: str | None, reading: _Reading) -> None:
    """The steps of one run, in order of time: replies of the model, and tools that no recorded reply asked for."""
    find_results(part, tree)
    position = {span.id: i for i, span in enumerate(tree.spans)}
    in_order: list[tuple[int, Decision | Span]] = [
        (position[decision.span.id], decision) for decision in part.decisions
    ]
    in_order += [(position[span.id], span) for span in part.loose]
    in_order.sort(key=lambda item: item[0])
    reading.loose += len(part.loose)
    context = _Context(part, tree, episode, goal)
    for _, item in in_order:
        if isinstance(item, Span):
            context.add_loose_tool(item)
        else:
            reading.replies += 1
            reading.split += len(item.spans) > 1
            reading.without_reply += item.is_empty or item.tools_from_spans
            is_last = part.owner is None and item is in_order[-1][1]
            context.add(item, _final_text(tree) if item.is_empty and is_last else None, reading.runs.report)
    if not in_order and part.owner is None and (text := _final_text(tree)):
        reading.bare += 1
        context.add_bare(text)
    reading.scored_spans += context.n_scored


def _goal(part: Part, tree: Tree) -> str | None:
    """What an agent was asked first: in messages, in a conversation written as text, or in the input of its run."""
    runs = [part.owner.input] if part.owner else [tree.trace.input, *(root.input for root in tree.roots)]
    inputs = (value for values in (runs, (span.input for span in part.models)) for value in values)
    asked = (item.text for value in inputs for item in messages_in(value) if item.role == "user" and item.text)
    written = (transcribed_user(span.input) for span in part.models)
    return next((text for texts in (asked, written, map(plain_text, runs)) for text in texts if text), None)


def _final_text(tree: Tree) -> str | None:
    """What the trace as a whole gave: the last words of its output."""
    outputs = [tree.trace.output, *(root.output for root in tree.roots[:1])]
    output = first(*outputs)
    if messages := messages_in(output):
        return messages[-1].text if messages[-1].role == "assistant" else None
    value = loaded(output)
    return plain_text(value) or (canonical_json(value) if value not in (None, "", {}, []) else None)


def _name_of_root(tree: Tree) -> str | None:
    return tree.roots[0].name or None if tree.roots else None


def _notes(reading: _Reading, advice: str) -> list[str]:
    """Sentences on what was concluded, and on what the export leaves out."""
    n = reading
    counted = (
        (
            n.without_reply,
            f"{n.without_reply:,} of {n.replies:,} replies of a model were exported without their text and calls: "
            f"the tools that ran stand for them, else an empty message. {advice}",
        ),
        (
            n.split,
            f"{n.split:,} of {n.replies:,} replies were put together from the several spans a library had made of each.",
        ),
        (n.loose, f"{n.loose:,} tools ran without a recorded call of a model; each is a decision of its own."),
        (n.sub_agents, f"{n.sub_agents:,} runs of agents inside a tool are episodes of their own (parent_episode)."),
        (n.bare, f"{n.bare:,} traces show only what went in and came out; each is one message."),
        (
            n.scored_spans,
            f"{n.scored_spans:,} steps have scores of their own: in reward_components, not in the reward.",
        ),
    )
    return [note for count, note in counted if count]


# -- steps ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Context:
    """Adds the steps of one run to its episode."""

    part: Part
    tree: Tree
    episode: Episode
    goal: str | None
    n_scored: int = 0

    def add(self, decision: Decision, final_text: str | None, report: ImportReport) -> None:
        """The steps of one reply: one per call, or a message."""
        place = report.at(decision.span.record.source, decision.span.record.number)
        columns = self._columns(decision.span, decision)
        if decision.is_empty and not final_text and decision.span.error:
            text = "a call of the model failed and gave no reply, so it gives no step"
            place.lose(None, "model call failed", text, decision.span.error)
        elif decision.answers:
            for answer in decision.answers:
                self._add_call(answer, decision, columns, place)
        else:
            self._add_message(decision, final_text, columns)

    def add_loose_tool(self, span: Span) -> None:
        """The step of a tool that no recorded reply asked for."""
        answer = Answer(call_of(span), span)
        loose = Part(None, decisions=[Decision([span], None, [], answers=[answer])])
        find_results(loose, self.tree)
        self._act(_call_row(answer, None) | _rewards_of([span]), self._columns(span, None), span, [span])

    def add_bare(self, text: str) -> None:
        """The only step of a trace of which nothing but the input and output is known."""
        trace = self.tree.trace
        shown = self.tree.roots[0] if self.tree.roots else Span(trace.id, trace.id, trace.record)
        self._act(message(text), self._columns(shown, None), shown, [])

    def _add_message(self, decision: Decision, final_text: str | None, columns: Row) -> None:
        """A reply without a call."""
        row = message(decision.text or final_text, thought=decision.thought)
        row["tool_result"] = answer_of_user(self.part, decision)
        if decision.is_empty and not final_text:
            row |= Arguments("absent").columns()
        self._act(row | _rewards_of(decision.spans), columns, decision.span, decision.spans)

    def _add_call(self, answer: Answer, decision: Decision, columns: Row, place: Place) -> None:
        """One call of a reply; time and cost of the reply stand on the first one, so that sums are right."""
        if answer.by_order:
            text = "a call and its result share no id and no arguments; they were paired by their order in the turn"
            place.mend(None, "result paired by order", text, answer.call.name)
        if answer.call.name is None:
            place.mend(None, "call without a name", "a tool call has no name; its step is kept as the action 'invalid'")
        paid = decision.spans if answer is decision.answers[0] else []
        ran = [answer.span] if answer.span else []
        row = _call_row(answer, decision.thought) | _rewards_of([*paid, *ran])
        self._act(row, columns, decision.span, [*paid, *ran])

    def _act(self, row: Row, columns: Row, span: Span, timed: list[Span]) -> None:
        """Add a step that took the time and cost of these spans."""
        state = columns.pop("state") if "state" in columns else None
        added = self.episode.act(row, span.id, state)
        columns["state"] = state
        added |= {name: value for name, value in columns.items() if name not in ("state", "agent")}
        added["record"] = span.record
        added["latency_ms"] = _sum(item.milliseconds for item in timed)
        added["cost_usd"] = _sum(item.cost for item in timed)
        self.n_scored += "reward_components" in row
        add_metadata(added, agent=columns["agent"], span=span.id, tokens=_tokens(timed))

    def _columns(self, span: Span, decision: Decision | None) -> Row:
        """What holds for all steps of one decision; ``agent`` is for the metadata."""
        agent = self.tree.nearest(span, AGENT)
        seen = decision.seen if decision else []
        name = span.agent or (agent and (agent.agent or agent.name)) or None
        definitions = [item.definition for item in seen if item.role == "definition"]
        tools = first(span.tools, definitions or None, agent.tools if agent else None)
        names = tool_names(tools) or []
        system = [item.text for item in [*seen, *messages_in(span.output)] if item.role == "system" and item.text]
        asked = [item.text for item in seen if item.role == "user" and item.text]
        goal = self.goal if self.goal in asked or not asked else asked[0]
        model = span.model or (decision.model if decision else None)
        return {
            "state": {
                "user_goal": goal[:_GOAL_LENGTH] + "…" if goal and len(goal) > _GOAL_LENGTH else goal,
                "agent": name,
                "history_length": sum(item.role != "definition" for item in seen) or None,
                "conversation_history": {"record": span.record.number, "span": span.id},
            },
            "agent": name,
            "behavior_policy": model or name,
            "temperature": span.temperature,
            # A reply without a call is open to the model at every step, so it is among the valid actions.
            "available_tools": [*names, "message"] if names else None,
            "prompt_version": span.prompt_version or (short_hash("\n".join(system)) if system else None),
            "tool_schema_version": _tools_hash(tools) if names else None,
        }


def _call_row(answer: Answer, thought: str | None) -> Row:
    """Columns of a call with its result; one that a library couldn't parse, or without a name, is invalid."""
    call, span = answer.call, answer.span
    error = (span.error.partition(_TRACEBACK)[0].strip() or span.error if span and span.error else None) or (
        answer.text or "error" if answer.failed else None
    )
    guess = None if error else looks_failed(answer.text)
    row = tool_call(
        call.name,
        read_arguments(call.arguments),
        result=answer.text,
        error=call.invalid or error or guess,
        thought=thought,
        call_id=call.id or (span.call_id if span else None),
        tool_span=span.id if span else None,
        error_guessed=True if guess and not call.invalid else None,
    )
    if call.invalid:
        row |= {"action": "invalid", "action_type": "invalid"}
    elif span is not None and span.kind == HANDOFF:
        row["action_type"] = "handoff"
    return row


def _rewards_of(spans: list[Span]) -> Row:
    """Scores that were given to these spans themselves."""
    found = components([score for span in spans for score in span.scores])
    return {"reward_components": found} if found else {}


def _tools_hash(tools: Any) -> str:
    """Hash of the tool definitions that doesn't depend on their order."""
    return short_hash(canonical_json(sorted(map(canonical_json, sequence(loaded(tools))))))


def _sum(values: Iterable[float | None]) -> float | None:
    """Sum of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return finite_number(sum(known)) if known else None


def _tokens(spans: list[Span]) -> Row | None:
    """Tokens of these spans by kind."""
    totals: Row = {}
    for span in spans:
        for name, value in span.tokens.items():
            totals[name] = totals.get(name, 0) + value
    return totals or None
