"""Which instances of SWE-bench were resolved: reports that lie beside the trajectories and hold their rewards.

A report is ``{"resolved_ids": [...], "unresolved_ids": [...]}`` or ``{"<instance>": {"resolved": true, ...}}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from offrl_core.importers.episode import Runs
from offrl_core.importers.fields import label, mapping, sequence
from offrl_core.importers.records import Record

_UNRESOLVED = ("unresolved_ids", "empty_patch_ids", "error_ids")


def is_report(value: Any) -> bool:
    """Whether a record is such a report."""
    if not isinstance(value, dict) or not value:
        return False
    if isinstance(value.get("resolved_ids"), list):
        return True
    return all(isinstance(mapping(item).get("resolved"), bool) for item in value.values())


@dataclass(slots=True)
class Verdicts:
    """Whether instances were resolved, from all reports of an upload, and where these stand."""

    by_instance: dict[str, bool] = field(default_factory=dict)
    reports: list[Record] = field(default_factory=list)

    def apart(self, records: Iterable[Record]) -> Iterator[Record]:
        """Give the records that are no report; the verdicts of those that are one are taken over."""
        for record in records:
            if is_report(record.value):
                self.reports.append(record)
                self.by_instance |= _verdicts(record.value)
            else:
                yield record

    def reward(self, runs: Runs) -> None:
        """Give each run the verdict on its task: 1 resolved, 0 not; without a verdict the reward stays unknown."""
        used = set()
        for row in runs.last_rows():
            verdict = self.by_instance.get(row.get("task") or "")
            if verdict is not None:
                row["reward"], row["reward_source"] = float(verdict), "verifier (SWE-bench report)"
                used.add(row["task"])
        for record in self.reports:
            runs.report.accounts.beside(record.source, "verdict file")
            if used:
                runs.gathered.raw[record.source, record.number] = record.raw
            else:
                message = "these verdicts concern no trajectory here; upload them together with their trajectories"
                runs.report.at(record.source, record.number).lose(None, "verdicts without a run", message, record.raw)
        if used:
            n = len(self.by_instance)
            runs.report.notes.append(
                f"Rewards are those of {n:,} verdicts beside; {n - len(used):,} concern no run here."
            )


def _verdicts(value: dict[str, Any]) -> dict[str, bool]:
    """Verdict by instance."""
    if "resolved_ids" not in value:
        return {instance: bool(mapping(item).get("resolved")) for instance, item in value.items()}
    found = {name: False for key in _UNRESOLVED for item in sequence(value.get(key)) if (name := label(item))}
    return found | {name: True for item in value["resolved_ids"] if (name := label(item))}
