"""The action of a step in a home-made table: a name, an object with a name, several calls, or ``search[rain]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from offrl_core.importers.fields import Arguments, Row, read_arguments, text_of
from offrl_core.importers.step_cells import (
    is_missing,
    kind_of,
    number_in,
    parsed_cell,
    short_number,
    truth_in,
    vector_in,
)
from offrl_core.importers.step_mapping import Item, StepMapping
from offrl_core.schema import canonical_json

_NAME_KEYS = ("tool", "name", "tool_name", "function", "action", "type", "action_type")
_ARGUMENT_KEYS = ("arguments", "args", "input", "tool_input", "action_input", "parameters", "params", "kwargs")
_TYPES = frozenset({"tool_call", "message", "handoff", "invalid", "env_action"})
_MESSAGES = frozenset({"message", "respond", "reply", "say", "final_answer"})
_CALL_FORM = re.compile(r"([A-Za-z_][\w.-]*)\s*(?:\[(.*)\]|\((.*)\))\s*", re.DOTALL)
_ERROR_LENGTH = 300


# -- numbers -------------------------------------------------------------------------------------------------


def numbers_of(items: Sequence[Item], path: str | None) -> list[list[float] | None] | None:
    """The action of each step as numbers, where nearly all are numbers or lists of them; else None."""
    cells = [item.get(path) for item in items] if path else []
    vectors = [_numbers(cell) for cell in cells]
    known = sum(not is_missing(cell) for cell in cells)
    return vectors if known and sum(vector is not None for vector in vectors) >= 0.9 * known else None


def _numbers(cell: Any) -> list[float] | None:
    """Numbers of one cell; a chunk of actions, planned at once, stands for its first, which is the one taken next."""
    if isinstance(cell, str):
        cell = parsed_cell(cell)
    if isinstance(cell, list) and cell and isinstance(cell[0], list):
        cell = cell[0]
    if kind_of(cell) in ("whole", "number"):
        number = number_in(cell)
        return None if number is None else [number]
    return vector_in(cell)


def numbered_action(name: str, numbers: Sequence[float], *, exact: bool) -> Row:
    """The columns of an action in numbers; ``exact``: its name says all, so it needs no arguments."""
    values = [int(x) if x == x // 1 and abs(x) < 2**53 else x for x in numbers]
    arguments = Arguments("absent") if exact else read_arguments({"value": values[0] if len(values) == 1 else values})
    return {"action": name, "action_type": "env_action", **arguments.columns()}


# -- names ---------------------------------------------------------------------------------------------------


def have_call_form(items: Iterable[Item], path: str | None) -> bool:
    """Whether the actions are texts like ``search[rain]`` or ``click(3)``: a name with its arguments."""
    texts = [cell.strip() for item in items if isinstance(cell := item.get(path), str) and not is_missing(cell)]
    return bool(texts) and sum(bool(_CALL_FORM.fullmatch(text)) for text in texts) >= 0.8 * len(texts)


def named_actions(item: Item, mapping: StepMapping, *, call_form: bool) -> list[Row]:
    """The columns of each action of a step; none where it has no action."""
    arguments = item.get(mapping.arguments)
    if mapping.action is None:
        return [] if is_missing(arguments) else [_message(arguments)]
    cell = item.get(mapping.action)
    if is_missing(cell):
        return []
    cell = parsed_cell(cell) if isinstance(cell, str) else cell
    if isinstance(cell, list):
        several = [_action(one, None, call_form) for one in cell]
        return [action for action in several if action] if cell else [_message(arguments)]
    is_call = mapping.arguments is not None or mapping.result is not None
    action = _action(cell, arguments, call_form, "tool_call" if is_call else "env_action")
    return [action] if action else []


def _message(text: Any) -> Row:
    """A step that only says something."""
    said = None if is_missing(text) else text_of(text)
    arguments = Arguments("object", canonical_json({"text": said})) if said else Arguments("empty")
    return {"action": "message", "action_type": "message", **arguments.columns()}


def _action(cell: Any, arguments: Any, call_form: bool, kind: str = "tool_call") -> Row | None:
    """One action from its name or object; None where it has no name."""
    if isinstance(cell, dict):
        return _action_of_object(cell, arguments)
    name = cell if isinstance(cell, str) else "" if is_missing(cell) or isinstance(cell, list) else plain_name(cell)
    form = _CALL_FORM.fullmatch(name) if call_form else None
    if form:
        name, inside = form[1], form[2] if form[2] is not None else form[3]
        inner = parsed_cell(inside)
        return _named(
            name, read_arguments(inner if isinstance(inner, dict) else {"text": inside} if inside else {}), "tool_call"
        )
    name = name.strip()
    return _named(name, read_arguments(None if is_missing(arguments) else arguments), kind) if name else None


def _action_of_object(cell: dict[str, Any], arguments: Any) -> Row | None:
    """An action like ``{"tool": "search", "args": {...}}``; what is in no known key counts as arguments."""
    function = cell.get("function")
    if isinstance(function, dict):
        cell = cell | function | {"function": None}
    key = next((key for key in _NAME_KEYS if isinstance(cell.get(key), str) and cell[key].strip()), None)
    if key is None:
        return None
    given = next((cell[key] for key in _ARGUMENT_KEYS if cell.get(key) is not None), None)
    if given is None and is_missing(arguments):
        rest = {
            name: value for name, value in cell.items() if name not in (*_NAME_KEYS, *_ARGUMENT_KEYS, "id", "thought")
        }
        given = {name: value for name, value in rest.items() if value is not None} or None
    kind = cell.get("type", cell.get("action_type"))
    kind = kind if isinstance(kind, str) and kind in _TYPES else "tool_call"
    return _named(cell[key].strip(), read_arguments(arguments if given is None else given), kind)


def _named(name: str, arguments: Arguments, kind: str) -> Row:
    """The columns of an action with a name."""
    if name.lower() in _MESSAGES:
        kind = "message"
    tool = name if kind == "tool_call" else None
    return {"action": name, "action_type": kind, "tool": tool, **arguments.columns()}


def plain_name(value: Any) -> str:
    """A label as text: 2.0 is "2"."""
    if isinstance(value, bool):
        return str(value).lower()
    number = number_in(value) if kind_of(value) in ("whole", "number") else None
    return str(value).strip() if number is None else short_number(number)


# -- what came back ------------------------------------------------------------------------------------------


def outcomes_of(item: Item, mapping: StepMapping, n: int) -> list[Row]:
    """The columns of result and error for each of the n actions of a step; a single result is that of the last one."""
    result = item.get(mapping.result) if mapping.result else None
    error = item.get(mapping.error) if mapping.error else None
    parsed = parsed_cell(result) if n > 1 and isinstance(result, str) else result
    if n > 1 and isinstance(parsed, list) and len(parsed) == n:
        return [_outcome(one, error if i == n - 1 else None) for i, one in enumerate(parsed)]
    return [{"tool_result": None, "error": None}] * (n - 1) + [_outcome(result, error)]


def _outcome(result: Any, error: Any) -> Row:
    """What one action gave; an empty text is an empty result, NaN is how tables write that there is none."""
    text = None if result is None or (is_missing(result) and result != "") else text_of(result)
    return {"tool_result": text, "error": _error(error, text)}


def _error(value: Any, result: str | None) -> str | None:
    """Why an action failed; false, 0 and nothing say that it didn't."""
    truth = None if is_missing(value) else truth_in(value)
    if is_missing(value) or truth is False:
        return None
    return (result or "error")[:_ERROR_LENGTH] if truth else (text_of(value) or "error")[:_ERROR_LENGTH]
