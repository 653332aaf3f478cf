"""Which trained model a page shows: a table at once, of a network one of its runs."""

from __future__ import annotations

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.interfaces import TrainedModel

from . import beside, parameters, work


def trained_model(dataset: Dataset, algorithm: str) -> TrainedModel | None:
    """The model of a learner; of a slow one the chosen run among those that are done, None where none is."""
    if orl.ALGORITHMS[algorithm].instant:
        return work.trained(dataset, algorithm, **parameters.parameters_of(algorithm))
    done = {model.seed: model for model in beside.finished_models(dataset, algorithm)}
    if len(done) < 2:
        return next(iter(done.values()), None)
    seed = st.segmented_control(
        "Seed", list(done), default=next(iter(done)), key=f"w:seed_of:{algorithm}", required=True
    )
    return done.get(seed) or next(iter(done.values()))
