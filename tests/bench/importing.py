"""Reading files: our own schema against pandas, memory of a million steps, conversations. Each read in a fresh process."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .measure import Line, duration, faster

ROOT = Path(__file__).resolve().parents[2]
REPETITIONS = 3
TOOLS = ["search_direct_flight", "get_user_details", "get_reservation", "book", "cancel", "respond"]

MEASURE = """
import time
from tests.bench.measure import peak_bytes
{imports}
start = time.perf_counter()
{work}
seconds = time.perf_counter() - start
print(seconds, peak_bytes())
"""
OURS = MEASURE.format(
    imports="import sys; from offrl_core.log import read_traces",
    work="log = read_traces(sys.argv[1]); assert log.n_steps and not log.report.problems",
)
# What the parser alone takes: fields by name, free-form ones as JSON text; nothing is checked, hashed, paired or kept.
BARE = MEASURE.format(
    imports="import duckdb, pyarrow, sys",
    work="""
read = "read_json(?, format='newline_delimited', columns={columns}, maximum_object_size=1000000)"
duckdb.sql("SELECT * FROM " + read, params=[sys.argv[1]]).to_arrow_table()
""".replace(
        "{columns}",
        "{'episode_id': 'VARCHAR', 't': 'INTEGER', 'task': 'VARCHAR', 'state': 'JSON', 'action': 'JSON', "
        "'observation': 'JSON', 'reward': 'DOUBLE', 'done': 'BOOLEAN', 'metadata': 'JSON'}",
    ),
)
PANDAS = MEASURE.format(imports="import pandas, sys", work="frame = pandas.read_json(sys.argv[1], lines=True)")


class Cost(NamedTuple):
    """Of one read."""

    seconds: float
    peak_bytes: float  # of the whole process, its imports included


def importing_lines() -> list[Line]:
    """All of it."""
    with tempfile.TemporaryDirectory() as folder:
        return [*step_lines(Path(folder)), million_line(Path(folder)), conversation_line(Path(folder))]


def step_lines(folder: Path) -> list[Line]:
    """100,000 nested steps, by us and by pandas in turns."""
    path = folder / "steps.jsonl"
    write_steps(path, 100_000)
    runs = [[cost_of(code, path) for code in (OURS, BARE, PANDAS)] for _ in range(REPETITIONS)]
    ours, bare, peer = (Cost(*map(statistics.median, zip(*costs, strict=True))) for costs in zip(*runs, strict=True))
    size = f"{path.stat().st_size / 1e6:,.0f} MB"
    share = ours.peak_bytes / peer.peak_bytes
    return [
        faster(
            f"JSON lines in our schema, 100,000 nested steps ({size})",
            ours.seconds,
            peer.seconds,
            "pandas.read_json",
            20,
        ),
        Line(
            "the same, peak memory of the process",
            megabytes(ours.peak_bytes),
            f"{megabytes(peer.peak_bytes)}, pandas.read_json",
            f"{share:.2f}x",
            "≤ 0.25x",
            share <= 0.25,
        ),
        faster(
            "for comparison: DuckDB alone, nothing checked or kept", bare.seconds, peer.seconds, "pandas.read_json", 1
        ),
    ]


def million_line(folder: Path) -> Line:
    """Peak memory of a process that reads 1,000,000 nested steps."""
    path = folder / "million.jsonl"
    write_steps(path, 1_000_000)
    cost, size = cost_of(OURS, path), path.stat().st_size
    path.unlink()
    return Line(
        f"1,000,000 nested steps ({size / 1e6:,.0f} MB), peak memory of the process",
        f"{megabytes(cost.peak_bytes)}; {duration(cost.seconds)}",
        bar="≤ 400 MB",
        met=cost.peak_bytes <= 400e6,
    )


def conversation_line(folder: Path) -> Line:
    """Conversations as JSON, which are read record by record."""
    path = folder / "conversations.json"
    path.write_text(json.dumps(list(conversations(1000))), encoding="utf-8")
    seconds = statistics.median(cost_of(OURS, path).seconds for _ in range(REPETITIONS))
    speed = path.stat().st_size / 1e6 / seconds
    return Line(
        f"conversations as JSON ({path.stat().st_size / 1e6:,.0f} MB)",
        f"{duration(seconds)}, {speed:,.0f} MB/s",
        bar="≥ 40 MB/s",
        met=speed >= 40,
    )


def megabytes(size: float) -> str:
    """Bytes in MB."""
    return f"{size / 1e6:,.0f} MB"


def cost_of(code: str, path: Path) -> Cost:
    """Run code on a file in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True, check=True)
    return Cost(*map(float, done.stdout.split()))


# -- what is read --------------------------------------------------------------------------------------------


def write_steps(path: Path, n: int) -> None:
    """Steps of a booking agent in the nested form, about 1.2 kB each, with a history that grows."""
    with path.open("w", encoding="utf-8") as file:
        for step in _steps(n, random.Random(0)):
            file.write(json.dumps(step) + "\n")


def _steps(n: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    written = episode = 0
    while written < n:
        length, goal = min(rng.randint(4, 12), n - written), _words(rng, 12)
        history: list[dict[str, str]] = []
        for t in range(length):
            result = _words(rng, 8)
            yield _step(f"run-{episode:06d}", t, t == length - 1, goal, history[-2:], result, rng)
            history.append({"role": "tool", "content": result})
        written, episode = written + length, episode + 1


def _step(
    episode: str, t: int, last: bool, goal: str, history: list[dict[str, str]], result: str, rng: random.Random
) -> dict[str, Any]:
    return {
        "episode_id": episode,
        "t": t,
        "task": f"task {int(episode[4:]) % 50}",
        "state": {
            "user_goal": goal,
            "conversation_history": history,
            "available_tools": TOOLS,
            "memory": {"step": t, "seen": f"user_{rng.randrange(2000)}"},
            "retrieved_context": None,
        },
        "action": {
            "type": "tool_call",
            "tool": rng.choice(TOOLS),
            "arguments": {"user_id": f"user_{rng.randrange(2000)}", "origin": _words(rng, 1), "limit": rng.randrange(20)},
        },
        "observation": {"tool_result": result, "error": None if rng.random() < 0.95 else "Error: not found"},
        "reward": 1.0 if last and rng.random() < 0.5 else 0.0,
        "done": last,
        "prompt_version": "p3",
        "tool_schema_version": "t1",
        "environment_version": "v2",
        "action_logprobs": None,
        "reward_components": {"outcome": 0.0},
        "reward_source": "verifier",
        "verifier_version": "1.2",
        "split": "train",
        "metadata": {
            "behavior_policy": "agent",
            "temperature": 0.7,
            "latency_ms": round(rng.random() * 900, 1),
            "cost_usd": round(rng.random() * 0.01, 5),
            "safety_flags": [],
        },
    }  # fmt: skip


def conversations(n: int) -> Iterator[dict[str, Any]]:
    """Conversations as chat completions have them, in messages as many and as long as tau-bench's airline runs.

    These have a system prompt of 6.3 kB and then, on average, 7 messages of the user with 130 characters of JSON, 12
    replies with 330, half of them calls, 6 results with 840, and 1.6 kB about the run.
    """
    rng = random.Random(1)
    for i in range(n):
        messages: list[dict[str, Any]] = [{"role": "system", "content": _words(rng, 750)}]
        for k in range(6):
            call = {
                "name": rng.choice(TOOLS),
                "arguments": json.dumps({"user_id": f"user_{rng.randrange(99)}", "note": _words(rng, 8)}),
            }
            calls = [{"id": f"call_{i}_{k}", "type": "function", "function": call}]
            messages += [
                {"role": "user", "content": _words(rng, 11)},
                {"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "tool_call_id": f"call_{i}_{k}", "name": call["name"], "content": _words(rng, 90)},
                {"role": "assistant", "content": _words(rng, 36), "tool_calls": None},
            ]
        messages.append({"role": "user", "content": _words(rng, 11)})
        yield {"id": f"run {i}", "messages": messages, "reward": i % 2, "info": {"task": {"said": _words(rng, 190)}}}


def _words(rng: random.Random, n: int) -> str:
    return " ".join(f"word{rng.randrange(3000)}" for _ in range(n))
