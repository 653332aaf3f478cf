"""The learners, by name. To add one: copy the nearest file, write docstring, config, ``train`` and ``SPEC``, add a line."""

from __future__ import annotations

from ..errors import UnknownName
from ..interfaces import AlgorithmSpec
from . import (
    awac_neural,
    awr,
    bc_neural,
    bcq,
    bcq_neural,
    bear,
    behavior_cloning,
    cql,
    cql_neural,
    decision_transformer,
    filtered_bc,
    fqi,
    fqi_neural,
    fqi_sampled,
    fqi_support,
    iql,
    iql_neural,
    kl_regularized,
    mopo,
    morel,
    pessimistic_vi,
    return_conditioned,
    spibb,
)

ALGORITHMS: dict[str, AlgorithmSpec] = {
    "bc": behavior_cloning.SPEC,
    "fqi": fqi.SPEC,
    "fqi_support": fqi_support.SPEC,
    "cql": cql.SPEC,
    "bcq": bcq.SPEC,
    "bear": bear.SPEC,
    "iql": iql.SPEC,
    "awr": awr.SPEC,
    "kl_regularized": kl_regularized.SPEC,
    "spibb": spibb.SPEC,
    "pessimistic_vi": pessimistic_vi.SPEC,
    "mopo": mopo.SPEC,
    "morel": morel.SPEC,
    "filtered_bc": filtered_bc.SPEC,
    "return_conditioned": return_conditioned.SPEC,
    "fqi_sampled": fqi_sampled.SPEC,
    "bc_neural": bc_neural.SPEC,
    "fqi_neural": fqi_neural.SPEC,
    "cql_neural": cql_neural.SPEC,
    "bcq_neural": bcq_neural.SPEC,
    "iql_neural": iql_neural.SPEC,
    "awac_neural": awac_neural.SPEC,
    "decision_transformer": decision_transformer.SPEC,
}


def algorithm_spec(name: str) -> AlgorithmSpec:
    """The registry entry of a learner.

    Raises:
        UnknownName: there is none of that name.
    """
    if name not in ALGORITHMS:
        raise UnknownName("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]
