"""A whole sidecar over fakes, wired as bootstrap wires it: for tests of the daemon's own behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bundlekeel.adapters.journal import FileJournal
from bundlekeel.adapters.metrics import PrometheusTelemetry
from bundlekeel.core.model.load import CapacityOverride, TopicLoad
from bundlekeel.core.model.names import FULL_LOWER, FULL_UPPER, parse_bundle
from bundlekeel.core.model.parameters import BY_NAME, Parameters
from bundlekeel.core.planning.engine import PlanInput, PlanResult
from bundlekeel.daemon.answers.picture import Mode, WhyView
from bundlekeel.daemon.cycle.cycle import Cycle
from bundlekeel.daemon.cycle.effects import Effects
from bundlekeel.daemon.cycle.external_moves import ExternalMoveWatch, second_balancer
from bundlekeel.daemon.cycle.planner import Planner
from bundlekeel.daemon.execution.executor import Executor
from bundlekeel.daemon.execution.move import ExecutorLimits, MovePorts
from bundlekeel.daemon.gate.gate import Gate
from bundlekeel.daemon.gate.guard_state import GuardMemory
from bundlekeel.daemon.gate.outage import OutageWatch, settle_for
from bundlekeel.daemon.gate.windows import Calendar
from bundlekeel.daemon.operations.drain_tracker import DrainTracker
from bundlekeel.daemon.operations.executions import Executions
from bundlekeel.daemon.operations.manual_moves import ManualMoves
from bundlekeel.daemon.operations.reviews import Reviews
from bundlekeel.daemon.runtime import begin_term
from bundlekeel.daemon.sources.broker_settings import BrokerConfig
from bundlekeel.daemon.sources.observer import Observer
from bundlekeel.daemon.sources.policies import PolicyCache
from bundlekeel.daemon.state.effective_parameters import EffectiveParameters
from bundlekeel.daemon.state.leadership import Leadership
from bundlekeel.daemon.state.shared_state import SharedState
from bundlekeel.daemon.state.takeover_record import takeover_request
from bundlekeel.daemon.why import WhyInput, why
from bundlekeel.ports import Member
from bundlekeel.settings.parameters import MergedParameters
from bundlekeel.settings.sections import WindowSettings
from tests.support.builders import MESSAGES_PER_SHARE, bundle_name, report, traffic
from tests.support.memory_admin import BrokerModel, MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination, MemoryStore
from tests.support.memory_source import MemoryLoadSource, MemoryMetadata, RealClock

BROKERS = ("b1:8080", "b2:8080", "b3:8080")
EAGER = Parameters(avg_hit_count_low=1, avg_hit_count_high=1)


class TestClock(RealClock):
    """The real clock with an offset a test can push forward."""

    __test__ = False

    def __init__(self) -> None:
        self.offset = 0.0

    def boot(self) -> float:
        """Seconds on the boot clock, pushed."""
        return super().boot() + self.offset

    def wall_ms(self) -> int:
        """Wall clock, pushed alike."""
        return super().wall_ms() + int(self.offset * 1000)


class WallClock(TestClock):
    """Only what people call time is pushed: leases and time-outs do not run out."""

    def boot(self) -> float:
        """Seconds on the boot clock, not pushed."""
        return super().boot() - self.offset


class FakeCluster:
    """Three brokers that own bundles, report them, and give them up when told to; shared by several sidecars."""

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
        """The load of a split bundle follows its topics."""
        del self.shares[bundle]
        for child in children:
            rates = [sum(load.traffic[:2]) for load in self.model.loads_of(child)]
            self.shares[child] = sum(rates) / MESSAGES_PER_SHARE
        self._set_boundaries()

    def _set_boundaries(self) -> None:
        edges = {edge for name in map(parse_bundle, self.shares) for edge in (name.lower, name.upper)}
        self.metadata.bundle_boundaries["t/ns"] = sorted({FULL_LOWER, *edges, FULL_UPPER})

    def publish(self) -> None:
        """Every broker writes a fresh report of what it owns now."""
        owned: dict[str, dict[str, float]] = {broker: {} for broker in BROKERS}
        for bundle, owner in self.model.owners.items():
            owned[owner.broker_id][bundle] = self.shares[bundle]
        now, topics = self.clock.wall_ms(), self.model.topics
        counts = {b: np.array([[len(topics[name]), 1, 1] for name in held]).reshape(-1, 3) for b, held in owned.items()}
        for broker, held in owned.items():
            service = f"pulsar://{broker.partition(':')[0]}:6650"
            row = report(broker, held, last_update=now, bundle_counts=counts[broker], service_url=service)
            self.source.put(row)

    def owners(self) -> dict[str, str]:
        """bundle -> broker."""
        return {bundle: owner.broker_id for bundle, owner in self.model.owners.items()}


class FakeSidecar:
    """One sidecar's daemon parts over a `FakeCluster`. What it reaches the outside with may be made otherwise."""

    heartbeat_seconds = 0.05
    settle_after_outage_seconds = 180.0
    windows: tuple[WindowSettings, ...] = ()
    review = False
    # Why the ownership channel tells nothing that may be acted on, or "".
    channel_fault = ""
    limits = ExecutorLimits(confirm_seconds=0.3, poll_first_seconds=0.01, intent_seconds=5.0)

    def __init__(
        self,
        cluster: FakeCluster,
        name: str = "a",
        *,
        mode: Mode = "act",
        params: Parameters = EAGER,
        journal: Path | None = None,
        capacity: tuple[CapacityOverride, ...] = (),
        revert: bool = False,
    ) -> None:
        self.cluster, self.clock = cluster, self.clock_of(cluster)
        self.telemetry = PrometheusTelemetry()
        self.coordination = self.connect()
        self.leadership = self._leadership(name)
        self.shared_state = SharedState(self.coordination, self.leadership, self.clock)
        self.admin = self.reach()
        self.config = BrokerConfig(self.admin, self.clock, cluster="local", max_age_seconds=0.0)
        self.journal = FileJournal(journal, telemetry=self.telemetry)
        self.shared_state.on_takeover = lambda record: self.journal.append(takeover_request(record))
        self.outage = self._outage()
        self.calendar = Calendar(self.windows)
        self.gate = self._gate(mode)
        self.executor = self.make_executor(self._world())
        self.observer = Observer(cluster.source, self.clock, self.telemetry, capacity)
        self.cycle = self._cycle(params, revert)
        self.planner = Planner(self.cycle, self.clock.wall_ms, eta=self.operations.eta, interval_seconds=30.0)
        self.executions = self._executions()
        self.leadership.on_won = self._won

    def _world(self) -> MovePorts:
        return MovePorts(
            admin=self.admin,
            commands=self.admin,
            coordination=self.coordination,
            ownership=self.cluster.model,
            metadata=self.cluster.metadata,
            clock=self.clock,
        )

    def _leadership(self, name: str) -> Leadership:
        return Leadership(
            self.coordination,
            self.clock,
            self.telemetry,
            Member(id=name),
            seats=3,
            heartbeat_seconds=self.heartbeat_seconds,
            margin_ratio=0.1,
        )

    def _executions(self) -> Executions:
        self.manual_moves = ManualMoves(
            cycle=self.cycle,
            policies=self.policies,
            metadata=self.cluster.metadata,
            ownership=self.cluster.model,
            admin=self.admin,
            config=self.config,
        )
        return Executions(
            self.shared_state,
            self.cycle,
            self.planner,
            self.gate,
            executor=self.executor,
            manual_moves=self.manual_moves,
            reviews=Reviews(self.coordination, self.shared_state, self.clock, required=self.review),
        )

    def _outage(self) -> OutageWatch:
        return OutageWatch(
            self.coordination,
            self.cluster.source,
            self.leadership,
            self.clock,
            self.telemetry,
            settle=settle_for(self.settle_after_outage_seconds, 3.0),
            session_seconds=10.0,
        )

    def _gate(self, ceiling: Mode) -> Gate:
        return Gate(
            ceiling=ceiling,
            review_required=self.review,
            shared=self.shared_state,
            config=self.config,
            clock=self.clock,
            outage=self.outage.obstacle,
            second_balancer=lambda: second_balancer(self.cycle.cycle_state.external_moves, self.clock.wall_ms()),
            channel=lambda: self.channel_fault,
            windows=self.calendar.obstacle,
        )

    async def why(self, name: str, **given: Any) -> WhyView:
        """What its API answers to `why`."""
        parts = {"metadata": self.cluster.metadata, "records": list(self.shared_state.moves)}
        parts |= {"now_ms": self.clock.wall_ms(), "desired": self.shared_state.desired}
        return await why(name, WhyInput(cycle=self.cycle, **{**parts, **given}))

    def clock_of(self, cluster: FakeCluster) -> TestClock:
        """Its machine's clocks."""
        return cluster.clock

    def connect(self) -> MemoryCoordination:
        """How it reaches the store."""
        return MemoryCoordination(self.cluster.store)

    def reach(self) -> MemoryAdmin:
        """How it reaches the brokers."""
        return MemoryAdmin(self.cluster.model)

    def make_executor(self, ports: MovePorts) -> Executor:
        """What carries its moves out."""
        return Executor(ports, self.leadership, self.shared_state, self.limits, self.gate)

    def _cycle(self, params: Parameters, revert: bool) -> Cycle:
        self.effects = Effects(self.journal.append, self.telemetry, revert=revert)
        self.operations = DrainTracker(self.shared_state, self.admin, self.config, self.clock, self.telemetry)
        self.policies = PolicyCache(self.cluster.metadata, self.config)
        self.executor.forbids = self.policies.forbids
        self.effective_parameters = EffectiveParameters(
            lambda _brokers: MergedParameters(params, dict.fromkeys(BY_NAME, "settings")),
            lambda: self.shared_state.desired.adopted,
        )
        return Cycle(
            observer=self.observer,
            admin=self.admin,
            config=self.config,
            policies=self.policies,
            executor=self.executor,
            shared_state=self.shared_state,
            journal=self.journal,
            telemetry=self.telemetry,
            clock=self.clock,
            parameters=self.effective_parameters,
            requests=self.operations,
            guard_memory=GuardMemory(lambda: self.shared_state.moves, self.calendar),
            gate=self.gate,
            effects=self.effects,
            listeners=(self.history,),
            shadow=self.shadow,
            external_moves=ExternalMoveWatch(self.cluster.model, self.journal.append, self.telemetry),
        )

    def history(
        self, epoch: int | None, given: PlanInput | None, result: PlanResult | None, record: Mapping[str, Any]
    ) -> None:
        """Hears of every cycle when it is over; tests of the recorder override it."""

    def shadow(self) -> Mapping[str, Any]:
        """What strategies that plan along found; tests of shadow strategies override it."""
        return {}

    async def _won(self, epoch: int) -> None:
        await begin_term(epoch, self.executor, self.shared_state, self.outage, self.observer, self.cycle)
        self.cycle.adopt(self.shared_state.cycle_state(), self.cycle.epoch)

    async def lead(self) -> FakeSidecar:
        """Connect and take one leadership turn."""
        await self.coordination.start()
        await self.leadership.turn()
        await self.shared_state.refresh()
        return self

    def moves(self) -> list[str]:
        """Bundles that journal records say were moved, with their outcome."""
        return [f"{item['bundle']} {item['outcome']}" for item in self.journal.tail(1000, kind="move")]

    def metric(self, name: str) -> str:
        """The exposition lines of a metric."""
        text = self.telemetry.render("text/plain")[0].decode()
        return "\n".join(line for line in text.splitlines() if line.startswith(f"bundlekeel_{name}"))


def with_params(**changes: object) -> Parameters:
    """Eager parameters with changes."""
    return replace(EAGER, **changes)  # type: ignore[arg-type]
