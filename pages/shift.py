"""Where a policy goes and where the log has been: visits, distance step by step, the flow of actions, and what slips cost."""

import numpy as np
import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.log_quality import concentrability
from offrl_core.evaluation.shift import Shift, Visits, logged_visits
from offrl_core.figures.shift import make_compounding, make_distance, make_flow, make_visit_map
from offrl_core.interfaces import TrainedModel
from pages._ui import following, layout, model_choice, navigation, state, work

ROWS = 20
LONG_NAME = 12  # characters of an action; longer ones need the width of the page for a flow


def render_controls(now: work.Current) -> tuple[str, str]:
    """Learner, support and deployment."""
    deployment = work.deployment(now.world)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        algorithm = model_choice.choose_learner("Policy of")
        layout.min_count_input()
        if now.world:
            layout.deployment_input(now.world, deployment)
    return algorithm, deployment


def render_maps(shift: Shift, n_logged: int) -> None:
    """Visits of the log and of the policy, side by side, largest differences on top; ``n_logged`` states are of the log."""
    st.markdown("##### Visits per episode", help=layout.tip("shift"))
    apart = np.abs(shift.policy.by_pair - shift.log.by_pair).sum(axis=1)
    order = np.argsort(-apart, kind="stable")
    shown = order[layout.pager("first", len(order), ROWS, "States")]
    more = f" and {len(order) - n_logged:,} that only the policy comes to" if len(order) > n_logged else ""
    actions = np.flatnonzero(shift.valid[shown].any(axis=0))
    cut = np.ix_(shown, actions)
    top = max(float(shift.policy.by_pair.max()), float(shift.log.by_pair.max()))
    st.caption(
        f"{n_logged:,} states of the log{more}. Largest differences first. Orange hatching: the log doesn't support the pair. "
        "Blank: never done, or not valid."
    )
    sides = {"The log": shift.log, "The policy": shift.policy}
    for column, (title, side) in zip(st.columns(2), sides.items(), strict=True):
        with column:
            figure = layout.drawn(
                make_visit_map,
                [shift.states[s] for s in shown],
                [shift.actions[a] for a in actions],
                side.by_pair[cut],
                shift.valid[cut],
                shift.supported[cut],
                title=title,
                top=top,
            )
            layout.render_figure(figure, key=f"visits_{title}", alt=f"Visits per episode: {title}, {len(shown)} states")


def render_steps(shift: Shift) -> None:
    """How far apart at each step, and how much evidence the weighted side has."""
    st.markdown("##### How far apart, step by step", help=layout.tip("total_variation"))
    figure = layout.drawn(make_distance, shift.total_variation)
    layout.render_figure(figure, key="distance", alt=shift.sentence)
    if shift.effective_sample_size is not None:
        least = float(shift.effective_sample_size.min())
        st.caption(
            f"The policy's side is weighted from logged episodes; at its thinnest step they are worth {least:,.0f} of its own."
        )


def render_flow(sides: dict[str, Visits]) -> None:
    """Which action follows which, for the log and, where it is known, for the policy."""
    st.markdown("##### The flow of actions", help=layout.tip("flow"))
    long_names = any(len(link.target) > LONG_NAME for side in sides.values() for link in side.flow)
    places = [st.container() for _ in sides] if long_names else st.columns(len(sides))
    for place, (title, side) in zip(places, sides.items(), strict=True):
        with place:
            st.caption(f"{title}. ✕: not supported by the log")
            figure = layout.drawn(make_flow, side.flow)
            layout.render_figure(figure, key=f"flow_{title}", alt=f"Flow of actions: {title}")


def render_refused(dataset: Dataset, why: orl.OffRLError) -> None:
    """Why the policy's side can't be told; the log's own flow all the same."""
    layout.warning(why)
    try:
        own = logged_visits(dataset, dataset.support_mask(state.get("min_count")))
    except orl.OffRLError:
        return
    render_flow({"The log": own})


def render_worst_pair(dataset: Dataset, model: TrainedModel) -> None:
    """How few rows the policy hangs on, at worst."""
    try:
        worst = concentrability(dataset, model.policy)
    except orl.OffRLError as error:
        st.caption(layout.plain(str(error), 400))
        return
    st.caption(layout.plain(worst.sentence, 400), help=layout.tip("concentrability"))


def render_slips(dataset: Dataset, model: TrainedModel, deployment: str) -> None:
    """What a copy of the policy loses that slips now and then."""
    st.markdown("##### What small slips add up to", help=layout.tip("compounding"))
    if dataset.log.source is None:
        st.caption(
            "Nobody knows where a slip would lead, because no row shows it; the worlds on the page Data can be asked."
        )
        return
    st.slider("Slips in each step with probability ε", 0.0, 0.5, step=0.01, **state.bound("slip"), width=420)
    found = following.slipped(dataset, model, state.get("slip"), deployment)
    layout.render_figure(layout.drawn(make_compounding, found), key="slips", alt=found.sentence)
    st.caption(found.sentence)


def render_page(now: work.Current) -> None:
    """Controls, the sentence, maps, steps, flow, slips."""
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
    try:
        shift = following.shifted(dataset, model, deployment, state.get("min_count"))
    except orl.OffRLError as error:
        render_refused(dataset, error)
        return
    st.markdown(f"**{layout.plain(shift.sentence, 400)}**")
    render_worst_pair(dataset, model)
    if shift.left_out >= 5e-4:
        st.caption(
            f":material/warning: {shift.left_out:.0%} of the policy's episodes go on after {len(shift.policy.going)} steps; what "
            "they do then is left out."
        )
    render_maps(shift, dataset.n_states)
    left, right = st.columns(2, gap="large")
    with left:
        render_steps(shift)
    with right:
        render_slips(dataset, model, deployment)
    render_flow({"The log": shift.log, "The policy": shift.policy})


navigation.require_app()
st.title("Shift")
st.markdown(
    "**Where a policy goes, and where the log has been.** What it learned is backed only as far as the two go together."
)
now = work.current()
if now.dataset is not None:
    render_page(now)
