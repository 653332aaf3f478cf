"""Steps of the trace schema as columns: what ``trace_schema`` does with one record, done with many at once.

The rules stay those of ``trace_schema``: where a column holds few different values, its functions read each of them once;
where it holds many, the values that need no rule at all (plain text, numbers, JSON that is kept as JSON) are taken as
they are, and the functions read the others. A record with any value that a rule would report is left to Python as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from offrl_core.importers import trace_schema as rules
from offrl_core.importers.fields import finite_number, read_arguments
from offrl_core.importers.json_leaves import Leaves, Path, canonical, canonical_meant, first_bytes, hashes_of, members
from offrl_core.importers.records import parse_json
from offrl_core.importers.report import UNREADABLE, ImportReport
from offrl_core.schema import COLUMNS, canonical_json, storable_text

BoolArray = NDArray[np.bool_]
Rule = Callable[[Any], Any]  # the cell of a value that isn't null; an Unusable leaves the record to Python

OPENED = ("action", "observation", "metadata")
_IN_STATE = ("state_text", "key", "available_tools")
_NESTED = {"action": rules.IN_ACTION, "observation": rules.IN_OBSERVATION}
_FEW, _SAMPLE = 128, 512  # a column with so few values among its first ones is read value by value
_QUOTE, _BRACE = ord('"'), ord("{")


def columns_of_leaves(cursor: duckdb.DuckDBPyConnection, leaves: Leaves) -> tuple[dict[str, pa.Array], BoolArray]:
    """The columns of the schema, without provenance, and the flag ``done``.

    Returns:
        Columns by name, and (N,) which records are to be read by Python instead.
    """
    cells = _Cells(cursor, leaves)
    return cells.columns(), cells.odd


class _Cells:
    """Columns in the making.

    Attributes:
        odd: (N,) records that Python has to read.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, leaves: Leaves) -> None:
        self._cursor, self._leaves = cursor, leaves
        self._in_state = members(cursor, leaves[("state",)], _IN_STATE)
        self.odd = np.zeros(leaves.n, dtype=bool)

    def columns(self) -> dict[str, pa.Array]:
        """All columns."""
        self._refuse_what_is_said_twice()
        found: dict[str, pa.Array] = {
            "episode_id": self._text("episode_id", lambda value: rules.episode_id(value)),
            "t": self._numbers("t", rules.step_number, pa.int32()),
            "error": self._text("error", rules.error_text),
            "state_text": self._from_state("state_text", self._state_text()),
            "available_tools": self._from_state("available_tools", self._state_tools()),
            "metadata": self._metadata(),
        }
        found |= {name: self._typed(name) for name in rules.BY_TYPE if name not in found}
        found["action"] = self._action()
        found |= self._defaults(found)
        found |= self._arguments(found)
        for name in ("episode_id", "t", "action"):
            self.odd |= np.asarray(found[name].is_null())
        blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(found["episode_id"]), ""), True)
        self.odd |= np.asarray(blank)
        found["error"] = _null_where(found["error"], pc.equal(found["error"], ""))
        found["done"] = self._done(found)
        return found

    # -- where a column comes from --

    def _leaf(self, name: str) -> tuple[pa.Array, BoolArray]:
        """JSON text of a column's values, from inside ``action``, ``observation`` or ``metadata`` or from the top.

        Returns:
            The texts, and which records have the field.
        """
        paths = [(part, key) for part, names in _NESTED.items() for key, column in names.items() if column == name]
        paths += [("metadata", name)] if name in rules.IN_METADATA else []
        column, present = self._leaves[(name,)], self._leaves.has((name,))
        if name in _NESTED:  # an object here isn't the name of an action
            present = present & ~self._leaves.is_object((name,))
            column = _null_where(column, pa.array(~present))
        if name == "tool_result":  # an observation that is no object is the result itself
            whole, is_it = self._leaves[("observation",)], self._leaves.has(("observation",))
            is_it = is_it & ~self._leaves.is_object(("observation",)) & ~present
            column, present = pc.if_else(pa.array(is_it), whole, column), present | is_it
        for path in paths:
            there = self._leaves.has(path)
            if there.all():
                column = self._leaves[path]
            elif there.any():
                column = pc.if_else(pa.array(there), self._leaves[path], column)
            present = present | there
        return column, present

    def _refuse_what_is_said_twice(self) -> None:
        """Leave to Python: the same field at two places, or provenance that isn't whole."""
        has = self._leaves.has
        for name in rules.IN_METADATA:
            self.odd |= has((name,)) & has(("metadata", name))
        for path in self._extras():
            if len(path) == 2:
                places = [has((part, path[1])).astype(np.int8) for part in ("metadata", "action", "observation")]
                self.odd |= np.sum(places, axis=0) > 1
        n_there = np.sum([has((name,)) for name in rules.PROVENANCE], axis=0)
        self.odd |= (n_there > 0) & (n_there < len(rules.PROVENANCE))
        if ("metadata", "extra") in self._leaves.columns:
            tops = [has(path) for path in self._extras() if len(path) == 1]
            self.odd |= has(("metadata", "extra")) & reduce(np.logical_or, tops, np.zeros(len(self.odd), dtype=bool))

    def _extras(self) -> list[Path]:
        """Fields that have no column."""
        known = {"metadata": rules.IN_METADATA} | _NESTED
        found = [path for path in self._leaves.columns if len(path) == 2 and path[0] in known]
        found = [path for path in found if path[1] not in known[path[0]]]
        return found + [path for path in self._leaves.columns if len(path) == 1 and path[0] not in rules.AT_TOP]

    # -- by type --

    def _typed(self, name: str) -> pa.Array:
        sql_type = _SQL_TYPES[name]
        rule = _without_problems(name)
        if sql_type == "VARCHAR":
            return self._text(name, rule)
        if sql_type == "JSON":
            return self._json(self._leaf(name)[0], rule)
        if sql_type in ("DOUBLE", "INTEGER"):
            return self._numbers(name, rule, _ARROW_TYPES[name])
        return self._by_rule(self._leaf(name)[0], rule, _ARROW_TYPES[name])

    def _by_rule(self, leaf: pa.Array, rule: Rule, arrow_type: pa.DataType) -> pa.Array:
        """Read each different value once, by a rule."""
        if leaf.null_count == len(leaf):
            return pa.nulls(len(leaf), arrow_type)
        encoded = leaf.dictionary_encode()
        values, refused = [], []
        for i, text in enumerate(encoded.dictionary.to_pylist()):
            value, reason = parse_json(text)
            try:
                if reason:
                    raise rules.Unusable(None, "not JSON", reason)
                cell = None if value is None else rule(value)
            except (rules.Unusable, *UNREADABLE):
                cell = None
                refused.append(i)
            values.append(storable_text(cell) if isinstance(cell, str) else cell)
        if refused:
            self.odd |= np.isin(encoded.indices.fill_null(-1).to_numpy(), refused)
        return pa.array(values, type=arrow_type).take(encoded.indices)

    def _completed(self, taken: pa.Array, leaf: pa.Array, missing: BoolArray, rule: Rule) -> pa.Array:
        """Cells of which some were taken as they are, and the others are read by a rule."""
        if not missing.any():
            return taken
        mask = pa.array(missing)
        before, self.odd = self.odd, np.zeros(int(missing.sum()), dtype=bool)
        others = self._by_rule(leaf.filter(mask), rule, taken.type)
        odd, self.odd = self.odd, before
        self.odd[np.flatnonzero(missing)[odd]] = True
        return pc.replace_with_mask(taken, mask, others)

    def _text(self, name: str, rule: Rule) -> pa.Array:
        return self._text_of(self._leaf(name)[0], rule)

    def _text_of(self, leaf: pa.Array, rule: Rule) -> pa.Array:
        """Text; most of it stands between quotes without an escape."""
        if _has_few(leaf):
            return self._by_rule(leaf, rule, pa.string())
        escaped = np.asarray(pc.match_substring(leaf, "\\").fill_null(False))
        plain = (first_bytes(leaf) == _QUOTE) & ~escaped
        taken = pc.binary_slice(_where(leaf, plain).cast(pa.binary()), 1, -1).cast(pa.string())
        return self._completed(taken, leaf, np.asarray(leaf.is_valid()) & ~plain, rule)

    def _numbers(self, name: str, rule: Rule, arrow_type: pa.DataType) -> pa.Array:
        leaf = self._leaf(name)[0]
        if _has_few(leaf):
            return self._by_rule(leaf, rule, arrow_type)
        pattern = "^-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?$" if arrow_type == pa.float64() else "^-?[0-9]{1,9}$"
        plain = np.asarray(pc.match_substring_regex(leaf, pattern).fill_null(False))
        taken = _where(leaf, plain).cast(arrow_type)
        if arrow_type == pa.float64():
            plain &= np.asarray(pc.is_finite(taken).fill_null(False))
        return self._completed(taken, leaf, np.asarray(leaf.is_valid()) & ~plain, rule)

    def _json(self, leaf: pa.Array, rule: Rule) -> pa.Array:
        if _has_few(leaf):
            return self._by_rule(leaf, rule, pa.string())
        is_text = first_bytes(leaf) == _QUOTE
        if not is_text.any():
            taken = canonical(self._cursor, leaf)
        elif is_text.all():
            taken = canonical_meant(self._cursor, leaf)
        else:
            mask = pa.array(is_text)
            taken = canonical(self._cursor, _null_where(leaf, mask))
            taken = pc.if_else(mask, canonical_meant(self._cursor, _null_where(leaf, pa.array(~is_text))), taken)
        return self._completed(taken, leaf, np.asarray(leaf.is_valid()) & np.asarray(taken.is_null()), rule)

    # -- by rules of their own --

    def _state_text(self) -> pa.Array:
        leaf = pc.coalesce(self._in_state[0], self._in_state[1])  # a null there is the text "null" and counts
        return self._text_of(leaf, lambda value: value if isinstance(value, str) else canonical_json(value))

    def _state_tools(self) -> pa.Array:
        leaf = self._in_state[2]
        there = ~self._leaves.has(("available_tools",))
        return self._by_rule(_where(leaf, there), _without_problems("available_tools"), _ARROW_TYPES["available_tools"])

    def _from_state(self, name: str, inner: pa.Array) -> pa.Array:
        """A column that the state gives where the record itself doesn't."""
        own = self._typed(name)
        there = self._leaves.has((name,))
        if not there.any():
            return inner
        return own if there.all() else _chosen(there, own, inner)

    def _action(self) -> pa.Array:
        names = [self._text(name, rules.name_of_action) for name in ("action", "tool", "action_type")]
        names = [_null_where(column, pc.equal(column, "")) for column in names]
        return pc.coalesce(*names)

    def _defaults(self, found: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """What records imply but don't say; an explicit null stays NULL."""
        kind, tool, logprob = found["action_type"], found["tool"], found["action_logprob"]
        has_tool = np.asarray(pc.fill_null(pc.not_equal(tool, ""), False)) & ~self._leaf("action_type")[1]
        is_call = np.asarray(pc.fill_null(pc.equal(kind, "tool_call"), False)) & ~self._leaf("tool")[1]
        leaf, _ = self._leaf("action_logprobs")
        unsaid = np.asarray(leaf.is_valid()) & ~self._leaf("action_logprob")[1]
        if unsaid.any():
            implied = self._by_rule(_where(leaf, unsaid), finite_number, pa.float64())
            logprob = pc.if_else(pa.array(unsaid), implied, logprob)
        return {
            "action_type": pc.if_else(pa.array(has_tool), "tool_call", kind) if has_tool.any() else kind,
            "tool": pc.if_else(pa.array(is_call), found["action"], tool) if is_call.any() else tool,
            "action_logprob": logprob,
        }

    def _arguments(self, found: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """The four columns of the arguments: as the record's own status says, else by looking at them."""
        leaf = self._leaf("arguments")[0]
        stated = self._leaf("arguments_status")[1]
        raw, status = found["arguments_raw"], found["arguments_status"]
        known = pc.is_in(status, pa.array([*rules.STATUSES, None]))
        self.odd |= stated & ~np.asarray(known)
        is_text = first_bytes(self._leaf("arguments_raw")[0]) == _QUOTE
        self.odd |= ~stated & np.asarray(raw.is_valid()) & (~is_text | np.asarray(leaf.is_null()))
        is_object = (first_bytes(leaf) == _BRACE) | stated
        text = self._json(_where(leaf, is_object), _without_problems("arguments"))
        result = {
            "arguments": text,
            "arguments_raw": raw,
            "arguments_status": _chosen(stated, status, pc.if_else(leaf.is_valid(), "object", "absent")),
            "arguments_hash": None,
        }
        others = ~is_object & np.asarray(leaf.is_valid())
        if others.any():
            mask = pa.array(others)
            for name, column in self._read_arguments(leaf.filter(mask), np.flatnonzero(others)).items():
                given = pc.coalesce(raw.filter(mask), column) if name == "arguments_raw" else column
                result[name] = pc.replace_with_mask(result[name], mask, given)
        result["arguments_hash"] = hashes_of(self._cursor, result["arguments"])
        return result

    def _read_arguments(self, leaf: pa.Array, places: NDArray[np.int64]) -> dict[str, pa.Array]:
        """Arguments that are no objects, each different one read once; their places are among all records."""
        encoded = leaf.dictionary_encode()
        parsed = [parse_json(text) for text in encoded.dictionary.to_pylist()]
        refused = np.array([bool(reason) for _, reason in parsed])
        self.odd[places[refused[encoded.indices.to_numpy()]]] = True
        read = [read_arguments(value) for value, _ in parsed]
        columns: dict[str, list[str | None]] = {
            "arguments": [one.text for one in read],
            "arguments_raw": [one.raw for one in read],
            "arguments_status": [one.status for one in read],
        }
        return {
            name: pa.array([None if v is None else storable_text(v) for v in values], pa.string()).take(encoded.indices)
            for name, values in columns.items()
        }

    def _metadata(self) -> pa.Array:
        """``metadata`` without what has a column, and the fields of other parts that have none."""
        leaf, has = self._leaves[("metadata",)], self._leaves.has
        is_other = np.asarray(leaf.is_valid()) & ~self._leaves.is_object(("metadata",))
        extras = self._extras()
        any_extra = reduce(np.logical_or, (has(path) for path in extras), np.zeros(len(self.odd), dtype=bool))
        flat = self._flat_metadata(_where(leaf, is_other & ~any_extra)) if is_other.any() else None
        self.odd |= is_other & any_extra
        inner = {path[1] for path in extras if len(path) == 2}
        fields = {name: self._member(name, [path for path in extras if path[1:] == (name,)]) for name in inner}
        tops = [self._member(path[0], [path]) for path in sorted(extras) if len(path) == 1]
        if tops:
            extra = _object(tops)
            member = pc.binary_join_element_wise('"extra":', extra, "")
            fields["extra"] = pc.coalesce(member, fields["extra"]) if "extra" in fields else member
        text = _object([fields[name] for name in sorted(fields)]) if fields else pa.nulls(len(leaf), pa.string())
        return text if flat is None else pc.coalesce(flat, text)

    def _flat_metadata(self, leaf: pa.Array) -> pa.Array:
        """``metadata`` given as JSON text, as flat tables have it; fields with a column of their own are left to Python."""

        def rule(value: Any) -> str | None:
            parsed, reason = parse_json(value) if isinstance(value, str) else (value, "")
            if reason or not isinstance(parsed, dict) or any(name in parsed for name in rules.IN_METADATA):
                raise rules.Unusable(None, "metadata", "it has to be taken apart")
            return canonical_json(parsed) if parsed else None

        if _has_few(leaf):
            return self._by_rule(leaf, rule, pa.string())
        taken = canonical_meant(self._cursor, leaf)
        names = "|".join(rules.IN_METADATA)
        plain = first_bytes(taken) == _BRACE
        plain &= ~np.asarray(pc.match_substring_regex(taken, f'"(?:{names})"').fill_null(True)) & (
            np.asarray(pc.binary_length(taken).fill_null(0)) > 2
        )
        return self._completed(_where(taken, plain), leaf, np.asarray(leaf.is_valid()) & ~plain, rule)

    def _member(self, name: str, paths: Sequence[Path]) -> pa.Array:
        """``"name":value`` of a field without a column; NULL where no path has it."""
        leaf = reduce(lambda a, b: pc.coalesce(a, b), (self._leaves[path] for path in paths))
        there = reduce(np.logical_or, (self._leaves.has(path) for path in paths))
        text = self._by_rule(leaf, canonical_json, pa.string()) if _has_few(leaf) else self._canonical(leaf)
        return _where(pc.binary_join_element_wise(f"{canonical_json(name)}:", text.fill_null("null"), ""), there)

    def _canonical(self, leaf: pa.Array) -> pa.Array:
        taken = canonical(self._cursor, leaf)
        missing = np.asarray(leaf.is_valid()) & np.asarray(taken.is_null())
        return self._completed(taken, leaf, missing, canonical_json)

    def _done(self, found: dict[str, pa.Array]) -> pa.Array:
        """The bare ``done``, where the record doesn't say it more exactly."""
        bare = np.asarray(found["terminal"].is_null()) & np.asarray(found["timeout"].is_null())
        return self._by_rule(_where(self._leaves[("done",)], bare), _flag, pa.bool_()).fill_null(False)


_SQL_TYPES = {column.name: column.sql_type for column in COLUMNS}
_ARROW_TYPES = {column.name: column.arrow_type for column in COLUMNS}


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise rules.Unusable("done", "done is not true or false", "")
    return value


def _without_problems(name: str) -> Rule:
    """The rule of a column, which refuses what it would have to report."""

    def rule(value: Any) -> Any:
        report = ImportReport()
        cell = rules.cell(name, value, report.at(""))
        if report.tally:
            raise rules.Unusable(name, "problem", "")
        return cell

    return rule


def _has_few(leaf: pa.Array) -> bool:
    if len(leaf) <= _FEW or leaf.null_count == len(leaf):
        return True
    return bool(pc.count_distinct(leaf.slice(0, _SAMPLE)).as_py() <= _FEW / 2)


def _where(column: pa.Array, mask: BoolArray) -> pa.Array:
    return column if mask.all() else _null_where(column, pa.array(~mask))


def _null_where(column: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(pc.fill_null(mask, False), pa.scalar(None, column.type), column)


def _chosen(mask: BoolArray, yes: pa.Array, no: pa.Array) -> pa.Array:
    """Elementwise, also for lists."""
    if not pa.types.is_list(yes.type):
        return pc.if_else(pa.array(mask), yes, no)
    places = np.arange(len(mask)) + np.where(mask, 0, len(mask))
    return pa.concat_arrays([yes, no]).take(pa.array(places))


def _object(members: Sequence[pa.Array]) -> pa.Array:
    """A JSON object of members that are there; NULL where none is."""
    text = pa.repeat("", len(members[0]))  # step by step: joining all at once, Arrow leaves out rows that hold nothing
    for member in members:
        comma = pc.if_else(pc.equal(text, ""), "", ",")
        text = pc.binary_join_element_wise(text, pc.binary_join_element_wise(comma, member, "").fill_null(""), "")
    return _null_where(pc.binary_join_element_wise("{", text, "}", ""), pc.equal(text, ""))
