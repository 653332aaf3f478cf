"""The small networks against d3rlpy 2.8.1: equal nets, batches, learning rate and threads (one), in turns.

d3rlpy pins other versions of our own packages, so it lives in an environment of its own; ``OFFRL_D3RLPY`` names its Python:
``python -m venv d3 && d3/bin/pip install d3rlpy==2.8.1 gymnasium==1.0.0``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import offrl_core as orl
from offrl_core.algorithms import ALGORITHMS
from offrl_core.arrays import FloatArray
from offrl_core.dataset import Dataset
from offrl_core.importers.report import ImportReport
from offrl_core.interfaces import TrainedModel
from offrl_core.log import Log
from offrl_core.params import make_config
from offrl_core.policies import TabularPolicy
from offrl_core.schema import steps_table

from .measure import Line, duration, seconds_of

VARIABLE = "OFFRL_D3RLPY"
N_STEPS, N_TURNS = 200, 7  # gradient steps per turn, turns
STABLE_STEPS = 380  # some 20 reports, nearly all of them key frames
PEERS = {"bc_neural": "DiscreteBC", "cql_neural": "DiscreteCQL", "bcq_neural": "DiscreteBCQ"}


class Peer:
    """The other process."""

    def __init__(self, python: str, arrays: Path) -> None:
        script = Path(__file__).with_name("d3rlpy_peer.py")
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([python, str(script)], text=True, env=one_thread, **pipes)
        self._arrays = arrays

    def _ask(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def make(self, algorithm: str, batch_size: int, seed: int) -> None:
        """Begin a training."""
        self._ask(do="make", arrays=str(self._arrays), algorithm=algorithm, batch_size=batch_size, seed=seed)

    def train(self, n: int) -> float:
        """Seconds of n steps."""
        return float(self._ask(do="train", n=n)["seconds"])

    def greedy(self, valid: np.ndarray) -> np.ndarray:
        """(S,) the best valid action of each state."""
        return np.where(valid, self._ask(do="values")["values"], -np.inf).argmax(axis=1)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def peer_python() -> str:
    """The interpreter that has d3rlpy; "" where none is named."""
    return os.environ.get(VARIABLE, "")


@contextmanager
def peer_of(dataset: Dataset) -> Iterator[Peer]:
    """d3rlpy on the very arrays that our networks see."""
    rows, features = dataset.transitions(), dataset.features().astype(np.float32)
    with tempfile.TemporaryDirectory() as directory:
        arrays = Path(directory) / "log.npz"
        np.savez(
            arrays,
            allow_pickle=False,
            states=features,
            observations=features[rows.observations],
            actions=rows.actions,
            rewards=rows.rewards.astype(np.float32),
            terminals=rows.terminals.astype(np.float32),
        )
        peer = Peer(peer_python(), arrays)
        try:
            yield peer
        finally:
            peer.close()


def train_all(name: str, dataset: Dataset, seeds: Sequence[int], **parameters: Any) -> tuple[TrainedModel, ...]:
    """Our models of many seeds, trained at once."""
    spec = ALGORITHMS[name]
    assert spec.train_seeds is not None
    training = spec.train_seeds(dataset, make_config(spec.config_class, parameters, name), seeds=seeds)
    while True:
        try:
            next(training)
        except StopIteration as finished:
            models: tuple[TrainedModel, ...] = finished.value
            return models


def log_of_many_states() -> Dataset:
    """2,197 states of three parts and 6 actions: more states than a batch has rows."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "episode_id": f"e{i // 4}",
            "t": i % 4,
            "state_text": " · ".join(f"{part}{n}" for part, n in zip("abc", rng.integers(13, size=3), strict=True)),
            "action": f"a{rng.integers(6)}",
            "reward": float(rng.normal()),
            "terminal": i % 4 == 3,
            "timeout": False,
        }
        for i in range(12_000)
    ]
    table = steps_table(rows)
    log = Log(table, name="many states", fingerprint="many", source=None, report=ImportReport())
    return orl.frame(log, orl.Framing(state="state_text"))


def speed_lines(dataset: Dataset, what: str, bars: dict[tuple[int, int], float]) -> list[Line]:
    """Time per step and seed; ``bars`` are by (batch size, number of seeds)."""
    times: dict[tuple[str, int, int], list[float]] = {}
    with peer_of(dataset) as peer:
        for batch_size in sorted({batch for batch, _ in bars}):
            peer.make("DiscreteCQL", batch_size, 0)
            for turn in range(N_TURNS + 1):
                for batch, n_seeds in bars:
                    if batch == batch_size:
                        parameters = {"batch": "minibatch", "batch_size": batch, "n_steps": N_STEPS}
                        ours = seconds_of(
                            lambda p=parameters, k=n_seeds: train_all("cql_neural", dataset, range(k), **p)
                        )
                        if turn:  # the first warms up
                            times.setdefault(("ours", batch, n_seeds), []).append(ours / N_STEPS / n_seeds)
                theirs = peer.train(N_STEPS // 2)
                if turn:
                    times.setdefault(("peer", batch_size, 1), []).append(theirs / (N_STEPS // 2))
    lines = []
    for (batch, n_seeds), bar in bars.items():
        ours = statistics.median(times["ours", batch, n_seeds])
        theirs = statistics.median(times["peer", batch, 1])
        seeds = "" if n_seeds == 1 else f", {n_seeds} seeds at once, per seed"
        lines.append(
            Line(
                f"`cql_neural` 2x64, {what}, batch {batch}{seeds}: one step",
                duration(ours),
                f"{duration(theirs)}, d3rlpy sample + update",
                f"{theirs / ours:.1f}x faster",
                f"≥ {bar:g}x",
                theirs / ours >= bar,
            )
        )
    return lines


def solved(dataset: Dataset, greedy: np.ndarray) -> bool:
    """Whether these actions solve every task, exactly."""
    table = np.eye(dataset.n_actions)[greedy]
    policy = TabularPolicy(states=dataset.states, actions=dataset.actions, probabilities=table)
    truth = orl.evaluate(policy, "calculator")
    return truth.success_rate is not None and truth.success_rate > 0.9999


def stable_from(passed: Sequence[bool]) -> int | None:
    """Place of the first of those that pass to the end; None where the last one fails."""
    failures = [i for i, good in enumerate(passed) if not good]
    first = failures[-1] + 1 if failures else 0
    return first if first < len(passed) else None


def seconds_to_success(dataset: Dataset, seed: int) -> tuple[float | None, int]:
    """Ours, reports included, and the steps between two looks."""
    spec = ALGORITHMS["cql_neural"]
    training = spec.train(dataset, make_config(spec.config_class, {"n_steps": STABLE_STEPS}, ""), seed=seed)
    elapsed, times, tables, steps = 0.0, [], [], []
    found: list[Any] = []
    while True:
        elapsed += seconds_of(lambda: found.append(next(training, None)))
        progress = found.pop()
        if progress is None:
            break
        steps.append(progress.step)
        if progress.q_values is not None:  # all but a few late ones
            times.append(elapsed)
            tables.append(progress.q_values)
    passed = [solved(dataset, np.where(np.isnan(table), -np.inf, table).argmax(axis=1)) for table in tables]
    first = stable_from(passed)
    return (None if first is None else times[first]), steps[0]


def success_line(dataset: Dataset) -> Line:
    """Training time until every later look finds the calculator solved, five seeds."""
    ours, theirs = [], []
    with peer_of(dataset) as peer:
        seconds_to_success(dataset, 99)  # warm
        for seed in range(5):
            mine, every = seconds_to_success(dataset, seed)
            ours.append(mine)
            peer.make("DiscreteCQL", 32, seed)
            elapsed, times, passed = 0.0, [], []
            for _ in range(STABLE_STEPS // every):
                elapsed += peer.train(every)
                times.append(elapsed)
                passed.append(solved(dataset, peer.greedy(dataset.valid_mask)))
            first = stable_from(passed)
            theirs.append(None if first is None else times[first])
    reached = [sorted(seconds for seconds in column if seconds is not None) for column in (ours, theirs)]
    if min(map(len, reached)) < 5:
        return Line("calculator log to stable exact success", f"{len(reached[0])} of 5", f"{len(reached[1])} of 5")
    mine, other = map(statistics.median, reached)
    return Line(
        "calculator log to stable exact success, `cql_neural` as it comes",
        duration(mine),
        f"{duration(other)}, d3rlpy DiscreteCQL, batch 32",
        f"{mine / other:.2f}x",
        "≤ 0.5x",
        mine / other <= 0.5,
    )


def agreement(dataset: Dataset, name: str, n_seeds: int, n_steps: int) -> FloatArray:
    """(n_seeds,) share of the logged states in which our greedy action is d3rlpy's, seed by seed."""
    logged = dataset.visitation_counts.any(axis=1)
    models = train_all(name, dataset, range(n_seeds), n_steps=n_steps)
    shares = []
    with peer_of(dataset) as peer:
        for seed, model in enumerate(models):
            peer.make(PEERS[name], 256, seed)
            peer.train(n_steps)
            same = peer.greedy(dataset.valid_mask) == model.policy.probabilities.argmax(axis=1)
            shares.append(same[logged].mean())
    return np.array(shares)


def network_lines() -> list[Line]:
    """Speed, time to success, and whether both pick the same actions."""
    if not peer_python():
        return [Line("small networks against d3rlpy", f"not measured: {VARIABLE} names no Python that has it")]
    dataset = orl.frame(orl.bundled_log("calculator"))
    lines = speed_lines(dataset, "calculator", {(256, 1): 5, (32, 1): 3, (256, 8): 9, (32, 8): 12})
    lines += speed_lines(log_of_many_states(), "2,197 states", {(256, 1): 5, (256, 8): 9})
    lines.append(success_line(dataset))
    for name, peer in PEERS.items():
        shares = agreement(dataset, name, 10, 1000)
        lines.append(
            Line(
                f"same greedy action as d3rlpy's {peer} in logged states, `{name}`, 10 seeds",
                f"{shares.mean():.1%} (lowest {shares.min():.1%})",
            )
        )
    return lines
