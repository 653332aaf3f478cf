"""An HDF5 file as arrays of numbers, flags and text, and nothing else: no link, no external or compound dataset."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offrl_core.errors import TraceFormatError
from offrl_core.importers.containers import MAX_EXPANDED_BYTES, too_large
from offrl_core.importers.report import ImportReport, Place

Arrays = dict[str, NDArray[Any]]  # name of a part ("" where there is only one) -> one row per step

_DEEPEST_GROUP = 4
_READABLE_KINDS = frozenset("biufSU")


class Hdf5File:
    """An open HDF5 file that gives only arrays of numbers, flags and text, up to the limit of an upload."""

    def __init__(self, name: str, file: Any, report: ImportReport) -> None:
        """Read from an open file."""
        self.name, self.report = name, report
        self._file = file
        self._bytes_left = MAX_EXPANDED_BYTES
        self._refused: set[str] = set()

    def names(self, path: str = "/") -> list[str]:
        """What a group holds, in no order; nothing where there is no such group."""
        group = self._item(path)
        return list(group) if hasattr(group, "keys") else []

    def attributes(self, path: str) -> dict[str, Any]:
        """Small attributes of a group, as plain values."""
        group = self._item(path)
        found = {key: plain(group.attrs.get(key)) for key in group.attrs} if group is not None else {}
        return {key: value for key, value in found.items() if value is not None}

    def array(self, path: str) -> NDArray[Any] | None:
        """A dataset; None where there is none, or (with a problem) where it isn't one that is read.

        Raises:
            TraceFormatError: the arrays are larger than the limit.
        """
        import h5py

        item = self._item(path)
        if not isinstance(item, h5py.Dataset):
            return None
        is_text = h5py.check_string_dtype(item.dtype) is not None
        if item.external or item.is_virtual or item.shape is None:
            self._refuse(path, "its content lies outside of the file, or it has none")
            return None
        if not is_text and item.dtype.kind not in _READABLE_KINDS:
            self._refuse(path, f"its type ({item.dtype}) is neither numbers nor text")
            return None
        self._bytes_left -= item.size * max(1, item.dtype.itemsize)
        if self._bytes_left < 0:
            raise TraceFormatError(too_large(self.name))
        try:
            return np.asarray(item.asstr(errors="replace")[()] if is_text else item[()])
        except (OSError, RuntimeError) as error:
            self._refuse(path, f"it is damaged ({error})")
            return None

    def arrays(self, path: str, depth: int = 0) -> Arrays:
        """A dataset, or all datasets of a group by their path in it."""
        children = self.names(path)
        if not children:
            array = self.array(path)
            return {} if array is None else {"": array}
        if depth == _DEEPEST_GROUP:
            self._refuse(path, "it is nested too deep")
            return {}
        found = {}
        for child in sorted(children, key=in_order):
            for part, array in self.arrays(f"{path}/{child}", depth + 1).items():
                found[f"{_part_name(child)}/{part}" if part else _part_name(child)] = array
        return found

    def place(self, record: int | None = None) -> Place:
        """Where problems are found."""
        return self.report.at(self.name, record)

    def _item(self, path: str) -> Any:
        """What stands at a path, if hard links lead there; soft and external links could lead out of the file."""
        import h5py

        item = self._file
        for part in path.strip("/").split("/"):
            if not part:
                continue
            link = item.get(part, getlink=True) if isinstance(item, h5py.Group) and part in item else None
            if link is None:
                return None
            if not isinstance(link, h5py.HardLink):
                self._refuse(path, "it is a link, and links could lead out of the file")
                return None
            item = item[part]
        return item

    def _refuse(self, path: str, why: str) -> None:
        if path in self._refused:
            return  # a part may be asked for as a group and as an array
        self._refused.add(path)
        self.place().lose(path.strip("/"), "array not read", f"this part was not read: {why}")


def plain(value: Any) -> Any:
    """An attribute as text or number; None where it is larger than a note."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value if isinstance(value, str | int | float) and len(str(value)) <= 1000 else None


def in_order(name: str) -> tuple[int, str]:
    """Sort key: numbers inside names count as numbers, so 2 comes before 10."""
    digits = re.search(r"\d+", name)
    return (int(digits[0][:18]) if digits else -1, name)


def _part_name(name: str) -> str:
    """Minari calls the parts of a tuple ``_index_0``, ``_index_1``."""
    return name.removeprefix("_index_")
