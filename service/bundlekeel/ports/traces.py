"""Traces: completed work as a tree of spans, and the port that receives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One piece of work that is over. `start_ms`: wall milliseconds; `seconds`: how long it took; `error`: what went
    wrong, "" for nothing; `children` lie within it."""

    name: str
    start_ms: float
    seconds: float
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    error: str = ""
    children: tuple[Span, ...] = ()


class SpanSink(Protocol):
    """Takes trees of spans and sends them on by itself."""

    def add(self, root: Span) -> None:
        """Take one tree. Returns at once, never raises; what cannot be sent is counted and lost."""

    def close(self) -> None:
        """Send what is left, within a few seconds; blocks meanwhile."""
