"""Load reports of the virtual brokers: as late, rare and sometimes wrong as in Pulsar (`LoadReportUpdaterTask`).

A broker's bundle list and statistics (means) are refreshed once per statistics interval. CPU is the mean over the last
host-usage interval. A broker writes a new report only if traffic or the number of bundles changed by more than 10 %, if
the highest usage changed by more than 10 points, or if the last report is 15 minutes old.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bundlekeel.model.load import BrokerReport, Floats, Ints
from bundlekeel.simulator.bundles import VirtualBundles
from bundlekeel.simulator.scenario import ScenarioSettings

START_MS = 1_700_000_000_000
BLIND_NIC = -1000.0
NEVER = -1e9
OVER_REPORTED = 2.5


def broker_id(index: int) -> str:
    """Return the id of a broker. Ids sort in the order of the indices."""
    return f"b{index:04d}:8080"


class Reporter:
    """Measures and writes the reports of all brokers. Lists and arrays have one value per broker.

    `visible`: report in the metadata store; None: the broker has no node there. `stored_ms`: time of the report's write
    by the clock of the metadata store, which is also the balancer's clock.
    """

    def __init__(self, count: int, settings: ScenarioSettings, seed: np.random.SeedSequence) -> None:
        self.settings = settings
        self._rng = np.random.default_rng(seed)
        self.visible: list[BrokerReport | None] = []
        self.stored_ms: list[int] = []
        self.version = 0
        self.cpu: Floats = np.zeros(0)
        self.skew: Floats = np.zeros(0)
        self.loss: Floats = np.zeros(0)
        self.delay: Floats = np.zeros(0)
        self.bad: list[str] = []
        # Number of refreshes of each broker's statistics.
        self.refreshes: list[int] = []
        self._rows: list[Ints] = []
        self._rates: list[Floats] = []
        self._names: list[tuple[str, ...]] = []
        self._names_of: list[tuple[int, bytes]] = []
        # A report is due if the present values (`_now`) differ enough from those of the last report (`_written`).
        self._now: Floats = np.zeros((0, 3))
        self._written: Floats = np.zeros((0, 3))
        self._written_at: Floats = np.zeros(0)
        self._slots: list[list[list[int]]] = [[[] for _ in range(n)] for n in self._periods()]
        self._under_way: list[tuple[float, int, int, BrokerReport, int]] = []
        self._fresh: list[BrokerReport] = []
        self._serial = 0
        self.add(count)

    def _periods(self) -> tuple[int, int]:
        settings = self.settings
        return round(settings.statistics_interval / settings.tick), round(settings.host_interval / settings.tick)

    def add(self, count: int) -> None:
        """Add brokers. Each refreshes its statistics at a random tick of every statistics interval, and its host usage
        at a random tick of every host-usage interval. Both ticks stay the same in later intervals.
        """
        first = len(self.visible)
        for index in range(first, first + count):
            for slots in self._slots:
                slots[int(self._rng.integers(0, len(slots)))].append(index)
        self.visible += [None] * count
        self.stored_ms += [0] * count
        self.bad += [""] * count
        self.refreshes += [0] * count
        self._rows += [np.zeros(0, dtype=np.int64)] * count
        self._rates += [np.zeros(0)] * count
        self._names += [()] * count
        self._names_of += [(-1, b"")] * count
        more = np.zeros(count)
        self.cpu, self.skew = np.concatenate([self.cpu, more]), np.concatenate([self.skew, more])
        self.loss = np.concatenate([self.loss, more + self.settings.report_loss])
        self.delay = np.concatenate([self.delay, more + self.settings.report_delay])
        self._now, self._written = (np.concatenate([t, np.zeros((count, 3))]) for t in (self._now, self._written))
        self._written_at = np.concatenate([self._written_at, more + NEVER])

    def due(self, tick: int) -> tuple[list[int], list[int]]:
        """Return the brokers that refresh their statistics in this tick, and those that refresh their host usage."""
        statistics, host = (slots[tick % len(slots)] for slots in self._slots)
        return statistics, host

    def since(self) -> tuple[Floats, Floats]:
        """Return, for time 0, the seconds since each broker's last refresh of statistics, and of host usage.

        Before time 0, the brokers are assumed to have refreshed in the same rhythm.
        """
        count, step = len(self.visible), self.settings.tick
        seconds = np.zeros((2, count))
        for place, slots in enumerate(self._slots):
            for slot, brokers in enumerate(slots):
                seconds[place, brokers] = ((-slot) % len(slots)) * step
        return seconds[0], seconds[1]

    def spoil(self, brokers: Sequence[int], kind: str) -> None:
        """Set the fault of these brokers' reports: `nan`, `negative`, `over`, `empty`, or "" (no fault)."""
        for broker in brokers:
            self.bad[broker] = kind
        self.version += 1

    # --- measuring ---

    def measure(self, broker: int, rows: Ints, rates: Floats) -> None:
        """Refresh a broker's statistics. `rows`: indices of its bundles; `rates`: average load of each."""
        noise = self.settings.rate_noise
        self.refreshes[broker] += 1
        self._rows[broker] = rows
        self._rates[broker] = rates * (1 + self._rng.uniform(-1, 1, size=len(rates)) * noise) if noise else rates
        self._now[broker, 0] = self._rates[broker].sum()
        self._now[broker, 1] = len(rows)

    def sample_cpu(self, broker: int, busy: float, *, exact: bool = False) -> None:
        """Refresh a broker's CPU usage. `busy`: 0 to 1; noise is added unless `exact`."""
        noise = 0.0 if exact else self._rng.normal(0.0, self.settings.cpu_noise)
        # Brokers with an unsupported cgroup version may report more than 100 % CPU.
        self.cpu[broker] = OVER_REPORTED if self.bad[broker] == "over" else min(max(busy + noise, 0.0), 1.0)
        self._now[broker, 2] = self.cpu[broker]

    def statistics(self, broker: int, bundles: VirtualBundles) -> tuple[Ints, Floats]:
        """Return the indices of the bundles in a broker's statistics, and their traffic (columns of `TRAFFIC`)."""
        rows = self._rows[broker]
        return rows, self._rates[broker][:, None] * bundles.unit[rows]

    def restart(self, broker: int) -> None:
        """Reset the statistics of a restarted broker."""
        self.measure(broker, np.zeros(0, dtype=np.int64), np.zeros(0))
        self.cpu[broker] = 0.0
        self._now[broker] = 0.0
        self._written_at[broker] = NEVER

    # --- writing ---

    def write_due(self, now: float, alive: Ints, started: Floats, bundles: VirtualBundles) -> None:
        """Write the reports that are due, and make delayed reports visible whose delay has passed."""
        old, new = self._written[alive], self._now[alive]
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.abs(old[:, :2] - new[:, :2]) / old[:, :2]
        relative[(old[:, :2] == 0) & (new[:, :2] == 0)] = 0.0
        change = np.maximum(relative.max(axis=1, initial=0.0), np.abs(old[:, 2] - new[:, 2]))
        silent = now - self._written_at[alive] > self.settings.report_max_silence
        for broker in alive[(change > self.settings.report_threshold) | silent].tolist():
            self.write(broker, now, float(started[broker]), bundles)
        while self._under_way and self._under_way[0][0] <= now:
            _, _, broker, report, stored_ms = heapq.heappop(self._under_way)
            self._show(broker, report, stored_ms)

    def write(self, broker: int, now: float, started: float, bundles: VirtualBundles) -> None:
        """Write one report. The settings of the scenario decide whether it is lost or delayed."""
        self._written[broker], self._written_at[broker] = self._now[broker], now
        if self.loss[broker] and self._rng.random() < self.loss[broker]:
            return
        report, stored_ms = self._report(broker, now, started, bundles), START_MS + int(now * 1000)
        if self.delay[broker] > 0:
            self._serial += 1
            heapq.heappush(self._under_way, (now + float(self.delay[broker]), self._serial, broker, report, stored_ms))
        else:
            self._show(broker, report, stored_ms)

    def _show(self, broker: int, report: BrokerReport, stored_ms: int) -> None:
        if self._written_at[broker] == NEVER:
            return
        self.visible[broker], self.stored_ms[broker] = report, stored_ms
        self.version += 1
        self._fresh.append(report)

    def forget(self, broker: int) -> None:
        """Delete a broker's report from the metadata store."""
        self.visible[broker] = None
        self._written_at[broker] = NEVER
        self.version += 1

    def take_fresh(self) -> list[BrokerReport]:
        """Return the reports that became visible since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def exact(
        self, broker: int, now: float, bundles: VirtualBundles, rows: Ints, loads: Floats, cpu: float
    ) -> BrokerReport:
        """Return a report with these loads, as if the broker measured and reported without delay."""
        return self._build(broker, now, 0.0, bundles, rows, loads, cpu)

    def _report(self, broker: int, now: float, started: float, bundles: VirtualBundles) -> BrokerReport:
        rows = self._rows[broker]
        key = (bundles.version, rows.tobytes())
        if self._names_of[broker] != key:
            self._names_of[broker] = key
            self._names[broker] = tuple(map(bundles.names.__getitem__, rows.tolist()))
        report = self._build(broker, now, started, bundles, rows, self._rates[broker], float(self.cpu[broker]))
        return replace(report, bundle_names=self._names[broker])

    def _build(
        self, broker: int, now: float, started: float, bundles: VirtualBundles, rows: Ints, rates: Floats, cpu: float
    ) -> BrokerReport:
        traffic = rates[:, None] * bundles.unit[rows]
        topics = bundles.topics[rows]
        half = topics * bundles.clients_per_topic[rows] // 2
        return BrokerReport(
            broker_id=broker_id(broker),
            usage=np.array([cpu * 100, 0.0, 0.0, 0.0]),
            limit=np.array([100.0, 1024.0, BLIND_NIC, BLIND_NIC]),
            traffic=traffic.sum(axis=0),
            last_update=START_MS + int((now + self.skew[broker]) * 1000),
            start_timestamp=START_MS + int((started + self.skew[broker]) * 1000),
            num_topics=int(topics.sum()),
            bundle_names=tuple(map(bundles.names.__getitem__, rows.tolist())),
            bundle_traffic=traffic,
            bundle_counts=np.column_stack([topics, half, half]),
        )
