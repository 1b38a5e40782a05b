"""Splits that another epoch left open: seen in the boundaries, or waited for, and never carried out again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bundlekeel.leader.execution.intents import FirstSeen
from bundlekeel.leader.execution.move import MovePorts
from bundlekeel.leader.execution.split_intents import SplitIntent, settle_splits, split_path
from bundlekeel.model.channel_states import UnitState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import LeadershipLost
from bundlekeel.ports import DocumentChange
from tests.support.executor_bench import B
from tests.support.extensible_brokers import ExtensibleModel
from tests.support.split_bench import BUNDLE, CHILDREN, POSITION, Bench


async def successor(bench: Bench) -> MovePorts:
    """The world of the leader of epoch 2."""
    other = await bench.depose()
    return replace(bench.world, coordination=other)


async def left_open(bench: Bench, data: bytes = b"") -> MovePorts:
    """An intent of epoch 1 stands, and epoch 2 leads."""
    now = bench.clock.wall_ms()
    intent = SplitIntent(
        id="1.s1", bundle=BUNDLE, broker=B, rule="hot", positions=(POSITION,), epoch=1, member="m1", wall_ms=now,
        deadline_ms=now + 120_000, cycle_id="4",
    )  # fmt: skip
    change = DocumentChange(path=split_path(BUNDLE), data=data or intent.encode(), create=True)
    await bench.coordination.write_fenced(1, [change])
    return await successor(bench)


async def test_a_successor_sees_that_it_was_done() -> None:
    """Boundaries settle it at once: done, no waiting, nothing called."""
    bench = await Bench().lead()
    world = await left_open(bench)
    bench.divided(BUNDLE, CHILDREN)
    frozen, settled, _ = await settle_splits(world, epoch=2, first_seen={})
    assert frozen == frozenset()
    assert [(o.outcome, o.children, o.cycle_id, o.epoch) for o in settled] == [("done", CHILDREN, "4", 2)]
    assert (await world.coordination.read_tree("splits"), bench.calls()) == ([], 0)


async def test_a_successor_waits_until_the_call_must_be_over() -> None:
    """Frozen until the deadline and a margin, then not split, and never repeated."""
    bench = await Bench().lead()
    world = await left_open(bench)
    seen: FirstSeen = {}
    assert await settle_splits(world, epoch=2, first_seen=seen) == (frozenset({BUNDLE}), [], {})
    bench.clock.now += 134
    assert await settle_splits(world, epoch=2, first_seen=seen) == (frozenset({BUNDLE}), [], {})
    bench.clock.now += 2
    frozen, settled, _ = await settle_splits(world, epoch=2, first_seen=seen)
    assert frozen == frozenset()
    assert [(o.outcome, o.code, o.rest_seconds(9)) for o in settled] == [("unknown", Code.LEFT_BY_EARLIER_LEADER, 9)]
    assert bench.calls() == 0


async def test_an_unreadable_intent_is_waited_for_too() -> None:
    """Whatever stands there, its name says which bundle to leave alone."""
    bench = await Bench().lead()
    world = await left_open(bench, b"{")
    seen: FirstSeen = {}
    frozen, settled, unreadable = await settle_splits(world, epoch=2, first_seen=seen)
    assert (frozen, settled, list(unreadable)) == (frozenset({BUNDLE}), [], [split_path(BUNDLE)])
    bench.clock.now += 140
    frozen, settled, _ = await settle_splits(world, epoch=2, first_seen=seen)
    assert (frozen, [o.bundle for o in settled]) == (frozenset(), [BUNDLE])


async def test_own_intents_and_an_unreadable_store() -> None:
    """Our own are not settled; without boundaries an intent stays and its bundle frozen; a lost term ends it."""
    bench = await Bench().lead()
    world = await left_open(bench)
    assert await settle_splits(world, epoch=1, first_seen={}) == (frozenset(), [], {})
    bench.metadata.suspended = True
    bench.clock.now += 500
    seen: FirstSeen = {}
    assert await settle_splits(world, epoch=2, first_seen=seen) == (frozenset({BUNDLE}), [], {})
    bench.clock.now += 500
    bench.metadata.suspended = False
    with pytest.raises(LeadershipLost):
        await settle_splits(bench.world, epoch=3, first_seen=seen)


async def test_boundaries_without_owners_are_waited_for_in_extensible_mode() -> None:
    """The call is still under way while the channel shows the parent splitting; then it is done at once."""
    bench = await Bench(mode="extensible").lead()
    model = bench.model
    assert isinstance(model, ExtensibleModel)
    world = await left_open(bench)
    bench.divided(BUNDLE, CHILDREN)
    model.publish(BUNDLE, UnitState.SPLITTING, "", B)
    assert await settle_splits(world, epoch=2, first_seen={}) == (frozenset({BUNDLE}), [], {})
    for child in CHILDREN:
        model.publish(child, UnitState.OWNED, B)
    assert await settle_splits(world, epoch=2, first_seen={}) == (frozenset({BUNDLE}), [], {})
    model.publish(BUNDLE, UnitState.DELETED, "", B)
    frozen, settled, _ = await settle_splits(world, epoch=2, first_seen={})
    assert (frozen, [o.outcome for o in settled]) == (frozenset(), ["done"])


async def test_boundaries_decide_once_the_call_must_be_over() -> None:
    """A child that no broker owns then is the business of the next lookup, or of the brokers' leader."""
    bench = await Bench(mode="extensible").lead()
    world = await left_open(bench)
    bench.divided(BUNDLE, CHILDREN)
    seen: FirstSeen = {}
    assert await settle_splits(world, epoch=2, first_seen=seen) == (frozenset({BUNDLE}), [], {})
    bench.clock.now += 140
    frozen, settled, _ = await settle_splits(world, epoch=2, first_seen=seen)
    assert (frozen, [(o.outcome, o.children) for o in settled]) == (frozenset(), [("done", CHILDREN)])
