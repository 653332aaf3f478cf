"""What K seeds learn and report: parameters, Adam, targets, signs of life, the stop at a number that isn't finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...arrays import BoolArray, FloatArray
from ...dataset import Dataset
from ...interfaces import Progress, TrainedModel
from ...policies import TabularPolicy
from ..neural_config import NeuralConfig
from ..ops import beyond_reach, key_frame
from .experience import Experience
from .layers import Network, Weights

REPORT_STEPS = 20  # gradient steps between two signs of life, fewer for large nets
REPORT_WORK = 1.5e8  # multiplications between two signs of life of one seed: some 10 ms
MOST_SHOWN = 4096  # states whose values are looked at in every sign of life; evenly spaced where there are more


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
