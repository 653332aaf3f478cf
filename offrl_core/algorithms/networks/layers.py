"""A fully connected network for K seeds: forward, and its gradient written down.

On nets this small, the bookkeeping of autograd costs more than the arithmetic. The tests hold the gradient against autograd.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..neural_config import NeuralConfig

WIDTH = 16  # of every layer, in multiples


class Network:
    """A fully connected network with rectifiers, for K seeds; its parameters are elsewhere, in one row per seed.

    Attributes:
        sizes: inputs D, hidden layers, outputs.
        n_parameters: P, outputs of padding included.
    """

    def __init__(self, n_inputs: int, n_outputs: int, config: NeuralConfig) -> None:
        hidden = [_padded(config.hidden_size)] * config.n_hidden_layers
        self.sizes = (n_inputs, *hidden, n_outputs)
        self._padded = (n_inputs, *hidden, _padded(n_outputs))
        self.n_parameters = sum((n + 1) * m for n, m in zip(self._padded[:-1], self._padded[1:], strict=True))

    def weights(self, parameters: Tensor) -> Weights:
        """Parameters (K, P) as what :meth:`__call__` takes; they share memory."""
        return Weights(parameters, self._layers(parameters))

    def __call__(self, weights: Weights, inputs: Tensor) -> Tensor:
        """(K, R, outputs) from inputs (K, R, D)."""
        return self.evaluate(weights, inputs).outputs

    def evaluate(self, weights: Weights, inputs: Tensor) -> Evaluation:
        """As a call, with what :meth:`gradient` needs to know of it."""
        activations = [inputs]
        for matrix, bias in weights.layers[:-1]:
            activations.append(torch.baddbmm(bias, activations[-1], matrix).relu_())
        matrix, bias = weights.layers[-1]
        return Evaluation(torch.baddbmm(bias, activations[-1], matrix)[:, :, : self.sizes[-1]], activations)

    def gradient(self, weights: Weights, evaluation: Evaluation, outward: Tensor) -> Tensor:
        """(K, P) derivative of a loss by the parameters, from its derivative ``outward`` by the outputs (K, R, outputs)."""
        outward = torch.nn.functional.pad(outward, (0, self._padded[-1] - self.sizes[-1]))
        parts: list[Tensor] = []  # from the last to the first
        for i in reversed(range(len(weights.layers))):
            hidden = evaluation.activations[i]
            parts += [outward.sum(1), torch.bmm(hidden.transpose(1, 2), outward).flatten(1)]
            if i:
                outward = torch.bmm(outward, weights.layers[i][0].transpose(1, 2))
                outward = torch.ops.aten.threshold_backward(outward, hidden, 0)  # no way through a unit at 0
        return torch.cat(parts[::-1], dim=1)

    def _layers(self, parameters: Tensor) -> list[tuple[Tensor, Tensor]]:
        found, begins = [], 0
        for n, m in zip(self._padded[:-1], self._padded[1:], strict=True):
            matrix = parameters[:, begins : begins + n * m].unflatten(1, (n, m))
            found.append((matrix, parameters[:, begins + n * m : begins + (n + 1) * m].unsqueeze(1)))
            begins += (n + 1) * m
        return found

    def start(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """(P,) uniform within 1 / sqrt(number of inputs) of the layer, PyTorch's own choice for linear layers."""
        parts = []
        for n, m, real in zip(self._padded[:-1], self._padded[1:], self.sizes[1:], strict=True):
            drawn = np.zeros((n + 1, m))
            drawn[:, :real] = rng.uniform(-1, 1, size=(n + 1, real)) / np.sqrt(n)
            parts.append(drawn.ravel())
        return np.concatenate(parts).astype(np.float32)

    def named(self, name: str, parameters: Tensor) -> dict[str, NDArray[np.float32]]:
        """Weights (n, m) and biases (m,) of one seed's (P,), without padding: ``hidden @ weights + biases``."""
        named = {}
        for i, (matrix, bias) in enumerate(self._layers(parameters[None])):
            named[f"{name}.{i}.weight"] = matrix[0, :, : self.sizes[i + 1]].numpy().copy()
            named[f"{name}.{i}.bias"] = bias[0, 0, : self.sizes[i + 1]].numpy().copy()
        return named


class Weights(NamedTuple):
    """Parameters of a network for K seeds, and the same memory layer by layer."""

    parameters: Tensor  # (K, P)
    layers: list[tuple[Tensor, Tensor]]  # (K, n, m) weights and (K, 1, m) biases


class Evaluation(NamedTuple):
    """What a network said to some inputs, and how it came to it."""

    outputs: Tensor  # (K, R, outputs)
    activations: list[Tensor]  # (K, R, n) what went into each layer


def _padded(size: int) -> int:
    return -(-size // WIDTH) * WIDTH
