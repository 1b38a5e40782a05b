"""Rules for the requests of operators that several verbs share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.model.codes import explain
from bundlekeel.model.errors import ConfigError, NotFound, SnapshotError
from tests.support.world import FakeCluster, FakeSidecar
from tests.unit.requests.sidecars import B1, B2, B3, BUNDLE, WHO, both


async def test_a_request_whose_answer_was_lost_may_be_sent_again() -> None:
    sidecar, _ = await both()
    service, requests = sidecar.service, sidecar.service.requests
    for _ in range(2):
        await requests.drain(B1, dry_run=False, **WHO)
        await requests.warm(B2, dry_run=False, **WHO)
        await requests.cordon(B1, **WHO)
        await requests.pin(BUNDLE, seconds=60, **WHO)
        await requests.exclude("t:t", seconds=None, **WHO)
        await requests.pause_scope("tenant:t", seconds=60, **WHO)
        await service.pause(seconds=60, **WHO)
        await service.set_mode("act", **WHO)
        await service.resume(**WHO)
    view = await requests.operations()
    assert [len(rows) for rows in (view.drains, view.warms, view.cordons, view.pins, view.exclusions)] == [1] * 5
    ends = [
        lambda: requests.uncordon(B1, **WHO),
        lambda: requests.unpin(BUNDLE, **WHO),
        lambda: requests.include("t:t", **WHO),
        lambda: requests.resume_scope("tenant:t", **WHO),
    ]
    for end in ends:
        await end()
        with pytest.raises(NotFound):
            await end()


async def test_unread_requests_are_not_none() -> None:
    """Rule: a sidecar that has just started must not report that there is no drain: its hook would not end it."""
    leader, _ = await both()
    await leader.service.requests.drain(B1, dry_run=False, **WHO)
    other = FakeSidecar(leader.cluster, "c")
    await other.coordination.start()
    with pytest.raises(SnapshotError, match="requests have not been read yet"):
        await other.service.requests.operations()
    await other.shared_state.refresh()
    assert [row.broker for row in (await other.service.requests.operations()).drains] == [B1]


async def test_what_is_asked_of_a_broker_stands_with_it() -> None:
    leader, other = await both()
    await other.service.requests.cordon(B2, **WHO)
    await other.service.requests.drain(B1, dry_run=False, **WHO)
    await leader.shared_state.refresh()
    for sidecar in (leader, other):
        rows = sidecar.service.brokers()
        assert [(row.broker, row.requested) for row in rows] == [(B1, "drain"), (B2, "cordon"), (B3, "")]


@pytest.mark.parametrize(
    ("hindered", "value"),
    [
        ("an outage", ""),
        ("shedding", "BrokersShedThemselves"),
        ("unknown settings", "BrokerSettingsUnknown"),
        ("no channel", "ChannelNotFollowed"),
    ],
)
async def test_what_holds_all_moves_stands_with_the_requests(hindered: str, value: str) -> None:
    """Rule: the obstacle of the leader's last cycle is shown on every replica; a held drain has no estimated end."""
    cluster = FakeCluster({B1: [0.1, 0.05], B2: [0.1], B3: [0.1]}, shedding=hindered == "shedding")
    leader, other = await FakeSidecar(cluster, "a").lead(), await FakeSidecar(cluster, "b").lead()
    if hindered == "unknown settings":
        leader.admin.unauthorized = other.admin.unauthorized = frozenset({B3})
    if hindered == "no channel":
        cluster.source.mode = "extensible"
        await leader.channel.turn()
    for sidecar in (leader, other):
        await sidecar.cycle.turn()
    await other.service.requests.drain(B1, dry_run=False, **WHO)
    if hindered == "an outage":
        cluster.source.remove(B2, B3)
        await leader.cycle.turn()
        cluster.publish()
    for sidecar in (leader, other):
        await sidecar.shared_state.refresh()
        await sidecar.cycle.turn()
    await other.shared_state.refresh()
    assert other.shared_state.shared.report["obstacle"] == (value or "SettlingAfterOutage")
    for sidecar in (leader, other):
        view = await sidecar.service.requests.operations()
        assert (view.held, view.held_explanation) == (value, explain(value))
        assert (view.drains[0].eta_seconds is None) is bool(value)
        assert (await sidecar.service.requests.warm(B2, dry_run=True, **WHO)).held == value


async def test_nobody_knows_these() -> None:
    """Brokers that are not registered, pins and exclusions that are not there."""
    leader, _ = await both()
    service = leader.service.requests
    for call in (
        service.drain("b9:8080", dry_run=True, **WHO),
        service.warm("b9:8080", dry_run=True, **WHO),
        service.cordon("b9:8080", **WHO),
        service.uncordon(B1, **WHO),
        service.unpin(BUNDLE, **WHO),
        service.include("t:shop", **WHO),
        service.resume_scope("tenant:shop", **WHO),
        service.stop("req-9", **WHO),
    ):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(NotFound):
        await service.task("req-9")


async def test_before_the_first_picture_nothing_is_shown() -> None:
    """A sidecar that has seen nothing says so."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    with pytest.raises(SnapshotError, match="cluster has not been read yet; try again in a few seconds"):
        await sidecar.service.requests.drain(B1, dry_run=True, **WHO)


async def test_a_sidecar_without_a_seat_names_one_that_has_one() -> None:
    """It never sees the cluster, so to try again would not help."""
    cluster = FakeCluster()
    leader = await FakeSidecar(cluster, "a", settings={"leadership.seats": 1}).lead()
    leader.leadership.member = replace(leader.leadership.member, url="http://a:8090")
    other = await FakeSidecar(cluster, "b", settings={"leadership.seats": 1}).lead()
    expected = r"does not read the cluster: no seat is free \(leadership.seats is 1\); use a: bundlekeel --url "
    with pytest.raises(SnapshotError, match=expected):
        await other.service.requests.drain(B1, dry_run=True, **WHO)
    with pytest.raises(SnapshotError, match=expected):
        await other.service.make_plan(PlanRequest())
    with pytest.raises(NotFound, match=expected):
        await other.service.why(B1)


async def test_pins_exclusions_and_paused_scopes_come_and_go() -> None:
    leader, _ = await both()
    service = leader.service.requests
    pinned = await service.pin(BUNDLE, seconds=None, **WHO)
    assert (pinned.broker, pinned.until_ms) == (B1, 0)
    await service.exclude("n:shop/*", seconds=1.0, **WHO)
    await service.pause_scope("namespace:t/ns", seconds=1.0, **WHO)
    view = await service.operations()
    for row in (pinned, *view.pins, *view.exclusions):
        assert (row.by, row.reason) == ("ann", "disks") and pinned.since_ms <= row.since_ms <= leader.clock.wall_ms()
    assert view.pins[0].since_ms == pinned.since_ms > 0
    assert [row.bundle for row in view.pins] == [BUNDLE]
    assert [row.pattern for row in view.exclusions] == ["n:shop/*"]
    assert [row.scope for row in view.pauses] == ["namespace:t/ns"]
    leader.clock.offset += 1.1
    view = await service.operations()
    assert (view.exclusions, view.pauses) == ([], [])
    await service.unpin(BUNDLE, **WHO)
    await service.include("n:shop/*", **WHO)
    await service.resume_scope("namespace:t/ns", **WHO)
    desired = leader.shared_state.desired
    assert (desired.pinned, desired.excluded, desired.pauses) == ({}, {}, {})


@pytest.mark.parametrize(
    "call",
    [
        lambda service: service.exclude("shop/*", seconds=None, **WHO),
        lambda service: service.pause_scope("shop", seconds=None, **WHO),
        lambda service: service.pause_scope("topic:x", seconds=None, **WHO),
        lambda service: service.pause_scope("tenant: ", seconds=None, **WHO),
    ],
)
async def test_what_cannot_be_meant_is_refused(call: Any) -> None:
    """Patterns and scopes without what they need."""
    leader, _ = await both()
    with pytest.raises(ConfigError):
        await call(leader.service.requests)
