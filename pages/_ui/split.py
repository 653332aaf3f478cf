"""The split of a log: one part of its episodes to learn from, the rest to judge on."""

from __future__ import annotations

import streamlit as st

import offrl_core as orl
from offrl_core.coverage_edits import split_edits
from offrl_core.dataset import Dataset

from . import layout, state, work

SHARES = {"50": "half of the episodes", "70": "70 % of them", "0": "all, and judge on all"}


def parts_of(now: work.Current) -> tuple[Dataset, Dataset]:
    """What to learn from and what to judge on: two parts of the episodes, or the whole log twice."""
    share = int(state.get("split"))
    if share:
        learn_edits, judge_edits = split_edits(now.edits, share / 100)
        try:
            return tuple(work.framed(now.log, now.framing_name, edits) for edits in (learn_edits, judge_edits))
        except orl.OffRLError as error:
            layout.warning(
                f"The log is too small to learn from one part and judge on the other, so both use all of it. {error}"
            )
    return now.dataset, now.dataset


def whose_policies(learn: Dataset, judge: Dataset) -> str:
    """Why numbers here differ from those of the page Train; "" where they don't."""
    if learn is judge:
        return ""
    return (
        f"Of the policies learned from the {learn.n_episodes:,} episodes above; on Train they learn from all, so their numbers "
        "differ a little."
    )


def render_split(learn: Dataset, judge: Dataset) -> None:
    """What was learned from what, and a way to change it."""
    state.set_widget("w:split", state.get("split"))
    st.segmented_control(
        "Learn from",
        list(SHARES),
        format_func=SHARES.get,
        key="w:split",
        on_change=state.take,
        args=("split",),
        help=layout.tip("split"),
    )
    if learn is judge:
        st.caption(
            ":material/warning: The policies are judged on the episodes they learned from, which flatters them: a policy "
            "follows the luck of its own log."
        )
    else:
        st.caption(
            f"Learned from {learn.n_episodes:,} episodes, judged on the other {judge.n_episodes:,}; no episode is in both. “The "
            "log” of each is its own part: what only the other part shows counts as never seen. The policies on the other "
            "pages learn from all."
        )
