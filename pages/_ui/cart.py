"""Trainings of the cart on a line: shared between visitors, moved on in short slices while somebody looks at them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import streamlit as st

from offrl_core.continuous import (
    DEPLOYMENTS,
    LEARNERS,
    ExactValues,
    Habit,
    PointLog,
    PointModel,
    PointWorld,
    Sliced,
    collect,
    evaluate,
    solve,
    start_point_training,
)
from offrl_core.params import params_of

from . import layout, state

LOOK_EVERY = 0.6  # seconds
SLICE_SECONDS = 0.1  # of each learner per look: half of a core at most, while one visitor looks
DIALS = {
    "td3_bc": ("value_weight", "value_weight"),
    "cql_continuous": ("conservative_weight", "caution"),
}  # parameter, field


NARROWEST = 0.1  # covered range that a visitor can choose
STATES = np.linspace(-1, 1, 201)
MARGIN = 0.02  # an action counts as outside the covered range from so far on


class Judged(NamedTuple):
    """A learner as it stands, and what its policy is worth under each deployment."""

    model: PointModel
    truths: dict[str, ExactValues]

    @property
    def promise(self) -> float:
        """Mean learned value of what the policy does."""
        return float(self.model.q_values(STATES, self.model.policy(STATES)).mean())

    @property
    def outside(self) -> float:
        """Share of the states where the policy acts outside the covered range."""
        actions, low, high = self.model.policy(STATES), state.get("covered_low"), state.get("covered_high")
        return float(((actions < low - MARGIN) | (actions > high + MARGIN)).mean())


@st.cache_resource(show_spinner=False, max_entries=64, ttl="2h")
def log_of(deployment: str, low: float, high: float, n_episodes: int, seed: int) -> PointLog:
    """A log of the cart."""
    return collect(PointWorld(deployment), Habit(low=low, high=high), n_episodes=n_episodes, seed=seed)


@st.cache_resource(show_spinner=False, max_entries=2)
def optimum(deployment: str) -> ExactValues:
    """The best that can be done."""
    return solve(PointWorld(deployment))


def chosen_log() -> PointLog:
    """The log that the session's fields ask for."""
    names = "cart", "covered_low", "covered_high", "cart_episodes", "seed"
    return log_of(*(state.get(name) for name in names))


def chosen_runs(log: PointLog) -> dict[str, Sliced]:
    """The training of each learner on a log."""
    parameters = {learner: {parameter: state.get(field)} for learner, (parameter, field) in DIALS.items()}
    seed = state.get("seed")
    return {name: _run(log.fingerprint, name, seed, parameters.get(name, {}), log) for name in LEARNERS}


@st.cache_resource(show_spinner=False, max_entries=96, ttl="2h")
def _run(fingerprint: str, learner: str, seed: int, parameters: dict[str, float], _log: PointLog) -> Sliced:
    return Sliced(start_point_training(_log, learner, seed=seed, **parameters))


def judged(run: Sliced) -> Judged:
    """The model of a run as it stands now, with its exact values."""
    model = run.latest.model
    return Judged(model, {name: _worth(name, model.actor_parameters.tobytes(), model) for name in DEPLOYMENTS})


@st.cache_resource(show_spinner=False, max_entries=64, ttl="2h")
def _worth(deployment: str, actor: bytes, _model: PointModel) -> ExactValues:
    return evaluate(PointWorld(deployment), _model.policy)


def is_learning() -> bool:
    """Whether this visitor has the learners learn; else they rest, unless another visitor looks at them."""
    return bool(state.get("cart_learning") == "1")


def begun_runs(log: PointLog) -> dict[str, Sliced] | None:
    """The trainings on a log once somebody has asked for them, also those that were stopped; None before."""
    if not state.get("cart_learning"):
        return None
    runs = chosen_runs(log)
    return runs if is_learning() or any(run.seconds for run in runs.values()) else None


def render_start() -> None:
    """The button that has the learners learn: opening the page costs nobody a training."""
    st.button(
        "Learn",
        type="primary",
        icon=":material/play_arrow:",
        key="w:cart_learn",
        on_click=state.put,
        args=("cart_learning", "1"),
        help="Three learners, each from this log alone; some ten seconds of computing in all, a little at a time.",
    )


def render_dials() -> None:
    """What can be changed beside the covered range."""
    more = st.popover("More", icon=":material/tune:", key="w:cart_more", on_change="rerun")
    # Drawn before it is opened, fields would show their least values: the browser makes them only then.
    if not more.open:
        return
    with more:
        st.number_input("Episodes of five steps", 10, 5000, step=100, **state.bound("cart_episodes"))
        st.number_input("Seed", 0, 2**31, **state.bound("seed"), help="Of the log and of the learners.")
        for learner, (parameter, field) in DIALS.items():
            about = params_of(LEARNERS[learner].config_class)[parameter]
            low, high, step = float(about.low or 0), float(about.high or 0), float(about.step or 1)
            st.number_input(
                f"{LEARNERS[learner].short}: {about.caption}",
                low,
                high,
                step=step,
                **state.bound(field),
                help=about.tooltip,
            )


def render_range() -> None:
    """The dial of the log. A link with its two ends the wrong way round, or too close, gets the default back, and is told."""
    if state.get("covered_high") - state.get("covered_low") < NARROWEST - 1e-9:
        layout.warning(f"The covered range of this link is narrower than {NARROWEST:g}; the default is used.")
        for name in ("covered_low", "covered_high"):
            state.put(name, state.FIELDS[name].default)
    state.set_widget("w:covered", (state.get("covered_low"), state.get("covered_high")))
    st.slider(
        "**Strengths the log shows** (covered range of actions)",
        -1.0,
        1.0,
        step=0.05,
        key="w:covered",
        on_change=_take_range,
        width=340,
        help="The agent behind the log never acts outside this range. Turn it, and who learns begins anew. "
        + layout.tip("coverage"),
    )


def _take_range() -> None:
    """The slider's two ends become the covered range, unless they stand too close."""
    low, high = st.session_state["w:covered"]
    if high - low >= NARROWEST - 1e-9:
        state.put("covered_low", low)
        state.put("covered_high", high)


def render_progress(runs: dict[str, Sliced]) -> None:
    """How far the trainings are, and the button that stops them."""
    steps, total = (sum(getattr(run.latest, name) for run in runs.values()) for name in ("step", "total"))
    with st.container(horizontal=True, vertical_alignment="center"):
        if steps < total:
            if is_learning():
                st.button(
                    "Stop",
                    icon=":material/stop:",
                    key="w:cart_stop",
                    on_click=state.put,
                    args=("cart_learning", "stopped"),
                )
            else:
                st.button(
                    "Go on",
                    icon=":material/play_arrow:",
                    key="w:cart_go_on",
                    on_click=state.put,
                    args=("cart_learning", "1"),
                )
        seconds = sum(run.seconds for run in runs.values())
        said = "done" if steps == total else "learning" if is_learning() else "stopped"
        st.progress(steps / total, text=f"{said}: {steps:,} of {total:,} gradient steps, {seconds:.1f} s of computing")


def render_learners() -> None:
    """Equation, source and differences of each learner."""
    with st.expander("The three learners, in equations", icon=":material/functions:"):
        for spec in LEARNERS.values():
            st.markdown(f"**{spec.title}.** {spec.summary}")
            st.latex(spec.equation)
            differs = "; ".join(f"{i}. {text}" for i, text in enumerate(spec.differs, 1))
            st.caption(f"Source: {spec.source}. Differs: {differs}.")
