"""Conversations in the form of OpenAI's chat API, with tool calls, and tau-bench results, which contain them.

A record is a list of messages, ``{"messages": [...]}``, or a tau-bench run ``{"task_id", "reward", "traj"}``.
Each tool call becomes one row, and so does each reply without a call (the action ``message``). The state is a
pointer to the messages before the decision: as copies, they would grow with the square of a conversation.

What the agent never saw (the script of tau-bench's simulated user, the expected actions) stays in the raw
record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from offrl_core.importers.fields import Arguments, Gathered, Row, finite_number, read_arguments, tool_names
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import ImportReport, Place
from offrl_core.schema import canonical_json, short_hash

EXAMPLE = b"""\
{"id": "order", "reward": 1, "tools": [{"type": "function", "function": {"name": "find_order"}}], \
"messages": [{"role": "system", "content": "Help customers of the shop."}, \
{"role": "user", "content": "Where is order 7?"}, \
{"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function", \
"function": {"name": "find_order", "arguments": "{\\"order\\": 7}"}}]}, \
{"role": "tool", "tool_call_id": "call_1", "content": "on its way"}, \
{"role": "assistant", "content": "It is on its way."}]}
{"id": "greeting", "reward": 0, "messages": [{"role": "user", "content": "Hello"}, \
{"role": "assistant", "content": "Good-bye."}]}
"""

_REWARD_FIELDS = ("reward", "score", "success")
_FILE_ENDINGS = frozenset({".gz", ".json", ".jsonl", ".ndjson", ".parquet", ".txt"})
_ERROR_LENGTH = 300


@dataclass(frozen=True, slots=True)
class _Conversation:
    """The messages of one record, the fields around them, and whether tau-bench wrote it."""

    messages: list[Any]
    fields: dict[str, Any]
    is_tau: bool = False


@dataclass(slots=True)
class _Turn:
    """One reply of the model: index and message, the tool results after it, and the user's answer, if any."""

    index: int
    message: dict[str, Any]
    results: list[dict[str, Any]] = field(default_factory=list)
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class _Call:
    """One tool call. ``name`` is None where the log doesn't give a usable one."""

    id: str | None
    name: str | None
    arguments: Arguments


@dataclass(slots=True)
class _Unknown:
    """Counts, over the conversations of a file, of what the log doesn't say."""

    conversations: int = 0
    rewards: int = 0
    endings: int = 0
    tau_endings: int = 0


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are conversations, 0 to 1, and why."""
    forms = Counter(form for value in values if (form := _form(value)))
    if not forms:
        return 0.0, "no record holds messages with roles"
    n = forms.total()
    return n / len(values), f"found {forms.most_common(1)[0][0]} in {n} of the first {len(values)} records"


def _form(value: Any) -> str | None:
    """Which form of a conversation a value has, in words; None where it is something else."""
    if isinstance(value, list):
        return "lists of messages with a role" if value and _mostly_messages(value) else None
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("traj"), list) and ("reward" in value or "task_id" in value):
        return "traj, reward and task_id (tau-bench)"
    messages = value.get("messages")
    if isinstance(messages, str):
        return "messages as JSON text" if messages.lstrip().startswith("[") else None
    if isinstance(messages, list):
        return "messages" if _mostly_messages(messages) else None
    return "single messages with a role" if _is_single_message(value) else None


def _mostly_messages(items: list[Any]) -> bool:
    """Whether most items have a role; an empty conversation is one, too."""
    n = sum(isinstance(item, dict) and isinstance(item.get("role"), str) for item in items)
    return 2 * n >= len(items)


def _is_single_message(value: Any) -> bool:
    """Whether a record is one message of a conversation that is the whole file."""
    return (
        isinstance(value, dict)
        and "messages" not in value
        and isinstance(value.get("role"), str)
        and any(key in value for key in ("content", "tool_calls", "function_call"))
    )


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read conversations into rows; one row per tool call or reply without a call.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on rewards and endings the log doesn't tell.
    """
    gathered = Gathered()
    used_ids: Counter[str] = Counter()
    unknown = _Unknown()
    for record in _join_single_messages(records, report):
        place = report.at(record.source, record.number)
        try:
            conversation = _conversation(record, place)
            rows = _rows(conversation, record.number, used_ids, place) if conversation else []
        except RecursionError:
            place.lose(None, "nested too deep", "the record is nested too deep to be read", record.raw)
            continue
        if conversation and rows:
            _count_unknown(conversation, rows, unknown)
        gathered.add(record, rows)
    report.notes += _notes(unknown)
    return gathered


def _join_single_messages(records: Iterable[Record], report: ImportReport) -> Iterator[Record]:
    """Make one conversation of all records that are single messages: the file itself is their list."""
    single = []
    for record in records:
        if _is_single_message(record.value):
            single.append(record)
        else:
            yield record
    if single:
        report.n_records -= len(single) - 1
        report.notes.append(f"{len(single):,} single messages were read as one conversation.")
        raw = "[" + ",\n".join(record.raw for record in single) + "]"
        yield Record(single[0].number, [record.value for record in single], raw, single[0].source)


def _conversation(record: Record, place: Place) -> _Conversation | None:
    """Find the messages of a record; None (and a problem) where there are none."""
    value = record.value
    if isinstance(value, list):
        return _Conversation(value, {})
    fields = value if isinstance(value, dict) else {}
    is_tau = "traj" in fields
    messages = fields.get("traj") if is_tau else fields.get("messages")
    if isinstance(messages, str):
        messages = parse_json(messages)[0]
    if isinstance(messages, list):
        return _Conversation(messages, fields, is_tau)
    message = "the record holds no list of messages, so it was set aside"
    place.lose(None, "not a conversation", message, record.raw)
    return None


def _episode_id(conversation: _Conversation, number: int, used: Counter[str], place: Place) -> str:
    """Name the episode after task and trial (tau-bench), its id, or its position; a second use gets "#2"."""
    given = conversation.fields
    if conversation.is_tau and _label(given.get("task_id")):
        name = f"task{_label(given.get('task_id'))}"
        name += f"-trial{_label(given.get('trial'))}" if _label(given.get("trial")) else ""
    else:
        name = _label(given.get("id")) or f"conversation-{number}"
    used[name] += 1
    if used[name] == 1:
        return name
    renamed = f"{name}#{used[name]}"
    message = f"the episode {name} was already there; this one is called {renamed}"
    place.mend(None, "episode id used twice", message, name)
    used[renamed] += 1
    return renamed


def _label(value: Any) -> str | None:
    """A name or number that may serve as a label, as text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value) if str(value).strip() else None


def _rows(conversation: _Conversation, number: int, used_ids: Counter[str], place: Place) -> list[Row]:
    """All rows of one conversation, with its reward and its ending on the last one."""
    turns = _turns(conversation.messages, place)
    if not turns:
        message = "the conversation holds no reply of an assistant, so there is no decision to learn from"
        place.lose(None, "no decision", message, conversation.messages)
        return []
    episode_id = _episode_id(conversation, number, used_ids, place)
    goal_at, goal = _first_user_text(conversation.messages)
    shared = {"episode_id": episode_id} | _shared_columns(conversation, place.file)
    rows: list[Row] = []
    for turn in turns:
        state = {
            "user_goal": goal if goal_at < turn.index else None,  # a greeting comes before any goal is known
            "history_length": turn.index,
            "conversation_history": {"record": number, "messages": [0, turn.index]},
        }
        decision = {
            "state": canonical_json(state),
            "decision_id": f"{episode_id}#{turn.index}",
            "message_index": turn.index,
            "terminal": False,
            "timeout": False,
        }
        for call_index, action in enumerate(_actions(turn, place)):
            rows.append(shared | decision | action | {"t": len(rows), "call_index": call_index})
    rows[-1] |= _ending(conversation, turns[-1], rows[-1]) | _reward(conversation, place)
    return rows


def _turns(messages: list[Any], place: Place) -> list[_Turn]:
    """Cut the messages into replies of the model and what followed each; the other messages are context."""
    turns: list[_Turn] = []
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str):
            text = "this is no message (an object with a role), so it was set aside"
            place.lose(f"messages[{index}]", "not a message", text, message)
        elif role == "assistant":
            turns.append(_Turn(index, message))
        elif role in ("tool", "function") and turns:
            turns[-1].results.append(message)
        elif role in ("tool", "function"):
            _orphan(message, place)
        elif role == "user" and turns and turns[-1].answer is None:
            turns[-1].answer = _text(message.get("content"))
    return turns


def _orphan(result: dict[str, Any], place: Place) -> None:
    """Report a tool result that belongs to no call; it stays in the raw record."""
    message = "a tool result belongs to no call of its turn (or to one already answered), so no step shows it"
    place.lose("tool_call_id", "result without a call", message, result)


def _text(content: Any) -> str | None:
    """Content of a message as text; parts that are no text leave a mark like ``[image_url]``."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        return canonical_json(content)
    parts = []
    for part in content:
        if isinstance(part, dict):
            text = part.get("text")
            parts.append(text if isinstance(text, str) else f"[{part.get('type', 'part')}]")
        else:
            parts.append(part if isinstance(part, str) else canonical_json(part))
    return "\n".join(parts)


def _first_user_text(messages: list[Any]) -> tuple[int, str | None]:
    """Index and text of the first message of a user."""
    for index, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return index, _text(message.get("content"))
    return len(messages), None


# -- actions -------------------------------------------------------------------------------------------------


def _actions(turn: _Turn, place: Place) -> list[Row]:
    """The action columns of one reply: one mapping per tool call, or a single one for a plain message."""
    calls = _calls(turn.message)
    results = _pair_results(calls, turn.results, place)
    if not calls:
        return [_message_action(turn)]
    thought = _text(turn.message.get("content")) or None
    rows = []
    for call, result in zip(calls, results, strict=True):
        if call.name is None:
            message = "a tool call has no name; its step is kept as the action 'invalid'"
            place.mend(f"messages[{turn.index}]", "call without a name", message, turn.message)
        rows.append(_call_action(call, result, thought))
    return rows


def _message_action(turn: _Turn) -> Row:
    """A reply without a call; what came back is the user's next message."""
    content = turn.message.get("content")
    text = _text(content if content is not None else turn.message.get("refusal"))
    arguments = Arguments("object", canonical_json({"text": text})) if text else Arguments("empty")
    return {"action": "message", "action_type": "message", "tool_result": turn.answer, **arguments.columns()}


def _call_action(call: _Call, result: dict[str, Any] | None, thought: str | None) -> Row:
    """A tool call with its result, if one was recorded."""
    metadata: dict[str, Any] = {"call_id": call.id, "thought": thought}
    text = error = None
    if result is not None:
        text = _text(result.get("content")) or ""
        error, guessed = _error(result, text)
        metadata["error_guessed"] = guessed or None
    metadata = {key: value for key, value in metadata.items() if value is not None}
    return {
        "action": call.name or "invalid",
        "action_type": "tool_call" if call.name else "invalid",
        "tool": call.name,
        "tool_result": text,
        "error": error,
        "metadata": canonical_json(metadata) if metadata else None,
        **call.arguments.columns(),
    }


def _calls(message: dict[str, Any]) -> list[_Call]:
    """Tool calls of a reply, in the present form or the legacy ``function_call``."""
    legacy = message.get("function_call")
    if legacy is not None:
        return [_call(None, legacy)]
    calls = message.get("tool_calls") or []
    calls = calls if isinstance(calls, list) else [calls]
    return [
        _call(call.get("id"), call.get("function", call)) if isinstance(call, dict) else _call(None, call)
        for call in calls
    ]


def _call(identity: Any, function: Any) -> _Call:
    """One call from its id and ``{"name", "arguments"}``; anything else is kept as a call without a name."""
    if not isinstance(function, dict):
        return _Call(_label(identity), None, read_arguments(function))
    name = function.get("name")
    name = name if isinstance(name, str) and name else None
    return _Call(_label(identity), name, read_arguments(function.get("arguments")))


def _pair_results(
    calls: list[_Call],
    results: list[dict[str, Any]],
    place: Place,
) -> list[dict[str, Any] | None]:
    """Find each call's result in its turn: by id, else by order; ids repeat between turns, so never beyond.

    Order decides only where the call or the result has no id: two ids that differ speak against a pair.
    """
    paired: list[dict[str, Any] | None] = [None] * len(calls)
    without_match = []
    for result in results:
        identity = _label(result.get("tool_call_id"))
        free = (i for i, call in enumerate(calls) if paired[i] is None and identity and call.id == identity)
        if (i := next(free, None)) is None:
            without_match.append(result)
        else:
            paired[i] = result
    for result in without_match:
        has_id = _label(result.get("tool_call_id")) is not None
        free = (i for i, call in enumerate(calls) if paired[i] is None and not (has_id and call.id))
        if (i := next(free, None)) is None:
            _orphan(result, place)
            continue
        paired[i] = result
        if result.get("role") != "function":  # the legacy form has no ids at all, and one call per reply
            message = "a call or its result has no id; they were paired by their order in the turn"
            place.mend("tool_call_id", "result paired by order", message, result)
    return paired


def _error(result: dict[str, Any], text: str) -> tuple[str | None, bool]:
    """Why a call failed, and whether that is a guess: an explicit flag, else a text like that of an error."""
    flag = result.get("error")
    if isinstance(flag, str) and flag:
        return flag[:_ERROR_LENGTH], False
    if flag is True or result.get("is_error") is True or result.get("status") == "error":
        return text[:_ERROR_LENGTH] or "error", False
    if flag is not False and result.get("is_error") is not False and text.startswith(("Error", "Traceback")):
        return text[:_ERROR_LENGTH], True
    return None, False


# -- what holds for a whole conversation ---------------------------------------------------------------------


def _shared_columns(conversation: _Conversation, source: str) -> Row:
    """Columns that are the same on every row of a conversation."""
    given = conversation.fields
    metadata = given.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    task = _label(given.get("task_id")) if conversation.is_tau else None
    prompts = [
        _text(message.get("content")) or ""
        for message in conversation.messages
        if isinstance(message, dict) and message.get("role") in ("system", "developer")
    ]
    tools = given.get("tools") or given.get("functions")
    tools = parse_json(tools)[0] if isinstance(tools, str) else tools
    names = tool_names(tools) or []
    policy = given.get("model") or metadata.get("model") or metadata.get("behavior_policy")
    return {
        "task": f"task {task}" if task else _label(given.get("task")) or _label(given.get("task_id")),
        # A reply without a call is open to the model at every step, so it is among the valid actions.
        "available_tools": [*names, "message"] if names else None,
        "behavior_policy": _label(policy) or (_stem(source) if conversation.is_tau else None),
        "prompt_version": short_hash("\n".join(prompts)) if prompts else None,
        "tool_schema_version": _tools_hash(tools) if names else None,
        "environment_version": "tau-bench" if conversation.is_tau else None,
    }


def _tools_hash(tools: Any) -> str:
    """Hash of the tool definitions that doesn't depend on their order."""
    return short_hash(canonical_json(sorted(map(canonical_json, tools))))


def _stem(source: str) -> str:
    """Name of a file without folders and without endings of storage: "gpt-4.1" of "runs/gpt-4.1.json.gz"."""
    path = PurePath(source)
    while path.suffix.lower() in _FILE_ENDINGS:
        path = path.with_suffix("")
    return path.name


def _reward(conversation: _Conversation, place: Place) -> Row:
    """The reward of the conversation with its parts and its judge; nothing where the log has no number."""
    given = conversation.fields
    key = next((key for key in _REWARD_FIELDS if given.get(key) is not None), None)
    if key is None:
        return {}
    reward = finite_number(given[key])
    if reward is None:
        message = "the reward is no finite number; it is kept as unknown (NULL), not as 0"
        place.mend(key, "reward is not a number", message, given[key])
        return {}
    if not conversation.is_tau:
        return {"reward": reward, "reward_source": f"field {key} of the record"}
    parts = _reward_parts(given.get("info"))
    return {"reward": reward, "reward_source": "verifier (tau-bench)", "reward_components": parts}


def _reward_parts(info: Any) -> str | None:
    """Numbers of tau-bench's ``info.reward_info.info`` as JSON text, without the expected actions beside."""
    for key in ("reward_info", "info"):
        info = info.get(key) if isinstance(info, dict) else None
    if not isinstance(info, dict):
        return None
    parts = {key: number for key, value in info.items() if (number := finite_number(value)) is not None}
    return canonical_json(parts) if parts else None


def _ending(conversation: _Conversation, last_turn: _Turn, last_row: Row) -> Row:
    """Whether the record proves that the task ended: the simulated user stopped, or a human took over."""
    stopped = "###STOP###" in (last_turn.answer or "")
    transferred = last_row.get("tool") == "transfer_to_human_agents"
    if conversation.is_tau and (stopped or transferred):
        return {"terminal": True, "timeout": False}
    return {"terminal": None, "timeout": None}  # the end of a record is no evidence that the task ended


def _count_unknown(conversation: _Conversation, rows: list[Row], unknown: _Unknown) -> None:
    """Count what a conversation leaves open."""
    unknown.conversations += 1
    unknown.rewards += rows[-1].get("reward") is None
    unknown.endings += rows[-1]["terminal"] is None
    unknown.tau_endings += rows[-1]["terminal"] is None and conversation.is_tau


def _notes(unknown: _Unknown) -> list[str]:
    """Sentences on what the log doesn't tell."""
    n = unknown.conversations
    notes = []
    if n and unknown.rewards == n:
        notes.append("This log has no rewards: it can be cloned, but no value can be learned from it.")
    elif unknown.rewards:
        notes.append(f"{unknown.rewards:,} of {n:,} conversations have no reward: unknown there, not 0.")
    if unknown.tau_endings:
        notes.append(
            f"{unknown.tau_endings:,} of {n:,} conversations were neither stopped by the user nor handed to "
            "a human: whether the task ended is unknown there."
        )
    if other := unknown.endings - unknown.tau_endings:
        notes.append(f"The log doesn't say whether the task ended in {other:,} of {n:,} conversations.")
    return notes
