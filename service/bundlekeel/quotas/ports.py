"""Reading quotas from brokers through the admin REST API, and the usage that brokers publish."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bundlekeel.ports.extensible import FeedStatus
from bundlekeel.quotas.enforce import Rate
from bundlekeel.quotas.native import ResourceGroup
from bundlekeel.quotas.published_usage import PassedUsage
from bundlekeel.quotas.usage import TopicRates


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRates:
    """Rates in a namespace's policies, per topic; None: not set. `resource_group`: the attached one; "": none."""

    publish: Rate | None = None
    dispatch: Rate | None = None
    resource_group: str = ""


class QuotaAdmin(Protocol):
    """Read access to the admin REST API for quotas. Writes are in `ports.commands`. Raises AdminApiError."""

    async def topic_rates(self, broker_id: str, namespaces: Collection[str]) -> TopicRates:
        """Return the throughput of each topic or partition of these namespaces at that broker, sorted by name.

        It is that of the broker's last statistics run (`/admin/v2/broker-stats/topics`, harmless).
        """

    async def namespace_rates(self, namespace: str, cluster: str) -> NamespaceRates:
        """Return the rates in a namespace's policies for a cluster (harmless). Raises AdminRefused if there is none."""

    async def resource_group(self, name: str) -> ResourceGroup | None:
        """Return a ResourceGroup (harmless); None: it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedUsage:
    """The last report of a broker on one ResourceGroup for one period, and when it arrived (Unix ms). None, 0: none
    yet.
    """

    publish: PassedUsage | None = None
    dispatch: PassedUsage | None = None
    publish_ms: int = 0
    dispatch_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTables:
    """Usage that brokers published: by broker (service URL), then by ResourceGroup, from the last message.

    A stopped broker stays. `fault`: why the newest unusable message could not be used; "": all were usable.
    """

    latest: Mapping[str, Mapping[str, ReceivedUsage]] = field(default_factory=dict)
    status: FeedStatus = field(default_factory=FeedStatus)
    fault: str = ""


class UsageFeed(Protocol):
    """Brokers' reports to each other on ResourceGroups (`non-persistent://pulsar/system/resource-usage`)."""

    async def start(self, service_urls: Sequence[str]) -> None:
        """Start to listen through any of these brokers. Called again when they change. Never waits for a broker."""

    def tables(self) -> UsageTables:
        """Return the newest tables. Never raises: `status` shows that a feed is down, and its last values stay."""

    async def close(self) -> None:
        """Stop listening, drop received data, and end the client's process."""
