r"""Ask for a return, and do what the log did in episodes that got it: a Decision Transformer.

An episode is a row of tokens, three a step: return still to come g, state s, action a. A small causal transformer learns to
name the action that the log took next, from everything before it:

    minimise   - E [ log pi(a_t | g_1, s_1, a_1, ..., g_t, s_t) ]

Played: start with g = the return asked for, and go on with what is still missing, g' = (g - reward) / discount. Nothing is
bootstrapped and no value is learned; the policy looks back, so it has no table over states either. What it gets for what it
is asked is a curve to look at, see :mod:`offrl_core.evaluation.asked_return`.

Source: Chen et al. (2021), "Decision transformer: reinforcement learning via sequence modeling", NeurIPS, algorithm 1 and
table 8.

Differs: 1. discounted, as the framing says. 2. Only as many tokens as the episodes have: batches are cut to their longest
stretch, and padding stands behind it, where causal attention doesn't look and the loss doesn't count. 3. Whole episodes
where they fit into the context; of longer ones, a stretch from anywhere. 4. The last layer works on state tokens only, as
the others aren't read. 5. Every hundredth state and action is hidden, so that there are embeddings for what the log never
shows. 6. Only valid actions compete. 7. Adam without weight decay, no dropout. 8. States
are known by their key alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..dataset import Dataset
from ..errors import NotPossible
from ..interfaces import AlgorithmSpec, Progress, TrainedModel, Training
from ..params import param
from ..sequence_policy import SequencePolicy
from .neural_config import require_torch
from .ops import range_of_returns

if TYPE_CHECKING:
    import torch

    from .neural_transformer import Windows

HIDDEN_SHARE = 0.01
EQUAL = 1e-9  # returns that spread less, as a share of the largest, differ by rounding
MAX_GRADIENT = 1.0  # longer ones are shortened to it
WARM_UP = 20  # steps over which the learning rate rises
PRODUCTS_BETWEEN_SIGNS_OF_LIFE = 4e8  # multiplications of a forward pass; some 40 ms with the way back


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionTransformerConfig:
    """Parameters of the Decision Transformer. What it is asked for isn't one of them: that is a dial of the policy."""

    n_steps: int = param(
        300, label="Training steps", help="Each on one batch of episodes.", low=1, high=100_000, step=50, unit="steps"
    )
    context: int = param(
        20,
        label="Looks back",
        help="Steps it sees, the present one included; episodes that are shorter cost only their length.",
        low=1,
        high=64,
        step=1,
        unit="steps",
        source="Chen et al. 2021, section 3",
    )
    n_layers: int = param(2, label="Layers", help="Rounds of looking back, one upon the other.", low=1, high=4, step=1)
    n_heads: int = param(
        4, label="Heads", help="Places that each round of looking back can attend to at once.", low=1, high=8, step=1
    )
    head_width: int = param(
        16, label="Numbers per head", help="Heads times this is the width of the network.", low=4, high=32, step=4
    )
    batch_size: int = param(
        64, label="Episodes per step", help="Episodes drawn for each step.", low=1, high=512, step=16, unit="episodes"
    )
    learning_rate: float = param(
        0.003, label="Step size", help="Of Adam, reached after 20 steps.", low=0.00001, high=0.1, step=0.001
    )
    imitate: str = param(
        "majority",
        label="Imitates",
        help="Takes the most probable action, or draws by probability.",
        choices=(("majority", "the most probable action"), ("frequencies", "the probabilities")),
    )

    @property
    def width(self) -> int:
        """Numbers per token."""
        return self.n_heads * self.head_width


class _Sequences(NamedTuple):
    """Stretches of the log whose returns-to-go are known, one behind the other: M steps, Q stretches."""

    returns: FloatArray  # (M,) to go, discounted, reward units
    times: IntArray  # (M,) since the episode began
    states: IntArray  # (M,)
    actions: IntArray  # (M,)
    begins: IntArray  # (Q,) place of each stretch's first step
    lengths: IntArray  # (Q,)


def train(
    dataset: Dataset,
    config: DecisionTransformerConfig,
    *,
    seed: int,
    resume_from: Mapping[str, Any] | None = None,
) -> Training:
    """Learn to name the logged action, batch by batch; large batches in parts, with a sign of life after each."""
    sequences = _sequences(dataset)
    require_torch()
    learner = _Learner(dataset, sequences, config, seed)
    if resume_from:
        learner.go_on_from(resume_from)
    problem = ""
    while learner.step < config.n_steps and not problem:
        for part in learner.parts_left():
            learner.learn_from(part)
            if learner.part < learner.n_parts:
                yield learner.progress()
        problem = learner.step_down()
        if not problem:
            yield learner.progress()
    low, high = range_of_returns(dataset)
    policy = SequencePolicy(
        states=dataset.states,
        actions=dataset.actions,
        allowed=dataset.valid_mask,
        weights=learner.weights(),
        n_heads=config.n_heads,
        context=config.context,
        discount=dataset.discount,
        target_return=high,
        return_range=(low, high),
        greedy=config.imitate == "majority",
    )
    return TrainedModel(policy=policy, q_values=None, problem=problem, weights=policy.weights)


# -- the log as sequences ----------------------------------------------------------------------------------------


def _sequences(dataset: Dataset) -> _Sequences:
    if not dataset.whole_sequences:
        raise NotPossible(
            "The Decision Transformer needs whole episodes: a coverage edit took single steps out of them, so what came "
            "before each step and what was still to come is unknown. Take whole episodes out instead."
        )
    order, rows = dataset.time_order, dataset.transitions()
    returns, episodes = dataset.returns_to_go[order], dataset.episodes[order]
    known = ~np.isnan(returns)
    if not known.any():
        raise NotPossible(
            "The Decision Transformer asks for a return, and no step of this log has a known reward to the end of its "
            "episode (all were cut or lack a reward). Behavior cloning (bc) needs none."
        )
    new_episode = np.append(True, episodes[1:] != episodes[:-1])
    times = np.arange(len(order)) - np.flatnonzero(new_episode)[np.cumsum(new_episode) - 1]
    # A stretch ends with its episode, before a gap, and where an episode goes on behind its ending.
    goes_on = (rows.next_observations[order] >= 0)[:-1] & known[:-1] & ~new_episode[1:]
    begins = np.flatnonzero(np.append(True, ~goes_on)[known])
    return _Sequences(
        returns=returns[known],
        times=times[known],
        states=rows.observations[order][known],
        actions=rows.actions[order][known],
        begins=begins,
        lengths=np.diff(np.append(begins, int(known.sum()))),
    )


def _scale_of(returns: FloatArray) -> FloatArray:
    """(2,) mean and standard deviation; where all are equal, any number but 0 will do for the latter."""
    largest = max(float(np.abs(returns).max()), float(np.finfo(np.float64).tiny))
    small = returns / largest  # squares of large rewards overflow
    spread = float(small.std())
    return largest * np.array([small.mean(), spread if spread > EQUAL else 1.0])


class _Batches:
    """Draws stretches of the log as padded windows."""

    def __init__(self, sequences: _Sequences, n_hidden: tuple[int, int], context: int) -> None:
        """``n_hidden``: numbers that stand for a hidden state and a hidden action."""
        import torch

        self.scale = _scale_of(sequences.returns)
        self._returns = torch.from_numpy((sequences.returns - self.scale[0]) / self.scale[1]).float()
        self._columns = [torch.from_numpy(column) for column in sequences[1:4]]
        self._begins, self._lengths = (torch.from_numpy(column) for column in sequences[4:])
        self._context, self._n_hidden = context, n_hidden
        self.longest = min(context, int(sequences.lengths.max()))
        # So that a step of a long sequence is seen about as often as one of a short sequence.
        shares = np.maximum(sequences.lengths / context, 1.0)
        self._ends = torch.from_numpy(np.cumsum(shares / shares.sum()))

    def draw(self, n: int, generator: torch.Generator) -> Windows:
        """``n`` windows, as long as the longest of them."""
        import torch

        from .neural_transformer import Windows

        chance = torch.rand((2, n), generator=generator, dtype=torch.float64)
        chosen = torch.searchsorted(self._ends, chance[0]).clamp_(max=len(self._ends) - 1)
        lengths = self._lengths[chosen].clamp(max=self._context)
        offsets = (chance[1] * (self._lengths[chosen] - lengths + 1)).long()
        steps = torch.arange(int(lengths.max()))
        real = steps < lengths[:, None]
        places = (self._begins[chosen] + offsets)[:, None] + torch.where(real, steps, 0)
        times, states, actions = (column[places] for column in self._columns)
        hidden = torch.rand((2, *places.shape), generator=generator) < HIDDEN_SHARE
        return Windows(
            returns=self._returns[places],
            times=times,
            states=torch.where(hidden[0], self._n_hidden[0], states),
            actions=torch.where(hidden[1], self._n_hidden[1], actions),
            taken=actions,
            real=real,
        )


# -- training ----------------------------------------------------------------------------------------------------


class _Learner:
    """The network in the middle of its training.

    Attributes:
        step: steps done.
        part: parts of the next batch done.
        n_parts: parts of a batch.
    """

    def __init__(self, dataset: Dataset, sequences: _Sequences, config: DecisionTransformerConfig, seed: int) -> None:
        import torch

        from .neural_transformer import Sizes, Trainable

        self._config, self._generator = config, torch.Generator().manual_seed(seed)
        n_states, n_actions = dataset.n_states, dataset.n_actions
        sizes = Sizes(n_states, n_actions, int(sequences.times.max()) + 1, config.width, config.n_layers)
        self._net = Trainable(sizes, self._generator)
        self._batches = _Batches(sequences, (n_states, n_actions), config.context)
        self._allowed = torch.from_numpy(np.vstack([dataset.valid_mask, np.ones((1, n_actions), dtype=bool)]))
        n_products = (3 * self._batches.longest - 1) * 12 * config.width**2 * config.n_layers  # of a window
        self.n_parts = -(-config.batch_size // max(1, int(PRODUCTS_BETWEEN_SIGNS_OF_LIFE / n_products)))
        self.step = self.part = 0
        self._sums = np.zeros(3)  # over the batch so far: cross-entropy, steps named right, steps
        self._n_steps_of_batch = 0
        self._drawn_with = self._generator.get_state()

    def parts_left(self) -> Iterator[Windows]:
        """Draw a batch and give the parts of it that are still to do."""
        if self.part == 0:
            self._drawn_with = self._generator.get_state()
            self._sums = np.zeros(3)
        batch = self._batches.draw(self._config.batch_size, self._generator)
        self._n_steps_of_batch = int(batch.real.sum())
        parts = [type(batch)(*columns) for columns in zip(*(c.tensor_split(self.n_parts) for c in batch), strict=True)]
        yield from parts[self.part :]

    def learn_from(self, part: Windows) -> None:
        """Add the gradients of a part of the batch."""
        import torch

        from .neural_transformer import action_losses

        losses, right = action_losses(self._net.named, self._config.n_heads, part, self._allowed)
        total = losses.sum()
        torch.autograd.backward(total / self._n_steps_of_batch)
        self._sums += [total.item(), right.sum().item(), len(losses)]
        self.part += 1

    def step_down(self) -> str:
        """Change the weights once the batch is done; where its numbers are no numbers, keep them and say so."""
        rate = self._config.learning_rate * min(1.0, (self.step + 1) / WARM_UP)
        loss, norm = self._sums[0] / self._sums[2], self._net.adam_step(self.step + 1, rate, MAX_GRADIENT)
        if not (np.isfinite(loss) and np.isfinite(norm)):
            return (
                f"Stopped at step {self.step + 1:,}: the loss is {loss:g} and the length of its gradient {norm:g}, and both must "
                f"be finite. The model is that of step {self.step:,}."
            )
        self.step, self.part = self.step + 1, 0
        return ""

    def progress(self) -> Progress:
        """Loss and agreement of the batch at hand, and the state to go on from."""
        loss, right, n_steps = self._sums.tolist()
        # In the middle of a batch, the one that drew it: it is drawn again.
        generator = self._drawn_with if self.part else self._generator.get_state()
        return Progress(
            step=self.step,
            total=self._config.n_steps,
            metrics={"loss": loss / n_steps, "agreement": right / n_steps},
            state={
                "step": self.step,
                "part": self.part,
                "sums": self._sums,
                "generator": generator.numpy(),
                **{name: buffer.numpy() for name, buffer in self._net.buffers.items()},
            },
        )

    def go_on_from(self, state: Mapping[str, Any]) -> None:
        """Stand where :meth:`progress` gave this state."""
        import torch

        self.step, self.part, self._sums = state["step"], state["part"], state["sums"].copy()
        self._generator.set_state(torch.from_numpy(state["generator"].copy()))
        self._drawn_with = self._generator.get_state()
        for name, buffer in self._net.buffers.items():
            buffer.copy_(torch.from_numpy(state[name]))

    def weights(self) -> dict[str, NDArray[Any]]:
        """The network as arrays."""
        named = {name: tensor.detach().numpy().copy() for name, tensor in self._net.named.items()}
        return {**named, "return/scale": self._batches.scale}


SPEC = AlgorithmSpec(
    name="decision_transformer",
    title="Ask for a return, looking back (Decision Transformer)",
    short="Decision Transformer",
    summary="A small transformer that names the action the log took in episodes that got the return asked for. Slow to train.",
    config_class=DecisionTransformerConfig,
    train=train,
    metrics={
        "loss": "mean cross-entropy of the logged actions in the batch, nats",
        "agreement": "share of the batch's steps where the most probable action is the logged one",
    },
    unit="step",
    equation=r"\min_\pi\; -\mathbb{E}\big[\log \pi(a_t \mid \hat g_1, s_1, a_1, \dots, \hat g_t, s_t)\big],"
    r"\quad \hat g_t = \textstyle\sum_{k \ge t} \gamma^{k-t} r_k",
    source="Chen et al. 2021, algorithm 1",
    differs=(
        "discounted, as the framing says",
        "batches are cut to their longest stretch; padding stands behind it, unseen and uncounted",
        "whole episodes where they fit into the context, of longer ones a stretch from anywhere",
        "the last layer works on state tokens only, as the others aren't read",
        "every hundredth state and action is hidden while it learns, for what the log never shows",
        "only valid actions compete",
        "Adam without weight decay, no dropout",
        "states are known by their key alone",
    ),
    kind="sequence model",
    instant=False,
    resumable=True,
)
