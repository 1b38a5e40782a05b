"""The task behind a picture that is kept by watches: the load source's and the ownership channel's.

Events only note what is to be read again and wake this task; it waits one batch window and has its owner read what was
noted. The owner takes a note away *before* it sends the read that answers it: whatever happens after that makes a new
note.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bundlekeel.adapters.zookeeper.client import Connection, ZkClient
from bundlekeel.core.model.errors import SnapshotError, StoreError
from bundlekeel.ports import Clock

RETRY_SECONDS = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedSource:
    """What is kept. `path`: its root, for messages. `refresh` reads what was noted and says whether all is known then;
    StoreError when it could not. `lost` notes everything, since all watches are gone with the connection."""

    name: str
    path: str
    refresh: Callable[[], Awaitable[bool]]
    lost: Callable[[], None]


class Rereader:
    """Runs over a session that it starts and does not close (it may be shared)."""

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
        """Connect and watch in the background; never raises for an unreachable store."""
        if self._task is not None:
            return
        self._unsure_since = self._clock.boot()
        self._client.add_listener(self._on_connection)
        self._client.start()
        self._task = asyncio.create_task(self._run(), name=f"zookeeper {self._watched.name}")
        if self._client.connected:
            self.wake()

    def wake(self) -> None:
        """Something was noted."""
        self._wake.set()

    def check(self, *, read: bool) -> None:
        """Raise unless what was read is the truth: SnapshotError before the first time (`read`), StoreError while
        disconnected and until all is read again after that."""
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
        """Stop watching; the session stays."""
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
                _log.exception("%s failed unexpectedly", self._watched.name)
                self._fault = StoreError(f"internal error: {error!r}")
            self.wake()
            await self._clock.sleep(RETRY_SECONDS)
