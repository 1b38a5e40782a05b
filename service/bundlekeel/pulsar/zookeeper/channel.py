"""The ownership channel in the metadata store (PIP-192, variant of Pulsar 4.0): `/service_unit_state/{bundle}`.

There is one persistent node per bundle, with its `ServiceUnitStateData` as JSON. The root, each tenant and each
namespace have a children watch, each bundle a data watch. A single task (`Rereader`) reads changed nodes again. Parents
are read before their children (requests of a session are served in the order sent). So a node that is deleted and
created between two reads is either in the next listing, or its watch fires.

Conflicts need not be resolved here, and `rejected` is always empty: a writer resolves conflicts before it writes, and
writes only if the node still has the version that it read.

Source: Pulsar `ServiceUnitStateMetadataStoreTableViewImpl`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from bundlekeel.model.channel_states import ChannelTable, ServiceUnit
from bundlekeel.model.errors import CodecError, StoreError
from bundlekeel.ports import ChannelView, Clock
from bundlekeel.ports.generations import Generations
from bundlekeel.pulsar.formats.channel import decode_service_unit
from bundlekeel.pulsar.formats.report import is_bundle
from bundlekeel.pulsar.work import bounded
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.rereader import Rereader, WatchedSource

SERVICE_UNITS: Final = "/service_unit_state"
BATCH_WINDOW_SECONDS: Final = 0.05

_log = logging.getLogger(__name__)


class ZkChannel:
    """`ports.Channel` over one ZooKeeper session, which it starts and does not close (it may be shared).

    `batch_window_seconds`: time to collect changes before a new view is built.
    """

    def __init__(self, metadata: ZkClient, *, clock: Clock, batch_window_seconds: float = BATCH_WINDOW_SECONDS) -> None:
        self._client = metadata
        self._clock = clock
        watched = WatchedSource(name="channel", path=SERVICE_UNITS, refresh=self._refresh, lost=self._note_all)
        self._rereader = Rereader(metadata, watched, clock=clock, batch_window_seconds=batch_window_seconds)
        self._table = ChannelTable(store=True)
        # Names below each listed node, and the last transaction that wrote each bundle's node.
        self._children: dict[str, set[str]] = {}
        self._written: dict[str, int] = {}
        self._stale = {SERVICE_UNITS}
        self._changed: set[str] = set()
        self._unwatched: set[str] = set()
        self._view: ChannelView | None = None
        self._generations = Generations()
        self._news = True

    # --- Channel -----------------------------------------------------------------------------------------

    async def start(self, service_urls: Sequence[str] = ()) -> None:
        """Connect and watch in the background. Never raises for an unreachable store. Sends no request to a broker."""
        self._rereader.start()

    async def view(self) -> ChannelView:
        """Return the newest view of the channel.

        Raises SnapshotError before the first view. Raises StoreError while disconnected, and after that until
        everything was read again.
        """
        self._rereader.check(read=self._view is not None)
        assert self._view is not None
        return self._view

    async def unit(self, bundle: str) -> ServiceUnit | None:
        """Return a bundle's current entry (read after a `sync`). Raises StoreError, also if the entry is unusable."""
        node = await self._client.get_synced(f"{SERVICE_UNITS}/{bundle}")
        if node is None:
            return None
        try:
            return decode_service_unit(node[0])
        except CodecError as error:
            raise StoreError(f"the entry of {bundle} cannot be used: {error}") from error

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a view newer than `generation`."""
        return await self._generations.wait_newer(generation, timeout)

    async def close(self) -> None:
        """Stop watching. The session stays open."""
        await self._rereader.close()

    # --- events: only record what to read -------------------------------------------------------------------

    def _note_all(self) -> None:
        """Mark all nodes to be checked, because their watches were lost with the connection."""
        self._stale |= {SERVICE_UNITS, *self._children}
        self._unwatched |= self._written.keys()

    def _on_children(self, path: str) -> None:
        self._stale.add(path)
        self._rereader.wake()

    def _on_unit(self, bundle: str) -> None:
        self._changed.add(bundle)
        self._rereader.wake()

    # --- the task ------------------------------------------------------------------------------------------

    async def _refresh(self) -> bool:
        while self._stale:
            await bounded([partial(self._list, path) for path in sorted(self._stale)])
        await bounded([partial(self._read, bundle) for bundle in sorted(self._changed | self._unwatched)])
        if self._news:
            self._publish()
        return not (self._stale or self._unwatched)

    async def _list(self, path: str) -> None:
        """List the nodes below the root, a tenant or a namespace. Mark new ones to be read, and drop deleted ones."""
        self._stale.discard(path)
        watch = partial(self._on_children, path)
        try:
            names = await self._client.children(path, watch)
            if names is None and path == SERVICE_UNITS and await self._client.exists(path, watch) is not None:
                self._stale.add(path)  # the node was created between the two reads
        except StoreError:
            self._stale.add(path)
            raise
        if names is None:
            self._drop(path)
            return
        former = self._children.setdefault(path, set())
        for name in former - set(names):
            self._drop(f"{path}/{name}")
        for name in set(names) - former:
            child = f"{path}/{name}"
            if is_bundle(_bundle(child)):
                self._changed.add(_bundle(child))
            elif child.count("/") <= _DEEPEST:
                self._stale.add(child)
        self._children[path] = set(names)

    async def _read(self, bundle: str) -> None:
        path, watch = f"{SERVICE_UNITS}/{bundle}", partial(self._on_unit, bundle)
        changed, last = bundle in self._changed, self._written.get(bundle)
        self._changed.discard(bundle)
        self._unwatched.discard(bundle)
        try:
            if not changed and last is not None:
                # Only the watch was lost. Read the statistics first: they are shorter than the data, and most nodes did
                # not change.
                stat = await self._client.exists(path, watch)
                if stat is not None and stat.mzxid == last:
                    return
                node = await self._client.get(path)
            else:
                node = await self._client.get(path, watch)
        except StoreError:
            self._changed.add(bundle)
            self._unwatched.add(bundle)
            raise
        if node is None:
            self._drop(path)
        elif node[1].mzxid != last:
            self._written[bundle] = node[1].mzxid
            self._take(bundle, node[0])

    def _take(self, bundle: str, data: bytes) -> None:
        """Store a bundle's entry. If `data` is unusable, the stored entry stays, as it does at the brokers."""
        try:
            unit = decode_service_unit(data)
        except CodecError as error:
            _log.warning("the ownership channel's entry of %s cannot be read and is ignored: %s", bundle, error)
            return
        self._table.replace(bundle, unit, self._clock.wall_ms())
        self._news = True

    def _drop(self, path: str) -> None:
        """Drop a node and all nodes below it, so that the next listing treats nodes of these names as new."""
        parent, _, name = path.rpartition("/")
        self._children.get(parent, set()).discard(name)
        for child in self._children.pop(path, set()):
            self._drop(f"{path}/{child}")
        self._stale.discard(path)
        bundle = _bundle(path)
        self._changed.discard(bundle)
        self._unwatched.discard(bundle)
        if self._written.pop(bundle, None) is not None:
            self._table.replace(bundle, None, self._clock.wall_ms())
            self._news = True

    def _publish(self) -> None:
        self._news = False
        self._view = ChannelView(
            generation=self._generations.newest + 1,
            variant="metadata_store",
            units=dict(self._table.units),
            seen_ms=dict(self._table.seen_ms),
            wall_ms=self._clock.wall_ms(),
        )
        self._generations.publish()


# A namespace of the old form contains its cluster: /service_unit_state/tenant/cluster/namespace.
_DEEPEST: Final = 4


def _bundle(path: str) -> str:
    return path.removeprefix(f"{SERVICE_UNITS}/")
