"""Markov decision processes as flat arrays, and what can be solved on them.

One form serves both the truth (a world's full states) and the log (its counts). Pairs are stored action-major, pair
(s, a) in row a*S + s, so that a sweep is one sparse product, one addition and a maximum over the first axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg

from .arrays import FloatArray, IntArray, ShortRepr

FEW_EDGES = 2000  # up to here adding edges up is faster than a sparse product, and needs no matrix to be made


class Successors:
    """What follows each pair: an (A*S, S) matrix of probabilities, row a*S + s.

    A row sums to less than 1 where the episode may end.
    """

    def __init__(
        self,
        n_states: int,
        n_actions: int,
        *,
        states: IntArray,
        actions: IntArray,
        next_states: IntArray,
        probabilities: FloatArray,
    ) -> None:
        """Take flat lists of edges.

        Args:
            n_states: S.
            n_actions: A.
            states: (N,) state of each edge.
            actions: (N,) action of each edge.
            next_states: (N,) state that follows, -1 where the episode ends.
            probabilities: (N,) of each edge given its pair.
        """
        goes_on = next_states >= 0
        self.shape = (n_actions * n_states, n_states)
        self._pairs = (actions * n_states + states)[goes_on]
        self._next_states, self._probabilities = next_states[goes_on], probabilities[goes_on]

    def __repr__(self) -> str:
        """Shape and how much of it is there."""
        return f"Successors({self.shape[0]:,} x {self.shape[1]:,}, {len(self._pairs):,} edges)"

    def __matmul__(self, v_values: FloatArray) -> FloatArray:
        """(A*S,) expected value of what follows, of (S,) values."""
        if len(self._pairs) > FEW_EDGES:
            expected: FloatArray = self.matrix @ v_values
            return expected
        weights = self._probabilities * v_values[self._next_states]
        return np.bincount(self._pairs, weights, minlength=self.shape[0]).astype(np.float64, copy=False)

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """The same as a sparse matrix."""
        coordinates = (self._pairs, self._next_states)
        return scipy.sparse.coo_array((self._probabilities, coordinates), shape=self.shape).tocsr()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TabularMDP(ShortRepr):
    """Expected rewards and successor probabilities of every pair.

    Attributes:
        rewards: (A, S) expected immediate reward in reward units; -inf where the pair may not be chosen.
        successors: what follows each pair.
    """

    rewards: FloatArray
    successors: Successors

    @property
    def n_states(self) -> int:
        """S."""
        return self.rewards.shape[1]

    def backup(self, v_values: FloatArray, discount: float) -> FloatArray:
        """(A, S) one Bellman backup: reward + discount * expected value of what follows."""
        q_values = self.successors @ v_values
        q_values *= discount
        q_values += self.rewards.ravel()
        return q_values.reshape(self.rewards.shape)


def settled_change(values: FloatArray) -> float:
    """Largest change at which values count as standing still: 1e-12 of the largest value, or of 1 if that is more."""
    return 1e-12 * max(1.0, float(np.abs(values).max(initial=0.0)))


def value_iteration(
    mdp: TabularMDP, discount: float, *, start: FloatArray, max_sweeps: int = 5000
) -> Iterator[tuple[FloatArray, float]]:
    """Sweep Q <- backup(max Q) until the values stand still (see :func:`settled_change`).

    Args:
        mdp: pairs that may not be chosen have reward -inf; each state needs one that may.
        discount: γ.
        start: (S,) values to begin with.
        max_sweeps: give up then; the last change says how far it got.

    Yields:
        (A, S) Q after each sweep, and the largest change of a state value (reward units).
    """
    v_values = start
    for _ in range(max_sweeps):
        q_values = mdp.backup(v_values, discount)
        improved = q_values.max(axis=0)
        change = float(np.abs(improved - v_values).max(initial=0.0))
        v_values = improved
        yield q_values, change
        if change <= settled_change(v_values):
            return


def policy_chain(mdp: TabularMDP, probabilities: FloatArray) -> scipy.sparse.csr_array:
    """(S, S) probability of going on from one state to another under (A, S) action probabilities."""
    n_actions, n_states = probabilities.shape
    weights = scipy.sparse.csr_array(
        (probabilities.ravel(), (np.tile(np.arange(n_states), n_actions), np.arange(n_actions * n_states))),
        shape=(n_states, n_actions * n_states),
    )
    return weights @ mdp.successors.matrix


SWEEPS_BEFORE_SOLVING = 200


def discounted_sums(chain: scipy.sparse.csr_array, amounts: FloatArray, discount: float) -> FloatArray:
    """(S,) smallest solution of x = amounts + discount * chain x.

    By successive substitution, which is exact after T sweeps where episodes end after T steps; where they go on for long, by
    one linear solve. Discount 1 is allowed; a loop that can't be left is worth 0 there, if nothing is paid in it.

    Raises:
        ArithmeticError: discount 1, and something is paid in a loop that can't be left: the sum has no bound.
    """
    total = np.zeros_like(amounts)
    for _ in range(SWEEPS_BEFORE_SOLVING):
        new_total = amounts + discount * (chain @ total)
        change = float(np.abs(new_total - total).max(initial=0.0))
        total = new_total
        if change <= settled_change(total) / 10:
            return total
    return _solve(discount * chain, amounts)


def _solve(chain: scipy.sparse.csr_array, amounts: FloatArray) -> FloatArray:
    """(S,) smallest solution of x = amounts + chain x, where rows of the chain sum to at most 1."""
    n = len(amounts)
    # A state leads out if some path from it reaches a row that sums to less than 1. One more node stands for "out".
    links = chain.tocoo()
    exits = np.flatnonzero(chain.sum(axis=1) < 1 - 1e-12)
    backwards = scipy.sparse.coo_array(
        (
            np.ones(links.nnz + len(exits)),
            (np.append(links.col, np.full(len(exits), n)), np.append(links.row, exits)),
        ),
        shape=(n + 1, n + 1),
    ).tocsr()
    leads_out = np.zeros(n + 1, dtype=bool)
    leads_out[scipy.sparse.csgraph.breadth_first_order(backwards, n, return_predecessors=False)] = True
    leads_out = leads_out[:n]
    if amounts[~leads_out].any():
        raise ArithmeticError("something is paid again and again in a loop that can't be left, so the sum has no bound")
    total = np.zeros(n)
    if leads_out.any():
        total[leads_out] = _inside(chain[leads_out][:, leads_out], amounts[leads_out])
    return total


MANY_STATES = 500  # from here on elimination may fill a matrix that takes seconds
_MOST_ITERATIONS, _ROUNDS = 500, 4


def _inside(chain: scipy.sparse.csr_array, amounts: FloatArray) -> FloatArray:
    """(S,) solution of x = amounts + chain x, where every state leads out.

    For many states by iteration (BiCGSTAB, van der Vorst 1992), which fills no matrix, and by iteration again for what is left.
    Its x is off by at most the residual over what the row sums lack of 1; where that isn't within :func:`settled_change`,
    elimination does it.
    """
    system = (scipy.sparse.eye_array(len(amounts)) - chain).tocsr()
    slack = 1 - float(chain.sum(axis=1).max())
    if len(amounts) >= MANY_STATES and slack > 0:
        found, residual = np.zeros_like(amounts), amounts
        for _ in range(_ROUNDS):
            found = (
                found + scipy.sparse.linalg.bicgstab(system, residual, rtol=1e-8, atol=0.0, maxiter=_MOST_ITERATIONS)[0]
            )
            residual = amounts - system @ found
            if float(np.abs(residual).max()) <= slack * settled_change(found):
                return found
    return np.asarray(scipy.sparse.linalg.splu(system.tocsc()).solve(amounts))


def policy_values(
    mdp: TabularMDP, probabilities: FloatArray, discount: float, *, rewards: FloatArray | None = None
) -> FloatArray:
    """Exact values of a fixed policy.

    Args:
        mdp: the process.
        probabilities: (A, S) of the policy.
        discount: γ; 1 is allowed where every episode ends.
        rewards: (A, S) instead of the process's own, to value something else than reward (success, say).

    Returns:
        (S,) expected discounted sums.
    """
    # -inf marks pairs outside the process; a policy that puts nothing on them must not meet 0 * -inf.
    amounts = np.where(probabilities > 0, mdp.rewards if rewards is None else rewards, 0.0)
    return discounted_sums(policy_chain(mdp, probabilities), (probabilities * amounts).sum(axis=0), discount)
