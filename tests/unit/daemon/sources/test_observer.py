"""What the observer makes of the pictures it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import pairwise

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


def _seen(reports: tuple[BrokerReport, ...]) -> RawClusterView:
    return RawClusterView(wall_ms=NOW_MS, boot=0.0, generation=1, mode="modular", reports=reports, endpoints={})


async def test_a_first_picture_is_read_a_few_reports_at_a_time() -> None:
    """A large cluster's takes a third of a second, in which nothing else would happen."""
    observer = Observer(MemoryLoadSource(RealClock()), RealClock(), PrometheusTelemetry(), ())
    known = []

    async def look() -> None:
        while len(observer.averages) < 10:
            known.append(len(observer.averages))
            await asyncio.sleep(0)

    await asyncio.gather(look(), observer.absorb(_seen(cluster([[0.1]] * 10))))
    assert max(later - earlier for earlier, later in pairwise(known)) <= 4 < max(known)


async def test_an_earlier_picture_is_read_before_a_later_one() -> None:
    """Although it waits for stored averages: a report read after a newer one of its broker would count as news."""

    class Slow(MemoryLoadSource):
        async def seeds(self, bundles: Sequence[str]) -> list[BundleAverages]:
            await asyncio.sleep(0.01)
            return []

    observer = Observer(Slow(RealClock()), RealClock(), PrometheusTelemetry(), ())
    (told,) = cluster([[0.2]])
    later = _seen((replace(told, last_update=told.last_update + 5000, bundle_names=()),))
    await asyncio.gather(observer.absorb(_seen((told,))), observer.absorb(later))
    assert not await observer.absorb(_seen((replace(later.reports[0]),)))


async def test_what_was_measured_begins_a_cycle_once() -> None:
    """Also where the averages know a later moment; the same figures in a report that is made anew are no news."""
    observer = Observer(MemoryLoadSource(RealClock()), RealClock(), PrometheusTelemetry(), ())
    (told,) = cluster([[0.2]])

    async def news(report: BrokerReport) -> bool:
        observer.fresh.clear()
        await observer.absorb(_seen((report,)))
        return observer.fresh.is_set()

    earlier = replace(told, last_update=told.last_update - 5000, interval_ms=15_000)
    assert [await news(item) for item in (told, earlier, replace(earlier))] == [True, True, False]
