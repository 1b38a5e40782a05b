"""One split over fakes: calls, refusals, verification, and the settling of open intents."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bundlekeel.leader.execution.split_intents import split_path
from bundlekeel.leader.execution.splits import SplitPolicy
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import (
    AdminFault,
    AdminRefused,
    AdminTimeout,
    AdminUnauthorized,
    AdminUnreachable,
    LeadershipLost,
)
from bundlekeel.model.load import TopicLoad
from bundlekeel.model.names import FULL_UPPER
from bundlekeel.model.plan import Refusal
from bundlekeel.ports import DocumentChange, Owner
from tests.support.executor_bench import B, C, LosesAnAnswer
from tests.support.memory_admin import Fault
from tests.support.split_bench import BUNDLE, CHILDREN, EDGES, POSITION, TWO_HOT, Bench, topic

# --- done ----------------------------------------------------------------------------------------------------


async def test_both_hot_topics_are_parted_and_that_is_read_again() -> None:
    """Positions by load, one call at the owner, boundaries hold them, the intent is gone, children were announced."""
    bench = await Bench().lead()
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code, outcome.positions) == ("done", "", (POSITION,))
    assert outcome.children == CHILDREN
    assert bench.metadata.bundle_boundaries["t/n"] == [0, POSITION, 0x40000000, FULL_UPPER]
    assert [(current.at, current.positions) for current in bench.model.splits] == [(B, (POSITION,))]
    assert [(split.children, round(split.shares[0][0], 3)) for split in bench.prepared] == [(CHILDREN, 0.515)]
    assert outcome.split == bench.prepared[0]
    assert await bench.intents() == []
    record = outcome.record()
    assert json.loads(json.dumps(record)) == record
    assert (record["kind"], record["rule"], record["children"], record["cycle"]) == (
        "split",
        "hot",
        list(CHILDREN),
        "9",
    )
    assert CHILDREN[1] in record["sentence"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("hot", POSITION),
        ("msg_rate", POSITION),
        ("bandwidth", POSITION),
        ("topics", 0x09000000),
        ("sessions", 0x01800000),
    ],
)
async def test_what_the_rule_is_about_is_divided(rule: str, expected: int) -> None:
    """Load by load, topics by number, sessions by sessions."""
    busy = (topic(0x01000000, 1, sessions=4), *TWO_HOT[1:])
    bench = await Bench(*busy).lead()
    assert (await bench.split(rule)).positions == (expected,)


async def test_the_intent_stands_while_the_call_is_made() -> None:
    """Written before the call, with all a successor needs."""
    bench = await Bench().lead()
    results: list[bytes] = []

    def record_children(bundle: str, children: tuple[str, ...]) -> None:
        results.append(bench.store.nodes[split_path(BUNDLE)].data)
        bench.divided(bundle, children)

    bench.model.after_split = record_children
    await bench.split()
    intent = json.loads(results[0])
    assert intent["positions"] == [POSITION]
    assert (intent["broker"], intent["epoch"], intent["member"], intent["rule"]) == (B, 1, "m1", "hot")
    assert intent["deadline_ms"] - intent["wall_ms"] == 120_000


@pytest.mark.parametrize("error", [AdminTimeout("late"), AdminFault("broken", status=500)])
async def test_an_unknown_answer_is_settled_by_reading(error: Exception) -> None:
    """The call took effect although its answer was lost: done, and asked for once."""
    bench = await Bench().lead()
    bench.admin.fail("split", Fault(error=error, after=True))
    outcome = await bench.split()
    assert (outcome.outcome, outcome.children, bench.calls()) == ("done", CHILDREN, 1)
    assert outcome.error


async def test_boundaries_that_come_late_are_waited_for() -> None:
    """The broker stores them seconds after its answer was lost."""
    bench = await Bench().lead()
    bench.model.splits_nothing = True
    bench.admin.fail("split", Fault(error=AdminTimeout("late"), after=True))
    slow = bench.clock.sleep

    async def sleep(seconds: float) -> None:
        await slow(seconds)
        if bench.clock.now > 1003:
            bench.divided(BUNDLE, CHILDREN)

    bench.clock.sleep = sleep  # type: ignore[method-assign]
    outcome = await bench.split()
    assert (outcome.outcome, bench.calls()) == ("done", 1)
    assert 3 < outcome.seconds < 5


# --- not done ------------------------------------------------------------------------------------------------


async def test_without_an_answer_and_without_boundaries_it_is_unknown() -> None:
    """Never repeated; ten seconds of reading, then the word for it."""
    bench = await Bench().lead()
    bench.admin.fail("split", Fault(error=AdminTimeout("late")))
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code, bench.calls()) == ("unknown", Code.NO_ANSWER, 1)
    assert outcome.seconds == pytest.approx(10, abs=1)
    assert (outcome.children, outcome.rest_seconds(1800)) == ((), 1800)
    assert await bench.intents() == []


async def test_an_unreadable_store_leaves_it_unknown() -> None:
    """The broker may have split; who cannot read cannot tell."""
    bench = await Bench().lead()
    bench.model.after_split = lambda _bundle, _children: setattr(bench.metadata, "suspended", True)
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code, outcome.rest_seconds(1800)) == ("unknown", Code.STORE_UNAVAILABLE, 1800)


async def test_a_success_that_split_nothing_is_told() -> None:
    """204, and the boundaries are as they were."""
    bench = await Bench().lead()
    bench.model.splits_nothing = True
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code, bench.calls()) == ("refused", Code.NOTHING_SPLIT, 1)


@pytest.mark.parametrize(
    ("topics", "code"),
    [
        ((topic(1, 5.0),), Code.SINGLE_TOPIC),
        ((topic(7, 5.0), TopicLoad(topic="persistent://t/n/other", hash=7)), Code.SAME_HASH),
        ((topic(1, 95.0), topic(2, 5.0)), Code.DOMINANT_TOPIC),
        ((topic(1, 5.0), topic(0x50000000, 5.0)), Code.SINGLE_TOPIC),
    ],
    ids=["one topic", "one hash", "one carries all", "hash of another bundle"],
)
async def test_topics_that_cannot_be_parted(topics: tuple[TopicLoad, ...], code: Code) -> None:
    """A typed answer with advice; nothing is announced, nothing called."""
    bench = await Bench(*topics).lead()
    writes = bench.store.writes
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code) == ("refused", code)
    assert "add partitions" in outcome.error
    assert (bench.calls(), bench.store.writes, bench.prepared) == (0, writes, [])


async def test_topics_without_statistics_are_not_parted_blindly() -> None:
    """A broker that has just got the bundle knows no rates: tried again later; by number of topics it can be done."""
    bench = await Bench(topic(1, 0.0), topic(2, 0.0)).lead()
    outcome = await bench.split("hot")
    assert (outcome.outcome, outcome.code, outcome.rest_seconds(1800)) == ("refused", Code.NO_LOAD_DATA, 60)
    assert bench.calls() == 0
    assert (await bench.split("topics")).outcome == "done"


def _remove_bundle(bench: Bench) -> None:
    bench.metadata.bundle_boundaries["t/n"] = [0, 0x20000000, 0x40000000, FULL_UPPER]


def _unloading(bench: Bench) -> None:
    bench.model.owners[BUNDLE] = Owner(broker_id=B, disabled=True)


def _full(bench: Bench) -> None:
    bench.metadata.bundle_boundaries["t/n"] = [*EDGES[:2], *range(0x40000001, 0x40000001 + 126), FULL_UPPER]


@pytest.mark.parametrize(
    ("prepare", "code", "passing"),
    [
        (_remove_bundle, Code.NO_SUCH_BUNDLE, False),
        (lambda b: b.metadata.bundle_boundaries.clear(), Code.NO_SUCH_BUNDLE, False),
        (lambda b: b.model.own(BUNDLE, C), Code.OWNER_CHANGED, True),
        (lambda b: b.model.owners.clear(), Code.UNOWNED, False),
        (_unloading, Code.IN_TRANSIT, True),
        (_full, Code.NAMESPACE_MAXIMUM, False),
        (lambda b: setattr(b.metadata, "suspended", True), Code.STORE_UNAVAILABLE, True),
        (lambda b: b.admin.fail("topic_loads", Fault(error=AdminUnreachable("off"))), Code.ADMIN_UNREACHABLE, True),
        (lambda b: b.admin.fail("split", Fault(error=AdminUnreachable("off"))), Code.ADMIN_UNREACHABLE, True),
        (lambda b: b.admin.fail("split", Fault(error=AdminRefused("412", status=412))), Code.ADMIN_REFUSED, False),
        (lambda b: b.admin.fail("split", Fault(error=AdminUnauthorized("401"))), Code.ADMIN_UNAUTHORIZED, False),
    ],
)  # fmt: skip
async def test_refusals(prepare: Callable[[Bench], None], code: Code, passing: bool) -> None:
    bench = await Bench().lead()
    prepare(bench)
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code, outcome.rest_seconds(1800)) == ("refused", code, 60 if passing else 1800)
    assert BUNDLE not in {split.bundle for split in bench.model.splits}
    assert await bench.intents() == []


async def test_policy_is_asked_first() -> None:
    """A pause stops a split before anything is read."""
    bench = await Bench().lead()

    async def paused(bundle: str) -> Refusal:
        return Refusal(code=Code.PAUSED, bundle=bundle, detail="by me")

    bench.splitter.policy = paused
    outcome = await bench.split()
    assert (outcome.code, outcome.error, bench.admin.calls) == (Code.PAUSED, "by me", [])
    assert outcome.rest_seconds(1800) == 0


async def test_policy_is_asked_again_before_the_intent() -> None:
    bench = await Bench().lead()

    async def paused_meanwhile(bundle: str) -> Refusal | None:
        has_warning = any(call[0] == "topic_loads" for call in bench.admin.calls)
        return Refusal(code=Code.PAUSED, bundle=bundle, detail="by me") if has_warning else None

    bench.splitter.policy = paused_meanwhile
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code, outcome.error) == ("refused", Code.PAUSED, "by me")
    assert (bench.calls(), await bench.intents()) == (0, [])


async def test_nothing_is_begun_while_stopping() -> None:
    """After `stop` every split is refused."""
    bench = await Bench().lead()
    await bench.splitter.stop(1.0)
    assert (await bench.split()).code == Code.STOPPING


# --- the end of a term ---------------------------------------------------------------------------------------


async def test_a_deposed_leader_calls_nothing() -> None:
    """The intent cannot be written: nothing is called, and no other split begins."""
    bench = await Bench().lead()
    await bench.depose()
    assert (await bench.split()).code == Code.NOT_LEADER
    assert (await bench.split()).code == Code.NOT_LEADER
    assert bench.calls() == 0


async def test_a_deadline_that_passes_before_the_call_leaves_the_intent() -> None:
    """The permit is withdrawn: nothing leaves; the successor finds the intent and settles it."""
    bench = await Bench().lead()
    bench.permit.error = LeadershipLost("our deadline has passed")
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code) == ("refused", Code.NOT_LEADER)
    assert (bench.prepared, bench.calls()) == ([], 0)
    assert await bench.intents() == [split_path(BUNDLE)]


async def test_an_intent_that_may_stand_is_removed_before_the_next_split() -> None:
    """The write arrived, its answer did not: refused without a call; the next attempt clears it away first."""
    bench = Bench(coordination=LosesAnAnswer)
    await bench.lead()
    outcome = await bench.split()
    assert (outcome.code, bench.calls(), await bench.intents()) == (Code.STORE_UNAVAILABLE, 0, [split_path(BUNDLE)])
    assert (await bench.split()).outcome == "done"
    assert await bench.intents() == []


async def test_an_intent_of_somebody_else_is_in_the_way() -> None:
    """It is not ours to remove: the bundle is frozen."""
    bench = await Bench().lead()
    await bench.coordination.write_fenced(1, [DocumentChange(path=split_path(BUNDLE), data=b"left", create=True)])
    assert (await bench.split()).code == Code.FROZEN_INTENT
    assert (await bench.intents(), bench.calls()) == ([split_path(BUNDLE)], 0)


async def test_a_store_that_is_away_while_the_intent_is_written() -> None:
    """Refused without a call; the store is back, and so is the split."""
    bench = await Bench().lead()
    bench.splitter.policy = _freezing(bench)
    outcome = await bench.split()
    assert (outcome.code, bench.calls()) == (Code.STORE_UNAVAILABLE, 0)
    bench.store.thaw()
    bench.splitter.policy = _allowing
    assert (await bench.split()).outcome == "done"


def _freezing(bench: Bench) -> SplitPolicy:
    async def policy(_bundle: str) -> Refusal | None:
        bench.store.freeze()
        return None

    return policy


async def _allowing(_bundle: str) -> Refusal | None:
    return None
