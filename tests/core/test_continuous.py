"""Continuous actions: values against closed forms, gradients against autograd, learners that repeat and resume."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offrl_core.continuous import (
    LEARNERS,
    Habit,
    PointWorld,
    collect,
    evaluate,
    solve,
    start_point_training,
    train_point,
)
from offrl_core.continuous.cql_continuous import N_SUMMED, penalty
from offrl_core.continuous.learning import REPORT_STEPS, Part, PointConfig, climb, regress
from offrl_core.continuous.networks import Adam, Network, pairs
from offrl_core.continuous.world import DEPLOYMENTS, REACH, SHAKES
from offrl_core.errors import InvalidConfig, UnknownName
from offrl_core.jobs.states import decode_state, encode_state

EVERY_LEARNER = pytest.mark.parametrize("learner", LEARNERS)
STATES = np.linspace(-1, 1, 201)
SHAKEN = sum(probability * shake**2 for probability, shake in SHAKES)  # variance of the shaking


# -- the world and its logs -----------------------------------------------------------------------------------


@given(observation=st.floats(-1, 1), action=st.floats(-1, 1), deployment=st.sampled_from(list(DEPLOYMENTS)))
def test_what_can_happen_adds_up_and_stays_on_the_line(observation, action, deployment):
    outcomes = PointWorld(deployment).outcomes(np.array([observation]), np.array([action]))
    assert sum(outcome.probability for outcome in outcomes) == pytest.approx(1)
    assert all(abs(outcome.next_observations[0]) <= 1 for outcome in outcomes)
    assert all(-0.1 <= outcome.rewards[0] <= 1 for outcome in outcomes)


def test_no_log_below_the_strength_where_wheels_spin_can_tell_the_deployments_apart():
    quiet, wild = Habit(low=-0.5, high=0.5), Habit(low=-0.7, high=0.7)
    for habit, same in ((quiet, True), (wild, False)):
        logs = [collect(PointWorld(deployment), habit, seed=3) for deployment in DEPLOYMENTS]
        assert np.array_equal(logs[0].next_observations, logs[1].next_observations) == same
        assert np.array_equal(logs[0].rewards, logs[1].rewards) == same


def test_spinning_sets_in_smoothly():
    """Value and slope of the strength that reaches the ground have no step anywhere."""
    actions = np.linspace(-1, 1, 20_001)
    grounded = PointWorld("spins").grounded(actions)
    slopes = np.diff(grounded) / np.diff(actions)
    assert np.abs(np.diff(grounded)).max() < 3e-4
    assert np.abs(np.diff(slopes)).max() < 2e-2
    assert abs(grounded[-1]) < 0.01


def test_a_log_is_whole_episodes_of_the_right_steps():
    log = collect(PointWorld(), Habit(), n_episodes=50, seed=1)
    assert len(log) == 250
    assert log.timeouts.sum() == 50
    inside = ~log.timeouts[:-1]
    assert np.array_equal(log.next_observations[:-1][inside], log.observations[1:][inside])
    shakes = log.next_observations - (log.observations + REACH * log.actions)
    free = np.abs(log.next_observations) < 1
    assert set(shakes[free].round(9)) <= {-0.1, 0.0, 0.1}


@given(low=st.floats(-1, 0.9), width=st.floats(0.1, 1), observation=st.floats(-1, 1))
def test_the_density_of_a_habit_adds_up_to_one_inside_its_range(low, width, observation):
    habit = Habit(low=low, high=min(low + width, 1.0))
    actions = np.linspace(habit.low, habit.high, 2001)
    assert np.trapezoid(habit.density(np.array(observation), actions), actions) == pytest.approx(1, abs=1e-5)
    assert habit.density(np.array(observation), np.array([low - 0.01, habit.high + 0.01])) == pytest.approx([0, 0])


def test_logged_actions_follow_the_density():
    habit, here = Habit(low=-0.4, high=0.6), 0.3
    drawn = habit.draw(np.full(20_000, here), np.random.default_rng(0))
    edges = np.linspace(-0.4, 0.6, 11)
    fine = np.linspace(-0.4, 0.6, 1001)
    density = habit.density(np.array(here), fine)
    expected = [np.trapezoid(density[i * 100 : i * 100 + 101], fine[i * 100 : i * 100 + 101]) for i in range(10)]
    counts = np.histogram(drawn, edges)[0]
    chi_squared = ((counts - 20_000 * np.array(expected)) ** 2 / (20_000 * np.array(expected))).sum()
    assert chi_squared < 27.9  # 0.1 % of logs would be further off, at 9 degrees of freedom


def test_counts_are_rows_and_the_slice_is_their_neighbourhood():
    log = collect(PointWorld(), Habit(), n_episodes=100, seed=0)
    assert log.counts().sum() == len(log)
    assert not log.counts()[:, :4].any()  # strengths below -0.6 are never shown
    assert log.near(0.05).sum() == (np.abs(log.observations - 0.05) <= 0.05).sum()


# -- exact values ---------------------------------------------------------------------------------------------


class Parabola(PointWorld):
    """A special case with a closed form: what is paid is -s'^2 - a^2 / 2, so that no border is ever reached."""

    def reward(self, next_observations, actions):
        return -(next_observations**2) - actions**2 / 2


def parabola_values(discount: float) -> tuple[float, float, float]:
    """(P, k, c): V*(s) = -(P s^2 + c) and best action -k s, from the scalar Riccati equation."""
    value, cost = 0.0, 0.5
    for _ in range(500):
        onward = 1 + discount * value
        value = onward * cost / (onward * REACH**2 + cost)
    return value, onward * REACH / (onward * REACH**2 + cost), onward * SHAKEN / (1 - discount)


def test_the_optimum_of_the_parabola_is_that_of_the_riccati_equation():
    curvature, slope, constant = parabola_values(0.9)
    best = solve(Parabola())
    closed = -(curvature * best.states**2 + constant)
    assert np.abs(best.v_values - closed).max() < min(1e-4, best.error)
    assert np.abs(best.actions + slope * best.states).max() < 2 / 800 + 1e-9  # one step of the action grid
    here, action = np.array([-0.4, 0.1, 0.5]), np.array([0.3, 0.4, -0.2])
    landed = (here + REACH * action) ** 2 + SHAKEN
    by_hand = -landed - action**2 / 2 - 0.9 * (curvature * landed + constant)
    assert best.q_values(here, action) == pytest.approx(by_hand, abs=1e-4)


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_a_linear_policy_on_the_parabola_has_its_closed_form(slope):
    stays = (1 - REACH * slope) ** 2
    # Without a drive the shaking leads to the border, which the closed form doesn't know; look at one step only.
    world = Parabola()
    world.discount = 0.0 if slope == 0 else 0.9
    curvature = (stays + slope**2 / 2) / (1 - world.discount * stays)
    constant = SHAKEN * (1 + world.discount * curvature) / (1 - world.discount)
    values = evaluate(world, lambda states: -slope * states)
    inside = np.abs(values.states) <= 0.9
    closed = -(curvature * values.states**2 + constant)
    assert np.abs(values.v_values - closed)[inside].max() < 1e-4


def test_one_step_is_worth_the_expected_reward():
    world = PointWorld()
    world.discount = 0.0
    values = evaluate(world, np.zeros_like)
    expected = sum(p * math.exp(-((0.2 + shake) ** 2) / (2 * 0.3**2)) for p, shake in SHAKES)
    assert values.q_values(np.array(0.2), np.array(0.0)) == pytest.approx(expected, abs=1e-12)
    assert values.q_values(np.array(0.2), np.array(0.5)) != pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_rollouts_meet_the_exact_value(deployment):
    world, rng = PointWorld(deployment), np.random.default_rng(5)
    here = rng.uniform(-1, 1, 20_000)
    values = evaluate(world, lambda states: -0.8 * states)
    returns = np.zeros(len(here))
    for t in range(120):  # 0.9^120 is 3e-6
        outcomes = world.outcomes(here, -0.8 * here)
        happened = rng.choice(len(outcomes), size=len(here), p=[outcome.probability for outcome in outcomes])
        returns += 0.9**t * np.choose(happened, [outcome.rewards for outcome in outcomes])
        here = np.choose(happened, [outcome.next_observations for outcome in outcomes])
    assert abs(returns.mean() - values.mean_value) < 3.3 * returns.std() / math.sqrt(len(returns)) + 1e-4


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_stated_error_bounds_the_step_to_a_much_finer_grid(deployment):
    world = PointWorld(deployment)
    usual, fine = evaluate(world, lambda s: -s / 2), evaluate(world, lambda s: -s / 2, n_cells=3200)
    assert np.abs(usual.v_values - fine.v_values[::4]).max() < usual.error < 2e-3


BEST = {deployment: solve(PointWorld(deployment), n_cells=200, n_actions=201) for deployment in DEPLOYMENTS}


@settings(max_examples=30)
@given(slope=st.floats(-2, 2), offset=st.floats(-1, 1), deployment=st.sampled_from(list(DEPLOYMENTS)))
def test_no_policy_beats_the_optimum(slope, offset, deployment):
    world = PointWorld(deployment)
    best, values = BEST[deployment], evaluate(world, lambda states: offset - slope * states, n_cells=200)
    assert (best.v_values - values.v_values).min() > -(best.error + values.error)


# -- networks against autograd --------------------------------------------------------------------------------


def torch_network(network, parameters):
    """The same network in PyTorch, on parameters that ask for a gradient."""
    torch = pytest.importorskip("torch")
    flat = torch.tensor(parameters, requires_grad=True)

    def call(inputs):
        hidden, begins = inputs, 0
        for i, (n, m) in enumerate(network.shapes):
            weights = flat[begins : begins + n * m].reshape(n, m)
            hidden = hidden @ weights + flat[begins + n * m : begins + (n + 1) * m]
            hidden = hidden.relu() if i < 2 else hidden
            begins += (n + 1) * m
        return hidden[:, 0]

    return flat, call


def double_part(n_inputs: int, seed: int) -> Part:
    part = Part(Network(n_inputs, 8), PointConfig(), np.random.default_rng(seed))
    part.parameters = part.parameters.astype(np.float64)
    return part


OBSERVED, DONE, AIMED = np.random.default_rng(7).uniform(-1, 1, (3, 12))


def test_the_gradient_of_a_fit_is_that_of_autograd():
    torch = pytest.importorskip("torch")
    critic = double_part(2, 0)
    flat, call = torch_network(critic.network, critic.parameters)
    loss = ((call(torch.tensor(pairs(OBSERVED, DONE))) - torch.tensor(AIMED)) ** 2).mean() / 2
    loss.backward()
    value, gradient = regress(critic, OBSERVED, DONE, AIMED)
    assert value == pytest.approx(float(loss.detach()), abs=1e-14)
    assert gradient == pytest.approx(flat.grad.numpy(), abs=1e-14)


@pytest.mark.parametrize("pulled", [False, True])
def test_the_gradient_of_a_climb_is_that_of_autograd(pulled):
    torch = pytest.importorskip("torch")
    critic, actor = double_part(2, 0), double_part(1, 1)
    _, judge = torch_network(critic.network, critic.parameters)
    flat, call = torch_network(actor.network, actor.parameters)
    here = torch.tensor(OBSERVED)
    does = call(here[:, None]).tanh()
    loss = -1.7 * judge(torch.stack([here, does], dim=1)).mean()
    if pulled:
        loss = loss + ((does - torch.tensor(DONE)) ** 2).mean()
    loss.backward()
    assert climb(actor, critic, OBSERVED, 1.7, DONE if pulled else None) == pytest.approx(flat.grad.numpy(), abs=1e-13)


def test_the_gradient_of_the_penalty_is_that_of_autograd():
    torch = pytest.importorskip("torch")
    critic, first = double_part(2, 0), np.random.default_rng(9).uniform(size=12)
    flat, call = torch_network(critic.network, critic.parameters)
    here = torch.tensor(OBSERVED)
    grid = [-1 + 2 / N_SUMMED * (i + torch.tensor(first)) for i in range(N_SUMMED)]
    over = torch.stack([call(torch.stack([here, does], dim=1)) for does in grid])
    loss = (over.logsumexp(0) + math.log(2 / N_SUMMED) - call(torch.tensor(pairs(OBSERVED, DONE)))).mean()
    loss.backward()
    value, gradient = penalty(critic, OBSERVED, DONE, first)
    assert value == pytest.approx(float(loss.detach()), abs=1e-13)
    assert gradient == pytest.approx(flat.grad.numpy(), abs=1e-14)


def test_the_optimiser_is_adam():
    torch = pytest.importorskip("torch")
    ours, theirs = np.array([1.0, -2.0, 3.0]), torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    mine, reference = Adam(3, 0.01), torch.optim.Adam([theirs], lr=0.01)
    for gradient in np.random.default_rng(0).normal(size=(50, 3)):
        mine.descend(ours, gradient)
        theirs.grad = torch.tensor(gradient)
        reference.step()
    assert ours == pytest.approx(theirs.detach().numpy(), abs=1e-5)  # its moments are float32


# -- learners -------------------------------------------------------------------------------------------------

LOG = collect(PointWorld(), Habit(), n_episodes=100, seed=0)
FEW = {"n_steps": 50}


def same(one, other) -> bool:
    return np.array_equal(one.critic_parameters, other.critic_parameters) and np.array_equal(
        one.actor_parameters, other.actor_parameters
    )


@EVERY_LEARNER
def test_the_same_seed_gives_the_same_bits_also_side_by_side(learner):
    alone = train_point(LOG, learner, seed=4, **FEW)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, other = (start_point_training(LOG, learner, seed=seed, **FEW) for seed in (4, 5))
    for mine, theirs in zip(one, other, strict=True):
        last = mine, theirs
    assert same(last[0].model, alone)
    assert not same(last[1].model, alone)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@EVERY_LEARNER
def test_it_goes_on_from_any_state_to_the_same_bits(learner):
    whole = train_point(LOG, learner, seed=4, **FEW)
    spec = LEARNERS[learner]
    config = spec.config_class(**FEW)
    for progress in start_point_training(LOG, learner, seed=4, **FEW):
        state = decode_state(encode_state(progress.state))
        steps, model = [progress.step], None
        for later in spec.train(LOG, config, seed=4, resume_from=state):
            steps.append(later.step)
            model = later.model
        assert steps == [step for step in (20, 40, 50) if step >= progress.step]
        assert progress.step == 50 or same(model, whole)


@EVERY_LEARNER
def test_it_reports_often_what_it_declares_and_stops_when_closed(learner):
    training = start_point_training(LOG, learner, n_steps=200)
    began, times = time.process_time(), []
    for progress in training:
        times.append(time.process_time() - began)
        assert set(progress.metrics) == set(LEARNERS[learner].metrics)
        assert all(math.isfinite(value) for value in progress.metrics.values())
        began = time.process_time()
        if progress.step == 6 * REPORT_STEPS:
            training.close()
    assert len(times) == 6
    assert np.median(times) < 0.1


def test_a_snapshot_does_not_change_while_the_learner_goes_on():
    training = start_point_training(LOG, "ddpg", n_steps=100)
    first = next(training).model
    kept = first.q_values(STATES, STATES)
    list(training)
    assert np.array_equal(first.q_values(STATES, STATES), kept)


def test_without_weight_on_values_td3_bc_copies_the_mean_of_the_log():
    habit = Habit()
    model = train_point(collect(PointWorld(), habit, seed=1), "td3_bc", seed=0, value_weight=0.0, n_steps=1500)
    actions = np.linspace(habit.low, habit.high, 2001)
    density = habit.density(STATES[:, None], actions[None, :])
    means = np.trapezoid(density * actions, actions, axis=1)
    assert np.abs(model.policy(STATES) - means).mean() < 0.05


def outside(model, habit: Habit, margin: float = 0.1) -> float:
    """Share of the states where the policy leaves the covered range by more than a margin."""
    actions = model.policy(STATES)
    return float(((actions < habit.low - margin) | (actions > habit.high + margin)).mean())


def test_the_naive_learner_leaves_the_log_and_pays_where_wheels_spin_while_the_others_stay():
    habit = Habit()
    log = collect(PointWorld(), habit, seed=0)
    models = {learner: train_point(log, learner, seed=0) for learner in LEARNERS}
    shares = {learner: outside(model, habit) for learner, model in models.items()}
    assert shares["ddpg"] > 0.3
    assert shares["td3_bc"] == shares["cql_continuous"] == 0
    worth = {
        deployment: {name: evaluate(PointWorld(deployment), model.policy).mean_value for name, model in models.items()}
        for deployment in DEPLOYMENTS
    }
    naive = worth["grips"]["ddpg"], worth["spins"]["ddpg"]
    assert naive[0] > max(worth["grips"]["td3_bc"], worth["grips"]["cql_continuous"])
    assert naive[1] < min(worth["spins"]["td3_bc"], worth["spins"]["cql_continuous"]) - 0.5
    promised = models["ddpg"].q_values(STATES, models["ddpg"].policy(STATES)).mean()
    assert promised > naive[1] + 1, "it promises what it can't keep there"


def test_a_log_of_everything_teaches_the_naive_learner_that_wheels_spin():
    habit = Habit(low=-1.0, high=1.0)
    model = train_point(collect(PointWorld("spins"), habit, seed=0), "ddpg", seed=0)
    assert evaluate(PointWorld("spins"), model.policy).mean_value > 0.97 * BEST["spins"].mean_value


# -- bad input ------------------------------------------------------------------------------------------------


def test_bad_input_gets_a_sentence():
    for low, high in ((-1.2, 0.0), (0.3, 0.3), (0.5, -0.5), (float("nan"), 0.5)):
        with pytest.raises(InvalidConfig, match="covered range"):
            Habit(low=low, high=high)
    with pytest.raises(InvalidConfig, match="at least one episode"):
        collect(PointWorld(), Habit(), n_episodes=0)
    with pytest.raises(UnknownName, match="grips"):
        PointWorld("flies")
    with pytest.raises(UnknownName, match="td3_bc"):
        start_point_training(LOG, "sac")
    with pytest.raises(InvalidConfig, match="value_weight"):
        start_point_training(LOG, "td3_bc", value_weight=-1)
