"""The ceiling before training: against every policy there is, as a bound of every learner, and its parts by hand."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.arrays import BoolArray, FloatArray
from offrl_core.dataset import Dataset
from offrl_core.errors import InvalidConfig, NotPossible, UnknownName
from offrl_core.evaluation.ceiling import (
    best_path,
    best_possible,
    ceiling,
    ceiling_curve,
    true_value,
    why_not_the_truth,
)
from offrl_core.evaluation.diagnostics import promised_return
from offrl_core.evaluation.exact import evaluate, world_model
from offrl_core.evaluation.forecast import FAMILIES, Forecast, family_of, forecast, score_forecast
from offrl_core.evaluation.ledger import supported_part
from offrl_core.evaluation.log_quality import behavior_entropy, concentrability, log_quality
from offrl_core.policies import uniform_policy
from offrl_core.worlds import LOGGED_IN, WORLDS

from .helpers import Row, episode, few_examples, framed_by_hand, make_log, policy_of, random_rows
from .test_tabular_family import by_hand

SMALL = ("calculator", "chain", "gridworld", "calculator_chain")
LEARNERS = [name for name, spec in orl.ALGORITHMS.items() if spec.instant]


@cache
def small(world: str, seed: int) -> Dataset:
    return orl.frame(orl.collect(world, "logger", n_episodes=60, seed=seed))


def framed(rows: list[Row], discount: float = 0.5) -> Dataset:
    return orl.frame(make_log(rows), orl.Framing(state="state_text", discount=discount))


# -- the bound ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", SMALL)
@pytest.mark.parametrize("min_count", [1, 3])
def test_no_learner_that_stays_inside_beats_the_ceiling(world: str, min_count: int) -> None:
    """In the process of the counts, from the starts of the log; a policy that leaves is held to what it supports."""
    for seed in range(2):
        dataset = small(world, seed)
        found = ceiling(dataset, min_count)
        for name in LEARNERS:
            model = orl.train(dataset, name)
            q_values = np.zeros(dataset.valid_mask.shape) if model.q_values is None else model.q_values
            inside = supported_part(model.policy.probabilities, q_values, found.supported)
            assert found.worth(inside, dataset.discount) <= found.value + 1e-9, (name, seed)
        assert found.worth(found.policy.probabilities, dataset.discount) == pytest.approx(found.value, abs=1e-9)


def supported_by_hand(dataset: Dataset, rows: list[Row], min_count: int) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Mean rewards (S, A), successor shares (S, A, S) and support, counted row by row in plain Python."""
    shape = (dataset.n_states, dataset.n_actions)
    seen, taught, sums = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    following = np.zeros((*shape, dataset.n_states))
    for row in framed_by_hand(rows):
        s, a = dataset.states.index(row["state_text"]), dataset.actions.index(row["action"])
        seen[s, a] += 1
        if row["ending"] == 2 or row["reward"] is None:
            continue
        taught[s, a] += 1
        sums[s, a] += row["reward"]
        if row["next_state"] is not None:
            following[s, a, dataset.states.index(row["next_state"])] += 1
    n = np.maximum(taught, 1)
    return sums / n, following / n[:, :, None], (seen >= min_count) & (taught > 0)


@few_examples
@given(random_rows(), st.sampled_from([0.5, 0.9]), st.integers(1, 2))
def test_the_ceiling_is_the_best_of_all_policies_inside(rows: list[Row], discount: float, min_count: int) -> None:
    dataset = framed(rows, discount)
    rewards, following, supported = supported_by_hand(dataset, rows, min_count)
    if not (dataset.has_rewards and supported.any()):
        with pytest.raises(NotPossible):
            ceiling(dataset, min_count)
        return
    found = ceiling(dataset, min_count)
    assert (found.supported == supported).all()
    best = np.full(dataset.n_states, -np.inf)
    choices = [np.flatnonzero(row) if row.any() else [-1] for row in supported]
    for chosen in itertools.product(*choices):
        acts = np.array([max(a, 0) for a in chosen])
        alive = np.array([a >= 0 for a in chosen])
        states = np.arange(dataset.n_states)
        chain = following[states, acts] * alive[:, None]
        values = np.linalg.solve(np.eye(len(acts)) - discount * chain, rewards[states, acts] * alive)
        best = np.maximum(best, values)
    assert found.v_values == pytest.approx(best, abs=1e-9)
    starts = dataset.start_counts / dataset.start_counts.sum()
    assert found.value == pytest.approx(starts @ best, abs=1e-9)


def test_support_constrained_learning_reaches_it_where_every_state_is_supported() -> None:
    for world in SMALL:
        dataset = small(world, 0)
        model = orl.train(dataset, "fqi_support")
        assert promised_return(dataset, model) == pytest.approx(ceiling(dataset).value, abs=1e-8)


def test_with_enough_rows_in_a_world_that_hides_nothing_it_is_the_truth() -> None:
    dataset = orl.frame(orl.collect("chain", "uniform", n_episodes=2000, seed=3))
    found = ceiling(dataset)
    assert found.value == pytest.approx(best_possible(dataset), abs=1e-9)  # walking never fails
    assert true_value(dataset, found.policy) == pytest.approx(found.value, abs=1e-9)
    assert found.silent == 0


@pytest.mark.parametrize("world", SMALL)
def test_the_reason_why_a_ceiling_is_not_the_truth_is_the_true_one(world: str) -> None:
    """A changed world is named exactly where the value changes, aliasing only where the world hides something."""
    dataset = small(world, 0)
    found, spec, model = ceiling(dataset), WORLDS[world], world_model(world, LOGGED_IN)
    then = true_value(dataset, found.policy, LOGGED_IN)
    for deployment in spec.deployments:
        here, said = true_value(dataset, found.policy, deployment), why_not_the_truth(dataset, found, deployment)
        changed = [sentence for sentence in said if "the world has changed" in sentence]
        counts = [sentence for sentence in said if sentence not in changed]
        assert bool(changed) == (abs(here - then) > 5e-4)
        assert all(spec.situation(deployment) in s and f"{here:+z.3f}" in s and f"{then:+z.3f}" in s for s in changed)
        assert bool(counts) == (abs(then - found.value) > 5e-4)
        assert not any("aliasing" in s for s in counts) or len(model.keys) < len(model.states)
        assert not any("few rows" in s for s in counts) or then < found.value
    unknown = framed(episode("e", ("s", "a", 1.0)))
    assert why_not_the_truth(unknown, ceiling(unknown)) == ()


def test_kept_for_its_returns_a_log_looks_better_than_its_world() -> None:
    log = orl.collect("chain", "first_half", n_episodes=300, seed=0)
    dataset = orl.frame(log, edits=[orl.MinReturn(0.5)])
    (sentence,) = why_not_the_truth(dataset, ceiling(dataset))
    assert "only good episodes were kept" in sentence


def test_a_state_where_nothing_is_supported_is_worth_nothing_and_is_counted() -> None:
    rows = [*episode("e", ("0", "a", -1.0), ("1", "a", 5.0))] + [
        row for i in range(3) for row in episode(f"f{i}", ("0", "b", -2.0), ("2", "a", 0.0))
    ]
    found = ceiling(framed(rows), min_count=2)
    assert found.value == pytest.approx(-2.0)  # b, because a was seen once
    assert found.silent == 0
    # Two more a's that were cut behind their first step: now a is supported, and what waits behind it isn't.
    cut = [row for i in range(2) for row in episode(f"g{i}", ("0", "a", -1.0), ("3", "a", 0.0))]
    found = ceiling(framed(rows + cut), min_count=3)
    assert found.silent == pytest.approx(1.0)
    assert found.value == pytest.approx(-1.0)


def test_of_equally_good_actions_the_one_with_more_rows_is_taken() -> None:
    rows = [*episode("e", ("0", "a", 1.0)), *episode("f", ("0", "b", 1.0)), *episode("g", ("0", "b", 1.0))]
    assert ceiling(framed(rows)).policy.greedy_actions() == ("b",)


def test_what_has_no_ceiling_is_refused_in_a_sentence() -> None:
    with pytest.raises(NotPossible, match="no step of this log has a known reward"):
        ceiling(framed([*episode("e", ("0", "a", None))]))
    with pytest.raises(NotPossible, match="seen 7 times"):
        ceiling(framed([*episode("e", ("0", "a", 1.0))]), min_count=7)
    branch = [{**row, "t": row["t"] + 1, "parent_episode": "p"} for row in episode("e", ("0", "a", 1.0))]
    with pytest.raises(NotPossible, match="first step"):
        ceiling(framed(branch))
    endless = episode("e", ("0", "a", 1.0), ("0", "a", 1.0), terminal=False, timeout=True)
    with pytest.raises(NotPossible, match="no bound"):
        ceiling(framed(endless, discount=1.0))


@pytest.mark.parametrize("terminal", [True, None])
def test_one_episode_a_constant_reward_and_no_said_ending(terminal: bool | None) -> None:
    rows = episode(
        "e", ("0", "a", 1.0), ("1", "a", 1.0), terminal=terminal, timeout=None if terminal is None else False
    )
    dataset = framed(rows)
    assert ceiling(dataset).value == pytest.approx(1.5)
    quality = log_quality(dataset)
    assert quality.trajectory_quality is None  # one return, nothing to scale it by
    assert forecast(dataset).best == tuple(FAMILIES)


# -- the best path --------------------------------------------------------------------------------------------


def test_the_chain_is_stitched_from_two_agents() -> None:
    dataset = orl.frame(orl.collect("chain", "logger", n_episodes=300, seed=0))
    path = best_path(dataset, ceiling(dataset))
    assert [step.action for step in path.steps] == ["walk"] * 6
    assert (path.ending, path.n_pieces, path.n_whole) == ("ended", 2, 0)
    assert "stitched together from 2 pieces" in path.sentence
    counts = dataset.visitation_counts[:, dataset.actions.index("walk")]
    assert path.thinnest.n_rows == counts.min()


def test_a_path_that_episodes_walk_says_how_many() -> None:
    path = best_path(by_hand(), ceiling(by_hand()))
    assert [(step.state, step.action) for step in path.steps] == [("0", "a"), ("1", "c")]
    assert (path.n_pieces, path.n_whole) == (1, 1)
    assert path.sentence == "1 logged episode walks this path whole. Its thinnest step is c in 1: 1 row."


def test_a_path_says_how_it_stops() -> None:
    circle = [*episode("e", ("0", "a", 1.0), ("1", "a", 1.0), ("0", "a", 1.0), ("1", "a", 1.0), ("0", "b", 0.0))]
    dataset = framed(circle, 0.9)
    assert best_path(dataset, ceiling(dataset)).ending == "loop"
    silent = episode("e", ("0", "a", 1.0), ("1", "a", None), terminal=False, timeout=True)
    dataset = framed(silent)
    path = best_path(dataset, ceiling(dataset))
    assert (path.ending, len(path.steps)) == ("silent", 1)
    with pytest.raises(NotPossible, match="supports nothing"):
        best_path(dataset, ceiling(dataset), "1")
    with pytest.raises(UnknownName):
        best_path(dataset, ceiling(dataset), "nowhere")


# -- removing an action ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["episodes", "transitions"])
def test_the_curve_ends_at_the_whole_log_and_begins_where_the_edit_does(dataset_with_mul: Dataset, how: str) -> None:
    curve = ceiling_curve(dataset_with_mul, "mul", how=how, kept=[0, 0.1, 0.5, 1])
    assert curve.values[-1] == ceiling(dataset_with_mul).value
    assert curve.n_rows[0] == 0
    assert (np.diff(curve.n_rows) > 0).all()
    edited = orl.frame(dataset_with_mul.log, edits=[orl.DropAction("mul", how=how)])
    assert curve.true_values[0] == pytest.approx(true_value(edited, ceiling(edited).policy), abs=1e-12)
    assert curve.true_values[0] < 0.3 < 0.8 < curve.true_values[2]


def test_a_curve_without_a_world_has_no_exact_values_and_ends_in_nothing() -> None:
    dataset = framed([*episode("e", ("0", "a", 1.0)), *episode("f", ("0", "a", 2.0))])
    curve = ceiling_curve(dataset, "a")
    assert curve.true_values is None
    assert np.isnan(curve.values[0])
    assert curve.values[-1] == pytest.approx(1.5)
    with pytest.raises(UnknownName):
        ceiling_curve(dataset, "b")
    with pytest.raises(InvalidConfig, match="between 0 and 1"):
        ceiling_curve(dataset, "a", kept=[2.0])


# -- what the log is like -------------------------------------------------------------------------------------


def test_measures_of_a_log_by_hand() -> None:
    """Discounted returns 2, 1/2, 1/2 and 1; 4 of 5 valid pairs seen; 4 rows (3 to 1, of 3) and 3 rows (1 to 2, of 2)."""
    dataset = by_hand()
    quality = log_quality(dataset)
    assert quality.trajectory_quality == pytest.approx((1.0 - 0.5) / (2.0 - 0.5))
    assert quality.state_action_coverage == pytest.approx(4 / 5)
    entropies = [-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (1 / 4, 1 / 3)]
    expected = (4 * entropies[0] / math.log(3) + 3 * entropies[1] / math.log(2)) / 7
    assert behavior_entropy(dataset) == quality.behavior_entropy == pytest.approx(expected)
    assert (quality.thin_states, quality.thin_visits, quality.against_truth) == (1.0, 1.0, False)
    assert log_quality(dataset, few=2).thin_states == 0.5  # c was seen once, a three times


def test_measures_of_a_world_are_held_against_exact_values() -> None:
    dataset = small("chain", 0)
    quality = log_quality(dataset)
    assert quality.against_truth
    random = uniform_policy(dataset.states, dataset.actions, np.ones_like(dataset.valid_mask))
    low = evaluate(random, "chain", "works", dataset.discount).mean_return
    mean = orl.compare_estimators({}, dataset).logged.value
    assert quality.trajectory_quality == pytest.approx((mean - low) / (best_possible(dataset) - low))
    assert quality.state_action_coverage == 1.0


def test_lookahead_is_how_far_the_log_s_own_values_mislead() -> None:
    """The log's agent throws away what b leads to: by its own values a is better, one backup later b is."""
    good = [row for i in range(1) for row in episode(f"g{i}", ("0", "b", 0.0), ("1", "take", 4.0))]
    bad = [row for i in range(9) for row in episode(f"b{i}", ("0", "b", 0.0), ("1", "leave", 0.0))]
    safe = [row for i in range(5) for row in episode(f"s{i}", ("0", "a", 1.0))]
    assert log_quality(framed(good + bad + safe)).lookahead == 2
    assert log_quality(framed(good + safe)).lookahead == 1


def test_concentrability_by_hand() -> None:
    """Always a, then c: half of the weight each way 2/3 and 1/3, against 3 and 1 of 7 rows."""
    dataset = by_hand()
    policy = policy_of({"0": {"a": 1.0}, "1": {"c": 1.0}}, dataset.actions)
    worst = concentrability(dataset, policy)
    assert (worst.state, worst.action) == ("1", "c")
    assert worst.value == pytest.approx((1 / 3) / (1 / 7))
    leaves = policy_of({"0": {"x": 1.0}, "1": {"c": 1.0}}, (*dataset.actions[:-1], "x"))
    assert concentrability(dataset, leaves).value == np.inf
    assert "never shows" in concentrability(dataset, leaves).sentence
    assert concentrability(dataset, leaves).in_short == "never seen"


def test_a_policy_on_its_own_log_has_the_smallest_concentrability() -> None:
    dataset = framed([*episode("e", ("0", "a", 1.0)), *episode("f", ("0", "b", 1.0))])
    policy = policy_of({"0": {"a": 0.5, "b": 0.5}}, dataset.actions)
    assert concentrability(dataset, policy).value == pytest.approx(1.0)


def test_concentrability_has_no_bound_where_a_policy_goes_in_circles() -> None:
    rows = [*episode("e", ("0", "a", 0.0), ("0", "a", 0.0), ("0", "b", 1.0), terminal=True)]
    dataset = framed(rows, discount=1.0)
    with pytest.raises(NotPossible, match="in circles"):
        concentrability(dataset, policy_of({"0": {"a": 1.0}}, dataset.actions))


# -- the forecast ---------------------------------------------------------------------------------------------


def exact_values(dataset: Dataset, deployment: str) -> dict[str, float]:
    world = dataset.log.source.world
    models = {name: orl.train(dataset, name) for name in ("bc", "fqi", "fqi_support")}
    return {name: evaluate(model.policy, world, deployment).mean_return for name, model in models.items()}


def test_the_forecast_for_the_story_and_its_score_under_each_truth(dataset_without_mul: Dataset) -> None:
    made = forecast(dataset_without_mul)
    assert made.best == ("copying", "constrained")
    assert "33% of its episodes" in made.reasons[1]
    assert score_forecast(made, exact_values(dataset_without_mul, "broken")).right
    wrong = score_forecast(made, exact_values(dataset_without_mul, "works"))
    assert not wrong.right
    assert wrong.winners == ("unconstrained",)
    assert "wrong" in wrong.sentence


@pytest.mark.parametrize("world", SMALL)
def test_a_forecast_can_be_scored_in_every_world(world: str) -> None:
    dataset = small(world, 1)
    made = forecast(dataset)
    assert made.headline
    assert made.best
    for deployment in WORLDS[world].deployments:
        score = score_forecast(made, exact_values(dataset, deployment))
        assert score.right == (made.best[0] in score.winners)


def test_stitching_calls_for_more_than_copying() -> None:
    dataset = orl.frame(orl.collect("chain", "logger", n_episodes=300, seed=0))
    made = forecast(dataset)
    assert made.best == ("constrained", "unconstrained")
    assert any("stitched together" in reason for reason in made.reasons)
    assert score_forecast(made, exact_values(dataset, "works")).right


def test_without_rewards_only_copying_is_left() -> None:
    made = forecast(framed([*episode("e", ("0", "a", None))]))
    assert made.best == ("copying",)
    assert "nothing but copying" in made.reasons[0]
    assert made.headline == "Start with learners that copy the log."


def test_a_forecast_is_not_scored_against_one_family_alone() -> None:
    made = Forecast(best=("constrained",), reasons=(), doubts=(), close=0.1)
    for values in ({}, {"cql": 1.0}, {"bc": 1.0, "fqi": 0.0}):
        with pytest.raises(NotPossible, match="two families"):
            score_forecast(made, values)
    assert score_forecast(
        made, {"cql": 0.95, "bc": 1.0, "somebody": 9.0}
    ).right  # close enough, and nobody knows somebody


def test_every_learner_has_a_family() -> None:
    homeless = [name for name in orl.ALGORITHMS if family_of(name) is None]
    assert not homeless, f"name the family of {homeless} in evaluation/forecast.py"
    assert {family_of(name) for name in orl.ALGORITHMS} == set(FAMILIES)
    assert family_of("cql_neural") == "constrained"
    assert family_of("somebody") is None
