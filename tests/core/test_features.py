"""What a network sees of a state: the world's numbers, one number per key, or one per part; and on the way to a worker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import offrl_core as orl
from offrl_core.dataset_files import load_dataset, save_dataset
from offrl_core.errors import NotPossible
from offrl_core.features import FEW_KEYS, MOST_KEYS, PART_NUMBERS, state_features
from offrl_core.worlds import WORLDS, make_world, reachable_states

from .helpers import episode, make_log

HERE = [name for name, spec in WORLDS.items() if not spec.missing]


@pytest.mark.parametrize("name", HERE)
def test_a_log_of_a_world_has_the_worlds_numbers(name: str) -> None:
    dataset = orl.frame(orl.collect(name, n_episodes=30, seed=1))
    world = make_world(name)
    by_hand = {world.state_key(state): world.features(state) for state in reachable_states(world)}
    assert (dataset.features() == np.array([by_hand[key] for key in dataset.states])).all()


def test_framed_by_something_else_a_log_of_a_world_has_none() -> None:
    dataset = orl.frame(orl.collect("calculator", n_episodes=30), orl.Framing(state="task"))
    assert dataset.world_features is None
    assert (dataset.features() == np.eye(3)).all()
    with pytest.raises(NotPossible, match="no numbers of a world"):
        dataset.features("world")


def test_parts_are_shared_between_states() -> None:
    features = state_features("parts", ("a · x", "a · y", "b · x", "x · a"), None)
    assert (features.sum(axis=1) == 2).all()
    overlap = features @ features.T
    assert overlap.tolist() == [[2, 1, 1, 0], [1, 2, 0, 0], [1, 0, 2, 0], [0, 0, 0, 2]], "a place counts, too"


def test_the_parts_of_a_preset_are_found_in_its_keys() -> None:
    steps = [("s", "search", 0.0), ("s", "read", 0.0), ("s", "answer", 1.0)]
    dataset = orl.frame(make_log(episode("e", *steps, tool="search")), orl.FRAMINGS["last_tool"])
    n_parts = {len(key.split(" · ")) for key in dataset.states}
    assert n_parts == set(dataset.features("parts").sum(axis=1).astype(int))


def test_many_parts_are_hashed_the_same_everywhere() -> None:
    states = tuple(f"part {i} · same" for i in range(FEW_KEYS + 50))
    features = state_features("auto", states, None)
    assert features.shape == (len(states), PART_NUMBERS)
    assert (features.sum(axis=1) == 2).all()
    # A number that was written down once: Python's own hash would differ between two processes.
    assert np.flatnonzero(features[0]).tolist() == [55, 109]


def test_too_many_keys_are_refused_with_a_sentence() -> None:
    with pytest.raises(NotPossible, match=r"up to 4,096 states; this log has 4,097.*features=parts"):
        state_features("keys", tuple(map(str, range(MOST_KEYS + 1))), None)


@pytest.mark.parametrize("framing", [None, orl.Framing(state="task")])
def test_they_reach_a_process_that_has_no_log(framing: orl.Framing | None, tmp_path: Path) -> None:
    log = orl.collect("calculator", "logger_without_mul", n_episodes=50, seed=2)
    dataset = orl.frame(log, framing, edits=[orl.KeepFraction(0.5)])
    loaded = load_dataset(save_dataset(dataset, tmp_path))
    assert loaded.features().shape == (dataset.n_states, 7 if framing is None else 3)
    for choice in ("auto", "keys", "parts"):
        assert (loaded.features(choice) == dataset.features(choice)).all()
