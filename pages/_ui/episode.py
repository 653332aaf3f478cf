"""One episode, step by step, and the conversation it was read from. Texts of files are shown as text, never as markup."""

from __future__ import annotations

import json

import pandas as pd
import streamlit as st

from offrl_core.conversation import messages_of
from offrl_core.log import Log

from . import layout

MAX_STEPS = 60


def render_episode(log: Log, episode_id: str, t: int | None = None) -> None:
    """Steps of an episode; the one at ``t`` is marked, and its conversation is shown where the log has one."""
    steps = log.frame("SELECT * FROM steps WHERE episode_id = ? ORDER BY t", [episode_id])
    if steps.empty:
        st.caption("This episode isn't in the log.")
        return
    first = steps.iloc[0]
    st.markdown(f"##### Episode {layout.plain(episode_id)}")
    if isinstance(first["task"], str):
        st.caption(f"Task: {layout.plain(first['task'], 300)}")
    conversation = _conversation(log, steps, t)
    if conversation:
        with st.expander("The conversation, as it stands in the file", icon=":material/forum:", expanded=t is not None):
            _render_conversation(conversation)
    with st.expander("Its steps", icon=":material/list:", expanded=not conversation or t is None):
        for _, step in steps.head(MAX_STEPS).iterrows():
            _render_step(step, marked=t is not None and step["t"] == t)
        if len(steps) > MAX_STEPS:
            st.caption(f"The first {MAX_STEPS} of {len(steps):,} steps.")


def _conversation(log: Log, steps: pd.DataFrame, t: int | None) -> list[tuple[str, str, bool]]:
    here = steps[steps["t"] == t] if t is not None else steps.head(1)
    if here.empty or pd.isna(here.iloc[0]["record"]):
        return []
    step = here.iloc[0]
    raw = log.raw_record(step["source_file"], int(step["record"]))
    index = None if t is None or pd.isna(step["message_index"]) else int(step["message_index"])
    return [tuple(message) for message in messages_of(raw, index)] if raw else []


def _render_conversation(messages: list[tuple[str, str, bool]]) -> None:
    """Messages around the marked one first, because the beginning is often a page of instructions; then all, if wanted."""
    acting = next((i for i, (_, _, is_acting) in enumerate(messages) if is_acting), None)
    whole = acting is None or st.toggle("All messages", key="w:all_messages")
    first, last = (0, len(messages)) if whole else (max(acting - 3, 0), min(acting + 4, len(messages)))
    st.caption(f"Messages {first + 1} to {last} of {len(messages):,}")
    for message in messages[first:last]:
        _render_message(*message)


def _render_message(role: str, text: str, acting: bool) -> None:
    mark = " :material/arrow_back: this decision" if acting else ""
    st.caption(f"**{layout.plain(role)}**{mark}")
    st.code(
        text if len(text) <= 4000 else f"{text[:4000]}\n… first 4,000 of {len(text):,} characters",
        language=None,
        wrap_lines=True,
    )


def _render_step(step: pd.Series, *, marked: bool) -> None:
    with st.container(gap="xxsmall"):
        reward = "no reward logged here" if pd.isna(step["reward"]) else f"reward {step['reward']:+zg}"
        mark = ":material/arrow_forward: " if marked else ""
        st.markdown(f"{mark}**{int(step['t'])}** · {layout.inline_code(str(step['action']))} · {reward}")
        told = {"state": step["state_text"], **_arguments(step)}
        told["result"] = step["tool_result"]
        told["error"] = step["error"]
        text = "\n".join(
            f"{name}: {_cut(value)}"
            for name, value in told.items()
            if isinstance(value, str) and value not in ("", "{}")
        )
        if text:
            st.code(text, language=None, wrap_lines=True)


def _arguments(step: pd.Series) -> dict[str, str]:
    """The text of a message as it was said; the arguments of a call as JSON, or as they stood if they are no JSON."""
    raw = step["arguments"] if isinstance(step["arguments"], str) else step["arguments_raw"]
    if not isinstance(raw, str):
        return {}
    try:
        arguments = json.loads(raw)
    except ValueError:
        return {"arguments (malformed)": raw}
    if step["action_type"] == "message" and isinstance(arguments, dict) and list(arguments) == ["text"]:
        return {"says": str(arguments["text"])}
    return {"arguments": json.dumps(arguments, ensure_ascii=False)}


def _cut(text: str, limit: int = 600) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"
