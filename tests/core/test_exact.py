"""Exact values on the calculator: held against rollouts, against the log itself and against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import offrl_core as orl
from offrl_core.behavior import BEHAVIORS, Behavior, behavior_policy
from offrl_core.dataset import Dataset
from offrl_core.errors import NotPossible
from offrl_core.evaluation.diagnostics import exact_q_of
from offrl_core.evaluation.exact import (
    evaluate,
    optimal_q_values,
    return_distribution,
    true_q_values,
    world_model,
)
from offrl_core.interfaces import TrainedModel
from offrl_core.policies import TabularPolicy, uniform_policy
from offrl_core.worlds import WORLDS, make_world
from offrl_core.worlds.calculator import ACTIONS

from .helpers import FEW_STEPS, episode, make_log, policy_of

DEPLOYMENTS = tuple(WORLDS["calculator"].deployments)
COST = 0.02 * (1 + 0.99 + 0.99**2 + 0.99**3)  # four valid steps
BOTH_KNOWN = ("add: x, y known", "sub: x, y known", "mul: x, y known")


def all_valid() -> TabularPolicy:
    """Uniform over the valid actions of the calculator."""
    model = world_model("calculator", "works")
    return uniform_policy(model.keys, model.world.action_names, model.valid_mask)


def expert(**changes: str) -> TabularPolicy:
    """Picks the operation named by the task, or another one where told so: ``expert(mul="add")``."""
    rows = {}
    for key in world_model("calculator", "works").keys:
        task, seen = key.split(": ")
        known = {"start": "lookup_x", "x known": "lookup_y", "x, y known": changes.get(task, task)}
        rows[key] = known.get(seen, "final")
    table = np.array([[float(action == chosen) for action in ACTIONS] for chosen in rows.values()])
    return TabularPolicy(states=tuple(rows), actions=ACTIONS, probabilities=table)


def careless() -> TabularPolicy:
    """The expert, but every fifth action is any of the six, valid or not."""
    policy = expert()
    return replace(policy, probabilities=0.8 * policy.probabilities + 0.2 / len(ACTIONS))


def newcomer() -> TabularPolicy:
    """Knows how to start on add tasks and nothing else: uniform over what is valid everywhere else."""
    return policy_of({"add: start": {"lookup_x": 1.0}}, ACTIONS)


POLICIES = {
    "logger": lambda: behavior_policy(make_world("calculator"), BEHAVIORS["logger"]),
    "without_mul": lambda: behavior_policy(make_world("calculator"), BEHAVIORS["logger_without_mul"]),
    "uniform": all_valid,
    "careless": careless,
    "expert": expert,
    "newcomer": newcomer,
}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
@pytest.mark.parametrize("name", POLICIES)
def test_rollouts_bracket_exact_values(name: str, deployment: str) -> None:
    policy = POLICIES[name]()
    truth = evaluate(policy, "calculator", deployment)
    sampled = orl.roll_out(policy, "calculator", deployment, n_episodes=2000, seed=7)
    assert sampled.unfinished == 0
    distribution = return_distribution(policy, "calculator", deployment)
    variance = sum(p * (value - truth.mean_return) ** 2 for value, p in distribution.items())
    assert abs(sampled.mean_return - truth.mean_return) <= 4 * (variance / 2000) ** 0.5 + 1e-12
    p = truth.success_rate
    assert abs(sampled.success_rate - p) <= 4 * max(p * (1 - p) / 2000, 0) ** 0.5 + 1e-12


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
@pytest.mark.parametrize("name", POLICIES)
def test_the_return_distribution_agrees_with_the_values(name: str, deployment: str) -> None:
    policy = POLICIES[name]()
    truth, distribution = (
        evaluate(policy, "calculator", deployment),
        return_distribution(policy, "calculator", deployment),
    )
    assert sum(distribution.values()) == pytest.approx(1, abs=1e-12)
    assert sum(value * p for value, p in distribution.items()) == pytest.approx(truth.mean_return, abs=1e-10)
    assert sum(p for value, p in distribution.items() if value > 0) == pytest.approx(truth.success_rate, abs=1e-12)
    assert list(distribution) == sorted(distribution)


@pytest.mark.parametrize("name", POLICIES)
def test_truth_is_the_mean_of_its_tasks(name: str) -> None:
    truth = evaluate(POLICIES[name](), "calculator")
    assert np.mean([task.success_rate for task in truth.by_task.values()]) == pytest.approx(truth.success_rate)
    assert np.mean([task.mean_return for task in truth.by_task.values()]) == pytest.approx(truth.mean_return)


def test_the_expert_by_hand() -> None:
    truth = evaluate(expert(), "calculator")
    assert truth.success_rate == pytest.approx(1, abs=1e-12)
    assert truth.mean_return == pytest.approx(0.99**3 - COST, abs=1e-12)
    assert evaluate(expert(), "calculator", "broken").by_task["mul"].success_rate == 0
    crash = evaluate(expert(), "calculator", "crash").by_task["mul"]
    assert crash.mean_return == pytest.approx(-0.02 - 0.99 * 0.02 - 0.99**2, abs=1e-12)
    assert evaluate(expert(mul="add"), "calculator").by_task["mul"].success_rate == pytest.approx(1 / 81), "2+2 = 2*2"
    assert evaluate(expert(mul="sub"), "calculator").by_task["mul"].success_rate == 0


def test_the_logger_by_hand() -> None:
    """Right on purpose or at random; add and mul also stand in for each other at 2+2 = 2*2, one pair of 81."""
    right, other = 0.62 + 0.38 / 3, 0.38 / 3
    by_task = evaluate(POLICIES["logger"](), "calculator").by_task
    assert by_task["add"].success_rate == pytest.approx(right + other / 81, abs=1e-12)
    assert by_task["sub"].success_rate == pytest.approx(right, abs=1e-12)
    assert by_task["mul"].success_rate == pytest.approx(right + other / 81, abs=1e-12)


@pytest.mark.parametrize("which", ["with_mul", "without_mul"])
def test_the_log_is_a_sample_of_the_exact_behavior(which: str, request: pytest.FixtureRequest) -> None:
    log = request.getfixturevalue(f"log_{which}")
    truth = evaluate(behavior_policy(make_world("calculator"), log.source.behavior), "calculator")
    returns = np.array(log.rows("SELECT sum(reward * pow(0.99, t)), max(reward) FROM steps GROUP BY episode_id"))
    for sample, exact in ((returns[:, 0], truth.mean_return), (returns[:, 1] > 0, truth.success_rate)):
        assert abs(sample.mean() - exact) <= 4 * sample.std() / len(sample) ** 0.5


def test_unseen_states_are_met_when_an_action_outside_the_log_leads_there(
    dataset_without_mul: Dataset,
) -> None:
    """Trained on the log without mul, naive FQI multiplies; products that no sum or difference of the log shows are new.

    The log shows a result r on a mul task as a sum 2..18 or a difference -8..8, so a product up to 18 may be known.
    """
    model = orl.train(dataset_without_mul, "fqi")
    known = {int(key.rsplit(" ", 1)[1]) for key in dataset_without_mul.states if key.startswith("mul: result")}
    n_new = sum(x * y not in known for x in range(1, 10) for y in range(1, 10))
    assert 40 < n_new < 81
    assert evaluate(model.policy, "calculator").unseen_state_rate == pytest.approx(n_new / 81 / 3, abs=1e-12)
    copied = orl.train(dataset_without_mul, "bc")
    assert evaluate(copied.policy, "calculator").unseen_state_rate < 0.02


# -- Q by hand -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deployment", "value"),
    [("works", -0.02 + 0.99 * 0.98), ("broken", -0.02 - 0.99 * 1.02), ("crash", -1.0)],
)
def test_the_value_of_mul_by_hand(deployment: str, value: float) -> None:
    q_values = true_q_values(expert(), "calculator", deployment, states=BOTH_KNOWN, actions=("mul",))
    assert q_values[2, 0] == pytest.approx(value, abs=1e-12)


def test_the_value_of_a_wrong_operation_by_hand() -> None:
    """add on a mul task is right for 1 of 81; mul on an add task likewise; sub never."""
    lucky = -0.02 + 0.99 * (-0.02 + (1 - 80) / 81)
    q_values = true_q_values(all_valid(), "calculator", states=BOTH_KNOWN, actions=("add", "sub", "mul"))
    assert q_values[2, 0] == q_values[0, 2] == pytest.approx(lucky, abs=1e-12)
    assert q_values[2, 1] == q_values[1, 0] == q_values[1, 2] == pytest.approx(-0.02 - 0.99 * 1.02, abs=1e-12)


def test_q_is_averaged_as_the_log_meets_what_a_key_hides() -> None:
    """At "mul: result 6" the truth hangs on where the 6 came from: 1*6, 2*3, 3*2, 6*1 by mul, else 1+5 .. 5+1, 7-1 .. 9-3.

    Under uniform play each operation is equally likely: 4 right and 5 + 3 wrong ones.
    """
    q_values = true_q_values(all_valid(), "calculator", states=("mul: result 6",), actions=("final",))
    assert q_values[0, 0] == pytest.approx(-0.02 + (4 - 8) / 12, abs=1e-12)
    never_sub = behavior_policy(make_world("calculator"), Behavior(right_probability=0).without("sub"))
    q_values = true_q_values(
        all_valid(), "calculator", states=("mul: result 6",), actions=("final",), behavior=never_sub
    )
    assert q_values[0, 0] == pytest.approx(-0.02 + (4 - 5) / 9, abs=1e-12)


def test_an_invalid_action_costs_one() -> None:
    q_values = true_q_values(expert(), "calculator", states=("add: start", *BOTH_KNOWN), actions=("final", "lookup_y"))
    assert q_values == pytest.approx(np.full((4, 2), -1.0), abs=1e-12)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
@pytest.mark.parametrize("name", POLICIES)
def test_the_value_of_a_start_is_its_q_weighed_by_the_policy(name: str, deployment: str) -> None:
    policy, starts = POLICIES[name](), ("add: start", "sub: start", "mul: start")
    q_values = true_q_values(policy, "calculator", deployment, states=starts, actions=ACTIONS)
    chosen = [policy.action_probabilities(start, ("lookup_x",)) for start in starts]
    values = [sum(p * q_values[s, ACTIONS.index(action)] for action, p in row.items()) for s, row in enumerate(chosen)]
    by_task = evaluate(policy, "calculator", deployment).by_task
    assert values == pytest.approx([by_task[task].mean_return for task in ("add", "sub", "mul")], abs=1e-12)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_nobody_beats_the_optimum(deployment: str) -> None:
    """Q* sees x and y, so no policy over keys that keeps to valid actions can be better anywhere."""
    states = world_model("calculator", deployment).keys
    best = optimal_q_values("calculator", deployment, states=states, actions=ACTIONS)
    for make in (make for name, make in POLICIES.items() if name != "careless"):
        assert (true_q_values(make(), "calculator", deployment, states=states, actions=ACTIONS) <= best + 1e-12).all()
    starts = best[[states.index(f"{task}: start") for task in ("add", "sub")], ACTIONS.index("lookup_x")]
    assert starts == pytest.approx(0.99**3 - COST, abs=1e-12)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_optimum_takes_valid_actions_only(deployment: str) -> None:
    """Against a recursion over the full states. Where mul is broken, an early end by an invalid action would cost less."""
    world, model = make_world("calculator", deployment), world_model("calculator", deployment)

    def best(state: Any) -> float:
        outcomes = [world.transitions(state, action) for action in world.actions(state)]
        return max(sum(p * (r + (0 if end else 0.99 * best(then))) for p, then, r, end in each) for each in outcomes)

    v_values, q_values = model.optimum(0.99)
    starts = np.flatnonzero(model.starts)
    assert v_values[starts] == pytest.approx([best(model.states[s]) for s in starts], abs=1e-12)
    cheaper = (q_values.max(axis=0) > v_values + 1e-9)[starts].sum()
    assert (cheaper > 0) == (deployment != "works"), "an invalid action's own worth stands beside it"


def test_what_a_deployment_never_reaches_has_no_value() -> None:
    asked = {
        "states": ("mul: result 63", "mul: result 163", "no such state"),
        "actions": ("final", "no such tool"),
    }
    reached = {
        deployment: ~np.isnan(true_q_values(expert(), "calculator", deployment, **asked)) for deployment in DEPLOYMENTS
    }
    assert reached["works"].tolist() == [[True, False], [False, False], [False, False]]
    assert reached["broken"].tolist() == [[False, False], [True, False], [False, False]]
    assert not reached["crash"].any()


def test_exact_q_of_a_model_is_blank_where_invalid(dataset_with_mul: Dataset) -> None:
    model = orl.train(dataset_with_mul, "fqi")
    exact = exact_q_of(model, dataset_with_mul)
    assert exact is not None
    assert (np.isnan(exact) == ~dataset_with_mul.valid_mask).all()
    assert exact[dataset_with_mul.states.index("mul: x, y known")] == pytest.approx(
        [np.nan, np.nan, -0.02 + 0.99 * (-0.02 - 79 / 81), -0.02 - 0.99 * 1.02, -0.02 + 0.99 * 0.98, np.nan],
        nan_ok=True,
    )


# -- policies over other actions -----------------------------------------------------------------------------


def _of_another_log(names: str, algorithm: str = "bc", **parameters: Any) -> TrainedModel:
    rows = [row for i in range(4) for row in episode(f"e{i}", *[("s", name, 1.0) for name in names])]
    return orl.train(orl.frame(make_log(rows), orl.Framing(state="state_text")), algorithm, **parameters)


JUDGEMENTS: dict[str, Callable[[Dataset, TrainedModel], Any]] = {
    "evaluate": lambda _, model: orl.evaluate(model.policy, "calculator"),
    "true_q_values": lambda _, model: true_q_values(model.policy, "calculator", states=("s",), actions=("a",)),
    "return_distribution": lambda _, model: orl.return_distribution(model.policy, "calculator"),
    "roll_out": lambda _, model: orl.roll_out(model.policy, "calculator", n_episodes=2),
    "distribution_shift": lambda dataset, model: orl.distribution_shift(dataset, model.policy),
    "compounding_error": lambda dataset, model: orl.compounding_error(dataset, model.policy, 0.1),
    "leaving_steps": lambda dataset, model: orl.leaving_steps(dataset, model),
}


@pytest.mark.parametrize("judge", JUDGEMENTS.values(), ids=JUDGEMENTS)
def test_a_policy_with_actions_that_a_world_does_not_know_is_refused_by_name(
    dataset_with_mul: Dataset, judge: Callable[[Dataset, TrainedModel], Any]
) -> None:
    with pytest.raises(NotPossible, match=r"the world calculator doesn't know: 'a', 'b'\. Known there: 'lookup_x'"):
        judge(dataset_with_mul, _of_another_log("ab"))


@pytest.mark.parametrize("judge", ["roll_out", "return_distribution"])
def test_so_is_one_that_looks_back(dataset_with_mul: Dataset, judge: str) -> None:
    model = _of_another_log("ab", "decision_transformer", **FEW_STEPS["decision_transformer"])
    with pytest.raises(NotPossible, match="doesn't know: 'a', 'b'"):
        JUDGEMENTS[judge](dataset_with_mul, model)
