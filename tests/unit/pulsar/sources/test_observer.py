"""Averages and snapshots that the observer builds from raw views."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import pairwise

from bundlekeel.model.load import BrokerReport, BundleAverages
from bundlekeel.ports import RawClusterView
from bundlekeel.pulsar.sources.observer import FORGET_SECONDS, Observer
from bundlekeel.records.metrics import PrometheusTelemetry
from tests.support.builders import NOW_MS, broker, bundle_name, cluster
from tests.support.memory_source import MemoryLoadSource, RealClock


async def test_a_quiet_brokers_bundles_are_kept_and_those_of_a_gone_broker_are_forgotten() -> None:
    """Unchanged reports are not read again at once, and yet their bundles are known to be there."""
    clock = RealClock()
    observer = Observer(MemoryLoadSource(clock), clock, PrometheusTelemetry(), ())
    quiet, absent = cluster([[0.2], [0.3]])
    for at_ms in range(0, 2000 * int(FORGET_SECONDS), 20_000):
        reports = (quiet, absent) if at_ms == 0 else (quiet,)
        view = RawClusterView(
            wall_ms=NOW_MS + at_ms, boot=0.0, generation=at_ms, mode="modular", reports=reports, endpoints={}
        )
        assert await observer.absorb(view) == (at_ms == 0)
    assert absent.broker_id == broker(1)
    assert (bundle_name(0) in observer.averages, bundle_name(1) in observer.averages) == (True, False)


async def test_a_checkpoint_is_taken_over_a_part_at_a_time() -> None:
    """A large cluster's takes most of a second, and a lease is renewed meanwhile; every bundle is known in the end."""
    observer = Observer(MemoryLoadSource(RealClock()), RealClock(), PrometheusTelemetry(), ())
    remaining = [
        BundleAverages(bundle=bundle_name(n), short=(n, 0, 0, 0), long=(n, 0, 0, 0), short_samples=1, long_samples=1)
        for n in range(5)
    ]
    names = []

    async def nodes() -> AsyncIterator[list[BundleAverages]]:
        for part in (remaining[:2], remaining[2:4], remaining[4:]):
            names.append(len(observer.averages))
            yield part

    await observer.restore(nodes())
    assert names == [0, 2, 4]
    assert [observer.averages.of(item.bundle) for item in remaining] == remaining


def _build_view(reports: tuple[BrokerReport, ...]) -> RawClusterView:
    return RawClusterView(wall_ms=NOW_MS, boot=0.0, generation=1, mode="modular", reports=reports, endpoints={})


async def test_a_first_picture_is_read_a_few_reports_at_a_time() -> None:
    """A large cluster's takes a third of a second, in which nothing else would happen."""
    observer = Observer(MemoryLoadSource(RealClock()), RealClock(), PrometheusTelemetry(), ())
    names = []

    async def look() -> None:
        while len(observer.averages) < 10:
            names.append(len(observer.averages))
            await asyncio.sleep(0)

    await asyncio.gather(look(), observer.absorb(_build_view(cluster([[0.1]] * 10))))
    assert max(later - earlier for earlier, later in pairwise(names)) <= 4 < max(names)


async def test_an_earlier_picture_is_read_before_a_later_one() -> None:
    """Although it waits for stored averages: a report read after a newer one of its broker would count as news."""

    class Slow(MemoryLoadSource):
        async def seeds(self, bundles: Sequence[str]) -> list[BundleAverages]:
            await asyncio.sleep(0.01)
            return []

    observer = Observer(Slow(RealClock()), RealClock(), PrometheusTelemetry(), ())
    (reports,) = cluster([[0.2]])
    later = _build_view((replace(reports, last_update=reports.last_update + 5000, bundle_names=()),))
    await asyncio.gather(observer.absorb(_build_view((reports,))), observer.absorb(later))
    assert not await observer.absorb(_build_view((replace(later.reports[0]),)))


async def test_what_was_measured_begins_a_cycle_once() -> None:
    observer = Observer(MemoryLoadSource(RealClock()), RealClock(), PrometheusTelemetry(), ())
    (reports,) = cluster([[0.2]])

    async def news(report: BrokerReport) -> bool:
        observer.fresh.clear()
        await observer.absorb(_build_view((report,)))
        return observer.fresh.is_set()

    earlier = replace(reports, last_update=reports.last_update - 5000, interval_ms=15_000)
    assert [await news(item) for item in (reports, earlier, replace(earlier))] == [True, True, False]
