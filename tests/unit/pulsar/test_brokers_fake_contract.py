"""The fakes of `LoadSource`, `Ownership` and `Metadata` keep the contract that ZooKeeper keeps in tests/integration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import BundleAverages
from tests.support import builders
from tests.support.contracts.brokers import CHECKS, BrokersWorld
from tests.support.memory_source import MemoryLoadSource, MemoryMetadata, MemoryOwnership, RealClock


class MemoryBrokers:
    """`BrokersWorld` over the three fakes."""

    def __init__(self) -> None:
        self.loads = MemoryLoadSource(RealClock())
        self.ownership = MemoryOwnership()
        self.metadata = MemoryMetadata()

    def report(self, broker: str, last_update: int) -> None:
        self.loads.put(builders.report(broker, {}, last_update=last_update))

    def spoil(self, broker: str) -> None:
        self.loads.exclude(broker, Code.EMPTY_REPORT)

    def remove(self, broker: str) -> None:
        self.loads.remove(broker)

    def average(self, averages: BundleAverages) -> None:
        self.loads.averages[averages.bundle] = averages

    def own(self, bundle: str, broker: str, *, disabled: bool = False) -> None:
        self.ownership.assign(broker, bundle, disabled=disabled)

    def disown(self, bundle: str) -> None:
        del self.ownership.owners[bundle]

    def divide(self, namespace: str, boundaries: list[int]) -> None:
        self.metadata.bundle_boundaries[namespace] = boundaries

    def tenant(self, name: str) -> None:
        self.metadata.tenant_names.add(name)

    def partition(self, topic: str, partitions: int) -> None:
        self.metadata.partition_counts[topic] = partitions

    def topic(self, name: str) -> None:
        self.metadata.add_topics([name])

    def lead(self, broker: str) -> None:
        self.metadata.leader = broker

    async def suspend(self) -> None:
        for fake in (self.loads, self.ownership, self.metadata):
            fake.suspended = True


@pytest.mark.parametrize("check", CHECKS)
async def test_the_fakes_keep_the_contract(check: Callable[[BrokersWorld], Awaitable[None]]) -> None:
    await check(MemoryBrokers())
