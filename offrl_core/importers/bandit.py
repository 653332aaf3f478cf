"""Logged bandits: one choice per row with the probability it was made with, as in the Open Bandit data.

A row is an episode of one step: the features of the user are the state, the item shown is the action, the click is the
reward. Three positions of a page share a time, but not an episode: each was chosen and clicked on its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from offrl_core.importers.fields import Gathered, Row, metadata_text
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.step_actions import plain_name
from offrl_core.importers.step_cells import is_missing, number_in
from offrl_core.importers.step_states import plain_value
from offrl_core.schema import canonical_json
from offrl_core.wording import counted

EXAMPLE = b"""\
{"timestamp": "2024-05-01 10:00:00", "item_id": 3, "position": 1, "click": 0, "propensity_score": 0.25, \
"user_feature_0": "young", "user-item_affinity_0": 0.0}
{"timestamp": "2024-05-01 10:00:00", "item_id": 1, "position": 2, "click": 1, "propensity_score": 0.25, \
"user_feature_0": "young", "user-item_affinity_0": 2.0}
"""

_PROBABILITIES = ("propensity_score", "pscore", "propensity", "action_prob", "action_probability")
_ACTIONS = ("item_id", "action", "arm", "item", "action_id")
_REWARDS = ("click", "clicks", "reward", "conversion", "purchase")
_EPISODES = frozenset({"episode", "episode_id", "step", "t", "trajectory_id", "session_id", "next_state"})
_CONTEXTS = ("user_feature", "feature", "context", "x_", "user_")
_AFFINITY = "affinity"  # of this user to each item: mostly 0, so only the others are kept
_SIDE_TABLE = "item_feature"  # a file about items, not about choices
_SHORT = 8  # characters that tell hashed features apart


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are choices of a logged bandit, 0 to 1, and why."""
    found = [roles for value in values if (roles := _roles(value))]
    if not found:
        return 0.0, "no record has an action, a reward and a propensity without an episode"
    return len(found) / len(
        values
    ), f"found {', '.join(found[0])} and no episode in {len(found)} of the first {len(values)} records"


def _roles(value: Any) -> tuple[str, str, str] | None:
    """The fields of action, reward and propensity; None where a record lacks one or belongs to a longer episode."""
    if not isinstance(value, dict) or _EPISODES & value.keys():
        return None
    action, reward, probability = (
        next((key for key in keys if key in value), None) for keys in (_ACTIONS, _REWARDS, _PROBABILITIES)
    )
    return (action, reward, probability) if action and reward and probability else None


def read(records: Iterable[Record], report: ImportReport, *, with_position: bool = False) -> Gathered:
    """Read choices, each as an episode of one step.

    Args:
        records: records of the files, in order.
        report: gets the problems and notes.
        with_position: whether the same item at another position of the page is another action.
    """
    gathered = Gathered()
    n_items = n_slates = 0
    before: Any = None
    for record in records:
        if isinstance(record.value, dict) and any(_SIDE_TABLE in str(key) for key in record.value):
            n_items += 1
            report.accounts.found[record.source] -= 1  # it says something about items and is no choice
            continue
        rows = _rows(record, len(gathered.rows), with_position, report.at(record.source, record.number))
        report.n_steps_quarantined += not rows
        gathered.add(record, rows)
        time = record.value.get("timestamp") if rows else None
        n_slates += time is not None and time == before
        before = time
    _shorten_states(gathered.rows)
    report.notes += _notes(gathered.rows, n_items, n_slates)
    return gathered


def _rows(record: Record, number: int, with_position: bool, place: Place) -> list[Row]:
    """The one row of a choice; none, and a problem, where there is no action."""
    roles = _roles(record.value)
    if roles is None or is_missing(record.value[roles[0]]):
        message = "this row has no action, reward and propensity, so it was set aside"
        place.lose(None, "no choice", message, record.raw)
        return []
    value = record.value
    action, reward, probability = roles
    position = plain_value(value.get("position"))
    name = plain_name(value[action])
    if with_position and position is not None:
        name += f"@{plain_name(position)}"
    state, rest = _context(value, roles)
    row: Row = {
        "episode_id": f"round-{number + 1}",
        "t": 0,
        "state": canonical_json(state | ({} if position is None else {"position": position})),
        "state_text": " ".join(f"{key}={plain_name(cell)}" for key, cell in state.items() if not isinstance(cell, dict))
        or None,
        "action": name,
        "action_type": "env_action",
        "arguments_status": "absent",
        "decision_id": f"round-{number + 1}#0",
        "call_index": 0,
        "terminal": True,  # nothing follows a choice, by the design of such a log
        "timeout": False,
        "metadata": metadata_text(**rest),
    }
    return [row | _reward(value, reward, place) | _logprob(value, probability, place)]


def _context(value: dict[str, Any], roles: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Features that the choice could rest on, and the other fields."""
    state: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    affinities: dict[str, float] = {}
    for key, cell in value.items():
        if key in roles or key == "position" or key.startswith("Unnamed"):
            continue
        if _AFFINITY in key:
            if number := number_in(cell):
                affinities[key.rpartition("_")[2]] = number
        elif key.startswith(_CONTEXTS):
            state[key] = plain_value(cell)
        elif not is_missing(cell):
            rest[key] = cell
    return state | ({"affinities": affinities} if affinities else {}), rest


def _reward(value: dict[str, Any], field: str, place: Place) -> Row:
    """The reward; nothing where the log has no number."""
    if is_missing(value[field]):
        return {}
    reward = number_in(value[field])
    if reward is None:
        message = "the reward is no finite number; it is kept as unknown (NULL), not as 0"
        place.mend(field, "reward is not a number", message, value[field])
        return {}
    return {"reward": reward, "reward_source": f"field {field}"}


def _logprob(value: dict[str, Any], field: str, place: Place) -> Row:
    """The logarithm of the probability that the action was chosen with."""
    probability = number_in(value[field])
    if probability is not None and 0 < probability <= 1:
        return {"action_logprob": math.log(probability)}
    message = "a probability lies above 0 and at most at 1; without it, this row can't be weighted"
    place.mend(field, "impossible probability", message, value[field])
    return {}


def _shorten_states(rows: Sequence[Row]) -> None:
    """Cut hashed features to their first characters in the short text of the state, where that tells them apart."""
    texts = {row["state_text"] for row in rows if row["state_text"]}
    short = {text: " ".join(part[: part.find("=") + 1 + _SHORT] for part in text.split(" ")) for text in texts}
    if len(set(short.values())) == len(texts):
        for row in rows:
            row["state_text"] = short.get(row["state_text"])


def _notes(rows: Sequence[Row], n_items: int, n_slates: int) -> list[str]:
    """Sentences on what such a log is."""
    notes = []
    rewards = [row["reward"] for row in rows if row.get("reward") is not None]
    if rewards:
        notes.append(
            f"Each row is an episode of one step. The reward is {sum(rewards) / len(rewards):.2%} on average: "
            "the rarer it is, the more rows an estimate needs."
        )
    if n_slates:
        notes.append(
            f"{counted(n_slates, 'row')} with the time of the row before: positions of one page, read as choices of their own."
        )
    if n_items:
        notes.append(f"No step comes from {counted(n_items, 'record')} about items.")
    return notes
