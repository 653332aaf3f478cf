"""The log itself: choose, generate or load one; what was read and what was not; episodes, step by step."""

import streamlit as st

from offrl_core.worlds import WORLDS
from pages._ui import episode, export, layout, loading, navigation, report, state, work

MAX_EPISODES = 1000


def take_generated() -> None:
    """Any turn of a dial shows the generated log."""
    for dial in ("right", "random", "episodes", "seed", "action"):
        state.take(f"gen_{dial}")
    skips = {task: st.session_state[f"w:skip_{task}"] for task in WORLDS["calculator"].tasks}
    state.put("gen_skip", ",".join(f"{task}={p:g}" for task, p in skips.items() if p > 0))
    state.put("data", work.GENERATED)
    state.forget_place()


def render_dials() -> None:
    """The behavior policy that writes a log in the calculator world."""
    dials = {"on_change": take_generated}
    left, middle, right = st.columns(3, gap="large")
    with left:
        st.slider(
            "Picks the right operation on purpose", 0.0, 1.0, step=0.01, key=state.widget_key("gen_right"), **dials
        )
        st.slider(
            "Acts at random ε",
            0.0,
            1.0,
            step=0.01,
            key=state.widget_key("gen_random"),
            help="1 is the uniform random policy.",
            **dials,
        )
    with middle:
        st.selectbox("Leaves out the tool", ("add", "sub", "mul"), key=state.widget_key("gen_action"), **dials)
        skips = work.read_skips(state.get("gen_skip"))
        for task in WORLDS["calculator"].tasks:
            state.set_widget(f"w:skip_{task}", skips.get(task, 0.0))
            st.slider(
                f"…on {task} tasks, in this share of choices",
                0.0,
                1.0,
                step=0.05,
                key=f"w:skip_{task}",
                help="1: the log never shows the tool on this task. Episodes stay whole.",
                **dials,
            )
    with right:
        st.number_input("Episodes", 1, 100_000, key=state.widget_key("gen_episodes"), **dials)
        st.number_input("Seed", 0, 2**31, key=state.widget_key("gen_seed"), **dials)
        st.button("Make this log", icon=":material/casino:", on_click=take_generated, type="primary")


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
        else f"{rate:.1%} solved ({known:,} of {dataset.n_episodes:,} with a known outcome)"
    )
    st.markdown(f"##### Episodes: {len(table):,} of {dataset.n_episodes:,} shown, {told}")
    event = st.dataframe(
        table, hide_index=True, height=320, on_select="rerun", selection_mode="single-row", key="w:episodes"
    )
    chosen = event["selection"]["rows"]
    if chosen:
        state.put("episode", str(table.iloc[chosen[0]]["episode_id"]))
    episode_id = state.get("episode") or str(table.iloc[0]["episode_id"])
    episode.render_episode(dataset.log, episode_id)


navigation.require_app()
st.title("Data")
with st.expander("Generate a log with dials", icon=":material/casino:", expanded=state.get("data") == work.GENERATED):
    render_dials()
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
