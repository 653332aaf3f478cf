"""Off-policy estimates: 1,000 bootstrap intervals of all estimators, and SCOPE-RL's own code on the same arrays.

The peer is found through ``OFFRL_SCOPE_RL``, the path of a Python that has scope_rl 0.2.1; without it its lines are left out.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.ope import estimate_all, point_values
from offrl_core.evaluation.ope.case import Case
from offrl_core.importers.report import ImportReport
from offrl_core.log import Log
from offrl_core.policies import TabularPolicy
from offrl_core.schema import steps_table

from .measure import Line, duration, faster, interleaved, seconds_of

VARIABLE = "OFFRL_SCOPE_RL"
PEER = Path(__file__).with_name("scope_rl_peer.py")
PEER_ESTIMATORS = ("is", "wis", "pdis", "wpdis", "fqe", "dr", "wdr")
GAMMA, N_BOOTSTRAP = 0.9, 1000


class Problem(NamedTuple):
    """Random episodes of equal length, and a policy to judge on them."""

    dataset: Dataset
    policy: TabularPolicy
    q_values: np.ndarray  # (S, A) on the dataset's states and actions
    arrays: dict[str, Any]  # as SCOPE-RL takes them


def problem(n_episodes: int, length: int, n_states: int = 6, n_actions: int = 3, seed: int = 0) -> Problem:
    """Random dynamics, behavior and evaluation policy, with the behavior's probabilities in the log."""
    rng = np.random.default_rng(seed)
    behavior, judged = (rng.dirichlet(np.full(n_actions, 2.0), n_states) for _ in range(2))
    follows = rng.dirichlet(np.ones(n_states), (n_states, n_actions)).cumsum(axis=2)
    states, actions = np.zeros((2, n_episodes, length), dtype=np.int64)
    here = rng.integers(n_states, size=n_episodes)
    for t in range(length):
        states[:, t] = here
        actions[:, t] = np.minimum(
            (rng.random(n_episodes)[:, None] > behavior[here].cumsum(axis=1)).sum(axis=1), n_actions - 1
        )
        drawn = rng.random(n_episodes)[:, None] > follows[here, actions[:, t]]
        here = np.minimum(drawn.sum(axis=1), n_states - 1)
    rewards, chosen = rng.normal(size=states.shape), behavior[states, actions]
    rows = [
        {
            "episode_id": f"e{i:05d}",
            "t": t,
            "state_text": f"s{states[i, t]}",
            "action": f"a{actions[i, t]}",
            "reward": float(rewards[i, t]),
            "terminal": t == length - 1,
            "timeout": False,
            "action_logprob": math.log(chosen[i, t]),
        }
        for i in range(n_episodes)
        for t in range(length)
    ]
    log = Log(steps_table(rows), name="random", fingerprint="2" * 16, source=None, report=ImportReport())
    dataset = orl.frame(log, orl.Framing(state="state_text", discount=GAMMA))
    names = tuple(f"a{a}" for a in range(n_actions))
    policy = TabularPolicy(states=tuple(f"s{s}" for s in range(n_states)), actions=names, probabilities=judged)
    q_values = rng.normal(size=(n_states, n_actions))
    ours = np.ix_([int(key[1:]) for key in dataset.states], [int(name[1:]) for name in dataset.actions])
    arrays = {
        "step_per_trajectory": length,
        "action": actions.ravel(),
        "reward": rewards.ravel(),
        "pscore": chosen.ravel(),
        "evaluation_policy_action_dist": judged[states].reshape(-1, n_actions),
        "state_action_value_prediction": q_values[states].reshape(-1, n_actions),
        "gamma": GAMMA,
        "n_bootstrap": N_BOOTSTRAP,
    }
    return Problem(dataset, policy, q_values[ours], arrays)


def peer_answer(arrays: dict[str, Any]) -> dict[str, Any] | None:
    """Values and seconds of SCOPE-RL; None where there is no interpreter for it."""
    python = os.environ.get(VARIABLE)
    if not python:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arrays.npz"
        np.savez(path, **arrays)
        done = subprocess.run([python, str(PEER), str(path)], capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def our_values(given: Problem) -> dict[str, float]:
    """Our estimates with the values that the peer gets, too."""
    return point_values(Case(given.policy, given.dataset, given.q_values), PEER_ESTIMATORS)


def estimator_lines() -> list[Line]:
    """Intervals of all estimators; points and intervals beside the peer's."""
    small = orl.frame(orl.bundled_log("calculator"))
    policy = orl.train(small, "bc").policy
    (all_nine,) = interleaved([lambda: estimate_all(policy, small, n_bootstrap=N_BOOTSTRAP)], 3)
    lines = [
        Line(
            f"{N_BOOTSTRAP:,} bootstrap intervals of all nine estimators, 3,000 episodes of the bundled log",
            duration(all_nine),
            bar="≤ 2 s",
            met=all_nine <= 2,
        )
    ]
    given = problem(3000, 10)
    answer = peer_answer(given.arrays)
    if answer is None:
        return [*lines, Line("the same arrays in SCOPE-RL's own code", f"not measured: set {VARIABLE}")]
    values = our_values(given)
    apart = max(abs(values[name] - answer["values"][name]) for name in PEER_ESTIMATORS)
    (points,) = interleaved([lambda: our_values(given)], 5)
    intervals = seconds_of(
        lambda: estimate_all(
            given.policy, given.dataset, PEER_ESTIMATORS, n_bootstrap=N_BOOTSTRAP, q_values=given.q_values
        )
    )
    seven = f"seven estimators, {len(given.arrays['action']):,} steps"
    return [
        *lines,
        Line(f"{seven}: largest difference from SCOPE-RL", f"{apart:.1e}", bar="≤ 1e-6", met=apart <= 1e-6),
        faster(f"{seven}: estimates", points, answer["points"], "SCOPE-RL", 1),
        faster(f"{seven}: {N_BOOTSTRAP:,} bootstrap intervals", intervals, answer["intervals"], "SCOPE-RL", 1),
    ]
