"""Continuous actions, small enough to see all of it: a world, logs that cover a part of its actions, three learners, the truth.

    from offrl_core.continuous import Habit, PointWorld, collect, evaluate, train_point

    log = collect(PointWorld(), Habit(low=-0.5, high=0.5), n_episodes=400, seed=0)
    model = train_point(log, "td3_bc", seed=0)
    evaluate(PointWorld("spins"), model.policy).mean_value

Everything else here has discrete actions, so this part stands by itself. Its networks are
so small that NumPy trains them; no PyTorch is needed.
"""

from __future__ import annotations

from typing import Any

from ..errors import UnknownName
from ..params import check_seed, make_config
from . import cql_continuous, ddpg, td3_bc
from .exact import ExactValues, evaluate, solve
from .learning import PointConfig, PointLearnerSpec, PointModel, PointProgress, PointTraining
from .log import Habit, PointLog, collect
from .slices import Sliced
from .world import DEPLOYMENTS, PointWorld

__all__ = [
    "DEPLOYMENTS",
    "ExactValues",
    "Habit",
    "LEARNERS",
    "PointConfig",
    "PointLearnerSpec",
    "PointLog",
    "PointModel",
    "PointProgress",
    "PointTraining",
    "PointWorld",
    "Sliced",
    "collect",
    "evaluate",
    "solve",
    "start_point_training",
    "train_point",
]

LEARNERS: dict[str, PointLearnerSpec] = {
    "ddpg": ddpg.SPEC,
    "td3_bc": td3_bc.SPEC,
    "cql_continuous": cql_continuous.SPEC,
}


def start_point_training(log: PointLog, learner: str, *, seed: int = 0, **parameters: Any) -> PointTraining:
    """The generator of a learner; pull it for progress, close it to stop.

    Raises:
        UnknownName: no such learner.
        InvalidConfig: a parameter it doesn't have, or out of range.
    """
    if learner not in LEARNERS:
        raise UnknownName("learner of continuous actions", learner, LEARNERS)
    spec = LEARNERS[learner]
    return spec.train(log, make_config(spec.config_class, parameters, learner), seed=check_seed(seed))


def train_point(log: PointLog, learner: str, *, seed: int = 0, **parameters: Any) -> PointModel:
    """Train to the end; see :func:`start_point_training`."""
    training = start_point_training(log, learner, seed=seed, **parameters)
    while True:
        try:
            next(training)
        except StopIteration as finished:
            model: PointModel = finished.value
            return model
