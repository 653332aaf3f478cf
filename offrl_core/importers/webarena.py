"""Runs of WebArena as it renders them for people: one HTML file a run, the results in ``merge_log.txt`` beside them.

A page holds the address, what the agent observed, what the model wrote, and the action that was read out of it; the
next page shows what came of it. The HTML is taken apart as text: nothing in it is run or fetched. Where the program
stopped a run ("Early stop: ..."), that stop is no action of the agent. The settings in front of the pages hold the
answer that is wanted, so only the intent of the task is read from them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import PurePath
from typing import Any, TypeVar
from urllib.parse import urlsplit

from offrl_core.importers.episode import Episode, Runs, add_metadata, seen, tool_call
from offrl_core.importers.fields import (
    Arguments,
    Gathered,
    Row,
    finite_number,
    label,
    rate_by_form,
    stem,
    unused_id,
)
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport, Place
from offrl_core.schema import canonical_json

EXAMPLE = b"""\
<!DOCTYPE html>
<head><style>pre { white-space: pre-wrap; }</style></head>
<html><body>
<pre>sites: ['shop']
task_id: 7
intent: How much is the red lamp?
eval: {'eval_types': ['string_match'], 'reference_answers': {'exact_match': '9.50'}}
</pre>
<h2>New Page</h2>
<h3 class='url'><a href=http://shop/>URL: http://shop/</a></h3>
<div class='state_obv'><pre>Tab 0 (current): Shop

[1] RootWebArea 'Shop'
	[2] link 'Red lamp'</pre><div>
<div class='prev_action' style='background-color:pink'>None</div>
<div class='predict_action'><div class='raw_parsed_prediction'><pre>Let's look at it. ```click [2]```</pre></div>\
<div class='parsed_action' style='background-color:yellow'><pre>click [2] where [2] is [2] link 'Red lamp'</pre></div></div>
<h2>New Page</h2>
<h3 class='url'><a href=http://shop/lamp>URL: http://shop/lamp</a></h3>
<div class='state_obv'><pre>Tab 0 (current): Red lamp

[4] StaticText '9.50'</pre><div>
<div class='prev_action' style='background-color:pink'>click [2] where [2] is link 'Red lamp'</div>
<div class='predict_action'><div class='raw_parsed_prediction'><pre>It says so. ```stop [9.50]```</pre></div>\
<div class='parsed_action' style='background-color:yellow'><pre>stop [9.50]</pre></div></div>
</body></html>
"""

COMPANIONS = ("*config.json", "*log_files.txt", "*error.txt")  # what the program writes beside the pages
_PARTS = ("url", "state_obv", "prev_action", "raw_parsed_prediction", "parsed_action", "predict_action")
_RENDERED = re.compile(r"class=[\"']?state_obv\b")
_RESULT = re.compile(r"\[Result\] \((PASS|FAIL)\) (\S+)")
# Texts stand in these files as they were, so only the tags that the program itself writes are tags.
_FOREIGN = re.compile(r"<(?!/?(?:div|pre|h3|a)\b)")
_PICTURE = re.compile(r"data:image/[\w.+-]+;base64,[A-Za-z0-9+/=\s]*")
_SETTING = re.compile(r"^(task_id|intent): (.*?)(?=^\w+: |\Z)", re.MULTILINE | re.DOTALL)
_NAME_OF_FILE = re.compile(r"render_(.+)")
_NAME = re.compile(r"(?:\[B\])?\s*(\w+)")
_TARGET = re.compile(r"\swhere \[[^\[\]]*\] is (?:\[[^\[\]]*\] )?")
_METHOD = re.compile(r"\.(\w+)\(")  # of a line for Playwright
_ARGUMENTS = {
    "click": ("element",),
    "hover": ("element",),
    "type": ("element", "text"),
    "goto": ("url",),
    "scroll": ("direction",),
    "press": ("keys",),
    "page_focus": ("tab",),
    "stop": ("answer",),
}
_STOPPED = re.compile(r"stop \[((Early stop|ERROR): .*)\]", re.DOTALL)
_FAILED = ("Attempt to perfom", "Attempt to perform", "The previous prediction you issued was")
_WITHOUT_REWARDS = "WebArena writes whether a task was solved to merge_log.txt: upload it together with the pages."

_T = TypeVar("_T")


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are rendered runs of WebArena or their results, 0 to 1, and why."""
    return rate_by_form(values, _form, "no text holds pages of WebArena (state_obv)")


def _form(value: Any) -> str | None:
    """What a text is, in words; None where it is something else."""
    if not isinstance(value, str):
        return None
    if _RENDERED.search(value):
        return "pages with what was observed (state_obv)"
    return "results of tasks (PASS, FAIL)" if _results(value, "") else None


# -- reading -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Beside:
    """What files beside the pages say, by their folder."""

    results: dict[str, dict[str, tuple[float, str]]] = field(default_factory=dict)  # by task: reward and file
    settings: dict[str, Row] = field(default_factory=dict)


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read runs into rows, one per action of the agent.

    Args:
        records: records of the files; results and settings may come before or after the pages they belong to.
        report: gets the problems, and notes on rewards and endings.
    """
    runs, beside = Runs(report), _Beside()
    rendered = [record for record in records if _is_run(record, beside, runs)]
    found = []
    for record in rendered:
        with runs.guarded(record):
            found.append((record, _run(record)))
    tasks = Counter(run.task for _, run in found)
    judged: set[tuple[str, str]] = set()
    for record, run in found:
        folder = _folder(record.source)
        name = f"task-{run.task}" if tasks[run.task] == 1 else f"{folder or record.source}/task-{run.task}"
        with runs.guarded(record) as place:
            rows = _rows(unused_id(name, runs.used_ids, place), run, record, place)
            if rows:
                _add_what_is_beside(rows, run, record, beside, judged)
            runs.gathered.add(replace(record, text=_PICTURE.sub("[picture]", record.raw)), rows)
    if n := sum(len(results) for results in beside.results.values()) - len(judged):
        report.notes.append(f"{n:,} results in the logs belong to no run that was uploaded.")
    return runs.done("runs", "files beside the pages", _WITHOUT_REWARDS)


def _is_run(record: Record, beside: _Beside, runs: Runs) -> bool:
    """Whether a record holds pages; one that holds results or settings goes to what is beside."""
    value, folder = record.value, _folder(record.source)
    is_run = isinstance(value, str) and _RENDERED.search(value) is not None
    results = _results(value, PurePath(record.source).name) if isinstance(value, str) else {}
    if results:
        beside.results.setdefault(folder, {}).update(results)
    is_settings = isinstance(value, dict) and "model" in value and "result_dir" in value
    if is_settings:
        beside.settings[folder] = value
    if is_run:
        return True
    if results or is_settings or record.source.endswith(("log_files.txt", "error.txt")):
        runs.report.accounts.found[record.source] -= 1  # it says something about runs and is none
        if not results and not is_settings:
            runs.skipped[PurePath(record.source).name] += 1
        return False
    message = "this is no run that WebArena rendered (HTML with state_obv), so it was set aside"
    runs.report.at(record.source, record.number).lose(None, "not a run", message, record.raw)
    return False


def _results(text: str, file: str) -> dict[str, tuple[float, str]]:
    """Reward of each task in a log; of a task that was run again, the last one."""
    results = {}
    for verdict, path in _RESULT.findall(text):
        task, is_settings, _ = re.split(r"[/\\]", path)[-1].rpartition(".json")
        if task and is_settings:
            results[task] = (float(verdict == "PASS"), file)
    return results


def _folder(source: str) -> str:
    return source.rpartition("/")[0]


def _nearest(by_folder: Mapping[str, _T], source: str) -> tuple[str, _T] | None:
    """What belongs to a file, with its folder: that of the file's own folder, or of the nearest one above."""
    above = [folder for folder in by_folder if not folder or f"{_folder(source)}/".startswith(f"{folder}/")]
    folder = max(above, key=len, default=None)
    return None if folder is None else (folder, by_folder[folder])


def _add_what_is_beside(
    rows: list[Row], run: _Run, record: Record, beside: _Beside, judged: set[tuple[str, str]]
) -> None:
    """Write the reward on the last row, and who acted on all of them, in place."""
    found = _nearest(beside.results, record.source)
    if found and run.task in found[1]:
        reward, file = found[1][run.task]
        rows[-1] |= {"reward": reward, "reward_source": f"evaluator ({file})"}
        judged.add((found[0], run.task))
    settings = _nearest(beside.settings, record.source)
    agent: Row = {"behavior_policy": stem(_folder(record.source)) or None}
    if settings:
        agent = {
            "behavior_policy": label(settings[1].get("model")),
            "temperature": finite_number(settings[1].get("temperature")),
        }
    for row in rows:
        row |= agent


# -- pages ---------------------------------------------------------------------------------------------------

_Page = dict[str, str]  # the texts of one page by their part


@dataclass(slots=True)
class _Run:
    """One file: the task and its pages."""

    task: str
    goal: str | None
    pages: list[_Page]
    is_cut: bool  # whether the file ends inside a text
    n_repeated: int  # texts of which a page has more than one; the first is kept

    @property
    def stop(self) -> re.Match[str] | None:
        """The stop on the last page, where it came from the program and not from the agent."""
        return _STOPPED.fullmatch(_written(self.pages[-1]) or "") if self.pages else None


def _run(record: Record) -> _Run:
    """Take the pages of a run out of its HTML."""
    reader = _PageReader()
    # Behind the last ">" no tag is whole; the parser would look for the end of each of them, to the end of the file.
    whole, closing, rest = _FOREIGN.sub("&lt;", _PICTURE.sub("", record.value)).rpartition(">")
    reader.feed(whole + closing + rest.replace("<", "&lt;"))
    reader.close()
    is_cut = reader.into is not None
    reader.finish()
    settings = {name: value.strip() for name, value in _SETTING.findall(reader.settings)}
    name = _NAME_OF_FILE.fullmatch(stem(PurePath(record.source).stem))
    task = settings.get("task_id") or (name[1] if name else stem(record.source) or "run")
    return _Run(task, settings.get("intent") or None, reader.pages, is_cut, reader.n_repeated)


class _PageReader(HTMLParser):
    """Collects the texts of a rendered run. ``into`` names the text that is open."""

    def __init__(self) -> None:
        """Begin in front of the settings."""
        super().__init__(convert_charrefs=True)
        self.settings = ""
        self.pages: list[_Page] = []
        self.n_repeated = 0
        self.into: str | None = None
        self._part: str | None = None  # of the division that was opened last
        self._is_preformatted = False
        self._texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a text, or take the tag as part of the one that is open."""
        if self._is_preformatted:
            self._texts.append(self.get_starttag_text() or "")
        elif tag != "a":
            self.finish()
            classes = (dict(attrs).get("class") or "").split()
            self._part = self._part if tag == "pre" else next((name for name in classes if name in _PARTS), None)
            self.into = self._part or ("settings" if tag == "pre" and not self.pages else None)
            self._is_preformatted = tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        """End the text that is open."""
        if self._is_preformatted and tag != "pre":
            self._texts.append(f"</{tag}>")
        elif tag != "a":
            self.finish()

    def handle_data(self, data: str) -> None:
        """Add to the text that is open."""
        if self.into:
            self._texts.append(data)

    def finish(self) -> None:
        """Keep the text that is open; an address, or a second observation, begins the next page."""
        text, into = "".join(self._texts).strip(), self.into
        self.into, self._is_preformatted, self._texts = None, False, []
        if into == "settings":
            self.settings += f"{text}\n"
        elif into and text:
            last = self.pages[-1] if self.pages else {}
            if not self.pages or (into in ("url", "state_obv") and {into, "state_obv"} & last.keys()):
                last = {}
                self.pages.append(last)
            self.n_repeated += into in last
            last.setdefault(into, text)


def _written(page: _Page) -> str | None:
    """The action on a page as the program has it."""
    return page.get("parsed_action") or page.get("predict_action")


# -- rows ----------------------------------------------------------------------------------------------------


def _rows(episode_id: str, run: _Run, record: Record, place: Place) -> list[Row]:
    """The rows of one run: each action, the page it was taken on, and the page that came of it."""
    if run.is_cut:
        place.lose(None, "run cut", "the file ends inside a page; what stands before that was read", record.raw[-200:])
    if run.n_repeated:
        message = (
            f"pages of this run show {run.n_repeated:,} texts more than once (several actions?); the first was taken"
        )
        place.lose(None, "text repeated", message)
    episode = Episode(episode_id, {"task": run.goal[:200] if run.goal else None, "environment_version": "WebArena"})
    for t, (page, after) in enumerate(pairwise([*run.pages, {}])):
        if _is_taken(page, run):
            url = page.get("url", "").removeprefix("URL:").strip()
            row = episode.act(_action(page, after), t, seen(run.goal, record.number, "pages", t + 1) | {"url": url})
            row["state_text"] = _path(url)
    if not episode.rows:
        text = "the run holds no action of the agent, so there is no decision to learn from"
        place.lose(None, "no decision", text, record.raw)
        return []
    rows = episode.close(_end(run, last_action=episode.rows[-1]["action"]))
    add_metadata(rows[-1], task_id=run.task, stopped_by_program=run.stop[1] if run.stop else None)
    return rows


def _is_taken(page: _Page, run: _Run) -> bool:
    """Whether the agent acted on a page: not where the program stopped it, nor where the file ends before it did."""
    if page is run.pages[-1] and (run.stop or run.is_cut):
        return False
    return bool(_written(page) or page.get("raw_parsed_prediction"))


def _end(run: _Run, last_action: str) -> str | None:
    """How a run ended, as far as its last page tells."""
    if run.is_cut or (run.stop and run.stop[2] == "ERROR"):
        return "cut"
    if run.stop:
        return "truncated"
    return "terminated" if last_action == "stop" else None


def _path(url: str) -> str | None:
    """Where a page is on its site: the address without host and query."""
    try:
        return urlsplit(url).path or None
    except ValueError:
        return url


def _action(page: _Page, after: _Page) -> Row:
    """The columns of one action, with what the next page shows."""
    thought, before = page.get("raw_parsed_prediction"), after.get("prev_action", "")
    written = _written(page)
    name, arguments = _call(written) if written else (None, Arguments("malformed", None, thought))
    failed = before if before.startswith(_FAILED) else None
    row = tool_call(name, arguments, result=after.get("state_obv"), error=failed, thought=thought)
    return row | ({"action_type": "env_action"} if name else {})


def _call(written: str) -> tuple[str | None, Arguments]:
    """Name and arguments of ``type [5] [red] where [5] is textbox 'Search'``; no name where nothing could be parsed."""
    methods = _METHOD.findall(written) if written.startswith("page.") else []
    if methods:
        return methods[-1], Arguments("object", canonical_json({"code": written}), written)
    name = _NAME.match(written)
    if name is None or name[1] == "none":
        return None, Arguments("malformed", None, written)
    targets = list(_TARGET.finditer(written))
    given = written[name.end() : targets[-1].start() if targets else None].strip()
    arguments: Row = {}
    if given.startswith("[") and given.endswith("]"):
        names = _ARGUMENTS.get(name[1], ("input",))
        arguments = dict(zip(names, given[1:-1].split("] [", len(names) - 1), strict=False))
    elif given:
        arguments = {"input": given}
    if targets:
        arguments["label"] = written[targets[-1].end() :]
    return name[1], Arguments("object", canonical_json(arguments), written)
