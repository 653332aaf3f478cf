"""A cart with continuous actions: what learners believe beyond the strengths that the log shows, and what is so."""

import numpy as np
import pandas as pd
import streamlit as st

from offrl_core.continuous import DEPLOYMENTS, LEARNERS
from offrl_core.figures.continuous import Slice, Surface, make_action_picture, make_log_picture
from pages._ui import cart, layout, navigation, state

MAP_GRID = np.linspace(-1, 1, 41)
FINE = np.linspace(-1, 1, 161)
TRUTH, BEST = "The truth: the best there is", "exact Q of the best policy"


def render_controls() -> None:
    """The dial of the log, the hidden truth, and where the slice is."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        cart.render_range()
        st.segmented_control(
            "Beyond ±0.5 the wheels…",
            list(DEPLOYMENTS),
            format_func=DEPLOYMENTS.get,
            **state.bound("cart"),
            help="The hidden truth. While the log stays within ±0.5 it is the same log, word for word, in both.",
        )
        st.slider("Slice at state", -1.0, 1.0, step=0.05, **state.bound("cart_state"), width=260)
        cart.render_dials()


def slice_of(judged: cart.Judged | None, rows: np.ndarray) -> Slice:
    """Learned and exact Q in the chosen state; of the optimum where nothing is learned."""
    here = np.array(state.get("cart_state"))
    values = cart.optimum(state.get("cart")) if judged is None else judged.truths[state.get("cart")]
    learned = None if judged is None else judged.model.q_values(here, FINE)
    chosen = float(np.interp(here, values.states, values.actions))
    return Slice(float(here), FINE, learned, values.q_values(here, FINE), chosen, rows)


def surface_of(judged: cart.Judged | None) -> Surface:
    """Learned Q from above; the best there is where nothing is learned."""
    values = cart.optimum(state.get("cart")) if judged is None else judged.truths[state.get("cart")]
    q_of = values.q_values if judged is None else judged.model.q_values
    policy = np.interp(MAP_GRID, values.states, values.actions)
    return Surface(MAP_GRID, MAP_GRID, q_of(MAP_GRID[:, None], MAP_GRID[None, :]), policy)


def slice_bounds(cuts: list[Slice]) -> tuple[float, float]:
    """One axis for all slices; what is punished far below everything real may leave it."""
    exact = np.concatenate([cut.exact for cut in cuts])
    everything = np.concatenate([exact, *(cut.learned for cut in cuts if cut.learned is not None)])
    low, high = max(everything.min(), exact.min() - 2), everything.max()
    room = 0.08 * (high - low)
    return low - room, high + room


def render_pictures(now: dict[str, cart.Judged], log) -> None:
    """One picture per learner, and the truth."""
    rows, counts = log.near(state.get("cart_state")), log.counts()
    shown: dict[str, cart.Judged | None] = {LEARNERS[name].short: judged for name, judged in now.items()}
    shown[TRUTH] = None
    cuts = {title: slice_of(judged, rows) for title, judged in shown.items()}
    bounds = slice_bounds(list(cuts.values()))
    for column, (title, judged) in zip(st.columns(len(shown)), shown.items(), strict=True):
        figure = make_action_picture(
            title,
            surface_of(judged),
            cuts[title],
            counts,
            exact_name="exact Q of this policy" if judged else BEST,
            slice_range=bounds,
        )
        with column:
            layout.render_figure(figure, key=f"cart:{title}", alt=f"{title}: Q from above and in a slice")


def render_log(log) -> None:
    """What there is before anybody learned: the log, and the truth that no learner sees."""
    rows, counts = log.near(state.get("cart_state")), log.counts()
    cut = slice_of(None, rows)
    left, right = st.columns(2)
    with left:
        figure = make_log_picture("The log: all that learners see", counts, cut.state, rows)
        layout.render_figure(figure, key="cart:log", alt="Rows of the log by state and action")
    with right:
        truth = make_action_picture(
            TRUTH, surface_of(None), cut, counts, exact_name=BEST, slice_range=slice_bounds([cut])
        )
        layout.render_figure(truth, key="cart:truth", alt="The best Q from above and in a slice")


def render_table(now: dict[str, cart.Judged]) -> None:
    """What each policy promises and what it is worth."""
    names = {deployment: f"worth, wheels {title}" for deployment, title in DEPLOYMENTS.items()}
    lines = [
        {
            "learner": LEARNERS[name].title,
            "promises": f"{judged.promise:.2f}",
            **{names[deployment]: f"{truth.mean_value:.2f}" for deployment, truth in judged.truths.items()},
            "outside the log": f"{judged.outside:.0%} of states",
        }
        for name, judged in now.items()
    ]
    best = {column: f"{cart.optimum(deployment).mean_value:.2f}" for deployment, column in names.items()}
    lines.append({"learner": "The best there is", "promises": "", **best, "outside the log": ""})
    st.dataframe(pd.DataFrame(lines), hide_index=True)
    errors = [values.mean_error for judged in now.values() for values in judged.truths.values()]
    st.caption(
        "Values: discounted return (γ = 0.9) from a start anywhere on the line. Promised: learned Q of what the policy does. "
        f"Worth: computed on a fine grid; half as many cells give the same to {max(errors):.4f}. Outside the log: "
        "share of the states where the policy acts outside the covered range."
    )


def render_meaning(now: dict[str, cart.Judged]) -> None:
    """What the numbers say, once all have learned."""
    naive, careful = now["ddpg"], [now["td3_bc"], now["cql_continuous"]]
    share, worth = naive.outside, {name: naive.truths[name].mean_value for name in DEPLOYMENTS}
    others = {name: max(judged.truths[name].mean_value for judged in careful) for name in DEPLOYMENTS}
    if max(abs(state.get("covered_low")), abs(state.get("covered_high"))) > 0.5:
        said = "This log goes beyond ±0.5, so it **shows** what the wheels do there, and learners can know it."
    else:
        said = "This log is the same whether the wheels spin beyond ±0.5 or not: **no learner can tell from it.**"
    if share > 0.02:
        said += (
            f" Naive DDPG acts outside the log in **{share:.0%}** of the states, where its Q only continues what it saw. "
            f"It promises {naive.promise:.2f}; it gets **{worth['grips']:.2f}** where the wheels keep their grip and "
            f"**{worth['spins']:.2f}** where they spin. The better of the two careful learners gets {others['grips']:.2f} "
            f"and {others['spins']:.2f}."
        )
    st.markdown(said)


def render_live() -> None:
    """Pictures and numbers; as long as something learns, looked at again and again without drawing the page anew."""
    log = cart.chosen_log()
    runs = cart.begun_runs(log)
    if runs is None:
        cart.render_start()
        render_log(log)
        return
    running = cart.is_learning() and not all(run.done for run in runs.values())

    def look() -> None:
        if running and cart.is_learning():
            for run in runs.values():
                run.advance(cart.SLICE_SECONDS)
        done = all(run.done for run in runs.values())
        if running != (not done and cart.is_learning()):
            st.rerun()  # to look again and again, or no longer
        now = {name: cart.judged(run) for name, run in runs.items()}
        cart.render_progress(runs)
        render_pictures(now, log)
        if done:
            render_meaning(now)
        render_table(now)

    st.fragment(look, run_every=cart.LOOK_EVERY if running else None)()


navigation.require_app()
st.title("Continuous actions")
st.markdown(
    "A cart on a line is paid for standing near 0. Its action is how hard it drives, from −1 to 1. The log shows a part of "
    "these strengths only. **What do learners believe about the rest, and where do they go?** "
    "(This page has a world and a log of its own; the log in the bar plays no part.)",
    help=layout.tip("extrapolation"),
)
render_controls()
st.caption(
    "Maps show Q from above (dark blue: high), the black line is what the policy does in each state. Slices: learned Q in "
    "blue, exact Q of the same policy in green, ◆ what it picks. Bars: rows of the log near this state. Orange hatching: the "
    "log shows nothing there, Q is extrapolated."
)
render_live()
cart.render_learners()
