"""A broker's page cannot make the leader look up any number of namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bundlekeel.model.load import BundleAverages
from bundlekeel.model.names import namespace_of
from bundlekeel.ports import RawClusterView
from bundlekeel.pulsar.counters import counters
from bundlekeel.pulsar.sources.observer import Observer
from bundlekeel.records.metrics import PrometheusTelemetry
from tests.support.builders import NOW_MS, cluster
from tests.support.memory_source import MemoryLoadSource, RealClock
from tests.unit.pulsar.counters.test_counters import Stage, played


@played(seconds=10.0)
async def test_s02_invented_namespaces_are_read_in_bounded_numbers(stage: Stage) -> None:
    stage.counting.namespaces = ("t/n", *(f"t/invented-{number}" for number in range(4999)))
    read: list[str] = []
    most = together = 0

    async def slow(namespace: str) -> list[int] | None:
        nonlocal most, together
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.001)
        read.append(namespace)
        together -= 1
        return None

    stage.metadata.boundaries = slow  # type: ignore[method-assign]
    await asyncio.sleep(20.0)
    assert 0 < len(set(read)) <= 4000 and most > 1, "two brokers"
    assert stage.rate("a:8080") == 50.0
    await asyncio.sleep(400.0)
    assert len(set(read)) == 4999 and stage.rate("a:8080") == pytest.approx(1000.0)


@played(seconds=10.0)
async def test_s02_namespaces_of_the_past_are_forgotten(stage: Stage) -> None:
    for turn in range(60):
        await stage.live._edges({f"t/{turn}-{number}" for number in range(1000)})
    assert len(stage.live._boundaries) <= counters._MOST_NAMESPACES + 1000


async def test_s02_stored_averages_of_invented_namespaces_are_read_in_bounded_numbers() -> None:
    requests: list[str] = []

    class Stored(MemoryLoadSource):
        async def seeds(self, bundles: Sequence[str]) -> list[BundleAverages]:
            requests.extend(bundles)
            return []

    observer = Observer(Stored(RealClock()), RealClock(), PrometheusTelemetry(), ())
    bad, good = cluster([[0.1], [0.1]])
    names = tuple(
        f"t/n{number}/0x{half}" for number in range(5000) for half in ("00000000_0x80000000", "80000000_0xffffffff")
    )
    rows = len(names)
    traffic, counts = (table.repeat(rows, axis=0) for table in (bad.bundle_traffic, bad.bundle_counts))
    bad = replace(bad, bundle_names=names, bundle_traffic=traffic, bundle_counts=counts)
    await observer.absorb(
        RawClusterView(wall_ms=NOW_MS, boot=0.0, generation=1, mode="modular", reports=(bad, good), endpoints={})
    )
    assert requests == [*names[:4000], *good.bundle_names]
    assert len({namespace_of(name) for name in requests}) == 2001 and len(observer.averages) == rows + 1
