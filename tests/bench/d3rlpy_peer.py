"""d3rlpy in a process of its own: reads one JSON command per line, answers with one. Run by the interpreter that has it."""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import numpy as np

warnings.simplefilter("ignore")
import d3rlpy  # noqa: E402 - its imports warn
import torch  # noqa: E402

torch.set_num_threads(1)


class Learner:
    """One algorithm on one log."""

    def __init__(self, arrays: str, algorithm: str, batch_size: int, seed: int) -> None:
        with np.load(arrays) as found:
            self.states = found["states"]
            log = {name: found[name] for name in ("observations", "actions", "rewards", "terminals")}
        d3rlpy.seed(seed)
        space = d3rlpy.ActionSpace.DISCRETE
        self.dataset = d3rlpy.dataset.MDPDataset(**log, action_space=space, action_size=int(log["actions"].max()) + 1)
        made = getattr(d3rlpy.algos, f"{algorithm}Config")
        encoder = d3rlpy.models.VectorEncoderFactory(hidden_units=[64, 64])
        config = {"batch_size": batch_size, "learning_rate": 1e-3, "encoder_factory": encoder}
        self.algo = made(**config, **({} if algorithm == "DiscreteBC" else {"gamma": 0.99})).create(device=False)
        self.algo.build_with_dataset(self.dataset)
        self.batch_size = batch_size

    def train(self, n: int) -> float:
        """Seconds of n times sample and update."""
        start = time.perf_counter()
        for _ in range(n):
            self.algo.update(self.dataset.sample_transition_batch(self.batch_size))
        return time.perf_counter() - start

    def values(self) -> list[list[float]]:
        """(S, A) what it would pick from: Q, or 1 at the action it picks where it has none for all."""
        if type(self.algo).__name__ == "DiscreteCQL":
            n_actions = self.algo.action_size
            pairs = [np.full(len(self.states), a) for a in range(n_actions)]
            return np.stack([self.algo.predict_value(self.states, a) for a in pairs], axis=1).tolist()
        return np.eye(self.algo.action_size)[self.algo.predict(self.states)].tolist()


def main() -> None:
    """Serve until the input ends. Libraries write to standard output, too, so answers go to a copy of it."""
    answers, sys.stdout = sys.stdout, sys.stderr
    learner: Any = None
    for line in sys.stdin:
        command = json.loads(line)
        what = command.pop("do")
        if what == "make":
            learner, answer = Learner(**command), {}
        elif what == "train":
            answer = {"seconds": learner.train(**command)}
        else:
            answer = {"values": learner.values()}
        print(json.dumps(answer), file=answers, flush=True)


main()
