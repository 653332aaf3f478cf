"""The disposable child of :mod:`offrl_core.query`: checks one SELECT, runs it, writes the answer and ends.

DuckDB's settings alone don't stop everything: one scalar call such as ``repeat('x', 4000000000)`` checks neither
its memory limit nor its time limit. So the settings are the inner wall, the limits of the operating system the
middle one, and the parent's kill the outer one. Even the parsing happens in here: unclosed parentheses cost DuckDB's
parser cubic time, which nothing but a kill ends.

This file runs as a script with ``python -I``, so it imports the standard library and DuckDB only. It reads a
request (JSON) from stdin, and writes lines to stdout: ``ready``, a header (JSON) and one JSON array per row.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from decimal import Decimal
from typing import Any

if __name__ == "__main__":
    sys.path.append(sys.argv[1])  # where the parent found DuckDB: -I hides packages in a user's own folder

import duckdb

Request = dict[str, Any]  # the fields of QueryLimits, with the path "database" and the text "sql"

READY = b"ready\n"
MAX_COLUMNS = 500  # each costs the parent a tenth of a millisecond
MAX_NAME = 200  # characters: a column without AS is named by its whole expression
KINDS = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), "integer"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), "integer"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "number"),
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "time"),
    "TIMESTAMP WITH TIME ZONE": "time",
    "BOOLEAN": "boolean",
}


class Refused(Exception):
    """The SQL is not one plain SELECT."""


class Stopped(Exception):
    """The SQL was run and didn't come to its end."""


def main() -> None:
    """Answer the one request that waits on stdin."""
    request = json.loads(sys.stdin.buffer.read())
    limit_this_process(request)
    tell(READY)
    lines: list[bytes] = []
    try:
        header, lines = answer(open_database(request), request)
    except Refused as error:
        header = {"refused": str(error)}
    except (Stopped, MemoryError) as error:
        header = {"stopped": str(error) or memory_sentence(request)}
    tell(json.dumps(header).encode() + b"\n", *lines)


def tell(*lines: bytes) -> None:
    """Write lines to the parent at once."""
    sys.stdout.buffer.writelines(lines)
    sys.stdout.buffer.flush()


def limit_this_process(request: Request) -> None:
    """Lower the limits of the operating system, where it has them: not on Windows, weakly on macOS."""
    try:
        import resource
    except ImportError:
        return
    wanted = {
        resource.RLIMIT_AS: request["memory_mb"] * 2**20,
        resource.RLIMIT_FSIZE: 0,  # a pipe still takes what is written, a file takes nothing
        resource.RLIMIT_NOFILE: 32,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: math.ceil(request["seconds"]) + 2,  # starting Python and DuckDB needs some, too
    }
    for limit, value in wanted.items():
        hard = resource.getrlimit(limit)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (value, value))


def open_database(request: Request) -> duckdb.DuckDBPyConnection:
    """Open the file for reading, with every door shut and the key thrown away."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": False,
        "allow_community_extensions": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_persistent_secrets": False,
        "python_enable_replacements": False,
        "threads": 1,
        "memory_limit": f"{request['database_memory_mb']}MB",
        "max_temp_directory_size": "0MB",  # no spilling: the default may fill nine tenths of the disk
        "max_execution_time": int(request["seconds"] * 1000),
        "lock_configuration": True,
    }
    try:
        return duckdb.connect(request["database"], read_only=True, config=settings)
    except duckdb.Error as error:
        raise Stopped(f"The tables of the log can't be opened: {first_words(error)}") from error


def answer(connection: duckdb.DuckDBPyConnection, request: Request) -> tuple[dict[str, Any], list[bytes]]:
    """Run the SQL of the request; returns the header and the rows as lines."""
    try:
        connection.execute(the_select(connection, request["sql"]))  # what was checked runs, not the text again
        columns = [(name[:MAX_NAME], str(kind).split("(")[0]) for name, kind, *_ in connection.description or ()]
        if len(columns) > MAX_COLUMNS:
            raise Stopped(f"The result has {len(columns):,} columns; at most {MAX_COLUMNS} are shown. Select fewer.")
        lines, cut = fetch(connection, rows=request["rows"], size=request["result_bytes"])
    except duckdb.InterruptException as error:
        raise Stopped(time_sentence(request)) from error
    except duckdb.OutOfMemoryException as error:
        raise Stopped(memory_sentence(request)) from error
    except duckdb.Error as error:
        raise Stopped(f"The database could not run the query: {first_words(error)}") from error
    header = {
        "names": [name for name, _ in columns],
        "kinds": [KINDS.get(kind, "text") for _, kind in columns],
        "n_rows": len(lines),
        "cut": cut,
    }
    return header, lines


def the_select(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The one SELECT that the text consists of.

    The type is all that is asked. EXPLAIN is refused, as ``EXPLAIN ANALYZE COPY ...`` would run the COPY; a CTE that
    inserts has the type SELECT, but meets a database opened for reading.

    Raises:
        Refused: the text doesn't parse, or is nothing, several statements, or not a SELECT.
    """
    try:
        statements = connection.extract_statements(sql)
    except duckdb.ParserException as error:
        raise Refused(f"The SQL doesn't parse: {first_words(error)}") from error
    if not statements:
        raise Refused("There is no SQL to run. Write one SELECT.")
    if len(statements) > 1:
        raise Refused(f"These are {len(statements)} statements. Write one SELECT, with no semicolon inside.")
    kind = kind_of(statements[0])
    if kind == "MULTI":
        raise Refused("PIVOT needs to know its columns beforehand: add IN (...) with the values.")
    if kind != "SELECT":
        raise Refused(f"This is {kind.replace('_', ' ')}, and only SELECT is run here. Write one SELECT.")
    if statements[0].named_parameters:
        raise Refused("Parameters (? or $1) have no value here. Write the values themselves.")
    return statements[0]


def kind_of(statement: duckdb.Statement) -> str:
    """The name of the statement's type; DuckDB 2.0 has types that its Python enumeration lacks."""
    try:
        return statement.type.name
    except ValueError:
        return "no SELECT"


def fetch(connection: duckdb.DuckDBPyConnection, *, rows: int, size: int) -> tuple[list[bytes], str | None]:
    """Fetch row by row, so that no more is ever held than is shown.

    Returns:
        Rows as lines of JSON, and what cut them: "rows", "bytes" or None.
    """
    lines: list[bytes] = []
    for row in iter(connection.fetchone, None):
        if len(lines) == rows:
            return lines, "rows"
        line = json.dumps([plain(value) for value in row], ensure_ascii=False).encode() + b"\n"
        size -= len(line)
        if size < 0:
            return lines, "bytes"
        lines.append(line)
    return lines, None


def plain(value: Any) -> Any:
    """A value as JSON has it; lists, structs and whatever else there is become text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple | dict):
        with contextlib.suppress(TypeError, ValueError):  # a map may have keys that JSON hasn't
            return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)  # of dates and times this is ISO 8601


# It proposes tables of its own, which nobody here has heard of.
_OF_THE_DATABASE = re.compile(r'Did you mean "(pg_|duckdb_|sqlite_|information_schema)[^"]*"\?')


def first_words(error: Exception) -> str:
    """The message of the database, without the copy of the query and the lists that follow it."""
    told, _, _ = str(error).partition("\n\nLINE ")
    return " ".join(_OF_THE_DATABASE.sub("", told).split())[:400]


def time_sentence(request: Request) -> str:
    """What to tell when the time is up; the parent says the same when it had to kill."""
    return f"The query was stopped after {request['seconds']:g} s, its time limit. Filter or aggregate earlier."


def memory_sentence(request: Request) -> str:
    """What to tell when the memory is used up; the parent says the same when the child died of it."""
    return (
        "The query was stopped: it needs more memory than it may use "
        f"({request['database_memory_mb']} MB to sort, group and join). "
        "Select fewer columns, shorter texts or fewer rows."
    )


if __name__ == "__main__":
    main()
