"""What the fields of home-made logs are called and what they hold, role by role: the knowledge behind a guess."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from offrl_core.importers.step_cells import is_end_word, kind_of, number_in

_KIND_SHARE = 0.9  # of the cells that aren't empty
# Objects whose fields are the log's own; those of others (arguments, a state) are the agent's, whatever their names.
ENVELOPES = frozenset({"step", "data", "payload", "info", "meta", "metadata", "extra", "attributes", "transition"})

_FLAGS = frozenset({"truth", "whole"})
_NUMBERS = frozenset({"whole", "number"})
_LABELS = frozenset({"whole", "text"})
_ANY = frozenset({"truth", "whole", "number", "time", "text", "vector", "list", "object"})
_IN_WORDS = {
    "none": "nothing",
    "truth": "true or false",
    "whole": "whole numbers",
    "number": "numbers",
    "time": "times",
    "text": "text",
    "vector": "lists of numbers",
    "list": "lists",
    "object": "objects",
}


@dataclass(slots=True)
class Field:
    """One field over the steps that were looked at."""

    path: str
    values: list[Any] = field(default_factory=list)  # those that aren't missing
    kind: str = "none"
    coverage: float = 0.0  # share of the steps that have a value

    @property
    def name(self) -> str:
        """The path as known names are compared with it: lower case, underscores, without the log's own envelopes."""
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.path.lstrip("/")).lower()
        first, _, rest = name.partition(".")
        return re.sub(r"[ -]", "_", rest if first in ENVELOPES and rest else name)

    @property
    def is_outer(self) -> bool:
        """Whether the field belongs to the record around the steps."""
        return self.path.startswith("/")

    @property
    def in_words(self) -> str:
        """What the field holds."""
        return _IN_WORDS[self.kind]

    @property
    def n_distinct(self) -> int:
        """Number of different values."""
        return len({str(value) for value in self.values})

    def finish(self, n_steps: int) -> None:
        """Conclude the kind, once all values are there: that of nearly all; whole numbers among others are numbers."""
        self.coverage = len(self.values) / n_steps
        kinds = Counter(map(kind_of, self.values))
        for special, general in (("whole", "number"), ("vector", "list")):
            if kinds[special] and kinds[general]:
                kinds[general] += kinds.pop(special)
        if +kinds:
            kind, n = kinds.most_common(1)[0]
            self.kind = kind if n >= _KIND_SHARE * kinds.total() else "text"


# -- what a field of a role must hold ------------------------------------------------------------------------


def _episode(found: Field, nested: bool) -> tuple[float, str]:
    """Episodes have several steps as a rule, and most logs write them one after another."""
    texts = [str(value) for value in found.values]
    said = _distinct(found)
    if nested:
        return 1.0, said
    runs = 1 + sum(a != b for a, b in pairwise(texts))
    if runs == found.n_distinct < len(texts):
        return 1.0, f"{said}, in runs"
    if found.n_distinct == len(texts) > 1:
        return 0.55, f"{said}, a new one on each row"
    return 0.85, f"{said}, mixed"


def _distinct(found: Field) -> str:
    return f"{found.n_distinct:,} distinct value{'' if found.n_distinct == 1 else 's'}"


def _probability(found: Field, nested: bool) -> tuple[float, str]:
    good = all((number := number_in(value)) is not None and 0 <= number <= 1 for value in found.values)
    return (1.0, "numbers from 0 to 1") if good else (0.0, "")


def _log_probability(found: Field, nested: bool) -> tuple[float, str]:
    """Densities of continuous actions may be above 1, their logarithms above 0: not most of them."""
    low = sum((number_in(value) or 0.0) <= 0 for value in found.values)
    return (1.0, "numbers below 0") if 2 * low > len(found.values) else (0.0, "")


def _ending(found: Field, nested: bool) -> tuple[float, str]:
    """A flag is true or false, or 1 and 0; a status counts only where it speaks of running and ending."""
    if found.kind == "text":
        return (0.9, "the status of an episode") if all(map(is_end_word, found.values)) else (0.0, "")
    good = found.kind == "truth" or {number_in(value) for value in found.values} <= {0.0, 1.0}
    return (1.0, "true or false") if good else (0.0, "")


def _action(found: Field, nested: bool) -> tuple[float, str]:
    return found.coverage, _distinct(found) if found.kind in ("truth", "whole", "text") else found.in_words


@dataclass(frozen=True, slots=True)
class _Role:
    """How the fields of one role are called, the likeliest first, and what they must hold."""

    names: tuple[str, ...]
    kinds: frozenset[str]
    check: Callable[[Field, bool], tuple[float, str]]  # a factor on the confidence, and what the field holds


def _role(
    kinds: frozenset[str],
    names: str,
    check: Callable[[Field, bool], tuple[float, str]] = lambda found, nested: (1.0, found.in_words),
) -> _Role:
    return _Role(tuple(names.split()), kinds, check)


# In the order in which they choose; a field has one role.
_ROLES: dict[str, _Role] = {
    "episode": _role(
        _LABELS,
        "episode_id episode ep episode_index episode_number episode_idx ep_id traj_id trajectory_id trajectory traj "
        "run_id run rollout_id rollout session_id session conversation_id thread_id trace_id game_id patient_id user_id "
        "id uid task_id question_id",
        _episode,
    ),
    "step": _role(
        _NUMBERS | {"time"},
        "t step step_idx step_index step_number step_num step_id timestep time_step turn turn_idx turn_index "
        "frame_index i idx index seq n ts timestamp time date created_at start_time",
    ),
    "logprob": _role(
        _NUMBERS,
        "action_logprob logprob log_prob logp behavior_logprob behavior_log_prob action_log_prob log_probs logprobs",
        _log_probability,
    ),
    "probability": _role(
        _NUMBERS,
        "propensity propensity_score pscore action_prob action_probability behavior_prob behavior_probability prob "
        "probability pi_b p",
        _probability,
    ),
    "terminal": _role(_FLAGS, "terminated terminal is_terminal termination terminations terminals absorbing", _ending),
    "timeout": _role(
        _FLAGS, "truncated timeout timeouts is_truncated truncation truncations time_limit timed_out", _ending
    ),
    "done": _role(
        _FLAGS | {"text"},
        "done dones is_done finished is_last is_final end episode_end end_of_episode next.done status",
        _ending,
    ),
    "reward": _role(
        _NUMBERS | {"truth"},
        "reward rewards rew r step_reward next.reward observation.reward score success win won is_correct correct "
        "is_success is_solved solved passed return returns episode_return total_reward final_reward outcome payoff click "
        "clicks utility",
    ),
    "action": _role(
        _ANY - {"time"},
        "action actions act action_id action_name action_taken tool tool_name function function_name tool_call "
        "tool_calls item_id command name treatment decision move",
        _action,
    ),
    "arguments": _role(
        _ANY - {"truth"},
        "arguments args action_args action_arguments action_input tool_input tool_args tool_arguments parameters params "
        "payload kwargs input inputs",
    ),
    "error": _role(
        frozenset({"text", "truth", "object"}),
        "error error_message exception err is_error failure observation.error",
    ),
    "result": _role(
        _ANY,
        "tool_result result tool_output tool_response output response observation.tool_result observation.result "
        "feedback next_state next_observation next_obs",
    ),
    "task": _role(
        _LABELS,
        "task task_name instruction goal user_goal question prompt query problem objective task_id env env_id env_name",
    ),
    "behavior_policy": _role(
        _LABELS, "behavior_policy policy logging_policy agent agent_name agent_id model model_name actor"
    ),
    "available_tools": _role(
        frozenset({"list"}), "available_tools available_actions valid_actions legal_actions tools"
    ),
    "thought": _role(frozenset({"text"}), "thought thoughts reasoning rationale thinking"),
    "temperature": _role(_NUMBERS, "temperature"),
    "latency_ms": _role(_NUMBERS, "latency_ms duration_ms elapsed_ms"),
    "cost_usd": _role(_NUMBERS, "cost_usd cost"),
    "split": _role(_LABELS, "split fold subset"),
}
GUESSED_ROLES: tuple[str, ...] = tuple(_ROLES)
_TITLES = {
    "step": "step number",
    "terminal": "flag of a task that ended",
    "timeout": "flag of a limit that was hit",
    "done": "flag of the last step",
    "probability": "probability of the action",
    "logprob": "log probability of the action",
    "latency_ms": "time taken",
    "cost_usd": "cost",
}
_OF_A_STEP = ("step", "action", "arguments", "result", "thought")  # never said once for a whole record
_OUTCOMES = frozenset(
    "score success win won is_correct correct is_success is_solved solved passed return returns episode_return "
    "total_reward final_reward outcome".split()
)


def rate(role: str, found: Field, *, nested: bool, alone: bool) -> tuple[float, str]:
    """How well a field fits a role, 0 to 1, and why.

    Args:
        role: one of ``GUESSED_ROLES``.
        found: the field.
        nested: whether each record holds a list of steps, and so may be an episode.
        alone: whether there is one such record: its list may hold several episodes then.
    """
    spec = _ROLES[role]
    if found.name not in spec.names or found.kind not in spec.kinds:
        return 0.0, ""
    if role in _OF_A_STEP and found.is_outer:
        return 0.0, ""
    by_name = 0.95 - 0.4 * spec.names.index(found.name) / len(spec.names)
    factor, holds = spec.check(found, nested and found.is_outer)
    if role == "episode" and nested and not found.is_outer and not (alone and factor == 1):
        return 0.0, ""
    return by_name * factor, f"`{found.path}` looks like the {_TITLES.get(role, role.replace('_', ' '))}: {holds}"


def is_outcome(reward: Field, episodes: Sequence[Any], rewards: Sequence[Any]) -> bool:
    """Whether a reward is called like the outcome of an episode and is the same on all of its rows.

    Args:
        reward: the field.
        episodes: the episode of each step.
        rewards: the reward of each step.
    """
    if reward.is_outer:
        return True
    seen: dict[Any, set[Any]] = {}
    for episode, value in zip(episodes, rewards, strict=True):
        seen.setdefault(episode, set()).add(number_in(value))
    return reward.name in _OUTCOMES and len(seen) < len(rewards) and all(len(values) == 1 for values in seen.values())


def may_be_a_reward(found: Field) -> bool:
    """Whether a field that only the last steps have may be the reward: a number that doesn't just measure the run."""
    return found.kind in ("whole", "number", "truth") and not _NEVER_A_STATE.fullmatch(_last_key(found))


_LONGEST_CHOICE = 40  # characters; longer texts are said, not chosen
_MOST_CHOICES = 50


def looks_like_choices(found: Field) -> bool:
    """Whether a field may hold actions: a few short texts that come again and again, on nearly all steps."""
    return (
        found.kind == "text"
        and found.coverage >= _KIND_SHARE
        and 2 <= found.n_distinct <= min(_MOST_CHOICES, len(found.values) / 2)
        and all(len(str(value)) <= _LONGEST_CHOICE for value in found.values)
        and not (is_called_a_state(found) or is_part_of_a_state(found) or found.name in _SPEAKERS)
    )


# -- the state -----------------------------------------------------------------------------------------------

_STATES = "state state_id observation obs observations states state_text features context observation.state s".split()
_NUMBERED = re.compile(
    r"(obs|observations?|states?|s|o|x|features?|feat|context|ctx|user_feature)[_.]?\d+|obs\[\d+\]|state\[\d+\]"
)
_PREFIXED = re.compile(r"(obs|observation|state|feature|feat|context|ctx)[_.](?!id$|status$)\w+")
_OF_A_STATE = re.compile(r"(obs|observation|state|feature|feat|context|ctx)[_.]")
_NEVER_A_STATE = re.compile(
    r"(.*_)?(id|index|idx|seed|time|timestamp|ts|tokens?|cost|latency\w*|duration\w*)|unnamed.*|next_.*|.*_next"
)


_SPEAKERS = frozenset({"role", "speaker", "sender"})  # of messages: they take turns, they don't choose


def _last_key(found: Field) -> str:
    return found.name.rpartition(".")[2]


def is_called_like(roles: Collection[str], found: Field) -> bool:
    """Whether a field, or what it is in a state (``ctx.reward``, ``obs_done``), is called like one of these roles."""
    names = {name for role in roles for name in _ROLES[role].names if len(name) > 1} - set(_STATES)
    inner = _OF_A_STATE.sub("", found.name)
    return found.name in names or _last_key(found) in names or inner in names


def is_called_a_state(found: Field) -> bool:
    """Whether the name of a field is one for a whole state."""
    return found.name in _STATES


def likeliest_state(fields: Sequence[Field]) -> Field | None:
    """Of the fields that are called a state, the one with the best name."""
    return min(fields, key=lambda found: _STATES.index(found.name), default=None)


def is_part_of_a_state(found: Field) -> bool:
    """Whether a field is called like one of several of a state: ``obs_0``, ``state_x``."""
    return bool(_NUMBERED.fullmatch(found.name) or _PREFIXED.fullmatch(found.name))


def may_be_a_state(found: Field) -> bool:
    """Whether a field without any role may belong to the state: a number that varies and doesn't just count.

    In an object, also a few texts that come again: it holds what the agent saw rather than remarks on the step.
    """
    measured = found.kind in ("whole", "number", "truth")
    said = found.kind == "text" and "." in found.name and 2 * found.n_distinct <= len(found.values)
    return (measured or said) and found.n_distinct > 1 and not _NEVER_A_STATE.fullmatch(_last_key(found))
