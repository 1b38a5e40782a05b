"""Responses for users: where, why, tables."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.gate.gate import Obstacle
from bundlekeel.leader.state.documents import Desired, LastingRequest, OperatorRequest, Pause
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError, NotFound
from bundlekeel.model.load import AdvertisedListener
from bundlekeel.model.text_format import clock_text
from bundlekeel.planning.effects import EffectRecords, PairRecord
from bundlekeel.planning.guard.state import RecentMove
from bundlekeel.planning.ledger import timeout_ms
from bundlekeel.ports import Owner
from bundlekeel.requests.where import MOST_PARTITIONS, WholeBundle, where, whole_bundles
from bundlekeel.views import listings as tables
from bundlekeel.views.published import capture_cluster
from tests.support.memory_source import MemoryMetadata, MemoryOwnership
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params

QUARTERS = [0, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF]

SLOWLY = {"cycle.interval": 30.0}


def build_stores() -> tuple[MemoryMetadata, MemoryOwnership]:
    """A namespace of four bundles, the first of them owned, and a topic of three partitions."""
    metadata, ownership = MemoryMetadata(), MemoryOwnership()
    metadata.bundle_boundaries["t/ns"] = QUARTERS
    metadata.partition_counts["persistent://t/ns/parts"] = 3
    ownership.assign(BROKERS[0], "t/ns/0x00000000_0x40000000")
    return metadata, ownership


async def test_where_namespace_shows_every_bundle() -> None:
    metadata, ownership = build_stores()
    rows = await where("t/ns", metadata=metadata, ownership=ownership)
    assert [row.state for row in rows] == ["owned", "unowned", "unowned", "unowned"]
    assert rows[0].broker == BROKERS[0] and rows[1].broker is None


LISTENERS = (
    AdvertisedListener("external", "pulsar://example.com:31000"),
    AdvertisedListener("internal", "pulsar://b1:6650"),
)


async def test_where_gives_the_address_of_a_listener() -> None:
    """The owner's, as a lookup with `listenerName` would; the web address stays, and an unowned bundle has none."""
    metadata, ownership = build_stores()
    owner = Owner(broker_id=BROKERS[0], web_url="http://b1", service_url="pulsar://b1:6650", listeners=LISTENERS)
    ownership.owners["t/ns/0x00000000_0x40000000"] = owner
    for listener, address, output in (
        ("", "pulsar://b1:6650", None),
        ("external", "pulsar://example.com:31000", "external"),
    ):
        rows = await where("t/ns", metadata=metadata, ownership=ownership, listener=listener)
        assert [row.service_url for row in rows] == [address, "", "", ""]
        assert {row.listener for row in rows} == {output}
        assert rows[0].web_url == "http://b1"


@pytest.mark.parametrize(("listeners", "there"), [(LISTENERS, "external, internal"), ((), "none (advertisedListeners")])
async def test_an_unknown_listener_is_an_error_that_names_the_others(
    listeners: tuple[AdvertisedListener, ...], there: str
) -> None:
    metadata, ownership = build_stores()
    owner = Owner(broker_id=BROKERS[0], web_url="http://b1", listeners=listeners)
    ownership.owners["t/ns/0x00000000_0x40000000"] = owner
    with pytest.raises(ConfigError, match=f"{BROKERS[0]} has no advertised listener 'extern'; it has") as caught:
        await where("t/ns", metadata=metadata, ownership=ownership, listener="extern")
    assert (caught.value.field, caught.value.value) == ("listener", "extern")
    assert there in str(caught.value) and caught.value.allowed.startswith(there)
    ownership.owners["t/ns/0x00000000_0x40000000"] = Owner(broker_id="gone:8080")
    rows = await where("t/ns", metadata=metadata, ownership=ownership, listener="extern")
    assert (rows[0].broker, rows[0].service_url) == ("gone:8080", "")


async def test_where_partitioned_topic_is_a_row_a_partition() -> None:
    """Each partition has its own hash and bundle; hashes are those of the brokers (CRC32 of the full name)."""
    metadata, ownership = build_stores()
    rows = await where("persistent://t/ns/parts", metadata=metadata, ownership=ownership)
    assert [row.topic for row in rows] == [f"persistent://t/ns/parts-partition-{n}" for n in range(3)]
    for row in rows:
        low, high = (int(text, 16) for text in row.bundle.rpartition("/")[2].split("_"))
        assert low <= int(row.hash, 16) < high or high == 0xFFFFFFFF


async def test_where_says_unloading_and_unknown() -> None:
    """A bundle being unloaded is neither owned nor unowned; what does not exist is a clear error."""
    metadata, ownership = build_stores()
    ownership.assign(BROKERS[1], "t/ns/0x40000000_0x80000000", disabled=True)
    rows = await where("t/ns/0x40000000_0x80000000", metadata=metadata, ownership=ownership)
    assert rows[0].state == "unloading"
    for name in ("t/none", "persistent://t/none/x", "t/ns/0x00000000_0x10000000", "a/b/c/d://"):
        with pytest.raises(NotFound):
            await where(name, metadata=metadata, ownership=ownership)
    for name in ("persistent://t/ns/later", "persistent://t/ns/parts-partition-3"):
        assert await where(name, metadata=metadata, ownership=ownership), "clients make a topic by using it"
        with pytest.raises(NotFound, match="does not exist"):
            await whole_bundles(name, metadata=metadata)


@pytest.mark.parametrize(
    "name",
    ["../..", "./ns", "t/..", "t/n s", "t/ns\n", "t/ns\0", "../../0x00000000_0x40000000", "t/../0x00000000_0x40000000",
     "persistent://t/../x", "persistent://../ns/x", "persistent://t/ns/..", "persistent://t/ns/.", "persistent://t/ns/a\0",
     "persistent://t/ns/\ud800", "t/c/../0x00000000_0x40000000"],
)  # fmt: skip
async def test_names_that_cannot_be_are_refused(name: str) -> None:
    metadata, ownership = build_stores()
    with pytest.raises(ConfigError) as error:
        await where(name, metadata=metadata, ownership=ownership)
    assert error.value.field == "name" and str(error.value.value) in name
    if name.count("/") != 1:
        with pytest.raises(ConfigError):
            await whole_bundles(name, metadata=metadata)


async def test_not_more_partitions_are_looked_at_than_fit_an_answer() -> None:
    metadata, ownership = build_stores()
    metadata.partition_counts["persistent://t/ns/parts"] = 2**62
    for look in (where("persistent://t/ns/parts", metadata=metadata, ownership=ownership),
                 whole_bundles("persistent://t/ns/parts", metadata=metadata)):  # fmt: skip
        with pytest.raises(ConfigError, match="name one of them"):
            await look
    assert len(await where("persistent://t/ns/parts-partition-7", metadata=metadata, ownership=ownership)) == 1
    metadata.partition_counts["persistent://t/ns/parts"] = MOST_PARTITIONS
    requests: list[str] = []

    class Counting(MemoryOwnership):
        async def owner(self, bundle: str) -> Owner | None:
            requests.append(bundle)
            return await super().owner(bundle)

    rows = await where("persistent://t/ns/parts", metadata=metadata, ownership=Counting())
    assert len(rows) == MOST_PARTITIONS and sorted(requests) == sorted(set(requests)) and len(requests) == 4


async def test_asked_for_a_topic_its_bundle_is_named_first() -> None:
    """The whole bundle moves: the topics asked for, and how many others go with them."""
    metadata, _ = build_stores()
    metadata.add_topics([f"persistent://t/ns/x{number}" for number in range(40)])
    (row,) = await whole_bundles("persistent://t/ns/x1", metadata=metadata)
    together = await metadata.topics(row.bundle)
    assert row == WholeBundle(bundle=row.bundle, topics=("persistent://t/ns/x1",), others=len(together) - 1)
    assert "persistent://t/ns/x1" in together
    assert row.sentence.startswith(f"{row.bundle} holds persistent://t/ns/x1; it moves whole, with {row.others} other")
    whole = await whole_bundles(row.bundle, metadata=metadata)
    assert whole == [WholeBundle(bundle=row.bundle, others=len(together))]
    assert whole[0].sentence == f"{row.bundle} moves with its {len(together)} known topics"
    assert replace(whole[0], others=1).sentence == f"{row.bundle} moves with its 1 known topic"


async def test_the_partitions_of_a_topic_may_be_several_bundles() -> None:
    metadata, _ = build_stores()
    rows = await whole_bundles("persistent://t/ns/parts", metadata=metadata)
    assert sorted(topic for row in rows for topic in row.topics) == [
        f"persistent://t/ns/parts-partition-{number}" for number in range(3)
    ]
    assert [row.bundle for row in rows] == sorted({row.bundle for row in rows})
    for name in ("t/ns/0x00000000_0x80000000", "t/none/0x00000000_0xffffffff", "persistent://t/none/x", "a/b/c/d://"):
        with pytest.raises(NotFound):
            await whole_bundles(name, metadata=metadata)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("t/ns/0x0_0x1", "t/ns/0x00000000_0x40000000"),
        ("t/ns/0x40000000-0x80000000", "t/ns/0x40000000_0x80000000"),
        ("t/ns/0X80000000_0XC0000000", "t/ns/0x80000000_0xc0000000"),
        ("t/ns/0x00000000_0x80000000", "t/ns/0x00000000_0x40000000"),
        ("t/ns/orders0x", ""),
        ("0x0_0x1", ""),
    ],
)
async def test_a_name_with_0x_is_a_bundle_of_the_cluster_or_an_error(name: str, nearest: str) -> None:
    """It is never taken for a topic, whose bundle is another one. With `persistent://` it is a topic."""
    metadata, ownership = build_stores()
    for call in (
        lambda: where(name, metadata=metadata, ownership=ownership),
        lambda: whole_bundles(name, metadata=metadata),
    ):
        with pytest.raises(NotFound) as caught:
            await call()
        assert (f"nearest: {nearest};" in str(caught.value)) == bool(nearest)
        assert "persistent://" in str(caught.value)
    topic = f"persistent://t/ns/{name.rpartition('/')[2]}"
    metadata.add_topics([topic])
    assert (await whole_bundles(topic, metadata=metadata))[0].topics == (topic,)


@pytest.mark.parametrize(
    ("name", "taken_for"),
    [
        ("127.0.1.1", "a broker"),
        ("127.0.1.1:9999", "a broker"),
        ("broker-99", "the topic persistent://public/default/"),
    ],
)
async def test_one_word_is_no_topic_unless_it_is_there(name: str, taken_for: str) -> None:
    """A mistyped broker is not answered about public/default; a topic of that namespace may be named by one word."""
    metadata, ownership = build_stores()
    cluster = FakeCluster()  # without public/default, which no request named
    cluster.metadata = metadata
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    for call in (
        lambda: where(name, metadata=metadata, ownership=ownership),
        lambda: whole_bundles(name, metadata=metadata),
        lambda: sidecar.service.why(name),
    ):
        with pytest.raises(NotFound, match=f"'{name}' is taken for {taken_for}.*persistent://tenant/namespace/topic"):
            await call()
    metadata.bundle_boundaries["public/default"] = [0, 0x80000000, 0xFFFFFFFF]
    metadata.partition_counts["persistent://public/default/parts"] = 2
    metadata.add_topics(["persistent://public/default/orders"])
    for topic, rows in (("orders", 1), ("parts", 2)):
        places = await where(topic, metadata=metadata, ownership=ownership)
        assert [row.topic_exists for row in places] == [True] * rows
    (unmade,) = await where("persistent://public/default/mistyped", metadata=metadata, ownership=ownership)
    assert unmade.topic_exists is False
    (bundle,) = await where(unmade.bundle, metadata=metadata, ownership=ownership)
    assert bundle.topic_exists is None
    typed = BROKERS[0].replace("8080", "8008")
    with pytest.raises(NotFound, match=f"^no broker '{typed}'; nearest: {BROKERS[0]}") as caught:
        await sidecar.service.why(typed)
    assert len(re.findall("no (such )?broker", str(caught.value))) == 1


async def test_why_takes_no_misspelt_bundle_for_a_topic() -> None:
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    for name, message in (
        ("t/ns/0x0_0x1", "not a bundle of the"),
        ("t/ns", "is a namespace; .*bundlekeel bundles -n t/ns"),
    ):
        with pytest.raises(NotFound, match=message):
            await sidecar.service.why(name)


async def test_why_names_the_obstacle_and_what_would_change_it() -> None:
    """A bundle that rests says so, with its history; an unknown name is NotFound."""
    sidecar = await FakeSidecar(FakeCluster(), params=with_params(max_moves_per_cycle=1)).lead()
    moved = (await sidecar.cycle.turn()).outcomes[0].bundle
    sidecar.cluster.publish()
    await sidecar.cycle.turn()
    answer = await sidecar.service.why(moved)
    assert answer.codes[0].code in ("CoolDown", "Unsettled")
    assert answer.what_would_change_it and len(answer.history) == 1
    hot = await sidecar.service.why(BROKERS[0])
    assert hot.kind == "broker" and len(hot.history) == 2
    with pytest.raises(NotFound):
        await sidecar.service.why("nonsense//")


async def test_why_of_a_broker_tells_each_reason_once() -> None:
    """Twenty bundles that stay for one reason are one line with their number."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    plan = sidecar.cycle.report.plan if sidecar.cycle.report else None
    assert plan is not None
    for broker in BROKERS:
        refused = Counter(item.code.value for item in plan.refusals if item.broker == broker)
        answer = await sidecar.service.why(broker)
        output = {code.code: code.detail for code in answer.codes[1:]}
        assert len(answer.codes) == 1 + len(refused) and output.keys() == refused.keys()
        assert all(f"{count} bundles" in output[code] for code, count in refused.items() if count > 1)
    assert max(Counter(item.broker for item in plan.refusals).values()) > 1


async def test_tables_show_latest_short_long_and_preallocated() -> None:
    """Brokers and bundles carry their averages with sample counts, and bundles on the way with their age."""
    sidecar = await FakeSidecar(FakeCluster(), params=with_params(max_moves_per_cycle=2)).lead()
    await sidecar.cycle.turn()
    now = sidecar.clock.wall_ms() + 2_000
    brokers = {row.broker: row for row in tables.brokers(capture_cluster(sidecar.cycle, sidecar.config), now)}
    coming = [item for row in brokers.values() for item in row.preallocated]
    assert len(coming) == 2 and all(item.age_seconds >= 1.9 for item in coming)
    assert all(row.sheds_itself is False and row.splits_itself is True for row in brokers.values())
    bundles = tables.bundles(capture_cluster(sidecar.cycle, sidecar.config), now, broker=BROKERS[0])
    sizes = [row.short.throughput_in for row in bundles]
    assert sizes == sorted(sizes, reverse=True) and bundles[0].short_samples == 1
    assert {row.code for row in bundles} >= {"Unsettled"} or any(row["preallocated_to"] for row in bundles)
    page = tables.bundles(
        capture_cluster(sidecar.cycle, sidecar.config), now, broker=BROKERS[0], after=bundles[1].bundle, limit=3
    )
    assert page == bundles[2:5] and len(page) > 1
    with pytest.raises(NotFound, match="begin again without `after`"):
        tables.bundles(capture_cluster(sidecar.cycle, sidecar.config), now, after="t/gone/0x00000000_0x80000000")


async def test_an_unknown_broker_is_not_found() -> None:
    """With the nearest that there is, wherever it is asked for."""
    sidecar = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    await sidecar.cycle.turn()
    with pytest.raises(NotFound, match="no broker 'b9:8080'; nearest: b3:8080"):
        await sidecar.planner.make(PlanRequest(remove_brokers=("b9:8080",)))
    with pytest.raises(NotFound, match="no broker 'b9:8080'; nearest: b3:8080"):
        sidecar.service.bundles(broker="b9:8080")
    assert sidecar.service.bundles(namespace="t/idle") == []


async def test_a_bundle_that_nothing_holds_hears_where_its_broker_stands() -> None:
    cluster = FakeCluster({BROKERS[0]: [0.1, 0.1, 0.1, 0.1], BROKERS[1]: [0.02], BROKERS[2]: [0.02]})
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    await sidecar.cycle.turn()
    assert sidecar.cycle.report is not None and sidecar.cycle.report.plan is not None
    plan = sidecar.cycle.report.plan
    moved = {move.bundle for move in plan.moves}
    sidecar.cycle.report.plan = replace(plan, refusals=())
    assert sidecar.cycle.snapshot is not None
    names = sidecar.cycle.snapshot.bundles.names
    answers = {name: await sidecar.service.why(name) for name in names if name not in moved}
    hot = [item for item in answers.values() if item.broker == BROKERS[0] and not item.codes]
    cold = [item for item in answers.values() if item.broker != BROKERS[0]]
    assert moved and hot and cold
    assert all(re.search(r"planned moves? takes? \S+ from [\d.]+% to [\d.]+% already", item.sentence) for item in hot)
    assert all("that broker is at" in item.sentence and "the mean at" in item.sentence for item in cold)
    assert all("below the mean are not relieved" in item.what_would_change_it for item in cold)


async def test_every_pause_of_a_bundle_is_told_with_its_end() -> None:
    sidecar = await FakeSidecar(FakeCluster({BROKERS[0]: [0.1], BROKERS[1]: [0.1], BROKERS[2]: [0.1]})).lead()
    await sidecar.cycle.turn()
    assert sidecar.cycle.snapshot is not None
    bundle = sidecar.cycle.snapshot.bundles.names[0]
    space = bundle.rpartition("/")[0]
    end = sidecar.clock.wall_ms() + 3_600_000
    pauses = {
        f"namespace:{space}": Pause(reason="disks", by="ann", since_ms=1, until_ms=end),
        "namespace:other/one": Pause(reason="x", by="ann", since_ms=1),
        "holiday:all": Pause(reason="unknown scope", by="ann", since_ms=1),
        "tenant:*": Pause(reason="over", by="ann", since_ms=1, until_ms=2),
    }
    sidecar.shared_state.desired = Desired(pause=Pause(reason="release", by="bo", since_ms=1), pauses=pauses)
    answer = await sidecar.service.why(bundle)
    assert [item.detail for item in answer.codes if item.code == "Paused"] == [
        "everything, until resumed, by bo: release",
        f"namespace:{space}, until {clock_text(end)}, by ann: disks",
    ]
    assert answer.what_would_change_it == "end the pause: `bundlekeel resume`"
    sidecar.shared_state.desired = Desired(pauses=pauses)
    scoped = await sidecar.service.why(bundle)
    assert scoped.what_would_change_it == f"end the pause: `bundlekeel resume` --scope namespace:{space}"


async def test_every_block_of_a_bundle_tells_its_end() -> None:
    cluster = FakeCluster({BROKERS[0]: [0.1] * 6, BROKERS[1]: [0.02], BROKERS[2]: [0.02, 0.0]})
    sidecar = await FakeSidecar(cluster, params=with_params(max_moves_per_cycle=1), settings=SLOWLY).lead()
    names = list(cluster.shares)
    later = sidecar.clock.wall_ms() + 3_600_000
    pinned, ever, left_alone, *_ = names
    request = OperatorRequest(by="ann", reason="disks", since_ms=1)
    lasting = LastingRequest(by="ann", reason="disks", since_ms=1, until_ms=later)
    sidecar.shared_state.desired = Desired(
        pinned={pinned: lasting, ever: LastingRequest(by="ann", reason="disks", since_ms=1)},
        excluded={f"b:{left_alone}": lasting},
        cordons={BROKERS[2]: request},
    )
    await sidecar.cycle.turn()
    sidecar.clock.offset += 10
    answers = {name: await sidecar.service.why(name) for name in names}
    ends = {name: {code.code: code.detail for code in answer.codes} for name, answer in answers.items()}
    until = f"until {clock_text(later)}, by ann: disks"
    assert ends[pinned] == {"Pinned": until} and ends[ever] == {"Pinned": "until an operator ends it, by ann: disks"}
    assert ends[left_alone] == {"Excluded": f"b:{left_alone}, {until}"}
    assert ends[names[-1]] == {"Idle": "until it carries traffic"}
    waiting = [
        values_by_labels["BudgetPerCycle"] for values_by_labels in ends.values() if "BudgetPerCycle" in values_by_labels
    ]
    assert waiting and all(text.endswith("next turn in 20 s") for text in waiting)
    (entry,) = sidecar.cycle.cycle_state.ledger.entries
    settled = clock_text(entry.landed_ms + timeout_ms(sidecar.cycle.params))
    assert answers[entry.bundle].broker == entry.target
    assert ends[entry.bundle] == {
        "Unsettled": f"until both brokers' reports show its last move, at the latest {settled}"
    }
    closed = await sidecar.service.why(BROKERS[2])
    assert closed.codes[0].detail == "cordoned until an operator ends it, by ann: disks"
    assert closed.what_would_change_it == "end the cordon or drain: `bundlekeel uncordon`"


async def test_what_holds_the_whole_cluster_is_told_with_its_action() -> None:
    sidecar = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    plan = (await sidecar.cycle.turn()).plan
    assert plan is not None and plan.moves and sidecar.cycle.report is not None
    move, names = plan.moves[0], {item.bundle for item in plan.moves}
    stays = next(name for name in sidecar.cluster.shares if name not in names)
    for request in (move.bundle, move.source):
        answer = await sidecar.service.why(request)
        assert "RecommendOnly" in {item.code for item in answer.codes}
        assert answer.what_would_change_it == "set mode `act`; first `bundlekeel doctor --for act`"
    assert "RecommendOnly" not in {item.code for item in (await sidecar.service.why(stays)).codes}
    closed = Obstacle(code=Code.OUTSIDE_WINDOW, detail="the next one opens at 2026-11-25 22:00 UTC")
    sidecar.cycle.report.obstacle = closed
    for request in (move.bundle, stays, move.source):
        answer = await sidecar.service.why(request)
        assert {item.code: item.detail for item in answer.codes}["OutsideWindow"] == closed.detail
        assert answer.what_would_change_it.startswith("wait for the window")


async def test_a_drain_waits_for_no_window() -> None:
    sidecar = await FakeSidecar(FakeCluster()).lead()
    request = OperatorRequest(by="ann", reason="disks", since_ms=1)
    sidecar.shared_state.desired = Desired(drains={BROKERS[0]: request})
    plan = (await sidecar.cycle.turn()).plan
    assert plan is not None and plan.moves and sidecar.cycle.report is not None
    sidecar.cycle.report.obstacle = Obstacle(code=Code.OUTSIDE_WINDOW, detail="the next one opens tomorrow")
    for name in (BROKERS[0], plan.moves[0].bundle):
        assert "OutsideWindow" not in {item.code for item in (await sidecar.service.why(name)).codes}


@pytest.mark.parametrize("code", [Code.OUTSIDE_WINDOW, Code.SETTLING_AFTER_OUTAGE])
async def test_a_drain_is_told_before_what_holds_the_whole_cluster(code: Code) -> None:
    """It is the broker's own: without it the broker would still wait, but with it nothing comes at all."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    request = OperatorRequest(by="ann", reason="disks", since_ms=1)
    sidecar.shared_state.desired = Desired(
        drains={BROKERS[2]: request}, pauses={"broker:" + BROKERS[2]: Pause(reason="release", by="bo", since_ms=1)}
    )
    await sidecar.cycle.turn()
    assert sidecar.cycle.report is not None
    sidecar.cycle.report.obstacle = Obstacle(code=code, detail="wait")
    answer = await sidecar.service.why(BROKERS[2])
    assert [item.code for item in answer.codes[:3]] == [Code.CORDONED, Code.PAUSED, code]
    assert answer.what_would_change_it == "end the cordon or drain: `bundlekeel uncordon`"


@pytest.mark.parametrize(("code", "most"), [("BudgetPerHour", 1), ("Quarantined", 60)])
async def test_a_full_hour_and_rested_pairs_tell_their_end(code: str, most: int) -> None:
    """With the moment that the guard knows, in the answers of a bundle and of its broker."""
    params = with_params(max_moves_per_hour=most, max_moves_per_cycle=1)
    sidecar = await FakeSidecar(
        FakeCluster({broker: [0.01] for broker in BROKERS[1:]} | {BROKERS[0]: [0.1] * 6}), params=params
    ).lead()
    await sidecar.cycle.turn()
    state = sidecar.cycle.cycle_state
    end = state.ledger.entries[0].opened_ms + 3_600_000
    if code == "Quarantined":
        now = sidecar.clock.wall_ms()
        end = now + 1_800_000
        pairs = tuple(
            PairRecord(source=BROKERS[0], target=to, useless=3, at_ms=now, until_ms=end) for to in BROKERS[1:]
        )
        sidecar.cycle.adopt(replace(state, effects=EffectRecords(pairs=pairs)), sidecar.cycle.epoch)
    report = await sidecar.cycle.turn()
    assert report.plan is not None
    name = next(item.bundle for item in report.plan.refusals if item.code.value == code)
    for request in (name, BROKERS[0]):
        output = {item.code: item.detail for item in (await sidecar.service.why(request)).codes}
        assert output[code].endswith(f"until {clock_text(end)}")


async def test_a_bundle_that_stayed_has_no_last_move() -> None:
    sidecar = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    await sidecar.cycle.turn()
    snapshot, state, now = sidecar.cycle.snapshot, sidecar.cycle.cycle_state, sidecar.cycle.clock.wall_ms()
    assert snapshot is not None
    stayed, came = tables.bundles(capture_cluster(sidecar.cycle, sidecar.config), now, broker=BROKERS[0])[:2]
    recent = {stayed.bundle: RecentMove(at_ms=now, source=BROKERS[0]), came.bundle: RecentMove(at_ms=now, source="b9")}
    sidecar.cycle.adopt(replace(state, recent=recent), sidecar.cycle.epoch)
    rows = {
        row.bundle: row.last_move_ms
        for row in tables.bundles(capture_cluster(sidecar.cycle, sidecar.config), now, broker=BROKERS[0])
    }
    assert (rows[stayed.bundle], rows[came.bundle]) == (None, now)
