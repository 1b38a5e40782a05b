"""Notifications, and the port that receives them."""

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
    """One event for operators. `reason`: a code, or another CamelCase word. `text`: one English sentence.

    `member`: id of the sidecar that sends it. `details`: numbers and names as JSON values, never a secret.
    """

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
        """Send the notification once, within the receiver's time limit. Raises NotificationError if that fails."""

    async def close(self) -> None:
        """Close pooled connections."""
