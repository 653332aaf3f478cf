"""Bytes to records: every layout that real files have, and what is kept of a damaged one."""

from __future__ import annotations

import json
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offrl_core import schema
from offrl_core.errors import TraceFormatError
from offrl_core.importers import records as records_module
from offrl_core.importers import windows
from offrl_core.importers.raw_text import FilePart, RawRecords
from offrl_core.importers.records import Record, parse_json, read_records
from offrl_core.importers.report import ImportReport
from offrl_core.schema import canonical_json

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
        LINES.encode("utf-32-be"),
        LINES.replace("\n", "\n\0\0\0").encode() + b"\0" * 100,
        LINES.encode("utf-8-sig").replace(b"\n", b"\n\xef\xbb\xbf"),
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
        "utf32be",
        "nul_around_lines",
        "bom_on_each_line",
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
    assert report.problems[-1].message.endswith("bytes were set aside")


def test_invalid_bytes_are_replaced_and_counted() -> None:
    found, report = read('{"a": "real \ufffd"}\n'.encode() + b'{"a": "\xe9"}\n{"a": "\xff"}')
    assert found[1].value == {"a": "\ufffd"}
    assert [(p.kind, p.lost) for p in report.problems] == [("invalid bytes", False)]
    assert "2 times" in report.problems[0].message


@pytest.mark.parametrize(
    "data",
    [
        LINES.encode(),
        LINES.encode("utf-8-sig").replace(b"\n", b"\r\n\r\n  "),
        json.dumps(ITEMS, ensure_ascii=False, indent=2).encode(),
        ("\n\n" + json.dumps(ITEMS, ensure_ascii=False)).encode(),
        "\n".join(json.dumps(item, indent=1, ensure_ascii=False) for item in ITEMS).encode(),
    ],
    ids=["lines", "bom_crlf", "pretty_array", "array", "pretty_values"],
)
def test_a_record_knows_where_it_begins(data: bytes) -> None:
    found, _ = read(data)
    for record in found:
        raw = record.raw.encode()
        assert record.offset is not None
        assert data[record.offset : record.offset + len(raw)] == raw


def test_values_are_read_whole_however_the_windows_cut_them(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [
        {"ключ": "🚗" * n, "n": 10**n, "deep": [[1.5e-7, None, True, "\\ud83d\\ude97 \\" + "x" * n]] * n}
        for n in range(12)
    ]
    values_of = {
        "array": json.dumps([*items, 12345, -0.5, True], ensure_ascii=False).encode(),
        "values": "\n".join(json.dumps(item, indent=1) for item in items).encode(),
    }
    whole = {layout: values(data) for layout, data in values_of.items()}
    assert whole["array"] == [*items, 12345, -0.5, True]
    for size in (16, 17, 31, 64):
        monkeypatch.setattr(windows, "_WINDOW", size)
        assert {layout: values(data) for layout, data in values_of.items()} == whole


def test_problems_know_the_byte_where_their_record_begins() -> None:
    lines = '{"ж": 1}\n{"a": \n{"b": 2}'
    assert read(lines)[1].problems[0].offset == len('{"ж": 1}\n'.encode())
    array = '[\n {"ж": 1},\n {"a": },\n {"b": 2}\n]'
    assert read(array)[1].problems[0].offset == array.encode().index(b'{"a"')


def test_problems_name_the_line_and_column_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = '[\n {"ж": 1},\n {"a": },\n {"b": 2}, {"ж": 3,,},\n{"c": \n'
    for size in (16, 64, 1000):
        monkeypatch.setattr(windows, "_WINDOW", size)
        reasons = [problem.message.partition("(")[2].partition(")")[0] for problem in read(broken)[1].problems]
        places = [reason.partition(" at ")[2] for reason in reasons]
        assert places == ["line 3, column 8", "line 4, column 20", "line 6, column 1"]


def test_json_behind_a_preamble_is_found_and_the_preamble_set_aside() -> None:
    found, report = read("warning: old version\n\n" + json.dumps(ITEMS, indent=1))
    assert [record.value for record in found] == ITEMS
    assert [(p.record, p.kind, p.lost, p.offset) for p in report.problems] == [(None, "text before JSON", True, 0)]
    react = 'Thought: look\nObservation:\n{"a": 1}\nThought: done\n'
    assert values(react) == [react]
    page = "<pre>[1] [BUTTON] [Mobile]\n[2] [BUTTON] [Help]\n[3] [IMG] [Logo]\n</pre>"  # what a web agent sees
    assert values(page) == [page]


@pytest.mark.parametrize(
    "inner", ['{"a": "\\ud83d \\" x"}', '\n[{"a": 1}, {"a": 2}]\n', '{"a": 1}\n{"a": 2}\n', "[[1]]"]
)
def test_a_file_that_is_one_string_of_json_is_read_as_what_it_says(inner: str) -> None:
    found, report = read(json.dumps(inner) + "\n")
    assert [record.value for record in found] == values(inner)
    assert [(problem.kind, problem.lost) for problem in report.problems] == [("encoded twice", False)]
    for other in ('"{}" 1', '"[x","y"\n"[1","2"', '"words"'):
        assert "encoded twice" not in read(other)[1].counts()


def test_a_broken_value_in_an_array_on_one_line_costs_that_value_only() -> None:
    items = [{"task": i, "inner": [{"x": i}, {"y": -1}], "text": "a, {"} for i in range(6)]
    whole = [json.dumps(item) for item in items]
    broken = [*whole[:2], whole[2].replace('"text": ', '"text" '), *whole[3:]]
    found, report = read("[" + ", ".join(broken) + "]")
    assert [record.value for record in found] == [item for item in items if item["task"] != 2]
    assert [(p.record, p.kind) for p in report.problems] == [(3, "not JSON")]
    assert report.n_records == 6


def test_raw_control_characters_in_strings_are_read_as_meant() -> None:
    for text in ('{"a": "x\ty\x00"}\n{"a": 2}', '[\n{"a": "x\ty\x00"},\n{"a": 2}]'):
        found, report = read(text)
        assert [record.value for record in found] == [{"a": "x\ty\0"}, {"a": 2}]
        assert [(p.record, p.kind, p.lost) for p in report.problems] == [(1, "control characters", False)]


def test_numbers_beyond_64_bit_are_kept() -> None:
    assert values('{"n": 123456789012345678901234567890, "x": 1e999}\n{}')[0] == {
        "n": 123456789012345678901234567890,
        "x": float("inf"),
    }


def test_a_document_nested_a_hundred_thousand_deep_is_refused_in_words() -> None:
    for n in (100_000, 3_000_000):
        with pytest.raises(TraceFormatError, match="nested too deep"):
            read('{"a": ' + "[" * n)


def test_a_long_line_is_read_without_more_copies_of_the_file() -> None:
    data = b'[{"text": "' + b"x" * 2**24 + b'"}, {"n": 2}]'
    tracemalloc.start()
    found, _ = read(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found[0].value["text"]) == 2**24
    assert found[1].value == {"n": 2}
    assert peak < 4.5 * 2**24  # the text and windows that grow up to it; not the file once per window
    short = b"\n".join(b'{"text": "%s"}' % (b"x" * 1000) for _ in range(2**14))
    for data in (short, b"[" + short.replace(b"\n", b",") + b"]"):
        tracemalloc.start()
        assert sum(1 for _ in read_records("file", data, ImportReport())) == 2**14
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**23  # half of the file: one record is held at a time


def test_other_text_is_one_record_and_a_table_is_a_record_per_row() -> None:
    text = "\ufeffThought 1: I should look.\nAction 1: Search[Paris]\n{not json\n"
    found, report = read(text)
    assert [(record.number, record.value, record.raw) for record in found] == [(1, text[1:], text[1:])]
    assert report.n_records == 1
    assert [record.value for record in read("a,b\n1,x\n2,y\n")[0]] == [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]


def test_arrow_files_and_streams_are_read_as_rows() -> None:
    table = pa.table({"a": [1, None], "messages": [[{"role": "user"}], []]})
    for new in (pa.ipc.new_file, pa.ipc.new_stream):
        sink = pa.BufferOutputStream()
        with new(sink, table.schema) as writer:
            writer.write_table(table)
        found, report = read(sink.getvalue().to_pybytes())
        assert [record.value for record in found] == table.to_pylist()
        assert report.n_records == 2


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "file is empty"),
        (b" \n\t\r\n", "file is empty"),
        (b"\xef\xbb\xbf", "file is empty"),
        (b"\0" * 5000, "file is empty"),
        (b"[]", "empty list"),
        (b'{"a": [1, 2', "begins like JSON, but no record can be read"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, "neither text in UTF-8"),
        (b"\x89HDF\r\n\x1a\n and no more", "HDF5, but damaged"),
        (b"PAR1 not really", "Parquet, but damaged"),
        (b"ARROW1 not really", "Arrow, but damaged"),
    ],
)
def test_a_file_without_records_is_refused_with_a_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(TraceFormatError, match=sentence) as caught:
        read(data)
    assert str(caught.value).startswith("file ")
    assert str(caught.value).endswith(".")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.text() | JSON_VALUES.map(json.dumps), st.text(" \n\t\r\ufeff,x1", max_size=2), st.text(" \n\r\x00]", max_size=2)
)
@example('{"a": 1, "a": 2}', "", "")
@example("-0", " ", "")
@example("1e999", "", "")
@example(r'"\ud83d"', "", "")
def test_texts_are_parsed_as_the_standard_library_does(text: str, before: str, after: str) -> None:
    text = before + text + after
    try:
        expected = repr(json.loads(text)), ""
    except json.JSONDecodeError as error:
        expected = repr(None), f"{error.msg} at line {error.lineno}, column {error.colno}"
    value, reason = parse_json(text)
    assert (repr(value), reason) == expected


@given(JSON_VALUES | st.dictionaries(st.integers() | st.text(), JSON_VALUES | st.dates(), max_size=3))
@example("\ud83d")
def test_canonical_text_is_what_the_standard_library_writes(value: object) -> None:
    options = {"ensure_ascii": False, "separators": (",", ":"), "default": str}
    try:
        expected = json.dumps(value, sort_keys=True, **options)  # type: ignore[arg-type]
    except TypeError:  # keys that have no order
        with pytest.raises(TypeError):
            canonical_json(value)
        return
    assert canonical_json(value) == expected


def test_canonical_text_needs_no_encoder_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    assert schema._reused(schema._ENCODER)({"ж": [1.0, None], "a": "\n"}) == r'{"a":"\n","ж":[1.0,null]}'


def test_raw_texts_are_found_whether_they_are_kept_as_text_or_as_places_in_the_file() -> None:
    data = '{"ж": 1}\n[2]'.encode()
    places = {1: FilePart(data, 0, 9), 2: FilePart(data, 10, 13)}
    for texts in (
        places,
        {1: places[1], 2: "[2]"},
        {1: '{"ж": 1}', 2: "[2]"},
        {1: places[1], 2: FilePart(b"[2]", 0, 3)},
    ):
        records = RawRecords()
        records.add_texts({("f", number): text for number, text in texts.items()} | {("g", 2): "other"})
        assert [records.find("f", number) for number in (1, 2, 3)] == ['{"ж": 1}', "[2]", None]
        assert records.table().to_pylist() == [
            {"source_file": "f", "record": 1, "raw": '{"ж": 1}'},
            {"source_file": "f", "record": 2, "raw": "[2]"},
            {"source_file": "g", "record": 2, "raw": "other"},
        ]


@pytest.mark.parametrize("text", ['{"a": "b', '{"a" 1}', '{"a": }', "[1 2]", "{'a': 1}", '{"a": "\\x"}'])
def test_why_a_text_is_no_json_is_told_in_one_at(text: str) -> None:
    value, reason = parse_json(text)
    assert value is None
    assert " at line 1, column " in reason
    assert "at at" not in reason
