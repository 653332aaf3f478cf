"""Conversations to rows, whatever program wrote them: the engine behind the dialects of message lists.

A dialect says what each message of its format is (``Message``) and what holds for the whole run (``Conversation``).
The engine cuts the messages into replies of the model, finds each call's result, and makes one row per call or
reply without a call (the action ``message``). The state is a pointer to the messages before the decision: as
copies, they would grow with the square of a conversation.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from offrl_core.importers.episode import Episode, Runs, add_metadata, goal_text, looks_failed, seen_text, tool_call
from offrl_core.importers.episode import message as plain_message
from offrl_core.importers.fields import Arguments, Gathered, Row, stem, unused_id
from offrl_core.importers.records import Record
from offrl_core.importers.report import UNREADABLE, ImportReport, Place

_ONCE = frozenset({"cost_usd", "latency_ms"})  # of a reply as a whole: parallel calls must not count them twice
# A call that the model wrote as text; what stands around it differs too much between models to be read safely.
_TEXT_CALL = re.compile(r"<tool_call>|<function=|<function_calls?>|<invoke |<tool_use>|\[TOOL_CALLS\]|<\|python_tag\|>")


class Call(NamedTuple):
    """One tool call. ``name`` is None where the log doesn't give a usable one."""

    id: str | None
    name: str | None
    arguments: Arguments
    action_type: str | None = None  # where it is no plain tool call: "invalid" or "handoff"
    metadata: Row | None = None


class Result(NamedTuple):
    """What came back from one call."""

    id: str | None
    text: str
    error: str | None = None
    guessed: bool = False  # the error is only a text that reads like one
    name: str | None = None
    ordered: bool = False  # the format has no ids: pairing by order is its rule then, not a repair
    metadata: Row | None = None
    stands_in: int | None = None  # index of its message; the engine fills it in


@dataclass(slots=True)
class Message:
    """One message, in the terms of the engine.

    ``role`` is system, user, assistant or tool; anything else is context, which is neither a goal nor an answer.
    """

    record: Record
    index: int  # position in the record
    role: str
    text: str | None = None
    calls: Sequence[Call] = ()
    results: Sequence[Result] = ()
    thought: str | None = None
    columns: Row | None = None  # of the decision: behavior_policy, latency_ms, cost_usd, ...
    metadata: Row | None = None
    start: int | None = None  # where the reply starts, if before ``index``
    restarts: bool = False  # the model saw nothing before this message (it is a summary of it)


@dataclass(slots=True)
class Conversation:
    """One run: its messages, and what holds for all of it."""

    record: Record
    messages: list[Message]
    name: str | None = None
    shared: Row = field(default_factory=dict)  # columns that are the same on every row
    reward: Row = field(default_factory=dict)  # columns of the last row: reward, reward_source, ...
    end_reason: str | None = None  # None where the log doesn't prove how the run ended
    metadata: Row | None = None  # fields of the record that have no column; kept on the first row
    parent: Conversation | str | None = None  # the run that started this one, or that it branches off from
    begin: int = 0  # messages before this position belong to the parent: they are context, and give no row
    episode_id: str | None = None  # set when the rows are made
    t_after: list[tuple[int, int]] = field(default_factory=list)  # by position of a reply, the t that follows it


@dataclass(slots=True)
class _Turn:
    """One reply of the model: where it stands, the results after it, and the user's answer, if any."""

    position: int
    message: Message
    is_own: bool = True  # not the last reply before a branch
    results: list[Result] = field(default_factory=list)
    paired: list[Result | None] = field(default_factory=list)  # one per call
    answer: str | None = None


@dataclass(slots=True)
class _Names:
    """Which episode ids are taken, and by which file."""

    used: Counter[str]
    owner: dict[str, str] = field(default_factory=dict)

    def claim(self, conversation: Conversation, place: Place) -> str:
        """An id of its own for a run: files may use the same ones, and then their names tell them apart."""
        name = conversation.name or f"conversation-{conversation.record.number}"
        if self.owner.setdefault(name, place.file) != place.file:
            name = f"{stem(place.file)}/{name}"
        claimed = unused_id(name, self.used, place)
        self.owner.setdefault(claimed, place.file)
        return claimed


# -- from records to rows ------------------------------------------------------------------------------------


def each_record(records: Iterable[Record], report: ImportReport, parse: Callable[[Record, Place], None]) -> None:
    """Parse each record on its own: one that can't be read is reported and does not stop the others."""
    for record in records:  # without a context for each: a session has many short lines
        place = report.at(record.source, record.number)
        try:
            parse(record, place)
        except UNREADABLE as error:
            place.lose_unread(error, record.raw)


def gather(conversations: Iterable[Conversation], report: ImportReport) -> Runs:
    """All rows of all conversations; what was read in a way that a reader must know goes to the notes."""
    runs = Runs(report)
    names = _Names(runs.used_ids)
    found: Counter[str] = Counter()
    for conversation in conversations:
        with runs.guarded(conversation.record) as place:
            turns = _turns(conversation, place, found)
            if turns:
                conversation.episode_id = names.claim(conversation, place)
                _add_rows(runs.gathered, conversation, turns, place)
            else:
                message = "the conversation holds no reply of an assistant, so there is no decision to learn from"
                place.lose(None, "no decision", message, conversation.record.raw)
                continue
        conversation.messages = []  # said in the rows and the raw record; what they take is used for the next rows
    report.notes += [sentence.format(n=f"{found[key]:,}") for key, sentence in _NOTES.items() if found[key]]
    return runs


_NOTES = {
    "text calls": "{n} replies hold what looks like a tool call written as text; they were read as plain messages.",
    "calls in text": "{n} calls stand in the text of a reply, where they have no id: results were paired with them by order.",
    "thoughts": "{n} replies stood directly before a call without words: each was read as the thought of that call.",
    "observations": "{n} results stand before any call: the agent saw them first, but they are no step's result.",
}


def join_singles(
    records: Iterable[Record],
    report: ImportReport,
    is_single: Callable[[Any], bool],
) -> Iterator[Record]:
    """Make one conversation of all records of a file that are single messages: the file itself is their list."""
    singles: dict[str, list[Record]] = {}
    for record in records:
        if is_single(record.value):
            singles.setdefault(record.source, []).append(record)
        else:
            yield record
    for single in singles.values():
        report.accounts.units[single[0].source] = "message"
        report.notes.append(f"{len(single):,} single messages were read as one conversation.")
        yield joined(single, report)


def parts_of(record: Record, name: str, values: Sequence[Any], report: ImportReport) -> Iterator[Record]:
    """A record for each item of a list in it, where one document holds many runs: its parts count as a file."""
    place = f"{record.source}/{name}" if record.number == 1 else f"{record.source}/{record.number}/{name}"
    report.accounts.found[place] += len(values)
    report.accounts.parts[place] = report.accounts.parts.get(record.source, record.source)
    for number, value in enumerate(values, 1):
        yield Record(number, value, json.dumps(value, ensure_ascii=False), place)


def joined(records: Sequence[Record], report: ImportReport) -> Record:
    """One record for several: a list of their values, so that a run keeps its whole evidence in one place."""
    report.accounts.group([(record.source, record.number) for record in records])
    raw = "[" + ",\n".join(record.raw for record in records) + "]"
    return Record(records[0].number, [record.value for record in records], raw, records[0].source)


def failure(text: str, flag: Any = None, explanation: Any = None) -> tuple[str | None, bool]:
    """Why a call failed, and whether that is a guess.

    Args:
        text: what came back.
        flag: whether the log says that the call failed; None where it doesn't say.
        explanation: why, where the log gives that apart from the result.
    """
    if isinstance(explanation, str) and explanation:
        return explanation, False
    if flag is True:
        return text or "error", False
    guess = None if flag is False else looks_failed(text)
    return guess, guess is not None


# -- turns ---------------------------------------------------------------------------------------------------


def _turns(conversation: Conversation, place: Place, found: Counter[str]) -> list[_Turn]:
    """Cut the messages into replies of the model and what followed each; the other messages are context."""
    turns: list[_Turn] = []
    messages, begin = conversation.messages, conversation.begin
    # A branch may begin with the results of the last reply before it; that one is paired, too, and gives no row.
    before = next((i for i in range(begin - 1, -1, -1) if messages[i].role == "assistant"), begin)
    if before < begin:
        turns.append(_Turn(before, messages[before], is_own=False))
        known = {call.id for call in messages[before].calls}  # what doesn't fit was reported for the parent
        turns[0].results = [
            result for i in range(before, begin) for result in messages[i].results if result.id in known
        ]
    for position in range(begin, len(messages)):
        message = messages[position]
        if message.role == "assistant":
            _take_reply(turns, position, message, found)
        results = [result._replace(stands_in=message.index) for result in message.results]
        if turns:
            turns[-1].results += results
        else:
            _before_any_reply(results, place, found)
        if message.role == "user" and turns and turns[-1].answer is None:
            turns[-1].answer = message.text
    _pair(turns, place)
    return [turn for turn in turns if turn.is_own]


def _take_reply(turns: list[_Turn], position: int, message: Message, found: Counter[str]) -> None:
    """Add a reply; words that stand alone directly before a call without words are that call's thought."""
    previous = turns[-1] if turns else None
    if (message.metadata or {}).get("call_found_in_text"):
        found["calls in text"] += len(message.calls)
    if not message.calls and message.text and _TEXT_CALL.search(message.text):
        found["text calls"] += 1
    elif (
        message.calls
        and not message.text
        and previous
        and previous.position == position - 1
        and previous.is_own
        and not (previous.message.calls or message.thought)
        and _actor(previous.message) == _actor(message)
    ):
        before = turns.pop().message
        start = before.index if before.record is message.record else None
        message = replace(message, text=before.text, thought=before.thought, start=start)
        found["thoughts"] += 1
    turns.append(_Turn(position, message))


def _actor(message: Message) -> Any:
    """Who wrote a reply, where the log tells several agents apart."""
    return (message.columns or {}).get("behavior_policy")


def _before_any_reply(results: Sequence[Result], place: Place, found: Counter[str]) -> None:
    """What came back before the first reply: an observation to start with, or the answer to a call that is missing."""
    for result in results:
        if result.id is None:
            found["observations"] += 1
        else:
            _orphan(result, place)


def _orphan(result: Result, place: Place) -> None:
    """Report a tool result that belongs to no call; it stays in the raw record."""
    message = "a tool result belongs to no call of its turn (or to one already answered), so no step shows it"
    place.item(result.stands_in).lose("tool_call_id", "result without a call", message, result.text)


def _pair(turns: list[_Turn], place: Place) -> None:
    """Find each call's result in its turn: by id, else by order; beyond its turn only by an id used once."""
    late = []
    for turn in turns:
        turn.paired = [None] * len(turn.message.calls)
        without_match = [result for result in turn.results if not _pair_by_id(turn, result)]
        late += [result for result in without_match if not _pair_by_order(turn, result, place)]
    if not late:
        return
    ids = Counter(call.id for turn in turns for call in turn.message.calls)
    for result in late:
        once = result.id is not None and ids[result.id] == 1
        if not (once and any(_pair_by_id(turn, result) for turn in turns)):
            _orphan(result, place)


def _pair_by_id(turn: _Turn, result: Result) -> bool:
    """Give a result to the first unanswered call of the turn that has its id, if there is one."""
    if result.id is not None:
        for i, call in enumerate(turn.message.calls):
            if call.id == result.id and turn.paired[i] is None:
                turn.paired[i] = result
                return True
    return False


def _pair_by_order(turn: _Turn, result: Result, place: Place) -> bool:
    """Give a result to the first unanswered call of the turn, one of its name if possible.

    Order decides only where the call or the result has no id: two ids that differ speak against a pair.
    """
    calls = turn.message.calls
    free = [i for i, call in enumerate(calls) if turn.paired[i] is None and not (result.id and call.id)]
    if not free:
        return False
    turn.paired[next((i for i in free if result.name and calls[i].name == result.name), free[0])] = result
    if not result.ordered:
        message = "a call or its result has no id; they were paired by their order in the turn"
        place.item(result.stands_in).mend("tool_call_id", "result paired by order", message, result.text)
    return True


# -- rows ----------------------------------------------------------------------------------------------------


def _add_rows(gathered: Gathered, conversation: Conversation, turns: Sequence[_Turn], place: Place) -> None:
    """Keep all rows of one conversation; reward and ending stand on the last one."""
    parent = conversation.parent
    parent_id = parent.episode_id if isinstance(parent, Conversation) else parent
    episode = Episode(conversation.episode_id or "", conversation.shared | {"parent_episode": parent_id})
    goal_at, goal = _goal(conversation.messages)
    restarts = [i for i, message in enumerate(conversation.messages) if message.restarts]
    offset = _t_at_fork(conversation)
    read: list[tuple[Record, list[Row]]] = []  # kept once all could be read
    for turn in turns:
        message = turn.message
        upto = message.index if message.start is None else message.start
        first = 0
        if begins := [i for i in restarts if i < turn.position]:
            first = conversation.messages[begins[-1]].index
        # A greeting comes before any goal is known.
        state = seen_text(
            goal if goal_at < turn.position else goal_text(None), message.record.number, "messages", first, upto
        )
        n_before = len(episode.rows)
        for action in _actions(turn, place):
            action["state"], action["message_index"] = state, message.index
            row = episode.act(action, message.index)
            row["t"] += offset
        read.append((message.record, episode.rows[n_before:]))
        conversation.t_after.append((turn.position, offset + len(episode.rows)))
    if conversation.metadata:
        add_metadata(episode.rows[0], fields=conversation.metadata)
    episode.close(conversation.end_reason, **conversation.reward)
    for record, rows in read:
        gathered.add(record, rows)


def _t_at_fork(conversation: Conversation) -> int:
    """The t at which a branch goes on: that of its parent where it leaves it."""
    parent = conversation.parent
    if not isinstance(parent, Conversation) or not conversation.begin:
        return 0
    at = bisect_left(parent.t_after, (conversation.begin,)) - 1
    return parent.t_after[at][1] if at >= 0 else _t_at_fork(parent)


def _goal(messages: Sequence[Message]) -> tuple[int, str]:
    """Position of the first message in which a user says something, and that as a goal in JSON."""
    for position, message in enumerate(messages):
        if message.role == "user" and message.text is not None:
            return position, goal_text(message.text)
    return len(messages), goal_text(None)


def _actions(turn: _Turn, place: Place) -> Iterator[Row]:
    """The action columns of one reply: one mapping per tool call, or a single one for a plain message."""
    reply = turn.message
    columns = reply.columns or {}
    if not reply.calls:
        answer = plain_message(reply.text, result=turn.answer, thought=reply.thought, **reply.metadata or {})
        yield answer | columns
        return
    thought = "\n\n".join(filter(None, (reply.thought, reply.text))) or None
    last = len(reply.calls) - 1
    for i, (call, result) in enumerate(zip(reply.calls, turn.paired, strict=True)):
        if call.name is None:
            text = "a tool call has no name; its step is kept as the action 'invalid'"
            place.mend(
                f"messages[{reply.index}]", "call without a name", text, call.arguments.text or call.arguments.raw
            )
        row = _call_row(call, result, thought, reply.metadata)
        for name, value in columns.items():
            if _bears(name, i, last):
                row[name] = value
        yield row


def _bears(name: str, i: int, last: int) -> bool:
    """Whether call ``i`` of a reply bears a column of it: the first its cost, the last its reward, all the others."""
    if name in _ONCE:
        return i == 0
    return i == last or not name.startswith("reward")


def _call_row(call: Call, result: Result | None, thought: str | None, metadata: Row | None) -> Row:
    """A tool call with its result, if one was recorded."""
    said = {"call_id": call.id, "thought": thought, **(metadata or {}), **(call.metadata or {})}
    text = error = None
    if result is not None:
        text, error = result.text, result.error
        said |= {"error_guessed": result.guessed or None, **(result.metadata or {})}
    row = tool_call(call.name, call.arguments, result=text, error=error, **said)
    if call.action_type:
        row["action_type"] = call.action_type
        row["action"] = "invalid" if call.action_type == "invalid" else row["action"]
    return row
