"""The paragraph under the first pictures: who wins, and why the log could not have told you. It follows the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ABOUT_EQUAL = 0.005  # success rates closer than this count as the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the first screen shows.

    Attributes:
        mul_out: whether mul was taken out of the log.
        deployment: works, broken or crash.
        default_value: value of never-seen pairs.
        success: learner (bc, fqi, fqi_support, cql) -> exact probability of success.
        success_if_works: the same once deployed where mul works.
        naive_choice: action naive FQI takes on mul tasks once x and y are known.
        naive_choice_count: rows of the log behind that choice.
        best_seen_value: largest learned Q among the seen actions there, reward units.
        times_seen_mul: rows that call mul at that choice.
    """

    mul_out: bool
    deployment: str
    default_value: float
    success: Mapping[str, float]
    success_if_works: Mapping[str, float]
    naive_choice: str
    naive_choice_count: int
    best_seen_value: float
    times_seen_mul: int


def tell(scene: Scene) -> str:
    """Two to four sentences of Markdown about the scene."""
    return " ".join([_what_happened(scene), _why(scene), _what_the_log_knows(scene)])


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _what_happened(scene: Scene) -> str:
    naive, careful = scene.success["fqi"], scene.success["fqi_support"]
    before, stays = scene.success_if_works["fqi"], scene.success_if_works["fqi_support"]
    if scene.mul_out and before - naive > ABOUT_EQUAL:
        return (
            f"**The naive learner's luck is gone.** Where `mul` works it solves {_percent(before)} of the tasks, here "
            f"{_percent(naive)}. The one that stays inside the log solves {_percent(stays)} there and {_percent(careful)} here."
        )
    numbers = (
        f"Naive FQI solves {_percent(naive)} of the tasks, the learner that stays inside the log {_percent(careful)}"
    )
    if abs(naive - careful) <= ABOUT_EQUAL:
        return f"**Both end up equal.** {numbers}."
    return f"**{'The naive learner' if naive > careful else 'The careful learner'} wins.** {numbers}."


def _why(scene: Scene) -> str:
    value, best = f"{scene.default_value:+.2f}", f"{scene.best_seen_value:+.2f}"
    if not scene.mul_out:
        return (
            f"On mul tasks the log shows `mul` {scene.times_seen_mul:,} times, so its value rests on data, and every learner "
            "finds it."
        )
    if scene.naive_choice_count:
        return (
            f"The log never shows `mul` on a mul task. The naive learner values what it never saw at {value}; the best "
            f"seen action is worth {best}, which is more, so it stays inside the log and picks a wrong operation there."
        )
    luck = {
        "works": "Here the guess happens to be right: `mul` works.",
        "broken": "Here the guess is wrong: `mul` returns garbage.",
        "crash": "Here the guess is wrong: `mul` crashes the episode.",
    }[scene.deployment]
    return (
        f"The log never shows `mul` on a mul task. The naive learner values what it never saw at {value}, which beats the best "
        f"seen action ({best}), so it runs to `{scene.naive_choice}`: a guess, not knowledge. {luck}"
    )


def _what_the_log_knows(scene: Scene) -> str:
    if scene.mul_out:
        return (
            "The log is word for word the same whether `mul` works, is broken or crashes. No method that reads only this log "
            "can tell the three apart; turn the second switch and see who pays."
        )
    if scene.deployment == "works":
        return "With full coverage there is nothing to guess. Take `mul` out of the log to see what guessing does."
    return (
        "The log was written when `mul` still worked, and all learners trust it: they fail together on mul tasks, because the "
        "world changed after the log was written. That is a shifted world, not missing coverage."
    )
