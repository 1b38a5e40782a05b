"""The daemon's view of ownership over a real extensible cluster: channel by variant, ownership by mode, the watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from bundlekeel.adapters.admin import HttpBrokerAdmin
from bundlekeel.adapters.metrics import PrometheusTelemetry
from bundlekeel.adapters.topics.channel import TopicChannel
from bundlekeel.adapters.topics.process import TopicsOptions, TopicsProcess
from bundlekeel.adapters.zookeeper import ZkChannel, ZkClient, ZkLoadSource, ZkMetadata, ZkOwnership
from bundlekeel.core.model.errors import SnapshotError, StoreError
from bundlekeel.daemon.sources.broker_settings import BrokerConfig
from bundlekeel.daemon.sources.channel_watch import ChannelWatch, WatchParts
from bundlekeel.daemon.sources.ownership import ChannelByVariant, ChannelOwnership, OwnershipByMode
from dev.cluster import Cluster
from tests.support.contracts.coordination import eventually
from tests.support.memory_source import RealClock


class Following:
    """One sidecar's parts that read ownership. `lines`: what it wrote into its journal."""

    def __init__(self, cluster: Cluster) -> None:
        self.clock = RealClock()
        self.lines: list[Mapping[str, Any]] = []
        telemetry = PrometheusTelemetry()
        self.store, self.configuration = (
            ZkClient(cluster.zk_hosts, chroot, session_seconds=10.0, call_timeout_seconds=5.0)
            for chroot in ("/pulsar", "/config")
        )
        self.source = ZkLoadSource(self.store, batch_window_seconds=0.2, max_report_bytes=1_000_000, clock=self.clock)
        self.admin = HttpBrokerAdmin(telemetry=telemetry, clock=self.clock)
        self.config = BrokerConfig(self.admin, self.clock)
        process = TopicsProcess(TopicsOptions(), clock=self.clock)
        self.channel = ChannelByVariant(
            {
                "system_topic": lambda: TopicChannel(process, clock=self.clock),
                "metadata_store": lambda: ZkChannel(self.store, clock=self.clock),
            },
            self.config,
        )
        self.ownership = OwnershipByMode(
            ZkOwnership(self.store), ChannelOwnership(self.channel, self.source), self.source
        )
        self.watch = ChannelWatch(
            WatchParts(
                channel=self.channel,
                source=self.source,
                metadata=ZkMetadata(self.store, self.configuration),
                config=self.config,
                record=self.lines.append,
                telemetry=telemetry,
                clock=self.clock,
            )
        )

    async def keep_hosts(self) -> None:
        """Tell the admin client which brokers there are, as a cycle does."""
        generation = -1
        while True:
            if await self.source.wait_changed(generation, 1.0):
                try:
                    picture = await self.source.picture()
                except (SnapshotError, StoreError):
                    await asyncio.sleep(0.1)
                    continue
                generation = picture.generation
                self.admin.set_endpoints(picture.endpoints)

    async def followed(self) -> bool:
        """Whether the watch has the newest view."""
        return self.watch.followed


def _never() -> None:
    raise AssertionError("nothing is to be changed")


@asynccontextmanager
async def following(cluster: Cluster) -> AsyncIterator[Following]:
    """Started, and followed; ended again."""
    made = Following(cluster)
    made.configuration.start()
    await made.source.start()
    tasks = [asyncio.create_task(made.keep_hosts()), asyncio.create_task(made.watch.run())]
    try:
        await eventually(made.followed, within=90)
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await made.channel.close()
        await made.source.close()
        await made.admin.close()
        await made.store.close()
        await made.configuration.close()
