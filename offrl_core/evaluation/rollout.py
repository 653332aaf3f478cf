"""Sampling a policy in a world: what an experiment would show, with its error. The exact values are in ``exact``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import BoolArray, FloatArray, ShortRepr
from ..behavior import sample
from ..policies import Policy, action_places
from ..worlds import make_world
from .coverage_study import wilson

LEVEL = 0.95  # of every interval
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Rollout(ShortRepr):
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

    def success_interval(self) -> Interval:
        """95 % interval of the success rate by Wilson (1927), which holds near 0 and 1, too."""
        low, high = wilson(int(self.successes.sum()), len(self.successes))
        return max(0.0, low), min(1.0, high)

    def return_interval(self, n_bootstrap: int = 500, seed: int = 0) -> Interval:
        """95 % interval of the mean return: percentiles of the bootstrap over episodes (Efron 1979)."""
        different, places = np.unique(self.returns, return_inverse=True)
        shares = np.bincount(places) / len(self.returns)
        counts = np.random.default_rng(seed).multinomial(len(self.returns), shares, size=n_bootstrap)
        ends = np.quantile(counts @ different / len(self.returns), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="weibull")
        return float(ends[0]), float(ends[1])


def roll_out(
    policy: Policy,
    world: str,
    deployment: str = "works",
    *,
    n_episodes: int = 500,
    seed: int = 0,
    discount: float | None = None,
    max_steps: int = 1000,
) -> Rollout:
    """Sample episodes; the same seed gives the same episodes.

    Raises:
        NotPossible: the policy has an action that the world doesn't know.
    """
    arena = make_world(world, deployment)
    action_places(policy, arena.action_names, f"the world {world}")
    discount = arena.discount if discount is None else discount
    rng = np.random.default_rng(seed)
    probabilities, starts = zip(*arena.initial_states(), strict=True)
    states = [starts[place] for place in rng.choice(len(starts), size=n_episodes, p=probabilities)]
    pasts = [policy.begin(arena.state_key(state)) for state in states]
    returns, successes, going = np.zeros(n_episodes), np.zeros(n_episodes, dtype=bool), list(range(n_episodes))
    for step in range(max_steps):
        # All episodes go a step further at a time: a policy that looks back is asked once for many.
        choices = policy.choices([pasts[e] for e in going], [arena.actions(states[e]) for e in going])
        still_going = []
        for episode, choice in zip(going, choices, strict=True):
            action = sample(rng, list(choice), list(choice.values()))
            outcomes = arena.transitions(states[episode], action)
            _, state, reward, terminal = sample(rng, outcomes, [o.probability for o in outcomes])
            states[episode] = state
            returns[episode] += discount**step * reward
            if terminal:
                successes[episode] = arena.succeeded(state)
            else:
                pasts[episode] = policy.after(pasts[episode], action, reward, arena.state_key(state))
                still_going.append(episode)
        going = still_going
        if not going:
            break
    return Rollout(returns=returns, successes=successes, unfinished=len(going))
