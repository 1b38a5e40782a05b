"""The leader's executor: durations it learns, under what it records moves, and what it found of earlier terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.leader.execution.durations import ENOUGH
from bundlekeel.leader.execution.intents import INTENTS, MoveOutcome, intent_path
from bundlekeel.leader.execution.split_intents import SPLITS, split_path
from bundlekeel.leader.gate.gate import Action, GateQuestion
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminRefused, CodecError, StoreError
from bundlekeel.ports import DocumentChange, Owner
from bundlekeel.simulator.virtual_time import run_virtually
from tests.support.builders import bundle_name, entry
from tests.support.memory_admin import BrokerModel, Fault
from tests.support.memory_coordination import MemoryCoordination
from tests.support.virtual_time import LoopClock
from tests.support.world import FakeCluster, FakeSidecar
from tests.unit.leader.cycle.test_leases import BUNDLE, FIRST, SECOND, SOURCE, carry_out, move, ready


def test_how_long_a_landing_is_waited_for() -> None:
    async def scenario() -> None:
        sidecar = await ready(FakeSidecar(FakeCluster(clock=LoopClock())))
        model, waited = sidecar.cluster.model, list[float]()
        model.after_unload = lambda _bundle: model.owners.pop(BUNDLE, None)
        for expected_keys in (0.0, 0.1, 100.0):
            for _ in range(20 if expected_keys else 0):
                sidecar.executor.durations.add("modular", expected_keys)
            model.own(BUNDLE, SOURCE)
            sidecar.admin.fail("claim", *[Fault(error=AdminRefused("no"))] * 30)
            (outcome,) = await carry_out(sidecar, move(FIRST))
            assert outcome.code == Code.NOBODY_OWNS
            waited.append(round(outcome.seconds, 2))
        # The limits of this sidecar: 0.3 s as set, intents stand for 5 s.
        assert waited == [0.3, 0.3, 1.0]

    run_virtually(scenario())


async def test_only_landings_where_they_were_asked_for_are_learned_from() -> None:
    """Refused ones took no time."""
    sidecar = await ready(FakeSidecar(FakeCluster()))
    durations = sidecar.executor.durations
    for expected_keys in (*[0.0] * (ENOUGH - 2), 100.0):
        durations.add("modular", expected_keys)
    sidecar.admin.fail("unload", Fault(error=AdminRefused("no")))
    assert [item.outcome for item in await carry_out(sidecar, move(FIRST))] == ["refused"]
    assert durations.p95("modular") is None, "one is missing still"
    (done,) = await carry_out(sidecar, move(FIRST))
    assert done.outcome == "done" and durations.p95("modular") == done.moving_seconds > 0


async def test_under_what_moves_are_recorded() -> None:
    sidecar = await ready(FakeSidecar(FakeCluster()))
    outcomes: list[MoveOutcome] = []
    for source, target, request in ((SOURCE, FIRST, None), (FIRST, SECOND, "req-7")):
        sidecar.executor.request = GateQuestion(action=Action.PLAN, task=request) if request else None
        await sidecar.executor.carry_out([move(target, source)], epoch=1, cycle=5, on_outcome=outcomes.append)
    assert [item.cycle_id for item in outcomes] == ["5", "req-7"]
    assert [item.predicted for item in outcomes] == [(0.5, 0.4, 0.1, 0.2)] * 2
    assert [record["cycle"] for record in sidecar.shared_state.moves] == ["5", "req-7"]


async def test_which_open_moves_have_arrived() -> None:
    sidecar = await ready(FakeSidecar(FakeCluster()))
    names = [bundle_name(number) for number in range(5)]

    class Torn(BrokerModel):
        async def owner(self, bundle: str) -> Owner | None:
            if bundle == names[0]:
                raise CodecError("torn", code=Code.WRONG_TYPE)
            return await super().owner(bundle)

    model = sidecar.cluster.model
    model.__class__ = Torn
    model.own(names[1], FIRST)
    model.owners[names[2]] = Owner(broker_id=FIRST, disabled=True)
    del model.owners[names[3]]
    state = await sidecar.executor.arrived([entry(name, SOURCE, FIRST) for name in names])
    assert state == {names[1]: FIRST}


async def test_what_earlier_terms_left_is_told_once() -> None:
    """Frozen bundles of moves and splits together, nodes that cannot be read by their folder; settled splits once."""
    cluster = FakeCluster()
    sidecar = await ready(FakeSidecar(cluster))
    left = {intent_path(bundle_name(0)): b"{", split_path(bundle_name(1)): b"{"}
    changes = [DocumentChange(path=path, data=data, create=True) for path, data in left.items()]
    await sidecar.coordination.write_fenced(1, changes)
    settlement = await sidecar.executor.settle()
    assert settlement.frozen == sidecar.shared_state.frozen == {bundle_name(0), bundle_name(1)}
    assert {folder: set(sidecar.shared_state.unreadable[folder]) for folder in (INTENTS, SPLITS)} == {
        INTENTS: {intent_path(bundle_name(0))},
        SPLITS: {split_path(bundle_name(1))},
    }
    assert sidecar.executor.settled_splits() == []
    cluster.clock.offset += 136.0
    await sidecar.leadership.turn()
    assert (await sidecar.executor.settle()).frozen == sidecar.shared_state.frozen == frozenset()
    (split,) = sidecar.executor.settled_splits()
    assert (split.bundle, split.outcome, split.code) == (bundle_name(1), "unknown", Code.LEFT_BY_EARLIER_LEADER)
    assert sidecar.executor.settled_splits() == []
    assert [record["bundle"] for record in sidecar.shared_state.moves] == [bundle_name(0)]


@pytest.mark.parametrize("stopped", [False, True])
async def test_what_is_asked_after_a_stop_is_not_begun(stopped: bool) -> None:
    """Moves and splits alike; before any term there is nothing to stop."""
    sidecar = FakeSidecar(FakeCluster())
    assert await sidecar.executor.carry_out([move(FIRST)], epoch=-1, cycle=1, on_outcome=lambda _: None) == []
    await ready(sidecar)
    if stopped:
        assert await sidecar.executor.stop(1.0) == ()
    outcome: Any = await carry_out(sidecar, move(FIRST))
    assert [item.code for item in outcome] == ([Code.STOPPING] if stopped else [""])


async def test_an_unexpected_error_of_one_move_leaves_none_unwatched() -> None:
    """A programming error ends one move; it is raised only when the others have ended and are booked."""
    sidecar = await ready(FakeSidecar(FakeCluster()))
    first, *others = bundles = [bundle_name(number) for number in range(3)]

    async def forbids(bundle: str, _destination: str) -> None:
        if bundle == first:
            raise ZeroDivisionError("a bug")

    sidecar.executor.forbids = forbids
    booked: list[MoveOutcome] = []
    moves = [replace(move(FIRST), bundle=bundle) for bundle in bundles]
    with pytest.raises(ZeroDivisionError):
        await sidecar.executor.carry_out(moves, epoch=1, cycle=1, on_outcome=booked.append)
    assert sorted(outcome.bundle for outcome in booked) == others
    assert sidecar.executor.in_flight == ()


class LosesARemoval(MemoryCoordination):
    """The store does not take the removal of the first intent."""

    lost = False

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        if not self.lost and any(change.data is None and change.path.startswith(INTENTS) for change in changes):
            self.lost = True
            raise StoreError("connection lost")
        await super().write_fenced(epoch, changes)


class ForgetfulStore(FakeSidecar):
    def connect(self) -> MemoryCoordination:
        return LosesARemoval(self.cluster.store)


async def test_what_the_store_did_not_take_is_written_before_the_next_moves() -> None:
    """The intent of a move that is over would freeze its bundle for the next leader."""
    sidecar = await ready(ForgetfulStore(FakeCluster()))
    assert [item.outcome for item in await carry_out(sidecar, move(FIRST))] == ["done"]
    assert len(await sidecar.coordination.read_tree(INTENTS)) == 1
    await sidecar.executor.carry_out([], epoch=1, cycle=2, on_outcome=lambda _: None)
    assert await sidecar.coordination.read_tree(INTENTS) == []
