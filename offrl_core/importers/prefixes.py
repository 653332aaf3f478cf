"""Growing prefixes of one run, put together: logs per call repeat the conversation so far in each record.

Counted as they stand, the first decision of a run of twenty calls would count twenty times. So a record that goes
on where another one ends continues its run, and one that leaves a run in its middle becomes an episode of its own
that begins after the fork (``parent_episode``): each decision is there once.

Runs that only look alike are kept apart: two trials of one task may begin with the same words. A fork therefore
needs a call id that both sides share, or records that are logs of single calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from offrl_core.importers.messages import Conversation, Message
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport
from offrl_core.wording import counted

_TELLING_ID = 12  # characters; shorter ids (call_1) are counters, which repeat between runs


@dataclass(slots=True)
class CallLog:
    """What makes a record the log of one call: the id of the reply, where it has one."""

    reply_id: str | None


@dataclass(slots=True)
class Logged:
    """A conversation of one record, and whether the record logs a single call."""

    conversation: Conversation
    call: CallLog | None = None


@dataclass(slots=True)
class _Run:
    """A run as it grows: its conversation, a key per beginning, and the rewards of the records in it."""

    conversation: Conversation
    keys: list[int]
    replies: set[tuple[int, str | None]] = field(default_factory=set)
    rewards: list[tuple[int, Conversation]] = field(default_factory=list)  # by number of messages
    n_records: int = 1


@dataclass(slots=True)
class _Known:
    """All runs so far, to be found by a beginning: as the whole of a run, or within one."""

    runs: list[_Run] = field(default_factory=list)
    whole: dict[int, list[_Run]] = field(default_factory=dict)
    within: dict[int, _Run] = field(default_factory=dict)
    again: list[Record] = field(default_factory=list)  # logs of a call that was already logged
    copies: list[Record] = field(default_factory=list)  # of a whole run that is already there
    idle: list[Record] = field(default_factory=list)  # records that add no decision of their own

    def add(self, run: _Run, begin: int) -> None:
        """Register a run by all of its beginnings after the given one that hold a decision."""
        self.whole.setdefault(run.keys[-1], []).append(run)
        for position in range(begin, len(run.keys)):
            self.within.setdefault(run.keys[position], run)


def put_together(logged: Sequence[Logged], report: ImportReport) -> list[Conversation]:
    """Runs out of records, in the order of their first records."""
    known = _Known()
    order = {id(item.conversation): position for position, item in enumerate(logged)}
    beginnings = [_beginning(item.conversation.messages) for item in logged]
    n_alike = Counter(beginnings)
    alone: list[Logged] = []
    alike: list[Logged] = []
    for item, key in zip(logged, beginnings, strict=True):
        # Most files hold whole runs: what begins like no other record needs no look at the rest of it.
        (alone if key is None or n_alike[key] == 1 else alike).append(item)
    for item in sorted(alike, key=lambda item: len(item.conversation.messages)):
        _place(item, known)
    for run in known.runs:
        _settle_rewards(run, report)
    report.accounts.idle.update(record.source for record in (*known.again, *known.copies, *known.idle))
    report.notes += _notes(known)
    conversations = [item.conversation for item in alone] + [run.conversation for run in known.runs]
    # A branch names its parent's episode, so parents come first whatever their place in the file.
    return sorted(conversations, key=lambda conversation: (_depth(conversation), order[id(conversation)]))


def _depth(conversation: Conversation) -> int:
    """How many forks lie before a conversation."""
    depth = 0
    while isinstance(conversation.parent, Conversation):
        conversation, depth = conversation.parent, depth + 1
    return depth


def _place(item: Logged, known: _Known) -> None:
    """Give a record to the run that it continues, or make a run of it."""
    conversation = item.conversation
    keys = _keys(conversation.messages)
    if item.call and any((keys[-1], item.call.reply_id) in run.replies for run in known.whole.get(keys[-1], ())):
        known.again.append(item.conversation.record)
        return
    if keys and known.whole.get(keys[-1]) and _share_a_call(conversation.messages):
        known.copies.append(conversation.record)
        return
    first = _first_decision(conversation.messages)
    # From the longest beginning to the shortest: the whole of a run is better than its middle.
    for n in range(len(keys) - 1, first, -1):
        key = keys[n - 1]
        if found := known.whole.get(key):
            _continue(found[0], item, keys, n, known)
            return
        if (run := known.within.get(key)) and (item.call or _share_a_call(conversation.messages[:n])):
            if not any(message.role == "assistant" for message in conversation.messages[n:]):
                known.idle.append(conversation.record)
                return
            conversation.parent, conversation.begin = run.conversation, n
            _start(item, keys, n, known)
            return
    _start(item, keys, first, known)


def _start(item: Logged, keys: list[int], begin: int, known: _Known) -> None:
    """Make a run of a record."""
    run = _Run(item.conversation, keys, rewards=[(len(keys), item.conversation)])
    if item.call:
        run.replies.add((keys[-1], item.call.reply_id))
    known.runs.append(run)
    known.add(run, begin)


def _continue(run: _Run, item: Logged, keys: list[int], n: int, known: _Known) -> None:
    """Let a run grow by what a record has beyond it."""
    longer = item.conversation
    known.whole[run.keys[-1]].remove(run)
    if not any(message.role == "assistant" for message in longer.messages[n:]):
        known.idle.append(longer.record)
    conversation = run.conversation
    conversation.messages = conversation.messages[:n] + longer.messages[n:]
    conversation.name = longer.name or conversation.name
    conversation.shared |= {name: value for name, value in longer.shared.items() if value is not None}
    conversation.metadata = longer.metadata or conversation.metadata
    run.keys = keys
    run.rewards.append((len(keys), longer))
    run.n_records += 1
    if item.call:
        run.replies.add((keys[-1], item.call.reply_id))
    known.add(run, n)


def _settle_rewards(run: _Run, report: ImportReport) -> None:
    """Where several records of a run have a reward, put each at the decision that its record ends with.

    The same number in all of them is the outcome of the run, repeated; it stays on the last step alone.
    """
    rewarded = [(n, conversation.reward) for n, conversation in run.rewards if conversation.reward]
    run.conversation.reward = {}
    if not rewarded:
        return
    if len({reward["reward"] for _, reward in rewarded}) == 1:
        run.conversation.reward = rewarded[-1][1]
        return
    report.notes.append(
        f"{len(rewarded):,} records of one run have rewards of their own: each stands at the step its record ends with."
    )
    for n, reward in rewarded:
        message = next(m for m in reversed(run.conversation.messages[:n]) if m.role == "assistant")
        message.columns = (message.columns or {}) | reward


def _first_decision(messages: Sequence[Message]) -> int:
    """Position of the first reply; behind the end where there is none."""
    return next((i for i, message in enumerate(messages) if message.role == "assistant"), len(messages))


def _beginning(messages: Sequence[Message]) -> int | None:
    """The key of a conversation up to its first decision, which all records of a run share; None where it is empty."""
    return _keys(messages[: _first_decision(messages) + 1])[-1] if messages else None


def _keys(messages: Sequence[Message]) -> list[int]:
    """A key for each beginning of a conversation: equal for equal ones."""
    key = 0
    keys = []
    for message in messages:
        calls = tuple((call.name, call.arguments.text or call.arguments.raw) for call in message.calls)
        results = tuple(result.text for result in message.results)
        # Clients strip blanks and write no text in more than one way when they send a reply back.
        key = hash((key, message.role, (message.text or "").strip(), calls, results))
        keys.append(key)
    return keys


def _share_a_call(messages: Sequence[Message]) -> bool:
    """Whether a call is among the messages whose id can't be a coincidence."""
    return any(call.id and len(call.id) >= _TELLING_ID for message in messages for call in message.calls)


def _notes(known: _Known) -> list[str]:
    """Sentences on what was put together."""
    notes = []
    grown = [run for run in known.runs if run.n_records > 1]
    if grown:
        n = sum(run.n_records for run in grown)
        notes.append(
            f"{n:,} records are growing beginnings of {len(grown):,} "
            f"run{'s' if len(grown) > 1 else ''}: put together, so that each decision is there once."
        )
    if branches := sum(run.conversation.begin > 0 for run in known.runs):
        notes.append(
            f"{branches:,} conversation{'s' if branches > 1 else ''} leave another one after a shared start: episodes of "
            "their own that begin after the fork, with the other one as their parent_episode."
        )
    if known.again:
        notes.append(f"{counted(len(known.again), 'record')} of a call that another record already logs; counted once.")
    if known.copies:
        notes.append(
            f"{counted(len(known.copies), 'conversation')} came again word for word, with the same call ids: a copy of a run, "
            "counted once."
        )
    return notes
