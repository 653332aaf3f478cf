"""Worlds keep the contract; the calculator follows its published rules to the letter; tiny worlds equal paper and pencil."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from offrl_core.behavior import BEHAVIORS, Behavior, behavior_policy
from offrl_core.errors import UnknownName
from offrl_core.evaluation.exact import evaluate, optimal_q_values, return_distribution, true_q_values
from offrl_core.worlds import WORLDS, Transition, World, check_world, make_world, reachable_states
from offrl_core.worlds.calculator import ACTIONS, OPERATIONS, Calculator, CalculatorState

from .helpers import policy_of
from .tiny_worlds import TINY_WORLDS, Chain, TinyWorld

EVERY_WORLD = [
    pytest.param(
        name, deployment, marks=pytest.mark.skipif(bool(spec.missing), reason=spec.missing), id=f"{name}-{deployment}"
    )
    for name, spec in WORLDS.items()
    for deployment in spec.deployments
]
NUMBERS = range(1, 10)
RESULT = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}


# -- the contract, over the registry -------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "deployment"), EVERY_WORLD)
def test_every_world_keeps_the_contract(name: str, deployment: str) -> None:
    world = make_world(name, deployment)
    check_world(world)
    assert (world.name, world.deployment) == (name, deployment)
    assert {world.task(state) for _, state in world.initial_states()} == set(WORLDS[name].tasks or [None])
    assert all(WORLDS[name].deployments[deployment])


@pytest.mark.parametrize(("name", "deployment"), EVERY_WORLD)
def test_features_are_a_function_of_the_key(name: str, deployment: str) -> None:
    world = make_world(name, deployment)
    by_key: dict[str, tuple[float, ...]] = {}
    for state in reachable_states(world):
        features = tuple(world.features(state).tolist())
        assert by_key.setdefault(world.state_key(state), features) == features


@pytest.mark.parametrize("spec", TINY_WORLDS.values(), ids=list(TINY_WORLDS))
def test_the_tiny_worlds_keep_it_too(spec: Any) -> None:
    check_world(spec.make("works"))


@pytest.mark.parametrize(("world", "deployment"), [("chess", "works"), ("calculator", "exploded")])
def test_an_unknown_name_lists_the_known_ones(world: str, deployment: str) -> None:
    with pytest.raises(UnknownName, match=r"Known: \w+"):
        make_world(world, deployment)


class _StartsHalfway(Chain):
    def initial_states(self) -> list[tuple[float, Any]]:
        return [(0.5, 0)]


class _NegativeProbability(Chain):
    def transitions(self, state: Any, action: str) -> list[Transition]:
        return [Transition(1.5, "won", 0.0, True), Transition(-0.5, "lost", 0.0, True)]


class _LosesMass(Chain):
    def transitions(self, state: Any, action: str) -> list[Transition]:
        return [outcome._replace(probability=0.9) for outcome in super().transitions(state, action)]


class _NothingToDo(Chain):
    def actions(self, state: Any) -> tuple[str, ...]:
        return () if state == 2 else self.action_names


class _ActionOutOfNowhere(Chain):
    def actions(self, state: Any) -> tuple[str, ...]:
        return ("go", "fly")

    def transitions(self, state: Any, action: str) -> list[Transition]:
        return super().transitions(state, "go")


class _KeyHidesWhatIsValid(Chain):
    def actions(self, state: Any) -> tuple[str, ...]:
        return ("go",) if state == 1 else self.action_names

    def state_key(self, state: Any) -> str:
        return "somewhere"


class _WaitsForever(Chain):
    def transitions(self, state: Any, action: str) -> list[Transition]:
        return [Transition(1.0, 2, 0.0, False)] if state == 2 else super().transitions(state, action)


class _TaskChanges(Chain):
    def task(self, state: Any) -> str:
        return str(state)


@pytest.mark.parametrize(
    ("world", "complaint"),
    [
        (_StartsHalfway, "initial_states: .*sum to 1"),
        (_NegativeProbability, "must be >= 0"),
        (_LosesMass, r"transitions\(0, go\).*sum to 1"),
        (_NothingToDo, "at least one"),
        (_ActionOutOfNowhere, "all from action_names"),
        (_KeyHidesWhatIsValid, "allow different actions"),
        (_TaskChanges, "changes the task"),
        (_WaitsForever, "2: no valid actions ever end the episode"),
    ],
)
def test_a_bad_world_is_told_what_is_wrong(world: type[TinyWorld], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        check_world(world())  # type: ignore[arg-type]


# -- the calculator, rule by rule ----------------------------------------------------------------------------


@pytest.fixture(params=["works", "broken", "crash"])
def calculator(request: pytest.FixtureRequest) -> Calculator:
    return Calculator(request.param)


def only_outcome(world: World, state: Any, action: str) -> Transition:
    (outcome,) = world.transitions(state, action)
    assert outcome.probability == 1.0
    return outcome


def test_tasks_and_numbers_are_uniform(calculator: Calculator) -> None:
    starts = calculator.initial_states()
    assert {state for _, state in starts} == {
        CalculatorState(task, x, y) for task, x, y in product(OPERATIONS, NUMBERS, NUMBERS)
    }
    assert {p for p, _ in starts} == {1 / 243}
    assert calculator.discount == 0.99


def test_what_is_valid_follows_from_what_is_known(calculator: Calculator) -> None:
    start = CalculatorState("mul", 3, 4)
    assert calculator.actions(start) == ("lookup_x",)
    assert calculator.actions(start._replace(x_known=True)) == ("lookup_y",)
    both = start._replace(x_known=True, y_known=True)
    assert calculator.actions(both) == ("add", "sub", "mul")
    assert calculator.actions(both._replace(result=0)) == ("final",)


def test_every_valid_step_costs_two_hundredths_and_only_final_or_a_crash_ends(calculator: Calculator) -> None:
    for state, action in product(reachable_states(calculator), ACTIONS):
        if action not in calculator.actions(state):
            continue
        outcome = only_outcome(calculator, state, action)
        if action == "final":
            assert outcome.terminal
            assert outcome.reward in (1 - 0.02, -1 - 0.02)
            assert calculator.succeeded(outcome.next_state) == (outcome.reward > 0)
        elif action == "mul" and calculator.deployment == "crash":
            assert outcome[2:] == (-1.0, True)
            assert not calculator.succeeded(outcome.next_state)
        else:
            assert outcome[2:] == (-0.02, False)


def test_an_invalid_action_gives_minus_one_and_ends(calculator: Calculator) -> None:
    for state, action in product(reachable_states(calculator), ACTIONS):
        if action not in calculator.actions(state):
            outcome = only_outcome(calculator, state, action)
            assert outcome[2:] == (-1.0, True)
            assert not calculator.succeeded(outcome.next_state)


@pytest.mark.parametrize("deployment", ["works", "broken", "crash"])
def test_final_is_right_exactly_when_the_result_is(deployment: str) -> None:
    world = Calculator(deployment)
    for task, x, y, operation in product(OPERATIONS, NUMBERS, NUMBERS, OPERATIONS):
        if operation == "mul" and deployment == "crash":
            continue
        both = CalculatorState(task, x, y, x_known=True, y_known=True)
        computed = only_outcome(world, both, operation).next_state
        right = only_outcome(world, computed, "final").reward > 0
        if operation == "mul" and deployment == "broken":
            assert not right, "a broken mul is wrong for every task"
        else:
            assert computed.result == RESULT[operation](x, y)
            assert right == (RESULT[operation](x, y) == RESULT[task](x, y))


def test_deployments_agree_wherever_mul_is_not_called() -> None:
    works, broken, crash = (Calculator(deployment) for deployment in ("works", "broken", "crash"))
    for state in reachable_states(works):
        for action in set(ACTIONS) - {"mul"}:
            assert works.transitions(state, action) == broken.transitions(state, action)
            assert works.transitions(state, action) == crash.transitions(state, action)


def test_the_key_hides_the_numbers_until_there_is_a_result() -> None:
    world, state = Calculator(), CalculatorState("sub", 3, 8)
    keys = [world.state_key(state)]
    for action in ("lookup_x", "lookup_y", "sub"):
        state = only_outcome(world, state, action).next_state
        keys.append(world.state_key(state))
    assert keys == ["sub: start", "sub: x known", "sub: x, y known", "sub: result -5"]


# -- the logging policies ------------------------------------------------------------------------------------


def chosen(behavior: str | Behavior, task: str) -> dict[str, float]:
    dials = BEHAVIORS[behavior] if isinstance(behavior, str) else behavior
    return dials.action_probabilities(task, OPERATIONS)


def test_the_loggers_follow_their_description() -> None:
    third = 0.38 / 3
    assert chosen("logger", "sub") == pytest.approx({"add": third, "sub": 0.62 + third, "mul": third})
    assert chosen("logger_without_mul", "mul") == pytest.approx({"add": 0.5, "sub": 0.5})
    assert chosen("logger_without_mul", "add") == pytest.approx({"add": 0.62 + 0.19, "sub": 0.19})
    assert chosen("uniform", "add") == pytest.approx(dict.fromkeys(OPERATIONS, 1 / 3))


def test_the_dials_mix_as_they_say() -> None:
    half_avoided = Behavior(right_probability=1.0).without("mul", ("mul",), probability=0.5)
    assert chosen(half_avoided, "mul") == pytest.approx({"add": 0.25, "sub": 0.25, "mul": 0.5})
    assert chosen(half_avoided, "add") == {"add": 1.0}
    noisy = Behavior(right_probability=1.0, random_probability=0.3)
    assert chosen(noisy, "add") == pytest.approx({"add": 0.8, "sub": 0.1, "mul": 0.1})
    assert Behavior().without("final").action_probabilities("add", ("final",)) == {"final": 1.0}, "the last tool stays"


@pytest.mark.parametrize("name", BEHAVIORS)
def test_a_logging_policy_is_a_distribution_over_valid_actions(name: str) -> None:
    world = make_world("calculator")
    policy = behavior_policy(world, BEHAVIORS[name])
    for state in reachable_states(world):
        valid = world.actions(state)
        row = policy.action_probabilities(world.state_key(state), valid)
        assert set(row) <= set(valid)
        assert sum(row.values()) == pytest.approx(1)


# -- tiny worlds, by hand ------------------------------------------------------------------------------------

EVEN_CHAIN = policy_of({key: {"go": 0.5, "stop": 0.5} for key in "012"}, Chain.action_names)
EVEN_TABLE = policy_of({"at the table": {"bet": 0.5, "wait": 0.5}}, ("bet", "wait"))


@pytest.mark.usefixtures("tiny_worlds")
class TestByHand:
    def test_chain_values(self) -> None:
        truth = evaluate(EVEN_CHAIN, "chain")
        assert truth.mean_return == pytest.approx(-0.03125, abs=1e-12)
        assert truth.success_rate == pytest.approx(1 / 8, abs=1e-12)
        assert truth.unseen_state_rate == 0
        assert evaluate(EVEN_CHAIN, "chain", discount=1.0).mean_return == pytest.approx(0.05, abs=1e-12)

    def test_chain_return_distribution(self) -> None:
        """Stop at once; after one go; after two; or win: 1/4 - 0.1 - 0.05."""
        by_hand = {0.0: 1 / 2, -0.1: 1 / 4, -0.15: 1 / 8, 0.1: 1 / 8}
        assert return_distribution(EVEN_CHAIN, "chain") == pytest.approx(by_hand, abs=1e-12)

    def test_chain_q_of_the_policy(self) -> None:
        q_values = true_q_values(EVEN_CHAIN, "chain", states=("0", "1", "2"), actions=("go", "stop"))
        assert q_values == pytest.approx(np.array([[-0.0625, 0.0], [0.15, 0.0], [1.0, 0.0]]), abs=1e-12)

    def test_chain_best_values(self) -> None:
        q_values = optimal_q_values("chain", states=("0", "1", "2"), actions=("go", "stop"))
        assert q_values == pytest.approx(np.array([[0.1, 0.0], [0.4, 0.0], [1.0, 0.0]]), abs=1e-12)

    def test_unseen_states_are_met_as_often_as_they_are_reached(self) -> None:
        """The policy knows the first two states; the third is reached by two goes, with probability 1/4."""
        knows_two = policy_of({key: {"go": 0.5, "stop": 0.5} for key in "01"}, Chain.action_names)
        assert evaluate(knows_two, "chain").unseen_state_rate == pytest.approx(1 / 4, abs=1e-12)
        knows_none = policy_of({"elsewhere": {"go": 1.0}}, Chain.action_names)
        truth = evaluate(knows_none, "chain")
        assert truth.unseen_state_rate == pytest.approx(1.0, abs=1e-12)
        assert truth.mean_return == pytest.approx(-0.03125, abs=1e-12), "uniform where it knows nothing"

    def test_table_values(self) -> None:
        """A bet wins in the end with 1/4 * S(good) + 3/4 * S(bad), S = p/2 + S/4: 1/4 * 1/2 + 3/4 * 1/6 = 1/4."""
        truth = evaluate(EVEN_TABLE, "table")
        assert truth.mean_return == pytest.approx(-1 / 7, abs=1e-12)
        assert truth.success_rate == pytest.approx(1 / 4, abs=1e-12)

    def test_table_return_distribution(self) -> None:
        """After k waits (1/4 each) a bet (1/2) wins with 1/4 * 3/4 + 3/4 * 1/4 = 3/8; else the agent leaves with 0."""
        found = return_distribution(EVEN_TABLE, "table")
        for k in range(10):
            assert found[0.5**k] == pytest.approx(0.25**k * 0.5 * 3 / 8, abs=1e-12)
            assert found[-(0.5**k)] == pytest.approx(0.25**k * 0.5 * 5 / 8, abs=1e-12)
        assert found[0.0] == pytest.approx(1 / 3, abs=1e-10)

    def test_table_q_values_average_over_what_is_hidden(self) -> None:
        """Q(bet) = 1/4 * 1/2 - 3/4 * 1/2 = -1/4; Q(wait) = 1/4 * V(start) = -1/28. Q* knows the luck: 1/4 * 1/8."""
        about = {"states": ("at the table",), "actions": ("bet", "wait")}
        assert true_q_values(EVEN_TABLE, "table", **about)[0] == pytest.approx([-1 / 4, -1 / 28], abs=1e-12)
        assert optimal_q_values("table", **about)[0] == pytest.approx([-1 / 4, 1 / 32], abs=1e-12)

    def test_rooms_are_weighed_as_the_log_meets_them(self) -> None:
        """Nine of ten logged visits come through the left door: 0.9 * 1 + 0.1 * -1 = 0.8; uniformly, 0."""
        logger = policy_of({"hall": {"left": 0.9, "right": 0.1}, "room": {"open": 1.0}}, ("left", "right", "open"))
        about = {"states": ("room",), "actions": ("open",)}
        assert true_q_values(logger, "doors", **about, behavior=logger)[0, 0] == pytest.approx(0.8)
        assert true_q_values(logger, "doors", **about)[0, 0] == pytest.approx(0.0, abs=1e-12)

    def test_a_world_of_one_step(self) -> None:
        heads = policy_of({"toss": {"heads": 1.0}}, ("heads", "tails"))
        assert evaluate(heads, "coin").success_rate == pytest.approx(3 / 4)
        assert return_distribution(heads, "coin") == pytest.approx({-1.0: 1 / 4, 1.0: 3 / 4})
