"""Our root in ZooKeeper: paths below it, and the persistent nodes that everything else needs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal, NamedTuple

from bundlekeel.adapters.zookeeper.client import Connection, NodeExists, NodeMissing, ZkClient
from bundlekeel.core.model.errors import StoreError


class NodeLayout:
    """Makes and remembers the nodes of the root. Empty folders need no fencing: any replica may make them."""

    def __init__(self, client: ZkClient, root: str, *, folders: Iterable[str], files: Mapping[str, bytes]) -> None:
        if not root.startswith("/") or root.endswith("/") or not _is_plain(root[1:]):
            raise ValueError(f"{root!r} is no root; expected e.g. /bundlekeel/my-cluster")
        self._client = client
        self._root = root
        self._folders = tuple(folders)
        self._files = dict(files)
        self._known: set[str] = set()
        self._ready = False
        self._lock = asyncio.Lock()

    def path(self, relative: str) -> str:
        """The absolute path of a relative one. ValueError for anything that could leave the root."""
        if not _is_plain(relative):
            raise ValueError(f"{relative!r} is no path below {self._root}")
        return f"{self._root}/{relative}"

    @property
    def root(self) -> str:
        """Absolute."""
        return self._root

    def relative(self, absolute: str) -> str:
        """The path below the root of an absolute one."""
        return absolute.removeprefix(f"{self._root}/")

    def forget(self) -> None:
        """Look again at the next `ensure`: somebody has deleted nodes of ours."""
        self._ready = False
        self._known.clear()

    async def ensure(self) -> None:
        """Make the root, its folders and files where they are missing. StoreError."""
        async with self._lock:
            if self._ready:
                return
            await self._make_all(self._root)
            for name in self._folders:
                await self._make(self.path(name))
            for name, data in self._files.items():
                await self._make(self.path(name), data)
            self._ready = True

    async def ensure_parents(self, relatives: Iterable[str]) -> None:
        """Make the folders above these paths. StoreError."""
        await self.ensure()
        for parent in {self.path(relative).rpartition("/")[0] for relative in relatives}:
            if parent not in self._known:
                await self._make_all(parent)

    async def _make_all(self, path: str) -> None:
        parts = path[1:].split("/")
        for depth in range(1, len(parts) + 1):
            await self._make("/" + "/".join(parts[:depth]))

    async def _make(self, path: str, data: bytes = b"") -> None:
        if path in self._known:
            return
        # Looked at first: above the root we may have no right to create, and need none when it is there.
        if await self._client.exists(path) is None:
            try:
                with contextlib.suppress(NodeExists):
                    await self._client.create(path, data)
            except NodeMissing as error:
                self.forget()
                raise StoreError(
                    f"{path} cannot be made: its parent is missing. Does the chroot "
                    f"{self._client.chroot or '/'!r} exist at {self._client.hosts}?"
                ) from error
        self._known.add(path)


def _is_plain(path: str) -> bool:
    """Whether every part is a name: nothing empty, no `.` or `..`."""
    return all(part not in ("", ".", "..") for part in path.split("/"))


# What a sidecar waits for under our root: leader, seats, desired state, requests.
# A change is reported only after its watch stands again, so that whatever the caller then reads is either new enough
# or followed by another report.


# Between two attempts to watch, the first and the longest: what is missing may stay so.
RETRY_SECONDS, MOST_SECONDS = 0.5, 10.0


class WatchTarget(NamedTuple):
    """A path under watch: its `node` (creation, data, deletion) or the list of its `children`."""

    kind: Literal["node", "children"]
    path: str


class WatchSet:
    """Watches on fixed paths and on the data of the children of one of them (`followed`)."""

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
        """Stop listening and wake those that wait."""
        self._client.remove_listener(self._on_connection)
        self._changed.set()

    async def wait(self, timeout: float) -> bool:
        """Wait for a change or `timeout` seconds; True at once when something may have been missed."""
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
        """Set the missing watches. False when the store failed although it seems connected."""
        try:
            await self._layout.ensure()
            while self._unarmed and self._client.connected:
                await asyncio.gather(*(self._arm_one(target) for target in sorted(self._unarmed)))
        except StoreError:
            # A lost connection is itself a change to report; a store that fails otherwise is asked again.
            return not self._client.connected
        return True

    async def _arm_one(self, target: WatchTarget) -> None:
        # Noted as done before it is sent: an event that comes in between must not be forgotten.
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
            self._layout.forget()  # somebody deleted it; it is made anew before the next attempt
            raise StoreError(f"{target.path} does not exist")
        if target.path == self._followed:
            found = {WatchTarget("node", f"{target.path}/{name}") for name in names}
            self._unarmed |= found - self._targets
            self._targets |= found
