"""The observer: follows the load source, updates the traffic averages of bundles, and builds snapshots for planning.

It adds a sample to the averages for each new load report. Averages start from the values that the brokers stored in
bundle-data znodes. These contain only the largest bundles, so the leader also saves the averages for a restart of all
sidecars.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import structlog

from bundlekeel.model.averages import Averages
from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.model.load import BrokerReport, BundleAverages
from bundlekeel.model.names import namespace_of
from bundlekeel.model.snapshot import Snapshot, build_snapshot
from bundlekeel.planning.splitting.children import RecentSplit, SplitChildren, inherited, with_children
from bundlekeel.ports import Clock, LoadSource, RawClusterView, Telemetry

_log = structlog.get_logger(__name__)

# A bundle that no report contains for this long is dropped. A broker without changes sends no report for 15 min.
FORGET_SECONDS = 3600.0
# Number of reports that are read without a pause: this takes a few milliseconds if all bundles are new.
REPORTS_AT_ONCE = 4
# Unchanged reports are read again after this many seconds, to record that their bundles still exist.
ALL_READ_SECONDS = 60.0
# Limit for one report, which can name any namespaces: each costs two reads of the metadata store.
NEW_NAMESPACES = 2000
# After this long, no report in transit can name the parent of a split any more.
SETTLED_SECONDS = 120.0


class Observer:
    """Keeps the averages. `follow` runs as a task; the control loop calls `snapshot` on the same event loop."""

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
        """Add each new view of the cluster to the averages until cancelled. If reading fails, log that and retry."""
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
            _log.debug("no view of the cluster; retrying", error=str(error))
            return -1
        return picture.generation

    async def absorb(self, picture: RawClusterView) -> bool:
        """Add the new reports in a view of the cluster to the averages. Returns whether there was a new report."""
        async with self._absorbing:  # views are read one after the other
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
        # Compare the times of reports with each other, not with the averages: those have times of arrival.
        measured = {report.broker_id: report.last_update for report in picture.reports if report.interval_ms}
        if changed or not measured.items() <= self._measured.items():
            self.fresh.set()
        self._measured = measured
        return changed

    def _reports_to_read(self, picture: RawClusterView) -> Sequence[BrokerReport]:
        """Return the reports that were not in the last view. Once a minute return all, to see which bundles exist."""
        if self.picture is None or abs(picture.wall_ms - self._all_read_ms) >= ALL_READ_SECONDS * 1000:
            return picture.reports
        read = set(map(id, self.picture.reports))  # the last view keeps these objects, so no other object has their IDs
        return [report for report in picture.reports if id(report) not in read]

    def expect_children(self, split: SplitChildren) -> None:
        """Before a split, derive the averages of the new bundles from the bundle that is split."""
        parent = self.averages.of(split.parent)
        if parent is not None:
            self.averages.seed(inherited(parent, split))
        self.averages.touch(split.children, self._clock.wall_ms())

    def split_made(self, split: SplitChildren) -> None:
        """After a split, treat reports that still name the split bundle as if they named the new bundles."""
        self.recent_splits[split.parent] = RecentSplit(split=split, at_ms=self._clock.wall_ms())

    def adopt(self, recent_splits: Mapping[str, RecentSplit]) -> None:
        """Treat splits by another sidecar like this sidecar's own (`expect_children`, `split_made`)."""
        for parent, item in recent_splits.items():
            if parent not in self.recent_splits:
                self.expect_children(item.split)
                self.recent_splits[parent] = item

    def _with_children(self, picture: RawClusterView) -> RawClusterView:
        """Return the view, in which the new bundles of recent splits replace the bundles that were split."""
        if not self.recent_splits:
            return picture
        named = {name for report in picture.reports for name in report.bundle_names}
        for item in self.recent_splits.values():
            if item.split.parent in named:
                named.update(item.split.children)  # keep splits of these children as long as the split of their parent
        for parent, item in list(self.recent_splits.items()):
            age = (picture.wall_ms - item.at_ms) / 1000
            # Keep the split while a report names the parent: a broker may return with an old report.
            if age > FORGET_SECONDS or (parent not in named and age > SETTLED_SECONDS):
                del self.recent_splits[parent]
            self.averages.touch(item.split.children, picture.wall_ms)
        splits = {parent: item.split for parent, item in self.recent_splits.items()}
        return replace(picture, reports=tuple(with_children(report, splits) for report in picture.reports))

    async def _seed(self, reports: Sequence[BrokerReport]) -> None:
        """Read the stored averages of new bundles, before their first sample replaces the defaults."""
        unknown = [name for report in reports for name in _looked_up(self.averages.unknown(report.bundle_names))]
        if not unknown:
            return
        try:
            self.averages.seed(await self._source.seeds(unknown))
        except StoreError as error:
            _log.info("stored averages could not be read; starting from the defaults", error=str(error))

    async def restore(self, stored: AsyncIterable[Sequence[BundleAverages]]) -> None:
        """Add stored averages for bundles without averages, in parts, so that other tasks can run."""
        async for part in stored:
            self.averages.seed(part)
            self.averages.touch((item.bundle for item in part), self._clock.wall_ms())

    async def snapshot(self) -> tuple[Snapshot, RawClusterView]:
        """Return the newest view of the cluster, and a snapshot made from it. Raises SnapshotError or StoreError if
        there is no view."""
        picture = self._with_children(await self._source.picture())
        await self.absorb(picture)
        # Use a thread and a copy: new measurements are for the next snapshot.
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
    """Return the bundles of the first `NEW_NAMESPACES` namespaces: only their stored averages are read."""
    namespaces = set(islice(dict.fromkeys(map(namespace_of, bundles)), NEW_NAMESPACES))
    return [bundle for bundle in bundles if namespace_of(bundle) in namespaces]
