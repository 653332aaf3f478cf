"""States and actions of step tables as short texts: categories as they are, continuous numbers in a few bins.

The numbers themselves stay in ``state`` and ``arguments``; the texts are what a table of values has its rows for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from offrl_core.arrays import FloatArray
from offrl_core.importers.discretize import bin_edges, bins_per_column, quantile_bins, row_texts
from offrl_core.importers.step_cells import is_missing, kind_of, number_in, parsed_cell, short_number
from offrl_core.importers.step_mapping import Item, expanded

_MOST_CATEGORIES = 50  # of whole numbers that are one of several fields; more are a measure, as a blood pressure is
_MOST_ACTIONS = 20  # different numbers with decimals that still are a choice among doses
_LONGEST_STATE_TEXT = 200  # a longer text is a prompt or a page, and nearly never seen twice
_MOST_NUMBERS = 256  # of one state; more are an image, which the raw record holds


@dataclass(frozen=True, slots=True)
class Texts:
    """One text per step (None where the log has none), and what a reader must know of how they were made."""

    texts: list[str | None]
    notes: tuple[str, ...] = ()


# -- states --------------------------------------------------------------------------------------------------


def state_values(items: Sequence[Item], paths: Sequence[str]) -> list[dict[str, Any] | None]:
    """The state of each step as one object: the fields with numbers as numbers; an object that is alone stands for itself."""
    fields = expanded(paths, items)
    return [_state_value(item, fields) for item in items]


def _state_value(item: Item, fields: Sequence[str]) -> dict[str, Any] | None:
    """The state of one step; None where all its fields are missing."""
    value = {path.rpartition("/")[2]: plain_value(item.get(path)) for path in fields}
    if all(cell is None for cell in value.values()):
        return None
    alone = next(iter(value.values())) if len(value) == 1 else None
    return alone if isinstance(alone, dict) else value


def plain_value(value: Any) -> Any:
    """A cell as JSON has it: text that says a number, a list or an object becomes that; what is missing is null."""
    if is_missing(value):
        return None
    if not isinstance(value, str):
        return value
    number = number_in(value)
    if number is None:
        return parsed_cell(value)
    if kind_of(value) == "truth":
        return bool(number)
    return int(number) if number == number // 1 and abs(number) < 2**53 else number


def state_texts(states: Sequence[dict[str, Any] | None]) -> Texts:
    """A short text per state: ``room=kitchen x=2``; x is a bin where its numbers are continuous.

    No step gets a text where some state is long text or deeply nested: a text on some rows only would be no use.
    """
    flat = [_flat(state) for state in states]
    names = list(dict.fromkeys(name for cells in flat if cells for name in cells))
    if not names:
        return Texts([None] * len(states))
    if any(cells is None for cells in flat):
        note = (
            "The states are long or nested, so there is no short text of them (state_text); they were kept as they are."
        )
        return Texts([None] * len(states), (note,))
    columns = {name: [cells.get(name) for cells in flat if cells is not None] for name in names}
    continuous = [name for name, column in columns.items() if _is_continuous(column, alone=len(names) == 1)]
    parts: list[list[str]] = [
        [text if len(names) == 1 else f"{name}={text}" for text in map(_category, columns[name])]
        for name in names
        if name not in continuous
    ]
    notes: tuple[str, ...] = ()
    if continuous:
        numbers = np.array([[_as_float(cell) for cell in columns[name]] for name in continuous]).T
        texts, how = row_texts(numbers, continuous)
        parts.append(texts)
        shown = ", ".join(continuous[:4]) + (f" and {len(continuous) - 4} more" if len(continuous) > 4 else "")
        verb = "is continuous; its" if len(continuous) == 1 else "are continuous; their"
        notes = (f"{shown} {verb} numbers became {how}, for the short text of the state (state_text).",)
    return Texts([" ".join(row) for row in zip(*parts, strict=True)], notes)


def _flat(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """Scalar cells of a state: lists of numbers by position. None where it holds long text or more structure."""
    cells: dict[str, Any] = {}
    for name, value in (state or {}).items():
        if isinstance(value, list) and len(value) <= _MOST_NUMBERS:
            cells |= {f"{name}[{i}]": item for i, item in enumerate(value)}
        elif isinstance(value, dict):
            cells |= {f"{name}.{key}": item for key, item in value.items()}
        else:
            cells[name] = value
    if len(cells) > _MOST_NUMBERS or any(isinstance(item, list | dict) for item in cells.values()):
        return None
    if any(isinstance(item, str) and len(item) > _LONGEST_STATE_TEXT for item in cells.values()):
        return None
    return cells


def _is_continuous(column: Sequence[Any], *, alone: bool) -> bool:
    """Whether cells are numbers with decimals, or so many whole ones that they are a measure; ids of states are not."""
    known = {cell for cell in column if cell is not None}
    if not known or not all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in known):
        return False
    if any(isinstance(cell, float) and cell != cell // 1 for cell in known):
        return len(known) > bins_per_column(1)
    return not alone and len(known) > _MOST_CATEGORIES


def _as_float(value: Any) -> float:
    number = number_in(value)
    return np.nan if number is None else number


def _category(value: Any) -> str:
    """A cell as a category."""
    if value is None:
        return "?"
    if isinstance(value, float):
        return short_number(value) if value == value // 1 or abs(value) < np.inf else "?"
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


# -- actions -------------------------------------------------------------------------------------------------


def action_texts(vectors: Sequence[Sequence[float]]) -> Texts:
    """Names for actions that are numbers: 2.0 is "2"; continuous ones are named after their bin, "-0.5 to 0.25".

    Args:
        vectors: the action of each step; all of the same length, or they are named as they are.
    """
    lengths = {len(vector) for vector in vectors}
    distinct = {tuple(vector) for vector in vectors}
    whole = all(number == number // 1 for vector in distinct for number in vector)
    if whole or len(lengths) != 1 or len(distinct) <= _MOST_ACTIONS:
        return Texts([",".join(map(_category, vector)) for vector in vectors])
    numbers = np.array(vectors, dtype=np.float64)
    if numbers.shape[1] == 1:
        edges = bin_edges(numbers[:, 0], bins_per_column(1))
        names = _ranges(numbers[:, 0], edges)
        note = f"The actions are continuous numbers; they were cut into {len(edges) + 1} bins at quantiles of the data."
        bins = quantile_bins(numbers, bins_per_column(1))[:, 0]
        return Texts([names[i] if i >= 0 else "?" for i in bins.tolist()], (_with_exact_numbers(note),))
    texts, how = row_texts(numbers, [f"a{i}" for i in range(numbers.shape[1])])
    return Texts(
        list(texts),
        (_with_exact_numbers(f"The actions are vectors of {numbers.shape[1]} numbers; they became {how}."),),
    )


def _with_exact_numbers(note: str) -> str:
    return f"{note} The exact numbers are in the arguments."


def _ranges(column: FloatArray, edges: FloatArray) -> list[str]:
    """Names of the bins between edges, with as few digits as keep them apart."""
    known = column[np.isfinite(column)]
    bounds = [float(known.min()), *edges.tolist(), float(known.max())]
    for digits in range(2, 17):
        texts = [f"{bound:.{digits}g}" for bound in bounds]
        if len(set(texts)) == len(bounds) or digits == 16:
            break
    return [f"{low} to {high}" for low, high in pairwise(texts)]
