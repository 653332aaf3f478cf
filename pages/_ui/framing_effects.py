"""What a framing does, computed once: its numbers, mixed outcomes, splits, and values against another framing."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.errors import OffRLError
from offrl_core.evaluation.aliasing import (
    FramingNumbers,
    MixedOutcomes,
    Split,
    ValueChange,
    framing_numbers,
    left_open_in_words,
    mixed_outcomes,
    suggest_splits,
    value_change,
)
from offrl_core.evaluation.diagnostics import promised_return
from offrl_core.framing_choices import FramingChoices
from offrl_core.interfaces import TrainedModel

from . import layout, state, work

LEARNER = "fqi_support"
STATES = (
    "Different states in the steps that the edits leave. Coverage lists those before the edits as well, Shift also those that "
    "only a policy comes to."
)


def mixed(dataset: Dataset) -> MixedOutcomes:
    """:func:`offrl_core.evaluation.aliasing.mixed_outcomes`, once."""
    return _mixed(work.dataset_key(dataset), dataset)


@st.cache_resource(show_spinner="Comparing outcomes…", max_entries=64, ttl="2h")
def _mixed(key: str, _dataset: Dataset) -> MixedOutcomes:
    return mixed_outcomes(_dataset)


def splits(dataset: Dataset, choices: FramingChoices) -> list[Split]:
    """:func:`offrl_core.evaluation.aliasing.suggest_splits`, once."""
    return _splits(work.dataset_key(dataset), choices.link, dataset, choices)


@st.cache_resource(show_spinner="Trying what would tell them apart…", max_entries=64, ttl="2h")
def _splits(key: str, link: str, _dataset: Dataset, _choices: FramingChoices) -> list[Split]:
    return suggest_splits(_dataset, _choices)


def learned(dataset: Dataset) -> TrainedModel | None:
    """The careful learner with its own defaults; None where the log can't teach it."""
    try:
        return work.trained(dataset, LEARNER)
    except OffRLError:
        return None


def changed(before: Dataset, after: Dataset) -> ValueChange | None:
    """:func:`offrl_core.evaluation.aliasing.value_change` of the careful learner, once."""
    return _changed(work.dataset_key(before), work.dataset_key(after), before, after)


@st.cache_resource(show_spinner=False, max_entries=64, ttl="2h")
def _changed(
    before: tuple[str, str, str], after: tuple[str, str, str], _before: Dataset, _after: Dataset
) -> ValueChange | None:
    models = learned(_before), learned(_after)
    return None if None in models else value_change((_before, models[0]), (_after, models[1]))


# -- numbers before and after ------------------------------------------------------------------------------------


def render_numbers(dataset: Dataset, before: Dataset | None) -> None:
    """The numbers of the framing on screen, each with its difference to the framing before."""
    min_count = state.get("min_count")
    numbers, outcomes = framing_numbers(dataset, min_count), mixed(dataset)
    old_numbers = framing_numbers(before, min_count) if before else None
    old_outcomes = mixed(before) if before else None

    def of_numbers(value: Callable[[FramingNumbers], float]) -> tuple[float, float | None]:
        return value(numbers), value(old_numbers) if old_numbers else None

    def of_outcomes(value: Callable[[MixedOutcomes], float | None]) -> tuple[float | None, float | None]:
        return value(outcomes), value(old_outcomes) if old_outcomes else None

    with st.container(horizontal=True):
        _metric("States", *of_numbers(lambda n: n.n_states), "count", STATES)
        _metric("Actions", *of_numbers(lambda n: n.n_actions), "count")
        _metric("Density", *of_numbers(lambda n: n.density), "share", layout.tip("density"))
        _metric("Pairs supported", *of_numbers(lambda n: n.n_supported), "count", layout.tip("support"))
        _metric(
            "Pairs seen once",
            *of_numbers(lambda n: n.once),
            "share",
            "Share of the pairs seen that one row alone speaks for.",
        )
        _metric("Visits on mixed pairs", *of_outcomes(mixed_share), "share", layout.tip("aliasing"))
        _metric("Outcome left open", *of_outcomes(lambda m: m.left_open), "left open", layout.tip("left_open"))
        _render_values(dataset, before)


def mixed_share(outcomes: MixedOutcomes) -> float | None:
    """Share of the visits with a known outcome that lie on mixed pairs."""
    return outcomes.mixed_visits / outcomes.n_visits if outcomes.n_visits else None


def _render_values(dataset: Dataset, before: Dataset | None) -> None:
    model = learned(dataset)
    promised = promised_return(dataset, model) if model else None
    change = changed(before, dataset) if before else None
    help_text = f"Learned value at the start of episodes ({orl.ALGORITHMS[LEARNER].title}), discounted."
    _metric("Promised return", promised, change.promised_before if change else None, "value", help_text)
    if change:
        help_text = (
            f"Mean over {change.n_episodes:,} episodes of |V after − V before| where they begin: how far the two framings "
            "disagree about single episodes, even where they agree on average."
        )
        st.metric("Change of V at starts", f"{change.mean_change:.4g}", help=help_text, width="content", border=True)


WRITTEN: dict[str, Callable[[float], str]] = {
    "count": "{:,}".format,
    "share": "{:.1%}".format,
    "left open": left_open_in_words,
    "value": "{:+z.4g}".format,
}
DIFFERENCE = {"count": "{:+,}", "share": "{:+z.1f} points", "left open": "{:+z.1f} points", "value": "{:+z.4g}"}


def _metric(label: str, value: float | None, before: float | None, kind: str, help_text: str | None = None) -> None:
    in_words = WRITTEN[kind]
    delta = None
    if value is not None and before is not None and in_words(value) != in_words(before):
        if kind == "left open":  # all is all
            value, before = min(value, 1.0), min(before, 1.0)
        delta = DIFFERENCE[kind].format((value - before) * (1 if kind in ("count", "value") else 100))
        delta = delta if any(digit in "123456789" for digit in delta) else None  # not "-0.0 points"
    st.metric(
        label,
        "unknown" if value is None else in_words(value),
        delta,
        delta_color="off",
        help=help_text,
        width="content",
        border=True,
    )
