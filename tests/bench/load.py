"""A class on one server: fifty sessions at once, each trains a network of its own while turning a control."""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Sequence

from .browser import ROOT, running_server
from .measure import Line

VISITORS, STEPS = 50, 500
BAR_SECONDS, BAR_CONTROL_MS = 60.0, 250.0
BETWEEN_CONTROLS = 3.0  # seconds
PATIENCE = 180.0


def load_lines() -> list[Line]:
    """Time until all have their network, and how long a control takes meanwhile."""
    with tempfile.TemporaryDirectory() as folder, running_server(ROOT / "app.py", OFFRL_RUNS=folder) as (address, _):
        asyncio.run(_class(address, range(1)))  # the server has imported what it needs
        controls, errors, looks, seconds = asyncio.run(_class(address, range(1, VISITORS + 1)))
    what = f"{VISITORS} sessions, each trains {STEPS} steps of a 2x64 network (CQL)"
    p95 = statistics.quantiles(controls, n=20)[-1] * 1e3
    return [
        Line(what, f"all done after {seconds:.1f} s", "", "", f"≤ {BAR_SECONDS:g} s", seconds <= BAR_SECONDS),
        Line(
            f"the same, a control ({len(controls):,} times, beside {looks:,} looks at curves)",
            f"median {statistics.median(controls) * 1e3:.0f} ms, p95 {p95:.0f} ms",
            "",
            "",
            f"p95 ≤ {BAR_CONTROL_MS:g} ms",
            p95 <= BAR_CONTROL_MS,
        ),
        Line("the same, errors", f"{len(errors)} {errors[:3] or ''}", "", "", "0", not errors),
    ]


async def _class(address: str, numbers: Sequence[int]) -> tuple[list[float], list[str], int, float]:
    """Controls, errors, looks at curves, and seconds from the moment when everybody has the page to the last network."""
    controls, everybody_is_there = list[float](), asyncio.Barrier(len(numbers) + 1)
    visits = [_visit(address, number, controls, everybody_is_there) for number in numbers]
    running = [asyncio.create_task(visit) for visit in visits]
    await everybody_is_there.wait()
    began = time.perf_counter()
    told = await asyncio.gather(*running)
    errors = [error for found, _ in told for error in found]
    return controls, errors, sum(looks for _, looks in told), time.perf_counter() - began


async def _visit(
    address: str, number: int, controls: list[float], everybody_is_there: asyncio.Barrier
) -> tuple[list[str], int]:
    """Open the page, train, and turn a control now and then until the network is there; returns errors and looks."""
    from .visitor import Visitor

    dice = random.Random(number)
    query = {"learners": "bc,cql_neural", "seeds": "1", "seed": str(1000 * number), "budget": str(STEPS)}
    async with Visitor(address, "train", **query) as visitor:
        await everybody_is_there.wait()
        await asyncio.sleep(dice.uniform(0, BETWEEN_CONTROLS))
        ends = time.perf_counter() + PATIENCE
        await visitor.open("w:details:bc")
        await visitor.press("w:train")
        while not any(key.startswith("w:runs:") for key in visitor.ids):
            if time.perf_counter() > ends:
                return [*visitor.errors, f"visitor {number} waits for ever"], visitor.n_looks
            await asyncio.sleep(dice.uniform(0.5, 1.5) * BETWEEN_CONTROLS)
            if "w:bc.smoothing" in visitor.ids:
                controls.append(await visitor.enter("w:bc.smoothing", dice.choice([0.0, 0.5, 1.0])))
        return visitor.errors, visitor.n_looks
