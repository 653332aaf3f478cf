"""Parallel calls of a reply as one joint action: what is merged, what is summed, and what stays as it was."""

import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from offrl_core.joint_actions import join_parallel_calls, n_parallel
from offrl_core.schema import COLUMN_NAMES, canonical_json, short_hash

from .helpers import Row, few_examples, make_log


def call(t: int, action: str, reply: str | None, **fields: Any) -> Row:
    return {
        "episode_id": "e",
        "t": t,
        "action": action,
        "tool": action,
        "action_type": "tool_call",
        "decision_id": reply,
        "terminal": False,
        "timeout": False,
    } | fields


PARALLEL = [
    call(0, "look", "r0", arguments='{"x":1}', arguments_status="object", arguments_hash="h", tool_result="seen"),
    call(
        1, "weather", "r1", call_index=0, arguments='{"city":"Oslo"}', tool_result="cold", cost_usd=1.0, latency_ms=5.0
    ),
    call(
        2, "fare", "r1", call_index=1, arguments=None, error="no such place", reward=0.5, cost_usd=2.0, latency_ms=9.0
    ),
    call(3, "answer", "r2", reward=1.0, terminal=True),
]


def joined(rows: list[Row]) -> list[Row]:
    return join_parallel_calls(make_log(rows)).frame("SELECT * FROM steps ORDER BY row").to_dict("records")


def test_calls_of_one_reply_become_one_action_and_the_others_stay() -> None:
    assert n_parallel(make_log(PARALLEL)) == 1
    first, both, last = joined(PARALLEL)
    assert (first["action"], first["t"], first["arguments"], first["tool_result"]) == ("look", 0, '{"x":1}', "seen")
    assert (both["action"], both["t"], both["action_type"]) == ("fare + weather", 1, "joint")
    assert json.loads(both["arguments"]) == [
        {"tool": "fare", "arguments": None},
        {"tool": "weather", "arguments": {"city": "Oslo"}},
    ]
    assert both["arguments_hash"] == short_hash(canonical_json(json.loads(both["arguments"])))
    assert both["error"] == "no such place"
    assert (both["reward"], both["cost_usd"], both["latency_ms"]) == (0.5, 3.0, 9.0)
    assert (last["action"], last["t"], last["reward"], last["terminal"]) == ("answer", 2, 1.0, True)


ODD_ARGUMENTS = [None, "{}", '"text"', '"[1]"', "[]", "3", "null", '[{"arguments":"x","tool":"y"}]']


def test_joining_once_more_changes_nothing_whatever_the_arguments() -> None:
    replies = [call(i, "go", f"r{i // 2}", call_index=i % 2, arguments=text) for i, text in enumerate(ODD_ARGUMENTS)]
    once = join_parallel_calls(make_log(replies))
    twice = join_parallel_calls(once)
    assert once.n_steps == len(ODD_ARGUMENTS) // 2
    assert twice.columns(*COLUMN_NAMES) == once.columns(*COLUMN_NAMES)


def test_a_gap_before_a_reply_stays_a_gap() -> None:
    rows = [call(0, "a", "r0"), call(1, "b", "r0"), call(5, "c", "r1")]
    assert [row["t"] for row in joined(rows)] == [0, 4]


def test_order_of_parallel_calls_makes_no_other_action() -> None:
    one = joined([call(0, "a", "r"), call(1, "b", "r")])
    other = joined([call(0, "b", "r"), call(1, "a", "r")])
    assert one[0]["action"] == other[0]["action"] == "a + b"


@few_examples
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.sampled_from([None, 0.5, 1.0])), min_size=1, max_size=8
    )
)
def test_rewards_and_replies_are_kept(steps: list[tuple[str, int, float | None]]) -> None:
    steps = sorted(steps, key=lambda step: step[1])
    rows = [call(t, action, f"r{reply}", reward=reward) for t, (action, reply, reward) in enumerate(steps)]
    log = join_parallel_calls(make_log(rows))
    assert log.n_steps == len({reply for _, reply, _ in steps})
    n_joined = sum(n > 1 for n in Counter(reply for _, reply, _ in steps).values())
    assert log.report.notes[-1].startswith(f"The parallel calls of {n_joined} repl")
    assert log.report.notes[-1].endswith(f"of {len(steps)} steps {log.n_steps} are left.")
    known = [reward for _, _, reward in steps if reward is not None]
    assert log.rows("SELECT sum(reward) FROM steps")[0][0] == (sum(known) if known else None)
    assert log.rows("SELECT t FROM steps ORDER BY t") == [(t,) for t in range(log.n_steps)]


def test_rows_without_a_reply_are_never_joined() -> None:
    assert len(joined([call(0, "a", None), call(1, "b", None)])) == 2
