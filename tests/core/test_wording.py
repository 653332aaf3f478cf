"""Sentences with numbers are right for one, too: no "1 episodes"."""

from __future__ import annotations

import re

import pytest

import offrl_core as orl
from offrl_core.importers import IMPORTERS
from offrl_core.log import Log
from offrl_core.readiness.text import as_markdown
from offrl_core.wording import counted, singular

NOUNS = (
    "episodes lines times trials records steps states actions pairs calls tools tasks files values sessions rows runs spans "
    "messages samples visits bytes rollouts trajectories conversations"
)
ONE_OF_MANY = re.compile(rf"(?<![\d.,])1 (\w+ )?({NOUNS.replace(' ', '|')})\b")


def said_of(log: Log) -> list[str]:
    report = log.report
    problems = [problem.sentence() for problem in report.problems]
    return [report.sentence(), *report.notes, *problems, *as_markdown(orl.assess(log)).splitlines()]


@pytest.mark.parametrize("name", IMPORTERS)
def test_no_sentence_about_an_example_counts_one_of_many(name: str) -> None:
    spec = IMPORTERS[name]
    log = orl.read_traces(contents=[(spec.example_name, spec.example)], format=name)
    assert [sentence for sentence in said_of(log) if ONE_OF_MANY.search(sentence)] == []


@pytest.mark.parametrize("done", ["true", "false", "null"])
def test_no_sentence_about_a_single_step_counts_one_of_many(done: str) -> None:
    step = f'{{"episode_id": "e", "t": 0, "action": "go", "reward": 1, "done": {done}}}'
    log = orl.read_traces(contents=[("one.jsonl", f'{step}\n{{"broken": \n'.encode())])
    assert [sentence for sentence in said_of(log) if ONE_OF_MANY.search(sentence)] == []


def test_nouns_by_number() -> None:
    assert [counted(n, "step") for n in (0, 1, 1402)] == ["0 steps", "1 step", "1,402 steps"]
    assert [counted(n, "trajectory") for n in (1, 2)] == ["1 trajectory", "2 trajectories"]
    assert [singular(counted(2, noun).split()[1]) for noun in ("trajectory", "key", "episode", "batch")] == [
        "trajectory",
        "key",
        "episode",
        "batch",
    ]
