"""`why` of names that are in no load report."""

from __future__ import annotations

import pytest

from bundlekeel.core.model.errors import NotFound
from tests.support.world import BROKERS, FakeCluster, FakeSidecar


async def test_why_of_what_does_not_exist_is_an_error() -> None:
    """As of `where`: bundles and namespaces that the cluster does not have, the nearest bundle named. Of a topic, that
    it is not there yet."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    sidecar.cluster.metadata.bundle_boundaries["t/ns"] = [0, 0x80000000, 0xFFFFFFFF]
    await sidecar.cycle.turn()
    for name in ("nosuch/ns/0x00000000_0x10000000", "t/ns/0x80000000_0x90000000", "persistent://t/no/x"):
        with pytest.raises(NotFound) as caught:
            await sidecar.service.why(name)
        assert ("nearest: t/ns/0x80000000_0xffffffff" in str(caught.value)) == name.startswith("t/ns/0x")
    later = await sidecar.service.why("persistent://t/ns/later")
    assert later.sentence.startswith("there is no topic persistent://t/ns/later yet; of its bundle: ")


async def test_why_of_an_idle_bundle_names_its_owner() -> None:
    """Load reports leave out bundles without traffic; the metadata store knows who owns them."""
    cluster, bundle = FakeCluster(), "t/idle/0x00000000_0xffffffff"
    cluster.metadata.bundle_boundaries["t/idle"] = [0, 0xFFFFFFFF]
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    alone = await sidecar.service.why(bundle)
    assert (alone.broker, alone.codes) == (None, []) and "no broker owns" in alone.sentence
    cluster.model.own(bundle, BROKERS[2])
    owned = await sidecar.service.why(bundle)
    assert owned.broker == BROKERS[2] and owned.sentence.startswith(f"{BROKERS[2]} owns it")
    assert [item.code for item in owned.codes] == ["Idle"]
