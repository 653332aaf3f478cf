"""Free SQL conditions of visitors, read by DuckDB's own parser and written anew from the tree.

The pasted text never reaches a query. It is parsed as the end of ``SELECT 1 FROM steps WHERE``; every node of the
tree must be on a list of harmless ones, and the rest of the statement must be what it was, so nothing can close the
condition and begin something else. What is kept is the text that DuckDB writes for that tree. It is run inside the
server, without a deadline, hence the lists are short: no function on them makes a text longer than its arguments together,
and regular expressions are left out, because a counted repeat in one can cost seconds for each row.
"""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, NoReturn

import duckdb

from .errors import InvalidPredicate

MAX_CHARACTERS = 2_000
MAX_PARENTHESES = 200  # unclosed ones cost DuckDB's parser cubic time: 1 s for 1,500
MAX_DEPTH = 50

_BEFORE = "SELECT 1 FROM steps WHERE"
_Node = dict[str, Any]

# Fields that each class of node may have, beside its class, type and location. Defaults are left out of the tree,
# so a field that isn't here (a FILTER, a DISTINCT, an alias, a schema) was written on purpose.
_FIELDS: dict[str, frozenset[str]] = {
    "COLUMN_REF": frozenset({"column_names"}),
    "CONSTANT": frozenset({"literal"}),
    "COMPARISON": frozenset({"left", "right"}),
    "CONJUNCTION": frozenset({"children"}),
    "OPERATOR": frozenset({"children"}),
    "BETWEEN": frozenset({"input", "lower", "upper"}),
    "CASE": frozenset({"case_checks", "else_expr"}),
    "CAST": frozenset({"child", "type_expr", "try_cast"}),
    "TYPE": frozenset({"type_name", "qualified_name", "children"}),
    "FUNCTION": frozenset({"function_name", "qualified_name", "arguments", "is_operator", "order_bys"}),
    "LAMBDA": frozenset({"lhs", "expr", "syntax_type"}),
}
_EVERYWHERE = frozenset({"class", "type", "query_location", "query_location_length"})
_OPERATORS = frozenset(
    "OPERATOR_NOT OPERATOR_IS_NULL OPERATOR_IS_NOT_NULL OPERATOR_COALESCE COMPARE_IN ARRAY_EXTRACT".split()
)
_CASTS = frozenset(
    "boolean tinyint smallint integer bigint hugeint float real double decimal numeric varchar text string".split()
)
_LITERALS = frozenset("BOOLEAN INTEGER NUMERIC STRING NULL_LITERAL".split())
_SIGNS = frozenset("+ - * / // % || ->> ~~ !~~ ~~* !~~*".split())
FUNCTIONS: frozenset[str] = frozenset(
    """abs array_length ceil ceiling concat contains ends_with exp floor greatest isfinite isinf isnan json_array_length
    json_extract json_extract_string json_valid least left len length like_escape list_contains list_value ln lower
    ltrim not_like_escape nullif prefix right round rtrim sign sqrt starts_with
    strlen substr substring suffix trim upper""".split()
)
# In an expression (not in a condition), over one episode: in order of t, or as a whole.
WINDOW_FUNCTIONS: frozenset[str] = frozenset("lag lead row_number first_value sum count count_star min max avg".split())
_WINDOW_FIELDS = frozenset("function_name qualified_name arguments partitions orders start end".split())
_EPISODE = "\nWINDOW episode AS (PARTITION BY episode_id ORDER BY t)"
_EPISODE_WRITTEN = " OVER (PARTITION BY episode_id ORDER BY t)"

_REFUSED = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function (OVER)",
    "PARAMETER": "a parameter (? or $1)",
    "STAR": "a star (*)",
    "POSITIONAL_REFERENCE": "a column by number (#1)",
    "LAMBDA": "a lambda (if JSON is meant, put it in parentheses: (state -> 'memory') IS NULL)",
    "COLLATE": "COLLATE",
}


def parse_predicate(text: str, columns: Collection[str]) -> str:
    """Read one SQL condition and return its canonical text.

    Canonical text is a fixed point: parsing it again returns it unchanged. Types are not checked here; a condition
    such as ``task > 1`` fails when it is used.

    Args:
        text: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, CASE, CAST, arithmetic and :data:`FUNCTIONS`.
        columns: names that it may use, in any case, bare or as ``steps.name``.

    Raises:
        InvalidPredicate: it is anything else; the sentence says what and where.
    """
    return _canonical(text, columns, windows=False)


def parse_expression(text: str, columns: Collection[str]) -> str:
    """Read one SQL expression that may look back and ahead in its episode, and return its canonical text.

    As :func:`parse_predicate`, and besides: ``f(...) OVER episode``, in the order of t, and ``f(...) OVER (PARTITION BY
    episode_id)``, over the whole episode, with the functions of :data:`WINDOW_FUNCTIONS`.

    Raises:
        InvalidPredicate: it is anything else; the sentence says what and where.
    """
    try:
        return _canonical(text, columns, windows=True)
    except InvalidPredicate as error:
        sentence = str(error)
        for ours, theirs in {"The condition": "The expression", "A condition on steps": "An expression"}.items():
            if sentence.startswith(ours):
                sentence = theirs + sentence.removeprefix(ours)
        raise InvalidPredicate(sentence) from error


def _canonical(text: str, columns: Collection[str], *, windows: bool) -> str:
    statement = _statement(text, windows)
    condition = statement["node"]["where_clause"]
    _check(condition, {name.lower(): name for name in columns}, 1, windows)
    canonical = _written(statement)
    if windows:
        canonical = canonical.replace(_EPISODE_WRITTEN, " OVER episode")
    # DuckDB's writing is trusted no further than it reads back as the same tree.
    if _without_locations(_statement(canonical, windows)["node"]["where_clause"]) != _without_locations(condition):
        raise InvalidPredicate(f"{_short(text)} can't be written down without changing it. Put it simpler.")
    return canonical


def hindsight_columns(canonical: str) -> frozenset[str]:
    """The columns that a text of :func:`parse_expression` reads at the step itself or after it.

    ``lag`` only looks back; everything else may read what an agent knows only once it has acted.
    """
    found: set[str] = set()

    def visit(node: _Node) -> None:
        if node["class"] == "COLUMN_REF":
            found.add(node["column_names"][-1])
        if node["class"] == "WINDOW":
            if node["function_name"] == "row_number" or _looks_back(node):
                return
            for argument in node.get("arguments", []):  # not what it is ordered by
                visit(argument["expression"])
            return
        for child in _children(node):
            visit(child)

    visit(_statement(canonical, windows=True)["node"]["where_clause"])
    return frozenset(found)


def looks_ahead(canonical: str) -> bool:
    """Whether a text of :func:`parse_expression` reads steps that come later in the episode."""
    nodes = _descendants(_statement(canonical, windows=True)["node"]["where_clause"])
    return any(node["class"] == "WINDOW" and _may_look_ahead(node) for node in nodes)


def _may_look_ahead(window: _Node) -> bool:
    over_whole_episode = not window.get("orders")
    return over_whole_episode or window["function_name"] == "lead" or _is_lag_of_another_kind(window)


def _is_lag_of_another_kind(window: _Node) -> bool:
    """``lag(t, -1)`` is ``lead(t)``."""
    return window["function_name"] == "lag" and not _looks_back(window)


def _looks_back(window: _Node) -> bool:
    """Whether it is ``lag`` by a constant number of steps, in the order of t."""
    if window["function_name"] != "lag" or not window.get("orders"):
        return False
    offset = [argument["expression"] for argument in window["arguments"]][1:2]
    text = offset[0].get("literal", {}).get("text", "") if offset else "1"
    return text.isdecimal() and int(text) > 0


def predicate_columns(canonical: str) -> frozenset[str]:
    """The columns that a text of :func:`parse_predicate` uses."""
    nodes = _descendants(_statement(canonical)["node"]["where_clause"])
    return frozenset(node["column_names"][-1] for node in nodes if node["class"] == "COLUMN_REF")


def condition_of(sql: str) -> str | None:
    """The WHERE of a whole SELECT as text, unchecked; None where it has none, or isn't one plain SELECT."""
    try:
        _check_text(sql)
        tree = _tree(sql)
        statements = [] if tree["error"] else tree["statements"]
        condition = statements[0]["node"].get("where_clause") if len(statements) == 1 else None
        if condition is None:
            return None
        statement = _statement("true")
        statement["node"]["where_clause"] = condition
        return _written(statement)
    except InvalidPredicate:
        return None


def _statement(text: str, windows: bool = False) -> _Node:
    """The one statement that the text makes of ``SELECT 1 FROM steps WHERE``, all but the condition as expected."""
    _check_text(text)
    tree = _tree(f"{_BEFORE}\n{text}{_EPISODE if windows else ''}")
    if tree["error"]:
        reason = tree["error_message"]
        if "serialized to json" in reason:  # the parser's way to say that this is no SELECT any more
            reason = "give one condition without ;, such as t > 3"
        raise InvalidPredicate(f"The condition doesn't parse: {reason}, in {_short(text)}.")
    statements: list[_Node] = tree["statements"]
    rest = {name: part for name, part in statements[0]["node"].items() if name != "where_clause"}
    if len(statements) != 1 or rest != _expected_rest():
        raise InvalidPredicate(
            f"{_short(text)} is more than a condition. Give what would stand between WHERE and the next keyword, "
            "without GROUP BY, ORDER BY, LIMIT, UNION or a second statement."
        )
    return statements[0]


def _check_text(text: str) -> None:
    if not text.strip():
        raise InvalidPredicate("The condition is empty. Write one, such as reward > 0.")
    if len(text) > MAX_CHARACTERS:
        raise InvalidPredicate(f"The condition has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read.")
    # DuckDB ends a text at the first NUL, so what follows would be dropped without a word.
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidPredicate("The condition contains a character that is no text (NUL or half a pair). Remove it.")
    if text.count("(") > MAX_PARENTHESES:
        raise InvalidPredicate(f"The condition has more than {MAX_PARENTHESES} parentheses. Put it simpler.")


def _check(node: _Node, columns: dict[str, str], depth: int, windows: bool = False) -> None:
    """Refuse a node that isn't on the lists, and write its column names as the table has them."""
    if depth > MAX_DEPTH:
        raise InvalidPredicate(f"The condition is nested more than {MAX_DEPTH} levels deep. Put it simpler.")
    kind = node["class"]
    fields = _WINDOW_FIELDS if windows and kind == "WINDOW" else _FIELDS.get(kind)
    if fields is None:
        _refuse(_REFUSED.get(kind, str(kind)))
    strange = node.keys() - fields - _EVERYWHERE
    if strange:
        _refuse(f"{' and '.join(sorted(strange))} in {_name(node)}")
    check = _CHECKS.get(kind)
    if check is not None:
        check(node)
    if kind == "COLUMN_REF":
        node["column_names"] = [_column(node["column_names"], columns)]
    for child in _children(node):
        _check(child, columns, depth + 1, windows)


def _column(path: list[str], columns: dict[str, str]) -> str:
    """The name of a column as the table has it, without the table's own name before it."""
    name = ".".join(path[1:] if len(path) > 1 and path[0].lower() == "steps" else path)
    if name.lower() in columns:
        return columns[name.lower()]
    near = difflib.get_close_matches(name.lower(), columns, n=1)
    hint = f"Did you mean {columns[near[0]]}? " if near else ""
    raise InvalidPredicate(
        f"There is no column {name!r}. {hint}The columns are {', '.join(columns.values())}. "
        "A text stands in single quotes, as in tool = 'mul'."
    )


def _check_operator(node: _Node) -> None:
    if node["type"] not in _OPERATORS:
        _refuse(f"the operator {node['type'].removeprefix('OPERATOR_').replace('_', ' ')}")


def _check_constant(node: _Node) -> None:
    if node["literal"]["kind"] not in _LITERALS:
        _refuse(f"a value of the kind {node['literal']['kind']}")


def _check_type(node: _Node) -> None:
    name = node["type_name"]
    if name.lower() not in _CASTS or node["qualified_name"] != {"path": [name]}:
        _refuse(f"a cast to {name}; numbers, BOOLEAN and VARCHAR are possible")


def _check_function(node: _Node) -> None:
    name, arguments = node["function_name"], node.get("arguments", [])
    if name not in FUNCTIONS | _SIGNS:
        _refuse(f"{name}; the functions are {', '.join(sorted(FUNCTIONS))}")
    if node["qualified_name"] != {"path": [name]} or node["order_bys"] != {"type": "ORDER_MODIFIER"}:
        _refuse(f"{name} with more than plain arguments")
    if any(argument.keys() != {"expression"} for argument in arguments):
        _refuse(f"named arguments of {name}")
    if name not in _SIGNS:
        node.pop("is_operator", None)  # LIKE ... ESCAPE is written, and so read again, as the function like_escape


def _check_window(node: _Node) -> None:
    """One of the functions, over the episode in the order of t, or over the whole episode."""
    name = node["function_name"]
    if name not in WINDOW_FUNCTIONS or node["qualified_name"] != {"path": [name]}:
        _refuse(f"{name} OVER ...; with OVER go {', '.join(sorted(WINDOW_FUNCTIONS))}")
    if any(argument.keys() != {"expression"} for argument in node.get("arguments", [])):
        _refuse(f"named arguments of {name}")
    frame = _without_locations({part: node.get(part) for part in ("partitions", "orders", "start", "end")})
    if frame not in _episode_windows():
        _refuse(f"{name} OVER another window; write OVER episode, or OVER (PARTITION BY episode_id)")


@cache
def _episode_windows() -> tuple[_Node, ...]:
    """What may stand after OVER, as the parser gives it."""
    nodes = [
        _tree(f"{_BEFORE} lag(t) OVER {window}")["statements"][0]["node"]["where_clause"]
        for window in ("(PARTITION BY episode_id ORDER BY t)", "(PARTITION BY episode_id)")
    ]
    parts = ("partitions", "orders", "start", "end")
    return tuple(_without_locations({part: node.get(part) for part in parts}) for node in nodes)


def _check_arrow(node: _Node) -> None:
    """The parser can't tell ``state -> 'memory'`` from a lambda; a constant on its right makes it the former."""
    if node["syntax_type"] != "SINGLE_ARROW" or node["expr"]["class"] != "CONSTANT":
        _refuse(_REFUSED["LAMBDA"])


_CHECKS = {
    "CONSTANT": _check_constant,
    "OPERATOR": _check_operator,
    "TYPE": _check_type,
    "FUNCTION": _check_function,
    "LAMBDA": _check_arrow,
    "WINDOW": _check_window,
}


def _refuse(what: str) -> NoReturn:
    raise InvalidPredicate(f"A condition on steps can't contain {what}. Compare columns and values of one step.")


def _name(node: _Node) -> str:
    return str(node.get("function_name") or node["class"].lower().replace("_", " "))


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")


def _children(part: Any) -> Iterator[_Node]:
    """The nodes right below a node, whichever fields they lie in."""
    for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        if isinstance(value, dict) and "class" in value:
            yield value
        else:
            yield from _children(value)


def _descendants(node: _Node) -> Iterator[_Node]:
    yield node
    for child in _children(node):
        yield from _descendants(child)


def _without_locations(part: Any) -> Any:
    if isinstance(part, dict):
        return {
            name: _without_locations(value) for name, value in part.items() if not name.startswith("query_location")
        }
    return [_without_locations(value) for value in part] if isinstance(part, list) else part


@cache
def _expected_rest() -> _Node:
    """The statement's node around the condition."""
    node: _Node = _tree(f"{_BEFORE}\ntrue")["statements"][0]["node"]
    return {name: part for name, part in node.items() if name != "where_clause"}


_parsing = threading.Lock()


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1, "enable_external_access": False, "lock_configuration": True})


def _tree(sql: str) -> _Node:
    """DuckDB's parse tree of a text, or its error."""
    serialize = "SELECT json_serialize_sql(?, skip_default := true, skip_null := true, skip_empty := true)"
    try:
        tree: _Node = json.loads(_scalar(serialize, sql))
    except RecursionError as error:
        raise InvalidPredicate("The condition is nested too deep. Put it simpler.") from error
    return tree


def _written(statement: _Node) -> str:
    """The condition of a statement as text, as DuckDB writes it."""
    sql = _scalar("SELECT json_deserialize_sql(?::JSON)", json.dumps({"error": False, "statements": [statement]}))
    before, _, canonical = sql.partition(f"{_BEFORE} ")
    if before or len(canonical) > MAX_CHARACTERS:
        raise InvalidPredicate(f"The condition written out has {len(canonical):,} characters; put it shorter.")
    return canonical


def _scalar(sql: str, argument: str) -> str:
    """The one value of a query on the connection that all threads share."""
    try:
        with _parsing:
            row = _parser().execute(sql, [argument]).fetchone()
    except duckdb.Error as error:
        raise InvalidPredicate(f"The condition can't be read: {str(error).splitlines()[0]}.") from error
    return str(row[0]) if row else ""
