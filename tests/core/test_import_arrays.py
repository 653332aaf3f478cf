"""Array stores: real files against their own arrays, every layout by hand, and nothing read from outside of a file."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offrl_core.errors import TraceFormatError
from offrl_core.importers import Imported, array_stores, read_source, read_sources
from offrl_core.importers.arrays import EXAMPLE, sniff
from tests.core.damage import assert_accounts
from tests.traces import shared_trace

CARTPOLE = "minari/cartpole_noisy-pd-v0/data/main_data.hdf5"
CARTPOLE_METADATA = "minari/cartpole_noisy-pd-v0/data/metadata.json"
Fill = Callable[[h5py.File], None]


def stored(fill: Fill) -> bytes:
    sink = io.BytesIO()
    with h5py.File(sink, "w") as file:
        fill(file)
    return sink.getvalue()


def put(group: h5py.Group, **arrays: Any) -> None:
    """Write arrays, or groups of them, into a group."""
    for name, value in arrays.items():
        if isinstance(value, dict):
            put(group.create_group(name), **value)
        else:
            group[name] = value


def episode(n: int = 3, **arrays: Any) -> dict[str, Any]:
    """The arrays of a small Minari episode, T+1 observations, that ends in the last step."""
    last = np.arange(n) == n - 1
    own = {
        "observations": np.arange(n + 1),
        "actions": np.arange(n) % 2,
        "rewards": np.arange(n) / 10,
        "terminations": last,
        "truncations": np.zeros(n, bool),
    }
    return {name: value for name, value in (own | arrays).items() if value is not None}


def minari(*episodes: dict[str, Any]) -> bytes:
    return stored(lambda file: put(file, **{f"episode_{i}": value for i, value in enumerate(episodes)}))


def d4rl(ends: dict[str, list[bool]], n: int, **arrays: Any) -> bytes:
    own = {"observations": np.arange(n), "actions": np.zeros(n, int), "rewards": np.zeros(n)}
    flags = {name: np.array(values) for name, values in ends.items()}
    return stored(lambda file: put(file, **(own | flags | arrays)))


def rows(imported: Imported) -> list[dict[str, Any]]:
    return list(imported.steps.to_pylist())


def last_rows(imported: Imported) -> list[dict[str, Any]]:
    return list({row["episode_id"]: row for row in rows(imported)}.values())


def endings(imported: Imported) -> list[tuple[Any, Any, str]]:
    return [(row["terminal"], row["timeout"], row["end_reason"]) for row in last_rows(imported)]


def kinds(imported: Imported) -> list[tuple[int | None, str, bool]]:
    return [(problem.record, problem.kind, problem.lost) for problem in imported.report.problems]


def notes(imported: Imported) -> str:
    return "\n".join(imported.report.notes)


# -- real files ----------------------------------------------------------------------------------------------


def test_real_minari_agrees_with_its_arrays() -> None:
    path = shared_trace(CARTPOLE)
    imported = read_source("main_data.hdf5", path.read_bytes())
    assert imported.report.sentence() == "Read 25 of 25 episodes: 9,756 steps in 25 episodes; no problems."
    found = rows(imported)
    assert list(dict.fromkeys(row["episode_id"] for row in found)) == [f"episode-{i}" for i in range(25)]
    by_episode = {i: [row for row in found if row["episode_id"] == f"episode-{i}"] for i in range(25)}
    with h5py.File(path) as file:
        for i, steps in by_episode.items():
            group = file[f"episode_{i}"]
            assert [row["action"] for row in steps] == list(map(str, group["actions"][()].tolist()))
            assert [row["reward"] for row in steps] == group["rewards"][()].tolist()
            seen = np.array([json.loads(row["state"])["observation"] for row in steps])
            assert len(group["observations"]) == len(steps) + 1
            np.testing.assert_allclose(seen, group["observations"][:-1], rtol=1e-4, atol=1e-9)
            after = json.loads(steps[-1]["metadata"])
            np.testing.assert_allclose(after["next_observation"], group["observations"][-1], rtol=1e-4)
            assert after["seed"] == group.attrs["seed"] == 100 + i
            assert steps[-1]["terminal"] == bool(group["terminations"][-1])
            assert steps[-1]["timeout"] == bool(group["truncations"][-1])
    assert Counter(row["end_reason"] for row in last_rows(imported)) == {"terminated": 16, "truncated": 9}
    assert "were read as discrete" in notes(imported)
    assert 100 < len(set(imported.steps["state_text"].to_pylist())) < 625


def test_real_metadata_tells_actions_environment_and_policy() -> None:
    files = [(path, shared_trace(path).read_bytes()) for path in (CARTPOLE_METADATA, CARTPOLE)]
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, data in files:
            archive.writestr(name, data)
    for imported in (read_sources(files), read_source("minari.zip", sink.getvalue())):
        assert imported.report.sentence() == "Read 25 of 25 episodes: 9,756 steps in 25 episodes; no problems."
        (first, *_) = rows(imported)
        assert first["available_tools"] == ["0", "1"]
        assert first["environment_version"] == first["task"] == "CartPole-v1"
        assert first["behavior_policy"] == "noisy PD, eps=0.3"
        assert "read as discrete" not in notes(imported)
    with pytest.raises(TraceFormatError, match=r"No step .* give the files with the data from beside it"):
        read_sources(files[:1])


def test_real_d4rl_agrees_with_its_arrays() -> None:
    path = shared_trace("d4rl_hdf5/pendulum_d4rl_layout.hdf5")
    imported = read_source("f", path.read_bytes())
    assert imported.report.sentence() == "Read 8 of 8 episodes: 1,600 steps in 8 episodes; no problems."
    found = rows(imported)
    with h5py.File(path) as file:
        assert int(file["timeouts"][()].sum()) == 8
        np.testing.assert_allclose([row["reward"] for row in found], file["rewards"][()], rtol=1e-6)
        exact = [json.loads(row["arguments"])["value"] for row in found]
        assert np.array(exact, np.float32).tolist() == file["actions"][:, 0].tolist()
        after = json.loads(last_rows(imported)[0]["metadata"])["next_observation"]
        np.testing.assert_allclose(after, file["next_observations"][199], rtol=1e-4)
    assert endings(imported) == [(False, True, "truncated")] * 8
    assert Counter(row["action"] for row in found).most_common(1)[0][1] == 200  # eight bins of equal size
    assert {row["behavior_policy"] for row in found} == {"noisy proportional"}
    # A density of a real number isn't the probability of a bin, and must not serve as a propensity.
    assert imported.steps["action_logprob"].null_count == 1600
    assert {row["action_logprobs"] for row in found} == {"-1.2000000476837158"}
    assert "not used as propensities" in notes(imported)


def test_real_d3rlpy_agrees_with_its_arrays() -> None:
    path = shared_trace("d3rlpy_h5/pendulum_v2_1.h5")
    imported = read_source("f", path.read_bytes())
    assert imported.report.sentence() == "Read 5 of 5 episodes: 1,000 steps in 5 episodes; no problems."
    with h5py.File(path) as file:
        flags = [bool(file[f"terminated_{i}"][()]) for i in range(5)]
        rewards = np.concatenate([file[f"rewards_{i}"][:, 0] for i in range(5)])
    np.testing.assert_allclose([row["reward"] for row in rows(imported)], rewards, rtol=1e-6)
    assert [row["terminal"] for row in last_rows(imported)] == flags == [False] * 5
    assert endings(imported) == [(False, True, "truncated")] * 5
    assert "5 of 5 didn't" in notes(imported)


# -- Minari --------------------------------------------------------------------------------------------------


def test_the_example_says_what_minari_says() -> None:
    found = rows(read_source("f", EXAMPLE))
    assert [(row["episode_id"], row["state_text"], row["action"], row["reward"]) for row in found] == [
        ("episode-0", "0", "1", 0.0), ("episode-0", "1", "1", 0.0), ("episode-0", "2", "1", 1.0),
        ("episode-1", "0", "1", 0.0), ("episode-1", "1", "0", 0.0),
    ]  # fmt: skip
    assert [row["action_type"] for row in found] == ["env_action"] * 5
    assert [row["arguments_status"] for row in found] == ["absent"] * 5
    assert [row["decision_id"] for row in found][:2] == ["episode-0#0", "episode-0#1"]


def test_observations_of_length_t_are_read_without_a_last_one() -> None:
    imported = read_source("f", minari(episode(observations=np.array([5, 6, 7]))))
    assert [row["state_text"] for row in rows(imported)] == ["5", "6", "7"]
    assert rows(imported)[-1]["metadata"] is None
    assert imported.report.problems == []


def test_groups_come_in_the_order_of_numbers() -> None:
    imported = read_source("f", minari(*[episode(1, rewards=np.array([float(i)])) for i in range(12)]))
    assert [row["reward"] for row in rows(imported)] == [float(i) for i in range(12)]


def test_observations_of_several_parts_texts_and_images() -> None:
    image = np.arange(4 * 6 * 6 * 3, dtype=np.uint8).reshape(4, 6, 6, 3)
    parts = {"_index_0": np.arange(4), "_index_1": {"goal": np.linspace(0, 1, 8).reshape(4, 2)}, "view": image}
    imported = read_source("f", minari(episode(observations=parts)))
    state = json.loads(rows(imported)[1]["state"])["observation"]
    assert state["0"] == 1
    assert state["1/goal"] == [0.28571, 0.42857]
    assert state["view"]["shape"] == [6, 6, 3]
    assert rows(imported)[1]["state_text"] == "0=1 1/goal[0]=1 1/goal[1]=1"
    assert "view (6x6x3 uint8) is too large for a state" in notes(imported)
    texts = np.array(["a", "b", "go left", "x"], dtype=object)
    imported = read_source("f", minari(episode(observations=texts, actions=np.array(["up", "ü", "up"], dtype=object))))
    assert [(row["state_text"], row["action"]) for row in rows(imported)] == [
        ("a", "up"),
        ("b", "ü"),
        ("go left", "up"),
    ]


def test_actions_of_several_whole_numbers_and_of_few_real_ones_are_discrete() -> None:
    cases = [
        (np.array([[1, 0], [0, 2], [1, 0]]), ["1,0", "0,2", "1,0"]),
        (np.array([-1.0, 1.0, 0.5]), ["-1", "1", "0.5"]),
        (np.array([[True], [False], [True]]), ["1", "0", "1"]),
        (np.array([2**40, -3, 0]), [str(2**40), "-3", "0"]),
    ]
    for actions, names in cases:
        imported = read_source("f", minari(episode(actions=actions)))
        assert [row["action"] for row in rows(imported)] == names
        assert imported.steps["arguments"].null_count == 3


def test_logged_probabilities_of_discrete_actions_are_propensities() -> None:
    infos = {
        "action_log_probs": np.log([0.5, 0.25, 1.0]),
        "x": np.array([[1, 2], [3, 4], [5, 6]]),
        "big": np.zeros((3, 99)),
    }
    imported = read_source("f", minari(episode(infos=infos)))
    assert np.exp(imported.steps["action_logprob"].to_pylist()).round(6).tolist() == [0.5, 0.25, 1.0]
    assert json.loads(rows(imported)[1]["metadata"])["x"] == [3, 4]
    assert "left out: big" in notes(imported)


def test_lengths_that_differ_and_missing_arrays_cost_as_little_as_they_can() -> None:
    imported = read_source(
        "f",
        minari(
            episode(),
            episode(actions=np.array([0, 1])),
            episode(rewards=None),
            episode(observations=np.arange(9)),
            episode(0),
            episode(terminations=None),
        ),
    )
    assert (
        imported.report.sentence()
        == "Read 4 of 6 episodes (2 lost): 11 steps in 4 episodes, 2 of them torn; 4 problems."
    )
    assert kinds(imported) == [
        (2, "arrays of different length", True),
        (3, "episode without arrays", True),
        (4, "arrays of different length", True),
        (5, "empty episode", True),
    ]
    assert endings(imported)[-1] == (None, False, "unknown")
    assert sorted(set(imported.steps["record"].to_pylist())) == [1, 2, 4, 6]


def test_rewards_and_flags_that_are_odd_are_flagged() -> None:
    odd = episode(rewards=np.array([np.nan, 1.0, np.inf]), truncations=np.array([True, False, True]))
    imported = read_source("f", minari(odd))
    assert imported.steps["reward"].to_pylist() == [None, 1.0, None]
    assert kinds(imported) == [(1, "reward is not a number", False), (1, "end inside an episode", False)]
    assert endings(imported) == [(True, False, "terminated")]  # an end in the last moment is an end


def test_numbers_in_the_state_have_five_digits() -> None:
    numbers = np.array([123456.789, -0.000123456789, 1e22, 0.0])
    imported = read_source("f", minari(episode(observations=numbers)))
    assert [json.loads(row["state"])["observation"] for row in rows(imported)] == [123460.0, -0.00012346, 1e22]


def test_signalling_nan_and_extreme_numbers_do_no_harm() -> None:
    odd = np.array([0x7FA00000, 0x7F7FFFFF, 0x00000001, 0xFF800000], np.uint32).view(np.float32)
    imported = read_source("f", minari(episode(4, observations=odd, actions=odd, rewards=odd)))
    assert [json.loads(row["state"])["observation"] for row in rows(imported)][1:3] == [
        pytest.approx(3.4028e38, rel=1e-12),
        1.4013e-45,
    ]
    assert imported.steps["reward"].null_count == 2


def test_shards_keep_their_episodes_apart_and_share_their_bins() -> None:
    rng = np.random.default_rng(0)
    low, high = (
        minari(
            *[episode(50, observations=rng.normal(shift, 1, (51, 1)), actions=rng.normal(shift, 1, 50)) for _ in "ab"]
        )
        for shift in (0, 100)
    )
    imported = read_sources([("a.hdf5", low), ("b.hdf5", high)])
    assert imported.report.n_episodes == 4
    by_file = {
        name: {row["state_text"] for row in rows(imported) if row["source_file"] == name}
        for name in ("a.hdf5", "b.hdf5")
    }
    assert not by_file["a.hdf5"] & by_file["b.hdf5"]


def arrow_bytes(**columns: Any) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_minari_in_arrow_files() -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8) / 8), 2)
    parts = pa.StructArray.from_arrays([vectors, pa.array([0, 1, 2, 3])], names=["speed", "room"])
    data = arrow_bytes(
        observations=parts,
        actions=pa.array([1, 0, 1, 0], pa.int32()),
        rewards=[0.0, 0.5, 1.0, 0.0],
        terminations=[False, False, True, False],
        truncations=[False] * 4,
    )
    about = {"observation_space": "{}", "action_space": '{"type": "Discrete", "n": 2, "start": 0}', "total_steps": 6}
    files = [
        ("d/data/metadata.json", json.dumps(about).encode()),
        ("d/data/10/data-0.arrow", data),
        ("d/data/2/data-0.arrow", data),
        ("d/data/2/metadata.json", b'{"id": 2, "total_steps": 3, "seed": 7, "rewards_sum": 1.5, "rewards_mean": 0.5}'),
    ]
    imported = read_sources(files)
    assert imported.report.sentence() == "Read 2 of 2 episodes: 6 steps in 2 episodes; no problems."
    found = rows(imported)
    assert {row["episode_id"] for row in found} == {"episode-2", "episode-10"}
    assert [row["action"] for row in found[:3]] == ["1", "0", "1"]
    assert json.loads(found[0]["state"]) == {"observation": {"speed": [0.0, 0.125], "room": 0}}
    assert json.loads(found[5]["metadata"]) == {"next_observation": {"speed": [0.75, 0.875], "room": 3}, "seed": 7}
    assert found[0]["available_tools"] == ["0", "1"]
    assert endings(imported) == [(True, False, "terminated")] * 2


# -- D4RL and d3rlpy -----------------------------------------------------------------------------------------


def test_d4rl_ends_at_terminals_or_timeouts_and_the_rest_is_cut() -> None:
    ends = {"terminals": [0, 1, 0, 0, 0, 0], "timeouts": [0, 0, 0, 1, 0, 0]}
    imported = read_source("f", d4rl({k: [bool(x) for x in v] for k, v in ends.items()}, 6))
    assert [row["t"] for row in rows(imported)] == [0, 1, 0, 1, 0, 1]
    assert [row["state_text"] for row in rows(imported)] == list("012345")
    assert endings(imported) == [(True, False, "terminated"), (False, True, "truncated"), (False, False, "cut")]
    assert "stops in the middle of 1 episode" in notes(imported)


def test_d4rl_without_timeouts_is_split_where_the_observation_jumps() -> None:
    terminals = [False, False, True, False, False, False]
    observations = np.array([0.0, 1.0, 2.0, 10.0, 20.0, 21.0])
    following = np.array([1.0, 2.0, 3.0, 11.0, 21.0, 22.0])
    imported = read_source(
        "f", d4rl({"terminals": terminals}, 6, observations=observations, next_observations=following)
    )
    assert [row["t"] for row in rows(imported)] == [0, 1, 2, 0, 0, 1]
    assert endings(imported) == [(True, False, "terminated"), (False, True, "truncated"), (False, None, "unknown")]
    assert "1 episode was found to be cut" in notes(imported)
    bare = read_source("f", d4rl({"terminals": terminals}, 6, observations=observations))
    assert bare.report.n_episodes == 2
    assert "several episodes that were cut by a limit may be read as one" in notes(bare)


def test_the_first_d3rlpy_has_ends_of_episodes_beside_terminals() -> None:
    terminals, ends = [False, True, False, False], [False, True, False, True]
    imported = read_source(
        "f",
        d4rl({"terminals": terminals, "episode_terminals": ends}, 4, discrete_action=True, version="1.0"),
    )
    assert endings(imported) == [(True, False, "terminated"), (False, True, "truncated")]
    assert "d3rlpy says of an episode only" in notes(imported)


def test_d3rlpy_with_tuples_discrete_actions_and_an_end() -> None:
    arrays: dict[str, Any] = {"num_episodes": 11, "columns": np.array([b"x"]), "version": "2.1"}
    for i in range(11):
        arrays |= {
            f"observations_{i}_0": np.arange(2), f"observations_{i}_1": np.full((2, 1), i),
            f"actions_{i}": np.array([[1], [0]]), f"rewards_{i}": np.array([[0.5], [i]]), f"terminated_{i}": i == 10,
        }  # fmt: skip
    arrays["observations_0"] = arrays["observations_0_0"]
    for name in ("observations_0_0", "observations_0_1"):
        del arrays[name]
    imported = read_source("f", stored(lambda file: put(file, **arrays)))
    assert imported.report.n_episodes == 11
    assert [row["reward"] for row in last_rows(imported)] == list(map(float, range(11)))
    assert [row["action"] for row in rows(imported)[:2]] == ["1", "0"]
    assert rows(imported)[-1]["state_text"] == "0=1 1=10"
    assert Counter(reason for *_, reason in endings(imported)) == {"truncated": 10, "terminated": 1}


# -- what is never read --------------------------------------------------------------------------------------


def test_nothing_outside_of_the_file_is_read(tmp_path: Any) -> None:
    secret = tmp_path / "secret.hdf5"
    with h5py.File(secret, "w") as file:
        put(file, x=np.arange(4))
    raw = tmp_path / "secret.bin"
    raw.write_bytes(np.arange(4).tobytes())

    def virtual(file: h5py.File) -> None:
        layout = h5py.VirtualLayout(shape=(4,), dtype="i8")
        layout[:] = h5py.VirtualSource(str(secret), "x", shape=(4,))
        file["episode_0"].create_virtual_dataset("observations", layout)

    def external(file: h5py.File) -> None:
        file["episode_0"].create_dataset("observations", (4,), "i8", external=[(str(raw), 0, 32)])

    fills: list[Fill] = [virtual, external]
    for link in (h5py.ExternalLink(str(secret), "x"), h5py.SoftLink("/episode_1/observations")):
        fills.append(lambda file, link=link: file["episode_0"].__setitem__("observations", link))
    for fill in fills:

        def both(file: h5py.File, fill: Fill = fill) -> None:
            put(file, episode_0=episode(observations=None), episode_1=episode())
            fill(file)

        imported = read_source("f", stored(both))
        assert {row["episode_id"] for row in rows(imported)} == {"episode-1"}
        assert [kind for _, kind, _ in kinds(imported)] == ["array not read", "episode without arrays"]


def test_compound_and_reference_arrays_and_deep_groups_are_refused() -> None:
    compound = np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])
    assert "array not read" in str(kinds(read_source("f", minari(episode(), episode(actions=compound)))))

    def references(file: h5py.File) -> None:
        put(file, episode_0=episode(actions=None), episode_1=episode())
        file["episode_0"].create_dataset("actions", (3,), h5py.ref_dtype)
        file["episode_1/infos/loop"] = file["episode_1"]  # a hard link into its own parent

    imported = read_source("f", stored(references))
    assert {row["episode_id"] for row in rows(imported)} == {"episode-1"}
    assert Counter(kind for _, kind, _ in kinds(imported))["array not read"] >= 2


def test_an_array_that_expands_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def bomb(file: h5py.File) -> None:
        put(file, episode_0=episode())
        file["episode_0"]["infos/zeros"] = np.zeros(3)
        file["episode_0"].create_dataset("infos/bomb", (10**9, 1000), "f8", chunks=(1000, 1000), compression="gzip")

    data = stored(bomb)
    assert len(data) < 2**17
    with pytest.raises(TraceFormatError, match="f expands to more than 200 MiB"):
        read_source("f", data)


def test_other_hdf5_files_are_refused_with_what_they_hold() -> None:
    with pytest.raises(TraceFormatError, match=r"f is an HDF5 file that holds data, mask. Known layouts: Minari"):
        read_source("f", stored(lambda file: put(file, data={"demo_0": np.zeros(3)}, mask=np.zeros(1))))
    with pytest.raises(TraceFormatError, match="HDF5, but damaged"):
        read_source("f", EXAMPLE[:1000])


def test_sniffing_looks_at_the_majority() -> None:
    value = array_stores.ArrayEpisode("Minari", 0, {}, {}, np.zeros(1), None, None)
    assert sniff([value, value, {"x": 1}, 3]) == (0.5, "found arrays of Minari in 2 of the first 4 records")
    assert sniff(["text", {"observations": [1], "actions": [2]}])[0] == 0


EDIT = st.tuples(
    st.integers(0, len(EXAMPLE) - 1), st.sampled_from(["drop", "set", "insert"]), st.binary(min_size=1, max_size=4)
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(EDIT, max_size=4), st.integers(0, len(EXAMPLE)))
def test_any_damage_is_read_around_or_refused(edits: list[tuple[int, str, bytes]], cut: int) -> None:
    damaged = bytearray(EXAMPLE)
    for at, what, piece in edits:
        damaged[at : at + (0 if what == "insert" else len(piece))] = b"" if what == "drop" else piece
    for content in (bytes(damaged), bytes(damaged[:cut])):
        try:
            imported = read_source("f", content)
        except TraceFormatError:
            continue
        assert_accounts(imported.report)
        assert imported.report.n_records_read == 2 or imported.report.n_lost


ARRAY = st.one_of(
    st.lists(st.floats(width=32) | st.integers(-3, 3), max_size=4).map(np.array),
    st.tuples(st.integers(0, 4), st.integers(0, 3)).map(lambda shape: np.ones(shape)),
    st.sampled_from([np.array(1.0), np.zeros((3, 2, 2), np.uint8), np.array([b"a", b"b", b"c"]), np.zeros(3, complex)]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(list(episode())), ARRAY | st.none()), st.booleans())
def test_any_arrays_are_read_or_reported(changes: dict[str, Any], as_d4rl: bool) -> None:
    arrays = episode(**changes)
    if as_d4rl:
        names = {"terminations": "terminals", "truncations": "timeouts"}
        data = stored(lambda file: put(file, **{names.get(name, name): value for name, value in arrays.items()}))
    else:
        data = minari(episode(), arrays)
    try:
        imported = read_source("f", data)
    except TraceFormatError:
        if not as_d4rl:
            raise  # the other episode is whole
        return
    report = imported.report
    read = set(imported.steps["record"].to_pylist())
    lost = {problem.record for problem in report.problems if problem.lost}
    assert len(read | (lost - {None})) == report.n_records or as_d4rl
    assert read | lost
