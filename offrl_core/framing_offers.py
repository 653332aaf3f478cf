"""What a log has to offer to a framing: fields of its states, arguments of its calls, parts of its rewards, buckets.

Fields are found in a sample of steps, evenly spread over the log, because reading the JSON of a million steps takes longer
than a choice may. The sample is bounded in rows and characters, and everything offered says how often it was met.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from .errors import InvalidConfig
from .framing_expressions import SAYS_SOMETHING
from .framing_parts import ToolArgument
from .log import Log
from .tokens import sql_text

SAMPLED_ROWS = 2_000
SAMPLED_CHARACTERS = 4_000_000
MAX_DEPTH = 5
MAX_FIELDS = 200
FEW_VALUES = 12
MAX_VALUE_LENGTH = 40
GROUPS = 8


class Field(NamedTuple):
    """A field of JSON texts: where, how often in the sample, and with how many different values there."""

    pointer: str
    n_rows: int
    n_values: int


class Offers(NamedTuple):
    """What can be chosen on a log."""

    state_fields: tuple[Field, ...]  # with at least two values in the sample, most frequent first
    arguments: tuple[Field, ...]
    components: tuple[Field, ...]
    n_sampled: int  # rows that state fields were looked for in
    n_tasks: int
    n_errors: int
    n_latencies: int  # steps with a known latency
    n_costs: int
    n_messages: int  # names that plain messages and final answers go by
    states_known: bool  # every step has a state_text


def framing_offers(log: Log) -> Offers:
    """What a log offers, found once."""
    found: Offers | None = log.derived.get("framing_offers")
    if found is None:
        n_tasks, n_errors, n_latencies, n_costs, n_messages, n_texts = log.rows(
            "SELECT count(DISTINCT task), count(error), count(latency_ms), count(cost_usd), "
            f"count(DISTINCT action) FILTER ({SAYS_SOMETHING}), count(state_text) FROM steps"
        )[0]
        states = _sample(log, "state")
        found = Offers(
            state_fields=tuple(f for f in _fields(states) if _tells_states_apart(f, len(states))),
            arguments=tuple(
                f for f in _fields(_sample(log, "arguments", "tool IS NOT NULL")) if f.pointer.count("/") == 1
            ),
            components=_fields(_sample(log, "reward_components")),
            n_sampled=len(states),
            n_tasks=n_tasks,
            n_errors=n_errors,
            n_latencies=n_latencies,
            n_costs=n_costs,
            n_messages=n_messages,
            states_known=n_texts == log.n_steps,
        )
        log.derived["framing_offers"] = found
    return found


def _tells_states_apart(field: Field, n_sampled: int) -> bool:
    """Whether it differs between steps, and isn't only where a conversation lies in the file."""
    differs = field.n_values > 1 or field.n_rows < n_sampled
    return differs and not field.pointer.startswith("/conversation_history/")


def _sample(log: Log, column: str, condition: str = "true") -> list[Any]:
    """Parsed JSON of some rows where the column isn't NULL, evenly spread over the log."""
    has = f"{column} IS NOT NULL AND {condition}"
    n = log.rows(f"SELECT count(*) FROM steps WHERE {has}")[0][0]
    stride = max(math.ceil(n / SAMPLED_ROWS), 1)
    numbered = f"SELECT row, {column}, row_number() OVER (ORDER BY row) AS place FROM steps WHERE {has}"
    texts = log.rows(f"SELECT {column} FROM ({numbered}) WHERE (place - 1) % {stride} = 0 ORDER BY row")
    parsed: list[Any] = []
    n_characters = 0
    for (text,) in texts:
        n_characters += len(text)
        if n_characters > SAMPLED_CHARACTERS and parsed:
            break
        try:
            parsed.append(json.loads(text))
        except (ValueError, RecursionError):
            continue
    return parsed


def _fields(values: list[Any]) -> tuple[Field, ...]:
    rows: dict[str, int] = {}
    seen: dict[str, set[str]] = {}
    for value in values:
        for pointer, leaf in _leaves(value, "", MAX_DEPTH):
            rows[pointer] = rows.get(pointer, 0) + 1
            seen.setdefault(pointer, set()).add(json.dumps(leaf, sort_keys=True, default=str))
    fields = [Field(pointer, n, len(seen[pointer])) for pointer, n in rows.items()]
    return tuple(sorted(fields, key=lambda field: (-field.n_rows, field.pointer))[:MAX_FIELDS])


def _leaves(value: Any, pointer: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Scalars and lists with their JSON pointers; objects are gone into."""
    if isinstance(value, dict) and depth:
        for name, inner in value.items():
            step = name.replace("~", "~0").replace("/", "~1")
            if step and "\0" not in step and len(pointer) + len(step) < 200:
                yield from _leaves(inner, f"{pointer}/{step}", depth - 1)
    elif pointer and value is not None:
        yield pointer, value


def argument_buckets(log: Log, pointer: str, groups: int = GROUPS) -> ToolArgument:
    """Buckets that fit an argument of this log: its values where they are few, cuts for numbers, else groups.

    Raises:
        InvalidConfig: no call has this argument.
    """
    value = f"TRY(json_extract_string(arguments, {sql_text(pointer)}))"
    given = (
        f"SELECT value, count(*) AS n FROM (SELECT {value} AS value FROM steps WHERE tool IS NOT NULL) GROUP BY value"
    )
    n_values, longest, n_numbers, n_calls = log.rows(
        f"SELECT count(*), max(length(value)), sum(n) FILTER (TRY_CAST(value AS DOUBLE) IS NOT NULL), sum(n) "
        f"FROM ({given}) WHERE value IS NOT NULL"
    )[0]
    if not n_values:
        raise InvalidConfig(f"No call of this log has the argument {pointer!r}.")
    if n_values <= FEW_VALUES and longest <= MAX_VALUE_LENGTH:
        values = log.rows(f"SELECT value FROM ({given}) WHERE value IS NOT NULL ORDER BY n DESC, value")
        return ToolArgument(pointer, "values", tuple(text for (text,) in values))
    if n_numbers == n_calls and (cuts := _cuts(log, value, groups)):
        return ToolArgument(pointer, "numbers", cuts)
    return ToolArgument(pointer, "hash", (str(groups),))


def _cuts(log: Log, value: str, groups: int) -> tuple[str, ...]:
    """Rising cut points that leave about equally many calls between them; none above which no call lies."""
    shares = [i / groups for i in range(1, groups)]
    number = f"TRY_CAST({value} AS DOUBLE)"
    cuts, highest = log.rows(
        f"SELECT quantile_disc({number}, {shares}), max({number}) FROM steps WHERE tool IS NOT NULL AND isfinite({number})"
    )[0]
    return tuple(f"{cut:.15g}" for cut in dict.fromkeys(cuts or ()) if cut < highest)
