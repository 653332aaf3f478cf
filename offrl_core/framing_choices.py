"""What people choose as state, action and reward: each choice is SQL, a phrase and a link token at once.

A state is made of parts (the last tools, whether the last one failed, the task, a field of the logged state, ...), so a
finer state is the same choice with one part more. An action is the tool, alone or with something of its arguments. A
reward is the outcome, the logged reward, weighted components or SQL, less what steps cost.

To add one: a frozen dataclass with ``sql``, ``phrase``, ``token`` and ``shape``, and a line in ``STATE_PARTS``, ``ACTIONS``
or ``REWARDS``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self
from urllib.parse import unquote

from .errors import InvalidConfig
from .framing_expressions import TOOLS_USED, Framing, check_discount, with_one_message
from .predicates import hindsight_columns, looks_ahead, parse_expression
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


_FAILED_AFTER_TOOL = "CASE WHEN lag(error) OVER episode IS NOT NULL THEN ' (failed)' ELSE '' END"


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
MAX_PARTS = 12


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
_ONE_MESSAGE = "onemessage"


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
        _check_weights(self.weights, "reward component")
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
        return cls(_weights(values))


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

# What a step can cost: column -> (SQL amount, unit of the weight).
COSTS: dict[str, tuple[str, str]] = {
    "latency_ms": ("latency_ms / 1000", "second of latency"),
    "cost_usd": ("cost_usd", "dollar"),
    "error": ("(error IS NOT NULL)::INTEGER", "failed step"),
}
_COSTS = "costs"


# -- all together ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FramingChoices:
    """What counts as state, action and reward.

    Attributes:
        state: parts of the state; kept in the order of :data:`STATE_PARTS`.
        action: what an action is.
        one_message: whether plain messages and final answers are one action.
        reward: what a step earns.
        costs: (column of :data:`COSTS`, weight) pairs; weight times amount is subtracted at each step.
        discount: γ, between 0 and 1.
    """

    state: tuple[Choice, ...]
    action: Choice = Tool()
    one_message: bool = False
    reward: Choice = Outcome()
    costs: tuple[tuple[str, float], ...] = ()
    discount: float = 0.99

    def __post_init__(self) -> None:
        """Order the parts and check that each kind is there once, fields apart."""
        order = list(STATE_PARTS)
        parts = tuple(sorted(dict.fromkeys(self.state), key=lambda part: (order.index(part.kind), part.token)))
        kinds = [part.kind for part in parts if not isinstance(part, StateField)]
        if not 1 <= len(parts) <= MAX_PARTS or len(set(kinds)) < len(kinds):
            raise InvalidConfig(f"A state has 1 to {MAX_PARTS} parts, each kind once (several fields are fine).")
        object.__setattr__(self, "state", parts)
        if self.costs:
            _check_weights(self.costs, "cost")
        object.__setattr__(self, "costs", tuple(sorted(self.costs)))
        unknown = {column for column, _ in self.costs} - set(COSTS)
        if unknown:
            raise InvalidConfig(f"A step can't cost {', '.join(sorted(unknown))}; it can cost {', '.join(COSTS)}.")
        check_discount(self.discount)

    def framing(self) -> Framing:
        """The choices as SQL."""
        name = preset_name(self)
        return Framing(
            state=self._state_sql,
            action=with_one_message(self.action.sql) if self.one_message else self.action.sql,
            reward=self._reward_sql,
            discount=self.discount,
            title=PRESET_TITLES[name] if name else "Your own framing",
            sentence=self.sentence,
        )

    @property
    def _state_sql(self) -> str:
        if self.state == (WorldState(),):
            return WorldState.sql  # a bare column needs no query
        written: list[str] = []
        for i, part in enumerate(self.state):
            before = self.state[:i]
            if isinstance(part, LastFailed) and before and isinstance(before[-1], LastTools):
                written[-1] += f" || {_FAILED_AFTER_TOOL}"
            else:
                written.append(f"coalesce({part.sql}, '(none)')" if isinstance(part, WorldState) else part.sql)
        return " || ' · ' || ".join(written)

    @property
    def _reward_sql(self) -> str:
        costs = [f" - {weight!r} * ({COSTS[column][0]})" for column, weight in self.costs]
        return f"({self.reward.sql}){''.join(costs)}" if costs else self.reward.sql

    @property
    def sentence(self) -> str:
        """All of it, in words."""
        action = self.action.phrase + (", all plain messages as one" if self.one_message else "")
        costs = "".join(f", less {weight:g} per {COSTS[column][1]}" for column, weight in self.costs)
        return (
            f"state = {_listed(part.phrase for part in self.state)}; action = {action}; "
            f"reward = {self.reward.phrase}{costs}; discount γ = {self.discount:g}"
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes a state useless to an agent that has to act on it."""
        found = []
        for part in self.state:
            if not isinstance(part, OwnState):
                continue
            if looks_ahead(part.expression):
                found.append("The state's SQL reads later steps of the episode, which no agent can know when it acts.")
            late = sorted(hindsight_columns(part.expression) & KNOWN_AFTER_ACTING)
            if late:
                found.append(
                    f"The state's SQL reads {', '.join(late)} of the step itself, known only after acting. "
                    f"Look back instead: lag({late[0]}) OVER episode."
                )
        return tuple(found)

    def with_part(self, part: Choice) -> FramingChoices:
        """The same with one more part of the state; a part of the same kind makes room, fields apart."""
        kept = [p for p in self.state if isinstance(p, StateField) or p.kind != part.kind]
        return replace(self, state=(*kept, part))

    @property
    def link(self) -> str:
        """The choices as they stand in a link: STATE+STATE,ACTION,REWARD,DISCOUNT; see :meth:`from_link`."""
        action = [self.action.token, *([_ONE_MESSAGE] if self.one_message else [])]
        costs = [link_token(_COSTS, *(f"{column}={weight!r}" for column, weight in self.costs))] if self.costs else []
        tokens = [part.token for part in self.state], action, [self.reward.token, *costs], [repr(self.discount)]
        return ",".join("+".join(part) for part in tokens)

    @classmethod
    def from_link(cls, text: str) -> FramingChoices:
        """Inverse of :attr:`link`; the name of a preset stands for the preset.

        Raises:
            InvalidConfig: it stands for no framing.
            InvalidPredicate: SQL in it isn't one plain expression.
        """
        if text in PRESETS:
            return PRESETS[text]
        try:
            state, action, reward, discount = (part.split("+") for part in text.split(","))
            costs = [_values(token) for token in reward[1:]]
            if action[1:] not in ([], [_ONE_MESSAGE]) or len(costs) > 1 or any(kind != _COSTS for kind, _ in costs):
                raise ValueError(text)
            (number,) = discount
            return cls(
                state=tuple(_choice(token, STATE_PARTS) for token in state),
                action=_choice(action[0], ACTIONS),
                one_message=len(action) > 1,
                reward=_choice(reward[0], REWARDS),
                costs=_weights(costs[0][1]) if costs else (),
                discount=float(number),
            )
        except (ValueError, TypeError) as error:
            raise InvalidConfig(
                f"The framing {text[:200]!r} can't be read; it is the name of a preset ({', '.join(PRESETS)}) or "
                "STATE+STATE,ACTION,REWARD,DISCOUNT, such as tools:2+failed,tool,outcome,0.99."
            ) from error


KNOWN_AFTER_ACTING = frozenset(
    """action action_type tool arguments arguments_raw arguments_status arguments_hash call_index tool_result error reward
    terminal timeout end_reason action_logprob action_logprobs reward_components latency_ms cost_usd safety_flags""".split()
)


def _values(token: str) -> tuple[str, list[str]]:
    kind, *values = token.split(":")
    return kind, [unquote(value) for value in values]


def _choice(token: str, known: Mapping[str, type[Choice]]) -> Choice:
    kind, values = _values(token)
    if kind not in known:
        raise InvalidConfig(f"The framing of the link asks for {kind!r}; known are {', '.join(known)}.")
    try:
        return known[kind].parse(values)
    except (ValueError, TypeError) as error:
        raise InvalidConfig(f"{token!r} in the framing can't be read; expected {known[kind].shape}.") from error


def _weights(values: Sequence[str]) -> tuple[tuple[str, float], ...]:
    pairs = [value.rpartition("=") for value in values]
    return tuple((name, float(weight)) for name, _, weight in pairs)


def _check_weights(weights: Sequence[tuple[str, float]], what: str) -> None:
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


def _listed(phrases: Iterable[str]) -> str:
    *before, last = phrases
    return f"{', '.join(before)} and {last}" if before else last


# -- presets -----------------------------------------------------------------------------------------------------

PRESETS: dict[str, FramingChoices] = {
    "world_state": FramingChoices(state=(WorldState(),), reward=LoggedReward()),
    "last_tool": FramingChoices(state=(LastTools(1), LastFailed())),
    "step": FramingChoices(state=(StepNumber(),)),
    "last_tools": FramingChoices(state=(LastTools(3), LastFailed())),
    "tools_used": FramingChoices(state=(ToolsUsed(),)),
    "task_last_tool": FramingChoices(state=(Task(), LastTools(1))),
}
PRESET_TITLES: dict[str, str] = {
    "world_state": "State as the world wrote it",
    "last_tool": "Last tool and whether it failed",
    "step": "Position in the episode",
    "last_tools": "Last three tools and whether the last one failed",
    "tools_used": "Set of tools used so far",
    "task_last_tool": "Task and last tool",
}


def preset_name(choices: FramingChoices) -> str | None:
    """Name of the preset that these choices are, if they are one."""
    return next((name for name, preset in PRESETS.items() if preset == choices), None)
