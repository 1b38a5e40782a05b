"""The ownership channel and its watch over fakes: brokers of the extensible load manager, both variants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bundlekeel.model.extensible import LOAD_MANAGER
from bundlekeel.ports import Channel, ChannelVariant
from bundlekeel.pulsar.channel.channel_watch import ChannelWatch
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.pulsar.sources.ownership import (
    SYNCER_KEY,
    VARIANT_KEY,
    ChannelByVariant,
    ChannelOwnership,
    OwnershipByMode,
)
from bundlekeel.records.metrics import PrometheusTelemetry
from tests.support.builders import report
from tests.support.memory_admin import BrokerModel, MemoryAdmin
from tests.support.memory_channel import MemoryChannel
from tests.support.memory_source import MemoryLoadSource, MemoryMetadata, MemoryOwnership
from tests.support.world import TestClock

BROKERS = ("b1:8080", "b2:8080", "b3:8080")
BUNDLE = "t/ns/0x00000000_0x40000000"
OTHER = "t/ns/0x40000000_0x80000000"
STORE_CLASS = "org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateMetadataStoreTableViewImpl"
TOPIC_CLASS = "org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateTableViewImpl"


class ChannelStage:
    """Three brokers, their channel (`topic` and `store`), and the sidecar's findings. `lines`: the journal's
    records.
    """

    def __init__(self, *, mode: str = "extensible") -> None:
        self.clock = TestClock()
        self.source = MemoryLoadSource(self.clock, mode=mode)
        self.model = BrokerModel(BROKERS)
        self.admin = MemoryAdmin(self.model)
        self.config = BrokerConfig(self.admin, self.clock, max_age_seconds=0.0)
        self.metadata = MemoryMetadata()
        self.modular = MemoryOwnership()
        self.telemetry = PrometheusTelemetry()
        self.lines: list[Mapping[str, Any]] = []
        self.seated = True
        self.made: list[MemoryChannel] = []
        self.topic, self.store = self._memory("system_topic"), self._memory("metadata_store")
        self.channel = ChannelByVariant(
            {"system_topic": lambda: self._make(self.topic), "metadata_store": lambda: self._make(self.store)},
            self.config,
        )
        self.watch = ChannelWatch(
            channel=self.channel,
            source=self.source,
            metadata=self.metadata,
            config=self.config,
            record=self.lines.append,
            telemetry=self.telemetry,
            clock=self.clock,
            active=lambda: self.seated,
        )
        self.ownership = OwnershipByMode(self.modular, ChannelOwnership(self.channel, self.source), self.source)
        self.set_variant(TOPIC_CLASS)
        self.register(*BROKERS)

    def _memory(self, variant: ChannelVariant) -> MemoryChannel:
        return MemoryChannel(self.clock, variant=variant)

    def _make(self, channel: MemoryChannel) -> Channel:
        self.made.append(channel)
        channel.closed = False
        return channel

    def register(self, *brokers: str) -> None:
        """Register brokers."""
        self.admin.set_endpoints(self.model.endpoints())
        for broker in brokers:
            service = f"pulsar://{broker.split(':')[0]}:6650"
            self.source.put(report(broker, {}, load_manager=LOAD_MANAGER), service_url=service)

    def set_variant(self, name: str, *brokers: str, syncer: str = "None") -> None:
        """Set the channel variant in the brokers' configuration."""
        for broker in brokers or BROKERS:
            self.model.static[broker] |= {VARIANT_KEY: name, SYNCER_KEY: syncer}

    async def look(self, *, after: float = 0.0) -> list[Any]:
        """Let `after` seconds pass, check the channel once, and return the findings."""
        self.clock.offset += after
        await self.watch.turn()
        return self.watch.findings()

    def metric(self, name: str, **labels: str) -> float | None:
        """Return the value of a gauge; None if it has no series with these labels."""
        return self.telemetry.registry.get_sample_value(f"bundlekeel_{name}", labels)
