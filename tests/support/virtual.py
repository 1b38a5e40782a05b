"""A small deterministic virtual cluster that reports as Pulsar does, and a driver that does what the daemon does.

Reports (our notes on Pulsar, 1.3): bundle statistics are means over the last statistics interval of each broker, CPU
is the mean over its last host-usage interval, and a broker rewrites its report only when traffic or number of bundles
changed by more than 10 %, its highest usage by more than 10 points, or after 15 minutes. Moves take a while to land,
and the bundle carries nothing meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bundlekeel.core.averages import Averages
from bundlekeel.core.capacity import CapacityOverride
from bundlekeel.core.engine import PlanInput, plan
from bundlekeel.core.guard import GuardState, Moved
from bundlekeel.core.ledger import Ledger, landed, open_entries
from bundlekeel.core.load import BrokerReport, Floats, Ints
from bundlekeel.core.memory import Memory
from bundlekeel.core.params import Parameters
from bundlekeel.core.plan import Move, Plan
from bundlekeel.core.snapshot import build_snapshot
from tests.support.builders import BLIND_NIC, EAGER, NOW_MS, broker, bundle_name

IN_TRANSIT = -1
MAX_SILENCE = 15 * 60.0
REPORT_THRESHOLD = 0.10
CYCLE = 10.0
MESSAGE_BYTES = 1000.0


def zipf(count: int, exponent: float, *, largest: float = 1.0) -> Floats:
    """Shares that fall with rank and sum to 1; none above `largest` (the rest is spread over the others)."""
    shares: Floats = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    shares /= shares.sum()
    while shares.max() > largest * (1 + 1e-9):
        capped = shares >= largest
        shares[capped] = largest
        shares[~capped] *= (1 - largest * capped.sum()) / shares[~capped].sum()
    return shares


@dataclass(kw_only=True)
class Settings:
    """How the virtual cluster behaves. `cpu_per_byte`: share of one broker that one byte/s keeps busy."""

    statistics_interval: float = 60.0
    host_interval: float = 60.0
    report_interval: float = 5.0
    tick: float = 5.0
    land_delay: float = 3.0
    cpu_base: float = 0.05
    cpu_noise: float = 0.005
    rate_noise: float = 0.0
    broker_bytes: float = 100e6


@dataclass(kw_only=True)
class _Broker:
    """One broker's memory: what it measured last, and what it wrote last."""

    id: str
    statistics_phase: float
    host_phase: float
    started: float = 0.0
    rows: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    rates: Floats = field(default_factory=lambda: np.zeros(0))
    cpu: float = 0.0
    busy_seconds: float = 0.0
    written: BrokerReport | None = None
    written_at: float = -1e9


class VirtualCluster:
    """Brokers and bundles with traffic, advanced in ticks. `load(t)`: bytes/s of every bundle at a time."""

    def __init__(
        self,
        traffic: Floats | Callable[[float], Floats],
        owner: Sequence[int],
        brokers: int,
        seed: int,
        settings: Settings,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.settings = settings
        self.load = traffic if callable(traffic) else lambda _: traffic
        self.owner: Ints = np.array(owner, dtype=np.int64)
        self.names = tuple(bundle_name(number) for number in range(len(self.owner)))
        self.row = {name: row for row, name in enumerate(self.names)}
        self.now = 0.0
        self._carried: Floats = np.zeros(len(self.owner))
        self._landing: list[tuple[float, int, int]] = []
        phases = self.rng.integers(0, 12, size=(brokers, 2)) / 12
        self.brokers = [
            _Broker(
                id=broker(index),
                statistics_phase=self._on_grid(phases[index, 0] * settings.statistics_interval),
                host_phase=self._on_grid(phases[index, 1] * settings.host_interval),
            )
            for index in range(brokers)
        ]
        for index, item in enumerate(self.brokers):
            self._measure(index, item, exact=True)
            item.cpu = self._busy(index)
            self._write(item)
            # The intervals under way at the beginning have seen the same traffic.
            seen = (-item.statistics_phase) % settings.statistics_interval
            self._carried[item.rows] = self.load(0.0)[item.rows] * seen
            item.busy_seconds = item.cpu * ((-item.host_phase) % settings.host_interval)

    def _on_grid(self, seconds: float) -> float:
        return round(seconds / self.settings.tick) * self.settings.tick

    # --- truth ---

    def throughput(self) -> Floats:
        """What every broker carries right now, bytes/s; bundles in transit count where they go."""
        owner = self.owner.copy()
        for _, row, target in self._landing:
            owner[row] = target
        return np.bincount(owner, weights=self.load(self.now), minlength=len(self.brokers)).astype(np.float64)

    def imbalance(self) -> float:
        """max/mean of the true throughput."""
        carried = self.throughput()
        return float(carried.max() / carried.mean())

    def _busy(self, index: int) -> float:
        carried = float(self.load(self.now)[self.owner == index].sum())
        return min(1.0, self.settings.cpu_base + carried / self.settings.broker_bytes)

    # --- time ---

    def move(self, bundle: str, target: str) -> None:
        """Begin a move: the bundle leaves its owner now and lands after the delay."""
        row = self.row[bundle]
        self.owner[row] = IN_TRANSIT
        self._carried[row] = 0.0
        self._landing.append((self.now + self.settings.land_delay, row, self.index(target)))

    def index(self, broker_id: str) -> int:
        """The index of a broker id."""
        return next(number for number, item in enumerate(self.brokers) if item.id == broker_id)

    def restart(self, index: int) -> None:
        """The broker comes back empty; its bundles went to the others in turn."""
        others = [number for number in range(len(self.brokers)) if number != index]
        rows = np.flatnonzero(self.owner == index)
        self.owner[rows] = [others[position % len(others)] for position in range(len(rows))]
        self._carried[rows] = 0.0
        old = self.brokers[index]
        self.brokers[index] = dataclasses.replace(
            old, started=self.now, rows=np.zeros(0, dtype=np.int64), rates=np.zeros(0), cpu=0.0, busy_seconds=0.0
        )
        self._write(self.brokers[index])

    def advance(self) -> list[tuple[str, str]]:
        """One tick; returns (bundle, broker) of what landed."""
        step = self.settings.tick
        self._carried += np.where(self.owner >= 0, self.load(self.now), 0.0) * step
        for index, item in enumerate(self.brokers):
            item.busy_seconds += self._busy(index) * step
        self.now += step
        due = [entry for entry in self._landing if entry[0] <= self.now]
        self._landing = [entry for entry in self._landing if entry[0] > self.now]
        for _, row, target in due:
            self.owner[row] = target
        for index, item in enumerate(self.brokers):
            self._turn(index, item)
        return [(self.names[row], self.brokers[target].id) for _, row, target in due]

    def _turn(self, index: int, item: _Broker) -> None:
        settings = self.settings
        if (self.now - item.statistics_phase) % settings.statistics_interval < 1e-6:
            self._measure(index, item)
        if (self.now - item.host_phase) % settings.host_interval < 1e-6:
            noise = self.rng.normal(0.0, settings.cpu_noise)
            item.cpu = float(np.clip(item.busy_seconds / settings.host_interval + noise, 0.0, 1.0))
            item.busy_seconds = 0.0
        if self.now % settings.report_interval < 1e-6 and self._changed(item):
            self._write(item)

    def _measure(self, index: int, item: _Broker, *, exact: bool = False) -> None:
        item.rows = np.flatnonzero(self.owner == index)
        rates = (
            self.load(self.now)[item.rows] if exact else self._carried[item.rows] / self.settings.statistics_interval
        )
        item.rates = rates * (1 + self.rng.uniform(-1, 1, size=len(rates)) * self.settings.rate_noise)
        self._carried[item.rows] = 0.0

    # --- reports ---

    def reports(self) -> list[BrokerReport]:
        """What the brokers' nodes hold."""
        return [item.written for item in self.brokers if item.written is not None]

    def instant_reports(self) -> list[BrokerReport]:
        """What they would hold if statistics took no time."""
        fresh = []
        for index, item in enumerate(self.brokers):
            copy = dataclasses.replace(item, cpu=self._busy(index))
            copy.rows = np.flatnonzero(self.owner == index)
            copy.rates = self.load(self.now)[copy.rows]
            fresh.append(self._report(copy))
        return fresh

    def _changed(self, item: _Broker) -> bool:
        last = item.written
        if last is None or self.now - item.written_at > MAX_SILENCE:
            return True
        changes = [
            _relative(float(last.traffic[2] + last.traffic[3]), 2 * float(item.rates.sum())),
            _relative(len(last.bundle_names), len(item.rows)),
            abs(float(last.usage[0]) / 100 - item.cpu),
        ]
        return max(changes) > REPORT_THRESHOLD

    def _write(self, item: _Broker) -> None:
        item.written, item.written_at = self._report(item), self.now

    def _report(self, item: _Broker) -> BrokerReport:
        size = item.rates
        traffic = np.column_stack([size / MESSAGE_BYTES, size / MESSAGE_BYTES, size, size])
        return BrokerReport(
            broker_id=item.id,
            usage=np.array([item.cpu * 100, 0.0, 0.0, 0.0]),
            limit=np.array([100.0, 1024.0, BLIND_NIC, BLIND_NIC]),
            traffic=traffic.sum(axis=0),
            last_update=self.wall_ms,
            start_timestamp=NOW_MS + int(item.started * 1000),
            num_topics=len(item.rows),
            bundle_names=tuple(self.names[row] for row in item.rows),
            bundle_traffic=traffic,
            bundle_counts=np.ones((len(item.rows), 3), dtype=np.int64),
        )

    @property
    def wall_ms(self) -> int:
        """The cluster's clock, ms since 1970."""
        return NOW_MS + int(self.now * 1000)


def _relative(old: float, new: float) -> float:
    if old == 0:
        return 0.0 if new == 0 else np.inf
    return abs(old - new) / old


@dataclass(kw_only=True)
class Driver:
    """Runs cycles on a virtual cluster with the same books as the daemon."""

    cluster: VirtualCluster
    params: Parameters
    capacity: tuple[CapacityOverride, ...] = ()
    averages: Averages = field(default_factory=Averages)
    memory: Memory = field(default_factory=Memory)
    ledger: Ledger = field(default_factory=Ledger)
    recent: dict[str, Moved] = field(default_factory=dict)
    moves: list[tuple[float, Move]] = field(default_factory=list)
    plans: list[tuple[float, Plan]] = field(default_factory=list)
    curve: list[tuple[float, float]] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Let time pass, with a cycle every ten seconds."""
        until = self.cluster.now + seconds
        while self.cluster.now < until - 1e-6:
            for bundle, where in self.cluster.advance():
                self.ledger = landed(self.ledger, bundle, where, self.cluster.wall_ms)
            self._absorb(self.cluster.reports())
            if self.cluster.now % CYCLE < 1e-6:
                self.cycle(self.cluster.reports())

    def cycle(self, reports: list[BrokerReport]) -> Plan:
        """One turn: snapshot, plan, books, moves."""
        now = self.cluster.wall_ms
        seen = build_snapshot(reports=reports, averages=self.averages, wall_ms=now, capacity=self.capacity)
        guard = GuardState(recent=self.recent)
        given = PlanInput(snapshot=seen, params=self.params, memory=self.memory, ledger=self.ledger, guard=guard)
        result = plan(given)
        self.memory, self.ledger = result.memory, open_entries(result.ledger, result.plan.moves, seen, now)
        for move in result.plan.moves:
            self.recent[move.bundle] = Moved(at_ms=now, source=move.source)
            self.cluster.move(move.bundle, move.target)
            self.moves.append((self.cluster.now, move))
        self.plans.append((self.cluster.now, result.plan))
        self.curve.append((self.cluster.now, self.cluster.imbalance()))
        return result.plan

    def _absorb(self, reports: list[BrokerReport]) -> None:
        for item in reports:
            self.averages.add_report(item, now_ms=self.cluster.wall_ms, skip=self.ledger.bundles())

    def balanced_at(self, limit: float) -> float:
        """When max/mean fell to the limit for good; infinity when it never did."""
        later = [at for at, value in self.curve if value > limit]
        return 0.0 if not later else (later[-1] + CYCLE if later[-1] < self.curve[-1][0] else float("inf"))


def perfect_moves(cluster: VirtualCluster, capacity: tuple[CapacityOverride, ...]) -> int:
    """How many moves the plan needs when reports are true at once and there are no budgets; moves nothing."""
    averages = Averages()
    reports = cluster.instant_reports()
    for item in reports:
        averages.add_report(item, now_ms=cluster.wall_ms)
    seen = build_snapshot(reports=reports, averages=averages, wall_ms=cluster.wall_ms, capacity=capacity)
    return len(plan(PlanInput(snapshot=seen, params=Parameters(**EAGER))).plan.moves)
