"""Several policies judged by several estimators on one log, with the truth beside them where a world knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..dataset import Dataset
from ..policies import Policy, TabularPolicy
from .exact import evaluate
from .ope import ESTIMATORS, Estimate, estimate_all
from .ope.steps import logged_steps


class LoggedReturn(NamedTuple):
    """What the log's own agent got: mean discounted return with a 95 % interval, reward units; None where unknown."""

    value: float | None
    low: float | None
    high: float | None
    n_episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Estimates of several policies.

    Attributes:
        estimates: policy -> estimator -> estimate.
        truths: policy -> exact discounted return under the deployment asked for, None where no world stands behind the log.
        logged: what the log's own agent got.
        deployment: the hidden truth that ``truths`` are about; "" where there is none.
    """

    estimates: Mapping[str, Mapping[str, Estimate]]
    truths: Mapping[str, float | None]
    logged: LoggedReturn
    deployment: str

    def table(self) -> pd.DataFrame:
        """One row per policy and estimator, as they were asked for; what isn't known is empty.

        Columns: policy, estimator, value, low, high, safe_low, safe_high, truth, covers_truth, effective_sample_size, overlap,
        propensities, refusal, warnings (one text).
        """
        rows = [self._row(policy, guess) for policy, by_name in self.estimates.items() for guess in by_name.values()]
        return pd.DataFrame(rows, columns=_COLUMNS)

    def _row(self, policy: str, guess: Estimate) -> dict[str, object]:
        truth = self.truths[policy]
        covers = None
        if truth is not None and guess.low is not None and guess.high is not None:
            covers = guess.low <= truth <= guess.high
        return {
            "policy": policy,
            "estimator": guess.estimator,
            "value": guess.value,
            "low": guess.low,
            "high": guess.high,
            "safe_low": guess.safe_low,
            "safe_high": guess.safe_high,
            "truth": truth,
            "covers_truth": covers,
            "effective_sample_size": guess.effective_sample_size,
            "overlap": guess.overlap,
            "propensities": guess.propensities,
            "refusal": guess.refusal,
            "warnings": " ".join(guess.warnings),
        }


_COLUMNS = (
    "policy estimator value low high safe_low safe_high truth covers_truth effective_sample_size overlap propensities refusal "
    "warnings"
).split()


def compare_estimators(
    policies: Mapping[str, Policy],
    dataset: Dataset,
    estimators: Sequence[str] | None = None,
    *,
    deployment: str = "works",
    n_bootstrap: int = 500,
    seed: int = 0,
    trained_on: Dataset | None = None,
) -> Comparison:
    """Judge policies by estimators on one log; see :func:`offrl_core.evaluation.ope.estimate_all` for the parameters.

    Args:
        policies: name -> evaluation policy.
        dataset: the log that judges.
        estimators: names; all by default.
        deployment: of the truth, where a world stands behind the log.
        n_bootstrap: resampled logs behind the intervals.
        seed: of the bootstrap, the same for all policies, so that they are compared on the same resampled logs.
        trained_on: what the policies were learned from.
    """
    source = dataset.log.source
    names = list(ESTIMATORS if estimators is None else estimators)
    estimates = {
        name: estimate_all(policy, dataset, names, n_bootstrap=n_bootstrap, seed=seed, trained_on=trained_on)
        for name, policy in policies.items()
    }
    truths = {
        name: evaluate(policy, source.world, deployment, dataset.discount).mean_return
        if source is not None and isinstance(policy, TabularPolicy)
        else None
        for name, policy in policies.items()
    }
    return Comparison(
        estimates=estimates,
        truths=truths,
        logged=logged_return(dataset),
        deployment="" if source is None else deployment,
    )


def logged_return(dataset: Dataset) -> LoggedReturn:
    """Mean discounted return of the whole episodes whose rewards are known, with an interval of 1.96 standard errors."""
    if not dataset.has_rewards or not dataset.whole_sequences:
        return LoggedReturn(None, None, None, 0)
    steps = logged_steps(dataset)
    discounted = dataset.discount**steps.position * np.where(np.isnan(steps.rewards), 0.0, steps.rewards)
    returns = np.bincount(steps.episode, discounted)[steps.included]
    n = steps.multiplicity[steps.included]
    total = int(n.sum())
    if total < 2:
        return LoggedReturn(None, None, None, total)
    mean = float((n * returns).sum() / total)
    error = float(((n * (returns - mean) ** 2).sum() / (total - 1) / total) ** 0.5)
    return LoggedReturn(mean, mean - 1.96 * error, mean + 1.96 * error, total)
