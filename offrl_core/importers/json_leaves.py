"""Fields of many JSON objects at once, as columns of JSON text, by two queries and without an object per record.

No types are ever inferred. DuckDB reads a little more than JSON allows and writes some numbers otherwise than Python, so
what it can't be trusted with is marked and left to Python: records that are broken, hold a field twice, end a list with
a comma or nest absurdly deep, and texts with such numbers.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Path = tuple[str, ...]  # keys from the outside in, one or two
BoolArray = NDArray[np.bool_]

_MANY_SHAPES = 100  # in one chunk; records of a rarer shape than these are left to Python
_ORDINARY_KEY = re.compile(r'[^"\\\x00-\x1f]{1,200}')
_LONGEST_LINE = 2**23
_IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # for files that live for one query
_LONG_LINE = 10_000  # bytes; a shorter one can't be nested so deep that it does harm
_MANY_BRACKETS = 2000

# Numbers that Python writes otherwise than DuckDB (exponents, tiny and long ones), and names for NaN that it refuses.
# Three patterns, as each begins with one character, which is found ten times as fast as a choice of three.
_ODD_NUMBER = r"-?(?:[\d.]+[eE]|0\.0000|\d{16}|[iInN][nNaA])"
_TRAILING_COMMA = r",\s*[\]}]"


def connection() -> duckdb.DuckDBPyConnection:
    """A database of its own that works in the thread that asks."""
    return duckdb.connect(config={"threads": "1", "autoinstall_known_extensions": "false"})


@dataclass(slots=True)
class Leaves:
    """Values of N records by path, as JSON text; NULL stands for ``null`` and for a field that isn't there.

    Attributes:
        columns: (N,) each; paths that no record has are left out.
        presence: (N,) each: which records have the field, be it ``null``.
        n: N.
    """

    n: int
    columns: dict[Path, pa.StringArray] = field(default_factory=dict)
    presence: dict[Path, BoolArray] = field(default_factory=dict)

    def __getitem__(self, path: Path) -> pa.StringArray:
        """The column of a path."""
        return self.columns[path] if path in self.columns else pa.nulls(self.n, pa.string())

    def has(self, path: Path) -> BoolArray:
        """(N,) which records have the field."""
        return self.presence[path] if path in self.presence else np.zeros(self.n, dtype=bool)

    def is_object(self, path: Path) -> BoolArray:
        """(N,) in which records the field holds an object."""
        return first_bytes(self[path]) == ord("{")


Shapes = dict[int, frozenset[Path] | None]  # by hash: the fields of records, None where Python has to read them


def read_leaves(
    cursor: duckdb.DuckDBPyConnection, lines: pa.Array, opened: Sequence[str], shapes: Shapes
) -> tuple[Leaves, BoolArray]:
    """All fields of objects, and the fields inside some of them.

    Args:
        cursor: where to compute.
        lines: (N,) text of one record each, all with their line breaks (the last one may do without).
        opened: fields whose own fields are wanted, too.
        shapes: those met before; new ones are added.

    Returns:
        Leaves of the M records that can be read so, and which of the N they are.
    """
    hashes = _hashes(cursor, lines, opened)
    distinct, first, codes = np.unique(hashes, return_index=True, return_inverse=True)
    _learn(distinct.tolist(), [lines[i].as_py() for i in first.tolist()], opened, shapes)
    frequent = Counter(dict(zip(distinct.tolist(), np.bincount(codes).tolist(), strict=True)))
    allowed = _compatible([key for key, _ in frequent.most_common(_MANY_SHAPES)], shapes)
    is_read = np.isin(distinct, list(allowed))[codes] if allowed else np.zeros(len(lines), dtype=bool)
    is_read &= lengths(lines) < _LONGEST_LINE
    is_read &= ~_is_deep(lines)
    if not is_read.any():
        return Leaves(0), is_read
    lines = lines if is_read.all() else lines.filter(pa.array(is_read))
    found = [shapes[key] or frozenset() if key in allowed else frozenset() for key in distinct.tolist()]
    paths = sorted(frozenset().union(*found))
    leaves = Leaves(len(lines), _columns(cursor, lines, paths, opened))
    for path in paths:
        leaves.presence[path] = np.array([path in shape for shape in found])[codes[is_read]]
    return leaves, is_read


def table_leaves(cursor: duckdb.DuckDBPyConnection, table: pa.Table) -> Leaves:
    """The columns of a table as the fields of one record per row; NULL is ``null`` there."""
    cells = ", ".join(f"to_json({_name(name)})::VARCHAR" for name in table.column_names)
    texts = query(cursor, table, f"SELECT {cells} FROM given")
    paths: list[Path] = [(name,) for name in table.column_names]
    columns = {path: whole(texts.column(i)) for i, path in enumerate(paths)}
    return Leaves(table.num_rows, columns, dict.fromkeys(paths, np.ones(table.num_rows, dtype=bool)))


def _hashes(cursor: duckdb.DuckDBPyConnection, lines: pa.Array, opened: Sequence[str]) -> NDArray[np.uint64]:
    """(N,) hash of the keys that a record and its opened fields hold; 0 where Python has to look."""
    paths = ", ".join(["'$'", *(f"'/{name}'" for name in opened)])
    keys = f"hash(json_keys(line, [{paths}]))"
    sql = "SELECT CASE WHEN regexp_matches(line, '{comma}') THEN 0 ELSE coalesce({keys}, 0) END AS h FROM given"
    given = pa.table({"line": lines})
    try:
        table = query(cursor, given, sql.format(comma=_TRAILING_COMMA, keys=keys))
    except duckdb.Error:  # some line is broken: slower, but it costs that line only
        table = query(cursor, given, sql.format(comma=_TRAILING_COMMA, keys=f"TRY({keys})"))
    return np.asarray(table.column(0).to_numpy())


def _learn(hashes: Sequence[int], texts: Sequence[str], opened: Sequence[str], shapes: Shapes) -> None:
    shapes.setdefault(0, None)
    for key, text in zip(hashes, texts, strict=True):
        if key not in shapes:
            shapes[key] = _shape(text, opened)


def _shape(text: str, opened: Sequence[str]) -> frozenset[Path] | None:
    """Paths of the fields of a record; None where one is there twice, has an odd name, or it is no object."""
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, _Pairs):
        return None
    paths: list[Path] = [(key,) for key, _ in pairs]
    paths += [(key, inner) for key, value in pairs if key in opened and isinstance(value, _Pairs) for inner, _ in value]
    is_fine = len(set(paths)) == len(paths) and all(_ORDINARY_KEY.fullmatch(key) for path in paths for key in path)
    return frozenset(paths) if is_fine and paths else None


class _Pairs(list[Any]):
    """An object as pairs, with fields that are there twice."""


def _compatible(keys: Iterable[int], shapes: Shapes) -> set[int]:
    """Hashes whose shapes can be read in one query: for names of columns, SQL takes "T" and "t" to be the same."""
    spelt: dict[Path, Path] = {}
    chosen = set()
    for key in keys:
        shape = shapes[key]
        folded = {tuple(name.casefold() for name in path): path for path in shape or ()}
        if shape and len(folded) == len(shape) and all(spelt.get(low, path) == path for low, path in folded.items()):
            spelt |= folded
            chosen.add(key)
    return chosen


def _is_deep(lines: pa.Array) -> BoolArray:
    deep = np.zeros(len(lines), dtype=bool)
    for i in np.flatnonzero(lengths(lines) > _LONG_LINE).tolist():
        text = lines[i].as_py()
        deep[i] = text.count("[") + text.count("{") > _MANY_BRACKETS
    return deep


def _columns(
    cursor: duckdb.DuckDBPyConnection, lines: pa.Array, paths: Sequence[Path], opened: Sequence[str]
) -> dict[Path, pa.StringArray]:
    """The columns of paths. A file is read twice as fast as a column of text, so the lines go to one."""
    outer = [path[0] for path in paths if len(path) == 1]
    inner = {name: [path for path in paths if len(path) == 2 and path[0] == name] for name in opened}
    inner = {name: group for name, group in inner.items() if group}
    cells = [_name(key) for key in outer]
    names: list[Path] = [(key,) for key in outer]
    structs = []
    for i, (name, group) in enumerate(inner.items()):
        outside, wanted = _name(name), _literal(json.dumps({path[1]: "JSON" for path in group}, ensure_ascii=False))
        is_object = f"starts_with({outside}::VARCHAR, '{{')"
        structs.append(f"CASE WHEN {is_object} THEN from_json({outside}, {wanted}) END AS inner_{i}")
        cells += [f"inner_{i}.{_name(path[1])}" for path in group]
        names += group
    columns = ", ".join(f"{_literal(key)}: 'JSON'" for key in outer)
    with tempfile.NamedTemporaryFile(suffix=".jsonl", dir=_IN_MEMORY) as file:
        _write_lines(lines, file)
        source = (
            f"read_json({_literal(file.name)}, format='newline_delimited', columns={{{columns}}}, compression='none')"
        )
        sql = f"SELECT {', '.join(cells)} FROM (SELECT {', '.join(['*', *structs])} FROM {source})"
        table = cursor.sql(sql).to_arrow_table()
    assert table.num_rows == len(lines)
    return {path: whole(table.column(i)) for i, path in enumerate(names)}


def _write_lines(lines: pa.Array, file: Any) -> None:
    _, offsets, data = lines.buffers()
    offsets = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    file.write(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
    file.write(b"\n")
    file.flush()


def members(cursor: duckdb.DuckDBPyConnection, column: pa.StringArray, names: Sequence[str]) -> list[pa.StringArray]:
    """Fields of objects by ordinary names, as JSON text; NULL where an object doesn't have one (``null`` is a text)."""
    if column.null_count == len(column):
        return [column] * len(names)
    pointers = ", ".join(_literal(f"/{name}") for name in names)
    found = f"CASE WHEN starts_with(v, '{{') THEN json_extract(v, [{pointers}]) END"
    cells = ", ".join(f"found[{i}]::VARCHAR" for i in range(1, len(names) + 1))
    table = query(cursor, pa.table({"v": column}), f"SELECT {cells} FROM (SELECT {found} AS found FROM given)")
    return [whole(table.column(i)) for i in range(len(names))]


# -- canonical text ------------------------------------------------------------------------------------------


def canonical(cursor: duckdb.DuckDBPyConnection, column: pa.StringArray) -> pa.StringArray:
    """Canonical JSON text of values; NULL where Python would write it otherwise, or may."""
    return _canonical(cursor, column, "CASE WHEN v[1] IN ('{', '[') THEN json_normalize(v) ELSE v END")


def canonical_meant(cursor: duckdb.DuckDBPyConnection, column: pa.StringArray) -> pa.StringArray:
    """Canonical JSON text of what texts (as JSON) say: JSON in a text is what counts, other text stays a text."""
    try_it = "CASE WHEN NOT regexp_matches(inner_text, '{comma}') THEN TRY(json_normalize(inner_text)) END"
    return _canonical(
        cursor,
        column,
        f"""CASE WHEN inner_text[1] IN ('{{', '[') THEN {try_it.format(comma=_TRAILING_COMMA)}
            WHEN regexp_matches(inner_text[1], '[[:alpha:]]') AND NOT json_valid(inner_text) THEN v END""",
        "(SELECT v, v->>'$' AS inner_text FROM given)",
    )


def hashes_of(cursor: duckdb.DuckDBPyConnection, column: pa.Array) -> pa.StringArray:
    """``schema.short_hash`` of each text."""
    table = query(cursor, pa.table({"v": column}), "SELECT left(sha256(v), 16) FROM given")
    return whole(table.column(0))


def _canonical(
    cursor: duckdb.DuckDBPyConnection, column: pa.Array, expression: str, source: str = "given"
) -> pa.StringArray:
    # Quote marks: a text may hold what looks like an odd number; it is then looked at by Python, to the same end.
    tests = [f"regexp_matches(text, '{sign}{_ODD_NUMBER}')" for sign in (":", ",", r"\[", "^")]
    sql = f"""SELECT CASE WHEN NOT (contains(text, '\\u00') OR {" OR ".join(tests)}) THEN text END
              FROM (SELECT {expression} AS text FROM {source})"""
    return whole(query(cursor, pa.table({"v": column}), sql).column(0))


# -- Arrow ---------------------------------------------------------------------------------------------------


def query(cursor: duckdb.DuckDBPyConnection, given: pa.Table, sql: str) -> pa.Table:
    """Run a query over a table called ``given``."""
    cursor.register("given", given)
    try:
        return cursor.sql(sql).to_arrow_table()
    finally:
        cursor.unregister("given")


def whole(column: pa.ChunkedArray) -> pa.StringArray:
    """A column of text in one piece."""
    combined = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return combined if combined.type == pa.string() else combined.cast(pa.string())


def lengths(column: pa.Array) -> NDArray[np.int64]:
    """(N,) bytes of each text; 0 for NULL."""
    return np.asarray(pc.binary_length(column).fill_null(0), dtype=np.int64)


def first_bytes(column: pa.Array) -> NDArray[np.uint8]:
    """(N,) the first byte of each text; 0 for NULL and for an empty one."""
    found = np.zeros(len(column), dtype=np.uint8)
    if column.null_count == len(column):
        return found
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column)]
    there = lengths(column) > 0
    found[there] = np.frombuffer(data, np.uint8)[starts[there]]
    return found


def _name(key: str) -> str:
    return '"' + key.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
