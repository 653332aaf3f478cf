"""Slow learners train beside the pages, in a process of their own: a page shows how far they are, and stops them."""

from __future__ import annotations

import uuid

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.interfaces import TrainedModel
from offrl_core.jobs import Job
from offrl_core.params import make_config
from offrl_core.training import run_id

from . import layout, parameters, state

LOOK_EVERY = 0.7  # seconds


def trained_beside(dataset: Dataset, algorithm: str) -> TrainedModel | None:
    """The model of a run that is done or stored; else what to do to get it, and None.

    The run belongs to its link and not to this visit: a closed tab loses nothing, and the link finds it again.
    """
    spec, chosen = orl.ALGORITHMS[algorithm], parameters.parameters_of(algorithm)
    seed = state.get("seed")
    run = run_id(dataset, algorithm, make_config(spec.config_class, chosen, algorithm), seed)
    job = orl.find_job(run, owner())
    if job is None and orl.has_run(run):
        job = orl.submit(dataset, algorithm, seed=seed, owner=owner(), **chosen)
    if job is not None and job.state == "succeeded":
        if job.note:
            layout.warning(job.note)
        return job.result()
    if job is not None and job.state in ("queued", "running"):
        _watch(run)
        return None
    if job is not None and job.state == "failed":
        layout.error(f"{spec.short}: {job.error}")
    elif job is not None:
        st.caption(":material/stop_circle: Stopped before it was done; nothing was kept.")
    st.button(
        f"Run {spec.short}",
        icon=":material/play_arrow:",
        key=f"w:run:{algorithm}",
        on_click=lambda: _submit(dataset, algorithm, seed, chosen),
    )
    st.caption(f"{spec.summary} It goes through {dataset.n_transitions:,} rows one by one, so it waits for your click.")
    return None


def owner() -> str:
    """Who asks, for a fair line: this browser session."""
    return st.session_state.setdefault("w:owner", uuid.uuid4().hex)


def _submit(dataset: Dataset, algorithm: str, seed: int, chosen: dict) -> None:
    try:
        orl.submit(dataset, algorithm, seed=seed, owner=owner(), **chosen)
    except orl.OffRLError as error:
        state.warn(str(error))


@st.fragment(run_every=LOOK_EVERY)
def _watch(run: str) -> None:
    """Progress of a run, looked at again and again without drawing the page anew; the page follows when it ends."""
    job = orl.find_job(run, owner())
    if job is None or job.state not in ("queued", "running"):
        st.rerun()
    _render_progress(job)


def _render_progress(job: Job) -> None:
    spec = orl.ALGORITHMS[job.run_id.rsplit("-", 1)[0]]
    latest = job.progress()
    if latest is None:
        place = job.place
        st.progress(0.0, text=f"{spec.short}: " + (f"number {place} in line" if place else "starting a process"))
    else:
        left = job.seconds_left
        rate = latest.step / job.seconds if job.seconds else 0.0
        told = "" if left is None else f", {rate:,.1f} per second, at most {left:,.0f} s left"
        st.progress(
            min(1.0, latest.step / latest.total),
            text=f"{spec.short}: {spec.unit} {latest.step:,} of {latest.total:,}{told}",
        )
    st.button("Stop", icon=":material/stop:", key=f"w:stop:{job.run_id}", on_click=job.stop)
