"""Brokers observed by their counters from the start of a term, and the reports about the others."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.counters import CounterReading
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.requests.doctor_checks import live_loads_check
from tests.unit.pulsar.counters.test_counters import BROKERS, BUNDLE, Stage, played


@played()
async def test_at_first_all_brokers_are_shown_by_their_counters_together(stage: Stage) -> None:
    late = stage.counting.counters

    async def slow(broker: BrokerEndpoint) -> list[CounterReading]:
        await asyncio.sleep(1.2 if broker.broker_id == "b:8080" else 0.0)
        return await late(broker)

    stage.counting.counters = slow  # type: ignore[method-assign]
    names = set()
    for _ in range(80):
        await asyncio.sleep(0.1)
        names.add(tuple(item.interval_ms > 0 for item in stage.shown().values()))
    assert names == {(False, False), (True, True)}


@pytest.mark.parametrize("fails", [True, False])
@played()
async def test_a_broker_that_cannot_be_read_holds_up_no_other_for_long(stage: Stage, fails: bool) -> None:
    """One that refuses for no time, one that does not answer for some seconds."""
    stage.counting.faults = {"a:8080"} if fails else set()
    read = stage.counting.counters

    async def hanging(broker: BrokerEndpoint) -> list[CounterReading]:
        if broker.broker_id == "a:8080" and not fails:
            await asyncio.sleep(1000.0)
        return await read(broker)

    stage.counting.counters = hanging  # type: ignore[method-assign]
    await asyncio.sleep(4.5 if fails else 9.5)
    assert [item.interval_ms > 0 for item in stage.shown().values()] == [False, True]


@played()
async def test_the_next_term_knows_nothing_of_the_last_ones_readings(stage: Stage) -> None:
    """Until its own readings are there, all brokers are shown by their reports, and are said to wait."""
    stage.counting.faults = {"a:8080"}
    await asyncio.sleep(5.0)
    stage.shown()
    assert stage.live.states() == {"a:8080": "refused", "b:8080": "live"}
    stage.leads, stage.counting.faults = False, set()
    await asyncio.sleep(1.0)
    stage.leads = True
    await asyncio.sleep(0.6)
    assert stage.live.states() == dict.fromkeys(BROKERS, "waiting")


@played()
async def test_a_broker_that_left_the_picture_is_not_live(stage: Stage) -> None:
    """Nothing is shown of it, so nothing comes from its counters."""
    await asyncio.sleep(5.0)
    stage.shown()
    assert stage.live.states() == dict.fromkeys(BROKERS, "live")
    del stage.endpoints["b:8080"]
    stage.shown()
    assert stage.live.states() == {"a:8080": "live", "b:8080": "waiting"}
    assert list(stage.live.ages()) == ["a:8080"]


@pytest.mark.parametrize("state", ["outdated", "no_topics", "no_cpu"])
@played()
async def test_doctor_warns_of_figures_that_are_no_use(stage: Stage, state: str) -> None:
    """The brokers are read, and still shown by their reports: the check would look passed."""
    if state == "outdated":
        stage.reported_ms += 600_000
    elif state == "no_topics":
        stage.topics, stage.counting.rates["a:8080"] = 3, -1.0
    else:
        read = stage.counting.counters

        async def without(broker: BrokerEndpoint) -> list[CounterReading]:
            return [replace(item, cpu_seconds=None) for item in await read(broker)]

        stage.counting.counters = without  # type: ignore[method-assign]
    await asyncio.sleep(20.0)
    stage.shown()
    assert stage.live.states()["a:8080"] == state
    check = live_loads_check(stage.live)
    assert not check.ok and check.severity == "warning" and state in check.detail and check.fix


async def _minutes(stage: Stage, *reported: float) -> list[str]:
    """Let both brokers report these bytes/s, a minute apart; return the states of the first one after each."""
    states = []
    for rate in reported:
        stage.reported, stage.reported_ms = rate, stage.clock.wall_ms()
        for _ in range(6):
            await asyncio.sleep(10.0)
            stage.shown()
        states.append(stage.live.states()["a:8080"])
    return states


@played()
async def test_n_c_reports_are_used_where_counters_disagree_twice(stage: Stage) -> None:
    """One report can contain the rate of a session that has just begun. A report that agrees ends it."""
    assert await _minutes(stage, *[1000.0] * 4) == ["live"] * 4
    assert await _minutes(stage, 5000.0, 1000.0, 1000.0) == ["live"] * 3
    assert await _minutes(stage, 5000.0, 5000.0, 5000.0) == ["live", "disagree", "disagree"]
    assert stage.rate("a:8080") == 5000.0
    check = live_loads_check(stage.live)
    assert not check.ok and "topicBundleAssignmentStrategy" in check.fix
    assert f"{Code.COUNTERS_DISAGREE} at a:8080: {BUNDLE}: the report has" in check.detail
    assert await _minutes(stage, 1000.0) == ["live"]
    assert live_loads_check(stage.live).ok


@pytest.mark.parametrize(("seconds", "state"), [(80, "live"), (160, "disagree")])
@played()
async def test_n_c_the_same_statistics_count_once(stage: Stage, seconds: int, state: str) -> None:
    """A broker that reports every 5 s repeats its last statistics, and no report is left when the counters cover it."""
    await _minutes(stage, *[1000.0] * 4)
    stage.reported = 5000.0
    for _ in range(seconds // 5):
        stage.reported_ms = stage.clock.wall_ms()
        await asyncio.sleep(5.0)
        stage.shown()
    assert stage.live.states()["a:8080"] == state


@played()
async def test_n_c_a_load_that_has_changed_is_no_disagreement(stage: Stage) -> None:
    """Reports are of the minute before the last one."""
    await _minutes(stage, *[1000.0] * 4)
    for reported, rate in ((1000.0, 9000.0), (1000.0, 9000.0), (9000.0, 100.0), (9000.0, 100.0), (100.0, 100.0)):
        stage.counting.carry()
        stage.counting.rates["a:8080"] = stage.counting.rates["b:8080"] = rate
        assert await _minutes(stage, reported) == ["live"]


@played()
async def test_n_c_with_another_assigner_a_report_has_to_agree_first(stage: Stage) -> None:
    """The brokers' settings name its class, before any report covers the time of the counters."""
    stage.live.other_assigner = lambda _broker: "org.example.RoundRobin"
    assert await _minutes(stage, 1000.0, 1000.0, 1000.0, 1000.0) == ["disagree"] * 3 + ["live"]
    assert await _minutes(stage, 5000.0) == ["disagree"]
    stage.live.other_assigner = lambda _broker: ""
    assert await _minutes(stage, 5000.0, 1000.0) == ["disagree", "live"]


@pytest.mark.parametrize(("brokers", "seconds", "ok"), [(1, 120, True), (1, 480, False), (2, 120, False)])
@played()
async def test_doctor_warns_of_an_outdated_broker_only_where_it_lasts(
    stage: Stage, brokers: int, seconds: int, ok: bool
) -> None:
    """One late scrape is over with the next ones; of two brokers it is none."""
    await asyncio.sleep(5.0)
    stage.shown()
    read, late = stage.counting.counters, BROKERS[:brokers]

    async def stale(broker: BrokerEndpoint) -> list[CounterReading]:
        return [] if broker.broker_id in late else await read(broker)

    stage.counting.counters = stale  # type: ignore[method-assign]
    stage.reported_ms += 60_000
    for _ in range(seconds // 10):
        stage.reported_ms += 10_000
        await asyncio.sleep(10.0)
        stage.shown()
    states = stage.live.states()
    assert [states[broker] for broker in BROKERS] == ["outdated"] * brokers + ["live"] * (2 - brokers)
    check = live_loads_check(stage.live)
    assert check.ok is ok and f"outdated {brokers}" in check.detail
    stage.counting.counters = read  # type: ignore[method-assign]
    await asyncio.sleep(40.0)
    stage.shown()
    assert stage.live.outdated() == {}


@played()
async def test_what_each_broker_is_seen_by(stage: Stage) -> None:
    """For metrics and doctor: live with the age of the reading, or why not; nothing at a follower."""
    stage.counting.faults = {"a:8080"}
    assert stage.live.states() == dict.fromkeys(BROKERS, "waiting")
    await asyncio.sleep(5.0)
    stage.shown()
    assert stage.live.states() == {"a:8080": "refused", "b:8080": "live"}
    assert stage.live.refusals() == {"a:8080": "no counters"}
    assert list(stage.live.ages()) == ["b:8080"] and 0 < stage.live.ages()["b:8080"] <= 3.5
    check = live_loads_check(stage.live)
    assert not check.ok and "live 1, refused 1; a:8080: no counters" in check.detail
    stage.topics = 300_001
    stage.shown()
    assert set(stage.live.states().values()) == {"too_many_topics"}
    stage.leads = False
    assert (stage.live.states(), stage.live.ages()) == ({}, {})
    detail = live_loads_check(stage.live).detail
    assert "only the leader reads counters" in detail and "from extensible brokers only in mode act" in detail
