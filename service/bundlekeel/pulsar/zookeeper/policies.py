"""Cache of the policies in the metadata and configuration stores, kept current by watches.

A node is read once, and again only after its watch has fired. One call reads at most `NEW_PER_CALL` new namespaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bundlekeel.model.errors import CodecError, StoreError
from bundlekeel.ports import PolicyRecords
from bundlekeel.pulsar.formats.policies import (
    decode_anti_affinity_group,
    decode_failure_domain,
    decode_isolation_policies,
)
from bundlekeel.pulsar.work import bounded
from bundlekeel.pulsar.zookeeper.client import Connection, ZkClient

CLUSTERS = "/admin/clusters"
LOCAL_POLICIES = "/admin/local-policies"
# Namespaces that one call reads for the first time; the others count as unreadable until the next calls.
NEW_PER_CALL = 2000


class WatchedNodes:
    """Cached data and children of nodes. Everything in the cache has a watch."""

    def __init__(self, client: ZkClient) -> None:
        self._client = client
        self._data: dict[str, bytes | None] = {}
        self._children: dict[str, tuple[str, ...]] = {}
        # By path, set before a request is sent. If the node changes before the response, the entry is removed, and the
        # response is not cached.
        self._reading: dict[str, object] = {}
        client.add_listener(self._on_connection)

    def __len__(self) -> int:
        return len(self._data)

    def knows(self, path: str) -> bool:
        """Return whether the data of this node are in the cache."""
        return path in self._data and self._client.connected

    def keep_only(self, paths: set[str]) -> None:
        """Drop the data of all nodes that are not in `paths`."""
        self._data = {path: data for path, data in self._data.items() if path in paths}

    async def data(self, path: str) -> bytes | None:
        """Return a node's data; None: the node is missing. Raises StoreError."""
        if self.knows(path):
            return self._data[path]
        note = self._reading[path] = object()
        node = await self._client.get(path, partial(self._fired, path))
        if node is None and await self._client.exists(path, partial(self._fired, path)) is not None:
            return await self.data(path)  # the node was created between the two reads
        value = None if node is None else node[0]
        if self._reading.pop(path, None) is note:
            self._data[path] = value
        return value

    async def children(self, path: str) -> tuple[str, ...]:
        """Return the sorted names of a node's children; empty if the node is missing. Raises StoreError."""
        if path in self._children and self._client.connected:
            return self._children[path]
        note = self._reading[path] = object()
        children = await self._client.children(path, partial(self._fired, path))
        if children is None and await self._client.exists(path, partial(self._fired, path)) is not None:
            return await self.children(path)
        names = tuple(sorted(children or ()))
        if self._reading.pop(path, None) is note:
            self._children[path] = names
        return names

    def _fired(self, path: str) -> None:
        self._data.pop(path, None)
        self._children.pop(path, None)
        self._reading.pop(path, None)

    def _on_connection(self, connection: Connection) -> None:
        if connection != "connected":  # kazoo forgets all watches with the connection
            self._data.clear()
            self._children.clear()
            self._reading.clear()


class ZkPolicies:
    """`Metadata.policies`: isolation policies and failure domains from the configuration store, anti-affinity groups
    from the metadata store.
    """

    def __init__(self, metadata: ZkClient, configuration: ZkClient) -> None:
        self._local = WatchedNodes(metadata)
        self._global = WatchedNodes(configuration)
        self._decoded: dict[str, tuple[bytes | None, str | None]] = {}

    async def read(self, cluster: str, namespaces: Sequence[str]) -> PolicyRecords:
        """Read the policies; see `Metadata.policies`. Raises StoreError or CodecError."""
        root = f"{CLUSTERS}/{cluster}"
        if await self._global.data(root) is None:
            raise StoreError(f"there is no {root} in the configuration store: it is not the brokers'")
        isolation = await self._global.data(f"{root}/namespaceIsolationPolicies")
        domains = await self._global.children(f"{root}/failureDomain")
        members = await bounded([partial(self._global.data, f"{root}/failureDomain/{name}") for name in domains])
        groups, unreadable = await self._groups(namespaces)
        return PolicyRecords(
            isolation=decode_isolation_policies(isolation) if isolation is not None else (),
            failure_domains={
                name: decode_failure_domain(data)
                for name, data in zip(domains, members, strict=True)
                if data is not None
            },
            anti_affinity=groups,
            unreadable=unreadable,
        )

    async def _groups(self, namespaces: Sequence[str]) -> tuple[dict[str, str], frozenset[str]]:
        paths = {f"{LOCAL_POLICIES}/{name}": name for name in namespaces}
        if len(self._local) > 2 * len(paths):
            self._local.keep_only(set(paths))
            self._decoded = {path: entry for path, entry in self._decoded.items() if path in paths}
        new = [path for path in paths if not self._local.knows(path)]
        await bounded([partial(self._local.data, path) for path in new[:NEW_PER_CALL]])
        unread = frozenset(new[NEW_PER_CALL:])
        groups: dict[str, str] = {}
        unreadable = set()
        for path, name in paths.items():
            group = None if path in unread else self._group(path, await self._local.data(path))
            if group is None:
                unreadable.add(name)
            elif group:
                groups[name] = group
        return groups, frozenset(unreadable)

    def _group(self, path: str, data: bytes | None) -> str | None:
        """Return the anti-affinity group in a namespace's record; "": none; None: unusable. Decodes changes only."""
        cached = self._decoded.get(path)
        if cached is None or cached[0] is not data:
            try:
                group = decode_anti_affinity_group(data) if data is not None else ""
            except CodecError:
                group = None
            cached = self._decoded[path] = (data, group)
        return cached[1]
