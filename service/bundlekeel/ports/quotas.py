"""What quotas read at the brokers by admin REST, and what brokers tell each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bundlekeel.core.quotas.enforce import Rate
from bundlekeel.core.quotas.native import ResourceGroup
from bundlekeel.core.quotas.published_usage import PassedUsage
from bundlekeel.core.quotas.usage import TopicRates
from bundlekeel.ports.extensible import FeedState


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRates:
    """What a namespace's policies say of rates: of each topic in it, None where they say nothing. `resource_group`:
    the one it is attached to, "" for none."""

    publish: Rate | None = None
    dispatch: Rate | None = None
    resource_group: str = ""


class QuotaAdmin(Protocol):
    """The admin REST API as far as quotas read it; what they set is in `ports.commands`. Raises AdminApiError."""

    async def topic_rates(self, broker_id: str, namespaces: Collection[str]) -> TopicRates:
        """What each topic or partition of these namespaces passes at that broker, as of its last statistics run
        (`/admin/v2/broker-stats/topics`, harmless), sorted by name."""

    async def namespace_rates(self, namespace: str, cluster: str) -> NamespaceRates:
        """The rates in a namespace's policies for a Pulsar cluster (harmless). AdminRefused without the namespace."""

    async def resource_group(self, name: str) -> ResourceGroup | None:
        """A ResourceGroup, None without one (harmless)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedUsage:
    """What a broker said last of one ResourceGroup, of one period, and when that arrived here (wall clock, ms). None
    and 0: nothing yet."""

    publish: PassedUsage | None = None
    dispatch: PassedUsage | None = None
    publish_ms: int = 0
    dispatch_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTables:
    """What brokers told each other so far: by broker (service URL), then by ResourceGroup as of its last message. A
    broker that is gone stays. `state`, `detail`, `since_ms`: as in `LoadTables`. `fault`: why the newest of those
    messages that could not be used could not, "" without one."""

    latest: Mapping[str, Mapping[str, ReceivedUsage]] = field(default_factory=dict)
    state: FeedState = "off"
    detail: str = ""
    since_ms: int = 0
    fault: str = ""


class UsageFeed(Protocol):
    """What brokers report to each other of ResourceGroups (`non-persistent://pulsar/system/resource-usage`)."""

    async def start(self, service_urls: Sequence[str]) -> None:
        """Begin to listen, through any of these brokers; called again when they change. Never waits for a broker."""

    def tables(self) -> UsageTables:
        """The newest tables. Never raises: a feed that is down says so in `state`, its last figures stay."""

    async def close(self) -> None:
        """Stop listening, forget what was received, and end the client's process."""
