"""Computes which moves the maintenance windows allow now, and until when. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Allow = Literal["act", "overload", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpan:
    """One maintenance window.

    `opened_ms`, `ends_ms`: start and end of its current opening; 0: it is closed. `next_ms`: start of its next opening;
    0: never again. Times are Unix milliseconds. `allow`: everything, only relief of overload, or nothing.
    """

    allow: Allow
    opened_ms: int = 0
    ends_ms: int = 0
    next_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The moves allowed now. `closed_by`: "window" if an open window forbids moves, "hours" if no window is open.
    `until_ms`: earliest end of this state in Unix ms; 0: it has no end, or the end is unknown."""

    allow: Allow = "act"
    until_ms: int = 0
    closed_by: str = ""


def allowance(spans: Sequence[WindowSpan]) -> Allowance:
    """Return the moves that these windows allow together.

    A window that forbids moves overrides all others. Of other open windows, the one that allows most applies. Outside
    of all windows nothing may move. If all windows only forbid moves, everything may move outside of them.
    """
    open_now = [span for span in spans if span.opened_ms]
    for allow in ("nothing", "act", "overload"):
        ends = [span.ends_ms for span in open_now if span.allow == allow]
        if ends:
            return Allowance(allow=_allow(allow), until_ms=max(ends), closed_by="window" if allow == "nothing" else "")
    opening = [span.next_ms for span in spans if span.allow != "nothing"]
    if not opening:
        return Allowance()
    return Allowance(allow="nothing", until_ms=min((at for at in opening if at), default=0), closed_by="hours")


def _allow(word: str) -> Allow:
    return "nothing" if word == "nothing" else "act" if word == "act" else "overload"
