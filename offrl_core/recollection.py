"""A log collected again by an agent that does without some tool: the edit that worlds alone can offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb

from .behavior import WorldSource, named_behavior
from .coverage_edits import CoverageEdit, DropAction, cannot_compute
from .errors import InvalidConfig, InvalidEdit
from .log import Log, recollected
from .worlds import WORLDS, make_world

# Without the action that leads to the goal, each episode goes on to its limit: hundreds of times as many steps. A log
# collected again has at most so many times the steps of the one before, or so many if that is more.
TIMES_LONGER, FEW_STEPS = 5, 200_000


def collected_again(log: Log, edits: Sequence[CoverageEdit]) -> Log:
    """The log that the re-collecting edits ask for; the same edits find the log made before."""
    recollections = [edit for edit in edits if isinstance(edit, DropAction) and edit.how == "recollect"]
    for edit in recollections:
        if log.source is None:
            raise InvalidEdit(
                f"{log.name} is an imported log: no world is known that could collect it again without {edit.action}. "
                "Drop the episodes that contain it instead."
            )
        log = _collected_without(log, log.source, edit)
    return log


def _collected_without(log: Log, source: WorldSource, edit: DropAction) -> Log:
    world = make_world(source.world)
    if edit.action not in world.action_names:
        raise InvalidEdit(f"{world.name} has no action called {edit.action!r}; it has {', '.join(world.action_names)}.")
    if edit.columns_of_where - {"task"}:
        raise InvalidEdit(
            f"To collect again without {edit.action}, the condition may only name the task, not "
            f"{', '.join(sorted(edit.columns_of_where - {'task'}))}: an agent can't avoid what it doesn't see."
        )
    if edit.where and not WORLDS[source.world].tasks:
        raise InvalidEdit(f"{world.name} has no tasks, so an agent can't leave {edit.action} out on some of them.")
    tasks = _tasks_where(log, edit.where) if edit.where else ("*",)
    behavior = source.behavior.without(edit.action, tasks)
    new_source = replace(source, behavior=behavior, behavior_name=named_behavior(behavior, source.world)[0])
    name, most_steps = f"{log.name}, collected again without {edit.action}", max(TIMES_LONGER * log.n_steps, FEW_STEPS)
    try:
        new_log = recollected(new_source, name=name, most_steps=most_steps)
    except InvalidConfig as error:
        raise InvalidEdit(
            f"Without {edit.action} the agent of {world.name} goes round and round. {error} Or drop the episodes or the steps."
        ) from error
    still = new_log.rows(
        "SELECT count(*) FROM steps WHERE action = ? AND (? OR list_contains(?, task))",
        [edit.action, tasks == ("*",), list(tasks)],
    )[0][0]
    if still:
        raise InvalidEdit(
            f"No agent of {world.name} can do without {edit.action}: where it is the only valid action it is taken all the same "
            f"({still:,} times in the new log). Drop the episodes or the steps instead."
        )
    return new_log


def _tasks_where(log: Log, where: str) -> tuple[str, ...]:
    try:
        tasks = tuple(task for (task,) in log.rows(f"SELECT DISTINCT task FROM steps WHERE {where} ORDER BY task"))
    except duckdb.Error as error:
        raise InvalidEdit(cannot_compute(error)) from error
    if not tasks:
        raise InvalidEdit(f"No task of the log meets the condition {where}.")
    return tasks
