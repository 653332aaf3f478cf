"""The bundled logs can be made anew, bit for bit, and are what their sidecars say."""

import json

import duckdb
import pytest

import offrl_core as orl
from offrl_core.log import BUNDLED, BUNDLED_TITLES, DATA_DIRECTORY, content_hash, make_bundled


@pytest.mark.parametrize("name", BUNDLED)
def test_the_command_makes_the_same_log_again(name, tmp_path):
    made = make_bundled(name, tmp_path)
    sidecar = json.loads((DATA_DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    again = json.loads(made.with_suffix(".json").read_text(encoding="utf-8"))
    assert again["content_sha256"] == sidecar["content_sha256"]
    if sidecar["written_with"]["duckdb"] == duckdb.__version__:  # another version may pack the same rows otherwise
        assert made.read_bytes() == (DATA_DIRECTORY / f"{name}.parquet").read_bytes()
        assert again == sidecar


@pytest.mark.parametrize("name", BUNDLED)
def test_the_file_holds_what_its_sidecar_says(name):
    log = orl.bundled_log(name)
    sidecar = json.loads((DATA_DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    assert (log.n_episodes, log.n_steps) == (sidecar["n_episodes"], sidecar["n_steps"]) == (3000, 12_000)
    assert content_hash(log) == sidecar["content_sha256"]


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_log_is_called_alike_everywhere(name):
    assert orl.bundled_log(name).name == BUNDLED_TITLES[name]
    assert "title" not in json.loads((DATA_DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))


def test_a_missing_bundled_log_says_how_to_make_it():
    with pytest.raises(orl.OffRLError, match="make data"):
        orl.bundled_log("abacus")
