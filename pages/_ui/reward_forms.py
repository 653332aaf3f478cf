"""The two ways to give a log rewards, as forms: each returns a recipe, or None while something is missing."""

from __future__ import annotations

import streamlit as st

from offrl_core.errors import OffRLError
from offrl_core.log import Log
from offrl_core.reward_columns import StepCosts
from offrl_core.reward_files import RewardFile, read_reward_file
from offrl_core.reward_keys import Guess, Pairs, episode_keys, guess_join
from offrl_core.reward_rules import STEPS, TEXTS
from offrl_core.rewards import JoinRewards, RuleRewards
from offrl_core.schema import COLUMN_NAMES
from offrl_core.wording import counted

from . import layout

FILE, FILE_ID, FILE_PROBLEM = "w:reward_table", "w:reward_file_id", "w:reward_problem"
MAX_ROWS_SHOWN = 5

_RULES = {
    "contains": "a text contains …",
    "matches": "a text matches a regular expression …",
    "no_error": "there was no tool error",
    "last_call": "the last call succeeded",
    "called": "a certain tool was called …",
    "sql": "a condition in SQL holds …",
}


# -- a second file -------------------------------------------------------------------------------------------


def join_form(log: Log) -> JoinRewards | None:
    """Second file, key and reward field."""
    upload = st.file_uploader(
        "File with the rewards",
        key="w:reward_file",
        on_change=_forget,
        help="CSV, JSON, JSON lines or Parquet with one row per episode; an object from id to reward; a report of SWE-bench "
        "(resolved_ids); result.json files of Harbor, several of them as a zip. Recognised by content.",
    )
    if upload is not None and upload.file_id != st.session_state.get(FILE_ID):
        _read(upload.file_id, upload.name, upload.getvalue())
    if problem := st.session_state.get(FILE_PROBLEM):
        layout.error(problem)
    file = st.session_state.get(FILE)
    if file is None:
        return None
    _render_file(file)
    return _fields_form(file, log)


def loaded_files() -> dict[str, RewardFile]:
    """The file with rewards that is loaded in this session, by fingerprint."""
    file = st.session_state.get(FILE)
    return {} if file is None else {file.fingerprint: file}


def _forget() -> None:
    """Another file, or none: what was read before goes. On other pages the file stays, although the widget doesn't."""
    for key in (FILE, FILE_ID, FILE_PROBLEM):
        st.session_state.pop(key, None)


def _read(file_id: str, name: str, data: bytes) -> None:
    st.session_state[FILE_ID] = file_id
    st.session_state[FILE], st.session_state[FILE_PROBLEM] = None, ""
    try:
        with st.spinner("Reading the rewards…"):
            st.session_state[FILE] = read_reward_file(name, data)
    except OffRLError as error:
        st.session_state[FILE_PROBLEM] = str(error)


def _render_file(file: RewardFile) -> None:
    shown = min(MAX_ROWS_SHOWN, len(file.rows))
    n = len(file.problems)
    told = f" {counted(n, 'problem')}, the first: {layout.plain(file.problems[0], 300)}" if n else ""
    st.caption(
        f"{layout.plain(file.name)}: {layout.plain(file.shape)}, {len(file.rows):,} rows, {shown:,} shown.{told}"
    )
    rows = [
        {field: "" if row.get(field) is None else str(row[field]) for field in file.fields} for row in file.rows[:shown]
    ]
    st.dataframe(rows, hide_index=True, height="content")


@st.cache_resource(show_spinner="Looking for the key…", max_entries=64, ttl="1h")
def guessed(key: tuple[str, str], _file: RewardFile, _log: Log) -> Guess:
    """:func:`offrl_core.reward_keys.guess_join`, once per file and log."""
    return guess_join(_file, _log)


def _fields_form(file: RewardFile, log: Log) -> JoinRewards | None:
    guess = guessed((file.fingerprint, log.fingerprint), file, log)
    ways = list(episode_keys(log).ways)
    mark = f"{file.fingerprint}:{log.fingerprint}"  # another file or log begins with its own guess
    st.caption(f":material/lightbulb: {layout.plain(guess.why, 400)}")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        reward = _choice(
            "Reward",
            file.fields,
            guess.reward,
            f"w:join_reward:{mark}",
            "A number, true or false, pass or fail, C or I.",
        )
        on: Pairs = ()
        for i, label in enumerate(("Key", "and (optional)")):
            field, way = guess.on[i] if i < len(guess.on) else (None, None)
            name = _choice(f"{label}: field of the file", file.fields, field, f"w:join_field{i}:{mark}", clear=i > 0)
            same = _choice("is, in the log", ways, way, f"w:join_way{i}:{mark}", _WAYS_HELP, clear=i > 0)
            on += ((name, same),) if name and same else ()
    logged = bool(log.columns("reward")["reward"].null_count < log.n_steps)
    keep = logged and st.checkbox(
        "Episodes that the file doesn't judge keep the reward they have",
        key="w:join_keep",
        persist_state="session",
        help="Off: their reward becomes unknown, so that all rewards have one source.",
    )
    return (
        JoinRewards(file=file, on=on, reward=reward, keep_logged=bool(keep), costs=costs_form("join"))
        if on and reward
        else None
    )


_WAYS_HELP = (
    "Numbers and texts match: 7, 7.0 and '7' are the same key. Trial and task number are read from the end of an id such as "
    "task3-trial0 or 15-epoch1."
)


def _choice(label: str, options, value: str | None, key: str, tooltip: str = "", clear: bool = False) -> str | None:
    options = list(options)
    return st.selectbox(
        label,
        options,
        index=options.index(value) if value in options else None if clear else 0,
        key=key,
        help=tooltip or None,
        placeholder="none",
        persist_state="session",
        width=220,
    )


# -- a rule --------------------------------------------------------------------------------------------------


def rule_form(log: Log) -> RuleRewards | None:
    """What an episode must show, and what it earns for it."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        rule = st.selectbox(
            "An episode succeeded if",
            list(_RULES),
            format_func=_RULES.get,
            key="w:rule",
            persist_state="session",
            width=320,
        )
        text, on = _wanted(log, rule)
    ignore_case = True
    if rule in ("contains", "matches"):
        ignore_case = st.checkbox("Upper and lower case are the same", True, key="w:rule_case", persist_state="session")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        values = [
            st.number_input(
                label,
                value=value,
                key=f"w:rule_{label}",
                placeholder="unknown",
                step=0.5,
                persist_state="session",
                width=180,
                help=_VALUE_HELP,
            )
            for label, value in (("Reward if true", 1.0), ("if false", 0.0), ("if the log doesn't tell", None))
        ]
    costs = costs_form("rule")
    if rule in ("contains", "matches", "called", "sql") and not text:
        return None
    return RuleRewards(
        rule=rule,
        text=text,
        on=on,
        ignore_case=ignore_case,
        if_true=values[0],
        if_false=values[1],
        if_unknown=values[2],
        costs=costs,
    )


_VALUE_HELP = "Cleared: unknown (NULL). Unknown isn't 0: such an episode teaches no value."


def _wanted(log: Log, rule: str) -> tuple[str, str]:
    """What to look for and where, as far as the rule needs them."""
    if rule == "called":
        return st.selectbox(
            "Tool", log.distinct_values("action"), key="w:rule_tool", persist_state="session", width=280
        ) or "", ""
    if rule == "sql":
        where = st.selectbox(
            "on", list(STEPS), format_func=STEPS.get, key="w:rule_steps", persist_state="session", width=200
        )
        tooltip = (
            "One condition, as in WHERE: action = 'submit' AND error IS NULL. What is compared with an empty cell is unknown, "
            f"and a plain message has no tool: compare the action. Columns: {', '.join(COLUMN_NAMES)}."
        )
        return st.text_input(
            "Condition (SQL)", key="w:rule_sql", help=tooltip, persist_state="session", width=420
        ).strip(), where
    if rule in ("contains", "matches"):
        names = {name: words for name, (_, words) in TEXTS.items()}
        where = st.selectbox(
            "Look at", list(names), format_func=names.get, key="w:rule_text_of", persist_state="session", width=260
        )
        label = "Text" if rule == "contains" else "Regular expression (RE2)"
        return st.text_input(label, key=f"w:rule_{rule}", persist_state="session", width=320), where
    return "", ""


# -- costs ---------------------------------------------------------------------------------------------------


def costs_form(form: str) -> StepCosts:
    """What steps cost, beside the reward at the end."""
    with (
        st.expander("Costs on the way (optional)", icon=":material/timer:"),
        st.container(horizontal=True, vertical_alignment="bottom"),
    ):
        amounts = [
            st.number_input(
                label,
                0.0,
                1e6,
                0.0,
                step=0.01,
                format="%g",
                key=f"w:{form}_{label}",
                persist_state="session",
                width=160,
                help=tooltip,
            )
            for label, tooltip in _COSTS.items()
        ]
    return StepCosts(per_step=amounts[0], per_error=amounts[1], per_second=amounts[2], per_dollar=amounts[3])


_COSTS = {
    "Per step": "Taken off the reward of each step: r − c. In the same units as the reward.",
    "Per error": "Taken off where the log recorded an error.",
    "Per second": "Taken off by latency_ms / 1000. Where a time isn't known, the episode's reward stays unknown.",
    "Per dollar": "Taken off by cost_usd. Where a price isn't known, the episode's reward stays unknown.",
}
