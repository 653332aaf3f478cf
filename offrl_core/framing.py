"""Framing: which columns are state, action and reward. It turns a log of steps into something to learn from.

A framing is SQL expressions over the columns of ``steps``; ``episode`` is the window "this episode in order of t", so
``lag(tool) OVER episode`` is the last tool; :mod:`offrl_core.framing_choices` writes them from choices. SQL says what a
step's state, action and reward are; what follows a step and how an episode ended is the same for all framings and settled
here, once per log and framing, in arrays of integers.

That is before any coverage edit: removing rows later never makes two distant steps neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .arrays import BoolArray, FloatArray, IntArray
from .edges import Transitions
from .errors import InvalidConfig
from .framing_choices import PRESETS
from .framing_expressions import NAMES_TOOLS, RETURN_IS_POSITIVE, TOOLS_USED
from .framing_expressions import Framing as Framing  # at home here for everybody else
from .log import Log
from .schema import COLUMNS, LARGEST_REWARD
from .worlds import WORLDS, make_world

FRAMINGS: dict[str, Framing] = {name: choices.framing() for name, choices in PRESETS.items()}

MAX_PAIRS = 3_000_000  # states times actions; each is a number in several tables


def default_framing_name(log: Log) -> str:
    """``world_state`` where every step carries its state as text, else ``last_tool``.

    ``state_outcome`` where such a log has rewards on the last steps of episodes only: step by step, no return would be known.
    """
    name: str | None = log.derived.get("default_framing")
    if name is None:
        name = log.derived["default_framing"] = _default_framing_name(log)
    return name


def _default_framing_name(log: Log) -> str:
    if log.source is not None:
        return "world_state"
    if log.columns("state_text")["state_text"].null_count:
        return "last_tool"
    return "state_outcome" if _rewards_stand_at_the_end(log) else "world_state"


def _rewards_stand_at_the_end(log: Log) -> bool:
    """Whether only last steps have a known reward, as in logs that say how an episode turned out and nothing before."""
    columns = log.columns("episode_id", "t", "reward")
    known = columns["reward"].is_valid().to_numpy()
    if known.all() or not known.any():
        return False
    episodes, _, order = _in_time(columns)
    in_order = episodes[order]
    is_last = np.append(in_order[1:] != in_order[:-1], True)
    return not bool((known[order] & ~is_last).any()) and not bool(is_last.all())


def default_framing(log: Log) -> Framing:
    """The preset that fits the log."""
    return FRAMINGS[default_framing_name(log)]


FRAMED_COLUMNS = ("state_key", "action_name", "framed_reward", "next_state_key", "episode_return", "success")


class FramedLog(NamedTuple):
    """The steps of a log as states, actions and rewards.

    In SQL, ``framed_<token>`` has one row per step: row, episode_id, episode (its number), t, s, a, s2 (-1 where nothing
    follows), ending, framed_reward, episode_return, said_solved, success. ``framed_steps_<token>`` is the wide view: every
    column of ``steps`` with :data:`FRAMED_COLUMNS`.
    """

    states: tuple[str, ...]  # S keys, in natural order
    actions: tuple[str, ...]  # A names: in the world's order, else by use; those only offered come last
    rows: Transitions  # N
    episodes: IntArray  # (N,) number of the episode
    ranks: IntArray  # (N,) place when all rows are ordered by episode, then t
    episode_returns: FloatArray  # (N,) undiscounted, of the row's episode; NaN where a reward of it is unknown
    valid_mask: BoolArray  # (S, A) offered or taken; all where the log doesn't say what was offered
    validity_known: bool


def framed_log(log: Log, framing: Framing) -> FramedLog:
    """Frame a log, once.

    Raises:
        InvalidConfig: an expression is no valid SQL over the steps, or gives no state or action, or too many.
    """
    key = f"framed_{framing.token}"
    with log.lock:
        if key not in log.derived:
            log.derived[key] = _frame(log, framing)
        found: FramedLog = log.derived[key]
    return found


def episodes_solved(log: Log, framing: Framing) -> FloatArray:
    """(N of the log,) 1 where the framing calls the row's episode solved, 0 where not, NaN where its return is unknown."""
    key = f"solved_{framing.token}"
    if key not in log.derived:  # two visitors at once may both ask, to the same result
        sql = f"SELECT row, success::INTEGER::DOUBLE AS solved FROM framed_{framing.token}"
        found = log.cursor().execute(sql).fetchnumpy()
        solved = np.empty(log.n_steps)
        solved[found["row"]] = np.ma.filled(np.ma.asarray(found["solved"], dtype=np.float64), np.nan)
        log.derived[key] = solved
    known: FloatArray = log.derived[key]
    return known


def _frame(log: Log, framing: Framing) -> FramedLog:
    steps, offers = _framed_columns(log, framing), _offers(log, framing)
    keys, acted = _encoded(steps["state_key"]), _encoded(steps["action_name"])
    _check_size(log, len(keys.dictionary), len(acted.dictionary))
    states, observations = _number(keys, _in_natural_order)
    world_actions = make_world(log.source.world).action_names if log.source else ()

    def in_order(used: dict[str, int]) -> Iterable[str]:
        by_use = sorted(used, key=lambda name: (-used[name], name))
        return dict.fromkeys([*world_actions, *by_use, *(offers.names if offers else ())])

    names, actions = _number(acted, in_order)
    episodes, t, order = _in_time(steps)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    rewards = np.array(steps["framed_reward"].to_numpy(), dtype=np.float64)  # NULL becomes NaN
    rewards[~(np.abs(rewards) <= LARGEST_REWARD)] = np.nan
    goes_on, ended, following = _follow(episodes[order], t[order], steps["terminal"], steps["timeout"], order)
    next_observations = np.where(goes_on, observations[following], -1)
    rows = Transitions(observations, actions, rewards, next_observations, ended, ~goes_on & ~ended)
    for column in rows:
        column.flags.writeable = False  # every dataset of the log shares them
    mask = _valid_mask(rows, len(states), names, offers)
    returns = np.asarray(np.bincount(episodes, rewards), dtype=np.float64)[episodes]
    framed = FramedLog(states, names, rows, episodes, ranks, returns, mask, offers is not None)
    _define_tables(log, framing, framed, steps)
    return framed


def _in_time(steps: pa.Table) -> tuple[IntArray, IntArray, IntArray]:
    """(N,) number of the episode, t, and the places of the rows in the order of episode, then t."""
    episodes = _encoded(steps["episode_id"]).indices.to_numpy().astype(np.int64)
    t = steps["t"].to_numpy().astype(np.int64)
    return episodes, t, np.argsort(episodes * (t.max() - t.min() + 1) + (t - t.min()), kind="stable")


# -- what the expressions say ------------------------------------------------------------------------------------


def _framed_columns(log: Log, framing: Framing) -> pa.Table:
    """episode_id, t, terminal, timeout, state_key, action_name and framed_reward of each step, in the order of the log."""
    kept = ("episode_id", "t", "terminal", "timeout")
    expressions = (framing.state, framing.action, framing.reward)
    if all(map(_is_column, expressions, ("VARCHAR", "VARCHAR", "DOUBLE"))) and framing.success == RETURN_IS_POSITIVE:
        table = log.columns(*kept, *expressions)
        table = pa.table(table.columns, [*kept, "state_key", "action_name", "framed_reward"])
    else:
        table = _computed_columns(log, framing, kept)
    missing = max(table[name].null_count for name in ("state_key", "action_name"))
    if missing:
        raise InvalidConfig(
            f"The framing gives no state or no action for {missing:,} of {log.n_steps:,} steps; "
            "wrap its expressions in coalesce(..., 'unknown')."
        )
    return table


def _check_size(log: Log, n_states: int, n_actions: int) -> None:
    """Tables of values have a cell for each pair, seen or not; a state that is hardly ever met twice teaches nothing anyway."""
    if n_states * n_actions > MAX_PAIRS:
        raise InvalidConfig(
            f"This framing makes {n_states:,} states and {n_actions:,} actions of {log.n_steps:,} steps; at most "
            f"{MAX_PAIRS:,} pairs of them are possible. Choose less for the state or the action."
        )


_SQL_TYPES = {column.name: column.sql_type for column in COLUMNS}


def _is_column(expression: str, sql_type: str) -> bool:
    """Whether an expression is a bare column of this type: then no query is needed."""
    return _SQL_TYPES.get(expression) == sql_type


def _computed_columns(log: Log, framing: Framing, kept: Iterable[str]) -> pa.Table:
    relation = "steps"
    if any(TOOLS_USED in expression for expression in (framing.state, framing.action, framing.reward)):
        relation = steps_with_tools_used(log)
    cursor = log.cursor()
    try:
        cursor.execute(f"SELECT ({framing.success})::BOOLEAN FROM (SELECT 0.5::DOUBLE AS episode_return)").fetchall()
        return cursor.sql(
            f"""SELECT {", ".join(kept)}, ({framing.state})::VARCHAR AS state_key,
                       ({framing.action})::VARCHAR AS action_name, ({framing.reward})::DOUBLE AS framed_reward
                FROM {relation} WINDOW episode AS (PARTITION BY episode_id ORDER BY t) ORDER BY row"""
        ).to_arrow_table()
    except duckdb.Error as error:
        raise InvalidConfig(f"The framing can't be computed on this log: {str(error).splitlines()[0]}") from error


def _number(
    encoded: pa.DictionaryArray, order: Callable[[dict[str, int]], Iterable[str]]
) -> tuple[tuple[str, ...], IntArray]:
    """Names in the order that ``order`` makes of name -> how often, and the (N,) place of each row's name in it."""
    codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    used = {name: n for name, n in zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True) if n}
    in_order = tuple(order(used))
    place = {name: i for i, name in enumerate(in_order)}
    return in_order, np.array([place.get(name, -1) for name in names], dtype=np.int64)[codes]


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.unify_dictionaries().combine_chunks()


def _in_natural_order(used: dict[str, int]) -> list[str]:
    """Order of state keys: "result 9" stands before "result 10"."""
    return sorted(used, key=lambda key: (_natural_order(key), key))


def _natural_order(text: str) -> list[tuple[int, str]]:
    parts = _INTEGER.split(text)  # every second one is an integer
    return [(int(part), "") if i % 2 else (0, part) for i, part in enumerate(parts)]


_INTEGER = re.compile(r"(-?\d{1,15})")


# -- what was used -----------------------------------------------------------------------------------------------


def steps_with_tools_used(log: Log) -> str:
    """SQL relation: the steps with one more column, the tools used before each ("add, mul"), NULL at the first.

    Made here because a window would collect a list for each row: a long episode costs the square of its length.
    """
    if TOOLS_USED not in log.derived:  # two visitors at once may both make it, to the same result
        table = _tools_used(log)
        log.define(TOOLS_USED, lambda: table)
        log.derived[TOOLS_USED] = True
    return f"(SELECT * FROM steps JOIN {TOOLS_USED} USING (row))"


def _tools_used(log: Log) -> pa.Table:
    episodes, _, order = _in_time(log.columns("episode_id", "t"))
    encoded = _encoded(log.columns("action")["action"])
    names, tools = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    numbers = np.empty(len(order), dtype=np.int32)
    members: list[frozenset[int]] = [frozenset()]
    number_of, grown = (
        {members[0]: 0},
        {},
    )  # set -> its number; (number, tool) as one integer -> number of both together
    last_episode = here = -1
    for place, episode, tool in zip(order.tolist(), episodes[order].tolist(), tools[order].tolist(), strict=True):
        if episode != last_episode:
            last_episode, here = episode, 0
        numbers[place] = here
        step = here * len(names) + tool
        if step not in grown:
            together = members[here] | {tool}
            grown[step] = number_of.setdefault(together, len(members))
            if grown[step] == len(members):
                members.append(together)
        here = grown[step]
    texts = [", ".join(sorted(names[tool] for tool in found)) for found in members]
    used = pa.DictionaryArray.from_arrays(pa.array(numbers, mask=numbers == 0), pa.array(texts, pa.string()))
    return pa.table({"row": pa.array(np.arange(len(numbers))), TOOLS_USED: used})


# -- what was offered --------------------------------------------------------------------------------------------


class _Offers(NamedTuple):
    """Which tools the log says were available at its steps."""

    names: tuple[str, ...]
    rows: IntArray  # step of each offer
    tools: IntArray  # index into ``names`` of each offer
    silent: BoolArray  # (N,) steps that don't say


def _offers(log: Log, framing: Framing) -> _Offers | None:
    """None where no step says what was available, or where actions aren't the log's own."""
    if framing.action not in NAMES_TOOLS:
        return None
    lists = log.columns("available_tools")["available_tools"]
    if lists.null_count == len(lists):
        return None
    offers = pa.chunked_array([chunk.flatten() for chunk in lists.chunks])
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    rows = np.repeat(np.arange(len(lists)), lengths)
    if offers.null_count:  # a hole in a list is no tool
        rows, offers = rows[offers.is_valid().to_numpy()], offers.drop_null()
    names, tools = _number(_encoded(offers), sorted)
    return _Offers(names, rows, tools, lists.is_null().to_numpy())


def _valid_mask(rows: Transitions, n_states: int, actions: tuple[str, ...], offers: _Offers | None) -> BoolArray:
    """Offered or taken pairs; a state where some step doesn't say what was offered allows all."""
    mask = np.zeros((n_states, len(actions)), dtype=bool)
    if offers is None:
        return ~mask
    places = np.array([actions.index(name) for name in offers.names], dtype=np.int64)
    mask[rows.observations[offers.rows], places[offers.tools]] = True
    mask[rows.observations, rows.actions] = True
    mask[rows.observations[offers.silent]] = True
    return mask


# -- what follows ------------------------------------------------------------------------------------------------


def _follow(
    episodes: IntArray, t: IntArray, terminal: pa.ChunkedArray, timeout: pa.ChunkedArray, order: IntArray
) -> tuple[BoolArray, BoolArray, IntArray]:
    """Which steps go on, which end their episode, and the place of the step that follows (any, where none does).

    A gap in t means that steps are missing: what follows is then unknown, and the later step is no successor. Where a
    log can't say whether its last step ended the task, the step counts as an ending (the dataset says so).

    Args:
        episodes: (N,) in the order of time.
        t: (N,) in the order of time.
        terminal: (N,) as the log has them.
        timeout: (N,) as the log has them.
        order: (N,) places in the log, in the order of time.
    """
    is_followed, without_gap = np.zeros((2, len(order)), dtype=bool)
    following = np.zeros(len(order), dtype=np.int64)
    same = episodes[1:] == episodes[:-1]
    is_followed[order[:-1]] = same
    without_gap[order[:-1]] = same & (t[1:] == t[:-1] + 1)
    following[order[:-1]] = order[1:]
    is_terminal, is_timeout = _is_true(terminal), _is_true(timeout)
    goes_on = without_gap & ~is_terminal & ~is_timeout
    says_nothing = _is_null(terminal) & _is_null(timeout)
    return goes_on, ~goes_on & (is_terminal | (says_nothing & ~is_followed)), following


def _is_true(column: pa.ChunkedArray) -> BoolArray:
    return np.asarray(column.fill_null(False).to_numpy())


def _is_null(column: pa.ChunkedArray) -> BoolArray:
    return np.asarray(column.is_null().to_numpy())


# -- for SQL -----------------------------------------------------------------------------------------------------


def names_success(log: Log, framing: Framing) -> bool:
    """Whether somebody said what success is: the log's world, or the framing beyond its default, a return above 0."""
    return log.source is not None or framing.success != RETURN_IS_POSITIVE


def _said_solved(log: Log, episodes: IntArray) -> pa.Array:
    """(N,) whether a world wrote of the row's episode that it solved its task; NULL where nobody wrote it."""
    if log.source is None or WORLDS[log.source.world].return_tells_success:
        return pa.nulls(len(episodes), pa.bool_())
    written = log.columns("metadata")["metadata"].cast(pa.string())
    solved = np.bincount(episodes, pc.match_substring(written, '"solved":true').fill_null(False).to_numpy())
    said = np.bincount(episodes, pc.match_substring(written, '"solved":').fill_null(False).to_numpy())
    return pa.array(solved[episodes] > 0, mask=said[episodes] == 0)


def _define_tables(log: Log, framing: Framing, framed: FramedLog, steps: pa.Table) -> None:
    """Hand over what SQL about the framed log needs."""
    suffix, rows = framing.token, framed.rows
    said_solved = _said_solved(log, framed.episodes)  # now: what is defined below must not ask the log

    def numbers() -> pa.Table:
        columns = {
            "row": pa.array(np.arange(len(rows.actions))),
            "episode_id": steps["episode_id"],
            "episode": pa.array(framed.episodes.astype(np.int32)),  # grouped by in a fifth of the time
            "t": steps["t"],
            "s": pa.array(rows.observations.astype(np.int32)),
            "a": pa.array(rows.actions.astype(np.int32)),
            "s2": pa.array(rows.next_observations.astype(np.int32)),
            "ending": pa.array(rows.endings),
            "framed_reward": pa.array(rows.rewards, from_pandas=True),  # NaN becomes NULL
            "episode_return": pa.array(framed.episode_returns, from_pandas=True),
            "said_solved": said_solved,
        }
        return pa.table(columns)

    log.define(f"states_{suffix}", lambda: _index_table("state_key", "s", framed.states))
    log.define(f"actions_{suffix}", lambda: _index_table("action_name", "a", framed.actions))
    log.define(f"numbers_{suffix}", numbers)
    success = f"CASE WHEN episode_return IS NOT NULL THEN ({framing.success}) END"
    if framing.success == RETURN_IS_POSITIVE:
        success = f"coalesce(said_solved, {success})"
    log.define(f"framed_{suffix}", lambda: f"SELECT *, {success} AS success FROM numbers_{suffix}")
    log.define(
        f"framed_steps_{suffix}",
        lambda: (
            f"""SELECT steps.*, here.state_key, action_name, framed_reward, after.state_key AS next_state_key,
                   episode_return, success, framed.episode, framed.s, framed.a, framed.s2, framed.ending
            FROM framed_{suffix} AS framed JOIN steps USING (row)
            JOIN states_{suffix} AS here ON here.s = framed.s
            JOIN actions_{suffix} AS acted ON acted.a = framed.a
            LEFT JOIN states_{suffix} AS after ON after.s = framed.s2"""
        ),
    )


def _index_table(name_column: str, index_column: str, names: tuple[str, ...]) -> pa.Table:
    return pa.table({name_column: pa.array(names, pa.string()), index_column: pa.array(range(len(names)), pa.int32())})
