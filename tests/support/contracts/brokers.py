"""Tests that `LoadSource`, `Ownership` and `Metadata` must pass, in memory and over ZooKeeper. A `BrokersWorld` writes
the documents that brokers write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.model.load import BundleAverages
from bundlekeel.model.names import parse_topic
from bundlekeel.ports import LoadSource, Metadata, Ownership, RawClusterView
from tests.support.contracts.coordination import eventually

LOWER, UPPER = "t/ns/0x00000000_0x80000000", "t/ns/0x80000000_0xffffffff"
MIDDLE, END = 0x80000000, 0xFFFFFFFF


class BrokersWorld(Protocol):
    """Writes what brokers write."""

    @property
    def loads(self) -> LoadSource:
        """Over the records."""

    @property
    def ownership(self) -> Ownership:
        """Over the records."""

    @property
    def metadata(self) -> Metadata:
        """Over the records."""

    def report(self, broker: str, last_update: int) -> None:
        """A broker (`host:port`) registers, or reports again."""

    def spoil(self, broker: str) -> None:
        """Replace the report of a registered broker by an empty record."""

    def remove(self, broker: str) -> None:
        """Delete a broker's registration, as after its death."""

    def average(self, averages: BundleAverages) -> None:
        """Store the averages of a bundle, as the leader broker does."""

    def own(self, bundle: str, broker: str, *, disabled: bool = False) -> None:
        """Make a broker the owner of a bundle. `disabled`: the broker is unloading the bundle."""

    def disown(self, bundle: str) -> None:
        """Remove the ownership of a bundle."""

    def divide(self, namespace: str, boundaries: list[int]) -> None:
        """Give a namespace bundles with these boundaries."""

    def tenant(self, name: str) -> None:
        """Create a tenant without namespaces."""

    def partition(self, topic: str, partitions: int) -> None:
        """Create a partitioned topic."""

    def topic(self, name: str) -> None:
        """Create a persistent topic."""

    def lead(self, broker: str) -> None:
        """Make a broker the leader of Pulsar's own load manager."""

    async def suspend(self) -> None:
        """Let the store stop responding."""


async def view(world: BrokersWorld, condition: Callable[[RawClusterView], Any]) -> RawClusterView:
    """Wait for a view of the cluster that satisfies the condition, and return it."""

    async def read_view() -> RawClusterView | None:
        try:
            cluster_view = await world.loads.picture()
        except SnapshotError:
            return None  # the fake's first view comes with the first report
        return cluster_view if condition(cluster_view) else None

    cluster_view: RawClusterView = await eventually(read_view)
    return cluster_view


def ids(cluster: RawClusterView) -> list[str]:
    """Return the ids of the brokers with a usable report."""
    return [report.broker_id for report in cluster.reports]


async def check_brokers_come_report_and_go(world: BrokersWorld) -> None:
    """Before the start there is no view; each change is a new generation."""
    with pytest.raises(SnapshotError):
        await world.loads.picture()
    await world.loads.start()
    world.report("b:8080", 1)
    world.report("a:8080", 1)
    both = await view(world, lambda cluster: len(cluster.reports) == 2)
    assert (ids(both), both.mode, both.excluded) == (["a:8080", "b:8080"], "modular", ())
    assert list(both.endpoints) == ["a:8080", "b:8080"]
    assert both.endpoints["a:8080"].web_url.rstrip("/") == "http://a:8080"
    world.report("a:8080", 2)
    newer = await view(world, lambda cluster: cluster.reports[0].last_update == 2)
    assert newer.generation > both.generation
    world.remove("a:8080")
    left = await view(world, lambda cluster: len(cluster.reports) == 1)
    assert (ids(left), list(left.endpoints)) == (["b:8080"], ["b:8080"])


async def check_waiting_for_a_change(world: BrokersWorld) -> None:
    """`wait_changed` is True when a newer view is there or comes, and False when none comes in time."""
    await world.loads.start()
    world.report("a:8080", 1)
    first = await view(world, lambda cluster: cluster.reports)
    assert await world.loads.wait_changed(first.generation - 1, 5.0)
    assert not await world.loads.wait_changed(first.generation, 0.3)
    waiting = asyncio.create_task(world.loads.wait_changed(first.generation, 60.0))
    await asyncio.sleep(0.05)
    world.report("b:8080", 1)
    assert await waiting


async def check_an_unusable_report(world: BrokersWorld) -> None:
    """It costs only its broker, which stays registered under its address until it reports rightly again."""
    await world.loads.start()
    for broker in ("bad:8080", "good:8080"):
        world.report(broker, 1)
    await view(world, lambda cluster: len(cluster.reports) == 2)
    world.spoil("bad:8080")
    cluster = await view(world, lambda cluster: cluster.excluded)
    assert (ids(cluster), [broker.broker_id for broker in cluster.excluded]) == (["good:8080"], ["bad:8080"])
    assert cluster.endpoints["bad:8080"].web_url.rstrip("/") == "http://bad:8080"
    world.report("bad:8080", 2)
    assert len((await view(world, lambda cluster: not cluster.excluded)).reports) == 2


async def check_stored_averages(world: BrokersWorld) -> None:
    """Averages come in the requested order, each once, without those that are not stored."""
    await world.loads.start()
    short, long = (3.0, 4.0, 1.0, 2.0), (30.0, 40.0, 10.0, 20.0)
    stored = [
        BundleAverages(bundle=bundle, short=short, long=long, short_samples=4, long_samples=9, topics=7)
        for bundle in (LOWER, UPPER)
    ]
    for averages in stored:
        world.average(averages)
    world.report("a:8080", 1)
    await view(world, lambda cluster: cluster.reports)
    names = [UPPER, "t/other/0x00000000_0xffffffff", LOWER, UPPER]
    assert await world.loads.seeds(names) == [stored[1], stored[0]]


async def check_owners(world: BrokersWorld) -> None:
    """The store contains the current state: unowned, owned, disabled by the owner, owned by another broker."""
    assert await world.ownership.owner(LOWER) is None
    world.own(LOWER, "a:8080")
    owner = await world.ownership.owner(LOWER)
    assert owner is not None and (owner.broker_id, owner.disabled) == ("a:8080", False)
    world.own(LOWER, "a:8080", disabled=True)
    owner = await world.ownership.owner(LOWER)
    assert owner is not None and owner.disabled
    assert await world.ownership.owner(UPPER) is None
    world.disown(LOWER)
    assert await world.ownership.owner(LOWER) is None
    world.own(LOWER, "b:8080")
    owner = await world.ownership.owner(LOWER)
    assert owner is not None and owner.broker_id == "b:8080"


async def check_namespaces(world: BrokersWorld) -> None:
    """Sorted, of every tenant; tenants without namespaces too; boundaries of those that exist."""
    assert await world.metadata.namespaces() == []
    for name in ("b/two", "a/one", "b/one"):
        world.divide(name, [0, MIDDLE, END])
    world.tenant("empty")
    assert await world.metadata.namespaces() == ["a/one", "b/one", "b/two"]
    assert await world.metadata.tenants() == ["a", "b", "empty"]
    assert await world.metadata.boundaries("a/one") == [0, MIDDLE, END]
    assert await world.metadata.boundaries("a/none") is None


async def check_topics(world: BrokersWorld) -> None:
    """Each in exactly the bundle that covers its hash; partitions by the topic's own domain, 0 where there are none."""
    names = [f"persistent://t/ns/topic-{i}" for i in range(60)]
    names += ["persistent://t/ns/a/b", "persistent://t/ns/c d-partition-0"]
    for name in names:
        world.topic(name)
    lower, upper = await world.metadata.topics(LOWER), await world.metadata.topics(UPPER)
    assert sorted(lower + upper) == sorted(names)
    assert lower and all(parse_topic(topic).hash < MIDDLE for topic in lower)
    assert await world.metadata.topics("t/none/0x00000000_0xffffffff") == []
    world.partition("persistent://t/ns/plain", 3)
    world.partition("non-persistent://t/ns/plain", 5)
    world.partition("persistent://t/ns/a b/c~*é", 4)
    topic_names = ("persistent://t/ns/plain", "non-persistent://t/ns/plain", "persistent://t/ns/a b/c~*é")
    assert [await world.metadata.partitions(topic) for topic in topic_names] == [3, 5, 4]
    assert await world.metadata.partitions("persistent://t/ns/absent") == 0
    assert await world.metadata.partitions("no topic/at") == 0


async def check_the_leader_of_the_brokers(world: BrokersWorld) -> None:
    assert await world.metadata.metadata_leader() is None
    world.lead("h:8080")
    assert await world.metadata.metadata_leader() == "h:8080"


async def check_a_store_that_is_away(world: BrokersWorld) -> None:
    """Every read fails. Earlier results are not returned as if they were current."""
    await world.loads.start()
    world.report("a:8080", 1)
    world.own(LOWER, "a:8080")
    world.divide("t/ns", [0, MIDDLE, END])
    await view(world, lambda cluster: cluster.reports)
    await world.suspend()
    for read in (
        world.loads.picture,
        lambda: world.loads.seeds([LOWER]),
        lambda: world.ownership.owner(LOWER),
        lambda: world.metadata.boundaries("t/ns"),
        lambda: world.metadata.partitions("persistent://t/ns/plain"),
        world.metadata.metadata_leader,
        lambda: world.metadata.topics(LOWER),
        world.metadata.namespaces,
        world.metadata.tenants,
    ):
        with pytest.raises(StoreError):
            await read()


CHECKS = (
    check_brokers_come_report_and_go,
    check_waiting_for_a_change,
    check_an_unusable_report,
    check_stored_averages,
    check_owners,
    check_namespaces,
    check_topics,
    check_the_leader_of_the_brokers,
    check_a_store_that_is_away,
)
