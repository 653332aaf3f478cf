"""Exact values of every world against independent oracles: dense linear solves, policy iteration, sampled episodes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

import offrl_core as orl
from offrl_core.arrays import FloatArray
from offrl_core.behavior import behavior_policy, named_behavior
from offrl_core.evaluation.exact import WorldModel, evaluate, optimal_q_values, world_model
from offrl_core.mdp import SWEEPS_BEFORE_SOLVING, discounted_sums, value_iteration
from offrl_core.worlds import WORLDS, World, make_world

from .helpers import exact_optimum
from .test_worlds import EVERY_WORLD

SMALL = [case for case in EVERY_WORLD if case.values[0] != "icu_sepsis"]


def dense_process(
    world: World, states: list[Any], policy: orl.TableBehavior
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Chain (F, F), expected rewards (F,) and chances to end solved (F,), written down entry by entry."""
    index = {state: i for i, state in enumerate(states)}
    chain, rewards, solved = np.zeros((len(states), len(states))), np.zeros(len(states)), np.zeros(len(states))
    for state, i in index.items():
        row = policy.action_probabilities(world.task(state), world.actions(state), world.state_key(state))
        for action, chosen in row.items():
            for probability, following, reward, terminal in world.transitions(state, action):
                rewards[i] += chosen * probability * reward
                if terminal:
                    solved[i] += chosen * probability * world.succeeded(following)
                else:
                    chain[i, index[following]] += chosen * probability
    return chain, rewards, solved


def solve_apart(chain: FloatArray, *amounts: FloatArray) -> FloatArray:
    """(len(amounts), F) solutions of x = amount + chain x, dense, one group of connected states at a time."""
    solutions, (n_groups, groups) = np.zeros((len(amounts), len(chain))), connected_components(chain, directed=False)
    for group in (np.flatnonzero(groups == g) for g in range(n_groups)):
        system = np.eye(len(group)) - chain[np.ix_(group, group)]
        solutions[:, group] = np.linalg.solve(system, np.array(amounts)[:, group].T).T
    return solutions


@pytest.mark.parametrize(("name", "deployment"), EVERY_WORLD)
def test_values_equal_a_dense_solve(name: str, deployment: str) -> None:
    model = world_model(name, deployment)
    for behavior_name in WORLDS[name].behaviors:
        _, behavior = named_behavior(behavior_name, name)
        if len(behavior.parts("")) > 1:
            continue  # see test_behavior_policies
        chain, rewards, solved = dense_process(model.world, model.states, behavior)
        truth = evaluate(behavior_policy(make_world(name), behavior), name, deployment)
        (returns,) = solve_apart(model.world.discount * chain, rewards)
        (successes,) = solve_apart(chain, solved)
        assert truth.mean_return == pytest.approx(model.starts @ returns, abs=1e-8, rel=1e-9)
        assert truth.success_rate == pytest.approx(model.starts @ successes, abs=1e-9)
        assert -1e-12 <= truth.success_rate <= 1 + 1e-12


@pytest.mark.parametrize(("name", "deployment"), SMALL)
def test_the_best_values_equal_policy_iteration(name: str, deployment: str) -> None:
    model = world_model(name, deployment)
    n_actions, n_states = model.mdp.rewards.shape
    following = model.mdp.successors.matrix.toarray().reshape(n_actions, n_states, n_states).transpose(1, 0, 2)
    *_, (q_values, _) = value_iteration(model.mdp, model.world.discount, start=np.zeros(n_states))
    n_groups, groups = connected_components(following.any(axis=1), directed=False)
    for group in (np.flatnonzero(groups == g) for g in range(n_groups)):
        inside = following[np.ix_(group, range(n_actions), group)]
        expected = exact_optimum(model.mdp.rewards.T[group], inside, model.world.discount)
        assert q_values.T[group] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(("name", "deployment"), EVERY_WORLD)
def test_nobody_beats_the_best(name: str, deployment: str) -> None:
    model = world_model(name, deployment)
    *_, (q_values, _) = value_iteration(model.mdp, model.world.discount, start=np.zeros(len(model.states)))
    best = model.starts @ q_values.max(axis=0)
    for behavior_name in WORLDS[name].behaviors:
        assert orl.behavior_truth(named_behavior(behavior_name, name)[1], name, deployment).mean_return <= best + 1e-9


@pytest.mark.parametrize(("name", "deployment"), EVERY_WORLD)
def test_sampled_episodes_bracket_the_truth(name: str, deployment: str) -> None:
    policy = behavior_policy(make_world(name), named_behavior("logger", name)[1])
    truth = evaluate(policy, name, deployment)
    n_episodes = 100 if name == "cliff_walking" else 400
    sampled = orl.roll_out(policy, name, deployment, n_episodes=n_episodes, seed=3, max_steps=20_000)
    assert sampled.unfinished == 0
    error, _ = sampled.standard_errors()
    p = truth.success_rate
    assert abs(sampled.mean_return - truth.mean_return) <= 4 * error + 1e-9
    assert abs(sampled.success_rate - p) <= 4 * max(p * (1 - p) / n_episodes, 0) ** 0.5 + 1e-9


@pytest.mark.parametrize(("name", "deployment"), EVERY_WORLD)
def test_every_world_is_solved_within_a_second(name: str, deployment: str) -> None:
    world = make_world(name, deployment)  # reading a package's files counts for the package
    before = time.process_time()
    model = WorldModel(world)
    *_, (_, change) = value_iteration(model.mdp, world.discount, start=np.zeros(len(model.states)))
    assert time.process_time() - before < 1.0
    assert change < 1e-9, "it did converge"


def test_a_policy_that_never_ends_is_worth_what_it_pays() -> None:
    """A learned policy may call a redundant tool for ever: it solves nothing and pays 0.02 / (1 - 0.99)."""
    keys = world_model("calculator_chain").keys
    stuck = orl.TableBehavior(probabilities={key: {"add": 1.0} for key in keys if key.endswith("nothing known")})
    truth = evaluate(behavior_policy(make_world("calculator_chain"), stuck), "calculator_chain")
    assert truth.success_rate == 0
    assert truth.mean_return == pytest.approx(-2.0)


def test_the_best_values_are_shown_by_key() -> None:
    q_values = optimal_q_values("chain", states=("link 6", "link 1"), actions=("walk", "jump"))
    last = 1 - 0.02
    assert q_values[0] == pytest.approx([last, 0.8 * last - 0.2 * 0.02])
    assert q_values[1, 0] == pytest.approx(0.99**5 - 0.02 * sum(0.99**t for t in range(6)))


# -- sums along a chain ---------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 8),
    ending=st.floats(1e-4, 1.0),
    discount=st.sampled_from([1.0, 0.99, 0.5]),
)
def test_discounted_sums_equal_a_dense_solve(seed: int, n: int, ending: float, discount: float) -> None:
    rng = np.random.default_rng(seed)
    chain = rng.dirichlet(np.ones(n), size=n) * (1 - ending)
    amounts = rng.normal(size=n)
    found = discounted_sums(scipy.sparse.csr_array(chain), amounts, discount)
    expected = np.linalg.solve(np.eye(n) - discount * chain, amounts)
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-9)


def test_a_loop_that_pays_nothing_is_worth_nothing() -> None:
    """State 0 leaves slowly or falls into the loop of 1 and 2, evenly."""
    chain = scipy.sparse.csr_array(np.array([[0.999, 0.0005, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    assert discounted_sums(chain, np.array([0.0005, 0.0, 0.0]), 1.0) == pytest.approx([0.5, 0.0, 0.0], abs=1e-12)
    with pytest.raises(ArithmeticError, match="loop that can't be left"):
        discounted_sums(chain, np.array([0.0, 0.1, 0.0]), 1.0)
    assert discounted_sums(chain, np.array([0.0, 0.1, 0.1]), 0.99)[1:] == pytest.approx([10.0, 10.0])


def test_long_episodes_are_solved_and_not_swept() -> None:
    """1,000 states in a row, each left with probability 1/2 only: far more than the sweeps allow."""
    n = 5 * SWEEPS_BEFORE_SOLVING
    chain = scipy.sparse.csr_array(0.5 * np.eye(n) + 0.5 * np.eye(n, k=1))
    assert discounted_sums(chain, np.ones(n), 1.0) == pytest.approx(2.0 * np.arange(n, 0, -1), rel=1e-10)
