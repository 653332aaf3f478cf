"""What is known of a log before anything is trained, computed once: ceiling, measures, forecast, and what thinning does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.ceiling import Ceiling, CeilingCurve, best_path
from offrl_core.evaluation.forecast import FAMILIES, Forecast, score_forecast
from offrl_core.evaluation.log_quality import FEW_ROWS, LogQuality
from offrl_core.interfaces import TrainedModel
from offrl_core.wording import counted

from . import layout, model_choice, state, work


def measured(dataset: Dataset) -> LogQuality:
    """:func:`offrl_core.log_quality`, once."""
    return _measured(work.dataset_key(dataset), dataset)


@st.cache_resource(show_spinner="Measuring the log…", max_entries=64, ttl="2h")
def _measured(key: str, _dataset: Dataset) -> LogQuality:
    return orl.log_quality(_dataset)


def foretold(dataset: Dataset, min_count: int, default_value: float) -> Forecast:
    """:func:`offrl_core.forecast`, once."""
    return _foretold(work.dataset_key(dataset), min_count, default_value, dataset)


@st.cache_resource(show_spinner="Looking ahead…", max_entries=256, ttl="2h")
def _foretold(key: str, min_count: int, default_value: float, _dataset: Dataset) -> Forecast:
    return orl.forecast(_dataset, min_count, default_value)


def thinned(dataset: Dataset, action: str, how: str, min_count: int, deployment: str) -> CeilingCurve:
    """:func:`offrl_core.ceiling_curve`, once."""
    return _thinned(work.dataset_key(dataset), action, how, min_count, deployment, dataset)


@st.cache_resource(show_spinner="Thinning the log out…", max_entries=128, ttl="2h")
def _thinned(key: str, action: str, how: str, min_count: int, deployment: str, _dataset: Dataset) -> CeilingCurve:
    return orl.ceiling_curve(_dataset, action, how=how, min_count=min_count, deployment=deployment)


def render_forecast(made: Forecast) -> None:
    """The forecast with its reasons and doubts."""
    st.markdown(f":material/online_prediction: **{layout.plain(made.headline, 300)}**", help=layout.tip("forecast"))
    for reason in made.reasons:
        st.markdown(f"- {layout.plain(reason, 400)}")
    for doubt in made.doubts:
        st.markdown(f"- :material/help: {layout.plain(doubt, 400)}")


def render_thinness(dataset: Dataset, found: Ceiling) -> None:
    """A best path that hangs on a handful of rows is a hope; it says so right below the forecast."""
    starts = np.argsort(-found.starts)
    start = next((s for s in starts if found.starts[s] > 0 and found.supported[s].any()), None)
    if start is None:
        return
    thinnest = best_path(dataset, found, dataset.states[start]).thinnest
    if thinnest.n_rows < FEW_ROWS:
        st.warning(
            f"Read it with care: the best path hangs on {counted(thinnest.n_rows, 'row')} "
            f"({layout.plain(thinnest.action, 40)} in {layout.plain(thinnest.state, 60)}). Raise the number of rows from which "
            "on a pair counts as supported, and look again.",
            icon=":material/warning:",
        )


def render_score(dataset: Dataset, made: Forecast, deployment: str) -> None:
    """Train the chosen learners, and hold the forecast against what they are worth."""
    shown = st.toggle(
        "Score it",
        key="w:score_forecast",
        help="Trains the learners chosen on the page Train and holds the forecast against what they are worth: exactly in "
        "worlds, by weighted importance sampling elsewhere.",
    )
    if not shown:
        return
    values, refused = _values(dataset, deployment)
    try:
        score = score_forecast(made, values)
    except orl.OffRLError as error:
        st.info(layout.plain(str(error), 400), icon=":material/help:")
    else:
        icon = ":material/check_circle:" if score.right else ":material/cancel:"
        winners = ", ".join(FAMILIES[family] for family in score.winners)
        st.markdown(f"{icon} The forecast was **{'right' if score.right else 'wrong'}**. Best here: {winners}.")
        for family, (learner, value) in score.best_of.items():
            st.markdown(f"- {FAMILIES[family].capitalize()}: **{value:+z.3f}** ({orl.ALGORITHMS[learner].short})")
    for sentence in refused:
        st.caption(f":material/block: {layout.plain(sentence, 500)}")


def _values(dataset: Dataset, deployment: str) -> tuple[Mapping[str, float], list[str]]:
    """Learner -> worth, and why some have none."""
    values: dict[str, float] = {}
    refused: dict[str, list[str]] = {}
    for name in dict.fromkeys(state.get("learners").split(",")):
        if name not in orl.ALGORITHMS:
            continue
        short = orl.ALGORITHMS[name].short
        try:
            model = next(iter(model_choice.trained_models(dataset, name)), None)
        except orl.OffRLError as error:
            refused.setdefault(str(error), []).append(short)
            continue
        if model is None:
            continue
        value, why = _worth(dataset, model, deployment)
        if value is None:
            refused.setdefault(why, []).append(short)
        else:
            values[name] = value
    return values, [f"No value for {', '.join(names)}: {why}" for why, names in refused.items()]


def _worth(dataset: Dataset, model: TrainedModel, deployment: str) -> tuple[float | None, str]:
    truth = work.truth(dataset, model, deployment)
    if truth is not None:
        return truth.mean_return, ""
    guess = work.estimated(dataset, model)
    return guess.value, guess.refusal
