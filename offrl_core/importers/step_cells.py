"""Cells of home-made tables: what kind of value they hold, and truth values, numbers and lists written as text."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from offrl_core.importers.fields import finite_number
from offrl_core.importers.records import parse_json

_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
_ENDS = {
    "done": True, "finished": True, "completed": True, "complete": True, "terminated": True, "ended": True,
    "running": False, "in_progress": False, "in progress": False, "ongoing": False, "continue": False, "active": False,
}  # fmt: skip
_TIMEOUTS = frozenset({"timeout", "truncated", "time_limit", "max_steps", "limit"})
_NOTHING = frozenset({"", "nan", "null", "none", "na", "n/a", "nat", "<na>"})
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d+(\.0*)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_SPACED_VECTOR = re.compile(r"\[\s*(?:[+-]?[\d.]+(?:[eE][+-]?\d+)?\s+)*[+-]?[\d.]+(?:[eE][+-]?\d+)?\s*\]")
_LONGEST_LITERAL = 100_000  # characters; Python's parser is slow, and deep beyond reason, on what is longer


def is_missing(value: Any) -> bool:
    """Whether a cell says nothing: null, NaN, empty, or one of the words for it."""
    if isinstance(value, str):
        return len(value) < 9 and value.strip().lower() in _NOTHING
    return value is None or (isinstance(value, float) and math.isnan(value))


def parsed_cell(text: str) -> Any:
    """What a text says, if it is an object or a list in JSON, Python or NumPy's way; else the text itself.

    >>> parsed_cell("{'a': 1}"), parsed_cell("[0.5 -1.]"), parsed_cell("[not a list]")
    ({'a': 1}, [0.5, -1.0], '[not a list]')
    """
    start = text.lstrip()[:1]
    if start not in ("{", "[", "("):
        return text
    value, reason = parse_json(text)
    if not reason:
        return value
    if _SPACED_VECTOR.fullmatch(text.strip()):
        numbers = [number_in(part) for part in text.strip(" \n[]").split()]
        return text if None in numbers else numbers
    if len(text) > _LONGEST_LITERAL:
        return text
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return list(value) if isinstance(value, tuple) else value if isinstance(value, dict | list) else text


def number_in(value: Any) -> float | None:
    """A finite number, also where it is written as text; true is 1."""
    if not isinstance(value, str):
        return finite_number(value)
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return finite_number(float(text))
    truth = _TRUTHS.get(text.lower())
    return None if truth is None else float(truth)


def truth_in(value: Any) -> bool | None:
    """True or false: as such, as 1 and 0, or as a word for it; None where it is neither.

    >>> [truth_in(value) for value in (True, "False", "1", 0.0, "yes", "finished", "timeout", 2)]
    [True, False, True, False, True, True, None, None]
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and (word := value.strip().lower()) in _TRUTHS | _ENDS:
        return (_TRUTHS | _ENDS)[word]
    number = number_in(value)
    return bool(number) if number in (0, 1) else None


def is_end_word(value: Any) -> bool:
    """Whether a text tells the status of an episode: running, finished, truncated, ..."""
    return isinstance(value, str) and value.strip().lower() in _ENDS.keys() | _TIMEOUTS


def says_timeout(value: Any) -> bool:
    """Whether a status says that the episode was cut by a limit."""
    return isinstance(value, str) and value.strip().lower() in _TIMEOUTS


def vector_in(value: Any) -> list[float] | None:
    """Numbers of a list that holds nothing else, also written as text; lists in the list are laid end to end."""
    value = parsed_cell(value) if isinstance(value, str) else value
    if not isinstance(value, list) or not value:
        return None
    flat = [x for item in value for x in (item if isinstance(item, list) else [item])]
    if any(isinstance(x, bool) or not isinstance(x, int | float) for x in flat):
        return None
    return [math.nan if (number := finite_number(x)) is None else number for x in flat]


def short_number(number: float) -> str:
    """A number as its shortest text: 2.0 is "2"."""
    return str(int(number)) if number == int(number) and abs(number) < 2**53 else repr(number)


def kind_of(value: Any) -> str:
    """What a cell holds: none, truth, whole, number, time, text, vector, list or object.

    >>> [kind_of(value) for value in (None, "True", "2.0", 0.5, "2019-11-24 00:03:13", "go", "[1, 2]", {})]
    ['none', 'truth', 'whole', 'number', 'time', 'text', 'vector', 'object']
    """
    if is_missing(value):
        return "none"
    if isinstance(value, str):
        return _kind_of_text(value)
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float):
        return "whole" if value == value // 1 else "number"
    if isinstance(value, dict):
        return "object"
    return "vector" if vector_in(value) else "list" if isinstance(value, list) else "time"


def _kind_of_text(text: str) -> str:
    """The kind of value that a text stands for."""
    word = text.strip()
    if word.lower() in _TRUTHS:
        return "truth"
    if _WHOLE.fullmatch(word):
        return "whole"
    if _NUMBER.fullmatch(word):
        return "number"
    if _TIME.fullmatch(word):
        return "time"
    value = parsed_cell(word)
    return "text" if isinstance(value, str) else kind_of(value)
