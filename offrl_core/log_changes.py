"""What was done to a log after it was read, as text for a link: parallel calls joined, rewards given by a recipe.

The text is a JSON list, in the order of doing: ``["joint", ["rule", "no_error", ...]]``. Whoever has the file can make the
same log of it; rewards that were joined need the file that judges, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import InvalidConfig
from .joint_actions import join_parallel_calls
from .log import Log
from .reward_files import RewardFile
from .rewards import recipe_from_json, with_rewards
from .schema import canonical_json

JOINT = "joint"
MOST_CHANGES = 10


def changes_to_link(changes: Sequence[Any]) -> str:
    """Changes as text: each is ``JOINT`` or what a recipe's ``to_json`` says."""
    return canonical_json(list(changes))


def changes_from_link(text: str) -> list[Any]:
    """The changes of a text; only their number is checked here, each is checked when it's done.

    Raises:
        InvalidConfig: it is no list of some changes.
    """
    try:
        changes = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig("The changes of the log can't be read.") from error
    if not isinstance(changes, list) or not 1 <= len(changes) <= MOST_CHANGES:
        raise InvalidConfig(f"The changes of the log must be a list of 1 to {MOST_CHANGES}.")
    return changes


def changed(log: Log, change: Any, reward_files: Mapping[str, RewardFile]) -> Log:
    """The log after one more change; the old one stays as it is.

    Args:
        log: an imported log.
        change: one of :func:`changes_from_link`.
        reward_files: files with rewards that are at hand, by fingerprint.

    Raises:
        InvalidConfig, InvalidPredicate: the change isn't known or doesn't fit the log.
        NotPossible: the file with the rewards isn't there, or a world made the log.
    """
    return join_parallel_calls(log) if change == JOINT else with_rewards(log, recipe_from_json(change, reward_files))
