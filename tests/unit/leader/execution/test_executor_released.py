"""Bundles that certainly have no topics: no client looks them up, so the end of ownership is the only sign."""

from __future__ import annotations

import pytest

from bundlekeel.leader.execution.intents import MoveOutcome
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminFault, AdminTimeout
from bundlekeel.planning.ledger import open_entries
from tests.support.executor_bench import BUNDLE, B, Bench, C
from tests.support.memory_admin import Fault
from tests.support.world import FakeCluster, FakeSidecar


@pytest.fixture
async def bench() -> Bench:
    """A leading bench whose bundle has no topics."""
    result = await Bench().lead()
    result.model.topics[BUNDLE].clear()
    return result


async def test_it_is_released_at_once_and_waits_for_nobody(bench: Bench) -> None:
    """The affinity names the destination to the first client; no deadline is waited for, nothing is claimed."""
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code, outcome.landed_on) == ("released", Code.RELEASED, "")
    assert outcome.seconds == pytest.approx(0.5, abs=0.2)
    assert bench.model.affinity == {BUNDLE: C}
    assert not any(call[0] == "claim" for call in bench.admin.calls)
    assert await bench.intents() == []


async def test_in_the_extensible_load_manager_it_is_handed_over() -> None:
    """There the brokers assign it themselves."""
    bench = await Bench(mode="extensible").lead()
    bench.model.topics[BUNDLE].clear()
    assert (await bench.move()).outcome == "done"


async def test_a_broker_that_cannot_tell_its_topics_is_no_proof(bench: Bench) -> None:
    """There may be some: it is waited for, and not known in the end."""
    bench.admin.fail("topics_of_bundle", Fault(error=AdminFault("500")))
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("unknown", Code.NOBODY_OWNS)


async def test_neither_broker_nor_metadata_can_tell(bench: Bench) -> None:
    bench.admin.fail("topics_of_bundle", Fault(error=AdminFault("500")))
    bench.metadata.suspended = True
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("unknown", Code.NOBODY_OWNS)


async def test_an_unload_of_unknown_outcome_is_not_called_released(bench: Bench) -> None:
    """It may not have happened yet."""
    bench.admin.fail("unload", Fault(error=AdminTimeout("?")))
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("unknown", Code.NO_ANSWER)


async def test_somebody_who_takes_it_is_told(bench: Bench) -> None:
    """A client that comes in that moment."""
    bench.model.after_unload = lambda bundle: bench.model.own(bundle, B)
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("landed_elsewhere", Code.STILL_AT_SOURCE)


async def test_the_next_leader_does_not_wait_for_it_either() -> None:
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    plan = (await sidecar.cycle.turn()).plan
    assert plan is not None and sidecar.cycle.snapshot is not None
    move, now = plan.moves[0], sidecar.clock.wall_ms()
    ledger = open_entries(sidecar.cycle.cycle_state.ledger, [move], sidecar.cycle.snapshot, now - 10)
    await sidecar.shared_state.save(CycleState(cycle=1, ledger=ledger), {}, epoch=sidecar.shared_state.current_epoch())
    outcome = MoveOutcome(
        bundle=move.bundle,
        source=move.source,
        destination=move.target,
        outcome="released",
        code=Code.RELEASED,
        started_wall_ms=now,
    )
    epoch = sidecar.shared_state.current_epoch()
    await sidecar.coordination.write_fenced(epoch, sidecar.shared_state.move_change(outcome.record()))
    assert sidecar.shared_state.taken_over().ledger.entries == ()
