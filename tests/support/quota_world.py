"""A complete sidecar with quotas and in-memory adapters. Topics have demands, and brokers limit them to their rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bundlekeel.leader.gate.responses import Mode
from bundlekeel.model.errors import StoreError
from bundlekeel.model.load import TopicLoad
from bundlekeel.ports import DocumentChange
from bundlekeel.quotas.rules.rate_plan import DISPATCH, PUBLISH, PolicyKey, Rate
from bundlekeel.quotas.rules.usage import topic_of
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.outside import Outside
from tests.support.memory_admin import BrokerModel, MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination
from tests.support.memory_usage import MemoryUsageFeed
from tests.support.quota_model import MemoryQuotaAdmin
from tests.support.world import BROKERS, PATIENT, FakeCluster, FakeSidecar, TestClock

# Of one message.
BYTES = 1000.0


def pass_traffic(model: BrokerModel, demand: Mapping[str, float]) -> dict[str, float]:
    """Return the traffic of each partition under the current rates, in messages/s published. Twice as much is
    delivered.
    """
    for name, demanded in demand.items():
        passes = min(demanded, _rate(model, name, PUBLISH))
        out = min(2 * passes, _rate(model, name, DISPATCH))
        model.loads[name] = TopicLoad(topic=name, hash=1, traffic=(passes, out, passes * BYTES, out * BYTES))
    return {name: model.loads[name].traffic[0] for name in demand}


def _rate(model: BrokerModel, name: str, side: str) -> float:
    rate = model.quotas.rates.get(PolicyKey(topic=topic_of(name), side=side), Rate())
    return min(rate.messages if rate.messages > 0 else math.inf, rate.size / BYTES if rate.size > 0 else math.inf)


class QuotaCluster(FakeCluster):
    """Two namespaces of the tenant acme with 8 topics each, on three brokers; one topic has four partitions."""

    def __init__(self, clock: TestClock | None = None) -> None:
        super().__init__(clock=clock)
        self.demand: dict[str, float] = {}
        for broker in BROKERS:
            self.model.static[broker]["statsUpdateFrequencyInSecs"] = "1"
        for number in range(8):
            self.put("acme/orders", number, BROKERS[number % 3], 200.0 / (number + 1))
            self.put("acme/events", number, BROKERS[(number + 1) % 3], 120.0 / (number + 1), 4 if number == 0 else 1)
        self.publish()

    def put(self, namespace: str, number: int, broker: str, demand: float, partitions: int = 1) -> str:
        """Add a topic in its own bundle, with a demand of this many messages/s in and twice as many out."""
        topic = f"persistent://{namespace}/t{number}"
        names = [topic] if partitions == 1 else [f"{topic}-partition-{index}" for index in range(partitions)]
        if partitions > 1:
            self.metadata.partition_counts[topic] = partitions
        bundle = f"{namespace}/0x{number << 28:08x}_0x{(number + 1) << 28:08x}"
        self.shares[bundle] = 0.01
        self.metadata.bundle_boundaries.setdefault(namespace, [0, 0xFFFFFFFF])
        self.model.add(bundle, broker, *names)
        self.demand |= dict.fromkeys(names, demand / partitions)
        return topic

    def move(self, number: int, broker: str, namespace: str = "acme/orders") -> None:
        """Move a bundle to another broker, and let the brokers report that."""
        self.model.own(f"{namespace}/0x{number << 28:08x}_0x{(number + 1) << 28:08x}", broker)
        self.publish()

    def die(self, broker: str, heir: str) -> None:
        """Remove a broker, and give its bundles to `heir`."""
        for bundle, owner in list(self.model.owners.items()):
            if owner.broker_id == broker:
                self.model.own(bundle, heir)
        self.publish()
        self.source.remove(broker)
        self.model.brokers.remove(broker)

    def flow(self) -> dict[str, float]:
        """Return the current traffic of each partition, in messages/s published, and update the statistics."""
        return pass_traffic(self.model, self.demand)

    def total(self) -> float:
        """Return the published messages/s of all topics together."""
        return sum(self.flow().values())


class _Coordination(MemoryCoordination):
    def __init__(self, sidecar: QuotaSidecar) -> None:
        super().__init__(sidecar.cluster.store)
        self._sidecar = sidecar

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        if self._sidecar.deaf:
            raise StoreError("the store does not answer")
        await super().write_fenced(epoch, changes)


class QuotaSidecar(FakeSidecar):
    """A sidecar with quotas. By default the tenant's limit is 200 published messages/s, a quarter of its demand."""

    def __init__(
        self,
        cluster: QuotaCluster,
        name: str = "a",
        *,
        mode: Mode = "act",
        enforcer: str = "policies",
        writes_per_minute: int = 600,
        topic_metrics: int = 20,
        **groups: Any,
    ) -> None:
        self.quota_cluster, self.deaf = cluster, False
        self.usage_feed = MemoryUsageFeed(cluster.clock)
        quotas = {
            "enforcer": enforcer,
            "groups": groups or {"acme": {"members": ("t:acme",), "publish_messages": 200}},
            "writes_per_minute": writes_per_minute,
            "topic_metrics": topic_metrics,
        }
        super().__init__(cluster, name, mode=mode, params=PATIENT, settings={"quotas": quotas})

    def reach(self) -> MemoryAdmin:
        """Return the connection to the brokers."""
        admin = MemoryAdmin(self.quota_cluster.model)
        admin.quotas = self.quota_admin = self.reach_quotas()
        return admin

    def reached(self, loaded: LoadedSettings) -> Outside:
        """With its own feed of usage."""
        out = super().reached(loaded)
        adapters = replace(out.adapters["quotas"], usage_feed=self.usage_feed)
        return replace(out, adapters={**out.adapters, "quotas": adapters})

    def reach_quotas(self) -> MemoryQuotaAdmin:
        """Return the quotas' connection to the brokers."""
        return MemoryQuotaAdmin(self.quota_cluster.model)

    def connect(self) -> MemoryCoordination:
        """The store takes no fenced writes while `deaf`."""
        return _Coordination(self)

    async def turn(self, times: int = 1) -> None:
        """Run `times` cycles: the balancer reads, traffic flows, quotas do their step."""
        for _ in range(times):
            await self.shared_state.refresh()
            await self.cycle.turn()
            self.quota_cluster.flow()
            await self.quotas.quotas.step()
        self.quota_cluster.flow()

    def told(self, what: str = "rates") -> list[dict[str, Any]]:
        """Return the journal's records of quotas."""
        return [item for item in self.journal.tail(1000, kind="quota") if item["what"] == what]


async def leading(cluster: QuotaCluster | None = None, **more: Any) -> QuotaSidecar:
    """Return a sidecar that leads. `cluster`: by default a new one."""
    sidecar = QuotaSidecar(cluster or QuotaCluster(), **more)
    await sidecar.lead()
    return sidecar
