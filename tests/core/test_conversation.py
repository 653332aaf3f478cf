"""The conversation behind a step is read from every form its record may have; anything else is no conversation."""

import json

import pytest

from offrl_core.conversation import messages_of

MESSAGES = [
    {"role": "user", "content": "Привет 🙂"},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add", "arguments": '{"x": 1}'}}]},
    {"role": "tool", "content": [{"type": "text", "text": "2"}]},
]


@pytest.mark.parametrize(
    "record", [MESSAGES, {"messages": MESSAGES}, {"traj": MESSAGES}, {"messages": json.dumps(MESSAGES)}]
)
def test_every_form_gives_the_same_messages(record):
    messages = messages_of(json.dumps(record), acting_index=1)
    assert [m.role for m in messages] == ["user", "assistant", "tool"]
    assert messages[0].text == "Привет 🙂"
    assert messages[1].text == '→ add({"x": 1})'
    assert messages[2].text == "2"
    assert [m.acting for m in messages] == [False, True, False]


@pytest.mark.parametrize(
    "raw", ["", "not json", "3", "{}", '{"messages": 3}', '{"messages": "["}', "[1, 2]", '{"traj": null}']
)
def test_anything_else_is_no_conversation_and_no_crash(raw):
    assert messages_of(raw) == []


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "image", "text": None}]},
        {"content": [None, 3, "x"]},
        {"content": 3},
        {"tool_calls": "x"},
        {"tool_calls": [None, {"function": None}, {"function": {"name": 1, "arguments": [1]}}]},
        {"role": None, "function_call": "f"},
    ],
)
def test_odd_messages_are_shown_somehow_and_never_crash(message):
    (shown,) = messages_of(json.dumps([message]))
    assert isinstance(shown.text, str)
