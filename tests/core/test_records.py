"""Bytes to records: every layout that real files have, and what is kept of a damaged one."""

from __future__ import annotations

import gzip
import json

import pytest

from offrl_core.errors import TraceFormatError
from offrl_core.importers import records as records_module
from offrl_core.importers.records import Record, read_records
from offrl_core.importers.report import ImportReport

ITEMS = [{"a": 1, "text": "Привет 🚗"}, {"a": 2}, {"a": 3}]
LINES = "\n".join(json.dumps(item, ensure_ascii=False) for item in ITEMS)


def read(data: bytes | str) -> tuple[list[Record], ImportReport]:
    report = ImportReport()
    data = data.encode() if isinstance(data, str) else data
    return list(read_records("file", data, report)), report


def values(data: bytes | str) -> list[object]:
    return [record.value for record in read(data)[0]]


@pytest.mark.parametrize(
    "data",
    [
        LINES.encode(),
        LINES.replace("\n", "\r\n\r\n").encode(),
        json.dumps(ITEMS).encode(),
        json.dumps(ITEMS, indent=2).encode(),
        "\n".join(json.dumps(item, indent=1) for item in ITEMS).encode(),
        "".join(json.dumps(item) for item in ITEMS).encode(),
        ("[\n" + ",\n".join(json.dumps(item) for item in ITEMS) + ",\n]").encode(),
        b"\xef\xbb\xbf" + LINES.encode(),
        LINES.encode("utf-16"),
        LINES.encode("utf-16-le"),
        LINES.encode("utf-32"),
        gzip.compress(LINES.encode(), mtime=0),
        gzip.compress(LINES.encode("utf-16"), mtime=0),
    ],
    ids=[
        "lines",
        "crlf",
        "array",
        "pretty_array",
        "pretty_values",
        "one_line",
        "trailing_comma",
        "bom",
        "utf16",
        "utf16le",
        "utf32",
        "gzip",
        "gzip_utf16",
    ],
)
def test_layouts_give_the_same_records(data: bytes) -> None:
    found, report = read(data)
    assert [record.value for record in found] == ITEMS
    assert [json.loads(record.raw) for record in found] == ITEMS
    assert (report.n_records, report.problems) == (3, [])


def test_one_object_is_one_record_and_a_list_per_line_is_a_record_each() -> None:
    assert values('{"a":\n1}') == [{"a": 1}]
    assert values("[1]\n[2]") == [[1], [2]]
    assert values(json.dumps([{"a": 1}], indent=1) + "\n" + json.dumps([{"a": 2}], indent=1)) == [
        [{"a": 1}],
        [{"a": 2}],
    ]


def test_a_bad_line_costs_that_line_and_is_named_by_its_number() -> None:
    found, report = read('{"a": 1}\n\n{"a": \n{"a": NaN}\n' + "[" * 100_000 + '\n{"n": ' + "9" * 5000 + "}")
    assert [record.number for record in found] == [1, 4]
    assert [(p.record, p.kind, p.lost) for p in report.problems] == [(n, "not JSON", True) for n in (3, 5, 6)]
    assert "nested too deep" in report.problems[1].message
    assert "thousand digits" in report.problems[2].message
    assert report.problems[0].excerpt == '{"a":'
    assert report.n_records == 5


def test_line_separators_inside_strings_do_not_end_a_line() -> None:
    assert values('{"a": "x\u2028y\x85z"}\n{"a": 2}') == [{"a": "x\u2028y\x85z"}, {"a": 2}]


def test_a_cut_array_keeps_the_items_before_the_cut() -> None:
    text = json.dumps(ITEMS, indent=1)
    found, report = read(text[: text.index('"a": 3')])
    assert [record.value for record in found] == ITEMS[:2]
    assert [(p.record, p.lost) for p in report.problems] == [(3, True)]
    found, report = read(text.rstrip("]"))
    assert [record.value for record in found] == ITEMS
    assert [(p.kind, p.lost) for p in report.problems] == [("array not closed", False)]


def test_a_broken_item_costs_that_item() -> None:
    text = '[\n {"a": 1},\n {"a": [{"b": 1},\n   {"b": }]\n },\n {"a": 3}\n]'
    found, report = read(text)
    assert [record.value for record in found] == [{"a": 1}, {"a": 3}]
    assert [record.number for record in found] == [1, 3]
    assert report.n_lost == 1


def test_a_search_for_values_gives_up_on_a_hopeless_file() -> None:
    _, report = read('{"a":\n1}\n' + "[\n" * 200_000)
    assert report.n_records == 1 + records_module._MOST_BROKEN_VALUES
    assert report.problems[-1].message.endswith("characters were set aside")


def test_invalid_bytes_are_replaced_and_counted() -> None:
    found, report = read('{"a": "real \ufffd"}\n'.encode() + b'{"a": "\xe9"}\n{"a": "\xff"}')
    assert found[1].value == {"a": "\ufffd"}
    assert [(p.kind, p.lost) for p in report.problems] == [("invalid bytes", False)]
    assert "2 times" in report.problems[0].message


def test_a_cut_gzip_keeps_what_could_be_expanded() -> None:
    lines = b"".join(json.dumps({"a": i, "noise": str(hash(str(i)))}).encode() + b"\n" for i in range(5000))
    found, report = read(gzip.compress(lines)[:-2000])
    assert found[0].value["a"] == 0
    assert report.problems[0].kind == "damaged gzip"


def test_gzip_has_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "MAX_EXPANDED_BYTES", 2**20)
    with pytest.raises(TraceFormatError, match="expands to more than 1 MiB"):
        read(gzip.compress(b" " * 2**22))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "file is empty"),
        (b" \n\t\r\n", "file is empty"),
        (b"\xef\xbb\xbf", "file is empty"),
        (b"[]", "empty list"),
        (b"hello world\nsecond line", "holds no JSON: it begins with 'hello world"),
        (b"a;b\n1;2\n", "CSV"),
        (b"42", "holds no JSON"),
        (b'{"a": [1, 2', "begins like JSON, but no record can be read"),
        (b"\x80\x04\x95", "pickle"),
        (b"PK\x03\x04...", "zip"),
        (b"\x89HDF\r\n", "HDF5"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        (b"\x1f\x8bnot really", "gzip"),
        (gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), "gzip inside gzip"),
        (gzip.compress(b"\x80\x04\x95", mtime=0), "pickle"),
        (b"PAR1 not really", "Parquet, but damaged"),
    ],
)
def test_a_file_without_records_is_refused_with_a_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(TraceFormatError, match=sentence) as caught:
        read(data)
    assert str(caught.value).startswith("file ")
    assert str(caught.value).endswith(".")
