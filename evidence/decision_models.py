"""Two ways to simulate Bundlekeel under the loads of `evidence.decision_worlds`: a quick model, and the simulator.

The quick model calls the sidecar's own `plan()` with exact counters. It reads them as often as
`pulsar.counters.counters` does, one broker at a time: every 15 s while nothing changes, and every 3 s while a decision
may be due. It omits a call of `plan()` only if the decision rule shows that no bundle can move.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from bundlekeel.model.averages import SHORT_SAMPLES, Averages
from bundlekeel.model.load import CPU, BrokerReport, Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import build_snapshot
from bundlekeel.planning import calm
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.budgets import CYCLE_BUDGETS, GENTLE
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.ledger import Ledger, landed, open_entries
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.planning.strategies.common import EPSILON
from bundlekeel.planning.strategies.timing import USUAL_SECONDS, tolerance
from bundlekeel.planning.strategies.timing import measured as measured_reports
from bundlekeel.pulsar.counters.counters import CHANGED_SHARE, CONFIRM_READINGS, CONFIRM_SECONDS
from bundlekeel.pulsar.counters.demand import CounterOptions
from bundlekeel.simulator.balancers import CYCLE, Bundlekeel
from bundlekeel.simulator.cluster import VirtualCluster
from bundlekeel.simulator.reports import BLIND_NIC, START_MS, broker_id
from bundlekeel.simulator.run import Contender, Simulation
from bundlekeel.simulator.scenario import BrokerGroup, Scenario, ScenarioSettings, Tenant
from bundlekeel.simulator.virtual_time import run_virtually
from evidence.decision_worlds import CPU_BASE, LAND_SECONDS, Moved, World

# Messages and bytes per second of a broker with a load of 1, as in the simulator.
UNIT: Final = np.array([1e5, 1e5, 1e8, 1e8])
BYTES: Final = float(UNIT[2:].sum())
# The learned costs and the memory of the rule are updated at least this often, in seconds.
FULL_SECONDS: Final = 120
INTERVAL, QUICK_INTERVAL = CounterOptions().interval, CONFIRM_SECONDS


def advance_waiting(
    memory: StrategyMemory, measured: calm.Measured, params: Parameters, fewest: Callable[[int, float], int]
) -> StrategyMemory | None:
    """Return the memory of the strategy after a cycle that moves no bundle; None if only `plan()` can decide that.

    `fewest(broker, score)`: fewest moves that lower the score of the broker in row `broker` by `score`.
    """
    if memory.active:
        return None
    courses, seconds = calm.follow_levels(memory.courses, measured, ())
    levels = np.array([courses[broker].level for broker in measured.ids])
    mean = float(levels.mean())
    differ = calm.differences(levels, mean) - calm.doubts(courses, measured.ids)
    excess = (differ + EPSILON) / tolerance(params, mean) - 1
    hot = levels >= mean
    courses = calm.follow_excesses(courses, measured.ids, hot, excess, seconds, ())
    urgent = False
    for row in np.flatnonzero(excess >= 0).tolist():
        course = courses[measured.ids[row]]
        if course.excess is None:
            urgent = True
            continue
        if levels[row] >= params.overloaded_threshold_percent / 100:
            return None
        moves = fewest(row if hot[row] else int(levels.argmax()), abs(float(levels[row]) - mean))
        if calm.held_seconds(course, params.swing_worth):
            urgent |= calm.is_due_soon(course, calm.price_of(moves, params.move_price), USUAL_SECONDS)
            continue
        # Learned costs can change the number of moves a little.
        least = calm.price_of(max(1, moves - 1), params.move_price)
        if course.excess.cost + course.excess.rate * USUAL_SECONDS >= least:
            return None
    return replace(memory, courses=courses, urgent=urgent)


class QuickReports(Bundlekeel):
    """Bundlekeel with load reports. It omits the calls of `plan()` that cannot move a bundle, to save time."""

    _planned = 0.0

    def cycle(self, cluster: VirtualCluster) -> None:
        """Run `plan()` only if a bundle can move, or if two minutes have passed."""
        snapshot = self._snapshot(cluster)
        scores = np.round(snapshot.brokers.usage[:, CPU], 3) / 100
        loads, starts = snapshot.bundles.latest[:, 0] / UNIT[0], snapshot.bundles.starts

        def fewest(source: int, want: float) -> int:
            return calm.fewest_moves(loads[starts[source] : starts[source + 1]], want)

        memory = None
        if not self.ledger.entries and cluster.now - self._planned < FULL_SECONDS:
            readings = measured_reports(snapshot, self.params, scores, scores)
            memory = advance_waiting(self.memory, readings, self.params, fewest)
        if memory is None:
            self._planned = cluster.now
            super().cycle(cluster)
        else:
            self.memory = memory


class QuickModel:
    """A simulation, second by second, of Bundlekeel that reads counters under the loads of a world."""

    def __init__(self, world: World, params: Parameters | None = None) -> None:
        count = world.brokers
        self.world, self.params, self.moves = world, params or Parameters(), list[Moved]()
        self._memory, self._ledger, self._averages = StrategyMemory(), Ledger(), Averages()
        self._recent: dict[str, RecentMove] = {}
        self._owners = world.owners.copy()
        self._landing: list[Moved] = []
        self._names = [f"t/all/0x{row << 16:08x}_0x{row + 1 << 16:08x}" for row in range(len(world.sizes))]
        self._rows = {name: row for row, name in enumerate(self._names)}
        self._ids = [broker_id(place) for place in range(count)]
        # CPU work of each broker until its bundles last changed.
        self._work, self._since = np.zeros(count), 0
        self._shares = self._grouped()
        self._reports: list[BrokerReport | None] = [None] * count
        self._readings: list[list[tuple[int, int, float]]] = [[] for _ in range(count)]
        self._asked, self._work_asked = [0] * count, np.zeros(count)
        self._until, self._lasted = np.zeros(count, dtype=np.int64), np.zeros(count)
        self._totals, self._scores = np.zeros(count), np.zeros(count)
        self._fresh = False
        self._quick = np.zeros(count, dtype=np.int64)
        self._last, self._last_full = 0, 0
        self._hurry = False

    def play(self) -> list[Moved]:
        """Simulate the world until its last second, and return the moves."""
        now = 1
        while now < self.world.seconds:
            self._turn(now)
            now += 1
            if not (self._fresh or self._landing or self._hurry or self._quick.any()):
                now = max(now, min(map(self._due, range(len(self._ids)))))
        return self.moves

    def _due(self, place: int) -> int:
        """Return the second in which the broker in row `place` is read next if no load changes."""
        share, pace = place / len(self._ids) * INTERVAL, INTERVAL
        return math.floor(share + pace * ((self._asked[place] - share) // pace + 1) + 1 - 1e-9)

    def _turn(self, now: int) -> None:
        if self._landing and self._landing[0].at + LAND_SECONDS <= now:
            self._land(now)
        self._hurry |= self._fresh
        self._fresh = False
        if now - self._last >= (CYCLE / 5 if self._hurry else CYCLE):
            self._last, self._hurry = now, False
            if self._until.all():
                self._cycle(now)
        if self._memory.urgent or self._ledger.entries:
            self._quick = np.maximum(self._quick, 1)
        for place, request in enumerate(self._asked):
            hurry = self._quick[place] > 0 and not self._landing
            if now >= (request + QUICK_INTERVAL if hurry else self._due(place)):
                self._quick[place] = max(0, self._quick[place] - 1)
                self._read(place, now)

    def _grouped(self) -> Floats:
        """Return the summed sizes of bundles: a row per broker, a column per group of the world. Bundles in transit
        have no broker.
        """
        shares = np.zeros((len(self._ids), self.world.factors.shape[1]))
        owned = self._owners >= 0
        np.add.at(shares, (self._owners[owned], self.world.groups[owned]), self.world.sizes[owned])
        return shares

    def _worked(self, now: int) -> Floats:
        passed: Floats = self._work + self._shares @ (self.world.carried(now) - self.world.carried(self._since))
        return passed

    def _change(self, now: int, bundle: int, owner: int) -> None:
        self._work, self._since = self._worked(now), now
        self._owners[bundle] = owner
        self._shares = self._grouped()

    def _land(self, now: int) -> None:
        for move in [item for item in self._landing if item.at + LAND_SECONDS <= now]:
            self._landing.remove(move)
            self._change(now, move.bundle, move.target)
            name, broker = self._names[move.bundle], self._ids[move.target]
            self._ledger = landed(self._ledger, name, broker, START_MS + 1000 * now)

    def _read(self, place: int, now: int) -> None:
        begin = self._asked[place]
        worked, mean = float(self._worked(now)[place]), self._mean(begin, now)
        usage = round(100 * min(1.0, CPU_BASE + (worked - float(self._work_asked[place])) / (now - begin)), 3)
        self._readings[place] = [*self._readings[place], (begin, now, usage)][-SHORT_SAMPLES:]
        self._until[place], self._lasted[place] = START_MS + 1000 * now, now - begin
        self._asked[place], self._work_asked[place], self._fresh = now, worked, True
        before, total = float(self._totals[place]), float(self._shares[place] @ mean)
        self._totals[place], self._scores[place] = total, usage / 100
        if abs(total - before) > CHANGED_SHARE * float(self._totals.max()) and before > 0:
            self._quick = np.maximum(self._quick, CONFIRM_READINGS)

    def _mean(self, begin: int, end: int) -> Floats:
        mean: Floats = (self.world.carried(end) - self.world.carried(begin)) / (end - begin)
        return mean

    def _report(self, place: int, begin: int, end: int, usage: float) -> BrokerReport:
        rows, mean = np.flatnonzero(self._owners == place), self._mean(begin, end)
        traffic = (self.world.sizes[rows] * mean[self.world.groups[rows]])[:, None] * UNIT
        return BrokerReport(
            broker_id=self._ids[place],
            usage=np.array([usage, 0.0, 0.0, 0.0]),
            limit=np.array([100.0, 1024.0, BLIND_NIC, BLIND_NIC]),
            traffic=traffic.sum(axis=0),
            last_update=START_MS + 1000 * end,
            num_topics=len(rows),
            bundle_names=tuple(map(self._names.__getitem__, rows.tolist())),
            bundle_traffic=traffic,
            bundle_counts=np.ones((len(rows), 3), dtype=np.int64),
            interval_ms=1000 * (end - begin),
        )

    def _add_readings(self) -> list[BrokerReport]:
        for place, readings in enumerate(self._readings):
            for reading in readings:
                report = self._report(place, *reading)
                self._averages.add_report(report, now_ms=report.last_update, skip=self._ledger.bundles())
                self._reports[place] = report
            self._readings[place] = []
        return [item for item in self._reports if item is not None]

    def _cycle(self, now: int) -> None:
        if now - self._last_full < FULL_SECONDS and self._waits():
            return
        self._last_full, wall_ms = now, START_MS + 1000 * now
        reports = self._add_readings()
        snapshot = build_snapshot(reports=reports, averages=self._averages, wall_ms=wall_ms)
        guard = GuardState(recent=self._recent)
        plan_input = PlanInput(
            snapshot=snapshot, params=self.params, memory=self._memory, ledger=self._ledger, guard=guard
        )
        result = plan(plan_input)
        moves = result.plan.moves
        self._memory = result.memory
        self._ledger = open_entries(result.ledger, moves, snapshot, wall_ms) if moves else result.ledger
        for move in moves:
            row = self._rows[move.bundle]
            self._recent[move.bundle] = RecentMove(at_ms=wall_ms, source=move.source)
            move_record = Moved(now, row, self._ids.index(move.source), self._ids.index(move.target))
            self.moves.append(move_record)
            self._landing.append(move_record)
            self._change(now, row, -1)
        codes = {refusal.code for refusal in result.plan.refusals}
        self._hurry = bool(moves and codes & CYCLE_BUDGETS and not codes & GENTLE)

    def _waits(self) -> bool:
        """Return whether no bundle can move. If so, update the strategy's memory as `plan()` would."""
        if self._ledger.entries:
            return False
        measured = calm.Measured(
            ids=self._ids,
            scores=self._scores,
            traffic=BYTES * self._totals,
            cost=np.full(len(self._ids), 1 / BYTES),
            updated_ms=self._until,
            until_ms=self._until,
            seconds=self._lasted,
        )
        memory = advance_waiting(self._memory, measured, self.params, self._fewest)
        self._memory = memory or self._memory
        return memory is not None

    def _fewest(self, source: int, want: float) -> int:
        rows = np.flatnonzero(self._owners == source)
        mean = self._mean(self._asked[source] - int(self._lasted[source]), self._asked[source])
        return calm.fewest_moves(self.world.sizes[rows] * mean[self.world.groups[rows]], want)


def play_simulated(world: World, seed: int, contender: Contender, tick: float) -> list[Moved]:
    """Run the simulator with the load of this world and return the moves of the balancer."""
    count = len(world.sizes)
    scenario = Scenario(
        name="world",
        title="world",
        minutes=(world.seconds - tick) / 60,
        brokers=(BrokerGroup(count=world.brokers),),
        tenants=(
            Tenant(
                name="t/all",
                bundles=count,
                sizes=tuple(world.sizes.tolist()),
                shuffle=False,
                owners=tuple(world.owners.tolist()),
            ),
        ),
        settings=ScenarioSettings(tick=tick, land_seconds=LAND_SECONDS, cpu_noise=0.0, cpu_base=CPU_BASE),
    )
    simulation = Simulation(scenario, contender, seed)
    if contender.kind == "bundlekeel" and contender.source == "reports":
        simulation.balancer = QuickReports(params=simulation.params, seed=seed)
    cluster, names = simulation.cluster, simulation.cluster.bundles.index
    cluster._topic_loads = _loads_of(world)
    run_virtually(simulation.run())
    return [
        Moved(move.at, names[move.bundle], move.source, move.target) for move in cluster.moved if move.by == "balancer"
    ]


def _loads_of(world: World) -> Callable[[float], Floats]:
    """Return a function from a time to the load of each bundle. It returns the same array until a load changes."""
    last: tuple[int, Floats] = (-1, world.sizes)

    def loads(now: float) -> Floats:
        nonlocal last
        row = min(int(now / world.grid + 1e-6), len(world.factors) - 1)
        if last[0] < 0 or (row != last[0] and (world.factors[row] != world.factors[last[0]]).any()):
            last = row, world.sizes * world.factors[row][world.groups]
        return last[1]

    return loads
