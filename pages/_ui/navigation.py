"""Which pages there are, in order, and that none of them is drawn without app.py around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path

import streamlit as st

UNDER_APP = "w:under_app"


def choose_page() -> st.Page:
    """Name the app, register the pages and return the one to draw."""
    icon = str(Path(__file__).parent / "icon.svg")
    st.set_page_config(page_title="Offline RL Explorer", page_icon=icon, layout="wide")
    ours = {section: [copy(page) for page in pages] for section, pages in _all_pages().items()}
    return st.navigation(ours, position="top")


@st.cache_resource(show_spinner=False)
def _all_pages() -> dict[str, list[st.Page]]:
    """All pages by section, to be copied: to make them takes ninety looks at the disk, and in each another thread may cut in.

    Addresses equal the names of the files: on a server that nobody visited yet, Streamlit knows only those.
    """
    return {
        "": [
            st.Page(
                "pages/overview.py", title="Overview", icon=":material/auto_stories:", url_path="first", default=True
            ),
            st.Page("pages/data.py", title="Data", icon=":material/database:", url_path="data"),
            st.Page("pages/report.py", title="Report", icon=":material/fact_check:", url_path="report"),
            st.Page("pages/framing.py", title="Framing", icon=":material/filter_center_focus:", url_path="framing"),
            st.Page("pages/coverage.py", title="Coverage", icon=":material/grid_on:", url_path="coverage"),
            st.Page("pages/ceiling.py", title="Ceiling", icon=":material/vertical_align_top:", url_path="ceiling"),
            st.Page("pages/train.py", title="Train", icon=":material/model_training:", url_path="train"),
            st.Page("pages/q_values.py", title="Q-values", icon=":material/gradient:", url_path="q_values"),
            st.Page("pages/shift.py", title="Shift", icon=":material/alt_route:", url_path="shift"),
            st.Page("pages/evaluate.py", title="Evaluate", icon=":material/balance:", url_path="evaluate"),
            # The first page has no name in addresses; people who know the others' write it all the same.
            st.Page(_first_page, url_path="overview", visibility="hidden"),
        ],
        "Log tools": [
            st.Page("pages/mapping.py", title="Mapping", icon=":material/schema:", url_path="mapping"),
            st.Page("pages/rewards.py", title="Rewards", icon=":material/trophy:", url_path="rewards"),
            st.Page("pages/query.py", title="Query", icon=":material/terminal:", url_path="query"),
        ],
        "Lessons": [
            st.Page(
                "pages/continuous.py", title="Continuous actions", icon=":material/show_chart:", url_path="continuous"
            ),
            st.Page("pages/deadly_triad.py", title="Deadly triad", icon=":material/bolt:", url_path="deadly_triad"),
        ],
    }


def _first_page() -> None:
    st.switch_page("pages/overview.py")


@contextmanager
def under_app() -> Iterator[None]:
    """Around everything that app.py draws."""
    st.session_state[UNDER_APP] = True
    try:
        yield
    finally:
        st.session_state[UNDER_APP] = False


def require_app() -> None:
    """First call of every page file: without app.py around it, start over with app.py.

    On a server that nobody visited yet, Streamlit takes the folder ``pages`` for an old-style multipage app and runs the
    file that a deep link names by itself. Registering the pages once ends that.
    """
    if not st.session_state.get(UNDER_APP):
        choose_page()
        st.rerun()
