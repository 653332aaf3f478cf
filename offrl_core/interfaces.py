"""The contract of a learner: a generator of progress that returns a trained model, and its registry entry.

``train(dataset, config, *, seed) -> Generator[Progress, None, TrainedModel]``. It yields at least every 100 ms, so that a
caller can show progress and stop it by closing it; where it yields is fixed by its steps, never by the clock. It uses no
global random state and sees the dataset only, never a world: offline by construction.

A generator lives and dies with its process. A learner that takes long should therefore be **resumable**
(``AlgorithmSpec.resumable``): its ``train`` takes one more keyword, ``resume_from``, and its progress carries ``state``,
everything that changes while it trains (weights, moments of the optimiser, where it stands in the data, the state of its
random generator). Started with a state, it goes on behind the sign of life that carried it and ends in the same bits as if
it had never stopped. :mod:`offrl_core.jobs` runs such learners in slices of half a second, takes turns between visitors,
and goes on after a killed worker. A state is dicts with text keys, lists, text, numbers, None and NumPy arrays, nothing
else: it is stored without pickle and crosses processes that never import torch. Tuples come back as lists.

A learner that draws at random may offer to train **many seeds at once** (``AlgorithmSpec.train_seeds``), where one batched
computation costs far less than one after the other. Each seed keeps a progress, a state and a model of its own, with
the same bits as if it had been trained alone: whoever runs it may put seeds together and take them apart between two signs
of life.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from .arrays import FloatArray, ShortRepr
from .dataset import Dataset
from .errors import NotPossible
from .policies import Policy


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Progress(ShortRepr):
    """A sign of life. ``step`` counts in the learner's own unit, named in its spec; ``total`` bounds it.

    ``q_values`` (S, A) is given for key frames only; NaN where an action may not be chosen. ``probabilities`` (S, A) is the
    policy at that moment, for key frames of learners whose policy doesn't follow from the values alone. ``state`` is what a
    resumable learner would go on from; it may share the learner's own arrays, so it holds only until the learner goes on.
    """

    step: int
    total: int
    metrics: Mapping[str, float]
    q_values: FloatArray | None = None
    probabilities: FloatArray | None = None
    state: Mapping[str, Any] | None = field(default=None, repr=False)


class Reported(tuple[Progress, ...]):
    """Signs of life of one training; a tuple that doesn't print thousands of them."""

    __slots__ = ()

    def __repr__(self) -> str:
        """How many, and the last one."""
        return f"<{len(self):,} of Progress, the last: {self[-1]!r}>" if self else "()"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainedModel:
    """What a learner returns.

    Attributes:
        policy: over the states and actions of the dataset: a table, but for the learner whose policy looks back.
        q_values: (S, A) learned values, NaN where an action may not be chosen; None for learners without values.
        converged: False where the learner stopped at its bound of steps.
        problem: why it stopped before its time, as a sentence (a number that isn't finite, say: step, metric, last good
            value); the model is then the last good one. "" where nothing went wrong.
        weights: name -> array of what a network learned, as NumPy arrays; None for tables.
        algorithm, config, seed: how it was trained; filled in by :func:`offrl_core.training.train`.
        history: progress that was reported, key frames included; thinned where it is long, see
            :mod:`offrl_core.history`.
    """

    policy: Policy
    q_values: FloatArray | None
    converged: bool = True
    problem: str = ""
    weights: Mapping[str, NDArray[Any]] | None = field(default=None, repr=False)
    algorithm: str = ""
    config: Any = None
    seed: int = 0
    history: tuple[Progress, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Let the history print itself shortly."""
        object.__setattr__(self, "history", Reported(self.history))

    def __repr__(self) -> str:
        """How it was trained and how that ended, not arrays."""
        known = (
            "no values" if self.q_values is None else "values of {:,} states x {} actions".format(*self.q_values.shape)
        )
        ending = "stopped early" if self.problem else "converged" if self.converged else "stopped at its bound of steps"
        return f"TrainedModel({self.algorithm!r}, seed {self.seed}, {known}, {ending}; {self.config!r})"


Training = Generator[Progress, None, TrainedModel]

# One entry per seed, in their order, all at the same step; None for a seed that has ended before the others.
SeedsTraining = Generator[tuple[Progress | None, ...], None, tuple[TrainedModel, ...]]


Kind = Literal["table", "network", "sequence model"]
KINDS: tuple[Kind, ...] = get_args(Kind)  # as menus list them


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSpec:
    """Registry entry of a learner.

    Attributes:
        name: key of the registry, links and notebooks.
        title: plain words; the field's term comes second. Every word of ``short`` is in it.
        short: for axes and chips, at most 20 letters.
        summary: one sentence for a menu.
        config_class: frozen dataclass of parameters with metadata.
        train: the generator.
        metrics: name -> meaning and unit of everything it reports.
        unit: what ``Progress.step`` counts.
        equation: in TeX.
        source: paper and equation number.
        differs: numbered differences from the source.
        kind: what it learns; menus and the registry go by it.
        instant: whether it is done before a page is drawn; others ask before they run.
        resumable: whether ``train`` takes ``resume_from`` and its progress carries a state.
        train_seeds: ``(dataset, config, *, seeds, resume_from=None) -> SeedsTraining`` where many seeds can be trained at once;
            ``resume_from`` is one state per seed, as ``train`` gives them, all of the same step.
    """

    name: str
    title: str
    short: str
    summary: str
    config_class: type
    train: Callable[..., Training]
    metrics: Mapping[str, str]
    unit: str
    equation: str
    source: str
    differs: tuple[str, ...] = ()
    kind: Kind = "table"
    instant: bool = True
    resumable: bool = False
    train_seeds: Callable[..., SeedsTraining] | None = None

    @property
    def menu_title(self) -> str:
        """The title behind its kind, for long menus."""
        return f"{self.kind.capitalize()} · {self.title}"


def require_rewards(dataset: Dataset) -> None:
    """Refuse to learn values where no row has any; in the same words for all learners, so that pages say it once.

    Raises:
        NotPossible: no step of the dataset has both a known reward and a known successor or ending.
    """
    if not dataset.has_rewards:
        raise NotPossible(
            "Values are learned from rewards, and no step of this log has a known reward. "
            "Behavior cloning (bc) needs none; to learn values, load a log with rewards."
        )
