"""Run one SELECT of a visitor over the tables of a log, in a process that may come to harm.

The tables are written once into a file named by their content; each query then gets a child process of its own
(:mod:`offrl_core.query_child`) that opens the file for reading, answers on stdout, and is killed when its time is up.
Nothing of the server is within the query's reach, and nothing of the query stays behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from . import query_child
from .errors import QueryRefused, QueryStopped
from .temporary import no_room

MAX_SQL_CHARACTERS = 100_000
MAX_CHILDREN = 4  # at once, whoever asks: each may use limits.memory_mb
QUEUE_SECONDS = 30.0
START_SECONDS = 20.0  # a busy machine may take long to start a child; that isn't the query's time
GRACE_SECONDS = 0.5  # DuckDB ends most queries by itself and says so more kindly than a kill

_PACKAGES = Path(duckdb.__file__).resolve().parent.parent
_KEPT_ENVIRONMENT = ("SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # what Python may need to start at all
_places = threading.BoundedSemaphore(MAX_CHILDREN)
_writing = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """What one query may use.

    Attributes:
        seconds: of running; the child is killed half a second later.
        memory_mb: address space of the child, Python and DuckDB themselves included (some 350 MB).
        database_memory_mb: what DuckDB may use for sorting, grouping and joining.
        rows: most rows that come back.
        result_bytes: most bytes that come back, as JSON.
    """

    seconds: float = 5.0
    memory_mb: int = 1000
    database_memory_mb: int = 256
    rows: int = 1000
    result_bytes: int = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Rows of a query.

    Attributes:
        frame: the rows; whole numbers are Int64 (text beyond 64 bits), times datetime64, lists and structs JSON text;
            in a column of floats NULL and NaN look alike.
        n_rows_shown: rows of ``frame``.
        truncated: a sentence when there are more rows than these, else None.
        seconds: from the child being ready to the last byte.
    """

    frame: pd.DataFrame
    n_rows_shown: int
    truncated: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class ExampleQuery:
    """A query to start from, and how to draw its result: None, or ("bar", column along, column up)."""

    title: str
    sql: str
    chart: tuple[str, str, str] | None


def write_query_database(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, str], path: Path) -> Path:
    """Write tables and views of a connection as tables of a new DuckDB file, unless the file is there already.

    Args:
        connection: of the caller's own, say a cursor; its temporary views are seen.
        tables: name in the file -> table or view of the connection.
        path: named by the content, because DuckDB keeps serving an old file when a path gets new content.

    Raises:
        NotPossible: the disk is full, or can't be written; nothing is left behind.
        duckdb.Error: a table doesn't exist.
    """
    name = f"writing_{uuid.uuid4().hex}"
    unfinished = path.with_name(f"{name}.duckdb")
    file = _quoted(str(unfinished), "'")
    with _writing:  # the second of two threads finds the file that the first one wrote
        if path.exists():
            return path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection.execute(f"ATTACH {file} AS {name}")
            try:
                for table, source in tables.items():
                    target, source = _quoted(table, '"'), _quoted(source, '"')
                    connection.execute(f"CREATE TABLE {name}.main.{target} AS FROM {source}")
            finally:
                connection.execute(f"DETACH {name}")
            os.replace(unfinished, path)
        except (OSError, duckdb.IOException) as error:
            raise no_room(error) from error
        finally:
            with contextlib.suppress(OSError):  # where nothing can be written, there is nothing to remove
                unfinished.unlink(missing_ok=True)
    return path


def run_query(database: Path, sql: str, limits: QueryLimits = QueryLimits()) -> QueryResult:
    """Run one SELECT and return its first rows.

    Args:
        database: file of :func:`write_query_database`.
        sql: text of a visitor; DESCRIBE, SUMMARIZE, VALUES and FROM-first count as SELECT.
        limits: time, memory and size.

    Raises:
        QueryRefused: the text is not one SELECT; it was not run.
        QueryStopped: it was run, and met a limit or an error; the sentence says which.
    """
    _check_text(sql)
    request = {"database": str(database), "sql": sql, **asdict(limits)}
    if not _places.acquire(timeout=QUEUE_SECONDS):
        raise QueryStopped("Too many queries are running at the moment. Try again in a little while.")
    try:
        output, seconds = _ask_child(request, limits)
    except OSError as error:
        raise QueryStopped(f"The query could not be started: {error.strerror}. Try again in a little while.") from error
    finally:
        _places.release()
    return _read_answer(output, seconds, request)


def _check_text(sql: str) -> None:
    if len(sql) > MAX_SQL_CHARACTERS:
        raise QueryRefused(f"The SQL has {len(sql):,} characters; at most {MAX_SQL_CHARACTERS:,} are read.")
    if "\0" in sql or any("\ud800" <= character <= "\udfff" for character in sql):
        raise QueryRefused("The SQL contains a character that is no text (NUL or half a surrogate pair). Remove it.")


def _ask_child(request: dict[str, Any], limits: QueryLimits) -> tuple[bytes, float]:
    """What a new child writes until it ends or is killed, and the seconds that it ran."""
    with subprocess.Popen(
        [sys.executable, "-I", "-B", query_child.__file__, str(_PACKAGES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ} | {"HOME": os.devnull},
        start_new_session=True,  # a group of its own, to be killed whole
    ) as child:
        assert child.stdin  # for the type checker: both are pipes
        assert child.stdout
        started = time.monotonic()
        alarm = _kill_after(START_SECONDS, child)
        try:
            with contextlib.suppress(BrokenPipeError), child.stdin as pipe:  # a child that dies early is noticed below
                pipe.write(json.dumps(request).encode())
            if child.stdout.readline(len(query_child.READY)) != query_child.READY:
                raise QueryStopped("The process for the query did not start. Try again in a little while.")
            alarm.cancel()
            started, alarm = time.monotonic(), _kill_after(limits.seconds + GRACE_SECONDS, child)
            output = child.stdout.read(limits.result_bytes + 1_000_000)  # the header is short of a megabyte
        finally:
            alarm.cancel()
            alarm.join()  # else it might kill a number that already belongs to another process
            _kill(child)
    return output, time.monotonic() - started


def _kill_after(seconds: float, child: subprocess.Popen[bytes]) -> threading.Timer:
    alarm = threading.Timer(seconds, _kill, [child])
    alarm.daemon = True
    alarm.start()
    return alarm


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    if sys.platform == "win32":
        child.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _read_answer(output: bytes, seconds: float, request: dict[str, Any]) -> QueryResult:
    """Make a frame of what the child wrote; it is not trusted to be well-formed."""
    try:
        header, *rows = (json.loads(line) for line in output.split(b"\n")[:-1])
        if "refused" in header:
            raise QueryRefused(header["refused"])
        if "stopped" in header:
            raise QueryStopped(header["stopped"])
        if len(rows) != header["n_rows"]:
            raise ValueError("the child was stopped while it wrote")
        names, kinds, cut = _distinct(header["names"]), header["kinds"], header["cut"]
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        named = zip(names, columns, kinds, strict=True)
        frame = pd.DataFrame({name: _column(cells, kind) for name, cells, kind in named})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        late = seconds >= request["seconds"]
        sentence = query_child.time_sentence(request) if late else query_child.memory_sentence(request)
        raise QueryStopped(sentence) from error
    truncated = _cut_sentence(cut, len(frame), request)
    return QueryResult(frame=frame, n_rows_shown=len(frame), truncated=truncated, seconds=seconds)


def _cut_sentence(cut: str | None, n_rows: int, request: dict[str, Any]) -> str | None:
    megabytes = f"{request['result_bytes'] / 1e6:g} MB"
    if cut == "rows":
        return f"Showing the first {n_rows:,} rows; there are more."
    if cut == "bytes" and n_rows == 0:
        raise QueryStopped(f"The first row alone is larger than {megabytes}. Select fewer columns or shorter texts.")
    if cut == "bytes":
        return f"Showing the first {n_rows:,} rows; the answer was cut at {megabytes}."
    return None


def _column(cells: Sequence[Any], kind: str) -> pd.Series:
    """Cells in the type of their kind, or as they are where they don't fit (128 bit numbers, the year 290000)."""
    try:
        if kind == "integer":
            return pd.Series(cells, dtype="Int64")
        if kind == "boolean":
            return pd.Series(cells, dtype="boolean")
        if kind == "number":
            return pd.Series(cells, dtype="float64")
        if kind == "time":
            return pd.Series(pd.to_datetime(pd.Series(cells, dtype="object"), format="ISO8601"))
    except (ValueError, TypeError, OverflowError):
        pass
    if kind == "integer":  # beyond 64 bits: as text, because no table on a page can hold them
        cells = [None if cell is None else str(cell) for cell in cells]
    return pd.Series(cells, dtype="object")


def _distinct(names: Sequence[str]) -> list[str]:
    """The names with a number behind each repeated one, as ``SELECT 1 AS a, 2 AS a`` is good SQL and no good frame."""
    distinct: dict[str, None] = {}
    for name in names:
        candidate, number = name, 1
        while candidate in distinct:
            number += 1
            candidate = f"{name}_{number}"
        distinct[candidate] = None
    return list(distinct)


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace(quote, quote * 2) + quote


EXAMPLE_QUERIES: tuple[ExampleQuery, ...] = (
    ExampleQuery(
        "Which actions does each task use?",
        """SELECT task, action, count(*) AS times,
       round(count(*) / sum(count(*)) OVER (PARTITION BY task), 3) AS share
FROM steps
GROUP BY task, action
ORDER BY task, times DESC""",
        ("bar", "action", "times"),
    ),
    ExampleQuery(
        "How often does each task succeed?",
        """WITH episodes AS (
    -- The sum is NULL where no reward is known: such an episode is not judged, rather than failed.
    SELECT arg_min(task, t) AS task, sum(reward) > 0 AS success
    FROM steps
    GROUP BY episode_id
)
SELECT task, count(*) AS episodes, count(success) AS judged, avg(success::INTEGER) AS success_rate
FROM episodes
GROUP BY task
ORDER BY success_rate""",
        ("bar", "task", "success_rate"),
    ),
    ExampleQuery(
        "Which tools fail most often?",
        """SELECT tool, count(*) AS calls, count(error) AS failures, count(error) / count(*) AS failure_rate
FROM steps
WHERE tool IS NOT NULL
GROUP BY tool
ORDER BY failure_rate DESC, calls DESC""",
        ("bar", "tool", "failure_rate"),
    ),
    ExampleQuery(
        "How long are the episodes?",
        """SELECT length, count(*) AS episodes
FROM (SELECT count(*) AS length FROM steps GROUP BY episode_id)
GROUP BY length
ORDER BY length""",
        ("bar", "length", "episodes"),
    ),
    ExampleQuery(
        "What does the agent do after a failed call?",
        """WITH followed AS (
    SELECT action, error, lead(action) OVER (PARTITION BY episode_id ORDER BY t) AS next_action
    FROM steps
)
SELECT action AS failed, coalesce(next_action, '(the episode ends)') AS then_does, count(*) AS times
FROM followed
WHERE error IS NOT NULL
GROUP BY failed, then_does
ORDER BY times DESC""",
        None,
    ),
    ExampleQuery(
        "Which calls are repeated with the same arguments?",
        """SELECT episode_id, tool, any_value(arguments) AS arguments, count(*) AS times, list(t ORDER BY t) AS at_steps
FROM steps
WHERE arguments_hash IS NOT NULL
GROUP BY episode_id, tool, arguments_hash
HAVING count(*) > 1
ORDER BY times DESC, episode_id""",
        None,
    ),
    ExampleQuery(
        "How often is each action taken in each state?",
        """SELECT state_key, action_name, count(*) AS times, avg(framed_reward) AS mean_reward
FROM framed
GROUP BY state_key, action_name
ORDER BY times DESC""",
        ("bar", "state_key", "times"),
    ),
    ExampleQuery(
        "Which pairs of state and action were seen only once?",
        """SELECT state_key, action_name,
       any_value(episode_id) AS episode_id, any_value(episode_return) AS episode_return
FROM framed
GROUP BY state_key, action_name
HAVING count(*) = 1
ORDER BY state_key, action_name""",
        None,
    ),
)
