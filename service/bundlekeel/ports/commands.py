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
"""Check right before a change is sent: raises if the change is not allowed now. Never waits."""
LookAgain = Callable[[], Awaitable[None]]
"""Check that is awaited before a change is sent to the next broker. If it raises, no more brokers are tried."""


def by_person() -> None:
    """Allow every change: the permit of an operator's own command, which does not need leadership."""


async def no_look() -> None:
    """Do nothing: the `LookAgain` check of an operator's command, which needs no check."""


def before_any_term() -> None:
    """Reject every change: the permit of a process that has not been leader yet. Raises LeadershipLost."""
    raise LeadershipLost("no term has begun")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadAnswer:
    """Response to an unload or a split: final HTTP status, ids of all brokers called (redirects), and duration."""

    status: int
    hops: tuple[str, ...]
    seconds: float


class BrokerCommands(Protocol):
    """Calls of the brokers' admin REST API that change bundles and settings.

    Raises AdminApiError, and the errors of the permit.
    """

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        """Unload a bundle to `destination` (None: any broker). Starts at broker `at` and follows redirects."""

    async def claim(self, topic: str, *, broker_id: str, permit: Permit) -> str:
        """Let `broker_id` acquire a topic's unowned bundle by a lookup. Returns the owner that the response names."""

    async def split(self, bundle: str, *, positions: Sequence[int] | None, at: str, permit: Permit) -> UnloadAnswer:
        """Split a bundle at its owner `at`. The new bundles stay there.

        `positions`: hashes to split at (`specified_positions_divide`); None: in the middle (`range_equally_divide`).
        Brokers report success even if they split nothing: re-read the boundaries.
        """

    async def set_dynamic(self, key: str, value: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        """Set a dynamic broker setting. If a broker fails, the next broker is tried, because a second write of the
        value does no harm."""

    async def delete_dynamic(self, key: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        """Remove a dynamic broker setting, with retries as in `set_dynamic`. An absent setting is not an error."""
