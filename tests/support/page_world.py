"""A complete sidecar with in-memory adapters behind its real HTTP server in a thread, for tests of the web page."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bundlekeel.api.server import ApiServer, Protection
from bundlekeel.api.service import Service
from bundlekeel.leader.gate.responses import Mode
from bundlekeel.leader.state.takeover_record import TAKEOVER, TakeoverRecord
from bundlekeel.model.load import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    DIRECT_MEMORY,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    BrokerReport,
)
from bundlekeel.model.names import FULL_LOWER, FULL_UPPER, namespace_of, parse_bundle, parse_topic
from bundlekeel.model.parameters import Parameters
from bundlekeel.ports import Owner
from bundlekeel.ports.commands import Permit, UnloadAnswer
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.outside import Outside
from tests.support.apps import ROUTES
from tests.support.builders import report
from tests.support.loop_thread import LoopThread
from tests.support.memory_admin import BrokerModel, MemoryAdmin
from tests.support.memory_coordination import MemoryStore
from tests.support.memory_source import MemoryLoadSource, MemoryMetadata
from tests.support.security import Tokens, access_for
from tests.support.world import INSTALLED, PATIENT, SETTINGS, FakeSidecar, TestClock

if "quotas" in INSTALLED:
    from tests.support.quota_world import pass_traffic
if "recalibration" in INSTALLED:
    from tests.support.memory_calibration import MemoryCalibration
    from tests.support.threshold_cases import as_bytes, document

TURN_SECONDS = 0.25
CYCLE_SECONDS = 1.0
DAY_MS = 86_400_000
# A NIC of 10 Gbit/s, and a byte, as brokers report bandwidth.
NIC_KILOBITS = 10e6
KILOBITS = 8 / 1000
MEMORY_RATIO = 0.4
Loads = Mapping[str, Iterable[tuple[str, float]]]


def _divided(namespace: str, count: int) -> Iterator[str]:
    """Yield the bundles of a namespace in order, as Pulsar divides it: into a power of two of equal parts."""
    width = (FULL_UPPER + 1) >> (count - 1).bit_length()
    for lower in range(0, FULL_UPPER, width):
        yield f"{namespace}/0x{lower:08x}_0x{min(lower + width, FULL_UPPER):08x}"


def _whole(report: BrokerReport) -> BrokerReport:
    """Return the report with a network interface, its use by the bundles, and memory in use."""
    usage, limit = report.usage.copy(), report.limit.copy()
    usage[DIRECT_MEMORY] = MEMORY_RATIO * limit[DIRECT_MEMORY]
    usage[BANDWIDTH_IN : BANDWIDTH_OUT + 1] = report.traffic[THROUGHPUT_IN : THROUGHPUT_OUT + 1] * KILOBITS
    limit[BANDWIDTH_IN : BANDWIDTH_OUT + 1] = NIC_KILOBITS
    return replace(report, usage=usage, limit=limit)


class PageCluster:
    """Brokers that own bundles of several namespaces and report them; the cluster of a `FakeSidecar`.

    `loads`: by broker, a bundle or the namespace of its next one, and its share of a broker. `demand`: messages/s that
    further topics of these namespaces want to publish. `live`: the brokers' counters are read for each publication;
    `still`: from then on only after a move.
    """

    still = False

    def __init__(
        self,
        loads: Loads,
        demand: Mapping[str, float] | None = None,
        *,
        live: bool = False,
        clock: TestClock | None = None,
    ) -> None:
        self.demand, self.live = dict(demand or {}), live
        self.clock = clock or TestClock()
        self.store = MemoryStore()
        self.brokers = tuple(loads)
        self.model = BrokerModel(self.brokers)
        self.source = MemoryLoadSource(self.clock)
        self.metadata = MemoryMetadata()
        self.metadata.leader = self.brokers[0]
        for static in self.model.static.values():
            static |= {"clusterName": "shop", "metadataStoreUrl": str(SETTINGS["metadata_store"])}
        self.model.dynamic["loadBalancerSheddingEnabled"] = "false"
        self.shares: dict[str, float] = {}
        self._published: dict[str, Owner] = {}
        counts = Counter(row for rows in loads.values() for row, _ in rows if "/0x" not in row)
        names = {namespace: _divided(namespace, count) for namespace, count in counts.items()}
        for broker, rows in loads.items():
            for row, share in rows:
                name = next(names[row]) if row in names else row
                self.shares[name] = share
                self.model.add(name, broker, f"persistent://{namespace_of(name)}/topic-{len(self.shares)}")
        edges: dict[str, set[int]] = {}
        for parsed in map(parse_bundle, self.shares):
            edges.setdefault(parsed.namespace, {FULL_LOWER, FULL_UPPER}).update((parsed.lower, parsed.upper))
        self.metadata.bundle_boundaries.update({name: sorted(cuts) for name, cuts in edges.items()})
        for topic in self.demand:
            self._place(topic)
        self.publish()

    def _place(self, topic: str) -> None:
        """Put a topic into the bundle of its namespace with the fewest topics."""
        parsed = parse_topic(topic)
        bundles = [name for name in self.shares if name.startswith(f"{parsed.namespace}/")]
        self.model.topics[min(bundles, key=lambda name: len(self.model.topics[name]))].append(topic)
        base, is_partition, _ = topic.rpartition("-partition-")
        if is_partition:
            self.metadata.partition_counts[base] = self.metadata.partition_counts.get(base, 0) + 1

    def owners(self) -> dict[str, str]:
        """Return the owner of each bundle."""
        return {bundle: owner.broker_id for bundle, owner in self.model.owners.items()}

    def publish(self) -> None:
        """Every broker reports what it owns, if anything moved since it did last, or `live` and not `still`."""
        if (self.still or not self.live) and self._published == self.model.owners:
            return
        self._published = dict(self.model.owners)
        owned: dict[str, dict[str, float]] = {broker: {} for broker in self.brokers}
        for bundle, owner in self.model.owners.items():
            owned[owner.broker_id][bundle] = self.shares[bundle]
        now = self.clock.wall_ms()
        topics = self.model.topics
        counts = {
            broker: np.array([(len(topics[name]), 1, 1) for name in bundles], dtype=np.int64).reshape(-1, 3)
            for broker, bundles in owned.items()
        }
        changes = {"last_update": now, "interval_ms": int(1000 * CYCLE_SECONDS) if self.live else 0}
        reports = (report(b, load, bundle_counts=counts[b], **changes) for b, load in owned.items())
        self.source.put(*map(_whole, reports))


class PacedAdmin(MemoryAdmin):
    """Brokers that need some time for each unload. After `takes` unloads they wait until a test increases `takes`."""

    seconds = 0.0
    takes = math.inf

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        await asyncio.sleep(self.seconds)
        while self.takes <= 0:  # noqa: ASYNC110 - raised in another thread
            await asyncio.sleep(TURN_SECONDS)
        self.takes -= 1
        return await super().unload(bundle, destination=destination, at=at, permit=permit)


class PageSidecar(FakeSidecar):
    """A sidecar for which thresholds are proposed."""

    def __init__(
        self,
        cluster: PageCluster,
        *,
        name: str = "a",
        mode: Mode,
        params: Parameters,
        pace: float,
        review: bool = False,
        quotas: Mapping[str, Any] | None = None,
    ) -> None:
        self.pace, self.page_cluster = pace, cluster
        settings: dict[str, Any] = {
            "cluster": "shop",
            "cycle.interval": CYCLE_SECONDS,
            "review": "required" if review else "off",
            **({"quotas": quotas} if quotas and "quotas" in INSTALLED else {}),
        }
        if "recalibration" in INSTALLED:
            self.proposed = MemoryCalibration()
            self.proposed.put("2026-09-15T020000Z/thresholds.json", as_bytes(document(cluster.clock.wall_ms())))
            settings["calibration"] = {"mode": "recommend", "uri": "memory", "interval": 1.0, "trial": 3600.0}
        super().__init__(cluster, name, mode=mode, params=params, settings=settings)  # type: ignore[arg-type]

    def reach(self) -> MemoryAdmin:
        """Brokers that take their time."""
        admin = PacedAdmin(self.cluster.model)
        admin.seconds = self.pace
        return admin

    def reached(self, loaded: LoadedSettings) -> Outside:
        """Return the connections, with this sidecar's own store of proposals."""
        out = super().reached(loaded)
        if "recalibration" not in INSTALLED:
            return out
        return replace(out, adapters={**out.adapters, "recalibration": lambda: lambda: self.proposed})

    async def turn(self) -> None:
        """Run one cycle: update the traffic of topics by their limits, then run the quotas and the balancer."""
        if "quotas" in INSTALLED:
            pass_traffic(self.page_cluster.model, self.page_cluster.demand)
            if self.cycle.picture is not None:
                await self.quotas.quotas.step()
        await self.cycle.turn()

    async def live(self, every_seconds: float) -> None:
        """Run the tasks of the runtime in turn: lead, cycle, execute operators' requests. Ends when it is cancelled."""
        cycled = self.clock.boot()
        while True:
            await self.leadership.turn()
            await self.shared_state.refresh()
            self.cluster.publish()
            if self.clock.boot() - cycled >= every_seconds:
                await self.turn()
                cycled = self.clock.boot()
            await self.executions.serve()
            await asyncio.sleep(TURN_SECONDS)


@dataclass(kw_only=True)
class Served(LoopThread):
    """A service behind the real server on 127.0.0.1, in a thread; `port` 0: a free one; `url` once it is started."""

    tokens: Tokens | None = None
    port: int = 0
    url: str = ""

    def __post_init__(self) -> None:
        """One loop."""
        super().__init__("page server")

    def service(self) -> Service:
        """Return the service, created in the loop."""
        raise NotImplementedError

    async def _listen(self) -> None:
        protection = Protection(access=access_for(self.tokens) if self.tokens else None)
        self._server = ApiServer(self.service(), "127.0.0.1", self.port, None, protection=protection, features=ROUTES)
        self.url = await self._server.start()

    async def _close(self) -> None:
        await self._server.stop()


@dataclass(kw_only=True)
class ServedSidecar(Served):
    """A `PageSidecar` that leads and continues while the page is open."""

    loads: Loads
    mode: Mode = "act"
    params: Parameters = PATIENT
    pace: float = 0.0
    review: bool = False
    every_seconds: float = CYCLE_SECONDS
    demand: Mapping[str, float] = field(default_factory=dict)
    quotas: Mapping[str, Any] = field(default_factory=dict)
    live: bool = False
    taken_over: bool = False
    name: str = "a"

    def service(self) -> Service:
        """Return the sidecar's service."""
        self.cluster = PageCluster(self.loads, self.demand, live=self.live)
        self.sidecar = PageSidecar(
            self.cluster,
            name=self.name,
            mode=self.mode,
            params=self.params,
            pace=self.pace,
            review=self.review,
            quotas=self.quotas,
        )
        return self.sidecar.service

    async def _listen(self) -> None:
        await super()._listen()
        await self.sidecar.lead()
        if self.taken_over:
            since = self.cluster.clock.wall_ms() - DAY_MS
            record = TakeoverRecord(by="ann", reason="go-live", wall_ms=since, overrides={}, runtime={})
            await self.sidecar.coordination.write_shared(TAKEOVER, record.encode(), version=None)
        await self.sidecar.cycle.turn()
        if "recalibration" in INSTALLED:
            await self.sidecar.calibration.check()
        self._living = asyncio.create_task(self.sidecar.live(self.every_seconds))

    async def _close(self) -> None:
        self._living.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._living
        await super()._close()
