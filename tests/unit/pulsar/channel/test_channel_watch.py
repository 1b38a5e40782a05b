"""The channel watch over fakes: findings appear and end with their journal lines and metrics; health is reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bundlekeel.model.channel_states import ServiceUnit, UnitState
from bundlekeel.model.errors import Conflict, StoreError
from bundlekeel.pulsar.channel.channel_watch import REGISTRY_LAG_MS, VARIANT_DISAGREES
from bundlekeel.requests.doctor_channel import channel_checks
from bundlekeel.views.channel_rows import row_of, unit_rows
from tests.support.channel_stage import BROKERS, BUNDLE, OTHER, STORE_CLASS, TOPIC_CLASS, ChannelStage
from tests.support.contracts.coordination import eventually

A, B, C = BROKERS
LAG = REGISTRY_LAG_MS / 1000 + 0.1
IN_FLIGHT_KEY = "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis"


def codes(rows: list[Any]) -> list[tuple[str, str]]:
    return [(row.code, row.bundle) for row in rows]


async def test_a_dead_owner_is_found_and_gone() -> None:
    """A finding with since-when, deadline and remedy while it lasts; one journal line at each end."""
    stage = ChannelStage()
    assert await stage.look() == []
    stage.topic.own(BUNDLE, A)
    stage.topic.own(OTHER, B)
    assert await stage.look(after=60) == []
    stage.source.remove(A)
    (findings,) = await stage.look()
    now = stage.clock.wall_ms()
    assert (findings.code, findings.bundle, findings.brokers, findings.state) == (
        "OwnerNotAlive",
        BUNDLE,
        (A,),
        "Owned",
    )
    assert 0 < findings.since_ms <= now
    assert findings.deadline_ms == findings.since_ms + 90_000
    assert findings.remedy
    assert codes(await stage.look(after=5)) == [("OwnerNotAlive", BUNDLE)]
    stage.topic.publish(BUNDLE, UnitState.OWNED, C, force=True)
    assert await stage.look(after=5) == []
    assert [(line["event"], line["code"], line["bundles"]) for line in stage.lines] == [
        ("appeared", "OwnerNotAlive", [BUNDLE]),
        ("gone", "OwnerNotAlive", [BUNDLE]),
    ]
    assert stage.lines[0]["since_ms"] == findings.since_ms
    assert stage.lines[0]["remedy"] == findings.remedy
    assert "is gone after" in stage.lines[1]["sentence"]


async def test_a_broker_that_came_just_now_is_not_dead() -> None:
    stage = ChannelStage()
    await stage.look()
    stage.topic.own(BUNDLE, "b4:8080")
    assert await stage.look() == []
    assert codes(await stage.look(after=LAG)) == [("OwnerNotAlive", BUNDLE)]


async def test_what_brokers_mend_at_once_is_found_all_the_same() -> None:
    """The leader broker gave the dead one's bundles away before its absence was seen here; in whatever order."""
    stage = ChannelStage()
    stage.topic.own(BUNDLE, A)
    stage.topic.own(OTHER, B)
    stage.topic.publish(OTHER, UnitState.RELEASING, A, B)
    await stage.look()
    stage.topic.publish(BUNDLE, UnitState.OWNED, C, A, force=True)
    stage.topic.publish(OTHER, UnitState.OWNED, C, B, force=True)
    assert await stage.look(after=1) == [], "taken by force, but from a broker that lives"
    stage.source.remove(A)
    assert codes(await stage.look(after=1)) == [("OwnerNotAlive", BUNDLE), ("TargetNotAlive", OTHER)]
    assert await stage.look(after=1) == []
    assert [(line["event"], line["code"]) for line in stage.lines] == [
        ("appeared", "OwnerNotAlive"),
        ("appeared", "TargetNotAlive"),
        ("gone", "OwnerNotAlive"),
        ("gone", "TargetNotAlive"),
    ]
    stage.source.remove(C)
    code_list = codes(await stage.look())
    stage.topic.publish(BUNDLE, UnitState.OWNED, B, C, force=True)
    stage.topic.publish(OTHER, UnitState.OWNED, B, C, force=True)
    assert (len(code_list), await stage.look()) == (2, []), "what was found already is not found again"


async def test_deadlines_are_those_the_brokers_run_with() -> None:
    stage = ChannelStage()
    stage.model.static[A][IN_FLIGHT_KEY] = "5000"
    stage.model.static[B][IN_FLIGHT_KEY] = "12000"
    stage.model.static[C][IN_FLIGHT_KEY] = "5000"
    stage.topic.own(BUNDLE, A)
    stage.topic.publish(BUNDLE, UnitState.RELEASING, B, A)
    assert await stage.look() == []
    assert await stage.look(after=11) == []
    (findings,) = await stage.look(after=2)
    assert (findings.code, findings.state) == ("InFlightTooLong", "Releasing")
    assert stage.watch.summary().deadlines.in_flight_ms == 12_000


async def test_many_at_once_are_one_line() -> None:
    """A broker that dies with a hundred bundles does not write a hundred lines."""
    stage = ChannelStage()
    for number in range(100):
        stage.topic.own(f"t/ns/0x{number:08x}_0x{number + 1:08x}", A)
    await stage.look(after=5)
    stage.source.remove(A)
    assert len(await stage.look()) == 100
    (line,) = stage.lines
    assert (line["count"], len(line["bundles"]), line["brokers"]) == (100, 20, [A])
    assert "and 99 more" in line["sentence"]


async def test_metrics_tell_states_findings_and_health() -> None:
    """Every state and every code has its series, also at 0; in another mode there are none."""
    stage = ChannelStage()
    stage.topic.own(BUNDLE, A)
    stage.topic.own(OTHER, A)
    stage.topic.publish(OTHER, UnitState.RELEASING, B, A)
    await stage.look()
    await stage.look(after=40)
    assert stage.metric("channel_up", variant="system_topic") == 1
    assert stage.metric("channel_bundles", state="Owned") == 1
    assert stage.metric("channel_bundles", state="Releasing") == 1
    assert stage.metric("channel_bundles", state="Deleted") == 0
    assert stage.metric("channel_findings", code="InFlightTooLong") == 1
    assert stage.metric("channel_findings", code=VARIANT_DISAGREES) == 0
    assert (stage.metric("channel_in_flight_oldest_seconds") or 0) >= 40
    stage.topic.suspended = True
    await stage.watch.turn()
    assert stage.metric("channel_up", variant="system_topic") == 0
    assert stage.metric("channel_findings", code="InFlightTooLong") == 1, "what was found stays found"
    stage.source.mode = "modular"
    stage.register(A)
    await stage.watch.turn()
    assert stage.metric("channel_up", variant="system_topic") is None
    assert stage.metric("channel_bundles", state="Owned") is None
    assert stage.metric("channel_findings", code="InFlightTooLong") is None


async def test_what_cannot_be_read_is_not_concluded_from() -> None:
    """While registry or channel are away: health says so, answers are refused, no finding is written off."""
    stage = ChannelStage()
    stage.topic.own(BUNDLE, A)
    await stage.look(after=5)
    stage.source.remove(A)
    await stage.look()
    stage.topic.suspended = True
    assert codes(await stage.look()) == [("OwnerNotAlive", BUNDLE)]
    with pytest.raises(StoreError, match="suspended"):
        stage.watch.current()
    assert (stage.watch.summary().up, stage.watch.summary().findings) == (False, {"OwnerNotAlive": 1})
    stage.topic.suspended = False
    stage.source.suspended = True
    assert codes(await stage.look()) == [("OwnerNotAlive", BUNDLE)]
    stage.source.suspended = False
    assert codes(await stage.look()) == [("OwnerNotAlive", BUNDLE)]
    assert len(stage.lines) == 1


@pytest.mark.parametrize(
    ("serves_channel", "owned", "message"),
    [(False, [BUNDLE, OTHER], "2 bundles"), (True, [BUNDLE, OTHER], "2 bundles"), (False, [BUNDLE], "1 bundle")],
)
async def test_an_owner_that_refuses_connections_is_found_before_its_session_ends(
    serves_channel: bool, owned: list[str], message: str
) -> None:
    """One finding a broker, also while the channel is away because it is that broker that served it."""
    stage = ChannelStage()
    for bundle in owned:
        stage.topic.own(bundle, A)
    assert await stage.look() == []
    stage.source.exclude(A, "AdminUnreachable", "connection refused")
    stage.source.exclude(B, "AdminUnreachable", "connection refused")
    stage.topic.suspended = serves_channel
    (findings,) = await stage.look(after=5)
    since = findings.since_ms
    assert (findings.code, findings.brokers, findings.bundle) == ("OwnerUnreachable", (A,), "")
    assert f"owns {message} and" in findings.detail and "connection refused" in findings.detail
    (findings,) = await stage.look(after=5)
    assert findings.since_ms == since
    stage.topic.suspended = False
    stage.register(A)
    assert await stage.look() == []
    assert [(line["event"], line["code"]) for line in stage.lines] == [
        ("appeared", "OwnerUnreachable"),
        ("gone", "OwnerUnreachable"),
    ]


async def test_without_channel_answers_are_a_conflict() -> None:
    """In the modular load manager, with a sentence; after a change back the old findings are forgotten."""
    stage = ChannelStage(mode="modular")
    for answer in (stage.watch.findings, stage.watch.current, stage.watch.summary):
        await stage.watch.turn()
        with pytest.raises(Conflict, match="the brokers run the modular load manager") as caught:
            answer()
        assert caught.value.difference == ["the brokers run the modular load manager, which has no ownership channel"]


async def test_before_the_first_look_nothing_is_known() -> None:
    stage = ChannelStage()
    with pytest.raises(StoreError, match="the channel has not been read yet"):
        stage.watch.findings()
    assert stage.watch.summary().up is False


async def test_without_an_answer_of_a_broker_it_is_said_why() -> None:
    stage = ChannelStage()
    stage.admin.set_endpoints({})
    await stage.watch.turn()
    summary = stage.watch.summary()
    assert (summary.up, summary.variant, summary.states) == (False, None, {})
    assert stage.metric("channel_up", variant="unknown") == 0
    assert "no ownership channel is followed" in summary.detail and "is not registered" in summary.detail
    with pytest.raises(StoreError):
        stage.watch.findings()


async def test_brokers_that_disagree_are_a_finding() -> None:
    """It has a since-when of its own, and is an obstacle to acting while it lasts."""
    stage = ChannelStage()
    await stage.look()
    stage.set_variant(STORE_CLASS, B)
    (findings,) = await stage.look(after=1)
    assert (findings.code, findings.bundle, findings.state) == (VARIANT_DISAGREES, "", None)
    assert A in findings.detail and stage.watch.obstacle() == findings.detail
    (again,) = await stage.look(after=30)
    assert again.since_ms == findings.since_ms
    stage.set_variant(TOPIC_CLASS)
    assert await stage.look(after=1) == []
    assert stage.watch.obstacle() == ""
    assert [(line["event"], line["code"]) for line in stage.lines] == [
        ("appeared", VARIANT_DISAGREES),
        ("gone", VARIANT_DISAGREES),
    ]


async def test_boundaries_tell_which_of_two_is_left_over() -> None:
    stage = ChannelStage()
    child = "t/ns/0x00000000_0x20000000"
    stage.topic.own(BUNDLE, A)
    stage.topic.own(child, B)
    stage.metadata.bundle_boundaries["t/ns"] = [0, 0x20000000, 0x40000000, 0xFFFFFFFF]
    await stage.look()
    (findings,) = await stage.look(after=5)
    assert findings.code == "OwnedTwice"
    assert f"gives {BUNDLE} up" in findings.remedy
    stage.metadata.suspended = True
    (findings,) = await stage.look(after=5)
    assert "pulsar-admin namespaces bundles t/ns" in findings.remedy


async def test_it_looks_by_itself() -> None:
    stage = ChannelStage()
    task = asyncio.create_task(stage.watch.run())
    try:

        async def followed() -> bool:
            return stage.watch.followed

        await eventually(followed, within=30)
        stage.topic.own(BUNDLE, A)

        async def is_seen() -> bool:
            return BUNDLE in stage.watch.current().units

        await eventually(is_seen, within=30)
        stage.source.remove(A)

        async def has_finding() -> bool:
            return codes(stage.watch.findings()) == [("OwnerNotAlive", BUNDLE)]

        await eventually(has_finding, within=30)
        assert stage.metric("channel_up", variant="system_topic") == 1
        stage.seated = False

        async def forgotten() -> bool:
            return stage.metric("channel_up", variant="system_topic") is None

        await eventually(forgotten, within=30)
        assert stage.metric("channel_findings", code="OwnerNotAlive") is None
        assert not stage.watch.summary().up and "seat" in stage.watch.fault
        stage.seated = True
        await eventually(followed, within=30)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_doctor_checks() -> None:
    """Followed, where, and whether anything is wrong; nothing to say without a channel."""
    stage = ChannelStage()
    checks = await channel_checks(stage.watch, stage.clock, within=5)
    assert [(check.name, check.ok) for check in checks] == [
        ("ownership channel", True),
        ("channel variant", True),
        ("channel findings", True),
    ]
    stage.topic.own(BUNDLE, "gone:8080")
    stage.set_variant(STORE_CLASS, C)
    stage.store.own(BUNDLE, "gone:8080")
    await stage.look()
    stage.clock.offset += LAG
    checks = await channel_checks(stage.watch, stage.clock, within=5)
    assert [(check.name, check.ok, bool(check.fix)) for check in checks] == [
        ("ownership channel", True, False),
        ("channel variant", False, True),
        ("channel findings", False, True),
    ]
    stage.store.suspended = True
    (check,) = await channel_checks(stage.watch, stage.clock, within=0.2)
    assert not check.ok and "suspended" in check.detail and check.fix
    assert await channel_checks(ChannelStage(mode="modular").watch, stage.clock) == []


async def test_rows_are_filtered_and_paged() -> None:
    stage = ChannelStage()
    names = [f"t/n{number % 2}/0x{number:08x}_0x{number + 1:08x}" for number in range(10)]
    for number, name in enumerate(names):
        stage.topic.own(name, BROKERS[number % 3])
    stage.topic.transfer(names[0], B)
    stage.topic.publish(names[3], UnitState.RELEASING, C, A)
    await stage.look()
    view, now = stage.watch.current(), stage.clock.wall_ms()
    assert [row.bundle for row in unit_rows(view, now)] == sorted(names)
    (moving,) = unit_rows(view, now, state=UnitState.RELEASING)
    assert (moving.bundle, moving.owner, moving.destination, moving.source) == (names[3], A, C, A)
    assert {row.bundle for row in unit_rows(view, now, broker=A)} == {names[i] for i in (0, 3, 6, 9)}
    assert len(unit_rows(view, now, namespace="t/n1")) == 5
    page = unit_rows(view, now, limit=4)
    rest = unit_rows(view, now, after=page[-1].bundle, limit=100)
    assert [row.bundle for row in page + rest] == sorted(names)
    assert row_of(view, "t/n1/0xf0000000_0xffffffff", now) is None


async def test_an_entry_without_time_is_as_old_as_it_was_seen() -> None:
    """`since_ms` is the writer's time, or ours where there is none."""
    stage = ChannelStage()
    stage.topic.table.replace(BUNDLE, ServiceUnit(state=UnitState.OWNED, destination=A), 1234)
    await stage.look()
    row = row_of(stage.watch.current(), BUNDLE, 11_234)
    assert row is not None
    assert (row.since_ms, row.age_seconds, row.version) == (1234, 10.0, 1)
