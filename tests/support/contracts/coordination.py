"""Contract of every Coordination: the same tests for the fake and for ZooKeeper.

Subclass `CoordinationContract` in a test module and give it a fixture `world`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar, overload

import pytest

from bundlekeel.model.errors import LeadershipLost, SnapshotError, StaleWrite, StoreError
from bundlekeel.model.members import Member
from bundlekeel.ports import Coordination, DocumentChange

T = TypeVar("T")


class World(Protocol):
    """A store in which sidecars meet. `patience` bounds, in seconds, how long a refused call may take."""

    patience: float

    async def join(self) -> Coordination:
        """A sidecar, started and connected."""

    async def expire(self, who: Coordination) -> None:
        """End the session of `who` at the store; returns once it is connected with a new one."""

    async def freeze(self) -> None:
        """Stop the store: it does not respond."""

    async def thaw(self) -> None:
        """Let it answer again."""


@overload
async def eventually(condition: Callable[[], Awaitable[T | None]], *, within: float = ...) -> T: ...
@overload
async def eventually(condition: Callable[[], T | None], *, within: float = ...) -> T: ...
async def eventually(condition: Callable[[], Any], *, within: float = 10.0) -> Any:
    """Wait until the condition returns a true value, and return this value. StoreError and SnapshotError count as
    false."""
    deadline = time.monotonic() + within
    while True:
        with suppress(StoreError, SnapshotError):
            value = condition()
            if value := (await value if inspect.isawaitable(value) else value):
                return value
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)


async def quiet(who: Coordination) -> None:
    """Read all changes so far, so that the next wait returns only for a new change."""
    while await who.wait_changed(0.2):
        pass


def member(name: str) -> Member:
    """Return the description of a sidecar with this name."""
    return Member(id=name, url=f"http://{name}:8080", version="1.2.3", started_ms=1_700_000_000_000)


async def lead(who: Coordination, name: str) -> int:
    """Make `who` the leader as soon as no other sidecar leads. Return its epoch."""
    return await eventually(lambda: who.campaign(member(name)))


class CoordinationContract:
    """The tests. Each docstring is the rule."""

    async def test_seats_are_given_lowest_first_and_taken_over(self, world: World) -> None:
        """Three of four contenders get a seat. A member that leaves makes room for the fourth."""
        sidecars = [await world.join() for _ in range(4)]
        seats = [await s.take_seat(member(f"s{i}"), seats=3) for i, s in enumerate(sidecars)]
        assert [t.seat if t else None for t in seats] == [0, 1, 2, None]
        await sidecars[1].close()
        last = sidecars[3]

        async def seated() -> bool:
            seat = await last.take_seat(member("s3"), seats=3)
            return seat is not None and seat.seat == 1

        await eventually(seated)
        assert [(m.id, m.seat, m.url) for m in await last.members()] == [
            ("s0", 0, "http://s0:8080"),
            ("s3", 1, "http://s3:8080"),
            ("s2", 2, "http://s2:8080"),
        ]

    async def test_simultaneous_contenders_get_different_seats(self, world: World) -> None:
        """A seat has one occupant, however many ask at once."""
        sidecars = [await world.join() for _ in range(4)]
        seats = await asyncio.gather(*(s.take_seat(member(f"s{i}"), seats=3) for i, s in enumerate(sidecars)))
        assert sorted(t.seat for t in seats if t is not None) == [0, 1, 2]

    async def test_a_seat_is_kept(self, world: World) -> None:
        """A member with a seat keeps it and takes no second one."""
        one = await world.join()
        assert await one.take_seat(member("a"), seats=3) == await one.take_seat(member("a"), seats=3)
        assert len(await one.members()) == 1

    async def test_a_kept_seat_shows_the_member_as_it_is_now(self, world: World) -> None:
        """A member may re-read its settings while it has a seat."""
        one, other = await world.join(), await world.join()
        await one.take_seat(member("a"), seats=3)
        await one.take_seat(replace(member("a"), settings="changed"), seats=3)
        assert [(member_node.id, member_node.seat, member_node.settings) for member_node in await other.members()] == [
            ("a", 0, "changed")
        ]

    async def test_one_leader_of_many(self, world: World) -> None:
        """Exactly one of many simultaneous campaigners wins, and all see the leader."""
        sidecars = [await world.join() for _ in range(5)]
        epochs = await asyncio.gather(*(s.campaign(member(f"s{i}")) for i, s in enumerate(sidecars)))
        (winner,) = [i for i, epoch in enumerate(epochs) if epoch is not None]
        for sidecar in sidecars:

            async def visible(who: Coordination = sidecar) -> bool:
                leader = await who.leader()
                return leader is not None and (leader.id, leader.epoch) == (f"s{winner}", epochs[winner])

            await eventually(visible)
        for i, sidecar in enumerate(sidecars):
            assert await sidecar.still_leading(epochs[winner] or 0) is (i == winner)
            assert i == winner or await sidecar.campaign(member(f"s{i}")) is None

    async def test_nobody_leads_at_first(self, world: World) -> None:
        """A fresh root has no leader."""
        one = await world.join()
        assert await one.leader() is None
        assert not await one.still_leading(0)

    async def test_epochs_grow(self, world: World) -> None:
        """Each win has a greater epoch than all before."""
        a, b = await world.join(), await world.join()
        epochs = []
        for who, name in ((a, "a"), (b, "b"), (a, "a"), (b, "b")):
            epoch = await lead(who, name)
            epochs.append(epoch)
            await who.resign(epoch)
        assert epochs == sorted(set(epochs))
        assert epochs[0] >= 1

    async def test_resigning_touches_nobody_else(self, world: World) -> None:
        """Resigning is quiet when the leader node is another's, or of another epoch."""
        a, b = await world.join(), await world.join()
        await a.resign(1)
        epoch = await lead(a, "a")
        await b.resign(epoch)
        await a.resign(epoch - 1)
        assert await a.still_leading(epoch)
        await a.resign(epoch)
        assert not await a.still_leading(epoch)
        assert await a.leader() is None

    async def test_campaigning_again_begins_a_new_term(self, world: World) -> None:
        """A leader node of the member's own session does not block it: the old epoch ends and a new one begins."""
        a = await world.join()
        first = await lead(a, "a")
        second = await a.campaign(member("a"))
        assert second is not None
        assert second > first
        assert not await a.still_leading(first)
        assert await a.still_leading(second)
        with pytest.raises(LeadershipLost):
            await a.write_fenced(first, [])

    async def test_a_deposed_leader_cannot_write(self, world: World) -> None:
        """Fencing: lead, lose the session, let another lead, reconnect, write with the old epoch: refused."""
        a, b = await world.join(), await world.join()
        old = await lead(a, "a")
        await a.write_fenced(old, [DocumentChange(path="state/ledger", data=b"of a", create=True)])
        await world.expire(a)
        new = await lead(b, "b")
        await b.write_fenced(new, [DocumentChange(path="state/ledger", data=b"of b")])
        assert not await a.still_leading(old)
        with pytest.raises(LeadershipLost):
            await a.write_fenced(
                old,
                [
                    DocumentChange(path="state/ledger", data=b"of a again"),
                    DocumentChange(path="state/more", data=b"x", create=True),
                ],
            )
        node = await b.read("state/ledger")
        assert node is not None
        assert node.data == b"of b"
        assert await b.read("state/more") is None
        await a.resign(old)
        assert await b.still_leading(new)

    async def test_losing_the_session_ends_the_term(self, world: World) -> None:
        """Leadership ends with the session, even if no other sidecar runs."""
        a = await world.join()
        old = await lead(a, "a")
        await world.expire(a)
        assert not await a.still_leading(old)
        assert await lead(a, "a") > old

    async def test_fenced_writes_are_atomic(self, world: World) -> None:
        """All changes of a fenced write take effect, or none."""
        a = await world.join()
        epoch = await lead(a, "a")
        await a.write_fenced(
            epoch,
            [
                DocumentChange(path="state/one", data=b"1", create=True),
                DocumentChange(path="state/deep/two", data=b"2", create=True),
            ],
        )
        with pytest.raises(StaleWrite):
            await a.write_fenced(
                epoch,
                [
                    DocumentChange(path="state/one", data=b"changed", version=0),
                    DocumentChange(path="state/deep/two", data=None),
                    DocumentChange(path="state/three", data=b"3", version=7),
                ],
            )
        assert [(d.path, d.data, d.version) for d in await a.read_tree("state") if d.data] == [("state/one", b"1", 0)]
        assert [d.data for d in await a.read_tree("state/deep")] == [b"2"]
        await a.write_fenced(
            epoch, [DocumentChange(path="state/one", data=None), DocumentChange(path="state/deep/two", data=b"")]
        )
        assert await a.read("state/one") is None

    @pytest.mark.parametrize(
        "change",
        [
            DocumentChange(path="state/there", data=b"x", create=True),
            DocumentChange(path="state/absent", data=b"x"),
            DocumentChange(path="state/there", data=b"x", version=9),
            DocumentChange(path="state/there", data=None, version=9),
            DocumentChange(path="state/absent", data=None),
        ],
        ids=["exists", "absent", "version", "delete version", "delete absent"],
    )
    async def test_stale_changes_are_refused(self, world: World, change: DocumentChange) -> None:
        """A change of something that is not as expected is a StaleWrite, and the leader stays leader."""
        a = await world.join()
        epoch = await lead(a, "a")
        await a.write_fenced(epoch, [DocumentChange(path="state/there", data=b"0", create=True)])
        with pytest.raises(StaleWrite):
            await a.write_fenced(epoch, [change])
        await a.write_fenced(epoch, [])
        node = await a.read("state/there")
        assert node is not None
        assert (node.data, node.version) == (b"0", 0)

    async def test_shared_writes_compare_and_set(self, world: World) -> None:
        """Any sidecar may write shared state, but only over the version that it has read."""
        a, b = await world.join(), await world.join()
        assert await a.write_shared("desired/mode", b"observe", version=None) == 0
        with pytest.raises(StaleWrite):
            await b.write_shared("desired/mode", b"act", version=None)
        assert await b.write_shared("desired/mode", b"recommend", version=0) == 1
        with pytest.raises(StaleWrite):
            await a.write_shared("desired/mode", b"act", version=0)
        with pytest.raises(StaleWrite):
            await a.write_shared("desired/absent", b"act", version=0)
        node = await a.read("desired/mode")
        assert node is not None
        assert (node.path, node.data, node.version) == ("desired/mode", b"recommend", 1)

    async def test_every_write_changes_the_stamp_of_its_node_alone(self, world: World) -> None:
        """A write by any client, a new creation included, changes the stamp. A node with the same stamp need not be
        read again.
        """
        a, b = await world.join(), await world.join()
        epoch, paths = await lead(a, "a"), ["state/one", "state/two"]
        assert await b.stamps(paths) == [None, None]
        await a.write_fenced(epoch, [DocumentChange(path=path, data=b"1", create=True) for path in paths])
        first, other = await b.stamps(paths)
        assert await b.stamps(paths) == [first, other] and None not in (first, other)
        await a.write_fenced(epoch, [DocumentChange(path="state/one", data=b"2")])
        second, same = await b.stamps(paths)
        assert second != first and same == other
        await a.write_fenced(epoch, [DocumentChange(path="state/one", data=None)])
        await a.write_fenced(epoch, [DocumentChange(path="state/one", data=b"3", create=True)])
        assert (await b.stamps(["state/one"]))[0] not in (None, first, second)

    async def test_requests_are_numbered_in_order(self, world: World) -> None:
        """Requests of all replicas get distinct names that sort in the order of arrival."""
        a, b = await world.join(), await world.join()
        names = [await who.create_sequential("requests/r-", data) for who, data in ((a, b"1"), (b, b"2"), (a, b"3"))]
        assert names == sorted(set(names))
        assert all(name.startswith("requests/r-") for name in names)
        assert [(d.path, d.data) for d in await b.read_tree("requests")] == list(
            zip(names, (b"1", b"2", b"3"), strict=True)
        )

    async def test_absent_nodes_are_none_and_empty(self, world: World) -> None:
        """Reading a missing node is not an error."""
        a = await world.join()
        assert await a.read("state/nothing") is None
        assert await a.read_tree("state/nothing") == []

    @pytest.mark.parametrize("path", ["", "/leader", "../other", "state/../../x", "state//x", "state/"])
    async def test_paths_stay_below_the_root(self, world: World, path: str) -> None:
        """No path leads out of our root."""
        a = await world.join()
        epoch = await lead(a, "a")
        with pytest.raises(ValueError, match="path"):
            await a.write_shared(path, b"", version=None)
        with pytest.raises(ValueError, match="path"):
            await a.write_fenced(epoch, [DocumentChange(path=path, data=b"", create=True)])
        with pytest.raises(ValueError, match="path"):
            await a.read(path)

    async def test_changes_wake_those_who_wait(self, world: World) -> None:
        """Leader, seats, desired state (names and contents) and requests wake; the leader's memory does not."""
        a, b = await world.join(), await world.join()
        version = await b.write_shared("desired/mode", b"observe", version=None)
        epoch = await lead(b, "b")

        async def changed_mode() -> None:
            await b.write_shared("desired/mode", b"act", version=version)

        async def seat() -> None:
            await b.take_seat(member("b"), seats=3)

        async def request() -> None:
            await b.create_sequential("requests/r-", b"")

        async def pin() -> None:
            await b.write_shared("desired/pins", b"{}", version=None)

        for change in (changed_mode, seat, request, pin, lambda: b.resign(epoch), lambda: lead(b, "b")):
            await quiet(a)
            waiting = asyncio.ensure_future(a.wait_changed(10.0))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await change()
            assert await waiting
        await quiet(a)
        latest = await b.leader()
        assert latest is not None
        await b.write_fenced(latest.epoch, [DocumentChange(path="state/x", data=b"", create=True)])
        assert not await a.wait_changed(0.3)

    async def test_changes_between_two_waits_are_not_missed(self, world: World) -> None:
        """A change between two waits is reported by the next wait."""
        a, b = await world.join(), await world.join()
        await quiet(a)
        await b.create_sequential("requests/r-", b"")
        assert await a.wait_changed(10.0)

    async def test_a_silent_store_fails_calls_promptly(self, world: World) -> None:
        """While the store is silent every call fails with StoreError soon. Later calls work without a restart."""
        a = await world.join()
        await lead(a, "a")
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: a.read("state/x"),
            lambda: a.read_tree("state"),
            lambda: a.stamps(["state/x"]),
            a.leader,
            a.members,
            lambda: a.take_seat(member("a"), seats=3),
            lambda: a.campaign(member("a")),
            lambda: a.still_leading(1),
            lambda: a.resign(1),
            lambda: a.write_fenced(1, [DocumentChange(path="state/x", data=b"")]),
            lambda: a.write_shared("desired/x", b"", version=None),
            lambda: a.create_sequential("requests/r-", b""),
            a.paths,
            lambda: a.erase(["epoch"]),
        ]
        await world.freeze()
        try:
            for call in calls:
                started = time.monotonic()
                with pytest.raises(StoreError):
                    await call()
                assert time.monotonic() - started < world.patience
            assert await a.wait_changed(0.0) in (True, False)
        finally:
            await world.thaw()
        await lead(a, "a")

    async def test_looking_makes_nothing(self, world: World) -> None:
        """Without a sidecar the store stays empty, also after reads and after it is erased."""
        a, b = await world.join(), await world.join()
        for _ in range(2):
            assert await a.paths() == []
            assert (await a.members(), await a.leader(), await a.read("desired/x")) == ([], None, None)
            assert await a.read_tree("desired") == []
            await asyncio.sleep(0.2)
        await b.take_seat(member("b"), seats=3)
        assert "seats/0" in await a.paths()
        await b.close()
        await a.erase(await a.paths())
        assert await a.paths() == []

    async def test_all_is_erased_or_nothing(self, world: World) -> None:
        """Nothing is deleted if a write came after the paths were listed. After a deletion the store can be used
        again.
        """
        a, b = await world.join(), await world.join()
        await a.write_shared("desired/x", b"1", version=None)
        before = await b.paths()
        assert "desired/x" in before
        await a.take_seat(member("a"), seats=3)
        with pytest.raises(StaleWrite):
            await b.erase(before)
        assert await b.read("desired/x") is not None and len(await b.members()) == 1
        now = await b.paths()
        assert set(now) - set(before) == {"seats/0"}
        await a.close()
        with pytest.raises(StaleWrite):
            await b.erase(now)
        await b.erase(await b.paths())
        assert await b.read("desired/x") is None
        assert await lead(b, "b") == 1

    async def test_closing_gives_everything_up(self, world: World) -> None:
        """Seat and leadership of one who leaves are free at once."""
        a, b = await world.join(), await world.join()
        await a.take_seat(member("a"), seats=3)
        epoch = await lead(a, "a")
        await a.write_fenced(epoch, [DocumentChange(path="state/ledger", data=b"kept", create=True)])
        await a.close()

        async def is_gone() -> bool:
            return await b.leader() is None and await b.members() == []

        await eventually(is_gone, within=1.5)
        assert await lead(b, "b") > epoch
        node = await b.read("state/ledger")
        assert node is not None
        assert node.data == b"kept"

    async def test_the_session_time_out_is_known(self, world: World) -> None:
        """Deadlines are reckoned from the session time-out in force."""
        a = await world.join()
        assert a.connected
        assert a.session_seconds > 0
