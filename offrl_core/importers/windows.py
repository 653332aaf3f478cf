"""Reading JSON values that may span lines, out of text that is decoded part by part."""

from __future__ import annotations

import json
import re
from typing import Any

LENIENT_DECODER = json.JSONDecoder(strict=False)  # takes raw tabs, line breaks and NUL inside strings

_DECODER = json.JSONDecoder()  # Python's, because it takes the NaN and Infinity that Python itself writes
# Bytes decoded at a time. The memory of larger texts goes back to the system each time, and is fetched anew.
_WINDOW = 2**17
_LONGEST_TOKEN = 16  # characters of a word, number or escape that the end of a window may cut
_BEFORE_JSON = " \t\n\r\ufeff"  # what json.loads looks at before the value
_GAP = re.compile(r"[\s,\x00\ufeff]*")  # what may stand between two values; tolerates trailing and doubled commas


def parse_json(text: str) -> tuple[Any, str]:
    """Parse JSON text into (value, ""), or (None, why not) where it can't be parsed."""
    value, end, error = value_at(text, 0, _DECODER)
    if end == len(text):
        return value, ""
    if error and text[:1] not in _BEFORE_JSON:
        return None, reason_of(error)
    # Something stands around the value. To look for it takes json.loads half of its time, and it is seldom there.
    try:
        return json.loads(text), ""
    except (ValueError, RecursionError) as failure:
        return None, reason_of(failure)


def reason_of(error: Exception) -> str:
    """Why a text isn't JSON, in words."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return "it holds a number of several thousand digits"  # the only other ValueError of the decoder


class Window:
    """A reader of values that may span lines; holds only the decoded part of the text around its position.

    Attributes:
        offset: byte position in the whole text.
    """

    def __init__(self, data: bytes, offset: int = 0) -> None:
        """Stand at a byte of a text in valid UTF-8."""
        self.data = data
        self._counted = self._n_breaks = 0  # line breaks in the bytes up to a place
        self.jump(offset)

    def jump(self, offset: int) -> None:
        """Go to a byte, the first one of a character."""
        self.offset = self._begin = self._end = offset
        self._text, self._at = "", 0
        self._decode_more()

    def sign(self) -> str:
        """The character here, after white space, commas and NUL were skipped; "" at the end of the text."""
        while True:
            gap = _GAP.match(self._text, self._at)
            self._move(gap.end() if gap else self._at)
            if self._at < len(self._text) or not self._decode_more():
                return self._text[self._at : self._at + 1]

    def skip(self) -> None:
        """Go past the character here."""
        self._move(self._at + 1)

    def value(self, *, any_value: bool) -> tuple[Any, str, bool]:
        """Decode the value here and go past it: (value, "", mended), or (None, why not, False).

        Outside an array only objects and arrays count: in plain text every number would pass for a record.
        """
        if not any_value and self._text[self._at] not in "{[":
            return None, "an object or array was expected", False
        decoder = _DECODER
        while True:
            value, end, error = value_at(self._text, self._at, decoder)
            if self._may_be_cut(end, error) and self._decode_more():
                continue
            if error is None:
                self._move(end)
                return value, "", decoder is LENIENT_DECODER
            if decoder is LENIENT_DECODER or "control character" not in str(error):
                return None, self._reason(error), False
            decoder = LENIENT_DECODER

    def _may_be_cut(self, end: int, error: Exception | None) -> bool:
        """Whether the end of the window may have cut the value (a number there may go on)."""
        if isinstance(error, json.JSONDecodeError):
            return error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _LONGEST_TOKEN
        return error is None and end == len(self._text)

    def _reason(self, error: Exception) -> str:
        """Why there is no value here, with the line and column of the whole text."""
        if not isinstance(error, json.JSONDecodeError):
            return reason_of(error)
        self._n_breaks += self.data.count(b"\n", self._counted, self._begin)
        self._counted = self._begin
        line, column = self._n_breaks + error.lineno, error.colno
        if error.lineno == 1:
            column += len(self.data[self.data.rfind(b"\n", 0, self._begin) + 1 : self._begin].decode())
        return f"{error.msg.removesuffix(' at')} at line {line}, column {column}"

    def _move(self, to: int) -> None:
        passed = self._text[self._at : to]
        self.offset += len(passed) if passed.isascii() else len(passed.encode())
        self._at = to

    def _decode_more(self) -> bool:
        """Decode more of the text, twice as much for a long value; False at its end."""
        if self._end == len(self.data):
            return False
        end = min(len(self.data), self._end + max(_WINDOW, self._end - self.offset))
        while end < len(self.data) and self.data[end] & 0xC0 == 0x80:  # never in the middle of a character
            end -= 1
        self._text = self._text[self._at :] + self.data[self._end : end].decode()
        self._begin = self.offset
        self._at, self._end = 0, end
        return True


def value_at(text: str, position: int, decoder: json.JSONDecoder) -> tuple[Any, int, Exception | None]:
    """Decode the value that starts here: (value, end, None), or (None, -1, the error)."""
    try:
        value, end = decoder.raw_decode(text, position)
    except (ValueError, RecursionError) as error:
        return None, -1, error
    return value, end, None
