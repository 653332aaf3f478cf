r"""The extrapolation ledger: how much of a learned value is evidence, and how much is a guess.

A learned Q obeys, up to a remainder, one equation: a value is what the pair pays plus the discounted value of what follows,
and the value of a state is what the policy does there. The ledger opens that equation and follows it to the end, along what
the log supports, and books each amount on the way under one of four names:

1. ``seen``     mean rewards of pairs that some row teaches;
2. ``default``  values given to pairs that no row teaches;
3. ``maxima``   what a state gained because the policy there takes an unsupported action: the value of its choice minus the
                value of the best supported one. For a learner that maximises this is the amount by which unsupported actions
                raise the maximum; it is counted where it arises and carried on to every value before it;
4. ``rest``     what the learner puts on top of the equation, or takes off: a penalty (CQL, pessimistic value iteration, MOPO,
                MOReL), a soft or an expectile value that isn't the mean of what the policy does (IQL, KL-regularized), a step
                size that hasn't come to rest (fqi_sampled), a bound of sweeps that was reached.

In signs, with C the policy where it is supported (renormalised; the best supported action where it takes none; the policy
itself where nothing is supported), V = sum_a pi Q and g = V - sum_a C Q:

    Q_k = amount_k + gamma P V_k,     V_k = sum_a C Q_k + [k = maxima] g,     Q = sum_k Q_k   (to 1e-9, by test)

Supported means here: at least ``min_count`` rows, and at least one that teaches a value.

``rest`` is 0 for fqi, fqi_support, bcq, bear and spibb once they have converged, whose values are those of their policy; for
cql, pessimistic_vi, mopo, morel, iql, awr, kl_regularized and fqi_sampled it is what their own rule adds, and says so. The
amounts are linear in the values that the policy was chosen by, not in the data: with other data the policy, C, may be another.

Networks have no such equation at every pair, so a ledger for them is refused; :func:`.diagnostics.value_spread` is the stated
proxy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..arrays import BoolArray, FloatArray, ShortRepr
from ..dataset import Dataset
from ..errors import InvalidConfig, NotPossible
from ..interfaces import TrainedModel
from ..mdp import TabularMDP, discounted_sums, policy_chain
from ..policies import action_places, table_of
from ..wording import counted
from .exact import world_model
from .log_quality import FEW_ROWS
from .occupancy import FirstSteps, event_probability, first_steps, visits_by_step

PARTS: Mapping[str, str] = {
    "seen": "rewards the log shows",
    "default": "guesses for pairs without data",
    "maxima": "gained by choosing what isn't supported",
    "rest": "added or taken off by the learner",
}
GUESSES = ("default", "maxima")
WORTH_NAMING = 0.05  # visits per episode from which on a step of few rows is named
LONGEST_WAY = 200  # steps of an episode that are looked at


class ThinSteps(NamedTuple):
    """Steps on the way of the policy that only a few rows speak for.

    Attributes:
        share: share of its episodes that take one, on the counts.
        state, action: the pair with fewest rows among them.
        n_rows: of that pair.
    """

    share: float
    state: str
    action: str
    n_rows: int

    @property
    def sentence(self) -> str:
        """What it means for the value."""
        return (
            f"On the counts, {self.share:.0%} of its episodes take steps that fewer than {FEW_ROWS} rows speak for; the thinnest "
            f"is {self.action} in {self.state}: {counted(self.n_rows, 'row')}."
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Ledger(ShortRepr):
    """What learned values are made of.

    Attributes:
        q_values: (S, A) as learned; NaN where an action may not be chosen.
        q_parts: name of a part, see :data:`PARTS` -> (S, A) reward units; they add up to ``q_values``.
        v_parts: name of a part -> (S,) the same for what the policy does in each state.
        starts: (S,) share of the logged episodes that begin in each state.
        taught: (S, A) pairs of which some row teaches a value.
        supported: (S, A) pairs seen often enough.
        min_count: rows from which on a pair counts as supported.
        thin: steps along the support that carry the value on few rows; None where there are none worth naming.
    """

    q_values: FloatArray
    q_parts: Mapping[str, FloatArray]
    v_parts: Mapping[str, FloatArray]
    starts: FloatArray
    taught: BoolArray
    supported: BoolArray
    min_count: int
    thin: ThinSteps | None

    @property
    def totals(self) -> dict[str, float]:
        """Part -> mean amount where the log's episodes begin; they add up to the return that the policy promises."""
        return {name: float(self.starts @ values) for name, values in self.v_parts.items()}

    @property
    def guess_share(self) -> float:
        """Share of the guesses among the amounts where the log's episodes begin, without their signs; NaN where all are 0.

        Signs are dropped at each start, before the average: a loss in one task doesn't cancel a gain in another. Where the
        policy starts with supported actions, this is the mean of their :attr:`guess_shares`, weighted by what is booked there.
        """
        booked, guessed = (float(self.starts @ sizes) for sizes in _sizes(self.v_parts))
        return guessed / booked if booked > 0 else np.nan

    @property
    def guess_shares(self) -> FloatArray:
        """(S, A) the same for each value: 1 where no row teaches the pair, whatever the guess; NaN without a value."""
        booked, guessed = _sizes(self.q_parts)
        shares = np.divide(guessed, booked, out=np.zeros_like(booked), where=booked > 0)
        return np.where(np.isnan(self.q_values), np.nan, np.where(self.taught, shares, 1.0))

    @property
    def sentence(self) -> str:
        """The total in words: what is guessed, and how thin the rest is."""
        if np.isnan(self.guess_share):
            return "Every amount is 0 here, so there is nothing to share out."
        return " ".join([self._guessed, *([] if self.thin is None else [self.thin.sentence])])

    @property
    def _guessed(self) -> str:
        share = self.guess_share
        if self.min_count == 1:
            return f"{share:.0%} of this value rests on pairs nobody ever saw."
        return (
            f"{share:.0%} of this value is guessed: values of pairs nobody ever saw, and what choosing pairs seen fewer than "
            f"{self.min_count:,} times adds (their own rewards count as seen)."
        )


def _sizes(parts: Mapping[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """All amounts without their signs, and the guesses among them."""
    sizes = {name: np.abs(values) for name, values in parts.items()}
    return np.add.reduce(list(sizes.values())), np.add.reduce([sizes[name] for name in GUESSES])


def value_ledger(dataset: Dataset, model: TrainedModel, min_count: int = 1) -> Ledger:
    """Open the values of a tabular model; see the module's docstring for what the parts are.

    Args:
        dataset: what the model was trained on.
        model: any tabular learner with values.
        min_count: rows from which on a pair counts as supported.

    Raises:
        NotPossible: the model has no values, is a network or looks back, or its values have no bound (discount 1 and a loop
            without end).
        InvalidConfig: ``min_count`` is below 1.
    """
    if min_count < 1:
        raise InvalidConfig(f"min_count is {min_count}; a pair is supported from 1 row on, or more.")
    q_values = _accountable(model)
    taught = dataset.value_counts > 0
    supported = dataset.support_mask(min_count) & taught
    mdp = dataset.empirical_mdp(np.ones_like(taught), 0.0)
    policy = table_of(model.policy, "Accounts of values").probabilities
    carried = supported_part(policy, q_values, supported)
    finite = np.where(np.isnan(q_values), 0.0, q_values)
    gains = ((policy - carried) * finite).sum(axis=1)
    amounts = _amounts(dataset, model, mdp, (policy * finite).sum(axis=1))
    v_parts, q_parts = {}, {}
    for name, amount in amounts.items():
        own = gains if name == "maxima" else np.zeros(dataset.n_states)
        v_parts[name], q_parts[name] = _carried_on(mdp, carried, amount, own, dataset.discount)
    return Ledger(
        q_values=q_values,
        q_parts={name: np.where(np.isnan(q_values), np.nan, values) for name, values in q_parts.items()},
        v_parts=v_parts,
        starts=dataset.start_shares,
        taught=taught,
        supported=supported,
        min_count=min_count,
        thin=_thin_steps(dataset, mdp, np.where(supported, carried, 0.0)),
    )


def _thin_steps(dataset: Dataset, mdp: TabularMDP, carried: FloatArray) -> ThinSteps | None:
    """Pairs of few rows that a fair part of the episodes takes, on the counts; ``carried`` (S, A) is supported throughout."""
    acts, taken = np.ascontiguousarray(carried.T), np.zeros_like(carried.T)
    for visits in visits_by_step(mdp, dataset.start_shares, acts, max_steps=LONGEST_WAY):
        taken += visits
    counts = dataset.visitation_counts
    thin = (taken.T >= WORTH_NAMING) & (counts < FEW_ROWS)
    if not thin.any():
        return None
    row, column = np.unravel_index(np.where(thin, counts, FEW_ROWS).argmin(), counts.shape)
    return ThinSteps(
        share=event_probability(mdp, dataset.start_shares, acts, np.ascontiguousarray(thin.T)),
        state=dataset.states[row],
        action=dataset.actions[column],
        n_rows=int(counts[row, column]),
    )


def _accountable(model: TrainedModel) -> FloatArray:
    if model.q_values is None:
        raise NotPossible("This learner has no values, so there is nothing to open.")
    if model.weights is not None:
        raise NotPossible(
            "The ledger is an exact account of a table, and a network has no equation at every pair. "
            "How far several seeds disagree is the stand-in."
        )
    return model.q_values


def supported_part(policy: FloatArray, q_values: FloatArray, supported: BoolArray) -> FloatArray:
    """(S, A) the policy where it is supported, renormalised; the best supported action where it takes none.

    A state without a supported action that has a value keeps its policy. All arguments are (S, A).
    """
    usable = supported & ~np.isnan(q_values)
    kept = np.where(usable, policy, 0.0)
    mass = kept.sum(axis=1, keepdims=True)
    best = np.zeros_like(policy)
    best[np.arange(len(policy)), np.where(usable, q_values, -np.inf).argmax(axis=1)] = 1.0
    inside = np.where(mass > 0, kept / np.where(mass > 0, mass, 1.0), best)
    return np.where(usable.any(axis=1, keepdims=True), inside, policy)


def _amounts(dataset: Dataset, model: TrainedModel, mdp: TabularMDP, v_values: FloatArray) -> dict[str, FloatArray]:
    """Part -> (S, A) what each pair pays under that name, at once."""
    assert model.q_values is not None
    taught = dataset.value_counts > 0
    seen = np.where(taught, mdp.rewards.T, 0.0)
    finite = np.where(np.isnan(model.q_values), 0.0, model.q_values)
    # A learner that doesn't say what it takes such pairs for has decided it all the same: what stands there is its guess.
    default = np.where(taught, 0.0, getattr(model.config, "default_value", finite))
    backed_up = seen + default + dataset.discount * (mdp.successors @ v_values).reshape(mdp.rewards.shape).T
    return {"seen": seen, "default": default, "maxima": np.zeros_like(seen), "rest": finite - backed_up}


def _carried_on(
    mdp: TabularMDP, carried: FloatArray, amounts: FloatArray, own: FloatArray, discount: float
) -> tuple[FloatArray, FloatArray]:
    """(S,) and (S, A): one part of the state values and of the pair values, followed to the end along ``carried`` (S, A)."""
    chain = policy_chain(mdp, np.ascontiguousarray(carried.T))
    try:
        v_values = own + discounted_sums(chain, (carried * amounts).sum(axis=1) + discount * (chain @ own), discount)
    except ArithmeticError as error:
        raise NotPossible(
            f"These values can't be opened: {error}. Choose a framing with a discount below 1."
        ) from error
    q_values = amounts + discount * (mdp.successors @ v_values).reshape(amounts.T.shape).T
    return v_values, q_values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leaving:
    """When the episodes of a policy first take an unsupported pair.

    Attributes:
        steps: the distribution over steps.
        exact: whether it is that of a world; else it is worked out on the counts of the log, which know no more than the log.
    """

    steps: FirstSteps
    exact: bool

    @property
    def sentence(self) -> str:
        """When, in words; steps are counted from t = 0, as in a log."""
        ever, by = self.steps.ever, "" if self.exact else ", as far as the log's counts can tell"
        if ever < 5e-4:
            return f"Its episodes never leave the support{by}."
        commonest = int(self.steps.by_step.argmax())
        if ever - self.steps.by_step[commonest] < 5e-4:
            return f"{ever:.1%} of its episodes leave the support, all at t = {commonest:,}{by}."
        half = int(np.searchsorted(self.steps.happened, ever / 2))
        return f"{ever:.1%} of its episodes leave the support, half of those up to t = {half:,}{by}."


def leaving_steps(dataset: Dataset, model: TrainedModel, deployment: str = "works", min_count: int = 1) -> Leaving:
    """The first step at which an episode of the policy leaves the support.

    Exact in a world, where a state key that the log doesn't show counts as outside, too. Elsewhere the counts of the log stand
    in for the world: up to that step the policy does only what rows show, so they can tell, with the error of small counts.

    Args:
        dataset: the log.
        model: whose policy.
        deployment: of the world, where one stands behind the log.
        min_count: rows from which on a pair counts as supported.

    Raises:
        NotPossible: the policy looks back, so that no table over states says what it does; or it has actions that the world
            doesn't know or, where no world is known, other states or actions than the dataset.
    """
    policy = table_of(model.policy, "The steps at which a policy leaves the log")
    supported = dataset.support_mask(min_count) & (dataset.value_counts > 0)
    source = dataset.log.source
    if source is None:
        action_places(policy, dataset.actions, dataset.log.name)
        if (policy.states, policy.actions) != (dataset.states, dataset.actions):
            raise NotPossible(
                f"The policy was trained on other states or actions than those of {dataset.log.name}, so the counts of this log "
                "can't follow it. Train it on this dataset."
            )
        mdp = dataset.empirical_mdp(np.ones_like(supported), 0.0)
        outside = np.ascontiguousarray(~supported.T)
        probabilities = np.ascontiguousarray(policy.probabilities.T)
        return Leaving(steps=first_steps(mdp, dataset.start_shares, probabilities, outside), exact=False)
    world = world_model(source.world, deployment)
    inside = world.on_states(supported, dataset.states, dataset.actions, missing=False)
    steps = first_steps(world.mdp, world.starts, world.probabilities(policy), ~inside)
    return Leaving(steps=steps, exact=True)
