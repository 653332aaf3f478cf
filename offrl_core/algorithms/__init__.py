"""The learners, by name. To add one: copy the nearest file, write docstring, config, ``train`` and ``SPEC``, add a line."""

from __future__ import annotations

from ..errors import UnknownName
from ..interfaces import AlgorithmSpec
from . import behavior_cloning, cql, fqi, fqi_sampled, fqi_support

ALGORITHMS: dict[str, AlgorithmSpec] = {
    "bc": behavior_cloning.SPEC,
    "fqi": fqi.SPEC,
    "fqi_support": fqi_support.SPEC,
    "cql": cql.SPEC,
    "fqi_sampled": fqi_sampled.SPEC,
}


def algorithm_spec(name: str) -> AlgorithmSpec:
    """The registry entry of a learner.

    Raises:
        UnknownName: there is none of that name.
    """
    if name not in ALGORITHMS:
        raise UnknownName("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]
