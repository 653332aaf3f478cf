"""What policies are worth, judged from the log alone; beside it the truth where a world knows it, and whom to believe."""

from dataclasses import replace

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.comparison import Comparison, compare_estimators
from offrl_core.evaluation.coverage_study import CoverageStudy
from offrl_core.evaluation.judgement import DecisionCard, judge
from offrl_core.evaluation.ope import Estimate
from offrl_core.figures.estimates import make_estimates
from offrl_core.interfaces import TrainedModel
from pages._ui import beside, deployed, layout, live, navigation, parameters, refusals, rehearsal, split, state, work

EXACT = "exact return"
VERDICTS = {
    "better": (":material/trending_up:", "better than the log's agent"),
    "worse": (":material/trending_down:", "worse than the log's agent"),
    "can't tell": (":material/balance:", "not told apart from the log's agent"),
    "no number": (":material/block:", "no estimate"),
}


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


def told(guess: Estimate) -> str:
    """An estimate with its interval, or that there is none."""
    return "refused" if guess.value is None else f"{guess.value:+z.3f} [{guess.low:+z.3f}, {guess.high:+z.3f}]"


def render_table(now: work.Current, comparison: Comparison) -> None:
    """Estimators x policies, refusals in words: a policy has one column, so several fit beside each other."""
    truths = {policy: f"{truth:+z.3f}" for policy, truth in comparison.truths.items()} if now.world else {}
    rows = [{"estimator": EXACT, **truths}] if truths else []
    for name, spec in orl.ESTIMATORS.items():
        guesses = {policy: told(estimates[name]) for policy, estimates in comparison.estimates.items()}
        rows.append({"estimator": spec.short, **guesses})
    about = "\n".join(f"- **{spec.short}**: {spec.title}. {spec.summary}" for spec in orl.ESTIMATORS.values())
    layout.render_wide(pd.DataFrame(rows), "estimator", {"estimator": ("estimator", about)})
    logged = comparison.logged
    own = "What the log's own agent got is unknown."
    if logged.value is not None:
        own = f"The log's own agent got {logged.value:+z.3f} [{logged.low:+z.3f}, {logged.high:+z.3f}]."
    st.caption(
        f"Discounted return with a 95 % interval from an episode bootstrap. {own} "
        "A refusal is an answer: the page says below what is missing."
    )
    data = layout.safe_csv(comparison.table())
    st.download_button("Download all estimates", data, "estimates.csv", "text/csv", icon=":material/download:")


def render_card(card: DecisionCard) -> None:
    """Whom to believe about one policy, and why."""
    icon, words = VERDICTS[card.verdict]
    with st.container(border=True):
        st.markdown(f"{icon} **{layout.plain(card.headline, 600)}**")
        st.caption(words)
        for reason in card.reasons:
            st.markdown(f"- {layout.plain(reason, 600)}")
        for doubt in dict.fromkeys(card.doubts):
            st.markdown(f"- :material/help: {layout.plain(doubt, 600)}")
        with st.expander("Why not the others"):
            for name, why in card.others.items():
                st.markdown(f"- **{layout.plain(orl.ESTIMATORS[name].title)}**: {layout.plain(why, 600)}")


def render_policy(comparison: Comparison, policy: str, study: CoverageStudy | None) -> None:
    """Intervals of one policy, and its card."""
    card = judge(comparison, policy, study)
    titles = {name: spec.title for name, spec in orl.ESTIMATORS.items()}
    intervals = {
        titles[name]: None if guess.value is None else (guess.value, guess.low, guess.high)
        for name, guess in comparison.estimates[policy].items()
    }
    left, right = st.columns([3, 2], gap="large")
    with left:
        figure = make_estimates(
            intervals, believed=titles.get(card.believe, ""), truth=card.truth, logged=comparison.logged.value
        )
        layout.render_figure(
            figure, key="estimates", alt=f"Estimates of {policy} by {len(intervals)} estimators", export=True
        )
    with right:
        render_card(card)


def render_page(now: work.Current) -> None:
    """The split, truth, estimates, one policy in detail, rehearsal."""
    learn, judge_on = split.parts_of(now)
    split.render_split(learn, judge_on)
    models = trained_policies(learn)
    if not models:
        if not any(name in orl.ALGORITHMS for name in state.get("learners").split(",")):
            st.info("Choose learners on the Train page; those that are done are judged here.")
        return
    deployment = work.deployment(now.world)
    comparison = compared(learn, judge_on, models, deployment)
    if now.world:
        deployed.render_deployed(replace(now, dataset=learn), models)
    else:
        layout.truth_unknown(now)
    st.markdown("##### From the log alone: the estimates")
    render_table(now, comparison)
    policy = st.segmented_control("Policy", list(models), default=next(iter(models)), key="w:judged", required=True)
    place = st.container()
    study = rehearsal.render_rehearsal(judge_on, models, deployment) if now.world else None
    with place:
        render_policy(comparison, policy if policy in models else next(iter(models)), study)


navigation.require_app()
st.title("Evaluate")
st.markdown(
    "What each policy is worth: **the truth** where a world knows it, and what can be **estimated from the log alone** "
    "(off-policy evaluation), or when to refuse it."
)
now = work.current()
if now.dataset is not None:
    render_page(now)
