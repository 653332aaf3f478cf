"""The members of a tar archive, read block by block: names are labels, and nothing is ever written or followed.

Formats of POSIX (ustar, pax) and GNU. The header of a member stands before its content, so a cut archive gives what came
before the cut, and a damaged header costs the members up to the next whole one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = 512
_MAGIC = b"ustar"  # stands behind the name of the first file; the oldest archives have a checksum only
_SPACES = b" " * 8  # stand for the checksum while it is computed
_LONGEST_HEADER = 2**16  # bytes of names and attributes in front of a member

_FILES, _FOLDER = (b"0", b"\0", b"7"), b"5"
_LONG_NAME, _ATTRIBUTES = b"L", b"x"
_ANNOUNCEMENTS = (_LONG_NAME, _ATTRIBUTES, b"K", b"g")  # the last two: a long name of a link, comments on all members
_REFUSED = {
    b"1": "a link to another file",
    b"2": "a link to another file",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
}


@dataclass(frozen=True, slots=True)
class TarMember:
    """One member: its content where it is a file, and else what it is.

    Attributes:
        name: as the archive has it.
        content: "" where it is no file.
        is_cut: whether the archive ends inside the content.
        refused: what it is, in words, where it is never read; "" for files.
    """

    name: str
    content: bytes
    is_cut: bool = False
    refused: str = ""


@dataclass(slots=True)
class TarDamage:
    """Bytes between members that are no header."""

    offset: int
    size: int


def is_tar(data: bytes) -> bool:
    """Whether bytes begin like a tar archive."""
    return data[257:262] == _MAGIC or _is_header(data[:_BLOCK])


def tar_members(data: bytes) -> Iterator[TarMember | TarDamage]:
    """The members of an archive in their order, without its folders."""
    position = 0
    name = ""  # of the next member, where the archive gives it before the header
    size: int | None = None
    while position + _BLOCK <= len(data):
        header = data[position : position + _BLOCK]
        if not any(header):
            position += _BLOCK  # two of these end an archive; others may follow that were put behind it
            continue
        if not _is_header(header):
            next_header = _next_header(data, position + _BLOCK)
            yield TarDamage(position, next_header - position)
            position, name, size = next_header, "", None
            continue
        kind, start = header[156:157], position + _BLOCK
        length = _number(header[124:136])
        if kind in _ANNOUNCEMENTS:
            name, size = _announced(kind, data[start : start + min(length, _LONGEST_HEADER)], name, size)
        else:
            length = 0 if kind in _REFUSED or kind == _FOLDER else length if size is None else size
            name = name or _name(header)
            if kind != _FOLDER and not name.endswith("/"):
                yield _member(name, kind, data[start : start + length], length)
            name, size = "", None
        position = start + -(-length // _BLOCK) * _BLOCK


def _member(name: str, kind: bytes, content: bytes, length: int) -> TarMember:
    """A member that is no folder."""
    if kind in _FILES:
        return TarMember(name, content, is_cut=len(content) < length)
    return TarMember(name, b"", refused=_REFUSED.get(kind, "a special file (sparse, say)"))


# -- headers -------------------------------------------------------------------------------------------------


def _is_header(block: bytes) -> bool:
    """Whether a block is a header, by its checksum: the sum of its bytes."""
    if len(block) < _BLOCK or not any(block):
        return False
    return sum(block[:148]) + sum(_SPACES) + sum(block[156:]) == _number(block[148:156])


def _next_header(data: bytes, position: int) -> int:
    """Where the next header stands, or the end."""
    while position + _BLOCK <= len(data) and not _is_header(data[position : position + _BLOCK]):
        position += _BLOCK
    return position if position + _BLOCK <= len(data) else len(data)


def _number(field: bytes) -> int:
    """A number of a header: octal digits, or, for large ones, bytes behind a mark; 0 where it is neither."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    return int(digits, 8) if digits.isdigit() and not set(digits) & set(b"89") else 0


def _name(header: bytes) -> str:
    """The name in a header, with the folders that POSIX keeps in a field of their own."""
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _announced(kind: bytes, content: bytes, name: str, size: int | None) -> tuple[str, int | None]:
    """Name and size that hold for the next member, from what stands in front of it."""
    if kind == _LONG_NAME:
        return _text(content), size
    for key, value in _attributes(content) if kind == _ATTRIBUTES else ():
        if key == b"path":
            name = value.decode("utf-8", "replace")
        elif key == b"size" and value.isdigit():
            size = int(value[:20])
    return name, size


def _attributes(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Lines ``<length> <key>=<value>``; the length counts the whole line."""
    position = 0
    while position < len(content):
        digits = content[position : position + 20].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        if length <= len(digits):
            return
        key, _, value = content[position + len(digits) + 1 : position + length - 1].partition(b"=")
        yield key, value
        position += length
