"""Why there is no number: refused estimates, each reason once."""

from __future__ import annotations

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.interfaces import TrainedModel

from . import layout, work


def render_refusals(dataset: Dataset, models: dict[str, TrainedModel | None]) -> None:
    """Why an estimate is missing, each reason once."""
    reasons: dict[str, list[str]] = {}
    for algorithm, model in models.items():
        if model is not None and (reason := work.estimated(dataset, model).refusal):
            reasons.setdefault(reason, []).append(orl.ALGORITHMS[algorithm].short)
    for reason, learners in reasons.items():
        st.caption(f":material/block: No estimate for {', '.join(learners)}: {layout.plain(reason, 600)}")
