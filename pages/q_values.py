"""Learned Q by state and action, the support drawn on it, the truth beside it, and the evidence behind every cell."""

import numpy as np
import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.arrays import BoolArray, FloatArray
from offrl_core.dataset import Dataset
from offrl_core.evaluation.diagnostics import sort_order, state_table
from offrl_core.figures.heatmaps import make_q_maps
from offrl_core.interfaces import TrainedModel
from pages._ui import (
    bands,
    deployed,
    evidence,
    grids,
    guess,
    layout,
    ledger,
    model_choice,
    navigation,
    state,
    sweeps,
    work,
)

ROWS = 30
MANY_STATES = 300  # above that, bands give the whole picture and the window shows one part of it
SORTS = {
    "choice": "states with a choice first",
    "state": "by name",
    "visits": "most visited first",
    "overestimation": "worst overestimation first",
    "unsupported": "unsupported choices first",
}


def render_controls(now: work.Current) -> tuple[str, str]:
    """Learner and deployment."""
    deployment = work.deployment(now.world)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        algorithm = model_choice.choose_learner("Learner")
        layout.min_count_input()
        guess.render_guess(algorithm)
        if now.world:
            layout.deployment_input(now.world, deployment)
    return algorithm, deployment


def render_no_values(now: work.Current, known: bool) -> None:
    """What stands here of a learner that learns no values."""
    if known:
        st.caption(
            ":material/info: This learner copies the log and learns no values. What stands here is **exact**: what each "
            "action is really worth where it is deployed, if its policy goes on afterwards."
        )
        return
    why = "its policy looks back at the episode" if now.world else "nobody knows the truth behind this log"
    st.info(
        f"This learner learns no values, and {why}, so no exact ones can stand here either. See Coverage for the counts."
    )


def ordered_states(dataset: Dataset, table: pd.DataFrame) -> np.ndarray:
    """Row numbers of the states to show, filtered and sorted as chosen."""
    tasks = dataset.tasks
    st.selectbox(
        "Order",
        list(SORTS),
        format_func=SORTS.get,
        **state.bound("sort"),
        width=240,
    )
    if 1 < len(tasks) <= 500:
        st.selectbox(
            "Task",
            ["", *tasks],
            format_func=lambda task: task[:60] or "all tasks",
            **state.bound("task"),
            width=240,
        )
    st.checkbox(
        "Only unsupported choices",
        **state.bound_switch("only"),
        help="States where the policy picks an action the log doesn't support.",
    )
    keep = np.ones(len(table), dtype=bool)
    if state.get("task"):
        keep &= table["state"].isin(dataset.states_of_task(state.get("task"))).to_numpy()
    if state.get("only"):
        keep &= table["unsupported_choice"].to_numpy()
    rows = np.flatnonzero(keep)
    order = sort_order(state.get("sort"), table, dataset.valid_mask)
    return order[np.isin(order, rows)]


def render_page(now: work.Current) -> None:
    """Controls, maps, evidence."""
    dataset = now.dataset
    algorithm, deployment = render_controls(now)
    if not now.world:
        layout.truth_unknown(now)
    try:
        model = model_choice.trained_model(dataset, algorithm)
    except orl.OffRLError as error:
        layout.error(error)
        return
    if model is None:
        return
    for note in dataset.notes:
        st.caption(f":material/info: {note}")
    supported = dataset.support_mask(state.get("min_count"))
    true_q = work.exact_q(dataset, model, deployment)
    if model.q_values is None:
        render_no_values(now, true_q is not None)
    else:
        guess.render_why_none(algorithm)
        evidence.render_promise(dataset, model)
        ledger.render_total(dataset, model, deployment, state.get("min_count"))
    deployed.render_changed_values(now, model, true_q)
    if model.q_values is not None or true_q is not None:
        render_values(now, model, true_q, supported)


def render_values(now: work.Current, model: TrainedModel, true_q: FloatArray | None, supported: BoolArray) -> None:
    """As a grid or as a table, and the evidence behind the chosen cell."""
    dataset = now.dataset
    if grids.choose(now.world):
        points = grids.render_grid(now.world, dataset, model, sweeps.frame_at_sweep(model), true_q, supported)
        evidence.take_click(points)
        evidence.render_evidence(dataset, model, true_q, state.get("min_count"))
        return
    table = state_table(dataset, model, true_q, state.get("min_count"))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        opened = model.q_values is not None and ledger.render_choice()
        rows = ordered_states(dataset, table)
    if not len(rows):
        st.info("No state meets this filter.")
        return
    place = st.container(horizontal=True, vertical_alignment="bottom")
    with place:
        q_values = model.q_values if opened else sweeps.frame_at_sweep(model)
    if len(rows) > MANY_STATES and q_values is not None:
        bands.render_bands(dataset, rows, q_values, supported)
    with place:  # after the bands: a click on them moves the window
        shown = rows[layout.pager("first", len(rows), ROWS, "States")]
    actions = np.flatnonzero(dataset.valid_mask[shown].any(axis=0))
    cut = np.ix_(shown, actions)
    if opened:
        points = ledger.render_map(dataset, model, shown, actions, state.get("min_count"))
    else:
        figure = layout.drawn(
            make_q_maps,
            [dataset.states[s] for s in shown],
            [dataset.actions[a] for a in actions],
            None if q_values is None else q_values[cut],
            None if true_q is None else true_q[cut],
            dataset.visitation_counts[cut],
            dataset.valid_mask[cut],
            supported[cut],
            model.policy.probabilities[cut].argmax(axis=1),
        )
        st.caption(
            "Orange hatching: unsupported, the log shows the pair too rarely or never. Blank: not valid. "
            "▶ marks the action the policy picks. **Click a cell to open its evidence.**"
        )
        points = layout.render_figure(
            figure, key="q_maps", alt=f"Q of {len(shown)} states and {len(actions)} actions", select=True
        )
    evidence.take_click(points)
    evidence.render_evidence(dataset, model, true_q, state.get("min_count"))


navigation.require_app()
st.title("Q-values")
st.markdown("What a learner believes each action is worth, where the log speaks for it, and what is really so.")
now = work.current()
if now.dataset is not None:
    render_page(now)
