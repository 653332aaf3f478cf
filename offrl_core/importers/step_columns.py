"""The columns of a step of a home-made table beside its action and its state: labels, numbers, reward and end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from offrl_core.importers.fields import Row, metadata_text, text_of, tool_names
from offrl_core.importers.report import ImportReport, Place
from offrl_core.importers.step_actions import outcomes_of, plain_name
from offrl_core.importers.step_cells import is_missing, number_in, says_timeout, truth_in
from offrl_core.importers.step_mapping import StepMapping, expanded
from offrl_core.importers.step_numbers import Step

_NO_END = {"terminal": False, "timeout": False, "done": False}
_NUMBERS = {
    "temperature": "temperature",
    "latency_ms": "latency_ms",
    "cost_usd": "cost_usd",
    "action_logprob": "logprob",
}
_LONGEST_METADATA = 200


def add_columns(steps: Sequence[Step], mapping: StepMapping, report: ImportReport) -> None:
    """Write everything else that a step says into its rows, in place; what is said once goes into the last one."""
    keys = {key for step in steps for key in step.item.inner if isinstance(key, str)}
    without_role = keys - {part for _, path in mapping.paths() for part in (path, path.split(".")[0])}
    without_role -= set(expanded(mapping.state, [step.item for step in steps]))
    for step in steps:
        place = report.at(step.record.source, step.record.number)
        shared = _labels(step, mapping) | _NO_END | {"metadata": _metadata(step, mapping, without_role)}
        for row, outcome in zip(step.rows, outcomes_of(step.item, mapping, len(step.rows)), strict=True):
            row |= shared | outcome
        # A reply costs, takes and weighs once, however many calls it makes; its reward and end follow the last one.
        step.rows[0] |= _numbers(step, mapping, place)
        step.rows[-1] |= _reward(step, mapping, place) | _ending(step, mapping, place)
    if without_role:
        shown = ", ".join(sorted(without_role)[:12])
        report.notes.append(f"Fields without a role are kept in the metadata where they are short: {shown}.")


def _labels(step: Step, mapping: StepMapping) -> Row:
    """Columns that are text."""
    row: Row = {}
    for column in ("task", "behavior_policy", "split"):
        path = getattr(mapping, column)
        if path and not is_missing(value := step.item.get(path)):
            row[column] = text_of(value) if isinstance(value, str | list | dict) else plain_name(value)
    if mapping.available_tools:
        row["available_tools"] = tool_names(step.item.get(mapping.available_tools))
    return row


def _numbers(step: Step, mapping: StepMapping, place: Place) -> Row:
    """Columns that are numbers, and the probability of the action as its logarithm."""
    row: Row = {}
    for column, role in _NUMBERS.items():
        if path := getattr(mapping, role):
            row[column] = _number(step.item.get(path), path, role.replace("_", " "), place)
    probability = _number(step.item.get(mapping.probability), mapping.probability, "probability", place)
    if probability is not None and 0 < probability <= 1:
        row["action_logprob"] = math.log(probability)
    elif probability is not None:
        message = (
            "a probability of an action that was taken lies above 0 and at most at 1; it is kept as unknown (NULL)"
        )
        place.mend(mapping.probability, "impossible probability", message, probability)
    return row


def _number(value: Any, path: str | None, what: str, place: Place) -> float | None:
    """A number in a cell, None where it is empty; what is neither is reported."""
    if is_missing(value):
        return None
    number = number_in(value)
    if number is None:
        message = f"the {what} is no finite number; it is kept as unknown (NULL), not as 0"
        place.mend(path, f"{what} is not a number", message, value)
    return number


def _reward(step: Step, mapping: StepMapping, place: Place) -> Row:
    """The reward of a step, and the field it is from."""
    reward = _number(step.item.get(mapping.reward), mapping.reward, "reward", place)
    return {} if reward is None else {"reward": reward, "reward_source": f"field {mapping.reward}"}


def _ending(step: Step, mapping: StepMapping, place: Place) -> Row:
    """What the flags of a step say; NULL where the log has none."""
    flags = {
        role: _flag(step.item.get(path), path, place)
        for role in ("terminal", "timeout", "done")
        if (path := getattr(mapping, role))
    }
    timeout = True if mapping.done and says_timeout(step.item.get(mapping.done)) else flags.get("timeout")
    # As in the trace schema: a bare "done" counts only where nothing says it more exactly.
    bare = flags.get("terminal") is None and timeout is None and flags.get("done") is True
    return {"terminal": flags.get("terminal"), "timeout": timeout, "done": bare}


def _flag(value: Any, path: str, place: Place) -> bool | None:
    """True or false in a cell; what is neither is reported."""
    if is_missing(value) or says_timeout(value):
        return None
    truth = truth_in(value)
    if truth is None:
        message = "this is not true or false, so the step counts as one that says nothing about an ending"
        place.mend(path, f"{path} is not true or false", message, value)
    return truth


def _metadata(step: Step, mapping: StepMapping, without_role: set[str]) -> str | None:
    """The thought, and the short fields without a role; long ones stay in the raw record."""
    thought = step.item.get(mapping.thought)
    rest = {
        key: value
        for key, value in step.item.inner.items()
        if key in without_role and isinstance(value, str | int | float) and not is_missing(value)
    }
    short = {key: value for key, value in rest.items() if len(str(value)) <= _LONGEST_METADATA}
    return metadata_text(thought=None if is_missing(thought) else text_of(thought), extra=short or None)
