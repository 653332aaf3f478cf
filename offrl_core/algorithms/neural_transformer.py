"""The transformer of :mod:`offrl_core.sequence_policy` in torch, to train it: same weights, same names, all steps at once.

Importing this module imports torch, so learners import it when they train.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..sequence_policy import LAYER_NORM_SLACK, n_layers_of

torch.set_num_threads(1)  # small matrices: a second thread would cost more than it does

Tensors = Mapping[str, Tensor]
EMBEDDING_SPREAD = 0.02  # standard deviation of embeddings at the start, as in Radford et al. 2019
ALIGNED = 16  # floats; every tensor of a buffer begins at a multiple of it
FIRST_DECAY, SECOND_DECAY, ADAM_SLACK = 0.9, 0.999, 1e-8


class Sizes(NamedTuple):
    """What the shapes of the weights follow from."""

    n_states: int
    n_actions: int
    horizon: int
    width: int
    n_layers: int


class Windows(NamedTuple):
    """B stretches of up to L steps, filled from the left; what stands behind a stretch is padding."""

    returns: Tensor  # (B, L) float32, scaled
    times: Tensor  # (B, L)
    states: Tensor  # (B, L)
    actions: Tensor  # (B, L)
    taken: Tensor  # (B, L) the actions, hidden ones too
    real: Tensor  # (B, L) bool, False on padding


def shapes_of(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every trained tensor; states and actions have one row more, for what is hidden or unknown."""
    d = sizes.width
    shapes: dict[str, tuple[int, ...]] = {
        "return": (2, d),
        "time": (sizes.horizon, d),
        "state": (sizes.n_states + 1, d),
        "action": (sizes.n_actions + 1, d),
        "norm": (2, d),
    }
    matrices = {"choose": (d, sizes.n_actions)}
    for i in range(sizes.n_layers):
        shapes |= {f"{i}/norm": (2, d), f"{i}/norm_wide": (2, d)}
        matrices |= {f"{i}/query": (d, d), f"{i}/look": (d, 2 * d), f"{i}/merge": (d, d)}
        matrices |= {f"{i}/widen": (d, 4 * d), f"{i}/narrow": (4 * d, d)}
    for name, (inner, outer) in matrices.items():
        shapes |= {name: (inner, outer), f"{name}/bias": (outer,)}
    return shapes


class Trainable:
    """Weights, gradients and the moments of Adam (Kingma & Ba 2015), each one buffer, with named views into it.

    One buffer makes a step of Adam a handful of operations, however many tensors there are, and a state to resume from a
    handful of arrays.

    Attributes:
        named: the weights by name.
        buffers: "weights", "gradients", "first_moments" and "second_moments", all (P,).
    """

    def __init__(self, sizes: Sizes, generator: torch.Generator) -> None:
        """Draw the first weights: biases 0, norms the identity, the rest normal."""
        places, end = {}, 0
        for name, shape in shapes_of(sizes).items():
            size = int(torch.Size(shape).numel())
            places[name] = (end, size, shape)
            end += -(-size // ALIGNED) * ALIGNED
        names = ("weights", "gradients", "first_moments", "second_moments")
        self.buffers = {name: torch.zeros(end) for name in names}
        self.named = {name: self._view(place, generator, name) for name, place in places.items()}

    def _view(self, place: tuple[int, int, tuple[int, ...]], generator: torch.Generator, name: str) -> Tensor:
        begin, size, shape = place
        weight, gradient = (self.buffers[b][begin : begin + size].view(shape) for b in ("weights", "gradients"))
        if "norm" in name:
            weight[0] = 1.0
        elif not name.endswith("bias"):
            weight.normal_(0.0, EMBEDDING_SPREAD, generator=generator)
        weight = weight.detach().requires_grad_()
        weight.grad = gradient  # autograd adds to it in place
        return weight

    def adam_step(self, step: int, learning_rate: float, max_norm: float) -> float:
        """Go one step down the gradients, shortened to ``max_norm``, and forget them; returns their length.

        Where that is no finite number, nothing changes but the gradients.
        """
        weights, gradients, first, second = self.buffers.values()
        norm = float(gradients.norm())
        if norm < float("inf"):
            gradients *= min(1.0, max_norm / max(norm, 1e-12))
            first.lerp_(gradients, 1 - FIRST_DECAY)
            second.mul_(SECOND_DECAY).addcmul_(gradients, gradients, value=1 - SECOND_DECAY)
            spread = (second / (1 - SECOND_DECAY**step)).sqrt_().add_(ADAM_SLACK)
            weights.addcdiv_(first, spread, value=-learning_rate / (1 - FIRST_DECAY**step))
        gradients.zero_()
        return norm


def all_action_logits(weights: Tensors, n_heads: int, windows: Windows) -> Tensor:
    """(B, L, A) logits of the action at every step, each from the tokens up to its state.

    Padding stands behind the real steps, and no token sees a later one, so it needs no mask of its own. Only state tokens
    are read, so the last layer works on these alone.
    """
    n_layers = n_layers_of(weights)
    x = _tokens(weights, windows)
    for layer in range(n_layers):
        read = slice(1, None, 3) if layer == n_layers - 1 else slice(None)
        x = _layer(weights, f"{layer}/", x, read, n_heads)
    return _linear(weights, "choose", _normed(x, weights["norm"]))


def action_losses(weights: Tensors, n_heads: int, windows: Windows, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """(M,) cross-entropy of the logged action at the M real steps, and whether it is the most probable one.

    ``allowed`` (S+1, A) says which actions compete in each state, and in a hidden one.
    """
    logits = all_action_logits(weights, n_heads, windows)[windows.real]
    logits = logits.masked_fill(~allowed[windows.states[windows.real]], -torch.inf)
    taken = windows.taken[windows.real]
    losses = functional.cross_entropy(logits, taken, reduction="none")
    return losses, logits.argmax(dim=-1) == taken


def _tokens(weights: Tensors, windows: Windows) -> Tensor:
    """(B, 3L-1, D) return, state, action, return, ..., state."""
    slope, offset = weights["return"]
    when = functional.embedding(windows.times, weights["time"])
    parts = (
        windows.returns[:, :, None] * slope + offset,
        functional.embedding(windows.states, weights["state"]),
        functional.embedding(windows.actions, weights["action"]),
    )
    tokens = (torch.stack(parts, dim=2) + when[:, :, None]).flatten(1, 2)
    return tokens[:, :-1]


def _layer(weights: Tensors, prefix: str, x: Tensor, read: slice, n_heads: int) -> Tensor:
    normed, n_tokens = _normed(x, weights[f"{prefix}norm"]), x.shape[1]
    x = x[:, read]
    queries = _heads(_linear(weights, f"{prefix}query", normed[:, read]), n_heads)
    keys, values = (_heads(part, n_heads) for part in _linear(weights, f"{prefix}look", normed).chunk(2, dim=-1))
    places = torch.arange(n_tokens)
    seen = places <= places[read][:, None]
    mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
    x = x + _linear(weights, f"{prefix}merge", mixed.transpose(1, 2).reshape(x.shape))
    wide = _linear(weights, f"{prefix}widen", _normed(x, weights[f"{prefix}norm_wide"]))
    return x + _linear(weights, f"{prefix}narrow", wide.relu())


def _heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, H, L, D/H) from (B, L, D)."""
    return x.view(*x.shape[:-1], n_heads, -1).transpose(1, 2)


def _linear(weights: Tensors, name: str, x: Tensor) -> Tensor:
    matrix, bias = weights[name], weights[f"{name}/bias"]
    return torch.addmm(bias, x.reshape(-1, len(matrix)), matrix).view(*x.shape[:-1], -1)


def _normed(x: Tensor, norm: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], norm[0], norm[1], LAYER_NORM_SLACK)
