"""The failsafe job restores exactly when no cycle is completed; the sidecars detect that they were superseded."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

import pytest

from bundlekeel.leader.state.takeover_record import FAILSAFE, SPLITTING, TAKEOVER
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminUnauthorized, CodecError, StoreError, StoreMigrated
from bundlekeel.requests.failsafe import FailsafeLimits, FailsafeResult, judge, read_activity
from bundlekeel.requests.takeover import SHEDDING, TakeoverContext, handback, takeover
from tests.support.memory_admin import Fault, MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination
from tests.support.memory_source import RealClock
from tests.support.world import BROKERS, FakeCluster, FakeSidecar

AFTER = 600.0


class FastClock:
    """The cluster's clock; sleeping pushes it, and something may happen meanwhile."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._clock = cluster.clock
        self.naps = 0
        self.at_nap: dict[int, object] = {}

    def boot(self) -> float:
        return self._clock.boot()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    async def sleep(self, seconds: float) -> None:
        """No real waiting."""
        self.naps += 1
        self._clock.offset += seconds
        happening = self.at_nap.pop(self.naps, None)
        if happening is not None:
            await happening()  # type: ignore[operator]


class Watchman:
    """A deadman with a session of its own over a cluster that is taken over."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.clock = FastClock(cluster)
        self.coordination = MemoryCoordination(cluster.store)
        self.admin = MemoryAdmin(cluster.model)
        self.admin.set_endpoints(cluster.model.endpoints())

    async def context(self) -> TakeoverContext:
        return TakeoverContext(
            admin=self.admin,
            commands=self.admin,
            coordination=self.coordination,
            metadata=self.cluster.metadata,
            endpoints=self.cluster.model.endpoints(),
            clock=RealClock(),
            verify_seconds=0.0,
        )

    async def judge(self, *, dry: bool = False, confirm: float = 60.0) -> FailsafeResult:
        """One run."""
        terms = FailsafeLimits(after_seconds=AFTER, confirm_seconds=confirm, by="deadman (test)")
        return await judge(self.coordination, self.clock, terms, None if dry else self.context)

    def changes(self) -> list[tuple[str, ...]]:
        return [call for call in self.admin.calls if call[0] in ("set_dynamic", "delete_dynamic")]


async def taken_over(shedding: bool = True) -> tuple[FakeCluster, Watchman]:
    """A cluster whose own shedding was on (or off by an override) and is taken over."""
    cluster = FakeCluster(shedding=shedding)
    if shedding:
        cluster.model.dynamic.clear()
    watchman = Watchman(cluster)
    await watchman.coordination.start()
    context = replace(await watchman.context(), clock=cluster.clock)
    await takeover(context, split=True, reason="we balance", by="ann")
    watchman.admin.calls.clear()
    return cluster, watchman


async def test_nothing_taken_over() -> None:
    """There is nothing to restore, however dead everybody is."""
    watchman = Watchman(FakeCluster())
    await watchman.coordination.start()
    assert (await watchman.judge()).state == "not_taken_over"
    assert not watchman.admin.calls


async def test_alive_while_cycles_are_completed() -> None:
    """A completed cycle within the limit: no broker is even asked."""
    cluster, watchman = await taken_over()
    sidecar = await FakeSidecar(cluster).lead()
    cluster.clock.offset += 5000
    await sidecar.leadership.turn()
    cluster.publish()
    assert (await sidecar.cycle.turn()).completed
    cluster.clock.offset += AFTER - 10
    result = await watchman.judge()
    assert (result.state, result.activity.epoch) == ("alive", sidecar.leadership.epoch)
    assert not watchman.admin.calls


async def test_sidecars_expose_the_takeover_and_the_last_look() -> None:
    cluster, watchman = await taken_over()
    sidecar = FakeSidecar(cluster)
    await sidecar.coordination.start()

    async def exposed() -> tuple[str, str]:
        await sidecar.shared_state.refresh()
        lines = sidecar.service.render_metrics("text/plain")[0].decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return values["bundlekeel_takeover_in_force"], values["bundlekeel_failsafe_look_timestamp_seconds"]

    await watchman.judge(dry=True)
    assert await exposed() == ("1.0", "0.0")
    await watchman.judge()
    document = await watchman.coordination.read(FAILSAFE)
    assert document is not None and json.loads(document.data)["wall_ms"] > 0
    assert [float(value) for value in await exposed()] == [1.0, json.loads(document.data)["wall_ms"] / 1000]
    cluster.clock.offset += AFTER + 100
    assert (await watchman.judge()).state == "restored"
    assert (await exposed())[0] == "0.0"
    document = await watchman.coordination.read(FAILSAFE)
    assert document is not None
    await watchman.coordination.write_shared(FAILSAFE, b"[1", version=document.version)
    assert await exposed() == ("0.0", "0.0")


async def test_a_takeover_gets_its_time_before_the_first_cycle() -> None:
    """Takeover first, sidecars then: the limit counts from the takeover."""
    cluster, watchman = await taken_over()
    assert (await watchman.judge()).state == "alive"
    cluster.clock.offset += AFTER + 1
    result = await watchman.judge(dry=True)
    assert result.state == "dead" and "no cycle was ever completed" in result.sentence
    assert not watchman.changes()


async def test_a_recent_takeover_hides_no_old_cycle() -> None:
    """Both ages are given: a takeover a moment ago says nothing of sidecars that have been dead since yesterday."""
    cluster, watchman = await taken_over()
    sidecar = await FakeSidecar(cluster).lead()
    sentence = (await watchman.judge()).sentence
    assert re.fullmatch(r"the takeover is recent \(\d s ago\); no cycle was completed yet", sentence), sentence
    await sidecar.cycle.turn()
    sentence = (await watchman.judge()).sentence
    assert re.fullmatch(r"a cycle was completed \d s ago", sentence), sentence
    await sidecar.coordination.close()
    cluster.clock.offset += 25 * 3600
    context = replace(await watchman.context(), clock=cluster.clock)
    await handback(context)
    await takeover(context, split=True, reason="again", by="ann")
    cluster.clock.offset += 20
    result = await watchman.judge()
    assert result.state == "alive" and result.view()["age_seconds"] == pytest.approx(20, abs=9)
    text = r"the takeover is recent \(2\d s ago\); the last cycle was completed 25 h ago"
    assert re.fullmatch(text, result.sentence), result.sentence
    cluster.clock.offset += AFTER
    result = await watchman.judge()
    assert result.state == "restored" and re.match(r"no cycle was completed for 90,62\d s \(", result.sentence)
    document = await watchman.coordination.read(TAKEOVER)
    assert document is not None
    assert "no cycle was completed for 90,62" in json.loads(document.data)["ended"]["reason"]


async def test_a_clock_ahead_at_the_takeover_is_not_laid_to_the_cycles() -> None:
    cluster, watchman = await taken_over()
    await (await FakeSidecar(cluster).lead()).cycle.turn()
    context = replace(await watchman.context(), clock=cluster.clock)
    await handback(context)
    cluster.clock.offset += 7200
    await takeover(context, split=True, reason="again", by="ann")
    cluster.clock.offset -= 3600
    result = await watchman.judge(dry=True)
    assert result.state == "dead" and re.match(r"no cycle was completed for 3,60\d s \(", result.sentence), (
        result.sentence
    )


async def test_all_sidecars_dead_and_restored_exactly() -> None:
    """Overrides are as they were, each broker is verified, the record says who, why and when."""
    cluster, watchman = await taken_over()
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    await sidecar.coordination.close()
    cluster.clock.offset += AFTER + 1
    result = await watchman.judge()
    assert result.state == "restored" and result.result is not None
    assert [row.broker_id for row in result.result.brokers if row.verified] == list(BROKERS)
    assert cluster.model.dynamic == {}
    assert "no cycle was completed for" in result.sentence and "3 brokers" in result.sentence
    assert ".)" not in result.sentence
    view = result.view()
    assert view["takeover"]["by"] == "ann" and view["age_seconds"] > AFTER
    assert (await watchman.judge()).state == "not_taken_over"


@pytest.mark.parametrize("failure", ["no picture", "no report"])
async def test_a_leader_whose_cycles_all_fail_is_dead(failure: str) -> None:
    """It leads, it runs cycles, it stores its state: no cycle is completed."""
    cluster, watchman = await taken_over()
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    if failure == "no report":
        for broker in BROKERS:
            cluster.source.exclude(broker, "NotJson")
    else:
        cluster.source.suspended = True
    for _ in range(8):
        cluster.clock.offset += AFTER / 6
        await sidecar.leadership.turn()
        assert not (await sidecar.cycle.turn()).completed
    assert sidecar.leadership.leading
    assert (await watchman.judge(confirm=0)).state == "restored"


async def test_moves_that_no_broker_takes_are_no_completed_cycle() -> None:
    """A token that expired: the plan is made again and again, and nothing of it is carried out."""
    cluster, _ = await taken_over()
    sidecar = await FakeSidecar(cluster).lead()
    sidecar.admin.fail("unload", *[Fault(error=AdminUnauthorized("401"))] * 50)
    report = await sidecar.cycle.turn()
    assert report.outcomes and not report.completed
    assert sidecar.cycle.cycle_state.completed_ms == 0


async def test_a_token_that_expired_at_every_broker_is_no_life() -> None:
    cluster, watchman = await taken_over()
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    for silent in (1, len(BROKERS)):
        sidecar.admin.unauthorized = frozenset(BROKERS[:silent])
        for _ in range(8):
            cluster.clock.offset += AFTER / 6
            cluster.publish()
            await sidecar.leadership.turn()
            report = await sidecar.cycle.turn()
        assert report.obstacle is not None and report.obstacle.code is Code.BROKER_SETTINGS_UNKNOWN
        assert report.completed is (silent == 1)
        assert (await watchman.judge(confirm=0)).state == ("alive" if silent == 1 else "restored")


async def test_a_pause_and_a_settling_are_no_death() -> None:
    cluster, _ = await taken_over()
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    cluster.source.remove(*BROKERS[1:])
    report = await sidecar.cycle.turn()
    assert report.obstacle is not None and report.obstacle.code is Code.SETTLING_AFTER_OUTAGE
    recommending = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    assert (await recommending.cycle.turn()).completed


async def test_a_cycle_completed_while_watching_calls_it_off() -> None:
    """The leader came back after an outage, or its clock is behind: nothing is restored."""
    cluster, watchman = await taken_over()
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    cluster.clock.offset += AFTER + 1

    async def revives() -> None:
        await sidecar.leadership.turn()
        assert (await sidecar.cycle.turn()).completed

    watchman.clock.at_nap[30] = revives
    assert (await watchman.judge()).state == "alive"
    assert not watchman.admin.calls


async def test_a_clock_ahead_does_not_keep_a_dead_leader_alive() -> None:
    """A moment in the future says nothing; watching decides."""
    cluster, watchman = await taken_over()
    sidecar = await FakeSidecar(cluster).lead()
    cluster.clock.offset += 7200
    await sidecar.leadership.turn()
    cluster.publish()
    await sidecar.cycle.turn()
    cluster.clock.offset -= 7200
    result = await watchman.judge()
    assert result.state == "restored" and "ahead" in result.sentence


async def test_never_restores_what_it_cannot_read() -> None:
    """A store that does not answer, at first or while it watches; a state that cannot be read."""
    cluster, watchman = await taken_over()
    cluster.clock.offset += AFTER + 1
    cluster.store.freeze()
    with pytest.raises(StoreError):
        await watchman.judge()
    cluster.store.thaw()

    async def away() -> None:
        cluster.store.freeze()

    watchman.clock.at_nap[10] = away
    with pytest.raises(StoreError):
        await watchman.judge()
    cluster.store.thaw()
    await watchman.coordination.write_shared("state/leader/0000", b"\0\0\0\1from the future", version=None)
    with pytest.raises(CodecError):
        await read_activity(watchman.coordination, watchman.clock)
    assert not watchman.changes()


async def test_a_broker_that_does_not_follow_is_named_and_the_next_run_goes_on() -> None:
    """Incomplete: the record stays."""
    cluster, watchman = await taken_over(shedding=False)
    cluster.model.static[BROKERS[1]][SPLITTING] = "false"
    cluster.clock.offset += AFTER + 1
    first = await watchman.judge()
    assert first.state == "incomplete" and BROKERS[1] in first.sentence
    cluster.model.static[BROKERS[1]][SPLITTING] = "true"
    assert (await watchman.judge()).state == "restored"


async def test_two_at_once_are_harmless() -> None:
    """Both restore the same; the record is closed once, and both say so."""
    cluster, one = await taken_over()
    other = Watchman(cluster)
    await other.coordination.start()
    cluster.clock.offset += AFTER + 1
    results = await asyncio.gather(one.judge(), other.judge())
    assert {item.state for item in results} <= {"restored", "not_taken_over"}
    assert "restored" in {item.state for item in results}
    assert cluster.model.dynamic == {}
    document = await one.coordination.read(TAKEOVER)
    assert document is not None and document.version == 1


@pytest.mark.parametrize("shedding", [True, False])
async def test_sidecars_that_come_back_see_that_they_were_put_aside(shedding: bool) -> None:
    cluster, watchman = await taken_over(shedding)
    cluster.clock.offset += AFTER + 1
    assert (await watchman.judge()).state == "restored"
    assert cluster.model.dynamic == ({} if shedding else {SHEDDING: "false"})
    sidecar = await FakeSidecar(cluster).lead()
    cluster.publish()
    report = await sidecar.cycle.turn()
    assert report.obstacle is not None and report.obstacle.code is Code.PUT_ASIDE
    assert "deadman (test)" in report.obstacle.detail and not cluster.model.unloads
    record = sidecar.shared_state.takeover
    assert record is not None and record.view().ended.deadman is True
    assert not sidecar.journal.tail(10, kind="request"), "it was so when it started"
    await takeover(replace(await watchman.context(), clock=cluster.clock), split=False, reason="again", by="bob")
    await sidecar.shared_state.refresh()
    assert (await sidecar.cycle.turn()).outcomes
    assert [line["what"] for line in sidecar.journal.tail(10, kind="request")] == ["takeover"]


async def test_a_sidecar_that_runs_writes_down_that_it_was_put_aside() -> None:
    cluster, watchman = await taken_over()
    sidecar = await FakeSidecar(cluster).lead()
    cluster.clock.offset += AFTER + 1
    assert (await watchman.judge()).state == "restored"
    await sidecar.shared_state.refresh()
    (line,) = sidecar.journal.tail(10, kind="request")
    assert (line["what"], line["by"]) == ("deadman", "deadman (test)")
    assert "the sidecars stopped acting" in line["sentence"] and "no cycle was ever completed" in line["reason"]


@pytest.mark.parametrize("phase", ["PREPARATION", "COPYING", "CHANGED", "COMPLETED", "FAILED"])
async def test_nothing_is_restored_during_a_migration_of_the_metadata_store(phase: str) -> None:
    """The brokers refuse writes then. Once they use the new store, the job restores through them."""
    cluster, watchman = await taken_over()
    cluster.clock.offset += AFTER + 1
    cluster.metadata.migrate(phase)
    if phase in ("COMPLETED", "FAILED"):
        assert (await watchman.judge()).state == "restored" and watchman.changes()
        return
    with pytest.raises(StoreMigrated, match=phase):
        await watchman.judge()
    assert not watchman.changes() and (await read_activity(watchman.coordination, watchman.clock)).record is not None


async def test_an_unreadable_state_of_a_migration_does_not_prevent_a_restoration() -> None:
    """Without that right no sidecar completes a cycle either."""
    cluster, watchman = await taken_over()
    cluster.clock.offset += AFTER + 1
    cluster.metadata.suspended = True
    assert (await watchman.judge()).state == "restored"
