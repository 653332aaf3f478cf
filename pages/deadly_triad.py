"""The deadly triad: three small problems on which learning from a log explodes, at a known rate, and what stops it."""

import math

import pandas as pd
import streamlit as st

from offrl_core.deadly_triad import PROBLEMS, Iterates, LinearProblem, growth_rate, iterate, make_problem, outcome
from offrl_core.figures.deadly_triad import Growth, make_growth
from pages._ui import layout, navigation, state

POWERS = 40  # of ten that an explosion is followed through
FEWEST, MOST = 200, 2000  # sweeps


@st.cache_resource(show_spinner=False)
def problem_of(name: str) -> LinearProblem:
    """A problem, made once."""
    return make_problem(name)


@st.cache_resource(show_spinner=False, max_entries=256)
def iterated(name: str, n_sweeps: int, discount: float, inside_support: bool, caution: float) -> Iterates:
    """:func:`offrl_core.deadly_triad.iterate`, once."""
    return iterate(
        problem_of(name),
        discount=discount,
        n_sweeps=n_sweeps,
        inside_support=inside_support,
        conservative_weight=caution,
    )


def sweeps_to_show(rate: float) -> int:
    """As many as an explosion needs for ``POWERS`` powers of ten."""
    return FEWEST if rate <= 1 else min(max(math.ceil(POWERS / math.log10(rate)), FEWEST), MOST)


def render_controls() -> LinearProblem:
    """The problem, and the three dials."""
    st.segmented_control(
        "Problem", list(PROBLEMS), format_func=lambda name: problem_of(name).title, **state.bound("triad")
    )
    problem = problem_of(state.get("triad"))
    st.markdown(problem.summary)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.slider(
            "Discount γ",
            0.0,
            1.0,
            step=0.01,
            **state.bound("triad_discount"),
            width=280,
            help="How much later values count. Without a guard, values explode above "
            f"γ = {problem.critical_discount:.3f} here.",
        )
        st.slider(
            "Remedy: a smaller γ",
            0.0,
            1.0,
            step=0.01,
            **state.bound("triad_smaller"),
            width=280,
            help="Looks less far ahead: safe, but it learns the values of another problem.",
        )
        st.slider(
            "Remedy: caution α (CQL)",
            0.0,
            10.0,
            step=0.1,
            **state.bound("triad_caution"),
            width=280,
            help="Weight of a penalty that pushes the best action of each state down and the logged ones up. "
            "Source: Kumar et al. 2020, equation (2), with the maximum as the policy.",
        )
    return problem


def ways_of(problem: LinearProblem, n_sweeps: int) -> dict[str, tuple[Iterates, float | None]]:
    """Each way of learning: its iterates, and its exact factor per sweep where it has one."""
    name, discount = problem.name, state.get("triad_discount")
    smaller, caution = state.get("triad_smaller"), state.get("triad_caution")
    return {
        f"no guard (γ = {discount:g})": (
            iterated(name, n_sweeps, discount, False, 0.0),
            growth_rate(problem, discount=discount),
        ),
        f"caution α = {caution:g} (CQL)": (iterated(name, n_sweeps, discount, False, caution), None),
        "inside the support": (
            iterated(name, n_sweeps, discount, True, 0.0),
            growth_rate(problem, discount=discount, inside_support=True),
        ),
        f"smaller γ = {smaller:g}": (
            iterated(name, n_sweeps, smaller, False, 0.0),
            growth_rate(problem, discount=smaller),
        ),
    }


def render_table(ways: dict[str, tuple[Iterates, float | None]]) -> None:
    """What each sweep multiplies the error by, and the outcome, for each way."""
    lines = [
        {
            "way of learning": title,
            "each sweep multiplies the error by": "by which action is best" if rate is None else f"{rate:.4f}",
            f"largest |Q| after {len(run.q_values) - 1:,} sweeps": f"{run.largest[-1]:.3g}",
            "so the error": outcome(run),
        }
        for title, (run, rate) in ways.items()
    ]
    st.dataframe(pd.DataFrame(lines), hide_index=True)
    st.caption(
        "Every reward is 0, so every true value is 0 and |Q| is nothing but error. Factors are exact while the same action stays "
        "best in every state. A penalty adds a constant to each sweep: it helps by making another action best, or not at all."
    )


def render_rate(problem: LinearProblem, n_sweeps: int) -> None:
    """The closed form with its number, and where it tips."""
    rate = problem.growth(state.get("triad_discount"))
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.metric("Each sweep multiplies errors by (ρ)", f"{rate:.4f}", help=layout.tip("growth"), width="content")
        st.metric(
            f"Powers of ten in {n_sweeps:,} sweeps",
            f"{n_sweeps * math.log10(max(rate, 1e-300)):+z,.1f}",
            width="content",
        )
        st.metric("Explodes above γ =", f"{problem.critical_discount:.4f}", width="content")
        st.latex(r"\rho = " + problem.equation)


def render_problem(problem: LinearProblem, run: Iterates) -> None:
    """The pairs: what the log shows of them, and what they share."""
    with st.expander(
        "The whole problem: what the log shows, and which numbers its values share", icon=":material/table:"
    ):
        rows = [
            {
                "pair": pair,
                "share of the log": f"{share:.1%}" if share else "never",
                "supported": "yes" if supported else "no",
                "features": ", ".join(f"{value:g}·w{i + 1}" for i, value in enumerate(features) if value),
                "Q at the start": f"{first:g}",
                "Q at the end (no guard)": f"{last:.3g}",
            }
            for pair, share, supported, features, first, last in zip(
                problem.pairs,
                problem.shares,
                problem.supported,
                problem.features,
                run.q_values[0],
                run.q_values[-1],
                strict=True,
            )
        ]
        st.dataframe(pd.DataFrame(rows), hide_index=True)


navigation.require_app()
st.title("The deadly triad")
st.markdown(
    "Values that **share parameters**, targets made of **guesses about later values**, and a **log that visits other pairs** "
    "than the learned policy would: any two are harmless, all three can explode. Nothing here is random and nothing is noise. "
    "(This page has problems of its own; the log in the bar plays no part.)",
    help=layout.tip("deadly_triad"),
)
problem = render_controls()
n_sweeps = sweeps_to_show(problem.growth(state.get("triad_discount")))
ways = ways_of(problem, n_sweeps)
render_rate(problem, n_sweeps)
curves = [Growth(title, run.largest) for title, (run, _) in ways.items()]
figure = layout.drawn(make_growth, curves, problem.growth(state.get("triad_discount")), n_sweeps=n_sweeps)
layout.render_figure(
    figure, key="triad", alt="Largest absolute Q over sweeps on a logarithmic axis, four ways of learning"
)
render_table(ways)
render_problem(problem, next(iter(ways.values()))[0])
