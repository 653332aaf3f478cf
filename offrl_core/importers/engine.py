"""How an upload is read: open what is packed, find the format of each file, read format by format, build the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import pyarrow as pa

from offrl_core.errors import TraceFormatError, UnknownFormat
from offrl_core.importers.collector import collector_at_rest
from offrl_core.importers.containers import Limits, is_plain, part_sentence, plain_files
from offrl_core.importers.fields import unused_id
from offrl_core.importers.raw_text import FileText, RawRecords
from offrl_core.importers.recognition import ImporterSpec, Source, adopt, reasons, recognise
from offrl_core.importers.records import Progress
from offrl_core.importers.report import UNREADABLE, ImportReport, why_unread
from offrl_core.importers.step_parts import StepParts, Steps, in_order, report_broken_arguments
from offrl_core.importers.tears import torn_episodes
from offrl_core.schema import steps_table
from offrl_core.wording import counted

# Records looked at to recognise files are kept up to this many bytes of files, and read again beyond it.
_KEPT_BYTES = 2**26
_HEAD = 2**12  # bytes that tell what is packed
_FEW_BYTES = 2**18  # up to here, a start of DuckDB takes longer than to read record by record


@dataclass(slots=True)
class Imported:
    """A file that was read: steps, the raw records behind them, and the report."""

    steps: Steps  # columns of schema.STEPS_ARROW_SCHEMA; by first appearance of the episode, then t
    raw: RawRecords  # of the records that gave at least one step
    report: ImportReport

    @property
    def records(self) -> pa.Table:
        """The raw records as a table; columns of schema.RECORDS_ARROW_SCHEMA."""
        return self.raw.table()


def read_files(
    files: Sequence[tuple[str, bytes | FileText]],
    specs: Mapping[str, ImporterSpec],
    *,
    format: str | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Read files together by the given importers; a file that can't be read is a problem while another one can.

    Args:
        files: name and content of each.
        specs: the formats there are.
        format: a key of ``specs``, to override the recognition.
        progress: called with the fraction done, 0 to 1.

    Raises:
        TraceFormatError: no step can be read.
    """
    report = ImportReport(files=[name for name, _ in files])
    failures: list[tuple[str, TraceFormatError]] = []
    sources = _open(files, report, failures)
    _show_progress(sources, progress)
    sources = _recognised(sources, specs, format, report, failures)
    if not sources:
        raise _nothing_known(report, failures)
    for name, error in failures:
        report.lose_file(name, part_sentence(name, error))
    report.format = ", ".join(dict.fromkeys(source.format for source in sources))
    report.why = "chosen by hand" if format else reasons(sources)
    parts, raw = _read_each_format(sources, specs, report)
    report.n_steps = sum(one.n for one in parts.values())
    _settle(sources, specs, parts, raw, report)
    if not report.n_steps:
        _locate_problems(sources, report)
        raise _nothing_read(report)
    steps, report.n_episodes = in_order(list(parts.values()), report)
    _locate_problems(sources, report)
    if progress:
        progress(1.0)
    return Imported(steps, raw, report)


def _settle(
    sources: Sequence[Source],
    specs: Mapping[str, ImporterSpec],
    parts: Mapping[str, StepParts],
    raw: RawRecords,
    report: ImportReport,
) -> None:
    """Say what became of each record, and which episodes are torn."""
    behind = report.accounts.behind_steps(raw.numbers())
    report.settle(behind, {source.name: specs[source.format].unit for source in sources})
    if report.n_lost:
        for key, one in parts.items():
            report.torn += torn_episodes(one, report.accounts, behind, numbered=specs[key].by_columns)


# -- files ---------------------------------------------------------------------------------------------------


def _show_progress(sources: Sequence[Source], progress: Progress | None) -> None:
    """Let files tell how much of the upload is read; never back, though they are looked at before they are read."""
    if progress is None:
        return
    shown = 0.0

    def show(before: int, size: int, fraction: float) -> None:
        nonlocal shown
        done = 0.99 * (before + fraction * size) / total  # the last step is the making of the tables
        if done > shown:
            shown = done
            progress(done)

    total = max(1, sum(source.size for source in sources))
    before = 0
    for source in sources:
        source.tick = partial(show, before, source.size)
        before += source.size


def _open(
    files: Sequence[tuple[str, bytes | FileText]], report: ImportReport, failures: list[tuple[str, TraceFormatError]]
) -> list[Source]:
    """The plain files in an upload, each with a name of its own."""
    limits = Limits()
    sources: list[Source] = []
    used: Counter[str] = Counter()
    for name, data in files:
        try:
            if isinstance(data, FileText) and not is_plain(data.read(0, _HEAD)):
                data = data.read(0, data.size)
            found = [(name, data)] if isinstance(data, FileText) else plain_files(name, data, report, limits)
        except TraceFormatError as error:
            failures.append((name, error))
            continue
        for label, content in found:
            used[label] += 1
            sources.append(Source(label if used[label] == 1 else f"{label} ({used[label]})", content))
    return sources


def _recognised(
    sources: Sequence[Source],
    specs: Mapping[str, ImporterSpec],
    format: str | None,
    report: ImportReport,
    failures: list[tuple[str, TraceFormatError]],
) -> list[Source]:
    """The files whose format is known, after a look at the first records of each; the others go to ``failures``."""
    unknown: list[tuple[Source, TraceFormatError]] = []
    kept = 0
    for source in sources:
        kept += source.size
        keep = len(sources) == 1 or kept <= _KEPT_BYTES
        values = None
        try:
            values = source.look(report, keep=keep)
            source.format, source.why = (format, "") if format else recognise(source.name, values, specs)
        except TraceFormatError as error:
            if values is None:
                report.accounts.forget(source.name)  # whoever adopts the file reads it again
            unknown.append((source, error))
    adopt([source for source, _ in unknown], [source for source in sources if source.format], specs)
    for source, failure in unknown:
        if not source.format:
            report.accounts.forget(source.name)  # what isn't read at all is told as a file, not as records
            failures.append((source.name, failure))
    return [source for source in sources if source.format]


def _nothing_known(report: ImportReport, failures: Sequence[tuple[str, TraceFormatError]]) -> TraceFormatError:
    """The error for an upload of which no file can be read."""
    text = "There is no file to read. Choose at least one."
    if len(failures) == 1 and len(report.files) == 1:
        text = str(failures[0][1])
    elif failures:
        text = f"None of these {len(failures):,} files can be read. The first: {failures[0][1]}"
    elif report.problems:
        text = f"No file in {report.source} can be read. {_closed(report.problems[-1].sentence())}"
    unknown = any(isinstance(error, UnknownFormat) for _, error in failures)
    return _with_report(UnknownFormat(text) if unknown else TraceFormatError(text), report)


def _closed(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."


def _with_report(error: TraceFormatError, report: ImportReport) -> TraceFormatError:
    error.report = report  # type: ignore[attr-defined]  # the page shows the problems under the sentence
    return error


def _read_each_format(
    sources: Sequence[Source], specs: Mapping[str, ImporterSpec], report: ImportReport
) -> tuple[dict[str, StepParts], RawRecords]:
    """Read the files format by format; an episode keeps an id of its own."""
    everything: dict[str, StepParts] = {}
    raw = RawRecords()
    taken: set[str] = set()
    formats = dict.fromkeys(source.format for source in sources)
    for key in formats:
        same = [source for source in sources if source.format == key]
        n_notes = len(report.notes)
        parts, texts = _read_format(specs[key], same, report)
        if len(formats) > 1:  # "this log has no rewards" is then true of some files only
            report.notes[n_notes:] = [f"{specs[key].title}: {note}" for note in report.notes[n_notes:]]
        _rename_taken(parts, taken, report)
        taken |= parts.ids.keys()
        everything[key] = parts
        raw.extend(texts)
    return everything, raw


def _read_format(spec: ImporterSpec, sources: Sequence[Source], report: ImportReport) -> tuple[StepParts, RawRecords]:
    if spec.by_columns and sum(source.size for source in sources) >= _FEW_BYTES:
        from offrl_core.importers import trace_columns  # here, as DuckDB is slow to load

        return trace_columns.read(sources, report)
    parts, raw = StepParts(), RawRecords()
    try:
        with collector_at_rest():
            gathered = spec.read(chain.from_iterable(source.records(report) for source in sources), report)
            steps = steps_table(gathered.rows)
            report_broken_arguments(steps, report)
            parts.add(steps)
    except UNREADABLE as error:  # between the records, so nobody knows which one it was; files of other formats stay
        for source in sources:
            report.lose_file(source.name, f"{spec.title}: {why_unread(error)[1]}")
        return StepParts(), raw
    raw.add_texts(gathered.raw)
    return parts, raw


def _rename_taken(parts: StepParts, taken: set[str], report: ImportReport) -> None:
    """Give episodes whose id was used in a file of another format a new one."""
    used = Counter(taken | parts.ids.keys())
    renamed = {id: unused_id(id, used, report.at(report.source)) for id in sorted(parts.ids.keys() & taken)}
    if renamed:
        parts.rename(renamed)


def _locate_problems(sources: Sequence[Source], report: ImportReport) -> None:
    """Add the byte offset of its record to each problem; importers only know the number."""
    by_name = {source.name: source for source in sources}
    for i, problem in enumerate(report.problems):
        if problem.offset is None and problem.record is not None and problem.file in by_name:
            report.problems[i] = replace(problem, offset=by_name[problem.file].offset_of(problem.record))


def _nothing_read(report: ImportReport) -> TraceFormatError:
    """The error for files whose format is known but which hold not one readable step."""
    n = report.tally.total()
    text = f"No step could be read from {report.source} (format {report.format}, {report.why})."
    if report.problems:
        text += f" {counted(n, 'problem')}, the first: {_closed(report.problems[0].sentence())}"
    return _with_report(TraceFormatError(text), report)
