"""The ceiling: what a log can support at best, before anything is trained.

The counts of the log describe a process. Its optimum among pairs that are seen often enough is the most that any policy which
stays inside the log can be worth *in that process*: no learner that keeps to those pairs beats it there, however it learns.

Three things it isn't. It is no bound on the truth: with few rows the counts flatter some pairs, and a maximum picks those, so
the ceiling is too high where it is thin; and where one state key stands for situations that differ, the counts mix what the
policy would keep apart, so it may be too low. In worlds the exact value of its policy stands beside it. It says nothing about
policies that leave the log. And a state in which the log supports nothing counts as the end, worth nothing from there on;
how often the best policy gets there is said (``silent``).

Source: the process restricted to the batch is that of Fujimoto, Meger & Precup (2019), section 4.1, with n(s, a) >= min_count
instead of membership.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse

from ..arrays import BoolArray, FloatArray, IntArray, ShortRepr
from ..coverage_edits import MinReturn
from ..dataset import Dataset
from ..edges import CUT, GOES_ON, Edges, aggregate
from ..errors import InvalidConfig, NotPossible, UnknownName
from ..mdp import TabularMDP, discounted_sums, policy_values, value_iteration
from ..policies import TabularPolicy
from ..wording import counted
from ..worlds import LOGGED_IN, WORLDS
from .exact import Truth, evaluate, world_model
from .occupancy import event_probability
from .ope.steps import LoggedSteps, logged_steps

SAME_VALUE = 1e-9  # of two policies
TIE = 1e-11  # of two actions: the one with more rows is taken
SAID = 5e-4  # a difference that three decimals show
SWEEPS, ROUNDS = 20, 200  # policy iteration mostly needs a dozen rounds


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Ceiling(ShortRepr):
    """The optimum inside the support.

    Attributes:
        value: mean discounted return of the best policy where the log's episodes begin, in the process of the counts.
        policy: that policy; of equally good actions the one with most rows, uniform where nothing is supported.
        v_values: (S,) its values, 0 where nothing is supported.
        q_values: (S, A) values of supported pairs, NaN elsewhere.
        supported: (S, A) pairs seen at least ``min_count`` times, and taught by some row.
        min_count: as asked for.
        starts: (S,) share of the logged episodes that begin in each state.
        silent: share of its episodes that, on the counts, come to a state where nothing is supported.
        process: what was solved: the counts of supported pairs only.
    """

    value: float
    policy: TabularPolicy
    v_values: FloatArray
    q_values: FloatArray
    supported: BoolArray
    min_count: int
    starts: FloatArray
    silent: float
    process: TabularMDP

    def worth(self, policy: FloatArray, discount: float) -> float:
        """Discounted return of another policy in the same process, from the same starts.

        Args:
            policy: (S, A) probabilities; what it puts on pairs outside the support ends the episode and earns nothing.
            discount: γ.
        """
        inside = np.where(self.supported, policy, 0.0)
        return float(self.starts @ policy_values(self.process, np.ascontiguousarray(inside.T), discount))


_KNOWN: WeakKeyDictionary[Dataset, dict[int, Ceiling]] = WeakKeyDictionary()


def ceiling(dataset: Dataset, min_count: int = 1) -> Ceiling:
    """The best policy inside the support, and what it is worth there, made once; see the module's docstring.

    Args:
        dataset: any framed log with rewards.
        min_count: rows from which on a pair counts as supported.

    Raises:
        NotPossible: no reward is known, no episode shows its beginning, no pair is supported, or values have no bound
            (discount 1, and a loop that pays).
    """
    known = _KNOWN.setdefault(dataset, {})
    if min_count not in known:  # two visitors at once may both make it, to the same result
        known[min_count] = _find(dataset, min_count)
    return known[min_count]


def _find(dataset: Dataset, min_count: int) -> Ceiling:
    if not dataset.has_rewards:
        raise NotPossible(
            "A ceiling is a value, and no step of this log has a known reward. Join rewards to it on the page Rewards."
        )
    if not dataset.start_counts.any():
        raise NotPossible("No episode of this log shows its first step, so nobody knows where a policy would start.")
    supported = dataset.support_mask(min_count) & (dataset.value_counts > 0)
    if not supported.any():
        raise NotPossible(
            f"No pair of state and action was seen {min_count:,} times with a known reward, so nothing is supported. "
            "Lower the bound, or frame the log with a coarser state."
        )
    inside = replace(dataset, edges=_edges_of(dataset.edges, supported))
    process = inside.empirical_mdp(supported, 0.0)
    try:
        v_values, best = optimum(process, supported, dataset.visitation_counts, dataset.discount)
    except ArithmeticError as error:
        raise NotPossible(f"The ceiling has no bound: {error}. Choose a framing with a discount below 1.") from error
    helpless = np.asarray(~supported.any(axis=1))
    uniform = dataset.valid_mask / np.maximum(dataset.valid_mask.sum(axis=1, keepdims=True), 1)
    starts = dataset.start_shares
    anywhere = np.broadcast_to(helpless, process.rewards.shape)
    acts = np.where(helpless[:, None], uniform, best)
    return Ceiling(
        value=float(starts @ v_values),
        policy=TabularPolicy(states=dataset.states, actions=dataset.actions, probabilities=acts),
        v_values=v_values,
        q_values=np.where(supported, process.backup(v_values, dataset.discount).T, np.nan),
        supported=supported,
        min_count=min_count,
        starts=starts,
        silent=event_probability(process, starts, np.ascontiguousarray(acts.T), anywhere),
        process=process,
    )


def _edges_of(edges: Edges, pairs: BoolArray) -> Edges:
    kept = pairs[edges.states, edges.actions]
    return Edges._make(column[kept] for column in edges)


def optimum(
    process: TabularMDP, allowed: BoolArray, counts: IntArray, discount: float
) -> tuple[FloatArray, FloatArray]:
    """Best values and best policy, by some sweeps and then by policy iteration, which ends in the exact optimum.

    Args:
        process: each state needs a pair that may be chosen.
        allowed: (S, A) pairs that the policy may take; a state without any has a policy of zeros.
        counts: (S, A) of equally good actions the one with the larger count is taken.
        discount: γ.

    Returns:
        (S,) values and (S, A) one-hot policy.

    Raises:
        ArithmeticError: discount 1, and a policy on the way goes round for ever in a loop that pays.
    """
    v_values = np.zeros(process.n_states)
    for q_values, _ in value_iteration(process, discount, start=v_values, max_sweeps=SWEEPS):
        v_values = q_values.max(axis=0)
    for _ in range(ROUNDS):
        choice = _most_seen_of_best(process.backup(v_values, discount).T, allowed, counts)
        exact = values_of_choice(process, choice, discount)
        change = float(np.abs(exact - v_values).max(initial=0.0))
        v_values = exact
        if change <= TIE * max(1.0, float(np.abs(exact).max(initial=0.0))):
            break
    best = np.zeros(allowed.shape)
    best[choice >= 0, choice[choice >= 0]] = 1.0
    return v_values, best


def values_of_choice(process: TabularMDP, choice: IntArray, discount: float) -> FloatArray:
    """(S,) exact values of taking one action in each state; only the rows that are chosen are touched.

    Args:
        process: the process.
        choice: (S,) action of each state, -1 where the episode ends there and earns nothing.
        discount: γ.
    """
    states, acts, taken = np.arange(len(choice)), np.maximum(choice, 0), choice >= 0
    chain = process.successors.matrix[acts * len(choice) + states]
    if not taken.all():
        chain = scipy.sparse.diags_array(taken.astype(np.float64)).tocsr() @ chain
    return discounted_sums(chain, np.where(taken, process.rewards[acts, states], 0.0), discount)


def _most_seen_of_best(q_values: FloatArray, allowed: BoolArray, counts: IntArray) -> IntArray:
    """(S,) action of each state, -1 where none is allowed."""
    masked = np.where(allowed, q_values, -np.inf)
    top = masked.max(axis=1, keepdims=True)
    near = allowed & (masked >= top - TIE * np.maximum(1.0, np.abs(top)))
    return np.where(allowed.any(axis=1), np.where(near, counts, -1).argmax(axis=1), -1)


def true_value(dataset: Dataset, policy: TabularPolicy, deployment: str = "works") -> float | None:
    """Exact discounted return of a policy in the world behind the log; None where there is none."""
    source = dataset.log.source
    return None if source is None else evaluate(policy, source.world, deployment, dataset.discount).mean_return


def best_possible(dataset: Dataset, deployment: str = "works") -> float | None:
    """Exact discounted return of an agent that knows everything, hidden parts of the state too, and takes valid actions only;
    None without a world.
    """
    source = dataset.log.source
    if source is None:
        return None
    model = world_model(source.world, deployment)
    v_values, _ = model.optimum(dataset.discount)
    return float(model.starts @ v_values)


def why_not_the_truth(dataset: Dataset, found: Ceiling, deployment: str = LOGGED_IN) -> tuple[str, ...]:
    """Why the ceiling's policy is really worth something else, in sentences, from the counts to the deployment.

    Two differences add up: that of the counts to the world that wrote the log, and that of this world to the one deployed.

    Args:
        dataset: the log.
        found: its ceiling.
        deployment: that the exact value is about.

    Returns:
        Nothing where the two agree, and for a log without a world.
    """
    source = dataset.log.source
    if source is None:
        return ()
    spec, reasons = WORLDS[source.world], []
    then, here = (evaluate(found.policy, source.world, name, dataset.discount) for name in (LOGGED_IN, deployment))
    selected = any(isinstance(edit, MinReturn) for edit in dataset.edits)
    if abs(then.mean_return - found.value) > SAID:
        reasons.append(
            f"The counts say {found.value:+z.3f}, the world that wrote the log {then.mean_return:+z.3f}: "
            f"{'; '.join(_why_counts_err(found, then, selected))}."
        )
    if abs(here.mean_return - then.mean_return) > SAID:
        reasons.append(
            f"The log was written where {spec.situation(LOGGED_IN)}, and there this policy is worth {then.mean_return:+z.3f}. "
            f"Deployed where {spec.situation(deployment)}, it is worth {here.mean_return:+z.3f}: the world has changed since, "
            "and no row of the log knows."
        )
    return tuple(reasons)


def _why_counts_err(found: Ceiling, then: Truth, selected: bool) -> list[str]:
    """All that can be the reason; what chance alone did is said where nothing else explains it."""
    model = world_model(then.world, LOGGED_IN)
    hides, too_low = len(model.keys) < len(model.states), then.mean_return > found.value
    if too_low and hides:
        return ["one state stands for situations that differ (aliasing), so the counts underrate what the policy does"]
    if too_low and found.silent > SAID:
        return ["what follows where the log supports nothing isn't counted"]
    if too_low:
        return ["by chance its rows went worse than they do on average"]
    causes = ["only good episodes were kept, so the bad luck of the same choices is missing"] if selected else []
    causes += ["with few rows some pairs look better than they are, and the best choice picks those"]
    unseen = np.array([not found.policy.knows(key) for key in model.keys]) & (model.valid_mask.sum(axis=1) > 1)
    acts = model.probabilities(found.policy)
    lost = event_probability(model.mdp, model.starts, acts, np.broadcast_to(unseen[model.key_index], acts.shape))
    if lost > SAID:
        causes.append(
            f"in {lost:.1%} of its episodes the policy comes to a state that no row shows, and acts at random"
        )
    if hides:
        causes.append("one state stands for situations that differ (aliasing)")
    return causes


# -- the best path --------------------------------------------------------------------------------------------


PathEnding = Literal["ended", "silent", "loop", "long"]


class PathStep(NamedTuple):
    """One step of the best path: what to do, how often the log shows that, and what it leads to most often there."""

    state: str
    action: str
    n_rows: int
    probability: float  # of what follows, given the pair
    next_state: str  # "" where the episode ends


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPath:
    """The most likely way of the ceiling's policy, from one start.

    Attributes:
        start: state key.
        share: share of the logged episodes that begin there.
        value: best value there.
        steps: from the start on.
        ending: "ended", "silent" (nothing is supported there), "loop" (back in a state of the path) or "long" (cut here).
        n_pieces: the fewest stretches of logged episodes that cover the path; 1 where some episode walks it whole.
        n_whole: logged episodes that walk it whole.
    """

    start: str
    share: float
    value: float
    steps: tuple[PathStep, ...]
    ending: PathEnding
    n_pieces: int
    n_whole: int

    @property
    def thinnest(self) -> PathStep:
        """The step with fewest rows, the first of equals."""
        return min(self.steps, key=lambda step: step.n_rows)

    @property
    def sentence(self) -> str:
        """How the path is put together, in words."""
        thin = self.thinnest
        rests = f"Its thinnest step is {thin.action} in {thin.state}: {counted(thin.n_rows, 'row')}."
        if self.n_whole:
            episodes = "episode walks" if self.n_whole == 1 else "episodes walk"
            return f"{self.n_whole:,} logged {episodes} this path whole. {rests}"
        return (
            f"No logged episode walks this path whole; it is stitched together from {self.n_pieces:,} pieces. {rests}"
        )


MAX_PATH = 100


def best_path(dataset: Dataset, found: Ceiling, start: str | None = None) -> BestPath:
    """Follow the ceiling's policy from a start along what happens most often.

    Args:
        dataset: the log.
        found: its ceiling.
        start: state key; the most common start by default.

    Raises:
        UnknownName: no such state.
        NotPossible: nothing is supported at the start.
    """
    row = int(found.starts.argmax()) if start is None else dataset.state_index(start)
    if row is None:
        raise UnknownName("state", str(start), dataset.states[:20])
    if not found.supported[row].any():
        raise NotPossible(f"In {dataset.states[row]} the log supports nothing, so there is no path from there.")
    first = row
    ending: PathEnding = "long"
    steps: list[PathStep] = []
    pairs: list[tuple[int, int]] = []
    while len(steps) < MAX_PATH:
        action = int(found.policy.probabilities[row].argmax())
        following, probability = _most_likely(dataset, row, action)
        pairs.append((row, action))
        steps.append(
            PathStep(
                state=dataset.states[row],
                action=dataset.actions[action],
                n_rows=int(dataset.visitation_counts[row, action]),
                probability=probability,
                next_state=dataset.states[following] if following >= 0 else "",
            )
        )
        row = following
        ending = _how_it_ends(row, found.supported, [s for s, _ in pairs])
        if ending != "long":
            break
    n_pieces, n_whole = _pieces(logged_steps(dataset), pairs)
    return BestPath(
        start=dataset.states[first],
        share=float(found.starts[first]),
        value=float(found.v_values[first]),
        steps=tuple(steps),
        ending=ending,
        n_pieces=n_pieces,
        n_whole=n_whole,
    )


def _how_it_ends(state: int, supported: BoolArray, been: list[int]) -> PathEnding:
    if state < 0:
        return "ended"
    if not supported[state].any():
        return "silent"
    return "loop" if state in been else "long"


def _most_likely(dataset: Dataset, state: int, action: int) -> tuple[int, float]:
    """What follows a pair most often among the rows that teach, -1 for an ending, and its share."""
    edges = dataset.edges
    here = (edges.states == state) & (edges.actions == action) & (edges.endings != CUT) & (edges.n_known > 0)
    counts, following = edges.n_known[here], edges.next_states[here]
    top = int(counts.argmax())
    return int(following[top]), float(counts[top] / counts.sum())


def _pieces(steps: LoggedSteps, path: list[tuple[int, int]]) -> tuple[int, int]:
    """The fewest stretches of episodes that cover the path, and how many episodes walk it whole."""
    n_pieces, place, n_whole = 0, 0, 0
    while place < len(path):
        length, ends = _longest_match(steps, path[place:])
        if not n_pieces and length == len(path):
            n_whole = int(steps.multiplicity[np.unique(steps.episode[ends])].sum())
        n_pieces, place = n_pieces + 1, place + length
    return n_pieces, n_whole


def _longest_match(steps: LoggedSteps, path: list[tuple[int, int]]) -> tuple[int, IntArray]:
    """How many first steps of the path some episode takes in a row, and the places where such stretches end."""
    (state, action), *rest = path
    ends = np.flatnonzero((steps.states == state) & (steps.actions == action))
    length = 1
    for state, action in rest:
        onward = ends[(steps.endings[ends] == GOES_ON) & ~steps.is_last[ends]] + 1
        onward = onward[(steps.states[onward] == state) & (steps.actions[onward] == action)]
        if not len(onward):
            break
        ends, length = onward, length + 1
    return length, ends


# -- what removing an action does -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class CeilingCurve(ShortRepr):
    """The ceiling while an action is thinned out.

    Attributes:
        action, how: what was thinned out, and whether whole episodes went or single steps.
        kept: (J,) fraction kept, rising; of the episodes that show the action, or of its steps.
        n_rows: (J,) rows of the action left.
        values: (J,) the ceiling on what is left; NaN where nothing is supported any more.
        true_values: (J,) exact value of its policy, or None where no world is known.
        deployment: that ``true_values`` are about.
    """

    action: str
    how: str
    kept: FloatArray
    n_rows: FloatArray
    values: FloatArray
    true_values: FloatArray | None
    deployment: str


def ceiling_curve(
    dataset: Dataset,
    action: str,
    *,
    how: Literal["episodes", "transitions"] = "episodes",
    kept: Sequence[float] = tuple(np.linspace(0, 1, 11)),
    min_count: int = 1,
    deployment: str = "works",
    seed: int = 0,
) -> CeilingCurve:
    """Thin an action out of the log at random, more and more of it, and look at the ceiling each time.

    A larger fraction keeps all that a smaller one keeps. Episodes begin where they began, also those that are gone: tasks keep
    their shares, and a start that nothing is left of is worth nothing.

    Args:
        dataset: the log.
        action: its name.
        how: ``episodes`` removes episodes that show the action, ``transitions`` its steps alone.
        kept: fractions to keep, between 0 and 1, rising.
        min_count: rows from which on a pair counts as supported.
        deployment: of the exact values.
        seed: of the draw.

    Raises:
        UnknownName: the log has no such action.
        InvalidConfig: a fraction lies outside 0 to 1.
        NotPossible: as :func:`ceiling`, on the whole log.
    """
    if action not in dataset.actions:
        raise UnknownName("action", action, dataset.actions)
    if not all(0 <= fraction <= 1 for fraction in kept):
        raise InvalidConfig(f"The fractions to keep are {list(kept)}; each must lie between 0 and 1.")
    ceiling(dataset, min_count)  # refuses where there is nothing to look at
    rows, episodes = dataset.transitions(), dataset.episodes
    shows = rows.actions == dataset.actions.index(action)
    rng = np.random.default_rng(seed)
    if how == "episodes":
        concerned = np.isin(episodes, np.unique(episodes[shows]))
        drawn = rng.random(int(episodes.max()) + 1)[episodes]
    else:
        concerned, drawn = shows, rng.random(len(shows))
    n_rows, values, truths = [], [], []
    for fraction in kept:
        left = np.flatnonzero(~concerned | (drawn < fraction))
        n_rows.append(int(shows[left].sum()))
        value, truth = _thinned(replace(dataset, edges=aggregate(rows.at(left))), min_count, deployment)
        values.append(value)
        truths.append(truth)
    return CeilingCurve(
        action=action,
        how=how,
        kept=np.array(kept, dtype=float),
        n_rows=np.array(n_rows, dtype=float),
        values=np.array(values, dtype=float),
        true_values=None if dataset.log.source is None else np.array(truths, dtype=float),
        deployment=deployment if dataset.log.source else "",
    )


def _thinned(dataset: Dataset, min_count: int, deployment: str) -> tuple[float, float | None]:
    """Ceiling and exact value of its policy on other counts; NaN where nothing is supported any more."""
    if not (dataset.support_mask(min_count) & (dataset.value_counts > 0)).any():
        return np.nan, np.nan
    found = ceiling(dataset, min_count)
    return found.value, true_value(dataset, found.policy, deployment)
