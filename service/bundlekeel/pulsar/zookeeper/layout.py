"""Bundlekeel's root node in ZooKeeper: paths below it, and creation of the persistent nodes that all writes need."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

from bundlekeel.model.errors import StoreError
from bundlekeel.pulsar.zookeeper.client import NodeExists, NodeMissing, ZkClient


class NodeLayout:
    """Creates nodes with children (`folders`) and with data (`files`) below the root. Any sidecar may create them."""

    def __init__(self, client: ZkClient, root: str, *, folders: Iterable[str], files: Mapping[str, bytes]) -> None:
        if not root.startswith("/") or root.endswith("/") or not _is_plain(root[1:]):
            raise ValueError(f"{root!r} is not a root path: expected for example /bundlekeel/my-cluster")
        self._client = client
        self._root = root
        self._folders = tuple(folders)
        self._files = dict(files)
        self._known: set[str] = set()
        self._ready = False
        self._lock = asyncio.Lock()

    def path(self, relative: str) -> str:
        """Return the absolute path of a relative one. Raises ValueError if it could leave the root."""
        if not _is_plain(relative):
            raise ValueError(f"{relative!r} is not a path below {self._root}")
        return f"{self._root}/{relative}"

    @property
    def root(self) -> str:
        """The absolute path of the root."""
        return self._root

    def relative(self, absolute: str) -> str:
        """Return the path below the root of an absolute path."""
        return absolute.removeprefix(f"{self._root}/")

    def forget(self) -> None:
        """Check at the next `ensure` whether all nodes still exist, because another client has deleted some."""
        self._ready = False
        self._known.clear()

    async def ensure(self) -> None:
        """Create the root, and all `folders` and `files` that are missing. Raises StoreError."""
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
        """Create the parent nodes of these paths. Raises StoreError."""
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
        # Check first, because this client may lack the right to create nodes above the root.
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
    """Return whether no part of the path is empty, `.` or `..`."""
    return all(part not in ("", ".", "..") for part in path.split("/"))
