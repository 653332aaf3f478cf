"""Logs of the cart on a line: an agent with a habit, whose strength stays inside a part of the range.

The habit is a normal distribution around a drive towards the mark, a = -s / 2 with standard deviation 0.35, redrawn until it
lies in the covered range. The range is the dial: what lies outside it, the log never shows.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import BoolArray, FloatArray, IntArray
from ..errors import InvalidConfig
from .world import HIGH, LOW, PointWorld

EPISODE_STEPS = 5  # after so many an episode is cut
N_BINS = 20  # of states, and of actions, in counts and in the support
MIN_RANGE = 0.05  # a range narrower than this is no range


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """Behavior policy: a truncated normal distribution.

    Attributes:
        low, high: the covered range of actions, inside -1..1.
        slope: mean strength per unit of distance, before the cut.
        spread: standard deviation, before the cut.
    """

    low: float = -0.5
    high: float = 0.5
    slope: float = -0.5
    spread: float = 0.35

    def __post_init__(self) -> None:
        """Check the range.

        Raises:
            InvalidConfig: it leaves -1..1 or is narrower than 0.05.
        """
        if not (self.low >= LOW and self.high <= HIGH and self.high - self.low >= MIN_RANGE - 1e-9):
            raise InvalidConfig(
                f"The covered range runs from {self.low!r} to {self.high!r}; it must lie inside -1 to 1 and be at least "
                f"{MIN_RANGE} wide."
            )

    def density(self, observations: FloatArray, actions: FloatArray) -> FloatArray:
        """π_b(a|s), probability per unit of action, for shapes that broadcast; 0 outside the range."""
        means = self.slope * observations
        inside = (actions >= self.low) & (actions <= self.high)
        bell = np.exp(-(((actions - means) / self.spread) ** 2) / 2) / (self.spread * math.sqrt(2 * math.pi))
        mass = _normal_cdf((self.high - means) / self.spread) - _normal_cdf((self.low - means) / self.spread)
        return np.asarray(np.where(inside, bell / mass, 0.0))

    def draw(self, observations: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(N,) actions, one for each state."""
        actions = np.full(len(observations), np.nan)
        waiting = np.arange(len(observations))
        while len(waiting):
            drawn = rng.normal(self.slope * observations[waiting], self.spread)
            inside = (drawn >= self.low) & (drawn <= self.high)
            actions[waiting[inside]] = drawn[inside]
            waiting = waiting[~inside]
        return actions


_normal_cdf = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)), otypes=[float])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointLog:
    """N transitions; nothing ends, so every target bootstraps.

    Attributes:
        observations, actions, rewards, next_observations: (N,).
        timeouts: (N,) whether the episode was cut behind the row.
        discount: γ.
    """

    observations: FloatArray
    actions: FloatArray
    rewards: FloatArray
    next_observations: FloatArray
    timeouts: BoolArray
    discount: float

    def __len__(self) -> int:
        """N."""
        return len(self.actions)

    @property
    def fingerprint(self) -> str:
        """Equal for equal rows."""
        columns = self.observations, self.actions, self.rewards, self.next_observations
        return hashlib.sha256(np.stack(columns).tobytes()).hexdigest()[:16]

    def counts(self) -> IntArray:
        """(N_BINS, N_BINS) rows per bin of states and bin of actions, both from -1 to 1."""
        edges = np.linspace(LOW, HIGH, N_BINS + 1)
        return np.histogram2d(self.observations, self.actions, [edges, edges])[0].astype(np.int64)

    def near(self, observation: float, width: float = 2 / N_BINS) -> IntArray:
        """(N_BINS,) rows per bin of actions, among those whose state is within half of ``width`` of a state."""
        rows = np.abs(self.observations - observation) <= width / 2
        return np.histogram(self.actions[rows], np.linspace(LOW, HIGH, N_BINS + 1))[0].astype(np.int64)


def collect(world: PointWorld, habit: Habit, *, n_episodes: int = 400, seed: int = 0) -> PointLog:
    """Let the agent act in all episodes side by side, for ``EPISODE_STEPS`` steps each.

    Raises:
        InvalidConfig: less than one episode.
    """
    if n_episodes < 1:
        raise InvalidConfig(f"A log needs at least one episode, and {n_episodes!r} were asked for.")
    rng = np.random.default_rng(seed)
    here = rng.uniform(LOW, HIGH, n_episodes)
    columns: list[tuple[NDArray[np.float64], ...]] = []
    for _ in range(EPISODE_STEPS):
        actions = habit.draw(here, rng)
        outcomes = world.outcomes(here, actions)
        happened = rng.choice(len(outcomes), size=n_episodes, p=[outcome.probability for outcome in outcomes])
        following = np.choose(happened, [outcome.next_observations for outcome in outcomes])
        rewards = np.choose(happened, [outcome.rewards for outcome in outcomes])
        columns.append((here, actions, rewards, following))
        here = following
    # (steps, episodes) to one row after the other, episode by episode.
    observations, actions, rewards, next_observations = (
        np.stack(column).T.ravel() for column in zip(*columns, strict=True)
    )
    timeouts = np.tile(np.arange(EPISODE_STEPS) == EPISODE_STEPS - 1, n_episodes)
    return PointLog(
        observations=observations,
        actions=actions,
        rewards=rewards,
        next_observations=next_observations,
        timeouts=timeouts,
        discount=world.discount,
    )
