"""The tabular family: each learner against a dense retelling of its definition, by hand, and in the limits where it must be
another one.

The retellings work row by row and state by state, with scipy where the learner has a closed form and the other way round.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import optimize, special

import offrl_core as orl
from offrl_core.algorithms import ALGORITHMS
from offrl_core.algorithms.bear import best_within
from offrl_core.algorithms.iql import expectiles
from offrl_core.algorithms.mopo import model_error
from offrl_core.algorithms.ops import beyond_reach, reward_span
from offrl_core.arrays import BoolArray, FloatArray, IntArray
from offrl_core.dataset import Dataset
from offrl_core.errors import NotPossible
from offrl_core.interfaces import TrainedModel
from offrl_core.mdp import discounted_sums, policy_chain

from ..golden import DEPLOYMENTS, dataset_of, trained
from .helpers import Row, episode, few_examples, framed_by_hand, make_log, random_rows

FAMILY = (
    "bcq",
    "bear",
    "iql",
    "awr",
    "kl_regularized",
    "spibb",
    "pessimistic_vi",
    "mopo",
    "morel",
    "filtered_bc",
    "return_conditioned",
)
WITH_DEFAULT = ("bcq", "bear", "iql", "awr", "kl_regularized", "spibb", "pessimistic_vi", "mopo")
TINY, HUGE = 1e-9, 1e12
seeds = pytest.mark.parametrize("seed", range(4))


def fit(name: str, dataset: Dataset, **parameters: Any) -> TrainedModel:
    return orl.train(dataset, name, **parameters)


def at(name: str, dataset: Dataset, **parameters: Any) -> TrainedModel:
    """Trained with parameters that may lie outside what a dial allows, to look at limits."""
    spec = ALGORITHMS[name]
    training = spec.train(dataset, spec.config_class(**parameters), seed=0)
    while True:
        try:
            next(training)
        except StopIteration as stop:
            model: TrainedModel = stop.value
            return model


def q_of(model: TrainedModel) -> FloatArray:
    assert model.q_values is not None
    assert model.converged
    return model.q_values


# -- small logs -----------------------------------------------------------------------------------------------


def holey_rows(seed: int, n_episodes: int = 30) -> list[Row]:
    """Episodes of a random process of 5 states and 4 actions: pairs never seen, actions not valid, endings of every kind."""
    rng = np.random.default_rng(seed)
    valid = rng.random((5, 4)) < 0.8
    valid[:, 0] = True
    preference = rng.dirichlet(np.full(4, 0.6), size=5) * valid
    preference /= preference.sum(axis=1, keepdims=True)
    rows: list[Row] = []
    for e in range(n_episodes):
        state, steps, offered = int(rng.integers(5)), [], []
        for _ in range(int(rng.integers(1, 6))):
            action = int(rng.choice(4, p=preference[state]))
            reward = None if rng.random() < 0.05 else float(rng.normal())
            steps.append((f"s{state}", f"a{action}", reward))
            offered.append([f"a{a}" for a in np.flatnonzero(valid[state])])
            state = int((state * 2 + action + rng.integers(2)) % 5)
        cut = bool(rng.random() < 0.3)
        found = episode(f"e{e}", *steps, terminal=not cut, timeout=cut)
        rows += [{**row, "available_tools": tools} for row, tools in zip(found, offered, strict=True)]
    return rows


@cache
def holey(seed: int, discount: float = 0.9) -> Dataset:
    dataset = orl.frame(make_log(holey_rows(seed)), orl.Framing(state="state_text", discount=discount))
    assert not dataset.valid_mask.all()
    assert (dataset.valid_mask & (dataset.visitation_counts == 0)).any()
    return dataset


BY_HAND = [
    *episode("e1", ("0", "a", 0.0), ("1", "c", 4.0)),
    *episode("e2", ("0", "a", 0.0), ("1", "d", 1.0)),
    *episode("e3", ("0", "a", 0.0), ("1", "d", 1.0)),
    *episode("e4", ("0", "b", 1.0)),
]


@cache
def by_hand() -> Dataset:
    """State 0: a three times, to state 1, and b once, worth 1; state 1: c once, worth 4, and d twice, worth 1. Discount 1/2."""
    rows = [{**row, "available_tools": ["a", "b", "x"] if row["state_text"] == "0" else ["c", "d"]} for row in BY_HAND]
    return orl.frame(make_log(rows), orl.Framing(state="state_text", discount=0.5))


def cell(dataset: Dataset, table: FloatArray, state: str, action: str) -> float:
    return float(table[dataset.states.index(state), dataset.actions.index(action)])


# -- dense retellings -----------------------------------------------------------------------------------------


@dataclass
class Dense:
    """Means and successor shares of a log, counted row by row."""

    rewards: FloatArray  # (S, A), the default where nothing is taught
    following: FloatArray  # (S, A, S)
    counts: IntArray
    taught: IntArray
    valid: BoolArray
    discount: float

    @property
    def behavior(self) -> FloatArray:
        totals = self.counts.sum(axis=1, keepdims=True)
        return np.where(
            totals > 0, self.counts / np.maximum(totals, 1), self.valid / self.valid.sum(axis=1, keepdims=True)
        )

    def solve(self, value: Callable[[int, FloatArray], float]) -> FloatArray:
        """(S, A) Q where V(s) = value(s, Q(s, .)), by plain repetition."""
        v_values = np.zeros(len(self.rewards))
        for _ in range(2000):
            q_values = self.rewards + self.discount * self.following @ v_values
            new = np.array([value(s, q_values[s]) for s in range(len(q_values))])
            moved, v_values = np.abs(new - v_values).max(), new
            if moved < 1e-13:
                break
        return self.rewards + self.discount * self.following @ v_values


def dense(dataset: Dataset, default_value: float = 0.0) -> Dense:
    shape = dataset.n_states, dataset.n_actions
    counts, taught = np.zeros(shape, dtype=int), np.zeros(shape, dtype=int)
    sums, following = np.zeros(shape), np.zeros((*shape, dataset.n_states))
    rows = dataset.transitions()
    for s, a, reward, s2, cut in zip(
        rows.observations, rows.actions, rows.rewards, rows.next_observations, rows.timeouts, strict=True
    ):
        counts[s, a] += 1
        if not cut and not math.isnan(reward):
            taught[s, a] += 1
            sums[s, a] += reward
            if s2 >= 0:
                following[s, a, s2] += 1
    rewards = np.where(taught > 0, sums / np.maximum(taught, 1), default_value)
    return Dense(
        rewards, following / np.maximum(taught, 1)[:, :, None], counts, taught, dataset.valid_mask, dataset.discount
    )


def behavior_q(dataset: Dataset, default_value: float = 0.0) -> FloatArray:
    """Q of the log's own policy by one dense linear solve."""
    model = dense(dataset, default_value)
    chain = np.einsum("sa,sat->st", model.behavior, model.following)
    amounts = (model.behavior * model.rewards).sum(axis=1)
    v_values = np.linalg.solve(np.eye(len(chain)) - model.discount * chain, amounts)
    return model.rewards + model.discount * model.following @ v_values


def agree(model: TrainedModel, expected: FloatArray, where: BoolArray, tolerance: float = 1e-9) -> None:
    """Q is as expected on some pairs and missing on all others."""
    found = q_of(model)
    assert (np.isnan(found) == ~where).all()
    assert found[where] == pytest.approx(expected[where], abs=tolerance)


@seeds
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
def test_bcq_retold(seed: int, threshold: float) -> None:
    model = dense(holey(seed), -0.5)

    def allowed(s: int) -> list[int]:
        most = model.counts[s].max()
        if most == 0:
            return list(np.flatnonzero(model.valid[s]))
        return [a for a in range(len(model.counts[s])) if 0 < model.counts[s, a] >= threshold * most]

    expected = model.solve(lambda s, q: max(q[a] for a in allowed(s)))
    where = np.zeros_like(model.valid)
    for s in range(len(where)):
        where[s, allowed(s)] = True
    learned = fit("bcq", holey(seed), threshold=threshold, default_value=-0.5)
    agree(learned, expected, where)
    best = np.where(where, expected, -np.inf).argmax(axis=1)
    seen = model.counts.any(axis=1)
    assert (learned.policy.probabilities.argmax(axis=1)[seen] == best[seen]).all()


def projected(point: FloatArray) -> FloatArray:
    """Euclidean projection onto the distributions, by sorting."""
    falling = np.sort(point)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(point) + 1)
    return np.maximum(point - excess[np.flatnonzero(falling > excess)[-1]], 0.0)


def farthest(behavior: FloatArray, q: FloatArray, distance: float) -> FloatArray:
    """The best distribution within a distance, by bisecting how hard Q pulls."""
    inside = behavior > 0
    low, high = 0.0, 1e9
    for _ in range(100):
        pull = (low + high) / 2
        found = np.zeros_like(behavior)
        found[inside] = projected(behavior[inside] + pull * (q[inside] - q[inside].max()))
        low, high = (pull, high) if np.linalg.norm(found - behavior) < distance else (low, pull)
    return found


@seeds
@pytest.mark.parametrize("distance", [0.1, 0.3, 0.8])
def test_bear_retold(seed: int, distance: float) -> None:
    model = dense(holey(seed))
    behavior = model.behavior
    learned = fit("bear", holey(seed), distance=distance)
    found = np.where(behavior > 0, q_of(learned), 0.0)
    # The fixed point is unique, so it is enough that one more backup changes nothing.
    v_values = np.array([farthest(behavior[s], found[s], distance) @ found[s] for s in range(len(found))])
    agree(learned, model.rewards + model.discount * model.following @ v_values, behavior > 0, 1e-6)
    table = learned.policy.probabilities
    assert (np.linalg.norm(table - behavior, axis=1) <= distance + 1e-9).all()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.sampled_from([0.0, 0.05, 0.3, 1.0, 1.5]))
def test_no_distribution_within_the_distance_is_better(seed: int, n_actions: int, distance: float) -> None:
    rng = np.random.default_rng(seed)
    behavior = rng.dirichlet(np.full(n_actions, 0.7), size=8).T
    behavior[:, :3] = np.where(rng.random((n_actions, 3)) < 0.5, 0.0, behavior[:, :3])
    behavior[0] += 0.01
    behavior /= behavior.sum(axis=0)
    q_values = rng.choice([1e-6, 1.0, 50.0]) * rng.integers(-2, 3, size=behavior.shape).astype(float)
    found = best_within(behavior, q_values, distance)
    assert found.sum(axis=0) == pytest.approx(np.ones(8))
    assert (found[behavior == 0] == 0).all()
    assert (np.linalg.norm(found - behavior, axis=0) <= distance + 1e-9).all()
    scale = np.abs(q_values).max() + 1e-300
    for s in range(8):
        rival = farthest(behavior[:, s], q_values[:, s] / scale, distance)
        assert found[:, s] @ q_values[:, s] / scale == pytest.approx(rival @ q_values[:, s] / scale, abs=1e-6)


@seeds
@pytest.mark.parametrize("expectile", [0.1, 0.5, 0.7, 0.95])
def test_iql_retold(seed: int, expectile: float) -> None:
    model = dense(holey(seed), 0.25)
    behavior = model.behavior

    def value(s: int, q: FloatArray) -> float:
        def gap(v: float) -> float:
            return float((behavior[s] * np.abs(expectile - (q < v)) * (q - v))[behavior[s] > 0].sum())

        inside = q[behavior[s] > 0]
        if inside.max() - inside.min() < 1e-14:
            return float(inside[0])
        return float(optimize.brentq(gap, inside.min(), inside.max(), xtol=1e-15))

    expected = model.solve(value)
    learned = fit("iql", holey(seed), expectile=expectile, temperature=0.5, max_weight=3.0, default_value=0.25)
    agree(learned, expected, behavior > 0)
    v_values = np.array([value(s, expected[s]) for s in range(len(expected))])
    weights = behavior * np.minimum(np.exp((expected - v_values[:, None]) / 0.5), 3.0)
    assert learned.policy.probabilities == pytest.approx(weights / weights.sum(axis=1, keepdims=True), abs=1e-7)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.001, 0.3, 0.5, 0.9, 0.999]), st.sampled_from([-100.0, 0.0, 3.0]))
def test_expectiles_meet_their_condition_from_any_start(seed: int, expectile: float, start: float) -> None:
    rng = np.random.default_rng(seed)
    q_values, weights = rng.integers(-3, 4, size=(5, 6)).astype(float), rng.dirichlet(np.ones(5), size=6).T
    found = expectiles(q_values, weights, expectile, start=np.full(6, start))
    gaps = (weights * np.abs(expectile - (q_values < found)) * (q_values - found)).sum(axis=0)
    assert gaps == pytest.approx(np.zeros(6), abs=1e-12)


@seeds
@pytest.mark.parametrize("temperature", [0.05, 0.5, 20.0])
def test_kl_regularized_retold(seed: int, temperature: float) -> None:
    model = dense(holey(seed))
    behavior = model.behavior

    def value(s: int, q: FloatArray) -> float:
        inside = behavior[s] > 0
        return float(temperature * special.logsumexp(q[inside] / temperature, b=behavior[s][inside]))

    expected = model.solve(value)
    learned = fit("kl_regularized", holey(seed), temperature=temperature)
    agree(learned, expected, behavior > 0)
    # The closed form is the best of its problem: no other mix earns more after paying for its divergence.
    table, rng = learned.policy.probabilities, np.random.default_rng(seed)

    def worth(s: int, mix: FloatArray) -> float:
        divergence = special.rel_entr(mix, behavior[s]).sum()
        return float(mix @ np.where(behavior[s] > 0, expected[s], 0.0) - temperature * divergence)

    for s in range(len(table)):
        assert worth(s, table[s]) == pytest.approx(value(s, expected[s]), abs=1e-7)
        for _ in range(5):
            rival = rng.dirichlet(np.ones(len(table[s]))) * (behavior[s] > 0)
            assert worth(s, rival / rival.sum()) <= worth(s, table[s]) + 1e-9


@seeds
@pytest.mark.parametrize("n_wedge", [0, 1, 2, 4, 1000])
def test_spibb_retold(seed: int, n_wedge: int) -> None:
    model = dense(holey(seed), 0.1)
    behavior = model.behavior
    free = model.valid & (model.counts >= n_wedge)

    def value(s: int, q: FloatArray) -> float:
        held = behavior[s] * ~free[s]
        moved = [q[a] for a in np.flatnonzero(free[s])]
        return float(held @ q + ((1 - held.sum()) * max(moved) if moved else 0.0))

    expected = model.solve(value)
    learned = fit("spibb", holey(seed), n_wedge=n_wedge, default_value=0.1)
    agree(learned, expected, free | (behavior > 0))
    table = learned.policy.probabilities
    assert table[~free] == pytest.approx(behavior[~free]), "rare pairs keep the log's probability"
    values = (table * np.where(table > 0, expected, 0.0)).sum(axis=1)
    assert values == pytest.approx([value(s, expected[s]) for s in range(len(expected))], abs=1e-8)


@seeds
@pytest.mark.parametrize("maximum", ["valid", "supported", "all"])
def test_pessimistic_vi_and_mopo_retold(seed: int, maximum: str) -> None:
    dataset = holey(seed)
    rows = dataset.transitions()
    known = rows.rewards[~np.isnan(rows.rewards)]
    span = max(known.max(), 0) - min(known.min(), 0)
    model = dense(dataset, 0.3)
    shape = model.rewards.shape

    def competing(s: int) -> list[int]:
        mask = {"valid": model.valid, "supported": model.counts > 0, "all": np.ones(shape, dtype=bool)}[maximum][s]
        return list(np.flatnonzero(mask if mask.any() else model.valid[s]))

    def error(s: int, a: int) -> float:
        """Row by row: what followed, each share with the deviation of its belief."""
        n = int(model.taught[s, a])
        if n == 0:
            return 1.0
        seen: dict[int, int] = defaultdict(int)
        for here, action, reward, s2, cut in zip(
            rows.observations, rows.actions, rows.rewards, rows.next_observations, rows.timeouts, strict=True
        ):
            if (here, action) == (s, a) and not cut and not math.isnan(reward):
                seen[int(s2)] += 1
        shares = [*(k / (n + 1) for k in seen.values()), 1 / (n + 1)]
        assert sum(shares) == pytest.approx(1)
        return sum(math.sqrt(p * (1 - p) / (n + 2)) for p in shares) / 2

    penalties = {
        "pessimistic_vi": [[1 / math.sqrt(max(n, 1)) for n in row] for row in model.taught],
        "mopo": [[error(s, a) for a in range(shape[1])] for s in range(shape[0])],
    }
    for name, penalty in penalties.items():
        careful = Dense(
            model.rewards - 0.7 * span * np.array(penalty),
            model.following,
            model.counts,
            model.taught,
            model.valid,
            model.discount,
        )
        expected = careful.solve(lambda s, q: max(q[a] for a in competing(s)))
        where = np.zeros(shape, dtype=bool)
        for s in range(shape[0]):
            where[s, competing(s)] = True
        agree(fit(name, dataset, penalty_weight=0.7, default_value=0.3, maximum=maximum), expected, where)


@seeds
@pytest.mark.parametrize("min_count", [1, 2, 4])
@pytest.mark.parametrize("halt_penalty", [0.0, 0.4, 1.0])
def test_morel_retold(seed: int, min_count: int, halt_penalty: float) -> None:
    dataset = holey(seed)
    rewards = [r for r in dataset.transitions().rewards if not math.isnan(r)]
    halt = -halt_penalty * (max(*rewards, 0) - min(*rewards, 0)) / (1 - 0.9)
    model = dense(dataset)
    known = model.taught >= min_count
    model.rewards[~known], model.following[~known] = halt, 0.0
    expected = model.solve(lambda s, q: max(q[model.valid[s]]))
    learned = fit("morel", dataset, min_count=min_count, halt_penalty=halt_penalty)
    agree(learned, expected, model.valid)
    table = learned.policy.probabilities
    for s in range(len(table)):
        if not known[s].any():
            assert table[s] == pytest.approx(model.valid[s] / model.valid[s].sum())
        elif halt_penalty == 1.0:
            assert known[s, table[s].argmax()], "no known step is worse than the halt"


def test_awr_retold_on_logged_returns() -> None:
    for seed in range(4):
        dataset, temperature, bound = holey(seed), 0.8, 4.0
        returns = returns_by_hand(holey_rows(seed), 0.9)
        rows = dataset.transitions()
        by_state: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for s, a, g in zip(rows.observations.tolist(), rows.actions.tolist(), returns, strict=True):
            if g is not None:
                by_state[s].append((a, g))
        expected, q_values = dense(dataset).behavior.copy(), np.zeros_like(dataset.valid_mask, dtype=float)
        for s, found in by_state.items():
            mean, weights = np.mean([g for _, g in found]), np.zeros(dataset.n_actions)
            for a, g in found:
                weights[a] += min(math.exp((g - mean) / temperature), bound)
            expected[s] = weights / weights.sum()
            for a in {a for a, _ in found}:
                q_values[s, a] = np.mean([g for b, g in found if b == a])
        learned = fit("awr", dataset, returns="logged", temperature=temperature, max_weight=bound)
        assert learned.policy.probabilities == pytest.approx(expected)
        agree(learned, q_values, dense(dataset).behavior > 0)


# -- by hand --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threshold", "going_on", "chosen"), [(0.3, 2.0, "c"), (0.6, 0.5, "d")])
def test_bcq_by_hand(threshold: float, going_on: float, chosen: str) -> None:
    """c is half as frequent as d, b a third as frequent as a."""
    model = fit("bcq", by_hand(), threshold=threshold)
    assert cell(by_hand(), q_of(model), "0", "a") == pytest.approx(going_on)
    assert model.policy.greedy_actions() == ("a", chosen)
    assert math.isnan(cell(by_hand(), q_of(model), "0", "b")) == (threshold > 1 / 3)


def test_bear_by_hand() -> None:
    """Moving d from one action to another is a distance of d times the root of 2."""
    table = fit("bear", by_hand(), distance=0.3).policy.probabilities
    assert cell(by_hand(), table, "1", "c") == pytest.approx(1 / 3 + 0.3 / math.sqrt(2))
    value = 4 * (1 / 3 + 0.3 / math.sqrt(2)) + 1 * (2 / 3 - 0.3 / math.sqrt(2))
    q_values = q_of(fit("bear", by_hand(), distance=0.3))
    assert cell(by_hand(), q_values, "0", "a") == pytest.approx(value / 2)


def test_iql_by_hand() -> None:
    """At state 1: (4 * 0.8/3 + 1 * 0.2 * 2/3) / (0.8/3 + 0.2 * 2/3) = 3; at 0 a is worth 1.5 and b 1."""
    model = fit("iql", by_hand(), expectile=0.8, temperature=1.0)
    assert cell(by_hand(), q_of(model), "0", "a") == pytest.approx(1.5)
    value = (1.5 * 0.8 * 0.75 + 1 * 0.2 * 0.25) / (0.8 * 0.75 + 0.2 * 0.25)
    odds = 3 * math.exp(1.5 - value) / math.exp(1 - value)
    assert cell(by_hand(), model.policy.probabilities, "0", "a") == pytest.approx(odds / (1 + odds))


def test_awr_by_hand() -> None:
    """At state 0 the rows return 2, 1/2, 1/2 (a) and 1 (b), on average 1."""
    model = fit("awr", by_hand(), temperature=1.0, max_weight=2.5)
    a = min(math.exp(1.0), 2.5) + 2 * math.exp(-0.5)
    assert cell(by_hand(), model.policy.probabilities, "0", "a") == pytest.approx(a / (a + 1))
    assert model.history[-1].metrics["at_bound"] == pytest.approx(2 / 7), "e1 is at the bound in both its states"


def test_kl_regularized_by_hand() -> None:
    """At temperature 1 / ln 2, exp(Q / temperature) is 2^Q, and V(1) = log2((2^4 + 2 * 2^1) / 3) / ln 2 * ln 2."""
    model = fit("kl_regularized", by_hand(), temperature=1 / math.log(2))
    assert cell(by_hand(), q_of(model), "0", "a") == pytest.approx(math.log2(20 / 3) / 2)
    assert cell(by_hand(), model.policy.probabilities, "1", "c") == pytest.approx(16 / 20)


def test_spibb_by_hand() -> None:
    """With pairs rare below 2, b and c keep their share and nothing else competes: the log's own policy."""
    model = fit("spibb", by_hand(), n_wedge=2)
    assert cell(by_hand(), q_of(model), "0", "a") == pytest.approx((4 + 2) / 3 / 2)
    assert model.policy.probabilities == pytest.approx(by_hand().behavior_probabilities)
    assert fit("spibb", by_hand(), n_wedge=1).policy.greedy_actions() == ("a", "c")


def test_pessimistic_vi_by_hand() -> None:
    """Rewards span 4; half of it over the root of the rows is taken off; x was never seen."""
    q_values = q_of(fit("pessimistic_vi", by_hand(), penalty_weight=0.5, default_value=-1.0))
    assert cell(by_hand(), q_values, "1", "c") == pytest.approx(4 - 2)
    assert cell(by_hand(), q_values, "1", "d") == pytest.approx(1 - 2 / math.sqrt(2))
    assert cell(by_hand(), q_values, "0", "a") == pytest.approx(0 - 2 / math.sqrt(3) + 2 / 2)
    assert cell(by_hand(), q_values, "0", "x") == pytest.approx(-1 - 2)


def test_mopo_by_hand() -> None:
    """One row: the ending and the unknown have 1/2 each, with deviation sqrt(1/4 / 3)."""
    uncertainty = model_error(by_hand().edges, by_hand().value_counts)
    assert cell(by_hand(), uncertainty, "1", "c") == pytest.approx(math.sqrt(1 / 12))
    assert cell(by_hand(), uncertainty, "0", "a") == pytest.approx(math.sqrt(3 / 16 / 5)), "three rows, all to state 1"
    assert cell(by_hand(), uncertainty, "0", "x") == 1
    q_values = q_of(fit("mopo", by_hand(), penalty_weight=0.5))
    assert cell(by_hand(), q_values, "1", "c") == pytest.approx(4 - 2 * math.sqrt(1 / 12))
    assert cell(by_hand(), q_values, "0", "x") == pytest.approx(-2)


def test_random_successors_are_less_certain_than_one() -> None:
    """Six rows each: the same successor, two, six different ones."""

    def error(*following: str) -> float:
        rows = [row for i, s in enumerate(following) for row in episode(f"e{i}", ("s", "a", 0.0), (s, "b", 1.0))]
        dataset = orl.frame(make_log(rows))
        return cell(dataset, model_error(dataset.edges, dataset.value_counts), "s", "a")

    errors = [error(*"111111"), error(*"111222"), error(*"123456")]
    assert errors[0] < errors[1] < errors[2]
    assert error(*"11") < error(*"1") < 0.5
    assert errors[-1] < 0.5


def test_morel_by_hand() -> None:
    """Known from 2 rows: a and d. The halt costs 4 a step for ever: 4 / (1 - 1/2)."""
    model = fit("morel", by_hand(), min_count=2)
    assert cell(by_hand(), q_of(model), "1", "c") == pytest.approx(-8)
    assert cell(by_hand(), q_of(model), "0", "a") == pytest.approx(0.5)
    assert model.policy.greedy_actions() == ("a", "d")
    assert fit("morel", by_hand(), min_count=2, halt_penalty=0.0).policy.greedy_actions() == ("a", "d")


def test_morel_turns_back_before_the_unknown() -> None:
    """Behind a there is a state without a known pair: worth the halt, so b is better although it costs something."""
    rows = [row for i in range(3) for row in episode(f"a{i}", ("s", "a", 0.0), (f"dead end {i % 2}", "c", 5.0))]
    rows += [row for i in range(3) for row in episode(f"b{i}", ("s", "b", -1.0))]
    dataset = orl.frame(make_log(rows))
    assert fit("morel", dataset, min_count=3).policy.greedy_actions()[dataset.states.index("s")] == "b"
    assert fit("fqi_support", dataset, min_count=3).policy.greedy_actions()[dataset.states.index("s")] == "a"
    uniform = fit("morel", dataset, min_count=3).policy.probabilities[dataset.states.index("dead end 0")]
    assert uniform == pytest.approx(np.full(3, 1 / 3))


@pytest.mark.parametrize(
    ("percent", "kept", "expected"), [(25.0, 1, "c"), (50.0, 4, "d"), (100.0, 4, "d"), (0.1, 1, "c")]
)
def test_filtered_bc_by_hand(percent: float, kept: int, expected: str) -> None:
    """Returns 4, 1, 1, 1: one quarter is e1 alone; more takes all that tie."""
    model = fit("filtered_bc", by_hand(), keep_percent=percent)
    assert model.policy.greedy_actions() == ("a", expected)
    metrics = model.history[-1].metrics
    assert metrics["kept_share"] == kept / 4
    assert metrics["kept_return"] == pytest.approx(4.0 if kept == 1 else 7 / 4)
    assert metrics["states_left"] == 1


def test_return_conditioned_by_hand() -> None:
    """From the start the episodes returned 2, 1/2, 1/2, 1; who asks for 2 goes on with 4 and does what e1 did."""
    model = fit("return_conditioned", by_hand(), imitate="frequencies")
    assert model.history[-1].metrics == pytest.approx({"asked": 2.0, "met": 2.0, "still_playing": 0.0})
    assert model.policy.greedy_actions() == ("a", "c")
    assert model.policy.probabilities.max(axis=1) == pytest.approx([1, 1])
    low = fit("return_conditioned", by_hand(), ask=0.0, n_buckets=8)  # grid 0.5, 1, ..., 4
    assert low.policy.greedy_actions() == ("a", "d")
    middle = fit("return_conditioned", by_hand(), ask=1 / 3, n_buckets=8, imitate="frequencies")
    assert cell(by_hand(), middle.policy.probabilities, "0", "b") == pytest.approx(1), "only b returned 1"
    assert cell(by_hand(), middle.policy.probabilities, "1", "d") == pytest.approx(2 / 3), (
        "never reached: the log's mix"
    )


# -- limits in which one learner must be another --------------------------------------------------------------


@pytest.fixture(params=["holey 0", "holey 1", "holey 2", "calculator"])
def any_dataset(request: pytest.FixtureRequest) -> Dataset:
    return dataset_of("without_mul") if request.param == "calculator" else holey(int(request.param[-1]))


def same_values(one: TrainedModel, other: TrainedModel, tolerance: float = 1e-8) -> None:
    assert q_of(one) == pytest.approx(q_of(other), nan_ok=True, abs=tolerance)


def test_the_loose_limits_are_the_best_inside_the_log(any_dataset: Dataset) -> None:
    best = fit("fqi_support", any_dataset, min_count=1, default_value=-0.5)
    assert np.array_equal(q_of(fit("bcq", any_dataset, threshold=0.0, default_value=-0.5)), q_of(best), equal_nan=True)
    same_values(fit("spibb", any_dataset, n_wedge=1, default_value=-0.5), best, 1e-10)
    same_values(fit("bear", any_dataset, distance=1.4143, default_value=-0.5), best)
    same_values(at("iql", any_dataset, expectile=1 - 1e-12, default_value=-0.5), best)
    same_values(at("kl_regularized", any_dataset, temperature=TINY, default_value=-0.5), best, 1e-6)
    same_values(fit("pessimistic_vi", any_dataset, penalty_weight=0.0, maximum="supported", default_value=-0.5), best)
    same_values(fit("mopo", any_dataset, penalty_weight=0.0, maximum="supported", default_value=-0.5), best)


def test_the_loose_limits_pick_what_is_best_inside_the_log(any_dataset: Dataset) -> None:
    best = fit("fqi_support", any_dataset, min_count=1)
    limits = [
        fit("bcq", any_dataset, threshold=0.0),
        fit("spibb", any_dataset, n_wedge=1),
        at("kl_regularized", any_dataset, temperature=TINY),
        at("iql", any_dataset, expectile=1 - 1e-12, temperature=TINY, max_weight=HUGE),
    ]
    q_values = np.nan_to_num(q_of(best), nan=-np.inf)
    top = np.sort(q_values, axis=1)
    clear = any_dataset.visitation_counts.any(axis=1) & (top[:, -1] - top[:, -2] > 1e-6)
    assert clear.any()
    for model in limits:
        assert (model.policy.probabilities[clear].argmax(axis=1) == q_values[clear].argmax(axis=1)).all()
        assert model.policy.probabilities[clear].max(axis=1) == pytest.approx(np.ones(clear.sum()))


def test_the_tight_limits_are_the_log_itself(any_dataset: Dataset) -> None:
    """Distance 0, expectile 1/2, an infinite price or N: all are worth what the log's own policy is worth."""
    expected = behavior_q(any_dataset, 0.2)
    where = dense(any_dataset).behavior > 0
    for model in (
        fit("bear", any_dataset, distance=0.0, default_value=0.2),
        fit("iql", any_dataset, expectile=0.5, default_value=0.2),
        fit("awr", any_dataset, returns="expected", default_value=0.2),
        fit("spibb", any_dataset, n_wedge=1_000_000_000, default_value=0.2),
        at("kl_regularized", any_dataset, temperature=1e8, default_value=0.2),
    ):
        agree(model, expected, where, 1e-5)


def test_the_tight_limits_do_what_the_log_does(any_dataset: Dataset) -> None:
    frequencies = fit("bc", any_dataset, imitate="frequencies").policy.probabilities
    for model in (
        fit("bear", any_dataset, distance=0.0),
        at("iql", any_dataset, temperature=HUGE),
        at("awr", any_dataset, temperature=HUGE, returns="expected"),
        at("kl_regularized", any_dataset, temperature=HUGE),
        fit("spibb", any_dataset, n_wedge=1_000_000_000),
    ):
        assert model.policy.probabilities == pytest.approx(frequencies, abs=1e-9)


def test_awr_copies_the_log_where_no_row_weighs_more(any_dataset: Dataset) -> None:
    """Compared in states where every row's return is known: others are no part of it."""
    unknown = any_dataset.transitions().observations[np.isnan(any_dataset.returns_to_go)]
    frequencies = np.delete(any_dataset.behavior_probabilities, unknown, axis=0)
    model = at("awr", any_dataset, temperature=HUGE)
    assert np.delete(model.policy.probabilities, unknown, axis=0) == pytest.approx(frequencies, abs=1e-9)


def test_only_the_most_frequent_action_is_cloning(any_dataset: Dataset) -> None:
    counts = np.sort(any_dataset.visitation_counts, axis=1)
    clear = counts[:, -1] > counts[:, -2]
    cloned, frequent = fit("bc", any_dataset).policy, fit("bcq", any_dataset, threshold=1.0).policy
    assert np.array_equal(cloned.probabilities[clear], frequent.probabilities[clear])
    assert clear.sum() > 2


@pytest.mark.parametrize("default_value", [-2.0, 0.0, 1.5])
def test_without_a_penalty_the_model_based_are_naive(any_dataset: Dataset, default_value: float) -> None:
    naive = fit("fqi", any_dataset, default_value=default_value)
    same_values(fit("spibb", any_dataset, n_wedge=0, default_value=default_value), naive, 1e-10)
    for name in ("pessimistic_vi", "mopo"):
        model = fit(name, any_dataset, penalty_weight=0.0, default_value=default_value)
        assert np.array_equal(q_of(model), q_of(naive), equal_nan=True)
        assert np.array_equal(model.policy.probabilities, naive.policy.probabilities)
        same_values(
            fit(name, any_dataset, penalty_weight=0.0, default_value=default_value, maximum="all"),
            fit("fqi", any_dataset, default_value=default_value, maximum="all"),
        )


def test_the_halt_is_a_guess_by_another_name(any_dataset: Dataset) -> None:
    """Known from one row: MOReL is naive FQI with the value of the halt for its default."""
    for halt_penalty in (0.0, 0.5, 1.0, 3.0):
        halt = -halt_penalty * reward_span(any_dataset.reward_range) / (1 - any_dataset.discount)
        same_values(
            fit("morel", any_dataset, min_count=1, halt_penalty=halt_penalty),
            fit("fqi", any_dataset, default_value=halt),
        )


def test_awr_on_expected_values_is_iql_at_one_half(any_dataset: Dataset) -> None:
    shared = {"temperature": 0.2, "max_weight": 5.0, "default_value": 0.3}
    one, other = fit("awr", any_dataset, returns="expected", **shared), fit("iql", any_dataset, expectile=0.5, **shared)
    same_values(one, other)
    assert one.policy.probabilities == pytest.approx(other.policy.probabilities, abs=1e-9)


def test_awr_in_the_cold_picks_the_luckiest_row(any_dataset: Dataset) -> None:
    model = at("awr", any_dataset, temperature=TINY, max_weight=float("inf"))
    rows, returns = any_dataset.transitions(), any_dataset.returns_to_go
    for s in range(any_dataset.n_states):
        here = (rows.observations == s) & ~np.isnan(returns)
        if here.any():
            best = set(rows.actions[here][returns[here] >= returns[here].max() - 1e-12].tolist())
            assert set(np.flatnonzero(model.policy.probabilities[s] > 1e-6).tolist()) == best


def test_keeping_every_episode_is_plain_cloning() -> None:
    for dataset in (dataset_of("without_mul"), by_hand()):
        for imitate in ("majority", "frequencies"):
            filtered = fit("filtered_bc", dataset, keep_percent=100.0, imitate=imitate)
            assert np.array_equal(
                filtered.policy.probabilities, fit("bc", dataset, imitate=imitate).policy.probabilities
            )


# -- filtered behavior cloning --------------------------------------------------------------------------------


@few_examples
@given(random_rows(), st.sampled_from([1.0, 30.0, 80.0]))
def test_filtered_bc_retold(rows: list[Row], percent: float) -> None:
    dataset = orl.frame(make_log(rows))
    totals = {row["episode_id"]: row["episode_return"] for row in framed_by_hand(rows)}
    known = sorted((total for total in totals.values() if total is not None), reverse=True)
    if not known:
        with pytest.raises(NotPossible, match="ranks episodes by outcome"):
            fit("filtered_bc", dataset, keep_percent=percent)
        return
    bar = known[max(1, math.ceil(len(known) * percent / 100 - 1e-9)) - 1]
    for keep, wanted in (("return", lambda total: total >= bar - 1e-12), ("solved", lambda total: total > 0)):
        kept = {e for e, total in totals.items() if total is not None and wanted(total)}
        if not kept:
            with pytest.raises(NotPossible, match="No episode of this log is known to be solved"):
                fit("filtered_bc", dataset, keep=keep)
            continue
        model = fit("filtered_bc", dataset, keep=keep, keep_percent=percent, imitate="frequencies")
        assert model.history[-1].metrics["kept_share"] == pytest.approx(len(kept) / len(totals))
        counts = np.zeros(dataset.valid_mask.shape)
        for row in rows:
            if row["episode_id"] in kept:
                counts[dataset.states.index(row["state_text"]), dataset.actions.index(row["action"])] += 1
        counts[counts.sum(axis=1) == 0] = 1
        assert model.policy.probabilities == pytest.approx(counts / counts.sum(axis=1, keepdims=True))


# -- the return-conditioned table -----------------------------------------------------------------------------


def graph_log(seed: int, n_episodes: int = 40) -> list[Row]:
    """Episodes through layers of states with whole rewards, random successors and random ends."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for e in range(n_episodes):
        steps = []
        for layer in range(int(rng.integers(1, 4))):
            state, action = int(rng.integers(2)), int(rng.integers(2))
            steps.append((f"{layer}.{state}", f"a{action}", float((layer + action + state) % 3)))
        rows += episode(f"e{e}", *steps)
    return rows


class Player:
    """Remembers what is still asked for; walks through a log's process with dicts. Returns must be whole numbers."""

    def __init__(self, rows: list[Row], imitate: str) -> None:
        returns = [g for g in returns_by_hand(rows, 1.0) if g is not None]
        assert len(returns) == len(rows)
        self.imitate, self.low, self.high = imitate, min(returns), max(returns)
        self.table: dict[tuple[str, float], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.after: dict[tuple[str, str], list[tuple[str | None, float]]] = defaultdict(list)
        self.starts: list[tuple[str, float]] = []
        for row, g in zip(framed_by_hand(rows), returns, strict=True):
            self.table[row["state_text"], g][row["action"]] += 1
            self.after[row["state_text"], row["action"]].append((row["next_state"], row["reward"]))
            if row["t"] == 0:
                self.starts.append((row["state_text"], g))

    def asked(self, ask: float) -> float:
        from_start = [g for _, g in self.starts]
        return min(from_start) + ask * (max(from_start) - min(from_start))

    def mix(self, state: str, g: float) -> dict[str, float]:
        """What the log did at the nearest return-to-go that it shows in the state."""
        nearest = min((h for s, h in self.table if s == state), key=lambda h: (abs(h - g), h))
        counts = self.table[state, nearest]
        if self.imitate == "majority":
            return {min(a for a in counts if counts[a] == max(counts.values())): 1.0}
        return {action: n / sum(counts.values()) for action, n in counts.items()}

    def play(self, ask: float) -> tuple[dict[tuple[str, str], float], float]:
        """Expected visits of each pair, and the mean return. Between two whole numbers each is asked for in proportion."""
        asked, visits, met = self.asked(ask), defaultdict(float), 0.0
        standing: dict[tuple[str, float], float] = defaultdict(float)
        for state, _ in self.starts:
            below = math.floor(asked)
            standing[state, below] += (below + 1 - asked) / len(self.starts)
            standing[state, min(below + 1, self.high)] += (asked - below) / len(self.starts)
        while standing:
            following: dict[tuple[str, float], float] = defaultdict(float)
            for (state, g), share in standing.items():
                for action, p in self.mix(state, g).items():
                    visits[state, action] += share * p
                    met += share * p * self.step(state, action, g, share * p, following)
            standing = following
        return visits, met

    def step(self, state: str, action: str, g: float, p: float, following: dict[tuple[str, float], float]) -> float:
        """Mean reward of the pair; adds what follows."""
        outcomes = self.after[state, action]
        for next_state, reward in outcomes:
            if next_state is not None:
                following[next_state, min(max(g - reward, self.low), self.high)] += p / len(outcomes)
        return sum(reward for _, reward in outcomes) / len(outcomes)


@seeds
@pytest.mark.parametrize("imitate", ["majority", "frequencies"])
@pytest.mark.parametrize("ask", [0.0, 0.5, 1.0])
def test_the_player_is_followed_exactly(seed: int, imitate: str, ask: float) -> None:
    """Whole rewards and discount 1 put every return on a grid of whole numbers, so a walk with dicts must agree."""
    dataset = orl.frame(make_log(graph_log(seed)), orl.Framing(state="state_text", discount=1.0))
    player = Player(graph_log(seed), imitate)
    visits, met = player.play(ask)
    n_buckets = int(player.high - player.low) + 1
    model = fit("return_conditioned", dataset, ask=ask, imitate=imitate, n_buckets=n_buckets)
    expected = {"asked": player.asked(ask), "met": met, "still_playing": 0.0}
    assert model.history[-1].metrics == pytest.approx(expected, abs=1e-9)
    table = np.array([[visits[state, action] for action in dataset.actions] for state in dataset.states])
    reached = table.sum(axis=1) > 1e-12
    assert reached.sum() > 3
    table = table[reached] / table[reached].sum(axis=1, keepdims=True)
    assert model.policy.probabilities[reached] == pytest.approx(table)


@seeds
def test_the_table_is_worth_what_the_player_is_worth(seed: int) -> None:
    """In the log's process, at discount 1: the same visits of every state, hence the same mean return."""
    dataset = orl.frame(make_log(graph_log(seed)), orl.Framing(state="state_text", discount=1.0))
    model = fit("return_conditioned", dataset, imitate="frequencies")
    mdp = dataset.empirical_mdp(dataset.support_mask(), 0.0)
    policy = np.ascontiguousarray(model.policy.probabilities.T)
    amounts = (policy * np.where(policy > 0, mdp.rewards, 0.0)).sum(axis=0)
    values = discounted_sums(policy_chain(mdp, policy), amounts, 1.0)
    starts = dataset.start_counts / dataset.start_counts.sum()
    assert starts @ values == pytest.approx(model.history[-1].metrics["met"])


def test_asking_for_more_brings_more_where_skill_decides() -> None:
    dataset = dataset_of("with_mul")
    met = [fit("return_conditioned", dataset, ask=ask).history[-1].metrics["met"] for ask in (0.0, 0.5, 1.0)]
    assert met[0] < met[1] <= met[2]
    assert fit("return_conditioned", dataset).history[-1].metrics["asked"] == pytest.approx(
        -0.02 * (1 + 0.99 + 0.99**2) + 0.99**3 * 0.98
    )


def test_luck_cannot_be_asked_for() -> None:
    """One action, a coin decides between 0 and 1: asked for 1, the player meets 1/2, and the table says so."""
    rows = [row for i in range(10) for row in episode(f"e{i}", ("s", "toss", 0.0), (f"{i % 2}", "take", float(i % 2)))]
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text", discount=1.0))
    assert fit("return_conditioned", dataset).history[-1].metrics == pytest.approx(
        {"asked": 1.0, "met": 0.5, "still_playing": 0.0}
    )


def test_where_no_return_is_known_the_log_is_copied() -> None:
    """The state "dark" is only visited by episodes that were cut."""
    rows = episode("e1", ("s", "a", 1.0)) + episode("e2", ("s", "b", 0.0))
    rows += episode("e3", ("s", "a", 0.0), ("dark", "a", 0.0), terminal=False, timeout=True)
    rows += episode("e4", ("dark", "b", 0.0), terminal=False, timeout=True)
    dataset = orl.frame(make_log(rows))
    table = fit("return_conditioned", dataset).policy.probabilities
    assert table[dataset.states.index("s")] == pytest.approx([1, 0])
    assert table[dataset.states.index("dark")] == pytest.approx([1, 0]), "majority of the log, the first of equals"
    table = fit("return_conditioned", dataset, imitate="frequencies").policy.probabilities
    assert table[dataset.states.index("dark")] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("name", ["return_conditioned", "awr"])
def test_torn_sequences_and_cut_logs_are_refused(name: str) -> None:
    torn = orl.frame(make_log(BY_HAND), edits=[orl.DropAction("d", how="transitions")])
    with pytest.raises(NotPossible, match="whole episodes"):
        fit(name, torn)
    cut = orl.frame(make_log(episode("e", ("s", "a", 1.0), ("s", "a", 1.0), terminal=False, timeout=True)))
    with pytest.raises(NotPossible, match="were cut"):
        fit(name, cut)
    whole = orl.frame(make_log(BY_HAND), edits=[orl.DropAction("d", how="episodes")])
    assert fit(name, whole).policy.greedy_actions()[1] == "c"


def test_the_value_of_the_behavior_needs_no_whole_episodes() -> None:
    torn = orl.frame(make_log(BY_HAND), edits=[orl.DropAction("d", how="transitions")])
    assert fit("awr", torn, returns="expected").converged


def test_the_halt_is_refused_where_it_would_cost_everything() -> None:
    dataset = orl.frame(make_log(BY_HAND), orl.Framing(state="state_text", discount=1.0))
    with pytest.raises(NotPossible, match="infinite at discount 1"):
        fit("morel", dataset)
    for name in FAMILY:
        if name != "morel":
            assert fit(name, dataset).converged


# -- on any log -----------------------------------------------------------------------------------------------


def framed(rows: list[Row], discount: float = 0.9) -> Dataset:
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text", discount=discount))
    assume(dataset.has_rewards)
    return dataset


def unless_refused(name: str, dataset: Dataset, **parameters: Any) -> TrainedModel | None:
    """Trained, or None where a learner of whole episodes finds none."""
    try:
        return fit(name, dataset, **parameters)
    except NotPossible:
        if name in ("awr", "filtered_bc", "return_conditioned"):
            return None
        raise


@few_examples
@given(random_rows(), st.sampled_from([-5.0, 0.0, 5.0]))
def test_values_are_finite_and_policies_are_distributions(rows: list[Row], default_value: float) -> None:
    dataset = framed(rows)
    for name in FAMILY:
        model = unless_refused(name, dataset, **({"default_value": default_value} if name in WITH_DEFAULT else {}))
        if model is None:
            continue
        assert model.converged
        table = model.policy.probabilities
        assert table.sum(axis=1) == pytest.approx(np.ones(dataset.n_states))
        assert not table[~dataset.valid_mask].any()
        assert all(math.isfinite(value) for p in model.history for value in p.metrics.values())
        if model.q_values is not None:
            assert np.isfinite(model.q_values[table > 0]).all()
            assert not np.isinf(model.q_values).any()


@few_examples
@given(random_rows())
def test_those_inside_the_log_never_leave_it(rows: list[Row]) -> None:
    dataset = framed(rows)
    seen = dataset.visitation_counts > 0
    for name in ("bcq", "bear", "iql", "awr", "kl_regularized", "spibb", "return_conditioned"):
        parameters = {"default_value": 100.0} if name in WITH_DEFAULT else {}
        model = unless_refused(name, dataset, **parameters)
        if model is not None:
            assert not (model.policy.probabilities * ~seen)[seen.any(axis=1)].any()


ORDERS: list[tuple[str, str, list[float], int]] = [  # learner, parameter, rising values, direction of V
    ("bcq", "threshold", [0.0, 0.4, 0.8, 1.0], -1),
    ("bear", "distance", [0.0, 0.1, 0.5, 1.4143], 1),
    ("iql", "expectile", [0.01, 0.5, 0.8, 0.99], 1),
    ("kl_regularized", "temperature", [0.001, 0.1, 1.0, 100.0], -1),
    ("spibb", "n_wedge", [0, 1, 2, 3, 100], -1),
    ("pessimistic_vi", "penalty_weight", [0.0, 0.2, 1.0, 5.0], -1),
    ("mopo", "penalty_weight", [0.0, 0.2, 1.0, 5.0], -1),
    ("morel", "halt_penalty", [0.0, 0.5, 1.0, 5.0], -1),
    ("morel", "min_count", [1, 2, 3, 10], -1),
]


def check_order(dataset: Dataset, name: str, parameter: str, values: list[float], direction: int) -> None:
    tables = [q_of(fit(name, dataset, **{parameter: value})) for value in values]
    for one, other in pairwise(tables):
        both = ~np.isnan(one) & ~np.isnan(other)
        assert both.any()
        assert (direction * (other - one)[both] >= -1e-8).all()


@pytest.mark.parametrize(("name", "parameter", "values", "direction"), ORDERS)
@seeds
def test_a_turn_of_the_dial_moves_every_value_one_way(
    name: str, parameter: str, values: list[float], direction: int, seed: int
) -> None:
    check_order(holey(seed), name, parameter, values, direction)


@few_examples
@given(random_rows(), st.sampled_from(ORDERS))
def test_it_does_on_any_log(rows: list[Row], order: tuple[str, str, list[float], int]) -> None:
    check_order(framed(rows), *order)


@few_examples
@given(random_rows())
def test_between_the_log_and_the_best_inside_it(rows: list[Row]) -> None:
    dataset = framed(rows)
    floor, ceiling = behavior_q(dataset), q_of(fit("fqi_support", dataset))
    for name in ("bear", "iql", "kl_regularized", "spibb"):
        found = q_of(fit(name, dataset))
        where = ~np.isnan(found)
        assert (found[where] <= ceiling[where] + 1e-8).all()
        assert (found[where] >= floor[where] - 1e-8).all()


@pytest.mark.parametrize("name", [*WITH_DEFAULT, "morel"])
def test_values_scale_with_rewards(name: str) -> None:
    """What is in reward units is scaled along; weights in spans stay. Policies don't change."""
    rows = holey_rows(1)
    one, eight = (
        orl.frame(make_log(rows), orl.Framing(state="state_text", reward=f"reward * {c}", discount=0.9)) for c in (1, 8)
    )
    scaled = {"default_value": 0.25, "temperature": 0.5}
    names = ALGORITHMS[name].config_class.__dataclass_fields__
    parameters = {key: value for key, value in scaled.items() if key in names}
    plain = fit(name, one, **parameters)
    larger = fit(name, eight, **{key: 8 * value for key, value in parameters.items()})
    assert q_of(larger) == pytest.approx(8 * q_of(plain), nan_ok=True, abs=1e-8)
    assert larger.policy.probabilities == pytest.approx(plain.policy.probabilities, abs=1e-8)


# -- what rewards can reach -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "rewards", "discount", "expected"),
    [
        ([0.0, 10.0], (-1.0, 1.0), 0.9, 0.0),
        ([0.0, 10.5], (-1.0, 1.0), 0.9, 0.5),
        ([-11.0, 12.0], (-1.0, 1.0), 0.9, 2.0),
        ([-14.0, 12.0], (-1.0, 1.0), 0.9, 4.0),
        ([0.0], (-3.0, -1.0), 0.5, 1.0),  # an episode has a step: at least one reward of -1
        ([0.0], (1.0, 3.0), 0.5, 1.0),
        ([1e9], (0.0, 1.0), 1.0, 0.0),
        ([-0.5], (0.0, 1.0), 1.0, 0.5),
        ([], (0.0, 1.0), 0.9, 0.0),
    ],
)
def test_how_far_values_leave_what_rewards_can_reach(
    values: list[float], rewards: tuple[float, float], discount: float, expected: float
) -> None:
    assert beyond_reach(np.array(values), rewards, discount) == pytest.approx(expected)


@pytest.mark.parametrize("name", WITH_DEFAULT)
def test_a_wild_guess_is_reported_where_it_enters_a_value(name: str) -> None:
    """Rewards up to 4 at discount 1/2 can't reach more than 8; x was never seen."""
    metrics = fit(name, by_hand(), default_value=1000.0).history[-1].metrics
    if name in ("pessimistic_vi", "mopo"):
        assert metrics["beyond_reach"] == pytest.approx(1000 - 4 - 8)
    else:
        assert metrics["beyond_reach"] == 0, "the guess doesn't enter"
        assert fit(name, by_hand()).history[-1].metrics["beyond_reach"] == 0


# -- what the dataset says row by row -------------------------------------------------------------------------


def returns_by_hand(rows: list[Row], discount: float) -> list[float | None]:
    """Discounted return from each row on, None where it isn't known."""
    framed = framed_by_hand(rows)
    place = {(row["episode_id"], row["t"]): i for i, row in enumerate(framed)}
    found: list[float | None] = [None] * len(rows)
    for i in sorted(range(len(rows)), key=lambda i: -framed[i]["t"]):
        row = framed[i]
        if row["reward"] is None or row["ending"] == 2:
            continue
        if row["ending"] == 1:
            found[i] = row["reward"]
            continue
        later = found[place[row["episode_id"], row["t"] + 1]]
        found[i] = None if later is None else row["reward"] + discount * later
    return found


@few_examples
@given(random_rows(), st.sampled_from([0.0, 0.5, 0.99, 1.0]), st.booleans())
def test_returns_to_go_by_hand(rows: list[Row], discount: float, edited: bool) -> None:
    edits = [orl.KeepFraction(0.6)] if edited else []
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text", discount=discount), edits)
    kept = [row for (row,) in dataset.rows(f"SELECT row FROM ({dataset.relation}) ORDER BY row")]
    expected = [returns_by_hand(rows, discount)[row] for row in kept]
    found = dataset.returns_to_go
    assert found == pytest.approx([math.nan if g is None else g for g in expected], nan_ok=True)
    totals = [framed_by_hand(rows)[row]["episode_return"] for row in kept]
    assert dataset.episode_returns == pytest.approx([math.nan if g is None else g for g in totals], nan_ok=True)
    solved = [math.nan if g is None else float(g > 0) for g in totals]
    assert dataset.episode_solved == pytest.approx(solved, nan_ok=True)
    rewards = [rows[row]["reward"] for row in kept if rows[row]["reward"] is not None]
    assert dataset.reward_range == ((min(rewards), max(rewards)) if rewards else (0, 0))
    ids = [rows[row]["episode_id"] for row in kept]
    pairs = set(zip(ids, dataset.episodes.tolist(), strict=True))
    assert len(pairs) == len(set(ids)) == dataset.n_episodes
    first = {rows[kept[i]]["episode_id"]: rows[kept[i]]["t"] for i in dataset.first_rows}
    assert first == {e: min(rows[row]["t"] for row in kept if rows[row]["episode_id"] == e) for e in set(ids)}


def test_a_long_episode_takes_few_rounds() -> None:
    n = 5000
    dataset = orl.frame(
        make_log(episode("e", *((f"{i % 7}", "a", 1.0) for i in range(n)))),
        orl.Framing(state="state_text", discount=0.999),
    )
    left = np.arange(n, 0, -1)
    assert dataset.returns_to_go == pytest.approx((1 - 0.999**left) / (1 - 0.999))


# -- the calculator without mul -------------------------------------------------------------------------------

LUCK = 1 / 81  # 2+2 = 2*2


@pytest.mark.parametrize("name", FAMILY)
def test_without_mul_all_of_them_stay_careful_by_default(name: str) -> None:
    """Two tasks of three, at most the luck of 2+2 on the third, and nothing changes where mul is broken."""
    policy = trained("without_mul", name).policy
    works, *others = (orl.evaluate(policy, "calculator", deployment).success_rate for deployment in DEPLOYMENTS)
    assert 0.66 <= works <= (2 + LUCK) / 3 + 1e-9 < 0.671
    assert others == pytest.approx([works, works], abs=1e-12)


@pytest.mark.parametrize("name", FAMILY)
def test_with_mul_in_the_log_they_solve_it(name: str) -> None:
    success = orl.evaluate(trained("with_mul", name).policy, "calculator").success_rate
    greedy = {"bcq", "spibb", "pessimistic_vi", "mopo", "morel", "filtered_bc", "return_conditioned"}
    assert success == pytest.approx(1) if name in greedy else success > 0.98


@pytest.mark.parametrize("name", ["pessimistic_vi", "mopo"])
def test_a_penalty_is_a_dial_against_the_guess(name: str) -> None:
    """Without a penalty mul looks best and pays only where it works; a high guess outbids any penalty."""
    dataset = dataset_of("without_mul")

    def success(deployment: str, **parameters: float) -> float:
        return orl.evaluate(fit(name, dataset, **parameters).policy, "calculator", deployment).success_rate

    assert success("works", penalty_weight=0.0) == pytest.approx(1)
    assert success("broken", penalty_weight=0.0) == pytest.approx(2 / 3)
    assert success("works", default_value=1.5) == pytest.approx(1)
    assert success("works", default_value=1.5, penalty_weight=10.0) < 0.671


@pytest.mark.parametrize("name", FAMILY)
def test_those_called_instant_are(name: str) -> None:
    dataset = orl.frame(orl.bundled_log("calculator"))
    durations = []
    for _ in range(3):
        begun = time.process_time()
        fit(name, dataset)
        durations.append(time.process_time() - begun)
    assert ALGORITHMS[name].instant
    assert min(durations) < 0.1
