"""Where the datasets of waiting jobs lie, as files that workers read: written once each, removed when nobody needs them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from ..dataset import Dataset
from ..dataset_files import files_of, save_dataset

LEFT_BEHIND_SECONDS = 86_400.0
FRESH_SECONDS = 60.0  # a dataset written or asked for so lately may belong to a job that is just being submitted
_PREFIX = "offrl-jobs-"


class Shelf:
    """A directory of datasets: a temporary one of this machine, or one that all machines of a cluster share."""

    def __init__(self, shared: str | Path | None, max_bytes: int) -> None:
        """Nothing is made before the first dataset.

        Args:
            shared: a directory to use, from which nothing is removed; by default a temporary one.
            max_bytes: size above which datasets that nobody needs are removed.
        """
        self._shared = Path(shared) if shared else None
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self.directory: Path | None = None

    def put(self, dataset: Dataset) -> Path:
        """The path of a dataset; it is written where it isn't there yet."""
        with self._lock:
            if self.directory is None:
                remove_left_behind(Path(tempfile.gettempdir()))
                self.directory = self._shared or Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
                self.directory.mkdir(parents=True, exist_ok=True)
            directory = self.directory
        return save_dataset(dataset, directory)

    def tidy(self, needed: Iterable[Path]) -> None:
        """Remove the files of datasets that aren't needed, once all together take much room."""
        with self._lock:
            if self.directory is None or self._shared is not None:
                return
            files = {path: path.stat() for path in self.directory.glob("*.npz")}
            if sum(status.st_size for status in files.values()) > self._max_bytes:
                kept = {path for dataset in needed for path in files_of(dataset)}
                for path in files.keys() - kept:
                    if files[path].st_mtime < time.time() - FRESH_SECONDS:
                        path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the temporary directory."""
        with self._lock:
            directory, self.directory = self.directory, None
        if directory is not None and self._shared is None:
            shutil.rmtree(directory, ignore_errors=True)


def remove_left_behind(folder: Path) -> None:
    """Remove the datasets of programs that were killed: a day old, and no such process any more."""
    if os.name != "posix":  # elsewhere there is no harmless signal to ask with
        return
    for path in folder.glob(f"{_PREFIX}*-*"):
        with contextlib.suppress(OSError, ValueError):
            if path.stat().st_mtime < time.time() - LEFT_BEHIND_SECONDS:
                try:
                    os.kill(int(path.name.removeprefix(_PREFIX).split("-")[0]), 0)
                except ProcessLookupError:
                    shutil.rmtree(path, ignore_errors=True)
