"""Before training: what the log can support at best, how thin that is, which learners should do well, and what thinning does."""

import numpy as np
import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.ceiling import Ceiling, best_path, best_possible, true_value, why_not_the_truth
from offrl_core.evaluation.log_quality import concentrability
from offrl_core.figures.ceiling import make_ceiling_curve, make_path, make_value_scale
from pages._ui import before, layout, navigation, state, work

MOST_STARTS = 200  # in a menu
HOWS = {"episodes": "whole episodes that show it", "transitions": "its steps alone"}


def render_controls(now: work.Current) -> str:
    """From when on a pair is supported, and the truth to compare with."""
    deployment = work.deployment(now.world)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        layout.min_count_input()
        if now.world:
            layout.deployment_input(now.world, deployment)
    return deployment


def render_values(dataset: Dataset, found: Ceiling, deployment: str) -> None:
    """The log's own return, the ceiling, and in worlds what is really so."""
    own = work.own_return(dataset)
    rows = [] if own.value is None else [("the log's own episodes", "logged", own.value)]
    rows.append(("ceiling: the best inside the log", "ceiling", found.value))
    real, most = true_value(dataset, found.policy, deployment), best_possible(dataset, deployment)
    if real is not None and most is not None:
        rows += [
            ("what its policy is really worth", "exact", real),
            ("best possible, knowing everything", "exact", most),
        ]
    figure = layout.drawn(make_value_scale, rows)
    alt = ", ".join(f"{title} {value:+z.3f}" for title, _, value in rows)
    layout.render_figure(figure, key="ceiling", alt=f"Returns: {alt}")
    for why in why_not_the_truth(dataset, found, deployment):
        st.caption(f":material/info: {layout.plain(why, 400)}")
    if found.silent >= 5e-4:
        st.caption(
            f":material/warning: In {found.silent:.1%} of its episodes the best policy comes to a state where the log supports "
            "nothing; from there on nothing is counted."
        )
    for note in dataset.notes:
        st.caption(f":material/info: {note}")


def render_path(dataset: Dataset, found: Ceiling) -> None:
    """The best way from a start, and where it is thin."""
    st.markdown("##### The best path, and where it is thin", help=layout.tip("best_path"))
    starts = [dataset.states[s] for s in np.argsort(-found.starts) if found.starts[s] > 0 and found.supported[s].any()]
    starts = starts[:MOST_STARTS]
    if not starts:
        st.info("In no state where episodes begin does the log support anything, so there is no path to show.")
        return
    start = state.get("path_start") if state.get("path_start") in starts else starts[0]
    if len(starts) > 1:
        st.selectbox("From", starts, **state.bound("path_start", start), width=420)
    path = best_path(dataset, found, start)
    st.markdown(f"{layout.plain(path.sentence, 400)} Worth **{path.value:+z.3f}** from there. {ENDINGS[path.ending]}")
    layout.render_figure(layout.drawn(make_path, path), key="path", alt=path.sentence)


ENDINGS = {
    "ended": "",
    "silent": "It stops where the log supports nothing.",
    "loop": "It comes back to a state it has been in; from there it goes round, or leaves by something less likely.",
    "long": "Only its first 100 steps are shown.",
}


def render_measures(dataset: Dataset, found: Ceiling) -> None:
    """Numbers about the log, each with its meaning and source."""
    st.markdown("##### What the log is like")
    quality = before.measured(dataset)
    try:
        ratio = concentrability(dataset, found.policy)
    except orl.OffRLError as error:
        most, sentence = "can't be said", str(error)
    else:
        most, sentence = ratio.in_short, ratio.sentence
    numbers = {
        "Quality of its episodes": (_percent(quality.trajectory_quality), "trajectory_quality"),
        f"Valid pairs seen, of {'all that can be reached' if quality.against_truth else 'those in its states'}": (
            _percent(quality.state_action_coverage),
            "state_action_coverage",
        ),
        "Variety of its choices": (_percent(quality.behavior_entropy), "behavior_entropy"),
        "Steps to look ahead": (
            "over 20" if quality.lookahead is None else str(quality.lookahead),
            "lookahead",
        ),
        f"Best action seen < {quality.few} times": (_percent(quality.thin_states), "thin_choices"),
        "Most over-used pair": (most, "concentrability"),
    }
    with st.container(horizontal=True):
        for name, (text, term) in numbers.items():
            st.metric(name, text, help=layout.tip(term), width="content", border=True)
    held = "exact values of the world" if quality.against_truth else "the log itself: nobody knows the world behind it"
    st.caption(f"The first two are measured against {held}. {layout.plain(sentence, 300)}")


def _percent(share: float | None) -> str:
    return "can't be said" if share is None else f"{share:.0%}"


def _most_needed(dataset: Dataset, found: Ceiling) -> str:
    """The action of the story, else the rarest of those that the best policy takes: it hangs on that most."""
    rows = dataset.visitation_counts.sum(axis=0)
    if "mul" in dataset.actions and rows[dataset.actions.index("mul")]:
        return "mul"
    taken = np.flatnonzero(found.policy.probabilities[found.supported.any(axis=1)].any(axis=0) & (rows > 0))
    return dataset.actions[min(taken, key=lambda a: rows[a])]


def render_curve(dataset: Dataset, found: Ceiling, deployment: str) -> None:
    """Thin an action out and watch the ceiling."""
    st.markdown("##### What if an action had been rarer?", help=layout.tip("curve"))
    rows = dataset.visitation_counts.sum(axis=0)
    names = [name for name, n in zip(dataset.actions, rows, strict=True) if n]
    action = state.get("curve_action") if state.get("curve_action") in names else _most_needed(dataset, found)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox("Action", names, **state.bound("curve_action", action), width=260)
        st.segmented_control("Take out", list(HOWS), format_func=HOWS.get, **state.bound("curve_how"))
    try:
        curve = before.thinned(dataset, action, state.get("curve_how"), state.get("min_count"), deployment)
    except orl.OffRLError as error:
        layout.error(error)
        return
    figure = layout.drawn(make_ceiling_curve, curve)
    layout.render_figure(figure, key="curve", alt=f"Ceiling while {curve.action} is thinned out")
    gone = np.isnan(curve.values[0])
    st.caption(
        ("Where the line begins late, nothing of the log is left before. " if gone else "")
        + "Drawn once at random; a larger share keeps all that a smaller one keeps. Tasks keep their shares."
    )


def render_page(now: work.Current) -> None:
    """Controls, values and forecast, path, measures, curve."""
    dataset, deployment = now.dataset, render_controls(now)
    if not now.world:
        layout.truth_unknown(now)
    try:
        found = orl.ceiling(dataset, state.get("min_count"))
    except orl.OffRLError as error:
        layout.error(error)
        return
    made = before.foretold(dataset, state.get("min_count"), state.get("guess"))
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.markdown("##### The most it can be worth", help=layout.tip("ceiling"))
        render_values(dataset, found, deployment)
        render_path(dataset, found)
    with right, st.container(border=True):
        st.markdown("##### Who should win")
        before.render_forecast(made)
        before.render_thinness(dataset, found)
        before.render_score(dataset, made, deployment)
    render_measures(dataset, found)
    render_curve(dataset, found, deployment)


navigation.require_app()
st.title("Ceiling")
st.markdown("**Before training**: what can this log support at best, how thin is that, and who should do well on it?")
now = work.current()
if now.dataset is not None:
    render_page(now)
