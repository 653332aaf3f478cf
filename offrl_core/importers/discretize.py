"""Vectors of numbers to a few discrete labels, so that tables of states and actions can be learned from them.

Bins are cut at quantiles of the data: each holds about as many rows as the others, whatever the scale of a column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offrl_core.arrays import FloatArray, IntArray

MOST_CELLS = 1000  # bins of all columns multiplied: beyond that, most cells of a usual log hold one row or none
_FEWEST_BINS, _MOST_BINS = 2, 8
_MOST_COLUMNS = 10  # of more, the joint bins are nearly all different; their main directions are binned instead
_DIRECTIONS, _BINS_OF_DIRECTIONS = 3, 5
NO_BIN = -1  # of a value that is missing


def bins_per_column(n_columns: int) -> int:
    """How many bins each of so many columns gets, such that about ``MOST_CELLS`` cells are made of them all.

    >>> [bins_per_column(n) for n in (1, 2, 4, 6, 26)]
    [8, 8, 5, 3, 2]
    """
    return min(_MOST_BINS, max(_FEWEST_BINS, int(MOST_CELLS ** (1 / max(1, n_columns)) + 1e-9)))


def bin_edges(column: FloatArray, n_bins: int) -> FloatArray:
    """Where the bins of one column are cut, rising; bin i holds edges[i - 1] <= value < edges[i].

    A column with at most ``n_bins`` values gets a bin for each of them. NaN is left out of account.

    >>> bin_edges(np.array([0.0, 1.0, 2.0, 3.0]), 2).tolist()
    [2.0]
    """
    known = np.unique(column[np.isfinite(column)])
    if len(known) <= n_bins:
        return known[1:]
    shares = np.arange(1, n_bins) / n_bins
    # Edges are values of the column itself, and none is its smallest: so no bin stays empty.
    edges = np.unique(np.quantile(column[np.isfinite(column)], shares, method="higher"))
    return edges[edges > known[0]]


def quantile_bins(values: FloatArray, n_bins: int) -> IntArray:
    """Number of the quantile bin of each value (N, D), column by column; ``NO_BIN`` where it is NaN or infinite.

    >>> quantile_bins(np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [np.nan, 5.0]]), 2).tolist()
    [[0, 0], [1, 0], [1, 0], [-1, 0]]
    """
    labels = np.full(values.shape, NO_BIN, np.int64)
    for i in range(values.shape[1]):
        column = values[:, i]
        known = np.isfinite(column)
        labels[known, i] = np.searchsorted(bin_edges(column, n_bins), column[known], side="right")
    return labels


def bin_texts(labels: IntArray, names: Sequence[str] = ()) -> list[str]:
    """One short text per row of bin numbers (N, D); with names, each number says whose it is; "?" is no bin.

    >>> bin_texts(np.array([[0, 2], [-1, 1]]))
    ['0,2', '?,1']
    >>> bin_texts(np.array([[0, 2]]), ["x", "y"])
    ['x=0 y=2']
    """
    rows = [["?" if label == NO_BIN else str(label) for label in row] for row in labels.tolist()]
    if not names:
        return [",".join(row) for row in rows]
    return [" ".join(f"{name}={label}" for name, label in zip(names, row, strict=True)) for row in rows]


# -- many columns --------------------------------------------------------------------------------------------


def main_directions(values: FloatArray, n: int) -> FloatArray:
    """Coordinates of rows (N, D) along the n directions in which the scaled columns vary most; NaN where a row has one.

    Signs are fixed (the largest part of each direction is positive), so that equal data give equal coordinates.
    """
    known = np.isfinite(values).all(axis=1)
    rows = values[known]
    coordinates = np.full((len(values), n), np.nan)
    if not len(rows):
        return coordinates
    spread = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    directions = np.linalg.eigh(scaled.T @ scaled)[1][:, ::-1][:, :n]
    largest = np.abs(directions).argmax(axis=0)
    coordinates[known] = scaled @ (directions * np.sign(directions[largest, np.arange(directions.shape[1])]))
    return coordinates


def row_texts(values: FloatArray, names: Sequence[str]) -> tuple[list[str], str]:
    """A discrete label for each row (N, D), and how it was made, in words for the reader of the log."""
    n_columns = values.shape[1]
    if n_columns <= _MOST_COLUMNS:
        n_bins = bins_per_column(n_columns)
        return bin_texts(
            quantile_bins(values, n_bins), names
        ), f"at most {n_bins} bins each, cut at quantiles of the data"
    directions = [f"d{i + 1}" for i in range(_DIRECTIONS)]
    bins = quantile_bins(main_directions(values, _DIRECTIONS), _BINS_OF_DIRECTIONS)
    how = (
        f"the {_DIRECTIONS} directions in which these {n_columns} numbers vary most (principal components), "
        f"{_BINS_OF_DIRECTIONS} bins each, cut at quantiles of the data"
    )
    return bin_texts(bins, directions), how
