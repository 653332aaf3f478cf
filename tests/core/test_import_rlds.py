"""RLDS in TFRecord files: a writer made by hand here, alignment of rewards, endings, and damage of every kind."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offrl_core.errors import TraceFormatError
from offrl_core.importers import Imported, read_source, read_sources, rlds
from offrl_core.importers.tf_records import _masked_checksum, _varints, example_features
from tests.core.damage import assert_accounts

Feature = list[bytes] | list[float] | list[int]


# -- a writer ------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    found = b""
    while value >= 0x80:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def block(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(values: Feature, *, packed: bool = True) -> bytes:
    if not values:
        return b""
    if isinstance(values[0], bytes):
        return block(1, b"".join(block(1, value) for value in values))  # type: ignore[arg-type]
    is_real = isinstance(values[0], float)
    numbers = [struct.pack("<f", value) if is_real else varint(int(value)) for value in values]
    wire = 5 if is_real else 0
    inner = block(1, b"".join(numbers)) if packed else b"".join(varint(1 << 3 | wire) + number for number in numbers)
    return block(2 if is_real else 3, inner)


def example(features: dict[str, Feature], *, packed: bool = True) -> bytes:
    entries = (block(1, name.encode()) + block(2, feature(values, packed=packed)) for name, values in features.items())
    return block(1, b"".join(block(1, entry) for entry in entries))


def framed(*messages: bytes) -> bytes:
    heads = (struct.pack("<Q", len(message)) for message in messages)
    return b"".join(
        head + struct.pack("<I", _masked_checksum(head)) + message + bytes(4)
        for head, message in zip(heads, messages, strict=True)
    )


def steps(n: int = 4, *, terminal: bool = True, last: bool = True, **changes: Feature | None) -> dict[str, Feature]:
    """An episode of n steps, the last of which is only what was observed at the end."""
    own: dict[str, Feature] = {
        "observation": list(range(n)),
        "action": [t % 2 for t in range(n)],
        "reward": [t / 4 for t in range(n)],
        "is_first": [int(t == 0) for t in range(n)],
        "is_last": [int(last and t == n - 1) for t in range(n)],
        "is_terminal": [int(terminal and t == n - 1) for t in range(n)],
    }
    return {f"steps/{key}": value for key, value in (own | changes).items() if value is not None}


def read(*episodes: dict[str, Feature]) -> Imported:
    return read_source("f", framed(*map(example, episodes)))


def column(imported: Imported, name: str) -> list[Any]:
    return list(imported.steps[name].to_pylist())


# -- the file format -----------------------------------------------------------------------------------------


def test_the_checksum_is_that_of_the_standard() -> None:
    """CRC-32C of "123456789" is published as e3069283; TFRecord rotates it by 15 and adds a constant."""
    crc = 0xE3069283
    assert _masked_checksum(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers_come_back(values: list[int]) -> None:
    assert _varints(b"".join(map(varint, values))).tolist() == values


@given(st.lists(st.integers(-300, 300), min_size=1), st.lists(st.binary(max_size=300), min_size=1), st.booleans())
def test_features_come_back(numbers: list[int], texts: list[bytes], packed: bool) -> None:
    reals = [value / 4 for value in numbers]
    found = example_features(memoryview(example({"i": numbers, "f": reals, "b": texts, "none": []}, packed=packed)))
    assert np.asarray(found["i"]).tolist() == numbers
    assert np.asarray(found["f"]).tolist() == reals
    assert (found["b"], found["none"]) == (texts, [])


# -- episodes ------------------------------------------------------------------------------------------------


def test_a_reward_belongs_to_its_own_step_and_the_last_step_has_no_action() -> None:
    imported = read(steps(4), steps(3, terminal=False), steps(3, terminal=False, last=False))
    assert imported.report.format == "arrays"
    assert imported.report.sentence() == "Read 3 of 3 episodes: 8 steps in 3 episodes; no problems."
    assert column(imported, "action") == ["0", "1", "0", "0", "1", "0", "1", "0"]
    assert column(imported, "reward") == [0, 0.25, 0.5, 0, 0.25, 0, 0.25, 0.5]
    assert column(imported, "end_reason") == [None, None, "terminated", None, "truncated", None, None, "cut"]
    ends = [(row["terminal"], row["timeout"]) for row in imported.steps.to_pylist() if row["end_reason"]]
    assert ends == [(True, False), (False, True), (False, False)]
    assert json.loads(column(imported, "metadata")[2])["next_observation"] == 3
    assert column(imported, "state_text")[:3] == ["0", "1", "2"]


def test_rewards_on_last_steps_alone_are_meant_there() -> None:
    sparse = steps(3, reward=[0.0, 0.0, 1.0])
    imported = read(sparse, steps(3, reward=[0.0, 0.0, 0.0]))
    assert column(imported, "reward") == [0, 0, 1, 0, 0, 0]
    assert "on the last step of episodes only" in imported.report.notes[0]
    dense = read(sparse, steps(3, reward=[0.0, 1.0, 0.0]))
    assert column(dense, "reward") == [0, 0, 0, 1]


def test_vectors_parts_texts_and_pictures() -> None:
    n = 4
    pictures = [bytes([137, 80, 78, 71, t]) * 60 for t in range(n)]
    imported = read(
        steps(
            n,
            observation=None,
            action=[0.5 * t for t in range(2 * n)],
            discount=[1.0] * n,
            language_instruction=[b"go left"] * n,
            ragged=[1, 2, 3],
            **{
                "observation/pos": [-t for t in range(n)],
                "observation/xyz": [0.1 * t for t in range(3 * n)],
                "observation/cam": pictures,
            },
        )
        | {"episode_metadata/file_path": [b"/data/1"], "episode_metadata/seed": [5]},
    )
    row = imported.steps.to_pylist()[1]
    assert row["action"] == "1,1.5"
    state = json.loads(row["state"])["observation"]
    assert (state["pos"], state["xyz"]) == (-1, [0.3, 0.4, 0.5])
    assert len({json.loads(text)["observation"]["cam"]["hash"] for text in column(imported, "state")}) == 3
    assert json.loads(row["metadata"])["language_instruction"] == "go left"
    assert json.loads(imported.steps.to_pylist()[-1]["metadata"])["seed"] == 5
    notes = " ".join(imported.report.notes)
    assert "left out: steps/ragged" in notes
    assert "fingerprint stands for it: steps/observation/cam" in notes
    assert imported.report.problems == []


def test_files_beside_the_records_are_not_counted() -> None:
    described = json.dumps({"pythonClassName": "FeaturesDict", "featuresDict": {"features": {}}}).encode()
    info = json.dumps({"name": "corridor", "fileFormat": "tfrecord", "splits": [{"name": "train"}]}).encode()
    data = framed(example(steps()))
    files = [("d/features.json", described), ("d/x-train.tfrecord-00000-of-00001", data), ("d/dataset_info.json", info)]
    imported = read_sources(files)
    assert imported.report.sentence() == "Read 1 of 1 episode: 3 steps in 1 episode; no problems."


def test_episodes_without_what_is_needed_are_set_aside() -> None:
    imported = read(steps(), steps(action=None), steps(1), {"steps/is_first": [], "x": [1]})
    assert imported.report.sentence() == "Read 1 of 4 episodes (3 lost): 3 steps in 1 episode; 3 problems."
    assert imported.report.counts() == {"episode without steps": 3}
    without = read(steps(reward=None), steps(reward=[b"a"] * 4))
    assert column(without, "reward") == [None] * 6
    bare = read(steps(is_last=None, is_terminal=None))
    assert (column(bare, "end_reason")[-1], column(bare, "terminal")[-1]) == ("unknown", None)
    inner = read(steps(is_terminal=[0, 1, 0, 1]))
    assert inner.report.counts() == {"end inside an episode": 1}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (framed(example({"image": [b"x"], "label": [3]})), "features image, label"),
        (framed(b"\x0a\xff"), "is a TFRecord file, but damaged"),
        (framed(b""), "features none"),
        (framed(example(steps()))[:40], "is a TFRecord file, but damaged"),
    ],
)
def test_other_records_are_refused_with_a_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(TraceFormatError, match=sentence) as caught:
        read_source("f", data)
    assert str(caught.value).endswith(".")


def test_a_cut_file_keeps_its_whole_episodes() -> None:
    data = framed(*[example(steps())] * 3)
    imported = read_source("f", data[:-10])
    assert (imported.report.n_episodes, imported.report.counts()) == (2, {"damaged file": 1})


@pytest.mark.parametrize(
    "broken", [b"\x0a\xff", block(1, block(1, block(1, b"x") + block(2, block(2, b"\x08" + varint(2**40)))))]
)
def test_a_broken_message_in_a_whole_frame_costs_its_episode_only(broken: bytes) -> None:
    imported = read_source("f", framed(example(steps()), broken, example(steps(3))))
    (problem,) = imported.report.problems
    assert (problem.record, problem.lost, problem.offset) == (2, True, len(framed(example(steps()))))
    assert (imported.report.n_episodes, imported.report.n_records, imported.report.n_records_read) == (2, 3, 2)
    with pytest.raises(TraceFormatError, match="but damaged"):
        read_source("f", framed(broken))


def test_numbers_that_expand_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlds, "MAX_EXPANDED_BYTES", 2**16)
    with pytest.raises(TraceFormatError, match="expands to more than"):
        read(steps(4, big=[300] * 2**14))


DATA = framed(example(steps()), example(steps(3)))
EDIT = st.tuples(
    st.integers(12, len(DATA)), st.sampled_from(["drop", "set", "insert"]), st.binary(min_size=1, max_size=4)
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(EDIT, max_size=4), st.integers(0, len(DATA)))
def test_any_damage_is_read_around_or_refused(edits: list[tuple[int, str, bytes]], cut: int) -> None:
    damaged = bytearray(DATA)
    for at, what, piece in edits:
        damaged[at : at + (0 if what == "insert" else len(piece))] = b"" if what == "drop" else piece
    for content in (bytes(damaged), bytes(damaged[:cut])):
        try:
            imported = read_source("f", content)
        except TraceFormatError:
            continue
        assert_accounts(imported.report)
        assert imported.steps.num_rows
