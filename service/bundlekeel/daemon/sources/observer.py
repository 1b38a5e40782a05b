"""The observer: follows the load source, keeps the averages warm in every seat, and builds snapshots.

A sample is added per fresh report, also between cycles. Averages are seeded from what the brokers stored, and the
leader checkpoints them, so that they survive a restart of every sidecar (bundle-data znodes hold the largest bundles
only).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import structlog

from bundlekeel.core.model.averages import Averages
from bundlekeel.core.model.capacity import CapacityOverride
from bundlekeel.core.model.errors import SnapshotError, StoreError
from bundlekeel.core.model.load import BrokerReport, BundleAverages
from bundlekeel.core.model.names import namespace_of
from bundlekeel.core.model.snapshot import Snapshot, build_snapshot
from bundlekeel.core.splitting.children import RecentSplit, SplitChildren, inherited, with_children
from bundlekeel.ports import Clock, LoadSource, RawClusterView, Telemetry

_log = structlog.get_logger(__name__)

# A bundle no report names for this long is forgotten: longer than the longest silence of a broker (15 min).
FORGET_SECONDS = 3600.0
# Reports that are read without a pause: a few milliseconds where all of their bundles are new.
REPORTS_AT_ONCE = 4
# Reports that stay the same are read once more after this long.
ALL_READ_SECONDS = 60.0
# A report can name any namespaces, and each is two reads of the metadata store.
NEW_NAMESPACES = 2000
# After this long no report is on its way any more that names the parent of a split.
SETTLED_SECONDS = 120.0


class Observer:
    """Owns the averages. `follow` is one task; `snapshot` is called by the cycle on the same event loop."""

    def __init__(
        self, source: LoadSource, clock: Clock, telemetry: Telemetry, capacity: Sequence[CapacityOverride]
    ) -> None:
        self._source = source
        self._clock = clock
        self._telemetry = telemetry
        self._capacity = tuple(capacity)
        self.averages = Averages()
        self.picture: RawClusterView | None = None
        self._all_read_ms = 0
        self.in_transit: frozenset[str] = frozenset()
        self._measured: dict[str, int] = {}
        self.fresh = asyncio.Event()
        self._absorbing = asyncio.Lock()
        # Recent splits by parent.
        self.recent_splits: dict[str, RecentSplit] = {}

    async def follow(self) -> None:
        """For ever: take in each new picture. A source that fails is asked again; the cycle says so meanwhile."""
        generation = -1
        while True:
            if await self._source.wait_changed(generation, 5.0):
                generation = await self._take()
            if generation < 0:
                await self._clock.sleep(0.2)

    async def _take(self) -> int:
        try:
            picture = self._with_children(await self._source.picture())
            await self.absorb(picture)
        except (StoreError, SnapshotError) as error:
            _log.debug("no picture", error=str(error))
            return -1
        return picture.generation

    async def absorb(self, picture: RawClusterView) -> bool:
        """Add what is new in a picture to the averages; True when some broker had reported afresh."""
        async with self._absorbing:  # a picture that was taken earlier must not be read amid a later one
            return await self._absorb(picture)

    async def _absorb(self, picture: RawClusterView) -> bool:
        reports = self._reports_to_read(picture)
        await self._seed(reports)
        changed = False
        for count, report in enumerate(reports):
            if count % REPORTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self.averages.add_report(report, now_ms=picture.wall_ms, skip=self.in_transit):
                changed = True
                for code, amount in Counter(code for code, _ in report.faults).items():
                    self._telemetry.count("imputed_fields_total", amount, code=code)
        self.averages.touch(self.in_transit, picture.wall_ms)
        if reports is picture.reports:
            self.averages.forget_unseen(picture.wall_ms - int(FORGET_SECONDS * 1000))
            self._all_read_ms = picture.wall_ms
        if self.picture is None or picture.excluded != self.picture.excluded:
            for item in picture.excluded:
                self._telemetry.count("excluded_reports_total", code=item.code)
        self.picture = picture
        # The averages may know a later moment: a report's is the one at which it was received.
        measured = {report.broker_id: report.last_update for report in picture.reports if report.interval_ms}
        if changed or not measured.items() <= self._measured.items():
            self.fresh.set()
        self._measured = measured
        return changed

    def _reports_to_read(self, picture: RawClusterView) -> Sequence[BrokerReport]:
        """Those that were not in the last picture; all of them now and then, to note that their bundles are there."""
        if self.picture is None or abs(picture.wall_ms - self._all_read_ms) >= ALL_READ_SECONDS * 1000:
            return picture.reports
        read = set(map(id, self.picture.reports))  # it holds them, so these numbers are of no other ones
        return [report for report in picture.reports if id(report) not in read]

    def expect_children(self, made: SplitChildren) -> None:
        """Give the children of a split that is about to be made the parent's averages, before anybody reports them."""
        parent = self.averages.of(made.parent)
        if parent is not None:
            self.averages.seed(inherited(parent, made))
        self.averages.touch(made.children, self._clock.wall_ms())

    def split_made(self, made: SplitChildren) -> None:
        """The split is made: from now on reports that still name the parent are read as naming its children."""
        self.recent_splits[made.parent] = RecentSplit(split=made, at_ms=self._clock.wall_ms())

    def adopt(self, recent_splits: Mapping[str, RecentSplit]) -> None:
        """Splits that another sidecar made: their children inherit here as well."""
        for parent, item in recent_splits.items():
            if parent not in self.recent_splits:
                self.expect_children(item.split)
                self.recent_splits[parent] = item

    def _with_children(self, picture: RawClusterView) -> RawClusterView:
        """The picture with the children of recent splits in their parents' places."""
        if not self.recent_splits:
            return picture
        named = {name for report in picture.reports for name in report.bundle_names}
        for item in self.recent_splits.values():
            if item.split.parent in named:
                named.update(item.split.children)  # their own splits are needed as long
        for parent, item in list(self.recent_splits.items()):
            age = (picture.wall_ms - item.at_ms) / 1000
            # A broker without a usable report may come back with an old one, but not after its next statistics run.
            if age > FORGET_SECONDS or (parent not in named and age > SETTLED_SECONDS):
                del self.recent_splits[parent]
            self.averages.touch(item.split.children, picture.wall_ms)
        splits = {parent: item.split for parent, item in self.recent_splits.items()}
        return replace(picture, reports=tuple(with_children(report, splits) for report in picture.reports))

    async def _seed(self, reports: Sequence[BrokerReport]) -> None:
        """Ask for stored averages of bundles never seen before, before their first sample replaces the defaults."""
        unknown = [name for report in reports for name in _looked_up(self.averages.unknown(report.bundle_names))]
        if not unknown:
            return
        try:
            self.averages.seed(await self._source.seeds(unknown))
        except StoreError as error:
            _log.info("stored averages could not be read; starting from the defaults", error=str(error))

    async def restore(self, stored: AsyncIterable[Sequence[BundleAverages]]) -> None:
        """Take over a checkpoint for bundles that are still unknown, a part at a time: nothing else waits for all."""
        async for part in stored:
            self.averages.seed(part)
            self.averages.touch((item.bundle for item in part), self._clock.wall_ms())

    async def snapshot(self) -> tuple[Snapshot, RawClusterView]:
        """The newest picture as a snapshot. SnapshotError or StoreError when there is none to be had."""
        picture = self._with_children(await self._source.picture())
        await self.absorb(picture)
        # In a thread, of a copy: what is measured meanwhile is for the next one.
        snapshot = await asyncio.to_thread(
            build_snapshot,
            reports=picture.reports,
            averages=self.averages.copy(),
            wall_ms=self._clock.wall_ms(),
            mode=picture.mode,
            excluded=picture.excluded,
            capacity=self._capacity,
        )
        self._publish(snapshot)
        return snapshot, picture

    def _publish(self, snapshot: Snapshot) -> None:
        states = Counter(item.code for item in snapshot.excluded)
        states["ok"] = len(snapshot.brokers)
        for state, amount in states.items():
            self._telemetry.gauge("snapshot_brokers", amount, state=state)
        self._telemetry.retain("snapshot_brokers", "state", set(states))
        ages = np.maximum(snapshot.wall_ms - snapshot.brokers.last_update, 0) / 1000
        self._telemetry.table("snapshot_age_seconds", snapshot.brokers.ids, ages)


def _looked_up(bundles: Sequence[str]) -> list[str]:
    """Return the bundles of the first `NEW_NAMESPACES` namespaces. The others start from Pulsar's defaults."""
    namespaces = set(islice(dict.fromkeys(map(namespace_of, bundles)), NEW_NAMESPACES))
    return [bundle for bundle in bundles if namespace_of(bundle) in namespaces]
