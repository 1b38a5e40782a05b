"""Watches below Bundlekeel's root: leader, seats, desired state and requests.

A change is reported only after its watch is set again. So a read after the report is current, or another report
follows.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Literal, NamedTuple

from bundlekeel.model.errors import StoreError
from bundlekeel.pulsar.zookeeper.client import Connection, ZkClient
from bundlekeel.pulsar.zookeeper.layout import NodeLayout

# First and longest pause between two attempts to set a watch, because a missing node may stay missing.
RETRY_SECONDS, MOST_SECONDS = 0.5, 10.0


class WatchTarget(NamedTuple):
    """A watched path. `kind`: `node` for its creation, data and deletion, `children` for the list of its children."""

    kind: Literal["node", "children"]
    path: str


class WatchSet:
    """Watches on fixed paths (`targets`), and on the data of the children of one of these paths (`followed`)."""

    def __init__(
        self, client: ZkClient, layout: NodeLayout, targets: tuple[WatchTarget, ...], *, followed: str
    ) -> None:
        self._client = client
        self._layout = layout
        self._followed = followed
        self._targets = set(targets)
        self._unarmed = set(targets)
        self._changed = asyncio.Event()
        self._pause = RETRY_SECONDS
        client.add_listener(self._on_connection)

    def close(self) -> None:
        """Stop listening and wake all waiting tasks."""
        self._client.remove_listener(self._on_connection)
        self._changed.set()

    async def wait(self, timeout: float) -> bool:
        """Wait for a change; False after `timeout` seconds. True immediately if a change may have been missed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    if self._changed.is_set() or (self._unarmed and self._client.connected):
                        self._changed.clear()
                        if await self._arm():
                            self._pause = RETRY_SECONDS
                            return True
                        self._pause = min(2 * self._pause, MOST_SECONDS)
                        await asyncio.sleep(self._pause)
                    else:
                        await self._changed.wait()
        return False

    def _on_connection(self, connection: Connection) -> None:
        if connection != "connected":
            self._unarmed |= self._targets  # kazoo forgets all watches with the connection
        self._changed.set()

    def _fired(self, target: WatchTarget) -> None:
        self._unarmed.add(target)
        self._changed.set()

    async def _arm(self) -> bool:
        """Set the missing watches. Returns False if that failed although the store seems connected."""
        try:
            await self._layout.ensure()
            while self._unarmed and self._client.connected:
                await asyncio.gather(*(self._arm_one(target) for target in sorted(self._unarmed)))
        except StoreError:
            # A lost connection counts as a change. After another failure, setting the watches is retried.
            return not self._client.connected
        return True

    async def _arm_one(self, target: WatchTarget) -> None:
        # Remove it before the request is sent, so that an event during the request adds it again.
        self._unarmed.discard(target)
        try:
            await self._watch(target)
        except BaseException:
            self._unarmed.add(target)
            raise

    async def _watch(self, target: WatchTarget) -> None:
        callback = partial(self._fired, target)
        if target.kind == "node":
            await self._client.exists(target.path, callback)
            return
        names = await self._client.children(target.path, callback)
        if names is None:
            self._layout.forget()  # another client deleted the node: create it before the next attempt
            raise StoreError(f"{target.path} does not exist")
        if target.path == self._followed:
            new_targets = {WatchTarget("node", f"{target.path}/{name}") for name in names}
            self._unarmed |= new_targets - self._targets
            self._targets |= new_targets
