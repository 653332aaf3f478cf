"""The estimators against numbers worked out by hand, plain loops over the papers' equations, enumerated logs and fresh ones."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.arrays import FloatArray
from offrl_core.behavior_policies import TableBehavior
from offrl_core.dataset import Dataset
from offrl_core.errors import InvalidConfig, NotPossible
from offrl_core.evaluation.coverage_study import CoverageStudy
from offrl_core.evaluation.exact import evaluate, true_q_values
from offrl_core.evaluation.ope import ESTIMATORS, PRECONDITIONS, Estimate, estimate_all, point_values, preconditions
from offrl_core.evaluation.ope.bounds import safe_interval
from offrl_core.evaluation.ope.case import Case
from offrl_core.evaluation.ope.magic import blend_weights, lengths, partial_returns
from offrl_core.evaluation.ope.resamples import Resamples, Sums
from offrl_core.interfaces import Progress
from offrl_core.mdp import policy_values
from offrl_core.policies import TabularPolicy
from offrl_core.worlds import make_world

from .helpers import Row, episode, few_examples, make_log, policy_of

every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)
WEIGHING_EPISODES = ("is", "wis", "pdis", "wpdis", "dr", "wdr")
ACTIONS = ("left", "right")
STATES = ("s1", "s2", "s3")

Episode = list[tuple[str, str, float, float]]  # state, action, reward, behavior probability


def rows_of(episodes: list[Episode], cut: frozenset[int] = frozenset()) -> list[Row]:
    rows: list[Row] = []
    for i, steps in enumerate(episodes):
        triples = [(s, a, r) for s, a, r, _ in steps]
        made = episode(f"e{i:04d}", *triples, terminal=i not in cut, timeout=i in cut)
        rows += [row | {"action_logprob": math.log(p)} for row, (*_, p) in zip(made, steps, strict=True)]
    return rows


def framed(episodes: list[Episode], discount: float = 0.9, cut: frozenset[int] = frozenset()) -> Dataset:
    return orl.frame(make_log(rows_of(episodes, cut)), orl.Framing(state="state_text", discount=discount))


def values(policy: TabularPolicy, dataset: Dataset, q: FloatArray | None = None) -> dict[str, float]:
    return point_values(Case(policy, dataset, q), list(ESTIMATORS))


# -- by hand --------------------------------------------------------------------------------------------------


def test_two_episodes_by_hand() -> None:
    """Discount 1/2, behavior 1/2 everywhere; the policy goes left with 3/4 in s1 and always right in s2.

    Episode A: s1 left 1, s2 right 2: ratios 3/2 and 2, weights 3/2 and 3. Episode B: s1 right 4, over: 1/2, kept as 1/2.
    """
    dataset = framed([[("s1", "left", 1, 0.5), ("s2", "right", 2, 0.5)], [("s1", "right", 4, 0.5)]], discount=0.5)
    policy = policy_of({"s1": {"left": 0.75, "right": 0.25}, "s2": {"right": 1.0}}, ACTIONS)
    got = values(policy, dataset)
    assert got["is"] == pytest.approx((3 * (1 + 0.5 * 2) + 0.5 * 4) / 2)
    assert got["wis"] == pytest.approx((3 * 2 + 0.5 * 4) / (3 + 0.5))
    assert got["pdis"] == pytest.approx((1.5 * 1 + 0.5 * 3 * 2 + 0.5 * 4) / 2)
    assert got["wpdis"] == pytest.approx((1.5 * 1 + 0.5 * 4) / (1.5 + 0.5) + 0.5 * (3 * 2) / (3 + 0.5))
    # Q(s2, right) = 2, Q(s1, left) = 1 + 1/2 * 2 = 2, Q(s1, right) = 4, so V(s1) = 3/4 * 2 + 1/4 * 4 = 5/2.
    assert got["fqe"] == pytest.approx(2.5)
    # The model fits both episodes exactly: r + V(s')/2 - Q is 0 everywhere, so nothing is corrected.
    assert got["dr"] == pytest.approx(2.5)
    # Weights that add up to 1 differ between the steps: 3/4 and 1/4, then 6/7 and 1/7.
    first = (0.75 * (1 - 2) + 0.25 * (4 - 4)) + 2.5
    second = (6 / 7) * (2 - 2) + 0.75 * 2
    assert got["wdr"] == pytest.approx(first + 0.5 * second)


def test_weighted_doubly_robust_by_hand_with_a_model_that_is_wrong_everywhere() -> None:
    """A model that says 1 for every pair: V is 1, so episode B's correction is 4 - 1 and episode A's 1 - 1, then 2 - 1."""
    dataset = framed([[("s1", "left", 1, 0.5), ("s2", "right", 2, 0.5)], [("s1", "right", 4, 0.5)]], discount=0.5)
    policy = policy_of({"s1": {"left": 0.75, "right": 0.25}, "s2": {"right": 1.0}}, ACTIONS)
    got = values(policy, dataset, np.ones((2, 2)))
    assert got["fqe"] == pytest.approx(1)
    first, second = (1.5 * 0 + 0.5 * 3) / 2 + 1, (3 * 1) / 2 + 1.5 / 2
    assert got["dr"] == pytest.approx(first + 0.5 * second)
    assert got["wdr"] == pytest.approx(0.75 * 0 + 0.25 * 3 + 1 + 0.5 * ((6 / 7) * 1 + 0.75))


# -- plain loops over the papers' equations -------------------------------------------------------------------


def random_episodes(rng: np.random.Generator) -> list[Episode]:
    """Episodes of 1 to 4 steps in a random process; behavior probabilities are those of each step, no frequencies."""
    behavior = rng.dirichlet(np.ones(2), size=3).clip(0.05)
    found: list[Episode] = []
    for _ in range(int(rng.integers(2, 9))):
        steps: Episode = []
        for _ in range(int(rng.integers(1, 5))):
            s, a = int(rng.integers(3)), int(rng.integers(2))
            steps.append((STATES[s], ACTIONS[a], float(rng.integers(-2, 3)), float(behavior[s, a])))
        found.append(steps)
    return found


def random_policy(rng: np.random.Generator) -> TabularPolicy:
    table = rng.dirichlet(np.ones(2), size=3)
    if rng.random() < 0.3:
        table[int(rng.integers(3))] = [1.0, 0.0]
    return TabularPolicy(states=STATES, actions=ACTIONS, probabilities=table)


class Plain:
    """Every estimator as loops over episodes and steps, written from the papers and not from the code."""

    def __init__(self, episodes: list[Episode], policy: TabularPolicy, discount: float, cut: frozenset[int]) -> None:
        self.episodes, self.discount, self.cut = episodes, discount, cut
        self.pi = {(s, a): policy.probabilities[i, j] for i, s in enumerate(STATES) for j, a in enumerate(ACTIONS)}
        self.horizon = max(map(len, episodes))
        self.rho: list[list[float]] = []  # padded: an episode that is over keeps its weight
        for steps in episodes:
            weights, w = [], 1.0
            for s, a, _, p in steps:
                w *= self.pi[s, a] / p
                weights.append(w)
            self.rho.append(weights + [w] * (self.horizon - len(weights)))

    def reward(self, i: int, t: int) -> float:
        return self.episodes[i][t][2] if t < len(self.episodes[i]) else 0.0

    def importance(self) -> dict[str, float]:
        n, g = len(self.episodes), self.discount
        last = [rho[-1] for rho in self.rho]
        returns = [sum(g**t * r for t, (_, _, r, _) in enumerate(steps)) for steps in self.episodes]
        total = sum(w * x for w, x in zip(last, returns, strict=True))
        sums = [sum(self.rho[i][t] for i in range(n)) for t in range(self.horizon)]
        rewards = [sum(self.rho[i][t] * self.reward(i, t) for i in range(n)) for t in range(self.horizon)]
        return {
            "is": total / n,
            "wis": total / sum(last) if sum(last) else 0.0,
            "pdis": sum(g**t * r for t, r in enumerate(rewards)) / n,
            "wpdis": sum(g**t * (r / d if d else 0.0) for t, (r, d) in enumerate(zip(rewards, sums, strict=True))),
        }

    def teaching(self) -> Iterator[tuple[str, str, float, str | None, float]]:
        for i, steps in enumerate(self.episodes):
            for t, (s, a, r, p) in enumerate(steps):
                if t < len(steps) - 1:
                    yield s, a, r, steps[t + 1][0], p
                elif i not in self.cut:
                    yield s, a, r, None, p

    def model(self) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
        """Fitted Q evaluation by many sweeps over the rows."""
        q: dict[tuple[str, str], float] = defaultdict(float)
        rows = list(self.teaching())
        for _ in range(400):
            v = {s: sum(self.pi[s, a] * q[s, a] for a in ACTIONS) for s in STATES}
            targets = defaultdict(list)
            for s, a, r, following, _ in rows:
                targets[s, a].append(r + self.discount * (v[following] if following else 0.0))
            q = defaultdict(float, {pair: sum(x) / len(x) for pair, x in targets.items()})
        return q, {s: sum(self.pi[s, a] * q[s, a] for a in ACTIONS) for s in STATES}

    def start_mean(self, v: Mapping[str, float]) -> float:
        return sum(v[steps[0][0]] for steps in self.episodes) / len(self.episodes)

    def marginal(self) -> float:
        v = dict.fromkeys(STATES, 0.0)
        rows = [(s, r, following, self.pi[s, a] / p) for s, a, r, following, p in self.teaching()]
        for _ in range(400):
            new = {}
            for s in STATES:
                here = [(w, r + self.discount * (v[f] if f else 0.0)) for x, r, f, w in rows if x == s]
                total = sum(w for w, _ in here)
                new[s] = sum(w * x for w, x in here) / total if total else 0.0
            v = new
        return self.start_mean(v)

    def doubly_robust(self, q: Mapping[tuple[str, str], float], v: Mapping[str, float]) -> float:
        """Jiang & Li's recursion, episode by episode; where an episode was cut the recursion ends with the model's value."""
        total = 0.0
        for i, steps in enumerate(self.episodes):
            after = None
            for t in reversed(range(len(steps))):
                s, a, r, p = steps[t]
                if after is None and i in self.cut:
                    after = v[s]
                else:
                    after = v[s] + self.pi[s, a] / p * (r + self.discount * (after or 0.0) - q[s, a])
            total += after or 0.0
        return total / len(self.episodes)

    def weighted_doubly_robust(
        self, q: Mapping[tuple[str, str], float], v: Mapping[str, float], weighed: int | None = None
    ) -> float:
        """Thomas & Brunskill's equation, with ``weighed`` steps before the model takes over (all by default)."""
        n, total, weighed = len(self.episodes), 0.0, self.horizon if weighed is None else weighed
        before = [1 / n] * n
        for t in range(self.horizon + 1):
            for i, steps in enumerate(self.episodes):
                if t < len(steps) and t <= weighed:
                    total += self.discount**t * before[i] * v[steps[t][0]]
            if t >= weighed:
                break
            d = sum(rho[t] for rho in self.rho)
            now = [rho[t] / d if d else 0.0 for rho in self.rho]
            for i, steps in enumerate(self.episodes):
                if t < len(steps) and not (i in self.cut and t == len(steps) - 1):
                    s, a, r, _ = steps[t]
                    total += self.discount**t * now[i] * (r - q[s, a])
            before = now
        return total


@given(st.integers(0, 100_000))
def test_every_estimator_is_what_plain_loops_give(seed: int) -> None:
    rng = np.random.default_rng(seed)
    episodes, policy = random_episodes(rng), random_policy(rng)
    cut = frozenset(np.flatnonzero(rng.random(len(episodes)) < 0.3).tolist())
    dataset = framed(episodes, cut=cut)
    if not dataset.has_rewards:
        return
    got, plain = values(policy, dataset), Plain(episodes, policy, 0.9, cut)
    q, v = plain.model()
    expected = plain.importance() | {
        "fqe": plain.start_mean(v),
        "mis": plain.marginal(),
        "dr": plain.doubly_robust(q, v),
        "wdr": plain.weighted_doubly_robust(q, v),
    }
    assert {name: got[name] for name in expected} == pytest.approx(expected, abs=1e-8)


@few_examples
@given(st.integers(0, 100_000))
def test_partial_returns_weigh_so_many_steps_and_the_blend_lies_between_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    episodes = [steps for _ in range(6) for steps in random_episodes(rng)]
    policy = random_policy(rng)
    dataset, plain = framed(episodes), Plain(episodes, policy, 0.9, frozenset())
    if not dataset.has_rewards:
        return
    case = Case(policy, dataset)
    got = partial_returns(Resamples(Sums(case), case.steps.multiplicity[:, None].astype(float)))
    q, v = plain.model()
    sizes = [sum(column) ** 2 / (sum(w * w for w in column) or 1) for column in zip(*plain.rho, strict=True)]
    assert case.step_sample_sizes == pytest.approx(sizes)
    smaller = [min(pair) for pair in zip(sizes, case.expected_step_sizes.tolist(), strict=True)]
    trusted = next((t for t, size in enumerate(smaller) if size < 10), plain.horizon)
    expected = [plain.weighted_doubly_robust(q, v, j) for j in lengths(trusted)]
    assert got[:, 0] == pytest.approx(expected, abs=1e-8)
    resampled = got + rng.normal(size=(len(got), 50))
    weights = blend_weights(np.hstack([got, resampled]))
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)


def test_where_weights_give_out_the_blend_is_the_model_alone_and_says_so() -> None:
    """Of 400 episodes that toss 20 coins none follows the policy for long; for the first tosses many do."""
    rng = np.random.default_rng(0)
    tosses = rng.integers(2, size=(400, 20))
    episodes = [[(f"t{t}", ACTIONS[a], float(a), 0.5) for t, a in enumerate(row)] for row in tosses.tolist()]
    policy = policy_of({f"t{t}": {"left": 1.0} for t in range(20)}, ACTIONS)
    guesses = estimate_all(policy, framed(episodes), ["wdr", "magic", "fqe"])
    assert guesses["wdr"].value is None
    assert guesses["magic"].value == pytest.approx(guesses["fqe"].value, abs=0.2)
    sizes = [400 / 2 ** (t + 1) for t in range(20)]
    trusted = Case(policy, framed(episodes)).step_sample_sizes
    assert trusted[:3] == pytest.approx(sizes[:3], rel=0.3)
    assert any("for 5 of 20 steps" in w or "for 4 of 20 steps" in w for w in guesses["magic"].warnings)


def test_the_blend_is_the_best_mixture_of_all() -> None:
    """Against a fine grid over mixtures of three, by the same loss."""
    rng = np.random.default_rng(4)
    scales, offsets = np.array([[0.1], [0.6], [1.0]]), np.array([[0.9], [0.2], [0.0]])
    estimates = np.hstack([offsets, offsets + scales * rng.normal(size=(3, 400))])
    low, high = np.quantile(estimates[-1, 1:], [0.25, 0.75])
    bias = np.maximum(low - estimates[:, 0], 0) + np.maximum(estimates[:, 0] - high, 0)
    loss = np.cov(estimates[:, 1:]) + np.outer(bias, bias)
    grid = [np.array([i, j, 100 - i - j]) / 100 for i in range(101) for j in range(101 - i)]
    best = min(float(x @ loss @ x) for x in grid)
    chosen = blend_weights(estimates)
    assert float(chosen @ loss @ chosen) <= best + 1e-9
    assert (chosen > 0).sum() > 1


@few_examples
@given(st.integers(0, 100_000))
def test_fitted_q_evaluation_is_policy_evaluation_of_the_empirical_process(seed: int) -> None:
    rng = np.random.default_rng(seed)
    episodes, policy = random_episodes(rng), random_policy(rng)
    dataset = framed(episodes, cut=frozenset([0]))
    if not dataset.has_rewards:
        return
    case = Case(policy, dataset)
    process = dataset.empirical_mdp(dataset.valid_mask, default_value=0.0)
    exact = policy_values(process, np.ascontiguousarray(case.table.T), dataset.discount)
    starts = dataset.start_counts / dataset.start_counts.sum()
    assert values(policy, dataset)["fqe"] == pytest.approx(float(starts @ exact), abs=1e-9)


def test_resampled_logs_are_estimated_as_if_they_were_logs_of_their_own() -> None:
    """A column of counts gives what a log with each episode that often gives: models are fitted again, too."""
    rng = np.random.default_rng(8)
    episodes, policy = [random_episodes(rng)[0] for _ in range(12)], random_policy(rng)
    dataset = framed(episodes)
    case = Case(policy, dataset)
    itself = Resamples(Sums(case), case.steps.multiplicity[:, None].astype(float))
    counts = rng.integers(1, 4, size=case.steps.n_groups)  # each at least once: nothing falls back on the whole log
    logs = Resamples(Sums(case), counts[:, None].astype(float), itself)
    different = [steps for i, steps in enumerate(episodes) if steps not in episodes[:i]]
    again = framed([steps for steps, n in zip(different, counts.tolist(), strict=True) for _ in range(n)])
    expected = values(policy, again)
    for name in ("is", "wis", "pdis", "wpdis", "fqe", "mis", "dr", "wdr"):
        assert float(ESTIMATORS[name].terms(logs)[0, 0]) == pytest.approx(expected[name], abs=1e-7), name


# -- enumerated logs: every path as often as it is likely -----------------------------------------------------


def enumerated(world_name: str, behavior: Mapping[str, Mapping[str, float]], n: int) -> Dataset:
    """A log of a tiny deterministic-or-not world in which each path occurs exactly as often as expected in n episodes."""
    world = make_world(world_name)
    paths: list[tuple[float, Any, Episode]] = [(p, state, []) for p, state in world.initial_states()]
    whole: list[tuple[float, Episode]] = []
    while paths:
        probability, state, steps = paths.pop()
        for action, chosen in behavior[world.state_key(state)].items():
            for share, following, reward, terminal in world.transitions(state, action):
                longer = [*steps, (world.state_key(state), action, reward, chosen)]
                mass = probability * chosen * share
                if terminal:
                    whole.append((mass, longer))
                elif mass > 0:
                    paths.append((mass, following, longer))
    episodes: list[Episode] = []
    for mass, steps in whole:
        assert (mass * n) == pytest.approx(round(mass * n)), "n must make every path a whole number of episodes"
        episodes += [steps] * round(mass * n)
    return framed(episodes, discount=world.discount)


CHAIN = {str(s): {"go": 0.5, "stop": 0.5} for s in range(3)}
DOORS = {"hall": {"left": 0.5, "right": 0.5}, "room": {"open": 1.0}}
COIN = {"toss": {"heads": 0.25, "tails": 0.75}}
WORLD_CASES = {
    "chain": (CHAIN, {str(s): {"go": 0.9, "stop": 0.1} for s in range(3)}, 64),
    "doors": (DOORS, {"hall": {"left": 0.8, "right": 0.2}, "room": {"open": 1.0}}, 64),
    "coin": (COIN, {"toss": {"heads": 0.7, "tails": 0.3}}, 160),
}


def world_policy(rows: Mapping[str, Mapping[str, float]], world_name: str) -> TabularPolicy:
    return policy_of({key: dict(row) for key, row in rows.items()}, make_world(world_name).action_names)


@pytest.mark.usefixtures("tiny_worlds")
@pytest.mark.parametrize("world_name", WORLD_CASES)
def test_in_expectation_the_unbiased_ones_are_exact(world_name: str) -> None:
    """On a log that holds every path as often as it is likely the mean over the log is the expectation: no bias means equal."""
    behavior, wanted, n = WORLD_CASES[world_name]
    policy, dataset = world_policy(wanted, world_name), enumerated(world_name, behavior, n)
    truth = evaluate(policy, world_name).mean_return
    rng = np.random.default_rng(0)
    any_model = rng.normal(size=(dataset.n_states, dataset.n_actions))
    assert values(policy, dataset)["is"] == pytest.approx(truth, abs=1e-12)
    assert values(policy, dataset)["pdis"] == pytest.approx(truth, abs=1e-12)
    assert values(policy, dataset, any_model)["dr"] == pytest.approx(truth, abs=1e-12), "whatever the model says"
    aliased = world_name == "doors"
    assert (values(policy, dataset)["fqe"] == pytest.approx(truth, abs=1e-9)) is not aliased


@pytest.mark.usefixtures("tiny_worlds")
def test_with_the_exact_model_of_a_deterministic_world_nothing_is_left_to_chance() -> None:
    """Chain, policy 1/2: V(0) = -0.03125 in every log, with no width; also where the behavior probabilities are wrong."""
    policy = world_policy(CHAIN, "chain")
    for seed, wrong in ((0, 0.0), (1, 0.0), (2, -math.log(1.4))):
        log = orl.collect("chain", TableBehavior(probabilities=CHAIN), n_episodes=60, seed=seed)
        rows = [row | {"action_logprob": row["action_logprob"] + wrong} for row in read_rows(log)]
        dataset = orl.frame(make_log(rows), orl.Framing(state="state_text", discount=0.5))
        q = true_q_values(policy, "chain", states=dataset.states, actions=dataset.actions)
        assert values(policy, dataset, q)["dr"] == pytest.approx(-0.03125, abs=1e-12)
        for name in ("wdr",) if wrong else ("dr", "wdr"):
            guess = orl.estimate(policy, dataset, name, q_values=q, n_bootstrap=50)
            assert guess.value == pytest.approx(-0.03125, abs=1e-12)
            assert guess.low == pytest.approx(guess.high, abs=1e-12)
            assert any("no width" in warning for warning in guess.warnings)


def read_rows(log: Any) -> list[Row]:
    names = ("episode_id", "t", "state_text", "action", "reward", "terminal", "timeout", "action_logprob")
    found = log.rows(f"SELECT {', '.join(names)} FROM steps ORDER BY row")
    return [dict(zip(names, row, strict=True)) for row in found]


# -- over many fresh logs ---------------------------------------------------------------------------------------


def finished(study: Any) -> tuple[list[Progress], CoverageStudy]:
    events = []
    while True:
        try:
            events.append(next(study))
        except StopIteration as stop:
            return events, stop.value


@pytest.mark.usefixtures("tiny_worlds")
@pytest.mark.parametrize("world_name", ["doors", "coin"])
def test_over_many_logs_there_is_no_bias_and_intervals_hold_as_often_as_they_say(world_name: str) -> None:
    """200 logs of 100 episodes; coverage at least what 95 % gives within simulation error, for those that promise it."""
    behavior, wanted, _ = WORLD_CASES[world_name]
    policy, table = world_policy(wanted, world_name), TableBehavior(probabilities=behavior)
    dataset = orl.frame(orl.collect(world_name, table, n_episodes=100, seed=1))
    events, study = finished(orl.coverage_study({"p": policy}, dataset, n_logs=200, n_bootstrap=150))
    assert [(event.step, event.total) for event in events] == [(i, 200) for i in range(1, 201)]
    for name in ("is", "pdis"):
        row = study.of("p", name)
        assert row.n_told == 200
        assert abs(row.bias) <= 4 * row.bias_error
        assert row.n_safe == 200
        assert row.n_safe_covered >= 190, "it holds at any number of episodes"
    for name in ("is", "wis", "pdis", "wpdis", "dr", "wdr"):
        assert study.of("p", name).as_promised, name
    if world_name == "doors":
        assert study.of("p", "fqe").as_promised is False, "two rooms under one key"
        assert study.of("p", "fqe").coverage == 0


@pytest.mark.usefixtures("tiny_worlds")
def test_a_study_says_who_ranks_policies_right_and_is_the_same_again() -> None:
    table = TableBehavior(probabilities=DOORS)
    dataset = orl.frame(orl.collect("doors", table, n_episodes=200, seed=1))
    policies = {
        name: world_policy({"hall": {"left": p, "right": 1 - p}, "room": {"open": 1.0}}, "doors")
        for name, p in {"good": 0.9, "bad": 0.1}.items()
    }
    names = ["wis", "fqe"]
    one, two = (finished(orl.coverage_study(policies, dataset, names, n_logs=20, n_bootstrap=20))[1] for _ in range(2))
    assert one == two
    weighted, model = one.ranking
    assert (weighted.share_right, weighted.mean_regret) == (1.0, 0.0)
    assert model.share_right is not None
    assert model.share_right < 0.9, "the state hides the only thing that matters"
    truth = evaluate(policies["good"], "doors", discount=dataset.discount).mean_return
    assert one.table().loc[0, "truth"] == pytest.approx(truth)


def test_a_study_needs_a_world() -> None:
    dataset = framed([[("s1", "left", 1, 0.5)]] * 20)
    policy = policy_of({"s1": {"left": 1.0}}, ACTIONS)
    with pytest.raises(NotPossible, match="no world can collect it again"):
        next(orl.coverage_study({"p": policy}, dataset))


# -- invariances ------------------------------------------------------------------------------------------------


@few_examples
@given(st.integers(0, 100_000))
def test_scaled_rewards_scale_every_estimate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    episodes, policy = random_episodes(rng) * 3, random_policy(rng)
    scaled = [[(s, a, -7.0 * r, p) for s, a, r, p in steps] for steps in episodes]
    if not framed(episodes).has_rewards:
        return
    one, other = values(policy, framed(episodes)), values(policy, framed(scaled))
    assert other == pytest.approx({name: -7 * x for name, x in one.items()}, abs=1e-8)


@few_examples
@given(st.integers(0, 100_000))
def test_a_shift_of_every_reward_shifts_the_self_normalised_ones_by_as_much(seed: int) -> None:
    """Episodes of three steps: 1 more a step is 1 + 0.9 + 0.81 more; plain weights scale the shift by their own mean."""
    rng = np.random.default_rng(seed)
    episodes = [(random_episodes(rng)[0] * 3)[:3] for _ in range(20)]
    policy = random_policy(rng)
    shifted = [[(s, a, r + 1, p) for s, a, r, p in steps] for steps in episodes]
    if not (framed(episodes).has_rewards and framed(shifted).has_rewards):
        return
    one, other = values(policy, framed(episodes)), values(policy, framed(shifted))
    case = Case(policy, framed(episodes))
    if case.episode_weights.sum() > 0:
        assert other["wis"] - one["wis"] == pytest.approx(2.71, abs=1e-9)
        assert other["wpdis"] - one["wpdis"] == pytest.approx(2.71, abs=1e-9)
    assert other["is"] - one["is"] == pytest.approx(2.71 * case.mean_weight[0], abs=1e-9)


@few_examples
@given(st.integers(0, 100_000), st.integers(2, 4))
def test_a_log_repeated_says_the_same_with_more_weight(seed: int, times: int) -> None:
    rng = np.random.default_rng(seed)
    episodes, policy = random_episodes(rng), random_policy(rng)
    one, many = framed(episodes), framed(episodes * times)
    if not one.has_rewards:
        return
    got, expected = values(policy, many), values(policy, one)
    got.pop("magic"), expected.pop("magic")  # with more episodes it trusts weights for more steps
    assert got == pytest.approx(expected, abs=1e-9)
    size, sizes = Case(policy, one), Case(policy, many)
    assert sizes.effective_sample_size == pytest.approx(times * size.effective_sample_size)
    assert sizes.expected_sample_size == pytest.approx(times * size.expected_sample_size)
    assert sizes.visited_sample_size == pytest.approx(times * size.visited_sample_size)
    assert sizes.steps.n_groups == size.steps.n_groups


def test_with_estimated_probabilities_reweighing_steps_is_fitted_q_evaluation() -> None:
    """So are state-action density ratios solved exactly on counts: the visits of the empirical process, times rewards."""
    rng = np.random.default_rng(3)
    rows = rows_of([steps for _ in range(8) for steps in random_episodes(rng)])
    dataset = orl.frame(make_log([row | {"action_logprob": None} for row in rows]), orl.Framing(state="state_text"))
    policy = random_policy(rng)
    got, case = values(policy, dataset), Case(policy, dataset)
    assert got["mis"] == pytest.approx(got["fqe"], abs=1e-9)
    visits = case.visits(dataset.discount)[:, None] * case.table
    process = dataset.empirical_mdp(dataset.valid_mask, default_value=0.0)
    assert float((visits * process.rewards.T).sum()) == pytest.approx(got["fqe"], abs=1e-6)


# -- intervals ----------------------------------------------------------------------------------------------------


def coin_episodes(heads: int, tails: int, p: float = 0.5) -> list[Episode]:
    return [[("s1", "left", 1.0, p)]] * heads + [[("s1", "right", 0.0, 1 - p)]] * tails


def test_the_safe_interval_is_maurer_and_pontils() -> None:
    """Terms 1.8 (30 times) and 0 (20 times) in [0, 1.8]: mean 1.08, and the bound written out."""
    dataset = framed(coin_episodes(30, 20))
    policy = policy_of({"s1": {"left": 0.9, "right": 0.1}}, ACTIONS)
    variance = (30 * (1.8 - 1.08) ** 2 + 20 * 1.08**2) / 49
    log = math.log(4 / 0.05)
    off = math.sqrt(2 * variance * log / 50) + 7 * 1.8 * log / (3 * 49)
    for name in ("is", "pdis"):
        guess = orl.estimate(policy, dataset, name)
        assert guess.safe_low == pytest.approx(1.08 - off)
        assert guess.safe_high == pytest.approx(1.08 + off)
        assert "0 and 1.8" in guess.safe_note
        assert guess.safe_low < guess.low < guess.value < guess.high < guess.safe_high
    for name in ("wis", "fqe", "dr", "wdr", "magic", "mis"):
        guess = orl.estimate(policy, dataset, name)
        assert guess.safe_low is guess.safe_high is None
        assert guess.safe_note


@few_examples
@given(st.integers(0, 100_000))
def test_the_range_of_the_safe_interval_holds_every_term(seed: int) -> None:
    rng = np.random.default_rng(seed)
    episodes, policy = random_episodes(rng) * 5, random_policy(rng)
    dataset, plain = framed(episodes), Plain(episodes, policy, 0.9, frozenset())
    if not dataset.has_rewards:
        return
    for kind in ("is", "pdis"):
        *_, note = safe_interval(Case(policy, dataset), kind, 0.0)
        low, high = (float(x) for x in note.partition("between ")[2].partition(",")[0].split(" and "))
        for i, steps in enumerate(episodes):
            if kind == "is":
                term = plain.rho[i][-1] * sum(0.9**t * r for t, (_, _, r, _) in enumerate(steps))
            else:
                term = sum(0.9**t * plain.rho[i][t] * r for t, (_, _, r, _) in enumerate(steps))
            slack = 0.01 * (1 + abs(term))  # the note rounds to three digits
            assert low - slack <= term <= high + slack


def test_no_safe_interval_with_estimated_probabilities_or_episodes_left_out() -> None:
    policy = policy_of({"s1": {"left": 0.6, "right": 0.4}}, ACTIONS)
    rows = rows_of(coin_episodes(30, 20))
    silent = orl.frame(make_log([row | {"action_logprob": None} for row in rows]))
    assert "not estimated" in orl.estimate(policy, silent, "is").safe_note
    unknown = orl.frame(make_log([*rows, *episode("u", ("s1", "left", None), action_logprob=math.log(0.5))]))
    assert "left out" in orl.estimate(policy, unknown, "is").safe_note


def test_all_at_once_is_the_same_as_one_by_one(dataset_with_mul: Dataset) -> None:
    policy = orl.train(dataset_with_mul, "bc").policy
    together = estimate_all(policy, dataset_with_mul, n_bootstrap=40)
    alone = {name: orl.estimate(policy, dataset_with_mul, name, n_bootstrap=40) for name in ESTIMATORS}
    assert together == alone


# -- preconditions --------------------------------------------------------------------------------------------------


def is_a_clear_refusal(guess: Estimate) -> bool:
    numbers = (guess.effective_sample_size, guess.overlap)
    return (
        guess.value is guess.low is guess.high is None and guess.unmet in PRECONDITIONS and not np.isnan(numbers).any()
    )


def test_every_entry_says_what_it_is_and_what_it_needs() -> None:
    for spec in ESTIMATORS.values():
        assert spec.title
        assert spec.summary.endswith(".")
        assert spec.equation
        assert spec.source
        assert spec.differs
        assert set(spec.needs) <= set(PRECONDITIONS)


@every_estimator
def test_a_single_episode_is_refused(estimator: str) -> None:
    guess = orl.estimate(policy_of({"s1": {"left": 1.0}}, ACTIONS), framed([[("s1", "left", 1, 0.5)]]), estimator)
    assert is_a_clear_refusal(guess)
    assert "at least 10 needed" in guess.refusal


@every_estimator
def test_a_constant_return_is_told_and_said_to_tell_nothing(estimator: str) -> None:
    dataset = framed([[("s1", "left", 1.0, 0.5)], [("s1", "right", 1.0, 0.5)]] * 40)
    guess = orl.estimate(policy_of({"s1": {"left": 0.7, "right": 0.3}}, ACTIONS), dataset, estimator)
    assert guess.value == pytest.approx(1.0)
    assert any("the same return (1)" in warning for warning in guess.warnings)


@pytest.mark.parametrize(
    ("logprob", "sentence"),
    [
        (math.nan, "is not a number (NaN) on 1 of 80 steps"),
        (0.5, "above 1 on 1 of 80 steps"),
        (-math.inf, "are 0 on 1 of 80 steps"),
    ],
)
@every_estimator
def test_impossible_probabilities_are_a_sentence_each(estimator: str, logprob: float, sentence: str) -> None:
    rows = rows_of(coin_episodes(40, 40))
    rows[3]["action_logprob"] = logprob
    dataset = orl.frame(make_log(rows))
    if dataset.log.rows("SELECT count(*) FROM steps WHERE action_logprob IS NULL") == [(1,)]:
        pytest.skip("the schema keeps no such number")
    guess = orl.estimate(policy_of({"s1": {"left": 0.7, "right": 0.3}}, ACTIONS), dataset, estimator)
    if estimator == "fqe":
        assert guess.value == pytest.approx(0.7)
        assert guess.propensities == "not used"
    else:
        assert is_a_clear_refusal(guess)
        assert guess.unmet == "propensities"
        assert sentence in guess.refusal


@every_estimator
def test_a_policy_without_overlap_is_refused(estimator: str) -> None:
    dataset = framed([[("s1", "left", 1.0, 1.0)]] * 40)
    policy = policy_of({"s1": {"right": 1.0}}, ACTIONS)
    rows = rows_of([[("s1", "left", 1.0, 1.0)]] * 40)
    for row in rows:
        row["available_tools"] = list(ACTIONS)
    offered = orl.frame(make_log(rows), orl.Framing(state="state_text"))
    for log in (dataset, offered):
        guess = orl.estimate(policy, log, estimator)
        assert is_a_clear_refusal(guess)
        assert guess.overlap == 0.0
        assert "does what the log never shows in about 100% of the episodes" in guess.refusal


def no_terminals(lengths: list[int]) -> Dataset:
    episodes = [[("s1", ACTIONS[i % 2], 1.0, 0.5)] * n for i, n in enumerate(lengths)]
    return framed(episodes, cut=frozenset(range(len(episodes))))


@every_estimator
def test_a_log_without_any_ending_is_refused_where_cuts_are_arbitrary_and_warned_about_where_not(
    estimator: str,
) -> None:
    policy = policy_of({"s1": {"left": 0.5, "right": 0.5}}, ACTIONS)
    arbitrary = orl.estimate(policy, no_terminals([2, 3, 4, 5] * 20), estimator)
    fixed = orl.estimate(policy, no_terminals([3] * 80), estimator)
    assert any("80 of 80 episodes were cut" in warning for warning in fixed.warnings)
    if estimator in WEIGHING_EPISODES:
        assert is_a_clear_refusal(arbitrary)
        assert "cut after different numbers of steps" in arbitrary.refusal
    else:
        assert arbitrary.value == pytest.approx(10.0, rel=1e-6), "1 a step for ever, discount 0.9"
    horizon = 1 + 0.9 + 0.81
    if estimator in ("is", "wis", "pdis", "wpdis"):
        assert fixed.value == pytest.approx(horizon)


def test_without_a_discount_and_an_ending_there_is_no_value() -> None:
    episodes: list[Episode] = [[("s1", ACTIONS[i % 2], 1.0, 0.5)] * 3 for i in range(60)]
    dataset = framed(episodes, discount=1.0, cut=frozenset(range(60)))
    guess = orl.estimate(policy_of({"s1": {"left": 0.5, "right": 0.5}}, ACTIONS), dataset, "fqe")
    assert is_a_clear_refusal(guess)
    assert "100% of this policy's episodes never end" in guess.refusal


@every_estimator
def test_gaps_and_unknown_returns_are_left_out_or_refused(estimator: str) -> None:
    policy = policy_of({"s1": {"left": 0.5, "right": 0.5}}, ACTIONS)
    fine: list[Episode] = [[("s1", a, float(a == "left"), 0.5), ("s1", a, 0.0, 0.5)] for a in ACTIONS] * 30
    rows = rows_of(fine)
    half = {f"e{i:04d}" for i in range(30)}
    gaps = orl.frame(make_log([row | {"t": 5 * row["t"]} if row["episode_id"] in half else row for row in rows]))
    holes = orl.frame(make_log([row | {"reward": None} if row["episode_id"] in half else row for row in rows]))
    few = orl.frame(make_log([row | {"t": 5 * row["t"]} if row["episode_id"] == "e0000" else row for row in rows]))
    for dataset, sentence in (
        (gaps, "30 of 60 episodes miss steps"),
        (holes, "30 of 60 episodes have an unknown return"),
    ):
        guess = orl.estimate(policy, dataset, estimator)
        assert is_a_clear_refusal(guess) is ESTIMATORS[estimator].weighs_episodes
        assert (sentence in guess.refusal) is ESTIMATORS[estimator].weighs_episodes
    told = orl.estimate(policy, few, estimator)
    assert told.value is not None
    assert any("1 of 60 episodes miss steps" in w for w in told.warnings) is ESTIMATORS[estimator].weighs_episodes


@every_estimator
def test_rewards_that_stand_at_the_end_only_are_not_called_missing(estimator: str) -> None:
    policy = policy_of({"s1": {"left": 0.5, "right": 0.5}}, ACTIONS)
    fine: list[Episode] = [[("s1", a, 0.0, 0.5), ("s1", a, float(a == "left"), 0.5)] for a in ACTIONS] * 30
    log = make_log([row | {"reward": row["reward"] if row["t"] else None} for row in rows_of(fine)])
    step_by_step = orl.estimate(policy, orl.frame(log, orl.FRAMINGS["world_state"]), estimator)
    if ESTIMATORS[estimator].weighs_episodes:
        assert "60 of 60 episodes have an unknown return" in step_by_step.refusal
        assert "choose as the reward: outcome, at the end of the episode" in step_by_step.refusal
        assert "missing rewards" not in step_by_step.refusal
    by_itself = orl.estimate(policy, orl.frame(log), estimator)  # the framing of such a log takes the outcome
    with_zeros = orl.estimate(policy, orl.frame(make_log(rows_of(fine))), estimator)
    assert by_itself.value == pytest.approx(with_zeros.value)


def test_episodes_that_branch_off_another_one_are_left_out_and_counted() -> None:
    policy = policy_of({"s1": {"left": 0.5, "right": 0.5}}, ACTIONS)
    rows = rows_of(coin_episodes(30, 30))
    branch = episode("b", ("s1", "left", 100.0), action_logprob=math.log(0.5))
    branched = [row | {"parent_episode": "e0000", "t": 4} for row in branch]
    child = [
        row | {"parent_episode": "e0000"} for row in episode("c", ("s1", "left", 1.0), action_logprob=math.log(0.5))
    ]
    guess = orl.estimate(policy, orl.frame(make_log([*rows, *branched, *child])), "wis")
    assert guess.value == pytest.approx(31 / 61), "a sub-agent's episode begins at its beginning and counts"
    assert any("1 of 62 episodes branch off another" in warning for warning in guess.warnings)


@pytest.mark.parametrize("estimator", WEIGHING_EPISODES)
def test_weights_that_have_not_turned_up_yet_are_known_all_the_same(estimator: str) -> None:
    """Every logged episode alternates, so all weights are equal and the sample looks perfect: (Σw)²/Σw² is 100.

    But at each of 20 steps the mean square of a ratio is (0.9² + 0.1²) / 0.5 = 1.64, so 100 episodes are worth 100 / 1.64^20.
    """
    episodes = [[(f"t{t}", ACTIONS[(i + t) % 2], float(i % 2), 0.5) for t in range(20)] for i in range(100)]
    policy = policy_of({f"t{t}": {"left": 0.9, "right": 0.1} for t in range(20)}, ACTIONS)
    dataset = framed(episodes)
    case = Case(policy, dataset)
    assert case.effective_sample_size == pytest.approx(100)
    assert case.expected_sample_size == pytest.approx(100 / 1.64**20)
    guess = orl.estimate(policy, dataset, estimator)
    assert is_a_clear_refusal(guess)
    assert guess.unmet == "horizon"
    assert "have not turned up yet" in guess.refusal


def test_weights_that_dont_average_one_are_warned_about() -> None:
    """The log claims 1/4 for heads and 3/4 for tails, and shows both equally often."""
    dataset = framed([[("s1", "left", 1.0, 0.25)], [("s1", "right", 0.0, 0.75)]] * 200)
    policy = policy_of({"s1": {"left": 0.5, "right": 0.5}}, ACTIONS)
    guesses = estimate_all(policy, dataset)
    for name in ("wis", "wpdis", "wdr"):
        assert any("average 1.33 where they should average 1" in warning for warning in guesses[name].warnings)
    for name in ("is", "pdis", "dr"):
        assert is_a_clear_refusal(guesses[name])
        assert "plain weights would be off by as much" in guesses[name].refusal


def test_one_log_by_agents_that_never_do_the_same_is_no_log_for_plain_weights() -> None:
    """Half of the episodes come from an agent that always goes left, half from one that always goes right, each sure of it."""
    dataset = framed([[("s1", "left", 1.0, 1.0)], [("s1", "right", 0.0, 1.0)]] * 100)
    guesses = estimate_all(policy_of({"s1": {"left": 0.8, "right": 0.2}}, ACTIONS), dataset)
    assert "some of the log's agents never do" in guesses["is"].refusal
    assert guesses["wis"].value == pytest.approx(0.8)


def test_some_missing_probabilities_make_all_of_them_estimated_and_it_says_so() -> None:
    rows = rows_of(coin_episodes(30, 20))
    rows[0]["action_logprob"] = None
    guess = orl.estimate(policy_of({"s1": {"left": 0.9, "right": 0.1}}, ACTIONS), orl.frame(make_log(rows)), "is")
    assert guess.propensities == "estimated"
    assert any("1 of 50 steps don't say" in warning for warning in guess.warnings)


def test_preconditions_are_listed_up_to_the_first_that_is_not_met(dataset_without_mul: Dataset) -> None:
    policy = orl.train(dataset_without_mul, "fqi").policy
    checked = preconditions(policy, dataset_without_mul, "wdr")
    assert [c.name for c in checked] == list(ESTIMATORS["wdr"].needs[: len(checked)])
    assert [c.met for c in checked] == [True] * (len(checked) - 1) + [False]
    assert checked[-1].name == "overlap"
    assert checked[-1].sentence == orl.estimate(policy, dataset_without_mul, "wdr").refusal


def test_values_of_somebody_else_must_fit() -> None:
    dataset, policy = framed(coin_episodes(30, 20)), policy_of({"s1": {"left": 0.9, "right": 0.1}}, ACTIONS)
    with pytest.raises(ValueError, match="q_values has shape"):
        orl.estimate(policy, dataset, "dr", q_values=np.zeros((3, 3)))
    with pytest.raises(InvalidConfig, match="infinite"):
        orl.estimate(policy, dataset, "dr", q_values=np.full((1, 2), np.inf))
    with pytest.raises(InvalidConfig, match="at least 1"):
        orl.estimate(policy, dataset, "dr", n_bootstrap=0)


@few_examples
@given(st.integers(0, 100_000), st.sampled_from(list(ESTIMATORS)))
def test_whatever_the_log_there_is_a_number_with_an_interval_or_a_sentence(seed: int, estimator: str) -> None:
    rng = np.random.default_rng(seed)
    rows = rows_of(random_episodes(rng) * int(rng.integers(1, 9)))
    for row in rows:
        for name, value in (("reward", None), ("action_logprob", None), ("action_logprob", 0.7), ("timeout", True)):
            if rng.random() < 0.01:
                row[name] = value
    guess = orl.estimate(random_policy(rng), orl.frame(make_log(rows)), estimator, n_bootstrap=20)
    numbers = [x for x in dataclasses.asdict(guess).values() if isinstance(x, float)]
    assert not np.isnan(numbers).any()
    assert (guess.value is None) is bool(guess.refusal) is bool(guess.unmet)
    assert (guess.value is None) is (guess.low is None) is (guess.high is None)


# -- comparison, split, card ------------------------------------------------------------------------------------------


def test_learning_and_judging_share_no_episode(dataset_with_mul: Dataset) -> None:
    log = dataset_with_mul.log
    for before in ([], [orl.KeepFraction(0.5, 0)], [orl.KeepFraction(0.5, 0), orl.KeepRest(0.5, 1)]):
        learn, judge = (orl.frame(log, edits=edits) for edits in orl.split_edits(before, 0.7, seed=0))
        assert not np.intersect1d(learn.places, judge.places).size
        together = orl.frame(log, edits=before)
        assert np.array_equal(np.union1d(learn.places, judge.places), together.places)
        assert learn.n_episodes == pytest.approx(0.7 * together.n_episodes, rel=0.1)
    policy = orl.train(learn, "bc").policy
    apart = orl.estimate(policy, judge, trained_on=learn, n_bootstrap=20)
    same = orl.estimate(policy, judge, trained_on=judge, n_bootstrap=20)
    unsaid = orl.estimate(policy, judge, n_bootstrap=20)
    assert not any("trained on" in warning for warning in apart.warnings)
    n = judge.n_episodes
    assert any(f"trained on {n:,} of these {n:,} episodes" in warning for warning in same.warnings)
    assert any("may have been trained on these very episodes" in warning for warning in unsaid.warnings)
    with pytest.raises(orl.OffRLError, match="leave something"):
        orl.split_edits([], 1.0)


def test_a_comparison_puts_truth_and_refusals_beside_the_estimates(dataset_without_mul: Dataset) -> None:
    policies = {name: orl.train(dataset_without_mul, name).policy for name in ("fqi", "fqi_support")}
    comparison = orl.compare_estimators(policies, dataset_without_mul, ["wis", "fqe", "wdr"], n_bootstrap=50)
    table = comparison.table()
    assert len(table) == 6
    assert table.loc[table.policy == "fqi", "value"].isna().all()
    assert table.loc[table.policy == "fqi", "refusal"].str.contains("would help").all()
    assert set(table.truth) == {evaluate(p, "calculator").mean_return for p in policies.values()}
    returns = dataset_without_mul.log.rows("SELECT sum(reward * pow(0.99, t)) FROM steps GROUP BY episode_id")
    assert comparison.logged.value == pytest.approx(np.mean(returns))
    card = orl.judge(comparison, "fqi")
    assert (card.verdict, card.believe, card.value) == ("no number", "", None)
    assert "can't say what fqi is worth" in card.headline
    assert "mul: x, y known" in card.reasons[0]


def test_the_card_believes_weights_where_the_state_hides_what_matters(dataset_with_mul: Dataset) -> None:
    """The calculator's key lumps right and wrong results together: fitted Q evaluation is sure and wrong."""
    policy = orl.train(dataset_with_mul, "fqi").policy
    comparison = orl.compare_estimators({"naive": policy}, dataset_with_mul, n_bootstrap=100)
    card = orl.judge(comparison, "naive")
    truth = evaluate(policy, "calculator").mean_return
    model = comparison.estimates["naive"]["fqe"]
    assert model.high is not None
    assert model.high < truth
    assert card.believe == "wdr"
    assert card.verdict == "better"
    assert card.low is not None
    assert card.high is not None
    assert card.low <= truth <= card.high
    assert any("the state hides something that matters" in reason for reason in card.reasons)
    assert set(card.others) == set(ESTIMATORS) - {"wdr"}
    assert card.truth == pytest.approx(truth)


def test_the_card_says_when_nothing_checks_the_model_and_when_probabilities_are_guessed() -> None:
    policy = policy_of({"s1": {"left": 0.9, "right": 0.1}}, ACTIONS)
    rows = [row | {"action_logprob": None} for row in rows_of(coin_episodes(30, 20))]
    dataset = orl.frame(make_log(rows))
    model_only = orl.judge(orl.compare_estimators({"p": policy}, dataset, ["fqe"]), "p")
    assert model_only.believe == "fqe"
    assert any("Nothing checks here" in doubt for doubt in model_only.doubts)
    guessed = orl.judge(orl.compare_estimators({"p": policy}, dataset, ["wis"]), "p")
    assert any("are estimated" in doubt for doubt in guessed.doubts)
    assert guessed.truth is None


@pytest.mark.usefixtures("tiny_worlds")
def test_the_card_passes_over_an_estimator_that_broke_its_promise_on_fresh_logs() -> None:
    dataset = orl.frame(orl.collect("doors", TableBehavior(probabilities=DOORS), n_episodes=200, seed=1))
    policy = world_policy(WORLD_CASES["doors"][1], "doors")
    comparison = orl.compare_estimators({"p": policy}, dataset, ["fqe", "is"], n_bootstrap=50)
    _, study = finished(orl.coverage_study({"p": policy}, dataset, ["fqe", "is"], n_logs=30, n_bootstrap=50))
    card = orl.judge(comparison, "p", study)
    assert card.believe == "is"
    assert "held the truth only 0% of the time" in card.others["fqe"]
