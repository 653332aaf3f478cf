"""What policies do once deployed in a world: the truth by deployment and by task, length and cost, and a sampled trial."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import offrl_core as orl
from offrl_core.arrays import FloatArray
from offrl_core.dataset import Dataset
from offrl_core.evaluation.ceiling import SAID
from offrl_core.evaluation.course import Course, behavior_course, course
from offrl_core.evaluation.exact import Truth
from offrl_core.interfaces import TrainedModel
from offrl_core.worlds import LOGGED_IN, WORLDS, WorldSpec

from . import layout, work

OWN = "the log's own agent"
HEADINGS = {
    "success": ("✓ solved", "Share of the episodes that are solved."),
    "return": ("return", "Mean discounted return of an episode."),
    "steps": ("steps", "Mean length of an episode."),
    "cost on the way": ("cost", "What the steps before the last one cost, undiscounted."),
}
N_TRIAL = 500  # episodes of a sampled trial


def render_deployed(now: work.Current, models: Mapping[str, TrainedModel], whose: str) -> None:
    """The tables; only worlds have them. ``whose`` says which policies these are."""
    st.markdown("##### Once deployed: the truth", help=layout.tip("exact"))
    if whose:
        st.caption(whose)
    spec = WORLDS[now.world]
    by_task = bool(spec.tasks) and st.toggle("By task", key="w:by_task")
    table = _by_task(now, models) if by_task else _by_deployment(now, models)
    layout.render_wide(table, "policy", HEADINGS | layout.success_headings(spec))
    here = work.deployment(now.world)
    cut = max(found[""].cut for found in _courses(now, models, here).values())
    st.caption(
        "Computed over everything that can happen, not sampled; that of the log's own agent is no mean over its episodes. ✓: "
        "episodes solved. Steps: mean length of an episode. Cost: what the steps before the last one cost, undiscounted. Return, "
        "steps and cost are those where "
        f"{spec.situation(here)}."
        + (
            f" Up to {cut:.1%} of a policy's episodes go on for ever; they are cut after 1,000 steps."
            if cut > 1e-9
            else ""
        )
    )
    data = layout.safe_csv(_everything(now, models))
    with st.container(horizontal=True):
        st.download_button("Download the truth", data, "truth.csv", "text/csv", icon=":material/download:")
        place_of_button = st.container(width="content")
    _render_trial(now, models, here, place_of_button)


def changed_world(now: work.Current, models: Mapping[str, TrainedModel]) -> str:
    """What no estimate can know: that policies are worth something else where they are deployed than where the log was
    written; "" where none is, or where nobody knows the world.
    """
    if now.world is None:
        return ""
    spec, here = WORLDS[now.world], work.deployment(now.world)
    moved = [name for name, model in models.items() if _has_moved(now.dataset, model, here)]
    if not moved:
        return ""
    who = "every policy" if len(moved) == len(models) > 1 else " and ".join(moved)
    return (
        f"{_then_and_here(spec, here)}. No estimate from the log can know that the world has changed since: it judges {who} as "
        f"if {spec.situation(LOGGED_IN)}, however narrow its interval."
    )


def render_changed_values(now: work.Current, model: TrainedModel, true_q: FloatArray | None) -> None:
    """What no learned value can know: that actions are worth something else where the policy is deployed than where the log was
    written; nothing where none is, or where nobody knows. ``true_q`` (S, A): exact Q where it is deployed.
    """
    if true_q is None:
        return
    spec, here = WORLDS[now.world], work.deployment(now.world)
    known = now.dataset.valid_mask & ~np.isnan(true_q)
    apart = np.abs(true_q - work.exact_q(now.dataset, model, LOGGED_IN))[known]
    n_moved = int((apart > SAID).sum())
    if not n_moved:
        return
    learned = "" if model.q_values is None else f"; what was learned from it stands as if {spec.situation(LOGGED_IN)}"
    layout.warning(
        f"{_then_and_here(spec, here)}, which changes the exact value of {n_moved:,} of the {len(apart):,} pairs that can still "
        f"be reached. The world has changed since, and no row of the log knows{learned}.",
        icon=":material/public:",
    )


def _then_and_here(spec: WorldSpec, here: str) -> str:
    return f"The log was written where {spec.situation(LOGGED_IN)}; here {spec.situation(here)}"


def _has_moved(dataset: Dataset, model: TrainedModel, deployment: str) -> bool:
    here, then = (work.truth(dataset, model, name).mean_return for name in (deployment, LOGGED_IN))
    return abs(here - then) > SAID


def _render_trial(
    now: work.Current, models: Mapping[str, TrainedModel], deployment: str, place_of_button: DeltaGenerator
) -> None:
    """What luck does to an experiment: sampled episodes beside the exact value, once somebody asked for them."""
    asked = st.session_state.setdefault("w:trials", set())
    trial = (deployment, *(work.policy_key(now.dataset, model) for model in models.values()))
    label = f"Try it: sample {N_TRIAL} episodes of each"
    place_of_button.button(label, icon=":material/casino:", key="w:trial", on_click=asked.add, args=(trial,))
    if trial in asked:
        layout.render_wide(_trials(trial, now.world, now.dataset, dict(models)), "policy", {})
        st.caption(
            f"What an experiment of {N_TRIAL} episodes would have shown, with a 95 % interval (Wilson's formula), seed 0. The "
            "exact value beside it needs no luck."
        )


def _truths(now: work.Current, models: Mapping[str, TrainedModel], deployment: str) -> dict[str, Truth]:
    assert now.dataset is not None
    own = work.behavior_truth(now.dataset.log.fingerprint, deployment, now.dataset.log)
    return {name: work.truth(now.dataset, model, deployment) for name, model in models.items()} | {OWN: own}


def _courses(now: work.Current, models: Mapping[str, TrainedModel], deployment: str) -> dict[str, dict[str, Course]]:
    assert now.dataset is not None
    found = {
        name: _course(work.policy_key(now.dataset, model), deployment, now.dataset, model)
        for name, model in models.items()
    }
    return found | {OWN: _own_course(now.dataset.log.fingerprint, deployment, now.dataset)}


@st.cache_resource(show_spinner=False, max_entries=256, ttl="2h")
def _course(key: str, deployment: str, _dataset: Dataset, _model: TrainedModel) -> dict[str, Course]:
    return course(_model.policy, _dataset.log.source.world, deployment)


@st.cache_resource(show_spinner=False, max_entries=64, ttl="2h")
def _own_course(fingerprint: str, deployment: str, _dataset: Dataset) -> dict[str, Course]:
    source = _dataset.log.source
    return behavior_course(source.behavior, source.world, deployment)


def _by_deployment(now: work.Current, models: Mapping[str, TrainedModel]) -> pd.DataFrame:
    spec, here = WORLDS[now.world], work.deployment(now.world)
    truths = {name: _truths(now, models, name) for name in spec.deployments}
    courses = _courses(now, models, here)
    rows = []
    for policy in truths[here]:
        solved = {
            layout.success_column(spec, name): f"{truths[name][policy].success_rate:.1%}" for name in spec.deployments
        }
        row = {"policy": policy, **solved, "return": f"{truths[here][policy].mean_return:+z.3f}"}
        rows.append(row | _course_cells(courses[policy][""]))
    return pd.DataFrame(rows)


def _by_task(now: work.Current, models: Mapping[str, TrainedModel]) -> pd.DataFrame:
    here = work.deployment(now.world)
    courses = _courses(now, models, here)
    return pd.DataFrame(
        {"policy": policy, "task": task, "success": f"{found.success_rate:.1%}", "return": f"{found.mean_return:+z.3f}"}
        | _course_cells(courses[policy][task])
        for policy, truth in _truths(now, models, here).items()
        for task, found in truth.by_task.items()
    )


def _course_cells(found: Course) -> dict[str, str]:
    return {"steps": f"{found.steps:,.2f}", "cost on the way": f"{found.cost:.3f}"}


def _everything(now: work.Current, models: Mapping[str, TrainedModel]) -> pd.DataFrame:
    """One row per policy, deployment and task ("" for all), numbers in full."""
    rows = []
    for deployment in WORLDS[now.world].deployments:
        courses = _courses(now, models, deployment)
        for policy, truth in _truths(now, models, deployment).items():
            for task, found in {"": truth, **truth.by_task}.items():
                row = {"policy": policy, "deployment": deployment, "task": task}
                row |= {"success_rate": found.success_rate, "mean_return": found.mean_return}
                rows.append(row | courses[policy][task]._asdict())
    return pd.DataFrame(rows)


@st.cache_resource(show_spinner="The policies are acting…", max_entries=64, ttl="2h")
def _trials(trial: tuple, world: str, _dataset: Dataset, _models: dict[str, TrainedModel]) -> pd.DataFrame:
    deployment = trial[0]
    rows = []
    for name, model in _models.items():
        sampled = orl.roll_out(model.policy, world, deployment, n_episodes=N_TRIAL)
        low, high = sampled.success_interval()
        exact = work.truth(_dataset, model, deployment)
        rows.append(
            {
                "policy": name,
                "sampled success": f"{sampled.success_rate:.1%} [{low:.1%}, {high:.1%}]",
                "exact success": f"{exact.success_rate:.1%}",
                "sampled return": f"{sampled.mean_return:+z.3f} ± {1.96 * sampled.standard_errors()[0]:.3f}",
                "exact return": f"{exact.mean_return:+z.3f}",
            }
        )
    return pd.DataFrame(rows)
