"""Names that are too long for an axis, shortened so that different names stay different where they can.

Names cut at their end are the easiest to read. Where that makes several of them look alike, the words that differ are kept
instead: what all of them share is cut out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from ..framing_choices import PART_SEPARATOR
from .theme import label

CUT = "…"
SHORTEST_VALUE = 4  # characters
_NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?")
_BEFORE_A_VALUE = re.compile(r".*[=:_/]")


def short_labels(texts: Sequence[str], limit: int) -> list[str]:
    """Safe labels of at most ``limit`` characters; names that a cut at the end would confuse lose what they share."""
    ends = [_cut(text, limit) for text in texts]
    if len(set(ends)) < len(set(texts)):
        ends = _without_what_they_share(texts, limit)
    return [label(text, limit) for text in ends]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + CUT


def _without_what_they_share(texts: Sequence[str], limit: int) -> list[str]:
    between = PART_SEPARATOR if any(PART_SEPARATOR in text for text in texts) else " "
    words = [text.split(between) for text in texts]
    if {len(row) for row in words} == {len(words[0])} != {1}:
        columns = [_distinct_parts(column) for column in zip(*words, strict=True)]
        texts = [between.join(part for part in row if part) for row in zip(*columns, strict=True)]
    return _cut_in_the_middle(texts, limit)


def _distinct_parts(words: Sequence[str]) -> list[str]:
    """One word of each text without the name that stands before its value; "" where it is the same in all of them.

    Long values such as hashes keep as much as tells them apart; a number keeps its digits, or it would be another one.
    """
    if len(set(words)) == 1:
        return [""] * len(words)
    name = _BEFORE_A_VALUE.match(_shared_beginning(words))
    start = name.end() if name else 0
    values = [word[start:] for word in words]
    length = max(map(len, values))
    if start and not any(_NUMBER.fullmatch(value) for value in values):
        enough = (k for k in range(SHORTEST_VALUE, length) if len({v[:k] for v in values}) == len(set(values)))
        length = next(enough, length)
    return [(CUT if start else "") + value[:length] for value in values]


def _cut_in_the_middle(texts: Sequence[str], limit: int) -> list[str]:
    """Texts whose beginnings agree show a little of it, then what comes after it."""
    shown = {text: _cut(text, limit) for text in texts}
    alike = _alike(shown)
    while alike:
        group = alike.pop()
        start = len(_shared_beginning(group))
        for text in group:
            shown[text] = _cut(text[: limit // 3] + CUT + text[_from(text, start, limit) :], limit)
        alike += [smaller for smaller in _alike({text: shown[text] for text in group}) if len(smaller) < len(group)]
    return [shown[text] for text in texts]


def _from(text: str, start: int, limit: int) -> int:
    """Where to go on behind the cut: where the text begins to differ, or earlier if there is room."""
    return min(start, len(text) - (limit - limit // 3 - len(CUT)))


def _shared_beginning(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    differ = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(differ, len(first))]


def _alike(shown: dict[str, str]) -> list[list[str]]:
    """Long texts that are shown alike."""
    groups: dict[str, list[str]] = defaultdict(list)
    for text, short in shown.items():
        if text != short:
            groups[short].append(text)
    return [group for group in groups.values() if len(group) > 1]
