"""The rehearsal of estimates on fresh logs of a world: asked for by a click, and stopped by any other."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.coverage_study import CoverageStudy, coverage_study
from offrl_core.interfaces import TrainedModel
from offrl_core.worlds import WORLDS

from . import layout, work


def render_rehearsal(dataset: Dataset, models: Mapping[str, TrainedModel], deployment: str) -> CoverageStudy | None:
    """How often the intervals hold on fresh logs like the one that judges; what came out, once it has run."""
    st.markdown("##### Rehearsal: how often do these intervals hold the truth?", help=layout.tip("rehearsal"))
    done = st.session_state.setdefault("w:studies", {})
    key = repr((deployment, [work.policy_key(dataset, model) for model in models.values()]))
    n_logs = st.select_slider("Fresh logs", [20, 50, 100, 200], value=50, key="w:n_logs", width=320)
    st.button("Rehearse", icon=":material/replay:", on_click=lambda: st.session_state.update({"w:rehearse": key}))
    if st.session_state.pop("w:rehearse", None) == key:
        bar = st.progress(0.0, text="collecting fresh logs")
        st.button("Stop", icon=":material/stop:", key="w:stop_study")
        study = coverage_study({n: m.policy for n, m in models.items()}, dataset, n_logs=n_logs, deployment=deployment)
        while True:
            try:
                progress = next(study)
            except StopIteration as finished:
                done[key] = finished.value
                break
            bar.progress(progress.step / progress.total, text=f"log {progress.step} of {progress.total}")
        st.rerun()
    if key in done:
        _render_study(done[key])
    return done.get(key)


def _render_study(study: CoverageStudy) -> None:
    """Coverage by policy and estimator, and who ranks policies right."""
    rows: dict[str, dict[str, str]] = {}
    for row in study.reliability:
        share = "refused" if row.coverage is None else f"{row.coverage:.0%} of {row.n_told}"
        rows.setdefault(orl.ESTIMATORS[row.estimator].short, {})[row.policy] = share
    for rank in study.ranking:
        right = "—" if rank.share_right is None else f"{rank.share_right:.0%} of {rank.n_pairs}"
        rows[orl.ESTIMATORS[rank.estimator].short]["pairs ranked right"] = right
    st.dataframe(pd.DataFrame(rows).T)
    spec = WORLDS[study.world]
    st.caption(
        f"Share of the 95 % intervals that hold the exact value, on {study.n_logs} fresh logs of {study.n_episodes:,} episodes, "
        f"where {spec.subject} {spec.deployments[study.deployment].title}. Logs are always written where all works: with another "
        "deployment this shows what no log could have told."
    )
