"""Take coverage away: edits as chips, the support map before and after, and what was removed as sentence and SQL."""

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import offrl_core as orl
from offrl_core.coverage_edits import HOW_CHOICES, VERSION_COLUMNS, CoverageEdit
from offrl_core.dataset import Dataset
from offrl_core.evaluation.diagnostics import choices_first
from offrl_core.figures.heatmaps import make_support_map
from pages._ui import evidence, layout, navigation, state, work

ROWS = 30
KINDS = {
    "drop": "Take out an action",
    "where": "Drop steps by a condition",
    "keep": "Keep a random part of the episodes",
    "minreturn": "Keep only good episodes",
    "only": "Keep one policy, version or task",
    "cap": "Cap the visits of each state",
}


def read_how(now: work.Current, choices: list[str]) -> str:
    """Which of the three removals; re-collection only where a world can be asked again."""
    if not now.world:
        choices = [how for how in choices if how != "recollect"]
    return st.radio("How", choices, format_func=HOW_CHOICES.get, key="w:new_how", horizontal=True) or choices[0]


def read_edit(now: work.Current, kind: str, beside: DeltaGenerator) -> CoverageEdit | None:
    """The edit that the form describes; None while it is incomplete. Its first field stands beside its kind."""
    if kind == "drop":
        action = beside.selectbox("Action", action_names(now), index=default_action(now), key="w:new_action")
        where = st.text_input(
            "Only where (SQL condition, optional)",
            key="w:new_where",
            placeholder="task = 'mul'" if "mul" in action_names(now) else "t > 3",
            help="One expression over the columns of the steps; the page Query lists them. To re-collect, name the task only.",
        )
        return orl.DropAction(action, where.strip(), read_how(now, list(HOW_CHOICES)))
    if kind == "where":
        example = "error IS NOT NULL AND t > 3"
        where = beside.text_input("Drop where (SQL condition)", key="w:new_where", placeholder=example)
        how = read_how(now, ["episodes", "transitions"])
        return orl.DropWhere(where, how) if where.strip() else None
    if kind == "keep":
        percent = beside.slider("Keep (percent of the episodes)", 0, 100, 10, key="w:new_fraction")
        return orl.KeepFraction(percent / 100, int(st.number_input("Seed", 0, 10_000, 0, key="w:new_seed")))
    if kind == "minreturn":
        return orl.MinReturn(beside.number_input("Return at least (undiscounted)", value=0.0, key="w:new_return"))
    if kind == "only":
        column = beside.selectbox(
            "Column", VERSION_COLUMNS, format_func=lambda name: name.replace("_", " "), key="w:new_column"
        )
        values = now.log.distinct_values(column)
        if not values:
            st.caption("The log says nothing in this column.")
            return None
        return orl.OnlyValue(column, st.selectbox("Value", values, key="w:new_value"))
    return orl.CapVisits(int(beside.number_input("Visits per state at most", 1, 1_000_000, 5, key="w:new_cap")))


def action_names(now: work.Current) -> list[str]:
    """Actions of the log before its edits."""
    return list(work.framed(now.log, now.framing_name, ()).actions)


def default_action(now: work.Current) -> int:
    """mul, where there is one: the action of the story; else the rarest, because taking the commonest leaves nothing."""
    names = action_names(now)
    return names.index("mul") if "mul" in names else len(names) - 1


def render_form(now: work.Current) -> None:
    """Choose, describe, preview, apply."""
    left, right = st.columns(2)
    kind = left.selectbox("What to take away", list(KINDS), format_func=KINDS.get, key="w:new_kind")
    try:
        edit = read_edit(now, kind, right)
        if edit is None:
            return
        preview = work.framed(now.log, now.framing_name, (*now.edits, edit))
    except orl.OffRLError as error:
        layout.warning(error)
        return
    before, after = preview.stages[-2], preview.stages[-1]
    st.caption(
        f"{layout.plain(edit.sentence, 300)} Would leave **{after.n_steps:,}** of {before.n_steps:,} steps in "
        f"{after.n_episodes:,} of {before.n_episodes:,} episodes."
    )
    again = edit in now.edits
    label = "This is already taken away" if again else "Take it away"
    st.button(
        label, type="primary", icon=":material/content_cut:", on_click=work.add_edit, args=(edit,), disabled=again
    )


def render_removed(now: work.Current) -> None:
    """Each edit as sentence and SQL."""
    for i, edit in enumerate(now.edits, start=1):
        st.markdown(f"{i}. {layout.plain(edit.sentence, 400)}")
        st.code(layout.what_ran(now, edit), language="sql", wrap_lines=True)
    if not now.edits:
        st.caption("Nothing was removed yet.")


def render_numbers(before: Dataset, after: Dataset) -> None:
    """Pairs, states, steps and episodes, before and after."""
    with st.container(horizontal=True):
        for name, count in {
            "Valid pairs in its states": lambda d: int(d.valid_mask.sum()),
            "of these supported": lambda d: int((d.support_mask(state.get("min_count")) & d.valid_mask).sum()),
            "States": lambda d: d.n_states,
            "Steps": lambda d: d.n_transitions,
            "Episodes": lambda d: d.n_episodes,
        }.items():
            was, is_now = count(before), count(after)
            change = f"{is_now - was:+,}" if is_now != was else None
            st.metric(name, f"{is_now:,}", change, width="content", height="stretch", border=True)


def map_of(dataset: Dataset, states: list[str], actions: list[str], title: str, max_count: int):
    """Support map over given states, so that two maps line up."""
    counts, valid = dataset.counts_on(states, actions)
    supported = counts >= state.get("min_count")
    return layout.drawn(make_support_map, states, actions, counts, valid, supported, title=title, max_count=max_count)


def render_maps(before: Dataset, after: Dataset) -> None:
    """Before and after, side by side, rows aligned."""
    counts = before.visitation_counts
    by_visits = choices_first(counts.sum(axis=1), before.valid_mask)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        layout.min_count_input()
        by_name = st.toggle(
            "Order states by name", key="w:by_name", help="Else states with a choice come first, most visited on top."
        )
    order = np.arange(before.n_states) if by_name else by_visits
    missing = [name for name in after.states if before.state_index(name) is None]
    names = [before.states[s] for s in order] + missing
    shown = names[layout.pager("first", len(names), ROWS, "States")]
    st.caption(
        f"States before the edits: {before.n_states:,}; after: {after.n_states:,} (new: {len(missing):,}). "
        "Orange hatching: unsupported. Blank: not valid there. **Click a number of “After” to see its rows.**"
    )
    used = [a for a in before.actions if a in after.actions]
    top = int(counts.max())
    left, right = st.columns(2)
    with left:
        figure = map_of(before, shown, used, "Before", top)
        layout.render_figure(figure, key="before", alt=f"Counts before the edits, {len(shown)} states")
    with right:
        figure = map_of(after, shown, used, "After", top)
        alt = f"Counts after the edits, {len(shown)} states"
        points = layout.render_figure(figure, key="after", alt=alt, select=True)
    evidence.take_click(points)
    evidence.render_evidence(after, None, None, state.get("min_count"))


navigation.require_app()
st.title("Coverage")
st.markdown(
    "Take something out of the log and see which state-action pairs lose their support.", help=layout.tip("coverage")
)
now = work.current()
form, removed = st.columns([3, 2], gap="large")
with form:
    render_form(now)
with removed:
    st.markdown("**What was removed**")
    render_removed(now)
if now.dataset is not None:
    unedited = work.framed(now.log, now.framing_name, ())
    render_numbers(unedited, now.dataset)
    render_maps(unedited, now.dataset)
