"""Answers of the gate to requests, adoptions and half-executed plans, through whole sidecars over fakes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from bundlekeel.leader.state.documents import Desired, Pause
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminTimeout, Forbidden
from bundlekeel.pulsar.sources.ownership import VARIANT_KEY
from tests.support.builders import bundle_name
from tests.support.memory_admin import Fault
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, WallClock, with_params

B1, B2, B3 = BROKERS
BUNDLE = bundle_name(0)


class Reviewing(FakeSidecar):
    """Settings that require a second operator."""

    settings: ClassVar = {"review": "required"}


def still() -> FakeCluster:
    """A cluster that nothing moves in by itself."""
    return FakeCluster({B1: [0.1, 0.1], B2: [0.2], B3: [0.2]})


async def ask_gate(sidecar: FakeSidecar) -> dict[str, Any]:
    """A transfer that a person asks this sidecar for."""
    await sidecar.cycle.turn()
    return await sidecar.service.requests.transfer(BUNDLE, to=B3, execute=True, reason="r", by="ann")


# --- review ------------------------------------------------------------------------------------------------------


async def test_the_leader_decides_whether_a_request_needs_approval() -> None:
    """A replica whose own settings do not ask for review leaves a request at once; the leader's settings do."""
    cluster = still()
    leader = await Reviewing(cluster, "a").lead()
    follower = await FakeSidecar(cluster, "b").lead()
    await leader.cycle.turn()
    left = await ask_gate(follower)
    assert left.state == "waiting"
    await leader.executions.serve()
    assert cluster.model.unloads == []
    (task,) = leader.shared_state.tasks
    assert (task["task"], task["state"]) == (left.task, "failed")
    assert "a second operator must approve the change first" in task["detail"]


async def test_a_split_needs_approval_alike() -> None:
    """Whatever kind of request it is."""
    cluster = still()
    cluster.put_topics(BUNDLE, 0.05, 0.05)
    leader = await Reviewing(cluster, "a").lead()
    follower = await FakeSidecar(cluster, "b").lead()
    await leader.cycle.turn()
    await follower.cycle.turn()
    await follower.service.requests.split(BUNDLE, execute=True, reason="r", by="ann")
    await leader.executions.serve()
    assert cluster.model.splits == []
    assert [task["state"] for task in leader.shared_state.tasks] == ["failed"]


async def test_what_somebody_else_approved_is_carried_out() -> None:
    cluster = still()
    leader = await Reviewing(cluster, "a").lead()
    follower = await Reviewing(cluster, "b").lead()
    await leader.cycle.turn()
    left = await ask_gate(follower)
    await follower.service.requests.approve(left.review, reason="fine", by="bob")
    await leader.executions.serve()
    assert cluster.owners()[BUNDLE] == B3
    assert [task["state"] for task in leader.shared_state.tasks] == ["done"]


# --- the channel -------------------------------------------------------------------------------------------------


async def test_a_request_is_not_carried_out_while_the_channel_is_torn() -> None:
    sidecar = await FakeSidecar(still()).lead()
    await ask_gate(sidecar)
    sidecar.cluster.source.mode = "extensible"
    for broker, channel in ((B1, "ServiceUnitStateMetadataStoreTableViewImpl"), (B2, "ServiceUnitStateTableViewImpl")):
        sidecar.cluster.model.static[broker][VARIANT_KEY] = f"org.apache.pulsar.{channel}"
    await sidecar.channel.turn()
    await sidecar.executions.serve()
    assert sidecar.cluster.model.unloads == []
    (task,) = sidecar.shared_state.tasks
    assert task["state"] == "failed" and "in different places" in task["detail"]


# --- windows and pauses that come amid a plan --------------------------------------------------------------------


class Windowed(FakeSidecar):
    """Settings whose window opened a minute ago and lasts for half an hour."""

    def __init__(self, cluster: FakeCluster, **more: Any) -> None:
        opened = datetime.fromtimestamp(cluster.clock.wall_ms() / 1000 - 60, UTC)
        window = {"cron": f"{opened.minute} {opened.hour} * * *", "minutes": 30}
        super().__init__(cluster, settings={"windows": [window]}, **more)


async def test_a_window_that_closes_amid_a_plan_stops_the_rest() -> None:
    cluster = FakeCluster(clock=WallClock())
    sidecar = await Windowed(cluster, params=with_params(max_moves_per_source=100)).lead()

    def an_hour_later(_bundle: str) -> None:
        cluster.clock.offset = 3600.0

    cluster.model.after_unload = an_hour_later
    report = await sidecar.cycle.turn()
    assert report.plan is not None and len(report.plan.moves) > 1
    assert len(cluster.model.unloads) == 1
    assert {outcome.code for outcome in report.outcomes if outcome.outcome == "refused"} == {Code.OUTSIDE_WINDOW}


# --- what people ask for -------------------------------------------------------------------------------------------


async def test_moves_manually_are_refused_while_everything_is_paused() -> None:
    sidecar = await FakeSidecar(still()).lead()
    await sidecar.cycle.turn()
    service, pause = sidecar.service.requests, Pause(reason="an incident", by="ann", since_ms=0)
    await sidecar.shared_state.change_desired(lambda _: Desired(pause=pause))
    assert (await service.transfer(BUNDLE, to=B3)).state == "planned"
    with pytest.raises(Forbidden, match="by ann: an incident"):
        await service.transfer(BUNDLE, to=B3, execute=True, reason="r", by="ann")
    assert await sidecar.shared_state.take_requests() == []


async def test_an_approval_leaves_a_record() -> None:
    sidecar = await Reviewing(still()).lead()
    left = await ask_gate(sidecar)
    await sidecar.service.requests.approve(left.review, reason="looks right", by="bob")
    (line,) = [item for item in sidecar.journal.tail(10, kind="request") if "approval" in item["what"]]
    assert (line["by"], line["reason"], line["what"]) == ("bob", "looks right", f"approval of {left.review}")


# --- brokers that shed ---------------------------------------------------------------------------------------------


async def test_a_broker_that_cannot_be_asked_stops_all() -> None:
    """Acting needs proof that no broker sheds by itself."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    sidecar.admin.fail("runtime_configuration", Fault(error=AdminTimeout("no answer")))
    report = await sidecar.cycle.turn()
    assert report.plan is not None and report.plan.moves
    assert report.obstacle is not None and report.obstacle.code is Code.BROKER_SETTINGS_UNKNOWN
    assert report.obstacle.detail == B1
    assert sidecar.cluster.model.unloads == []
