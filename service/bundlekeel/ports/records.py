"""Notifications and traces: what they are made of, and who takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

Event = Literal["executions", "stops", "findings", "adoption"]
Severity = Literal["info", "warning", "critical"]

EVENTS: Final[tuple[Event, ...]] = ("executions", "stops", "findings", "adoption")
SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One thing that happened. `reason`: one word in CamelCase, a code where there is one; `text`: one English
    sentence; `details`: figures and names as JSON values, never a secret."""

    event: Event
    severity: Severity
    reason: str
    text: str
    wall_ms: int
    cluster: str
    member: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Notifier(Protocol):
    """One receiver of notifications."""

    async def send(self, notice: Notification) -> None:
        """Hand it over, once, within its own time limit. NotificationError otherwise."""

    async def close(self) -> None:
        """Close pooled connections."""


# Traces: finished pieces of work as a tree of spans, and who takes them.


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
