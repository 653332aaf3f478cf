"""Values of arrays as an importer needs them: short labels for tables of states and actions, plain numbers for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offrl_core.importers.discretize import row_texts
from offrl_core.importers.hdf5_file import Arrays
from offrl_core.importers.report import ImportReport
from offrl_core.importers.step_states import Texts, action_texts
from offrl_core.schema import short_hash

DIGITS = 5  # of a number in the state; the file has the others
_SINGLE_DIGITS = 9  # tell any two numbers of single precision apart
MOST_NUMBERS = 64  # of an observation; what is larger (an image) is not put into the state, only a hash of it


# -- labels --------------------------------------------------------------------------------------------------


def action_labels(arrays: Sequence[Arrays], is_described: bool, report: ImportReport) -> Texts:
    """A name for each action of a dataset; with a note where it is a bin of real numbers.

    Args:
        arrays: the actions of each episode.
        is_described: whether metadata says what kind of actions they are.
        report: gets the notes.
    """
    columns = _columns(arrays, "action")
    if columns.too_large:
        report.notes.append(f"{', '.join(columns.too_large)} is too large to name an action, so it is left out.")
    if not columns.numbers:
        n_steps = sum(len(array) for parts in arrays for array in list(parts.values())[:1])
        return Texts([" ".join(row) for row in zip(*columns.texts, strict=True)] or ["action"] * n_steps)
    vectors = list(zip(*(_rounded(column).tolist() for column in columns.numbers.values()), strict=True))
    texts = action_texts(vectors)
    if not texts.notes and not is_described:
        report.notes.append(
            "No metadata says what the actions are; they take few values, so they were read as discrete."
        )
    report.notes += texts.notes
    return texts


def state_labels(arrays: Sequence[Arrays], report: ImportReport) -> list[str] | None:
    """A short text for each state: whole numbers as they are, others in bins; None where all of it is too large."""
    columns = _columns(arrays, "obs")
    if columns.too_large:
        report.notes.append(
            f"{', '.join(columns.too_large)} is too large for a state, which holds only its hash. "
            "Frame the states by something else, or put features of it into the file."
        )
    counted = {name: column for name, column in columns.numbers.items() if column.dtype.kind in "biu"}
    measured = {name: column for name, column in columns.numbers.items() if name not in counted}
    parts = list(columns.texts)
    for name, column in counted.items():
        numbers = _rounded(column).tolist()
        parts.append([str(n) if len(columns.numbers) == 1 else f"{name}={n}" for n in numbers])
    if measured:
        texts, how = row_texts(
            np.stack([column.astype(np.float64) for column in measured.values()], axis=1), [*measured]
        )
        parts.append(texts)
        report.notes.append(
            f"Observations hold {len(measured):,} real number{'s' if len(measured) > 1 else ''}; for the short text of "
            f"the state (state_text) they became {how}: {len(set(texts)):,} different ones in {len(texts):,} steps."
        )
    return [" ".join(row) for row in zip(*parts, strict=True)] if parts else None


@dataclass(slots=True)
class _Columns:
    """What all steps of a dataset observed or did, side by side: columns of numbers, and texts."""

    numbers: dict[str, NDArray[Any]] = field(default_factory=dict)  # name -> (N,)
    texts: list[list[str]] = field(default_factory=list)  # of each part that is text
    too_large: list[str] = field(default_factory=list)  # parts that were left out


def _columns(arrays: Sequence[Arrays], name: str) -> _Columns:
    """The parts of observations or actions of all episodes as columns."""
    columns = _Columns()
    for part in arrays[0]:
        whole = np.concatenate([parts[part] for parts in arrays])
        label = part or name
        flat = whole.reshape(len(whole), -1)
        if whole.dtype.kind not in "biuf":
            columns.texts.append([str(value) for value in flat[:, 0]])
        elif flat.shape[1] > MOST_NUMBERS:
            columns.too_large.append(f"{label} ({'x'.join(map(str, whole.shape[1:]))} {whole.dtype})")
        elif flat.shape[1] == 1:
            columns.numbers[label] = flat[:, 0]
        else:
            columns.numbers |= {f"{label}[{i}]" if part else f"{label}{i}": flat[:, i] for i in range(flat.shape[1])}
    return columns


# -- plain values --------------------------------------------------------------------------------------------


def plain_steps(arrays: Arrays, *, exact: bool = False) -> list[Any]:
    """Arrays of T steps as T plain values: a number, a list, or an object where there are several parts.

    Args:
        arrays: the parts.
        exact: whether real numbers keep all of their digits.
    """
    parts = {name: _plain_array(array, exact) for name, array in arrays.items()}
    if set(parts) == {""}:
        return parts[""]
    names = list(parts)
    return [dict(zip(names, values, strict=True)) for values in zip(*parts.values(), strict=True)]


def _plain_array(array: NDArray[Any], exact: bool) -> list[Any]:
    """One value per step; of what is too large, only its shape and hash."""
    if array.dtype.kind in "USO":
        return [str(value) for value in array.reshape(len(array), -1)[:, 0]]
    flat = array.reshape(len(array), -1)
    if flat.shape[1] > MOST_NUMBERS:
        shape = list(array.shape[1:])
        return [{"shape": shape, "hash": short_hash(row.tobytes().hex())} for row in flat]
    digits = DIGITS if not exact else _SINGLE_DIGITS if array.dtype.itemsize <= 4 else None
    rounded = (flat if digits is None else _rounded(flat, digits)).tolist()
    return [row[0] for row in rounded] if flat.shape[1] == 1 else rounded


def _rounded(numbers: NDArray[Any], digits: int = DIGITS) -> NDArray[Any]:
    """Real numbers to so many digits, whole ones as they are, true and false as 1 and 0."""
    if numbers.dtype.kind != "f":
        return numbers.astype(np.int64) if numbers.dtype.kind == "b" else numbers
    exact = numbers.astype(np.float64)
    with np.errstate(all="ignore"):
        decimals = digits - 1 - np.floor(np.log10(np.abs(exact)))
        decimals = np.clip(np.nan_to_num(decimals, posinf=0, neginf=0), -290, 290)
        power = 10.0 ** np.abs(decimals)  # never below 1: only those are exact
        rounded = np.where(decimals < 0, np.round(exact / power) * power, np.round(exact * power) / power)
    return np.where(np.isfinite(rounded), rounded, exact)
