"""Distribution shift: where a policy goes, held against where the log has been; step by step, and as a flow of actions.

The log's side is counted. The policy's side is exact where a world stands behind the log; elsewhere whole logged episodes are
weighted by importance, under the same preconditions as estimates, and refused with the same sentences.

Visits are per episode and undiscounted. An episode that is over counts as being "over", so that two ways of ending at different
times differ, too: the total variation at step t is half the sum of |p - q| over pairs and "over", between 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from ..arrays import BoolArray, FloatArray, ShortRepr
from ..dataset import Dataset
from ..errors import InvalidConfig, NotPossible
from ..mdp import TabularMDP
from ..policies import Policy, TabularPolicy, table_of
from .exact import WorldModel, world_model
from .occupancy import GONE, visits_by_step
from .ope.case import Case
from .ope.preconditions import check
from .ope.steps import LoggedSteps, logged_steps

MAX_STEPS = 200  # of an episode that goes on for long; what comes later is left out, and said
LONGEST_HORIZON = 50
FLOW_STEPS = 6  # actions from the start that a flow shows
START, OVER = "start", "over"

_NEEDS = (
    "not_torn",
    "without_gaps",
    "known_returns",
    "something_left",
    "propensities",
    "bounded_weights",
    "overlap",
    "effective_size",
)


class FlowLink(NamedTuple):
    """Episodes that go from one action to the next.

    Attributes:
        step: 0-based step of the target.
        source, target: names of actions; the source of the first is ``start``, the last target ``over``.
        source_supported, target_supported: whether the log supports the pairs by which they were taken.
        share: of all episodes.
    """

    step: int
    source: str
    source_supported: bool
    target: str
    target_supported: bool
    share: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Visits(ShortRepr):
    """Where episodes go.

    Attributes:
        by_pair: (S, A) expected visits per episode.
        by_step: the same step by step, sparse: columns step (from 0), pair (s * A + a), share (of the episodes).
        going: (T,) share of the episodes that still go on at each step.
        flow: actions one after the other, up to :data:`FLOW_STEPS`.
    """

    by_pair: FloatArray
    by_step: pd.DataFrame
    going: FloatArray
    flow: tuple[FlowLink, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Shift(ShortRepr):
    """A policy's visits against the log's.

    Attributes:
        states: keys that either side visits or the log knows; those that only the policy visits come last.
        actions: names.
        policy, log: visits of both sides on these.
        supported: (S, A) pairs in the support.
        valid: (S, A) pairs that may be chosen; those that either side visits count, too.
        total_variation: (T,) per step, between 0 and 1.
        kind: ``exact`` or ``weighted``.
        effective_sample_size: (T,) episodes that the weighted visits are worth at each step; None where they are exact.
    """

    states: tuple[str, ...]
    actions: tuple[str, ...]
    policy: Visits
    log: Visits
    supported: BoolArray
    valid: BoolArray
    total_variation: FloatArray
    kind: Literal["exact", "weighted"]
    effective_sample_size: FloatArray | None

    @property
    def unsupported_share(self) -> float:
        """Share of the policy's steps that fall on pairs outside the support."""
        visits = self.policy.by_pair
        return float(visits[~self.supported].sum() / visits.sum())

    @property
    def left_out(self) -> float:
        """Share of the policy's episodes that go on after the last step looked at."""
        return float(self.policy.going[-1]) if len(self.policy.going) == MAX_STEPS else 0.0

    @property
    def sentence(self) -> str:
        """How far apart the two are, in words."""
        worst = int(self.total_variation.argmax())
        return (
            f"Policy and log are furthest apart at t = {worst:,}: {self.total_variation[worst]:.0%} of the episodes would "
            f"have to do something else. {self.unsupported_share:.1%} of the policy's steps fall outside the support."
        )


def distribution_shift(dataset: Dataset, policy: Policy, deployment: str = "works", min_count: int = 1) -> Shift:
    """Hold a policy's visits against the log's.

    Args:
        dataset: whole episodes.
        policy: over state keys.
        deployment: of the world, where one stands behind the log.
        min_count: rows from which on a pair counts as supported.

    Raises:
        NotPossible: the policy looks back; an edit tore steps out of episodes; or no world is known and the log can't be
            weighted, with the reason.
    """
    table = table_of(policy, "The visits of a policy, step by step,")
    torn = next((edit for edit in dataset.edits if edit.breaks_sequences), None)
    if torn is not None:
        raise NotPossible(
            f"Visits step by step need whole episodes, and a coverage edit tore steps out of them: {torn.sentence} "
            "Drop whole episodes instead."
        )
    supported = dataset.support_mask(min_count)
    if dataset.log.source is None:
        return _weighted(dataset, table, supported)
    model = world_model(dataset.log.source.world, deployment)
    frame = _Frame.of(dataset, supported, model)
    theirs = _exact_visits(model, table, frame)
    return _held_together(dataset, frame, theirs, logged_visits(dataset, supported, frame), "exact", None)


def logged_visits(dataset: Dataset, supported: BoolArray, frame: _Frame | None = None) -> Visits:
    """Where the log's own episodes go; those that branch off another or miss steps are left out.

    Raises:
        NotPossible: no episode is left.
    """
    steps = logged_steps(dataset)
    whole = ~(steps.branched | steps.torn)
    if not whole.any():
        raise NotPossible(
            "No episode of the log begins at its beginning and misses no step, so nobody knows which step comes when. "
            "Whole episodes would help."
        )
    weights = np.where(whole[steps.episode], steps.multiplicity[steps.episode], 0).astype(np.float64)
    totals = np.full(steps.n_steps, float(weights[steps.first].sum()))
    return _visits_of_steps(steps, weights, totals, frame or _Frame.of(dataset, supported, None))


class _Frame(NamedTuple):
    """The states and actions that both sides are written on."""

    states: tuple[str, ...]
    actions: tuple[str, ...]
    supported: BoolArray  # (S, A)
    valid: BoolArray  # (S, A)

    @classmethod
    def of(cls, dataset: Dataset, supported: BoolArray, model: WorldModel | None) -> _Frame:
        """The dataset's own, and what only the world has behind them."""
        more_states = [] if model is None else [key for key in model.keys if dataset.state_index(key) is None]
        names = () if model is None else model.world.action_names
        more_actions = [name for name in names if name not in dataset.actions]
        shape = (dataset.n_states + len(more_states), dataset.n_actions + len(more_actions))
        inside, valid = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        inside[: dataset.n_states, : dataset.n_actions] = supported
        valid[: dataset.n_states, : dataset.n_actions] = dataset.valid_mask
        return cls((*dataset.states, *more_states), (*dataset.actions, *more_actions), inside, valid)


# -- a world's side -------------------------------------------------------------------------------------------


def _exact_visits(model: WorldModel, policy: TabularPolicy, frame: _Frame) -> Visits:
    probabilities = model.probabilities(policy)
    rows = {key: s for s, key in enumerate(frame.states)}
    state_of = np.array([rows[key] for key in model.keys])[model.key_index]
    action_of = np.array([frame.actions.index(name) for name in model.world.action_names])
    pair_of = state_of[None, :] * len(frame.actions) + action_of[:, None]
    n_pairs = frame.supported.size
    going, steps, pairs, shares = [], [], [], []
    for step, taken in enumerate(visits_by_step(model.mdp, model.starts, probabilities, max_steps=MAX_STEPS)):
        going.append(float(taken.sum()))
        by_pair = np.bincount(pair_of.ravel(), taken.ravel(), minlength=n_pairs)
        pairs.append(np.flatnonzero(by_pair))
        shares.append(by_pair[pairs[-1]])
        steps.append(np.full(len(pairs[-1]), step))
    by_step = pd.DataFrame(
        {"step": np.concatenate(steps), "pair": np.concatenate(pairs), "share": np.concatenate(shares)}
    )
    by_pair = np.bincount(by_step["pair"], by_step["share"], minlength=n_pairs)
    inside = frame.supported.ravel()[pair_of]
    return Visits(
        by_pair=by_pair.reshape(frame.supported.shape).astype(np.float64),
        by_step=by_step,
        going=np.array(going),
        flow=tuple(_exact_flow(model.mdp, model.starts, probabilities, inside, model.world.action_names)),
    )


def _exact_flow(
    mdp: TabularMDP, starts: FloatArray, probabilities: FloatArray, inside: BoolArray, names: tuple[str, ...]
) -> list[FlowLink]:
    """Follow the mass of each last action by itself: what came before decides where a link begins."""
    onward, n_states = mdp.successors.matrix.T.tocsc(), mdp.n_states
    links: list[FlowLink] = []
    groups: dict[tuple[str, bool], FloatArray] = {(START, True): starts}
    for step in range(FLOW_STEPS + 1):
        following: dict[tuple[str, bool], FloatArray] = {}
        for (source, was_inside), mass in groups.items():
            for a, name in enumerate(names):
                for flag in (True, False):
                    taken = np.where(inside[a] == flag, probabilities[a] * mass, 0.0)
                    if taken.sum() <= GONE:
                        continue
                    if step < FLOW_STEPS:
                        links.append(FlowLink(step, source, was_inside, name, flag, float(taken.sum())))
                    arrived = onward[:, a * n_states : (a + 1) * n_states] @ taken
                    following[name, flag] = following.get((name, flag), np.zeros(n_states)) + arrived
        if step < FLOW_STEPS:
            links += _endings(links, following, step)
        groups = following
    return links


def _endings(links: list[FlowLink], following: dict[tuple[str, bool], FloatArray], step: int) -> list[FlowLink]:
    """What of each action's episodes was over behind this step."""
    taken: dict[tuple[str, bool], float] = {}
    for link in links:
        if link.step == step and link.target != OVER:
            key = (link.target, link.target_supported)
            taken[key] = taken.get(key, 0.0) + link.share
    over = {key: share - float(following[key].sum()) for key, share in taken.items()}
    return [FlowLink(step + 1, name, flag, OVER, True, share) for (name, flag), share in over.items() if share > 1e-9]


# -- a log's side ---------------------------------------------------------------------------------------------


def _weighted(dataset: Dataset, policy: TabularPolicy, supported: BoolArray) -> Shift:
    if not dataset.has_rewards:
        raise NotPossible(
            "A policy's visits are weighted from whole episodes with known rewards, as estimates are, and this log has no "
            "rewards. Join rewards to it first."
        )
    case = Case(policy, dataset)
    unmet = check(case, _NEEDS)[-1]
    if not unmet.met:
        raise NotPossible(unmet.sentence)
    steps, frame = case.steps, _Frame.of(dataset, supported, None)
    weights = case.weights * steps.multiplicity[steps.episode]
    theirs = _visits_of_steps(steps, weights, case.totals(case.weights), frame)
    return _held_together(
        dataset, frame, theirs, logged_visits(dataset, supported, frame), "weighted", case.step_sample_sizes
    )


def _visits_of_steps(steps: LoggedSteps, weights: FloatArray, totals: FloatArray, frame: _Frame) -> Visits:
    """Visits of weighted steps; ``totals`` (T,) is the weight of all episodes at each step, those that are over included."""
    shares = weights / np.where(totals > 0, totals, 1.0)[steps.position]
    pairs = steps.states * len(frame.actions) + steps.actions
    table = pd.DataFrame({"step": steps.position, "pair": pairs, "share": shares})
    table = table[table["share"] > 0]
    by_step = table.groupby(["step", "pair"], as_index=False)["share"].sum()
    by_pair = np.bincount(by_step["pair"], by_step["share"], minlength=frame.supported.size)
    return Visits(
        by_pair=by_pair.reshape(frame.supported.shape).astype(np.float64),
        by_step=by_step,
        going=np.bincount(by_step["step"], by_step["share"]).astype(np.float64),
        flow=tuple(_flow_of_steps(steps, shares, frame)),
    )


def _flow_of_steps(steps: LoggedSteps, shares: FloatArray, frame: _Frame) -> list[FlowLink]:
    inside = frame.supported[steps.states, steps.actions]
    shown = (steps.position < FLOW_STEPS) & (shares > 0)
    before = np.where(steps.position > 0, steps.actions[np.arange(len(shares)) - 1], -1)
    was_inside = np.where(steps.position > 0, inside[np.arange(len(shares)) - 1], True)
    onward = pd.DataFrame(
        {
            "step": steps.position,
            "source": before,
            "was": was_inside,
            "target": steps.actions,
            "is": inside,
            "share": shares,
        }
    )[shown]
    ended = pd.DataFrame(
        {
            "step": steps.position + 1,
            "source": steps.actions,
            "was": inside,
            "target": -1,
            "is": True,
            "share": shares,
        }
    )[shown & steps.is_last]
    both = pd.concat([onward, ended]).groupby(["step", "source", "was", "target", "is"], as_index=False)["share"].sum()
    return [
        FlowLink(
            int(row.step),
            frame.actions[row.source] if row.source >= 0 else START,
            bool(row.was),
            frame.actions[row.target] if row.target >= 0 else OVER,
            bool(row.is_inside),
            float(row.share),
        )
        for row in both.rename(columns={"is": "is_inside"}).itertuples()
    ]


# -- both -----------------------------------------------------------------------------------------------------


def _held_together(
    dataset: Dataset,
    frame: _Frame,
    policy: Visits,
    log: Visits,
    kind: Literal["exact", "weighted"],
    effective: FloatArray | None,
) -> Shift:
    n_steps = max(len(policy.going), len(log.going))
    visited = (policy.by_pair > 0) | (log.by_pair > 0)
    kept = np.ones(len(frame.states), dtype=bool)
    kept[dataset.n_states :] = visited[dataset.n_states :].any(axis=1)  # of what only the world has, what is visited
    difference = policy.by_step.merge(log.by_step, on=["step", "pair"], how="outer", suffixes=("_policy", "_log"))
    apart = (difference["share_policy"].fillna(0.0) - difference["share_log"].fillna(0.0)).abs()
    by_step = np.bincount(difference["step"], apart, minlength=n_steps)
    over = np.abs(_padded(policy.going, n_steps) - _padded(log.going, n_steps))
    return Shift(
        states=tuple(state for state, is_kept in zip(frame.states, kept, strict=True) if is_kept),
        actions=frame.actions,
        policy=_on_rows(policy, kept),
        log=_on_rows(log, kept),
        supported=frame.supported[kept],
        valid=(frame.valid | visited)[kept],
        total_variation=np.minimum((by_step + over) / 2, 1.0),
        kind=kind,
        effective_sample_size=effective,
    )


def _padded(shares: FloatArray, length: int) -> FloatArray:
    return np.pad(shares, (0, length - len(shares)))


def _on_rows(visits: Visits, kept: BoolArray) -> Visits:
    return Visits(by_pair=visits.by_pair[kept], by_step=visits.by_step, going=visits.going, flow=visits.flow)


# -- compounding error ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compounding:
    """What slips cost, over horizons of 1, 2, ... T steps; undiscounted reward units.

    Attributes:
        slip: ε, probability at each step to do one of the other valid actions.
        loss: (T,) reward of the policy minus that of the same policy with slips.
        bound: (T,) ε t² times the range of a step's reward, and never more than t times that range.
        unconnected: (T,) ε t times the range: what slips cost at most if a slip spoiled only its own step.
        span: the range of a step's reward, 0 for being over included.
    """

    slip: float
    loss: FloatArray
    bound: FloatArray
    unconnected: FloatArray
    span: float

    @property
    def sentence(self) -> str:
        """What one should take away from it."""
        loss = float(self.loss[-1])
        does = "gains" if loss < -5e-4 else "loses"
        return (
            f"With a slip in {self.slip:.0%} of its steps the policy {does} {abs(loss):.3f} reward over "
            f"T = {len(self.loss):,} steps, where a step's rewards have a range of {self.span:.3g}. If a slip spoiled only its "
            f"own step, that would be ε T × range = {self.unconnected[-1]:.3f} at most; the worst case is {self.bound[-1]:.3f}."
        )


def compounding_error(
    dataset: Dataset, policy: Policy, slip: float, *, horizon: int | None = None, deployment: str = "works"
) -> Compounding:
    """Let a policy slip, and add up what that costs; exact, by enumeration.

    A slip takes one of the valid actions that the policy never takes there, evenly; where there is none, nothing slips. That
    is a copy of the policy that errs with probability ε in the states where the policy itself goes.

    Source: Ross & Bagnell (2010), "Efficient reductions for imitation learning", AISTATS, theorem 2.1: for costs between 0 and
    1, J(copy) <= J(policy) + T² ε. Differs: rewards are scaled by their range, and the bound stops at t times the range, which
    no loss can exceed.

    Args:
        dataset: of a world's log.
        policy: to be copied with slips.
        slip: ε, between 0 and 1.
        horizon: T, steps; by default as many as 99 % of the episodes with slips have ended in, 50 at most.
        deployment: of the world.

    Raises:
        NotPossible: no world stands behind the log, or the policy looks back.
        InvalidConfig: ε is no probability, or the horizon is below 1.
    """
    if dataset.log.source is None:
        raise NotPossible(
            f"{dataset.log.name} is an imported log: nobody knows where a slip would lead, because no row shows it. "
            "Worlds on the page Data can be asked."
        )
    if not 0 <= slip <= 1 or (horizon is not None and horizon < 1):
        raise InvalidConfig(
            f"slip is {slip} and horizon {horizon}; a slip is a probability, a horizon at least 1 step."
        )
    model = world_model(dataset.log.source.world, deployment)
    exact = model.probabilities(table_of(policy, "The slips of a policy"))
    valid = model.valid_mask[model.key_index].T
    others = valid & (exact == 0)
    n_others = others.sum(axis=0)
    slipping = np.where(n_others > 0, (1 - slip) * exact + slip * others / np.maximum(n_others, 1), exact)
    if horizon is None:
        steps_taken = visits_by_step(model.mdp, model.starts, slipping, max_steps=LONGEST_HORIZON)
        horizon = max(sum(float(taken.sum()) >= 0.01 for taken in steps_taken), 2)
    rewards = model.mdp.rewards[valid]
    span = max(float(rewards.max()), 0.0) - min(float(rewards.min()), 0.0)
    steps = np.arange(1, horizon + 1, dtype=np.float64)
    loss = _rewards_so_far(model, exact, horizon) - _rewards_so_far(model, slipping, horizon)
    return Compounding(
        slip=slip,
        loss=loss,
        bound=np.minimum(slip * steps**2, steps) * span,
        unconnected=slip * steps * span,
        span=span,
    )


def _rewards_so_far(model: WorldModel, probabilities: FloatArray, horizon: int) -> FloatArray:
    """(T,) expected undiscounted reward of the first 1, 2, ... T steps."""
    rewards = np.zeros(horizon)
    for step, taken in enumerate(visits_by_step(model.mdp, model.starts, probabilities, max_steps=horizon)):
        rewards[step] = float((taken * model.mdp.rewards).sum())
    return np.cumsum(rewards)
