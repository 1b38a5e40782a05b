"""The admin adapter's assumptions, checked on real brokers."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from bundlekeel.model.errors import AdminRefused
from bundlekeel.model.names import bundle_for_hash, parse_topic
from dev.cluster import Cluster
from dev.traffic.admin import ensure_namespace, place_all_on, request
from tests.integration.conftest import RealWorld

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAMESPACE = "public/admin-names"
LOCAL_NAMES = ["plain", "a b", "ü", "p%q", "q?x", "h#x", "p+l", "c:d", "d&e", "qu'o\"t"]


@pytest.fixture
def topics(modular_cluster: Cluster) -> dict[str, str]:
    """Topics with odd names, all loaded at the second broker; name to bundle."""
    second = modular_cluster.brokers[1]
    boundaries = ensure_namespace(second.web_url, NAMESPACE, 2)
    names = [f"persistent://{NAMESPACE}/{local}" for local in LOCAL_NAMES]
    place_all_on(second.broker_id, second.web_url, names)
    for local in LOCAL_NAMES:
        status, _ = request("PUT", f"{second.web_url}/admin/v2/persistent/{NAMESPACE}/{quote(local, safe='')}")
        assert status in (204, 409)
    return {name: str(bundle_for_hash(NAMESPACE, boundaries, parse_topic(name).hash)) for name in names}


async def test_topics_and_claims_with_odd_names(real_world: RealWorld, topics: dict[str, str]) -> None:
    """Topics come back as they were named, and each of them can be looked up at another broker."""
    first, second, _ = sorted(real_world.endpoints, key=[b.broker_id for b in real_world.cluster.brokers].index)
    for bundle in set(topics.values()):
        topics_of_second = await real_world.admin.topics_of_bundle(bundle, second)
        assert {t for t in topics_of_second if not parse_topic(t).local.startswith("__")} == {
            t for t, b in topics.items() if b == bundle
        }
    for topic in topics:
        assert await real_world.admin.claim(topic, broker_id=first, permit=real_world.permit) == second


async def test_reads_assign_nothing(real_world: RealWorld) -> None:
    """Asking for the topics of an unowned bundle is refused, asks no permit and leaves it unowned."""
    broker = real_world.cluster.brokers[0]
    await asyncio.to_thread(ensure_namespace, broker.web_url, "public/admin-unowned", 4)
    bundle = "public/admin-unowned/0x00000000_0x40000000"
    for broker_id in real_world.endpoints:
        with pytest.raises(AdminRefused) as caught:
            await real_world.admin.topics_of_bundle(bundle, broker_id)
        assert (caught.value.status, caught.value.reason) == (412, f"Failed to find ownership for ServiceUnit:{bundle}")
    assert await real_world.ownership.owner(bundle) is None
    assert real_world.permit.asked == 0


async def test_refusals_of_an_unload(real_world: RealWorld, topics: dict[str, str]) -> None:
    """An inactive destination is a 409, a bundle that is none a 412, a namespace that is none a 404 or 412."""
    bundle = min(topics.values())
    at = real_world.cluster.brokers[0].broker_id
    for name, destination, statuses in (
        (bundle, "127.9.9.9:1", {409}),
        (f"{NAMESPACE}/0x00000000_0x10000000", None, {412}),
        ("public/no-such/0x00000000_0x10000000", None, {404, 412}),
    ):
        with pytest.raises(AdminRefused) as caught:
            await real_world.admin.unload(name, destination=destination, at=at, permit=real_world.permit)
        assert caught.value.status in statuses
        assert "\n" not in caught.value.reason
    owner = await real_world.ownership.owner(bundle)
    assert owner is not None
    assert owner.broker_id == real_world.cluster.brokers[1].broker_id
