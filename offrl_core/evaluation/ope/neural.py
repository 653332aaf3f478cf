"""Values of a policy by networks, for the estimators that take values: the direct method and the doubly robust ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...algorithms.fqe_neural import FqeNeuralConfig, judge_seeds
from ...arrays import FloatArray
from ...dataset import Dataset
from ...errors import NotPossible
from ...params import check_seed, make_config
from ...policies import TabularPolicy
from .case import aligned


def neural_q_values(
    policy: TabularPolicy, dataset: Dataset, *, seeds: Sequence[int] = (0,), **parameters: Any
) -> FloatArray:
    """Fitted Q evaluation with small networks, one per seed, trained as one batch.

    Their mean goes into an estimate, their spread says how far they agree::

        q_values = orl.neural_q_values(policy, dataset, seeds=range(5))
        orl.estimate(policy, dataset, "dr", q_values=q_values.mean(axis=0))

    Args:
        policy: the evaluation policy.
        dataset: the log that judges.
        seeds: of the networks.
        **parameters: fields of :class:`offrl_core.algorithms.fqe_neural.FqeNeuralConfig`.

    Returns:
        (K, S, A) reward units; NaN for actions that are never valid in a state.

    Raises:
        NotPossible: PyTorch is missing, no reward is known, or values left the finite numbers.
        InvalidConfig: a parameter it doesn't have, or out of range.
    """
    config = make_config(FqeNeuralConfig, parameters, "fqe_neural")
    judging = judge_seeds(dataset, aligned(policy, dataset), config, seeds=[check_seed(seed) for seed in seeds])
    while True:
        try:
            next(judging)
        except StopIteration as finished:
            models = finished.value
            break
    problem = next((model.problem for model in models if model.problem), "")
    if problem:
        raise NotPossible(f"Fitted Q evaluation with a network: {problem} Try a smaller learning_rate.")
    return np.stack([model.q_values for model in models])
