"""How often each interval holds the truth, and which estimator ranks policies right: tried on fresh logs of a world.

Only a world can answer this: it collects as many logs as one likes and knows the exact value. The answer is for this world,
these policies and logs of this size; elsewhere it is a rehearsal, not a promise.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..arrays import BoolArray, FloatArray
from ..behavior import WorldSource
from ..coverage_edits import DropAction
from ..dataset import Dataset, frame
from ..errors import InvalidConfig, NotPossible
from ..interfaces import Progress
from ..log import log_of_source
from ..policies import Policy, table_of
from .exact import evaluate
from .ope import ESTIMATORS, LEVEL, Estimate, estimate_all

SAME_VALUE = 1e-9  # policies that are worth the same can't be ranked


class Reliability(NamedTuple):
    """How one estimator did on one policy; reward units. What no log told is NaN."""

    policy: str
    estimator: str
    truth: float
    n_logs: int
    n_told: int  # logs on which it gave a number
    mean: float
    bias: float
    bias_error: float  # standard error of the bias over the logs
    root_mean_square_error: float
    n_covered: int  # intervals that hold the truth
    mean_width: float
    n_safe: int  # logs with an interval of :mod:`.ope.bounds`
    n_safe_covered: int

    @property
    def coverage(self) -> float | None:
        """Share of the intervals that hold the truth; None where there is none."""
        return self.n_covered / self.n_told if self.n_told else None

    @property
    def coverage_range(self) -> tuple[float, float]:
        """Where the coverage may lie, given so few logs: a 95 % interval by Wilson's formula."""
        return wilson(self.n_covered, self.n_told)

    @property
    def as_promised(self) -> bool | None:
        """Whether the level of the intervals lies within three standard errors of simulation; None where no log told."""
        return wilson(self.n_covered, self.n_told, 3.0)[1] >= LEVEL if self.n_told else None


class Ranking(NamedTuple):
    """How one estimator did as a judge between policies."""

    estimator: str
    n_pairs: int  # pairs of policies of different worth, over all logs, both told
    n_right: int
    n_silent_pairs: int  # pairs that it could not compare
    mean_regret: float  # worth of the best policy minus worth of its pick, over logs with a pick; NaN without
    n_picks: int

    @property
    def share_right(self) -> float | None:
        """Share of pairs ranked right; None where it compared none."""
        return self.n_right / self.n_pairs if self.n_pairs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageStudy:
    """What came out.

    Attributes:
        world, deployment: where.
        n_logs, n_episodes: how many logs of how many episodes.
        reliability: policy by policy, estimator by estimator.
        ranking: estimator by estimator; it has no pairs for a single policy.
    """

    world: str
    deployment: str
    n_logs: int
    n_episodes: int
    reliability: tuple[Reliability, ...]
    ranking: tuple[Ranking, ...]

    def table(self) -> pd.DataFrame:
        """The reliability as a table, with coverage and whether it keeps the promise."""
        rows = [row._asdict() | {"coverage": row.coverage, "as_promised": row.as_promised} for row in self.reliability]
        return pd.DataFrame(rows)

    def of(self, policy: str, estimator: str) -> Reliability:
        """One row.

        Raises:
            KeyError: it was not part of the study.
        """
        for row in self.reliability:
            if (row.policy, row.estimator) == (policy, estimator):
                return row
        raise KeyError((policy, estimator))


Study = Generator[Progress, None, CoverageStudy]


def coverage_study(
    policies: Mapping[str, Policy],
    dataset: Dataset,
    estimators: Sequence[str] | None = None,
    *,
    n_logs: int = 200,
    n_episodes: int | None = None,
    n_bootstrap: int = 200,
    deployment: str = "works",
    seed: int = 0,
) -> Study:
    """Collect fresh logs as this one was collected, estimate on each, and hold the estimates against the exact values.

    The policies stay what they are, so the study is about judging, not about learning. Logs are always written in the
    deployment ``works``: with another one, the study shows what no log could have told.

    Args:
        policies: name -> evaluation policy.
        dataset: its log's source, framing and coverage edits are used, none of its rows.
        estimators: names; all by default.
        n_logs: fresh logs.
        n_episodes: of each; as many as the log has by default.
        n_bootstrap: resampled logs behind each interval.
        deployment: of the truth.
        seed: of everything; the fresh logs never are the dataset's own.

    Yields:
        Progress after each log.

    Raises:
        NotPossible: no world stands behind the log, or a policy is no table over states.
        InvalidConfig: there is no policy, or fewer than 2 logs are asked for.
    """
    source = dataset.log.source
    if source is None:
        raise NotPossible(
            f"{dataset.log.name} is an imported log: no world can collect it again, so nobody knows how often an interval holds. "
            "Rehearse on a world's log of about the same size and behavior."
        )
    if not policies or n_logs < 2:
        raise InvalidConfig("A study needs at least one policy and two logs.")
    for policy in policies.values():
        table_of(policy, "Rehearsals")
    names = list(ESTIMATORS if estimators is None else estimators)
    source = replace(source, n_episodes=n_episodes or source.n_episodes)
    numbers = np.full((n_logs, len(policies), len(names), 5), np.nan)
    seeds = np.random.default_rng(seed).choice(2**31 - 1, size=n_logs, replace=False).tolist()
    for i, fresh_seed in enumerate(seeds):
        fresh = _framed_again(replace(source, seed=fresh_seed + (fresh_seed == source.seed)), dataset)
        for p, policy in enumerate(policies.values()):
            guesses = estimate_all(policy, fresh, names, n_bootstrap=n_bootstrap, seed=i)
            numbers[i, p] = [_numbers(guesses[name]) for name in names]
        told = ~np.isnan(numbers[: i + 1, :, :, 0])
        yield Progress(step=i + 1, total=n_logs, metrics={"share_told": float(told.mean())})
    truths = [evaluate(p, source.world, deployment, dataset.discount).mean_return for p in policies.values()]
    return CoverageStudy(
        world=source.world,
        deployment=deployment,
        n_logs=n_logs,
        n_episodes=source.n_episodes,
        reliability=tuple(
            _reliability(policy, name, truth, numbers[:, p, e])
            for p, (policy, truth) in enumerate(zip(policies, truths, strict=True))
            for e, name in enumerate(names)
        ),
        ranking=tuple(_ranking(name, np.array(truths), numbers[:, :, e, 0]) for e, name in enumerate(names)),
    )


def _framed_again(source: WorldSource, dataset: Dataset) -> Dataset:
    """A fresh log in the framing of the dataset; its source already knows what was collected again."""
    edits = [edit for edit in dataset.edits if not (isinstance(edit, DropAction) and edit.how == "recollect")]
    return frame(log_of_source(source, name="a fresh log"), dataset.framing, edits)


def _numbers(guess: Estimate) -> list[float]:
    values = (guess.value, guess.low, guess.high, guess.safe_low, guess.safe_high)
    return [np.nan if x is None else x for x in values]


def _reliability(policy: str, estimator: str, truth: float, numbers: FloatArray) -> Reliability:
    """From (logs, 5) numbers."""
    told = numbers[~np.isnan(numbers[:, 0])]
    values, widths = told[:, 0], told[:, 2] - told[:, 1]
    n = len(values)
    safe = told[~np.isnan(told[:, 3])]
    return Reliability(
        policy=policy,
        estimator=estimator,
        truth=truth,
        n_logs=len(numbers),
        n_told=n,
        mean=float(values.mean()) if n else np.nan,
        bias=float(values.mean() - truth) if n else np.nan,
        bias_error=float(values.std(ddof=1) / n**0.5) if n > 1 else np.nan,
        root_mean_square_error=float(((values - truth) ** 2).mean() ** 0.5) if n else np.nan,
        n_covered=int(_inside(truth, told[:, 1], told[:, 2]).sum()),
        mean_width=float(widths.mean()) if n else np.nan,
        n_safe=len(safe),
        n_safe_covered=int(_inside(truth, safe[:, 3], safe[:, 4]).sum()),
    )


def _inside(truth: float, low: FloatArray, high: FloatArray) -> BoolArray:
    """Whether intervals hold the truth; rounding may put it a hair outside one without width."""
    hair = SAME_VALUE * max(1.0, abs(truth))
    return np.asarray((low - hair <= truth) & (truth <= high + hair))


def _ranking(estimator: str, truths: FloatArray, values: FloatArray) -> Ranking:
    """From (policies,) truths and (logs, policies) estimates."""
    first, second = np.triu_indices(len(truths), 1)
    better = truths[first] - truths[second]
    differ = np.abs(better) > SAME_VALUE
    guessed = (values[:, first] - values[:, second])[:, differ]
    told = ~np.isnan(guessed)
    right = told & (np.sign(guessed) == np.sign(better[differ]))
    picked = values[~np.isnan(values).all(axis=1)]
    regrets = truths.max() - truths[np.nanargmax(picked, axis=1)] if len(picked) else np.array([])
    return Ranking(
        estimator=estimator,
        n_pairs=int(told.sum()),
        n_right=int(right.sum()),
        n_silent_pairs=int((~told).sum()),
        mean_regret=float(regrets.mean()) if len(regrets) else np.nan,
        n_picks=len(picked),
    )


def wilson(n_hits: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Interval of a share, z standard errors to each side (95 % by default), by Wilson (1927); (0, 1) where nothing was tried.

    >>> [round(x, 3) for x in wilson(190, 200)]
    [0.91, 0.973]
    """
    if not n:
        return 0.0, 1.0
    share = n_hits / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    off = z / (1 + z**2 / n) * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    return middle - off, middle + off
