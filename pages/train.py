"""Pick learners, set their parameters, read the result: tables are done before the page is drawn, networks train beside it."""

from typing import Any

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.interfaces import TrainedModel
from offrl_core.params import params_of
from pages._ui import (
    also_training,
    beside,
    browser,
    config_form,
    layout,
    live,
    navigation,
    parameters,
    pins,
    refusals,
    results,
    state,
    work,
)

REFUSED = "w:refused_effort"  # session key of a sentence about the number that was entered last


def chosen_learners() -> list[str]:
    """Learners of the link that exist; others are dropped from it with a warning."""
    asked = list(dict.fromkeys(name for name in state.get("learners").split(",") if name))
    known = [name for name in asked if name in orl.ALGORITHMS]
    if len(known) < len(asked):
        unknown = ", ".join(name for name in asked if name not in known)
        layout.warning(f"The link names learners that don't exist here: {unknown}. They were left out.")
        state.put("learners", ",".join(known))
    return known


def take_learners() -> None:
    """Keep the choice; the other pages go on showing a learner only while it is among the chosen ones."""
    chosen = st.session_state["w:learners"]
    state.put("learners", ",".join(chosen))
    if state.get("shown") not in chosen:
        state.put("shown", "")


def render_choice() -> list[str]:
    """Which learners to train; for slow ones also how many seeds, and for how long, beside them."""
    learners = chosen_learners()
    state.set_widget("w:learners", learners)
    specs = [orl.ALGORITHMS[name] for name in learners]
    draws = any(spec.train_seeds for spec in specs)
    steps = any("n_steps" in params_of(spec.config_class) for spec in specs)
    left, right = st.columns([5, 4]) if draws or steps else (st.container(), None)
    left.multiselect(
        "Learners",
        list(orl.ALGORITHMS),
        format_func=lambda name: orl.ALGORITHMS[name].menu_title,
        key="w:learners",
        on_change=take_learners,
        wrap=True,  # beside other widgets Streamlit keeps all names on one line, and hides those that don't fit
        help="By kind: tables, then networks, then the sequence model. Type “network”, or a name, to see only those.",
    )
    if right is not None:
        with right.container(horizontal=True):
            render_effort(draws, steps)
    if refused := st.session_state.pop(REFUSED, ""):
        layout.warning(refused)
    return learners


def render_effort(draws: bool, steps: bool) -> None:
    """Seeds for learners that draw at random, a budget for those that take steps."""
    if draws:
        help_text = f"Trained as one computation; {state.MAX_SEEDS} at most."
        st.number_input("Seeds", 1, **_bound("seeds", state.MAX_SEEDS), width=130, help=help_text)
        st.number_input("First seed", 0, 2**31, **state.bound("seed"), width=130)
    if steps:
        help_text = f"Most steps of each seed; {state.MAX_STEPS:,} at most."
        st.number_input("Budget (steps)", 1, step=500, **_bound("budget", state.MAX_STEPS), width=160, help=help_text)


def _bound(name: str, most: int) -> dict[str, Any]:
    """Bind a number that has an upper limit. A widget that knew it would only turn red beyond, and tell neither the visitor why
    nor the server that anything was entered.
    """
    return state.bound(name) | {"on_change": _take_up_to, "args": (name, most)}


def _take_up_to(name: str, most: int) -> None:
    entered = st.session_state[f"w:{name}"]
    if entered is None or entered <= most:
        state.take(name)
        return
    what = {"seeds": "seeds", "budget": "steps for each seed"}[name]
    st.session_state[REFUSED] = (
        f"{entered:,} is more than the {most:,} {what} that one training may have, because all visitors share this machine. "
        f"It was not taken; {state.get(name):,} still counts."
    )


def render_details(algorithm: str, model: TrainedModel | None, dataset: Dataset) -> None:
    """Equation, source, differences, parameters, and why an estimate was refused."""
    spec = orl.ALGORITHMS[algorithm]
    part = st.expander(spec.title, icon=":material/tune:", key=f"w:details:{algorithm}", on_change="rerun")
    if not part.open:  # a form has many widgets; drawn for every learner, they would take a fifth of each rerun
        return
    left, right = part.columns(2, gap="large")
    with left:
        config_form.render_form(algorithm)
    with right:
        st.markdown(spec.summary)
        st.latex(spec.equation)
        st.caption(
            f"Source: {spec.source}. Differs: " + "; ".join(f"{i}. {d}" for i, d in enumerate(spec.differs, 1)) + "."
        )
        if model is not None:
            guess = work.estimated(dataset, model)
            st.caption(layout.plain(guess.refusal or " ".join(guess.warnings), 600))


def render_page(now: work.Current) -> None:
    """Choice, slow trainings, table, details."""
    dataset, models, trainings, blocked = now.dataset, {}, [], []
    for algorithm in render_choice():
        try:
            if orl.ALGORITHMS[algorithm].instant:
                models[algorithm] = work.trained(
                    dataset, algorithm, state.get("seed"), **parameters.parameters_of(algorithm)
                )
            else:
                trainings.append(beside.training_of(dataset, algorithm))
        except orl.OffRLError as error:
            blocked.append((orl.ALGORITHMS[algorithm].short, str(error)))
    refusals.render_blocked(blocked)
    also_training.render_others(browser.identity(), [run for training in trainings for run in training.run_ids])
    if trainings:
        live.render_trainings(trainings)
    pins.render_pins(now)
    for training in trainings:
        done = [run.model for run in training.runs() if run.model is not None]
        if done:
            models[training.algorithm] = done[0]
    if not now.world:
        layout.truth_unknown(now)
    for note in dataset.notes:
        st.caption(f":material/info: {note}")
    results.render_results(now, models)
    st.markdown("##### Parameters")
    for algorithm in chosen_learners():
        render_details(algorithm, models.get(algorithm), dataset)


navigation.require_app()
st.title("Train")
st.markdown(
    "Learners see the log and nothing else. **To watch one learn, choose a network** or the Decision Transformer: it trains "
    "beside the page."
)
now = work.current()
if now.dataset is not None:
    render_page(now)
