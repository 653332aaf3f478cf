"""Parameters of the learners in the link: "cql.conservative_weight=2,...", and the shared guess, support bound and budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import offrl_core as orl
from offrl_core.errors import InvalidConfig
from offrl_core.params import make_config

from . import state


def parameters_of(algorithm: str) -> dict[str, Any]:
    """Parameters a visitor has set for a learner; the shared guess for never-seen pairs is one of them."""
    spec = orl.ALGORITHMS[algorithm]
    known = spec.config_class.__dataclass_fields__
    chosen: dict[str, Any] = {"default_value": state.get("guess")} if "default_value" in known else {}
    if "min_count" in known:
        chosen["min_count"] = state.get("min_count")
    if "n_steps" in known:
        chosen["n_steps"] = state.get("budget")
    chosen.update(set_parameters(algorithm))
    return chosen


def check_parameters() -> None:
    """Leave out the parameters of a link that no learner would take, and say so."""
    if not state.get("params"):
        return
    for name, spec in orl.ALGORITHMS.items():
        try:
            make_config(spec.config_class, set_parameters(name), name)
        except InvalidConfig as error:
            state.warn(f"{error} The parameters of this link were left out; the defaults are used.")
            state.put("params", "")


def set_parameters(algorithm: str) -> Mapping[str, Any]:
    """The part of the field ``params`` that belongs to a learner: "cql.conservative_weight=2,..."."""
    found: dict[str, Any] = {}
    for part in state.get("params").split(","):
        owner_and_name, _, text = part.partition("=")
        owner, _, name = owner_and_name.partition(".")
        if owner == algorithm and text:
            try:
                found[name] = float(text)
            except ValueError:
                found[name] = text
    return found


def set_parameter(algorithm: str, name: str, value: Any) -> None:
    """Write one parameter into the field ``params``; shared ones go to their own field."""
    if name == "default_value":
        state.put("guess", float(value))
        return
    if name == "min_count":
        state.put("min_count", int(value))
        return
    if name == "n_steps":
        state.put("budget", int(value))
        return
    parts = dict(part.split("=", 1) for part in state.get("params").split(",") if "=" in part)
    default = orl.ALGORITHMS[algorithm].config_class.__dataclass_fields__[name].default
    parts.pop(f"{algorithm}.{name}", None)
    if value != default:
        parts[f"{algorithm}.{name}"] = str(value)
    state.put("params", ",".join(f"{key}={text}" for key, text in parts.items()))
