"""What people choose as state, action and reward, all together: as SQL, as a sentence and as a link, with its presets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from .errors import InvalidConfig
from .framing_expressions import Framing, check_discount, with_one_message
from .framing_parts import (
    ACTIONS,
    FAILED_AFTER_TOOL,
    REWARDS,
    STATE_PARTS,
    Choice,
    LastFailed,
    LastTools,
    LoggedReward,
    Outcome,
    OwnState,
    StateField,
    StepNumber,
    Task,
    Tool,
    ToolsUsed,
    WorldState,
    check_weights,
    weights_of,
)
from .predicates import hindsight_columns, looks_ahead
from .tokens import link_token

# What a step can cost: column -> (SQL amount, unit of the weight).
COSTS: dict[str, tuple[str, str]] = {
    "latency_ms": ("latency_ms / 1000", "second of latency"),
    "cost_usd": ("cost_usd", "dollar"),
    "error": ("(error IS NOT NULL)::INTEGER", "failed step"),
}
_COSTS = "costs"
_ONE_MESSAGE = "onemessage"
PART_SEPARATOR = " · "  # between the parts of a state key
MAX_PARTS = 12

# What a step tells only once its action was taken; a state can't be made of these.
KNOWN_AFTER_ACTING = frozenset(
    """action action_type tool arguments arguments_raw arguments_status arguments_hash call_index tool_result error reward
    terminal timeout end_reason action_logprob action_logprobs reward_components latency_ms cost_usd safety_flags""".split()
)


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
    action: Choice = field(default=Tool())
    one_message: bool = False
    reward: Choice = field(default=Outcome())
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
            check_weights(self.costs, "cost")
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
                written[-1] += f" || {FAILED_AFTER_TOOL}"
            else:
                written.append(f"coalesce({part.sql}, '(none)')" if isinstance(part, WorldState) else part.sql)
        return f" || '{PART_SEPARATOR}' || ".join(written)

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
                costs=weights_of(costs[0][1]) if costs else (),
                discount=float(number),
            )
        except (ValueError, TypeError) as error:
            raise InvalidConfig(
                f"The framing {text[:200]!r} can't be read; it is the name of a preset ({', '.join(PRESETS)}) or "
                "STATE+STATE,ACTION,REWARD,DISCOUNT, such as tools:2+failed,tool,outcome,0.99."
            ) from error


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


def _listed(phrases: Iterable[str]) -> str:
    *before, last = phrases
    return f"{', '.join(before)} and {last}" if before else last


# -- presets -----------------------------------------------------------------------------------------------------

PRESETS: dict[str, FramingChoices] = {
    "world_state": FramingChoices(state=(WorldState(),), reward=LoggedReward()),
    "state_outcome": FramingChoices(state=(WorldState(),)),
    "last_tool": FramingChoices(state=(LastTools(1), LastFailed())),
    "step": FramingChoices(state=(StepNumber(),)),
    "last_tools": FramingChoices(state=(LastTools(3), LastFailed())),
    "tools_used": FramingChoices(state=(ToolsUsed(),)),
    "task_last_tool": FramingChoices(state=(Task(), LastTools(1))),
}
PRESET_TITLES: dict[str, str] = {
    "world_state": "State as the log words it",
    "state_outcome": "State as the log words it, reward at the end",
    "last_tool": "Last tool and whether it failed",
    "step": "Position in the episode",
    "last_tools": "Last three tools and whether the last one failed",
    "tools_used": "Set of tools used so far",
    "task_last_tool": "Task and last tool",
}


def preset_name(choices: FramingChoices) -> str | None:
    """Name of the preset that these choices are, if they are one."""
    return next((name for name, preset in PRESETS.items() if preset == choices), None)
