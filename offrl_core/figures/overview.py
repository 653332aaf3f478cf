"""The two pictures of the first screen: success by task, and the one choice everything hangs on.

They are HTML, not Plotly: a few bars that change with every turn of a dial must be there at once, and a Plotly figure that
changes is taken down and built anew by the browser. Colours and hatching are those of :mod:`offrl_core.figures.theme`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..wording import counted
from .theme import ACCENT, HATCH, SUPPORTED, TRUTH, UNSUPPORTED, label

_LOW = 0.1  # of a bar: below this nobody can tell its height from nothing, so it says its number
_TASK_COLOURS = {"add": "#9DB4C8", "sub": "#6E8CA6", "mul": ACCENT}

# Text takes the page's colour, in light and in dark; lines and bars keep theirs.
_STYLE = f"""<style>
.orl-figure {{ font-size: 14px; line-height: 1.3; color: inherit; }}
.orl-figure .orl-groups {{ display: grid; grid-auto-flow: column; grid-auto-columns: 1fr; gap: 4%; }}
.orl-figure .orl-group {{ text-align: center; min-width: 0; }}
.orl-figure .orl-total {{ font-size: 22px; font-weight: 700; }}
.orl-figure .orl-plot {{ display: flex; align-items: flex-end; justify-content: center; gap: 4%; height: 236px;
  background: linear-gradient(#8885 1px, transparent 1px) 0 0 / 100% 53px repeat-y content-box; padding-top: 24px; }}
.orl-figure .orl-bar {{ flex: 0 1 30px; min-height: 2px; position: relative; border-radius: 2px 2px 0 0; }}
.orl-figure .orl-bar span {{ position: absolute; bottom: 100%; left: 50%; transform: translateX(-50%); font-size: 12px;
  line-height: 1.1; }}
.orl-figure .orl-base {{ border-top: 1px solid #888; padding-top: 4px; overflow-wrap: anywhere; }}
.orl-figure .orl-axis {{ font-size: 12px; opacity: .75; margin: 6px 0 2px; }}
.orl-figure .orl-rows {{ display: grid; grid-template-columns: max-content 1fr; gap: 18px 12px; align-items: center; }}
.orl-figure .orl-name {{ text-align: right; }}
.orl-figure .orl-name small {{ display: block; font-weight: 400; opacity: .8; }}
.orl-figure .orl-track {{ position: relative; height: 58px; border-left: 1px solid #888; }}
.orl-figure .orl-zero {{ position: absolute; top: 0; bottom: 20px; border-left: 1px dashed #888; }}
.orl-figure .orl-q {{ position: absolute; left: 0; top: 8px; height: 26px; border-radius: 0 2px 2px 0; min-width: 2px; }}
.orl-figure .orl-value {{ position: absolute; top: 36px; transform: translateX(-50%); font-size: 13px; white-space: nowrap; }}
.orl-figure .orl-truth {{ position: absolute; top: 2px; height: 38px; width: 4px; margin-left: -2px; background: {TRUTH}; }}
.orl-figure .orl-seen {{ background: {SUPPORTED}; }}
.orl-figure .orl-unseen {{ outline: 2px solid {UNSUPPORTED}; outline-offset: -2px;
  background: repeating-linear-gradient(-45deg, {UNSUPPORTED}, {UNSUPPORTED} 6px, {HATCH} 6px, {HATCH} 8px); }}
.orl-figure .orl-legend {{ display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 14px; font-size: 13px; }}
.orl-figure .orl-legend i {{ display: inline-block; width: 22px; height: 12px; margin-right: 6px; vertical-align: -1px; }}
.orl-figure .orl-legend i.orl-mark {{ width: 4px; height: 16px; background: {TRUTH}; }}
</style>"""


def make_success_by_task(success: Mapping[str, Mapping[str, float]], overall: Mapping[str, float]) -> str:
    """Bars of exact success by policy and task, as HTML.

    Args:
        success: policy title -> task -> probability of success.
        overall: policy title -> probability of success over all tasks, written above its bars.
    """
    groups = "".join(_group(title, by_task, overall[title]) for title, by_task in success.items())
    axis = '<div class="orl-axis">tasks solved (probability; lines at 0, 25, 50, 75 and 100 %)</div>'
    return _figure(f'<div class="orl-groups">{groups}</div>{axis}', "Success by task: " + _in_words(success))


def _group(title: str, by_task: Mapping[str, float], overall: float) -> str:
    bars = "".join(
        f'<div class="orl-bar" style="height:{max(value, 0):.1%};background:{_TASK_COLOURS.get(task, SUPPORTED)}" '
        f'title="{_quoted(title)}, {_quoted(task)} tasks: {value:.1%} solved (exact)"><span>{_bar_name(task, value)}</span></div>'
        for task, value in by_task.items()
    )
    return (
        f'<div class="orl-group"><div class="orl-total">{overall:.0%}</div><div class="orl-plot">{bars}</div>'
        f'<div class="orl-base">{label(title)}</div></div>'
    )


def _bar_name(task: str, value: float) -> str:
    if value >= _LOW:
        return label(task)
    number = "0" if value <= 0 else "&lt;1%" if value < 0.005 else f"{value:.0%}"
    return f"{label(task)}<br>{number}"


def make_choice(
    actions: Sequence[str],
    learned: Sequence[float],
    true: Sequence[float],
    counts: Sequence[int],
    chosen: str,
) -> str:
    """Q bars at one state, as HTML: learned value, evidence behind it, and the exact value as a mark.

    Args:
        actions: the actions that compete.
        learned: learned Q, reward units; NaN where the learner has none.
        true: exact Q in the deployment, reward units.
        counts: rows of the log behind each.
        chosen: the action the policy takes.
    """
    finite = [value for value in [*learned, *true] if not np.isnan(value)]
    # Bars start at the worst value on screen, not at 0: the longest bar wins, and a guess of 0 is still a bar.
    low, high = min([-1.2, *finite]) - 0.1, max([1.1, *finite]) + 0.1

    def place(value: float) -> str:
        return f"{(value - low) / (high - low):.2%}"

    rows = "".join(
        f'<div class="orl-name">{_name(action, count, action == chosen)}</div>'
        f'<div class="orl-track"><div class="orl-zero" style="left:{place(0)}"></div>'
        f"{_bar(value, count, place)}{_truth(exact, place)}</div>"
        for action, value, exact, count in zip(actions, learned, true, counts, strict=True)
    )
    legend = (
        f'<div class="orl-axis">value Q (discounted return, reward units), from {low:+z.2f} to {high:+z.2f}; dashed: 0</div>'
        '<div class="orl-legend"><span><i class="orl-seen"></i>learned Q</span>'
        '<span><i class="orl-unseen"></i>learned Q, never seen</span>'
        '<span><i class="orl-mark"></i>exact Q once deployed</span></div>'
    )
    words = "Learned and exact Q at the choice: " + "; ".join(
        f"{action} {_number(value)} against {_number(exact)}, seen {counted(count, 'time')}"
        for action, value, exact, count in zip(actions, learned, true, counts, strict=True)
    )
    return _figure(f'<div class="orl-rows">{rows}</div>{legend}', words)


def _name(action: str, count: int, chosen: bool) -> str:
    name = f"<b>{label(action)} ◀ chosen</b>" if chosen else label(action)
    seen = f"seen {counted(count, 'time')}" if count else "never seen"
    return f"{name}<small>{seen}</small>"


def _bar(value: float, count: int, place: Callable[[float], str]) -> str:
    if np.isnan(value):
        return '<div class="orl-value" style="left:0;transform:none">no value</div>'
    kind = "orl-seen" if count else "orl-unseen"
    return (
        f'<div class="orl-q {kind}" style="width:{place(value)}" title="learned Q {value:.3f}"></div>'
        f'<div class="orl-value" style="left:{place(value)}">{_number(value)}</div>'
    )


def _truth(value: float, place: Callable[[float], str]) -> str:
    if np.isnan(value):
        return ""
    return f'<div class="orl-truth" style="left:{place(value)}" title="exact Q {value:.3f}"></div>'


def _figure(content: str, words: str) -> str:
    """A picture with the same in words, for readers who don't see it."""
    return f'<div class="orl-figure" role="img" aria-label="{_quoted(words)}">{_STYLE}{content}</div>'


def _in_words(success: Mapping[str, Mapping[str, float]]) -> str:
    return "; ".join(
        f"{title}: " + ", ".join(f"{task} {value:.0%}" for task, value in by_task.items())
        for title, by_task in success.items()
    )


def _number(value: float) -> str:
    """A value with its sign; what rounds to zero has none.

    >>> _number(0.504), _number(-0.004), _number(0.0), _number(np.nan)
    ('+0.50', '0.00', '0.00', 'no value')
    """
    if np.isnan(value):
        return "no value"
    return f"{value:+z.2f}" if round(value, 2) else "0.00"


def _quoted(text: str) -> str:
    return html.escape(text if len(text) <= 2000 else text[:1999] + "…")
