"""Moves in extensible mode: one call at the owner, done when the channel reports it, without lookups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.leader.execution.intents import MoveRequest, intent_path
from bundlekeel.leader.execution.move import ExecutorLimits
from bundlekeel.model.channel_states import UnitState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import (
    AdminApiError,
    AdminFault,
    AdminRefused,
    AdminTimeout,
    AdminUnreachable,
    BundlekeelError,
    LeadershipLost,
    RedirectLoop,
)
from bundlekeel.ports.commands import Permit, UnloadAnswer, by_person
from tests.support.executor_bench import BUNDLE, A, B, Bench, C, SlowAdmin, fleet
from tests.support.extensible_brokers import ExtensibleModel
from tests.support.memory_admin import Fault, UnloadSeen


def model_of(bench: Bench) -> ExtensibleModel:
    """The brokers as what they are."""
    assert isinstance(bench.model, ExtensibleModel)
    return bench.model


@pytest.fixture
async def bench() -> Bench:
    """A leading bench over extensible brokers."""
    return await Bench(mode="extensible").lead()


async def test_a_transfer_is_one_call_at_the_owner(bench: Bench) -> None:
    """Straight to the owner with the destination; no topic is asked for, nothing is claimed, the intent is gone."""
    outcome = await bench.move()
    assert (outcome.outcome, outcome.landed_on, outcome.code, outcome.hops) == ("done", C, "", (B,))
    assert outcome.topic == ""
    assert bench.admin.calls == [("unload", BUNDLE, C, B)]
    assert bench.model.unloads == [UnloadSeen(at=B, bundle=BUNDLE, destination=C)]
    assert await bench.intents() == []
    assert bench.heard == [outcome]


@pytest.mark.parametrize(
    ("prepare", "request_", "code"),
    [
        (lambda _m: None, (B, B), Code.SAME_BROKER),
        (lambda m: m.own(BUNDLE, C), (B, C), Code.OWNER_CHANGED),
        (lambda m: m.publish(BUNDLE, UnitState.OWNED, C, B), (B, C), Code.OWNER_CHANGED),
        (lambda m: m.publish(BUNDLE, UnitState.FREE, "", B), (B, C), Code.UNOWNED),
        (lambda m: m.publish(BUNDLE, UnitState.DELETED, "", B), (B, C), Code.UNOWNED),
        (lambda m: m.publish(BUNDLE, UnitState.RELEASING, A, B), (B, C), Code.IN_TRANSIT),
        (lambda m: m.publish(BUNDLE, UnitState.RELEASING, "", B), (B, C), Code.IN_TRANSIT),
        (lambda m: m.publish(BUNDLE, UnitState.ASSIGNING, A, B), (B, C), Code.IN_TRANSIT),
        (lambda m: m.publish(BUNDLE, UnitState.SPLITTING, "", B), (B, C), Code.IN_TRANSIT),
    ],
    ids=[
        "same broker", "owner changed", "transferred", "free", "deleted", "releasing", "unloading", "assigning", "split"
    ],
)  # fmt: skip
async def test_refused_before_any_call(
    bench: Bench, prepare: Callable[[ExtensibleModel], None], request_: tuple[str, str], code: Code
) -> None:
    prepare(model_of(bench))
    outcome = await bench.move(*request_)
    assert (outcome.outcome, outcome.code) == ("refused", code)
    assert bench.admin.calls == []


async def test_ids_that_end_alike_are_refused_before_any_call(bench: Bench) -> None:
    """Brokers compare ends of ids: for a move from `bb1:8080` to `b1:8080` they return 500. The reverse works."""
    model, long = model_of(bench), f"b{A}"
    model.brokers.append(long)
    bench.admin.set_endpoints(model.endpoints())
    model.own(BUNDLE, long)
    outcome = await bench.move(long, A)
    assert (outcome.outcome, outcome.code, bench.unloads()) == ("refused", Code.ALIKE_BROKERS, 0)
    with pytest.raises(AdminRefused, match="cannot be transfer to same broker"):
        await bench.admin.unload(BUNDLE, destination=A, at=long, permit=by_person)
    model.own(BUNDLE, A)
    assert (await bench.move(A, long)).outcome == "done"


async def test_a_destination_that_left_is_refused(bench: Bench) -> None:
    outcome = await bench.move(B, "b9:8080")
    assert (outcome.outcome, outcome.code) == ("refused", Code.ADMIN_REFUSED)
    assert bench.model.owners[BUNDLE].broker_id == B
    assert await bench.intents() == []


@pytest.mark.parametrize("state", [UnitState.RELEASING, UnitState.ASSIGNING])
async def test_stuck_on_its_way(bench: Bench, state: UnitState) -> None:
    """A transfer that is still in flight past the deadline is unknown, and says why; it is not asked for again."""
    model_of(bench).stuck_in = state
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code, outcome.landed_on) == ("unknown", Code.STILL_IN_FLIGHT, "")
    assert bench.unloads() == 1
    assert outcome.seconds == pytest.approx(bench.limits.confirm_seconds, abs=0.5)
    assert await bench.intents() == []
    assert (await bench.move()).code == Code.IN_TRANSIT


@pytest.mark.parametrize(
    ("broker", "expected"), [(C, ("done", "", C)), (A, ("landed_elsewhere", Code.LANDED_ELSEWHERE, A))]
)
async def test_the_brokers_leader_ends_what_was_stuck(
    bench: Bench, broker: str, expected: tuple[str, str, str]
) -> None:
    model = model_of(bench)
    model.stuck_in = UnitState.ASSIGNING

    class Leader(SlowAdmin):
        """Gives the bundle away a while after the broker's time-out."""

        async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
            try:
                return await super().unload(bundle, destination=destination, at=at, permit=permit)
            finally:
                later.append(asyncio.ensure_future(self.give()))

        async def give(self) -> None:
            await bench.clock.sleep(3)
            model.own(BUNDLE, broker)

    later: list[asyncio.Future[None]] = []
    bench.admin = Leader(bench)
    bench.executor = bench.build()
    outcome = await bench.move()
    await asyncio.gather(*later)
    assert (outcome.outcome, outcome.code, outcome.landed_on) == expected
    assert outcome.error
    assert bench.unloads() == 1


@pytest.mark.parametrize(
    ("broker", "code"), [(A, Code.LANDED_ELSEWHERE), (B, Code.STILL_AT_SOURCE)], ids=["another", "source"]
)
async def test_a_transfer_ended_otherwise_need_not_be_waited_out(bench: Bench, broker: str, code: Code) -> None:
    """The destination died: the brokers' leader gave the bundle away while the call hangs for its minute."""
    model = model_of(bench)

    class Hanging(SlowAdmin):
        """Answers a minute later."""

        async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
            model.publish(bundle, UnitState.ASSIGNING, destination or "", at)
            requests.append(bundle)
            await bench.clock.sleep(10)
            model.own(bundle, broker)
            await bench.clock.sleep(50)
            raise AdminFault("TimeoutException", status=500)

    requests: list[str] = []
    bench.admin = Hanging(bench)
    bench.executor = bench.build()
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code, outcome.landed_on) == ("landed_elsewhere", code, broker)
    assert 10 <= outcome.seconds < 12
    assert requests == [BUNDLE]
    assert await bench.intents() == []


async def test_what_is_still_under_way_is_waited_for(bench: Bench) -> None:
    model = model_of(bench)

    class Slow(SlowAdmin):
        """Takes half a minute, the last ten seconds of it with the bundle landed already."""

        async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
            await bench.clock.sleep(5)
            model.publish(bundle, UnitState.RELEASING, destination or "", at)
            await bench.clock.sleep(15)
            model.publish(bundle, UnitState.OWNED, destination or "", at)
            await bench.clock.sleep(10)
            return UnloadAnswer(status=204, hops=(at,), seconds=30.0)

    bench.admin = Slow(bench)
    bench.executor = bench.build()
    outcome = await bench.move()
    assert (outcome.outcome, outcome.landed_on, outcome.hops) == ("done", C, (B,))
    assert outcome.seconds == pytest.approx(30, abs=0.5)


@pytest.mark.parametrize("kind", [AdminTimeout, AdminFault, RedirectLoop])
@pytest.mark.parametrize("after", [False, True], ids=["no effect", "took effect"])
async def test_an_unknown_answer_is_settled_by_the_channel(
    bench: Bench, kind: type[AdminApiError], after: bool
) -> None:
    bench.admin.fail("unload", Fault(error=kind(""), after=after))
    outcome = await bench.move()
    assert bench.unloads() == 1
    if after:
        assert (outcome.outcome, outcome.landed_on, outcome.error) == ("done", C, kind.__name__)
    else:
        assert (outcome.outcome, outcome.code, outcome.landed_on) == ("unknown", Code.NO_ANSWER, "")


async def test_no_broker_owns_it(bench: Bench) -> None:
    """A lookup would assign, so none is made: it stays unowned until a client asks."""
    bench.model.after_unload = lambda bundle: model_of(bench).publish(bundle, UnitState.FREE, "", B)
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("unknown", Code.NOBODY_OWNS)
    assert [call[0] for call in bench.admin.calls] == ["unload"]


async def test_still_owned_by_the_source_after_a_204(bench: Bench) -> None:
    """The answer alone is not believed."""
    bench.model.after_unload = lambda bundle: model_of(bench).own(bundle, B)
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code, outcome.landed_on) == ("landed_elsewhere", Code.STILL_AT_SOURCE, B)


async def test_lost_before_the_call(bench: Bench) -> None:
    """The permit is asked after the intent: nothing is called, the intent stays for the next leader."""
    bench.permit.error = LeadershipLost("deadline")
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("refused", Code.NOT_LEADER)
    assert (bench.unloads(), await bench.intents()) == (0, [intent_path(BUNDLE)])


async def test_equal_ranges_may_meet(bench: Bench) -> None:
    """No affinity is keyed by a range here: only the caps hold moves back, four in all and here two at a broker."""
    bench.admin = SlowAdmin(bench)
    bench.limits = ExecutorLimits(max_in_flight_per_broker=2)
    bench.executor = bench.build()
    requests = fleet(bench)
    outcomes = await bench.execute(requests)
    assert [outcome.outcome for outcome in outcomes] == ["done"] * 12
    together = max(len(running) for running in bench.admin.together)
    assert 1 < together <= 4
    ranges = [{bundle.rpartition("/")[2] for bundle in running} for running in bench.admin.together]
    pairs = list(zip(ranges, bench.admin.together, strict=True))
    assert any(len(some) < len(running) for some, running in pairs)


ERRORS: list[Callable[[], BundlekeelError]] = [
    lambda: AdminTimeout("?"),
    lambda: AdminFault("?"),
    lambda: AdminRefused("?"),
    lambda: AdminUnreachable("?"),
    lambda: LeadershipLost("?"),
]
FAULTS = st.none() | st.builds(Fault, error=st.sampled_from(ERRORS).map(lambda make: make()), after=st.booleans())


@given(
    unload=FAULTS,
    stuck=st.sampled_from([None, UnitState.RELEASING, UnitState.ASSIGNING]),
    thief=st.sampled_from([None, None, A, B, C]),
    freeze=st.booleans(),
    destination=st.sampled_from([A, C]),
)
async def test_any_mishap(
    *, unload: Fault | None, stuck: UnitState | None, thief: str | None, freeze: bool, destination: str
) -> None:
    """Law: for any fault, at most one call, done only if the channel reports Owned at the destination, never a lookup,
    refused only if the owner is unchanged, and one outcome.
    """
    bench = await Bench(mode="extensible").lead()
    model = model_of(bench)
    model.stuck_in = stuck
    bench.admin.fail("unload", unload)

    def mishap(bundle: str) -> None:
        if thief is not None:
            model.own(bundle, thief)
        if freeze:
            bench.store.freeze()

    model.after_unload = mishap
    outcome = await bench.move(B, destination)
    unit = model.units[BUNDLE]
    assert [call[0] for call in bench.admin.calls] == ["unload"]
    assert bench.heard == [outcome]
    if outcome.outcome == "done":
        assert (unit.state, unit.destination) == (UnitState.OWNED, destination)
    if outcome.outcome == "landed_elsewhere":
        assert unit.state == UnitState.OWNED
        assert unit.destination == outcome.landed_on != destination
    if outcome.outcome == "refused" and not (unload is not None and unload.after):
        assert (unit.state, unit.destination) == (UnitState.OWNED, B)
    if outcome.code == Code.STILL_IN_FLIGHT:
        assert unit.state == stuck


async def test_the_way_follows_the_mode() -> None:
    """A cluster migrated to the other load manager is moved its own way from the next move on."""
    bench = await Bench(mode="extensible").lead()
    bench.mode = "modular"
    assert (await bench.move()).topic
    bench.mode = "extensible"
    request = MoveRequest(bundle=BUNDLE, source=C, destination=B)
    assert (await bench.executor.move(request)).topic == ""
