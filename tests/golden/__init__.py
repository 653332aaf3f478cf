"""Every true value that the product claims, computed anew and compared with ``thesis.json``.

After a wanted change: ``python -m tests.golden`` writes the file, and the diff shows what moved.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import offrl_core as orl
from offrl_core.behavior import BEHAVIORS, behavior_policy
from offrl_core.dataset import Dataset
from offrl_core.evaluation.diagnostics import aliasing
from offrl_core.interfaces import TrainedModel
from offrl_core.policies import TabularPolicy
from offrl_core.worlds import WORLDS, make_world

PATH = Path(__file__).with_name("thesis.json")
SEED = 42
LOGS = {"with_mul": "logger", "without_mul": "logger_without_mul"}
DEPLOYMENTS = tuple(WORLDS["calculator"].deployments)
CHOICE = "mul: x, y known"


@cache
def dataset_of(log: str, seed: int = SEED) -> Dataset:
    """3,000 episodes of a published kind of log, framed by its preset."""
    return orl.frame(orl.collect("calculator", LOGS[log], n_episodes=3000, seed=seed))


@cache
def trained(log: str, learner: str, seed: int = SEED) -> TrainedModel:
    """A learner with its defaults on a log; the run itself has seed 0."""
    return orl.train(dataset_of(log, seed), learner)


def logger_of(log: str) -> TabularPolicy:
    """The policy that wrote the log."""
    return behavior_policy(make_world("calculator"), BEHAVIORS[LOGS[log]])


def success_on_mul(default_value: float, log: str = "without_mul") -> float:
    """Exact success on mul tasks of naive FQI that takes never-seen pairs to be worth so much."""
    model = orl.train(dataset_of(log), "fqi", default_value=default_value)
    return orl.evaluate(model.policy, "calculator").by_task["mul"].success_rate


@cache
def jump_of_the_dial(low: float = -2.0, high: float = 0.0) -> float:
    """The default value at which naive FQI starts to multiply, by bisection."""
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (low, middle) if success_on_mul(middle) > 0.5 else (middle, high)
    return high


def best_seen_value(log: str = "without_mul") -> float:
    """Largest Q at the choice on mul tasks among the pairs the log shows."""
    model = trained(log, "fqi_support")
    assert model.q_values is not None
    return float(max(q for q in model.q_values[model.policy.states.index(CHOICE)] if q == q))


def thesis() -> dict[str, Any]:
    """The table: exact values by log, learner and deployment, and what else is claimed of the two logs.

    Tables only: the last digits of a network depend on the processor, and a policy that looks back has no exact value. Both
    have oracles in tests of their own.
    """
    learners = [name for name, spec in orl.ALGORITHMS.items() if spec.instant or name == "fqi_sampled"]
    policies = {
        log: {"behavior": logger_of(log)} | {name: trained(log, name).policy for name in learners} for log in LOGS
    }
    return {
        "exact": {
            log: {name: {d: _worth(policy, d) for d in DEPLOYMENTS} for name, policy in by_name.items()}
            for log, by_name in policies.items()
        },
        "jump_of_the_dial": jump_of_the_dial(),
        "best_seen_value": best_seen_value(),
        "aliasing": {log: aliasing(dataset_of(log))._asdict() for log in LOGS},
        "shape": {log: _shape(dataset_of(log)) for log in LOGS},
    }


def _worth(policy: TabularPolicy, deployment: str) -> dict[str, float]:
    truth = orl.evaluate(policy, "calculator", deployment)
    return {
        "success_rate": truth.success_rate,
        "success_rate_on_mul": truth.by_task["mul"].success_rate,
        "mean_return": truth.mean_return,
        "unseen_state_rate": truth.unseen_state_rate,
    }


def _shape(dataset: Dataset) -> dict[str, int]:
    return {
        "episodes": dataset.n_episodes,
        "steps": dataset.n_transitions,
        "states": dataset.n_states,
        "supported_pairs": int(dataset.support_mask().sum()),
        "valid_pairs": int(dataset.valid_mask.sum()),
        "distinct_edges": len(dataset.edges.counts),
    }


def stored() -> dict[str, Any]:
    """The golden file."""
    return dict(json.loads(PATH.read_text(encoding="utf-8")))


def write() -> None:
    """Replace the golden file by what the code computes now."""
    PATH.write_text(json.dumps(thesis(), indent=2) + "\n", encoding="utf-8")
