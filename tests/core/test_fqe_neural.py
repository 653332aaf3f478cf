"""Fitted Q evaluation with networks: against the exact solution of the counts, in estimates, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.errors import InvalidConfig, NotPossible
from offrl_core.mdp import policy_values
from offrl_core.policies import uniform_policy

from .helpers import covering_log, episode, make_log

STEPS = {"n_steps": 3000, "learning_rate": 0.01, "target_update_rate": 0.1, "features": "keys", "n_hidden_layers": 0}


@pytest.fixture(scope="module")
def covered() -> Dataset:
    return orl.frame(covering_log(3))


def test_on_one_number_per_state_it_finds_the_values_of_the_counts(covered: Dataset) -> None:
    policy = uniform_policy(covered.states, covered.actions, covered.valid_mask)
    found = orl.neural_q_values(policy, covered, seeds=[0, 1], **STEPS)
    taught = covered.value_counts > 0
    mdp = covered.empirical_mdp(covered.valid_mask, 0.0)
    v_values = policy_values(mdp, np.ascontiguousarray(policy.probabilities.T), covered.discount)
    exact = mdp.backup(v_values, covered.discount).T
    assert taught.all(), "the oracle has no guesses"
    assert found.shape == (2, *exact.shape)
    assert np.abs(found - exact).max() < 1e-3


def test_its_values_serve_the_estimators(covered: Dataset) -> None:
    policy = uniform_policy(covered.states, covered.actions, covered.valid_mask)
    q_values = orl.neural_q_values(policy, covered, **STEPS).mean(axis=0)
    for name in ("fqe", "dr", "wdr"):
        by_network, by_table = (
            orl.estimate(policy, covered, name, q_values=values, n_bootstrap=20) for values in (q_values, None)
        )
        assert by_network.value == pytest.approx(by_table.value, abs=2e-3), name


def test_what_it_cannot_judge_it_refuses_in_a_sentence(covered: Dataset) -> None:
    policy = uniform_policy(covered.states, covered.actions, covered.valid_mask)
    with pytest.raises(InvalidConfig):
        orl.neural_q_values(policy, covered, n_steps=0)
    silent = orl.frame(make_log(episode("e", ("s", "a", None))))
    with pytest.raises(NotPossible, match="reward"):
        orl.neural_q_values(uniform_policy(silent.states, silent.actions, silent.valid_mask), silent)
    huge = orl.frame(make_log(episode("e", ("s", "a", 1e60), ("s", "b", 1.0))))
    with pytest.raises(NotPossible, match="Stopped at step"):
        orl.neural_q_values(uniform_policy(huge.states, huge.actions, huge.valid_mask), huge, n_steps=20)
