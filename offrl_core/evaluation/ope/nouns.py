"""What an off-policy estimate is: a number with an interval or a refusal, and the registry entry of an estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ...arrays import FloatArray
from .resamples import Resamples

Propensities = Literal["logged", "estimated", "not used"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An off-policy estimate of the discounted return, or a refusal.

    Attributes:
        estimator: name in :data:`offrl_core.ESTIMATORS`.
        value, low, high: estimate with a 95 % interval from an episode bootstrap, reward units; None where refused.
        effective_sample_size: how many episodes of the policy's own these are worth: (Σw)²/Σw² over episodes for importance
            weights; for estimators by way of a model, the same over the discounted visits of state-action pairs.
        refusal: why there is no number, and what would help; "" where there is one.
        warnings: what to keep in mind with the number.
        unmet: name of the precondition that refused, in :data:`.preconditions.PRECONDITIONS`; "table" where the policy is no
            table over states; "" where all are met.
        overlap: share of the policy's episodes, as far as the log can tell, that never leave what the log shows.
        propensities: where the behavior probabilities came from.
        safe_low, safe_high: a 95 % interval that holds at any number of episodes (empirical Bernstein), None where it
            doesn't hold.
        safe_note: why there is none, or what it takes for granted.
    """

    estimator: str
    value: float | None
    low: float | None
    high: float | None
    effective_sample_size: float
    refusal: str = ""
    warnings: tuple[str, ...] = ()
    unmet: str = ""
    overlap: float = 0.0
    propensities: Propensities = "not used"
    safe_low: float | None = None
    safe_high: float | None = None
    safe_note: str = ""


def only_row(terms: FloatArray) -> FloatArray:
    """(B,) from (1, B): most estimators have their value at once."""
    return terms[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorSpec:
    """Registry entry of an estimator: one equation on sums over episodes, so a resampled log costs a matrix product.

    Attributes:
        title: plain words; the field's term is part of it.
        short: for rows of tables, so short that a phone has room for numbers beside it.
        summary: one sentence for a menu.
        equation: in TeX.
        source: paper and equation or section.
        differs: numbered differences from the source.
        needs: names of the preconditions, in the order in which they are checked.
        terms: (J, B) numbers from sums over resampled logs; J is 1 unless the estimator blends.
        combine: (J, 1 + B) -> (1 + B,) values; column 0 is the log itself.
        weighs_steps: whether it uses the behavior probabilities of steps.
        weighs_episodes: whether it multiplies them over whole episodes.
        blends: whether it may lean on the model alone, where weights give out.
        safe: whose terms :mod:`.bounds` takes for an interval that holds at any number of episodes; "" for none.
    """

    title: str
    short: str
    summary: str
    equation: str
    source: str
    differs: tuple[str, ...] = ()
    needs: tuple[str, ...]
    terms: Callable[[Resamples], FloatArray] = field(repr=False)
    combine: Callable[[FloatArray], FloatArray] = field(default=only_row, repr=False)
    weighs_steps: bool = True
    weighs_episodes: bool = True
    blends: bool = False
    safe: Literal["", "is", "pdis"] = ""
