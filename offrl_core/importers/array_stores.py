"""Episodes out of array stores: HDF5 files of Minari, D4RL and d3rlpy, and Minari's Arrow files.

The layouts differ in how episodes are kept apart and in what says that one ended; here they become the same
``ArrayEpisode``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from offrl_core.errors import TraceFormatError
from offrl_core.importers.hdf5_file import Arrays, Hdf5File, in_order, plain
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.schema import canonical_json

_EPISODE_GROUP = re.compile(r"episode_(\d+)")
_FLAT_LAYOUT = ("observations", "actions", "rewards", "terminals")
_ARROW_LAYOUT = frozenset({"observations", "actions", "rewards", "terminations", "truncations"})
_KNOWN_LAYOUTS = (
    "Known layouts: Minari (groups episode_0, episode_1, ...), D4RL (observations, actions, rewards, terminals) "
    "and d3rlpy (observations_0, actions_0, ..., num_episodes)"
)


@dataclass(frozen=True, slots=True, eq=False)
class ArrayEpisode:
    """One episode of T steps; every array has T rows.

    ``terminals`` and ``timeouts`` are None where the store has no such flags. ``after`` is what was observed after the
    last step, where the store has that. ``infos`` holds whatever else was stored per step.
    """

    store: str  # "Minari", "D4RL", "d3rlpy", "RLDS"
    number: int
    observations: Arrays
    actions: Arrays
    rewards: NDArray[Any]
    terminals: NDArray[Any] | None
    timeouts: NDArray[Any] | None
    after: Arrays | None = None
    infos: Arrays = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)  # seed, algorithm, ...: the same for all steps
    is_cut: bool = False  # whether the store stops in the middle of it

    @property
    def n_steps(self) -> int:
        """Number of steps, T."""
        return len(self.rewards)


def hdf5_episodes(name: str, data: bytes, report: ImportReport, tick: Callable[[float], None]) -> Iterator[Record]:
    """The episodes of an HDF5 file, whichever of the known programs wrote it.

    Raises:
        TraceFormatError: the file is damaged, too large when expanded, or laid out in another way.
    """
    import h5py  # here, because it is slow to load and most imports never see HDF5

    try:
        with h5py.File(io.BytesIO(data), "r") as file:
            store = Hdf5File(name, file, report)
            for episode, done in _episodes(store):
                report.accounts.found[name] += 1
                yield Record(report.accounts.found[name], episode, described(episode), name)
                tick(done)
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise TraceFormatError(f"{name} is HDF5, but damaged ({error}). Copy it again.") from error


def _episodes(store: Hdf5File) -> Iterator[tuple[ArrayEpisode, float]]:
    """Episodes, each with the fraction of the file that is read with it."""
    names = set(store.names())
    if any(_EPISODE_GROUP.fullmatch(name) for name in names):
        return _minari(store)
    if {"num_episodes", "observations_0", "actions_0"} <= names:
        return _d3rlpy(store)
    if set(_FLAT_LAYOUT) <= names:
        return _flat(store)
    found = ", ".join(sorted(names)[:12]) or "nothing"
    raise TraceFormatError(f"{store.name} is an HDF5 file that holds {found}. {_KNOWN_LAYOUTS}.")


def described(episode: ArrayEpisode) -> str:
    """An episode as its raw record: what the arrays are, not what is in them."""
    arrays = {
        what if not part else f"{what}/{part}": f"{'x'.join(map(str, array.shape))} {array.dtype}"
        for what, parts in (
            ("observations", episode.observations),
            ("actions", episode.actions),
            ("infos", episode.infos),
            ("after", episode.after or {}),
        )
        for part, array in parts.items()
    }
    known = {"store": episode.store, "episode": episode.number, "steps": episode.n_steps, "arrays": arrays}
    return canonical_json(known | ({"about": dict(episode.about)} if episode.about else {}))


# -- Minari --------------------------------------------------------------------------------------------------


def _minari(store: Hdf5File) -> Iterator[tuple[ArrayEpisode, float]]:
    """Groups ``episode_<i>``; they come in the order of text, so they are sorted by number."""
    groups = sorted((int(found[1][:18]), found[0]) for found in map(_EPISODE_GROUP.fullmatch, store.names()) if found)
    for i, (number, group) in enumerate(groups):
        parts = {key: store.array(f"{group}/{key}") for key in ("rewards", "terminations", "truncations")}
        episode = _assembled(
            "Minari",
            number,
            store.place(i + 1),
            observations=store.arrays(f"{group}/observations"),
            actions=store.arrays(f"{group}/actions"),
            infos=store.arrays(f"{group}/infos"),
            about=store.attributes(group),
            **parts,
        )
        if episode is None:
            store.report.accounts.found[store.name] += 1
            continue
        yield episode, (i + 1) / len(groups)


def arrow_episode(name: str, table: pa.Table, report: ImportReport) -> Record | None:
    """The one episode in an Arrow file of Minari; None where the table is something else.

    Actions, rewards and flags are padded to the T+1 observations. The folder of the file is called after the episode.
    """
    if not set(table.column_names) >= _ARROW_LAYOUT:
        return None
    report.accounts.found[name] += 1
    n_steps = max(0, table.num_rows - 1)
    folders = [part for part in name.split("/")[:-1] if part.isdigit()]
    columns = {key: _column_arrays(table[key].combine_chunks()) for key in table.column_names}
    columns["actions"] = {part: array[:n_steps] for part, array in columns["actions"].items()}
    flat = {key: columns[key].get("") for key in ("rewards", "terminations", "truncations")}
    episode = _assembled(
        "Minari",
        int(folders[-1][:18]) if folders else 0,
        report.at(name, 1),
        observations=columns["observations"],
        actions=columns["actions"],
        infos=columns.get("infos", {}),
        about={},
        **{key: None if array is None else array[:n_steps] for key, array in flat.items()},
    )
    return Record(1, episode, described(episode), name) if episode else None


def _column_arrays(column: Any) -> Arrays:
    """One column of an Arrow table: a struct has several parts, a list of fixed size is a vector."""
    if pa.types.is_struct(column.type):
        found: Arrays = {}
        for child in column.type:
            for part, array in _column_arrays(column.field(child.name)).items():
                found[f"{child.name}/{part}" if part else child.name] = array
        return found
    if pa.types.is_fixed_size_list(column.type):
        return {"": np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(column), -1)}
    return {"": np.asarray(column.to_numpy(zero_copy_only=False))}


def _assembled(
    store: str,
    number: int,
    place: Place,
    *,
    observations: Arrays,
    actions: Arrays,
    rewards: NDArray[Any] | None,
    terminations: NDArray[Any] | None,
    truncations: NDArray[Any] | None,
    infos: Arrays,
    about: Mapping[str, Any],
) -> ArrayEpisode | None:
    """An episode of arrays that fit each other: of T+1 observations the last one is what came after.

    Lengths that differ cost the steps beyond the shortest; an episode without a needed array is set aside.
    """
    if not observations or not actions or rewards is None or not rewards.shape or rewards.dtype.kind not in "biuf":
        message = "this episode lacks observations, actions or rewards (as numbers), so it was set aside"
        place.lose(None, "episode without arrays", message)
        return None
    rewards = rewards.reshape(len(rewards), -1)[:, 0] if rewards.size else rewards.reshape(-1)
    lengths = [len(array) if array.shape else 0 for array in [*observations.values(), *actions.values()]]
    n_steps = min([len(rewards), *lengths])
    wanted = {len(rewards)} if store != "Minari" else {len(rewards), len(rewards) + 1}
    if set(lengths) - wanted or n_steps < len(rewards):
        message = f"its arrays have {sorted({*lengths, len(rewards)})} rows; only the first {n_steps:,} steps were read"
        place.lose(None, "arrays of different length", message)
    if not n_steps:
        place.lose(None, "empty episode", "this episode has no step, so it was set aside")
        return None
    after = {part: np.asarray(array[n_steps]) for part, array in observations.items() if len(array) > n_steps}
    return ArrayEpisode(
        store=store,
        number=number,
        observations={part: array[:n_steps] for part, array in observations.items()},
        actions={part: array[:n_steps] for part, array in actions.items()},
        rewards=rewards[:n_steps],
        terminals=_flags(terminations, n_steps),
        timeouts=_flags(truncations, n_steps),
        after=after if len(after) == len(observations) else None,
        infos={part: array[:n_steps] for part, array in infos.items() if array.shape and len(array) >= n_steps},
        about=about,
    )


def _flags(array: NDArray[Any] | None, n_steps: int) -> NDArray[Any] | None:
    """Truth values, one per step; None where there are none, or not enough."""
    if array is None or array.dtype.kind not in "biuf" or array.size < n_steps:
        return None
    return array.reshape(-1)[:n_steps].astype(bool)


# -- d3rlpy --------------------------------------------------------------------------------------------------


def _d3rlpy(store: Hdf5File) -> Iterator[tuple[ArrayEpisode, float]]:
    """Datasets ``observations_<i>``, ``actions_<i>``, ...; one flag per episode says whether the task ended.

    An observation of several arrays is stored as ``observations_<i>_<j>``.
    """
    names = store.names()
    numbers = sorted(int(name.removeprefix("rewards_")) for name in names if re.fullmatch(r"rewards_\d{1,18}", name))
    for i, number in enumerate(numbers):
        parts = sorted((n for n in names if re.fullmatch(rf"observations_{number}(_\d+)?", n)), key=in_order)
        observations = {part[len(f"observations_{number}") :].strip("_"): store.array(part) for part in parts}
        actions, flag = store.array(f"actions_{number}"), store.array(f"terminated_{number}")
        rewards = store.array(f"rewards_{number}")
        n_steps = 0 if rewards is None or not rewards.shape else len(rewards)
        ended = None if flag is None else _last_of(n_steps, bool(flag.any()))
        episode = _assembled(
            "d3rlpy",
            number,
            store.place(i + 1),
            observations={part: array for part, array in observations.items() if array is not None},
            actions={} if actions is None else {"": actions},
            rewards=rewards,
            terminations=ended,
            # d3rlpy closes an episode by its end or by a limit, and keeps only which of the two.
            truncations=None if flag is None else _last_of(n_steps, not flag.any()),
            infos={},
            about={},
        )
        if episode is None:
            store.report.accounts.found[store.name] += 1
            continue
        yield episode, (i + 1) / len(numbers)


def _last_of(n_steps: int, flag: bool) -> NDArray[Any]:
    """The flag on the last of so many steps, false before."""
    flags = np.zeros(n_steps, bool)
    flags[-1:] = flag
    return flags


# -- D4RL and the first version of d3rlpy --------------------------------------------------------------------


def _flat(store: Hdf5File) -> Iterator[tuple[ArrayEpisode, float]]:
    """All steps in one array each; an episode ends at a terminal or a timeout."""
    is_d3rlpy = "episode_terminals" in store.names()
    steps = {key: store.array(key) for key in ("rewards", "terminals", "timeouts", "episode_terminals")}
    observations, actions = store.arrays("observations"), store.arrays("actions")
    following = store.array("next_observations")
    infos = store.arrays("infos")
    about = {key: plain(value.item()) for key, value in store.arrays("metadata").items() if value.size == 1}
    rewards, terminals = steps["rewards"], steps["terminals"]
    if rewards is None or terminals is None or not observations or not actions:
        raise TraceFormatError(f"{store.name} lacks observations, actions, rewards or terminals that can be read.")
    whole = _assembled(
        "d3rlpy" if is_d3rlpy else "D4RL",
        0,
        store.place(),
        observations=observations,
        actions=actions,
        rewards=rewards,
        terminations=terminals,
        truncations=steps["episode_terminals"] if is_d3rlpy else steps["timeouts"],
        infos=infos,
        about={key: value for key, value in about.items() if value is not None},
    )
    if whole is None or whole.terminals is None:
        return
    timeouts, is_told = whole.timeouts, whole.timeouts is not None
    if timeouts is None:
        timeouts = _jumps(store, whole, following)
    timeouts = timeouts & ~whole.terminals if is_d3rlpy or not is_told else timeouts
    ends = whole.terminals | timeouts
    starts = np.flatnonzero(np.concatenate([[True], ends[:-1]]))
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], whole.n_steps], strict=True)):
        rows = slice(int(start), int(stop))
        is_last = stop == whole.n_steps  # without flags, nothing follows that could show how the last one ended
        flags = timeouts[rows] if is_told or not is_last else None
        is_cut = is_told and not ends[stop - 1]
        yield _piece(whole, number, rows, flags, following, is_cut=is_cut), stop / whole.n_steps


def _piece(
    whole: ArrayEpisode,
    number: int,
    rows: slice,
    timeouts: NDArray[Any] | None,
    following: NDArray[Any] | None,
    *,
    is_cut: bool,
) -> ArrayEpisode:
    """One episode of the whole: its rows of every array."""
    assert whole.terminals is not None
    after = None
    if following is not None and len(following) >= rows.stop and list(whole.observations) == [""]:
        after = {"": np.asarray(following[rows.stop - 1])}
    return ArrayEpisode(
        store=whole.store,
        number=number,
        observations={part: array[rows] for part, array in whole.observations.items()},
        actions={part: array[rows] for part, array in whole.actions.items()},
        rewards=whole.rewards[rows],
        terminals=whole.terminals[rows],
        timeouts=timeouts,
        after=after,
        infos={part: array[rows] for part, array in whole.infos.items()},
        about=whole.about,
        is_cut=is_cut,
    )


def _jumps(store: Hdf5File, whole: ArrayEpisode, following: NDArray[Any] | None) -> NDArray[Any]:
    """Where the next row isn't what followed: without timeouts only that shows that an episode was cut there."""
    own = whole.observations.get("")
    assert whole.terminals is not None
    jumps = np.zeros(whole.n_steps, bool)
    if own is None or following is None or following.shape[1:] != own.shape[1:] or len(following) < len(own):
        store.report.notes.append(
            f"{store.name} has no timeouts and no next_observations: where the task didn't end, several episodes "
            "that were cut by a limit may be read as one."
        )
        return jumps
    same = np.isclose(following[: len(own) - 1], own[1:], equal_nan=True).reshape(len(own) - 1, -1).all(axis=1)
    jumps[:-1] = ~same & ~whole.terminals[:-1]
    n = int(jumps.sum())
    store.report.notes.append(
        f"{store.name} has no timeouts; {n:,} episode{'s were' if n != 1 else ' was'} found to be cut, because the next "
        "row isn't the observation that followed."
    )
    return jumps
