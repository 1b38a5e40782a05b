"""Facts about the cluster need the agreement of most brokers: one broker may be wrong or hostile."""

from __future__ import annotations

import pytest

from bundlekeel.model.errors import AdminTimeout, SnapshotError, WrongCluster
from bundlekeel.requests.doctor import examine
from tests.support.memory_admin import Fault
from tests.support.world import BROKERS, FakeCluster, FakeSidecar

METADATA, EVIL, CONFIG = "zk:zk1:2181/pulsar", "zk:evil:2181/pulsar", "zk:zk3:2181/config"
HERE = {"metadataStoreUrl": METADATA, "configurationMetadataStoreUrl": METADATA}
ELSEWHERE = {"metadataStoreUrl": METADATA, "configurationMetadataStoreUrl": CONFIG}
SILENT = Fault(error=AdminTimeout("no answer"))


async def refreshed(cluster: FakeCluster, *faults: Fault | None) -> FakeSidecar:
    """Return a leader that has asked the brokers for their settings; `faults`: one per broker, in their order."""
    sidecar = await FakeSidecar(cluster).lead()
    sidecar.admin.fail("runtime_configuration", *faults, None)
    endpoints = (await cluster.source.picture()).endpoints
    sidecar.admin.set_endpoints(endpoints)
    await sidecar.config.refresh(endpoints, force=True)
    return sidecar


def cluster_with(*static: dict[str, str]) -> FakeCluster:
    """Return a cluster whose brokers show these settings, in the order of their IDs."""
    cluster = FakeCluster()
    for broker, values in zip(BROKERS, static, strict=True):
        cluster.model.static[broker].update(values)
    return cluster


@pytest.mark.parametrize("others", [HERE, {}])
@pytest.mark.parametrize("place", range(3))
async def test_s04_one_broker_does_not_choose_the_configuration_store(place: int, others: dict[str, str]) -> None:
    static = [others, others, others]
    static[place] = {"metadataStoreUrl": METADATA, "configurationMetadataStoreUrl": EVIL}
    sidecar = await refreshed(cluster_with(*static))
    assert not sidecar.cluster.metadata.followed
    sidecar.config.demand_configuration_store()


async def test_s04_one_of_two_other_stores_is_not_chosen_by_its_name() -> None:
    """The order of the addresses does not matter, nor the order of hosts in an address."""
    agreed = {"metadataStoreUrl": METADATA, "configurationMetadataStoreUrl": "zk:zk4:2181,zk3:2181/config"}
    turned = {"metadataStoreUrl": METADATA, "configurationMetadataStoreUrl": "zk:zk3:2181,zk4:2181/config"}
    first = {"metadataStoreUrl": METADATA, "configurationMetadataStoreUrl": "zk:a:2181/config"}
    sidecar = await refreshed(cluster_with(first, agreed, turned))
    assert sidecar.cluster.metadata.followed == ["zk:zk4:2181,zk3:2181/config"]


async def test_s04_too_few_answers_hold_the_cycle_and_do_not_end_the_process() -> None:
    """Policies may be elsewhere: nothing is planned until most brokers agree, then their store is used."""
    cluster = cluster_with(ELSEWHERE, ELSEWHERE, ELSEWHERE)
    sidecar = await refreshed(cluster, None, SILENT, SILENT)
    assert not cluster.metadata.followed
    with pytest.raises(SnapshotError, match=r"1 of 3 brokers show .* set configuration_store"):
        sidecar.config.demand_configuration_store()
    sidecar = await refreshed(cluster)
    assert cluster.metadata.followed == [CONFIG]
    sidecar.config.demand_configuration_store()


async def test_s04_three_stores_of_three_brokers_need_the_setting() -> None:
    static = [{"metadataStoreUrl": METADATA, "configurationMetadataStoreUrl": f"zk:z{n}:2181/c"} for n in range(3)]
    sidecar = await refreshed(cluster_with(*static))
    assert not sidecar.cluster.metadata.followed
    with pytest.raises(WrongCluster, match="set configuration_store"):
        sidecar.config.demand_configuration_store()


async def test_s04_doctor_names_the_setting_where_brokers_do_not_agree() -> None:
    cluster = cluster_with(ELSEWHERE, {}, {})
    sidecar = await FakeSidecar(cluster).lead()
    sidecar.admin.fail("runtime_configuration", None, SILENT, SILENT)
    [check] = [item for item in await examine(sidecar.doctor_context()) if item.name == "configuration store"]
    assert not check.ok and "1 of 3 brokers show" in check.detail and "configuration_store" in check.fix


@pytest.mark.parametrize("faults", [(None, SILENT, SILENT), (None, None, None)])
async def test_s04_one_broker_with_another_name_does_not_end_the_process(faults: tuple[Fault | None, ...]) -> None:
    """Also where the others do not answer, or do not show a name."""
    cluster = FakeCluster()
    for broker in BROKERS:
        cluster.model.static[broker].pop("clusterName", None)
    cluster.model.static[BROKERS[0]]["clusterName"] = "east"
    await refreshed(cluster, *faults)
    cluster.model.static[BROKERS[1]]["clusterName"] = "east"
    with pytest.raises(WrongCluster, match="'east'"):
        await refreshed(cluster)


async def test_s04_settings_to_adopt_are_those_of_most_brokers() -> None:
    """A key that most brokers do not show is left out, so its stock value applies."""
    odd = {"loadBalancerSheddingIntervalMinutes": "99", "clusterName": "east", "onlyHere": "1"}
    rest = {"loadBalancerSheddingIntervalMinutes": "2", "clusterName": "local"}
    values = (await refreshed(cluster_with(odd, rest, rest))).config.adoptable()
    assert (values["loadBalancerSheddingIntervalMinutes"], values["clusterName"]) == ("2", "local")
    assert "onlyHere" not in values
