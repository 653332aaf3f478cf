"""Rewards for an imported log: joined from a second file, or given by a rule. The log itself stays as it is."""

from typing import Any

import pandas as pd
import streamlit as st

import offrl_core as orl
from offrl_core.log import Log
from offrl_core.log_changes import JOINT
from offrl_core.rewards import Finding, Recipe, RewardPreview, preview
from pages._ui import layout, navigation, reward_forms, state, work

MAX_SHOWN = 1000
WAYS = {"join": "From a second file", "rule": "By a rule"}


@st.cache_resource(show_spinner="Judging the episodes…", max_entries=64, ttl="1h")
def previewed(fingerprint: str, recipe_key: str, _log: Log, _recipe: Recipe) -> RewardPreview:
    """:func:`offrl_core.rewards.preview`, once per log and recipe."""
    return preview(_log, _recipe)


def changes_before() -> list[Any]:
    """What was done to the log before it got its rewards: recipes always start from what the file said."""
    changes = work.changes()
    return changes if not changes or changes[-1] == JOINT else changes[:-1]


def undo(before: list[Any]) -> None:
    """Forget the log that got its rewards here, and choose the one before."""
    state.uploads().pop(state.get("data").removeprefix(work.UPLOAD_PREFIX), None)
    work.show_changed(before)


def render_state(log: Log, before: list[Any]) -> None:
    """Where the rewards of the log come from now; ``before``: the changes without those rewards."""
    judges = log.rows(
        "SELECT reward_source, count(DISTINCT episode_id) FROM steps WHERE reward IS NOT NULL GROUP BY 1 ORDER BY 2 DESC LIMIT 5"
    )
    known = log.rows("SELECT count(DISTINCT episode_id) FROM steps WHERE reward IS NOT NULL")[0][0]
    told = "; ".join(f"{layout.plain(who or 'the log does not say by whom')} ({n:,})" for who, n in judges)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            f"**{known:,} of {log.n_episodes:,} episodes have a reward now.**"
            + (f" Judged by: {told}." if told else ""),
            width="content",
        )
        if before != work.changes():
            st.button(
                "Undo", icon=":material/undo:", on_click=undo, args=(before,), help="Back to the rewards of the file."
            )
    for note in log.report.notes[len(work.log_after(before).report.notes) :]:
        st.caption(f":material/info: {layout.plain(note, 600)}")


def render_preview(found: RewardPreview) -> None:
    """How many episodes get which reward, with examples, and what was left over."""
    st.markdown(f"**{layout.plain(found.sentence, 600)}**")
    for note in found.notes:
        st.caption(f":material/info: {layout.plain(note, 600)}")
    counts = found.values()
    table = pd.DataFrame(
        [
            {
                "reward of the episode": "unknown" if c.value is None else f"{c.value:g}",
                "episodes": c.n_episodes,
                "share": c.n_episodes / len(found.episodes),
                "for example": ", ".join(c.examples),
            }
            for c in counts
        ]
    )
    st.dataframe(
        table.head(MAX_SHOWN),
        hide_index=True,
        height="content" if len(table) <= 12 else 420,
        column_config={"share": st.column_config.NumberColumn(format="percent")},
    )
    if len(table) > MAX_SHOWN:
        st.caption(f"{MAX_SHOWN:,} of {len(table):,} rewards shown, the most frequent ones.")
    if sum(c.value is not None for c in counts) == 1:
        st.warning(
            "All judged episodes get the same reward, so no value can be told from another: only copying the log (BC) is left.",
            icon=":material/balance:",
        )
    if found.findings:
        render_findings(found)


def findings_table(findings: tuple[Finding, ...]) -> pd.DataFrame:
    """Rows and episodes that found no partner, as a table."""
    return pd.DataFrame([{"what": f.kind, "key": f.key, "detail": f.detail} for f in findings])


def render_findings(found: RewardPreview) -> None:
    """Rows and episodes that found no partner, the first of them on the page and all as a file, made when it is asked for."""
    n = len(found.findings)
    with st.expander(f"{n:,} rows and episodes left over", icon=":material/report:"):
        st.dataframe(findings_table(found.findings[:MAX_SHOWN]), hide_index=True)
        if n > MAX_SHOWN:
            st.caption(f"{MAX_SHOWN:,} of {n:,} shown; the file has all.")
        st.download_button(
            "Download them",
            lambda: layout.safe_csv(findings_table(found.findings)),
            "rewards_left_over.csv",
            "text/csv",
            icon=":material/download:",
            on_click="ignore",
        )


def render_recipe(before: list[Any]) -> None:
    """The chosen form, what it would do after the changes before, and the button that does it."""
    log = work.log_after(before)
    st.segmented_control(
        "Where do the rewards come from?", list(WAYS), format_func=WAYS.get, required=True, **state.bound("reward_way")
    )
    try:
        recipe = reward_forms.join_form(log) if state.get("reward_way") == "join" else reward_forms.rule_form(log)
        if recipe is None:
            return
        found = previewed(log.fingerprint, repr(recipe.to_json()), log, recipe)
    except orl.OffRLError as error:
        layout.error(error)
        return
    st.markdown("#### What it would do")
    render_preview(found)
    st.button(
        "Apply",
        type="primary",
        icon=":material/check:",
        on_click=work.show_changed,
        args=([*before, recipe.to_json()],),
        help="Makes a new log of this session and shows it. The old one stays in the list; the rewards that it had stay in "
        "reward_components under logged.",
    )


navigation.require_app()
st.title("Rewards")
log = work.chosen_log()
if log.source is not None:
    st.info(
        f"{layout.plain(log.name)} comes from a world, and its rewards are the world's: all exact values rest on them, so they "
        "stay. Load your agent's trace file on the Data page to give *its* episodes rewards.",
        icon=":material/public:",
    )
else:
    st.markdown(
        "Most traces come without rewards. Take them from a file that judges the episodes, or say in a rule what success is. "
        "An episode's reward lands on its last step; what nobody judged stays unknown and never becomes 0."
    )
    before = changes_before()
    render_state(log, before)
    render_recipe(before)
