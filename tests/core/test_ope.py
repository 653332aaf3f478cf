"""Off-policy estimates: numbers worked out by hand, no bias over many logs, and refusals where a log can't speak."""

from __future__ import annotations

import math

import numpy as np
import pytest

import offrl_core as orl
from offrl_core.behavior import BEHAVIORS, Behavior, behavior_policy
from offrl_core.dataset import Dataset
from offrl_core.errors import UnknownName
from offrl_core.evaluation.exact import evaluate
from offrl_core.evaluation.ope import MIN_EFFECTIVE_SAMPLE_SIZE
from offrl_core.policies import TabularPolicy
from offrl_core.worlds import make_world

from .helpers import Row, episode, make_log, policy_of

both_estimators = pytest.mark.parametrize("estimator", ["is", "wis"])
every_estimator = pytest.mark.parametrize("estimator", orl.ESTIMATORS)
every_weighing = pytest.mark.parametrize("estimator", [n for n, spec in orl.ESTIMATORS.items() if spec.weighs_steps])


def coin_rows(n_heads: int, n_tails: int, p_heads: float = 0.5) -> list[Row]:
    """One-step episodes: heads pays 1, tails pays 0; the coin was logged with its probability."""
    rows = []
    for i in range(n_heads + n_tails):
        action, reward, p = ("heads", 1.0, p_heads) if i < n_heads else ("tails", 0.0, 1 - p_heads)
        rows += episode(f"e{i}", ("toss", action, reward), action_logprob=math.log(p))
    return rows


def coin(p_heads: float) -> TabularPolicy:
    return policy_of({"toss": {"heads": p_heads, "tails": 1 - p_heads}}, ("heads", "tails"))


def logger(right_probability: float = 0.62) -> TabularPolicy:
    return behavior_policy(make_world("calculator"), Behavior(right_probability=right_probability))


# -- by hand --------------------------------------------------------------------------------------------------


def test_one_step_by_hand() -> None:
    """Weights 1.8 on 30 heads and 0.2 on 20 tails: IS = 54/50, WIS = 54/58, size (54+4)^2 / (30*3.24 + 20*0.04)."""
    dataset = orl.frame(make_log(coin_rows(30, 20)))
    ordinary, weighted = (orl.estimate(coin(0.9), dataset, name) for name in ("is", "wis"))
    assert ordinary.value == pytest.approx(54 / 50)
    assert weighted.value == pytest.approx(54 / 58)
    assert ordinary.effective_sample_size == weighted.effective_sample_size == pytest.approx(58**2 / 98)


def test_two_discounted_steps_by_hand() -> None:
    """Discount 1/2. Up-up weighs (0.8/0.5)^2 = 2.56 and returns 1 + 1/2 * 2; up-down (1.6)(0.4) = 0.64 and 1; down 0.4, 0."""
    p = math.log(0.5)
    rows: list[Row] = []
    for i in range(10):
        rows += episode(f"a{i}", ("s", "up", 1.0), ("s", "up", 2.0), action_logprob=p)
        rows += episode(f"b{i}", ("s", "up", 1.0), ("s", "down", 0.0), action_logprob=p)
        rows += episode(f"c{i}", ("s", "down", 0.0), action_logprob=p)
    dataset = orl.frame(make_log(rows[::-1]), orl.Framing(state="state_text", discount=0.5))
    policy = policy_of({"s": {"up": 0.8, "down": 0.2}}, ("up", "down"))
    assert orl.estimate(policy, dataset, "is").value == pytest.approx((2.56 * 2 + 0.64 * 1) / 3)
    assert orl.estimate(policy, dataset, "wis").value == pytest.approx((2.56 * 2 + 0.64 * 1) / (2.56 + 0.64 + 0.4))


@both_estimators
def test_the_behavior_policys_own_estimate_is_the_mean_return(estimator: str, dataset_with_mul: Dataset) -> None:
    guess = orl.estimate(logger(), dataset_with_mul, estimator)
    returns = dataset_with_mul.log.rows("SELECT sum(reward * pow(0.99, t)) FROM steps GROUP BY episode_id")
    assert guess.value == pytest.approx(np.mean(returns))
    assert guess.effective_sample_size == pytest.approx(3000)
    assert guess.refusal == ""
    assert guess.low is not None
    assert guess.high is not None
    assert guess.low < guess.value < guess.high


@both_estimators
def test_frequencies_stand_in_for_missing_probabilities_and_it_says_so(estimator: str) -> None:
    """Behavior estimated from the log weighs its own frequencies to 1: 30 of 50 heads become 0.9 exactly."""
    rows = [{**row, "action_logprob": None} for row in coin_rows(30, 20)]
    guess = orl.estimate(coin(0.9), orl.frame(make_log(rows)), estimator)
    assert guess.value == pytest.approx(0.9)
    assert any("estimated from its action frequencies" in warning for warning in guess.warnings)
    told = orl.estimate(coin(0.9), orl.frame(make_log(coin_rows(30, 20))), estimator)
    assert not any("frequencies" in warning for warning in told.warnings)


@both_estimators
def test_episodes_of_unknown_return_are_left_out_and_counted(estimator: str) -> None:
    rows = coin_rows(30, 20)
    unknown = [row for i in range(5) for row in episode(f"u{i}", ("toss", "heads", None), action_logprob=math.log(0.5))]
    without, with_unknown = (
        orl.estimate(coin(0.6), orl.frame(make_log(r)), estimator) for r in (rows, [*rows, *unknown])
    )
    assert with_unknown.value == pytest.approx(without.value)
    assert any("5 of 55 episodes have an unknown return" in warning for warning in with_unknown.warnings)


@both_estimators
def test_weighing_keeps_inside_the_returns_where_it_should(estimator: str) -> None:
    """WIS is a mean, so it can't exceed the best return; plain IS can."""
    guess = orl.estimate(coin(1.0), orl.frame(make_log(coin_rows(30, 20))), estimator)
    assert guess.value == pytest.approx({"is": 2 * 30 / 50, "wis": 1.0}[estimator])


# -- over many logs -------------------------------------------------------------------------------------------


def test_importance_sampling_has_no_bias_and_its_intervals_hold_the_truth() -> None:
    policy, guesses = logger(0.9), []
    truth = evaluate(policy, "calculator").mean_return
    for seed in range(30):
        dataset = orl.frame(orl.collect("calculator", "logger", n_episodes=100, seed=seed))
        guesses.append(orl.estimate(policy, dataset, "is", n_bootstrap=200))
    values = np.array([guess.value for guess in guesses], dtype=float)
    assert abs(values.mean() - truth) <= 4 * values.std(ddof=1) / len(values) ** 0.5
    covered = sum(guess.low <= truth <= guess.high for guess in guesses)  # type: ignore[operator]
    assert covered >= 24, "95 % intervals: at least 24 of 30, by far"


@both_estimators
def test_the_estimate_lies_near_the_exact_value_on_a_long_log(estimator: str, dataset_with_mul: Dataset) -> None:
    model = orl.train(dataset_with_mul, "fqi")
    guess, truth = (
        orl.estimate(model.policy, dataset_with_mul, estimator),
        evaluate(model.policy, "calculator"),
    )
    assert guess.value == pytest.approx(truth.mean_return, abs=0.1)
    assert any("these very episodes" in warning for warning in guess.warnings)


def test_the_same_seed_gives_the_same_interval(dataset_with_mul: Dataset) -> None:
    first, second, other = (orl.estimate(logger(0.9), dataset_with_mul, seed=seed) for seed in (1, 1, 2))
    assert first == second
    assert (first.low, first.high) != (other.low, other.high)
    assert first.value == other.value


# -- refusals -------------------------------------------------------------------------------------------------


@every_estimator
def test_no_number_where_the_log_never_did_what_the_policy_does(estimator: str, dataset_without_mul: Dataset) -> None:
    """Naive FQI multiplies on mul tasks, which no episode does; on the other tasks it may still be judged in part."""
    only_mul = orl.frame(dataset_without_mul.log, edits=[orl.OnlyValue("task", "mul")])
    model = orl.train(only_mul, "fqi")
    guess = orl.estimate(model.policy, only_mul, estimator)
    assert guess.value is guess.low is guess.high is None
    if estimator not in ("fqe", "mis", "magic"):  # their size counts visited steps, and lookups are the same
        assert guess.effective_sample_size == 0
    assert "does what the log never shows" in guess.refusal
    assert "would help" in guess.refusal


@every_estimator
def test_no_number_from_a_handful_of_episodes(estimator: str) -> None:
    n = MIN_EFFECTIVE_SAMPLE_SIZE
    few, enough = (orl.estimate(coin(1.0), orl.frame(make_log(coin_rows(k, 50, 0.2))), estimator) for k in (n - 1, n))
    assert few.value is None
    assert few.effective_sample_size == pytest.approx(n - 1)
    assert enough.value is not None


@every_estimator
def test_no_number_without_rewards(estimator: str) -> None:
    rows = [{**row, "reward": None} for row in coin_rows(30, 20)]
    guess = orl.estimate(coin(0.5), orl.frame(make_log(rows)), estimator)
    assert guess.value is None
    assert "no rewards" in guess.refusal


def test_an_unknown_estimator_lists_the_known_ones(dataset_with_mul: Dataset) -> None:
    with pytest.raises(UnknownName, match="Known: is, wis, pdis"):
        orl.estimate(logger(), dataset_with_mul, "oracle")


def test_every_estimator_shows_its_equation_and_source() -> None:
    assert all(spec.title and spec.equation and spec.source for spec in orl.ESTIMATORS.values())
    assert BEHAVIORS["logger"] == Behavior()


def test_cut_episodes_are_counted_in_the_warnings():
    """An episode that was cut has too short a return; the number may stand, the reader must know."""
    rows = [
        {
            "episode_id": f"e{i}",
            "t": t,
            "action": "go",
            "state_text": "s",
            "reward": 1.0,
            "terminal": t == 1 and i % 2 == 0,
        }
        | {"timeout": t == 1 and i % 2 == 1}
        for i in range(40)
        for t in range(2)
    ]
    dataset = orl.frame(make_log(rows))
    policy = TabularPolicy(states=("s",), actions=("go",), probabilities=np.ones((1, 1)))
    guess = orl.estimate(policy, dataset, "wis")
    assert any("20 of 40 episodes were cut" in warning for warning in guess.warnings)


@every_estimator
def test_a_policy_that_leaves_the_log_is_refused_and_not_judged_by_the_rest(log_without_mul, estimator):
    """Naive FQI runs to mul, which the log never shows; the episodes that remain would make it look perfect."""
    dataset = orl.frame(log_without_mul)
    guess = orl.estimate(orl.train(dataset, "fqi").policy, dataset, estimator)
    assert guess.value is None
    assert "mul: x, y known" in guess.refusal
    inside = orl.estimate(orl.train(dataset, "fqi_support").policy, dataset, estimator)
    assert inside.value is not None


@pytest.mark.parametrize("logprobs", [(-250.0, -250.0), (-1.0, -400.0), (5.0, 5.0)])
@every_weighing
def test_impossible_behavior_probabilities_are_refused_and_never_become_nan(estimator: str, logprobs: tuple) -> None:
    rows = [
        {"episode_id": f"e{i}", "t": t, "action": "go", "state_text": "s", "reward": 1.0, "terminal": t == 1}
        | {"action_logprob": logprobs[min(i, 1)]}
        for i in range(40)
        for t in range(2)
    ]
    dataset = orl.frame(make_log(rows))
    guess = orl.estimate(orl.train(dataset, "bc").policy, dataset, estimator)
    assert guess.value is None
    assert guess.refusal
