"""Whether a broker's report and its counters agree about the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from bundlekeel.model.agreement import Agreement, unexplained
from bundlekeel.model.counters import MeasuredLoad
from bundlekeel.model.load import BrokerReport

LOW, HIGH = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
CHILD = "t/n/0x80000000_0xc0000000"
REST = "sla-monitor/b:8080/0x00000000_0xffffffff"
STATISTICS = 60


def load(begin: float, end: float, rates: Mapping[str, float], *, partly: Sequence[str] = ()) -> MeasuredLoad:
    """A load from `begin` to `end`, in seconds, with bytes/s in by bundle; of `partly` some topics came in between."""
    traffic = np.zeros((len(rates), 4))
    traffic[:, 2] = list(rates.values())
    return MeasuredLoad(
        from_ms=int(1000 * begin),
        to_ms=int(1000 * end),
        bundles=tuple(rates),
        traffic=traffic,
        replicated=np.zeros_like(traffic),
        counts=np.ones((len(rates), 3), dtype=np.int64),
        whole=np.array([name not in partly for name in rates], dtype=bool),
        cpu_cores=1.0,
        direct_memory_bytes=None,
    )


def loads(rates: Mapping[str, float], *, until: float = 300.0) -> list[MeasuredLoad]:
    """Loads of 15 s each from 0 on."""
    return [load(begin, begin + 15.0, rates) for begin in np.arange(0.0, until, 15.0).tolist()]


def report(rates: Mapping[str, float], *, at: float = 240.0) -> BrokerReport:
    """A report at `at`, in seconds, with bytes/s in by bundle."""
    traffic = np.zeros((len(rates), 4))
    traffic[:, 2] = list(rates.values())
    return BrokerReport(
        broker_id="b:8080",
        usage=np.zeros(4),
        limit=np.zeros(4),
        traffic=traffic.sum(axis=0),
        last_update=int(1000 * at),
        bundle_names=tuple(rates),
        bundle_traffic=traffic,
        bundle_counts=np.ones((len(rates), 3), dtype=np.int64),
    )


def compared(reported: Mapping[str, float], measured: Sequence[MeasuredLoad]) -> str | None:
    """`unexplained` of a report at 240 s."""
    return unexplained(report(reported), measured, 1000 * STATISTICS)


@pytest.mark.parametrize("measured", [{LOW: 40e6}, {LOW: 40e6, HIGH: 0.0}, {LOW: 30e6, HIGH: 10e6}])
def test_n_c_traffic_in_other_bundles(measured: dict[str, float]) -> None:
    """Another assigner than Pulsar's puts topics of the lower half into the upper one: both bundles have 20 MB/s."""
    text = compared({LOW: 20e6, HIGH: 20e6}, loads(measured)) or ""
    assert text.startswith(f"{HIGH}: the report has msg_throughput_in 20000000, counters at most")


def test_n_c_bundles_that_no_report_names() -> None:
    """The hashes put topics into a bundle that another broker owns."""
    assert LOW in (compared({LOW: 20e6}, loads({HIGH: 20e6})) or "")


@pytest.mark.parametrize(
    ("reported", "measured"),
    [
        ({LOW: 20e6, HIGH: 20e6}, {LOW: 21e6, HIGH: 19e6}),
        ({LOW: 40e6, HIGH: 1e6}, {LOW: 40e6}),
        ({LOW: 5e6}, {LOW: 40e6, HIGH: 40e6}),
        ({LOW: 40e6, CHILD: 20e6}, {LOW: 40e6, HIGH: 20e6}),
        ({LOW: 40e6, REST: 0.0}, {LOW: 40e6}),
        ({}, {}),
    ],
    ids=["alike", "little of it", "sessions that ended", "a split", "bundles without topics", "an empty broker"],
)
def test_n_c_no_disagreement(reported: dict[str, float], measured: dict[str, float]) -> None:
    """The counters explain the report, or too little is missing to matter."""
    assert compared(reported, loads(measured)) == ""


def test_n_c_a_bundle_with_a_new_topic_can_carry_any_rate() -> None:
    """The rate of the topic before the second reading is unknown."""
    measured = loads({LOW: 1e6, HIGH: 1e6})
    begin = measured[12].from_ms / 1000
    measured[12] = load(begin, begin + 15.0, {LOW: 1e6, HIGH: 1e6}, partly=[HIGH])
    assert compared({LOW: 1e6, HIGH: 9e6}, measured) == ""
    assert HIGH in (compared({LOW: 1e6, HIGH: 9e6}, loads({LOW: 1e6, HIGH: 1e6})) or "")


@pytest.mark.parametrize(
    ("measured", "reported"),
    [
        (loads({LOW: 1.0}, until=240.0), {HIGH: 1e6}),
        (loads({LOW: 1.0})[8:], {HIGH: 1e6}),
        ([], {HIGH: 1e6}),
        (loads({LOW: 1.0}), {LOW: 1.0, REST: 1e6}),
    ],
    ids=["too short", "too late", "none", "top bundles"],
)
def test_n_c_nothing_to_compare(measured: list[MeasuredLoad], reported: dict[str, float]) -> None:
    """Counters of another time prove nothing, and a report of the largest bundles omits the others."""
    assert compared(reported, measured) is None


SECONDS = 330
BURSTS = st.lists(
    st.tuples(st.integers(0, SECONDS - 1), st.sampled_from((1, 5, 60)), st.sampled_from((1e3, 1e7))), max_size=4
)


def traffic_of(bursts: Sequence[tuple[int, int, float]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the bytes of each second. A burst has its first second, its seconds and its bytes/s."""
    seconds = np.zeros(SECONDS)
    for begin, lasts, rate in bursts:
        seconds[begin : begin + lasts] += rate
    return seconds


@given(
    bursts=st.tuples(BURSTS, BURSTS),
    stays=st.tuples(st.integers(0, SECONDS), st.integers(0, SECONDS)),
    lengths=st.sampled_from((3, 7, 15, 30, 60)),
    age=st.integers(0, STATISTICS),
    skew=st.integers(-15, 15),
)
@example(bursts=([(179, 1, 1e7), (180, 1, 1e7)], []), stays=(0, 0), lengths=60, age=40, skew=0)
@example(bursts=([], [(150, 5, 1e7)]), stays=(0, 160), lengths=60, age=40, skew=0)
def test_n_c_a_report_of_the_same_traffic_never_disagrees(
    bursts: tuple[list[tuple[int, int, float]], list[tuple[int, int, float]]],
    stays: tuple[int, int],
    lengths: int,
    age: int,
    skew: int,
) -> None:
    """Whatever bursts and moves there are, however old the statistics, and with clocks 15 s apart.

    One bundle is at the broker all the time, the other one comes and leaves, not between the same two readings.
    """
    came, left = min(stays), max(stays)
    assume(came // lengths != left // lengths or came == left)
    stayed, moved = map(traffic_of, bursts)
    moved[:came], moved[left:] = 0.0, 0.0
    measured = []
    for end in range(lengths, SECONDS + 1, lengths):
        begin = end - lengths
        here = {LOW: float(stayed[begin:end].mean())}
        if came < end <= left:
            here[HIGH] = float(moved[begin:end].mean())
        measured.append(load(begin, end, here, partly=[HIGH] if begin < came else []))
    at = 240 - age
    rates = {name: float(table[at - STATISTICS : at].mean()) for name, table in ((LOW, stayed), (HIGH, moved))}
    assert unexplained(report(rates, at=240 + skew), measured, 1000 * STATISTICS) == ""


def test_n_c_loads_are_kept_as_long_as_a_report_needs_them() -> None:
    """Prometheus scrapes once a minute, and the report arrives at any moment of it."""
    for at in range(300, 360):
        agreement = Agreement()
        for minute in range(9):
            agreement.add(load(60 * minute, 60 * minute + 60, {LOW: 1e6}), 60_000)
            if 60 * minute + 60 >= at:
                agreement.compare(report({LOW: 1e6}, at=at), 60_000)
        assert agreement.results == [""]
