"""The paragraph under the first pictures: who wins, and why the log could not have told you. It follows the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BY_ACCIDENT = 1 / 81  # share of the tasks that the wrong tool solves, at most: 2 + 2 = 2 × 2
ABOUT_EQUAL = 0.005  # success rates closer than this count as the same
DIAL_STEP, DIAL_TOP = 0.05, 1.0  # of the dial for the guess


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the first screen shows.

    Attributes:
        mul_out: whether mul was taken out of the log.
        deployment: works, broken or crash.
        default_value: value of never-seen pairs.
        success: learner (bc, fqi, fqi_support, cql) -> exact probability of success.
        success_if_works: the same once deployed where mul works.
        guessing_tasks: tasks on which naive FQI, once x and y are known, picks an action the log never shows there.
        best_seen: task -> largest learned Q among the actions that the log shows there once x and y are known, reward units;
            tasks on which it never gets there are left out.
        times_seen_mul: rows that call mul at that choice.
    """

    mul_out: bool
    deployment: str
    default_value: float
    success: Mapping[str, float]
    success_if_works: Mapping[str, float]
    guessing_tasks: tuple[str, ...]
    best_seen: Mapping[str, float]
    times_seen_mul: int


def tell(scene: Scene) -> str:
    """Two to four sentences of Markdown about the scene."""
    return " ".join([_what_happened(scene), _why(scene), _what_the_log_knows(scene)])


def about_bars(moved: Sequence[str], situation: str) -> str:
    """How to read the bars of the one choice, and why a plain one misses its mark.

    Args:
        moved: actions that the log shows there and that are worth something else where they are deployed than where the log was
            written.
        situation: the deployment in words.
    """
    read = "Bars of naive FQI start at the worst value, so the longest one is chosen."
    aliased = "the state hides something: “mul: result 12” doesn't tell which operation gave the 12 (aliasing)."
    if not moved:
        return f"{read} Where a plain bar misses its green mark, {aliased}"
    names = " and ".join(f"`{action}`" for action in moved)
    return (
        f"{read} The plain bar of {names} misses its green mark because the world changed after the log was written: here "
        f"{situation}. Where another one does, {aliased}"
    )


def about_small_bars(success: Mapping[str, Mapping[str, float]]) -> str:
    """Why some bars stand at 1 % or less and not at 0; "" where no bar is that small.

    Args:
        success: policy -> task -> exact probability of success.
    """
    shares = [share for by_task in success.values() for share in by_task.values()]
    if not any(0 < share <= BY_ACCIDENT + 1e-9 for share in shares):
        return ""
    return (
        "Bars of 1 % and less: the wrong tool is right by accident in one case of 81, `add` for `mul` or `mul` for `add` at "
        "2 + 2 = 2 × 2; `sub` never is."
    )


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _what_happened(scene: Scene) -> str:
    naive, inside = scene.success["fqi"], scene.success["fqi_support"]
    before, stays = scene.success_if_works["fqi"], scene.success_if_works["fqi_support"]
    numbers = f"Naive FQI solves {_percent(naive)} of the tasks, FQI inside the log {_percent(inside)}."
    if scene.mul_out and before - naive > ABOUT_EQUAL:
        numbers += f" Where `mul` works, it is {_percent(before)} and {_percent(stays)}."
    lead = _lead(scene)
    if lead == 0 and scene.mul_out and before - stays > ABOUT_EQUAL:
        return f"**Naive FQI's luck is gone, yet it does no worse than FQI inside the log.** {numbers}"
    if lead == 0:
        return f"**Both end up equal.** {numbers}"
    if lead < 0 and scene.mul_out and scene.guessing_tasks:
        return f"**Naive FQI pays for its guess.** {numbers}"
    return f"**{'Naive FQI' if lead > 0 else 'FQI inside the log'} wins.** {numbers}"


def _lead(scene: Scene) -> int:
    """1 where naive FQI solves more than FQI inside the log, 0 where they are about equal, -1 where it solves less."""
    ahead = scene.success["fqi"] - scene.success["fqi_support"]
    return 0 if abs(ahead) <= ABOUT_EQUAL else int(math.copysign(1, ahead))


def _why(scene: Scene) -> str:
    value, best = f"{scene.default_value:+z.2f}", f"{scene.best_seen['mul']:+z.3f}"
    if not scene.mul_out:
        return (
            f"On mul tasks the log shows `mul` {scene.times_seen_mul:,} times, so its value rests on data, and every learner "
            "finds it."
        )
    if not scene.guessing_tasks:
        return (
            f"The log never shows `mul`. Naive FQI values what it never saw at {value}; on mul tasks the best seen action is "
            f"worth {best}, which is more, so it stays inside the log and picks a wrong operation there."
        )
    if scene.guessing_tasks == ("mul",):
        return (
            f"The log never shows `mul`. Naive FQI values what it never saw at {value}, which on mul tasks beats the best seen "
            f"action ({best}), so it runs to `mul` there: a guess, not knowledge. {_LUCK[scene.deployment]}"
            + (_NOTHING_TO_LOSE if scene.deployment != "works" and _lead(scene) == 0 else "")
        )
    others = " and ".join(task for task in scene.guessing_tasks if task != "mul")
    return (
        f"The log never shows `mul`. Naive FQI values what it never saw at {value}, which beats even what is known to work, so "
        f"it calls `mul` on {others} tasks too: a guess, not knowledge, and it throws away what the log does show."
    )


_LUCK = {
    "works": "Here the guess happens to be right: `mul` works.",
    "broken": "Here the guess is wrong: `mul` returns garbage.",
    "crash": "Here the guess is wrong: `mul` crashes the episode.",
}
_NOTHING_TO_LOSE = " It costs nothing only because FQI inside the log, picking among what it saw, fares no better."


def _what_the_log_knows(scene: Scene) -> str:
    if scene.mul_out and not scene.guessing_tasks:
        return (
            "At this guess nobody calls `mul`, so the second switch changes nothing. Raise the guess above "
            f"{scene.best_seen['mul']:+z.3f} and see who runs to it."
        )
    if scene.mul_out:
        return (
            "The log is word for word the same whether `mul` works, is broken or crashes. No method that reads only this log "
            f"can tell the three apart.{_where_it_costs(scene)}"
        )
    if scene.deployment == "works":
        return "With full coverage there is nothing to guess. Take `mul` out of the log to see what guessing does."
    return (
        "The log was written when `mul` still worked, and all learners trust it: they fail together on mul tasks, because the "
        "world changed after the log was written. That is a shifted world, not missing coverage."
    )


def _where_it_costs(scene: Scene) -> str:
    """What to try next: the guess at which naive FQI gives up a choice that the log backs."""
    others = [value for task, value in scene.best_seen.items() if task != "mul"]
    if scene.guessing_tasks != ("mul",) or not others:
        return ""
    higher = DIAL_STEP * (math.floor(min(others) / DIAL_STEP) + 1)
    if not scene.default_value < higher <= DIAL_TOP:
        return ""
    return (
        f" **Is guessing harmless, then? Try the guess at {higher:.2f}:** above {min(others):+z.3f} naive FQI runs to "
        "`mul` on other tasks, too, where the log does show a choice worth that much."
    )
