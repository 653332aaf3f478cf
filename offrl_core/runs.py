"""Finished runs on disk, named by their content: a run that is there is never computed twice.

Each run is two files: ``<run id>.json`` (what was trained, history, checksums) and ``<run id>.npz`` (policy, Q values, key
frames, weights; read with ``allow_pickle=False``). Both are replaced in one step, the JSON last: it names the checksum of
the arrays, so whatever a crash leaves behind is noticed and counts as absent. Nothing here is a pickle.

A run is found by its id alone, whatever code made it, for notebooks and old links; to stand in for a training it must come
from the same code.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import json
import os
import platform
import re
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .algorithms import ALGORITHMS
from .dataset import Dataset
from .errors import InvalidConfig, RunMissing
from .interfaces import AlgorithmSpec, Progress, TrainedModel
from .params import make_config
from .policies import Policy, TabularPolicy
from .schema import canonical_json
from .sequence_policy import SequencePolicy
from .training import id_of_content, run_content

DIRECTORY_VARIABLE = "OFFRL_RUNS"
FORMAT = 2
MAX_BYTES = 1_000_000_000
MAX_AGE_DAYS = 90.0
UNFINISHED_SECONDS = 3600.0  # a file that was begun so long ago will not be finished

_RUN_ID = re.compile(r"[\w-]{1,100}-[0-9a-f]{16}", re.ASCII)
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, zipfile.BadZipFile)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """What is known of a stored run without loading its arrays.

    Attributes:
        run_id: see :func:`offrl_core.training.run_id`.
        content: log, framing, edits, algorithm, config and seed; empty where the file can't be read.
        finished: when it was written, seconds since 1970.
        n_bytes: size of its files.
        problem: why it can't be used, as a sentence; empty where it can.
    """

    run_id: str
    content: Mapping[str, Any]
    finished: float
    n_bytes: int
    problem: str = ""


def runs_directory(directory: str | Path | None = None) -> Path:
    """Where runs are stored: as given, else the variable ``OFFRL_RUNS``, else a folder among the caches of the platform."""
    chosen = directory or os.environ.get(DIRECTORY_VARIABLE)
    if not chosen:
        return cache_directory() / "runs"
    with contextlib.suppress(RuntimeError):  # ~ of somebody who isn't there is a name like any other
        return Path(chosen).expanduser()
    return Path(chosen)


def cache_directory() -> Path:
    """The product's folder among the caches of the platform: what it keeps between sessions."""
    return _platform_caches() / "offline-rl-explorer"


def _platform_caches() -> Path:
    try:
        home = Path.home()
    except RuntimeError:  # nobody's home: what is stored then lasts as long as the machine keeps it
        return Path(tempfile.gettempdir())
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


# -- writing -----------------------------------------------------------------------------------------------------


def save_run(model: TrainedModel, dataset: Dataset, directory: str | Path | None = None) -> str:
    """Store a trained model and return the id of its run.

    Args:
        model: as :func:`offrl_core.train` returns it.
        dataset: what it was trained on.
        directory: see :func:`runs_directory`.

    Raises:
        OSError: the directory can't be written.
    """
    content = run_content(dataset, model.algorithm, model.config, model.seed)
    write_run(model, content, directory)
    return id_of_content(content)


def write_run(model: TrainedModel, content: Mapping[str, Any], directory: str | Path | None = None) -> None:
    """Store a trained model under its content, see :func:`offrl_core.training.run_content`.

    Raises:
        OSError: the directory can't be written.
        ValueError: an array of the model holds Python objects.
    """
    folder = runs_directory(directory)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    run_id = id_of_content(dict(content))
    arrays = _npz(_arrays_of(model))
    about = {
        "format": FORMAT,
        "run_id": run_id,
        "content": content,
        "code": code_version(ALGORITHMS.get(model.algorithm)),
        "made_with": _versions(),
        "states": model.policy.states,
        "actions": model.policy.actions,
        "looks_back": _settings_of(model.policy),
        "converged": bool(model.converged),
        "problem": model.problem,
        "history": _history_columns(model.history),
        "arrays": {"n_bytes": len(arrays), "sha256": hashlib.sha256(arrays).hexdigest()},
    }
    _replace(folder / f"{run_id}.npz", arrays)
    _replace(folder / f"{run_id}.json", _signed(about))
    prune_runs(folder)


def _arrays_of(model: TrainedModel) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    if isinstance(model.policy, TabularPolicy):
        arrays["probabilities"] = model.policy.probabilities
    elif isinstance(model.policy, SequencePolicy):
        arrays["allowed"] = model.policy.allowed
    if model.q_values is not None:
        arrays["q_values"] = model.q_values
    for i, progress in enumerate(model.history):
        if progress.q_values is not None:
            arrays[f"frame:{i}"] = progress.q_values
        if progress.probabilities is not None:
            arrays[f"policy:{i}"] = progress.probabilities
    return arrays | {f"weights:{name}": weights for name, weights in (model.weights or {}).items()}


_SETTINGS = ("n_heads", "context", "discount", "target_return", "return_range", "greedy")


def _settings_of(policy: Policy) -> dict[str, Any] | None:
    """What a policy that looks back is made of beside arrays; None for a table."""
    return {name: getattr(policy, name) for name in _SETTINGS} if isinstance(policy, SequencePolicy) else None


def _history_columns(history: Sequence[Progress]) -> dict[str, Any]:
    """Columns are shorter than rows; a metric that a sign of life lacks is null there, which no number is."""
    names = dict.fromkeys(name for progress in history for name in progress.metrics)
    return {
        "step": [progress.step for progress in history],
        "total": [progress.total for progress in history],
        "metrics": {name: [float(p.metrics[name]) if name in p.metrics else None for p in history] for name in names},
    }


def _npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _signed(about: Mapping[str, Any]) -> bytes:
    """The JSON text with a checksum over itself, so that one flipped bit is noticed."""
    return json.dumps({**about, "sha256": _checksum(about)}).encode()


def _checksum(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(about).encode("utf-8", "surrogatepass")).hexdigest()


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


# -- reading -----------------------------------------------------------------------------------------------------


def load_run(run_id: str, directory: str | Path | None = None) -> TrainedModel:
    """The model of a stored run, equal bit for bit to what was saved.

    Raises:
        RunMissing: it isn't there, or its files are damaged; the sentence says which.
    """
    return _read(run_id, runs_directory(directory))[0]


def has_run(run_id: str, directory: str | Path | None = None) -> bool:
    """Whether a run is stored undamaged, by the code as it is now: then training it again would give nothing new."""
    return current_run(run_id, directory) is not None


def current_run(run_id: str, directory: str | Path | None = None) -> TrainedModel | None:
    """The model of a stored run if the code that made it is the code as it is now, else None."""
    try:
        model, code = _read(run_id, runs_directory(directory))
    except RunMissing:
        return None
    return model if code == code_version(ALGORITHMS.get(model.algorithm)) else None


def _read(run_id: str, folder: Path) -> tuple[TrainedModel, str]:
    """The model, and the version of the code that made it."""
    if not _RUN_ID.fullmatch(run_id):
        raise RunMissing(f"{run_id[:120]!r} is no id of a run; one looks like fqi-0123456789abcdef.")
    path = folder / f"{run_id}.json"
    try:
        about = _read_about(path)
        if about["run_id"] != run_id:
            raise ValueError("it describes another run")
        model = _model_of(about, _read_arrays(path.with_suffix(".npz"), about["arrays"]))
    except FileNotFoundError as error:
        if path.exists():
            raise RunMissing(_damaged(run_id, "its arrays are missing")) from error
        raise RunMissing(f"No run {run_id} is stored here; train it, and it will be.") from error
    except _DAMAGE as error:
        raise RunMissing(_damaged(run_id, _reason(error))) from error
    with contextlib.suppress(OSError):  # the last one used is the last one to go
        os.utime(path)
    return model, about["code"]


def _read_about(path: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(path.read_bytes())
    checksum = about.pop("sha256")
    if checksum != _checksum(about):
        raise ValueError("its checksum is another")
    if about["format"] != FORMAT:
        raise ValueError(f"it has format {about['format']}, and this version reads {FORMAT}")
    return about


def _read_arrays(path: Path, expected: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != expected["sha256"]:
        raise ValueError("its arrays have another checksum")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def _model_of(about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TrainedModel:
    content = about["content"]
    weights = {name.removeprefix("weights:"): a for name, a in arrays.items() if name.startswith("weights:")}
    return TrainedModel(
        policy=_policy_of(about, arrays, weights),
        q_values=arrays.get("q_values"),
        converged=about["converged"],
        problem=about["problem"],
        weights=weights or None,
        algorithm=content["algorithm"],
        config=_config_of(content),
        seed=content["seed"],
        history=tuple(_history_of(about["history"], arrays)),
    )


def _policy_of(
    about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], weights: Mapping[str, NDArray[Any]]
) -> Policy:
    """A policy that looks back consists of the model's weights; they are stored once."""
    states, actions, settings = tuple(about["states"]), tuple(about["actions"]), about.get("looks_back")
    if settings is None:
        return TabularPolicy(states=states, actions=actions, probabilities=arrays["probabilities"])
    settings = {**settings, "return_range": tuple(settings["return_range"])}
    return SequencePolicy(states=states, actions=actions, allowed=arrays["allowed"], weights=weights, **settings)


def _config_of(content: Mapping[str, Any]) -> Any:
    """The learner's config, or a plain dict where this version doesn't know the learner or such parameters."""
    values = content["config"]
    spec = ALGORITHMS.get(content["algorithm"])
    try:
        return make_config(spec.config_class, values, spec.name) if spec else values
    except InvalidConfig:
        return values


def _history_of(columns: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Iterator[Progress]:
    metrics = columns["metrics"]
    for i, (step, total) in enumerate(zip(columns["step"], columns["total"], strict=True)):
        yield Progress(
            step=step,
            total=total,
            metrics={name: values[i] for name, values in metrics.items() if values[i] is not None},
            q_values=arrays.get(f"frame:{i}"),
            probabilities=arrays.get(f"policy:{i}"),
        )


def _damaged(run_id: str, reason: str) -> str:
    return f"The run {run_id} is stored, but {reason}; it counts as absent. Train it again."


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"its files can't be read ({error.strerror})"
    own = type(error) is ValueError and str(error).startswith("it")
    return str(error) if own else "its files are damaged"


# -- what is there -----------------------------------------------------------------------------------------------


def stored_ids(directory: str | Path | None = None) -> frozenset[str]:
    """Ids of all stored runs, by the names of their files alone: some of them may be damaged."""
    return frozenset(path.stem for path in runs_directory(directory).glob("*.json"))


def list_runs(directory: str | Path | None = None) -> tuple[StoredRun, ...]:
    """Every stored run, the latest first; those that can't be read say why."""
    found = [_stored_run(path) for path in runs_directory(directory).glob("*.json")]
    return tuple(sorted((run for run in found if run), key=lambda run: (-run.finished, run.run_id)))


def _stored_run(path: Path) -> StoredRun | None:
    """None where the file went away while it was looked at."""
    try:
        sizes = path.stat()
        arrays = path.with_suffix(".npz")
        n_bytes = sizes.st_size + (arrays.stat().st_size if arrays.exists() else 0)
        content, problem = _read_about(path)["content"], ""
        if not arrays.exists():
            problem = _damaged(path.stem, "its arrays are missing")
    except FileNotFoundError:
        return None
    except _DAMAGE as error:
        content, problem = {}, _damaged(path.stem, _reason(error))
    return StoredRun(run_id=path.stem, content=content, finished=sizes.st_mtime, n_bytes=n_bytes, problem=problem)


def find_run(run_id: str, directory: str | Path | None = None) -> StoredRun | None:
    """What is known of one stored run, None where it isn't there; damaged ones say so."""
    path = runs_directory(directory) / f"{run_id}.json"
    return _stored_run(path) if _RUN_ID.fullmatch(run_id) else None


def pack_runs(run_ids: Iterable[str], directory: str | Path | None = None) -> bytes:
    """The files of stored runs as one zip: unpacked anywhere, :func:`load_run` reads them from there.

    Raises:
        RunMissing: one isn't there.
    """
    folder, packed = runs_directory(directory), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for run_id in run_ids:
            load_run(run_id, folder)  # whole and undamaged, or a sentence
            for suffix in (".json", ".npz"):
                archive.write(folder / f"{run_id}{suffix}", f"{run_id}{suffix}")
    return packed.getvalue()


def prune_runs(
    directory: str | Path | None = None, *, max_bytes: int = MAX_BYTES, max_age_days: float = MAX_AGE_DAYS
) -> int:
    """Remove runs that nobody has used for long, then the least recently used ones until the rest fits; returns how many."""
    folder, now = runs_directory(directory), time.time()
    for path in folder.glob(".*.tmp"):
        _remove(path, lambda used: used < now - UNFINISHED_SECONDS)
    kept, removed = 0, 0
    for run_id, (used, n_bytes) in sorted(_sizes(folder).items(), key=lambda item: -item[1][0]):
        kept += n_bytes
        if kept > max_bytes or used < now - max_age_days * 86_400:
            removed += 1
            for suffix in (".json", ".npz"):  # the JSON first: arrays without it are nothing
                _remove(folder / f"{run_id}{suffix}")
    return removed


def _sizes(folder: Path) -> dict[str, tuple[float, int]]:
    """Run id -> when it was last used, and its size."""
    found: dict[str, tuple[float, int]] = {}
    for entry in os.scandir(folder) if folder.is_dir() else ():
        name, _, suffix = entry.name.rpartition(".")
        if suffix in ("json", "npz") and _RUN_ID.fullmatch(name):
            with contextlib.suppress(OSError):
                status = entry.stat()
                used, n_bytes = found.get(name, (0.0, 0))
                found[name] = max(used, status.st_mtime), n_bytes + status.st_size
    return found


def _remove(path: Path, condition: Callable[[float], bool] = lambda used: True) -> None:
    with contextlib.suppress(OSError):  # another process may be quicker
        if condition(path.stat().st_mtime):
            path.unlink()


# -- which code --------------------------------------------------------------------------------------------------


def code_version(algorithm: AlgorithmSpec | None) -> str:
    """Hash over the code of this package, and over a learner that stands elsewhere: other code may give other bits."""
    digest = hashlib.sha256(_core_code())
    module = getattr(algorithm.train, "__module__", "") if algorithm else ""
    if algorithm and not module.startswith(f"{__package__}."):
        with contextlib.suppress(OSError, TypeError):  # typed at a prompt: then there is no text to hash
            digest.update(inspect.getsource(algorithm.train).encode())
    return digest.hexdigest()[:16]


@cache
def _core_code() -> bytes:
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.digest()


@cache
def _versions() -> dict[str, str]:
    """What else may change a bit; told, not compared."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("numpy", "torch"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found
