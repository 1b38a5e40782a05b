"""Brokers that serve the same topic, by counters of registered brokers and of those that left the registry."""

from __future__ import annotations

import asyncio

import pytest

from bundlekeel.model.double_service import ServedTwice
from bundlekeel.model.errors import AdminApiError, AdminTimeout, AdminUnreachable, ConnectionRefused
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.ports import RawClusterView
from bundlekeel.pulsar.counters.demand import CounterOptions
from bundlekeel.pulsar.counters.left_brokers import LEFT_SECONDS
from tests.unit.pulsar.counters.test_counters import BROKERS, BUNDLE, Stage, played


def served_twice(stage: Stage) -> tuple[ServedTwice, ...]:
    """The bundles that the view of the cluster shows as served by two brokers."""
    view = RawClusterView(
        wall_ms=stage.clock.wall_ms(), boot=0.0, generation=1, mode="modular", reports=(), endpoints=stage.endpoints
    )
    return stage.live.fused(view).served_twice


def leave(stage: Stage, broker: str = "a:8080") -> BrokerEndpoint:
    """The broker leaves the registry; its counters continue."""
    endpoint = stage.endpoints.pop(broker)
    stage.live.register(stage.endpoints)
    return endpoint


@played()
async def test_two_brokers_that_serve_a_topic_are_reported_within_two_readings(stage: Stage) -> None:
    """The topic of the stage is at both brokers. Of the three first readings, two are a measurement."""
    await asyncio.sleep(3.0)
    assert served_twice(stage) == ()
    await asyncio.sleep(4.0)
    (report,) = served_twice(stage)
    assert (report.bundle, report.brokers, report.topics) == (BUNDLE, BROKERS, 1)


@pytest.mark.parametrize("source", ["prometheus", "buffered"])
@played()
async def test_pages_of_unknown_time_do_not_show_double_service(stage: Stage, source: str) -> None:
    """Prometheus stores when a scrape began; a broker can return an old page. A broker that left is not read."""
    if source == "prometheus":
        stage.live._cpu_seconds = None
    else:
        await asyncio.sleep(10.0)
        assert served_twice(stage)
        stage.live.buffers_pages = "b:8080".__eq__
    await asyncio.sleep(20.0)
    assert served_twice(stage) == ()
    leave(stage)
    await asyncio.sleep(1.0)
    asked = len(stage.counting.moments("a:8080"))
    await asyncio.sleep(60.0)
    assert len(stage.counting.moments("a:8080")) == asked


@played()
async def test_a_topic_that_moves_is_not_reported(stage: Stage) -> None:
    """The target loads it as soon as the source closed it, at any time between two readings."""
    stage.counting.rates["b:8080"] = -1.0
    for _ in range(20):
        source, target = ("a:8080", "b:8080") if stage.counting.rates["b:8080"] < 0 else ("b:8080", "a:8080")
        await asyncio.sleep(37.3)
        stage.counting.carry()
        stage.counting.rates |= {source: -1.0, target: 1000.0}
        assert served_twice(stage) == ()


@played()
async def test_a_new_term_begins_without_reports(stage: Stage) -> None:
    await asyncio.sleep(10.0)
    assert served_twice(stage)
    stage.leads = False
    await asyncio.sleep(1.0)
    assert served_twice(stage) == ()


@played()
async def test_a_broker_that_left_the_registry_still_serves_the_topic(stage: Stage) -> None:
    """It lost its session and did not notice: another broker loads its topics."""
    stage.counting.rates["b:8080"] = -1.0
    await asyncio.sleep(20.0)
    leave(stage)
    await asyncio.sleep(5.0)
    assert served_twice(stage) == ()
    stage.counting.carry()
    stage.counting.rates["b:8080"] = 500.0
    await asyncio.sleep(10.0)
    (report,) = served_twice(stage)
    assert report.brokers == BROKERS
    assert set(stage.live.states()) == {"b:8080"}


@played()
async def test_a_report_survives_the_return_of_the_broker_but_not_its_restart(stage: Stage) -> None:
    await asyncio.sleep(10.0)
    endpoint = leave(stage)
    await asyncio.sleep(10.0)
    stage.endpoints["a:8080"] = endpoint
    stage.live.register(stage.endpoints)
    assert served_twice(stage)
    stage.endpoints["a:8080"] = BrokerEndpoint(broker_id="a:8080", web_url="http://a:8080", start_timestamp=5)
    stage.live.register(stage.endpoints)
    assert served_twice(stage) == ()


@pytest.mark.parametrize(
    ("error", "returns"),
    [
        (AdminTimeout("no answer"), True),
        # Its host is suspended, or the network between it and the sidecar is cut.
        (AdminUnreachable("no connection"), True),
        (ConnectionRefused("no connection"), False),
    ],
)
@played()
async def test_a_stopped_broker_is_read_until_it_continues(stage: Stage, error: AdminApiError, returns: bool) -> None:
    """It does not respond. A broker whose process ended refuses connections at once: it is not read again."""
    read, stopped = stage.counting.counters, True

    async def counters(broker: BrokerEndpoint) -> object:
        if broker.broker_id == "a:8080" and stopped:
            stage.counting.asked.append((broker.broker_id, stage.clock.boot()))
            raise error
        return await read(broker)

    stage.counting.counters = counters  # type: ignore[method-assign, assignment]
    await asyncio.sleep(20.0)
    leave(stage)
    asked = len(stage.counting.moments("a:8080"))
    await asyncio.sleep(60.0)
    assert served_twice(stage) == ()
    assert len(stage.counting.moments("a:8080")) - asked == (4 if returns else 1)
    stopped = False
    await asyncio.sleep(25.0)
    assert bool(served_twice(stage)) == returns


@played()
async def test_a_broker_that_left_is_read_while_it_serves_a_topic_and_ten_minutes_longer(stage: Stage) -> None:
    """The report does not end before the double service does."""
    leave(stage)
    await asyncio.sleep(2 * LEFT_SECONDS)
    assert served_twice(stage)
    stage.counting.carry()
    stage.counting.rates["a:8080"] = -1.0
    await asyncio.sleep(60.0)
    assert served_twice(stage) == ()
    await asyncio.sleep(LEFT_SECONDS)
    asked = len(stage.counting.moments("a:8080"))
    await asyncio.sleep(60.0)
    assert len(stage.counting.moments("a:8080")) == asked


@played()
async def test_a_response_that_waited_for_a_stopped_broker_does_not_delay_the_next_reading(stage: Stage) -> None:
    """The broker continues during a reading: the next one follows within the usual interval, and shows the topic."""
    await asyncio.sleep(20.0)
    stage.counting.takes = 9.0
    leave(stage)
    await asyncio.sleep(9.0)
    stage.counting.takes = 0.0
    asked = len(stage.counting.moments("a:8080"))
    await asyncio.sleep(CounterOptions().interval + 2.0)
    assert len(stage.counting.moments("a:8080")) == asked + 1
    assert served_twice(stage)
