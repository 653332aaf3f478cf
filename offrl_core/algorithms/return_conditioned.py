r"""Ask for a return, and do what the log did when it still got that much: the tabular shadow of a Decision Transformer.

From the log: pi(a | s, g), the share of action a among the rows at s whose return-to-go lies near g. Played: start with g
= the return asked for, and after each step go on with what is still missing, g' = (g - reward) / discount.

Such a player remembers g, so it is no table over states. What is returned is the one table that visits every state and
pair as often: the player is followed exactly, step by step, through the process that the log's counts describe, and

    pi(a|s) = expected visits of (s, a) / expected visits of s.

In that process both have the same worth (Altman 1999, "Constrained Markov decision processes", chapter 3); the world may
still differ from the log. The successor is drawn as the counts say, *not* as the log's lucky episodes had it: asking for
more than chance allows doesn't bring it, and ``met`` against ``asked`` shows the gap.

Source: Chen et al. (2021), "Decision transformer: reinforcement learning via sequence modeling", NeurIPS, section 3; as a
table, Brandfonbrener et al. (2022), "When does return-conditioned supervised learning work for offline reinforcement
learning?", NeurIPS, section 2.

Differs: 1. no network and no context: the state key is all it sees. 2. Returns-to-go are kept on a grid; each is shared
between its two neighbours so that means stay exact. A return that a state never shows is answered with the nearest it
does. 3. A table can't be asked for more than the log shows, so ``ask`` runs from the worst to the best return of an
episode. 4. On the way the reward met is the mean of the pair's rows that go on, and an episode lasts at most as long as
the longest of the log. 5. Discounted, as the framing says. 6. A state that the player never reaches keeps the log's mix;
one without rows is uniform over its valid actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..arrays import BoolArray, FloatArray, IntArray
from ..dataset import Dataset
from ..edges import CUT
from ..errors import NotPossible
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training
from ..params import param
from ..policies import TabularPolicy
from .ops import behavior_or_uniform, range_of_returns

GONE = 1e-12  # share of the episodes still played at which the rest is let go


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnConditionedConfig:
    """Parameters of the return-conditioned table."""

    ask: float = param(
        1.0,
        label="Return asked for",
        help="0 asks for the smallest discounted return that an episode of the log got, 1 for the largest.",
        low=0.0,
        high=1.0,
        step=0.05,
        unit="share of the range",
        source="Chen et al. 2021, section 3",
    )
    imitate: str = param(
        "majority",
        label="Imitates",
        help="At each state and return-to-go: the most frequent action, or the frequencies.",
        choices=(("majority", "the most frequent action"), ("frequencies", "the frequencies")),
    )
    n_buckets: int = param(
        21,
        label="Grid of returns",
        help="Points on which returns-to-go are kept apart, from the smallest to the largest of the log.",
        low=2,
        high=201,
        step=1,
        unit="points",
    )


class _Table(NamedTuple):
    """What the log did, by pair and return-to-go; P seen pairs, sorted by state, and B grid points."""

    states: IntArray  # (P,)
    actions: IntArray  # (P,)
    grid: FloatArray  # (B,) returns-to-go
    shares: FloatArray  # (P, B) probability of the pair's action at its state and a return-to-go


class _Process(NamedTuple):
    """Where the pairs of a table lead, as the counts say."""

    rewards: FloatArray  # (P,) mean; 0 where unknown
    going_on: scipy.sparse.csr_array  # (S, P) probability of each successor
    missing: FloatArray  # (P, B) return-to-go after the pair's step


def train(dataset: Dataset, config: ReturnConditionedConfig, *, seed: int) -> Training:
    """Count by return-to-go, follow the player through the log's process, and keep its visits."""
    del seed  # the player is followed exactly; nothing is drawn
    returns = _known_returns(dataset)
    low, high = range_of_returns(dataset)
    asked = low + config.ask * (high - low)
    horizon = int(np.bincount(dataset.episodes).max())
    yield Progress(step=0, total=horizon, metrics={"asked": asked, "met": 0.0, "still_playing": 1.0})
    table = _conditional_table(dataset, returns, config)
    process = _process(dataset, table)
    targets = _targets(process.missing, table.grid)
    # (S, B) share of episodes that stand in a state with so much to go.
    standing = np.outer(dataset.start_counts / dataset.start_counts.sum(), _shared(asked, table.grid))
    visits, met = np.zeros(len(table.states)), 0.0
    for step in range(1, horizon + 1):
        acting = standing[table.states] * table.shares
        by_pair = acting.sum(axis=1)
        visits += by_pair
        met += dataset.discount ** (step - 1) * float(by_pair @ process.rewards)
        standing = process.going_on @ _moved(acting, *targets)
        playing = float(standing.sum())
        yield Progress(step=step, total=horizon, metrics={"asked": asked, "met": met, "still_playing": playing})
        if playing <= GONE:
            break
    policy = TabularPolicy(
        states=dataset.states, actions=dataset.actions, probabilities=_visit_shares(dataset, table, visits)
    )
    return TrainedModel(policy=policy, q_values=None)


def _known_returns(dataset: Dataset) -> FloatArray:
    if not dataset.whole_sequences:
        raise NotPossible(
            "The return-conditioned table needs whole episodes: a coverage edit took single steps out of them, so what was "
            "still to come at each step is unknown. Take whole episodes out instead."
        )
    returns = dataset.returns_to_go
    if np.isnan(returns).all():
        raise NotPossible(
            "The return-conditioned table asks for a return, and no step of this log has a known reward to the end of its "
            "episode (all were cut or lack a reward). Behavior cloning (bc) needs none."
        )
    return returns


# -- what the log did, by return-to-go ------------------------------------------------------------------------


def _conditional_table(dataset: Dataset, returns: FloatArray, config: ReturnConditionedConfig) -> _Table:
    visitation_counts = dataset.visitation_counts
    states, actions = np.nonzero(visitation_counts)
    grid = np.linspace(np.nanmin(returns), np.nanmax(returns), config.n_buckets)
    counts = _counts_by_return(dataset, returns, grid)
    begins = np.flatnonzero(np.append(True, states[1:] != states[:-1]))
    group = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(states))))
    sums = np.add.reduceat(counts, begins, axis=0)
    # Where no return is known at all, whatever is asked for is answered with the log's mix.
    silent = (sums.sum(axis=1) == 0)[group]
    counts[silent] = visitation_counts[states, actions][silent, None]
    shown = (sums > 0) | (sums.sum(axis=1, keepdims=True) == 0)
    counts = np.take_along_axis(counts, _nearest_shown(shown)[group], axis=1)
    if config.imitate == "majority":
        counts = _only_largest(counts, begins, group)
    return _Table(states, actions, grid, counts / np.add.reduceat(counts, begins, axis=0)[group])


def _counts_by_return(dataset: Dataset, returns: FloatArray, grid: FloatArray) -> FloatArray:
    """(P, B) rows of each seen pair by return-to-go, each shared between its two neighbours on the grid."""
    known, rows = ~np.isnan(returns), dataset.transitions()
    places = _places_of_pairs(dataset)[rows.observations[known], rows.actions[known]]
    lower, upper_share = _neighbours(returns[known], grid)
    n_pairs, n_points = int(np.count_nonzero(dataset.visitation_counts)), len(grid)
    cells, size = places * n_points + lower, n_pairs * n_points
    counts = np.bincount(cells, 1 - upper_share, minlength=size).astype(np.float64, copy=False)
    counts += np.bincount(np.minimum(cells + 1, size - 1), upper_share, minlength=size)
    return counts.reshape(n_pairs, n_points)


def _places_of_pairs(dataset: Dataset) -> IntArray:
    """(S, A) number of each seen pair, -1 elsewhere."""
    seen = dataset.visitation_counts > 0
    places = np.full(seen.shape, -1)
    places[seen] = np.arange(int(seen.sum()))
    return places


def _nearest_shown(shown: BoolArray) -> IntArray:
    """(G, B) nearest grid point with data in the same row, the lower of two; every row has one."""
    n_points = shown.shape[1]
    points = np.arange(n_points)
    below = np.maximum.accumulate(np.where(shown, points, -2 * n_points), axis=1)
    above = np.minimum.accumulate(np.where(shown, points, 3 * n_points)[:, ::-1], axis=1)[:, ::-1]
    nearest: IntArray = np.where(points - below <= above - points, below, above)
    return nearest


def _only_largest(counts: FloatArray, begins: IntArray, group: IntArray) -> FloatArray:
    """(P, B) 1 at the largest count of each group of pairs and grid point (the first of equals), else 0."""
    largest = np.maximum.reduceat(counts, begins, axis=0)[group]
    numbers = np.arange(len(counts))[:, None]
    # Shares of a row between two grid points are rounded; what differs by that only is equal.
    candidates = np.where(counts >= largest * (1 - 1e-9), numbers, len(counts))
    return (numbers == np.minimum.reduceat(candidates, begins, axis=0)[group]).astype(np.float64)


# -- the player -----------------------------------------------------------------------------------------------


def _process(dataset: Dataset, table: _Table) -> _Process:
    edges, places = dataset.edges, _places_of_pairs(dataset)
    usable = (edges.endings != CUT) & (edges.n_known > 0)
    goes_on = usable & (edges.next_states >= 0)
    pairs = places[edges.states, edges.actions]

    def summed(which: BoolArray, weights: NDArray[Any]) -> FloatArray:
        return np.bincount(pairs[which], weights[which], minlength=len(table.states)).astype(np.float64, copy=False)

    n_rows, n_on = summed(usable, edges.n_known), summed(goes_on, edges.n_known)
    on_the_way = summed(goes_on, edges.reward_sums) / np.maximum(n_on, 1)
    probabilities = edges.n_known[goes_on] / n_rows[pairs[goes_on]]
    return _Process(
        rewards=summed(usable, edges.reward_sums) / np.maximum(n_rows, 1),
        going_on=scipy.sparse.csr_array(
            (probabilities, (edges.next_states[goes_on], pairs[goes_on])), shape=(dataset.n_states, len(n_rows))
        ),
        # At discount 0 nothing later counts, and the ends of the grid answer whatever is asked.
        missing=(table.grid - on_the_way[:, None]) / max(dataset.discount, 1e-12),
    )


def _neighbours(values: FloatArray, grid: FloatArray) -> tuple[IntArray, FloatArray]:
    """Grid point below each value and the share of the one above, so that means stay; values outside go to the ends."""
    width = grid[-1] - grid[0]
    if width <= 0:
        return np.zeros(values.shape, dtype=np.int64), np.zeros(values.shape)
    place = np.clip((values - grid[0]) / width, 0.0, 1.0) * (len(grid) - 1)
    place = np.round(place, 9)  # a return on a grid point belongs to it alone
    lower = np.minimum(place.astype(np.int64), len(grid) - 2)
    return lower, place - lower


def _shared(value: float, grid: FloatArray) -> FloatArray:
    """(B,) share of a value on each grid point."""
    lower, upper_share = _neighbours(np.array([value]), grid)
    shared = np.zeros(len(grid))
    shared[lower[0] : lower[0] + 2] = [1 - upper_share[0], upper_share[0]]
    return shared


def _targets(missing: FloatArray, grid: FloatArray) -> tuple[IntArray, FloatArray]:
    """(P*B,) cell of the lower neighbour of what is missing after a step, and the share of the upper one."""
    lower, upper_share = _neighbours(missing, grid)
    return (np.arange(len(missing))[:, None] * len(grid) + lower).ravel(), upper_share.ravel()


def _moved(acting: FloatArray, lower: IntArray, upper_share: FloatArray) -> FloatArray:
    """(P, B) the same mass, at what is missing after the step."""
    mass = acting.ravel()
    used = np.flatnonzero(mass)
    up, below = mass[used] * upper_share[used], lower[used]
    moved = np.bincount(below, mass[used] - up, minlength=len(mass)).astype(np.float64, copy=False)
    moved[1:] += np.bincount(below, up, minlength=len(mass))[:-1]
    return moved.reshape(acting.shape)


def _visit_shares(dataset: Dataset, table: _Table, visits: FloatArray) -> FloatArray:
    """(S, A) of each state's visits; the log's mix where the player never comes."""
    probabilities = np.zeros(dataset.valid_mask.shape)
    probabilities[table.states, table.actions] = visits
    reached = probabilities.sum(axis=1, keepdims=True)
    log_mix = behavior_or_uniform(dataset.behavior_probabilities, dataset.valid_mask)
    return np.where(reached > 0, probabilities / np.where(reached > 0, reached, 1.0), log_mix)


SPEC = AlgorithmSpec(
    name="return_conditioned",
    title="Ask for a return (tabular Decision Transformer)",
    short="Ask for a return",
    summary="Does what the log did where it still got the return asked for. No values; needs whole episodes.",
    config_class=ReturnConditionedConfig,
    train=train,
    metrics={
        "asked": "discounted return asked for at the start, reward units",
        "met": "discounted return so far when played in the log's process, reward units; unknown rewards add nothing",
        "still_playing": "share of the episodes that go on",
    },
    unit="step",
    equation=r"\pi(a \mid s) = \frac{\sum_t \Pr(s_t = s, a_t = a)}{\sum_t \Pr(s_t = s)},\quad "
    r"a_t \sim \hat P(a \mid s_t, g_t),\; g_{t+1} = (g_t - r_t)/\gamma",
    source="Chen et al. 2021, section 3; Brandfonbrener et al. 2022",
    differs=(
        "no network and no context: the state key is all it sees",
        "returns-to-go on a grid; one that a state never shows is answered with the nearest it does",
        "can't be asked for more than the log shows",
        "rewards on the way are the means of their pairs; episodes last at most as long as the longest of the log",
        "discounted, as the framing says",
        "states it never reaches keep the log's mix",
    ),
)
