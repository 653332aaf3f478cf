"""What a log is like, in numbers that are known before training: how good, how broad, how varied, how far one must look ahead.

None of them is a verdict. Each has its source, and says what it is measured against: in worlds against exact values, elsewhere
against the log itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..dataset import Dataset
from ..errors import NotPossible
from ..mdp import discounted_sums, policy_chain, policy_values
from ..policies import Policy, table_of, uniform_policy
from .ceiling import SAME_VALUE, Ceiling, best_possible, ceiling, true_value, values_of_choice
from .exact import world_model
from .occupancy import GONE, MAX_STEPS, visits_by_step
from .ope.case import aligned
from .ope.steps import logged_steps

FEW_ROWS = 10  # a best action seen less often is called thin
MAX_LOOKAHEAD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuality:
    """Measures of a log; None where one can't be taken.

    Attributes:
        trajectory_quality: mean discounted return of the log's episodes, 0 for acting at random and 1 for the best possible in
            worlds; elsewhere 0 for the worst logged episode and 1 for the best one. None where all returns are the same.
        state_action_coverage: distinct pairs seen over all valid pairs: of every state that can be reached in worlds,
            elsewhere of the states seen.
        behavior_entropy: how varied the log's choices are where there is a choice: 0 always the same action, 1 all valid ones
            equally often; mean over the steps. None where no state has a choice.
        lookahead: how many backups beyond the log's own values it takes until acting greedily is as good as the ceiling; 1: the
            values of the log's own policy are enough. None where that takes more than 20 or no value is known.
        thin_states, thin_visits: share of the states with a row, and of the steps, where the best logged action was seen fewer
            than ``few`` times; None where no value is known.
        few: as asked for.
        against_truth: whether a world stands behind the first two.
    """

    trajectory_quality: float | None
    state_action_coverage: float
    behavior_entropy: float | None
    lookahead: int | None
    thin_states: float | None
    thin_visits: float | None
    few: int
    against_truth: bool


def log_quality(dataset: Dataset, few: int = FEW_ROWS) -> LogQuality:
    """Take all measures of a log.

    Sources: trajectory quality and state-action coverage after Schweighofer et al. (2022), "A dataset perspective on offline
    reinforcement learning", CoLLAs. Differs: they scale by a random and an online policy and by the pairs of a replay
    dataset; here exact values and all reachable pairs take their place, or the log itself. Lookahead is the k of Laidlaw,
    Russell & Dragan (2023), "Bridging RL theory and practice with the effective horizon", NeurIPS (k-QVI-solvable: greedy on
    k - 1 value iterations of a simple policy's Q is optimal). Differs: the simple policy is the log's own, the process that
    of its counts, which need not be deterministic. Left out is the rest of their effective horizon, the logarithm of how many
    rollouts of a simulator find that out: a log can't be asked for rollouts.

    Args:
        dataset: any framed log.
        few: a best action seen fewer times is thin.
    """
    found = None
    if dataset.has_rewards:
        found = ceiling(dataset)
    thin_states, thin_visits = (None, None) if found is None else thin_shares(dataset, found, few)
    return LogQuality(
        trajectory_quality=trajectory_quality(dataset),
        state_action_coverage=_coverage(dataset),
        behavior_entropy=behavior_entropy(dataset),
        lookahead=None if found is None else lookahead(dataset, found),
        thin_states=thin_states,
        thin_visits=thin_visits,
        few=few,
        against_truth=dataset.log.source is not None,
    )


def episode_values(dataset: Dataset) -> tuple[FloatArray, FloatArray]:
    """(G,) discounted returns of the different whole episodes with known rewards, and (G,) how many episodes each stands for."""
    steps = logged_steps(dataset)
    discounted = dataset.discount**steps.position * np.where(np.isnan(steps.rewards), 0.0, steps.rewards)
    returns = np.bincount(steps.episode, discounted, minlength=steps.n_groups).astype(np.float64)
    return returns[steps.included], steps.multiplicity[steps.included].astype(np.float64)


def trajectory_quality(dataset: Dataset) -> float | None:
    """See :attr:`LogQuality.trajectory_quality`."""
    if not dataset.has_rewards:
        return None
    returns, n = episode_values(dataset)
    if not len(returns):
        return None
    mean, low, high = float((n * returns).sum() / n.sum()), float(returns.min()), float(returns.max())
    best = best_possible(dataset)
    if best is not None and dataset.log.source is not None:
        model = world_model(dataset.log.source.world)
        random = true_value(dataset, uniform_policy(model.keys, model.world.action_names, model.valid_mask))
        assert random is not None
        low, high = random, best
    return None if high - low <= SAME_VALUE else (mean - low) / (high - low)


def _coverage(dataset: Dataset) -> float:
    seen = int((dataset.support_mask() & dataset.valid_mask).sum())
    if dataset.log.source is None:
        return seen / int(dataset.valid_mask.sum())
    return seen / int(world_model(dataset.log.source.world).valid_mask.sum())


def behavior_entropy(dataset: Dataset) -> float | None:
    """Mean over the steps in states with a choice: entropy of the log's action frequencies over its largest possible value.

    Source: Shannon (1948); divided by the logarithm of the number of valid actions, so that states compare.
    """
    choices, rows = dataset.valid_mask.sum(axis=1), dataset.visitation_counts.sum(axis=1)
    open_to = (choices > 1) & (rows > 0)
    if not open_to.any():
        return None
    shares = dataset.behavior_probabilities[open_to]
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1) / np.log(choices[open_to])
    return float((rows[open_to] * entropy).sum() / rows[open_to].sum())


def lookahead(dataset: Dataset, found: Ceiling) -> int | None:
    """See :attr:`LogQuality.lookahead`; ``found`` is the ceiling of the same dataset."""
    own = np.where(found.supported, dataset.visitation_counts, 0).astype(np.float64)
    own /= np.maximum(own.sum(axis=1, keepdims=True), 1)
    v_values = policy_values(found.process, np.ascontiguousarray(own.T), dataset.discount)
    enough = found.value - SAME_VALUE * max(1.0, abs(found.value))
    for k in range(1, MAX_LOOKAHEAD + 1):
        q_values = np.where(found.supported, found.process.backup(v_values, dataset.discount).T, -np.inf)
        choice = np.where(found.supported.any(axis=1), q_values.argmax(axis=1), -1)
        try:
            if found.starts @ values_of_choice(found.process, choice, dataset.discount) >= enough:
                return k
        except ArithmeticError:
            pass  # discount 1, and this policy goes in circles: not yet far-sighted enough
        v_values = np.where(found.supported.any(axis=1), q_values.max(axis=1), 0.0)
    return None


def thin_shares(dataset: Dataset, found: Ceiling, few: int = FEW_ROWS) -> tuple[float, float]:
    """:attr:`LogQuality.thin_states` and ``thin_visits``; ``found`` is the ceiling of the same dataset."""
    rows = dataset.visitation_counts.sum(axis=1)
    judged = found.supported.any(axis=1)
    best = found.policy.probabilities.argmax(axis=1)
    thin = judged & (dataset.visitation_counts[np.arange(len(best)), best] < few)
    return float(thin.sum() / judged.sum()), float(rows[thin].sum() / rows[judged].sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Concentrability:
    """How much more a policy visits a pair than the log does, at worst.

    Attributes:
        value: the largest ratio; infinite where the policy takes a pair that the log never shows.
        state, action: where.
    """

    value: float
    state: str
    action: str

    @property
    def in_short(self) -> str:
        """In two words."""
        return "never seen" if np.isinf(self.value) else f"{self.value:,.1f} times"

    @property
    def sentence(self) -> str:
        """In words."""
        where = f"{self.action} in {self.state}"
        if np.isinf(self.value):
            return f"The policy takes {where}, which the log never shows: no number of rows would be enough."
        return f"The policy takes {where} {self.in_short} as often as the log does, and nothing else more than that."


def concentrability(dataset: Dataset, policy: Policy) -> Concentrability:
    """Single-policy concentrability: the largest ratio of a policy's share of visits to the log's share of rows.

    The policy's visits are discounted, add up to 1 and are worked out on the counts of the log, up to where it leaves them.

    Source: Rashidinejad et al. (2021), "Bridging offline reinforcement learning and imitation learning", NeurIPS, definition 1;
    the idea is that of Munos & Szepesvari (2008).

    Raises:
        NotPossible: no episode of the log begins at its beginning, so nobody knows where the policy starts; the policy looks
            back; or it goes in circles for ever, without a discount.
    """
    if not dataset.start_counts.any():
        raise NotPossible("No episode of this log shows its first step, so nobody knows where a policy would start.")
    table = aligned(table_of(policy, "The visits of a policy"), dataset)
    visits = visits_on_counts(dataset, table)
    logged = dataset.visitation_counts / dataset.visitation_counts.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(visits > 0, visits / visits.sum() / logged, 0.0)
    state, action = np.unravel_index(int(ratios.argmax()), ratios.shape)
    return Concentrability(
        value=float(ratios[state, action]), state=dataset.states[state], action=dataset.actions[action]
    )


def visits_on_counts(dataset: Dataset, table: FloatArray) -> FloatArray:
    """(S, A) expected discounted visits of a policy, given as (S, A) probabilities, in the process of the counts."""
    mdp = dataset.empirical_mdp(np.ones_like(dataset.valid_mask), 0.0)
    starts, probabilities = dataset.start_shares, np.ascontiguousarray(table.T)
    if dataset.discount < 1:
        onward = policy_chain(mdp, probabilities).T.tocsr()
        return discounted_sums(onward, starts, dataset.discount)[:, None] * table
    taken = list(visits_by_step(mdp, starts, probabilities))
    if len(taken) == MAX_STEPS and taken[-1].sum() > GONE:
        raise NotPossible(
            "At discount 1 this policy goes in circles on the counts of the log, so its visits have no bound. Choose a framing "
            "with a discount below 1."
        )
    return np.asarray(np.add.reduce(taken).T)
