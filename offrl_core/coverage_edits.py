"""Coverage edits: removals with three faces - a SQL predicate, an English sentence, a link token.

An edit says which of three things it does: drop the *transitions* (other steps stay, so sequence methods and importance
sampling must refuse the result), drop the *episodes* that contain them (sequences stay whole, the task mix shifts), or
*re-collect* with a behavior policy that never does it (worlds only). Edits compose in order; re-collections come first,
because they replace the log itself.

To add one: a frozen dataclass with ``keep_sql``, ``sentence``, ``token`` and ``shape``, and a line in ``EDITS``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol
from urllib.parse import unquote

from .errors import InvalidEdit
from .framing import FRAMED_COLUMNS
from .predicates import parse_predicate, predicate_columns
from .schema import COLUMN_NAMES
from .tokens import link_token, sql_text

How = Literal["transitions", "episodes", "recollect"]
HOW_CHOICES: dict[str, str] = {
    "recollect": "re-collect: the agent never does it",
    "episodes": "drop the episodes that contain it",
    "transitions": "drop only these steps",
}

PREDICATE_COLUMNS: tuple[str, ...] = (*COLUMN_NAMES, *FRAMED_COLUMNS)


class CoverageEdit(Protocol):
    """What every edit offers. ``kind`` starts its token, ``shape`` says how the token goes on."""

    kind: ClassVar[str]
    shape: ClassVar[str]

    @property
    def breaks_sequences(self) -> bool:
        """Whether episodes may lose steps from their middle."""

    @property
    def columns(self) -> frozenset[str]:
        """Columns it reads, of the steps and of the framing; each row has its number and its episode's beside them."""

    @property
    def keep_sql(self) -> str:
        """SELECT over a relation called ``before`` that keeps what the edit keeps."""

    @property
    def sentence(self) -> str:
        """What the edit does, in words."""

    @property
    def token(self) -> str:
        """The edit as it stands in a link; :func:`parse_token` is the inverse."""


@dataclass(frozen=True, slots=True)
class DropAction:
    """Take an action out of the log: everywhere, or where a SQL condition holds."""

    action: str
    where: str = ""
    how: How = "episodes"
    kind: ClassVar[str] = "drop"
    shape: ClassVar[str] = "drop:ACTION:HOW[:CONDITION]"

    def __post_init__(self) -> None:
        """Check ``how`` and replace the condition by its canonical text."""
        if self.how not in HOW_CHOICES:
            raise InvalidEdit(f"how is {self.how!r}; it must be one of {', '.join(HOW_CHOICES)}.")
        if self.where:
            object.__setattr__(self, "where", parse_predicate(self.where, PREDICATE_COLUMNS))

    @property
    def condition(self) -> str:
        """SQL condition of the steps that go."""
        condition = f"action_name = {sql_text(self.action)}"
        return f"{condition} AND ({self.where})" if self.where else condition

    @property
    def columns(self) -> frozenset[str]:
        """The name of the action, and those of the condition."""
        return self.columns_of_where | {"action_name"}

    @property
    def columns_of_where(self) -> frozenset[str]:
        """Columns that the condition reads."""
        return predicate_columns(self.where) if self.where else frozenset()

    @property
    def breaks_sequences(self) -> bool:
        """Only dropping single transitions tears episodes."""
        return self.how == "transitions"

    @property
    def keep_sql(self) -> str:
        """Keep everything else; on a log that was collected again this drops nothing, and says what is not in it."""
        return _drop_sql(self.condition, self.how)

    @property
    def sentence(self) -> str:
        """Names the action, the condition and which of the three removals it is."""
        where = f" where {self.where}" if self.where else ""
        if self.how == "recollect":
            return f"The log is collected again by an agent that never calls {self.action}{where}."
        return f"{_removed(self.how)} that call {self.action}{where}{_kept(self.how)}."

    @property
    def token(self) -> str:
        """drop:ACTION:HOW or drop:ACTION:HOW:CONDITION."""
        return link_token(self.kind, self.action, self.how, *([self.where] if self.where else []))

    @classmethod
    def parse(cls, values: Sequence[str]) -> DropAction:
        """From the values of a token."""
        action, how, where = values if len(values) > 2 else [*values, "", ""][:3]
        return cls(action, where, how or "episodes")  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class DropWhere:
    """Drop the steps, or the episodes, where a SQL condition holds."""

    where: str
    how: Literal["transitions", "episodes"] = "episodes"
    kind: ClassVar[str] = "where"
    shape: ClassVar[str] = "where:HOW:CONDITION"

    def __post_init__(self) -> None:
        """Check ``how`` and replace the condition by its canonical text."""
        if self.how not in ("transitions", "episodes"):
            raise InvalidEdit(f"how is {self.how!r}; a condition can drop transitions or episodes.")
        object.__setattr__(self, "where", parse_predicate(self.where, PREDICATE_COLUMNS))

    @property
    def columns(self) -> frozenset[str]:
        """Those of the condition."""
        return predicate_columns(self.where) if self.where else frozenset()

    @property
    def breaks_sequences(self) -> bool:
        """Only dropping single transitions tears episodes."""
        return self.how == "transitions"

    @property
    def keep_sql(self) -> str:
        """Keep what doesn't meet the condition (a NULL condition keeps)."""
        return _drop_sql(self.where, self.how)

    @property
    def sentence(self) -> str:
        """Quotes the condition."""
        return f"{_removed(self.how)} where {self.where}{_kept(self.how)}."

    @property
    def token(self) -> str:
        """where:HOW:CONDITION."""
        return link_token(self.kind, self.how, self.where)

    @classmethod
    def parse(cls, values: Sequence[str]) -> DropWhere:
        """From the values of a token."""
        how, where = values
        return cls(where, how)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class KeepFraction:
    """Keep a seeded random fraction of the episodes; a larger fraction keeps all that a smaller one keeps."""

    fraction: float
    seed: int = 0
    breaks_sequences: ClassVar[bool] = False
    columns: ClassVar[frozenset[str]] = frozenset({"episode_id"})
    kind: ClassVar[str] = "keep"
    shape: ClassVar[str] = "keep:FRACTION[:SEED]"

    def __post_init__(self) -> None:
        """Check the fraction."""
        if not 0 <= self.fraction <= 1:
            raise InvalidEdit(f"The fraction to keep is {self.fraction}; it must lie between 0 and 1.")

    @property
    def keep_sql(self) -> str:
        """MD5 of seed and id, because DuckDB's own hash may change between versions."""
        return f"SELECT * FROM before WHERE {_drawn_number(self.seed)} < {self.fraction!r}"

    @property
    def sentence(self) -> str:
        """Names fraction and seed."""
        return f"Keeps {100 * self.fraction:.3g} % of the episodes, drawn at random (seed {self.seed})."

    @property
    def token(self) -> str:
        """keep:FRACTION:SEED."""
        return link_token(self.kind, self.fraction, self.seed)

    @classmethod
    def parse(cls, values: Sequence[str]) -> KeepFraction:
        """From the values of a token."""
        fraction, seed = values if len(values) > 1 else [*values, "0"]
        return cls(float(fraction), int(seed))


@dataclass(frozen=True, slots=True)
class KeepRest:
    """Keep what :class:`KeepFraction` with the same values leaves out: to learn from one part and judge on the other."""

    fraction: float
    seed: int = 0
    breaks_sequences: ClassVar[bool] = False
    columns: ClassVar[frozenset[str]] = frozenset({"episode_id"})
    kind: ClassVar[str] = "rest"
    shape: ClassVar[str] = "rest:FRACTION[:SEED]"

    def __post_init__(self) -> None:
        """Check the fraction."""
        if not 0 <= self.fraction <= 1:
            raise InvalidEdit(f"The fraction to leave out is {self.fraction}; it must lie between 0 and 1.")

    @property
    def keep_sql(self) -> str:
        """The complement, number for number."""
        return f"SELECT * FROM before WHERE {_drawn_number(self.seed)} >= {self.fraction!r}"

    @property
    def sentence(self) -> str:
        """Names fraction and seed."""
        return (
            f"Keeps the other {100 - 100 * self.fraction:.3g} % of the episodes, once {100 * self.fraction:.3g} % were drawn at "
            f"random (seed {self.seed})."
        )

    @property
    def token(self) -> str:
        """rest:FRACTION:SEED."""
        return link_token(self.kind, self.fraction, self.seed)

    @classmethod
    def parse(cls, values: Sequence[str]) -> KeepRest:
        """From the values of a token."""
        fraction, seed = values if len(values) > 1 else [*values, "0"]
        return cls(float(fraction), int(seed))


def _drawn_number(seed: int) -> str:
    """SQL of a number from 0 to 1, drawn for each episode."""
    return f"md5_number_lower({sql_text(f'{seed}:')} || episode_id) / 18446744073709551616.0"


def split_edits(
    edits: Sequence[CoverageEdit], fraction: float = 0.5, seed: int = 0
) -> tuple[tuple[CoverageEdit, ...], tuple[CoverageEdit, ...]]:
    """Edits that leave a part to learn from, and edits that leave the rest to judge with; no episode is in both.

    A seed that an edit has used already would draw the same episodes again, and leave one part empty: the next free one is
    taken.

    Args:
        edits: applied before the split.
        fraction: of the episodes to learn from, above 0 and below 1.
        seed: of the draw.

    Raises:
        InvalidEdit: the fraction leaves nothing on one side.
    """
    if not 0 < fraction < 1:
        raise InvalidEdit(
            f"The fraction to learn from is {fraction}; it must lie between 0 and 1, and leave something."
        )
    taken = {edit.seed for edit in edits if isinstance(edit, KeepFraction | KeepRest)}
    seed = next(number for number in range(seed, seed + len(taken) + 1) if number not in taken)
    return (*edits, KeepFraction(fraction, seed)), (*edits, KeepRest(fraction, seed))


@dataclass(frozen=True, slots=True)
class MinReturn:
    """Keep only episodes whose undiscounted return reaches a bound; unknown returns go."""

    min_return: float
    breaks_sequences: ClassVar[bool] = False
    columns: ClassVar[frozenset[str]] = frozenset({"episode_return"})
    kind: ClassVar[str] = "minreturn"
    shape: ClassVar[str] = "minreturn:BOUND"

    def __post_init__(self) -> None:
        """Check that the bound is a number."""
        if not math.isfinite(self.min_return):
            raise InvalidEdit(f"The smallest return is {self.min_return}; it must be a finite number.")

    @property
    def keep_sql(self) -> str:
        """Episodes without a known return are not kept."""
        return f"SELECT * FROM before WHERE episode_return >= {self.min_return!r}"

    @property
    def sentence(self) -> str:
        """Names the bound."""
        return f"Keeps only episodes with a return of at least {self.min_return:g} (undiscounted)."

    @property
    def token(self) -> str:
        """minreturn:BOUND."""
        return link_token(self.kind, self.min_return)

    @classmethod
    def parse(cls, values: Sequence[str]) -> MinReturn:
        """From the values of a token."""
        (bound,) = values
        return cls(float(bound))


VERSION_COLUMNS = (
    "behavior_policy",
    "prompt_version",
    "tool_schema_version",
    "environment_version",
    "split",
    "task",
)


@dataclass(frozen=True, slots=True)
class OnlyValue:
    """Keep only steps of one behavior policy, version, split or task."""

    column: str
    value: str
    breaks_sequences: ClassVar[bool] = False
    kind: ClassVar[str] = "only"
    shape: ClassVar[str] = "only:COLUMN:VALUE"

    def __post_init__(self) -> None:
        """Check the column."""
        if self.column not in VERSION_COLUMNS:
            raise InvalidEdit(
                f"{self.column!r} is no column to keep one value of; choose from {', '.join(VERSION_COLUMNS)}."
            )

    @property
    def columns(self) -> frozenset[str]:
        """The one it compares."""
        return frozenset({self.column})

    @property
    def keep_sql(self) -> str:
        """Whole episodes: a run that changed its policy halfway keeps neither half."""
        differs = f"{self.column} IS DISTINCT FROM {sql_text(self.value)}"
        return f"SELECT * FROM before WHERE episode NOT IN (SELECT episode FROM before WHERE {differs})"

    @property
    def sentence(self) -> str:
        """Names column and value."""
        return f"Keeps only episodes whose {self.column.replace('_', ' ')} is {self.value}."

    @property
    def token(self) -> str:
        """only:COLUMN:VALUE."""
        return link_token(self.kind, self.column, self.value)

    @classmethod
    def parse(cls, values: Sequence[str]) -> OnlyValue:
        """From the values of a token."""
        column, value = values
        return cls(column, value)


@dataclass(frozen=True, slots=True)
class CapVisits:
    """Keep at most so many rows of each state, drawn at random with a seed."""

    max_visits: int
    seed: int = 0
    breaks_sequences: ClassVar[bool] = True
    columns: ClassVar[frozenset[str]] = frozenset({"state_key"})
    kind: ClassVar[str] = "cap"
    shape: ClassVar[str] = "cap:MAX[:SEED]"

    def __post_init__(self) -> None:
        """Check the cap."""
        if self.max_visits < 1:
            raise InvalidEdit(f"The cap is {self.max_visits}; it must be at least 1.")

    @property
    def keep_sql(self) -> str:
        """Rows are ranked by an MD5 of seed and row, so a larger cap keeps all that a smaller one keeps."""
        order = f"md5({sql_text(f'{self.seed}:')} || row)"
        return (
            "SELECT * FROM before "
            f"QUALIFY row_number() OVER (PARTITION BY state_key ORDER BY {order}) <= {self.max_visits}"
        )

    @property
    def sentence(self) -> str:
        """Names the cap."""
        return f"Keeps at most {self.max_visits:,} visits of each state, drawn at random (seed {self.seed})."

    @property
    def token(self) -> str:
        """cap:MAX:SEED."""
        return link_token(self.kind, self.max_visits, self.seed)

    @classmethod
    def parse(cls, values: Sequence[str]) -> CapVisits:
        """From the values of a token."""
        cap, seed = values if len(values) > 1 else [*values, "0"]
        return cls(int(cap), int(seed))


EDITS = {edit.kind: edit for edit in (DropAction, DropWhere, KeepFraction, KeepRest, MinReturn, OnlyValue, CapVisits)}


def _drop_sql(condition: str, how: str) -> str:
    if how != "episodes":
        return f"SELECT * FROM before WHERE NOT coalesce(({condition}), FALSE)"
    return f"SELECT * FROM before WHERE episode NOT IN (SELECT episode FROM before WHERE {condition})"


def _removed(how: str) -> str:
    return "Drops the steps" if how == "transitions" else "Drops whole episodes with steps"


def _kept(how: str) -> str:
    return "; the other steps of their episodes stay" if how == "transitions" else ""


def parse_token(token: str) -> CoverageEdit:
    """The edit that a token of a link stands for.

    Raises:
        InvalidEdit: no edit has such a token.
        InvalidPredicate: its condition isn't one plain expression.
    """
    kind, *values = token.split(":")
    if kind not in EDITS:
        raise InvalidEdit(f"The link asks for an edit called {kind!r}; known are {', '.join(EDITS)}.")
    try:
        edit: CoverageEdit = EDITS[kind].parse([unquote(value) for value in values])
    except (ValueError, TypeError) as error:
        raise InvalidEdit(f"The edit {token!r} of the link can't be read; expected {EDITS[kind].shape}.") from error
    return edit


def edits_to_link(edits: Sequence[CoverageEdit]) -> str:
    """All edits as one value of a link."""
    return ",".join(edit.token for edit in edits)


MAX_EDITS = 50  # each is a query of its own; more are a mistake, or a link made to harm


def check_number(n_edits: int) -> None:
    """Refuse more edits than anybody makes by hand.

    Raises:
        InvalidEdit: there are more than ``MAX_EDITS``.
    """
    if n_edits > MAX_EDITS:
        raise InvalidEdit(
            f"There are {n_edits:,} coverage edits; at most {MAX_EDITS} are applied at once. Take some out."
        )


def edits_from_link(text: str) -> tuple[CoverageEdit, ...]:
    """Inverse of :func:`edits_to_link`."""
    tokens = [token for token in text.split(",") if token]
    check_number(len(tokens))
    return tuple(parse_token(token) for token in tokens)


def cannot_compute(error: Exception) -> str:
    """A condition was read but doesn't fit the values: texts compared with numbers, say."""
    return f"The condition of an edit can't be computed on this log: {str(error).splitlines()[0]}"
