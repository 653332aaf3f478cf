"""Slow learners train beside the pages, in a process of their own: which runs a page asks for, and where they are.

A run belongs to its link and not to a visit: a closed tab loses nothing, and the link finds it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.errors import RunMissing
from offrl_core.interfaces import AlgorithmSpec, TrainedModel
from offrl_core.jobs import Job
from offrl_core.params import make_config
from offrl_core.policies import TabularPolicy
from offrl_core.runs import current_run, runs_directory
from offrl_core.training import run_id

from . import also_training, browser, parameters, state


@dataclass(frozen=True, slots=True)
class SeedRun:
    """One run as a page finds it: a job of this server, a stored run, or neither.

    Attributes:
        seed, run_id: which run.
        job: that computes it or did so lately; None where there is none.
        model: once it is done.
    """

    seed: int
    run_id: str
    job: Job | None
    model: TrainedModel | None

    @property
    def state(self) -> str:
        """That of the job; ``succeeded`` where it is stored, ``absent`` where nobody asked for it yet."""
        if self.model is not None:
            return "succeeded"
        return self.job.state if self.job else "absent"

    @property
    def unfinished(self) -> bool:
        """Whether it waits or runs."""
        return self.model is None and self.job is not None and not self.job.is_final

    @property
    def can_go_on(self) -> bool:
        """Whether it was stopped and would go on from there."""
        return self.model is None and self.job is not None and self.job.can_go_on


@dataclass(frozen=True, slots=True)
class Training:
    """One slow learner with its parameters, for several seeds: runs that a page starts, shows and stops together."""

    dataset: Dataset
    algorithm: str
    chosen: dict[str, Any]
    seeds: tuple[int, ...]
    run_ids: tuple[str, ...]

    @property
    def spec(self) -> AlgorithmSpec:
        """Of the learner."""
        return orl.ALGORITHMS[self.algorithm]

    def runs(self) -> list[SeedRun]:
        """Where each seed is right now."""
        return [_found(seed, run) for seed, run in zip(self.seeds, self.run_ids, strict=True)]

    def start(self) -> None:
        """Run every seed that neither runs nor is done; what is refused is said at the top of the page."""
        try:
            orl.submit_seeds(self.dataset, self.algorithm, seeds=self.seeds, owner=browser.identity(), **self.chosen)
        except orl.OffRLError as error:
            state.warn(str(error))
        else:
            also_training.remember(browser.identity(), self.algorithm, self.run_ids)


def training_of(dataset: Dataset, algorithm: str) -> Training:
    """A slow learner as the link asks for it. One that draws nothing at random has one seed.

    Raises:
        InvalidConfig: parameters that it doesn't have.
    """
    spec, chosen, first = orl.ALGORITHMS[algorithm], parameters.parameters_of(algorithm), state.get("seed")
    config = make_config(spec.config_class, chosen, algorithm)
    seeds = tuple(range(first, first + (state.get("seeds") if spec.train_seeds else 1)))
    return Training(dataset, algorithm, chosen, seeds, tuple(run_id(dataset, algorithm, config, s) for s in seeds))


def finished_models(dataset: Dataset, algorithm: str) -> list[TrainedModel]:
    """What is done of a slow learner as the link asks for it, by seed: pages judge these models like any other.

    Raises:
        InvalidConfig: parameters that it doesn't have.
    """
    return [run.model for run in training_of(dataset, algorithm).runs() if run.model is not None]


def distinct_models(dataset: Dataset, algorithm: str) -> dict[str, TrainedModel]:
    """The same by name, seeds that ended in equal policies as one; without policies that are no tables, see
    :mod:`offrl_core.sequence_policy`: nobody can estimate those from a log.

    Raises:
        InvalidConfig: parameters that it doesn't have.
    """
    short, several = orl.ALGORITHMS[algorithm].short, orl.ALGORITHMS[algorithm].train_seeds is not None
    alike: dict[str, list[TrainedModel]] = {}
    for model in finished_models(dataset, algorithm):
        if isinstance(model.policy, TabularPolicy):
            alike.setdefault(model.policy.digest(), []).append(model)
    return {
        f"{short}, seed {_ranges([model.seed for model in models])}" if several else short: models[0]
        for models in alike.values()
    }


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers as text, three and more in a row as a range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _found(seed: int, run: str) -> SeedRun:
    job = orl.find_job(run, browser.identity())
    if job is not None and job.state == "succeeded":
        return SeedRun(seed, run, job, job.result())
    if job is not None and not job.is_final:
        return SeedRun(seed, run, job, None)
    try:  # a job that was stopped or failed here may have been done elsewhere
        return SeedRun(seed, run, job, _stored(run, str(runs_directory())))
    except RunMissing:
        return SeedRun(seed, run, job, None)


@st.cache_resource(show_spinner=False, max_entries=128, ttl="2h")
def _stored(run: str, directory: str) -> TrainedModel:
    """A stored run that the code of today made; one that isn't there is looked for again the next time."""
    model = current_run(run, directory)
    if model is None:
        raise RunMissing(run)
    return model
