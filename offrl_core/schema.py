"""The trace schema as data: one row per decision of an agent.

Two tables hold a log. ``steps`` has one row per decision, in flat typed columns; free-form parts (state, arguments,
metadata) stay JSON *text*, because a reader that infers one struct for all tools invents arguments and rewrites dates.
``records`` keeps each raw record once; a step points to it by ``record``, so the evidence behind every number stays
readable without a copy of a conversation on each of its rows.

``COLUMNS`` is the single list: the tables, the importers, the SQL help and the docs are made from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 1
LARGEST_REWARD = 1e100  # in size; sums over any log and squares of these stay finite numbers

_ARROW_TYPES = {
    "VARCHAR": pa.string(),
    "JSON": pa.string(),
    "BIGINT": pa.int64(),
    "INTEGER": pa.int32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "VARCHAR[]": pa.list_(pa.string()),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``steps``: its name, SQL type, meaning, and whether a row is useless without it."""

    name: str
    sql_type: str
    meaning: str
    required: bool = False

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type that carries this column between Python and DuckDB."""
        return _ARROW_TYPES[self.sql_type]


COLUMNS: tuple[Column, ...] = (
    Column("episode_id", "VARCHAR", "which run of the agent the step belongs to", required=True),
    Column("t", "INTEGER", "position of the step in its episode, rising", required=True),
    Column("task", "VARCHAR", "what the agent was asked to do, or the kind of task"),
    Column("state", "JSON", "what the agent saw before acting: user_goal, memory, retrieved_context, ... as JSON text"),
    Column("state_text", "VARCHAR", "the state as one short text, where the writer of the log gave one (worlds do)"),
    Column("available_tools", "VARCHAR[]", "actions that were valid at this step; NULL where the log doesn't say"),
    Column(
        "action", "VARCHAR", "name of what was done: the tool, or the type for actions without a tool", required=True
    ),
    Column("action_type", "VARCHAR", "tool_call, message, handoff, invalid or env_action"),
    Column("tool", "VARCHAR", "tool called; NULL for a message"),
    Column("arguments", "JSON", "arguments of the call as canonical JSON text; NULL where they could not be parsed"),
    Column("arguments_raw", "VARCHAR", "arguments exactly as the file had them, where they were text"),
    Column(
        "arguments_status",
        "VARCHAR",
        "object, json_string, double_encoded, python_literal, non_object, empty, malformed or absent",
    ),
    Column("arguments_hash", "VARCHAR", "hash of the canonical arguments: equal calls have equal hashes"),
    Column("decision_id", "VARCHAR", "reply of the model that the action came from; parallel calls share it"),
    Column("call_index", "INTEGER", "position among the calls of one reply"),
    Column("tool_result", "VARCHAR", "what came back; NULL means no result was recorded, '' means an empty one"),
    Column("error", "VARCHAR", "why the action failed; NULL means no failure was recorded"),
    Column("reward", "DOUBLE", "reward of this step; NULL means unknown and is never counted as 0"),
    Column("terminal", "BOOLEAN", "the task ended here: nothing follows, no bootstrap; NULL means the log can't tell"),
    Column("timeout", "BOOLEAN", "the episode was cut here although the task went on; NULL means the log can't tell"),
    Column(
        "end_reason",
        "VARCHAR",
        "on the last step of an episode: terminated, truncated (a limit), cut (the record breaks off) or unknown",
    ),
    Column("parent_episode", "VARCHAR", "episode that started this one (a sub-agent) or that it branches off from"),
    Column("prompt_version", "VARCHAR", "version or hash of the system prompt"),
    Column("tool_schema_version", "VARCHAR", "version or hash of the tool definitions"),
    Column("environment_version", "VARCHAR", "version of what the agent acted in"),
    Column("action_logprob", "DOUBLE", "log probability of the action under the behavior policy, where logged"),
    Column("action_logprobs", "JSON", "log probabilities as logged (a list per token, say)"),
    Column("reward_components", "JSON", "parts of the reward by name"),
    Column("reward_source", "VARCHAR", "who judged: verifier, environment, human, rule"),
    Column("verifier_version", "VARCHAR", "version of the judge"),
    Column("split", "VARCHAR", "train, test, ... as the log says"),
    Column("behavior_policy", "VARCHAR", "who acted: agent, model or logging policy"),
    Column("temperature", "DOUBLE", "sampling temperature of the model"),
    Column("latency_ms", "DOUBLE", "time the step took, milliseconds"),
    Column("cost_usd", "DOUBLE", "cost of the step, US dollars"),
    Column("safety_flags", "JSON", "safety flags raised at this step"),
    Column("metadata", "JSON", "everything else the log said about the step, and fields this schema doesn't know"),
    Column("source_file", "VARCHAR", "file the step was read from"),
    Column("record", "BIGINT", "record of that file, counted from 1: the key into the table records"),
    Column("message_index", "INTEGER", "for conversations: index of the acting message in the record"),
    Column("upload_order", "BIGINT", "position in the order of reading, before sorting by t"),
)

COLUMN_NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)
TEXT_COLUMNS: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.sql_type in ("VARCHAR", "JSON"))
STEPS_ARROW_SCHEMA = pa.schema([(column.name, column.arrow_type) for column in COLUMNS])
# Builders of columns that stay small are used again; and the texts of a column in one part may be 2 GB at most.
_ROWS_AT_A_TIME = 2**10
RECORDS_ARROW_SCHEMA = pa.schema([("source_file", pa.string()), ("record", pa.int64()), ("raw", pa.string())])


# Made once: json.dumps builds a new encoder on each call with options.
_ENCODER = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str, check_circular=False
)


def _reused(encoder: json.JSONEncoder) -> Callable[[Any], str]:
    """``encoder.encode``, with the one encoder in C that it would otherwise make for each value: twice as fast."""
    make = getattr(json.encoder, "c_make_encoder", None)  # another Python than CPython has none
    if make is None:
        return encoder.encode
    write = json.encoder.encode_basestring
    key, item = encoder.key_separator, encoder.item_separator
    parts = make(None, encoder.default, write, None, key, item, encoder.sort_keys, encoder.skipkeys, encoder.allow_nan)

    def encode(value: Any) -> str:
        return write(value) if isinstance(value, str) else "".join(parts(value, 0))

    return encode


_encode = _reused(_ENCODER)


def canonical_json(value: Any) -> str:
    """Write a value as JSON text that is equal for equal values: sorted keys, no spaces, Unicode kept.

    NaN and infinities are written as Python's JSON does (``NaN``), so that nothing turns into null on the way.
    """
    return _encode(value)


def short_hash(text: str) -> str:
    """First 16 hexadecimal digits of the SHA-256 of a text; lone surrogates are hashed as they are."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8].hex()


def storable_text(text: str) -> str:
    r"""Make a text storable in Arrow and DuckDB: lone surrogates become their ``\udXXX`` escape, the rest stays."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def steps_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Build the Arrow table of steps from row mappings; columns a row doesn't name are NULL.

    Raises:
        KeyError: a row names a column the schema doesn't have.
    """
    named = set().union(*rows)
    if unknown := named - set(COLUMN_NAMES):
        raise KeyError(f"columns outside the trace schema: {sorted(unknown)}")
    step = pa.struct([field for field in STEPS_ARROW_SCHEMA if field.name in named])
    starts = range(0, len(rows), _ROWS_AT_A_TIME)
    batches = [_steps_batch(rows[start : start + _ROWS_AT_A_TIME], step) for start in starts]
    return pa.Table.from_batches(batches, schema=STEPS_ARROW_SCHEMA)


def _steps_batch(rows: Sequence[Mapping[str, Any]], step: pa.StructType) -> pa.RecordBatch:
    """Rows as columns in one go: Arrow itself looks for the fields of a step in each row."""
    try:
        structs = pa.array(rows, type=step)
    except UnicodeEncodeError:  # seldom, and to look at each text beforehand would take as long as all the rest
        structs = pa.array([_storable_row(row) for row in rows], type=step)
    named = dict(zip(step.names, structs.flatten(), strict=True))
    columns = [
        named[field.name] if field.name in named else pa.nulls(len(rows), field.type) for field in STEPS_ARROW_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STEPS_ARROW_SCHEMA)


def _storable_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: storable_text(value) if isinstance(value, str) else value for name, value in row.items()}
