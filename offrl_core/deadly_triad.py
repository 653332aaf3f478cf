"""The deadly triad: small problems on which learning from a log provably explodes, and what stops it.

Three things are harmless in pairs and can be deadly together: values that share parameters (linear features here), learning
from guesses about later values (bootstrapping), and a log that doesn't visit pairs as the learned policy would. All rewards
below are 0, so every true value is 0 and whatever is learned beyond that is error feeding on itself.

A sweep is one step of fitted Q iteration on the whole log: either the best fit to the targets (``fitted``: least squares) or
one small step towards them (``gradient``: expected semi-gradient Q-learning). While the same action stays best in every
state, a sweep is a matrix; its spectral radius is the exact factor by which errors grow per sweep, and it has a closed form.

Sources: Tsitsiklis & Van Roy (1996), "Feature-based methods for large scale dynamic programming", section 5; Baird (1995),
"Residual algorithms", section 3 (the star, in its version for Q-learning); Sutton & Barto (2018), sections 11.2 and 11.3;
support: Fujimoto, Meger & Precup (2019), "Off-policy deep reinforcement learning without exploration", threshold of discrete
BCQ; penalty: Kumar et al. (2020), "Conservative Q-learning", equation 2 with the maximum as the policy.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .arrays import BoolArray, FloatArray, IntArray, check_shape
from .errors import InvalidConfig, UnknownName

SUPPORT_SHARE = 0.3  # of the most frequent action of the state: rarer ones count as outside the support
LARGEST = 1e200  # iterates stop beyond; doubles end at 1e308


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearProblem:
    """P pairs (state, action) with D features, and the log they are learned from. All rewards are 0.

    Attributes:
        name, title, summary: for registries and menus.
        pairs: P names.
        features: (P, D); learned Q is features @ weights.
        states: (P,) state of each pair, 0 .. S-1.
        shares: (P,) share of the log's rows; 0 for a pair that the log never shows.
        following: (P, S) probability of each next state; a row sums to less than 1 where the episode may end.
        start_weights: (D,) what learning starts from.
        step_size: of ``gradient`` sweeps; None for ``fitted`` ones.
        growth: closed form of the factor per sweep without guards, from the discount.
        critical_discount: closed form; above it, values explode from this start.
        equation: of the growth, in TeX.
    """

    name: str
    title: str
    summary: str
    pairs: tuple[str, ...]
    features: FloatArray
    states: IntArray
    shares: FloatArray
    following: FloatArray
    start_weights: FloatArray
    step_size: float | None
    growth: Callable[[float], float]
    critical_discount: float
    equation: str

    def __post_init__(self) -> None:
        """Check the shapes."""
        n_pairs, n_features = self.features.shape
        check_shape("states", self.states, (n_pairs,))
        check_shape("shares", self.shares, (n_pairs,))
        check_shape("following", self.following, (n_pairs, self.n_states))
        check_shape("start_weights", self.start_weights, (n_features,))

    @property
    def n_states(self) -> int:
        """S."""
        return int(self.states.max()) + 1

    @property
    def supported(self) -> BoolArray:
        """(P,) pairs that the log shows at least ``SUPPORT_SHARE`` times as often as the most frequent one of their state."""
        most = np.zeros(self.n_states)
        np.maximum.at(most, self.states, self.shares)
        return (self.shares > 0) & (self.shares >= SUPPORT_SHARE * most[self.states])


class Iterates(NamedTuple):
    """What K sweeps made of the start."""

    weights: FloatArray  # (K+1, D)
    q_values: FloatArray  # (K+1, P)
    exploded: bool  # stopped early, because values left the range of numbers

    @property
    def largest(self) -> FloatArray:
        """(K+1,) largest absolute Q: the error, as every true value is 0."""
        return np.abs(self.q_values).max(axis=1)


def iterate(
    problem: LinearProblem,
    *,
    discount: float = 0.99,
    n_sweeps: int = 1000,
    inside_support: bool = False,
    conservative_weight: float = 0.0,
) -> Iterates:
    """Learn from the log, sweep by sweep.

    Args:
        problem: one of :data:`PROBLEMS`.
        discount: γ.
        n_sweeps: K at most.
        inside_support: whether the best next action is sought among supported ones only.
        conservative_weight: α of a penalty that pushes down the best action of each state and up those of the log.

    Raises:
        InvalidConfig: a discount outside 0..1 or a negative weight.
    """
    _check(discount, conservative_weight)
    weights = [problem.start_weights]
    for _ in range(n_sweeps):
        following = _sweep(problem, weights[-1], discount, inside_support, conservative_weight)
        weights.append(following)
        if np.abs(problem.features @ following).max() > LARGEST:
            break
    stacked = np.array(weights)
    return Iterates(stacked, stacked @ problem.features.T, len(weights) <= n_sweeps)


def outcome(run: Iterates) -> str:
    """What became of the error, in words: explodes, dies away, shrinks, or stays.

    >>> outcome(iterate(make_problem("unlogged_action"), discount=0.99, n_sweeps=200))
    'explodes'
    """
    largest = run.largest
    first, middle, last = largest[0], largest[len(largest) // 2], largest[-1]
    if last > 100 * first and last > 2 * middle:
        return "explodes"
    if last < 1e-3 * first:
        return "dies away"
    return "shrinks" if last < 0.9 * middle else "grows" if last > 1.1 * middle else "stays"


def growth_rate(
    problem: LinearProblem,
    *,
    discount: float = 0.99,
    inside_support: bool = False,
    weights: FloatArray | None = None,
) -> float:
    """Exact factor by which values grow or shrink per sweep while the best actions stay those at ``weights`` (the start).

    The spectral radius of a sweep, on the weights that change any value. A penalty adds a constant to each sweep and leaves
    it alone: it works by making another action best, or not at all.

    Raises:
        InvalidConfig: a discount outside 0..1.
    """
    _check(discount, 0.0)
    here = problem.start_weights if weights is None else weights
    best = _best_pairs(problem, problem.features @ here, inside_support)
    onward = discount * problem.following @ problem.features[best]  # (P, D): expected next features
    change = _regression(problem) @ (problem.shares[:, None] * _error(problem, onward))
    matrix = change + (0.0 if problem.step_size is None else np.eye(change.shape[0]))
    _, sizes, directions = np.linalg.svd(problem.features)
    seen = directions[: int((sizes > 1e-12 * sizes[0]).sum())]
    return float(np.abs(np.linalg.eigvals(seen @ matrix @ seen.T)).max())


def _error(problem: LinearProblem, onward: FloatArray) -> FloatArray:
    """(P, D) what a sweep regresses on: targets when fitting, the distance to them when stepping."""
    return onward if problem.step_size is None else onward - problem.features


@lru_cache(maxsize=16)
def _regression(problem: LinearProblem) -> FloatArray:
    """(D, P) from weighted targets (or distances) to weights (or their change)."""
    if problem.step_size is not None:
        return problem.step_size * problem.features.T
    gram = problem.features.T @ (problem.shares[:, None] * problem.features)
    return np.asarray(np.linalg.pinv(gram) @ problem.features.T)


def _sweep(
    problem: LinearProblem, weights: FloatArray, discount: float, inside_support: bool, conservative_weight: float
) -> FloatArray:
    q_values = problem.features @ weights
    targets = discount * problem.following @ q_values[_best_pairs(problem, q_values, inside_support)]
    if problem.step_size is not None:
        targets = targets - q_values
    # Down where the best action is, up where the log is: the penalty's gradient by Q, pair by pair.
    down = np.zeros(len(q_values))
    by_state = np.bincount(problem.states, problem.shares, minlength=problem.n_states)
    down[_best_pairs(problem, q_values, inside_support=False)] = by_state
    change = _regression(problem) @ (problem.shares * targets - conservative_weight * (down - problem.shares))
    return change if problem.step_size is None else weights + change


def _best_pairs(problem: LinearProblem, q_values: FloatArray, inside_support: bool) -> IntArray:
    """(S,) the pair with the largest Q of each state, first of equals."""
    return np.where(_choices(problem, inside_support), q_values, -np.inf).argmax(axis=1)


@lru_cache(maxsize=16)
def _choices(problem: LinearProblem, inside_support: bool) -> BoolArray:
    """(S, P) pairs that may be chosen in each state."""
    own = problem.states[None, :] == np.arange(problem.n_states)[:, None]
    return own & problem.supported if inside_support else own


def _check(discount: float, conservative_weight: float) -> None:
    if not 0 <= discount <= 1:
        raise InvalidConfig(f"The discount is {discount!r}; it must lie between 0 and 1.")
    if not 0 <= conservative_weight < np.inf:
        raise InvalidConfig(f"The conservative weight is {conservative_weight!r}; it must be a number of at least 0.")


# -- the problems ---------------------------------------------------------------------------------------------


def unlogged_action() -> LinearProblem:
    """One state, one weight: the log shows the action with feature 1, the learner also knows one with feature 2.

    Fitting w to γ max(w, 2w) gives 2γw while w is positive: every sweep doubles the guess. Inside the support it is γw. A
    penalty subtracts its weight from w as long as w is positive, and wins if it is larger than (2γ - 1) times the first w.
    """
    return LinearProblem(
        name="unlogged_action",
        title="The action nobody took",
        summary="One weight, two actions. Only the small one is in the log; its value is guessed from the large one.",
        pairs=("logged", "never logged"),
        features=np.array([[1.0], [2.0]]),
        states=np.array([0, 0]),
        shares=np.array([1.0, 0.0]),
        following=np.ones((2, 1)),
        start_weights=np.array([1.0]),
        step_size=None,
        growth=lambda discount: 2 * discount,
        critical_discount=1 / 2,
        equation=r"2\gamma",
    )


def tsitsiklis_van_roy(ending_probability: float = 0.05) -> LinearProblem:
    """Two states, one weight, one action: the first state leads to the second, which leads to itself or to the end.

    The log shows both equally often, while whoever acts would stand in the second nearly always. No action is unsupported,
    so neither a support constraint nor a penalty on actions changes anything: only a smaller discount does.
    """
    return LinearProblem(
        name="tsitsiklis_van_roy",
        title="Two states (Tsitsiklis & Van Roy)",
        summary="Values w and 2w fitted to a log that visits both states equally often. Nothing is outside the support.",
        pairs=("first state", "second state"),
        features=np.array([[1.0], [2.0]]),
        states=np.array([0, 1]),
        shares=np.array([0.5, 0.5]),
        following=np.array([[0.0, 1.0], [0.0, 1.0 - ending_probability]]),
        start_weights=np.array([1.0]),
        step_size=None,
        growth=lambda discount: discount * (6 - 4 * ending_probability) / 5,
        critical_discount=5 / (6 - 4 * ending_probability),
        equation=r"\gamma \frac{6 - 4\varepsilon}{5}",
    )


def bairds_star(step_size: float = 1.0) -> LinearProblem:
    """Seven states; "solid" leads to the seventh, "dashed" to one of the other six, and the log takes it six times of seven.

    Q(s, solid) is 2 w_s + w_8 for the first six states and w_7 + 2 w_8 for the seventh; Q(s, dashed) has a weight of its own
    each. While solid is best in the seventh state, what it is worth obeys two linear equations (the first six are alike):
    49 times its change per unit of step has trace T = 17γ - 15 and determinant C = 26 (1 - γ), hence the growth. Where
    T² < 4C, errors swing while they grow, and once they swing below 0 solid is best no more: so learning explodes above
    γ = (203 + √6240) / 289 = 0.976 only. (With solid as a fixed policy to be judged, it would from some 15/17 on.)

    Solid is rare enough to fall out of the support (1/7 against 6/7), and rare enough for a penalty to push it down.
    """
    small = step_size / 49  # each solid pair is one row in 49

    def growth(discount: float) -> float:
        trace, determinant = 17 * discount - 15, 26 * (1 - discount)
        root = cmath.sqrt(trace**2 - 4 * determinant)
        return max(abs(1 + small * (trace + sign * root) / 2) for sign in (1, -1))

    features = np.zeros((14, 15))
    for s in range(6):
        features[s, [s, 7]] = 2.0, 1.0
    features[6, [6, 7]] = 1.0, 2.0
    features[7:, 8:] = np.eye(7)
    following = np.zeros((14, 7))
    following[:7, 6], following[7:, :6] = 1.0, 1 / 6
    return LinearProblem(
        name="bairds_star",
        title="The star (Baird)",
        summary="Seven states with more weights than values: exact values could be learned, and small steps still explode.",
        pairs=tuple(f"state {s + 1}, {action}" for action in ("solid", "dashed") for s in range(7)),
        features=features,
        states=np.tile(np.arange(7), 2),
        shares=np.repeat([1 / 49, 6 / 49], 7),
        following=following,
        start_weights=np.array([1.0] * 6 + [10.0, 1.0] + [1.0] * 7),
        step_size=step_size,
        growth=growth,
        critical_discount=(203 + math.sqrt(6240)) / 289,
        equation=r"\left|1 + \frac{\alpha}{98} (T + \sqrt{T^2 - 4C})\right|,\; T = 17\gamma - 15,\; C = 26(1 - \gamma)",
    )


PROBLEMS: dict[str, Callable[[], LinearProblem]] = {
    "unlogged_action": unlogged_action,
    "tsitsiklis_van_roy": tsitsiklis_van_roy,
    "bairds_star": bairds_star,
}


def make_problem(name: str) -> LinearProblem:
    """A problem with its published numbers.

    Raises:
        UnknownName: no such problem.
    """
    if name not in PROBLEMS:
        raise UnknownName("problem", name, PROBLEMS)
    return PROBLEMS[name]()
