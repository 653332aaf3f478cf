"""A framed log after its coverage edits: what learners learn from.

Rows are aggregated once to weighted edges (s, a, s', ending); after that, learning costs what the number of *distinct*
edges asks for, not the length of the log.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .arrays import BoolArray, FloatArray, IntArray
from .coverage_edits import CoverageEdit, DropAction, check_number
from .edges import CUT, ENDED, Edges, Transitions, aggregate
from .errors import EmptyDataset, InvalidEdit
from .features import features_of_world, state_features
from .framing import FRAMED_COLUMNS, FramedLog, Framing, default_framing, episodes_solved, framed_log, names_success
from .kept_rows import KEPT_ROWS, kept_places, table_of
from .log import Log
from .mdp import Successors, TabularMDP
from .query import write_query_database
from .recollection import collected_again
from .schema import COLUMN_NAMES


class StageCounts(NamedTuple):
    """How much was there after an edit (or before all of them)."""

    n_episodes: int
    n_steps: int


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
        places: (N,) place in the log of each row of :meth:`transitions`, rising.
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
    places: IntArray = field(repr=False)
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

    @cached_property
    def world_features(self) -> FloatArray | None:
        """(S, D) numbers that the log's world gives to the states; None where there is no world or it doesn't know them."""
        return features_of_world(self.log.source.world, self.states) if self.log.source else None

    def features(self, choice: str = "auto") -> FloatArray:
        """(S, D) what a network sees of the states; the choices are those of :func:`offrl_core.features.state_features`."""
        return state_features(choice, self.states, self.world_features)

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
        rewards = self._framed.rows.rewards[self.places]
        says_something = ~np.isnan(rewards) & (~np.isnan(self.episode_returns) | (rewards != 0))
        return bool(says_something.any()) and bool(self.value_counts.any())

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
            who = (
                "The log doesn't say" if self.framing.action == "action" else "For actions framed like this nobody says"
            )
            notes.append(f"{who} which actions were available, so every action counts as valid everywhere.")
        return tuple(notes)

    def empirical_mdp(self, allowed: BoolArray, default_value: float) -> TabularMDP:
        """The process that the counts describe.

        Args:
            allowed: (S, A) pairs that may be chosen; a state without any may choose all its valid ones.
            default_value: value of a pair that no row teaches; nothing follows it.
        """
        rewards = np.where(self.value_counts > 0, self._mean_rewards, default_value)
        choosable = np.where(allowed.any(axis=1, keepdims=True), allowed, self.valid_mask)
        rewards[~choosable] = -np.inf
        return TabularMDP(rewards=np.ascontiguousarray(rewards.T), successors=self._successors)

    @cached_property
    def _mean_rewards(self) -> FloatArray:
        """(S, A) mean over the rows that can teach a value; 0 where there is none."""
        sums = np.where(self.edges.endings == CUT, 0.0, self.edges.reward_sums)
        return self._sum_over_pairs(sums) / np.maximum(self.value_counts, 1)

    @cached_property
    def _successors(self) -> Successors:
        edges = self.edges
        usable = (edges.endings != CUT) & (edges.n_known > 0)
        states, actions = edges.states[usable], edges.actions[usable]
        return Successors(
            self.n_states,
            self.n_actions,
            states=states,
            actions=actions,
            next_states=edges.next_states[usable],
            probabilities=edges.n_known[usable] / self.value_counts[states, actions],
        )

    def transitions(self) -> Transitions:
        """The rows one by one, in the order of the log."""
        rows = self._framed.rows.at(self.places) if self.edits else self._framed.rows
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

    # -- in SQL ------------------------------------------------------------------------------------------------

    @property
    def relation(self) -> str:
        """SELECT of the kept framed rows, see :class:`offrl_core.framing.FramedLog`; to be asked of :meth:`cursor`."""
        kept = f" SEMI JOIN {KEPT_ROWS} USING (row)" if self.edits else ""
        return f"SELECT * FROM framed_{self.framing.token}{kept}"

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of one's own to the tables of the log, on which :attr:`relation` has a meaning."""
        cursor = self.log.cursor()
        if self.edits:
            cursor.register(KEPT_ROWS, table_of(self.places))
        return cursor

    def rows(self, sql: str, parameters: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run trusted SQL on :meth:`cursor` and return its rows."""
        return self.cursor().execute(sql, parameters or []).fetchall()

    def write_query_tables(self, path: Path) -> Path:
        """Write the kept rows as a DuckDB file with the tables ``steps`` and ``framed``, for the queries of visitors."""
        cursor = self.cursor()
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
        episodes = self.episodes
        is_shown = np.zeros(episodes.max(initial=-1) + 1, dtype=bool)
        is_shown[pd.unique(episodes)[:limit]] = True
        cursor = self.log.cursor()
        cursor.register("shown", table_of(self.places[is_shown[episodes]]))
        return cursor.execute(
            f"""SELECT any_value(episode_id) AS episode_id, any_value(task) AS task, count(*) AS steps,
                       any_value(episode_return) AS return_undiscounted, any_value(success) AS success,
                       bool_or(terminal) AS ended, bool_or(timeout) AS cut, any_value(behavior_policy) AS behavior_policy
                FROM framed_{self.framing.token} SEMI JOIN shown USING (row)
                JOIN (SELECT row, task, terminal, timeout, behavior_policy FROM steps) USING (row)
                GROUP BY episode ORDER BY min(row)"""
        ).df()

    @property
    def success_in_words(self) -> str:
        """What ``success_rate`` is a share of: "solved", or "with a return above 0" where nobody said what success is."""
        return "solved" if names_success(self.log, self.framing) else "with a return above 0"

    def success_rate(self) -> tuple[float | None, int]:
        """Share of solved episodes among those whose outcome is known (None if none is), and how many those are."""
        solved = np.full(self.episodes.max(initial=-1) + 1, np.nan)
        solved[self.episodes] = self.episode_solved
        known = solved[~np.isnan(solved)]
        return (float(known.mean()) if len(known) else None), len(known)

    @cached_property
    def start_counts(self) -> IntArray:
        """(S,) how many kept episodes begin in each state; one that branches off another begins in the middle of it."""
        first = self.places[self.first_rows]
        whole = first[~self._is_branched_off[first]]
        return np.bincount(self._own_codes(self._framed.rows.observations[whole]), minlength=self.n_states)

    @property
    def start_shares(self) -> FloatArray:
        """(S,) share of the kept episodes that begin in each state; all 0 where none shows its beginning."""
        return self.start_counts / max(int(self.start_counts.sum()), 1)

    @cached_property
    def mean_return(self) -> float | None:
        """Mean discounted return of the kept episodes, from their first kept step, as ``mean_return`` of a truth is.

        Over those that ended with all their rewards known; None where there is none.
        """
        returns = self.returns_to_go[self.first_rows]
        known = returns[~np.isnan(returns)]
        return float(known.mean()) if len(known) else None

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """Smallest and largest known reward of a row; (0, 0) where none is known."""
        rewards = self._framed.rows.rewards[self.places]
        known = rewards[~np.isnan(rewards)]
        return (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)

    @property
    def episodes(self) -> IntArray:
        """(N,) number of the episode of each row of :meth:`transitions`."""
        return self._framed.episodes[self.places]

    @property
    def episode_returns(self) -> FloatArray:
        """(N,) undiscounted return of each row's episode, as logged; NaN where a reward of it is unknown."""
        return self._framed.episode_returns[self.places]

    @property
    def episode_solved(self) -> FloatArray:
        """(N,) 1 where the framing calls the row's episode solved, 0 where not, NaN where its return is unknown."""
        return episodes_solved(self.log, self.framing)[self.places]

    @cached_property
    def returns_to_go(self) -> FloatArray:
        """(N,) discounted sum of the rewards from each row to the end of its episode.

        NaN where a reward on the way is unknown or the episode was cut. Rows that an edit tore out are not missed here: ask
        :attr:`whole_sequences` first.
        """
        framed = self._framed
        rows, in_time = framed.rows, np.empty_like(framed.ranks)
        in_time[framed.ranks] = np.arange(len(in_time))
        following = np.full(len(in_time), -1)
        following[in_time[:-1]] = in_time[1:]
        following[rows.next_observations < 0] = -1
        sums, discount = np.where(rows.timeouts, np.nan, rows.rewards), self.discount
        # Twice as many steps each round: sums over 2^k steps, discounts to the power of 2^k.
        while (goes_on := following >= 0).any():
            ahead = following[goes_on]
            sums[goes_on] = sums[goes_on] + discount * sums[ahead]
            following[goes_on] = following[ahead]
            discount *= discount
        return sums[self.places]

    @cached_property
    def first_rows(self) -> IntArray:
        """(E,) place among :meth:`transitions` of each kept episode's first row, ordered by episode number."""
        episodes = self.episodes[self.time_order]
        return self.time_order[np.append(True, episodes[1:] != episodes[:-1])]

    @cached_property
    def time_order(self) -> IntArray:
        """(N,) places among :meth:`transitions`, ordered by episode number, then time."""
        return np.argsort(self._framed.ranks[self.places])

    @cached_property
    def tasks(self) -> list[str]:
        """Tasks of the kept rows, sorted; unknown ones left out."""
        found = self.rows(
            f"SELECT DISTINCT task FROM steps WHERE task IS NOT NULL AND row IN (SELECT row FROM ({self.relation})) ORDER BY task"
        )
        return [task for (task,) in found]

    def states_of_task(self, task: str) -> set[str]:
        """State keys that kept rows of a task stand in."""
        found = self.rows(
            f"SELECT DISTINCT state_key FROM framed_steps_{self.framing.token} "
            f"WHERE task = ? AND row IN (SELECT row FROM ({self.relation}))",
            [task],
        )
        return {state for (state,) in found}

    @property
    def _framed(self) -> FramedLog:
        return framed_log(self.log, self.framing)

    @cached_property
    def _is_branched_off(self) -> BoolArray:
        """(N of the log,) steps of an episode that has a parent and doesn't begin at 0: a retry, say."""
        columns = self.log.columns("parent_episode", "t")
        has_parent, t = columns["parent_episode"].is_valid().to_numpy(), columns["t"].to_numpy()
        return np.asarray(has_parent & (t > 0))

    def _count_unsaid_endings(self) -> int:
        ended = f"SELECT row FROM ({self.relation}) WHERE ending = {ENDED}"
        return int(self.rows(f"SELECT count(*) FROM steps WHERE terminal IS NULL AND row IN ({ended})")[0][0])

    @cached_property
    def _index(self) -> dict[str, int]:
        return {key: s for s, key in enumerate(self.states)}

    def _own_codes(self, codes: IntArray) -> IntArray:
        if not self.edits:  # then every state of the framed tables is one of ours
            return np.asarray(codes)
        found = np.searchsorted(self._state_codes, codes).astype(np.int64)
        return np.where(np.asarray(codes) < 0, -1, found)

    @cached_property
    def _pairs(self) -> IntArray:
        """Row of each edge in a flattened (S, A) table."""
        return self.edges.states * self.n_actions + self.edges.actions

    def _sum_over_pairs(self, weights: IntArray | FloatArray) -> NDArray[Any]:
        sums = np.bincount(self._pairs, weights=weights, minlength=self.n_states * self.n_actions)
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
    log = collected_again(log, edits)
    framing = framing or default_framing(log)
    framed = framed_log(log, framing)
    _check_actions(edits, framed.actions)
    left = kept_places(log, framing.token, edits) if edits else []  # without edits nothing is asked in SQL
    stages = _stages(framed, left)
    if not stages[-1].n_steps:
        raise EmptyDataset(_why_empty(edits, stages))
    edges = aggregate(framed.rows.at(left[-1])) if edits else _count_all(log, framed, framing)
    present = np.zeros(len(framed.states), dtype=bool)
    present[edges.states] = present[edges.next_states[edges.next_states >= 0]] = True
    codes = np.flatnonzero(present)
    return Dataset(
        log=log,
        framing=framing,
        edits=tuple(edits),
        stages=stages,
        states=tuple(framed.states[code] for code in codes) if edits else framed.states,
        actions=framed.actions,
        edges=edges._replace(
            states=np.searchsorted(codes, edges.states),
            next_states=np.where(edges.next_states < 0, -1, np.searchsorted(codes, edges.next_states)),
        ),
        valid_mask=framed.valid_mask[codes],
        validity_known=framed.validity_known,
        places=left[-1] if edits else np.arange(log.n_steps),
        _state_codes=codes,
    )


def _count_all(log: Log, framed: FramedLog, framing: Framing) -> Edges:
    """Once per log and framing. Two visitors at once may both count, to the same result."""
    key = f"edges_{framing.token}"
    if key not in log.derived:
        log.derived[key] = aggregate(framed.rows)
    edges: Edges = log.derived[key]
    return edges


def _stages(framed: FramedLog, left: Sequence[IntArray]) -> tuple[StageCounts, ...]:
    """Counts of the whole log, then of what each edit left."""
    return tuple(
        StageCounts(int(np.count_nonzero(np.bincount(episodes))), len(episodes))
        for episodes in (framed.episodes, *(framed.episodes[places] for places in left))
    )


def _check_actions(edits: Sequence[CoverageEdit], actions: tuple[str, ...]) -> None:
    """A mistyped action would remove nothing, and nobody would notice."""
    for edit in edits:
        if isinstance(edit, DropAction) and edit.action not in actions:
            near = difflib.get_close_matches(edit.action, actions, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(actions[:30])}."
            raise InvalidEdit(f"The log has no action called {edit.action!r}, so there is nothing to take out. {hint}")


def _why_empty(edits: Sequence[CoverageEdit], stages: Sequence[StageCounts]) -> str:
    emptied = next((edit for edit, after in zip(edits, stages[1:], strict=True) if not after.n_steps), None)
    if emptied is None:
        return "The log holds no step."
    return f"No step is left after this edit: {emptied.sentence} Remove it or make it milder."
