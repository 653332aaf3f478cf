"""The deadly triad explodes at exactly the published rate, and each remedy does exactly what can be worked out for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offrl_core.deadly_triad import (
    PROBLEMS,
    LinearProblem,
    bairds_star,
    growth_rate,
    iterate,
    make_problem,
    outcome,
    tsitsiklis_van_roy,
    unlogged_action,
)
from offrl_core.errors import InvalidConfig, UnknownName

EVERY_PROBLEM = pytest.mark.parametrize("problem", [make() for make in PROBLEMS.values()], ids=list(PROBLEMS))


def measured_growth(problem: LinearProblem, discount: float) -> float:
    """Factor per sweep over the second half of the sweeps."""
    errors = iterate(problem, discount=discount, n_sweeps=4000).largest
    half = len(errors) // 2
    return float((errors[-1] / errors[half]) ** (1 / (len(errors) - 1 - half)))


# -- rates ----------------------------------------------------------------------------------------------------


@given(discount=st.floats(0, 1), ending=st.floats(0, 1))
def test_two_states_grow_by_the_closed_form(discount: float, ending: float) -> None:
    problem = tsitsiklis_van_roy(ending)
    assert growth_rate(problem, discount=discount) == pytest.approx(discount * (6 - 4 * ending) / 5, abs=1e-12)
    one_sweep = iterate(problem, discount=discount, n_sweeps=1).weights[:, 0]
    assert one_sweep[1] / one_sweep[0] == pytest.approx(problem.growth(discount), abs=1e-12)


@given(discount=st.floats(0, 1))
def test_the_unlogged_action_doubles_its_guess(discount: float) -> None:
    problem = unlogged_action()
    assert growth_rate(problem, discount=discount) == pytest.approx(2 * discount, abs=1e-12)
    assert growth_rate(problem, discount=discount, inside_support=True) == pytest.approx(discount, abs=1e-12)
    assert growth_rate(problem, discount=discount, weights=np.array([-1.0])) == pytest.approx(discount, abs=1e-12)


@given(discount=st.floats(0.9, 1), step_size=st.floats(0.01, 3))
def test_the_star_grows_by_the_closed_form(discount: float, step_size: float) -> None:
    problem = bairds_star(step_size)
    assert growth_rate(problem, discount=discount) == pytest.approx(problem.growth(discount), abs=1e-9)


def test_the_star_equals_a_two_by_two_matrix() -> None:
    """dV_up = 10 e_up + 2 e_7 and dV_7 = 12 e_up + 5 e_7, with e_up = γ V_7 - V_up and e_7 = (γ - 1) V_7, all over 49."""
    discount = 0.99
    errors = np.array([[-1.0, discount], [0.0, discount - 1]])
    matrix = np.eye(2) + np.array([[10.0, 2.0], [12.0, 5.0]]) @ errors / 49
    assert growth_rate(bairds_star(), discount=discount) == pytest.approx(
        np.abs(np.linalg.eigvals(matrix)).max(), abs=1e-12
    )
    first, second = iterate(bairds_star(), discount=discount, n_sweeps=1).q_values
    assert second[[0, 6]] == pytest.approx(matrix @ first[[0, 6]])


@EVERY_PROBLEM
def test_above_the_critical_discount_iterates_explode_at_the_exact_rate(problem: LinearProblem) -> None:
    for discount in (problem.critical_discount + 0.25 * (1 - problem.critical_discount), 1.0):
        assert problem.growth(discount) > 1
        assert measured_growth(problem, discount) == pytest.approx(problem.growth(discount), rel=1e-4)


@EVERY_PROBLEM
def test_below_the_critical_discount_nothing_explodes(problem: LinearProblem) -> None:
    errors = iterate(problem, discount=problem.critical_discount - 0.01, n_sweeps=4000).largest
    assert errors[-1] < errors[0] < errors.max() * 100


@EVERY_PROBLEM
def test_the_explosion_spans_tens_of_orders_of_magnitude_and_stops_in_time(problem: LinearProblem) -> None:
    run = iterate(problem, n_sweeps=100_000)
    assert run.exploded
    assert np.isfinite(run.weights).all()
    assert 1e200 < run.largest[-1] < 1e203
    assert len(run.weights) == len(run.q_values) < 20_000


# -- remedies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["unlogged_action", "bairds_star"])
def test_staying_inside_the_support_ends_it(name: str) -> None:
    problem = make_problem(name)
    run = iterate(problem, n_sweeps=20_000, inside_support=True)
    assert growth_rate(problem, inside_support=True) < 1
    assert run.largest[-1] < 1e-9


def test_without_an_unsupported_action_there_is_nothing_to_stay_inside_of() -> None:
    problem = make_problem("tsitsiklis_van_roy")
    assert problem.supported.all()
    plain = iterate(problem, n_sweeps=50).largest
    assert (iterate(problem, n_sweeps=50, inside_support=True).largest == plain).all()
    assert iterate(problem, n_sweeps=50, conservative_weight=5.0).largest == pytest.approx(plain)


@pytest.mark.parametrize("discount", [0.75, 0.9, 0.99])
@pytest.mark.parametrize("times", [0.0, 0.5, 0.99, 1.01, 2.0, 10.0])
def test_a_penalty_wins_exactly_from_a_threshold_on(discount: float, times: float) -> None:
    """w becomes 2γw - α while positive, so it grows if w > α / (2γ - 1), and then for ever; else it gets to 0 from below."""
    weight = times * (2 * discount - 1) * unlogged_action().start_weights[0]
    run = iterate(unlogged_action(), discount=discount, conservative_weight=weight, n_sweeps=3000)
    assert run.exploded == (times < 1)
    if not run.exploded:
        assert run.weights.min() < 0
        assert run.largest[-1] < 1e-9


def test_a_penalty_on_the_star_holds_if_it_is_large() -> None:
    problem = make_problem("bairds_star")
    assert iterate(problem, n_sweeps=20_000, conservative_weight=0.5).exploded
    held = iterate(problem, n_sweeps=20_000, conservative_weight=2.0)
    assert not held.exploded
    assert held.largest.max() < 100
    assert held.largest[-1] > 1, "it keeps a bias: true values are 0"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("unlogged_action", {}, "explodes"),
        ("unlogged_action", {"discount": 0.4}, "dies away"),
        ("unlogged_action", {"inside_support": True}, "shrinks"),
        ("unlogged_action", {"discount": 0.501}, "grows"),
        ("unlogged_action", {"discount": 0.5}, "stays"),
        ("bairds_star", {"conservative_weight": 0.5, "n_sweeps": 3000}, "explodes"),
        ("bairds_star", {"conservative_weight": 2.0, "n_sweeps": 3000}, "stays"),
    ],
)
def test_the_outcome_in_words(name: str, options: dict, words: str) -> None:
    assert outcome(iterate(make_problem(name), **{"n_sweeps": 200, **options})) == words


# -- bad input ------------------------------------------------------------------------------------------------


def test_bad_numbers_get_a_sentence() -> None:
    problem = make_problem("unlogged_action")
    for arguments in ({"discount": 1.1}, {"discount": float("nan")}, {"conservative_weight": -1.0}):
        with pytest.raises(InvalidConfig, match="must"):
            iterate(problem, **arguments)
    with pytest.raises(UnknownName, match="bairds_star"):
        make_problem("square")
