"""A log as a file in the trace schema, written once: JSON lines or Parquet, whole or what edits leave, redacted or not."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .dataset import Dataset
from .log import Log
from .redaction import redacted
from .schema import COLUMN_NAMES, STEPS_ARROW_SCHEMA, canonical_json, short_hash

WRITERS: dict[str, Callable[[Log, Path], None]] = {"jsonl": Log.write_jsonl, "parquet": Log.write_parquet}
MAX_FILES = 16  # kept in a directory; the oldest go first
_writing = threading.Lock()


def exported(log: Log, format: str, directory: Path) -> Path:
    """The file of a log, written the first time it is asked for.

    Args:
        log: any log; its fingerprint names the file.
        format: key of :data:`WRITERS`.
        directory: where files are kept for the next time.

    Raises:
        OSError: the disk is full, say; no half file is left behind.
    """
    path = directory / f"{log.fingerprint}.{format}"
    with _writing:  # the second of two threads finds the file that the first one wrote
        if path.exists():
            os.utime(path)
            return path
        unfinished = directory / f"{uuid.uuid4().hex}.unfinished"
        try:
            WRITERS[format](log, unfinished)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
        for old in sorted(directory.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)[MAX_FILES:]:
            with contextlib.suppress(OSError):  # on Windows a file that is being sent can't go
                old.unlink()
    return path


def redacted_log(log: Log, progress: Callable[[float], None] | None = None) -> tuple[Log, Counter[str]]:
    """The log with secrets and personal data replaced, without its raw records, and how many findings there were."""
    steps, counts = redacted(log.columns(*COLUMN_NAMES).cast(STEPS_ARROW_SCHEMA), progress)
    made = Log(
        steps,
        name=f"{log.name}, redacted",
        fingerprint=short_hash(canonical_json([log.fingerprint, "redacted"])),
        source=None,
        report=replace(log.report, problems=[]),  # their excerpts come from the raw file
    )
    return made, counts


def kept_log(dataset: Dataset) -> Log:
    """The steps that coverage edits leave, as a log of their own."""
    columns = ", ".join(COLUMN_NAMES)
    kept = f"SELECT {columns} FROM steps WHERE row IN (SELECT row FROM ({dataset.relation})) ORDER BY row"
    return Log(
        dataset.cursor().sql(kept).to_arrow_table().cast(STEPS_ARROW_SCHEMA),
        name=f"{dataset.log.name}, after edits",
        fingerprint=short_hash(canonical_json([dataset.log.fingerprint, dataset.framing.token, repr(dataset.edits)])),
        source=None,
        report=dataset.log.report,
        records=dataset.log,
    )
