"""The metadata store through kazoo: load source, ownership, channel, metadata, coordination."""

from bundlekeel.pulsar.zookeeper.channel import ZkChannel
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.coordination import ZkCoordination
from bundlekeel.pulsar.zookeeper.metadata import ZkMetadata, ZkOwnership
from bundlekeel.pulsar.zookeeper.source import ZkLoadSource

__all__ = ["ZkChannel", "ZkClient", "ZkCoordination", "ZkLoadSource", "ZkMetadata", "ZkOwnership"]
