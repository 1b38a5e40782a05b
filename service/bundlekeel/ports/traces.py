"""Traces: completed work as a tree of spans, and the port that receives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One completed piece of work.

    `start_ms`: Unix ms. `seconds`: duration. `error`: why the work failed; "": it did not. `children`: its parts.
    """

    name: str
    start_ms: float
    seconds: float
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    error: str = ""
    children: tuple[Span, ...] = ()


class SpanSink(Protocol):
    """Receives trees of spans and sends them to a trace collector in the background."""

    def add(self, root: Span) -> None:
        """Queue one tree of spans. Never waits or raises. Spans that cannot be sent are counted and dropped."""

    def close(self) -> None:
        """Send the remaining spans. Blocks for up to a few seconds."""
