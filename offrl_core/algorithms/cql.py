r"""Conservative Q-learning in a table: push down what the log doesn't show, and solve it to the end.

Each iteration fixes the Bellman target y = r + gamma P max Q and then minimises, state by state and exactly,

    sum_a w(s,a) (Q(s,a) - y(s,a))^2 / 2  +  alpha ( log sum_a exp Q(s,a) - sum_a pi_b(a|s) Q(s,a) )

over the valid actions, where w(s,a) is the share of the state's rows with that action. The problem is strictly convex;
Newton's method solves all states at once (the Hessian is a diagonal minus a rank-one term, so a step costs one division).

The minimiser moves with the targets by a row-stochastic matrix: the Hessian H = diag(w + alpha p) - alpha p p' is an
M-matrix with H 1 = w. So the outer iteration contracts by gamma in the largest norm, as Q iteration does, and converges.

Source: Kumar, Zhou, Tucker & Levine (2020), "Conservative Q-learning for offline reinforcement learning", NeurIPS,
equation (4), variant CQL(H).

Differs: 1. solved to convergence, where the paper takes gradient steps. 2. A pair without rows has no Bellman term, and the
penalty alone would push it to minus infinity; it is held to ``default_value`` with the weight of ``anchor_count`` rows.
3. The penalty's weight is per row of the state, so that n(s) rows and n(s) times the penalty balance alike everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import BoolArray, FloatArray
from ..dataset import Dataset
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training, require_rewards
from ..mdp import settled_change
from ..params import param
from ..policies import TabularPolicy, greedy_probabilities
from .fields import NEVER_SEEN, default_value_param
from .ops import key_frame, masked_softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class CqlConfig:
    """Parameters of tabular conservative Q-learning."""

    conservative_weight: float = param(
        1.0,
        label="Caution",
        help="Weight of the penalty on actions the log rarely shows; 0 is plain fitted Q iteration.",
        symbol="α",
        low=0.0,
        high=100.0,
        step=0.05,
        source="Kumar et al. 2020, equation (4)",
    )
    default_value: float = default_value_param(
        NEVER_SEEN, "What never-seen pairs are held to before the penalty pushes them down."
    )
    anchor_count: float = param(
        1.0,
        label="Weight of that value",
        help="As many rows as the default value of a never-seen pair weighs; smaller lets the penalty push further.",
        low=0.001,
        high=1000.0,
        step=0.1,
        unit="rows",
    )
    max_iterations: int = param(
        2000,
        label="At most so many iterations",
        help="Iterations stop earlier, when the values stand still (to 11 digits).",
        low=1,
        high=100_000,
        step=1,
        unit="iterations",
    )


def train(dataset: Dataset, config: CqlConfig, *, seed: int) -> Training:
    """Alternate between Bellman targets and the exact minimum of the penalised fit."""
    del seed  # nothing is drawn
    require_rewards(dataset)
    # Actions first from here to the end, as in the process.
    valid = np.ascontiguousarray(dataset.valid_mask.T)
    behavior = np.ascontiguousarray(dataset.behavior_probabilities.T)
    rows = np.maximum(dataset.visitation_counts.sum(axis=1), 1)
    weights = np.where(dataset.value_counts > 0, dataset.value_counts, config.anchor_count).T / rows
    mdp = dataset.empirical_mdp(dataset.valid_mask, config.default_value)
    q_values = np.where(valid, config.default_value, 0.0)
    converged = False
    for iteration in range(1, config.max_iterations + 1):
        v_values = np.where(valid, q_values, -np.inf).max(axis=0)
        targets = np.where(valid, mdp.backup(v_values, dataset.discount), 0.0)
        fitted = penalised_fit(targets, weights, behavior, valid, config.conservative_weight, start=q_values)
        change = float(np.abs(fitted - q_values).max())
        q_values = fitted
        frame = np.where(valid, q_values, np.nan).T if key_frame(iteration) else None
        penalty = masked_softmax(q_values, valid)[1] - (behavior * q_values).sum(axis=0)
        metrics = {"largest_change": change, "penalty": float(penalty.mean())}
        yield Progress(step=iteration, total=config.max_iterations, metrics=metrics, q_values=frame)
        converged = change <= 10 * settled_change(q_values)
        if converged:
            break
    policy = TabularPolicy(
        states=dataset.states,
        actions=dataset.actions,
        probabilities=greedy_probabilities(q_values.T, dataset.valid_mask, dataset.valid_mask),
    )
    return TrainedModel(policy=policy, q_values=np.where(valid, q_values, np.nan).T, converged=converged)


def penalised_fit(
    targets: FloatArray,
    weights: FloatArray,
    behavior_probabilities: FloatArray,
    valid: BoolArray,
    conservative_weight: float,
    *,
    start: FloatArray,
) -> FloatArray:
    """(A, S) exact minimiser of the penalised fit of every state, by damped Newton steps.

    All arguments are (A, S); ``weights`` must be positive on valid pairs. States without rows (behavior probabilities all
    0) have nothing to be compared with and keep their targets.
    """
    if conservative_weight == 0:
        return np.where(valid, targets, 0.0)
    alpha = conservative_weight
    logged = behavior_probabilities.any(axis=0)
    active = valid & logged
    pull = np.where(active, weights, 0.0)
    weights = np.where(active, weights, 1.0)

    def look(q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Softmax (A, S) and loss (S,)."""
        softmax, logsumexp = masked_softmax(q, active)
        gap = np.where(logged, logsumexp, 0.0) - (behavior_probabilities * q).sum(axis=0)
        return softmax, (pull * (q - targets) ** 2).sum(axis=0) / 2 + alpha * gap

    q_values = np.where(active, start, np.where(valid, targets, 0.0))
    softmax, loss = look(q_values)
    # Values of 1e16, say, leave a gradient of rounding errors that no step makes smaller.
    settled = 1e-13 * (1 + alpha) + 4 * np.finfo(float).eps * pull * np.maximum(np.abs(q_values), np.abs(targets))
    for _ in range(100):
        gradient = pull * (q_values - targets) + alpha * (softmax - behavior_probabilities)
        if (np.abs(gradient) <= settled).all():
            break
        diagonal = weights + alpha * softmax
        scaled, ratio = gradient / diagonal, softmax / diagonal
        # Sherman-Morrison; the denominator is sum(w p / (w + alpha p)) > 0 where anything is active.
        denominator = np.maximum((weights * ratio).sum(axis=0), np.finfo(float).tiny)
        newton = scaled + alpha * ratio * ((softmax * scaled).sum(axis=0) / denominator)
        step = np.ones(len(loss))
        decrease = (gradient * newton).sum(axis=0)
        for _ in range(40):
            proposed = q_values - step * newton
            softmax, there = look(proposed)
            # Near the minimum the loss can't resolve the decrease any more; the full step is right there.
            bad = (there > loss - 1e-4 * step * decrease) & (decrease > 1e-12 * (1 + np.abs(loss)))
            if not bad.any():
                break
            step[bad] /= 2
        q_values, loss = proposed, there
    return q_values


SPEC = AlgorithmSpec(
    name="cql",
    title="Be careful beyond the log (CQL)",
    short="Careful (CQL)",
    summary="Fitted Q iteration with a penalty that lowers what the log rarely shows.",
    config_class=CqlConfig,
    train=train,
    metrics={
        "largest_change": "largest change of a Q value in the iteration, reward units",
        "penalty": "mean over states of logsumexp Q minus the logged mean of Q, reward units",
    },
    unit="iteration",
    equation=r"\min_Q \tfrac12 \mathbb{E}_D[(Q - y)^2] + \alpha\, \mathbb{E}_D[\log\textstyle\sum_a e^{Q(s,a)} - Q(s,a_D)]",
    source="Kumar et al. 2020, equation (4), CQL(H)",
    differs=(
        "solved to convergence instead of gradient steps",
        "never-seen pairs are anchored at the default value, else the penalty would push them to minus infinity",
        "the penalty weighs per row of the state",
    ),
)
