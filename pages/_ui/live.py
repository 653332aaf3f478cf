"""What slow learners do while they train, and what came of it: progress, stop, curves. Looked at again and again without
drawing the page anew; the page follows when a run ends.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import streamlit as st

from offrl_core.dataset import Dataset
from offrl_core.evaluation.curves import FRAME_MEASURES, Band, FrameJudge, Track, bands_of, curves_table, explodes
from offrl_core.figures.curves import (
    make_action_curves,
    make_choice_curves,
    make_loss_curves,
    make_value_curves,
    side_by_side,
)
from offrl_core.history import Event
from offrl_core.jobs import Job, default_engine
from offrl_core.runs import pack_runs
from offrl_core.wording import counted, in_words

from . import layout, parameters, pins, refusals, state, work
from .beside import SeedRun, Training, training_of
from .picture import render_picture

LOOK_EVERY, LONGER_FOR_EACH = 0.6, 0.05  # seconds, and how many more for each visitor who trains
STOP_SECONDS = 0.8
SETTLED_SECONDS = 3.0  # before that a pace says little
FOREVER = float("inf")
PAIRS_AT_ONCE = (
    20_000  # pairs of all seeds together of which every key frame is judged; of more, every second, and so on
)
NO_LOSS = ("beyond_reach",)


def render_trainings(trainings: Sequence[Training]) -> None:
    """All that is asked for on this page: started by one click, shown while it runs and afterwards."""
    found = [training.runs() for training in trainings]
    _render_start(trainings, found)
    going = [[run.unfinished for run in runs] for runs in found]
    if any(run.job or run.model for runs in found for run in runs):
        pause = _seconds_between_looks() if any(any(row) for row in going) else FOREVER
        look = _look if pause == FOREVER else st.fragment(_look, run_every=pause)
        look(trainings, going, pause)


def _render_start(trainings: Sequence[Training], found: Sequence[list[SeedRun]]) -> None:
    missing = [
        (training, absent)
        for training, runs in zip(trainings, found, strict=True)
        if (absent := [run for run in runs if not run.model and not run.unfinished])
    ]
    if not missing:
        return
    names = " and ".join(training.spec.short for training, _ in missing)
    absent = [run for _, runs in missing for run in runs]
    go_on = all(run.can_go_on for run in absent)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            f"{'Go on with' if go_on else 'Train'} {names}",
            icon=":material/play_arrow:",
            type="primary",
            key="w:train",
            on_click=lambda: [training.start() for training, _ in missing],
        )
        st.caption(
            f"{counted(len(absent), 'run')}{' that stopped on the way' if go_on else ''}, in a process beside this page, so "
            "that it goes on answering. What is done is kept under its link.",
            width="content",
        )


def _seconds_between_looks() -> float:
    """Longer where many train on this server: their turns come more rarely, and looking takes time from all of them."""
    return LOOK_EVERY + LONGER_FOR_EACH * len({job.owner for job in default_engine().jobs()})


def _look(trainings: Sequence[Training], going: list[list[bool]], pause: float) -> None:
    """One look; where a run has begun or ended since the page was drawn, or many others came, the page is drawn anew."""
    found = [training.runs() for training in trainings]
    if [[run.unfinished for run in runs] for runs in found] != going or _seconds_between_looks() > 2 * pause:
        st.rerun()
    refusals.render_blocked(
        (training.spec.short, run.job.error)
        for training, runs in zip(trainings, found, strict=True)
        for run in runs
        if run.job and run.state == "failed"
    )
    for training, runs in zip(trainings, found, strict=True):
        if any(run.job or run.model for run in runs):
            with st.container(border=True):
                _render_training(training, runs)


def _render_training(training: Training, runs: list[SeedRun]) -> None:
    unfinished = [run for run in runs if run.unfinished]
    if unfinished:
        _render_progress(training, runs, unfinished)
    else:
        _render_end(training, runs)
    _render_news(training, runs)
    drawn = drawn_runs(runs)
    tracks = tracks_of(training, drawn)
    picture, beyond = _drawn(_key(drawn, tracks), training, drawn, tracks)
    if beyond > 0:
        _render_beyond(training, beyond)
    render_picture(picture, key=training.run_ids[0])
    judge = judge_of(training)
    if picture and judge.n_compared < judge.n_pairs:
        st.caption(
            f":material/info: Values are means over {judge.n_compared:,} of {judge.n_pairs:,} valid pairs, learned ones as "
            "well as exact ones: to the others nothing leads in this deployment, so they have no exact value."
        )
    n_told = sum(track.n_seen > 0 for track in tracks)
    if picture and len(runs) > 1:
        st.caption(
            f"Curves of {n_told} of {len(runs)} seeds: median and range up to the last step that all {n_told} have reached, "
            "thin lines one by one."
            if n_told > 1
            else f"Curves of 1 of {len(runs)} seeds."
        )


def drawn_runs(runs: Sequence[SeedRun]) -> list[SeedRun]:
    """The runs that curves are drawn of: one that was stopped is left out where others go on, or their median would jump."""
    ended = [run for run in runs if run.state in ("cancelled", "failed")]
    return list(runs) if len(ended) == len(runs) else [run for run in runs if run not in ended]


def _render_progress(training: Training, runs: list[SeedRun], unfinished: list[SeedRun]) -> None:
    """How far, how fast, how long; and the buttons that stop it."""
    spec, jobs = training.spec, [run.job for run in unfinished if run.job]
    told = [(job, latest) for job in jobs if (latest := job.progress()) is not None]
    several = f", {counted(len(unfinished), 'seed')}" if len(runs) > 1 else ""
    if not told:
        place = min(job.place for job in jobs)
        busy = any(job.state == "running" for job in default_engine().jobs())
        waits = f"number {place} in line" if place > 1 else "next in line" if busy else "starting"
        st.progress(0.0, text=f"**{spec.short}**{several}: {waits}")
    else:
        slowest = min(told, key=lambda pair: pair[1].step)
        job, latest = slowest
        per_second = sum(progress.step / max(job.seconds, 1e-3) for job, progress in told)
        left = job.seconds_left if job.seconds > SETTLED_SECONDS else None
        pace = f", {per_second:,.0f} per second{' over all seeds' if len(told) > 1 else ''}"
        rest = "" if left is None else f", at most {in_words(left)} left"
        st.progress(
            min(1.0, latest.step / latest.total),
            text=f"**{spec.short}**{several}: {spec.unit} {latest.step:,} of {latest.total:,}{pace}{rest}",
        )
    with st.container(horizontal=True, vertical_alignment="center"):
        _stop_button("Stop all" if len(jobs) > 1 else "Stop", f"w:stop:{training.run_ids[0]}", jobs)
        if len(jobs) > 1:
            with st.popover("Stop one seed"), st.container(horizontal=True):
                for run in unfinished:
                    if run.job:
                        _stop_button(f"seed {run.seed}", f"w:stop_one:{run.run_id}", [run.job])


def _stop_button(title: str, key: str, jobs: list[Job]) -> None:
    ours = any(job.is_wanted_here for job in jobs)
    st.button(
        title,
        icon=":material/stop:",
        key=key,
        on_click=_stop,
        args=(jobs,),
        disabled=not ours,
        help=None if ours else "Somebody else who has this link started it, and only they can stop it.",
    )


def _stop(jobs: list[Job]) -> None:
    """Stop, and wait the moment it takes, so that the look that follows shows it."""
    for job in jobs:
        job.stop()
    patience = time.monotonic() + STOP_SECONDS
    for job in jobs:
        job.wait(max(0.0, patience - time.monotonic()))


def _render_end(training: Training, runs: list[SeedRun]) -> None:
    """What there is, and what can be done with it."""
    done = [run for run in runs if run.model is not None]
    with st.container(horizontal=True, vertical_alignment="center"):
        seeds = f", {len(done)} of {len(runs)} seeds are done" if len(runs) > 1 else ""
        st.markdown(f"**{training.spec.short}**{seeds}", width="content")
        _render_keep(training, runs)
        if done:
            pins.render_pin_button(training, done[0])
            st.download_button(
                "Runs",
                partial(pack_runs, [run.run_id for run in done]),
                f"{training.algorithm}-runs.zip",
                "application/zip",
                icon=":material/download:",
                key=f"w:runs:{training.run_ids[0]}",
                on_click="ignore",
                help="Policies, values, weights and history, without pickle. Unzip, then: offrl_core.load_run(id, folder).",
            )
        st.download_button(
            "Curves",
            lambda: layout.safe_csv(curves_table({run.seed: tracks_of(training, [run])[0] for run in runs})),
            f"{training.algorithm}-curves.csv",
            "text/csv",
            icon=":material/download:",
            key=f"w:curves:{training.run_ids[0]}",
            on_click="ignore",
            help="One row per seed and step, one column per measure.",
        )


def _render_keep(training: Training, runs: list[SeedRun]) -> None:
    """Where all was stopped: a shorter budget makes a whole run of what there is. One more step, and it ends there."""
    told = [run.job.progress() for run in runs if run.can_go_on and run.job]
    steps = [latest.step for latest in told if latest is not None]
    if len(steps) < len(runs) or "n_steps" not in training.spec.config_class.__dataclass_fields__:
        return
    n_steps = max(steps) + 1
    st.button(
        f"Keep {counted(n_steps, training.spec.unit)}",
        icon=":material/content_cut:",
        key=f"w:keep:{training.run_ids[0]}",
        on_click=_keep,
        args=(training.dataset, training.algorithm, n_steps),
        help="Makes this the budget, one step more than there are, and ends there: a whole run, for the other pages, pins "
        "and links. Runs belong to their budget: those of other learners stand under theirs.",
    )


def _keep(dataset: Dataset, algorithm: str, n_steps: int) -> None:
    parameters.set_parameter(algorithm, "n_steps", n_steps)
    state.put("shown", algorithm)
    training_of(dataset, algorithm).start()


def _render_news(training: Training, runs: list[SeedRun]) -> None:
    """What went wrong, in the words of whoever noticed."""
    for run in runs:
        seed = f"seed {run.seed}: " if len(runs) > 1 else ""
        if run.model is not None and run.model.problem:
            layout.warning(f"{training.spec.short}, {seed}{run.model.problem}", icon=":material/warning:")
        if run.job is not None and run.job.note:
            layout.warning(run.job.note)
    stopped = [run for run in runs if run.state == "cancelled"]
    if stopped:
        seeds = ", ".join(str(run.seed) for run in stopped)
        several = f"Seeds {seeds} were" if len(stopped) > 1 else f"Seed {seeds} was"
        which = several if len(runs) > 1 else "It was"
        rest = "" if all(run.can_go_on for run in stopped) else "; to train again means from the start"
        st.caption(f":material/stop_circle: {which} stopped {_where(stopped, training.spec.unit)}{rest}.")


def _where(stopped: Sequence[SeedRun], unit: str) -> str:
    """How far runs had come: "at gradient step 512 of 2,000"."""
    told = [latest for run in stopped if run.job and (latest := run.job.progress()) is not None]
    if not told:
        return f"before the first {unit}"
    first, last = min(latest.step for latest in told), max(latest.step for latest in told)
    steps = f"{unit} {last:,}" if first == last else f"{unit}s {first:,} to {last:,}"
    return f"at {steps} of {told[0].total:,}"


def _render_beyond(training: Training, beyond: float) -> None:
    """Say where values left what rewards can add up to: nothing that a policy does is worth so much."""
    low, high = training.dataset.reward_range
    layout.warning(
        f"{training.spec.short}: state values lie up to {beyond:,.3g} beyond what rewards between {low:g} and {high:g} can "
        f"add up to at a discount of {training.dataset.discount:g}. These values can't be true.",
        icon=":material/warning:",
    )


# -- curves ------------------------------------------------------------------------------------------------------


def tracks_of(training: Training, runs: Sequence[SeedRun]) -> list[Track]:
    """The curves of some runs, as far as they are."""
    stride = 1 + len(training.seeds) * training.dataset.valid_mask.size // PAIRS_AT_ONCE
    tracks = []
    for run in runs:
        track = _track(run.run_id, run.model is not None, stride, _judge_key(training), judge_of(training))
        if run.model is not None and not track.n_seen:
            track.follow(Event(i, progress) for i, progress in enumerate(run.model.history, start=1))
        elif run.model is None and run.job is not None:
            track.follow(run.job.events(track.n_seen))
        tracks.append(track)
    return tracks


def judge_of(training: Training) -> FrameJudge:
    """Who judges key frames of a training, where the page looks."""
    return _judge(*_judge_key(training), training.dataset)


def _judge_key(training: Training) -> tuple[str, str, int]:
    source = training.dataset.log.source
    return (
        work.dataset_key(training.dataset),
        work.deployment(source.world if source else None),
        state.get("min_count"),
    )


@st.cache_resource(show_spinner=False, max_entries=32, ttl="2h", scope="session")
def _judge(key: str, deployment: str, min_count: int, _dataset: Dataset) -> FrameJudge:
    return FrameJudge(_dataset, deployment, min_count)


@st.cache_resource(show_spinner=False, max_entries=128, ttl="2h", scope="session")
def _track(run_id: str, done: bool, stride: int, key: tuple, _judge: FrameJudge) -> Track:
    return Track(_judge, stride)


def _key(runs: Sequence[SeedRun], tracks: Sequence[Track]) -> tuple:
    """What the pictures depend on: where there is nothing new, nothing is drawn."""
    seen = tuple((run.run_id, run.model is None, track.n_seen) for run, track in zip(runs, tracks, strict=True))
    return seen, state.get("deployment"), state.get("min_count")


@st.cache_resource(show_spinner=False, max_entries=64, ttl="2h")
def _drawn(key: tuple, _training: Training, _runs: Sequence[SeedRun], _tracks: Sequence[Track]) -> tuple[str, float]:
    """All pictures as HTML, and how far values lie beyond what rewards can add up to."""
    bands = bands_of([track for track in _tracks if track.n_seen])
    common = {"total": _total(_runs), "unit": _training.spec.unit}
    learned = [bands[name].singles for name in ("q_logged", "q_unsupported") if name in bands]
    logarithmic = any(explodes(values, _training.dataset) for values in learned)
    pictures = [
        make_value_curves(bands, logarithmic=logarithmic, **common),
        make_choice_curves(bands, **common),
        make_loss_curves(bands, _loss_titles(_training, bands), **common),
        make_action_curves(bands, n_actions=_training.dataset.n_actions, **common),
    ]
    return side_by_side(pictures), _beyond(bands)


def _beyond(bands: dict[str, Band]) -> float:
    """The last that is known of how far values lie beyond what rewards can add up to; 0 where nothing is."""
    if "beyond_reach" not in bands:
        return 0.0
    known = bands["beyond_reach"].high
    known = known[~np.isnan(known)]
    return float(known[-1]) if len(known) else 0.0


def _loss_titles(training: Training, bands: dict[str, Band]) -> dict[str, str]:
    """Measures that stand in no other picture, in words: the learner says what each means."""
    names = [name for name in training.spec.metrics if name not in (*FRAME_MEASURES, *NO_LOSS) and name in bands]
    return {name: name.replace("_", " ") for name in names}


def _total(runs: Sequence[SeedRun]) -> int:
    """The last step that may come."""
    totals = [run.model.history[-1].total for run in runs if run.model is not None and run.model.history]
    totals += [latest.total for run in runs if run.job is not None and (latest := run.job.progress()) is not None]
    return max(totals, default=1)
