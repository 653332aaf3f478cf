"""Which rows of a framed log coverage edits leave, edit by edit.

Each edit is one query over what the edits before it left, and gives places in the log. What is asked of an edited log
later starts from these places: an edit is evaluated once, however many questions follow.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa

from .arrays import IntArray
from .coverage_edits import CoverageEdit, cannot_compute
from .errors import InvalidEdit
from .log import Log

KEPT_ROWS = "kept_rows"  # what SQL calls the table of the rows that are left


def kept_places(log: Log, token: str, edits: Sequence[CoverageEdit]) -> list[IntArray]:
    """Places in the log that are left after each edit, rising.

    Args:
        log: framed already.
        token: of its framing.
        edits: applied in order.

    Raises:
        InvalidEdit: a condition can't be computed on this log.
    """
    left: list[IntArray] = []
    cursor = log.cursor()
    for edit in edits:
        before = _rows_with(edit.columns, token)
        if left:
            cursor.register(KEPT_ROWS, table_of(left[-1]))
            before = f"{before} SEMI JOIN {KEPT_ROWS} USING (row)"
        # Rows of the whole log are read twice faster than they are copied, aside for an edit that looks at them twice.
        how = "" if left else "NOT MATERIALIZED"
        try:
            found = cursor.execute(f"WITH before AS {how} ({before}) SELECT row FROM ({edit.keep_sql})").fetchnumpy()
        except duckdb.Error as error:
            raise InvalidEdit(cannot_compute(error)) from error
        left.append(np.sort(np.asarray(found["row"]), kind="stable"))  # sorted already, as a rule
    return left


def table_of(places: IntArray) -> pa.Table:
    """Places as the table that SQL calls ``kept_rows``."""
    return pa.table({"row": pa.array(places)})


def _rows_with(columns: frozenset[str], token: str) -> str:
    """SELECT of the framed rows with some more columns; only the tables that hold these are joined."""
    joins = {
        "state_key": f"JOIN states_{token} USING (s)",
        "action_name": f"JOIN actions_{token} USING (a)",
        "next_state_key": f"LEFT JOIN (SELECT s AS s2, state_key AS next_state_key FROM states_{token}) USING (s2)",
    }
    of_steps = sorted(columns - joins.keys() - FRAMED_ALREADY)
    wanted = [joins[name] for name in joins if name in columns]
    if of_steps:
        wanted.append(f"JOIN (SELECT row, {', '.join(of_steps)} FROM steps) USING (row)")
    return f"SELECT * FROM framed_{token} {' '.join(wanted)}"


FRAMED_ALREADY = frozenset({"episode_id", "t", "framed_reward", "episode_return", "success"})
