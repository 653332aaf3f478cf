"""Distribution shift: visits and flows against paper, enumeration and each other; weights against the truth; slips in bounds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import offrl_core as orl
from offrl_core.behavior import WorldSource, collect_steps, named_behavior
from offrl_core.dataset import Dataset
from offrl_core.errors import InvalidConfig, NotPossible
from offrl_core.evaluation.exact import world_model
from offrl_core.evaluation.log_quality import concentrability
from offrl_core.evaluation.shift import FLOW_STEPS, MAX_STEPS, OVER, START, Shift, compounding_error, distribution_shift
from offrl_core.importers.report import ImportReport
from offrl_core.log import Log
from offrl_core.policies import TabularPolicy, uniform_policy
from offrl_core.worlds import WORLDS

from .helpers import episode, make_log, policy_of

SMALL = ("calculator", "chain", "gridworld", "calculator_chain")
ALWAYS_GO = {str(i): {"go": 1.0} for i in range(3)}
HALF = {str(i): {"go": 0.5, "stop": 0.5} for i in range(3)}


def world_dataset(world: str, n_episodes: int = 60, behavior: str = "logger") -> Dataset:
    return orl.frame(orl.collect(world, behavior, n_episodes=n_episodes, seed=1))


def without_its_world(world: str, behavior: str, n_episodes: int) -> Dataset:
    """The same rows as an imported log would show them."""
    name, agent = named_behavior(behavior, world)
    source = WorldSource(world=world, behavior=agent, behavior_name=name, n_episodes=n_episodes, seed=1)
    return orl.frame(
        Log(collect_steps(source), name="imported", fingerprint="imported", source=None, report=ImportReport())
    )


def flows(shift: Shift, side: str) -> dict[tuple[int, str, bool, str, bool], float]:
    return {link[:5]: link.share for link in getattr(shift, side).flow}


# -- exact ----------------------------------------------------------------------------------------------------


@pytest.fixture
def on_paper(tiny_worlds: None) -> Shift:
    """The log always goes; the policy stops with probability 1/2 at each of the three states."""
    dataset = orl.frame(orl.collect("chain", orl.TableBehavior(probabilities=ALWAYS_GO), n_episodes=4))
    return distribution_shift(dataset, policy_of(HALF, ("go", "stop")))


def test_visits_and_distance_by_hand(on_paper: Shift) -> None:
    stop, go = on_paper.actions.index("stop"), on_paper.actions.index("go")
    assert on_paper.policy.by_pair[:, go] == pytest.approx([0.5, 0.25, 0.125])
    assert on_paper.policy.by_pair[:, stop] == pytest.approx([0.5, 0.25, 0.125])
    assert on_paper.log.by_pair[:, go] == pytest.approx([1, 1, 1])
    # t = 0: (1/2 + 1/2) / 2. t = 1: 3/4 too few go, 1/4 stop, and 1/2 are over. t = 2 alike.
    assert on_paper.total_variation == pytest.approx([0.5, 0.75, 0.875])
    assert on_paper.unsupported_share == pytest.approx(0.5)
    assert on_paper.kind == "exact"
    assert "t = 2: 88% of the episodes" in on_paper.sentence


def test_the_flow_by_hand(on_paper: Shift) -> None:
    assert flows(on_paper, "policy") == pytest.approx(
        {
            (0, START, True, "go", True): 0.5,
            (0, START, True, "stop", False): 0.5,
            (1, "stop", False, OVER, True): 0.5,
            (1, "go", True, "go", True): 0.25,
            (1, "go", True, "stop", False): 0.25,
            (2, "stop", False, OVER, True): 0.25,
            (2, "go", True, "go", True): 0.125,
            (2, "go", True, "stop", False): 0.125,
            (3, "stop", False, OVER, True): 0.125,
            (3, "go", True, OVER, True): 0.125,
        }
    )
    assert flows(on_paper, "log") == pytest.approx(
        {
            (0, START, True, "go", True): 1.0,
            (1, "go", True, "go", True): 1.0,
            (2, "go", True, "go", True): 1.0,
            (3, "go", True, OVER, True): 1.0,
        }
    )


@pytest.mark.parametrize("world", SMALL)
def test_visits_are_those_of_the_exact_solver_and_flows_keep_every_episode(world: str) -> None:
    dataset = world_dataset(world)
    policy = orl.train(dataset, "bc", imitate="frequencies").policy  # as the log's agent, it comes to an end
    shift = distribution_shift(dataset, policy)
    model = world_model(world)
    by_key = np.bincount(model.key_index, model.visits(model.probabilities(policy)), minlength=len(model.keys))
    ours = dict(zip(shift.states, shift.policy.by_pair.sum(axis=1), strict=True))
    for key, visits in zip(model.keys, by_key, strict=True):
        assert ours.get(key, 0.0) == pytest.approx(visits, abs=1e-6)
    assert (shift.total_variation >= 0).all()
    assert (shift.total_variation <= 1).all()
    for side in (shift.policy, shift.log):
        arrive: dict[tuple[int, str, bool], float] = {}
        leave: dict[tuple[int, str, bool], float] = {}
        for link in side.flow:
            target, source = (
                (link.step, link.target, link.target_supported),
                (link.step - 1, link.source, link.source_supported),
            )
            arrive[target] = arrive.get(target, 0.0) + link.share
            leave[source] = leave.get(source, 0.0) + link.share
        assert sum(share for (step, *_), share in leave.items() if step == -1) == pytest.approx(1.0)
        for node, share in arrive.items():
            if node[1] != OVER and node[0] < FLOW_STEPS - 1:
                assert leave[node] == pytest.approx(share, abs=1e-8)


def test_an_agent_that_copies_itself_differs_by_chance_alone() -> None:
    dataset = orl.frame(orl.collect("chain", "uniform", n_episodes=20_000, seed=5))
    policy = uniform_policy(dataset.states, dataset.actions, np.ones_like(dataset.valid_mask))
    assert distribution_shift(dataset, policy).total_variation.max() < 0.02


def test_what_the_policy_alone_visits_is_listed_and_unsupported(dataset_without_mul: Dataset) -> None:
    shift = distribution_shift(dataset_without_mul, orl.train(dataset_without_mul, "fqi").policy)
    assert len(shift.states) > dataset_without_mul.n_states
    beyond = slice(dataset_without_mul.n_states, None)
    assert not shift.supported[beyond].any()
    assert (shift.policy.by_pair[beyond].sum(axis=1) > 0).all()
    assert any(link.target == "mul" and not link.target_supported for link in shift.policy.flow)


def test_episodes_that_never_end_are_cut_and_counted() -> None:
    dataset = orl.frame(orl.collect("gridworld", "logger", n_episodes=30, seed=0))
    circle = np.zeros(dataset.valid_mask.shape)
    circle[:, dataset.actions.index("up")] = 1.0
    policy = TabularPolicy(states=dataset.states, actions=dataset.actions, probabilities=circle)
    shift = distribution_shift(dataset, policy)
    assert len(shift.policy.going) == MAX_STEPS
    assert shift.left_out > 0.5


# -- weighted -------------------------------------------------------------------------------------------------


def test_weighted_visits_come_close_to_the_exact_ones() -> None:
    """Walking more often than the uniform agent that wrote the log: the weights must make up for it."""
    imported, known = without_its_world("chain", "uniform", 4000), world_dataset("chain", 10)
    rows = {state: {"walk": 0.7, "jump": 0.3} for state in known.states}
    policy = policy_of(rows, known.actions)
    weighted, exact = distribution_shift(imported, policy), distribution_shift(known, policy)
    assert weighted.kind == "weighted"
    ours = {
        (s, a): v
        for s, row in zip(weighted.states, weighted.policy.by_pair, strict=True)
        for a, v in zip(weighted.actions, row, strict=True)
    }
    for state, row in zip(exact.states, exact.policy.by_pair, strict=True):
        for action, visits in zip(exact.actions, row, strict=True):
            assert ours[state, action] == pytest.approx(visits, abs=0.03)
    assert weighted.effective_sample_size is not None
    assert 1000 < weighted.effective_sample_size.min() < 4000


def test_with_weights_of_one_the_two_sides_are_the_same() -> None:
    imported = without_its_world("chain", "uniform", 200)
    policy = uniform_policy(imported.states, imported.actions, np.ones_like(imported.valid_mask))
    shift = distribution_shift(imported, policy)
    assert shift.total_variation == pytest.approx(np.zeros(6), abs=1e-12)
    assert flows(shift, "policy") == pytest.approx(flows(shift, "log"))


# -- refusals -------------------------------------------------------------------------------------------------


def test_what_cannot_be_compared_is_refused_in_a_sentence() -> None:
    rows = [row for i in range(20) for row in episode(f"e{i}", ("0", "a", 1.0), ("1", "b", 0.0))]
    dataset = orl.frame(make_log(rows))
    other = policy_of({"0": {"b": 1.0}, "1": {"a": 1.0}}, dataset.actions)
    with pytest.raises(NotPossible, match="never shows"):
        distribution_shift(dataset, other)
    torn = orl.frame(make_log(rows), edits=[orl.DropAction("b", how="transitions")])
    with pytest.raises(NotPossible, match="whole episodes"):
        distribution_shift(torn, other)
    silent = orl.frame(make_log([{**row, "reward": None} for row in rows]))
    with pytest.raises(NotPossible, match="no rewards"):
        distribution_shift(silent, other)
    one = orl.frame(make_log(rows[:2]))
    with pytest.raises(NotPossible, match="effective sample size"):
        distribution_shift(one, orl.train(one, "bc").policy)
    with pytest.raises(NotPossible, match="nobody knows where a slip would lead"):
        compounding_error(dataset, other, 0.1)


def test_a_policy_that_looks_back_is_refused() -> None:
    dataset, looks_back = world_dataset("chain"), SimpleNamespace(states=(), actions=())
    for ask in (distribution_shift, concentrability, lambda d, p: compounding_error(d, p, 0.1)):
        with pytest.raises(NotPossible, match="looks back"):
            ask(dataset, looks_back)


@pytest.mark.parametrize("terminal", [None, False])
def test_a_constant_reward_and_episodes_without_an_ending(terminal: bool | None) -> None:
    rows = [row for i in range(20) for row in episode(f"e{i}", ("0", "a", 1.0), ("1", "b", 1.0), terminal=terminal)]
    dataset = orl.frame(make_log(rows))
    shift = distribution_shift(dataset, orl.train(dataset, "bc").policy)
    assert shift.total_variation == pytest.approx([0, 0])


def test_branches_alone_have_no_first_step() -> None:
    rows = [{**row, "t": row["t"] + 1, "parent_episode": "p"} for row in episode("e", ("0", "a", 1.0))]
    dataset = orl.frame(make_log(rows))
    with pytest.raises(NotPossible, match="Whole episodes would help"):
        distribution_shift(dataset, orl.train(dataset, "bc").policy)


# -- slips ----------------------------------------------------------------------------------------------------


def test_the_loss_by_slips_by_hand(tiny_worlds: None) -> None:
    """Going pays -0.1, -0.1 and 1; with slips each step is reached with one more factor p = 1 - slip."""
    dataset = orl.frame(orl.collect("chain", orl.TableBehavior(probabilities=ALWAYS_GO), n_episodes=4))
    found = compounding_error(dataset, policy_of(ALWAYS_GO, ("go", "stop")), 0.2, horizon=4)
    p = 0.8
    expected = [-0.1 + 0.1 * p, -0.2 + 0.1 * (p + p**2), 0.8 - (-0.1 * (p + p**2) + p**3)]
    assert found.loss == pytest.approx([*expected, expected[-1]])
    assert found.span == pytest.approx(1.1)
    assert found.bound == pytest.approx(1.1 * np.array([0.2, 0.8, 1.8, 3.2]))
    assert found.unconnected == pytest.approx(1.1 * 0.2 * np.arange(1, 5))


@pytest.mark.parametrize("world", SMALL)
@pytest.mark.parametrize("slip", [0.0, 0.02, 0.3, 1.0])
def test_no_loss_exceeds_the_worst_case(world: str, slip: float) -> None:
    dataset = world_dataset(world)
    for deployment in WORLDS[world].deployments:
        for name in ("bc", "fqi"):
            found = compounding_error(dataset, orl.train(dataset, name).policy, slip, deployment=deployment)
            assert (found.loss <= found.bound + 1e-9).all()
            if slip == 0:
                assert not found.loss.any()


def test_a_slip_that_helps_is_said_to_gain(tiny_worlds: None) -> None:
    """Who stops at once misses the reward that slips lead to; no loss is negative in words."""
    dataset = orl.frame(orl.collect("chain", orl.TableBehavior(probabilities=ALWAYS_GO), n_episodes=4))
    for policy, does in ((ALWAYS_GO, "loses"), ({key: {"stop": 1.0} for key in ALWAYS_GO}, "gains")):
        found = compounding_error(dataset, policy_of(policy, ("go", "stop")), 0.9, horizon=6)
        assert f"the policy {does} {abs(found.loss[-1]):.3f} reward" in found.sentence
        assert "-" not in found.sentence.split("reward")[0]


@pytest.mark.parametrize(("slip", "horizon"), [(-0.1, 5), (1.1, 5), (0.1, 0), (np.nan, 5)])
def test_a_slip_that_is_no_probability_is_refused(slip: float, horizon: int) -> None:
    dataset = world_dataset("chain")
    with pytest.raises(InvalidConfig):
        compounding_error(dataset, orl.train(dataset, "bc").policy, slip, horizon=horizon)
