"""The received load data of extensible brokers (their book), with a time that the test sets."""

from __future__ import annotations

from dataclasses import replace

from bundlekeel.model.extensible import BrokerLoadData, BundleLoads
from bundlekeel.model.load import CPU, BrokerEndpoint, BrokerReport
from bundlekeel.ports import FeedState, FeedStatus, LatestLoad, LoadTables
from bundlekeel.pulsar.sources.extensible_brokers import BundlesSetting, ExtensibleBrokers, Instant
from tests.support.builders import NOW_MS, bundle_name
from tests.support.memory_feed import broker_load, bundle_loads

A, B, C = "a:1", "b:1", "c:1"
X, Y = bundle_name(1), bundle_name(2)
STARTED = NOW_MS - 10_000_000
BUSY = (100.0, 100.0, 1e6, 1e6)
HALF = (50.0, 50.0, 5e5, 5e5)


class Bench:
    """The received load data of extensible brokers, and the current time, which a test advances."""

    def __init__(self, bundles: BundlesSetting = "all", *brokers: str) -> None:
        self.book = ExtensibleBrokers(bundles=bundles, stats_interval=10.0)
        self.seconds = 0.0
        self.latest: dict[str, LatestLoad] = {}
        self.state: FeedState = "ok"
        self.register(*(brokers or (A, B, C)))

    @property
    def now(self) -> Instant:
        return Instant(NOW_MS + int(1000 * self.seconds), 100.0 + self.seconds)

    def register(self, *brokers: str, started: int = STARTED) -> None:
        self.book.register(
            {b: BrokerEndpoint(broker_id=b, web_url=f"http://{b}", start_timestamp=started) for b in brokers}
        )

    def listen(self) -> None:
        self.book.take_in(LoadTables(latest=self.latest, status=FeedStatus(state=self.state)), self.now)

    def say(self, load: BrokerLoadData, top: BundleLoads | None = None) -> None:
        before = self.latest.get(load.broker_id, LatestLoad())
        entry = replace(before, load=load, load_ms=self.now.wall_ms)
        if top is not None:
            entry = replace(entry, bundles=top, bundles_ms=self.now.wall_ms)
        self.latest[load.broker_id] = entry
        self.listen()

    def load(self, broker: str, score: float, traffic: tuple[float, ...] = BUSY, bundles: int = 1) -> BrokerLoadData:
        return broker_load(broker, score, traffic, self.now.wall_ms, bundles)

    def poll(self, broker: str, **bundles: tuple[float, ...]) -> bool:
        return self.book.polled(broker, bundle_loads(**bundles), self.now)

    def reports(self) -> dict[str, BrokerReport]:
        self.listen()
        return {report.broker_id: report for report in self.book.reports(self.now)[0]}

    def codes(self) -> dict[str, str]:
        return {item.broker_id: item.code for item in self.book.reports(self.now)[1]}


def score(report: BrokerReport) -> float:
    """The score that a snapshot of mode `extensible` would give the broker."""
    return float(report.usage[CPU] / report.limit[CPU])
