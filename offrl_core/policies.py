"""What a policy is here: a table of action probabilities over state keys, and what it does at a key it never saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .arrays import BoolArray, FloatArray, check_shape


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TabularPolicy:
    """Action probabilities by state key.

    At a key outside ``states`` the policy is uniform over the valid actions: it has learned nothing there.

    Attributes:
        states: the S state keys.
        actions: the A action names.
        probabilities: (S, A) rows sum to 1.
    """

    states: tuple[str, ...]
    actions: tuple[str, ...]
    probabilities: FloatArray
    _row: dict[str, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check shapes and that every row is a distribution, and index the keys."""
        check_shape("probabilities", self.probabilities, (len(self.states), len(self.actions)))
        off = np.abs(self.probabilities.sum(axis=1) - 1.0).max(initial=0.0)
        if not off <= 1e-5 or self.probabilities.min(initial=0.0) < 0:  # NaN is off, too
            raise ValueError("every row of a policy must be a probability distribution")
        self._row.update(zip(self.states, range(len(self.states)), strict=True))

    def row(self, state_key: str) -> int | None:
        """Row of a state key, or None where the policy never saw it."""
        return self._row.get(state_key)

    def knows(self, state_key: str) -> bool:
        """Whether the policy was trained on data that shows this state key."""
        return state_key in self._row

    def action_probabilities(self, state_key: str, valid_actions: Sequence[str]) -> dict[str, float]:
        """Action name -> probability at a state key, actions of probability 0 left out."""
        row = self.row(state_key)
        if row is None:
            return dict.fromkeys(valid_actions, 1 / len(valid_actions))
        return {self.actions[a]: float(p) for a, p in enumerate(self.probabilities[row]) if p > 0}

    def greedy_actions(self) -> tuple[str, ...]:
        """Most probable action per state (first of equals), S names."""
        return tuple(self.actions[a] for a in self.probabilities.argmax(axis=1))


def greedy_probabilities(q_values: FloatArray, allowed: BoolArray, fallback: BoolArray) -> FloatArray:
    """(S, A) one-hot rows at the largest allowed Q, first of equals; a state without any allowed action is uniform over
    ``fallback`` (S, A).
    """
    best = np.where(allowed, q_values, -np.inf).argmax(axis=1)
    probabilities = np.zeros(q_values.shape)
    probabilities[np.arange(len(best)), best] = 1.0
    helpless = ~allowed.any(axis=1)
    if helpless.any():
        probabilities[helpless] = fallback[helpless] / fallback[helpless].sum(axis=1, keepdims=True)
    return probabilities


def uniform_policy(states: Sequence[str], actions: Sequence[str], valid_mask: BoolArray) -> TabularPolicy:
    """The policy that picks each valid action equally often; ``valid_mask`` is (S, A)."""
    probabilities = valid_mask / valid_mask.sum(axis=1, keepdims=True)
    return TabularPolicy(states=tuple(states), actions=tuple(actions), probabilities=probabilities)
