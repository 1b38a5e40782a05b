"""Intents of earlier terms and the record of a move, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.leader.execution.intents import (
    LONGEST_MS,
    Intent,
    MoveOutcome,
    decode_intent,
    intent_path,
    settle_intents,
)
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.ports import Document, DocumentChange, Owner
from tests.support.executor_bench import BUNDLE, TOPIC, A, B, C
from tests.unit.leader.execution.test_executor_intents import MARGIN, Successor, intent

# --- intents of earlier terms ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("length_ms", "good"), [(0, True), (LONGEST_MS, True), (-1, False), (LONGEST_MS + 1, False)])
def test_which_deadlines_a_leader_writes(length_ms: int, good: bool) -> None:
    """Within a day of when it was written; any other would freeze the bundle for years."""
    data = intent().encode().replace(b"5120000", str(5_000_000 + length_ms).encode())
    document = Document(path=intent_path(BUNDLE), data=data, version=0)
    assert LONGEST_MS == 24 * 3600 * 1000
    if good:
        assert decode_intent(document).deadline_ms == 5_000_000 + length_ms
    else:
        with pytest.raises(CodecError, match="more than a day"):
            decode_intent(document)


@pytest.mark.parametrize("landed", [C, ""])
async def test_every_field_of_what_was_settled(landed: str) -> None:
    """As its intent told it, and what was found; without an owner it ends when it is settled. The margin is 15 s."""
    successor = await Successor().start()
    await successor.find(intent().encode())
    if landed:
        successor.ownership.owners[BUNDLE] = Owner(broker_id=landed)

    async def settle() -> Any:
        return await settle_intents(
            successor.coordination, successor.ownership, epoch=2, clock=successor.clock, first_seen=successor.seen
        )

    assert (await settle()).frozen == {BUNDLE}
    successor.clock.now += 120 + MARGIN - 0.5
    assert (await settle()).frozen == {BUNDLE}
    successor.clock.now += 0.5
    found = await settle()
    assert found.settled == (
        MoveOutcome(
            bundle=BUNDLE,
            source=A,
            destination=B,
            outcome="landed_elsewhere" if landed else "unknown",
            code=Code.LEFT_BY_EARLIER_LEADER,
            error="left unfinished by the leader of epoch 1",
            landed_on=landed,
            started_wall_ms=5_000_000,
            landed_wall_ms=5_135_000 if landed else 0,
            seconds=0.0 if landed else 135.0,
            topic="persistent://t/n/x",
            epoch=2,
            intent_id="1.1",
            cycle_id="7",
        ),
    )
    assert found.unreadable == {}


async def test_nodes_that_are_no_intents() -> None:
    """One of no bundle is left where it is and named; one that cannot be read is named until it is settled."""
    successor = await Successor().start()
    await successor.find(b"{")
    strange = DocumentChange(path="intents/what", data=Intent.encode(intent()), create=True)
    await successor.coordination.write_fenced(2, [strange])
    for frozen in ({BUNDLE}, set()):
        found = await settle_intents(
            successor.coordination, successor.ownership, epoch=2, clock=successor.clock, first_seen=successor.seen
        )
        assert (set(found.frozen), set(found.unreadable)) == (frozen, {intent_path(BUNDLE), "intents/what"})
        assert found.unreadable["intents/what"] == "its name is not a bundle name"
        successor.clock.now += 120 + MARGIN
    assert found.settled == (
        MoveOutcome(
            bundle=BUNDLE,
            source="",
            destination="",
            outcome="unknown",
            code=Code.LEFT_BY_EARLIER_LEADER,
            error="the intent could not be read",
            epoch=2,
        ),
    )
    assert await successor.coordination.read("intents/what") is not None


# --- the record ------------------------------------------------------------------------------------------------


def test_the_whole_record_of_a_move() -> None:
    """As the journal and the history have it."""
    outcome = MoveOutcome(
        bundle=BUNDLE,
        source=B,
        destination=C,
        outcome="landed_elsewhere",
        code="x",
        error="e",
        landed_on=A,
        started_wall_ms=1_000,
        landed_wall_ms=3_000,
        seconds=2.00049,
        hops=(A, B),
        topic=TOPIC,
        epoch=4,
        intent_id="4.2",
        cycle_id="9",
        predicted=(0.1234567, 0.2),
    )
    assert outcome.record() == {
        "kind": "move",
        "wall_ms": 3_000,
        "bundle": BUNDLE,
        "source": B,
        "destination": C,
        "landed_on": A,
        "outcome": "landed_elsewhere",
        "code": "x",
        "error": "e",
        "started_ms": 1_000,
        "landed_ms": 3_000,
        "seconds": 2.0,
        "hops": [A, B],
        "topic": TOPIC,
        "epoch": 4,
        "intent": "4.2",
        "cycle": "9",
        "predicted": {"source_before": 0.12346, "source_after": 0.2},
        "sentence": f"{BUNDLE}: {B} -> {C}, landed elsewhere, owned by {A} (x: e)",
    }


@pytest.mark.parametrize(
    ("known", "ending"),
    [
        ({"outcome": "done", "landed_on": C}, f"done, owned by {C}"),
        ({"outcome": "released"}, "released, owned by no broker"),
        ({"outcome": "unknown", "code": "NobodyOwns"}, "unknown, owned by no broker (NobodyOwns)"),
        ({"outcome": "refused", "code": "AdminRefused", "error": "409"}, "refused (AdminRefused: 409)"),
    ],
)
def test_the_sentence_of_a_move_says_why_it_failed(known: dict[str, Any], ending: str) -> None:
    """A bundle whose move was refused stays with its broker: nothing is said of an owner."""
    record = MoveOutcome(bundle=BUNDLE, source=B, destination=C, **known).record()
    assert record["sentence"] == f"{BUNDLE}: {B} -> {C}, {ending}"


BEGUN = 1_790_000_000_000


@pytest.mark.parametrize(
    ("known", "ended_ms"),
    [
        ({"outcome": "done", "landed_on": "b", "landed_wall_ms": BEGUN + 11_000}, BEGUN + 11_000),
        ({"outcome": "unknown"}, BEGUN + 12_000),
        ({"outcome": "refused"}, BEGUN + 12_000),
    ],
)
def test_when_a_record_says_that_a_move_ended(known: dict[str, Any], ended_ms: int) -> None:
    """Cool-downs and the journal's order go by it. A landing is when the owner was seen, not when that was written
    down; without one it is when the wait ended, not when it was admitted."""
    outcome = MoveOutcome(
        bundle="t/n/0x0_0x1", source="a", destination="b", started_wall_ms=BEGUN, seconds=12.0, **known
    )
    assert outcome.record()["wall_ms"] == ended_ms
