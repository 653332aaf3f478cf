"""The peer of ``transformer.py``, run by an interpreter that has d3rlpy: reads how many steps to train, says how long it took.

Arguments: a file of arrays (observations, actions, rewards, terminals), context, layers, width, heads, batch size.
"""

import sys
import time
import warnings

import numpy as np

warnings.simplefilter("ignore")

import d3rlpy  # noqa: E402
import torch  # noqa: E402
from d3rlpy.algos.transformer import DiscreteDecisionTransformerConfig  # noqa: E402
from d3rlpy.models.encoders import VectorEncoderFactory  # noqa: E402


def main() -> None:
    """Answer each number on stdin with the seconds that so many steps took."""
    path, *numbers = sys.argv[1:]
    context, n_layers, width, n_heads, batch_size = map(int, numbers)
    torch.set_num_threads(1)
    with np.load(path) as arrays:
        dataset = d3rlpy.dataset.MDPDataset(**arrays)
    # As ours: no dropout, the same activation in the layers.
    learner = DiscreteDecisionTransformerConfig(
        batch_size=batch_size,
        context_size=context,
        num_layers=n_layers,
        num_heads=n_heads,
        encoder_factory=VectorEncoderFactory([width]),
        attn_dropout=0.0,
        resid_dropout=0.0,
        embed_dropout=0.0,
        activation_type="relu",
        max_timestep=20,
    ).create(device="cpu:0")
    learner.build_with_dataset(dataset)
    n_parameters = sum(p.numel() for p in learner.impl.modules.transformer.parameters())
    print(n_parameters, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            learner.update(dataset.sample_trajectory_batch(batch_size, length=context))
        print(time.perf_counter() - start, flush=True)


main()
