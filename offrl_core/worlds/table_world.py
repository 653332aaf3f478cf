"""A world made of a table that somebody else wrote: for each state and action, what may follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..arrays import FloatArray
from ..behavior_policies import TableBehavior
from ..mdp import Successors, TabularMDP, value_iteration
from . import Transition, reachable_states

Outcomes = Sequence[Transition]
DISCOUNT = 0.99


class TableWorld:
    """States are numbers, nothing is hidden, and there are no tasks.

    Attributes:
        outcomes: (state, action name) -> what may follow; a pair that isn't there is invalid, gives -1 and ends.
        starts: state -> probability.
        goals: states in which an ended episode counts as solved.
        keys: state -> its name.
    """

    discount = DISCOUNT

    def __init__(
        self,
        name: str,
        deployment: str,
        *,
        action_names: tuple[str, ...],
        outcomes: Mapping[tuple[int, str], Outcomes],
        starts: Mapping[int, float],
        goals: frozenset[int],
        key_of: Callable[[int], str],
        goal: str,
        lost_state: int = -1,
    ) -> None:
        """Take the table; ``goal`` says what there is to do, ``lost_state`` is where an invalid action leads."""
        self.name, self.deployment, self.action_names = name, deployment, action_names
        self.outcomes, self.starts, self.goals = outcomes, starts, goals
        self._key_of, self._goal = key_of, goal
        self._valid: dict[int, tuple[str, ...]] = {}
        for state, action in outcomes:
            self._valid[state] = (*self._valid.get(state, ()), action)
        self._invalid = [Transition(1.0, lost_state, -1.0, terminal=True)]

    def initial_states(self) -> list[tuple[float, int]]:
        """(probability, state) of every start."""
        return [(probability, state) for state, probability in self.starts.items()]

    def actions(self, state: int) -> tuple[str, ...]:
        """Names of the valid actions."""
        return self._valid[state]

    def transitions(self, state: int, action: str) -> list[Transition]:
        """Everything that can happen."""
        return list(self.outcomes.get((state, action), self._invalid))

    def state_key(self, state: int) -> str:
        """The name of the state."""
        return self._key_of(state)

    def task(self, state: int) -> None:
        """There is one thing to do, and no tasks."""

    def succeeded(self, state: int) -> bool:
        """Whether an ended episode reached what it is about."""
        return state in self.goals

    def features(self, state: int) -> FloatArray:
        """(S,) one-hot state."""
        one_hot = np.zeros(1 + max(state for state, _ in self.outcomes))
        one_hot[state] = 1.0
        return one_hot

    def user_goal(self, state: int) -> str:
        """The request as text."""
        return self._goal

    def observation(self, action: str, next_state: int) -> str:
        """Where the step led."""
        return "solved" if next_state in self.goals else self._key_of(next_state)


def one_per_successor(outcomes: Outcomes) -> list[Transition]:
    """Outcomes that differ in probability only are one; what can't happen is left out."""
    merged: dict[tuple[int, float, bool], float] = {}
    for probability, state, reward, terminal in outcomes:
        key = (int(state), float(reward), bool(terminal))
        merged[key] = merged.get(key, 0.0) + float(probability)
    return [Transition(p, *rest) for rest, p in merged.items() if p > 0]


def optimal_behavior(world: TableWorld, random_probability: float, *, discount: float | None = None) -> TableBehavior:
    """The best policy of a table world with so much noise, as an agent that writes logs; of equals it takes the first."""
    states = reachable_states(world)
    index = {state: i for i, state in enumerate(states)}
    rewards = np.full((len(world.action_names), len(states)), -np.inf)
    edges: list[tuple[int, int, int, float]] = []
    for (state, action), outcomes in world.outcomes.items():
        if state not in index:
            continue
        s, a = index[state], world.action_names.index(action)
        rewards[a, s] = sum(o.probability * o.reward for o in outcomes)
        edges += [(s, a, index[o.next_state], o.probability) for o in outcomes if not o.terminal]
    from_states, actions, next_states, probabilities = np.array(edges, dtype=float).reshape(-1, 4).T
    successors = Successors(
        len(states),
        len(world.action_names),
        states=from_states.astype(np.int64),
        actions=actions.astype(np.int64),
        next_states=next_states.astype(np.int64),
        probabilities=probabilities,
    )
    mdp = TabularMDP(rewards=rewards, successors=successors)
    sweeps = value_iteration(mdp, world.discount if discount is None else discount, start=np.zeros(len(states)))
    *_, (q_values, _) = sweeps
    near = q_values >= q_values.max(axis=0) - 1e-9  # equals differ in the last digit on other machines
    table = {world.state_key(state): {world.action_names[near[:, s].argmax()]: 1.0} for s, state in enumerate(states)}
    return TableBehavior(probabilities=table, random_probability=random_probability)
