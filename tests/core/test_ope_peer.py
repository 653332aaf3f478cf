"""The estimators against SCOPE-RL's own code on the same arrays, where there is an interpreter that has it."""

from __future__ import annotations

import os

import pytest

from tests.bench.estimators import PEER_ESTIMATORS, VARIABLE, our_values, peer_answer, problem

needs_peer = pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no Python with scope_rl")


@needs_peer
@pytest.mark.parametrize("seed", range(3))
def test_the_same_arrays_give_the_same_numbers(seed: int) -> None:
    given = problem(60, 5, n_states=4, seed=seed)
    answer = peer_answer(given.arrays | {"n_bootstrap": 10})
    assert answer is not None
    values = our_values(given)
    for name in PEER_ESTIMATORS:
        assert values[name] == pytest.approx(answer["values"][name], abs=1e-9), name
