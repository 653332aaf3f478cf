"""Real public trace files, for tests that want them; they lie beside the checkout and are never part of it."""

from pathlib import Path

import pytest

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
AIRLINE = "openai_chat/tau_bench_gpt-4o-airline.json"


def shared_trace(name: str) -> Path:
    """Path of a real trace file; skips the test where it isn't there."""
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"needs the real trace file {name}")
    return path
