"""The Offline RL Explorer: pages, the bar they share, and the link that reproduces what is on screen."""

import gc
from pathlib import Path

import streamlit as st

from pages._ui import bar, state

UI = Path(__file__).parent / "pages" / "_ui"
st.set_page_config(page_title="Offline RL Explorer", page_icon=str(UI / "icon.svg"), layout="wide")


@st.cache_resource(show_spinner=False)
def freeze_imports() -> bool:
    """Take what is imported out of Streamlit's garbage collection after each rerun, which it would dominate."""
    gc.collect()
    gc.freeze()
    return True


PAGES = [
    st.Page("pages/overview.py", title="Overview", icon=":material/auto_stories:", default=True),
    st.Page("pages/data.py", title="Data", icon=":material/database:", url_path="data"),
    st.Page("pages/coverage.py", title="Coverage", icon=":material/grid_on:", url_path="coverage"),
    st.Page("pages/train.py", title="Train", icon=":material/model_training:", url_path="train"),
    st.Page("pages/q_values.py", title="Q-values", icon=":material/gradient:", url_path="q-values"),
    st.Page("pages/query.py", title="Query", icon=":material/terminal:", url_path="query"),
]

page = st.navigation(PAGES, position="top")
st.html(UI / "style.css")
state.load_link()
bar.render_bar()
page.run()
state.write_link()
freeze_imports()
