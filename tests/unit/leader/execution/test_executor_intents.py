"""A new leader waits for intents of other epochs, then reads the owner, and never executes them."""

from __future__ import annotations

import pytest

from bundlekeel.leader.execution.intents import (
    IN_FLIGHT_SECONDS,
    INTENT_SECONDS,
    FirstSeen,
    Intent,
    MoveOutcome,
    decode_intent,
    intent_path,
    settle_intents,
)
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError, LeadershipLost, StoreError
from bundlekeel.model.members import Member
from bundlekeel.ports import Document, DocumentChange, Owner
from tests.support.memory_coordination import MemoryCoordination, MemoryStore
from tests.support.memory_source import MemoryOwnership

BUNDLE = "t/n/0x00000000_0x40000000"
A, B, C = "b1:8080", "b2:8080", "b3:8080"
MARGIN = 15.0


class SteppedClock:
    """Clock that advances only by request of the test."""

    def __init__(self) -> None:
        self.now, self.skew = 5000.0, 0.0

    def boot(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int((self.now + self.skew) * 1000)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def intent(epoch: int = 1, *, wall_ms: int = 5_000_000) -> Intent:
    """An intent written at the clock's start, for two minutes."""
    return Intent(
        id=f"{epoch}.1",
        bundle=BUNDLE,
        source=A,
        destination=B,
        epoch=epoch,
        member="m1",
        wall_ms=wall_ms,
        deadline_ms=wall_ms + 120_000,
        cycle_id="7",
        topic="persistent://t/n/x",
    )


class Successor:
    """The leader of epoch 2, who finds intents."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.coordination = MemoryCoordination(self.store)
        self.ownership = MemoryOwnership()
        self.clock = SteppedClock()
        self.seen: FirstSeen = {}
        self.changes: list[DocumentChange] = []
        self.outcomes: list[MoveOutcome] = []

    async def start(self) -> Successor:
        await self.coordination.start()
        for _ in range(2):
            self.store.expire(self.coordination)
            await self.coordination.campaign(Member(id="m2"))
        return self

    async def find(self, data: bytes) -> None:
        await self.coordination.write_fenced(2, [DocumentChange(path=intent_path(BUNDLE), data=data, create=True)])

    async def settle(self) -> tuple[frozenset[str], list[tuple[str, str, str]]]:
        """Settle once: return the frozen bundles, and (outcome, code, landed on) of the settled ones."""
        result = await settle_intents(
            self.coordination,
            self.ownership,
            epoch=2,
            clock=self.clock,
            first_seen=self.seen,
            margin_seconds=MARGIN,
            changes=lambda _outcome: self.changes,
        )
        self.outcomes.extend(result.settled)
        return result.frozen, [(o.outcome, o.code, o.landed_on) for o in result.settled]

    async def stands(self) -> bool:
        return await self.coordination.read(intent_path(BUNDLE)) is not None


@pytest.fixture
async def successor() -> Successor:
    """A leading successor."""
    return await Successor().start()


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (Owner(broker_id=C), ("landed_elsewhere", Code.LEFT_BY_EARLIER_LEADER, C)),
        (Owner(broker_id=A), ("landed_elsewhere", Code.LEFT_BY_EARLIER_LEADER, A)),
        (None, ("unknown", Code.LEFT_BY_EARLIER_LEADER, "")),
    ],
)
async def test_frozen_until_deadline_and_margin_then_read(
    successor: Successor, owner: Owner | None, expected: tuple[str, str, str]
) -> None:
    """The bundle is left alone while the old call may be on its way; then its owner is the answer."""
    await successor.find(intent().encode())
    if owner is not None:
        successor.ownership.owners[BUNDLE] = owner
    successor.changes = [DocumentChange(path="moves/1", data=b"x", create=True)]
    assert await successor.settle() == (frozenset({BUNDLE}), [])
    successor.clock.now += 120 + MARGIN - 0.01
    assert await successor.settle() == (frozenset({BUNDLE}), [])
    successor.clock.now += 0.01
    assert await successor.settle() == (frozenset(), [expected])
    assert not await successor.stands()
    assert await successor.coordination.read("moves/1") is not None
    assert await successor.settle() == (frozenset(), [])


async def test_settled_as_soon_as_its_destination_owns_it(successor: Successor) -> None:
    await successor.find(intent().encode())
    successor.ownership.assign(A, BUNDLE, disabled=True)
    assert await successor.settle() == (frozenset({BUNDLE}), [])
    successor.clock.now += 1
    successor.ownership.assign(B, BUNDLE)
    assert await successor.settle() == (frozenset(), [("done", "", B)])
    assert not await successor.stands()


async def test_settled_without_an_owner_ends_when_it_is_settled(successor: Successor) -> None:
    await successor.find(intent().encode())
    await successor.settle()
    successor.clock.now += 120 + MARGIN
    await successor.settle()
    (result,) = successor.outcomes
    assert result.record()["wall_ms"] == successor.clock.wall_ms()


async def test_on_its_way_is_no_outcome_yet(successor: Successor) -> None:
    """While its owner gives it away the bundle stays frozen; who has it then is the outcome."""
    await successor.find(intent().encode())
    successor.ownership.assign(A, BUNDLE, disabled=True)
    successor.clock.now += 120 + MARGIN
    assert await successor.settle() == (frozenset({BUNDLE}), [])
    successor.clock.now += IN_FLIGHT_SECONDS - 0.01
    assert await successor.settle() == (frozenset({BUNDLE}), [])
    successor.ownership.assign(B, BUNDLE)
    assert await successor.settle() == (frozenset(), [("done", "", B)])


async def test_on_its_way_for_good_is_unknown(successor: Successor) -> None:
    await successor.find(intent().encode())
    successor.ownership.assign(A, BUNDLE, disabled=True)
    await successor.settle()
    successor.clock.now += 120 + MARGIN + IN_FLIGHT_SECONDS
    assert await successor.settle() == (frozenset(), [("unknown", Code.LEFT_BY_EARLIER_LEADER, "")])
    assert not await successor.stands()


async def test_a_writer_whose_clock_was_ahead(successor: Successor) -> None:
    """An intent from the future is settled after its own length, counted from when we saw it, not in an hour."""
    await successor.find(intent(wall_ms=5_000_000 + 3_600_000).encode())
    assert (await successor.settle())[0] == {BUNDLE}
    successor.clock.now += 120 + MARGIN
    assert (await successor.settle())[0] == frozenset()


async def test_our_own_intents_are_not_touched(successor: Successor) -> None:
    """An intent of this epoch belongs to the executor."""
    await successor.find(intent(epoch=2, wall_ms=0).encode())
    assert await successor.settle() == (frozenset(), [])
    assert await successor.stands()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"id": 1}', intent().encode()[:-20]])
async def test_what_cannot_be_read_stays_frozen_for_the_usual_length(successor: Successor, data: bytes) -> None:
    """A torn or foreign node freezes the bundle its path names, then is removed as unknown."""
    with pytest.raises(CodecError):
        decode_intent(Document(path=intent_path(BUNDLE), data=data, version=0))
    await successor.find(data)
    successor.ownership.assign(B, BUNDLE)
    assert (await successor.settle())[0] == {BUNDLE}
    successor.clock.now += INTENT_SECONDS + MARGIN
    assert await successor.settle() == (frozenset(), [("unknown", Code.LEFT_BY_EARLIER_LEADER, B)])
    assert not await successor.stands()


async def test_a_store_that_fails_leaves_it_frozen(successor: Successor) -> None:
    """No owner, no outcome: the next look decides."""
    await successor.find(intent().encode())
    await successor.settle()
    successor.clock.now += 120 + MARGIN
    successor.ownership.suspended = True
    assert await successor.settle() == (frozenset({BUNDLE}), [])
    successor.ownership.suspended = False
    assert len((await successor.settle())[1]) == 1
    successor.store.freeze()
    with pytest.raises(StoreError):
        await successor.settle()


async def test_a_deposed_leader_settles_nothing(successor: Successor) -> None:
    """The removal is fenced."""
    await successor.find(intent().encode())
    await successor.settle()
    successor.clock.now += 120 + MARGIN
    other = MemoryCoordination(successor.store)
    await other.start()
    successor.store.expire(successor.coordination)
    assert await other.campaign(Member(id="m3")) == 3
    with pytest.raises(LeadershipLost):
        await successor.settle()
    assert await successor.stands()


def test_round_trip() -> None:
    document = Document(path=intent_path(BUNDLE), data=intent().encode(), version=0)
    assert decode_intent(document) == intent()
    assert "/" not in document.path.removeprefix("intents/")
