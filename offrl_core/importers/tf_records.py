"""TFRecord files of ``tf.train.Example``, read without TensorFlow: frames, and the few message types inside them.

A frame is the length of a message, a checksum of that length, the message, and a checksum of the message. Only the
first checksum is compared, which tells where a frame is whole: the other would take longer than all of the reading.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEAD = struct.Struct("<QI")  # length, checksum of the length
_TAIL = 4  # checksum of the message
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reversed
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5  # wire types
_BYTES_LIST, _FLOAT_LIST, _INT_LIST = 1, 2, 3  # fields of a Feature

Feature = list[bytes] | NDArray[Any]  # texts or encoded images; float32; the smallest whole numbers that hold all


def is_tf_records(data: bytes) -> bool:
    """Whether bytes begin with the head of a frame."""
    return _length_at(data, 0) is not None


def frames(data: bytes) -> Iterator[tuple[int, memoryview]]:
    """Offset and message of each frame, up to the end or to where the file is cut or damaged.

    Raises:
        ValueError: something other than whole frames stands in the file; the text says where.
    """
    position = 0
    while position < len(data):
        length = _length_at(data, position)
        start = position + _HEAD.size
        if length is None or start + length + _TAIL > len(data):
            raise ValueError(f"no whole frame stands at byte {position:,}")
        yield position, memoryview(data)[start : start + length]
        position = start + length + _TAIL


def _length_at(data: bytes, position: int) -> int | None:
    """Length of the message at a place; None where no head of a frame stands there."""
    if position + _HEAD.size > len(data):
        return None
    length, checksum = _HEAD.unpack_from(data, position)
    return int(length) if _masked_checksum(data[position : position + 8]) == checksum else None


def _masked_checksum(data: bytes) -> int:
    """CRC-32C, rotated and shifted as TFRecord has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _checksums()[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _checksums() -> list[int]:
    """CRC-32C of each byte."""
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0) for crc in table]
    return table


# -- messages ------------------------------------------------------------------------------------------------


def example_features(message: memoryview) -> dict[str, Feature]:
    """The features of one ``tf.train.Example`` by name.

    Raises:
        ValueError: it is no such message.
    """
    features: dict[str, Feature] = {}
    for number, value in _fields(message):
        for inner, entry in _fields(_nested(value)) if number == 1 else ():
            if inner == 1:
                parts = dict(_fields(_nested(entry)))
                features[bytes(_nested(parts.get(1, b""))).decode("utf-8", "replace")] = _feature(
                    _nested(parts.get(2, b""))
                )
    return features


def _nested(value: int | memoryview | bytes) -> memoryview:
    """A field that must hold a message or text.

    Raises:
        ValueError: it is a number.
    """
    if isinstance(value, int):
        raise ValueError("a number stands where a message was expected")
    return memoryview(value)


def _feature(message: memoryview) -> Feature:
    """The list in one feature; an empty one where it has none."""
    for kind, value in _fields(message):
        if kind == _BYTES_LIST:
            return [bytes(_nested(item)) for number, item in _fields(_nested(value)) if number == 1]
        if kind == _FLOAT_LIST:
            return np.frombuffer(b"".join(_packed(value, _FIXED_32)), "<f4")
        if kind == _INT_LIST:
            return _smallest(_varints(b"".join(_packed(value, _VARINT))))
    return []


def _packed(message: int | memoryview, wire: int) -> Iterator[bytes]:
    """The bytes of numbers: all in one field, or one field each.

    Raises:
        ValueError: a number is longer than the list's type allows.
    """
    for number, value in _fields(_nested(message)):
        if number == 1 and isinstance(value, int):
            if wire == _FIXED_32 and value >= 2**32:
                raise ValueError("a number of a list of floats has more than 32 bits")
            yield _as_varint(value) if wire == _VARINT else struct.pack("<I", value)
        elif number == 1:
            yield bytes(value)


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field of a message.

    Raises:
        ValueError: it breaks off, or holds a type that isn't known.
    """
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        wire, value = key & 7, 0
        if wire == _VARINT:
            value, position = _varint(message, position)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            length, position = _varint(message, position)
        else:
            length = {_FIXED_64: 8, _FIXED_32: 4}.get(wire, -1)
        if not 0 <= length <= len(message) - position:
            raise ValueError("a message breaks off")
        piece = message[position : position + length]
        position += length
        yield key >> 3, piece if wire == _BYTES else int.from_bytes(piece, "little")


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """A number of seven bits per byte, and where it ends."""
    value = shift = 0
    while True:
        if position >= len(message) or shift > 63:
            raise ValueError("a number breaks off")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


def _as_varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _varints(packed: bytes) -> NDArray[np.int64]:
    """All numbers of a packed list, at once.

    Raises:
        ValueError: it breaks off.
    """
    array = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(array < 0x80)
    if len(array) and (not len(ends) or ends[-1] != len(array) - 1):
        raise ValueError("a list of numbers breaks off")
    if len(ends) == len(array):
        return array.astype(np.int64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    place = np.arange(len(array)) - np.repeat(starts, ends - starts + 1)
    if place.max(initial=0) > 9:
        raise ValueError("a number is too long")
    bits = (array & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts).view(np.int64)


def _smallest(numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Whole numbers in bytes where they fit, as the pixels of images do."""
    if len(numbers) and numbers.min() >= 0 and numbers.max() < 256:
        return numbers.astype(np.uint8)
    return numbers
