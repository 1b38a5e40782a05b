"""Load reports of the modular load manager, from `/loadbalance/brokers/*`.

There is one children watch, and one data watch per broker. A single task (`Rereader`) reads changed nodes again, and
publishes at most one new view for all changes within a batch window.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from bundlekeel.model.errors import CodecError, StoreError
from bundlekeel.model.load import BundleAverages
from bundlekeel.model.names import namespace_of
from bundlekeel.ports import Clock, RawClusterView
from bundlekeel.ports.generations import Generations
from bundlekeel.pulsar.formats.records import decode_bundle_data, decode_resource_quota
from bundlekeel.pulsar.work import bounded
from bundlekeel.pulsar.zookeeper.broker_records import BrokerRecord, date_records, make_picture, read_record, stamped
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.rereader import Rereader, WatchedSource

BROKERS = "/loadbalance/brokers"
BUNDLE_DATA = "/loadbalance/bundle-data"
RESOURCE_QUOTA = "/loadbalance/resource-quota"
# A report may have 10 MiB. At most this many undecoded reports are in memory.
READS_AT_ONCE = 8
# A report of 10 MiB takes a second to decode. Heartbeats and the API must not wait for that.
THREAD_ABOVE_BYTES = 1024 * 1024

_Decoder = Callable[[str, bytes], BundleAverages]


class ZkLoadSource:
    """LoadSource over one ZooKeeper session, which it starts and does not close (it may be shared).

    `batch_window_seconds`: time to collect changes before a new view is built. `max_report_bytes`: a broker with a
    larger report is excluded.
    """

    def __init__(self, metadata: ZkClient, *, batch_window_seconds: float, max_report_bytes: int, clock: Clock) -> None:
        self._client = metadata
        watched = WatchedSource(name="load source", path=BROKERS, refresh=self._refresh, lost=self._note_all)
        self._rereader = Rereader(metadata, watched, clock=clock, batch_window_seconds=batch_window_seconds)
        self._max_bytes = max_report_bytes
        self._clock = clock
        self._records: dict[str, BrokerRecord] = {}
        self._registered: set[str] = set()
        self._registry_changed = True
        self._changed: set[str] = set()
        self._unwatched: set[str] = set()
        self._picture: RawClusterView | None = None
        self._generations = Generations()
        self._news = True

    # --- LoadSource --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and watch in the background. Never raises for an unreachable store."""
        self._rereader.start()

    async def picture(self) -> RawClusterView:
        """Return the newest view with the current time. An old view is still correct, because changes are watched.

        Raises SnapshotError before the first view. Raises StoreError while disconnected, and after that until
        everything was read again.
        """
        self._rereader.check(read=self._picture is not None)
        assert self._picture is not None
        return stamped(self._picture, wall_ms=self._clock.wall_ms(), boot=self._clock.boot())

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a view newer than `generation`."""
        return await self._generations.wait_newer(generation, timeout)

    async def seeds(self, bundles: Sequence[str]) -> list[BundleAverages]:
        """Return stored averages in the order of `bundles`, without bundles whose averages are missing or unreadable.

        The parent nodes are listed first, so that bundles without stored averages cost no read.
        """
        distinct = list(dict.fromkeys(bundles))
        averages = await self._stored(BUNDLE_DATA, distinct, decode_bundle_data)
        missing = [bundle for bundle in distinct if bundle not in averages]
        averages |= await self._stored(RESOURCE_QUOTA, missing, decode_resource_quota)
        return [averages[bundle] for bundle in distinct if bundle in averages]

    async def close(self) -> None:
        """Stop watching. The session stays open."""
        await self._rereader.close()

    # --- events: only record what to read -------------------------------------------------------------------

    def _note_all(self) -> None:
        """Mark all brokers to be checked, because watches were lost with the connection."""
        self._registry_changed = True
        self._unwatched |= self._registered

    def _on_registry(self) -> None:
        self._registry_changed = True
        self._rereader.wake()

    def _on_broker(self, broker_id: str) -> None:
        self._changed.add(broker_id)
        self._rereader.wake()

    # --- the task ------------------------------------------------------------------------------------------

    async def _refresh(self) -> bool:
        if self._registry_changed:
            await self._read_registry()
        todo = (self._changed | self._unwatched) & self._registered
        await bounded([partial(self._read_broker, broker_id) for broker_id in sorted(todo)], limit=READS_AT_ONCE)
        if self._news:
            self._publish()
        return not (self._registry_changed or self._unwatched)

    async def _read_registry(self) -> None:
        self._registry_changed = False
        try:
            names = await self._client.children(BROKERS, self._on_registry)
            if names is None and await self._client.exists(BROKERS, self._on_registry) is not None:
                self._registry_changed = True  # the node was created between the two reads
                self._rereader.wake()
        except StoreError:
            self._registry_changed = True
            raise
        registered = set(names or ())
        self._changed |= registered - self._registered
        for broker_id in self._registered - registered:
            self._forget(broker_id)
        self._registered = registered

    def _forget(self, broker_id: str) -> None:
        self._news = self._records.pop(broker_id, None) is not None or self._news
        self._changed.discard(broker_id)
        self._unwatched.discard(broker_id)

    async def _read_broker(self, broker_id: str) -> None:
        path = f"{BROKERS}/{broker_id}"
        watch = partial(self._on_broker, broker_id)
        last = self._records.get(broker_id)
        changed = broker_id in self._changed or last is None
        self._changed.discard(broker_id)
        self._unwatched.discard(broker_id)
        try:
            if not changed and last is not None:
                # Only the watch was lost. Read the statistics first: they have a hundred bytes, a report may have 100
                # KB.
                stat = await self._client.exists(path, watch)
                if stat is not None and stat.mzxid == last.mzxid:
                    return
                node = await self._client.get(path)
            else:
                node = await self._client.get(path, watch)
        except StoreError:
            self._changed.add(broker_id)
            self._unwatched.add(broker_id)
            raise
        if node is None:
            # The node was deleted after the listing. If it is created again, the next listing must treat it as new.
            self._registered.discard(broker_id)
            self._forget(broker_id)
        elif last is None or last.mzxid != node[1].mzxid:
            self._news = True
            decode = partial(read_record, broker_id, node[0], node[1].mzxid, max_bytes=self._max_bytes, last=last)
            in_thread = len(node[0]) > THREAD_ABOVE_BYTES
            record = await asyncio.to_thread(decode) if in_thread else decode()
            stored_ms, now = node[1].mtime_ms, self._clock.wall_ms()
            before_ms = 0 if last is None else last.written_ms or last.before_ms
            self._records[broker_id] = replace(record, mtime_ms=stored_ms, lag_ms=now - stored_ms, before_ms=before_ms)

    def _publish(self) -> None:
        self._news = False
        self._records = date_records(self._records)
        self._picture = make_picture(self._records, generation=self._generations.newest + 1)
        self._generations.publish()

    # --- seeds -----------------------------------------------------------------------------------------------

    async def _stored(self, root: str, bundles: Sequence[str], decode: _Decoder) -> dict[str, BundleAverages]:
        namespaces = sorted({namespace_of(bundle) for bundle in bundles})
        listings = await bounded([partial(self._client.children, f"{root}/{name}") for name in namespaces])
        present = {
            f"{name}/{child}" for name, listing in zip(namespaces, listings, strict=True) for child in listing or ()
        }
        todo = [bundle for bundle in bundles if bundle in present]
        nodes = await bounded([partial(self._client.get, f"{root}/{bundle}") for bundle in todo])
        averages: dict[str, BundleAverages] = {}
        for bundle, node in zip(todo, nodes, strict=True):
            if node is not None:
                with contextlib.suppress(CodecError):  # unreadable averages count as missing
                    averages[bundle] = decode(bundle, node[0])
        return averages
