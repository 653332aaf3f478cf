"""Episodes of RLDS, as TensorFlow Datasets writes them: one ``tf.train.Example`` per episode in TFRecord files.

A feature ``steps/observation`` holds the values of all steps one after another, so their number per step is the length
of the list over that of ``steps/is_first``. The reward of a step belongs to its own observation and action. The last
step holds only what was observed at the end: its action and reward mean nothing (RLDS, arXiv 2111.02767, section 2).
Datasets that give their only reward on that step all the same are read as they mean it, and the notes say so.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offrl_core.errors import TraceFormatError
from offrl_core.importers.array_labels import MOST_NUMBERS
from offrl_core.importers.array_stores import ArrayEpisode, described
from offrl_core.importers.containers import MAX_EXPANDED_BYTES, too_large
from offrl_core.importers.hdf5_file import Arrays
from offrl_core.importers.records import Record
from offrl_core.importers.report import UNREADABLE, ImportReport, Place
from offrl_core.importers.tf_records import Feature, example_features, frames

_STEPS = "steps/"
_FLAGS = ("is_first", "is_last", "is_terminal")
_LONGEST_TEXT = 200  # bytes; what is longer, or no text, is an encoded image or the like
_FINGERPRINT = MOST_NUMBERS + 1  # bytes that stand for it: too many to be taken for numbers of the state
_ADVICE = (
    "RLDS in TFRecord has features like steps/observation, steps/action and steps/is_first. Where TensorFlow Datasets "
    "is installed, write the episodes as JSON lines: `for e in tfds.as_numpy(tfds.builder_from_directory(folder)"
    ".as_dataset(split='train')): ...`, one line per step with episode, step, observation, action, reward, done"
)


def rlds_episodes(name: str, data: bytes, report: ImportReport, tick: Callable[[float], None]) -> Iterator[Record]:
    """The episodes of a TFRecord file.

    Raises:
        TraceFormatError: the file is damaged before the first episode, too large when expanded, or holds something else.
    """
    found, damage = _examples(name, data, report, tick)
    if not any(f"{_STEPS}is_first" in e.features or f"{_STEPS}action" in e.features for e in found):
        keys = ", ".join(sorted({key for e in found for key in e.features})[:12]) or "none"
        raise TraceFormatError(f"{name} is a TFRecord file with the features {keys}. {_ADVICE}.")
    if damage:
        message = f"the file is cut or damaged ({damage}); {len(found):,} episodes before that were read"
        report.damage(name, "damaged file", message)
    ends_count = _rewards_stand_on_last_steps([e.features for e in found])
    if ends_count:
        report.notes.append(
            f"{name} has rewards on the last step of episodes only, which by RLDS would mean nothing; they were read as "
            "the rewards of that step, with its action."
        )
    if encoded := sorted({key for e in found for key, feature in e.features.items() if _is_encoded(key, feature)}):
        report.notes.append(
            f"Encoded in {name} (pictures, say), so that a fingerprint stands for it: {', '.join(encoded[:8])}."
        )
    left_out: Counter[str] = Counter()
    for number, offset, features in found:
        report.accounts.found[name] += 1
        place = report.at(name, number + 1, offset)
        try:
            episode = _episode(number, features, place, left_out, ends_count=ends_count)
        except UNREADABLE as error:
            place.lose_unread(error, ", ".join(features))
            continue
        if episode:
            yield Record(number + 1, episode, described(episode), name)
    if left_out:
        names = ", ".join(sorted(left_out)[:8])
        report.notes.append(f"Features of {name} whose number of values is none per step, and left out: {names}.")


class _Example(NamedTuple):
    """One message of a file: its number from 0, where it begins in bytes, and its features."""

    number: int
    offset: int
    features: dict[str, Feature]


def _examples(
    name: str, data: bytes, report: ImportReport, tick: Callable[[float], None]
) -> tuple[list[_Example], str]:
    """The messages that can be read, and the damage that ends the file, if any; the report gets the others.

    Raises:
        TraceFormatError: the file is damaged before the first episode, or too large when expanded.
    """
    found: list[_Example] = []
    unread: list[tuple[int, int, Exception]] = []
    size, damage = 0, ""
    try:
        for number, (offset, message) in enumerate(frames(data)):
            try:
                features = example_features(message)
            except UNREADABLE as error:  # the frame around it is whole, so the next one can be read
                unread.append((number, offset, error))
                continue
            size += sum(map(_size, features.values()))
            if size > MAX_EXPANDED_BYTES:
                raise TraceFormatError(too_large(name))
            found.append(_Example(number, offset, features))
            tick(offset / len(data))
    except ValueError as error:
        damage = str(error)
    if not found and (damage or unread):
        reason = damage or str(unread[0][2])
        raise TraceFormatError(f"{name} is a TFRecord file, but damaged ({reason}). Copy it again.")
    for number, offset, problem in unread:
        report.accounts.found[name] += 1
        report.at(name, number + 1, offset).lose_unread(problem)
    return found, damage


def _size(feature: Feature) -> int:
    return feature.nbytes if isinstance(feature, np.ndarray) else sum(map(len, feature))


def _rewards_stand_on_last_steps(episodes: Sequence[Mapping[str, Feature]]) -> bool:
    """Whether every reward that isn't 0 stands on the last step of its episode, and there is one."""
    rewards = [np.asarray(features.get(f"{_STEPS}reward", ())) for features in episodes]
    numbers = [array for array in rewards if array.dtype.kind in "iuf" and len(array)]
    return any(array[-1] != 0 for array in numbers) and not any(array[:-1].any() for array in numbers)


def _episode(
    number: int, features: Mapping[str, Feature], place: Place, left_out: Counter[str], *, ends_count: bool
) -> ArrayEpisode | None:
    """One episode of T steps; None, and a problem, where it has none."""
    n = _n_steps(features)
    arrays: Arrays = {}
    for key, feature in features.items():
        array = _per_step(feature, n) if key.startswith(_STEPS) and n else None
        if array is not None:
            arrays[key.removeprefix(_STEPS)] = array
        elif key.startswith(_STEPS):
            left_out[key] += 1
    is_last, is_terminal = _flag(arrays, "is_last", n), _flag(arrays, "is_terminal", n)
    n_steps = n if ends_count or is_last is False else n - 1  # without a last step, all of them have an action
    observations, actions = _parts(arrays, "observation"), _parts(arrays, "action")
    rewards = arrays.get("reward")
    if rewards is None or rewards.shape != (n,) or rewards.dtype.kind not in "biuf":
        rewards = np.full(n, np.nan)
    if not observations or not actions or n_steps < 1:
        message = f"this episode has {max(0, n_steps):,} steps with an observation and an action, so it was set aside"
        place.lose(None, "episode without steps", message, ", ".join(features)[:200])
        return None
    infos = {part: array[:n_steps] for part, array in arrays.items() if part.split("/")[0] not in _READ}
    return ArrayEpisode(
        store="RLDS",
        number=number,
        observations={part: array[:n_steps] for part, array in observations.items()},
        actions={part: array[:n_steps] for part, array in actions.items()},
        rewards=rewards[:n_steps].astype(np.float64),
        terminals=_ends(is_terminal, arrays.get("is_terminal"), n_steps),
        timeouts=_ends(_timed_out(is_last, is_terminal), arrays.get("is_last"), n_steps),
        after={part: array[n_steps] for part, array in observations.items()} if n_steps < n else None,
        infos=infos,
        about=_about(features),
        is_cut=is_last is False,
    )


_READ = ("observation", "action", "reward", *_FLAGS)


def _n_steps(features: Mapping[str, Feature]) -> int:
    """Number of steps: a flag has one value each; without flags, so does the reward."""
    lengths = [len(features[f"{_STEPS}{key}"]) for key in (*_FLAGS, "reward", "action") if f"{_STEPS}{key}" in features]
    return lengths[0] if lengths else 0


def _per_step(feature: Feature, n: int) -> NDArray[Any] | None:
    """A feature as an array with one row per step; None where its values can't be shared out evenly."""
    if not len(feature) or len(feature) % n:
        return None
    if isinstance(feature, np.ndarray):
        return feature if len(feature) == n else feature.reshape(n, -1)
    texts = [_text(item) for item in feature]
    if None not in texts:
        return np.array(texts, dtype=object).reshape(n, -1)
    prints = b"".join(hashlib.shake_256(item).digest(_FINGERPRINT) for item in feature)
    return np.frombuffer(prints, np.uint8).reshape(n, -1)


def _is_encoded(key: str, feature: Feature) -> bool:
    return key.startswith(_STEPS) and isinstance(feature, list) and any(_text(item) is None for item in feature)


def _text(item: bytes) -> str | None:
    if len(item) > _LONGEST_TEXT:
        return None
    try:
        return item.decode()
    except UnicodeDecodeError:
        return None


def _parts(arrays: Arrays, name: str) -> Arrays:
    """A feature, or the parts of one by their names."""
    return {key[len(name) + 1 :]: array for key, array in arrays.items() if key == name or key.startswith(f"{name}/")}


def _flag(arrays: Arrays, name: str, n: int) -> bool | None:
    """What a flag says on the last step; None where there is no such flag."""
    array = arrays.get(name)
    return None if array is None or array.shape != (n,) or array.dtype.kind not in "biuf" else bool(array[-1])


def _timed_out(is_last: bool | None, is_terminal: bool | None) -> bool | None:
    """Whether an episode ended without its task ending: a limit cut it."""
    return None if is_last is None or is_terminal is None else is_last and not is_terminal


def _ends(at_end: bool | None, flags: NDArray[Any] | None, n_steps: int) -> NDArray[Any] | None:
    """Truth values of so many steps, the last one as given; None where nothing is known of it."""
    if at_end is None or flags is None:
        return None
    found = flags[:n_steps].astype(bool)
    found[-1] = at_end
    return found


def _about(features: Mapping[str, Feature]) -> dict[str, Any]:
    """What is said once per episode, where it is small."""
    known: dict[str, Any] = {}
    for key, feature in features.items():
        if not key.startswith(_STEPS) and len(feature) == 1:
            value = feature[0]
            known[key.rpartition("/")[2]] = _text(value) if isinstance(value, bytes) else value.item()
    return {key: value for key, value in known.items() if value is not None}
