"""Moves to the tenth of a second: times of reads and claims, their order, and every field of the record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bundlekeel.leader.execution.intents import MoveRequest, intent_path
from bundlekeel.leader.execution.move import ExecutorLimits, refusal_code
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminRefused, AdminTimeout, CodecError, LeadershipLost, RedirectLoop, StoreError
from bundlekeel.model.plan import Refusal
from bundlekeel.ports import Owner
from bundlekeel.ports.commands import Permit, UnloadAnswer
from tests.support.executor_bench import BUNDLE, A, B, Bench, C, LosesAnAnswer, SlowAdmin, fleet
from tests.support.extensible_brokers import ExtensibleModel
from tests.support.memory_admin import BrokerModel, Fault, MemoryAdmin

START = 1000.0


def test_codes_of_calls_without_effect() -> None:
    """A kind of its own where there is one, else refused."""
    assert refusal_code(AdminRefused("x")) is Code.ADMIN_REFUSED
    assert refusal_code(RedirectLoop("x")) is Code.ADMIN_REFUSED


def watched(bench: Bench, base: type[BrokerModel]) -> list[float]:
    """Seconds since the start at which owners are read from now on."""
    times: list[float] = []

    class Watched(base):  # type: ignore[misc,valid-type]
        async def owner(self, bundle: str) -> Owner | None:
            times.append(round(bench.clock.now - START, 3))
            return await super().owner(bundle)  # type: ignore[no-any-return]

    bench.model.__class__ = Watched
    return times


POLLS = [0.05, 0.15, 0.35, 0.75, *(1.25 + 0.5 * n for n in range(18)), 10.0]


async def test_how_often_an_owner_is_looked_for() -> None:
    """At once, then ever more seldom, every half second in the end; the last time at the deadline."""
    bench = await Bench().lead()
    bench.model.after_unload = lambda _bundle: bench.model.owners.clear()
    bench.admin.fail("claim", *[Fault(error=AdminRefused("no"))] * 30)
    times = watched(bench, BrokerModel)
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code, outcome.seconds) == ("unknown", Code.NOBODY_OWNS, pytest.approx(10.0))
    assert times == [0.0, 0.0, *POLLS]


async def test_a_bundle_without_topics_is_looked_at_for_half_a_second() -> None:
    """Every twentieth of a second, until it was free for that long; whoever takes it meanwhile is the outcome."""
    bench = await Bench().lead()
    bench.model.topics[BUNDLE].clear()
    times = watched(bench, BrokerModel)
    assert (await bench.move()).outcome == "released"
    assert times[:11] == [0.0, *(pytest.approx(0.05 * n) for n in range(10))]
    assert 0.5 <= times[-1] < 0.56 and len(times) <= 13

    bench = await Bench().lead()
    bench.model.topics[BUNDLE].clear()

    class Late(BrokerModel):
        async def owner(self, bundle: str) -> Owner | None:
            if self.unloads and bench.clock.now - START > 0.3:
                return Owner(broker_id=C)
            return await super().owner(bundle)

    bench.model.__class__ = Late
    outcome = await bench.move()
    assert (outcome.outcome, outcome.landed_on) == ("done", C)


@pytest.mark.parametrize("error", [StoreError("away"), CodecError("torn", code=Code.WRONG_TYPE)])
@pytest.mark.parametrize("lost", ["", "the answer of the unload"])
async def test_an_owner_that_cannot_be_read_is_no_free_bundle(error: Exception, lost: str) -> None:
    """It is read on until the deadline, and the outcome says why it is not known: the first thing that went wrong."""
    bench = await Bench().lead()
    if lost:
        bench.admin.fail("unload", Fault(error=AdminTimeout(lost), after=True))
    bench.model.topics[BUNDLE].clear()

    class Unreadable(BrokerModel):
        async def owner(self, bundle: str) -> Owner | None:
            if self.unloads:
                raise error
            return await super().owner(bundle)

    bench.model.__class__ = Unreadable
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code, outcome.error) == ("unknown", Code.STORE_UNAVAILABLE, lost or str(error))
    assert outcome.seconds == pytest.approx(10.0)


class Claiming(MemoryAdmin):
    """Notes when claims are made; `answers` are given instead of making them."""

    def __init__(self, bench: Bench, *answers: str | Exception) -> None:
        super().__init__(bench.model)
        self.set_endpoints(bench.model.endpoints())
        self._clock, self._answers, self.times = bench.clock, list(answers), list[float]()

    async def claim(self, topic: str, *, broker_id: str, permit: Permit) -> str:
        self.times.append(round(self._clock.now - START, 3))
        if not self._answers:
            return await super().claim(topic, broker_id=broker_id, permit=permit)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


CLAIMS = [0.0, 0.01, 0.03, 0.07, 0.15, 0.31, 0.63, 1.27, 2.27, 3.27]


@pytest.mark.parametrize(("answer", "after"), [("", 9), (B, 9), (AdminRefused("no"), 9), (C, 0), (A, 0)])
async def test_how_often_the_destination_is_asked_to_take_it(answer: str | Exception, after: int) -> None:
    """Ever more seldom, at most every second, while it has not heard or names the source; not once it names another."""
    bench = await Bench().lead()
    bench.admin = claiming = Claiming(bench, *[answer] * 9)
    bench.executor = bench.build()
    outcome = await bench.move()
    assert claiming.times == CLAIMS[: after + 1]
    assert outcome.outcome == ("done" if after else "unknown")
    assert len([task for task in asyncio.all_tasks() if task.get_name().startswith("claim")]) == 0


async def test_a_term_that_ends_during_a_claim_leaves_the_intent() -> None:
    """Nothing more is claimed; the next leader finds the intent."""
    bench = await Bench().lead()
    bench.admin = claiming = Claiming(bench, LeadershipLost("over"))
    bench.executor = bench.build()
    await bench.move()
    assert (claiming.times, await bench.intents()) == ([0.0], [intent_path(BUNDLE)])
    assert (await bench.move()).code == Code.NOT_LEADER


@pytest.mark.parametrize(
    ("topics", "choice"),
    [
        (("non-persistent://t/n/a", "persistent://t/n/__change_events", "persistent://t/n/z"), "persistent://t/n/z"),
        (("non-persistent://t/n/a", "persistent://t/n/__change_events"), "persistent://t/n/__change_events"),
        (("non-persistent://t/n/__a", "non-persistent://t/n/b"), "non-persistent://t/n/b"),
        (("kafka://t/n/a", "non-persistent://t/n/a"), "non-persistent://t/n/a"),
        (("persistent://t/n/b", "persistent://t/n/a"), "persistent://t/n/a"),
    ],
)
async def test_which_topic_is_looked_up(topics: tuple[str, ...], choice: str) -> None:
    """A user's persistent one before a system topic, those before non-persistent ones; of equals the first by name."""
    bench = await Bench().lead()
    bench.model.topics[BUNDLE] = list(topics)
    assert (await bench.move()).topic == choice


async def test_an_unknown_answer_keeps_its_words() -> None:
    """And the outcome that was read all the same."""
    bench = await Bench().lead()
    bench.admin.fail("unload", Fault(error=AdminTimeout("late"), after=True))
    outcome = await bench.move()
    assert (outcome.outcome, outcome.error) == ("done", "late")


async def test_what_a_move_that_waited_for_its_turn_tells() -> None:
    """Admitted with the first, begun when that had ended: its times and its own number in the term."""
    bench = await Bench().lead()
    other = "t/o/0x40000000_0x80000000"
    bench.model.add(other, B, "persistent://t/o/x")
    bench.admin = SlowAdmin(bench)
    bench.executor = bench.build()
    requests = [MoveRequest(bundle=name, source=B, destination=C, predicted=(0.5,)) for name in (BUNDLE, other)]
    first, second = await bench.execute(requests)
    assert [item.intent_id for item in (first, second)] == ["1.1", "1.2"]
    for item, seconds in ((first, 1.0), (second, 2.0)):
        assert (item.seconds, item.moving_seconds) == (pytest.approx(seconds, abs=0.11), pytest.approx(1.0, abs=0.06))
        assert item.started_wall_ms == 1_000_000
        assert item.landed_wall_ms == pytest.approx(1_000_000 + 1000 * seconds, abs=110)
        assert item.predicted == (0.5,)
    refused = await bench.move()
    assert (refused.outcome, refused.moving_seconds, refused.landed_wall_ms, refused.intent_id) == (
        "refused",
        0.0,
        0,
        "1.3",
    )


def most_together(bench: Bench) -> int:
    assert isinstance(bench.admin, SlowAdmin)
    return max(len(together) for together in bench.admin.together)


@pytest.mark.parametrize(
    ("in_all", "at_broker", "pairs", "most"),
    [
        (2, 9, ((A, B), (B, C), (C, A)), 2),
        (3, 9, ((A, B), (B, C), (C, A)), 3),
        (ExecutorLimits().max_in_flight, 9, ((A, B), (B, C), (C, A), (A, C), (B, A)), 4),
        (9, 1, ((A, C), (B, C)), 1),
        (9, 2, ((A, C), (B, C)), 2),
        (9, 1, ((A, B), (A, C)), 1),
        (9, 2, ((A, B), (A, C), (A, C)), 2),
    ],
)
async def test_how_many_at_once(in_all: int, at_broker: int, pairs: Sequence[tuple[str, str]], most: int) -> None:
    """In all, and at each broker whether it gives or takes; slots that came back are given again."""
    bench = await Bench(limits=ExecutorLimits(max_in_flight=in_all, max_in_flight_per_broker=at_broker)).lead()
    bench.admin = SlowAdmin(bench)
    bench.executor = bench.build()
    requests = []
    for number, (source, destination) in enumerate(pairs):
        bundle = f"t/s/0x{number:x}0000000_0x{number + 1:x}0000000"
        bench.model.add(bundle, source, f"persistent://t/s/{number}")
        requests.append(MoveRequest(bundle=bundle, source=source, destination=destination))
    assert {item.outcome for item in await bench.execute(requests)} == {"done"}
    assert most_together(bench) == most
    back = [MoveRequest(bundle=item.bundle, source=item.destination, destination=item.source) for item in requests]
    bench.admin.together.clear()
    assert {item.outcome for item in await bench.execute(back)} == {"done"}
    assert most_together(bench) == most


@pytest.mark.parametrize(
    ("policy_seconds", "topics_seconds", "checks", "code"),
    [(0.0, 1.0, 1, ""), (0.0, 1.1, 2, ""), (1.1, 0.0, 4, Code.STORE_UNAVAILABLE)],
)
async def test_how_long_a_check_is_good(policy_seconds: float, topics_seconds: float, checks: int, code: str) -> None:
    """Rule: a check is valid for one second; then it is repeated up to three times. Without a result the move is not
    started.
    """
    bench = await Bench().lead()
    count = 0

    async def policy(_request: MoveRequest) -> Refusal | None:
        nonlocal count
        count += 1
        await bench.clock.sleep(policy_seconds)
        return None

    class Topics(MemoryAdmin):
        async def topics_of_bundle(self, bundle: str, owner: str) -> list[str]:
            await bench.clock.sleep(topics_seconds)
            return await super().topics_of_bundle(bundle, owner)

    bench.admin = Topics(bench.model)
    bench.admin.set_endpoints(bench.model.endpoints())
    bench.executor = bench.build(policy=policy)
    outcome = await bench.move()
    assert (count, outcome.code, bench.unloads()) == (checks, code, int(not code))


async def test_the_end_of_a_term_is_said_before_a_stop() -> None:
    """Whichever came first."""
    bench = await Bench().lead()
    await bench.executor.stop(1.0)
    assert (await bench.move()).code == Code.STOPPING
    bench = await Bench().lead()
    await bench.depose()
    await bench.move()
    await bench.executor.stop(1.0)
    assert (await bench.move()).code == Code.NOT_LEADER


async def test_a_lost_term_replaces_a_stop_as_the_reason() -> None:
    """A stop whose flush finds that another sidecar leads refuses later moves as not the leader."""
    bench = Bench()
    bench.coordination = LosesAnAnswer(bench.store)
    bench.executor = bench.build()
    await bench.lead()
    await bench.move()
    await bench.depose()
    await bench.executor.stop(1.0)
    assert (await bench.move()).code == Code.NOT_LEADER


async def test_a_stop_ends_with_the_last_move() -> None:
    bench = await Bench().lead()
    bench.admin = SlowAdmin(bench)
    bench.executor = bench.build()
    batch = asyncio.ensure_future(bench.execute(fleet(bench)[:1]))
    while not bench.admin.together:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert await bench.executor.stop(30.0) == ()
    assert bench.clock.now - START == pytest.approx(1.0, abs=0.11)
    await batch
    began = bench.clock.now
    assert (await bench.executor.stop(30.0), bench.clock.now) == ((), began)


async def test_a_stop_refuses_those_that_wait_at_once() -> None:
    """Not when the move before them has ended: that one may hang."""
    bench = await Bench().lead()
    bench.admin = SlowAdmin(bench)
    bench.executor = bench.build()
    other = "t/o/0x40000000_0x80000000"
    bench.model.add(other, B, "persistent://t/o/x")
    requests = [MoveRequest(bundle=name, source=B, destination=C) for name in (BUNDLE, other)]
    first, second = (asyncio.ensure_future(bench.executor.move(item)) for item in requests)
    while not bench.admin.together:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert await bench.executor.stop(0.2) == (BUNDLE,)
    assert (first.done(), second.done()) == (False, True)
    assert ((await second).code, (await first).outcome) == (Code.STOPPING, "done")


async def test_a_stop_removes_what_the_store_did_not_let_go_of() -> None:
    """Else the next leader waits for a move that is over."""
    bench = await Bench().lead()
    bench.model.after_unload = lambda _bundle: bench.store.freeze()
    await bench.move()
    bench.store.thaw()
    assert len(await bench.intents()) == 1
    await bench.executor.stop(1.0)
    assert (await bench.intents(), bench.executor.unrecorded) == ([], ())


async def test_an_intent_that_may_stand_is_removed_later() -> None:
    """Nothing was called: refused, and not forgotten; a term that ended meanwhile removes nothing."""
    for ended in (False, True):
        bench = Bench()
        bench.coordination = LosesAnAnswer(bench.store)
        bench.executor = bench.build()
        await bench.lead()
        outcome = await bench.move()
        assert (outcome.outcome, outcome.code, bench.unloads()) == ("refused", Code.STORE_UNAVAILABLE, 0)
        assert (bench.executor.unrecorded, len(await bench.intents())) == ((outcome,), 1)
        if ended:
            await bench.depose()
        await bench.executor.flush()
        assert len(bench.executor.unrecorded) == len(await bench.intents()) == int(ended)
        assert (await bench.move()).code == (Code.NOT_LEADER if ended else "")


# --- extensible ------------------------------------------------------------------------------------------------


async def test_when_a_slow_transfer_is_looked_at() -> None:
    bench = await Bench(mode="extensible").lead()

    class Hanging(SlowAdmin):
        async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
            await bench.clock.sleep(4.2)
            return await super().unload(bundle, destination=destination, at=at, permit=permit)

    bench.admin = Hanging(bench)
    bench.executor = bench.build()
    times = watched(bench, ExtensibleModel)
    outcome = await bench.move()
    assert outcome.outcome == "done"
    assert times == [0.0, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.2]


async def test_a_source_that_does_not_end_its_unload() -> None:
    """The call was answered, but up to the deadline the source only gives the bundle away: the outcome names it."""
    bench = await Bench().lead()
    giving_away = {BUNDLE: Owner(broker_id=B, disabled=True)}
    bench.model.after_unload = lambda _bundle: bench.model.owners.update(giving_away)
    bench.admin.fail("claim", *[Fault(error=AdminRefused("no"))] * 30)
    outcome = await bench.move()
    assert (outcome.code, outcome.error) == (Code.STILL_IN_FLIGHT, f"{B} is unloading it")
