"""Single values of a record, read alike by every importer: numbers, arguments of calls, lists of tools."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple

from offrl_core.importers.raw_text import FilePart
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import Place
from offrl_core.schema import canonical_json, short_hash, storable_text

_FILE_ENDINGS = frozenset({".eval", ".gz", ".json", ".jsonl", ".ndjson", ".parquet", ".traj", ".txt", ".zip"})

Row = dict[str, Any]  # column name of the trace schema -> value; columns a row doesn't name are NULL


@dataclass(slots=True)
class Gathered:
    """What an importer has read: rows in the order of reading, and the raw text of their records."""

    rows: list[Row] = field(default_factory=list)
    raw: dict[tuple[str, int], str | FilePart] = field(default_factory=dict)  # by file and number

    def add(self, record: Record, rows: Sequence[Row]) -> None:
        """Keep the rows of a record and, if there are any, its raw text."""
        for row in rows:
            row["source_file"], row["record"] = record.source, record.number
        if rows:
            self.rows += rows
            self.raw[record.source, record.number] = record.text


def rate_by_form(values: Sequence[Any], form_of: Callable[[Any], str | None], otherwise: str) -> tuple[float, str]:
    """How sure it is that values are of a format, 0 to 1, and why.

    Args:
        values: of the first records.
        form_of: which of the format's forms a value has, in words; None where it is something else.
        otherwise: why not, where no value has any.
    """
    forms = Counter(form for value in values if (form := form_of(value)))
    if not forms:
        return 0.0, otherwise
    n = forms.total()
    return n / len(values), f"found {forms.most_common(1)[0][0]} in {n} of the first {len(values)} records"


def finite_number(value: Any) -> float | None:
    """The value as a number (true is 1), or None where it isn't one: text, NaN, infinite, beyond a double."""
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def whole_number(value: Any) -> int | None:
    """The value as a 32-bit integer (3.0 is 3), or None; true and false are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -(2**31) <= value < 2**31 or value != int(value):
        return None
    return int(value)


def mapping(value: Any) -> dict[str, Any]:
    """The value where it is an object, else an empty one: a path through it then ends in None, not in an error."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """The value where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def label(value: Any) -> str | None:
    """A name or number that may serve as a label, as text."""
    if isinstance(value, str):
        return value if value.strip() else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def first_of(value: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """What an object has under the first of these keys that it knows; None where it knows none."""
    for key in keys:
        if key in value:
            return value[key]
    return None


def text_of(content: Any) -> str | None:
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


def stem(source: str) -> str:
    """Name of a file without folders and without endings of storage: "gpt-4.1" of "runs/gpt-4.1.json.gz"."""
    path = PurePath(source)
    while path.suffix.lower() in _FILE_ENDINGS:
        path = path.with_suffix("")
    return path.name


def metadata_text(**fields: Any) -> str | None:
    """JSON text of the fields that are known; None where none is."""
    known = {key: value for key, value in fields.items() if value is not None}
    return canonical_json(known) if known else None


def unused_id(name: str, used: Counter[str], place: Place) -> str:
    """The name for an episode, or ``name#2`` (and a word in the report) where an episode is already called that."""
    used[name] += 1
    if used[name] == 1:
        return name
    while used[renamed := f"{name}#{used[name]}"]:  # a file may itself hold an episode called so
        used[name] += 1
    message = f"the episode {name} was already there; this one is called {renamed}"
    place.mend(None, "episode id used twice", message, name)
    used[renamed] += 1
    return renamed


def tool_names(value: Any) -> list[str] | None:
    """Names from a list of names or of tool definitions, also as JSON text; None where it is neither."""
    if isinstance(value, str):
        value = parse_json(value)[0]
    if not isinstance(value, list):
        return None
    names = [_tool_name(item) for item in value]
    # Lists of text pass steps_table as they are, so they are made storable here.
    return [storable_text(name) for name in names if name] if all(names) else None


def tools_columns(tools: Any) -> Row:
    """Columns on the tools that a model was given; none where the log doesn't say. Their order plays no part."""
    tools = parse_json(tools)[0] if isinstance(tools, str) else tools
    names = tool_names(tools)
    if not names:
        return {}
    return {
        # A reply without a call is open to the model at every step, so it is among the valid actions.
        "available_tools": [*names, "message"],
        "tool_schema_version": short_hash(canonical_json(sorted(map(canonical_json, tools)))),
    }


def _tool_name(item: Any) -> str | None:
    """Name of one tool: the text itself, or that of ``{"name": ...}`` or ``{"function": {"name": ...}}``."""
    if isinstance(item, dict):
        function = item.get("function")
        item = function.get("name") if isinstance(function, dict) else item.get("name")
    return item if isinstance(item, str) and item else None


class Arguments(NamedTuple):
    """Arguments of a call; ``text`` is None where they can't be parsed: that isn't a call without any."""

    status: str  # see the column arguments_status
    text: str | None = None  # canonical JSON
    raw: str | None = None  # as the file had them, where they were text

    def columns(self) -> Row:
        """The four columns of the trace schema."""
        return {
            "arguments": self.text,
            "arguments_raw": self.raw,
            "arguments_status": self.status,
            "arguments_hash": None if self.text is None else short_hash(storable_text(self.text)),
        }


def read_arguments(value: Any) -> Arguments:
    """Read arguments as logs have them: an object, JSON text (encoded once or twice), a Python literal."""
    if value is None:
        return Arguments("absent")
    if isinstance(value, dict):
        return Arguments("object", canonical_json(value))
    if not isinstance(value, str):
        return Arguments("non_object", canonical_json(value))
    if not value.strip():
        return Arguments("empty", None, value)
    parsed, reason = parse_json(value)
    if reason:
        return _read_literal(value)
    if isinstance(parsed, dict):
        return Arguments("json_string", canonical_json(parsed), value)
    inner = parse_json(parsed)[0] if isinstance(parsed, str) else None
    if isinstance(inner, dict):
        return Arguments("double_encoded", canonical_json(inner), value)
    return Arguments("non_object", canonical_json(parsed), value)


def _read_literal(text: str) -> Arguments:
    """Read ``{'a': 1}``, which agents in Python write by mistake; anything but a dict is malformed."""
    try:
        value = ast.literal_eval(text.strip())
        if isinstance(value, dict):
            return Arguments("python_literal", canonical_json(value), text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass  # not a literal, or one that JSON can't say (a tuple as a key)
    return Arguments("malformed", None, text)
