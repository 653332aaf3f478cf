"""What a key hides: mixed outcomes by plain recount, splits that find the hidden cause and nothing else, values compared."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.coverage_edits import CoverageEdit
from offrl_core.evaluation import aliasing
from offrl_core.evaluation.aliasing import (
    TOLERANCE,
    MixedOutcomes,
    Split,
    _outcomes,
    framing_numbers,
    left_open_in_words,
    mixed_outcomes,
    suggest_splits,
    value_change,
)
from offrl_core.evaluation.diagnostics import promised_return
from offrl_core.framing import framed_log
from offrl_core.framing_choices import PRESETS, FramingChoices
from offrl_core.framing_parts import (
    LastFailed,
    LastTools,
    LoggedReward,
    StateField,
    StepNumber,
    Task,
    WorldState,
)
from offrl_core.log import Log
from offrl_core.schema import canonical_json
from tests.traces import AIRLINE, shared_trace

from .helpers import CUT, GOES_ON, Row, episode, few_examples, framed_by_hand, make_log, random_rows

BY_STATE = FramingChoices(state=(WorldState(),), reward=LoggedReward())


# -- numbers -----------------------------------------------------------------------------------------------------


@few_examples
@given(rows=random_rows(), min_count=st.integers(1, 3))
def test_numbers_by_hand(rows: list[Row], min_count: int) -> None:
    dataset = orl.frame(make_log(rows), BY_STATE.framing())
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        pair = row["state_text"], row["action"]
        counts[pair] = counts.get(pair, 0) + 1
    states, actions = {s for s, _ in counts}, {a for _, a in counts}
    found = framing_numbers(dataset, min_count)
    assert found[:4] == (len(states), len(actions), len(states) * len(actions), len(counts))
    assert found.n_supported == sum(n >= min_count for n in counts.values())
    assert found.n_once == sum(n == 1 for n in counts.values())
    assert found.density == len(counts) / (len(states) * len(actions))
    assert found.once == found.n_once / len(counts)


# -- mixed outcomes ----------------------------------------------------------------------------------------------


def outcomes_by_hand(rows: list[Row]) -> list[float | None]:
    """Sum of the rewards from each row to the end of its episode; None where one of them is unknown."""
    told = []
    for row in rows:
        later = [r["reward"] for r in rows if r["episode_id"] == row["episode_id"] and r["t"] >= row["t"]]
        told.append(None if None in later else sum(later))
    return told


def mixed_by_hand(rows: list[Row]) -> dict[tuple[str, str], dict[str, Any]]:
    """(state, action) -> outcomes and whether the episode ended each time, of rows with a known outcome."""
    pairs: dict[tuple[str, str], dict[str, Any]] = {}
    for row, outcome in zip(framed_by_hand(rows), outcomes_by_hand(rows), strict=True):
        if outcome is not None:
            pair = pairs.setdefault((row["state_text"], row["action"]), {"outcomes": [], "ends": []})
            pair["outcomes"].append(outcome)
            pair["ends"].append(row["ending"] != GOES_ON)
    return pairs


@few_examples
@given(rows=random_rows())
def test_mixed_pairs_by_hand(rows: list[Row]) -> None:
    found = mixed_outcomes(orl.frame(make_log(rows), BY_STATE.framing()))
    pairs = mixed_by_hand(rows)
    known = [outcome for pair in pairs.values() for outcome in pair["outcomes"]]
    tolerated = TOLERANCE * (max(known) - min(known)) if known else 0
    mixed = {key: p for key, p in pairs.items() if max(p["outcomes"]) - min(p["outcomes"]) > tolerated}
    ending = {key: p for key, p in pairs.items() if all(p["ends"])}
    assert (found.n_pairs, found.n_mixed) == (len(pairs), len(mixed))
    assert (found.n_visits, found.mixed_visits) == (len(known), sum(len(p["outcomes"]) for p in mixed.values()))
    assert (found.n_ending, found.n_mixed_ending) == (len(ending), len(ending.keys() & mixed))
    assert found.ending_visits == sum(len(p["outcomes"]) for p in ending.values())
    table = {(r.state, r.action): r for r in found.pairs.itertuples()}
    assert set(table) == set(mixed)
    for key, pair in mixed.items():
        assert table[key].visits == len(pair["outcomes"])
        assert table[key].ends == (key in ending)
        told = table[key].lowest, table[key].mean, table[key].highest
        assert told == pytest.approx((min(pair["outcomes"]), np.mean(pair["outcomes"]), max(pair["outcomes"])))
    assert set(found.ending_pairs["state"]) == {s for s, _ in ending.keys() & mixed}


@pytest.mark.parametrize("huge", [1e9, 1e16, 1e100])
def test_a_huge_reward_of_one_episode_leaves_the_outcomes_of_others_as_they_are(huge: float) -> None:
    rows = [row for i in range(20) for row in episode(f"e{i:02}", ("s", "go", 0.1), ("s", "stop", [0.0, 1.0][i % 2]))]
    rows += episode("late", ("other", "go", huge))
    dataset = orl.frame(make_log(rows), BY_STATE.framing())
    outcomes = _outcomes(framed_log(dataset.log, dataset.framing))
    assert outcomes.tolist() == [*([0.1, 0.0, 1.1, 1.0] * 10), huge]


@few_examples
@given(rows=random_rows())
def test_the_worst_pair_carries_most_of_the_variance(rows: list[Row]) -> None:
    found = mixed_outcomes(orl.frame(make_log(rows), BY_STATE.framing()))
    spread = {key: np.var(p["outcomes"]) * len(p["outcomes"]) for key, p in mixed_by_hand(rows).items()}
    shares = found.pairs["share"].tolist()
    assert shares == sorted(shares, reverse=True)
    for row in found.pairs.itertuples():
        assert row.share == pytest.approx(spread[row.state, row.action] / sum(spread.values()))


def test_the_bundled_log_has_the_known_aliasing(log_with_mul: Log) -> None:
    """Results that two operations can give: the key doesn't say which one did."""
    found = mixed_outcomes(orl.frame(log_with_mul))
    assert (found.n_mixed_ending, found.ending_visits) == (37, 3000)
    assert all(state.split(": ")[1].startswith("result") for state in found.ending_pairs["state"])
    assert 0.4 < found.mixed_ending_visits / found.ending_visits < 0.6


def test_small_costs_do_not_make_a_pair_mixed_but_large_ones_do() -> None:
    rows = [step for i in range(20) for step in episode(f"e{i}", ("s", "a", float(i % 2)), latency_ms=float(i))]
    rows += [step for i in range(20) for step in episode(f"f{i}", ("sure", "a", 1.0), latency_ms=float(i))]
    for weight, n_mixed in ((0.001, 1), (100.0, 2)):
        choices = FramingChoices(state=(WorldState(),), reward=LoggedReward(), costs=(("latency_ms", weight),))
        assert mixed_outcomes(orl.frame(make_log(rows), choices.framing())).n_mixed == n_mixed


def test_unknown_outcomes_are_no_outcomes() -> None:
    rows = episode("e", ("s", "a", None), ("s", "a", 1.0)) + episode("f", ("s", "a", None))
    found = mixed_outcomes(orl.frame(make_log(rows), BY_STATE.framing()))
    assert (found.n_visits, found.n_mixed, found.left_open) == (1, 0, None)
    nothing = make_log(episode("e", ("s", "a", None)))
    assert mixed_outcomes(orl.frame(nothing, BY_STATE.framing())).n_visits == 0
    assert suggest_splits(orl.frame(nothing, BY_STATE.framing()), BY_STATE) == []


@few_examples
@given(
    rows=random_rows(gaps=False),
    edit=st.sampled_from([orl.DropAction("up"), orl.DropAction("up", how="transitions"), orl.OnlyValue("task", "a")]),
)
def test_edits_take_visits_away_and_leave_the_outcomes_of_the_rest(rows: list[Row], edit: CoverageEdit) -> None:
    log = make_log(rows)
    try:
        dataset = orl.frame(log, BY_STATE.framing(), [edit])
    except orl.OffRLError:
        return
    kept = set(dataset.places.tolist())
    outcomes = [outcome for i, outcome in enumerate(outcomes_by_hand(rows)) if i in kept and outcome is not None]
    found = mixed_outcomes(dataset)
    assert found.n_visits == len(outcomes)
    for row in found.pairs.itertuples():
        assert min(outcomes) - 1e-9 <= row.lowest < row.highest <= max(outcomes) + 1e-9


# -- splits ------------------------------------------------------------------------------------------------------


def hidden_cause(n: int = 300) -> list[Row]:
    """Episodes of two steps. What decides is a field of the state that the first action's name doesn't tell; an id is unique."""
    rng = np.random.default_rng(1)
    rows = []
    for i in range(n):
        works, colour = bool(rng.random() < 0.5), str(rng.integers(3))
        state = canonical_json({"works": works, "colour": colour, "id": i})
        steps = episode(f"e{i}", ("s", "look", None), ("s", "go", float(works)), task="only one", state=state)
        rows += steps
    return rows


def splits_of(rows: list[Row], choices: FramingChoices) -> dict[str, Split]:
    splits = suggest_splits(orl.frame(make_log(rows), choices.framing()), choices)
    assert splits == sorted(splits, key=lambda split: (bool(split.refused), -split.removed))
    return {split.part.token: split for split in splits}


def test_the_hidden_cause_is_found_and_chance_is_not() -> None:
    choices = FramingChoices(state=(LastTools(1),))
    found = splits_of(hidden_cause(), choices)
    best = next(iter(found.values()))
    assert best.part == StateField("/works")
    assert best.choices == choices.with_part(StateField("/works"))
    assert best.removed > 0.95
    assert (best.mixed_before, best.mixed_after, best.n_states, best.n_episodes) == (1.0, 0.0, 4, 300)
    assert abs(found["field:%2Fcolour"].removed) < 0.05
    # A task that is always the same, no error anywhere, and what the last tool says already tell nothing apart.
    assert set(found) == {"field:%2Fworks", "field:%2Fcolour"}


def test_cutting_into_single_episodes_wins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliasing, "MAX_FIELD_VALUES", 10**9)
    found = splits_of(hidden_cause(), FramingChoices(state=(LastTools(1),)))
    alone = found["field:%2Fid"]
    assert alone.mixed_after == 0.0  # every piece is one episode
    assert alone.n_states == 600
    assert alone.removed == pytest.approx(0, abs=0.02)
    assert alone.alone == 1
    assert "id of the episode" in alone.refused


def test_what_is_close_to_an_id_of_the_episode_is_not_offered() -> None:
    """A key that misleads can be worse than none: then even an id removes error. It is no better than no key all the same."""
    rows = []
    for i in range(24):
        goal = canonical_json({"goal": min(i, 21), "kind": "a" if i % 2 else "b"})
        rows += episode(f"e{i}", (f"s{i % 6}", "go", float((i * 7) % 24 < 12)), state=goal)
    found = splits_of(rows, BY_STATE)
    goal = found["field:%2Fgoal"]
    assert goal.left_before > 1
    assert goal.removed > 0.05
    assert goal.alone > aliasing.MAX_ALONE
    assert "id of the episode" in goal.refused


@given(left_before=st.floats(0, 2), left_after=st.floats(0, 2), alone=st.floats(0, 1))
def test_offered_is_what_beats_the_key_and_no_key_on_episodes_that_others_speak_for(
    left_before: float, left_after: float, alone: float
) -> None:
    choices = FramingChoices(state=(StepNumber(),))
    split = Split(Task(), choices, left_before, left_after, alone, 1.0, 0.5, 4, 10)
    better = left_after < 1 and left_before - left_after >= 0.01 * left_before > 0
    if abs(split.removed - 0.01) > 1e-9:
        assert (not split.refused) == (better and alone <= 0.5)
    shares = [float(number) for number in re.findall(r"([-+]?[\d.,]+)%", split.refused)]
    assert all(0 <= share <= 100 for share in shares)  # a reader can't do anything with -935 %


@pytest.mark.parametrize(
    ("left_after", "said"),
    [
        (0.995, "removes only 0.5% of the error"),
        (1.0, "removes only 0.0% of the error"),
        (1.12, "makes the error 12.0% larger"),
        (10.35, "10.3 times the error"),
    ],
)
def test_what_a_split_does_to_the_error_is_said_in_words(left_after: float, said: str) -> None:
    split = Split(Task(), FramingChoices(state=(StepNumber(),)), 1.0, left_after, 0.0, 1.0, 0.5, 4, 10)
    assert split.refused == said


@given(share=st.floats(0, 20))
def test_what_is_left_open_is_never_more_than_all(share: float) -> None:
    assert (left_open_in_words(share) == "all of it") == (share >= 1)
    assert share >= 1 or float(left_open_in_words(share).rstrip("%")) <= 100


def test_a_split_makes_the_dataset_that_it_promises() -> None:
    rows = hidden_cause(60)
    for split in splits_of(rows, FramingChoices(state=(LastTools(1),))).values():
        refined = orl.frame(make_log(rows), split.choices.framing())
        outcomes = mixed_outcomes(refined)
        assert refined.n_states == split.n_states
        assert outcomes.mixed_visits / outcomes.n_visits == pytest.approx(split.mixed_after)
        assert outcomes.left_open == pytest.approx(split.left_after)  # one formula on the button and on the page


def test_the_error_flag_and_one_more_tool_are_tried() -> None:
    rows = []
    for i in range(200):
        failed, first = i % 2 == 0, ("a", "b")[i // 2 % 2]
        steps = episode(f"e{i}", ("s", first, None), ("s", "wait", None), ("s", "go", float(failed == (first == "a"))))
        steps[1]["error"] = "boom" if failed else None
        rows += steps
    choices = FramingChoices(state=(LastTools(1),))
    found = splits_of(rows, choices)
    assert {"tools:2", "failed"} <= set(found)
    both = choices.with_part(LastTools(2)).with_part(LastFailed())
    outcomes = mixed_outcomes(orl.frame(make_log(rows), both.framing()))
    assert outcomes.n_mixed_ending == 0


def test_many_steps_are_judged_on_whole_episodes_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliasing, "MAX_SPLIT_ROWS", 150)
    best = next(iter(splits_of(hidden_cause(), FramingChoices(state=(LastTools(1),))).values()))
    assert best.part == StateField("/works")
    assert best.removed > 0.8
    assert 30 < best.n_episodes < 150


def test_one_episode_can_judge_nothing() -> None:
    rows = episode("e", ("s", "a", 0.0), ("s", "a", 1.0))
    assert splits_of(rows, FramingChoices(state=(LastTools(1),))) == {}


Key = Callable[[Row], Any]


def error_by_hand(rows: list[Row], *keys: Key) -> float:
    """Squared error of predicting each outcome from episodes of the other folds: by no key, then by each key in turn,
    every mean drawn towards the prediction before it."""
    names = list(dict.fromkeys(row["episode_id"] for row in rows))
    folds = dict(zip(names, np.random.default_rng(0).integers(aliasing.FOLDS, size=len(names)), strict=True))
    known = [(r, o) for r, o in zip(rows, outcomes_by_hand(rows), strict=True) if o is not None]
    error = 0.0
    for row, outcome in known:
        guess = float(np.mean([o for _, o in known]))
        for key in (lambda r: "", *keys):
            alike = [o for r, o in known if folds[r["episode_id"]] != folds[row["episode_id"]] and key(r) == key(row)]
            guess = (sum(alike) + guess) / (len(alike) + 1)
        error += (outcome - guess) ** 2
    return error


def noisy_rows() -> list[Row]:
    rng = np.random.default_rng(2)

    def steps(i: int) -> list[Row]:
        triples = [(f"s{rng.integers(2)}", "ab"[rng.integers(2)], float(rng.integers(3))) for _ in range(3)]
        return episode(f"e{i}", *triples, task=f"task {rng.integers(3)}")

    return [step for i in range(40) for step in steps(i)]


def pair_of(row: Row) -> tuple[str, str]:
    return row["state_text"], row["action"]


def test_what_is_left_open_by_hand() -> None:
    rows = noisy_rows()
    found = mixed_outcomes(orl.frame(make_log(rows), BY_STATE.framing()))
    assert found.left_open == pytest.approx(error_by_hand(rows, pair_of) / error_by_hand(rows))


def test_what_a_split_removes_by_hand() -> None:
    rows = noisy_rows()
    before = error_by_hand(rows, pair_of)
    finer: dict[str, Key] = {
        "task": lambda row: (*pair_of(row), row["task"]),
        "step": lambda row: (*pair_of(row), row["t"]),
    }
    found = splits_of(rows, BY_STATE)
    for token, key in finer.items():
        assert found[token].removed == pytest.approx(1 - error_by_hand(rows, key) / before)


def test_the_airline_file_hides_the_task_first() -> None:
    log = orl.read_traces(shared_trace(AIRLINE))
    choices = PRESETS["last_tool"]
    splits = suggest_splits(orl.frame(log, choices.framing()), choices)
    assert splits[0].part == Task()
    assert splits[0].removed > 0.1
    assert all(split.removed < 0.05 for split in splits[1:])


# -- values ------------------------------------------------------------------------------------------------------


def test_the_change_of_values_by_hand() -> None:
    rows = []
    for i, (task, reward) in enumerate([("easy", 1.0), ("easy", 1.0), ("hard", 0.0)]):
        rows += episode(f"e{i}", ("s", "go", reward), task=task)
    log = make_log(rows)
    sides = []
    for part in (StepNumber(), Task()):
        dataset = orl.frame(log, FramingChoices(state=(part,)).framing())
        sides.append((dataset, orl.train(dataset, "fqi_support")))
    change = value_change(*sides)
    assert change is not None
    # Together: V = 2/3 at each start. Apart: 1, 1 and 0. So each easy episode gains 1/3 and the hard one loses 2/3.
    assert change.promised_before == pytest.approx(2 / 3)
    assert change.promised_after == pytest.approx(2 / 3)
    assert change.mean_change == pytest.approx((1 / 3 + 1 / 3 + 2 / 3) / 3)
    assert change.n_episodes == 3
    assert value_change(sides[0], sides[0]).mean_change == 0  # type: ignore[union-attr]


def test_values_are_compared_where_episodes_begin() -> None:
    """Two steps; the first is worth half the reward, the last one all of it."""
    log = make_log(episode("a", ("s", "go", 0.0), ("s", "on", 1.0)))
    sides = []
    for discount in (1.0, 0.5):
        dataset = orl.frame(log, FramingChoices(state=(StepNumber(),), discount=discount).framing())
        sides.append((dataset, orl.train(dataset, "fqi_support")))
    change = value_change(*sides)
    assert change is not None
    assert change[:3] == pytest.approx((1.0, 0.5, 0.5))


def test_the_change_of_values_counts_episodes_that_both_keep() -> None:
    rows = [*episode("a", ("s", "go", 1.0)), *episode("b", ("s", "stay", 0.0))]
    log = make_log(rows)
    whole = orl.frame(log, PRESETS["step"].framing())
    part = orl.frame(log, PRESETS["last_tool"].framing(), [orl.DropAction("stay")])
    models = [orl.train(dataset, "fqi_support") for dataset in (whole, part)]
    change = value_change((whole, models[0]), (part, models[1]))
    assert change is not None
    assert change.n_episodes == 1
    assert change.promised_after == promised_return(part, models[1])


def test_a_learner_without_values_has_no_change() -> None:
    dataset = orl.frame(make_log(episode("a", ("s", "go", 1.0))), PRESETS["step"].framing())
    copied = orl.train(dataset, "bc")
    assert value_change((dataset, copied), (dataset, copied)) is None


def test_cut_steps_end_an_episode_too() -> None:
    """A time limit ends what can be said about a step, whatever would have followed."""
    rows = [
        step for i in range(4) for step in episode(f"e{i}", ("s", "go", float(i % 2)), terminal=False, timeout=True)
    ]
    found: MixedOutcomes = mixed_outcomes(orl.frame(make_log(rows), BY_STATE.framing()))
    assert framed_by_hand(rows)[0]["ending"] == CUT
    assert (found.n_mixed_ending, found.mixed_ending_visits) == (1, 4)
