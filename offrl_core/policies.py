"""What a policy is here: a table of action probabilities over state keys, and what it does at a key it never saw.

A policy may look back at the whole episode instead, see :class:`offrl_core.sequence_policy.SequencePolicy`. What needs a table
asks for it by :func:`table_of`, which refuses any other kind in a sentence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from .arrays import BoolArray, FloatArray, check_shape
from .errors import NotPossible

MOST_LISTED = 8  # names in a sentence


@dataclass(frozen=True, kw_only=True, eq=False)
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

    def __post_init__(self) -> None:
        """Check shapes and that every row is a distribution."""
        check_shape("probabilities", self.probabilities, (len(self.states), len(self.actions)))
        off = np.abs(self.probabilities @ np.ones(len(self.actions)) - 1.0).max(initial=0.0)
        if not off <= 1e-5 or self.probabilities.min(initial=0.0) < 0:  # NaN is off, too
            raise ValueError("every row of a policy must be a probability distribution")

    @cached_property
    def _row(self) -> dict[str, int]:
        return {key: row for row, key in enumerate(self.states)}

    def __repr__(self) -> str:
        """Shapes and what it does, not arrays."""
        n_sure = int((self.probabilities.max(axis=1, initial=0.0) > 1 - 1e-9).sum())
        return (
            f"TabularPolicy({len(self.states):,} states x {len(self.actions)} actions, "
            f"{n_sure:,} states with one sure action)"
        )

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

    def begin(self, state_key: str) -> str:
        """What it remembers at the start of an episode: the state."""
        return state_key

    def after(self, past: str, action: str, reward: float, state_key: str) -> str:
        """What it remembers one step later: the state, and nothing of how it got there."""
        del past, action, reward
        return state_key

    def choices(self, pasts: Sequence[str], valid_actions: Sequence[Sequence[str]]) -> list[dict[str, float]]:
        """:meth:`action_probabilities` for many."""
        return [self.action_probabilities(key, valid) for key, valid in zip(pasts, valid_actions, strict=True)]

    def digest(self) -> str:
        """See :meth:`Policy.digest`."""
        return hashlib.sha256(self.probabilities.tobytes()).hexdigest()

    def greedy_actions(self) -> tuple[str, ...]:
        """Most probable action per state (first of equals), S names."""
        return tuple(self.actions[a] for a in self.probabilities.argmax(axis=1))


class Policy(Protocol):
    """What every policy can do: act, remembering of an episode what it needs."""

    @property
    def states(self) -> tuple[str, ...]:
        """The S state keys it knows."""

    @property
    def actions(self) -> tuple[str, ...]:
        """The A action names it knows."""

    def knows(self, state_key: str) -> bool:
        """Whether it was trained on data that shows this state key; elsewhere it is uniform over the valid actions."""

    def begin(self, state_key: str) -> Any:
        """What it remembers at the start of an episode; equal and hashable where it acts alike."""

    def after(self, past: Any, action: str, reward: float, state_key: str) -> Any:
        """What it remembers after a step that led to a state."""

    def choices(self, pasts: Sequence[Any], valid_actions: Sequence[Sequence[str]]) -> list[dict[str, float]]:
        """Action name -> probability after each past, actions of probability 0 left out."""

    def digest(self) -> str:
        """64 hexadecimal digits, equal for policies of the same probabilities over the same states and actions."""


def needs_a_table(purpose: str) -> str:
    """Why a policy that looks back won't do, as a sentence; ``purpose`` begins it: "Exact values"."""
    return (
        f"{purpose} need a policy that is a table over states, and this one looks back: what it does in a state depends on "
        "the episode so far and on the return it is asked for. Rollouts in a world can judge it."
    )


def table_of(policy: Policy, purpose: str) -> TabularPolicy:
    """The policy as a table over states; ``purpose`` as in :func:`needs_a_table`.

    Raises:
        NotPossible: the policy looks back, so no table over states says what it does.
    """
    if isinstance(policy, TabularPolicy):
        return policy
    raise NotPossible(needs_a_table(purpose))


def action_places(policy: Policy, known: Sequence[str], where: str) -> list[int]:
    """Where each action of a policy stands among the ``known`` ones; ``where`` is who knows them: "the world calculator".

    Raises:
        NotPossible: the policy has an action that isn't among them.
    """
    places = {action: a for a, action in enumerate(known)}
    if unknown := [action for action in policy.actions if action not in places]:
        raise NotPossible(
            f"The policy has actions that {where} doesn't know: {_listed(unknown)}. Known there: {_listed(known)}. "
            "It was trained on another log; train one where these actions are the only ones."
        )
    return [places[action] for action in policy.actions]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:MOST_LISTED]))
    return f"{shown} and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else shown


def greedy_probabilities(q_values: FloatArray, allowed: BoolArray, fallback: BoolArray) -> FloatArray:
    """(S, A) one-hot rows at the largest allowed Q, first of equals; a state without any allowed action is uniform over
    ``fallback`` (S, A).
    """
    best = np.where(allowed, q_values, -np.inf).argmax(axis=1)
    probabilities, rows = np.zeros(q_values.shape), np.arange(len(best))
    probabilities[rows, best] = 1.0
    helpless = ~allowed[rows, best]
    if helpless.any():
        probabilities[helpless] = fallback[helpless] / fallback[helpless].sum(axis=1, keepdims=True)
    return probabilities


def uniform_policy(states: Sequence[str], actions: Sequence[str], valid_mask: BoolArray) -> TabularPolicy:
    """The policy that picks each valid action equally often; ``valid_mask`` is (S, A)."""
    probabilities = valid_mask / valid_mask.sum(axis=1, keepdims=True)
    return TabularPolicy(states=tuple(states), actions=tuple(actions), probabilities=probabilities)
