"""SCOPE-RL's estimators on given arrays, in a process of its own. Run by the interpreter that has scope_rl.

Only its file of basic estimators is loaded: what the package imports beside it (gym, an old d3rlpy) takes no part in them.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "is": "TrajectoryWiseImportanceSampling",
    "wis": "SelfNormalizedTIS",
    "pdis": "PerDecisionImportanceSampling",
    "wpdis": "SelfNormalizedPDIS",
    "fqe": "DirectMethod",
    "dr": "DoublyRobust",
    "wdr": "SelfNormalizedDR",
}


class Absent(types.ModuleType):
    """Stands for a module that isn't needed: any name in it is some class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def basic_estimators() -> Any:
    """The module, without its package around it."""
    found = importlib.util.find_spec("scope_rl")
    assert found is not None, "this interpreter has no scope_rl"
    assert found.submodule_search_locations, "scope_rl is a package"
    root = Path(next(iter(found.submodule_search_locations)))
    for name in ("gym", "d3rlpy", "d3rlpy.preprocessing", "torch", "scope_rl.types"):
        sys.modules[name] = Absent(name)
    for name, folder in (
        ("scope_rl", root),
        ("scope_rl.ope", root / "ope"),
        ("scope_rl.ope.discrete", root / "ope/discrete"),
    ):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    return importlib.import_module("scope_rl.ope.discrete.basic_estimators")


def main() -> None:
    """Arrays from the file that is named; values and seconds as JSON."""
    estimators = basic_estimators()
    with np.load(sys.argv[1]) as arrays:
        n_bootstrap, gamma = int(arrays["n_bootstrap"]), float(arrays["gamma"])
        given = {
            name: arrays[name] for name in arrays.files if name not in ("n_bootstrap", "gamma", "step_per_trajectory")
        }
        given |= {"step_per_trajectory": int(arrays["step_per_trajectory"]), "gamma": gamma}
    made = {name: getattr(estimators, title)() for name, title in NAMES.items()}
    began = time.perf_counter()
    values = {name: float(estimator.estimate_policy_value(**given)) for name, estimator in made.items()}
    points = time.perf_counter() - began
    began = time.perf_counter()
    for estimator in made.values():
        estimator.estimate_interval(**given, n_bootstrap_samples=n_bootstrap, random_state=0)
    print(json.dumps({"values": values, "points": points, "intervals": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
