"""Choices of a framing: links round-trip, and the SQL gives each step what plain Python gives it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core import framing as framing_module
from offrl_core.dataset import Dataset
from offrl_core.errors import InvalidConfig, InvalidPredicate, OffRLError
from offrl_core.framing import FRAMINGS, default_framing_name, framed_log
from offrl_core.framing_choices import COSTS, PRESET_TITLES, PRESETS, FramingChoices, preset_name
from offrl_core.framing_offers import argument_buckets, framing_offers
from offrl_core.framing_parts import (
    ACTIONS,
    REWARDS,
    STATE_PARTS,
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
from offrl_core.predicates import hindsight_columns, looks_ahead, parse_expression
from offrl_core.schema import COLUMN_NAMES, canonical_json
from tests.traces import AIRLINE, shared_trace

from .helpers import Row, few_examples, make_log

# -- links -------------------------------------------------------------------------------------------------------

any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12) | st.sampled_from(
    ["a:b", "a,b", "a+b", "it's", "%2C", "a=b", "умножить", "🧮", "'); DROP TABLE steps; --"]
)
pointers = any_text.map(lambda text: "/" + text)
expressions = st.sampled_from(
    [
        "tool",
        "lag(action, 2, 'x+y,z:') OVER episode",
        "row_number() OVER episode % 3",
        "CASE WHEN lead(t) OVER episode IS NULL THEN sum(reward) OVER (PARTITION BY episode_id) ELSE 0 END",
        "coalesce(task, 'задача') || ' · ' || (state ->> 'memory')",
    ]
)
weights = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.lists(st.integers(-9, 9), min_size=1, max_size=4, unique=True).map(
    lambda cuts: tuple(map(str, sorted(cuts)))
)

ANY_PART = {
    WorldState: st.just(WorldState()),
    Task: st.just(Task()),
    StateField: st.builds(StateField, pointers),
    OwnState: st.builds(OwnState, expressions),
    ToolsUsed: st.just(ToolsUsed()),
    LastTools: st.builds(LastTools, st.integers(1, 5)),
    LastFailed: st.just(LastFailed()),
    StepNumber: st.just(StepNumber()),
}
ANY_ACTION = {
    Tool: st.just(Tool()),
    ToolShape: st.just(ToolShape()),
    ToolArgument: st.one_of(
        st.builds(
            ToolArgument,
            pointers,
            st.just("values"),
            st.lists(any_text, min_size=1, max_size=4, unique=True).map(tuple),
        ),
        st.builds(ToolArgument, pointers, st.just("numbers"), numbers),
        st.builds(ToolArgument, pointers, st.just("hash"), st.integers(2, 50).map(lambda n: (str(n),))),
    ),
}
ANY_REWARD = {
    Outcome: st.just(Outcome()),
    LoggedReward: st.just(LoggedReward()),
    Components: st.dictionaries(pointers, weights, min_size=1, max_size=3).map(lambda d: Components(tuple(d.items()))),
    OwnReward: st.builds(OwnReward, expressions),
}
any_choices = st.builds(
    FramingChoices,
    state=st.lists(
        st.sampled_from(list(ANY_PART)).flatmap(ANY_PART.__getitem__),
        min_size=1,
        max_size=6,
        unique_by=lambda part: part.token if isinstance(part, StateField) else part.kind,
    ).map(tuple),
    action=st.one_of(*ANY_ACTION.values()),
    one_message=st.booleans(),
    reward=st.one_of(*ANY_REWARD.values()),
    costs=st.dictionaries(st.sampled_from(list(COSTS)), weights, max_size=3).map(lambda d: tuple(d.items())),
    discount=st.floats(0, 1),
)


def test_every_choice_is_drawn_below() -> None:
    for known, drawn in ((STATE_PARTS, ANY_PART), (ACTIONS, ANY_ACTION), (REWARDS, ANY_REWARD)):
        assert set(known.values()) == set(drawn)
        assert all(kind == choice.kind for kind, choice in known.items())


@given(any_choices)
def test_a_link_is_read_back_as_the_same_choices(choices: FramingChoices) -> None:
    again = FramingChoices.from_link(choices.link)
    assert again == choices
    assert again.link == choices.link
    assert again.framing() == choices.framing()
    assert choices.link.count(",") == 3


@given(any_choices)
def test_every_choice_has_a_sentence_and_runs(choices: FramingChoices) -> None:
    assert choices.sentence.startswith("state = ")
    assert "γ" in choices.sentence
    with contextlib.suppress(InvalidConfig):  # a reward that is text, say; anything but our own sentence fails
        framed_log(TINY, choices.framing())


def test_presets_are_choices_and_old_links_name_them() -> None:
    assert set(PRESETS) == set(FRAMINGS) == set(PRESET_TITLES)
    for name, choices in PRESETS.items():
        assert FramingChoices.from_link(name) == FramingChoices.from_link(choices.link) == choices
        assert preset_name(choices) == name
        assert FRAMINGS[name] == choices.framing()
        assert FRAMINGS[name].title == PRESET_TITLES[name]


def test_the_first_presets_kept_their_sql_and_with_it_the_ids_of_old_runs() -> None:
    at_end = "CASE WHEN lead(t) OVER episode IS NULL THEN sum(reward) OVER (PARTITION BY episode_id) ELSE 0 END"
    failed = "CASE WHEN lag(error) OVER episode IS NOT NULL THEN ' (failed)' ELSE '' END"
    told = {name: (f.state, f.action, f.reward, f.discount) for name, f in FRAMINGS.items()}
    assert told["world_state"] == ("state_text", "action", "reward", 0.99)
    assert told["state_outcome"] == ("state_text", "action", at_end, 0.99)
    assert told["last_tool"] == (f"coalesce(lag(action) OVER episode, 'start') || {failed}", "action", at_end, 0.99)
    assert told["step"] == ("'step ' || (row_number() OVER episode)", "action", at_end, 0.99)


@pytest.mark.parametrize(
    ("rewards", "name"),
    [
        ([[None, None, 1.0], [None, 0.0]], "state_outcome"),
        ([[None, None, 1.0], [None, None]], "state_outcome"),  # one outcome is missing
        ([[0.0, 0.0, 1.0], [0.0, 0.0]], "world_state"),
        ([[None, 0.5, 1.0], [None, 0.0]], "world_state"),  # 0 where it is silent? nobody says so
        ([[None, None], [None, None]], "world_state"),
        ([[None], [1.0]], "world_state"),  # one step each: nothing before the end
    ],
)
def test_rewards_at_the_end_only_are_the_outcome(rewards: list[list[float | None]], name: str) -> None:
    found = [
        {"episode_id": f"e{e}", "t": t, "action": "go", "state_text": f"s{t}", "reward": reward}
        for e, of_episode in enumerate(rewards)
        for t, reward in enumerate(of_episode)
    ]
    random.Random(1).shuffle(found)
    assert default_framing_name(make_log(found)) == name
    assert default_framing_name(make_log([row | {"state_text": None} for row in found])) == "last_tool"


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("nonsense", "can't be read; it is the name of a preset"),
        ("", "can't be read"),
        ("tools:2,tool,outcome", "can't be read"),
        ("tools:2,tool,outcome,0.99,1", "can't be read"),
        ("tools:2,tool,outcome,much", "can't be read"),
        ("tools:2,tool,outcome,1.5", "between 0 and 1"),
        ("tools:2,tool,outcome,nan", "between 0 and 1"),
        ("tools:9,tool,outcome,1", "1 to 5 tools, not 9"),
        ("tools,tool,outcome,1", "expected tools:K"),
        ("tools:two,tool,outcome,1", "expected tools:K"),
        ("task:x,tool,outcome,1", "expected task"),
        ("wings,tool,outcome,1", "known are world_state, task, field"),
        ("tools:1+tools:2,tool,outcome,1", "each kind once"),
        (",tool,outcome,1", "asks for ''"),
        ("task,hammer,outcome,1", "known are tool, shape, argument"),
        ("task,tool+twomessages,outcome,1", "can't be read"),
        ("task,argument:%2Fa:values,outcome,1", "1 to 50 different buckets"),
        ("task,argument:%2Fa:numbers:2:1,outcome,1", "don't rise"),
        ("task,argument:%2Fa:numbers:inf,outcome,1", "finite"),
        ("task,argument:%2Fa:hash:1,outcome,1", "2 to 50 groups"),
        ("task,argument:%2Fa:magic:1,outcome,1", "not by 'magic'"),
        ("task,tool,gold,1", "known are outcome, logged"),
        ("task,tool,components,1", "at least one"),
        ("task,tool,components:%2Fa=nan,1", "finite"),
        ("task,tool,components:a=1,1", "no path of a field"),
        ("task,tool,outcome+costs:love=1,1", "can't cost love"),
        ("task,tool,outcome+costs:error=inf,1", "finite"),
        ("task,tool,outcome+fees:error=1,1", "can't be read"),
        ("field:memory,tool,outcome,1", "no path of a field"),
        ("sql:(SELECT 1),tool,outcome,1", "a subquery"),
        ("task,tool,sql:reward; DROP TABLE steps,1", "doesn't parse"),
    ],
)
def test_a_link_that_stands_for_no_framing_is_refused_with_a_sentence(link: str, complaint: str) -> None:
    with pytest.raises(OffRLError, match=re.escape(complaint)):
        FramingChoices.from_link(link)


@given(st.text(max_size=40) | any_choices.map(lambda c: c.link[:-7] + "x"))
def test_no_link_raises_anything_but_our_own_errors(link: str) -> None:
    with contextlib.suppress(OffRLError):
        FramingChoices.from_link(link)


# -- the SQL against plain Python --------------------------------------------------------------------------------


@st.composite
def rows_with_everything(draw: st.DrawFn) -> list[Row]:
    """Steps of a few episodes in shuffled order; anything but ids and actions may be missing."""
    tools = st.sampled_from(["add", "умножить", "it's", "search"])
    rows: list[Row] = []
    for e in range(draw(st.integers(1, 4))):
        t = draw(st.integers(0, 3))
        for _ in range(draw(st.integers(1, 6))):
            kind = draw(st.sampled_from(["tool_call", "message", "final", "env_action", None]))
            tool = draw(tools) if kind == "tool_call" else None
            arguments = draw(
                st.none()
                | st.dictionaries(
                    st.sampled_from(["n", "q/ü"]), st.sampled_from([1, 2.5, 7, "x", "да", None, [1, 2]]), max_size=2
                )
            )
            rows.append(
                {
                    "episode_id": f"e{e}",
                    "t": t,
                    "task": draw(st.sampled_from(["a", "б", None])),
                    "state": draw(
                        st.none()
                        | st.sampled_from(
                            [{"memory": {"n": 1}}, {"memory": {"n": "x"}, "k~/k": True}, {"memory": None}, {}]
                        )
                    ),
                    "action": tool or kind or "move",
                    "action_type": kind,
                    "tool": tool,
                    "arguments": arguments if tool else None,
                    "error": draw(st.sampled_from([None, None, "", "boom"])),
                    "reward": draw(st.sampled_from([None, 0.0, 1.0, -0.5])),
                    "reward_components": draw(
                        st.none() | st.sampled_from([{"a": 1}, {"a": True, "b": 0.5}, {"b": "no"}])
                    ),
                    "latency_ms": draw(st.sampled_from([None, 100.0, 1500.0])),
                    "cost_usd": draw(st.sampled_from([None, 0.25])),
                }
            )
            t += draw(st.integers(1, 2))
    return list(draw(st.permutations(rows)))


def log_of(rows: list[Row]) -> orl.log.Log:  # type: ignore[name-defined]
    json_columns = ("state", "arguments", "reward_components")
    return make_log(
        [
            {name: canonical_json(v) if name in json_columns and v is not None else v for name, v in row.items()}
            for row in rows
        ]
    )


TINY = log_of(
    [
        {"episode_id": "a", "t": 0, "action": "add", "tool": "add", "action_type": "tool_call", "state_text": "s"},
        {"episode_id": "a", "t": 1, "action": "message", "action_type": "message", "reward": 1.0, "state_text": "s"},
    ]
)


def framed_values(rows: list[Row], choices: FramingChoices) -> list[tuple[str, str, float | None]]:
    """State key, action name and reward of each row, as the core frames them."""
    framed = framed_log(log_of(rows), choices.framing())
    return [
        (framed.states[s], framed.actions[a], None if r != r else round(float(r), 9))
        for s, a, r in zip(framed.rows.observations, framed.rows.actions, framed.rows.rewards, strict=True)
    ]


def with_history(rows: list[Row]) -> list[tuple[Row, list[Row], list[Row]]]:
    """Each row with the earlier rows of its episode and with all of them, in order of t."""
    told = []
    for row in rows:
        mine = sorted((r for r in rows if r["episode_id"] == row["episode_id"]), key=lambda r: r["t"])
        told.append((row, [r for r in mine if r["t"] < row["t"]], mine))
    return told


def at_pointer(value: Any, *path: str) -> str:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return "(none)"
    return value if isinstance(value, str) else canonical_json(value)


STATES = {
    (Task(),): lambda row, before: row["task"] or "(no task)",
    (LastTools(1),): lambda row, before: before[-1]["action"] if before else "start",
    (LastTools(3),): lambda row, before: " > ".join(r["action"] for r in before[-3:]) or "start",
    (LastFailed(),): lambda row, before: "failed" if before and before[-1]["error"] is not None else "no error",
    (LastTools(1), LastFailed()): lambda row, before: (
        (before[-1]["action"] if before else "start")
        + (" (failed)" if before and before[-1]["error"] is not None else "")
    ),
    (ToolsUsed(),): lambda row, before: ", ".join(sorted({r["action"] for r in before})) or "nothing used",
    (StepNumber(),): lambda row, before: f"step {len(before) + 1}",
    (StateField("/memory/n"),): lambda row, before: at_pointer(row["state"], "memory", "n"),
    (StateField("/k~0~1k"),): lambda row, before: at_pointer(row["state"], "k~/k"),
    (OwnState("lag(tool, 2) OVER episode"),): lambda row, before: (
        (before[-2]["tool"] if len(before) > 1 else None) or "(none)"
    ),
    (StepNumber(), Task(), LastFailed()): lambda row, before: " · ".join(
        [
            row["task"] or "(no task)",
            "failed" if before and before[-1]["error"] is not None else "no error",
            f"step {len(before) + 1}",
        ]
    ),
}


@pytest.mark.parametrize("parts", STATES, ids=lambda parts: "+".join(part.token for part in parts))
@few_examples
@given(rows=rows_with_everything())
def test_states_by_hand(parts: tuple[Choice, ...], rows: list[Row]) -> None:
    found = [state for state, _, _ in framed_values(rows, FramingChoices(state=parts))]
    assert found == [STATES[parts](row, before) for row, before, _ in with_history(rows)]


def bucket_by_hand(row: Row, label: Any) -> str:
    value = at_pointer(row["arguments"] or {}, "n")
    return row["action"] if row["tool"] is None or value == "(none)" else f"{row['action']}(n{label(value)})"


def below(value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        return ": no number"
    return " ≤ 1" if number <= 1 else " ≤ 2.5" if number <= 2.5 else " > 2.5"


def group(value: str) -> str:
    """The lower 64 bits of the MD5, as DuckDB reads them."""
    return f" group {int.from_bytes(hashlib.md5(value.encode()).digest()[8:], 'big') % 5 + 1} of 5"


ACTIONS_BY_HAND = {
    Tool(): lambda row: row["action"],
    ToolShape(): lambda row: (
        row["action"]
        if row["tool"] is None
        else row["action"] + ("(?)" if row["arguments"] is None else f"({', '.join(sorted(row['arguments']))})")
    ),
    ToolArgument("/n", "values", ("x", "7")): lambda row: bucket_by_hand(
        row, lambda v: f"={v}" if v in ("x", "7") else ": another"
    ),
    ToolArgument("/n", "numbers", ("1", "2.5")): lambda row: bucket_by_hand(row, below),
    ToolArgument("/n", "hash", ("5",)): lambda row: bucket_by_hand(row, group),
}


@pytest.mark.parametrize("one_message", [False, True])
@pytest.mark.parametrize("action", ACTIONS_BY_HAND, ids=lambda action: action.token)
@few_examples
@given(rows=rows_with_everything())
def test_actions_by_hand(action: Choice, one_message: bool, rows: list[Row]) -> None:
    choices = FramingChoices(state=(Task(),), action=action, one_message=one_message)
    expected = [
        "message" if one_message and row["action_type"] in ("message", "final") else ACTIONS_BY_HAND[action](row)
        for row in rows
    ]
    assert [name for _, name, _ in framed_values(rows, choices)] == expected


def total(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def component(row: Row, name: str) -> float | None:
    value = (row["reward_components"] or {}).get(name)
    return {"no": 0.0}.get(value) if isinstance(value, str) else None if value is None else float(value)


def weighted(all_rows: list[Row]) -> float | None:
    parts = [total([component(row, name) for row in all_rows]) for name in "ab"]
    return None if None in parts else 2 * parts[0] - 0.5 * parts[1]  # type: ignore[operator]


REWARDS_BY_HAND = {
    Outcome(): lambda row, last, mine: total([r["reward"] for r in mine]) if last else 0.0,
    LoggedReward(): lambda row, last, mine: row["reward"],
    Components((("/a", 2.0), ("/b", -0.5))): lambda row, last, mine: weighted(mine) if last else 0.0,
    OwnReward("reward * 2"): lambda row, last, mine: None if row["reward"] is None else 2 * row["reward"],
}


@pytest.mark.parametrize("costs", [(), (("latency_ms", 0.1), ("error", 3.0)), (("cost_usd", 2.0),)])
@pytest.mark.parametrize("reward", REWARDS_BY_HAND, ids=lambda reward: reward.kind)
@few_examples
@given(rows=rows_with_everything())
def test_rewards_by_hand_and_unknown_stays_unknown(
    reward: Choice, costs: tuple[tuple[str, float], ...], rows: list[Row]
) -> None:
    choices = FramingChoices(state=(Task(),), reward=reward, costs=costs)
    expected = []
    for row, _, mine in with_history(rows):
        value = REWARDS_BY_HAND[reward](row, row is mine[-1], mine)
        for column, weight in costs:
            amount = {
                "latency_ms": None if row["latency_ms"] is None else row["latency_ms"] / 1000,
                "cost_usd": row["cost_usd"],
                "error": float(row["error"] is not None),
            }[column]
            value = None if value is None or amount is None else value - weight * amount
        expected.append(None if value is None else round(value, 9))
    assert [value for _, _, value in framed_values(rows, choices)] == expected


def test_the_tools_used_in_a_long_episode_take_no_time_squared() -> None:
    rows = [{"episode_id": "a", "t": t, "action": f"tool {t % 3}"} for t in range(20_000)]
    framed = framed_log(make_log(rows), PRESETS["tools_used"].framing())
    assert framed.states == ("nothing used", "tool 0", "tool 0, tool 1", "tool 0, tool 1, tool 2")


def test_a_state_text_that_is_no_json_has_no_fields() -> None:
    rows = [
        {"episode_id": "a", "t": t, "action": "x", "state": text} for t, text in enumerate(["{", '{"m": NaN}', "3"])
    ]
    framed = framed_log(make_log(rows), FramingChoices(state=(StateField("/m"),)).framing())
    assert [framed.states[s] for s in framed.rows.observations] == ["(none)", "NaN", "(none)"]


def test_one_name_for_messages_keeps_what_was_offered() -> None:
    rows = [
        {"episode_id": "a", "t": 0, "action": "add", "tool": "add", "action_type": "tool_call"},
        {"episode_id": "a", "t": 1, "action": "final", "action_type": "final"},
    ]
    log = make_log([row | {"available_tools": ["add", "mul"]} for row in rows])
    choices = FramingChoices(state=(StepNumber(),), one_message=True)
    dataset = orl.frame(log, choices.framing())
    assert dataset.actions == ("add", "message", "mul")
    assert dataset.valid_mask.tolist() == [[True, False, True], [True, True, True]]


def test_too_many_pairs_are_refused_before_any_table_of_them_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing_module, "MAX_PAIRS", 6)
    rows = [{"episode_id": "a", "t": t, "action": f"tool {t % 2}"} for t in range(4)]
    assert framed_log(make_log(rows), PRESETS["last_tool"].framing()).actions == ("tool 0", "tool 1")
    with pytest.raises(InvalidConfig, match="makes 4 states and 2 actions of 4 steps; at most 6 pairs"):
        framed_log(make_log(rows), PRESETS["step"].framing())


def test_with_part_makes_room_for_one_of_the_same_kind() -> None:
    choices = PRESETS["last_tool"].with_part(LastTools(2)).with_part(StateField("/a")).with_part(StateField("/b"))
    assert [part.token for part in choices.state] == ["field:%2Fa", "field:%2Fb", "tools:2", "failed"]


# -- own SQL -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("LAG(tool) over EPISODE", "lag(tool) OVER episode"),
        ("lag(tool) OVER (PARTITION BY episode_id ORDER BY t)", "lag(tool) OVER episode"),
        ("sum(reward) OVER (PARTITION BY steps.episode_id)", None),
        ("count(*) OVER episode -- so far", "count() OVER episode"),
        ("row_number() OVER episode", "row_number() OVER episode"),
        ("t // 5", "(t // 5)"),
    ],
)
def test_an_expression_may_look_around_in_its_episode(text: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(InvalidPredicate, match="another window"):
            parse_expression(text, COLUMN_NAMES)
        return
    assert parse_expression(text, COLUMN_NAMES) == canonical
    assert parse_expression(canonical, COLUMN_NAMES) == canonical


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "The expression is empty"),
        ("(SELECT max(t) FROM steps)", "a subquery"),
        ("string_agg(tool) OVER episode", "string_agg OVER"),
        ("list(tool) OVER episode", "list OVER"),
        ("sum(DISTINCT t) OVER episode", "distinct in sum"),
        ("sum(t) FILTER (t > 1) OVER episode", "filter_expr in sum"),
        ("lag(tool IGNORE NULLS) OVER episode", "ignore_nulls"),
        ("sum(t) OVER (episode ROWS 3 PRECEDING)", "in sum"),
        ("lag(tool) OVER (ORDER BY t)", "another window"),
        ("lag(tool) OVER (PARTITION BY task ORDER BY t)", "another window"),
        ("lag(tool) OVER (PARTITION BY episode_id ORDER BY t DESC)", "another window"),
        ("lag(tool) OVER elsewhere", "elsewhere"),
        ("max(t)", "An expression can't contain max"),
        ("repeat('x', 1000000000)", "repeat"),
        ("lag(repeat(tool, 9)) OVER episode", "repeat"),
        ("t GROUP BY t", "more than"),
        ("t; SELECT 1", "more than"),
        ("t WINDOW w AS ()", "doesn't parse"),
        ("lag(wing) OVER episode", "no column 'wing'"),
        ("' OVER (PARTITION BY episode_id ORDER BY t)'", "without changing it"),
    ],
)
def test_an_expression_that_could_do_more_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidPredicate, match=re.escape(complaint)):
        OwnState(text)


@pytest.mark.parametrize(
    ("text", "columns", "ahead"),
    [
        ("lag(reward) OVER episode", set(), False),
        ("lag(reward, 3) OVER episode", set(), False),
        ("lag(reward, 0) OVER episode", {"reward"}, True),
        ("lag(reward, -1) OVER episode", {"reward"}, True),
        ("lag(reward, t) OVER episode", {"reward", "t"}, True),
        ("lead(reward) OVER episode", {"reward"}, True),
        ("sum(reward) OVER (PARTITION BY episode_id)", {"reward"}, True),
        ("sum(reward) OVER episode", {"reward"}, False),
        ("coalesce(tool, task)", {"tool", "task"}, False),
        ("row_number() OVER episode", set(), False),
    ],
)
def test_hindsight_is_found(text: str, columns: set[str], ahead: bool) -> None:
    canonical = parse_expression(text, COLUMN_NAMES)
    assert hindsight_columns(canonical) == columns
    assert looks_ahead(canonical) == ahead
    assert bool(FramingChoices(state=(OwnState(text),)).warnings) == (ahead or bool(columns & {"reward", "tool"}))


# -- what a log offers -------------------------------------------------------------------------------------------


def test_fields_arguments_and_components_are_found() -> None:
    rows = [
        {
            "episode_id": "a",
            "t": t,
            "action": "x",
            "tool": "x",
            "task": f"task {t % 2}",
            "state": canonical_json(
                {"memory": {"n": t % 3}, "goal": "same", "ключ/~": t, "conversation_history": {"record": t}}
            ),
            "arguments": canonical_json({"q": "a", "deep": {"er": 1}}),
            "reward_components": canonical_json({"checks": {"db": 1.0}}) if t == 5 else None,
            "error": "no" if t == 1 else None,
        }
        for t in range(6)
    ]
    offers = framing_offers(make_log(rows))
    assert [(f.pointer, f.n_rows, f.n_values) for f in offers.state_fields] == [
        ("/memory/n", 6, 3),
        ("/ключ~1~0", 6, 6),
    ]
    assert [f.pointer for f in offers.arguments] == ["/q"]
    assert [f.pointer for f in offers.components] == ["/checks/db"]
    assert (offers.n_sampled, offers.n_tasks, offers.n_errors, offers.n_latencies, offers.n_costs) == (6, 2, 1, 0, 0)
    assert not offers.states_known
    assert pointer_name("/ключ~1~0") == "ключ/~"


def test_a_log_without_anything_offers_nothing() -> None:
    offers = framing_offers(make_log([{"episode_id": "a", "t": 0, "action": "x", "state": "no json"}]))
    assert offers == ((), (), (), 0, 0, 0, 0, 0, 0, False)


def calls(values: list[Any]) -> orl.log.Log:  # type: ignore[name-defined]
    return log_of(
        [{"episode_id": "a", "t": t, "action": "f", "tool": "f", "arguments": {"v": v}} for t, v in enumerate(values)]
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["b", "a", "b", None], ToolArgument("/v", "values", ("b", "a"))),
        (list(range(100)), ToolArgument("/v", "numbers", ("24", "49", "74"))),
        ([0.0] * 90 + list(range(1, 20)), ToolArgument("/v", "numbers", ("0",))),
        ([f"text {i}" for i in range(100)], ToolArgument("/v", "hash", ("4",))),
        (["x" * 41], ToolArgument("/v", "hash", ("4",))),
        ([*range(50), "x"], ToolArgument("/v", "hash", ("4",))),
    ],
    ids=["few", "numbers", "mostly equal numbers", "texts", "one long text", "numbers and a text"],
)
def test_buckets_fit_the_argument(values: list[Any], expected: ToolArgument) -> None:
    log = calls(values)
    assert argument_buckets(log, "/v", groups=4) == expected
    names = orl.frame(log, FramingChoices(state=(Task(),), action=expected).framing()).actions
    assert len(names) <= len(expected.buckets) + 2 if expected.by != "hash" else 4


def test_an_argument_that_no_call_has_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="No call of this log has the argument '/w'"):
        argument_buckets(calls([1]), "/w")


def test_the_airline_file_frames_in_every_way_it_offers() -> None:
    log = orl.read_traces(shared_trace(AIRLINE))
    offers = framing_offers(log)
    raw = json.loads(shared_trace(AIRLINE).read_text())
    assert offers.n_tasks == len({run["task_id"] for run in raw})
    assert {f.pointer for f in offers.components} == {"/r_actions", "/r_outputs"}
    for field in offers.arguments[:5]:
        dataset = orl.frame(log, FramingChoices(state=(Task(),), action=argument_buckets(log, field.pointer)).framing())
        assert _visits(dataset) == log.n_steps


def _visits(dataset: Dataset) -> int:
    return int(dataset.visitation_counts.sum())
