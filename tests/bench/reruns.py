"""A page's first run, with every cache cold, against its reruns. Runs in a process of its own, without a browser."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from .measure import Line, faster

APP = str(Path(__file__).resolve().parents[2] / "app.py")
FIRST_RUNS, RERUNS = 5, 15


def rerun_lines() -> list[Line]:
    """Q-values: first run and cached rerun, in turns."""
    import streamlit as st
    from streamlit.testing.v1 import AppTest

    from offrl_core.evaluation.exact import world_model

    first, again = [], []
    for _ in range(FIRST_RUNS + 1):
        st.cache_data.clear()
        st.cache_resource.clear()
        world_model.cache_clear()
        app = AppTest.from_file(APP, default_timeout=120).switch_page("pages/q_values.py")
        first.append(_timed(app))
        again += [_timed(app) for _ in range(RERUNS)]
        assert not app.exception
    # The very first run also imports; it is left out.
    return [
        faster(
            "Q-values page, cached rerun", statistics.median(again), statistics.median(first[1:]), "its first run", 15
        )
    ]


def _timed(app: object) -> float:
    start = time.perf_counter()
    app.run()  # type: ignore[attr-defined]
    return time.perf_counter() - start
