"""The guess Q₀ for pairs without data, on pages that show one learner: asked for where the learner takes it."""

from __future__ import annotations

import streamlit as st

import offrl_core as orl
from offrl_core.params import params_of

from . import state


def takes_guess(algorithm: str) -> bool:
    """Whether the learner is told what pairs without data are worth."""
    return "default_value" in params_of(orl.ALGORITHMS[algorithm].config_class)


def render_guess(algorithm: str) -> None:
    """The number, for learners that take it."""
    if takes_guess(algorithm):
        st.number_input(
            "Guess Q₀",
            -1000.0,
            1000.0,
            step=0.05,
            **state.bound("guess"),
            width=160,
            help="Value the learners give to pairs without data.",
        )


def render_why_none(algorithm: str) -> None:
    """Why a learner with values isn't told a guess."""
    if takes_guess(algorithm):
        return
    makes_up = "a network makes up a value of its own for pairs without data."
    own_rule = "this learner's own rule says what pairs without data are worth to it."
    why = own_rule if orl.ALGORITHMS[algorithm].instant else makes_up
    st.caption(f":material/info: There is no guess Q₀ to set: {why}")
