"""LeRobot data sets, v2 and v3: one frame per Parquet row, with the files about tasks and episodes beside them.

Frames are read as a step table. As a rule they have no reward and no end, so they can be cloned and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from offrl_core.importers import step_table
from offrl_core.importers.fields import Gathered, label, sequence, whole_number
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport
from offrl_core.importers.step_mapping import StepMapping
from offrl_core.wording import counted

EXAMPLE = b"""\
{"observation.state": [0.1, 0.5], "action": [0.2], "timestamp": 0.0, "frame_index": 0, "episode_index": 0, "index": 0, \
"task_index": 0, "next.reward": 0.0, "next.done": false}
{"observation.state": [0.2, 0.4], "action": [0.1], "timestamp": 0.03, "frame_index": 1, "episode_index": 0, "index": 1, \
"task_index": 0, "next.reward": 1.0, "next.done": true}
"""

_FRAME = ("episode_index", "frame_index")
COMPANIONS = (
    "*info.json",
    "*stats.json",
    "*tasks.jsonl",
    "*episodes.jsonl",
    "*episodes_stats.jsonl",
    "*meta/*.parquet",
)
_UNNAMED_INDEX = "__index_level_0__"  # where pandas wrote the names of tasks


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are frames of LeRobot, 0 to 1, and why."""
    frames = sum(_is_frame(value) for value in values)
    if frames:
        return frames / len(
            values
        ), f"found episode_index, frame_index and action in {frames} of the first {len(values)} records"
    return 0.0, "no record has episode_index, frame_index and action"


def _is_frame(value: Any) -> bool:
    return isinstance(value, dict) and all(key in value for key in (*_FRAME, "action")) and not _is_statistics(value)


def _is_statistics(value: dict[str, Any]) -> bool:
    """Whether a record has, for each column of the frames, its smallest and largest value and so on."""
    return all(isinstance(column, dict) and {"min", "max"} <= column.keys() for column in value.values())


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read frames; records about tasks, episodes and the whole set give no step, but names of tasks.

    Args:
        records: records of the files, in order.
        report: gets the problems and notes.
    """
    frames: list[Record] = []
    about: list[Record] = []
    others: list[Record] = []
    for record in records:
        kind = frames if _is_frame(record.value) else about if _is_about(record.value) else others
        kind.append(record)
    for record in about:
        report.accounts.found[record.source] -= 1  # it says something about frames and is none
    for record in others:
        message = "this record is neither a frame nor about tasks or episodes, so it was set aside"
        report.at(record.source, record.number).lose(None, "not a frame", message, record.raw)
    gathered = step_table.read(frames, report, _mapping(frames))
    by_index, by_episode = _tasks(about)
    index_of = {(record.source, record.number): record.value.get("task_index") for record in frames}
    episode_of = {(record.source, record.number): record.value.get("episode_index") for record in frames}
    for row in gathered.rows:
        key = row["source_file"], row["record"]
        row["task"] = by_index.get(whole_number(index_of[key])) or by_episode.get(whole_number(episode_of[key]))
    report.notes += _notes(gathered, about, frames)
    return gathered


def _is_about(value: Any) -> bool:
    """Whether a record is one of the files beside the frames: info, tasks, episodes, statistics."""
    if not isinstance(value, dict):
        return False
    about_task = "task_index" in value and ("task" in value or _UNNAMED_INDEX in value)
    about_episode = "episode_index" in value and any(key in value for key in ("tasks", "length", "stats"))
    return about_task or about_episode or "codebase_version" in value or _is_statistics(value)


def _mapping(frames: Sequence[Record]) -> StepMapping:
    """Which columns mean what; reward and end only where the set has them."""
    columns = {key for record in frames for key in record.value}
    states = [
        key for key in sorted(columns) if key == "observation.state" or key.startswith("observation.environment_state")
    ]

    def present(column: str) -> str | None:
        return column if column in columns else None

    return StepMapping(
        episode="episode_index",
        step="frame_index",
        action="action",
        state=tuple(states),
        reward=present("next.reward") or present("reward") or present("next.success"),
        done=present("next.done"),
        timeout=present("next.truncated"),
    )


def _tasks(about: Sequence[Record]) -> tuple[dict[int | None, str], dict[int | None, str]]:
    """Names of tasks by their index, and by episode, as the files about them say."""
    by_index: dict[int | None, str] = {}
    by_episode: dict[int | None, str] = {}
    for record in about:
        value = record.value
        name = label(value.get("task", value.get(_UNNAMED_INDEX)))
        if name and (index := whole_number(value.get("task_index"))) is not None:
            by_index[index] = name
        first = next(iter(sequence(value.get("tasks"))), None)
        if (name := label(first)) and (episode := whole_number(value.get("episode_index"))) is not None:
            by_episode[episode] = name
    return by_index, by_episode


def _notes(gathered: Gathered, about: Sequence[Record], frames: Sequence[Record]) -> list[str]:
    """Sentences on what is here of the set, and on what its files about itself were good for."""
    notes = []
    n_here = len({row["episode_id"] for row in gathered.rows})
    listed = {whole_number(record.value.get("total_episodes")) for record in about} - {None}
    n_listed = max((n for n in listed if n is not None), default=0)
    if n_listed > n_here:
        notes.append(f"The set has {counted(n_listed, 'episode')}; here: {n_here:,}.")
    if about:
        notes.append(f"No step comes from {counted(len(about), 'record')} about tasks, episodes or the whole set.")
    if any(isinstance(record.value["action"], list) and _is_chunk(record.value["action"]) for record in frames[:1]):
        notes.append("Each row plans several actions at once; the first of them is read as the action taken.")
    return notes


def _is_chunk(action: list[Any]) -> bool:
    return bool(action) and isinstance(action[0], list)
