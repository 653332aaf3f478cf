"""What must hold before an estimator may speak: each a name, a few words, and a check that gives a sentence or nothing.

The bounds are rules of thumb, kept here in one place; the sentences say what was found, and what would help.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from .case import Case
from .steps import LoggedSteps

MIN_EFFECTIVE_SAMPLE_SIZE = 10
MAX_WEIGHT = 1e100  # of an episode; squares of larger ones overflow
MAX_SHARE_LEAVING = 0.05  # of the episodes; less may be missing from the log by chance, and the interval covers it
MAX_SHARE_LEFT_OUT = 0.2  # of the episodes; those that remain would be another log
MAX_MEAN_OFF, MAX_MEAN_SHARE_OFF = 4.0, 0.1  # of the mean weight from 1: standard errors, and at least so much
MAX_SHARE_CUT = 0.5  # of the episodes, unless all were cut after the same number of steps


class Precondition(NamedTuple):
    """One condition of an estimator."""

    title: str
    why: str
    check: Callable[[Case], str]  # "" where it is met


def _n(n: int, n_all: int, things: str = "episodes") -> str:
    return f"{n:,} of {n_all:,} {things}"


def _rewards(case: Case) -> str:
    if case.dataset.has_rewards:
        return ""
    return "The log has no rewards, so there is no return to weigh. Join rewards to it first."


def _not_torn(case: Case) -> str:
    torn = next((edit for edit in case.dataset.edits if edit.breaks_sequences), None)
    if torn is None:
        return ""
    return (
        "Off-policy estimates need whole episodes, and a coverage edit tore steps out of them: "
        f"{torn.sentence} Drop whole episodes instead."
    )


def _without_gaps(case: Case) -> str:
    steps = case.steps
    n, n_all = steps.count(steps.torn), steps.n_episodes
    if n <= MAX_SHARE_LEFT_OUT * n_all:
        return ""
    return (
        f"{_n(n, n_all)} miss steps in the middle or go on after their ending, so their weights can't be multiplied. "
        "A log with every step (t counting up by 1) would help."
    )


def _known_returns(case: Case) -> str:
    steps = case.steps
    n, n_all = steps.count(steps.unknown), steps.n_episodes
    if n <= MAX_SHARE_LEFT_OUT * n_all:
        return ""
    found = f"{_n(n, n_all)} have an unknown return"
    if 2 * steps.count(steps.unknown & steps.only_rewarded_at_the_end) > n:
        return (
            f"{found}, because only their last step has a reward and this framing adds rewards up step by step. On the page "
            "Framing, choose as the reward: outcome, at the end of the episode."
        )
    return f"{found}; the others may not be like them. Joining the missing rewards would help."


def _something_left(case: Case) -> str:
    if case.n_included:
        return ""
    return (
        "No episode of the log is whole, begins at its beginning and has a known return, so there is nothing to weigh. "
        "Whole episodes would help."
    )


def _ended(case: Case) -> str:
    steps = case.steps
    n, n_all = steps.count(steps.cut & steps.included), case.n_included
    lengths = steps.position[steps.last][steps.cut & steps.included]
    if n <= MAX_SHARE_CUT * n_all or len(np.unique(lengths)) == 1:
        return ""
    return (
        f"{_n(n, n_all)} were cut after different numbers of steps, so their returns are no returns of anything. "
        "Episodes that end, or fitted Q evaluation (fqe), which goes on past a cut, would help."
    )


def _propensities(case: Case) -> str:
    return _impossible(case.steps) if not case.estimated else _not_a_number(case.steps)


_IMPOSSIBLE = "The behavior probabilities of the log can't be right: "


def _not_a_number(steps: LoggedSteps) -> str:
    if not steps.n_not_a_number:
        return ""
    return (
        f"{_IMPOSSIBLE}action_logprob is not a number (NaN) on {_n(steps.n_not_a_number, steps.n_logged_steps, 'steps')}. "
        "Leave it empty where it is unknown; it is then estimated, and the estimate says so."
    )


def _impossible(steps: LoggedSteps) -> str:
    if steps.n_not_a_number:
        return _not_a_number(steps)
    if steps.n_above_one:
        return (
            f"{_IMPOSSIBLE}they are above 1 on {_n(steps.n_above_one, steps.n_logged_steps, 'steps')}. "
            "Check action_logprob; it must be the logarithm of the probability of the action, 0 or less."
        )
    if steps.n_zero:
        return (
            f"{_IMPOSSIBLE}they are 0 on {_n(steps.n_zero, steps.n_logged_steps, 'steps')} whose action was taken all the same. "
            "Check action_logprob; it must be the logarithm of the probability of the action."
        )
    return ""


def _bounded_weights(case: Case) -> str:
    return _overflowing(case.episode_weights)


def _bounded_ratios(case: Case) -> str:
    return _overflowing(case.ratios)


def _overflowing(weights: FloatArray) -> str:
    if (weights < MAX_WEIGHT).all():  # also false for infinite and undefined ones
        return ""
    return (
        f"{_IMPOSSIBLE}some are so small that the weights overflow. "
        "Check action_logprob; it must be the logarithm of the probability of the action."
    )


def _overlap(case: Case) -> str:
    """Where the log never does what the policy would do, weights are 0, and what is left says nothing about that part.

    Weighted importance sampling then gives the mean over the *other* episodes: a confident number about another policy.
    """
    leaving = case.leaves_shown
    if leaving.share < MAX_SHARE_LEAVING:
        return ""
    return (
        f"This policy does what the log never shows in about {leaving.share:.0%} of the episodes, most often in "
        f"{case.dataset.states[leaving.state]!r}. Importance sampling would leave those out and judge it by the rest. "
        "A log that tries these actions would help."
    )


def _taught(case: Case) -> str:
    leaving = case.leaves_taught
    if case.q_values is not None or leaving.share < MAX_SHARE_LEAVING:
        return ""
    return (
        f"This policy does what the log never shows in about {leaving.share:.0%} of the episodes, most often in "
        f"{case.dataset.states[leaving.state]!r}. What follows there is in no row, so any value would be a guess. "
        "A log that tries these actions and shows what came of them would help."
    )


def _settles(case: Case) -> str:
    if case.dataset.discount < 1 or case.goes_on_forever < MAX_SHARE_LEAVING:
        return ""
    return (
        f"On the counts of the log about {case.goes_on_forever:.0%} of this policy's episodes never end, and without a discount "
        "nothing bounds their value. A discount below 1 would help."
    )


def _effective_size(case: Case) -> str:
    size, n_all = case.effective_sample_size, case.dataset.n_episodes
    if size >= MIN_EFFECTIVE_SAMPLE_SIZE:
        return ""
    followed = case.steps.count(case.episode_weights > 0)
    return (
        f"Only {_n(followed, n_all)} follow what this policy would do (effective sample size {size:.1f}, at least "
        f"{MIN_EFFECTIVE_SAMPLE_SIZE} needed): the log can't speak for it. A log that tries this policy's actions would help."
    )


def _visited_size(case: Case) -> str:
    size, n_all = case.visited_sample_size, case.dataset.n_episodes
    if size >= MIN_EFFECTIVE_SAMPLE_SIZE:
        return ""
    return (
        f"Where this policy goes, {n_all:,} episodes hold only about {size:.1f} episodes' worth of steps (at least "
        f"{MIN_EFFECTIVE_SAMPLE_SIZE} needed): the log can't speak for it. A log that tries this policy's actions would help."
    )


def _mean_weight(case: Case) -> str:
    mean, error = case.mean_weight
    if abs(mean - 1) <= max(MAX_MEAN_OFF * error, MAX_MEAN_SHARE_OFF):
        return ""
    return (
        f"The weights of the episodes average {mean:.2f} where they should average 1, and plain weights would be off by as much: "
        f"{why_off(mean)}. Weighted forms (wis, wpdis, wdr), or episodes that the policy was not made from, would help."
    )


def why_off(mean: float) -> str:
    """What makes weights too light or too heavy on average."""
    policy = "was fitted to these very episodes" if mean > 1 else "does what some of the log's agents never do"
    return f"the behavior probabilities don't fit what the log does, or the policy {policy}"


def _horizon(case: Case) -> str:
    expected, n_all = case.expected_sample_size, case.n_included
    if expected >= MIN_EFFECTIVE_SAMPLE_SIZE:
        return ""
    return (
        f"Over up to {case.steps.n_steps:,} steps the weights multiply so far that {n_all:,} such episodes are worth about "
        f"{expected:.2g} of this policy's own (at least {MIN_EFFECTIVE_SAMPLE_SIZE} needed); the heaviest ones just have not "
        "turned up yet. Shorter episodes, a policy closer to the log's, or fitted Q evaluation (fqe) would help."
    )


PRECONDITIONS: dict[str, Precondition] = {
    "rewards": Precondition("rewards are known", "a value is a sum of rewards", _rewards),
    "not_torn": Precondition(
        "no coverage edit tore steps out of episodes",
        "an episode without some of its steps is another episode",
        _not_torn,
    ),
    "without_gaps": Precondition(
        "episodes miss no step", "the weight of an episode is a product over all its steps", _without_gaps
    ),
    "known_returns": Precondition(
        "returns are known", "episodes of unknown return are left out, and they may be the bad ones", _known_returns
    ),
    "something_left": Precondition("there are episodes to weigh", "a mean over nothing is no number", _something_left),
    "ended": Precondition(
        "episodes end, or are cut at one length", "a return up to an arbitrary cut is not the return", _ended
    ),
    "propensities": Precondition("behavior probabilities are probabilities", "weights divide by them", _propensities),
    "bounded_weights": Precondition("weights don't overflow", "one episode would be all there is", _bounded_weights),
    "bounded_ratios": Precondition("ratios of steps don't overflow", "one step would be all there is", _bounded_ratios),
    "overlap": Precondition(
        "the log shows what the policy does", "actions that were never taken can't be weighed", _overlap
    ),
    "taught": Precondition(
        "the log shows what the policy does, and what came of it", "a value of an unseen pair is a guess", _taught
    ),
    "settles": Precondition("values are bounded", "a sum without discount and without end has no value", _settles),
    "effective_size": Precondition(
        "enough episodes follow the policy", "a mean over a handful of episodes is chance", _effective_size
    ),
    "visited_size": Precondition(
        "enough steps lie where the policy goes", "a model of a handful of steps is chance", _visited_size
    ),
    "mean_weight": Precondition(
        "weights average 1", "by their definition they must; if not, something else is off", _mean_weight
    ),
    "horizon": Precondition(
        "weights don't spread too far over the horizon",
        "where large weights are rare, a log without them looks better than it is",
        _horizon,
    ),
}

_ALWAYS = ("rewards", "not_torn")
_WEIGHED = (*_ALWAYS, "without_gaps", "known_returns", "something_left")
FITTED_MODEL = (*_ALWAYS, "taught", "settles", "visited_size")
WEIGHED_STEPS = (*_ALWAYS, "propensities", "bounded_ratios", "taught", "settles", "visited_size")
WEIGHED_EPISODES = (
    *_WEIGHED,
    "propensities",
    "bounded_weights",
    "overlap",
    "effective_size",
    "horizon",
    "ended",
)
PLAIN_EPISODES = (*WEIGHED_EPISODES, "mean_weight")
BLEND = (*_WEIGHED, "propensities", "bounded_weights", "taught", "settles", "visited_size")


class Checked(NamedTuple):
    """A precondition held against a policy and a log."""

    name: str
    title: str
    why: str
    sentence: str  # "" where it is met

    @property
    def met(self) -> bool:
        """Whether the estimator may speak, as far as this goes."""
        return not self.sentence


def check(case: Case, needs: tuple[str, ...]) -> list[Checked]:
    """The conditions in order, up to the first that isn't met: later ones may make no sense without it."""
    checked = []
    for name in needs:
        condition = PRECONDITIONS[name]
        checked.append(Checked(name, condition.title, condition.why, condition.check(case)))
        if not checked[-1].met:
            break
    return checked
