"""A policy that looks back: what it does depends on the episode so far and on the return still asked for.

It is a small transformer, played in NumPy: a server that shows or judges it never imports torch. Training it is the
business of :mod:`offrl_core.algorithms.decision_transformer`; the tests hold both forward passes against each other.

An episode is a row of tokens, three a step: return still asked for, state, action. What the policy does next is read at the
last state token, which sees everything before it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import BoolArray, FloatArray, IntArray, check_shape
from .errors import InvalidConfig

Weights = Mapping[str, NDArray[Any]]
LAYER_NORM_SLACK = 1e-5  # under the root, as everywhere
# What is asked for stays within so many spreads of the returns it learned from. That is far beyond all of them, and squares
# of it are far below the largest float32 (3e38).
MOST_SPREADS = 1e6


class Past(NamedTuple):
    """What a policy remembers of an episode: its last steps, the one it is about to take included."""

    time: int  # steps before the first remembered one
    returns: tuple[float, ...]  # still asked for at each remembered step, discounted, reward units
    states: tuple[int, ...]  # row of each state; S where the policy never saw it
    actions: tuple[int, ...]  # one less than states; A for an action it doesn't know


@dataclass(frozen=True, kw_only=True, eq=False)
class SequencePolicy:
    """Action probabilities by what happened in the episode so far.

    In a state outside ``states`` the policy is uniform over the valid actions: it has learned nothing there.

    What is still asked for is kept within :data:`MOST_SPREADS` spreads of the returns it learned from: divided by a small
    discount step after step it would outgrow the numbers of the network.

    Attributes:
        states: the S state keys.
        actions: the A action names.
        allowed: (S, A) actions it may take.
        weights: of the transformer, see :func:`action_logits`.
        n_heads: of its attention.
        context: steps it remembers.
        discount: γ, by which what is still asked for grows from step to step.
        target_return: the return asked for, discounted, reward units; see :meth:`asking`.
        return_range: smallest and largest return of an episode that it learned from, discounted.
        greedy: whether it takes the most probable action (first of equals) or draws.
    """

    states: tuple[str, ...]
    actions: tuple[str, ...]
    allowed: BoolArray
    weights: Weights = field(repr=False)
    n_heads: int
    context: int
    discount: float
    target_return: float
    return_range: tuple[float, float]
    greedy: bool

    def __post_init__(self) -> None:
        """Check the return asked for, shapes and that every state has an action.

        Raises:
            InvalidConfig: the return asked for is NaN or infinite.
        """
        if not math.isfinite(self.target_return):
            raise InvalidConfig(
                f"The return asked for is {self.target_return}; it must be a finite number, in units of the reward."
            )
        n_states, n_actions = len(self.states), len(self.actions)
        check_shape("allowed", self.allowed, (n_states, n_actions))
        if not self.allowed.any(axis=1).all():
            raise ValueError("a policy needs at least one allowed action in every state")
        width = self.weights["return"].shape[1]
        check_shape("weights of the states", self.weights["state"], (n_states + 1, width))
        check_shape("weights of the actions", self.weights["action"], (n_actions + 1, width))

    @cached_property
    def _row(self) -> dict[str, int]:
        return {key: row for row, key in enumerate(self.states)}

    def __repr__(self) -> str:
        """Shapes and what it is asked for, not weights."""
        return (
            f"SequencePolicy({len(self.states):,} states x {len(self.actions)} actions, {self.context} steps back, "
            f"asked for {self.target_return:+z.3f})"
        )

    def asking(self, target_return: float) -> SequencePolicy:
        """The same policy, asked for another return (discounted, reward units).

        Raises:
            InvalidConfig: it is NaN or infinite.
        """
        return replace(self, target_return=float(target_return))

    def knows(self, state_key: str) -> bool:
        """Whether the policy was trained on data that shows this state key."""
        return state_key in self._row

    @property
    def horizon(self) -> int:
        """Steps of the longest episode it learned from; later steps count as the last of these."""
        return len(self.weights["time"])

    def begin(self, state_key: str) -> Past:
        """What it remembers at the start of an episode."""
        return Past(0, (self._within_reach(self.target_return),), (self._row.get(state_key, len(self.states)),), ())

    def after(self, past: Past, action: str, reward: float, state_key: str) -> Past:
        """What it remembers one step later: of the return asked for, what the step's reward left open."""
        # At discount 0 nothing later counts, so every step is asked for the same.
        missing = (past.returns[-1] - float(reward)) / self.discount if self.discount else self.target_return
        known = self.actions.index(action) if action in self.actions else len(self.actions)
        too_many = max(0, len(past.states) + 1 - self.context)
        return Past(
            time=past.time + too_many,
            returns=(*past.returns, self._within_reach(missing))[too_many:],
            states=(*past.states, self._row.get(state_key, len(self.states)))[too_many:],
            actions=(*past.actions, known)[too_many:],
        )

    def _within_reach(self, asked: float) -> float:
        """A return, or the end of what may be asked for that is nearest to it."""
        mean, spread = self.weights["return/scale"].tolist()
        most = np.finfo(np.float64).max.item()
        low, high = mean - MOST_SPREADS * spread, mean + MOST_SPREADS * spread
        return min(max(asked, low, -most), high, most)

    def digest(self) -> str:
        """64 hexadecimal digits, equal for policies that do the same over the same states and actions."""
        asked = (self.target_return, self.discount, self.context, self.n_heads, self.greedy)
        digest = hashlib.sha256(repr(asked).encode() + self.allowed.tobytes())
        for name, array in self.weights.items():
            digest.update(name.encode() + array.tobytes())
        return digest.hexdigest()

    def choices(self, pasts: Sequence[Past], valid_actions: Sequence[Sequence[str]]) -> list[dict[str, float]]:
        """Action name -> probability after each past, actions of probability 0 left out.

        Args:
            pasts: from :meth:`begin` and :meth:`after`; equal ones are worked out once.
            valid_actions: names of the valid actions, for states that the policy never saw.
        """
        different = list(dict.fromkeys(past for past in pasts if past.states[-1] < len(self.states)))
        tables = dict(zip(different, self._tables(different), strict=True))
        return [
            {self.actions[a]: float(p) for a, p in enumerate(tables[past]) if p > 0}
            if past in tables
            else dict.fromkeys(valid, 1 / len(valid))
            for past, valid in zip(pasts, valid_actions, strict=True)
        ]

    def _tables(self, pasts: Sequence[Past]) -> FloatArray:
        """(B, A) probabilities after B pasts, whatever their lengths."""
        tables = np.zeros((len(pasts), len(self.actions)))
        lengths = np.array([len(past.states) for past in pasts])
        for length in np.unique(lengths):
            places = np.flatnonzero(lengths == length)
            tables[places] = self.probabilities([pasts[place] for place in places.tolist()])
        return tables

    def probabilities(self, pasts: Sequence[Past]) -> FloatArray:
        """(B, A) probabilities after B pasts of equal length in states that the policy knows."""
        states = np.array([past.states for past in pasts])
        times = np.array([past.time for past in pasts])[:, None] + np.arange(states.shape[1])
        actions = np.array([past.actions for past in pasts], dtype=np.int64).reshape(len(pasts), -1)
        returns = np.array([past.returns for past in pasts])
        logits = action_logits(
            self.weights, self.n_heads, returns, np.minimum(times, self.horizon - 1), states, actions
        )
        logits = np.where(self.allowed[states[:, -1]], logits, -np.inf)
        if self.greedy:
            return np.eye(len(self.actions))[logits.argmax(axis=1)]
        chances = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float64)
        return chances / chances.sum(axis=1, keepdims=True)


# -- the transformer ---------------------------------------------------------------------------------------------


def n_layers_of(names: Iterable[str]) -> int:
    """Layers of a transformer, from the names of its weights."""
    return sum(name.endswith("/query") for name in names)


def action_logits(
    weights: Weights, n_heads: int, returns: FloatArray, times: IntArray, states: IntArray, actions: IntArray
) -> NDArray[np.float32]:
    """(B, A) logits of the next action, read at the last state token.

    A layer adds to each token a mixture of the tokens up to it (attention), then a function of the token alone; each sees
    normed tokens (Radford et al. 2019). The last layer works on the one token that is read.

    Args:
        weights: "return" (2, D) slope and offset, "return/scale" (2,) mean and spread of the returns-to-go, "time" (T, D),
            "state" (S+1, D), "action" (A+1, D) embeddings; for each layer i "i/norm" (2, D) gain and offset, "i/query"
            (D, D), "i/look" (D, 2D) keys and values, "i/merge" (D, D), "i/norm_wide" (2, D), "i/widen" (D, 4D), "i/narrow"
            (4D, D), each matrix with its "bias"; "norm" (2, D), "choose" (D, A). All float32 but the scale.
        n_heads: of the attention.
        returns: (B, L) still asked for, reward units.
        times: (B, L) steps since the episode began, below T.
        states: (B, L) rows, the last one where it acts now.
        actions: (B, L-1).
    """
    n_layers = n_layers_of(weights)
    x = _tokens(weights, returns, times, states, actions)
    for layer in range(n_layers):
        read = slice(-1, None) if layer == n_layers - 1 else slice(None)
        x = _layer(weights, f"{layer}/", x, read, n_heads)
    return _linear(weights, "choose", _normed(x[:, 0], weights["norm"]))


def _tokens(
    weights: Weights, returns: FloatArray, times: IntArray, states: IntArray, actions: IntArray
) -> NDArray[np.float32]:
    """(B, 3L-1, D) return, state, action, return, ..., state."""
    mean, spread = weights["return/scale"]
    slope, offset = weights["return"]
    asked = ((returns - mean) / spread).astype(np.float32)
    when = weights["time"][times]
    tokens = np.empty((len(states), 3 * states.shape[1] - 1, len(slope)), dtype=np.float32)
    tokens[:, 0::3] = asked[:, :, None] * slope + offset + when
    tokens[:, 1::3] = weights["state"][states] + when
    tokens[:, 2::3] = weights["action"][actions] + when[:, :-1]
    return tokens


def _layer(weights: Weights, prefix: str, x: NDArray[np.float32], read: slice, n_heads: int) -> NDArray[np.float32]:
    normed, x = _normed(x, weights[f"{prefix}norm"]), x[:, read]
    queries = _heads(_linear(weights, f"{prefix}query", normed[:, read]), n_heads)
    keys, values = (_heads(part, n_heads) for part in np.split(_linear(weights, f"{prefix}look", normed), 2, axis=-1))
    scores = queries @ keys.swapaxes(-1, -2) / np.float32(queries.shape[-1] ** 0.5)
    places = np.arange(scores.shape[-1])
    scores[..., places > places[read][:, None]] = -np.inf  # no token sees a later one
    mixture = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixture /= mixture.sum(axis=-1, keepdims=True)
    x = x + _linear(weights, f"{prefix}merge", (mixture @ values).swapaxes(1, 2).reshape(x.shape))
    wide = _linear(weights, f"{prefix}widen", _normed(x, weights[f"{prefix}norm_wide"]))
    return x + _linear(weights, f"{prefix}narrow", np.maximum(wide, 0))


def _heads(x: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """(B, H, L, D/H) from (B, L, D)."""
    return x.reshape(*x.shape[:2], n_heads, -1).swapaxes(1, 2)


def _linear(weights: Weights, name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
    product: NDArray[np.float32] = x @ weights[name] + weights[f"{name}/bias"]
    return product


def _normed(x: NDArray[np.float32], norm: NDArray[np.float32]) -> NDArray[np.float32]:
    centred = x - x.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(LAYER_NORM_SLACK))
    gain, offset = norm
    normed: NDArray[np.float32] = centred / spread * gain + offset
    return normed
