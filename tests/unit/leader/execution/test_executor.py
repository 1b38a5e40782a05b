"""Moves: outcomes derived from the ownership, at most one unload per intent, and remaining intents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.leader.execution.intents import MoveOutcome, MoveRequest, intent_path
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import (
    AdminFault,
    AdminRefused,
    AdminTimeout,
    AdminUnauthorized,
    AdminUnreachable,
    BundlekeelError,
    ConnectionRefused,
    LeadershipLost,
    RedirectLoop,
    StoreError,
    UnknownHostRedirect,
)
from bundlekeel.model.plan import Refusal
from bundlekeel.ports import DocumentChange, Owner
from tests.support.executor_bench import BUNDLE, TOPIC, A, B, Bench, C
from tests.support.memory_admin import Fault


@pytest.fixture
async def bench() -> Bench:
    """A leading bench."""
    return await Bench().lead()


async def test_a_move_lands_where_it_was_asked(bench: Bench) -> None:
    written: list[bytes] = []

    def remember(_bundle: str) -> None:
        written.append(bench.store.nodes[intent_path(BUNDLE)].data)

    bench.model.after_unload = remember
    outcome = await bench.move()
    assert (outcome.outcome, outcome.landed_on, outcome.code) == ("done", C, "")
    assert (outcome.hops, outcome.topic, outcome.epoch, outcome.cycle_id) == ((A, B), TOPIC, 1, "9")
    intent = json.loads(written[0])
    assert intent == {
        "id": outcome.intent_id,
        "bundle": BUNDLE,
        "from": B,
        "to": C,
        "epoch": 1,
        "member": "m1",
        "wall_ms": 1_000_000,
        "deadline_ms": 1_120_000,
        "cycle_id": "9",
        "topic": TOPIC,
    }
    assert await bench.intents() == []
    assert bench.heard == [outcome]
    assert bench.executor.in_flight == ()


async def test_the_record_is_written_with_the_removal_of_the_intent(bench: Bench) -> None:
    """One transaction removes the intent and records the move."""

    def record(outcome: MoveOutcome) -> Sequence[DocumentChange]:
        return [DocumentChange(path="moves/0001", data=outcome.outcome.encode(), create=True)]

    bench.executor = bench.build(changes=record)
    await bench.move()
    document = await bench.coordination.read("moves/0001")
    assert document is not None
    assert document.data == b"done"


@pytest.mark.parametrize(
    ("prepare", "request_", "code"),
    [
        (lambda b: b.model.own(BUNDLE, A), (B, C), Code.OWNER_CHANGED),
        (lambda b: b.model.owners.clear(), (B, C), Code.UNOWNED),
        (lambda b: b.model.owners.update({BUNDLE: Owner(broker_id=B, disabled=True)}), (B, C), Code.IN_TRANSIT),
        (lambda _b: None, (B, B), Code.SAME_BROKER),
        (lambda b: b.store.freeze(), (B, C), Code.STORE_UNAVAILABLE),
    ],
    ids=["owner changed", "unowned", "disabled", "same broker", "store away"],
)
async def test_refused_before_anything_is_called(
    bench: Bench, prepare: Callable[[Bench], None], request_: tuple[str, str], code: str
) -> None:
    prepare(bench)
    outcome = await bench.move(*request_)
    assert (outcome.outcome, outcome.code) == ("refused", code)
    assert bench.unloads() == 0


async def test_the_policy_may_refuse(bench: Bench) -> None:
    """The hook's code and detail become the refusal."""

    async def policy(_request: MoveRequest) -> Refusal | None:
        return Refusal(code=Code.EXCLUDED, detail="isolated")

    bench.executor = bench.build(policy=policy)
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code, outcome.error) == ("refused", Code.EXCLUDED, "isolated")
    assert bench.admin.calls == []


async def test_system_bundles_never_move(bench: Bench) -> None:
    outcome = await bench.executor.move(
        MoveRequest(bundle="pulsar/system/0x00000000_0xffffffff", source=B, destination=C)
    )
    assert outcome.code == Code.SYSTEM_BUNDLE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AdminRefused("409", status=409), Code.ADMIN_REFUSED),
        (AdminUnauthorized("401", status=401), Code.ADMIN_UNAUTHORIZED),
        (AdminUnreachable("no answer"), Code.ADMIN_UNREACHABLE),
        (ConnectionRefused("refused"), Code.ADMIN_UNREACHABLE),
        (BundlekeelError("mode is recommend"), Code.NOT_PERMITTED),
    ],
)
async def test_provably_nothing_happened(bench: Bench, error: Exception, code: Code) -> None:
    """A known refusal ends the move at once and removes its intent."""
    bench.admin.fail("unload", Fault(error=error))
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("refused", code)
    assert await bench.intents() == []
    assert bench.model.owners[BUNDLE].broker_id == B


@pytest.mark.parametrize("kind", [AdminTimeout, AdminFault, RedirectLoop, UnknownHostRedirect])
@pytest.mark.parametrize("after", [False, True], ids=["no effect", "took effect"])
async def test_an_unknown_answer_is_settled_by_reading(bench: Bench, kind: type[BundlekeelError], after: bool) -> None:
    bench.admin.fail("unload", Fault(error=kind("?"), after=after))
    outcome = await bench.move()
    assert bench.unloads() == 1
    if after:
        assert (outcome.outcome, outcome.landed_on) == ("done", C)
    else:
        assert (outcome.outcome, outcome.code, outcome.landed_on) == ("unknown", Code.NO_ANSWER, "")
        assert outcome.seconds == pytest.approx(10, abs=0.5)
    assert await bench.intents() == []


@pytest.mark.parametrize(("thief", "code"), [(A, Code.LANDED_ELSEWHERE), (B, Code.STILL_AT_SOURCE)])
async def test_another_broker_was_faster(bench: Bench, thief: str, code: Code) -> None:
    """A client's lookup may win the race: never reported as done."""
    bench.model.after_unload = lambda bundle: bench.model.own(bundle, thief)
    outcome = await bench.move()
    assert (outcome.outcome, outcome.landed_on, outcome.code) == ("landed_elsewhere", thief, code)
    assert outcome.seconds < 1


async def test_nobody_takes_it(bench: Bench) -> None:
    """An unowned bundle is claimed until time is up, ever less often; it is not unloaded again."""
    bench.admin.fail("claim", *[Fault(error=AdminFault("503"))] * 1000)
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("unknown", Code.NOBODY_OWNS)
    assert 3 < sum(call[0] == "claim" for call in bench.admin.calls) < 20
    assert bench.unloads() == 1
    claims = len(bench.admin.calls)
    await bench.clock.sleep(5)
    assert len(bench.admin.calls) == claims


async def test_a_refused_unload_is_not_claimed(bench: Bench) -> None:
    bench.admin.fail("unload", Fault(error=AdminRefused("409")))
    assert (await bench.move()).outcome == "refused"
    await bench.clock.sleep(5)
    assert not any(call[0] == "claim" for call in bench.admin.calls)
    assert bench.model.owners[BUNDLE].broker_id == B


async def test_a_claim_that_failed_is_made_again(bench: Bench) -> None:
    """A lookup is harmless to repeat while no broker owns the bundle."""
    bench.admin.fail("claim", Fault(error=AdminTimeout("?")))
    assert (await bench.move()).outcome == "done"


async def test_a_bundle_without_topics_is_told_by_its_owner_alone(bench: Bench) -> None:
    """Nothing to look up: the armed affinity sends the first client to the destination."""
    bench.model.topics[BUNDLE].clear()
    request_task = asyncio.ensure_future(bench.move())
    while bench.unloads() == 0:  # noqa: ASYNC110
        await asyncio.sleep(0)
    bench.model.topics[BUNDLE].append(TOPIC)
    redirected = bench.model.lookup(TOPIC, at=A, authoritative=False)
    bench.model.lookup(TOPIC, at=redirected.to, authoritative=True)
    outcome = await request_task
    assert (outcome.outcome, outcome.topic) == ("done", "")
    assert not any(call[0] == "claim" for call in bench.admin.calls)


async def test_topics_from_metadata_when_the_owner_cannot_say(bench: Bench) -> None:
    """The owner is asked first, the metadata second."""
    bench.admin.fail("topics_of_bundle", Fault(error=AdminFault("500")))
    bench.metadata.add_topics(["persistent://t/n/t0", *[f"persistent://t/n/x{i}" for i in range(20)]])
    names = await bench.metadata.topics(BUNDLE)
    bench.model.topics[BUNDLE].extend(names)
    outcome = await bench.move()
    assert (outcome.outcome, outcome.topic) == ("done", min(names))


async def test_without_a_known_leader_the_owner_is_asked(bench: Bench) -> None:
    """The owner redirects to the leader it knows."""
    bench.metadata.suspended = True
    assert (await bench.move()).hops == (B, A, B)


async def test_lost_before_the_call(bench: Bench) -> None:
    """The permit is re-checked after the intent: nothing is called, nothing more is written, no more is admitted."""
    bench.permit.error = LeadershipLost("deadline")
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("refused", Code.NOT_LEADER)
    assert (bench.unloads(), await bench.intents()) == (0, [intent_path(BUNDLE)])
    bench.permit.error = None
    assert (await bench.move()).code == Code.NOT_LEADER
    assert bench.admin.calls == [("topics_of_bundle", BUNDLE, B)]


async def test_lost_after_the_call(bench: Bench) -> None:
    async def depose() -> None:
        await bench.depose()

    tasks: list[asyncio.Task[None]] = []
    bench.model.after_unload = lambda _bundle: tasks.append(asyncio.ensure_future(depose()))
    outcome = await bench.move()
    await tasks[0]
    assert outcome.outcome == "done"
    assert await bench.intents() == [intent_path(BUNDLE)]
    assert (await bench.move(C, B)).code == Code.NOT_LEADER
    assert bench.heard[0] == outcome


async def test_deposed_before_the_intent(bench: Bench) -> None:
    """A stale epoch cannot write an intent, so it cannot call."""
    await bench.depose()
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("refused", Code.NOT_LEADER)
    assert bench.unloads() == 0


async def test_an_open_intent_blocks_its_bundle(bench: Bench) -> None:
    """An intent of an earlier leader is not overwritten."""
    await bench.coordination.write_fenced(1, [DocumentChange(path=intent_path(BUNDLE), data=b"{}", create=True)])
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("refused", Code.FROZEN_INTENT)
    assert bench.unloads() == 0


async def test_an_outcome_that_could_not_be_recorded_is_recorded_later(bench: Bench) -> None:
    """The store went away during the call; the next batch begins by removing the intent, with the same record."""
    recorded: list[str] = []

    def changes(outcome: MoveOutcome) -> Sequence[DocumentChange]:
        recorded.append(outcome.intent_id)
        return ()

    bench.executor = bench.build(changes=changes)
    bench.model.after_unload = lambda _bundle: bench.store.freeze()
    outcome = await bench.move()
    assert outcome.outcome == "done"
    assert list(bench.executor.unrecorded) == [outcome]
    await bench.executor.flush()
    assert list(bench.executor.unrecorded) == [outcome]
    bench.store.thaw()
    await bench.executor.flush()
    assert list(bench.executor.unrecorded) == []
    assert await bench.intents() == []
    assert set(recorded) == {outcome.intent_id}
    assert bench.heard == [outcome]


ERRORS: list[Callable[[], BundlekeelError]] = [
    lambda: AdminTimeout("?"),
    lambda: AdminFault("?"),
    lambda: AdminRefused("?"),
    lambda: AdminUnreachable("?"),
    lambda: LeadershipLost("?"),
    lambda: RedirectLoop("?"),
    lambda: StoreError("?"),
]
FAULTS = st.none() | st.builds(Fault, error=st.sampled_from(ERRORS).map(lambda make: make()), after=st.booleans())


@given(
    unload=FAULTS,
    claims=st.lists(FAULTS, max_size=4),
    thief=st.sampled_from([None, None, A, B, C]),
    leader=st.sampled_from([A, B, C, None]),
    freeze=st.booleans(),
    destination=st.sampled_from([A, C]),
)
async def test_any_mishap(
    *,
    unload: Fault | None,
    claims: list[Fault | None],
    thief: str | None,
    leader: str | None,
    freeze: bool,
    destination: str,
) -> None:
    """Whatever goes wrong: one unload per intent at most, done only where the owner is the destination, refused
    only when the owner is unchanged, one outcome heard."""
    bench = await Bench().lead()
    bench.metadata.leader = leader
    bench.admin.fail("unload", unload)
    bench.admin.fail("claim", *claims)

    def mishap(bundle: str) -> None:
        if thief is not None:
            bench.model.own(bundle, thief)
        if freeze:
            bench.store.freeze()

    bench.model.after_unload = mishap
    outcome = await bench.move(B, destination)
    owner = bench.model.owners.get(BUNDLE)
    where = owner.broker_id if owner is not None else ""
    assert bench.unloads() <= 1
    assert bench.heard == [outcome]
    if outcome.outcome == "done":
        assert where == outcome.landed_on == destination
    if outcome.outcome == "landed_elsewhere":
        assert where == outcome.landed_on != destination
    if outcome.outcome == "refused" and not (unload is not None and unload.after):
        assert where == B
        assert bench.model.unloads == [] or unload is None
    bench.store.thaw()
    await bench.executor.flush()
    assert await bench.intents() in ([], [intent_path(BUNDLE)])
