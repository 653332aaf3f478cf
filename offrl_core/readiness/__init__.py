"""What a log can support: a verdict per family of methods with its reasons, what is missing, and what to log next.

The verdicts concern the log, not this app: a method may be judged here before it can be run here. Every number is
counted from the steps (``facts``), every reason is one small function (``checks``), and the same report can be read as
text, Markdown, HTML or JSON (``text``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..dataset import Dataset, frame
from ..errors import OffRLError
from ..framing import Framing
from ..importers.report import ImportReport
from ..log import Log
from ..wording import counted
from .checks import Finding, find
from .facts import Facts, gather_facts
from .families import BLOCKED, FAMILIES, READY, WITH_CAVEATS, VerdictWord
from .fields import FieldStatus, field_table
from .losses import counts, in_proportion

REPORT_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a verdict isn't better. ``number`` is the place of its remedy in the list of fixes, from 1."""

    number: int
    key: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How far a log supports a family of methods, and why not further.

    Reasons stand in the order of the fixes; ``missing_columns`` names the columns of the trace schema behind them.
    """

    family: str
    title: str
    verdict: VerdictWord
    blocked_by: tuple[Reason, ...]
    caveats: tuple[Reason, ...]
    missing_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """What is the matter, and what to log or do about it.

    ``unlocks`` are families that only this keeps blocked, ``needed_for`` families that are blocked by other things too,
    ``improves`` families that lose a caveat. It concerns ``n`` of ``n_all`` (``unit`` says of what).
    """

    number: int
    key: str
    why: str
    order: str
    columns: tuple[str, ...]
    unlocks: tuple[str, ...]
    needed_for: tuple[str, ...]
    improves: tuple[str, ...]
    n: int
    n_all: int
    unit: str
    certain: bool  # False where the trouble is possible only, because the log doesn't say


PROBLEMS_TOLD = 20
LOSSES_TOLD = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary:
    """What the import read, in its own words."""

    format: str
    sentence: str
    n_problems: int
    n_lost: int
    problems: tuple[str, ...]  # the first ones in words, those that set data aside on top
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The whole report, as plain data."""

    verdicts: tuple[Verdict, ...]
    fixes: tuple[Fix, ...]  # by value: what unlocks most comes first
    notes: tuple[str, ...]  # facts that a reader must know and that weigh on no verdict
    fields: tuple[FieldStatus, ...]
    facts: Facts
    imported: ImportSummary

    def verdict(self, family: str) -> Verdict:
        """The verdict on a family.

        Raises:
            KeyError: there is no such family.
        """
        if family not in FAMILIES:
            raise KeyError(family)
        return next(verdict for verdict in self.verdicts if verdict.family == family)

    def to_json(self) -> dict[str, Any]:
        """The report as objects, lists, texts, numbers and null; unknown numbers are null, never 0."""
        return {"report": "offrl_core readiness", "report_version": REPORT_VERSION, **asdict(self)}


def assess(log: Log, dataset: Dataset | None = None, framing: Framing | None = None) -> Readiness:
    """Say what a log can support.

    A log that can't be framed is a finding and no error.

    Args:
        log: the steps.
        dataset: the log after framing and coverage edits; then only the kept steps count, and ``framing`` is its own.
        framing: what is state, action and reward; by default the preset that fits the log.
    """
    problem = ""
    if dataset is None:
        try:
            dataset = frame(log, framing)
        except OffRLError as error:
            problem = str(error)
    facts = gather_facts(log, dataset, problem)
    findings = _by_value(find(facts))
    return Readiness(
        verdicts=tuple(_verdict(family, findings) for family in FAMILIES),
        fixes=_fixes(findings),
        notes=_notes(facts),
        fields=field_table(facts),
        facts=facts,
        imported=_import_summary(log.report),
    )


def _by_value(findings: Sequence[Finding]) -> list[Finding]:
    """Findings in the order of what their remedy brings.

    First come those that alone unlock most families, then those that others have to go with, then caveats, weighed by how
    much of the log they concern and halved where the trouble is possible only.
    """

    def value(finding: Finding) -> tuple[int, int, float]:
        n_alone, n_together = map(len, _unlocked(finding, findings))
        share = finding.n / max(finding.n_all, 1)
        return n_alone, n_together, len(finding.weakens) * share * (1.0 if finding.certain else 0.5)

    return sorted(findings, key=value, reverse=True)


def _unlocked(finding: Finding, findings: Sequence[Finding]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Families that only this finding blocks, and those that others block too."""
    others = {family for other in findings if other is not finding for family in other.blocks}
    alone = tuple(family for family in finding.blocks if family not in others)
    return alone, tuple(family for family in finding.blocks if family in others)


def _verdict(family: str, findings: Sequence[Finding]) -> Verdict:
    numbered = list(enumerate(findings, start=1))
    blocking = [(i, finding) for i, finding in numbered if family in finding.blocks]
    weakening = [(i, finding) for i, finding in numbered if family in finding.weakens]
    columns = [column for _, finding in (*blocking, *weakening) for column in finding.columns]
    return Verdict(
        family=family,
        title=FAMILIES[family].title,
        verdict=BLOCKED if blocking else WITH_CAVEATS if weakening else READY,
        blocked_by=_reasons(blocking),
        caveats=_reasons(weakening),
        missing_columns=tuple(dict.fromkeys(columns)),
    )


def _reasons(numbered: Sequence[tuple[int, Finding]]) -> tuple[Reason, ...]:
    return tuple(Reason(number=i, key=finding.key, sentence=finding.sentence) for i, finding in numbered)


def _fixes(findings: Sequence[Finding]) -> tuple[Fix, ...]:
    fixes = []
    for i, finding in enumerate(findings, start=1):
        alone, together = _unlocked(finding, findings)
        fixes.append(
            Fix(
                number=i,
                key=finding.key,
                why=finding.sentence,
                order=finding.fix,
                columns=finding.columns,
                unlocks=alone,
                needed_for=together,
                improves=finding.weakens,
                n=finding.n,
                n_all=finding.n_all,
                unit=finding.unit,
                certain=finding.certain,
            )
        )
    return tuple(fixes)


def _import_summary(report: ImportReport) -> ImportSummary:
    return ImportSummary(
        format=report.format,
        sentence=report.sentence() if report.n_records else report.why,
        n_problems=report.tally.total(),
        n_lost=report.n_lost,
        problems=tuple(p.sentence() for p in sorted(report.problems, key=lambda p: not p.lost)[:PROBLEMS_TOLD]),
        notes=tuple(filter(None, (*report.losses()[:LOSSES_TOLD], report.torn_sentence(), *report.notes))),
    )


# -- facts that weigh on no verdict --------------------------------------------------------------------------


def _small_losses(facts: Facts) -> list[str]:
    """What the import lost, where that is too little to matter."""
    losses, n = facts.losses, facts.n_episodes
    notes = []
    if losses.sentence and not counts(losses.share, n):
        notes.append(f"{losses.sentence}. {in_proportion(losses.share, n)}")
    if losses.n_torn and not counts(losses.n_torn / n, n):
        notes.append(
            f"Something inside of {losses.n_torn:,} of {counted(n, 'episode')} was lost on import. "
            f"{in_proportion(losses.n_torn / n, n)}"
        )
    return notes


def _notes(facts: Facts) -> tuple[str, ...]:
    sequences, n = facts.sequences, facts.n_episodes
    notes = _small_losses(facts)
    if facts.world:
        notes.append(f"The world {facts.world} wrote this log, so the truth is known and every promise can be checked.")
    n_failed = facts.outcomes.n_known - facts.outcomes.n_solved
    if n_failed and facts.outcomes.n_solved:
        notes.append(
            f"{n_failed:,} of {facts.outcomes.n_known:,} episodes with a known return "
            + (f"didn't succeed ({facts.success_rule}). " if facts.success_named else "have none above 0. ")
            + "Behavior cloning copies them too; the page Coverage can keep the good ones only."
        )
    if sequences.n_one_step == n > 1:
        notes.append(
            "Every episode is a single step: a bandit log. Nothing follows an action, so values are mean rewards."
        )
    if facts.ends["terminated"] == n > 1 and not facts.world:
        notes.append("Every episode ends as finished. If a limit stopped some, they should say timeout instead.")
    if sequences.n_duplicates and not facts.world:
        notes.append(
            f"{sequences.n_duplicates:,} of {n:,} episodes repeat another one: same task, same actions, same arguments. "
            "Short tasks repeat by themselves; a file loaded twice does too."
        )
    if sequences.n_with_parent:
        notes.append(
            f"{sequences.n_with_parent:,} of {n:,} episodes belong to another one, as a sub-agent or a branch; branches may "
            "repeat its first steps."
        )
    if facts.calls.n_parallel:
        notes.append(
            f"{facts.calls.n_parallel:,} of {facts.n_steps:,} steps are second or later calls of one reply: the agent chose "
            "them before it saw the result of the first."
        )
    if facts.tasks.n_flat and facts.tasks.n_repeated:
        notes.append(
            f"{facts.tasks.n_flat:,} of {facts.tasks.n_repeated:,} repeated tasks always have the same return: they show "
            "nothing about better and worse choices."
        )
    return tuple(notes)
