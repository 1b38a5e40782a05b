"""Balancers of a simulated cluster: Bundlekeel with its memory of earlier cycles, Pulsar's own shedding, or none."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from bundlekeel.model.averages import Averages
from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerEndpoint, ExcludedBroker, dated
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Plan
from bundlekeel.model.policies import Policies
from bundlekeel.model.snapshot import Snapshot, build_snapshot
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.guard.budgets import CYCLE_BUDGETS, GENTLE
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.ports import RawClusterView
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.simulator.cluster import VirtualCluster
from bundlekeel.simulator.leader import SimulatedLeader
from bundlekeel.simulator.reports import broker_id
from bundlekeel.simulator.splitter import SimulatedSplitter

# Default of the setting `cycle.interval`, in seconds.
CYCLE = 10.0
# The sidecar's code for an unusable report (`load_fault` of `pulsar.formats`); usage above 100 % is usable.
UNUSABLE = {"nan": Code.NOT_A_NUMBER, "negative": Code.NEGATIVE_VALUE, "empty": Code.EMPTY_REPORT}


class Balancer(Protocol):
    """A balancer of a virtual cluster.

    `turn` is called once per tick (step of the virtual clock), after time has advanced. `landed`: (bundle, broker) of
    each move that ended in this tick.
    """

    def turn(self, cluster: VirtualCluster, landed: list[tuple[str, str]]) -> None: ...


class NoBalancer:
    """A balancer that never moves a bundle."""

    def turn(self, cluster: VirtualCluster, landed: list[tuple[str, str]]) -> None:
        """Do nothing."""


@dataclass(kw_only=True)
class RunBooks:
    """Records of one run: moves, number of each verdict and refusal code, plan hashes, and duration of the slowest
    plan."""

    moves: list[tuple[float, Move]] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    hashes: list[str] = field(default_factory=list)
    cycles: int = 0
    slowest: float = 0.0
    keep: Callable[[float, Plan], None] | None = None
    timer: Callable[[], float] | None = None

    def plan(self, inputs: PlanInput) -> PlanResult:
        """Run `plan()`. With a timer, also record the duration if it is the longest so far."""
        before = self.timer() if self.timer else 0.0
        result = plan(inputs)
        if self.timer:
            self.slowest = max(self.slowest, self.timer() - before)
        return result

    def unloaded(self, now: float, bundle: str, broker: int) -> None:
        """Record one move of a balancer that does not use `plan()`."""
        self.hashes.append(hashlib.sha256(f"{now} {bundle} {broker}".encode()).hexdigest()[:16])

    def add(self, now: float, result: Plan) -> None:
        """Record the plan of one cycle."""
        self.cycles += 1
        self.verdicts[result.verdict.code.value] += 1
        self.verdicts.update({item.code.value for item in result.brokers} - {result.verdict.code.value})
        self.refusals.update(item.code.value for item in (*result.refusals, *result.split_refusals))
        self.hashes.append(result.hash)
        self.moves += [(now, move) for move in result.moves]
        if self.keep:
            self.keep(now, result)


@dataclass(kw_only=True)
class Bundlekeel(SimulatedLeader):
    """Bundlekeel's leader as the balancer of a virtual cluster.

    `live`: the sidecar's reader of the brokers' counters; None: loads come from the load reports. With counters a cycle
    starts as soon as there are new loads, at most five times per cycle interval, as in the sidecar.
    """

    capacity: tuple[CapacityOverride, ...] = ()
    policies: Policies = field(default_factory=Policies)
    guard: GuardState = field(default_factory=GuardState)
    seed: int = 0
    splits: bool = False
    brokers_split: bool = False
    shed_themselves: bool = False
    live: LiveLoads | None = None
    averages: Averages = field(default_factory=Averages)
    books: RunBooks = field(default_factory=RunBooks)
    splitter: SimulatedSplitter = field(default_factory=SimulatedSplitter)
    # `_reported`: contents of the brokers' nodes. `_view`: the same brokers with the loads that plans use.
    _reported: RawClusterView | None = None
    _view: RawClusterView | None = None
    _last_snapshot: tuple[RawClusterView, Snapshot] | None = None
    _last: float = 0.0
    _hurry: bool = False

    def turn(self, cluster: VirtualCluster, arrived: list[tuple[str, str]]) -> None:
        """Record the ended moves, add new loads to the averages, and run a cycle if one is due."""
        for bundle, where in arrived:
            self.land(bundle, where, cluster.wall_ms)
        before, self._view = self._view, self._read(cluster)
        old_ids = (
            set(map(id, before.reports)) if before else set()
        )  # `before` references them, so no new report has such an id
        for report in self._view.reports:
            if id(report) not in old_ids:
                self._hurry = self._hurry or self.live is not None
                self.averages.add_report(
                    self.splitter.updated(report), now_ms=cluster.wall_ms, skip=self.ledger.bundles()
                )
        if cluster.now - self._last >= (CYCLE / 5 if self._hurry else CYCLE) - 1e-6:
            self._last, self._hurry = cluster.now, False
            self.cycle(cluster)

    def _read(self, cluster: VirtualCluster) -> RawClusterView:
        """Return the brokers with their present loads: from counters if `live` is set, else from reports."""
        cluster.reporter.take_fresh()  # only brokers' own balancers read reports one by one
        if self._reported is None or self._reported.generation != cluster.reporter.version:
            self._reported = reported(cluster)
            if self.live is not None:
                self.live.register(self._reported.endpoints)
        return self._reported if self.live is None else self.live.fused(self._reported)

    def cycle(self, cluster: VirtualCluster) -> None:
        """Run one cycle: take a snapshot, plan, start the moves and splits, and record them."""
        if self.shed_themselves:
            # The sidecar does not act while the brokers' own load shedding is on.
            self.books.cycles += 1
            self.books.verdicts[Code.BROKERS_SHED_THEMSELVES.value] += 1
            return
        inputs = PlanInput(
            snapshot=self._snapshot(cluster),
            params=self.params,
            guard=self.guard,
            policies=self.policies,
            brokers_split=self.brokers_split,
            seed=self.seed,
        )
        _, result = self.decide(inputs, self.books.plan)
        moves = result.plan.moves
        for move in moves:
            cluster.move(move.bundle, cluster_index(move.target), by="balancer")
        self.books.add(cluster.now, result.plan)
        codes = {refusal.code for refusal in result.plan.refusals}
        # Start the next cycle early if only the budgets of one cycle limited the plan.
        self._hurry = self.live is not None and bool(moves and codes & CYCLE_BUDGETS and not codes & GENTLE)
        if self.splits:
            for split in result.plan.splits:
                self.end_split(split.bundle, self.splitter.split(cluster, split, self.averages))
            self._last_snapshot = None if result.plan.splits else self._last_snapshot

    def _snapshot(self, cluster: VirtualCluster) -> Snapshot:
        """Return the snapshot of this cycle. If no load has changed, it is the last snapshot with a new time."""
        view = self._view or self._read(cluster)
        if self._last_snapshot is None or not _same(self._last_snapshot[0], view):
            snapshot = build_snapshot(
                reports=[self.splitter.updated(report) for report in view.reports],
                averages=self.averages,
                wall_ms=cluster.wall_ms,
                excluded=view.excluded,
                capacity=self.capacity,
            )
            self._last_snapshot = view, snapshot
            self.books.refusals.update(item.code for item in view.excluded)
        return replace(self._last_snapshot[1], wall_ms=cluster.wall_ms)


def _same(before: RawClusterView, now: RawClusterView) -> bool:
    return [*map(id, before.reports)] == [*map(id, now.reports)] and before.excluded == now.excluded


def reported(cluster: VirtualCluster) -> RawClusterView:
    """Return the reports in the metadata store. Brokers with an unusable report are in `excluded`."""
    stored = cluster.reporter.stored_ms
    reports = [dated(item, stored[cluster_index(item.broker_id)]) for item in cluster.reports()]
    faults = {item.broker_id: UNUSABLE.get(cluster.reporter.bad[cluster_index(item.broker_id)]) for item in reports}
    return RawClusterView(
        wall_ms=cluster.wall_ms,
        boot=cluster.now,
        generation=cluster.reporter.version,
        mode="modular",
        reports=tuple(item for item in reports if not faults[item.broker_id]),
        excluded=tuple(ExcludedBroker(broker_id=broker, code=fault.value) for broker, fault in faults.items() if fault),
        endpoints={
            item.broker_id: BrokerEndpoint(
                broker_id=item.broker_id, web_url=f"http://{item.broker_id}", start_timestamp=item.start_timestamp
            )
            for item in reports
        },
    )


def cluster_index(broker: str) -> int:
    """Return the index of a virtual broker, which its id contains."""
    return int(broker[1:].partition(":")[0])


def direct_moves(cluster: VirtualCluster, params: Parameters, capacity: tuple[CapacityOverride, ...]) -> int:
    """Return the number of moves in one plan with exact reports and no limits on moves. The plan is not executed."""
    averages = Averages()
    reports = [dated(item, cluster.wall_ms) for item in cluster.exact_reports()]
    for item in reports:
        averages.add_report(item, now_ms=cluster.wall_ms)
    snapshot = build_snapshot(reports=reports, averages=averages, wall_ms=cluster.wall_ms, capacity=capacity)
    many = 10**6
    eager = replace(
        params,
        move_price=0.0,
        max_moves_per_cycle=many,
        max_moves_per_source=many,
        max_moves_per_target=many,
        max_moves_per_namespace=many,
    )
    return len(plan(PlanInput(snapshot=snapshot, params=eager)).plan.moves)


__all__ = ["Balancer", "Bundlekeel", "NoBalancer", "RunBooks", "broker_id", "cluster_index", "direct_moves"]
