"""What a network sees of a state: numbers, the same in every process.

A table looks states up by their keys; a network must compute with them. Three views of a state key:

- **world**: the numbers that the world itself gives (``World.features``), for logs of a world that are framed by its states;
- **keys**: one 1 among zeros per key. Nothing is shared between states, so a network is a table that learns slowly;
- **parts**: keys made of several parts ("search · failed") get one 1 per part, so states that share a part share something.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from .arrays import FloatArray
from .errors import NotPossible
from .framing_choices import PART_SEPARATOR
from .worlds import make_world, reachable_states

FEW_KEYS = 256  # up to here, one number per key is what a log without a world gets by default
MOST_KEYS = 4096  # one number per key beyond that would make the first layer larger than any log could teach
PART_NUMBERS = 256  # numbers that the parts share; more parts than that are hashed, and may fall together


def state_features(choice: str, states: tuple[str, ...], world_features: FloatArray | None) -> FloatArray:
    """(S, D) what a network sees of each state.

    Args:
        choice: ``world``, ``keys``, ``parts``, or ``auto``: the first of them that fits.
        states: S state keys.
        world_features: (S, D) of :func:`features_of_world`, or None.

    Raises:
        NotPossible: the world's numbers were asked for and there are none, or keys where there are too many.
    """
    if choice == "auto":
        choice = "world" if world_features is not None else "keys" if len(states) <= FEW_KEYS else "parts"
    if choice == "world":
        if world_features is None:
            raise NotPossible(
                "The states of this log have no numbers of a world: no world made it, or it is framed by something else than "
                "the world's states. Choose one number per state (features=keys) or per part of it (features=parts)."
            )
        return world_features
    if choice == "parts":
        return _features_of_parts(states)
    if len(states) > MOST_KEYS:
        raise NotPossible(
            f"One number per state is possible up to {MOST_KEYS:,} states; this log has {len(states):,}. "
            "Choose one number per part of the state (features=parts)."
        )
    return np.eye(len(states))


def features_of_world(world: str, states: tuple[str, ...]) -> FloatArray | None:
    """(S, D) the numbers that a world gives to state keys; None where it doesn't know one of them.

    Raises:
        UnknownName: no such world.
        NotPossible: it needs a package that isn't installed.
    """
    known = _features_by_key(world)
    if any(key not in known for key in states):
        return None
    return np.array([known[key] for key in states])


@lru_cache(maxsize=16)
def _features_by_key(name: str) -> dict[str, FloatArray]:
    world = make_world(name)
    return {world.state_key(state): world.features(state) for state in reachable_states(world)}


def _features_of_parts(states: tuple[str, ...]) -> FloatArray:
    parts = [list(enumerate(key.split(PART_SEPARATOR))) for key in states]
    distinct = sorted({part for of_state in parts for part in of_state})
    n_numbers = min(len(distinct), PART_NUMBERS)
    if len(distinct) <= PART_NUMBERS:
        place = {part: i for i, part in enumerate(distinct)}
    else:
        place = {part: _hashed(*part) % n_numbers for part in distinct}
    features = np.zeros((len(states), n_numbers))
    for s, of_state in enumerate(parts):
        for part in of_state:
            features[s, place[part]] += 1.0
    return features


def _hashed(position: int, text: str) -> int:
    """The same number in every process, which ``hash`` is not."""
    return int.from_bytes(hashlib.blake2b(f"{position}:{text}".encode(), digest_size=8).digest(), "big")
