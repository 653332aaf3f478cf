"""Secrets and personal data become marks; all else stays, equal stays equal, and no text takes long."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offrl_core.exports import redacted_log
from offrl_core.redaction import KINDS, Redactor, redacted
from offrl_core.schema import COLUMN_NAMES, canonical_json, short_hash
from tests.core.helpers import few_examples, make_log

DIGITS = "0123456789abcdefABCDEF"

# Text -> the same with marks. All of them are made up.
FOUND = {
    "mail ann.b+c@example.org today": "mail [e-mail 1] today",
    "a@x.de,b@x.de;a@x.de": "[e-mail 1],[e-mail 2];[e-mail 1]",
    "key sk-proj-abc_DEF-0123456789 end": "key [API key 1] end",
    "sk-ant-api03-0123456789abcdef": "[API key 1]",
    f"gh token ghp_{DIGITS} x": "gh token [API key 1] x",
    "AKIAIOSFODNN7EXAMPLE": "[API key 1]",
    "sk_live_0123456789abcdef and pk-lf-0123456789abcdef": "[API key 1] and [API key 2]",
    f"hf_{DIGITS}": "[API key 1]",
    "Authorization: Bearer abcdef0123456789ABCDEF": "Authorization: Bearer [token 1]",
    "jwt eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl9 .": "jwt [token 1] .",
    "password=hunter22&user=x": "password=[secret 1]&user=x",
    'API_KEY: "a1b2c3d4"': 'API_KEY: "[secret 1]"',
    "export MY_SECRET_KEY='x9y8z7w6'": "export MY_SECRET_KEY='[secret 1]'",
    "ls /home/ann/work /Users/bob": "ls /home/[user 1]/work /Users/[user 2]",
    "C:\\Users\\Ann Lee\\x and c:/users/ann": "C:\\Users\\[user 1]\\x and c:/users/[user 2]",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+/=\nabc\n-----END RSA PRIVATE KEY-----\nrest": "[private key 1]\nrest",
    "/home/ann/ann@example.org": "/home/[user 1]/[e-mail 1]",
    "почта: ann@example.org 🙂": "почта: [e-mail 1] 🙂",
}


@pytest.mark.parametrize("text", FOUND)
def test_what_looks_like_a_secret_becomes_a_mark(text):
    redactor = Redactor()
    once = redactor.text(text)
    assert once == FOUND[text]
    assert redactor.counts.total() == once.count("[")
    assert Redactor().text(once) == once  # marks are no findings


KEPT = [
    "git@github.com:owner/repo.git",
    "npm install package@1.2.3 and @scope/name",
    "task-0123456789abcdef0123",  # sk- inside a word
    "sk-learn-compatible-estimator",
    "the password is wrong; token: yes; tokens=4096; max_token: 10000000",
    "password=$PASSWORD secret={{secret}}",
    "GET /users/123 HTTP/1.1",
    "a deep link/home/",
    "user@localhost",
    "",
]


@pytest.mark.parametrize("text", KEPT)
def test_what_only_resembles_one_stays(text):
    assert Redactor().text(text) == text


def steps_of(*rows: dict):
    return make_log([{"episode_id": f"e{i}", "t": 0, "action": "go"} | row for i, row in enumerate(rows)]).columns(
        *COLUMN_NAMES
    )


def test_equal_findings_get_equal_marks_across_columns_and_counts_are_of_all_rows():
    steps, counts = redacted(
        steps_of(
            {"arguments": canonical_json({"to": "ann@x.org"}), "tool_result": "sent to ann@x.org"},
            {"arguments": canonical_json({"to": "bob@x.org"}), "tool_result": "sent to ann@x.org"},
            {"arguments": canonical_json({"to": "ann@x.org"}), "tool_result": None},
        )
    )
    arguments = steps["arguments"].to_pylist()
    assert arguments[0] == arguments[2] != arguments[1]
    assert steps["tool_result"].to_pylist() == [f"sent to {json.loads(arguments[0])['to']}"] * 2 + [None]
    assert counts == Counter({"e-mail addresses": 5})
    assert steps["arguments_hash"].to_pylist() == [short_hash(text) for text in arguments]


def test_episodes_named_by_people_stay_apart():
    steps, _ = redacted(steps_of({"episode_id": "ann@x.org"}, {"episode_id": "bob@x.org"}))
    assert steps["episode_id"].to_pylist() == ["[e-mail 1]", "[e-mail 2]"]


ESCAPES = ["\n", "\t", "\\", '"', "\\n", "\b", "\x01", "/", "é", "n", "u0041", " "]


@given(
    before=st.lists(st.sampled_from(ESCAPES), max_size=4).map("".join),
    after=st.lists(st.sampled_from(ESCAPES), max_size=4).map("".join),
    secret=st.sampled_from(
        ["ann@example.org", "sk-0123456789abcdef", "/home/nancy", "C:\\Users\\ned", "token=ab12cd34"]
    ),
)
@few_examples
def test_json_stays_json_and_the_secret_is_gone(before, after, secret):
    text = canonical_json(
        {"a": before + secret + " " + after, "b": [1, {"nested": canonical_json({"c": before + secret + " "})}]}
    )
    steps, _ = redacted(steps_of({"arguments": text}))
    found = steps["arguments"].to_pylist()[0]
    value = json.loads(found)
    assert found == canonical_json(value)
    if "Users" not in secret:  # names of Windows users have spaces, so "ned é\\" may be one
        assert value["a"].endswith(after)
    if not before or not before[-1].isalnum():
        assert secret not in found


def test_a_password_under_its_name_is_found_in_json():
    steps, counts = redacted(steps_of({"arguments": canonical_json({"user": "x", "password": "hunter22"})}))
    assert json.loads(steps["arguments"].to_pylist()[0]) == {"user": "x", "password": "[secret 1]"}
    assert counts == Counter({"named secrets": 1})


def test_a_log_without_findings_stays_as_it_is():
    log = make_log([{"episode_id": "a", "t": 0, "action": "go", "state": '{"x":1}', "reward": 1.0}])
    made, counts = redacted_log(log)
    assert not counts
    assert made.columns(*COLUMN_NAMES).equals(log.columns(*COLUMN_NAMES))
    assert made.fingerprint != log.fingerprint


N = 200_000
LONG = {
    "letters": "a" * N,
    "letters and an @": "a" * N + "@",
    "many @": "a@" * N,
    "many dots": "a@" + "b." * N,
    "keys in a row": "sk-" * N,
    "beginnings of tokens": "eyJ" * N,
    "beginnings of names": "token:" * N,
    "names without values": "password=" * N,
    "folders": "/home/" * N,
    "a long folder": "C:\\Users\\" + "a " * N,
    "private keys": "-----BEGIN PRIVATE KEY-----" * (N // 20),
    "a private key without end": "-----BEGIN PRIVATE KEY-----" + "\\" * N,
    "backslashes": "\\" * N,
    "escapes": "\\n" * N,
    "bearers": "Bearer " * N,
}


@pytest.mark.parametrize("name", LONG)
def test_no_text_takes_long(name):
    started = time.perf_counter()
    Redactor().text(LONG[name])
    assert time.perf_counter() - started < 3


@given(text=st.text(alphabet="ab@.-_/\\[]:= \n1", max_size=60))
def test_redacting_twice_is_redacting_once(text):
    once = Redactor().text(text)
    assert Redactor().text(once) == once


def test_every_kind_has_a_case():
    redactor = Redactor()
    for text in FOUND:
        redactor.text(text)
    assert set(redactor.counts) == set(KINDS)
