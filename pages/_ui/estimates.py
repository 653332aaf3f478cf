"""Estimates of the page Evaluate: the table of all, and one policy in detail with a card that says whom to believe."""

from __future__ import annotations

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.evaluation.comparison import Comparison, LoggedReturn
from offrl_core.evaluation.coverage_study import CoverageStudy
from offrl_core.evaluation.judgement import DecisionCard, judge
from offrl_core.figures.estimates import make_estimates
from offrl_core.wording import counted
from offrl_core.worlds import WORLDS

from . import layout, work
from .caveats import Caveats

EXACT = "exact return"
VERDICTS = {
    "better": (":material/trending_up:", "better than the log's agent"),
    "worse": (":material/trending_down:", "worse than the log's agent"),
    "can't tell": (":material/balance:", "not told apart from the log's agent"),
    "no number": (":material/block:", "no estimate"),
}


def render_table(now: work.Current, comparison: Comparison) -> None:
    """Estimators x policies, refusals in words: a policy has one column, so several fit beside each other."""
    truths = {policy: f"{truth:+z.3f}" for policy, truth in comparison.truths.items()} if now.world else {}
    rows = [{"estimator": EXACT, **truths}] if truths else []
    caveats = Caveats()
    for name, spec in orl.ESTIMATORS.items():
        guesses = {policy: caveats.told(estimates[name]) for policy, estimates in comparison.estimates.items()}
        rows.append({"estimator": spec.short, **guesses})
    about = "\n".join(f"- **{spec.short}**: {spec.title}. {spec.summary}" for spec in orl.ESTIMATORS.values())
    layout.render_wide(pd.DataFrame(rows), "estimator", {"estimator": ("estimator", about)})
    caveats.render()
    st.caption(
        f"Discounted return with a 95 % interval from an episode bootstrap. {_own(now, comparison.logged)} "
        "A refusal is an answer: the page says below what is missing."
    )
    data = layout.safe_csv(comparison.table())
    st.download_button("Download all estimates", data, "estimates.csv", "text/csv", icon=":material/download:")


def _own(now: work.Current, logged: LoggedReturn) -> str:
    """What the log's agent got in the episodes that judge, which is neither its mean over the log nor what it is worth."""
    if logged.value is None:
        return "What the log's own agent got is unknown."
    exact = ""
    if now.world:
        here = WORLDS[now.world].situation(work.deployment(now.world))
        exact = f"; what it is worth where {here}, exactly, stands in the table above"
    return (
        f"In the {counted(logged.n_episodes, 'episode')} that judge, the log's own agent got {logged.value:+z.3f} "
        f"[{logged.low:+z.3f}, {logged.high:+z.3f}]{exact}."
    )


def _render_card(card: DecisionCard, changed: str) -> None:
    """Whom to believe about one policy, and why."""
    icon, words = VERDICTS[card.verdict]
    with st.container(border=True):
        st.markdown(f"{icon} **{layout.plain(card.headline, 600)}**")
        st.caption(f"as if nothing had changed: {words}" if changed else words)
        if changed:
            st.markdown(f"- :material/warning: {layout.plain(changed, 600)}")
        for reason in card.reasons:
            st.markdown(f"- {layout.plain(reason, 600)}")
        for doubt in dict.fromkeys(card.doubts):
            st.markdown(f"- :material/help: {layout.plain(doubt, 600)}")
        with st.expander("Why not the others"):
            for name, why in card.others.items():
                st.markdown(f"- **{layout.plain(orl.ESTIMATORS[name].title)}**: {layout.plain(why, 600)}")


def render_policy(comparison: Comparison, policy: str, study: CoverageStudy | None, changed: str) -> None:
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
        _render_card(card, changed)
