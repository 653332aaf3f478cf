"""What the learners of continuous actions share: nouns, common parameters, and batches. Each has its own training loop.

``train(log, config, *, seed, resume_from=None) -> Generator[PointProgress, None, PointModel]``, as the learners of tables: it
yields at least every 100 ms, stops when closed, draws from one generator made from the seed, and goes on from any state that
it reported, to the same bits. A state is dicts with text keys, numbers and NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..params import param
from .log import PointLog
from .networks import Adam, Network, Numbers, pairs

REPORT_STEPS = 20  # gradient steps between two signs of life: some 10 ms


@dataclass(frozen=True, slots=True, kw_only=True)
class PointConfig:
    """Parameters that every learner has."""

    n_steps: int = param(
        2000, label="Steps", help="Gradient steps.", low=1, high=100_000, step=500, unit="gradient steps"
    )
    learning_rate: float = param(
        2e-3, label="Learning rate", help="Step size of Adam.", symbol="η", low=1e-6, high=1.0, step=1e-4
    )
    hidden_size: int = param(
        32, label="Units per hidden layer", help="Width of each network.", low=1, high=512, step=16
    )
    batch_size: int = param(
        64, label="Rows per batch", help="Rows drawn for a step.", low=1, high=4096, step=32, unit="rows"
    )
    target_update_rate: float = param(
        0.05,
        label="Target follows by",
        help="Share of the way that the target networks move towards the learned ones at each step.",
        symbol="τ",
        low=0.0001,
        high=1.0,
        step=0.005,
        source="Lillicrap et al. 2016, algorithm 1",
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointModel:
    """A critic and an actor, as they stood at one moment."""

    critic: Network
    actor: Network
    critic_parameters: Numbers = field(repr=False)
    actor_parameters: Numbers = field(repr=False)

    def q_values(self, observations: FloatArray, actions: FloatArray) -> FloatArray:
        """Learned Q, reward units, for shapes that broadcast."""
        here, does = np.broadcast_arrays(observations, actions)
        seen = pairs(here.ravel(), does.ravel()).astype(self.critic_parameters.dtype)
        return self.critic(self.critic_parameters, seen).reshape(here.shape).astype(np.float64)

    def policy(self, observations: FloatArray) -> FloatArray:
        """(N,) action in each state."""
        seen = observations[:, None].astype(self.actor_parameters.dtype)
        return np.tanh(self.actor(self.actor_parameters, seen)).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointProgress:
    """A sign of life: how far, the metrics of the latest step, the model now, and the state to go on from.

    ``state`` may share the learner's own arrays, so it holds only until the learner goes on; ``model`` is a copy.
    """

    step: int
    total: int
    metrics: Mapping[str, float]
    model: PointModel
    state: Mapping[str, Any] = field(repr=False)


PointTraining = Generator[PointProgress, None, PointModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointLearnerSpec:
    """Registry entry of a learner; see :class:`offrl_core.interfaces.AlgorithmSpec` for what the fields mean."""

    name: str
    title: str
    short: str
    summary: str
    config_class: type
    train: Callable[..., PointTraining]
    metrics: Mapping[str, str]
    equation: str
    source: str
    differs: tuple[str, ...]


class Batch(NamedTuple):
    """Rows of the log, drawn with replacement, as float32."""

    observations: Numbers  # (B,)
    actions: Numbers
    rewards: Numbers
    next_observations: Numbers


class Rows:
    """A log to draw batches from."""

    def __init__(self, log: PointLog) -> None:
        """Take the columns."""
        columns = log.observations, log.actions, log.rewards, log.next_observations
        self._columns = np.stack(columns).astype(np.float32)

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """The next batch."""
        return Batch(*self._columns[:, rng.integers(self._columns.shape[1], size=size)])


class Part:
    """A network that learns: shape, parameters, target parameters, and optimiser."""

    def __init__(self, network: Network, config: PointConfig, rng: np.random.Generator) -> None:
        """Begin at random; the target begins equal."""
        self.network = network
        self.parameters = network.start(rng)
        self.target = self.parameters.copy()
        self._adam = Adam(len(self.parameters), config.learning_rate)
        self._rate = config.target_update_rate

    def descend(self, gradient: Numbers) -> None:
        """One step of the optimiser."""
        self._adam.descend(self.parameters, gradient)

    def follow(self) -> None:
        """The target moves towards the parameters."""
        self.target += self._rate * (self.parameters - self.target)

    @property
    def state(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "parameters": self.parameters,
            "target": self.target,
            "moments": self._adam.moments,
            "step": self._adam.step,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.parameters, self.target = state["parameters"].copy(), state["target"].copy()
        self._adam.moments, self._adam.step = state["moments"].copy(), int(state["step"])


class Bench:
    """What is on the bench of a training: the parts by name, the generator, and the number of steps done."""

    def __init__(self, parts: Mapping[str, Network], config: PointConfig, seed: int) -> None:
        """Make the parts in their order from the seed."""
        self.rng = np.random.default_rng(seed)
        self.parts = {name: Part(network, config, self.rng) for name, network in parts.items()}
        self.step, self._total = 0, config.n_steps

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go on from a state, if there is one."""
        if state is not None:
            self.step = int(state["step"])
            self.rng.bit_generator.state = state["generator"]
            for name, part in self.parts.items():
                part.restore(state["parts"][name])

    @property
    def due(self) -> bool:
        """Whether a sign of life is due."""
        return self.step % REPORT_STEPS == 0 or self.step == self._total

    def model(self, critic: str, actor: str) -> PointModel:
        """A copy of two parts as a model."""
        values, choice = self.parts[critic], self.parts[actor]
        return PointModel(
            critic=values.network,
            actor=choice.network,
            critic_parameters=values.parameters.copy(),
            actor_parameters=choice.parameters.copy(),
        )

    def progress(self, model: PointModel, metrics: Mapping[str, float]) -> PointProgress:
        """A sign of life."""
        state = {
            "step": self.step,
            "generator": self.rng.bit_generator.state,
            "parts": {name: part.state for name, part in self.parts.items()},
        }
        return PointProgress(step=self.step, total=self._total, metrics=metrics, model=model, state=state)


def act(part: Part, parameters: Numbers, observations: Numbers) -> Numbers:
    """(B,) what an actor does with given parameters (its own or those of its target)."""
    return np.tanh(part.network(parameters, observations[:, None]))


def regress(critic: Part, observations: Numbers, actions: Numbers, targets: Numbers) -> tuple[float, Numbers]:
    """Half the mean squared difference between Q and its targets, and its derivative by the parameters."""
    said = critic.network.evaluate(critic.parameters, pairs(observations, actions))
    errors = said.outputs - targets
    gradient = critic.network.gradient(critic.parameters, said, errors / len(errors)).parameters
    return float((errors**2).mean() / 2), gradient


def climb(actor: Part, critic: Part, observations: Numbers, weight: float, pull: Numbers | None = None) -> Numbers:
    """Derivative, by an actor's parameters, of -weight * mean Q(s, π(s)) plus, with ``pull``, mean (π(s) - pull)^2."""
    said = actor.network.evaluate(actor.parameters, observations[:, None])
    actions = np.tanh(said.outputs)
    judged = critic.network.evaluate(critic.parameters, pairs(observations, actions))
    ones = np.full(len(actions), -weight / len(actions), dtype=actions.dtype)
    by_actions = critic.network.gradient(critic.parameters, judged, ones).inputs[:, 1]
    if pull is not None:
        by_actions = by_actions + 2 * (actions - pull) / len(actions)
    return actor.network.gradient(actor.parameters, said, by_actions * (1 - actions**2)).parameters
