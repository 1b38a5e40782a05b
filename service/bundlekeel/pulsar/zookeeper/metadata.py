"""Reads Pulsar's own ZooKeeper nodes, and never writes them: owners of bundles, namespaces and topics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import unquote_plus

import msgspec

from bundlekeel.model.errors import CodecError, StoreError
from bundlekeel.model.load import Owner
from bundlekeel.model.migration import NO_MIGRATION, StoreMigration
from bundlekeel.model.names import TopicName, parse_bundle, parse_topic
from bundlekeel.model.scalable import Segment
from bundlekeel.ports import PolicyRecords
from bundlekeel.pulsar.formats.external_input import read
from bundlekeel.pulsar.formats.records import (
    decode_boundaries,
    decode_ephemeral,
    decode_leader_broker,
    decode_migration,
)
from bundlekeel.pulsar.work import bounded
from bundlekeel.pulsar.zookeeper.client import Connection, ZkClient
from bundlekeel.pulsar.zookeeper.policies import ZkPolicies
from bundlekeel.pulsar.zookeeper.scalable import ZkScalableTopics

POLICIES = "/admin/policies"
LOCAL_POLICIES = "/admin/local-policies"
PARTITIONED_TOPICS = "/admin/partitioned-topics"
MANAGED_LEDGERS = "/managed-ledgers"
# Path of the state of a store migration (`MigrationState.MIGRATION_FLAG_PATH`), in the store that the brokers leave.
MIGRATION = "/pulsar/migration-coordinator/migration"
# The modular load manager's leader, and the extensible one's.
LEADERS = ("/loadbalance/leader", "/loadbalance/extension/leader")

# After this many names (about a millisecond of hashing) other tasks may run.
_NAMES_PER_TURN = 1000


class ZkOwnership:
    """Ownership in the modular load manager: the ephemeral `/namespace/{bundle}` nodes."""

    def __init__(self, metadata: ZkClient) -> None:
        self._client = metadata

    async def owner(self, bundle: str) -> Owner | None:
        """Return the bundle's current owner; None: no broker owns it.

        The server is brought up to date first (`sync`), because it could return the owner before a move. Raises
        StoreError, CodecError, or StoreMigrated if the brokers use another store.
        """
        node, migration = await asyncio.gather(
            self._client.get_synced(f"/namespace/{bundle}"), _read_migration(self._client)
        )
        migration.demand_readable()
        return None if node is None else decode_ephemeral(node[0])


async def _read_migration(client: ZkClient) -> StoreMigration:
    node = await client.get_synced(MIGRATION)
    return NO_MIGRATION if node is None else decode_migration(node[0], stamp=node[1].mzxid)


class _Partitions(msgspec.Struct):
    partitions: int = 0


class ZkMetadata:
    """`ports.Metadata`: reads bundles from the metadata store, and policies from the configuration store."""

    def __init__(self, metadata: ZkClient, configuration: ZkClient) -> None:
        self._metadata = metadata
        self._opened: ZkClient | None = None
        self._migration = NO_MIGRATION
        self._migration_watch = False
        self._scalable = ZkScalableTopics(metadata)
        metadata.add_listener(self._on_connection)
        self._read(configuration)

    def _read(self, configuration: ZkClient) -> None:
        self._configuration = configuration
        self._policies = ZkPolicies(self._metadata, configuration)

    def follow(self, configuration: ZkClient) -> None:
        """Start this client, and read the configuration store through it from now on. `close` also closes it."""
        self._opened = configuration
        configuration.start()
        self._read(configuration)

    async def close(self) -> None:
        """Close the client that `follow` started."""
        if self._opened is not None:
            await self._opened.close()

    async def boundaries(self, namespace: str) -> list[int] | None:
        """Return sorted bundle boundaries; None: the namespace does not exist. Raises StoreError or CodecError.

        Boundaries are in the local policies, or in the policies if no broker has loaded the namespace yet.
        """
        # Read current data, because this also verifies splits.
        local = await self._metadata.get_synced(f"{LOCAL_POLICIES}/{namespace}")
        if local is not None:
            try:
                return decode_boundaries(local[0])
            except CodecError:
                if not await self._has_policies(namespace):
                    raise
        policies = await self._configuration.get(f"{POLICIES}/{namespace}")
        return None if policies is None else decode_boundaries(policies[0])

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0: not partitioned, unknown or invalid. Raises StoreError."""
        try:
            name = parse_topic(topic)
        except ValueError:
            return 0
        if name.scalable:
            return 0
        path = f"{PARTITIONED_TOPICS}/{name.namespace}/{name.domain}/{name.encoded}"
        node = await self._configuration.get(path)
        if node is None:
            return 0
        try:
            return max(0, read(node[0], _Partitions, what="the partitioned topic").partitions)
        except CodecError:
            return 0

    async def metadata_leader(self) -> str | None:
        """Return the broker id of the leader of Pulsar's load manager, or None. Raises StoreError or CodecError."""
        for path in LEADERS:
            node = await self._metadata.get(path)
            if node is not None:
                return decode_leader_broker(node[0])
        return None

    async def topics(self, bundle: str) -> list[str]:
        """Return topics whose hash is in the bundle, sorted: persistent ones, partitions included, and scalable ones
        with their segments.

        Raises StoreError, or ValueError if `bundle` is not a bundle name.
        """
        name = parse_bundle(bundle)
        ledgers = await self._metadata.children(f"{MANAGED_LEDGERS}/{name.namespace}/persistent")
        topics = [
            TopicName(domain="persistent", namespace=name.namespace, local=unquote_plus(encoded))
            for encoded in ledgers or ()
        ]
        topics += await self._scalable.names(name.namespace)
        names = []
        for index, topic in enumerate(topics, start=1):
            if name.covers(topic.hash):
                names.append(str(topic))
            if index % _NAMES_PER_TURN == 0:
                await asyncio.sleep(0)
        return sorted(set(names))  # a migrated topic is also a segment

    async def segments(self, topic: str) -> list[str]:
        """Return the segments of a scalable topic, sorted. Raises StoreError, or ValueError for other names."""
        return sorted(map(str, await self._scalable.segments(parse_topic(topic))))

    async def layouts(self) -> list[Segment]:
        """Return the segments of all scalable topics, sealed ones included. Raises StoreError."""
        return await self._scalable.layouts()

    async def segment_load(self, segment: Segment) -> tuple[float, float, float, float]:
        """Return the traffic of a segment (columns of `model.load.TRAFFIC`); 0: unknown. Raises StoreError."""
        return await self._scalable.load(segment)

    async def policies(self, cluster: str, namespaces: Sequence[str]) -> PolicyRecords:
        """Return isolation policies, failure domains and anti-affinity groups. Raises StoreError or CodecError."""
        return await self._policies.read(cluster, namespaces)

    async def migration(self) -> StoreMigration:
        """Read the state of a store migration, and set a watch on it. Raises StoreError."""
        if not self._migration_watch:
            self._migration_watch = True
            try:
                await self._metadata.exists(MIGRATION, self._on_migration)
            except StoreError:
                self._migration_watch = False
                raise
        state = await _read_migration(self._metadata)
        if self._migration_watch:  # otherwise the state changed while it was read
            self._migration = state
        return state

    @property
    def migration_now(self) -> StoreMigration:
        """State of the store migration at the last call of `migration`; phase CHANGED if the watch has fired since."""
        return self._migration

    def _on_migration(self) -> None:
        self._migration_watch = False
        self._migration = replace(self._migration, phase="CHANGED")

    def _on_connection(self, connection: Connection) -> None:
        if connection != "connected":  # kazoo forgets all watches with the connection
            self._migration_watch = False

    async def tenants(self) -> list[str]:
        """Return all tenants of the configuration store, sorted. Raises StoreError."""
        return sorted(await self._configuration.children(POLICIES) or ())

    async def namespaces(self) -> list[str]:
        """Return all namespaces (`tenant/ns`) of the configuration store, sorted. Raises StoreError."""
        tenants = await self.tenants()
        listings = await bounded([partial(self._configuration.children, f"{POLICIES}/{tenant}") for tenant in tenants])
        return sorted(
            f"{tenant}/{child}" for tenant, listing in zip(tenants, listings, strict=True) for child in listing or ()
        )

    async def _has_policies(self, namespace: str) -> bool:
        return await self._configuration.exists(f"{POLICIES}/{namespace}") is not None
