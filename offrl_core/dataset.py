"""A framed log after its coverage edits: what learners learn from.

Rows are aggregated once to weighted edges (s, a, s', ending), up to some 300,000 in NumPy and above in DuckDB, whichever
is faster; after that, learning costs what the number of *distinct* edges asks for, not the length of the log.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .arrays import BoolArray, FloatArray, IntArray
from .behavior import Behavior, WorldSource, named_behavior
from .coverage_edits import CoverageEdit, DropAction, check_number
from .errors import EmptyDataset, InvalidEdit
from .framing import CUT, ENDED, FRAMED_COLUMNS, GOES_ON, Framing, default_framing, framed_tables
from .log import Log, recollected
from .mdp import TabularMDP, build_mdp
from .query import write_query_database
from .schema import COLUMN_NAMES
from .worlds import make_world


class StageCounts(NamedTuple):
    """How much was there after an edit (or before all of them)."""

    n_episodes: int
    n_steps: int


class Edges(NamedTuple):
    """Distinct (s, a, s', ending) of a dataset with their counts, arrays of equal length.

    ``next_states`` is -1 where nothing follows; ``n_known`` counts rows whose reward is known, ``reward_sums`` adds them up.
    """

    states: IntArray
    actions: IntArray
    next_states: IntArray
    endings: IntArray
    counts: IntArray
    n_known: IntArray
    reward_sums: FloatArray


class Transitions(NamedTuple):
    """The rows one by one, in the order of the log; N-first arrays. Unknown rewards are NaN."""

    observations: IntArray  # state indices
    actions: IntArray
    rewards: FloatArray
    next_observations: IntArray  # -1 where nothing follows
    terminals: BoolArray
    timeouts: BoolArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """States, actions and weighted edges, with the way back to the evidence.

    Attributes:
        log: where the rows are (after re-collection, if an edit asked for it).
        framing: what counts as state, action and reward.
        edits: the coverage edits, in order.
        stages: counts before all edits, then after each.
        states: S state keys, in natural order.
        actions: A action names.
        edges: aggregated transitions.
        valid_mask: (S, A) actions that were available, or all where the log doesn't say.
        validity_known: whether the log says which actions were available.
        relation: SQL of the kept rows, for evidence.
    """

    log: Log
    framing: Framing
    edits: tuple[CoverageEdit, ...]
    stages: tuple[StageCounts, ...]
    states: tuple[str, ...]
    actions: tuple[str, ...]
    edges: Edges
    valid_mask: BoolArray
    validity_known: bool
    relation: str
    _state_codes: IntArray = field(repr=False)  # codes of the states in the framed tables

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.states)

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.actions)

    @property
    def discount(self) -> float:
        """γ of the framing."""
        return self.framing.discount

    @property
    def n_transitions(self) -> int:
        """N, rows left after the edits."""
        return self.stages[-1].n_steps

    @property
    def n_episodes(self) -> int:
        """E, episodes with a row left."""
        return self.stages[-1].n_episodes

    @property
    def whole_sequences(self) -> bool:
        """False once an edit has torn steps out of episodes."""
        return not any(edit.breaks_sequences for edit in self.edits)

    @cached_property
    def visitation_counts(self) -> IntArray:
        """n(s, a), (S, A)."""
        return self._sum_over_pairs(self.edges.counts).astype(np.int64)

    @cached_property
    def value_counts(self) -> IntArray:
        """(S, A) rows that can teach a value: reward known, and what follows known."""
        return self._sum_over_pairs(np.where(self.edges.endings == CUT, 0, self.edges.n_known)).astype(np.int64)

    def support_mask(self, min_count: int = 1) -> BoolArray:
        """(S, A) True where n(s, a) >= ``min_count``."""
        return self.visitation_counts >= min_count

    @cached_property
    def has_rewards(self) -> bool:
        """Whether the rewards can teach anything: some episode has them all, or some known one isn't 0.

        A framing that puts the outcome at the end gives 0 to every other step, which says nothing while no outcome is known.
        """
        if self.edges.reward_sums.any():  # then some known reward isn't 0, without asking the rows
            return bool(self.value_counts.any())
        informative = "framed_reward IS NOT NULL AND (episode_return IS NOT NULL OR framed_reward <> 0)"
        rows = self.log.rows(f"SELECT count(*) FROM ({self.relation}) WHERE {informative}")
        return bool(rows[0][0]) and bool(self.value_counts.any())

    @cached_property
    def behavior_probabilities(self) -> FloatArray:
        """(S, A) how often the log takes each action in a state; rows of states without a step are 0."""
        totals = self.visitation_counts.sum(axis=1, keepdims=True)
        return self.visitation_counts / np.maximum(totals, 1)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Facts a reader of any learned value must know, as sentences."""
        n_rows, n_usable = self.n_transitions, int(self.value_counts.sum())
        n_cut = int(self.edges.counts[self.edges.endings == CUT].sum())
        notes = []
        if n_usable < n_rows:
            notes.append(
                f"{n_rows - n_usable:,} of {n_rows:,} steps teach no value, because their reward or what followed is "
                f"unknown ({n_cut:,} end where an episode was cut); they still count as seen."
            )
        n_unsaid = self._count_unsaid_endings()
        if n_unsaid:
            notes.append(
                f"For {n_unsaid:,} of {self.n_episodes:,} episodes the log doesn't say whether the task ended or was cut; "
                "their last step counts as an ending."
            )
        if not self.validity_known:
            notes.append(
                "The log doesn't say which actions were available, so every action counts as valid everywhere."
            )
        return tuple(notes)

    def empirical_mdp(self, allowed: BoolArray, default_value: float) -> TabularMDP:
        """The process that the counts describe.

        Args:
            allowed: (S, A) pairs that may be chosen; a state without any may choose all its valid ones.
            default_value: value of a pair that no row teaches; nothing follows it.
        """
        edges = self.edges
        usable = (edges.endings != CUT) & (edges.n_known > 0)
        counts = self.value_counts
        sums = self._sum_over_pairs(np.where(usable, edges.reward_sums, 0.0))
        rewards = np.where(counts > 0, sums / np.maximum(counts, 1), default_value)
        choosable = np.where(allowed.any(axis=1, keepdims=True), allowed, self.valid_mask)
        rewards[~choosable] = -np.inf
        states, actions = edges.states[usable], edges.actions[usable]
        return build_mdp(
            self.n_states,
            self.n_actions,
            states=states,
            actions=actions,
            next_states=edges.next_states[usable],
            probabilities=edges.n_known[usable] / counts[states, actions],
            rewards=np.ascontiguousarray(rewards.T),
        )

    def transitions(self) -> Transitions:
        """The rows one by one, in the order of the log."""
        rows = _read_rows(self.log, self.relation)
        return rows._replace(
            observations=self._own_codes(rows.observations), next_observations=self._own_codes(rows.next_observations)
        )

    def state_index(self, state_key: str) -> int | None:
        """Row of a state key, or None where the dataset doesn't show it."""
        return self._index.get(state_key)

    def counts_on(self, states: Sequence[str], actions: Sequence[str]) -> tuple[IntArray, BoolArray]:
        """Visitation counts and validity on given keys and actions, both (len(states), len(actions)).

        States that the dataset doesn't show have no count and no valid action, so that maps of two datasets line up.
        """
        counts = np.zeros((len(states), len(actions)), dtype=np.int64)
        valid = np.zeros(counts.shape, dtype=bool)
        columns = [self.actions.index(name) for name in actions]
        for i, state in enumerate(states):
            row = self.state_index(state)
            if row is not None:
                counts[i], valid[i] = self.visitation_counts[row, columns], self.valid_mask[row, columns]
        return counts, valid

    def write_query_tables(self, path: Path) -> Path:
        """Write the kept rows as a DuckDB file with the tables ``steps`` and ``framed``, for the queries of visitors."""
        cursor = self.log.cursor()
        kept = f"row IN (SELECT row FROM ({self.relation}))"
        steps = ", ".join(["row", *COLUMN_NAMES])
        cursor.execute(f"CREATE OR REPLACE TEMP VIEW kept_steps AS SELECT {steps} FROM steps WHERE {kept}")
        cursor.execute(
            f"CREATE OR REPLACE TEMP VIEW kept_framed AS SELECT {steps}, {', '.join(FRAMED_COLUMNS)} "
            f"FROM framed_steps_{self.framing.token} WHERE {kept}"
        )
        return write_query_database(cursor, {"steps": "kept_steps", "framed": "kept_framed"}, path)

    def episode_table(self, limit: int) -> pd.DataFrame:
        """One row per episode in the order of the log, at most ``limit``; return and success are empty where unknown."""
        return self.log.frame(
            f"""SELECT episode_id, any_value(task) AS task, count(*) AS steps,
                       any_value(episode_return) AS return_undiscounted, any_value(success) AS success,
                       bool_or(terminal) AS ended, bool_or(timeout) AS cut, any_value(behavior_policy) AS behavior_policy
                FROM (SELECT row, episode_id, episode_return, success FROM ({self.relation}))
                JOIN (SELECT row, task, terminal, timeout, behavior_policy FROM steps) USING (row)
                GROUP BY episode_id ORDER BY min(row) LIMIT {int(limit)}"""
        )

    def success_rate(self) -> tuple[float | None, int]:
        """Share of solved episodes among those whose outcome is known (None if none is), and how many those are."""
        rate, known = self.log.rows(
            "SELECT avg(solved::INTEGER), count(solved) FROM "
            f"(SELECT any_value(success) AS solved FROM ({self.relation}) GROUP BY episode_id)"
        )[0]
        return rate, known

    def start_counts(self) -> IntArray:
        """(S,) how many kept episodes begin in each state."""
        found = self.log.rows(
            "SELECT s, count(*) FROM (SELECT s, row_number() OVER (PARTITION BY episode_id ORDER BY t) AS place "
            f"FROM ({self.relation})) WHERE place = 1 GROUP BY s"
        )
        counts = np.zeros(self.n_states, dtype=np.int64)
        counts[self._own_codes(np.array([code for code, _ in found]))] = [n for _, n in found]
        return counts

    def mean_return(self) -> float | None:
        """Mean undiscounted return of the kept episodes whose rewards are all known; None where none is."""
        rows = self.log.rows(
            f"SELECT avg(r) FROM (SELECT any_value(episode_return) AS r FROM ({self.relation}) GROUP BY episode_id)"
        )
        return None if rows[0][0] is None else float(rows[0][0])

    def tasks(self) -> list[str]:
        """Tasks of the kept rows, sorted; unknown ones left out."""
        found = self.log.rows(
            f"SELECT DISTINCT task FROM steps WHERE task IS NOT NULL AND row IN (SELECT row FROM ({self.relation})) ORDER BY task"
        )
        return [task for (task,) in found]

    def states_of_task(self, task: str) -> set[str]:
        """State keys that kept rows of a task stand in."""
        found = self.log.rows(
            f"SELECT DISTINCT state_key FROM framed_steps_{self.framing.token} "
            f"WHERE task = ? AND row IN (SELECT row FROM ({self.relation}))",
            [task],
        )
        return {state for (state,) in found}

    def _count_unsaid_endings(self) -> int:
        ended = f"SELECT row FROM ({self.relation}) WHERE ending = {ENDED}"
        return int(self.log.rows(f"SELECT count(*) FROM steps WHERE terminal IS NULL AND row IN ({ended})")[0][0])

    @cached_property
    def _index(self) -> dict[str, int]:
        return {key: s for s, key in enumerate(self.states)}

    def _own_codes(self, codes: IntArray) -> IntArray:
        found = np.searchsorted(self._state_codes, codes).astype(np.int64)
        return np.where(np.asarray(codes) < 0, -1, found)

    def _sum_over_pairs(self, weights: IntArray | FloatArray) -> NDArray[Any]:
        pairs = self.edges.states * self.n_actions + self.edges.actions
        sums = np.bincount(pairs, weights=weights, minlength=self.n_states * self.n_actions)
        return sums.reshape(self.n_states, self.n_actions)

    def __repr__(self) -> str:
        """Shapes and coverage, not arrays."""
        seen, valid = int(self.support_mask().sum()), int(self.valid_mask.sum())
        return (
            f"Dataset({self.log.name!r}, {self.n_episodes:,} episodes, {self.n_transitions:,} steps, "
            f"{self.n_states:,} states x {self.n_actions} actions, {seen:,} of {valid:,} valid pairs seen)"
        )


def frame(log: Log, framing: Framing | None = None, edits: Sequence[CoverageEdit] = ()) -> Dataset:
    """Frame a log and take coverage away from it.

    Args:
        log: the steps.
        framing: what is state, action and reward; by default the preset that fits the log.
        edits: applied in order; re-collections first, because they replace the log.

    Raises:
        InvalidConfig: the framing doesn't fit the log.
        InvalidEdit: an edit asks to re-collect a log that no world made, or doesn't apply.
        EmptyDataset: the edits leave no step.
    """
    check_number(len(edits))
    log = _recollected(log, edits)
    framing = framing or default_framing(log)
    suffix = framed_tables(log, framing)
    whole = _unedited(log, framing, suffix)
    _check_actions(edits, whole.actions)
    relation, stage_names = _edited_relation(suffix, edits)
    try:
        stages = _count_stages(log, relation, stage_names)
    except duckdb.Error as error:
        raise InvalidEdit(_cannot_compute(error)) from error
    if not stages[-1].n_steps:
        raise EmptyDataset(_why_empty(edits, stages))
    kept = f"{relation} SELECT * FROM {stage_names[-1]}"
    edges = _count(log, whole, kept) if edits else whole.edges
    present = np.zeros(len(whole.states), dtype=bool)
    present[edges.states] = present[edges.next_states[edges.next_states >= 0]] = True
    codes = np.flatnonzero(present)
    return Dataset(
        log=log,
        framing=framing,
        edits=tuple(edits),
        stages=stages,
        states=tuple(whole.states[codes]),
        actions=whole.actions,
        edges=edges._replace(
            states=np.searchsorted(codes, edges.states),
            next_states=np.where(edges.next_states < 0, -1, np.searchsorted(codes, edges.next_states)),
        ),
        valid_mask=whole.valid_mask[codes],
        validity_known=whole.validity_known,
        relation=kept,
        _state_codes=codes,
    )


FEW_ROWS = 300_000  # up to here NumPy groups them faster than DuckDB


class _Unedited(NamedTuple):
    """What every dataset of a framed log starts from. States and actions have the codes of the framed tables."""

    states: NDArray[Any]
    actions: tuple[str, ...]
    valid_mask: BoolArray
    validity_known: bool
    rows: Transitions | None  # where they are few
    edges: Edges


def _unedited(log: Log, framing: Framing, suffix: str) -> _Unedited:
    """Read once per log and framing. Two visitors at once may both read, to the same result."""
    found = log.derived.get(suffix)
    if not isinstance(found, _Unedited):
        states = _names(log, f"states_{suffix}", "state_key", "s")
        actions = tuple(_names(log, f"actions_{suffix}", "action_name", "a"))
        valid_mask, validity_known = _valid_mask(log, framing, suffix, len(states), len(actions))
        framed = f"FROM framed_{suffix}"
        rows = _read_rows(log, framed) if log.n_steps <= FEW_ROWS else None
        edges = aggregate(log, framed) if rows is None else aggregate_rows(rows)
        found = log.derived[suffix] = _Unedited(states, actions, valid_mask, validity_known, rows, edges)
    return found


def _count(log: Log, whole: _Unedited, kept: str) -> Edges:
    if whole.rows is None:
        return aggregate(log, kept)
    # Rows are numbered from 0 in the order of the log, so that the number is the place.
    places = log.cursor().execute(f"SELECT row FROM ({kept}) ORDER BY row").fetchnumpy()["row"]
    return aggregate_rows(Transitions(*(column[places] for column in whole.rows)))


def _read_rows(log: Log, relation: str) -> Transitions:
    """The rows of a relation in the order of the log, with the codes of the framed tables."""
    columns = (
        log.cursor().execute(f"SELECT s, a, s2, ending, framed_reward FROM ({relation}) ORDER BY row").fetchnumpy()
    )
    endings = np.asarray(columns["ending"])
    return Transitions(
        observations=np.asarray(columns["s"], dtype=np.int64),
        actions=np.asarray(columns["a"], dtype=np.int64),
        rewards=np.ma.filled(columns["framed_reward"].astype(np.float64), np.nan),
        next_observations=np.asarray(columns["s2"], dtype=np.int64),
        terminals=endings == ENDED,
        timeouts=endings == CUT,
    )


def aggregate_rows(rows: Transitions) -> Edges:
    """Group rows in memory into weighted edges, in the order in which the log first shows them."""
    n_actions, n_next = int(rows.actions.max(initial=0)) + 1, int(rows.next_observations.max(initial=-1)) + 2
    endings = np.where(rows.terminals, ENDED, np.where(rows.timeouts, CUT, GOES_ON))
    keys = ((rows.observations * n_actions + rows.actions) * n_next + rows.next_observations + 1) * 3 + endings
    members, distinct = pd.factorize(keys)  # hashes, where numpy.unique would sort
    pairs, following = np.divmod(distinct // 3, n_next)
    known = ~np.isnan(rows.rewards)
    return Edges(
        states=pairs // n_actions,
        actions=pairs % n_actions,
        next_states=following - 1,
        endings=distinct % 3,
        counts=np.bincount(members, minlength=len(distinct)),
        n_known=np.bincount(members, known, minlength=len(distinct)).astype(np.int64),
        reward_sums=np.bincount(members, np.where(known, rows.rewards, 0.0), minlength=len(distinct)).astype(float),
    )


def aggregate(log: Log, relation: str) -> Edges:
    """Group rows with integer columns s, a, s2, ending, framed_reward into weighted edges, in DuckDB.

    As :func:`aggregate_rows`, for rows that stay where they are; edges come in no order.
    """
    columns = (
        log.cursor()
        .execute(
            "SELECT s, a, s2, ending, count(*) AS counts, count(framed_reward) AS n_known, "
            f"coalesce(sum(framed_reward), 0.0) AS reward_sums FROM ({relation}) GROUP BY s, a, s2, ending"
        )
        .fetchnumpy()
    )
    whole = {name: np.asarray(column) for name, column in columns.items()}
    return Edges(
        states=whole["s"].astype(np.int64),
        actions=whole["a"].astype(np.int64),
        next_states=whole["s2"].astype(np.int64),
        endings=whole["ending"],
        counts=whole["counts"],
        n_known=whole["n_known"],
        reward_sums=whole["reward_sums"],
    )


_NARROW = ("row", "episode_id", "t", "s", "a", "s2", "ending", "framed_reward", "episode_return", "success")


def _edited_relation(suffix: str, edits: Sequence[CoverageEdit]) -> tuple[str, list[str]]:
    """WITH clause with one named stage per edit, and the names. Only columns that an edit reads are carried along."""
    if not edits:
        return f"WITH stage_0 AS (SELECT * FROM framed_{suffix})", ["stage_0"]
    extra = sorted(frozenset({"state_key", "action_name"}).union(*(edit.columns for edit in edits)) - set(_NARROW))
    stages = [f"stage_0 AS (SELECT {', '.join((*_NARROW, *extra))} FROM framed_steps_{suffix})"]
    for i, edit in enumerate(edits, start=1):
        stages.append(f"stage_{i} AS (WITH before AS (SELECT * FROM stage_{i - 1}) {edit.keep_sql})")
    return "WITH " + ",\n".join(stages), [f"stage_{i}" for i in range(len(edits) + 1)]


def _count_stages(log: Log, relation: str, names: list[str]) -> tuple[StageCounts, ...]:
    if len(names) == 1:
        return (StageCounts(log.n_episodes, log.n_steps),)
    counts = " UNION ALL ".join(
        f"SELECT {i} AS stage, count(DISTINCT episode_id), count(*) FROM {name}" for i, name in enumerate(names)
    )
    return tuple(StageCounts(e, n) for _, e, n in log.rows(f"{relation} {counts} ORDER BY stage"))


def _names(log: Log, table: str, name: str, index: str) -> NDArray[Any]:
    return np.array([row[0] for row in log.rows(f"SELECT {name} FROM {table} ORDER BY {index}")], dtype=object)


def _valid_mask(log: Log, framing: Framing, suffix: str, n_states: int, n_actions: int) -> tuple[BoolArray, bool]:
    """Offered or taken pairs of the unedited log; a state where some step doesn't say what was offered allows all."""
    mask = np.zeros((n_states, n_actions), dtype=bool)
    says = log.rows("SELECT count(available_tools) > 0 FROM steps")[0][0]
    if not says or framing.action != "action":
        return ~mask, False
    offered = log.rows(
        f"""SELECT DISTINCT s, actions.a FROM (SELECT DISTINCT s, unnest(available_tools) AS action_name
                FROM framed_{suffix} JOIN steps USING (row)) JOIN actions_{suffix} AS actions USING (action_name)
            UNION SELECT DISTINCT s, a FROM framed_{suffix}"""
    )
    states, actions = np.array(offered, dtype=np.int64).T
    mask[states, actions] = True
    silent = log.rows(f"SELECT DISTINCT s FROM framed_{suffix} JOIN steps USING (row) WHERE available_tools IS NULL")
    mask[[s for (s,) in silent]] = True
    return mask, True


def _check_actions(edits: Sequence[CoverageEdit], actions: tuple[str, ...]) -> None:
    """A mistyped action would remove nothing, and nobody would notice."""
    for edit in edits:
        if isinstance(edit, DropAction) and edit.action not in actions:
            near = difflib.get_close_matches(edit.action, actions, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(actions[:30])}."
            raise InvalidEdit(f"The log has no action called {edit.action!r}, so there is nothing to take out. {hint}")


def _cannot_compute(error: duckdb.Error) -> str:
    """A condition was read but doesn't fit the values: texts compared with numbers, say."""
    return f"The condition of an edit can't be computed on this log: {str(error).splitlines()[0]}"


def _why_empty(edits: Sequence[CoverageEdit], stages: Sequence[StageCounts]) -> str:
    emptied = next((edit for edit, after in zip(edits, stages[1:], strict=True) if not after.n_steps), None)
    if emptied is None:
        return "The log holds no step."
    return f"No step is left after this edit: {emptied.sentence} Remove it or make it milder."


def _recollected(log: Log, edits: Sequence[CoverageEdit]) -> Log:
    """The log that the re-collecting edits ask for; the same edits find the log made before."""
    recollections = [edit for edit in edits if isinstance(edit, DropAction) and edit.how == "recollect"]
    for edit in recollections:
        if log.source is None:
            raise InvalidEdit(
                f"{log.name} is an imported log: no world is known that could collect it again without {edit.action}. "
                "Drop the episodes that contain it instead."
            )
        log = _collected_without(log, log.source, edit)
    return log


def _collected_without(log: Log, source: WorldSource, edit: DropAction) -> Log:
    world = make_world(source.world)
    if edit.action not in world.action_names:
        raise InvalidEdit(f"{world.name} has no action called {edit.action!r}; it has {', '.join(world.action_names)}.")
    if edit.columns - {"task"}:
        raise InvalidEdit(
            f"To collect again without {edit.action}, the condition may only name the task, not "
            f"{', '.join(sorted(edit.columns - {'task'}))}: an agent can't avoid what it doesn't see."
        )
    tasks = _tasks_where(log, edit.where) if edit.where else ("*",)
    behavior: Behavior = source.behavior.without(edit.action, tasks)
    new_source = replace(source, behavior=behavior, behavior_name=named_behavior(behavior)[0])
    new_log = recollected(new_source, name=f"{log.name}, collected again without {edit.action}")
    still = new_log.rows(
        "SELECT count(*) FROM steps WHERE action = ? AND (? OR list_contains(?, task))",
        [edit.action, tasks == ("*",), list(tasks)],
    )[0][0]
    if still:
        raise InvalidEdit(
            f"No agent of {world.name} can do without {edit.action}: where it is the only valid action it is taken all the same "
            f"({still:,} times in the new log). Drop the episodes or the steps instead."
        )
    return new_log


def _tasks_where(log: Log, where: str) -> tuple[str, ...]:
    try:
        tasks = tuple(task for (task,) in log.rows(f"SELECT DISTINCT task FROM steps WHERE {where} ORDER BY task"))
    except duckdb.Error as error:
        raise InvalidEdit(_cannot_compute(error)) from error
    if not tasks:
        raise InvalidEdit(f"No task of the log meets the condition {where}.")
    return tasks
