"""Interfaces (ports) for reading rates from brokers, and the usage that brokers publish."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bundlekeel.ports.extensible import FeedStatus
from bundlekeel.quotas.published.usage_messages import PassedUsage
from bundlekeel.quotas.rules.rate_plan import Rate
from bundlekeel.quotas.rules.resource_group_plan import ResourceGroup
from bundlekeel.quotas.rules.usage import TopicRates


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRates:
    """Rates in a namespace's policies, which apply to each topic; None: not set.

    `resource_group`: the ResourceGroup that the namespace is attached to; "": it is not attached.
    """

    publish: Rate | None = None
    dispatch: Rate | None = None
    resource_group: str = ""


class QuotaAdmin(Protocol):
    """Read access to rates and ResourceGroups through the admin REST API. All methods raise AdminApiError on failure.

    Requests that write are in `QuotaCommands`.
    """

    async def topic_rates(self, broker_id: str, namespaces: Collection[str]) -> TopicRates:
        """Return the throughput of each topic or partition of these namespaces at that broker, sorted by name.

        The values are from the broker's last statistics run (`/admin/v2/broker-stats/topics`). The request changes
        nothing.
        """

    async def namespace_rates(self, namespace: str, cluster: str) -> NamespaceRates:
        """Return the rates in a namespace's policies for a cluster. Raises AdminRefused if the namespace is unknown."""

    async def resource_group(self, name: str) -> ResourceGroup | None:
        """Return a ResourceGroup; None: it does not exist. The request changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedUsage:
    """The last report of a broker on one ResourceGroup: usage in one period, and when it arrived (Unix ms).

    None and 0: no report arrived yet.
    """

    publish: PassedUsage | None = None
    dispatch: PassedUsage | None = None
    publish_ms: int = 0
    dispatch_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTables:
    """Usage that brokers published: by broker (service URL), then by ResourceGroup, from the last message.

    The values of a stopped broker stay. `fault`: why the newest unusable message could not be used; "": all messages
    were usable.
    """

    latest: Mapping[str, Mapping[str, ReceivedUsage]] = field(default_factory=dict)
    status: FeedStatus = field(default_factory=FeedStatus)
    fault: str = ""


class UsageFeed(Protocol):
    """Brokers' reports to each other on ResourceGroups (`non-persistent://pulsar/system/resource-usage`)."""

    async def start(self, service_urls: Sequence[str]) -> None:
        """Start to listen through any of these brokers; call again when they change. Does not wait for a broker."""

    def tables(self) -> UsageTables:
        """Return the newest tables. Never raises: if the connection is lost, `status` shows it, and the values stay."""

    async def close(self) -> None:
        """Stop listening, drop received data, and end the client's process."""
