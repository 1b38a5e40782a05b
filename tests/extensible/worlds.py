"""Our adapters over a real cluster of the extensible load manager, and who owns what there."""

from __future__ import annotations

from bundlekeel.adapters.admin import AdminOptions, HttpBrokerAdmin
from bundlekeel.adapters.topics.channel import TopicChannel
from bundlekeel.adapters.topics.process import TopicsOptions, TopicsProcess
from bundlekeel.adapters.zookeeper import ZkChannel
from bundlekeel.core.model.errors import SnapshotError, StoreError
from bundlekeel.daemon.execution.executor import Executor
from bundlekeel.daemon.execution.move import ExecutorLimits, LeaderTerm, MovePorts
from bundlekeel.daemon.execution.splits import Splitter
from bundlekeel.daemon.sources.ownership import serving
from bundlekeel.ports import Channel, Owner
from bundlekeel.ports.commands import Permit, UnloadAnswer
from dev.cluster import Cluster
from tests.integration.conftest import RealWorld
from tests.support.contracts.coordination import eventually


class ByChannel:
    """`ports.Ownership` over a channel alone, as `ChannelOwnership` reads it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    async def owner(self, bundle: str) -> Owner | None:
        """By the bundle's entry."""
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

    def __init__(self, cluster: Cluster, *, store: bool = False) -> None:
        super().__init__(cluster)
        process = TopicsProcess(TopicsOptions(), clock=self.clock)
        self.channel: Channel = (
            ZkChannel(self.store, clock=self.clock) if store else TopicChannel(process, clock=self.clock)
        )
        self.by_channel = ByChannel(self.channel)
        self.counting = CountingAdmin(telemetry=self.telemetry, clock=self.clock, options=AdminOptions(read_timeout=95))
        self.counting.set_endpoints(self.endpoints)

    @property
    def ports(self) -> MovePorts:
        """As executor and splitter take them."""
        return MovePorts(
            admin=self.counting,
            commands=self.counting,
            coordination=self.coordination,
            ownership=self.by_channel,
            metadata=self.metadata,
            clock=self.clock,
            mode=lambda: "extensible",
        )

    @property
    def term(self) -> LeaderTerm:
        """This sidecar's."""
        return LeaderTerm(epoch=self.epoch, member="test", permit=self.permit)

    def executor(self, limits: ExecutorLimits | None = None) -> Executor:
        """An executor over the cluster."""
        return Executor(self.ports, self.term, limits=limits)

    def splitter(self) -> Splitter:
        """A splitter over the cluster."""
        return Splitter(world=self.ports, term=self.term)

    async def owner_of(self, bundle: str) -> str:
        """Who owns a bundle, or "" when nobody does or it is on its way."""
        owner = await self.by_channel.owner(bundle)
        return owner.broker_id if owner is not None and not owner.disabled else ""

    async def start(self) -> None:
        """Connect, lead, and read the channel through once."""
        await super().start()
        await self.channel.start([broker.service_url for broker in self.cluster.brokers])

        async def read_through() -> bool:
            try:
                return bool(await self.channel.view())
            except (SnapshotError, StoreError):
                return False

        await eventually(read_through, within=60.0)

    async def close(self) -> None:
        """End all sessions."""
        await self.channel.close()
        await self.counting.close()
        await super().close()
