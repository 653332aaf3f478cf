"""Config fields that several learners share: declared once, so that they read, range and check alike."""

from __future__ import annotations

from typing import Any

from ..params import param

NEVER_SEEN = "Value of never-seen pairs"
NOTHING_SEEN = "Value where nothing was seen"
UNTAUGHT = "Used for seen pairs that teach no value, and in states without any row."

_COMPETING = {"valid": "valid actions", "supported": "actions the log shows", "all": "all actions, valid or not"}


def default_value_param(label: str, help: str, source: str = "") -> Any:
    """Field for the value that a learner assumes where the log teaches none; what that covers differs by learner."""
    return param(
        0.0,
        label=label,
        help=help,
        symbol="Q₀",
        low=-1000.0,
        high=1000.0,
        step=0.05,
        unit="reward units",
        source=source,
    )


def maximum_param(*choices: str) -> Any:
    """Field for the actions that a maximum runs over, of those that ``ops.competing_pairs`` knows."""
    return param(
        "valid",
        label="Maximum runs over",
        help="Actions that compete for the best value of a state, and for being picked.",
        choices=tuple((name, _COMPETING[name]) for name in choices),
    )


def max_sweeps_param(help: str = "Sweeps stop earlier, when the values stand still (to 12 digits).") -> Any:
    """Field for the bound of an iteration that ends by itself."""
    return param(
        5000,
        label="At most so many sweeps",
        help=help,
        low=1,
        high=100_000,
        step=1,
        unit="sweeps",
    )


def expectile_param() -> Any:
    """Field for the expectile of logged values that stands for a state."""
    return param(
        0.7,
        label="Expectile",
        help="Which logged value stands for a state: 0.5 is the mean of the log's choices, towards 1 their best.",
        symbol="τ",
        low=0.001,
        high=0.999,
        step=0.05,
        source="Kostrikov et al. 2022, equation (5)",
    )


def temperature_param(default: float, symbol: str, source: str) -> Any:
    """Field for how much an advantage counts when the log is copied."""
    return param(
        default,
        label="Temperature",
        help="How much better an action must be to be copied e times as often; high is the log's mix, low its best.",
        symbol=symbol,
        low=0.001,
        high=1000.0,
        step=0.1,
        unit="reward units",
        source=source,
    )


def max_weight_param(help: str) -> Any:
    """Field for the bound of the weights with which the log is copied."""
    return param(100.0, label="Largest weight", help=help, low=1.0, high=1_000_000.0, step=1.0)
