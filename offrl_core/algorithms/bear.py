r"""Stay near the log's mix of actions: the best policy within a distance of the behavior, in every state (after BEAR).

BEAR asks that the learned policy keeps to the *support* of the behavior, and tests it by the maximum mean discrepancy of
a few sampled actions, with a wide kernel over a continuous action space. Names of tools have no distance: a kernel can
only tell same from other, and with it the exact discrepancy is the Euclidean distance of the two rows of probabilities.
So what remains in a table is (a) actions the log never takes get probability 0 and (b)

    max_pi  sum_a pi(a|s) Q(s,a)   where   || pi(.|s) - pi_b(.|s) ||_2 <= distance.

That is a bound on the whole mix, not only on its support: from few samples and a wide kernel comes BEAR's leniency
towards rare actions, and a table has neither. The paper's support set "behavior probability at least epsilon" is what
``bcq`` (relative to the most frequent action) and ``fqi_support`` (in rows) do. At distance 0 this is the behavior
itself, from 1.4143 on it is ``fqi_support``.

Source: Kumar, Fu, Tucker & Levine (2019), "Stabilizing off-policy Q-learning via bootstrapping error reduction", NeurIPS,
section 5, equation (1).

Differs: 1. the discrepancy is exact and knows only same and other actions (see above). 2. The bound holds in every state,
not on average. 3. The constrained maximum is found exactly, and the backup uses it, where the paper takes gradient steps
with a multiplier, samples and an ensemble. 4. Solved to convergence on counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import settled_change
from ..params import param
from ..policies import TabularPolicy
from .fields import NOTHING_SEEN, UNTAUGHT, default_value_param, max_sweeps_param
from .ops import behavior_or_uniform, beyond_reach, expectation, key_frame, without_holes

SWEEPS_OF_ONE_POLICY = 20  # after the first 20 sweeps a policy is kept so long: finding it costs more than a sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class BearConfig:
    """Parameters of the policy within a distance."""

    distance: float = param(
        0.3,
        label="Distance from the log",
        help="How far a state's action probabilities may lie from those of the log (Euclidean): 0 copies it, 1.4143 is free.",
        symbol="ε",
        low=0.0,
        high=1.4143,
        step=0.05,
        source="Kumar et al. 2019, equation (1)",
    )
    default_value: float = default_value_param(NOTHING_SEEN, UNTAUGHT)
    max_sweeps: int = max_sweeps_param()


def train(dataset: Dataset, config: BearConfig, *, seed: int) -> Training:
    """Alternate between the best policy within the distance and its values."""
    del seed  # nothing is drawn
    require_rewards(dataset)
    behavior = behavior_or_uniform(dataset.behavior_probabilities, dataset.valid_mask)
    seen, start = behavior > 0, np.ascontiguousarray(behavior.T)
    mdp = without_holes(dataset.empirical_mdp(seen, config.default_value))
    v_values, policy = np.zeros(mdp.n_states), start
    change, converged = np.inf, False
    for sweep in range(1, config.max_sweeps + 1):
        q_values = mdp.backup(v_values, dataset.discount)
        improves = sweep <= 20 or sweep % SWEEPS_OF_ONE_POLICY == 0 or change <= settled_change(v_values)
        if improves:
            policy = best_within(start, q_values, config.distance)
        improved = expectation(policy, q_values)
        change = float(np.abs(improved - v_values).max())
        v_values = improved
        frame = np.where(seen, q_values.T, np.nan) if key_frame(sweep) else None
        beyond = beyond_reach(v_values, dataset.reward_range, dataset.discount)
        metrics = {"largest_change": change, "beyond_reach": beyond}
        yield Progress(step=sweep, total=config.max_sweeps, metrics=metrics, q_values=frame)
        converged = improves and change <= settled_change(v_values)
        if converged:
            break
    table = TabularPolicy(states=dataset.states, actions=dataset.actions, probabilities=np.ascontiguousarray(policy.T))
    return TrainedModel(policy=table, q_values=np.where(seen, q_values.T, np.nan), converged=converged)


def best_within(behavior: FloatArray, q_values: FloatArray, distance: float) -> FloatArray:
    """(A, S) distributions of largest mean Q, each at most so far (Euclidean) from its column of ``behavior``.

    They lie on the path of projections of behavior + t Q onto the distributions. The path is straight until a probability
    reaches 0, and an action that did stays out (its Q is below the mean of those left), so it has at most A pieces.

    Args:
        behavior: (A, S) columns sum to 1; where it is 0, the result is.
        q_values: (A, S) any value where ``behavior`` is 0.
        distance: at least 0.
    """
    policy, moving = behavior.copy(), np.arange(behavior.shape[1])
    active, q_values = behavior > 0, np.where(behavior > 0, q_values, 0.0)
    noise = 1e-12 * np.maximum(np.abs(q_values).max(axis=0), 1e-300)  # smaller differences are rounding, not preference
    for _ in range(len(behavior)):
        now, inside, q = policy[:, moving], active[:, moving], q_values[:, moving]
        direction = np.where(inside, q - (q * inside).sum(axis=0) / inside.sum(axis=0), 0.0)
        direction[:, np.abs(direction).max(axis=0) <= noise[moving]] = 0.0
        until_zero = np.full(now.shape, np.inf)
        np.divide(-now, direction, out=until_zero, where=direction < 0)
        until_far = _steps_to_the_ball(now - behavior[:, moving], direction, distance)
        steps = np.minimum(until_zero.min(axis=0), until_far)
        now += np.where(np.isfinite(steps), steps, 0.0) * direction
        leaving = (until_zero <= steps) & (steps < until_far)
        now[leaving] = 0.0
        policy[:, moving], active[:, moving] = now, inside & ~leaving
        moving = moving[leaving.any(axis=0)]
        if not len(moving):
            break
    policy = np.maximum(policy, 0.0)
    return policy / policy.sum(axis=0)


def _steps_to_the_ball(offset: FloatArray, direction: FloatArray, distance: float) -> FloatArray:
    """(S,) t at which offset + t direction has this length; infinite where there is no direction. Both (A, S)."""
    square, mixed = (direction**2).sum(axis=0), (offset * direction).sum(axis=0)
    missing = np.maximum(distance**2 - (offset**2).sum(axis=0), 0.0)
    steps = np.full(len(square), np.inf)
    np.divide(np.sqrt(mixed**2 + square * missing) - mixed, square, out=steps, where=square > 0)
    return np.maximum(steps, 0.0)


SPEC = AlgorithmSpec(
    name="bear",
    title="Best value near the log's mix (BEAR, discrete)",
    short="Near the log (BEAR)",
    summary="Shifts the log's action probabilities towards better values, by a bounded distance in every state.",
    config_class=BearConfig,
    train=train,
    metrics={
        "largest_change": "largest change of a state value in the sweep, reward units",
        "beyond_reach": "how far state values lie outside what discounted rewards can add up to, reward units",
    },
    unit="sweep",
    equation=r"\pi(\cdot \mid s) = \arg\max_{\lVert p - \pi_b(\cdot \mid s) \rVert_2 \le \varepsilon} \sum_a p(a)\, Q(s,a)",
    source="Kumar et al. 2019, section 5, equation (1)",
    differs=(
        "the discrepancy is exact and tells only same from other actions, so it bounds the whole mix, not only its support",
        "the bound holds in every state, not on average",
        "the constrained maximum is exact, in the backup too; no multiplier, samples or ensemble",
        "solved to convergence on counts",
    ),
)
