"""From log to arrays: what follows a step, what counts, what is unknown. Held against a plain recount in Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.behavior import named_behavior
from offrl_core.dataset import Dataset
from offrl_core.edges import CUT, ENDED, GOES_ON
from offrl_core.errors import EmptyDataset, InvalidConfig
from offrl_core.evaluation.diagnostics import evidence, state_table, value_parts

from .helpers import Row, counts_by_name, covering_log, episode, few_examples, framed_by_hand, make_log, random_rows

NASTY = (
    "'); DROP TABLE steps; --",
    'say "hi", it\'s; 100 %',
    "умножить",
    "🧮→∑",
    "a:b,c\\d",
    "$1 ? {x} [y]",
    "",
    " ",
)


def frame_rows(rows: list[Row], *edits: Any) -> Dataset:
    return orl.frame(make_log(rows), edits=edits)


def endings(dataset: Dataset) -> list[int]:
    """Endings in the order of the log."""
    rows = dataset.transitions()
    return [
        ENDED if ended else CUT if cut else GOES_ON for ended, cut in zip(rows.terminals, rows.timeouts, strict=True)
    ]


# -- what follows a step --------------------------------------------------------------------------------------

TWO = (("s", "a", 0.0), ("s2", "b", 1.0))


@pytest.mark.parametrize(
    ("terminal", "timeout", "ending"),
    [
        (True, False, ENDED),
        (True, None, ENDED),
        (True, True, ENDED),
        (False, True, CUT),
        (None, True, CUT),
        (False, False, CUT),
        (False, None, CUT),
        (None, False, CUT),
        (None, None, ENDED),
    ],
)
def test_the_last_step_ends_is_cut_or_is_taken_for_an_ending(
    terminal: bool | None, timeout: bool | None, ending: int
) -> None:
    assert endings(frame_rows(episode("e", *TWO, terminal=terminal, timeout=timeout))) == [GOES_ON, ending]


def test_a_log_that_cannot_say_how_it_ended_says_so() -> None:
    unknown = frame_rows(episode("e", *TWO, terminal=None, timeout=None) + episode("f", *TWO))
    assert any("1 of 2 episodes" in note and "end" in note for note in unknown.notes)
    known = frame_rows(episode("e", *TWO, available_tools=["a", "b"]))
    assert known.notes == ()


def test_a_gap_in_t_cuts_the_episode_there() -> None:
    """Whatever stood between is missing, so the later step is no successor; both rows still count as seen."""
    rows = episode("e", ("s", "a", 1.0), ("far", "b", 2.0))
    rows[1]["t"] = 5
    dataset = frame_rows(rows)
    assert endings(dataset) == [CUT, ENDED]
    assert dataset.transitions().next_observations.tolist() == [-1, -1]
    assert counts_by_name(dataset) == {("far", "b"): 1, ("s", "a"): 1}
    assert dataset.value_counts.sum() == 1


def test_steps_come_in_any_order_and_t_sorts_them() -> None:
    rows = episode("e", ("first", "a", 0.0), ("second", "b", 0.0), ("third", "c", 1.0))
    dataset = frame_rows(rows[::-1])
    third, second, first = (dataset.states.index(name) for name in ("third", "second", "first"))
    assert dataset.transitions().next_observations.tolist() == [-1, third, second]
    assert dataset.transitions().observations.tolist() == [third, second, first]


def test_removing_rows_never_makes_distant_steps_neighbours() -> None:
    rows = episode("e", ("s1", "a", 0.0), ("s2", "b", 0.0), ("s3", "a", 1.0))
    dataset = frame_rows(rows, orl.DropAction("b", how="transitions"))
    assert endings(dataset) == [GOES_ON, ENDED]
    assert dataset.states == ("s1", "s2", "s3")
    assert dataset.transitions().next_observations.tolist() == [1, -1]


# -- rewards --------------------------------------------------------------------------------------------------


def test_an_unknown_reward_teaches_nothing_but_counts_as_seen() -> None:
    dataset = frame_rows(
        episode("e", ("s", "a", None)) + episode("f", ("s", "a", 1.0)) + episode("g", ("s", "b", None))
    )
    assert counts_by_name(dataset) == {("s", "a"): 2, ("s", "b"): 1}
    assert dataset.value_counts.tolist() == [[1, 0]]
    q_values = orl.train(dataset, "fqi", default_value=-7.0).q_values
    assert q_values is not None
    assert q_values.tolist() == [[1.0, -7.0]], "the mean of what is known; the default where nothing is"
    assert any("2 of 3 steps teach no value" in note for note in dataset.notes)
    assert np.isnan(dataset.transitions().rewards[[0, 2]]).all()


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_no_number_is_unknown_and_never_0(reward: float) -> None:
    dataset = frame_rows(episode("e", ("s", "a", reward)) + episode("f", ("s", "a", 1.0)))
    assert dataset.value_counts.tolist() == [[1]]
    q_values = orl.train(dataset, "fqi").q_values
    assert q_values is not None
    assert q_values.tolist() == [[1.0]]
    assert orl.frame(dataset.log, edits=[orl.MinReturn(-100.0)]).n_episodes == 1


def test_success_and_return_belong_to_whole_episodes() -> None:
    dataset = frame_rows(episode("e", *TWO) + episode("f", ("s", "a", None), ("s2", "b", 1.0)))
    framed = dataset.log.rows(
        f"SELECT episode_id, episode_return, success FROM framed_{dataset.framing.token} ORDER BY row"
    )
    assert framed == [("e", 1.0, True)] * 2 + [("f", None, None)] * 2


# -- states, actions, validity --------------------------------------------------------------------------------


def test_states_stand_in_natural_order() -> None:
    names = ["result 10", "result 9", "result -3", "start", "result 9b", "result 100"]
    dataset = frame_rows([row for i, name in enumerate(names) for row in episode(f"e{i}", (name, "a", 0.0))])
    assert dataset.states == ("result -3", "result 9", "result 9b", "result 10", "result 100", "start")


def test_the_order_of_states_does_not_hang_on_the_order_of_the_log() -> None:
    names = ["x1", "x01", "x001"]
    forward, backward = (
        frame_rows([row for i, name in enumerate(order) for row in episode(f"e{i}", (name, "a", 0.0))])
        for order in (names, names[::-1])
    )
    assert forward.states == backward.states == ("x001", "x01", "x1")


def test_an_episode_that_branches_off_another_begins_in_no_state() -> None:
    whole = episode("whole", ("s", "a", 0.0), ("mid", "a", 1.0))
    retry = [{**row, "t": 1, "parent_episode": "whole"} for row in episode("retry", ("mid", "b", 0.0))]
    helper = [{**row, "parent_episode": "whole"} for row in episode("helper", ("other", "a", 0.0), ("mid", "a", 0.0))]
    dataset = frame_rows([*whole, *retry, *helper])
    starts = {state: int(n) for state, n in zip(dataset.states, dataset.start_counts, strict=True) if n}
    assert starts == {"s": 1, "other": 1}


def test_a_hole_in_the_list_of_tools_is_no_tool() -> None:
    dataset = frame_rows(episode("e", ("s", "a", 0.0), available_tools=["a", None, "b"]))
    assert dataset.actions == ("a", "b")
    assert dataset.valid_mask.tolist() == [[True, True]]


def test_actions_stand_by_use_and_those_only_offered_come_last() -> None:
    steps = [("s", "rare", 0.0), ("s", "often", 0.0), ("s", "often", 0.0)]
    dataset = frame_rows(episode("e", *steps, available_tools=["rare", "often", "z never", "a never"]))
    assert dataset.actions == ("often", "rare", "a never", "z never")
    assert dataset.visitation_counts.tolist() == [[2, 1, 0, 0]]
    assert dataset.valid_mask.all()
    assert dataset.validity_known


def test_a_worlds_actions_stand_in_its_own_order(dataset_without_mul: Dataset) -> None:
    assert dataset_without_mul.actions == ("lookup_x", "lookup_y", "add", "sub", "mul", "final")


def test_what_was_offered_or_taken_is_valid() -> None:
    rows = episode("e", ("s", "a", 0.0), available_tools=["a", "b"]) + episode(
        "f", ("r", "c", 0.0), available_tools=["b"]
    )
    dataset = frame_rows(rows)
    named = {
        s: {dataset.actions[a] for a in np.flatnonzero(dataset.valid_mask[i])} for i, s in enumerate(dataset.states)
    }
    assert named == {"s": {"a", "b"}, "r": {"b", "c"}}


def test_where_the_log_is_silent_every_action_is_valid() -> None:
    says = episode("e", ("s", "a", 0.0), available_tools=["a"])
    partly = frame_rows([*says, *episode("f", ("r", "b", 0.0))])
    assert partly.validity_known
    assert partly.valid_mask[partly.states.index("r")].all()
    assert not partly.valid_mask[partly.states.index("s")].all()
    silent = frame_rows(episode("e", ("s", "a", 0.0)))
    assert not silent.validity_known
    assert any("every action counts as valid" in note for note in silent.notes)


def test_validity_survives_the_edits(dataset_with_mul: Dataset) -> None:
    edited = orl.frame(dataset_with_mul.log, edits=[orl.DropAction("mul", where="task = 'mul'")])
    choice = edited.states.index("mul: x, y known")
    assert edited.visitation_counts[choice, edited.actions.index("mul")] == 0
    assert edited.valid_mask[choice, edited.actions.index("mul")]


# -- recounts -------------------------------------------------------------------------------------------------


@few_examples
@given(random_rows())
def test_arrays_counts_and_edges_equal_a_plain_recount(rows: list[Row]) -> None:
    dataset, framed = frame_rows(rows), framed_by_hand(rows)
    state = {name: i for i, name in enumerate(dataset.states)}
    action = {name: i for i, name in enumerate(dataset.actions)}

    transitions = dataset.transitions()
    assert transitions.observations.tolist() == [state[row["state_text"]] for row in framed]
    assert transitions.actions.tolist() == [action[row["action"]] for row in framed]
    assert transitions.next_observations.tolist() == [state.get(row["next_state"], -1) for row in framed]
    assert endings(dataset) == [row["ending"] for row in framed]
    known = [np.nan if row["reward"] is None else row["reward"] for row in framed]
    assert np.array_equal(transitions.rewards, known, equal_nan=True)

    assert counts_by_name(dataset) == Counter((row["state_text"], row["action"]) for row in framed)
    edges = dataset.edges
    found = {
        (dataset.states[s], dataset.actions[a], dataset.states[s2] if s2 >= 0 else None, ending): (
            count,
            n,
            total,
        )
        for s, a, s2, ending, count, n, total in zip(*edges, strict=True)
    }
    grouped: dict[Any, list[Any]] = {}
    for row in framed:
        key = (row["state_text"], row["action"], row["next_state"], row["ending"])
        grouped.setdefault(key, []).append(row["reward"])
    assert found == {
        key: (len(rewards), len(rewards) - rewards.count(None), sum(r for r in rewards if r is not None))
        for key, rewards in grouped.items()
    }
    assert edges.counts.sum() == dataset.n_transitions == len(rows)
    assert dataset.n_episodes == len({row["episode_id"] for row in rows})
    usable = Counter((r["state_text"], r["action"]) for r in framed if r["ending"] != CUT and r["reward"] is not None)
    assert dataset.value_counts.sum() == usable.total()


def test_framing_twice_gives_the_same(dataset_with_mul: Dataset) -> None:
    again = orl.frame(dataset_with_mul.log)
    assert again.states == dataset_with_mul.states
    order = [np.lexsort(d.edges[:4]) for d in (again, dataset_with_mul)]
    for one, other in zip(again.edges, dataset_with_mul.edges, strict=True):
        assert np.array_equal(one[order[0]], other[order[1]])
    for one, other in zip(again.transitions(), dataset_with_mul.transitions(), strict=True):
        assert np.array_equal(one, other, equal_nan=True)


def test_the_empirical_process_is_made_of_probabilities(dataset_with_mul: Dataset) -> None:
    mdp = dataset_with_mul.empirical_mdp(dataset_with_mul.valid_mask, 0.0)
    sums = mdp.successors.matrix.sum(axis=1).reshape(mdp.rewards.shape)
    final = dataset_with_mul.actions.index("final")
    assert sums[final] == pytest.approx(np.zeros(dataset_with_mul.n_states))
    goes_on = dataset_with_mul.support_mask().T.copy()
    goes_on[final] = False
    assert sums[goes_on] == pytest.approx(np.ones(goes_on.sum()))
    assert (np.isneginf(mdp.rewards) == ~dataset_with_mul.valid_mask.T).all()


def test_log_rows_and_dataset_agree_on_the_bundled_log(dataset_with_mul: Dataset) -> None:
    assert (dataset_with_mul.n_episodes, dataset_with_mul.n_transitions) == (3000, 12_000)
    assert dataset_with_mul.tasks == ["add", "mul", "sub"]
    by_task = [dataset_with_mul.states_of_task(task) for task in dataset_with_mul.tasks]
    assert set.union(*by_task) == set(dataset_with_mul.states)
    assert sum(map(len, by_task)) == dataset_with_mul.n_states
    assert len(dataset_with_mul.edges.counts) < 400


# -- odd sizes and odd names ----------------------------------------------------------------------------------


def test_one_episode_of_one_action() -> None:
    dataset = frame_rows(episode("e", ("s", "only", 1.0)))
    assert (dataset.n_states, dataset.n_actions, dataset.n_episodes) == (1, 1, 1)
    for name, spec in orl.ALGORITHMS.items():
        few = {"n_steps": 3} if "n_steps" in spec.config_class.__dataclass_fields__ else {}
        policy = orl.train(dataset, name, **few).policy
        assert policy.choices([policy.begin("s")], [("only",)]) == [{"only": 1.0}]


def test_two_hundred_actions() -> None:
    rows = [row for i in range(200) for row in episode(f"e{i}", ("s", f"tool_{i}", i / 200))]
    dataset = frame_rows(rows)
    assert dataset.n_actions == 200
    for name in ("fqi", "fqi_support", "cql"):
        assert orl.train(
            dataset, name, **({"conservative_weight": 0.01} if name == "cql" else {})
        ).policy.greedy_actions() == ("tool_199",)


def test_names_stay_data() -> None:
    """Quotes, semicolons, Cyrillic and emoji in states, actions and tasks reach every query as values."""
    rows = [
        row
        for i, name in enumerate(NASTY)
        for row in episode(
            f"{name}{i}", (f"{name} s", name, 0.5), (name, name, 1.0), task=name, available_tools=list(NASTY)
        )
    ]
    dataset = frame_rows(rows)
    assert set(dataset.actions) == set(NASTY)
    assert set(dataset.tasks) == set(NASTY)
    model = orl.train(dataset, "fqi_support")
    for name in NASTY:
        found = evidence(dataset, name, name)
        assert (found.n_rows, found.n_episodes, found.mean_reward) == (1, 1, 1.0)
        assert dataset.states_of_task(name) == {name, f"{name} s"}
        without = orl.frame(dataset.log, edits=[orl.DropAction(name)])
        assert without.n_episodes == len(NASTY) - 1
        only = orl.frame(dataset.log, edits=[orl.OnlyValue("task", name)])
        assert only.n_episodes == 1
        assert model.policy.action_probabilities(f"{name} s", NASTY) == {name: 1.0}
    assert dataset.log.rows("SELECT count(*) FROM steps") == [(2 * len(NASTY),)]


# -- refusals -------------------------------------------------------------------------------------------------


def test_an_empty_log_is_refused() -> None:
    with pytest.raises(EmptyDataset, match="holds no step"):
        make_log([])


def test_an_empty_result_names_the_edit_that_emptied_it(dataset_with_mul: Dataset) -> None:
    edits = [orl.KeepFraction(0.5), orl.MinReturn(50.0), orl.DropAction("add")]
    with pytest.raises(EmptyDataset) as refusal:
        orl.frame(dataset_with_mul.log, edits=edits)
    assert edits[1].sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("framing", "complaint"),
    [
        ({"state": "no_such_column"}, "can't be computed"),
        ({"state": "state_text", "reward": "action"}, "can't be computed"),
        ({"state": "CASE WHEN t > 0 THEN 'late' END"}, "3,000 of 12,000 steps"),
    ],
)
def test_a_framing_that_does_not_fit_is_refused(
    framing: dict[str, str], complaint: str, dataset_with_mul: Dataset
) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        orl.frame(dataset_with_mul.log, orl.Framing(**framing))


@pytest.mark.parametrize("discount", [-0.1, 1.1, float("nan")])
def test_a_discount_outside_0_to_1_is_refused(discount: float) -> None:
    with pytest.raises(InvalidConfig, match="between 0 and 1"):
        orl.Framing(state="state_text", discount=discount)


def test_the_preset_for_traces_sees_the_last_tool_and_whether_it_failed() -> None:
    rows = episode("e", ("", "search", 0.0), ("", "book", 0.0), ("", "book", 1.0))
    rows[1]["error"] = "full"
    for row in rows:
        row["state_text"] = None
    dataset = frame_rows(rows)
    assert set(dataset.states) == {"start", "search", "book (failed)"}
    assert dataset.transitions().rewards.tolist() == [0.0, 0.0, 1.0], "the episode's reward, at its end"


# -- the way back to the evidence -----------------------------------------------------------------------------


def test_a_value_taken_apart_adds_up(dataset_with_mul: Dataset) -> None:
    model = orl.train(dataset_with_mul, "fqi")
    assert model.q_values is not None
    for s, a in np.argwhere(dataset_with_mul.support_mask())[::7]:
        parts = value_parts(dataset_with_mul, model, s, a)
        assert parts.total == pytest.approx(model.q_values[s, a], abs=1e-9)
        assert sum(part.probability for part in parts.parts) == pytest.approx(1)
    choice, final = dataset_with_mul.states.index("mul: x, y known"), dataset_with_mul.actions.index("final")
    assert value_parts(dataset_with_mul, model, choice, final).total is None


def test_evidence_counts_what_the_edits_left(dataset_with_mul: Dataset) -> None:
    counts = counts_by_name(dataset_with_mul)
    found = evidence(dataset_with_mul, "mul: x, y known", "mul")
    assert found.n_rows == found.n_episodes == counts["mul: x, y known", "mul"]
    assert found.mean_reward == pytest.approx(-0.02)
    assert found.mean_return == pytest.approx(-0.02 + 0.99 * 0.98)
    edited = orl.frame(dataset_with_mul.log, edits=[orl.DropAction("mul", where="task = 'mul'")])
    assert evidence(edited, "mul: x, y known", "mul").n_rows == 0
    assert evidence(edited, "add: x, y known", "mul").n_rows == counts["add: x, y known", "mul"]


def test_the_state_table_marks_choices_without_data(dataset_without_mul: Dataset) -> None:
    model = orl.train(dataset_without_mul, "fqi")
    table = state_table(dataset_without_mul, model, orl.exact_q_of(model, dataset_without_mul, "crash")).set_index(
        "state"
    )
    assert table.index[table.unsupported_choice].tolist() == ["mul: x, y known"]
    row = table.loc["mul: x, y known"]
    assert (row.greedy_action, row.greedy_count, row.learned_q) == ("mul", 0, 0.0)
    assert row.overestimation == pytest.approx(1.0)
    assert table.visits.sum() == 12_000


def test_times_at_the_ends_of_their_range_are_only_a_gap() -> None:
    """t is an INTEGER: its largest value plus one must not overflow, in framing, evidence or estimates."""
    rows = [
        {"episode_id": "a", "t": t, "action": "go", "state_text": "s", "reward": 1.0, "terminal": t > 0}
        for t in (-(2**31), 2**31 - 1)
    ]
    dataset = orl.frame(make_log(rows))
    assert sorted(dataset.edges.endings.tolist()) == [1, 2]
    assert evidence(dataset, "s", "go").n_rows == 2
    assert orl.estimate(orl.train(dataset, "bc").policy, dataset).refusal


@given(seed=st.integers(0, 10_000))
def test_edges_are_the_groups_that_sql_makes(seed: int) -> None:
    dataset = orl.frame(covering_log(seed), edits=[orl.DropWhere("reward > 0.5", "transitions")])
    groups = dataset.rows(
        f"""SELECT here.state_key, action_name, after.state_key, ending, count(*), count(framed_reward),
                   coalesce(sum(framed_reward), 0)
            FROM ({dataset.relation}) AS kept JOIN states_{dataset.framing.token} AS here USING (s)
            JOIN actions_{dataset.framing.token} USING (a)
            LEFT JOIN states_{dataset.framing.token} AS after ON after.s = kept.s2 GROUP BY ALL"""
    )
    states, actions = dataset.states, dataset.actions
    found = {
        (states[s], actions[a], states[s2] if s2 >= 0 else None, ending): (
            n,
            n_known,
            pytest.approx(rewards, abs=1e-12),
        )
        for s, a, s2, ending, n, n_known, rewards in zip(*(column.tolist() for column in dataset.edges), strict=True)
    }
    assert {group[:4]: group[4:] for group in groups} == found


@pytest.mark.parametrize("world", ["calculator", "calculator_chain", "gridworld", "chain"])
def test_mean_return_means_the_same_of_a_log_and_of_a_truth(world: str) -> None:
    log = orl.collect(world, "logger", n_episodes=3000, seed=1)
    dataset = orl.frame(log)
    returns = dataset.returns_to_go[dataset.first_rows]
    error = np.nanstd(returns) / np.sqrt((~np.isnan(returns)).sum())
    truth = orl.behavior_truth(named_behavior("logger", world)[1], world).mean_return
    assert dataset.mean_return == pytest.approx(np.nanmean(returns))
    assert abs(dataset.mean_return - truth) < 4 * error
