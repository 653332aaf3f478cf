"""The log itself: choose, generate or load one; what was read and what was not; episodes, step by step."""

import streamlit as st

from pages._ui import episode, export, generate, layout, loading, navigation, report, state, work

MAX_EPISODES = 1000


def render_framing(now: work.Current) -> None:
    """What counts as state, action and reward, and where to change it."""
    if now.world:
        return
    st.caption(f"**Framing**: {layout.plain(now.framing.sentence, 500)}", help=layout.tip("framing"))
    st.page_link("pages/framing.py", label="Change the framing", icon=":material/filter_center_focus:")


def render_episodes(now: work.Current) -> None:
    """Table of episodes after the edits; a chosen one step by step."""
    dataset = now.dataset
    table = dataset.episode_table(MAX_EPISODES)
    rate, known = dataset.success_rate()
    told = (
        "success unknown"
        if rate is None
        else f"{rate:.1%} {dataset.success_in_words} ({known:,} of {dataset.n_episodes:,} with a known outcome)"
    )
    st.markdown(f"##### Episodes: {len(table):,} of {dataset.n_episodes:,} shown, {told}")
    columns = {
        "episode_id": st.column_config.TextColumn("episode", width="medium"),
        "task": None if table["task"].isna().all() else st.column_config.TextColumn(),
        "steps": st.column_config.NumberColumn(width="small"),
        "return_undiscounted": st.column_config.NumberColumn("return", help="Sum of the rewards, undiscounted."),
        "success": st.column_config.CheckboxColumn(dataset.success_in_words.removeprefix("with a "), width="small"),
        "ended": st.column_config.CheckboxColumn(width="small", help="The task ended (terminal)."),
        "cut": st.column_config.CheckboxColumn(width="small", help="A limit stopped the episode (timeout)."),
        "behavior_policy": st.column_config.TextColumn("agent", help="Who acted: the behavior policy."),
    }
    event = st.dataframe(
        table,
        hide_index=True,
        height=320,
        column_config=columns,
        on_select="rerun",
        selection_mode="single-row",
        key="w:episodes",
    )
    chosen = event["selection"]["rows"]
    if chosen:
        state.put("episode", str(table.iloc[chosen[0]]["episode_id"]))
    episode_id = state.get("episode") or str(table.iloc[0]["episode_id"])
    episode.render_episode(dataset.log, episode_id)


navigation.require_app()
st.title("Data")
st.markdown(
    "Choose a log in the bar above, make one here, or load your own agent's; then read what happened, step by step."
)
with st.expander("Generate a log with dials", icon=":material/casino:", expanded=state.get("data") == work.GENERATED):
    generate.render_dials()
with st.expander(
    "Load your agent's trace files", icon=":material/upload_file:", expanded=state.get("data") != work.GENERATED
):
    loading.render_upload()
now = work.current()
st.markdown(f"#### {layout.plain(now.log.name)}")
report.render_report(now)
export.render_export(now)
if now.dataset is not None:
    render_framing(now)
    render_episodes(now)
