"""A dataset as two files of plain arrays, for a process that has only to learn from it.

Steps are not written: a learner needs what framing made of them, integers. The arrays of a framed log are written once and
shared by all its datasets, which add little: the edges and the places of the rows that their edits keep. A learner then
finds the very arrays that the writer had, in the same order, which a second run of the edits in SQL wouldn't promise; and
members of a file are read when they are needed, so a learner on counts never touches the rows.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .arrays import BoolArray, FloatArray
from .behavior import WorldSource
from .coverage_edits import edits_from_link, edits_to_link
from .dataset import Dataset, StageCounts
from .edges import Edges, Transitions
from .errors import NotPossible
from .framing import FramedLog, Framing, episodes_solved
from .log import Log
from .schema import canonical_json, short_hash

Arrays = Mapping[str, NDArray[Any]]
_WHOLE_ROWS = ("observations", "actions", "next_observations")  # int64 in memory; 32 bits hold every index there can be


def save_dataset(dataset: Dataset, directory: Path) -> Path:
    """Write what a learner may need of a dataset, unless it is there already, and return the path.

    Files are named by their content; what was written before is never changed.
    """
    log, token = dataset.log, dataset.framing.token
    framed = directory / f"framed-{short_hash(log.fingerprint + token)}.npz"
    if not _is_there(framed):
        _write(framed, _framed_arrays(dataset))
    content = canonical_json([log.fingerprint, token, edits_to_link(dataset.edits)])
    path = directory / f"dataset-{short_hash(content)}.npz"
    if not _is_there(path):
        _write(path, _dataset_arrays(dataset, framed.name))
    return path


def load_dataset(path: Path) -> Dataset:
    """The dataset of a file of :func:`save_dataset`; what asks its log in SQL is refused."""
    with np.load(path, allow_pickle=False) as arrays:
        about = json.loads(arrays["about"].tobytes())
        edges = Edges(*(arrays[f"edges_{name}"] for name in Edges._fields))
        return SavedDataset(
            log=_AbsentLog(**about["log"]),
            framing=Framing(**about["framing"]),
            edits=edits_from_link(about["edits"]),
            stages=tuple(StageCounts(*counts) for counts in about["stages"]),
            states=tuple(about["states"]),
            actions=tuple(about["actions"]),
            edges=edges,
            valid_mask=arrays["valid_mask"],
            validity_known=about["validity_known"],
            places=arrays["places"].astype(np.int64) if about["edits"] else np.arange(about["stages"][-1][1]),
            _state_codes=arrays["state_codes"],
            known_features=arrays.get("world_features"),
            rows_file=path.with_name(about["framed"]),
        )


def files_of(path: Path) -> tuple[Path, ...]:
    """The files behind a saved dataset."""
    with np.load(path, allow_pickle=False) as arrays:
        return path, path.with_name(json.loads(arrays["about"].tobytes())["framed"])


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedDataset(Dataset):
    """A dataset without its log: everything a learner may ask is in arrays.

    Attributes:
        known_features: :attr:`world_features`, found by the writer: a learner never meets a world.
        rows_file: where the arrays of the framed log are.
    """

    known_features: FloatArray | None = field(repr=False)
    rows_file: Path

    @cached_property
    def world_features(self) -> FloatArray | None:
        """As in :class:`Dataset`."""
        return self.known_features

    @cached_property
    def _framed(self) -> FramedLog:
        with np.load(self.rows_file, allow_pickle=False) as arrays:
            rows = {name: arrays[name] for name in Transitions._fields}
            rows |= {name: rows[name].astype(np.int64) for name in _WHOLE_ROWS}
            return FramedLog(
                states=self.states,
                actions=self.actions,
                rows=Transitions(**rows),
                episodes=arrays["episodes"],
                ranks=arrays["ranks"],
                episode_returns=arrays["episode_returns"],
                valid_mask=self.valid_mask,
                validity_known=self.validity_known,
            )

    @cached_property
    def _is_branched_off(self) -> BoolArray:
        with np.load(self.rows_file, allow_pickle=False) as arrays:
            branched: BoolArray = arrays["is_branched_off"]
        return branched

    @cached_property
    def episode_solved(self) -> FloatArray:
        """As in :class:`Dataset`."""
        with np.load(self.rows_file, allow_pickle=False) as arrays:
            solved: FloatArray = arrays["solved"][self.places]
        return solved


class _AbsentLog(Log):
    """Name and origin of a log whose steps are elsewhere."""

    def __init__(self, *, name: str, fingerprint: str, source: dict[str, Any] | None, n_steps: int) -> None:
        self.name, self.fingerprint, self.n_steps = name, fingerprint, n_steps
        self.source = WorldSource.from_json(source) if source else None

    def cursor(self) -> NoReturn:
        """Refuse: a learner learns from arrays.

        Raises:
            NotPossible: always.
        """
        raise NotPossible(f"The steps of {self.name} are not here: a learner sees states, actions and rewards only.")

    def columns(self, *names: str) -> NoReturn:
        """Refuse, as :meth:`cursor`."""
        del names
        self.cursor()


def _framed_arrays(dataset: Dataset) -> Arrays:
    framed = dataset._framed
    rows = framed.rows._asdict()
    return {
        **rows,
        **{name: rows[name].astype(np.int32) for name in _WHOLE_ROWS},
        "episodes": framed.episodes,
        "ranks": framed.ranks,
        "episode_returns": framed.episode_returns,
        "is_branched_off": dataset._is_branched_off,
        "solved": episodes_solved(dataset.log, dataset.framing),
    }


def _dataset_arrays(dataset: Dataset, framed: str) -> Arrays:
    log = dataset.log
    about = {
        "log": {
            "name": log.name,
            "fingerprint": log.fingerprint,
            "source": log.source.to_json() if log.source else None,
            "n_steps": log.n_steps,
        },
        "framing": asdict(dataset.framing),
        "edits": edits_to_link(dataset.edits),
        "stages": dataset.stages,
        "states": dataset.states,
        "actions": dataset.actions,
        "validity_known": dataset.validity_known,
        "framed": framed,
    }
    return {
        "about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        **{f"edges_{name}": column for name, column in dataset.edges._asdict().items()},
        "valid_mask": dataset.valid_mask,
        "state_codes": dataset._state_codes,
        "places": dataset.places.astype(np.int32) if dataset.edits else np.empty(0, dtype=np.int32),
        **({} if dataset.world_features is None else {"world_features": dataset.world_features}),
    }


def _is_there(path: Path) -> bool:
    """Whether a file is there; it then counts as just used."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _write(path: Path, arrays: Arrays) -> None:
    unfinished = path.with_name(f".{uuid.uuid4().hex}.npz")
    try:
        np.savez(unfinished, allow_pickle=False, **arrays)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
