"""The virtual cluster: brokers, bundles and time. During a move, a bundle has no traffic for some seconds."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bundlekeel.model.load import BrokerReport, Floats, Ints
from bundlekeel.simulator.bundles import GONE, IN_TRANSIT, VirtualBundles
from bundlekeel.simulator.lookups import choose
from bundlekeel.simulator.reports import START_MS, Reporter, broker_id
from bundlekeel.simulator.scenario import ScenarioSettings

ANYWHERE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedMove:
    """One bundle that left its broker.

    `by`: why it left: balancer, person (an operator's unload), or an event of its broker (drain, kill, split). `load`:
    load of the bundle. `gap`: seconds in which its `clients` (producers and consumers) had no service.
    """

    at: float
    bundle: str
    source: int
    target: int
    load: float
    clients: int
    gap: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSplit:
    """One bundle that was split, and the names of its children."""

    at: float
    bundle: str
    children: tuple[str, ...]
    by: str


class VirtualCluster:
    """Brokers and bundles; time advances in ticks of the virtual clock. `loads(now)` returns every topic's load."""

    def __init__(
        self,
        bundles: VirtualBundles,
        loads: Callable[[float], Floats],
        capacities: Sequence[float] | Floats,
        settings: ScenarioSettings,
        seed: np.random.SeedSequence,
    ) -> None:
        for_reports, for_places = seed.spawn(2)
        count = len(capacities)
        self.settings, self.bundles, self._topic_loads = settings, bundles, loads
        self.now, self._tick = 0.0, 0
        self._rng = np.random.default_rng(for_places)
        self.capacity: Floats = np.array(capacities, dtype=np.float64)
        self.foreign: Floats = np.zeros(count)
        self.running = np.ones(count, dtype=bool)
        # A draining broker still serves its bundles, but accepts no others and has no node.
        self.takes = np.ones(count, dtype=bool)
        self.started: Floats = np.zeros(count)
        self.reporter = Reporter(count, settings, for_reports)
        # Whether isolation policies allow a namespace on a broker, by namespace and broker; None: there are none.
        self.allowed: np.ndarray[tuple[int, int], np.dtype[np.bool_]] | None = None
        self.moved: list[SimulatedMove] = []
        self.divided: list[SimulatedSplit] = []
        self._landing: list[tuple[float, int, int, int]] = []
        self._serial = 0
        self._owners = 0
        self._carried: Floats = np.zeros(len(bundles.names))
        self._busy: Floats = np.zeros(count)
        # Brokers' counters: load times seconds of each topic since its broker loaded it, CPU seconds of each process.
        self.carried: Floats = np.zeros(len(bundles.topic_hash))
        self.cpu_seconds: Floats = np.zeros(count)
        self._cached: tuple[object, tuple[Floats, Floats, Floats]] | None = None
        self._topic_array: Floats = np.zeros(0)
        self._grouped: tuple[object, Ints, Ints] | None = None

    def begin(self) -> None:
        """Start as if the brokers had run for a while with the present loads, so that their first reports are exact."""
        loads, busy = self._rates()[0], self.busy()
        statistics, host = self.reporter.since()
        for broker in range(len(self.capacity)):
            rows = self.rows_of(broker)
            self.reporter.measure(broker, rows, loads[rows])
            self.reporter.sample_cpu(broker, float(busy[broker]), exact=True)
            self.reporter.write(broker, self.now, 0.0, self.bundles)
            self._carried[rows] = loads[rows] * statistics[broker]
        self._busy = busy * host

    # --- truth ---

    @property
    def wall_ms(self) -> int:
        """The cluster's present time, Unix time in ms."""
        return START_MS + int(self.now * 1000)

    def bundle_loads(self) -> Floats:
        """Return every bundle's present load, with or without an owner."""
        return self._rates()[0]

    def topic_loads(self) -> Floats:
        """Return every topic's present load."""
        return self._topic_loads(self.now)

    def settled_load(self) -> Floats:
        """Return every broker's load divided by its capacity. Bundles in transit count at their destination."""
        owner = self.bundles.owner.copy()
        for _, _, row, target in self._landing:
            if target >= 0 and owner[row] == IN_TRANSIT:
                owner[row] = target
        has_owner = owner >= 0
        summed = np.bincount(owner[has_owner], weights=self.bundle_loads()[has_owner], minlength=len(self.capacity))
        load: Floats = summed / self.capacity
        return load

    def busy(self) -> Floats:
        """Return each host's CPU usage, 0 to 1: traffic, base load of the broker, and other processes."""
        worked = self.settings.cpu_base + self._rates()[1] / self.capacity + self.foreign
        used: Floats = np.where(self.running, np.minimum(worked, 1.0), 0.0)
        return used

    def own_busy(self) -> Floats:
        """Return each host's CPU usage, 0 to 1, without processes other than the broker."""
        own: Floats = np.maximum(self.busy() - self.foreign, 0.0)
        return own

    def rows_of(self, broker: int) -> Ints:
        """Return the indices of a broker's bundles."""
        key = (self._owners, self.bundles.version)
        if self._grouped is None or self._grouped[0] != key:
            order = np.argsort(self.bundles.owner, kind="stable")
            starts = np.searchsorted(self.bundles.owner[order], np.arange(len(self.capacity) + 1))
            self._grouped = (key, order, starts)
        _, order, starts = self._grouped
        rows: Ints = order[starts[broker] : starts[broker + 1]]
        return rows

    def _rates(self) -> tuple[Floats, Floats, Floats]:
        """Return each bundle's load, and each broker's CPU work and load. They are cached until one of them changes."""
        topic_loads = self._topic_loads(self.now)
        key = (id(topic_loads), self._owners, self.bundles.version, len(self.capacity))
        if self._cached is None or self._cached[0] != key:
            bundles = self.bundles
            loads = bundles.loads(topic_loads)
            has_owner = bundles.owner >= 0
            work, carried = (
                np.bincount(bundles.owner[has_owner], weights=values[has_owner], minlength=len(self.capacity)).astype(
                    np.float64
                )
                for values in (loads * bundles.cost, loads)
            )
            # Keep the array: its `id` is unique only while it exists.
            self._cached, self._topic_array = (key, (loads, work, carried)), topic_loads
        return self._cached[1]

    # --- time ---

    def advance(self) -> list[tuple[str, str]]:
        """Advance by one tick and return (bundle, broker) of each move that ended."""
        step, bundles = self.settings.tick, self.bundles
        loads = self._rates()[0]
        self._carried += np.where(bundles.owner >= 0, loads * step, 0.0)
        self._busy += self.busy() * step
        self.carried = np.where(bundles.owner[bundles.topic_bundle] >= 0, self.carried + self._topic_array * step, 0.0)
        self.cpu_seconds += self.own_busy() * step
        self._tick += 1
        self.now = self._tick * step
        done = self._land()
        statistics, host = self.reporter.due(self._tick)
        for broker in statistics:
            if self.running[broker]:
                rows = self.rows_of(broker)
                self.reporter.measure(broker, rows, self._carried[rows] / self.settings.statistics_interval)
                self._carried[rows] = 0.0
        for broker in host:
            self.reporter.sample_cpu(broker, float(self._busy[broker]) / self.settings.host_interval)
            self._busy[broker] = 0.0
        if self.now % self.settings.report_interval < 1e-6:
            alive = np.flatnonzero(self.running & self.takes)
            self.reporter.write_due(self.now, alive, self.started, bundles)
        return done

    def _land(self) -> list[tuple[str, str]]:
        done, bundles = [], self.bundles
        while self._landing and self._landing[0][0] <= self.now:
            _, _, row, target = heapq.heappop(self._landing)
            if bundles.owner[row] != IN_TRANSIT:
                continue
            if target < 0 or not self.takes[target]:
                target = self._lookup(row)
            if target < 0:
                self._launch(row, ANYWHERE, self.settings.session_seconds)
                continue
            bundles.owner[row] = target
            self._carried[row] = 0.0
            self._owners += 1
            done.append((bundles.names[row], broker_id(target)))
        return done

    def _lookup(self, row: int) -> int:
        """Return the broker to which a client's lookup assigns an unowned bundle, -1 if no broker may own it."""
        bundles, candidates = self.bundles, np.flatnonzero(self.takes)
        namespace = int(bundles.namespace[row])
        if self.allowed is not None:
            candidates = candidates[self.allowed[namespace, candidates]]
        if len(candidates) == 0:
            return -1
        in_namespace = (bundles.namespace == namespace) & (bundles.owner >= 0)
        counts = np.bincount(bundles.owner[in_namespace], minlength=len(self.capacity))
        return choose(candidates, counts[candidates], self.reporter.visible, self.settings, self._rng)

    # --- acts ---

    def move(self, bundle: str, target: int, *, by: str) -> bool:
        """Unload a bundle to a broker; ANYWHERE: to the broker that the next lookup selects.

        Returns False, and does nothing, if the bundle has no owner now.
        """
        row = self.bundles.index[bundle]
        if self.bundles.owner[row] < 0:
            return False
        delay = self.settings.land_seconds
        if target == ANYWHERE:
            delay += self.settings.lookup_seconds
        self._leave(row, target, delay, by)
        return True

    def _leave(self, row: int, target: int, delay: float, by: str, *, waits: float = 0.0) -> None:
        """Start to unload a bundle, which arrives after `delay` seconds.

        `waits`: seconds of the delay in which the old broker still serves the bundle. A broker that shuts down unloads
        its bundles one at a time.
        """
        bundles = self.bundles
        source = int(bundles.owner[row])
        bundles.owner[row] = IN_TRANSIT
        self._owners += 1
        clients = int(bundles.topics[row] * bundles.clients_per_topic[row])
        self._launch(row, target, delay)
        load = float(self.bundle_loads()[row])
        self.moved.append(
            SimulatedMove(
                at=self.now,
                bundle=bundles.names[row],
                source=source,
                target=target,
                load=load,
                clients=clients,
                gap=delay - waits,
                by=by,
            )
        )

    def under_way(self) -> int:
        """Return the number of bundles in transit."""
        return len({row for _, _, row, _ in self._landing if self.bundles.owner[row] == IN_TRANSIT})

    def _launch(self, row: int, target: int, delay: float) -> None:
        self._serial += 1
        heapq.heappush(self._landing, (self.now + delay, self._serial, row, target))

    def split(self, bundle: str, positions: Sequence[int], *, by: str, unload: bool = False) -> tuple[str, ...]:
        """Split a bundle at these hash positions and return the names of its children; empty: it has no owner.

        With `unload`, the children are then unloaded, and lookups assign them to brokers.
        """
        row = self.bundles.index[bundle]
        if self.bundles.owner[row] < 0:
            return ()
        rows = self.bundles.split(row, positions)
        self._carried = np.concatenate([self._carried, np.zeros(len(rows))])
        self._owners += 1
        children = tuple(self.bundles.names[child] for child in rows)
        self.divided.append(SimulatedSplit(at=self.now, bundle=bundle, children=children, by=by))
        if unload:
            for child in children:
                self.move(child, ANYWHERE, by="split")
        return children

    def add(self, count: int, capacity: float) -> None:
        """Add empty brokers."""
        more = np.zeros(count)
        self.capacity = np.concatenate([self.capacity, more + capacity])
        columns = (self.foreign, self._busy, self.cpu_seconds)
        self.foreign, self._busy, self.cpu_seconds = (np.concatenate([column, more]) for column in columns)
        self.started = np.concatenate([self.started, more + self.now])
        self.running, self.takes = (np.concatenate([t, more == 0]) for t in (self.running, self.takes))
        if self.allowed is not None:
            wide = np.ones((len(self.allowed), count), dtype=bool)
            self.allowed = np.concatenate([self.allowed, wide], axis=1)
        self._owners += 1
        self.reporter.add(count)
        for broker in range(len(self.capacity) - count, len(self.capacity)):
            self.reporter.write(broker, self.now, self.now, self.bundles)

    def kill(self, broker: int) -> None:
        """Kill a broker. It keeps its node and its bundles until its session expires."""
        wait = self.settings.session_seconds + self.settings.lookup_seconds
        self.running[broker] = self.takes[broker] = False
        for row in self.rows_of(broker).tolist():
            self._leave(row, ANYWHERE, wait, "kill")

    def expire(self, broker: int) -> None:
        """End the session of a dead broker, which deletes its node in the metadata store."""
        self.reporter.forget(broker)

    def drain(self, broker: int) -> None:
        """Shut a broker down as Pulsar does: delete its node, then unload its bundles one at a time."""
        self.takes[broker] = False
        self.reporter.forget(broker)
        wait = self.settings.lookup_seconds
        for place, row in enumerate(self.rows_of(broker).tolist()):
            turn = place / self.settings.drain_per_second
            self._leave(row, ANYWHERE, wait + turn, "drain", waits=turn)
        self.running[broker] = False

    def start(self, broker: int) -> None:
        """Start a stopped broker without bundles."""
        self.running[broker] = self.takes[broker] = True
        self.started[broker] = self.now
        self._busy[broker] = 0.0
        self.reporter.restart(broker)
        self.reporter.write(broker, self.now, self.now, self.bundles)

    # --- reports ---

    def reports(self) -> list[BrokerReport]:
        """Return the reports that are now in the metadata store."""
        return [report for report in self.reporter.visible if report is not None]

    def exact_reports(self) -> list[BrokerReport]:
        """Return the reports with the present loads, as if brokers measured and reported without delay."""
        loads, busy = self.bundle_loads(), self.busy()
        return [
            self.reporter.exact(b, self.now, self.bundles, self.rows_of(b), loads[self.rows_of(b)], float(busy[b]))
            for b in np.flatnonzero(self.running & self.takes).tolist()
        ]


__all__ = ["ANYWHERE", "GONE", "SimulatedMove", "SimulatedSplit", "VirtualCluster"]
