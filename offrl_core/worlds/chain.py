"""A chain of six links where two mediocre logs hold all that is needed to beat both: stitching.

Rules: at each link the agent walks, which is safe, or jumps, which fails with probability 0.2 and ends the episode. Either
costs 0.02; behind the last link waits +1. The agent sees the number of the link, so nothing is hidden.

Two agents write the log, each with a bad habit: one walks the first three links and jumps the others, the other one the
reverse. Either arrives in 0.8^3 = 51 % of its episodes, and no episode of the log shows more than three walks. Yet every
link has been walked by somebody, so a learner of values, which may put the halves together, arrives always. Who copies the
log can't: what most steps do at each link is what one of the two does, and the best episodes are those where the same two
agents were lucky, so copying only these changes nothing. Copying frequencies helps by an accident of mixing (at most
0.9^6 = 53 %).

- ``works``:   a jump fails with probability 0.2;
- ``brittle``: a jump fails with 0.6. Who stitched doesn't notice.
"""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..behavior_policies import MixedBehavior, MixedPart, TableBehavior
from . import BehaviorSpec, DeploymentSpec, Transition, WorldSpec

N_LINKS = 6
STEP_COST, PRIZE, DISCOUNT = 0.02, 1.0, 0.99
FALL = {"works": 0.2, "brittle": 0.6}
FALLEN, ACROSS = -1, N_LINKS  # where episodes end


class Chain:
    """The chain under one deployment; a state is the number of a link. See the module's docstring for the rules."""

    name = "chain"
    action_names = ("walk", "jump")
    discount = DISCOUNT

    def __init__(self, deployment: str = "works") -> None:
        """Take one of the deployments ``works`` and ``brittle``."""
        self.deployment = deployment

    def initial_states(self) -> list[tuple[float, int]]:
        """The first link."""
        return [(1.0, 0)]

    def actions(self, state: int) -> tuple[str, ...]:
        """Both, everywhere."""
        return self.action_names

    def transitions(self, state: int, action: str) -> list[Transition]:
        """On to the next link, or down."""
        fall = FALL[self.deployment] if action == "jump" else 0.0
        arrives = state + 1 == ACROSS
        onward = Transition(1 - fall, state + 1, PRIZE * arrives - STEP_COST, terminal=arrives)
        return [onward, Transition(fall, FALLEN, -STEP_COST, terminal=True)] if fall else [onward]

    def state_key(self, state: int) -> str:
        """The number of the link, from 1."""
        return key_of(state)

    def task(self, state: int) -> None:
        """There is one thing to do, and no tasks."""

    def succeeded(self, state: int) -> bool:
        """Whether an ended episode got across."""
        return state == ACROSS

    def features(self, state: int) -> FloatArray:
        """(6,) one-hot link."""
        return np.eye(N_LINKS)[state]

    def user_goal(self, state: int) -> str:
        """The request as text."""
        return "Get across."

    def observation(self, action: str, next_state: int) -> str:
        """Where the step led."""
        return {FALLEN: "fell", ACROSS: "across"}.get(next_state, key_of(next_state))


def key_of(link: int) -> str:
    """What a policy sees of a link."""
    return f"link {link + 1}"


def _habit(walked: range) -> TableBehavior:
    """Walks some links and jumps the others."""
    return TableBehavior(probabilities={key_of(i): {"walk" if i in walked else "jump": 1.0} for i in range(N_LINKS)})


def first_half() -> TableBehavior:
    """Walks the first three links."""
    return _habit(range(N_LINKS // 2))


def second_half() -> TableBehavior:
    """Walks the last three links."""
    return _habit(range(N_LINKS // 2, N_LINKS))


def both() -> MixedBehavior:
    """Six of ten episodes by the one agent, four by the other."""
    return MixedBehavior(
        mixed=(MixedPart(0.6, "first_half", first_half()), MixedPart(0.4, "second_half", second_half()))
    )


SPEC: WorldSpec = WorldSpec(
    name="chain",
    title="Chain of links",
    summary="Two agents, each good at one half. Who puts the halves together beats both; who copies them can't.",
    make=Chain,
    deployments={
        "works": DeploymentSpec("works", "a jump fails with probability 0.2"),
        "brittle": DeploymentSpec("is brittle", "a jump fails with probability 0.6"),
    },
    behaviors={
        "logger": BehaviorSpec("the two agents below, six to four", both),
        "first_half": BehaviorSpec("walks the first half and jumps the second", first_half),
        "second_half": BehaviorSpec("jumps the first half and walks the second", second_half),
        "uniform": BehaviorSpec("acts at random", lambda: TableBehavior(random_probability=1.0)),
    },
)
