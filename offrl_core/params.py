"""Parameters as data: the metadata of a config field is the one source of widget, range, tooltip, docs and check."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from .errors import InvalidConfig

LARGEST_SEED = 2**63 - 1  # every generator in use takes it


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """What a person needs to know about one parameter.

    ``low``, ``high`` and ``step`` bound numbers (inclusive); ``choices`` lists (value, label) pairs instead.
    """

    label: str
    help: str
    symbol: str = ""
    low: float | None = None
    high: float | None = None
    step: float | None = None
    unit: str = ""
    source: str = ""
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def caption(self) -> str:
        """Label with symbol and, unless the label names it, unit; as widgets show it."""
        text = self.label
        if self.symbol:
            text += f" {self.symbol}"
        return f"{text} ({self.unit})" if self.unit and self.unit not in self.label.lower() else text

    @property
    def tooltip(self) -> str:
        """Help with its source."""
        return f"{self.help} Source: {self.source}" if self.source else self.help


def param(default: Any, **about: Any) -> Any:
    """Declare a config field with its :class:`Param`."""
    return field(default=default, metadata={"param": Param(**about)})


def params_of(config_class: type) -> dict[str, Param]:
    """Name -> :class:`Param` of every field of a config class, in the order of its definition."""
    return {f.name: f.metadata["param"] for f in dataclasses.fields(config_class)}


def make_config(config_class: type, values: Mapping[str, Any], owner: str) -> Any:
    """Build a config from given values, checking names, types and ranges.

    Whole floats count as integers, so that values from links and sliders need no conversion.

    Raises:
        InvalidConfig: an unknown name, a wrong type, a value outside its range, NaN or infinity.
    """
    about = params_of(config_class)
    for name in values:
        if name not in about:
            known = ", ".join(about) or "none"
            raise InvalidConfig(f"{owner} has no parameter called {name!r}. It has: {known}.")
    defaults = {f.name: f.default for f in dataclasses.fields(config_class)}
    checked = {name: _checked(owner, name, value, defaults[name], about[name]) for name, value in values.items()}
    return config_class(**checked)


def _checked(owner: str, name: str, value: Any, default: Any, about: Param) -> Any:
    if about.choices:
        allowed = [choice for choice, _ in about.choices]
        if value not in allowed:
            raise InvalidConfig(f"{owner}: {name} is {value!r}; it must be one of {', '.join(allowed)}.")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidConfig(f"{owner}: {name} is {value!r}; it must be a finite number.")
    if isinstance(default, int) and value != int(value):
        raise InvalidConfig(f"{owner}: {name} is {value!r}; it must be a whole number.")
    low, high = about.low, about.high
    if (low is not None and value < low) or (high is not None and value > high):
        raise InvalidConfig(f"{owner}: {name} is {value!r}; it must lie between {low} and {high}.")
    return int(value) if isinstance(default, int) else float(value)


def check_seed(seed: Any) -> int:
    """A seed as every learner takes it: a whole number of Python; NumPy's are turned into one.

    Raises:
        InvalidConfig: it isn't a whole number from 0 to 2**63 - 1.
    """
    is_whole = isinstance(seed, Integral) and not isinstance(seed, bool)
    if not is_whole or not 0 <= int(seed) <= LARGEST_SEED:
        # Python refuses to write very long numbers down.
        shown = "larger" if is_whole and int(seed) > LARGEST_SEED else "negative" if is_whole else repr(seed)[:40]
        raise InvalidConfig(f"The seed is {shown}; it must be a whole number from 0 to 2**63 - 1.")
    return int(seed)


def config_values(config: Any) -> dict[str, Any]:
    """All fields of a config as a plain dict, for links, hashes and tables."""
    return dataclasses.asdict(config)
