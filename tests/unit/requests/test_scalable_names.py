"""Scalable topics and their segments (Pulsar 5.0), as operators name them."""

from __future__ import annotations

import pytest

from bundlekeel.model.errors import NotFound
from bundlekeel.model.names import bundle_for_hash, parse_topic
from bundlekeel.requests.where import where, whole_bundles
from tests.support.world import FakeCluster, FakeSidecar

TOPIC = "topic://t/ns/hot"
SEGMENTS = ("segment://t/ns/hot/0000-7fff-0", "segment://t/ns/hot/8000-ffff-1")
BOUNDS = [0, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF]
BUNDLES = {name: str(bundle_for_hash("t/ns", BOUNDS, parse_topic(name).hash)) for name in (TOPIC, *SEGMENTS)}


async def sidecar_of() -> FakeSidecar:
    """A leader of a namespace with one scalable topic of two segments."""
    cluster = FakeCluster()
    cluster.metadata.bundle_boundaries["t/ns"] = BOUNDS
    cluster.metadata.add_topics((TOPIC, *SEGMENTS, "segment://t/ns/hotter/0000-ffff-0"))
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    return sidecar


async def test_where_lists_the_segments_of_a_scalable_topic() -> None:
    sidecar = await sidecar_of()
    rows = await where(TOPIC, metadata=sidecar.cluster.metadata, ownership=sidecar.cluster.model)
    assert {row.topic: row.bundle for row in rows} == BUNDLES
    assert all(row.topic_exists for row in rows)
    (row,) = await where(SEGMENTS[0], metadata=sidecar.cluster.metadata, ownership=sidecar.cluster.model)
    assert (row.topic, row.bundle, row.topic_exists) == (SEGMENTS[0], BUNDLES[SEGMENTS[0]], True)
    (row,) = await where(
        "segment://t/ns/hot/0000-3fff-7", metadata=sidecar.cluster.metadata, ownership=sidecar.cluster.model
    )
    assert row.topic_exists is False


async def test_a_transfer_of_a_segment_moves_its_bundle() -> None:
    sidecar = await sidecar_of()
    (whole,) = await whole_bundles(SEGMENTS[1], metadata=sidecar.cluster.metadata)
    assert (whole.bundle, whole.topics) == (BUNDLES[SEGMENTS[1]], (SEGMENTS[1],))
    moves = await whole_bundles(TOPIC, metadata=sidecar.cluster.metadata)
    assert [item.bundle for item in moves] == sorted(set(BUNDLES.values()))
    with pytest.raises(NotFound, match="topic segment://t/ns/hot/0000-3fff-7 does not exist"):
        await whole_bundles("segment://t/ns/hot/0000-3fff-7", metadata=sidecar.cluster.metadata)


async def test_why_explains_the_bundle_of_a_segment() -> None:
    """The bundle of a scalable topic is that of its controller, so its segments are named."""
    sidecar = await sidecar_of()
    answer = await sidecar.service.why(SEGMENTS[0])
    assert (answer.kind, answer.name, "each segment" in answer.sentence) == ("topic", SEGMENTS[0], False)
    answer = await sidecar.service.why(TOPIC)
    assert answer.sentence.startswith(f"each segment of {TOPIC} has its own bundle (`bundlekeel where {TOPIC}`)")
    answer = await sidecar.service.why("topic://t/ns/later")
    assert answer.sentence.startswith("there is no topic topic://t/ns/later yet; of its bundle: ")


@pytest.mark.parametrize(
    "name", ["segment://t/ns/hot", "segment://t/ns/hot/7fff-0000-0", "topic://t/ns", "topics://t/n/x"]
)
async def test_invalid_names_are_refused_with_a_valid_one(name: str) -> None:
    sidecar = await sidecar_of()
    for read in (
        sidecar.service.why,
        lambda text: where(text, metadata=sidecar.cluster.metadata, ownership=sidecar.cluster.model),
    ):
        with pytest.raises(NotFound, match=r"expected (persistent|segment)://tenant/namespace/topic"):
            await read(name)


@pytest.mark.parametrize("name", [TOPIC, SEGMENTS[0]])
async def test_quotas_do_not_limit_scalable_topics(name: str) -> None:
    sidecar = await sidecar_of()
    with pytest.raises(NotFound, match=f"quota groups do not limit scalable topics such as {name}"):
        await sidecar.quotas.why(name)
