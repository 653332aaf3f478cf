"""The extrapolation ledger: parts add up to the value, hand-made cases come out as on paper, and leaving is exact in worlds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.errors import InvalidConfig, NotPossible
from offrl_core.evaluation.ceiling import best_path, ceiling
from offrl_core.evaluation.diagnostics import promised_return
from offrl_core.evaluation.ledger import (
    PARTS,
    Ledger,
    leaving_steps,
    supported_part,
    value_ledger,
)
from offrl_core.evaluation.log_quality import FEW_ROWS
from offrl_core.evaluation.occupancy import FirstSteps, first_steps, visits_by_step
from offrl_core.mdp import policy_values
from offrl_core.wording import counted

from .helpers import episode, few_examples, make_log, policy_of, random_rows
from .test_tabular_family import by_hand, cell, holey

COPIERS = ("bc", "filtered_bc", "return_conditioned")
WITH_VALUES = [name for name, spec in orl.ALGORITHMS.items() if spec.instant and name not in COPIERS]
OF_THEIR_POLICY = ("fqi", "fqi_support", "bcq", "bear", "spibb")


def opened(dataset: Dataset, name: str, min_count: int = 1, **parameters: float) -> Ledger:
    return value_ledger(dataset, orl.train(dataset, name, **parameters), min_count)


def adds_up(ledger: Ledger) -> None:
    assert set(ledger.q_parts) == set(PARTS)
    total = sum(ledger.q_parts.values())
    assert (np.isnan(total) == np.isnan(ledger.q_values)).all()
    scale = max(1.0, np.nanmax(np.abs(ledger.q_values), initial=0.0))
    assert np.nanmax(np.abs(total - ledger.q_values), initial=0.0) <= 1e-9 * scale


# -- adding up ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_VALUES)
@pytest.mark.parametrize("seed", range(3))
def test_parts_add_up_to_the_value_of_every_learner(name: str, seed: int) -> None:
    for min_count in (1, 3):
        ledger = opened(holey(seed), name, min_count)
        adds_up(ledger)
        if name in OF_THEIR_POLICY:
            assert np.nanmax(np.abs(ledger.q_parts["rest"])) <= 1e-9


@few_examples
@given(
    random_rows(),
    st.sampled_from(["fqi", "fqi_support", "bcq", "cql", "iql"]),
    st.sampled_from([0.5, 0.9, 0.99]),
    st.sampled_from([-3.0, 0.0, 2.0]),
    st.integers(1, 3),
)
def test_parts_add_up_on_any_log(rows: list, name: str, discount: float, default_value: float, min_count: int) -> None:
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text", discount=discount))
    if not dataset.has_rewards:
        return
    model = orl.train(dataset, name, default_value=default_value)
    ledger = value_ledger(dataset, model, min_count)
    adds_up(ledger)
    assert sum(ledger.totals.values()) == pytest.approx(promised_return(dataset, model), abs=1e-9)
    shares = ledger.guess_shares
    assert (np.isnan(shares) == np.isnan(ledger.q_values)).all()
    assert ((shares[~np.isnan(shares)] >= 0) & (shares[~np.isnan(shares)] <= 1 + 1e-12)).all()
    assert (shares[~ledger.taught & ~np.isnan(shares)] == 1).all()


def test_what_was_seen_is_the_value_of_staying_inside() -> None:
    """An independent road to the first part: evaluate, on the log's process, the policy that the account follows."""
    dataset = holey(1)
    model = orl.train(dataset, "fqi", default_value=0.3)
    ledger = value_ledger(dataset, model)
    inside = supported_part(model.policy.probabilities, model.q_values, ledger.supported)
    mdp = dataset.empirical_mdp(np.ones_like(ledger.supported), 0.0)
    values = policy_values(mdp, np.ascontiguousarray(inside.T), dataset.discount)
    assert ledger.v_parts["seen"] == pytest.approx(values, abs=1e-10)


# -- on paper -------------------------------------------------------------------------------------------------


def test_a_guess_that_wins_is_booked_as_what_it_adds_to_the_best_supported_value() -> None:
    """State 0: a leads to state 1 and is worth 4/2 = 2; x was never seen and is guessed at 10."""
    dataset = by_hand()
    ledger = opened(dataset, "fqi", default_value=10.0)
    parts = {name: cell(dataset, table, "0", "x") for name, table in ledger.q_parts.items()}
    assert parts == {"seen": 0.0, "default": 10.0, "maxima": 0.0, "rest": 0.0}
    assert cell(dataset, ledger.q_parts["seen"], "0", "a") == 2.0
    assert ledger.totals == pytest.approx({"seen": 2.0, "default": 0.0, "maxima": 8.0, "rest": 0.0})
    assert ledger.guess_share == pytest.approx(0.8)
    assert ledger.sentence.startswith("80% of this value rests on pairs nobody ever saw. ")


def test_a_loss_in_one_task_does_not_hide_what_another_rests_on() -> None:
    """Half begin in u: its c was seen at -4, and x, guessed at 0, makes up for it; half begin in v, seen at 2 at once.

    At discount 1/2, u books -2 and +2, v books 2: a third is guessed. In the mean nothing that was seen is left.
    """
    rows = [*episode("u", ("u", "a", 0.0), ("p", "c", -4.0)), *episode("v", ("v", "b", 2.0))]
    offered = {"u": ["a"], "p": ["c", "x"], "v": ["b"]}
    rows = [{**row, "available_tools": offered[row["state_text"]]} for row in rows]
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text", discount=0.5))
    ledger = opened(dataset, "fqi", default_value=0.0)
    assert ledger.totals == pytest.approx({"seen": 0.0, "default": 0.0, "maxima": 1.0, "rest": 0.0})
    assert ledger.guess_share == pytest.approx(1 / 3)
    assert [cell(dataset, ledger.guess_shares, *pair) for pair in (("u", "a"), ("v", "b"))] == pytest.approx([0.5, 0.0])


@pytest.mark.parametrize("name", OF_THEIR_POLICY)
def test_the_share_in_the_sentence_is_a_mean_of_the_cells_where_episodes_begin(
    name: str, dataset_without_mul: Dataset
) -> None:
    model = orl.train(dataset_without_mul, name)
    ledger = value_ledger(dataset_without_mul, model)
    starts = np.flatnonzero(ledger.starts)
    chosen = model.policy.probabilities[starts].argmax(axis=1)
    booked = ledger.starts[starts] * np.add.reduce([np.abs(v[starts, chosen]) for v in ledger.q_parts.values()])
    assert ledger.guess_share == pytest.approx(
        np.average(ledger.guess_shares[starts, chosen], weights=booked), abs=1e-9
    )


@pytest.mark.parametrize("rare", [1, 2, FEW_ROWS - 1, FEW_ROWS])
def test_a_value_that_hangs_on_few_rows_says_so(rare: int) -> None:
    """All begin in s; b, which a few take and which pays, leads the policy, so all of its episodes hang on those rows."""
    often = [row for i in range(20) for row in episode(f"a{i}", ("s", "a", 0.0))]
    seldom = [row for i in range(rare) for row in episode(f"b{i}", ("s", "b", 0.0), ("t", "c", 1.0))]
    ledger = opened(orl.frame(make_log([*often, *seldom])), "fqi")
    if rare == FEW_ROWS:
        assert ledger.thin is None
        assert ledger.sentence == "0% of this value rests on pairs nobody ever saw."
        return
    assert ledger.thin.share == pytest.approx(1.0)
    assert (ledger.thin.state, ledger.thin.action, ledger.thin.n_rows) == ("s", "b", rare)
    assert f"the thinnest is b in s: {counted(rare, 'row')}." in ledger.sentence


def test_the_thinnest_step_is_that_of_the_ceiling_s_path_where_the_policy_is_the_ceiling_s() -> None:
    dataset = orl.frame(orl.collect("gridworld", "hasty", n_episodes=12, seed=0))
    path, thin = best_path(dataset, ceiling(dataset)), opened(dataset, "fqi_support").thin
    assert thin is not None
    assert thin.n_rows <= path.thinnest.n_rows


def test_thin_pairs_count_as_unsupported_from_min_count_on() -> None:
    """With 2 rows asked for, c (once, 4) isn't supported and d (twice, 1) is: state 1 gains 3, half of which reaches (0, a)."""
    dataset = by_hand()
    ledger = opened(dataset, "fqi", min_count=2, default_value=10.0)
    assert cell(dataset, ledger.q_parts["seen"], "0", "a") == pytest.approx(0.5)
    assert cell(dataset, ledger.q_parts["maxima"], "0", "a") == pytest.approx(1.5)
    assert ledger.totals == pytest.approx({"seen": 0.5, "default": 0.0, "maxima": 9.5, "rest": 0.0})
    assert "fewer than 2 times" in ledger.sentence


def test_a_guess_of_zero_counts_where_it_beats_what_was_seen(dataset_without_mul: Dataset) -> None:
    """The story's trap: the guess adds nothing by itself, and it carries the whole value of the mul tasks all the same."""
    ledger = opened(dataset_without_mul, "fqi", default_value=0.0)
    assert ledger.totals["default"] == 0
    assert ledger.totals["maxima"] > 0.3
    inside = opened(dataset_without_mul, "fqi_support")
    assert inside.guess_share == 0
    assert inside.totals["seen"] == pytest.approx(ledger.totals["seen"], abs=1e-9)


def test_the_penalty_of_a_careful_learner_is_the_rest() -> None:
    dataset = by_hand()
    plain, careful = opened(dataset, "cql", conservative_weight=0.0), opened(dataset, "cql", conservative_weight=1.0)
    assert np.nanmax(np.abs(plain.q_parts["rest"])) <= 1e-9
    assert cell(dataset, careful.q_parts["rest"], "0", "x") < -0.1
    assert cell(dataset, careful.q_parts["default"], "0", "x") == 0


def test_a_learner_without_a_default_has_guessed_all_the_same() -> None:
    dataset = by_hand()
    ledger = opened(dataset, "morel")
    assert cell(dataset, ledger.q_parts["default"], "0", "x") == pytest.approx(cell(dataset, ledger.q_values, "0", "x"))


# -- refusals and odd logs ------------------------------------------------------------------------------------


def test_what_cannot_be_opened_is_refused_in_a_sentence() -> None:
    dataset = by_hand()
    with pytest.raises(NotPossible, match="no values"):
        value_ledger(dataset, orl.train(dataset, "bc"))
    model = orl.train(dataset, "fqi")
    with pytest.raises(NotPossible, match="seeds disagree"):
        value_ledger(dataset, replace(model, weights={"layer": np.zeros(1)}))
    with pytest.raises(InvalidConfig, match="from 1 row on"):
        value_ledger(dataset, model, 0)


def test_a_loop_without_end_at_discount_one_is_refused() -> None:
    rows = [*episode("e", ("0", "a", 1.0), ("0", "a", 1.0), ("0", "b", 1.0), terminal=False, timeout=True)]
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text", discount=1.0))
    model = orl.train(dataset, "fqi", max_sweeps=50)
    with pytest.raises(NotPossible, match="discount below 1"):
        value_ledger(dataset, model)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_one_episode_and_a_constant_reward(reward: float) -> None:
    dataset = orl.frame(make_log(episode("e", ("0", "a", reward), ("1", "a", reward))))
    ledger = value_ledger(dataset, orl.train(dataset, "fqi"))
    adds_up(ledger)
    assert ledger.sentence.startswith("0%" if reward else "Every amount is 0")


def test_a_higher_bound_of_rows_says_what_it_counts(dataset_with_mul: Dataset) -> None:
    sentence = value_ledger(dataset_with_mul, orl.train(dataset_with_mul, "fqi"), 3001).sentence
    assert "their own rewards count as seen" in sentence
    assert "nobody ever saw." not in sentence


# -- leaving the support --------------------------------------------------------------------------------------


def test_leaving_is_exact_in_a_chain(tiny_worlds: None) -> None:
    """A log that only ever goes; a policy that stops with probability 1/2 leaves at t = 0, 1, 2 with 1/2, 1/4, 1/8."""
    log = orl.collect("chain", orl.TableBehavior(probabilities={str(i): {"go": 1.0} for i in range(3)}), n_episodes=5)
    dataset = orl.frame(log)
    policy = policy_of({str(i): {"go": 0.5, "stop": 0.5} for i in range(3)}, ("go", "stop"))
    model = replace(orl.train(dataset, "bc"), policy=policy)
    leaving = leaving_steps(dataset, model)
    assert leaving.exact
    assert leaving.steps.by_step == pytest.approx([0.5, 0.25, 0.125])
    assert leaving.steps.ever == pytest.approx(0.875)
    assert "87.5% of its episodes leave the support, half of those up to t = 0." in leaving.sentence
    assert leaving_steps(dataset, orl.train(dataset, "bc")).sentence == "Its episodes never leave the support."


def test_leaving_agrees_with_the_probability_of_the_event(dataset_without_mul: Dataset) -> None:
    """The naive learner multiplies on every mul task: a third of the episodes, all at t = 2."""
    model = orl.train(dataset_without_mul, "fqi")
    leaving = leaving_steps(dataset_without_mul, model)
    assert leaving.sentence == "33.3% of its episodes leave the support, all at t = 2."
    steps = leaving.steps
    assert steps.by_step[2] == pytest.approx(1 / 3)
    assert steps.ever == pytest.approx(1 / 3)
    assert steps.open == 0


def test_without_a_world_the_counts_of_the_log_stand_in() -> None:
    dataset = by_hand()
    leaving = leaving_steps(dataset, orl.train(dataset, "fqi", default_value=10.0))
    assert not leaving.exact
    assert list(leaving.steps.by_step) == [1.0]
    assert "as far as the log's counts can tell" in leaving.sentence


def test_what_always_happens_leaves_nothing_for_never() -> None:
    steps = FirstSteps(by_step=np.array([0.5, 0.5 + 1e-15]), open=0.0)
    assert f"{1 - steps.ever:.1%}" == "0.0%"


def test_what_goes_on_for_ever_is_named() -> None:
    dataset = holey(0)
    mdp = dataset.empirical_mdp(np.ones_like(dataset.valid_mask), 0.0)
    starts = np.full(dataset.n_states, 1 / dataset.n_states)
    stay = np.ascontiguousarray(dataset.behavior_probabilities.T)
    never = np.zeros(stay.shape, dtype=bool)
    steps = first_steps(mdp, starts, stay, never, max_steps=2)
    taken = list(visits_by_step(mdp, starts, stay, max_steps=3))
    assert steps.ever == 0
    assert steps.open == pytest.approx(taken[2].sum())


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ([("s", "c", 1.0)], "doesn't know: 'c'"),
        ([("s", "a", 1.0)], "other states or actions"),
        ([("s", "a", 1.0), ("t", "b", 1.0), ("u", "b", 1.0)], "other states or actions"),
    ],
)
def test_a_log_without_a_world_follows_its_own_policies_only(
    others: list[tuple[str, str, float]], sentence: str
) -> None:
    def framed(*steps: tuple[str, str, float]) -> Dataset:
        return orl.frame(make_log(episode("e", *steps)), orl.Framing(state="state_text"))

    own = framed(("s", "a", 1.0), ("t", "b", 1.0))
    assert leaving_steps(own, orl.train(own, "bc")).steps.ever == 0
    with pytest.raises(NotPossible, match=sentence):
        leaving_steps(own, orl.train(framed(*others), "bc"))
