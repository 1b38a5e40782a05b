"""Probes of brokers' CPU time between readings of their pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from bundlekeel.pulsar.counters.counters import REFUSED_SECONDS
from bundlekeel.pulsar.counters.cpu_signal import CpuSignal
from tests.unit.pulsar.counters.test_counters import Stage, played


def unusual(cores: list[float], margin: float = 0.02) -> list[int]:
    """Return the places of the values outside of the usual range by more than a margin, probed 3 s apart."""
    signal, seconds = CpuSignal(), 0.0
    signal.surprise(0.0, 0.0)
    places = []
    for place, value in enumerate(cores):
        seconds += 3.0 * value
        if signal.surprise(3.0 * (place + 1), seconds) > margin:
            places.append(place)
    return places


def test_a_step_is_unusual_twice() -> None:
    """Also if the first probe after it contains nothing from before."""
    assert unusual([0.2] * 10 + [0.4] * 10) == [10, 11]
    assert unusual([0.2] * 10 + [0.1] * 10) == [10, 11]


def test_values_like_earlier_ones_are_usual() -> None:
    """A page for Prometheus every 30 s, noise of a tenth, and a load that swings within a minute."""
    scrape = [0.2] * 9 + [0.27]
    assert unusual(scrape * 10) == [9]
    noise = np.random.default_rng(1).normal(0.2, 0.02, 2_000).tolist()
    assert len(unusual(noise)) <= 20
    swing = [0.2] * 8 + [0.3] * 8
    assert len(unusual(swing * 10)) <= 2


def test_too_few_values_show_nothing() -> None:
    """A restarted JVM counts from zero."""
    assert unusual([0.2] * 4 + [0.9, 0.1]) == []
    signal = CpuSignal()
    assert signal.surprise(1.0, 100.0) == 0
    assert signal.surprise(2.0, 1.0) == 0
    assert not signal.values


def readings_since(stage: Stage, count: int) -> list[str]:
    return [broker for broker, _ in stage.counting.asked[count:]]


def make_slow(stage: Stage) -> None:
    """Pages take a second, so that they are read every 45 s while nothing changes."""
    stage.counting.takes = 1.0


@played(seconds=100.0)
async def test_a_large_page_is_read_rarely_while_probes_are_answered(stage: Stage) -> None:
    """Two readings and their age fit into two statistics intervals."""
    make_slow(stage)
    await asyncio.sleep(60.0)
    count = len(stage.counting.asked)
    await asyncio.sleep(450.0)
    assert 2 * 9 <= len(stage.counting.asked) - count <= 2 * 11


async def check_step(stage: Stage, seconds: float, sign: Callable[[], bool] = lambda: True) -> None:
    """Let the traffic change, and check the readings of the next seconds. `sign`: called right after the change.

    Every broker is read twice: the second reading contains nothing from before the change."""
    make_slow(stage)
    await asyncio.sleep(120.0)
    stage.counting.carry()
    count = len(stage.counting.asked)
    stage.counting.rates.update({"a:8080": 2000.0, "b:8080": 1000.0})
    assert sign()
    await asyncio.sleep(seconds)
    assert sorted(readings_since(stage, count)[:4]) == ["a:8080", "a:8080", "b:8080", "b:8080"]
    assert stage.rate("a:8080") == pytest.approx(2000.0, rel=0.01)


@played(seconds=100.0)
async def test_a_step_is_read_within_seconds(stage: Stage) -> None:
    await check_step(stage, 14.0)


@played(seconds=100.0)
async def test_a_false_sign_costs_no_more_than_the_usual_readings(stage: Stage) -> None:
    """CPU that no traffic explains jumps again and again."""
    make_slow(stage)
    await asyncio.sleep(120.0)
    count = len(stage.counting.asked)
    for turn in range(30):
        used, extra = stage.counting.cpu_seconds, turn + 1.0

        async def more(broker_id: str, used=used, extra=extra) -> float:  # type: ignore[no-untyped-def]
            return float(await used(broker_id) + extra * (stage.clock.boot() % 1000))

        stage.live._cpu_seconds = more
        await asyncio.sleep(10.0)
    assert len(stage.counting.asked) - count <= 2 * 300 / 15


@played(seconds=100.0)
async def test_brokers_that_answer_no_probe_are_read_at_the_usual_interval(stage: Stage) -> None:
    stage.counting.takes = 0.5
    stage.counting.probes_fail = True
    await asyncio.sleep(30.0)
    count, probes = len(stage.counting.asked), len(stage.counting.probed)
    await asyncio.sleep(10 * REFUSED_SECONDS)
    assert 2 * 38 <= len(stage.counting.asked) - count <= 2 * 40
    assert len(stage.counting.probed) - probes <= 2 * 10


@played(seconds=100.0)
async def test_nothing_is_probed_by_a_follower_or_during_moves(stage: Stage) -> None:
    """Nor while brokers are read in quick succession."""
    assert len(stage.counting.probed) > 2 * 20
    for name in ("calls", "moves"):
        setattr(stage, name, True)
        await asyncio.sleep(1.0)
        count = len(stage.counting.probed)
        await asyncio.sleep(60.0)
        assert len(stage.counting.probed) == count
        setattr(stage, name, False)
        await asyncio.sleep(20.0)
    stage.leads = False
    await asyncio.sleep(1.0)
    count = len(stage.counting.probed)
    await asyncio.sleep(60.0)
    assert len(stage.counting.probed) == count


@played(seconds=100.0)
async def test_a_slow_broker_is_probed_rarely(stage: Stage) -> None:
    """It rests for twenty times as long as its answer took."""
    answer = stage.counting.cpu_seconds

    async def slow(broker_id: str) -> float:
        await asyncio.sleep(1.0)
        return await answer(broker_id)

    stage.live._cpu_seconds = slow
    await asyncio.sleep(10.0)
    count = len(stage.counting.probed)
    await asyncio.sleep(210.0)
    assert len(stage.counting.probed) - count <= 2 * 11


@played(seconds=100.0)
async def test_an_alarm_reads_every_broker_within_seconds(stage: Stage) -> None:
    """Sooner than unusual probes do."""
    await check_step(stage, 9.0, stage.live.alarm)


@played(seconds=100.0)
async def test_alarms_cost_at_most_one_more_reading_per_interval(stage: Stage) -> None:
    """Even ten of them per second."""
    make_slow(stage)
    await asyncio.sleep(120.0)
    count, followed = len(stage.counting.asked), 0
    for _ in range(3_000):
        followed += stage.live.alarm()
        await asyncio.sleep(0.1)
    assert followed == 300 / 30
    # 300 s contain 7 usual readings of each broker.
    assert len(stage.counting.asked) - count <= 2 * (300 / 15 + 7)


@played(seconds=100.0)
async def test_an_alarm_is_ignored_by_a_follower(stage: Stage) -> None:
    stage.leads = False
    assert not stage.live.alarm()
    stage.leads = True
    assert stage.live.alarm()


@played(seconds=100.0)
async def test_an_alarm_is_followed_soon_after_an_unusual_probe(stage: Stage) -> None:
    """Probes are often unusual without a change of traffic. They must not delay the readings after a signal."""
    make_slow(stage)
    await asyncio.sleep(120.0)
    stage.counting.carry()
    count = len(stage.counting.asked)
    stage.counting.rates["a:8080"] = 3000.0
    await asyncio.sleep(9.0)
    assert len(readings_since(stage, count)) >= 4, "the probes were unusual"
    assert stage.live.alarm()
