"""Small networks for many seeds at once: nouns and maths, no training loop.

Every tensor has the seeds in its first dimension, K. A layer is one batched matrix product over all of them, so eight
seeds cost less than eight times one. Nothing here adds up across seeds, and nothing may: each seed's numbers are the same
bits in whatever company it trains. Three rules keep that so. Layers have widths that are multiples of 16 (``WIDTH``): what
is left over at the edge of a matrix is computed by other instructions, and by which depends on how many matrices there
are. Each seed draws from a generator of its own. And one thread computes; two are five to ten times slower on nets this
small, anyway.

Gradients are written down instead of traced: on nets this small, the bookkeeping of autograd costs more than the arithmetic. Two
losses are enough for all learners, :func:`squared_error` and :func:`cross_entropy`; each gives its value and its
derivative by the table it judges, and :meth:`Network.gradient` takes that back through the layers. The tests hold them
against autograd.

Importing this module imports torch, so learners do it when they train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..arrays import BoolArray, FloatArray
from ..dataset import Dataset
from ..edges import CUT
from ..interfaces import Progress, TrainedModel
from ..policies import TabularPolicy
from .neural_config import NeuralConfig
from .ops import beyond_reach, competing_pairs, key_frame

torch.set_num_threads(1)

WIDTH = 16  # of every layer, in multiples
REPORT_STEPS = 20  # gradient steps between two signs of life, fewer for large nets
REPORT_WORK = 1.5e8  # multiplications between two signs of life of one seed: some 10 ms
FEW_TRANSITIONS = 1024  # up to here a log is one batch by default
MOST_SHOWN = 4096  # states whose values are looked at in every sign of life; evenly spaced where there are more


# -- networks --------------------------------------------------------------------------------------------------------


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


class Loss(NamedTuple):
    """A loss of each seed, and its derivative by the table that it judges."""

    value: Tensor  # (K,)
    outward: Tensor  # (K, R, A)


def squared_error(table: Tensor, pairs: Tensor, targets: Tensor, weights: Tensor) -> Loss:
    """Half the weighted sum of squared differences between entries of a table (K, R, A) and their targets.

    ``pairs`` (K, B) are the places of the entries in the flattened table; ``targets`` and ``weights`` are (K, B).
    """
    errors = table.flatten(1).gather(1, pairs) - targets
    pull = weights * errors
    outward = torch.zeros(table.shape)
    outward.view(len(table), -1).scatter_add_(1, pairs, pull)
    return Loss((pull * errors).sum(1) / 2, outward)


def cross_entropy(logits: Tensor, here: Tensor, pairs: Tensor, weights: Tensor) -> Loss:
    """Weighted sum of minus the log probability of chosen actions, where ``logits`` (K, R, A) may hold minus infinity.

    ``here`` (K, B) are the rows, ``pairs`` (K, B) the places in the flattened table, of the choices; ``weights`` is (K, B).
    """
    log_probabilities = logits.log_softmax(2)
    shares = torch.zeros(logits.shape[:2]).scatter_add_(1, here, weights)
    outward = log_probabilities.exp() * shares.unsqueeze(2)
    outward.view(len(logits), -1).scatter_add_(1, pairs, -weights)
    return Loss(-(weights * log_probabilities.flatten(1).gather(1, pairs)).sum(1), outward)


def _padded(size: int) -> int:
    return -(-size // WIDTH) * WIDTH


# -- what is learned from --------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Transitions for K seeds, and the distinct states on which networks have to be evaluated for them.

    B transitions point into R states and R' following states.
    """

    states: Tensor  # (K, R)
    inputs: Tensor  # (K, R, D)
    here: Tensor  # (K, B) which of the R states
    pairs: Tensor  # (K, B) place in a flattened (R, A) table
    next_states: Tensor  # (K, R')
    next_inputs: Tensor  # (K, R', D)
    there: Tensor  # (K, B) which of the R' following states; any where the discount is 0
    rewards: Tensor  # (K, B) 0 where unknown
    discounts: Tensor  # (K, B) γ, and 0 behind an ending
    weights: Tensor  # (K, B) sums to 1
    value_weights: Tensor  # (K, B) the same, 0 where a transition teaches no value


class _Rows(NamedTuple):
    """Transitions as arrays of equal length: the rows of a log, or its distinct transitions."""

    states: Tensor
    actions: Tensor
    next_states: Tensor
    rewards: Tensor
    discounts: Tensor
    weights: Tensor
    value_weights: Tensor


class Experience:
    """A dataset for K seeds: batches of it, and features of its states.

    With few distinct transitions a batch is all of them with their weights: the exact gradient of all data. Else each
    seed draws rows with its own generator. Where the log has no more states than a batch has rows, networks are evaluated
    once on every state instead of once per row.

    Attributes:
        features: (S, D).
        weighted: whether batches are everything.
    """

    def __init__(self, dataset: Dataset, config: NeuralConfig, n_seeds: int) -> None:
        self.features = torch.from_numpy(dataset.features(config.features).astype(np.float32))
        n_distinct = len(dataset.edges.counts)
        self.weighted = config.batch == "weighted" or (config.batch == "auto" and n_distinct <= FEW_TRANSITIONS)
        self.n_seeds, self.n_actions, self.batch_size = n_seeds, dataset.n_actions, config.batch_size
        self._rows = _distinct_rows(dataset) if self.weighted else _single_rows(dataset, config.batch_size)
        self._n_rows = n_distinct if self.weighted else config.batch_size
        self._whole = self.weighted or dataset.n_states <= config.batch_size
        self._everywhere = torch.arange(dataset.n_states).repeat(n_seeds, 1)
        self._one_by_one = torch.arange(config.batch_size).repeat(n_seeds, 1)
        self._all_features = self.features.repeat(n_seeds, 1, 1) if self._whole else self.features

    @property
    def n_features(self) -> int:
        """D."""
        return self.features.shape[1]

    @property
    def n_evaluated(self) -> int:
        """R, states per batch."""
        return len(self.features) if self._whole else self.batch_size

    def features_of(self, states: Tensor) -> Tensor:
        """(K, R, D) features of states (R,), the same for all seeds."""
        return self.features[states].expand(self.n_seeds, -1, -1)

    def batches(self, generators: Sequence[np.random.Generator], n: int) -> Iterator[Batch]:
        """The next ``n`` batches; what each seed draws for them is drawn at once."""
        if self.weighted:
            return iter([self._batch(*(column.repeat(self.n_seeds, 1) for column in self._rows))] * n)
        n_rows = len(self._rows.states)
        drawn = np.stack([rng.integers(n_rows, size=(n, self.batch_size)) for rng in generators], axis=1)
        columns = (column[torch.from_numpy(drawn)].unbind() for column in self._rows)  # n times (K, B) each
        return map(self._batch, *columns)

    def _batch(
        self,
        states: Tensor,
        actions: Tensor,
        next_states: Tensor,
        rewards: Tensor,
        discounts: Tensor,
        weights: Tensor,
        value_weights: Tensor,
    ) -> Batch:
        evaluated, following, here, there = states, next_states, self._one_by_one, self._one_by_one
        if self._whole:
            evaluated, following, here, there = self._everywhere, self._everywhere, states, next_states
            inputs = next_inputs = self._all_features
        else:
            inputs, next_inputs = rows_of(self.features, states), rows_of(self.features, next_states)
        pairs = here * self.n_actions + actions
        return Batch(
            evaluated, inputs, here, pairs, following, next_inputs, there, rewards, discounts, weights, value_weights
        )


def rows_of(table: Tensor, places: Tensor) -> Tensor:
    """(K, R, n) rows of a table (S, n) at places (K, R)."""
    return torch.nn.functional.embedding(places, table)


def _distinct_rows(dataset: Dataset) -> _Rows:
    edges = dataset.edges
    teaches = (edges.endings != CUT) & (edges.n_known > 0)
    n_rows = edges.counts.sum()
    return _rows(
        dataset,
        edges.states,
        edges.actions,
        edges.next_states,
        np.where(teaches, edges.reward_sums / np.maximum(edges.n_known, 1), 0.0),
        edges.counts / n_rows,
        np.where(teaches, edges.n_known / n_rows, 0.0),
    )


def _single_rows(dataset: Dataset, batch_size: int) -> _Rows:
    rows = dataset.transitions()
    teaches = ~rows.timeouts & ~np.isnan(rows.rewards)
    weights = np.full(len(rows.actions), 1 / batch_size)
    return _rows(
        dataset,
        rows.observations,
        rows.actions,
        rows.next_observations,
        np.where(teaches, rows.rewards, 0.0),
        weights,
        weights * teaches,
    )


def _rows(
    dataset: Dataset,
    states: NDArray[Any],
    actions: NDArray[Any],
    next_states: NDArray[Any],
    rewards: FloatArray,
    weights: FloatArray,
    value_weights: FloatArray,
) -> _Rows:
    goes_on = next_states >= 0

    def index(column: NDArray[Any]) -> Tensor:
        return torch.from_numpy(column.astype(np.int64))

    def number(column: NDArray[Any]) -> Tensor:
        with np.errstate(
            over="ignore"
        ):  # what single precision can't hold becomes infinite, and the first step says so
            return torch.from_numpy(column.astype(np.float32))

    return _Rows(
        states=index(states),
        actions=index(actions),
        next_states=index(np.where(goes_on, next_states, 0)),
        rewards=number(rewards),
        discounts=number(goes_on * dataset.discount),
        weights=number(weights),
        value_weights=number(value_weights),
    )


def log_mask(mask: BoolArray) -> Tensor:
    """(S, A) 0 where the mask is true, minus infinity elsewhere: added to values, it takes actions out of a maximum."""
    return torch.from_numpy(np.where(mask, 0.0, -np.inf).astype(np.float32))


def choosable_pairs(dataset: Dataset, maximum: str) -> BoolArray:
    """(S, A) pairs that a maximum runs over, see ``ops.competing_pairs``; all valid ones of a state that has none."""
    competing = competing_pairs(maximum, dataset.valid_mask, dataset.support_mask())
    return np.where(competing.any(axis=1, keepdims=True), competing, dataset.valid_mask)


# -- what learns -----------------------------------------------------------------------------------------------------


class Tables(NamedTuple):
    """What networks say about R states, for K seeds."""

    probabilities: FloatArray  # (K, R, A) of the policy
    q_values: FloatArray | None = None  # (K, R, A)
    greedy: bool = False  # whether the policy follows from the values alone


Look = Callable[
    [Mapping[str, Weights], Tensor], Tables
]  # networks by name and (R,) states -> what the networks say there


def one_hot(actions: Tensor, n_actions: int) -> FloatArray:
    """(K, R, A) probabilities of the policy that always takes these actions (K, R)."""
    return np.eye(n_actions)[actions.numpy()]


def softmax(logits: Tensor) -> FloatArray:
    """(K, R, A) probabilities; logits may be minus infinity."""
    return logits.double().softmax(2).numpy()


def greedy_tables(q_values: Tensor, choosable: BoolArray) -> Tables:
    """Values (K, R, A) with the policy that picks the best of the choosable actions (R, A), the first of equals."""
    best = q_values.masked_fill(torch.from_numpy(~choosable), -np.inf).argmax(2)
    return Tables(one_hot(best, q_values.shape[2]), q_values.double().numpy(), greedy=True)


class Seeds:
    """Everything that changes while K seeds train, each in a row of its own, and what is reported of it.

    Steps are those of Adam (Kingma & Ba 2015, algorithm 1), with the constants of that paper.

    Attributes:
        weights: name -> those of each network.
        targets: name -> those of the copies that follow a network slowly.
        generators: one per seed.
        step: gradient steps so far.
    """

    def __init__(
        self,
        dataset: Dataset,
        experience: Experience,
        config: NeuralConfig,
        seeds: Sequence[int],
        networks: Mapping[str, Network],
        look: Look,
        *,
        choosable: BoolArray | None = None,
        targets: Sequence[str] = (),
        resume_from: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Begin, or go on behind the report that carried the states ``resume_from``.

        ``look`` says what is reported; values of pairs that aren't ``choosable`` (S, A) are left out of tables.
        """
        self._dataset, self._config, self._networks, self._look = dataset, config, networks, look
        self._choosable = dataset.valid_mask if choosable is None else choosable
        self._sizes = [network.n_parameters for network in networks.values()]
        self._period = _report_period(sum(self._sizes) * experience.n_evaluated)
        n_shown = min(dataset.n_states, MOST_SHOWN)
        self._shown = np.linspace(0, dataset.n_states - 1, n_shown).astype(np.int64)
        self.generators = [np.random.default_rng(seed) for seed in seeds]
        states = self._first_states() if resume_from is None else resume_from
        self.step = int(states[0]["step"])
        for rng, state in zip(self.generators, states, strict=True):
            rng.bit_generator.state = state["generator"]
        self._values, self._first, self._second = (
            torch.from_numpy(np.stack([state[name] for state in states]))
            for name in ("parameters", "first_moments", "second_moments")
        )
        self.weights = self._by_network(self._values)  # in one memory, so that Adam has one tensor to work on
        self.targets = {
            name: networks[name].weights(
                self.weights[name].parameters.clone()
                if resume_from is None
                else torch.from_numpy(np.stack([state["targets"][name] for state in states]))
            )
            for name in targets
        }
        self._losses: dict[str, list[Tensor]] = {}
        self._metrics = [dict(state["metrics"]) for state in states]
        self._good, self._good_step = self._values.clone(), [self.step] * len(states)
        self._problems = [""] * len(states)

    def _first_states(self) -> list[dict[str, Any]]:
        states = []
        for rng in self.generators:
            start = np.concatenate([network.start(rng) for network in self._networks.values()])
            moments = {"first_moments": np.zeros_like(start), "second_moments": np.zeros_like(start)}
            states.append(
                {"step": 0, "parameters": start, **moments, "generator": rng.bit_generator.state, "metrics": {}}
            )
        return states

    def _by_network(self, values: Tensor) -> dict[str, Weights]:
        parts = zip(self._networks.items(), values.split(self._sizes, dim=1), strict=True)
        return {name: network.weights(part) for (name, network), part in parts}

    @property
    def learning(self) -> bool:
        """Whether a step is left to do, and a seed to do it."""
        return self.step < self._config.n_steps and not all(self._problems)

    @property
    def n_until_report(self) -> int:
        """Steps until the next report is due."""
        return min(self._period, self._config.n_steps - self.step)

    def descend(self, gradients: Mapping[str, Tensor], **losses: Tensor) -> None:
        """One step of Adam against the gradient (K, P) of each network; ``losses`` (K,) are reported."""
        for name, loss in losses.items():
            self._losses.setdefault(name, []).append(loss)
        gradient = torch.cat([gradients[name] for name in self._networks], dim=1)
        self.step += 1
        self._first.lerp_(gradient, 1 - 0.9)
        self._second.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        size = self._second.sqrt().mul_((1 - 0.999**self.step) ** -0.5).add_(1e-8)
        self._values.addcdiv_(self._first, size, value=-self._config.learning_rate / (1 - 0.9**self.step))

    def follow(self, rate: float) -> None:
        """Move the targets by a share of the way to their networks."""
        for name, target in self.targets.items():
            target.parameters.lerp_(self.weights[name].parameters, rate)

    def report(self) -> tuple[Progress | None, ...]:
        """A sign of life per seed; None once one has met a number that isn't finite."""
        tables = self._tables(self._values, self._shown)
        losses = {name: torch.stack(parts, dim=1).numpy() for name, parts in self._losses.items()}  # (K, steps)
        self._losses.clear()
        frames = None
        if key_frame(-(-self.step // self._period)) or self.step == self._config.n_steps:
            frames = tables if self._shows_all else self._tables(self._values, np.arange(self._dataset.n_states))
        return tuple(
            self._progress(k, {name: part[k] for name, part in losses.items()}, tables, frames)
            for k in range(len(self._problems))
        )

    def models(self) -> tuple[TrainedModel, ...]:
        """The model of each seed: of the last report in which all was finite."""
        tables = self._tables(self._good, np.arange(self._dataset.n_states))
        by_network = self._by_network(self._good)
        return tuple(
            TrainedModel(
                policy=TabularPolicy(
                    states=self._dataset.states, actions=self._dataset.actions, probabilities=tables.probabilities[k]
                ),
                q_values=None if tables.q_values is None else self._without_holes(tables.q_values[k]),
                converged=not problem,
                problem=problem,
                weights={
                    name: array
                    for owner, network in self._networks.items()
                    for name, array in network.named(owner, by_network[owner].parameters[k]).items()
                },
            )
            for k, problem in enumerate(self._problems)
        )

    @property
    def _shows_all(self) -> bool:
        return len(self._shown) == self._dataset.n_states

    def _without_holes(self, q_values: FloatArray) -> FloatArray:
        return np.where(self._choosable, q_values, np.nan)

    def _tables(self, values: Tensor, states: NDArray[np.int64]) -> Tables:
        """What the networks say about some states; a part of the states at a time."""
        weights = self._by_network(values)
        parts = [
            self._look(weights, torch.from_numpy(states[i : i + MOST_SHOWN])) for i in range(0, len(states), MOST_SHOWN)
        ]
        if len(parts) == 1:
            return parts[0]
        q_values = [part.q_values for part in parts if part.q_values is not None]
        return Tables(
            np.concatenate([part.probabilities for part in parts], axis=1),
            np.concatenate(q_values, axis=1) if q_values else None,
            parts[0].greedy,
        )

    def _progress(
        self, k: int, losses: Mapping[str, NDArray[np.float32]], tables: Tables, frames: Tables | None
    ) -> Progress | None:
        self._problems[k] = self._problems[k] or self._problem(k, losses, tables)
        if self._problems[k]:
            return None
        probabilities, q_values = tables.probabilities[k], None if tables.q_values is None else tables.q_values[k]
        metrics = {name: float(part.mean(dtype=np.float64)) for name, part in losses.items()}
        metrics |= self._metrics_of(probabilities, q_values)
        self._metrics[k] = metrics
        self._good[k].copy_(self._values[k])
        self._good_step[k] = self.step
        return Progress(
            step=self.step,
            total=self._config.n_steps,
            metrics=metrics,
            q_values=None if frames is None or frames.q_values is None else self._without_holes(frames.q_values[k]),
            probabilities=None if frames is None or frames.greedy else frames.probabilities[k],
            state={
                "step": self.step,
                "parameters": self._values[k].numpy(),
                "first_moments": self._first[k].numpy(),
                "second_moments": self._second[k].numpy(),
                "targets": {name: target.parameters[k].numpy() for name, target in self.targets.items()},
                "generator": self.generators[k].bit_generator.state,
                "metrics": metrics,
            },
        )

    def _problem(self, k: int, losses: Mapping[str, NDArray[np.float32]], tables: Tables) -> str:
        """What isn't finite, where and since when; "" where all is."""
        before = self._good_step[k]
        failed = {
            name: int(np.argmin(np.isfinite(part))) for name, part in losses.items() if not np.isfinite(part).all()
        }
        if failed:
            name = min(failed, key=lambda name: failed[name])
            i = failed[name]
            good = f"{losses[name][i - 1]:.4g} at step {before + i:,}" if i else self._last_good(k, name)
            return self._sentence(before + i + 1, name, good, before)
        finite = bool(torch.isfinite(self._values[k]).all()) and np.isfinite(tables.probabilities[k]).all()
        if tables.q_values is not None:
            finite = finite and np.isfinite(tables.q_values[k]).all()
        return "" if finite else self._sentence(self.step, "q_logged", self._last_good(k, "q_logged"), before)

    def _last_good(self, k: int, name: str) -> str:
        metrics = self._metrics[k]
        return f"{metrics[name]:.4g} at step {self._good_step[k]:,}" if name in metrics else "none"

    def _sentence(self, step: int, name: str, good: str, good_step: int) -> str:
        return (
            f"Stopped at step {step:,}: {name} was no finite number any more (last good value: {good}). "
            f"The model is that of step {good_step:,}."
        )

    def _metrics_of(self, probabilities: FloatArray, q_values: FloatArray | None) -> dict[str, float]:
        """Those of :data:`offrl_core.algorithms.neural_config.VALUE_METRICS`, over the states that are looked at."""
        seen, valid = self._dataset.support_mask()[self._shown], self._dataset.valid_mask[self._shown]
        chosen = probabilities.argmax(axis=1)
        metrics = {
            "unsupported_share": float(1 - seen[np.arange(len(chosen)), chosen].mean()),
            "n_actions_used": float(len(np.unique(chosen))),
        }
        if q_values is None:
            return metrics
        unsupported = valid & ~seen
        v_values = (probabilities * q_values).sum(axis=1)
        metrics["q_logged"] = float(q_values[seen].mean())
        metrics["beyond_reach"] = beyond_reach(v_values, self._dataset.reward_range, self._dataset.discount)
        if unsupported.any():
            metrics["q_unsupported"] = float(q_values[unsupported].mean())
        return metrics


def _report_period(work: int) -> int:
    """Steps between two reports, from the multiplications of one evaluation: a step costs about ten of them."""
    return max(1, min(REPORT_STEPS, int(REPORT_WORK / (10 * work))))
