"""The table of the page Train: one line for each learner that is done, and what stands behind its numbers."""

from __future__ import annotations

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.evaluation.diagnostics import state_table
from offrl_core.interfaces import TrainedModel
from offrl_core.sequence_policy import SequencePolicy
from offrl_core.training import run_id
from offrl_core.worlds import WORLDS

from . import asked_return, refusals, state, work


def render_results(now: work.Current, models: dict[str, TrainedModel]) -> None:
    """One line for each learner that is done."""
    rows = [result_row(now, algorithm, model) for algorithm, model in models.items()]
    if rows:
        st.dataframe(pd.DataFrame(rows), hide_index=True)
        st.caption(
            "Success is exact where a world is known; exact return and unseen states are those of the deployment "
            "chosen on Overview. WIS: weighted importance sampling with a 95 % interval, from the log "
            "alone; refused where too few episodes follow the policy. Of several seeds, the first that is done."
        )
        refusals.render_refusals(now.dataset, models)
        asked_return.render_asked_returns(now, models)
    elif not state.get("learners"):
        st.info("Choose a learner above.")


def done_after(model: TrainedModel) -> str:
    """How long it took, in the learner's own unit."""
    unit = orl.ALGORITHMS[model.algorithm].unit
    if not model.history:
        return f"stopped at the first {unit}"
    steps = model.history[-1].step
    return f"{steps:,} {unit}{'' if steps == 1 else 's'}{'' if model.converged else ', not settled'}"


def result_row(now: work.Current, algorithm: str, model: TrainedModel) -> dict[str, object]:
    """One line of the table; what isn't known says so."""
    if isinstance(model.policy, SequencePolicy):
        return asked_return.result_row(now, algorithm, model)
    dataset = now.dataset
    table = state_table(dataset, model, None, state.get("min_count"))
    visited = table["visits"] > 0
    row: dict[str, object] = {
        "learner": orl.ALGORITHMS[algorithm].short
        + (f", seed {model.seed}" if orl.ALGORITHMS[algorithm].train_seeds else ""),
        "unsupported choices": f"{int((table['unsupported_choice'] & visited).sum()):,} of {int(visited.sum()):,} states",
        "done after": done_after(model),
    }
    if now.world:
        spec = WORLDS[now.world]
        truths = {d: work.truth(dataset, model, d) for d in WORLDS[now.world].deployments}
        for deployment, truth in truths.items():
            row[f"success, {spec.subject} {spec.deployments[deployment].title}"] = f"{truth.success_rate:.1%}"
        here = truths[work.deployment(now.world)]
        row["exact return"] = f"{here.mean_return:+.4f}"
        row["meets unseen states"] = f"{here.unseen_state_rate:.1%} of episodes"
    else:
        row["exact success"] = "unknown"
    guess = work.estimated(dataset, model)
    row["estimate from the log (WIS)"] = (
        "refused"
        if guess.value is None
        else f"{guess.value:+.3f} (no spread)"
        if guess.low == guess.high
        else f"{guess.value:+.3f} [{guess.low:+.3f}, {guess.high:+.3f}]"
    )
    row["run"] = run_id(dataset, algorithm, model.config, model.seed)
    return row
