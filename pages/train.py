"""Pick learners, set their parameters, read the result: tabular learning is done before the page is drawn."""

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.diagnostics import state_table
from offrl_core.interfaces import TrainedModel
from offrl_core.sequence_policy import SequencePolicy
from offrl_core.training import run_id
from offrl_core.worlds import WORLDS
from pages._ui import asked_return, beside, config_form, layout, navigation, parameters, refusals, state, work


def chosen_learners() -> list[str]:
    """Learners of the link that exist; others are dropped from it with a warning."""
    asked = list(dict.fromkeys(name for name in state.get("learners").split(",") if name))
    known = [name for name in asked if name in orl.ALGORITHMS]
    if len(known) < len(asked):
        unknown = ", ".join(name for name in asked if name not in known)
        layout.warning(f"The link names learners that don't exist here: {unknown}. They were left out.")
        state.put("learners", ",".join(known))
    return known


def render_choice() -> list[str]:
    """Which learners to train."""
    state.set_widget("w:learners", chosen_learners())
    st.multiselect(
        "Learners",
        list(orl.ALGORITHMS),
        format_func=lambda name: orl.ALGORITHMS[name].title,
        key="w:learners",
        on_change=lambda: state.put("learners", ",".join(st.session_state["w:learners"])),
    )
    return chosen_learners()


def done_after(model: TrainedModel) -> str:
    """How long it took, in the learner's own unit."""
    steps, unit = model.history[-1].step, orl.ALGORITHMS[model.algorithm].unit
    return f"{steps:,} {unit}{'' if steps == 1 else 's'}{'' if model.converged else ', not settled'}"


def result_row(now: work.Current, algorithm: str, model: TrainedModel) -> dict[str, object]:
    """One line of the table; what isn't known says so."""
    if isinstance(model.policy, SequencePolicy):
        return asked_return.result_row(now, algorithm, model)
    dataset = now.dataset
    table = state_table(dataset, model, None, state.get("min_count"))
    visited = table["visits"] > 0
    row: dict[str, object] = {
        "learner": orl.ALGORITHMS[algorithm].short,
        "unsupported choices": f"{int((table['unsupported_choice'] & visited).sum()):,} of {int(visited.sum()):,} states",
        "done after": done_after(model),
    }
    if now.world:
        spec = WORLDS[now.world]
        truths = {d: work.truth(dataset, model, d) for d in WORLDS[now.world].deployments}
        for deployment, truth in truths.items():
            row[f"success, {spec.subject} {spec.deployments[deployment].title}"] = f"{truth.success_rate:.1%}"
        here = truths[work.deployment(now.world)]
        row["exact return"] = f"{here.mean_return:+.4f}"
        row["meets unseen states"] = f"{here.unseen_state_rate:.1%} of episodes"
    else:
        row["exact success"] = "unknown"
    guess = work.estimated(dataset, model)
    row["estimate from the log (WIS)"] = (
        "refused"
        if guess.value is None
        else f"{guess.value:+.3f} (no spread)"
        if guess.low == guess.high
        else f"{guess.value:+.3f} [{guess.low:+.3f}, {guess.high:+.3f}]"
    )
    row["run"] = run_id(dataset, algorithm, model.config, model.seed)
    return row


def render_details(algorithm: str, model: TrainedModel | None, dataset: Dataset) -> None:
    """Equation, source, differences, parameters, and why an estimate was refused."""
    spec = orl.ALGORITHMS[algorithm]
    with st.expander(spec.title, icon=":material/tune:", expanded=False):
        left, right = st.columns(2, gap="large")
        with left:
            config_form.render_form(algorithm)
        with right:
            st.markdown(spec.summary)
            st.latex(spec.equation)
            st.caption(
                f"Source: {spec.source}. Differs: "
                + "; ".join(f"{i}. {d}" for i, d in enumerate(spec.differs, 1))
                + "."
            )
            if model is not None:
                guess = work.estimated(dataset, model)
                st.caption(layout.plain(guess.refusal or " ".join(guess.warnings), 600))


def render_page(now: work.Current) -> None:
    """Choice, table, details."""
    dataset, models = now.dataset, {}
    rows = []
    slow = st.container()
    table = st.container()
    for algorithm in render_choice_in(slow):
        try:
            if orl.ALGORITHMS[algorithm].instant:
                models[algorithm] = work.trained(
                    dataset, algorithm, state.get("seed"), **parameters.parameters_of(algorithm)
                )
            else:
                with slow:
                    models[algorithm] = beside.trained_beside(dataset, algorithm)
        except orl.OffRLError as error:
            with slow:
                layout.error(f"{orl.ALGORITHMS[algorithm].short}: {error}")
            continue
        if models[algorithm] is not None:
            rows.append(result_row(now, algorithm, models[algorithm]))
    with table:
        if not now.world:
            layout.truth_unknown(now)
        for note in dataset.notes:
            st.caption(f":material/info: {note}")
        if rows:
            st.dataframe(pd.DataFrame(rows), hide_index=True)
            st.caption(
                "Success is exact where a world is known; exact return and unseen states are those of the deployment "
                "chosen on Overview. WIS: weighted importance sampling with a 95 % interval, from the log "
                "alone; refused where too few episodes follow the policy."
            )
            refusals.render_refusals(dataset, models)
            asked_return.render_asked_returns(now, models)
        elif not chosen_learners():
            st.info("Choose a learner above.")
    st.markdown("##### Parameters")
    for algorithm in chosen_learners():
        render_details(algorithm, models.get(algorithm), dataset)


def render_choice_in(container) -> list[str]:
    """The choice of learners, inside a container."""
    with container:
        return render_choice()


navigation.require_app()
st.title("Train")
st.markdown("Tabular learners see the log and nothing else; they are done before this page is drawn.")
now = work.current()
if now.dataset is not None:
    render_page(now)
