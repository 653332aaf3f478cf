"""How values came about: a slider over the key frames of a training."""

from __future__ import annotations

import streamlit as st

import offrl_core as orl
from offrl_core.arrays import FloatArray
from offrl_core.interfaces import TrainedModel


def frame_at_sweep(model: TrainedModel) -> FloatArray | None:
    """Q after the chosen sweep: the slider shows how values spread from where episodes end."""
    frames = [(progress.step, progress.q_values) for progress in model.history if progress.q_values is not None]
    if len(frames) < 2:
        return model.q_values
    steps = [step for step, _ in frames]
    unit = orl.ALGORITHMS[model.algorithm].unit
    step = st.select_slider(
        f"After {unit}",
        steps,
        value=steps[-1],
        key=f"w:sweep:{len(steps)}:{steps[-1]}",
        width=420,
        help="Key frames of the training; the last one is the result. Exact values always belong to the final policy.",
    )
    return model.q_values if step == steps[-1] else dict(frames)[step]
