"""Reports built from two readings of a broker's counters."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from bundlekeel.model.counters import CounterReading, measured, others_share, with_measured
from bundlekeel.model.load import BANDWIDTH_IN, BANDWIDTH_OUT, CPU, DIRECT_MEMORY, BrokerReport

HALVES = {"t/n": [0, 0x80000000, 0xFFFFFFFF]}
LOW, HIGH = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"


def reading(at_s: float, topics: dict[int, float], cpu: float | None = None, namespace: str = "t/n") -> CounterReading:
    """Topics by hash with the bytes that came in; a reading lasts 100 ms around a moment."""
    counters = np.zeros((len(topics), 4))
    counters[:, 2] = list(topics.values())
    return CounterReading(
        from_ms=int(1000 * at_s) - 50,
        to_ms=int(1000 * at_s) + 50,
        namespaces=(namespace,),
        namespace=np.zeros(len(topics), dtype=np.int64),
        keys=np.array([zlib.crc32(f"{namespace}/{name}".encode()) for name in topics], dtype=np.uint64),
        topic=np.ones(len(topics), dtype=bool),
        hashes=np.array(list(topics), dtype=np.int64),
        counters=counters,
        sessions=np.tile(np.array([[2, 1]]), (len(topics), 1)),
        cpu_seconds=cpu,
        direct_memory_bytes=64.0 * 1024 * 1024,
    )


def test_rates_of_bundles() -> None:
    """Bytes since the reading before, by bundle; a topic on the boundary belongs to the upper one."""
    load = measured(
        reading(10, {1: 50.0, 0x80000000: 7.0, 2: 0.0}), reading(12, {2: 10.0, 1: 80.0, 0x80000000: 8.0}), HALVES
    )
    assert load is not None
    assert dict(zip(load.bundles, load.traffic[:, 2].tolist(), strict=True)) == {LOW: 20.0, HIGH: 0.5}
    assert load.counts.tolist() == [[2, 4, 2], [1, 2, 1]]
    assert load.whole.all()
    assert (load.from_ms, load.to_ms) == (9950, 12050)


def test_a_topic_that_came_or_began_anew() -> None:
    load = measured(reading(10, {1: 50.0, 0x90000000: 500.0}), reading(12, {1: 60.0, 5: 8.0, 0x90000000: 20.0}), HALVES)
    assert load is not None
    assert load.bundles == (LOW, HIGH)
    assert load.traffic[:, 2].tolist() == [9.0, 10.0]
    assert load.whole.tolist() == [False, False]


@pytest.mark.parametrize(("ended", "began"), [({}, {}), ({"reader": 5e9}, {}), ({}, {"reader": 40.0})])
def test_a_subscription_that_ends_or_begins(ended: dict[str, float], began: dict[str, float]) -> None:
    def of(at_s: float, subscriptions: dict[str, float]) -> CounterReading:
        topics = reading(at_s, {1: 1e9 + at_s, **dict.fromkeys(range(2, len(subscriptions) + 2), 0.0)})
        counters = topics.counters.copy()
        counters[1:, 3] = list(subscriptions.values())
        keys = np.array([0, *(zlib.crc32(name.encode()) for name in subscriptions)], dtype=np.uint64)
        return replace(topics, counters=counters, keys=keys, topic=np.arange(len(keys)) == 0)

    load = measured(of(10, {"main": 1e9, **ended}), of(20, {**began, "main": 1e9 + 100}), HALVES)
    assert load is not None
    assert load.traffic[0].tolist() == [0.0, 0.0, 1.0, 10.0 + 4.0 * len(began)]
    assert (load.whole.tolist(), load.counts[0, 0]) == ([True], 1)


def test_a_subscription_that_was_there_and_counts_anew() -> None:
    before = replace(reading(10, {1: 9.0}), topic=np.zeros(1, dtype=bool))
    load = measured(before, replace(reading(12, {1: 4.0}), topic=np.zeros(1, dtype=bool)), HALVES)
    assert load is not None
    assert (load.traffic[0, 2], load.whole.tolist()) == (2.0, [False])


def test_the_same_hash_in_another_namespace_is_another_topic() -> None:
    """Rows are compared by their keys."""
    edges = {**HALVES, "t/m": [0, 0xFFFFFFFF]}
    load = measured(reading(10, {1: 50.0}, namespace="t/m"), reading(11, {1: 60.0}), edges)
    assert load is not None
    assert (load.traffic[0, 2], load.whole.tolist()) == (60.0, [False])


def test_a_namespace_without_known_boundaries_is_left_out() -> None:
    load = measured(reading(10, {1: 50.0}), reading(11, {1: 60.0}), {})
    assert load is not None
    assert (load.bundles, load.traffic.shape) == ((), (0, 4))


@pytest.mark.parametrize("counted", [0.0, 100.0])
def test_n_d_what_replicators_send_is_part_of_what_goes_out(counted: float) -> None:
    """Brokers report it as a rate (`pulsar_replication_throughput_out`), and count only what subscriptions get."""
    before, after = reading(10, {1: 1e3}), reading(20, {1: 2e3})
    after.counters[0, 3] = 10 * counted
    load = measured(before, replace(after, replicated=np.array([[0.0, 4.0, 0.0, 100.0]])), HALVES)
    assert load is not None
    assert load.traffic.tolist() == [[0.0, 4.0, 100.0, counted + 100.0]]
    assert load.replicated.tolist() == [[0.0, 4.0, 0.0, 100.0]]


@pytest.mark.parametrize("others", [0.0, 100.0, 5e7])
def test_n_d_a_replicated_topic_keeps_the_card_busy(others: float) -> None:
    """The card sends 200 MB/s to a subscription and a replicator. Offloaded data (`others`) are in no counter."""
    before, after = reading(10, {1: 1e9}, cpu=0.0), reading(20, {1: 2e9}, cpu=4.0)
    after.counters[0, 3] = 1e9
    load = measured(before, replace(after, replicated=np.array([[0.0, 0.0, 0.0, 1e8]])), HALVES)
    traffic = np.array([0.0, 0.0, 1e8, 2e8])
    reported = report(
        usage=np.array([40.0, 100.0, 8e5, 1.6e6 + 0.008 * others]),
        limit=np.array([400.0, 1000.0, 2.5e6, 2.5e6]),
        traffic=traffic,
        bundle_traffic=traffic[np.newaxis],
    )
    assert load is not None
    result = with_measured(reported, load, {})
    assert result is not None
    assert result.traffic[3] == 2e8
    assert result.usage[BANDWIDTH_OUT] == pytest.approx(reported.usage[BANDWIDTH_OUT])


@pytest.mark.parametrize(("used", "percent"), [(0.0, 75.0), (1.4, 75.0), (1.8, 90.0), (9.0, 100.0)])
def test_n_d_the_cpu_of_functions_in_the_container_of_an_extensible_broker(used: float, percent: float) -> None:
    """Functions can run as processes next to the broker. Its load data contains their CPU, its own counter does not."""
    extensible = report(limit=np.array([100.0, 0.0, 0.0, 0.0]), cores=2.0, used_cores=used)
    load = measured(reading(10, {1: 0.0}, cpu=0.0), reading(12, {1: 0.0}, cpu=3.0), HALVES)
    assert load is not None
    result = with_measured(extensible, load, {}, others_share(extensible, [load], 0.0, 120_000))
    assert result is not None
    assert result.usage[CPU] == pytest.approx(percent)


def test_the_same_reading_twice_is_no_measurement() -> None:
    assert measured(reading(10, {1: 50.0}), reading(10, {1: 50.0}), HALVES) is None


def report(**more: object) -> BrokerReport:
    """A broker of four cores at 10 %, with 1 MB/s on the lower half, as it said itself."""
    blank = BrokerReport(
        broker_id="b:8080",
        usage=np.array([40.0, 100.0, 8000.0, 0.0]),
        limit=np.array([400.0, 1000.0, 1e6, -1000.0]),
        traffic=np.array([0.0, 0.0, 1e6, 0.0]),
        last_update=1,
        bundle_names=(LOW,),
        bundle_traffic=np.array([[0.0, 0.0, 1e6, 0.0]]),
        bundle_counts=np.array([[1, 1, 1]]),
        start_timestamp=5,
    )
    return replace(blank, **more)  # type: ignore[arg-type]


def merged(output: BrokerReport, *, cpu: float | None = 3.0, begins: float = 0.0) -> BrokerReport | None:
    """The report with two readings, two seconds apart: 2 MB/s on the upper half, `cpu` seconds used."""
    before = reading(10, {0x80000001: begins} if begins >= 0 else {}, cpu=0.0)
    load = measured(before, reading(12, {0x80000001: 4e6}, cpu=cpu), HALVES)
    assert load is not None
    return with_measured(output, load, {HIGH: np.array([0.0, 0.0, 3e6, 0.0])})


def test_a_report_with_what_was_measured() -> None:
    """Bundles, traffic, CPU and direct memory are those of now; bandwidth follows the traffic where it is limited."""
    merged_report = merged(report())
    assert merged_report is not None
    assert (merged_report.bundle_names, merged_report.bundle_traffic[:, 2].tolist()) == ((HIGH,), [2e6])
    assert (merged_report.traffic[2], merged_report.num_topics, merged_report.bundle_counts.tolist()) == (
        2e6,
        1,
        [[1, 2, 1]],
    )
    assert (merged_report.usage[CPU], merged_report.usage[DIRECT_MEMORY]) == (150.0, 64.0)
    assert (merged_report.usage[BANDWIDTH_IN], merged_report.usage[BANDWIDTH_OUT]) == (16000.0, 0.0)
    assert (merged_report.last_update, merged_report.interval_ms, merged_report.start_timestamp) == (12050, 2100, 5)


@pytest.mark.parametrize(("used", "percent"), [(8.0, 353.6), (10.0, 400.0), (21.0, 800.0)])
def test_n_g_a_broker_may_read_its_cpu_at_any_time_of_a_request(used: float, percent: float) -> None:
    """CPU that four cores cannot use between the requests may have been used during them, up to the longest time."""
    before, after = reading(10, {}, cpu=0.0), reading(12, {}, cpu=used)
    load = measured(replace(before, from_ms=9_500), replace(after, to_ms=12_125), HALVES)
    assert load is not None
    broker_report = with_measured(report(), load, {})
    assert broker_report is not None and broker_report.usage[CPU] == pytest.approx(percent, abs=0.1)


def test_a_bundle_that_came_in_between_keeps_what_was_measured_of_it_elsewhere() -> None:
    merged_report = merged(report(), begins=-1.0)
    assert merged_report is not None
    assert merged_report.bundle_traffic[:, 2].tolist() == [3e6]


def test_no_cpu_no_measurement() -> None:
    """A broker's figures would be of two moments: its own report stays."""
    assert merged(report(), cpu=None) is None
    assert merged(report(cores=0.0)) is None


def test_a_broker_whose_cpu_does_not_count() -> None:
    """Without a limit nothing is made of the CPU, so none is needed."""
    merged_report = merged(report(limit=np.array([0.0, 1000.0, 1e6, -1000.0])), cpu=None)
    assert merged_report is not None
    assert merged_report.usage[CPU] == 40.0


def test_a_broker_that_tells_a_share_of_its_cpu_only() -> None:
    """An extensible broker that was not heard: its JVM says which part of its CPU it uses."""
    load = measured(reading(10, {1: 0.0}), reading(12, {1: 0.0}, cpu=3.0), HALVES)
    assert load is not None
    broker_report = with_measured(report(cores=0.0), replace(load, cpu_share=0.25), {})
    assert broker_report is not None
    assert broker_report.usage[CPU] == 100.0


@pytest.mark.parametrize(("least", "percent"), [(0.0, 75.0), (0.9, 90.0)])
def test_a_score(least: float, percent: float) -> None:
    scored = report(limit=np.array([100.0, 0.0, 0.0, 0.0]), cores=2.0, least_usage=least)
    merged_report = merged(scored)
    assert merged_report is not None
    assert merged_report.usage[CPU] == pytest.approx(percent)
