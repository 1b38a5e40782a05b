"""`LoadSource`, `Ownership` and `Metadata` in memory, whose content a test sets, and a clock with the real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bundlekeel.model.double_service import ServedTwice
from bundlekeel.model.errors import CodecError, SnapshotError, StoreError
from bundlekeel.model.load import (
    AdvertisedListener,
    BrokerEndpoint,
    BrokerReport,
    BundleAverages,
    ExcludedBroker,
    Owner,
)
from bundlekeel.model.migration import StoreMigration
from bundlekeel.model.names import parse_bundle, parse_topic
from bundlekeel.model.policies import IsolationPolicy
from bundlekeel.model.scalable import Segment
from bundlekeel.ports import Clock, PolicyRecords, RawClusterView
from tests.support.generations import Generations


class RealClock:
    """Clock over the machine's own clocks, for tests against real processes."""

    def boot(self) -> float:
        """Seconds on CLOCK_BOOTTIME."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait in real time."""
        await asyncio.sleep(seconds)


class MemoryLoadSource(Generations):
    """LoadSource whose brokers a test puts and removes. Each change is a new generation at once.

    Before the first change `picture()` raises SnapshotError; while `suspended` it raises StoreError.
    """

    def __init__(self, clock: Clock, *, mode: str = "modular") -> None:
        super().__init__()
        self.mode = mode
        self.served_twice: tuple[ServedTwice, ...] = ()
        self.suspended = False
        self.averages: dict[str, BundleAverages] = {}
        self.started = self.closed = False
        self._clock = clock
        self._reports: dict[str, BrokerReport] = {}
        self._excluded: dict[str, ExcludedBroker] = {}
        self._endpoints: dict[str, BrokerEndpoint] = {}

    # --- what a test may do --------------------------------------------------------------------------------

    def put(self, *reports: BrokerReport, service_url: str = "") -> None:
        """Brokers report; those not registered yet register. `service_url`: the address of each."""
        for report in reports:
            self._excluded.pop(report.broker_id, None)
            self._reports[report.broker_id] = report
            self._endpoints[report.broker_id] = BrokerEndpoint(
                broker_id=report.broker_id,
                web_url=f"http://{report.broker_id}",
                service_url=service_url,
                load_manager=report.load_manager,
                version=report.version,
                start_timestamp=report.start_timestamp,
            )
        self._publish()

    def advertise(self, broker_id: str, *listeners: AdvertisedListener) -> None:
        """Set the advertised listeners of a registered broker."""
        self._endpoints[broker_id] = replace(self._endpoints[broker_id], listeners=listeners)
        self._publish()

    def exclude(self, broker_id: str, code: str, detail: str = "") -> None:
        """Make the record of a registered broker unusable. `code`: the reason."""
        self._reports.pop(broker_id, None)
        self._excluded[broker_id] = ExcludedBroker(broker_id=broker_id, code=code, detail=detail)
        self._endpoints.setdefault(broker_id, BrokerEndpoint(broker_id=broker_id, web_url=f"http://{broker_id}"))
        self._publish()

    def remove(self, *broker_ids: str) -> None:
        """Delete brokers."""
        for broker_id in broker_ids:
            self._reports.pop(broker_id, None)
            self._excluded.pop(broker_id, None)
            self._endpoints.pop(broker_id, None)
        self._publish()

    # --- LoadSource ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        self.started = True

    async def picture(self) -> RawClusterView:
        if self.suspended:
            raise StoreError("the source in memory is suspended")
        if self._generation == 0:
            raise SnapshotError("the source in memory has been given nothing yet")
        return RawClusterView(
            wall_ms=self._clock.wall_ms(),
            boot=self._clock.boot(),
            generation=self._generation,
            mode=self.mode,
            reports=tuple(self._reports[broker_id] for broker_id in sorted(self._reports)),
            excluded=tuple(self._excluded[broker_id] for broker_id in sorted(self._excluded)),
            endpoints=dict(sorted(self._endpoints.items())),
            served_twice=self.served_twice,
        )

    async def seeds(self, bundles: Sequence[str]) -> list[BundleAverages]:
        """See LoadSource; from `averages`."""
        if self.suspended:
            raise StoreError("the source in memory is suspended")
        return [self.averages[bundle] for bundle in dict.fromkeys(bundles) if bundle in self.averages]

    async def close(self) -> None:
        self.closed = True


class MemoryOwnership:
    """Ownership by bundle name; set `owners[bundle]` or use `assign`."""

    def __init__(self) -> None:
        self.owners: dict[str, Owner] = {}
        self.suspended = False
        self.reads = 0

    def assign(self, broker_id: str, *bundles: str, disabled: bool = False) -> None:
        """Make a broker the owner of these bundles."""
        for bundle in bundles:
            self.owners[bundle] = Owner(broker_id=broker_id, disabled=disabled, web_url=f"http://{broker_id}")

    async def owner(self, bundle: str) -> Owner | None:
        await asyncio.sleep(0)
        self.reads += 1
        if self.suspended:
            raise StoreError("ownership in memory is suspended")
        return self.owners.get(bundle)


class MemoryMetadata:
    """Metadata a test writes into the public dictionaries."""

    def __init__(self) -> None:
        self.bundle_boundaries: dict[str, list[int]] = {}
        self.partition_counts: dict[str, int] = {}
        self.topic_names: set[str] = set()
        self.scalable: list[Segment] = []
        self.segment_loads: dict[str, tuple[float, float, float, float]] = {}
        self.leader: str | None = None
        self.suspended = False
        self.tenant_names: set[str] = set()
        # Pulsar clusters that have a node; None: any.
        self.clusters: set[str] | None = None
        # By Pulsar cluster; a text instead of the records is what is wrong with them.
        self.isolation: dict[str, tuple[IsolationPolicy, ...] | str] = {}
        self.domains: dict[str, dict[str, tuple[str, ...]]] = {}
        self.groups: dict[str, str] = {}
        self.unreadable: set[str] = set()
        self.followed: list[str] = []
        self.migration_now = StoreMigration()
        # The state that a read returns before the watch has fired; None: `migration_now`.
        self.unseen: StoreMigration | None = None

    def migrate(self, phase: str, target: str = "oxia://o:6648/mig") -> None:
        """Write this phase of a migration of the metadata store, as the brokers' coordinator does."""
        self.migration_now = StoreMigration(phase=phase, target=target, stamp=self.migration_now.stamp + 1)

    async def migration(self) -> StoreMigration:
        self._enter()
        self.migration_now = self.unseen or self.migration_now
        return self.migration_now

    def add_topics(self, names: Iterable[str]) -> None:
        """Add persistent topics by their full names."""
        self.topic_names.update(names)

    async def boundaries(self, namespace: str) -> list[int] | None:
        self._enter()
        boundaries = self.bundle_boundaries.get(namespace)
        return None if boundaries is None else list(boundaries)

    async def partitions(self, topic: str) -> int:
        self._enter()
        return self.partition_counts.get(topic, 0)

    async def metadata_leader(self) -> str | None:
        self._enter()
        return self.leader

    async def topics(self, bundle: str) -> list[str]:
        self._enter()
        name = parse_bundle(bundle)
        topics = [(text, parse_topic(text)) for text in sorted(self.topic_names)]
        return [text for text, topic in topics if topic.namespace == name.namespace and name.covers(topic.hash)]

    async def layouts(self) -> list[Segment]:
        self._enter()
        return self.scalable

    async def segment_load(self, segment: Segment) -> tuple[float, float, float, float]:
        self._enter()
        return self.segment_loads.get(segment.name, (0.0, 0.0, 0.0, 0.0))

    async def segments(self, topic: str) -> list[str]:
        self._enter()
        names = [text for text in sorted(self.topic_names) if text.startswith("segment://")]
        own = [text for text in names if str(parse_topic(text).scalable_topic) == topic]
        return sorted({*own, *(item.name for item in self.scalable if str(item.topic) == topic)})

    async def policies(self, cluster: str, namespaces: Sequence[str]) -> PolicyRecords:
        self._enter()
        if self.clusters is not None and cluster not in self.clusters:
            raise StoreError(
                f"there is no /admin/clusters/{cluster} in the configuration store: it is not the brokers'"
            )
        isolation = self.isolation.get(cluster, ())
        if isinstance(isolation, str):
            raise CodecError(isolation, code="NotJson")
        return PolicyRecords(
            isolation=isolation,
            failure_domains=dict(self.domains.get(cluster, {})),
            anti_affinity={name: self.groups[name] for name in namespaces if self.groups.get(name)},
            unreadable=frozenset(self.unreadable & set(namespaces)),
        )

    async def namespaces(self) -> list[str]:
        """All namespaces that have boundaries."""
        self._enter()
        return sorted(self.bundle_boundaries)

    async def tenants(self) -> list[str]:
        """Return the tenants of all namespaces, and the others that a test adds."""
        self._enter()
        return sorted(self.tenant_names | {name.partition("/")[0] for name in self.bundle_boundaries})

    async def follow(self, store: str) -> None:
        """Accept another configuration store of the brokers."""
        self.followed.append(store)

    async def close(self) -> None:
        """Do nothing."""

    def _enter(self) -> None:
        if self.suspended:
            raise StoreError("metadata in memory is suspended")
