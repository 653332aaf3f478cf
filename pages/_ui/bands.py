"""Many states on one screen: equal bands of states in the chosen order; a click moves the window below."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import streamlit as st

from offrl_core.arrays import BoolArray, FloatArray, IntArray
from offrl_core.dataset import Dataset
from offrl_core.evaluation.diagnostics import band_means
from offrl_core.figures.heatmaps import make_band_map

from . import layout, state

BANDS = 100


def render_bands(dataset: Dataset, rows: IntArray, q_values: FloatArray, supported: BoolArray) -> None:
    """Mean learned Q of each band, hatched where most of it is unsupported; says how many states that is."""
    parts = np.array_split(rows, min(BANDS, len(rows)))
    means, shares = band_means(parts, q_values, dataset.valid_mask, supported)
    starts = np.cumsum([0, *map(len, parts)])
    titles = [f"states {a + 1:,} to {b:,} in this order" for a, b in pairwise(starts.tolist())]
    st.caption(
        f"All {len(rows):,} of {dataset.n_states:,} states in {len(parts)} bands; each cell is a mean. Click one to look inside."
    )
    figure = layout.drawn(make_band_map, titles, dataset.actions, means, shares)
    points = layout.render_figure(figure, key="bands", alt="Mean learned Q by band of states", select=True)
    clicked = points[0]["customdata"][0] if points and points[0].get("customdata") else None
    if clicked in titles and st.session_state.get("w:band") != clicked:
        st.session_state["w:band"] = clicked
        state.put("first", int(starts[titles.index(clicked)]))
