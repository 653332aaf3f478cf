"""What policies are worth, judged from the log alone; beside it the truth where a world knows it, and whom to believe."""

from dataclasses import replace

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.comparison import Comparison, compare_estimators
from offrl_core.interfaces import TrainedModel
from pages._ui import (
    beside,
    deployed,
    estimates,
    layout,
    live,
    navigation,
    parameters,
    refusals,
    rehearsal,
    split,
    state,
    work,
)


def trained_policies(dataset: Dataset) -> dict[str, TrainedModel]:
    """The learners chosen on Train that are done, of a network each policy; what can't be trained here says so."""
    models: dict[str, TrainedModel] = {}
    slow: list[beside.Training] = []
    blocked: list[tuple[str, str]] = []
    for name in dict.fromkeys(state.get("learners").split(",")):
        spec = orl.ALGORITHMS.get(name)
        if spec is None:
            continue
        try:
            if spec.instant:
                models[spec.short] = work.trained(dataset, name, state.get("seed"), **parameters.parameters_of(name))
            else:
                models |= beside.distinct_models(dataset, name)
                slow.append(beside.training_of(dataset, name))
        except orl.OffRLError as error:
            blocked.append((spec.short, str(error)))
    refusals.render_blocked(blocked)
    # What a network learned from the whole log can't be judged on a part of the same log: it is trained on the rest here.
    missing = [training for training in slow if not all(run.model for run in training.runs())]
    if missing:
        names = " and ".join(training.spec.short for training in missing)
        part = "" if state.get("split") == "0" else " To judge what it learned from all of them, choose so above."
        st.info(
            f"{names}: not trained on these {dataset.n_episodes:,} episodes yet, so there is nothing of it to judge.{part}",
            icon=":material/hourglass_empty:",
        )
    live.render_trainings(missing)
    return models


def compared(learn: Dataset, judge_on: Dataset, models: dict[str, TrainedModel], deployment: str) -> Comparison:
    """All estimates of all policies, once."""
    keys = tuple((name, work.policy_key(learn, model)) for name, model in models.items())
    return _compared(keys, work.dataset_key(judge_on), deployment, learn, judge_on, models)


@st.cache_resource(show_spinner="Judging the policies…", max_entries=64, ttl="2h")
def _compared(
    keys: tuple,
    judged_on: tuple,
    deployment: str,
    _learn: Dataset,
    _judge_on: Dataset,
    _models: dict[str, TrainedModel],
) -> Comparison:
    policies = {name: model.policy for name, model in _models.items()}
    return compare_estimators(policies, _judge_on, deployment=deployment, trained_on=_learn)


def render_page(now: work.Current) -> None:
    """The split, truth, estimates, one policy in detail, rehearsal."""
    learn, judge_on = split.parts_of(now)
    split.render_split(learn, judge_on)
    deployment = work.deployment(now.world)
    if now.world:
        layout.deployment_input(now.world, deployment)
    models = trained_policies(learn)
    if not models:
        if not any(name in orl.ALGORITHMS for name in state.get("learners").split(",")):
            st.info("Choose learners on the Train page; those that are done are judged here.")
        return
    learned = replace(now, dataset=learn)
    comparison = compared(learn, judge_on, models, deployment)
    if now.world:
        deployed.render_deployed(learned, models, split.whose_policies(learn, judge_on))
    else:
        layout.truth_unknown(now)
    st.markdown("##### From the log alone: the estimates")
    if changed := deployed.changed_world(learned, models):
        layout.warning(changed, icon=":material/public:")
    estimates.render_table(now, comparison)
    policy = st.segmented_control("Policy", list(models), default=next(iter(models)), key="w:judged", required=True)
    place = st.container()
    study = rehearsal.render_rehearsal(judge_on, models, deployment) if now.world else None
    with place:
        judged = policy if policy in models else next(iter(models))
        changed = deployed.changed_world(learned, {judged: models[judged]})
        estimates.render_policy(comparison, judged, study, changed)


navigation.require_app()
st.title("Evaluate")
st.markdown(
    "What each policy is worth: **the truth** where a world knows it, and what can be **estimated from the log alone** "
    "(off-policy evaluation), or when to refuse it."
)
now = work.current()
if now.dataset is not None:
    render_page(now)
