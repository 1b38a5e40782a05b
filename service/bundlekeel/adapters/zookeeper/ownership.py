"""Who owns a bundle, and what namespaces and topics there are: reads of Pulsar's own nodes, never a write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from urllib.parse import quote_plus, unquote_plus

import msgspec

from bundlekeel.adapters.zookeeper.client import ZkClient
from bundlekeel.adapters.zookeeper.policies import ZkPolicies
from bundlekeel.codec import decode_boundaries, decode_ephemeral, decode_leader_broker
from bundlekeel.codec.external_input import read
from bundlekeel.core.model.errors import CodecError
from bundlekeel.core.model.load import Owner
from bundlekeel.core.model.names import TopicName, parse_bundle, parse_topic
from bundlekeel.ports import PolicyRecords
from bundlekeel.work import bounded

POLICIES = "/admin/policies"
LOCAL_POLICIES = "/admin/local-policies"
PARTITIONED_TOPICS = "/admin/partitioned-topics"
MANAGED_LEDGERS = "/managed-ledgers"
# The modular load manager's leader, and the extensible one's.
LEADERS = ("/loadbalance/leader", "/loadbalance/extension/leader")

# Hashing this many names takes about a millisecond; then others get their turn.
_NAMES_PER_TURN = 1000


class ZkOwnership:
    """Ownership in the modular load manager: the ephemeral `/namespace/{bundle}` nodes."""

    def __init__(self, metadata: ZkClient) -> None:
        self._client = metadata

    async def owner(self, bundle: str) -> Owner | None:
        """Who owns the bundle now; None when nobody does. Raises StoreError, CodecError.

        Reads after a `sync`: a follower that lags would name the broker from before a move.
        """
        found = await self._client.get_synced(f"/namespace/{bundle}")
        return None if found is None else decode_ephemeral(found[0])


class _Partitions(msgspec.Struct):
    partitions: int = 0


class ZkMetadata:
    """Metadata from both stores. Bundles and load are in the metadata store, policies in the other one."""

    def __init__(self, metadata: ZkClient, configuration: ZkClient) -> None:
        self._metadata = metadata
        self._configuration = configuration
        self._policies = ZkPolicies(metadata, configuration)

    async def boundaries(self, namespace: str) -> list[int] | None:
        """Sorted bundle boundaries, or None when the namespace does not exist. StoreError, CodecError.

        The local policies are the record; a namespace no broker has loaded yet has only its policies.
        """
        # Synced: a split is verified by reading these again.
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
        """Partitions of a topic; 0 when it is not partitioned, unknown, or no topic name. StoreError."""
        try:
            name = parse_topic(topic)
        except ValueError:
            return 0
        path = f"{PARTITIONED_TOPICS}/{name.namespace}/{name.domain}/{encode_local(name.local)}"
        found = await self._configuration.get(path)
        if found is None:
            return 0
        try:
            return max(0, read(found[0], _Partitions, what="the partitioned topic").partitions)
        except CodecError:
            return 0

    async def metadata_leader(self) -> str | None:
        """The broker that leads Pulsar's own load manager, or None. StoreError, CodecError."""
        for path in LEADERS:
            found = await self._metadata.get(path)
            if found is not None:
                return decode_leader_broker(found[0])
        return None

    async def topics(self, bundle: str) -> list[str]:
        """Persistent topics whose hash falls into the bundle, sorted, partitions included. StoreError.

        Raises ValueError when `bundle` is not a bundle name.
        """
        name = parse_bundle(bundle)
        ledgers = await self._metadata.children(f"{MANAGED_LEDGERS}/{name.namespace}/persistent")
        found = []
        for index, encoded in enumerate(ledgers or (), start=1):
            topic = TopicName(domain="persistent", namespace=name.namespace, local=unquote_plus(encoded))
            if name.covers(topic.hash):
                found.append(str(topic))
            if index % _NAMES_PER_TURN == 0:
                await asyncio.sleep(0)
        return sorted(found)

    async def policies(self, cluster: str, namespaces: Sequence[str]) -> PolicyRecords:
        """Isolation policies, failure domains and anti-affinity groups, kept by watches. StoreError, CodecError."""
        return await self._policies.read(cluster, namespaces)

    async def tenants(self) -> list[str]:
        """All tenants of the configuration store, sorted. StoreError."""
        return sorted(await self._configuration.children(POLICIES) or ())

    async def namespaces(self) -> list[str]:
        """All namespaces (`tenant/ns`) of the configuration store, sorted. StoreError."""
        tenants = await self.tenants()
        listings = await bounded([partial(self._configuration.children, f"{POLICIES}/{tenant}") for tenant in tenants])
        return sorted(
            f"{tenant}/{child}" for tenant, listing in zip(tenants, listings, strict=True) for child in listing or ()
        )

    async def _has_policies(self, namespace: str) -> bool:
        return await self._configuration.exists(f"{POLICIES}/{namespace}") is not None


def encode_local(local: str) -> str:
    """A topic's local name as Pulsar writes it into a path (`java.net.URLEncoder`, UTF-8)."""
    return quote_plus(local, safe="*").replace("~", "%7E")
