"""Every call that changes a cluster. Only what executes decisions may import this module (an import contract).

Each call takes a permit, and cannot be made without one: the adapter asks it right before each request is written to
the socket, and sends nothing when it raises. A leader's permit is bound to the epoch in which the change was decided:
LeadershipLost when that term is over, also when a later term is this leader's again; StoreError while the metadata
store is out of reach.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bundlekeel.core.model.errors import LeadershipLost
from bundlekeel.core.quotas.enforce import PolicyKey, Rate
from bundlekeel.core.quotas.native import ResourceGroup

Permit = Callable[[], None]
"""Raises when the change may not be made now. Never waits."""
LookAgain = Callable[[], Awaitable[None]]
"""Awaited before each broker is asked for a change; what it raises ends it there."""


def by_person() -> None:
    """The permit of a person's own command: no lease is needed."""


async def no_look() -> None:
    """A person's word needs no second look."""


def before_any_term() -> None:
    """The permit of who has never led. LeadershipLost."""
    raise LeadershipLost("no term has begun")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadAnswer:
    """What the chain of an unload or a split said: final status, hops taken (broker ids), and seconds it took."""

    status: int
    hops: tuple[str, ...]
    seconds: float


class BrokerCommands(Protocol):
    """The calls of the brokers' admin REST API that change bundles and settings. Raises AdminApiError, and what the
    permit raises."""

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        """Unload, following 307s by hand from broker `at` (the leader broker if known)."""

    async def claim(self, topic: str, *, broker_id: str, permit: Permit) -> str:
        """Authoritative lookup at `broker_id`: it takes the bundle; returns the answering broker's id."""

    async def split(self, bundle: str, *, positions: Sequence[int] | None, at: str, permit: Permit) -> UnloadAnswer:
        """Split at these positions (`specified_positions_divide`), None: in the middle (`range_equally_divide`), asked
        at the owner `at`. Children are not unloaded. Success does not mean that anything was split: re-read the
        boundaries."""

    async def set_dynamic(self, key: str, value: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        """Store a dynamic override. The value is written as a whole, so it may be sent to one broker after another."""

    async def delete_dynamic(self, key: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        """Remove a dynamic override, as `set_dynamic` stores one; quiet when there was none."""


class QuotaCommands(Protocol):
    """The calls that change rates and ResourceGroups. Raises as `BrokerCommands` does."""

    async def topic_rate(self, place: PolicyKey, *, permit: Permit) -> Rate | None:
        """A topic's own policy, None without one. AdminRefused (404) without the topic, (405) where topic policies are
        off. No harmless read: the broker assigns the topic's bundle when no broker owns it."""

    async def set_topic_rate(self, place: PolicyKey, rate: Rate | None, *, permit: Permit) -> None:
        """Set a topic's own policy, None removes it."""

    async def set_resource_group(self, name: str, group: ResourceGroup | None, *, permit: Permit) -> None:
        """Make or change a ResourceGroup, None removes it. AdminRefused (412) while namespaces use it."""

    async def attach(self, namespace: str, name: str, *, permit: Permit) -> None:
        """Attach a namespace to a ResourceGroup, "" detaches it. AdminRefused (412) without the group."""
