"""Moves that maintenance windows allow now, given the open windows and the start of the others. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Allow = Literal["act", "overload", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpan:
    """One window: when it was opened last, if it is open still (0: it is not), when it ends then, when it opens next.

    Wall milliseconds; `next_ms` 0: never again. `allow`: everything, only relief of overload, or nothing at all.
    """

    allow: Allow
    opened_ms: int = 0
    ends_ms: int = 0
    next_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What may move now. `closed_by`: an open window that forbids it ("window"), or that none is open ("hours").
    `until_ms`: until when that holds at least, 0: for good, or not known."""

    allow: Allow = "act"
    until_ms: int = 0
    closed_by: str = ""


def allowance(spans: Sequence[WindowSpan]) -> Allowance:
    """What these windows allow together.

    A window that forbids wins over all others; of the others the one that allows most. Outside of all windows nothing
    may move, unless there are only windows that forbid: then everything may.
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
