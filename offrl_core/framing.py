"""Framing: which columns are state, action and reward. It turns a log of steps into something to learn from.

A framing is SQL expressions over the columns of ``steps``; ``episode`` is the window "this episode in order of t", so
``lag(tool) OVER episode`` is the last tool. The framed table is made once per log and framing, with states and actions
as integers, so that every later question is a scan over small numbers.

What follows a step is settled here, before any coverage edit: removing rows later never makes two distant steps
neighbours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from .errors import InvalidConfig
from .log import Log
from .schema import canonical_json, short_hash
from .worlds import make_world


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """SQL expressions that say what is state, action and reward.

    Attributes:
        state: text expression, the state key.
        action: text expression, the action name.
        reward: numeric expression, reward of the step; NULL is unknown and never 0.
        discount: γ, between 0 and 1.
        success: boolean expression over ``episode_return`` (undiscounted sum of the framed rewards of an episode).
        title: what people call it.
        sentence: what it does, in words.
    """

    state: str
    action: str = "action"
    reward: str = "reward"
    discount: float = 0.99
    success: str = "episode_return > 0"
    title: str = "custom framing"
    sentence: str = ""

    def __post_init__(self) -> None:
        """Check the discount."""
        if not 0 <= self.discount <= 1:
            raise InvalidConfig(f"The discount is {self.discount}; it must lie between 0 and 1.")

    @property
    def token(self) -> str:
        """Short hash that names the framed table."""
        return short_hash(canonical_json([self.state, self.action, self.reward, self.success, self.discount]))


_LAST_TOOL = "coalesce(lag(action) OVER episode, 'start')"
_OUTCOME_AT_END = "CASE WHEN lead(t) OVER episode IS NULL THEN sum(reward) OVER (PARTITION BY episode_id) ELSE 0 END"

FRAMINGS: dict[str, Framing] = {
    "world_state": Framing(
        state="state_text",
        title="State as the world wrote it",
        sentence="state = what the agent could see; action = tool; reward = as logged, step by step",
    ),
    "last_tool": Framing(
        state=f"{_LAST_TOOL} || CASE WHEN lag(error) OVER episode IS NOT NULL THEN ' (failed)' ELSE '' END",
        reward=_OUTCOME_AT_END,
        title="Last tool and whether it failed",
        sentence="state = the tool called just before and whether it failed; action = tool; "
        "reward = the episode's, at its end",
    ),
    "step": Framing(
        state="'step ' || (row_number() OVER episode)",
        reward=_OUTCOME_AT_END,
        title="Position in the episode",
        sentence="state = how many steps the agent has taken; action = tool; reward = the episode's, at its end",
    ),
}


def default_framing_name(log: Log) -> str:
    """``world_state`` where every step carries its state as text, else ``last_tool``."""
    name: str | None = log.derived.get("default_framing")
    if name is None:
        states_known = log.rows("SELECT bool_and(state_text IS NOT NULL) FROM steps")[0][0]
        name = log.derived["default_framing"] = "world_state" if states_known else "last_tool"
    return name


def default_framing(log: Log) -> Framing:
    """The preset that fits the log."""
    return FRAMINGS[default_framing_name(log)]


# Endings, as stored in the framed table: what may be bootstrapped from.
GOES_ON, ENDED, CUT = 0, 1, 2

FRAMED_COLUMNS = ("state_key", "action_name", "framed_reward", "next_state_key", "episode_return", "success")


def framed_tables(log: Log, framing: Framing) -> str:
    """Make the framed tables of a log, once, and return the suffix of their names.

    ``framed_<suffix>`` has one row per step: row, episode_id, s, a, s2 (-1 where nothing follows), ending, framed_reward,
    episode_return, success. ``states_<suffix>`` and ``actions_<suffix>`` name the integers. ``framed_steps_<suffix>`` is
    the wide view: every column of ``steps`` with :data:`FRAMED_COLUMNS`.

    Raises:
        InvalidConfig: an expression is no valid SQL over the steps, or gives no state or action.
    """
    suffix = framing.token
    with log.lock:
        if f"framed_steps_{suffix}" not in log.derived:
            _make_tables(log, framing, suffix)
            log.derived[f"framed_steps_{suffix}"] = True
    return suffix


def _make_tables(log: Log, framing: Framing, suffix: str) -> None:
    cursor = log.cursor()
    try:
        cursor.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE draft AS
            SELECT row, episode_id, t, ({framing.state})::VARCHAR AS state_key, ({framing.action})::VARCHAR AS action_name,
                   ({framing.reward})::DOUBLE AS framed_reward, terminal, timeout,
                   lead(t) OVER episode AS next_t
            FROM steps WINDOW episode AS (PARTITION BY episode_id ORDER BY t)"""
        )
    except duckdb.Error as error:
        raise InvalidConfig(f"The framing can't be computed on this log: {str(error).splitlines()[0]}") from error
    missing = cursor.execute("SELECT count(*) FROM draft WHERE state_key IS NULL OR action_name IS NULL").fetchall()[0][
        0
    ]
    if missing:
        raise InvalidConfig(
            f"The framing gives no state or no action for {missing:,} of {log.n_steps:,} steps; "
            "wrap its expressions in coalesce(..., 'unknown')."
        )
    _make_states(cursor, suffix)
    _make_actions(log, cursor, suffix)
    # A gap in t means that steps are missing: what follows is then unknown, and the later step is no successor.
    # Where a log can't say whether its last step ended the task, the step counts as an ending (the dataset says so).
    # A reward that is NaN or infinite is unknown.
    cursor.execute(
        f"""
        CREATE OR REPLACE TABLE framed_{suffix} AS
        WITH known AS (
            SELECT * REPLACE (CASE WHEN isfinite(framed_reward) THEN framed_reward END AS framed_reward) FROM draft
        ), joined AS (
            SELECT row, episode_id, t, s, a, framed_reward,
                   next_t = t::BIGINT + 1 AND NOT coalesce(terminal, FALSE) AND NOT coalesce(timeout, FALSE) AS goes_on,
                   coalesce(terminal, next_t IS NULL AND timeout IS NULL) AS ended,
                   sum(framed_reward) OVER (PARTITION BY episode_id) AS episode_return,
                   count(*) OVER (PARTITION BY episode_id) = count(framed_reward) OVER (PARTITION BY episode_id) AS complete
            FROM known JOIN states_{suffix} USING (state_key) JOIN actions_{suffix} USING (action_name)
        )
        SELECT row, episode_id, t, s, a,
               CASE WHEN goes_on THEN lead(s) OVER (PARTITION BY episode_id ORDER BY t) ELSE -1 END AS s2,
               CASE WHEN goes_on THEN {GOES_ON} WHEN ended THEN {ENDED} ELSE {CUT} END::TINYINT AS ending,
               framed_reward,
               CASE WHEN complete THEN episode_return END AS episode_return,
               CASE WHEN complete THEN ({framing.success}) END AS success
        FROM joined ORDER BY row"""
    )
    cursor.execute("DROP TABLE draft")
    cursor.execute(
        f"""
        CREATE OR REPLACE VIEW framed_steps_{suffix} AS
        SELECT steps.*, here.state_key, action_name, framed_reward, after.state_key AS next_state_key,
               episode_return, success, framed.s, framed.a, framed.s2, framed.ending
        FROM framed_{suffix} AS framed JOIN steps USING (row)
        JOIN states_{suffix} AS here ON here.s = framed.s
        JOIN actions_{suffix} AS acted ON acted.a = framed.a
        LEFT JOIN states_{suffix} AS after ON after.s = framed.s2"""
    )


def _make_states(cursor: duckdb.DuckDBPyConnection, suffix: str) -> None:
    """Number the state keys in natural order, so that "result 9" stands before "result 10"."""
    keys = [key for (key,) in cursor.execute("SELECT DISTINCT state_key FROM draft").fetchall()]
    _make_index(cursor, f"states_{suffix}", "state_key", "s", sorted(keys, key=lambda key: (_natural_order(key), key)))


def _make_actions(log: Log, cursor: duckdb.DuckDBPyConnection, suffix: str) -> None:
    """Number the actions: in the world's order, else by how often they were taken; those only offered come last."""
    by_use = "SELECT action_name FROM draft GROUP BY action_name ORDER BY count(*) DESC, action_name"
    taken = [name for (name,) in cursor.execute(by_use).fetchall()]
    in_order = make_world(log.source.world).action_names if log.source else ()
    names = list(dict.fromkeys([*in_order, *taken, *sorted(offered_tools(log))]))
    _make_index(cursor, f"actions_{suffix}", "action_name", "a", names)


def offered_tools(log: Log) -> set[str]:
    """Every tool the log says was available somewhere, called or not."""
    found = log.rows("SELECT DISTINCT unnest(available_tools) FROM steps")
    return {name for (name,) in found if name is not None}


def _make_index(cursor: duckdb.DuckDBPyConnection, table: str, name_column: str, index: str, names: list[str]) -> None:
    arrow = pa.table({name_column: pa.array(names, pa.string()), index: pa.array(range(len(names)), pa.int32())})
    cursor.register("given_index", arrow)
    cursor.execute(f"CREATE OR REPLACE TABLE {table} AS FROM given_index")
    cursor.unregister("given_index")


def _natural_order(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if _INTEGER.fullmatch(part) else (0, part) for part in _INTEGER.split(text)]


_INTEGER = re.compile(r"(-?\d{1,15})")
