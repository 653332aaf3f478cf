"""A policy followed through its world or its log, once for all visitors."""

from __future__ import annotations

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.shift import Compounding, Shift
from offrl_core.interfaces import TrainedModel

from . import work


def shifted(dataset: Dataset, model: TrainedModel, deployment: str, min_count: int) -> Shift:
    """:func:`offrl_core.distribution_shift`, once."""
    return _shifted(work.policy_key(dataset, model), deployment, min_count, dataset, model)


@st.cache_resource(show_spinner="Following the policy…", max_entries=64, ttl="2h")
def _shifted(key: str, deployment: str, min_count: int, _dataset: Dataset, _model: TrainedModel) -> Shift:
    return orl.distribution_shift(_dataset, _model.policy, deployment, min_count)


def slipped(dataset: Dataset, model: TrainedModel, slip: float, deployment: str) -> Compounding:
    """:func:`offrl_core.compounding_error`, once."""
    return _slipped(work.policy_key(dataset, model), slip, deployment, dataset, model)


@st.cache_resource(show_spinner=False, max_entries=256, ttl="2h")
def _slipped(key: str, slip: float, deployment: str, _dataset: Dataset, _model: TrainedModel) -> Compounding:
    return orl.compounding_error(_dataset, _model.policy, slip, deployment=deployment)
