"""Off-policy estimates from the log alone: what a policy might be worth, or a refusal with its reason.

An estimator is an equation on sums over episodes (one file per family), with a list of preconditions; intervals are
percentiles of an episode bootstrap in which models are fitted again (estimated behavior probabilities are not). To add one:
write the equation as a function of :class:`.resamples.Resamples` with an entry in its family's file and add a line to
``ESTIMATORS``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import FloatArray, check_shape
from ...dataset import Dataset
from ...errors import InvalidConfig, UnknownName
from ...policies import Policy, TabularPolicy, needs_a_table, table_of
from .bounds import safe_interval
from .case import Case
from .doubly_robust import DR, WDR
from .importance import IS, PDIS, WIS, WPDIS
from .magic import MAGIC
from .models import FQE, MIS
from .nouns import Estimate as Estimate
from .nouns import EstimatorSpec as EstimatorSpec
from .nouns import Propensities
from .preconditions import MAX_SHARE_LEAVING as MAX_SHARE_LEAVING
from .preconditions import MAX_SHARE_LEFT_OUT as MAX_SHARE_LEFT_OUT
from .preconditions import MIN_EFFECTIVE_SAMPLE_SIZE as MIN_EFFECTIVE_SAMPLE_SIZE
from .preconditions import PRECONDITIONS as PRECONDITIONS
from .preconditions import Checked, check
from .resamples import Resamples, Sums, draw_counts
from .warnings import MayHaveSeen, warnings_of

ESTIMATORS: dict[str, EstimatorSpec] = {
    "is": IS,
    "wis": WIS,
    "pdis": PDIS,
    "wpdis": WPDIS,
    "fqe": FQE,
    "dr": DR,
    "wdr": WDR,
    "magic": MAGIC,
    "mis": MIS,
}

LEVEL = 0.95  # of every interval


def estimate(
    policy: Policy,
    dataset: Dataset,
    estimator: str = "wis",
    *,
    n_bootstrap: int = 500,
    seed: int = 0,
    trained_on: Dataset | None = None,
    q_values: FloatArray | None = None,
) -> Estimate:
    """Estimate the discounted return of a policy from logged episodes; see :func:`estimate_all`."""
    return estimate_all(
        policy, dataset, [estimator], n_bootstrap=n_bootstrap, seed=seed, trained_on=trained_on, q_values=q_values
    )[estimator]


def estimate_all(
    policy: Policy,
    dataset: Dataset,
    estimators: Sequence[str] | None = None,
    *,
    n_bootstrap: int = 500,
    seed: int = 0,
    trained_on: Dataset | None = None,
    q_values: FloatArray | None = None,
) -> dict[str, Estimate]:
    """Estimate the discounted return of a policy from logged episodes, by several estimators on the same resampled logs.

    Args:
        policy: the evaluation policy.
        dataset: whole episodes; behavior probabilities are taken from the log where every step has them, else from its
            frequencies (and the estimate says so).
        estimators: names in :data:`ESTIMATORS`; all by default.
        n_bootstrap: resampled logs behind the intervals, at least 1.
        seed: of the bootstrap.
        trained_on: what the policy was learned from. Where it shares no episode with ``dataset``, the warning that the
            policy may have seen these episodes is dropped; where it does, the warning says how many.
        q_values: (S, A) values of this policy on the dataset's states and actions, to use instead of fitted Q evaluation.

    Raises:
        UnknownName: no such estimator.
        InvalidConfig: ``n_bootstrap`` is below 1, or a value that the policy needs is no number.
    """
    names = list(ESTIMATORS if estimators is None else estimators)
    for name in names:
        if name not in ESTIMATORS:
            raise UnknownName("estimator", name, ESTIMATORS)
    if n_bootstrap < 1:
        raise InvalidConfig(f"n_bootstrap is {n_bootstrap}; an interval needs at least 1 resampled log.")
    if not isinstance(policy, TabularPolicy):
        return {name: _without_table(name) for name in names}
    case = Case(policy, dataset, _checked_values(q_values, dataset))
    seen = MayHaveSeen.of(dataset, trained_on)
    unmet = {name: _first_unmet(case, name) for name in names}
    speaking = [name for name in names if unmet[name] is None]
    values = _resampled_values(case, speaking, n_bootstrap, seed)
    return {
        name: _told(case, name, values[name], seen) if refused is None else _refused(case, name, refused)
        for name, refused in unmet.items()
    }


def preconditions(policy: Policy, dataset: Dataset, estimator: str) -> list[Checked]:
    """What the estimator needs, held against this policy and log, up to the first condition that isn't met.

    Raises:
        UnknownName: no such estimator.
        NotPossible: the policy is no table over states, which all of them need.
    """
    if estimator not in ESTIMATORS:
        raise UnknownName("estimator", estimator, ESTIMATORS)
    return check(Case(table_of(policy, "Off-policy estimates"), dataset), ESTIMATORS[estimator].needs)


def point_values(case: Case, names: Sequence[str]) -> dict[str, float]:
    """Values on the log itself, whatever the preconditions say; for tests and for those who know better."""
    logs = Resamples(Sums(case), next(draw_counts(case.steps, 0, np.random.default_rng(0))))
    return {name: float(ESTIMATORS[name].combine(ESTIMATORS[name].terms(logs))[0]) for name in names}


def _checked_values(q_values: FloatArray | None, dataset: Dataset) -> FloatArray | None:
    if q_values is None:
        return None
    check_shape("q_values", q_values, (dataset.n_states, dataset.n_actions))
    if np.isinf(q_values).any():
        raise InvalidConfig(
            "q_values holds infinite numbers; give finite ones, and NaN only where the policy never acts."
        )
    return np.nan_to_num(q_values, nan=0.0)


def _first_unmet(case: Case, name: str) -> Checked | None:
    last = check(case, ESTIMATORS[name].needs)[-1]
    return None if last.met else last


def _resampled_values(case: Case, names: Sequence[str], n_bootstrap: int, seed: int) -> dict[str, FloatArray]:
    """(1 + n_bootstrap,) values by estimator; the first is the estimate itself."""
    if not names:
        return {}
    sums = Sums(case)
    terms: dict[str, list[FloatArray]] = {name: [] for name in names}
    itself: Resamples | None = None
    for counts in draw_counts(case.steps, n_bootstrap, np.random.default_rng(seed)):
        logs = Resamples(sums, counts, itself)
        itself = itself or logs
        for name in names:
            terms[name].append(ESTIMATORS[name].terms(logs))
    return {name: ESTIMATORS[name].combine(np.concatenate(parts, axis=1)) for name, parts in terms.items()}


def _size(case: Case, name: str) -> float:
    spec = ESTIMATORS[name]
    return case.effective_sample_size if spec.weighs_episodes and not spec.blends else case.visited_sample_size


def _overlap(case: Case, name: str) -> float:
    leaving = case.leaves_taught if "taught" in ESTIMATORS[name].needs else case.leaves_shown
    return 1.0 - leaving.share


def _source(case: Case, name: str) -> Propensities:
    if not ESTIMATORS[name].weighs_steps:
        return "not used"
    return "estimated" if case.estimated else "logged"


def _told(case: Case, name: str, values: FloatArray, seen: MayHaveSeen) -> Estimate:
    value = float(values[0])
    # Weibull's places, (B + 1) p: the usual ones, 1 + (B - 1) p, lie too close to the middle where B is small.
    low, high = np.quantile(values[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="weibull")
    safe_low, safe_high, note = safe_interval(case, ESTIMATORS[name].safe, value)
    return Estimate(
        estimator=name,
        value=value,
        low=float(low),
        high=float(high),
        effective_sample_size=_size(case, name),
        warnings=warnings_of(case, ESTIMATORS[name], _size(case, name), values[1:], seen),
        overlap=_overlap(case, name),
        propensities=_source(case, name),
        safe_low=safe_low,
        safe_high=safe_high,
        safe_note=note,
    )


def _without_table(name: str) -> Estimate:
    """Overlap and weights are worked out on counts of states, which say nothing about a policy that looks back."""
    return Estimate(
        estimator=name,
        value=None,
        low=None,
        high=None,
        effective_sample_size=0.0,
        refusal=needs_a_table("Off-policy estimates"),
        unmet="table",
    )


def _refused(case: Case, name: str, unmet: Checked) -> Estimate:
    blind = unmet.name in ("rewards", "not_torn", "propensities", "bounded_weights", "bounded_ratios")
    return Estimate(
        estimator=name,
        value=None,
        low=None,
        high=None,
        effective_sample_size=0.0 if blind else _size(case, name),
        refusal=unmet.sentence,
        unmet=unmet.name,
        overlap=_overlap(case, name),
        propensities=_source(case, name),
    )
