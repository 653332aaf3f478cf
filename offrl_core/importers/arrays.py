"""Arrays of classical offline RL: episodes of Minari, D4RL, d3rlpy and RLDS to steps.

Tables of states and actions need few labels, and arrays hold vectors of real numbers. So an action that isn't discrete
is named after the bin it falls in, and ``state_text`` is made of bins of the observation, cut at quantiles of the data;
the notes of the report say so. The numbers themselves stay in ``arguments``, and in ``state`` to five digits.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from offrl_core.importers.array_labels import action_labels, plain_steps, state_labels
from offrl_core.importers.array_stores import ArrayEpisode
from offrl_core.importers.fields import (
    Gathered,
    Row,
    finite_number,
    mapping,
    metadata_text,
    read_arguments,
    unused_id,
    whole_number,
)
from offrl_core.importers.records import Record, parse_json
from offrl_core.importers.report import ImportReport
from offrl_core.schema import canonical_json
from offrl_core.wording import counted

# Two episodes of Minari in HDF5, a corridor of four rooms with its goal at the end. A binary file stands here packed.
_PACKED_EXAMPLE = (
    "c-rgqaB<`1lHy|K;9!7(|4?Ag58)d?#p}MV$@lkg31VWXU=l)B2m@S942%p6Y$6OmiZit!vp7E`HQrz|R6Clu;ZJs`ga!lA;K|~b"
    "=@2Kh2naARBr!pREuqp72Y_UDF+)U5pfWrv3=GUb$iu+Gz>t~3AOQ3(#K#T{Oh^{+sDae6Lev$fredn(LQ?(qgJ}oYIf}cxc(Rc("
    "3nL@YyG)FXj4V*KFq)Z%fe~aTBbdj*zzTFTGbbqcnL%n8nV1=lF$@z>@Zu}4zq5xoC`QCsQDcNn925pT`ANm8MP-R4nfZCePK+>("
    "X*n@o*aMas9<a=?0L34$?2w2DY8XD@`jkW36c(<TY^ZsFO$ZbO?1{<XAe{|Q+$W}%H)9V{9^64H!oVn~AP-Hu3Jl^L4C3`b7BpxD"
    "7{ECS0UGQX_6_y04d;3*4-4Ca&?3qLHEfGg%M*)Iir>M4iNRcB-yV{at0Dtq1QR5=A}3onN1tF<hLE68SD+Yb8U`uaI0S=~X+gqn"
    "P>_lWfl?BBtpP0vN>Yn*GxHz?ffux_xY@D9i!R~HFeJm3@6NF_P`F~RjoHLNp64zpD$PrV1nVMbQSp8Eq;RBKbU7!kTJ#?mX|*UL"
    "(X}Wyk~g?nPSjGjum=ebo5KE=!|GkI0x67#U?tiCZ^#{~etH3WxH7@R6;?ek;SX0fP`EM;t6(+Qbhr%`tSfl&)u9hKVR~-!r#WK}"
    "Q4ZW8ioXu!0fj80?LGAC&%HiHU9fQd&xf!6G=dibClv3jCpo2(P|ib>?+`8K+gh%~kyL$lK}!i1-B(xW5v)VARdQ{e#~V^=&xg=L"
    "B5>aP`2djHSbP"
)
EXAMPLE = zlib.decompress(base64.b85decode(_PACKED_EXAMPLE))

_LARGEST_INFO = 8  # numbers per step
_LONGEST_INFO = 200  # characters
_LOGPROBS = "action_log_probs"
_METADATA = (  # fields of metadata of Minari, then of features.json and dataset_info.json of RLDS
    {"observation_space", "action_space", "total_steps"},
    {"pythonClassName", "featuresDict"},
    {"fileFormat", "splits"},
)


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are episodes out of an array store (or Minari's metadata), 0 to 1, and why."""
    stores = Counter(value.store for value in values if isinstance(value, ArrayEpisode))
    n_about = sum(_is_metadata(value) for value in values)
    n = stores.total() + n_about
    if not n:
        return 0.0, "no record is an episode of arrays"
    what = f"arrays of {stores.most_common(1)[0][0]}" if stores else "metadata of arrays"
    return n / len(values), f"found {what} in {n} of the first {len(values)} records"


def _is_metadata(value: Any) -> bool:
    """Whether a record describes arrays: a dataset, or one episode in Arrow files of Minari."""
    if not isinstance(value, dict):
        return False
    if any(fields <= set(value) for fields in _METADATA):
        return True
    return {"id", "total_steps"} <= set(value) and not any(isinstance(item, list) for item in value.values())


# -- reading -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Item:
    """One episode with its record, what metadata files say about it, and the labels of its steps."""

    record: Record
    episode: ArrayEpisode
    about: dict[str, Any]
    actions: list[str] = field(default_factory=list)
    states: list[str] | None = None
    is_binned: bool = False  # whether the actions are bins of real numbers


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read episodes of arrays into rows, one per step.

    Args:
        records: records of the files; those of metadata.json may come before or after the episodes they describe.
        report: gets the problems, and notes on bins, endings and propensities.
    """
    episodes: list[Record] = []
    about: dict[str, dict[str, Any]] = {}
    for record in records:
        if isinstance(record.value, ArrayEpisode):
            episodes.append(record)
        elif _is_metadata(record.value):
            about[_folder(record.source)] = record.value
            report.accounts.found[record.source] -= 1  # it says something about episodes and is none
        else:
            message = "this is no episode of arrays, so it was set aside"
            report.at(record.source, record.number).lose(None, "not an episode", message, record.raw)
    if about and not episodes:
        message = "this describes a dataset but holds no step of it; give the files with the data from beside it, too"
        report.at(report.source).lose(None, "metadata without data", message)
    items = [_Item(record, record.value, _about(record, about)) for record in episodes]
    with np.errstate(all="ignore"):  # a damaged number is NaN, which is looked for where it matters
        for alike in _alike(items):
            _label(alike, report)
        return _gathered(items, report)


def _folder(source: str) -> str:
    return source.rpartition("/")[0]


def _about(record: Record, about: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """What the file itself and metadata in its folder and those above say about an episode."""
    folders = [folder for folder in about if f"{_folder(record.source)}/".startswith(f"{folder}/") or not folder]
    folders = sorted(folders, key=len) or (list(about) if len(about) == 1 else [])
    known: dict[str, Any] = {}
    for folder in folders:
        known |= about[folder]
    return known | dict(record.value.about)


def _alike(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    """Episodes whose arrays have the same parts and shapes: they are one dataset and share their bins."""
    groups: dict[object, list[_Item]] = defaultdict(list)
    for item in items:
        parts = (item.episode.observations, item.episode.actions)
        shape = tuple((name, a.shape[1:], a.dtype.kind) for arrays in parts for name, a in arrays.items())
        groups[item.episode.store, shape].append(item)
    yield from groups.values()


def _label(items: list[_Item], report: ImportReport) -> None:
    """Name the actions and states of a dataset, in place; the notes say how."""
    is_described = any(item.about.get("action_space") for item in items)
    actions = action_labels([item.episode.actions for item in items], is_described, report)
    states = state_labels([item.episode.observations for item in items], report)
    start = 0
    for item in items:
        stop = start + item.episode.n_steps
        item.actions = [text or "?" for text in actions.texts[start:stop]]
        item.is_binned = bool(actions.notes)
        item.states = None if states is None else states[start:stop]
        start = stop


def _gathered(items: Sequence[_Item], report: ImportReport) -> Gathered:
    """The rows of all episodes."""
    gathered = Gathered()
    used: Counter[str] = Counter()
    numbers = Counter(item.episode.number for item in items)
    left_out: Counter[str] = Counter()
    for item in items:
        place = report.at(item.record.source, item.record.number)
        name = f"episode-{item.episode.number}"
        if numbers[item.episode.number] > 1:
            name = f"{item.record.source}-{item.episode.number}"
        rows = _rows(unused_id(name, used, place), item, left_out)
        _report_oddities(item, rows, report)
        gathered.add(item.record, rows)
    report.notes += _notes(items, left_out)
    return gathered


# -- rows ----------------------------------------------------------------------------------------------------


def _rows(episode_id: str, item: _Item, left_out: Counter[str]) -> list[Row]:
    """The rows of one episode."""
    episode = item.episode
    shared = {"episode_id": episode_id, "action_type": "env_action"} | _shared_columns(item.about)
    observations = plain_steps(episode.observations)
    exact = plain_steps(episode.actions, exact=True) if item.is_binned else []
    infos = _infos(episode, left_out)
    logprobs = _logprobs(item)
    rows: list[Row] = []
    for t in range(episode.n_steps):
        metadata = {name: values[t] for name, values in infos.items()}
        if item.is_binned:
            metadata["action_is_bin"] = True
        reward = finite_number(episode.rewards[t].item())
        rows.append(
            shared
            | logprobs[t]
            | read_arguments({"value": exact[t]} if item.is_binned else None).columns()
            | {
                "t": t,
                "state": canonical_json({"observation": observations[t]}),
                "state_text": None if item.states is None else item.states[t],
                "action": item.actions[t],
                "decision_id": f"{episode_id}#{t}",
                "call_index": 0,
                "reward": reward,
                "reward_source": None if reward is None else "environment",
                "terminal": False,
                "timeout": False,
                "metadata": metadata_text(**metadata),
            }
        )
    _close(rows[-1], item)
    return rows


def _shared_columns(about: Mapping[str, Any]) -> Row:
    """Columns that are the same on every row, from the metadata of the dataset."""
    environment = _json(about.get("env_spec")).get("id")
    space = _json(about.get("action_space"))
    tools = None
    if space.get("type") == "Discrete" and isinstance(space.get("n"), int) and 0 < space["n"] <= 1000:
        start = whole_number(space.get("start")) or 0
        tools = [str(start + i) for i in range(space["n"])]
    policy = about.get("algorithm_name") or about.get("algorithm")
    return {
        "task": environment if isinstance(environment, str) else None,
        "environment_version": environment if isinstance(environment, str) else None,
        "behavior_policy": policy if isinstance(policy, str) else None,
        "available_tools": tools,
    }


def _json(value: Any) -> dict[str, Any]:
    """An object, also as JSON text; anything else is an empty one."""
    return mapping(parse_json(value)[0] if isinstance(value, str) else value)


def _close(last: Row, item: _Item) -> None:
    """Say on the last row how the episode ended, as far as its flags do, and what was observed then."""
    episode = item.episode
    last["terminal"] = None if episode.terminals is None else bool(episode.terminals[-1])
    timeout = None if episode.timeouts is None else _timed_out(episode)
    last["timeout"] = False if last["terminal"] else timeout  # an end in the last moment is an end
    if episode.is_cut:
        last["end_reason"] = "cut"
    seed = whole_number(item.about.get("seed"))
    after = None
    if episode.after is not None:
        after = plain_steps({part: np.asarray(value)[None] for part, value in episode.after.items()})[0]
    if after is not None or seed is not None:
        known = json.loads(last["metadata"] or "{}") | {"next_observation": after, "seed": seed}
        last["metadata"] = metadata_text(**known)


def _logprobs(item: _Item) -> list[Row]:
    """The columns of the propensities of each step; those of real numbers are densities and no probabilities of bins."""
    logged = item.episode.infos.get(_LOGPROBS)
    if logged is None or logged.dtype.kind not in "iuf":
        return [{}] * item.episode.n_steps
    values = logged.reshape(len(logged), -1).sum(axis=1).tolist()
    column = "action_logprob" if not item.is_binned else "action_logprobs"
    known = (finite_number(value) for value in values)
    return [{column: canonical_json(value) if value is not None and item.is_binned else value} for value in known]


def _infos(episode: ArrayEpisode, left_out: Counter[str]) -> dict[str, list[Any]]:
    """What else was stored for each step, as far as it is small; names of the rest are counted."""
    found = {}
    for name, array in episode.infos.items():
        if name == _LOGPROBS:
            continue
        is_text = array.dtype.kind in "USO"
        if is_text and max((len(str(value)) for value in array.flat), default=0) <= _LONGEST_INFO:
            texts = [str(value) for value in array.reshape(len(array), -1)[:, 0]]
            found[name or "info"] = [None if text in ("", "{}", "None") else text for text in texts]
        elif not is_text and array[0].size <= _LARGEST_INFO:
            found[name or "info"] = plain_steps({"": array})
        else:
            left_out[name or "infos"] += len(array)
    return found


# -- report --------------------------------------------------------------------------------------------------


def _report_oddities(item: _Item, rows: Sequence[Row], report: ImportReport) -> None:
    """Report rewards that are no numbers, and flags of an end inside the episode."""
    episode = item.episode
    place = report.at(item.record.source, item.record.number)
    if n := sum(row["reward"] is None for row in rows):
        message = f"{n:,} rewards of this episode are no finite numbers; they are kept as unknown (NULL), not as 0"
        place.mend("reward", "reward is not a number", message)
    flags = [array[:-1] for array in (episode.terminals, episode.timeouts) if array is not None]
    if n := sum(int(array.sum()) for array in flags):
        message = f"{counted(n, 'step')} marked as the end of an episode that goes on; only the last one counts"
        place.mend("done", "end inside an episode", message)


def _timed_out(episode: ArrayEpisode) -> bool:
    return episode.timeouts is not None and bool(episode.timeouts[-1])


def _notes(items: Sequence[_Item], left_out: Counter[str]) -> list[str]:
    """Sentences on endings, propensities and what was left out."""
    notes = []
    if n := sum(item.episode.store == "d3rlpy" and _timed_out(item.episode) for item in items):
        notes.append(
            f"d3rlpy says of an episode only whether the task ended; {n:,} of {len(items):,} didn't, which is how it "
            "stores an episode that a limit cut (timeout)."
        )
    if n := sum(item.episode.is_cut for item in items):
        s = "s" if n != 1 else ""
        notes.append(f"The file stops in the middle of {n:,} episode{s}, without an end or a timeout.")
    if any(item.is_binned and _LOGPROBS in item.episode.infos for item in items):
        notes.append(
            "The logged action_log_probs are densities of real numbers, not probabilities of bins: they are kept as "
            "action_logprobs and not used as propensities."
        )
    if left_out:
        names = ", ".join(sorted(left_out)[:8])
        notes.append(f"Stored per step, but too large for a row, and left out: {names}.")
    return notes
