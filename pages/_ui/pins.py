"""Trainings that a visitor keeps in sight to compare others with; they travel in the link and are read from the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.coverage_edits import edits_from_link
from offrl_core.dataset import Dataset
from offrl_core.errors import OffRLError, RunMissing
from offrl_core.evaluation.curves import FRAME_MEASURES, FrameJudge, Track, bands_of
from offrl_core.figures.curves import Axis, make_comparison, side_by_side, text_at
from offrl_core.history import Event
from offrl_core.params import config_values, params_of
from offrl_core.runs import find_run, load_run, stored_ids
from offrl_core.training import id_of_content, run_content

from . import layout, state, work
from .beside import SeedRun, Training
from .picture import render_picture

MAX_PINS = 6
MEASURES = {
    "success_rate": ("episodes solved (exact)", Axis(low=0.0, high=1.0, percent=True)),
    "unsupported_share": ("unsupported choices", Axis(low=0.0, high=1.0, percent=True)),
    "q_unsupported": ("learned Q, unsupported pairs", Axis()),
    "q_logged": ("learned Q, logged pairs", Axis()),
}


@dataclass(frozen=True, slots=True)
class Pin:
    """A training in the link: one of its runs, and which seeds belong to it."""

    run_id: str
    first: int
    n_seeds: int

    @property
    def token(self) -> str:
        """As it stands in the link."""
        return f"{self.run_id}~{self.first}~{self.n_seeds}"

    @staticmethod
    def read(token: str) -> Pin:
        """Inverse of :attr:`token`."""
        run_id, first, n_seeds = token.split("~")
        return Pin(run_id, int(first), min(int(n_seeds), state.MAX_SEEDS))


def pinned() -> list[Pin]:
    """The pins of the link."""
    return [Pin.read(token) for token in dict.fromkeys(state.get("pins").split(",")) if token][:MAX_PINS]


def _pin(pin: Pin) -> None:
    if pin not in (pins := pinned()):  # the click for it may come twice
        _put([*pins, pin])


def _unpin(pin: Pin) -> None:
    _put([kept for kept in pinned() if kept != pin])


def _put(pins: Sequence[Pin]) -> None:
    state.put("pins", ",".join(pin.token for pin in pins))


def render_pin_button(training: Training, done: SeedRun) -> None:
    """Pin a training, or let it go."""
    pin = Pin(done.run_id, training.seeds[0], len(training.seeds))
    pins = pinned()
    kept = pin in pins
    clicked = st.button(
        "Unpin" if kept else "Pin",
        icon=":material/keep_off:" if kept else ":material/keep:",
        key=f"w:{'unpin' if kept else 'pin'}:{training.run_ids[0]}",
        disabled=not kept and len(pins) >= MAX_PINS,
        help="Pinned trainings stay below, in the link too, while you try other parameters, data or learners.",
        on_click=_unpin if kept else _pin,
        args=(pin,),
    )
    if clicked:  # while another training runs only its part of the page is drawn again, and pins stand elsewhere
        st.rerun()


def render_pins(now: work.Current) -> None:
    """Table of all pinned trainings, and one measure of all of them in one picture."""
    pins = pinned()
    if not pins:
        return
    st.markdown("##### Pinned trainings")
    known = [(pin, found) for pin in pins if (found := _pinned_training(pin, now)) is not None]
    gone = [pin for pin in pins if pin not in [kept for kept, _ in known]]
    if gone:
        names = ", ".join(pin.run_id for pin in gone)
        layout.warning(f"Pinned, and no longer stored on this machine: {names}. Train them again to see them here.")
    if known:
        st.dataframe(pd.DataFrame([found.row() for _, found in known]), hide_index=True)
        _render_comparison([found for _, found in known])
    with st.container(horizontal=True):
        for i, pin in enumerate(pins):
            st.button(
                f"Unpin {i + 1}",
                icon=":material/keep_off:",
                key=f"w:unpin:{pin.token}",
                type="tertiary",
                on_click=_unpin,
                args=(pin,),
            )


@dataclass(frozen=True, slots=True)
class _Pinned:
    """A pinned training as it is stored."""

    number: int
    content: dict[str, Any]
    tracks: tuple[Track, ...]
    unit: str
    total: int

    @property
    def name(self) -> str:
        """For the legend."""
        spec = orl.ALGORITHMS[self.content["algorithm"]]
        return f"{self.number}. {spec.short}"

    def row(self) -> dict[str, str]:
        """One line of the table."""
        spec = orl.ALGORITHMS[self.content["algorithm"]]
        usual, about = config_values(spec.config_class()), params_of(spec.config_class)
        changed = {name: v for name, v in self.content["config"].items() if name in usual and usual[name] != v}
        bands = bands_of(self.tracks)
        told = {
            title: text_at(bands[name], int(bands[name].steps[-1]), axis) if name in bands else "unknown"
            for name, (title, axis) in MEASURES.items()
        }
        return {
            "training": self.name,
            "seeds": f"{len(self.tracks):,}",
            "parameters": ", ".join(f"{about[name].label}: {value}" for name, value in changed.items()) or "defaults",
            "data": _edits_in_words(self.content["edits"]),
            **told,
        }


def _edits_in_words(link: str) -> str:
    """What was taken away, in sentences."""
    try:
        return " ".join(edit.sentence for edit in edits_from_link(link)) or "all of the log"
    except OffRLError:  # stored by a version that knew other edits
        return link


def _render_comparison(trainings: list[_Pinned]) -> None:
    measure = st.segmented_control(
        "Compare", list(MEASURES), format_func=lambda name: MEASURES[name][0], default="success_rate", key="w:compare"
    )
    title, axis = MEASURES[measure or "success_rate"]
    bands = {pin.name: found for pin in trainings if (found := bands_of(pin.tracks).get(measure)) is not None}
    total = max(pin.total for pin in trainings)
    picture = make_comparison(
        bands, title.capitalize(), FRAME_MEASURES[measure or "success_rate"], axis=axis, total=total, unit="step"
    )
    if picture:
        render_picture(side_by_side([picture]), key="pins")
    else:
        st.info("Nothing is known of that for these trainings.")


def _pinned_training(pin: Pin, now: work.Current) -> _Pinned | None:
    """None where none of its runs is stored any more."""
    about = find_run(pin.run_id)
    if about is None or about.problem or about.content["algorithm"] not in orl.ALGORITHMS:
        return None
    number = pinned().index(pin) + 1
    content = dict(about.content)
    stored = stored_ids()
    run_ids = tuple(run for run in _run_ids(pin, content) if run in stored)
    key = (run_ids, number, work.deployment(now.world), state.get("min_count"), now.log.fingerprint, now.framing_name)
    found = _read(key, run_ids, number, content, now)
    return found if found.tracks else None


def _run_ids(pin: Pin, content: dict[str, Any]) -> list[str]:
    return [id_of_content({**content, "seed": seed}) for seed in range(pin.first, pin.first + pin.n_seeds)]


@st.cache_resource(show_spinner=False, max_entries=64, ttl="2h")
def _read(key: tuple, _run_ids: Sequence[str], _number: int, _content: dict[str, Any], _now: work.Current) -> _Pinned:
    dataset = _dataset_of(_content, _now)
    judge = FrameJudge(dataset, work.deployment(_now.world), state.get("min_count")) if dataset else None
    tracks, total = [], 1
    for run_id in _run_ids:
        try:
            model, track = load_run(run_id), Track(judge)
        except RunMissing:  # it is damaged, or has just gone
            continue
        track.follow(Event(i, progress) for i, progress in enumerate(model.history, start=1))
        tracks.append(track)
        total = max(total, model.history[-1].total if model.history else 1)
    return _Pinned(_number, _content, tuple(tracks), orl.ALGORITHMS[_content["algorithm"]].unit, total)


def _dataset_of(content: dict[str, Any], now: work.Current) -> Dataset | None:
    """What it was trained on, where that comes from the log on screen; else only what the learner told is known."""
    try:
        dataset = work.framed(now.log, now.framing_name, edits_from_link(content["edits"]))
    except OffRLError:
        return None
    same = run_content(dataset, content["algorithm"], orl.ALGORITHMS[content["algorithm"]].config_class(), 0)
    return dataset if all(same[name] == content[name] for name in ("log", "framing", "edits", "schema")) else None
