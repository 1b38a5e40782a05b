"""Shared state: chunks, compare-and-set, move records, requests, and documents of other versions or unreadable ones."""

from __future__ import annotations

import asyncio
import zlib

import msgspec
import pytest
from msgspec import structs

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.execution.intents import MoveOutcome
from bundlekeel.leader.state import documents, shared_state
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.leader.state.documents import (
    SCHEMA,
    Desired,
    LeaderState,
    OperatorRequest,
    Pause,
    decode,
    encode,
    join,
    rewritten,
    split,
)
from bundlekeel.leader.state.shared_state import DESIRED
from bundlekeel.leader.state.takeover_record import FAILSAFE, TAKEOVER
from bundlekeel.model.errors import CodecError, LeadershipLost, StoreError
from bundlekeel.planning.guard.state import RecentMove
from bundlekeel.ports import Document
from tests.support.memory_coordination import MemoryCoordination, MemoryStore
from tests.support.world import FakeCluster, FakeSidecar


def test_document_survives_encoding() -> None:
    recent = {"t/ns/0x0_0x1": RecentMove(at_ms=5, source="b1:8080")}
    state = LeaderState(epoch=3, cycle_state=CycleState(cycle=9, recent=recent))
    assert decode(encode(state), LeaderState) == state


@pytest.mark.parametrize("data", [b"", b"garbage", encode({"epoch": "many"}), encode([1, 2]), encode(5)])
def test_unreadable_document_is_refused(data: bytes) -> None:
    """A torn or foreign document is refused in the one way that its readers expect."""
    with pytest.raises(CodecError):
        decode(data, LeaderState)


@pytest.mark.parametrize("kind", [Desired, LeaderState, documents.AveragesPart])
@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1])
def test_a19_a_document_of_another_schema_is_refused(kind: type, schema: int) -> None:
    with pytest.raises(CodecError, match=f"of schema {schema}, and this release reads only schema {SCHEMA}"):
        decode(encode({"schema": schema}), kind)
    assert decode(encode({"schema": SCHEMA}), kind) == kind()


def state_with(task: object) -> LeaderState:
    """The leader's state with this task, read as it is from the store."""
    data = (1).to_bytes(4, "big") + encode({"epoch": 1, "tasks": [task]})
    return documents.decode_state([Document(path="state/0000", data=data, version=0)], what="state")


@pytest.mark.parametrize("task", [{"task": "r1"}, {"task": "r1", "state": "done", "hash": 5}, 5])
def test_a_state_with_a_task_that_is_none_is_refused(task: object) -> None:
    assert state_with({"task": "r1", "state": "done"}).tasks
    with pytest.raises(CodecError, match="state"):
        state_with(task)


def test_chunks_join_and_ignore_leftovers() -> None:
    """A document in chunks is whole again, and chunks of a longer earlier version do not get in."""
    data = bytes(range(35))
    pieces = split(data, 10)
    assert [len(piece) for piece in pieces] == [10, 10, 10, 5]
    head = len(pieces).to_bytes(4, "big")
    nodes = [Document(path=f"s/{i:04d}", data=head + piece, version=0) for i, piece in enumerate(pieces)]
    assert join([*nodes, Document(path="s/0004", data=head + b"old", version=0)]) == data


async def test_large_state_is_stored_in_chunks_and_shrinks() -> None:
    """State beyond one node's size is stored whole, and a smaller one leaves no old chunk behind."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    noise = {
        f"t/ns/{hash(str(i)):x}": RecentMove(at_ms=hash(str(i * 7)) % 10**12, source=f"b{i}:1") for i in range(30_000)
    }
    await sidecar.shared_state.save(CycleState(cycle=1, recent=noise), {}, epoch=sidecar.shared_state.current_epoch())
    nodes = await sidecar.coordination.read_tree(shared_state.STATE)
    assert len(nodes) > 1
    other = await FakeSidecar(sidecar.cluster, "b").lead()
    assert other.shared_state.shared.cycle_state.recent == noise
    await sidecar.shared_state.save(CycleState(cycle=2), {}, epoch=sidecar.shared_state.current_epoch())
    assert len(await sidecar.coordination.read_tree(shared_state.STATE)) == 1


class Counting(MemoryCoordination):
    """Coordination that counts its reads."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.values: list[str] = []
        self.unreachable: set[str] = set()

    async def read(self, path: str) -> Document | None:
        self.values.append(path)
        return await super().read(path)

    async def read_tree(self, path: str) -> list[Document]:
        self.values.append(path)
        if path in self.unreachable:
            raise StoreError("it does not answer")
        return await super().read_tree(path)


class CountingSidecar(FakeSidecar):
    coordination: Counting

    def connect(self) -> Counting:
        return Counting(self.cluster.store)


async def test_a_follower_reads_what_has_changed_and_nothing_else() -> None:
    """It looks each second, and the state of a large cluster takes a while to read."""
    leader = await FakeSidecar(FakeCluster()).lead()
    saved = leader.shared_state
    await saved.save(CycleState(cycle=1), {}, epoch=saved.current_epoch())
    follower = CountingSidecar(leader.cluster, "b")
    await follower.coordination.start()
    state, values = follower.shared_state, follower.coordination.values
    await state.refresh()
    everything = [shared_state.DESIRED, TAKEOVER, FAILSAFE, shared_state.STATE, shared_state.MOVES]
    assert sorted(values) == sorted(everything)
    assert state.shared.cycle_state.cycle == 1
    for changed, change in (
        ([], asyncio.sleep(0)),
        ([shared_state.DESIRED], saved.change_desired(lambda owned: structs.replace(owned, mode="observe"))),
        ([shared_state.STATE, shared_state.MOVES], saved.save(CycleState(cycle=2), {}, epoch=saved.current_epoch())),
        ([], asyncio.sleep(0)),
    ):
        values.clear()
        await change
        await state.refresh()
        assert values == changed
    assert (state.shared.cycle_state.cycle, state.desired.mode) == (2, "observe")


async def test_whether_a_takeover_is_known_is_told_apart_from_none() -> None:
    sidecar = FakeSidecar(FakeCluster())
    assert not sidecar.service.state().takeover_known
    await sidecar.lead()
    assert sidecar.service.state().takeover_known and sidecar.service.state().takeover is None
    await sidecar.coordination.write_shared(TAKEOVER, b"torn", version=None)
    await sidecar.shared_state.refresh()
    assert not sidecar.service.state().takeover_known


async def test_moves_that_could_not_be_read_are_read_again() -> None:
    leader = await FakeSidecar(FakeCluster()).lead()
    saved = leader.shared_state
    await leader.coordination.write_fenced(saved.current_epoch(), saved.move_change(_moved(1).record()))
    await saved.save(CycleState(cycle=1), {}, epoch=saved.current_epoch())
    follower = CountingSidecar(leader.cluster, "b")
    await follower.coordination.start()
    follower.coordination.unreachable.add(shared_state.MOVES)
    with pytest.raises(StoreError):
        await follower.shared_state.refresh()
    follower.coordination.unreachable.clear()
    await follower.shared_state.refresh()
    assert [move["bundle"] for move in follower.shared_state.moves] == ["1"]


async def test_a_follower_decodes_moves_that_it_has_not_read_yet() -> None:
    leader = await FakeSidecar(FakeCluster()).lead()
    saved = leader.shared_state
    follower = FakeSidecar(leader.cluster, "b")
    await follower.coordination.start()
    state, current = follower.shared_state, []
    for cycle, result in enumerate(([_moved(1)], [], [_moved(2)]), start=1):
        for move in result:
            await leader.coordination.write_fenced(saved.current_epoch(), saved.move_change(move.record()))
        await asyncio.sleep(0.002)  # states of one millisecond count as the same
        await saved.save(CycleState(cycle=cycle), {}, epoch=saved.current_epoch())
        await state.refresh()
        current.append(list(state.moves))
    assert [[move["bundle"] for move in moves] for moves in current] == [["1"], ["1"], ["1", "2"]]
    assert current[1][0] is current[0][0], "the same record, not decoded again"


async def test_concurrent_requests_both_hold() -> None:
    """Compare-and-set: two replicas that change different things at once lose nothing."""
    cluster = FakeCluster()
    one, two = await FakeSidecar(cluster, "a").lead(), await FakeSidecar(cluster, "b").lead()

    def paused(desired: Desired) -> Desired:
        return Desired(mode=desired.mode, pause=Pause(reason="r", by="me", since_ms=1))

    def lowered(desired: Desired) -> Desired:
        return Desired(mode="recommend", pause=desired.pause)

    await asyncio.gather(one.shared_state.change_desired(paused), two.shared_state.change_desired(lowered))
    await one.shared_state.refresh()
    assert one.shared_state.desired.mode == "recommend"
    assert one.shared_state.desired.pause is not None


def _moved(number: int) -> MoveOutcome:
    return MoveOutcome(
        bundle=str(number), source="a", destination="b", outcome="done", started_wall_ms=number, landed_wall_ms=number
    )


async def test_move_records_are_kept_in_chunks_and_bounded() -> None:
    """Records roll over into new chunks, old chunks go, and another replica reads the newest ones."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    small = shared_state.SharedState(
        sidecar.coordination, sidecar.leadership, sidecar.clock, kept_moves=30, moves_per_chunk=10
    )
    for number in range(75):
        changes = small.move_change(_moved(number).record())
        await sidecar.coordination.write_fenced(sidecar.shared_state.current_epoch(), changes)
    nodes = await sidecar.coordination.read_tree(shared_state.MOVES)
    assert 3 <= len(nodes) <= 5
    await sidecar.shared_state.save(CycleState(cycle=1), {}, epoch=sidecar.shared_state.current_epoch())
    other = await FakeSidecar(sidecar.cluster, "b").lead()
    assert [item["bundle"] for item in other.shared_state.moves][-30:] == [str(n) for n in range(45, 75)]


async def test_deposed_leader_cannot_write() -> None:
    """A late save of a leader whose term is over changes nothing and raises."""
    cluster = FakeCluster()
    old = await FakeSidecar(cluster, "a").lead()
    await old.shared_state.save(CycleState(cycle=5), {}, epoch=old.shared_state.current_epoch())
    epoch = old.shared_state.current_epoch()
    cluster.store.expire(old.coordination)
    new = await FakeSidecar(cluster, "b").lead()
    await new.shared_state.save(CycleState(cycle=6), {}, epoch=new.shared_state.current_epoch())
    await old.coordination.start()
    with pytest.raises(LeadershipLost):
        await documents.store_blob(old.coordination, epoch, shared_state.STATE, LeaderState(epoch=99), [])
    await new.shared_state._read_leader_state()
    assert new.shared_state.shared.cycle_state.cycle == 6


async def test_request_left_by_a_follower_is_carried_out_once() -> None:
    """A plan asked for at a follower is carried out by the leader, and only once."""
    cluster = FakeCluster()
    leader, other = await FakeSidecar(cluster, "a").lead(), await FakeSidecar(cluster, "b").lead()
    leader.cycle.adopt(leader.cycle.cycle_state, leader.leadership.epoch)
    await other.cycle.turn()
    plan = await other.planner.make(PlanRequest())
    moves = [[move.bundle, move.source, move.target] for move in plan.moves]
    body = {"hash": plan.hash, "reason": "r", "by": "me", "moves": moves, "request": {}}
    await other.shared_state.leave_request(body)
    leader.cycle.status.params = other.cycle.params
    snapshot, picture = await leader.observer.snapshot()
    leader.cycle.status.snapshot, leader.cycle.status.picture = snapshot, picture
    leader.admin.set_endpoints(picture.endpoints)
    await leader.config.refresh(picture.endpoints)
    await leader.policies.refresh(snapshot)
    await leader.executions.serve()
    await leader.executions.serve()
    assert [task["state"] for task in leader.shared_state.tasks] == ["done"], leader.shared_state.tasks
    assert len(leader.moves()) == len(moves) > 0


async def test_request_whose_inputs_changed_is_not_carried_out() -> None:
    cluster = FakeCluster()
    leader = await FakeSidecar(cluster, mode="act").lead()
    leader.cycle.adopt(leader.cycle.cycle_state, leader.leadership.epoch)
    snapshot, picture = await leader.observer.snapshot()
    leader.cycle.status.snapshot, leader.cycle.status.picture = snapshot, picture
    leader.admin.set_endpoints(picture.endpoints)
    await leader.config.refresh(picture.endpoints)
    await leader.policies.refresh(snapshot)
    await leader.shared_state.leave_request({"hash": "x", "moves": [["t/ns/0x1_0x2", "b1:8080", "b2:8080"]]})
    await leader.executions.serve()
    task = leader.shared_state.tasks[0]
    assert task["state"] == "failed" and "inputs changed" in task["detail"]
    assert not cluster.model.unloads


REQUEST = OperatorRequest(by="ann", reason="new disks", since_ms=5)


class NewWish(OperatorRequest, frozen=True, kw_only=True):
    """A request with a field that this release does not know."""

    ticket: str = ""


class NewDesired(Desired, frozen=True, kw_only=True):
    """The document of a release to come: a field more, and one more inside each drain."""

    drains: dict[str, NewWish] = msgspec.field(default_factory=dict)  # type: ignore[assignment]
    holidays: list[str] = msgspec.field(default_factory=list)


def test_what_a_newer_release_stored_stays_when_we_write() -> None:
    newer = NewDesired(
        mode="act",
        drains={
            "b1:8080": NewWish(by="ann", reason="new disks", since_ms=5, ticket="OPS-1"),
            "b2:8080": NewWish(by="bob", reason="old disks", since_ms=6, ticket="OPS-2"),
        },
        holidays=["2026-12-25"],
    )
    stored = encode(newer)
    current = decode(stored, Desired)
    assert current is not None
    other = OperatorRequest(by="cid", reason="fans", since_ms=9)
    expected = msgspec.structs.replace(
        current, mode="recommend", drains={"b1:8080": current.drains["b1:8080"], "b3:1": other}
    )
    again = decode(rewritten(stored, expected), NewDesired)
    assert again == msgspec.structs.replace(
        newer,
        mode="recommend",
        drains={"b1:8080": newer.drains["b1:8080"], "b3:1": NewWish(by="cid", reason="fans", since_ms=9)},
    )


def test_a_pause_of_ours_does_not_inherit_what_belonged_to_another() -> None:
    """An entry that is changed is changed as a whole."""
    stored = encode({"pause": {"reason": "a", "by": "b", "since_ms": 1, "only": ["t/ns"]}, "future": 1})
    desired = Desired(pause=Pause(reason="fire", by="ann", since_ms=2))
    decoded = msgspec.json.decode(zlib.decompress(rewritten(stored, desired)))
    assert decoded["pause"] == {"reason": "fire", "by": "ann", "since_ms": 2, "until_ms": 0}
    assert decoded["future"] == 1


def test_a_document_nobody_can_read_is_replaced() -> None:
    """There is nothing to keep in it."""
    assert decode(rewritten(b"torn", Desired(mode="observe")), Desired) == Desired(mode="observe")
    assert decode(rewritten(b"", Desired(mode="observe")), Desired) == Desired(mode="observe")


def test_all_pauses_are_listed_by_scope() -> None:
    """The one of everything has the empty scope."""
    one, two = Pause(reason="a", by="b", since_ms=1), Pause(reason="c", by="d", since_ms=2)
    assert Desired(pause=one, pauses={"tenant:shop": two}).all_pauses() == {"": one, "tenant:shop": two}
    assert Desired(pauses={"tenant:shop": two}).all_pauses() == {"tenant:shop": two}


async def test_two_sidecars_of_different_releases_share_one_document() -> None:
    """The newer one stores, ours changes something else, the newer one finds everything again."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    newer = NewDesired(holidays=["2026-12-25"], cordons={"b2:8080": REQUEST})
    await sidecar.coordination.write_shared(DESIRED, encode(newer), version=None)
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, mode="recommend"))
    document = await sidecar.coordination.read(DESIRED)
    assert document is not None
    again = decode(document.data, NewDesired)
    assert again is not None
    assert (again.mode, again.holidays, again.cordons) == ("recommend", ["2026-12-25"], {"b2:8080": REQUEST})


@pytest.mark.parametrize("name", ["9" * 5_000, "9" * 20, "\u0663" * 8, "1", "000000000"])
async def test_s05_a_foreign_node_below_moves_does_not_prevent_a_term(name: str) -> None:
    """It is ignored and reported; the records of real chunks stay."""
    leader = await FakeSidecar(FakeCluster()).lead()
    moved = {
        "bundle": "t/ns/0x0_0x1",
        "source": "a",
        "destination": "b",
        "outcome": "done",
        "landed_on": "b",
        "seconds": 1.0,
    }
    record = moved | {"wall_ms": 1, "started_ms": 1, "landed_ms": 1, "intent": "1.1", "epoch": 1}
    epoch = leader.shared_state.current_epoch()
    await leader.coordination.write_fenced(epoch, leader.shared_state.move_change(record))
    await leader.coordination.write_shared(f"{shared_state.MOVES}/{name}", b"x", version=None)
    await leader.shared_state.begin_term(epoch)
    assert [item["bundle"] for item in leader.shared_state.moves] == ["t/ns/0x0_0x1"]
    (path,) = leader.shared_state.unreadable[shared_state.MOVES]
    assert path.startswith(f"{shared_state.MOVES}/") and len(path) < 100
    changes = leader.shared_state.move_change(record | {"intent": "2.1", "started_ms": 2})
    assert changes[0].path == f"{shared_state.MOVES}/00000000"
