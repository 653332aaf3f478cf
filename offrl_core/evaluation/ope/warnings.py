"""What to keep in mind with an estimate that was made: sentences, from the case and the resampled values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...dataset import Dataset
from .case import Case
from .magic import trusted_steps
from .nouns import EstimatorSpec
from .preconditions import MAX_MEAN_OFF, why_off

FEW = 50  # effective episodes; below this percentiles of a bootstrap are known to be too narrow


class MayHaveSeen(NamedTuple):
    """Whether the policy was learned from the episodes that judge it."""

    known: bool
    n_shared: int = 0

    @classmethod
    def of(cls, dataset: Dataset, trained_on: Dataset | None) -> MayHaveSeen:
        """Count the shared episodes; those of two different logs are different."""
        if trained_on is None:
            return cls(False)
        if trained_on.log.fingerprint != dataset.log.fingerprint:
            return cls(True, 0)
        shared = np.intersect1d(trained_on.places, dataset.places, assume_unique=True)
        here = dataset.episodes[np.isin(dataset.places, shared)]
        return cls(True, len(np.unique(here)))

    def sentence(self, n_episodes: int) -> str:
        """What it means for the estimate; "" where nothing is shared."""
        if not self.known:
            return "The policy may have been trained on these very episodes; the estimate then leans to the good side."
        if not self.n_shared:
            return ""
        shared = f"{self.n_shared:,} of these {n_episodes:,} episodes"
        return f"The policy was trained on {shared}; the estimate leans to the good side."


def warnings_of(
    case: Case, spec: EstimatorSpec, size: float, resampled: FloatArray, seen: MayHaveSeen
) -> tuple[str, ...]:
    """All that apply, most general first; ``size`` is the effective sample size."""
    found = [seen.sentence(case.dataset.n_episodes)]
    if spec.weighs_steps:
        found.append(_estimated(case))
    if spec.weighs_episodes:
        found += [_cut(case), _left_out(case, "unknown"), _left_out(case, "torn"), _left_out(case, "branched")]
        found += [_mean_weight(case)]
    else:
        found += [_bootstrapped_past_cuts(case)]
    if spec.blends:
        found.append(_gives_out(case))
    found += [_few(size), _constant(case), _leaves_a_little(case, "taught" in spec.needs), _no_spread(resampled)]
    return tuple(sentence for sentence in found if sentence)


def _estimated(case: Case) -> str:
    n, n_all = case.steps.n_silent, case.dataset.n_transitions
    if not case.estimated:
        return ""
    if n == n_all:
        return (
            "The log has no behavior probabilities; they were estimated from its action frequencies, which the interval takes "
            "as given."
        )
    return (
        f"{n:,} of {n_all:,} steps don't say how likely their action was; the behavior probabilities of all were estimated "
        "from its action frequencies, which the interval takes as given."
    )


def _cut(case: Case) -> str:
    n, n_all = case.steps.count(case.steps.cut), case.steps.n_episodes
    return f"{n:,} of {n_all:,} episodes were cut; their returns are too short." if n else ""


def _bootstrapped_past_cuts(case: Case) -> str:
    n, n_all = case.steps.count(case.steps.cut), case.steps.n_episodes
    return f"{n:,} of {n_all:,} episodes were cut; the value goes on past the cut, as the model says." if n else ""


_LEFT_OUT = {
    "unknown": "have an unknown return and were left out.",
    "torn": "miss steps or go on after their ending, and were left out.",
    "branched": "branch off another episode in its middle and were left out.",
}


def _left_out(case: Case, why: str) -> str:
    n = case.steps.count(getattr(case.steps, why))
    return f"{n:,} of {case.steps.n_episodes:,} episodes {_LEFT_OUT[why]}" if n else ""


def _mean_weight(case: Case) -> str:
    mean, error = case.mean_weight
    if abs(mean - 1) <= MAX_MEAN_OFF * error + 1e-9:
        return ""
    return f"The weights of the episodes average {mean:.2f} where they should average 1: {why_off(mean)}."


def _gives_out(case: Case) -> str:
    n, n_all = trusted_steps(case), case.steps.n_steps
    if n == n_all:
        return ""
    return (
        f"Weights are worth enough episodes for {n:,} of {n_all:,} steps; from there on this is the fitted model alone."
    )


def _few(size: float) -> str:
    if size >= FEW:
        return ""
    worth = f"Only about {size:.0f} episodes' worth of evidence"
    return f"{worth}: the true value lies outside such an interval more often than it says."


def _constant(case: Case) -> str:
    returns = case.returns[case.steps.included]
    if len(returns) == 0 or np.ptp(returns) > 1e-12:
        return ""
    return f"Every episode of the log has the same return ({returns[0]:.3g}), so it can't tell good policies from bad ones."


def _leaves_a_little(case: Case, taught_only: bool) -> str:
    share = (case.leaves_taught if taught_only else case.leaves_shown).share
    if share < 5e-4:
        return ""
    return f"In about {share:.1%} of its episodes the policy does what the log never shows; the estimate knows nothing of these."


def _no_spread(resampled: FloatArray) -> str:
    if np.ptp(resampled) > 1e-12 * max(1.0, float(np.abs(resampled).max())):
        return ""
    return "All resampled logs gave the same number, so the interval has no width and says nothing about the error."
