"""Why there is no number: learners that can't be trained and refused estimates, each reason once."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.interfaces import TrainedModel

from . import layout, work


def render_blocked(blocked: Iterable[tuple[str, str]]) -> None:
    """Why learners have no model: a box for each reason, with all the learners it holds for.

    Args:
        blocked: short title of a learner and its reason.
    """
    reasons: dict[str, list[str]] = {}
    for learner, reason in dict.fromkeys(blocked):
        reasons.setdefault(reason, []).append(learner)
    for reason, learners in reasons.items():
        *others, last = learners
        layout.error(f"{', '.join(others)} and {last}: {reason}" if others else f"{last}: {reason}")


def render_refusals(dataset: Dataset, models: dict[str, TrainedModel | None]) -> None:
    """Why an estimate is missing, each reason once."""
    reasons: dict[str, list[str]] = {}
    for algorithm, model in models.items():
        if model is not None and (reason := work.estimated(dataset, model).refusal):
            reasons.setdefault(reason, []).append(orl.ALGORITHMS[algorithm].short)
    for reason, learners in reasons.items():
        st.caption(f":material/block: No estimate for {', '.join(learners)}: {layout.plain(reason, 600)}")
