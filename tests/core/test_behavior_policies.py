"""Logging policies are data: distributions over what is valid, the same after JSON, and able to leave an action out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core import log as log_module
from offrl_core import recollection
from offrl_core.behavior import behavior_policy, named_behavior
from offrl_core.behavior_policies import Behavior, MixedBehavior, MixedPart, TableBehavior, behavior_from_json
from offrl_core.coverage_edits import DropAction
from offrl_core.errors import InvalidConfig, InvalidEdit, UnknownName
from offrl_core.evaluation.exact import evaluate, world_model
from offrl_core.worlds import WORLDS, make_world, reachable_states
from offrl_core.worlds.chain import both, first_half, second_half

EVERY_BEHAVIOR = [
    pytest.param(world, name, marks=pytest.mark.skipif(bool(spec.missing), reason=spec.missing), id=f"{world}-{name}")
    for world, spec in WORLDS.items()
    for name in spec.behaviors
]


@pytest.mark.parametrize("world", WORLDS)
def test_every_world_has_a_logger_and_says_what_each_agent_does(world: str) -> None:
    assert next(iter(WORLDS[world].behaviors)) == "logger"
    assert all(spec.title for spec in WORLDS[world].behaviors.values())


@pytest.mark.parametrize(("world", "name"), EVERY_BEHAVIOR)
def test_every_agent_is_a_distribution_over_valid_actions(world: str, name: str) -> None:
    arena, (_, behavior) = make_world(world), named_behavior(name, world)
    policy = behavior_policy(arena, behavior)
    for state in reachable_states(arena):
        for part in behavior.parts(name):
            row = part.behavior.action_probabilities(arena.task(state), arena.actions(state), arena.state_key(state))
            assert sum(row.values()) == pytest.approx(1)
        valid = arena.actions(state)
        assert set(policy.action_probabilities(arena.state_key(state), valid)) <= set(valid)


@pytest.mark.parametrize(("world", "name"), EVERY_BEHAVIOR)
def test_every_agent_survives_json(world: str, name: str) -> None:
    _, behavior = named_behavior(name, world)
    assert behavior_from_json(json.loads(json.dumps(behavior.to_json()))) == behavior
    assert named_behavior(behavior, world)[0] == name, "a description is known by its name"


@pytest.mark.parametrize("world", [name for name, spec in WORLDS.items() if not spec.missing])
def test_an_agent_leaves_any_action_out_wherever_there_is_another(world: str) -> None:
    arena, (_, behavior) = make_world(world), named_behavior("logger", world)
    for action in arena.action_names[:4]:
        for part in behavior.without(action).parts(""):
            for state in reachable_states(arena)[:50]:
                valid = arena.actions(state)
                row = part.behavior.action_probabilities(arena.task(state), valid, arena.state_key(state))
                assert sum(row.values()) == pytest.approx(1)
                assert action not in row or valid == (action,)


def test_a_table_row_keeps_its_proportions_when_something_is_left_out() -> None:
    table = TableBehavior(probabilities={"here": {"a": 0.5, "b": 0.3, "c": 0.2}})
    without = table.without("a").action_probabilities(None, ("a", "b", "c"), "here")
    assert without == pytest.approx({"b": 0.6, "c": 0.4})
    half = table.without("a", probability=0.5).action_probabilities(None, ("a", "b", "c"), "here")
    assert half == pytest.approx({"a": 0.25, "b": 0.45, "c": 0.3})
    only_a = TableBehavior(probabilities={"here": {"a": 1.0}}).without("a")
    assert only_a.action_probabilities(None, ("a", "b", "c"), "here") == pytest.approx({"b": 0.5, "c": 0.5})
    assert table.action_probabilities(None, ("a", "b"), "elsewhere") == {"a": 0.5, "b": 0.5}


@given(
    weights=st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda row: sum(row) > 1e-3),
    noise=st.floats(0, 1),
    left_out=st.floats(0, 1),
)
def test_noise_and_avoidance_mix_as_they_say(weights: list[float], noise: float, left_out: float) -> None:
    row = dict(zip("abc", (w / sum(weights) for w in weights), strict=True))
    agent = TableBehavior(probabilities={"here": row}, random_probability=noise).without("a", probability=left_out)
    chosen = agent.action_probabilities(None, ("a", "b", "c"), "here")
    assert sum(chosen.values()) == pytest.approx(1)
    assert chosen.get("a", 0.0) == pytest.approx((1 - left_out) * (noise / 3 + (1 - noise) * row["a"]))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: TableBehavior(probabilities={"here": {"a": 0.5}}), "at 'here'.*sum to 1"),
        (lambda: TableBehavior(probabilities={"here": {"a": 1.5, "b": -0.5}}), ">= 0"),
        (lambda: TableBehavior(probabilities={"here": {"a": float("nan")}}), "sum to 1"),
        (lambda: TableBehavior(random_probability=1.5), "random_probability is 1.5"),
        (lambda: Behavior(right_probability=-0.1), "right_probability is -0.1"),
        (lambda: Behavior().without("mul", probability=2.0), r"avoid\['mul'\]"),
        (lambda: MixedBehavior(mixed=()), "shares"),
        (lambda: MixedBehavior(mixed=(MixedPart(0.5, "half", Behavior()),)), "sum to 1"),
    ],
)
def test_what_is_no_distribution_is_refused(make, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        make()


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"row 3, colunm 0": {"up": 1.0}}, "no state key 'row 3, colunm 0'"),
        ({"row 3, column 0": {"fly": 1.0}}, "no action 'fly'"),
    ],
)
def test_a_mistyped_name_in_a_table_is_refused(row, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        orl.collect("gridworld", TableBehavior(probabilities=row), n_episodes=1)


def test_an_agent_of_another_world_is_unknown() -> None:
    with pytest.raises(UnknownName, match=r"behavior policy of gridworld.*careful"):
        orl.collect("gridworld", "logger_without_mul", n_episodes=1)


def test_an_agent_that_wanders_about_fills_no_memory() -> None:
    assert orl.collect("gridworld", "uniform", n_episodes=20, seed=0, most_steps=2000).n_steps > 500
    with pytest.raises(InvalidConfig, match="of 1,000 episodes have more than 2,000 steps"):
        orl.collect("gridworld", "uniform", n_episodes=1000, seed=0, most_steps=2000)


def test_an_agent_that_can_no_longer_reach_the_goal_is_refused_and_the_refusal_kept(monkeypatch) -> None:
    monkeypatch.setattr(recollection, "FEW_STEPS", 2000)
    log, edit = orl.collect("gridworld", n_episodes=20), DropAction("right", how="recollect")
    with pytest.raises(InvalidEdit, match="goes round and round"):
        orl.frame(log, edits=[edit])
    monkeypatch.setattr(log_module, "log_of_source", None)  # the second time nothing is collected
    with pytest.raises(InvalidEdit, match="goes round and round"):
        orl.frame(log, edits=[edit])


def test_a_learned_policy_writes_a_log() -> None:
    model = orl.train(orl.frame(orl.collect("chain", n_episodes=300)), "fqi")
    log = orl.collect("chain", TableBehavior.of(model.policy), n_episodes=20)
    assert log.distinct_values("action") == ["walk"]
    assert log.n_steps == 20 * 6


# -- several agents -------------------------------------------------------------------------------------------


def test_each_episode_of_a_mixture_has_one_author() -> None:
    log = orl.collect("chain", n_episodes=1000, seed=5)
    authors = dict(log.rows("SELECT behavior_policy, count(DISTINCT episode_id) FROM steps GROUP BY 1"))
    assert set(authors) == {"first_half", "second_half"}
    assert abs(authors["first_half"] - 600) < 4 * (1000 * 0.6 * 0.4) ** 0.5
    assert sum(authors.values()) == 1000, "no episode has two authors"
    jumps = log.rows("SELECT DISTINCT behavior_policy, state_text FROM steps WHERE action = 'jump' ORDER BY ALL")
    assert jumps == [("first_half", f"link {i}") for i in (4, 5, 6)] + [("second_half", f"link {i}") for i in (1, 2, 3)]
    assert log.rows("SELECT DISTINCT action_logprob FROM steps") == [(0.0,)], "of the author, not of the mixture"


def test_a_mixture_is_worth_the_mean_of_its_agents() -> None:
    truth = orl.behavior_truth(both(), "chain")
    parts = [evaluate(behavior_policy(make_world("chain"), agent), "chain") for agent in (first_half(), second_half())]
    assert truth.mean_return == pytest.approx(0.6 * parts[0].mean_return + 0.4 * parts[1].mean_return)
    by_task = orl.behavior_truth(
        MixedBehavior(mixed=(MixedPart(0.5, "with", Behavior()), MixedPart(0.5, "without", Behavior().without("mul")))),
        "calculator",
    ).by_task
    assert by_task["mul"].success_rate == pytest.approx((0.62 + 0.38 * (1 / 3 + 1 / 243) + 1 / 162) / 2, abs=1e-12)


def test_the_table_of_a_mixture_visits_every_pair_as_its_agents_do() -> None:
    """Where keys hide nothing, one policy stands in for the mixture: same visits, pair by pair."""
    model = world_model("chain")
    table = behavior_policy(model.world, both())
    expected = np.zeros((2, 6))
    for share, agent in ((0.6, first_half()), (0.4, second_half())):
        probabilities = model.probabilities(behavior_policy(model.world, agent))
        expected += share * probabilities * model.visits(probabilities)
    probabilities = model.probabilities(table)
    assert probabilities * model.visits(probabilities) == pytest.approx(expected, abs=1e-12)


def test_a_mixture_can_be_collected_again_without_an_action() -> None:
    log = orl.collect("chain", n_episodes=50)
    dataset = orl.frame(log, edits=[DropAction("jump", how="recollect")])
    assert dataset.log.distinct_values("action") == ["walk"]
    assert dataset.n_episodes == 50
    with pytest.raises(InvalidEdit, match="chain has no tasks"):
        orl.frame(log, edits=[DropAction("jump", where="task = 'x'", how="recollect")])


@pytest.mark.parametrize(
    ("world", "action", "where"), [("calculator_chain", "sub", "task = 'add_add'"), ("gridworld", "left", "")]
)
def test_any_world_can_be_collected_again(world: str, action: str, where: str) -> None:
    log = orl.collect(world, n_episodes=100)
    again = orl.frame(log, edits=[DropAction(action, where=where, how="recollect")]).log
    shows = f"SELECT count(*) FROM steps WHERE action = '{action}' AND ({where or 'true'})"
    assert log.rows(shows)[0][0] > 0
    assert again.rows(shows)[0][0] == 0
    assert again.source is not None
    assert again.source.behavior_name != "logger"
