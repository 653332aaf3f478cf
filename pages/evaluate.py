"""What policies are worth, judged from the log alone; beside it the truth where a world knows it, and whom to believe."""

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.comparison import Comparison, compare_estimators
from offrl_core.evaluation.coverage_study import CoverageStudy, coverage_study
from offrl_core.evaluation.judgement import DecisionCard, judge
from offrl_core.figures.estimates import make_estimates
from offrl_core.interfaces import TrainedModel
from offrl_core.worlds import WORLDS
from pages._ui import layout, navigation, parameters, state, work

VERDICTS = {
    "better": (":material/trending_up:", "better than the log's agent"),
    "worse": (":material/trending_down:", "worse than the log's agent"),
    "can't tell": (":material/balance:", "not told apart from the log's agent"),
    "no number": (":material/block:", "no estimate"),
}


def trained_policies(dataset: Dataset) -> dict[str, TrainedModel]:
    """The learners chosen on Train that are done at once; what can't be trained here says so."""
    models = {}
    for name in dict.fromkeys(state.get("learners").split(",")):
        spec = orl.ALGORITHMS.get(name)
        if spec is None or not spec.instant:
            continue
        try:
            models[spec.short] = work.trained(dataset, name, state.get("seed"), **parameters.parameters_of(name))
        except orl.OffRLError as error:
            layout.error(f"{spec.short}: {error}")
    return models


def compared(dataset: Dataset, models: dict[str, TrainedModel], deployment: str) -> Comparison:
    """All estimates of all policies, once."""
    keys = tuple((name, work.policy_key(dataset, model)) for name, model in models.items())
    return _compared(keys, deployment, dataset, models)


@st.cache_resource(show_spinner="Judging the policies…", max_entries=64, ttl="2h")
def _compared(keys: tuple, deployment: str, _dataset: Dataset, _models: dict[str, TrainedModel]) -> Comparison:
    policies = {name: model.policy for name, model in _models.items()}
    return compare_estimators(policies, _dataset, deployment=deployment, trained_on=_dataset)


def render_table(now: work.Current, comparison: Comparison) -> None:
    """Policies x estimators, refusals in words."""
    rows = []
    for policy, estimates in comparison.estimates.items():
        row: dict[str, object] = {"policy": policy}
        if now.world:
            row["exact return"] = f"{comparison.truths[policy]:+.3f}"
        for name, guess in estimates.items():
            told = "refused" if guess.value is None else f"{guess.value:+.3f} [{guess.low:+.3f}, {guess.high:+.3f}]"
            row[orl.ESTIMATORS[name].title] = told
        rows.append(row)
    table = pd.DataFrame(rows)
    st.dataframe(table, hide_index=True)
    logged = comparison.logged
    own = "What the log's own agent got is unknown."
    if logged.value is not None:
        own = f"The log's own agent got {logged.value:+.3f} [{logged.low:+.3f}, {logged.high:+.3f}]."
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
        layout.render_figure(figure, key="estimates", alt=f"Estimates of {policy} by {len(intervals)} estimators")
    with right:
        render_card(card)


def render_rehearsal(now: work.Current, models: dict[str, TrainedModel], deployment: str) -> CoverageStudy | None:
    """How often the intervals hold on fresh logs of the world; runs when asked, and any click stops it."""
    st.markdown("##### Rehearsal: how often do these intervals hold the truth?", help=layout.tip("rehearsal"))
    done = st.session_state.setdefault("w:studies", {})
    key = repr((deployment, *(work.policy_key(now.dataset, model) for model in models.values())))
    n_logs = st.select_slider("Fresh logs", [20, 50, 100, 200], value=50, key="w:n_logs", width=320)
    st.button("Rehearse", icon=":material/replay:", on_click=lambda: st.session_state.update({"w:rehearse": key}))
    if st.session_state.pop("w:rehearse", None) == key:
        bar = st.progress(0.0, text="collecting fresh logs")
        st.button("Stop", icon=":material/stop:", key="w:stop_study")
        study = coverage_study(
            {n: m.policy for n, m in models.items()}, now.dataset, n_logs=n_logs, deployment=deployment
        )
        while True:
            try:
                progress = next(study)
            except StopIteration as finished:
                done[key] = finished.value
                break
            bar.progress(progress.step / progress.total, text=f"log {progress.step} of {progress.total}")
        st.rerun()
    if key in done:
        render_study(done[key])
    return done.get(key)


def render_study(study: CoverageStudy) -> None:
    """Coverage by policy and estimator, and who ranks policies right."""
    rows: dict[str, dict[str, str]] = {}
    for row in study.reliability:
        share = "refused" if row.coverage is None else f"{row.coverage:.0%} of {row.n_told}"
        rows.setdefault(orl.ESTIMATORS[row.estimator].title, {})[row.policy] = share
    for rank in study.ranking:
        right = "—" if rank.share_right is None else f"{rank.share_right:.0%} of {rank.n_pairs}"
        rows[orl.ESTIMATORS[rank.estimator].title]["pairs ranked right"] = right
    st.dataframe(pd.DataFrame(rows).T)
    spec = WORLDS[study.world]
    st.caption(
        f"Share of the 95 % intervals that hold the exact value, on {study.n_logs} fresh logs of {study.n_episodes:,} episodes, "
        f"where {spec.subject} {spec.deployments[study.deployment].title}. Logs are always written where all works: with another "
        "deployment this shows what no log could have told."
    )


def render_page(now: work.Current) -> None:
    """Table, one policy in detail, rehearsal."""
    models = trained_policies(now.dataset)
    if not models:
        st.info("Choose learners on the Train page; those that are done at once are judged here.")
        return
    deployment = work.deployment(now.world)
    comparison = compared(now.dataset, models, deployment)
    if not now.world:
        layout.truth_unknown(now)
    render_table(now, comparison)
    policy = st.segmented_control("Policy", list(models), default=next(iter(models)), key="w:judged", required=True)
    place = st.container()
    study = render_rehearsal(now, models, deployment) if now.world else None
    with place:
        render_policy(comparison, policy if policy in models else next(iter(models)), study)


navigation.require_app()
st.title("Evaluate")
st.markdown(
    "What each policy would earn, **estimated from the log alone**: off-policy evaluation, and when to refuse it."
)
now = work.current()
if now.dataset is not None:
    render_page(now)
