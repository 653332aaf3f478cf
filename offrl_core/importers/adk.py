"""Sessions of Google's ADK and conversations of Gemini: events or contents made of parts, mostly without call ids.

An evalset of ADK holds the runs that an agent is expected to make, and an evaluation those that it made, with scores; each
case is a run. In a result the verdict on the case is its reward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from offrl_core.conversation import either, events_of, invocations_of
from offrl_core.importers.episode import name_of, others
from offrl_core.importers.fields import Gathered, Row, finite_number, label, mapping, read_arguments, sequence, text_of
from offrl_core.importers.messages import Call, Conversation, Message, Result, each_record, failure, gather, parts_of
from offrl_core.importers.openai_chat import reward_of
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.schema import canonical_json, short_hash

EXAMPLE = b"""\
{"id": "s1", "app_name": "shop", "user_id": "u1", "reward": 1, "events": [\
{"author": "user", "content": {"role": "user", "parts": [{"text": "Is A1 in stock?"}]}}, \
{"author": "clerk", "content": {"role": "model", "parts": [{"function_call": \
{"name": "stock_level", "args": {"sku": "A1"}}}]}}, \
{"author": "clerk", "content": {"role": "user", "parts": [{"function_response": \
{"name": "stock_level", "response": {"result": "3"}}}]}}, \
{"author": "clerk", "content": {"role": "model", "parts": [{"text": "Yes, 3 pieces."}]}}]}
"""

_HANDOFFS = frozenset({"transfer_to_agent", "transfer_to_other_agent"})
_READ_FIELDS = frozenset({"events", "contents", "id", "reward", "score", "success", "metadata"})
_SETS = ("eval_cases", "eval_case_results")
_INVOCATION = ("user_content", "final_response", "intermediate_data")
_VERDICTS = {"1": 1.0, "passed": 1.0, "2": 0.0, "failed": 0.0}  # anything else: not evaluated
_EXPECTED = (
    "An evalset holds what an agent is expected to do: clone it, or read the results of an evaluation (.evalset_result.json), "
    "which have verdicts."
)


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are sessions of parts or cases of an evaluation, 0 to 1, and why."""
    n_cases = sum(bool(_cases(value)[1]) or _is_case(value) for value in values)
    n = n_cases + sum(_items(value) is not None for value in values if not _is_case(value))
    if not n:
        return 0.0, "no record holds events or contents with parts"
    what = "eval cases (Google ADK)" if 2 * n_cases > n else "content with parts (Google ADK or Gemini)"
    return n / len(values), f"found {what} in {n} of the first {len(values)} records"


def _cases(value: Any) -> tuple[str, list[Any]]:
    """The cases of an evalset or of its results, and where they stand; none in any other record."""
    for name in _SETS:
        cases = either(value, name)
        if isinstance(cases, list) and any(map(_is_case, cases)):
            return name, cases
    return "", []


def _is_case(value: Any) -> bool:
    """Whether a value is a case of an evaluation."""
    if either(value, "eval_id") is None:
        return False
    if any(either(value, name) is not None for name in ("conversation_scenario", "session_details")):
        return True
    return any(either(item, name) is not None for item in invocations_of(value) for name in _INVOCATION)


def _items(value: Any) -> list[Any] | None:
    """The events or contents of a record; None where most of them have no parts."""
    items = _events(value)
    if not items:
        return None
    return items if 2 * sum("parts" in _content(item) for item in items) >= len(items) else None


def _events(value: Any) -> list[Any] | None:
    """The events or contents of a session, or of a case of an evaluation; None where a record has none."""
    found = mapping(value)
    if _is_case(found):
        if invocations := invocations_of(found):
            return events_of(invocations)
        found = mapping(either(found, "session_details"))
    items = found.get("events", found.get("contents"))
    return items if isinstance(items, list) else None


def _content(item: Any) -> Row:
    """What an event says, or a content itself."""
    found = mapping(item)
    return mapping(found["content"]) if "content" in found else found


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read sessions into rows; one row per function call or reply without one."""
    conversations: list[Conversation] = []
    skipped: Counter[str] = Counter()
    expected = 0

    def parse(record: Record, place: Place) -> None:
        nonlocal expected
        items = _events(record.value)
        if items is not None:
            conversations.append(_conversation(items, record, place, skipped))
            expected += isinstance(either(record.value, "conversation"), list)
        else:
            place.lose(None, "not a session", "the record holds no events or contents, so it was set aside", record.raw)

    each_record(_without_scenarios(_one_by_one(records, report), report), report, parse)
    runs = gather(conversations, report)
    runs.skipped = skipped
    return runs.done("sessions", "events", _EXPECTED if expected else "")


def _one_by_one(records: Iterable[Record], report: ImportReport) -> Iterator[Record]:
    """Each case of an evaluation as a record of its own."""
    for record in records:
        name, cases = _cases(record.value)
        if not cases:
            yield record
            continue
        report.accounts.found[record.source] -= 1  # its cases are counted instead
        report.accounts.units[record.source] = "case"
        of_set = {"eval_set_id": label(either(record.value, "eval_set_id"))}
        yield from parts_of(record, name, [of_set | case if isinstance(case, dict) else case for case in cases], report)


def _without_scenarios(records: Iterable[Record], report: ImportReport) -> Iterator[Record]:
    """Leave out cases that only tell a simulated user what to do, and count them."""
    n = 0
    for record in records:
        if _is_case(record.value) and _events(record.value) is None and either(record.value, "conversation_scenario"):
            n += 1
            report.accounts.idle[record.source] += 1
        else:
            yield record
    if n:
        report.notes.append(f"Cases that hold no run but a scenario for a simulated user, and give no step: {n:,}.")


def _conversation(items: list[Any], record: Record, place: Place, skipped: Counter[str]) -> Conversation:
    """One session."""
    given = record.value
    case = label(either(given, "eval_id")) if _is_case(given) else None
    messages = []
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            text = "this is no event, so it was set aside"
            place.lose(f"events[{index}]", "not a message", text, item)
        elif item.get("partial") is True:
            skipped["piece of a streamed reply"] += 1  # the whole reply follows
        elif sequence(_content(item).get("parts")):
            messages.append(_message(item, record, index))
        else:
            skipped["without content"] += 1
    system = text_of(_parts(given.get("systemInstruction", given.get("system_instruction"))))
    return Conversation(
        record,
        messages,
        name=case or label(given.get("id")),
        shared={
            "task": case or label(given.get("app_name")) or label(given.get("appName")),
            "prompt_version": short_hash(system) if system else None,
        },
        reward=_verdict(given) if case else reward_of(given, place),
        metadata=others(given, _READ_FIELDS),
    )


def _verdict(case: Row) -> Row:
    """Whether an evaluation says that the run passed, and its scores; nothing where it says nothing."""
    verdict = _VERDICTS.get((label(either(case, "final_eval_status")) or "").lower())
    metrics = [mapping(metric) for metric in sequence(either(case, "overall_eval_metric_results"))]
    scores = {label(either(metric, "metric_name")): finite_number(metric.get("score")) for metric in metrics}
    known = {name: score for name, score in scores.items() if name and score is not None}
    reward: Row = {"reward_components": canonical_json(known)} if known else {}
    return (
        reward
        if verdict is None
        else reward | {"reward": verdict, "reward_source": "evaluation (ADK, final_eval_status)"}
    )


def _parts(content: Any) -> list[Any] | None:
    """The parts of a content."""
    parts = mapping(content).get("parts")
    return parts if isinstance(parts, list) else None


def _message(event: Row, record: Record, index: int) -> Message:
    """One event: what a user, an agent or a function said."""
    calls, results, thoughts, rest = [], [], [], []
    for part in sequence(_content(event).get("parts")):
        found = mapping(part)
        if call := mapping(found.get("function_call", found.get("functionCall"))):
            calls.append(_call(call))
        elif "function_response" in found or "functionResponse" in found:
            results.append(_result(mapping(found.get("function_response", found.get("functionResponse")))))
        elif found.get("thought") is True:
            thoughts.append(str(found.get("text")))
        elif found.get("text") is not None or not found:
            rest.append(part)
        else:
            rest.append(f"[{next(iter(found))}]")
    author, role = label(event.get("author")), _content(event).get("role")
    message = Message(record, index, "assistant", text_of(rest) if rest else None, calls, results)
    message.thought = "\n\n".join(thoughts) or None
    if author == "user" or (role != "model" and (results or author is None)):
        message.role = "tool" if results else "user"
    elif author and author != "model":
        message.columns = {"behavior_policy": author}
    return message


def _call(call: Row) -> Call:
    """A function call; one that gives the word to another agent is a handoff."""
    name = name_of(call.get("name"))
    return Call(
        label(call.get("id")), name, read_arguments(call.get("args", {})), "handoff" if name in _HANDOFFS else None
    )


def _result(response: Row) -> Result:
    """What a function gave back: an object, or one value under ``result``."""
    value = response.get("response")
    inner = mapping(value)
    single = inner["result"] if list(inner) == ["result"] else value
    text = single if isinstance(single, str) else canonical_json(single)
    explanation = inner.get("error") if isinstance(inner.get("error"), str) else None
    failed = True if inner.get("status") == "error" or inner.get("isError") is True else None
    error, guessed = failure(text, failed, explanation)
    return Result(label(response.get("id")), text, error, guessed, name_of(response.get("name")), ordered=True)
