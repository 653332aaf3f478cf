"""Rules that judge an episode from its own steps: true, false, or unknown where the log doesn't tell.

Regular expressions run in RE2 (Arrow's), which takes time in proportion to the text; what it multiplies is the size of the
pattern, so counted repeats are limited, long texts are judged by their end, and a clock runs between batches.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from .errors import InvalidConfig, InvalidPredicate
from .log import Log
from .predicates import parse_predicate
from .schema import COLUMN_NAMES

# Rule -> what it says of an episode, in words; {text} and {on} are filled in.
RULES: dict[str, str] = {
    "contains": "{on} contains {text}",
    "matches": "{on} matches the regular expression {text}",
    "no_error": "no tool error in the whole episode",
    "last_call": "the last call succeeded",
    "called": "{text} was called",
    "sql": "{text} holds on {on}",
}
_MESSAGE = "CASE WHEN action_type = 'message' AND json_valid(arguments) THEN arguments ->> 'text' END"
_RESULT = "CASE WHEN action_type IS DISTINCT FROM 'message' THEN tool_result END"
# Text -> (SQL over one step, in words). The last step where it isn't NULL counts.
TEXTS: dict[str, tuple[str, str]] = {
    "message": (_MESSAGE, "the agent's last message"),
    "result": (_RESULT, "the last tool result"),
    "either": (f"coalesce({_MESSAGE}, {_RESULT})", "the last message or tool result"),
    "call": ("CASE WHEN action_type IS DISTINCT FROM 'message' THEN arguments END", "the arguments of the last call"),
}
STEPS: dict[str, str] = {"last": "the last step", "any": "at least one step", "every": "every step"}

MAX_PATTERN = 500  # characters
MAX_EXPANDED = 4_000  # characters of a pattern whose counted repeats are written out
LONGEST_TEXT = 20_000  # characters judged by a regular expression, from the end
MAX_SECONDS = 10.0
_BATCH = 100_000  # characters between two looks at the clock
_REPEAT = re.compile(r"\{(\d{0,6})(,?)(\d{0,6})\}")

_IS_CALL = "action_type IS DISTINCT FROM 'message'"
_ANSWERED = f"{_IS_CALL} AND (tool_result IS NOT NULL OR error IS NOT NULL)"
_NO_ERROR = (
    "CASE WHEN count(error) > 0 THEN false "
    f"WHEN count(*) FILTER (WHERE {_ANSWERED}) > 0 THEN true END"  # where no result was recorded, errors weren't either
)
_LAST_CALL = (
    f"(arg_max([CASE WHEN error IS NOT NULL THEN false WHEN tool_result IS NOT NULL THEN true END], t) "
    f"FILTER (WHERE {_IS_CALL}))[1]"
)


def judge(log: Log, rule: str, text: str, on: str, ignore_case: bool) -> list[bool | None]:
    """What a rule says of each episode, in the order of the log; None is unknown.

    Args:
        log: the steps.
        rule: key of :data:`RULES`.
        text: what to look for: plain text, a pattern, the name of a tool, or SQL.
        on: key of :data:`TEXTS`, or of :data:`STEPS` for SQL.
        ignore_case: for texts and patterns.

    Raises:
        InvalidConfig: the pattern is none, or costs too much.
        InvalidPredicate: the SQL is no plain condition over the columns of a step, or doesn't fit their types.
    """
    if rule in ("contains", "matches"):
        texts = [row[0] for row in _by_episode(log, _last(TEXTS[on][0]))]
        return _contain(texts, text, ignore_case) if rule == "contains" else _match(texts, text, ignore_case)
    if rule == "called":
        return [row[0] for row in _by_episode(log, "count(*) FILTER (WHERE action = ?) > 0", [text])]
    if rule == "sql":
        return [row[0] for row in _by_episode(log, _of_condition(parse_predicate(text, COLUMN_NAMES), on))]
    return [row[0] for row in _by_episode(log, _NO_ERROR if rule == "no_error" else _LAST_CALL)]


def count_cut(log: Log, on: str) -> int:
    """Episodes whose text is longer than what a regular expression looks at."""
    [row] = log.rows(
        f"SELECT count(*) FROM (SELECT {_last(TEXTS[on][0])} AS text FROM steps GROUP BY episode_id) "
        f"WHERE length(text) > {LONGEST_TEXT}"
    )
    return int(row[0])


def _by_episode(log: Log, sql: str, parameters: list[str] | None = None) -> list[tuple[Any, ...]]:
    try:
        return log.rows(f"SELECT {sql} FROM steps GROUP BY episode_id ORDER BY min(row)", list(parameters or []))
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise InvalidPredicate(f"The condition can't be computed on this log: {reason}") from error


def _last(sql: str) -> str:
    return f"arg_max({sql}, t) FILTER (WHERE ({sql}) IS NOT NULL)"


def _of_condition(condition: str, on: str) -> str:
    """Verdict of an episode from a condition on its steps, with SQL's three values."""
    holds = f"(({condition})::BOOLEAN)"
    if on == "last":
        return f"arg_max([{holds}], t)[1]"
    wanted = holds if on == "any" else f"(NOT {holds})"
    found = f"CASE WHEN bool_or({wanted}) THEN true WHEN count(*) > count({holds}) THEN NULL ELSE false END"
    return found if on == "any" else f"NOT ({found})"


# -- texts ---------------------------------------------------------------------------------------------------


def _contain(texts: Sequence[str | None], wanted: str, ignore_case: bool) -> list[bool | None]:
    if not wanted:
        raise InvalidConfig("Give the text to look for.")
    if ignore_case:
        wanted = wanted.casefold()
        return [None if text is None else wanted in text.casefold() for text in texts]
    return [None if text is None else wanted in text for text in texts]


def _match(texts: Sequence[str | None], pattern: str, ignore_case: bool) -> list[bool | None]:
    check_pattern(pattern)
    found: list[bool | None] = []
    end = time.monotonic() + MAX_SECONDS
    for batch in _batches([None if text is None else text[-LONGEST_TEXT:] for text in texts]):
        if time.monotonic() > end:
            raise InvalidConfig(
                f"The regular expression took more than {MAX_SECONDS:g} s for {len(found):,} of {len(texts):,} episodes. "
                "Make it simpler."
            )
        try:
            column = pa.array(batch, pa.string())
            found += pc.match_substring_regex(column, pattern, ignore_case=ignore_case).to_pylist()
        except pa.ArrowInvalid as error:
            raise InvalidConfig(f"The regular expression can't be read: {_reason(error)}.") from error
    return found


def _batches(texts: Sequence[str | None]) -> Iterator[list[str | None]]:
    batch: list[str | None] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text or "")
        if size > _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def check_pattern(pattern: str) -> None:
    r"""Refuse a pattern that could cost seconds per episode.

    >>> check_pattern(r"\d{4}-\d{2}-\d{2}")

    Raises:
        InvalidConfig: it is empty, too long, or its counted repeats multiply to too much.
    """
    if not pattern:
        raise InvalidConfig("Give the regular expression to look for.")
    if len(pattern) > MAX_PATTERN:
        raise InvalidConfig(f"The regular expression has {len(pattern):,} characters; at most {MAX_PATTERN} are read.")
    repeats = [max(int(low or 0), int(high or 0), 1) for low, _, high in _REPEAT.findall(pattern)]
    if len(pattern) * math.prod(repeats) > MAX_EXPANDED:
        raise InvalidConfig(
            f"The counted repeats of the regular expression multiply to {math.prod(repeats):,} copies of its parts, which "
            "could take minutes. Use smaller counts, or * and +."
        )


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].removeprefix("Invalid regular expression: ").rstrip(".")
