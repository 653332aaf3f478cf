"""ICU-Sepsis: treating sepsis in intensive care, 716 states and 25 actions estimated from real hospital records.

The table comes with the package ``icu-sepsis``; only its data files are read, so none of what it depends on is needed. The
reward is 1 for survival and 0 else, so with discount 1 the value of a policy is the probability to survive. In most states
the records show few of the 25 treatments often enough; the published world lets every other one act as an even mix of
those. Here only those are valid, and an invalid one ends the episode with -1 (the package's strategy "terminate"). Random
and best values are the same either way, and so is the clinicians' (``expert``): what they put on the others is spread evenly.

It must not be used to draw conclusions about medical practice.

Source: Choudhary, Gupta & Thomas (2024), "ICU-Sepsis: a benchmark MDP built from real medical data", arXiv:2406.05646.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..behavior_policies import TableBehavior
from ..errors import NotPossible
from . import BehaviorSpec, DeploymentSpec, Transition, WorldSpec
from .table_world import TableWorld, optimal_behavior

N_LEVELS = 5  # of fluids and of vasopressors each; the files do not say which of the two comes first
DEATH, SURVIVAL = 713, 714
INSTALL = "pip install --no-deps 'icu-sepsis>=2.0.1'"


class _Files(NamedTuple):
    """What is read of the package's files; states before DEATH are patients under treatment."""

    chances: dict[tuple[int, int], FloatArray]  # (state, action) -> (716,) probability of each next state
    starts: FloatArray  # (716,)
    expert: FloatArray  # (716, 25)


def action_name(action: int) -> str:
    """Both doses, each from 0 to 4."""
    return f"doses {action // N_LEVELS}, {action % N_LEVELS}"


def key_of(state: int) -> str:
    """The name of a state."""
    return {DEATH: "died", SURVIVAL: "survived"}.get(state, f"patient {state}")


@lru_cache(maxsize=1)
def _files() -> _Files:
    found = importlib.util.find_spec("icu_sepsis")
    places = (found.submodule_search_locations or ()) if found else ()
    folder = next((path for path in (Path(place, "envs", "assets") for place in places) if path.is_dir()), None)
    if folder is None:
        raise NotPossible(f"The package icu-sepsis holds no table; install it anew: {INSTALL}")
    _, *lines = (folder / "admissible_actions.txt").read_text(encoding="utf-8").splitlines()
    with np.load(folder / "dynamics.npz", allow_pickle=False) as arrays:
        table = arrays["tx_mat"]
        chances = {(s, int(a)): table[s, int(a)].copy() for s in range(DEATH) for a in lines[s].split()}
        return _Files(chances, arrays["d_0"], arrays["expert_policy"])


@lru_cache(maxsize=1)
def icu_sepsis(deployment: str = "works") -> TableWorld:
    """The world; it has one deployment."""
    files = _files()
    outcomes = {}
    for (state, action), chances in files.chances.items():
        following = np.flatnonzero(chances)
        shares = chances[following] / chances.sum()  # the file's sums are off by 1e-15
        outcomes[state, action_name(action)] = [
            Transition(p, s, float(s == SURVIVAL), terminal=s >= DEATH)
            for s, p in zip(following.tolist(), shares.tolist(), strict=True)
        ]
    return TableWorld(
        "icu_sepsis",
        deployment,
        action_names=tuple(map(action_name, range(N_LEVELS**2))),
        outcomes=outcomes,
        starts={s: p for s, p in enumerate(files.starts.tolist()) if p > 0},
        goals=frozenset({SURVIVAL}),
        key_of=key_of,
        goal="Keep the patient alive.",
        lost_state=DEATH,
    )


def expert() -> TableBehavior:
    """The clinicians, as estimated from the records; what they did too rarely is spread evenly over the valid actions."""
    files = _files()
    valid: dict[int, list[int]] = {}
    for state, action in files.chances:
        valid.setdefault(state, []).append(action)
    table = {}
    for state, actions in valid.items():
        row = files.expert[state]
        row = row[actions] + (row.sum() - row[actions].sum()) / len(actions)
        row = row / row.sum()
        table[key_of(state)] = {action_name(a): p for a, p in zip(actions, row.tolist(), strict=True) if p > 0}
    return TableBehavior(probabilities=table)


SPEC: WorldSpec = WorldSpec(
    name="icu_sepsis",
    title="ICU-Sepsis",
    summary="Treating sepsis, estimated from hospital records: 716 states, 25 doses. Not for medical conclusions.",
    make=icu_sepsis,
    deployments={"works": DeploymentSpec("works", "the published transition table")},
    behaviors={
        "logger": BehaviorSpec("treats as the clinicians did", expert),
        "best": BehaviorSpec("treats best", lambda: optimal_behavior(icu_sepsis(), 0.0, discount=1.0)),
        "uniform": BehaviorSpec("acts at random", lambda: TableBehavior(random_probability=1.0)),
    },
    package="icu_sepsis",
    install=INSTALL,
)
