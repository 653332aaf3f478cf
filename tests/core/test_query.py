"""Visitors' SQL: it answers or says why not, leaves nothing behind, and never reaches beyond the log."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from offrl_core import query, query_child
from offrl_core.errors import NotPossible, QueryRefused, QueryStopped
from offrl_core.query import EXAMPLE_QUERIES, ExampleQuery, QueryLimits, run_query, write_query_database
from offrl_core.schema import steps_table

from .hostile_sql import HOSTILE

TABLES = {"steps": "steps", "framed": "framed_now"}
SECRET = "the secret that no query may read"
SHORT = QueryLimits(seconds=0.3)
SLACK_SECONDS = 20.0  # for a machine busy with other tests; what is asserted is that nothing runs for ever

ROWS = [
    {
        "episode_id": "a",
        "t": 0,
        "task": "2+3",
        "action": "add",
        "tool": "add",
        "arguments_hash": "h1",
        "arguments": "{}",
    },
    {
        "episode_id": "a",
        "t": 1,
        "task": "2+3",
        "action": "add",
        "tool": "add",
        "arguments_hash": "h1",
        "arguments": "{}",
    },
    {"episode_id": "a", "t": 2, "task": "2+3", "action": "submit", "tool": "submit", "reward": 1.0, "terminal": True},
    {"episode_id": "b", "t": 0, "task": "2*3", "action": "mul", "tool": "mul", "error": "no such tool"},
    {"episode_id": "b", "t": 1, "task": "2*3", "action": "submit", "tool": "submit", "reward": 0.0, "terminal": True},
    {"episode_id": "c", "t": 0, "task": "2*3", "action": "mul", "tool": "mul", "error": "no such tool"},
]


def connection_with_tables() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("given", steps_table(ROWS))
    connection.execute("CREATE TABLE steps AS FROM given")
    connection.execute(
        """CREATE TEMP VIEW framed_now AS
        SELECT *, task || ' at ' || t AS state_key, action AS action_name, reward AS framed_reward,
            lead(task || ' at ' || t) OVER (PARTITION BY episode_id ORDER BY t) AS next_state_key,
            sum(reward) OVER (PARTITION BY episode_id) AS episode_return
        FROM steps"""
    )
    return connection


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("query") / "0123abcd.duckdb"
    return write_query_database(connection_with_tables(), TABLES, path)


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a secret, in which nothing may be written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.csv").write_text(SECRET + "\n")
    yield tmp_path
    assert [path.name for path in tmp_path.rglob("*")] == ["secret.csv"]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("first", range(0, len(HOSTILE), 8))
def test_hostile_queries(first: int, database: Path, outside: Path) -> None:
    before = sha256(database)
    for sql in HOSTILE[first : first + 8]:
        for word, path in (("SECRET", outside / "secret.csv"), ("TARGET", outside / "x"), ("DATABASE", database)):
            sql = sql.replace(word, str(path))
        started = time.monotonic()
        outcome = outcome_of(database, sql)
        assert SECRET not in outcome
        assert time.monotonic() - started < SHORT.seconds + SLACK_SECONDS
        assert sha256(database) == before
    assert [path.name for path in database.parent.iterdir()] == [database.name]
    assert run_query(database, "SELECT count(*) AS n FROM steps").frame["n"].tolist() == [len(ROWS)]


def outcome_of(database: Path, sql: str) -> str:
    """The rows as text, or the sentence that came instead."""
    try:
        # What the gate refuses is never run, so it is asked in here first: a process for each would only cost time.
        # Longer texts go to the process at once, because the parser itself may take for ever.
        if len(sql) < 300 and sql.isascii() and "\0" not in sql:
            query_child.the_select(duckdb.connect(), sql)
        result = run_query(database, sql, SHORT)
        assert result.n_rows_shown <= SHORT.rows
        return str(result.frame.to_csv())
    except (query_child.Refused, QueryRefused, QueryStopped) as error:
        assert_is_sentence(str(error))
        return str(error)


def assert_is_sentence(text: str) -> None:
    assert text[0].isupper()
    assert len(text) < 700
    assert "Traceback" not in text
    assert "\n" not in text


def test_enough_hostile_queries() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 120


@pytest.mark.parametrize("example", EXAMPLE_QUERIES, ids=lambda example: example.title)
def test_example_query(example: ExampleQuery, database: Path) -> None:
    result = run_query(database, example.sql)
    assert result.n_rows_shown > 0
    assert result.truncated is None
    if example.chart:
        kind, *axes = example.chart
        assert kind == "bar"
        assert set(axes) <= set(result.frame.columns)


def test_examples_say_what_they_promise(database: Path) -> None:
    success, failures, follows, repeated = (
        run_query(database, EXAMPLE_QUERIES[number].sql).frame.to_dict("records") for number in (1, 2, 4, 5)
    )
    assert {row["task"]: (row["episodes"], row["judged"], row["success_rate"]) for row in success} == {
        "2*3": (2, 1, 0.0),  # the episode without any known reward is not judged
        "2+3": (1, 1, 1.0),
    }
    assert failures[0] == {"tool": "mul", "calls": 2, "failures": 2, "failure_rate": 1.0}
    assert {(row["failed"], row["then_does"], row["times"]) for row in follows} == {
        ("mul", "submit", 1),
        ("mul", "(the episode ends)", 1),
    }
    assert repeated == [{"episode_id": "a", "tool": "add", "arguments": "{}", "times": 2, "at_steps": "[0, 1]"}]


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    connection = duckdb.connect()
    connection.execute("CREATE TABLE steps AS SELECT 1 AS t")
    with pytest.raises(NotPossible, match=r"No temporary file can be written .* Make room there\.$"):
        write_query_database(connection, {"steps": "steps"}, tmp_path / "file" / "log.duckdb")
    (tmp_path / "writing").mkdir()
    os.chmod(tmp_path / "writing", 0o500)
    if not os.access(tmp_path / "writing", os.W_OK):  # root may write everywhere
        with pytest.raises(NotPossible, match="No temporary file"):
            write_query_database(connection, {"steps": "steps"}, tmp_path / "writing" / "log.duckdb")


def test_types(database: Path) -> None:
    frame = run_query(
        database,
        """SELECT 7 AS whole, 1.5::DOUBLE AS float, 0.25 AS decimal, true AS yes, 'é🙂\x01' AS text,
            TIMESTAMP '2026-01-02 03:04:05.5' AS at, DATE '1600-02-03' AS day,
            TIMESTAMPTZ '2026-01-02 03:04:05+02' AS zoned,
            [1, NULL] AS list, {'a': 'ö', 'b': [1]} AS struct, MAP {DATE '2026-01-01': 1} AS map, 'ab'::BLOB AS bytes,
            1::HUGEINT << 100 AS huge, '290000-01-01'::TIMESTAMP AS late, INTERVAL 1 DAY AS span, TIME '10:00' AS clock,
            'infinity'::DOUBLE AS infinite, NULL AS nothing""",
    ).frame
    assert frame.dtypes.astype(str).tolist()[:8] == [
        *("Int64", "float64", "float64", "boolean", "object"),
        *("datetime64[us]", "datetime64[us]", "datetime64[us, UTC]"),
    ]
    row = frame.iloc[0].to_dict()
    assert row["text"] == "é🙂\x01"
    assert (row["whole"], row["float"], row["decimal"], row["yes"]) == (7, 1.5, 0.25, True)
    assert row["at"] == pd.Timestamp("2026-01-02 03:04:05.5")
    assert row["day"] == pd.Timestamp("1600-02-03")
    assert row["zoned"] == pd.Timestamp("2026-01-02 01:04:05", tz="UTC")
    assert (row["list"], row["struct"], row["bytes"]) == ("[1, null]", '{"a": "ö", "b": [1]}', "6162")
    assert row["map"].startswith("{datetime.date(2026, 1, 1)")
    assert (row["huge"], row["late"]) == (str(2**100), "290000-01-01 00:00:00")
    assert (row["span"], row["clock"], row["infinite"]) == ("1 day, 0:00:00", "10:00:00", math.inf)
    assert row["nothing"] is None


def test_null_and_nan(database: Path) -> None:
    frame = run_query(
        database, "SELECT * FROM (VALUES (1, 1.0::DOUBLE, 'a', true), (NULL, 'nan', NULL, NULL), (3, NULL, '', false))"
    ).frame
    assert frame["col0"].tolist() == [1, pd.NA, 3]
    assert frame["col1"].isna().tolist() == [False, True, True]
    assert frame["col2"].tolist() == ["a", None, ""]
    assert frame["col3"].tolist() == [True, pd.NA, False]


def test_every_type_of_duckdb_comes_back(database: Path) -> None:
    assert run_query(database, "SELECT * FROM test_all_types()").n_rows_shown == 3


def test_empty_result_keeps_its_columns(database: Path) -> None:
    result = run_query(database, "SELECT t, action, reward, terminal, now() AS at FROM steps WHERE false")
    assert (result.n_rows_shown, result.truncated) == (0, None)
    assert result.frame.dtypes.astype(str).tolist()[:4] == ["Int64", "object", "float64", "boolean"]


def test_equal_names_are_told_apart(database: Path) -> None:
    assert list(run_query(database, "SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a").frame) == ["a", "a_2", "a_2_2", "a_3"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS one;",
        "  -- why\n/* not; */ SELECT 1 AS one ; ;\n-- end",
        "FROM (SELECT 1 AS one)",
        "(SELECT 1 AS one)",
        "WITH x AS (SELECT 1 AS one) SELECT * FROM x",
        "SELECT 1 AS one -- ünïcödé; 🙂",
    ],
)
def test_one_select_in_many_ways(sql: str, database: Path) -> None:
    assert run_query(database, sql).frame.to_dict("list") == {"one": [1]}


@pytest.mark.parametrize("sql", ["DESCRIBE steps", "SHOW TABLES", "SUMMARIZE steps", "VALUES (1)", "FROM steps"])
def test_words_that_count_as_select(sql: str, database: Path) -> None:
    assert run_query(database, sql).n_rows_shown > 0


def test_rows_are_capped_and_it_says_so(database: Path) -> None:
    result = run_query(database, "SELECT range AS i FROM range(100000)")
    assert result.frame["i"].tolist() == list(range(1000))
    assert result.truncated == "Showing the first 1,000 rows; there are more."
    exactly = run_query(database, "SELECT * FROM range(1000)")
    assert (exactly.n_rows_shown, exactly.truncated) == (1000, None)


def test_bytes_are_capped_and_it_says_so(database: Path) -> None:
    result = run_query(database, "SELECT repeat('x', 100000) AS x FROM range(500)")
    assert 40 < result.n_rows_shown < 50
    assert result.truncated == f"Showing the first {result.n_rows_shown} rows; the answer was cut at 5 MB."


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        ("SELECT 1; SELECT 2", QueryRefused, "2 statements"),
        ("COPY steps TO 'x'", QueryRefused, "only SELECT is run here"),
        ("EXPLAIN ANALYZE SELECT 1", QueryRefused, "This is EXPLAIN"),
        ("PIVOT steps ON action", QueryRefused, "add IN (...)"),
        ("SELECT ?", QueryRefused, "Write the values themselves"),
        ("", QueryRefused, "no SQL"),
        ("selec 1", QueryRefused, 'syntax error at or near "selec"'),
        ("SELECT \0", QueryRefused, "NUL"),
        ("SELECT '" + "x" * 200_000 + "'", QueryRefused, "100,000"),
        ("SELECT rewrd FROM steps", QueryStopped, '"rewrd" not found'),
        ("SELECT * FROM step", QueryStopped, 'Did you mean "steps"?'),
        ("SELECT 'x'::INTEGER", QueryStopped, "Could not convert string 'x'"),
        ("SELECT error('my words')", QueryStopped, "my words"),
        ("SELECT count(*) FROM range(1000000000000)", QueryStopped, "after 0.3 s, its time limit"),
        ("SELECT lpad('x', 2000000000, 'y')", QueryStopped, "The query was stopped"),
        ("SELECT range % 100000000, count(*) FROM range(1000000000) GROUP BY 1", QueryStopped, "The query was stopped"),
        ("SELECT repeat('x', 4000000000)", QueryStopped, "more memory"),
        ("SELECT " + "1," * 600 + "1", QueryStopped, "601 columns"),
        ("SELECT * FROM steps WHERE " + "(" * 50_000, QueryStopped, "The query was stopped"),
        ("SELECT repeat('x', 6000000)", QueryStopped, "first row alone is larger than 5 MB"),
        ("SELECT * FROM read_text('/etc/passwd')", QueryStopped, "disabled by configuration"),
    ],
)
def test_errors_are_sentences(sql: str, error: type[Exception], words: str, database: Path) -> None:
    limits = SHORT if "stopped" in words or "its time limit" in words else QueryLimits(seconds=30)
    with pytest.raises(error) as caught:
        run_query(database, sql, limits)
    assert words in str(caught.value)
    assert_is_sentence(str(caught.value))


def test_child_sees_no_environment(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    settings = run_query(database, "SELECT * FROM duckdb_settings()").frame
    assert "/home/somebody" not in settings.to_csv()


def test_missing_database_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(QueryStopped, match="can't be opened"):
        run_query(tmp_path / "missing.duckdb", "SELECT 1")
    (tmp_path / "broken.duckdb").write_bytes(b"no database" * 1000)
    with pytest.raises(QueryStopped, match="can't be opened"):
        run_query(tmp_path / "broken.duckdb", "SELECT 1")


ANSWER = """print('ready'); print('{"names": ["a"], "kinds": ["text"], "n_rows": ROWS, "cut": null}'); """


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys", "did not start"),
        ("import time; time.sleep(60)", "did not start"),
        ("import sys, time; sys.stdin.read(); print('ready', flush=True); time.sleep(60)", "time limit"),
        ("print('ready', flush=True); print('x' * 50_000_000)", "more memory"),
        ("print('ready'); print('[1, 2]')", "more memory"),
        (ANSWER.replace("ROWS", "2") + "print([1])", "more memory"),
        (ANSWER.replace("ROWS", "1") + "print([1, 2])", "more memory"),
    ],
)
def test_child_that_misbehaves(
    script: str, words: str, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent holds its bounds even where the child is another program."""
    (tmp_path / "child.py").write_text(script)
    monkeypatch.setattr(query.query_child, "__file__", str(tmp_path / "child.py"))
    monkeypatch.setattr(query, "START_SECONDS", 4.0)
    with pytest.raises(QueryStopped, match=words):
        run_query(database, "SELECT '" + "x" * 90_000 + "'", SHORT)


def test_no_place_and_no_process(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "QUEUE_SECONDS", 0.0)
    monkeypatch.setattr(query, "_places", query.threading.BoundedSemaphore(1))
    with query._places, pytest.raises(QueryStopped, match="Too many queries"):
        run_query(database, "SELECT 1")
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(QueryStopped, match="could not be started"):
        run_query(database, "SELECT 1")
    monkeypatch.undo()
    assert run_query(database, "SELECT 1").n_rows_shown == 1


def test_concurrent_queries(database: Path) -> None:
    def ask(number: int) -> int:
        if number % 4 == 3:
            with pytest.raises(QueryStopped):
                run_query(database, "SELECT count(*) FROM range(1000000000000)", QueryLimits(seconds=0.2))
            return number
        return int(run_query(database, f"SELECT {number} AS n FROM steps LIMIT 1").frame["n"][0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(16))) == list(range(16))


def test_nothing_is_left_running(database: Path) -> None:
    with pytest.raises(QueryStopped):
        run_query(database, "SELECT lpad('x', 2000000000, 'y')", SHORT)
    assert not [line for line in processes() if "query_child" in line]


def processes() -> list[str]:
    """Command lines of the children of this process."""
    found = subprocess.run(["ps", "-o", "args", "--ppid", str(os.getpid())], capture_output=True, text=True, check=True)
    return found.stdout.splitlines()


def test_write_skips_what_exists_and_cleans_up(tmp_path: Path) -> None:
    connection = connection_with_tables()
    path = tmp_path / "in a 'quoted' folder" / "x.duckdb"
    assert write_query_database(connection, TABLES, path) == path
    before = sha256(path)
    write_query_database(connection, {"steps": "steps"}, path)
    assert sha256(path) == before
    with pytest.raises(duckdb.Error):
        write_query_database(connection, {"steps": "steps", "x": "missing"}, path.with_name("y.duckdb"))
    assert [found.name for found in path.parent.iterdir()] == ["x.duckdb"]
    assert connection.execute("SELECT count(*) FROM duckdb_databases() WHERE NOT internal").fetchone() == (1,)
    assert run_query(path, "SELECT count(*) AS n FROM framed").frame["n"].tolist() == [len(ROWS)]


def test_write_from_two_threads(tmp_path: Path) -> None:
    connection = connection_with_tables()
    paths = [tmp_path / f"{number % 3}.duckdb" for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda path: write_query_database(connection, TABLES, path), paths))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.duckdb", "1.duckdb", "2.duckdb"]
    for path in sorted(set(paths)):
        assert run_query(path, "SELECT count(*) AS n FROM steps").frame["n"].tolist() == [len(ROWS)]


@pytest.mark.parametrize("name", ["indexes", "tabels", "columns", "schemata"])
def test_tables_of_the_database_itself_are_not_proposed(name: str) -> None:
    message = f'Table with name {name} does not exist!\nDid you mean "pg_{name}"?\n\nLINE 1: x'
    assert query_child.first_words(duckdb.CatalogException(message)) == f"Table with name {name} does not exist!"
    kept = query_child.first_words(duckdb.CatalogException('No step!\nDid you mean "steps"?'))
    assert kept == 'No step! Did you mean "steps"?'
