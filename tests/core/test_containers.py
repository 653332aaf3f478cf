"""Archives and several files at once: what is packed is opened up to limits, and one bad file never costs the others."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections import Counter
from itertools import chain, zip_longest
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offrl_core.errors import TraceFormatError, UnknownFormat
from offrl_core.importers import IMPORTERS, containers, engine, read_source, read_sources, recognition
from offrl_core.importers.containers import Limits, plain_files
from offrl_core.importers.report import ImportReport
from tests.core.damage import assert_accounts
from tests.traces import shared_trace

STEPS = b'{"episode_id": "e", "t": 0, "action": "a"}\n{"episode_id": "e", "t": 1, "action": "b"}\n'
CHAT = b'{"id": "c", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "hi"}]}\n'


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return sink.getvalue()


class Pipe(io.RawIOBase):
    """A sink that can't go back, so that a zip written to it gives sizes only behind each content."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += bytes(data)
        return len(data)


def streamed_zip(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    sink = Pipe()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return sink.data


def unpacked(data: bytes) -> tuple[dict[str, bytes], ImportReport]:
    report = ImportReport(files=["f"])
    return dict(plain_files("f", data, report, Limits())), report


def kinds(report: ImportReport) -> list[tuple[str, str]]:
    return [(problem.file, problem.kind) for problem in report.problems]


# -- what can be opened --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        STEPS,
        gzip.compress(STEPS),
        zstd(STEPS),
        gzip.compress(STEPS.decode().encode("utf-16")),
        gzip.compress(gzip.compress(STEPS)),
        zstd(gzip.compress(STEPS)),
        gzip.compress(STEPS[:20]) + gzip.compress(STEPS[20:]),
        zstd(STEPS[:20]) + zstd(STEPS[20:]),
        zipped(("a.jsonl", STEPS)),
        zipped(("a.jsonl.gz", gzip.compress(STEPS))),
        zipped(("deep/er/inner.zip", zipped(("a.jsonl", STEPS)))),
        zipped(("a.jsonl", STEPS), method=zipfile.ZIP_STORED),
        streamed_zip(("a.jsonl", STEPS)),
        zipped(("a.jsonl", STEPS[:43]), ("b.jsonl", STEPS[43:])),
    ],
    ids="plain gzip zstd gzip_utf16 gzip_gzip zstd_gzip gzips zstds zip gzip_in_zip zip_in_zip stored streamed two".split(),
)
def test_packed_files_give_the_same_steps(data: bytes) -> None:
    imported = read_source("f", data)
    assert imported.steps["action"].to_pylist() == ["a", "b"]
    assert imported.report.problems == []
    assert all(source.split("/")[0] == "f" for source in imported.steps["source_file"].to_pylist())


@pytest.mark.parametrize("name", ["intercode_ctf_15samples", "security_guide", "websearch"])
def test_real_archives_give_what_zipfile_gives(name: str) -> None:
    data = shared_trace(f"inspect_ai/{name}.eval").read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        expected = {f"f/{member}": archive.read(member) for member in archive.namelist()}
    found, report = unpacked(data)
    assert found == expected
    assert report.problems == []
    # Without the directory at its end, the archive gives the same.
    salvaged, report = unpacked(data[: data.index(b"PK\x01\x02")])
    assert salvaged == expected
    assert kinds(report) == [("f", "damaged zip")]


def test_a_real_archive_that_was_cut_gives_what_came_before_the_cut() -> None:
    found, report = unpacked(shared_trace("damaged/eval_zip_cut.eval").read_bytes())
    whole, _ = unpacked(shared_trace("inspect_ai/websearch.eval").read_bytes())
    names = ["f/_journal/start.json", "f/samples/1_epoch_1.json", "f/_journal/summaries/1.json"]
    assert list(found) == names
    assert [len(found[name]) for name in names[:2]] == [1920, 14925]
    assert [found[name] for name in names[:2]] == [whole[name] for name in names[:2]]
    assert whole[names[2]].startswith(found[names[2]])
    assert kinds(report) == [("f", "damaged zip"), (names[2], "damaged file")]


def test_members_packed_with_zstd_are_read() -> None:
    data = bytearray(zipped(("a.jsonl", zstd(STEPS)), method=zipfile.ZIP_STORED))
    for header, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(header) + at] = 93
    with zipfile.ZipFile(io.BytesIO(zipped(("a", STEPS)))) as archive:
        checksum = archive.infolist()[0].CRC.to_bytes(4, "little")
    for header, at in ((b"PK\x03\x04", 14), (b"PK\x01\x02", 16)):
        start = data.index(header) + at
        data[start : start + 4] = checksum
    found, report = unpacked(bytes(data))
    assert found == {"f/a.jsonl": STEPS}
    assert report.problems == []


def test_members_of_unknown_length_are_salvaged() -> None:
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        data = streamed_zip(("a", STEPS), ("b", CHAT), method=method)
        found, _ = unpacked(data[: data.index(b"PK\x01\x02")])
        assert found == {"f/a": STEPS, "f/b": CHAT}


# -- what can't ----------------------------------------------------------------------------------------------


def test_one_bad_member_costs_that_member() -> None:
    data = zipped(
        ("good.jsonl", STEPS),
        ("model/data.pkl", b"\x80\x04\x95 anything"),
        ("pointer.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        ("empty.json", b""),
        ("page.html", b"<html>hello</html>"),
        ("image.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256))),
        ("other.jsonl", b'{"surprise": 1}\n{"surprise": 2}\n'),
        ("bad.gz", b"\x1f\x8b no gzip"),
    )
    imported = read_source("f", data)
    assert imported.report.sentence() == "Read 2 of 2 rows: 2 steps in 1 episode; 7 files unreadable; 7 problems."
    assert Counter(kinds(imported.report)) == Counter(
        (f"f/{name}", "unreadable file")
        for name in "model/data.pkl pointer.json empty.json page.html image.png other.jsonl bad.gz".split()
    )
    by_file = {problem.file: problem.message for problem in imported.report.problems}
    assert by_file["f/model/data.pkl"].startswith("it is a Python pickle")
    assert by_file["f/other.jsonl"].startswith(
        "The format of f/other.jsonl isn't known: its records have the fields surprise."
    )
    assert all(problem.lost for problem in imported.report.problems)


def test_an_encrypted_or_strangely_packed_or_altered_member_is_named() -> None:
    whole = zipped(("a.jsonl", STEPS), ("b.jsonl", CHAT), method=zipfile.ZIP_STORED)
    for at, value, words in ((6, 1, "encrypted"), (8, 97, "method 97")):
        data = bytearray(whole)
        data[at] = value
        found, report = unpacked(bytes(data))
        assert list(found) == ["f/b.jsonl"]
        assert words in report.problems[0].message
    altered = whole.replace(b'"action": "a"', b'"action": "z"')
    found, report = unpacked(altered)
    assert len(found) == 2
    assert kinds(report) == [("f/a.jsonl", "damaged file")]


def test_an_unreadable_companion_costs_a_file_and_no_record() -> None:
    run = IMPORTERS["swe_agent"].example
    imported = read_source("f", zipped(("a.traj", run), ("report.json", b'{"resolved_ids": ["x"')))
    assert imported.report.sentence() == "Read 2 of 2 records: 2 steps in 1 episode; 1 file unreadable; 1 problem."
    assert kinds(imported.report) == [("f/report.json", "unreadable file")]


def test_what_file_managers_add_is_skipped_and_counted() -> None:
    junk = [
        ("__MACOSX/._a.jsonl", b"\0\5\x16\7"),
        ("x/.DS_Store", b"\0\0\0\1Bud1"),
        ("._b", b"\0"),
        ("Thumbs.db", b"\xd0"),
    ]
    imported = read_source("f", zipped(*junk, ("a.jsonl", STEPS), ("folder/", b"")))
    assert imported.steps.num_rows == 2
    assert imported.report.problems == []
    assert [note for note in imported.report.notes if "Skipped" in note] == [
        "Skipped in f: files that macOS or Windows adds to folders (4)."
    ]


def test_a_cut_stream_keeps_what_could_be_expanded() -> None:
    lines = b"".join(b'{"episode_id": "e", "t": %d, "action": "%d"}\n' % (i, i * i * 7919) for i in range(40_000))
    for packed, kind in ((gzip.compress(lines), "damaged gzip"), (zstd(lines), "damaged zstd")):
        imported = read_source("f", packed[: len(packed) * 3 // 4])
        assert 1000 < imported.steps.num_rows < 40_000
        assert kinds(imported.report)[0] == ("f", kind)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x80\x04\x95", "f is a Python pickle"),
        (gzip.compress(b"\x80\x04\x95"), "f is a Python pickle"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        (b"\x93NUMPY", "NumPy array"),
        (b"SQLite format 3\0", "SQLite"),
        (b"BZh91AY", "bzip2"),
        (b"PK\x03\x04...", "zip archive without a file"),
        (zipped(), "zip archive without a file"),
        (zipped(("a.pkl", b"\x80\x04\x95")), "No file in f can be read. f/a.pkl: it is a Python pickle"),
        (zipped(("a.txt", b"hello")), "holds no JSON: it begins with 'hello'"),
        (b"\x1f\x8bnot really", "f is gzip, but damaged"),
        (b"\x28\xb5\x2f\xfdnot really", "f is zstd, but damaged"),
        (gzip.compress(gzip.compress(gzip.compress(STEPS))), "packed more than 2 times"),
        (zipped(("a.zip", zipped(("b.zip", zipped(("c", STEPS)))))), "packed more than 2 times"),
    ],
)
def test_what_can_not_be_opened_is_refused_with_a_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(TraceFormatError, match=sentence) as caught:
        read_source("f", data)
    assert str(caught.value).endswith(".")


def test_one_bad_member_is_counted_once() -> None:
    """Wherever on the way to its records the damage shows: in its checksum, in the stream inside it, in what it holds."""
    for name, content in (
        ("b.txt", b"plain words, no JSON" * 9),
        ("b.gz", gzip.compress(CHAT * 99)),
        ("b", b"\x80\x04" * 99),
    ):
        data = bytearray(zipped(("a.jsonl", STEPS), (name, content), method=zipfile.ZIP_STORED))
        data[data.index(content) + len(content) // 2] ^= 0xFF
        imported = read_source("f", bytes(data))
        assert imported.report.sentence() == "Read 2 of 2 rows: 2 steps in 1 episode; 1 file unreadable; 1 problem."
        assert kinds(imported.report) == [(f"f/{name}", "unreadable file")]
        assert "checksum" in imported.report.problems[0].message
        assert (imported.report.n_lost, imported.report.counts()) == (1, {"unreadable file": 1})


# -- tar -----------------------------------------------------------------------------------------------------


def tarred(*members: tuple[str, bytes] | tarfile.TarInfo, format: int = tarfile.PAX_FORMAT) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=format) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return sink.getvalue()


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_a_tar_gives_its_files_by_any_name(format: int) -> None:
    long = "/".join(["a-folder-with-a-long-name"] * 7) + "/steps.jsonl"
    odd = "жук <b>.jsonl" if format != tarfile.USTAR_FORMAT else "beetle <b>.jsonl"
    data = tarred(special("folder", tarfile.DIRTYPE), (long, STEPS), (odd, CHAT), ("empty", b""), format=format)
    for packed in (data, gzip.compress(data), zstd(data)):
        found, report = unpacked(packed)
        assert found == {f"f/{long}": STEPS, f"f/{odd}": CHAT, "f/empty": b""}
        assert report.problems == []


def test_a_tar_of_the_oldest_form_is_read() -> None:
    data = bytearray(tarred(("a.jsonl", STEPS), format=tarfile.USTAR_FORMAT))
    data[257:265] = bytes(8)
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    assert unpacked(bytes(data))[0] == {"f/a.jsonl": STEPS}


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_packed_tar_counts_as_one_container(pack: Any) -> None:
    inner = pack(tarred(("b.jsonl.gz", gzip.compress(STEPS))))
    assert read_source("f", inner).report.problems == []
    assert read_source("f", zipped(("x.tgz", pack(tarred(("a", STEPS)))))).report.problems == []
    with pytest.raises(TraceFormatError, match="packed more than 2 times"):
        read_source("f", pack(tarred(("a.tgz", inner))))


def test_links_devices_and_pipes_in_a_tar_are_named_and_never_followed() -> None:
    data = tarred(
        special("passwords", tarfile.SYMTYPE, "/etc/passwd"),
        special("again", tarfile.LNKTYPE, "a.jsonl"),
        special("disk", tarfile.BLKTYPE),
        special("terminal", tarfile.CHRTYPE),
        special("pipe", tarfile.FIFOTYPE),
        ("a.jsonl", STEPS),
    )  # fmt: skip
    imported = read_source("f", data)
    assert imported.steps["source_file"].to_pylist() == ["f/a.jsonl"] * 2
    assert kinds(imported.report) == [
        (f"f/{name}", "unreadable file") for name in "passwords again disk terminal pipe".split()
    ]
    assert "a link to another file, which is never followed" in imported.report.problems[0].message
    with pytest.raises(TraceFormatError, match="a link to another file"):
        read_source("f", tarred(special("passwords", tarfile.SYMTYPE, "/etc/passwd")))


@pytest.mark.parametrize("pack", [tarred, zipped])
def test_hostile_names_of_members_are_labels(pack: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [
        "../../up",
        "/etc/passwd",
        "C:\\x",
        "a/../b",
        "<img src=x>",
        "'; DROP TABLE steps; --",
        "x" * 5000,
        "~",
        "",
    ]
    names = names if pack is tarred else names[:-1]  # zipfile writes no empty name
    members = [(name, STEPS.replace(b'"e"', b'"e%d"' % i)) for i, name in enumerate(names)]
    imported = read_source("f", pack(*members))
    assert list(dict.fromkeys(imported.steps["source_file"].to_pylist())) == [f"f/{name}" for name in names]
    assert list(tmp_path.iterdir()) == []


def test_a_cut_or_damaged_tar_keeps_the_whole_members() -> None:
    data = tarred(
        ("a.jsonl", STEPS), ("b.jsonl", CHAT + CHAT.replace(b'"c"', b'"d"')), ("c.jsonl", STEPS.replace(b'"e"', b'"c"'))
    )
    cut = data[: data.index(CHAT) + len(CHAT) + 9]
    imported = read_source("f", cut)
    assert imported.report.sentence() == (
        "Read 2 of 2 rows, 1 of 2 conversations (1 lost): 3 steps in 2 episodes; 1 file damaged; 2 problems."
    )
    assert kinds(imported.report) == [("f/b.jsonl", "damaged file"), ("f/b.jsonl", "not JSON")]
    header = bytearray(data)
    header[header.index(b"b.jsonl")] = 0
    imported = read_source("f", bytes(header))
    assert set(imported.steps["source_file"].to_pylist()) == {"f/a.jsonl", "f/c.jsonl"}
    assert kinds(imported.report) == [("f", "damaged tar")]


def test_a_tar_has_the_caps_of_a_zip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_MEMBERS", 3)
    data = tarred(*[(f"{i}.jsonl", STEPS.replace(b'"e"', b'"e%d"' % i)) for i in range(5)])
    imported = read_source("f", data)
    assert imported.report.n_episodes == 3
    assert kinds(imported.report) == [("f", "too many files")]
    bomb = tarred(("a.jsonl", STEPS), ("zeros", bytes(2**25)))
    with pytest.raises(TraceFormatError, match="more than 1,000 times its size"):
        read_source("f", zstd(bomb))
    monkeypatch.setattr(containers, "MAX_EXPANDED_BYTES", 2**20)
    with pytest.raises(TraceFormatError, match="f expands to more than 1 MiB"):
        read_source("f", gzip.compress(bomb))
    huge = bytearray(tarred(("a.jsonl", STEPS)))
    huge[124:136] = b"\x80" + b"\xff" * 11  # a size of 2**88 bytes
    huge[148:156] = b" " * 8
    huge[148:156] = b"%06o\0 " % sum(huge[:512])
    assert kinds(read_source("f", bytes(huge)).report) == [("f/a.jsonl", "damaged file")]
    with pytest.raises(TraceFormatError, match="tar archive without a file"):
        read_source("f", tarred(special("folder", tarfile.DIRTYPE)))


# -- bombs ---------------------------------------------------------------------------------------------------


def test_streams_have_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_EXPANDED_BYTES", 2**20)
    for packed in (gzip.compress(b" " * 2**22), zstd(b" " * 2**22)):
        with pytest.raises(TraceFormatError, match="f expands to more than 1 MiB"):
            read_source("f", packed)


def test_an_archive_has_a_cap_and_keeps_what_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_EXPANDED_BYTES", 2**20)
    data = zipped(("a.jsonl", STEPS), ("b.jsonl", b" " * 2**22), ("c.jsonl", STEPS))
    imported = read_source("f", data)
    assert imported.steps.num_rows == 2
    assert kinds(imported.report) == [("f/b.jsonl", "archive too large")]
    assert "2 of its 3 files were not read" in imported.report.problems[0].message
    two = [("a", gzip.compress(STEPS + b" " * 700_000)), ("b", gzip.compress(STEPS + b" " * 700_000))]
    assert kinds(read_sources(two).report) == [("b", "unreadable file")]  # the files of an upload share the cap


def test_a_huge_ratio_is_refused_early() -> None:
    bomb = zstd(b"\0" * 2**25)
    assert containers.MAX_RATIO * len(bomb) < 2**25
    with pytest.raises(TraceFormatError, match="more than 1,000 times its size"):
        read_source("f", bomb)


def test_the_number_of_members_has_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_MEMBERS", 3)
    data = zipped(*[(f"{i}.jsonl", STEPS.replace(b'"e"', b'"e%d"' % i)) for i in range(5)])
    imported = read_source("f", data)
    assert imported.report.n_episodes == 3
    assert kinds(imported.report)[0] == ("f", "too many files")


def test_members_that_share_their_content_count_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_EXPANDED_BYTES", 2**20)
    whole = zipped(("a", b"[1]" + b" " * 400_000))
    directory = whole.index(b"PK\x01\x02")
    end = whole.index(b"PK\x05\x06")
    entries = whole[directory:end] * 5
    tail = whole[end : end + 8] + (5).to_bytes(2, "little") * 2 + len(entries).to_bytes(4, "little") + whole[end + 16 :]
    found, report = unpacked(whole[:directory] + entries + tail)
    assert len(report.problems) == 1
    assert report.problems[0].kind == "archive too large"
    assert len(found) == 1  # they have one name here; two were expanded


# -- several files -------------------------------------------------------------------------------------------


def test_files_of_several_formats_are_read_together() -> None:
    imported = read_sources([("a", STEPS), ("b", CHAT), ("c", STEPS.replace(b'"e"', b'"f"'))])
    report = imported.report
    assert report.files == ["a", "b", "c"]
    assert report.format == "trace_schema, openai_chat"
    assert report.why.startswith(
        "trace_schema in 2 files (found episode_id, t and action in 2 of the first 2 records); "
    )
    assert report.sentence() == "Read 4 of 4 rows, 1 of 1 conversation: 5 steps in 3 episodes; no problems."
    assert Counter(imported.steps["source_file"].to_pylist()) == {"a": 2, "c": 2, "b": 1}
    assert imported.records["source_file"].to_pylist() == ["a", "a", "b", "c", "c"]
    # What only one of the formats lacks is not said of the whole log.
    assert report.notes
    titles = tuple(IMPORTERS[name].title for name in ("trace_schema", "openai_chat"))
    assert all(note.startswith(titles) for note in report.notes)


def test_files_of_one_name_and_episodes_of_one_id_are_told_apart() -> None:
    chat = CHAT.replace(b'"c"', b'"e"')
    imported = read_sources([("a", STEPS), ("a", chat), ("a", chat.replace(b"hi", b"ho"))])
    assert imported.records["source_file"].to_pylist() == ["a", "a", "a (2)", "a (3)"]
    assert len(set(imported.steps["episode_id"].to_pylist())) == 3
    assert set(imported.report.counts()) == {"episode id used twice"}


def test_one_unreadable_file_costs_that_file() -> None:
    files = [("a", STEPS), ("b", b""), ("c", b'{"x": 1}\n{"x": 2}'), ("d", b"\x80\x04"), ("e", b"plain words")]
    imported = read_sources(files)
    assert imported.report.sentence() == "Read 2 of 2 rows: 2 steps in 1 episode; 4 files unreadable; 4 problems."
    assert sorted(kinds(imported.report)) == [(name, "unreadable file") for name in "bcde"]
    with pytest.raises(TraceFormatError, match="None of these 4 files can be read") as caught:
        read_sources(files[1:])
    assert str(caught.value).endswith(".")
    with pytest.raises(TraceFormatError, match="no file to read"):
        read_sources([])


def test_an_unknown_format_names_the_nearest_and_what_it_lacks() -> None:
    few = b'{"x": 1}\n' * 7 + STEPS + STEPS[:43]
    with pytest.raises(
        TraceFormatError, match=r"The nearest is Trace schema .*: found episode_id, t and action in 3 of the"
    ):
        read_source("f", few)
    with pytest.raises(
        UnknownFormat, match=r"The nearest is Step table .*: no field is called like an action. Say which"
    ):
        read_source("f", b'{"x": 1}\n{"x": 1}')
    steps = [{"run": f"r{i // 3}", "turn": i % 3, "did": "ab"[i % 2]} for i in range(12)]
    with pytest.raises(UnknownFormat, match="though did may hold it"):
        read_source("f", "\n".join(map(json.dumps, steps)).encode())
    for without_fields in (b"[1, 2]", b"[[1], [2]]", b"{}\n{}"):
        with pytest.raises(TraceFormatError, match="no objects with fields") as caught:
            read_source("f", without_fields)
        assert not isinstance(caught.value, UnknownFormat)
    for refused in (few, b'{"x": 1}', b"[1, 2]"):  # the list of formats is for the page to unfold
        with pytest.raises(TraceFormatError) as caught:
            read_source("f", refused)
        assert sum(spec.title in str(caught.value) for spec in IMPORTERS.values()) <= 1


def test_a_companion_of_a_format_is_read_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = IMPORTERS["trace_schema"]
    values = {field: getattr(spec, field) for field in spec.__dataclass_fields__}
    monkeypatch.setitem(
        IMPORTERS, "trace_schema", recognition.ImporterSpec(**values | {"companions": ("*/meta.json",)})
    )
    imported = read_source("f", zipped(("run/meta.json", b'{"reward": 1}'), ("run/steps.jsonl", STEPS)))
    assert kinds(imported.report) == [("f/run/meta.json", "no episode_id")]  # what the importer says of it
    with pytest.raises(TraceFormatError, match="isn't known"):
        read_source("f", zipped(("run/meta.json", b'{"reward": 1}')))


def test_problems_get_the_byte_of_their_record() -> None:
    data = STEPS + '{"ж": 1}\n{"episode_id": "e", "t": 2, "action": "c", "reward": "x"}\n'.encode()
    problems = read_source("f", data).report.problems
    assert [(problem.record, problem.offset) for problem in problems] == [(3, 86), (4, 96)]
    assert data[86:].startswith('{"ж"'.encode())


def test_files_beyond_the_memory_kept_for_looking_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [(str(i), STEPS.replace(b'"e"', b'"e%d"' % i) + b"{broken\n" + b'{"a":') for i in range(4)]
    once = read_sources(files)
    monkeypatch.setattr(engine, "_KEPT_BYTES", 0)
    again = read_sources(files)
    assert again.steps.equals(once.steps)
    assert again.records.equals(once.records)
    assert (
        again.report.sentence()
        == once.report.sentence()
        == "Read 8 of 16 rows (8 lost): 8 steps in 4 episodes; 8 problems."
    )


def test_progress_of_several_files_rises_to_one() -> None:
    data = b"".join(b'{"episode_id": "e%d", "t": 0, "action": "a"}\n' % i for i in range(1000))
    fractions: list[float] = []
    files = [(name, data.replace(b"e", name.encode(), 1)) for name in "ab"] + [("c", gzip.compress(data))]
    read_sources(files, progress=fractions.append)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert len(fractions) > 4


ARCHIVE = zipped(("a.jsonl", STEPS), ("b.jsonl.gz", gzip.compress(CHAT)), ("c/d.json", json.dumps([1, 2]).encode()))
EDIT = st.tuples(
    st.integers(0, len(ARCHIVE) - 1), st.sampled_from(["drop", "set", "insert"]), st.binary(min_size=1, max_size=4)
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(EDIT, min_size=1, max_size=6),
    st.integers(0, len(ARCHIVE)),
    st.sampled_from([ARCHIVE, zstd(STEPS * 9), tarred(("a.jsonl", STEPS), ("b", CHAT))]),
)
def test_any_damage_is_read_around_or_refused(edits: list[tuple[int, str, bytes]], cut: int, data: bytes) -> None:
    damaged = bytearray(data)
    for at, what, piece in edits:
        damaged[at : at + (0 if what == "insert" else len(piece))] = b"" if what == "drop" else piece
    for content in (bytes(damaged), bytes(damaged[:cut])):
        try:
            imported = read_source("f", content)
        except TraceFormatError:
            continue
        assert imported.steps.num_rows == 3 or imported.report.problems  # nothing is missing without a word


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(list(IMPORTERS)),
    st.sampled_from(list(IMPORTERS)),
    st.integers(0, 2**16),
    st.sampled_from([zipped, tarred]),
    st.booleans(),
)
def test_two_formats_in_one_archive_are_counted_honestly(
    first: str, second: str, cut: int, pack: Any, lines: bool
) -> None:
    one, other = IMPORTERS[first].example, IMPORTERS[second].example
    other = other[: cut % (len(other) + 1)]
    members = [("a", one), ("b", other)]
    if lines:  # line by line in one file
        pairs = zip_longest(one.splitlines(keepends=True), other.splitlines(keepends=True), fillvalue=b"")
        members = [("a", b"".join(chain.from_iterable(pairs)))]
    try:
        imported = read_source("f", pack(*members))
    except TraceFormatError:
        return
    report = imported.report
    assert_accounts(report)
    assert report.n_steps == imported.steps.num_rows
    assert report.n_episodes == len(set(imported.steps["episode_id"].to_pylist()))
    assert sum(report.counts().values()) == len(report.problems)
