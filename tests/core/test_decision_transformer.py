"""The Decision Transformer: its masks, its two forward passes, its bookkeeping, and what it gets for what it is asked."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.algorithms import decision_transformer
from offrl_core.algorithms.decision_transformer import DecisionTransformerConfig
from offrl_core.arrays import IntArray
from offrl_core.dataset import Dataset
from offrl_core.errors import InvalidConfig, NotPossible
from offrl_core.evaluation.asked_return import dial_of
from offrl_core.evaluation.comparison import compare_estimators
from offrl_core.evaluation.diagnostics import state_table
from offrl_core.evaluation.rollout import Rollout
from offrl_core.framing import default_framing
from offrl_core.interfaces import TrainedModel
from offrl_core.sequence_policy import Past, SequencePolicy, action_logits

from .helpers import Row, episode, few_examples, make_log, random_rows
from .test_jobs import trained_in_slices
from .test_runs import same_run

torch = pytest.importorskip("torch")
from offrl_core.algorithms.neural_transformer import (  # noqa: E402 - only where torch is
    Sizes,
    Trainable,
    Windows,
    action_losses,
    all_action_logits,
)

ROOT = Path(__file__).resolve().parents[2]
LENGTH, BATCH, N_STATES, N_ACTIONS, HEADS = 5, 3, 7, 4, 2
QUICK = {"n_steps": 100, "n_heads": 2, "batch_size": 32}
FLOAT_ERROR = 2e-5


def fit(dataset: Dataset, **parameters: Any) -> TrainedModel:
    return orl.train(dataset, "decision_transformer", seed=0, **QUICK | parameters)


def policy_of(model: TrainedModel) -> SequencePolicy:
    assert isinstance(model.policy, SequencePolicy)
    return model.policy


@cache
def trained() -> SequencePolicy:
    """On the calculator's log with mul."""
    return policy_of(fit(orl.frame(orl.collect("calculator", "logger", n_episodes=3000, seed=42))))


def net(n_layers: int = 2, seed: int = 0) -> Trainable:
    return Trainable(Sizes(N_STATES, N_ACTIONS, 9, 8, n_layers), torch.Generator().manual_seed(seed))


def loud(trainable: Trainable) -> Trainable:
    """As drawn at first, a network hardly tells its inputs apart; larger weights do."""
    with torch.no_grad():
        for name, weight in trainable.named.items():
            if "norm" not in name:
                weight.normal_(0.0, 0.7, generator=torch.Generator().manual_seed(len(name)))
    return trainable


def windows(seed: int, length: int = LENGTH) -> Windows:
    rng = np.random.default_rng(seed)
    shape = (BATCH, length)
    actions = torch.from_numpy(rng.integers(N_ACTIONS + 1, size=shape))
    return Windows(
        returns=torch.from_numpy(rng.normal(size=shape)).float(),
        times=torch.arange(length).expand(shape),
        states=torch.from_numpy(rng.integers(N_STATES + 1, size=shape)),
        actions=actions,
        taken=actions.clamp(max=N_ACTIONS - 1),
        real=torch.arange(length) < torch.from_numpy(rng.integers(1, length + 1, size=BATCH))[:, None],
    )


def logits_of(trainable: Trainable, given: Windows) -> Any:
    with torch.no_grad():
        return all_action_logits(trainable.named, HEADS, given).numpy()


# -- what a token may see ----------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), step=st.integers(0, LENGTH - 1), n_layers=st.integers(1, 3))
def test_nothing_that_comes_later_changes_what_is_done_now(seed: int, step: int, n_layers: int) -> None:
    """The action at a step is later than the state it is chosen in, so it counts as future, too."""
    trainable, before, others = loud(net(n_layers)), windows(seed), windows(seed + 1)
    future = torch.arange(LENGTH) > step
    after = before._replace(
        returns=torch.where(future, others.returns, before.returns),
        states=torch.where(future, others.states, before.states),
        actions=torch.where(torch.arange(LENGTH) >= step, others.actions, before.actions),
    )
    one, other = logits_of(trainable, before), logits_of(trainable, after)
    assert one[:, : step + 1] == pytest.approx(other[:, : step + 1], abs=FLOAT_ERROR)


@pytest.mark.parametrize("what", ["returns", "states", "actions"])
def test_everything_that_came_before_can_change_it(what: str) -> None:
    trainable, before = loud(net()), windows(1)
    column = getattr(before, what)
    first = column.clone()
    first[:, 0] = (first[:, 0] + 1) % 4
    after = before._replace(**{what: first})
    assert np.abs(logits_of(trainable, before) - logits_of(trainable, after))[:, -1].max() > 1e-3


@given(seed=st.integers(0, 10_000))
@settings(max_examples=15)
def test_a_trimmed_batch_is_a_padded_one(seed: int) -> None:
    """Padding stands behind the steps; neither what is done nor the loss knows of it."""
    trainable, short, tail = loud(net()), windows(seed), windows(seed + 1, 4)
    padded = Windows(*(torch.cat(columns, dim=1) for columns in zip(short, tail, strict=True)))
    padded = padded._replace(times=torch.arange(9).expand(BATCH, 9), real=padded.real & (torch.arange(9) < LENGTH))
    assert logits_of(trainable, padded)[:, :LENGTH] == pytest.approx(logits_of(trainable, short), abs=FLOAT_ERROR)
    allowed = torch.ones((N_STATES + 1, N_ACTIONS), dtype=torch.bool)
    (losses, right), (others, also_right) = (
        action_losses(trainable.named, HEADS, given, allowed) for given in (short, padded)
    )
    assert len(losses) == int(short.real.sum())
    assert losses.detach().numpy() == pytest.approx(others.detach().numpy(), abs=FLOAT_ERROR)
    assert bool((right == also_right).all())


def test_only_allowed_actions_compete() -> None:
    trainable, given = loud(net()), windows(3)
    allowed = torch.zeros((N_STATES + 1, N_ACTIONS), dtype=torch.bool)
    allowed[:, 2] = True
    losses, right = action_losses(
        trainable.named, HEADS, given._replace(taken=torch.full_like(given.taken, 2)), allowed
    )
    assert losses.detach().numpy() == pytest.approx(0, abs=FLOAT_ERROR)
    assert bool(right.all())


# -- torch and NumPy ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_numpy_plays_what_torch_trained(n_layers: int) -> None:
    trainable, given = loud(net(n_layers)), windows(7)
    weights = {name: weight.detach().numpy() for name, weight in trainable.named.items()}
    mean, spread = 0.4, 2.5
    weights["return/scale"] = np.array([mean, spread])
    expected = logits_of(trainable, given)
    for length in range(1, LENGTH + 1):
        states, times = (column.numpy()[:, :length] for column in (given.states, given.times))
        returns = given.returns.numpy()[:, :length].astype(np.float64) * spread + mean
        found = action_logits(weights, HEADS, returns, times, states, given.actions.numpy()[:, : length - 1])
        assert found == pytest.approx(expected[:, length - 1], abs=1e-4)


def test_pasts_of_any_lengths_are_answered_together(dataset_with_mul: Dataset) -> None:
    policy = trained()
    start = policy.begin("mul: start")
    later = policy.after(start, "lookup_x", -0.02, "mul: x known")
    valid = [("lookup_x",), ("lookup_y",)]
    assert policy.choices([later, start, later], [valid[1], valid[0], valid[1]]) == [
        *policy.choices([later], valid[1:]),
        *policy.choices([start], valid[:1]),
        *policy.choices([later], valid[1:]),
    ]


# -- what is remembered ------------------------------------------------------------------------------------------


def test_what_is_still_missing_grows_by_the_discount() -> None:
    policy = trained().asking(0.5)
    past = policy.after(policy.begin("mul: start"), "lookup_x", -0.02, "mul: x known")
    assert past.returns == pytest.approx((0.5, 0.52 / 0.99))
    assert past.time == 0
    assert [policy.states[s] for s in past.states] == ["mul: start", "mul: x known"]
    assert [policy.actions[a] for a in past.actions] == ["lookup_x"]


def test_the_context_moves_on_and_time_with_it() -> None:
    policy = orl.train(chain_log(), "decision_transformer", n_steps=1, context=2).policy
    assert isinstance(policy, SequencePolicy)
    past: Past = policy.begin("0")
    for step in range(1, 5):
        past = policy.after(past, "on", 1.0, str(step))
    assert past.time == 3
    assert [policy.states[s] for s in past.states] == ["3", "4"]
    assert len(past.returns) == 2
    assert len(past.actions) == 1
    assert policy.choices([past], [("on",)]) == [{"on": 1.0}]


def test_at_a_discount_of_0_every_step_is_asked_for_the_same() -> None:
    rows = chain_log().log
    dataset = orl.frame(rows, orl.Framing(state="state_text", discount=0.0))
    policy = policy_of(fit(dataset, n_steps=1))
    past = policy.after(policy.begin("0"), "on", 1.0, "1")
    assert past.returns == (1.0, 1.0)


@pytest.mark.parametrize("asked", [float("nan"), float("inf"), -float("inf"), np.float64("nan")])
def test_a_return_that_is_no_number_is_not_asked_for(asked: float) -> None:
    with pytest.raises(InvalidConfig, match=r"return asked for is .*finite number"):
        trained().asking(asked)


@pytest.mark.parametrize("asked", [1e40, -1e40, 1e308, -1e308, 0.0])
@pytest.mark.parametrize("discount", [1.0, 0.99, 0.3, 0.01, 1e-9])
def test_the_network_sees_finite_numbers_whatever_is_asked_for_and_left_open(asked: float, discount: float) -> None:
    policy = replace(trained().asking(asked), discount=discount, greedy=False)
    past = policy.begin(policy.states[0])
    for step in range(200):
        (choice,) = policy.choices([past], [policy.actions])
        assert sum(choice.values()) == pytest.approx(1.0)
        assert np.isfinite(past.returns).all()
        past = policy.after(past, policy.actions[0], np.float64(-1.0), policy.states[step % len(policy.states)])


@pytest.mark.parametrize("discount", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("imitate", ["frequencies", "majority"])
def test_long_episodes_at_a_small_discount_are_played_to_the_end(discount: float, imitate: str) -> None:
    log = orl.collect("gridworld", n_episodes=50, seed=0)
    dataset = orl.frame(log, replace(default_framing(log), discount=discount))
    policy = policy_of(orl.train(dataset, "decision_transformer", n_steps=5, imitate=imitate))
    rollout = orl.roll_out(policy, "gridworld", n_episodes=20, max_steps=100)
    assert np.isfinite(rollout.returns).all()


def chain_log(n: int = 6) -> Dataset:
    """Two episodes of n steps in as many states, each with reward 1, one action."""
    rows = [row for e in "ab" for row in episode(e, *((str(s), "on", 1.0) for s in range(n)))]
    return orl.frame(make_log(rows), orl.Framing(state="state_text"))


def test_where_the_log_never_was_it_is_uniform_over_the_valid_actions() -> None:
    policy = trained()
    past = policy.after(policy.begin("mul: start"), "dance", -1.0, "elsewhere")
    assert not policy.knows("elsewhere")
    assert policy.choices([past], [("a", "b")]) == [{"a": 0.5, "b": 0.5}]
    back = policy.after(past, "a", 0.0, "mul: x, y known")
    (choice,) = policy.choices([back], [("add",)])
    assert set(choice) <= {"add", "sub", "mul"}
    assert sum(choice.values()) == pytest.approx(1)


# -- the log as sequences ----------------------------------------------------------------------------------------


@given(rows=random_rows())
@few_examples
def test_stretches_are_what_the_log_shows_in_its_order(rows: list[Row]) -> None:
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text", discount=0.9))
    known = ~np.isnan(dataset.returns_to_go)
    if not known.any():
        with pytest.raises(NotPossible):
            decision_transformer._sequences(dataset)
        return
    found = decision_transformer._sequences(dataset)
    assert found.lengths.sum() == known.sum() == len(found.returns)
    transitions = dataset.transitions()
    rewards = transitions.rewards[dataset.time_order][known[dataset.time_order]]
    following = transitions.next_observations[dataset.time_order][known[dataset.time_order]]
    for begin, length in zip(found.begins, found.lengths, strict=True):
        for i in range(begin, begin + length - 1):
            assert found.states[i + 1] == following[i]
            assert found.times[i + 1] == found.times[i] + 1
            assert found.returns[i] == pytest.approx(rewards[i] + 0.9 * found.returns[i + 1])
        assert following[begin + length - 1] < 0
        assert found.returns[begin + length - 1] == pytest.approx(rewards[begin + length - 1])


def test_windows_are_stretches_of_episodes_and_whole_where_they_fit() -> None:
    rows = [row for e in range(8) for row in episode(f"{e}", *((f"{e}.{t}", "go", 1.0) for t in range(e + 1)))]
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text"))
    sequences = decision_transformer._sequences(dataset)
    batches = decision_transformer._Batches(sequences, (dataset.n_states, 1), context=4)
    drawn = batches.draw(400, torch.Generator().manual_seed(0))
    lengths = drawn.real.sum(dim=1).numpy()
    first, last, times = set(), set(), drawn.times.numpy()
    for i, length in enumerate(lengths):
        episode_length = 1 + int(np.flatnonzero(np.cumsum(sequences.lengths) > place_of(sequences, drawn, i))[0])
        assert length == min(4, episode_length)
        assert (np.diff(times[i, :length]) == 1).all()
        first.add((episode_length, int(times[i, 0])))
        last.add((episode_length, int(times[i, length - 1])))
    assert first == {(n, t) for n in range(1, 9) for t in range(max(1, n - 3))}
    assert last == {(n, t + min(n, 4) - 1) for n, t in first}


def place_of(sequences: Any, drawn: Windows, i: int) -> int:
    """Place in the log of a window's first step: states are all different there, hidden ones apart."""
    states: IntArray = drawn.states[i][drawn.real[i]].numpy()
    shown = int(np.flatnonzero(states < len(sequences.states))[0])
    return int(np.flatnonzero(sequences.states == states[shown])[0]) - shown


@pytest.mark.parametrize("returns", [[1e200, -1e200], [0.3, 0.3, 0.3], [0.0], [5e-324, 0.0]])
def test_returns_of_any_size_are_scaled_to_numbers(returns: list[float]) -> None:
    mean, spread = decision_transformer._scale_of(np.array(returns))
    assert np.isfinite((np.array(returns) - mean) / spread).all()
    assert np.abs((np.array(returns) - mean) / spread).max() <= 2


# -- training ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> Dataset:
    return orl.frame(orl.collect("calculator", "logger", n_episodes=60, seed=3))


def test_a_batch_in_parts_is_resumed_bit_for_bit(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_transformer, "PRODUCTS_BETWEEN_SIGNS_OF_LIFE", 1e5)
    parameters = {"n_steps": 3, "n_heads": 1, "head_width": 16, "batch_size": 12}
    whole = orl.train(small, "decision_transformer", seed=5, **parameters)
    assert len(whole.history) >= 9, "several signs of life a step"
    assert [p.step for p in whole.history] == sorted(p.step for p in whole.history)
    assert same_run(trained_in_slices("decision_transformer", small, 5, parameters), whole)


def test_parts_add_up_to_the_batch(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = fit(small, n_steps=5)
    monkeypatch.setattr(decision_transformer, "PRODUCTS_BETWEEN_SIGNS_OF_LIFE", 2e6)
    in_parts = fit(small, n_steps=5)
    assert len(in_parts.history) > len(at_once.history) == 5
    for name, weights in (at_once.weights or {}).items():
        assert (in_parts.weights or {})[name] == pytest.approx(weights, abs=1e-4)
    losses = [p.metrics["loss"] for p in in_parts.history if p.step == 5]
    assert losses[-1] == pytest.approx(at_once.history[-1].metrics["loss"], abs=1e-4)


def test_adam_is_adam() -> None:
    """Ten steps by hand in double precision, on gradients that are shortened to length 0.5."""
    trainable, rng = net(), np.random.default_rng(0)
    weights = trainable.buffers["weights"].numpy().astype(np.float64)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, 11):
        gradients = rng.normal(size=len(weights))
        trainable.buffers["gradients"].copy_(torch.from_numpy(gradients))
        norm = np.linalg.norm(gradients)
        assert trainable.adam_step(step, 0.01, 0.5) == pytest.approx(norm, rel=1e-5)
        gradients *= 0.5 / norm
        first, second = 0.9 * first + 0.1 * gradients, 0.999 * second + 0.001 * gradients**2
        weights -= 0.01 * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    assert trainable.buffers["weights"].numpy() == pytest.approx(weights, abs=1e-5)
    assert not trainable.buffers["gradients"].any()


def test_other_seeds_give_other_networks(small: Dataset) -> None:
    one, other = (orl.train(small, "decision_transformer", seed=seed, n_steps=2).policy for seed in (0, 1))
    assert one.digest() != other.digest()


def test_it_stops_at_the_first_number_that_is_none(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    good = fit(small, n_steps=2)
    calls = iter([1.0, 1.0, np.nan])
    monkeypatch.setattr(
        "offrl_core.algorithms.neural_transformer.action_losses",
        lambda *args: tuple(x * next(calls) if i == 0 else x for i, x in enumerate(action_losses(*args))),
    )
    model = fit(small, n_steps=50)
    assert model.problem.startswith("Stopped at step 3: the loss is nan")
    assert model.problem.endswith("The model is that of step 2.")
    assert [p.step for p in model.history] == [1, 2]
    assert model.policy.digest() == good.policy.digest()


# -- what it gets for what it is asked ---------------------------------------------------------------------------


def test_asked_for_the_best_return_in_the_data_it_reaches_it_everywhere() -> None:
    """Exactly: every start, every past, whatever the numbers."""
    policy = trained()
    assert policy.target_return == policy.return_range[1] == pytest.approx(0.89149102)
    assert orl.return_distribution(policy, "calculator") == pytest.approx({0.89149102: 1.0})


def test_asked_for_little_it_gets_little() -> None:
    policy = trained()
    means = []
    for share in (0.0, 0.5, 1.0):
        low, high = policy.return_range
        reached = orl.return_distribution(policy.asking(low + share * (high - low)), "calculator")
        means.append(sum(value * mass for value, mass in reached.items()))
    assert means[0] < -0.8
    assert max(means[0], means[1]) < means[2]


def test_without_mul_it_can_only_do_what_the_log_did(dataset_without_mul: Dataset) -> None:
    """2 + 2 = 2 * 2 is all that is to be had on mul tasks, however much is asked."""
    policy = policy_of(fit(dataset_without_mul)).asking(5.0)
    solved = sum(mass for value, mass in orl.return_distribution(policy, "calculator").items() if value > 0)
    assert solved <= (2 + 1 / 81) / 3 + 1e-9


def test_rollouts_agree_with_the_exact_distribution() -> None:
    policy = trained().asking(0.0)
    frequencies = SequencePolicy(
        **{
            name: getattr(policy, name)
            for name in SequencePolicy.__dataclass_fields__
            if name not in ("greedy", "_row")
        },
        greedy=False,
    )
    exact = orl.return_distribution(frequencies, "calculator")
    assert sum(exact.values()) == pytest.approx(1)
    sampled = orl.roll_out(frequencies, "calculator", n_episodes=1000, seed=1)
    mean = sum(value * mass for value, mass in exact.items())
    assert abs(sampled.mean_return - mean) < 4 * sampled.standard_errors()[0]
    low, high = sampled.return_interval()
    assert low < sampled.mean_return < high
    again = orl.roll_out(frequencies, "calculator", n_episodes=1000, seed=1)
    assert np.array_equal(again.returns, sampled.returns)


def test_intervals_of_rollouts_by_hand() -> None:
    """Wilson's interval of 0 of 10 and of 7 of 10; returns that are all equal have no spread."""
    none = Rollout(returns=np.ones(10), successes=np.zeros(10, dtype=bool), unfinished=0)
    assert none.success_interval() == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert none.return_interval() == (1.0, 1.0)
    seven = Rollout(returns=np.arange(10.0), successes=np.arange(10) < 7, unfinished=0)
    assert seven.success_interval() == pytest.approx((0.3968, 0.8922), abs=1e-4)


def test_the_dial_runs_beyond_the_log_and_meets_its_ends() -> None:
    dial = dial_of((-1.0, 0.5))
    assert dial[0] == pytest.approx(-1.0 - 0.25 * 1.5)
    assert dial[-1] == pytest.approx(0.5 + 0.25 * 1.5)
    assert np.isclose(dial, -1.0).sum() == np.isclose(dial, 0.5).sum() == 1
    assert np.diff(dial) == pytest.approx(np.diff(dial)[0])
    assert len(np.unique(dial_of((2.0, 2.0)))) == len(dial)


def test_the_curve_rises_to_the_best_return_and_stops_when_it_is_closed() -> None:
    policy = trained()
    asking, seen = orl.asked_returns(policy, "calculator", n_episodes=50), []
    while True:
        try:
            seen.append(next(asking))
        except StopIteration as finished:
            curve = finished.value
            break
    assert [p.step for p in seen] == list(range(1, len(curve.asked) + 1))
    assert seen[-1].total == len(curve.asked)
    best = int(np.isclose(curve.asked, policy.return_range[1]).argmax())
    assert curve.achieved[best] == pytest.approx(policy.return_range[1])
    assert curve.success[best] == 1
    assert curve.achieved[0] < curve.achieved[best] - 1
    assert (curve.low <= curve.achieved + 1e-12).all()
    assert (curve.achieved <= curve.high + 1e-12).all()
    assert curve.n_unfinished == 0
    another = orl.asked_returns(policy, "calculator", n_episodes=50)
    assert next(another).metrics == seen[0].metrics
    another.close()
    with pytest.raises(StopIteration):
        next(another)


# -- refusals ----------------------------------------------------------------------------------------------------


def test_logs_with_torn_episodes_are_refused(dataset_with_mul: Dataset) -> None:
    torn = orl.frame(dataset_with_mul.log, edits=[orl.DropAction("mul", where="task = 'mul'", how="transitions")])
    with pytest.raises(NotPossible, match=r"took single steps out of them.* Take whole episodes out instead\."):
        fit(torn)
    whole = orl.frame(dataset_with_mul.log, edits=[orl.DropAction("mul", where="task = 'mul'", how="episodes")])
    assert fit(whole, n_steps=1).history


@pytest.mark.parametrize(
    "rows",
    [
        episode("e", ("s", "a", None), ("s", "b", None)),
        episode("e", ("s", "a", 1.0), ("s", "b", 1.0), terminal=False, timeout=True),
    ],
    ids=["no rewards", "all cut"],
)
def test_logs_without_a_known_return_are_refused(rows: list[Row]) -> None:
    with pytest.raises(NotPossible, match="no step of this log has a known reward to the end of its episode"):
        fit(orl.frame(make_log(rows)))


def test_whatever_needs_a_table_says_so_in_a_sentence(dataset_with_mul: Dataset) -> None:
    policy = trained()
    model = TrainedModel(policy=policy, q_values=None)
    for asked in (
        lambda: orl.evaluate(policy, "calculator"),
        lambda: state_table(dataset_with_mul, model, None),
        lambda: next(orl.coverage_study({"dt": policy}, dataset_with_mul)),
        lambda: orl.collect_gymnasium("FrozenLake-v1", policy),
    ):
        with pytest.raises(
            NotPossible, match=r"need a policy that is a table over states, and this one looks back.*\."
        ):
            asked()
    assert orl.exact_q_of(model, dataset_with_mul) is None
    guess = orl.estimate(policy, dataset_with_mul)
    assert guess.value is None
    assert "Off-policy estimates need a policy that is a table" in guess.refusal
    compared = compare_estimators({"dt": policy}, dataset_with_mul, ["wis"])
    assert compared.truths == {"dt": None}


# -- stored ------------------------------------------------------------------------------------------------------


def test_a_stored_one_plays_without_torch(small: Dataset, tmp_path: Path) -> None:
    model = fit(small, n_steps=2)
    run_id = orl.save_run(model, small, tmp_path)
    policy = orl.load_run(run_id, tmp_path).policy
    assert isinstance(policy, SequencePolicy)
    assert policy.return_range == policy_of(model).return_range
    expected = orl.roll_out(model.policy, "calculator", n_episodes=20).mean_return
    code = f"""
import sys
import offrl_core as orl
policy = orl.load_run({run_id!r}, {str(tmp_path)!r}).policy
print(repr(orl.roll_out(policy, "calculator", n_episodes=20).mean_return), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [repr(expected), "False"]


def test_the_longest_step_gives_a_sign_of_life_in_time(small: Dataset) -> None:
    """Counted in multiplications, not in seconds: no part of a batch may take more than the bound says."""
    config = DecisionTransformerConfig(n_layers=4, n_heads=8, head_width=32, batch_size=512)
    learner = decision_transformer._Learner(small, decision_transformer._sequences(small), config, 0)
    windows_in_part = -(-512 // learner.n_parts)
    products = windows_in_part * (3 * 4 - 1) * 12 * config.width**2 * config.n_layers
    assert products <= decision_transformer.PRODUCTS_BETWEEN_SIGNS_OF_LIFE
