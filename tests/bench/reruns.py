"""A page's first run, with every cache cold, against its reruns. Runs in a process of its own, without a browser.

Timed is the page's script from its first line to its last; what the test harness does around it, such as compiling the
script anew each time, no visitor waits for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .measure import Line, faster

APP = str(Path(__file__).resolve().parents[2] / "app.py")
FIRST_RUNS, RERUNS = 5, 15


def rerun_lines() -> list[Line]:
    """Q-values: first run and cached rerun, in turns."""
    import streamlit as st
    from streamlit.testing.v1 import AppTest

    from offrl_core.evaluation.exact import world_model

    first: list[float] = []
    again: list[float] = []
    with page_times() as times:
        for _ in range(FIRST_RUNS + 1):
            st.cache_data.clear()
            st.cache_resource.clear()
            world_model.cache_clear()
            times.clear()
            app = AppTest.from_file(APP, default_timeout=120).switch_page("pages/q_values.py")
            for _ in range(RERUNS + 1):
                app.run()
            assert not app.exception
            assert len(times) == RERUNS + 1
            first.append(times[0])
            again += times[1:]
    # The very first run also imports; it is left out.
    return [
        faster(
            "Q-values page, cached rerun", statistics.median(again), statistics.median(first[1:]), "its first run", 15
        )
    ]


@contextmanager
def page_times() -> Iterator[list[float]]:
    """Seconds of each run of a page that came to its end."""
    from streamlit.navigation.page import Page

    times: list[float] = []
    run = Page.run

    def timed(page: Any) -> None:
        start = time.perf_counter()
        run(page)
        times.append(time.perf_counter() - start)

    Page.run = timed  # type: ignore[method-assign]
    try:
        yield times
    finally:
        Page.run = run  # type: ignore[method-assign]
