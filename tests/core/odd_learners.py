"""Learners that exercise the job engine: one that takes its time and can go on anywhere, and ones that do harm."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offrl_core.arrays import FloatArray
from offrl_core.dataset import Dataset
from offrl_core.errors import NotPossible
from offrl_core.interfaces import AlgorithmSpec, Progress, SeedsTraining, TrainedModel, Training
from offrl_core.params import param
from offrl_core.policies import TabularPolicy, greedy_probabilities

HARM = ("raises", "leaves", "exits", "hangs", "hogs", "refuses", "diverges")


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkConfig:
    """How far, how slowly, and what happens halfway."""

    n_steps: int = param(20, label="Steps", help="Steps.", low=1, high=100_000, step=1)
    pause: float = param(0.0, label="Pause", help="Seconds a step.", low=0.0, high=10.0, step=0.001)
    harm: str = param("none", label="Harm", help="Halfway.", choices=tuple((h, h) for h in ("none", *HARM)))
    harmed: int = param(
        -1, label="Harmed", help="The only seed that it happens to; -1: all.", low=-1, high=1000, step=1
    )


def train(dataset: Dataset, config: WalkConfig, *, seed: int, resume_from: Mapping[str, Any] | None = None) -> Training:
    """A random walk of Q values: one lost or repeated draw changes every bit behind it."""
    rng = np.random.default_rng(seed)
    q_values, done = np.zeros((dataset.n_states, dataset.n_actions)), 0
    if resume_from:
        rng.bit_generator.state = resume_from["generator"]
        q_values, done = resume_from["q_values"].copy(), resume_from["done"]
    for step in range(done + 1, config.n_steps + 1):
        time.sleep(config.pause)
        if step == config.n_steps // 2 + 1 and config.harmed in (-1, seed):
            if config.harm == "diverges":
                return model_of(dataset, q_values, f"At step {step} size is not finite.")
            do_harm(config.harm)
        q_values += rng.normal(size=q_values.shape)
        yield Progress(
            step=step,
            total=config.n_steps,
            metrics={"size": float(np.abs(q_values).sum())},
            q_values=q_values.copy() if step % 10 == 1 else None,
            state={"generator": rng.bit_generator.state, "q_values": q_values, "done": step},
        )
    return model_of(dataset, q_values)


def model_of(dataset: Dataset, q_values: FloatArray, problem: str = "") -> TrainedModel:
    """Its greedy policy."""
    everywhere = np.ones(q_values.shape, dtype=bool)
    probabilities = greedy_probabilities(q_values, everywhere, everywhere)
    policy = TabularPolicy(states=dataset.states, actions=dataset.actions, probabilities=probabilities)
    weights = {"layer/0": q_values.astype(np.float32)}
    return TrainedModel(policy=policy, q_values=q_values, problem=problem, weights=weights)


def train_seeds(
    dataset: Dataset,
    config: WalkConfig,
    *,
    seeds: Sequence[int],
    resume_from: Sequence[Mapping[str, Any]] | None = None,
) -> SeedsTraining:
    """Walks in step, which pause together."""
    hurried = replace(config, pause=0.0)
    states = resume_from or [None] * len(seeds)
    walks = [train(dataset, hurried, seed=s, resume_from=state) for s, state in zip(seeds, states, strict=True)]
    models: list[TrainedModel | None] = [None] * len(seeds)
    while True:
        time.sleep(config.pause)
        signs: list[Progress | None] = [None] * len(seeds)
        for i, walk in enumerate(walks):
            if models[i] is None:
                try:
                    signs[i] = next(walk)
                except StopIteration as finished:
                    models[i] = finished.value
        if not any(signs):
            return tuple(model for model in models if model is not None)
        yield tuple(signs)


def train_whole(dataset: Dataset, config: WalkConfig, *, seed: int) -> Training:
    """The same without states to go on from."""
    walk = train(dataset, config, seed=seed)
    while True:
        try:
            progress = next(walk)
        except StopIteration as finished:
            return finished.value
        yield replace(progress, state=None)


def do_harm(harm: str) -> None:
    if harm == "raises":
        raise ValueError("a learner with a bug")
    if harm == "leaves":
        raise SystemExit(1)
    if harm == "exits":
        os._exit(3)
    if harm == "hangs":
        time.sleep(1000)
    if harm == "refuses":
        raise NotPossible("This log isn't for me.")
    if harm == "hogs":
        kept = [np.empty(10_000_000) for _ in range(1000)]
        del kept


WALK = AlgorithmSpec(
    name="walk",
    title="Walk",
    short="Walk",
    summary="Walks.",
    config_class=WalkConfig,
    train=train,
    metrics={"size": "sum of absolute values"},
    unit="step",
    equation="",
    source="",
    instant=False,
    resumable=True,
)
WALK_WHOLE = replace(WALK, name="walk_whole", train=train_whole, resumable=False)
WALKS = replace(WALK, name="walks", train_seeds=train_seeds)
ODD_LEARNERS = {spec.name: spec for spec in (WALK, WALK_WHOLE, WALKS)}


def children(pid: int) -> Iterator[int]:
    """Worker processes of a process, by /proc; the tracker that loky keeps until the end isn't one."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{name}/cmdline") as file:
                command = file.read()
        except OSError:
            continue
        if parent == pid and "LokyProcess" in command:
            yield int(name)
