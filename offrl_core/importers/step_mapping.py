"""Which field of a home-made log means what: a mapping from roles ("episode", "action", ...) to fields.

A field is named by its key, or by a dotted path into objects (``info.reward``). Where the steps lie in a list of each
record (``steps`` names it), a path that begins with ``/`` is read from the record around them: ``/task``.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from offrl_core.errors import InvalidConfig
from offrl_core.importers.fields import sequence
from offrl_core.importers.records import parse_json
from offrl_core.importers.step_cells import kind_of, parsed_cell
from offrl_core.schema import canonical_json, short_hash

SIDE_BY_SIDE = "[]"  # as ``steps``: the record holds one list per field, {"actions": [...], "rewards": [...]}
_DEPTH = 2  # keys of keys; deeper ones are the agent's, not the log's
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Why:
    """Why a field was given a role, and how sure that is."""

    role: str
    path: str
    confidence: float  # 0 to 1
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMapping:
    """The field of each role; None where the log has none. Without an action, every step is a plain message."""

    steps: str | None = None  # where a record holds a list of steps, its path; or SIDE_BY_SIDE
    episode: str | None = None
    step: str | None = None
    action: str | None = None
    arguments: str | None = None
    result: str | None = None
    error: str | None = None
    reward: str | None = None
    reward_at_end: bool = False  # the field repeats the outcome of the whole episode on each of its rows
    terminal: str | None = None
    timeout: str | None = None
    done: str | None = None
    state: tuple[str, ...] = ()  # fields; a name that ends in * stands for all that begin so
    task: str | None = None
    behavior_policy: str | None = None
    probability: str | None = None
    logprob: str | None = None
    available_tools: str | None = None
    thought: str | None = None
    temperature: str | None = None
    latency_ms: str | None = None
    cost_usd: str | None = None
    split: str | None = None
    why: tuple[Why, ...] = field(default=(), compare=False)  # of a guess; not part of the mapping itself

    def __post_init__(self) -> None:
        """Check the types, as mappings come from links and files too.

        Raises:
            InvalidConfig: a role has something else than the name of a field.
        """
        for role in ROLES:
            path = getattr(self, role)
            if path is not None and not (isinstance(path, str) and path):
                raise InvalidConfig(f"The mapping gives the role {role} {path!r}; the name of a field was expected.")
        if not isinstance(self.reward_at_end, bool):
            raise InvalidConfig(f"reward_at_end is {self.reward_at_end!r}; it must be true or false.")
        if not (isinstance(self.state, tuple) and all(isinstance(path, str) and path for path in self.state)):
            raise InvalidConfig(f"The mapping gives the role state {self.state!r}; names of fields were expected.")

    def paths(self) -> Iterator[tuple[str, str]]:
        """Roles and their fields, each that is set; the state may have several."""
        for role in ROLES:
            if (path := getattr(self, role)) is not None:
                yield role, path
        for path in self.state:
            yield "state", path

    def to_json(self) -> str:
        """The mapping as JSON text; roles without a field are left out."""
        found = {name: value for name, value in asdict(self).items() if value and name != "why"}
        return canonical_json(found)

    @classmethod
    def from_json(cls, text: str) -> StepMapping:
        """Read what ``to_json`` wrote.

        Raises:
            InvalidConfig: the text is no JSON object, or names a role that doesn't exist.
        """
        given, reason = parse_json(text)
        if reason or not isinstance(given, dict):
            raise InvalidConfig(f"The mapping is no JSON object{f' ({reason})' if reason else ''}.")
        known = {item.name for item in fields(cls)} - {"why"}
        if unknown := sorted(set(given) - known):
            raise InvalidConfig(
                f"The mapping names unknown roles: {', '.join(unknown)}. Known: {', '.join(sorted(known))}."
            )
        state = given.pop("state", ())
        return cls(**given, state=tuple(state) if isinstance(state, list) else state)


ROLES: tuple[str, ...] = tuple(
    item.name for item in fields(StepMapping) if item.name not in ("state", "reward_at_end", "why")
)


# -- looking up ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Item:
    """One step as the log has it: its own fields, and those of the record around it."""

    inner: dict[str, Any]
    outer: dict[str, Any]

    def get(self, path: str | None) -> Any:
        """The value at a path; None where there is none."""
        if path is None:
            return None
        return value_at(self.outer, path[1:]) if path.startswith("/") else value_at(self.inner, path)


def value_at(value: Any, path: str) -> Any:
    """The value at a dotted path; a key that itself has dots goes first, and JSON text is looked into.

    >>> value_at({"a.b": 1, "a": {"b": 2, "c": 3}}, "a.b"), value_at({"a": '{"c": 3}'}, "a.c")
    (1, 3)
    """
    if isinstance(value, str):
        value = parsed_cell(value)
    if not isinstance(value, dict):
        return None
    if path in value:
        return value[path]
    first, _, rest = path.partition(".")
    return value_at(value.get(first), rest) if rest else None


def items_of(value: Any, steps: str | None) -> list[Item]:
    """The steps of one record; none where it is no object or has no steps there."""
    if not isinstance(value, dict):
        return []
    if steps is None:
        return [Item(value, {})]
    if steps == SIDE_BY_SIDE:
        return _side_by_side(value)
    return list(_nested(value, steps.split("."), {}))


def _nested(value: dict[str, Any], way: Sequence[str], around: dict[str, Any]) -> Iterator[Item]:
    """Steps at the end of a way of keys, each of which may hold a list; fields further in stand before outer ones."""
    key, *rest = way
    inside = value.get(key)
    inside = parsed_cell(inside) if isinstance(inside, str) else inside
    outer = around | {name: item for name, item in value.items() if name != key}
    for item in [inside] if isinstance(inside, dict) else sequence(inside):
        if not rest:
            yield Item(item if isinstance(item, dict) else {"value": item}, outer)
        elif isinstance(item, dict):
            yield from _nested(item, rest, outer)


def _side_by_side(value: dict[str, Any]) -> list[Item]:
    """Steps from lists of equal length; a list of observations may have one more, the last one."""
    parsed = {key: parsed_cell(item) if isinstance(item, str) else item for key, item in value.items()}
    lengths = Counter(len(item) for item in parsed.values() if isinstance(item, list) and item)
    if not lengths:
        return []
    n = max(lengths, key=lambda length: (lengths[length], -length))
    columns = {key: item for key, item in parsed.items() if isinstance(item, list) and len(item) in (n, n + 1)}
    outer = {key: item for key, item in value.items() if key not in columns}
    return [Item({key: column[i] for key, column in columns.items()}, outer) for i in range(n)]


def expanded(paths: Sequence[str], items: Sequence[Item]) -> list[str]:
    """Paths with ``obs_*`` replaced by the fields of that name, in the order of their numbers."""
    found: list[str] = []
    for path in paths:
        if not path.endswith("*"):
            found.append(path)
            continue
        start = path[:-1]
        keys = {key for item in items for key in item.inner if isinstance(key, str) and key.startswith(start)}
        found += sorted(keys, key=natural)
    return list(dict.fromkeys(found))


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts obs_2 before obs_10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in _DIGITS.split(name)]


# -- recognising a layout again ------------------------------------------------------------------------------


def fingerprint(values: Sequence[Any]) -> str:
    """Hash of the fields of records with their types, for finding the mapping of logs that look alike.

    A field counts if most records have it, so that one record more or less changes nothing.
    """
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    objects = [value for value in values if isinstance(value, dict)]
    for value in objects:
        for path, kind in set(_paths(value, _DEPTH)):
            seen[path][kind] += 1
    common = [(path, kinds) for path, kinds in seen.items() if 2 * kinds.total() >= len(objects)]
    # An empty cell says nothing about the type of its field; numbers written with and without a point are one type.
    signs = [f"{path}:{max(sorted(kinds), key=lambda kind: (kind != 'none', kinds[kind]))}" for path, kinds in common]
    return short_hash(json.dumps(sorted(signs)))


def _paths(value: dict[str, Any], depth: int, before: str = "") -> Iterator[tuple[str, str]]:
    """Paths of an object with the kind of their values; of a list of objects, those of its first one."""
    for key, item in value.items():
        path = f"{before}{key}"
        kind = kind_of(item)
        yield path, "number" if kind == "whole" else kind
        first = item[0] if isinstance(item, list) and item else item
        if isinstance(first, dict) and depth > 1:
            yield from _paths(first, depth - 1, f"{path}[]." if first is not item else f"{path}.")
