"""What an episode takes: its length, and what it costs on the way, beside whether it ends well. Exact in worlds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..behavior import behavior_policy
from ..behavior_policies import AnyBehavior
from ..mdp import policy_chain
from ..policies import Policy, table_of
from ..worlds import WORLDS, make_world
from .exact import world_model

MAX_STEPS = 1000  # as in a rollout


class Course(NamedTuple):
    """Expected course of an episode, cut where it goes on for too long.

    Attributes:
        steps: its length.
        cost: undiscounted sum of the negative rewards of steps that don't end it, as a positive number, reward units.
        cut: share of the episodes that still went on after the last step allowed.
    """

    steps: float
    cost: float
    cut: float


def course(policy: Policy, world: str, deployment: str = "works", max_steps: int = MAX_STEPS) -> dict[str, Course]:
    """Expected length and cost of the episodes of a policy, exactly.

    Args:
        policy: over state keys.
        world: name in :data:`offrl_core.worlds.WORLDS`.
        deployment: which hidden truth.
        max_steps: longer episodes are cut.

    Returns:
        By task, and under "" over all of them.

    Raises:
        NotPossible: the policy is no table over states.
    """
    model = world_model(world, deployment)
    probabilities = model.probabilities(table_of(policy, "Exact values"))
    onward = policy_chain(model.mdp, probabilities).T.tocsr()
    costs = (probabilities * model.costs).sum(axis=0)
    shares = {"": model.starts} | {task: model.starts * (model.tasks == task) for task in WORLDS[world].tasks}
    going = np.column_stack([share / share.sum() for share in shares.values()])  # (F, tasks), episodes under way
    totals = np.zeros((2, len(shares)))
    for _ in range(max_steps):
        totals += [going.sum(axis=0), costs @ going]
        going = onward @ going
        if going.sum() <= 1e-12:
            break
    return {
        task: Course(float(steps), float(cost), float(cut))
        for task, steps, cost, cut in zip(shares, *totals, going.sum(axis=0), strict=True)
    }


def behavior_course(behavior: AnyBehavior, world: str, deployment: str = "works") -> dict[str, Course]:
    """The same for the agent or the agents that write a log: the mean over the agents, by their shares."""
    arena = make_world(world, deployment)
    parts = [
        (part.share, course(behavior_policy(arena, part.behavior), world, deployment)) for part in behavior.parts("")
    ]
    return {
        task: Course(*(sum(share * courses[task][i] for share, courses in parts) for i in range(3)))
        for task in parts[0][1]
    }
