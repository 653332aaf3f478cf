"""The story on one screen: take mul out of the log, break it once deployed, turn the guess; each answers at once."""

from typing import Any

import numpy as np
import streamlit as st

import offrl_core as orl
from offrl_core.coverage_edits import DropAction, edits_to_link
from offrl_core.evaluation.ceiling import SAID
from offrl_core.evaluation.exact import Truth
from offrl_core.figures.overview import make_choice, make_success_by_task
from offrl_core.story import Scene, about_bars, about_small_bars, tell
from offrl_core.worlds import LOGGED_IN, WORLDS
from pages._ui import layout, navigation, parameters, state, work

NO_MUL = DropAction("mul", how="recollect")
CHOICE = "mul: x, y known"
LEARNERS = ("bc", "fqi", "fqi_support", "cql")
SPEC = WORLDS["calculator"]


def mul_is_out() -> bool:
    """Whether the log on screen is one without mul."""
    return state.get("data") == "calculator_without_mul" or NO_MUL in work.current_edits()


def switch_mul() -> None:
    """Take mul out of the bundled log, or put it back: the same edit as on the Coverage page."""
    others = [edit for edit in work.current_edits() if edit != NO_MUL]
    state.put("data", "calculator")
    state.put("edits", edits_to_link([NO_MUL, *others] if st.session_state["w:mul_out"] else others))


def render_controls() -> None:
    """Two switches and one dial."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large", key="story_controls"):
        state.set_widget("w:mul_out", mul_is_out())
        st.toggle(
            "**Take `mul` out of the log**",
            key="w:mul_out",
            on_change=switch_mul,
            help="The log is collected again by an agent that never calls mul. Nothing else changes.",
        )
        layout.deployment_input("calculator", work.deployment("calculator"))
        st.slider(
            "Guess for what the log never shows (Q₀)",
            min(-2.0, state.get("guess")),
            max(1.0, state.get("guess")),
            step=0.05,
            **state.bound("guess"),
            width=360,
            help="Value the learners give to pairs without data: Q(s, a) = Q₀ where n(s, a) = 0. It tips near −1.005 and +0.86.",
        )


def render_story(now: work.Current) -> None:
    """Success by task, the one choice, and what it means."""
    dataset, deployment = now.dataset, work.deployment("calculator")
    models = {name: work.trained(dataset, name, **parameters.parameters_of(name)) for name in LEARNERS}
    truths: dict[str, Truth] = {
        "The logging agent": work.behavior_truth(dataset.log.fingerprint, deployment, dataset.log)
    }
    for name, model in models.items():
        truths[orl.ALGORITHMS[name].short] = work.truth(dataset, model, deployment)
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.markdown("##### Who solves which task, exactly", help=layout.tip("exact"))
        success = {
            title: {task: t.success_rate for task, t in truth.by_task.items()} for title, truth in truths.items()
        }
        st.html(make_success_by_task(success, {title: truth.success_rate for title, truth in truths.items()}))
        if small_bars := about_small_bars(success):
            st.caption(small_bars)
    state_row = dataset.state_index(CHOICE)
    if state_row is None:
        st.info("After these edits the log never reaches the choice between operations on a mul task.")
        return
    with right:
        st.markdown("##### The one choice: a mul task, x and y known", help=layout.tip("choice"))
        render_choice(dataset, models["fqi"], state_row, deployment)
    st.markdown(tell(make_scene(dataset, models, truths, state_row, deployment)))


def render_choice(dataset, model, row: int, deployment: str) -> None:
    """Q bars of naive FQI at the choice."""
    columns = np.flatnonzero(dataset.valid_mask[row])
    counts = dataset.visitation_counts[row, columns]
    exact = work.exact_q(dataset, model, deployment)[row, columns]
    picture = make_choice(
        [dataset.actions[a] for a in columns],
        model.q_values[row, columns].tolist(),
        exact.tolist(),
        counts.tolist(),
        chosen=dataset.actions[int(model.policy.probabilities[row].argmax())],
    )
    st.html(picture)
    then = work.exact_q(dataset, model, LOGGED_IN)[row, columns]
    moved = columns[(counts > 0) & (np.abs(exact - then) > SAID)]
    st.caption(about_bars([dataset.actions[a] for a in moved], SPEC.situation(deployment)))


def make_scene(dataset, models, truths, row: int, deployment: str) -> Scene:
    """The numbers behind the paragraph."""
    naive = models["fqi"]
    counts = dataset.visitation_counts[row]
    return Scene(
        mul_out=not counts[dataset.actions.index("mul")],
        deployment=deployment,
        default_value=state.get("guess"),
        success={name: truths[orl.ALGORITHMS[name].short].success_rate for name in LEARNERS},
        success_if_works={name: work.truth(dataset, models[name], "works").success_rate for name in LEARNERS},
        guessing_tasks=tuple(task for task in SPEC.tasks if guesses(dataset, naive, f"{task}: x, y known")),
        best_seen=best_seen(dataset, naive),
        times_seen_mul=int(counts[dataset.actions.index("mul")]),
    )


def guesses(dataset, model, state_key: str) -> bool:
    """Whether the policy picks an action that the log never shows in this state."""
    row = dataset.state_index(state_key)
    return row is not None and not dataset.visitation_counts[row, model.policy.probabilities[row].argmax()]


def best_seen(dataset, model) -> dict[str, float]:
    """Task -> largest learned Q among the actions that the log shows there once x and y are known."""
    rows = {task: dataset.state_index(f"{task}: x, y known") for task in SPEC.tasks}
    seen = np.where(dataset.visitation_counts > 0, model.q_values, np.nan)
    return {task: float(np.nanmax(seen[row])) for task, row in rows.items() if row is not None}


@st.cache_data(show_spinner=False, max_entries=256)
def all_scenes(chosen: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Exact success by learner and case: two logs, three deployments."""
    rows: dict[str, dict[str, float]] = {}
    for gap in (False, True):
        dataset = work.framed(work.bundled_log("calculator"), "world_state", (NO_MUL,) if gap else ())
        for name in LEARNERS:
            model = work.trained(dataset, name, **chosen[name])
            for deployment, spec in SPEC.deployments.items():
                case = f"{'without mul' if gap else 'with mul'} · {spec.title}"
                success = work.truth(dataset, model, deployment).success_rate
                rows.setdefault(orl.ALGORITHMS[name].short, {})[case] = success
    return rows


def render_all_scenes() -> None:
    """Every combination of log and deployment, so that nobody leaves with half of the story."""
    with st.expander("All six cases side by side: two logs, three deployments", icon=":material/table:", expanded=True):
        layout.render_percents(all_scenes({name: parameters.parameters_of(name) for name in LEARNERS}))
        st.caption(f"Exact success at Q₀ = {state.get('guess'):+z.2f}. Log · what mul does once deployed.")


navigation.require_app()
st.title("What a log can't teach")
st.markdown(
    "A calculator agent is asked for x + y, x − y or x × y. It looks up x and y, picks an operation and hands in the result. "
    "Four learners read its log and nothing else. **What happens when the log never shows `mul`?**"
)
render_controls()
now = work.current()
if now.world != "calculator":
    st.info(
        f"You are looking at {layout.plain(now.log.name)}. This story is about the bundled calculator log; "
        "turn a switch to see it, or go on to Coverage, Train and Q-values with your own.",
        icon=":material/info:",
    )
    now = work.Current(
        (log := work.bundled_log("calculator")), (), "world_state", work.framed(log, "world_state", ()), ""
    )
if now.dataset is not None:
    render_story(now)
    render_all_scenes()
