"""Trainings that a visitor started with other choices than those on screen: a list, with the way back and a stop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import streamlit as st

import offrl_core as orl
from offrl_core.jobs import Job
from offrl_core.wording import counted

from . import layout, state

# Choices that make a training what it is: put back, they show it again.
OF_A_TRAINING = (
    *("data", "files", "framing", "only_endings", "edits", "deployment", "guess", "min_count"),
    *("params", "seed", "seeds", "budget"),
    *(name for name in state.FIELDS if name.startswith("gen_")),
)
LOOK_EVERY = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for: a learner, its runs, and the choices under which the page shows them."""

    algorithm: str
    run_ids: tuple[str, ...]
    choices: dict[str, Any]

    def unfinished(self, owner: str) -> list[Job]:
        """Its runs that wait or run and that this owner still wants."""
        jobs = [orl.find_job(run_id, owner) for run_id in self.run_ids]
        return [job for job in jobs if job and not job.is_final and job.is_wanted_here]


@st.cache_resource(show_spinner=False)
def _all_asked() -> dict[str, dict[tuple[str, ...], Asked]]:
    """By owner and runs; of all sessions, as an owner may come back in another one."""
    return {}


def remember(owner: str, algorithm: str, run_ids: tuple[str, ...]) -> None:
    """Keep under which choices runs were started; what is over is forgotten."""
    everything = _all_asked()
    for other, asked in list(everything.items()):
        for runs, training in list(asked.items()):
            if not training.unfinished(other):
                asked.pop(runs, None)
        if not asked:
            everything.pop(other, None)
    choices = {name: state.get(name) for name in OF_A_TRAINING}
    everything.setdefault(owner, {})[run_ids] = Asked(algorithm, run_ids, choices)


def render_others(owner: str, shown: Collection[str]) -> None:
    """The visitor's trainings that go on but aren't on this page, whose runs are ``shown``; nothing where there are none."""
    if _others(owner, shown):
        st.fragment(_render, run_every=LOOK_EVERY)(owner, shown)


def _others(owner: str, shown: Collection[str]) -> list[tuple[Asked, list[Job]]]:
    asked = [training for training in _all_asked().get(owner, {}).values() if not set(training.run_ids) <= set(shown)]
    going = [(training, training.unfinished(owner)) for training in asked]
    return [(training, left) for training, jobs in going if (left := [job for job in jobs if job.run_id not in shown])]


def _render(owner: str, shown: Collection[str]) -> None:
    others = _others(owner, shown)
    if not others:
        st.rerun()
    for training, jobs in others:
        key = training.run_ids[0]
        with st.container(horizontal=True, vertical_alignment="center", key=f"w:other:{key}"):
            st.markdown(f":material/hourglass: Also training: **{_told(training, jobs)}**", width="content")
            show = st.button("Show", key=f"w:show_other:{key}", on_click=_show, args=(training,), type="tertiary")
            stop = st.button("Stop", key=f"w:stop_other:{key}", on_click=_stop, args=(training, jobs), type="tertiary")
            if show or stop:
                st.rerun()  # the whole page, of which this is a part


def _told(training: Asked, jobs: list[Job]) -> str:
    """For example "Neural CQL, 8 seeds, gradient step 512 of 20,000"."""
    spec = orl.ALGORITHMS[training.algorithm]
    steps = [latest for job in jobs if (latest := job.progress()) is not None]
    slowest = min(steps, key=lambda latest: latest.step, default=None)
    where = "waiting" if slowest is None else f"{spec.unit} {slowest.step:,} of {slowest.total:,}"
    return layout.plain(f"{spec.short}, {counted(len(jobs), 'seed')}, {where}", 200)


def _show(training: Asked) -> None:
    for name, value in training.choices.items():
        state.put(name, value)
    state.put("learners", training.algorithm)
    state.put("shown", training.algorithm)


def _stop(training: Asked, jobs: list[Job]) -> None:
    going = [job for job in jobs if not job.is_final]
    if not going:
        return  # the click came twice
    told = _told(training, going)
    for job in going:
        job.stop()
    st.toast(f"{told}: stopped. Under the choices it was started with it can go on, or be kept.")
