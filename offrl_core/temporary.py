"""Temporary directories of this program, which know whose they are: what a killed program left behind is found by that."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from .errors import NotPossible

LEFT_BEHIND_SECONDS = 86_400.0
_OURS = "offrl-"


def temporary_directory(purpose: str) -> tempfile.TemporaryDirectory[str]:
    """A directory that lasts as long as this object; ``purpose`` is one word of its name.

    Raises:
        NotPossible: there is no room, or no leave to write.
    """
    remove_left_behind()
    try:
        return tempfile.TemporaryDirectory(prefix=f"{_OURS}{purpose}-{os.getpid()}-")
    except OSError as error:
        raise no_room(error) from error


def no_room(error: Exception) -> NotPossible:
    """What to say where a temporary file can't be written."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
    return NotPossible(f"No temporary file can be written to {tempfile.gettempdir()} ({why}). Make room there.")


def remove_left_behind(folder: Path | None = None) -> None:
    """Remove the directories of programs that were killed: a day old, and no such process any more.

    Args:
        folder: where they lie; by default where temporary files do.
    """
    if os.name != "posix":  # elsewhere there is no harmless signal to ask with
        return
    for path in (folder or Path(tempfile.gettempdir())).glob(f"{_OURS}*-*-*"):
        with contextlib.suppress(OSError, ValueError):
            if path.stat().st_mtime < time.time() - LEFT_BEHIND_SECONDS:
                try:
                    os.kill(int(path.name.removeprefix(_OURS).split("-")[1]), 0)
                except ProcessLookupError:
                    shutil.rmtree(path, ignore_errors=True)
