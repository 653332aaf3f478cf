"""Where the datasets of waiting jobs lie, as files that workers read: written once each, removed when nobody needs them."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from ..dataset import Dataset
from ..dataset_files import files_of, save_dataset
from ..temporary import no_room, temporary_directory

FRESH_SECONDS = 60.0  # a dataset written or asked for so lately may belong to a job that is just being submitted


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
        self._own: tempfile.TemporaryDirectory[str] | None = None
        self.directory: Path | None = None

    def put(self, dataset: Dataset) -> Path:
        """The path of a dataset; it is written where it isn't there yet.

        Raises:
            NotPossible: the directory can't be written.
        """
        try:
            return save_dataset(dataset, self._made())
        except OSError as error:
            raise no_room(error) from error

    def _made(self) -> Path:
        """The directory, made anew where somebody has cleaned up."""
        with self._lock:
            if self.directory is None:
                self.directory = self._shared or self._new()
            self.directory.mkdir(parents=True, exist_ok=True)
            return self.directory

    def _new(self) -> Path:
        self._own = temporary_directory("jobs")
        return Path(self._own.name)

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
            own, self._own, self.directory = self._own, None, None
        if own is not None:
            own.cleanup()
