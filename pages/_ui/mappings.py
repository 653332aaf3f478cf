"""Mappings that visitors made, kept on this server by the fingerprint of a log's fields: names of fields, never contents."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from offrl_core.errors import InvalidConfig
from offrl_core.importers.step_mapping import StepMapping
from offrl_core.runs import cache_directory

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


def _path(fingerprint: str) -> Path:
    return cache_directory() / "mappings" / f"{fingerprint}.json"


def any_saved() -> bool:
    """Whether a mapping was ever saved on this server."""
    with contextlib.suppress(OSError):
        return any((cache_directory() / "mappings").glob("*.json"))
    return False


def load(fingerprint: str) -> StepMapping | None:
    """The mapping that was saved for logs with these fields, or None."""
    with contextlib.suppress(OSError, ValueError, InvalidConfig):
        return StepMapping.from_json(_path(fingerprint).read_text(encoding="utf-8"))
    return None


def save(fingerprint: str, mapping: StepMapping) -> None:
    """Keep a mapping; where nothing can be written it is used all the same, and not kept."""
    path = _path(fingerprint)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(mapping.to_json(), encoding="utf-8")
        os.replace(unfinished, path)
