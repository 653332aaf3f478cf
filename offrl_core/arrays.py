"""Names for array types and one shape check.

Shape letters, used in every docstring: N transitions, E episodes, T steps, S states, A actions, K seeds.
"""

from __future__ import annotations

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
