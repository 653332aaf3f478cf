"""Learners: the contract over the registry, then each against an oracle that is computed in another way.

FQI is held against policy iteration with dense linear solves, CQL against FQI at weight 0 and its inner problem against
scipy, BC against counting by hand, the support constraint and the scaling of rewards as properties of random logs.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import optimize

import offrl_core as orl
from offrl_core.algorithms import ALGORITHMS, cql
from offrl_core.algorithms.cql import penalised_fit
from offrl_core.algorithms.ops import key_frame, masked_softmax
from offrl_core.arrays import FloatArray
from offrl_core.dataset import Dataset
from offrl_core.errors import InvalidConfig, NotPossible, UnknownName
from offrl_core.interfaces import KINDS, AlgorithmSpec, TrainedModel
from offrl_core.params import config_values, params_of
from offrl_core.training import run_id

from .helpers import (
    FEW_STEPS,
    NEURAL,
    covering_log,
    empirical_process,
    episode,
    exact_optimum,
    few_examples,
    make_log,
    random_rows,
)

SPECS = list(ALGORITHMS.values())
WITHOUT_VALUES = {"bc", "filtered_bc", "return_conditioned", "decision_transformer", "bc_neural"}
LOOKING_BACK = {"decision_transformer"}  # no table over states, so held to the contract in a file of its own
VALUE_LEARNERS = [name for name in ALGORITHMS if name not in WITHOUT_VALUES and name not in NEURAL]
# No other pair has a value or is picked.
INSIDE_THE_LOG = {"fqi_support", "bear", "iql", "awr", "kl_regularized", "spibb"}
by_name = pytest.mark.parametrize("name", ALGORITHMS)


@pytest.fixture(scope="module")
def small() -> Dataset:
    """200 episodes without mul: unseen pairs, several tasks, everything valid known."""
    return orl.frame(orl.collect("calculator", "logger_without_mul", n_episodes=200, seed=3))


@pytest.fixture(scope="module")
def covered() -> Dataset:
    """Every pair of a random process of 5 states and 3 actions."""
    return orl.frame(covering_log(seed=11))


def fit(name: str, dataset: Dataset, **parameters: Any) -> TrainedModel:
    return orl.train(dataset, name, seed=0, **FEW_STEPS.get(name, {}) | parameters)


def q_of(name: str, dataset: Dataset, **parameters: Any) -> FloatArray:
    q_values = fit(name, dataset, **parameters).q_values
    assert q_values is not None
    return q_values


# -- the contract, over the registry -------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_spec_says_everything_a_page_shows(spec: AlgorithmSpec) -> None:
    assert ALGORITHMS[spec.name] is spec
    for text in (spec.title, spec.summary, spec.equation, spec.source, spec.unit):
        assert text.strip()
    assert 0 < len(spec.short) <= 20
    assert spec.differs
    assert all(spec.differs)
    assert spec.metrics
    assert all(spec.metrics.values())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_learner_has_one_name_in_menus_and_charts(spec: AlgorithmSpec) -> None:
    """Whoever read the short name beside a curve finds it in the menu, behind the kind."""
    words = re.findall(r"[\w%]+", spec.short.casefold())
    assert set(words) <= set(re.findall(r"[\w%]+", spec.title.casefold()))
    assert spec.menu_title.casefold() == f"{spec.kind} · {spec.title}".casefold()
    assert (spec.kind == "network") == (spec.train_seeds is not None)


def test_the_registry_and_so_every_menu_goes_by_kind() -> None:
    kinds = [spec.kind for spec in ALGORITHMS.values()]
    assert kinds == sorted(kinds, key=KINDS.index)
    assert len({spec.menu_title for spec in ALGORITHMS.values()}) == len(ALGORITHMS)


@by_name
def test_a_model_and_its_policy_print_as_one_line(name: str, small: Dataset) -> None:
    """A notebook shows the last value of a cell: arrays of hundreds of lines say nothing there."""
    model = fit(name, small)
    for text, shape in ((repr(model.policy), True), (repr(model), model.q_values is not None)):
        assert "\n" not in text
        assert "array(" not in text
        assert len(text) < 400
        assert (f"{small.n_states:,} states x {small.n_actions} actions" in text) == shape
    assert repr(name) in repr(model)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_parameter_describes_itself_and_its_default_is_allowed(spec: AlgorithmSpec) -> None:
    config = spec.config_class()
    assert dataclasses.is_dataclass(config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, dataclasses.fields(config)[0].name, None)
    about = params_of(spec.config_class)
    assert not [field.caption for field in about.values() if field.unit and field.caption.lower().count(field.unit) > 1]
    for name, default in config_values(config).items():
        field = about[name]
        assert field.label
        assert field.help.endswith(".")
        if field.choices:
            assert default in dict(field.choices)
        else:
            assert field.low is not None
            assert field.high is not None
            assert field.step is not None
            assert field.low <= default <= field.high


def bad_values(spec: AlgorithmSpec) -> list[dict[str, Any]]:
    """Every way to get a parameter of a learner wrong."""
    bad: list[dict[str, Any]] = [{"no_such_parameter": 1}]
    for name, field in params_of(spec.config_class).items():
        if field.choices:
            bad += [{name: "no such choice"}, {name: 3}, {name: None}]
            continue
        assert field.low is not None
        assert field.high is not None
        bad += [{name: value} for value in (math.nan, math.inf, "1", None, True, field.low - 1, field.high + 1)]
        if isinstance(getattr(spec.config_class(), name), int):
            bad.append({name: field.low + 0.5})
    return bad


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_bad_parameters_are_refused_with_a_sentence(spec: AlgorithmSpec, small: Dataset) -> None:
    for values in bad_values(spec):
        with pytest.raises(InvalidConfig) as refusal:
            orl.train(small, spec.name, **values)
        sentence = str(refusal.value)
        assert spec.name in sentence
        assert next(iter(values)) in sentence
        assert sentence.endswith(".")


def test_whole_floats_from_links_count_as_integers(covered: Dataset) -> None:
    assert orl.train(covered, "fqi_support", min_count=2.0).config.min_count == 2


def test_an_unknown_learner_lists_the_known_ones(small: Dataset) -> None:
    with pytest.raises(UnknownName, match="Known: bc, fqi"):
        orl.train(small, "alphago")


@by_name
def test_it_reports_what_it_declared_and_its_steps_rise(name: str, small: Dataset) -> None:
    model = fit(name, small)
    assert model.history
    for progress in model.history:
        assert progress.metrics.keys() == ALGORITHMS[name].metrics.keys()
        assert all(isinstance(value, float) and math.isfinite(value) for value in progress.metrics.values())
        assert progress.step <= progress.total
        assert progress.q_values is None or progress.q_values.shape == (small.n_states, small.n_actions)
    steps = [progress.step for progress in model.history]
    assert steps == sorted(steps)
    assert (model.algorithm, model.seed) == (name, 0)


@by_name
def test_it_stops_within_one_yield(name: str, small: Dataset) -> None:
    training = orl.start_training(small, name)
    next(training)
    training.close()
    with pytest.raises(StopIteration):
        next(training)


def test_closing_reaches_the_learner_itself(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []

    def train(dataset: Dataset, config: Any, *, seed: int) -> Any:
        try:
            yield from ALGORITHMS["fqi"].train(dataset, config, seed=seed)
        finally:
            stopped.append(True)

    monkeypatch.setitem(ALGORITHMS, "watched", dataclasses.replace(ALGORITHMS["fqi"], name="watched", train=train))
    training = orl.start_training(small, "watched")
    next(training)
    assert not stopped
    training.close()
    assert stopped


def same(one: TrainedModel, other: TrainedModel) -> bool:
    """Bit for bit, history included."""
    frames = [[p.q_values for p in model.history if p.q_values is not None] for model in (one, other)]
    return (
        one.policy.digest() == other.policy.digest()
        and (one.q_values is other.q_values is None or np.array_equal(one.q_values, other.q_values, equal_nan=True))
        and [dict(p.metrics) for p in one.history] == [dict(p.metrics) for p in other.history]
        and all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*frames, strict=True))
    )


@by_name
def test_the_same_seed_gives_the_same_model_also_when_two_train_at_once(name: str, small: Dataset) -> None:
    alone = fit(name, small)
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda _: fit(name, small), range(2)))
    assert same(alone, together[0])
    assert same(alone, together[1])


@by_name
def test_it_leaves_the_global_random_state_alone(name: str, small: Dataset) -> None:
    before = np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002 - the state is what is watched
    fit(name, small)
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # noqa: NPY002


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in LOOKING_BACK])
def test_policy_and_values_keep_to_valid_actions(name: str, small: Dataset) -> None:
    model = fit(name, small)
    probabilities = model.policy.probabilities
    assert model.policy.states == small.states
    assert model.policy.actions == small.actions
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(small.n_states))
    assert (probabilities[~small.valid_mask] == 0).all()
    if model.q_values is None:
        assert name in WITHOUT_VALUES
        return
    has_value = ~np.isnan(model.q_values)
    assert has_value[probabilities > 0].all(), "what may be picked has a value"
    if name == "bcq":  # by default, frequent ones only
        assert not (has_value & ~small.support_mask()).any()
    else:
        assert (has_value == (small.support_mask() if name in INSIDE_THE_LOG else small.valid_mask)).all()


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("bc", "bc_neural")])
def test_without_rewards_nothing_but_imitation_is_possible(name: str) -> None:
    dataset = orl.frame(make_log(episode("e", ("s", "a", None), ("s", "b", None))))
    with pytest.raises(NotPossible, match="no step of this log has a known reward"):
        orl.train(dataset, name)
    assert fit("bc", dataset).policy.probabilities.sum() == 1


@by_name
def test_a_run_is_named_by_all_that_can_change_it(name: str, small: Dataset, covered: Dataset) -> None:
    config = ALGORITHMS[name].config_class()
    ids = {
        run_id(small, name, config, 0),
        run_id(small, name, config, 1),
        run_id(covered, name, config, 0),
        run_id(orl.frame(small.log, edits=[orl.KeepFraction(0.5)]), name, config, 0),
        run_id(orl.frame(small.log, orl.Framing(state="task")), name, config, 0),
    }
    assert len(ids) == 5
    assert run_id(small, name, config, 0) in ids


def test_key_frames_are_few_and_start_dense() -> None:
    kept = [step for step in range(1, 100_001) if key_frame(step)]
    assert kept[:20] == list(range(1, 21))
    assert len(kept) <= 60


# -- fitted Q iteration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("discount", [0.0, 0.9, 0.99])
def test_fqi_on_full_coverage_is_exact_q_star_of_the_empirical_process(seed: int, discount: float) -> None:
    dataset = orl.frame(covering_log(seed), orl.Framing(state="state_text", discount=discount))
    by_hand = exact_optimum(*empirical_process(dataset), discount)
    model = fit("fqi", dataset)
    assert model.converged
    # Sweeps stop at a change of 1e-12 of the largest value, so that is the error before the geometric series.
    error = 1e-12 * max(1.0, np.abs(by_hand).max()) / (1 - discount)
    assert model.q_values == pytest.approx(by_hand, rel=0, abs=error)
    assert error < 1e-8
    assert (model.policy.probabilities.argmax(axis=1) == by_hand.argmax(axis=1)).all()


def test_row_by_row_fqi_goes_where_the_exact_solver_stands() -> None:
    """On a deterministic process the constant step leaves no noise."""
    rows = [row for i in range(3) for row in episode(f"a{i}", ("0", "go", -0.1), ("1", "go", -0.1), ("2", "go", 1.0))]
    for state in "012":
        rows += episode(f"stop {state}", (state, "stop", 0.0))
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text", discount=0.5))
    assert q_of("fqi", dataset) == pytest.approx(np.array([[0.1, 0.0], [0.4, 0.0], [1.0, 0.0]]), abs=1e-12)
    assert q_of("fqi_sampled", dataset, n_sweeps=200) == pytest.approx(q_of("fqi", dataset), abs=1e-9)


@pytest.mark.parametrize("name", ["fqi", "fqi_sampled"])
def test_a_high_default_only_tempts_where_an_action_is_valid(name: str) -> None:
    """At s2 only "b" is valid and worth 1, so a guess of 50 for the others mustn't reach s1: 1/2 * 1."""
    rows = episode("e", ("s1", "a", 0.0), ("s2", "b", 1.0))
    rows[0]["available_tools"], rows[1]["available_tools"] = ["a"], ["b"]
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text", discount=0.5))
    q_values = q_of(name, dataset, default_value=50.0, **({"n_sweeps": 200} if name == "fqi_sampled" else {}))
    assert q_values == pytest.approx(np.array([[0.5, np.nan], [np.nan, 1.0]]), nan_ok=True, abs=1e-9)


def test_the_first_pass_of_the_published_procedure_by_hand() -> None:
    """Two rows, step 1/4: Q(1) = 1/4 * 1 comes after Q(0) = 1/4 * (0.4 + 1/2 * 0); the second pass sees 1/4."""
    dataset = orl.frame(
        make_log(episode("e", ("0", "go", 0.4), ("1", "go", 1.0))),
        orl.Framing(state="state_text", discount=0.5),
    )
    assert q_of("fqi_sampled", dataset, n_sweeps=1).ravel() == pytest.approx([0.1, 0.25])
    second = [0.1 + 0.25 * (0.4 + 0.5 * 0.25 - 0.1), 0.25 + 0.25 * 0.75]
    assert q_of("fqi_sampled", dataset, n_sweeps=2).ravel() == pytest.approx(second)


@pytest.mark.parametrize("name", VALUE_LEARNERS)
def test_never_seen_pairs_keep_the_default_unless_penalised(name: str, small: Dataset) -> None:
    unseen = small.valid_mask & ~small.support_mask()
    assert unseen.sum() == 3
    if name == "morel":  # a never-seen pair leads to the halt, whatever anyone guesses
        assert q_of(name, small)[unseen] == pytest.approx(-2.0 / (1 - 0.99)), "rewards lie between -1.02 and 0.98"
        return
    values = q_of(name, small, default_value=0.25)[unseen]
    if name == "cql":
        assert (values < 0.25).all()
    elif name in INSIDE_THE_LOG | {"bcq"}:
        assert np.isnan(values).all()
    elif name in ("pessimistic_vi", "mopo"):
        assert values == pytest.approx(0.25 - 2.0), "the whole span of the rewards is taken off"
    else:
        assert values == pytest.approx(0.25)


@pytest.mark.parametrize("name", ["fqi", "fqi_support", "cql"])
def test_on_full_coverage_the_default_value_does_not_matter(name: str, covered: Dataset) -> None:
    assert q_of(name, covered, default_value=-1000) == pytest.approx(q_of(name, covered, default_value=1000), abs=1e-7)


@pytest.mark.parametrize("name", ["fqi", "fqi_support", "fqi_sampled"])
def test_values_scale_with_rewards(name: str, small: Dataset) -> None:
    """Times 8: a power of two, so that not even rounding differs."""
    scaled = orl.frame(small.log, orl.Framing(state="state_text", reward="reward * 8"))
    q_values, eightfold = (q_of(name, d, default_value=-0.5 * c) for d, c in ((small, 1), (scaled, 8)))
    assert eightfold == pytest.approx(8 * q_values, nan_ok=True, abs=1e-9)


@few_examples
@given(random_rows())
def test_values_scale_with_rewards_on_any_log(rows: list[dict[str, Any]]) -> None:
    log = make_log(rows)
    plain, scaled = (
        orl.frame(log, orl.Framing(state="state_text", reward=f"reward * {c}", discount=0.9)) for c in (1, 4)
    )
    assume(plain.has_rewards)
    for name in ("fqi", "fqi_support"):
        expected = 4 * q_of(name, plain, default_value=-0.25)
        assert q_of(name, scaled, default_value=-1.0) == pytest.approx(expected, nan_ok=True, abs=1e-9)


def test_the_maximum_over_all_actions_believes_in_invalid_ones(small: Dataset) -> None:
    """At "x known" only lookup_y is valid; with a high default the learner without the mask runs elsewhere."""
    free = fit("fqi", small, maximum="all", default_value=5.0)
    assert free.q_values is not None
    assert not np.isnan(free.q_values).any()
    chosen = free.policy.probabilities.argmax(axis=1)
    assert (~small.valid_mask[np.arange(small.n_states), chosen]).all()


def test_a_bound_of_sweeps_is_reported_as_not_converged(covered: Dataset) -> None:
    assert not fit("fqi", covered, max_sweeps=3).converged
    assert not fit("fqi_support", covered, max_sweeps=3).converged
    assert not fit("cql", covered, max_iterations=3).converged
    assert all(fit(name, covered).converged for name in ("fqi", "fqi_support", "cql"))


# -- support constraint ---------------------------------------------------------------------------------------


@few_examples
@given(random_rows(unknown_rewards=False), st.integers(1, 3))
def test_it_never_picks_an_unsupported_action_where_a_supported_one_exists(
    rows: list[dict[str, Any]], min_count: int
) -> None:
    dataset = orl.frame(make_log(rows))
    assume(dataset.has_rewards)
    model = fit("fqi_support", dataset, min_count=min_count, default_value=100.0)
    supported = dataset.visitation_counts >= min_count
    picked = model.policy.probabilities > 0
    helped = supported.any(axis=1)
    assert not (picked & ~supported)[helped].any()
    uniform = dataset.valid_mask / dataset.valid_mask.sum(axis=1, keepdims=True)
    assert model.policy.probabilities[~helped] == pytest.approx(uniform[~helped])


def test_on_full_coverage_the_constraint_does_not_bind(covered: Dataset) -> None:
    assert q_of("fqi_support", covered, min_count=1) == pytest.approx(q_of("fqi", covered), abs=1e-12)


def test_a_higher_bar_can_only_lower_the_values(covered: Dataset) -> None:
    """Fewer actions compete for the maximum; compared where both bars allow the pair."""
    free, strict = (q_of("fqi_support", covered, min_count=n, default_value=-100.0) for n in (1, 5))
    both = ~np.isnan(free) & ~np.isnan(strict)
    assert both.any()
    assert (strict <= free + 1e-12)[both].all()


# -- behavior cloning -----------------------------------------------------------------------------------------

IMITATED = [
    *episode("e1", ("s", "a", 0.0), ("s", "a", 0.0), ("s", "b", 0.0)),
    *episode("e2", ("s", "b", 0.0), ("s", "a", 0.0), ("lonely", "c", 0.0)),
]
OFFERED = [{**row, "available_tools": ["a", "b", "c"] if row["state_text"] == "s" else ["c"]} for row in IMITATED]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [1, 0, 0]),
        ({"imitate": "frequencies"}, [3 / 5, 2 / 5, 0]),
        ({"imitate": "frequencies", "smoothing": 1.0}, [4 / 8, 3 / 8, 1 / 8]),
        ({"imitate": "majority", "smoothing": 50.0}, [1, 0, 0]),
    ],
)
def test_cloning_by_hand(parameters: dict[str, Any], expected: list[float]) -> None:
    dataset = orl.frame(make_log(OFFERED))
    table = fit("bc", dataset, **parameters).policy.probabilities
    assert table[dataset.states.index("s")] == pytest.approx(expected)
    assert table[dataset.states.index("lonely")] == pytest.approx([0, 0, 1]), "smoothing stays on valid actions"


@pytest.mark.parametrize("imitate", ["majority", "frequencies"])
def test_a_state_that_lost_its_rows_is_uniform_over_valid_actions(imitate: str) -> None:
    """The state is still known, as what followed another one."""
    rows = episode("e", ("s", "a", 0.0), ("after", "b", 0.0), available_tools=["a", "b"])
    edit = orl.DropAction("b", how="transitions")
    dataset = orl.frame(make_log([*rows, *episode("f", ("after", "c", 0.0), available_tools=["c"])]), edits=[edit])
    dataset = orl.frame(dataset.log, edits=[edit, orl.DropAction("c", how="transitions")])
    table = fit("bc", dataset, imitate=imitate).policy.probabilities
    assert dataset.states == ("after", "s")
    assert dict(zip(dataset.actions, table[0], strict=True)) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})


def test_agreement_is_the_share_of_the_log_it_repeats() -> None:
    """The majority repeats 3 of 5 choices at s and the only one at lonely; the mean is over states."""
    (progress,) = fit("bc", orl.frame(make_log(OFFERED))).history
    assert progress.metrics["agreement"] == pytest.approx((3 / 5 + 1) / 2)


# -- conservative Q-learning ----------------------------------------------------------------------------------


@pytest.mark.parametrize("default_value", [-2.0, 0.0, 1.0])
def test_without_penalty_it_is_fqi(default_value: float, small: Dataset, covered: Dataset) -> None:
    for dataset in (small, covered):
        plain = q_of("fqi", dataset, default_value=default_value)
        careful = q_of("cql", dataset, conservative_weight=0, default_value=default_value)
        assert careful == pytest.approx(plain, nan_ok=True, abs=1e-9)


@few_examples
@given(random_rows(), st.sampled_from([-1.0, 0.0, 0.5]))
def test_without_penalty_it_is_fqi_on_any_log(rows: list[dict[str, Any]], default_value: float) -> None:
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text", discount=0.9))
    assume(dataset.has_rewards)
    plain = q_of("fqi", dataset, default_value=default_value)
    careful = q_of("cql", dataset, conservative_weight=0, default_value=default_value)
    assert careful == pytest.approx(plain, nan_ok=True, abs=1e-9)


def test_more_caution_lowers_what_the_log_never_shows(small: Dataset) -> None:
    unseen = small.valid_mask & ~small.support_mask()
    values = [q_of("cql", small, conservative_weight=weight)[unseen] for weight in (0, 0.1, 0.5, 1, 2, 5, 20)]
    assert (np.diff(values, axis=0) < 0).all()
    assert values[0] == pytest.approx(0)


@pytest.mark.parametrize("weight", [0.0, 0.3, 3.0])
def test_the_outer_iteration_contracts_by_the_discount(weight: float) -> None:
    dataset = orl.frame(covering_log(seed=5), orl.Framing(state="state_text", discount=0.9))
    changes = np.array([p.metrics["largest_change"] for p in fit("cql", dataset, conservative_weight=weight).history])
    changes = changes[changes > 1e-10]
    assert len(changes) > 20
    assert (changes[1:] <= 0.9 * changes[:-1] + 1e-11).all()


def test_the_reported_penalty_is_that_of_the_reported_values(small: Dataset) -> None:
    model = fit("cql", small, conservative_weight=0.5)
    assert model.q_values is not None
    gaps = [
        np.log(np.exp(row[~np.isnan(row)]).sum()) - np.nansum(small.behavior_probabilities[s] * row)
        for s, row in enumerate(model.q_values)
    ]
    assert model.history[-1].metrics["penalty"] == pytest.approx(np.mean(gaps))


FitProblem = tuple[FloatArray, FloatArray, FloatArray, np.ndarray, float]


@st.composite
def fit_problems(draw: st.DrawFn) -> FitProblem:
    """Targets, weights, behavior, valid mask and penalty weight of 1 to 3 states with 2 to 4 actions."""
    shape = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    valid = rng.random(shape) < 0.8
    valid[np.arange(shape[0]), rng.integers(shape[1], size=shape[0])] = True
    counts = np.where(valid, rng.integers(0, 4, size=shape), 0)
    rows = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    weights = np.where(counts > 0, counts, draw(st.sampled_from([0.05, 1.0]))) / rows
    targets = np.where(valid, rng.normal(scale=draw(st.sampled_from([0.5, 5.0, 50.0])), size=shape), 0.0)
    return targets, weights, counts / rows, valid, draw(st.sampled_from([0.0, 0.05, 1.0, 10.0]))


def solved(problem: FitProblem) -> FloatArray:
    *tables, alpha = problem
    targets, weights, behavior, valid = (table.T for table in tables)
    return penalised_fit(targets, weights, behavior, valid, alpha, start=np.zeros_like(targets)).T


@settings(max_examples=40)
@given(fit_problems())
def test_the_inner_problem_against_scipy(problem: FitProblem) -> None:
    found = solved(problem)
    targets, weights, behavior, valid, alpha = problem
    for s in range(len(targets)):
        if not behavior[s].any():
            assert found[s] == pytest.approx(targets[s]), "nothing to compare with: the targets stay"
            continue
        mask = valid[s]
        y, w, b = targets[s][mask], weights[s][mask], behavior[s][mask]

        def loss(q: FloatArray, y: FloatArray = y, w: FloatArray = w, b: FloatArray = b) -> float:
            gap = np.logaddexp.reduce(q) - b @ q
            return float(w @ (q - y) ** 2 / 2 + alpha * gap)

        start = y - alpha * (1 / len(y) - b)
        best = optimize.minimize(loss, start, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
        assert loss(found[s][mask]) <= best.fun + 1e-9 * (1 + abs(best.fun))
        assert found[s][mask] == pytest.approx(best.x, abs=2e-3 * (1 + np.abs(y).max()))
        p = np.exp(found[s][mask] - found[s][mask].max())
        p /= p.sum()
        # The problem is strictly convex, so a gradient of zero says the rest.
        assert w * (found[s][mask] - y) + alpha * (p - b) == pytest.approx(np.zeros(len(y)), abs=1e-8 * (1 + alpha))


@settings(max_examples=60)
@given(fit_problems(), st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, 20.0]))
def test_the_minimiser_moves_no_further_than_its_targets(problem: FitProblem, seed: int, scale: float) -> None:
    targets, *rest = problem
    moved = targets + np.where(problem[3], np.random.default_rng(seed).normal(scale=scale, size=targets.shape), 0.0)
    step = np.abs(solved((moved, *rest)) - solved(problem)).max()  # type: ignore[arg-type]
    assert step <= np.abs(moved - targets).max() * (1 + 1e-9) + 1e-8


@settings(max_examples=40)
@given(fit_problems())
def test_a_larger_weight_closes_the_penalised_gap(problem: FitProblem) -> None:
    """For any problem of the form fit + weight * gap, the gap at the minimum falls as the weight rises."""
    *rest, behavior, valid, _ = problem
    logged = behavior.any(axis=1)

    def gap(alpha: float) -> FloatArray:
        q_values = solved((*rest, behavior, valid, alpha))  # type: ignore[arg-type]
        return (masked_softmax(q_values.T, valid.T)[1] - (behavior * q_values).sum(axis=1))[logged]

    gaps = [gap(alpha) for alpha in (0.0, 0.1, 1.0, 10.0)]
    for looser, tighter in pairwise(gaps):
        assert (tighter <= looser + 1e-8).all()


def test_caution_stays_inside_the_log_where_the_guess_would_not(dataset_without_mul: Dataset) -> None:
    """The default of 0 beats what the log shows on mul tasks, about -1: naive FQI takes it, CQL with its default doesn't."""
    choice = dataset_without_mul.states.index("mul: x, y known")
    assert fit("fqi", dataset_without_mul).policy.greedy_actions()[choice] == "mul"
    assert fit("cql", dataset_without_mul).policy.greedy_actions()[choice] in ("add", "sub")
    assert cql.CqlConfig().conservative_weight == 1.0
