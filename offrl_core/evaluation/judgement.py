"""One decision card in plain words: which of several estimates to believe for a policy, and why.

The order of trust is fixed and short: an estimate that may be wrong in one way only comes before one that may be wrong in
two; where the fitted model and the weights contradict each other, weights with known probabilities are believed, as they take
nothing for granted about the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .comparison import Comparison, LoggedReturn
from .coverage_study import CoverageStudy
from .ope import ESTIMATORS, Estimate
from .ope.warnings import FEW

WEIGHTS_FIRST = ("wdr", "dr", "wpdis", "pdis", "wis", "is", "magic", "fqe", "mis")
MODEL_FIRST = ("magic", "wdr", "fqe", "wpdis", "wis", "dr", "mis", "pdis", "is")
MODELS = ("fqe", "mis")
Verdict = Literal["better", "worse", "can't tell", "no number"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionCard:
    """What to believe about one policy.

    Attributes:
        policy: its name.
        believe: the estimator to believe; "" where none can be.
        value, low, high: its estimate, reward units; None without one.
        verdict: against what the log's own agent got.
        headline: one sentence.
        reasons: why this one.
        doubts: what could still be wrong.
        others: estimator -> why not that one.
        truth: exact value where a world knows it, for the reader only: the card is made without it.
    """

    policy: str
    believe: str
    value: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    headline: str
    reasons: tuple[str, ...]
    doubts: tuple[str, ...]
    others: Mapping[str, str]
    truth: float | None


def judge(comparison: Comparison, policy: str, study: CoverageStudy | None = None) -> DecisionCard:
    """The card of one policy of a comparison.

    Args:
        comparison: with the estimates.
        policy: its name there.
        study: on a world, what fresh logs said about the estimators; those that broke their promise there are passed over.

    Raises:
        KeyError: the comparison doesn't hold this policy.
    """
    estimates = comparison.estimates[policy]
    told = {name: guess for name, guess in estimates.items() if guess.value is not None}
    if not told:
        return _silent(comparison, policy)
    broken = _broken_promises(study, policy)
    name = _most_trusted(told, broken)
    guess = told[name]
    verdict = _verdict(guess, comparison.logged)
    return DecisionCard(
        policy=policy,
        believe=name,
        value=guess.value,
        low=guess.low,
        high=guess.high,
        verdict=verdict,
        headline=_headline(policy, guess, verdict, comparison.logged),
        reasons=_reasons(told, name, broken),
        doubts=(*_doubts(told, name), *guess.warnings),
        others={other: _why_not(estimates[other], other, name, broken) for other in estimates if other != name},
        truth=comparison.truths[policy],
    )


def judge_all(comparison: Comparison, study: CoverageStudy | None = None) -> dict[str, DecisionCard]:
    """A card for each policy."""
    return {policy: judge(comparison, policy, study) for policy in comparison.estimates}


def _silent(comparison: Comparison, policy: str) -> DecisionCard:
    estimates = comparison.estimates[policy]
    refusals = list(dict.fromkeys(guess.refusal for guess in estimates.values()))
    return DecisionCard(
        policy=policy,
        believe="",
        value=None,
        low=None,
        high=None,
        verdict="no number",
        headline=f"This log can't say what {policy} is worth.",
        reasons=tuple(refusals),
        doubts=(),
        others={name: guess.refusal for name, guess in estimates.items()},
        truth=comparison.truths[policy],
    )


def _broken_promises(study: CoverageStudy | None, policy: str) -> dict[str, str]:
    """Estimator -> how often its intervals held on fresh logs, where that is too seldom."""
    if study is None:
        return {}
    return {
        row.estimator: (
            f"on {row.n_told:,} fresh logs of this world its 95 % interval held the truth only {row.coverage:.0%} of the time"
        )
        for row in study.reliability
        if row.policy == policy and row.as_promised is False
    }


def _most_trusted(told: Mapping[str, Estimate], broken: Mapping[str, str]) -> str:
    weighed = [guess for name, guess in told.items() if ESTIMATORS[name].weighs_episodes and name != "magic"]
    thin = not weighed or max(guess.effective_sample_size for guess in weighed) < FEW
    order = MODEL_FIRST if thin and not _contradicted(told) else WEIGHTS_FIRST
    kept = [name for name in order if name in told]
    return next((name for name in kept if name not in broken), kept[0])


def _contradicted(told: Mapping[str, Estimate]) -> str:
    """Name of a weighted estimate whose interval doesn't meet that of fitted Q evaluation; "" where there is none."""
    model = told.get("fqe")
    if model is None:
        return ""
    for name in ("wdr", "wpdis", "wis"):
        other = told.get(name)
        if other is not None and (_number(other.low) > _number(model.high) or _number(other.high) < _number(model.low)):
            return name
    return ""


def _number(x: float | None) -> float:
    assert x is not None, "estimates that told have an interval"
    return x


def _verdict(guess: Estimate, logged: LoggedReturn) -> Verdict:
    if logged.value is None:
        return "can't tell"
    if _number(guess.low) > logged.value:
        return "better"
    return "worse" if _number(guess.high) < logged.value else "can't tell"


def _headline(policy: str, guess: Estimate, verdict: Verdict, logged: LoggedReturn) -> str:
    worth = f"{policy} is worth about {guess.value:.3f}, between {guess.low:.3f} and {guess.high:.3f}"
    if logged.value is None:
        return f"{worth}; what the log's own agent got is unknown."
    against = {
        "better": "more than",
        "worse": "less than",
        "can't tell": "which can't be told apart from",
    }[verdict]
    return f"{worth}: {against} the {logged.value:.3f} that the log's own agent got."


def _reasons(told: Mapping[str, Estimate], name: str, broken: Mapping[str, str]) -> tuple[str, ...]:
    guess = told[name]
    reasons = [f"{ESTIMATORS[name].title}: {ESTIMATORS[name].summary}"]
    if guess.propensities == "logged":
        reasons.append("The log says how likely each action was, so the weights are known and not guessed.")
    worth = f"{guess.effective_sample_size:,.0f} episodes' worth of evidence"
    if guess.effective_sample_size >= FEW:
        reasons.append(f"There are {worth}.")
    elif name in MODEL_FIRST[:3]:
        reasons.append(f"Too few logged episodes follow this policy all the way for weights alone ({worth} here).")
    other = _contradicted(told)
    if other and name not in MODELS:
        model = told["fqe"]
        reasons.append(
            f"Fitted Q evaluation says {model.value:.3f} [{model.low:.3f}, {model.high:.3f}] and can't be right as well: "
            "the state hides something that matters. Weights don't need the state to say everything."
        )
    passed = [better for better in WEIGHTS_FIRST[: WEIGHTS_FIRST.index(name)] if better in broken and better in told]
    reasons += [f"{ESTIMATORS[better].title} was passed over: {broken[better]}." for better in passed]
    return tuple(reasons)


def _doubts(told: Mapping[str, Estimate], name: str) -> tuple[str, ...]:
    doubts = []
    if name in MODELS:
        doubts.append(
            "Nothing checks here whether the state says all that matters; if it doesn't, this is off and can't know it."
        )
        other = _contradicted(told)
        if other:
            doubts.append(f"{ESTIMATORS[other].title} contradicts it.")
    guess = told[name]
    if guess.propensities == "estimated":
        doubts.append(
            "The behavior probabilities are estimated; if the log's agent saw more than the state shows, they are wrong."
        )
    if guess.overlap < 1 - 5e-4:
        doubts.append(f"About {1 - guess.overlap:.1%} of the policy's episodes leave what the log shows.")
    return tuple(doubts)


def _why_not(guess: Estimate, name: str, chosen: str, broken: Mapping[str, str]) -> str:
    if guess.value is None:
        return guess.refusal
    if name in broken:
        return f"{broken[name][0].upper()}{broken[name][1:]}."
    if name in MODELS and chosen not in MODELS:
        return "Right only if the state says all that matters; the believed one doesn't need that."
    return f"Says {guess.value:.3f} [{guess.low:.3f}, {guess.high:.3f}]; {_COMPARED[name]}"


_COMPARED = {
    "is": "no bias, but the widest spread.",
    "wis": "weighs whole episodes, so decisions after a reward add noise to it.",
    "pdis": "no bias, but weights that don't add up to 1.",
    "wpdis": "weighs rewards step by step, without a model to take the noise out.",
    "fqe": "right only if the state says all that matters.",
    "dr": "no bias, but weights that don't add up to 1.",
    "wdr": "needs enough episodes that follow the policy all the way.",
    "magic": "leans on the fitted model where weights are thin.",
    "mis": "right only if the state says all that matters.",
}
