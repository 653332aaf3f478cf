"""Which trained model a page shows: a table at once, of a network one of its runs."""

from __future__ import annotations

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.interfaces import TrainedModel

from . import beside, parameters, state, work


def choose_learner(label: str) -> str:
    """The learner that pages show."""
    algorithm = shown_learner()
    st.selectbox(
        label,
        list(orl.ALGORITHMS),
        format_func=lambda name: orl.ALGORITHMS[name].menu_title,
        **state.bound("shown", algorithm),
        width=420,
    )
    return algorithm


def shown_learner() -> str:
    """The one that was chosen, else naive FQI or, where it isn't among the learners on Train, the first of those."""
    learners = [name for name in state.get("learners").split(",") if name in orl.ALGORITHMS]
    chosen: str = state.get("shown")
    return chosen if chosen in orl.ALGORITHMS else "fqi" if "fqi" in learners or not learners else learners[0]


def trained_models(dataset: Dataset, algorithm: str) -> list[TrainedModel]:
    """The model of a table, at once; of a slow learner every run that is done, by seed.

    Raises:
        OffRLError: it can't be trained on this log; the sentence says why.
    """
    if orl.ALGORITHMS[algorithm].instant:
        return [work.trained(dataset, algorithm, state.get("seed"), **parameters.parameters_of(algorithm))]
    return beside.finished_models(dataset, algorithm)


def trained_model(dataset: Dataset, algorithm: str) -> TrainedModel | None:
    """One of them, chosen by its seed where there are several; where there is none, None, and what to do is said.

    Raises:
        OffRLError: as :func:`trained_models`.
    """
    done = {model.seed: model for model in trained_models(dataset, algorithm)}
    if not done:
        st.info(_why_none(dataset, algorithm))
    if len(done) < 2:
        return next(iter(done.values()), None)
    seed = st.segmented_control(
        "Seed", list(done), default=next(iter(done)), key=f"w:seed_of:{algorithm}", required=True
    )
    return done.get(seed) or next(iter(done.values()))


def _why_none(dataset: Dataset, algorithm: str) -> str:
    title = orl.ALGORITHMS[algorithm].title
    if any(run.unfinished for run in beside.training_of(dataset, algorithm).runs()):
        return f"{title} is being trained: the page Train shows how far it is. Once it is done, it is shown here."
    return (
        f"{title} takes a while: train it on the page Train, and it is shown here. Runs belong to their budget, seeds and "
        "parameters."
    )
