"""Mappings that visitors made, kept on this server by the fingerprint of a log's fields: names of fields, never contents."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offrl_core.errors import InvalidConfig
from offrl_core.importers.step_leaks import leaks_in, without_leaks
from offrl_core.importers.step_mapping import StepMapping, fingerprint
from offrl_core.runs import cache_directory

from . import layout

# Role of the mapping -> label in plain words, what it is for.
ROLES = {
    "episode": ("Episode", "which run of the agent a step belongs to; else one file or record is one episode"),
    "step": ("Step number", "position in the episode; else the order of the file counts"),
    "action": ("Action", "name of the tool or move; without it every step is a plain message"),
    "arguments": ("Arguments", "what the tool was called with"),
    "result": ("Result", "what came back from the tool or the environment"),
    "error": ("Error", "why the action failed; empty means that it didn't"),
    "reward": ("Reward", "reward of the step, or of the whole episode"),
    "terminal": ("Ended (terminal)", "true where the task ended: nothing follows"),
    "timeout": ("Cut (timeout)", "true where a limit cut the episode although the task went on"),
    "done": ("Done", "a flag that doesn't tell ending and cutting apart"),
    "task": ("Task", "what the agent was asked to do"),
    "behavior_policy": ("Agent or model", "who acted: the behavior policy"),
    "probability": ("Probability of the action", "under the policy that acted; for importance sampling"),
    "logprob": ("Log probability of the action", "the same as a logarithm"),
    "available_tools": ("Available tools", "which actions were open at the step"),
    "thought": ("Thought", "what the model wrote before acting; kept beside the step"),
    "temperature": ("Temperature", "of the model's sampling"),
    "latency_ms": ("Latency", "milliseconds the step took"),
    "cost_usd": ("Cost", "US dollars"),
    "split": ("Split", "train, test, …"),
}


def _path(of_fields: str) -> Path:
    return cache_directory() / "mappings" / f"{of_fields}.json"


def any_saved() -> bool:
    """Whether a mapping was ever saved on this server."""
    with contextlib.suppress(OSError):
        return any((cache_directory() / "mappings").glob("*.json"))
    return False


def load(values: Sequence[Any]) -> tuple[StepMapping | None, tuple[str, ...]]:
    """The mapping that was saved for logs with the fields of these first records, if any.

    What its state held though it is known only after the action is taken out, and named.
    """
    with contextlib.suppress(OSError, ValueError, InvalidConfig):
        saved = StepMapping.from_json(_path(fingerprint(values)).read_text(encoding="utf-8"))
        return without_leaks(values, saved), tuple(leak.path for leak in leaks_in(values, saved))
    return None, ()


def without(gone: Sequence[str]) -> str:
    """A sentence on what was taken out of the state of a saved mapping."""
    if not gone:
        return ""
    return f" Its state held {layout.plain(', '.join(gone), 200)}, known only after the action; that was taken out."


def save(values: Sequence[Any], mapping: StepMapping) -> None:
    """Keep a mapping for logs that look alike; where nothing can be written it is used all the same, and not kept."""
    path = _path(fingerprint(values))
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(mapping.to_json(), encoding="utf-8")
        os.replace(unfinished, path)
