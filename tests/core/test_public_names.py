"""What a notebook shows: the names under ``orl.``, and results that print as a few lines, never as their arrays."""

from __future__ import annotations

import subprocess
import sys

import pytest

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.interfaces import TrainedModel


def test_dir_shows_the_public_names_and_loads_none_of_them() -> None:
    code = "import sys, offrl_core as orl; print(*dir(orl)); print('duckdb' in sys.modules, orl.frame.__name__); print(*dir(orl))"
    before, loaded, after = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert before == after
    assert set(before.split()) == {*orl.__all__, "__version__"}
    assert loaded == "False frame"
    assert all(hasattr(orl, name) for name in dir(orl))


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return orl.frame(orl.collect("calculator", "logger", n_episodes=500, seed=0))


@pytest.fixture(scope="module")
def model(dataset: Dataset) -> TrainedModel:
    return orl.train(dataset, "fqi_sampled")


# What the README and the docstrings of the package hand to a notebook.
RESULTS = {
    "log": lambda dataset, model: dataset.log,
    "report": lambda dataset, model: dataset.log.report,
    "dataset": lambda dataset, model: dataset,
    "rows": lambda dataset, model: dataset.transitions(),
    "edges": lambda dataset, model: dataset.edges,
    "model": lambda dataset, model: model,
    "policy": lambda dataset, model: model.policy,
    "history": lambda dataset, model: model.history,
    "progress": lambda dataset, model: next(p for p in model.history if p.q_values is not None),
    "truth": lambda dataset, model: orl.evaluate(model.policy, "calculator"),
    "rollout": lambda dataset, model: orl.roll_out(model.policy, "calculator", n_episodes=500),
    "guess": lambda dataset, model: orl.estimate(model.policy, dataset, "wis"),
    "ceiling": lambda dataset, model: orl.ceiling(dataset),
    "process": lambda dataset, model: orl.ceiling(dataset).process,
    "curve": lambda dataset, model: orl.ceiling_curve(dataset, "mul"),
    "forecast": lambda dataset, model: orl.forecast(dataset),
    "ledger": lambda dataset, model: orl.value_ledger(dataset, model),
    "shift": lambda dataset, model: orl.distribution_shift(dataset, model.policy),
    "quality": lambda dataset, model: orl.log_quality(dataset),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_print_as_a_few_lines(name: str, dataset: Dataset, model: TrainedModel) -> None:
    result = RESULTS[name](dataset, model)
    text = repr(result)
    assert len(text) <= 700, text
    assert "\n" not in text
    assert "array(" not in text
    assert type(result).__name__ in text or name == "history"


def test_what_is_printed_is_what_it_is(dataset: Dataset, model: TrainedModel) -> None:
    assert (
        repr(dataset.edges) == f"Edges({len(dataset.edges.counts):,} distinct of 2,000 rows, 2,000 with a known reward)"
    )
    progress = model.history[-1]
    assert repr(progress).startswith(f"Progress(step={progress.step}, total={progress.total}, metrics={{")
    assert repr(model.history).startswith(f"<{len(model.history):,} of Progress, the last: Progress(")
    assert f"value={orl.ceiling(dataset).value:.6g}, " in repr(orl.ceiling(dataset))
    assert f"q_values=<{dataset.n_states} x 6 float64>" in repr(orl.ceiling(dataset))
