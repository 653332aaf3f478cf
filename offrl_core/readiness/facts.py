"""What a log holds, counted: the numbers that every verdict of the readiness report rests on.

All of them come from a few passes over the steps that a dataset keeps, in SQL, and from the dataset's own counts of
pairs. Nothing here judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

import duckdb
import numpy as np

from ..dataset import Dataset
from ..edges import CUT
from ..framing import names_success
from ..log import Log
from ..schema import COLUMN_NAMES
from .drift import VERSION_COLUMNS, VersionDrift, compare_versions
from .losses import Losses, count_losses
from .trials import TaskCounts, count_tasks

EndReason = Literal["terminated", "truncated", "cut", "unknown"]
END_REASONS: tuple[EndReason, ...] = ("terminated", "truncated", "cut", "unknown")

# Columns that say something about a whole episode, wherever in it they stand.
EPISODE_COLUMNS = (
    "task",
    "reward",
    "reward_source",
    "reward_components",
    "verifier_version",
    "split",
    *VERSION_COLUMNS,
)
PROMPTED_COLUMNS = ("task", "prompt_version", "tool_schema_version")
LAST_STEP_COLUMNS = ("terminal", "timeout", "end_reason")
CALL_COLUMNS = ("arguments", "arguments_status", "arguments_hash", "tool_result")
UNREADABLE = ("malformed", "absent", "non_object")  # arguments that don't say which value goes where


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which pairs of state and action the log shows, under the framing.

    ``n_pairs_once`` counts pairs that rest on a single step, ``n_states_with_choice`` states in which two different
    actions were seen, ``n_teaching`` steps that can teach a value: reward known, and what follows known.
    """

    n_states: int
    n_actions: int
    n_pairs_valid: int
    n_pairs_seen: int
    n_pairs_once: int
    n_states_with_choice: int
    n_teaching: int
    validity_known: bool
    share_seen: float | None
    share_once: float | None  # of the pairs seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """How episodes turned out. Returns are undiscounted sums of the framed rewards; None where none is known."""

    n_known: int  # episodes whose return is known under the framing
    n_rewarded: int  # episodes with some reward, in the log or by the framing, whether or not it adds up to a return
    n_solved: int
    success_rate: float | None  # among the known
    return_low: float | None
    return_mean: float | None
    return_high: float | None
    reward_low: float | None  # of single steps, as logged
    reward_high: float | None
    only_where_cut: bool  # all rewards that aren't 0 stand on steps where an episode was cut
    has_rewards: bool  # as the estimators ask


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCounts:
    """Calls of one tool and how they went."""

    tool: str
    n_calls: int
    n_failures: int
    n_unpaired: int  # neither result nor error was recorded
    failure_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCounts:
    """All tool calls."""

    n_calls: int
    n_failures: int
    n_unpaired: int
    n_unpaired_last: int  # of these, last steps of their episode: nothing may have come back any more
    arguments_status: Mapping[str, int]
    n_unreadable_arguments: int
    n_parallel: int  # steps that are a second or later call of the same reply
    tools: tuple[ToolCounts, ...]  # by failures, then calls


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceCounts:
    """Episodes as sequences."""

    whole: bool  # False once a coverage edit tore steps out
    length_low: int
    length_median: float
    length_high: int
    n_with_gaps: int  # step numbers jump
    n_one_step: int
    n_duplicates: int  # episodes that repeat another one: same task, same actions, same arguments (and states as text)
    n_with_parent: int  # sub-agents and branches


@dataclass(frozen=True, slots=True, kw_only=True)
class Propensities:
    """What the log says about how likely its actions were."""

    n_known: int
    n_impossible: int  # above 0 or not finite: no logarithm of a probability
    n_certain: int  # exactly 0: probability 1
    n_token_lists: int  # steps with log-probabilities of tokens but none of the action
    n_cold: int  # steps sampled at temperature 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything counted. ``filled`` has how many steps say something in each column of the schema."""

    name: str
    world: str | None
    framing: str
    framing_sentence: str
    framing_problem: str  # why the log can't be framed; "" where it can
    success_rule: str
    success_named: bool  # False where a return above 0 stands for it because nobody said what success is
    edits: tuple[str, ...]
    losses: Losses
    n_steps: int
    n_episodes: int
    filled: Mapping[str, int]
    episodes_filled: Mapping[str, int]
    calls_filled: Mapping[str, int]
    coverage: Coverage | None
    outcomes: Outcomes
    tasks: TaskCounts
    ends: Mapping[str, int]
    calls: CallCounts
    sequences: SequenceCounts
    propensities: Propensities
    drift: tuple[VersionDrift, ...]
    version_counts: Mapping[str, int]  # distinct values of each version column
    needless_columns: tuple[str, ...]  # columns that such a log has no use for


def gather_facts(log: Log, dataset: Dataset | None, framing_problem: str = "") -> Facts:
    """Count everything about the steps that a dataset keeps.

    Args:
        log: the steps; where a dataset is given, its own log is used.
        dataset: None where the log can't be framed; nothing about states and returns is known then.
        framing_problem: why.
    """
    log = dataset.log if dataset is not None else log
    with closing(dataset.cursor() if dataset is not None else log.cursor()) as cursor:
        steps = _kept_steps(cursor, dataset)
        _make_runs(cursor, steps, framed=dataset is not None)
        counts = _step_counts(cursor, steps)
        runs = _record(cursor, _RUN_COUNTS)
        named = dataset is not None and names_success(dataset.log, dataset.framing)
        calls_filled, calls = _calls(cursor, steps, counts, runs)
        return Facts(
            name=log.name,
            world=log.source.world if log.source else None,
            framing=dataset.framing.title if dataset else "none",
            framing_sentence=dataset.framing.sentence if dataset else "",
            framing_problem=framing_problem,
            success_rule=dataset.framing.success if dataset else "",
            success_named=named,
            edits=tuple(edit.sentence for edit in dataset.edits) if dataset else (),
            losses=count_losses(cursor, log.report),
            n_steps=counts["n_steps"],
            n_episodes=runs["n_episodes"],
            filled={name: counts[f"n_{name}"] for name in COLUMN_NAMES},
            episodes_filled={name: runs[f"n_{name}"] for name in (*EPISODE_COLUMNS, *LAST_STEP_COLUMNS)},
            calls_filled=calls_filled,
            coverage=_coverage(dataset) if dataset else None,
            outcomes=_outcomes(runs, counts, dataset),
            tasks=count_tasks(cursor),
            ends=_ends(cursor),
            calls=calls,
            sequences=_sequences(cursor, runs, dataset),
            propensities=Propensities(
                n_known=counts["n_action_logprob"],
                n_impossible=counts["n_impossible"],
                n_certain=counts["n_certain"],
                n_token_lists=counts["n_token_lists"],
                n_cold=counts["n_cold"],
            ),
            drift=compare_versions(cursor, steps, named),
            version_counts=_record(
                cursor,
                "SELECT " + ", ".join(f"count(DISTINCT {name}) AS {name}" for name in VERSION_COLUMNS) + " FROM runs",
            ),
            needless_columns=_needless_columns(log, counts),
        )


def _needless_columns(log: Log, counts: Mapping[str, Any]) -> tuple[str, ...]:
    """A world is one version of everything; what acts in an environment has no prompt, no tool definitions, one task."""
    if log.source:
        return ("task", *VERSION_COLUMNS)
    return PROMPTED_COLUMNS if counts["n_env_actions"] == counts["n_steps"] else ()


# -- passes over the steps -----------------------------------------------------------------------------------


def _kept_steps(cursor: duckdb.DuckDBPyConnection, dataset: Dataset | None) -> str:
    """What to write behind FROM for the kept steps. Makes a temporary table ``kept`` with their rows and outcomes."""
    if dataset is None:
        return "steps"
    kept = "TABLE" if dataset.edits else "VIEW"  # read more than once below
    cursor.execute(
        f"CREATE TEMP {kept} kept AS SELECT row, episode_id, episode_return, success FROM ({dataset.relation})"
    )
    return "(SELECT * FROM steps WHERE row IN (SELECT row FROM kept))" if dataset.edits else "steps"


def _make_runs(cursor: duckdb.DuckDBPyConnection, steps: str, framed: bool) -> None:
    """A temporary table ``runs`` with one row per episode."""
    said = ", ".join(f"bool_or({name} IS NOT NULL) AS has_{name}" for name in ("reward", *_TOLD_BY_EPISODE))
    versions = ", ".join(f"any_value({name}) AS {name}" for name in VERSION_COLUMNS)
    outcomes = (
        "SELECT episode_id, any_value(episode_return) AS episode_return, any_value(success) AS success "
        "FROM kept GROUP BY episode_id"
        if framed
        else "SELECT NULL::VARCHAR AS episode_id, NULL::DOUBLE AS episode_return, NULL::BOOLEAN AS success"
    )
    cursor.execute(
        f"""CREATE TEMP TABLE runs AS
        SELECT * FROM (
            SELECT episode_id, any_value(task) AS task, {versions}, {said},
                   count(*) AS n_steps, max(t)::BIGINT - min(t) + 1 > count(*) AS has_gaps,
                   bool_or(parent_episode IS NOT NULL) AS has_parent,
                   sum(hash(t, state_text, action, coalesce(arguments_hash, arguments_raw))) AS trace,
                   arg_max(struct_pack(terminal, timeout, end_reason,
                                       unpaired := tool IS NOT NULL AND tool_result IS NULL AND error IS NULL), t) AS last
            FROM {steps} GROUP BY episode_id
        ) LEFT JOIN ({outcomes}) USING (episode_id)"""
    )


_TOLD_BY_EPISODE = ("reward_source", "reward_components", "verifier_version", "split")

_RUN_COUNTS = f"""
    SELECT count(*) AS n_episodes, count(task) AS n_task,
        {", ".join(f"count({name}) AS n_{name}" for name in VERSION_COLUMNS)},
        {", ".join(f"count(*) FILTER (has_{name}) AS n_{name}" for name in ("reward", *_TOLD_BY_EPISODE))},
        count(last.terminal) AS n_terminal, count(last.timeout) AS n_timeout,
        count(nullif(last.end_reason, 'unknown')) AS n_end_reason,
        count(*) FILTER (has_reward OR episode_return IS NOT NULL) AS n_rewarded,
        count(episode_return) AS n_known, count(*) FILTER (success) AS n_solved,
        min(episode_return) AS return_low, avg(episode_return) AS return_mean, max(episode_return) AS return_high,
        min(n_steps) AS length_low, median(n_steps) AS length_median, max(n_steps) AS length_high,
        count(*) FILTER (has_gaps) AS n_with_gaps, count(*) FILTER (n_steps = 1) AS n_one_step,
        count(*) FILTER (has_parent) AS n_with_parent,
        count(*) FILTER (last.unpaired) AS n_unpaired_last
    FROM runs"""


def _step_counts(cursor: duckdb.DuckDBPyConnection, steps: str) -> dict[str, Any]:
    filled = ", ".join(f"count({name}) AS n_{name}" for name in COLUMN_NAMES)
    return _record(
        cursor,
        f"""SELECT count(*) AS n_steps, {filled},
            min(reward) FILTER (isfinite(reward)) AS reward_low, max(reward) FILTER (isfinite(reward)) AS reward_high,
            count(*) FILTER (action_logprob > 0 OR NOT isfinite(action_logprob)) AS n_impossible,
            count(*) FILTER (action_logprob = 0) AS n_certain,
            count(*) FILTER (action_logprobs IS NOT NULL AND action_logprob IS NULL) AS n_token_lists,
            count(*) FILTER (temperature = 0) AS n_cold, count(*) FILTER (call_index > 0) AS n_parallel,
            count(*) FILTER (action_type = 'env_action') AS n_env_actions
        FROM {steps}""",
    )


def _record(cursor: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """The one row of a query, by column."""
    row = cursor.execute(sql).fetchone()
    assert row is not None
    assert cursor.description is not None
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def _calls(
    cursor: duckdb.DuckDBPyConnection, steps: str, counts: Mapping[str, Any], runs: Mapping[str, Any]
) -> tuple[dict[str, int], CallCounts]:
    filled = ", ".join(f"count({name})" for name in CALL_COLUMNS)
    rows = cursor.execute(
        f"""SELECT tool, count(*) AS n_calls, count(error) AS n_failures,
                count(*) FILTER (tool_result IS NULL AND error IS NULL) AS n_unpaired, {filled}
            FROM {steps} WHERE tool IS NOT NULL GROUP BY tool ORDER BY n_failures DESC, n_calls DESC, tool"""
    ).fetchall()
    tools = tuple(
        ToolCounts(tool=tool, n_calls=n, n_failures=failed, n_unpaired=unpaired, failure_rate=failed / n)
        for tool, n, failed, unpaired, *_ in rows
    )
    status = cursor.execute(
        f"""SELECT arguments_status, count(*) AS n FROM {steps} WHERE tool IS NOT NULL AND arguments_status IS NOT NULL
            GROUP BY arguments_status ORDER BY n DESC, arguments_status"""
    ).fetchall()
    calls = CallCounts(
        n_calls=sum(tool.n_calls for tool in tools),
        n_failures=sum(tool.n_failures for tool in tools),
        n_unpaired=sum(tool.n_unpaired for tool in tools),
        n_unpaired_last=runs["n_unpaired_last"],
        arguments_status=dict(status),
        n_unreadable_arguments=sum(n for name, n in status if name in UNREADABLE),
        n_parallel=counts["n_parallel"],
        tools=tools,
    )
    return {name: sum(row[4 + i] for row in rows) for i, name in enumerate(CALL_COLUMNS)}, calls


def _ends(cursor: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Episodes by how they ended; the flags speak where the log names no reason."""
    found = dict(
        cursor.execute(
            """SELECT CASE WHEN last.end_reason IN ('terminated', 'truncated', 'cut') THEN last.end_reason
                    WHEN last.terminal THEN 'terminated' WHEN last.timeout THEN 'truncated'
                    WHEN NOT last.terminal THEN 'cut' ELSE 'unknown' END AS reason, count(*)
                FROM runs GROUP BY reason"""
        ).fetchall()
    )
    return {reason: found.get(reason, 0) for reason in END_REASONS}


# -- what the dataset knows ----------------------------------------------------------------------------------


def _coverage(dataset: Dataset) -> Coverage:
    counts, valid = dataset.visitation_counts, dataset.valid_mask
    seen = counts > 0
    n_valid, n_seen, n_once = (int(np.count_nonzero(mask)) for mask in (valid, seen & valid, (counts == 1) & valid))
    return Coverage(
        n_states=dataset.n_states,
        n_actions=dataset.n_actions,
        n_pairs_valid=n_valid,
        n_pairs_seen=n_seen,
        n_pairs_once=n_once,
        n_states_with_choice=int(np.count_nonzero(np.count_nonzero(seen, axis=1) > 1)),
        # A framing that puts the outcome at the end gives 0 elsewhere, which teaches nothing while no outcome is known.
        n_teaching=int(dataset.value_counts.sum()) if dataset.has_rewards else 0,
        validity_known=dataset.validity_known,
        share_seen=n_seen / n_valid if n_valid else None,
        share_once=n_once / n_seen if n_seen else None,
    )


def _outcomes(runs: Mapping[str, Any], counts: Mapping[str, Any], dataset: Dataset | None) -> Outcomes:
    n_known = runs["n_known"]
    return Outcomes(
        n_known=n_known,
        n_rewarded=runs["n_rewarded"],
        n_solved=runs["n_solved"],
        success_rate=runs["n_solved"] / n_known if n_known else None,
        return_low=runs["return_low"],
        return_mean=runs["return_mean"],
        return_high=runs["return_high"],
        reward_low=counts["reward_low"],
        reward_high=counts["reward_high"],
        only_where_cut=dataset is not None and _only_where_cut(dataset),
        has_rewards=dataset is not None and dataset.has_rewards,
    )


def _only_where_cut(dataset: Dataset) -> bool:
    edges = dataset.edges
    cut = edges.endings == CUT
    if not edges.n_known[~cut].any():
        return bool(edges.n_known[cut].any())
    return bool(edges.reward_sums[cut].any()) and not edges.reward_sums[~cut].any()


def _sequences(cursor: duckdb.DuckDBPyConnection, runs: Mapping[str, Any], dataset: Dataset | None) -> SequenceCounts:
    distinct = _record(cursor, "SELECT count(*) AS n FROM (SELECT DISTINCT task, n_steps, trace FROM runs)")
    return SequenceCounts(
        whole=dataset is None or dataset.whole_sequences,
        length_low=runs["length_low"],
        length_median=float(runs["length_median"]),
        length_high=runs["length_high"],
        n_with_gaps=runs["n_with_gaps"],
        n_one_step=runs["n_one_step"],
        n_duplicates=runs["n_episodes"] - distinct["n"],
        n_with_parent=runs["n_with_parent"],
    )
