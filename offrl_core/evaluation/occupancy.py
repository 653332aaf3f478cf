"""Where a policy goes, step by step: the mass of its episodes on every pair, exact on any process of counts or of truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from ..arrays import BoolArray, FloatArray
from ..mdp import TabularMDP, discounted_sums, policy_chain

MAX_STEPS = 2_000
GONE = 1e-12  # share of the episodes still on their way that counts as none


def visits_by_step(
    mdp: TabularMDP, starts: FloatArray, probabilities: FloatArray, *, max_steps: int = MAX_STEPS
) -> Iterator[FloatArray]:
    """Push the episodes of a policy through a process.

    Args:
        mdp: the process; only what follows each pair matters here.
        starts: (S,) share of the episodes that begin in each state.
        probabilities: (A, S) of the policy. Rows that sum to less than 1 lose episodes, which is how an event stops them.
        max_steps: stop then at the latest.

    Yields:
        (A, S) share of the episodes that take each pair at step 0, 1, ...; ends when none is left (to 1e-12).
    """
    onward, mass = mdp.successors.matrix.T.tocsr(), starts
    for _ in range(max_steps):
        if mass.sum() <= GONE:
            return
        taken = probabilities * mass
        yield taken
        mass = onward @ taken.ravel()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstSteps:
    """When an event happens first.

    Attributes:
        by_step: (T,) probability that it happens for the first time at step 0, 1, ...
        open: share of the episodes that still go on without it after the last step looked at.
    """

    by_step: FloatArray
    open: float

    @property
    def happened(self) -> FloatArray:
        """(T,) probability that it has happened up to each step."""
        return np.cumsum(self.by_step)

    @property
    def ever(self) -> float:
        """Probability that it happens at all, within the steps looked at; rounding must not leave less than nothing for never."""
        return min(1.0, float(self.by_step.sum()))


def first_steps(
    mdp: TabularMDP, starts: FloatArray, probabilities: FloatArray, event: BoolArray, *, max_steps: int = MAX_STEPS
) -> FirstSteps:
    """The exact distribution of the first step at which an episode takes one of the pairs of an event.

    Args:
        mdp: the process.
        starts: (S,) share of the episodes that begin in each state.
        probabilities: (A, S) of the policy.
        event: (A, S) pairs.
        max_steps: of an episode that may never end.
    """
    happens, until_then = _until(mdp, probabilities, event)
    onward = until_then.T.tocsr()
    by_step: list[float] = []
    mass = starts
    while mass.sum() > GONE and len(by_step) < max_steps:
        by_step.append(float(happens @ mass))
        mass = onward @ mass
    return FirstSteps(by_step=np.array(by_step), open=float(mass.sum()) if mass.sum() > GONE else 0.0)


def event_probability(mdp: TabularMDP, starts: FloatArray, probabilities: FloatArray, event: BoolArray) -> float:
    """Probability that an episode ever takes one of the pairs of an event, however long it takes; arguments as above."""
    happens, until_then = _until(mdp, probabilities, event)
    return float(starts @ discounted_sums(until_then, happens, 1.0))


def _until(mdp: TabularMDP, probabilities: FloatArray, event: BoolArray) -> tuple[FloatArray, scipy.sparse.csr_array]:
    """(S,) probability that the event happens at once, and (S, S) that it doesn't, and where that leads."""
    happens = probabilities * event
    return happens.sum(axis=0), policy_chain(mdp, probabilities - happens)
