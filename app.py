"""The Offline RL Explorer: pages, the bar they share, and the link that reproduces what is on screen."""

from pathlib import Path

import streamlit as st

from pages._ui import bar, navigation, server, state

LOOKS = Path(__file__).parent / "pages" / "_ui"

with server.turn():
    page = navigation.choose_page()
    st.html(LOOKS / "style.css")
    state.load_link()
    with navigation.under_app():
        place_of_link = bar.render_bar()
        page.run()
        bar.render_link(place_of_link)
    st.html(LOOKS / "touch.html", unsafe_allow_javascript=True)
    state.write_link()
    server.send_at_once()
