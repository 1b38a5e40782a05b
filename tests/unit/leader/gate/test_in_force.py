"""Settings in effect at the brokers: one that hangs for a moment neither stops nor unlocks anything."""

from __future__ import annotations

import pytest

from bundlekeel.leader.gate.in_force import mode_in_force
from bundlekeel.leader.state.documents import Desired
from bundlekeel.model.errors import AdminTimeout, WrongCluster
from tests.support.memory_admin import Fault
from tests.support.world import BROKERS, FakeCluster, FakeSidecar


async def ask_brokers(sidecar: FakeSidecar) -> list[bool | None]:
    endpoints = (await sidecar.cluster.source.picture()).endpoints
    sidecar.admin.set_endpoints(endpoints)
    await sidecar.config.refresh(endpoints, force=True)
    return [sidecar.config.sheds(broker) for broker in BROKERS]


async def test_a_silent_broker_keeps_what_it_said_for_a_minute() -> None:
    """One failed read does not stop the balancing of the others; a broker silent for longer does."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    assert await ask_brokers(sidecar) == [False, False, False]
    silent = Fault(error=AdminTimeout("no answer"))
    sidecar.admin.fail("runtime_configuration", silent, None, None)
    assert await ask_brokers(sidecar) == [False, False, False]
    assert list(sidecar.config.errors) == [BROKERS[0]]
    sidecar.clock.offset = 61.0
    sidecar.admin.fail("runtime_configuration", silent, None, None)
    assert await ask_brokers(sidecar) == [None, False, False]


async def test_a_broker_never_heard_of_is_unknown() -> None:
    """Without any answer nothing is assumed: acting is refused."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    sidecar.admin.fail("runtime_configuration", Fault(error=AdminTimeout("no answer")), None, None)
    assert await ask_brokers(sidecar) == [None, False, False]


async def test_the_clusters_name_is_the_brokers() -> None:
    """One broker of our name is enough, and a missing name is accepted. Another name of most brokers is refused."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    static = sidecar.cluster.model.static
    static[BROKERS[0]]["clusterName"] = "east"
    await ask_brokers(sidecar)
    for broker in BROKERS:
        static[broker].pop("clusterName")
    await ask_brokers(sidecar)
    for broker in BROKERS[:2]:
        static[broker]["clusterName"] = "east"
    with pytest.raises(WrongCluster, match="clusterName 'east': set cluster to that name") as caught:
        await ask_brokers(sidecar)
    assert (caught.value.field, caught.value.value, caught.value.allowed) == ("cluster", "local", "east")


LOCAL, CONFIG = "zk:zk1:2181,zk2:2181/pulsar", "zk:zk3:2181/config"


async def start_sidecar(value: str | None, static: dict[str, str]) -> FakeSidecar:
    """A sidecar with this setting that has asked brokers which show these stores."""
    sidecar = await FakeSidecar(FakeCluster(), settings={"configuration_store": value}).lead()
    for values in sidecar.cluster.model.static.values():
        values.update(static)
    await ask_brokers(sidecar)
    return sidecar


@pytest.mark.parametrize(
    ("value", "static", "refused"),
    [
        ("zk:zk1:2181/nowhere", {"metadataStoreUrl": LOCAL, "configurationMetadataStoreUrl": CONFIG}, True),
        ("zk:zk1:2181/config", {"metadataStoreUrl": LOCAL}, True),
        ("zk:other-name:2181/config", {"metadataStoreUrl": LOCAL, "configurationMetadataStoreUrl": CONFIG}, False),
        (None, {"metadataStoreUrl": LOCAL, "configurationMetadataStoreUrl": CONFIG}, False),
    ],
)
async def test_the_configuration_store_is_the_brokers(value: str | None, static: dict[str, str], refused: bool) -> None:
    """Another path is never the same store; other host names prove nothing."""
    sidecar = await start_sidecar(value, static)
    if not refused:
        sidecar.config.demand_configuration_store()
        return
    with pytest.raises(WrongCluster, match="isolation policies are there") as caught:
        sidecar.config.demand_configuration_store()
    assert (caught.value.field, caught.value.value) == ("configuration_store", value)
    assert caught.value.allowed in static.values() and not sidecar.cluster.metadata.followed


@pytest.mark.parametrize(
    ("static", "followed"),
    [
        ({"metadataStoreUrl": LOCAL, "configurationMetadataStoreUrl": CONFIG}, [CONFIG]),
        ({"zookeeperServers": "b1:2181/pulsar", "configurationStoreServers": "b1:2181/config"}, ["zk:zk1:2181/config"]),
        ({"metadataStoreUrl": LOCAL, "configurationMetadataStoreUrl": "zk:zk3:2181/pulsar"}, ["zk:zk3:2181/pulsar"]),
        ({"metadataStoreUrl": LOCAL, "configurationMetadataStoreUrl": ""}, []),
        ({"metadataStoreUrl": LOCAL, "configurationMetadataStoreUrl": "zk:zk2:2181/pulsar/"}, []),
        ({"metadataStoreUrl": "rocksdb:/data", "configurationMetadataStoreUrl": "rocksdb:/data"}, []),
        ({}, []),
    ],
)
async def test_policies_are_read_where_the_brokers_have_them(static: dict[str, str], followed: list[str]) -> None:
    """Without a setting, once; by our names of the hosts where they are in the same ZooKeeper as the load."""
    sidecar = await start_sidecar(None, static)
    await ask_brokers(sidecar)
    assert sidecar.cluster.metadata.followed == followed


def test_an_unknown_mode_is_read_as_the_safest_one() -> None:
    """An unknown word must not raise the mode."""
    assert mode_in_force("act", Desired(mode="careful")) == "observe"
    assert mode_in_force("act", Desired(mode="recommend")) == "recommend"
    assert mode_in_force("recommend", Desired(mode="act")) == "recommend"
    assert mode_in_force("act", Desired()) == "act"
