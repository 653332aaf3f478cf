"""ShareGPT conversations (``from`` and ``value``), as AgentInstruct, AgentTraj-L and many fine-tuning sets have them.

An action stands in the text of a ``gpt`` turn: as ReAct (``Thought: ... Action: ...``), as tags (``<tool_call>``,
``<function=name>``) or in a turn of its own (``function_call``). The next turn is then what came back. Text without an
action stays a message. Where turns say by ``loss`` which of them were the agent's own work, the others are
instructions: context.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from offrl_core.importers.chat_messages import calls_of
from offrl_core.importers.episode import others
from offrl_core.importers.fields import Gathered, label, mapping, read_arguments, text_of, tools_columns
from offrl_core.importers.messages import Call, Conversation, Message, each_record, gather, parts_of
from offrl_core.importers.openai_chat import prompt_version, reward_of
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.text_calls import results_in, written_calls, written_results

EXAMPLE = b"""\
{"id": "db_1", "reward": 1, "conversations": [{"from": "human", "loss": null, "value": "Answer with SQL."}, \
{"from": "gpt", "loss": false, "value": "Ok."}, \
{"from": "human", "loss": null, "value": "How many users are there?"}, \
{"from": "gpt", "loss": true, "value": "Thought: I count.\\nAction: Operation\\n```sql\\nSELECT count(*) FROM users\\n```"}, \
{"from": "human", "loss": null, "value": "[(7,)]"}, \
{"from": "gpt", "loss": true, "value": "Thought: That is it.\\nAction: Answer\\nFinal Answer: [\\"7\\"]"}]}
"""

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "function_call": "call",
    "tool_call": "call",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "ipython": "tool",
    "function_response": "tool",
    "tool_response": "tool",
}
_READ_FIELDS = frozenset(
    {"conversations", "id", "item_id", "reward", "score", "success", "metadata", "system", "tools"}
)
_FAMILY = re.compile(r"(.*\D)[_-]\d+")  # of "webshop_6" the kind of task
_ACTION = re.compile(r"^[ \t]*(?:Action|Act|ACTION)[ \t]*:[ \t]*(.*)", re.MULTILINE | re.DOTALL)
_NEXT_STEP = re.compile(r"\n\s*(?:Thought|Think|THOUGHT|Observation|Action|Act|ACTION)[ \t]*:")
_THOUGHT = re.compile(r"^\s*(?:Thought|Think|THOUGHT)[ \t]*:[ \t]*")
_BRACKETS = re.compile(r"([\w.-]+)\s*[\[(](.*)[\])]\s*", re.DOTALL)
_INPUT = re.compile(r"([^\n]*?)\s*\n\s*Action Input[ \t]*:[ \t]*(.*)", re.DOTALL)
_FENCE = re.compile(r"([\w.-]+)\s*```(\w*)\n?(.*?)\n?```.*", re.DOTALL)
_NAMED = re.compile(r"([\w.-]+)\s*\n\s*(.+)", re.DOTALL)
_CHOSEN = (
    "Sets of this kind keep the runs that succeeded. Without failures there is nothing to compare an action with: "
    "clone them, or add a log with rewards."
)


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are ShareGPT conversations, 0 to 1, and why."""
    n = sum(bool(_turns(value)) or bool(_parts(value)) for value in values)
    if not n:
        return 0.0, "no record holds conversations with from and value"
    return n / len(values), f"found conversations with from and value in {n} of the first {len(values)} records"


def _turns(value: Any) -> list[Any]:
    """The turns of a record; empty where most of them have no speaker."""
    turns = mapping(value).get("conversations")
    turns = parse_json(turns)[0] if isinstance(turns, str) else turns
    if not isinstance(turns, list):
        return []
    good = sum("value" in mapping(turn) and isinstance(mapping(turn).get("from"), str) for turn in turns)
    return turns if 2 * good >= len(turns) else []


def _parts(value: Any) -> dict[str, list[Any]]:
    """Lists of conversations by the name of their split, where the whole set is one object."""
    if not isinstance(value, dict) or "conversations" in value:
        return {}
    return {key: items for key, items in value.items() if isinstance(items, list) and items and _turns(items[0])}


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read conversations into rows; one row per action, or reply without one."""
    conversations: list[Conversation] = []

    def parse(record: Record, place: Place) -> None:
        turns = _turns(record.value)
        if turns:
            conversations.append(_conversation(turns, record, place))
        else:
            text = "the record holds no conversations with from and value, so it was set aside"
            place.lose(None, "not a conversation", text, record.raw)

    each_record(_one_by_one(records, report), report, parse)
    return gather(conversations, report).done("conversations", without_rewards=_CHOSEN)


def _one_by_one(records: Iterable[Record], report: ImportReport) -> Iterator[Record]:
    """Each conversation as a record of its own, with its split."""
    for record in records:
        parts = _parts(record.value)
        if not any(parts.values()):
            yield record
            continue
        report.accounts.found[record.source] -= 1  # its conversations are counted instead
        for split, items in parts.items():
            values = [{"split": split} | item if isinstance(item, dict) else item for item in items]
            yield from parts_of(record, split, values, report)


def _conversation(turns: list[Any], record: Record, place: Place) -> Conversation:
    """The turns of a record with what it says about all of them."""
    given = mapping(record.value)
    name = label(given.get("id")) or label(given.get("item_id"))
    family = _FAMILY.fullmatch(name or "")
    messages = _messages(turns, record, place)
    if isinstance(given.get("system"), str) and given["system"]:
        messages.insert(0, Message(record, 0, "system", given["system"]))
    return Conversation(
        record,
        messages,
        name=name,
        shared={
            "task": family[1] if family else None,
            "split": label(given.get("split")),
            "prompt_version": prompt_version(messages),
            **tools_columns(given.get("tools")),
        },
        reward=reward_of(given, place),
        metadata=others(given, _READ_FIELDS | {"split"}),
    )


def _messages(turns: list[Any], record: Record, place: Place) -> list[Message]:
    """The messages of a conversation; turns up to the last that isn't the agent's own work are instructions."""
    flagged = any(isinstance(mapping(turn).get("loss"), bool) for turn in turns)
    messages: list[Message] = []
    for index, turn in enumerate(turns):
        found = mapping(turn)
        speaker = found.get("from")
        role = _ROLES.get(speaker.lower(), "context") if isinstance(speaker, str) else ""
        if not role:
            text = "this is no turn (an object with from and value), so it was set aside"
            place.lose(f"conversations[{index}]", "not a message", text, turn)
            continue
        message = _message(role, text_of(found.get("value")), record, index, turns[index + 1 : index + 2])
        if message.role == "assistant" and flagged and found.get("loss") is not True:
            message = Message(record, index, "context", message.text)
            if not any(before.role == "assistant" for before in messages):
                _make_context(messages)
        elif message.role == "user" and messages and messages[-1].role == "assistant" and messages[-1].calls:
            message = Message(record, index, "tool", results=results_in(message.text or ""))
        messages.append(message)
    return messages


def _make_context(messages: Sequence[Message]) -> None:
    """What was said before the agent's first own turn instructs it; the goal comes after."""
    for message in messages:
        if message.role == "user":
            message.role = "context"


def _message(role: str, text: str | None, record: Record, index: int, following: Sequence[Any]) -> Message:
    """One turn; the one after it may show that it acted."""
    if role == "tool":
        return Message(record, index, role, results=results_in(text or ""))
    if role == "call":
        parsed = parse_json(text or "")[0]
        calls = calls_of({"tool_calls": parsed if isinstance(parsed, list) else [parsed or text]})
        return Message(record, index, "assistant", calls=calls)
    if role != "assistant":
        return Message(record, index, role, text)
    thought, calls = _actions_in(text or "", answered=any(map(_is_result, following)))
    return Message(record, index, role, None if calls else text, calls, thought=thought if calls else None)


# -- actions in text -----------------------------------------------------------------------------------------


def _is_result(turn: Any) -> bool:
    """Whether a turn says that it is what came back."""
    speaker, text = mapping(turn).get("from"), text_of(mapping(turn).get("value"))
    return (isinstance(speaker, str) and _ROLES.get(speaker.lower()) == "tool") or bool(written_results(text or "")[0])


def _actions_in(text: str, *, answered: bool) -> tuple[str | None, list[Call]]:
    """What a reply thinks and the calls that it writes into its text; no calls where it only talks."""
    thought, calls = written_calls(text, may_go_on=answered)
    if calls:
        return thought, calls
    match = _ACTION.search(text)
    if not match:
        return None, []
    before = text[: match.start()]
    # A model may write what it expects to follow; only the first action was taken.
    action = _NEXT_STEP.split(match[1], maxsplit=1)[0].strip()
    has_form = any(form.fullmatch(action) for form in (_INPUT, _FENCE, _BRACKETS, _NAMED))
    if before.strip() and not _THOUGHT.match(before) and not has_form:  # "Action:" may head a paragraph of any text
        return None, []
    thought = _THOUGHT.sub("", before).strip()
    return thought or None, [_written_call(action)] if action else []


def _written_call(action: str) -> Call:
    """One action: ``search[x]``, a name and ``Action Input``, a name and code, or words as ALFWorld takes them."""
    if match := _INPUT.fullmatch(action):
        name, value = match.groups()
        parsed = parse_json(value)[0]
        return Call(None, name.strip() or None, read_arguments(value if isinstance(parsed, dict) else {"input": value}))
    if match := _FENCE.fullmatch(action):
        return Call(None, match[1], read_arguments({match[2] or "code": match[3]}))
    if match := _BRACKETS.fullmatch(action):
        return Call(None, match[1], read_arguments({"input": match[2]}))
    if match := _NAMED.fullmatch(action):
        return Call(None, match[1], read_arguments({"input": match[2].strip()}))
    verb, _, rest = action.partition(" ")
    return Call(None, verb, read_arguments({"input": rest.strip()} if rest else {}))
