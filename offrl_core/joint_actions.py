"""Parallel calls of one reply as one joint action: a model that calls two tools at once made one decision, not two.

As separate rows, the second call has no result of the first one in its state, and a learner sees two choices where the
agent made one. Joined, the action is "search + search + weather", names sorted, because parallel calls have no order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from .log import Log
from .schema import COLUMNS, STEPS_ARROW_SCHEMA, canonical_json, short_hash
from .wording import counted

SEPARATOR = " + "

# Column -> what becomes of it where several calls are joined; the others keep the value of the first call.
_JOINED = {
    "t": "min(t) - coalesce(sum(count(*) - 1) OVER earlier, 0)",
    "action": f"string_agg(action, '{SEPARATOR}' ORDER BY action)",
    "action_type": "CASE WHEN count(*) > 1 THEN 'joint' ELSE first(action_type ORDER BY t) END",
    "tool": "CASE WHEN count(*) = 1 THEN first(tool ORDER BY t) END",
    "arguments_raw": "CASE WHEN count(*) = 1 THEN first(arguments_raw ORDER BY t) END",
    "arguments_status": "CASE WHEN count(*) = 1 THEN first(arguments_status ORDER BY t) ELSE 'non_object' END",
    "arguments": """CASE WHEN count(*) = 1 THEN first(arguments ORDER BY t)
        ELSE to_json(list({'tool': action, 'arguments': arguments} ORDER BY action, call_index))::VARCHAR END""",
    "arguments_hash": "CASE WHEN count(*) = 1 THEN first(arguments_hash ORDER BY t) END",
    "call_index": "0",
    "tool_result": """CASE WHEN count(*) = 1 THEN first(tool_result ORDER BY t) WHEN count(tool_result) > 0
        THEN to_json(list(tool_result ORDER BY action, call_index))::VARCHAR END""",
    "error": f"string_agg(error, '{SEPARATOR}' ORDER BY action, call_index)",
    "reward": "sum(reward)",
    "terminal": "last(terminal ORDER BY t)",
    "timeout": "last(timeout ORDER BY t)",
    "end_reason": "last(end_reason ORDER BY t)",
    "action_logprob": "CASE WHEN count(action_logprob) = count(*) THEN sum(action_logprob) END",
    "latency_ms": "max(latency_ms)",
    "cost_usd": "sum(cost_usd)",
}


def n_parallel(log: Log) -> int:
    """How many replies of the log made more than one call."""
    replies = "SELECT 1 FROM steps WHERE decision_id IS NOT NULL GROUP BY episode_id, decision_id HAVING count(*) > 1"
    return int(log.rows(f"SELECT count(*) FROM ({replies})")[0][0])


def join_parallel_calls(log: Log) -> Log:
    """The log with one row per reply of the model; rows without a ``decision_id`` stay as they are.

    A reward is the sum of those of the calls, unknown where all are; the time is that of the slowest call, the cost the sum.
    """
    table = log.cursor().sql(_SQL).to_arrow_table()
    joined = table["joined"].to_pylist()
    table = _with_hashes(table.drop_columns("joined").cast(STEPS_ARROW_SCHEMA), joined)
    n = n_parallel(log)
    note = (
        f"The parallel calls of {counted(n, 'reply')} were joined here: "
        f"of {log.n_steps:,} steps {table.num_rows:,} are left."
    )
    return Log(
        table,
        name=f"{log.name}, parallel calls joined",
        fingerprint=short_hash(f"{log.fingerprint} joint"),
        source=None,
        report=replace(log.report, notes=[*log.report.notes, note]),
        records=log,
    )


def _with_hashes(steps: pa.Table, joined: Sequence[bool]) -> pa.Table:
    """Canonical arguments and their hash for the rows that were joined just now; those of an earlier time have them."""
    hashes, arguments = steps["arguments_hash"].to_pylist(), steps["arguments"].to_pylist()
    for i, is_joined in enumerate(joined):
        if is_joined:
            arguments[i] = canonical_json(_calls(arguments[i]))
            hashes[i] = short_hash(arguments[i])
    for name, values in (("arguments", arguments), ("arguments_hash", hashes)):
        steps = steps.set_column(steps.schema.get_field_index(name), name, pa.array(values, pa.string()))
    return steps


def _calls(text: str) -> list[dict[str, object]]:
    """The joined calls, their arguments no longer text inside text."""
    calls = json.loads(text)
    return [call | {"arguments": json.loads(call["arguments"]) if call["arguments"] else None} for call in calls]


_SELECTED = ",\n    ".join(
    f"{_JOINED.get(c.name, f'first({c.name} ORDER BY t)')} AS {c.name}" for c in COLUMNS if c.name != "episode_id"
)
_SQL = f"""
WITH numbered AS (
    SELECT *, coalesce(decision_id, 'row ' || row) AS reply FROM steps
)
SELECT episode_id, {_SELECTED}, count(*) > 1 AS joined
FROM numbered
GROUP BY episode_id, reply
WINDOW earlier AS (PARTITION BY episode_id ORDER BY min(t) ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
ORDER BY min(row)"""
