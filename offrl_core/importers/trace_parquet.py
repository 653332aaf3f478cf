"""Parquet in the trace schema, batch by batch as columns; rows that are odd in any way are read one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from offrl_core.importers import trace_schema
from offrl_core.importers.json_leaves import connection, table_leaves
from offrl_core.importers.raw_text import RawRecords
from offrl_core.importers.records import Progress, Record
from offrl_core.importers.report import ImportReport
from offrl_core.importers.trace_cells import columns_of_leaves
from offrl_core.schema import STEPS_ARROW_SCHEMA, canonical_json, steps_table, storable_text

_ROWS = 2**13  # read at a time

Flat = tuple[pa.Table, NDArray[np.bool_]]  # steps without upload_order, and their bare done


def flat_steps(
    name: str, head: list[Record], data: bytes, report: ImportReport, raw: RawRecords, tick: Progress
) -> Iterator[Flat]:
    """Steps of a file.

    Args:
        name: what it is called.
        head: its first records, if they were read already.
        data: its content.
        report: gets the problems.
        raw: gets the rows as texts; they are made when somebody asks.
        tick: called with the fraction that was read.
    """
    file = parquet.ParquetFile(pa.BufferReader(data))
    text_of = _row_texts(file)
    cursor = connection()
    is_flat = all(map(_is_plain, file.schema_arrow)) and len({n.casefold() for n in file.schema_arrow.names}) == len(
        file.schema_arrow
    )
    n = 0
    try:
        for batch in file.iter_batches(batch_size=_ROWS):
            table = pa.Table.from_batches([batch])
            leaves = table_leaves(cursor, table) if is_flat else None
            columns, odd = columns_of_leaves(cursor, leaves) if leaves else ({}, np.ones(len(batch), dtype=bool))
            odd[: max(0, len(head) - n)] = True  # these were looked at, and are counted
            report.accounts.found[name] += len(batch) - min(len(batch), max(0, len(head) - n))
            columns |= {"record": pa.array(np.arange(n + 1, n + 1 + len(batch)))}
            found = _merged(name, table, columns, odd, n, report)
            _add_rows(raw, name, found[0], text_of)
            yield found
            n += len(batch)
            tick(n / file.metadata.num_rows)
    except (pa.ArrowException, OSError) as error:
        message = f"it is Parquet, but damaged ({error}). Write it again. {n:,} records before that were read"
        report.at(name).lose(None, "damaged file", message)


def _is_plain(field: pa.Field) -> bool:
    """Whether SQL writes the values of a column as Python would."""
    kind = field.type
    tests = (pa.types.is_string, pa.types.is_boolean, pa.types.is_integer, pa.types.is_float64, pa.types.is_null)
    return any(test(kind) for test in tests) or kind == pa.list_(pa.string())


def _merged(
    name: str, table: pa.Table, columns: dict[str, Any], odd: NDArray[np.bool_], before: int, report: ImportReport
) -> Flat:
    """Regular rows and the others, in their order."""
    regular = np.flatnonzero(~odd)
    arrays = [columns.get(field.name, pa.nulls(len(odd), field.type)) for field in STEPS_ARROW_SCHEMA]
    kept = pa.Table.from_arrays(arrays, schema=STEPS_ARROW_SCHEMA).take(pa.array(regular))
    done = np.asarray(columns["done"])[regular] if "done" in columns else np.zeros(0, dtype=bool)
    rows, places = [], []
    for i in np.flatnonzero(odd).tolist():
        value = table.slice(i, 1).to_pylist()[0]
        if row := trace_schema.read_row(Record(before + i + 1, value, canonical_json(value), name), report):
            rows.append(row | {"record": before + i + 1})
            places.append(i)
    if rows:
        done = np.append(done, [bool(row.pop("done")) for row in rows])
        order = np.argsort(np.append(regular, places), kind="stable")
        kept, done = pa.concat_tables([kept, steps_table(rows)]).take(pa.array(order)), done[order]
    at = STEPS_ARROW_SCHEMA.get_field_index("source_file")
    names = pa.array([storable_text(name)]).take(pa.array(np.zeros(kept.num_rows, dtype=np.int64)))
    return kept.set_column(at, STEPS_ARROW_SCHEMA.field(at), names), done.astype(bool)


def _add_rows(raw: RawRecords, name: str, steps: pa.Table, text_of: Callable[[int], str]) -> None:
    numbers = steps["record"].to_numpy()
    raw.add(name, numbers, lambda i: text_of(int(numbers[i]) - 1))


def _row_texts(file: parquet.ParquetFile) -> Callable[[int], str]:
    """A function that gives a row of the file as JSON."""
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    starts = [0, *accumulate(sizes)]
    group_at = lru_cache(maxsize=1)(lambda group: file.read_row_group(group, use_threads=False))

    def text_of(row: int) -> str:
        group = int(np.searchsorted(starts, row, side="right")) - 1
        return canonical_json(group_at(group).slice(row - starts[group], 1).to_pylist()[0])

    return text_of
