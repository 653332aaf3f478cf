"""What values rest on: the ledger of a policy, of one cell, and as a map; and when the policy leaves the support."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from offrl_core.arrays import IntArray
from offrl_core.dataset import Dataset
from offrl_core.errors import OffRLError
from offrl_core.evaluation.diagnostics import value_spread
from offrl_core.evaluation.ledger import Leaving, Ledger, leaving_steps, value_ledger
from offrl_core.figures.ledger import make_ledger_bars, make_ledger_map
from offrl_core.interfaces import TrainedModel

from . import beside, layout, state, work

STARTS_SHOWN = 4
VIEWS = {"values": "the values", "ledger": "what they rest on"}


def opened(dataset: Dataset, model: TrainedModel, min_count: int) -> Ledger:
    """:func:`offrl_core.value_ledger`, once."""
    key = f"{work.policy_key(dataset, model)} {model.algorithm} {model.config!r} {model.seed}"
    return _opened(key, min_count, dataset, model)


@st.cache_resource(show_spinner=False, max_entries=256, ttl="2h")
def _opened(key: str, min_count: int, _dataset: Dataset, _model: TrainedModel) -> Ledger:
    return value_ledger(_dataset, _model, min_count)


def leaving(dataset: Dataset, model: TrainedModel, deployment: str, min_count: int) -> Leaving:
    """:func:`offrl_core.leaving_steps`, once."""
    return _leaving(work.policy_key(dataset, model), deployment, min_count, dataset, model)


@st.cache_resource(show_spinner=False, max_entries=256, ttl="2h")
def _leaving(key: str, deployment: str, min_count: int, _dataset: Dataset, _model: TrainedModel) -> Leaving:
    return leaving_steps(_dataset, _model, deployment, min_count)


def render_total(dataset: Dataset, model: TrainedModel, deployment: str, min_count: int) -> None:
    """What the value of the policy rests on, in a sentence; the bar waits behind a click."""
    if model.weights is not None:
        _render_spread(dataset, model, min_count)
        return
    try:
        ledger = opened(dataset, model, min_count)
    except OffRLError as error:
        st.caption(f":material/account_balance: {layout.plain(str(error), 400)}")
        return
    gone = leaving(dataset, model, deployment, min_count)
    sentence = f":material/account_balance: **{layout.plain(ledger.sentence, 500)}** {gone.sentence}"
    with st.expander(sentence):
        st.markdown("What the policy promises at the start is made of", help=layout.tip("ledger"))
        starts = _by_start(dataset, ledger)
        if starts:
            st.caption(
                "Shares are taken start by start, without signs: in the first bar losses and gains have cancelled."
            )
        figure = layout.drawn(make_ledger_bars, {"its value": ledger.totals, **starts})
        layout.render_figure(figure, key="ledger_total", alt=f"Parts of the value: {_in_words(ledger.totals)}")
        _render_leaving(gone)


def _by_start(dataset: Dataset, ledger: Ledger) -> dict[str, dict[str, float]]:
    """The same at the commonest starts: a share is taken there, before amounts of opposite signs cancel in the mean."""
    order = np.argsort(-ledger.starts, kind="stable")[:STARTS_SHOWN]
    starts = [s for s in order if ledger.starts[s] > 0]
    if len(starts) < 2:
        return {}
    return {
        f"{ledger.starts[s]:.0%} at {dataset.states[s]}": {k: float(v[s]) for k, v in ledger.v_parts.items()}
        for s in starts
    }


def _render_spread(dataset: Dataset, model: TrainedModel, min_count: int) -> None:
    """What stands in for a ledger of a network: how far its seeds disagree, where the log speaks and where it doesn't."""
    models = beside.finished_models(dataset, model.algorithm)
    try:
        spread = value_spread(models)
    except OffRLError:
        st.caption(
            ":material/account_balance: A network's values can't be opened like a table's. Train several seeds: how far they "
            "disagree about a value says how much of it is made up."
        )
        return
    supported = dataset.support_mask(min_count)
    inside, outside = spread[supported], spread[~supported & dataset.valid_mask]
    told = [
        f"by {np.nanmean(part):.3f} on pairs the log {words}"
        for part, words in ((inside, "supports"), (outside, "doesn't support"))
        if part.size and not np.isnan(part).all()
    ]
    st.markdown(
        f":material/account_balance: **The {len(models)} seeds disagree {' and '.join(told)}** (mean standard deviation of Q).",
        help=layout.tip("spread"),
    )


def _render_leaving(gone: Leaving) -> None:
    if gone.steps.ever < 5e-4:
        return
    st.markdown("First step outside the support", help=layout.tip("leaving"))
    shown = gone.steps.by_step[:12]
    cells = {f"t = {t}": f"{p:.1%}" for t, p in enumerate(shown) if p >= 5e-4}
    later = gone.steps.ever - shown.sum()
    if later >= 5e-4:
        cells["later"] = f"{later:.1%}"
    cells["never"] = f"{1 - gone.steps.ever:.1%}"
    st.markdown(" · ".join(f"{name}: **{share}**" for name, share in cells.items()))


def render_cell(dataset: Dataset, model: TrainedModel, row: int, column: int, min_count: int) -> None:
    """The bar of one value."""
    assert model.q_values is not None
    if np.isnan(model.q_values[row, column]):
        return
    try:
        ledger = opened(dataset, model, min_count)
    except OffRLError:
        return  # said above the map
    parts = {name: float(values[row, column]) for name, values in ledger.q_parts.items()}
    share = ledger.guess_shares[row, column]
    st.markdown(f"**What it rests on, to the end of the episode**: {share:.0%} guessed", help=layout.tip("ledger"))
    figure = layout.drawn(make_ledger_bars, {"Q": parts})
    layout.render_figure(figure, key="ledger_cell", alt=f"Parts of this value: {_in_words(parts)}")


def render_choice() -> bool:
    """Values or what they rest on; true for the latter."""
    st.segmented_control(
        "Show",
        list(VIEWS),
        format_func=VIEWS.get,
        **state.bound("q_view"),
        help=layout.tip("ledger"),
    )
    return bool(state.get("q_view") == "ledger")


def render_map(
    dataset: Dataset, model: TrainedModel, shown: IntArray, actions: IntArray, min_count: int
) -> list[dict[str, Any]]:
    """Share of each value that rests on unsupported pairs; returns the points that were clicked."""
    try:
        ledger = opened(dataset, model, min_count)
    except OffRLError as error:
        layout.error(error)
        return []
    cut = np.ix_(shown, actions)
    st.caption(
        "How much of each value rests on pairs outside the support: of what it says about itself, and of all that follows. "
        "Blue: evidence. Orange: guesses. **Click a cell to open its account.**"
    )
    figure = layout.drawn(
        make_ledger_map,
        [dataset.states[s] for s in shown],
        [dataset.actions[a] for a in actions],
        ledger.guess_shares[cut],
        dataset.visitation_counts[cut],
        dataset.valid_mask[cut],
        ledger.supported[cut],
    )
    return layout.render_figure(figure, key="ledger_map", alt=f"What {len(shown)} states' values rest on", select=True)


def _in_words(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {amount:+z.3f}" for name, amount in parts.items())
