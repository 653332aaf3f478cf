"""What the visitor has chosen: the only place that touches the address bar and the session.

Every choice that defines what is on screen is a ``Field`` below. It lives in the session under its own name, survives page
switches, and is written to the address bar whenever it differs from its default. Widgets are bound to a field by key; the
"copy link" text names every field and a version, so that a link keeps its meaning when a default changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from offrl_core.continuous import DEPLOYMENTS as CART_DEPLOYMENTS
from offrl_core.deadly_triad import PROBLEMS
from offrl_core.worlds import WORLDS

LINK_VERSION = "1"
MAX_IN_ADDRESS = 4000  # characters of one field
MAX_SEEDS = 32  # of one training
MAX_STEPS = 100_000  # of each seed; learners take no more


@dataclass(frozen=True, slots=True)
class Field:
    """A choice: its default, and how its text in a link is read. ``parse`` raises ValueError on nonsense."""

    default: Any
    parse: Callable[[str], Any] = str


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError("it isn't a number") from None
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError(f"must lie between {low:g} and {high:g}")
        return value

    return parse


def _whole(low: int, high: int) -> Callable[[str], int]:
    bounded = _number(low, high)

    def parse(text: str) -> int:
        value = bounded(text)
        if value != int(value):
            raise ValueError("it isn't a whole number")
        return int(value)

    return parse


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return parse


def _pins(text: str) -> str:
    if not re.fullmatch(r"([\w-]+-[0-9a-f]{16}~\d{1,10}~\d{1,2}(,|$))*", text, re.ASCII):
        raise ValueError("a pin is the id of a run, its first seed and the number of seeds")
    return text


FIELDS: dict[str, Field] = {
    "data": Field("calculator"),
    "files": Field(""),  # names of the files of an uploaded log, for people to read
    "framing": Field(""),
    "only_endings": Field(""),
    "edits": Field(""),
    "deployment": Field(
        "works", _one_of(*dict.fromkeys(name for spec in WORLDS.values() for name in spec.deployments))
    ),
    "guess": Field(0.0, _number(-1000, 1000)),
    "min_count": Field(1, _whole(1, 1_000_000)),
    "learners": Field("bc,fqi,fqi_support,cql"),
    "params": Field(""),
    "reward_way": Field("join", _one_of("join", "rule")),
    "seed": Field(0, _whole(0, 2**31)),
    "asked": Field(1.0, _number(-0.25, 1.25)),
    "split": Field("50", _one_of("50", "70", "0")),
    "seeds": Field(8, _whole(1, MAX_SEEDS)),
    "budget": Field(2000, _whole(1, MAX_STEPS)),
    "pins": Field("", _pins),
    "shown": Field(""),  # a learner; "" leaves it to the page, see model_choice.shown_learner
    "sort": Field("choice", _one_of("choice", "state", "visits", "overestimation", "unsupported")),
    "only": Field(""),
    "q_view": Field("values", _one_of("values", "ledger")),
    "picture": Field("grid", _one_of("grid", "table")),
    "task": Field(""),
    "first": Field(0, _whole(0, 10**9)),
    "cell_state": Field(""),
    "cell_action": Field(""),
    "episode": Field(""),
    "path_start": Field(""),  # "" leaves this and the next one to the page
    "curve_action": Field(""),
    "curve_how": Field("episodes", _one_of("episodes", "transitions")),
    "slip": Field(0.05, _number(0, 0.5)),
    "sql": Field(""),  # "" for the first example
    "gen_world": Field("calculator", _one_of(*WORLDS)),
    "gen_behavior": Field("logger"),
    "gen_right": Field(0.62, _number(0, 1)),
    "gen_random": Field(0.0, _number(0, 1)),
    "gen_action": Field("mul"),
    "gen_skip": Field("mul=1.0"),
    "gen_episodes": Field(3000, _whole(1, 100_000)),
    "gen_seed": Field(42, _whole(0, 2**31)),
    "covered_low": Field(-0.5, _number(-1, 1)),
    "covered_high": Field(0.5, _number(-1, 1)),
    "cart": Field("spins", _one_of(*CART_DEPLOYMENTS)),
    "cart_state": Field(-0.8, _number(-1, 1)),
    "cart_learning": Field("", _one_of("", "1", "stopped")),
    "cart_episodes": Field(400, _whole(10, 5000)),
    "value_weight": Field(2.5, _number(0, 1000)),
    "caution": Field(1.0, _number(0, 100)),
    "triad": Field("unlogged_action", _one_of(*PROBLEMS)),
    "triad_discount": Field(0.99, _number(0, 1)),
    "triad_smaller": Field(0.4, _number(0, 1)),
    "triad_caution": Field(2.0, _number(0, 10)),
}

# Places on pages that belong to the log that is looked at, and all choices that do.
PLACES = (
    "framing",
    "cell_state",
    "cell_action",
    "episode",
    "first",
    "task",
    "only",
    "sort",
    "path_start",
    "curve_action",
)
OF_A_LOG = ("edits", *PLACES)

# Session keys beside the fields: uploads by fingerprint, warnings of the link, choices for a log that isn't loaded yet, the page
# of the last run, what the address of a page without choices meant last (a page with none, or one on the way to those that the
# app adds), the page on which a widget was drawn last, and the keys of widgets ("w:...").
UPLOADS, WARNINGS, LOADED, AWAITED = "uploads", "link_warnings", "link_loaded", "link_awaited"
LAST_PATH, BARE = "link_path", "link_bare"
NO_CHOICES, ON_THE_WAY = "no choices", "on the way"
DRAWN_ON = "widgets_drawn_on"


def get(name: str) -> Any:
    """The current value of a field."""
    return st.session_state.get(name, FIELDS[name].default)


def put(name: str, value: Any) -> None:
    """Set a field."""
    assert name in FIELDS, name
    st.session_state[name] = value


def widget_key(name: str, shown: Any = None) -> str:
    """Key for a widget that edits a field; sets the widget to the field's value, or to another that is ``shown``.

    Fields keep their value on pages where the widget isn't shown. What a page chooses because the visitor didn't, or because
    the visitor's choice is of another log, is shown and never put into the field: it would change the address, and who then
    goes back in the browser's history would come to the same page.
    """
    key = f"w:{name}"
    set_widget(key, get(name) if shown is None else shown)
    return key


def set_widget(key: str, value: Any) -> None:
    """Set a widget that is about to be drawn, but only if it shows something else.

    An assignment is sent to the browser, where it would undo what the visitor does in the meantime: quick steps of a dial
    got lost. On another page it is another widget for Streamlit, whatever its key, and would begin there without a value.
    """
    pages, page = st.session_state.setdefault(DRAWN_ON, {}), _page()
    if key not in st.session_state or st.session_state[key] != value or pages.get(key) != page:
        st.session_state[key] = value
    pages[key] = page


def _page() -> str:
    context = get_script_run_ctx()
    return context.page_script_hash if context else ""


def bound(name: str, shown: Any = None) -> dict[str, Any]:
    """Keyword arguments that bind a widget to a field; see :func:`widget_key`."""
    return {"key": widget_key(name, shown), "on_change": take, "args": (name,)}


def bound_switch(name: str) -> dict[str, Any]:
    """Keyword arguments that bind a switch to a field that is "1" or empty."""
    key = f"w:{name}"
    set_widget(key, bool(get(name)))
    return {"key": key, "on_change": lambda: put(name, "1" if st.session_state[key] else "")}


def take(name: str) -> None:
    """Callback of a bound widget: its value becomes the field's. A cleared choice keeps the old one."""
    value = st.session_state[f"w:{name}"]
    if value is not None:
        put(name, value)


def load_link() -> None:
    """Read the address bar when a session begins, and when its visitor goes back or forward in the browser's history.

    What can't be read is said and replaced by its default.
    """
    first, opened = not st.session_state.get(LOADED), st.session_state.get(LAST_PATH) != _path()
    st.session_state[LAST_PATH] = _path()
    if not first and not _went_through_history():
        if opened and not st.query_params and _choices():
            _bare()[_path()] = ON_THE_WAY
        return
    if not first and not st.query_params and _bare().get(_path()) != NO_CHOICES:
        return
    st.session_state[LOADED] = True
    version = st.query_params.get("v", LINK_VERSION)
    if version != LINK_VERSION and first:
        warn(f"This link was made with version {version} of the app; defaults may have changed since.")
    given = st.query_params.to_dict()
    for name in () if first else FIELDS:
        if name not in given and _is_in_address(str(get(name))):
            put(name, FIELDS[name].default)
    for name, text in given.items():
        if name not in FIELDS:
            continue
        try:
            put(name, FIELDS[name].parse(text))
        except ValueError as error:
            warn(f"The link sets {name} to {text!r}, which can't be read ({error}); the default is used.")


def _went_through_history() -> bool:
    """Whether this run shows an address that the visitor came back to; only the context of the run knows."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def _bare() -> dict[str, str]:
    meanings: dict[str, str] = st.session_state.setdefault(BARE, {})
    return meanings


def _path() -> str:
    return urlsplit(str(st.context.url)).path


def _is_in_address(text: str) -> bool:
    """A very long text (a query, say) would make an address that no server takes; it stays in the session only."""
    return len(text) <= MAX_IN_ADDRESS


def warn(sentence: str) -> None:
    """Keep a sentence for the top of the page."""
    st.session_state.setdefault(WARNINGS, []).append(sentence)


def take_warnings() -> list[str]:
    """The sentences kept so far; each is shown once."""
    warnings = st.session_state.get(WARNINGS, [])
    st.session_state[WARNINGS] = []
    return list(dict.fromkeys(warnings))


def forget_place() -> None:
    """Forget cell, episode and window: they belong to the log that was looked at."""
    for name in PLACES:
        put(name, FIELDS[name].default)


def set_aside(data: str) -> None:
    """Keep what the link says of a log that isn't loaded until it is: on another log it would mean something else."""
    st.session_state[AWAITED] = (data, {name: get(name) for name in OF_A_LOG})
    for name in OF_A_LOG:
        put(name, FIELDS[name].default)


def awaited() -> str:
    """The log that a link waits for; "" for none."""
    return st.session_state.get(AWAITED, ("", {}))[0]


def take_up(data: str) -> None:
    """The log that a link waited for is there: its choices count again."""
    awaited, choices = st.session_state.get(AWAITED, ("", {}))
    if awaited == data:
        del st.session_state[AWAITED]
        for name, value in choices.items():
            put(name, value)


def write_link() -> None:
    """Write every field that differs from its default to the address bar."""
    given, choices = st.query_params.to_dict(), _choices()
    if not given and not choices:
        _bare()[_path()] = NO_CHOICES
    if given != choices:
        st.query_params.from_dict(choices)


def _choices() -> dict[str, str]:
    """The text of every field that differs from its default, as far as it fits into an address."""
    values = {name: get(name) for name in FIELDS}
    texts = {name: str(value) for name, value in values.items() if value != FIELDS[name].default}
    return {name: text for name, text in texts.items() if _is_in_address(text)}


def full_link() -> str:
    """A link that names every field and the version."""
    params = {"v": LINK_VERSION, **{name: str(get(name)) for name in FIELDS}}
    return f"{str(st.context.url).split('?')[0]}?{urlencode(params)}"


def uploads() -> dict[str, Any]:
    """Logs this visitor uploaded, by fingerprint."""
    return st.session_state.setdefault(UPLOADS, {})
