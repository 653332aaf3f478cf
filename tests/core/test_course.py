"""Length and cost of episodes: by hand, against sampled episodes, and where an episode never ends."""

from __future__ import annotations

import numpy as np
import pytest

import offrl_core as orl
from offrl_core.behavior import behavior_policy, named_behavior
from offrl_core.evaluation.course import behavior_course, course
from offrl_core.evaluation.exact import world_model
from offrl_core.policies import TabularPolicy, uniform_policy
from offrl_core.worlds import make_world


def always(world: str, action: str) -> TabularPolicy:
    """The policy that does one thing everywhere."""
    model = world_model(world)
    names = model.world.action_names
    table = np.zeros((len(model.keys), len(names)))
    table[:, names.index(action)] = 1.0
    return TabularPolicy(states=model.keys, actions=names, probabilities=table)


def test_the_calculator_takes_four_steps_of_which_three_cost() -> None:
    behavior = named_behavior("logger")[1]
    for found in (
        course(behavior_policy(make_world("calculator"), behavior), "calculator"),
        behavior_course(behavior, "calculator"),
    ):
        assert set(found) == {"", "add", "sub", "mul"}
        for task in found.values():
            assert task == pytest.approx((4.0, 0.06, 0.0), abs=1e-12)


def test_an_episode_that_never_ends_is_cut_and_counted() -> None:
    dry = course(always("gridworld", "up"), "gridworld", max_steps=50)[""]
    assert dry.cut > 0.9
    assert dry.cut * 50 <= dry.steps <= 50


@pytest.mark.parametrize("world", ["calculator_chain", "gridworld", "chain"])
def test_sampled_episodes_agree(world: str) -> None:
    """The undiscounted return is what the ends pay minus the cost on the way; both sides bound the sampled mean."""
    model = world_model(world)
    policy = uniform_policy(model.keys, model.world.action_names, model.valid_mask)
    rng, arena = np.random.default_rng(1), make_world(world)
    lengths, costs = np.zeros((2, 400))
    probabilities, starts = zip(*arena.initial_states(), strict=True)
    for episode, start in enumerate(rng.choice(len(starts), size=400, p=probabilities)):
        state, terminal = starts[start], False
        while not terminal and lengths[episode] < 1000:
            choice = policy.action_probabilities(arena.state_key(state), arena.actions(state))
            action = rng.choice(list(choice), p=list(choice.values()))
            outcomes = arena.transitions(state, str(action))
            drawn = outcomes[rng.choice(len(outcomes), p=[outcome.probability for outcome in outcomes])]
            state, terminal = drawn.next_state, drawn.terminal
            lengths[episode] += 1
            costs[episode] += 0.0 if terminal else max(-drawn.reward, 0.0)
    exact = course(policy, world)[""]
    for sampled, value in ((lengths, exact.steps), (costs, exact.cost)):
        assert abs(sampled.mean() - value) <= 4 * sampled.std() / 20 + 1e-9


def test_several_agents_are_mixed_by_their_shares() -> None:
    log = orl.collect("chain", n_episodes=10)
    assert log.source is not None
    found = behavior_course(log.source.behavior, "chain")[""]
    parts = [
        (part.share, course(behavior_policy(make_world("chain"), part.behavior), "chain")[""])
        for part in log.source.behavior.parts("")
    ]
    assert found.steps == pytest.approx(sum(share * one.steps for share, one in parts))
    assert found.cost == pytest.approx(sum(share * one.cost for share, one in parts))
