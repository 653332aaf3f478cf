"""A learner's parameters as widgets, made from the metadata of its config; nothing about them is written twice."""

from __future__ import annotations

from typing import Any

import streamlit as st

import offrl_core as orl
from offrl_core.params import Param, config_values, params_of

from . import parameters, state


def render_form(algorithm: str) -> None:
    """Widgets for every parameter of a learner; a change is kept in the link."""
    spec = orl.ALGORITHMS[algorithm]
    values = {**config_values(spec.config_class()), **parameters.parameters_of(algorithm)}
    for name, about in params_of(spec.config_class).items():
        if name != "n_steps":  # the budget above, one for all
            _render_widget(algorithm, name, about, values[name])


def _render_widget(algorithm: str, name: str, about: Param, value: Any) -> None:
    key = f"w:{algorithm}.{name}"
    default = orl.ALGORITHMS[algorithm].config_class.__dataclass_fields__[name].default
    common = {"key": key, "help": about.tooltip, "on_change": _take, "args": (algorithm, name)}
    if about.choices:
        titles = dict(about.choices)
        state.set_widget(key, value if value in titles else default)
        st.selectbox(about.caption, list(titles), format_func=titles.get, **common)
        return
    kind = int if isinstance(default, int) else float
    try:
        number = min(max(kind(value), kind(about.low)), kind(about.high))
    except (TypeError, ValueError):
        number = default
    state.set_widget(key, number)
    step = kind(about.step or 1)
    decimals = None if kind is int else "%g"
    st.number_input(about.caption, kind(about.low), kind(about.high), step=step, format=decimals, **common)


def _take(algorithm: str, name: str) -> None:
    value = st.session_state[f"w:{algorithm}.{name}"]
    if value is not None:
        parameters.set_parameter(algorithm, name, value)
