"""Several moves at a time: caps, equal ranges, and stopping."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from bundlekeel.leader.execution.intents import MoveRequest
from bundlekeel.leader.execution.move import ExecutorLimits
from bundlekeel.model.codes import Code
from tests.support.executor_bench import BUNDLE, B, Bench, C, SlowAdmin, fleet

TWO_AT_A_BROKER = ExecutorLimits(max_in_flight_per_broker=2)


@pytest.fixture
async def bench() -> Bench:
    """A leading bench."""
    return await Bench().lead()


async def test_one_at_a_time_at_each_broker(bench: Bench) -> None:
    bench.admin = SlowAdmin(bench)
    bench.executor = bench.build()
    outcomes = await bench.execute(fleet(bench))
    assert [outcome.outcome for outcome in outcomes] == ["done"] * 12
    assert {len(together) for together in bench.admin.together} == {1}


async def test_caps_hold_and_equal_ranges_never_meet(bench: Bench) -> None:
    """At most four at a time, two at a broker where that is set, one per range; all of them land."""
    bench.admin = SlowAdmin(bench)
    bench.limits = TWO_AT_A_BROKER
    bench.executor = bench.build()
    requests = fleet(bench)
    brokers_of = {request.bundle: (request.source, request.destination) for request in requests}
    outcomes = await bench.execute(requests)
    assert [outcome.outcome for outcome in outcomes] == ["done"] * 12
    assert [outcome.bundle for outcome in outcomes] == [request.bundle for request in requests]
    for together in bench.admin.together:
        ranges = Counter(bundle.rpartition("/")[2] for bundle in together)
        brokers = Counter(broker for bundle in together for broker in brokers_of[bundle])
        assert len(together) <= 4
        assert max(ranges.values()) == 1
        assert max(brokers.values()) <= 2
    assert max(len(together) for together in bench.admin.together) > 1


async def test_the_same_bundle_twice(bench: Bench) -> None:
    """The second move of a bundle in flight is refused, not queued."""
    bench.admin = SlowAdmin(bench)
    bench.executor = bench.build()
    request = MoveRequest(bundle=BUNDLE, source=B, destination=C)
    first, second = await bench.execute([request, request])
    assert (first.outcome, second.outcome, second.code) == ("done", "refused", Code.IN_TRANSIT)


async def test_stop_finishes_calls_in_flight_and_begins_no_more(bench: Bench) -> None:
    bench.admin = SlowAdmin(bench)
    bench.executor = bench.build()
    batch = asyncio.ensure_future(bench.execute(fleet(bench)))
    while not bench.admin.together:  # noqa: ASYNC110
        await asyncio.sleep(0)
    length = len(bench.executor.in_flight)
    assert length == 12
    assert await bench.executor.stop(30.0) == ()
    outcomes = Counter((outcome.outcome, outcome.code) for outcome in await batch)
    called = bench.unloads()
    assert outcomes == {("done", ""): called, ("refused", Code.STOPPING): 12 - called}
    assert 0 < called <= 4
    assert (await bench.move()).code == Code.STOPPING
    assert await bench.intents() == []


async def test_stop_is_bounded(bench: Bench) -> None:
    """A broker that never answers does not hold up the end; its bundle is named."""
    bench.admin = SlowAdmin(bench)
    bench.executor = bench.build()
    batch = asyncio.ensure_future(bench.execute([MoveRequest(bundle=BUNDLE, source=B, destination=C)]))
    while not bench.admin.together:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert await bench.executor.stop(0.5) == (BUNDLE,)
    await batch
