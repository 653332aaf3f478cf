"""Attributes of spans by the conventions of OpenTelemetry GenAI (old and new), OpenInference, Traceloop and Vercel.

``fill`` puts what they say into a span; what the span already says stays. Other formats keep such attributes, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from offrl_core.importers.fields import label, mapping, sequence
from offrl_core.importers.span_messages import loaded, messages_in
from offrl_core.importers.spans import AGENT, JUDGE, MODEL, OTHER, TOOL, Score, Span, first, number, words

_KINDS = {
    # openinference.span.kind and traceloop.span.kind
    "llm": MODEL,
    "tool": TOOL,
    "agent": AGENT,
    "evaluator": JUDGE,
    "guardrail": JUDGE,
    # gen_ai.operation.name
    "chat": MODEL,
    "text_completion": MODEL,
    "generate_content": MODEL,
    "execute_tool": TOOL,
    "invoke_agent": AGENT,
    # ai.operationId (Vercel)
    "ai.generateText.doGenerate": MODEL,
    "ai.streamText.doStream": MODEL,
    "ai.generateObject.doGenerate": MODEL,
    "ai.streamObject.doStream": MODEL,
    "ai.toolCall": TOOL,
}
_KIND_KEYS = ("openinference.span.kind", "gen_ai.operation.name", "traceloop.span.kind", "ai.operationId")
_AGENT_NAMES = ("gen_ai.agent.name", "agent_name", "agent.name")
_INPUTS = (
    "gen_ai.input.messages",
    "gen_ai.prompt",
    "ai.prompt.messages",
    "ai.prompt",
    "input.value",
    "traceloop.entity.input",
)
_OUTPUTS = ("gen_ai.output.messages", "gen_ai.completion", "output.value", "traceloop.entity.output", "final_result")
_TOOL_INPUTS = (
    "gen_ai.tool.call.arguments",
    "tool_arguments",
    "ai.toolCall.args",
    "input.value",
    "traceloop.entity.input",
)
_TOOL_OUTPUTS = (
    "gen_ai.tool.call.result",
    "tool_response",
    "ai.toolCall.result",
    "output.value",
    "traceloop.entity.output",
)
# Conversations whose messages are numbered keys: "llm.input_messages.0.message.role".
_NUMBERED_INPUTS = ("llm.input_messages", "gen_ai.prompt")
_NUMBERED_OUTPUTS = ("llm.output_messages", "gen_ai.completion")
_EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_MOST_INDEX = 100_000  # of a numbered key; beyond, a list would be made of a name


def fill(span: Span, attributes: dict[str, Any], events: Iterable[dict[str, Any]] = ()) -> None:
    """Put what attributes and events say into a span, where it doesn't say so itself.

    Args:
        span: the span, changed in place.
        attributes: by their full names.
        events: ``{"name", "attributes"}``.
    """
    span.kind, span.label = _kind(span, attributes)
    events = [*events, *_events_in_attribute(attributes)]
    if span.kind == TOOL:
        span.name = first(
            *map(words, _some(attributes, "gen_ai.tool.name", "tool.name", "ai.toolCall.name")), span.name
        )
        span.input = first(span.input, _arguments(first(*_some(attributes, *_TOOL_INPUTS))))
        span.output = first(span.output, *_some(attributes, *_TOOL_OUTPUTS))
    else:
        span.input = first(span.input, _input(attributes, events))
        span.output = first(span.output, _output(attributes, events))
    span.call_id = span.call_id or label(
        first(*_some(attributes, "gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id"))
    )
    span.agent = span.agent or label(first(*_some(attributes, *_AGENT_NAMES)))
    span.model = span.model or words(
        first(*_some(attributes, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.model.id"))
    )
    if span.kind == MODEL and span.model is None:
        span.model = next((found.model for found in messages_in(attributes.get("output.value")) if found.model), None)
    parameters = mapping(loaded(attributes.get("llm.invocation_parameters")))
    temperature = first(*_some(attributes, "gen_ai.request.temperature", "ai.settings.temperature"))
    span.temperature = first(span.temperature, number(first(temperature, parameters.get("temperature"))))
    span.cost = first(
        span.cost, number(first(*_some(attributes, "llm.cost.total", "gen_ai.usage.cost", "operation.cost")))
    )
    span.tokens = span.tokens or _tokens(attributes)
    span.tools = first(span.tools, _tools(attributes, parameters))
    span.error = span.error or _error(events)
    span.scores += _scores(attributes, events)


def _listed(attributes: dict[str, Any], name: str) -> Any:
    """A conversation from numbered keys, or as the list that a table has again."""
    value = attributes.get(name)
    return value if isinstance(value, list) and value else numbered(attributes, name)


def numbered(attributes: dict[str, Any], prefix: str) -> Any:
    """Lists and objects from flattened keys under a prefix, in the order of their numbers; None where there are none."""
    root: dict[str, Any] = {}
    start = prefix + "."
    for key, value in attributes.items():
        if not key.startswith(start):
            continue
        *path, last = key.removeprefix(start).split(".")
        node = root
        for part in path:
            child = node.get(part)
            node[part] = node = child if isinstance(child, dict) else {}
        node[last] = value
    return _with_lists(root) if root else None


def _with_lists(node: Any) -> Any:
    """Objects whose keys are all numbers as lists, sorted as numbers: 10 comes after 2."""
    if not isinstance(node, dict):
        return node
    keys = [key for key in node if key.isascii() and key.isdigit() and len(key) < 7]
    if keys and len(keys) == len(node) and max(map(int, keys)) < _MOST_INDEX:
        return [_with_lists(node[key]) for key in sorted(keys, key=int)]
    return {key: _with_lists(item) for key, item in node.items()}


def _some(attributes: dict[str, Any], *names: str) -> list[Any]:
    """Values of these attributes; None for those that are missing or empty."""
    return [None if (value := attributes.get(name)) == "" else value for name in names]


def _kind(span: Span, attributes: dict[str, Any]) -> tuple[str, str]:
    """Kind and label of a span: its own, else by the first convention it follows."""
    if span.kind != OTHER:
        return span.kind, span.label
    said = [value for key in _KIND_KEYS if isinstance(value := attributes.get(key), str)]
    for value in said:
        kind = _KINDS.get(value) or _KINDS.get(value.lower())
        if kind:
            return kind, value
    if not said and "gen_ai.tool.name" in attributes:
        return TOOL, "tool"
    if not said and any(key.startswith(("gen_ai.prompt.", "gen_ai.completion.", "llm.request.")) for key in attributes):
        return MODEL, "llm"
    if not said and {"gen_ai.request.model", "gen_ai.output.messages"} <= attributes.keys():
        return MODEL, "llm"
    if not said and any(name in attributes for name in _AGENT_NAMES):
        return AGENT, "agent"
    return OTHER, said[0] if said and span.label == "span" else span.label


def _arguments(value: Any) -> Any:
    """Arguments of a tool; some libraries wrap those that are no JSON as ``{"INVALID_JSON": text}``."""
    read = loaded(value)
    if isinstance(read, dict) and read.keys() == {"INVALID_JSON"}:
        return read["INVALID_JSON"]
    return value


def _input(attributes: dict[str, Any], events: list[dict[str, Any]]) -> Any:
    """What a model or any other span was given."""
    messages = first(*_some(attributes, _INPUTS[0]), *(_listed(attributes, name) for name in _NUMBERED_INPUTS))
    messages = first(messages, _event_messages(events), _of_events(events, "gen_ai.input.messages", "gen_ai.prompt"))
    value = first(messages, *_some(attributes, *_INPUTS))
    system = loaded(first(*_some(attributes, "gen_ai.system_instructions", "system_instructions")))
    if system is None:
        return value
    return [{"role": "system", "content": system}, value if isinstance(value, list) else loaded(value)]


def _output(attributes: dict[str, Any], events: list[dict[str, Any]]) -> Any:
    """What a model or any other span gave: the first place that holds a text or call, as some libraries leave parts out."""
    choices = [_choice(event["attributes"]) for event in events if event["name"] == "gen_ai.choice"]
    values = [
        *_some(attributes, _OUTPUTS[0]),
        *(_listed(attributes, name) for name in _NUMBERED_OUTPUTS),
        choices or None,
        _vercel_reply(attributes),
        _of_events(events, "gen_ai.output.messages", "gen_ai.completion"),
        *_some(attributes, *_OUTPUTS[1:]),
    ]
    known = [value for value in values if value is not None]
    return next((value for value in known if _says_something(value)), first(*known))


def _says_something(value: Any) -> bool:
    """Whether an output holds a text or call; one that holds no messages is a text itself."""
    messages = messages_in(value)
    return not messages or any(message.text or message.calls for message in messages)


def _vercel_reply(attributes: dict[str, Any]) -> Any:
    """A reply as Vercel's library writes it: text and calls in two attributes."""
    text, calls = _some(attributes, "ai.response.text", "ai.response.toolCalls")
    if text is None and calls is None:
        return first(*_some(attributes, "ai.response.object"))
    return [{"role": "assistant", "content": text, "tool_calls": loaded(calls)}]


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    """A message of the model from an event: its fields stand under ``message`` or beside it."""
    message = mapping(loaded(choice.get("message")))
    return {"role": "assistant"} | {key: loaded(value) for key, value in (message or choice).items() if key != "role"}


def _event_messages(events: list[dict[str, Any]]) -> list[Any] | None:
    """The conversation from events of one message each."""
    found = [
        {key: loaded(value) for key, value in event["attributes"].items()}
        | {"role": _EVENT_ROLES[event["name"]]}
        | ({"tool_call_id": event["attributes"].get("id")} if event["name"] == "gen_ai.tool.message" else {})
        for event in events
        if event["name"] in _EVENT_ROLES
    ]
    return found or None


def _of_events(events: list[dict[str, Any]], *names: str) -> Any:
    """The first of these attributes in an event."""
    return next((value for event in events for value in _some(event["attributes"], *names) if value is not None), None)


def _events_in_attribute(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Events that a library wrote into an attribute as JSON."""
    found = sequence(loaded(first(*_some(attributes, "events", "all_messages_events"))))
    return [
        {"name": item["event.name"], "attributes": item}
        for item in found
        if isinstance(item, dict) and isinstance(item.get("event.name"), str)
    ]


def _tokens(attributes: dict[str, Any]) -> dict[str, Any]:
    """Tokens that went in and out."""
    names = {
        "input": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
        "output": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    }
    found = {kind: number(first(*_some(attributes, *keys))) for kind, keys in names.items()}
    return {kind: int(value) for kind, value in found.items() if value is not None}


def _tools(attributes: dict[str, Any], parameters: dict[str, Any]) -> Any:
    """Definitions of the tools that the model was offered."""
    given = loaded(first(*_some(attributes, "gen_ai.tool.definitions", "ai.prompt.tools"), parameters.get("tools")))
    if isinstance(given, list):
        return [loaded(item) for item in given] or None
    schemas = [
        mapping(mapping(item).get("tool")).get("json_schema") for item in sequence(numbered(attributes, "llm.tools"))
    ]
    found = [loaded(schema) for schema in schemas if schema]
    offered = mapping(loaded(attributes.get("model_request_parameters"))).get("function_tools")
    return found or (offered if isinstance(offered, list) and offered else None)


def _error(events: list[dict[str, Any]]) -> str | None:
    """The message of an exception that was recorded as an event."""
    for event in events:
        if event["name"] == "exception":
            kind, message = _some(event["attributes"], "exception.type", "exception.message")
            return str(first(message, kind, "exception"))
    return None


def _scores(attributes: dict[str, Any], events: list[dict[str, Any]]) -> list[Score]:
    """Judgements in attributes or events, by both conventions."""
    found = []
    for fields in (
        attributes,
        *(event["attributes"] for event in events if event["name"] == "gen_ai.evaluation.result"),
    ):
        value = first(*_some(fields, "gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label"))
        if value is not None:
            name = label(fields.get("gen_ai.evaluation.name")) or "evaluation"
            found.append(Score(name, first(number(value), value), "gen_ai.evaluation"))
    for item in sequence(numbered(attributes, "annotations")):
        fields = mapping(mapping(item).get("annotation"))
        value = first(*_some(fields, "score", "label"))
        if value is not None:
            source = label(fields.get("annotator_kind")) or "annotation"
            found.append(Score(label(fields.get("name")) or "annotation", first(number(value), value), source))
    return found
