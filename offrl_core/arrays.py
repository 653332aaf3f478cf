"""Names for array types and one shape check.

Shape letters, used in every docstring: N transitions, E episodes, T steps, S states, A actions, K seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def check_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuse an array of another shape, naming both shapes.

    Raises:
        ValueError: the shape differs.
    """
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")


class ShortRepr:
    """A dataclass that says what it is in a line or two: arrays as their shapes, long tuples and mappings as their lengths."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Name and fields, not arrays."""
        told = (f"{item.name}={_in_short(getattr(self, item.name))}" for item in fields(self) if item.repr)  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(told)})"


_LONGEST_REPR = 80  # characters of one field


def _in_short(value: Any) -> str:
    """A value of a field: what it is, where writing it out would be long."""
    if isinstance(value, np.ndarray):
        return f"<{' x '.join(map(str, value.shape))} {value.dtype}>"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping) and not any(isinstance(item, np.ndarray) for item in value.values()):
        return "{" + ", ".join(f"{key!r}: {_in_short(item)}" for key, item in value.items()) + "}"
    text = "" if isinstance(value, Mapping) else repr(value)
    if isinstance(value, ShortRepr) or (text and len(text) <= _LONGEST_REPR):
        return text
    return f"<{len(value):,} entries>" if hasattr(value, "__len__") else text
