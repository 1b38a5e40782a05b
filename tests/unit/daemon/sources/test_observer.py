"""What the observer makes of the pictures it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from bundlekeel.adapters.metrics import PrometheusTelemetry
from bundlekeel.core.model.load import BrokerReport, BundleAverages
from bundlekeel.daemon.sources.observer import FORGET_SECONDS, Observer
from bundlekeel.ports import RawClusterView
from tests.support.builders import NOW_MS, broker, bundle_name, cluster
from tests.support.memory_source import MemoryLoadSource, RealClock


async def test_a_quiet_brokers_bundles_are_kept_and_those_of_a_gone_broker_are_forgotten() -> None:
    """Unchanged reports are not read again at once, and yet their bundles are known to be there."""
    clock = RealClock()
    observer = Observer(MemoryLoadSource(clock), clock, PrometheusTelemetry(), ())
    quiet, gone = cluster([[0.2], [0.3]])
    for at_ms in range(0, 2000 * int(FORGET_SECONDS), 20_000):
        reports = (quiet, gone) if at_ms == 0 else (quiet,)
        seen = RawClusterView(
            wall_ms=NOW_MS + at_ms, boot=0.0, generation=at_ms, mode="modular", reports=reports, endpoints={}
        )
        assert await observer.absorb(seen) == (at_ms == 0)
    assert gone.broker_id == broker(1)
    assert (bundle_name(0) in observer.averages, bundle_name(1) in observer.averages) == (True, False)


async def test_a_checkpoint_is_taken_over_a_part_at_a_time() -> None:
    """A large cluster's takes most of a second, and a lease is renewed meanwhile; every bundle is known in the end."""
    observer = Observer(MemoryLoadSource(RealClock()), RealClock(), PrometheusTelemetry(), ())
    kept = [
        BundleAverages(bundle=bundle_name(n), short=(n, 0, 0, 0), long=(n, 0, 0, 0), short_samples=1, long_samples=1)
        for n in range(5)
    ]
    known = []

    async def nodes() -> AsyncIterator[list[BundleAverages]]:
        for part in (kept[:2], kept[2:4], kept[4:]):
            known.append(len(observer.averages))
            yield part

    await observer.restore(nodes())
    assert known == [0, 2, 4]
    assert [observer.averages.of(item.bundle) for item in kept] == kept


async def test_what_was_measured_begins_a_cycle_once() -> None:
    """Also where the averages know a later moment; the same figures in a report that is made anew are no news."""
    observer = Observer(MemoryLoadSource(RealClock()), RealClock(), PrometheusTelemetry(), ())
    (told,) = cluster([[0.2]])

    async def news(report: BrokerReport) -> bool:
        observer.fresh.clear()
        await observer.absorb(
            RawClusterView(wall_ms=NOW_MS, boot=0.0, generation=1, mode="modular", reports=(report,), endpoints={})
        )
        return observer.fresh.is_set()

    earlier = replace(told, last_update=told.last_update - 5000, interval_ms=15_000)
    assert [await news(item) for item in (told, earlier, replace(earlier))] == [True, True, False]
