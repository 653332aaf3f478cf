"""Small logs made by hand, random ones for properties, and independent recounts of what the core computes in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from offrl_core.algorithms import ALGORITHMS
from offrl_core.arrays import FloatArray
from offrl_core.dataset import Dataset
from offrl_core.importers.report import ImportReport
from offrl_core.log import Log
from offrl_core.policies import TabularPolicy
from offrl_core.schema import canonical_json, short_hash, steps_table

Row = dict[str, Any]

NEURAL = [name for name in ALGORITHMS if name.endswith("_neural")]  # held to their oracles in a file of their own
# What holds for any number of steps is tested with few.
FEW_STEPS: dict[str, dict[str, Any]] = {
    "fqi_sampled": {"n_sweeps": 5},
    "decision_transformer": {"n_steps": 5, "n_layers": 1, "batch_size": 8},
    **{name: {"n_steps": 40} for name in NEURAL},
}

# A log takes some 50 ms to load and frame, so few of them are drawn.
few_examples = settings(max_examples=15, suppress_health_check=list(HealthCheck))


def make_log(rows: Sequence[Row], name: str = "made by hand") -> Log:
    """A log of given steps, as an importer would hand it over."""
    return Log(
        steps_table(list(rows)),
        name=name,
        fingerprint=short_hash(canonical_json(list(rows))),
        source=None,
        report=ImportReport(),
    )


def episode(
    episode_id: str,
    *steps: tuple[Any, ...],
    terminal: bool | None = True,
    timeout: bool | None = False,
    **fields: Any,
) -> list[Row]:
    """Rows of an episode from (state, action, reward) triples; ``terminal`` and ``timeout`` describe its last step."""
    last = len(steps) - 1
    return [
        {
            "episode_id": episode_id,
            "t": t,
            "state_text": state,
            "action": action,
            "reward": reward,
            "terminal": terminal if t == last else (None if terminal is None else False),
            "timeout": timeout if t == last else (None if timeout is None else False),
            **fields,
        }
        for t, (state, action, reward) in enumerate(steps)
    ]


def policy_of(rows: dict[str, dict[str, float]], actions: Sequence[str]) -> TabularPolicy:
    """A policy from state -> action -> probability."""
    table = np.array([[row.get(action, 0.0) for action in actions] for row in rows.values()])
    return TabularPolicy(states=tuple(rows), actions=tuple(actions), probabilities=table)


# -- random logs ---------------------------------------------------------------------------------------------

REWARDS = (-1.0, -0.5, 0.0, 0.25, 1.0)


@st.composite
def random_rows(
    draw: st.DrawFn,
    *,
    states: Sequence[str] = ("s1", "s2", "s10"),
    actions: Sequence[str] = ("left", "right", "up"),
    unknown_rewards: bool = True,
    gaps: bool = True,
) -> list[Row]:
    """Steps of 1 to 5 episodes with every kind of ending, unknown rewards and gaps in t, in shuffled order."""
    rewards = st.sampled_from([*REWARDS, None] if unknown_rewards else REWARDS)
    flags = st.sampled_from([True, False, None])
    rows: list[Row] = []
    for e in range(draw(st.integers(1, 5))):
        t = 0
        for _ in range(draw(st.integers(1, 5))):
            rows.append(
                {
                    "episode_id": f"e{e}",
                    "t": t,
                    "task": draw(st.sampled_from(["a", "b", None])),
                    "state_text": draw(st.sampled_from(list(states))),
                    "action": draw(st.sampled_from(list(actions))),
                    "reward": draw(rewards),
                    "terminal": draw(flags),
                    "timeout": draw(flags),
                    "behavior_policy": draw(st.sampled_from(["old", "new"])),
                }
            )
            t += draw(st.sampled_from([1, 1, 1, 2])) if gaps else 1
    return list(draw(st.permutations(rows)))


def covering_log(seed: int, n_states: int = 5, n_actions: int = 3) -> Log:
    """A log of single steps that shows every pair of a random process several times, with several outcomes."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    pairs = [(s, a) for s in range(n_states) for a in range(n_actions) for _ in range(rng.integers(3, 8))]
    for i, (s, a) in enumerate(pairs):
        following, reward = int(rng.integers(n_states)), float(rng.normal())
        step = (f"s{s}", f"a{a}", reward)
        if rng.random() < 0.2:
            rows += episode(f"e{i}", step)
        else:  # the second step is cut off, so it teaches nothing and only shows where the first one led
            rows += episode(f"e{i}", step, (f"s{following}", f"a{a}", None), terminal=False, timeout=True)
    return make_log(rows)


# -- independent recounts ------------------------------------------------------------------------------------

GOES_ON, ENDED, CUT = 0, 1, 2


def framed_by_hand(rows: Iterable[Row]) -> list[Row]:
    """What framing should say of each step, in plain Python: ``next_state``, ``ending``, ``episode_return``."""
    rows = list(rows)
    by_episode: dict[str, list[Row]] = {}
    for row in rows:
        by_episode.setdefault(row["episode_id"], []).append(row)
    framed: dict[int, Row] = {}
    for steps in by_episode.values():
        steps.sort(key=lambda row: row["t"])
        rewards = [row["reward"] for row in steps]
        total = None if None in rewards else sum(rewards)
        for row, following in zip(steps, [*steps[1:], None], strict=True):
            ending = _ending(row, following)
            next_state = following["state_text"] if following and ending == GOES_ON else None
            framed[id(row)] = {**row, "next_state": next_state, "ending": ending, "episode_return": total}
    return [framed[id(row)] for row in rows]


def _ending(row: Row, following: Row | None) -> int:
    if row["terminal"]:
        return ENDED
    if following is not None:
        return GOES_ON if following["t"] == row["t"] + 1 and not row["timeout"] else CUT
    unknown = row["terminal"] is None and row["timeout"] is None
    return ENDED if unknown else CUT


def counts_by_name(dataset: Dataset) -> dict[tuple[str, str], int]:
    """(state, action) -> visits of a dataset, zeros left out."""
    counts = dataset.visitation_counts
    return {(dataset.states[s], dataset.actions[a]): int(counts[s, a]) for s, a in np.argwhere(counts)}


def empirical_process(dataset: Dataset) -> tuple[FloatArray, FloatArray]:
    """Dense mean rewards (S, A) and successor shares (S, A, S), row by row; every pair must be taught by some row."""
    rows = dataset.transitions()
    n_states, n_actions = dataset.n_states, dataset.n_actions
    sums, counts = np.zeros((n_states, n_actions)), np.zeros((n_states, n_actions))
    following = np.zeros((n_states, n_actions, n_states))
    columns = (rows.observations, rows.actions, rows.rewards, rows.next_observations, rows.timeouts)
    for s, a, reward, s2, cut in zip(*columns, strict=True):
        if cut or np.isnan(reward):
            continue
        counts[s, a] += 1
        sums[s, a] += reward
        if s2 >= 0:
            following[s, a, s2] += 1
    assert counts.all(), "the log doesn't teach every pair"
    return sums / counts, following / counts[:, :, None]


def exact_optimum(rewards: FloatArray, following: FloatArray, discount: float) -> FloatArray:
    """(S, A) Q* by policy iteration with one dense linear solve per policy."""
    rows = np.arange(len(rewards))
    policy = np.zeros(len(rewards), dtype=int)
    while True:
        chain = following[rows, policy]
        values = np.linalg.solve(np.eye(len(rewards)) - discount * chain, rewards[rows, policy])
        q_values = rewards + discount * following @ values
        better = q_values.argmax(axis=1)
        if np.allclose(q_values[rows, better], q_values[rows, policy], atol=1e-13, rtol=0):
            return q_values
        policy = better
