"""Discounted sums over many states: by iteration, to the accuracy of elimination, and without its matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from offrl_core.mdp import MANY_STATES, discounted_sums


def chain_of(n: int, n_next: int, seed: int) -> scipy.sparse.csr_array:
    """Each state leads to a few others at random."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_next), n).ravel()
    return scipy.sparse.csr_array(
        (weights, (np.repeat(np.arange(n), n_next), rng.integers(0, n, n * n_next))), shape=(n, n)
    )


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("elimination fills the matrix")


@pytest.mark.parametrize("discount", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("n_next", [1, 3, 10])
def test_iteration_is_as_exact_as_a_dense_solve(discount: float, n_next: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = chain_of(MANY_STATES, n_next, seed=n_next)
    amounts = np.random.default_rng(0).normal(size=MANY_STATES)
    exact = np.linalg.solve(np.eye(MANY_STATES) - discount * chain.toarray(), amounts)
    monkeypatch.setattr(scipy.sparse.linalg, "splu", refuse)
    np.testing.assert_allclose(
        discounted_sums(chain, amounts, discount), exact, rtol=0, atol=1e-11 * np.abs(exact).max()
    )


def test_where_iteration_fails_elimination_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, amounts = chain_of(MANY_STATES, 3, seed=1), np.ones(MANY_STATES)
    monkeypatch.setattr(scipy.sparse.linalg, "bicgstab", lambda _, b, **__: (np.full_like(b, np.nan), 500))
    np.testing.assert_allclose(discounted_sums(chain, amounts, 0.99), 100.0, rtol=1e-10)


def test_without_a_discount_the_way_out_may_be_long() -> None:
    """A ring of which one state lets a thousandth go: each state is visited 1,000 times on the way out."""
    n = MANY_STATES
    chain = scipy.sparse.coo_array((np.ones(n), (np.arange(n), np.roll(np.arange(n), -1))), shape=(n, n)).tocsr()
    chain.data[-1] = 0.999
    amounts = np.zeros(n)
    amounts[0] = 1.0
    assert discounted_sums(chain, amounts, 1.0)[0] == pytest.approx(1000.0, rel=1e-9)
