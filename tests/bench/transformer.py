"""Training steps of the Decision Transformer against d3rlpy's, equal layers, width and batch, one thread each.

d3rlpy lives in an environment of its own: the variable ``OFFRL_D3RLPY`` names its Python.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import offrl_core as orl
from offrl_core.algorithms import decision_transformer
from offrl_core.dataset import Dataset
from offrl_core.interfaces import Training

from .measure import Line, seconds_of
from .networks import VARIABLE, peer_python

BATCH, HEADS, STEPS, REPETITIONS = 64, 4, 10, 7
CASES = (
    (8, 2, 64, 2.0),
    (20, 3, 128, 4.0),
)  # context, layers, width, how many times faster


def transformer_lines() -> list[Line]:
    """Steps of both, in turns; a note where the peer isn't there."""
    peer = peer_python()
    if not peer:
        return [Line("Decision Transformer", "not measured", f"d3rlpy: set {VARIABLE} to the Python that has it")]
    dataset = orl.frame(orl.bundled_log("calculator"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.npz"
        np.savez(path, **arrays_of(dataset))
        return [line_of(dataset, peer, path, *case) for case in CASES]


def arrays_of(dataset: Dataset) -> dict[str, np.ndarray]:
    """The bundled log as d3rlpy takes it, states as the world's own numbers."""
    rows, features = dataset.transitions(), dataset.features("world").astype(np.float32)
    return {
        "observations": features[rows.observations],
        "actions": rows.actions[:, None],
        "rewards": rows.rewards[:, None].astype(np.float32),
        "terminals": (rows.next_observations < 0).astype(np.float32),
    }


def line_of(dataset: Dataset, peer: str, path: Path, context: int, n_layers: int, width: int, at_least: float) -> Line:
    """One size of network."""
    numbers = map(str, (context, n_layers, width, HEADS, BATCH))
    script = Path(__file__).with_name("d3rlpy_transformer.py")
    with running([peer, str(script), str(path), *numbers]) as process:
        theirs_n_parameters = int(answer(process))
        training = begun(dataset, context, n_layers, width)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(REPETITIONS + 1):  # the first one warms up
            ours.append(seconds_of(lambda: [next(training) for _ in range(STEPS)]) / STEPS)
            theirs.append(float(answer(process, STEPS)) / STEPS)
    our_time, peer_time = statistics.median(ours[1:]), statistics.median(theirs[1:])
    ratio = peer_time / our_time
    return Line(
        f"Decision Transformer, context {context}, {n_layers} layers of {width}, batch {BATCH}",
        f"{1 / our_time:,.3g} steps/s",
        f"{1 / peer_time:,.3g} steps/s, d3rlpy ({theirs_n_parameters:,} parameters)",
        f"{ratio:.1f}x faster",
        f"≥ {at_least:g}x",
        ratio >= at_least,
    )


def begun(dataset: Dataset, context: int, n_layers: int, width: int) -> Training:
    """Our training, which is as long as anybody asks it to go on."""
    config = decision_transformer.DecisionTransformerConfig(
        n_steps=100_000, context=context, n_layers=n_layers, n_heads=HEADS, head_width=width // HEADS, batch_size=BATCH
    )
    return decision_transformer.train(dataset, config, seed=0)


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that answers line by line, ended with the block."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[str], question: int | None = None) -> str:
    """Its next line; d3rlpy's own talk, which is no number, is passed over."""
    assert process.stdin is not None
    assert process.stdout is not None
    if question is not None:
        process.stdin.write(f"{question}\n")
        process.stdin.flush()
    for line in process.stdout:
        if line.strip().replace(".", "", 1).isdigit():
            return line
    raise RuntimeError("d3rlpy's process ended without an answer")
