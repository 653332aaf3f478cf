"""Uploaded bytes to plain files: gzip, zstd, zip and tar are opened, whatever their names say, up to fixed limits.

A few kilobytes can expand without end, so the expanded total, the ratio and the number of members are limited. A part
that is cut, damaged, encrypted or refused becomes a problem of the report; the others are read. Names of members are
labels and never paths, and nothing is ever unpickled.
"""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath

import pyarrow as pa

from offrl_core.errors import TraceFormatError
from offrl_core.importers.report import ImportReport
from offrl_core.importers.tar_files import TarDamage, TarMember, is_tar, tar_members

MAX_EXPANDED_BYTES = 200 * 2**20  # of everything that an upload expands to
MAX_RATIO = 1000  # expanded to packed; logs that repeat themselves reach about 100
MAX_MEMBERS = 10_000  # files in all archives of an upload
MAX_DEPTH = 2  # containers inside each other: a .jsonl.gz in a zip, a zip in a zip; a .tar.gz counts as one
_RATIO_COUNTS_FROM = 2**24  # bytes; what expands to less does no harm
_PIECE = 2**14  # packed bytes expanded at a time: 16 MB at most before the limits are looked at

# First bytes of files that are not read, with what to do instead.
_REFUSED: tuple[tuple[bytes, str], ...] = (
    (b"\x80", "a Python pickle. Those can run code, so they are never opened; export the data as JSON lines"),
    (b"\x93NUMPY", "a NumPy array. Export the episodes as JSON lines or Parquet"),
    (b"version https://git-lfs", "only a Git LFS pointer, not the data. Run `git lfs pull` and take the real file"),
    (b"SQLite format 3", "a SQLite database. Export the traces from the program that wrote it, as JSON lines"),
    (b"BZh", "compressed with bzip2. Pack it with gzip, zstd or zip instead"),
    (b"\xfd7zXZ", "compressed with xz. Pack it with gzip, zstd or zip instead"),
    (b"7z\xbc\xaf", "a 7z archive. Pack it with gzip, zstd or zip instead"),
    (b"Rar!", "a RAR archive. Pack it with gzip, zstd or zip instead"),
)
_GZIP, _ZSTD, _ZIP, _EMPTY_ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"PK\x05\x06"
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_IS_ENCRYPTED, _SIZE_COMES_LATER, _NAME_IS_UTF8 = 0x1, 0x8, 0x800
_STORED, _DEFLATED, _IN_ZSTD = 0, 8, 93
_JUNK_FILES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})

PlainFile = tuple[str, bytes]  # its name, with that of its archive before it, and its content


class _TooLarge(TraceFormatError):
    """The upload expands beyond the limits, so no further part of it is opened."""


@dataclass(slots=True)
class Limits:
    """What an upload may still expand to; its files share it."""

    bytes_left: int = field(default_factory=lambda: MAX_EXPANDED_BYTES)
    members_left: int = field(default_factory=lambda: MAX_MEMBERS)


def plain_files(name: str, data: bytes, report: ImportReport, limits: Limits, depth: int = 0) -> list[PlainFile]:
    """Open what is packed and give the files inside; a file that isn't packed is given as it is.

    Args:
        name: what to call the file; nothing is concluded from it.
        data: its bytes.
        report: gets the parts that can't be read.
        limits: shared by all files of an upload.
        depth: how many containers it lies in.

    Raises:
        TraceFormatError: the file is of a kind that isn't read, or can't be opened at all.
    """
    open_it = _opener(data)
    if open_it is None:
        _refuse(name, data)
        return [(name, data)]
    if depth == MAX_DEPTH:
        raise TraceFormatError(f"{name} is packed more than {MAX_DEPTH} times. Unpack it once.")
    return open_it(name, data, report, limits, depth + 1)


def is_plain(head: bytes) -> bool:
    """Whether a file that begins so is neither packed nor of a kind that is refused."""
    return not any(head.startswith(magic) for magic, _ in _REFUSED) and _opener(head) is None


def too_large(name: str) -> str:
    """The sentence for a file that expands beyond the limit."""
    return f"{name} expands to more than {MAX_EXPANDED_BYTES // 2**20} MiB. Split it, or take a sample."


def part_sentence(name: str, error: TraceFormatError) -> str:
    """What is wrong with one file of several, for a problem that already names the file."""
    text = str(error)
    return "it" + text.removeprefix(name) if text.startswith(f"{name} ") else text


_Opener = Callable[[str, bytes, ImportReport, Limits, int], list[PlainFile]]


def _opener(data: bytes) -> _Opener | None:
    """How to open a container; None where the bytes are none."""
    if data.startswith(_GZIP):
        return _open_gzip
    if data.startswith(_ZSTD):
        return _open_zstd
    if data.startswith((_ZIP, _EMPTY_ZIP)):
        return _open_zip
    return _open_tar if is_tar(data) else None


def _refuse(name: str, data: bytes) -> None:
    """Say what a file is that is never read.

    Raises:
        TraceFormatError: it is one.
    """
    for magic, what in _REFUSED:
        if data.startswith(magic):
            raise TraceFormatError(f"{name} is {what}.")


# -- streams -------------------------------------------------------------------------------------------------


def _open_gzip(name: str, data: bytes, report: ImportReport, limits: Limits, depth: int) -> list[PlainFile]:
    return _open_stream(name, "gzip", _gunzip(data), data, report, limits, depth)


def _open_zstd(name: str, data: bytes, report: ImportReport, limits: Limits, depth: int) -> list[PlainFile]:
    return _open_stream(name, "zstd", _unzstd(data), data, report, limits, depth)


def _open_stream(
    name: str, kind: str, pieces: Iterator[bytes], data: bytes, report: ImportReport, limits: Limits, depth: int
) -> list[PlainFile]:
    """The one file in a compressed stream; a stream that is damaged gives what came before the damage.

    Raises:
        TraceFormatError: nothing could be expanded.
    """
    expanded, damage = _expand(name, pieces, len(data), limits)
    if damage and not expanded:
        raise TraceFormatError(f"{name} is {kind}, but damaged ({damage}). Copy it again.")
    if damage:
        message = f"the {kind} stream is damaged ({damage}); only its first {len(expanded):,} bytes were read"
        report.damage(name, f"damaged {kind}", message)
    return plain_files(name, expanded, report, limits, depth - 1 if is_tar(expanded) else depth)


def _expand(name: str, pieces: Iterable[bytes], packed: int, limits: Limits) -> tuple[bytes, str]:
    """Put the pieces of a stream together: all of them and "", or those before a damage and what it is.

    Raises:
        _TooLarge: it goes beyond the limits.
    """
    expanded, damage = io.BytesIO(), ""
    try:
        for piece in pieces:
            expanded.write(piece)
            size = expanded.tell()
            if size > limits.bytes_left:
                limits.bytes_left = 0
                raise _TooLarge(too_large(name))
            if size > _RATIO_COUNTS_FROM and size > MAX_RATIO * packed:
                raise TraceFormatError(f"{name} expands to more than {MAX_RATIO:,} times its size. Unpack it yourself.")
    except (EOFError, OSError, zlib.error, pa.ArrowException) as error:
        damage = str(error)
    limits.bytes_left -= expanded.tell()
    return expanded.getvalue(), damage


def _gunzip(data: bytes) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        while piece := stream.read1(2**20):  # not read: it gives nothing of a piece that isn't whole
            yield piece


def _unzstd(data: bytes | memoryview) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while piece := stream.read(2**16):
            yield piece


# -- members of archives -------------------------------------------------------------------------------------


def _open_members(
    name: str,
    contents: Sequence[tuple[str, Callable[[], bytes]]],
    report: ImportReport,
    limits: Limits,
    depth: int,
) -> list[PlainFile]:
    """The plain files in the members of an archive. One that can't be read becomes a problem.

    Args:
        name: of the archive.
        contents: name of each member, and what gives its bytes.
        report: gets the problems.
        limits: shared by all files of an upload.
        depth: how many containers the members lie in.
    """
    files: list[PlainFile] = []
    for i, (member, content) in enumerate(contents):
        label = f"{name}/{member}"
        try:
            files += plain_files(label, content(), report, limits, depth)
        except _TooLarge:
            message = f"the archive {_beyond()}; {len(contents) - i:,} of its {len(contents):,} files were not read"
            report.at(label).lose(None, "archive too large", message)
            break
        except TraceFormatError as error:
            report.lose_file(label, part_sentence(label, error))
    return files


def _beyond() -> str:
    return f"expands to more than {MAX_EXPANDED_BYTES // 2**20} MiB"


def _is_junk(name: str) -> bool:
    """Whether a member is one that a file manager leaves behind."""
    *folders, file = name.split("/")
    return "__MACOSX" in folders or file in _JUNK_FILES or file.startswith("._")


def _say_skipped(name: str, n: int, report: ImportReport) -> None:
    if n:
        report.notes.append(f"Skipped in {name}: files that macOS or Windows adds to folders ({n:,}).")


def _say_too_many(name: str, report: ImportReport) -> None:
    message = f"archives of an upload may hold {MAX_MEMBERS:,} files, so those beyond were not read. Split it"
    report.at(name).lose(None, "too many files", message)


# -- tar -----------------------------------------------------------------------------------------------------


def _open_tar(name: str, data: bytes, report: ImportReport, limits: Limits, depth: int) -> list[PlainFile]:
    """The files of a tar archive, and of the containers in it. Links and devices are named and never followed.

    Raises:
        TraceFormatError: the archive holds no file.
    """
    members: list[TarMember] = []
    for found in tar_members(data):
        if isinstance(found, TarDamage):
            message = (
                f"{found.size:,} bytes of the archive, from byte {found.offset:,} on, are damaged and were skipped"
            )
            report.at(name, offset=found.offset).lose(None, "damaged tar", message)
        elif not limits.members_left:
            _say_too_many(name, report)
            break
        else:
            limits.members_left -= 1
            members.append(found)
    if not members:
        raise TraceFormatError(f"{name} is a tar archive without a file in it. Pack it again.")
    wanted = [member for member in members if not _is_junk(member.name)]
    _say_skipped(name, len(members) - len(wanted), report)
    # Contents lie in the archive as they are, so they don't count as expanded a second time.
    contents = [(member.name, partial(_tar_content, f"{name}/{member.name}", member, report)) for member in wanted]
    return _open_members(name, contents, report, limits, depth)


def _tar_content(label: str, member: TarMember, report: ImportReport) -> bytes:
    """The content of one member; what is cut gives what came before the cut.

    Raises:
        TraceFormatError: it is no file.
    """
    if member.refused:
        raise TraceFormatError(f"{label} is {member.refused}, which is never followed or read. Pack the file itself.")
    if member.is_cut:
        message = f"the archive ends inside this file; {len(member.content):,} bytes of it were read"
        report.damage(label, "damaged file", message)
    return member.content


# -- zip -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Member:
    """One file of a zip: where its packed content starts, and how long that is (None: not known beforehand)."""

    name: str
    method: int
    is_encrypted: bool
    start: int
    size: int | None
    checksum: int | None = None  # None where the salvaged header doesn't give it


def _open_zip(name: str, data: bytes, report: ImportReport, limits: Limits, depth: int) -> list[PlainFile]:
    """The files of a zip, and of the containers in it. One that can't be read becomes a problem.

    Raises:
        TraceFormatError: the archive holds no file, or only the pages that a browser showed.
    """
    members = _listed(name, data, report, limits)
    if members is None:
        members = _salvaged(data, limits)
        message = f"the archive is cut or damaged; {len(members):,} files were found in it without its directory"
        report.at(name).mend(None, "damaged zip", message)
    if {".trace", ".network"} <= {PurePath(member.name).suffix for member in members if "/" not in member.name}:
        limits.members_left += len(members)  # benchmarks keep one beside each run
        raise TraceFormatError(f"{name} is a recording of Playwright: what a browser did, not the steps of an agent.")
    wanted = [member for member in members if not _is_junk(member.name)]
    _say_skipped(name, len(members) - len(wanted), report)
    if not members:
        raise TraceFormatError(f"{name} is a zip archive without a file in it. Pack it again.")
    contents = [
        (member.name, partial(_content, f"{name}/{member.name}", member, data, report, limits)) for member in wanted
    ]
    return _open_members(name, contents, report, limits, depth)


def _listed(name: str, data: bytes, report: ImportReport, limits: Limits) -> list[_Member] | None:
    """The members as the directory of the archive lists them; None where it can't be read."""
    if data.count(b"PK\x01\x02") > limits.members_left:
        _say_too_many(name, report)
        return _salvaged(data, limits)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            listed = archive.infolist()
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, struct.error, NotImplementedError, RuntimeError):
        return None
    if len(listed) != _number_of_members(data):  # a damaged entry can swallow the next ones as its comment
        return None
    infos = [info for info in listed if not info.is_dir()]
    limits.members_left -= len(infos)
    found = []
    for info in infos:
        header = _local_header(data, info.header_offset)
        if header is None:
            message = "the directory of the archive points to where no file is; it is damaged"
            report.at(f"{name}/{info.filename}").lose(None, "unreadable file", message)
            continue
        header.name, header.size, header.checksum = info.filename, info.compress_size, info.CRC
        found.append(header)
    return found


def _number_of_members(data: bytes) -> int:
    """How many members the end of the directory says there are (up to 65,534: beyond, the directory is believed)."""
    end = data.rfind(_EMPTY_ZIP)
    (n,) = struct.unpack_from("<H", data, end + 10)
    return data.count(b"PK\x01\x02") if n == 0xFFFF else int(n)


def _salvaged(data: bytes, limits: Limits) -> list[_Member]:
    """The members as their own headers give them, one after the other: the directory comes last and may be missing."""
    found = []
    position = data.find(_ZIP)
    while position >= 0 and limits.members_left > 0:
        member = _local_header(data, position)
        if member is None:
            position = data.find(_ZIP, position + 1)
            continue
        if not member.name.endswith("/"):
            limits.members_left -= 1
            found.append(member)
        position = data.find(_ZIP, member.start + (member.size or 0))
    return found


def _local_header(data: bytes, position: int) -> _Member | None:
    """Read the header in front of a member's content; None where none stands."""
    if not 0 <= position <= len(data) - _LOCAL_HEADER.size:
        return None
    magic, _, flags, method, _, _, checksum, size, _, name_size, extra_size = _LOCAL_HEADER.unpack_from(data, position)
    if magic != _ZIP:
        return None
    name_at = position + _LOCAL_HEADER.size
    raw = data[name_at : name_at + name_size]
    name = raw.decode("utf-8", "replace") if flags & _NAME_IS_UTF8 else raw.decode("cp437")
    later = bool(flags & _SIZE_COMES_LATER) or size == 0xFFFFFFFF
    start = name_at + name_size + extra_size
    return _Member(
        name, method, bool(flags & _IS_ENCRYPTED), start, None if later else size, None if later else checksum
    )


def _content(label: str, member: _Member, data: bytes, report: ImportReport, limits: Limits) -> bytes:
    """Expand one member; what is cut gives what came before the cut.

    Raises:
        TraceFormatError: it is encrypted, packed in an unknown way, or nothing of it can be expanded.
    """
    if member.is_encrypted:
        raise TraceFormatError(f"{label} is encrypted. Pack it without a password.")
    end = len(data) if member.size is None else member.start + member.size
    packed = memoryview(data)[member.start : end]
    content, damage = _expand(label, _pieces(label, member, packed), len(packed), limits)
    if not damage and member.checksum is not None and zlib.crc32(content) != member.checksum:
        damage = "its checksum is another"
    if damage and not content:
        raise TraceFormatError(f"{label} is damaged ({damage}). Pack it again.")
    if damage:
        message = f"this file of the archive is damaged ({damage}); {len(content):,} bytes of it were read"
        report.damage(label, "damaged file", message)
    return content


def _pieces(label: str, member: _Member, packed: memoryview) -> Iterator[bytes]:
    """The content of a member, piece by piece.

    Raises:
        TraceFormatError: it is packed in a way that isn't known.
    """
    if member.method == _DEFLATED:
        return _inflate(packed)
    if member.method == _IN_ZSTD:
        return _unzstd(packed)
    if member.method != _STORED:
        raise TraceFormatError(f"{label} is packed by method {member.method}, which isn't read. Pack it as usual.")
    return _stored(member, packed)


def _inflate(packed: memoryview) -> Iterator[bytes]:
    """Expand a deflated content, which knows its end itself."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    for start in range(0, len(packed), _PIECE):
        yield stream.decompress(packed[start : start + _PIECE])
        if stream.eof:
            return
    raise EOFError("it ends in the middle")


def _stored(member: _Member, packed: memoryview) -> Iterator[bytes]:
    """A content that isn't packed; where its length isn't known, it ends at the next header."""
    if member.size is not None and len(packed) < member.size:
        yield bytes(packed)
        raise EOFError("it ends in the middle")
    if member.size is None:
        content = bytes(packed)
        ends = [at for magic in (b"PK\x07\x08", _ZIP, b"PK\x01\x02") if (at := content.find(magic)) >= 0]
        packed = packed[: min(ends, default=len(packed))]
    yield bytes(packed)
