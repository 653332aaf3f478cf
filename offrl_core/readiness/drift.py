"""Does the log mix versions, and did behavior or success change between them?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from ..wording import counted

VERSION_COLUMNS = ("prompt_version", "tool_schema_version", "behavior_policy", "environment_version")
MAX_VERSIONS = 8
FEW_EPISODES = 30  # a rule of thumb: below it, a share is too rough to compare


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One value of a version column, beside the value with most episodes.

    ``distance`` is the total variation between the two mixes of actions: half the sum of the absolute differences of
    their shares, 0 for the same mix and 1 for mixes without a common action. Two samples of one and the same mix differ
    too: ``distance_by_chance`` is the mean to expect then, if steps were independent.
    """

    value: str
    n_episodes: int
    n_steps: int
    n_known: int
    success_rate: float | None
    n_common_tasks: int | None  # None for the value that the others are compared with
    distance: float | None
    distance_by_chance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDrift:
    """The values of one version column, most episodes first, at most ``MAX_VERSIONS`` of ``n_versions``."""

    column: str
    n_versions: int
    n_episodes_without: int
    versions: tuple[Version, ...]
    sentences: tuple[str, ...]


def compare_versions(cursor: duckdb.DuckDBPyConnection, steps: str, success_named: bool) -> tuple[VersionDrift, ...]:
    """Compare the versions of every version column that has several.

    Args:
        cursor: with the temporary table ``runs``. An episode that mixes versions counts with the first one it names.
        steps: what to write behind FROM for the steps.
        success_named: whether somebody said what success is; else sentences speak of returns above 0.
    """
    found = []
    for column in VERSION_COLUMNS:
        (n_versions, n_named, n_without), *_ = cursor.execute(
            f"SELECT count(DISTINCT {column}), count({column}), count(*) - count({column}) FROM runs"
        ).fetchall()
        if n_versions > 1:
            counts = n_versions, n_named, n_without
            found.append(_compare(cursor, steps, column, counts, "success" if success_named else "return above 0:"))
    return tuple(found)


def _compare(
    cursor: duckdb.DuckDBPyConnection, steps: str, column: str, counts: tuple[int, int, int], success: str
) -> VersionDrift:
    n_versions, _, n_without = counts
    rows = cursor.execute(
        f"""SELECT {column}, count(*) AS n, sum(n_steps)::BIGINT, count(success), count(*) FILTER (success) FROM runs
            WHERE {column} IS NOT NULL GROUP BY {column} ORDER BY n DESC, {column} LIMIT {MAX_VERSIONS}"""
    ).fetchall()
    values = [row[0] for row in rows]
    mixes = _action_mixes(cursor, steps, column, values)
    common = _common_tasks(cursor, column, values)
    versions = []
    for value, n_episodes, n_steps, n_known, n_solved in rows:
        compared = value != values[0]
        distance, by_chance = _distance(mixes[value], mixes[values[0]]) if compared else (None, None)
        versions.append(
            Version(
                value=value,
                n_episodes=n_episodes,
                n_steps=n_steps,
                n_known=n_known,
                success_rate=n_solved / n_known if n_known else None,
                n_common_tasks=common.get(value, 0) if compared else None,
                distance=distance,
                distance_by_chance=by_chance,
            )
        )
    return VersionDrift(
        column=column,
        n_versions=n_versions,
        n_episodes_without=n_without,
        versions=tuple(versions),
        sentences=_sentences(column, counts, versions, success),
    )


def _action_mixes(
    cursor: duckdb.DuckDBPyConnection, steps: str, column: str, values: Sequence[str]
) -> dict[str, dict[str, int]]:
    mixes: dict[str, dict[str, int]] = {value: {} for value in values}
    rows = cursor.execute(
        f"""SELECT {column}, action, count(*) FROM {steps}
            WHERE list_contains(?, {column}) AND action IS NOT NULL GROUP BY {column}, action""",
        [list(values)],
    ).fetchall()
    for value, action, n in rows:
        mixes[value][action] = n
    return mixes


def _common_tasks(cursor: duckdb.DuckDBPyConnection, column: str, values: Sequence[str]) -> dict[str, int]:
    """Tasks that each version shares with the first one."""
    rows = cursor.execute(
        f"""SELECT {column}, count(DISTINCT task) FROM runs
            WHERE list_contains(?, {column}) AND task IN (SELECT task FROM runs WHERE {column} = ?) GROUP BY {column}""",
        [list(values), values[0]],
    ).fetchall()
    return dict(rows)


def _distance(mix: Mapping[str, int], other: Mapping[str, int]) -> tuple[float | None, float | None]:
    """Total variation between two mixes of actions, and its mean for two samples of one mix.

    The difference of two shares of one action is then about normal with variance p (1 - p) (1/n + 1/m), and the mean of
    its absolute value is the square root of 2/π times its standard deviation.
    """
    n, m = sum(mix.values()), sum(other.values())
    if not n or not m:
        return None, None
    actions = mix.keys() | other.keys()
    distance = sum(abs(mix.get(action, 0) / n - other.get(action, 0) / m) for action in actions) / 2
    pooled = [(mix.get(action, 0) + other.get(action, 0)) / (n + m) for action in actions]
    spread = sum(math.sqrt(p * (1 - p) * (1 / n + 1 / m)) for p in pooled)
    return min(distance, 1.0), min(math.sqrt(2 / math.pi) * spread / 2, 1.0)


# -- in words ------------------------------------------------------------------------------------------------


def _sentences(column: str, counts: tuple[int, int, int], versions: Sequence[Version], success: str) -> tuple[str, ...]:
    n_versions, n_named, n_without = counts
    name = column.replace("_", " ")
    first, *others = versions
    if n_versions > n_named / 2:
        return (
            f"There are {n_versions:,} values of {name} in {counted(n_named, 'episode')}: "
            "too few episodes of each to compare them.",
        )
    sentences = [_compared(first, other, success) for other in others]
    if n_versions > len(versions):
        sentences.append(f"{len(versions):,} of {n_versions:,} values of {name} are shown, those with most episodes.")
    if n_without:
        sentences.append(f"{counted(n_without, 'episode')} without a {name}.")
    return tuple(sentences)


def _compared(first: Version, other: Version, success: str) -> str:
    """One version beside the most frequent one, with what chance alone would do."""
    few = "; few episodes, so read it as a hint" if min(first.n_episodes, other.n_episodes) < FEW_EPISODES else ""
    return (
        f"{other.value} ({counted(other.n_episodes, 'episode')}) beside {first.value} ({counted(first.n_episodes, 'episode')}): "
        f"{_success(first, other, success)}; {_mix(other)}; {counted(other.n_common_tasks or 0, 'task')} in common{few}."
    )


def _success(first: Version, other: Version, name: str) -> str:
    if first.success_rate is None or other.success_rate is None:
        return "success can't be compared, because outcomes are unknown"
    n, m = first.n_known, other.n_known
    pooled = (first.success_rate * n + other.success_rate * m) / (n + m)
    chance = 2 * math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    difference = abs(first.success_rate - other.success_rate)
    judged = "more than chance explains" if difference > chance else "no more apart than chance allows"
    return f"{name} {other.success_rate:.0%} against {first.success_rate:.0%}, {judged}"


def _mix(other: Version) -> str:
    if other.distance is None or other.distance_by_chance is None:
        return "actions can't be compared"
    told = f"action mixes are {other.distance:.2f} apart (0 the same, 1 nothing in common"
    return f"{told}; two samples of one mix: about {other.distance_by_chance:.2f})"
