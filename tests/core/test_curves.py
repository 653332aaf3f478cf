"""Curves of a training: what a key frame is worth against the exact evaluation of the same policy, and bands over seeds."""

from __future__ import annotations

import numpy as np
import pytest

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.curves import (
    FRAME_MEASURES,
    MAX_POINTS,
    MIN_POINTS,
    FrameJudge,
    Track,
    bands_of,
    curves_table,
    explodes,
)
from offrl_core.history import Event
from offrl_core.interfaces import Progress

from .helpers import episode, make_log


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return orl.frame(orl.bundled_log("calculator_without_mul"))


def told(*rows: tuple[int, dict[str, float]], total: int = 100) -> list[Event]:
    signs = (Progress(step=step, total=total, metrics=metrics) for step, metrics in rows)
    return [Event(i, progress) for i, progress in enumerate(signs, start=1)]


@pytest.mark.parametrize("algorithm", ["fqi", "cql"])
@pytest.mark.parametrize("deployment", ["works", "broken"])
def test_a_key_frame_is_worth_what_its_policy_is_worth(algorithm: str, deployment: str, dataset: Dataset) -> None:
    """Against the same numbers taken another way: the exact evaluation of the trained model, pair by pair."""
    model = orl.train(dataset, algorithm)
    frame = Progress(step=1, total=1, metrics={}, q_values=model.q_values, probabilities=model.policy.probabilities)
    found = FrameJudge(dataset, deployment).judge(frame)
    exact = orl.exact_q_of(model, dataset, deployment)
    assert exact is not None
    assert model.q_values is not None
    seen = (dataset.visitation_counts > 0) & dataset.valid_mask
    never = dataset.valid_mask & (dataset.visitation_counts == 0)
    greedy = [dataset.actions.index(action) for action in model.policy.greedy_actions()]
    assert found == pytest.approx(
        {
            "success_rate": orl.evaluate(model.policy, "calculator", deployment).success_rate,
            "true_q_logged": np.nanmean(exact[seen]),
            "true_q_unsupported": np.nanmean(exact[never]),
            "q_logged": np.nanmean(model.q_values[seen]),
            "q_unsupported": np.nanmean(model.q_values[never]),
            "unsupported_share": np.mean([not seen[s, a] for s, a in enumerate(greedy)]),
            "n_actions_used": len(set(greedy)),
        }
    )
    assert found.keys() == FRAME_MEASURES.keys()


@pytest.mark.parametrize("deployment", ["works", "broken", "crash"])
def test_learned_and_exact_means_run_over_the_same_pairs(deployment: str) -> None:
    """Where mul is broken, no episode comes to a right product: what was learned there has nothing to be compared with."""
    dataset = orl.frame(orl.bundled_log("calculator"))
    model = orl.train(dataset, "fqi")
    exact = orl.exact_q_of(model, dataset, deployment)
    assert exact is not None
    assert model.q_values is not None
    both = dataset.valid_mask & ~np.isnan(exact)
    judge = FrameJudge(dataset, deployment)
    found = judge.judge(Progress(step=1, total=1, metrics={}, q_values=model.q_values))
    assert found["q_logged"] == pytest.approx(model.q_values[both].mean())
    assert found["true_q_logged"] == pytest.approx(exact[both].mean())
    assert (judge.n_compared, judge.n_pairs) == (both.sum(), dataset.valid_mask.sum())
    assert (judge.n_compared < judge.n_pairs) == (deployment != "works")
    track = Track(judge)
    track.follow(told((1, {"q_logged": 9.0, "loss": 1.0})))
    assert track.series().keys() == ({"loss", "q_logged"} if deployment == "works" else {"loss"})


def test_without_a_world_nothing_is_exact_and_without_unsupported_pairs_nothing_is_told_of_them() -> None:
    dataset = orl.frame(make_log(episode("e", ("s", "a", 1.0), ("t", "a", 2.0))))
    found = FrameJudge(dataset).judge(Progress(step=1, total=1, metrics={}, q_values=np.array([[3.0], [2.0]])))
    assert found == {"q_logged": 2.5, "unsupported_share": 0.0, "n_actions_used": 1.0}


def test_min_count_moves_pairs_out_of_the_support(dataset: Dataset) -> None:
    model = orl.train(dataset, "fqi")
    frame = Progress(step=1, total=1, metrics={}, q_values=model.q_values)
    shares = [FrameJudge(dataset, "works", n).judge(frame)["unsupported_share"] for n in (1, 30, 100_000)]
    assert shares[0] < shares[1] < shares[2] == 1.0


def test_a_track_follows_a_training_and_passes_over_what_it_knows(dataset: Dataset) -> None:
    model = orl.train(dataset, "fqi_sampled", n_sweeps=25)
    events = [Event(i, progress) for i, progress in enumerate(model.history, start=1)]
    whole, piecewise = Track(FrameJudge(dataset)), Track(FrameJudge(dataset))
    whole.follow(events)
    for stop in (3, 9, 9, len(events)):
        piecewise.follow(events[:stop])
    for name, series in whole.series().items():
        other = piecewise.series()[name]
        assert np.array_equal(series.steps, other.steps)
        assert np.array_equal(series.values, other.values)
    assert whole.series()["largest_error"].steps.tolist() == list(range(1, 26))
    assert whole.series()["success_rate"].steps.tolist() == [p.step for p in model.history if p.q_values is not None]


def test_only_some_key_frames_are_judged_where_there_are_many_and_always_the_last(dataset: Dataset) -> None:
    model = orl.train(dataset, "fqi_sampled", n_sweeps=20)
    track = Track(FrameJudge(dataset), frames_between=6)
    track.follow(Event(i, progress) for i, progress in enumerate(model.history, start=1))
    assert track.series()["success_rate"].steps.tolist() == [6, 12, 18, 20]


def test_what_a_network_tells_of_its_support_counts_where_support_means_the_same(dataset: Dataset) -> None:
    for min_count, expected in ((1, {"q_unsupported", "loss"}), (5, {"loss"})):
        track = Track(FrameJudge(dataset, "works", min_count))
        track.follow(told((1, {"q_unsupported": 2.0, "loss": 1.0})))
        assert track.series().keys() == expected


def test_a_band_is_median_and_range_of_the_seeds_that_tell_something() -> None:
    """By hand; a number that isn't finite is a hole and never 0, and behind the end of one seed there is no band."""
    rows = [
        ((1, {"q": 1.0}), (2, {"q": 4.0}), (3, {"q": 7.0})),
        ((1, {"q": 3.0}), (2, {"q": float("inf")})),
        ((1, {"q": 8.0}), (2, {"q": 6.0}), (3, {"q": float("nan")})),
    ]
    tracks = [Track(None) for _ in rows]
    for track, row in zip(tracks, rows, strict=True):
        track.follow(told(*row))
    band = bands_of(tracks)["q"]
    assert band.steps.tolist() == [1, 2, 3]
    assert np.array_equal([band.median, band.low, band.high], [[3, 5, np.nan], [1, 4, np.nan], [8, 6, np.nan]], True)
    assert np.array_equal(np.isnan(band.singles), [[False] * 3, [False, True, True], [False, False, True]])
    alone = Track(None)
    alone.follow(told((1, {"q": float("nan")})))
    assert np.isnan(bands_of([alone])["q"].median).all()


@pytest.mark.parametrize("n_seeds", [2, 3, 5])
def test_a_seed_that_ends_early_never_makes_the_median_jump(n_seeds: int) -> None:
    """Constant seeds of different heights: whoever ends when, the median is constant as far as it goes."""
    for ends in ([4, *[9] * (n_seeds - 1)], [9] * (n_seeds - 1) + [2], list(range(3, 3 + n_seeds))):
        tracks = []
        for seed, end in enumerate(ends):
            tracks.append(Track(None))
            tracks[-1].follow(told(*((step, {"q": float(seed**2)}) for step in range(1, end + 1))))
        band = bands_of([*tracks, Track(None)])["q"]  # one that hasn't told anything yet changes nothing
        there = ~np.isnan(band.median)
        assert set(band.median[there]) == {float(np.median(np.arange(n_seeds) ** 2))}
        assert band.steps[there].tolist() == list(range(1, min(ends) + 1))


def test_a_seed_that_goes_on_without_a_measure_does_not_end_the_band_of_the_others() -> None:
    one, other = Track(None), Track(None)
    one.follow(told((1, {"q": 1.0, "loss": 2.0}), (2, {"loss": 2.0}), (3, {"loss": 1.0})))
    other.follow(told((1, {"q": 3.0, "loss": 2.0}), (2, {"q": 4.0, "loss": 1.0}), (3, {"loss": 1.0})))
    assert bands_of([one, other])["q"].median.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("n_seeds", [1, 8, 32])
def test_a_band_has_few_points_and_keeps_both_ends(n_seeds: int) -> None:
    tracks = []
    for _ in range(n_seeds):
        tracks.append(Track(None))
        tracks[-1].follow(told(*((step, {"q": float(step)}) for step in range(1, 5001)), total=5000))
    band = bands_of(tracks)["q"]
    assert (band.steps[0], band.steps[-1]) == (1, 5000)
    assert band.singles.size <= max(MAX_POINTS, MIN_POINTS * n_seeds)
    assert np.array_equal(band.median, band.steps)


def test_the_table_has_a_row_for_each_seed_and_step() -> None:
    one, other = Track(None), Track(None)
    one.follow(told((1, {"loss": 1.0}), (2, {"loss": 0.5, "q": 2.0})))
    other.follow(told((1, {"loss": 3.0})))
    table = curves_table({4: one, 7: other})
    assert table.columns.tolist() == ["seed", "step", "loss", "q"]
    assert table[["seed", "step", "loss"]].to_numpy().tolist() == [[4, 1, 1.0], [4, 2, 0.5], [7, 1, 3.0]]
    assert table["q"].isna().tolist() == [True, False, True]
    assert curves_table({1: Track(None)}).empty


def test_values_explode_where_no_episode_could_be_worth_a_tenth_of_them(dataset: Dataset) -> None:
    """Four steps with rewards up to 1.02 in size."""
    assert not explodes(np.array([np.nan, 40.0]), dataset)
    assert explodes(np.array([-41.0, 0.0]), dataset)
    assert not explodes(np.array([np.inf]), dataset), "what isn't finite is told elsewhere"
