"""Rows of Parquet and Arrow files as records."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from offrl_core.errors import TraceFormatError
from offrl_core.importers.containers import MAX_EXPANDED_BYTES, too_large
from offrl_core.importers.records import ARROW_FILE, Progress, Record
from offrl_core.importers.report import ImportReport
from offrl_core.schema import canonical_json


def parquet_rows(name: str, data: bytes, report: ImportReport, tick: Progress) -> Iterator[Record]:
    """Rows of a Parquet file as objects; the raw text of a row is its JSON.

    Raises:
        TraceFormatError: the file is damaged or too large when expanded.
    """
    from pyarrow import parquet  # here, because most imports never see Parquet and it is slow to load

    try:
        file = parquet.ParquetFile(pa.BufferReader(data))
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        if sum(group.total_byte_size for group in groups) > MAX_EXPANDED_BYTES:
            raise TraceFormatError(too_large(name))
        yield from _rows(name, file.iter_batches(batch_size=1024), file.metadata.num_rows, report, tick)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise TraceFormatError(f"{name} is Parquet, but damaged ({error}). Write it again.") from error


def arrow_rows(name: str, data: bytes, report: ImportReport, tick: Progress) -> Iterator[Record]:
    """Rows of an Arrow file or stream as objects, or the one episode that a file of Minari holds.

    Raises:
        TraceFormatError: the file is damaged or too large when expanded.
    """
    from offrl_core.importers.array_stores import arrow_episode

    try:
        source = pa.BufferReader(data)
        table = (pa.ipc.open_file(source) if data.startswith(ARROW_FILE) else pa.ipc.open_stream(source)).read_all()
        if table.nbytes > MAX_EXPANDED_BYTES:
            raise TraceFormatError(too_large(name))
        if episode := arrow_episode(name, table, report):
            yield episode
            return
        yield from _rows(name, iter(table.to_batches(max_chunksize=1024)), table.num_rows, report, tick)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise TraceFormatError(f"{name} is Arrow, but damaged ({error}). Write it again.") from error


def _rows(
    name: str, batches: Iterator[pa.RecordBatch], n_rows: int, report: ImportReport, tick: Progress
) -> Iterator[Record]:
    """The rows of batches as records."""
    number = 0
    for batch in batches:
        for value in batch.to_pylist():
            number += 1
            report.accounts.found[name] += 1
            yield Record(number, value, canonical_json(value), name)
        tick(number / n_rows)
