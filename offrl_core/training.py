"""Run a learner to the end, keep what it reported, and name the run by its content."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .algorithms import algorithm_spec
from .coverage_edits import edits_to_link
from .dataset import Dataset
from .history import History
from .interfaces import TrainedModel, Training
from .params import check_seed, config_values, make_config
from .schema import SCHEMA_VERSION, canonical_json, short_hash


def start_training(dataset: Dataset, algorithm: str, *, seed: int = 0, **parameters: Any) -> Training:
    """The generator of a learner on a dataset; pull it for progress, close it to stop.

    Raises:
        UnknownName: no such algorithm.
        InvalidConfig: a parameter it doesn't have, or one or the seed out of range.
    """
    spec, seed = algorithm_spec(algorithm), check_seed(seed)
    config = make_config(spec.config_class, parameters, algorithm)
    return _named(spec.train(dataset, config, seed=seed), algorithm, config, seed)


def _named(training: Training, algorithm: str, config: Any, seed: int) -> Training:
    """Pass progress on, and add to the model what it was trained with and how it went."""
    history = History()
    try:
        while True:
            try:
                progress = next(training)
            except StopIteration as finished:
                model: TrainedModel = finished.value
                break
            history.append(progress)
            yield progress
    finally:
        training.close()  # a caller who stops early stops the learner too, whatever Python does with its references
    return named_model(model, algorithm, config, seed, history)


def named_model(model: TrainedModel, algorithm: str, config: Any, seed: int, history: History) -> TrainedModel:
    """A model with what it was trained with and how it went."""
    reported = tuple(event.progress for event in history.events())
    return replace(model, algorithm=algorithm, config=config, seed=seed, history=reported)


def train(dataset: Dataset, algorithm: str, *, seed: int = 0, **parameters: Any) -> TrainedModel:
    """Train to the end.

    Args:
        dataset: see :func:`offrl_core.dataset.frame`.
        algorithm: name in :data:`offrl_core.algorithms.ALGORITHMS`.
        seed: of the run's own generator, where the learner draws anything; from 0 to 2**63 - 1.
        **parameters: fields of the learner's config; the rest keep their defaults.

    Raises:
        UnknownName, InvalidConfig: as :func:`start_training`.
        NotPossible: the dataset lacks what the learner needs (rewards, say).
    """
    training = start_training(dataset, algorithm, seed=seed, **parameters)
    while True:
        try:
            next(training)
        except StopIteration as finished:
            model: TrainedModel = finished.value
            return model


def run_content(dataset: Dataset, algorithm: str, config: Any, seed: int) -> dict[str, Any]:
    """Everything that names a run: equal contents give equal models with the same code."""
    return {
        "log": dataset.log.fingerprint,
        "framing": dataset.framing.token,
        "edits": edits_to_link(dataset.edits),
        "algorithm": algorithm,
        "config": config_values(config),
        "seed": check_seed(seed),
        "schema": SCHEMA_VERSION,
    }


def run_id(dataset: Dataset, algorithm: str, config: Any, seed: int) -> str:
    """Readable name plus 16 hexadecimal digits over everything that names the run."""
    return id_of_content(run_content(dataset, algorithm, config, seed))


def id_of_content(content: dict[str, Any]) -> str:
    """The id of a run from its :func:`run_content`."""
    return f"{content['algorithm']}-{short_hash(canonical_json(content))}"
