"""The sidecar under load in `evidence.load`: normal wiring, an in-memory cluster, and a lease of eight seconds."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

from bundlekeel.wiring.logs import configure_logging
from tests.support.builders import broker, report
from tests.support.memory_admin import BrokerModel
from tests.support.memory_coordination import MemoryStore
from tests.support.memory_source import MemoryLoadSource, MemoryMetadata
from tests.support.world import FakeCluster, FakeSidecar, TestClock

_TICK_SECONDS = 0.01
_NAMESPACE_BUNDLES = 100


class LargeCluster(FakeCluster):
    """A cluster with many brokers and bundles; three brokers in ten have twice the load."""

    def __init__(self, brokers: int, bundles: int) -> None:
        self.clock, self.store = TestClock(), MemoryStore()
        self.names = [broker(number) for number in range(brokers)]
        self.model = BrokerModel(self.names)
        self.source, self.metadata = MemoryLoadSource(self.clock), MemoryMetadata()
        self.metadata.leader = self.names[0]
        self.model.dynamic["loadBalancerSheddingEnabled"] = "false"
        self.shares: dict[str, float] = {}
        self._owned: dict[str, list[str]] = {}
        sizes = np.random.default_rng(1).pareto(2.0, brokers * bundles)
        step = 0xFFFFFFFF // _NAMESPACE_BUNDLES
        for number, size in enumerate(sizes.tolist()):
            space, place = divmod(number, _NAMESPACE_BUNDLES)
            name = f"t/ns{space}/0x{place * step:08x}_0x{(place + 1) * step:08x}"
            owner = self.names[number // bundles]
            self.shares[name] = min(size, 20.0) / bundles / (2 if number // bundles % 10 < 3 else 4)
            self._owned.setdefault(owner, []).append(name)
            self.model.add(name, owner)
        self.publish()

    def publish(self) -> None:
        """Write a load report for every broker."""
        for name, load in self._owned.items():
            shares = {bundle: self.shares[bundle] for bundle in load}
            counts = np.ones((len(load), 3))
            self.source.put(report(name, shares, last_update=self.clock.wall_ms(), bundle_counts=counts))


class LoadedSidecar(FakeSidecar):
    """A sidecar that measures the pauses of its event loop, its losses of leadership, and its memory."""

    settings: ClassVar[Mapping[str, Any]] = {
        "api.port": 0,
        "api.socket": None,
        "cycle.interval": 10.0,
        "leadership": {"heartbeat": 2.0, "margin_ratio": 0.2},
    }
    silence, epochs = 0.0, frozenset[int]()

    async def tick(self) -> None:
        """Measure the longest time in which the event loop ran no task, until cancelled."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            self.silence, last = max(self.silence, now - last - _TICK_SECONDS), now
            if self.leadership.epoch is not None:
                self.epochs |= {self.leadership.epoch}

    def ready(self, urls: list[str]) -> None:
        """Print the port. Then print the measurements whenever a line arrives on standard input."""
        self.serving.ready(urls)
        _tell(port=urlsplit(urls[0]).port)
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        for _ in sys.stdin:
            _tell(silence=self.silence, terms=max(0, len(self.epochs) - 1), mib=_peak_mib())
            self.silence = 0.0
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _tell(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def _peak_mib() -> float:
    match = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(match[1]) / 1024 if match else 0.0


def serve(brokers: int, bundles: int) -> None:
    """Run the sidecar until SIGTERM."""
    sidecar = LoadedSidecar(LargeCluster(brokers, bundles), mode="recommend")
    configure_logging(sidecar.loaded.settings, "error")
    with asyncio.Runner() as runner:
        service = sidecar.serving.off_loop(runner.get_loop())
        tasks = {"published": service.run, "ticks": sidecar.tick}
        run = sidecar.runtime.run([sidecar.serving.server(service)], tasks, on_ready=sidecar.ready)
        sys.exit(runner.run(run))
