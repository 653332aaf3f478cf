"""Medians of interleaved repetitions, and the table they end in."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Work = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table, all cells as text; ``met`` is None where a line only informs."""

    what: str
    ours: str
    peer: str = ""
    ratio: str = ""
    bar: str = ""
    met: bool | None = None

    def cells(self) -> list[str]:
        """As the table shows it."""
        return [
            self.what,
            self.ours,
            self.peer,
            self.ratio,
            self.bar,
            {True: "yes", False: "**no**", None: ""}[self.met],
        ]


def seconds_of(work: Work) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_bytes() -> int:
    """Most memory that this program held at once.

    What getrusage says also counts the program that started it, up to that moment; Linux knows better.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except FileNotFoundError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def interleaved(works: Sequence[Work], repetitions: int, *, warm_up: bool = True) -> list[float]:
    """Median seconds of each work, taken in turns, so that a slow spell of the machine hits all of them."""
    if warm_up:
        for work in works:
            work()
    times = [[seconds_of(work) for work in works] for _ in range(repetitions)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def faster(what: str, ours: float, peer: float, peer_name: str, at_least: float) -> Line:
    """A line that asks how many times faster we are."""
    ratio = peer / ours
    return Line(
        what,
        duration(ours),
        f"{duration(peer)}, {peer_name}",
        f"{ratio:,.0f}x faster",
        f"≥ {at_least:,g}x",
        ratio >= at_least,
    )


def cost(what: str, ours: float, peer: float, peer_name: str, at_most: float) -> Line:
    """A line that asks how many times longer we take."""
    ratio = ours / peer
    return Line(
        what, duration(ours), f"{duration(peer)}, {peer_name}", f"{ratio:.2f}x", f"≤ {at_most:g}x", ratio <= at_most
    )


def duration(seconds: float) -> str:
    """Three digits and a unit.

    >>> duration(0.000256), duration(0.0123), duration(2.5)
    ('256 µs', '12.3 ms', '2.5 s')
    """
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def as_markdown(lines: Sequence[Line]) -> str:
    """The table."""
    rows = [["what", "ours", "peer", "ratio", "bar", "met?"], ["---"] * 6, *(line.cells() for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
