"""`ports.LoadFeed` in memory: a test sets the brokers' messages and the state of the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bundlekeel.model.extensible import BrokerLoadData, BundleLoads
from bundlekeel.model.load import Floats
from bundlekeel.ports import Clock, FeedState, FeedStatus, LatestLoad, LoadTables
from tests.support.generations import Generations


def broker_load(
    broker_id: str, score: float, traffic: Sequence[float], updated_at: int, bundles: int = 1
) -> BrokerLoadData:
    """Load data of a broker with this `weightedMaxEMA`; `traffic`: columns of `model.load.TRAFFIC`."""
    figures: Floats = np.array(traffic, dtype=float)
    return BrokerLoadData(
        broker_id=broker_id,
        weighted_max_ema=score,
        throughput_ema=float(figures[2:].sum()),
        max_resource_usage=score,
        traffic=figures,
        bundle_count=bundles,
        topics=bundles,
        updated_at=updated_at,
    )


def bundle_loads(**rates: Sequence[float]) -> BundleLoads:
    """Bundles of one topic each, by name, with these columns of `model.load.TRAFFIC`."""
    return BundleLoads(
        names=tuple(rates),
        traffic=np.array(list(rates.values()), dtype=float).reshape(-1, 4),
        counts=np.ones((len(rates), 3), dtype=np.int64),
    )


class MemoryFeed(Generations):
    """A feed that is `ok` as soon as it is started. `urls`: what it was started with, each time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.urls: list[tuple[str, ...]] = []
        self.closed = False
        self._clock = clock
        self._latest: dict[str, LatestLoad] = {}
        self._state: FeedState = "off"
        self._detail = ""
        self._since_ms = 0

    # --- what a test may do --------------------------------------------------------------------------------

    def say(self, *loads: BrokerLoadData, bundles: BundleLoads | None = None) -> None:
        """Publish load data of brokers and, if given, their top bundles."""
        now = self._clock.wall_ms()
        for load in loads:
            entry = replace(
                self._latest.get(load.broker_id, LatestLoad()), load=load, load_ms=now, withdrawn_ms=0, fault=None
            )
            if bundles is not None:
                entry = replace(entry, bundles=bundles, bundles_ms=now)
            self._latest[load.broker_id] = entry
        self._publish()

    def withdraw(self, broker_id: str) -> None:
        """Publish a tombstone, as a broker does around every move."""
        entry = self._latest.get(broker_id, LatestLoad())
        self._latest[broker_id] = replace(entry, withdrawn_ms=self._clock.wall_ms())
        self._publish()

    def spoil(self, broker_id: str, code: str, detail: str) -> None:
        """Publish a message that cannot be used. `code` and `detail`: the reason."""
        self._latest[broker_id] = replace(self._latest.get(broker_id, LatestLoad()), fault=(code, detail))
        self._publish()

    def become(self, state: FeedState, detail: str = "") -> None:
        """Set the state of the client's process."""
        self._state, self._detail = state, detail
        if state == "ok":
            self._since_ms = self._clock.wall_ms()
        self._publish()

    # --- LoadFeed ------------------------------------------------------------------------------------------

    async def start(self, service_urls: Sequence[str]) -> None:
        self.urls.append(tuple(service_urls))
        if self._state == "off":
            self.become("ok")

    def tables(self) -> LoadTables:
        return LoadTables(
            generation=self._generation,
            latest=dict(self._latest),
            status=FeedStatus(state=self._state, detail=self._detail, since_ms=self._since_ms),
        )

    async def close(self) -> None:
        self.closed = True
        self.become("off")
