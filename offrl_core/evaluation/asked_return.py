"""What a policy gets for what it is asked: sampled in a world, from less than the log's worst return to more than its best."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..interfaces import Progress
from ..sequence_policy import SequencePolicy
from .rollout import roll_out

STEPS_INSIDE, STEPS_BEYOND = 12, 3  # of the dial: inside the range of the log, and beyond each end of it
LENGTH_FACTOR = 4  # episodes are cut at so many times the longest of the log


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskedReturns:
    """Achieved against asked, K points. All returns are discounted, in reward units.

    Attributes:
        asked: (K,) returns asked for, rising.
        achieved: (K,) mean returns of sampled episodes.
        low, high: (K,) 95 % intervals of these means, by the bootstrap.
        success: (K,) shares of solved episodes.
        return_range: smallest and largest return of an episode that the policy learned from.
        n_episodes: sampled for each point.
        n_unfinished: episodes of all points that were cut, as they went on for too long.
    """

    asked: FloatArray
    achieved: FloatArray
    low: FloatArray
    high: FloatArray
    success: FloatArray
    return_range: tuple[float, float]
    n_episodes: int
    n_unfinished: int


Asking = Generator[Progress, None, AskedReturns]


def dial_of(return_range: tuple[float, float]) -> FloatArray:
    """(K,) returns to ask for: evenly over the range, both ends included, and a quarter of its width beyond each end."""
    low, high = return_range
    width = high - low or 1.0
    return low + width * np.arange(-STEPS_BEYOND, STEPS_INSIDE + STEPS_BEYOND + 1) / STEPS_INSIDE


def asked_returns(
    policy: SequencePolicy,
    world: str,
    deployment: str = "works",
    *,
    n_episodes: int = 200,
    seed: int = 0,
    discount: float | None = None,
) -> Asking:
    """Ask for one return after the other, and see what comes of it.

    Args:
        policy: what is asked; its own target return doesn't matter.
        world: name in :data:`offrl_core.worlds.WORLDS`.
        deployment: which hidden truth.
        n_episodes: sampled for each point; the same starts and dice for all of them.
        seed: of the sampling.
        discount: γ; the world's own by default.

    Yields:
        Progress after each point.
    """
    asked = dial_of(policy.return_range)
    rows, n_unfinished = np.zeros((len(asked), 4)), 0
    for k, target in enumerate(asked):
        sampled = roll_out(
            policy.asking(target),
            world,
            deployment,
            n_episodes=n_episodes,
            seed=seed,
            discount=discount,
            max_steps=LENGTH_FACTOR * policy.horizon,
        )
        rows[k] = sampled.mean_return, *sampled.return_interval(), sampled.success_rate
        n_unfinished += sampled.unfinished
        yield Progress(step=k + 1, total=len(asked), metrics={"asked": float(target), "achieved": rows[k, 0]})
    achieved, low, high, success = rows.T
    return AskedReturns(
        asked=asked,
        achieved=achieved,
        low=low,
        high=high,
        success=success,
        return_range=policy.return_range,
        n_episodes=n_episodes,
        n_unfinished=n_unfinished,
    )
