"""The table of the page Train: one line for each learner that is done, and what stands behind its numbers."""

from __future__ import annotations

import pyarrow as pa
import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.diagnostics import state_table
from offrl_core.interfaces import TrainedModel
from offrl_core.sequence_policy import SequencePolicy
from offrl_core.training import run_id
from offrl_core.wording import counted
from offrl_core.worlds import WORLDS

from . import asked_return, layout, refusals, state, work
from .caveats import Caveats


def render_results(now: work.Current, models: dict[str, TrainedModel]) -> None:
    """One line for each learner that is done."""
    caveats = Caveats()
    rows = [result_row(now, algorithm, model, caveats) for algorithm, model in models.items()]
    if rows:
        layout.render_wide(_table(rows), "learner", _headings(now))
        caveats.render()
        st.caption(
            f"{_what_is_known(now)} WIS: weighted importance sampling with a 95 % interval, from the log alone; refused where "
            "too few episodes follow the policy. Of several seeds, the first that is done."
        )
        refusals.render_refusals(now.dataset, models)
        asked_return.render_asked_returns(now, models)
    elif not state.get("learners"):
        st.info("Choose a learner above.")


def _what_is_known(now: work.Current) -> str:
    """Which numbers are true, and of which deployment."""
    if now.world is None:
        return "Nobody knows the world behind this log, so success and the exact return stay unknown."
    spec = WORLDS[now.world]
    return (
        f"✓: episodes solved, exactly, by what {spec.subject} does once deployed. Return and unseen states are those where "
        f"{spec.situation(work.deployment(now.world))}; Evaluate and Q-values have the switch."
    )


def _headings(now: work.Current) -> dict[str, tuple[str, str]]:
    solved = layout.success_headings(WORLDS[now.world]) if now.world else {}
    here = f", where {WORLDS[now.world].situation(work.deployment(now.world))}." if now.world else "."
    return solved | {
        "unsupported choices": (
            "unsupported",
            "States where the policy picks an action that the log doesn't support, of all states in the rows that learners see.",
        ),
        "exact return": ("return", f"Exact discounted return{here}"),
        "meets unseen states": (
            "meets the unseen",
            f"Share of the policy's episodes that come to a state which no row of the log shows{here}",
        ),
        "estimate from the log (WIS)": (
            "from the log (WIS)",
            "The return as estimated from the log alone, by weighted importance sampling, with a 95 % interval.",
        ),
        "run": ("run", "Name under which the run is stored: the same name, the same numbers."),
    }


def _table(rows: list[dict[str, object]]) -> pa.Table:
    """Lines as a table, made by Arrow: the way through pandas takes ten times as long, on each rerun."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def done_after(model: TrainedModel) -> str:
    """How long it took, in the learner's own unit."""
    unit = orl.ALGORITHMS[model.algorithm].unit
    if not model.history:
        return f"stopped at the first {unit}"
    steps = model.history[-1].step
    return f"{counted(steps, unit)}{'' if model.converged else ', not settled'}"


def result_row(now: work.Current, algorithm: str, model: TrainedModel, caveats: Caveats) -> dict[str, object]:
    """One line of the table; what isn't known says so."""
    if isinstance(model.policy, SequencePolicy):
        return asked_return.result_row(now, algorithm, model)
    run = run_id(now.dataset, algorithm, model.config, model.seed)
    row = _row_of_table(run, work.deployment(now.world), state.get("min_count"), now.dataset, model)
    return row | {"estimate from the log (WIS)": caveats.told(work.estimated(now.dataset, model)), "run": run}


@st.cache_resource(show_spinner=False, max_entries=512, ttl="2h")
def _row_of_table(
    run: str, deployment: str, min_count: int, _dataset: Dataset, _model: TrainedModel
) -> dict[str, object]:
    """The line of a policy that is a table over states, once per run."""
    table = state_table(_dataset, _model, None, min_count)
    visited = table["visits"] > 0
    learner = orl.ALGORITHMS[_model.algorithm]
    row: dict[str, object] = {
        "learner": learner.short + (f", seed {_model.seed}" if learner.train_seeds else ""),
        "unsupported choices": f"{int((table['unsupported_choice'] & visited).sum()):,} of {int(visited.sum()):,} states",
        "done after": done_after(_model),
    }
    if _dataset.log.source:
        spec = WORLDS[_dataset.log.source.world]
        truths = {d: work.truth(_dataset, _model, d) for d in spec.deployments}
        for name, truth in truths.items():
            row[layout.success_column(spec, name)] = f"{truth.success_rate:.1%}"
        here = truths[deployment]
        row["exact return"] = f"{here.mean_return:+z.4f}"
        row["meets unseen states"] = f"{here.unseen_state_rate:.1%} of episodes"
    else:
        row["exact success"] = "unknown"
    return row
