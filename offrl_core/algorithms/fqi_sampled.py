"""Fitted Q iteration as the calculator example first did it: one small step per row, in the order of the log.

Kept as the reference that the fast solver is held against. Its values carry the noise of a constant step size; its greedy
actions agree with the exact solution except in ties.

Source: Watkins & Dayan (1992), "Q-learning", equation (1), with a constant learning rate and the log replayed in order.

Differs: 1. replays a fixed log instead of acting. 2. The maximum runs over valid actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..params import param
from ..policies import TabularPolicy, greedy_probabilities
from .fields import NEVER_SEEN, default_value_param
from .ops import key_frame

ROWS_BETWEEN_SIGNS_OF_LIFE = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FqiSampledConfig:
    """Parameters of the row-by-row procedure."""

    learning_rate: float = param(
        0.25, label="Step size", help="Share of the way to each row's target.", low=0.001, high=1.0, step=0.05
    )
    n_sweeps: int = param(
        200,
        label="Passes over the log",
        help="Each row is visited once per pass.",
        low=1,
        high=2000,
        step=1,
        unit="sweeps",
    )
    default_value: float = default_value_param(NEVER_SEEN, "Where all values start; never-seen pairs stay there.")


def train(
    dataset: Dataset, config: FqiSampledConfig, *, seed: int, resume_from: Mapping[str, Any] | None = None
) -> Training:
    """Replay the rows; plain Python lists, because one update at a time is what the procedure is."""
    del seed  # the order of the log is fixed
    require_rewards(dataset)
    rows = dataset.transitions()
    usable = ~rows.timeouts & ~np.isnan(rows.rewards)
    replay = list(
        zip(
            rows.observations[usable].tolist(),
            rows.actions[usable].tolist(),
            rows.rewards[usable].tolist(),
            rows.next_observations[usable].tolist(),
            strict=True,
        )
    )
    valid_actions = [np.flatnonzero(mask).tolist() for mask in dataset.valid_mask]
    q_table = [[config.default_value] * dataset.n_actions for _ in dataset.states]
    n_sweeps_done, n_rows_done, largest = 0, 0, 0.0
    if resume_from:
        q_table = resume_from["q_values"].tolist()
        n_sweeps_done, n_rows_done, largest = (resume_from[name] for name in ("sweeps", "rows", "largest_error"))
    rate, discount = config.learning_rate, dataset.discount
    for sweep in range(n_sweeps_done + 1, config.n_sweeps + 1):
        for i, (state, action, reward, following) in enumerate(replay[n_rows_done:], start=n_rows_done + 1):
            target = reward
            if following >= 0:
                row = q_table[following]
                target += discount * max([row[a] for a in valid_actions[following]])
            error = target - q_table[state][action]
            q_table[state][action] += rate * error
            largest = max(largest, abs(error))
            if i % ROWS_BETWEEN_SIGNS_OF_LIFE == 0:
                now = {"q_values": np.array(q_table), "sweeps": sweep - 1, "rows": i, "largest_error": largest}
                yield Progress(step=sweep - 1, total=config.n_sweeps, metrics={"largest_error": largest}, state=now)
        values = np.array(q_table)
        frame = np.where(dataset.valid_mask, values, np.nan) if key_frame(sweep) else None
        now = {"q_values": values, "sweeps": sweep, "rows": 0, "largest_error": 0.0}
        yield Progress(step=sweep, total=config.n_sweeps, metrics={"largest_error": largest}, q_values=frame, state=now)
        n_rows_done, largest = 0, 0.0
    q_values = np.array(q_table)
    policy = TabularPolicy(
        states=dataset.states,
        actions=dataset.actions,
        probabilities=greedy_probabilities(q_values, dataset.valid_mask, dataset.valid_mask),
    )
    return TrainedModel(policy=policy, q_values=np.where(dataset.valid_mask, q_values, np.nan))


SPEC = AlgorithmSpec(
    name="fqi_sampled",
    title="Row-by-row FQI (the published procedure)",
    short="Row-by-row FQI",
    summary="Replays the log 200 times with a constant step size. Slow; the reference for the exact solver.",
    config_class=FqiSampledConfig,
    train=train,
    metrics={"largest_error": "largest difference between a row's target and its Q in the pass, reward units"},
    unit="sweep",
    equation=r"Q(s,a) \leftarrow Q(s,a) + \eta\,\big(r + \gamma \max_{a'\,valid} Q(s',a') - Q(s,a)\big)",
    source="Watkins & Dayan 1992, equation (1)",
    differs=("replays a fixed log in order", "the maximum runs over valid actions"),
    instant=False,
    resumable=True,
)
