"""Operators' requests for quota groups, as stored in the shared document `desired`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from bundlekeel.leader.state.documents import Desired


class QuotaRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A quota group that an operator set or removed (`removed`) at run time.

    Limits are per second over all brokers; None: no limit.
    """

    by: str
    reason: str
    since_ms: int
    removed: bool = False
    members: tuple[str, ...] = ()
    publish_messages: float | None = None
    publish_bytes: float | None = None
    dispatch_messages: float | None = None
    dispatch_bytes: float | None = None


QuotaRequests = dict[str, QuotaRequest]
# Fields that this feature adds to `Desired`: type and default. `quotas`: groups by name, which override the settings.
REQUESTS: Final = {"quotas": (QuotaRequests, QuotaRequests())}


def requests_of(desired: Desired) -> QuotaRequests:
    """Return the requests for quota groups, by name of the group."""
    requests: QuotaRequests = desired.quotas  # type: ignore[attr-defined]
    return requests
