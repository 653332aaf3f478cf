"""Stored runs come back bit for bit, are found by their id in any process, and damage never looks like a result."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import subprocess
import sys
import time
import zipfile
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import offrl_core as orl
from offrl_core import runs
from offrl_core.algorithms import ALGORITHMS
from offrl_core.dataset import Dataset
from offrl_core.dataset_files import load_dataset, save_dataset
from offrl_core.errors import InvalidConfig, NotPossible, RunMissing
from offrl_core.history import MAX_FRAMES, MAX_POINTS, History, is_key_frame
from offrl_core.interfaces import Progress, TrainedModel
from offrl_core.jobs import Engine
from offrl_core.jobs.states import decode_state, encode_state
from offrl_core.runs import DIRECTORY_VARIABLE, current_run, find_run, pack_runs, prune_runs, runs_directory
from offrl_core.training import run_content

from .helpers import FEW_STEPS, episode, few_examples, make_log, random_rows
from .odd_learners import ODD_LEARNERS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def small() -> Dataset:
    return orl.frame(orl.collect("calculator", "logger_without_mul", n_episodes=60, seed=3))


def equal_arrays(one: Any, other: Any) -> bool:
    return one is other is None or (one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True))


def same_run(one: TrainedModel, other: TrainedModel) -> bool:
    """Everything but the order of bytes in memory."""
    pairs = list(zip(one.history, other.history, strict=True))
    weights, others = one.weights or {}, other.weights or {}
    return (
        (one.policy.states, one.policy.actions) == (other.policy.states, other.policy.actions)
        and one.policy.digest() == other.policy.digest()
        and equal_arrays(one.q_values, other.q_values)
        and weights.keys() == others.keys()
        and all(equal_arrays(weights[name], others[name]) for name in weights)
        and (one.algorithm, one.config, one.seed) == (other.algorithm, other.config, other.seed)
        and (one.converged, one.problem) == (other.converged, other.problem)
        and all((a.step, a.total) == (b.step, b.total) for a, b in pairs)
        and all(repr(dict(a.metrics)) == repr(dict(b.metrics)) for a, b in pairs)
        and all(equal_arrays(a.q_values, b.q_values) for a, b in pairs)
        and all(equal_arrays(a.probabilities, b.probabilities) for a, b in pairs)
    )


def stored(model: TrainedModel, dataset: Dataset, directory: Path) -> str:
    return orl.save_run(model, dataset, directory)


@pytest.fixture
def run(small: Dataset, tmp_path: Path) -> tuple[str, TrainedModel]:
    model = orl.train(small, "fqi", default_value=0.25)
    return stored(model, small, tmp_path), model


# -- round trip ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_comes_back_bit_for_bit(name: str, small: Dataset, tmp_path: Path) -> None:
    model = orl.train(small, name, **FEW_STEPS.get(name, {}))
    run_id = stored(model, small, tmp_path)
    assert orl.has_run(run_id, tmp_path)
    assert same_run(orl.load_run(run_id, tmp_path), model)


def test_weights_and_odd_numbers_come_back(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "walk", ODD_LEARNERS["walk"])
    model = orl.train(small, "walk", seed=5)
    odd = Progress(
        step=21,
        total=21,
        metrics={"size": math.nan, "other": -math.inf, "small": 5e-324},
        probabilities=np.full((2, 3), 1 / 3),
    )
    model = dataclasses.replace(model, history=(*model.history, odd), converged=False, problem="It stopped at step 21.")
    back = orl.load_run(stored(model, small, tmp_path), tmp_path)
    assert same_run(back, model)
    assert back.weights is not None
    assert back.weights["layer/0"].dtype == np.float32
    assert back.history[0].metrics.keys() == {"size"}


def test_states_of_any_text_come_back(tmp_path: Path) -> None:
    rows = episode("e", ("zwei\n", "a", 0.0), ("\u2028 \x00 ü", "b", 1.0))
    dataset = orl.frame(make_log(rows), orl.Framing(state="state_text"))
    model = orl.train(dataset, "fqi")
    assert same_run(orl.load_run(stored(model, dataset, tmp_path), tmp_path), model)


def test_a_second_process_finds_the_run(run: tuple[str, TrainedModel], tmp_path: Path) -> None:
    code = (
        "import sys, offrl_core as orl; model = orl.load_run(sys.argv[1]);"
        "print(model.q_values.tobytes(order='C').hex(), 'streamlit' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, run[0]],
        cwd=ROOT,
        env={**os.environ, DIRECTORY_VARIABLE: str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run[1].q_values is not None
    assert done.stdout.split() == [run[1].q_values.tobytes(order="C").hex(), "False", "False"]


def test_nothing_stored_is_a_pickle(run: tuple[str, TrainedModel], tmp_path: Path) -> None:
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".npz"}
    with zipfile.ZipFile(tmp_path / f"{run[0]}.npz") as file:
        assert all(name.endswith(".npy") for name in file.namelist())
    json.loads((tmp_path / f"{run[0]}.json").read_text())
    assert run[1].q_values is not None
    objects = dataclasses.replace(run[1], q_values=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        stored(objects, orl.frame(orl.collect("calculator", n_episodes=5)), tmp_path)


# -- where ---------------------------------------------------------------------------------------------------------


def test_the_directory_is_the_argument_then_the_variable_then_a_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "variable"))
    assert runs_directory(tmp_path / "argument") == tmp_path / "argument"
    assert runs_directory() == tmp_path / "variable"
    monkeypatch.delenv(DIRECTORY_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert runs_directory().parts[-2:] == ("offline-rl-explorer", "runs")
    if sys.platform.startswith("linux"):
        assert tmp_path / "cache" in runs_directory().parents


@pytest.mark.parametrize(
    "run_id", ["", "../fqi-0123456789abcdef", "fqi-0123", "fqi-0123456789abcdeF", "a/b-" + "0" * 16]
)
def test_an_id_is_no_path(run_id: str, tmp_path: Path) -> None:
    with pytest.raises(RunMissing, match="is no id of a run"):
        orl.load_run(run_id, tmp_path)


# -- damage --------------------------------------------------------------------------------------------------------


def test_a_run_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunMissing, match="No run fqi-0123456789abcdef is stored here"):
        orl.load_run("fqi-0123456789abcdef", tmp_path / "nowhere")
    assert not orl.has_run("fqi-0123456789abcdef", tmp_path)
    assert orl.list_runs(tmp_path / "nowhere") == ()


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_one_flipped_bit_anywhere_or_a_cut_makes_a_run_absent(
    suffix: str, run: tuple[str, TrainedModel], tmp_path: Path
) -> None:
    path = tmp_path / f"{run[0]}{suffix}"
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [whole[: int(n)] for n in rng.integers(0, len(whole), 5)]
    for place in rng.integers(0, len(whole), 60):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        assert current_run(run[0], tmp_path) is None
        with pytest.raises(RunMissing, match="it counts as absent"):
            orl.load_run(run[0], tmp_path)
    path.write_bytes(whole)
    assert orl.has_run(run[0], tmp_path)


def test_damage_is_listed_with_its_reason(run: tuple[str, TrainedModel], tmp_path: Path) -> None:
    (tmp_path / "fqi-0123456789abcdef.json").write_text("{")
    (tmp_path / f"{run[0]}.npz").unlink()
    problems = {found.run_id: found.problem for found in orl.list_runs(tmp_path)}
    assert "arrays are missing" in problems[run[0]]
    assert "damaged" in problems["fqi-0123456789abcdef"]


def test_a_run_file_nested_absurdly_deep_is_damaged_and_no_error(tmp_path: Path) -> None:
    run_id = "fqi-0123456789abcdef"
    (tmp_path / f"{run_id}.json").write_text("[" * 100_000)
    assert [found.run_id for found in orl.list_runs(tmp_path) if "damaged" in found.problem] == [run_id]
    with pytest.raises(RunMissing, match="damaged"):
        orl.load_run(run_id, tmp_path)


def test_a_write_that_fails_leaves_the_old_run(
    run: tuple[str, TrainedModel], small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n_good in (0, 1):
        calls: list[Any] = []

        def replace(source: Any, target: Any, n_good: int = n_good, calls: list[Any] = calls) -> None:
            calls.append(target)
            if len(calls) > n_good:
                raise OSError(28, "No space left on device")
            os.rename(source, target)

        with monkeypatch.context() as patched:
            patched.setattr(runs.os, "replace", replace)
            with pytest.raises(OSError, match="No space"):
                stored(run[1], small, tmp_path)
        assert orl.has_run(run[0], tmp_path), "equal content is equal, whichever file is the new one"
        assert not list(tmp_path.glob(".*"))


# -- which code ----------------------------------------------------------------------------------------------------


def test_a_run_of_other_code_is_loaded_but_stands_in_for_no_training(
    run: tuple[str, TrainedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_core_code", lambda: b"other code")
    assert not orl.has_run(run[0], tmp_path)
    assert same_run(orl.load_run(run[0], tmp_path), run[1])


def test_a_learner_from_elsewhere_counts_with_its_own_text() -> None:
    versions = {runs.code_version(spec) for spec in (None, *ODD_LEARNERS.values())}
    assert len(versions) == 3
    assert runs.code_version(ALGORITHMS["fqi"]) == runs.code_version(None)


def test_a_learner_that_is_gone_leaves_its_config_as_values(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(ALGORITHMS, "walk", ODD_LEARNERS["walk"])
        run_id = stored(orl.train(small, "walk", n_steps=3), small, tmp_path)
    assert orl.load_run(run_id, tmp_path).config == {"n_steps": 3, "pause": 0.0, "harm": "none", "harmed": -1}


# -- bounds --------------------------------------------------------------------------------------------------------


def test_the_least_recently_used_runs_go_first(small: Dataset, tmp_path: Path) -> None:
    ids = [stored(orl.train(small, "bc", seed=seed), small, tmp_path) for seed in range(4)]
    for age, run_id in enumerate(reversed(ids)):
        for path in tmp_path.glob(f"{run_id}.*"):
            os.utime(path, (time.time() - 100 * (age + 1),) * 2)
    orl.load_run(ids[0], tmp_path)  # the oldest is used again
    assert [found.run_id for found in orl.list_runs(tmp_path)] == [ids[0], ids[3], ids[2], ids[1]]
    largest = max(found.n_bytes for found in orl.list_runs(tmp_path))
    assert prune_runs(tmp_path, max_bytes=2 * largest) == 2
    assert {found.run_id for found in orl.list_runs(tmp_path)} == {ids[0], ids[3]}
    assert prune_runs(tmp_path, max_age_days=50 / 86_400) == 1
    assert len(list(tmp_path.iterdir())) == 2


# -- histories -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3 * MAX_POINTS), max_size=6), st.integers(1, 3 * MAX_POINTS), st.integers(1, 400))
@few_examples
def test_a_history_in_slices_is_the_history_of_the_whole(cuts: list[int], n: int, every: int) -> None:
    frame = np.zeros((1, 1))
    reported = [
        Progress(
            step=i,
            total=n,
            metrics={},
            **({("q_values", "probabilities")[i // every % 2]: frame} if i % every == 0 else {}),
        )
        for i in range(1, n + 1)
    ]
    whole, sliced = History(), History()
    for progress in reported:
        whole.append(progress)
    bounds = [0, *sorted(min(cut, n) for cut in cuts), n]
    for begin, end in pairwise(bounds):
        part = History(sliced.n_seen, sliced.n_frames)
        for progress in reported[begin:end]:
            part.append(progress)
        sliced.extend(part.events(begin), part.n_seen, part.n_frames)
    assert [event.number for event in sliced.events()] == [event.number for event in whole.events()]
    assert whole.events()[-1].progress.step == n
    assert len(whole.events()) <= MAX_POINTS + MAX_FRAMES + 1
    frames = [event for event in whole.events() if is_key_frame(event.progress)]
    assert len(frames) == min(n // every, MAX_FRAMES)


# -- states --------------------------------------------------------------------------------------------------------

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | arrays.arrays(
        st.sampled_from([np.dtype(np.float32), np.dtype(np.int64), np.dtype(bool)]),
        arrays.array_shapes(min_dims=0, max_dims=2, max_side=3),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def same_tree(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_tree(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_tree, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


@given(st.dictionaries(st.text(), plain, max_size=4))
@few_examples
def test_a_state_comes_back_bit_for_bit(state: dict[str, Any]) -> None:
    assert same_tree(decode_state(encode_state(state)), state)


def test_the_state_of_a_generator_comes_back() -> None:
    rng = np.random.default_rng(7)
    state = decode_state(encode_state({"rng": rng.bit_generator.state, "scalar": np.float32(0.1)}))
    other = np.random.default_rng()
    other.bit_generator.state = state["rng"]
    assert rng.normal(size=9).tolist() == other.normal(size=9).tolist()
    assert state["scalar"].dtype == np.float32


@pytest.mark.parametrize("value", [object(), {1: 2}, {1, 2}, b"bytes", np.array([{}], dtype=object)])
def test_what_no_state_may_hold_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"state may hold|allow_pickle"):
        encode_state({"value": value})


# -- datasets in files ---------------------------------------------------------------------------------------------

EDITS = [(), (orl.KeepFraction(0.6),), (orl.DropAction("up", how="transitions"), orl.CapVisits(2))]


NEEDS_THE_LOG = {"notes", "tasks"}  # sentences and names for pages


def learner_view(dataset: Dataset) -> dict[str, Any]:
    """Everything a learner may ask for, whatever there will be."""
    asked = {
        name: getattr(dataset, name)
        for name, member in vars(Dataset).items()
        if isinstance(member, property | cached_property) and not name.startswith("_") and name not in NEEDS_THE_LOG
    }
    return {
        **asked,
        "states and actions": [*dataset.states, "", *dataset.actions],
        "edges": dict(dataset.edges._asdict()),
        "rows": dict(dataset.transitions()._asdict()),
        "valid": dataset.valid_mask,
        "stages": [list(counts) for counts in dataset.stages],
        "edits": repr(dataset.edits),
        "framing": repr(dataset.framing),
        "validity known": dataset.validity_known,
    }


@given(random_rows(), st.sampled_from(EDITS))
@few_examples
def test_a_learner_sees_the_same_dataset_from_its_files(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], edits: tuple[Any, ...]
) -> None:
    log = make_log(rows)
    try:
        dataset = orl.frame(log, orl.Framing(state="state_text", success="episode_return > 0.5"), edits)
    except orl.OffRLError:
        return
    back = load_dataset(save_dataset(dataset, tmp_path_factory.mktemp("datasets")))
    assert same_tree(learner_view(back), learner_view(dataset))


def test_framed_rows_are_written_once_and_the_log_stays_behind(small: Dataset, tmp_path: Path) -> None:
    edited = orl.frame(small.log, edits=[orl.KeepFraction(0.5)])
    paths = {save_dataset(dataset, tmp_path) for dataset in (small, edited, small)}
    assert len(paths) == 2
    assert len(list(tmp_path.iterdir())) == 3
    back = load_dataset(save_dataset(small, tmp_path))
    assert back.log.source == small.log.source
    with pytest.raises(NotPossible, match="sees states, actions and rewards only"):
        back.log.rows("SELECT 1")


def test_packed_runs_are_loaded_from_wherever_they_are_unpacked(small: Dataset, tmp_path: Path) -> None:
    models = [orl.train(small, name) for name in ("bc", "fqi")]
    run_ids = [stored(model, small, tmp_path / "here") for model in models]
    with zipfile.ZipFile(io.BytesIO(pack_runs(run_ids, tmp_path / "here"))) as archive:
        archive.extractall(tmp_path / "there")
    for run_id, model in zip(run_ids, models, strict=True):
        assert same_run(orl.load_run(run_id, tmp_path / "there"), model)
    with pytest.raises(RunMissing):
        pack_runs([*run_ids, "fqi-0123456789abcdef"], tmp_path / "here")


def test_one_stored_run_is_found_without_its_arrays(small: Dataset, tmp_path: Path) -> None:
    run_id = stored(orl.train(small, "bc"), small, tmp_path)
    found = find_run(run_id, tmp_path)
    assert found is not None
    assert (found.content["algorithm"], found.problem) == ("bc", "")
    assert find_run("bc-0123456789abcdef", tmp_path) is None
    assert find_run("../etc/passwd", tmp_path) is None


# -- seeds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed",
    [
        -1,
        2**63,
        2**70,
        pytest.param(10**5000, id="long"),
        1.5,
        3.0,
        "x",
        None,
        True,
        np.int64(-1),
        np.float64(3),
        np.True_,
    ],
)
def test_a_seed_that_is_none_is_refused_before_anything_starts(small: Dataset, seed: Any) -> None:
    engine = Engine(n_slots=1)
    for start in (
        lambda: orl.start_training(small, "bc", seed=seed),
        lambda: run_content(small, "bc", ALGORITHMS["bc"].config_class(), seed),
        lambda: engine.submit(small, "bc", seed=seed),
        lambda: engine.submit_seeds(small, "bc", seeds=[0, seed]),
    ):
        with pytest.raises(InvalidConfig, match=r"seed is .*whole number from 0 to 2\*\*63 - 1"):
            start()
    assert engine.jobs() == []


@pytest.mark.parametrize("name", ["fqi_sampled", "cql_neural", "decision_transformer"])
@pytest.mark.parametrize("seed", [np.int64(3), np.uint8(3), 2**63 - 1])
def test_a_learner_takes_every_seed_and_its_run_is_stored(tmp_path: Path, small: Dataset, name: str, seed: Any) -> None:
    model = orl.train(small, name, seed=seed, **FEW_STEPS[name])
    assert type(model.seed) is int
    assert model.seed == seed
    run_id = orl.save_run(model, small, tmp_path)
    assert run_id == orl.save_run(dataclasses.replace(model, seed=seed), small, tmp_path)
    assert orl.load_run(run_id, tmp_path).seed == seed
