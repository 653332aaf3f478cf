"""One small network and one optimiser in NumPy, gradients written down: at this size, arithmetic is cheaper than bookkeeping.

A network is a shape; its parameters are one flat row, so that an optimiser or a target network is one line. The tests hold the
gradients against PyTorch's.

Inputs are a batch (B, D), or a stack of batches (M, B, D). A stack is computed batch by batch: larger matrices would wake the
threads of the linear algebra, which cost more than they bring here and take the other visitors' cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]  # float32 while training, float64 where a test wants digits


class Evaluation(NamedTuple):
    """What a network said, and how it came to it."""

    outputs: Numbers  # (..., B)
    activations: list[Numbers]  # (..., B, n) what went into each layer


class Gradient(NamedTuple):
    """Derivatives of a loss."""

    parameters: Numbers  # (P,)
    inputs: Numbers  # (..., B, D)


@dataclass(frozen=True, slots=True)
class Network:
    """Fully connected, two hidden layers of rectifiers, one output without a bound.

    Attributes:
        n_inputs: D.
        hidden_size: units of each hidden layer.
    """

    n_inputs: int
    hidden_size: int

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each layer."""
        return [(self.n_inputs, self.hidden_size), (self.hidden_size, self.hidden_size), (self.hidden_size, 1)]

    def start(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """(P,) uniform within 1 / sqrt(number of inputs of the layer), PyTorch's own choice for linear layers."""
        parts = [rng.uniform(-1, 1, (n + 1) * m) / np.sqrt(n) for n, m in self.shapes]
        return np.concatenate(parts).astype(np.float32)

    def layers(self, parameters: Numbers) -> list[tuple[Numbers, Numbers]]:
        """(n, m) weights and (m,) biases of each layer; they share memory with the parameters."""
        found, begins = [], 0
        for n, m in self.shapes:
            weights = parameters[begins : begins + n * m].reshape(n, m)
            found.append((weights, parameters[begins + n * m : begins + (n + 1) * m]))
            begins += (n + 1) * m
        return found

    def __call__(self, parameters: Numbers, inputs: Numbers) -> Numbers:
        """(..., B) outputs for inputs (..., B, D)."""
        return self.evaluate(parameters, inputs).outputs

    def evaluate(self, parameters: Numbers, inputs: Numbers) -> Evaluation:
        """As a call, with what :meth:`gradient` needs."""
        *hidden, (weights, bias) = self.layers(parameters)
        activations = [inputs]
        for matrix, offset in hidden:
            activations.append(np.maximum(activations[-1] @ matrix + offset, 0))
        return Evaluation((activations[-1] @ weights + bias)[..., 0], activations)

    def gradient(self, parameters: Numbers, evaluation: Evaluation, outward: Numbers) -> Gradient:
        """Of a loss whose derivative by the outputs is ``outward`` (..., B)."""
        flow = outward[..., None]
        parts: list[Numbers] = []  # from the last to the first
        for (weights, _), inputs in zip(
            reversed(self.layers(parameters)), reversed(evaluation.activations), strict=True
        ):
            by_weights = (inputs.swapaxes(-1, -2) @ flow).reshape(-1, *weights.shape).sum(axis=0)
            parts += [flow.reshape(-1, weights.shape[1]).sum(axis=0), by_weights.ravel()]
            flow = flow @ weights.T
            if inputs is not evaluation.activations[0]:
                flow = flow * (inputs > 0)  # no way through a unit at 0
        return Gradient(np.concatenate(parts[::-1]), flow)


def pairs(observations: Numbers, actions: Numbers) -> Numbers:
    """(..., B, 2) what a critic sees."""
    return np.stack([observations, actions], axis=-1)


class Adam:
    """Adam with its usual constants (Kingma & Ba 2015, algorithm 1), on one flat row of parameters."""

    def __init__(self, n_parameters: int, learning_rate: float) -> None:
        """Begin with moments of 0."""
        self.learning_rate, self.step = learning_rate, 0
        self.moments = np.zeros((2, n_parameters), dtype=np.float32)

    def descend(self, parameters: Numbers, gradient: Numbers) -> None:
        """One step downhill, in place."""
        self.step += 1
        first, second = self.moments
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient**2 - second)
        size = self.learning_rate * np.sqrt(1 - 0.999**self.step) / (1 - 0.9**self.step)
        parameters -= size * first / (np.sqrt(second) + 1e-8)
