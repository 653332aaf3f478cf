"""Secrets and personal data in a log, replaced by marks before it is shared: keys, tokens, e-mail addresses, home folders.

Equal findings get equal marks (``[e-mail 1]``), different ones different marks, so that equal states and equal arguments
stay equal, and no two episodes become one. What is found is what looks like it: a password in a sentence is not.

Each pattern begins where a run of its own signs begins and eats that run, so its time is proportional to the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .importers.windows import parse_json
from .schema import COLUMNS, STEPS_ARROW_SCHEMA, TEXT_COLUMNS, canonical_json, short_hash

_JSON_COLUMNS = frozenset(column.name for column in COLUMNS if column.sql_type == "JSON")
_KEY_SIGNS = "A-Za-z0-9_-"
_MAIL_SIGNS = "A-Za-z0-9._%+-"
_NAME = r"[^\s/\\\"'`:;,<>|(){}\[\]]+"


def _behind(signs: str) -> str:
    r"""Where a run of these signs begins. JSON text writes a line break as \n, so the n there is none of the run."""
    escaped = r"(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\)(?![nrtbfu])"
    return rf"(?:(?<![\\{signs}])|{escaped})"


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of finding: what its mark is called, its pattern, and RE2 text that every cell with one matches.

    The pattern's group ``found`` is replaced; ``is_meant`` may refuse it.
    """

    mark: str
    sieve: str
    pattern: re.Pattern[str]
    is_meant: Callable[[str], bool] = lambda found: True


def _is_address(found: str) -> bool:
    """Whether text with an @ is an address of a person: git@host isn't, and neither is package@1.2.3."""
    user, _, host = found.rpartition("@")
    top = host.rpartition(".")[2]
    return len(top) >= 2 and top.isalpha() and user != "git"


def _is_secret(found: str) -> bool:
    """Whether a value that is called a password or token looks like one: letters and digits, or signs among letters."""
    letters = any(sign.isalpha() for sign in found)
    return letters and not found.isalpha() and not found.startswith(("[", "$", "<", "{"))


_PREFIXES = (
    r"[spr]k-",
    r"[spr]k_(?:live|test)_",
    r"gh[pousr]_",
    r"github_pat_",
    r"glpat-",
    r"xox[abeoprs]-",
    r"AIza",
    r"hf_",
    r"lsv2_(?:pt|sk)_",
    r"npm_",
    r"pypi-",
    r"dapi",
    r"tvly-",
    r"r8_",
    r"gsk_",
    r"xai-",
)
_NAMED = (
    r"(?:api[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|passw(?:or)?d|passwd|(?:access|auth|refresh|id)?[_-]?token)"
)

# In this order: a private key holds what looks like tokens, and a named secret may be a key that has a kind of its own.
KINDS: dict[str, _Kind] = {
    "private keys": _Kind(
        "private key",
        "PRIVATE KEY-----",
        re.compile(
            r"(?P<found>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[A-Za-z0-9+/=:,.\s]|\\+[nr]|-(?!-))*"
            r"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?)"
        ),
    ),
    "API keys": _Kind(
        "API key",
        r"[spr]k-|[spr]k_(live|test)_|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|AIza|hf_|lsv2_|npm_|pypi-|dapi|tvly-|r8_|gsk_"
        r"|xai-|AKIA|ASIA",
        re.compile(
            rf"{_behind(_KEY_SIGNS)}(?P<found>(?:{'|'.join(_PREFIXES)})[{_KEY_SIGNS}]{{16,}}|A[KS]IA[0-9A-Z]{{16}}(?![0-9A-Z]))"
        ),
        lambda found: any(sign.isdigit() for sign in found),  # sk-learn-compatible-estimator is none
    ),
    "tokens": _Kind(
        "token",
        r"eyJ|(?i)bearer|basic",
        re.compile(
            rf"{_behind(_KEY_SIGNS)}(?:(?P<found>eyJ[{_KEY_SIGNS}]{{8,}}\.[{_KEY_SIGNS}]{{8,}}(?:\.[{_KEY_SIGNS}]*)?)"
            r"|(?i:bearer|basic)\s{1,3}(?P<value>[A-Za-z0-9._~+/=-]{16,}))"
        ),
        lambda found: any(sign.isdigit() for sign in found),
    ),
    "named secrets": _Kind(
        "secret",
        r"(?i)key|secret|passw|token",
        re.compile(
            rf"(?i)(?:(?<=_)|{_behind('A-Za-z0-9_')}){_NAMED}\\{{0,4}}[\"']?\s{{0,3}}(?:[:=]|=>)\s{{0,3}}\\{{0,4}}[\"']?"
            r"(?P<found>[^\s\"'\\,;&(){}\[\]<>]{6,})"
        ),
        _is_secret,
    ),
    "e-mail addresses": _Kind(
        "e-mail",
        "@",
        re.compile(rf"{_behind(_MAIL_SIGNS)}(?P<found>[{_MAIL_SIGNS}]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)"),
        _is_address,
    ),
    "home directories": _Kind(
        "user",
        r"/home/|/Users/|(?i)[a-z]:[/\\]+users[/\\]",
        re.compile(
            rf"(?:/home/|/Users/)(?P<found>{_NAME})"
            rf"|[A-Za-z]:[/\\]+(?i:users)[/\\]+(?P<value>{_NAME}(?:(?: {_NAME}){{1,3}}(?=\\[^nrtbfu\"]))?)"
        ),
        lambda found: bool(found.strip(".")),
    ),
}


@dataclass(slots=True)
class Redactor:
    """Replaces findings in texts, and counts them.

    Attributes:
        counts: findings replaced so far, by kind.
    """

    counts: Counter[str] = field(default_factory=Counter)
    _numbers: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in KINDS})

    def text(self, text: str) -> str:
        """The text with marks in place of findings.

        >>> Redactor().text("mail ann@example.org or bob@example.org; ls /home/ann")
        'mail [e-mail 1] or [e-mail 2]; ls /home/[user 1]'
        """
        for name, kind in KINDS.items():
            text = kind.pattern.sub(lambda match, name=name, kind=kind: self._replaced(match, name, kind), text)  # type: ignore[misc]
        return text

    def _replaced(self, match: re.Match[str], name: str, kind: _Kind) -> str:
        group = "found" if match["found"] is not None else "value"
        found = match[group]
        if not kind.is_meant(found):
            return match[0]
        self.counts[name] += 1
        number = self._numbers[name].setdefault(found, 1 + len(self._numbers[name]))
        start, end = match.span(group)
        whole = match[0]
        return f"{whole[: start - match.start()]}[{kind.mark} {number}]{whole[end - match.start() :]}"


def redacted(steps: pa.Table, progress: Callable[[float], None] | None = None) -> tuple[pa.Table, Counter[str]]:
    """Steps with marks in place of secrets and personal data, and how many findings of each kind were replaced.

    Args:
        steps: a table with the columns of the schema.
        progress: called with the fraction done.
    """
    redactor = Redactor()
    for i, name in enumerate(TEXT_COLUMNS):
        if name == "arguments_hash":
            continue  # written anew below
        at = STEPS_ARROW_SCHEMA.get_field_index(name)
        column = _redacted_column(steps[name].cast(pa.string()), name in _JSON_COLUMNS, redactor)
        if column is not None:
            steps = steps.set_column(at, STEPS_ARROW_SCHEMA.field(at), column)
        if name == "arguments" and column is not None:
            at = STEPS_ARROW_SCHEMA.get_field_index("arguments_hash")
            hashes = [None if text is None else short_hash(text) for text in column.to_pylist()]
            steps = steps.set_column(at, STEPS_ARROW_SCHEMA.field(at), pa.array(hashes, pa.string()))
        if progress:
            progress((i + 1) / len(TEXT_COLUMNS))
    return steps, redactor.counts


def _redacted_column(column: pa.ChunkedArray, is_json: bool, redactor: Redactor) -> pa.Array | None:
    """The column with marks; None where nothing was found. Equal cells are looked at once, and few of them closely."""
    values = pc.dictionary_encode(column.combine_chunks())
    texts = values.dictionary
    sieve = "|".join(f"(?:{kind.sieve})" for kind in KINDS.values())
    suspects = pc.indices_nonzero(pc.match_substring_regex(texts, sieve)).to_pylist()
    uses = Counter(values.indices.drop_null().to_pylist()) if suspects else Counter()
    changed = _changed(texts, suspects, is_json, redactor, uses)
    if not changed:
        return None
    new = pa.array([changed.get(i, text) for i, text in enumerate(texts.to_pylist())], pa.string())
    return new.take(values.indices)


def _changed(
    texts: pa.Array, suspects: Sequence[int], is_json: bool, redactor: Redactor, uses: Counter[int]
) -> dict[int, str]:
    """New text of each cell in which something was found, by its place; findings count once per use of a cell."""
    changed = {}
    for i in suspects:
        text, before = texts[i].as_py(), redactor.counts.copy()
        new = (_redacted_json if is_json else Redactor.text)(redactor, text)
        if new == text:
            continue
        changed[i] = new
        for name, n in (redactor.counts - before).items():
            redactor.counts[name] += n * (uses[i] - 1)
    return changed


def _redacted_json(redactor: Redactor, text: str) -> str:
    """JSON text with marks, in the one form that equal values have."""
    before, reason = parse_json(text)
    counts = redactor.counts.copy()
    new = redactor.text(text)  # all of it at once, because the name of a secret and its value are two strings
    if reason or new == text:
        return new
    value, reason = parse_json(new)
    if reason:  # a mark took a part of an escape with it
        redactor.counts = counts
        value = _redacted_strings(redactor, before)
    return canonical_json(value)


def _redacted_strings(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, dict):
        return {redactor.text(key): _redacted_strings(redactor, item) for key, item in value.items()}
    return [_redacted_strings(redactor, item) for item in value] if isinstance(value, list) else value
