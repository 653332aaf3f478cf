"""Human sessions in WebShop, as AgentGym has them: one file a session, one line a page.

The lines are states: what was done is read off the page that follows. The goal holds the product that the shopper was
to find; the shopper saw only its ``instruction_text``, so nothing else of it enters the state. The reward stands on the
last line of a session that was finished (page ``done``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any
from urllib.parse import unquote, urlsplit

from offrl_core.importers.episode import Episode, Runs, tool_call
from offrl_core.importers.fields import (
    Gathered,
    Row,
    finite_number,
    label,
    mapping,
    metadata_text,
    read_arguments,
    sequence,
    stem,
    unused_id,
)
from offrl_core.importers.records import Record
from offrl_core.importers.report import ImportReport
from offrl_core.schema import canonical_json

EXAMPLE = b"""\
{"page": "index", "url": "http://shop/s1", "goal": {"asin": "B01", "instruction_text": "i need a red lamp"}}
{"page": "search_results", "url": "http://shop/search_results/s1/%5B%27lamp%27%5D/1", \
"goal": {"asin": "B01", "instruction_text": "i need a red lamp"}, \
"content": {"keywords": ["lamp"], "search_result_asins": ["B01", "B02"], "page": 1}}
{"page": "item_page", "url": "http://shop/item_page/s1/B01/%5B%27lamp%27%5D/1/%7B%7D", \
"goal": {"asin": "B01", "instruction_text": "i need a red lamp"}, \
"content": {"keywords": "['lamp']", "page": "1", "asin": "B01", "options": {}}}
{"page": "done", "url": "http://shop/done/s1/B01/%7B%7D", "goal": {"asin": "B01", "instruction_text": "i need a red lamp"}, \
"content": {"asin": "B01", "options": {}, "price": 9.5}, "reward": 0.5, "reward_info": {"r_type": 1.0, "r_option": 0.0}}
"""

_PAGES = ("index", "search_results", "item_page", "item_sub_page", "done")
_INFERRED = "The log holds pages only: each action was read off the page that followed it."


# -- recognising ---------------------------------------------------------------------------------------------


def sniff(values: Sequence[Any]) -> tuple[float, str]:
    """How sure it is that these values are pages of WebShop, 0 to 1, and why."""
    n = sum(map(_is_page, values))
    if not n:
        return 0.0, "no record has a page, a url and a goal"
    return n / len(values), f"found page, url and goal in {n} of the first {len(values)} records"


def _is_page(value: Any) -> bool:
    return isinstance(value, dict) and value.get("page") in _PAGES and "url" in value and "goal" in value


# -- reading -------------------------------------------------------------------------------------------------


def read(records: Iterable[Record], report: ImportReport) -> Gathered:
    """Read sessions into rows, one per page that was left."""
    runs = Runs(report)
    for (_, session), group in groupby(records, key=lambda record: (record.source, _session(record.value))):
        pages = []
        for record in group:
            if session is None:
                text = "this is no page of WebShop (page, url and goal), so it was set aside"
                report.at(record.source, record.number).lose(None, "not a page", text, record.raw)
            else:
                pages.append(record)
        if pages:
            with runs.guarded(pages[0]):
                _read_session(session or "", pages, runs)
    if runs.gathered.rows:
        report.notes.append(_INFERRED)
    return runs.done("sessions")


def _session(value: Any) -> str | None:
    """Name of the session that a page belongs to, from its url: "20220427_1_6"; None where the value is no page."""
    if not _is_page(value):
        return None
    parts = _url_parts(value)
    return next((part for part in parts if part not in _PAGES), "session")


def _url_parts(page: dict[str, Any]) -> list[str]:
    """The parts of a page's address."""
    try:
        path = urlsplit(str(page.get("url"))).path
    except ValueError:  # no address at all
        return []
    return [unquote(part) for part in path.split("/") if part]


def _read_session(session: str, pages: list[Record], runs: Runs) -> None:
    """The rows of one session; each points to the page that it left."""
    place = runs.report.at(pages[0].source, pages[0].number)
    values = [page.value for page in pages]
    goal = mapping(values[0].get("goal")).get("instruction_text")
    goal = goal if isinstance(goal, str) else None
    if len(pages) < 2:
        text = "the session holds a single page, so it shows no action"
        place.lose(None, "no decision", text, pages[0].raw)
        return
    name = session if session != "session" else stem(pages[0].source) or session
    episode = Episode(
        unused_id(name, runs.used_ids, place),
        {"task": goal[:200] if goal else None, "behavior_policy": "human", "environment_version": "WebShop"},
    )
    for t, (before, after) in enumerate(pairwise(values)):
        state = {"user_goal": goal, "history_length": t, "page": before["page"]} | _visible(before)
        row = episode.act(_action(before, after), t, state)
        row["state_text"] = _in_words(before)
    done = values[-1]["page"] == "done"
    episode.close("terminated" if done else None, **_reward(values[-1]))
    last = runs.report.at(pages[-1].source, pages[-1].number)
    if done and finite_number(values[-1].get("reward")) is None:
        text = "the session is done, but its reward is no finite number: unknown, not 0"
        last.mend("reward", "reward is not a number", text, values[-1].get("reward"))
    for page, row in zip(pages, episode.rows, strict=False):
        runs.gathered.add(page, [row])
    runs.gathered.raw[pages[-1].source, pages[-1].number] = pages[-1].raw  # the page that the last action led to


def _visible(page: dict[str, Any]) -> Row:
    """What of a page's content the shopper saw and a reader can use."""
    content = mapping(page.get("content"))
    seen = {
        key: content[key] for key in ("asin", "options", "keywords", "page", "search_result_asins") if key in content
    }
    return {"retrieved_context": seen} if seen else {}


def _in_words(page: dict[str, Any]) -> str:
    """The state as short text: the kind of page, and how many options are chosen."""
    chosen = len(_options(page))
    return f"{page['page']}, {chosen} option{'' if chosen == 1 else 's'} chosen" if chosen else str(page["page"])


def _reward(page: dict[str, Any]) -> Row:
    """Reward of the last page with its parts; nothing where the session was never finished."""
    reward = finite_number(page.get("reward")) if page["page"] == "done" else None
    if reward is None:
        return {}
    parts = {
        key: value
        for key, item in mapping(page.get("reward_info")).items()
        if (value := finite_number(item)) is not None
    }
    return {
        "reward": reward,
        "reward_source": "environment (WebShop)",
        "reward_components": canonical_json(parts) if parts else None,
    }


# -- actions from pages --------------------------------------------------------------------------------------


def _action(before: dict[str, Any], after: dict[str, Any]) -> Row:
    """The action that leads from one page to the next, with what came up."""
    name, arguments = _inferred(before, after)
    came = {"page": after["page"], "content": after.get("content")}
    row = tool_call(name, read_arguments(arguments), result=canonical_json(came))
    row["action_type"] = "env_action" if name else "invalid"
    row["metadata"] = None if name else metadata_text(url=label(after.get("url")))
    return row


def _inferred(before: dict[str, Any], after: dict[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
    """Name and arguments of the action between two pages; no name where the pages don't tell it."""
    here, there = before["page"], after["page"]
    content = mapping(after.get("content"))
    if there == "done":
        return "buy now", {"asin": content.get("asin"), "options": _options(after)}
    if there == "index":
        return "back to search", {}
    if there == "item_sub_page":
        return "show details", {"section": content.get("sub_page") or next(iter(_url_parts(after)[5:6]), None)}
    if there == "item_page":
        return _at_item(before, after)
    if here == "index" or _keywords(before) != _keywords(after):
        return "search", {"keywords": _keywords(after)}
    if here != "search_results":
        return "previous page", {}
    return _turned(mapping(before.get("content")).get("page"), content.get("page"))


def _at_item(before: dict[str, Any], after: dict[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
    """The action that leads to an item: opening it, choosing an option, or coming back from its details."""
    asin, options = mapping(after.get("content")).get("asin"), _options(after)
    if before["page"] == "item_sub_page":
        return "previous page", {}
    if before["page"] != "item_page" or mapping(before.get("content")).get("asin") != asin:
        return "open item", {"asin": asin}
    known = _options(before)
    changed = {key: value for key, value in options.items() if known.get(key) != value}
    return ("choose option", changed) if changed else (None, None)


def _turned(here: Any, there: Any) -> tuple[str | None, dict[str, Any] | None]:
    """Turning the pages of results, forward or back."""
    old, new = finite_number(_as_number(here)), finite_number(_as_number(there))
    if old is None or new is None or old == new:
        return None, None
    return ("next page", {}) if new > old else ("previous page", {})


def _as_number(value: Any) -> Any:
    """A number of a page, also where it is text."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value


def _keywords(page: dict[str, Any]) -> list[str]:
    """Words of a search: a list, or its text as the address has it."""
    given = mapping(page.get("content")).get("keywords")
    if isinstance(given, str):
        return [word.strip("'\" ") for word in given.strip("[]").split(",")]
    return [str(word) for word in sequence(given)]


def _options(page: dict[str, Any]) -> dict[str, Any]:
    return mapping(mapping(page.get("content")).get("options"))
