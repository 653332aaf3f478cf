"""Free conditions: harmless ones come back in canonical text that runs; all else is refused in a sentence."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from offrl_core.errors import InvalidPredicate
from offrl_core.predicates import FUNCTIONS, condition_of, parse_predicate, predicate_columns
from offrl_core.schema import COLUMN_NAMES, steps_table

ROWS = [
    {"episode_id": "a", "t": 0, "task": "2*3", "tool": "mul", "action": "mul", "reward": 1.0, "terminal": True},
    {"episode_id": "a", "t": 1, "task": "o'ö%", "action": "say", "error": "", "action_logprob": -0.5, "terminal": False}
    | {"state": '{"memory": {"n": 3}}', "available_tools": ["mul", "add"]},
]


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return connect()


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("given", steps_table(ROWS))
    connection.execute("CREATE TABLE steps AS FROM given")
    return connection


def parsed(text: str) -> str:
    return parse_predicate(text, COLUMN_NAMES)


@pytest.mark.parametrize(
    ("text", "canonical", "columns"),
    [
        ("t = 1", "(t = 1)", "t"),
        ("STEPS.Tool = 'mul'", "(tool = 'mul')", "tool"),
        ("steps.\"split\" = 'train'", "(split = 'train')", "split"),
        ("t=1 -- why", "(t = 1)", "t"),
        ("t /* ; */ = 1 ;", "(t = 1)", "t"),
        ("t = 1\n AND\tt <> 2", "((t = 1) AND (t != 2))", "t"),
        ("t<1 OR t>2 AND NOT t>=3", "((t < 1) OR ((t > 2) AND (NOT (t >= 3))))", "t"),
        ("((t)) = ((1))", "(t = 1)", "t"),
        ("t IN (1, 2)", "(t IN (1, 2))", "t"),
        ("tool NOT IN ('mul')", "(NOT (tool IN ('mul')))", "tool"),
        ("'mul' IN available_tools", "contains(available_tools, 'mul')", "available_tools"),
        ("tool IN ['mul', 'add']", "contains(list_value('mul', 'add'), tool)", "tool"),
        ("t BETWEEN 1 AND 2", "(t BETWEEN 1 AND 2)", "t"),
        ("t NOT BETWEEN 1 AND 2", "(NOT (t BETWEEN 1 AND 2))", "t"),
        ("tool IS NULL", "(tool IS NULL)", "tool"),
        ("error IS NOT NULL", '("error" IS NOT NULL)', "error"),
        ("t IS DISTINCT FROM 1", "(t IS DISTINCT FROM 1)", "t"),
        ("terminal IS TRUE", "(CAST(terminal AS BOOLEAN) IS NOT DISTINCT FROM true)", "terminal"),
        ("terminal", "terminal", "terminal"),
        ("NOT terminal", "(NOT terminal)", "terminal"),
        ("true", "true", ""),
        ("tool LIKE 'm%'", "(tool ~~ 'm%')", "tool"),
        ("tool NOT LIKE 'm%'", "(tool !~~ 'm%')", "tool"),
        ("tool ILIKE 'M_L'", "(tool ~~* 'M_L')", "tool"),
        ("tool NOT ILIKE 'M%'", "(tool !~~* 'M%')", "tool"),
        ("task LIKE '%$%' ESCAPE '$'", "like_escape(task, '%$%', '$')", "task"),
        ("CASE WHEN t=1 THEN true ELSE false END", "CASE  WHEN ((t = 1)) THEN (true) ELSE false END", "t"),
        ("CASE t WHEN 1 THEN terminal END", "CASE  WHEN ((t = 1)) THEN (terminal) ELSE NULL END", "t terminal"),
        ("reward::INT = 1", "(CAST(reward AS INTEGER) = 1)", "reward"),
        ("TRY_CAST(task AS DECIMAL(5, 2)) > 1", "(TRY_CAST(task AS DECIMAL(5, 2)) > 1)", "task"),
        ("-t + 1 - 2 * 3 / 4 % 5 // 6 < 1.5", "((((-(t)) + 1) - ((((2 * 3) / 4) % 5) // 6)) < 1.5)", "t"),
        ("t = -1", "(t = -1)", "t"),
        ("tool || task = 'mul2*3'", "((tool || task) = 'mul2*3')", "task tool"),
        ("task = 'o''ö%'", "(task = 'o''ö%')", "task"),
        ("state->>'$.memory.n' = '3'", "((state ->> '$.memory.n') = '3')", "state"),
        ("(state -> 'memory') IS NULL", "((state -> 'memory') IS NULL)", "state"),
        ("available_tools[1] = 'mul'", "(available_tools[1] = 'mul')", "available_tools"),
        ("coalesce(error, '') = ''", "(COALESCE(\"error\", '') = '')", "error"),
    ],
)
def test_constructs(text: str, canonical: str, columns: str, connection: duckdb.DuckDBPyConnection) -> None:
    assert parsed(text) == canonical
    assert parsed(canonical) == canonical
    assert predicate_columns(canonical) == set(columns.split())
    # The canonical text means what the pasted one did.
    assert selected(connection, canonical) == selected(connection, text)


def selected(connection: duckdb.DuckDBPyConnection, condition: str) -> list[tuple[object, ...]]:
    return connection.execute(f"SELECT t FROM steps WHERE (\n{condition.rstrip('; ')}\n)").fetchall()


CALLS = {
    **dict.fromkeys(("lower", "upper", "trim", "ltrim", "rtrim"), "{}(task) = '2*3'"),
    **dict.fromkeys(("length", "len", "strlen"), "{}(task) = 3"),
    **dict.fromkeys(("contains", "starts_with", "ends_with", "prefix", "suffix"), "{}(task, '2')"),
    **dict.fromkeys(("like_escape", "not_like_escape"), "{}(task, '2$%', '$')"),
    **dict.fromkeys(("abs", "ceil", "ceiling", "floor", "round", "sign", "exp"), "{}(action_logprob) < 1"),
    **dict.fromkeys(("sqrt", "ln"), "{}(reward + 1) > 0"),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), "{}(reward)"),
    **dict.fromkeys(("greatest", "least"), "{}(reward, t) = 1"),
    **dict.fromkeys(("left", "right"), "{}(task, 1) = '2'"),
    **dict.fromkeys(("substr", "substring"), "{}(task, 1, 2) = '2*'"),
    **dict.fromkeys(("json_extract", "json_extract_string"), "{}(state, '$.memory.n') = '3'"),
    "json_valid": "{}(state)",
    "json_array_length": "{}(state) = 0",
    "array_length": "{}(available_tools) = 2",
    "list_contains": "{}(available_tools, 'mul')",
    "list_value": "tool IN {}('mul')",
    "concat": "{}(task, tool) = '2*3mul'",
    "nullif": "{}(task, '2*3') IS NULL",
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_runs(name: str, connection: duckdb.DuckDBPyConnection) -> None:
    text = CALLS[name].format(name)
    assert selected(connection, parsed(text)) == selected(connection, text)
    assert selected(connection, parsed(text.replace(name, name.upper()))) == selected(connection, text)


REFUSED = [
    ("1=1) UNION SELECT 1 --", "doesn't parse"),
    ("1=1) OR (1=1", "doesn't parse"),
    (") OR 1=1 --", "doesn't parse"),
    ("1=1; DROP TABLE steps", "one condition without ;"),
    ("1=1; SELECT 2", "more than a condition"),
    ("1=1 UNION SELECT 1", "more than a condition"),
    ("1=1 UNION ALL FROM records", "more than a condition"),
    ("1=1 EXCEPT SELECT 1", "more than a condition"),
    ("1=1 ORDER BY 1", "more than a condition"),
    ("1=1 LIMIT 1", "more than a condition"),
    ("1=1 OFFSET 1", "more than a condition"),
    ("1=1 GROUP BY 1", "more than a condition"),
    ("1=1 GROUP BY ALL", "more than a condition"),
    ("1=1 HAVING true", "more than a condition"),
    ("1=1 QUALIFY true", "more than a condition"),
    ("1=1 USING SAMPLE 1", "more than a condition"),
    ("1=1 AS x", "doesn't parse"),
    ("1=1, 2=2", "doesn't parse"),
    ("/* t = 1", "doesn't parse"),
    ("-- t = 1", "doesn't parse"),
    ("t = 'x", "doesn't parse"),
    ("", "is empty"),
    (" \n\t", "is empty"),
    ("t = 1 \0 OR true", "NUL"),
    ("task = '\ud800'", "half a pair"),
    ("t = " + "1" * 3000, "2,000"),
    ("(" * 1500, "parentheses"),
    ("NOT " * 400 + "t", "deep"),
    ("-" + " -" * 900 + "t", "deep"),
    ("t" + "||t" * 100, "deep"),
    ("t = 1" + " AND t = 1" * 190, "written out"),
    ("EXISTS (SELECT 1)", "a subquery"),
    ("t = (SELECT 1)", "a subquery"),
    ("t IN (SELECT 1)", "a subquery"),
    ("t = ANY(available_tools)", "a subquery"),
    ("t IN (FROM read_csv('/etc/passwd'))", "a subquery"),
    ("row_number() OVER () = 1", "window function"),
    ("sum(t) OVER (PARTITION BY task) = 1", "window function"),
    ("sum(t) = 1", "sum"),
    ("count(*) > 1", "count_star"),
    ("t = ?", "a parameter"),
    ("t = $1", "a parameter"),
    ("t = $name", "a parameter"),
    ("#1 = 1", "a column by number"),
    ("*", "a star"),
    ("steps.* IS NULL", "a star"),
    ("COLUMNS(*) = 1", "a star"),
    ("COLUMNS('t') = 1", "a star"),
    ("list_filter(available_tools, x -> x = 'a')", "list_filter"),
    ("list_filter(available_tools, lambda x: x = 'a')", "list_filter"),
    ("state -> tool", "a lambda"),
    ("state -> 'memory' IS NULL", "in parentheses"),
    ("lambda x: x", "a lambda"),
    ("tool COLLATE nocase = 'A'", "COLLATE"),
    ("lower(tool) FILTER (WHERE true) = 'a'", "filter in lower"),
    ("lower(DISTINCT tool) = 'a'", "distinct in lower"),
    ("lower(tool ORDER BY t) = 'a'", "plain arguments"),
    ("main.lower(tool) = 'a'", "schema in lower"),
    ("system.main.lower(tool) = 'a'", "in lower"),
    ("tool.lower() = 'a'", "schema in lower"),
    ("lower(x := tool) = 'a'", "named arguments"),
    ("regexp_matches(tool, task)", "regexp_matches"),
    ("tool SIMILAR TO 'm.l'", "regexp_full_match"),
    ("t::JSON = 1", "a cast to JSON"),
    ("t::DATE = '2026-01-01'", "a cast to DATE"),
    ("t::VARCHAR[] = []", "a cast to list"),
    ("t::STRUCT(a INTEGER) IS NULL", "a cast to STRUCT"),
    ("t::main.integer = 1", "schema in type"),
    ("DATE '2026-01-01' > '2025-01-01'", "a cast to"),
    ("x'ff' = 'a'", "HEX"),
    ("tool[1:2] = 'mu'", "ARRAY SLICE"),
    ("TRY(t) = 1", "TRY"),
    ("(t, 1) = (1, 1)", "row"),
    ("{'a': t} IS NULL", "struct_pack"),
    ("MAP {t: 1} IS NULL", "map"),
    ("current_date > '2025-01-01'", "no column 'current_date'"),
    ("row = 1", "no column 'row'"),
    ("rowid = 1", "no column 'rowid'"),
    ("records.raw = 'a'", "no column 'records.raw'"),
    ("main.steps.t = 1", "no column 'main.steps.t'"),
    ("steps.steps.t = 1", "no column"),
    ("steps IS NULL", "no column 'steps'"),
    ("t.t = 1", "no column 't.t'"),
    ("state.memory = 1", "no column 'state.memory'"),
    ("rewrd > 0", "Did you mean reward?"),
    ('tool = "mul"', "single quotes"),
    *(
        (f"{call} IS NULL", call.split("(")[0])
        for call in (
            *(
                "repeat(tool, 1000000000)",
                "lpad(tool, 1000000000, 'x')",
                "rpad(tool, 1000000000, 'x')",
                "range(1000000000)",
            ),
            *("format('{:>1000000000}', tool)", "printf('%1000000000d', t)", "generate_series(1, 1000000000)"),
            *("read_text('/etc/passwd')", "getenv('HOME')", "current_setting('temp_directory')", "getvariable('x')"),
            *(
                "random()",
                "uuid()",
                "now()",
                "nextval('s')",
                "error('x')",
                "query('SELECT 1')",
                "json_serialize_sql('x')",
            ),
            *(
                "replace(tool, '', task)",
                "regexp_replace(tool, '', task)",
                "string_agg(tool)",
                "list(tool)",
                "unnest([1])",
            ),
            *("array_to_string([tool], task)", "list_resize([1], 1000000000)", "bitstring('1', 1000000000)", "hash(t)"),
        )
    ),
    ("t << 62 > 1", "<<"),
    ("t ** 9 > 1", "**"),
    ("t ^ 9 > 1", "^"),
    ("t! > 1", "factorial"),
    ("tool GLOB 'a*'", "~~~"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED, ids=[f"{n}: {text[:40]!r}" for n, (text, _) in enumerate(REFUSED)])
def test_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidPredicate) as caught:
        parsed(text)
    assert words in str(caught.value)
    assert str(caught.value).endswith((".", ").", "'."))


def test_names_are_the_tables_own() -> None:
    assert parse_predicate("STATE_KEY = 'a' AND odd = 1", ["State_Key", "Odd"]) == "((State_Key = 'a') AND (Odd = 1))"
    assert parse_predicate('"a ""b" = 1', ['a "b']) == '("a ""b" = 1)'
    assert predicate_columns('("a ""b" = 1)') == {'a "b'}
    with pytest.raises(InvalidPredicate, match="The columns are State_Key"):
        parse_predicate("t = 1", ["State_Key"])


def test_parsing_is_fast() -> None:
    text = "tool IN ('a','b') AND reward > 0 AND NOT (task LIKE 'x%' OR state ->> 'a' = 'b') AND t BETWEEN 1 AND 3"
    parsed(text)
    started = time.process_time()
    for _ in range(20):
        parsed(text)
    assert (time.process_time() - started) / 20 < 0.02  # some 3 ms where nothing else runs


def test_threads_share_the_parser() -> None:
    with ThreadPoolExecutor(8) as pool:
        canonical = list(pool.map(lambda n: parsed(f"t = {n}"), range(100)))
    assert canonical == [f"(t = {n})" for n in range(100)]


words = st.sampled_from(
    """( ) ( ) , . ; -- /* */ ' " '' 'a' 'mul' "t" t tool task reward terminal state available_tools steps steps.t 0 1 2
    -1 1.5 1e5 = <> < > <= + - * / % || -> ->> :: AND OR NOT IN IS NULL BETWEEN LIKE ESCAPE CASE WHEN THEN ELSE END
    CAST AS INTEGER VARCHAR lower( length( abs( coalesce( contains( concat( list_value( repeat( sum( SELECT FROM WHERE
    UNION ORDER BY LIMIT WITH OVER () [ ] { } ? $1 #1 true false DISTINCT FILTER COLLATE x'ff' e'\\n' $$""".split()
)
columns = st.sampled_from(["t", "tool", "Reward", "steps.terminal", "task", "error"])
values = st.sampled_from(["1", "-2", "0.5", "'mul'", "'o''ö'", "NULL", "true", "[1, 2]"]) | columns
formulas = st.recursive(
    values,
    lambda inner: st.one_of(
        st.tuples(
            inner, st.sampled_from(["=", "<", ">=", "AND", "OR", "+", "-", "||", "LIKE", "IS DISTINCT FROM"]), inner
        )
        .map(" ".join)
        .map("({})".format),
        inner.map("NOT ({})".format),
        inner.map("({}) IS NULL".format),
        inner.map("lower(CAST({} AS VARCHAR))".format),
        st.tuples(inner, inner, inner).map("{0[0]} BETWEEN {0[1]} AND {0[2]}".format),
        st.tuples(inner, inner, inner).map("CASE WHEN {0[0]} THEN {0[1]} ELSE {0[2]} END".format),
        st.tuples(inner, inner).map("{0[0]} IN ({0[1]}, 1)".format),
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(words, max_size=14).map(" ".join), formulas))
@example("t = 1 WINDOW w AS ()")
@example("\N{RIGHT-TO-LEFT OVERRIDE}t = 1")
@example("t\u00a0= 1")
@example("'\\'' OR 1=1 --'")
@example("-" * 50 + "t")
def test_any_text_is_refused_or_runs(text: str) -> None:
    try:
        canonical = parsed(text)
    except InvalidPredicate:
        return
    assert parsed(canonical) == canonical
    assert predicate_columns(canonical) <= set(COLUMN_NAMES)
    runs_as_one_condition(canonical)


CONNECTION = connect()


def runs_as_one_condition(canonical: str) -> None:
    """It runs between parentheses, or doesn't fit the types of the columns; nothing else may go wrong."""
    sql = f"SELECT t FROM steps WHERE ({canonical}) AND false LIMIT 1"
    (statement,) = duckdb.extract_statements(sql)
    assert statement.type == duckdb.StatementType.SELECT
    try:
        assert CONNECTION.cursor().execute(sql).fetchall() == []  # nothing in it got round AND false
    except (duckdb.BinderException, duckdb.ConversionException, duckdb.OutOfRangeException):
        pass
    except duckdb.InvalidInputException as error:  # JSON functions on texts that are no JSON
        if "JSON" not in str(error):
            raise


@settings(max_examples=100, deadline=None)
@given(formulas, st.sampled_from([") ", "; ", "' ", '" ', "-- ", "/* ", ") UNION ", "\0", ""]), formulas)
def test_injection_never_adds_a_clause(first: str, between: str, second: str) -> None:
    try:
        canonical = parsed(first + between + second)
    except InvalidPredicate:
        return
    runs_as_one_condition(canonical)


@pytest.mark.parametrize(
    "sql", ["SELECT '\ud800' FROM steps WHERE a", "SELECT 1 WHERE a\0", "SELECT 1 WHERE " + "(" * 5000, ""]
)
def test_the_condition_of_a_hostile_query_is_none_and_costs_nothing(sql: str) -> None:
    assert condition_of(sql) is None


def test_the_condition_of_a_query_is_its_where() -> None:
    assert (
        condition_of("SELECT task FROM steps WHERE reward > 0 AND task = 'mul' LIMIT 3")
        == "((reward > 0) AND (task = 'mul'))"
    )
    assert condition_of("SELECT 1; SELECT 2 WHERE a") is None
