"""Results of tau-bench: a conversation with a simulated user, its task and trial, and the reward of its verifier.

What the agent never saw (the script of the simulated user, the expected actions) stays in the raw record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offrl_core.importers.fields import finite_number, label, mapping
from offrl_core.importers.messages import Message
from offrl_core.schema import canonical_json

UNKNOWN_ENDINGS = (
    "{n} of {all} conversations were neither stopped by the user nor handed to a human: "
    "whether the task ended is unknown there."
)


def is_run(value: dict[str, Any]) -> bool:
    """Whether a record is a result of tau-bench."""
    return isinstance(value.get("traj"), list) and ("reward" in value or "task_id" in value)


def run_name(given: dict[str, Any]) -> str | None:
    """A name from task and trial: a task alone is tried several times."""
    task, trial = label(given.get("task_id")), label(given.get("trial"))
    if task is None:
        return None
    name = f"task{task}" if task.isdigit() else task
    return f"{name}-trial{trial}" if trial else name


def reward_parts(info: Any) -> str | None:
    """Numbers of ``info.reward_info.info`` as JSON text, without the expected actions beside."""
    inner = mapping(mapping(mapping(info).get("reward_info")).get("info"))
    parts = {key: number for key, value in inner.items() if (number := finite_number(value)) is not None}
    return canonical_json(parts) if parts else None


def end_reason(messages: Sequence[Message]) -> str | None:
    """Whether the record proves that the task ended: the simulated user stopped, or a human took over."""
    last = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "assistant"), None)
    if last is None:
        return None
    answer = next((message.text for message in messages[last:] if message.role == "user"), None)
    calls = messages[last].calls
    transferred = bool(calls) and calls[-1].name == "transfer_to_human_agents"
    return "terminated" if transferred or "###STOP###" in (answer or "") else None
