"""Every call that changes a cluster. Only code that executes decisions may import this module (an import contract).

Each call needs a permit: a function that the adapter calls right before each request is written to the socket. If it
raises, nothing is sent. A leader's permit belongs to the term (epoch) in which the change was decided. It raises
LeadershipLost if that term is over, even if the same leader has a later term, and StoreError while the metadata store
is unreachable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bundlekeel.model.errors import LeadershipLost

Permit = Callable[[], None]
"""Raises if the change is not allowed now. Never waits."""
LookAgain = Callable[[], Awaitable[None]]
"""Awaited before each broker that is tried for a change. If it raises, no more brokers are tried."""


def by_person() -> None:
    """Permit an operator's own command: no lease is needed."""


async def no_look() -> None:
    """Skip the check between brokers: an operator's command needs none."""


def before_any_term() -> None:
    """Reject changes of a process that has never led. Raises LeadershipLost."""
    raise LeadershipLost("no term has begun")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadAnswer:
    """Response to an unload or a split, after redirects: final status, hops (broker ids), and duration in seconds."""

    status: int
    hops: tuple[str, ...]
    seconds: float


class BrokerCommands(Protocol):
    """Calls of the brokers' admin REST API that change bundles and settings.

    Raises AdminApiError, and the errors of the permit.
    """

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        """Unload a bundle, and follow 307 redirects from broker `at` (the leader broker if known)."""

    async def claim(self, topic: str, *, broker_id: str, permit: Permit) -> str:
        """Send an authoritative lookup to `broker_id`, which then acquires the bundle. Returns the responding broker's
        id.
        """

    async def split(self, bundle: str, *, positions: Sequence[int] | None, at: str, permit: Permit) -> UnloadAnswer:
        """Split a bundle at its owner `at`. Children are not unloaded.

        `positions`: hashes to split at (`specified_positions_divide`); None: in the middle (`range_equally_divide`).
        Success does not mean that anything was split: re-read the boundaries.
        """

    async def set_dynamic(self, key: str, value: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        """Store a dynamic override. The value is written as a whole, so the call may be repeated at another broker."""

    async def delete_dynamic(self, key: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        """Remove a dynamic override, with retries as in `set_dynamic`. An absent override is not an error."""
