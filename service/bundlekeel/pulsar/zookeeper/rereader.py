"""The task that reads changed ZooKeeper nodes again, for the load source and the ownership channel.

A watch event only marks a node to be read again, and wakes this task. The task waits for further events (the batch
window), then calls `refresh`, which reads the marked nodes. It removes a mark *before* it sends the read, so that a
later event marks the node again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.ports import Clock
from bundlekeel.pulsar.zookeeper.client import Connection, ZkClient

RETRY_SECONDS = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedSource:
    """A tree of nodes that a `Rereader` keeps current.

    `path`: its root, for messages. `refresh`: reads the marked nodes, and returns whether everything is current
    afterwards; raises StoreError if a read fails. `lost`: called after a lost connection; marks all nodes, because all
    watches are lost.
    """

    name: str
    path: str
    refresh: Callable[[], Awaitable[bool]]
    lost: Callable[[], None]


class Rereader:
    """Refreshes a `WatchedSource` after changes. Starts the session of `client`, but does not close it."""

    def __init__(self, client: ZkClient, watched: WatchedSource, *, clock: Clock, batch_window_seconds: float) -> None:
        self._client = client
        self._watched = watched
        self._clock = clock
        self._batch_window = batch_window_seconds
        self._unsure_since: float | None = None
        self._fault: StoreError | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect and watch in the background. Never raises for an unreachable store."""
        if self._task is not None:
            return
        self._unsure_since = self._clock.boot()
        self._client.add_listener(self._on_connection)
        self._client.start()
        self._task = asyncio.create_task(self._run(), name=f"zookeeper {self._watched.name}")
        if self._client.connected:
            self.wake()

    def wake(self) -> None:
        """Refresh soon. To be called after a node was marked."""
        self._wake.set()

    def check(self, *, read: bool) -> None:
        """Raise an error if the source is not current. `read`: whether all its nodes were read at least once.

        Raises SnapshotError if `read` is false. Raises StoreError while disconnected, and after that until all nodes
        were read again.
        """
        path, hosts = self._watched.path, self._client.hosts
        if not read:
            reason = f": {self._fault}" if self._fault is not None else ""
            raise SnapshotError(f"{path} has not been read yet{reason}")
        if self._unsure_since is not None or not self._client.connected:
            since = self._unsure_since if self._unsure_since is not None else self._clock.boot()
            seconds = max(0.0, self._clock.boot() - since)
            raise StoreError(f"no connection to ZooKeeper at {hosts} for {seconds:.1f} s")
        if self._fault is not None:
            raise StoreError(f"{path} cannot be read: {self._fault}")

    async def close(self) -> None:
        """Stop watching. The session stays open."""
        self._client.remove_listener(self._on_connection)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _on_connection(self, connection: Connection) -> None:
        if connection == "connected":
            self.wake()
            return
        self._watched.lost()
        if self._unsure_since is None:
            self._unsure_since = self._clock.boot()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            await self._clock.sleep(self._batch_window)
            self._wake.clear()
            if not self._client.connected:
                continue
            try:
                if await self._watched.refresh():
                    self._unsure_since = None
                self._fault = None
                continue
            except StoreError as error:
                self._fault = error
            except Exception as error:  # noqa: BLE001 - top of a root task: without it nothing is read ever again
                _log.exception("%s failed unexpectedly; retrying", self._watched.name)
                self._fault = StoreError(f"internal error: {error!r}")
            self.wake()
            await self._clock.sleep(RETRY_SECONDS)
