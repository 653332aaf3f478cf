"""Results to Plotly figures: pure functions, no page and no state."""
