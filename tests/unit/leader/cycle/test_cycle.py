"""One cycle of the sidecar over fakes: what it does, refuses, records, and stores before it acts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.leader.state.documents import Desired, LeaderState, Pause, decode, join
from bundlekeel.leader.state.shared_state import STATE
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminTimeout, LeadershipLost, StoreError
from bundlekeel.model.load import BrokerReport
from bundlekeel.model.plan import Move, Plan, Refusal
from bundlekeel.model.policies import IsolationPolicy
from bundlekeel.ports import DocumentChange
from bundlekeel.ports.commands import Permit, UnloadAnswer
from tests.support.builders import bundle_name
from tests.support.memory_admin import Fault, MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params
from tests.unit.leader.cycle.test_leases import HeldSidecar, later


async def test_acting_cycle_moves_books_and_says_so() -> None:
    """A leader in act carries the plan out, lands bundles where asked, books them and writes one line each."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.acted and report.outcomes
    assert {outcome.outcome for outcome in report.outcomes} == {"done"}
    for outcome in report.outcomes:
        assert cluster.owners()[outcome.bundle] == outcome.destination
    assert len(sidecar.moves()) == len(report.outcomes)
    assert set(sidecar.cycle.cycle_state.recent) == {outcome.bundle for outcome in report.outcomes}
    assert all(entry.landed_ms for entry in sidecar.cycle.cycle_state.ledger.entries)
    assert "done" in report.sentence


async def test_a10_stale_load_data() -> None:
    """Cycles on the very same reports move nothing more than the plan needed: the ledger knows."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, params=with_params(max_moves_per_source=100, max_moves_per_target=100)).lead()
    first = await sidecar.cycle.turn()
    for _ in range(5):
        assert not (await sidecar.cycle.turn()).outcomes
    assert len(sidecar.moves()) == len(first.outcomes)


async def test_budgets_spread_a_plan_over_cycles() -> None:
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, params=with_params(max_moves_per_source=1)).lead()
    counts = [len((await sidecar.cycle.turn()).outcomes) for _ in range(3)]
    assert counts == [1, 1, 1]
    assert len(set(sidecar.moves())) == 3


async def test_what_brokers_report_is_shown_while_a_move_hangs() -> None:
    cluster = FakeCluster()
    sidecar = await HeldSidecar(cluster).lead()
    sidecar.admin.held = asyncio.Event()
    turn = asyncio.create_task(sidecar.cycle.turn())
    await later(lambda: sidecar.admin.waiting)
    cluster.clock.offset += 30.0
    cluster.publish()

    def oldest() -> float:
        reports = sidecar.service.brokers()
        return max(row.report_age_seconds for row in reports)

    assert oldest() >= 30
    await later(lambda: oldest() < 30, seconds=10)
    sidecar.admin.held.set()
    assert (await turn).outcomes


async def test_policies_are_heeded_in_what_is_shown_while_a_move_hangs() -> None:
    """A bundle that a policy made meanwhile binds to its broker is not shown as free to move."""
    cluster = FakeCluster()
    sidecar = await HeldSidecar(cluster).lead()
    sidecar.admin.held = asyncio.Event()
    turn = asyncio.create_task(sidecar.cycle.turn())
    await later(lambda: sidecar.admin.waiting)

    def bound() -> bool:
        rows = sidecar.service.bundles(broker=BROKERS[0])
        return "PolicyForbids" in {row.code for row in rows}

    assert not bound()
    only_first = IsolationPolicy(name="only_first", namespaces=("t/ns",), primary=("b1",), min_limit=1)
    cluster.metadata.isolation["local"] = (only_first,)
    await later(bound, seconds=10)
    sidecar.admin.held.set()
    assert (await turn).outcomes


async def test_recommend_plans_and_touches_nothing() -> None:
    """In recommend the plan is shown and no mutating call leaves."""
    sidecar = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None and report.plan.moves
    assert report.obstacle is not None and report.obstacle.code is Code.RECOMMEND_ONLY
    assert not sidecar.cluster.model.unloads
    assert "not carried out" in report.sentence
    memory = sidecar.cycle.cycle_state.memory
    assert memory.active == () and not any(course.acted for course in memory.courses.values())


async def test_refuses_while_brokers_shed_themselves() -> None:
    """Mode act moves nothing as long as one broker's own shedding is on."""
    sidecar = await FakeSidecar(FakeCluster(shedding=True)).lead()
    report = await sidecar.cycle.turn()
    assert report.obstacle is not None and report.obstacle.code is Code.BROKERS_SHED_THEMSELVES
    assert not sidecar.cluster.model.unloads


async def test_pause_written_by_another_replica_stops_the_leader() -> None:
    """A pause in the desired state holds whoever leads, and ends by itself."""
    cluster = FakeCluster()
    leader, other = await FakeSidecar(cluster, "a").lead(), await FakeSidecar(cluster, "b").lead()
    until = cluster.clock.wall_ms() + 60_000
    pause = Pause(reason="test", by="me", since_ms=0, until_ms=until)
    await other.shared_state.change_desired(lambda _: Desired(pause=pause))
    await leader.shared_state.refresh()
    inputs = await leader.cycle.turn()
    assert inputs.obstacle is not None and inputs.obstacle.code is Code.PAUSED
    cluster.clock.offset = 61.0
    await leader.leadership.turn()
    assert (await leader.cycle.turn()).outcomes


async def test_follower_computes_and_never_acts() -> None:
    """A follower makes the same plan and carries nothing out."""
    cluster = FakeCluster()
    await FakeSidecar(cluster, "a").lead()
    follower = await FakeSidecar(cluster, "b").lead()
    report = await follower.cycle.turn()
    assert report.plan is not None and report.plan.moves
    assert report.obstacle is not None and report.obstacle.code is Code.NOT_LEADER
    assert not cluster.model.unloads


async def test_store_away_is_a_verdict_not_an_error() -> None:
    """A source that cannot answer ends the cycle with a typed verdict."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    sidecar.cluster.source.suspended = True
    report = await sidecar.cycle.turn()
    assert report.code is Code.STORE_UNAVAILABLE
    assert not sidecar.cluster.model.unloads


class _BrokenSource:
    """A source with a programming error."""

    async def picture(self) -> Sequence[BrokerReport]:
        raise ZeroDivisionError("a bug")


async def test_cycle_never_raises_and_counts_the_unexpected() -> None:
    """An unexpected error is logged, counted and reported; the next cycle runs."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    whole = sidecar.observer._source
    sidecar.observer._source = _BrokenSource()  # type: ignore[assignment]
    assert (await sidecar.cycle.turn()).code is Code.INTERNAL_ERROR
    assert 'where="cycle"} 1.0' in sidecar.metric("unexpected_errors_total")
    sidecar.observer._source = whole
    assert (await sidecar.cycle.turn()).acted


async def test_excluded_broker_costs_itself_only() -> None:
    """A broker whose report cannot be used is left out with its code; the others are balanced."""
    cluster = FakeCluster()
    cluster.source.exclude("b4:8080", "NotJson", "garbage")
    cluster.model.brokers.append("b4:8080")
    cluster.model.static["b4:8080"] = dict(cluster.model.static[BROKERS[0]])
    sidecar = await FakeSidecar(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.outcomes
    assert "b4:8080" not in {outcome.destination for outcome in report.outcomes}
    assert 'code="NotJson"} 1.0' in sidecar.metric("excluded_reports_total")


async def test_unknown_outcome_is_never_repeated() -> None:
    """A call without an answer that left the bundle where it was is not sent again in the next cycles."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, params=with_params(max_moves_per_cycle=1)).lead()
    sidecar.admin.fail("unload", Fault(error=AdminTimeout("no answer"), after=False))
    first = await sidecar.cycle.turn()
    assert first.outcomes[0].outcome != "done"
    stuck = first.outcomes[0].bundle
    await sidecar.cycle.turn()
    await sidecar.cycle.turn()
    assert sum(1 for name, *rest in sidecar.admin.calls if name == "unload" and stuck in rest) == 1
    assert stuck in sidecar.cycle.cycle_state.ledger.bundles(), "the request may still take effect: it stays booked"
    cluster.clock.offset = 1_100.0
    await sidecar.leadership.turn()
    await sidecar.cycle.turn()
    assert stuck not in sidecar.cycle.cycle_state.ledger.bundles()


async def test_fresh_state_survives_a_change_of_leader() -> None:
    """Cool-downs, ledger and cycle number are taken over by the next leader; nothing is moved again."""
    cluster = FakeCluster()
    first = await FakeSidecar(cluster, "a").lead()
    moved = {outcome.bundle for outcome in (await first.cycle.turn()).outcomes}
    cluster.store.expire(first.coordination)
    second = await FakeSidecar(cluster, "b").lead()
    assert second.leadership.leading
    taken_over = second.shared_state.taken_over()
    assert set(taken_over.recent) == moved
    assert taken_over.ledger == first.cycle.cycle_state.ledger
    cluster.publish()
    later = await second.cycle.turn()
    assert not moved & {outcome.bundle for outcome in later.outcomes}
    assert set(second.cycle.cycle_state.recent) >= moved and second.cycle.epoch == second.leadership.epoch
    assert [item["bundle"] for item in second.shared_state.moves][: len(moved)] == [
        item["bundle"] for item in first.shared_state.moves
    ][: len(moved)]


@pytest.mark.parametrize(
    ("mode", "code"), [("other", Code.UNSUPPORTED_LOAD_MANAGER), ("mixed", Code.MIXED_LOAD_MANAGERS)]
)
async def test_other_load_managers_are_observed_and_never_acted_on(mode: str, code: Code) -> None:
    """An unsupported load manager, or more than one, gets a typed verdict and no call; a swap back is followed."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()
    cluster.source.mode = mode
    cluster.publish()
    report = await sidecar.cycle.turn()
    assert report.code is code and not cluster.model.unloads
    cluster.source.mode = "modular"
    cluster.publish()
    assert (await sidecar.cycle.turn()).outcomes


async def test_frozen_reports_are_never_acted_on() -> None:
    """Brokers with loadBalancerEnabled=false never refresh their reports: nothing may be concluded from them."""
    cluster = FakeCluster()
    cluster.model.static[BROKERS[1]]["loadBalancerEnabled"] = "false"
    sidecar = await FakeSidecar(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.code is Code.FROZEN_REPORTS and not cluster.model.unloads


async def test_a_plan_cut_off_by_the_budgets_of_a_cycle_is_to_go_on() -> None:
    """Said by the cycle that moved and would have moved more, and by no other."""
    cluster = FakeCluster()
    tight = await FakeSidecar(cluster, params=with_params(max_moves_per_cycle=1)).lead()
    assert not tight.cycle.cut_off
    report = await tight.cycle.turn()
    assert len(report.outcomes) == 1 and tight.cycle.cut_off
    other = FakeCluster()
    roomy = await FakeSidecar(other).lead()
    assert (await roomy.cycle.turn()).outcomes
    assert not roomy.cycle.cut_off


class _Reading(MemoryAdmin):
    """Read the stored documents at each unload."""

    read: Any

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        await self.read()
        return await super().unload(bundle, destination=destination, at=at, permit=permit)


class Watched(FakeSidecar):
    """Notes the stored ledger at each unload."""

    def reach(self) -> MemoryAdmin:
        admin = _Reading(self.cluster.model)
        admin.read, self.seen = self._read, list[frozenset[str]]()
        return admin

    async def _read(self) -> None:
        state = decode(join(await self.coordination.read_tree(STATE)), LeaderState)
        self.seen.append(frozenset(state.cycle_state.ledger.bundles()) if state is not None else frozenset())


async def test_the_ledger_is_stored_before_the_first_unload() -> None:
    """Whoever leads next must know what may be under way."""
    sidecar = Watched(FakeCluster())
    await sidecar.lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None and report.plan.moves
    assert sidecar.seen[0] >= {move.bundle for move in report.plan.moves}


class _Unstored(MemoryCoordination):
    """Once `failing` is set, no write of the leader is taken; it is called at each of them."""

    failing: Callable[[], None] | None = None

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        if self.failing is not None:
            self.failing()
            raise StoreError("connection lost")
        await super().write_fenced(epoch, changes)


class Unstored(FakeSidecar):
    """Store that can stop to accept writes."""

    coordination: _Unstored

    def connect(self) -> _Unstored:
        return _Unstored(self.cluster.store)


async def test_moves_that_were_not_begun_leave_the_ledger() -> None:
    """The ledger could not be stored, so nothing was called; a bundle that another term may still move stays booked."""
    sidecar = Unstored(FakeCluster())
    await sidecar.lead()
    booked: list[str] = []

    def freeze() -> None:
        booked[:] = booked or sorted(sidecar.cycle.cycle_state.ledger.bundles())
        sidecar.shared_state.frozen = frozenset(booked[:1])

    sidecar.coordination.failing = freeze
    report = await sidecar.cycle.turn()
    assert (report.code, report.acted, sidecar.cluster.model.unloads) == (Code.STORE_UNAVAILABLE, False, [])
    assert len(booked) > 1 and sidecar.cycle.cycle_state.ledger.bundles() == set(booked[:1])


async def test_a_term_won_during_a_cycle_is_not_that_of_its_state() -> None:
    sidecar = await FakeSidecar(FakeCluster()).lead()
    plan = (await sidecar.cycle.turn()).plan
    assert plan is not None
    first, stored = sidecar.cycle.epoch, sidecar.shared_state.shared
    unloads = len(sidecar.cluster.model.unloads)

    async def lost_and_won_again() -> tuple[tuple[Move, ...], Plan | None]:
        sidecar.clock.offset += 60.0
        await sidecar.leadership.turn()
        assert sidecar.leadership.leading and sidecar.leadership.epoch != first
        return plan.moves, None

    with pytest.raises(LeadershipLost):
        await sidecar.cycle.execute(lost_and_won_again)
    assert not sidecar.cycle.leads
    assert len(sidecar.cluster.model.unloads) == unloads
    assert sidecar.shared_state.shared.wall_ms == stored.wall_ms


@pytest.mark.parametrize(
    ("codes", "at_once"),
    [
        ({Code.BUDGET_PER_CYCLE}, True),
        ({Code.BUDGET_PER_CYCLE, Code.BUDGET_OF_TRAFFIC}, False),
        ({Code.BUDGET_PER_CYCLE, Code.ADAPTIVE_RATE}, False),
        ({Code.NO_GAIN}, False),
    ],
)
async def test_what_a_gentle_budget_holds_back_is_not_hurried(codes: set[Code], at_once: bool) -> None:
    """The rest of a plan follows at once where a cycle's own budgets cut it off, and later where traffic does."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None and report.outcomes
    refusals = tuple(Refusal(code=code, bundle=bundle_name(0)) for code in codes)
    report.plan = replace(report.plan, refusals=refusals)
    assert sidecar.cycle.cut_off is at_once


async def test_counters_change_no_setting_and_tell_no_idle_cpu_of_a_broker_that_starts() -> None:
    """Readings of 3 s: history and recalibration keep the brokers' own intervals, and a JVM of ten seconds is busy."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    started = cluster.clock.wall_ms() - 10_000
    for item in (await cluster.source.picture()).reports:
        cluster.source.put(replace(item, interval_ms=3_000, start_timestamp=started))
    report = await sidecar.cycle.turn()
    assert report.measured_seconds == 3.0
    assert sidecar.cycle.params.statistics_interval_seconds == 60.0
    costs = sidecar.cycle.cycle_state.memory.costs.brokers.values()
    assert {(item.reported, item.idle) for item in costs} == {(0, -1.0)}
