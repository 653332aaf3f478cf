"""A forecast before training: which family of learners should do best on this log, with reasons, and scored afterwards.

Three families: those that copy the log, those that improve on it without leaving it, and those that may leave it. What tells
them apart is known before any of them is trained: what copying would be worth on the counts, what staying inside could be
worth at best (the ceiling), and whether a maximum over all valid actions would run out of the support. Whether leaving *pays*
is what no log can say: the forecast then stands by the constrained family, says so, and is wrong where the unlogged is good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..arrays import FloatArray
from ..dataset import Dataset
from ..errors import NotPossible
from ..policies import greedy_probabilities
from ..wording import counted
from .ceiling import BestPath, Ceiling, best_path, ceiling, optimum
from .log_quality import FEW_ROWS, episode_values, thin_shares, trajectory_quality
from .occupancy import event_probability

Family = Literal["copying", "constrained", "unconstrained"]

FAMILIES: Mapping[Family, str] = {
    "copying": "copy the log (behavior cloning)",
    "constrained": "improve, but stay inside the log (constrained)",
    "unconstrained": "chase the best value anywhere (unconstrained)",
}

_LEARNERS: Mapping[Family, frozenset[str]] = {
    "copying": frozenset({"bc", "filtered_bc", "return_conditioned", "decision_transformer"}),
    "constrained": frozenset(
        "fqi_support cql bcq bear iql awr awac kl_regularized spibb pessimistic_vi mopo morel".split()
    ),
    "unconstrained": frozenset({"fqi", "fqi_sampled"}),
}

CLOSE = 0.02  # of the range of the returns: less apart counts as equally good
LEAVES = 0.005  # of the episodes: less counts as staying


def family_of(learner: str) -> Family | None:
    """The family of a learner, a network like the table it stands for; None for one that nobody has placed yet."""
    plain = learner.removesuffix("_neural")
    return next((family for family, members in _LEARNERS.items() if plain in members), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Which families should do best.

    Attributes:
        best: those expected to be among the best, the one to start with first.
        reasons: sentences, the deciding one first.
        doubts: sentences on what could make it wrong.
        close: how near two returns must lie to count as equal, reward units.
    """

    best: tuple[Family, ...]
    reasons: tuple[str, ...]
    doubts: tuple[str, ...]
    close: float

    @property
    def headline(self) -> str:
        """In one sentence."""
        if len(self.best) == len(FAMILIES):
            return "It should not matter: copying the log is already as good as it gets inside it."
        if self.best == ("copying",):
            return "Start with learners that copy the log."
        also = f"; those that {FAMILIES[self.best[1]]} should do as well" if len(self.best) > 1 else ""
        return f"Start with learners that {FAMILIES[self.best[0]]}{also}."


def forecast(dataset: Dataset, min_count: int = 1, default_value: float = 0.0) -> Forecast:
    """Say before training which family should do best.

    Args:
        dataset: any framed log.
        min_count: rows from which on a pair counts as supported.
        default_value: what an unconstrained learner takes never-seen pairs for.

    Raises:
        NotPossible: as :func:`.ceiling.ceiling`, for other reasons than unknown rewards.
    """
    if not dataset.has_rewards:
        return Forecast(
            best=("copying",),
            reasons=("No step has a known reward, so nothing but copying can be learned from this log.",),
            doubts=("If rewards are joined to the log, the forecast is made anew.",),
            close=0.0,
        )
    found = ceiling(dataset, min_count)
    close = CLOSE * _range_of_returns(dataset, found)
    copied = found.worth(_majority(dataset), dataset.discount)
    leaves, where = leaves_when_free(dataset, found, default_value)
    copying_is_enough = found.value - copied <= close
    stays = leaves < LEAVES
    best: tuple[Family, ...] = ("copying", "constrained") if copying_is_enough else ("constrained",)
    path = _path(dataset, found)
    return Forecast(
        best=(*best, "unconstrained") if stays else best,
        reasons=(
            _on_copying(copied, found.value, copying_is_enough, trajectory_quality(dataset)),
            _on_leaving(leaves, where, default_value),
            *([path.sentence] if path is not None and not copying_is_enough else []),
        ),
        doubts=tuple(_doubts(found, thin_shares(dataset, ceiling(dataset))[1], path, stays)),
        close=close,
    )


def _majority(dataset: Dataset) -> FloatArray:
    counts = dataset.visitation_counts
    return greedy_probabilities(counts.astype(float), counts > 0, dataset.valid_mask)


def _range_of_returns(dataset: Dataset, found: Ceiling) -> float:
    """From the worst return of the log to the best return or the ceiling."""
    returns, _ = episode_values(dataset)
    values = [*returns.tolist(), found.value]
    return max(values) - min(values)


def _path(dataset: Dataset, found: Ceiling) -> BestPath | None:
    try:
        return best_path(dataset, found)
    except NotPossible:
        return None


def leaves_when_free(dataset: Dataset, found: Ceiling, default_value: float) -> tuple[float, str]:
    """How often the episodes of an unconstrained maximum leave the support on the counts, and the first pair they leave by.

    Nothing is trained: the counts are solved once more, with every valid pair allowed and a constant for what has no rows.

    Returns:
        Share of the episodes, and "action in state"; "" where none leaves.
    """
    mdp, valid = dataset.empirical_mdp(dataset.valid_mask, default_value), dataset.valid_mask
    try:
        _, free = optimum(mdp, valid, dataset.visitation_counts, dataset.discount)
    except ArithmeticError as error:
        raise NotPossible(f"Values have no bound here: {error}. Choose a framing with a discount below 1.") from error
    outside = ~found.supported & (free > 0)
    policy = np.ascontiguousarray(free.T)
    share = event_probability(mdp, found.starts, policy, np.ascontiguousarray(~found.supported.T))
    if share < LEAVES:
        return share, ""
    visits = dataset.visitation_counts.sum(axis=1)
    states = np.flatnonzero(outside.any(axis=1))
    state = int(states[visits[states].argmax()])
    return share, f"{dataset.actions[int(free[state].argmax())]} in {dataset.states[state]}"


def _on_copying(copied: float, best: float, enough: bool, quality: float | None) -> str:
    tq = "" if quality is None else f" (trajectory quality {quality:.2f})"
    if enough:
        return f"Copying what the log does most is worth {copied:+z.3f} on its counts, staying inside {best:+z.3f} at best{tq}."
    return f"Staying inside the log could be worth {best:+z.3f}, copying what it does most only {copied:+z.3f} on its counts{tq}."


def _on_leaving(share: float, where: str, default_value: float) -> str:
    if not where:
        return "A learner without any guard would stay inside the log as well: no guess beats what was seen on its way."
    return (
        f"A learner without any guard would leave the log in {share:.0%} of its episodes (for example by {where}), because a "
        f"guess of {default_value:g} beats what was seen. Whether that pays, no row can say."
    )


def _doubts(found: Ceiling, thin_visits: float, path: BestPath | None, stays: bool) -> list[str]:
    doubts = []
    if not stays:
        doubts.append("If what the log never shows is good once deployed, learners that leave the log win after all.")
    if path is not None and path.thinnest.n_rows < FEW_ROWS:
        thin = path.thinnest
        doubts.append(
            f"The best path hangs on {counted(thin.n_rows, 'row')} of {thin.action} in {thin.state}: that may be luck."
        )
    if found.silent >= LEAVES:
        doubts.append(
            f"In {found.silent:.0%} of its episodes the best policy comes to a state where the log supports nothing; "
            "from there on nothing is counted."
        )
    if thin_visits >= 0.2:
        doubts.append(
            f"In states with {thin_visits:.0%} of the steps the best action was seen fewer than {FEW_ROWS} times."
        )
    return doubts


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How a forecast did.

    Attributes:
        right: whether the family to start with was among the best.
        winners: families whose best learner lies within ``close`` of the best of all.
        best_of: family -> its best learner and what that is worth.
        sentence: in words.
    """

    right: bool
    winners: tuple[Family, ...]
    best_of: Mapping[Family, tuple[str, float]]
    sentence: str


def score_forecast(made: Forecast, values: Mapping[str, float]) -> Score:
    """Hold a forecast against what the learners turned out to be worth.

    Args:
        made: before training.
        values: learner -> its return: exact in a world, an estimate elsewhere. Learners of no known family don't count.

    Raises:
        NotPossible: fewer than two families have a value, so nobody can have won.
    """
    best_of: dict[Family, tuple[str, float]] = {}
    for learner, value in values.items():
        family = family_of(learner)
        if family is not None and (family not in best_of or value > best_of[family][1]):
            best_of[family] = (learner, value)
    if len(best_of) < 2 or made.best[0] not in best_of:
        raise NotPossible(
            "A forecast is scored once learners of at least two families have a value, the foretold one among them. "
            "Choose them on the page Train."
        )
    top = max(value for _, value in best_of.values())
    winners = tuple(family for family in FAMILIES if family in best_of and best_of[family][1] >= top - made.close)
    right = made.best[0] in winners
    told = "; ".join(f"{family} {value:+z.3f} ({learner})" for family, (learner, value) in best_of.items())
    return Score(
        right=right,
        winners=winners,
        best_of=best_of,
        sentence=f"The forecast was {'right' if right else 'wrong'}: best of each family: {told}.",
    )
