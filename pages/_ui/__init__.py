"""Widgets and state that the pages share; the only code between Streamlit and the core."""
