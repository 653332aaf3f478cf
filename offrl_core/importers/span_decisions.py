"""What the agent decided in a tree of spans: replies of the model, their calls, and the results of these.

Every helper works on one ``Part``: the spans of one agent's run, without those of the sub-agents below its tools.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from offrl_core.importers.fields import mapping, read_arguments, text_of
from offrl_core.importers.span_messages import Call, Message, loaded, messages_in, plain_text
from offrl_core.importers.spans import AGENT, HANDOFF, JUDGE, MODEL, OTHER, TOOL, Span, Tree
from offrl_core.schema import canonical_json

_BEFORE_NAMES = ("running tool: ", "execute_tool ", "tool.", "tool:")
_OF_TOOL_SERVERS = {"content", "isError", "structuredContent", "_meta"}


@dataclass(slots=True)
class Answer:
    """One call of a reply, and what came back."""

    call: Call
    span: Span | None = None  # of the tool or handoff
    text: str | None = None
    failed: bool = False
    by_order: bool = False


@dataclass(slots=True)
class Decision:
    """One reply of the model; ``spans`` are several where a library split it into them."""

    spans: list[Span]
    lane: str | None  # name of the agent whose decisions follow one another
    seen: list[Message]
    text: str | None = None
    thought: str | None = None
    model: str | None = None
    answers: list[Answer] = field(default_factory=list)
    tools_from_spans: bool = False  # the reply itself wasn't recorded; its calls are the tools that ran

    @property
    def span(self) -> Span:
        """The span that stands for the reply."""
        return self.spans[0]

    @property
    def is_empty(self) -> bool:
        """Whether no text and no call is known."""
        return not self.text and not self.answers


@dataclass(slots=True)
class Part:
    """The spans of one run: that of the whole trace, or of what ran below the tool or handoff ``owner``."""

    owner: Span | None
    models: list[Span] = field(default_factory=list)
    tools: list[Span] = field(default_factory=list)  # and handoffs
    decisions: list[Decision] = field(default_factory=list)
    loose: list[Span] = field(default_factory=list)  # tools that no recorded call asked for


# -- parts ---------------------------------------------------------------------------------------------------


def parts_of(tree: Tree, skipped: Counter[str]) -> list[Part]:
    """Cut a tree into the runs of its agents, the main one first; ``skipped`` counts the spans that are no step."""
    called = {call.name for span in tree.spans if span.kind == MODEL for call in _calls(span) if call.name}
    _find_tools(tree, called)
    parts: dict[str | None, Part] = {None: Part(None)}
    for span in tree.spans:
        if span.kind not in (MODEL, TOOL, HANDOFF):
            skipped[span.label] += 1
        elif tree.nearest(span, JUDGE):
            skipped[f"{span.label} of a judge"] += 1
        else:
            owner = tree.nearest(span, TOOL, HANDOFF)
            part = parts.setdefault(owner.id if owner else None, Part(owner))
            (part.models if span.kind == MODEL else part.tools).append(span)
    kept = []
    for part in parts.values():
        if part.owner is None or part.models:
            kept.append(part)
        else:
            skipped["tool inside a tool"] += len(part.tools)
    for part in kept:
        _decide(part, tree)
    return kept


def _find_tools(tree: Tree, called: set[str]) -> None:
    """Correct the kinds by what the models called: libraries log tools as plain spans, and nodes around tools as tools."""
    known = {tool_name(span.name, called) for span in tree.spans if span.kind == TOOL}
    for span in tree.spans:
        name = tool_name(span.name, called)
        if span.kind == TOOL or (span.kind == OTHER and name in called and name not in known):
            span.kind, span.name = TOOL, name
            if span.call_id is None and (messages := messages_in(span.output)):
                span.call_id = messages[0].call_id
    with_models = {above.id for span in tree.spans if span.kind == MODEL for above in tree.above(span)}
    wrappers = [
        above
        for span in tree.spans
        if span.kind == TOOL and span.name in called
        for above in tree.above(span)
        if above.kind == TOOL and above.name not in called and above.id not in with_models
    ]
    for span in wrappers:
        span.kind = OTHER


def tool_name(name: str, called: Iterable[str]) -> str:
    """Name of the tool in the name of its span: "running tool: add" is "add"."""
    for known in called:
        if name == known or (name.endswith(known) and name[: -len(known)][-1:] in " .:/"):
            return known
    for prefix in _BEFORE_NAMES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return name.removeprefix(prefix)
    return name


# -- replies -------------------------------------------------------------------------------------------------


def _decide(part: Part, tree: Tree) -> None:
    """Find the decisions of a part, and the span and result of each call."""
    for spans in _without_wrappers(part, tree):
        agent = tree.nearest(spans[0], AGENT)
        # By name, as some libraries open a new span of the same agent for each of its turns.
        decision = _read_reply(spans, (agent.agent or agent.name) if agent else None)
        previous = part.decisions[-1] if part.decisions else None
        if previous and _continues(previous, decision, part):
            _append(previous, decision)
        else:
            part.decisions.append(decision)
    _pair_by_id(part)
    _pair_in_windows(part)
    _adopt_loose_tools(part)


def _without_wrappers(part: Part, tree: Tree) -> list[list[Span]]:
    """Model spans, each with those that wrap only it; one that wraps several is no reply but a loop around them."""
    inside: dict[str, set[str]] = defaultdict(set)
    ids = {span.id for span in part.models}
    outer = {above.id for span in part.models for above in tree.above(span) if above.id in ids}
    leaves = [span for span in part.models if span.id not in outer]
    for leaf in leaves:
        for above in tree.above(leaf):
            inside[above.id].add(leaf.id)
    return [
        [leaf, *(above for above in tree.above(leaf) if above.id in ids and len(inside[above.id]) == 1)]
        for leaf in leaves
    ]


def _read_reply(spans: list[Span], lane: str | None) -> Decision:
    """The reply of a model: that of the innermost span which has calls, else of the innermost with a text."""
    inputs = (messages_in(span.input) for span in spans)
    decision = Decision(spans[:1], lane, next((found for found in inputs if found), []))
    for span in spans:
        messages = _reply(span)
        calls = [call for message in messages for call in message.calls]
        text = "\n".join(message.text for message in messages if message.text)
        if not messages and span.output not in (None, {}, []):
            text = plain_text(span.output) or canonical_json(loaded(span.output))
        decision.model = decision.model or next((m.model for m in messages if m.model), None)
        if calls and not decision.answers:
            thoughts = [message.thought for message in messages if message.thought]
            decision.answers = [Answer(call) for call in calls]
            decision.thought, decision.text = "\n".join([*thoughts, text]).strip() or None, None
        elif text and decision.is_empty:
            decision.text = text
            decision.thought = "\n".join(m.thought for m in messages if m.thought) or None
    return decision


def _reply(span: Span) -> list[Message]:
    """The last messages of the model in the output of a span; some libraries repeat the conversation before them."""
    messages = [message for message in messages_in(span.output) if message.role != "system"]
    start = max((i + 1 for i, message in enumerate(messages) if message.role != "assistant"), default=0)
    return messages[start:]


def _calls(span: Span) -> Iterator[Call]:
    """The calls in the reply of a span."""
    return (call for message in _reply(span) for call in message.calls)


def _continues(previous: Decision, decision: Decision, part: Part) -> bool:
    """Whether a span is the rest of the reply before it: a library split the blocks of one reply into spans.

    The sign is an input that was recorded but holds no conversation, right after a reply that has one.
    """
    first, span = previous.span, decision.span
    if not previous.seen or decision.seen or decision.is_empty or not isinstance(loaded(span.input), dict):
        return False
    if (first.parent, first.model) != (span.parent, span.model) or first.parent is None:
        return False
    return not any(_began(first) <= _began(tool) <= _began(span) for tool in part.tools)


def _append(decision: Decision, rest: Decision) -> None:
    """Add the rest of a reply to it; a text beside calls is the thought."""
    decision.spans += rest.spans
    decision.answers += rest.answers
    texts = [decision.thought, decision.text, rest.thought, rest.text]
    joined = "\n".join(text for text in texts if text) or None
    decision.thought, decision.text = (joined, None) if decision.answers else (None, joined)


# -- calls and the spans that answer them --------------------------------------------------------------------


def _pair_by_id(part: Part) -> None:
    """Pair calls with the tools that name them, where an id isn't used twice."""
    answers = [answer for decision in part.decisions for answer in decision.answers]
    calls = Counter(answer.call.id for answer in answers)
    tools = Counter(span.call_id for span in part.tools)
    by_id = {span.call_id: span for span in part.tools if span.call_id and tools[span.call_id] == 1}
    for answer in answers:
        if answer.call.id and calls[answer.call.id] == 1:
            answer.span = by_id.get(answer.call.id)


def _pair_in_windows(part: Part) -> None:
    """Pair the other calls with the tools that began before the agent's next reply: by arguments, else by order."""
    taken = {answer.span.id for decision in part.decisions for answer in decision.answers if answer.span}
    for decision, end in _windows(part):
        free = [span for span in part.tools if span.id not in taken and _is_in(span, decision, end)]
        for exact in (True, False):
            for answer in decision.answers:
                fits = (span for span in free if _fits(span, answer.call, exact=exact))
                if answer.span is None and (found := next(fits, None)):
                    answer.span, answer.by_order = found, not exact and found.kind == TOOL
                    free.remove(found)
                    taken.add(found.id)
    part.loose = [span for span in part.tools if span.id not in taken]


def _windows(part: Part) -> Iterator[tuple[Decision, int | None]]:
    """Each decision, and when the next one of the same agent began."""
    for i, decision in enumerate(part.decisions):
        later = (other for other in part.decisions[i + 1 :] if other.lane == decision.lane)
        following = next(later, None)
        yield decision, _began(following.span) if following else None


def _began(span: Span) -> int:
    """When a span began; spans without a time count as the first."""
    return span.start or 0


def _is_in(span: Span, decision: Decision, end: int | None) -> bool:
    """Whether a tool began between a reply and the next one; both ends count, as clocks are coarse."""
    return _began(decision.span) <= _began(span) and (end is None or _began(span) <= end)


def _fits(span: Span, call: Call, *, exact: bool) -> bool:
    """Whether a tool may be what a call asked for; two ids that differ speak against it."""
    if span.kind == HANDOFF:
        return call.name is not None and _as_name(span.name) in _as_name(call.name)
    if span.name != call.name or (span.call_id and call.id and span.call_id != call.id):
        return False
    if not exact:
        return True
    asked, given = read_arguments(call.arguments).text, loaded(span.input)
    if asked in (read_arguments(span.input).text, read_arguments(mapping(given).get("input")).text):
        return True
    values = mapping(loaded(call.arguments)).values()  # the only argument of a tool may stand alone
    return len(values) == 1 and given in values


def _as_name(name: str) -> str:
    """A name of an agent as it appears in the name of a tool: "Billing Desk" is in "transfer_to_billing_desk"."""
    return name.lower().replace(" ", "_")


def _adopt_loose_tools(part: Part) -> None:
    """Take the tools that ran after a reply that wasn't recorded for the calls of that reply."""
    for decision, end in _windows(part):
        if not decision.is_empty or decision.span.error:
            continue
        for span in [span for span in part.loose if _is_in(span, decision, end)]:
            part.loose.remove(span)
            decision.answers.append(Answer(call_of(span), span))
            decision.tools_from_spans = True


def call_of(span: Span) -> Call:
    """The call that a tool or handoff answers, by its span alone."""
    if span.kind == HANDOFF:
        return Call(f"transfer_to_{_as_name(span.name)}", span.input, span.call_id)
    return Call(span.name or None, span.input, span.call_id)


# -- results -------------------------------------------------------------------------------------------------


def find_results(part: Part, tree: Tree) -> None:
    """Fill in what came back from each call: from its tool, else from what the model, or any span, saw later."""
    answers = [(i, answer) for i, decision in enumerate(part.decisions) for answer in decision.answers]
    ids = Counter(answer.call.id for _, answer in answers)
    for i, answer in answers:
        if answer.span is not None and answer.span.output is not None:
            answer.text, answer.failed = result_of(answer.span.output)
        if answer.text is None:
            result = _result_seen(part, i, answer, unique=ids[answer.call.id] == 1)
            answer.text, answer.failed = (result.text or "", result.failed) if result else (None, False)
    missing = {answer.call.id: answer for _, answer in answers if answer.text is None and ids[answer.call.id] == 1}
    if missing.keys() - {None}:
        _results_anywhere(missing, tree)


def result_of(output: Any) -> tuple[str | None, bool]:
    """Text of what a tool gave, and whether it is flagged as an error."""
    messages = messages_in(output)
    if messages and all(message.role == "tool" for message in messages):
        texts = [message.text or "" for message in messages]
        return "\n".join(texts), any(message.failed for message in messages)
    value = mapping(loaded(output))
    if isinstance(value.get("content"), list) and value.keys() <= _OF_TOOL_SERVERS:
        return text_of(value["content"]), value.get("isError") is True
    return (output if isinstance(output, str) else canonical_json(output)), False


def _result_seen(part: Part, i: int, answer: Answer, *, unique: bool) -> Message | None:
    """The result of a call in what the model saw later: in its very next input, or in any if the id is used once."""
    decision = part.decisions[i]
    later = [other for other in part.decisions[i + 1 :] if other.lane == decision.lane] or part.decisions[i + 1 :]
    for other in later if unique else later[:1]:
        news = _news(other) if not unique else other.seen
        for message in news:
            if message.role == "tool" and answer.call.id and message.call_id == answer.call.id:
                return message
    news = [message for message in _news(later[0]) if message.role == "tool"] if later else []
    if len(news) == len(decision.answers) and not any(message.call_id and answer.call.id for message in news):
        answer.by_order = True
        return news[decision.answers.index(answer)]
    return None


def _news(decision: Decision) -> list[Message]:
    """What the model saw for the first time: the messages after its last reply."""
    start = max((i + 1 for i, message in enumerate(decision.seen) if message.role == "assistant"), default=0)
    return decision.seen[start:]


def answer_of_user(part: Part, decision: Decision) -> str | None:
    """What the user said to a reply, as the agent's next input shows it."""
    at = next(i for i, other in enumerate(part.decisions) if other is decision)
    for other in part.decisions[at + 1 :]:
        if other.lane == decision.lane and any(message.role == "assistant" for message in other.seen):
            return next((message.text for message in _news(other) if message.role == "user"), None)
    return None


def _results_anywhere(missing: dict[str | None, Answer], tree: Tree) -> None:
    """Look for results by id in the inputs and outputs of all other spans, as nodes of a graph have them."""
    for span in tree.spans:
        for value in (span.output, span.input):
            for message in messages_in(value):
                answer = missing.get(message.call_id) if message.role == "tool" and message.call_id else None
                if answer is not None and answer.text is None:
                    answer.text, answer.failed = message.text or "", message.failed
