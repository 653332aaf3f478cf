"""The Offline RL Explorer: pages, the bar they share, and the link that reproduces what is on screen."""

from pathlib import Path

import streamlit as st

from pages._ui import bar, navigation, server, state

with server.turn():
    page = navigation.choose_page()
    st.html(Path(__file__).parent / "pages" / "_ui" / "style.css")
    state.load_link()
    with navigation.under_app():
        place_of_link = bar.render_bar()
        page.run()
        bar.render_link(place_of_link)
    state.write_link()
    server.send_at_once()
