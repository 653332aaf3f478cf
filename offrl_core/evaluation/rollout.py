"""Sampling a policy in a world: what an experiment would show, with its error. The exact values are in ``exact``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import BoolArray, FloatArray
from ..behavior import sample
from ..policies import TabularPolicy
from ..worlds import make_world


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rollout:
    """Sampled episodes of a policy.

    Attributes:
        returns: (E,) discounted returns, reward units.
        successes: (E,) whether each episode solved its task.
        unfinished: episodes that were cut at the bound of steps; their returns are too short.
    """

    returns: FloatArray
    successes: BoolArray
    unfinished: int

    @property
    def mean_return(self) -> float:
        """Mean discounted return."""
        return float(self.returns.mean())

    @property
    def success_rate(self) -> float:
        """Share of solved episodes."""
        return float(self.successes.mean())

    def standard_errors(self) -> tuple[float, float]:
        """Standard errors of mean return and success rate."""
        n = len(self.returns)
        return float(self.returns.std(ddof=1) / n**0.5), float(self.successes.std(ddof=1) / n**0.5)


def roll_out(
    policy: TabularPolicy,
    world: str,
    deployment: str = "works",
    *,
    n_episodes: int = 500,
    seed: int = 0,
    discount: float | None = None,
    max_steps: int = 1000,
) -> Rollout:
    """Sample episodes; the same seed gives the same episodes."""
    arena = make_world(world, deployment)
    discount = arena.discount if discount is None else discount
    rng = np.random.default_rng(seed)
    probabilities, starts = zip(*arena.initial_states(), strict=True)
    returns, successes, unfinished = np.zeros(n_episodes), np.zeros(n_episodes, dtype=bool), 0
    for episode, start in enumerate(rng.choice(len(starts), size=n_episodes, p=probabilities)):
        state, terminal, weight, steps = starts[start], False, 1.0, 0
        while not terminal and steps < max_steps:
            choice = policy.action_probabilities(arena.state_key(state), arena.actions(state))
            action = sample(rng, list(choice), list(choice.values()))
            outcomes = arena.transitions(state, action)
            _, state, reward, terminal = sample(rng, outcomes, [o.probability for o in outcomes])
            returns[episode] += weight * reward
            weight, steps = weight * discount, steps + 1
        successes[episode] = terminal and arena.succeeded(state)
        unfinished += not terminal
    return Rollout(returns=returns, successes=successes, unfinished=unfinished)
