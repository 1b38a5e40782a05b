"""Our adapters over a real cluster of the extensible load manager, and who owns what there."""

from __future__ import annotations

from bundlekeel.leader.execution.splits import Splitter
from bundlekeel.ports import Channel, Owner
from bundlekeel.ports.commands import Permit, UnloadAnswer
from bundlekeel.pulsar.admin import HttpBrokerAdmin
from bundlekeel.pulsar.sources.ownership import serving
from bundlekeel.pulsar.topics.channel import TopicChannel
from bundlekeel.pulsar.topics.process import TopicsOptions, TopicsProcess
from bundlekeel.pulsar.zookeeper import ZkChannel
from dev.cluster import Cluster
from tests.integration.conftest import RealWorld
from tests.support.contracts.coordination import eventually


class ByChannel:
    """`ports.Ownership` over a channel alone, as `ChannelOwnership` reads it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    async def owner(self, bundle: str) -> Owner | None:
        """Return the owner from the bundle's entry."""
        return serving(await self.channel.unit(bundle))


class CountingAdmin(HttpBrokerAdmin):
    """The real admin; remembers how many unloads there were, and how many ran together at most."""

    running = unloads = together = 0

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        self.unloads += 1
        self.running += 1
        self.together = max(self.together, self.running)
        try:
            return await super().unload(bundle, destination=destination, at=at, permit=permit)
        finally:
            self.running -= 1


class ExtensibleWorld(RealWorld):
    """The ports over a real cluster; ownership is read from the channel: the system topic, or the metadata store."""

    kind = CountingAdmin
    admin: CountingAdmin

    def __init__(self, cluster: Cluster, *, store: bool = False) -> None:
        super().__init__(cluster)
        process = TopicsProcess(TopicsOptions(), clock=self.clock)
        self.channel: Channel = (
            ZkChannel(self.store, clock=self.clock) if store else TopicChannel(process, clock=self.clock)
        )
        self.ownership = ByChannel(self.channel)

    def splitter(self) -> Splitter:
        """A splitter over the cluster."""
        return Splitter(ports=self.ports, term=self.term)

    async def start(self) -> None:
        """Connect, lead, and read the channel through once."""
        await super().start()
        await self.channel.start([broker.service_url for broker in self.cluster.brokers])
        await eventually(self.channel.view, within=60.0)

    async def close(self) -> None:
        """End all sessions."""
        await self.channel.close()
        await super().close()
