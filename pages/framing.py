"""What counts as state, action and reward: choose, see at once what it costs, and what the key still hides."""

import streamlit as st

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.evaluation.aliasing import left_open_in_words
from offrl_core.framing_choices import FramingChoices
from pages._ui import evidence, framing_effects, framing_form, framing_history, layout, navigation, state, work

MAX_SPLITS = 5


def dataset_before(now: work.Current, before: FramingChoices | None) -> Dataset | None:
    """The same log and edits under the framing before; None where there was none, or it no longer fits."""
    if before is None:
        return None
    try:
        return work.framed(now.log, before.link, now.edits)
    except orl.OffRLError:
        return None


def render_world(now: work.Current) -> None:
    """Why the framing of a world's log stays."""
    st.info(
        f"This log was written by the world `{now.world}`, whose exact values belong to its own states. So its framing stays as "
        "the world made it; the numbers below say what that key hides all the same. Load a trace of your own on **Data**, and "
        "everything here can be chosen.",
        icon=":material/lock:",
    )


def render_sentence(now: work.Current) -> None:
    """The framing in words, and as the SQL that runs."""
    st.markdown(f"**{layout.plain(now.framing.sentence, 800)}**")
    framing = now.framing.framing()
    with st.expander("As SQL", icon=":material/code:"):
        st.caption("episode: the window (PARTITION BY episode_id ORDER BY t).")
        for name in ("state", "action", "reward"):
            st.code(f"-- {name}\n{getattr(framing, name)}", language="sql", wrap_lines=True)


def render_mixed(dataset: Dataset) -> None:
    """Table of mixed pairs, worst first; a chosen one opens its rows below."""
    found = framing_effects.mixed(dataset)
    st.markdown("#### What the key hides", help=layout.tip("aliasing"))
    if not found.n_visits:
        st.info(
            "No step has a known outcome, so nothing can be said about mixed ones. The page **Rewards** adds rewards to a log."
        )
        return
    st.markdown(
        f"In **{found.n_mixed:,} of {found.n_pairs:,}** pairs of state and action the same action led to different outcomes; "
        f"they carry **{found.mixed_visits:,} of {found.n_visits:,}** visits. Among pairs that always end the episode, where "
        f"nothing later can explain the difference: **{found.n_mixed_ending:,} of {found.n_ending:,}**, with "
        f"{found.mixed_ending_visits:,} of {found.ending_visits:,} visits."
    )
    st.toggle(
        "Only pairs that end the episode",
        **state.bound_switch("only_endings"),
        help="Elsewhere, later actions have their share in the difference.",
    )
    only = bool(state.get("only_endings"))
    table, n = (found.ending_pairs, found.n_mixed_ending) if only else (found.pairs, found.n_mixed)
    if table.empty:
        st.caption("No mixed pair here.")
        return
    st.caption(
        f"The worst {len(table):,} of {n:,}; outcome: sum of the rewards from the step on. Choose a row to open its steps."
    )
    columns = {
        "share": st.column_config.NumberColumn("share of the variance", format="percent"),
        "ends": st.column_config.CheckboxColumn("ends the episode"),
        **{name: st.column_config.NumberColumn(format="%.3g") for name in ("lowest", "mean", "highest")},
    }
    event = st.dataframe(
        table,
        hide_index=True,
        height=min(360, 38 + 35 * len(table)),
        column_config=columns,
        on_select="rerun",
        selection_mode="single-row",
        key=f"w:mixed:{dataset.framing.token}:{only}",
    )
    take_row([table.iloc[row] for row in event["selection"]["rows"]])


def take_row(rows: list) -> None:
    """Remember the pair that was chosen."""
    if rows:
        evidence.take_click([{"customdata": [str(rows[0]["state"]), str(rows[0]["action"])]}])


def render_splits(now: work.Current) -> None:
    """What would tell mixed pairs apart, as buttons; and what was tried and would not."""
    tried = framing_effects.splits(now.dataset, now.framing)
    st.markdown("#### What would tell them apart")
    if not tried:
        st.caption("Nothing to try: outcomes don't vary, or the log has nothing more to add to the state.")
        return
    good = [split for split in tried if not split.refused]
    all_steps = tried[0].n_episodes >= now.dataset.n_episodes
    st.caption(
        "Judged on episodes each split was not fitted to, so that cutting the log into small pieces wins nothing"
        + ("." if all_steps else f"; on {tried[0].n_episodes:,} of {now.dataset.n_episodes:,} episodes.")
    )
    for split in good[:MAX_SPLITS]:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                f"Add {layout.plain(split.part.phrase, 60)}",
                icon=":material/call_split:",
                key=f"w:split:{split.part.token}",
                on_click=framing_history.choose,
                args=(split.choices,),
                disabled=bool(now.world),
            )
            st.markdown(
                f"removes **{split.removed:.1%}** of the error of the outcome (left open: "
                f"{left_open_in_words(split.left_before)} → {left_open_in_words(split.left_after)}) · visits on mixed pairs "
                f"{split.mixed_before:.1%} → {split.mixed_after:.1%} · "
                f"{split.n_states:,} states instead of {now.dataset.n_states:,}",
                width="content",
            )
    if not good:
        st.markdown("No single addition explains the outcomes of other episodes better than the key does now.")
    rest = [split for split in tried if split not in good[:MAX_SPLITS]]
    if rest:
        names = ", ".join(
            f"{layout.plain(split.part.phrase, 60)} ({split.refused or f'removes {split.removed:.1%} of the error'})"
            for split in rest
        )
        st.caption(f"Tried and not worth their states: {names}.")


navigation.require_app()
st.title("Framing")
st.markdown(
    "What counts as a state, an action and a reward. The same trace becomes another decision process with each choice.",
    help=layout.tip("framing"),
)
now = work.current()
if now.world:
    render_world(now)
    before = None
else:
    before = framing_history.previous(now)
    framing_form.render_form(now)
render_sentence(now)
if now.dataset is not None:
    for note in now.dataset.notes:
        st.caption(f":material/info: {note}")
    framing_effects.render_numbers(now.dataset, dataset_before(now, before))
    layout.min_count_input()
    render_mixed(now.dataset)
    if state.get("cell_state"):
        evidence.render_evidence(now.dataset, None, None, state.get("min_count"))
    render_splits(now)
