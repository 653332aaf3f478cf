"""Pictures that the core draws as HTML with SVG: shown as they are, and changed in place while a training runs.

``st.html`` takes SVG out, and a Plotly figure that changes is taken down and built anew. The core escapes every text that
comes from a file.
"""

from __future__ import annotations

import streamlit as st

_SHOW = """export default function ({ data, parentElement }) {
  const place = parentElement.querySelector(".orl-picture");
  if (place.innerHTML !== data) place.innerHTML = data;
}"""

_picture = st.components.v2.component("orl_picture", html='<div class="orl-picture"></div>', js=_SHOW)


def render_picture(picture: str, *, key: str) -> None:
    """Draw a picture; the same key keeps its place on the page while it changes."""
    _picture(data=picture, key=f"w:picture:{key}")
