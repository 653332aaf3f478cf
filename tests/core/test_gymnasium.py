"""Worlds from tables of other packages, and logs of any environment. Where a package is absent, all that needs it is skipped."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import offrl_core as orl
from offrl_core.behavior import behavior_policy, named_behavior
from offrl_core.errors import InvalidConfig, NotPossible
from offrl_core.evaluation.exact import evaluate, world_model
from offrl_core.mdp import value_iteration
from offrl_core.policies import TabularPolicy
from offrl_core.worlds import WORLDS, make_world

from .helpers import policy_of
from .test_small_worlds import best_policy

needs_gymnasium = pytest.mark.skipif(bool(WORLDS["taxi"].missing), reason=WORLDS["taxi"].missing)
needs_icu_sepsis = pytest.mark.skipif(bool(WORLDS["icu_sepsis"].missing), reason=WORLDS["icu_sepsis"].missing)


@pytest.mark.parametrize("name", ["frozen_lake", "cliff_walking", "taxi", "icu_sepsis"])
def test_a_world_whose_package_is_absent_says_how_to_get_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for ask in (lambda: make_world(name), lambda: orl.collect(name, "uniform", n_episodes=1)):
        with pytest.raises(
            NotPossible, match=r"needs the package \w+, which is not installed; get it with: pip install"
        ):
            ask()
    with pytest.raises(NotPossible, match="pip install 'gymnasium"):
        orl.collect_gymnasium("FrozenLake-v1")


# -- tables ---------------------------------------------------------------------------------------------------


@needs_gymnasium
def test_the_lake_is_crossed_as_often_as_published() -> None:
    """The slippery 4 x 4 lake can be crossed in 14 of 17 cases; the dry one in six steps."""
    model = world_model("frozen_lake")
    *_, (q_values, _) = value_iteration(model.mdp, 1.0, start=np.zeros(len(model.states)), max_sweeps=100_000)
    assert model.starts @ q_values.max(axis=0) == pytest.approx(14 / 17, abs=1e-8)
    dry = evaluate(best_policy("frozen_lake", "dry"), "frozen_lake", "dry")
    assert (dry.success_rate, dry.mean_return) == (1.0, pytest.approx(0.99**5))


@needs_gymnasium
def test_the_cliff_takes_thirteen_steps() -> None:
    truth = evaluate(best_policy("cliff_walking"), "cliff_walking", discount=1.0)
    assert (truth.success_rate, truth.mean_return) == (pytest.approx(1.0), pytest.approx(-13.0))


@needs_gymnasium
def test_the_taxi_delivers_within_the_steps_it_needs() -> None:
    """The best taxi needs 13.07 steps on average over the 300 starts: 20 for the delivery minus 1 for each step before."""
    truth = evaluate(best_policy("taxi"), "taxi", discount=1.0)
    assert truth.success_rate == pytest.approx(1.0)
    assert 21 - truth.mean_return == pytest.approx(13.07, abs=0.005)


@needs_gymnasium
@pytest.mark.parametrize("name", ["frozen_lake", "cliff_walking", "taxi"])
def test_the_tables_are_those_of_the_environment(name: str) -> None:
    """Episodes of the environment itself have the mean return that the table says."""
    from gymnasium.envs.toy_text import CliffWalkingEnv, FrozenLakeEnv, TaxiEnv

    make = {"frozen_lake": FrozenLakeEnv, "cliff_walking": CliffWalkingEnv, "taxi": TaxiEnv}[name]
    environment, world = make(), make_world(name)
    policy = behavior_policy(world, named_behavior("expert", name)[1])
    rng, returns = np.random.default_rng(0), []
    state, _ = environment.reset(seed=0)
    for _ in range(200):
        total, weight, terminal = 0.0, 1.0, False
        while not terminal:
            row = policy.action_probabilities(world.state_key(int(state)), world.action_names)
            action = rng.choice(list(row), p=list(row.values()))
            state, reward, terminal, _, _ = environment.step(world.action_names.index(action))
            total, weight = total + weight * reward, weight * world.discount
        returns.append(total)
        state, _ = environment.reset()
    error = np.std(returns) / len(returns) ** 0.5
    assert abs(np.mean(returns) - evaluate(policy, name).mean_return) < 4 * error


@needs_icu_sepsis
def test_the_hospital_equals_its_paper() -> None:
    """Table of the paper: survival 0.78 at random, 0.78 by clinicians, 0.88 at best; 9.45, 9.22 and 10.99 steps (sampled)."""
    model = world_model("icu_sepsis")
    for name, survival, steps in (("uniform", 0.78, 9.45), ("logger", 0.78, 9.22), ("best", 0.88, 10.99)):
        policy = behavior_policy(model.world, named_behavior(name, "icu_sepsis")[1])
        truth = evaluate(policy, "icu_sepsis", discount=1.0)
        assert round(truth.success_rate, 2) == survival
        assert truth.mean_return == pytest.approx(truth.success_rate, abs=1e-10), "the reward is survival"
        assert model.visits(model.probabilities(policy)).sum() == pytest.approx(steps, abs=0.03)


# -- logs of environments -------------------------------------------------------------------------------------


class _Space(NamedTuple):
    n: int
    start: int = 0
    shape: tuple[int, ...] = ()


class _Walk:
    """A walk of five steps at most: 1 leads on and 0 stays; the third place ends it. It looks like an environment."""

    action_space = _Space(2)

    def reset(self, seed: int | None = None) -> tuple[int, dict[str, Any]]:
        self.place, self.t = 0, 0
        return self.place, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.place, self.t = self.place + action, self.t + 1
        return self.place, float(self.place == 2), self.place == 2, self.t == 5, {}


def test_episodes_of_an_environment_are_written_down_as_they_were() -> None:
    log = orl.collect_gymnasium(_Walk(), lambda place: int(place == 0), n_episodes=3, action_names=("stay", "go"))
    assert log.source is None
    assert any("can't be judged exactly" in note for note in log.report.notes)
    steps = log.rows(
        "SELECT t, state_text, action, reward, terminal, timeout, end_reason FROM steps ORDER BY row LIMIT 5"
    )
    assert steps[0] == (0, "0", "go", 0.0, False, False, None)
    assert steps[4] == (4, "1", "stay", 0.0, False, True, "truncated")
    assert log.rows("SELECT count(action_logprob) FROM steps") == [(0,)], "a function's probabilities are unknown"
    assert (log.n_episodes, log.n_steps, log.report.n_records_read) == (3, 15, 3)


def test_a_table_of_probabilities_is_sampled_and_logged() -> None:
    policy = policy_of({"0": {"0": 0.25, "1": 0.75}, "1": {"1": 1.0}}, ("0", "1"))
    log = orl.collect_gymnasium(_Walk(), policy, n_episodes=400, seed=1)
    shares = dict(
        log.rows("SELECT action, count(*) / sum(count(*)) OVER () FROM steps WHERE state_text = '0' GROUP BY 1")
    )
    assert shares["1"] == pytest.approx(0.75, abs=0.08)
    logprobs = log.rows("SELECT DISTINCT exp(action_logprob) FROM steps WHERE state_text = '0' ORDER BY 1")
    assert [p for (p,) in logprobs] == pytest.approx([0.25, 0.75])
    dataset = orl.frame(log)
    model = orl.train(dataset, "fqi")
    assert model.policy.action_probabilities("1", ("0", "1")) == {"1": 1.0}
    assert orl.exact_q_of(model, dataset) is None


def test_the_same_arguments_give_the_same_log() -> None:
    first, second, other = (orl.collect_gymnasium(_Walk(), n_episodes=20, seed=seed) for seed in (4, 4, 5))
    assert first.fingerprint == second.fingerprint != other.fingerprint
    assert first.rows("FROM steps ORDER BY row") == second.rows("FROM steps ORDER BY row")


def test_what_cannot_be_played_gets_a_sentence() -> None:
    continuous = _Walk()
    continuous.action_space = _Space(2, shape=(3,))  # type: ignore[misc]
    with pytest.raises(NotPossible, match="only discrete ones"):
        orl.collect_gymnasium(continuous)
    with pytest.raises(InvalidConfig, match="2 actions, but 1 names"):
        orl.collect_gymnasium(_Walk(), action_names=("go",))
    with pytest.raises(InvalidConfig, match="n_episodes is 0"):
        orl.collect_gymnasium(_Walk(), n_episodes=0)
    with pytest.raises(InvalidConfig, match="action 7"):
        orl.collect_gymnasium(_Walk(), lambda place: 7)
    with pytest.raises(InvalidConfig, match="'fly'"):
        orl.collect_gymnasium(_Walk(), TabularPolicy(states=("0",), actions=("fly",), probabilities=np.ones((1, 1))))


@needs_gymnasium
@pytest.mark.filterwarnings("ignore")
def test_real_environments_become_logs() -> None:
    poles = orl.collect_gymnasium("CartPole-v1", n_episodes=5, seed=1)
    assert orl.frame(poles).n_states > 5
    assert poles.fingerprint == orl.collect_gymnasium("CartPole-v1", n_episodes=5, seed=1).fingerprint
    cards = orl.collect_gymnasium("Blackjack-v1", n_episodes=30)
    assert cards.rows("SELECT count(*) FROM steps WHERE state_text IS NULL") == [(0,)]
    with pytest.raises(NotPossible, match="only discrete ones"):
        orl.collect_gymnasium("Pendulum-v1")
    with pytest.raises(NotPossible, match="can't make 'Nope-v0'"):
        orl.collect_gymnasium("Nope-v0")
