"""The trace schema, column by column: how much of the log says something there, and which methods need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..schema import COLUMN_NAMES
from .facts import Facts
from .families import BOOTSTRAP, EVERY, LEARN_FROM_REWARD, REWEIGHT

# What a share is taken of: all steps, all episodes (anywhere in them, or on the last step), all tool calls; "events"
# are written down when they happen, so that an empty field is no lack.
Unit = Literal["steps", "episodes", "last steps", "tool calls", "events"]
FieldWord = Literal["complete", "partial", "missing", "optional"]


class Use(NamedTuple):
    """What a column is good for, and the families that are worse off without it."""

    unit: Unit
    purpose: str
    families: tuple[str, ...] = ()


_SYSTEM = ("fqi", "decision_transformer", "dr", "fqe")
_BEHAVIOR = ("bc", *REWEIGHT)

USES: dict[str, Use] = {
    "episode_id": Use("steps", "which steps belong together", EVERY),
    "t": Use("steps", "the order of steps", EVERY),
    "task": Use("episodes", "tells easy tasks from good choices; repeated trials", ("fqi", "decision_transformer")),
    "state": Use("steps", "what the agent saw; framings can make states from it"),
    "state_text": Use("steps", "the state as one text, ready to use"),
    "available_tools": Use("steps", "which actions were valid: masks for maxima and policies", BOOTSTRAP),
    "action": Use("steps", "what was done", EVERY),
    "action_type": Use("steps", "tells tool calls from messages"),
    "tool": Use("events", "tool called; empty for messages"),
    "arguments": Use("tool calls", "calls can be copied whole, not by name only", ("bc",)),
    "arguments_raw": Use("events", "arguments as they stood in the file"),
    "arguments_status": Use("tool calls", "which arguments could be read"),
    "arguments_hash": Use("tool calls", "finds equal calls and repeated episodes"),
    "decision_id": Use("steps", "parallel calls of one reply"),
    "call_index": Use("steps", "their order"),
    "tool_result": Use("tool calls", "what came back; without it nobody knows whether a call failed", _SYSTEM),
    "error": Use("events", "failures; empty where none was recorded"),
    "reward": Use("episodes", "how the episode turned out", LEARN_FROM_REWARD),
    "terminal": Use("last steps", "the task ended: no value beyond", LEARN_FROM_REWARD),
    "timeout": Use("last steps", "the episode was cut: the value goes on", LEARN_FROM_REWARD),
    "end_reason": Use("last steps", "why the episode ended, in words"),
    "parent_episode": Use("events", "sub-agents and branches"),
    "prompt_version": Use("episodes", "changes of behavior during the log", _BEHAVIOR),
    "tool_schema_version": Use("episodes", "changes of the tools during the log", _SYSTEM),
    "environment_version": Use("episodes", "changes of the environment during the log", _SYSTEM),
    "action_logprob": Use("steps", "how likely the action was: importance weights", REWEIGHT),
    "action_logprobs": Use("events", "log-probabilities of tokens; their sum is action_logprob"),
    "reward_components": Use("episodes", "rewards by parts, to be weighed anew"),
    "reward_source": Use("episodes", "who judged: how far a reward can be trusted", LEARN_FROM_REWARD),
    "verifier_version": Use("episodes", "rewards of two judges aren't comparable"),
    "split": Use("episodes", "judge on other episodes than you train on"),
    "behavior_policy": Use("episodes", "who acted: one agent or a mixture", _BEHAVIOR),
    "temperature": Use("steps", "at 0 the agent leaves nothing to chance"),
    "latency_ms": Use("steps", "rewards that charge for time"),
    "cost_usd": Use("steps", "rewards that charge for money"),
    "safety_flags": Use("events", "what must never be imitated"),
    "metadata": Use("events", "everything else the log said"),
    "source_file": Use("steps", "the way back to the evidence"),
    "record": Use("steps", "the way back to the evidence"),
    "message_index": Use("events", "the way back to the message"),
    "upload_order": Use("steps", "the order of reading"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldStatus:
    """One column of the trace schema in this log.

    ``share`` is taken of what ``unit`` names; None for events and where there is nothing of that unit. ``families`` are
    those that are worse off without the column.
    """

    column: str
    verdict: FieldWord
    unit: Unit
    n_filled: int
    n_all: int
    share: float | None
    families: tuple[str, ...]
    purpose: str


def field_table(facts: Facts) -> tuple[FieldStatus, ...]:
    """Every column of the schema, in its order."""
    return tuple(_status(name, facts) for name in COLUMN_NAMES)


def _status(name: str, facts: Facts) -> FieldStatus:
    use = USES[name]
    n_filled, n_all = _filled(name, use.unit, facts)
    families = () if name in facts.needless_columns else use.families
    needed = bool(families) and n_all > 0
    verdict: FieldWord = "optional" if use.unit == "events" or not (needed or n_filled) else "missing"
    if verdict == "missing" and n_filled:
        verdict = "complete" if n_filled == n_all else "partial"
    return FieldStatus(
        column=name,
        verdict=verdict,
        unit=use.unit,
        n_filled=n_filled,
        n_all=n_all,
        share=None if use.unit == "events" or not n_all else n_filled / n_all,
        families=families,
        purpose=use.purpose,
    )


def _filled(name: str, unit: Unit, facts: Facts) -> tuple[int, int]:
    """How many of how many."""
    if unit in ("episodes", "last steps"):
        return facts.episodes_filled[name], facts.n_episodes
    if unit == "tool calls":
        return facts.calls_filled[name], facts.calls.n_calls
    return facts.filled[name], facts.n_steps
