"""The state of a learner as bytes, without pickle: a tree of plain values in JSON, its arrays beside it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def encode_state(state: Mapping[str, Any]) -> bytes:
    """Write a state; :func:`decode_state` gives back equal values, arrays and numbers bit for bit.

    Raises:
        TypeError: it holds something else than dicts with text keys, lists, text, numbers, None and NumPy arrays.
    """
    arrays: list[NDArray[Any]] = []
    tree = json.dumps(_plain(state, arrays)).encode()
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, tree=np.frombuffer(tree, dtype=np.uint8), **_named(arrays))
    return file.getvalue()


def decode_state(content: bytes) -> dict[str, Any]:
    """Inverse of :func:`encode_state`; tuples come back as lists."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        tree: dict[str, Any] = _rebuilt(json.loads(arrays["tree"].tobytes()), arrays)
    return tree


def _named(arrays: list[NDArray[Any]]) -> dict[str, Any]:
    return {f"array:{i}": array for i, array in enumerate(arrays)}


# Each node of the tree is a pair of its kind and its content, so that no key of a state can be taken for a mark.
def _plain(value: Any, arrays: list[NDArray[Any]]) -> tuple[str, Any]:
    if isinstance(value, np.ndarray | np.generic):
        arrays.append(np.asarray(value))
        return ("array" if isinstance(value, np.ndarray) else "scalar"), len(arrays) - 1
    if value is None or isinstance(value, bool | int | float | str):
        return "value", value
    if isinstance(value, list | tuple):
        return "list", [_plain(item, arrays) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return "dict", {key: _plain(item, arrays) for key, item in value.items()}
    raise TypeError(
        f"A learner's state may hold dicts with text keys, lists, text, numbers, None and NumPy arrays, and no "
        f"{type(value).__name__}."
    )


def _rebuilt(node: tuple[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    kind, content = node
    if kind == "array":
        return arrays[f"array:{content}"]
    if kind == "scalar":
        return arrays[f"array:{content}"][()]
    if kind == "list":
        return [_rebuilt(item, arrays) for item in content]
    if kind == "dict":
        return {key: _rebuilt(item, arrays) for key, item in content.items()}
    return content
