"""A complete sidecar with the real wiring and in-memory adapters, for tests of the sidecar's own behaviour."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bundlekeel.api.server import ApiServer
from bundlekeel.leader.cycle.cycle import Cycle
from bundlekeel.leader.cycle.planner import Planner
from bundlekeel.leader.execution.executor import Executor
from bundlekeel.leader.execution.move import ExecutorLimits
from bundlekeel.leader.gate.gate import Gate
from bundlekeel.leader.gate.outage import OutageWatch
from bundlekeel.leader.load_signals import LoadSignals
from bundlekeel.leader.state.documents import LastingRequest
from bundlekeel.leader.state.effective_parameters import EffectiveParameters
from bundlekeel.leader.state.leadership import Leadership
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.model.errors import StoreError
from bundlekeel.model.load import TopicLoad
from bundlekeel.model.names import FULL_LOWER, FULL_UPPER, parse_bundle
from bundlekeel.model.parameters import BY_NAME, Parameters
from bundlekeel.ports import ChannelVariant, Journal, Peers
from bundlekeel.pulsar.channel.channel_watch import ChannelWatch
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.pulsar.sources.extensible_source import ClusterSource, ExtensibleOptions
from bundlekeel.pulsar.sources.observer import Observer
from bundlekeel.pulsar.sources.ownership import ChannelByVariant, ChannelOwnership, OwnershipByMode
from bundlekeel.pulsar.sources.policies import PolicyCache
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.records.traces import Traces
from bundlekeel.requests.doctor import DoctorContext
from bundlekeel.requests.drain import DrainTracker
from bundlekeel.requests.executions import Executions
from bundlekeel.requests.operator_requests import OperatorRequests
from bundlekeel.requests.review import Reviews
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.settings.parameters import TOP_LEVEL
from bundlekeel.wiring.clock import SystemClock
from bundlekeel.wiring.feature import FeatureParts
from bundlekeel.wiring.features import installed
from bundlekeel.wiring.leading import leading
from bundlekeel.wiring.outside import Outside
from bundlekeel.wiring.reading import reading
from bundlekeel.wiring.requests import requests
from bundlekeel.wiring.serving import serving
from tests.support.builders import MESSAGES_PER_SHARE, bundle_name, report, traffic
from tests.support.memory_admin import BrokerModel, MemoryAdmin
from tests.support.memory_channel import MemoryChannel
from tests.support.memory_coordination import MemoryCoordination, MemoryStore
from tests.support.memory_feed import MemoryFeed
from tests.support.memory_source import MemoryLoadSource, MemoryMetadata

if TYPE_CHECKING:
    from bundlekeel.quotas.service import QuotaService
    from bundlekeel.recalibration.adopting.shadow import ShadowStrategies
    from bundlekeel.recalibration.adopting.watcher import Calibration
    from bundlekeel.recalibration.history.ports import CalibrationStore
    from bundlekeel.recalibration.recorder.recorder import Recorder

# A test may delete features (tests/unit/wiring/test_features.py).
INSTALLED = frozenset(feature.name for feature in installed())
BROKERS = ("b1:8080", "b2:8080", "b3:8080")
EAGER = Parameters(move_price=0)
PIN = LastingRequest(by="ann", reason="r", since_ms=1)
# The strategy never moves a bundle with these parameters, so that only operators' requests move bundles.
PATIENT = Parameters(move_price=1e9)
# In-memory brokers respond immediately, and their topics have no counters.
SETTINGS = {
    "cluster": "local",
    "metadata_store": "zk:zk1:2181/pulsar",
    "cycle.interval": 1.0,
    "leadership": {"heartbeat": 0.05, "margin_ratio": 0.1},
    "counters.source": "off",
}


class TestClock(SystemClock):
    """The real clock plus `offset` seconds, which a test can increase."""

    __test__ = False

    def __init__(self) -> None:
        self.offset = 0.0

    def boot(self) -> float:
        """Return seconds of the boot clock, with the offset."""
        return super().boot() + self.offset

    def wall_ms(self) -> int:
        """Return Unix time in ms, with the offset."""
        return time.time_ns() // 1_000_000 + int(self.offset * 1000)

    def stepped_ms(self) -> int:
        return 0


class WallClock(TestClock):
    """A wall clock that can be set without effect on leases and time-outs."""

    def boot(self) -> float:
        """Return seconds of the boot clock, without the offset."""
        return super().boot() - self.offset


class FakeCluster:
    """Three in-memory brokers that own bundles, report their loads and unload them on request. Sidecars can share
    it.
    """

    def __init__(
        self,
        loads: Mapping[str, list[float]] | None = None,
        *,
        shedding: bool = False,
        clock: TestClock | None = None,
        store: MemoryStore | None = None,
    ) -> None:
        self.clock = clock or TestClock()
        self.store = store or MemoryStore()
        self.model = BrokerModel(BROKERS)
        self.source = MemoryLoadSource(self.clock)
        self.metadata = MemoryMetadata()
        self.metadata.leader = BROKERS[0]
        self.model.dynamic["loadBalancerSheddingEnabled"] = str(shedding).lower()
        self.shares: dict[str, float] = {}
        for broker, shares in (loads or {BROKERS[0]: [0.2, 0.15, 0.12, 0.1, 0.08, 0.06]}).items():
            for share in shares:
                name = bundle_name(len(self.shares))
                self.shares[name] = share
                self.model.add(name, broker, f"persistent://t/ns/topic-{len(self.shares)}")
        self.model.after_split = self._divided
        self._set_boundaries()
        self.publish()

    def put_topics(self, bundle: str, *shares: float) -> None:
        """Replace the topics of a bundle by topics of these shares, spread evenly over its hash range."""
        name = parse_bundle(bundle)
        step = (name.upper - name.lower) // len(shares)
        self.model.topics[bundle] = []
        self.model.add_loads(
            bundle,
            *(
                TopicLoad(
                    topic=f"persistent://{name.namespace}/{name.range}-{index}",
                    hash=name.lower + index * step + 1,
                    traffic=traffic(share),
                    sessions=2,
                )
                for index, share in enumerate(shares)
            ),
        )

    def _divided(self, bundle: str, children: tuple[str, ...]) -> None:
        """Give each child of a split bundle the load of its topics."""
        del self.shares[bundle]
        for child in children:
            rates = [sum(load.traffic[:2]) for load in self.model.loads_of(child)]
            self.shares[child] = sum(rates) / MESSAGES_PER_SHARE
        self._set_boundaries()

    def _set_boundaries(self) -> None:
        edges = {edge for name in map(parse_bundle, self.shares) for edge in (name.lower, name.upper)}
        self.metadata.bundle_boundaries["t/ns"] = sorted({FULL_LOWER, *edges, FULL_UPPER})

    def publish(self) -> None:
        """Write a new load report for every broker, with the bundles that it owns now."""
        owned: dict[str, dict[str, float]] = {broker: {} for broker in BROKERS}
        for bundle, owner in self.model.owners.items():
            owned[owner.broker_id][bundle] = self.shares[bundle]
        now, topics = self.clock.wall_ms(), self.model.topics
        counts = {
            b: np.array([[len(topics[name]), 1, 1] for name in bundles]).reshape(-1, 3) for b, bundles in owned.items()
        }
        for broker, bundles in owned.items():
            service = f"pulsar://{broker.partition(':')[0]}:6650"
            row = report(broker, bundles, last_update=now, bundle_counts=counts[broker])
            self.source.put(row, service_url=service)

    def owners(self) -> dict[str, str]:
        """Return the owner of each bundle."""
        return {bundle: owner.broker_id for bundle, owner in self.model.owners.items()}


def fake_outside(
    loaded: LoadedSettings,
    cluster: FakeCluster,
    clock: SystemClock,
    coordination: MemoryCoordination,
    admin: MemoryAdmin,
) -> Outside:
    """Return the connections of a sidecar to a cluster in memory."""
    telemetry = PrometheusTelemetry()
    config = BrokerConfig(
        admin,
        clock,
        cluster=loaded.settings.cluster,
        stores=loaded.settings.stores,
        follow=cluster.metadata.follow,
        max_age_seconds=0.0,
    )
    source = ClusterSource(
        registry=cluster.source,
        feed=MemoryFeed(clock),
        admin=admin,
        clock=clock,
        telemetry=telemetry,
        options=ExtensibleOptions(),
    )
    variants: tuple[ChannelVariant, ...] = ("system_topic", "metadata_store")
    makers = {variant: partial(MemoryChannel, clock, variant=variant) for variant in variants}
    channel = ChannelByVariant(makers, config)
    fakes: dict[str, Any] = {
        "store": None,
        "configuration": None,
        "coordination": coordination,
        "ownership": OwnershipByMode(cluster.model, ChannelOwnership(channel, source), source),
        "metadata": cluster.metadata,
        "admin": admin,
    }
    return Outside(
        clock=clock,
        telemetry=telemetry,
        source=source,
        channel=channel,
        config=config,
        peers=NoPeers,
        adapters={feature: memory_adapters(feature, admin, clock) for feature in INSTALLED},
        **fakes,
    )


def memory_adapters(feature: str, admin: MemoryAdmin, clock: SystemClock) -> Any:
    """Return the adapters of a feature, without a network. Its modules are imported only if it is installed."""
    if feature == "quotas":
        from bundlekeel.quotas.cycle import QuotaAdapters  # noqa: PLC0415
        from tests.support.memory_usage import MemoryUsageFeed  # noqa: PLC0415

        return QuotaAdapters(admin=admin.quotas, commands=admin.quotas, usage_feed=MemoryUsageFeed(clock))
    return (lambda: no_proposals) if feature == "recalibration" else None


class FakeSidecar:
    """A sidecar with the real wiring, connected to a `FakeCluster`. A subclass can connect in another way.

    The parts of all stages of `bundlekeel.wiring` are attributes.
    """

    outside: Outside
    peers: Peers
    leadership: Leadership
    traces: Traces | None
    journal: Journal
    shared_state: SharedState
    channel: ChannelWatch
    outage: OutageWatch
    observer: Observer
    policies: PolicyCache
    effective_parameters: EffectiveParameters
    gate: Gate
    executor: Executor
    operations: DrainTracker
    quotas: QuotaService
    recorder: Recorder | None
    shadow_strategies: ShadowStrategies | None
    calibration: Calibration
    cycle: Cycle
    planner: Planner
    load_signals: LoadSignals
    reviews: Reviews
    executions: Executions
    operator_requests: OperatorRequests

    # Of its own, as on the command line.
    settings: ClassVar[Mapping[str, Any]] = {}
    limits = ExecutorLimits(confirm_seconds=0.3, poll_first_seconds=0.01, intent_seconds=5.0)

    def __init__(
        self,
        cluster: FakeCluster,
        name: str = "a",
        *,
        mode: str = "act",
        params: Parameters = EAGER,
        journal: Path | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.cluster, self.name = cluster, name
        self.clock = self.clock_of(cluster)
        self.coordination, self.admin = self.connect(), self.reach()
        values = {"member_id": name, "mode": mode, "parameters": changes_of(params), "journal.path": journal}
        environ = {} if journal else {"BUNDLEKEEL__JOURNAL__PATH": "null"}
        self.loaded = load_settings(None, {**SETTINGS, **values, **self.settings, **(settings or {})}, environ=environ)
        read = reading(self.loaded, self.reached(self.loaded))
        lead = leading(read, self.limits)
        requested = requests(lead)
        for stage in (read, lead, requested):
            for field in fields(stage):
                setattr(self, field.name, getattr(stage, field.name))
        for feature, parts in lead.features.parts.items():
            setattr(self, feature, parts.service)
            for field in fields(parts)[len(fields(FeatureParts)) :]:
                setattr(self, field.name, getattr(parts, field.name))
        self.serving = serving(requested)
        self.runtime, self.service = self.serving.runtime, self.serving.service
        self.config, self.guard_memory = self.outside.config, self.cycle.guard_memory
        self.telemetry = self.outside.telemetry

    def reached(self, loaded: LoadedSettings) -> Outside:
        """Return the sidecar's connections."""
        return fake_outside(loaded, self.cluster, self.clock, self.coordination, self.admin)

    def clock_of(self, cluster: FakeCluster) -> TestClock:
        """Return the clocks of the sidecar's machine."""
        return cluster.clock

    def connect(self) -> MemoryCoordination:
        """Return the connection to the store."""
        return MemoryCoordination(self.cluster.store)

    def reach(self) -> MemoryAdmin:
        """Return the connection to the brokers."""
        return MemoryAdmin(self.cluster.model)

    def doctor_context(self) -> DoctorContext:
        """Return what `doctor` examines of this sidecar."""
        return self.serving.service_parts.context()

    def server(self, loop: asyncio.AbstractEventLoop) -> ApiServer:
        """Return the API of this sidecar, whose values are published on `loop`."""
        service = self.serving.off_loop(loop)
        self.publishing = loop.create_task(self.runtime.root("published", service.run))
        return self.serving.server(service)

    async def lead(self) -> FakeSidecar:
        """Connect and take one leadership turn."""
        await self.coordination.start()
        await self.leadership.turn()
        await self.shared_state.refresh()
        return self

    def moves(self) -> list[str]:
        """Return the bundles of the journal's move records, with their outcomes."""
        return [f"{item['bundle']} {item['outcome']}" for item in self.journal.tail(1000, kind="move")]

    def metric(self, name: str) -> str:
        """Return the lines of a metric in Prometheus' text format."""
        text = self.telemetry.render("text/plain")[0].decode()
        return "\n".join(line for line in text.splitlines() if line.startswith(f"bundlekeel_{name}"))


def no_proposals() -> CalibrationStore:
    """Raise StoreError: there is no store of proposals."""
    raise StoreError("calibration is off")


class NoPeers:
    """A peer client that sends no request."""

    async def make_plan(self, url: str, request: object) -> dict[str, Any]:
        raise StoreError(url)

    async def plan(self, url: str, hash_: str) -> dict[str, Any] | None:
        raise StoreError(url)

    async def get(self, url: str, path: str) -> Any:
        raise StoreError(url)

    async def signal_load(self, url: str) -> None:
        raise StoreError(url)

    async def close(self) -> None:
        """Do nothing."""


def changes_of(params: Parameters) -> dict[str, Any]:
    """Return `params` as settings."""
    plain = Parameters()
    named = {name: getattr(params, name) for name in BY_NAME}
    return {name: value for name, value in named.items() if name in TOP_LEVEL or value != getattr(plain, name)}


def with_params(**changes: object) -> Parameters:
    """Return parameters that move bundles immediately, with these changes."""
    return replace(EAGER, **changes)  # type: ignore[arg-type]
