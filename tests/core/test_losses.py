"""What the import lost weakens a verdict by how much it was and where, and by nothing else."""

from __future__ import annotations

import json
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.readiness import Readiness, assess
from offrl_core.readiness.families import EVERY, WHOLE_EPISODES
from offrl_core.readiness.losses import HARMLESS, chance, counts

BROKEN = b'{"episode_id": "e'


def rows_of(n_episodes: int, length: int) -> list[bytes]:
    """Rows of a log, one per line; half of the episodes succeed."""
    lines = []
    for i in range(n_episodes):
        for t in range(length):
            last = t == length - 1
            action = {"type": "tool_call", "tool": "ab"[(i + t) % 2], "arguments": {}}
            row: dict[str, Any] = {
                "episode_id": f"e{i}",
                "t": t,
                "task": f"t{i % 5}",
                "action": action,
                "state": f"s{t}",
            }
            row |= {"reward": float(i % 2) if last else 0.0, "reward_source": "test", "done": last}
            lines.append(json.dumps(row).encode())
    return lines


def report_on(lines: list[bytes], **others: bytes) -> Readiness:
    files = [("log.jsonl", b"\n".join(lines)), *others.items()]
    return assess(orl.read_traces(contents=files))


def keys(report: Readiness) -> set[str]:
    return {fix.key for fix in report.fixes}


# -- the rule ------------------------------------------------------------------------------------------------


def test_a_fifth_of_a_standard_error_costs_an_interval_half_a_percent() -> None:
    normal = NormalDist()
    bound = normal.inv_cdf(0.975)

    def coverage(bias: float) -> float:
        return normal.cdf(bound - bias) - normal.cdf(-bound - bias)

    assert round(coverage(HARMLESS), 3) == 0.945
    assert round(coverage(1.0), 2) == 0.83


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.data())
def test_no_share_is_off_by_more_than_what_was_lost(truth: list[bool], data: st.DataObject) -> None:
    n_kept = data.draw(st.integers(1, len(truth)))
    kept = data.draw(st.permutations(truth))[:n_kept]
    off = abs(sum(kept) / n_kept - sum(truth) / len(truth))
    assert off <= (len(truth) - n_kept) / len(truth) + 1e-12


@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(0, 1))
def test_more_loss_and_more_episodes_never_count_less(n: int, first: float, second: float) -> None:
    low, high = sorted([first, second])
    assert counts(high, n) or not counts(low, n)
    assert counts(low, 4 * n) or not counts(low, n)
    assert chance(4 * n) == pytest.approx(chance(n) / 2)


# -- logs ----------------------------------------------------------------------------------------------------


def test_one_line_of_ten_thousand_weakens_nothing_and_is_told() -> None:
    lines = rows_of(2000, 5)
    whole = report_on(lines)
    lines[5002] = BROKEN
    report = report_on(lines)
    assert [(one.family, one.verdict, len(one.caveats)) for one in report.verdicts] == [
        (one.family, one.verdict, len(one.caveats)) for one in whole.verdicts
    ]
    assert keys(report) == keys(whole)
    lost, torn = (note for note in report.notes if "lost on import" in note)
    assert lost.startswith(
        "1 of 10,000 rows (0.01%) was lost on import. Shares counted from this log may be off by up to 0.01%"
    )
    assert "less than a fifth of what chance makes (±1.12% with 2,000 episodes)" in lost
    assert torn.startswith("Something inside of 1 of 2,000 episodes was lost on import.")


def test_torn_episodes_weaken_what_needs_whole_sequences_and_no_more() -> None:
    lines = rows_of(400, 25)
    for i in range(40):
        lines[i * 250 + 12] = BROKEN
    report = report_on(lines)
    assert report.facts.losses.share == 0.004
    (torn,) = [fix for fix in report.fixes if fix.key == "torn on import"]
    assert (torn.n, torn.n_all, torn.improves) == (40, 400, WHOLE_EPISODES)
    assert "40 of 400 episodes was lost on import" in torn.why
    assert "off by up to 10%" in torn.why
    assert not keys(report) & {"lost on import", "gaps"}


def test_torn_episodes_without_a_return_are_counted() -> None:
    lines = [line for line in rows_of(20, 5) if b'"e3"' not in line or b'"t": 4' not in line]
    lines[3 * 5 + 1] = BROKEN
    report = report_on(lines)
    assert report.facts.losses.n_torn == 1
    assert report.facts.losses.n_torn_unrewarded == 0  # its rewards that are left still add up
    without = [line.replace(b'"reward": 0.0', b'"reward": null') for line in lines]
    assert report_on(without).facts.losses.n_torn_unrewarded == 1


def test_much_lost_weakens_every_family() -> None:
    lines = rows_of(100, 5)
    report = report_on([*lines, *[BROKEN] * 100])
    (fix,) = [fix for fix in report.fixes if fix.key == "lost on import"]
    assert (fix.n, fix.n_all, fix.unit, fix.improves, fix.certain) == (100, 600, "rows", EVERY, True)
    assert "100 of 600 rows (16.7%) were lost on import; the first: log.jsonl, row 501" in fix.why


def test_a_file_that_cannot_be_read_counts_like_the_average_file() -> None:
    (fix,) = [fix for fix in report_on(rows_of(100, 5), other=b"\x89PNG\r\n" * 9).fixes if fix.key == "lost on import"]
    assert (fix.n, fix.n_all, fix.unit, fix.certain) == (1, 2, "files", False)
    assert fix.why.startswith("1 of 2 files was lost on import")


def test_a_world_lost_nothing() -> None:
    report = assess(orl.collect("calculator", n_episodes=30, seed=0))
    assert (report.facts.losses.share, report.facts.losses.sentence) == (0.0, "")
