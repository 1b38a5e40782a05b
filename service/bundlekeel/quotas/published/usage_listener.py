"""Usage of ResourceGroups that brokers publish to each other, for display only.

Brokers divide the limit of a ResourceGroup in proportion to these values. A comparison with the measured usage shows
whether the other brokers count the traffic of a broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from bundlekeel.model.numbers import setting
from bundlekeel.ports import BrokerEndpoint, Clock
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.quotas.ports import ReceivedUsage, UsageFeed
from bundlekeel.quotas.published.usage_messages import PassedUsage
from bundlekeel.quotas.rules.groups import KINDS, Membership
from bundlekeel.quotas.rules.usage import UsageTable

Json = dict[str, Any]
TRANSPORT_KEY: Final = "resourceUsageTransportClassName"
# Class of the only transport that Pulsar contains. The messages of other transports are unknown.
BY_TOPIC: Final = "org.apache.pulsar.broker.resourcegroup.ResourceUsageTopicTransportManager"
_PERIOD_KEY: Final = "resourceUsageTransportPublishIntervalInSecs"
_PERIOD_DEFAULT: Final = 60.0
# Maximum number of rows of all groups together, because the report must fit into the shared state.
_ALL_ROWS: Final = 2000


@dataclass(slots=True)
class UsageListener:
    """Reads the published usage while there are quota groups and brokers publish their usage.

    `service_urls`: addresses of brokers, used instead of those that the brokers registered. `prefer_tls`: use the
    brokers' encrypted addresses.
    """

    feed: UsageFeed
    config: BrokerConfig
    clock: Clock
    service_urls: tuple[str, ...] = ()
    prefer_tls: bool = False
    # Brokers by service URL, including brokers that have left.
    _ids: dict[str, str] = field(default_factory=dict)
    _listens: bool = False

    async def follow(self, groups: bool, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """Start to listen if there are quota groups (`groups`) and a broker publishes its usage, else stop.

        Does not wait for a broker.
        """
        settings = [values for broker in endpoints if (values := self.config.values(broker)) is not None]
        if not groups or (settings and not any(values.get(TRANSPORT_KEY) == BY_TOPIC for values in settings)):
            await self.stop()
        elif settings:
            self._ids |= {_url(item.service_url): broker for broker, item in endpoints.items() if item.service_url}
            registered = {item.client_url(tls=self.prefer_tls) for item in endpoints.values()} - {""}
            self._listens = True
            await self.feed.start(self.service_urls or tuple(sorted(registered)))

    async def stop(self) -> None:
        """Stop listening and drop all values."""
        if self._listens:
            self._listens = False
            self._ids.clear()
            await self.feed.close()

    def view(self) -> Json:
        """Return the state of the subscription to published usage, with the fields of `TransportView`."""
        tables = self.feed.tables()
        return {**asdict(tables.status), "fault": tables.fault}

    def reported(
        self, membership: Membership, table: UsageTable, endpoints: Mapping[str, BrokerEndpoint]
    ) -> dict[str, list[Json]]:
        """Return, by group, one row for each broker that published its usage or serves the group; most usage first."""
        if not self._listens:
            return {}
        received = self.feed.tables().latest
        most = max(1, _ALL_ROWS // max(1, len(membership.groups)))
        result: dict[str, list[Json]] = {}
        for number, group in enumerate(membership.groups):
            rates = zip(table.brokers, table.by_broker(number).tolist(), strict=True)
            measured = {broker: row for broker, row in rates if any(row)}
            published = {
                self._broker(url): groups[group.name] for url, groups in received.items() if group.name in groups
            }
            rows = [
                {"registered": broker in endpoints, **self._row(broker, published.get(broker), measured.get(broker))}
                for broker in {**published, **measured}
            ]
            rows.sort(key=lambda row: (-(row["reported"]["publish_messages"] or 0.0), row["broker"]))
            result[group.name] = rows[:most]
        return result

    def _row(self, broker: str, received: ReceivedUsage | None, measured: Sequence[float] | None) -> Json:
        usage = received or ReceivedUsage()
        now, period = self.clock.wall_ms(), self._period(broker)
        rates = (*_per_second(usage.publish, period), *_per_second(usage.dispatch, period))
        return {
            "broker": broker,
            "reported": dict(zip(KINDS, rates, strict=True)),
            "measured": None if measured is None else dict(zip(KINDS, map(_rounded, measured), strict=True)),
            "publish_age_seconds": _age(usage.publish_ms, now),
            "dispatch_age_seconds": _age(usage.dispatch_ms, now),
        }

    def _broker(self, url: str) -> str:
        return self._ids.get(_url(url), url)

    def _period(self, broker: str) -> float:
        """Return the seconds between two reports of a broker; for a stopped broker, the interval of the others."""
        values = self.config.values(broker) or self.config.adoptable()
        return setting(values, _PERIOD_KEY, _PERIOD_DEFAULT, lowest=1)


def uncounted(rows: Sequence[Json]) -> set[str]:
    """Return the brokers that last published a usage of 0, which takes no part of the limit from other brokers."""
    return {
        row["broker"] for row in rows if row["reported"]["publish_messages"] == row["reported"]["publish_bytes"] == 0
    }


def _url(url: str) -> str:
    return url.rstrip("/")


def _per_second(passed: PassedUsage | None, period: float) -> tuple[float | None, float | None]:
    return (None, None) if passed is None else (_rounded(passed.messages / period), _rounded(passed.size / period))


def _rounded(value: float) -> float:
    return round(value, 3)


def _age(at_ms: int, now_ms: int) -> float | None:
    return max(0, now_ms - at_ms) / 1000 if at_ms else None
