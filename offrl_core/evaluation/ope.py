"""Off-policy estimates from the log alone: what a policy might be worth, or a refusal with its reason.

Source: Precup, Sutton & Singh (2000), "Eligibility traces for off-policy policy evaluation", ICML, for importance sampling
(``is``) and its weighted form (``wis``) over whole episodes. Intervals are percentiles of an episode bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..dataset import Dataset
from ..errors import UnknownName
from ..policies import TabularPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An off-policy estimate of the discounted return, or a refusal.

    Attributes:
        estimator: name in :data:`ESTIMATORS`.
        value, low, high: estimate with a 95 % interval, reward units; None where refused.
        effective_sample_size: (Σw)²/Σw², in episodes.
        refusal: why there is no number, and what would help; "" where there is one.
        warnings: what to keep in mind with the number.
    """

    estimator: str
    value: float | None
    low: float | None
    high: float | None
    effective_sample_size: float
    refusal: str = ""
    warnings: tuple[str, ...] = ()


class EstimatorSpec(NamedTuple):
    """Registry entry: title, equation in TeX, source, and the weighted mean it takes."""

    title: str
    equation: str
    source: str
    combine: Callable[[FloatArray, FloatArray], FloatArray]


def _ordinary(weights: FloatArray, returns: FloatArray) -> FloatArray:
    return (weights * returns).mean(axis=-1)


def _weighted(weights: FloatArray, returns: FloatArray) -> FloatArray:
    return (weights * returns).sum(axis=-1) / weights.sum(axis=-1)


ESTIMATORS: dict[str, EstimatorSpec] = {
    "is": EstimatorSpec(
        "Importance sampling",
        r"\hat V = \frac1E \sum_i w_i G_i,\quad w_i = \prod_t \frac{\pi_e(a_t \mid s_t)}{\pi_b(a_t \mid s_t)}",
        "Precup, Sutton & Singh 2000",
        _ordinary,
    ),
    "wis": EstimatorSpec(
        "Weighted importance sampling",
        r"\hat V = \frac{\sum_i w_i G_i}{\sum_i w_i},\quad w_i = \prod_t \frac{\pi_e(a_t \mid s_t)}{\pi_b(a_t \mid s_t)}",
        "Precup, Sutton & Singh 2000",
        _weighted,
    ),
}

MIN_EFFECTIVE_SAMPLE_SIZE = 10
MAX_WEIGHT = 1e100  # of an episode; squares of larger ones overflow
MAX_SHARE_LEAVING = 0.05  # of the episodes; less may be missing from the log by chance, and the interval covers it


def estimate(
    policy: TabularPolicy, dataset: Dataset, estimator: str = "wis", *, n_bootstrap: int = 500, seed: int = 0
) -> Estimate:
    """Estimate the discounted return of a policy from logged episodes.

    The log was often used to train the policy too; the estimate then leans to the good side, and says so.

    Args:
        policy: the evaluation policy.
        dataset: whole episodes; behavior probabilities are taken from the log where it has them, else from its
            frequencies (and the estimate says so).
        estimator: name in :data:`ESTIMATORS`.
        n_bootstrap: resampled logs behind the interval.
        seed: of the bootstrap.
    """
    if estimator not in ESTIMATORS:
        raise UnknownName("estimator", estimator, ESTIMATORS)
    probabilities = _aligned(policy, dataset)
    refusal = _precondition(dataset) or _leaves_the_log(probabilities, dataset)
    if refusal:
        return _refused(estimator, refusal, 0.0)
    episodes = _episode_weights(probabilities, dataset)
    if not (episodes.weights < MAX_WEIGHT).all():  # also false for infinite and undefined ones
        return _refused(estimator, _BAD_PROPENSITIES, 0.0)
    total = float(episodes.weights.sum())
    size = total**2 / float((episodes.weights**2).sum()) if total > 0 else 0.0
    if size < MIN_EFFECTIVE_SAMPLE_SIZE:
        followed = int((episodes.weights > 0).sum())
        return _refused(
            estimator,
            f"Only {followed:,} of {dataset.n_episodes:,} episodes follow what this policy would do (effective sample size "
            f"{size:.1f}, at least {MIN_EFFECTIVE_SAMPLE_SIZE} needed): the log can't speak for it. "
            "A log that tries this policy's actions would help.",
            size,
        )
    combine = ESTIMATORS[estimator].combine
    rng, n_known = np.random.default_rng(seed), len(episodes.weights)
    resampled = np.empty(n_bootstrap)
    for i in range(n_bootstrap):  # one at a time: all at once would need bootstrap x episodes numbers
        picks = rng.integers(n_known, size=n_known)
        with np.errstate(invalid="ignore"):
            resampled[i] = combine(episodes.weights[picks], episodes.returns[picks])
    low, high = np.nanquantile(resampled, [0.025, 0.975])
    warnings = ["The policy may have been trained on these very episodes; the estimate then leans to the good side."]
    if episodes.estimated:
        warnings.append("The log has no behavior probabilities; they were estimated from its action frequencies.")
    if episodes.n_cut:
        warnings.append(f"{episodes.n_cut:,} of {dataset.n_episodes:,} episodes were cut; their returns are too short.")
    if episodes.n_left_out:
        warnings.append(
            f"{episodes.n_left_out:,} of {dataset.n_episodes:,} episodes have an unknown return and were left out."
        )
    value = float(combine(episodes.weights, episodes.returns))
    return Estimate(
        estimator=estimator,
        value=value,
        low=float(low),
        high=float(high),
        effective_sample_size=size,
        warnings=tuple(warnings),
    )


_BAD_PROPENSITIES = (
    "The behavior probabilities of the log can't be right: some are above 1 or so small that the weights overflow. "
    "Check action_logprob; it must be the logarithm of the probability of the action."
)


def _precondition(dataset: Dataset) -> str:
    if not dataset.whole_sequences:
        torn = next(edit for edit in dataset.edits if edit.breaks_sequences)
        return (
            "Importance sampling needs whole episodes, and a coverage edit tore steps out of them: "
            f"{torn.sentence} Drop whole episodes instead."
        )
    if not dataset.has_rewards:
        return "The log has no rewards, so there is no return to weigh. Join rewards to it first."
    return ""


def _leaves_the_log(probabilities: FloatArray, dataset: Dataset) -> str:
    """Where the log never does what the policy would do, all weights are 0, and what is left says nothing about that part.

    Weighted importance sampling then gives the mean over the *other* episodes: a confident number about another policy.
    """
    visits = dataset.visitation_counts.sum(axis=1)
    lost = (probabilities * (dataset.visitation_counts == 0)).sum(axis=1) * visits
    share = float(lost.sum()) / dataset.n_episodes
    if share < MAX_SHARE_LEAVING:
        return ""
    worst = int(lost.argmax())
    return (
        f"This policy does what the log never shows in about {min(share, 1.0):.0%} of the episodes, most often in "
        f"{dataset.states[worst]!r}. Importance sampling would leave those out and judge it by the rest. "
        "A log that tries these actions would help."
    )


def _refused(estimator: str, reason: str, size: float) -> Estimate:
    return Estimate(estimator=estimator, value=None, low=None, high=None, effective_sample_size=size, refusal=reason)


class _Episodes(NamedTuple):
    weights: FloatArray  # (E,) importance weights
    returns: FloatArray  # (E,) discounted returns
    estimated: bool  # whether behavior probabilities are frequencies of the log
    n_left_out: int  # episodes whose return is unknown
    n_cut: int  # episodes that were cut, or miss a step


def _episode_weights(probabilities: FloatArray, dataset: Dataset) -> _Episodes:
    rows = dataset.transitions()
    columns = (
        dataset.log.cursor()
        .execute(
            f"SELECT episode_id, t, action_logprob FROM ({dataset.relation}) JOIN steps USING (row, episode_id, t) ORDER BY row"
        )
        .fetchnumpy()
    )
    episodes, episode = np.unique(columns["episode_id"], return_inverse=True)
    order = np.lexsort((columns["t"], episode))
    episode = episode[order]
    logprobs = np.ma.filled(columns["action_logprob"].astype(float), np.nan)[order]
    states, actions, rewards = rows.observations[order], rows.actions[order], rows.rewards[order]
    chosen = probabilities[states, actions]
    estimated = bool(np.isnan(logprobs).any())
    behaved = dataset.behavior_probabilities[states, actions] if estimated else np.exp(logprobs)
    behaved = np.where(behaved <= 1 + 1e-9, behaved, 0.0)  # an impossible probability makes an infinite weight: refused
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        weights = np.exp(np.bincount(episode, np.log(chosen) - np.log(behaved), minlength=len(episodes)))
    starts = np.searchsorted(episode, np.arange(len(episodes)))
    times = columns["t"][order].astype(np.int64)
    steps = times - times[starts][episode]  # time, not rows: a missing step takes time too
    returns = np.bincount(episode, dataset.discount**steps * rewards, minlength=len(episodes)).astype(np.float64)
    known = ~np.isnan(returns)
    return _Episodes(
        weights[known], returns[known], estimated, int((~known).sum()), len(np.unique(episode[rows.timeouts[order]]))
    )


def _aligned(policy: TabularPolicy, dataset: Dataset) -> FloatArray:
    """(S, A) the policy's probabilities on the dataset's own states and actions."""
    table = np.zeros((dataset.n_states, dataset.n_actions))
    for s, state in enumerate(dataset.states):
        valid = [dataset.actions[a] for a in np.flatnonzero(dataset.valid_mask[s])]
        for action, probability in policy.action_probabilities(state, valid).items():
            if action in dataset.actions:
                table[s, dataset.actions.index(action)] = probability
    return table
