"""A fresh app per test: it starts from app.py, because page files alone resolve their paths differently."""

import re
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

APP = str(Path(__file__).resolve().parents[2] / "app.py")


@pytest.fixture
def app() -> AppTest:
    st.cache_data.clear()
    st.cache_resource.clear()
    return AppTest.from_file(APP, default_timeout=120)


def open_page(app: AppTest, page: str, **params: str) -> AppTest:
    """Open a page as a link with these parameters would."""
    for name, value in params.items():
        app.query_params[name] = value
    app.run()
    if page != "overview":
        app.switch_page(f"pages/{page}.py").run()
    assert not app.exception, app.exception
    return app


def shown(markdown: str) -> str:
    """Markdown that only escapes, as the browser shows it."""
    return re.sub(r"\\(.)", r"\1", markdown).replace("\u200b", "")


def texts(app: AppTest) -> str:
    """Everything the page says, in one text."""
    kinds = (app.markdown, app.caption, app.info, app.warning, app.error, app.success, app.title, app.code)
    return "\n".join(shown(element.value) for kind in kinds for element in kind)
