"""What the gate says to requests, adoptions and plans that are half carried out, through whole sidecars over fakes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bundlekeel.core.codes import Code
from bundlekeel.daemon.settings_guard import WindowSettings
from bundlekeel.ports import UnloadAnswer
from tests.support.builders import bundle_name
from tests.support.faces import wishing
from tests.support.memory_admin import MemoryAdmin
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, WallClock, with_params

B1, B2, B3 = BROKERS
BUNDLE = bundle_name(0)


class Reviewing(FakeSidecar):
    """Its own settings ask for a second person."""

    review = True


def still() -> FakeCluster:
    """A cluster that nothing moves in by itself."""
    return FakeCluster({B1: [0.1, 0.1], B2: [0.2], B3: [0.2]})


async def asked(sidecar: FakeSidecar, *, review: bool = False) -> dict[str, Any]:
    """A transfer that a person asks this sidecar for."""
    await sidecar.cycle.turn()
    return await wishing(sidecar, review=review).by_hand("transfer", BUNDLE, to=B3, execute=True, reason="r", by="ann")


# --- review ------------------------------------------------------------------------------------------------------


async def test_h21_the_leader_decides_whether_a_request_needs_approval() -> None:
    """A replica whose own settings do not ask for review leaves a request at once; the leader's settings do."""
    cluster = still()
    leader = await Reviewing(cluster, "a").lead()
    follower = await FakeSidecar(cluster, "b").lead()
    await leader.cycle.turn()
    left = await asked(follower)
    assert left["state"] == "waiting"
    await leader.executions.serve()
    assert cluster.model.unloads == []
    (task,) = leader.sharing.tasks
    assert (task["task"], task["state"]) == (left["task"], "failed")
    assert "a second person has to approve it" in task["detail"]


async def test_h21_a_split_needs_approval_alike() -> None:
    """Whatever kind of request it is."""
    cluster = still()
    cluster.put_topics(BUNDLE, 0.05, 0.05)
    leader = await Reviewing(cluster, "a").lead()
    follower = await FakeSidecar(cluster, "b").lead()
    await leader.cycle.turn()
    await follower.cycle.turn()
    await wishing(follower).by_hand("split", BUNDLE, execute=True, reason="r", by="ann")
    await leader.executions.serve()
    assert cluster.model.splits == []
    assert [task["state"] for task in leader.sharing.tasks] == ["failed"]


async def test_h21_what_somebody_else_approved_is_carried_out() -> None:
    """The same request by way of a proposal, wherever it was approved."""
    cluster = still()
    leader = await Reviewing(cluster, "a").lead()
    follower = await FakeSidecar(cluster, "b").lead()
    await leader.cycle.turn()
    left = await asked(follower, review=True)
    await wishing(follower).approve(left["review"], reason="fine", by="bob")
    await leader.executions.serve()
    assert cluster.owners()[BUNDLE] == B3
    assert [task["state"] for task in leader.sharing.tasks] == ["done"]


# --- the channel -------------------------------------------------------------------------------------------------


async def test_a_request_is_not_carried_out_while_the_channel_is_torn() -> None:
    """Who owns a bundle cannot be told then, whoever asks for the move."""
    sidecar = await FakeSidecar(still()).lead()
    await asked(sidecar)
    sidecar.channel_fault = "brokers keep it in two places"
    await sidecar.executions.serve()
    assert sidecar.cluster.model.unloads == []
    (task,) = sidecar.sharing.tasks
    assert task["state"] == "failed" and "two places" in task["detail"]


# --- windows and pauses that come amid a plan --------------------------------------------------------------------


class _Slow(MemoryAdmin):
    """Every unload takes an hour of people's time."""

    clock: WallClock

    async def unload(self, bundle: str, *, destination: str | None, at: str) -> UnloadAnswer:
        """See `ports.BrokerAdmin`."""
        answer = await super().unload(bundle, destination=destination, at=at)
        self.clock.offset += 3600
        return answer


class Windowed(FakeSidecar):
    """Its window opened a minute ago and lasts for half an hour."""

    def __init__(self, cluster: FakeCluster, **more: Any) -> None:
        opened = datetime.fromtimestamp(cluster.clock.wall_ms() / 1000 - 60, UTC)
        self.windows = (WindowSettings(cron=f"{opened.minute} {opened.hour} * * *", minutes=30),)
        super().__init__(cluster, **more)

    def reach(self) -> MemoryAdmin:
        """Brokers that take long."""
        admin = _Slow(self.cluster.model, permit=self.leadership.permit)
        assert isinstance(self.clock, WallClock)
        admin.clock = self.clock
        return admin


async def test_a_window_that_closes_amid_a_plan_stops_the_rest() -> None:
    """What is under way ends; what has not begun by then waits for the next window."""
    cluster = FakeCluster(clock=WallClock())
    sidecar = await Windowed(cluster, params=with_params(max_moves_per_source=100)).lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None and len(report.plan.moves) > 1
    assert len(cluster.model.unloads) == 1
    assert {outcome.code for outcome in report.outcomes if outcome.outcome == "refused"} == {Code.OUTSIDE_WINDOW}
