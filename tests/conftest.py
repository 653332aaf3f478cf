"""Fixtures shared by all tests: the two bundled kinds of log, framed once per session, and tiny worlds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from offrl_core.dataset import Dataset, frame
from offrl_core.evaluation.exact import world_model
from offrl_core.log import Log, collect
from offrl_core.worlds import WORLDS

from .core.tiny_worlds import TINY_WORLDS

collect_ignore_glob = [
    "bench/d3rlpy_*.py"
]  # scripts for an interpreter that has d3rlpy; looking for doctests imports them

# The same examples on every run and machine; no deadline, because machines are shared.
settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.load_profile("steady")


@pytest.fixture(scope="session")
def log_with_mul() -> Log:
    """3,000 episodes of the logger, seed 42: the bundled log, collected anew."""
    return collect("calculator", "logger", n_episodes=3000, seed=42)


@pytest.fixture(scope="session")
def log_without_mul() -> Log:
    """The same agent, never calling mul."""
    return collect("calculator", "logger_without_mul", n_episodes=3000, seed=42)


@pytest.fixture(scope="session")
def dataset_with_mul(log_with_mul: Log) -> Dataset:
    """The log with mul, framed by its preset."""
    return frame(log_with_mul)


@pytest.fixture(scope="session")
def dataset_without_mul(log_without_mul: Log) -> Dataset:
    """The log without mul, framed by its preset."""
    return frame(log_without_mul)


@pytest.fixture
def tiny_worlds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tiny worlds stand in the registry while a test runs."""
    for name, spec in TINY_WORLDS.items():
        monkeypatch.setitem(WORLDS, name, spec)
    world_model.cache_clear()  # one of them bears the name of a real world
    yield
    world_model.cache_clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser journeys first: they take longest, and one worker takes a whole file."""
    items.sort(key=lambda item: "tests/e2e/" not in item.nodeid)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their parameter: packed ones hold the time they were packed at, another one in each worker."""
    return argname if isinstance(val, bytes) else None
