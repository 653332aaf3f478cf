"""Where learned values stop resting on data: tables by state, and what one value is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..arrays import BoolArray, FloatArray, IntArray
from ..behavior import behavior_policy
from ..dataset import Dataset
from ..edges import ENDED
from ..errors import NotPossible
from ..interfaces import TrainedModel
from ..policies import TabularPolicy, table_of
from ..worlds import make_world
from .exact import true_q_values


def exact_q_of(model: TrainedModel, dataset: Dataset, deployment: str = "works") -> FloatArray | None:
    """(S, A) exact Q of the model's policy, NaN where invalid or unreachable.

    None where no world stands behind the log, and for a policy that looks back: it has no value of a state and an action.
    """
    source = dataset.log.source
    if source is None or not isinstance(model.policy, TabularPolicy):
        return None
    values = true_q_values(
        model.policy,
        source.world,
        deployment,
        states=dataset.states,
        actions=dataset.actions,
        behavior=behavior_policy(make_world(source.world), source.behavior),
        discount=dataset.discount,
    )
    return np.where(dataset.valid_mask, values, np.nan)


def value_spread(models: Sequence[TrainedModel]) -> FloatArray:
    """(S, A) standard deviation of Q over models of the same dataset that differ in their seed, reward units.

    An ensemble's measure of what it doesn't know: where rows speak the seeds agree, elsewhere each network makes up a value of
    its own (the idea of deep ensembles: Lakshminarayanan, Pritzel & Blundell 2017). It sees no error that all of them share.
    NaN where a model has no value.

    Raises:
        NotPossible: fewer than two models, or one without values.
    """
    tables = [model.q_values for model in models if model.q_values is not None]
    if len(tables) < 2 or len(tables) < len(models):
        raise NotPossible("A spread over seeds needs two models or more, all of a learner that has values.")
    return np.asarray(np.std(tables, axis=0))


def state_table(dataset: Dataset, model: TrainedModel, true_q: FloatArray | None, min_count: int = 1) -> pd.DataFrame:
    """One row per state: visits, the action chosen, whether the log supports it, its learned and exact value.

    Columns: state, visits, greedy_action, greedy_count, unsupported_choice, learned_q, true_q, overestimation (learned minus
    exact at the greedy action, reward units). Values are NaN where the model has none or no truth is known.

    Raises:
        NotPossible: the policy is no table over states.
    """
    greedy = table_of(model.policy, "Tables by state").probabilities.argmax(axis=1)
    rows = np.arange(dataset.n_states)
    counts = dataset.visitation_counts
    unknown = np.full(dataset.n_states, np.nan)
    learned = unknown if model.q_values is None else model.q_values[rows, greedy]
    exact = unknown if true_q is None else true_q[rows, greedy]
    return pd.DataFrame(
        {
            "state": dataset.states,
            "visits": counts.sum(axis=1),
            "greedy_action": [dataset.actions[a] for a in greedy],
            "greedy_count": counts[rows, greedy],
            "unsupported_choice": counts[rows, greedy] < min_count,
            "learned_q": learned,
            "true_q": exact,
            "overestimation": learned - exact,
        }
    )


def choices_first(visits: IntArray, valid_mask: BoolArray) -> IntArray:
    """(S,) row numbers: states with more than one valid action first, the most visited of them on top."""
    return np.lexsort((-visits, valid_mask.sum(axis=1) < 2))


def sort_order(by: str, table: pd.DataFrame, valid_mask: BoolArray) -> IntArray:
    """(S,) row numbers of a :func:`state_table`, best to look at first.

    Args:
        by: ``state`` (natural order), ``visits``, ``overestimation``, ``unsupported`` (choices outside the support), or
            ``choice`` (states with more than one valid action first, the most visited of them on top).
        table: of the same dataset.
        valid_mask: (S, A).
    """
    if by == "choice":
        return choices_first(table["visits"].to_numpy(), valid_mask)
    visits = -table["visits"].to_numpy()
    if by == "unsupported":
        return np.lexsort((visits, ~table["unsupported_choice"].to_numpy()))
    keys = {"visits": visits, "overestimation": -table["overestimation"].fillna(-np.inf).to_numpy()}
    return np.argsort(keys[by], kind="stable") if by in keys else np.arange(len(table))


def band_means(
    bands: Sequence[IntArray], q_values: FloatArray, valid_mask: BoolArray, supported: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Summaries of R bands of states.

    Args:
        bands: row numbers of the states of each band.
        q_values: (S, A) learned values, NaN where the learner may not choose.
        valid_mask: (S, A).
        supported: (S, A).

    Returns:
        (R, A) mean learned Q, NaN where no state of the band has one, and (R, A) share of valued pairs that are
        unsupported.
    """
    valued = valid_mask & ~np.isnan(q_values)
    means, shares = np.full((len(bands), q_values.shape[1]), np.nan), np.zeros((len(bands), q_values.shape[1]))
    for r, band in enumerate(bands):
        counts = valued[band].sum(axis=0)
        has = counts > 0
        means[r, has] = np.where(valued[band], q_values[band], 0.0).sum(axis=0)[has] / counts[has]
        shares[r, has] = (valued[band] & ~supported[band]).sum(axis=0)[has] / counts[has]
    return means, shares


def promised_return(dataset: Dataset, model: TrainedModel) -> float | None:
    """Learned value of the policy where the episodes of the log begin (discounted); None for learners without values."""
    if model.q_values is None:
        return None
    starts = dataset.start_counts
    values = policy_values_of(model)
    return float((starts * np.where(starts > 0, values, 0.0)).sum() / starts.sum())


def policy_values_of(model: TrainedModel) -> FloatArray:
    """(S,) learned value of what the policy does in each state: the mean of Q over its actions; NaN without values."""
    if model.q_values is None:
        return np.full(len(model.policy.states), np.nan)
    probabilities = table_of(model.policy, "Values by state").probabilities
    return (probabilities * np.where(probabilities > 0, model.q_values, 0.0)).sum(axis=1)


class ValuePart(NamedTuple):
    """One successor of a pair: how likely, what it is worth, and what that worth rests on."""

    next_state: str | None  # None: the episode ended
    probability: float
    next_action: str | None  # the one the policy takes most often
    next_action_count: int
    next_value: float  # learned value of what the policy does there, 0 after an ending
    contribution: float  # probability * discount * next_value


class ValueParts(NamedTuple):
    """A learned value taken apart: mean reward plus what each successor adds."""

    mean_reward: float | None  # None: no row teaches this pair, its value is the learner's default
    parts: tuple[ValuePart, ...]

    @property
    def total(self) -> float | None:
        """Mean reward plus all contributions; equals the backup of the pair."""
        return None if self.mean_reward is None else self.mean_reward + sum(part.contribution for part in self.parts)


def value_parts(dataset: Dataset, model: TrainedModel, state: int, action: int) -> ValueParts:
    """What Q(s, a) is made of: one Bellman backup of the model's own values, with its evidence."""
    edges = dataset.edges
    n = int(dataset.value_counts[state, action])
    if n == 0 or model.q_values is None:
        return ValueParts(None, ())
    here = (edges.states == state) & (edges.actions == action) & (edges.endings <= ENDED) & (edges.n_known > 0)
    v_values, greedy = policy_values_of(model), table_of(model.policy, "Values by state").greedy_actions()
    parts = []
    for edge in np.flatnonzero(here):
        probability, following = edges.n_known[edge] / n, int(edges.next_states[edge])
        if following < 0:
            parts.append(ValuePart(None, probability, None, 0, 0.0, 0.0))
            continue
        value = float(v_values[following])
        count = int(dataset.visitation_counts[following, dataset.actions.index(greedy[following])])
        parts.append(
            ValuePart(
                dataset.states[following],
                probability,
                greedy[following],
                count,
                value,
                probability * dataset.discount * value,
            )
        )
    parts.sort(key=lambda part: -part.probability)
    return ValueParts(float(edges.reward_sums[here].sum()) / n, tuple(parts))


class AliasingSummary(NamedTuple):
    """Pairs (state key, action) that end an episode sometimes solved and sometimes not: the key hides what matters."""

    n_keys: int
    n_mixed: int
    visit_share: float  # share of the visits of all these keys that falls on mixed ones


def aliasing(dataset: Dataset) -> AliasingSummary:
    """Count, over pairs that end episodes, those with mixed outcomes."""
    rows = dataset.rows(
        f"SELECT count(*), sum((lowest < highest)::INTEGER), sum(CASE WHEN lowest < highest THEN n ELSE 0 END) / sum(n) FROM "
        f"(SELECT s, a, count(*) AS n, min(framed_reward) AS lowest, max(framed_reward) AS highest "
        f"FROM ({dataset.relation}) WHERE ending = {ENDED} GROUP BY s, a)"
    )
    n_keys, n_mixed, share = rows[0]
    return AliasingSummary(int(n_keys), int(n_mixed or 0), float(share or 0.0))


class Evidence(NamedTuple):
    """What the log says about one pair."""

    n_rows: int
    n_episodes: int
    mean_reward: float | None  # None: unknown, or no row
    mean_return: float | None  # discounted, from this step on, as the episodes went; None: unknown, or no row
    n_returns: int  # rows behind mean_return
    rows: pd.DataFrame  # at most EVIDENCE_ROWS of them, columns of the steps
    sql: str  # that fetches them


EVIDENCE_ROWS = 200
MAX_RETURNS = 5_000  # rows followed to their episode's end for the mean return; more take too long for a click


def evidence(dataset: Dataset, state_key: str, action: str) -> Evidence:
    """Rows, episodes and returns of a pair, and the SQL that finds them."""
    tables, discount = dataset.framing.token, dataset.discount
    pair = [state_key, action]
    here = (
        f"SELECT * FROM ({dataset.relation}) WHERE s = (SELECT s FROM states_{tables} WHERE state_key = ?) "
        f"AND a = (SELECT a FROM actions_{tables} WHERE action_name = ?)"
    )
    n_rows, n_episodes, mean_reward = dataset.rows(
        f"SELECT count(*), count(DISTINCT episode), avg(framed_reward) FROM ({here})", pair
    )[0]
    mean_return, n_returns = dataset.rows(
        f"""WITH here AS (SELECT row, episode, t FROM ({here}) ORDER BY row LIMIT {MAX_RETURNS}),
            returns AS (
                SELECT here.row, count(*) = count(later.framed_reward) AS known,
                       sum(later.framed_reward * pow({discount!r}, later.t::BIGINT - here.t)) AS discounted_return
                FROM here JOIN framed_{tables} AS later ON later.episode = here.episode AND later.t >= here.t
                GROUP BY here.row)
            SELECT avg(discounted_return), count(*) FROM returns WHERE known""",
        pair,
    )[0]
    shown = dataset.rows(f"SELECT row FROM ({here}) ORDER BY row LIMIT {EVIDENCE_ROWS}", pair)
    # Numbers and their range, not a subquery: only these rows are then read, of both tables behind the view.
    numbers = [row for (row,) in shown] or [-1]
    which = f"row BETWEEN {numbers[0]} AND {numbers[-1]} AND row IN ({', '.join(map(str, numbers))})"
    rows_sql = f"SELECT * EXCLUDE (episode) FROM framed_steps_{tables} WHERE {which} ORDER BY row"
    return Evidence(
        n_rows, n_episodes, mean_reward, mean_return, n_returns, dataset.log.frame(rows_sql), shown_sql(pair)
    )


def shown_sql(pair: list[str]) -> str:
    """The query as a visitor can run it on the page Query."""
    state_key, action = (value.replace("'", "''") for value in pair)
    return f"SELECT * FROM framed\nWHERE state_key = '{state_key}'\n  AND action_name = '{action}'"
