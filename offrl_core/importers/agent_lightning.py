"""Rollouts of Agent Lightning: its events (version 1), and its triplets of prompt, response and reward.

Events are ``{"event_type", "rollout_id", "attempt_id", "data"}``. The requests to the model of one attempt repeat the
conversation so far, so they are put together into one episode. A rollout that was tried again counts with its last
attempt. A reward stands at the reply before it; ``source: fallback`` marks one that was filled in, and is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from offrl_core.importers.chat_messages import chat_messages
from offrl_core.importers.episode import Episode, Runs, message
from offrl_core.importers.fields import (
    Arguments,
    Gathered,
    Row,
    finite_number,
    label,
    mapping,
    rate_by_form,
    sequence,
    text_of,
    tools_columns,
    unused_id,
)
from offrl_core.importers.messages import Conversation, Message, gather
from offrl_core.importers.prefixes import CallLog, Logged, put_together
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import ImportReport, Place
from offrl_core.schema import canonical_json, short_hash

EXAMPLE = b"""\
{"event_type": "model_request", "rollout_id": "ro-1", "attempt_id": "0", "timestamp": 1.0, "data": {"model": "m", \
"latency_ms": 120.5, "request": {"messages": [{"role": "user", "content": "Where is order 7?"}], "temperature": 0.5}, \
"response": {"id": "r-1", "choices": [{"message": {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", \
"type": "function", "function": {"name": "find_order", "arguments": "{\\"order\\": 7}"}}]}}]}}}
{"event_type": "model_request", "rollout_id": "ro-1", "attempt_id": "0", "timestamp": 2.0, "data": {"model": "m", \
"latency_ms": 80.0, "request": {"messages": [{"role": "user", "content": "Where is order 7?"}, \
{"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function", "function": \
{"name": "find_order", "arguments": "{\\"order\\": 7}"}}]}, \
{"role": "tool", "tool_call_id": "call_1", "content": "on its way"}], "temperature": 0.5}, \
"response": {"id": "r-2", "choices": [{"message": {"role": "assistant", "content": "It is on its way."}}]}}}
{"event_type": "reward", "rollout_id": "ro-1", "attempt_id": "0", "timestamp": 3.0, "data": {"value": 1.0, "source": "agent"}}
"""


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are rollouts of Agent Lightning, 0 to 1, and why."""
    return rate_by_form(values, _form, "no record belongs to a rollout")


def _form(value: Any) -> str | None:
    """Which form a value has, in words; None where it is something else."""
    if not isinstance(value, dict) or "rollout_id" not in value:
        return None
    if isinstance(value.get("event_type"), str):
        return "event_type and rollout_id"
    if isinstance(value.get("triplets"), list):
        return "rollout_id and triplets"
    return "rollout_id, prompt and response" if "prompt" in value and "response" in value else None


# -- reading -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Attempt:
    """One attempt at a rollout: its requests to the model with their conversations, and all its other events."""

    requests: list[Record] = field(default_factory=list)
    logged: list[Logged] = field(default_factory=list)
    others: list[Record] = field(default_factory=list)


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read rollouts into rows: one per call or reply of an attempt, or one per triplet."""
    attempts: dict[str, dict[str, _Attempt]] = {}
    triplets: list[Record] = []
    reader = Runs(report)
    for record in records:
        with reader.guarded(record) as place:
            form = _form(record.value)
            if form is None:
                place.lose(None, "not a rollout", "the record belongs to no rollout, so it was set aside", record.raw)
            elif "event_type" not in record.value:
                triplets.append(record)
            else:
                rollout = attempts.setdefault(label(record.value["rollout_id"]) or "rollout", {})
                _take(
                    record, rollout.setdefault(label(record.value.get("attempt_id")) or "0", _Attempt()), reader, place
                )
    for rollout_id, tried in attempts.items():
        _set_earlier_aside(rollout_id, list(tried.values())[:-1], report)
    last = [list(tried.values())[-1] for tried in attempts.values()]
    # Two rollouts of one task begin alike; each is put together by itself, so they stay apart.
    runs = gather([found for attempt in last for found in put_together(attempt.logged, report)], report)
    runs.skipped = reader.skipped
    for attempt in last:
        for record in attempt.others:
            if attempt.requests:
                runs.gathered.raw[record.source, record.number] = record.raw
            else:
                text = "the rollout holds no reply of the model, so there is no decision to learn from"
                report.at(record.source, record.number).lose(None, "no decision", text, record.raw)
    _read_triplets(triplets, runs)
    return runs.done("rollouts", "events")


def _set_earlier_aside(rollout_id: str, earlier: Sequence[_Attempt], report: ImportReport) -> None:
    """Report the attempts of a rollout that was tried again."""
    for attempt in earlier:
        for record in [*attempt.requests, *attempt.others]:
            text = (
                f"this belongs to an attempt of rollout {rollout_id} that was followed by another: only the last counts"
            )
            report.at(record.source, record.number).lose("attempt_id", "earlier attempt", text, record.raw)
    if earlier:
        report.notes.append(
            f"Rollout {rollout_id} was tried {len(earlier) + 1:,} times; its last attempt is the episode."
        )


# -- events --------------------------------------------------------------------------------------------------


def _take(record: Record, attempt: _Attempt, reader: Runs, place: Place) -> None:
    """Take one event of an attempt."""
    kind, data = record.value["event_type"], mapping(record.value.get("data"))
    if kind == "model_request" and not _reply(data):
        text = "the model gave no reply to this request, so it shows no decision"
        place.lose("data.response", "no reply", text, data.get("response"))
        return
    if kind == "model_request":
        conversation = _conversation(record, place)
        attempt.requests.append(record)
        attempt.logged.append(Logged(conversation, CallLog(f"{record.source}:{record.number}")))
        return
    if kind == "reward":
        _reward(data, attempt, record, place)
    else:
        reader.skipped[kind[:40]] += 1
    attempt.others.append(record)


def _reply(data: dict[str, Any]) -> list[Any]:
    """What the model answered: the message of the first choice."""
    response = data.get("response")
    response = mapping(parse_json(response)[0] if isinstance(response, str) else response)
    return [
        mapping(choice)["message"] for choice in sequence(response.get("choices"))[:1] if "message" in mapping(choice)
    ]


def _conversation(record: Record, place: Place) -> Conversation:
    """The conversation of one request and its reply."""
    data = mapping(record.value.get("data"))
    request = mapping(data.get("request"))
    messages: list[Message] = chat_messages([*sequence(request.get("messages")), *_reply(data)], record, place)
    facts = {
        "latency_ms": finite_number(data.get("latency_ms")),
        "temperature": finite_number(request.get("temperature")),
    }
    for reply in messages[-1:]:
        reply.columns = {name: value for name, value in facts.items() if value is not None}
    prompts = [message.text or "" for message in messages if message.role == "system"]
    names = [label(data.get("model")), label(data.get("model_version"))]
    shared = tools_columns(request.get("tools")) | {
        "behavior_policy": " version ".join(name for name in names if name) or None,
        "prompt_version": short_hash("\n".join(prompts)) if prompts else None,
    }
    return Conversation(record, messages, name=label(record.value["rollout_id"]), shared=shared)


def _reward(data: dict[str, Any], attempt: _Attempt, record: Record, place: Place) -> None:
    """Give a reward to the reply before it."""
    reward, source = finite_number(data.get("value")), label(data.get("source"))
    if reward is None:
        text = "the reward is no finite number; it is kept as unknown (NULL), not as 0"
        place.mend("data.value", "reward is not a number", text, data.get("value"))
    elif attempt.logged and attempt.logged[-1].conversation.messages:
        reply = attempt.logged[-1].conversation.messages[-1]
        columns = reply.columns or {}
        if "reward" in columns:
            text = "a second reward follows the same reply; the later one was taken"
            place.mend("data.value", "two rewards for one step", text, data)
        given = {"reward": reward, "reward_source": f"Agent Lightning, {source}" if source else "Agent Lightning"}
        reply.columns = columns | given


# -- triplets ------------------------------------------------------------------------------------------------


def _read_triplets(records: Sequence[Record], runs: Runs) -> None:
    """Read rollouts whose steps are triplets; rows of the compact form with one rollout_id are one episode."""
    compact: dict[str, list[Record]] = {}
    for record in records:
        name = label(record.value["rollout_id"]) or "rollout"
        if isinstance(record.value.get("triplets"), list):
            with runs.guarded(record) as place:
                _read_rollout(name, record, runs, place)
        else:
            compact.setdefault(name, []).append(record)
    for name, steps in compact.items():
        with runs.guarded(steps[0]) as place:
            episode = Episode(unused_id(name, runs.used_ids, place))
            for t, record in enumerate(steps):
                _act(episode, record.value, t, {"record": record.number}, runs.report.at(record.source, record.number))
            episode.close()
            for record, row in zip(steps, episode.rows, strict=True):
                runs.gathered.add(record, [row])


def _read_rollout(name: str, record: Record, runs: Runs, place: Place) -> None:
    """The rows of one rollout: each triplet is a reply of the model."""
    episode = Episode(unused_id(name, runs.used_ids, place))
    for t, triplet in enumerate(record.value["triplets"]):
        if isinstance(triplet, dict):
            _act(episode, triplet, t, {"record": record.number, "triplets": [0, t]}, place)
        else:
            text = "this is no triplet of prompt, response and reward, so it was set aside"
            place.lose(f"triplets[{t}]", "not a triplet", text, triplet)
    if not episode.rows:
        place.lose(
            None, "no decision", "the rollout holds no triplet, so there is no decision to learn from", record.raw
        )
        return
    last = episode.rows[-1].get("reward")
    final = finite_number(record.value.get("final_reward")) if last is None else None
    runs.gathered.add(
        record, episode.close(None, reward=final, reward_source=final if final is None else "final_reward")
    )


def _act(episode: Episode, step: dict[str, Any], t: int, where: Row, place: Place) -> None:
    """Add one reply; of a reply that is token ids alone, no text can be shown without its tokenizer."""
    response, prompt = step.get("response"), step.get("prompt")
    text = response if isinstance(response, str) else text_of(mapping(response).get("text"))
    goal = prompt if isinstance(prompt, str) else None
    tokens: Row = {
        f"{kind}_tokens": len(ids) or None
        for kind, part in (("prompt", prompt), ("response", response))
        if (ids := sequence(mapping(part).get("token_ids")))
    }
    row = episode.act(
        message(text, **tokens), t, {"user_goal": goal, "history_length": t, "conversation_history": where}
    )
    if text is None:
        row |= Arguments("absent").columns()
    logprobs = sequence(mapping(response).get("logprobs"))
    row["action_logprobs"] = canonical_json(logprobs) if logprobs else None
    if (given := step.get("reward")) is None:
        return
    row["reward"] = finite_number(given)
    row["reward_source"] = "Agent Lightning" if row["reward"] is not None else None
    if row["reward"] is None:
        problem = "the reward is no finite number; it is kept as unknown (NULL), not as 0"
        place.mend("reward", "reward is not a number", problem, given)
