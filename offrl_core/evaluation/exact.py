"""Truth: what a policy is worth in a world, by enumerating the full hidden state. Nothing here is sampled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..behavior import behavior_policy
from ..behavior_policies import AnyBehavior
from ..errors import NotPossible
from ..mdp import Successors, TabularMDP, discounted_sums, policy_chain, policy_values, value_iteration
from ..policies import Policy, TabularPolicy, action_places, table_of, uniform_policy
from ..worlds import WORLDS, World, make_world, reachable_states
from .occupancy import event_probability

_Cell = TypeVar("_Cell", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTruth:
    """Truth on one task: probability of solving it, and mean discounted return."""

    success_rate: float
    mean_return: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Exact worth of a policy in a world under one deployment.

    Attributes:
        world, deployment: where.
        success_rate: probability that an episode solves its task.
        mean_return: expected discounted return from the start, reward units.
        by_task: the same, task by task; empty in a world without tasks.
        unseen_state_rate: probability that an episode meets a state key the policy was never trained on.
    """

    world: str
    deployment: str
    success_rate: float
    mean_return: float
    by_task: Mapping[str, TaskTruth]
    unseen_state_rate: float


class WorldModel:
    """A world under one deployment, enumerated.

    Attributes:
        world: the world.
        states: F full states that valid actions can reach.
        keys: K state keys, in order of first appearance; ``key_index`` (F,) maps states to them.
        mdp: over full states, with every action, valid or not.
        successes: (A, F) probability that the action ends the episode solved.
        costs: (A, F) expected price of the step, where it doesn't end the episode: its negative reward, as a positive number.
        starts: (F,) start probabilities.
        valid_mask: (K, A).
    """

    def __init__(self, world: World) -> None:
        """Enumerate breadth first."""
        self.world = world
        self.states = reachable_states(world)
        index = {state: i for i, state in enumerate(self.states)}
        keys: dict[str, int] = {}
        self.key_index = np.array([keys.setdefault(world.state_key(state), len(keys)) for state in self.states])
        self.keys = tuple(keys)
        self.starts = np.zeros(len(self.states))
        for probability, state in world.initial_states():
            self.starts[index[state]] += probability
        self.tasks = np.array([world.task(state) for state in self.states])
        self.valid_mask = np.zeros((len(keys), len(world.action_names)), dtype=bool)
        for state, key in zip(self.states, self.key_index, strict=True):
            self.valid_mask[key, [world.action_names.index(a) for a in world.actions(state)]] = True
        self.mdp, self.successes, self.costs = self._enumerate(index)

    def _enumerate(self, index: dict[Any, int]) -> tuple[TabularMDP, FloatArray, FloatArray]:
        world, shape = self.world, (len(self.world.action_names), len(self.states))
        rewards, successes, costs = np.zeros((3, *shape))
        edges: list[tuple[int, int, int, float]] = []
        for s, state in enumerate(self.states):
            for a, action in enumerate(world.action_names):
                for probability, next_state, reward, terminal in world.transitions(state, action):
                    rewards[a, s] += probability * reward
                    if terminal:
                        successes[a, s] += probability * world.succeeded(next_state)
                    else:
                        costs[a, s] += probability * max(-reward, 0.0)
                        edges.append((s, a, self._index_of(index, next_state, action), probability))
        # A world of one step has no edges, hence the shape.
        states, actions, next_states, probabilities = np.array(edges, dtype=float).reshape(-1, 4).T
        successors = Successors(
            shape[1],
            shape[0],
            states=states.astype(np.int64),
            actions=actions.astype(np.int64),
            next_states=next_states.astype(np.int64),
            probabilities=probabilities,
        )
        return TabularMDP(rewards=rewards, successors=successors), successes, costs

    @staticmethod
    def _index_of(index: dict[Any, int], state: Any, action: str) -> int:
        if state not in index:
            raise NotPossible(f"the invalid action {action} leads to a state that valid actions never reach: {state}")
        return index[state]

    def probabilities(self, policy: TabularPolicy) -> FloatArray:
        """(A, F) action probabilities of a policy on the full states; uniform over the valid at keys it doesn't know.

        Raises:
            NotPossible: the policy has an action that the world doesn't know.
        """
        table = self.valid_mask / self.valid_mask.sum(axis=1, keepdims=True)
        columns = action_places(policy, self.world.action_names, f"the world {self.world.name}")
        for k, key in enumerate(self.keys):
            row = policy.row(key)
            if row is not None:
                table[k] = 0.0
                table[k, columns] = policy.probabilities[row]
        return np.ascontiguousarray(table[self.key_index].T)

    def optimum(self, discount: float) -> tuple[FloatArray, FloatArray]:
        """What an agent that sees the full states can get at best with valid actions: (F,) values, and (A, F) of each action,
        valid or not, if valid ones follow. Reward units.
        """
        valid = self.valid_mask[self.key_index].T
        process = replace(self.mdp, rewards=np.where(valid, self.mdp.rewards, -np.inf))
        *_, (q_values, _) = value_iteration(process, discount, start=np.zeros(len(self.states)))
        v_values = q_values.max(axis=0)
        return v_values, self.mdp.backup(v_values, discount)

    def on_states(
        self, table: NDArray[_Cell], states: Sequence[str], actions: Sequence[str], *, missing: Any
    ) -> NDArray[_Cell]:
        """(A, F) cells of an (S, A) table over state keys, on the full states; ``missing`` where it says nothing.

        Args:
            table: (S, A) by the keys and actions that follow.
            states: S keys; some may be unknown here.
            actions: A names; some may be unknown here.
            missing: the cell of a key or an action that the table doesn't have.
        """
        rows = {key: s for s, key in enumerate(states)}
        row_of = np.array([rows.get(key, -1) for key in self.keys])
        by_key = np.full((len(self.keys), len(self.world.action_names)), missing, dtype=table.dtype)
        for a, action in enumerate(self.world.action_names):
            if action in actions:
                by_key[row_of >= 0, a] = table[row_of[row_of >= 0], list(actions).index(action)]
        return np.ascontiguousarray(by_key[self.key_index].T)

    def visits(self, probabilities: FloatArray) -> FloatArray:
        """(F,) expected number of times an episode stands in each full state."""
        onward = policy_chain(self.mdp, probabilities).T.tocsr()
        return discounted_sums(onward, self.starts, 1.0)


@lru_cache(maxsize=32)
def world_model(world: str, deployment: str = "works") -> WorldModel:
    """The enumerated world, made once.

    Raises:
        UnknownName: no such world or deployment.
    """
    return WorldModel(make_world(world, deployment))


def evaluate(policy: Policy, world: str, deployment: str = "works", discount: float | None = None) -> Truth:
    """Exact worth of a policy.

    Args:
        policy: over state keys.
        world: name in :data:`offrl_core.worlds.WORLDS`.
        deployment: which hidden truth.
        discount: γ; the world's own by default.

    Raises:
        NotPossible: the policy is no table over states, or has an action that the world doesn't know.
    """
    model, policy = world_model(world, deployment), table_of(policy, "Exact values")
    discount = model.world.discount if discount is None else discount
    probabilities = model.probabilities(policy)
    returns = policy_values(model.mdp, probabilities, discount)
    solved = policy_values(model.mdp, probabilities, 1.0, rewards=model.successes)
    by_task = {}
    for task in WORLDS[world].tasks:
        share = model.starts * (model.tasks == task)
        share = share / share.sum()
        by_task[task] = TaskTruth(success_rate=float(share @ solved), mean_return=float(share @ returns))
    unseen = np.array([not policy.knows(key) for key in model.keys])[model.key_index]
    return Truth(
        world=world,
        deployment=deployment,
        success_rate=float(model.starts @ solved),
        mean_return=float(model.starts @ returns),
        by_task=by_task,
        unseen_state_rate=event_probability(
            model.mdp, model.starts, probabilities, np.broadcast_to(unseen, probabilities.shape)
        ),
    )


def behavior_truth(
    behavior: AnyBehavior, world: str, deployment: str = "works", discount: float | None = None
) -> Truth:
    """Exact worth of the agent or the agents that write a log: the mean over the agents, by their shares.

    Args:
        behavior: of a world's log, ``log.source.behavior``.
        world: name in :data:`offrl_core.worlds.WORLDS`.
        deployment: which hidden truth.
        discount: γ; the world's own by default.
    """
    arena = make_world(world, deployment)
    truths = [
        (part.share, evaluate(behavior_policy(arena, part.behavior), world, deployment, discount))
        for part in behavior.parts("")
    ]
    return Truth(
        world=world,
        deployment=deployment,
        success_rate=sum(share * truth.success_rate for share, truth in truths),
        mean_return=sum(share * truth.mean_return for share, truth in truths),
        by_task={
            task: TaskTruth(
                success_rate=sum(share * truth.by_task[task].success_rate for share, truth in truths),
                mean_return=sum(share * truth.by_task[task].mean_return for share, truth in truths),
            )
            for task in truths[0][1].by_task
        },
        unseen_state_rate=0.0,
    )


def return_distribution(
    policy: Policy, world: str, deployment: str = "works", discount: float | None = None, max_steps: int = 1000
) -> dict[float, float]:
    """Exact distribution of the discounted return: return -> probability, rising.

    For a policy that looks back, every past is followed by itself, so this is for worlds of few and short episodes.

    Raises:
        NotPossible: the policy has an action that the world doesn't know.
        ArithmeticError: after ``max_steps`` steps more than 1e-12 of the episodes still go on.
    """
    model = world_model(world, deployment)
    discount = model.world.discount if discount is None else discount
    arena = model.world
    action_places(policy, arena.action_names, f"the world {world}")
    going: dict[tuple[Any, Any, float], float] = {
        (state, policy.begin(arena.state_key(state)), 0.0): p for p, state in arena.initial_states()
    }
    ended: defaultdict[float, float] = defaultdict(float)
    for step in range(max_steps):
        following: defaultdict[tuple[Any, Any, float], float] = defaultdict(float)
        choices = policy.choices([past for _, past, _ in going], [arena.actions(state) for state, _, _ in going])
        for ((state, past, so_far), mass), choice in zip(going.items(), choices, strict=True):
            for action, chosen in choice.items():
                for probability, next_state, reward, terminal in arena.transitions(state, action):
                    total = round(so_far + discount**step * reward, 12)
                    share = mass * chosen * probability
                    if terminal:
                        ended[total] += share
                    else:
                        now = policy.after(past, action, reward, arena.state_key(next_state))
                        following[next_state, now, total] += share
        going = following
        if sum(going.values()) <= 1e-12:
            return dict(sorted(ended.items()))
    raise ArithmeticError(f"after {max_steps} steps {sum(going.values()):.3g} of the episodes still go on")


def true_q_values(
    policy: Policy,
    world: str,
    deployment: str = "works",
    *,
    states: Sequence[str],
    actions: Sequence[str],
    behavior: TabularPolicy | None = None,
    discount: float | None = None,
) -> FloatArray:
    """Exact Q of a policy over state keys: take the action once, then follow the policy.

    One key may stand for several full states. They are averaged as the log meets them: by the expected visits of the
    ``behavior`` policy, and of uniform valid play where that one never comes. So on supported pairs learned and exact
    values differ by sampling and by what the key hides, and on unsupported pairs by extrapolation.

    Returns:
        (S, A) reward units; NaN for keys that this deployment can't reach and for actions the world doesn't have.

    Raises:
        NotPossible: the policy is no table over states.
    """
    model = world_model(world, deployment)
    discount = model.world.discount if discount is None else discount
    probabilities = model.probabilities(table_of(policy, "Exact values"))
    values = policy_values(model.mdp, probabilities, discount)
    return KeyView(model, states, actions, behavior).table(model.mdp.backup(values, discount))


def optimal_q_values(
    world: str,
    deployment: str = "works",
    *,
    states: Sequence[str],
    actions: Sequence[str],
    behavior: TabularPolicy | None = None,
    discount: float | None = None,
) -> FloatArray:
    """Exact Q* of the full hidden state over valid actions, averaged over keys as in :func:`true_q_values`.

    It belongs to an agent that sees what policies here don't, so it is an upper bound for those that keep to valid actions.
    """
    model = world_model(world, deployment)
    _, q_values = model.optimum(model.world.discount if discount is None else discount)
    return KeyView(model, states, actions, behavior).table(q_values)


class KeyView:
    """A world as seen through state keys: averages over the full states behind each key, as the log meets them.

    What doesn't depend on the values is worked out once, so that many tables cost little.
    """

    def __init__(
        self, model: WorldModel, states: Sequence[str], actions: Sequence[str], behavior: TabularPolicy | None
    ) -> None:
        """Pick keys and actions.

        Args:
            model: the enumerated world.
            states: S state keys.
            actions: A action names.
            behavior: whose visits weigh the full states of a key; uniform valid play by default, and where it never comes.
        """
        uniform = uniform_policy(model.keys, model.world.action_names, model.valid_mask)
        self._model, self._shape = model, (len(states), len(actions))
        self._weights = _key_weights(model, [behavior or uniform, uniform])
        keys = {key: k for k, key in enumerate(model.keys)}
        names = {action: a for a, action in enumerate(model.world.action_names)}
        self._rows = [s for s, key in enumerate(states) if key in keys]
        self._columns = [a for a, action in enumerate(actions) if action in names]
        self._cut = np.ix_([keys[states[s]] for s in self._rows], [names[actions[a]] for a in self._columns])

    def table(self, q_values: FloatArray) -> FloatArray:
        """(S, A) means of the (A, F) values; NaN for keys the world can't reach and for actions it doesn't have."""
        n_keys = len(self._model.keys)
        by_key = np.vstack(
            [np.bincount(self._model.key_index, self._weights * row, minlength=n_keys) for row in q_values]
        ).T
        table = np.full(self._shape, np.nan)
        table[np.ix_(self._rows, self._columns)] = by_key[self._cut]
        return table


def _key_weights(model: WorldModel, policies: Sequence[TabularPolicy]) -> FloatArray:
    """(F,) weights that sum to 1 within each key, from the first policy that visits the key at all."""
    weights, settled = np.zeros(len(model.states)), np.zeros(len(model.keys), dtype=bool)
    for policy in policies:
        visits = model.visits(model.probabilities(policy))
        totals = np.bincount(model.key_index, visits, minlength=len(model.keys))
        fresh: IntArray = np.flatnonzero(~settled & (totals > 0))
        use = np.isin(model.key_index, fresh)
        weights[use] = (visits / np.where(totals > 0, totals, 1.0)[model.key_index])[use]
        settled[fresh] = True
    return weights
