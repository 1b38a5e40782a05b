"""The metadata store through kazoo: load source, ownership, channel, metadata, coordination."""

from bundlekeel.adapters.zookeeper.channel import ZkChannel
from bundlekeel.adapters.zookeeper.client import ZkClient
from bundlekeel.adapters.zookeeper.coordination import ZkCoordination
from bundlekeel.adapters.zookeeper.metadata import ZkMetadata, ZkOwnership
from bundlekeel.adapters.zookeeper.source import ZkLoadSource

__all__ = ["ZkChannel", "ZkClient", "ZkCoordination", "ZkLoadSource", "ZkMetadata", "ZkOwnership"]
