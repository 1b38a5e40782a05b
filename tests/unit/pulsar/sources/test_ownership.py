"""Owners of a bundle in either load manager, and the variant of the channel in use."""

from __future__ import annotations

import asyncio

import pytest

from bundlekeel.model.channel_states import ServiceUnit, UnitState
from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.model.load import AdvertisedListener, Owner
from bundlekeel.ports import ChannelVariant
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.pulsar.sources.ownership import ChannelByVariant, read_variant, serving
from bundlekeel.requests.where import where
from bundlekeel.views.channel_rows import row_of
from tests.support.builders import report
from tests.support.channel_stage import BROKERS, BUNDLE, OTHER, STORE_CLASS, TOPIC_CLASS, ChannelStage
from tests.support.memory_admin import BrokerModel, MemoryAdmin

A, B, C = BROKERS
MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"


async def follow(stage: ChannelStage) -> None:
    """Follow the newest picture."""
    await stage.channel.follow(await stage.source.picture())


@pytest.mark.parametrize(
    ("state", "destination", "source", "expected"),
    [
        (UnitState.OWNED, A, "", (A, False)),
        (UnitState.OWNED, A, B, (A, False)),
        (UnitState.ASSIGNING, A, "", (A, True)),
        (UnitState.ASSIGNING, A, B, (A, True)),
        (UnitState.RELEASING, A, B, (B, True)),
        (UnitState.RELEASING, "", B, (B, True)),
        (UnitState.SPLITTING, "", B, (B, True)),
        (UnitState.FREE, "", B, None),
        (UnitState.DELETED, "", B, None),
    ],
)
def test_who_serves_a_bundle(
    state: UnitState, destination: str, source: str, expected: tuple[str, bool] | None
) -> None:
    owner = serving(ServiceUnit(state=state, destination=destination, source=source))
    assert owner == (None if expected is None else Owner(broker_id=expected[0], disabled=expected[1]))
    assert serving(None) is None


async def test_the_owner_right_after_each_step() -> None:
    """Every step of a transfer and an unload is seen at once, with the addresses of the registry."""
    stage = ChannelStage()
    await follow(stage)
    assert await stage.ownership.owner(BUNDLE) is None
    stage.topic.own(BUNDLE, A)
    assert await stage.ownership.owner(BUNDLE) == Owner(
        broker_id=A, web_url=f"http://{A}", service_url="pulsar://b1:6650"
    )
    entries = []
    for state in (UnitState.RELEASING, UnitState.ASSIGNING, UnitState.OWNED):
        stage.topic.publish(BUNDLE, state, B, A)
        owner = await stage.ownership.owner(BUNDLE)
        assert owner is not None
        entries.append((owner.broker_id, owner.disabled))
    assert entries == [(A, True), (B, True), (B, False)]
    stage.topic.unload(BUNDLE)
    assert await stage.ownership.owner(BUNDLE) is None


async def test_the_listeners_of_an_extensible_owner_are_those_it_registered() -> None:
    """The channel names the broker only."""
    stage = ChannelStage()
    listeners = (AdvertisedListener("external", "pulsar://example.com:31000"),)
    stage.source.advertise(A, *listeners)
    await follow(stage)
    for bundle, broker, expected in ((BUNDLE, A, listeners), (OTHER, B, ())):
        stage.topic.own(bundle, broker)
        owner = await stage.ownership.owner(bundle)
        assert owner is not None and owner.listeners == expected


async def test_an_owner_that_is_gone_is_still_named() -> None:
    stage = ChannelStage()
    await follow(stage)
    stage.topic.own(BUNDLE, "gone:8080")
    assert await stage.ownership.owner(BUNDLE) == Owner(broker_id="gone:8080")


async def test_modular_brokers_are_asked_by_znode() -> None:
    """No channel is made, and none is started."""
    stage = ChannelStage(mode="modular")
    stage.modular.assign(A, BUNDLE)
    await follow(stage)
    owner = await stage.ownership.owner(BUNDLE)
    assert owner is not None and owner.broker_id == A
    assert (stage.made, stage.channel.on) == ([], False)
    with pytest.raises(StoreError):
        await stage.channel.unit(BUNDLE)
    with pytest.raises(SnapshotError):
        await stage.channel.view()


async def test_a_mixed_cluster_has_both() -> None:
    """A znode, which a living session holds, goes before the channel; only extensible brokers take part in that."""
    stage = ChannelStage(mode="mixed")
    stage.set_variant(STORE_CLASS, B)
    stage.source.put(*(report(broker, {}, load_manager=MODULAR) for broker in (A, C)))
    await follow(stage)
    assert stage.channel.reading.variant == "metadata_store"
    assert stage.channel.reading.obstacle == ""
    stage.store.own(BUNDLE, B)
    owner = await stage.ownership.owner(BUNDLE)
    assert owner is not None and owner.broker_id == B
    stage.modular.assign(A, BUNDLE)
    owner = await stage.ownership.owner(BUNDLE)
    assert owner is not None and owner.broker_id == A


async def test_before_the_first_picture_nothing_is_guessed() -> None:
    stage = ChannelStage()
    stage.source.suspended = True
    with pytest.raises(StoreError):
        await stage.ownership.owner(BUNDLE)


@pytest.mark.parametrize(("name", "variant"), [(TOPIC_CLASS, "system_topic"), (STORE_CLASS, "metadata_store")])
async def test_the_variant_is_what_brokers_run_with(name: str, variant: ChannelVariant) -> None:
    """The one that holds is started, with the brokers' addresses; the other one is not made."""
    stage = ChannelStage()
    stage.set_variant(name)
    await follow(stage)
    (channel,) = stage.made
    assert (channel.variant, channel.started) == (variant, True)
    assert list(channel.service_urls) == ["pulsar://b1:6650", "pulsar://b2:6650", "pulsar://b3:6650"]
    assert (await stage.channel.view()).variant == variant
    stage.source.remove(C)
    await follow(stage)
    assert list(channel.service_urls) == ["pulsar://b1:6650", "pulsar://b2:6650"]
    assert stage.made == [channel]


async def test_a_service_url_of_the_settings_wins() -> None:
    stage = ChannelStage()
    result = stage.topic
    channel = ChannelByVariant({"system_topic": lambda: result}, stage.config, service_url="pulsar://proxy:6650")
    await channel.follow(await stage.source.picture())
    assert result.service_urls == ("pulsar://proxy:6650",)


async def test_brokers_without_the_key_use_the_topic() -> None:
    """Releases before 4.0 know nothing else."""
    stage = ChannelStage()
    for broker in BROKERS:
        stage.model.static[broker].pop("loadManagerServiceUnitStateTableViewClassName")
    await follow(stage)
    assert stage.channel.reading.variant == "system_topic"


async def test_a_switch_of_the_variant_is_followed() -> None:
    stage = ChannelStage()
    await follow(stage)
    for _ in range(20):
        stage.topic.own(BUNDLE, A)
        stage.topic.unload(BUNDLE)
    before = (await stage.channel.view()).generation
    stage.set_variant(STORE_CLASS)
    await follow(stage)
    assert (stage.topic.closed, stage.store.started) == (True, True)
    after = await stage.channel.view()
    assert (after.variant, after.generation > before) == ("metadata_store", True)
    assert await stage.channel.wait_changed(before, 5.0)
    stage.source.mode = "modular"
    stage.register(A)
    await follow(stage)
    assert (stage.store.closed, stage.channel.on) == (True, False)
    waiting = asyncio.create_task(stage.channel.wait_changed(after.generation, 20.0))
    await asyncio.sleep(0)
    stage.source.mode = "extensible"
    stage.register(A)
    await follow(stage)
    assert await waiting
    assert (await stage.channel.view()).generation > after.generation


async def test_brokers_that_disagree_are_an_obstacle() -> None:
    """The metadata store is shown, and nothing may be acted on until they agree."""
    stage = ChannelStage()
    stage.set_variant(STORE_CLASS, B)
    await follow(stage)
    assert stage.channel.reading.variant == "metadata_store"
    assert f"{A}: system topic, {B}: metadata store" in stage.channel.reading.obstacle
    stage.set_variant(STORE_CLASS)
    await follow(stage)
    assert stage.channel.reading.obstacle == ""


async def test_a_migration_is_an_obstacle() -> None:
    """While the leader broker copies from one to the other, where brokers agree on one of them."""
    stage = ChannelStage()
    stage.set_variant(TOPIC_CLASS, C, syncer="SystemTopicToMetadataStoreSyncer")
    await follow(stage)
    assert stage.channel.reading.variant == "system_topic"
    assert "SystemTopicToMetadataStoreSyncer" in stage.channel.reading.obstacle


async def test_brokers_that_do_not_answer_change_nothing() -> None:
    stage = ChannelStage()
    stage.admin.set_endpoints({})
    await follow(stage)
    with pytest.raises(SnapshotError, match="no ownership channel is followed"):
        await stage.channel.view()
    assert read_variant(stage.config, BROKERS).variant is None
    stage.admin.set_endpoints(stage.model.endpoints())
    await follow(stage)
    stage.admin.set_endpoints({})
    stage.clock.offset += 3600
    await follow(stage)
    assert stage.channel.reading.variant == "system_topic"
    assert (await stage.channel.view()).units == {}


async def test_a_broker_that_hangs_holds_nobody_up() -> None:
    stage = ChannelStage()
    hanging = HangingAdmin(stage.model)
    hanging.set_endpoints(stage.model.endpoints())
    channel = ChannelByVariant({"system_topic": lambda: stage.topic}, BrokerConfig(hanging, stage.clock))
    async with asyncio.timeout(30):
        await channel.follow(await stage.source.picture())
        with pytest.raises(SnapshotError):
            await channel.view()
        hanging.hangs.set()
        await channel.follow(await stage.source.picture())
    assert channel.on
    await channel.close()


class HangingAdmin(MemoryAdmin):
    """Brokers that answer only once they are let."""

    def __init__(self, model: BrokerModel) -> None:
        super().__init__(model)
        self.hangs = asyncio.Event()

    async def runtime_configuration(self, broker_id: str) -> dict[str, str]:
        await self.hangs.wait()
        return await super().runtime_configuration(broker_id)


async def test_closing_stops_the_channel() -> None:
    """And twice is once."""
    stage = ChannelStage()
    await follow(stage)
    await stage.channel.close()
    await stage.channel.close()
    assert stage.topic.closed
    assert not stage.channel.on


async def test_where_names_the_entry_of_each_bundle() -> None:
    """A topic's bundle with its entry in the channel; a bundle without one has none."""
    stage = ChannelStage()
    await follow(stage)
    stage.metadata.bundle_boundaries["t/ns"] = [0, 0x40000000, 0xFFFFFFFF]
    stage.topic.own(BUNDLE, A)
    stage.topic.publish(BUNDLE, UnitState.RELEASING, B, A)
    view, now = await stage.channel.view(), stage.clock.wall_ms()
    rows = await where(
        "t/ns", metadata=stage.metadata, ownership=stage.ownership, entry=lambda bundle: row_of(view, bundle, now)
    )
    assert [(row.bundle, row.broker, row.state) for row in rows] == [
        (BUNDLE, A, "unloading"),
        ("t/ns/0x40000000_0xffffffff", None, "unowned"),
    ]
    entry = rows[0].channel
    assert (entry.state, entry.source, entry.destination, entry.version) == ("Releasing", A, B, 3)
    assert rows[1].channel is None
    plain = await where("t/ns", metadata=stage.metadata, ownership=stage.ownership)
    assert [row.channel for row in plain] == [None, None]
