"""What to keep in mind with estimates: a mark at each number, and each sentence once, below the table."""

from __future__ import annotations

import streamlit as st

from offrl_core.evaluation.ope import Estimate

from . import layout

NO_SPREAD = 1e-9  # of an interval, next to the value: its ends differ by rounding alone
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Caveats:
    """Sentences by the number of their mark, in the order in which a table comes upon them."""

    def __init__(self) -> None:
        """Nothing was warned of yet."""
        self._marks: dict[str, str] = {}

    def told(self, guess: Estimate) -> str:
        """An estimate with its interval and its marks, or that there is none."""
        if guess.value is None:
            return "refused"
        has_spread = guess.high - guess.low > NO_SPREAD * max(1.0, abs(guess.value))
        spread = f"[{guess.low:+z.3f}, {guess.high:+z.3f}]" if has_spread else "(no spread)"
        return " ".join([f"{guess.value:+z.3f}", spread, *map(self._mark, guess.warnings)])

    def _mark(self, sentence: str) -> str:
        return self._marks.setdefault(sentence, str(len(self._marks) + 1).translate(_RAISED))

    def render(self) -> None:
        """The sentences."""
        for sentence, mark in self._marks.items():
            st.caption(f"{mark} {layout.plain(sentence, 600)}")
