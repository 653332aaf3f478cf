"""Logs from any environment of Gymnasium with discrete actions: episodes are played and written in the trace schema.

Such a log is like an imported one: no world with known truth stands behind it (``log.source`` is None), so nothing judges a
policy exactly; the report says so. Gymnasium is imported only where an environment is made from its name.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidConfig, NotPossible
from .importers.array_labels import plain_steps, state_labels
from .importers.report import ImportReport
from .log import Log
from .policies import TabularPolicy, table_of
from .schema import canonical_json, short_hash, steps_table
from .sequence_policy import SequencePolicy
from .worlds.gymnasium_tables import INSTALL

MAX_STEPS = 10_000  # of an episode, where the environment has no time limit of its own

Act = Callable[[Any], int]


def collect_gymnasium(
    environment: str | Any,
    policy: TabularPolicy | Act | None = None,
    n_episodes: int = 100,
    seed: int = 0,
    *,
    action_names: Sequence[str] | None = None,
    name: str | None = None,
) -> Log:
    """Play episodes and keep them as a log.

    Args:
        environment: name that ``gymnasium.make`` knows, or an environment of one's own. It is closed only if made here.
        policy: over the texts of whole-number observations ("0", "1", ...) and the names of the actions; or a function
            observation -> number of the action, whose probabilities stay unknown; or None, which acts at random.
        n_episodes: episodes to play, 1 to 1,000,000.
        seed: of the environment and of the choices; the same arguments give the same log if the environment allows.
        action_names: one per action; by default their numbers.
        name: what people shall call it.

    Raises:
        NotPossible: gymnasium isn't installed or can't make the environment, its actions aren't discrete, or the policy looks
            back.
        InvalidConfig: too few or too many episodes, or the names don't fit the actions.
    """
    if not 1 <= n_episodes <= 1_000_000:
        raise InvalidConfig(f"n_episodes is {n_episodes}; it must lie between 1 and 1,000,000.")
    if isinstance(policy, SequencePolicy):
        table_of(policy, "Logs of Gymnasium environments")
    title = environment if isinstance(environment, str) else _title(environment)
    arena = _made(environment) if isinstance(environment, str) else environment
    try:
        player = _Player(arena, policy, action_names, title, seed)
        for episode in range(n_episodes):
            player.play(episode)
    finally:
        if isinstance(environment, str):
            arena.close()
    return player.log(name or f"{title}, {n_episodes:,} episodes")


def _made(name: str) -> Any:
    if importlib.util.find_spec("gymnasium") is None:
        raise NotPossible(
            f"To play {name}, the package gymnasium is needed, which is not installed; get it with: {INSTALL}"
        )
    gymnasium = importlib.import_module("gymnasium")
    try:
        return gymnasium.make(name)
    except (gymnasium.error.Error, ImportError) as error:
        raise NotPossible(f"gymnasium can't make {name!r}: {error}") from error


def _title(environment: Any) -> str:
    spec = getattr(environment, "spec", None)
    return str(spec.id) if spec is not None else type(environment).__name__


class _Player:
    """Plays episodes and remembers every step."""

    def __init__(
        self, arena: Any, policy: TabularPolicy | Act | None, action_names: Sequence[str] | None, title: str, seed: int
    ) -> None:
        space = arena.action_space
        if not hasattr(space, "n") or getattr(space, "shape", None) != ():
            raise NotPossible(f"The actions of {title} are {space}; only discrete ones can be logged here.")
        self.arena, self.policy, self.title, self.seed = arena, policy, title, seed
        self.first_action = int(getattr(space, "start", 0))
        self.action_names = tuple(action_names or map(str, range(self.first_action, self.first_action + int(space.n))))
        if len(self.action_names) != space.n:
            raise InvalidConfig(
                f"{title} has {space.n} actions, but {len(self.action_names)} names were given for them."
            )
        self.rng = np.random.default_rng(seed)
        self.observations: list[Any] = []
        self.rows: list[dict[str, Any]] = []

    def play(self, episode: int) -> None:
        """Play one episode to its end, or to the bound of steps."""
        observation, _ = self.arena.reset(seed=self.seed if episode == 0 else None)
        for t in range(MAX_STEPS):
            action, logprob = self._choose(observation)
            self.observations.append(observation)
            following, reward, terminal, truncated, _ = self.arena.step(self.first_action + action)
            timeout = not terminal and bool(truncated or t + 1 == MAX_STEPS)
            self.rows.append(
                {
                    "episode_id": f"ep-{episode:06d}",
                    "t": t,
                    "decision_id": f"ep-{episode:06d}#{t}",
                    "upload_order": len(self.rows),
                    "action": self.action_names[action],
                    "action_type": "env_action",
                    "tool": self.action_names[action],
                    "arguments": "{}",
                    "arguments_status": "object",
                    "arguments_hash": short_hash("{}"),
                    "call_index": 0,
                    "reward": float(reward),
                    "terminal": bool(terminal),
                    "timeout": timeout,
                    "end_reason": "terminated" if terminal else "truncated" if timeout else None,
                    "environment_version": self.title,
                    "action_logprob": logprob,
                    "reward_source": "environment",
                    "behavior_policy": self._name,
                }
            )
            if terminal or timeout:
                return
            observation = following

    @property
    def _name(self) -> str:
        if self.policy is None:
            return "uniform"
        return "tabular" if isinstance(self.policy, TabularPolicy) else getattr(self.policy, "__name__", "function")

    def _choose(self, observation: Any) -> tuple[int, float | None]:
        """Place of the action among the names, and its log probability where that is known."""
        names = self.action_names
        if self.policy is None:
            return int(self.rng.integers(len(names))), -math.log(len(names))
        if isinstance(self.policy, TabularPolicy):
            chances = self.policy.action_probabilities(str(np.asarray(observation)), names)
            chosen = str(self.rng.choice(list(chances), p=np.array(list(chances.values())) / sum(chances.values())))
            if chosen not in names:
                raise InvalidConfig(
                    f"The policy takes {chosen!r}, which {self.title} doesn't have: {', '.join(names)}."
                )
            return names.index(chosen), math.log(chances[chosen])
        action = int(self.policy(observation)) - self.first_action
        if not 0 <= action < len(names):
            raise InvalidConfig(
                f"The policy takes action {action + self.first_action}, which {self.title} doesn't have."
            )
        return action, None

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """What was observed, part by part; only a dictionary has several."""
        first = self.observations[0]
        if not isinstance(first, dict):
            return {"": np.stack([np.asarray(observation) for observation in self.observations])}
        return {part: np.stack([np.asarray(observation[part]) for observation in self.observations]) for part in first}

    def log(self, name: str) -> Log:
        """Everything that was played."""
        report = ImportReport(format="gymnasium", why=f"played here in {self.title} by the policy {self._name}")
        report.n_steps, report.n_episodes = len(self.rows), len({row["episode_id"] for row in self.rows})
        report.accounts.found[name] = report.n_episodes
        report.settle({name: np.arange(1, report.n_episodes + 1)}, {name: "episode"})
        report.notes.append("No world with known truth stands behind this log, so policies can't be judged exactly.")
        arrays = self._arrays()
        texts: Sequence[str | None] = state_labels([arrays], report) or [None] * len(self.rows)
        for row, text, value in zip(self.rows, texts, plain_steps(arrays), strict=True):
            row["state_text"], row["state"] = text, canonical_json({"observation": value})
        steps = steps_table(self.rows)
        content = canonical_json([self.title, self._name, self.seed, [list(row.values()) for row in self.rows]])
        return Log(steps, name=name, fingerprint=short_hash(content), source=None, report=report)
