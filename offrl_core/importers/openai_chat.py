"""Conversations in the form of OpenAI's APIs: chat messages, logs of single calls, items of the Responses API.

A record is a list of messages, ``{"messages": [...]}``, the log of one call (``{"messages": [...], "response":
{...}}``, as proxies write it), ``{"input": [...], "output": [...]}``, or a run of tau-bench (``traj``). A file
whose records are single messages is one conversation. Calls may also stand as tags in the text of a reply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from offrl_core.importers import tau_bench
from offrl_core.importers.chat_messages import chat_messages, has_anthropic_blocks
from offrl_core.importers.episode import others
from offrl_core.importers.fields import (
    Gathered,
    Row,
    finite_number,
    label,
    mapping,
    rate_by_form,
    stem,
    text_of,
    tools_columns,
)
from offrl_core.importers.messages import Conversation, Message, each_record, gather, join_singles
from offrl_core.importers.prefixes import CallLog, Logged, put_together
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.responses_items import is_item, item_messages
from offrl_core.importers.terminus import take_commands
from offrl_core.importers.text_calls import take_text_calls
from offrl_core.schema import short_hash

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
_MESSAGE_FIELDS = ("traj", "messages", "messages_and_choices", "conversations", "items")
_RESPONSE_FIELDS = ("response", "output")
_SETTINGS = ("kwargs", "model_parameters", "optional_params", "request", "body")  # where logs keep how they called
_READ_FIELDS = frozenset(
    {*_MESSAGE_FIELDS, *_RESPONSE_FIELDS, *_REWARD_FIELDS, *_SETTINGS, "input", "tools", "functions", "id", "task_id"}
    | {"trial", "task", "model", "split", "metadata", "info", "cost", "response_cost", "latency_sec", "latency_ms"}
    | {"system", "instructions"}
)


@dataclass(slots=True)
class _Found:
    """The messages of a record before they are read, and the fields around them."""

    items: list[Any]
    fields: Row = field(default_factory=dict)
    call: CallLog | None = None


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are conversations, 0 to 1, and why."""
    confidence, why, blocks = sniff_roles(values)
    # A single block that only the other API has tells which one the whole file is of; and messages with nothing
    # around them may be those of an agent that writes its commands as text.
    return (confidence / 2 if blocks else 0.95 * confidence if "with a role" in why else confidence), why


def sniff_roles(values: Sequence[Any]) -> tuple[float, str, int]:
    """How sure it is that these values are messages with roles, why, and how many hold blocks of Anthropic's API."""
    confidence, why = rate_by_form(values, _form, "no record holds messages with roles")
    blocks = sum(any(map(has_anthropic_blocks, _items_to_sniff(value))) for value in values)
    return confidence, why, blocks


def _items_to_sniff(value: Any) -> list[Any]:
    """The messages of a record of any form."""
    items = value if isinstance(value, list) else mapping(value).get("messages", [value])
    return items if isinstance(items, list) else []


def _form(value: Any) -> str | None:
    """Which form of a conversation a value has, in words; None where it is something else."""
    if isinstance(value, list):
        return "lists of messages with a role" if value and _mostly_messages(value) else None
    if not isinstance(value, dict) or _is_of_another(value):
        return None
    if tau_bench.is_run(value):
        return "traj, reward and task_id (tau-bench)"
    for form, items in _lists_of(value):
        if isinstance(items, str):
            return f"{form} as JSON text" if items.lstrip().startswith("[") else None
        if isinstance(items, list):
            return form if _mostly_messages(items) else None
    return "single messages with a role" if _is_single(value) else None


def _is_of_another(value: dict[str, Any]) -> bool:
    """Whether a record with messages is one of tau2, Inspect or mini-swe-agent, which say more than these."""
    return "termination_reason" in value or "trajectory_format" in value or {"epoch", "target"} <= value.keys()


def _lists_of(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What may be the messages of a record, with the words for its form."""
    if "messages" in value or "messages_and_choices" in value:
        yield "messages", value.get("messages", value.get("messages_and_choices"))
    elif isinstance(value.get("conversations"), list):
        yield "conversations", value["conversations"]
    elif "session" in value and isinstance(value.get("items"), list):
        yield "session and items (older Codex)", value["items"]
    for key in ("request", "body"):
        inner = mapping(value.get(key))
        if "messages" in inner:
            yield "requests with messages", inner["messages"]
    if "input" in value and isinstance(value.get("output"), list):
        yield "input and output items (Responses API)", value["output"]


def _mostly_messages(items: list[Any]) -> bool:
    """Whether most items have a role or are items of the Responses API; an empty conversation is one, too."""
    n = sum(isinstance(item, dict) and (isinstance(_role(item), str) or is_item(item)) for item in items)
    return 2 * n >= len(items)


def _role(item: dict[str, Any]) -> Any:
    """The role of a message, or of the one inside a choice."""
    return item.get("role", mapping(item.get("message")).get("role"))


def _is_single(value: Any) -> bool:
    """Whether a record is one message of a conversation that is the whole file."""
    if not isinstance(value, dict) or "messages" in value:
        return False
    if is_item(value):
        return True
    return isinstance(value.get("role"), str) and any(
        key in value for key in ("content", "tool_calls", "function_call")
    )


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read conversations into rows; one row per tool call or reply without a call.

    Args:
        records: records of the files, in order.
        report: gets the problems, and notes on rewards and endings the log doesn't tell.
    """
    runs: list[Conversation] = []
    logged: list[Logged] = []

    def parse(record: Record, place: Place) -> None:
        found = _find(record, place)
        record = record.without_value()
        if found and "traj" in found.fields:
            runs.append(_tau_run(found, record, place))
        elif found:
            logged.append(Logged(_conversation(found, record, place), found.call))

    wanted = _without_metadata_rows(join_singles(records, report, _is_single), report)
    each_record(wanted, report, parse)
    # Each run of tau-bench stands for itself, however alike two of them begin.
    gathered = gather([*runs, *put_together(logged, report)], report)
    endings = tau_bench.UNKNOWN_ENDINGS if runs and not logged else ""
    return gathered.done("conversations", unknown_endings=endings)


def _without_metadata_rows(records: Iterable[Record], report: ImportReport) -> Iterator[Record]:
    """Leave out records that only describe their file, and count them."""
    n = 0
    for record in records:
        if isinstance(record.value, dict) and list(record.value) == ["metadata"]:
            n += 1
            report.accounts.found[record.source] -= 1  # it is no conversation
        else:
            yield record
    if n:
        report.notes.append(f"Records that hold only metadata of a file, and give no step: {n:,}.")


def _find(record: Record, place: Place) -> _Found | None:
    """Find the messages of a record; None (and a problem) where there are none."""
    value = record.value
    if isinstance(value, list):
        return _Found(value)
    fields = mapping(value)
    inner = next((mapping(fields[key]) for key in ("request", "body") if "messages" in mapping(fields.get(key))), {})
    items = next((found[key] for found in (fields, inner) for key in _MESSAGE_FIELDS if key in found), None)
    if items is None and isinstance(fields.get("output"), list):  # the Responses API calls them otherwise
        items = fields.get("input", [])
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items
    if isinstance(items, str):
        items = parse_json(items)[0]
    if not isinstance(items, list):
        message = "the record holds no list of messages, so it was set aside"
        place.lose(None, "not a conversation", message, record.raw)
        return None
    reply = _reply(fields)
    call = CallLog(label(mapping(_parsed(fields.get("response"))).get("id"))) if reply else None
    return _Found([*items, *reply], inner | fields, call)


def _reply(fields: Row) -> list[Any]:
    """What the model answered in the log of a call, as messages or items; empty where a record logs no call."""
    response = _parsed(fields.get("response", fields.get("output")))
    if isinstance(response, list):
        return response
    response = mapping(response)
    choices, output = response.get("choices"), response.get("output")
    if isinstance(choices, list):
        # Only the first of several choices was followed; the others stay in the record.
        return [choice["message"] for choice in choices[:1] if "message" in mapping(choice)]
    if isinstance(output, list):
        return output
    return [response] if isinstance(response.get("role"), str) else []


def _parsed(value: Any) -> Any:
    """A value, parsed where it is JSON text."""
    return parse_json(value)[0] if isinstance(value, str) else value


def _messages(found: _Found, record: Record, place: Place) -> list[Message]:
    """The messages of a record, whichever of the two APIs they come from; the logged call's facts on its reply."""
    read_items = item_messages if any(map(is_item, found.items)) else chat_messages
    messages = read_items(found.items, record, place)
    if found.call and messages and messages[-1].role == "assistant":
        messages[-1].columns = _call_columns(found.fields)
    return messages


def _tau_run(found: _Found, record: Record, place: Place) -> Conversation:
    """A run of tau-bench."""
    conversation = _conversation(found, record, place)
    given, shared = found.fields, conversation.shared
    task = label(given.get("task_id"))
    shared["task"] = f"task {task}" if task else shared["task"]
    shared["behavior_policy"] = shared["behavior_policy"] or stem(record.source)
    shared["environment_version"] = "tau-bench"
    conversation.name = tau_bench.run_name(given) or conversation.name
    conversation.end_reason = tau_bench.end_reason(conversation.messages)
    if conversation.reward:
        parts = tau_bench.reward_parts(given.get("info"))
        conversation.reward |= {"reward_source": "verifier (tau-bench)", "reward_components": parts}
    return conversation


def _conversation(found: _Found, record: Record, place: Place) -> Conversation:
    """A conversation with what its record says about all of it."""
    given = found.fields
    messages = _messages(found, record, place)
    tools = tools_columns(given.get("tools") or given.get("functions"))
    take_text_calls(messages, place, has_tools=bool(tools))
    if (label(given.get("agent")) or "").startswith("terminus"):
        take_commands(messages)
    metadata = mapping(given.get("metadata"))
    models = (given.get("model"), metadata.get("model"), metadata.get("behavior_policy"))
    policy = next(filter(None, map(label, models)), None) or label(mapping(_parsed(given.get("response"))).get("model"))
    tried = "trial" in given and "messages" in given  # results of tau-bench that were put into a table
    return Conversation(
        record,
        messages,
        name=tau_bench.run_name(given) if tried else label(given.get("id")) or label(given.get("trial_name")),
        shared={
            "task": label(given.get("task")) or label(given.get("task_id")) or label(metadata.get("task_id")),
            "behavior_policy": policy,
            "prompt_version": prompt_version(messages) or _given_prompt(given),
            "split": label(given.get("split")),
            **tools,
        },
        reward=reward_of(given, place),
        metadata=others(given | metadata, _READ_FIELDS),
    )


# -- what holds for a whole conversation ---------------------------------------------------------------------


def prompt_version(messages: Sequence[Message]) -> str | None:
    """A hash of the system prompt, where there is one."""
    prompts = [message.text or "" for message in messages if message.role == "system"]
    return short_hash("\n".join(prompts)) if prompts else None


def _given_prompt(given: Row) -> str | None:
    """A hash of the system prompt, where it stands beside the messages."""
    prompt = text_of(given.get("system") or given.get("instructions"))
    return short_hash(prompt) if prompt else None


def reward_of(given: Row, place: Place) -> Row:
    """The reward in the fields of a record or in its metadata; nothing where the log has no number."""
    for where, fields in (("record", given), ("metadata", mapping(given.get("metadata")))):
        key = next((key for key in _REWARD_FIELDS if fields.get(key) is not None), None)
        if key is None:
            continue
        reward = finite_number(fields[key])
        if reward is None:
            message = "the reward is no finite number; it is kept as unknown (NULL), not as 0"
            place.mend(key, "reward is not a number", message, fields[key])
            return {}
        return {"reward": reward, "reward_source": f"field {key} of the {where}"}
    return {}


def _call_columns(given: Row) -> Row:
    """What the log of a call says about it: model, temperature, cost and how long it took."""
    response = mapping(_parsed(given.get("response")))
    settings = [given, *(mapping(_parsed(given.get(key))) for key in _SETTINGS)]
    seconds, milliseconds = finite_number(given.get("latency_sec")), finite_number(given.get("latency_ms"))
    cost = next((given[key] for key in ("cost", "response_cost", "cost_usd") if given.get(key) is not None), None)
    columns: Row = {
        "behavior_policy": label(response.get("model")),
        "temperature": next(
            (n for found in settings if (n := finite_number(found.get("temperature"))) is not None), None
        ),
        "cost_usd": finite_number(cost),
        "latency_ms": milliseconds if seconds is None else 1000 * seconds,
    }
    return {name: value for name, value in columns.items() if value is not None}
