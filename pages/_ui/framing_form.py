"""The choices of a framing as widgets, in three columns: state, action, reward. A change is tried before it is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from offrl_core.errors import OffRLError
from offrl_core.framing_choices import COSTS, PRESET_TITLES, PRESETS, FramingChoices, preset_name
from offrl_core.framing_offers import GROUPS, Offers, argument_buckets, framing_offers
from offrl_core.framing_parts import (
    MAX_TOOLS_BACK,
    Choice,
    Components,
    LastFailed,
    LastTools,
    LoggedReward,
    Outcome,
    OwnReward,
    OwnState,
    StateField,
    StepNumber,
    Task,
    Tool,
    ToolArgument,
    ToolShape,
    ToolsUsed,
    WorldState,
    pointer_name,
)
from offrl_core.log import Log
from offrl_core.wording import counted

from . import framing_history, layout, state, work

SQL_WIDGETS = ("w:fr_state_sql", "w:fr_reward_sql")
PROBLEM = "w:framing_problem"  # (widget, sentence): what a widget asked for and couldn't have

PARTS: dict[str, Callable[[], Choice]] = {
    "world_state": WorldState,
    "task": Task,
    "used": ToolsUsed,
    "tools": LastTools,
    "failed": LastFailed,
    "step": StepNumber,
}
PART_TITLES = {
    "world_state": "state as the log words it",
    "task": "task",
    "used": "set of tools used so far",
    "tools": "last tools",
    "failed": "whether the last step failed",
    "step": "step number",
}
ACTION_TITLES = {
    "tool": "the tool",
    "shape": "tool and names of its arguments",
    "argument": "tool and one argument, in buckets",
}
REWARD_TITLES = {
    "outcome": "outcome, at the end of the episode",
    "logged": "reward as logged, step by step",
    "components": "components, weighted",
    "sql": "your own SQL",
}
SQL_HELP = (
    "One expression over the columns of a step (the page Query lists them). It may look back: lag(tool, 2) OVER episode is "
    "the tool before the last one, row_number() OVER episode the step number. No subqueries; functions from a short list."
)
Change = Callable[[FramingChoices], FramingChoices]


def render_form(now: work.Current) -> None:
    """All choices, from the ones of the link; each change goes straight into the link."""
    problem = st.session_state.get(PROBLEM)
    if problem and problem[0] not in st.session_state:  # its widget was left behind on another visit of the page
        problem = st.session_state.pop(PROBLEM) and None
    choices, offers = now.framing, framing_offers(now.log)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _render_preset(now, choices, offers)
        framing_history.render_buttons()
    state_column, action_column, reward_column = st.columns([1.4, 1, 1], gap="large")
    with state_column:
        st.markdown("##### State")
        _render_state(now, choices, offers)
    with action_column:
        st.markdown("##### Action")
        _render_action(now, choices, offers)
    with reward_column:
        st.markdown("##### Reward")
        _render_reward(now, choices, offers)
    if problem:
        layout.error(f"{problem[1].rstrip('.')}. The framing stays as it was.")


def _apply(log: Log, choices: FramingChoices, widget: str, change: Change) -> None:
    """Callback: keep the changed choices if the log can be framed by them, else say why not."""
    st.session_state.pop(PROBLEM, None)
    try:
        changed = change(choices)
        work.framed(log, changed.link, ())
    except OffRLError as error:
        st.session_state[PROBLEM] = (widget, str(error))
        return
    framing_history.choose(changed)


def _calls(now: work.Current, widget: str, change: Change) -> dict[str, object]:
    return {"key": widget, "on_change": _apply, "args": (now.log, now.framing, widget, change)}


def _set(widget: str, value: object) -> None:
    """Show what is chosen, except where the visitor's SQL was refused and waits to be mended."""
    if widget not in SQL_WIDGETS or st.session_state.get(PROBLEM, ("",))[0] != widget:
        state.set_widget(widget, value)


def _render_preset(now: work.Current, choices: FramingChoices, offers: Offers) -> None:
    name = preset_name(choices) or ""
    names = [n for n, preset in PRESETS.items() if offers.states_known or WorldState() not in preset.state]
    _set("w:fr_preset", name)
    st.selectbox(
        "Start from",
        names if name else ["", *names],
        format_func=lambda n: PRESET_TITLES.get(n, "your own choice, below"),
        width=420,
        help="The state as the log words it: what a world wrote of its own state; in a log of your own, the fields that were "
        "read as its state (`state_text`), by a known format or as you said on the page Mapping.",
        **_calls(now, "w:fr_preset", lambda c: PRESETS.get(st.session_state["w:fr_preset"], c)),
    )


# -- state -------------------------------------------------------------------------------------------------------


def _render_state(now: work.Current, choices: FramingChoices, offers: Offers) -> None:
    chosen = {part.kind: part for part in choices.state if part.kind in PARTS}
    fields = {f"field:{field.pointer}": field for field in offers.state_fields}
    chosen_fields = [f"field:{part.pointer}" for part in choices.state if isinstance(part, StateField)]
    can_be = {
        "world_state": offers.states_known,
        "task": offers.n_tasks > 0,
        "failed": offers.n_errors > 0,
    }
    possible = [kind for kind in PARTS if can_be.get(kind, True) or kind in chosen]

    def title(option: str) -> str:
        field = fields.get(option)
        if option in PART_TITLES:
            return PART_TITLES[option]
        name = pointer_name(option.removeprefix("field:"))[:60]  # the options of this widget aren't Markdown
        return f"{name} ({counted(field.n_values, 'value')})" if field else name

    change = lambda c: replace(c, state=_state_of_widgets(c))  # noqa: E731
    _set("w:fr_parts", [*(kind for kind in PARTS if kind in chosen), *chosen_fields])
    st.multiselect(
        "It consists of",
        list(dict.fromkeys([*possible, *fields, *chosen_fields])),
        format_func=title,
        help="Everything the agent may look at when it chooses. More parts tell more situations apart, and leave fewer rows for "
        f"each. Fields are those met in the logged state of {offers.n_sampled:,} steps. The task may be a label the agent "
        "never saw; then no agent can act on it.",
        **_calls(now, "w:fr_parts", change),
    )
    if "tools" in chosen:
        _set("w:fr_k", chosen["tools"].k)
        st.slider("How many tools back", 1, MAX_TOOLS_BACK, **_calls(now, "w:fr_k", change))
    own = next((part.expression for part in choices.state if isinstance(part, OwnState)), "")
    _set("w:fr_state_sql", own)
    st.text_input(
        "Your own SQL, as one more part (optional)",
        placeholder="lag(tool, 2) OVER episode",
        help=SQL_HELP,
        **_calls(now, "w:fr_state_sql", change),
    )
    for warning in choices.warnings:
        layout.warning(warning, icon=":material/history_toggle_off:")


def _state_of_widgets(choices: FramingChoices) -> tuple[Choice, ...]:
    k = st.session_state.get("w:fr_k", 1)
    parts: list[Choice] = []
    for option in st.session_state["w:fr_parts"]:
        if option.startswith("field:"):
            parts.append(StateField(option.removeprefix("field:")))
        else:
            parts.append(LastTools(k) if option == "tools" else PARTS[option]())
    text = st.session_state.get("w:fr_state_sql", "").strip()
    return (*parts, OwnState(text)) if text else tuple(parts)


# -- action ------------------------------------------------------------------------------------------------------


def _render_action(now: work.Current, choices: FramingChoices, offers: Offers) -> None:
    action = choices.action
    kinds = [kind for kind in ACTION_TITLES if kind == "tool" or offers.arguments or kind == action.kind]

    def change(c: FramingChoices) -> FramingChoices:
        kind = st.session_state["w:fr_action"]
        pointer = st.session_state.get("w:fr_argument") or (offers.arguments[0].pointer if offers.arguments else "")
        groups = st.session_state.get("w:fr_groups") or GROUPS
        if kind == "argument":
            return replace(c, action=argument_buckets(now.log, pointer, groups))
        return replace(c, action=ToolShape() if kind == "shape" else Tool())

    _set("w:fr_action", action.kind)
    st.selectbox("It is", kinds, format_func=ACTION_TITLES.get, **_calls(now, "w:fr_action", change))
    if isinstance(action, ToolArgument):
        pointers = [field.pointer for field in offers.arguments]
        _set("w:fr_argument", action.pointer)
        st.selectbox(
            "Argument",
            list(dict.fromkeys([*pointers, action.pointer])),
            format_func=lambda pointer: pointer_name(pointer)[:60],
            **_calls(now, "w:fr_argument", change),
        )
        if action.by != "values":
            _set("w:fr_groups", len(action.buckets) + 1 if action.by == "numbers" else int(action.buckets[0]))
            st.slider("Buckets at most", 2, 20, **_calls(now, "w:fr_groups", change))
        st.caption(layout.plain(action.phrase, 400))
    if offers.n_messages > 1 or choices.one_message:
        _set("w:fr_one", choices.one_message)
        st.checkbox(
            "Plain messages and final answers are one action",
            help=f"The log has {offers.n_messages} names for actions without a tool that say something.",
            **_calls(now, "w:fr_one", lambda c: replace(c, one_message=st.session_state["w:fr_one"])),
        )
    if now.dataset is not None and not now.dataset.validity_known:
        st.caption(
            "Which actions were possible isn't known "
            + ("" if action.kind == "tool" else "for such actions ")
            + "here, so every action counts as valid in every state."
        )


# -- reward ------------------------------------------------------------------------------------------------------


def _render_reward(now: work.Current, choices: FramingChoices, offers: Offers) -> None:
    reward = choices.reward
    kinds = [kind for kind in REWARD_TITLES if kind != "components" or offers.components or kind == reward.kind]

    def change(c: FramingChoices) -> FramingChoices:
        made: dict[str, Callable[[], Choice]] = {
            "outcome": Outcome,
            "logged": LoggedReward,
            "components": lambda: Components(tuple((field.pointer, 1.0) for field in offers.components[:8])),
            "sql": lambda: OwnReward(c.reward.sql.removesuffix("::DOUBLE")),
        }
        return replace(c, reward=made[st.session_state["w:fr_reward"]]())

    _set("w:fr_reward", reward.kind)
    st.selectbox("It is", kinds, format_func=REWARD_TITLES.get, **_calls(now, "w:fr_reward", change))
    if isinstance(reward, OwnReward):
        _set("w:fr_reward_sql", reward.expression)
        st.text_area(
            "SQL of the reward (NULL is unknown, never 0)",
            help=SQL_HELP + " sum(reward) OVER (PARTITION BY episode_id) is all that an episode earned.",
            **_calls(
                now, "w:fr_reward_sql", lambda c: replace(c, reward=OwnReward(st.session_state["w:fr_reward_sql"]))
            ),
        )
    if isinstance(reward, Components):
        _render_weights(now, reward, offers)
    _render_costs(now, choices, offers)
    _set("w:fr_discount", float(choices.discount))
    st.number_input(
        "Discount γ",
        0.0,
        1.0,
        step=0.01,
        format="%g",
        help="What a reward one step later is worth today. 1: as much as now; 0: nothing.\n\nG = Σ γᵗ rₜ",
        **_calls(now, "w:fr_discount", lambda c: replace(c, discount=_number("w:fr_discount", c.discount))),
    )


def _render_weights(now: work.Current, reward: Components, offers: Offers) -> None:
    weights = dict(reward.weights)
    pointers = list(dict.fromkeys([*weights, *(field.pointer for field in offers.components)]))[:20]

    def change(c: FramingChoices) -> FramingChoices:
        found = [(pointer, _number(f"w:fr_weight{i}", 0.0)) for i, pointer in enumerate(pointers)]
        return replace(c, reward=Components(tuple((pointer, weight) for pointer, weight in found if weight)))

    for i, pointer in enumerate(pointers):
        _set(f"w:fr_weight{i}", weights.get(pointer, 0.0))
        st.number_input(
            f"Weight of {layout.plain(pointer_name(pointer), 60)}",
            step=0.5,
            format="%g",
            help="0 leaves it out. The weighted sum is paid at the end; an episode without one of them has no known reward.",
            **_calls(now, f"w:fr_weight{i}", change),
        )


def _render_costs(now: work.Current, choices: FramingChoices, offers: Offers) -> None:
    """A weight for each kind of cost that the log knows."""
    weights = dict(choices.costs)
    n_known = {"latency_ms": offers.n_latencies, "cost_usd": offers.n_costs, "error": offers.n_errors}
    columns = [column for column in COSTS if n_known[column] or column in weights]
    if not columns:
        return

    def change(c: FramingChoices) -> FramingChoices:
        found = [(column, _number(f"w:fr_cost_{column}", 0.0)) for column in columns]
        return replace(c, costs=tuple((column, weight) for column, weight in found if weight))

    st.caption("Less, at each step:")
    for column in columns:
        known = (
            f"The log has {n_known[column]:,} of them."
            if column == "error"
            else f"Known at {n_known[column]:,} of {now.log.n_steps:,} steps; at the others the reward becomes unknown."
        )
        _set(f"w:fr_cost_{column}", weights.get(column, 0.0))
        st.number_input(
            f"per {COSTS[column][1]}",
            step=0.01,
            format="%g",
            help=f"{known} Solved still means a return above 0, after these costs.",
            **_calls(now, f"w:fr_cost_{column}", change),
        )


def _number(widget: str, otherwise: float) -> float:
    """The number of a widget; a cleared one keeps what was."""
    value = st.session_state.get(widget)
    return otherwise if value is None else float(value)
