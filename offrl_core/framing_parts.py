"""What a framing is chosen from: each choice is SQL, a phrase and a link token at once.

A state is made of parts (the last tools, whether the last one failed, the task, a field of the logged state, ...), so a
finer state is the same choice with one part more. An action is the tool, alone or with something of its arguments. A
reward is the outcome, the logged reward, weighted components or SQL.

To add one: a frozen dataclass with ``sql``, ``phrase``, ``token`` and ``shape``, and a line in ``STATE_PARTS``, ``ACTIONS``
or ``REWARDS``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from .errors import InvalidConfig
from .framing_expressions import TOOLS_USED
from .predicates import parse_expression
from .schema import COLUMN_NAMES
from .tokens import link_token, sql_text


class Choice(Protocol):
    """What every choice offers. ``kind`` starts its token, ``shape`` says how the token goes on."""

    kind: ClassVar[str]
    shape: ClassVar[str]

    @property
    def sql(self) -> str:
        """Expression over the columns of a step and the window ``episode``."""

    @property
    def phrase(self) -> str:
        """What it is, in words."""

    @property
    def token(self) -> str:
        """The choice as it stands in a link."""

    @classmethod
    def parse(cls, values: Sequence[str]) -> Choice:
        """From the values of a token; ValueError on nonsense."""


class _Plain:
    """A choice without anything to set."""

    __slots__ = ()
    kind: ClassVar[str]

    @property
    def token(self) -> str:
        """The kind alone."""
        return self.kind

    @classmethod
    def parse(cls, values: Sequence[str]) -> Any:
        """From a token without values."""
        if values:
            raise ValueError(f"{cls.kind} takes no value")
        return cls()


@dataclass(frozen=True, slots=True)
class _OwnSql:
    """SQL of a visitor, over the columns of a log."""

    expression: str
    kind: ClassVar[str] = "sql"
    shape: ClassVar[str] = "sql:EXPRESSION"

    def __post_init__(self) -> None:
        """Replace the expression by its canonical text."""
        object.__setattr__(self, "expression", parse_expression(self.expression, COLUMN_NAMES))

    @property
    def phrase(self) -> str:
        """Quotes the expression."""
        return self.expression

    @property
    def token(self) -> str:
        """sql:EXPRESSION."""
        return link_token(self.kind, self.expression)

    @classmethod
    def parse(cls, values: Sequence[str]) -> Self:
        """From the values of a token."""
        (expression,) = values
        return cls(expression)


# -- weights and paths --------------------------------------------------------------------------------------------


def weights_of(values: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """(name, weight) pairs from ``name=weight`` texts; ValueError on nonsense."""
    pairs = [value.rpartition("=") for value in values]
    return tuple((name, float(weight)) for name, _, weight in pairs)


def check_weights(weights: Sequence[tuple[str, float]], what: str) -> None:
    """InvalidConfig unless each name stands there once, with a finite weight."""
    names = [name for name, _ in weights]
    if not names or len(set(names)) < len(names):
        raise InvalidConfig(f"Give each {what} one weight, and at least one.")
    for name, weight in weights:
        _finite(weight, f"The weight of {name}")


def _finite(value: str | float, what: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidConfig(f"{what} is {value}; it must be a finite number.")
    return number


def _check_pointer(pointer: str) -> None:
    if not pointer.startswith("/") or len(pointer) > 200:
        raise InvalidConfig(f"{pointer[:80]!r} is no path of a field; write /memory/n, with ~1 for / and ~0 for ~.")
    if "\0" in pointer or any("\ud800" <= character <= "\udfff" for character in pointer):
        raise InvalidConfig("The path of a field contains a character that is no text (NUL or half a pair).")


def pointer_name(pointer: str) -> str:
    """A JSON pointer as people write paths: ``memory.n``."""
    return ".".join(step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/"))


# -- what a state is made of -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorldState(_Plain):
    """The state as its writer put it into words."""

    kind: ClassVar[str] = "world_state"
    shape: ClassVar[str] = "world_state"
    sql: ClassVar[str] = "state_text"
    phrase: ClassVar[str] = "the state as the log words it"


@dataclass(frozen=True, slots=True)
class Task(_Plain):
    """What the agent was asked to do."""

    kind: ClassVar[str] = "task"
    shape: ClassVar[str] = "task"
    sql: ClassVar[str] = "coalesce(task, '(no task)')"
    phrase: ClassVar[str] = "the task"


@dataclass(frozen=True, slots=True)
class StateField:
    """One field of the logged state, by its JSON pointer: ``/memory/n``."""

    pointer: str
    kind: ClassVar[str] = "field"
    shape: ClassVar[str] = "field:POINTER"

    def __post_init__(self) -> None:
        """Check the pointer."""
        _check_pointer(self.pointer)

    @property
    def sql(self) -> str:
        """Scalars as they are, lists and objects as JSON; a text that is no JSON has no fields."""
        return f"coalesce(TRY(json_extract_string(state, {sql_text(self.pointer)})), '(none)')"

    @property
    def phrase(self) -> str:
        """The path as people write it."""
        return f"{pointer_name(self.pointer)} of the logged state"

    @property
    def token(self) -> str:
        """field:POINTER."""
        return link_token(self.kind, self.pointer)

    @classmethod
    def parse(cls, values: Sequence[str]) -> StateField:
        """From the values of a token."""
        (pointer,) = values
        return cls(pointer)


@dataclass(frozen=True, slots=True)
class OwnState(_OwnSql):
    """SQL of a visitor; a step for which it is NULL is in the state "(none)"."""

    @property
    def sql(self) -> str:
        """As text, whatever it gives."""
        return f"coalesce(({self.expression})::VARCHAR, '(none)')"


@dataclass(frozen=True, slots=True)
class ToolsUsed(_Plain):
    """The set of tools the episode has called so far, in alphabetical order."""

    kind: ClassVar[str] = "used"
    shape: ClassVar[str] = "used"
    sql: ClassVar[str] = f"coalesce({TOOLS_USED}, 'nothing used')"
    phrase: ClassVar[str] = "the set of tools used so far"


MAX_TOOLS_BACK = 5


@dataclass(frozen=True, slots=True)
class LastTools:
    """The last k tools, oldest first."""

    k: int = 1
    kind: ClassVar[str] = "tools"
    shape: ClassVar[str] = "tools:K"

    def __post_init__(self) -> None:
        """Check k."""
        if not 1 <= self.k <= MAX_TOOLS_BACK:
            raise InvalidConfig(f"The state can hold the last 1 to {MAX_TOOLS_BACK} tools, not {self.k}.")

    @property
    def sql(self) -> str:
        """Fewer than k stand there at the start of an episode, and "start" before its first tool."""
        before = [f"coalesce(lag(action, {back}) OVER episode || ' > ', '') || " for back in range(self.k, 1, -1)]
        return "".join(before) + "coalesce(lag(action) OVER episode, 'start')"

    @property
    def phrase(self) -> str:
        """Names k."""
        return "the last tool" if self.k == 1 else f"the last {self.k} tools"

    @property
    def token(self) -> str:
        """tools:K."""
        return link_token(self.kind, self.k)

    @classmethod
    def parse(cls, values: Sequence[str]) -> LastTools:
        """From the values of a token."""
        (k,) = values
        return cls(int(k))


@dataclass(frozen=True, slots=True)
class LastFailed(_Plain):
    """Whether the step before failed."""

    kind: ClassVar[str] = "failed"
    shape: ClassVar[str] = "failed"
    sql: ClassVar[str] = "CASE WHEN lag(error) OVER episode IS NOT NULL THEN 'failed' ELSE 'no error' END"
    phrase: ClassVar[str] = "whether the last step failed"


FAILED_AFTER_TOOL = "CASE WHEN lag(error) OVER episode IS NOT NULL THEN ' (failed)' ELSE '' END"


@dataclass(frozen=True, slots=True)
class StepNumber(_Plain):
    """The position in the episode, from 1."""

    kind: ClassVar[str] = "step"
    shape: ClassVar[str] = "step"
    sql: ClassVar[str] = "'step ' || (row_number() OVER episode)"
    phrase: ClassVar[str] = "the step number"


# In the order in which they stand in a state key.
STATE_PARTS: dict[str, type[Choice]] = {
    part.kind: part for part in (WorldState, Task, StateField, OwnState, ToolsUsed, LastTools, LastFailed, StepNumber)
}


# -- what an action is -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tool(_Plain):
    """The tool, whatever it was called with."""

    kind: ClassVar[str] = "tool"
    shape: ClassVar[str] = "tool"
    sql: ClassVar[str] = "action"
    phrase: ClassVar[str] = "the tool"


@dataclass(frozen=True, slots=True)
class ToolShape(_Plain):
    """The tool and which arguments it was given."""

    kind: ClassVar[str] = "shape"
    shape: ClassVar[str] = "shape"
    # Stored arguments have their keys sorted already.
    sql: ClassVar[str] = (
        "CASE WHEN tool IS NULL THEN action WHEN arguments IS NULL THEN action || '(?)' "
        "ELSE action || '(' || coalesce(array_to_string(TRY(json_keys(arguments)), ', '), '?') || ')' END"
    )
    phrase: ClassVar[str] = "the tool and the names of its arguments"


MAX_BUCKETS = 50


@dataclass(frozen=True, slots=True)
class ToolArgument:
    """The tool and a bucket of one argument; calls without it keep the tool's bare name.

    The buckets stand in the choice itself, so an action means the same whatever log it is applied to.

    Attributes:
        pointer: JSON pointer of the argument, ``/amount``.
        by: ``values`` (each of ``buckets`` by itself, all else together), ``numbers`` (``buckets`` are cut points, rising;
            a number goes below the first cut that isn't smaller) or ``hash`` (``buckets`` is one number of groups).
        buckets: texts, see ``by``.
    """

    pointer: str
    by: str
    buckets: tuple[str, ...]
    kind: ClassVar[str] = "argument"
    shape: ClassVar[str] = "argument:POINTER:values|numbers|hash:BUCKET:..."

    def __post_init__(self) -> None:
        """Check the buckets."""
        _check_pointer(self.pointer)
        if self.by not in ("values", "numbers", "hash"):
            raise InvalidConfig(f"Arguments are grouped by values, numbers or hash, not by {self.by!r}.")
        if not 1 <= len(set(self.buckets)) == len(self.buckets) <= MAX_BUCKETS:
            raise InvalidConfig(f"An argument needs 1 to {MAX_BUCKETS} different buckets.")
        if self.by == "numbers" and self._cuts != sorted(self._cuts):
            raise InvalidConfig(f"The cut points {', '.join(self.buckets)} don't rise.")
        if self.by == "hash" and not (len(self.buckets) == 1 and 2 <= self._cuts[0] <= MAX_BUCKETS):
            raise InvalidConfig(f"Arguments are hashed into 2 to {MAX_BUCKETS} groups.")

    @property
    def _cuts(self) -> list[float]:
        return [_finite(bucket, "a bucket of an argument") for bucket in self.buckets]

    @property
    def sql(self) -> str:
        """The bucket in parentheses behind the tool."""
        value = f"TRY(json_extract_string(arguments, {sql_text(self.pointer)}))"
        name = sql_text(f"{pointer_name(self.pointer)}")
        bucket = {"values": self._by_values, "numbers": self._by_numbers, "hash": self._by_hash}[self.by](value)
        return (
            f"CASE WHEN tool IS NULL OR {value} IS NULL THEN action ELSE action || '(' || {name} || {bucket} || ')' END"
        )

    def _by_values(self, value: str) -> str:
        listed = ", ".join(map(sql_text, self.buckets))
        return f"CASE WHEN {value} IN ({listed}) THEN '=' || {value} ELSE ': another' END"

    def _by_numbers(self, value: str) -> str:
        number = f"TRY_CAST({value} AS DOUBLE)"
        cases = [f"WHEN {number} IS NULL THEN ': no number'"]
        cases += [f"WHEN {number} <= {float(cut)!r} THEN {sql_text(f' ≤ {cut}')}" for cut in self.buckets]
        return f"CASE {' '.join(cases)} ELSE {sql_text(f' > {self.buckets[-1]}')} END"

    def _by_hash(self, value: str) -> str:
        """MD5, because DuckDB's own hash may change between versions."""
        groups = int(self._cuts[0])
        return f"' group ' || (md5_number_lower({value}) % {groups} + 1) || {sql_text(f' of {groups}')}"

    @property
    def phrase(self) -> str:
        """Names the argument and how it is grouped."""
        how = {
            "values": f"in {len(self.buckets)} values and the rest",
            "numbers": f"cut at {', '.join(self.buckets)}",
            "hash": f"in {self.buckets[0]} groups by hash",
        }[self.by]
        return f"the tool and its argument {pointer_name(self.pointer)} ({how})"

    @property
    def token(self) -> str:
        """argument:POINTER:BY:BUCKET:..."""
        return link_token(self.kind, self.pointer, self.by, *self.buckets)

    @classmethod
    def parse(cls, values: Sequence[str]) -> ToolArgument:
        """From the values of a token."""
        pointer, by, *buckets = values
        return cls(pointer, by, tuple(buckets))


ACTIONS: dict[str, type[Choice]] = {action.kind: action for action in (Tool, ToolShape, ToolArgument)}


# -- what the reward is ------------------------------------------------------------------------------------------

_IS_LAST = "lead(t) OVER episode IS NULL"


@dataclass(frozen=True, slots=True)
class Outcome(_Plain):
    """All that an episode earned, at its end."""

    kind: ClassVar[str] = "outcome"
    shape: ClassVar[str] = "outcome"
    sql: ClassVar[str] = f"CASE WHEN {_IS_LAST} THEN sum(reward) OVER (PARTITION BY episode_id) ELSE 0 END"
    phrase: ClassVar[str] = "the episode's, at its end"


@dataclass(frozen=True, slots=True)
class LoggedReward(_Plain):
    """The reward as logged."""

    kind: ClassVar[str] = "logged"
    shape: ClassVar[str] = "logged"
    sql: ClassVar[str] = "reward"
    phrase: ClassVar[str] = "as logged, step by step"


@dataclass(frozen=True, slots=True)
class Components:
    """Parts of the reward by JSON pointer, weighted and added up at the end of the episode."""

    weights: tuple[tuple[str, float], ...]
    kind: ClassVar[str] = "components"
    shape: ClassVar[str] = "components:POINTER=WEIGHT:..."

    def __post_init__(self) -> None:
        """Check names and weights."""
        check_weights(self.weights, "reward component")
        for pointer, _ in self.weights:
            _check_pointer(pointer)

    @property
    def sql(self) -> str:
        """Unknown where an episode lacks one of them; true counts as 1."""
        parts = [
            f"{weight!r} * sum({_number_in(pointer)}) OVER (PARTITION BY episode_id)"
            for pointer, weight in self.weights
        ]
        return f"CASE WHEN {_IS_LAST} THEN {' + '.join(parts)} ELSE 0 END"

    @property
    def phrase(self) -> str:
        """Names each with its weight."""
        return " + ".join(f"{weight:g} × {pointer_name(p)}" for p, weight in self.weights) + ", at the end"

    @property
    def token(self) -> str:
        """components:POINTER=WEIGHT:..."""
        return link_token(self.kind, *(f"{pointer}={weight!r}" for pointer, weight in self.weights))

    @classmethod
    def parse(cls, values: Sequence[str]) -> Components:
        """From the values of a token."""
        return cls(weights_of(values))


def _number_in(pointer: str) -> str:
    value = f"TRY(json_extract_string(reward_components, {sql_text(pointer)}))"
    return f"coalesce(TRY_CAST({value} AS DOUBLE), TRY_CAST({value} AS BOOLEAN)::DOUBLE)"


@dataclass(frozen=True, slots=True)
class OwnReward(_OwnSql):
    """SQL of a visitor; NULL is unknown."""

    @property
    def sql(self) -> str:
        """As a number."""
        return f"({self.expression})::DOUBLE"


REWARDS: dict[str, type[Choice]] = {reward.kind: reward for reward in (Outcome, LoggedReward, Components, OwnReward)}
