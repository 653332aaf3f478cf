"""What episodes of a log are called, in every way that a second file may call them, and which way fits a file best."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from .importers.fields import mapping, stem
from .importers.records import parse_json
from .log import Log
from .reward_files import Cell, RewardFile, RewardReader, name_rank, str_of

Pairs = tuple[tuple[str, str], ...]  # (field of the file, name for episodes): all of them must agree

EPISODE_ID, TASK, TASK_NUMBER = "episode_id", "task", "number at the end of task"
TASK_OF_ID, NUMBER_OF_ID, TRIAL = "task in episode_id", "task number in episode_id", "trial in episode_id"
FILE, FOLDER = "file name", "folder"
_TASKS = (TASK, TASK_NUMBER, TASK_OF_ID, NUMBER_OF_ID)

_MOST_METADATA = 50  # fields
_LONGEST_KEY = 300  # characters
_ROWS_LOOKED_AT = 20_000
_FIELDS_LOOKED_AT = 40
_WHOLE = re.compile(r"[+-]?\d{1,15}\.0+")
_TRIAL = re.compile(
    r"(?P<task>.*?)[-_./ ]*(?:#|(?<![A-Za-z])(?:trial|epoch|run|attempt|try|sample|seed|rollout)[-_= ]*)(?P<trial>\d{1,15})",
    re.IGNORECASE | re.DOTALL,
)
_LAST_NUMBER = re.compile(r"(?<![\d.])\d{1,15}\Z")


@dataclass(frozen=True, slots=True)
class EpisodeKeys:
    """Names of the episodes of a log: their ids, and by name of the way the key of each (None where it has none)."""

    episodes: tuple[str, ...]  # E, in the order of the log
    ways: dict[str, tuple[str | None, ...]]  # E each


@dataclass(frozen=True, slots=True)
class Guess:
    """How a file probably belongs to a log: key, reward and why."""

    on: Pairs
    reward: str
    why: str


def key_text(cell: Cell) -> str | None:
    """A key as text: 7, 7.0, "7" and " 7 " are the same, and so is an é written in one or two code points.

    >>> key_text(7.0), key_text(" 7"), key_text("7.0"), key_text("07"), key_text(float("nan")), key_text("")
    ('7', '7', '7', '07', None, None)
    """
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return None
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        cell = int(cell)
    text = unicodedata.normalize("NFC", str_of(cell).strip())
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text or None


# -- names of episodes ---------------------------------------------------------------------------------------


def episode_keys(log: Log) -> EpisodeKeys:
    """All ways to name the episodes of a log, found once; those that name all episodes alike are left out."""
    found: EpisodeKeys | None = log.derived.get("episode_keys")
    if found is None:
        found = log.derived["episode_keys"] = _episode_keys(log)
    return found


def _episode_keys(log: Log) -> EpisodeKeys:
    rows = log.rows(
        """SELECT episode_id, first(task ORDER BY row) FILTER (WHERE task IS NOT NULL), first(source_file ORDER BY row),
                  arg_min(metadata, t), arg_max(metadata, t)
           FROM steps GROUP BY episode_id ORDER BY min(row)"""
    )
    ids = [row[0] for row in rows]
    tasks, sources = [row[1] for row in rows], [row[2] for row in rows]
    parts = [_TRIAL.fullmatch(id[:_LONGEST_KEY]) for id in ids]
    task_of_id = [part["task"] if part else None for part in parts]
    ways: dict[str, list[Cell]] = {
        EPISODE_ID: list(ids),
        TASK: tasks,
        TASK_NUMBER: [_last_number(task) for task in tasks],
        TASK_OF_ID: list(task_of_id),
        NUMBER_OF_ID: [_last_number(task) for task in task_of_id],
        TRIAL: [part["trial"] if part else None for part in parts],
        FILE: [stem(source) if source else None for source in sources],
        FOLDER: [PurePosixPath(source).parent.name if source else None for source in sources],
        **_metadata([(row[3], row[4]) for row in rows]),
    }
    kept: dict[str, tuple[str | None, ...]] = {}
    for way, cells in ways.items():
        keys = tuple(map(key_text, cells))
        tells_apart = len(set(keys)) > 1 or len(ids) == 1
        if way == EPISODE_ID or (tells_apart and any(keys) and keys not in kept.values()):
            kept[way] = keys
    return EpisodeKeys(tuple(ids), kept)


def _last_number(text: str | None) -> str | None:
    found = _LAST_NUMBER.search(text[-_LONGEST_KEY:]) if text else None
    return found[0] if found else None


def _metadata(texts: Sequence[tuple[str | None, str | None]]) -> dict[str, list[Cell]]:
    """Fields of the metadata that are the same on the first and last step of an episode, by name."""
    found: dict[str, list[Cell]] = {}
    for i, (first, last) in enumerate(texts):
        fields = dict(_fields(first))
        if last != first:
            others = dict(_fields(last))
            fields = {name: value for name, value in fields.items() if others.get(name, value) == value}
        for name, value in fields.items():
            if name in found or len(found) < _MOST_METADATA:
                found.setdefault(name, [None] * len(texts))[i] = value
    return found


def _fields(text: str | None) -> Iterator[tuple[str, Cell]]:
    value = mapping(parse_json(text)[0]) if text else {}
    for name, item in value.items():
        inner = item if isinstance(item, dict) else {"": item}
        for key, cell in inner.items():
            if isinstance(cell, str | int | float) and len(str_of(cell)) <= _LONGEST_KEY:
                yield f"metadata.{name}" + (f".{key}" if key else ""), cell


# -- guessing ------------------------------------------------------------------------------------------------


def guess_join(file: RewardFile, log: Log) -> Guess:
    """Which field is the reward and which names the episode: the reward by its name, the key by what it matches."""
    reward, why_reward = _guess_reward(file)
    keys = episode_keys(log)
    columns = {
        field: [key_text(row.get(field)) for row in file.rows[:_ROWS_LOOKED_AT]]
        for field in file.fields[:_FIELDS_LOOKED_AT]
        if field != reward
    }
    singles: list[Pairs] = [((field, way),) for field in columns for way in keys.ways if way != TRIAL]
    on = max(singles, key=lambda on: _fit(on, columns, keys), default=((file.fields[0], EPISODE_ID),))
    if TRIAL in keys.ways and singles and _fit(on, columns, keys)[0] < len(keys.episodes):
        by_task = [(field, way) for field in columns for way in keys.ways if way in _TASKS]
        doubles: list[Pairs] = [(pair, (trial, TRIAL)) for pair in by_task for trial in columns if trial != pair[0]]
        on = max([on, *doubles], key=lambda on: _fit(on, columns, keys))
    n_sure, n_any = _fit(on, columns, keys)[:2] if singles else (0, 0)
    named = "The key " + " and ".join(f"{field} = {way}" for field, way in on)
    of_all = f"of {len(keys.episodes):,} episodes"
    if not n_any:
        why = "No field of the file names an episode of this log; choose the key by hand."
    elif not n_sure:
        why = f"{named} fits {n_any:,} {of_all}, but each key stands on several rows."
    else:
        why = f"{named} fits {n_sure:,} {of_all}, and nothing fits more."
    return Guess(on, reward, f"{why_reward} {why}")


def _guess_reward(file: RewardFile) -> tuple[str, str]:
    """The field that is the reward: by its name, else the last one that can be read as numbers."""
    shares = {}
    for field in file.fields:
        cells = [cell for cell in file.column(field)[:_ROWS_LOOKED_AT] if cell is not None]
        readable = RewardReader(cells)
        shares[field] = sum(readable(cell) is not None for cell in cells) / max(1, len(cells))
    named = [field for field in file.fields if shares[field] >= 0.5 and name_rank(field) is not None]
    if named:
        best = min(named, key=lambda field: name_rank(field) or 0)
        return best, f"The field {best} is called like a reward, and {shares[best]:.0%} of it can be read as one."
    best = max(reversed(file.fields), key=lambda field: shares[field])
    if not shares[best]:
        return best, "No field of the file can be read as a reward; choose it by hand."
    return best, f"No field is called like a reward; {shares[best]:.0%} of {best} can be read as one."


def _fit(on: Pairs, columns: dict[str, list[str | None]], keys: EpisodeKeys) -> tuple[int, int, int, int]:
    """How well a key fits: episodes with one row, with any row, fewer fields, names that sound alike."""
    rows = Counter(zip(*(columns[field] for field, _ in on), strict=True))
    found = [rows[key] for key in zip(*(keys.ways[way] for _, way in on), strict=True) if None not in key]
    alike = sum(_sound_alike(field, way) for field, way in on)
    return sum(n == 1 for n in found), sum(n > 0 for n in found), -len(on), alike


def _sound_alike(field: str, way: str) -> int:
    """2 for the same name, 1 where it begins with the same word."""
    field, way = field.casefold(), way.casefold()
    words = re.split(r"[\W_]+", field)
    return 2 * (field == way) or int(bool(words) and words[0] == re.split(r"[\W_]+", way)[0])


def joined_key(cells: Sequence[Any]) -> tuple[str, ...] | None:
    """The key of a row from the cells of its fields; None where one of them is empty."""
    keys = tuple(map(key_text, cells))
    return None if None in keys else keys  # type: ignore[return-value]
