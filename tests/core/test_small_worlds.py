"""The rules of grid, chain and the calculator with two operations, and the lesson that each of them is there for."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import offrl_core as orl
from offrl_core.behavior import behavior_policy, named_behavior
from offrl_core.coverage_edits import MinReturn
from offrl_core.evaluation.exact import evaluate, optimal_q_values, world_model
from offrl_core.policies import TabularPolicy
from offrl_core.worlds import WORLDS, make_world, reachable_states
from offrl_core.worlds.calculator_chain import COSTS, CalculatorChain, ChainState, tidy
from offrl_core.worlds.gridworld import GOAL, MOVES, ROWS, START, Cell, Gridworld, letter

GRIDS = [name for name, spec in WORLDS.items() if spec.grid]


def best_policy(name: str, deployment: str = "works") -> TabularPolicy:
    """The best policy of a world whose keys hide nothing."""
    model = world_model(name, deployment)
    q_values = optimal_q_values(name, deployment, states=model.keys, actions=model.world.action_names)
    best = np.where(model.valid_mask, q_values, -np.inf).argmax(axis=1)
    table = np.eye(len(model.world.action_names))[best]
    return TabularPolicy(states=model.keys, actions=model.world.action_names, probabilities=table)


# -- the grid -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_shows_every_state_where_it_is(name: str) -> None:
    """A move leads where the drawing says, or nowhere: the most probable outcome of each action."""
    grid, spec = WORLDS[name].grid(), WORLDS[name]
    assert set("".join(grid.rows)) == set(grid.legend)
    assert len({len(row) for row in grid.rows}) == 1
    if spec.missing:
        pytest.skip(spec.missing)
    world = make_world(name, [*spec.deployments][-1] if name == "frozen_lake" else "works")
    assert set(grid.moves) == set(world.action_names)
    keys = {world.state_key(state) for state in reachable_states(world)}
    assert keys <= set(grid.cells)
    for state in reachable_states(world):
        row, column = grid.cells[world.state_key(state)]
        for action, (down, right) in grid.moves.items():
            likely = max(world.transitions(state, action))
            to = grid.cells.get(world.state_key(likely.next_state))
            if not likely.terminal and to is not None and grid.rows[to[0]][to[1]] != "S":  # a fall leads to the start
                assert to in ((row + down, column + right), (row, column))


@pytest.mark.parametrize("deployment", WORLDS["gridworld"].deployments)
def test_steps_on_the_grid(deployment: str) -> None:
    world = Gridworld(deployment)
    for state, action in product(reachable_states(world), MOVES):
        for probability, to, reward, terminal in world.transitions(state, action):
            assert probability > 0
            assert abs(to.row - state.row) + abs(to.column - state.column) <= 1
            assert letter(to) != "#"
            fell = letter(to) == "~" or (deployment == "bridge_out" and to == Cell(3, 3))
            assert terminal == (fell or to == GOAL)
            assert reward == (-1.0 if fell else 0.96 if to == GOAL else -0.04)
            assert world.succeeded(to) == (to == GOAL)


def test_a_plank_slips_to_both_sides_evenly() -> None:
    outcomes = {o.next_state: o.probability for o in Gridworld("slippery").transitions(Cell(3, 3), "right")}
    assert outcomes == pytest.approx({Cell(3, 4): 0.75, Cell(2, 3): 0.125, Cell(4, 3): 0.125})
    bumped = {o.next_state: o.probability for o in Gridworld().transitions(START, "left")}
    assert bumped == pytest.approx({START: 0.95, Cell(2, 0): 0.05})


def test_deployments_of_the_grid_agree_off_the_planks() -> None:
    works = Gridworld("works")
    for deployment, state, action in product(("slippery", "bridge_out"), reachable_states(works), MOVES):
        outcomes = works.transitions(state, action)
        if letter(state) != "=" and not any(letter(o.next_state) == "=" for o in outcomes):
            assert outcomes == Gridworld(deployment).transitions(state, action)


def test_no_log_off_the_planks_can_tell_the_deployments_apart() -> None:
    policy = behavior_policy(make_world("gridworld"), named_behavior("careful", "gridworld")[1])
    truths = [evaluate(policy, "gridworld", deployment) for deployment in WORLDS["gridworld"].deployments]
    assert [truth.success_rate for truth in truths] == pytest.approx([1.0] * 3)
    assert [truth.mean_return for truth in truths] == pytest.approx([truths[0].mean_return] * 3, abs=1e-12)
    log = orl.collect("gridworld", "careful", n_episodes=300)
    planks = [f"row {r}, column {c}" for r, line in enumerate(ROWS) for c, cell in enumerate(line) if cell == "="]
    assert not set(planks) & set(log.distinct_values("state_text"))


def test_the_short_cut_is_best_where_it_works_and_nowhere_else() -> None:
    short = best_policy("gridworld")
    assert short.action_probabilities("row 3, column 0", tuple(MOVES)) == {"right": 1.0}
    for deployment in ("slippery", "bridge_out"):
        long = best_policy("gridworld", deployment)
        assert long.action_probabilities("row 3, column 0", tuple(MOVES)) == {"up": 1.0}
        assert evaluate(short, "gridworld", deployment).success_rate < 0.5
        assert evaluate(long, "gridworld", deployment).success_rate == pytest.approx(1.0)
        assert evaluate(long, "gridworld").mean_return < evaluate(short, "gridworld").mean_return


def test_crossing_by_hand() -> None:
    """Three planks hold with 0.97 each; the first step to them may slip off to the cells beside the start."""
    q_values = optimal_q_values("gridworld", states=("row 3, column 4",), actions=("right",))
    last = optimal_q_values("gridworld", states=("row 3, column 5",), actions=("right",))[0, 0]
    assert q_values[0, 0] == pytest.approx(0.97 * (-0.04 + 0.99 * last) + 0.03 * -1.0, abs=1e-9)
    assert last == pytest.approx((0.9 * 0.96 - 0.1 * 0.04) / (1 - 0.099), abs=1e-9), "it bumps until it gets there"


# -- the chain ------------------------------------------------------------------------------------------------


def test_each_agent_is_mediocre_and_walking_is_not() -> None:
    for agent in ("first_half", "second_half", "logger"):
        truth = orl.behavior_truth(named_behavior(agent, "chain")[1], "chain")
        assert truth.success_rate == pytest.approx(0.8**3)
    assert evaluate(best_policy("chain"), "chain").success_rate == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_stitching_beats_both_logs_and_copying_cannot(seed: int) -> None:
    dataset = orl.frame(orl.collect("chain", n_episodes=1000, seed=seed))
    rewards = dataset.log.rows(
        "SELECT max(n) FROM (SELECT sum((action = 'walk')::INT) AS n FROM steps GROUP BY episode_id)"
    )
    assert rewards == [(3,)], "no episode shows the whole way"
    for stitching in ("fqi", "fqi_support"):
        assert evaluate(orl.train(dataset, stitching).policy, "chain").success_rate == 1.0
    best_only = orl.frame(dataset.log, edits=[MinReturn(0.5)])
    for copied in (dataset, best_only):
        most = evaluate(orl.train(copied, "bc").policy, "chain")
        assert most.success_rate <= 0.8**3 + 1e-12
        often = evaluate(orl.train(copied, "bc", imitate="frequencies").policy, "chain")
        assert often.success_rate <= 0.9**6 + 1e-12


def test_one_agent_alone_leaves_nothing_to_stitch() -> None:
    for agent in ("first_half", "second_half"):
        dataset = orl.frame(orl.collect("chain", agent, n_episodes=300))
        assert evaluate(orl.train(dataset, "fqi_support").policy, "chain").success_rate == pytest.approx(0.8**3)


def test_who_stitched_does_not_notice_the_brittle_chain() -> None:
    assert evaluate(best_policy("chain"), "chain", "brittle").success_rate == 1.0
    assert orl.behavior_truth(named_behavior("logger", "chain")[1], "chain", "brittle").success_rate == pytest.approx(
        0.4**3
    )


# -- the calculator with two operations -----------------------------------------------------------------------


@pytest.mark.parametrize(("deployment", "answers"), [("works", 0.9), ("flaky", 0.5)])
def test_a_tidy_agent_pays_what_it_must(deployment: str, answers: float) -> None:
    """Each lookup is called 1 / answers times on average; two operations; final is free."""
    policy = behavior_policy(make_world("calculator_chain"), tidy())
    truth = evaluate(policy, "calculator_chain", deployment, discount=1.0)
    assert truth.success_rate == pytest.approx(1.0)
    assert truth.mean_return == pytest.approx(1 - (0.02 + 0.02 + 0.08) / answers - 2 * 0.02)


def test_clumsiness_costs_and_solves_nothing() -> None:
    clumsy, neat = (
        orl.behavior_truth(named_behavior(name, "calculator_chain")[1], "calculator_chain")
        for name in ("logger", "tidy")
    )
    assert clumsy.mean_return < neat.mean_return - 0.15


@pytest.mark.parametrize("deployment", WORLDS["calculator_chain"].deployments)
def test_redundant_and_failing_calls_change_nothing_but_cost(deployment: str) -> None:
    world = CalculatorChain(deployment)
    fresh = ChainState("add_mul", (1, 2, 3))
    ready = fresh._replace(known=(True, True, False))
    done = fresh._replace(known=(True, True, True), n_operations=2, result=9)
    half = ready._replace(n_operations=1, result=3)
    for state, action in [
        (ready, "lookup_x"),
        (done, "lookup_z"),
        *product((fresh, fresh._replace(known=(True, False, True)), half, done), ("add", "sub", "mul")),
    ]:
        (outcome,) = world.transitions(state, action)
        assert outcome == (1.0, state, -COSTS[action], False)


def test_lookups_come_in_any_order_and_may_not_answer() -> None:
    for name in ("lookup_x", "lookup_y", "lookup_z"):
        found, failed = CalculatorChain("flaky").transitions(ChainState("add_add", (1, 2, 3)), name)
        assert (found.probability, failed.probability) == (0.5, 0.5)
        assert sum(found.next_state.known) == 1
        assert failed.next_state == ChainState("add_add", (1, 2, 3))


@pytest.mark.parametrize(("task", "right"), [("add_add", 7), ("add_mul", 12), ("mul_add", 6), ("mul_mul", 9)])
def test_final_asks_for_both_operations_in_order(task: str, right: int) -> None:
    world, numbers = CalculatorChain(), (1, 3, 3)
    first, second = task.split("_")
    state = ChainState(task, numbers, known=(True, True, True))
    for n, operation in enumerate((first, second)):
        assert world.transitions(state, "final")[0].next_state.outcome != "success", f"after {n} operations"
        (outcome,) = world.transitions(state, operation)
        state = outcome.next_state
    assert state.result == right
    (outcome,) = world.transitions(state, "final")
    assert outcome[2:] == (1.0, True)
    assert world.succeeded(outcome.next_state)


def test_a_broken_mul_is_right_for_no_task() -> None:
    policy = behavior_policy(make_world("calculator_chain"), tidy())
    by_task = evaluate(policy, "calculator_chain", "broken").by_task
    assert [truth.success_rate for truth in by_task.values()] == pytest.approx([1.0, 0.0, 0.0, 0.0])


def test_a_log_says_which_episodes_were_solved_where_the_return_does_not() -> None:
    """Random play reaches the goal of the grid after so many costly steps that the return is below 0."""
    dataset = orl.frame(orl.collect("gridworld", "uniform", n_episodes=400, seed=1))
    last = dataset.log.frame("SELECT episode_id, sum(reward) AS total, max(reward) AS best FROM steps GROUP BY 1")
    solved = last["best"] > 0  # only the goal pays
    assert (solved & (last["total"] <= 0)).any()
    rate, known = dataset.success_rate()
    assert known == 400
    assert rate == solved.mean()
