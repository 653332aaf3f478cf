"""Logs that nobody would make on purpose, through all learners, estimators and judgements: numbers, or a sentence why not."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import offrl_core as orl
from offrl_core.algorithms import cql
from offrl_core.dataset import Dataset
from offrl_core.evaluation.aliasing import mixed_outcomes, suggest_splits
from offrl_core.framing_choices import FramingChoices
from offrl_core.framing_parts import LoggedReward, WorldState
from offrl_core.interfaces import TrainedModel
from offrl_core.policies import table_of
from offrl_core.schema import LARGEST_REWARD
from tests.core.helpers import make_log

Row = dict[str, Any]


def rows_of(n_episodes: int, n_steps: int, reward: Callable[[int], object], **more: Any) -> list[Row]:
    """Episodes that take turns among two states and three actions; the i-th step earns ``reward(i)``."""
    return [
        {
            "episode_id": f"e{e}",
            "t": t,
            "action": "abc"[(e + t) % 3],
            "state_text": f"s{t % 2}",
            "reward": reward(e * n_steps + t),
            "terminal": t == n_steps - 1,
            "timeout": False,
        }
        | more
        for e in range(n_episodes)
        for t in range(n_steps)
    ]


ODD: dict[str, list[Row]] = {
    "one step": rows_of(1, 1, lambda i: 1.0),
    "one action in one state": rows_of(12, 1, lambda i: float(i % 2), action="a", state_text="s"),
    "rewards as large as can be": rows_of(12, 3, lambda i: LARGEST_REWARD * (-1) ** i),
    "rewards of all sizes": rows_of(12, 3, lambda i: [1e100, -1e-300, 5e-324, -0.0, 1e16, 1.0, -1e50][i % 7]),
    "rewards too small to be squared": rows_of(12, 3, lambda i: [5e-324, 0.0][i % 2]),
    "rewards that are too large": rows_of(12, 3, lambda i: [1e308, -1e308, 1.0][i % 3]),
    "no ending": rows_of(12, 3, lambda i: float(i % 2), terminal=None, timeout=None),
    "all cut": rows_of(12, 3, lambda i: float(i % 2), terminal=False, timeout=None),
    "some rewards unknown": rows_of(12, 2, lambda i: [None, 1.0, 0.0][i % 3]),
    "59 actions": [row | {"action": f"tool {i % 59}"} for i, row in enumerate(rows_of(20, 3, lambda i: float(i % 2)))],
    "long and odd names": [
        row | {"action": ["x" * 10_000, "умножить 🙂\x00\n", "'; --"][i % 3], "state_text": "k" * 10_000 + str(i % 2)}
        for i, row in enumerate(rows_of(12, 2, lambda i: 1.0))
    ],
    "probabilities near 0": rows_of(12, 2, lambda i: 1.0, action_logprob=-700.0),
}
TABULAR = [name for name in orl.ALGORITHMS if not name.endswith("_neural") and name != "decision_transformer"]


@pytest.fixture(autouse=True)
def no_arithmetic_by_accident():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def said(judge: Callable[[], Any]) -> Any:
    """What a judgement says, None where it says in a sentence that it can't."""
    try:
        return judge()
    except orl.OffRLError as error:
        sentence = str(error)
    assert "nan" not in sentence.split(), sentence
    return None


def framed(name: str, discount: float) -> Dataset:
    framing = orl.Framing(state="state_text", action="action", reward="reward", discount=discount)
    return orl.frame(make_log(ODD[name]), framing)


@pytest.mark.parametrize("name", ODD)
def test_judgements_give_numbers_or_say_why_not(name):
    for discount in (0.0, 0.9, 1.0):
        dataset = framed(name, discount)
        found = said(partial(orl.ceiling, dataset))
        assert found is None or math.isfinite(found.value)
        said(partial(orl.forecast, dataset))
        said(partial(orl.log_quality, dataset))
        said(partial(orl.assess, dataset.log, dataset))
        hidden = mixed_outcomes(dataset).left_open
        assert hidden is None or math.isfinite(hidden)
        suggest_splits(dataset, FramingChoices(state=(WorldState(),), reward=LoggedReward()))


@pytest.mark.parametrize("name", ODD)
def test_learners_and_estimates_give_numbers_or_say_why_not(name):
    trials = [*((0.9, learner) for learner in TABULAR), (0.0, "fqi"), (1.0, "fqi")]
    judged = set()
    for discount, learner in trials:
        dataset = framed(name, discount)
        more = {"n_sweeps": 3} if learner == "fqi_sampled" else {}
        model = said(partial(orl.train, dataset, learner, seed=0, **more))
        if model is not None:
            check_model(model)
            said(partial(orl.value_ledger, dataset, model))
            if (key := (discount, model.policy.digest())) not in judged:
                judged.add(key)
                check_policy(dataset, model)


def check_model(model: TrainedModel) -> None:
    probabilities = table_of(model.policy, "A test").probabilities
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert model.q_values is None or not np.isinf(model.q_values).any()


def check_policy(dataset: Dataset, model: TrainedModel) -> None:
    said(partial(orl.leaving_steps, dataset, model))
    said(partial(orl.distribution_shift, dataset, model.policy))
    for estimate in orl.estimate_all(model.policy, dataset, n_bootstrap=3).values():
        assert math.isfinite(estimate.effective_sample_size)
        assert "nan" not in estimate.refusal.split()
        numbers = (estimate.value, estimate.low, estimate.high)
        assert numbers == (None, None, None) if estimate.refusal else all(map(math.isfinite, numbers))


TOO_LARGE = [
    {"episode_id": "a", "t": t, "action": "go", "reward": r} for t, r in enumerate([1.0, 1e308, -1e101, 1e100])
]


def test_a_reward_that_no_sum_can_hold_is_unknown_and_in_the_report():
    log = orl.read_traces(contents=[("a.jsonl", "\n".join(map(json.dumps, TOO_LARGE)).encode())])
    assert log.columns("reward")["reward"].to_pylist() == [1.0, None, None, 1e100]
    problems = [p for p in log.report.problems if p.kind == "reward is too large"]
    assert [(p.file, p.record, p.field, p.lost, p.excerpt) for p in problems] == [
        ("a.jsonl", 2, "reward", False, "1e+308"),
        ("a.jsonl", 3, "reward", False, "-1e+101"),
    ]
    assert all(p.offset is not None for p in problems)


def test_a_framing_whose_rewards_no_sum_can_hold_leaves_them_unknown():
    framing = orl.Framing(state="state_text", action="action", reward="reward * 1e200")
    dataset = orl.frame(make_log(rows_of(3, 2, lambda i: float(i % 2))), framing)
    assert np.isnan(dataset.transitions().rewards).tolist() == [False, True] * 3


def test_a_discount_of_0_leaves_the_sample_size_of_a_model_a_number():
    log = make_log(rows_of(60, 3, lambda i: float(i % 2)))
    dataset = orl.frame(log, orl.Framing(state="'s' || t", action="action", reward="reward", discount=0.0))
    guess = orl.estimate(orl.train(dataset, "bc").policy, dataset, "fqe")
    assert guess.refusal == ""
    assert guess.effective_sample_size == pytest.approx(
        20
    )  # copied in the one state that counts: a third of the episodes


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e16, 1e100])
def test_the_penalised_fit_stops_at_rounding_errors_whatever_the_rewards_are_counted_in(scale, monkeypatch):
    looks = []
    monkeypatch.setattr(
        cql, "masked_softmax", lambda *args, original=cql.masked_softmax: (looks.append(1), original(*args))[1]
    )
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 5, (4, 9))
    rows = np.maximum(counts.sum(axis=0), 1)
    targets = scale * rng.normal(size=counts.shape)
    cql.penalised_fit(
        targets, np.maximum(counts, 1) / rows, counts / rows, np.ones(counts.shape, dtype=bool), 1.0, start=0 * targets
    )
    assert len(looks) < 30
